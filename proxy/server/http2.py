"""An app's HTTP/2 connection: its session, the transport beneath it, and how it ends.

Calls of one connection know nothing of each other. Everything is written in one piece for each turn of the loop; a
connection that drains still serves what its app opened before it could know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.server.acceptor import Acceptor
from proxy.server.http2_stream import Home, Http2AppStream
from proxy.server.routing import Exposure, Inside
from proxy.transport.clock import monotonic
from proxy.transport.http2_protocol import Http2Protocol
from proxy.transport.unread import has_said
from proxy.wire.first_bytes import HTTP2
from proxy.wire.http2.frames import ENHANCE_YOUR_CALM, NO_ERROR
from proxy.wire.http2.heads import Request2
from proxy.wire.http2.session import NEVER, PeerLimits, Session

#: Plans that a connection keeps: apps repeat few heads, or none.
PLANS: Final = 16


class Http2Connection(Home):
    """See the module. `since`: resting from then on; 0 while it has streams. `inside`: the CONNECT that it is inside
    of. `surplus`: one too many, its first request is answered with 503.
    """

    speaks = HTTP2

    __slots__ = ("_fd", "_generation", "_last", "_means", "_places", "_plans", "_timer", "since")

    #: A head that is not whole is the session's affair.
    dripping = False

    def __init__(
        self,
        acceptor: Acceptor,
        transport: asyncio.Transport,
        *,
        client: str,
        place: Exposure,
        inside: Inside | None,
    ) -> None:
        super().__init__(acceptor.means.loop, acceptor.means.pool.flusher)
        self.acceptor = acceptor
        self.transport = transport
        self.client = client
        self.place = place
        self.inside = inside
        self.surplus = False
        self.watched = False
        self._places = 0  # that its streams have, beside its own
        self.since = monotonic()
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
        self._plans: dict[Request2, Plan] = {}  # of heads that came lately, by the settings of
        self._last: Plan | None = None  # the one that was made last
        self._means = acceptor.means
        self._generation = acceptor.means.generation

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def _read(self, data: bytes, begun: float) -> None:
        """Read a turn's worth; a head that does not become whole is waited for no longer than it may take."""
        Http2Protocol._read(self, data, begun)
        if self._timer is None and self.session.due < NEVER:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whomever."""
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        self.session.lost()
        self._give_back(0)
        self.acceptor.left(self)

    def flush(self) -> None:
        """Write what was gathered, and give places back that no stream has any more."""
        if self._places:
            self._give_back(len(self.session.streams))
        Http2Protocol.flush(self)

    # -- proxy.wire.http2.session.SessionOwner ---------------------------------------------------------------------

    def accept(self) -> Http2AppStream:
        """A stream for a request."""
        self.since = 0.0
        return Http2AppStream(self)

    def admit(self, stream: Http2AppStream, head: Request2) -> Plan | None:
        """Say where a request goes, or answer it on its stream (None). One block makes one head (`wire.http2.heads`),
        and one head one plan.
        """
        acceptor, means = self.acceptor, self._means
        if self._generation != means.generation:
            self._generation, self._plans, self._last = means.generation, {}, None
        if means.refusing or self.surplus:
            return acceptor.admit(stream, head)
        plan = self._plans.get(head)
        if plan is None:
            if self._last is not None:
                plan = self._last.alike(head, means.router)
            if plan is None:
                plan = acceptor.admit(stream, head)
            if plan is None:
                return None
            if len(self._plans) >= PLANS:
                self._plans.clear()
            self._plans[head] = self._last = plan
        return plan

    def opened(self) -> None:
        """The app's SETTINGS have come."""
        if self._means.draining:
            self.session.drain(monotonic())

    def takes_one_more(self) -> bool:
        """Whether there is a place of `limits.connections` for the stream that came last: the first has its
        connection's own.
        """
        if len(self.session.streams) - 1 <= self._places:
            return True
        taken = self.acceptor.connection_limit.take()
        self._places += taken
        return taken

    def _give_back(self, streams: int) -> None:
        """Give places back that so many streams do not need."""
        free = self._places - max(0, streams - 1)
        if free > 0:
            self._places -= free
            self.acceptor.connection_limit.give_back(free)

    def changed(self) -> None:
        """A stream is over, or the connection drains. It is flushed in this turn of the loop, whatever the stream said
        last; then its place is given back.
        """
        if not self.session.streams:
            self.since = monotonic()
            if self.session.drained:
                self._close()

    def failed(self, code: int, detail: str) -> None:
        """Close the connection: its session was given up."""
        self.give_up()

    def _close(self) -> None:
        """Close once what was written has gone."""
        if self.transport is not None:
            self.flush()
        if self.transport is not None:
            self.transport.close()

    def _wait(self) -> None:
        self._timer = self.acceptor.means.loop.call_at(self.session.due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.session.tick(monotonic())
        self.send_soon()
        if self.transport is not None and self.session.due < NEVER:
            self._wait()

    # -- as the acceptor sees it ----------------------------------------------------------------------------------

    @property
    def exchange(self) -> Exchange | None:
        """One of its calls, where there are any."""
        return next(iter(self.calls()), None)

    def calls(self) -> list[Exchange]:
        """The calls in progress."""
        streams = cast(Iterable[Http2AppStream], self.session.streams.values())
        return [stream.exchange for stream in streams if stream.exchange is not None]

    def glance(self, *, closely: bool) -> None:
        """Do nothing: the transport always tells when its app leaves."""

    def is_silent(self, before: float) -> bool:
        """Whether nothing is lost with it: it has no streams, and nothing was said since before this time."""
        if self.transport is None:
            return True
        resting = not self.session.streams and not self.transport.get_write_buffer_size() and 0 < self.since < before
        return resting and not has_said(self._fd)

    def drained(self, before: float) -> None:
        """The proxy is shutting down: say so, and close once nothing is left to do."""
        self.session.drain(monotonic())
        self.send_soon()
        if self._timer is None and self.session.due < NEVER:
            self._wait()

    def cut(self) -> None:
        """The proxy ends: calls in progress are ended so that the app knows."""
        for call in self.calls():
            call.cut()
        self.session.fail(NO_ERROR, "the proxy is shutting down")

    def close_written(self) -> None:
        """Close once what was written has gone."""
        self._close()

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Another connection takes its place."""
        self.session.fail(ENHANCE_YOUR_CALM, "too many connections are open")
