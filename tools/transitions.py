"""The transition table of docs/reference/transitions.md, found by driving `proxy.retry.machine.Call` itself.

Every event that a driver with sockets could bring about is put to every state that is reached from the start, under
policies that between them open every path (`every_path.py`). The state says what can happen in it: no answer comes of
an attempt that does not fly, no alarm rings that was not set. What the call answered is the table; nothing is written
by hand. While at it the law is checked in each state: something flies, or an alarm is set, or the call is done.

    python tools/transitions.py            print the page
    python tools/transitions.py --write    write docs/reference/transitions.md anew
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from every_path import HEDGED, SEQUENTIAL, Elsewhere

from proxy.retry.actions import Action, Actions, Ask, Deliver, WakeAt
from proxy.retry.facts import Fault, FaultKind, MappingFields, Outcome, Progress, Reply, Request
from proxy.retry.machine import Call, Delivering, Done, Env, Flight, Flying, New
from proxy.retry.plans import Next
from proxy.retry.policy import Policy
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "transitions.md"

#: Seconds between two events, where the event does not say when it happens.
STEP = 0.01
#: An event of the surroundings, which gets no row.
COOLED_BY_ANOTHER = "another call starts a cooldown"

_REPLIES = {
    "`head`: a success": (200, {}),
    "`head`: a retryable failure": (503, {}),
    "`head`: a retryable failure with a pushback": (429, {"retry-after": "1"}),
    "`head`: a stop pushback": (503, {"x-should-retry": "false"}),
    "`head`: a failure that nothing names": (404, {}),
    "`head`: a rule must see the body": (400, {}),
}
_RESET = "`failed`: reset"
_FAULTS = {
    "`failed`: never sent": Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT),
    "`failed`: refused": Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED),
    _RESET: Fault(FaultKind.RESET, Progress.UNKNOWN),
}
_BODIES = {"`peeked`: a rule matches": b'{"code": "slow"}', "`peeked`: no rule matches": b"{}"}


class Phase(Enum):
    """Where a call is: its state, and of one that waits or flies, what for."""

    NEW = "new"
    GATED = "gated"
    FLYING = "flying"
    PEEKING = "peeking"
    BACKOFF = "backoff"
    DELIVERING = "delivering"
    DONE = "done"


@dataclass
class Driven:
    """A call with what its driver knows beside its state: the time, the alarm, and what a bucket was asked for."""

    call: Call
    now: float = 0.0
    alarm: float | None = None
    asked: float | None = None
    cooled: bool = False  # another call has started a cooldown

    def carry_out(self, actions: Actions) -> None:
        """Know what the actions made so."""
        for action in actions:
            if isinstance(action, WakeAt):
                self.alarm = action.at
            elif isinstance(action, Ask):
                self.asked = action.price

    @property
    def flights(self) -> dict[int, Flight]:
        """What flies."""
        return self.call.state.flights if isinstance(self.call.state, Flying) else {}

    @property
    def phase(self) -> Phase:
        """Where the call is."""
        call = self.call
        if isinstance(call.state, Next):
            return Phase.GATED if call.state.gated and not (call.hedged and call.attempts) else Phase.BACKOFF
        if not call.hedged and any(flight.reply for flight in self.flights.values()):
            return Phase.PEEKING
        return Phase[type(call.state).__name__.upper()]

    @property
    def key(self) -> tuple[object, ...]:
        """Two states with one key behave alike, as far as the table goes."""
        call, state, payment = self.call, self.call.state, self.call._payment
        return (
            *(type(state), self.phase, call.attempts, call.committed, call.resent, self.cooled),
            frozenset((number, flight.reply is None) for number, flight in self.flights.items()),
            call.failure is not None and call.failure.status is not None,
            state.outcome if isinstance(state, Delivering) else None,
            *(self.alarm is not None, self.asked is not None),
            payment is not None and (payment.owed is not None, payment.price is not None),
            isinstance(state, Next) and self.now >= state.due,
            getattr(call._plan, "stopped", None),
        )


def events(driven: Driven) -> Iterator[tuple[str, Callable[[], Actions]]]:
    """What can happen next."""
    call, state = driven.call, driven.call.state
    if isinstance(state, New):
        yield "`start`", lambda: call.start(driven.now)
        return
    for attempt, flight in sorted(driven.flights.items()):
        yield from _events_of(driven, attempt, flight)
    if isinstance(state, Delivering):
        attempt = state.attempt
        yield "`ended`", lambda: call.ended(attempt, driven.now)
        trailers = MappingFields([("grpc-status", "14")])
        yield "`ended`: a failure in its trailers", lambda: call.ended(attempt, driven.now, trailers)
        yield _RESET, lambda: call.failed(attempt, _FAULTS[_RESET], driven.now)
    elif driven.alarm is not None:
        yield "`woke`: the alarm", lambda: _woke(driven, driven.alarm)
    if driven.flights and call.deadline is not None:
        yield "`woke`: the deadline", lambda: _woke(driven, call.deadline)
    if driven.asked is not None:
        yield "`granted`", lambda: _answered(driven, call.granted)
        yield "`refused`", lambda: _answered(driven, call.refused)
    if isinstance(state, Next) and not driven.cooled:
        yield COOLED_BY_ANOTHER, lambda: _cool_down(driven)
    yield "`replay_lost`", lambda: call.replay_lost(driven.now)
    yield "`app_gone`", lambda: call.app_gone(driven.now)
    yield "`cut`", lambda: call.cut(driven.now)


def _events_of(driven: Driven, attempt: int, flight: Flight) -> Iterator[tuple[str, Callable[[], Actions]]]:
    """What can happen to an attempt in flight."""
    call = driven.call
    if flight.reply is not None:
        for label, body in _BODIES.items():
            yield label, lambda body=body: call.peeked(attempt, body, driven.now)  # type: ignore[misc]
        yield _RESET, lambda: call.failed(attempt, _FAULTS[_RESET], driven.now)
        return
    for label, (status, headers) in _REPLIES.items():
        reply = Reply(status, MappingFields(list(headers.items())))
        yield label, lambda reply=reply: call.head(attempt, reply, driven.now)  # type: ignore[misc]
    for label, fault in _FAULTS.items():
        yield label, lambda fault=fault: call.failed(attempt, fault, driven.now)  # type: ignore[misc]
    yield "`denied`", lambda: call.denied(attempt, "not allowed", driven.now)


def _woke(driven: Driven, at: float | None) -> Actions:
    """The alarm rings, or the deadline comes."""
    assert at is not None
    driven.now = max(driven.now, at)
    if at == driven.alarm:
        driven.alarm = None
    return driven.call.woke(driven.now)


def _answered(driven: Driven, answer: Callable[[float, float], Actions]) -> Actions:
    """The bucket elsewhere answers."""
    assert driven.asked is not None
    price, driven.asked = driven.asked, None
    return answer(price, driven.now)


def _cool_down(driven: Driven) -> Actions:
    """Another call of the scope meets a pushback: no event of this call, but it will find a gate closed."""
    driven.cooled = True
    driven.call.scope.cooldown.start(driven.call.request.fields, 503, 2.0, sent=driven.now, now=driven.now)
    return ()


# -- exploring --------------------------------------------------------------------------------------------------------

#: (phase, event) -> what was answered, each a tuple of action names and the next phase, with the outcomes seen.
Table = dict[tuple[Phase, str], dict[tuple[tuple[str, ...], Phase], set[Outcome]]]


def explore(settings: list[tuple[Policy, int, bool]], *, hedged: bool) -> Table:
    """Put every event to every state that can be reached."""
    table: Table = defaultdict(lambda: defaultdict(set))
    for policy, room, cooling in settings:
        start = _replay(policy, room, cooling, ())
        assert start.call.hedged is hedged
        seen = {start.key}
        paths: deque[tuple[tuple[int, ...], Driven]] = deque([((), start)])
        while paths:
            path, reached = paths.popleft()
            for step in range(len(list(events(reached)))):
                driven = _replay(policy, room, cooling, path)
                _put(table, driven, step)
                if driven.key not in seen and not isinstance(driven.call.state, Done):
                    seen.add(driven.key)
                    paths.append(((*path, step), driven))
    return table


def _replay(policy: Policy, room: int, cooling: bool, path: tuple[int, ...]) -> Driven:
    """A call that has gone this way. Calls are cheap; copies of their surroundings are not exact."""
    request = Request("GET", "u.test", "/")
    scope = Registry(Elsewhere()).scope(policy, request)
    if cooling:
        scope.cooldown.start(request.fields, 503, 1.0, sent=0.0, now=0.0)
    env = Env(random.Random(0), 0.0, WaitingRoom(room))  # noqa: TID251, S311 - nothing draws from it: no jitter
    driven = Driven(Call(request, policy, scope, env, lambda at: setattr(driven, "alarm", at)))
    for step in path:
        _happen(driven, step)
    return driven


def _happen(driven: Driven, step: int) -> tuple[str, Actions]:
    label, happen = list(events(driven))[step]
    driven.now += 0.0 if isinstance(driven.call.state, New) else STEP
    actions = happen()
    driven.carry_out(actions)
    return label, actions


def _put(table: Table, driven: Driven, step: int) -> None:
    before = driven.phase
    label, actions = _happen(driven, step)
    if label == COOLED_BY_ANOTHER:
        return
    names = tuple(dict.fromkeys(_name(action) for action in actions))
    outcomes = {outcome for action in actions if (outcome := getattr(action, "outcome", None)) is not None}
    table[before, label][names, driven.phase] |= outcomes
    goes_on = driven.flights or driven.alarm is not None or isinstance(driven.call.state, Delivering | Done)
    assert goes_on, f"nothing will ever happen again: {before} {label}"


def _name(action: Action) -> str:
    if isinstance(action, Deliver):
        return "Deliver" if action.outcome is Outcome.SUCCESS else "Deliver the failure"
    return type(action).__name__


# -- writing ----------------------------------------------------------------------------------------------------------

_HEAD = """# How a call moves

