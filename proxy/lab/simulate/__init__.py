"""`redrive simulate`: a policy in an outage, on the virtual clock (contract, section 9).

The `Call`, strategies, buckets and gates that serve traffic are played, by the driver of the policy tests. Only the
upstream and the apps are simulated; docs/reference/commands/simulate.md says how. The same seed gives the same figures.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from proxy.config.load import taken
from proxy.lab.simulate.arrivals import arrivals
from proxy.lab.simulate.columns import Column, columns, terms
from proxy.lab.simulate.figures import Figures, figures
from proxy.lab.simulate.possible import Possible, possible
from proxy.lab.simulate.report import as_json, picture, print_table, shown
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.side_by_side import play_all
from proxy.lab.simulate.simulation import play
from proxy.lab.simulate.weather import Scenario

#: The scenario that is played if none is named: it says much in few seconds, under any policy.
_EXAMPLE = Path(__file__).parents[2] / "examples/scenarios/restart.yaml"

__all__ = ["Figures", "Possible", "Scenario", "possible_for", "run_scenario", "simulate"]


def simulate(
    config: str | None,
    scenario: str | None,
    *,
    json: bool = False,
    plot: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Run the verb `redrive simulate`: play the scenario in the file `scenario` (None: the example) under the policy of
    the configuration `config` (the option `-c`, None if it is not given) and under other ways to retry, and print the
    figures, as JSON if `json`. `plot`: the file to write a chart to, None for none; `environ`: the environment
    variables, None for those of this process. Exit status: 0, or 2 for bad input.
    """
    surroundings = os.environ if environ is None else environ
    file = scenario or str(_EXAMPLE)
    found, problems = read_scenario(file)
    if found is not None and scenario is None:
        print(f"redrive: scenario: {file} (--scenario FILE for another of that folder, or yours)", file=sys.stderr)
    played, more = columns(config, found, surroundings) if found is not None else ([], [])
    for problem in (*problems, *more):
        print(problem, file=sys.stderr)
    if found is None or any(problem.severity == "error" for problem in more):
        return 2
    if plot is not None and (reason := _unwritable(plot)):  # known before minutes of play, and not after them
        print(f"redrive: {plot} can't be written: {reason}", file=sys.stderr)
        return 2
    print(taken(config, surroundings), file=sys.stderr)
    try:
        with shown(played) as watch:
            done = play_all(found, played, watch)
    except ChildProcessError as error:  # killed where memory is short, say
        print(f"redrive: {error}", file=sys.stderr)
        return 2
    best = possible_for(found, played[0])
    if json:
        print(as_json(found, done, best))
    else:
        print_table(found, done, best, Console(highlight=False, width=None if sys.stdout.isatty() else 120))
    return 0 if plot is None else _draw(plot, picture(found, done))


def _unwritable(file: str) -> str:
    """The reason why the chart can't be written to the file, in words; "" if it probably can. Nothing is written."""
    path = Path(file)
    if path.is_dir():
        return os.strerror(errno.EISDIR).lower()
    if not path.parent.is_dir():
        return os.strerror(errno.ENOENT).lower()
    return "" if os.access(path if path.exists() else path.parent, os.W_OK) else os.strerror(errno.EACCES).lower()


def _draw(file: str, svg: str) -> int:
    """Write the chart, `svg`, to a file; return the exit status. The figures were printed before, so they are not lost
    if the chart can't be written.
    """
    try:
        Path(file).write_text(svg)
    except OSError as error:
        print(f"redrive: {file} can't be written: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 2
    if not file.lower().endswith(".svg"):
        print(f"redrive: {file} is an SVG, whatever its name says", file=sys.stderr)
    return 0


def possible_for(scenario: Scenario, column: Column) -> Possible:
    """The result of the best scheduler in a scenario, with the timeouts and keys of this column's policy."""
    return possible(scenario, terms(column), arrivals(scenario))


def run_scenario(config: str | None, scenario: Scenario, environ: Mapping[str, str]) -> list[Figures]:
    """The figures of every column (a way to retry), played in one process, for tests. `config` and `environ`: as for
    `simulate`; no figures if anything is wrong.
    """
    return [figures(scenario, play(scenario, column)) for column in columns(config, scenario, environ)[0]]
