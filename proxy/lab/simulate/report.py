"""Figures for people, and for programs; and how far the columns are meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.figures import Figures
from proxy.lab.simulate.scenario import Scenario
from proxy.lab.simulate.side_by_side import Watch


def as_json(scenario: Scenario, done: Sequence[Figures]) -> str:
    """One object; times in seconds."""
    columns = [
        {
            "name": each.name,
            "calls": each.calls,
            "succeeded": each.succeeded,
            "success_rate": round(each.success_rate, 6),
            "attempts": each.attempts,
            "attempts_per_call": round(each.attempts_per_call, 4),
            "requests": each.requests,
            "peak_requests_per_second": round(each.peak, 2),
            "amplification": round(each.amplification, 3),
            "recovery_seconds": each.recovery,
            "recoveries": list(each.recoveries),
            "latency": {name: round(value, 6) for name, value in each.latency.items()},
            "outcomes": each.outcomes,
        }
        for each in done
    ]
    told = {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "duration": scenario.duration,
        "sidecars": scenario.sidecars,
        "calls_per_second": scenario.calls,
        "columns": columns,
    }
    return json.dumps(told, indent=2)


def print_table(scenario: Scenario, done: Sequence[Figures], console: Console) -> None:
    """A column for each way to retry."""
    fleet = f"{scenario.sidecars:,} sidecar{'' if scenario.sidecars == 1 else 's'}"
    pace = f"{scenario.calls:g} calls a second for {_time(scenario.duration)}, seed {scenario.seed}"
    table = Table(title=f"{scenario.name}: {fleet}, {pace}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for each in done:
        table.add_column(each.name, justify="right")
    for name, cells in (
        ("calls", [f"{each.calls:,}" for each in done]),
        ("succeeded", [f"{each.success_rate:.2%}" for each in done]),
        ("attempts per call", [f"{each.attempts_per_call:.3f}" for each in done]),
        ("peak load, requests a second", [f"{each.peak:,.0f}" for each in done]),
        ("peak load, as a multiple of the calls", [f"{each.amplification:.2f}" for each in done]),
        ("recovered after", [_recovered(each.recovery) for each in done]),
        ("half of the calls within", [_time(each.latency["p50"]) for each in done]),
        ("90 % within", [_time(each.latency["p90"]) for each in done]),
        ("99 % within", [_time(each.latency["p99"]) for each in done]),
    ):
        table.add_row(name, *cells)
    outcomes = sorted({outcome for each in done for outcome in each.outcomes if outcome != "success"})
    for outcome in outcomes:
        table.add_row(f"  {outcome}", *(f"{each.outcomes.get(outcome, 0):,}" for each in done))
    console.print(table)


def _recovered(seconds: float | None) -> str:
    return "never" if seconds is None else _time(seconds) if seconds else "at once"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 60 and seconds != int(seconds) else f"{seconds:g} s"


# -- how far each column is, on a terminal ----------------------------------------------------------------------------

#: Seconds between two pictures.
_PACE = 0.1


@contextlib.contextmanager
def shown(columns: Sequence[Column]) -> Iterator[Watch]:
    """A bar for each column on standard error while it is a terminal; it is taken away at the end."""
    if not sys.stderr.isatty():
        yield lambda number, share: None
        return
    drawn = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # drawn by whoever tells: a thread of its own would be alive while processes are forked
    with Progress(*drawn, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        tasks = [progress.add_task(column.name, total=1.0) for column in columns]
        last = progress.get_time()

        def watch(number: int, share: float) -> None:
            nonlocal last
            progress.update(tasks[number], completed=share)
            if (now := progress.get_time()) - last >= _PACE:
                last = now
                progress.refresh()

        progress.refresh()
        yield watch
