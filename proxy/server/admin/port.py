"""The HTTP of the admin port and of the probe: a few readers, a coroutine for each.

Law: it speaks by the proxy port's own grammar, strictly, and knows nothing of what its pages say. One request of a
connection is answered after the other. A page that fails is answered with 500, and the rest of the process goes on.
A reader who says nothing, or not all, or takes nothing, costs a connection and no more, and holds no end up.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from proxy.retry.http_date import http_date
from proxy.server.admin.asked import Asked, Page, Reply, text
from proxy.transport.clock import wall
from proxy.wire.body import body_reader, chunk, end_chunked
from proxy.wire.grammar import BadMessage, Refused, RequestParser
from proxy.wire.head import RequestHead

#: Seconds until a request has come whole: as long as aiohttp and nginx keep a resting connection.
REST = 75.0
#: Bytes of a body, which no page reads.
BODY = 1024 * 1024
#: Seconds that what still comes is read and dropped behind a last answer (RFC 9112 section 9.6).
LINGER = 2.0
_SIZE = 64 * 1024
_CLOSE = b"Connection: close\r\n"

#: A refusal, or None for who is let in.
Guard = Callable[[Asked], Reply | None]


def _everybody(asked: Asked) -> Reply | None:
    return None


class _Head(RequestHead):
    """Of what was asked; the guard has more to say of a Host than whether it is empty."""

    __slots__ = ()
    may_lack_host = True


class _Parser(RequestParser):
    __slots__ = ()
    _make = _Head


class Port:
    """Pages on one listening socket.

    `routes`: pages by path (its last segment may be `{name}`) and method; whoever takes a GET takes a HEAD too.
    `guard` is asked first. `closing` is set when the port is to end; `beside` is done until then.
    """

    def __init__(
        self,
        routes: Mapping[str, Mapping[str, Page]],
        closing: asyncio.Event,
        *,
        guard: Guard = _everybody,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.routes = routes
        self._closing = closing
        self._guard = guard
        self._beside = beside
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: set[asyncio.Task[None] | None] = set()  # those that wait for a request
        self._server: asyncio.Server | None = None

    async def open(self, sock: socket.socket) -> None:
        """Serve on a listening socket."""
        self._server = await asyncio.start_server(self._connected, sock=sock)
        if self._beside is not None:
            self._begin(self._beside())

    async def close(self, patience: float) -> None:
        """Accept no more; answers that are under way get so many seconds."""
        self._closing.set()
        if self._server is not None:
            self._server.close()
        for task in self._tasks & self._resting:
            task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._begin(self._serve(reader, writer))

    # -- a connection ---------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except OSError:
            pass  # it went away, or never said all
        except Exception as error:
            _tell(error)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other, until one of both has had enough."""
        parser, rest = _Parser(), b""
        try:
            while not self._closing.is_set() and (head := await self._next(reader, parser, rest)) is not None:
                rest = await _drop_body(head, reader, writer, parser.leftover())
                if not await self._answer(head, reader, writer):
                    return
        except BadMessage as bad:
            _write(writer, text(bad.detail, bad.status if isinstance(bad, Refused) else 400), _CLOSE)
            await _see_off(reader, writer)

    async def _next(self, reader: asyncio.StreamReader, parser: RequestParser, rest: bytes) -> RequestHead | None:
        """The next request's head; None where none comes."""
        task = asyncio.current_task()
        self._resting.add(task)
        try:
            async with asyncio.timeout(REST):
                head = parser.feed(rest) if rest else None
                while head is None:
                    data = await reader.read(_SIZE)
                    if not data:
                        return None
                    head = parser.feed(data)
                return head
        finally:
            self._resting.discard(task)

    async def _answer(self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; whether the connection stays."""
        reply = await self._reply(head)
        stays = head.keep_alive and not self._closing.is_set()
        line = _CLOSE if not stays else b"" if head.minor else b"Connection: keep-alive\r\n"
        if reply.parts is None:
            _write(writer, reply, line, headless=head.method == "HEAD")
            await writer.drain()
            return stays
        chunked = bool(head.minor)
        _write(writer, reply, b"Transfer-Encoding: chunked\r\n" if chunked else line)
        async with contextlib.aclosing(reply.parts) as parts:
            if head.method == "HEAD":
                return stays
            async for part in parts:
                if part:
                    writer.write(chunk(part) if chunked else part)
                    await writer.drain()
                if reader.at_eof() or writer.is_closing():
                    return False
        if chunked:
            writer.write(end_chunked())
        return stays and chunked

    async def _reply(self, head: RequestHead) -> Reply:
        """What a page says to it, or why none does."""
        path, _, query = head.path.decode("latin-1").partition("?")
        host = head.authority if head.form == "absolute" else ",".join(head.get_all("host"))
        values = dict(reversed(parse_qsl(query, keep_blank_values=True)))
        asked = Asked(head.method, unquote(path), values, host, head)
        try:
            reply = self._guard(asked)
            if reply is None:
                reply = await self._page(asked)
        except Exception as error:
            _tell(error)
            return text("This page failed; standard error says why.", 500)
        return reply

    async def _page(self, asked: Asked) -> Reply:
        folder = asked.path.rpartition("/")[0]
        pages = self.routes.get(asked.path) or self.routes.get(f"{folder}/{{name}}")
        if pages is None:
            return text("There is no such page.", 404)
        page = pages.get("GET" if asked.method == "HEAD" else asked.method)
        if page is None:
            return text(f"This page takes {' and '.join(pages)}.", 405, Allow=", ".join(pages))
        return await page(asked)


def _tell(error: Exception) -> None:
    """A page has a defect: to standard error, as asyncio does it."""
    asyncio.get_running_loop().call_exception_handler({"message": "a page failed", "exception": error})


def _write(writer: asyncio.StreamWriter, reply: Reply, line: bytes, *, headless: bool = False) -> None:
    """Write an answer, or the head of one that comes in parts; `line` says what becomes of the connection."""
    fields = {
        "Date": http_date(wall()),
        "Content-Type": reply.kind,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        **reply.fields,
    }
    if reply.parts is None:
        fields["Content-Length"] = str(len(reply.body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    head = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{lines}".encode("latin-1") + line + b"\r\n"
    writer.write(head if headless else head + reply.body)


async def _drop_body(
    head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bytes
) -> bytes:
    """Read over a request's body; what stands behind it."""
    body = body_reader(head.body_size)
    if body is None:
        return rest
    if head.expect_continue and not rest:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    size = 0
    async with asyncio.timeout(REST):
        while True:
            payload, done, behind = body.feed(rest)
            size += len(payload)
            if done:
                return behind
            if size > BODY:
                raise Refused(413, "", f"no page takes more than {BODY} bytes")
            rest = await reader.read(_SIZE)
            if not rest:
                raise ConnectionResetError


async def _see_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that nothing more comes, and read on for a while, so that no reset takes the last answer with it."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(LINGER):
        while await reader.read(_SIZE):
            pass
