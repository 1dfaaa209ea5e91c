from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.retry.budgets.buckets import Bucket, BudgetBucket, QuotaBucket, RateBucket, ThrottleBucket, make_bucket
from proxy.retry.budgets.sliding_window import EXACT, SlidingCount
from proxy.retry.call.payment import Payment
from proxy.retry.facts import Class
from proxy.retry.instants import EPSILON
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.queues.waiting_room import WaitingRoom

# -- quota ----------


def test_quota_prices_by_class() -> None:
    bucket = QuotaBucket(QuotaSpec(500, retry_cost=5, timeout_cost=10, throttling_cost=3))
    prices = {cls: bucket.price(cls) for cls in (Class.TRANSIENT, Class.TIMEOUT, Class.THROTTLING)}
    assert prices == {Class.TRANSIENT: 5, Class.TIMEOUT: 10, Class.THROTTLING: 3}


def test_quota_takes_all_or_nothing() -> None:
    bucket = QuotaBucket(QuotaSpec(12, retry_cost=5))
    assert [bucket.take(5, 0.0) for _ in range(3)] == [True, True, False]
    assert bucket.level(0.0) == 2
    assert not bucket.affords(3, 0.0)
    assert bucket.affords(2, 0.0)


def test_quota_refunds() -> None:
    bucket = QuotaBucket(QuotaSpec(100, success_refund=1, initial=50))
    bucket.succeeded(None, 0.0)
    assert bucket.level(0.0) == 51
    bucket.take(5, 0.0)
    bucket.take(10, 0.0)
    bucket.succeeded(10, 0.0)  # what the last retry paid, not the sum
    assert bucket.level(0.0) == 46
    bucket.succeeded(0.0, 0.0)  # a last retry that was free brings nothing back
    assert bucket.level(0.0) == 46
    bucket.give_back(5, 0.0)
    assert bucket.level(0.0) == 51
    bucket.give_back(1000, 0.0)
    assert bucket.level(0.0) == 100


def test_flat_refund() -> None:
    bucket = QuotaBucket(QuotaSpec(500, success_refund=1, flat_refund=True, initial=100))
    bucket.succeeded(None, 0.0)
    bucket.succeeded(10, 0.0)
    assert bucket.level(0.0) == 102


def test_quota_charges_an_app_what_is_there() -> None:
    bucket = QuotaBucket(QuotaSpec(7, retry_cost=5))
    assert [bucket.charge_app_retry(0.0) for _ in range(3)] == [5, 2, 0]
    assert bucket.level(0.0) == 0


@pytest.mark.parametrize("capacity", [0, math.inf])
@pytest.mark.parametrize("cost", [0, 1, math.inf])
def test_quota_extremes(capacity: float, cost: float) -> None:
    bucket = QuotaBucket(QuotaSpec(capacity, cost, cost, cost))
    assert bucket.take(cost, 0.0) is (cost <= capacity)
    bucket.succeeded(cost, 0.0)
    bucket.give_back(0, 0.0)
    assert bucket.level(0.0) == capacity
    assert bucket.charge_app_retry(0.0) == min(capacity, cost)


# -- throttle ----------


def test_throttle_allows_above_half_after_the_decrement() -> None:
    bucket = ThrottleBucket(ThrottleSpec(4, 0.5))
    bucket.failed(0.0)
    assert bucket.affords(0.0, 0.0)
    bucket.failed(0.0)
    assert not bucket.take(0.0, 0.0)
    bucket.succeeded(None, 0.0)
    assert bucket.take(0.0, 0.0)
    assert bucket.level(0.0) == 2.5
    for _ in range(9):
        bucket.failed(0.0)
    assert bucket.level(0.0) == 0
    assert bucket.price(Class.TIMEOUT) == 0
    assert bucket.charge_app_retry(0.0) == 0
    for _ in range(9):
        bucket.succeeded(3.0, 0.0)
    assert bucket.level(0.0) == 4


