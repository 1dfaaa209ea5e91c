"""The measure of what an upstream serves a second (`proxy.retry.capacity.throughput`), and the bound that it puts on a
pace.
"""

from __future__ import annotations

import pytest

from proxy.retry.capacity.throughput import Throughput

#: The pace that is refused, in attempts a second: far more than what is served.
PACE = 100.0


def refused_again_and_again(upstream: Throughput, gap: float, every: float = 1.5, served: int = 12) -> list[float]:
    """The paces after a minute of refusals: one in `every` seconds, each after attempts that were served, sent with
    `gap` seconds between them.
    """
    paces, now = [], 0.0
    while now < 60.0:
        now += every
        for number in range(served):
            upstream.served(now - 0.4 + number * gap)
        paces.append(upstream.bound(PACE, served, now))
    return paces


def test_an_upstream_that_serves_two_at_once_counts_and_is_asked_for_little_more_than_it_serves() -> None:
    paces = refused_again_and_again(Throughput(), gap=0.0)
    assert paces[:6] == [PACE] * 6, "nothing is known in the first seconds"
    assert paces[-1] == pytest.approx(1.5 * 12 / 1.5, rel=0.05)


def test_an_upstream_without_a_queue_serves_none_at_once_and_keeps_its_pace() -> None:
    assert set(refused_again_and_again(Throughput(), gap=1.0 / PACE)) == {PACE}


def test_refusals_that_come_seldom_do_not_bound_the_pace() -> None:
    assert set(refused_again_and_again(Throughput(), gap=0.0, every=4.0)) == {PACE}


def test_refusals_after_hardly_any_served_attempt_do_not_bound_the_pace() -> None:
    assert set(refused_again_and_again(Throughput(), gap=0.0, served=3)) == {PACE}


def test_a_pace_below_what_is_served_stays() -> None:
    upstream = Throughput()
    refused_again_and_again(upstream, gap=0.0)
    assert upstream.bound(5.0, 12, 61.5) == 5.0


def test_the_measure_is_forgotten_after_a_long_time_without_refusals() -> None:
    upstream = Throughput()
    refused_again_and_again(upstream, gap=0.0)
    for second in range(3):
        upstream.served(400.0 + second)
        upstream.served(400.0 + second)
        assert upstream.bound(PACE, 12, 400.0 + second) == PACE
