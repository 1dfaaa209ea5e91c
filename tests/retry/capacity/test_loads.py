"""The comparison of attempts at several loads (contract, section 14; decision 0015)."""

from __future__ import annotations

import random

import pytest

from proxy.retry.capacity.loads import Loads


def given_up(pace: float, ended: int, refused: int) -> Loads:
    """The loads of a lane whose limit was given up at 10 s, after a trial of so many attempts at `pace` a second."""
    loads = Loads()
    loads.add(pace, ended, refused, 10.0)
    loads.gave_up(0, 0, 10.0)
    return loads


def again_at(loads: Loads, share: float, pace: float, seed: int, attempts: int = 300) -> int:
    """The number of attempts, each refused with the probability `share`, after which the limit begins again; 0 for
    none.
    """
    chance, refused = random.Random(seed), 0
    for count in range(1, attempts + 1):
        if chance.random() < share:
            refused += 1
            if loads.refused(count, refused, 10.0 + count / pace):
                return count
    return 0


@pytest.mark.parametrize("seed", range(5))
def test_a_limit_begins_again_if_more_is_refused_at_twice_the_load(seed: int) -> None:
    """10/s fit: a third of 15/s is refused, two thirds of 30/s."""
    assert 10 <= again_at(given_up(15.0, 60, 20), 2 / 3, 30.0, seed) <= 150


def test_as_many_refused_at_twice_the_load_are_chance() -> None:
    wrong = [seed for seed in range(100) if again_at(given_up(15.0, 60, 18), 0.3, 30.0, seed)]
    assert len(wrong) <= 5


def test_the_next_trial_is_judged_with_what_was_refused_before() -> None:
    loads = given_up(15.0, 60, 20)
    assert again_at(loads, 2 / 3, 30.0, 1)
    assert loads.explain(15.0, 20, 8, 40.0)
    assert not loads.explain(15.0, 200, 133, 40.0)  # as many are refused at half the load, after all
    assert not loads.explain(15.0, 20, 8, 200.0)  # what was before is too long ago


def test_after_many_attempts_it_is_judged_no_more() -> None:
    loads = given_up(15.0, 60, 20)
    assert not loads.refused(301, 100, 20.0)
    assert again_at(loads, 1.0, 30.0, 1) == 0


def after_slow_answers(refused_ones: int, sent: int) -> bool:
    """Whether a limit begins again that was given up after half of twenty attempts were refused, with four under way.
    So many more have been sent since then, and so many of these refused at once; no answer has come yet.
    """
    loads = Loads()
    loads.add(5.0, 20, 10, 10.0)
    loads.gave_up(20, 10, 10.0, flying=4)
    again = False
    for refused in range(1, refused_ones + 1):
        flying = 4 + sent * refused // refused_ones - refused
        again = again or loads.refused(20 + refused, 10 + refused, 10.0 + 0.02 * refused, flying)
    return again


def test_attempts_under_way_count_as_served_where_refusals_come_sooner() -> None:
    """Just after the limit was given up, only refused attempts have ended."""
    assert not after_slow_answers(40, sent=80)
    assert after_slow_answers(40, sent=41)
