"""`python tools/ahead_cells.py`: `pushback.ahead` against `off`, in scenarios that chance draws (contract, section 16).

A scenario has a limit of requests or of tokens (a fixed or sliding window, or a token bucket) that is asked for half of
what it lets through up to a fifth too much, by one to ten sidecars, and answers that take a tenth of a second to some
seconds and report the limit rightly (`--kinds right`), or in one of the ways of `proxy.lab.simulate.reports` that are
wrong (`lies`). `--cells 40 --seed 1` draws forty of each kind; the same seed draws the same ones. Each is played with
several seeds, with `ahead` and without; those that seem to be worse with `ahead` are played again with more.

A line for each scenario that is worse, or with `-v` for all: the shares of calls that succeed with `ahead` and with
`off`, their difference in points and its standard error, refusals, and 99th percentiles. It ends with what is worse by
more than two standard errors: 0.5 points of calls, 2 % (and five) of refusals, 5 % (and 0.3 s) of the 99th percentile.
Sums follow. `--only NAME` plays one scenario. `--keep FOLDER` writes the scenarios to files for `redrive simulate`, and
keeps their figures with `off`, which a change to `ahead` does not alter.

Exit status: 1 if a scenario is worse.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from proxy.lab.simulate.columns import columns  # noqa: E402
from proxy.lab.simulate.figures import Figures, figures  # noqa: E402
from proxy.lab.simulate.reports import REPORTS  # noqa: E402
from proxy.lab.simulate.scenario import read_scenario  # noqa: E402
from proxy.lab.simulate.simulation import play  # noqa: E402

#: The ways to report a limit that are right; all others but `off` are wrong.
_RIGHT = ("right", "window", "next")
_LIES = tuple(each for each in REPORTS if each not in (*_RIGHT, "off"))
#: What counts as worse: points of calls that succeed, the part of the refusals and their number, in standard errors.
_POINTS, _PART, _FEW, _PART_OF_TIME, _SECONDS, _ERRORS = 0.005, 0.02, 5.0, 0.05, 0.3, 2.0


def scenario_of(kind: str, chance: random.Random) -> str:
    """The text of one scenario of this kind: `right`, `lies`, or one way to report."""
    window = chance.choice([1, 2, 5, 10, 10, 30, 60])
    limit_kind, tokens = chance.choice(["fixed", "sliding", "bucket"]), chance.random() < 1 / 3
    per_second, asked = chance.choice([2, 4, 8, 15]), chance.choice([0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.2])
    calls = max(per_second, 4 / window)  # a limit of fewer than four a window is none that anybody has
    latency = chance.choice([100, 300, 900, 1000, 3000])
    size, request = (round(calls / asked * window), "")
    if tokens:
        size *= 1000
        request = f"request: {{prompt: {chance.choice([30, 60])}%, max_tokens: {chance.choice([400, 900])}}}\n"
    ways = {"lies": _LIES, "right": ("right", "next") if tokens else _RIGHT}.get(kind, (kind,))
    return f"""\
duration: {max(240, 6 * window)}s
sidecars: {chance.choice([1, 1, 2, 10])}
calls: {calls:g}/s
{request}upstream:
  {{latency: {latency}ms, limit: {size}, {"tokens: 1000, " if tokens else ""}window: {window}s,
   limit_kind: {limit_kind}, overload: 429, reports: {chance.choice(ways)}}}
policy: {{dialects: [http, openai], pushback: {{ahead: on}}}}
compare:
  off: {{dialects: [http, openai]}}
"""


def drawn(kind: str, cells: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of so many scenarios of a kind. Each depends on the seed, the kind and its number."""
    for number in range(cells):
        name = f"{kind}-{seed}-{number}"
        yield name, f"name: {name}\n{scenario_of(kind, random.Random(f'{seed}/{kind}/{number}'))}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The plays of one scenario, with `ahead` and with `off`, in the order of the seeds."""

    name: str
    ahead: list[Figures]
    off: list[Figures]

    def worse(self, errors: float = _ERRORS) -> str:
        """In what `ahead` is worse, by more than so many standard errors: in the share of calls that succeed, in
        refusals, or in the 99th percentile; empty if it is worse in none.
        """
        pairs = list(zip(self.ahead, self.off, strict=True))
        fewer = [off.success_rate - ahead.success_rate for ahead, off in pairs]
        more = [float(ahead.refused - off.refused) for ahead, off in pairs]
        later = [ahead.latency["p99"] - off.latency["p99"] for ahead, off in pairs]
        refused, p99 = mean(off.refused for off in self.off), mean(off.latency["p99"] for off in self.off)
        found = (
            ("share", fewer, _POINTS),
            ("refused", more, max(_FEW, _PART * refused)),
            ("p99", later, max(_SECONDS, _PART_OF_TIME * p99)),
        )
        return " ".join(name for name, values, most in found if _least(values, errors) > most)

    def line(self) -> str:
        """The scenario's line of the table."""
        points = [100 * (a.success_rate - o.success_rate) for a, o in zip(self.ahead, self.off, strict=True)]
        return (
            f"{self.name:<13}{_share(self.ahead)}{_share(self.off)}{mean(points):+8.2f} ±{_error(points):.2f}"
            f"{mean(f.refused for f in self.ahead):9.1f}{mean(f.refused for f in self.off):9.1f}"
            f"{mean(f.latency['p99'] for f in self.ahead):8.2f}{mean(f.latency['p99'] for f in self.off):8.2f}"
            f"  {self.worse()}"
        ).rstrip()


