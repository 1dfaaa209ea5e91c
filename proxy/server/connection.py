"""An app's HTTP/1 connection: bytes to requests, and answers to bytes, in order.

Theory of operation. One request is in progress at a time; what the app pipelines behind it waits in a buffer, and
beyond a limit in the kernel. The connection is the app's stream of the request in progress (`forward.streams`): it
frames answers for the app's version, says what closes, and tells the exchange what comes of the request's body.

    waiting for a head -> exchange (body in, answer out) -> waiting for a head | closing | tunnel (raw bytes)

Law: nothing that came is taken for what it is not. What is behind a close, a refusal or a cut answer is never a
request; what was pipelined is answered in its turn. How it writes is in `server.answering`; whether the app is still
there, and how the connection ends, in `server.leaving`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from proxy.forward.exchange import Exchange
from proxy.server.answering import CLOSE
from proxy.server.leaving import Leaving
from proxy.server.presence import address
from proxy.server.routing import Inside, Place
from proxy.transport.clock import monotonic
from proxy.transport.connection import HIGH_WATER, Connection
from proxy.transport.origins import Origin
from proxy.transport.socket_close import read_last_words
from proxy.transport.streams import Stream
from proxy.wire.errors import BadMessage, Refused
from proxy.wire.head import RequestHead, Trailers, trailer_fields
from proxy.wire.http1.body import body_reader
from proxy.wire.http1.parser import RequestParser

if TYPE_CHECKING:
    from proxy.server.acceptor import Acceptor

#: Why nothing is read for now.
_BODY, _AHEAD = 1, 2


class AppConnection(Leaving):
    """See the module. Implements `proxy.forward.streams.AppStream`.

    `exchange` is the call in progress. `inside`: the CONNECT that its requests are inside of.
    """

    __slots__ = (
        "_generation",
        "_kept",
        "_running",
        "client",
        "has_pinned",
        "inside",
        "own",
        "place",
        "surplus",
    )

    place: Place

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__()
        self.acceptor = acceptor
        limits = acceptor.settings.limits
        self._parser = RequestParser(limits.header_bytes, limits.headers)
        self._running = False
        self._generation = acceptor.generation
        self._kept: Exchange | None = None  # of a call that needed no decision, for the next one
        self.inside: Inside | None = None
        self.has_pinned = False
        self.own: dict[Origin, list[Connection]] | None = None  # resting connections that are this one's own
        self.surplus = False  # one too many: its first request is answered with 503
        self.watched = False
        self.client = ""  # the app's address, host:port; "" on a unix socket

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """An app has connected."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        self._fd = transport.get_extra_info("socket").fileno()
        self.place = self.acceptor.place_of(transport.get_extra_info("sockname"))
        self.client = address(transport.get_extra_info("peername"))
        self.since = monotonic()
        self.acceptor.entered(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, of its body, of the next one, of a tunnel; or what nobody wants any more."""
        exchange = self.exchange
        if exchange is None:
            if self._lingered >= 0:
                self._linger_on(len(data))
            elif self._body is None:
                self._begin(data)
            else:
                self._drop(data)
        elif self._tunnel:
            exchange.app_data(data)
        elif self._body is not None:
            self._read_body(data, exchange)
        else:
            self._buffer += data
            if len(self._buffer) > HIGH_WATER:
                self._hold(_AHEAD)

    def eof_received(self) -> bool:
        """The app sends no more. True keeps our own direction open."""
        exchange = self.exchange
        if self.transport is None or not self.transport.can_write_eof():
            return False  # TLS has no half-closed connections, for us
        if self._tunnel and exchange is not None:
            exchange.app_ended(None)
            return True
        if exchange is None or self._body is not None:
            return self._broken  # which ends with a RST, and not with the FIN that would follow now
        if not self._is_there():
            return False
        self._half_closed = True
        self.acceptor.means.watch.glance_at(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whomever."""
        transport, self.transport = self.transport, None
        if exc is not None and self._tunnel and transport is not None and transport.can_write_eof():  # not TLS
            read_last_words(self._fd, self.data_received, lambda: self.exchange is not None)
        self.acceptor.left(self)
        self._stop_timer()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.app_gone()
        self._kept = None  # else each would keep the other
        if self.own is not None:
            for pins in self.own.values():
                for connection in list(pins):
                    connection.abort()

    def pause_writing(self) -> None:
        """The app does not take what is written."""
        self.blocked = True

    def resume_writing(self) -> None:
        """It does again."""
        self.blocked = False
        if self.exchange is not None:
            self.exchange.app_writable()

    # -- TLS ended here (proxy.server.intercept.interception.Secured) ----------------------------------------------

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """The transport, from which nothing more is read, and what was read behind a CONNECT."""
        assert self.transport is not None
        self.transport.pause_reading()
        self._held = 0
        early, self._buffer = self._buffer, b""
        return self.transport, early

    def take_back(self, early: bytes) -> None:
        """There is no TLS: read on as before."""
        if self.transport is not None:
            self._buffer = early
            self.transport.resume_reading()

    def take_over(self, tls: asyncio.Transport, inside: Inside) -> None:
        """TLS stands: what comes next are requests inside it."""
        tls.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = self.transport
        self.transport = tls
        self.inside = inside
        self.plan = None
        self.since = monotonic()

    # -- requests -------------------------------------------------------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Read a request's head, and what of its body is there; make it a call."""
        parser = self._parser
        try:
            head = parser.feed(data)
            if head is None:
                self._await_head()
                return
            rest = parser.leftover() if parser.pending else b""
            size = head.body_size
            if size == 0:
                self._buffer = rest
                self._start(head, b"", True, None)
                return
            body = self._body = body_reader(size)
            assert body is not None
            payload, done, self._buffer = body.feed(rest)
        except Refused as refused:
            self.acceptor.refuse(self, refused.status, refused.title, refused.detail)
            return
        except BadMessage as bad:
            self.acceptor.refuse(self, 400, "Bad Request", bad.detail)
            return
        if done:
            self._body = None
        self._start(head, payload, done, trailer_fields(body.trailers) if done and body.trailers else None)

    def _start(self, head: RequestHead, payload: bytes, done: bool, trailers: Trailers | None) -> None:
        self.head = head
        self._chunked = self._informed = False
        # A proxy keeps no connection with an HTTP/1.0 client (RFC 9112 section 9.3); a gateway may.
        self._close = not head.keep_alive or (head.minor == 0 and head.form == "absolute")
        self.since = 0.0
        acceptor, plan = self.acceptor, self.plan
        if plan is None or plan.head is not head or self._generation != acceptor.generation or acceptor.refusing:
            if self._generation != acceptor.generation:
                self._generation, self.plan = acceptor.generation, None
            plan = self.plan = acceptor.admit(self, head)
            if plan is None:
                return
        exchange = self._kept
        if exchange is None or not plan.plain:
            exchange = acceptor.exchange(plan, self)
        self.exchange = exchange
        exchange.start(plan, monotonic(), payload, done, trailers)

    def _await_head(self) -> None:
        if self.since == 0.0:
            self.since = monotonic()
        if self._parser.pending:
            self.acceptor.drips(self)

    @property
    def dripping(self) -> bool:
        """Whether a head has begun to come and is not whole."""
        return self.exchange is None and self._lingered < 0 and self._parser.pending

    def _read_body(self, data: bytes, exchange: Exchange) -> None:
        body = self._body
        assert body is not None
        try:
            payload, done, rest = body.feed(data)
        except BadMessage as bad:
            self._close = True
            exchange.app_broke(bad.detail)
            return
        if done:
            self._body = None
            self._buffer += rest
        if payload:
            exchange.app_data(payload)
        if done and self.exchange is exchange:
            exchange.app_ended(trailer_fields(body.trailers) if body.trailers else None)

    def _go_on(self) -> None:
        """Take up what was pipelined, one request after the other, without piling up calls."""
        self._running = True
        while self.exchange is None and self._buffer and self._lingered < 0 and self.transport is not None:
            data, self._buffer = self._buffer, b""
            self._begin(data)
        self._running = False
        if self._held & _AHEAD and len(self._buffer) <= HIGH_WATER:
            self._release(_AHEAD)
        if self._half_closed and self.exchange is None:
            self._shut()

    # -- the app's stream (proxy.forward.streams.AppStream) --------------------------------------------------------

    def tunnel(self) -> None:
        """Carry bytes from now on; those that came before are the tunnel's too."""
        self._tunnel = True
        early, self._buffer = self._buffer, b""
        self._release(_AHEAD)
        if early and self.exchange is not None:
            self.exchange.app_data(early)
        if self._half_closed and self.exchange is not None:
            self.exchange.app_ended(None)  # the app had said all it would before the tunnel stood

    def leave_tunnel(self, authority: str) -> None:
        """It carries requests again: cleartext ones, inside a CONNECT to this authority."""
        self._tunnel = self._close = False
        self.inside = Inside(authority, "http")
        self.plan = None
        self._release(_BODY)

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer a request that does not become a call; what is no request at all closes the connection."""
        if not close:
            self.answer(status, add, body)
            self.done()
        elif self._lingered < 0:
            self._write_own(status, add, body, CLOSE, headless=headless)
            self._close_in_stages()

    def pause(self) -> None:
        """Take no more of the body for now."""
        self._hold(_BODY)

    def resume(self) -> None:
        """Take more of it."""
        self._release(_BODY)

    def pin(self, stream: Stream, origin: Origin) -> None:
        """Make a connection this app connection's own (NTLM, Negotiate)."""
        if isinstance(stream, Connection):
            self.has_pinned = True
            if self.own is None:
                self.own = {}
            stream.pin(self.own.setdefault(origin, []))

    def pinned(self, origin: Origin) -> Stream | None:
        """Take a resting connection of this app connection's own."""
        resting = self.own.get(origin) if self.own is not None else None
        return resting.pop() if resting else None

    def done(self) -> None:
        """The call is over; what was written is whole."""
        exchange, self.exchange = self.exchange, None
        self._kept = exchange if exchange is not None and not exchange.decided else None
        if self.transport is None or self._lingered >= 0:
            return
        if self._held:
            self._release(_BODY)
        if self._tunnel:
            self._close_written(self.transport)
        elif self._body is not None:
            if self._close:
                self._close_in_stages()
            else:
                self._read_over()
        elif self._close:  # what the app was not told of it does not expect, even while draining
            self._shut()
        else:
            self.since = monotonic()
            if not self._running and (self._buffer or self._half_closed):
                self._go_on()
