"""Endpoints as policies reach them: which calls wait to dial one, how calls take turns on them, and their health.

An origin is found by what defines it (the endpoint, and the way to it), so it outlives reloads if its definition does;
what is learnt of its health is shared by all.

Theory of dialling. A dial costs a handshake at both ends, and a burst of calls to an endpoint without an idle
connection would dial once for each. Thousands of dials at once starve each other: the endpoint's listen queue
overflows, the kernel reports that to nobody and tries again after 1, 3 and 7 s, and `timeouts.connect` ends nearly all
of them. So DIALS are under way at a time, and further calls wait for whichever comes first: a place to dial, or a
connection that another call has finished with. The call's deadline limits the wait; `connect` begins with the dial.
Waiters are served in order of arrival, and what is given is used: a waiter that leaves passes it on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice

from proxy.retry.penalty import Penalty
from proxy.retry.routing import Endpoint
from proxy.transport.clock import monotonic
from proxy.transport.dial import Way, parent_credentials
from proxy.transport.streams import Resting, SharedConnection
from proxy.wire.head import ResponseHead

#: Dials of one endpoint under way at a time, in one worker. Servers with a short listen queue hold 100 (asyncio,
#: Tomcat) or 128 (Linux's SOMAXCONN before 5.4), so that none of these is dropped unseen.
DIALS = 100
#: Seconds of rest that have the kernel asked whether something has come on a connection.
_LOOK = 1.0


@dataclass(slots=True, eq=False)
class _Waiter:
    """`connection`: one that another call has used will do."""

    given: asyncio.Future[Resting | None]
    within: float
    connection: bool
    since: float = field(default_factory=monotonic)


class DialQueue:
    """What waits to dial one endpoint, in order of arrival. `waiting`: whether anybody does (an empty one is false)."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[_Waiter, None] = OrderedDict()
        self._dialling = 0
        self._reached = 0.0  # when a dial last succeeded

    @property
    def is_full(self) -> bool:
        """Whether who comes now has to wait."""
        return self._dialling >= DIALS or bool(self.waiting)

    async def enter(self, within: float, give_back: Callable[[Resting], None], *, connection: bool) -> Resting | None:
        """Wait for a place to dial (None, and `leave` gives it back), or where `connection` says so for one that
        another call is done with; `give_back` takes that where it comes too late. Raises TimeoutError where the
        endpoint answers nobody for as long as a dial may take, `within` seconds.
        """
        if not self.is_full:
            self._dialling += 1
            return None
        waiter = _Waiter(asyncio.get_running_loop().create_future(), within, connection)
        self.waiting[waiter] = None
        try:
            while True:
                given = await waiter.given
                if given is None or given.is_sound(_LOOK):
                    return given
                given.abort()  # it was closed on its way here
                waiter.given = asyncio.get_running_loop().create_future()
                self.waiting[waiter] = None
                self.waiting.move_to_end(waiter, last=False)
                self._serve()
        except asyncio.CancelledError:
            self._forsake(waiter, give_back)
            raise

    def leave(self, *, reached: bool = False, timed_out: bool = False) -> None:
        """Give the place of a dial back: it has `reached` the endpoint, or `timed_out`, or failed at once."""
        self._dialling -= 1
        if reached:
            self._reached = monotonic()
        elif timed_out:
            self._tell_overdue()
        self._serve()

    def offer(self, connection: Resting) -> bool:
        """Give a connection that nobody uses any more to the first who can do with it; False: nobody can."""
        for waiter in self.waiting:
            if waiter.connection and not waiter.given.done():
                del self.waiting[waiter]
                waiter.given.set_result(connection)
                return True
        return False

    def _serve(self) -> None:
        while self.waiting and self._dialling < DIALS:
            waiter, _ = self.waiting.popitem(last=False)
            if not waiter.given.done():  # else it is cancelled, and about to leave
                self._dialling += 1
                waiter.given.set_result(None)

    def _tell_overdue(self) -> None:
        """A dial took all its time. Who has waited as long, and in all of it nobody got through, has no better chance:
        else the calls to a dead endpoint would time out a hundred at a time.
        """
        now = monotonic()
        for waiter in list(self.waiting):
            if self._reached < waiter.since and waiter.since + waiter.within <= now and not waiter.given.done():
                del self.waiting[waiter]
                waiter.given.set_exception(TimeoutError())

    def _forsake(self, waiter: _Waiter, give_back: Callable[[Resting], None]) -> None:
        """Its call is over. What it was given in this very moment goes to the next."""
        self.waiting.pop(waiter, None)
        given = waiter.given
        if given.done() and not given.cancelled() and given.exception() is None:
            connection = given.result()
            if connection is None:
                self.leave()
            elif connection.is_open:
                give_back(connection)


