"""Connections of HTTP/2 take turns: who sends a lot at a time does not keep the others waiting for all of it."""

from __future__ import annotations

import asyncio

import pytest
from support.front import Front

from proxy.transport import http2_protocol
from proxy.wire.http2 import frames

PINGS = 500


def ping(number: int, flags: int = 0) -> bytes:
    return frames.frame(frames.PING, flags, 0, number.to_bytes(8))


async def begun(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has said its SETTINGS, and is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frames.PREFACE + frames.settings({}) + ping(PINGS))
    await reader.readuntil(ping(PINGS, frames.ACK))
    return reader, writer


async def test_others_come_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_protocol, "TURN", 64)  # a frame
    async with Front() as front, asyncio.timeout(30):
        busy, busy_writer = await begun(front.port)
        other, other_writer = await begun(front.port)
        busy_writer.write(b"".join(map(ping, range(PINGS))))
        other_writer.write(ping(0))  # it comes later
        await other.readuntil(ping(0, frames.ACK))
        said = await busy.read(1 << 20)
        assert len(said) < len(ping(0)) * PINGS  # and is answered before all of what came earlier is
        said += await busy.readuntil(ping(PINGS - 1, frames.ACK)) if ping(PINGS - 1, frames.ACK) not in said else b""
        assert said == b"".join(ping(number, frames.ACK) for number in range(PINGS))  # which is read, in order
        for writer in (busy_writer, other_writer):
            writer.close()


async def test_what_waited_for_its_turn_is_read_though_its_sender_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_protocol, "TURN", 64)
    async with Front() as front, asyncio.timeout(30):
        reader, writer = await begun(front.port)
        writer.write(b"".join(map(ping, range(PINGS))))
        writer.write_eof()
        said = await reader.read()
        assert said == b"".join(ping(number, frames.ACK) for number in range(PINGS))
        writer.close()
