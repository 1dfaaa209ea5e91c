"""A policy test, played and compared: the calls of a script through the policies of a configuration, on a virtual
clock.

Nothing here decides. The router picks the policy, `Call` decides, `Driver` carries out, and the function that the data
path uses says which fields an attempt carries; this module turns the script into the upstream's reactions, and records
what happened. Only what `expect` names is compared. Times match within 1 ms, levels and rates within 1e-6 relative
(contract, section 8); lists match entry by entry and must have the same length, except `sent`, which lists only the
attempts that matter.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from proxy.config import units
from proxy.forward.headers import attempt_fields
from proxy.lab.clock import ALARM, BEGIN
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.played_keys import key_version
from proxy.lab.policy_tests.rotations import file_of
from proxy.lab.policy_tests.script import CallScript, PolicyTest, ScriptFile, Suite
from proxy.lab.recorder import Recorder
from proxy.lab.request_body import BufferBudget
from proxy.lab.routing import Chosen, RefusedCall, choose
from proxy.lab.stage import Stage
from proxy.lab.upstream import Sending, UpstreamStep
from proxy.observe.masking import MASK
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.call.call_state import CallState
from proxy.retry.facts import MappingFields
from proxy.retry.strategies.backoff import Chance
from proxy.wire.field_names import REQUEST_CUT
from proxy.wire.http1.slow_path import NEVER_NOMINATED

#: The seconds that an answer takes at least where keys are in files; less than an instant of the clock, which is 1 ns.
_LEAST = 1e-10


@dataclass(slots=True)
class PlayedCall:
    """The results of one call. Times are seconds; the attributes are named like the keys under `expect` in a policy
    test, and mean the same.
    """

    attempts: int = 0
    delays: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    status: int | None = None
    outcome: str | None = None
    tokens: float | None = None
    tokens_after_each: list[float | None] = field(default_factory=list)
    elapsed: float | None = None
    sent: list[dict[str, str | int]] = field(default_factory=list)
    fill_rate: float | None = None
    measured_rate: float | None = None
    history: Sequence[AttemptRecord] = ()
    hedged: bool = False  # `tokens_after_each` is in order of ending then
    unsaid: list[int] = field(default_factory=list)  # attempts with a credential or endpoint that no entry is for


def play(test: PolicyTest, suite: Suite) -> list[PlayedCall]:
    """Play one test against fresh buckets; return a result for each call, in order."""
    script, settings = suite.script, suite.settings
    chance: Chance = FixedDraws(script.draw)
    if script.seed is not None:
        chance = random.Random(script.seed)  # noqa: TID251, S311 - a driver makes its source; jitter is no secret
    stage = Stage(settings, chance, script.wall)
    buffers = BufferBudget(settings.buffers.per_request, settings.buffers.total)
    players = [_ScriptedCall(stage, buffers, script, number) for number, script in enumerate(test.calls, start=1)]
    for rotation in test.rotations:
        stage.clock.at(rotation.at, ALARM, stage.fresh.keys.rotate, file_of(settings, rotation), stage.clock)
    for player in players:
        stage.clock.at(player.script.at, BEGIN, player.ask)
    stage.clock.run()
    return [player.played for player in players]


class _ScriptedCall(Recorder):
    """A call of a test, and the record of what happens to it. `script`: the call as it is written; `number`: the number
    of the call, from which its idempotency key is made.
    """

    def __init__(self, stage: Stage, buffers: BufferBudget, script: CallScript, number: int) -> None:
        super().__init__(stage.clock, self._next_sending, body_size=script.ask.body_size, buffers=buffers)
        self.script = script
        self.asked = script.body_or_guess
        self.played = PlayedCall()
        self._stage = stage
        self._idempotency_key = str(uuid.UUID(int=number))
        self._steps = list(script.steps)  # those that nothing has met yet
        self._first: Chosen | None = None  # the upstream that takes the call

    def ask(self) -> None:
        """Send the scripted request, if a policy takes it."""
        stage, chosen = self._stage, choose(self._stage.settings, self.script.ask)
        if isinstance(chosen, RefusedCall):
            self.played.outcome, self.played.status, self.played.elapsed = chosen.outcome.value, chosen.status, 0.0
            return
        self._first = chosen
        stage.enter(self, chosen, self.script.ask, has_body=False)
        self.played.starts, self.played.tokens_after_each = self.starts, self.levels

    def _next_sending(self, attempt: int, now: float) -> Sending:
        step = next(filter(self._is_for, self._steps), None)
        if step is not None:
            self._steps.remove(step)
        else:  # the last one repeats
            step = next(filter(self._is_for, reversed(self.script.steps)), None)
        if step is None:
            self.played.unsaid.append(attempt)
            step = self.script.steps[-1]
        sending = step.answering(self.script.ask.method).sending(self.longest)
        if self._key_version is not None:  # an answer to an earlier key is later than the sending, however little
            sending.after = max(sending.after, _LEAST)
        return sending

    def _is_for(self, step: UpstreamStep) -> bool:
        """Whether an entry of the script applies to the credential and endpoint of the attempt that is being sent."""
        if step.endpoint is not None and step.endpoint != self._place:
            return False
        if step.key_version is not None:
            return step.key_version == self._key_version and step.key in (None, (self.key or 0) + 1)
        return step.key is None or (self.key is not None and step.key == self.key + 1)

    @property
    def _key_version(self) -> int | None:
        """The version of the key that the latest attempt carries; None if that key is from no file."""
        return key_version(self.call.so_far.policy.credentials, self.key)

    @property
    def _place(self) -> str:
        """The endpoint of the latest attempt; "" if the call does not choose among endpoints."""
        endpoints = self.call.so_far.policy.endpoints
        return endpoints[self.endpoint].label if self.endpoint is not None and endpoints else ""

    @property
    def _authority(self) -> str:
        """The `Host` of the latest attempt: the one that the app named, else the endpoint's (contract, section 6)."""
        upstream, first = self.call.so_far.policy.upstream, self._first
        is_named = first is not None and first.place is not None and first.policy.upstream == upstream
        if self.endpoint is None or is_named:
            return self.call.so_far.request.authority
        return self._stage.settings.router.by_name[upstream].target.endpoints[self.endpoint].authority

    def launched(self, attempt: int) -> float:
        transit = super().launched(attempt)
        played = self.played
        played.attempts = max(played.attempts, attempt)
        # The transparent retry takes the place of what it sends again.
        elapsed = self.clock.now - self.began
        fields = fields_of_attempt(self.call.so_far, attempt, elapsed, self._idempotency_key, credential=self.key)
        fields["host"] = self._authority
        if self._place:
            fields["endpoint"] = self._place
        if (version := self._key_version) is not None:
            fields["key_version"] = version
        flight = self.call.so_far.in_flight(attempt)
        if flight is not None and flight.held_by:
            fields["held_by"], fields["held"] = flight.held_by, duration(flight.held)
        played.sent[attempt - 1 : attempt] = [fields]
        return transit

    def ended(self, attempt: int) -> None:
        before = len(self.levels)
        super().ended(attempt)
        pacing = self.call.so_far.next_attempt.scope.pacing
        if len(self.levels) > before and pacing is not None:
            self.played.fill_rate = pacing.fill_rate
            self.played.measured_rate = pacing.measured_rate

    def cancelled(self, attempt: int) -> None:
        """Record the bucket's level after an attempt that was aborted at the deadline. Nothing is recorded for a call
        with hedges, in which an attempt that was overtaken by another is aborted too, and for an attempt that has
        failed, whose answer is aborted (`ended`).
        """
        has_failed = self.call.so_far.history[-1].fault is not None
        if not self.call.hedged and not has_failed:
            self.levels.append(self.level)

    def over(self) -> None:
        played, history = self.played, self.call.so_far.history
        played.outcome = self.outcome.value if self.outcome is not None else None
        played.elapsed, played.status, played.tokens = self.elapsed, self.status, self.level
        played.history = history
        played.hedged = self.call.hedged
        delays = [record.delay for record in history if record.delay is not None]
        played.delays = delays[: max(0, played.attempts - 1)]


