"""Who waits to dial an endpoint, in order of arrival.

Theory of operation. A dial costs a handshake at both ends, and a burst of calls to an endpoint without a resting
connection would dial once for each. Thousands of dials at once starve each other: the endpoint's listen queue
overflows, the kernel says so to nobody and tries again after 1, 3 and 7 s, and `timeouts.connect` ends nearly all of
them. So DIALS are under way at a time, and whoever comes then waits for whichever is first: a place to dial, or a
connection that another call is done with. The wait is bounded by the call's deadline; `connect` begins with the dial.

Who came first is served first, and what is given is used: a waiter that leaves passes it on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from proxy.transport.clock import monotonic
from proxy.transport.streams import Resting

#: Dials of one endpoint under way at a time, in one worker. Servers with a short listen queue hold 100 (asyncio,
#: Tomcat) or 128 (Linux's SOMAXCONN before 5.4), so that none of these is dropped unseen.
DIALS = 100
#: Seconds of rest that have the kernel asked whether something has come on a connection.
_LOOK = 1.0


class _Waiter:
    """`connection`: one that another call has used will do."""

    __slots__ = ("connection", "given", "since", "within")

    def __init__(self, given: asyncio.Future[Resting | None], within: float, *, connection: bool) -> None:
        self.given = given
        self.within = within
        self.connection = connection
        self.since = monotonic()


class DialQueue:
    """Of one endpoint. `waiting`: whether anybody does (an empty one is false)."""

    __slots__ = ("_dialling", "_reached", "waiting")

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
        waiter = _Waiter(asyncio.get_running_loop().create_future(), within, connection=connection)
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
        if not given.done() or given.cancelled() or given.exception() is not None:
            return
        connection = given.result()
        if connection is None:
            self.leave()
        elif connection.is_open:
            give_back(connection)