class Origin:
    """An endpoint: its resting connections, oldest first, who waits to dial it, and its health. On HTTP/2 `shared` are
    its connections, `dialled` the next one while it is opened, and `awaiting` the calls that wait for a place;
    `selected_http1`, by the latest of the connections that might have been either's.
    """

    def __init__(self, endpoint: Endpoint, way: Way) -> None:
        self.endpoint = endpoint
        self.way = way
        self.http2, self.http1 = way.http2, not way.http2 or way.either  # by which it may be spoken to
        self.label = endpoint.label
        self.host = endpoint.authority.encode("latin-1")
        self.path = endpoint.path.encode()
        self.idle: list[Resting] = []
        self.dials = DialQueue()
        self.shared: list[SharedConnection] = []
        self.dialled: asyncio.Task[None] | None = None
        self.awaiting: dict[object, asyncio.Future[None]] = {}
        self.selected_http1 = False
        self.open = 0
        self._usual: ResponseHead | None = None
        self.penalty = Penalty()
        #: Whether requests go in absolute form, to a parent proxy; and field lines for it.
        self.absolute = way.parent is not None and endpoint.scheme == "http" and endpoint.unix is None
        self.credentials = parent_credentials(way.parent) if way.parent and self.absolute else b""

    def as_usual(self, head: ResponseHead) -> ResponseHead:
        """The head of an answer, or the same one as it came on another connection: what is remembered of that one
        holds without a look at it.
        """
        usual = self._usual
        if usual is not None and usual.raw == head.raw:
            return usual
        self._usual = head
        return head

    def freed(self, places: int) -> None:
        """So many places of a shared connection are free: they are for those that have waited longest."""
        for waiting in islice(self.awaiting.values(), places):
            if not waiting.done():
                waiting.set_result(None)

    @property
    def places(self) -> int:
        """How many more streams can be opened on shared connections."""
        return sum(max(0, shared.places) for shared in self.shared)

    def forsaken(self, turn: object) -> None:
        """The waiter with this turn went away: a place that was given to it goes to the next."""
        given = self.awaiting.pop(turn, None)
        if given is not None and given.done():
            self.freed(self.places)

    def refused(self, now: float) -> None:
        """Pass the endpoint over for a while: it could not be connected to. Attempts that fail together count once."""
        self.penalty.refused(now)

    def reached(self) -> None:
        """Take note that the endpoint could be connected to: it is passed over no more."""
        self.penalty.reached()


class Destination:
    """The origins of one upstream, or of one authority that a request named."""

    def __init__(self, origins: tuple[Origin, ...]) -> None:
        self.origins = origins
        self.only = origins[0] if len(origins) == 1 else None  # where there is nothing to choose
        self._turn = 0

    def choose(self, avoid: Collection[Origin], now: float) -> Origin:
        """The next in turn: not one that the call avoids, nor one that refuses connections, while another is left.

        A retry takes no turn: else, of two endpoints, every call would begin with the one that fails.
        """
        origin = self.next(avoid, now)
        if not avoid:
            self.took(origin)
        return origin

    def next(self, avoid: Collection[Origin], now: float) -> Origin:
        """The origin that `choose` would take, with the round-robin left as it is."""
        best, best_rank = self.origins[0], 4
        for step in range(len(self.origins)):
            origin = self.origins[(self._turn + step) % len(self.origins)]
            rank = 2 * (origin.penalty.until > now) + (origin in avoid)
            if rank < best_rank:
                best, best_rank = origin, rank
                if rank == 0:
                    break
        return best

    def took(self, origin: Origin) -> None:
        """Advance the round-robin past this origin."""
        self._turn = (self.origins.index(origin) + 1) % len(self.origins)


def endpoint_of(scheme: str, authority: str) -> Endpoint:
    """The endpoint that host[:port] names, as a valid authority was read."""
    https = scheme == "https"
    host, _, port = authority[1:].partition("]") if authority.startswith("[") else authority.partition(":")
    return Endpoint("https" if https else "http", host, int(port.removeprefix(":") or (443 if https else 80)))
