"""Writing past a transport: the bytes, their order and every end are as if the transport had written."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import cast

import pytest

from proxy.transport.direct_write import socket_of, write_at_once
from proxy.wire.http1.compiled import CORE

LATE = 60.0


class Side(asyncio.Protocol):
    """The end of a connection that writes. `calls`: what the transport called on it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.resumed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.socket = socket_of(transport)

    def write(self, data: bytes) -> None:
        write_at_once(self.transport, self.socket, data)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[Side, socket.socket]]:
    """A connection: the end that writes, and a socket at the other end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        loop = asyncio.get_running_loop()
        _, side = await loop.create_connection(Side, *server.getsockname())
        there, _ = server.accept()
        there.setblocking(False)
        with there:
            yield side, there
        side.transport.abort()


def descriptor_of(side: Side) -> int:
    return int(side.transport.get_extra_info("socket").fileno())


def take_descriptor(wanted: int) -> tuple[socket.socket, socket.socket]:
    """A pair of sockets of which the first has this descriptor, which was free."""
    kept: list[socket.socket] = []
    try:
        while True:
            one, other = socket.socketpair()
            if one.fileno() == wanted:
                return one, other
            if other.fileno() == wanted:
                return other, one
            kept += [one, other]
            assert len(kept) < 200, "the descriptor is not free"
    finally:
        for each in kept:
            each.close()


def has_nothing(there: socket.socket) -> bool:
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(1)
    return True


async def test_what_is_written_arrives_before_the_writer_goes_on() -> None:
    async with connected() as (side, there):
        side.write(b"one")
        assert side.transport.get_write_buffer_size() == 0
        assert there.recv(10) == b"one"


async def test_bytes_stay_in_order_and_the_writer_is_paused_and_resumed() -> None:
    async with connected() as (side, there):
        side.transport.set_write_buffer_limits(high=1000)
        sent, step = b"", 0
        while "pause" not in side.calls or step % 3:
            piece = struct.pack("!I", step) * 20_000
            if step % 3 == 0:
                side.transport.write(piece)
            elif step % 3 == 1:
                side.transport.writelines([piece, b"tail"])
                piece += b"tail"
            else:
                side.write(piece)
            sent += piece
            step += 1
        side.write(b"the last")  # behind what waits
        sent += b"the last"
        came = b""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LATE):
            while len(came) < len(sent):
                came += await loop.sock_recv(there, 1 << 20)
            await side.resumed.wait()
        assert came == sent
        assert side.calls == ["pause", "resume"]
        side.write(b"again")
        assert there.recv(10) == b"again"


async def test_a_piece_that_the_kernel_takes_in_part_arrives_whole() -> None:
    async with connected() as (side, there):
        piece = bytes(range(256)) * 80_000
        side.write(piece)
        assert side.transport.get_write_buffer_size()
        side.transport.write_eof()
        came = b""
        async with asyncio.timeout(LATE):
            while data := await asyncio.get_running_loop().sock_recv(there, 1 << 20):
                came += data
        assert came == piece


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_nothing_is_written_once_the_transport_closes(end: str) -> None:
    async with connected() as (side, there):
        getattr(side.transport, end)()
        side.write(b"too late")
        await asyncio.wait_for(side.lost, LATE)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(there, 10), LATE) == b""


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_descriptor_that_another_connection_has_by_now_is_left_alone(end: str) -> None:
    async with connected() as (side, _):
        descriptor = descriptor_of(side)
        getattr(side.transport, end)()
        await asyncio.wait_for(side.lost, LATE)
        assert descriptor_of(side) == -1
        other, far = take_descriptor(descriptor)
        with other, far:
            with contextlib.suppress(RuntimeError):
                side.write(b"for the first one")
            assert has_nothing(far)


async def test_so_it_is_where_whoever_connected_was_cancelled() -> None:
    """uvloop closes the transport then, and `is_closing()` does not say so."""
    loop = asyncio.get_running_loop()
    sides: list[Side] = []

    class Unwanted(Side):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.descriptor = descriptor_of(self)
            sides.append(self)
            task.cancel()

    with socket.create_server(("127.0.0.1", 0)) as server:
        task = loop.create_task(loop.create_connection(Unwanted, *server.getsockname()))
        with pytest.raises(asyncio.CancelledError):
            await task
        (side,) = sides
        assert descriptor_of(side) == -1
        assert not side.transport.is_closing()
        other, far = take_descriptor(side.descriptor)  # type: ignore[attr-defined]
        with other, far:
            with contextlib.suppress(RuntimeError):
                side.write(b"for the first one")
            assert has_nothing(far)


async def test_so_it_is_after_a_write_that_failed() -> None:
    async with connected() as (side, there):
        descriptor = descriptor_of(side)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        side.transport.pause_reading()  # else the loop would hear of the RST first
        side.write(b"x")
        side.write(b"x")
        assert side.transport.is_closing()
        assert isinstance(await asyncio.wait_for(side.lost, LATE), OSError)
        assert descriptor_of(side) == -1
        other, far = take_descriptor(descriptor)
        with other, far:
            with contextlib.suppress(RuntimeError):
                side.write(b"for the first one")
            assert has_nothing(far)


async def test_after_the_end_of_the_stream_the_transport_refuses_as_ever() -> None:
    async with connected() as (side, there):
        side.transport.write_eof()
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(there, 1), LATE) == b""
        with pytest.raises(RuntimeError, match="write_eof"):
            side.write(b"more")


async def test_only_tcp_transports_of_uvloops_are_written_past() -> None:
    here, there = socket.socketpair()
    with there:
        _, side = await asyncio.get_running_loop().create_unix_connection(Side, sock=here)
        assert side.socket is None
        side.write(b"through it")
        assert there.recv(20) == b"through it"
        side.transport.abort()


async def test_a_socket_that_is_none_of_uvloops_is_not_used() -> None:
    async with connected() as (side, there):
        one, other = socket.socketpair()
        with one, other:
            write_at_once(side.transport, one, b"to the right one")
            assert there.recv(20) == b"to the right one"
            assert has_nothing(other)


#: Connects, under a version of uvloop, and says whether the socket would be written to past the transport.
VERSION = """
import asyncio, socket, sys, uvloop
from proxy.transport.direct_write import socket_of

uvloop.__version__ = sys.argv[1]

async def connect():
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.getsockname())
        print(socket_of(transport) is not None)
        transport.abort()

uvloop.run(connect())
"""


@pytest.mark.parametrize(("version", "past"), [("0.21.0", True), ("0.23.9", True), ("0.24.0", False), ("1.0", False)])
def test_a_uvloop_that_nobody_has_read_writes_by_itself(version: str, past: bool) -> None:
    calls = subprocess.run([sys.executable, "-c", VERSION, version], capture_output=True, text=True, check=True).stdout
    assert calls == f"{past and CORE == 'compiled'}\n"
