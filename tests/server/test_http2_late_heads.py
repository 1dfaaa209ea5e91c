"""A head on HTTP/2 that is not whole in time, and a connection that does not begin."""

from __future__ import annotations

import asyncio

import pytest
from support.front import Front

from proxy.wire.http2 import frames, session

BEGUN = frames.PREFACE + frames.settings({})


@pytest.mark.parametrize(
    "sent",
    [
        BEGUN + frames.frame(frames.HEADERS, frames.END_STREAM, 1, b"\x82"),
        BEGUN + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x82\x84")[:-1],
        frames.PREFACE,
    ],
    ids=["no CONTINUATION", "half a frame", "no SETTINGS"],
)
async def test_what_does_not_become_whole_ends_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "HEAD_SECONDS", 0.01)
    async with Front() as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(sent)
        async with asyncio.timeout(30):
            said = await reader.read()
        goaway = frames.goaway(0, frames.PROTOCOL_ERROR, f"a head that was not whole in {session.HEAD_SECONDS:g} s")
        assert said.endswith(goaway)
        writer.close()


async def test_a_connection_that_has_begun_may_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "HEAD_SECONDS", 0.0)
    async with Front() as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(BEGUN)
        ping = frames.frame(frames.PING, 0, 0, b"12345678")
        writer.write(ping)
        async with asyncio.timeout(30):
            await reader.readuntil(frames.frame(frames.PING, frames.ACK, 0, b"12345678"))
            await asyncio.sleep(0)
            writer.write(ping)
            await reader.readuntil(frames.frame(frames.PING, frames.ACK, 0, b"12345678"))
        writer.close()
