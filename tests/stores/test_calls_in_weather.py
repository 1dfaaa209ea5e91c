"""What holds for every call in bad weather, with everything on: cooldowns, limits, outages, reported remainders,
several endpoints and credentials, apps, rates, hedges and circuit breakers, in one process and over two workers.

Each seed draws a policy for two routes, an upstream whose weather changes, and calls of which some leave, and plays
them on the virtual clock. Laws are checked after each event and at the end. A failure names its seed. To search:
`python tests/stores/test_calls_in_weather.py WORKERS FIRST LAST` plays the seeds from FIRST to LAST - 1.
"""

from __future__ import annotations

import math
import os
import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from proxy.lab.clock import BEGIN, UPSTREAM, Clock
from proxy.lab.driver import Driver, Sending
from proxy.lab.request_body import BufferBudget, KnownBody
from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.budgets.token_estimate import estimate
from proxy.retry.call.actions import Action, Answer, Deliver, Finish, Launch, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Outcome, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.dialect import Classify, Dialect
from proxy.retry.policies.policy import (
    AutoLimit,
    Backoff,
    BreakerSpec,
    Concurrency,
    Credentials,
    EndpointShare,
    Policy,
    PushbackPolicy,
    Strategy,
    Timeouts,
    TokenRules,
    WholeAnswers,
)
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.stores.shared_memory import records
from proxy.stores.shared_memory.factory import SharedFactory, open_memory
from proxy.stores.shared_memory.waiting_room import SharedWaitingRoom
from proxy.supervisor.rows import Rows

BEGAN, EPSILON = 1000.0, 1e-6
#: Seeds that are played in each test one after the other, and tests.
SEEDS, PARTS = 25, 6
#: Events that the calls of a seed have at the most: more is a call that asks without end.
EVENTS = 50_000
STATUSES = {429: Class.THROTTLING, 408: Class.TIMEOUT, 504: Class.TIMEOUT} | dict.fromkeys(
    (425, 500, 502, 503), Class.TRANSIENT
)
FAULTS = {
    FaultKind.CONNECT_FAILURE: Class.TRANSIENT,
    FaultKind.REFUSED_STREAM: Class.TRANSIENT,
    FaultKind.RESET: Class.TRANSIENT,
    FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT,
}
NON_FATAL = frozenset({"UNAVAILABLE", 429, 503, FaultKind.RESET, FaultKind.CONNECT_FAILURE})
APPS = [
    NamedApp("web", 4, RANKS["high"]),
    NamedApp("jobs", 1, RANKS["normal"]),
    NamedApp("more", 3, RANKS["normal"]),
    NamedApp("batch", 1, RANKS["low"]),
]
FIELDS: list[tuple[tuple[str, str], ...]] = [
    *[()] * 4,
    (("x-retry-disable", "true"),),
    (("x-retry-timeout", "400ms"),),
    (("x-stainless-retry-count", "1"),),
    (("content-type", "application/grpc"),),
    (("idempotency-key", "k"),),
    *[(("authorization", f"t{number}"),) for number in range(3)],
]
KINDS = ["good", "down", "503", "503 with a delay", "429", "slow", "resets", "refused", "mixed", "capacity", "left"]


def strategy_of(rng: random.Random) -> Strategy:
    pick, kind = (
        rng.choice,
        rng.choice(["standard", "standard", "standard-2026", "adaptive", "grpc", "hedging", "none"]),
    )
    waits = Backoff(pick([0.0, 0.1, 1.0]), pick([0.0, 0.2, 5.0]), pick([1.0, 2.0]), pick(["none", "full", "equal"]))
    return Strategy(
        kind,
        kind,
        1 if kind == "none" else rng.randint(1, 5),
        waits,
        exact_pushback=kind == "grpc",
        pushback_clamp=0.5 if kind == "standard-2026" else None,
        paced=kind == "adaptive",
        delay_first=pick([True, False]),
        hedging_delay=pick([0.0, 0.05, 0.5]) if kind == "hedging" else None,
        non_fatal=NON_FATAL if kind == "hedging" else frozenset(),
        extra=pick([None, 0.5, 0.1]) if kind == "hedging" else None,
    )


def bucket_of(rng: random.Random, apps: tuple[tuple[str, int], ...]) -> BucketRef | None:
    pick = rng.choice
    kinds: list[BucketSpec | None] = [
        None,
        QuotaSpec(pick([0, 5, 12, 500]), pick([0, 5]), pick([2, 10]), pick([0, 3]), pick([0, 1]), apps=apps),
        QuotaSpec(pick([20, 500]), 5, 10, 5, 1, apps=apps).refilled_in_quiet(3),
        ThrottleSpec(pick([1, 4, 10]), pick([0.1, 0.8])),
        BudgetSpec(pick([0, 50]), pick([0, 1, 10]), apps=apps),
    ]
    spec = pick(kinds)
    return None if spec is None else BucketRef(spec)


