"""The transition table of docs/reference/transitions.md, found by driving `proxy.retry.call.Call` itself.

Every event that a driver could bring about is put to every state that is reached from the start, under a handful of
policies that between them open every path. What the call answered is the table; nothing is written by hand. While at
it the law is checked in each state: something flies, or an alarm is set, or the call is done.

    python tools/transitions.py            print the page
    python tools/transitions.py --write    write docs/reference/transitions.md anew
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from proxy.retry.actions import Action, Actions, Ask, Cancel, Deliver, Discard, Finish, Launch, Peek, WakeAt
from proxy.retry.bucket import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.call import Call, Phase
from proxy.retry.commons import Commons
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Outcome, Progress, Reply, Request
from proxy.retry.gated import Env
from proxy.retry.gates import WaitingRoom
from proxy.retry.hedging import HedgedCall, make_call
from proxy.retry.making import Key, Making
from proxy.retry.policy import (
    Backoff,
    BucketRef,
    BucketSpec,
    Classify,
    Policy,
    PushbackPolicy,
    QuotaSpec,
    RateSpec,
    Rule,
    Strategy,
    Timeouts,
)

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "transitions.md"

#: Seconds between two events, where the event does not say when it happens.
STEP = 0.01


# -- policies that between them open every path -----------------------------------------------------------------------

_CLASSIFY = Classify(
    statuses={503: Class.TRANSIENT, 429: Class.THROTTLING},
    grpc={14: Class.TRANSIENT},
    faults=dict.fromkeys((FaultKind.CONNECT_FAILURE, FaultKind.RESET, FaultKind.REFUSED_STREAM), Class.TRANSIENT)
    | {FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT},
    rules=(Rule(Class.THROTTLING, "a rule", statuses=frozenset({400}), json=((("code",), "slow"),)),),
)
_STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0, jitter="none"))
_AT_ONCE = replace(_STANDARD, backoff=Backoff(0.0, 0.0, jitter="none"))
_PLAIN = Policy("u", "", _STANDARD, BucketRef(QuotaSpec()), classify=_CLASSIFY)


class _Slow:
    """A strategy of one's own that delays the first attempt."""

    class Token:
        retry_count = 0
        retry_delay = 0.1

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Token:
        return self.Token()

    def refresh_retry_token_for_retry(self, *, token_to_renew: Token, error: Exception) -> Token:
        return self.Token()

    def record_success(self, *, token: Token) -> None:
        pass


def _rate(when_empty: Literal["wait", "reject"], initial: float) -> BucketRef:
    return BucketRef(RateSpec(rate=1.0, burst=1.0, when_empty=when_empty, initial=initial), name="pace")


class _Elsewhere(QuotaBucket):
    """A bucket that has to be asked, and answers when the driver says so."""

    def affords(self, price: float, now: float) -> Affords:
        return ASK

    def take(self, price: float, now: float) -> bool:
        return False


class _Making(Making):
    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if isinstance(spec, QuotaSpec) and spec.store == "redis":
            return _Elsewhere(spec)
        return super().bucket(key, spec, before, now)


_ASKED = BucketRef(QuotaSpec(store="redis"))

#: (policy, places in the waiting room, whether a cooldown is in force when the call begins)
SEQUENTIAL: list[tuple[Policy, int, bool]] = [
    (_PLAIN, 100, False),
    (replace(_PLAIN, strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 0)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), timeouts=Timeouts(total=0.5)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), strategy=_AT_ONCE), 0, False),
    (replace(_PLAIN, rate=_rate("reject", 0)), 100, False),
    (replace(_PLAIN, rate=_rate("reject", 1)), 100, False),
    (replace(_PLAIN, bucket=BucketRef(QuotaSpec(capacity=0))), 100, False),
    (replace(_PLAIN, bucket=_ASKED), 100, False),
    (replace(_PLAIN, bucket=_ASKED, strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, bucket=_ASKED, strategy=_AT_ONCE, timeouts=Timeouts(total=0.5)), 100, False),
    (replace(_PLAIN, timeouts=Timeouts(total=0.05)), 100, False),
    (replace(_PLAIN, pushback=PushbackPolicy(max_delay=0.5)), 100, False),
    (replace(_PLAIN, mode="off"), 100, False),
    (_PLAIN, 0, False),
    (_PLAIN, 100, True),
    (_PLAIN, 0, True),
    (replace(_PLAIN, pushback=PushbackPolicy(cooldown="reject")), 100, True),
    (replace(_PLAIN, timeouts=Timeouts(total=0.05)), 100, True),
    (replace(_PLAIN, strategy=replace(_STANDARD, kind="custom", custom=_Slow())), 100, False),
    (replace(_PLAIN, strategy=replace(_STANDARD, kind="custom", custom=_Slow())), 0, False),
]

_HEDGING = Strategy(
    "hedging",
    "hedging",
    3,
    Backoff(0.0, 0.0, jitter="none"),
    hedging_delay=0.5,
    non_fatal=frozenset({503, 429, 400, FaultKind.CONNECT_FAILURE, FaultKind.RESET, FaultKind.REFUSED_STREAM}),
)
_HEDGED = replace(_PLAIN, strategy=_HEDGING)

