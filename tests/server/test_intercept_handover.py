"""TLS on a connection that has begun in the clear: what was read before, and what comes with the handshake's end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from support.certificates import Authority, make

from proxy.server.intercept import interception
from proxy.server.intercept.interception import shake


class Cleartext(asyncio.Protocol):
    """Reads `wanted` bytes or more in the clear, then ends TLS with what is left of them behind `wanted`."""

    def __init__(self, context: ssl.SSLContext, wanted: int) -> None:
        self._context, self._wanted = context, wanted
        self._read = b""
        self.inside = Inside()
        self.outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        if len(self._read) >= self._wanted:
            self._task = asyncio.create_task(self._secure(self._read[self._wanted :]))

    async def _secure(self, early: bytes) -> None:
        self._transport.write(b"READY")
        try:
            tls, stand_in = await shake(self._transport, self._context, early)
        except (OSError, ssl.SSLError) as error:
            self.outcome.set_result(error)
            return
        self.inside.connection_made(tls)
        stand_in.give_way(tls, self.inside)
        self.outcome.set_result(None)


class Inside(asyncio.Protocol):
    """An echo that keeps what it got."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transport.write(data)

    def eof_received(self) -> None:
        self.ended.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class Client:
    """TLS over a bare socket, so that a test says which bytes go in which packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def shake(self, *, before: bytes = b"", behind: bytes = b"") -> None:
        """`before` goes with the first message, `behind` with the last."""
        out = before
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(out + self.outgoing.read())
                if out:
                    await self.ready()
                out = b""
                self.incoming.write(await self.reader.read(65536))
        if behind:
            self.tls.write(behind)
        self.writer.write(out + self.outgoing.read())

    async def ready(self) -> None:
        assert await self.reader.readexactly(5) == b"READY"

    async def read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            try:
                got += self.tls.read(size - len(got))
            except ssl.SSLWantReadError:
                data = await self.reader.read(65536)
                assert data, got
                self.incoming.write(data)
        return got


@pytest.fixture
async def ends(authority: Authority) -> AsyncIterator[tuple[Client, asyncio.Future[Cleartext]]]:
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Cleartext] = loop.create_future()

    def protocol() -> Cleartext:
        made.set_result(Cleartext(authority.server, 5))
        return made.result()

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield Client(reader, writer, ssl.create_default_context(cafile=authority.ca)), made
    writer.transport.abort()
    server.close()


Ends = tuple[Client, asyncio.Future[Cleartext]]


async def test_a_hello_in_its_own_packet(ends: Ends) -> None:
    client, made = ends
    client.writer.write(b"HELLO")
    await client.ready()
    await client.shake()
    client.tls.write(b"ping")
    client.writer.write(client.outgoing.read())
    assert await client.read(4) == b"ping"
    assert await (await made).outcome is None


async def test_a_hello_behind_the_cleartext_in_one_packet(ends: Ends) -> None:
    client, made = ends
    await client.shake(before=b"HELLO", behind=b"ping")
    assert await client.read(4) == b"ping"
    server = await made
    assert await server.outcome is None
    assert server.inside.got == b"ping"


async def test_much_behind_the_handshake(ends: Ends) -> None:
    """More than one read's worth, some of it decrypted before anybody knows that the handshake is over."""
    client, _ = ends
    data = bytes(range(256)) * 2048
    await client.shake(before=b"HELLO", behind=data)
    assert await client.read(len(data)) == data


async def test_an_app_that_ends_with_its_handshake(ends: Ends) -> None:
    client, made = ends
    await client.shake(before=b"HELLO", behind=b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.writer.write(client.outgoing.read())
    server = await made
    assert await server.outcome is None
    await server.inside.lost.wait()
    assert server.inside.got == b"last"


async def test_early_bytes_that_are_no_tls(ends: Ends) -> None:
    client, made = ends
    client.writer.write(b"HELLOGET / HTTP/1.1\r\n\r\n")
    error = await (await made).outcome
    assert isinstance(error, ssl.SSLError)
    assert (await client.reader.read())[:5] == b"READY"


async def test_an_app_that_does_not_trust_us(ends: Ends, tmp_path: Path) -> None:
    client, made = ends
    stranger = Client(client.reader, client.writer, ssl.create_default_context(cafile=make(tmp_path).ca))
    with pytest.raises(ssl.SSLCertVerificationError):
        await stranger.shake(before=b"HELLO")
    stranger.writer.write(stranger.outgoing.read())
    error = await (await made).outcome
    assert isinstance(error, ssl.SSLError)
    assert "UNKNOWN_CA" in error.reason or "BAD_CERTIFICATE" in error.reason or "DECRYPT_ERROR" in error.reason


async def test_an_app_that_goes_away(ends: Ends) -> None:
    client, made = ends
    client.writer.write(b"HELLO\x16\x03\x01")
    server = await made
    client.writer.close()
    assert isinstance(await server.outcome, OSError)


async def test_an_app_that_says_nothing(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interception, "HANDSHAKE", 0.01)
    client, made = ends
    client.writer.write(b"HELLO")
    assert isinstance(await (await made).outcome, OSError)
    assert await client.reader.read() == b"READY"
