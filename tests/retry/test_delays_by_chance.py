"""The test of whether an upstream names delays by chance (contract, section 5; decision 0015)."""

from __future__ import annotations

import math

from proxy.retry.delays_by_chance import AT_ONCE, DelaysByChance


def begun(at: float = 10.0) -> DelaysByChance:
    """A lane's test that begins at `at`, after three cooldowns of one second, each after few served attempts, and one
    after a first attempt that was refused.
    """
    test = DelaysByChance()
    test.cooldown(0, at - 4.0, at - 5.0)
    for before in (3.0, 2.0, 1.0):
        test.ended(object(), at - before - 0.1, refused=False)
        test.cooldown(2, at - before + 1.0, at - before)
    calls(test)
    return test


def calls(test: DelaysByChance, count: int = AT_ONCE) -> None:
    """Let so many calls come that have to wait."""
    for _ in range(count):
        test.came()


def send(test: DelaysByChance, now: float) -> list[object]:
    """Send as many attempts as the test allows at once."""
    attempts = [object() for _ in range(test.take_at_once())]
    for each in attempts:
        test.sent(each, now)
    return attempts


def end(test: DelaysByChance, attempts: list[object], served: str, now: float) -> list[bool]:
    """End the attempts in order: `s` is served, `r` refused. Returns what the test said of each."""
    return [test.ended(each, now, refused=how == "r") for each, how in zip(attempts, served, strict=True)]


def test_after_three_cooldowns_with_few_served_attempts_several_calls_return_at_once() -> None:
    test = begun()
    assert test.at_once == AT_ONCE
    assert len(send(test, 10.0)) == AT_ONCE
    assert test.take_at_once() == 0


def test_where_each_first_attempt_is_served_the_test_comes_after_six_cooldowns() -> None:
    """An upstream serves them if only capacity is missing: it loses the delay by a test."""
    test = DelaysByChance()
    for number in range(6):
        assert test.at_once == 0
        test.ended(object(), number + 0.5, refused=False)
        test.cooldown(2, number + 2.0, number + 1.0)
    assert test.at_once == AT_ONCE


def test_attempts_served_after_a_refused_one_show_chance() -> None:
    test = begun()
    assert end(test, send(test, 10.0), "srsssrss", 10.1).index(True) == 6  # five of eight are served then
    assert test.holds(10.1)
    assert test.holds(120.0)
    assert not test.holds(131.0)


def test_an_upstream_that_serves_the_first_and_refuses_the_others_has_no_capacity() -> None:
    test = begun()
    end(test, send(test, 10.0), "sssssrrr", 10.1)
    assert not test.holds(10.1)
    assert test.was_tested  # its refusals say nothing about the pace
    test.cooldown(2, 10.8, 10.3)
    test.cooldown(0, 11.3, 10.8)
    for number in range(4):  # it is asked twice as seldom after that
        test.ended(object(), 11.0 + number, refused=False)
        test.cooldown(2, 12.5 + number, 11.5 + number)
        assert test.at_once == 0
    test.ended(object(), 17.0, refused=False)
    test.cooldown(2, 18.5, 17.5)
    assert test.at_once == AT_ONCE


def test_attempts_that_follow_later_are_no_part_of_a_test() -> None:
    """The capacity that was used may have come back by then."""
    test = begun()
    attempts = send(test, 10.0)
    later = [object() for _ in range(4)]
    for each in later:
        test.sent(each, 10.1)
    end(test, attempts, "srrrrrrr", 10.2)
    end(test, later, "ssss", 10.3)
    assert not test.holds(10.3)


def test_it_is_remembered_over_two_tests_what_was_served_after_refused_ones() -> None:
    test = begun()
    end(test, send(test, 10.0), "sssssrsr", 10.1)
    assert not test.holds(10.1)
    test.cooldown(0, 11.0, 10.2)
    test.ended(object(), 10.5, refused=False)
    test.cooldown(3, 12.0, 11.0)
    calls(test)
    assert end(test, send(test, 12.0), "srssssss", 12.1).index(True) == 5
    assert test.holds(12.1)