@pytest.mark.parametrize(("ratio", "kept"), [(0.1, 0.1), (0.5466, 0.546), (0.57, 0.57), (0.0009, 0.0), (1.005, 1.005)])
def test_throttle_counts_in_thousandths(ratio: float, kept: float) -> None:
    bucket = ThrottleBucket(ThrottleSpec(10, ratio, initial=0))
    bucket.succeeded(None, 0.0)
    assert bucket.level(0.0) == kept


def test_throttle_extremes() -> None:
    assert not ThrottleBucket(ThrottleSpec(0, 0.1)).affords(0.0, 0.0)
    endless = ThrottleBucket(ThrottleSpec(math.inf, 0.1))
    endless.failed(0.0)
    assert endless.affords(0.0, 0.0)


# -- budget ----------


def grants(bucket: Bucket, now: float, most: int = 1000) -> int:
    return next((n for n in range(most) if not bucket.take(1.0, now)), most)


def test_budget_grants_a_share_of_the_windows_calls() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=20, min_per_second=0, window=10))
    for n in range(20):
        bucket.begin(n * 0.1)
    assert bucket.level(2.0) == 4
    assert grants(bucket, 2.0) == 4
    assert bucket.level(2.0) == 0
    bucket.begin(2.0)
    assert bucket.level(2.0) == 1  # 4 < 0.2 * 21
    assert bucket.level(10.0) == 0  # the call begun at 0 has left, the retries have not
    assert bucket.level(12.0) == 0  # and now all have


def test_budget_grants_a_minimum_each_second() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=0, min_per_second=3, window=10))
    bucket.begin(0.0)
    assert bucket.level(0.0) == 3
    assert grants(bucket, 0.5) == 3
    assert grants(bucket, 1.4999) == 0
    assert grants(bucket, 1.5) == 3


def test_budget_counts_the_call_itself() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=100, min_per_second=0, window=10))
    assert bucket.level(0.0) == 0
    bucket.begin(0.0)
    assert grants(bucket, 0.0) == 1


def test_budget_gives_back_the_retry_it_granted() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=0, min_per_second=2, window=10))
    assert bucket.take(1.0, 0.0)
    assert bucket.take(1.0, 0.9)
    assert not bucket.take(1.0, 0.95)
    bucket.give_back(1.0, 0.95, taken_at=0.0)
    assert bucket.level(0.95) == 1
    assert bucket.level(1.5) == 1  # the one granted at 0.9 still counts
    bucket.give_back(1.0, 1.5)
    assert bucket.level(1.5) == 2


def test_a_retry_that_is_given_back_no_longer_counts_against_the_share() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=20, min_per_second=0, window=10))
    for _ in range(10):
        bucket.begin(0.0)
    assert bucket.take(1.0, 0.0)
    assert bucket.take(1.0, 0.5)
    assert not bucket.affords(1.0, 0.5)
    bucket.give_back(1.0, 0.6, taken_at=0.0)
    assert bucket.level(0.6) == 1
    assert grants(bucket, 0.6) == 1


def test_budget_shares_are_exact_decimals() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=7, min_per_second=0, window=10))
    for _ in range(100):
        bucket.begin(0.0)
    assert bucket.level(0.0) == 7  # 0.07 * 100 is 7.000000000000001
    assert grants(bucket, 0.0) == 7


def test_budget_charges_an_app_even_beyond_what_it_grants() -> None:
    bucket = BudgetBucket(BudgetSpec(percent=0, min_per_second=1, window=10))
    assert [bucket.charge_app_retry(0.0) for _ in range(3)] == [1, 1, 1]
    assert bucket.level(0.0) == 0
    assert not bucket.take(1.0, 0.5)


