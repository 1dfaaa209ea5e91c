"""When the output of HTTP/2 connections is written: once in each turn of the loop, in one write for each connection.

A reader flushes at its end; what is gathered outside a read (a retry's alarm, a dial, a read on HTTP/1) is flushed in
the same turn of the loop. Nothing that was gathered waits for something that may never come.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Gathering(Protocol):
    """A connection that gathers what it has to send."""

    def flush(self) -> None:
        """Write what was gathered."""
        ...


class Flusher:
    """Flushes the connections of one loop that have something to send."""

    __slots__ = ("_gathered", "_loop", "_reading")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gathered: dict[Gathering, None] = {}
        self._reading = False

    def gathered(self, connection: Gathering) -> None:
        """A connection has something to send."""
        if not self._gathered and not self._reading:
            self._loop.call_soon(self.flush)
        self._gathered[connection] = None

    def reads(self) -> None:
        """A connection begins to read, and calls `flush` in the end."""
        self._reading = True

    def flush(self) -> None:
        """Have all of them write."""
        self._reading = False
        gathered, self._gathered = self._gathered, {}
        for connection in gathered:
            connection.flush()
