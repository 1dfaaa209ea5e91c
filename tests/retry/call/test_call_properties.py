"""What holds for every call under every policy, whatever the upstream does (hypothesis).

Random policies, scripts of outcomes and interleavings of many calls on one registry are played on the virtual
clock. A watcher checks the laws after every single event.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, seed, settings
from hypothesis import strategies as st
from support.two_runs import examples, first_seed

from proxy.lab.clock import BEGIN, UPSTREAM, Clock
from proxy.lab.driver import Driver, Sending
from proxy.lab.request_body import BufferBudget
from proxy.retry.budgets.buckets import Bucket, QuotaBucket
from proxy.retry.call.actions import Action, Answer, Deliver, Finish, Launch, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.states import Flying
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Outcome, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.dialect import Classify, Dialect
from proxy.retry.policies.policy import (
    Backoff,
    BreakerSpec,
    Concurrency,
    EndpointShare,
    Policy,
    PushbackPolicy,
    Strategy,
    Timeouts,
)
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.registry import Registry

EPS = 1e-6

CLASSIFY: dict[str, Any] = {
    "statuses": {429: Class.THROTTLING, 408: Class.TIMEOUT, 504: Class.TIMEOUT}
    | dict.fromkeys((425, 500, 502, 503), Class.TRANSIENT),
    "faults": {
        FaultKind.CONNECT_FAILURE: Class.TRANSIENT,
        FaultKind.REFUSED_STREAM: Class.TRANSIENT,
        FaultKind.RESET: Class.TRANSIENT,
        FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT,
    },
    "dialects": (Dialect("http"), Dialect("grpc", grpc=True)),
}

NON_FATAL = frozenset({"UNAVAILABLE", 429, 503, FaultKind.RESET, FaultKind.CONNECT_FAILURE})

times = st.sampled_from([0.0, 0.001, 0.05, 0.1, 0.5, 1.0, 3.0])
backoffs = st.builds(
    Backoff,
    base=st.sampled_from([0.0, 0.05, 0.1, 1.0]),
    max=st.sampled_from([0.0, 0.2, 5.0]),
    multiplier=st.sampled_from([1.0, 2.0]),
    jitter=st.sampled_from(["none", "full", "equal", "proportional", "decorrelated"]),
    throttling_base=st.sampled_from([None, 0.3]),
)
quotas = st.builds(
    QuotaSpec,
    capacity=st.sampled_from([0, 5, 12, 500]),
    retry_cost=st.sampled_from([0, 5]),
    timeout_cost=st.sampled_from([2, 10]),
    throttling_cost=st.sampled_from([0, 3]),
    success_refund=st.sampled_from([0, 1]),
    flat_refund=st.booleans(),
)
throttles = st.builds(ThrottleSpec, max_tokens=st.sampled_from([1, 4, 10]), token_ratio=st.sampled_from([0.1, 0.8]))
budgets = st.builds(BudgetSpec, percent=st.sampled_from([0, 50]), min_per_second=st.sampled_from([0, 1, 10]))
buckets = st.one_of(st.none(), quotas, throttles, budgets)
rates = st.builds(
    RateSpec,
    rate=st.sampled_from([0.5, 2.0, 10.0]),
    burst=st.sampled_from([1.0, 3.0]),
    when_empty=st.sampled_from(["wait", "reject"]),
)


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    kind = draw(st.sampled_from(["standard", "standard-2026", "adaptive", "grpc", "hedging", "none"]))
    return Strategy(
        kind,
        kind,
        1 if kind == "none" else draw(st.integers(1, 5)),
        draw(backoffs),
        exact_pushback=kind == "grpc",
        pushback_clamp=0.5 if kind == "standard-2026" else None,
        paced=kind == "adaptive",
        delay_first=draw(st.booleans()),
        hedging_delay=draw(times) if kind == "hedging" else None,
        non_fatal=NON_FATAL if kind == "hedging" else frozenset(),
    )


@st.composite
def pairs_of_policies(draw: st.DrawFn) -> list[Policy]:
    """Two upstreams that may share their rate bucket, or two routes of one that also share its cooldown, and the places
    for its attempts.
    """
    rate, most = draw(st.one_of(st.none(), rates)), draw(st.sampled_from([None, 1, 2]))
    other = draw(st.sampled_from("uv"))
    both = [draw(policies("u", "", rate, most)), draw(policies(other, "second", rate, most))]
    breaker = draw(
        st.sampled_from(
            [None, BreakerSpec(0.01, 1, 5.0, 0.05), BreakerSpec(0.01, 1, 5.0, 0.9), BreakerSpec(1.0, 2, 5.0, 1.0)]
        )
    )
    shares = draw(st.sampled_from([(), ((1, 0),), ((2, 0), (1, 0)), ((1, 0), (1, 1))]))
    endpoints = tuple(EndpointShare(f"e{number}:80", *share) for number, share in enumerate(shares))
    return [replace(policy, circuit_breaker=breaker, endpoints=endpoints) for policy in both]


@st.composite
def policies(draw: st.DrawFn, upstream: str, route: str, rate: RateSpec | None, most: int | None) -> Policy:
    spec = draw(buckets)
    strategy = draw(strategies())
    return Policy(
        upstream,
        route,
        replace(strategy, name=f"{strategy.kind} of {upstream} {route}"),
        BucketRef(spec) if spec is not None else None,
        rate=BucketRef(rate, "pace") if rate is not None else None,
        timeouts=Timeouts(
            total=draw(st.sampled_from([None, 0.3, 2.0, 100.0])), attempt=draw(st.sampled_from([None, 0.4]))
        ),
        classify=Classify(unsafe_methods=draw(st.sampled_from(["never", "unprocessed", "always"])), **CLASSIFY),
        pushback=PushbackPolicy(max_delay=2.0, cooldown=draw(st.sampled_from(["wait", "reject", "off"]))),
        mode=draw(st.sampled_from(["enforce", "enforce", "enforce", "observe", "off"])),
        concurrency=None if most is None else Concurrency(most, draw(st.sampled_from([0, 1, 100])), draw(times)),
    )


def answer(status: int, after: float, *headers: tuple[str, str], end: bool = True) -> Sending:
    return Sending(after, Reply(status, MappingFields(headers), end=end))


def failing(kind: FaultKind, after: float) -> Sending:
    progress = {FaultKind.CONNECT_FAILURE: Progress.NEVER_SENT, FaultKind.REFUSED_STREAM: Progress.REFUSED}
    return Sending(after, fault=Fault(kind, progress.get(kind, Progress.UNKNOWN)))


pushes = st.sampled_from(
    [
        (),
        (("retry-after", "1"),),
        (("retry-after", "100"),),
        (("retry-after-ms", "250"),),
        (("grpc-retry-pushback-ms", "40"),),
        (("grpc-retry-pushback-ms", "-1"),),
        (("x-should-retry", "true"),),
        (("x-should-retry", "false"),),
    ]
)
sendings = st.one_of(
    st.builds(lambda after: answer(200, after), times),
    st.builds(
        lambda status, after, push: answer(status, after, *push),
        st.sampled_from([404, 429, 429, 500, 503, 503, 504]),
        times,
        pushes,
    ),
    st.builds(failing, st.sampled_from(list(FaultKind)), times),
    st.builds(lambda after: answer(200, after, ("grpc-status", "14")), times),
)
scripts = st.fixed_dictionaries(
    {
        "at": times,
        "policy": st.sampled_from([0, 0, 1]),
        "method": st.sampled_from(["GET", "POST"]),
        "headers": st.sampled_from(
            [
                (),
                (("x-retry-disable", "true"),),
                (("x-retry-timeout", "400ms"),),
                (("x-stainless-retry-count", "1"),),
                (("content-type", "application/grpc"),),
                (("idempotency-key", "k"),),
            ]
        ),
        "body": st.sampled_from([0, 0, 10, 60]),
        "steps": st.lists(sendings, min_size=1, max_size=4),
        "gone": st.one_of(st.none(), st.none(), times),
        "cut": st.one_of(st.none(), st.none(), times),
    }
)


class Watchable(Factory):
    """Makes buckets whose class can be changed: that of a compiled one can't."""

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        kind: Any = type(super().bucket(key, spec, None, now))
        return before if before is not None else type("Watchable", (kind,), {"__slots__": ()})(spec)


