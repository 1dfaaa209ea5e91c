"""The time limit of dials: one timer for all dials under way of a worker, set for the one that is due first.

A dial that succeeds leaves the timer as it is, so a timer is set once in as many seconds as a dial may take, not for
each dial. It is not set again when no dial is under way.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from proxy.transport.clock import monotonic

_NEVER = float("inf")


class Cancellable(Protocol):
    """A dial under way that can be cancelled: a task of asyncio, or an object that dials without a task."""

    def cancel(self) -> object:
        """Cancel the dial."""

    def uncancel(self) -> int:
        """Take back one call of `cancel`. Return the number of those that are not taken back."""


class DialTimes:
    """The dials under way, and the times at which they are cancelled."""

    __slots__ = ("_at", "_due", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[Cancellable, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = _NEVER

    def begin(self, dial: Cancellable, within: float) -> None:
        """Note that a dial begins, and cancel it `within` seconds from now unless `end` is called before."""
        due = self._due[dial] = monotonic() + within
        if due < self._at:
            self._set(due)

    def end(self, dial: Cancellable) -> bool:
        """Note that a dial is over; return whether it was cancelled because its time was out, and nothing else has
        cancelled it.
        """
        return self._due.pop(dial, None) is None and dial.uncancel() == 0

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._at = None, _NEVER

    def _set(self, at: float) -> None:
        self.close()
        self._at = at
        self._timer = self._loop.call_later(max(0.0, at - monotonic()), self._look)

    def _look(self) -> None:
        """Cancel the dials whose time is out, and set the timer for the next one."""
        self._timer, self._at = None, _NEVER
        now = monotonic()
        for dial in [dial for dial, due in self._due.items() if due <= now]:
            del self._due[dial]
            dial.cancel()
        if self._due:
            self._set(min(self._due.values()))
