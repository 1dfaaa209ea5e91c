"""An upstream that refuses every attempt and names no delay: the limit sends one now and then, until one is served."""

from __future__ import annotations

import math

import pytest

from proxy.retry.capacity.traffic import Traffic
from proxy.retry.queues.waiter import Waiter
from proxy.retry.weather.all_refused import AllRefused
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.limit import Limit


class Waits(Waiter):
    """A call that waits."""

    def retime(self, at: float) -> None:
        """Its alarm is not looked at."""


def refused_until(limit: Limit, traffic: Traffic, count: int, now: float) -> float:
    """Let `count` attempts be refused by answers, 50 ms apart, and return the time of the last."""
    for number in range(count):
        at = now + 0.05 * number
        traffic.ended += 1
        if limit.is_on:
            limit.refused(at - 0.001, at, 1, quick=True)
        elif limit.evidence.refused("429", at, True):
            limit.begin_at_half(2, at)
    return now + 0.05 * (count - 1)


def all_refused(count: int = 8, served_at: float = 9.9) -> tuple[Limit, Traffic, float]:
    """A limit under which `count` attempts in a row were refused after a thousand, of which one was served last at
    `served_at`, and the time then.
    """
    traffic = Traffic()
    traffic.ended, traffic.served_at = 1000, served_at
    limit = Limit(traffic)
    return limit, traffic, refused_until(limit, traffic, count, 10.0)


def test_after_eight_refusals_in_a_row_attempts_are_sent_like_probes() -> None:
    limit, traffic, now = all_refused()
    assert limit.all_refused.is_on
    gaps = []
    for _ in range(6):
        gaps.append(limit.pace.next_at - now)
        now = limit.pace.next_at
        limit.pace.sent(now, 3)
        traffic.ended += 1
        limit.refused(now, now, 1, quick=True)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert limit.most == 1.0


def test_an_upstream_that_has_served_none_in_the_last_ten_minutes_is_not_waited_for() -> None:
    """Else calls of a service that was never there would be held in vain."""
    for served_at in (-math.inf, -590.1):
        limit, _, _ = all_refused(20, served_at)
        assert limit.is_on
        assert not limit.all_refused.is_on


def test_seven_refusals_in_a_row_are_no_reason() -> None:
    limit, _, _ = all_refused(7)
    assert limit.is_on
    assert not limit.all_refused.is_on


def test_while_others_are_under_way_they_may_be_served() -> None:
    """Answers of an upstream without a queue may take seconds, and its refusals none."""
    row = AllRefused()
    row.begin(0, 0.0, False, -1.0)
    assert not any(row.refused(1.0 + 0.1 * number, 0.0, False, 1.0 + 0.1 * number) for number in range(30))
    assert row.refused(4.0, 0.0, True, 4.0)


def test_one_that_is_served_lets_the_held_calls_return() -> None:
    limit, _, now = all_refused()
    now += 1.0
    limit.served(now + 0.1, now + 0.15, 1.0)
    assert not limit.all_refused.is_on
    assert (limit.most, limit.threshold, limit.pace.rate) == (1.0, math.inf, 0.0)
    limit.served(now + 0.2, now + 0.25, 1.0)
    assert limit.most == 2.0


def test_if_it_was_short_the_limit_is_as_before() -> None:
    """Other clients that use up what the upstream takes refuse eight attempts in a row now and then."""
    limit, _, now = all_refused()
    before = limit.all_refused.most, limit.all_refused.threshold
    limit.served(now + 0.1, now + 0.15, 1.0)
    assert not limit.all_refused.is_on
    assert limit.has_evidence, "the trial goes on"
    assert (limit.most, limit.threshold) == before
    assert limit.pace.next_at <= now + 0.15


def test_one_that_was_sent_before_says_nothing() -> None:
    limit, _, now = all_refused()
    limit.served(9.0, now + 0.05, 1.0)
    assert limit.all_refused.is_on


def test_the_limit_stays_while_it_is_known_that_all_are_refused() -> None:
    limit, _, now = all_refused()
    limit.pace.sent(now, 0)
    limit.pace.sent(now + 5.0, 0)
    assert not limit.is_over(0, now + 9.0)
    assert limit.is_over(0, now + 30.0)


def test_a_row_goes_on_under_the_next_limit_if_nothing_was_answered_between() -> None:
    row = AllRefused()
    row.begin(3, 1.0, False, 0.9)
    row.refused(1.9, 0.0, True, 2.0)
    row.begin(3, 11.0, False, 0.9)
    assert row.since == 1.0
    row.refused(13.9, 0.0, True, 14.0)
    row.begin(3, 20.0, False, 15.0)
    assert row.since == 20.0


def test_refusals_without_a_limit_are_no_answers_that_end_a_row() -> None:
    limit, traffic, now = all_refused()
    since = limit.all_refused.since
    limit.end(now)
    traffic.answered_at = now + 1.0  # a refusal is an answer, too
    for number in range(3):
        limit.evidence.found = 10.0, 1.0
        traffic.ended += 1
        limit.evidence.refused("429", now + 1.0 + number / 100, True)
    limit.begin_at_half(2, now + 1.1)
    assert limit.all_refused.since == since


def test_a_row_of_minutes_ago_says_nothing_of_how_long_all_have_been_refused() -> None:
    """Nobody knows what became of the upstream while nothing was sent. Else calls would be answered at once, and told
    to come back in ten minutes, though the upstream may be back in a second.
    """
    lane = Lane(Traffic())
    lane.traffic.ended, lane.traffic.served_at, lane.lasts = 1000, 9.0, True
    for began in (10.0, 310.0):
        now = refused_until(lane.limit, lane.traffic, 12, began)
        if began == 10.0:
            lane.limit.end(now + 15.0)  # no call comes any more
    calls = [Waits(), Waits()]
    for call in calls:
        assert lane.ask(call, now) > now
    assert lane.limit.all_refused.is_on
    assert lane.wait_of(calls[1], now) < 1.0


def test_calls_are_expected_to_wait_long_only_while_it_is_known_that_all_are_refused() -> None:
    lane = Lane(Traffic())
    lane.traffic.ended, lane.traffic.served_at, lane.lasts = 1000, 9.0, True
    now = refused_until(lane.limit, lane.traffic, 600, 10.0)
    calls = [Waits(), Waits()]
    for call in calls:
        assert lane.ask(call, now) > now
    assert lane.wait_of(calls[1], now) == pytest.approx(2.0 * (now - 10.0))
    assert lane.wait_of(calls[1], now + 10.0) < 1.0


def test_where_some_are_served_a_longer_row_is_needed() -> None:
    """Clients that share what an upstream takes refuse each other's calls, five in a row now and then."""
    row = AllRefused()
    row.begin(0, 0.0, False, -1.0)
    row.served(0.5)
    found = [row.refused(0.9 + 0.1 * number, 0.01, True, 1.0 + 0.1 * number) for number in range(25)]
    assert not any(found[:19])
    assert found[19]
