"""The pool: endpoints, and the connections to them that are idle between exchanges.

Law: a connection that was found closed, or on which unexpected bytes arrived, is never used. The connection used last
is used next, so that the others age and are closed. Nothing here is a timer for a call: one coarse timer checks idle
connections, and stops when there is none.

An `Origin` is an endpoint as one policy reaches it; a `Destination` is the origins that an upstream's calls take turns
on. Both are found by what defines them, so they outlive reloads if their definition does; a connection does if the new
configuration would open it in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter
from typing import cast

from proxy.retry.apps import NamedApp
from proxy.retry.facts import Fault
from proxy.retry.policies.routing import Endpoint, Reach, Target
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import Connection, Keeper
from proxy.transport.dial import Dialer, Way
from proxy.transport.egress_guard import names_address
from proxy.transport.faults import NoPlaceError, NoRoomError
from proxy.transport.flusher import Flusher
from proxy.transport.greeting import Greeting
from proxy.transport.http2 import UpstreamConnection
from proxy.transport.origins import Destination, Origin, endpoint_of
from proxy.transport.renewal import Renewal
from proxy.transport.streams import Pooled, Resting, SharedConnection, Tunnel, UpstreamStream
from proxy.transport.tls import ResumingContext
from proxy.wire.http2.peer_limits import PeerLimits

#: Seconds for which `close` waits until all connections are reported lost.
LAST_SECONDS = 1.0
#: Seconds between two checks of idle connections; and where all of them are of HTTP/2, which are kept for much longer,
#: the most seconds: no check comes before the first of them may be closed, but a reload may shorten that time.
LOOK_OVER, LOOK_OVER_HTTP2 = 0.5, 5.0
#: Earlier than any time: a check is cancelled whenever it comes.
_NO_TIME = float("-inf")
#: Contract, section 6: a non-idempotent call reuses only a connection that has been idle for fewer seconds than this.
FRESH_ENOUGH = 1.0
#: The most destinations that are kept of those that requests themselves named; and the most origins.
KEPT = 4096


class Pool(Keeper):
    """All connections of one worker to upstreams. `idle`: the seconds for which an HTTP/1 connection is kept idle;
    `max_idle`: the most of these that are kept, over all origins; `chance`: the source of random numbers, None for a
    new one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dialer: Dialer,
        *,
        idle: float,
        max_idle: int,
        chance: random.Random | None = None,  # noqa: TID251  its type alone
    ) -> None:
        self._loop = loop
        self.dialer = dialer
        self.renewal = Renewal(loop, dialer.resolver, chance or random.Random())  # noqa: TID251, S311  spreads renewals
        self.idle = idle
        self.max_idle = max_idle
        self._origins: dict[tuple[Endpoint, Way], Origin] = {}
        # Destinations by target, scheme, authority and way: those of targets, and those that requests named.
        self._fixed: dict[tuple[int, str, str, bool, bool, bool], tuple[Target, Destination]] = {}
        self._asked_for: dict[tuple[int, str, str, bool, bool, bool], tuple[Target, Destination]] = {}
        #: Counts configurations: a connection of an earlier one is checked before it is used again.
        self.generation = 0
        self._reaches: Collection[Reach] | None = None  # those of the configuration; None: any
        self._resting: set[Origin] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.connections: set[Connection | UpstreamConnection] = set()
        self.flusher = Flusher(loop)
        self.http2_errors: Counter[int] = Counter()
        self.http2_limits = PeerLimits()
        self.http2_idle = 60.0  # seconds that an HTTP/2 connection without streams is kept
        self.most = sys.maxsize  # connections that file descriptors suffice for
        self._dialling = 0
        self._emptied: asyncio.Future[None] | None = None

    # -- destinations ---------------------------------------------------------------------------------------------

    def destination(
        self, target: Target, scheme: str, authority: str, *, strict: bool, http2: bool = False, either: bool = False
    ) -> Destination:
        """The destination of a call: the target's endpoints, or, if it has none, the one that the request names
        (`scheme`, and `authority`: host[:port]). `strict`: loopback addresses are denied; `http2`: reached by HTTP/2;
        `either`: or by HTTP/1.1, if TLS selects that.
        """
        named = bool(target.endpoints)
        place = ("", "") if named else (scheme, authority)
        table = self._fixed if named else self._asked_for
        found = table.get((id(target), *place, strict, http2, either))
        if found is None:
            ends = target.endpoints or (endpoint_of(scheme, authority),)
            origins = tuple(self._origin(end, target, named, strict, http2, either) for end in ends)
            # The target is kept with it, so that no other object gets its id.
            found = table[id(target), *place, strict, http2, either] = target, Destination(origins)
            if len(self._asked_for) > KEPT:
                del self._asked_for[next(iter(self._asked_for))]
        return found[1]

    def tunnel_destination(
        self, target: Target, endpoints: tuple[Endpoint, ...], authority: str, *, strict: bool
    ) -> Destination:
        """The destination of a tunnel: these endpoints of the target, or, if there are none, the `authority` that the
        CONNECT names. `strict`: loopback addresses are denied.
        """
        if endpoints and endpoints == target.endpoints:
            return self.destination(target, "http", authority, strict=strict)
        ends = endpoints or (endpoint_of("http", authority),)
        return Destination(tuple(self._origin(end, target, bool(endpoints), strict) for end in ends))

    def _origin(
        self, endpoint: Endpoint, target: Target, named: bool, strict: bool, http2: bool = False, either: bool = False
    ) -> Origin:
        """The origin of an endpoint of this target, the same object for the same definition. `named`: the configuration
        names the endpoint, and not the request; `strict`: loopback addresses are denied; `http2`: the endpoint is
        reached by HTTP/2; `either`: or by HTTP/1.1, if TLS selects that.
        """
        named = named and (endpoint.unix is not None or names_address(endpoint.host))
        way = Way(*target.reach, named, strict, http2, either and endpoint.scheme == "https")
        origin = self._origins.get((endpoint, way))
        if origin is None:
            origin = self._origins[endpoint, way] = Origin(endpoint, way)
            if len(self._origins) > KEPT:
                for key, other in list(self._origins.items()):
                    if not other.open and not other.penalty.until and len(self._origins) > KEPT // 2:
                        del self._origins[key]
        return origin

    def use(self, reaches: Collection[Reach]) -> None:
        """Take a new configuration; `reaches` are the ways in which its policies reach their targets. The guard, which
        says what is denied, must have the new rules already.

        New policies bring new targets; origins that are defined as before are found again. Idle connections that the
        new configuration would not open in the same way are closed; those in use are checked when their exchange is
        over.
        """
        self._fixed.clear()
        self._asked_for.clear()
        self.dialer.contexts.refresh()
        self._reaches = reaches
        self.generation += 1
        resting = [connection for origin in self._resting for connection in origin.idle]
        resting += [each for each in self.connections if each.pinned is not None and each in each.pinned]
        for connection in resting:
            if not self.conforms(connection):
                connection.abort()
        for origin in self._origins.values():
            for shared in origin.shared:
                if not self.conforms(shared):
                    shared.drain()

    def conforms(self, connection: Pooled) -> bool:
        """Whether the configuration in force would open a connection in the same way as this one was. With this check a
        change applies from the next attempt on, and steady traffic keeps no connection alive that is not allowed any
        more.
        """
        if connection.generation == self.generation:
            return True
        way, endpoint, transport = connection.origin.way, connection.origin.endpoint, connection.transport
        if transport is None or (self._reaches is not None and way.reach not in self._reaches):
            return False
        context = transport.get_extra_info("sslcontext")
        if isinstance(context, ResumingContext) and context.stale:
            return False
        if not way.named and endpoint.unix is None:
            peer = transport.get_extra_info("peername")
            host = endpoint.host if way.parent is not None else peer[0] if peer else ""
            if not host or self.dialer.guard.refuses(host, endpoint.port, strict=way.strict):
                return False
        connection.generation = self.generation
        return True

    # -- connections ----------------------------------------------------------------------------------------------

    def lease(
        self, origin: Origin, now: float, idempotent: bool, not_on: Collection[object] = (), queued: bool = False
    ) -> UpstreamStream | None:
        """A stream on an open connection; None if none may be used, so that `open` is needed. `now`: seconds;
        `idempotent`: whether the request may be repeated if the connection turns out to be closed; `not_on`: shared
        connections that are used only if there is no other. `queued`: the call has waited for a free stream; a call
        that has not takes none that others wait for.
        """
        if origin.http2 and (queued or not origin.awaiting or origin.places > len(origin.awaiting)):
            used: SharedConnection | None = None
            for shared in origin.shared:
                if shared.is_free:
                    if shared.expires <= now:
                        self._loop.call_soon(shared.drain)
                    elif not not_on or shared not in not_on:
                        return shared.stream()
                    else:
                        used = used or shared
            if used is not None:
                return used.stream()
        if not origin.http1:
            return None
        idle = origin.idle
        while idle:
            resting = idle[-1]
            rested = now - resting.since
            if rested >= self.idle or (rested >= FRESH_ENOUGH and not idempotent):
                return None  # all before it have rested longer; `_look_over` closes them
            idle.pop()
            if resting.expires <= now:
                resting.abort()
                continue
            # For a call that may not be repeated the kernel is always asked: the upstream may just have closed.
            if resting.is_sound(rested if idempotent else self.idle):
                return resting
            resting.abort()
        return None

    async def open(
        self,
        origin: Origin,
        *,
        within: float,
        idempotent: bool | None = None,
        not_on: Collection[object] = (),
        alone: bool = False,
        app: NamedApp | None = None,
    ) -> UpstreamStream:
        """Open a stream on a new connection, which is dialled for at most `within` seconds from this call's turn on
        (`DialQueue`). A call that would have to wait for its turn may get a used connection instead, unless
        `idempotent` (whether the request may be repeated) is None. `not_on`: shared connections that are used only if
        there is no other; `alone`: open a connection for this stream, even if it could share one; `app`: the app that
        the call belongs to. Raises the errors that `dial_failed` takes.
        """
        if origin.http2 and not origin.selected_http1 and not alone:
            stream = await self._open_shared(origin, within, not_on, idempotent=bool(idempotent))
            if stream is not None:
                return stream
        dials = origin.dials
        used: UpstreamStream | None = None
        if dials.is_full and idempotent is not None:
            used = self.lease(origin, monotonic(), idempotent=idempotent)
        used = used or await dials.enter(within, self.rest, connection=idempotent is not None, app=app)
        return used or await self._open(origin, within=within, tunnel=False)

    def begin_dial(self, origin: Origin) -> bool:
        """Take a place to dial an HTTP/1 connection to this origin, which `end_dial` gives back; return False if there
        is none at once.
        """
        if not origin.may_dial_at_once or len(self.connections) + self._dialling >= self.most:
            return False
        origin.dials.take()
        self._dialling += 1
        return True

    def end_dial(self, origin: Origin, reached: bool, timed_out: bool) -> None:
        """Give back the place of a dial, which has `reached` the endpoint, or `timed_out`, or failed at once."""
        self._dialling -= 1
        origin.dials.leave(reached=reached, timed_out=timed_out)

    def call_soon(self, function: Callable[[BaseException], None], error: BaseException) -> None:
        """Call a function with this error in the next turn of the loop."""
        self._loop.call_soon(function, error)

    async def open_tunnel(self, origin: Origin, *, within: float, app: NamedApp | None = None) -> Tunnel:
        """Open a connection that carries bytes from the start: without TLS of ours, and through a tunnel if there is a
        parent proxy. It is dialled for at most `within` seconds. `app`: the app that the call belongs to, None if it
        has no name. Raises the errors that `dial_failed` takes.
        """
        await origin.dials.enter(within, self.rest, connection=False, app=app)
        return cast(Tunnel, await self._open(origin, within=within, tunnel=True))

    async def _open_shared(
        self, origin: Origin, within: float, not_on: Collection[object], *, idempotent: bool
    ) -> UpstreamStream | None:
        """Open a stream on a connection that calls share; None if the upstream's TLS has selected HTTP/1.1 instead. One
        connection is dialled at a time, for at most `within` seconds; if the dial fails, so do all calls that wait for
        it, except for those that get a stream on another connection. `not_on`: shared connections that are used only if
        there is no other; `idempotent`: whether the request may be repeated.
        """
        turn = object()
        lease = partial(self.lease, origin, idempotent=idempotent, not_on=not_on)
        try:
            while (stream := lease(monotonic(), queued=turn in origin.awaiting)) is None:
                if origin.selected_http1:
                    return None
                if origin.dialled is None:
                    origin.dialled = self._loop.create_task(self._dial_shared(origin, within))
                    # Marks the exception as seen, if no call waits for the dial any more.
                    origin.dialled.add_done_callback(lambda dial: dial.cancelled() or dial.exception())
                dial, freed = origin.dialled, self._loop.create_future()
                origin.awaiting[turn] = freed  # a call whose place another one took keeps its turn
                await asyncio.wait((dial, freed), return_when=asyncio.FIRST_COMPLETED)
                if not freed.done():
                    dial.result()
        except asyncio.CancelledError:
            origin.forsaken(turn)
            raise
        finally:
            origin.awaiting.pop(turn, None)
        return stream

    async def _dial_shared(self, origin: Origin, within: float) -> None:
        try:
            connection = await self._dial(origin, within=within, tunnel=False)
            if isinstance(connection, Connection):
                self.rest(connection)
        finally:
            origin.dialled = None

    async def _open(self, origin: Origin, *, within: float, tunnel: bool) -> Connection | UpstreamStream:
        """Dial, for at most `within` seconds, for a call that has a place to dial, and give that place back afterwards.
        Return a stream on the new connection or, for HTTP/1 and a `tunnel`, the connection itself.
        """
        reached = timed_out = False
        try:
            connection = await self._dial(origin, within=within, tunnel=tunnel)
            reached = True
        except TimeoutError:
            timed_out = True
            raise
        finally:
            origin.dials.leave(reached=reached, timed_out=timed_out)
        return connection.stream() if isinstance(connection, UpstreamConnection) else connection

    async def _dial(self, origin: Origin, *, within: float, tunnel: bool) -> Connection | UpstreamConnection:
        """Dial a new connection for at most `within` seconds; `tunnel`: one that carries bytes from the start. An
        HTTP/2 connection is shared from now on, and at least one stream may be opened on it. Raises NoRoomError,
        NoPlaceError, TimeoutError, or what `Dialer.open` raises.
        """
        if len(self.connections) + self._dialling >= self.most:
            resting = sum(len(each.idle) for each in self._resting)
            if len(self.connections) - resting + self._dialling >= self.most:
                raise NoRoomError
            self.close_idle()
        way = origin.way
        http1 = partial(Connection, self, origin, tunnel=tunnel, generation=self.generation)
        http2 = partial(UpstreamConnection, self, origin, self.http2_limits, self.generation)
        dialled: Connection | UpstreamConnection | Greeting
        if tunnel or not way.http2:
            dialled = http1()
        else:
            dialled = Greeting(http1, http2) if way.either else http2()
        self._dialling += 1
        task = asyncio.current_task(self._loop)
        assert task is not None  # a dial is waited for
        self.dialer.times.begin(task, within)
        try:
            protocol = cast(asyncio.Protocol, dialled)
            await self.dialer.open(origin.endpoint, way, protocol, tunnel=tunnel, within=within)
            connection = dialled.made if isinstance(dialled, Greeting) else dialled
            assert connection is not None  # its handshake is done
            if isinstance(connection, UpstreamConnection):
                await self._settled(connection)
        except BaseException as error:
            dialled.unwanted()
            if self.dialer.times.end(task) and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error
            raise
        finally:
            self._dialling -= 1
        self.dialer.times.end(task)
        origin.selected_http1 = way.either and isinstance(connection, Connection)
        if isinstance(connection, UpstreamConnection):
            if not connection.is_free:
                connection.drain()
                raise NoPlaceError
            origin.shared.append(connection)
        return connection

    async def _settled(self, connection: UpstreamConnection) -> None:
        """Wait until the upstream has said what its HTTP/2 connection allows. Raises WrongProtocolError, or another
        error of `faults.dialling`.
        """
        try:
            await connection.settled()
        except BaseException:
            transport = connection.transport
            peer = None if transport is None else transport.get_extra_info("peername")
            self.dialer.failed_at(peer[:2] if isinstance(peer, tuple) else None)
            raise

    def dial_failed(self, origin: Origin, error: BaseException) -> Fault:
        """Return the fault that an error raised by `open` stands for, and note in the origin's health that its endpoint
        could not be connected to, unless the proxy itself refused to connect.
        """
        fault = faults.dialling(error)
        if fault.error not in (faults.PROHIBITED, faults.NO_ROOM):
            origin.refused(monotonic())
        return fault

    def opened(self, connection: Connection | UpstreamConnection) -> None:
        """Note that a connection has been opened."""
        self.connections.add(connection)
        self.renewal.opened(connection, self.connections)
        connection.origin.open += 1
        connection.origin.reached()

    def rest(self, connection: Resting) -> None:
        """Take back a connection whose exchange is over: give it to a waiting call, or keep it as idle."""
        if connection.generation != self.generation and not self.conforms(connection):
            connection.close()
            return
        origin = connection.origin
        connection.since = monotonic()
        if origin.dials.waiting and connection.expires > connection.since and origin.dials.offer(connection):
            return
        origin.idle.append(connection)
        if self._timer is None or (len(origin.idle) == 1 and origin not in self._resting):
            self._stop_looking_over(LOOK_OVER)
            self.emptied(connection)

    def emptied(self, connection: Pooled) -> None:
        """Note that a connection is idle: it is of HTTP/1, or has no streams any more and accepts others."""
        self._resting.add(connection.origin)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_OVER, self._look_over)

    def lost(self, connection: Connection | UpstreamConnection) -> None:
        """Note that a connection is closed, whichever side closed it."""
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            if not self._emptied.done():  # `close` no longer waits for it
                self._emptied.set_result(None)
            self._emptied = None
        origin = connection.origin
        origin.open -= 1
        if connection in origin.idle:
            origin.idle.remove(cast(Resting, connection))
        elif connection in origin.shared:
            origin.shared.remove(cast(SharedConnection, connection))

    def _look_over(self) -> None:
        """Close the connections that have been idle too long, and those beyond `max_idle`, the longest idle first."""
        now = since = monotonic()  # `since`: when the first of the HTTP/2 connections became idle
        kept: list[Resting] = []
        for origin in list(self._resting):
            for connection in list(origin.idle):
                if now - connection.since >= self.idle:
                    connection.abort()
                else:
                    kept.append(connection)
            unused = [shared for shared in origin.shared if shared.is_resting]
            for shared in unused:
                since = min(since, shared.since)
                if now - shared.since >= self.http2_idle:
                    shared.drain()
            if not origin.idle and not unused:
                self._resting.discard(origin)
        if len(kept) > self.max_idle:
            kept.sort(key=attrgetter("since"))
            for connection in kept[: len(kept) - self.max_idle]:
                connection.abort()
        wait = LOOK_OVER
        if not any(origin.idle for origin in self._resting):
            wait = min(max(since + self.http2_idle - now, LOOK_OVER), LOOK_OVER_HTTP2)
        self._timer = self._loop.call_later(wait, self._look_over) if self._resting else None

    def _stop_looking_over(self, within: float = _NO_TIME) -> None:
        """Cancel the next check of idle connections, unless it comes within so many seconds."""
        timer = self._timer
        if timer is not None and timer.when() > self._loop.time() + within:
            timer.cancel()
            self._timer = None

    def close_idle(self) -> None:
        """Close all idle HTTP/1 connections."""
        for origin in list(self._resting):
            for connection in list(origin.idle):
                connection.abort()

    async def close(self) -> None:
        """Close every connection, and cancel look-ups."""
        self._stop_looking_over()
        for connection in list(self.connections):
            connection.abort()
        with contextlib.suppress(TimeoutError):  # a connection that is never reported lost does not delay the end
            await asyncio.wait_for(self._empty(), LAST_SECONDS)
        await self.renewal.close()
        await self.dialer.close()

    async def _empty(self) -> None:
        while self.connections:
            self._emptied = self._loop.create_future()
            await self._emptied
