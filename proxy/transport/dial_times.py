"""The time limit of dials: one timer for all dials under way of a worker, set for the one that is due first.

A dial that succeeds leaves the timer as it is, so a timer is set once in as many seconds as a dial may take, not for
each dial. It is not set again when no dial is under way.
"""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.transport.clock import monotonic

_NEVER = float("inf")


class DialTimes:
    """The dials under way, by the tasks that wait for them, and the times at which they are cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = _NEVER

    def begin(self, within: float) -> asyncio.Task[Any]:
        """Note that the current task begins to dial, and cancel it `within` seconds from now unless `end` is called
        before. Returns the task.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None  # a dial is waited for
        due = self._due[task] = monotonic() + within
        if due < self._at:
            self._set(due)
        return task

    def end(self, task: asyncio.Task[Any]) -> bool:
        """Note that the dial of this task is over; return whether it was cancelled because its time was out, and
        nothing else has cancelled the task.
        """
        return self._due.pop(task, None) is None and task.uncancel() == 0

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
        for task in [task for task, due in self._due.items() if due <= now]:
            del self._due[task]
            task.cancel()
        if self._due:
            self._set(min(self._due.values()))