# -- the fields of an attempt ------------------------------------------------------------------------------------------

#: The request fields that no attempt carries as they came, whatever the policy says.
_CUT = frozenset(name.decode() for name in REQUEST_CUT | {b"transfer-encoding"})
_NEVER_NOMINATED = frozenset(name.decode() for name in NEVER_NOMINATED)


def fields_of_attempt(
    call: CallState, attempt: int, elapsed: float, key: str, *, credential: int | None
) -> dict[str, str | int]:
    """The header fields of an attempt: names in lower case, the values of a field that repeats joined.

    `elapsed`: seconds since the call began; `key`: the idempotency key that is injected; `credential`: the number, from
    0, of the credential that the attempt carries. The credential's value is never shown: the result has its number,
    from 1, as `key`, and the upstream's name as `upstream`.
    """
    request = call.request
    changes = attempt_fields(request, call.policy, attempt, elapsed=elapsed, key=key)
    pairs = request.fields.pairs() if isinstance(request.fields, MappingFields) else []
    named = {name.strip().lower() for field, value in pairs if field == "connection" for name in value.split(",")}
    named -= _NEVER_NOMINATED
    fields: dict[str, str | int] = {"host": request.authority}
    for name, value in [*_kept(pairs, changes.drop | named | _CUT | {"host"}), *changes.add]:
        lower = name.lower()
        fields[lower] = f"{fields[lower]}, {value}" if lower in fields else value
    credentials = call.policy.credentials
    if credentials is not None and credential is not None:
        fields[credentials.name] = MASK
        fields["key"] = credential + 1
    fields["upstream"] = call.policy.upstream
    return fields


def _kept(pairs: list[tuple[str, str]], out: set[str] | frozenset[str]) -> list[tuple[str, str]]:
    """The header fields of a request, `pairs`, that are forwarded: all but those whose lower-case names are in `out`;
    of those, `te: trailers` is forwarded too, since gRPC asks for it.
    """
    return [pair for pair in pairs if pair[0] not in out or (pair[0] == "te" and pair[1].lower() == "trailers")]


