"""One line a call, with its attempts in it: the call's JSON (`proxy.observe.call_json`), or a short form for people.

It never waits for its reader (`proxy.observe.sink`). Query values and user info are masked.

A failure that occurs a thousand times is written a thousand times, and then counted. The first MOST lines of a second
with the same failure (upstream, route, outcome, status) are written; further ones are left out, and a line at the end
of the second says how many there were. An upstream that goes down under load does not fill a disk with what was known
after the first lines, and no count is lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quote
from typing import Literal

from proxy.observe import masking
from proxy.observe.call_json import timestamp
from proxy.observe.call_record import NO_POLICY, SUCCESS, CallRecord
from proxy.observe.compiled import call_lines
from proxy.observe.sink import Later, Sink
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import Outcome

#: Lines a second about the same failure.
MOST = 1000
#: Seconds from the first failure of a kind until what was left out is told.
WINDOW = 1.0

Level = Literal["debug", "info", "warning", "error"]


def is_for_people(form: str, descriptor: int) -> bool:
    """Whether a log of this `format` (json, console, auto) is written for people there: auto is, on a terminal."""
    return form == "console" or (form == "auto" and os.isatty(descriptor))


class AccessLog:
    """An observer that writes lines into a sink.

    `later(seconds, function)` is the loop's `call_later`: with it, one failure that repeats thousands of times a second
    is counted. `level`: debug and info log every call, warning those that did not succeed, error those that came to 5xx
    or nothing.
    """

    def __init__(self, sink: Sink, *, console: bool = False, level: Level = "info", later: Later | None = None) -> None:
        self._sink = sink
        self._later = later
        self._repeated: Counter[tuple[str, str, Outcome, int]] = Counter()
        self._last = 0.0  # when the latest failure began
        self.catch_up: Callable[[], None] = lambda: None  # logs what is gathered (`proxy.observe.observers`)
        self.configure(console=console, level=level)

    def configure(self, *, console: bool, level: Level) -> None:
        """Change form and level; a reload does."""
        self.catch_up()
        self._level = level
        self._console = console

    def add(self, calls: Iterable[CallRecord]) -> None:
        """Write the lines of calls."""
        has_successes = self._level in ("debug", "info")
        wanted: list[CallRecord] = []
        for call in calls:
            if has_successes if call.outcome is SUCCESS else self._is_wanted(call):
                wanted.append(call)
        if wanted:
            self._sink.add(_console_lines(wanted) if self._console else call_lines(wanted))

    def _is_wanted(self, call: CallRecord) -> bool:
        """Whether the level lets a failure's line be written, and there have not been too many like it."""
        if self._level == "error" and 0 < call.status < 500:
            return False
        self._last = call.wall_started
        if self._later is None:
            return True
        if not self._repeated:
            self._later(WINDOW, self._tell_repeated)
        kind = call.policy.upstream, call.policy.route, call.outcome, call.status
        self._repeated[kind] += 1
        return self._repeated[kind] <= MOST

    def close(self) -> None:
        """Tell what was left out, or gathered, so far."""
        self.catch_up()
        self._tell_repeated()

    def _tell_repeated(self) -> None:
        """The second is over: tell what was left out."""
        counts, self._repeated = self._repeated, Counter()
        for (upstream, route, outcome, status), count in counts.items():
            lines = count - MOST
            if lines > 0 and self._console:
                where = f"{upstream or 'requests'}{'/' + route if route else ''}"
                told = f"… {lines} more like it within a second: {where} -> {status or 'no answer'} {outcome}"
                self._sink.add(f"{told}\n")
            elif lines > 0:
                self._sink.add(
                    f'{{"time":"{timestamp(self._last)}","event":"repeated","upstream":{quote(upstream)},'
                    f'"route":{quote(route)},"outcome":"{outcome}","status":{status},"lines":{lines}}}\n'
                )


def _console_lines(calls: Iterable[CallRecord]) -> str:
    return "".join(_console_line(call) + "\n" for call in calls)


def _console_line(call: CallRecord) -> str:
    """`12:00:01.123 GET api.example/x -> 200 success 0.31s · 503, 503, 200 [github]: why it was not retried`."""
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
    """What an app sends must not steer somebody's terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"
