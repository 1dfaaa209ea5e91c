"""How tunnels end: what was said before the end still arrives (RFC 9110 section 9.3.6)."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from support.front import Front, request


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
        (connection,) = front.path.door.open
        sent = 0
        while not connection._held:
            with contextlib.suppress(BlockingIOError):
                sent += app.send(b"x" * 65536)
            await asyncio.sleep(0)
        app.close()
        for _ in range(3):
            connection.glance()
        assert connection.transport is not None
        assert not connection.transport.is_closing()
        read_now.set()
        assert await got == sent
