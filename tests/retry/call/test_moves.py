"""The table of moves is the machine's: calls that are played at random make every move that it declares, and no other.

Whatever a driver could bring about in a state happens next, under policies that between them open every path, and
beside it whatever the table has not for that state, which changes nothing. In every state something flies, or an alarm
is set, or the call is done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from proxy.retry.budgets.buckets import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.call.actions import Actions, Ask, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.states import MOVES, Delivering, Done, Flying, New
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Classify, Rule
from proxy.retry.policies.policy import (
    Backoff,
    BreakerSpec,
    EndpointShare,
    Fallback,
    Policy,
    PushbackPolicy,
    Resume,
    Strategy,
    Timeouts,
)
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.registry import Registry
from proxy.retry.weather.caller import Caller

FAULTS = [
    Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT),
    Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED),
    Fault(FaultKind.RESET, Progress.UNKNOWN),
]
REPLIES = [
    Reply(status, MappingFields(fields))
    for status, fields in (
        (200, []),
        (503, []),
        (429, [("retry-after", "1")]),
        (503, [("x-should-retry", "false")]),
        (404, []),
        (400, []),  # a rule must see its body
    )
]
UNAVAILABLE = MappingFields([("grpc-status", "14")])

# -- policies ---------------------------------------------------------------------------------------------------------


class Slow:
    """A strategy of one's own that delays the first attempt."""

    retry_delay = 0.1

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Slow:
        return self

    def refresh_retry_token_for_retry(self, *, token_to_renew: Slow, error: Exception) -> Slow:
        return self

    def record_success(self, *, token: Slow) -> None:
        pass


class Asked(QuotaBucket):
    """A bucket that has to be asked, and answers when the driver says so."""

    def affords(self, price: float, now: float) -> Affords:
        return ASK

    def take(self, price: float, now: float) -> bool:
        return False


class AskedFactory(Factory):
    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if isinstance(spec, QuotaSpec) and spec.store == "redis":
            return Asked(spec)
        return super().bucket(key, spec, before, now)


def rate(when_empty: Literal["wait", "reject"], initial: float) -> BucketRef:
    return BucketRef(RateSpec(rate=1.0, burst=1.0, when_empty=when_empty, initial=initial), name="pace")


STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0, jitter="none"))
AT_ONCE = replace(STANDARD, backoff=Backoff(0.0, 0.0, jitter="none"))
HEDGING = replace(AT_ONCE, hedging_delay=0.5, non_fatal=frozenset({503, 429, 400, *(fault.kind for fault in FAULTS)}))
CLASSIFY = Classify(
    statuses={503: Class.TRANSIENT, 429: Class.THROTTLING},
    grpc={14: Class.TRANSIENT},
    faults=dict.fromkeys((fault.kind for fault in FAULTS), Class.TRANSIENT),
    rules=(Rule(Class.THROTTLING, "a rule", statuses=frozenset({200, 400}), json=((("code",), "slow"),)),),
)
PLAIN = Policy("u", "", STANDARD, BucketRef(QuotaSpec()), classify=CLASSIFY)
POLICIES: dict[str, list[Any]] = {
    "strategy": [
        *(STANDARD, AT_ONCE, HEDGING, replace(HEDGING, hedging_delay=0.0)),
        replace(STANDARD, kind="custom", custom=Slow()),
    ],
    "bucket": [BucketRef(QuotaSpec()), BucketRef(QuotaSpec(capacity=5)), *[BucketRef(QuotaSpec(store="redis"))] * 2],
    "rate": [None, None, rate("wait", 0), rate("wait", 1), rate("reject", 0), rate("reject", 1)],
    "timeouts": [Timeouts(), Timeouts(), Timeouts(total=0.05), Timeouts(total=0.7), Timeouts(first_byte=1.0)],
    "pushback": [PushbackPolicy(), PushbackPolicy(max_delay=0.5), PushbackPolicy(cooldown="reject")],
    "mode": ["enforce", "enforce", "enforce", "enforce", "observe", "off"],
    "circuit_breaker": [None, None, None, BreakerSpec(0.5, 1, 30.0, 0.05)],
    "endpoints": [(), (EndpointShare("a:80"), EndpointShare("b:80", priority=1))],
    "fallback": [(), (), (Fallback("other"),)],
    "resume": [None, Resume(), Resume(), Resume()],
}

# -- a call and its driver --------------------------------------------------------------------------------------------

#: Its name, how likely it is beside the others, and what brings it about.
Event = tuple[str, int, Callable[[], Actions]]
Move = tuple[type, str, type]


