"""The pace of calls while delays hold only the calls that were refused (contract, section 9, rules 1 and 3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from proxy.retry.capacity.refusal_pace import RefusalPace

#: Calls that come a second.
CALLS = 20.0


def play(pace: RefusalPace, is_refused: Callable[[int, float], bool], count: int, served: float = 10.0) -> float:
    """Send so many attempts at the pace while calls wait. `is_refused` takes the attempt's number and the pace. Returns
    the mean pace of the latter half.
    """
    now, paces = 0.0, []
    for number in range(count):
        now += 1.0 / pace.rate
        paces.append(pace.rate)
        pace.sent(CALLS, served, 5, now)
        if is_refused(number, pace.rate):
            pace.refused()
    return sum(paces[count // 2 :]) / (count - count // 2)


def test_the_first_pace_is_a_little_less_than_calls_come() -> None:
    assert RefusalPace(CALLS, 0.0).rate == pytest.approx(16.0)
    assert RefusalPace(0.5, 0.0).rate == 2.0


def test_where_the_own_load_is_refused_the_pace_stays_just_below_it() -> None:
    """Of an upstream that takes 14 a second, and serves one at a time, every other attempt is refused at a faster
    pace.
    """
    mean = play(RefusalPace(CALLS, 0.0), lambda number, rate: rate > 14.0 and number % 2 == 1, 1500)
    assert 11.0 < mean < 15.0


def test_where_others_are_the_reason_calls_are_sent_as_fast_as_they_come() -> None:
    """A slower pace is refused as often, so it would serve fewer."""
    mean = play(RefusalPace(CALLS, 0.0), lambda number, _: number % 2 == 1, 600, served=5.0)
    assert mean > 0.9 * CALLS


def test_the_pace_grows_for_calls_that_wait_while_few_are_refused() -> None:
    pace = RefusalPace(CALLS, 0.0)
    play(pace, lambda number, _: number % 10 == 0, 300)
    assert pace.rate == pytest.approx(3.0 * CALLS + 2.0, rel=0.1)


def test_it_does_not_grow_while_no_call_waits() -> None:
    pace = RefusalPace(CALLS, 0.0)
    for number in range(100):
        pace.sent(CALLS, 1.0, 0, number / CALLS)
    assert pace.rate == pytest.approx(16.0)


def test_a_sidecar_of_few_calls_may_send_what_is_always_allowed() -> None:
    pace = RefusalPace(0.5, 0.0)
    for number in range(50):
        pace.sent(0.5, 0.4, 3, float(number))
        if number % 2:
            pace.refused()
    assert pace.rate >= 2.0


@pytest.mark.parametrize("seed", range(1, 31))
def test_chance_that_refuses_many_and_then_few_is_not_taken_for_the_own_load(seed: int) -> None:
    """Where one in ten is refused, four of twenty are now and then, and none of the next twenty. In five minutes, calls
    are not sent at less than nine tenths of the pace at which they come.
    """
    chance, pace, now, slow = random.Random(seed), RefusalPace(CALLS, 0.0), 0.0, 0.0
    while now < 300.0:
        now += 1.0 / pace.rate
        slow += 1.0 / pace.rate if pace.rate < 0.9 * CALLS else 0.0
        pace.sent(CALLS, 0.9 * CALLS, 5, now)
        if chance.random() < 0.1:
            pace.refused()
    assert slow < 5.0


def test_a_slower_pace_is_given_up_when_nearly_as_many_are_refused() -> None:
    """A quarter of the attempts is refused, none of twenty at a slower pace, and then one of six at that pace."""
    pace, slow = RefusalPace(CALLS, 0.0), 0
    for number in range(200):
        pace.sent(CALLS, 0.75 * CALLS, 0, number / CALLS)
        slow += pace.rate < 0.7 * CALLS
        if number % (6 if slow else 4) == 0 and not 0 < slow < 25:
            pace.refused()
    assert slow > 25
    assert pace.rate > 0.9 * CALLS
