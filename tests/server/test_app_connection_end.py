"""How an app's connection ends: a slow reader has its whole answer, and who takes nothing is told by a reset."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.front import Front, request, to

from proxy.server import connection as app_connection
from proxy.server import connection_end
from proxy.server.connection import AppConnection
from proxy.server.connection_end import StagedClose

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much the app had yet to take at each look; they follow one another at once."""
    seen: list[int] = []

    class Looking(StagedClose):
        def _see_off(self, transport: asyncio.Transport, abort: Callable[[], None], before: int, looks: int) -> None:
            seen.append(before)
            super()._see_off(transport, abort, before, looks)

    monkeypatch.setattr(connection_end, "LINGER", 0.001)
    monkeypatch.setattr(app_connection, "StagedClose", Looking)
    return seen


async def until(so: Callable[[], object]) -> None:
    while not so():  # noqa: ASYNC110  no event tells of it
        await asyncio.sleep(0)


@asynccontextmanager
async def left_with_some(
    line: bytes, front: Front, listener: socket.socket
) -> AsyncIterator[tuple[socket.socket, int]]:
    """An app that has its whole answer written, some of it not taken by its kernel; and the answer's size."""
    loop = asyncio.get_running_loop()
    app = socket.socket()
    app.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    app.connect(("127.0.0.1", front.port))
    app.setblocking(False)
    await loop.sock_sendall(app, line)
    peer, _ = await loop.sock_accept(listener)
    (connection,) = front.path.acceptor.open
    assert isinstance(connection, AppConnection)
    transport = connection.transport
    assert transport is not None
    assert await loop.sock_recv(peer, 1000)
    await loop.sock_sendall(peer, CHUNKED)
    size = 0

    def taken() -> bool:
        return connection.exchange is not None and connection.exchange.delivery.bytes_out == size

    while transport.get_write_buffer_size() < 40_000:
        await loop.sock_sendall(peer, b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        size += 0x2000
        await until(taken)
    await loop.sock_sendall(peer, b"0\r\n\r\n")
    await front.observed.until(1)
    with app, peer:
        yield app, size


LINES = {
    "HTTP/1.0": b"GET /api/ HTTP/1.0\r\n\r\n",
    "HTTP/1.0 that would stay": b"GET http://api.test/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HTTP/1.1 that closes": request("GET", "/api/", "Connection: close", host="localhost"),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_a_slow_reader_has_its_answer_whole(
    line: bytes, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_end, "STALLED", 1_000_000)  # in the looks of this test, a while
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with Front(to("api", url, hosts=["api.test"])) as front, left_with_some(line, front, listener) as end:
            app, size = end
            await until(lambda: len(looks) >= 5)
            got = bytearray()
            while data := await loop.sock_recv(app, 1 << 20):
                got += data
            assert got.count(b"x") == size


async def test_who_takes_nothing_is_reset(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the end of the connection ends this answer: a FIN would make it look whole."""
    monkeypatch.setattr(connection_end, "STALLED", 3)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        line = LINES["HTTP/1.0"]
        async with Front(to("api", url)) as front, left_with_some(line, front, listener) as (app, size):
            await until(lambda: not front.path.acceptor.open)
            assert len(looks) >= 3
            got = bytearray()
            with pytest.raises(ConnectionResetError):
                while data := await loop.sock_recv(app, 1 << 20):
                    got += data
            assert got.count(b"x") < size
