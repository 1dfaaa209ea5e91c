"""The one coarse timer: deadlines, attempt and idle timeouts of all calls of a worker.

Law: a call that succeeds at once allocates no timer. Every 50 ms the calls in flight are looked over; one that has
something due before the next look gets an exact alarm then, so that timeouts are as exact as if each had its own. The
timer stops when nothing is in flight.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from proxy.transport.clock import monotonic

#: Seconds between looks.
TICK = 0.05


class Watched(Protocol):
    """Something with a time at which it wants to be looked at. `due` may be too early, never too late."""

    due: float

    def attend(self, now: float) -> float:
        """See to what is due; the time of the next thing."""
        ...

    def glance(self) -> None:
        """A look every tick, at what no event tells."""
        ...


class Watch:
    """Looks after what is watched."""

    __slots__ = ("_alarms", "_glanced", "_loop", "_next", "_timer", "active")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self.active: set[Watched] = set()
        self._alarms: dict[Watched, asyncio.TimerHandle] = {}
        self._glanced: set[Watched] = set()

    def add(self, watched: Watched, now: float) -> None:
        """Look after it from now on."""
        self.active.add(watched)
        if self._timer is None:
            self._next = now + TICK
            self._timer = self._loop.call_later(TICK, self._tick)
        if watched.due <= self._next:
            self._alarm(watched)

    def sooner(self, watched: Watched) -> None:
        """Its `due` has come nearer."""
        if watched.due <= self._next and watched in self.active:
            self._alarm(watched)

    def glance_at(self, watched: Watched) -> None:
        """Have it glance every tick, until it is removed."""
        self._glanced.add(watched)

    def remove(self, watched: Watched) -> None:
        """It is over."""
        self.active.discard(watched)
        if self._alarms:
            alarm = self._alarms.pop(watched, None)
            if alarm is not None:
                alarm.cancel()
        if self._glanced:
            self._glanced.discard(watched)

    def stop(self) -> None:
        """Look after nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _tick(self) -> None:
        self._timer = None
        if not self.active:
            return
        now = monotonic()
        self._next = now + TICK
        self._timer = self._loop.call_later(TICK, self._tick)
        # What is due before the timer may come again gets an exact alarm; it may come a little late.
        horizon = self._next + TICK
        for watched in [each for each in self.active if each.due <= horizon]:
            self._see_to(watched, now, horizon)
        for watched in list(self._glanced):
            watched.glance()

    def _see_to(self, watched: Watched, now: float, horizon: float) -> None:
        if watched in self._alarms:
            return
        watched.due = watched.attend(now)
        if watched.due <= horizon and watched in self.active:
            self._alarm(watched)

    def _alarm(self, watched: Watched) -> None:
        before = self._alarms.pop(watched, None)
        if before is not None:
            before.cancel()
        self._alarms[watched] = self._loop.call_at(watched.due, self._ring, watched)

    def _ring(self, watched: Watched) -> None:
        self._alarms.pop(watched, None)
        if watched not in self.active:
            return
        now = monotonic()
        if now < watched.due:  # the loop's clock is whole milliseconds: it may ring a little early
            self._alarms[watched] = self._loop.call_later(0.001, self._ring, watched)
            return
        watched.due = watched.attend(now)
        self.sooner(watched)
