"""A call of an app on HTTP/2: a stream of its connection, with the interface that an exchange uses."""

from __future__ import annotations

from proxy.forward.exchange import Exchange
from proxy.forward.own_answers import percent_encoded
from proxy.forward.request_plan import Plan
from proxy.retry.facts import UNAVAILABLE, Fault, is_grpc
from proxy.server.acceptor import Acceptor
from proxy.server.connection_end import LINGER
from proxy.server.idle_handover import ConnectionGiver
from proxy.server.routing import Exposure, Inside
from proxy.transport.clock import monotonic
from proxy.transport.http2_protocol import Http2Protocol
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.wire.first_bytes import HTTP2
from proxy.wire.head import ResponseHead, Trailers
from proxy.wire.http2.frames import INTERNAL_ERROR, NO_ERROR, code_name
from proxy.wire.http2.heads import answer_block, own_block, trailers_block
from proxy.wire.http2.hpack import encoded_lines
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2
from proxy.wire.http2.stream import Stream


class Home(Http2Protocol):
    """The connection of a stream: the base of an app's HTTP/2 connection. `watched`: whether the timer of all calls
    holds it (`proxy.forward.timers.Busy`).
    """

    __slots__ = ("acceptor", "client", "connected", "exposure", "inside", "surplus", "watched")

    acceptor: Acceptor
    client: str
    connected: float
    inside: Inside | None
    exposure: Exposure
    surplus: bool
    watched: bool

    def admit(self, stream: Http2AppStream, head: Request2) -> Plan | None:
        """Return the plan of a request; None if it was answered already on its stream, with a refusal for example."""
        raise NotImplementedError

    def takes_one_more(self) -> bool:
        """Whether `limits.connections` has room for the newest stream; if so, it is counted."""
        raise NotImplementedError

    def calls(self) -> list[Exchange]:
        """Return the calls in progress."""
        raise NotImplementedError

    def glance(self, *, closely: bool) -> None:
        """Find out whether the app has left; `closely`: even by checks that are costly."""
        raise NotImplementedError

    def drained(self, before: float, giver: ConnectionGiver | None) -> None:
        """Accept no more requests, and close the connection after the last one, because the proxy shuts down. The
        arguments have no effect on HTTP/2.
        """
        raise NotImplementedError


#: Seconds from a whole answer to the RST_STREAM that ends its request, which is not whole yet. curl loses an answer
#: that it reads together with the RST_STREAM, though RFC 9113 section 8.1 forbids it to; and it reads nothing while it
#: sleeps to keep to its --limit-rate, or waits for more of what it sends. As long as on HTTP/1 (`connection_end`).
REST_SECONDS = LINGER


