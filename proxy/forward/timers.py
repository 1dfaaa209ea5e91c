"""Timers of calls: one coarse timer for the deadlines, attempt and idle timeouts of all calls, and exact alarms.

A call that succeeds at once allocates no timer. Every 50 ms the calls in flight are checked; one that has something due
before the next check gets an exact alarm then, so that timeouts are as exact as if each had its own. The timer stops
when nothing is in flight.

What is entered is the app's connection, not the call: it stays entered from call to call until a check finds it idle,
so that a call on a busy connection costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from proxy.transport.clock import monotonic

#: Seconds between looks.
TICK = 0.05
#: Connections that are glanced at closely in one look; where there are more, they take turns.
CLOSELY = 100


_NEVER = float("inf")


class Alarm:
    """Calls `ring(now)` once, at `at` (seconds of `transport.clock`), never sooner: the loop's clock is whole
    milliseconds, and may be early by one.
    """

    __slots__ = ("_handle", "_loop", "_ring", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[float], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self.at = _NEVER

    def set(self, at: float) -> None:
        """Ring then, in the place of what was set before."""
        if self._handle is not None:
            self._handle.cancel()
        self.at = at
        self._handle = self._loop.call_at(at, self._due)

    def stop(self) -> None:
        """Cancel the alarm."""
        self.at = _NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        now = monotonic()
        if now < self.at:
            self._handle = self._loop.call_later(0.001, self._due)
            return
        self._handle = None
        self.at = _NEVER
        self._ring(now)


class Timed(Protocol):
    """A call with a time at which it wants to be looked at. `due` may be too early, never too late."""

    due: float
    over: bool

    def attend(self, now: float) -> float:
        """See to what is due; the time of the next thing."""
        ...


class Busy(Protocol):
    """A connection that has calls. `watched` is the watch's."""

    watched: bool

    def calls(self) -> Sequence[Timed]:
        """Those in progress."""
        ...

    def glance(self, *, closely: bool) -> None:
        """A look every tick, at what no event tells, where it was asked for. `closely`: one that costs something."""
        ...


class Watch:
    """Looks after calls. `next`: when the timer comes again; `alarms`: those of calls that have one of their own."""

    __slots__ = ("_glanced", "_loop", "_timer", "alarms", "busy", "next")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.next = 0.0
        self.busy: set[Busy] = set()
        self.alarms: dict[Timed, Alarm] = {}
        self._glanced: dict[Busy, None] = {}

    def enter(self, connection: Busy, now: float) -> None:
        """Look after the calls of this connection from now on."""
        connection.watched = True
        self.busy.add(connection)
        if self._timer is None:
            self.next = now + TICK
            self._timer = self._loop.call_later(TICK, self._tick)

    def sooner(self, call: Timed) -> None:
        """Its `due` has come nearer, perhaps nearer than the next look."""
        if call.due <= self.next and not call.over:
            self._alarm(call)

    def glance_at(self, connection: Busy) -> None:
        """Have it glance every tick, until its call is over."""
        self._glanced[connection] = None

    def remove(self, call: Timed) -> None:
        """It is over: it needs no alarm."""
        alarm = self.alarms.pop(call, None)
        if alarm is not None:
            alarm.stop()

    @property
    def in_flight(self) -> int:
        """Calls in progress."""
        return sum(len(connection.calls()) for connection in self.busy)

    def stop(self) -> None:
        """Stop the timer and every alarm."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for alarm in self.alarms.values():
            alarm.stop()
        self.alarms.clear()

    def _tick(self) -> None:
        self._timer = None
        now = monotonic()
        self.next = now + TICK
        horizon = self.next + TICK  # the timer may come a little late
        resting: list[Busy] = []
        due: list[Timed] = []
        for connection in self.busy:
            calls = connection.calls()
            if not calls:
                resting.append(connection)
            due += [call for call in calls if call.due <= horizon]
        for connection in resting:
            connection.watched = False
            self.busy.discard(connection)
            self._glanced.pop(connection, None)
        for call in due:
            self._see_to(call, now, horizon)
        for number, connection in enumerate(list(self._glanced)):
            if number < CLOSELY:
                del self._glanced[connection]
                self._glanced[connection] = None  # behind the others, whose turn is next
            try:
                connection.glance(closely=number < CLOSELY)
            except Exception as error:
                del self._glanced[connection]
                self._report(error)
        if self.busy and self._timer is None:  # a call that began meanwhile may have set it
            self._timer = self._loop.call_later(TICK, self._tick)

    def _see_to(self, call: Timed, now: float, horizon: float) -> None:
        if call in self.alarms or call.over:
            return
        try:
            call.due = call.attend(now)
        except Exception as error:
            call.due = _NEVER
            self._report(error)
        if call.due <= horizon and not call.over:
            self._alarm(call)

    def _report(self, error: Exception) -> None:
        """Log a defect of one connection or call, which must not keep the others from being looked at."""
        self._loop.call_exception_handler({"message": "a look at calls in progress failed", "exception": error})

    def _alarm(self, call: Timed) -> None:
        alarm = self.alarms.get(call)
        if alarm is None:
            alarm = self.alarms[call] = Alarm(self._loop, partial(self._ring, call))
        alarm.set(call.due)

    def _ring(self, call: Timed, now: float) -> None:
        self.alarms.pop(call, None)
        if call.over:
            return
        call.due = call.attend(now)
        self.sooner(call)
