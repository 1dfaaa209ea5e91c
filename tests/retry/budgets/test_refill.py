"""A quota that time refills: tokens are conserved but for what time brings, and a quiet hour fills a drained one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.budgets.buckets import QuotaBucket, make_bucket
from proxy.retry.policies.bucket_specs import QuotaSpec

steps = st.sampled_from([0.0, 0.001, 0.25, 1.0, 7.0, 3600.0])
acts = st.sampled_from(["take", "give_back", "first", "retried", "app", "look"])


@given(
    st.sampled_from([0.0, 0.5, 10.0, 1000.0]),
    st.sampled_from([0.0, 7.0, 100.0]),
    st.lists(st.tuples(steps, acts, st.sampled_from([0.0, 1.0, 5.0, 14.0])), max_size=80),
)
def test_tokens_are_conserved_but_for_what_time_brings(
    refill: float, initial: float, script: list[tuple[float, str, float]]
) -> None:
    """A model that is brought forward at every moment of a second holds what the bucket holds."""
    bucket = make_bucket(QuotaSpec(100, initial=initial, refill=refill), now=0.0)
    level, now = initial, 0.0
    for step, act, price in script:
        now += step
        level = min(100.0, level + step * refill)
        match act:
            case "take":
                fits = price <= bucket.level(now)
                assert bucket.affords(price, now) == fits
                assert bucket.take(price, now) == fits
                assert fits == (price <= level) or price == pytest.approx(level, abs=1e-6)
                level -= price if fits else 0.0
            case "give_back":
                bucket.give_back(price, now)
                level = min(100.0, level + price)
            case "first":
                bucket.succeeded(None, now)
                level = min(100.0, level + 1)
            case "retried":
                bucket.succeeded(price, now)
                level = min(100.0, level + price)
            case "app":
                charge = bucket.charge_app_retry(now)
                assert charge == pytest.approx(min(level, 5.0), abs=1e-6)
                level -= charge
        assert bucket.level(now) == pytest.approx(level, abs=1e-6)
        assert 0.0 <= bucket.level(now) <= 100.0


def test_a_quiet_hour_fills_a_drained_bucket() -> None:
    bucket = make_bucket(QuotaSpec(500, refill=500 / 3600), now=0.0)
    while bucket.take(5, 10.0):
        pass
    assert bucket.level(10.0) == 0
    assert not bucket.affords(5, 45.0)
    assert bucket.affords(5, 46.1)
    assert bucket.level(10.0 + 1800) == pytest.approx(250)
    assert bucket.level(10.0 + 3600) == pytest.approx(500)
    assert bucket.level(1e9) == 500


def test_time_that_runs_backwards_brings_nothing_and_stops_nothing() -> None:
    bucket = make_bucket(QuotaSpec(10, initial=0, refill=1.0), now=100.0)
    assert bucket.level(103.0) == 3
    assert bucket.level(50.0) == 3
    assert bucket.level(104.0) == 4


def test_without_refill_time_brings_nothing() -> None:
    bucket = make_bucket(QuotaSpec(10, initial=0), now=0.0)
    assert bucket.level(1e9) == 0


def test_what_has_no_bounds_stays_so() -> None:
    bucket = make_bucket(QuotaSpec(math.inf, refill=1.0), now=0.0)
    assert bucket.take(5, 1.0)
    assert bucket.level(2.0) == math.inf


def test_a_changed_definition_takes_over_the_share_of_now() -> None:
    before = make_bucket(QuotaSpec(100, initial=0, refill=1.0), now=0.0)
    after = make_bucket(QuotaSpec(1000, refill=2.0), instead_of=before, now=50.0)
    assert after.level(50.0) == 500
    assert after.level(60.0) == 520
    assert isinstance(after, QuotaBucket)
