"""`python tools/judge.py [SCENARIO...]`: redrive's defaults in scenarios, judged by the contract's section 9.

Without arguments, all scenarios of config/examples/scenarios are played, as many at a time as there are cores. Each
gets a line: the shares of calls that `none`, the defaults and the best scheduler serve, medians and 99th percentiles of
the calls that none and the defaults serve, and of the best scheduler's waits, attempts a call, the highest load as a
multiple of what is allowed, and the rules that do not hold, with their figures. `-v` prints the figures of all rules;
`--seed` plays with other chances. Exit status: 1 if a rule does not hold, 2 for a scenario with mistakes.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from proxy.lab.simulate.judge import Judge, RuleVerdict, trial  # noqa: E402
from proxy.lab.simulate.scenario import read_scenario  # noqa: E402

#: One line of the table, the verdicts in full, and the mistakes in the file, in place of both.
Line = tuple[list[str], list[RuleVerdict], str]
HEAD = [
    "scenario", "none", "ours", "possible", "stated", "median n/o/p", "p99 n/o/p", "attempts", "load", "fails",
]  # fmt: skip


def judged(file: Path, seed: int | None = None) -> Line:
    """The line of one scenario, with its own seed if none is given."""
    scenario, problems = read_scenario(str(file))
    if scenario is None:
        return [file.stem], [], "\n".join(map(str, problems))
    judge = trial(scenario if seed is None else replace(scenario, seed=seed))
    verdicts = judge.verdicts()
    return _cells(file.stem, judge, verdicts), verdicts, ""


def _cells(name: str, judge: Judge, verdicts: list[RuleVerdict]) -> list[str]:
    ours, none, best = judge.ours, judge.none, judge.best
    stated = judge.scenario.possible
    return [
        name,
        f"{none.figures.success_rate:.2%}",
        f"{ours.figures.success_rate:.2%}",
        f"{best.success_rate:.2%}",
        "-" if stated is None else f"{stated:.1%}",
        "/".join(f"{each.median:.2f}" for each in (none, ours, best)),
        "/".join(f"{each.p99:.1f}" for each in (none, ours, best)),
        f"{ours.figures.attempts_per_call:.2f}",
        f"{judge.worst_load:.2f}",
        ",".join(sorted({str(each.rule) for each in verdicts if not each.holds})),
    ]


def main() -> int:
    """Play the scenarios of the command line, and print the table."""
    parser = argparse.ArgumentParser(description="judge redrive's defaults in scenarios")
    parser.add_argument("scenario", nargs="*", help="a file, or the name of one of the examples")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the figures of all rules")
    parser.add_argument("--seed", type=int, help="in place of the scenarios' own")
    options = parser.parse_args()
    folder = ROOT / "config/examples/scenarios"
    files = [Path(each) if Path(each).suffix else folder / f"{each}.yaml" for each in options.scenario]
    files = files or sorted(folder.glob("*.yaml"))
    failing = 0
    with ProcessPoolExecutor() as pool:
        lines = list(pool.map(partial(judged, seed=options.seed), files))
    wide = [max(len(cells[number]) for cells in (HEAD, *(line[0] for line in lines)) if len(cells) > number)
            for number in range(len(HEAD))]  # fmt: skip
    wrong = [problems for _, _, problems in lines if problems]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    for cells, verdicts, _ in [(HEAD, [], ""), *lines]:
        print("  ".join(f"{cell:<{wide[number]}}" for number, cell in enumerate(cells)).rstrip())
        for verdict in verdicts:
            failing += not verdict.holds
            if options.verbose or not verdict.holds:
                print(f"    {verdict.rule}{'' if verdict.holds else ' FAILS'}: {verdict.says}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
