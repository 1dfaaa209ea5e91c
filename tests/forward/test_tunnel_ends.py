"""How tunnels end: what was said before the end still arrives (RFC 9110 section 9.3.6)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable

import pytest
from support.front import Front, request

from proxy.forward.exchange import Exchange


async def test_a_tunnel_whose_app_has_said_all_and_is_gone_delivers_it() -> None:
    """While the upstream is slow nothing is read from the app, and nobody may take its end for a reason to stop."""
    read_now = asyncio.Event()
    got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        await read_now.wait()
        size = 1
        while data := await reader.read(1 << 20):
            size += len(data)
        got.set_result(size)
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    async with server, Front() as front:
        app = socket.create_connection(("127.0.0.1", front.port))
        app.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(app, request("CONNECT", f"127.0.0.1:{port}"))
        assert (await loop.sock_recv(app, 1000)).startswith(b"HTTP/1.1 200 ")
        (connection,) = front.path.acceptor.open
        sent = 0
        while not connection._held:
            with contextlib.suppress(BlockingIOError):
                sent += app.send(b"x" * 65536)
            await asyncio.sleep(0)
        app.close()
        for _ in range(3):
            connection.glance(closely=True)
        assert connection.transport is not None
        assert not connection.transport.is_closing()
        read_now.set()
        assert await got == sent


def unacknowledged(sock: socket.socket) -> int:
    """Bytes that the other end's kernel has not taken yet."""
    (size,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(size)


async def until(so: Callable[[], bool]) -> None:
    while not so():  # noqa: ASYNC110  the kernel's state: no event tells of it
        await asyncio.sleep(0)


def is_reset(descriptor: int) -> bool:
    asked = select.poll()
    asked.register(descriptor, 0)
    return bool(asked.poll(0))


@pytest.mark.parametrize("who", ["app", "upstream"])
async def test_what_had_come_when_a_write_fails_is_delivered(who: str) -> None:
    """The answer to a side that is gone brings a RST, and the next write fails. What that side had said before is in
    our kernel then, unread since the other side is slow, and still has to go to it.
    """
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with Front() as front:
            app = socket.create_connection(("127.0.0.1", front.port))
            app.setblocking(False)
            authority = f"127.0.0.1:{listener.getsockname()[1]}"
            await loop.sock_sendall(app, request("CONNECT", authority))
            peer, _ = await loop.sock_accept(listener)
            assert (await loop.sock_recv(app, 1000)).startswith(b"HTTP/1.1 200 ")
            (connection,) = front.path.acceptor.open
            assert isinstance(connection.exchange, Exchange)
            (attempt,) = connection.exchange.flights.values()
            stream = attempt.stream
            assert stream is not None
            goes, stays = (app, peer) if who == "app" else (peer, app)
            near, far = (connection, stream) if who == "app" else (stream, connection)
            sent = 0
            while not far.blocked:
                with contextlib.suppress(BlockingIOError):
                    sent += goes.send(b"x" * 65536)
                await asyncio.sleep(0)
            await until(lambda: not unacknowledged(goes))
            unread = goes.send(b"y" * 10_000)
            await until(lambda: not unacknowledged(goes))
            goes.close()
            near.write(b"thank you")
            await until(lambda: is_reset(near._fd))
            near.write(b"thank you")
            got, end = b"", None
            try:
                while data := await loop.sock_recv(stays, 1 << 20):
                    got += data
            except ConnectionResetError as error:
                end = error
            assert len(got) == sent + unread
            assert (end is None) == (who == "app")  # a connection that broke ends with a RST at the app
            stays.close()
