"""`python tools/judge.py [SCENARIO...]`: redrive's defaults in scenarios, judged by the contract's section 9.

Without arguments, all scenarios of config/examples/scenarios are played, as many at a time as there are cores, at low
priority. Each gets a line: the shares of calls that `none`, the defaults and the best scheduler serve, medians and 99th
percentiles of the calls that none and the defaults serve, and of the best scheduler's waits, attempts a call, the
highest load as a multiple of what is allowed, and the rules that do not hold, with their figures. `-v` prints the
figures of all rules. `--seeds own,11,12` plays each scenario once with each of these seeds, `own` being the one of its
file: the line then has means, but for the share that the defaults serve at `worst`, and for the highest load; rules
that do not hold are followed by the number of seeds with which they do not, and by the figures of each.

`--draw 3 --seed 7` plays three scenarios of each kind of `tools/drawn_weather.py` instead, which chance draws with that
seed, `--kinds` only those of these kinds (with commas). Sums follow: for each kind, and for all, the mean shares, the
scenarios that serve fewer calls than `none`, and how many do not hold each rule. `--json FILE` writes the figures,
`--against FILE` prints what is different from them. `--keep FOLDER` keeps what a change to the governor does not alter,
so that the next run need not play it again.

Exit status: 1 if a rule does not hold, 2 for a scenario with mistakes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]

from drawn_weather import KINDS, drawn  # noqa: E402
from support.weather_judge import RuleVerdict, Yardsticks, trial, yardsticks  # noqa: E402

from proxy.lab.simulate.scenario import read_scenario  # noqa: E402
from proxy.lab.simulate.weather import Scenario  # noqa: E402

#: The seed of the scenario's own file.
OWN = "own"
HEAD = [
    "scenario", "none", "ours", "possible", "worst", "stated", "median n/o/p", "p99 n/o/p", "attempts", "load", "fails",
]  # fmt: skip
#: Two shares differ by more than rounding.
_LESS = 0.001
#: Shares that differ by more are printed, if two runs are compared.
_OTHER = 0.005


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
    def label(self) -> str:
        """The scenario's name, with the seed if it is not that of the scenario's file."""
        return self.name if self.seed == OWN else f"{self.name} seed {self.seed}"

    @property
    def failing(self) -> set[int]:
        """The rules that do not hold."""
        return {each.rule for each in self.verdicts if not each.holds}


def played(job: tuple[Path, str, Path | None]) -> Play:
    """The play of one scenario with one seed: a number, or `own` for that of its file. The third part of `job` is the
    folder in which yardsticks are kept, if there is one.
    """
    file, seed, kept = job
    scenario, problems = read_scenario(str(file))
    if scenario is None:
        return Play(file.stem, seed, problems="\n".join(map(str, problems)))
    scenario = scenario if seed == OWN else replace(scenario, seed=int(seed))
    judge = trial(scenario, None if kept is None else _yardsticks(scenario, kept))
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


def _yardsticks(scenario: Scenario, folder: Path) -> Yardsticks:
    """The yardsticks of a scenario from the folder; they are measured, and kept there, if they are not in it. They are
    those of the scenario's text, since a file may change, and another may have its name.
    """
    text = hashlib.sha256(Path(scenario.file).read_bytes()).hexdigest()
    file = folder / f"{Path(scenario.file).stem}-{scenario.seed}-{text[:16]}.pickle"
    if file.exists():
        with file.open("rb") as kept:
            found = pickle.load(kept)  # noqa: S301 - this tool wrote it
        assert isinstance(found, Yardsticks)
        return found
    made = yardsticks(scenario)
    file.write_bytes(pickle.dumps(made))
    return made


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


def sums(plays: list[Play]) -> list[list[str]]:
    """The lines of the sums: one for each kind of drawn scenario, and one for all."""
    groups: dict[str, list[Play]] = {}
    for play in plays:
        groups.setdefault(play.name.rpartition("-")[0], []).append(play)
    lines = [["kind", "plays", "none", "ours", "possible", "below none", *(f"rule {rule}" for rule in range(1, 7))]]
    for name, group in [*groups.items(), ("all", plays)]:
        shares = [sum(play.figures[head][0] for play in group) / len(group) for head in ("none", "ours", "possible")]
        below = sum(play.figures["ours"][0] < play.figures["none"][0] - _LESS for play in group)
        broken = [sum(rule in play.failing for play in group) for rule in range(1, 7)]
        lines.append(
            [
                name,
                str(len(group)),
                *(f"{each:.2%}" for each in shares),
                *(str(each or "") for each in (below, *broken)),
            ]
        )
    return lines


def compared(plays: list[Play], before: dict[str, tuple[float, list[int]]]) -> Iterable[str]:
    """What is different from the shares and the broken rules of an earlier run, `before`, by the plays' labels."""
    both = [(play, *before[play.label]) for play in plays if play.label in before]
    for play, share, rules in both:
        ours = play.figures["ours"][0]
        if abs(ours - share) > _OTHER or play.failing != set(rules):
            now = ",".join(map(str, sorted(play.failing)))
            yield f"{play.label}: {share:.2%} -> {ours:.2%}; rules {','.join(map(str, rules))} -> {now}"
    if both:
        means = sum(share for _, share, _ in both) / len(both), sum(p.figures["ours"][0] for p, *_ in both) / len(both)
        broken = sum(len(rules) for *_, rules in both), sum(len(play.failing) for play, *_ in both)
        yield f"{len(both)} plays: mean {means[0]:.2%} -> {means[1]:.2%}, broken rules {broken[0]} -> {broken[1]}"