class Ledger:
    """Who took what: takes and what came back, for each call."""

    def __init__(self) -> None:
        self.current: Watched | None = None
        self.taken: Counter[Any] = Counter()
        self.rate: Counter[Any] = Counter()

    def watch_bucket(self, bucket: Any) -> None:
        take, give_back = type(bucket).take, type(bucket).give_back
        ledger = self

        class Counted(type(bucket)):  # type: ignore[misc]
            __slots__ = ()

            def take(self, price: float, now: float) -> bool:
                granted = take(self, price, now)
                ledger.taken[ledger.current] += granted
                return bool(granted)

            def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
                ledger.taken[ledger.current] -= 1
                give_back(self, price, now)

            def charge_app_retry(self, now: float) -> float:
                before = ledger.taken[ledger.current]
                charge = super().charge_app_retry(now)
                ledger.taken[ledger.current] = before
                return float(charge)

            def app_succeeded(self, charged: float, now: float) -> None:
                before = ledger.taken[ledger.current]
                super().app_succeeded(charged, now)
                ledger.taken[ledger.current] = before

        bucket.__class__ = Counted

    def watch_rate(self, bucket: Any) -> None:
        take, give_back = type(bucket).take, type(bucket).give_back
        ledger = self

        class Counted(type(bucket)):  # type: ignore[misc]
            __slots__ = ()

            def take(self, now: float, price: float = 1.0) -> bool:
                granted = take(self, now, price)
                ledger.rate[ledger.current] += granted
                return bool(granted)

            def give_back(self, now: float, tokens: float = 1.0) -> None:
                ledger.rate[ledger.current] -= 1
                give_back(self, now, tokens)

        bucket.__class__ = Counted