def test_a_few_calls_are_no_test() -> None:
    """An upstream that takes a call or two a second refuses most of what is sent at once."""
    test = begun()
    test.cooldown(2, 11.0, 10.0)
    calls(test, 4)
    assert test.take_at_once() == 0


def test_an_upstream_that_serves_nothing_is_not_tested() -> None:
    test = DelaysByChance()
    for number in range(20):
        test.cooldown(0, number + 1.0, float(number))
        assert test.at_once == 0


def test_a_limit_that_comes_later_ends_it() -> None:
    test = begun()
    end(test, send(test, 10.0), "srsssrss", 10.1)
    test.cooldown(5, 12.0, 11.0)
    attempts = [object() for _ in range(20)]
    for each in attempts:
        test.sent(each, 12.0)
    end(test, attempts, "s" * 10 + "r" * 10, 12.1)
    assert not test.holds(12.1)


def test_seven_refused_attempts_are_too_few_to_end_it() -> None:
    test = begun()
    end(test, send(test, 10.0), "srsssrss", 10.1)
    test.cooldown(5, 12.0, 11.0)
    attempts = [object() for _ in range(8)]
    for each in attempts:
        test.sent(each, 12.0)
    end(test, attempts[:7], "r" * 7, 12.1)
    assert test.holds(12.1)
    end(test, attempts[7:], "r", 12.1)
    assert not test.holds(12.1)


def test_a_quota_that_is_nearly_used_up_is_no_chance_in_whatever_order_attempts_arrive() -> None:
    test = begun()
    end(test, send(test, 10.0), "rsrrsrrs", 10.1)
    assert not test.holds(10.1)
    test.cooldown(0, 11.0, 10.5)
    for number in range(5):  # nor does it make the next test sooner
        test.ended(object(), 11.0 + number, refused=False)
        test.cooldown(2, 12.5 + number, 11.5 + number)
        assert test.at_once == 0


def known_by_mistake(test: DelaysByChance, now: float) -> None:
    """Let delays be known to be named by chance, and the calls that then return together be refused. The first refusal
    begins a cooldown.
    """
    end(test, send(test, now), "rsssssss", now + 0.1)
    assert test.holds(now + 0.1)
    test.cooldown(3, now + 2.0, now + 1.0)
    attempts = [object() for _ in range(16)]
    for each in attempts:
        test.sent(each, now + 2.0)
    end(test, attempts[:1], "r", now + 2.1)
    test.cooldown(3, now + 3.0, now + 2.1)
    end(test, attempts[1:8], "r" * 7, now + 2.1)
    assert test.holds(now + 2.1)  # refusals come first, and the others may still be served
    end(test, attempts[8:], "rrrsrrss", now + 2.3)
    assert not test.holds(now + 2.3)


def test_a_batch_is_judged_whole_though_its_first_refusal_begins_a_cooldown() -> None:
    known_by_mistake(begun(), 10.0)


def test_a_mistake_makes_tests_rarer() -> None:
    test = begun()
    known_by_mistake(test, 10.0)
    test.cooldown(2, 19.0, 18.0)
    test.cooldown(0, 20.0, 19.0)
    for number in range(5):
        assert test.at_once == 0
        test.ended(object(), 20.0 + number, refused=False)
        test.cooldown(2, 21.5 + number, 20.5 + number)
    assert test.at_once == AT_ONCE


def test_few_calls_return_together_until_most_of_them_were_served() -> None:
    """What was taken for chance may be a quota that is used up."""
    test = begun()
    end(test, send(test, 10.0), "srsssrss", 10.1)
    assert test.together == 2 * AT_ONCE
    for at, together in ((12.0, 4 * AT_ONCE), (14.0, 4 * AT_ONCE), (16.0, math.inf)):
        test.cooldown(5, at, at - 1.0)
        attempts = [object() for _ in range(10)]
        for each in attempts:
            test.sent(each, at)
        assert test.together == together
        end(test, attempts, "rrsrrssrss" if at == 12.0 else "ssssrsssrs", at + 0.1)
