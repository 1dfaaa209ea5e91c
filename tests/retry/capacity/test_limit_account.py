"""What is left of the limits that answers report: the remainder, what came back, and what was sent since."""

from __future__ import annotations

import pytest

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.budgets.token_estimate import ONE, Estimate, Price, price_of
from proxy.retry.capacity.limit_account import Account

TOKENS: Price = (1.0, 100.0, 60.0, 40.0)


def said(
    remaining: float, limit: float | None = 10, reset: float = 10, *, window: float = 0.0, counts: str = "attempts"
) -> ReportedLimit:
    return ReportedLimit("l", counts, remaining, limit, reset, window)


def told(report: ReportedLimit, *, at: float = 0.0, price: Price = ONE, account: Account | None = None) -> Account:
    """An account with one attempt of this price, whose answer said this."""
    account = account or Account()
    account.heard(report, account.sent(price, at), at)
    return account


def left(account: Account, now: float) -> float | None:
    return dict(account.left(now)).get("l")


def test_what_attempts_sent_since_cost_is_taken_off() -> None:
    account = told(said(3))
    assert left(account, 1) == 3
    account.sent(ONE, 1)
    account.sent(ONE, 1)
    assert left(account, 1) == 1
    assert account.wait(ONE, 1) == 0
    assert account.wait(ONE, 1, promised=ONE) == 9
    account.sent(ONE, 1)
    account.sent(ONE, 1)
    assert left(account, 1) == 0  # never less
    assert account.wait(ONE, 1) == 9


@pytest.mark.parametrize(("counts", "cost"), [("attempts", 1), ("tokens", 100), ("prompt", 60), ("output", 40)])
def test_each_limit_takes_off_what_it_counts(counts: str, cost: float) -> None:
    account = told(said(1000, 2000, counts=counts), price=TOKENS)
    account.sent(TOKENS, 1)
    assert left(account, 1) == 1000 - cost
    assert price_of(Estimate(60, 40)) == TOKENS
    assert price_of(None) == ONE


def test_an_attempt_that_costs_nothing_of_a_limit_does_not_wait_for_it() -> None:
    account = told(said(0, 2000, counts="tokens"))
    assert account.wait(ONE, 1) == 0
    assert account.wait(TOKENS, 1) == 9


def test_a_call_larger_than_the_limit_fits_when_all_of_it_is_left() -> None:
    assert told(said(50, 50, counts="tokens")).wait(TOKENS, 1) == 0
    assert told(said(49, 50, counts="tokens")).wait(TOKENS, 1) == 9
    assert told(said(50, None, counts="tokens")).wait(TOKENS, 1) == 9


def test_a_window_that_is_named_refills() -> None:
    account = told(said(0, 10, 10, window=10))
    assert account.wait(ONE, 0) == 1
    assert account.wait(ONE, 0.5) == 0.5
    assert account.wait(ONE, 1) == 0
    assert left(account, 4) == 4
    assert left(told(said(9, 10, 10, window=10)), 5) == 10  # never above the limit


def test_the_time_until_it_is_whole_tells_the_refill_if_it_goes_with_the_use() -> None:
    account = told(said(9, 10, 1))
    assert left(account, 0.5) == 9
    told(said(8, 10, 2.1), account=account)
    assert left(account, 1) == pytest.approx(8 + 2 / 2.1)
    told(said(7.5, 10, 9), account=account)  # too little more was used to tell
    assert left(account, 1) == pytest.approx(7.5 + 2 / 2.1)
    told(said(2, 10, 20), account=account)  # it does not depend on the use
    assert left(account, 1) == 2


@pytest.mark.parametrize("second", [said(8.6, 10, 1.4), said(8, 10, 2.3), said(10, 10, 5), said(8, None, 2)])
def test_other_reports_tell_no_refill(second: ReportedLimit) -> None:
    """A use that is hardly another, rates that differ by more than a tenth, a limit that is whole or has no size."""
    account = told(second, account=told(said(9, 10, 1)))
    assert left(account, 0.5) == second.remaining


