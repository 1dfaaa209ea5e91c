"""A call's one alarm.

Law: it never rings sooner than it was set for. The loop's clock is whole milliseconds, and may be early by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.transport.clock import monotonic

_NEVER = float("inf")


class Alarm:
    """Rings once, at `at` (seconds of `transport.clock`), and says when that is: `ring(now)`."""

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
        """Don't ring."""
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
