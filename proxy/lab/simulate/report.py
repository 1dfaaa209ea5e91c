"""The report of a simulation: figures for people, for programs, and as a chart; and the columns' progress meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.figures import WINDOW, AppFigures, Figures
from proxy.lab.simulate.possible import Possible
from proxy.lab.simulate.side_by_side import Watch
from proxy.lab.simulate.weather import Scenario


def as_json(scenario: Scenario, done: Sequence[Figures], best: Possible) -> str:
    """The figures of all columns (`done`) and what was possible (`best`) as one JSON object; times in seconds."""
    columns = [
        {
            "name": each.name,
            "calls": each.calls,
            "succeeded": each.succeeded,
            "success_rate": round(each.success_rate, 6),
            "attempts": each.attempts,
            "attempts_per_call": round(each.attempts_per_call, 4),
            "hedges": each.hedges,
            "hedge_share": round(each.hedge_share, 6),
            "requests": each.requests,
            "peak_requests_per_second": round(each.peak, 2),
            "amplification": round(each.amplification, 3),
            "recovery_seconds": each.recovery,
            "recoveries": list(each.recoveries),
            "latency": {name: round(value, 6) for name, value in each.latency.items()},
            "outcomes": each.outcomes,
            "redis_scripts": each.scripts,
            **({} if scenario.reports == "off" else {"refused": each.refused}),
            **({"apps": {app.name: _app_as_data(app) for app in each.apps}} if each.apps else {}),
        }
        for each in done
    ]
    report = {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "duration": scenario.duration,
        "sidecars": scenario.sidecars,
        "calls_per_second": scenario.calls,
        "columns": columns,
        "possible": {
            "succeeded": best.succeeded,
            "success_rate": round(best.success_rate, 6),
            "median": round(best.median, 6),
            "p99": round(best.p99, 6),
        },
    }
    return json.dumps(report, indent=2)


def _app_as_data(app: AppFigures) -> dict[str, Any]:
    """The figures of one app for JSON."""
    return {
        "calls": app.calls,
        "succeeded": app.succeeded,
        "success_rate": round(app.success_rate, 6),
        "latency": {name: round(value, 6) for name, value in app.latency.items()},
    }


#: Columns of the longest name of a figure, and of a figure.
_LONGEST, _FIGURE = len(f"peak load over {WINDOW} s, requests a second"), 8


def print_table(scenario: Scenario, done: Sequence[Figures], best: Possible, console: Console) -> None:
    """Print a table of the figures of all columns (`done`), each a way to retry, and of what was possible (`best`).
    Columns for which the screen is too narrow stand in further tables below.
    """
    fleet = f"{scenario.sidecars:,} sidecar{'' if scenario.sidecars == 1 else 's'}"
    pace = f"{scenario.calls:g} calls a second for {_time(scenario.duration)}, seed {scenario.seed}"
    outcomes = sorted({outcome for each in done for outcome in each.outcomes} - {"success"})
    rows = _rows(scenario, done, outcomes)
    title: str | None = f"{scenario.name}: {fleet}, {pace}"
    for part in _parts(done, outcomes, console.width):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        first, others = _widths(outcomes, [each.name for each in part], console.width)
        table.add_column("", width=first, overflow="fold")
        for each in part:
            table.add_column(each.name, justify="right", width=others)
        for name, cell in rows:
            table.add_row(name, *map(cell, part))
        console.print(table)
        title = None
    waits = f"half of these wait for {_time(best.median)} at most, 99 % for {_time(best.p99)}"
    console.print(f"  possible: {best.success_rate:.2%} of the calls; {waits}")


#: A row of the table: its name, and a function that takes a column's figures and returns the text of its cell.
_Row = tuple[str, Callable[[Figures], str]]


def _rows(scenario: Scenario, done: Sequence[Figures], outcomes: Sequence[str]) -> list[_Row]:
    """The rows of the table. Rows about hedges, Redis, limits and apps are there if any column has such figures."""
    rows: list[_Row] = [
        ("calls", lambda each: f"{each.calls:,}"),
        ("succeeded", lambda each: f"{each.success_rate:.2%}"),
        ("attempts per call", lambda each: f"{each.attempts_per_call:.3f}"),
    ]
    if any(each.hedges for each in done):
        rows.append(("hedges, as a share of the calls", lambda each: f"{each.hedge_share:.2%}"))
    rows += [
        (f"peak load over {WINDOW} s, requests a second", lambda each: f"{each.peak:,.0f}"),
        (f"peak load over {WINDOW} s, multiple of calls", lambda each: f"{each.amplification:.2f}"),
        ("recovered after", lambda each: _recovered(each.recovery)),
        ("half of the calls within", lambda each: _time(each.latency["p50"])),
        ("90 % within", lambda each: _time(each.latency["p90"])),
        ("99 % within", lambda each: _time(each.latency["p99"])),
    ]
    if any(each.scripts for each in done):
        seconds = scenario.duration * scenario.sidecars
        rows.append(("scripts in Redis, a second and sidecar", lambda each: f"{each.scripts / seconds:.2f}"))
    if scenario.reports != "off":
        rows.append(("refused by the limit", lambda each: f"{each.refused:,}"))
    for place, app in enumerate(scenario.apps):
        rows += _app_rows(app.name, place)
    rows += [_outcome_row(outcome) for outcome in outcomes]
    return rows


def _app_rows(name: str, place: int) -> list[_Row]:
    """The rows of the app with this name, which is number `place` of the scenario's."""
    return [
        (f"{name}: calls", lambda each: f"{each.apps[place].calls:,}"),
        ("  succeeded", lambda each: f"{each.apps[place].success_rate:.2%}"),
        ("  99 % of these within", lambda each: _time(each.apps[place].latency["p99"])),
    ]