def test_of_answers_out_of_order_the_later_sent_requests_counts() -> None:
    account = Account()
    first, second = account.sent(ONE, 0), account.sent(ONE, 0)
    account.heard(said(5), second, 1)
    assert account.is_old("l", first[0], 2)
    assert not account.is_old("l", second[0], 2)  # another limit of the same answer may have the same name
    assert not account.is_old("other", first[0], 2)
    assert not account.is_old("l", first[0], 11)  # what the later one said is over


def test_after_its_reset_a_limit_is_whole_less_what_was_sent_since() -> None:
    account = told(said(0))
    assert account.wait(ONE, 9) == 1
    assert left(account, 10) == 10
    for _ in range(10):
        account.sent(ONE, 12)
    assert account.wait(ONE, 12) == 8  # as long as it took before
    assert left(account, 20) is None  # no answer came meanwhile: nothing is known
    assert account.wait(ONE, 20) == 0


def test_what_was_sent_before_the_reset_is_not_taken_off_the_new_window() -> None:
    account = told(said(2))
    account.sent(ONE, 9)
    account.sent(ONE, 10)
    assert left(account, 10) == 9


def test_an_answer_from_before_the_reset_says_nothing_of_the_time_after_it() -> None:
    account = Account()
    before = account.sent(ONE, 0)
    account.heard(said(0), before, 0)
    late, after = account.sent(ONE, 9), account.sent(ONE, 10)
    assert account.is_old("l", before[0], 10)
    assert account.is_old("l", late[0], 10)
    assert not account.is_old("l", after[0], 10)


def test_a_limit_without_a_size_is_not_known_after_its_reset() -> None:
    account = told(said(0, None))
    assert account.wait(ONE, 9) == 1
    assert account.wait(ONE, 10) == 0
    assert left(account, 10) is None


def test_an_answer_that_does_not_name_a_limit_ends_what_is_assumed_of_it() -> None:
    account = told(said(0))
    before = account.sent(ONE, 9)
    assert left(account, 10) == 10
    after = account.sent(ONE, 10)
    assert account.assumed(before[0]) == []
    assert account.assumed(after[0]) == ["l"]
    account.forget("l")
    assert account.wait(ONE, 10) == 0


def test_where_a_part_comes_back_one_attempt_finds_out_how_much() -> None:
    """A sliding window that names the time of its next part: at its reset it is not whole."""
    account = told(said(0, 10, 2))
    told(said(0, 10, 2), account=account, at=2)  # ten were to be back
    assert account.wait(ONE, 3) == 1
    assert account.wait(ONE, 4) == 0
    assert account.wait(ONE, 4, promised=ONE) == 2
    account.sent(ONE, 4)
    assert account.wait(ONE, 4) == 2
    told(said(4, 10, 2), account=account, at=4)
    assert account.wait(ONE, 4) == 0


def test_where_others_use_a_part_it_counts_as_theirs_after_the_next_reset() -> None:
    account = told(said(0, 10, 2))
    told(said(4.5, 10, 2), account=account, at=2)  # of the nine that the attempt left: others have used the rest
    assert left(account, 4) == 5.5


def test_what_is_forgotten_and_what_stays() -> None:
    account = told(said(8, 10, 2), account=told(said(9, 10, 1)))
    account.forget("l")
    assert left(account, 0) is None
    assert left(told(said(0, 10, 10), account=account), 1) == 1  # how it refills
    account.drop("l")
    assert left(told(said(0, 10, 10), account=account), 1) == 0


def test_the_time_of_a_reset_is_known() -> None:
    account = told(said(0))
    assert account.resets(10)
    assert not account.resets(9)


def test_of_several_limits_the_longest_wait_counts() -> None:
    account = told(said(0))
    account.heard(ReportedLimit("other", "attempts", 0, 10, 20), account.sent(ONE, 0), 0)
    assert account.wait(ONE, 0) == 20
    assert [name for name, _ in account.left(0)] == ["l", "other"]


