"""Which credential an attempt carries, whatever the upstream does and whoever else calls (hypothesis)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.playbook import Playbook
from support.two_runs import examples

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.upstream import FAULTS, Sending
from proxy.retry.budgets.buckets import QuotaBucket
from proxy.retry.call.actions import Launch
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, FaultKind, MappingFields, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Credentials, Policy, PushbackPolicy, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.retry.upstreams.credentials import ASIDE, CallKeys, Roster

EPS = 1e-6
CLASSIFY = Classify(
    statuses={429: Class.THROTTLING, 401: Class.TRANSIENT, 503: Class.TRANSIENT},
    faults={FaultKind.RESET: Class.TRANSIENT, FaultKind.CONNECT_FAILURE: Class.TRANSIENT},
)

ends = st.sampled_from(
    [(200, 0), (200, 0), (429, 0), (429, 1), (429, 7), (401, 0), (503, 0), ("reset", 0), ("connect_failure", 0)]
)


@dataclass
class Play:
    """One policy's calls, with what each key's lane looked like when it was used."""

    policy: Policy
    clock: Clock = field(default_factory=Clock)
    registry: Registry = field(default_factory=Registry)
    env: Env = field(default_factory=lambda: Env(FixedDraws(1.0)))
    drivers: list[Watched] = field(default_factory=list)

    def call(self, script: list[tuple[int | str, int]], method: str) -> None:
        request = Request(method, "api.test", "/")
        driver = Watched(self, script)
        self.drivers.append(driver)
        scope = self.registry.scope(self.policy, request, self.clock.now)
        driver.begin(Call(request, self.policy, scope, self.env, driver.set_alarm))

    def bucket(self) -> QuotaBucket:
        found = self.registry.scope(self.policy, Request("GET", "api.test", "/"))
        assert isinstance(found.bucket, QuotaBucket)
        return found.bucket


class Watched(Driver):
    """A call, looked at whenever it sends something."""

    def __init__(self, play: Play, script: list[tuple[int | str, int]]) -> None:
        super().__init__(play.clock, self._end)
        self.play = play
        self.script = script
        self.keys: list[int] = []
        self.bound: int | None = None
        self.throttled_on: dict[int, float] = {}
        self.wrong: list[str] = []

    def _do(self, action: object) -> None:
        if isinstance(action, Launch):
            assert action.key is not None
            if not action.fresh:  # the transparent retry is the same attempt once more, which no gate holds
                self._look(action.key, action.attempt)
        super()._do(action)  # type: ignore[arg-type]

    def _look(self, key: int, attempt: int) -> None:
        now, ring = self.clock.now, self.play.registry.scope(self.play.policy, Request("GET", "api.test", "/")).keys
        assert ring is not None
        if len(self.keys) < attempt:
            self.keys.append(key)
        if self.bound is not None:
            if key != self.bound:
                self.wrong.append(f"attempt {attempt} has key {key}, and an attempt with {self.bound} may be done")
            return
        usable = ring.usable(now)
        if key not in usable:
            self.wrong.append(f"attempt {attempt} has key {key}, which is put aside")
        free = [each for each in usable if ring.lane(each).cooling(now) <= EPS and each not in self.throttled_on]
        if ring.lane(key).cooling(now) > 2 * EPS and free:
            self.wrong.append(f"attempt {attempt} has key {key}, which cools, and {free} are free")

    def _end(self, attempt: int, now: float) -> Sending:
        end, delay = self.script[min(attempt, len(self.script)) - 1]
        if isinstance(end, str):
            fault = FAULTS[FaultKind(end)]
            if fault.progress is not Progress.NEVER_SENT:
                self.bound = self.key
            return Sending(0.01, fault=fault)
        if end == 503:
            self.bound = self.key
        if end == 429:
            assert self.key is not None
            self.throttled_on[self.key] = now
        fields = [("retry-after", str(delay))] if delay else []
        return Sending(0.01, Reply(end, MappingFields(fields), end=True))


def policy(count: int, pick: str, *, rate: bool = False, attempts: int = 4) -> Policy:
    strategy = Strategy("standard", "standard", attempts, Backoff(0.1, 1.0))
    return Policy(
        "api",
        "",
        strategy,
        BucketRef(QuotaSpec(capacity=60)),
        rate=BucketRef(RateSpec(2.0, 1.0)) if rate else None,
        classify=replace(CLASSIFY, unsafe_methods="always"),
        credentials=Credentials("x-api-key", tuple(f"value-{n}" for n in range(count)), pick),  # type: ignore[arg-type]
    )


calls = st.lists(
    st.tuples(st.sampled_from([0.0, 0.005, 0.3, 2.0, 9.0]), st.lists(ends, min_size=1, max_size=4)), max_size=12
)


@settings(max_examples=examples(300), deadline=None)
@given(count=st.integers(1, 3), pick=st.sampled_from(["next", "first"]), rate=st.booleans(), calls=calls)
def test_no_attempt_has_a_cooling_key_while_another_is_free(
    count: int, pick: str, rate: bool, calls: list[tuple[float, list[tuple[int | str, int]]]]
) -> None:
    play = Play(policy(count, pick, rate=rate))
    at = 0.0
    for wait, script in calls:
        at += wait
        play.clock.at(at, BEGIN, play.call, script, "POST")
    play.clock.run()
    assert [driver.wrong for driver in play.drivers if driver.wrong] == []
    assert all(driver.outcome is not None for driver in play.drivers)


@settings(max_examples=examples(200), deadline=None)
@given(count=st.integers(1, 3), pick=st.sampled_from(["next", "first"]), rate=st.booleans(), calls=calls)
def test_tokens_are_conserved_and_the_bucket_is_one(
    count: int, pick: str, rate: bool, calls: list[tuple[float, list[tuple[int | str, int]]]]
) -> None:
    play = Play(policy(count, pick, rate=rate))
    at = 0.0
    for wait, script in calls:
        at += wait
        play.clock.at(at, BEGIN, play.call, script, "POST")
    play.clock.run()
    now, bucket = play.clock.now, play.bucket()
    state = play.registry.scope(play.policy, Request("GET", "api.test", "/"))
    assert state.keys is not None
    assert all(state.keys.lane(key).bucket is bucket for key in range(count))
    assert len(list(play.registry.shared(now))) == 1 + (count if rate else 0) or not rate
    # What is gone from it is what the retries of failed calls paid, and the last retry's price of each that succeeded
    # came back; no first success can lift it above what it holds.
    spent = 0.0
    for driver in play.drivers:
        prices = [record.price for record in driver.call.so_far.history if record.decision != "transparent"]
        succeeded = driver.outcome is not None and driver.outcome.value == "success"
        spent += sum(prices) - (prices[-1] if succeeded and prices else 0.0)
    refunds = sum(driver.outcome is not None and driver.call.so_far.attempts == 1 for driver in play.drivers)
    assert 60 - spent - EPS <= bucket.level(now) <= min(60.0, 60 - spent + refunds + EPS)


def test_who_is_put_aside_twice_is_told_once() -> None:
    roster = Roster()
    assert roster.put_aside("a", 10.0)
    assert not roster.put_aside("a", 20.0)
    assert roster.aside_until("a") == 20.0 + ASIDE
    assert roster.put_aside("a", 20.0 + ASIDE)
    assert roster.aside_until("b") < 0


def test_the_record_says_which_key_and_why() -> None:
    play = Play(policy(2, "next"))
    play.call([(429, 5), (401, 0), (200, 0)], "GET")
    play.clock.run()
    records = play.drivers[0].call.so_far.history
    assert [(each.key, each.key_why, each.aside) for each in records] == [
        (0, "it is its turn", False),
        (1, "key 1 was throttled", True),
        (0, "all keys are held, and it is free soonest", False),
    ]


def test_an_order_of_values_that_changes_takes_their_state_along() -> None:
    first = policy(2, "first")
    turned = replace(first, credentials=Credentials("x-api-key", ("value-1", "value-0"), "first"))
    play = Play(first)
    play.call([(429, 5), (200, 0)], "GET")
    cooling: list[float] = []

    def turn_round() -> None:
        play.registry.forget_policies()
        play.policy = turned
        play.call([(200, 0)], "GET")
        keys = play.registry.scope(turned, Request("GET", "api.test", "/")).keys
        assert keys is not None
        cooling.extend(keys.lane(key).cooling(play.clock.now) for key in range(2))

    play.clock.at(1.0, BEGIN, turn_round)
    play.clock.run()
    assert play.drivers[1].keys == [0]
    assert cooling[0] == 0
    assert cooling[1] > 3  # the one that cools is the second now


def test_a_key_that_a_calls_own_answer_forbids_is_not_taken_though_no_cooldown_holds_it() -> None:
    play = Play(replace(policy(3, "first"), pushback=PushbackPolicy(cooldown="off")))
    play.call([(429, 7), (401, 0), (200, 0)], "GET")
    play.clock.run()
    assert play.drivers[0].keys == [0, 1, 2]


def test_what_the_gates_of_a_lost_credential_granted_is_given_back_and_those_of_the_next_one_are_asked() -> None:
    shared = policy(2, "first", rate=True)  # each has a rate of its own, whose burst is one
    book, other = (Playbook(shared, registry=registry) for registry in [Registry()] * 2)
    next_attempt, ring = book.call.so_far.next_attempt, book.scope.keys
    assert ring is not None
    next_attempt.carry(CallKeys(ring, 0.0))
    assert next_attempt.gates().ask(next_attempt.payable(), 0.0, None, first=True) == (0.0, None, "")
    ring.put_aside(0, 0.0)
    next_attempt.replace_lost_key(0.0)
    assert next_attempt.gates().ask(next_attempt.payable(), 0.0, None, first=True) == (0.0, None, "")
    waiter, first, second = other.call.so_far.next_attempt.gates(), ring.lane(0).rate, ring.lane(1).rate
    assert first is not None and second is not None
    assert first.ask(waiter, 0.0) == 0.0
    assert second.ask(waiter, 0.0) > 0.0