def table(lines: list[list[str]]) -> list[str]:
    """These lines with their columns aligned."""
    wide = [max(len(line[number]) for line in lines) for number in range(len(lines[0]))]
    return ["  ".join(f"{cell:<{wide[at]}}" for at, cell in enumerate(line)).rstrip() for line in lines]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="judge redrive's defaults in scenarios")
    parser.add_argument("scenario", nargs="*", help="a file, or the name of one of the examples")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the figures of all rules")
    parser.add_argument("--seeds", default=OWN, help="numbers, or `own` for the file's, with commas between them")
    parser.add_argument("--draw", type=int, default=0, help="how many scenarios of each kind chance draws")
    parser.add_argument("--seed", type=int, default=1, help="the seed that they are drawn with")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the kinds that are drawn, with commas between them")
    parser.add_argument("--json", type=Path, help="a file to which the shares and the broken rules are written")
    parser.add_argument("--against", type=Path, help="such a file, of an earlier run to compare with")
    parser.add_argument("--keep", type=Path, help="a folder for what changes to the governor do not alter")
    options = parser.parse_args()
    unknown = set(options.kinds.split(",")) - set(KINDS)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")
    return options


def _files(options: argparse.Namespace, folder: Path) -> list[Path]:
    """The files of the scenarios to play; those that are drawn are written to this folder."""
    if options.draw:
        files = []
        for name, text in drawn(options.kinds.split(","), options.draw, options.seed):
            files.append(folder / f"{name}.yaml")
            files[-1].write_text(text)
        return files
    examples = ROOT / "config/examples/scenarios"
    files = [Path(each) if Path(each).suffix else examples / f"{each}.yaml" for each in options.scenario]
    return files or sorted(examples.glob("*.yaml"))


def main() -> int:
    """Play the scenarios of the command line, and print the tables."""
    options = _options()
    seeds = options.seeds.split(",")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor() as pool:
        jobs = [(file, seed, options.keep) for file in _files(options, Path(folder)) for seed in seeds]
        plays = list(pool.map(played, jobs))
    wrong = dict.fromkeys(play.problems for play in plays if play.problems)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    groups = [plays[first : first + len(seeds)] for first in range(0, len(plays), len(seeds))]
    for line, group in zip(table([HEAD, *map(cells, groups)]), [[], *groups], strict=True):
        print(line)
        for play in group:
            for verdict in play.verdicts:
                if options.verbose or not verdict.holds:
                    seed = f" seed {play.seed}:" if len(seeds) > 1 else ""
                    print(f"   {seed} {verdict.rule}{'' if verdict.holds else ' FAILS'}: {verdict.says}")
    if options.draw:
        print("", *table(sums(plays)), sep="\n")
    if options.json is not None:
        found = {play.label: (play.figures["ours"][0], sorted(play.failing)) for play in plays}
        options.json.write_text(json.dumps(found, indent=1))
    if options.against is not None:
        print("", *compared(plays, json.loads(options.against.read_text())), sep="\n")
    return 1 if any(play.failing for play in plays) else 0


if __name__ == "__main__":
    sys.exit(main())
