"""The app's side of a call: the interface of the stream that an exchange writes to.

An exchange sees a stream, never a connection. The stream itself decides how a head is written, how the body is framed
(lengths, chunks, frames), and whether the connection is closed.
"""

from __future__ import annotations

from typing import Any, Protocol

from proxy.retry.facts import Fault
from proxy.transport.chunk_writer import ChunkWriter
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.wire.head import ResponseHead, Trailers


class AppStream(Protocol):
    """The stream of one call to its app. After `done` or `reset` the exchange does not use it again.

    `blocked`: whether writing should wait for the exchange's `app_writable`. `exchange`: the call in progress.
    `has_pinned`: whether `pinned` may return an upstream connection that is reserved for this app connection. If the
    app leaves, or its stream is reset, `exchange.app_gone` is called.
    """

    blocked: bool
    exchange: Any
    has_pinned: bool

    @property
    def client(self) -> str:
        """The app's address, host:port; "" on a unix socket."""
        ...

    @property
    def connected(self) -> float:
        """The time (seconds) at which the app's connection was opened."""
        ...

    # -- the request ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Take no more of the request's body for now."""
        ...

    def resume(self) -> None:
        """Go on taking the request's body after `pause`."""
        ...

    # -- the answer -----------------------------------------------------------------------------------------------

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Forward an interim answer with the lines `add`, if the app's version of HTTP has interim answers.

        `resent`: the answer is to a request that the proxy sent again by itself.
        """
        ...

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        """Forward the upstream's answer: its head without the fields `drop` (lower-case names) and with the lines `add`
        (each with its CRLF), and `data`, the body so far; all of it if `end`, with its trailers.

        A stream may keep the rendered head for the next answer, which often has the same head and lines.
        """
        ...

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of the proxy's own, whole: a status, field lines (`add`, each with its CRLF), and a body, to
        which the stream adds length and date. The body is not sent if the request was HEAD.
        """
        ...

    def write(self, data: bytes) -> None:
        """Write more of the answer's body or, in a tunnel, of the upstream's bytes."""
        ...

    def finish(self, trailers: Trailers | None) -> None:
        """End the body, with these trailers (None for none); in a tunnel, end this direction."""
        ...

    def reset(self, fault: Fault | None) -> None:
        """Break the answer off, so that it can't be taken for a whole one. `fault`: the fault of the upstream's stream,
        if that broke; HTTP/2 forwards its `code`.
        """
        ...

    def done(self) -> None:
        """Release the call, which is over and whose answer was written completely."""
        ...

    # -- what belongs to one app connection -----------------------------------------------------------------------

    def pinned(self, origin: Origin) -> UpstreamStream | None:
        """Take an idle upstream connection to this origin that only this app connection may use, since the app has
        logged in on it (NTLM, Negotiate); None if there is none.
        """
        ...

    def pin(self, stream: UpstreamStream, origin: Origin) -> None:
        """Reserve the upstream connection of `stream` (to `origin`), on which the app logs in, for this app connection:
        it is kept here when idle, and closed with it. HTTP/2 has no such connections, on either side.
        """
        ...


class ConnectionStream:
    """An `AppStream` that is a whole connection, as HTTP/1's are. The base class lets compiled code call the most
    frequent methods without the interpreter. `chunks`: the framing of the answer's body, if that is written in chunks.
    `connected`: when it was opened (seconds). `watched`: whether the timer of all calls holds the connection
    (`proxy.forward.timers.Busy`).
    """

    __slots__ = ("blocked", "chunks", "connected", "has_pinned", "watched")

    blocked: bool
    chunks: ChunkWriter | None
    connected: float
    has_pinned: bool
    watched: bool

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        """Forward the upstream's answer (see `AppStream.respond`): its head without the fields `drop` and with the
        lines `add`, and `data`, the body so far; all of it if `end`, with its trailers.
        """
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Write more of the answer's body."""
        raise NotImplementedError

    def done(self) -> None:
        """Release the call, which is over and whose answer was written completely, so that the connection may take the
        next one.
        """
        raise NotImplementedError


class Tunnelling(AppStream, Protocol):
    """An app's stream that can become a tunnel: after an answer to CONNECT, or a 101."""

    def tunnel(self) -> None:
        """Carry bytes both ways from now on. Bytes that have come already are reported at once, and after them the
        app's end if it has come too. Do nothing if the stream is a tunnel already.
        """
        ...

    def leave_tunnel(self, authority: str) -> None:
        """End the tunnel, and read requests from the connection again. The requests are cleartext ones, inside a
        CONNECT to this authority.
        """
        ...

    def data_received(self, data: bytes) -> None:
        """Take these bytes as if they came from the app now."""
        ...
