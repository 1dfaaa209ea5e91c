"""Timers of calls: one coarse timer for the deadlines, attempt and idle timeouts of all calls, and exact alarms.

A call that succeeds at once allocates no timer. Every 50 ms the calls in flight are checked; a call that has something
due before the next check gets an exact alarm then, so that timeouts are as exact as if each had its own. The timer
stops when nothing is in flight and nothing waits for a check (`Watch.at_tick`).

The watch (the object that has the timer) holds app connections, not calls: a connection stays in it from call to call
until a check finds the connection idle, so that a call on a busy connection costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Protocol

from proxy.transport.clock import monotonic

#: Seconds between checks.
TICK = 0.05
#: The number of connections that are glanced at closely in one tick; if there are more, they take turns.
CLOSELY = 100

_NEVER = float("inf")
#: The context in which alarms ring. The loop would make one for each.
_CONTEXT = copy_context()


class Alarm:
    """A timer that calls `ring(owner, now)` once, at the time `at` (seconds of `transport.clock`) and never sooner.
    `ring` is a function that gets its `owner`, and not a method, which would be one more object for each call that
    waits.
    """

    __slots__ = ("_handle", "_loop", "_owner", "_ring", "at")

    at: float

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Callable[[Any, float], None], owner: Any, at: float
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._owner = owner
        self._handle: asyncio.TimerHandle | None = None
        self.set(at)

    def set(self, at: float) -> None:
        """Set the alarm to the time `at`, instead of the one set before. If the alarm is due already and `at` is past
        too, the alarm is left as it is: if it were set again in each turn of the loop, it would never ring.
        """
        now = monotonic()
        if self._handle is not None:
            if at <= now and self.at <= at:
                return
            self._handle.cancel()
        self.at = at
        self._handle = self._loop.call_later(_until(at, now), self, context=_CONTEXT)

    def stop(self) -> None:
        """Cancel the alarm."""
        self.at = _NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def __call__(self) -> None:
        """Call `ring` if the alarm's time has come; else set the loop's timer again. The loop calls this object itself,
        since a bound method would be one more object for each of the calls that wait, which may be a thousand.
        """
        now = monotonic()
        if now < self.at:
            self._handle = self._loop.call_later(_until(self.at, now), self, context=_CONTEXT)
            return
        self._handle = None
        self.at = _NEVER
        self._ring(self._owner, now)


def _until(at: float, now: float) -> float:
    """Seconds from `now` after which uvloop's timer has reached `at`; 0 if `at` is past. The timer counts whole
    milliseconds of this clock, and so leaves out the fraction of a millisecond in `now`. A timer for exactly `at - now`
    would therefore go off before `at` in half of all cases, and have to be set again.
    """
    if at <= now:
        return 0.0
    if at == _NEVER:
        return at
    due, passed = -(-at * 1000.0 // 1.0), now * 1000.0 // 1.0  # rounded up, and down
    return (due - passed) / 1000.0


class Timed(Protocol):
    """A call whose deadlines and timeouts the watch checks at the time `due`. That is the time at which the first of
    them ends, or an earlier one, never a later one.
    """

    due: float
    over: bool

    def attend(self, now: float) -> float:
        """Handle the deadlines and timeouts that have ended by `now`; return the time at which the next one ends."""
        ...


class Busy(Protocol):
    """A connection that has calls. `watched`: whether the watch holds it, set by the watch."""

    watched: bool

    def calls(self) -> Sequence[Timed]:
        """Return the calls in progress."""
        ...

    def glance(self, *, closely: bool) -> None:
        """Look for changes that no event reports, such as that the app has left. Called at every tick of the watch
        after `Watch.glance_at`. `closely`: also make the checks that are costly.
        """
        ...


class Watch:
    """The watch over the calls in progress: the timer that checks them all. `next_tick`: the time of the next check;
    `alarms`: the alarms of calls that have one.
    """

    __slots__ = ("_glanced", "_loop", "_timer", "_waiting", "alarms", "busy", "next_tick")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.next_tick = 0.0
        self.busy: set[Busy] = set()
        self.alarms: dict[Timed, Alarm] = {}
        self._glanced: dict[Busy, None] = {}
        self._waiting: list[Callable[[], None]] = []

    def enter(self, connection: Busy, now: float) -> None:
        """Watch the calls of this connection from now on."""
        connection.watched = True
        self.busy.add(connection)
        if self._timer is None:
            self._begin(now)

    def at_tick(self, function: Callable[[], None]) -> None:
        """Call this function once, at the next check: within TICK seconds, whether calls are in progress or not. Work
        that can wait that long needs no timer of its own.
        """
        self._waiting.append(function)
        if self._timer is None:
            self._begin(monotonic())

    def _begin(self, now: float) -> None:
        """Set the timer, which is not set, for the next check."""
        self.next_tick = now + TICK
        self._timer = self._loop.call_later(TICK, self._tick)

    def sooner(self, call: Timed) -> None:
        """Take note that this call's `due` has become earlier: set an alarm if it is earlier than the next tick."""
        if call.due <= self.next_tick and not call.over:
            self._alarm(call)

    def glance_at(self, connection: Busy) -> None:
        """Call this connection's `glance` at every tick from now on, until its call is over."""
        self._glanced[connection] = None

    def remove(self, call: Timed) -> None:
        """Cancel the alarm of a call that is over."""
        alarm = self.alarms.pop(call, None)
        if alarm is not None:
            alarm.stop()

    @property
    def in_flight(self) -> int:
        """The number of calls in progress."""
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
        self.next_tick = now + TICK
        horizon = self.next_tick + TICK  # the timer may come a little late
        waiting, self._waiting = self._waiting, []
        for function in waiting:
            try:
                function()
            except Exception as error:
                self._report(error)
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
                self._glanced[connection] = None  # at the end: the others come next
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
        """Log a defect of one connection, call or function, and go on with the others."""
        self._loop.call_exception_handler(
            {"message": "a check of calls in progress, or what waited for it, failed", "exception": error}
        )

    def _alarm(self, call: Timed) -> None:
        alarm = self.alarms.get(call)
        if alarm is None:
            self.alarms[call] = Alarm(self._loop, self._ring, call, call.due)
        else:
            alarm.set(call.due)

    def _ring(self, call: Timed, now: float) -> None:
        self.alarms.pop(call, None)
        if call.over:
            return
        call.due = call.attend(now)
        self.sooner(call)