def policy_of(rng: random.Random, *, apps: bool) -> Policy:
    """A policy with everything that a gate may be about, each now and then."""
    pick = rng.choice
    weights = tuple((app.name, app.weight) for app in APPS) if apps else ()
    rate = pick([None, None, RateSpec(pick([0.5, 2.0, 10.0]), pick([1.0, 3.0]), pick(["wait", "wait", "reject"]))])
    counts_tokens = rate is not None and rng.random() < 0.3
    tokens = RateSpec(pick([100.0, 1000.0]), pick([100.0, 2000.0]), "wait", unit="tokens")
    shares = pick([(), (), (), ((1, 0), (1, 0)), ((1, 0), (1, 1)), ((2, 0), (1, 0), (1, 0))])
    return Policy(
        "u",
        "",
        strategy_of(rng),
        bucket_of(rng, weights),
        rate=None if rate is None else BucketRef(rate, "pace"),
        more_rates=(BucketRef(tokens, "tokens"),) if counts_tokens else (),
        tokens=TokenRules(1024, 4, ()) if counts_tokens else None,
        timeouts=Timeouts(
            total=pick([None, 0.3, 2.0, 100.0]), attempt=pick([None, 0.4]), first_byte=pick([None, None, 0.3])
        ),
        classify=Classify(
            statuses=STATUSES,
            faults=FAULTS,
            dialects=(Dialect("http"), Dialect("grpc", grpc=True)),
            unsafe_methods=pick(["never", "unprocessed", "always"]),
        ),
        pushback=PushbackPolicy(
            max_delay=pick([2.0, 60.0]),
            cooldown=pick(["wait", "wait", "reject", "off"]),
            hold=pick([20.0, 3.0]),
            of=pick(["endpoint", "upstream"]) if shares else "upstream",
            ahead=pick([True, False]),
        ),
        mode=pick(["enforce"] * 8 + ["observe", "off"]),
        concurrency=Concurrency(pick([1, 2, 5]), pick([0, 1, 100]), pick([0.1, 30.0])) if rng.random() < 0.2 else None,
        limit=AutoLimit(pick([1, 3, 1000]), pick([1.0, 20.0])) if rng.random() < 0.8 else None,
        outage=pick(["hold", "hold", "hold", "fail"]),
        circuit_breaker=BreakerSpec(pick([0.5, 0.9]), pick([1, 3]), 5.0, pick([0.05, 1.0]))
        if rng.random() < 0.2
        else None,
        endpoints=tuple(EndpointShare(f"e{number}:80", *share) for number, share in enumerate(shares)),
        balance=pick(["turns", "least"]),
        credentials=Credentials("x-api-key", ("a", "b"), pick(["next", "first"])) if rng.random() < 0.25 else None,
        answers=pick([None, WholeAnswers()]),
    )


class Upstream:
    """An upstream whose weather changes in spells: (begin, kind, seconds that an answer takes)."""

    def __init__(self, rng: random.Random, seconds: float) -> None:
        self.rng = rng
        self.spells: list[tuple[float, str, float]] = []
        self.left, self.seen = 5.0, BEGAN  # of a capacity of four a second
        at = 0.0
        while at < seconds:
            self.spells.append((BEGAN + at, rng.choice(KINDS), rng.choice([0.0, 0.01, 0.1, 0.5])))
            at += rng.choice([0.2, 1.0, 3.0, 8.0, 15.0])

    def sending(self, now: float, endpoint: str) -> Sending:
        rng = self.rng
        _, kind, delay = [spell for spell in self.spells if spell[0] <= now + 1e-9][-1]
        after = delay * rng.choice([1, 1, 1, 1.2, 3]) + rng.choice([0.0, 0.001, 0.02])
        if endpoint and rng.random() < 0.5:
            kind = "good"
        if kind == "mixed":
            kind = rng.choice(KINDS[:8])
        match kind:
            case "down":
                return self._fault(FaultKind.CONNECT_FAILURE, 0.001)
            case "resets":
                return self._fault(FaultKind.RESET, after)
            case "refused":
                return self._fault(FaultKind.REFUSED_STREAM, after)
            case "503":
                return _answer(503, after)
            case "503 with a delay":
                return _answer(503, after, ("retry-after-ms", str(rng.choice([100, 500, 2500, 30000]))))
            case "429":
                return _answer(429, after, ("retry-after", rng.choice(["0", "1", "3"])))
            case "slow":
                return _answer(200, after * 10 + rng.choice([0.3, 0.6, 5.0]))
            case "left":
                left = f"limit=10, remaining={rng.choice([0, 0, 1, 5])}, reset={rng.choice([1, 3, 10])}"
                return _answer(200, after, ("ratelimit", left))
            case "capacity" if not self._has_capacity(now):
                return _answer(503, after, *((("retry-after", "1"),) if rng.random() < 0.5 else ()))
        if rng.random() < 0.1:
            head = Reply(200, MappingFields((("content-length", "10"),)))
            return Sending(after, head, pieces=((0.1, b"12345"), (0.6, b"67890")), cut=rng.choice([None, None, 0.3]))
        return _answer(rng.choice([200] * 9 + [404]), after)

    def _fault(self, kind: FaultKind, after: float) -> Sending:
        known = {FaultKind.CONNECT_FAILURE: Progress.NEVER_SENT, FaultKind.REFUSED_STREAM: Progress.REFUSED}
        progress = known.get(kind, Progress.UNKNOWN)
        return Sending(after, fault=Fault(kind, progress, reused=self.rng.random() < 0.2))

    def _has_capacity(self, now: float) -> bool:
        self.left, self.seen = min(5.0, self.left + (now - self.seen) * 4), now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def _answer(status: int, after: float, *fields: tuple[str, str]) -> Sending:
    return Sending(after, Reply(status, MappingFields(fields), end=True))