def test_budget_extremes() -> None:
    assert BudgetBucket(BudgetSpec(min_per_second=math.inf)).level(0.0) == math.inf
    endless = BudgetBucket(BudgetSpec(percent=math.inf, min_per_second=0))
    endless.begin(0.0)
    assert endless.take(1.0, 0.0)
    nothing = BudgetBucket(BudgetSpec(0, 0, 0))
    nothing.begin(0.0)
    assert not nothing.take(1.0, 0.0)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60),
    st.floats(0, 200, allow_subnormal=False),
    st.integers(0, 5),
)
def test_budget_agrees_with_counting_by_hand(steps: list[tuple[float, bool]], percent: float, minimum: int) -> None:
    bucket = BudgetBucket(BudgetSpec(percent, minimum, 5.0))
    calls: list[float] = []
    retries: list[float] = []
    now = 0.0
    for pause, retry in steps:
        now += pause
        if not retry:
            bucket.begin(now)
            calls.append(now)
            continue
        in_window = sum(at + 5.0 > now for at in retries)
        share = percent * sum(at + 5.0 > now for at in calls)
        granted = 100 * in_window < share or sum(at + 1.0 > now for at in retries) < minimum
        assert bucket.affords(1.0, now) is granted is (bucket.level(now) > 0)
        assert bucket.take(1.0, now) is granted
        retries += [now] * granted


def test_windows_are_bounded_and_off_by_no_more_than_a_thousandth() -> None:
    early, late = SlidingCount(10.0), SlidingCount(10.0, late=True)
    times = [n / 5000 for n in range(100_000)]
    for at in times:
        early.add(at)
        late.add(at)
    assert len(early._slices) <= EXACT + 1001
    now = times[-1]
    exact = sum(at + 10.0 > now for at in times)
    assert exact - 51 <= early.count(now) <= exact <= late.count(now) <= exact + 51


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=100))
def test_windows_agree_with_a_list(steps: list[tuple[float, bool]]) -> None:
    window, kept, now = SlidingCount(2.0), list[float](), 0.0
    for pause, adds in steps:
        now += pause
        if adds or not kept:
            window.add(now)
            kept.append(now)
        else:
            window.count(now)
            window.remove(kept[0])
            kept.pop(0)
        assert window.count(now) == sum(at + 2.0 > now + EPSILON for at in kept)


# -- rate ----------


def test_rate_is_a_classic_token_bucket() -> None:
    bucket = RateBucket(RateSpec(10, 2))
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.wait(0.0) == pytest.approx(0.1)
    assert bucket.wait(0.0, 3) == pytest.approx(0.3)
    assert bucket.take(0.1)
    assert not bucket.take(0.15)
    bucket.give_back(0.15)
    assert bucket.take(0.15)
    assert bucket.level(100.0) == 2


@pytest.mark.parametrize("after", [RateSpec(10, 4), RateSpec(20, 2), RateSpec(5, 1, when_empty="reject")])
def test_calls_from_before_a_reload_pay_the_new_rate_too(after: RateSpec) -> None:
    """They wait at the old bucket still: both together must not give twice what the upstream takes."""
    old = RateBucket(RateSpec(10, 2))
    assert old.take(0.0) and old.take(0.0)
    new = RateBucket(after, instead_of=old)
    newer = RateBucket(after, instead_of=new)
    given = 0
    for now in (step / 100 for step in range(1001)):
        given += old.take(now) + newer.take(now)
    assert given == pytest.approx(max(10, after.rate) * 10, abs=after.burst + 1)
    level = newer.level(100.0)
    assert old.take(100.0) and newer.level(100.0) == level - 1
    old.give_back(100.0)
    assert newer.level(100.0) == level


def test_tokens_of_a_language_model_are_not_taken_from_a_new_rate_of_attempts() -> None:
    """One call from before the reload would stop all others for an hour."""
    old = RateBucket(RateSpec(1000, 10_000, unit="tokens"))
    new = RateBucket(RateSpec(1, 5), instead_of=old)
    assert old.take(0.0, 4000.0)
    old.give_back(0.0, -200.0)
    assert new.level(0.0) == 5


