"""The limit on connections of apps: which are served, which are answered that there is no room, which are closed.

Law: over all workers, never more are served than `limits.connections` says, and never more than REFUSED_IN_WORDS are
held open only to be answered with 503. Each stream in flight beyond the first of an HTTP/2 connection counts as another
connection. A worker counts a connection of its own before it reads the other workers' counts: if two connections come
at once in two processes, at least one sees the other, and at worst both are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from proxy.resources import REFUSED_IN_WORDS
from proxy.server.idle_handover import ConnectionGiver
from proxy.transport.clock import monotonic

#: Seconds without a request after which a connection is closed in favour of a new one, if there are too many.
REST_SECONDS = 60.0
#: Seconds until the next search for such a connection after one in vain: in a flood, a search through ten thousand
#: connections costs more than the refusal.
FULL_SECONDS = 1.0


class HasRequest(Protocol):
    """A connection, or stream, with a request to be admitted. `surplus`: the connection is above the limit."""

    surplus: bool


class Seat(Protocol):
    """A connection of an app, as the limit counts it. `surplus`: it is above the limit, and held open only to be
    answered with 503. `since`: when it became idle, or when its head began to come; 0 for neither. `client`: the app's
    address. `speaks`: the version of HTTP that the app speaks on it.
    """

    surplus: bool
    since: float
    client: str
    speaks: str

    @property
    def exchange(self) -> Any:
        """The call in progress, or one of several; None if there is none."""

    @property
    def dripping(self) -> bool:
        """Whether a head has begun to come and is not whole."""

    def is_silent(self, before: float) -> bool:
        """Whether closing the connection loses nothing: it has been idle since before the time `before`."""

    def drained(self, before: float, giver: ConnectionGiver | None) -> None:
        """Give the connection to the process that goes on, by `giver`, if it is idle and can be given; else close it if
        it has been idle since before the time `before`. For a proxy that shuts down.
        """

    def cut(self) -> None:
        """End the calls in progress in a way that the app notices, because the proxy ends."""

    def abort(self) -> None:
        """Close the connection at once."""

    def close_written(self) -> None:
        """Close the connection once all written bytes were sent."""

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer with this status, field lines (`add`) and body, which say why the connection is closed. `close`: close
        it after the answer; `headless`: leave the body out, since the request was HEAD.
        """


class Others(Protocol):
    """The connections of other processes that share the limits with this one."""

    def publish(self, served: int, surplus: int) -> None:
        """Publish how many connections this process serves (`served`), and how many others it holds only to be answered
        with 503 (`surplus`).
        """

    def count(self) -> tuple[int, int]:
        """Return how many connections other processes serve, and how many others they hold only to be answered with
        503. The two numbers may be of different moments, so neither may be reckoned from the other.
        """
        ...


