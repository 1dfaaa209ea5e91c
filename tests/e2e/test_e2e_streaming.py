"""Bodies far larger than memory, both ways, and the first byte as soon as it is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

GIB = 1 << 30
PIECE = bytes(256 * 1024)
MOST = 100 * 1024  # KiB


def config(upstream: Upstream) -> str:
    return f"upstreams:\n  a:\n    url: {upstream.url}\n"


def peak(redrive: Redrive) -> int:
    """The most memory that the process ever held, in KiB."""
    (line,) = [
        line for line in Path(f"/proc/{redrive.pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    ]
    return int(line.split()[1])


async def give(turn: Turn) -> None:
    """A GiB, as fast as it is taken."""
    await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % GIB)
    for _ in range(GIB // len(PIECE)):
        await turn.write(PIECE)


async def take(turn: Turn) -> None:
    """Whatever comes, as fast as it comes; the answer says how much it was."""
    left = size = int(turn.request.one("content-length") or 0)
    while left:
        data = await turn.reader.read(len(PIECE))
        assert data
        left -= len(data)
    await turn.write(answer(200, b"%d" % size))


async def test_a_download_larger_than_memory(tmp_path: Path) -> None:
    async with Upstream(give) as upstream, Redrive(tmp_path, config(upstream)) as redrive:
        host, port = redrive.authority.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        writer.write(b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        got = 0
        while data := await reader.read(1 << 20):
            got += len(data)
        writer.close()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert got == GIB
        assert peak(redrive) < MOST, peak(redrive)
        assert (await redrive.call())["bytes_out"] == GIB


async def test_an_upload_larger_than_memory(tmp_path: Path) -> None:
    async with Upstream(take) as upstream, Redrive(tmp_path, config(upstream)) as redrive:
        host, port = redrive.authority.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PUT /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % GIB)
        for _ in range(GIB // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(10) == b"%d" % GIB
        writer.close()
        assert peak(redrive) < MOST, peak(redrive)
        assert (await redrive.call())["bytes_in"] == GIB


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_the_first_byte_does_not_wait_for_the_second(chunked: bool, tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def slow(turn: Turn) -> None:
        if chunked:
            await turn.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await seen.wait()
            await turn.write(b"1\r\nb\r\n0\r\n\r\n")
        else:
            await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
            await seen.wait()
            await turn.write(b"b")

    async with (
        Upstream(slow) as upstream,
        Redrive(tmp_path, config(upstream)) as redrive,
        aiohttp.ClientSession() as session,
        session.get(f"{redrive.url}/a/x") as got,
    ):
        assert await got.content.readany() == b"a"
        seen.set()
        assert await got.content.read() == b"b"