def test_rate_starts_at_initial_when_it_is_made() -> None:
    bucket = RateBucket(RateSpec(10, 5, initial=0), started=1000.0)
    assert bucket.level(1000.0) == 0
    assert bucket.level(1000.2) == pytest.approx(2)


def test_rate_extremes() -> None:
    assert RateBucket(RateSpec(0, 0)).wait(5.0) == math.inf
    assert RateBucket(RateSpec(10, 0.5)).wait(5.0) == math.inf
    assert RateBucket(RateSpec(math.inf, 1)).take(0.0)
    endless = RateBucket(RateSpec(1, math.inf))
    assert all(endless.take(0.0) for _ in range(10))
    assert RateBucket(RateSpec(10, 1)).level(-5.0) == 1


@given(st.floats(0.01, 1e5), st.integers(1, 20), st.lists(st.floats(0, 3), max_size=60), st.floats(0, 1e7))
def test_rate_never_gives_more_than_came_and_a_slept_wait_is_enough(
    rate: float, burst: int, pauses: list[float], started: float
) -> None:
    bucket, now = RateBucket(RateSpec(rate, burst), started=started), started
    for given_out, pause in enumerate(pauses, start=1):
        now += pause
        if not bucket.take(now):
            now += bucket.wait(now)
            assert bucket.take(now)
        assert given_out <= burst + (now - started) * rate + 0.01
        assert 0 <= bucket.level(now) <= burst


# -- all of them ----------


def test_a_changed_definition_takes_over_the_share() -> None:
    old = QuotaBucket(QuotaSpec(500))
    old.take(250, 0.0)
    assert make_bucket(QuotaSpec(100), instead_of=old).level(0.0) == 50
    assert make_bucket(ThrottleSpec(10), instead_of=old).level(0.0) == 5
    assert make_bucket(QuotaSpec(100), instead_of=QuotaBucket(QuotaSpec(0))).level(0.0) == 100
    assert make_bucket(QuotaSpec(100, initial=10)).level(0.0) == 10
    rate = RateBucket(RateSpec(10, 10))
    rate.take(0.0)
    assert RateBucket(RateSpec(20, 20), instead_of=rate).level(0.0) == 18
    budget = make_bucket(BudgetSpec(min_per_second=2))
    budget.take(1.0, 0.0)
    changed = make_bucket(BudgetSpec(percent=0, min_per_second=3), instead_of=budget)
    assert changed.level(0.0) == 2
    budget.give_back(1.0, 0.0)  # calls in flight still hold the old one
    assert changed.level(0.0) == 2


@pytest.mark.parametrize("capacity", [100, math.inf])
def test_an_empty_bucket_stays_empty_under_a_changed_definition(capacity: float) -> None:
    quota = make_bucket(QuotaSpec(500, initial=0), now=0.0)
    changed = make_bucket(QuotaSpec(capacity, refill=1.0), instead_of=quota, now=0.0)
    assert [changed.level(now) for now in (0.0, 1.0)] == [0, 1]
    rate = RateBucket(RateSpec(10, 10, initial=0))
    rerated = RateBucket(RateSpec(1, capacity), instead_of=rate)
    assert [rerated.level(now) for now in (0.0, 1.0)] == [0, 1]


def test_a_rate_is_no_price_list() -> None:
    with pytest.raises(TypeError):
        make_bucket(RateSpec(1, 1))


moves = st.lists(
    st.tuples(
        st.sampled_from(["begin", "take", "give_back", "failed", "first", "retried", "app"]),
        st.sampled_from([Class.TRANSIENT, Class.TIMEOUT, Class.THROTTLING]),
        st.floats(0, 0.5),
    ),
    max_size=80,
)
specs = st.one_of(
    st.builds(
        QuotaSpec,
        *(st.integers(0, 30) for _ in range(5)),
        st.booleans(),
        st.none() | st.integers(0, 30),
    ),
    st.builds(ThrottleSpec, st.integers(0, 20), st.floats(0, 3), st.none() | st.integers(0, 20)),
)


