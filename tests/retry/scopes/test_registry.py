"""What calls share, over a reload: every bucket's new definition is looked up when its turn comes, not all at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.facts import MappingFields, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, QuotaSpec, RateSpec
from proxy.retry.policies.policy import Credentials, Policy, Scope
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.registry import Registry
from proxy.retry.strategies.presets import ADAPTIVE, HEDGING, STANDARD
from proxy.retry.weather.caller import Caller

POLICY = Policy(
    "a", "", STANDARD, BucketRef(QuotaSpec(500)), rate=BucketRef(RateSpec(1.0, 10.0)), scope=Scope("header", "x-key")
)


class Counting(Factory):
    made = 0

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        self.made += 1
        return super().bucket(key, spec, before, now)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        self.made += 1
        return super().rate(key, spec, before, now)


def test_a_page_of_many_buckets_looks_new_definitions_up_one_at_a_time() -> None:
    factory = Counting()
    registry = Registry(factory)
    for number in range(100):
        registry.scope(POLICY, Request("GET", "a.test", "/", MappingFields([("x-key", str(number))])), 1.0)
    changed = replace(POLICY, bucket=BucketRef(QuotaSpec(100)), rate=BucketRef(RateSpec(1.0, 20.0)))
    registry.forget_policies(lambda _: [changed])
    factory.made = 0
    shown = registry.shared(2.0)
    for number in range(1, 201):
        assert next(shown).bucket.capacity == (100 if number <= 100 else 20)
        assert factory.made == number
    assert next(shown, None) is None
    assert [each.bucket.capacity for each in registry.shared(3.0)] == [100] * 100 + [20] * 100
    assert factory.made == 200


def test_what_another_process_made_by_an_older_definition_is_looked_up_again() -> None:
    registry = Registry()
    registry.forget_policies(None, {"one": BucketRef(QuotaSpec(100), "one")})
    registry.mirror("bucket", ("", "one"), QuotaSpec(500), 1.0)
    assert [each.bucket.capacity for each in registry.shared(1.0)] == [100]
    registry.mirror("bucket", ("", "one"), QuotaSpec(500), 1.0)
    assert [each.bucket.capacity for each in registry.shared(1.0)] == [100]


@pytest.mark.parametrize("before", [Scope("host"), Scope("upstream"), Scope("header", "x-key")])
@pytest.mark.parametrize("after", [Scope("host"), Scope("upstream"), Scope("header", "x-key"), None])
def test_a_bucket_that_no_call_can_use_any_more_is_not_shown(before: Scope, after: Scope | None) -> None:
    """Its level would never rise: an alert for it would not end. It comes back as it was."""
    registry = Registry()
    first, second = replace(POLICY, scope=before), replace(POLICY, scope=after or before)
    registry.forget_policies(lambda _: [first])
    state = registry.scope(first, asked(), 0.0)
    both = [state.bucket, *state.rates]
    registry.forget_policies(lambda _: [] if after is None else [second])
    assert [each.bucket for each in registry.shared(1.0)] == (both if after == before else [])
    registry.forget_policies(lambda _: [first])
    assert [each.bucket for each in registry.shared(1.0)] == both


@pytest.mark.parametrize("after", [Scope("upstream"), Scope("host"), None])
def test_a_limiter_that_no_call_can_use_any_more_is_not_shown(after: Scope | None) -> None:
    registry = Registry()
    paced = replace(POLICY, strategy=ADAPTIVE, scope=Scope("host"))
    registry.forget_policies(lambda _: [paced])
    gate = registry.scope(paced, asked(), 0.0).limiter
    assert gate is not None
    limiter = gate.bucket
    registry.forget_policies(lambda _: [] if after is None else [replace(paced, scope=after)])
    assert [each for _, each in registry.limiters()] == ([limiter] if after == paced.scope else [])
    registry.forget_policies(lambda _: [paced])
    assert [each for _, each in registry.limiters()] == [limiter]


def asked(host: str = "a.test", key: str = "1") -> Request:
    return Request("GET", host, "/", MappingFields([("x-key", key)]))


@pytest.mark.parametrize(
    ("scope", "other", "shared"),
    [
        (Scope("host"), asked(key="2"), True),
        (Scope("host"), asked("b.test"), False),
        (Scope("upstream"), asked("b.test"), True),
        (Scope("header", "x-key"), asked("b.test"), True),
        (Scope("header", "x-key"), asked(key="2"), False),
    ],
)
def test_a_state_is_that_of_the_requests_of_its_scope_alone(scope: Scope, other: Request, shared: bool) -> None:
    """A plan keeps the state for later requests of its host, unless a header field may lead them to another one."""
    registry, policy = Registry(), replace(POLICY, scope=scope)
    before = registry.scope(policy, asked())
    assert (registry.scope(policy, other) is before) == shared
    assert (before.epoch == registry.epoch) == (scope.by != "header")
    assert registry.scope(replace(policy), asked()) is not before


def test_the_state_of_the_call_before_is_forgotten_with_the_configuration() -> None:
    registry, policy = Registry(), replace(POLICY, scope=Scope())
    before = registry.scope(policy, asked())
    registry.forget_policies()
    assert before.epoch != registry.epoch
    after = registry.scope(policy, asked())
    assert after is not before
    assert after.epoch == registry.epoch


def test_the_state_of_the_call_before_is_forgotten_with_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.retry.scopes.registry.MOST_SCOPES", 2)
    registry, policy = Registry(), replace(POLICY, scope=Scope())
    before = registry.scope(policy, asked())
    for number in range(3):
        registry.scope(policy, asked(f"{number}.test"))
    assert before.epoch != registry.epoch
    assert registry.scope(policy, asked()) is not before


def test_a_scope_is_ready_while_no_gate_would_hold_an_attempt() -> None:
    rated = Registry().scope(replace(POLICY, rate=BucketRef(RateSpec(1.0, 1.0))), asked(), 0.0)
    assert rated.is_ready(0.0)
    assert rated.rates
    rated.rates[0].take(0.0)
    assert [rated.is_ready(now) for now in (0.0, 0.5, 1.0)] == [False, False, True]

    paced = Registry().scope(replace(POLICY, strategy=ADAPTIVE, rate=None), asked(), 0.0)
    assert paced.is_ready(0.0)
    assert paced.pacing is not None
    paced.pacing.learn(throttled=True, now=0.0)  # from now on half a token a second, and none yet
    assert [paced.is_ready(now) for now in (0.0, 1.5, 2.0)] == [False, False, True]


def test_the_cooldowns_in_force_are_listed() -> None:
    registry, now = Registry(), 100.0
    policies = [replace(POLICY, upstream=upstream, scope=Scope(), rate=None) for upstream in ("a", "b", "c")]
    for policy, seconds in zip(policies, (5.0, None, 7.0), strict=True):
        state = registry.scope(policy, asked(), now)
        if seconds is not None:
            caller = Caller(asked(), asked().fields, "")
            state.governor.requests_wait(caller, 503, min(seconds, 60.0), sent=now, now=now, whole=True)
    assert [(upstream, value) for upstream, value, _ in registry.cooldowns(now)] == [("a", "a.test"), ("c", "a.test")]
    assert [left for _, _, left in registry.cooldowns(now)] == pytest.approx([5, 7])
    assert [upstream for upstream, _ in registry.cooling(now)] == ["a", "c"]
    assert [upstream for upstream, _, _ in registry.cooldowns(now + 6)] == ["c"]
    assert [upstream for upstream, _ in registry.cooling(now + 6.5)] == ["c"]
    assert list(registry.cooldowns(now + 8)) == list(registry.cooling(now + 8)) == []


def test_a_credential_is_not_ready_while_its_cooldown_holds() -> None:
    policy = replace(POLICY, scope=Scope(), rate=None, credentials=Credentials("X-Key", ("one", "two")))
    keys = Registry().scope(policy, asked(), 0.0).keys
    assert keys is not None
    one, other = keys.lane(0), keys.lane(1)
    caller = Caller(asked(), one.caller(asked()), "")
    one.governor.requests_wait(caller, 429, 5.0, sent=0.0, now=0.0, whole=True)
    assert [(one.is_ready(now), other.is_ready(now)) for now in (0.0, 4.5)] == [(False, True)] * 2


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("bucket", ("a", "standard", "a.test")),
        ("bucket", ("a", "standard", "a.test 0a1b")),
        ("cooldown", ("a", "a.test")),
    ],
)
def test_what_another_process_made_puts_its_scope_in_use(sort: str, key: Key) -> None:
    registry = Registry()
    registry.mirror(sort, key, QuotaSpec(500) if sort == "bucket" else None, 7.0)
    assert registry.last_used == {("a", "a.test"): 7.0}


def test_hedging_is_listed_with_the_strategy_in_force() -> None:
    hedged = replace(POLICY, scope=Scope(), strategy=replace(HEDGING, name="p95", hedging_percentile=95.0, extra=0.5))
    registry = Registry()
    registry.forget_policies(lambda _: [POLICY, hedged])
    state = registry.scope(hedged, asked(), 0.0)
    assert list(registry.hedging()) == [("a/p95", hedged.strategy, state.hedges)]
    registry.forget_policies(lambda _: [POLICY])
    assert list(registry.hedging()) == []
