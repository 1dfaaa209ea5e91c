"""The virtual clock: one order for what happens at one instant, and the same run every time."""

from __future__ import annotations

from proxy.lab.clock import ALARM, BEGIN, DEADLINE, UPSTREAM, Clock
from proxy.lab.request_body import BufferBudget


def test_at_one_instant_the_upstream_comes_first_and_deadlines_last() -> None:
    clock, events = Clock(), []
    for rank in (DEADLINE, BEGIN, ALARM, UPSTREAM):
        clock.at(1.0, rank, events.append, rank)
    clock.run()
    assert events == [UPSTREAM, ALARM, BEGIN, DEADLINE]
    assert clock.now == 1.0


def test_events_of_one_rank_happen_as_they_were_asked_for() -> None:
    clock, events = Clock(), []
    for name in "abc":
        clock.at(1.0, ALARM, events.append, name)
    clock.at(0.5, ALARM, events.append, "first")
    clock.run()
    assert events == ["first", "a", "b", "c"]


def test_sums_of_decimal_seconds_meet_at_one_instant() -> None:
    clock, events = Clock(), []
    for rank, when in ((BEGIN, 0.3), (UPSTREAM, 0.1 + 0.2), (ALARM, 0.7 + 0.1), (UPSTREAM, 0.8)):
        clock.at(when, rank, lambda *what: events.append((*what, clock.now)), rank)
    clock.run(0.3)
    assert events == [(UPSTREAM, 0.1 + 0.2), (BEGIN, 0.1 + 0.2)]  # though the sum is more than 0.3
    clock.run()
    assert events[2:] == [(UPSTREAM, 0.8), (ALARM, 0.8)]  # though this one is less than 0.8


def test_a_time_that_has_passed_is_now() -> None:
    clock, events = Clock(5.0), []
    clock.at(1.0, ALARM, lambda: events.append(clock.now))
    clock.run()
    assert events == [5.0]


def test_what_an_event_asks_for_at_its_own_instant_still_happens_then() -> None:
    clock, events = Clock(), []

    def answer_at_once() -> None:
        events.append("launch")
        clock.at(clock.now, UPSTREAM, events.append, "answer")

    clock.at(1.0, ALARM, answer_at_once)
    clock.at(1.0, DEADLINE, events.append, "deadline")
    clock.run()
    assert events == ["launch", "answer", "deadline"]


def test_it_stops_where_it_is_told_to() -> None:
    clock, events = Clock(), []
    clock.at(1.0, ALARM, events.append, 1)
    clock.at(2.0, ALARM, events.append, 2)
    clock.run(until=1.5)
    assert events == [1]
    clock.run()
    assert events == [1, 2]


def test_buffers_bound_one_call_and_all() -> None:
    buffers = BufferBudget(per_request=10, total=15)
    assert not buffers.keep(11)
    assert buffers.keep(10)
    assert not buffers.keep(6)
    assert buffers.keep(5)
    buffers.free(10)
    assert buffers.keep(6)
