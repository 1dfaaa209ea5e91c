"""The watch over calls in progress: whatever one of them does, the timeouts of the others come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from proxy.forward.timers import TICK, Watch
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
