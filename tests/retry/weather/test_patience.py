"""What the departures of apps say about how long a call may be held (`proxy.retry.weather.patience`)."""

from __future__ import annotations

import random

import pytest

from proxy.retry.weather.patience import Patience

NEVER = float("inf")


def learnt(*departures: tuple[float, float], now: float = 10.0) -> float:
    """The patience that is known at `now`, after departures given as their times and waits in seconds."""
    patience = Patience()
    for at, waited in departures:
        patience.left("", waited, at)
    return patience.of("", now)


def test_three_departures_bound_what_a_call_is_held_by_three_quarters_of_the_shortest_wait() -> None:
    assert learnt((1.0, 5.0), (2.0, 4.0)) == NEVER
    assert learnt((1.0, 5.0), (2.0, 4.0), (3.0, 6.0)) == 3.0
    assert learnt((1.0, 5.0), (2.0, 4.0), (3.0, 6.0), now=601.5) == NEVER  # the first is forgotten


def test_no_call_is_held_for_less_than_a_quarter_of_a_second() -> None:
    assert learnt((1.0, 0.3), (2.0, 0.3), (3.0, 0.3)) == 0.0
    assert learnt((1.0, 0.4), (2.0, 0.4), (3.0, 0.4)) == pytest.approx(0.3)


def test_clients_that_lose_patience_at_one_moment_have_waited_equally_long() -> None:
    assert learnt((2.0, 2.0), (2.0, 2.0), (2.01, 1.99)) == pytest.approx(0.75 * 1.99)
    assert learnt((2.0, 0.2), (2.0, 0.21), (2.03, 0.24)) == 0.0  # noticed late on a busy machine


def test_a_client_that_ends_with_all_its_calls_counts_as_one() -> None:
    """Its calls were held since the moments when they came, so their waits are unlike."""
    rng = random.Random(7)
    ended = [(5.0, rng.uniform(0.02, 6.0)) for _ in range(32)]
    assert learnt(*ended) == NEVER or learnt(*ended) > 0.7 * max(waited for _, waited in ended)
    assert learnt((2.0, 0.1), (2.0, 3.0), (2.0, 1.0)) == NEVER
    assert learnt((2.0, 0.1), (2.0, 3.0), (4.0, 3.0), (6.0, 3.0)) == 2.25  # the longest of the first two counts


def test_a_departure_within_milliseconds_is_no_lack_of_patience() -> None:
    assert learnt((1.0, 0.001), (2.0, 0.019), (3.0, 0.0), (4.0, 0.01)) == NEVER
