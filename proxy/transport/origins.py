"""Endpoints as policies reach them: which calls wait to dial one, how calls take turns on them, and their health.

An origin is found by what defines it (the endpoint, and the way to it), so it outlives reloads if its definition does;
its health is known to all calls that use it.

Theory of dialling. A dial costs a handshake at both ends, and a burst of calls to an endpoint without an idle
connection would dial once for each. Thousands of dials at once starve each other: the endpoint's listen queue
overflows, the kernel reports that to neither side and tries again after 1, 3 and 7 s, and `timeouts.connect` ends
nearly all of them. So DIALS are under way at a time, and further calls wait for whichever is available first: a place
to dial, or a connection that another call has finished with. The call's deadline limits the wait; `connect` begins with
the dial. Waiters are served in order of arrival, and whatever is given to one is used: a waiter that leaves passes it
on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice

from proxy.retry.apps import NamedApp
from proxy.retry.policies.routing import Endpoint
from proxy.retry.queues.fair_order import FairOrder, leave_first, take_place
from proxy.retry.upstreams.penalty import Penalty
from proxy.transport.clock import monotonic
from proxy.transport.dial import Way, parent_credentials
from proxy.transport.streams import Resting, SharedConnection
from proxy.wire.head import ResponseHead

#: Dials of one endpoint under way at a time, in one worker. Servers with a short listen queue hold 100 (asyncio,
#: Tomcat) or 128 (Linux's SOMAXCONN before 5.4), so that none of these is dropped unseen.
DIALS = 100
#: Seconds of rest to name to `is_sound`, so that it asks the kernel whether bytes wait on the connection.
_LOOK = 1.0


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call that waits to dial. `given`: the future of what it is given: a connection, or None for a place to dial.
    `within`: the seconds that its dial may take. `connection`: whether it accepts a connection that another call has
    finished with instead of a dial. `app`: the app that it belongs to, None if it has no name.
    """

    given: asyncio.Future[Resting | None]
    within: float
    connection: bool
    app: NamedApp | None = None
    since: float = field(default_factory=monotonic)

    def retime(self, at: float) -> None:
        """Do nothing: a call that waits to dial has no alarm."""


class DialQueue:
    """The calls that wait to dial one endpoint (`waiting`, in order of arrival, each with the time from which it
    waits), and the number of dials under way. If apps have names, their calls go by priority and weight (contract,
    section 17).
    """

    def __init__(self) -> None:
        self.waiting: OrderedDict[_Waiter, float] = OrderedDict()
        self._order: FairOrder | None = None
        self._dialling = 0
        self._reached = 0.0  # when a dial last succeeded

    @property
    def is_full(self) -> bool:
        """Whether a new call has to wait."""
        return self._dialling >= DIALS or bool(self.waiting)

    async def enter(
        self,
        within: float,
        give_back: Callable[[Resting], None],
        *,
        connection: bool,
        app: NamedApp | None = None,
    ) -> Resting | None:
        """Wait for one of the places for dials under way, and return None once the call has it; `leave` gives it back.
        If `connection` is true, a connection that another call has finished with may come first, and is returned
        instead; if this call is cancelled just when it is given one, `give_back` gets it. Raises TimeoutError if no
        dial reaches the endpoint for as long as a dial may take, `within` seconds. `app`: the app that the call belongs
        to, None if it has no name.
        """
        if not self.is_full:
            self.take()
            return None
        waiter = _Waiter(asyncio.get_running_loop().create_future(), within, connection, app)
        self.waiting[waiter] = waiter.since
        self._order = take_place(self._order, self.waiting)
        try:
            while True:
                given = await waiter.given
                if given is None or given.is_sound(_LOOK):
                    return given
                given.abort()  # it was closed meanwhile
                waiter.given = asyncio.get_running_loop().create_future()
                self.waiting[waiter] = waiter.since
                self.waiting.move_to_end(waiter, last=False)
                self._disturb()
                self._serve()
        except asyncio.CancelledError:
            self._forsake(waiter, give_back)
            raise

    def take(self) -> None:
        """Take a place for a dial, of which there is one (`is_full`)."""
        self._dialling += 1

    def leave(self, *, reached: bool = False, timed_out: bool = False) -> None:
        """Give back the place of a dial, which has `reached` the endpoint, or `timed_out`, or failed at once."""
        self._dialling -= 1
        if reached:
            self._reached = monotonic()
        elif timed_out:
            self._time_out_overdue()
        self._serve()

    def offer(self, connection: Resting) -> bool:
        """Give a connection that is not in use to the first waiter that accepts one; False if none does."""
        for waiter in self.waiting:
            if waiter.connection and not waiter.given.done():
                leave_first(self._order, waiter, self.waiting)
                del self.waiting[waiter]
                waiter.given.set_result(connection)
                return True
        return False

    def _serve(self) -> None:
        while self.waiting and self._dialling < DIALS:
            waiter = next(iter(self.waiting))
            leave_first(self._order, waiter, self.waiting)
            del self.waiting[waiter]
            if not waiter.given.done():  # a waiter that is done was cancelled, and is about to leave
                self._dialling += 1
                waiter.given.set_result(None)

    def _time_out_overdue(self) -> None:
        """Time out all calls that have waited for as long as a dial may take, if no dial has succeeded since they began
        to wait. Called when a dial has timed out: without this, the calls to a dead endpoint would dial and time out a
        hundred at a time.
        """
        now = monotonic()
        for waiter in list(self.waiting):
            if self._reached < waiter.since and waiter.since + waiter.within <= now and not waiter.given.done():
                del self.waiting[waiter]
                self._disturb()
                waiter.given.set_exception(TimeoutError())

    def _disturb(self) -> None:
        """Note that the queue has changed otherwise than by turns."""
        if self._order is not None:
            self._order.disturb()

    def _forsake(self, waiter: _Waiter, give_back: Callable[[Resting], None]) -> None:
        """Remove a waiter whose call is over. If it was given something at this very moment, pass that on: a place to
        dial to the next waiter, a connection to `give_back`.
        """
        if self.waiting.pop(waiter, None) is not None:
            self._disturb()
        given = waiter.given
        if given.done() and not given.cancelled() and given.exception() is None:
            connection = given.result()
            if connection is None:
                self.leave()
            elif connection.is_open:
                give_back(connection)


