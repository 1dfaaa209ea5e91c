"""The order of calls over the workers of one machine: nearly that of their arrival."""

from __future__ import annotations

import pytest
from callers import Waiting, Worker, caller, factories

from proxy.retry.weather.lane import Lane
from proxy.stores.shared_memory.lane import POLL
from proxy.stores.shared_memory.longest_wait import AHEAD, LongestWait
from proxy.stores.shared_memory.records import Memory


def limited(memory: Memory, upstream: str, places: float = 1.0) -> list[Worker]:
    """Two workers whose lane has a limit of so many places."""
    two = [Worker(each, upstream) for each in factories(memory, 2)]
    for each in two:
        each.is_well(5.0)

    def begin(lane: Lane = two[0].governor.first) -> None:
        lane.limit.begin_elsewhere(places, places, 9.0)
        lane.lasts = True

    two[0].governor.first.change(begin, 9.0)
    return two


def test_a_place_goes_to_the_worker_whose_first_call_has_waited_longest(memory: Memory) -> None:
    """One worker has the only place. It gives it to the other, whose call came long before its own next one."""
    one, other = limited(memory, "longest")
    first, second, third = Waiting(), Waiting(), Waiting()
    assert one.ask(first, 10.0, caller()) == 10.0
    attempt = one.sends(first, 10.0)
    assert other.ask(second, 10.1, caller()) > 10.1
    assert one.ask(third, 10.7, caller()) > 10.7
    assert other.ask(second, 10.8, caller()) > 10.8  # every worker with a call that waits asks again
    one.answered(attempt, 10.9, caller())
    assert one.ask(third, 10.91, caller()) > 10.91
    assert other.ask(second, 10.92, caller()) == 10.92


def test_a_worker_takes_its_own_place_again_if_another_has_waited_hardly_longer(memory: Memory) -> None:
    one, other = limited(memory, "hardly")
    first, second, third = Waiting(), Waiting(), Waiting()
    assert one.ask(first, 10.0, caller()) == 10.0
    attempt = one.sends(first, 10.0)
    assert other.ask(second, 10.1, caller()) > 10.1
    assert one.ask(third, 10.1 + AHEAD / 2, caller()) > 10.1 + AHEAD / 2
    one.answered(attempt, 10.4, caller())
    assert one.ask(third, 10.41, caller()) == 10.41


def test_a_worker_that_does_not_ask_any_more_is_passed_over(memory: Memory) -> None:
    """It hangs, or was killed, with the call that has waited longest."""
    one, other = limited(memory, "hangs")
    first, third = Waiting(), Waiting()
    assert one.ask(first, 10.0, caller()) == 10.0
    attempt = one.sends(first, 10.0)
    assert other.ask(Waiting(), 10.1, caller()) > 10.1
    assert one.ask(third, 10.7, caller()) > 10.7
    one.answered(attempt, 10.8, caller())
    assert one.ask(third, 10.81, caller()) == 10.81


def test_a_worker_without_calls_holds_up_no_other(memory: Memory) -> None:
    one, other = limited(memory, "left")
    first, second, third = Waiting(), Waiting(), Waiting()
    assert one.ask(first, 10.0, caller()) == 10.0
    attempt = one.sends(first, 10.0)
    assert other.ask(second, 10.1, caller()) > 10.1
    assert one.ask(third, 10.7, caller()) > 10.7
    assert other.ask(second, 10.75, caller()) > 10.75
    other.governor.leave(second, 10.76)
    one.answered(attempt, 10.8, caller())
    assert one.ask(third, 10.81, caller()) == 10.81


def test_a_worker_whose_turn_it_is_not_asks_no_sooner_for_a_pace(memory: Memory) -> None:
    """A place is free, and the pace would allow a sending at once: the other worker makes it."""
    one, other = limited(memory, "paced", places=9.0)
    first, second, third = Waiting(), Waiting(), Waiting()
    lane = one.governor.first
    lane.change(lambda: lane.limit.pace.slow_down(0.2), 9.5)
    assert one.ask(first, 10.0, caller()) == 10.0
    one.answered(one.sends(first, 10.0), 10.1, caller())
    for waiter, worker, at in ((second, other, 10.2), (third, one, 14.0), (second, other, 14.9)):
        assert worker.ask(waiter, at, caller()) > at
    assert one.ask(third, 15.05, caller()) == 15.05 + POLL
    assert other.ask(second, 15.06, caller()) == 15.06


@pytest.mark.parametrize("workers", [2, 4])
def test_the_longest_wait_of_all_is_found_within_one_question_of_each(workers: int) -> None:
    waits, state = [LongestWait(number + 1) for number in range(workers)], LongestWait(0).state()
    since = {each: 10.0 - number for number, each in enumerate(waits)}
    for _ in range(2):
        for each in waits:
            each.restore(*state)
            each.note(since[each], 20.0)
            state = each.state()
    for each in waits:
        each.restore(*state)
    assert [each.may_send(since[each], 20.1) for each in waits] == [False] * (workers - 1) + [True]
    last = waits[-1]
    last.note(None, 20.1)
    waits[0].restore(*last.state())
    assert waits[0].may_send(since[waits[0]], 20.1)