class Bounded(Clock):
    """A handful of calls needs a few hundred events: more is a call that rings for ever."""

    __slots__ = ()

    def at(self, when: float, rank: int, act: Any, *args: Any) -> None:
        assert self._sequence < 5000, "a call without end"
        super().at(when, rank, act, *args)


class Watched(Driver):
    """A driver that checks the laws after every event."""

    __slots__ = (
        "actions",
        "all",
        "answered",
        "ledger",
        "lost",
        "policy",
        "probes",
        "pushed",
        "resent",
        "scope",
        "sent",
        "spec",
    )

    def __init__(
        self, clock: Clock, policy: Policy, spec: dict[str, Any], ledger: Ledger, buffers: BufferBudget
    ) -> None:
        super().__init__(clock, self._fate, timeouts=policy.timeouts, body_size=spec["body"], buffers=buffers)
        self.policy, self.spec, self.ledger = policy, spec, ledger
        self.all: list[Watched] = []
        self.sent = 0
        self.resent = 0
        self.lost = False
        self.answered = 0
        self.actions: list[Action] = []
        self.pushed = float("-inf")
        self.probes: list[tuple[Any, int]] = []

    def _fate(self, attempt: int, now: float) -> Sending:
        steps = self.spec["steps"]
        fate: Sending = steps[min(self.sent, len(steps) - 1)]
        self.sent += 1
        return fate

    def enter(self, registry: Registry, env: Env) -> None:
        request = Request(self.spec["method"], "u.test", "/x", MappingFields(self.spec["headers"]))
        self.scope = registry.scope(self.policy, request)
        self.ledger.current = self
        self.begin(Call(request, self.policy, self.scope, env, self.set_alarm))
        self.check()

    def go_away(self) -> None:
        if self.call is None:
            return
        self.ledger.current = self
        super().go_away()
        self.check()

    def be_cut(self) -> None:
        """The process ends."""
        if self.call is None or self.finished is not None:
            return
        self.ledger.current = self
        self._carry_out(self.call.cut(self.clock.now))
        assert self.finished is not None
        self.check()

    def _ring(self, at: float) -> None:
        self.ledger.current = self
        super()._ring(at)
        self.check()

    def _deadline(self) -> None:
        self.ledger.current = self
        super()._deadline()
        self.check()

    def _arrive(self, attempt: int, number: int) -> None:
        self.ledger.current = self
        flying = self._flying.get(attempt)
        if flying is not None and flying[0] == number and flying[1].reply is not None:
            delay = self._named_delay(flying[1].reply)
            if delay is not None:
                self.pushed = max(self.pushed, self.clock.now + delay)
        super()._arrive(attempt, number)
        self.check()

    def _named_delay(self, reply: Reply) -> float | None:
        if reply.status not in (429, 500, 503, 504):
            return None
        for name, unit in (("retry-after", 1.0), ("retry-after-ms", 0.001), ("grpc-retry-pushback-ms", 0.001)):
            for value in reply.fields.get_all(name):
                if float(value) >= 0:
                    return float(value) * unit
        return None

    def _do(self, action: Action) -> None:
        call = self.call
        assert call is not None
        now = self.clock.now
        assert self.finished is None, f"{action} after the end"
        if isinstance(action, Launch):
            self._check_launch(action, now)
        if isinstance(action, WakeAt):
            assert now - EPS <= action.at < float("inf")
        if isinstance(action, Deliver | Answer):
            self.answered += 1
        if isinstance(action, Finish):
            assert self.answered == (0 if self.answered == 0 and action.outcome is Outcome.CLIENT_GONE else 1)
            assert call.so_far.outcome is action.outcome
        self.actions.append(action)
        super()._do(action)

    def _check_launch(self, action: Launch, now: float) -> None:
        call = self.call
        assert call is not None
        assert not self.answered, "nothing is sent after an answer has begun"
        assert not self.lost or (call.hedged and self.policy.strategy.hedging_delay == 0)
        assert (action.endpoint is not None) == self.policy.chooses
        if action.endpoint is not None and self.policy.mode == "enforce" and self.scope.endpoints is not None:
            breaker = self.scope.endpoints.of("u.test").breakers[action.endpoint]
            held = breaker is not None and breaker.is_open and not breaker._is_out
            resent = any(isinstance(done, Launch) and done.attempt == action.attempt for done in self.actions)
            assert not held or resent, "nothing but probes goes where the breaker is open"
            flight = call.so_far.state.flights.get(action.attempt) if isinstance(call.so_far.state, Flying) else None
            choice = None if flight is None or flight.payment is None else flight.payment.choice
            if choice is not None and choice.probe:
                self.probes.append((choice.breaker, choice.probe))
        launched = [done.attempt for done in self.actions if isinstance(done, Launch)]
        if action.attempt in launched:
            self.resent += 1
            assert self.resent == 1, "one transparent retry for each call"
        else:
            assert action.attempt == len(set(launched)) + 1 <= self.policy.strategy.max_attempts
            if action.attempt > 1:
                assert self.policy.mode == "enforce"
                assert not call.so_far.hints.disabled
                if self.policy.strategy.pushback_clamp is None:
                    assert now >= self.pushed - EPS, "no retry before its pushback"
            if call.so_far.deadline is not None:
                assert now <= call.so_far.deadline + EPS

    def _lose_replay(self) -> None:
        self.lost = True
        super()._lose_replay()

    def check(self) -> None:
        """In every state something flies, or an alarm is set, or the call is done."""
        assert self.call is not None
        now = self.clock.now
        for breaker, probe in self.probes if self.finished is not None else ():
            assert not breaker._is_out or breaker._probe != probe or now > breaker.until, "a probe was forgotten"
        if self.finished is None:
            assert self._flying or self._alarm is not None
            if not self._flying and self.call.so_far.deadline is not None:
                assert self._alarm is not None and self._alarm <= self.call.so_far.deadline + EPS, (
                    "the deadline is slept past"
                )
            if self.call.so_far.deadline is not None:
                assert now <= self.call.so_far.deadline + EPS
        places = self.scope.places
        if places is not None and self.all:
            sharing = [each for each in self.all if each.call is not None and each.scope.places is places]
            assert places.in_use == sum(len(each._flying) for each in sharing) <= places.most
        bucket = self.scope.bucket
        if bucket is not None:
            level = bucket.level(now)
            assert level >= 0
            if isinstance(bucket, QuotaBucket):
                assert level <= bucket.capacity