def _outcome_row(outcome: str) -> _Row:
    """The row with the numbers of calls that ended with this outcome."""
    return f"  {outcome}", lambda each: f"{each.outcomes.get(outcome, 0):,}"


#: Columns of space beside each cell of the table, with what separates it from the next.
_AROUND = 3


def _parts(done: Sequence[Figures], outcomes: Sequence[str], width: int) -> list[Sequence[Figures]]:
    """The columns that each of the tables has on a screen of `width` columns: all of them in one if they fit, at least
    with broken names; else equally many in each.
    """
    room = max((width - _first(outcomes) - _AROUND - 1) // (_FIGURE + _AROUND), 1)
    if len(done) <= room or _wide([each.name for each in done]) <= width:
        return [done]
    tables = -(-len(done) // room)
    size = -(-len(done) // tables)
    return [done[at : at + size] for at in range(0, len(done), size)]


def _widths(outcomes: Sequence[str], names: Sequence[str], width: int) -> tuple[int | None, int | None]:
    """The widths of the table's first column, and of each other one, on a screen of `width` columns; None: as wide as
    what stands in them. On a narrow screen the names are broken, since an outcome that is cut can't be looked up.
    """
    first = _first(outcomes)
    others = (width - first - _AROUND - 1) // max(len(names), 1) - _AROUND
    return (None, None) if _wide(names) <= width or others < _FIGURE else (first, others)


def _first(outcomes: Sequence[str]) -> int:
    """The width that the first column has at least: that of the longest outcome, or of the longest other word."""
    return max([len("recovered after"), *(len(outcome) + 2 for outcome in outcomes)])


def _wide(names: Sequence[str]) -> int:
    """The width of a table of columns with these names, none of which is broken."""
    return _LONGEST + sum(max(len(name), _FIGURE) + _AROUND for name in names) + _AROUND


def _recovered(seconds: float | None) -> str:
    return "never" if seconds is None else _time(seconds) if seconds else "at once"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 60 and seconds != int(seconds) else f"{seconds:g} s"


# -- a picture --------------------------------------------------------------------------------------------------------

_WIDE, _HIGH, _LEFT, _TOP, _GAP = 860, 190, 64, 84, 56
_COLOURS = ("#0b7285", "#e8590c", "#862e9c", "#2b8a3e", "#c92a2a", "#364fc7")
#: The beginnings of the names of columns that are drawn with dashes: those to compare with.
_DASHED = ("none", "naive")
#: About the number of points of a long line; each stands for a stretch of equally many seconds.
_POINTS = 300

_Line = list[tuple[float, float]]


def picture(scenario: Scenario, done: Sequence[Figures]) -> str:
    """The chart of successes and of the upstream's load over time, with lines for each column of `done`: the whole SVG,
    written by hand.
    """
    seconds = max(1, int(scenario.duration))
    drawn = [(_stroke(number, each.name), *_lines(each, seconds)) for number, each in enumerate(done)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDE + 24} {_TOP + 2 * _HIGH + _GAP + 60}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(scenario.name)}</title>",
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{_LEFT}" y="24" font-size="16" font-weight="600">'
        f"{escape(scenario.name)}</text>",
    ]
    at = _LEFT
    for each, (stroke, _, _) in zip(done, drawn, strict=True):
        parts.append(f'<path d="M{at} 40h24" {stroke}/>')
        parts.append(f'<text x="{at + 30}" y="44">{escape(each.name)}</text>')
        at += 54 + 7 * len(each.name)
    shares, loads = [(stroke, line) for stroke, line, _ in drawn], [(stroke, line) for stroke, _, line in drawn]
    highest = max([1.0, *(load for _, line in loads for _, load in line)])
    parts += _panel(scenario, seconds, _TOP, "calls that succeed", 1.0, "{:.0%}", shares)
    step = _step(seconds)
    mean = "in each second" if step == 1 else f"a second, the mean of each {step} s"
    top, title = _TOP + _HIGH + _GAP, f"requests at the upstream {mean}"
    parts += _panel(scenario, seconds, top, title, highest, "{:.0f}", loads)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _stroke(index: int, name: str) -> str:
    dashed = ' stroke-dasharray="5 3"' if name.startswith(_DASHED) else ""
    return f'stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-width="1.8"{dashed}'


def _step(seconds: int) -> int:
    """The seconds for which one point of a line stands."""
    return max(1, seconds // _POINTS)


def _lines(each: Figures, seconds: int) -> tuple[_Line, _Line]:
    """The two lines of a chart for one column: the share of calls that succeed (only for stretches of time in which
    calls begin), and the requests a second. Each point is at the middle of its stretch.
    """
    step = _step(seconds)
    shares, loads = [], []
    for start in range(0, seconds, step):
        begun, succeeded, requests = map(sum, zip(*each.series[start : start + step], strict=True))
        if begun:
            shares.append((start + step / 2, succeeded / begun))
        loads.append((start + step / 2, requests / step))
    return shares, loads


def _panel(
    scenario: Scenario,
    seconds: int,
    top: int,
    title: str,
    highest: float,
    spelled: str,
    lines: Sequence[tuple[str, _Line]],
) -> list[str]:
    def x(at: float) -> float:
        return round(_LEFT + at / seconds * _WIDE, 1)

    def y(value: float) -> float:
        return round(top + _HIGH * (1 - value / highest), 1)

    parts = [f'<text x="{_LEFT}" y="{top - 8}" fill="#495057">{title}</text>']
    for outage in scenario.outages:
        width = round(x(min(outage.until, seconds)) - x(outage.at), 1)
        parts.append(f'<rect x="{x(outage.at)}" y="{top}" width="{width}" height="{_HIGH}" fill="#ffe3e3"/>')
    for gone in scenario.redis.outages:
        width = round(x(min(gone.until, seconds)) - x(gone.at), 1)
        parts.append(f'<rect x="{x(gone.at)}" y="{top}" width="{width}" height="8" fill="#ffd8a8"/>')
    for value in (highest * part / 4 for part in range(5)):
        parts.append(f'<path d="M{_LEFT} {y(value)}h{_WIDE}" stroke="#dee2e6"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y(value) + 4}" text-anchor="end" fill="#868e96">{spelled.format(value)}</text>'
        )
    for at in (seconds * part / 6 for part in range(7)):
        parts.append(f'<text x="{x(at)}" y="{top + _HIGH + 18}" text-anchor="middle" fill="#868e96">{at:.0f} s</text>')
    for stroke, line in lines:
        path = "L".join(f"{x(at)} {y(value)}" for at, value in line)
        parts.append(f'<path d="M{path}" fill="none" {stroke}/>' if path else "")
    return parts


# -- how far each column is, on a terminal ----------------------------------------------------------------------------

#: The least number of seconds between two refreshes of the progress bars.
_PACE = 0.1


@contextlib.contextmanager
def shown(columns: Sequence[Column]) -> Iterator[Watch]:
    """Show a progress bar for each column on standard error, if that is a terminal, until the context ends. Gives the
    function that takes a column's number and the share that has been played.
    """
    if not sys.stderr.isatty():
        yield lambda number, share: None
        return
    drawn = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # drawn by the reporter: a thread of its own would be alive while processes are forked
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
