"""Whether what an upstream says of a limit is believed: a success that could not have been shows that it is wrong."""

from __future__ import annotations

import pytest

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.capacity.report_trust import LASTS, ReportTrust


def said(remaining: float, reset: float = 10, limit: float | None = None) -> ReportedLimit:
    return ReportedLimit("l", "attempts", remaining, limit, reset)


def test_a_success_where_nothing_was_left_shows_that_a_report_is_wrong() -> None:
    trust = ReportTrust()
    assert trust.takes(said(0), spent=1, order=1, since=0, now=1)
    assert trust.takes(said(0), spent=2, order=2, since=0.5, now=2)  # sent before the report came
    assert not trust.doubts("l", 2)
    trust.takes(said(0), spent=3, order=3, since=1, now=3)
    assert trust.doubts("l", 3)
    assert not trust.doubts("other", 3)
    assert trust.doubts("l", 3 + LASTS - 1)
    assert not trust.doubts("l", 3 + LASTS)


def test_all_that_says_so_since_the_first_report_counts_as_one() -> None:
    """Answers that say it again do not put off what was sent meanwhile."""
    trust = ReportTrust()
    trust.takes(said(0), spent=1, order=1, since=0, now=1)
    trust.takes(said(0), spent=2, order=2, since=0, now=4)
    trust.takes(said(0), spent=3, order=3, since=2, now=5)
    assert trust.doubts("l", 5)


def test_a_success_about_the_time_of_the_reset_shows_nothing() -> None:
    trust = ReportTrust()
    trust.takes(said(0), spent=1, order=1, since=0, now=1)
    trust.takes(said(0), spent=2, order=2, since=1 + 9, now=11)
    assert not trust.doubts("l", 11)
    trust.takes(said(0), spent=2, order=2, since=12, now=13)  # of the second, which came at 11
    assert trust.doubts("l", 13)


@pytest.mark.parametrize(("remaining", "wrong"), [(0, True), (2.4, True), (2.5, False), (9, False)])
def test_a_limit_that_fills_up_all_the_time_shows_that_with_the_next_report(remaining: float, wrong: bool) -> None:
    """Of the eleven that came back within 1.1 s, one was used; a quarter of the rest is enough."""
    trust = ReportTrust()
    trust.takes(said(0, limit=100), spent=0, order=0, since=0, now=0)
    trust.takes(said(remaining, limit=100), spent=1, order=1, since=1.1, now=2)
    assert trust.doubts("l", 2) is wrong


@pytest.mark.parametrize(("remaining", "wrong"), [(0, True), (1, False)])
def test_where_too_little_came_back_to_tell_the_next_report_counts(remaining: float, wrong: bool) -> None:
    trust = ReportTrust()
    trust.takes(said(0, limit=9), spent=0, order=0, since=0, now=0)
    trust.takes(said(remaining, limit=9), spent=1, order=1, since=1, now=2)
    assert trust.doubts("l", 2) is wrong


def test_after_three_reports_in_a_row_the_next_one_is_put_aside_and_tested() -> None:
    trust = ReportTrust()
    assert [trust.takes(said(0, 1), spent=n, order=n, since=2 * n, now=2 * n + 1) for n in range(4)] == [True] * 3 + [
        False
    ]
    trust.takes(said(0, 1), spent=5, order=5, since=7, now=8)
    assert trust.doubts("l", 8)
    assert [trust.takes(said(0, 1), spent=n, order=n, since=2 * n, now=2 * n + 1) for n in range(9, 13)] == [True] * 4


def test_a_report_that_something_is_left_begins_the_row_anew() -> None:
    trust = ReportTrust()
    for number in range(3):
        assert trust.takes(said(0, 1), spent=number, order=number, since=2 * number, now=2 * number + 1)
    assert trust.takes(said(1, 1), spent=4, order=4, since=7, now=8)
    assert [trust.takes(said(0, 1), spent=n, order=n, since=2 * n, now=2 * n + 1) for n in range(5, 9)] == [
        True
    ] * 3 + [False]


def test_a_refusal_where_nothing_was_left_proves_a_report_for_ten_minutes() -> None:
    for since, proven in ((0.5, False), (1, True), (1.8, True), (1.9, False)):
        trust = ReportTrust()
        trust.takes(said(0, 1), spent=0, order=0, since=0, now=1)
        trust.refused(since, 2)
        rows = [trust.takes(said(0, 1), spent=n, order=n, since=2 * n, now=2 * n + 1) for n in range(1, 6)]
        assert all(rows) is proven
    trust = ReportTrust()
    trust.takes(said(0, 1), spent=0, order=0, since=0, now=1)
    trust.refused(1, 2)
    later = int(LASTS)
    assert not all(
        trust.takes(said(0, 1), spent=n, order=n, since=2 * n, now=2 * n + 1) for n in range(later, later + 5)
    )


def test_tests_for_several_calls_are_a_minute_apart_and_none_is_made_of_what_is_proven_or_doubted() -> None:
    trust = ReportTrust()
    assert [trust.tests("l", now) for now in (0, 1, 59, 60, 61)] == [True, False, False, True, False]
    for since, until in ((1, 2 + LASTS), (0.5, 61)):
        trust = ReportTrust()
        trust.takes(said(0), spent=1, order=1, since=0, now=1)
        trust.refused(since, 2)
        assert trust.tests("l", until - 1) is (since < 1)
        assert trust.tests("l", until) is (since == 1)
    trust = ReportTrust()
    trust.takes(said(0), spent=1, order=1, since=0, now=1)
    trust.takes(said(0), spent=2, order=2, since=1, now=2)
    assert not trust.tests("l", 1 + LASTS)
    assert trust.tests("l", 2 + LASTS)


