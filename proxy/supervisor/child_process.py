"""A process that this one has started, which any of its threads may kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence


class ChildProcess:
    """A child process that runs Python code. `status`: its exit status, below 0 the signal that killed it; None until
    it has ended.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self._child: asyncio.subprocess.Process
        self._loop: asyncio.AbstractEventLoop
        self._handle = -1  # a pidfd: it names this process even if its id has been given to another one
        self._handles = threading.Lock()  # held while the pidfd is used, or closed: its number may be given again

    async def start(self, code: str, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
        """Start the process, which runs `code` with these arguments and inherits these descriptors. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *arguments, stdin=asyncio.subprocess.DEVNULL, pass_fds=descriptors
        )
        with contextlib.suppress(OSError, AttributeError):  # a sandbox may forbid it
            self._handle = os.pidfd_open(self._child.pid)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    async def wait(self) -> None:
        """Wait until the process has ended."""
        self.status = await self._child.wait()

    def release(self) -> None:
        """Give up the handle of the process, which has ended."""
        with self._handles:
            if self._handle >= 0:
                handle, self._handle = self._handle, -1
                os.close(handle)

    def kill(self) -> None:
        """Kill the process, unless it has ended, which the loop may know before `wait` returns."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()

    def kill_now(self) -> None:
        """Kill the process, in any thread: the loop's thread may be waiting for a lock that the process holds."""
        with self._handles:
            if self._handle >= 0:
                with contextlib.suppress(OSError):  # the process has just ended
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                return
        self._loop.call_soon_threadsafe(self.kill)
