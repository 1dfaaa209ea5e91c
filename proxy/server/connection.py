"""An app's HTTP/1 connection: bytes to requests, and answers to bytes, in order, until one side leaves.

Theory of operation. One request is in progress at a time; what the app pipelines after it waits in a buffer, and beyond
a limit in the kernel. The connection is the app's stream for the request in progress (`forward.streams`): it frames
answers for the app's version, decides what closes, and reports to the exchange what happens to the request's body.

    waiting for a head -> exchange (body in, answer out) -> waiting for a head | closing | tunnel (raw bytes)

Law: no byte that came is taken for something else. What follows a close, a refusal or a cut answer is never a request;
what was pipelined is answered in its turn. The fields that we write ourselves are true: whether the connection stays
open, how long the body is, what time it was.

How it ends. The last answer is sent completely: a slow reader is not cut off; a reader that takes nothing at all is cut
off in the end. An answer that is cut is visibly cut: it ends with a RST, however it is framed, and never with a FIN
(`transport.socket_close`). A connection with bytes still to come is closed in stages (RFC 9112 section 9.6): first our
FIN, then what still comes is read and dropped for a while, so that no reset destroys the answer. This holds for an app
that knows from its answer that the connection closes. For any other app, the rest of its request's body is read and
dropped, and its next request is answered; or, if the rest takes too long or does not come, nothing more is read: what
stays in the kernel was not used for anything, and the app sees a RST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan, take_turns
from proxy.forward.streams import ConnectionStream
from proxy.retry.facts import Fault
from proxy.server import presence
from proxy.server.acceptor import Acceptor
from proxy.server.connection_end import BodyRest, StagedClose
from proxy.server.http2 import Http2Connection
from proxy.server.idle_handover import ConnectionGiver
from proxy.server.routing import Exposure, Inside
from proxy.transport import socket_close
from proxy.transport.chunk_writer import LARGE, ChunkWriter, write_framed
from proxy.transport.clock import monotonic
from proxy.transport.connection import HIGH_WATER, Connection
from proxy.transport.direct_write import socket_of, write_at_once
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.transport.unread import has_said
from proxy.wire.errors import BadMessage, Refused
from proxy.wire.field_names import ANSWER_KEYS, FRAMING
from proxy.wire.first_bytes import HTTP1, HTTP2, NONE_CAME, TLS, FirstBytes
from proxy.wire.head import UNTIL_CLOSE, RequestHead, ResponseHead, Trailers, trailer_fields
from proxy.wire.http1.body import Body, ChunkedBody, LengthBody
from proxy.wire.http1.parser import RequestParser

#: Flags for why nothing is read for now: the body waits, or too much is pipelined.
_BODY, _AHEAD = 1, 2
_CLOSE = b"Connection: close\r\n"
_KEEP = b"Connection: keep-alive\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_UNFRAMED = frozenset({b"transfer-encoding", b"trailer"})
#: Methods whose answers are framed in their own ways.
_BODILESS = frozenset({"HEAD", "CONNECT"})
#: The very object that is the key in `specials`, because a dict finds it faster than an equal one.
_DATE = ANSWER_KEYS["date"]
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class AppConnection(ConnectionStream):
    """An app's HTTP/1 connection. Implements `proxy.forward.streams.AppStream`.

    `head` is that of the request in progress, `exchange` its call, `inside` the CONNECT that it is inside of.
    `blocked`: whether writing should wait. `since`: the time at which the awaited head began to come, or the connection
    became idle; 0 during neither. `wire`: the transport that has the socket, if `transport` is the TLS that it carries.
    """

    speaks = HTTP1

    __slots__ = (
        "_body", "_broken", "_buffer", "_close", "_context", "_ending", "_fd", "_first", "_generation",
        "_half_closed", "_held", "_informed", "_kept", "_parser", "_plans", "_rest", "_running",
        "_socket", "_tunnel", "acceptor", "client", "exchange", "exposure", "head",
        "inside", "own", "plan", "since", "surplus", "transport", "wire",
    )  # fmt: skip

    head: RequestHead
    exposure: Exposure

    def __init__(self, acceptor: Acceptor) -> None:
        self.acceptor = acceptor
        self._context = acceptor.context
        limits = acceptor.settings.limits
        self._parser = RequestParser(limits.header_bytes, limits.headers)
        self._running = False
        self._first: FirstBytes | None = NONE_CAME  # None once they have shown which protocol is spoken
        self._generation = acceptor.context.generation
        self._kept: Exchange | None = None  # the exchange of a call that needed no decision, for the next call
        self.inside: Inside | None = None
        self.has_pinned = False
        self.own: dict[Origin, list[Connection]] | None = None  # idle connections that are this one's own
        self.surplus = False  # above the limit: the first request is answered with 503
        self.watched = False
        self.client = ""  # the app's address, host:port; "" on a unix socket
        self.connected = 0.0
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.blocked = False
        self._body: Body | None = None  # the reader of the request's body, while that comes
        self.chunks = None
        self._close = False  # whether the connection closes after this answer
        self._informed = False  # whether a 100 was forwarded
        self._tunnel = False  # whether raw bytes go both ways
        self.plan: Plan | None = None  # the last request's, by the settings of `_generation`
        self._plans: list[Plan] | None = None  # those of earlier requests, each of another method or authority
        self._ending: StagedClose | None = None  # once the last answer was written
        self._buffer = b""  # pipelined bytes
        self._half_closed = False
        self._held = 0  # why nothing is read for now
        self._broken = False  # whether the answer was broken off
        self._rest: BodyRest | None = None  # of a body that outlives its answer
        self.wire: asyncio.Transport | None = None
        self._fd = -1
        self._socket: Any | None = None  # of `direct_write`
        self.since = 0.0

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=HIGH_WATER)  # type: ignore[attr-defined]
        socket = self._socket = socket_of(transport)
        if socket is None:
            socket = transport.get_extra_info("socket")
        self._fd = socket.fileno()
        self.exposure = self.acceptor.exposure_of(transport.get_extra_info("sockname"), socket)
        self.client = presence.address(transport.get_extra_info("peername"))
        self.connected = self.since = monotonic()
        self.acceptor.connection_limit.enter(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, of its body, of the next request, of a tunnel; or bytes to drop after the last
        answer.
        """
        exchange = self.exchange
        try:
            if exchange is None:
                if self._ending is not None:
                    self._ending.drop(len(data))
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
        except Exception as error:
            if self.exchange is None:
                raise
            self.exchange.break_down(error, monotonic())

    def eof_received(self) -> bool:
        """Note that the app sends no more. Returns True, on which asyncio keeps our own direction open."""
        exchange = self.exchange
        if self.transport is None or not self.transport.can_write_eof():
            _note_unused(self)
            return False  # TLS has no half-closed connections, for us
        if self._tunnel and exchange is not None:
            exchange.app_ended(None)
            return True
        if exchange is None or self._body is not None:
            return self._broken  # True keeps a broken answer from ending with a FIN, before its RST
        if not self._is_there():
            return False
        self._half_closed = True
        self._context.watch.glance_at(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self.transport = self.transport, None
        if exc is not None:
            _note_unused(self)
        if exc is not None and self._tunnel and transport is not None and transport.can_write_eof():  # not TLS
            socket_close.read_last_words(self._fd, self.data_received, lambda: self.exchange is not None)
        self.acceptor.left(self)
        self._stop_waiting()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.app_gone()
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.retire()
        self._first = self.chunks = None  # breaks reference cycles
        if self.own is not None:
            for pins in self.own.values():
                for connection in list(pins):
                    connection.abort()

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        if self.exchange is not None:
            self.exchange.app_writable()

    # -- TLS ended here (proxy.server.intercept.interception.Secured) ----------------------------------------------

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        assert self.transport is not None
        self.transport.pause_reading()
        self._held = 0
        early, self._buffer = self._buffer, b""
        return self.transport, early

    def take_back(self, early: bytes) -> None:
        if self.transport is not None:
            self._buffer = early
            self.transport.resume_reading()

    def take_inside(self, early: bytes, inside: Inside, secure: Callable[[bytes], None]) -> None:
        """Read requests inside the CONNECT `inside` from now on, beginning with the bytes `early`. If the app's first
        bytes are TLS and not cleartext HTTP, `secure` is called with them, to begin the handshake.
        """
        self.inside = inside
        self.plan = self._plans = None
        self._first = FirstBytes(secure)
        self.since = monotonic()
        if self.transport is not None:
            self.transport.resume_reading()
            if early:
                self.data_received(early)

    def take_over(self, tls: asyncio.Transport, inside: Inside) -> None:
        tls.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = self.transport
        self.transport = tls
        self.inside = inside
        self.plan = self._plans = None
        self._first = NONE_CAME
        self.since = monotonic()

    # -- requests -------------------------------------------------------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Read a request's head, and as much of its body as has come; make it a call."""
        first = self._first
        if first is NONE_CAME:  # HTTP/1, unless it begins as HTTP/2's preface does
            first = self._first = FirstBytes() if data[:1] == b"P" else None
        if first is not None:
            speaks = first.take(data)
            if speaks is None:
                self._await_head()
                return
            data, self._first = first.came, None
            if speaks is HTTP2:
                _speak_http2(self, data)
                return
            if speaks is TLS and first.secure is not None:
                self.since = 0.0
                first.secure(data)
                return
        parser = self._parser
        try:
            head = parser.feed(data)
            if head is None:
                self._await_head()
                return
            if head.chunked:
                chunked = ChunkedBody()
                body: Body = chunked
                self._body = body
                payload, done, self._buffer = parser.begin_body(chunked)
            else:
                rest = parser.leftover() if parser.rest else b""
                if not head.content_length:
                    self._buffer = rest
                    self._start(head, b"", True, None)
                    return
                if len(rest) == head.content_length:  # the whole body came with the head
                    self._buffer = b""
                    self._start(head, rest, True, None)
                    return
                body = self._body = LengthBody(head.content_length)
                payload, done, self._buffer = body.feed(rest)
        except Refused as refused:
            self.acceptor.refuse(self, refused.status, refused.detail, title=refused.title)
            return
        except BadMessage as bad:
            self.acceptor.refuse(self, 400, bad.detail)
            return
        if done:
            self._body = None
        elif self._half_closed:  # the rest never comes, so the call is not begun
            self.close_written()
            return
        self._start(head, payload, done, trailer_fields(body.trailers) if done and body.trailers else None)

    def _start(self, head: RequestHead, payload: bytes, done: bool, trailers: Trailers | None) -> None:
        self.head = head
        self.chunks = None
        self._informed = False
        # A proxy keeps no connection with an HTTP/1.0 client (RFC 9112 section 9.3); a gateway may.
        self._close = not head.keep_alive or (head.version == "1.0" and head.form == "absolute")
        self.since = 0.0
        context, plan = self._context, self.plan
        if plan is None or plan.head is not head or self._generation != context.generation or context.refusing:
            if self._generation != context.generation:
                self._generation, self.plan, self._plans = context.generation, None, None
            plan = self.plan = self._plan_for(head)
            if plan is None:
                return
        exchange = self._kept
        if exchange is None or not plan.plain:
            exchange = self.acceptor.exchange(plan, self)
        self.exchange = exchange
        now = monotonic()
        if not self.watched:
            context.watch.enter(self, now)
        exchange.start(plan, now, payload, done, trailers)

    def _plan_for(self, head: RequestHead) -> Plan | None:
        """Return what is worked out for a request before it is sent (its upstream, its policy, the fields to change):
        the plan of an earlier request, if all of that holds for this request too, else a new plan; None if the proxy
        has answered the request itself, with a refusal say.
        """
        last = self.plan
        if last is not None and (last.head.method != head.method or last.head.authority != head.authority):
            if self._plans is None:
                self._plans = []
            last = self.plan = take_turns(self._plans, last, head)
        if (
            last is not None
            and not (self._context.refusing or self.surplus)
            and last.follow(head, self._context.router)
        ):
            return last
        return self.acceptor.admit(self, head)

    def _await_head(self) -> None:
        if self.since == 0.0:
            self.since = monotonic()
        if self.dripping:
            self.acceptor.drips(self)

    @property
    def dripping(self) -> bool:
        return self.exchange is None and self._ending is None and _has_begun(self)

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
            exchange.app_rest(payload, trailer_fields(body.trailers) if body.trailers else None)
        elif payload:
            exchange.app_data(payload)

    def _go_on(self) -> None:
        """Begin the next requests that were pipelined, one after the other, in a loop instead of by recursion."""
        self._running = True
        while self.exchange is None and self._buffer and self._ending is None and self.transport is not None:
            data, self._buffer = self._buffer, b""
            self._begin(data)
        self._running = False
        if self._held & _AHEAD and len(self._buffer) <= HIGH_WATER:
            self._release(_AHEAD)
        if self._half_closed and self.exchange is None:
            self._shut()

    # -- the app's stream (proxy.forward.streams.AppStream) --------------------------------------------------------

    def tunnel(self) -> None:
        if self._tunnel:
            return  # the tunnel was entered before its far end was dialled; the app's bytes and end were reported then
        self._tunnel = True
        exchange, early = self.exchange, self._buffer
        self._buffer = b""
        self._release(_AHEAD)
        if early and exchange is not None:
            exchange.app_data(early)
        if self._half_closed and exchange is not None and self.exchange is exchange:
            exchange.app_ended(None)  # the app had sent its last byte before the tunnel began

    def leave_tunnel(self, authority: str) -> None:
        self._tunnel = self._close = False
        self.inside = Inside(authority, "http")
        self.plan = self._plans = None
        self._first = FirstBytes()
        self._release(_BODY)

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer a request that does not become a call, with this status, field lines (`add`) and body. `close`: close
        the connection after the answer; `headless`: leave the body out, since the request was HEAD.
        """
        if not close:
            self.answer(status, add, body)
            self.done()
        elif self._ending is None:
            self._write_own(status, add, body, _CLOSE, headless=headless)
            self._close_in_stages()

    def pause(self) -> None:
        self._hold(_BODY)

    def resume(self) -> None:
        self._release(_BODY)

    def pin(self, stream: UpstreamStream, origin: Origin) -> None:
        if isinstance(stream, Connection):
            self.has_pinned = True
            if self.own is None:
                self.own = {}
            stream.pin(self.own.setdefault(origin, []))

    def pinned(self, origin: Origin) -> UpstreamStream | None:
        resting = self.own.get(origin) if self.own is not None else None
        while resting:
            stream = resting.pop()
            if stream.is_open:  # else it is being closed, and a request sent on it would count as sent
                return stream
        return None

    def done(self) -> None:
        exchange, self.exchange = self.exchange, None
        self._kept = exchange if exchange is not None and not exchange.decided else None
        if self.transport is None or self._ending is not None:
            return
        if self._held:
            self._release(_BODY)
        if self._tunnel:
            self.close_written()
        elif self._body is not None:
            if self._close:
                self._close_in_stages()
            else:  # what is left of the body is read and dropped
                self._rest = BodyRest()
                self._rest.wait(self._read_no_more)
        elif self._close:  # a close that the answer did not announce is not expected, even while draining
            self._shut()
        else:
            self.since = monotonic()
            if not self._running and (self._buffer or self._half_closed):
                self._go_on()

    # -- writing answers ----------------------------------------------------------------------------------------------

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Forward an interim answer, with the lines `add`, but never to HTTP/1.0. If the proxy has sent the request
        again by itself (`resent`), a 100 is forwarded only to an app that still waits for one, because it was the proxy
        that asked for it (RFC 9110 section 15.2).
        """
        if self.head.version == "1.0" or self.transport is None:
            return
        if head.status == 100:
            if resent and (self._informed or (self._body is None and self.head.body_size)):
                return
            self._informed = True
        self.transport.write(head.render(add=add))

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        transport = self.transport
        if transport is None:
            return
        if (
            end
            and head.simple
            and not head.chunked
            and self._body is None
            and not (self._close or self._context.draining)
            and self.head.version != "1.0"
            and _DATE in head.specials
            and self.head.method not in _BODILESS
        ):  # the common answer, made fast
            if len(data) >= LARGE:
                transport.writelines((head.message(add, b"", drop), data))
                return
            whole = head.message(add, data, drop)
            if self._socket is None:
                transport.write(whole)
            else:
                write_at_once(transport, self._socket, whole)
            return
        write_framed(transport, self._render_framed(head, drop, add, end), data, self.chunks is not None, end, trailers)

    def _render_framed(self, head: ResponseHead, drop: frozenset[bytes], add: bytes, end: bool) -> bytes:
        """Render the head of an answer that `respond` does not write at once, with the lines that frame its body on
        this connection. Decide whether the body is sent in chunks, and whether the connection closes after it. `drop`:
        lower-case names of fields to leave out; `add`: lines to add; `end`: the whole body has come.
        """
        size = head.body_size(self.head.method)
        is_old = self.head.version == "1.0"
        if self.head.method == "HEAD" and head.version == "2.0" and b"content-length" not in head.specials:
            drop |= FRAMING  # the upstream gave no length for the body of a GET
        if self._context.draining or (self._body is not None and (end or self._is_a_last_word(head))):
            self._close = True
        if size < 0:
            if is_old:
                drop |= _UNFRAMED
                self._close = True
            else:
                assert self.transport is not None  # `respond` has asked
                self.chunks = ChunkWriter(self.transport, self._socket)
                if size == UNTIL_CLOSE:
                    add += _CHUNKED
        if head.status != 101 and self.head.method != "CONNECT":
            if b"date" not in head.specials:
                add += self.acceptor.date_line()
            if self._close:
                add += _CLOSE
            elif is_old:
                add += _KEEP
        return head.render(drop=drop, add=add)

    def _is_a_last_word(self, head: ResponseHead) -> bool:
        """Whether an answer with this head, written before its request is whole, ends the connection, so that the rest
        of the request is not read.

        RFC 9110 section 10.1.1 and RFC 9112 section 9.5: then the answer says that the connection closes, and the app
        may stop. An app that waits for a 100 in vain may send next either the body or another request, and the two
        can't be told apart. Any other answer may be sent while the request still comes, and the rest of the request is
        read and dropped after it.
        """
        waits = not self._informed and b"expect" in self.head.specials
        return waits or head.status >= 400 or not head.keep_alive

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of the proxy's own: `status`, the field lines `add` and those that frame it, and the body
        (left out for HEAD).
        """
        if self._context.draining or self._body is not None or self.head.method == "CONNECT":
            self._close = True  # bytes after a CONNECT were meant for a tunnel, and are never a request (RFC 9931)
        line = _CLOSE if self._close else _KEEP if self.head.version == "1.0" else b""
        self._write_own(status, add, body, line, headless=self.head.method == "HEAD")

    def _write_own(self, status: int, add: bytes, body: bytes, line: bytes, *, headless: bool) -> None:
        if self.transport is not None:
            own = b"%bContent-Length: %d\r\n%b" % (self.acceptor.date_line(), len(body), line)
            head = b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, _REASONS.get(status, b""), add, own)
            self.transport.write(head if headless else head + body)

    def write(self, data: bytes) -> None:
        if self.chunks is not None:
            self.chunks.write(data)
        elif self.transport is not None:
            self.transport.write(data)

    def finish(self, trailers: Trailers | None) -> None:
        transport = self.transport
        if transport is None:
            return
        if self._tunnel:
            if transport.can_write_eof():
                transport.write_eof()
            elif (exchange := self.exchange) is not None:  # TLS ends in both directions at once
                asyncio.get_running_loop().call_soon(lambda: exchange.app_ended(None))
        elif self.chunks is not None and not self.chunks.finish(trailers.lines if trailers is not None else b""):
            self.reset(None)

    # -- closing ------------------------------------------------------------------------------------------------------

    def _shut(self) -> None:
        """Close after the last answer, which has been written."""
        if self.transport is None:
            return
        if self.head.keep_alive and not self._half_closed:
            self._close_in_stages()  # the app does not expect the close, so a request may be on its way
        else:
            self.close_written()

    def _close_in_stages(self) -> None:
        """Send our FIN, and read on for a while what the app is still sending."""
        transport = self.transport
        if transport is None or self._ending is not None:
            return
        self._stop_waiting()
        self._buffer = b""
        if self._held:
            self._held = 0
            transport.resume_reading()
        if not transport.can_write_eof() and (self._body is None or self.head.version == "1.0"):
            self.close_written()  # of TLS, which has no half-closed connections, the end may be that of the answer
            return
        self._ending = StagedClose()
        self._ending.half_close(transport, self.abort)

    def close_written(self) -> None:
        """Close once all written bytes were sent, whatever the app still sends."""
        self._stop_waiting()
        if self.transport is not None:
            self._ending = StagedClose()
            self._ending.close(self.transport, self.abort)

    def _stop_waiting(self) -> None:
        """Stop waiting for the app to take its last answer, or to send the rest of a body."""
        if self._ending is not None:
            self._ending.stop()
        if self._rest is not None:
            self._rest.stop()

    # -- a body that outlives its answer ------------------------------------------------------------------------------

    def _drop(self, data: bytes) -> None:
        """Drop more of a body whose answer was sent; the next request begins after it."""
        body, dropped = self._body, self._rest
        assert body is not None
        assert dropped is not None
        dropped.drop(len(data))
        try:
            _, done, rest = body.feed(data)
        except BadMessage:
            self._close_in_stages()  # the beginning of the next request is unknown
            return
        if done:
            self._body = None
            dropped.stop()
            self._buffer += rest
            self.since = monotonic()
            self._go_on()

    def _read_no_more(self) -> None:
        """Stop reading a body that takes too long, or stands still. What the app sends from now on stays in the
        kernel: it sees a RST.
        """
        self._close_in_stages()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    # -- breaking off -------------------------------------------------------------------------------------------------

    def reset(self, fault: Fault | None) -> None:
        """Break the answer, or the tunnel, off; `fault` (what broke it, None for the proxy's own decision) has no
        effect on HTTP/1. The bytes that arrived of it are sent to an app that takes them, and then a RST shows that
        there was more (RFC 9110 section 9.3.6 asks for the same of a tunnel).
        """
        transport = self.transport
        if transport is None:
            return
        if self._ending is None:
            self._ending = StagedClose()
        self._broken = True
        socket_close.break_off(transport, self.wire or transport)

    def abort(self) -> None:
        """Close at once; with a RST if a call is in progress, or bytes of an answer are not sent yet."""
        transport = self.transport
        if transport is None:
            return
        if self._broken or self.exchange is not None or transport.get_write_buffer_size():
            socket_close.reset(transport, self.wire or transport)
        else:
            transport.abort()

    # -- the proxy going away -----------------------------------------------------------------------------------------

    def drained(self, before: float, giver: ConnectionGiver | None) -> None:
        """Let this connection go, because the proxy shuts down. If there is a `giver`, and the connection is idle and
        holds nothing in this process (`_is_bare`), give it to another process, which goes on with it. Else close the
        connection if it has been idle since before the time `before`.
        """
        transport = self.transport
        if transport is None or self._ending is not None:
            return
        if giver is not None and _is_bare(self, transport):
            if giver.is_full or (giver.keeps_begun and _has_begun(self)):
                return
            limit = self.acceptor.connection_limit
            limit.leave(self)  # before the taker counts it, which would find no room at the limit else
            transport.pause_reading()
            came = b"" if self._first is None else self._first.came
            early = came or self._parser.leftover()
            if giver.give(self._fd, early):
                transport.abort()
                return
            if not came and early:
                self._parser.feed(early)
            limit.come_back(self)
            transport.resume_reading()
        elif self.plan is not None and self.is_silent(before):
            transport.close()

    def cut(self) -> None:
        """End the call in progress in a way that the app notices, because the proxy ends; written bytes are still
        sent.
        """
        if self.exchange is None:
            self.abort()
        else:
            self.exchange.cut()

    def is_silent(self, before: float) -> bool:
        """Whether closing the connection loses nothing: its last answer was sent, and the app sends no more; or it has
        been idle since before the time `before`.
        """
        if self._ending is not None:
            transport = self.transport
            return transport is None or not (transport.get_write_buffer_size() or self._ending.is_sent_more)
        rested = self.exchange is None and not self._parser.pending and 0 < self.since < before
        return rested and not has_said(self._fd)

    # -- the app going away -------------------------------------------------------------------------------------------

    def calls(self) -> Sequence[Exchange]:
        """Return a sequence of the call in progress, empty if there is none."""
        return () if self.exchange is None else (self.exchange,)

    def glance(self, *, closely: bool) -> None:
        """Check whether the app has left, and end its call if so. This is for times in which no event would tell: while
        nothing is read from the app, or once it has closed its sending direction. `closely`: also check whether its FIN
        is stuck after bytes that are not being read.
        """
        if self._tunnel or self.exchange is None:
            return  # bytes sent in a tunnel before the app left are still on their way
        if self._half_closed or (self._held and presence.has_ended(self._fd)):
            if not self._is_there():
                self.abort()
        elif closely and self._held and self._is_there() is False:
            self.abort()

    def _is_there(self) -> bool | None:
        """Whether an app that has closed its sending direction still reads; None if that is unknown."""
        transport = self.transport
        if transport is None:
            return False
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple) and isinstance(local, tuple):
            return presence.is_held(peer[:2], local[:2], transport.get_extra_info("socket").family)
        return presence.is_connected(self._fd)

    # -- reading, or not ----------------------------------------------------------------------------------------------

    def _hold(self, why: int) -> None:
        if not self._held and self.transport is not None:
            self.transport.pause_reading()
            if self.exchange is not None:
                self._context.watch.glance_at(self)
        self._held |= why

    def _release(self, why: int) -> None:
        if not self._held & why:
            return
        self._held &= ~why
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()


def _speak_http2(connection: AppConnection, data: bytes) -> None:
    """Let an Http2Connection take the place of this connection, on which `data`, the first bytes, are HTTP/2."""
    transport, connection.transport = connection.transport, None
    assert transport is not None
    other = Http2Connection(
        connection.acceptor, transport, client=connection.client, exposure=connection.exposure, inside=connection.inside
    )
    connection.acceptor.handed_over(connection, other)
    transport.set_protocol(cast(asyncio.Protocol, other))
    other.data_received(data)


def _note_unused(connection: AppConnection) -> None:
    """Report an app that ends its connection after the TLS handshake, before the first byte of a request."""
    inside, first = connection.inside, connection._first
    if inside is not None and inside.scheme == "https" and first is not None and not first.came:
        connection.acceptor.interception.closed_unused(inside.authority)


def _has_begun(connection: AppConnection) -> bool:
    """Whether a head, or the first bytes of the connection, have begun to come and are not whole."""
    first = connection._first
    return bool(connection._parser.pending or (first is not None and first.came))


def _is_bare(connection: AppConnection, transport: asyncio.Transport) -> bool:
    """Whether a connection is between two requests and nothing but its socket, and perhaps a part of the next head, so
    that another process may go on with it: no other bytes are held here, and no request depends on an earlier one.
    """
    holds = connection._buffer or transport.get_write_buffer_size()
    depends = connection.inside is not None or connection.has_pinned or connection.own or connection.exposure.named
    ends = connection._half_closed or connection.surplus or transport.is_closing()
    return connection.exchange is None and connection.since > 0 and not (holds or depends or ends)