class Driven:
    """A call with what its driver knows beside its state: the time, the alarm, and what a bucket was asked for."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0.0
        self.alarm: float | None = None
        self.asked: float | None = None
        policy = replace(PLAIN, **{name: chance.choice(choices) for name, choices in POLICIES.items()})
        request = Request("GET", "u.test", "/")
        self.scope = Registry(AskedFactory()).scope(policy, request)
        if chance.random() < 0.2:
            self._cool_down()
        env = Env(chance, 0.0, WaitingRoom(chance.choice([0, 100, 100, 100])))
        self.call = Call(request, policy, self.scope, env, partial(setattr, self, "alarm"), lambda entry: "")

    def moves(self) -> Iterator[Move]:
        """What happens to the call until it is done: the state before, the event, the state after."""
        call = self.call
        while not isinstance(call.so_far.state, Done):
            self._put_what_comes_too_late()
            names, weights, happenings = zip(*self.events(), strict=True)
            (index,) = self.chance.choices(range(len(names)), weights)
            before = type(call.so_far.state)
            self.now += 0.01
            for action in happenings[index]():
                if isinstance(action, WakeAt):
                    self.alarm = action.at
                elif isinstance(action, Ask):
                    self.asked = action.price
            flies = isinstance(call.so_far.state, Flying) and call.so_far.state.flights
            assert flies or self.alarm or isinstance(call.so_far.state, New | Delivering | Done), (
                "nothing will ever happen"
            )
            if names[index]:
                yield before, names[index], type(call.so_far.state)
        self._put_what_comes_too_late()
        under_way = [traffic.flying for traffic in self.scope.governor.lanes.traffics.values()]
        assert not any(under_way), "an attempt is counted as under way for ever"

    def _put_what_comes_too_late(self) -> None:
        call, now, state = self.call, self.now, self.call.so_far.state
        for name, args in LATE.items():
            if name not in MOVES[type(state)]:
                assert getattr(call, name)(*args, *((now,) if name != "ended" else (now, UNAVAILABLE))) == ()
                assert call.so_far.state is state

    def events(self) -> Iterator[Event]:
        """What can happen next."""
        call, state = self.call, self.call.so_far.state
        if isinstance(state, New):
            yield "start", 40, lambda: call.start(self.now)
        elif isinstance(state, Flying):
            for attempt, flight in state.flights.items():
                yield from self._events_of(attempt, flight.reply is not None)
            if call.so_far.deadline is not None:
                yield "woke", 1, partial(self._wake, call.so_far.deadline)
        elif isinstance(state, Delivering):
            yield "ended", 1, lambda: call.ended(state.attempt, self.now)
            yield "ended", 1, lambda: call.ended(state.attempt, self.now, UNAVAILABLE)
            yield "failed", 1, lambda: call.failed(state.attempt, FAULTS[-1], self.now)
            yield "broke", 40, lambda: call.broke(state.attempt, FAULTS[-1], 0, self.now, self.now)
        else:
            yield "", 2, self._cool_down
        if self.alarm is not None and not isinstance(state, Delivering):
            yield "woke", 10, partial(self._wake, self.alarm)
        if self.asked is not None and "granted" in MOVES[type(state)]:
            yield "granted", 10, partial(self._answer, call.granted)
            yield "refused", 10, partial(self._answer, call.refused)
        if "replay_lost" in MOVES[type(state)] and not call.so_far.committed:  # it is lost once
            yield "replay_lost", 1, lambda: call.replay_lost(self.now)
        yield "app_gone", 1, lambda: call.app_gone(self.now)
        yield "cut", 1, lambda: call.cut(self.now)

    def _events_of(self, attempt: int, peeks: bool) -> Iterator[Event]:
        call = self.call
        if call.so_far.resumption is not None:
            yield "sent", 1, lambda: call.sent(attempt, "a:80", "http/1.1", self.now)
            yield "resumed", 10, lambda: call.resumed(attempt, self.chance.random() < 0.8, self.now)
        elif peeks:
            yield "peeked", 9, lambda: call.peeked(attempt, b'{"code": "slow"}', self.now)
            yield "peeked", 3, lambda: call.peeked(attempt, b"{}", self.now)
        else:
            yield "sent", 1, lambda: call.sent(attempt, "a:80", "http/1.1", self.now)
            yield "request_sent", 5, lambda: call.request_sent(self.now)
            yield "head", 40, lambda: call.head(attempt, self.chance.choice(REPLIES), self.now)
            yield "denied", 1, lambda: call.denied(attempt, "not allowed", self.now)
            yield "no_room", 1, lambda: call.no_room(attempt, "no descriptor is left", self.now)
        yield "failed", 20, lambda: call.failed(attempt, self.chance.choice(FAULTS), self.now)

    def _wake(self, at: float) -> Actions:
        self.now = max(self.now, at)
        if at == self.alarm:
            self.alarm = None
        return self.call.woke(self.now)

    def _answer(self, answer: Callable[[float, float], Actions]) -> Actions:
        assert self.asked is not None
        price, self.asked = self.asked, None
        return answer(price, self.now)

    def _cool_down(self) -> Actions:
        """Another call of the scope meets a pushback: no event of this call, but it will find a gate closed."""
        caller = Caller(Request("GET", "u.test", "/"), MappingFields([]), "")
        self.scope.governor.requests_wait(caller, 503, 2.0, sent=self.now, now=self.now, whole=True)
        return ()


#: Events with what they are told but for the time, put to every state that has no use for them.
LATE: dict[str, tuple[Any, ...]] = {
    "sent": (1, "a:80", "http/1.1"),
    "request_sent": (),
    "head": (1, REPLIES[0]),
    "peeked": (1, b"{}"),
    "ended": (1,),
    "failed": (1, FAULTS[-1]),
    "broke": (1, FAULTS[-1], 0, 0.0),
    "resumed": (1, True),
    "denied": (1, "not allowed"),
    "no_room": (1, "no descriptor is left"),
    "woke": (),
    "granted": (5.0,),
    "refused": (5.0,),
    "replay_lost": (),
    "app_gone": (),
    "cut": (),
}


def test_calls_make_the_moves_of_the_table_and_no_others() -> None:
    seeds = [*range(5000), 5315, 7775]  # the last two are refused a hedge beside attempts after its bucket was asked
    made = {move for seed in seeds for move in Driven(random.Random(seed)).moves()}
    declared = {(state, name, then) for state, moves in MOVES.items() for name, to in moves.items() for then in to}
    assert made == declared