@pytest.mark.parametrize(
    ("left", "limit", "since", "wrong"),
    [
        (99, 100, 10.0, True),
        (99, 100, 29.0, False),  # about the time that was named, given the second that is rounded and the answer's
        (85, 100, 10.0, False),  # a limit that fills up evenly, faster than it says
        (99, 200, 10.0, False),  # it is another limit now
        (99, 100, 0.5, False),  # sent before the report came that little is left
    ],
)
def test_a_limit_that_is_whole_again_long_before_its_reset_has_a_wrong_one(
    left: float, limit: float, since: float, wrong: bool
) -> None:
    trust = ReportTrust()
    trust.takes(said(20, 40, limit=100), spent=80, order=80, since=0, now=1)
    trust.takes(said(left, 40, limit=limit), spent=81, order=81, since=since, now=since + 1)
    assert trust.doubts("l", 40) is wrong


def test_what_is_forgotten_is_believed() -> None:
    trust = ReportTrust()
    trust.takes(said(0), spent=1, order=1, since=0, now=1)
    trust.takes(said(0), spent=2, order=2, since=1, now=2)
    trust.forget("l")
    assert not trust.doubts("l", 2)


@pytest.mark.parametrize(("remaining", "wrong"), [(0, True), (1, False)])
def test_a_test_shows_it_if_nothing_is_left_only_by_what_was_sent_since_the_report(remaining: int, wrong: bool) -> None:
    """Three were left, four were sent since, and the fifth is served."""
    trust = ReportTrust()
    assert trust.takes(said(3, limit=10), spent=1, order=1, since=0, now=0)
    trust.test_begins(said(3, limit=10), spent=1, came=0, now=0.5)
    trust.test_shows(said(remaining, limit=10), spent=3, since=0.4, now=1)
    assert not trust.doubts("l", 1), "it was sent before the test"
    trust.test_shows(said(remaining, limit=10), spent=6, since=0.5, now=2)
    assert trust.doubts("l", 2) is wrong


def after_a_test(trust: ReportTrust, last: ReportedLimit, now: float, since: float = 5) -> bool:
    """Play a test that is sent at `since`, when twelve were sent since the report of three seconds that nothing is
    left, and that is answered `now` with the report `last`. Returns whether the reports are known to be wrong.
    """
    trust.test_begins(said(0, 7, limit=10), spent=8, came=3, now=since)
    trust.test_shows(last, spent=20, since=since, now=now)
    return trust.doubts("l", now)


@pytest.mark.parametrize(("reset", "last", "wrong"), [(7, 4, True), (9, 9, False)])
def test_nothing_comes_back_before_a_reset_that_is_not_put_off(reset: float, last: float, wrong: bool) -> None:
    """If the limit filled up all the time, others could have used what came back before the test."""
    trust = ReportTrust()
    trust.takes(said(5, 10, limit=10), spent=1, order=1, since=0, now=0)
    trust.takes(said(0, reset, limit=10), spent=8, order=8, since=0, now=3)
    assert after_a_test(trust, said(0, last, limit=10), 6) is wrong


@pytest.mark.parametrize(("since", "wrong"), [(3.5, True), (8.9, True), (9, False)])
def test_a_test_that_is_answered_after_the_reset_shows_it_too_if_nothing_comes_back_before(
    since: float, wrong: bool
) -> None:
    """Resets are rounded to seconds, so that an attempt of the last second may be one of the next window."""
    trust = ReportTrust()
    trust.takes(said(5, 10, limit=10), spent=1, order=1, since=0, now=0)
    trust.takes(said(0, 7, limit=10), spent=8, order=8, since=0, now=3)
    assert after_a_test(trust, said(6, 9, limit=10), 11, since=since) is wrong
    assert not after_a_test(ReportTrust(), said(6, 9, limit=10), 11, since=since)


def after_a_test_of_tokens(trust: ReportTrust, at: float, *, cost: float, left: float = 0) -> bool:
    """Play a test, half a second after a report that no tokens are left of a thousand that fill up in ten seconds: an
    attempt that costs so much succeeds, and `left` are left then. Returns whether the reports are known to be wrong.
    """
    none = ReportedLimit("l", "tokens", 0, 1000, 10)
    trust.test_begins(none, spent=0, came=at, now=at + 0.5)
    trust.test_shows(
        ReportedLimit("l", "tokens", left, 1000, 10), spent=2 * cost, since=at + 0.5, now=at + 1, scale=0.5
    )
    return trust.doubts("l", at + 1)


def test_two_tests_in_a_row_that_cost_more_than_can_have_come_back_show_that_a_limit_of_tokens_is_wrong() -> None:
    trust = ReportTrust()
    assert not after_a_test_of_tokens(trust, 0, cost=101)
    assert after_a_test_of_tokens(trust, 2, cost=101)


def test_so_do_no_others() -> None:
    """Some providers serve a request as long as any is left, though it costs more than that."""
    for second, left in ((99.0, 0.0), (101.0, 1.0)):
        trust = ReportTrust()
        assert not after_a_test_of_tokens(trust, 0, cost=101)
        assert not after_a_test_of_tokens(trust, 2, cost=second, left=left)
        assert not after_a_test_of_tokens(trust, 4, cost=101)
    trust = ReportTrust()
    trust.tests("l", 0.5)
    assert not after_a_test_of_tokens(trust, 0, cost=101)
    trust.refused(0.5, 2)
    assert not after_a_test_of_tokens(trust, 2, cost=101)
