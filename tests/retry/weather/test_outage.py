"""An outage by itself: when it begins, who probes, and what calls get that come late (contract, section 14)."""

from __future__ import annotations

import pytest

from proxy.retry.weather.lost_rows import LostRows
from proxy.retry.weather.outage import LATE_WAIT, Outage

HOLD = 20.0


class Counted:
    """A lane's outage, with the attempts in a row that are counted for it."""

    def __init__(self, outage: Outage | None = None) -> None:
        self.outage = Outage() if outage is None else outage
        self.rows = LostRows()

    def answered(self, now: float) -> None:
        self.rows.endpoint_answered("")
        self.outage.answered(now)

    def lost(self, now: float, share: float, again: bool = False) -> bool:
        row = self.rows.lost_endpoint("", "reset", self.outage.answered_at, now)
        return self.outage.lost(now, share, row, again)


def in_outage(now: float = 100.0) -> Outage:
    """An outage whose first attempt failed at this time."""
    counted = Counted()
    counted.answered(now - 1)
    assert not counted.lost(now, 0.0)
    assert counted.lost(now, 0.0, again=True)
    return counted.outage


def in_vain() -> Outage:
    """An outage that began at 100 s, and held a call in vain; its last probe ended at 121 s."""
    outage = in_outage()
    outage.held_in_vain()
    for now in range(117, 122):
        outage.probes(outage)
        outage.probe_ended(now, lost=True)
    return outage


def late(outage: Outage, now: float, *, is_first: bool = True, retries: bool = False) -> float | None:
    return outage.late_wait(now, HOLD, is_first=is_first, retries=retries)


def test_five_attempts_in_a_row_begin_an_outage_if_they_take_a_tenth_of_a_second() -> None:
    outage = Counted()
    outage.answered(1.0)
    assert [outage.lost(2.0 + n / 100, 0.0) for n in range(10)] == [False] * 10
    assert outage.lost(2.11, 0.0)
    assert outage.outage.since == 2.0


def test_an_answer_begins_the_row_again() -> None:
    outage = Counted()
    outage.answered(1.0)
    assert not any(outage.lost(2.0 + n, 0.0) for n in range(4))
    outage.answered(6.5)
    assert [outage.lost(7.0 + n, 0.0) for n in range(5)] == [False] * 4 + [True]


def test_more_in_a_row_are_needed_where_attempts_often_fail() -> None:
    outage = Counted()
    outage.answered(1.0)
    assert [outage.lost(2.0 + n, 0.5) for n in range(10)] == [False] * 9 + [True]  # 0.5 ** 10 < 0.001


def test_an_endpoint_that_has_not_answered_for_ten_minutes_has_no_outage() -> None:
    outage = Counted()
    assert not any(outage.lost(2.0 + n, 0.0, again=True) for n in range(10))
    outage.answered(20.0)
    assert not any(outage.lost(621.0 + n, 0.0, again=True) for n in range(10))


def test_probes_are_a_second_apart_in_the_end() -> None:
    outage, gaps, now = in_outage(), [], 100.0
    for _ in range(6):
        gaps.append(outage.probe_at - now)
        now = outage.probe_at
        outage.probes(outage)
        outage.probe_ended(now, lost=True)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_call_within_hold_does_not_come_late() -> None:
    assert late(in_outage(), 120.0) is None


def test_a_late_call_waits_for_the_probe_under_way() -> None:
    outage = in_outage()
    outage.probes(outage)
    assert late(outage, 130.0, is_first=False) == LATE_WAIT


def test_a_late_call_is_the_next_probe_if_the_last_is_two_seconds_ago() -> None:
    assert late(in_vain(), 123.1) == LATE_WAIT
    outage = in_outage()
    outage.probe_ended(121.0, lost=True)
    assert late(outage, 123.1) == LATE_WAIT
    assert late(outage, 122.9) == 0.0


def test_calls_that_come_one_shortly_after_another_probe_twice_a_second() -> None:
    outage = in_vain()
    assert [late(outage, 121.1 + n / 10) for n in range(5)] == [0.0, 0.0, 0.0, LATE_WAIT, LATE_WAIT]
    assert late(outage, 121.5, is_first=False, retries=True) == 0.0
    outage.probes(outage)
    outage.probe_ended(122.0, lost=True)
    assert 122.5 < outage.probe_at < 122.6


def test_after_a_call_was_held_in_vain_late_calls_wait_for_the_end_of_the_next_probe() -> None:
    """The outage may be over by then: calls that are answered at once would be served without a proxy."""
    outage = in_vain()
    assert outage.probe_at == pytest.approx(122.3)
    waits = [late(outage, now, is_first=False) for now in (121.4, 121.6, 122.2, 122.4)]
    assert waits == pytest.approx([0.0, 0.9, 0.3, 0.2]), "no longer than a second"
    assert late(outage, 122.4, is_first=False, retries=True) == 0.0


