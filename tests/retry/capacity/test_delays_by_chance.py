"""The test of whether it pays to hold calls for named delays (contract, section 5; decision 0015)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.retry.capacity.delays_by_chance import DelaysByChance
from proxy.retry.capacity.traffic import Traffic


def held(first_refused: bool = True, served: int = 3, refused: int = 2, came: int = 60) -> DelaysByChance:
    """A lane's test after delays that held calls for nine seconds, up to the time 10: `came` calls have come, of which
    `served` were served while `refused` attempts were refused. `first_refused`: after one of the delays, the first
    attempt was refused.
    """
    test = DelaysByChance()
    for _ in range(came):
        test.came(8.0)
    for _ in range(refused):
        test.refused_held(object(), 8.0)
    if first_refused:
        test.cooldown(1.0, 8.0, 8.0)
    for _ in range(served):
        test.served(object(), 8.5)
    test.cooldown(1.0, 1.0, 9.0)
    return test


def end(test: DelaysByChance, served: str, waiting: int = 20, now: float = 10.0) -> list[bool]:
    """Send as many attempts as the test allows at once, and end them in order: `s` is served, `r` refused. Returns
    whether a test was to begin after each that was served.
    """
    attempts = [object() for _ in range(test.take_at_once(waiting, now))]
    for each in attempts:
        test.sent(each, each, 0, now)
    assert test.take_at_once(waiting, now) == 0
    found = []
    for each, how in zip(attempts, served, strict=True):
        if how == "s":
            found.append(test.served(each, now + 0.1))
        else:
            test.refused_held(each, now + 0.1)
            assert test.was_tested
    return found


def begun(served: str = "srssrsss") -> DelaysByChance:
    """A test that has begun at the time 10.1, since most of the calls that were sent at once were served."""
    test = held()
    assert any(end(test, served))
    assert not test.holds_none(10.1)
    assert test.opens(10.1)
    assert test.holds_none(10.1)
    return test


def play(test: DelaysByChance, refused: Sequence[bool], every: float = 0.1, now: float = 11.0) -> float:
    """Send attempts one after the other, of which some are refused. Returns the time after them."""
    traffic = Traffic()
    for is_refused in refused:
        traffic.flying += 1
        now += every
        traffic.flying -= 1
        traffic.ended += 1
        if is_refused and test.holds_none(now):
            test.refused(object(), traffic.ended, traffic.flying, now)
    return now


def test_after_long_holds_that_serve_few_several_calls_are_sent_at_once() -> None:
    assert held().take_at_once(20, 10.0) == 8
    assert held().take_at_once(6, 10.0) == 6


def test_a_few_calls_are_not_sent_at_once() -> None:
    """An upstream that takes a call or two a second refuses most of what is sent at once."""
    assert held().take_at_once(4, 10.0) == 0


def test_where_each_first_attempt_is_served_calls_are_held_for_longer_before() -> None:
    test = held(first_refused=False, served=36)
    assert test.at_once == 0
    test.served(object(), 9.5)
    test.cooldown(1.0, -4.0, 11.0)
    assert test.at_once == 8


def test_an_upstream_that_serves_nothing_is_not_tested() -> None:
    assert held(served=0).at_once == 0


def test_holding_that_serves_nearly_as_many_as_chance_would_let_it_is_not_tested() -> None:
    assert held(served=50, refused=5, came=60).at_once == 0


def test_most_served_beside_a_refused_one_begin_a_test() -> None:
    assert end(held(), "srsssrss") == [False, False, False, False, True, False]


def test_all_served_begin_a_test_too() -> None:
    """Of eight attempts none is refused in five of six cases, where two of a hundred are refused by chance."""
    test = held()
    assert any(end(test, "ssssssss"))
    assert test.opens(10.1)


def test_an_upstream_that_refuses_most_of_them_is_not_tested_and_asked_ever_more_seldom() -> None:
    test = held()
    assert not any(end(test, "srrrrsss"))
    assert not test.opens(11.0)
    test.cooldown(1.0, 2.0, 12.0)
    assert test.at_once == 0
    test.cooldown(1.0, 2.0, 14.5)  # none was served since
    test.served(object(), 14.6)
    test.cooldown(1.0, 2.0, 15.0)
    assert test.at_once == 8


def test_an_upstream_that_refuses_all_but_one_of_them_is_asked_again_after_minutes_only() -> None:
    test = held()
    attempts = [object() for _ in range(test.take_at_once(20, 10.0))]
    for each in attempts:
        test.sent(each, each, 0, 10.0)
    for each in attempts[1:]:
        test.refused_held(each, 10.1)
    assert test.was_tested
    test.served(attempts[0], 10.2)
    for now, at_once in ((16.0, 0), (300.0, 0), (312.0, 8)):
        for _ in range(60):
            test.came(now)
        for _ in range(36):
            test.served(object(), now)
        test.refused_held(object(), now)
        test.cooldown(1.0, now - 20, now)
        assert test.at_once == at_once


def test_calls_of_which_some_have_no_end_are_not_waited_for_without_end() -> None:
    test = held()
    attempts = [object() for _ in range(test.take_at_once(20, 10.0))]
    for each in attempts:
        test.sent(each, each, 0, 10.0)
    for each in attempts[:4]:
        test.served(each, 10.1)  # the others were cancelled, or reset
    for now, at_once in ((39.0, 0), (41.0, 8)):
        for _ in range(60):
            test.came(now)
        test.refused_held(object(), now)
        test.cooldown(1.0, now - 10, now)
        assert test.take_at_once(20, now) == at_once


def test_no_test_begins_later_than_at_the_moment_that_shows_it_if_no_call_waits_then() -> None:
    test = held()
    assert any(end(test, "srssrsss"))
    assert not test.opens(10.2)
    assert test.opens(10.1)


def test_attempts_that_are_sent_later_do_not_count() -> None:
    """The capacity that was used may have come back by then."""
    test, later = held(), object()
    attempts = [object() for _ in range(test.take_at_once(20, 10.0))]
    for each in attempts:
        test.sent(each, each, 0, 10.0)
    test.sent(later, later, 0, 10.1)
    test.refused_held(attempts[0], 10.1)
    assert [test.served(each, 10.2) for each in attempts[1:5]] == [False] * 4
    assert not test.served(later, 10.3)
    assert test.served(attempts[5], 10.4)


def test_chance_is_known_once_clearly_more_are_served_and_as_many_refused() -> None:
    test = begun()
    now = play(test, [False, True, False] * 10)
    assert test.is_known(now)
    assert 0.25 <= test.share <= 0.4
    assert test.is_known(now + 119.0)
    assert not test.holds_none(now + 121.0)


def test_a_refusal_renews_what_is_known() -> None:
    test = begun()
    now = play(test, [False, True, False] * 10)
    test.refused(object(), 0, 0, now + 100.0)
    assert test.is_known(now + 200.0)


def test_calls_are_sent_little_faster_in_a_test_than_they_come_and_twice_as_fast_after_it() -> None:
    """A test that sent all calls that wait would be a burst of as many upon an upstream that lacks capacity."""
    test = DelaysByChance()
    for number in range(80):
        test.came(number / 4)
    test._opens_at = 20.0  # as after calls that were sent at once
    assert test.opens(20.0)
    assert 4.9 <= test.pace(20.0) <= 5.3
    now = play(test, [False, True, False] * 10, now=20.0)
    assert test.is_known(now)
    assert test.opens(now)
    assert 7.8 <= test.pace(now) <= 8.4
    assert not test.opens(now)


def test_calls_are_not_sent_long_after_the_test_if_none_waited() -> None:
    test = begun()
    now = play(test, [False, True, False] * 10)
    assert test.is_known(now)
    assert not test.opens(now + 6.0)


def test_a_test_in_which_nearly_all_are_refused_ends_at_once() -> None:
    test = begun()
    now = play(test, [True] * 14)
    assert not test.holds_none(now)
    test.cooldown(1.0, 2.0, now)
    assert test.at_once == 0


def test_a_test_in_which_no_more_are_served_than_before_ends() -> None:
    test = DelaysByChance()
    for _ in range(20):
        test.came(8.0)
        test.served(object(), 8.0)
    for _ in range(20):
        test.came(8.0)
        test.refused_held(object(), 8.0)
    test._opens_at = 9.0  # as after calls that were sent at once
    assert test.opens(9.0)
    now = play(test, [False, True] * 30, now=9.0)
    assert not test.holds_none(now)


def test_where_fewer_attempts_were_refused_by_less_load_it_is_no_chance() -> None:
    test = held(served=40, refused=1, came=90)
    assert any(end(test, "srssrsss"))
    assert test.opens(10.1)
    now = play(test, [False, True, False] * 20)
    assert not test.holds_none(now)


def test_it_is_chance_no_more_once_nearly_all_are_refused() -> None:
    test = begun()
    now = play(test, [False, True, False] * 10)
    assert test.is_known(now)
    assert not test.holds_none(play(test, [True] * 15, now=now))


def short_holds(served: int, refused_at_once: bool) -> bool:
    """Whether delays of a second, for which calls have waited for 17 seconds, hold none after the next one: of 60 calls
    so many were `served`, and one attempt was refused. `refused_at_once`: all but one of eight calls that were sent at
    once were refused as well, and as many others served.
    """
    test = held(served=served, refused=1)
    if refused_at_once:
        attempts = [object() for _ in range(test.take_at_once(20, 10.0))]
        for each in attempts:
            test.sent(each, each, 0, 10.0)
        test.served(attempts[0], 10.1)
        for each in attempts[1:]:
            test.refused_held(each, 10.1)
        for _ in range(served):
            test.served(object(), 10.1)
    test.cooldown(1.0, -6.0, 11.0)
    return test.opens(12.0)


def test_a_short_delay_holds_only_its_own_call_where_less_than_half_is_served() -> None:
    assert short_holds(27, refused_at_once=False)
    assert not short_holds(34, refused_at_once=False)


def test_where_calls_sent_at_once_have_shown_that_there_is_no_queue_a_larger_part_is_enough() -> None:
    """In both cases about 0.55 of what would be served by chance."""
    assert not short_holds(31, refused_at_once=False)
    assert short_holds(11, refused_at_once=True)


def test_once_reserved_times_are_known_no_more_another_test_sends_calls_at_its_own_pace() -> None:
    """Times that were reserved before stay known for two minutes after the last refusal, and mean nothing then."""
    test = held(served=27, refused=1)
    test.reserving._opens_at = 10.0  # as after delays that were followed by a refusal
    assert test.opens(10.0)
    assert test.pace(10.0) == test.calls
    for _ in range(60):
        test.came(139.0)
    for _ in range(20):
        test.served(object(), 140.0)
    for _ in range(3):
        test.refused_held(object(), 140.0)
    test.cooldown(1.0, 120.0, 140.0)
    assert test.opens(141.0)
    assert test.pace(141.0) == pytest.approx(0.8 * test.calls)
