"""The times between a client's own attempts show the limit of an upstream without a queue (decision 0015)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.least_gap import LeastGap
from proxy.retry.capacity.refusal_pace import RefusalPace
from proxy.retry.capacity.throughput import Throughput
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.weather.spacing import Spacing


def noted(
    refuses: Callable[[float], bool], count: int = 80, found: LeastGap | None = None, at: float = 0.0
) -> LeastGap:
    """The gaps of `count` attempts at random times from `at` on, fifteen a second. `refuses` is asked for each with the
    seconds since the last one that was served. A refusal takes a millisecond.
    """
    chance, found = random.Random(1), found or LeastGap()
    served = at
    for _ in range(count):
        at += chance.expovariate(15.0)
        found.sent(at)
        if refuses(at - served):
            found.refused(at, at + 0.001)
        else:
            served = at
    return found


def by_chance(share: float) -> Callable[[float], bool]:
    """Refuse this share of the attempts by chance."""
    chance = random.Random(2)
    return lambda gap: chance.random() < share


def test_a_client_that_is_alone_sees_the_limit() -> None:
    found = noted(lambda gap: gap < 1 / 16)
    assert found.is_alone(6.0)
    assert 0.85 * 16 < found.pace < 16


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
def test_chance_is_not_taken_for_a_limit(share: float) -> None:
    found = noted(by_chance(share), 300)
    assert not found.is_alone(6.0)
    assert found.pace == 0.0


def test_chance_seldom_separates_the_times_at_two_refusals_in_a_row() -> None:
    """The times are compared at each refusal. At one refusal, chance separated them for 11 of these 300 clients."""
    taken = set()
    for seed in range(300):
        chance, found, at = random.Random(seed), LeastGap(), 0.0
        for _ in range(300):
            at += chance.expovariate(15.0)
            found.sent(at)
            if chance.random() < 0.1:
                found.refused(at, at + 0.001)
                if found.is_alone(at):
                    taken.add(seed)
    assert len(taken) <= 3


def test_a_limit_that_changes_is_found_again() -> None:
    found = noted(lambda gap: gap < 1 / 16)
    found = noted(lambda gap: gap < 1 / 8, 120, found, 10.0)
    assert 0.85 * 8 < found.pace < 8
    found = noted(lambda gap: gap < 1 / 24, 200, found, 30.0)
    assert 0.8 * 24 < found.pace < 24


def test_too_few_refusals_say_nothing() -> None:
    found = LeastGap()
    for at in (0.0, 1.0, 2.0, 3.0, 3.01, 4.0, 4.01):
        found.sent(at)
        if at % 1.0:
            found.refused(at, at + 0.001)
    assert not found.is_alone(4.1)


def test_of_attempts_that_were_sent_at_once_the_last_one_was_refused() -> None:
    found = noted(lambda gap: gap < 1 / 16)
    found.sent(50.0)
    found.sent(50.0)
    found.refused(50.0, 50.001)
    assert found.is_alone(50.1), "the one before it came no sooner than others that were served"


def test_what_was_sent_while_it_is_not_noted_does_not_count() -> None:
    found = noted(lambda gap: gap < 1 / 16)
    found.begin()
    found.sent(50.0)
    found.refused(50.0, 50.001)
    assert found.is_alone(50.1), "attempts before that one are not known"


def test_it_is_forgotten_after_two_minutes_without_a_refusal() -> None:
    found = noted(lambda gap: gap < 1 / 16)
    assert not found.is_alone(200.0)
    found.sent(200.0)
    found.refused(200.0, 200.001)
    assert not found.is_alone(200.1)


def test_an_upstream_that_counts_requests_over_time_has_no_such_limit() -> None:
    evidence = Evidence(Traffic())
    evidence.least_gap = noted(lambda gap: gap < 1 / 16)
    assert evidence.known_pace(6.0) == evidence.least_gap.pace
    assert evidence.refused("503", 6.0), "one refusal begins a limit"
    counts = evidence.throughput = Throughput()
    for _ in range(2):
        counts.served(1.0)
    counts.bound(16.0, 2, 6.0)
    assert evidence.known_pace(6.0) == 0.0
    assert not evidence.refused("503", 6.1)


def test_a_known_pace_is_lowered_only_if_it_is_refused_itself() -> None:
    pace = Spacing()
    pace.settle(15.0, 1.0)
    assert pace.rate == 15.0
    pace.slow_down(16.0)
    pace.settle(15.0, 2.0)
    assert pace.rate == 15.0, "it had grown beyond"
    pace.settle(15.0, 3.0)
    assert pace.rate == pytest.approx(14.25)


def test_calls_that_delays_do_not_hold_go_at_a_known_pace_too() -> None:
    pace = RefusalPace(15.0, 0.0)
    pace.rate = 20.0
    pace.settle(16.0)
    pace.refused()
    assert pace.rate == 16.0
    pace.sent(15.0, 10.0, 5, 0.1)
    assert 16.0 < pace.rate < 16.1
    pace.settle(0.0)
    pace.refused()
    assert pace.rate < 16.0, "it is not known any more"
