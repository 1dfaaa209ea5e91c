"""How many connections of apps there are: which are served, which are told that there is no room, which are closed.

Law: over all workers, never more are served than `limits.connections` says, and never more are held open only to be
told so than REFUSED_IN_WORDS. Each stream in flight beyond the first of an HTTP/2 connection counts as another
connection. A worker counts a connection of its own before it reads the other workers' counts: of two that come at once
in two processes, at least one sees the other, and at worst both are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from proxy.resources import REFUSED_IN_WORDS
from proxy.transport.clock import monotonic

#: A connection that rests is closed in favour of a new one, where there are too many, once it has rested so long.
REST_SECONDS = 60.0
#: Where none has, so long nobody looks again: in a flood a look at ten thousand costs more than the refusal.
FULL_SECONDS = 1.0


class HasRequest(Protocol):
    """A connection with a request to be admitted, perhaps one connection too many."""

    surplus: bool


class Seat(Protocol):
    """A connection of an app. `surplus`: it is one too many, and held open only to be told so. `since`: resting from
    then on, or its head has begun to come; 0: neither. `client`: the app's address. `speaks`: the protocol.
    """

    surplus: bool
    since: float
    client: str
    speaks: str

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


class Others(Protocol):
    """The connections of other processes that share the limits with this one."""

    def tell(self, held: int, surplus: int) -> None:
        """Publish how many connections this process holds, and how many of them only to be answered with 503."""

    def count(self) -> tuple[int, int]:
        """The connections that other processes hold, and how many of them only to be answered with 503."""
        ...


class ConnectionLimit:
    """See the module. `limit` is `limits.connections`; `most` and `told` are bounds of this process alone: connections
    that its file descriptors suffice for, and those that are told beyond them.
    """

    def __init__(self, limit: int, most: int) -> None:
        self.limit = limit
        self.most = most
        self.told = min(REFUSED_IN_WORDS, most)
        self.others: Others | None = None
        self.open: dict[Seat, None] = {}  # in the order that they came
        self.half: dict[Seat, None] = {}  # its head has begun to come; the slowest first, some whole by now
        self.turn_away: Callable[[Seat], None] = _abort  # how one is told that there is no room at all
        self.cut_short: Callable[[Seat], None] = _abort  # and one that its head was too slow
        self._surplus = 0
        self._streams = 0  # in flight, beyond the first of each connection
        self._full_until = 0.0  # nothing was found to close in favour of a new connection

    def enter(self, connection: Seat) -> None:
        """A connection was accepted: it is served, or marked as one to be told, or told at once."""
        self.open[connection] = None
        if self.admit(connection):
            return
        surplus = self._surplus
        if surplus > self.told or surplus + self._elsewhere()[1] > REFUSED_IN_WORDS:  # enough are told already
            self.leave(connection)
            self.turn_away(connection)

    def admit(self, connection: HasRequest) -> bool:
        """Serve a connection if there is room, made by closing one that has rested long if need be."""
        self._mark(connection, False)
        if self._is_within_limits() or (self._make_room() and self._is_within_limits()):
            return True
        self._mark(connection, True)
        return False

    def take(self) -> bool:
        """Take a place for one stream more of a connection, if there is one."""
        self._streams += 1
        if self.others is not None:
            self._tell()
        if self._is_within_limits() or (self._make_room() and self._is_within_limits()):
            return True
        self.give_back(1)
        return False

    def give_back(self, places: int) -> None:
        """Free so many places that streams had taken."""
        self._streams -= places
        if self.others is not None:
            self._tell()

    def handed_over(self, connection: Seat, to: Seat) -> None:
        """Another takes a connection's place here."""
        if connection in self.open:
            del self.open[connection]
            self.open[to] = None
            to.surplus = connection.surplus

    def leave(self, connection: Seat) -> None:
        """A connection is closed, or as good as closed."""
        if connection in self.open:
            del self.open[connection]
            self._surplus -= connection.surplus
            self._tell()

    def _mark(self, connection: HasRequest, surplus: bool) -> None:
        self._surplus += surplus - connection.surplus
        connection.surplus = surplus
        self._tell()

    def _tell(self) -> None:
        if self.others is not None:
            self.others.tell(len(self.open) + self._streams, self._surplus)

    def _elsewhere(self) -> tuple[int, int]:
        return (0, 0) if self.others is None else self.others.count()

    def _is_within_limits(self) -> bool:
        served = len(self.open) - self._surplus
        held, surplus = (0, 0) if self.others is None else self.others.count()
        return served <= self.most and served + self._streams + held - surplus <= self.limit

    def _make_room(self) -> bool:
        """Close the connection whose head is the slowest to come; else the one that has rested longest, if it has long.
        Otherwise clients that send half a head would keep everybody out; nearly all send a head in one packet.
        """
        for connection in self.half:
            if connection.dripping and not connection.surplus:
                self.leave(connection)
                self.half.pop(connection)
                self.cut_short(connection)
                return True
        now = monotonic()
        if now < self._full_until:
            return False
        for connection in self.open:
            if connection.exchange is None and 0 < connection.since < now - REST_SECONDS:
                self.leave(connection)  # at once: it is not to be found, and closed, again for the next one
                connection.abort()
                return True
        self._full_until = now + FULL_SECONDS
        return False


def _abort(connection: Seat) -> None:
    connection.abort()
