"""The part of a rate that one process has, without Redis: what it brings and when, and tokens that are reserved."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("redis")

from hypothesis import given
from hypothesis import strategies as st

from proxy.stores.redis.part import Grant, PartLease, Reserved


def leased(tokens: float, *, at: float = 0.0, part: float = 0.0, most: float = 0.0) -> PartLease:
    lease = PartLease(8.0)
    lease.send(0.0, at)
    lease.granted(Grant(tokens, part=part, most=most), at)
    return lease


def test_a_part_brings_tokens_up_to_its_room_and_for_its_time() -> None:
    lease = leased(1, part=2.0, most=5.0)
    assert (lease.has(2, 0.4), lease.has(2, 0.5)) == (False, True)
    lease.spend(2)
    assert lease.wait(3, 0.5) == 1.5
    assert lease.has(5, 4.0) and not lease.has(5.1, 4.0)
    lease.spend(5)
    assert lease.has(5, 8.0)
    lease.spend(5)
    assert lease.wait(1, 8.1) == math.inf  # it was not confirmed for 8 s
    assert lease.left == 0


def test_a_part_brings_nothing_while_a_report_is_under_way() -> None:
    lease = leased(0, part=2.0, most=5.0)
    assert lease.send(5, 1.0) == (0, 0, 2)
    assert not lease.has(2.1, 1.5)
    lease.granted(Grant(2, part=4.0, most=5.0), 1.5)
    assert lease.has(4, 2.0) and not lease.has(4.1, 2.0)


def test_a_part_that_was_given_up_brings_nothing() -> None:
    lease = leased(0, part=2.0, most=5.0)
    lease.drop_part()
    assert not lease.has(1, 3.0)


def test_reserved_tokens_come_one_after_the_other() -> None:
    lease = leased(2)
    lease.send(2, 0.0)
    lease.granted(Grant(7, 10.0, 0.5, 4), 0.0)  # one more at once, and four later
    assert (lease.left, lease.held, lease.has(4, 9.0)) == (3, 7, False)
    assert [lease.future.at(place) for place in (1, 2, 4, 9)] == [10.0, 10.5, 11.5, 11.5]
    lease.until = 100.0
    assert lease.has(5, 10.6)
    assert (lease.left, lease.future.count) == (5, 2)
    assert lease.send(6, 10.6) == (0, 0, 6)  # the last to come is returned first
    assert (lease.left, lease.future.count, lease.future.at(1)) == (5, 1, 11.0)


def test_a_remainder_that_is_not_kept_costs_no_reserved_token() -> None:
    lease = leased(0.25)
    lease.send(0.25, 0.0)
    lease.granted(Grant(2.25, 10.0, 0.5, 2), 0.0)
    assert lease.send(2, 1.0) == (0, 0, 2)
    assert (lease.left, lease.future.count, lease.future.at(1)) == (0, 2, 10.0)
    lease.granted(Grant(2), 1.0)
    assert lease.send(0, 2.0) == (0, 0, 0)
    assert lease.held == 0


def test_reserved_tokens_that_redis_took_back_do_not_come() -> None:
    lease = leased(0)
    lease.send(0, 0.0)
    lease.granted(Grant(4, 10.0, 0.5, 4), 0.0)
    lease.send(4, 1.0)
    lease.granted(Grant(1), 1.0)
    assert (lease.left, lease.future.count) == (0, 1)


def test_reserved_tokens_pay_for_a_price_above_the_capacity() -> None:
    lease = leased(20)
    lease.send(20, 0.0)
    lease.granted(Grant(60, 10.0, 0.5, 40), 0.0)
    lease.spend(50)
    assert lease.send(60, 1.0) == (50, 0, 10)
    assert (lease.left, lease.future.count, lease.future.at(1)) == (0, 10, 25.0)  # the first thirty are spent


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_as_many_tokens_come_as_were_reserved(steps: list[tuple[float, int, int]]) -> None:
    """Law: none comes before its time, and none is lost."""
    reserved, now, added, came, dropped = Reserved(), 0.0, 0, 0, 0
    last = 0.0
    for pause, more, fewer in steps:
        now += pause
        came += reserved.come(now)
        first = max(last, now) + 0.3
        reserved.add(first, 0.25, more)
        added += more
        last = max(last, first + 0.25 * more)
        drops = min(fewer, reserved.count)
        reserved.drop(fewer)
        dropped += drops
        assert came + dropped + reserved.count == added
        if reserved.count:
            assert reserved.at(1) > now
    came += reserved.come(last + 1)
    assert came + dropped == added


def test_tokens_put_back_while_reserved_ones_come_are_reported_as_earned() -> None:
    """Redis alone knows for how many of them the bucket has room: if each process of five kept them for its own calls,
    three bursts were sent at one time.
    """
    lease = leased(4)
    lease.spend(4)
    lease.send(0.0, 1.0)
    lease.granted(Grant(10, first=2.0, pause=1.0, reserved=10), 1.0)
    assert lease.put_back(6) == 6
    assert (lease.left, lease.held, lease.wait(6, 1.0)) == (0.0, 10.0, 6.0)
    assert lease.send(10.0, 1.0) == (4.0, 0.0, 10.0)


def test_a_process_that_stood_still_has_no_more_reserved_tokens_than_the_bucket_holds() -> None:
    lease = PartLease(8.0, capacity=2.0)
    lease.send(0.0, 0.0)
    lease.granted(Grant(10, first=0.1, pause=0.1, reserved=10), 0.0)
    assert not lease.has(3, 1.2)
    assert lease.has(2, 1.2)
    assert lease.send(5.0, 1.2) == (0.0, 0.0, 2.0)


def test_reserved_tokens_are_given_up_a_second_after_they_came() -> None:
    """Redis has counted them as spent since then."""
    lease = leased(0)
    lease.send(0.0, 0.0)
    lease.granted(Grant(3, first=0.1, pause=0.1, reserved=3), 0.0)
    assert lease.has(3, 1.2)
    assert not lease.has(3, 1.4)
