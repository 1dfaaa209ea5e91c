"""How an app's connection ends: the last answer goes out whole, however slowly it is taken.

Law: who reads slowly is not cut off, who takes nothing at all is, in the end; and what is cut is seen to be cut. A
connection with bytes yet to come is closed in stages (RFC 9112 section 9.6): our FIN first, then what still comes is
read and dropped for a while, so that no reset takes the answer with it.
"""

from __future__ import annotations

import asyncio

from proxy.server.answering import Answering

#: How long and how much is read from an app that has its last answer, before the connection is closed.
LINGER, LINGER_BYTES = 2.0, 1024 * 1024
#: Looks, one each LINGER, at an app that takes nothing of its last answer: 60 s, as nginx's send_timeout.
STALLED = 30


class Leaving(Answering):
    """The end of `AppConnection`."""

    __slots__ = ("_buffer", "_half_closed", "_held", "_timer")

    def __init__(self) -> None:
        super().__init__()
        self._buffer = b""  # what was pipelined
        self._half_closed = False
        self._held = 0  # why nothing is read for now
        self._timer: asyncio.TimerHandle | None = None

    def _shut(self) -> None:
        """The last answer has been written."""
        if self.transport is None:
            return
        if self.head.keep_alive and not self._half_closed:
            self._close_in_stages()  # the app does not expect it: a request may be on its way
        else:
            self._close_written(self.transport)

    def _close_in_stages(self) -> None:
        """Say that nothing more comes, and read on for a while what the app is still sending."""
        transport = self.transport
        if transport is None or self._lingered >= 0:
            return
        self._buffer = b""
        if self._held:
            self._held = 0
            transport.resume_reading()
        if not transport.can_write_eof():
            self._close_written(transport)
            return
        self._lingered = 0
        transport.write_eof()
        self._look_again(transport.get_write_buffer_size(), STALLED)

    def _close_written(self, transport: asyncio.Transport) -> None:
        """Close once all has gone."""
        self._lingered = 0
        left = transport.get_write_buffer_size()
        transport.close()
        if left:
            self._look_again(left, STALLED)

    def _look_again(self, left: int, looks: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(LINGER, self._see_off, left, looks)

    def _see_off(self, before: int, looks: int) -> None:
        """Close for good once the app has had its last answer for a while, or has taken nothing of it for long."""
        if self.transport is None:
            return
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._look_again(left, STALLED)
        elif left and looks > 1:
            self._look_again(left, looks - 1)
        else:
            self.abort()

    def _linger_on(self, size: int) -> None:
        self._lingered += size
        if self._lingered > LINGER_BYTES and self.transport is not None:
            if self.transport.get_write_buffer_size():
                self.transport.pause_reading()  # it has its answer to take first
            else:
                self.abort()