class Bounded(Clock):
    """A clock that fails if calls ask without end."""

    __slots__ = ()

    def at(self, when: float, rank: int, act: Any, *args: Any) -> None:
        assert self._sequence < EVENTS, "a call without end"
        super().at(when, rank, act, *args)


class Watched(Driver):
    """The driver of one call, which checks the laws after each event."""

    def __init__(
        self, clock: Clock, policy: Policy, upstream: Upstream, rng: random.Random, buffers: BufferBudget
    ) -> None:
        body = rng.choice([0, 0, 10, 60])
        super().__init__(clock, self._fate, timeouts=policy.timeouts, body_size=body, buffers=buffers)
        self.policy, self.upstream = policy, upstream
        self.request = Request(
            rng.choice(["GET", "GET", "POST"]),
            "u.test",
            rng.choice(["/x", "/y/z", "/v1/a/b"]),
            MappingFields(rng.choice(FIELDS)),
        )
        self.request.body = KnownBody(self.asked)
        self.answered = self.finishes = 0
        self.may_be_done = False  # an attempt may have been carried out

    def _fate(self, attempt: int, now: float) -> Sending:
        return self.upstream.sending(now, self.endpoint)

    def enter(self, registry: Registry, env: Env) -> None:
        scope = registry.scope(self.policy, self.request)
        call = Call(self.request, self.policy, scope, env, self.set_alarm)
        if self.policy.tokens is not None:
            call.expects(estimate(self.policy.tokens, self.asked, 100, scope.token_sizes, self.clock.now))
        self.begin(call)
        self.check()

    def go_away(self) -> None:
        if self.call is not None and self.finished is None:
            super().go_away()
            self.check()

    def be_cut(self) -> None:
        """The process ends."""
        if self.call is not None and self.finished is None:
            self._carry_out(self.call.cut(self.clock.now))
            self.check()

    def _ring(self, at: float) -> None:
        super()._ring(at)
        self.check()

    def _deadline(self) -> None:
        super()._deadline()
        self.check()

    def _arrive(self, attempt: int, number: int) -> None:
        flying = self._flying.get(attempt)
        if flying is not None and flying[0] == number:
            sending = flying[1]
            lost = sending.fault is not None and sending.fault.progress is Progress.UNKNOWN
            self.may_be_done |= lost or (sending.reply is not None and sending.reply.status != 429)
        super()._arrive(attempt, number)
        self.check()

    def _do(self, action: Action) -> None:
        now = self.clock.now
        assert self.finished is None, f"{action} after the end"
        match action:
            case Launch():
                assert not self.answered, "an attempt after commit"
                assert self._is_repeatable() or not self.may_be_done, "what may have been carried out is repeated"
                assert self.call is not None
                deadline = self.call.so_far.deadline
                assert deadline is None or now <= deadline + EPSILON
            case WakeAt(at=at):
                assert now - EPSILON <= at < math.inf
            case Deliver() | Answer():
                self.answered += 1
            case Finish(outcome=outcome):
                self.finishes += 1
                assert self.answered == 1 or (self.answered == 0 and outcome is Outcome.CLIENT_GONE)
        super()._do(action)

    def _is_repeatable(self) -> bool:
        always = self.policy.classify.unsafe_methods == "always"
        return self.request.method == "GET" or always or bool(self.request.fields.get_all("idempotency-key"))

    def check(self) -> None:
        """Something flies, or an alarm is set, or the call is done; and no call is held for longer than may be."""
        if self.call is None or self.finished is not None or self.delivered is not None:
            return
        assert self._flying or self._alarm is not None, "the call hangs"
        admission = self.call.so_far.next_attempt.admission
        assert admission is None or admission.held_for(self.clock.now) <= self.policy.pushback.hold + 1e-3


