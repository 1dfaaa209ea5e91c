"""Whether an app is still there, and how its connection ends: the last answer goes out whole, however slowly.

Law: who reads slowly is not cut off, who takes nothing at all is, in the end; and what is cut is seen to be cut: it
ends with a RST, however it is framed, and never with a FIN (`transport.socket_close`). A connection with bytes yet to
come is closed in stages (RFC 9112 section 9.6): our FIN first, then what still comes is read and dropped for a while,
so that no reset takes the answer with it. That is for an app that was told that the connection closes. One that was not
told has the rest of its request's body read over, and its next request answered; or, where that is too much or does not
come, is read from no more: what stays in the kernel was not taken for anything, and the app sees a RST.
"""

from __future__ import annotations

import asyncio

from proxy.retry.facts import Fault
from proxy.server import presence
from proxy.server.answering import Answering
from proxy.transport import socket_close
from proxy.transport.clock import monotonic
from proxy.wire.errors import BadMessage
from proxy.wire.http1.parser import RequestParser

#: How long and how much is read from an app that has its last answer, before the connection is closed.
LINGER, LINGER_BYTES = 2.0, 1024 * 1024
#: Looks, one each LINGER, at an app that takes nothing of its last answer: 60 s, as nginx's send_timeout.
STALLED = 30


class Leaving(Answering):
    """The end of `AppConnection`.

    `since`: when the head that is awaited began to come, or the connection to rest; 0 while neither is so. `wire` is
    the transport that has the socket, where `transport` is the TLS that it carries.
    """

    __slots__ = (
        *("_broken", "_buffer", "_dropped", "_fd", "_half_closed", "_held", "_parser", "_timer"),
        *("since", "watched", "wire"),
    )

    _parser: RequestParser
    watched: bool

    def __init__(self) -> None:
        super().__init__()
        self._buffer = b""  # what was pipelined
        self._half_closed = False
        self._held = 0  # why nothing is read for now
        self._timer: asyncio.TimerHandle | None = None
        self._broken = False  # the answer was broken off
        self._dropped = 0  # bytes of a body that was read over
        self.wire: asyncio.Transport | None = None
        self._fd = -1
        self.since = 0.0

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

    def close_written(self) -> None:
        """Close once what was written has gone, whatever the app still sends."""
        self._stop_timer()
        if self.transport is not None:
            self.transport.close()

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

    # -- a body that outlives its answer ------------------------------------------------------------------------------

    def _read_over(self) -> None:
        """The answer is whole, and its request is not: what is left of its body is read and dropped."""
        self._dropped = 0
        self._look_for_more(-1, STALLED)

    def _look_for_more(self, before: int, looks: int) -> None:
        """Wait for the rest for as long as it comes, and for STALLED looks at most."""
        if self._dropped == before or looks == 0:
            self._read_no_more()
        else:
            later = asyncio.get_running_loop().call_later
            self._timer = later(LINGER, self._look_for_more, self._dropped, looks - 1)

    def _drop(self, data: bytes) -> None:
        """More of a body that is read over; behind it the next request begins."""
        body = self._body
        assert body is not None
        self._dropped += len(data)
        try:
            _, done, rest = body.feed(data)
        except BadMessage:
            self._close_in_stages()  # nobody can say where the next request would begin
            return
        if done:
            self._body = None
            self._stop_timer()
            self._buffer += rest
            self.since = monotonic()
            self._go_on()
        elif self._dropped > LINGER_BYTES:
            self._read_no_more()

    def _read_no_more(self) -> None:
        """The body is too long, or too slow. What the app sends from now on stays in the kernel: it sees a RST."""
        self._stop_timer()
        self._close_in_stages()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _go_on(self) -> None:
        """Take up what was pipelined."""
        raise NotImplementedError

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- breaking off -------------------------------------------------------------------------------------------------

    def reset(self, fault: Fault | None) -> None:
        """Break the answer, or the tunnel, off. What has come of it goes to an app that takes it, and then a RST says
        that there was more (RFC 9110 section 9.3.6 asks for the same of a tunnel).
        """
        transport = self.transport
        if transport is None:
            return
        self._lingered = 0
        self._broken = True
        socket_close.break_off(transport, self.wire or transport)

    def abort(self) -> None:
        """Close at once; with a RST where something is not whole."""
        transport = self.transport
        if transport is None:
            return
        if self._broken or self.exchange is not None or transport.get_write_buffer_size():
            socket_close.reset(transport, self.wire or transport)
        else:
            transport.abort()

    # -- the proxy going away -----------------------------------------------------------------------------------------

    def drained(self, before: float) -> None:
        """The proxy is shutting down: a connection that has rested since before this time is closed."""
        if self.plan is not None and self._lingered < 0 and self.transport is not None and self.is_silent(before):
            self.transport.close()

    def cut(self) -> None:
        """The proxy ends: a call in progress is ended so that its app knows, and what is written goes out."""
        if self.exchange is None:
            self.abort()
        else:
            self.exchange.cut()

    def is_silent(self, before: float) -> bool:
        """Whether nothing is lost with it: its last answer has gone, or no request has come since before this time."""
        if self._lingered >= 0:
            return self.transport is None or not self.transport.get_write_buffer_size()
        rested = self.exchange is None and not self._parser.pending and 0 < self.since < before
        return rested and not presence.has_said(self._fd)

    # -- the app going away -------------------------------------------------------------------------------------------

    def glance(self, *, closely: bool) -> None:
        """While nothing is read, or the app has half-closed, nobody tells that it went away: look.

        `closely`: also whether its end is stuck behind bytes of it that nobody reads.
        """
        if self._tunnel or self.exchange is None:
            return  # what was said in a tunnel before the app left is still on its way
        if self._half_closed or (self._held and presence.has_ended(self._fd)):
            if not self._is_there():
                self.abort()
        elif closely and self._held and self._is_there() is False:
            self.abort()

    def _is_there(self) -> bool | None:
        """Whether an app that has closed its sending direction still reads; None: nobody knows."""
        transport = self.transport
        if transport is None:
            return False
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple) and isinstance(local, tuple):
            return presence.is_held(peer[:2], local[:2], transport.get_extra_info("socket").family)
        return presence.is_connected(self._fd)

    # -- reading, or not ----------------------------------------------------------------------------------------------

    def _hold(self, why: int) -> None:
        if not self._held and self.transport is not None:
            self.transport.pause_reading()
            if self.exchange is not None:
                self.acceptor.means.watch.glance_at(self)
        self._held |= why

    def _release(self, why: int) -> None:
        if not self._held & why:
            return
        self._held &= ~why
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