class Origin:
    """An endpoint as a policy reaches it: its idle connections (`idle`, the oldest first), the calls that wait to dial
    it, and its health. On HTTP/2 `shared` are its connections, `dialled` is the task that opens the next one, and
    `awaiting` are the calls that wait until another stream may be opened. `selected_http1`: TLS has selected HTTP/1.1
    for the latest connection that could be of either version.
    """

    def __init__(self, endpoint: Endpoint, way: Way) -> None:
        self.endpoint = endpoint
        self.way = way
        self.http2, self.http1 = way.http2, not way.http2 or way.either  # the versions that it may be spoken to in
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
        """Return `head`, the head of an answer, or the head object of the answer before if its bytes are equal, because
        values computed from that object are kept with it.
        """
        usual = self._usual
        if usual is not None and usual.raw == head.raw:
            return usual
        self._usual = head
        return head

    @property
    def may_dial_at_once(self) -> bool:
        """Whether a call may dial an HTTP/1 connection without waiting, because fewer dials are under way than may
        be.
        """
        return not self.http2 and not self.dials.is_full

    def freed(self, places: int) -> None:
        """Give `places` free places for streams on a shared connection to the calls that have waited longest."""
        for waiting in islice(self.awaiting.values(), places):
            if not waiting.done():
                waiting.set_result(None)

    @property
    def places(self) -> int:
        """The number of further streams that can be opened on shared connections."""
        return sum(max(0, shared.places) for shared in self.shared)

    def forsaken(self, turn: object) -> None:
        """Remove the waiting call that `turn` identifies, because it waits no more; if it had just been given a place,
        the next call gets that.
        """
        given = self.awaiting.pop(turn, None)
        if given is not None and given.done():
            self.freed(self.places)

    def refused(self, now: float) -> None:
        """Note that the endpoint could not be connected to, so that it is passed over for a while. Attempts that fail
        together count once.
        """
        self.penalty.refused(now)

    def reached(self) -> None:
        """Note that the endpoint could be connected to, so that it is passed over no more."""
        if self.penalty.until:
            self.penalty.reached()


class Destination:
    """The origins of one upstream, or of one authority that a request named."""

    def __init__(self, origins: tuple[Origin, ...]) -> None:
        self.origins = origins
        self.only = origins[0] if len(origins) == 1 else None  # the only origin; None if there is a choice
        self._turn = 0

    def choose(self, avoid: Collection[Origin], now: float) -> Origin:
        """Choose the origin for an attempt: the next in turn. Origins in `avoid`, and origins whose endpoint lately
        refused connections, are chosen only if there is no other.

        A retry, which has origins to avoid, does not advance the turn: if it did, every call would begin with the
        failing one of two endpoints.
        """
        origin = self.next_origin(avoid, now)
        if not avoid:
            self.took(origin)
        return origin

    def next_origin(self, avoid: Collection[Origin], now: float) -> Origin:
        """The origin that `choose` would take, without advancing the turn."""
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
        """Make the origin after this one the next in turn, because a call was sent to this one."""
        self._turn = (self.origins.index(origin) + 1) % len(self.origins)


def endpoint_of(scheme: str, authority: str) -> Endpoint:
    """The endpoint that `authority`, host[:port], names; it must be valid. Without a port, the port is that of
    `scheme`; any scheme but `https` counts as `http`.
    """
    https = scheme == "https"
    host, _, port = authority[1:].partition("]") if authority.startswith("[") else authority.partition(":")
    return Endpoint("https" if https else "http", host, int(port.removeprefix(":") or (443 if https else 80)))
