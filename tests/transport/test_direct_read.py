"""Reading past a transport: what a connection's listener is told, and how a connection ends, are as if the transport
had read. In Python alone the transport does.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from test_direct_write import take_descriptor

from proxy.retry.facts import Fault
from proxy.retry.policies.routing import Endpoint
from proxy.transport.connection import Connection, Keeper
from proxy.transport.origins import Origin, Way
from proxy.transport.streams import Listener
from proxy.wire.head import PreparedRequest
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.parser import RequestParser

COMPILED = CORE == "compiled"
LATE = 10.0
#: After so many a connection is read past its transport: the first of them begins the passing on, and does not count.
EVENTS = 5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: x\n\n\r\n"


class Owner(Keeper):
    """The owner of one connection. `resting`: how often it was given back."""

    def __init__(self) -> None:
        self.resting = 0

    def opened(self, connection: Connection) -> None:
        pass

    def rest(self, connection: Connection) -> None:
        self.resting += 1

    def lost(self, connection: Connection) -> None:
        pass


class Reader(Listener):
    """A listener that has chunks passed on. `got`: all of them; `then`: called after each of its events."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.got = b""
        self.over: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.begun = asyncio.Event()
        self.then: Callable[[], object] = lambda: None

    def on_head(self, head: object, data: bytes, end: bool, trailers: object) -> None:
        assert not data
        self.connection.pass_chunks_on(False)
        self.begun.set()

    def on_chunks(self, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        self.took(chunks)

    def on_end(self, trailers: object) -> None:
        self.over.set_result(None)

    def on_fault(self, fault: Fault) -> None:
        self.over.set_result(fault)

    def took(self, data: bytes) -> None:
        self.got += data
        self.changed.set()
        self.then()

    async def until(self, data: bytes) -> None:
        """Wait until exactly these chunks came."""
        async with asyncio.timeout(LATE):
            while len(self.got) < len(data):
                self.changed.clear()
                await self.changed.wait()
        assert self.got == data


@contextlib.asynccontextmanager
async def beginning(server: socket.socket | None = None) -> AsyncIterator[tuple[Connection, Reader, socket.socket]]:
    """A connection on which a stream begins, of which no event has come; and a socket at the upstream's end."""
    loop = asyncio.get_running_loop()
    with server or socket.create_server(("127.0.0.1", 0)) as listening:
        made = Connection(Owner(), Origin(Endpoint("http", "127.0.0.1", 80), Way()))
        await loop.create_connection(lambda: made, *listening.getsockname())
        there, _ = listening.accept()
        there.setblocking(False)
        with there:
            listener = Reader(made)
            ask(made, listener)
            assert await asyncio.wait_for(loop.sock_recv(there, 1000), LATE)
            await begin(listener, there)
            yield made, listener, there
        made.abort()


@contextlib.asynccontextmanager
async def streaming(server: socket.socket | None = None) -> AsyncIterator[tuple[Connection, Reader, socket.socket]]:
    """A connection in the midst of a stream of events, which is read past its transport if the core is compiled; and a
    socket at the upstream's end.
    """
    async with beginning(server) as (made, listener, there):
        for number in range(EVENTS):
            await send(there, EVENT)
            await listener.until(EVENT * (number + 1))
        assert (made.reads is not None) is COMPILED
        yield made, listener, there


def ask(connection: Connection, listener: Listener) -> None:
    head = RequestParser().feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head is not None
    connection.send(listener, PreparedRequest(head), b"", True, None)


async def begin(listener: Reader, there: socket.socket) -> None:
    """Send the head of the answer."""
    await send(there, HEAD)
    await asyncio.wait_for(listener.begun.wait(), LATE)


async def send(there: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(there, data)


async def ended(listener: Reader) -> Fault | None:
    return await asyncio.wait_for(listener.over, LATE)


async def test_events_come_one_by_one_and_the_connection_is_used_again() -> None:
    async with streaming() as (connection, listener, there):
        for number in range(EVENTS, EVENTS + 20):
            await send(there, EVENT)
            await listener.until(EVENT * (number + 1))
        await send(there, b"0\r\n\r\n")
        assert await ended(listener) is None
        assert connection.reads is None
        assert connection._keeper.resting == 1  # type: ignore[attr-defined]
        again = Reader(connection)
        ask(connection, again)
        await begin(again, there)
        for number in range(EVENTS + 3):
            await send(there, EVENT)
            await again.until(EVENT * (number + 1))
        assert (connection.reads is not None) is COMPILED
        await send(there, EVENT + b"0\r\n\r\n")
        assert await ended(again) is None
        assert again.got == EVENT * (EVENTS + 4)


@pytest.mark.parametrize(
    "pieces",
    [
        [EVENT[:1], EVENT[1:]],
        [EVENT[:5], EVENT[5:-1], EVENT[-1:]],
        [EVENT + EVENT[:2], EVENT[2:]],
        [EVENT + EVENT + EVENT],
        [EVENT, EVENT[:-2], b"\r\n" + EVENT],
    ],
)
async def test_what_is_no_single_event_is_read_as_ever(pieces: list[bytes]) -> None:
    async with streaming() as (_, listener, there):
        seen = listener.got
        for piece in pieces:
            await send(there, piece)
            seen += piece
            if piece != EVENT[:1]:  # an unfinished size line is not passed on
                async with asyncio.timeout(LATE):
                    while len(listener.got) < len(seen.removesuffix(EVENT[:2])):
                        listener.changed.clear()
                        await listener.changed.wait()
        await send(there, EVENT + b"0\r\n\r\n")
        assert await ended(listener) is None
        assert listener.got == EVENT * EVENTS + b"".join(pieces) + EVENT


async def test_reads_of_several_events_show_a_stream_too() -> None:
    """A busy upstream writes two events before they are read."""
    async with beginning() as (connection, listener, there):
        for number in range(EVENTS):
            await send(there, EVENT + EVENT)
            await listener.until(EVENT * 2 * (number + 1))
        assert (connection.reads is not None) is COMPILED


async def test_a_burst_that_no_event_has_comes_whole() -> None:
    async with streaming() as (_, listener, there):
        large = b"100000\r\n" + bytes(range(256)) * 4096 + b"\r\n"
        sending = asyncio.ensure_future(send(there, large + EVENT + b"0\r\n\r\n"))
        assert await ended(listener) is None
        await sending
        assert listener.got == EVENT * EVENTS + large + EVENT


@pytest.mark.parametrize("last", [b"", EVENT, EVENT[:5], EVENT + b"0\r\n"])
@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_an_end_within_the_stream_is_a_fault(last: bytes, how: str) -> None:
    async with streaming() as (connection, listener, there):
        await send(there, last)
        if how == "half-close":
            there.shutdown(socket.SHUT_WR)
        elif how == "reset":
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            there.close()
        else:
            there.close()
        fault = await ended(listener)
        assert fault is not None
        assert (EVENT * EVENTS + last).startswith(listener.got)
        assert connection.reads is None
        assert connection.transport is None


async def test_what_breaks_the_grammar_is_a_fault() -> None:
    async with streaming() as (connection, listener, there):
        await send(there, b"1\r\nxyz")
        fault = await ended(listener)
        assert fault is not None
        assert connection.reads is None
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(there, 100), LATE) is not None


async def test_a_listener_that_pauses_gets_no_more_until_it_resumes() -> None:
    async with streaming() as (connection, listener, there):
        listener.then = connection.pause
        await send(there, EVENT)
        await listener.until(EVENT * (EVENTS + 1))
        assert connection.reads is None
        more = b"9\r\ndata: y\n\n\r\n"
        await send(there, more)
        for _ in range(3):  # turns of the loop in which nothing is read
            await asyncio.sleep(0)
        assert listener.got == EVENT * (EVENTS + 1)
        connection.resume()
        await listener.until(EVENT * (EVENTS + 1) + more)


@pytest.mark.parametrize("end", ["abort", "close", "cancel"])
async def test_a_connection_that_its_listener_ends_is_read_no_more(end: str) -> None:
    async with streaming() as (connection, listener, there):
        listener.then = getattr(connection, end)
        await send(there, EVENT)
        await listener.until(EVENT * (EVENTS + 1))
        assert connection.reads is None
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(there, 10), LATE) == b""