def whole_again(account: Account, limit: float = 10) -> None:
    """All of a limit was used, and all of it was back at the reset that answers named, ten seconds later."""
    for number in range(10):
        account.heard(said(limit - 1 - number, limit), account.sent(ONE, number / 100), number / 100)
    account.heard(said(limit - 1, limit), account.sent(ONE, 11), 11)


def test_a_limit_that_only_this_process_uses_comes_back_as_what_was_sent_is_older_than_the_longest_period() -> None:
    """The fields of a sliding window name the time at which all of it is back."""
    account = Account()
    whole_again(account)
    for number in range(9):
        account.heard(said(8 - number), account.sent(ONE, 12 + number), 12 + number)
    assert account.wait(ONE, 20) == pytest.approx(1.01)  # what was sent at 11 counts until 21
    assert account.wait(ONE, 20, promised=ONE) == pytest.approx(2.01)
    account.heard(said(0), account.sent(ONE, 21.1), 21.1)
    assert account.wait(ONE, 21.1) == pytest.approx(0.91)


def test_what_was_sent_at_short_intervals_comes_back_little_by_little_too() -> None:
    """Sendings that follow each other closely are remembered together, but never for a large part of the period."""
    account = Account()
    for number in range(100):
        account.heard(said(99 - number, 100), account.sent(ONE, number / 100), number / 100)
    account.heard(said(99, 100), account.sent(ONE, 11), 11)  # all of it has come back
    for number in range(99):
        account.heard(said(98 - number, 100), account.sent(ONE, 12 + number / 20), 12 + number / 20)
    ten: Price = (10.0, 1.0, 1.0, 1.0)
    assert 21.0 <= 17 + account.wait(ONE, 17) <= 21.2  # what was sent at 11
    assert 22.4 <= 17 + account.wait(ten, 17) <= 22.6  # and the first nine of the others
    assert len(account._sent) < 50  # at any pace they are not many


def test_a_reset_that_attempts_put_off_is_that_of_a_sliding_window() -> None:
    """Each attempt's price comes back when the attempt is as old as the window."""
    account = Account()
    for number in range(10):
        account.heard(said(9 - number), account.sent(ONE, number), number)
    assert account.wait(ONE, 9) == pytest.approx(1.01)


def test_a_reset_that_stays_is_the_end_of_a_window() -> None:
    account = Account()
    for number in range(10):
        account.heard(said(9 - number, reset=20 - number), account.sent(ONE, number), number)
    assert account.holds(9) == "known"
    assert account.wait(ONE, 9) == 11
    assert left(account, 20) == 10
    account.sent(ONE, 20)
    assert 0 < account.wait(ONE, 20.001) < 0.01, "its time may be rounded"
    assert account.wait(ONE, 20.02) == 0


def test_of_a_limit_that_others_use_too_a_process_expects_its_own_part_after_the_reset() -> None:
    account = Account()
    account.heard(said(9, reset=2), account.sent(ONE, 0), 0)
    for number, remaining in enumerate((8, 5, 2, 0)):  # at each second one attempt, and two or three of others
        account.heard(said(remaining, reset=10 - number), account.sent(ONE, 2 + number), 2 + number)
    assert left(account, 12) == 4


def test_answers_that_take_long_beside_the_window_hold_no_call_where_others_use_the_limit() -> None:
    account = Account()
    account.heard(said(0, reset=9), account.sent(ONE, 0), 1, took=1)
    assert account.wait(ONE, 2) == 0
    account = Account()
    for number in range(10):
        account.heard(said(9 - number, reset=9), account.sent(ONE, number / 100), 1 + number / 100, took=1)
    assert account.wait(ONE, 2) > 0, "its own use is known at once"


