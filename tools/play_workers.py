"""`python tools/play_workers.py 0,1,4 KIND...`: drawn weather, as no proxy, one process, and several workers.

The kinds are those of `tools/drawn_weather.py`. Two scenarios of each are drawn (`--draw 2 --seed 1`), and each is
played with the defaults by one sidecar: without retries (0), by one process (1), or by so many workers that share what
they know in one memory, as those of one machine do. As many are played at a time as there are cores, at low priority.

Each scenario gets a line, with columns in the order of the numbers of workers: the percentages of calls that are
served, the medians and 99th percentiles of the seconds that these took, and attempts a call. The means follow.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]

from drawn_weather import KINDS, drawn  # noqa: E402
from support.play_workers import over_workers  # noqa: E402

from proxy.lab.simulate.scenario import read_scenario  # noqa: E402


def played(job: tuple[Path, int]) -> tuple[float, float, float, float]:
    """The percentage that is served, the median, the 99th percentile and the attempts a call of a scenario's file, for
    a number of workers.
    """
    file, workers = job
    scenario, problems = read_scenario(str(file))
    if scenario is None:
        raise ValueError("\n".join(map(str, problems)))
    found = over_workers(scenario, workers)
    return 100 * found.figures.success_rate, found.median, found.p99, found.figures.attempts_per_call


def main() -> None:
    """Draw, play and print."""
    parser = argparse.ArgumentParser(description="play drawn weather over the workers of one machine")
    parser.add_argument("workers", help="numbers of workers, with commas between them: 0 is no proxy, 1 one process")
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="kind", help="a kind of tools/drawn_weather.py")
    parser.add_argument("--draw", type=int, default=2, help="how many scenarios of each kind are drawn")
    parser.add_argument("--seed", type=int, default=1, help="the seed that they are drawn with")
    options = parser.parse_args()
    counts = [int(each) for each in options.workers.split(",")]
    os.nice(10)
    print(f"{'scenario':20}{'served':>{8 * len(counts)}}  median/p99, attempts")
    shares = []
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor() as pool:
        files = [Path(folder, f"{name}.yaml") for name, _ in drawn(options.kinds, options.draw, options.seed)]
        for file, (_, text) in zip(files, drawn(options.kinds, options.draw, options.seed), strict=True):
            file.write_text(text)
        plays = pool.map(played, [(file, count) for file in files for count in counts])
        for file in files:
            found = [next(plays) for _ in counts]
            shares.append([share for share, *_ in found])
            took = "  ".join(f"{middle:.2f}/{last:.1f}" for _, middle, last, _ in found)
            attempts = " ".join(f"{each:.2f}" for *_, each in found)
            print(f"{file.stem:20}{_row(shares[-1])}  {took}  {attempts}", flush=True)
    print(f"{'mean':20}{_row([mean(each) for each in zip(*shares, strict=True)])}")


def _row(shares: list[float]) -> str:
    return "".join(f"{share:8.2f}" for share in shares)


if __name__ == "__main__":
    main()
