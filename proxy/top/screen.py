"""The picture of `redrive top`: a rich renderable, made from rows.

The picture is made for a width. If there is no room for every column, the least important are left out, and a long name
is cut. No row is wrapped, but notes for which their column has no room stand below the table, if there are lines left.
States are words, so that the picture says the same without colours.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.retry.call.gates import GATES, SLOW_START
from proxy.top.board import Row, count, duration, in_trouble, rate, status_of, tokens, total

#: Columns between two columns; of a name at least and at most; of the notes at least.
_BETWEEN, _NAME, _NAME_MOST, _NOTES = 2, 12, 48, 24
#: Colours of the ranks of states.
_COLOURS = {5: "bold red", 4: "red", 3: "magenta", 2: "yellow", 1: "blue", 0: "dim"}
_NONE = "-"
#: Causes that hold calls and have no note of their own, in words, by their names in the metric's label `by`.
_SILENT = {
    "rate": f"{GATES['rate']} or {GATES['limiter']}",
    "ahead": GATES["ahead"],
    "concurrency": GATES["concurrency"],
}
#: Heads of the columns that can be added up.
_ADDED = ("calls/s", "success", "1st try", "att/call")
#: Lines that are no rows: the summary, the heads, the totals, the keys.
AROUND = 4


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table: the order by which rows are sorted for it ("" if they can't be), its heading, its text for
    a row, and how soon it is left out if there is no room (the greatest first; 0: never).
    """

    order: str
    head: str
    cell: Callable[[Row], Text | str]
    left_out: int = 0
    right: bool = True


@dataclass(frozen=True, slots=True)
class Selection:
    """The user's choice of rows: sorting, filter, and `first`, the number of rows scrolled past. `typing`: the user is
    typing the filter.
    """

    by: str = "state"
    turned: bool = False
    filter: str = ""
    first: int = 0
    typing: bool = False


def _state(row: Row) -> Text:
    return _coloured(", ".join((row.state, *row.also)), row)


def _shorter_state(row: Row) -> Text:
    """The state that is the most serious, and how many others apply beside it."""
    return _coloured(f"{row.state} +{len(row.also)}" if row.also else row.state, row)


def _coloured(state: str, row: Row) -> Text:
    return Text(state, style=_COLOURS[min(row.rank, max(_COLOURS))])


def _per_second(row: Row) -> str:
    return _NONE if row.per_second is None else rate(row.per_second)


def _share(part: int, calls: int) -> str:
    """A share as percent; 100 % only if `part` is all of `calls`, 0 % only if it is none."""
    if not calls:
        return _NONE
    percent = part / calls * 100
    if part != calls and percent > 99.9:
        return "99.9%"
    return "0.1%" if part and percent < 0.1 else f"{percent:.{0 if percent in (0, 100) else 1}f}%"


def _success(row: Row) -> Text:
    return Text(_share(row.calls - row.failed, row.calls), style="red" if row.failed else "")


def _attempts(row: Row) -> Text:
    shown = _NONE if row.attempts_per_call is None else f"{row.attempts_per_call:.2f}"
    return Text(shown, "yellow" if row.is_retrying else "")


def _bucket(row: Row) -> Text:
    if row.bucket is None:
        return Text("full" if row.pays else _NONE)
    bucket = row.bucket
    most = " left" if bucket.kind == "budget" else f"/{tokens(bucket.capacity)}"
    return Text(f"{tokens(bucket.level)}{most}", style="red" if bucket.drained else "")


def _cooldown(row: Row) -> Text:
    out = [lane["outage"]["seconds"] for lane in row.weather if lane["outage"]]
    if out:
        return Text(f"out {duration(max(out))}", style="red")
    if row.cooldown:
        return Text(duration(row.cooldown), style="magenta")
    return Text(f"{len(row.circuits)} open" if row.circuits else _NONE, style="red" if row.circuits else "")


