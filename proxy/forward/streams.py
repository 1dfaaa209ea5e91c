"""The app's side of a call, as an exchange sees it.

The stream is the unit, never the connection. How a head is written, framing (lengths, chunks, frames) and what closes
are decided by the stream itself.
"""

from __future__ import annotations

from typing import Any, Protocol

from proxy.retry.facts import Fault
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.wire.head import ResponseHead, Trailers


class AppStream(Protocol):
    """One call's way to its app. After `done` or `reset` the exchange does not use it again.

    `blocked`: what is written should wait for the exchange's `app_writable`. `exchange`: the call in progress.
    `watched`: somebody looks after the times of its call (`enter`). `has_pinned`: whether `pinned` may have anything.
    An app that goes away, or whose stream is reset, is told by `exchange.app_gone`.
    """

    blocked: bool
    watched: bool
    exchange: Any
    has_pinned: bool

    @property
    def client(self) -> str:
        """The app's address, host:port; "" on a unix socket."""
        ...

    def enter(self, now: float) -> None:
        """Have the times of its calls looked after (`proxy.forward.timers`)."""
        ...

    # -- the request ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Take no more of the request's body for now."""
        ...

    def resume(self) -> None:
        """Take the request's body again."""
        ...

    # -- the answer -----------------------------------------------------------------------------------------------

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Pass an interim answer on with the lines `add`, if the app's version knows of them.

        `resent`: it is one to a request that the proxy sent again by itself.
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
        """Hand the upstream's answer on: its head without the fields `drop` (lower-case names) and with the lines
        `add` (each with its CRLF), and what there is of its body; all of it if `end`, with its trailers.

        What it was rendered to is worth keeping: the next answer is often the same head with the same lines.
        """
        ...

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of the proxy's own, whole: a status, field lines (each with its CRLF), and a body, whose
        length and date are the stream's to add. Not sent where the request was HEAD.
        """
        ...

    def write(self, data: bytes) -> None:
        """Write more of the body; in a tunnel, bytes."""
        ...

    def finish(self, trailers: Trailers | None) -> None:
        """The body is whole; in a tunnel, nothing more comes this way."""
        ...

    def reset(self, fault: Fault | None) -> None:
        """Break the answer off, so that it can't be taken for a whole one. `fault`: what the upstream's stream broke
        with, where it did; HTTP/2 hands its `code` on.
        """
        ...

    def done(self) -> None:
        """The call is over; what was written is whole."""
        ...

    # -- what belongs to one app connection -----------------------------------------------------------------------

    def pinned(self, origin: Origin) -> UpstreamStream | None:
        """Take a resting connection to this origin that belongs to the app's connection alone (NTLM, Negotiate)."""
        ...

    def pin(self, stream: UpstreamStream, origin: Origin) -> None:
        """Make the stream's connection the app connection's own: it rests there, and is closed with it. HTTP/2 has no
        such thing, on either side.
        """
        ...


class ConnectionStream:
    """An `AppStream` that is a whole connection, as HTTP/1's are. It is a base class because compiled code calls past
    the interpreter what every call asks of its stream.
    """

    __slots__ = ("blocked", "has_pinned", "watched")

    blocked: bool
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
        """Hand the upstream's answer on."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Write more of the body."""
        raise NotImplementedError

    def done(self) -> None:
        """The call is over."""
        raise NotImplementedError


class Tunnelling(AppStream, Protocol):
    """An app's stream that can become a tunnel: behind an answer to CONNECT, or a 101."""

    def tunnel(self) -> None:
        """Carry bytes both ways from now on; those that have come already are reported at once, and the app's end after
        them. Where it does so already, nothing happens.
        """
        ...

    def leave_tunnel(self, authority: str) -> None:
        """Carry requests again: cleartext ones, inside a CONNECT to this authority."""
        ...

    def data_received(self, data: bytes) -> None:
        """Take these bytes as if they came from the app now."""
        ...
