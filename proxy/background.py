"""Work that is begun and not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Failed = Callable[[str, BaseException], None]


def telling(tell: Callable[..., None]) -> Failed:
    """What says of work that failed what it was, and with which error."""
    return lambda what, error: tell("failed", [repr(error)], what=what, error=repr(error))


class Background:
    """Tasks, kept until they are done, which a loop does not do. `failed` is handed what went wrong, and with what."""

    def __init__(self, failed: Failed | None = None) -> None:
        self._failed = failed
        self.tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside; an error ends nothing else."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel what is under way."""
        for task in self.tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(str(task.get_coro()), error)
