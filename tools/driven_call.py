"""A call, and what a driver can bring about in the state that it is in, for `transitions.py`.

Law: only what a driver with sockets could bring about: no answer comes of an attempt that does not fly, no alarm rings
that was not set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from proxy.retry.actions import Actions, Ask, Cancel, Deliver, Discard, Finish, Launch, Peek, WakeAt
from proxy.retry.facts import Fault, FaultKind, MappingFields, Progress, Reply
from proxy.retry.machine import Call, Flying
from proxy.retry.plans import Next


class Phase(Enum):
    """Where a call is: its state, and of one that waits or flies, what for."""

    NEW = "new"
    GATED = "gated"
    FLYING = "flying"
    PEEKING = "peeking"
    BACKOFF = "backoff"
    DELIVERING = "delivering"
    DONE = "done"


def phase_of(call: Call) -> Phase:
    """Where this call is."""
    match call.state:
        case Next() as next:
            return Phase.GATED if next.gated and not (call.hedged and call.attempts) else Phase.BACKOFF
        case Flying() as state:
            peeking = not call.hedged and any(flight.reply for flight in state.flights.values())
            return Phase.PEEKING if peeking else Phase.FLYING
        case other:
            return Phase[type(other).__name__.upper()]


@dataclass
class Driven:
    """A call with what its driver knows: which attempts fly, which answers are there, and the alarm."""

    call: Call
    now: float = 0.0
    alarm: float | None = None
    asked: float | None = None  # the price that a bucket elsewhere was asked for
    flying: set[int] = field(default_factory=set)  # sent, no head yet
    peeking: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)  # head seen, kept or not yet dealt with
    delivering: int | None = None
    done: bool = False
    cooled: bool = False  # another call has started a cooldown

    def carry_out(self, actions: Actions) -> None:
        """Know what the actions made so."""
        for action in actions:
            match action:
                case Launch():
                    self.flying.add(action.attempt)
                case WakeAt():
                    self.alarm = action.at
                case Ask():
                    self.asked = action.price
                case Peek():
                    self.peeking.add(action.attempt)
                case Cancel() | Discard():
                    for known in (self.flying, self.peeking, self.answered):
                        known.discard(action.attempt)
                case Deliver():
                    self.delivering = action.attempt
                    self.flying.clear()
                    self.peeking.clear()
                case Finish():
                    self.done = True
                case _:
                    pass

    @property
    def key(self) -> tuple[object, ...]:
        """Two states with one key behave alike, as far as the table goes."""
        call, payment = self.call, self.call._payment
        return (
            phase_of(call),
            call.attempts,
            call.committed,
            call.resent,
            frozenset(self.flying),
            frozenset(self.peeking),
            frozenset(self.answered),
            self.delivering,
            self.alarm is not None,
            self.asked is not None,
            payment is not None and payment.owed is not None,
            payment is not None and payment.price is not None,
            isinstance(call.state, Next) and not call.state.gated and self.now >= call.state.due,
            getattr(call._plan, "stopped", None),
            self.cooled,
        )


COOLED_BY_ANOTHER = "another call starts a cooldown"

Event = tuple[str, Callable[[Driven], Actions]]

_REPLIES = {
    "`head`: a success": (200, {}),
    "`head`: a retryable failure": (503, {}),
    "`head`: a retryable failure with a pushback": (429, {"retry-after": "1"}),
    "`head`: a stop pushback": (503, {"x-should-retry": "false"}),
    "`head`: a failure that nothing names": (404, {}),
    "`head`: a rule must see the body": (400, {}),
}
_FAULTS = {
    "`failed`: never sent": Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT),
    "`failed`: refused": Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED),
    "`failed`: reset": Fault(FaultKind.RESET, Progress.UNKNOWN),
}


def events(driven: Driven) -> Iterator[Event]:
    """What can happen next."""
    call = driven.call
    if phase_of(call) is Phase.NEW:
        yield "`start`", lambda d: d.call.start(d.now)
        return
    for attempt in sorted(driven.flying):
        for label, (status, headers) in _REPLIES.items():
            yield label, _head(attempt, status, headers)
        for label, fault in _FAULTS.items():
            yield label, _failed(attempt, fault)
        yield "`denied`", lambda d, n=attempt: d.call.denied(n, "not allowed", d.now)
    for attempt in sorted(driven.peeking):
        yield "`peeked`: a rule matches", _peeked(attempt, b'{"code": "slow"}')
        yield "`peeked`: no rule matches", _peeked(attempt, b"{}")
        yield "`failed`: reset", _failed(attempt, _FAULTS["`failed`: reset"])
    if driven.delivering is not None:
        attempt = driven.delivering
        yield "`ended`", lambda d: d.call.ended(attempt, d.now)
        trailers = MappingFields([("grpc-status", "14")])
        yield "`ended`: a failure in its trailers", lambda d: d.call.ended(attempt, d.now, trailers)
        yield "`failed`: reset", _failed(attempt, _FAULTS["`failed`: reset"])
    if driven.alarm is not None and driven.delivering is None:
        yield "`woke`: the alarm", _woke_at_alarm
    if driven.delivering is None and call.deadline is not None and driven.flying | driven.peeking:
        yield "`woke`: the deadline", _woke_at_deadline
    if driven.asked is not None:
        yield "`granted`", _answered(True)
        yield "`refused`", _answered(False)
    if isinstance(call.state, Next) and not driven.cooled:
        yield COOLED_BY_ANOTHER, _cool_down
    yield "`replay_lost`", lambda d: d.call.replay_lost(d.now)
    yield "`app_gone`", lambda d: d.call.app_gone(d.now)
    yield "`cut`", lambda d: d.call.cut(d.now)


def _cool_down(driven: Driven) -> Actions:
    """Another call of the scope meets a pushback: no event of this call, but it will find a gate closed."""
    driven.cooled = True
    driven.call.scope.cooldown.start(driven.call.request.fields, 503, 2.0, sent=driven.now, now=driven.now)
    return ()


def _head(attempt: int, status: int, headers: dict[str, str]) -> Callable[[Driven], Actions]:
    def happen(driven: Driven) -> Actions:
        driven.flying.discard(attempt)
        driven.answered.add(attempt)
        return driven.call.head(attempt, Reply(status, MappingFields(list(headers.items()))), driven.now)

    return happen


def _failed(attempt: int, fault: Fault) -> Callable[[Driven], Actions]:
    def happen(driven: Driven) -> Actions:
        for known in (driven.flying, driven.peeking, driven.answered):
            known.discard(attempt)
        return driven.call.failed(attempt, fault, driven.now)

    return happen


def _peeked(attempt: int, body: bytes) -> Callable[[Driven], Actions]:
    def happen(driven: Driven) -> Actions:
        driven.peeking.discard(attempt)
        return driven.call.peeked(attempt, body, driven.now)

    return happen


def _answered(granted: bool) -> Callable[[Driven], Actions]:
    def happen(driven: Driven) -> Actions:
        assert driven.asked is not None
        price, driven.asked = driven.asked, None
        return (driven.call.granted if granted else driven.call.refused)(price, driven.now)

    return happen


def _woke_at_alarm(driven: Driven) -> Actions:
    assert driven.alarm is not None
    driven.now, driven.alarm = max(driven.now, driven.alarm), None
    return driven.call.woke(driven.now)


def _woke_at_deadline(driven: Driven) -> Actions:
    assert driven.call.deadline is not None
    driven.now = max(driven.now, driven.call.deadline)
    return driven.call.woke(driven.now)