# -- what happened, beside what was expected ---------------------------------------------------------------------------

#: The seconds by which a time may differ from the expected one.
TIME_TOLERANCE = 0.001
#: The difference by which a level may differ from the expected one: as a number, and as a part of the level if that is
#: more.
LEVEL_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An expectation that does not hold: the `expected` value of a key under `expect`, and the value that the call had
    (`got`).
    """

    key: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.key}: expected {shown(self.key, self.expected)}, got {shown(self.key, self.got)}"


def compare(expect: dict[str, Any], played: PlayedCall) -> list[Mismatch]:
    """The expectations of a call that do not hold. `expect`: the expected values by key, as the test has them;
    `played`: what the call did.
    """
    found = [
        Mismatch(key, expected, getattr(played, key))
        for key, expected in expect.items()
        if not COMPARE[key](expected, getattr(played, key))
    ]
    for attempt in played.unsaid:
        carried = played.sent[attempt - 1]
        for name in ("key", "key_version", "endpoint"):
            if name in carried:
                got = f"{name} {carried[name]} in attempt {attempt}"
                found.append(Mismatch(name, "an entry of attempts for it", got))
    return found


def as_data(key: str, got: Any) -> Any:
    """The result `got` for the key `key` of `expect`, for JSON: seconds rounded to the nanosecond."""
    if key not in _TIMES or got is None:
        return got
    return [round(seconds, 9) for seconds in got] if isinstance(got, list) else round(got, 9)


def shown(key: str, value: Any) -> str:
    """The value of a key of `expect` for people: seconds as durations, lists in brackets."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"[{', '.join(shown(key, item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {'absent' if text is None else text}" for name, text in value.items()) + "}"
    if key in _TIMES and isinstance(value, int | float):
        return duration(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds as `250ms` or `2.01s`, to the nanosecond."""
    seconds = round(seconds, 9)
    if 0 < abs(seconds) < 1:
        return f"{round(seconds * 1000, 6):g}ms"
    return f"{seconds:.9g}s"


def _close_time(expected: float, got: float | None) -> bool:
    return got is not None and abs(expected - got) <= TIME_TOLERANCE + 1e-9


def _close_level(expected: float | None, got: float | None) -> bool:
    if expected is None or got is None:
        return expected is got
    return abs(expected - got) <= max(LEVEL_TOLERANCE, LEVEL_TOLERANCE * abs(expected))


def _each(close: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare_lists(expected: Any, got: Any) -> bool:
        return len(expected) == len(got) and all(map(close, expected, got))

    return compare_lists


def _sent(expected: list[dict[str, str | None]], got: list[dict[str, str | int]]) -> bool:
    return len(got) >= len(expected) and all(
        is_as_expected(name, value, _field_of(fields, name))
        for wanted, fields in zip(expected, got, strict=False)
        for name, value in wanted.items()
    )


def is_as_expected(name: str, expected: str | None, got: str | None) -> bool:
    """Whether the value `got` of an attempt's field is the `expected` one; None: no such field. `name` is a header
    field, or one of the test language's own, such as `held`, which is a duration and compared as one.
    """
    if name == "held" and expected is not None and got is not None:
        try:
            return _close_time(units.duration(expected), units.duration(got))
        except ValueError:
            return False
    return expected == got


def _field_of(fields: dict[str, str | int], name: str) -> str | None:
    """The value of a header field of an attempt as text, the form in which a test expects it; None if there is no such
    field.
    """
    return str(fields[name]) if name in fields else None


_TIMES = frozenset({"delays", "starts", "elapsed"})

#: The comparison of expected with actual values, by the keys of `expect`, in the order of the JSON.
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "attempts": eq,
    "delays": _each(_close_time),
    "starts": _each(_close_time),
    "status": eq,
    "outcome": eq,
    "tokens": _close_level,
    "tokens_after_each": _each(_close_level),
    "elapsed": _close_time,
    "sent": _sent,
    "fill_rate": _close_level,
    "measured_rate": _close_level,
}


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call: its script, what happened, and the expectations that do not hold."""

    script: CallScript
    played: PlayedCall
    mismatches: list[Mismatch]


@dataclass(frozen=True, slots=True)
class TestResult:
    """A test, with a result for every call."""

    __test__ = False  # not a test of pytest's

    file: ScriptFile
    test: PolicyTest
    calls: list[CallResult]

    @property
    def ok(self) -> bool:
        """Whether every expectation holds."""
        return not any(call.mismatches for call in self.calls)


def run_suite(suite: Suite) -> list[TestResult]:
    """Play every test of one file, and compare."""
    results = []
    for test in suite.script.tests:
        played = play(test, suite)
        calls = [CallResult(call, one, compare(call.expect, one)) for call, one in zip(test.calls, played, strict=True)]
        results.append(TestResult(suite.script, test, calls))
    return results
