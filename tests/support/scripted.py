"""A scripted upstream: a raw asyncio server on loopback that does to each request what the test says.

    async with Upstream(answer(503), reset, answer(200, b"ok")) as upstream:
        ...
        assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]

A step is bytes (the whole request is read, then they are written) or a coroutine function that is given the `Turn`:
it reads and writes as it likes. The last step repeats. Requests are counted over all connections, in order of arrival.
Nothing here parses leniently or strictly: it splits at CRLF and reads Content-Length or chunked bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from support.patience import in_time

REASONS = {200: "OK", 204: "No Content", 304: "Not Modified", 503: "Service Unavailable", 429: "Too Many Requests"}


@dataclass
class Headed:
    """A message with its head as it came, and the fields that stand in it."""

    head: bytes

    @property
    def fields(self) -> list[tuple[str, str]]:
        lines = self.head.rstrip(b"\r\n").split(b"\r\n")[1:]
        pairs = (line.decode("latin-1").split(":", 1) for line in lines)
        return [(name, value.strip(" \t")) for name, value in pairs]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def one(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, values
        return values[0] if values else None


@dataclass
class Received(Headed):
    """One request as it came. `body` is what was read of it so far; `trailers` of a chunked one."""

    connection: int
    body: bytes = b""
    trailers: bytes = b""

    @property
    def method(self) -> str:
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")


@dataclass
class Turn:
    """One request on one connection, for a step that wants to do more than to write bytes."""

    upstream: Upstream
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: Received
    closed: bool = False

    async def read_body(self) -> bytes:
        """The rest of the request's body."""
        request = self.request
        if "chunked" in (request.one("transfer-encoding") or ""):
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                request.body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            while (line := await self.reader.readline()) != b"\r\n":
                request.trailers += line
        else:
            length = int(request.one("content-length") or 0)
            request.body += await self.reader.readexactly(length - len(request.body))
        return request.body

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the proxy has closed this connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.closed = True

    def close(self) -> None:
        self.closed = True
        self.writer.close()

    def reset(self) -> None:
        """Close with a RST."""
        self.closed = True
        sock = self.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Step = bytes | Callable[[Turn], Awaitable[None]]


def answer(status: int, body: bytes = b"", *fields: str, version: str = "1.1", length: bool = True) -> bytes:
    """A whole answer, with Content-Length unless told otherwise. `fields` are lines without their CRLF."""
    lines = [f"HTTP/{version} {status} {REASONS.get(status, 'Status')}", *fields]
    if length and status not in (204, 304):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def reset(turn: Turn) -> None:
    """Read the request, then RST."""
    await turn.read_body()
    turn.reset()


async def close(turn: Turn) -> None:
    """Read the request, then close without an answer."""
    await turn.read_body()
    turn.close()


async def hang(turn: Turn) -> None:
    """Never answer; `upstream.gone` is set once the proxy has closed the connection."""
    await turn.gone()
    turn.upstream.gone.set()


def then_stall(data: bytes) -> Step:
    """Read the request, write `data`, and say nothing more until the proxy goes."""

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(data)
        await turn.gone()

    return step


def then_close(data: bytes) -> Step:
    """Read the request, write `data`, close."""

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(data)
        turn.close()

    return step


def gated(event: asyncio.Event, *parts: bytes) -> Step:
    """Read the request, write the first part, and the others once the event is set."""

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(parts[0])
        await event.wait()
        for part in parts[1:]:
            await turn.write(part)

    return step


@dataclass
class Upstream:
    """See the module. `connections` counts accepted ones, `dialled`: there was one; `gone` is for `hang`."""

    steps: tuple[Step, ...]
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def __init__(
        self,
        *steps: Step,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        path: str | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        self.steps = steps or (answer(200, b"ok"),)
        self.requests = []
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.gone = asyncio.Event()
        self.dialled = asyncio.Event()
        self.arrived = asyncio.Condition()
        self.failures: list[BaseException] = []
        self._tls, self._host, self._path, self._sock = tls, host, path, sock
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = 0

    async def __aenter__(self) -> Self:
        if self._path is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._path, ssl=self._tls)
        elif self._sock is not None:
            self._server = await asyncio.start_server(self._serve, sock=self._sock, ssl=self._tls)
            self.port = self._sock.getsockname()[1]
        else:
            self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self.open:
            writer.transport.abort()
        if error is None and self.failures:
            raise self.failures[0]

    @property
    def authority(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.authority}"

    async def until(self, requests: int) -> None:
        """Wait until so many requests have come."""
        async with self.arrived:
            came = self.arrived.wait_for(lambda: len(self.requests) >= requests)
            await in_time(came, lambda: f"{len(self.requests)} requests came, not {requests}")

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.dialled.set()
        self.open.add(writer)
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            while True:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                turn = Turn(self, reader, writer, Received(head, number))
                step = self.steps[min(self._next, len(self.steps) - 1)]
                self._next += 1
                async with self.arrived:
                    self.requests.append(turn.request)
                    self.arrived.notify_all()
                await self._play(step, turn)
                if turn.closed:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        except Exception as error:
            self.failures.append(error)
        finally:
            self.open.discard(writer)
            writer.close()

    async def _play(self, step: Step, turn: Turn) -> None:
        if isinstance(step, bytes):
            await turn.read_body()
            await turn.write(step)
        else:
            await step(turn)
