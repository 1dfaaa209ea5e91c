"""A connection to an upstream by HTTP/1, and the one stream that it carries at a time.

`transport.streams.Listener` describes the calls of the listener's methods. After an end or a fault the stream is over,
and the connection is idle in the pool or closed.

States: idle (no listener) -> head -> body -> idle | closed; after a 101: tunnel, raw bytes until both ends close.
"""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.transport import faults
from proxy.transport.chunk_writer import LARGE, write_chunk, write_framed
from proxy.transport.clock import monotonic
from proxy.transport.direct_read import leave_to_transport, read_directly
from proxy.transport.direct_write import socket_of, write_at_once
from proxy.transport.event_source import EventSource
from proxy.transport.origins import Origin
from proxy.transport.socket_close import read_last_words
from proxy.transport.streams import Listener, SharedConnection
from proxy.transport.tls import keep_session
from proxy.transport.unread import has_said
from proxy.wire.errors import BadAnswer, BadMessage
from proxy.wire.head import PreparedRequest, ResponseHead, Trailers, trailer_fields
from proxy.wire.http1.body import Body, ChunkedBody, UntilCloseBody, body_reader, end_chunked
from proxy.wire.http1.parser import ResponseParser
from proxy.wire.http1.slow_path import switches_as_asked

#: Bytes in a write buffer above which the writer is asked to wait, and in a read buffer above which reading stops.
HIGH_WATER = 64 * 1024
#: The most bytes that the interim answers of one exchange may have together; they are passed on at once, and have no
#: other bound.
INTERIM = 256 * 1024
#: Seconds that an upstream has to take the rest of a tunnel whose app is gone.
PATIENCE = 2.0
#: A connection that has been idle for fewer seconds is used without asking the kernel whether bytes wait on it.
JUST_USED = 0.01


class Keeper:
    """The owner of connections, which is the pool. It is a base class, and no protocol, because compiled code calls its
    methods without the interpreter.
    """

    __slots__ = ()

    def opened(self, connection: Connection) -> None:
        """Note that a connection has been opened."""

    def rest(self, connection: Connection) -> None:
        """Take back a connection whose exchange is over, and which can carry another exchange."""

    def conforms(self, connection: Connection) -> bool:
        """Whether a connection may be kept while it is idle, and used again, because the configuration in force would
        open it in the same way.
        """
        raise NotImplementedError

    def lost(self, connection: Connection) -> None:
        """Note that a connection is closed."""


