"""Requests to bytes: the writing half of a connection to an upstream.

Law: one write for a request that is whole, or for its head and what there is of its body; then each piece as it comes.
What a listener left is nobody's: whoever cancels or closes hears nothing more.
"""

from __future__ import annotations

import asyncio

from proxy.transport.streams import Listener
from proxy.wire.http1.body import chunk, end_chunked

#: Seconds that an upstream gets to take the rest of a tunnel whose app is gone.
PATIENCE = 2.0


class Asking(asyncio.Protocol):
    """The writing half of `transport.http1.Connection`: the stream, as its attempt uses it.

    `blocked`: what is written should wait for `on_writable`. `exchanges`: how many it has carried, the present one too.
    """

    __slots__ = (
        "_answered",
        "_chunked",
        "_early",
        "_interim",
        "_listener",
        "_method",
        "_paused",
        "_sent_all",
        "_tunnel",
        "_upgrade",
        "blocked",
        "exchanges",
        "transport",
    )

    def __init__(self, *, tunnel: bool) -> None:
        self.transport: asyncio.Transport | None = None
        self._listener: Listener | None = None
        self._method = ""
        self._chunked = False  # the request's body is framed in chunks
        self._upgrade: bytes | None = None  # the protocols that the request offers to switch to
        self._tunnel = tunnel
        self._early = b""  # what a tunnel's far end said before anybody listened
        self._sent_all = True
        self._answered = self._paused = False
        self._interim = 0  # bytes of interim answers
        self.blocked = False
        self.exchanges = 0

    def send(
        self,
        listener: Listener,
        method: str,
        head: bytes,
        body: bytes,
        *,
        end: bool,
        chunked: bool,
        trailers: bytes = b"",
        upgrade: bytes | None = None,
    ) -> None:
        """Send a request's head and what there is of its body, in one write. `chunked`: the body is framed so.
        `upgrade`: the protocols that it offers to switch to.
        """
        assert self.transport is not None
        self._listener = listener
        self._method = method
        self._chunked = chunked
        self._upgrade = upgrade
        self._sent_all = end
        self._answered = False
        self._interim = 0
        self.exchanges += 1
        if chunked:
            if body:
                head += chunk(body)
            if end:
                head += end_chunked(trailers)
        elif body:
            head += body
        self.transport.write(head)

    def send_whole(self, listener: Listener, method: str, head: bytes) -> None:
        """Send a request whole, its body (not a chunked one) behind the head. What it finds is as `_over` left it."""
        assert self.transport is not None
        self._listener = listener
        self._method = method
        self.exchanges += 1
        self.transport.write(head)

    def listen(self, listener: Listener) -> bytes:
        """Carry bytes, as a tunnel that was opened for it. What its far end has said already."""
        self._listener = listener
        self.exchanges = 1
        early, self._early = self._early, b""
        return early

    def write(self, data: bytes) -> None:
        """Send more of the body; in a tunnel, bytes."""
        if self.transport is not None:
            self.transport.write(chunk(data) if self._chunked else data)

    def finish(self, trailers: bytes = b"") -> None:
        """The body is whole; in a tunnel: nothing more comes this way."""
        self._sent_all = True
        if self.transport is None:
            return
        if self._tunnel:
            if self.transport.can_write_eof():
                self.transport.write_eof()
        elif self._chunked:
            self.transport.write(end_chunked(trailers))

    @property
    def unsent(self) -> int:
        """Bytes that were written here and that the kernel has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def pause(self) -> None:
        """Read no more for now. Not once the exchange is over: whoever takes its last bytes may find them too many."""
        if not self._paused and self._listener is not None and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def cancel(self) -> None:
        """Forget the exchange, and the connection with it.

        In a tunnel, what was said by the side that closed is still sent, for a while (RFC 9110 section 9.3.6).
        """
        self._listener = None
        if self._tunnel and self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.close()
            asyncio.get_running_loop().call_later(PATIENCE, self.abort)
        else:
            self.abort()

    def close(self) -> None:
        """Close once what was written has gone; nothing more is heard of it."""
        self._listener = None
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self.blocked = True

    def resume_writing(self) -> None:
        """The kernel took what there was."""
        self.blocked = False
        if self._listener is not None:
            self._listener.on_writable()
