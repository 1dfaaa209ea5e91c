"""Scopes that no call has come to for an hour go, and with them nothing that a new one would not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.retry.budgets.buckets import QuotaBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.facts import MappingFields, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.policy import Policy, Scope
from proxy.retry.scopes.idle_scopes import AT_ONCE, IDLE, IdleScopes
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.strategies.presets import STANDARD
from proxy.retry.weather.caller import Caller

POLICY = Policy("a", "", STANDARD, BucketRef(QuotaSpec(500)), scope=Scope("header", "x-key"))
RATED = replace(POLICY, rate=BucketRef(RateSpec(1.0, 10.0)))


def asked(key: object, host: str = "a.test") -> Request:
    return Request("GET", host, "/", MappingFields([("x-key", str(key))]))


def rounds(idle: IdleScopes, now: float, count: int = 2) -> None:
    """The first may have begun before now, and its marks count as of now."""
    for _ in range(count):
        while idle.sweep(now):
            pass


def sizes(registry: Registry) -> set[int]:
    """The numbers of scopes in the tables that have any."""
    tables = registry._buckets, registry._rates, registry._places, registry.last_used, registry._limiters
    states = sum(len(states) for states in registry._by_policy.values())
    return {states, *(len(table) for table in tables)}  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [POLICY, RATED, replace(POLICY, scope=Scope("host"))])
def test_what_is_idle_goes_after_an_hour_and_not_before(policy: Policy) -> None:
    registry = Registry()
    idle = IdleScopes(registry)
    for key in range(300):
        registry.scope(policy, asked(key, f"{key}.test"), 1.0)
    rounds(idle, 1.0)
    rounds(idle, IDLE)
    assert max(sizes(registry)) == 300
    rounds(idle, IDLE + 2.0)
    assert sizes(registry) == {0}


def test_a_scope_that_calls_come_to_stays() -> None:
    registry = Registry()
    idle, now = IdleScopes(registry), 0.0
    first = registry.scope(POLICY, asked(1), now)
    for _ in range(20):
        now += IDLE / 2
        assert registry.scope(POLICY, asked(1), now) is first
        rounds(idle, now)
    by_host = replace(POLICY, scope=Scope("host"))
    last = registry.scope(by_host, asked(1), now)
    for _ in range(20):
        now += IDLE / 2
        assert registry.scope(by_host, asked(1), now) is last
        rounds(idle, now)


def test_tokens_are_conserved() -> None:
    """What is not full stays, for ever if it is empty and only successes refill it, else until it is full again."""
    registry = Registry()
    idle = IdleScopes(registry)
    refilled = replace(POLICY, bucket=BucketRef(QuotaSpec(500, refill=0.1)), upstream="b")
    for policy in (POLICY, refilled):
        bucket = registry.scope(policy, asked(1), 0.0).bucket
        assert bucket is not None
        assert bucket.take(500, 0.0)
    del bucket
    rounds(idle, 0.0)
    rounds(idle, 4000.0)
    (left,) = (key for key in registry._buckets if key[0] == "b")
    rounds(idle, 6000.0)
    assert left not in registry._buckets
    (kept,) = registry._buckets.values()
    assert isinstance(kept, QuotaBucket)
    again = registry.scope(POLICY, asked(1), 9e6).bucket
    assert again is kept
    assert again.level(9e6) == 0
    assert not idle.sweep(9e6 + 2 * IDLE) or kept in registry._buckets.values()


def test_a_call_that_holds_the_state_keeps_it() -> None:
    registry = Registry()
    idle = IdleScopes(registry)
    held: ScopeState | None = registry.scope(POLICY, asked(1), 0.0)
    rounds(idle, 0.0)
    rounds(idle, 3 * IDLE)
    assert held is registry.scope(POLICY, asked(1), 3 * IDLE)
    held = None
    rounds(idle, 3 * IDLE)
    rounds(idle, 5 * IDLE)
    assert sizes(registry) == {0}


def test_cooldowns_in_force_rates_in_debt_and_seen_keys_stay() -> None:
    registry = Registry()
    idle = IdleScopes(registry)
    state = registry.scope(RATED, asked(1), 0.0)
    caller = Caller(asked(1), MappingFields([]), "")
    state.governor.requests_wait(caller, 503, 3 * IDLE, sent=0.0, now=0.0, whole=True)
    state.seen.again("x", IDLE)
    del state
    rounds(idle, 0.0)
    rounds(idle, IDLE + 1.0)
    assert len(registry._places) == 1
    assert registry.scope(RATED, asked(1), IDLE + 2.0).governor.holds(IDLE + 2.0)
    rounds(idle, IDLE + 2.0)
    rounds(idle, 4 * IDLE)
    assert sizes(registry) == {0}


def test_places_in_use_stay() -> None:
    registry = Registry()
    idle = IdleScopes(registry)
    places = registry._under_way["a", "", "k"] = Places(1)
    places.in_use = 1
    rounds(idle, 2 * IDLE)
    assert registry._under_way
    places.in_use = 0
    rounds(idle, 2 * IDLE)
    assert not registry._under_way


def test_a_sweep_looks_at_a_few() -> None:
    registry = Registry()
    idle = IdleScopes(registry)
    for key in range(10 * AT_ONCE):
        registry.scope(POLICY, asked(key), 0.0)
    idle.sweep(0.0)
    idle.sweep(0.0)
    marked = sum(state.marked for states in registry._by_policy.values() for state in states.values())
    assert 8 * AT_ONCE <= marked < 10 * AT_ONCE


def test_a_process_that_looks_forgets_what_no_other_has_reported_for_two_hours() -> None:
    registry = Registry()
    idle = IdleScopes(registry, only_looks=True)
    for key in ("x", "y"):
        registry.mirror("bucket", ("a", "standard", key), QuotaSpec(500), 0.0)
        registry.mirror("governor", ("a", key), None, 0.0)
    registry.mirror("governor", ("a", "y"), None, IDLE)
    rounds(idle, 2 * IDLE)
    assert {key[2] for key in registry._buckets} == {"y"}
    rounds(idle, 3 * IDLE)
    assert not registry._buckets