class Connection(EventSource):
    """A connection to an upstream, which is also the stream of its current exchange. `since`: when it became idle.
    `pinned` is the list that has it while it is idle, instead of the pool, once it belongs to one app connection.
    `generation` is that of the configuration under which it was opened, or last checked. `blocked`: whether writers
    should wait for `on_writable`. `exchanges`: how many it has carried, including the present one. `expires`: the time
    from which no attempt takes it any more (`transport.renewal`).
    """

    __slots__ = (
        "_answered", "_body", "_chunked", "_early", "_fd", "_interim", "_keep_alive", "_keeper", "_listener",
        "_method", "_paused", "_reader", "_sent_all", "_socket", "_tls", "_tunnel", "_upgrade", "_usual",
        "_usual_size", "blocked", "exchanges", "expires", "generation", "origin", "pinned", "since", "transport",
    )  # fmt: skip

    _usual: ResponseHead

    #: HTTP/1 carries one request at a time.
    shared: SharedConnection | None = None

    def __init__(self, keeper: Keeper, origin: Origin, *, tunnel: bool = False, generation: int = 0) -> None:
        EventSource.__init__(self)  # `super` would look for it at each connection
        self._keeper = keeper
        self.generation = generation
        self.expires = float("inf")
        self.origin = origin
        self.transport: asyncio.Transport | None = None
        self._fd = -1
        self._socket: Any | None = None  # the socket for `direct_write`
        self._tls = False
        self._tunnel = tunnel
        self._early = b""  # bytes that a tunnel's far end sent before there was a listener
        self._listener: Listener | None = None
        self._method = ""
        self._chunked = False  # the request's body is framed in chunks
        self._upgrade: bytes | None = None  # the protocols that the request offers to switch to
        self._sent_all = True
        self._reader = ResponseParser()
        self._body: Body | None = None
        self._answered = self._paused = False
        self._interim = 0  # bytes of interim answers
        self._keep_alive = True
        self._usual_size = -1  # the bytes of a whole answer with the usual head
        self.blocked = False
        self.exchanges = 0
        self.pinned: list[Connection] | None = None
        self.since = 0.0

    # -- the stream, as its attempt uses it -----------------------------------------------------------------------

    def send(
        self, listener: Listener, prepared: PreparedRequest, body: bytes, end: bool, trailers: Trailers | None
    ) -> None:
        """Send a request's head and the part of its body that has arrived, in one write. `listener` gets the answer;
        `end`: `body` is the rest of the body, and the `trailers` (None for none) follow it if it is chunked.
        """
        assert self.transport is not None
        request = prepared.head
        self._listener = listener
        self._method = request.method
        self.exchanges += 1
        text = prepared.text or self._render(prepared)
        if end and prepared.text:  # the other attributes are as `_over` left them
            if body:
                if len(body) >= LARGE:
                    self.transport.writelines((text, body))
                    return
                text += body
            if self._socket is None:
                self.transport.write(text)
            else:
                write_at_once(self.transport, self._socket, text)
            return
        self._chunked = request.chunked
        self._upgrade = None if request.scanned else request.upgrade
        self._sent_all = end
        write_framed(self.transport, text, body, request.chunked, end, trailers)

    def _render(self, prepared: PreparedRequest) -> bytes:
        """A request's head as text, in absolute form if it goes to a parent proxy in cleartext. The text is kept for
        further attempts unless the body is chunked.

        The target names the endpoint, since that is the host that the parent connects to. Host, which the parent should
        not look at (RFC 9112 section 3.2.2), is the same as without a parent.
        """
        head, target, add, origin = prepared.head, prepared.target, prepared.add, self.origin
        if origin.absolute:
            path = head.path if target is None else target
            target = b"http://" + origin.host + (b"" if path == b"*" else path)
            add += origin.credentials
        text = head.message(target, prepared.authority, add, b"", prepared.drop)
        if not head.chunked and (head.scanned or head.slow_path is None):
            prepared.text = text
        return text

    def listen(self, listener: Listener) -> bytes:
        """Report the bytes of a newly opened tunnel to this listener from now on. Return the bytes that the far end had
        sent before this call.
        """
        self._listener = listener
        self.exchanges = 1
        early, self._early = self._early, b""
        return early

    def pass_chunks_on(self, reads: bool) -> None:
        """Report the rest of the answer's body to the listener's `on_chunks` if it is chunked, in the framing that it
        came in. `reads`: report the payload without the framing as well. A body that is not chunked is reported as
        before.
        """
        if isinstance(self._body, ChunkedBody):
            self._body.passes, self._body.reads = True, reads
            self.another_body()

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            if self._chunked:
                write_chunk(self.transport, data)
            else:
                self.transport.write(data)

    def finish(self, trailers: Trailers | None, data: bytes = b"") -> None:
        self._sent_all = True
        if self.transport is None:
            return
        if self._tunnel:
            if self.transport.can_write_eof():
                self.transport.write_eof()
        elif self._chunked:
            write_chunk(self.transport, data, end_chunked(trailers.lines if trailers is not None else b""))
        elif data:
            self.transport.write(data)

    @property
    def unsent(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def pause(self) -> None:
        """Stop reading from the upstream until `resume`. After the end of the exchange this does nothing: a listener
        may still pause when it is given the last bytes.
        """
        if not self._paused and self._listener is not None and self.transport is not None:
            self._paused = True
            if self.reads is None:
                self.transport.pause_reading()
            else:
                leave_to_transport(self)

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def cancel(self) -> None:
        """Give up the exchange, and close the connection.

        In a tunnel, bytes that the closing side had sent before are still delivered, for a while (RFC 9110 section
        9.3.6).
        """
        self._listener = None
        if self._tunnel and self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.close()
            asyncio.get_running_loop().call_later(PATIENCE, self.abort)
        else:
            self.abort()

    def close(self) -> None:
        self._listener = None
        if self.reads is not None:
            leave_to_transport(self)
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.reads is not None:
            leave_to_transport(self)
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        if self._listener is not None:
            self._listener.on_writable()

    # -- the connection, as the pool uses it ----------------------------------------------------------------------

    def pin(self, home: list[Connection]) -> None:
        """Let the connection belong to one app connection from now on: while idle it is kept in `home`, never in the
        pool.
        """
        if self.pinned is None:
            self.pinned = home
            if self in self.origin.idle:
                self.origin.idle.remove(self)
                home.append(self)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_first(self) -> bool:
        """Whether the connection carries its first request."""
        return self.exchanges == 1

    def is_sound(self, rested: float) -> bool:
        """Whether the connection, which was idle for `rested` seconds, may be used: it is open, and no bytes wait on
        it. Within JUST_USED seconds of its last use, the kernel is not asked for waiting bytes.
        """
        transport = self.transport
        if transport is None or transport.is_closing() or self.blocked:
            return False
        if rested < JUST_USED:
            return True
        return not has_said(self._fd)

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=HIGH_WATER)  # type: ignore[attr-defined]
        self._socket = socket_of(transport)
        if self._socket is None:
            self._fd = transport.get_extra_info("socket").fileno()
            self._tls = transport.get_extra_info("ssl_object") is not None
        else:  # no TLS, and the very socket that the transport would be asked for
            self._fd = self._socket.fileno()
        self._keeper.opened(self)

    def data_received(self, data: bytes) -> None:
        """Read bytes of an answer. Bytes without an exchange close the connection, except for the first ones of a
        tunnel.
        """
        listener = self._listener
        if listener is None:
            if self._tunnel and self.exchanges == 0 and len(self._early) < HIGH_WATER:
                self._early += data
            else:
                self.abort()
        elif len(data) == self._usual_size and (body := self._usual_body(data)) is not None:
            self._listener = None
            self._keeper.rest(self)
            listener.on_head(self._usual, body, True, None)
        elif self._body is not None:
            self._read_body(data, listener)
        elif self._tunnel:
            listener.on_data(data)
        else:
            self._answered = True
            self._read_head(data, listener)

    def _usual_body(self, data: bytes) -> bytes | None:
        """The body of an answer whose bytes are `data`, if they begin with exactly the usual head (that of the
        connection's last success) and this head can be taken for the answer's without the parser: the request is sent,
        its answer has not begun, and nothing about the exchange is special (a tunnel, an upgrade, HEAD, a paused
        listener, say). Else None.
        """
        if self._answered or not self._sent_all or self._paused or self._tunnel or self._chunked or self._upgrade:
            return None
        usual = self._usual.raw
        if self.pinned is not None or self._method == "HEAD" or not data.startswith(usual):
            return None
        text = data  # a pointer when compiled, so the slice needs both ends
        return text[len(usual) : self._usual_size]

    def eof_received(self) -> bool:
        """Note that the upstream sends no more, which is the end of a tunnel's direction or of a body without a length.
        Returns True if our own direction stays open: in a tunnel, unless the connection is TLS.

        With TLS, asyncio calls this only for an end that TLS announced; any other end may be forged (RFC 9112 section
        9.8), and counts as a lost connection (see `transport.tls`).
        """
        listener = self._listener
        if listener is None:
            return False
        if self._tunnel:
            listener.on_end(None)
            return not self._tls
        if isinstance(self._body, UntilCloseBody):
            self._over(b"")
            listener.on_end(None)
        return False

    def unwanted(self) -> None:
        """Close a connection whose caller went away at the moment when it was opened: uvloop closes it then (in
        `loop.create_connection`), and does not call its protocol.
        """
        if self.transport is not None:
            self.transport.abort()
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, whichever side closed it: to the pool and, as a fault, to the listener of
        an exchange under way. Bytes of an answer that had arrived before are read first.
        """
        if self.transport is None:  # handled already
            return
        self.transport = None
        if self.reads is not None:
            leave_to_transport(self)
        self._keeper.lost(self)
        if exc is not None and not self._tls:
            # An answer that refuses a body while it is being sent (413, 401, …) would else be lost with the reset.
            read_last_words(self._fd, self.data_received, self._takes_more)
        if self.pinned is not None and self in self.pinned:
            self.pinned.remove(self)
        listener, self._listener = self._listener, None
        if listener is not None:
            fault = faults.closed(sent=True, answered=self._answered, reused=self.exchanges > 1, error=exc)
            listener.on_fault(fault)

    def _takes_more(self) -> bool:
        """Whether bytes that arrived before the connection's end are still given to the listener: in a tunnel all of
        them (RFC 9110 section 9.3.6), else only if reading is not paused.
        """
        return self._listener is not None and (self._tunnel or not self._paused)

    # -- read past the transport (proxy.transport.socket_reads) ------------------------------------------------------

    def take_event(self, data: bytes) -> bool:
        listener, body = self._listener, self._body
        if listener is None or type(body) is not ChunkedBody:
            return False
        chunked = body  # with a type when compiled
        size = chunked.plain_chunks(data)
        if size == 0:
            return False
        listener.on_chunks(data, size, 0, None)
        return True

    def read_by_transport(self) -> None:
        leave_to_transport(self)
        self.another_body()
        if self.transport is not None:
            self.transport.resume_reading()

    def read_failed(self, error: Exception) -> None:
        transport = self.transport
        self.connection_lost(error)
        if transport is not None:
            transport.abort()

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_head(self, data: bytes, listener: Listener) -> None:
        reader = self._reader
        try:
            head, data = reader.take(data)
            while head is not None and head.status < 200 and head.status != 101:
                self._interim += len(head.raw)
                if self._interim > INTERIM:
                    raise BadAnswer(f"more than {INTERIM} bytes of interim answers")
                listener.on_info(head)
                if self._listener is None:
                    return
                listener = self._listener
                head, data = reader.take(data)
        except BadMessage as bad:
            self._break(listener, bad.detail)
            return
        if head is None:
            return
        self._keep_alive = head.keep_alive
        size = head.body_size(self._method)
        if head.status == 101:
            self._begin_tunnel(head, data, listener)
        elif size == len(data):
            if head.status < 400 and head.simple and not head.chunked and self._method != "HEAD":
                # Only a success sets the usual head: a failure in between does not change it.
                head = self._usual = self.origin.as_usual(head)
                self._usual_size = len(head.raw) + size if head.keep_alive else -1
            self._over(b"")
            listener.on_head(head, data, True, None)
        elif 0 <= size < len(data):
            self._over(data[size:])
            listener.on_head(head, data[:size], True, None)
        else:
            self._body = body_reader(size)
            if data:
                self._read_body(data, listener, head)
            else:
                listener.on_head(head, b"", False, None)

    def _read_body(self, data: bytes, listener: Listener, head: ResponseHead | None = None) -> None:
        """Read more of the body, `data`. `head`: the answer's head, if it arrived in the same packet and has yet to be
        reported, with this part; None if it has been reported.
        """
        body = self._body
        assert body is not None
        if type(body) is ChunkedBody:
            chunked = body  # with a type when compiled
            if chunked.passes:
                self._pass_on(chunked, data, listener)
                return
        try:
            payload, done, rest = body.feed(data)
        except BadMessage as bad:
            self._break(listener, bad.detail)
            return
        if done:
            self._over(rest)
        trailers = trailer_fields(body.trailers) if body.trailers else None
        if head is not None:
            listener.on_head(head, payload, done, trailers)
            return
        if payload:
            listener.on_data(payload)
        if done:
            listener.on_end(trailers)

    def _pass_on(self, body: ChunkedBody, data: bytes, listener: Listener) -> None:
        """Read `data`, more of a chunked body, and pass its chunks on to `listener` with the framing they came in."""
        size = body.plain_chunks(data)
        if size:
            listener.on_chunks(data, size, 0, None)
            if self.another_event() and self._takes_more() and self.transport is not None:
                read_directly(self, self.transport, self._socket)
            return
        try:
            chunks, size, done, rest = body.pass_on(data)
        except BadMessage as bad:
            self._break(listener, bad.detail)
            return
        if done:
            self._over(rest)
        if chunks:
            listener.on_chunks(chunks, size, -1 if done else body.owed, body.payload)
        if done:
            listener.on_end(trailer_fields(body.trailers) if body.trailers else None)

    def _begin_tunnel(self, head: ResponseHead, data: bytes, listener: Listener) -> None:
        if not switches_as_asked(self._upgrade, head.upgrade):
            self._break(listener, "a 101 that nobody asked for")
        elif self._chunked and not self._sent_all:  # its rest would look like the tunnel's bytes
            self._break(listener, "a 101 within a chunked request")
        else:
            self._tunnel = True
            self._chunked = False
            listener.on_head(head, data, False, None)

    def _over(self, rest: bytes) -> None:
        """End an exchange whose answer is whole: keep the connection as idle if nothing arrived after the answer
        (`rest`), else close it.
        """
        self._listener = None
        self._body = None
        transport = self.transport
        if transport is None:
            return
        if self._tls and self.exchanges == 1:
            keep_session(transport, self.origin.endpoint, self.origin.way.parent)
        if self._paused:
            self.resume()
        if self.reads is not None:
            self.read_by_transport()
        if not self._sent_all or rest:
            transport.abort()
        elif not self._keep_alive or transport.is_closing():
            transport.close()
        else:
            self._answered = self._chunked = False
            self._upgrade = None
            self._interim = 0
            if self.pinned is None:
                self._keeper.rest(self)
            elif self._keeper.conforms(self):
                self.since = monotonic()
                self.pinned.append(self)
            else:
                transport.close()

    def _break(self, listener: Listener, detail: str) -> None:
        self._listener = None
        self.abort()
        listener.on_fault(faults.malformed(detail))
