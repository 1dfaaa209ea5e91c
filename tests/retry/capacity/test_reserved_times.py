"""Calls sent at the moments at which others were served (contract, sections 5 and 9, rule 1; decision 0015)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from proxy.retry.capacity.reserved_times import ReservedTimes


def send(
    times: ReservedTimes, since: float, until: float, calls: float, is_served: Callable[[float], bool]
) -> list[float]:
    """Send calls at the moments between these times, as if so many came a second and some waited. `is_served` says of
    the time of each attempt whether it is served. Returns these times.
    """
    now, sent = since, []
    while (at := times.plan(now, 5, calls)) < until:
        now = at
        if times.plan(now, 5, calls) > now:
            continue  # new moments were chosen
        call, attempt = object(), object()
        times.take(call, now)
        times.sent(call, attempt)
        (times.served if is_served(now) else times.refused)(attempt)
        sent.append(now)
    return sent


def one_moment() -> tuple[ReservedTimes, float]:
    """Reserved times with one moment, which has served, and that moment, between 0 and 1."""
    times = ReservedTimes(12, 1.0, 0.0)
    [at] = send(times, 0.0, 1.0, 1.0, lambda now: True)
    return times, at


def test_attempts_are_sent_again_at_the_moments_that_served() -> None:
    times = ReservedTimes(12, 1.0, 0.0)
    first = send(times, 0.0, 1.0, 8.0, lambda now: True)
    assert len(first) >= 8
    again = send(times, 1.0, 1.999, 0.0, lambda now: True)
    assert all(pytest.approx(at + 1.0) in again for at in first)


def test_a_new_moment_that_is_refused_is_used_no_more() -> None:
    times = ReservedTimes(12, 1.0, 0.0)
    refused = send(times, 0.0, 1.0, 8.0, lambda now: False)
    again = send(times, 1.0, 1.999, 8.0, lambda now: True)
    assert again
    assert not [at for at in refused if pytest.approx(at + 1.0) in again]


def test_a_moment_that_served_is_given_up_after_two_refusals() -> None:
    times, at = one_moment()
    assert pytest.approx(at + 1.0) in send(times, 1.0, 1.999, 0.0, lambda now: False)
    assert pytest.approx(at + 2.0) in send(times, 2.0, 2.999, 0.0, lambda now: False)
    assert pytest.approx(at + 3.0) not in send(times, 3.0, 3.999, 0.0, lambda now: False)


def test_a_moment_that_no_call_uses_is_forgotten() -> None:
    times, at = one_moment()
    assert times.plan(at + 3.5, 0, 0.0) <= at + 4.0
    for period in range(4, 9):
        times.plan(at + period + 0.5, 0, 0.0)
    assert times.plan(at + 8.6, 0, 0.0) == pytest.approx(at + 9.5), "the next choice alone is due"


def test_a_call_that_leaves_takes_no_moment_with_it() -> None:
    times, at = one_moment()
    now = times.plan(at + 0.99, 0, 0.0)
    times.plan(now, 0, 0.0)
    times.take("call", now)
    times.left("call")
    times.sent("call", "attempt")
    times.refused("attempt")
    assert not times.are_vain


def test_clients_without_a_queue_come_to_send_at_moments_of_their_own() -> None:
    clients = [ReservedTimes(12, 0.7, number / 7) for number in range(5)]
    free_at, served, sent = 0.0, 0, 0
    for tick in range(3000):  # 30 seconds
        for client in clients:
            for now in due(client, tick / 100):
                is_served = now >= free_at
                end(client, now, is_served)
                free_at = now + 1 / 30 if is_served else free_at
                served, sent = served + (is_served and tick >= 1500), sent + (tick >= 1500)
    assert served / sent > 0.75, "at random moments it would be 60 %"
    assert served > 15 * 15, "of twenty calls a second"


def due(client: ReservedTimes, now: float) -> list[float]:
    """The time, if an attempt is due in this hundredth of a second; four calls come a second, and none waits."""
    at = client.plan(now, 0, 4.0)
    if now <= at < now + 0.01 and client.plan(at, 0, 4.0) == at:
        return [at]
    return []


def end(client: ReservedTimes, now: float, is_served: bool) -> None:
    """Send an attempt, which ends at once."""
    call, attempt = object(), object()
    client.take(call, now)
    client.sent(call, attempt)
    (client.served if is_served else client.refused)(attempt)


def test_where_chance_refuses_kept_moments_are_no_better() -> None:
    chance, times, found = random.Random(7), ReservedTimes(6, 0.7, 0.0), set[int]()

    def is_served(now: float) -> bool:
        if times.are_vain:
            found.add(int(now))
        return chance.random() < 0.5

    send(times, 0.0, 30.0, 10.0, is_served)
    assert found
    assert min(found) > 4, "it is judged after a while"


def test_where_all_is_refused_no_while_is_waited_for() -> None:
    times = ReservedTimes(100, 1.0, 0.0)
    send(times, 0.0, 3.0, 10.0, lambda now: False)
    assert times.are_vain