def test_answers_that_take_a_fifth_of_the_window_hold_no_call_for_tokens() -> None:
    """What the attempts cost that are on their way is a guess then."""
    for took, holds in ((1.0, True), (2.5, False)):
        account = Account()
        for number in range(20):
            sent = account.sent(TOKENS, number / 100)
            account.heard(said(1900 - 100 * number, 2000, 9, counts="tokens"), sent, took, took=took)
        assert (account.wait(TOKENS, 3) > 0) is holds


def test_quick_answers_hold_calls_for_a_short_window_too() -> None:
    account = Account()
    account.heard(said(0, reset=1), account.sent(ONE, 0), 0.1, took=0.1)
    assert account.wait(ONE, 0.2) > 0


def test_tokens_that_cost_less_than_was_expected_are_counted_as_what_they_cost() -> None:
    account = Account()
    for number in range(20):
        sent = account.sent(TOKENS, number)
        account.heard(said(2000 - 50 * (number + 1), 2000, 30 - number, counts="tokens"), sent, number)
    before = dict(account.left(19))["l"]
    account.sent(TOKENS, 19.5)
    assert before - dict(account.left(19.5))["l"] < 60


def test_a_refusal_ends_what_is_thought_of_a_limit_that_is_whole_at_a_reset() -> None:
    account = told(said(3, reset=10))
    account.refused(1, 1, delay=3)
    assert account.reports == {}
    account = told(said(3, reset=10))
    account.refused(1, 1, delay=9)
    assert left(account, 10) == 10, "the delay ends with the window"


def test_a_refusals_delay_counts_more_than_a_reset_that_is_rounded() -> None:
    account = told(said(0, reset=10))
    account.refused(1, 1, delay=8.5)
    assert account.wait(ONE, 9.4) > 0
    assert account.wait(ONE, 9.5) == 0


def test_a_refusal_shows_that_nothing_is_left_of_a_sliding_window() -> None:
    account = Account()
    for number in range(9):
        account.heard(said(9 - number), account.sent(ONE, number), number)
    assert left(account, 10.5) == 2
    account.refused(10, 10.6, delay=2)
    assert left(account, 10.6) == 0
    assert account.wait(ONE, 10.6) == pytest.approx(0.41)


def test_a_limit_refills_at_its_own_rate_though_attempts_cost_less_than_their_estimates() -> None:
    account = Account()
    for _ in range(3):
        account.sent(TOKENS, 0)
    account = told(said(900, 1000, 10, window=10, counts="tokens"), price=TOKENS, account=account)
    assert left(account, 0.5) == pytest.approx(950)
    account.sent(TOKENS, 0.5)
    assert left(account, 0.5) == pytest.approx(950 - 85, abs=0.1)  # the scale is 1 - 0.2 × 0.75


def test_a_limit_without_a_size_may_be_tested() -> None:
    """It can't be known whether this process has used it up."""
    assert told(said(0, None)).test(5, 20, 1)


def refilled(account: Account, remaining: float, since: float, now: float) -> None:
    """Send an attempt whose answer says what is left of a limit of 1000 tokens that gets 100 of them a second."""
    sent = account.sent(TOKENS, since)
    reset = (1000 - remaining) / 100
    account.heard(said(remaining, 1000, reset, counts="tokens", window=10), sent, now, took=now - since)


def test_what_attempts_cost_of_a_limit_that_refills_is_learnt_from_what_it_got_meanwhile() -> None:
    """All that was ever sent is no measure of it: the limit is never full again at a reset."""
    account = Account()
    for second in range(1, 40):
        refilled(account, 100, float(second), second + 0.1)
    assert account._refills["l"].scale == pytest.approx(1.0, abs=0.01)


def test_after_a_refusal_a_limit_that_refills_has_got_nothing_before_its_report_came() -> None:
    account = Account()
    account.sent((1.0, 850.0, 500.0, 350.0), 1.0)  # what is used is this process's own use
    refilled(account, 50, 1.0, 1.2)
    assert account.wait(TOKENS, 1.5) == pytest.approx(0)
    account.sent(TOKENS, 1.5)
    account.refused(1.5, 1.5, delay=1.0)
    refilled(account, 50, 3.0, 3.2)
    assert account.wait(TOKENS, 3.5) == pytest.approx(0.2)


