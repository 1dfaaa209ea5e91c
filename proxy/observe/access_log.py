"""The access log: one line for each call, with the call's attempts in it. A line is the call's JSON
(`proxy.observe.call_json`), or a short form for people. The log never waits for its reader (`proxy.observe.sink`).
Query values and user info are masked.

The log shortens repetition. Of the failures of one second that have the same upstream, route, outcome and status, the
first MOST are written; a line at the end of the second says how many others there were. So an upstream that goes down
under load does not fill a disk with lines that say the same, and no count is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quote
from typing import Literal

from proxy.hidden_values import HiddenValues
from proxy.observe import masking
from proxy.observe.call_json import timestamp
from proxy.observe.call_record import NO_POLICY, SUCCESS, CallRecord
from proxy.observe.compiled import call_lines
from proxy.observe.sink import ClosingSink, Later, LogSink
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Outcome

#: Lines a second about the same failure.
MOST = 1000
#: Seconds from the first failure of a kind until what was left out is told.
WINDOW = 1.0

Level = Literal["debug", "info", "warning", "error"]


def is_for_people(form: str, descriptor: int) -> bool:
    """Whether the log's `form` (its setting `format`: json, console or auto) means lines for people. For auto it does
    if the descriptor is a terminal.
    """
    return form == "console" or (form == "auto" and os.isatty(descriptor))


class AccessLog:
    """An observer that writes each call's line into a sink.

    `later(seconds, function)` is the loop's `call_later`; if it is given, a failure that repeats thousands of times a
    second is counted instead of written. `level` says which calls are logged. debug and info: every call; warning:
    calls that did not succeed; error: calls that ended with a 5xx or without an answer.
    """

    def __init__(
        self, sink: LogSink, *, console: bool = False, level: Level = "info", later: Later | None = None
    ) -> None:
        self._sink = sink
        self._later = later
        self._repeated: dict[tuple[str, str, Outcome, int], list[int]] = {}
        self._last = 0.0  # when the latest failure began
        self.also: ClosingSink | None = None  # takes each line too, as JSON whatever the log's form
        self.hidden: HiddenValues | None = None  # what no line shows
        self.catch_up: Callable[[], None] = lambda: None  # logs what is gathered (`proxy.observe.observers`)
        self.configure(console=console, level=level)

    def configure(self, *, console: bool, level: Level) -> None:
        """Change the log's form (`console`: lines for people, else JSON) and level, after a reload."""
        self.catch_up()
        self._level = level
        self._console = console

    def add(self, calls: Iterable[CallRecord], at_once: bool = False) -> None:
        """Write the log lines of these calls, except for those that the level or the limit on repetition leaves out.
        `at_once`: write the lines now, and do not wait for further ones to write with them.
        """
        has_successes = self._level in ("debug", "info")
        wanted: list[CallRecord] = []
        for call in calls:
            if has_successes if call.course.outcome is SUCCESS else self._is_wanted(call):
                wanted.append(call)
        if wanted:
            lines = "" if self._console and self.also is None else call_lines(wanted)
            shown = _console_lines(wanted) if self._console else lines
            if self.hidden is not None:
                lines = self.hidden.json_lines(lines)
                shown = self.hidden.text(shown) if self._console else lines
            if at_once:
                self._sink.add_now(shown)
            else:
                self._sink.add(shown)
            if self.also is not None:
                self.also.add(lines)

    def _is_wanted(self, call: CallRecord) -> bool:
        """Whether to write this call's line: its level is logged, and no more than MOST calls with the same upstream,
        route, outcome and status have come in this second, including this one.
        """
        if self._level == "error" and 0 < call.status < 500:
            return False
        self._last = call.wall_started
        if self._later is None:
            return True
        if not self._repeated:
            self._later(WINDOW, self._report_repeated)
        policy = call.policy
        kind = policy.upstream, policy.route, call.course.outcome, call.status
        count = self._repeated.get(kind)
        if count is None:
            count = self._repeated[kind] = [0]
        count[0] += 1
        return count[0] <= MOST

    def close(self) -> None:
        """Write how many lines have been left out so far, then all lines that wait to be written."""
        self.catch_up()
        self._report_repeated()

    def _report_repeated(self) -> None:
        """Write, at the end of a second, how many lines were left out in that second."""
        counts, self._repeated = self._repeated, {}
        for (upstream, route, outcome, status), (count,) in counts.items():
            lines = count - MOST
            if lines <= 0:
                continue
            where = f"{upstream or 'requests'}{'/' + route if route else ''}"
            text = f"… {lines} more like it within a second: {where} -> {status or 'no answer'} {outcome}\n"
            entry = (
                f'{{"time":"{timestamp(self._last)}","event":"repeated","upstream":{quote(upstream)},'
                f'"route":{quote(route)},"outcome":"{outcome}","status":{status},"lines":{lines}}}\n'
            )
            self._sink.add(text if self._console else entry)
            if self.also is not None:
                self.also.add(entry)


def _console_lines(calls: Iterable[CallRecord]) -> str:
    return "".join(_console_line(call) + "\n" for call in calls)


def _console_line(call: CallRecord) -> str:
    """A call's line for people: `12:00:01.123 GET api.example/x -> 200 success 0.31s · 503, 503, 200 [github]: why it
    was not retried`.
    """
    where = f"{call.method} {masking.authority(call.authority)}{masking.target(call.path)}".strip() or "?"
    line = f"{timestamp(call.wall_started)[11:23]} {where} -> {call.status or 'no answer'} {call.outcome}"
    why = call.detail
    if call.policy is not NO_POLICY:
        line += f" {_short(call.ended - call.started)}"
        if call.history or call.outcome is not SUCCESS:
            line += " · " + (", ".join(map(_console_attempt, call.history)) or "no attempt")
        line += f" [{call.policy.upstream}{'/' + call.policy.route if call.policy.route else ''}]"
        why = why or (call.history[-1].why if call.history else "")
    return _printable(f"{line}{': ' + why if why else ''}")


def _console_attempt(record: AttemptRecord) -> str:
    what = record.fault or record.status or "nothing"
    held = f"{_short(record.held)} held by {record.held_by}, " if record.held else ""
    wait = f" (+{_short(record.delay)})" if record.delay is not None else ""
    return f"{held}{what}{wait}"


def _printable(text: str) -> str:
    """Return the text with "?" in place of each character that is not printable, so that an app can't control a
    reader's terminal by what it sends.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"