def _latency(which: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.latencies.get(which)
        return _NONE if value is None else duration(value)

    return cell


def _notes(row: Row) -> str:
    """The causes that hold an upstream's calls back, in words."""
    said = [_lane(lane) for lane in row.weather if lane["outage"] or lane["limit"]]
    if row.cooldown:
        until = f"cooldown until {time.strftime('%H:%M:%S', time.gmtime(row.until))} UTC"
        began = row.began
        said.append(
            until if began is None else f"{until} ({began['field']}, {began['status']} from {began['endpoint']})"
        )
    if row.held:
        said.append(f"{count(row.held)} {'call' if row.held == 1 else 'calls'} held{_held_by(row)}")
    said += [
        f"{endpoint or 'an endpoint'}: {f'probe in {duration(left)}' if left else 'probe due'}"
        for endpoint, left in row.circuits
    ]
    said += [f"key {key} cools for {duration(left)}" for key, left in row.cooling_keys]
    said += [f"key {key} put aside for {duration(left)}" for key, left in row.keys]
    said += [f"key {key}: its file can't be read, the earlier value stays in use" for key in row.unreadable]
    if row.arrived:
        said.append(f"{count(row.arrived)} by fallback")
    if row.queued and not row.held_by.get("concurrency"):
        said.append(f"{count(row.queued)} {'waits' if row.queued == 1 else 'wait'} for a place")
    if row.newest_failure:
        said.append(_failure(row.newest_failure))
    return "; ".join(said)


def _failure(call: Mapping[str, Any]) -> str:
    """A call that failed, in words: how it ended, what its last attempt met, and the command that says why."""
    attempts = call["history"]
    last = attempts[-1] if attempts else {}
    met = str(last.get("fault") or status_of(last))
    detail = f" ({last['detail']})" if last.get("detail") else ""
    after = f", after {met}{detail}" if met else ", not sent" if not call["attempts"] else ""
    ended = f"{status_of(call) or 'no answer'} {call['outcome']}"
    return f"the newest failure is {ended}{after}: redrive why {call['number']}"


def _held_by(row: Row) -> str:
    """The gates that hold calls, in words, where no other note says it."""
    words = _SILENT if row.cooldown else _SILENT | {"cooling": SLOW_START}
    by = {cause: number for cause, number in row.held_by.items() if cause in words}
    if len(by) == 1 and sum(by.values()) == row.held:
        return f" by {words[next(iter(by))]}"
    told = ", ".join(f"{count(number)} by {words[cause]}" for cause, number in by.items())
    return f" ({told})" if told else ""


def _lane(lane: Mapping[str, Any]) -> str:
    """A limit or an outage, in words."""
    where = [lane["endpoint"] or "", "" if lane["callers"] == "everybody" else f"({lane['callers']})"]
    outage, limit = lane["outage"], lane["limit"]
    if outage:
        said = f"outage for the last {duration(outage['seconds'])}"
    else:
        most = [f"{limit['attempts']} at a time"] if limit["attempts"] is not None else []
        most += [f"{limit['per_second']:.3g}/s"] if limit.get("per_second") else []
        said = f"at most {' and '.join(most)} for the last {duration(limit['seconds'])}"
    why = (outage or limit)["why"]
    return " ".join(filter(None, [*where, said])) + (f": {why}" if why else "")


_SHORTER_STATE = TableColumn("state", "state", _shorter_state, right=False)
NAME = TableColumn("name", "upstream", lambda row: row.name or "(refused)", right=False)
NOTES = TableColumn("", "notes", _notes, right=False)
COLUMNS = (
    TableColumn("state", "state", _state, right=False),
    TableColumn("calls", "calls/s", _per_second, 1),
    TableColumn("success", "success", _success, 2),
    TableColumn("", "1st try", lambda row: _share(row.at_once, row.calls), 5),
    TableColumn("attempts", "att/call", _attempts, 6),
    TableColumn("", "p50", _latency("p50"), 10),
    TableColumn("p95", "p95", _latency("p95"), 7),
    TableColumn("", "p99", _latency("p99"), 9),
    TableColumn("bucket", "bucket", _bucket, 4),
    TableColumn("cooldown", "cooldown", _cooldown, 3),
    TableColumn("", "limit", lambda row: row.limit or _NONE, 8),
)


def picture(
    rows: Sequence[Row],
    shown: Sequence[Row],
    head: Text,
    width: int | None,
    height: int | None = None,
    look: Selection | None = None,
    *,
    refused: Sequence[str] = (),
) -> RenderableType:
    """The whole picture, for a terminal of `width` columns and `height` lines; None: as many as the picture needs.

    `rows` are all upstreams, `shown` the chosen ones in their order, `head` is the heading. `look` is the live view's
    selection; with it, the picture has a line about the keys. `refused`: the errors of a changed file that was refused.
    """
    first = 0
    visible = list(shown)
    if height is not None:
        room = max(1, height - AROUND)
        first = min(look.first if look else 0, max(0, len(shown) - room))
        visible = visible[first : first + room]
    # Widths are those of all rows, so that nothing moves while one scrolls.
    added = _total_cells(shown, rows[0].window if rows else 0.0)
    spare = None if height is None else max(0, height - AROUND - max(1, len(visible)))
    table, below = _table(shown, visible, added, width, look, has_lines=spare != 0)
    below = [*_refusal(refused, width), *below][:spare]
    parts: list[RenderableType] = [_line(head, width), table, *below]
    if not shown:
        parts.append(
            _line("no upstream matches the filter" if rows else "no upstream is named, and none was called", width)
        )
    if look is not None:
        if spare is not None:
            parts += [Text("")] * (spare - len(below))
        parts.append(_line(_keys(look, first, len(visible), len(shown)), width, "dim"))
    return Group(*parts)


def summary(shown: str, ready: dict[str, Any], window: float, rows: Sequence[Row]) -> str:
    """The line above the table: the admin port named `shown`, its readiness, the window of the figures (seconds), and
    how many upstreams there are. `ready`: the readiness as the admin port reports it; `rows`: those of the table.
    """
    troubled = in_trouble(rows)
    named = sum(bool(row.name) for row in rows)
    state = "draining" if ready.get("draining") else "ready" if ready.get("ready") else "not ready"
    said = [
        f"{shown} is {state}",
        f"last {window:.0f} s",
        f"{count(named)} {'upstream' if named == 1 else 'upstreams'}",
        f"{count(troubled) if troubled else 'none'} in trouble",
        f"{count(ready.get('in_flight', 0))} in flight",
    ]
    if ready.get("redis") == "out":
        said.insert(1, "Redis is out")
    if ready.get("reload_errors"):
        said.insert(1, "a changed file was refused")
    return ", ".join(said)


def _keys(look: Selection, first: int, visible: int, shown: int) -> str:
    if look.typing:
        return f"filter: {look.filter}_   Enter keeps it, Esc empties it"
    order = f"by {look.by}{', reversed' if look.turned else ''}"
    kept = f"   filter: {look.filter}" if look.filter else ""
    part = f"   {first + 1} to {first + visible} of {shown}" if visible < shown else ""
    return f"q quit   s S sort ({order})   / filter{kept}{part}"


def _table(
    rows: Sequence[Row],
    visible: Sequence[Row],
    last: dict[str, str],
    width: int | None,
    look: Selection | None,
    *,
    has_lines: bool,
) -> tuple[Table, list[Text]]:
    """The table of the `visible` ones of `rows`, with `last` as its last line, and the lines with the notes that stand
    below it. Notes do if their column has no room for them and the screen has further lines (`has_lines`).
    """
    columns = [
        NAME,
        *(column for column in COLUMNS if column.head != "p99" or any("p99" in row.latencies for row in rows)),
    ]
    wanted = {column.head: _widest(column, rows, last) for column in (*columns, NOTES)}
    name = wanted[NAME.head] if width is None else min(wanted[NAME.head], _NAME_MOST)
    if width is not None:
        if _room(columns, wanted, width) < min(name, _NAME + 4):  # no room for all: of several states one is named
            columns = [_SHORTER_STATE if column.head == _SHORTER_STATE.head else column for column in columns]
            wanted[_SHORTER_STATE.head] = _widest(_SHORTER_STATE, rows, last)
        droppable = sorted((column for column in columns if column.left_out), key=lambda column: -column.left_out)
        for column in droppable:
            if _room(columns, wanted, width) >= min(name, _NAME + 4):
                break
            columns.remove(column)
        name = max(min(name, _room(columns, wanted, width)), 1)
    widths = {**wanted, NAME.head: name}
    notes = max(len(NOTES.head), wanted[NOTES.head])
    below: list[Text] = []
    if any(NOTES.cell(row) for row in rows):
        left = notes if width is None else width - sum(widths[column.head] + _BETWEEN for column in columns)
        if left < notes and width is not None and has_lines:
            below = [line for row in visible for line in _noted(row, width)]
        elif left >= min(_NOTES, notes):
            columns.append(NOTES)
            widths[NOTES.head] = min(notes, left)
    table = Table.grid(padding=(0, _BETWEEN, 0, 0), pad_edge=False)
    for column in columns:
        right = "right" if column.right else "left"
        table.add_column(width=widths[column.head], no_wrap=True, overflow="ellipsis", justify=right)  # type: ignore[arg-type]
    by = look.by if look else ""
    table.add_row(
        *(Text(each.head, "bold underline" if each.order and each.order == by else "bold") for each in columns)
    )
    for row in visible:
        table.add_row(*(column.cell(row) for column in columns))
    table.add_row(*(Text(last.get(column.head, ""), "bold") for column in columns))
    return table, below


def _refusal(errors: Sequence[str], width: int | None) -> list[Text]:
    """The lines about a changed file that was refused, with the first of its errors; none without errors."""
    if not errors:
        return []
    more = f"; {len(errors) - 1} more: redrive check" if len(errors) > 1 else ""
    said = f"refused, and the earlier file is in force: {errors[0]}{more}"
    lines = [said] if width is None else textwrap.wrap(said, width, subsequent_indent="  ")
    return [_line(Text(line, "red"), width) for line in lines]


def _noted(row: Row, width: int) -> list[Text]:
    """The notes of a row in lines of at most `width` columns; none without notes."""
    notes = _notes(row)
    if not notes:
        return []
    lines = textwrap.wrap(f"{row.name or '(refused)'}: {notes}", width, subsequent_indent="  ")
    return [_line(line, width) for line in lines]


def _room(columns: Sequence[TableColumn], wanted: dict[str, int], width: int) -> int:
    """The width left for the column of upstream names on a screen `width` wide, beside the other `columns`; `wanted`
    has the width of each by its heading.
    """
    return width - sum(wanted[column.head] + _BETWEEN for column in columns if column is not NAME)


def _widest(column: TableColumn, rows: Sequence[Row], last: dict[str, str]) -> int:
    cells = (column.cell(row) for row in rows)
    texts = (cell.plain if isinstance(cell, Text) else cell for cell in cells)
    return max(map(cell_len, (column.head, last.get(column.head, ""), *texts)))


def _total_cells(rows: Sequence[Row], window: float) -> dict[str, str]:
    """The cells of the table's last line, with the totals, by the headings of their columns."""
    added, troubled = total(rows, window), in_trouble(rows)
    cells = {column.head: column.cell(added) for column in COLUMNS if column.head in _ADDED}
    return {
        "upstream": added.name,
        "state": f"{count(troubled)} in trouble" if troubled else "",
        "cooldown": f"{count(added.held)} held" if added.held else "",
        **{head: cell.plain if isinstance(cell, Text) else cell for head, cell in cells.items()},
    }


def _line(text: str | Text, width: int | None, style: str = "") -> Text:
    line = text.copy() if isinstance(text, Text) else Text(text, style=style)
    line.no_wrap = True
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    return line
