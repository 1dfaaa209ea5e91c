"""`python tools/judge.py [SCENARIO...]`: redrive's defaults in scenarios, judged by the contract's section 9.

Without arguments, all scenarios of config/examples/scenarios are played, as many at a time as there are cores, at low
priority. Each gets a line: the shares of calls that `none`, the defaults and the best scheduler serve, medians and 99th
percentiles of the calls that none and the defaults serve, and of the best scheduler's waits, attempts a call, the
highest load as a multiple of what is allowed, and the rules that do not hold, with their figures. `-v` prints the
figures of all rules. `--seeds own,11,12` plays each scenario once with each of these seeds, `own` being the one of its
file: the line then has means, but for the share that the defaults serve at `worst`, and for the highest load; rules
that do not hold are followed by the number of seeds with which they do not, and by the figures of each. Exit status: 1
if a rule does not hold, 2 for a scenario with mistakes.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from proxy.lab.simulate.judge import RuleVerdict, trial  # noqa: E402
from proxy.lab.simulate.scenario import read_scenario  # noqa: E402

#: The seed of the scenario's own file.
OWN = "own"
HEAD = [
    "scenario", "none", "ours", "possible", "worst", "stated", "median n/o/p", "p99 n/o/p", "attempts", "load", "fails",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Play:
    """One play of a scenario with one seed: the figures of the line, by their heads, and the verdicts of all rules; or
    the `problems` of the file in place of both.
    """

    name: str
    seed: str
    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)
    stated: float | None = None
    verdicts: list[RuleVerdict] = field(default_factory=list)
    problems: str = ""

    @property
    def failing(self) -> set[int]:
        """The rules that do not hold."""
        return {each.rule for each in self.verdicts if not each.holds}


def played(job: tuple[Path, str]) -> Play:
    """The play of one scenario with one seed: a number, or `own` for that of its file."""
    file, seed = job
    scenario, problems = read_scenario(str(file))
    if scenario is None:
        return Play(file.stem, seed, problems="\n".join(map(str, problems)))
    judge = trial(scenario if seed == OWN else replace(scenario, seed=int(seed)))
    ours, none, best = judge.ours, judge.none, judge.best
    figures: dict[str, tuple[float, ...]] = {
        "none": (none.figures.success_rate,),
        "ours": (ours.figures.success_rate,),
        "possible": (best.success_rate,),
        "median n/o/p": (none.median, ours.median, best.median),
        "p99 n/o/p": (none.p99, ours.p99, best.p99),
        "attempts": (ours.figures.attempts_per_call,),
        "load": (judge.worst_load,),
    }
    return Play(file.stem, seed, figures, scenario.possible, judge.verdicts())


def cells(plays: list[Play]) -> list[str]:
    """The line of one scenario, from its plays with all seeds."""
    means = {
        head: [sum(each) / len(plays) for each in zip(*(play.figures[head] for play in plays), strict=True)]
        for head in plays[0].figures
    }
    failing = [rule for play in plays for rule in play.failing]
    stated = plays[0].stated
    return [
        plays[0].name,
        *(f"{means[head][0]:.2%}" for head in ("none", "ours", "possible")),
        f"{min(play.figures['ours'][0] for play in plays):.2%}",
        "-" if stated is None else f"{stated:.1%}",
        "/".join(f"{each:.2f}" for each in means["median n/o/p"]),
        "/".join(f"{each:.1f}" for each in means["p99 n/o/p"]),
        f"{means['attempts'][0]:.2f}",
        f"{max(play.figures['load'][0] for play in plays):.2f}",
        ",".join(
            f"{rule}" if len(plays) == 1 else f"{rule} ({failing.count(rule)}/{len(plays)})"
            for rule in sorted(set(failing))
        ),
    ]


def main() -> int:
    """Play the scenarios of the command line, and print the table."""
    parser = argparse.ArgumentParser(description="judge redrive's defaults in scenarios")
    parser.add_argument("scenario", nargs="*", help="a file, or the name of one of the examples")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the figures of all rules")
    parser.add_argument("--seeds", default=OWN, help="numbers, or `own` for the file's, with commas between them")
    options = parser.parse_args()
    folder = ROOT / "config/examples/scenarios"
    files = [Path(each) if Path(each).suffix else folder / f"{each}.yaml" for each in options.scenario]
    files = files or sorted(folder.glob("*.yaml"))
    seeds = options.seeds.split(",")
    os.nice(10)
    with ProcessPoolExecutor() as pool:
        plays = list(pool.map(played, [(file, seed) for file in files for seed in seeds]))
    wrong = dict.fromkeys(play.problems for play in plays if play.problems)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    groups = [plays[first : first + len(seeds)] for first in range(0, len(plays), len(seeds))]
    lines = [HEAD, *map(cells, groups)]
    wide = [max(len(line[number]) for line in lines) for number in range(len(HEAD))]
    for line, group in zip(lines, [[], *groups], strict=True):
        print("  ".join(f"{cell:<{wide[number]}}" for number, cell in enumerate(line)).rstrip())
        for play in group:
            for verdict in play.verdicts:
                if options.verbose or not verdict.holds:
                    seed = f" seed {play.seed}:" if len(seeds) > 1 else ""
                    print(f"   {seed} {verdict.rule}{'' if verdict.holds else ' FAILS'}: {verdict.says}")
    return 1 if any(play.failing for play in plays) else 0


if __name__ == "__main__":
    sys.exit(main())
