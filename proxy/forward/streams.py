"""The app's side of a call, as an exchange sees it.

Law: the stream is the unit, never the connection. Framing (lengths, chunks, what closes) is the stream's own affair,
so that a multiplexed protocol fits in behind the same methods.
"""

from __future__ import annotations

from typing import Any, Protocol

from proxy.transport.connection import Connection
from proxy.transport.origins import Origin
from proxy.wire.head import ResponseHead


class AppStream(Protocol):
    """One call's way to its app. After `done` or `reset` the exchange does not use it again.

    `blocked`: what is written should wait for the exchange's `app_writable`. `client`: the app's address.
    `exchange`: the call in progress. `watched`: the watch's. `own`: the resting connections, by origin, that belong to
    this app connection alone (NTLM, Negotiate).
    """

    blocked: bool
    watched: bool
    exchange: Any
    own: dict[Origin, list[Connection]] | None

    @property
    def client(self) -> str:
        """host:port, or "" on a unix socket."""
        ...

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Pass an interim answer on with the lines `add`, if the app's version knows of them.

        `resent`: it is one to a request that the proxy sent again by itself.
        """
        ...

    def respond(
        self, head: ResponseHead, drop: frozenset[bytes], add: bytes, data: bytes, end: bool, trailers: bytes
    ) -> bytes:
        """Hand the upstream's answer on: its head without `drop` and with the lines `add`, and what body there is.

        The head as it was written, where nothing but the request's and the answer's heads decided on it; else b"".
        """
        ...

    def respond_again(self, whole: bytes) -> None:
        """Write an answer whose head `respond` gave back, to the same request's head."""
        ...

    @property
    def closing(self) -> bool:
        """Whether answers have to say that the connection closes."""
        ...

    def answer(self, head: bytes, body: bytes) -> None:
        """Write an answer of our own: a status line with fields, and a body."""
        ...

    def tunnel(self) -> None:
        """From now on it carries bytes both ways; those that have come already are told at once."""
        ...

    def leave_tunnel(self, authority: str) -> None:
        """It carries requests again: cleartext ones, inside a CONNECT to this authority."""
        ...

    def data_received(self, data: bytes) -> None:
        """Take these bytes as if they came from the app now."""
        ...

    def write(self, data: bytes) -> None:
        """More of the body."""
        ...

    def finish(self, trailers: bytes) -> None:
        """The body is whole; in a tunnel, nothing more comes this way."""
        ...

    def reset(self) -> None:
        """Break the answer off, so that it can't be taken for a whole one."""
        ...

    def pause(self) -> None:
        """Take no more of the request's body for now."""
        ...

    def resume(self) -> None:
        """Take more of it."""
        ...

    def done(self) -> None:
        """The call is over; what was written is whole."""
        ...

    def pin(self, connection: Connection) -> None:
        """Make a connection this app connection's own: it rests here, and is closed with it."""
        ...

    def glance(self, *, closely: bool) -> None:
        """See whether the app is still there, where no event would tell."""
        ...