This page is made from the code by `python tools/transitions.py --write`, and a test keeps it current. The generator
drives the object that serves traffic: every event that a driver can bring about is put to every state that can be
reached, under policies that open every path (`tools/every_path.py`). In each of those states it
checks the law of the core: something is in flight, or an alarm is set, or the call is done.

Events are what a driver tells the call; actions are what the call asks of its driver, in this order
(`proxy/retry/actions.py`). `—` means that nothing is asked and the state stays. The outcomes are those that a row was
seen to end with, or to hand an answer on with; which *no* it is follows from the order of checks
([classification.md](classification.md#the-order-of-checks)).

| phase | means |
| --- | --- |
| new | the request's head has not come |
| gated | an attempt is due, and a cooldown, a `rate` bucket or the adaptive limiter holds it |
| flying | sent; no final head yet (hedged: at least one attempt is) |
| peeking | the head is there, and a rule must see the body before the class can be told |
| backoff | a retry was paid for, or its bucket is asked, and it is waited for; its answer, if any, is held |
| delivering | an answer is going to the app: nothing leads back |
| done | there is an outcome |
"""


def page() -> str:
    """The whole page."""
    one, other = explore(SEQUENTIAL, hedged=False), explore(HEDGED, hedged=True)
    return "\n".join(
        [
            _HEAD,
            "## One attempt after another\n",
            *_diagram(one),
            "",
            *_rows(one),
            "",
            "## Hedged\n",
            "Several attempts may be in flight. A call that is not safe to hedge goes by the table above.\n",
            *_rows(other),
            "",
        ]
    )


def _diagram(table: Table) -> Iterator[str]:
    """The moves from phase to phase, without the events that leave everything at once."""
    edges: dict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for (phase, event), results in table.items():
        for _, after in results:
            name = event.split("`")[1]
            leaves = name in ("app_gone", "cut", "denied", "replay_lost")
            if after is not phase and not leaves and name not in edges[phase, after]:
                edges[phase, after].append(name)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> new"
    order = list(Phase)
    for (phase, after), names in sorted(edges.items(), key=lambda pair: tuple(map(order.index, pair[0]))):
        if names:
            yield f"    {phase.value} --> {after.value}: {', '.join(names)}"
    yield "    done --> [*]"
    yield "```"


def _rows(table: Table) -> Iterator[str]:
    yield "| in | event | actions | then | outcomes |"
    yield "| --- | --- | --- | --- | --- |"
    order = list(Phase)
    for (phase, event), results in sorted(table.items(), key=lambda row: order.index(row[0][0])):
        ranked = sorted(results.items(), key=lambda result: (order.index(result[0][1]), result[0][0]))
        for (names, after), outcomes in ranked:
            told = ", ".join(f"`{outcome}`" for outcome in Outcome if outcome in outcomes)
            yield f"| {phase.value} | {event} | {', '.join(names) or '—'} | {after.value} | {told} |"


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