def test_calls_far_apart_are_probes_less_often_than_every_second() -> None:
    """A probe that can't connect is sent again at once, and two attempts a second are allowed."""
    outage = in_vain()
    for n in range(3):
        outage.probe_ended(122.0 + 1.1 * n, lost=True)
        assert outage.probe_at == pytest.approx(123.3 + 1.1 * n)
        assert late(outage, 122.2 + 1.1 * n) == 0.0


def test_before_a_call_was_held_in_vain_none_but_the_probes_are_sent() -> None:
    outage = in_outage()
    outage.probe_ended(121.0, lost=True)
    assert [late(outage, 121.1 + n / 10) for n in range(9)] == [0.0] * 9


def test_the_retry_of_the_only_call_is_not_delayed() -> None:
    assert late(in_vain(), 121.1, retries=True) == LATE_WAIT
    outage = in_vain()
    assert late(outage, 121.1) == 0.0
    assert late(outage, 121.2, retries=True) == 0.0


def test_an_outage_that_begins_again_before_an_answer_is_the_same_one() -> None:
    outage = in_vain()
    outage.forget()
    assert late(outage, 1000.0) is None
    counted = Counted(outage)
    counted.lost(1000.0, 0.0)
    assert counted.lost(1000.1, 0.0, again=True)  # although the last answer came more than ten minutes ago
    assert outage.since == 100.0
    assert late(outage, 1000.2, retries=True) == LATE_WAIT
    assert late(outage, 1000.2) == pytest.approx(0.2)
    counted.answered(1001.0)
    counted.lost(1002.0, 0.0)
    assert counted.lost(1002.1, 0.0, again=True)
    assert outage.since == 1002.0


def test_two_endpoints_that_are_out_are_probed_in_turn_so_that_the_end_is_noticed_sooner() -> None:
    first, second = in_outage(), in_outage()
    for number in range(8):  # the gap is one second by then
        for each in (first, second):
            each.probes(each)
            each.probe_ended(110.0 + number, lost=True)
    assert first.probe_at == second.probe_at == 118.0
    second.keep_apart(first, 2)
    assert second.probe_at == 117.5
    second.keep_apart(first, 2)
    assert second.probe_at == 117.5


def test_six_endpoints_that_are_out_take_turns_so_that_two_probes_a_second_are_sent_in_all() -> None:
    outages = [in_outage() for _ in range(6)]
    sent = []
    now = 110.0
    while now < 150.0:
        due = min(outages, key=lambda each: each.probe_at)
        now = max(now, due.probe_at)
        sent.append(now)
        due.probes(due)
        due.probe_ended(now, lost=True)
        for other in outages:
            if other is not due:
                due.keep_apart(other, 6)
    late = [at for at in sent if at > 120.0]
    assert max(sum(at <= each < at + 5.0 for each in late) for at in late if at < 145.0) <= 10


def test_an_endpoint_among_many_that_are_out_is_probed_often_enough_that_its_outage_is_known() -> None:
    outages = [in_outage() for _ in range(40)]
    for number in range(8):
        for each in outages:
            each.probes(each)
            each.probe_ended(110.0 + number, lost=True)
            for other in outages:
                if other is not each:
                    each.keep_apart(other, 40)
    assert all(each.is_known(each.probe_at) for each in outages)


def test_an_endpoint_is_probed_soon_once_another_that_was_out_has_answered() -> None:
    outage = in_outage()
    for number in range(8):
        outage.probes(outage)
        outage.probe_ended(110.0 + number, lost=True)
    outage.probe_soon(117.2)
    assert outage.probe_at == pytest.approx(117.3)
    assert outage.is_on


def test_a_probe_that_takes_long_to_answer_is_not_the_only_one_for_more_than_a_second() -> None:
    outage = in_outage()
    outage.probes(object())
    outage.expect_late(101.0)
    assert not outage.is_due(101.9)
    assert outage.is_due(102.0)


def test_a_probe_that_is_answered_soon_as_a_rule_is_the_only_one_until_its_end() -> None:
    outage = in_outage()
    outage.probes(object())
    assert not outage.is_due(130.0)


def test_a_probe_that_another_one_follows_is_one_until_it_ends_and_does_not_time_the_next() -> None:
    outage, waiter, first, second = in_outage(), object(), object(), object()
    outage.probes(waiter)
    outage.expect_late(101.0)
    outage.probes(second)
    outage.sent(waiter, first)
    assert outage.is_probe(first)
    assert outage.ended(first, 105.0, lost=True)
    assert outage.probe is second
    assert not outage.is_probe(first)
    assert not outage.ended(first, 105.0, lost=True)
    assert outage.ended(second, 106.0, lost=True)
    assert outage.probe_at == pytest.approx(106.2)