def play(both: list[Policy], specs: list[dict[str, Any]], room: int, draw: float) -> None:
    clock, registry, ledger = Bounded(), Registry(Watchable()), Ledger()
    env = Env(Draws(draw), 0.0, WaitingRoom(room))
    buffers = BufferBudget(50, 65)
    drivers = [Watched(clock, both[spec["policy"]], spec, ledger, buffers) for spec in specs]
    scopes = [registry.scope(policy, Request("GET", "u.test", "/x")) for policy in both]
    for scope in scopes:
        if scope.bucket is not None:
            ledger.watch_bucket(scope.bucket)
    if scopes[0].rate is not None:
        ledger.watch_rate(scopes[0].rate.bucket)
    for driver in drivers:
        driver.all = drivers
        clock.at(driver.spec["at"], BEGIN, driver.enter, registry, env)
        if driver.spec["gone"] is not None:
            clock.at(driver.spec["at"] + driver.spec["gone"], UPSTREAM, driver.go_away)
        if driver.spec["cut"] is not None:
            clock.at(driver.spec["at"] + driver.spec["cut"], UPSTREAM, driver.be_cut)
    clock.run()
    for driver in drivers:
        _check_end(driver, ledger)
    assert env.waiting.waiting == 0
    assert buffers._left == 65
    for scope in scopes:
        assert scope.governor.held() == 0
        assert not scope.governor._in
        assert scope.rate is None or not scope.rate.queue
        assert scope.limiter is None or not scope.limiter.queue
        assert scope.places is None or scope.places.is_idle


