"""The decision to send calls at reserved times (contract, sections 5 and 9, rule 1; decision 0015)."""

from __future__ import annotations

import pytest

from proxy.retry.capacity.reserving import Reserving
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.weather.lane import Lane


class Held:
    """A call that waits in a lane. `asked`: the times at which it was woken."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def retime(self, now: float) -> None:
        """Note that the lane has this call ask again."""
        self.asked.append(now)


class Shared(Lane):
    """A lane of several workers."""

    is_shared = True


def refused_at_once(made: Lane, delays: int) -> float:
    """Have an upstream name so many delays of a second, each in an answer to the first attempt after the one before,
    and serve two others. Returns the time of the last.
    """
    made.lasts = True
    assert made.start(1.0, 503, -1.0, 0.0)
    made.limit.evidence.delay_holds(object(), 0.0)
    calls = [Held() for _ in range(40)]
    for number, call in enumerate(calls):
        made.ask(call, 0.5 + number / 100)
    now = 0.0
    for _ in range(delays):
        made.release(now + 1.0)
        first, attempt = next(iter(made.due.admitted)), object()
        assert made.sent(first, attempt, now + 1.0)
        for _ in range(2):
            made.landed(object(), now + 0.9, now + 1.05, well=True)
        now += 1.1
        made.limit.evidence.delay_holds(attempt, now)
        made.start(1.0, 503, now - 0.1, now)
        made.landed(attempt, now - 0.1, now, well=False)
    return now


def test_after_delays_that_are_followed_by_a_refusal_times_are_reserved() -> None:
    made = Lane(Traffic())
    now = refused_at_once(made, 3)
    made.release(now + 1.0)
    assert made.limit.evidence.reserves_times(now + 1.0)
    assert made.limit.evidence.delays_by_chance(now + 1.0), "a delay holds only its own call"
    assert now + 1.0 < made.limit.pace.next_at <= now + 2.0


def test_after_two_such_delays_they_are_not() -> None:
    made = Lane(Traffic())
    now = refused_at_once(made, 2)
    made.release(now + 1.0)
    assert not made.limit.evidence.reserves_times(now + 1.0)


def test_workers_that_share_a_lane_reserve_no_times() -> None:
    made = Shared(Traffic())
    now = refused_at_once(made, 3)
    made.release(now + 1.0)
    assert not made.limit.evidence.reserves_times(now + 1.0)


def test_calls_are_sent_at_reserved_times() -> None:
    made = Lane(Traffic())
    now = refused_at_once(made, 3) + 1.0
    made.release(now)
    before, at = len(made.queue), made.limit.pace.next_at
    made.release((now + at) / 2)
    assert len(made.queue) == before
    made.release(at)
    assert len(made.queue) == before - 1


def test_times_that_are_of_no_use_are_not_reserved_again_soon() -> None:
    reserving = Reserving()
    assert not refused_first(reserving, 0.5)
    assert not refused_first(reserving, 1.0)
    assert refused_first(reserving, 2.0)
    assert not reserving.opens(0.5, 1.9)
    assert reserving.opens(0.5, 2.0)
    assert reserving.paces(9.9)
    assert not reserving.paces(10.1)
    assert reserving.is_on(60.0), "the next refusal has calls sent at them again"
    now, tested = 2.0, False
    while not tested and now < 9.0:
        at = reserving.times.plan(now, 20, 20.0)
        now = max(now, at)
        if reserving.times.plan(now, 20, 20.0) > now:
            continue
        call, attempt = object(), object()
        reserving.times.take(call, now)
        reserving.times.sent(call, attempt)
        tested = reserving.refused(attempt, now)
    assert tested, "chance is tested then"
    assert not reserving.is_on(now)
    refused_first(reserving, now + 1.0)
    refused_first(reserving, now + 1.5)
    assert not refused_first(reserving, now + 2.0)
    assert refused_first(reserving, now + 61.0)


def refused_first(reserving: Reserving, now: float) -> bool:
    """Have the first attempt after a delay refused. Returns whether times are reserved from `now` on."""
    attempt = object()
    reserving.sent(object(), attempt, now - 0.1)
    reserving.refused_held(attempt)
    return reserving.begins_at(now, may=True, rate=5.0)


def test_where_attempts_that_were_sent_at_once_are_served_requests_are_counted_and_no_times_reserved() -> None:
    reserving = Reserving()
    for second in range(4):
        for _ in range(3):
            attempt = object()
            reserving.sent(object(), attempt, float(second))
            reserving.served(attempt, 1.0)
        refused_first(reserving, second + 1.0)
    assert not refused_first(reserving, 6.0)


@pytest.mark.parametrize(("ratio", "reserves"), [(0.0, True), (2.9, True), (3.1, False)])
def test_where_answers_are_slow_there_is_a_queue_and_no_times_are_reserved(ratio: float, reserves: bool) -> None:
    reserving = Reserving()
    for number in range(8):
        reserving.served(object(), 20.0 if number < 5 else ratio)
    refused_first(reserving, 9.0)
    refused_first(reserving, 9.5)
    assert refused_first(reserving, 10.0) is reserves