async def test_one_of_a_turn_may_end_the_next() -> None:
    """Both have an event in the same turn of the loop; whichever is read first ends the other."""
    async with streaming() as (one, first, to_one), streaming() as (other, second, to_other):
        first.then, second.then = other.abort, one.abort
        to_one.send(EVENT)
        to_other.send(EVENT)
        await asyncio.wait({first.over, second.over}, timeout=LATE, return_when=asyncio.FIRST_COMPLETED)
        assert len(first.got) + len(second.got) == len(EVENT) * (2 * EVENTS + 1)


async def test_more_connections_than_one_turn_reads() -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(streaming()) for _ in range(80)]
        for round_ in range(1, 4):
            for _, _, there in streams:
                there.send(EVENT)
            for _, listener, _ in streams:
                await listener.until(EVENT * (EVENTS + round_))


async def test_a_descriptor_that_another_socket_has_by_now_is_left_alone() -> None:
    async with streaming() as (connection, listener, _):
        transport: Any = connection.transport
        descriptor = transport.get_extra_info("socket").fileno()
        transport.abort()  # as uvloop does after an error of writing; `connection_lost` comes in a later turn
        await ended(listener)
        for _ in range(3):
            await asyncio.sleep(0)
        assert transport.get_extra_info("socket").fileno() < 0
        mine, theirs = take_descriptor(descriptor)
        with mine, theirs:
            theirs.send(b"not of the stream")
            for _ in range(3):
                await asyncio.sleep(0)
            assert mine.recv(100) == b"not of the stream"
        assert listener.got == EVENT * EVENTS


async def test_an_error_that_a_read_meets_is_reported_as_the_transport_does() -> None:
    """A RST that comes after the kernel has said that bytes wait."""
    async with streaming() as (connection, listener, there):
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        if COMPILED:
            connection.read_failed(ConnectionResetError(104, "Connection reset by peer"))
        fault = await ended(listener)
        assert fault is not None
        assert connection.transport is None


async def test_the_transport_reads_on_if_no_descriptor_is_left() -> None:
    """The first stream of a process takes a descriptor for all. An answer is not cut because there is none."""
    async with beginning() as (made, listener, there):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, allowed[1]))
        try:
            for number in range(EVENTS + 2):
                await send(there, EVENT)
                await listener.until(EVENT * (number + 1))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
        assert made.reads is None
        await send(there, b"0\r\n\r\n")
        assert await asyncio.wait_for(listener.over, LATE) is None
