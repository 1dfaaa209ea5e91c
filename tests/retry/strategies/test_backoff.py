from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry import ExponentialRetryBackoffStrategy, RetryBackoffStrategy
from proxy.retry.policies.policy import Backoff, Jitter
from proxy.retry.strategies.backoff import WaitSeries, delay, needs_draw
from proxy.retry.strategies.presets import GRPC

JITTERS: list[Jitter] = ["none", "full", "equal", "proportional", "decorrelated"]
seconds = st.floats(0, 1e6, allow_nan=False)
draws = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("jitter", "r", "expected"),
    [
        ("none", 0.9, [1, 3, 5, 5]),
        ("full", 0.5, [0.5, 1.5, 2.5, 2.5]),
        ("full", 0.0, [0, 0, 0, 0]),
        ("equal", 0.5, [0.75, 2.25, 3.75, 3.75]),
        ("proportional", 0.0, [0.8, 2.4, 4.0, 4.0]),
        ("proportional", 1.0, [1.2, 3.6, 6.0, 6.0]),  # gRPC's may pass max
    ],
)
def test_formulas(jitter: Jitter, r: float, expected: list[float]) -> None:
    spec = Backoff(1.0, 5.0, 3.0, jitter)
    assert [delay(spec, n, r) for n in (1, 2, 3, 4)] == pytest.approx(expected)


def test_decorrelated_remembers_the_backoff_before_in_the_caller() -> None:
    spec = Backoff(1.0, 20.0, jitter="decorrelated", throttling_base=2.0)
    assert delay(spec, 1, 0.5) == 2.0  # 1 + 0.5 * (3 * 1 - 1)
    assert delay(spec, 2, 0.5, previous=2.0) == 3.5
    assert delay(spec, 1, 0.5, throttling=True) == 4.0  # before the first retry throttling_base is previous, too
    assert delay(spec, 9, 1.0, previous=20.0) == 20.0


def test_throttling_base_takes_the_place_of_base_after_throttling_alone() -> None:
    spec = Backoff(0.05, 20.0, jitter="none", throttling_base=1.0)
    assert [delay(spec, n, 0.0) for n in (1, 2)] == [0.05, 0.1]
    assert [delay(spec, n, 0.0, throttling=True) for n in (1, 2)] == [1.0, 2.0]
    assert delay(Backoff(0.05, 20.0, jitter="none"), 1, 0.0, throttling=True) == 0.05


@pytest.mark.parametrize("n", [1025, 10**6, 10**30, 10**400])
def test_no_n_overflows(n: int) -> None:
    assert delay(Backoff(0.1, 20.0, jitter="none"), n, 0.0) == 20.0
    assert delay(Backoff(0.1, 20.0, 1.0, jitter="none"), n, 0.0) == 0.1
    assert delay(Backoff(0.1, 20.0, 0.5, jitter="none"), n, 0.0) == pytest.approx(0.0)
    assert delay(Backoff(0.0, 20.0, jitter="none"), n, 0.0) == 0.0
    assert delay(Backoff(0.1, math.inf), n, 0.0) == 0.0


def test_zeros_and_a_max_below_base_are_the_formula() -> None:
    assert delay(Backoff(5.0, 1.0, jitter="none"), 1, 0.0) == 1.0
    assert delay(Backoff(5.0, 0.0, jitter="decorrelated"), 1, 0.5) == 0.0
    assert delay(Backoff(1.0, 5.0, 0.0, "none"), 1, 0.0) == 1.0
    assert delay(Backoff(1.0, 5.0, 0.0, "none"), 2, 0.0) == 0.0
    assert delay(Backoff(1.0, 5.0), 0, 0.5) == 0.0


@given(seconds, seconds, st.floats(0, 100), st.sampled_from(JITTERS), st.integers(1, 10**9), draws, seconds)
def test_every_wait_is_within_its_cap(
    base: float, limit: float, multiplier: float, jitter: Jitter, n: int, r: float, previous: float
) -> None:
    wait = delay(Backoff(base, limit, multiplier, jitter), n, r, previous=max(previous, base))
    assert 0 <= wait <= limit * (1.2 if jitter == "proportional" else 1)


@given(seconds, st.sampled_from(JITTERS), draws, st.lists(st.booleans(), min_size=1, max_size=20))
def test_a_series_stays_within_its_cap(base: float, jitter: Jitter, r: float, throttled: list[bool]) -> None:
    spec, previous = Backoff(base, 20.0, 2.0, jitter, throttling_base=1.0), None
    for n, throttling in enumerate(throttled, start=1):
        previous = delay(spec, n, r, throttling=throttling, previous=previous)
        assert 0 <= previous <= 24.0


def test_the_class_draws_only_where_a_backoff_that_needs_one_is_computed() -> None:
    drawn = []

    def draw() -> float:
        drawn.append(1)
        return 0.5

    for jitter in JITTERS:
        strategy = ExponentialRetryBackoffStrategy(base=1.0, jitter=jitter, random=draw)
        assert isinstance(strategy, RetryBackoffStrategy)
        assert strategy.compute_next_backoff_delay(0) == 0.0
        assert not drawn
        strategy.compute_next_backoff_delay(1)
        assert bool(drawn) is needs_draw(strategy.backoff) is (jitter != "none")
        drawn.clear()


def test_the_class_works_without_arguments() -> None:
    strategy = ExponentialRetryBackoffStrategy()
    assert strategy.compute_next_backoff_delay(0) == 0.0
    assert all(0 <= strategy.compute_next_backoff_delay(n) <= 20 for n in range(1, 100))
    assert ExponentialRetryBackoffStrategy(jitter="decorrelated").compute_next_backoff_delay(2, previous=1.0) >= 0.1


class Draws:
    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("jitter", JITTERS)
def test_a_pushback_starts_the_series_of_grpc_again(jitter: Jitter) -> None:
    """A6: the wait after a pushback is the first of the series, for `decorrelated` too, which remembers its last."""
    series = WaitSeries(replace(GRPC, backoff=Backoff(1.0, 60.0, 3.0, jitter)), Draws())
    first, second = series.next_wait(None, False), series.next_wait(None, False)
    assert series.next_wait(7.0, False) == 7.0
    assert [series.next_wait(None, False), series.next_wait(None, False)] == [first, second]