class ConnectionLimit:
    """The connections of this process, and the limits for them. `limit` is `limits.connections` for all workers; `most`
    and `most_surplus` are bounds of this process alone: the connections for which its file descriptors suffice, and the
    surplus ones that it holds open to answer them with 503.
    """

    def __init__(self, limit: int, most: int) -> None:
        self.limit = limit
        self.most = most
        self.most_surplus = min(REFUSED_IN_WORDS, most)
        self.others: Others | None = None
        self.open: dict[Seat, None] = {}  # all connections, in the order of their arrival
        self.half: dict[Seat, None] = {}  # those whose head has begun to come, slowest first; some are whole by now
        self.turn_away: Callable[[Seat], None] = _abort  # answers a connection for which there is no room at all
        self.cut_short: Callable[[Seat], None] = _abort  # answers a connection whose head was too slow
        #: Idle connections that went to or came from another process, by what happened to them: given, taken, returned.
        self.handed_over: Counter[str] = Counter()
        self._surplus = self._expected = 0
        self._streams = 0  # streams in flight, beyond the first of each connection
        self._full_until = 0.0  # until then, no search for a connection to close

    def enter(self, connection: Seat) -> None:
        """Admit a connection that was accepted: serve it, hold it as surplus to answer its request with 503, or answer
        it at once.
        """
        self.open[connection] = None
        if self.admit(connection):
            return
        surplus = self._surplus
        if surplus > self.most_surplus or surplus + self._elsewhere()[1] > REFUSED_IN_WORDS:  # enough are held already
            self.leave(connection)
            self.turn_away(connection)

    def admit(self, connection: HasRequest) -> bool:
        """Serve a connection if there is room, if need be by closing one that has long been idle, and return True; else
        mark it as surplus and return False.
        """
        surplus = self._surplus
        self._surplus -= connection.surplus
        connection.surplus = False
        self._publish(surplus)  # its place among those that are only answered is its own until another is certain
        if self._is_within_limits() or (self._make_room() and self._is_within_limits()):
            if self._surplus < surplus:
                self._publish(self._surplus)
            return True
        self._mark_surplus(connection)
        return False

    def take(self) -> bool:
        """Count one more stream in flight on an HTTP/2 connection, and return True; if the limit has no room for it,
        count nothing and return False.
        """
        self._streams += 1
        if self.others is None:  # the case of most proxies, where each call of HTTP/2 comes by here
            served = len(self.open) - self._surplus + self._expected
            if served <= self.most and served + self._streams <= self.limit:
                return True
        self._publish(self._surplus)
        if self._is_within_limits() or (self._make_room() and self._is_within_limits()):
            return True
        self.give_back(1)
        return False

    def expect(self) -> bool:
        """Count one more connection, which another process has handed over and which is about to enter, until it enters
        (`arrives`) or does not come (`forget`). Returns whether it can be served without another being closed for it.
        """
        self._expected += 1
        self._publish(self._surplus)
        return len(self.open) + self._expected <= self.most and self._is_within_limits()

    def arrives(self) -> None:
        """Note that an expected connection enters now: `enter` counts it from now on, and publishes that."""
        self._expected -= 1

    def forget(self) -> None:
        """Note that an expected connection does not come."""
        self._expected -= 1
        self._publish(self._surplus)

    def can_hold(self) -> bool:
        """Whether file descriptors are left for one more connection."""
        return len(self.open) + self._expected < self.most

    def give_back(self, places: int) -> None:
        """Subtract `places` HTTP/2 streams, which are over, from the count of streams that `take` has counted."""
        self._streams -= places
        if self.others is not None:
            self._publish(self._surplus)

    def replace(self, connection: Seat, to: Seat) -> None:
        """Put connection `to`, which speaks another protocol on the same socket, in the place of `connection`."""
        if connection in self.open:
            del self.open[connection]
            self.open[to] = None
            to.surplus = connection.surplus

    def leave(self, connection: Seat) -> None:
        """Forget a connection that is closed, or about to be."""
        if connection in self.open:
            del self.open[connection]
            self._surplus -= connection.surplus
            self._publish(self._surplus)

    def come_back(self, connection: Seat) -> None:
        """Count a connection again that `leave` removed, because it could not be given to another process, and stays.
        If another process has used its place meanwhile, the connection is surplus until its next request, which is
        served if there is room by then.
        """
        self.open[connection] = None
        self._publish(self._surplus)
        if not self._is_within_limits():
            self._mark_surplus(connection)

    def _mark_surplus(self, connection: HasRequest) -> None:
        self._surplus += 1
        connection.surplus = True
        self._publish(self._surplus)

    def _publish(self, surplus: int) -> None:
        if self.others is not None:
            self.others.publish(self._served, surplus)

    @property
    def _served(self) -> int:
        """The number of connections that this process serves, or is about to, with each further stream of HTTP/2 as
        another one.
        """
        return len(self.open) - self._surplus + self._expected + self._streams

    def _elsewhere(self) -> tuple[int, int]:
        return (0, 0) if self.others is None else self.others.count()

    def _is_within_limits(self) -> bool:
        served = self._served
        return served - self._streams <= self.most and served + self._elsewhere()[0] <= self.limit

    def _make_room(self) -> bool:
        """Close one connection to make room: the one whose head has been coming for longest, else one that has been
        idle for REST_SECONDS; return whether one was closed.

        Clients that send half a head would otherwise keep all others out; nearly all clients send a head in one packet.
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
                self.leave(connection)  # at once, so that the next search does not find and close it again
                connection.abort()
                return True
        self._full_until = now + FULL_SECONDS
        return False


def _abort(connection: Seat) -> None:
    connection.abort()
