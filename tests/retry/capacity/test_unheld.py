"""The test of whether a delay should hold only its own call (contract, sections 5 and 9, rule 1; decision 0015)."""

from __future__ import annotations

from proxy.retry.capacity.held_counts import HeldCounts
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.capacity.unheld import Unheld
from proxy.retry.weather.lane import Lane


class Held:
    """A call that waits in a lane."""

    def retime(self, now: float) -> None:
        """Do nothing: nothing wakes this call."""


def lane(calls: int = 100) -> Lane:
    """A lane in which an answer has named ten seconds at the time 0, and in which so many calls wait."""
    made = Lane(Traffic())
    assert made.start(10.0, 503, -1.0, 0.0)
    made.lasts = True
    made.limit.evidence.delay_holds(object(), 0.0)
    for number in range(calls):
        made.ask(Held(), 0.5 + number / 50)
    return made


def serve(made: Lane, now: float, count: int = 3) -> None:
    """Let so many attempts be served."""
    for _ in range(count):
        made.landed(object(), now - 0.1, now, well=True)


def test_where_hardly_any_call_is_served_calls_are_sent_at_a_pace_after_the_next_delay() -> None:
    made = lane()
    serve(made, 10.1)
    assert made.start(10.0, 503, 10.2, 10.3)
    assert not made.limit.evidence.delays_by_chance(20.0)
    made.release(20.3)
    assert made.limit.evidence.delays_by_chance(20.3)
    assert not made.start(10.0, 503, 20.3, 20.4), "a delay holds only its own call"
    assert made.limit.is_draining
    assert made.limit.pace.rate > 0.0


def test_where_most_calls_are_served_delays_hold() -> None:
    made = lane()
    serve(made, 10.1, count=80)
    assert made.start(10.0, 503, 10.2, 10.3)
    made.release(20.3)
    assert not made.limit.evidence.delays_by_chance(20.3)


def test_where_no_call_is_served_delays_hold() -> None:
    """Such an upstream is not asked more: it may be away."""
    made = lane()
    assert made.start(10.0, 503, 10.2, 10.3)
    made.release(20.3)
    assert not made.limit.evidence.delays_by_chance(20.3)


def begun(served: int = 10) -> tuple[Unheld, HeldCounts]:
    """A test that begins at the time 100. Of a hundred calls of the ten seconds before, so many were served."""
    test, counts = Unheld(), HeldCounts()
    for number in range(100):
        counts.call_came(90.0 + number / 10)
    counts.served = float(served)
    assert test.begins_at(100.0, 4.0)
    assert not test.opens(counts, 99.9)
    assert test.opens(counts, 100.0)
    assert test.is_on(100.0)
    assert test.paces(100.0)
    return test, counts


def send(test: Unheld, counts: HeldCounts, refused: str, now: float = 100.0, first: int = 0) -> float:
    """Send an attempt each quarter of a second; `r` is refused, `s` served. Returns the time after them."""
    for ended, how in enumerate(refused, first + 1):
        now += 0.25
        test.sent(counts, 3, now)
        if how == "r" and test.is_on(now):
            test.refused(counts, ended, 0, now)
        counts.served += how == "s"
    return now


def test_a_test_that_serves_more_is_followed_by_two_minutes_after_the_last_refusal() -> None:
    test, counts = begun()
    now = send(test, counts, "rs" * 20)
    last = now - 0.25
    assert test.is_on(last + 119.0)
    assert not test.is_on(last + 120.0)


def test_a_test_that_serves_no_more_ends_and_the_next_comes_after_twice_the_time() -> None:
    test, counts = begun(served=45)
    now = send(test, counts, "rsr" * 9)
    assert not test.is_on(now)
    ended = now
    assert not test.begins_at(ended + 15.0, 4.0)
    assert test.begins_at(ended + 25.0, 4.0)
    assert test.opens(counts, ended + 25.0)
    counts.served = 45.0
    now = send(test, counts, "r" * 30, ended + 25.0, first=100)
    assert not test.is_on(now)
    assert not test.begins_at(now + 30.0, 4.0)


def test_an_upstream_that_refuses_nearly_all_ends_it_at_once() -> None:
    test, counts = begun()
    send(test, counts, "r" * 14)
    assert not test.is_on(104.0)


def test_calls_are_not_paced_five_seconds_after_the_last_refusal() -> None:
    test, counts = begun()
    now = send(test, counts, "rs" * 20)
    assert test.paces(now + 4.0)
    assert not test.paces(now + 6.0)
    assert test.is_on(now + 6.0)


def test_where_less_is_served_than_by_holding_calls_are_held_again() -> None:
    test, counts = begun(served=20)
    now = send(test, counts, "rs" * 20)
    assert test.is_on(now)
    counts.served = 0.0
    test.refused(counts, 1000, 0, now + 30.0)
    assert not test.is_on(now + 30.0)


def test_a_longer_delay_begins_no_test_that_is_not_called_for() -> None:
    test, counts = Unheld(), HeldCounts()
    assert test.begins_at(10.0, 4.0)
    test.holds_again()
    assert not test.opens(counts, 10.0)
    assert test.pace is None


def test_the_pace_is_that_of_the_calls_of_the_latest_seconds() -> None:
    counts, unheld = HeldCounts(), Unheld()
    for number in range(200):
        counts.call_came(number / 10)
    assert counts.rate > 8.0
    assert unheld.begins_at(80.0, 10.0)
    assert unheld.opens(counts, 80.0)
    assert unheld.pace is not None and unheld.pace.rate < 4.0