HEDGED: list[tuple[Policy, int, bool]] = [
    (_HEDGED, 100, False),
    (replace(_HEDGED, strategy=replace(_HEDGING, hedging_delay=0.0)), 100, False),
    (replace(_HEDGED, bucket=BucketRef(QuotaSpec(capacity=5))), 100, False),
    (replace(_HEDGED, bucket=_ASKED), 100, False),
    (replace(_HEDGED, timeouts=Timeouts(total=0.7)), 100, False),
    (replace(_HEDGED, rate=_rate("wait", 0)), 100, False),
    (_HEDGED, 0, False),
]


# -- what a driver can bring about ------------------------------------------------------------------------------------


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
        call = self.call
        return (
            call.phase,
            call.attempts,
            call.committed,
            call.resent,
            frozenset(self.flying),
            frozenset(self.peeking),
            frozenset(self.answered),
            self.delivering,
            self.alarm is not None,
            self.asked is not None,
            call._owed is not None,
            call._granted is not None,
            call.phase is Phase.BACKOFF and self.now >= call._due,
            getattr(call, "_stopped", None),
            self.cooled,
        )


_ELSEWHERE = "another call starts a cooldown"

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
    if call.phase is Phase.NEW:
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
    if call.phase in (Phase.GATED, Phase.BACKOFF) and not driven.cooled:
        yield _ELSEWHERE, _cool_down
    yield "`replay_lost`", lambda d: d.call.replay_lost(d.now)
    yield "`app_gone`", lambda d: d.call.app_gone(d.now)
    yield "`cut`", lambda d: d.call.cut(d.now)


def _cool_down(driven: Driven) -> Actions:
    """Another call of the scope meets a pushback: no event of this call, but it will find a gate closed."""
    driven.cooled = True
    driven.call.scope.cooldown.start(2.0, 0.1, driven.now)
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


# -- exploring --------------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """(phase, event) -> what was answered, each a tuple of action names and the next phase, with the outcomes seen."""

    rows: dict[tuple[Phase, str], dict[tuple[tuple[str, ...], Phase], set[Outcome]]]


def explore(settings: list[tuple[Policy, int, bool]], kind: type[Call]) -> Table:
    """Put every event to every state that can be reached."""
    table = Table(defaultdict(lambda: defaultdict(set)))
    for policy, room, cooling in settings:
        start = _replay(policy, room, cooling, ())
        assert type(start.call) is kind
        seen = {start.key}
        paths: deque[tuple[tuple[str, ...], Driven]] = deque([((), start)])
        while paths:
            path, reached = paths.popleft()
            for step in [f"{number}|{label}" for number, (label, _) in enumerate(events(reached))]:
                driven = _replay(policy, room, cooling, path)
                _put(table, driven, step)
                if driven.key not in seen and not driven.done:
                    seen.add(driven.key)
                    paths.append(((*path, step), driven))
    return table


def _replay(policy: Policy, room: int, cooling: bool, path: tuple[str, ...]) -> Driven:
    """A call that has gone this way. Calls are cheap; copies of their surroundings are not exact."""
    request = Request("GET", "u.test", "/")
    scope = Commons(_Making()).scope(policy, request)
    if cooling:
        scope.cooldown.start(1.0, 0.1, 0.0)
    env = Env(random.Random(0), 0.0, WaitingRoom(room))  # noqa: TID251, S311 - nothing draws from it: no jitter
    driven: Driven | None = None

    def move_alarm(at: float) -> None:
        assert driven is not None
        driven.alarm = at

    driven = Driven(make_call(request, policy, scope, env, move_alarm))
    for step in path:
        _happen(driven, step)
    return driven


def _happen(driven: Driven, step: str) -> Actions:
    number, _, label = step.partition("|")
    for index, (known, happen) in enumerate(events(driven)):
        if index == int(number):
            assert known == label
            driven.now += STEP if driven.call.phase is not Phase.NEW else 0.0
            actions = happen(driven)
            driven.carry_out(actions)
            return actions
    raise LookupError(step)


def _put(table: Table, driven: Driven, step: str) -> None:
    before = driven.call.phase
    actions = _happen(driven, step)
    names = tuple(dict.fromkeys(_name(action) for action in actions))
    outcomes = {outcome for action in actions if (outcome := getattr(action, "outcome", None)) is not None}
    label = step.partition("|")[2]
    if label == _ELSEWHERE:
        return
    table.rows[before, label][names, driven.call.phase] |= outcomes
    in_flight = driven.flying or driven.peeking or driven.delivering is not None
    assert driven.done or in_flight or driven.alarm is not None, f"nothing will ever happen again: {before} {step}"


def _name(action: Action) -> str:
    if isinstance(action, Deliver):
        return "Deliver" if action.outcome is Outcome.SUCCESS else "Deliver the failure"
    return type(action).__name__


# -- writing ----------------------------------------------------------------------------------------------------------

_HEAD = """# How a call moves

This page is made from the code by `python tools/transitions.py --write`, and a test keeps it current. The generator
drives the object that serves traffic: every event that a driver can bring about is put to every state that can be
reached, under policies that open every path (`SEQUENTIAL` and `HEDGED` in the generator). In each of those states it
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
    one, other = explore(SEQUENTIAL, Call), explore(HEDGED, HedgedCall)
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
    for (phase, event), results in table.rows.items():
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
    for (phase, event), results in sorted(table.rows.items(), key=lambda row: order.index(row[0][0])):
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