@settings(max_examples=examples(200))
@given(specs, moves)
def test_tokens_are_conserved_and_within_bounds(spec: Any, script: list[tuple[str, Class, float]]) -> None:
    bucket, now, paid = make_bucket(spec), 0.0, list[float]()
    for move, cls, pause in script:
        now += pause
        before = bucket.level(now)
        price = bucket.price(cls)
        match move:
            case "begin":
                bucket.begin(now)
            case "take":
                affordable = bucket.affords(price, now)
                assert bucket.take(price, now) is affordable
                assert bucket.level(now) == pytest.approx(before - price * affordable)
                paid += [price] * affordable
            case "give_back" if paid:
                bucket.give_back(paid[-1], now)
                expected = min(bucket.capacity, before + paid.pop()) if isinstance(bucket, QuotaBucket) else before
                assert bucket.level(now) == pytest.approx(expected)
            case "failed":
                bucket.failed(now)
                assert bucket.level(now) <= before
            case "first":
                bucket.succeeded(None, now)
                assert bucket.level(now) >= before
            case "retried" if paid:
                bucket.succeeded(paid.pop(), now)
                assert bucket.level(now) >= before
            case "app":
                charge = bucket.charge_app_retry(now)
                assert bucket.level(now) == pytest.approx(before - charge)
        assert 0 <= bucket.level(now) <= bucket.capacity


@settings(max_examples=examples(200))
@given(st.one_of(specs, st.integers(1, 3).map(QuotaSpec(20).refilled_in_quiet)), moves)
def test_a_bucket_that_rests_misses_nothing_if_no_call_is_reported_to_it(
    spec: Any, script: list[tuple[str, Class, float]]
) -> None:
    every, spared, now, paid = make_bucket(spec), make_bucket(spec), 0.0, list[float]()
    for move, cls, pause in script:
        now += pause * 10
        price = every.price(cls)
        for bucket in (every, spared):
            match move:
                case "begin" if bucket is every or not bucket.rests:
                    bucket.begin(now)
                case "first" if bucket is every or not bucket.rests:
                    bucket.succeeded(None, now)
                case "take" if bucket.take(price, now) and bucket is spared:
                    paid.append(price)
                case "failed":
                    bucket.failed(now)
                case "retried" if paid:
                    bucket.succeeded(paid[-1], now)
                case "app":
                    bucket.charge_app_retry(now)
        assert every.level(now) == spared.level(now)


def test_a_full_quota_rests_until_a_retry_is_paid() -> None:
    bucket = QuotaBucket(QuotaSpec(10))
    bucket.succeeded(None, 0.0)
    assert bucket.rests
    assert bucket.take(5, 1.0)
    assert not bucket.rests
    bucket.succeeded(5, 2.0)
    assert not bucket.rests
    bucket.succeeded(None, 3.0)
    assert bucket.rests
    bucket.restore((4.0, 4.0, 0.0, 0.0))
    assert not bucket.rests


def test_a_budget_without_figures_is_the_documented_one() -> None:
    spec = BudgetSpec()
    assert (spec.percent, spec.min_per_second, spec.window) == (20, 10, 10)  # contract, section 3, "Buckets"


def test_a_price_that_another_attempt_takes_over_is_given_back_as_of_when_it_was_paid() -> None:
    budget = BudgetBucket(BudgetSpec(percent=0, min_per_second=2))
    first, other, again = (Payment(budget, WaitingRoom(), "u") for _ in range(3))
    assert first.take(1, 1000.0)
    assert other.take(1, 1000.9)
    assert not budget.affords(1, 1000.9)
    again.take_over(first)
    first.give_back(1000.9)
    assert not budget.affords(1, 1000.9), "it has nothing to give back any more"
    again.give_back(1000.95)
    assert budget._last_second.count(1000.95) == 1
    assert budget._last_second.count(1001.5) == 1, "what the other has paid still counts, and the first's went"
    other.give_back(1001.5)
    assert budget._last_second.count(1001.5) == 0