def _error(values: list[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _least(values: list[float], errors: float) -> float:
    return mean(values) - errors * _error(values)


def _share(plays: list[Figures]) -> str:
    return f"{mean(each.success_rate for each in plays):9.2%}"


def played(job: tuple[Path, int, Path | None]) -> tuple[Figures, Figures]:
    """The figures of a scenario with `ahead` and with `off`, played with a seed. The third part of `job` is the folder
    in which those with `off` are kept, if there is one.
    """
    file, seed, kept = job
    found, problems = read_scenario(str(file))
    if found is None:
        raise ValueError("\n".join(map(str, problems)))
    found = replace(found, seed=seed)
    ways = {column.name: column for column in columns(None, found, {})[0]}
    ahead = figures(found, play(found, ways["policy: standard"]))
    place = None if kept is None else kept / f"{file.stem}-{seed}-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    if place is not None and place.exists():
        off = pickle.loads(place.read_bytes())  # noqa: S301 - this tool wrote it
    else:
        off = figures(found, play(found, ways["off"]))
        if place is not None:
            place.write_bytes(pickle.dumps(off))
    return ahead, off


def _cells(files: list[Path], seeds: Iterable[int], kept: Path | None, pool: ProcessPoolExecutor) -> Iterator[Cell]:
    """Play these scenarios with all seeds. `kept`: the folder in which figures with `off` are kept."""
    plays = pool.map(played, [(file, seed, kept) for file in files for seed in seeds])
    for file in files:
        ahead, off = zip(*(next(plays) for _ in seeds), strict=True)
        yield Cell(file.stem, list(ahead), list(off))


def main() -> int:
    """Draw, play and print."""
    parser = argparse.ArgumentParser(description="compare pushback.ahead with off in scenarios that chance draws")
    parser.add_argument("--cells", type=int, default=40, help="how many scenarios of each kind are drawn")
    parser.add_argument("--seed", type=int, default=1, help="the seed that they are drawn with")
    parser.add_argument("--plays", type=int, default=3, help="how often each scenario is played, with seeds from 1 on")
    parser.add_argument("--more", type=int, default=9, help="how often each is played again that seems to be worse")
    parser.add_argument(
        "--kinds", default="right,lies", help="`right`, `lies`, or ways to report, with commas between them"
    )
    parser.add_argument("--only", default="", help="the names of the scenarios to play, with commas between them")
    parser.add_argument("--keep", type=Path, help="a folder for the scenarios, and for what they give with `off`")
    parser.add_argument("-v", "--verbose", action="store_true", help="print all lines")
    options = parser.parse_args()
    only = set(options.only.split(",")) - {""}
    os.nice(4)
    print("scenario       ahead      off    points           refused    (off)     p99   (off)")
    with tempfile.TemporaryDirectory() as made, ProcessPoolExecutor() as pool:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for kind in options.kinds.split(","):
            for name, text in drawn(kind, options.cells, options.seed):
                if not only or name in only:
                    files.append(folder / f"{name}.yaml")
                    files[-1].write_text(text)
        found = {cell.name: cell for cell in _cells(files, range(1, options.plays + 1), options.keep, pool)}
        unclear = [file for file in files if options.more and found[file.stem].worse(0.0)]
        again = range(options.plays + 1, options.plays + options.more + 1)
        for more in _cells(unclear, again, options.keep, pool):
            first = found[more.name]
            found[more.name] = Cell(more.name, first.ahead + more.ahead, first.off + more.off)
    for cell in found.values():
        if options.verbose or cell.worse():
            print(cell.line())
    for kind in options.kinds.split(","):
        cells = [each for each in found.values() if each.name.startswith(kind)]
        if cells:
            ahead = [mean(f.refused for f in each.ahead) for each in cells]
            off = [mean(f.refused for f in each.off) for each in cells]
            shares = [mean(f.success_rate for f in way) for each in cells for way in (each.ahead, each.off)]
            print(
                f"{kind}: {len(cells)} scenarios, {sum(bool(each.worse()) for each in cells)} worse; "
                f"{mean(shares[::2]):.2%} and {mean(shares[1::2]):.2%} of calls, "
                f"{sum(ahead):.0f} and {sum(off):.0f} refused"
            )
    return 1 if any(each.worse() for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