class Http2AppStream(Stream):
    """A stream of an app's connection. Implements `proxy.forward.streams.AppStream` and
    `proxy.server.acceptor.Asker`.
    """

    speaks = HTTP2

    __slots__ = ("_has_continued", "_home", "exchange", "head", "plan")

    head: Request2
    has_pinned = False

    def __init__(self, home: Home) -> None:
        Stream.__init__(self)
        self._home = home
        self.exchange: Exchange | None = None
        self.plan: Plan | None = None
        self._has_continued = False

    # -- as the acceptor sees it ----------------------------------------------------------------------------------

    @property
    def client(self) -> str:
        """The app's address."""
        return self._home.client

    @property
    def connected(self) -> float:
        """The time (seconds) at which the connection was opened."""
        return self._home.connected

    @property
    def exposure(self) -> Exposure:
        """The exposure of the connection's listener: who can reach it, and which app the connection names."""
        return self._home.exposure

    @property
    def inside(self) -> Inside | None:
        """The CONNECT inside which the connection's requests come, None if they come in none."""
        return self._home.inside

    @property
    def surplus(self) -> bool:
        """Whether the connection is above the limit on connections."""
        return self._home.surplus

    @surplus.setter
    def surplus(self, value: bool) -> None:
        self._home.surplus = value

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer a request that does not become a call, with this status, field lines (`add`) and body, which is left
        out if `headless`. `close`: if the connection is above the limit on connections, accept no more requests on it,
        and close it.
        """
        self.bodiless = headless
        self.answer(status, add, body)
        self.done()
        if close and self.surplus:
            self._home.drained(0.0, None)

    # -- events of the session ------------------------------------------------------------------------------------

    def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers | None) -> None:
        assert isinstance(head, Request2)  # an app sends requests
        self.head = request = head
        self.bodiless = request.method == "HEAD"
        if not self._home.takes_one_more():
            self._home.acceptor.turn_down(self, request)
            return
        home = self._home
        plan = self.plan = home.admit(self, request)
        if plan is not None:
            now = monotonic()
            if not home.watched:
                home.acceptor.context.watch.enter(home, now)
            self.exchange = home.acceptor.exchange(plan, self)
            self.exchange.start(plan, now, data, end, trailers)

    def on_data(self, data: bytes) -> None:
        if self.exchange is not None:
            self.exchange.app_data(data)

    def on_end(self, trailers: Trailers | None) -> None:
        if self.exchange is not None:
            self.exchange.app_ended(trailers)

    def on_too_large(self, head: Request2, detail: str) -> None:
        self.head = head
        self._home.acceptor.refuse(self, 431, detail, head)

    def on_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """Report to the exchange that the app has left, or broke the rules of HTTP/2. The arguments, which say how,
        have no effect here.
        """
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.app_gone()

    def on_writable(self) -> None:
        """Resume the attempt whose answer waited: the stream's queue has drained."""
        if self.exchange is not None:
            self.exchange.app_writable()

    def on_defect(self, error: Exception) -> None:
        """Handle a defect of the proxy: answer the call if no answer has begun, else break the stream off; the
        connection has other streams.
        """
        exchange, report = self.exchange, self._home.acceptor.context.loop.call_exception_handler
        try:
            if exchange is None:
                report({"message": "a stream of an app broke down", "exception": error})
            else:
                exchange.break_down(error, monotonic())
        except Exception as another:
            report({"message": "a call could not be ended", "exception": another})
        if self.exchange is exchange and not self.over:  # the call has not ended by itself
            self.exchange = None
            Stream.reset(self, INTERNAL_ERROR)
        self._home.send_soon()

    @property
    def _is_grpc(self) -> bool:
        """Whether the request's head came, and is that of a gRPC call."""
        if self.plan is not None:
            return self.plan.is_grpc
        return is_grpc(self.head)

    # -- for the exchange -----------------------------------------------------------------------------------------

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Forward an interim answer, with the lines `add`. If the proxy has sent the request again by itself
        (`resent`), a 100 is forwarded only to an app that still waits for one, because it was the proxy that asked for
        it.
        """
        if head.status == 100:
            if resent and (self._has_continued or self.received_all):
                return
            self._has_continued = True
        self.send_info(answer_block(head, add=add))
        self._home.send_soon()

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        """Forward an upstream's answer: its head without the fields `drop` (lower-case names) and with the lines `add`,
        and `data`, the body so far; all of it if `end`, with its trailers.
        """
        if b"date" not in head.specials and not (self.plan.is_grpc if self.plan is not None else is_grpc(self.head)):
            add += self._home.acceptor.date_line()
        block = answer_block(head, drop, add)
        if end:
            self.send_message(block, data, trailers_block(trailers))
        else:
            self.send_head(block, False)
            self.send_data(data)
        self._home.send_soon()

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of our own: a status, field lines (`add`) and a body."""
        if not (status == 200 and self._is_grpc):
            add += b"%bContent-Length: %d\r\n" % (self._home.acceptor.date_line(), len(body))
        alone = self.bodiless or not body
        self.send_head(own_block(status, add), alone)
        if not alone:
            self.send_end(body)
        self._home.send_soon()

    def write(self, data: bytes) -> None:
        """Write more of the body."""
        self.send_data(data)
        self._home.send_soon()

    def finish(self, trailers: Trailers | None) -> None:
        """End the answer, with its trailers (None for none)."""
        self.send_end(b"", trailers_block(trailers))
        self._home.send_soon()

    def reset(self, fault: Fault | int | None) -> None:
        """Break the answer off: for a gRPC call by trailers that say why, else by RST_STREAM. `fault`: the upstream's
        fault, whose error code of HTTP/2 is sent if it has one; or that code itself; None if the proxy decided to break
        off.
        """
        if isinstance(fault, int):
            Stream.reset(self, fault)
        elif self._is_grpc and self.answered and not self.sent_all and not self.ending:
            self.send_end(b"", encoded_lines(_broken(fault)))
        else:
            Stream.reset(self, INTERNAL_ERROR if fault is None or fault.ours or not fault.code else fault.code)
        self._home.send_soon()

    def done(self) -> None:
        """Release the call, which is over and whose answer was written completely."""
        exchange, self.exchange = self.exchange, None
        if not self.over:
            session = self._home.session
            if 2 * len(session.streams) > session.limits.streams:  # those that only wait leave room for others
                self.refuse_rest()
            elif not self.received_all:
                self._home.acceptor.context.loop.call_later(REST_SECONDS, self._refuse_late)
            self.resume()
        if exchange is not None:
            self._home.acceptor.keep(exchange)

    def _refuse_late(self) -> None:
        """Reset the stream, whose answer the app has got, if the app still sends its request."""
        self.refuse_rest()
        self._home.send_soon()

    def resume(self) -> None:
        """Take more of the request's body."""
        Stream.resume(self)
        self._home.send_soon()

    def pinned(self, origin: Origin) -> UpstreamStream | None:
        """Return None: NTLM and Negotiate are no schemes of HTTP/2."""
        return None

    def pin(self, stream: UpstreamStream, origin: Origin) -> None:
        """Do nothing: no connection upstream belongs to one HTTP/2 stream alone."""


def _broken(fault: Fault | None) -> bytes:
    """Return the trailers, as HTTP/1 field lines, that end a gRPC answer which broke off: grpc-status and grpc-message.
    `fault`: what broke the answer off; None if the proxy ended the call by its own decision, which is UNAVAILABLE.
    """
    code = None if fault is None else fault.code
    status = UNAVAILABLE if fault is None else fault.grpc_status
    detail = "the proxy ended the call" if fault is None else fault.detail
    if code is not None and code != NO_ERROR and (name := code_name(code)) not in detail:
        detail = f"{detail} ({name})"
    return f"grpc-status: {status}\r\ngrpc-message: {percent_encoded(detail)}\r\n".encode("ascii")
