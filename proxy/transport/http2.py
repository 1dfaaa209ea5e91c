"""An HTTP/2 connection to an upstream, and its streams, which attempts send requests on.

Nothing of a call is sent before the upstream's SETTINGS have arrived, so a server that speaks another protocol has seen
nothing of it. A connection that drains (GOAWAY, ids used up, a configuration that would no longer open it) finishes its
streams and accepts no new ones; one that is lost, or breaks the rules, takes all its streams with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol, cast

from proxy.retry.facts import Fault, FaultKind, Progress
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import HIGH_WATER
from proxy.transport.faults import WrongProtocolError
from proxy.transport.flusher import Flusher
from proxy.transport.http2_protocol import Http2Protocol
from proxy.transport.origins import Origin
from proxy.transport.streams import Listener
from proxy.transport.tls import keep_session
from proxy.wire.head import PreparedRequest, Trailers
from proxy.wire.http2.fields import Trailers2
from proxy.wire.http2.frames import CANCEL, NO_ERROR
from proxy.wire.http2.heads import request_block, trailers_block
from proxy.wire.http2.peer_limits import PeerLimits
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2
from proxy.wire.http2.session import Session
from proxy.wire.http2.stream import Stream

#: The window of a stream (contract, section 12).
WINDOW = 1024 * 1024


class Http2Keeper(Protocol):
    """The owner of connections, which is the pool. `http2_errors` counts the errors of all its connections, by code."""

    flusher: Flusher
    http2_errors: Counter[int]

    def opened(self, connection: UpstreamConnection) -> None:
        """Note that a connection has been opened."""
        ...

    def lost(self, connection: UpstreamConnection) -> None:
        """Note that a connection is closed."""
        ...

    def emptied(self, connection: UpstreamConnection) -> None:
        """Note that a connection has no streams any more, and accepts others."""
        ...


class UpstreamConnection(Http2Protocol):
    """A connection to an upstream that carries many streams. `since`: when it last had none. `generation` is that of
    the configuration under which it was opened, or last checked. `pinned` is always None; only HTTP/1 connections are
    pinned.
    """

    __slots__ = ("_keeper", "_settled", "expires", "generation", "origin", "pinned", "since")

    def __init__(self, keeper: Http2Keeper, origin: Origin, limits: PeerLimits, generation: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, keeper.flusher)
        self._keeper = keeper
        self.origin = origin
        self.generation = generation
        self.expires = float("inf")  # when no attempt takes it any more
        self.session = Session(self, limits.with_window(WINDOW), monotonic(), client=True, errors=keeper.http2_errors)
        self.since = 0.0
        self.pinned = None
        self._settled: asyncio.Future[None] = loop.create_future()

    # -- the connection, as the pool uses it ----------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until the upstream's SETTINGS have arrived. Raises WrongProtocolError, or another error of
        `faults.dialling`.
        """
        await self._settled

    @property
    def is_free(self) -> bool:
        """Whether another stream can be opened."""
        return self.session.is_free

    @property
    def places(self) -> int:
        """The number of further streams that can be opened."""
        return self.session.places

    @property
    def is_resting(self) -> bool:
        """Whether the connection has no streams."""
        return not self.session.streams

    def stream(self) -> Http2UpstreamStream:
        """Make a stream to send a request on."""
        return Http2UpstreamStream(self)

    def drain(self) -> None:
        """Accept no new streams, and close after the last one."""
        self.session.draining = True
        self.changed()

    def close(self) -> None:
        """Close the connection once all output has been written."""
        if self.transport is not None and not self.session.ended:
            self.session.fail(NO_ERROR, "")

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin HTTP/2: the connection is open, its TLS handshake done."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        self._keeper.opened(self)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._give_up(WrongProtocolError("it did not select h2"))
            self.transport.abort()
            return
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, whichever side closed it: to the pool, to calls that wait for its SETTINGS,
        and to its streams. Frames that had arrived before are read first.
        """
        if self.transport is None:
            return
        self.transport = None
        self._keeper.lost(self)
        self._give_up(exc or ConnectionError("closed before its SETTINGS"))
        if self.session.has_unread:  # frames that arrived before the loss count
            self.session.feed(b"", monotonic())
        self.session.lost()

    def unwanted(self) -> None:
        """Close a connection whose caller went away while it was dialled."""
        if self.transport is not None:
            self.transport.abort()
            self.connection_lost(None)

    def flush(self) -> None:
        """Write the output that was gathered; if the connection is closed already, only notify its streams."""
        if self.transport is None:
            self.session.outbox.notify_streams()
        else:
            Http2Protocol.flush(self)

    # -- proxy.wire.http2.stream.SessionOwner ----------------------------------------------------------------------

    def accept(self) -> Stream:
        """Raise an error, because an upstream may open no streams."""
        raise NotImplementedError

    def opened(self) -> None:
        """Take note that the upstream's SETTINGS have arrived. Its TLS sessions have arrived as well by then, because
        TLS libraries send them first.
        """
        transport = self.transport
        if transport is not None and transport.get_extra_info("ssl_object") is not None:
            keep_session(transport, self.origin.endpoint, self.origin.way.parent)
        if not self._settled.done():
            self._settled.set_result(None)

    def changed(self) -> None:
        """React to a change of the session (a stream is over, another number of streams may be opened, or the
        connection drains): let waiting calls open streams and, if no stream is left, close or become idle.
        """
        session = self.session
        if self.origin.awaiting and session.places > 0:
            self.origin.freed(session.places)
        if not session.streams and self.transport is not None:
            if session.draining:
                self.close()
            elif session.is_open:
                self.since = monotonic()
                self._keeper.emptied(self)

    def failed(self, code: int, detail: str) -> None:
        """Close the connection after an HTTP/2 error with this code, found by either side; `detail` says what was
        wrong.
        """
        self._give_up(WrongProtocolError(f"{detail} (protocol: http/1.1 would translate what is not gRPC)"))
        self.give_up()

    def _give_up(self, error: Exception) -> None:
        if not self._settled.done():
            self._settled.set_exception(error)
            self._settled.exception()  # marks the exception as seen, if no task waits for it any more


class Http2UpstreamStream(Stream):
    """A request of an attempt, and its answer. Implements `proxy.transport.streams.UpstreamStream`."""

    __slots__ = ("_connection", "_listener", "_reused")

    def __init__(self, connection: UpstreamConnection) -> None:
        Stream.__init__(self)
        self._connection = connection
        self._listener: Listener | None = None
        self._reused = False

    # -- called by its attempt ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._connection.is_free

    @property
    def shared(self) -> UpstreamConnection:
        """The connection that the stream belongs to."""
        return self._connection

    @property
    def is_first(self) -> bool:
        """Whether no other stream was opened on the connection earlier."""
        return self.id == 1

    @property
    def unsent(self) -> int:
        """The number of bytes of the body that wait in this process."""
        return 0 if self.over else self.queued

    def send(
        self, listener: Listener, prepared: PreparedRequest, body: bytes, end: bool, trailers: Trailers | None
    ) -> None:
        """Send a request's head and `body`, the part of its body that has arrived. `listener` gets the answer; `end`:
        the body ends with `body`, and the `trailers` (None for none) follow it.
        """
        connection = self._connection
        self._listener = listener
        block = prepared.block
        if not block:
            scheme = connection.origin.endpoint.scheme.encode()
            block = prepared.block = request_block(
                prepared.head, scheme, prepared.authority, prepared.target, prepared.drop, prepared.add
            )
        # Translated before the stream is opened, so that an error leaves the request unsent.
        trailer_block = trailers_block(trailers)
        self.bodiless = prepared.head.method == "HEAD"
        self._reused = connection.session.used
        connection.session.open(self)
        if end:
            self.send_message(block, body, trailer_block)
        else:
            self.send_head(block, False)
            self.send_data(body)
        connection.send_soon()

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        self.send_data(data)
        self._connection.send_soon()

    def finish(self, trailers: Trailers | None, data: bytes = b"") -> None:
        """Send `data`, the rest of the body (b"" for none), and end it, with its trailers (None for none)."""
        self.send_end(data, trailers_block(trailers))
        self._connection.send_soon()

    def resume(self) -> None:
        Stream.resume(self)
        self._connection.send_soon()

    def cancel(self) -> None:
        """Give up the request: reset the stream with CANCEL."""
        self._listener = None
        self.reset(CANCEL)
        self._connection.send_soon()

    close = cancel

    # -- called by the session ------------------------------------------------------------------------------------

    def on_info(self, head: Response2) -> None:
        if self._listener is not None:
            self._listener.on_info(head)

    def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        """Report the final head, with the data and the end that arrived with it. Trailers, or an end that came by
        itself, are reported separately, even if they arrived at once: a successful head commits its call, whatever
        follows (gRPC A6). Only if the listener takes head, data and trailers as a whole (`on_whole`), they are reported
        in one call.
        """
        assert isinstance(head, Response2)  # an upstream sends answers
        listener = self._listener
        if listener is None:
            return
        if end and trailers is None and (data or head.whole):
            self._over()
            listener.on_head(head, data, True, None)
            return
        if end and trailers is not None and listener.on_whole(head, data, trailers):
            self._over()
            return
        listener.on_head(head, data, False, None)
        if end:
            self.report_end(trailers)

    def on_data(self, data: bytes) -> None:
        if self._listener is not None:
            self._listener.on_data(data)

    def on_end(self, trailers: Trailers | None) -> None:
        listener = self._listener
        if listener is not None:
            self._over()
            listener.on_end(trailers)

    def on_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """Report to the listener that the stream was broken off, with the HTTP/2 error `code` (None if the connection
        was lost). `processed`: False if the upstream says that it did not process the request; `detail`: what went
        wrong.
        """
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_fault(self._fault(code, processed, detail))

    def on_writable(self) -> None:
        if self._listener is not None:
            self._listener.on_writable()

    def on_defect(self, error: Exception) -> None:
        """Report a defect of the proxy to the listener as a fault, and give up this request alone: the connection has
        other streams.
        """
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a stream to an upstream broke down", "exception": error})
        listener, self._listener = self._listener, None
        if not self.over:
            self.reset(CANCEL)
            self._connection.send_soon()
        if listener is not None:
            listener.on_fault(faults.broke_down(answered=self.answered))

    def _over(self) -> None:
        """End the exchange, because the answer is whole: an unfinished request is reset."""
        self._listener = None
        if not self.over:
            self.reset(CANCEL)

    def _fault(self, code: int | None, processed: bool, detail: str) -> Fault:
        answered = self.answered
        if not processed and not answered:
            return Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED, detail=detail, code=code)
        if code is None:
            return faults.closed(sent=True, answered=answered, reused=self._reused)
        progress = Progress.ANSWERED if answered else Progress.UNKNOWN
        ours = self._connection.session.broke_off(self)
        return Fault(FaultKind.RESET, progress, detail=detail, error="http_protocol_error", code=code, ours=ours)
