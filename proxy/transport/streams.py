"""What `forward/` knows of upstreams: streams to send a request on, and their listeners. `transport.pool` has them.

The stream is the unit, never the connection. On HTTP/1 it is the connection itself (`transport.connection`), with one
request at a time; on HTTP/2 it is one of many.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from proxy.retry.facts import Fault
from proxy.wire.head import Asked, ResponseHead, Trailers


class Listener:
    """Who a stream is for: an attempt. It is a base class, and no protocol, because compiled code calls its methods
    past the interpreter.

    It is told things whole and in order: any number of `on_info`, one `on_head`, `on_data` while there is a body, and
    one end, which comes with the head where nothing follows it; or `on_fault` in the place of what is missing. After an
    end or a fault the stream is gone. Nothing is told from within `send`, `write`, `finish`, `pause` or `cancel`.
    """

    __slots__ = ()

    def on_info(self, head: ResponseHead) -> None:
        """An interim answer has come (1xx, but 101)."""

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None) -> None:
        """The final head has come, with what of the body came beside it; all of it if `end`, and its trailers."""

    def on_whole(self, head: ResponseHead, data: bytes, trailers: Trailers) -> bool:
        """A final head, its body and trailers have come, all of them. False: they are to be told one after the other,
        and nothing has happened; True stands for all of that, and the end.
        """
        raise NotImplementedError

    def on_data(self, data: bytes) -> None:
        """More of the body has come."""

    def on_end(self, trailers: Trailers | None) -> None:
        """The body is whole; in a tunnel, the far end sends no more."""

    def on_fault(self, fault: Fault) -> None:
        """The stream broke before its answer was complete."""

    def on_writable(self) -> None:
        """The stream is `blocked` no more."""


class UpstreamStream(Protocol):
    """One request to an upstream, and its answer, while they last."""

    @property
    def blocked(self) -> bool:
        """Whether what is written should wait for `on_writable`: the kernel, or the peer's window, takes no more."""

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent. It may have been closed on its way from the pool; asked before `send`."""

    @property
    def shared(self) -> SharedConnection | None:
        """The connection that it shares with other streams; None where it has one to itself."""

    @property
    def is_first(self) -> bool:
        """Whether its request is the first on its connection; asked once it was sent."""

    @property
    def unsent(self) -> int:
        """Bytes of the body that were written here, and have not left the process."""

    def send(self, listener: Listener, asked: Asked, body: bytes, end: bool, trailers: Trailers | None) -> None:
        """Send a request's head and what there is of its body, together; all of it if `end`, with its trailers.

        The body's framing follows from `asked.head`: its `content_length`, or whatever the protocol has for one whose
        length is not known.
        """

    def write(self, data: bytes) -> None:
        """Send more of the body; in a tunnel, bytes."""

    def finish(self, trailers: Trailers | None) -> None:
        """The body is whole; in a tunnel: nothing more comes this way."""

    def pause(self) -> None:
        """Have the upstream held back: no `on_data` until `resume`, but for what has been read already."""

    def resume(self) -> None:
        """Have `on_data` told again; what was held back may be told at once."""

    def cancel(self) -> None:
        """Give the request up; the listener hears nothing more. HTTP/1 closes the connection, HTTP/2 resets the stream
        with CANCEL. In a tunnel, what was written is still sent for a while (RFC 9110 section 9.3.6).
        """

    def close(self) -> None:
        """Of a tunnel: close once what was written has gone; nothing more is heard of it."""


class Tunnel(UpstreamStream, Protocol):
    """A connection that carries bytes from the start, as CONNECT wants it."""

    def listen(self, listener: Listener) -> bytes:
        """Carry bytes for this listener from now on. What the far end has said already."""


class Pooled(Protocol):
    """A connection as the pool has it.

    `origin`: its `transport.origins.Origin`. `since`: resting from then on. `generation`: of the configuration that
    it was opened, or looked at, under.
    """

    origin: Any
    transport: asyncio.Transport | None
    since: float
    generation: int

    def abort(self) -> None:
        """Close at once."""


class Resting(Pooled, UpstreamStream, Protocol):
    """A stream of HTTP/1's between requests: it is its connection, which lasts."""

    def is_sound(self, rested: float) -> bool:
        """Whether it can carry a request, after so many seconds of rest."""


class SharedConnection(Pooled, Protocol):
    """A connection of HTTP/2's, which carries many streams. It rests while it has none."""

    @property
    def is_free(self) -> bool:
        """Whether another stream can be opened."""

    @property
    def places(self) -> int:
        """How many more streams can be opened; below 0 where the upstream has taken some back."""

    @property
    def is_resting(self) -> bool:
        """Whether it has no streams."""

    def stream(self) -> UpstreamStream:
        """A stream to send a request on, where it is free."""

    def drain(self) -> None:
        """Take nothing new, and close behind the last stream."""
