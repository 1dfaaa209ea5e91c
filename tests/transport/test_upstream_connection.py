"""One upstream connection over a transport in memory: what a listener may do to it, and when."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.certificates import make
from support.scripted import Upstream

from proxy.retry.policies.routing import Endpoint
from proxy.transport import pool as pools
from proxy.transport.connection import Connection, Keeper
from proxy.transport.dial import Dialer
from proxy.transport.egress_guard import Guard
from proxy.transport.origins import Origin, Way
from proxy.transport.pool import Pool
from proxy.transport.resolver import Resolver
from proxy.transport.streams import Listener
from proxy.transport.tls import Contexts
from proxy.wire.head import PreparedRequest
from proxy.wire.http1.parser import RequestParser

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire:
    """A transport that only takes note."""

    def __init__(self, descriptor: int = -1) -> None:
        self.descriptor = descriptor
        self.reading = True
        self.closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None

    def fileno(self) -> int:
        return self.descriptor

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    close = abort

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Everything(Keeper):
    def __init__(self) -> None:
        self.resting: list[Connection] = []

    def opened(self, connection: Connection) -> None:
        pass

    def rest(self, connection: Connection) -> None:
        self.resting.append(connection)

    def lost(self, connection: Connection) -> None:
        pass


class Full(Listener):
    """A listener who always has too much."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.got = b""
        self.ended = False

    def on_info(self, head: object) -> None:
        self.connection.pause()

    def on_head(self, head: object, data: bytes, end: bool, trailers: bytes) -> None:
        self.got += data
        self.ended = end
        self.connection.pause()

    def on_data(self, data: bytes) -> None:
        self.got += data
        self.connection.pause()

    def on_end(self, trailers: bytes) -> None:
        self.ended = True
        self.connection.pause()

    def on_fault(self, fault: object) -> None:
        raise AssertionError(fault)

    def on_writable(self) -> None:
        pass


@pytest.mark.parametrize(
    "packets",
    [
        [HEAD + b"0123456789"],
        [HEAD, b"0123456789"],
        [HEAD + b"01234", b"56789"],
        [CHUNKED + b"a\r\n0123456789\r\n0\r\n\r\n"],
        [CHUNKED, b"a\r\n0123456789\r\n0\r\n\r\n"],
        [CHUNKED + b"5\r\n01234\r\n", b"5\r\n56789\r\n", b"0\r\n\r\n"],
    ],
)
def test_a_connection_never_rests_paused(packets: list[bytes]) -> None:
    """The last bytes may be too many for whoever takes them; the next exchange must still hear its answer."""
    wire, keeper = Wire(), Everything()
    origin = Origin(Endpoint("http", "127.0.0.1", 80), Way())
    connection = Connection(keeper, origin)  # type: ignore[arg-type]
    connection.connection_made(wire)  # type: ignore[arg-type]
    listener = Full(connection)
    head = RequestParser().feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head is not None
    connection.send(listener, PreparedRequest(head), b"", True, None)  # type: ignore[arg-type]
    for packet in packets:
        connection.resume()
        connection.data_received(packet)
    assert (listener.got, listener.ended) == (b"0123456789", True)
    assert keeper.resting == [connection]
    assert wire.reading


@pytest.mark.parametrize(("idempotent", "leased"), [(True, True), (False, False)])
def test_what_may_not_go_again_gets_no_connection_that_was_closed_a_moment_ago(idempotent: bool, leased: bool) -> None:
    """The end is in the kernel, and the loop has not told of it yet."""
    near, far = socket.socketpair()
    far.close()
    origin = Origin(Endpoint("http", "127.0.0.1", 80), Way())
    connection = Connection(Everything(), origin)  # type: ignore[arg-type]
    wire = Wire(near.fileno())
    connection.connection_made(wire)  # type: ignore[arg-type]
    connection.since = 100.0
    origin.idle.append(connection)
    nothing: Any = None
    dialer: Any = SimpleNamespace(resolver=None)
    pool = Pool(nothing, dialer, idle=4.0, max_idle=1)
    assert (pool.lease(origin, 100.001, idempotent=idempotent) is connection) is leased
    assert wire.closed is not leased
    near.close()


async def test_a_connection_that_nobody_reports_lost_keeps_no_end_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "LAST_SECONDS", 0.01)
    resolver = SimpleNamespace(close=_done, ttl=30.0)
    loop: Any = asyncio.get_running_loop()
    dialer: Any = SimpleNamespace(resolver=resolver, close=_done)
    pool = Pool(loop, dialer, idle=4.0, max_idle=10)
    origin = Origin(Endpoint("http", "127.0.0.1", 80), Way())
    connection, wire = Connection(pool, origin), Wire()
    connection.connection_made(wire)  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        await pool.close()
    assert wire.closed
    connection.connection_lost(None)  # late, and harmless
    assert not pool.connections


@pytest.mark.parametrize("secure", [False, True])
async def test_who_goes_as_a_connection_comes_leaves_nothing_behind(secure: bool, tmp_path: Path) -> None:
    """As an app that leaves at that moment, or the end of the process: it is closed, and counted no longer."""
    loop: Any = asyncio.get_running_loop()
    authority = make(tmp_path)

    class Leaving(Pool):
        def opened(self, connection: Connection) -> None:
            super().opened(connection)
            dialling.cancel()

    async with Upstream(tls=authority.server if secure else None, host="localhost") as upstream:
        dialer = Dialer(loop, Resolver(loop, 30.0), Guard(()), Contexts())
        pool = Leaving(loop, dialer, idle=4.0, max_idle=10)
        endpoint = Endpoint("https" if secure else "http", "localhost", upstream.port)
        origin = Origin(endpoint, Way(verify=str(authority.ca), named=True))
        dialling = asyncio.create_task(pool.open(origin, within=20.0))
        with pytest.raises(asyncio.CancelledError):
            await dialling
        while upstream.open:  # noqa: ASYNC110  the other end sees it closed
            await asyncio.sleep(0)
        assert not pool.connections
        assert origin.open == 0
        await pool.close()


async def _done() -> None:
    pass