def _check_end(driver: Watched, ledger: Ledger) -> None:
    assert driver.outcome is not None, "every call ends"
    assert sum(isinstance(action, Finish) for action in driver.actions) == 1, "with exactly one outcome"
    attempts = len({action.attempt for action in driver.actions if isinstance(action, Launch)})
    if driver.policy.mode == "enforce":
        if driver.scope.bucket is not None:
            assert ledger.taken[driver] == max(0, attempts - 1), "what was paid was used, or came back"
        if driver.scope.rate is not None:
            assert ledger.rate[driver] == attempts, "one token an attempt"
    else:
        assert attempts <= 1


class Draws:
    def __init__(self, draw: float) -> None:
        self.draw = draw

    def random(self) -> float:
        return self.draw


@seed(first_seed())
@settings(max_examples=examples(400), deadline=None, database=None)
@given(
    both=pairs_of_policies(),
    specs=st.lists(scripts, min_size=1, max_size=6),
    room=st.sampled_from([0, 1, 3, 2000]),
    draw=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_laws_of_a_call(both: list[Policy], specs: list[dict[str, Any]], room: int, draw: float) -> None:
    play(both, specs, room, draw)


@seed(first_seed())
@settings(max_examples=examples(150), deadline=None, database=None)
@given(
    strategy=strategies().filter(lambda strategy: strategy.hedging_delay is None),
    spec=st.builds(
        QuotaSpec,
        capacity=st.just(100_000),
        initial=st.just(50_000),
        retry_cost=st.sampled_from([0, 5]),
        timeout_cost=st.sampled_from([2, 10]),
        throttling_cost=st.sampled_from([0, 3]),
        success_refund=st.sampled_from([0, 1]),
        flat_refund=st.booleans(),
    ),
    total=st.sampled_from([None, 0.3, 2.0]),
    specs=st.lists(scripts, min_size=1, max_size=6),
)
def test_tokens_are_conserved(
    strategy: Strategy, spec: QuotaSpec, total: float | None, specs: list[dict[str, Any]]
) -> None:
    """What is missing at the end is what failed calls spent, and all but the last price of those that succeeded."""
    classify = Classify(**CLASSIFY)
    policy = Policy("u", "", strategy, BucketRef(spec), timeouts=Timeouts(total=total), classify=classify)
    clock, registry = Bounded(), Registry()
    env = Env(Draws(0.5), 0.0, WaitingRoom(4))
    drivers = [Watched(clock, policy, one, Ledger(), BufferBudget(50, 65)) for one in specs]
    for driver in drivers:
        clock.at(driver.spec["at"], BEGIN, driver.enter, registry, env)
        if driver.spec["gone"] is not None:
            clock.at(driver.spec["at"] + driver.spec["gone"], UPSTREAM, driver.go_away)
        if driver.spec["cut"] is not None:
            clock.at(driver.spec["at"] + driver.spec["cut"], UPSTREAM, driver.be_cut)
    clock.run()
    bucket = registry.scope(policy, Request("GET", "u.test", "/x")).bucket
    assert bucket is not None
    assert bucket.level(clock.now) == 50_000 - sum(spent(driver, spec) for driver in drivers)


def spent(driver: Watched, spec: QuotaSpec) -> float:
    """What a finished call has cost its quota, worked out from its records alone."""
    call = driver.call
    assert call is not None
    prices = {record.attempt: record.price for record in call.so_far.history if record.attempt > 1}
    assert len(prices) == max(0, call.so_far.attempts - 1)
    charge = spec.retry_cost if call.so_far.hints.retries_itself else 0.0
    total = sum(prices.values()) + charge
    if driver.outcome is not Outcome.SUCCESS:
        return total
    if call.so_far.hints.retries_itself and not prices:
        return total - charge
    if spec.flat_refund or not prices:
        return total - spec.success_refund
    return total - prices[max(prices)]
