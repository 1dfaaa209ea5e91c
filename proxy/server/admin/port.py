"""The HTTP of the admin port and of the probe: a few readers, a coroutine for each.

Law: it speaks by the proxy port's own grammar, strictly, and knows nothing of what its pages say. One request of a
connection is answered after the other, and calls go on between two of them. A page that fails is answered with 500,
and the rest of the process goes on. A reader who says nothing, or not all, or takes nothing, costs a connection for a
while and no more, keeps nobody else out, and holds no end up.
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
#: Parameters of a query, of which no page reads more than two.
NAMES = 32
#: Connections at once: with those of another port, and the process's own files, fewer descriptors than calls leave
#: (`server.listener.RESERVED`).
MOST = 16
#: Seconds after which a reader who has taken nothing of an answer is given up, as nginx's send_timeout.
STALLED = 60.0
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
        self._aside: asyncio.Task[None] | None = None
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # the oldest first
        self._resting: dict[asyncio.Task[None], None] = {}  # those that wait for a request, the longest first
        self._server: asyncio.Server | None = None

    async def open(self, sock: socket.socket) -> None:
        """Serve on a listening socket."""
        self._server = await asyncio.start_server(self._connected, sock=sock, backlog=MOST)
        if self._beside is not None:
            self._aside = asyncio.get_running_loop().create_task(_told(self._beside()))

    async def close(self, patience: float) -> None:
        """Accept no more; answers that are under way get so many seconds."""
        self._closing.set()
        if self._server is not None:
            self._server.close()
        under_way = {task for task in (*self._talks, self._aside) if task is not None}
        for task in list(self._resting):
            self._give_up(task)
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=patience)
            for task in late:
                self._give_up(task)
            await asyncio.gather(*late, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talks) >= MOST:  # whoever comes is heard
            self._give_up(next(iter(self._resting or self._talks)))
        writer.transport.set_write_buffer_limits(0)  # what has been drained has gone
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._talks[task] = writer
        self._resting[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._talks.pop(task, None)
        self._resting.pop(task, None)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """End a conversation where it stands."""
        writer = self._talks.get(task)
        if writer is not None:
            writer.transport.abort()
        self._ended(task)
        task.cancel()

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
            while not self._closing.is_set():
                head, rest = await self._next(reader, writer, parser, rest)
                if head is None or not await self._answer(head, reader, writer):
                    return
        except BadMessage as bad:
            _write(writer, text(bad.detail, bad.status if isinstance(bad, Refused) else 400), _CLOSE)
            await _see_off(reader, writer)

    async def _next(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parser: RequestParser, rest: bytes
    ) -> tuple[RequestHead | None, bytes]:
        """The next request's head, None where none comes, and what stands behind its body."""
        task = asyncio.current_task()
        assert task is not None
        self._resting[task] = None
        try:
            async with asyncio.timeout(REST):
                head = parser.feed(rest) if rest else None
                while head is None:
                    data = await reader.read(_SIZE)
                    if not data:
                        return None, b""
                    head = parser.feed(data)
                return head, await _drop_body(head, reader, writer, parser.leftover())
        finally:
            self._resting.pop(task, None)

    async def _answer(self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; whether the connection stays."""
        reply = await self._reply(head)
        chunked = reply.parts is not None and head.minor == 1
        stays = head.keep_alive and not self._closing.is_set() and (reply.parts is None or chunked)
        line = _CLOSE if not stays else b"" if head.minor else b"Connection: keep-alive\r\n"
        _write(writer, reply, line + b"Transfer-Encoding: chunked\r\n" * chunked, headless=head.method == "HEAD")
        if reply.parts is None:
            await _taken(writer)
            return stays
        async with contextlib.aclosing(reply.parts) as parts:
            if head.method == "HEAD":
                await _taken(writer)
                return stays
            async for part in parts:
                if writer.is_closing():
                    return False
                if part:
                    writer.write(chunk(part) if chunked else part)
                    await _taken(writer)
                if reader.at_eof():
                    break
        if chunked and not writer.is_closing():
            writer.write(end_chunked())
        return stays

    async def _reply(self, head: RequestHead) -> Reply:
        """What a page says to it, or why none does."""
        path, _, query = head.path.decode("utf-8", "replace").partition("?")
        host = head.authority if head.form == "absolute" else ",".join(head.get_all("host"))
        try:
            values = dict(reversed(parse_qsl(query, keep_blank_values=True, max_num_fields=NAMES)))
        except ValueError:
            return text(f"No page takes more than {NAMES} parameters.", 400)
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
            methods = [*pages, "HEAD"] if "GET" in pages else list(pages)
            return text(f"This page takes {' and '.join(methods)}.", 405, Allow=", ".join(methods))
        return await page(asked)


def _tell(error: Exception) -> None:
    """A page has a defect: to standard error, as asyncio does it."""
    asyncio.get_running_loop().call_exception_handler({"message": "a page failed", "exception": error})


async def _told(work: Coroutine[Any, Any, None]) -> None:
    """Do something, and tell where it fails."""
    try:
        await work
    except Exception as error:
        _tell(error)


def _write(writer: asyncio.StreamWriter, reply: Reply, line: bytes, *, headless: bool = False) -> None:
    """Write an answer, or the head of one that comes in parts; `line` says what becomes of the connection."""
    if writer.is_closing():  # while the page was made
        raise ConnectionResetError
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
    size = head.content_length or 0
    if head.expect_continue and not rest and size <= BODY:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    while size <= BODY:
        payload, done, behind = body.feed(rest)
        if done:
            return behind
        if head.chunked:
            size += len(payload)
        rest = await reader.read(_SIZE)
        if not rest:
            raise ConnectionResetError
    raise Refused(413, "", f"no page takes more than {BODY} bytes")


async def _taken(writer: asyncio.StreamWriter) -> None:
    """Wait until what was written has gone, as long as the reader takes something of it, and let others have a turn."""
    await asyncio.sleep(0)  # noqa: TID251  many requests may have come at once
    left = -1
    while left != (left := writer.transport.get_write_buffer_size()):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALLED):
                await writer.drain()
                return
    writer.transport.abort()
    raise TimeoutError


async def _see_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that nothing more comes, and read on for a while, so that no reset takes the last answer with it."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(LINGER):
        while await reader.read(_SIZE):
            pass
