"""Answers on HTTP/2 that are whole before their request is: the app has time to read one before its stream is reset."""

from __future__ import annotations

import asyncio

import hpack
import pytest
from support.front import Front

from proxy.config.settings import Limits
from proxy.server import http2_stream
from proxy.wire.http2 import frames

REQUEST = hpack.Encoder().encode([(":method", "POST"), (":scheme", "http"), (":authority", "no.test"), (":path", "/")])


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """The next frame: its type, flags, stream and payload."""
    head = await reader.readexactly(9)
    return head[3], head[4], int.from_bytes(head[5:]), await reader.readexactly(int.from_bytes(head[:3]))


def request(stream: int) -> bytes:
    """A request that nobody serves, and the beginning of its body."""
    return frames.frame(frames.HEADERS, frames.END_HEADERS, stream, REQUEST) + frames.frame(
        frames.DATA, 0, stream, b"begun"
    )


async def asked(front: Front) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose first request is answered before its body is whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(frames.PREFACE + frames.settings({}) + request(1))
    while True:
        kind, flags, stream, _ = await read_frame(reader)
        if stream == 1:
            assert kind in (frames.HEADERS, frames.DATA)
            if flags & frames.END_STREAM:
                return reader, writer


async def test_an_app_that_ends_its_request_sees_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_stream, "REST_SECONDS", 1_000_000)
    async with Front() as front, asyncio.timeout(30):
        reader, writer = await asked(front)
        mark = b"its mark"
        writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, b"rest") + frames.frame(frames.PING, 0, 0, mark))
        kind = None
        while kind != frames.PING:
            kind, _, stream, _ = await read_frame(reader)
            assert (kind, stream) != (frames.RST_STREAM, 1)
        writer.close()


async def test_an_app_that_goes_on_sending_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_stream, "REST_SECONDS", 0.0)
    async with Front() as front, asyncio.timeout(30):
        reader, writer = await asked(front)
        kind, payload = None, b""
        while kind != frames.RST_STREAM:
            kind, _, _, payload = await read_frame(reader)
        assert int.from_bytes(payload) == frames.NO_ERROR
        writer.close()


async def test_such_streams_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take half of `limits.streams` at most."""
    monkeypatch.setattr(http2_stream, "REST_SECONDS", 1_000_000)
    async with Front(limits=Limits(65536, 256, 10000, 2000, None, streams=4)) as front, asyncio.timeout(30):
        reader, writer = await asked(front)
        reset = []
        for number in (3, 5, 7, 9, 11):
            writer.write(request(number))
            kind, flags, stream = None, 0, 0
            while kind not in (frames.HEADERS, frames.DATA) or not flags & frames.END_STREAM:
                kind, flags, stream, payload = await read_frame(reader)
                if kind == frames.RST_STREAM:
                    assert int.from_bytes(payload) == frames.NO_ERROR
                    reset.append(stream)
            assert stream == number
        assert reset == [5, 7, 9]  # that of 11 comes behind its answer
        writer.close()
