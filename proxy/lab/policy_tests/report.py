"""The output of `redrive test`: a table for people, an array for programs.

A test that passes is one line; for a test that fails, the output has, attempt by attempt, what happened next to what
was expected, so that the reader does not have to guess which wait was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proxy.lab.policy_tests.runner import (
    COMPARE,
    CallResult,
    PlayedCall,
    TestResult,
    as_data,
    duration,
    is_as_expected,
    shown,
)
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import GRPC_STATUS_NAMES


def as_json(results: Sequence[TestResult]) -> str:
    """The results as the JSON array that the contract describes: an object for every call, times in seconds."""
    rows = [
        {
            "name": result.test.name,
            "call": number,
            "ok": not call.mismatches,
            "mismatches": [str(mismatch) for mismatch in call.mismatches],
            **{key: as_data(key, getattr(call.played, key)) for key in COMPARE},
        }
        for result in results
        for number, call in enumerate(result.calls, start=1)
    ]
    return json.dumps(rows, indent=1)


def print_table(results: Sequence[TestResult], console: Console) -> None:
    """A line for each test, the transcripts of those that fail, and the tally."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "test", "calls", "attempts", "outcome", "elapsed"):
        table.add_column(heading, justify="right" if heading in ("calls", "attempts", "elapsed") else "left")
    for result in results:
        played = [call.played for call in result.calls]
        table.add_row(
            Text("✓", "green") if result.ok else Text("✗", "bold red"),
            Text(result.test.name, "" if result.ok else "bold red"),
            str(len(played)),
            _summary(str(one.attempts) for one in played),
            _summary(one.outcome or "none" for one in played),
            _summary(duration(one.elapsed) if one.elapsed is not None else "never" for one in played),
        )
    console.print(table)
    failed = [result for result in results if not result.ok]
    for result in failed:
        console.print(transcript(result))
    tally = f"{len(results) - len(failed)} of {len(results)} tests pass"
    console.print(Text(tally, "bold red" if failed else "bold green"))


def _summary(values: Iterator[str]) -> str:
    """The values that a test's calls have for one result, joined to a text: one value if all are the same, and only the
    first three if there are more than four.
    """
    several = list(values)
    if len(set(several)) == 1:
        return several[0]
    return ", ".join(several) if len(several) <= 4 else f"{', '.join(several[:3])}, …"


def transcript(result: TestResult) -> RenderableType:
    """The transcript of a failing test, attempt by attempt: what was expected, and what happened."""
    parts: list[RenderableType] = [
        Text.assemble(("✗ ", "bold red"), (result.test.name, "bold"), f"  {result.file.file}:{result.test.line}")
    ]
    for number, call in enumerate(result.calls, start=1):
        if call.mismatches:
            ask = call.script.ask
            line = f"call {number} at {duration(call.script.at)}: {ask.method} {ask.url}"
            parts.append(Padding(Text.assemble((line, "bold"), f"  line {call.script.mark.line}"), (1, 0, 0, 2)))
            parts.append(Padding(_columns(call), (0, 0, 0, 2)))
    return Group(*parts, Text())


def _columns(call: CallResult) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("", "", "expected", "happened", ""):
        table.add_column(heading)
    expect, played = call.script.expect, call.played
    for index in range(max(played.attempts, len(played.starts), _expected_attempts(expect))):
        _attempt_rows(table, index, expect, played)
    each = ("tokens_after_each",) if played.hedged else ()
    for key in ("attempts", "status", "outcome", *each, "tokens", "elapsed", "fill_rate", "measured_rate"):
        happened = getattr(played, key)
        if key in expect or happened is not None:
            _add(table, "call" if key == "attempts" else "", key, expect.get(key, _UNSAID), happened, key)
    return table


def _expected_attempts(expect: dict[str, Any]) -> int:
    lengths = [len(expect[key]) for key in ("starts", "sent") if key in expect]
    return max([expect.get("attempts") or 0, len(expect["delays"]) + 1 if "delays" in expect else 0, *lengths])


def _attempt_rows(table: Table, index: int, expect: dict[str, Any], played: PlayedCall) -> None:
    label = f"attempt {index + 1}"
    if index and (_expected_at(expect, "delays", index - 1) is not _UNSAID or index <= len(played.delays)):
        _add(
            table,
            label,
            "backoff",
            _expected_at(expect, "delays", index - 1),
            _got(played.delays, index - 1),
            "elapsed",
        )
        label = ""
    _add(table, label, "start", _expected_at(expect, "starts", index), _got(played.starts, index), "elapsed")
    for record in played.history:
        if record.attempt == index + 1:
            table.add_row("", "came back", "", _came_back(record), "")
    at_once = not played.history and played.attempts == 1 and played.status is not None  # such a call has no records
    if index == 0 and at_once:
        table.add_row("", "came back", "", f"{played.status} after {duration(played.elapsed or 0.0)} → delivered", "")
    tokens = _expected_at(expect, "tokens_after_each", index)
    if not played.hedged and (tokens is not _UNSAID or _got(played.tokens_after_each, index) is not None):
        _add(table, "", "tokens after", tokens, _got(played.tokens_after_each, index), "tokens")
    wanted = _expected_at(expect, "sent", index)
    fields = _got(played.sent, index) or {}
    if "key" in fields and not (isinstance(wanted, dict) and "key" in wanted):
        table.add_row("", "key", "", str(fields["key"]), "")
    if "held_by" in fields and not (isinstance(wanted, dict) and "held_by" in wanted):
        table.add_row("", "held", "", f"{fields['held']} by {fields['held_by']}", "")
    for name, value in (wanted if isinstance(wanted, dict) else {}).items():
        happened = str(fields[name]) if name in fields else None
        mark = "" if is_as_expected(name, value, happened) else "✗"
        table.add_row("", name, Text(value or "absent"), Text(happened or "absent"), Text(mark, "bold red"))


_UNSAID = object()


def _expected_at(expect: dict[str, Any], key: str, index: int) -> Any:
    """The item at this index of the list that `expect` has under `key`: None (nothing is expected) if the list is
    shorter, _UNSAID if there is no list.
    """
    if key not in expect:
        return _UNSAID
    return _got(expect[key], index)


def _got(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _add(table: Table, label: str, what: str, expected: Any, happened: Any, key: str) -> None:
    """Add a row to the transcript `table`: the attempt or call that it is about (`label`), the name of the result
    (`what`), the `expected` value (_UNSAID if the test expects nothing here), what `happened`, and a mark if the two
    differ. `key` is the key of `expect`, which says how its values are compared and shown.
    """
    if expected is _UNSAID:
        table.add_row(label, what, "", Text(shown(key, happened)), "")
        return
    good = expected is happened if expected is None or happened is None else COMPARE[key](expected, happened)
    mark = Text("" if good else "✗", "bold red")
    table.add_row(label, what, Text(shown(key, expected)), Text(shown(key, happened)), mark)


def _came_back(record: AttemptRecord) -> Text:
    if record.fault is not None:
        what = record.fault.value
    elif record.status is not None:
        what = str(record.status)
        if record.grpc_status is not None:
            what += f" grpc-status {GRPC_STATUS_NAMES[record.grpc_status]}"
    else:
        what = "nothing"
    after = "" if record.ended is None else f" after {duration(record.ended - record.started)}"
    why = f" ({record.because})" if record.because else ""
    decision = f" → {record.decision}" if record.decision else ""
    if record.why:
        decision += f", since {record.why}"
    return Text(f"{what}{after}{why}{decision}")
