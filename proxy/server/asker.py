"""What connections of apps and the acceptor know of each other, whatever is spoken on them.

A `Seat` is a connection, one of `limits.connections`; an `Asker` has a request that may become a call: on HTTP/1 the
connection itself, on HTTP/2 a stream of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from proxy.config.settings import Settings
from proxy.forward.context import Context
from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.forward.streams import AppStream
from proxy.server.routing import Exposure, Inside
from proxy.wire.head import RequestHead


class Seat(Protocol):
    """A connection of an app. `surplus`: it is one too many, and held open only to be told so. `since`: resting from
    then on, or its head has begun to come; 0: neither.
    """

    surplus: bool
    since: float

    @property
    def client(self) -> str:
        """The app's address."""

    @property
    def speaks(self) -> str:
        """The protocol that its requests come by."""

    @property
    def exchange(self) -> Any:
        """The call in progress, or one of them."""

    @property
    def dripping(self) -> bool:
        """Whether a head has begun to come and is not whole."""

    def is_silent(self, before: float) -> bool:
        """Whether nothing is lost with it: nothing was said since before this time."""

    def drained(self, before: float) -> None:
        """The proxy is shutting down: close it, if it has rested since before this time."""

    def cut(self) -> None:
        """The proxy ends: end the calls in progress so that the app knows."""

    def abort(self) -> None:
        """Close it at once."""

    def close_written(self) -> None:
        """Close it once what was written has gone."""

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Tell it why it is closed."""


class Asker(Protocol):
    """Who has a request that may become a call. `surplus`: its connection is one too many."""

    surplus: bool

    @property
    def speaks(self) -> str:
        """The protocol that its requests come by."""

    @property
    def client(self) -> str:
        """The app's address."""

    @property
    def place(self) -> Exposure:
        """How the listener can be reached that it came by."""

    @property
    def inside(self) -> Inside | None:
        """The CONNECT that its requests are inside of."""

    @property
    def plan(self) -> Plan | None:
        """The plan of the request before, which may do for this one."""

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer a request that does not become a call."""

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of the proxy's own."""

    def done(self) -> None:
        """What was written is whole."""


class ConnectionOwner(Protocol):
    """What a connection needs of the acceptor that made it. `generation` is that of the settings.

    `http2_errors` counts those of all its HTTP/2 connections, by code.
    """

    means: Context
    settings: Settings
    generation: int
    draining: bool
    refusing: bool
    http2_errors: Counter[int]

    def place_of(self, name: Any) -> Exposure:
        """How the listener can be reached that a connection with this local address came by."""

    def entered(self, connection: Seat) -> None:
        """The connection was accepted."""

    def handed_over(self, connection: Seat, to: Seat) -> None:
        """Another takes the connection's place: it speaks another protocol."""

    def left(self, connection: Seat) -> None:
        """The connection is closed."""

    def take_place(self) -> bool:
        """Take one more of `limits.connections`, for a stream in flight beyond its connection's first."""

    def give_back(self, places: int) -> None:
        """So many of those places are free again."""

    def turn_down(self, connection: Asker, head: RequestHead) -> None:
        """Answer a request for which there is no place."""

    def drips(self, connection: Seat) -> None:
        """A request's head has begun to come and is not whole."""

    def admit(self, connection: Asker, head: RequestHead) -> Plan | None:
        """Where a request goes and under which policy; None where it was answered instead."""

    def exchange(self, plan: Plan, connection: AppStream) -> Exchange:
        """Make what drives a call."""

    def refuse(
        self, connection: Asker | Seat, status: int, title: str, detail: str, head: RequestHead | None = None
    ) -> None:
        """Answer what is no request, or has a `head` that is above the limits, and close."""

    def date_line(self) -> bytes:
        """The Date line of an answer, with its line end."""
