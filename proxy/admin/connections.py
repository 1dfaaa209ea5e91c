"""Connections of the admin port and of the probe: aiohttp's, with bounds that aiohttp itself does not have.

aiohttp bounds the size of a request (`_LIMITS`) and how long a connection may be idle, but neither the number of
connections nor how long it waits for a client that does not read its answer. Calls share the process, so there are more
rules here. A connection beyond MOST takes the place of the one that has been idle longest. A connection whose client
has read nothing of an answer for STALLED seconds is cut. A client that has closed its sending direction (a FIN) still
gets its answers. After the answer to bytes that are not HTTP, which is a connection's last, the rest of the bytes is
read and dropped, so that no reset destroys that answer on its way (RFC 9112, section 9.6).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from proxy.admin.turns import rest
from proxy.config.settings import Address

#: The most connections of a port at one time. With those of the other port and the process's own files, these are fewer
#: than the file descriptors that calls may not use (`server.resources.RESERVED`).
MOST = 16
#: Seconds in which the next request must arrive: as long as nginx keeps an idle connection.
REST = 75.0
#: Seconds after which a connection is cut if its client has read nothing of an answer, as nginx's send_timeout.
STALLED = 60.0
#: Seconds that pages in progress have to finish when their listener is closed.
END = 1.0
#: Seconds for which bytes that arrive after a last answer are read and dropped.
LINGER = 2.0
#: The bounds that aiohttp has. A field has room for cookies: a browser sends those of all other servers on this host.
_LIMITS: dict[str, Any] = {
    "keepalive_timeout": REST,
    "max_line_size": 8190,
    "max_field_size": 16 * 1024,
    "max_headers": 64,
    "lingering_time": LINGER,
    "auto_decompress": False,
}


class AdminRunner(web.AppRunner):
    """A runner that serves an application as aiohttp's does, on bounded connections. When the runner cleans up, pages
    in progress have `patience` seconds to finish; connections that are left then are cut.
    """

    def __init__(self, app: web.Application, patience: float) -> None:
        super().__init__(app, shutdown_timeout=patience)

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Set the application up, and serve it on listening sockets."""
        await self.setup()
        for sock in sockets:
            await web.SockSite(self, sock, backlog=MOST).start()

    async def _make_server(self) -> web.Server:
        return AdminServer(await super()._make_server())


class Pages:
    """The listeners of the admin port, or those of the probe's port. `make` makes the application of each listener.
    `opens` is called with a listener's address once it is open, and `leaves` once it is closed.
    """

    def __init__(
        self,
        make: Callable[[], web.Application],
        opens: Callable[[Address], None],
        leaves: Callable[[Address], None],
    ) -> None:
        self._make = make
        self._opens = opens
        self._leaves = leaves

    async def open(self, address: Address, sockets: Sequence[socket.socket]) -> OpenPages:
        """Serve pages on these sockets, which listen on `address`."""
        runner = AdminRunner(self._make(), END)
        await runner.open(sockets)
        self._opens(address)
        return OpenPages(address, runner, sockets)

    async def shut(self, opened: OpenPages) -> None:
        """Close a listener that `open` returned. Answers in progress have END seconds to finish."""
        await opened.runner.cleanup()
        self._leaves(opened.address)

    def sockets(self, opened: OpenPages) -> list[socket.socket]:
        return [*opened.sockets]


class OpenPages(NamedTuple):
    """A listener of the admin port or the probe."""

    address: Address
    runner: AdminRunner
    sockets: Sequence[socket.socket]