def test_answers_that_take_a_third_of_the_window_hold_no_call() -> None:
    account = Account()
    account.heard(said(0, 20, 2), account.sent(ONE, 0.0), 3.0, took=3.0)
    assert account.wait(ONE, 3.1) == 0


@pytest.mark.parametrize(("took", "holds"), [(0.2, True), (0.5, False)])
def test_a_limit_whose_window_is_named_holds_calls_if_answers_come_in_three_tenths_of_it(
    took: float, holds: bool
) -> None:
    """Slower ones would not show that it is in truth whole again all at once."""
    account = Account()
    for number in range(30):
        at = number / 5
        account.heard(said(5, 10, 0.5, window=1), account.sent(ONE, at), at + took, took=took)
    for _ in range(10):
        account.sent(ONE, 6.5)
    assert (account.wait(ONE, 6.5) > 0) is holds


def test_a_named_window_whose_reset_stays_comes_back_at_it_alone() -> None:
    account = Account()
    for number in range(11):  # of ten in five seconds
        told(said(10 - number, 10, 5 - number / 4, window=5), at=number / 4, account=account)
    assert account.wait(ONE, 3) == pytest.approx(2, abs=0.01), "an even refill would have brought one already"


def test_a_sliding_window_in_which_more_was_sent_than_is_used_holds_no_call() -> None:
    """Its reset is always named as ten seconds away; in truth what was sent comes back after one."""
    account = Account()
    for number in range(40):
        told(said(2, 10, 10), at=number / 8, account=account)
    for _ in range(3):
        account.sent(ONE, 5)
    assert account.wait(ONE, 5) == 0


def test_reports_of_more_than_there_can_be_do_not_make_attempts_seem_free() -> None:
    """Replicas of an upstream may each count by themselves: one answer says much less than the next."""
    account = Account()
    for second, remaining in enumerate([900, 700, 400, 300, 200, 100, 100, 100, 100, 100, 100, 100], start=1):
        replica(account, remaining, float(second))
    for at, remaining in (14.0, 100), (14.5, 100), (15.0, 950), (15.5, 900):
        replica(account, remaining, at)
    assert account._refills["l"].scale >= 0.75


def replica(account: Account, remaining: float, since: float) -> None:
    """Send an attempt of 100 tokens whose answer, 0.1 s later, says what is left of a limit of 1000 tokens, which gets
    100 a second, without naming its window.
    """
    sent = account.sent((1.0, 100.0, 50.0, 50.0), since)
    account.heard(said(remaining, 1000, (1000 - remaining) / 100, counts="tokens"), sent, since + 0.1, took=0.1)


def shares(account: Account, used: list[float], limit: float = 2000) -> None:
    """Attempts of a hundred tokens each, one a second, whose answers name a sliding window of a minute, and say that so
    many tokens are used of it.
    """
    for at, each in enumerate(used):
        told(said(limit - each, limit, 59.5 - 0.001 * at, counts="tokens"), at=float(at), price=TOKENS, account=account)


def test_more_tokens_in_a_sliding_window_than_there_can_be_show_that_its_limit_is_wrong() -> None:
    account = Account()
    shares(account, [100.0 * number for number in range(1, 21)])
    assert account.wait(TOKENS, 20) > 0
    for at in range(20, 60):
        told(said(0, 2000, 59.5, counts="tokens"), at=float(at), price=TOKENS, account=account)
        assert account.wait(TOKENS, at + 0.5) > 0 or at >= 29
    assert account.wait(TOKENS, 60) == 0


def test_tokens_that_cost_less_than_was_expected_show_no_such_thing() -> None:
    account = Account()
    shares(account, [20.0 * number for number in range(1, 101)])
    for at in range(100, 120):
        told(said(0, 2000, 59.5, counts="tokens"), at=float(at), price=TOKENS, account=account)
        assert account.wait(TOKENS, at + 0.5) > 0
