"""The flushing of HTTP/2 connections' output: once in each turn of the loop, in one write for each connection.

A reader flushes at its end; output that is gathered outside a read (a retry's alarm, a dial, a read on HTTP/1) is
flushed in the same turn of the loop. No output waits for an event that may never happen.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Gathering(Protocol):
    """An HTTP/2 connection, which keeps what it has to send until `flush` is called."""

    def flush(self) -> None:
        """Write all output that the connection keeps, in one write."""
        ...


class Flusher:
    """The flush of those connections of one loop that have output."""

    __slots__ = ("_gathered", "_loop", "_reading")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gathered: dict[Gathering, None] = {}
        self._reading = False

    def gathered(self, connection: Gathering) -> None:
        """Note that a connection has output; it is flushed in this turn of the loop."""
        if not self._gathered and not self._reading:
            self._loop.call_soon(self.flush)
        self._gathered[connection] = None

    def reads(self) -> None:
        """Note that a connection begins to read; it calls `flush` when it has read, so output gathered until then waits
        for that.
        """
        self._reading = True

    def flush(self) -> None:
        """Flush all connections that have output."""
        self._reading = False
        gathered, self._gathered = self._gathered, {}
        for connection in gathered:
            connection.flush()
