"""The interfaces by which `forward/` uses upstreams: streams to send a request on, which `transport.pool` gives out,
and their listeners.

The stream is the unit, never the connection. On HTTP/1 it is the connection itself (`transport.connection`), with one
request at a time; on HTTP/2 it is one of many.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from proxy.retry.facts import Fault
from proxy.wire.head import PreparedRequest, ResponseHead, Trailers


class Listener:
    """The object that a stream reports to: an attempt. It is a base class, and no protocol, because compiled code calls
    its methods without the interpreter.

    Its methods are called in order: any number of `on_info`, one `on_head`, `on_data` while there is a body, and one
    end, which is part of `on_head` if nothing follows the head; or `on_fault` instead of whatever is missing. After an
    end or a fault the stream is over. No method is called from within `send`, `write`, `finish`, `pause` or `cancel`.
    """

    __slots__ = ()

    def on_info(self, head: ResponseHead) -> None:
        """Take an interim answer (1xx except 101)."""

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None) -> None:
        """Take the final head, with `data`, the part of the body that arrived with it (b"" for none). `end`: that is
        all of the body, and the `trailers` (None for none) are its own.
        """

    def on_whole(self, head: ResponseHead, data: bytes, trailers: Trailers) -> bool:
        """Take a final head with its whole body and trailers in one call, and return whether they were taken. If False,
        nothing has happened, and head, data and end are reported one after the other; if True, the stream has ended.
        """
        raise NotImplementedError

    def on_data(self, data: bytes) -> None:
        """Take more of the body."""

    def on_chunks(self, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        """Take more of a chunked body as it came, after `pass_chunks_on`. `size`: its bytes without the framing.
        `owed`: the bytes that are missing of the last chunk, its CRLF among them; 0 if it is whole. Below 0: it is
        whole, and `on_end` is called next. `payload`: the bytes without the framing, if they were asked for; None if
        not, and if all of it is plain chunks: whole, without extensions, each but the last ending with the end of a
        line (`wire.http1.body.data_of`).
        """

    def on_end(self, trailers: Trailers | None) -> None:
        """Take the end of the body, with its trailers (None for none); in a tunnel, the far end sends no more."""

    def on_fault(self, fault: Fault) -> None:
        """Take the fault by which the stream broke before its answer was complete."""

    def on_writable(self) -> None:
        """Go on writing to the stream, because it is no longer `blocked`."""


class UpstreamStream(Protocol):
    """A request to an upstream and its answer, from the sending until both are over."""

    @property
    def blocked(self) -> bool:
        """Whether writers should wait for `on_writable`, because the kernel or the peer's window takes no more."""

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent; to be asked before `send`, because the stream may have been closed since the
        pool gave it out.
        """

    @property
    def shared(self) -> SharedConnection | None:
        """The connection, if the stream shares it with others; None if the stream has the connection to itself."""

    @property
    def is_first(self) -> bool:
        """Whether the request is the first on its connection; to be asked after `send`."""

    @property
    def unsent(self) -> int:
        """The number of bytes of the body that were written to the stream and have not left the process."""

    def send(
        self, listener: Listener, prepared: PreparedRequest, body: bytes, end: bool, trailers: Trailers | None
    ) -> None:
        """Send a request's head and `body`, the part of its body that has arrived, together. `listener` gets the
        answer; `end`: that is all of the body, and the `trailers` (None for none) follow it.

        The body's framing follows from `prepared.head`: its `content_length`, or the protocol's framing for a body of
        unknown length.
        """

    def write(self, data: bytes) -> None:
        """Send more of the body or, in a tunnel, more of the bytes that it carries."""

    def finish(self, trailers: Trailers | None, data: bytes = b"") -> None:
        """Send `data`, the rest of the body (b"" for none), and end it, with its trailers (None for none); in a tunnel,
        end this direction, without data.
        """

    def pause(self) -> None:
        """Stop `on_data` until `resume`, except for data that has been read already; the upstream is held back."""

    def resume(self) -> None:
        """Let the listener's `on_data` be called again after `pause`. If data was held back meanwhile, `on_data` may be
        called before this method returns.
        """

    def cancel(self) -> None:
        """Give the request up; the listener is not called any more. HTTP/1 closes the connection, HTTP/2 resets the
        stream with CANCEL. In a tunnel, bytes that were written are still sent for a while (RFC 9110 section 9.3.6).
        """

    def close(self) -> None:
        """Close a tunnel once what was written has been sent; the listener is not called any more."""


class Tunnel(UpstreamStream, Protocol):
    """A connection that carries bytes from the start, for CONNECT."""

    def listen(self, listener: Listener) -> bytes:
        """Report what arrives in the tunnel to this listener from now on. Return the bytes that the far end has sent
        already.
        """


class Pooled(Protocol):
    """A connection with the attributes that the pool uses.

    `origin`: its `transport.origins.Origin`. `since`: when it became idle. `generation`: that of the configuration
    under which it was opened, or last checked. `expires`: the time from which no attempt takes it any more
    (`transport.renewal`).
    """

    expires: float
    origin: Any
    transport: asyncio.Transport | None
    since: float
    generation: int

    def abort(self) -> None:
        """Close the connection at once."""


class Resting(Pooled, UpstreamStream, Protocol):
    """An HTTP/1 connection between requests; it is also the stream of its next request."""

    def is_sound(self, rested: float) -> bool:
        """Whether the connection can carry a request, after it was idle for so many seconds."""


class SharedConnection(Pooled, Protocol):
    """An HTTP/2 connection, which carries many streams. It is idle while it has none."""

    @property
    def is_free(self) -> bool:
        """Whether another stream can be opened."""

    @property
    def places(self) -> int:
        """The number of further streams that can be opened; below 0 if the upstream has lowered its limit meanwhile."""

    @property
    def is_resting(self) -> bool:
        """Whether the connection has no streams."""

    def stream(self) -> UpstreamStream:
        """Make a stream to send a request on; the connection must be free."""

    def drain(self) -> None:
        """Accept no new streams, and close after the last one."""
