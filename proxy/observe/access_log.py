"""One line a call, with its attempts in it: JSON for machines, or a short form for people.

Law: a line is put together by hand from pieces, the variable strings through json's own C encoder; it never waits for
whoever reads it (`proxy.observe.sink`). Query values and user info are masked. Times are UTC; durations seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quote
from typing import Literal

from proxy.observe import call_record, masking
from proxy.observe.call_record import Stamps
from proxy.observe.events import EndedCall, Plain, Refusal, as_plain, nothing_gathered
from proxy.observe.sampling import FailureKind, FailureSampler, Later
from proxy.observe.sink import Sink
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import Outcome
from proxy.retry.policy import Policy

Level = Literal["debug", "info", "warning", "error"]

#: Policy objects whose ready-made pieces are remembered at most.
_POLICIES = 4096


def is_for_people(form: str, descriptor: int) -> bool:
    """Whether a log of this `format` (json, console, auto) is written for people there: auto is, on a terminal."""
    return form == "console" or (form == "auto" and os.isatty(descriptor))


class AccessLog:
    """An observer that writes lines into a sink.

    `later` is the loop's `call_later`: with it, one failure that repeats thousands of times a second is sampled
    (`proxy.observe.sampling`). `level`: debug and info log every call, warning those that did not succeed, error those
    that came to 5xx or nothing.
    """

    def __init__(self, sink: Sink, *, console: bool = False, level: Level = "info", later: Later | None = None) -> None:
        self._sink = sink
        self._sampler = FailureSampler(later, self._left_out) if later is not None else None
        self._last = 0.0  # when the latest failure began
        self._stamps = Stamps()
        self._places: dict[Policy, str] = {}
        self.catch_up: Callable[[], None] = nothing_gathered  # logs what is gathered (`proxy.observe.observers`)
        self.configure(console=console, level=level)

    def configure(self, *, console: bool, level: Level) -> None:
        """Change form and level; a reload does."""
        self.catch_up()
        self._every = level in ("debug", "info")
        self._failures = level != "error"
        self._console = console

    def succeeded(self, calls: Iterable[Plain]) -> None:
        """Write the lines of calls that succeeded at once."""
        if not self._every:
            return
        line = self._short_line if self._console else self._line
        for call in calls:
            self._sink.add(line(call))

    def _short_line(self, call: Plain) -> str:
        wall, seconds, policy, method, authority, path, _, status, _, _, _ = call
        line = _console_line(self._stamps.at(wall), method, authority, path, status, Outcome.SUCCESS, seconds)
        return _console_end(line, policy, "")

    def _line(self, call: Plain) -> str:
        wall, took, policy, method, authority, path, client, status, bytes_in, bytes_out, endpoint = call
        if "?" in path or "@" in path:
            path = masking.target(path)
        if "@" in authority:
            authority = masking.authority(authority)
        seconds = f"{took:.6f}"
        # A method is a token and a client is an address: neither has anything to quote.
        return (
            f'{{"time":"{self._stamps.at(wall)}","event":"call",{self._places.get(policy) or self._place(policy)}'
            f'"method":"{method}","host":{quote(authority)},"path":{quote(path)},"client":"{client}","status":{status},'
            f'"outcome":"success","attempts":1,"duration":{seconds},"bytes_in":{bytes_in},"bytes_out":{bytes_out},'
            f'"endpoint":{quote(endpoint)},"history":[{{"attempt":1,"start":0.0,"duration":{seconds},'
            f'"status":{status},"class":"success","decision":"delivered"}}]}}\n'
        )

    def call_ended(self, call: EndedCall) -> None:
        """Write a call's line."""
        plain = as_plain(call)
        if plain is not None:
            self.succeeded((plain,))
            return
        outcome, policy = call.outcome, call.policy
        if not self._every and not self._wanted(outcome, call.status):
            return
        if outcome is not Outcome.SUCCESS and self._sampler is not None:
            self._last = call.wall_started
            failure = FailureKind(policy.upstream, policy.route, outcome, call.status)
            if not self._sampler.is_wanted(failure):
                return
        stamp, request, seconds = self._stamps.at(call.wall_started), call.request, call.ended - call.started
        if self._console:
            line = _console_line(stamp, request.method, request.authority, request.path, call.status, outcome, seconds)
            if call.history or outcome is not Outcome.SUCCESS:
                line += " · " + (", ".join(map(_console_attempt, call.history)) or "no attempt")
            why = call.detail or (call.history[-1].why if call.history else "")
            self._sink.add(_console_end(line, policy, why))
            return
        self._sink.add(
            f'{{"time":"{stamp}","event":"call",{self._places.get(policy) or self._place(policy)}'
            f'"method":"{request.method}","host":{quote(masking.authority(request.authority))},'
            f'"path":{quote(masking.target(request.path))},"client":"{call.client}","status":{call.status},'
            f'"outcome":"{outcome.value}","attempts":{call.attempts},"duration":{seconds:.6f},'
            f'"bytes_in":{call.bytes_in},"bytes_out":{call.bytes_out},{_tail(call)}'
        )

    def refused(self, refusal: Refusal) -> None:
        """Write the line of a request that never became a call."""
        if not self._wanted(refusal.outcome, refusal.status):
            return
        self._last = refusal.wall
        same = FailureKind("", "", refusal.outcome, refusal.status)
        if self._sampler is not None and not self._sampler.is_wanted(same):
            return
        stamp = self._stamps.at(refusal.wall)
        path, authority = masking.target(refusal.path), masking.authority(refusal.authority)
        if self._console:
            where = f"{refusal.method} {authority}{path}".strip() or "?"
            line = f"{stamp[11:23]} {where} -> {refusal.status} {refusal.outcome}: {refusal.detail}"
            self._sink.add(_printable(line) + "\n")
            return
        self._sink.add(
            f'{{"time":"{stamp}","event":"call","upstream":"","route":"","strategy":"",'
            f'"method":{quote(refusal.method)},"host":{quote(authority)},"path":{quote(path)},'
            f'"client":{quote(refusal.client)},"status":{refusal.status},"outcome":"{refusal.outcome}","attempts":0,'
            f'"duration":0.0,"bytes_in":0,"bytes_out":{refusal.bytes_out},"endpoint":"",'
            f'"detail":{quote(refusal.detail)},"history":[]}}\n'
        )

    def close(self) -> None:
        """Tell what was left out, or gathered, so far."""
        self.catch_up()
        if self._sampler is not None:
            self._sampler.end()

    def _left_out(self, failure: FailureKind, lines: int) -> None:
        upstream, route, outcome, status = failure
        if self._console:
            where = f"{upstream or 'requests'}{'/' + route if route else ''}"
            self._sink.add(f"… {lines} more like it within a second: {where} -> {status or 'no answer'} {outcome}\n")
            return
        self._sink.add(
            f'{{"time":"{self._stamps.at(self._last)}","event":"repeated","upstream":{quote(upstream)},"route":{quote(route)},"outcome":"{outcome.value}",'
            f'"status":{status},"lines":{lines}}}\n'
        )

    def _wanted(self, outcome: Outcome, status: int) -> bool:
        if self._every:
            return True
        if self._failures:
            return outcome is not Outcome.SUCCESS
        return outcome is not Outcome.SUCCESS and (status >= 500 or status == 0)

    def _place(self, policy: Policy) -> str:
        if len(self._places) >= _POLICIES:
            self._places.clear()
        place = self._places[policy] = (
            f'"upstream":{quote(policy.upstream)},"route":{quote(policy.route)},"strategy":{quote(policy.strategy.name)},'
        )
        return place


def _tail(call: EndedCall) -> str:
    """The end of a line whose call was more than one attempt that succeeded."""
    extra = '"app_retry":true,' if call.app_retry else ""
    if call.detail:
        extra += f'"detail":{quote(call.detail)},'
    history = ",".join([call_record.attempt_json(record, call.started) for record in call.history])
    return f'"endpoint":{quote(call.endpoint)},{extra}"history":[{history}]}}\n'


def _console_line(
    stamp: str, method: str, authority: str, path: str, status: int, outcome: Outcome, seconds: float
) -> str:
    """The first half of `12:00:01.123 GET api.example/x -> 200 success 0.31s · 503, 503, 200 [github]`."""
    return (
        f"{stamp[11:23]} {method} {masking.authority(authority)}{masking.target(path)} -> "
        f"{status or 'no answer'} {outcome} {_short(seconds)}"
    )


def _console_end(line: str, policy: Policy, detail: str) -> str:
    place = policy.upstream + (f"/{policy.route}" if policy.route else "")
    return _printable(f"{line} [{place}]{': ' + detail if detail else ''}") + "\n"


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
