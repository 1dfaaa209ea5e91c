"""An app's HTTP/2 connection: its session, its transport, and how it ends.

Calls of one connection are independent of each other. All frames of a turn of the loop are written in one piece. A
connection that drains still serves what its app opened before it could know of the drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.server.acceptor import Acceptor
from proxy.server.http2_stream import Home, Http2AppStream
from proxy.server.idle_handover import ConnectionGiver
from proxy.server.routing import Exposure, Inside
from proxy.transport.clock import monotonic
from proxy.transport.http2_protocol import Http2Protocol
from proxy.transport.unread import has_said
from proxy.wire.first_bytes import HTTP2
from proxy.wire.http2.frames import ENHANCE_YOUR_CALM, NO_ERROR
from proxy.wire.http2.graceful_shutdown import NEVER
from proxy.wire.http2.peer_limits import PeerLimits
from proxy.wire.http2.request import Request2
from proxy.wire.http2.session import Session

#: Plans that a connection keeps: apps repeat few heads, or none.
PLANS: Final = 16


class Http2Connection(Home):
    """An app's HTTP/2 connection. `since`: the time since which it is idle; 0 while it has streams. `inside`: the
    CONNECT that it is inside of. `surplus`: it is above the limit, so its first request is answered with 503.
    """

    speaks = HTTP2

    __slots__ = ("_context", "_fd", "_generation", "_last", "_places", "_plans", "_timer", "since")

    #: The session itself bounds how long a head may take.
    dripping = False

    def __init__(
        self,
        acceptor: Acceptor,
        transport: asyncio.Transport,
        *,
        client: str,
        exposure: Exposure,
        inside: Inside | None,
    ) -> None:
        super().__init__(acceptor.context.loop, acceptor.context.pool.flusher)
        self.acceptor = acceptor
        self.transport = transport
        self.client = client
        self.exposure = exposure
        self.inside = inside
        self.surplus = False
        self.watched = False
        self._places = 0  # places that its streams have taken, beside the connection's own
        self.connected = self.since = monotonic()
        limits = acceptor.settings.limits
        self.session = Session(
            self,
            PeerLimits(
                limits.header_bytes,
                limits.headers,
                limits.streams,
                limits.resets,
                held=acceptor.settings.buffers.total,
            ),
            self.since,
            client=False,
            errors=acceptor.http2_errors,
        )
        self._fd = transport.get_extra_info("socket").fileno()
        self._timer: asyncio.TimerHandle | None = None
        self._plans: dict[Request2, Plan] = {}  # plans of recent heads, by the settings of `_generation`
        self._last: Plan | None = None  # the newest plan
        self._context = acceptor.context
        self._generation = acceptor.context.generation

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def _read(self, data: bytes, begun: float) -> None:
        """Read `data`, the bytes that came in one turn of the loop; if a head has begun to come and is not whole, set
        the timer that bounds how long it may take. `begun`: when the turn of the loop began.
        """
        Http2Protocol._read(self, data, begun)
        if self._timer is None and self.session.due < NEVER:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything: the connection is closed, by either side."""
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        self.session.lost()
        self._give_back(0)
        self.acceptor.left(self)

    def flush(self) -> None:
        """Write the frames that were gathered in this turn of the loop. The streams that have ended give back the
        places that they took in the limit on connections (`limits.connections`), in which each stream beyond the first
        counts as one connection more.
        """
        if self._places:
            self._give_back(len(self.session.streams))
        Http2Protocol.flush(self)

    # -- proxy.wire.http2.stream.SessionOwner ----------------------------------------------------------------------

    def accept(self) -> Http2AppStream:
        self.since = 0.0
        return Http2AppStream(self)

    def admit(self, stream: Http2AppStream, head: Request2) -> Plan | None:
        """Return the plan of a request, or answer it on its stream and return None. A plan is kept for each head:
        requests whose header blocks have the same bytes have the same `head` object (`wire.http2.request`).
        """
        acceptor, context = self.acceptor, self._context
        if self._generation != context.generation:
            self._generation, self._plans, self._last = context.generation, {}, None
        if context.refusing or self.surplus:
            return acceptor.admit(stream, head)
        plan = self._plans.get(head)
        if plan is None:
            if self._last is not None:
                plan = self._last.alike(head, context.router)
            if plan is None:
                plan = acceptor.admit(stream, head)
            if plan is None:
                return None
            if len(self._plans) >= PLANS:
                self._plans.clear()
            self._plans[head] = self._last = plan
        return plan

    def opened(self) -> None:
        """Note that the app's SETTINGS have come, so that the connection is set up. If the proxy is draining, this
        connection begins to drain now.
        """
        if self._context.draining:
            self.session.drain(monotonic())

    def takes_one_more(self) -> bool:
        """Whether `limits.connections` has room for the newest stream; if so, count it. Each stream in flight beyond
        the first counts as one connection more.
        """
        if len(self.session.streams) - 1 <= self._places:
            return True
        taken = self.acceptor.connection_limit.take()
        self._places += taken
        return taken

    def _give_back(self, streams: int) -> None:
        """Free the places in `limits.connections` that the connection has taken for streams, except those that its
        `streams` streams in flight need.
        """
        free = self._places - max(0, streams - 1)
        if free > 0:
            self._places -= free
            self.acceptor.connection_limit.give_back(free)

    def changed(self) -> None:
        """Handle the end of a stream: if none is left, note since when the connection is idle, and close it if it has
        drained. The place of the ended stream is freed later, at the flush that ends each turn of the loop.
        """
        if not self.session.streams:
            self.since = monotonic()
            if self.session.drained:
                self._close()

    def failed(self, code: int, detail: str) -> None:
        self.give_up()

    def _close(self) -> None:
        """Close the connection once all written bytes were sent."""
        if self.transport is not None:
            self.flush()
        if self.transport is not None:
            self.transport.close()

    def _wait(self) -> None:
        self._timer = self.acceptor.context.loop.call_at(self.session.due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.session.tick(monotonic())
        self.send_soon()
        if self.transport is not None and self.session.due < NEVER:
            self._wait()

    # -- as the acceptor sees it ----------------------------------------------------------------------------------

    @property
    def exchange(self) -> Exchange | None:
        """A call in progress, None if there is none."""
        return next(iter(self.calls()), None)

    def calls(self) -> list[Exchange]:
        streams = cast(Iterable[Http2AppStream], self.session.streams.values())
        return [stream.exchange for stream in streams if stream.exchange is not None]

    def glance(self, *, closely: bool) -> None:
        """Do nothing: the transport always reports when the app leaves."""

    def is_silent(self, before: float) -> bool:
        """Whether closing the connection loses nothing: it has no streams, and has been idle since before the time
        `before`.
        """
        if self.transport is None:
            return True
        resting = not self.session.streams and not self.transport.get_write_buffer_size() and 0 < self.since < before
        return resting and not has_said(self._fd)

    def drained(self, before: float, giver: ConnectionGiver | None) -> None:
        self.session.drain(monotonic())
        self.send_soon()
        if self._timer is None and self.session.due < NEVER:
            self._wait()

    def cut(self) -> None:
        """End the calls in progress in a way that the app notices, because the proxy ends."""
        for call in self.calls():
            call.cut()
        self.session.fail(NO_ERROR, "the proxy is shutting down")

    def close_written(self) -> None:
        """Close the connection once all written bytes were sent."""
        self._close()

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Give the session up, because the connection is closed to make room for another. The arguments have no effect:
        the app gets an error code of HTTP/2 instead of an answer.
        """
        self.session.fail(ENHANCE_YOUR_CALM, "too many connections are open")