class Draws:
    """Chance that is often at its ends."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def random(self) -> float:
        return self._rng.choice([0.0, 0.5, 1.0, self._rng.random()])


def play(seed: int, workers: int) -> None:
    """Play the calls of one seed over so many workers; 0: in one process without any."""
    rng = random.Random(seed)
    descriptor = records.descriptor() if workers else -1
    try:
        room, draws = rng.choice([2000, 2000, 3, 10]), Draws(rng)
        if workers:
            memory = open_memory(descriptor)
            rows = Rows(memory)
            factories = [SharedFactory(memory, row=rows.take()) for _ in range(workers)]
            processes = [
                (Registry(each), Env(draws, 1.7e9, SharedWaitingRoom(memory, each.row, room))) for each in factories
            ]
        else:
            processes = [(Registry(), Env(draws, 1.7e9, WaitingRoom(room)))]
        _play(rng, processes)
    finally:
        if workers:
            os.close(descriptor)


def _play(rng: random.Random, processes: list[tuple[Registry, Env]]) -> None:
    seconds, has_apps = rng.choice([5.0, 30.0, 60.0]), rng.random() < 0.4
    policy = policy_of(rng, apps=has_apps)
    other = replace(
        policy,
        route="second",
        limit=rng.choice([policy.limit, None]),
        pushback=replace(policy.pushback, cooldown=rng.choice(["wait", "off"])),
    )
    clock, upstream, buffers = Bounded(), Upstream(rng, seconds), BufferBudget(50, 650)
    clock.now = BEGAN
    drivers, leave = [], rng.choice([0, 0.1, 0.4])
    for _ in range(rng.choice([10, 40, 120])):
        driver = Watched(clock, rng.choice([policy, other]), upstream, rng, buffers)
        if has_apps:
            driver.request.app = rng.choice([*APPS, NamedApp()])
        at = BEGAN + rng.random() * seconds
        clock.at(at, BEGIN, driver.enter, *rng.choice(processes))
        for share, act in ((leave, driver.go_away), (0.03, driver.be_cut)):
            if rng.random() < share:
                clock.at(at + rng.choice([0, 0.05, 0.5, 5.0]), UPSTREAM, act)
        drivers.append(driver)
    ends = rng.random() < 0.1
    if ends:  # the process is told to end, and holds no call any more
        for registry, _ in processes:
            clock.at(BEGAN + rng.random() * seconds, UPSTREAM, lambda registry=registry: registry.hold_none(clock.now))
    clock.run()
    for driver in drivers:
        assert (driver.outcome is not None, driver.finishes) == (True, 1), "a call never ended"
    assert [env.waiting.waiting for _, env in processes] == [0] * len(processes)
    assert buffers._left == 650
    for registry, _ in processes:
        for each in (policy, other):
            scope = registry.scope(each, Request("GET", "u.test", "/x"))
            for state in (scope, *(scope.keys.lanes if scope.keys is not None else ())):
                if state is not None:
                    _check_rest(state, ends=ends)


def _check_rest(scope: ScopeState, *, ends: bool) -> None:
    """Once all calls have ended, no gate of the scope knows of one. `ends`: the process was told to end."""
    governor = scope.governor
    assert (governor.held(), governor._in) == (0, {})
    assert all(traffic.flying == 0 for traffic in governor.lanes.traffics.values())
    for lane in () if ends else governor.all_lanes():
        assert not (lane.queue or lane.due.admitted or lane.due.aside or lane.places.taken)
        assert lane.outage.probe is None and lane._starter.waiter is None
    rates = [] if scope.rate is None else [gate for gate, _ in getattr(scope.rate, "gates", [(scope.rate, 1.0)])]
    for gate in (*rates, *([] if scope.limiter is None else [scope.limiter])):
        assert not gate.queue and abs(gate._total) < EPSILON and not gate.lines
    assert scope.places is None or scope.places.is_idle


@pytest.mark.parametrize("seed", range(0, SEEDS * PARTS, SEEDS))
@pytest.mark.parametrize("workers", [0, 2])
def test_calls_in_any_weather_keep_the_laws(workers: int, seed: int) -> None:
    for number in range(seed, seed + SEEDS):
        try:
            play(number, workers)
        except Exception as error:
            error.add_note(f"seed {number}, {workers} workers")
            raise


if __name__ == "__main__":
    for number in range(int(sys.argv[2]), int(sys.argv[3])):
        try:
            play(number, int(sys.argv[1]))
        except Exception as failure:
            print(number, type(failure).__name__, failure, flush=True)
