"""The signals that come before an event loop handles them, and the end of a process that waits for nothing.

This module imports next to nothing, since a signal that comes before it is imported ends the process by the kernel's
default action: asyncio alone takes as long as all of the start before it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

#: The signals that end a process.
SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The signals for a process that serves which came before it did. They would end it by the kernel's default action.
_came_early: list[int] = []


def end_early() -> None:
    """Let SIGTERM and SIGINT end the process at once until the event loop handles these signals: before that, nothing
    is served. SIGHUP and SIGUSR2 are kept for `came_early`.
    """
    for number in SIGNALS:
        signal.signal(number, lambda _number, _frame: leave(0))
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda number, _frame: _came_early.append(number))


def came_early(number: int) -> bool:
    """Whether a signal came before the event loop handled it."""
    return number in _came_early


def leave(status: int) -> NoReturn:
    """End the process with this exit status, after everything was closed and written, without waiting for any
    thread.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, or absent from the start
            stream.flush()
    os._exit(status)