class AdminServer(web.Server):
    """The server of the admin port or the probe, which keeps count of its connections and bounds their number. `made`:
    the server that aiohttp made for the application.
    """

    def __init__(self, made: web.Server) -> None:
        super().__init__(self._answer, request_factory=made.request_factory, handler_cancellation=True)
        self._handler = made.request_handler
        self._open: dict[AdminConnection, asyncio.Transport] = {}  # the oldest first
        self._resting: dict[AdminConnection, None] = {}  # connections that wait for a request, the longest first

    def __call__(self) -> AdminConnection:
        return AdminConnection(self, loop=asyncio.get_running_loop(), access_log=None, **_LIMITS)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        connection = cast(AdminConnection, handler)
        if len(self._open) >= MOST:
            self._give_up(next(iter(self._resting or self._open)))
        self._open[connection] = transport
        self._resting[connection] = None
        super().connection_made(handler, transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(cast(AdminConnection, handler))
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  aiohttp's signature
        """Wait at most `timeout` seconds for pages in progress, then cut the connections that are left."""
        await super().shutdown(timeout)
        for connection in list(self._open):
            self._give_up(connection)

    def rests(self, connection: AdminConnection) -> None:
        """Note that a connection's request has been answered, and that it waits for another request."""
        if connection in self._open:
            self._resting[connection] = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(AdminConnection, request.protocol)
        connection.asks(request)
        if request.content.is_eof():  # else its body may never arrive: the connection can still be replaced
            self._resting.pop(connection, None)
        return await self._handler(request)

    def _give_up(self, connection: AdminConnection) -> None:
        self._open[connection].abort()
        self._forget(connection)

    def _forget(self, connection: AdminConnection) -> None:
        self._open.pop(connection, None)
        self._resting.pop(connection, None)


class AdminConnection(web.RequestHandler):
    """A connection of the admin port or the probe. `said_all`: the client has closed its sending direction; it may
    still read answers.
    """

    __slots__ = ("_answered", "_asked", "_ended", "_leaving", "_owner", "_stall", "said_all")

    def __init__(self, owner: AdminServer, **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner = owner
        self._asked: web.BaseRequest | None = None
        self._answered = 0
        self._stall: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()  # set when no more bytes can arrive
        self._leaving = False
        self.said_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. The write buffer's limit is 0, so that `pause_writing` reports every answer that the system has not
        taken completely.
        """
        cast(asyncio.Transport, transport).set_write_buffer_limits(0)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End: stop the timers and wake the task that drops late bytes."""
        self._ended.set()
        self._stop_watching()
        super().connection_lost(exc)

    # -- a client that has closed its sending direction ---------------------------------------------------------------

    def asks(self, request: web.BaseRequest) -> None:
        """Note the request that is now being answered on this connection."""
        self._asked = request
        if self.said_all:
            self._end_body(request)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Note that the client sends no more, and close once the requests that have arrived completely are answered.
        Returns True if any is still to be answered, which keeps our own direction open.
        """
        self.said_all = True
        self._ended.set()
        if self._asked is not None:
            self._end_body(self._asked)
        unanswered = self._request_count - self._answered
        if unanswered == (self._asked is not None):  # no request waits after it, which aiohttp would drop
            self.close()
        return unanswered > 0

    def _end_body(self, request: web.BaseRequest) -> None:
        if not request.content.is_eof():  # the rest of the body can't arrive any more
            request.content.set_exception(ConnectionResetError())

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._asked = None
            self._answered += 1
            self._owner.rests(self)
            if self.said_all and self._answered >= self._request_count:
                self.close()

    # -- a client that does not read ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Begin to check whether the client reads the rest of its answer; a client that reads nothing for STALLED
        seconds is cut off.
        """
        super().pause_writing()
        self._watch(self._left())

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _watch(self, left: int) -> None:
        self._stop_watching()
        self._stall = asyncio.get_running_loop().call_later(STALLED, self._look, left)

    def _look(self, before: int) -> None:
        left = self._left()
        if left < before:
            self._watch(left)
        elif self.transport is not None:
            self.transport.abort()

    def _left(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # -- bytes that are not HTTP --------------------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are not HTTP; a client that has gone gets no answer. Neither is logged: any client can
        cause it, and a traceback would repeat what the client sent.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        if isinstance(exc, LineTooLong):
            return LastAnswer(431, "A line of the request's head is too long.", self)
        return LastAnswer(status, "This is not an HTTP/1.1 request.", self)

    async def see_off(self) -> None:
        """Close our sending direction, and for LINGER seconds drop what still arrives."""
        self._leaving = True
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
        await rest(self._ended, LINGER)

    def data_received(self, data: bytes) -> None:
        if not self._leaving:
            super().data_received(data)


class LastAnswer(web.Response):
    """The last answer on a connection. What the client still sends after it is dropped for a while."""

    def __init__(self, status: int, detail: str, connection: AdminConnection) -> None:
        super().__init__(status=status, text=f"{detail}\n", headers={"Connection": "close", "Server": "redrive"})
        self.force_close()
        self._connection = connection

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the answer's end, then drop what the client still sends."""
        await super().write_eof(data)
        await self._connection.see_off()


def has_said_all(request: web.BaseRequest) -> bool:
    """Whether the client has closed its sending direction (a FIN): it sends no more, and may have gone."""
    return isinstance(request.protocol, AdminConnection) and request.protocol.said_all
