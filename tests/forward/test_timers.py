"""The watch over calls in progress: whatever one of them does, the timeouts of the others come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.forward.timers import TICK, Alarm, Watch
from proxy.transport.clock import monotonic

NEVER = float("inf")


class Call:
    """A call that is due at a time, and over when it was attended to; `breaks`: it has a defect."""

    def __init__(self, due: float, *, breaks: bool = False) -> None:
        self.due = due
        self.breaks = breaks
        self.over = False
        self.attended = asyncio.Event()

    def attend(self, now: float) -> float:
        if self.breaks:
            raise ValueError("a defect")
        if now < self.due:
            return self.due
        self.over = True
        self.attended.set()
        return NEVER


class Connection:
    """A connection with one call; `breaks`: a look at it fails."""

    def __init__(self, call: Call, *, breaks: bool = False) -> None:
        self.call = call
        self.breaks = breaks
        self.watched = False
        self.glanced = 0

    def calls(self) -> Sequence[Call]:
        return () if self.call.over else (self.call,)

    def glance(self, *, closely: bool) -> None:
        self.glanced += 1
        if self.breaks:
            raise ValueError("a defect")


def watched(*connections: Connection) -> tuple[Watch, list[Any]]:
    """A watch over these connections, and what is reported of defects."""
    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    watch = Watch(loop)
    for connection in connections:
        watch.enter(connection, monotonic())
    return watch, reported


async def test_a_look_that_fails_keeps_no_timeout_back() -> None:
    late = Call(monotonic() + 5 * TICK)
    broken, waits = Connection(Call(NEVER), breaks=True), Connection(late)
    watch, reported = watched(broken, waits)
    watch.glance_at(broken)
    watch.glance_at(waits)
    async with asyncio.timeout(30):
        await late.attended.wait()
    assert [str(each) for each in reported] == ["a defect"]
    assert broken.glanced == 1, "it is not looked at again"
    assert waits.glanced
    watch.stop()


async def test_a_call_with_a_defect_keeps_no_timeout_back() -> None:
    now = monotonic()
    soon, late = Call(now + TICK), Call(now + 5 * TICK)
    watch, reported = watched(Connection(Call(now, breaks=True)), Connection(soon), Connection(late))
    async with asyncio.timeout(30):
        await soon.attended.wait()
        await late.attended.wait()
    assert [str(each) for each in reported] == ["a defect"]
    watch.stop()


async def test_an_alarm_that_is_due_rings_even_if_it_is_set_to_now_in_each_turn_of_the_loop() -> None:
    rung: list[float] = []
    loop = asyncio.get_running_loop()
    alarm = Alarm(loop, list.append, rung, monotonic())

    def again() -> None:
        if not rung:
            loop.call_soon(again)
            alarm.set(monotonic())

    again()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(rung) == 1


async def test_an_alarm_that_is_due_may_be_set_to_a_later_time() -> None:
    rung: list[float] = []
    alarm = Alarm(asyncio.get_running_loop(), list.append, rung, monotonic())
    alarm.set(later := monotonic() + 0.02)
    async with asyncio.timeout(30):
        while not rung:  # noqa: ASYNC110  a state
            await asyncio.sleep(0)
    assert rung[0] >= later


async def test_a_function_is_called_at_the_next_check_though_no_call_is_in_progress_and_another_fails() -> None:
    watch, reported = watched()
    done = asyncio.Event()

    def breaks() -> None:
        raise ValueError("a defect")

    watch.at_tick(breaks)
    watch.at_tick(done.set)
    assert not done.is_set()
    async with asyncio.timeout(30):
        await done.wait()
    assert [str(each) for each in reported] == ["a defect"]
    done.clear()
    watch.at_tick(done.set)  # the checks ended: they begin again
    async with asyncio.timeout(30):
        await done.wait()
    watch.stop()


class DelaysAlone:
    """A loop that keeps the delays that it is asked for."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: object, *, context: object) -> None:
        self.delays.append(delay)


@given(st.floats(1e-3, 3600.0))
def test_an_alarm_is_set_for_the_first_millisecond_of_the_loop_that_is_not_too_soon(wait: float) -> None:
    """The loop's timer counts from the millisecond that has begun: set for the time between, it would go off too soon,
    and be set twice.
    """
    loop: Any = DelaysAlone()
    before = monotonic()
    at = before + 1.0 + wait
    Alarm(loop, list.append, [], at)
    after = monotonic()
    [delay] = loop.delays
    begun = math.ceil(at * 1000) - round(delay * 1000)  # the millisecond from which the loop counts
    assert math.floor(before * 1000) <= begun <= math.floor(after * 1000)
