"""`limits.connections` in a flood, with one process and with several: what it says is never passed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest
from clients import with_aiohttp
from support.process import Redrive
from support.scripted import Upstream, answer, hang

from proxy.resources import REFUSED_IN_WORDS

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {}\n"
LIMIT, FLOOD = 20, 400


def config(upstream: Upstream) -> str:
    return f"limits: {{connections: {LIMIT}}}\nupstreams:\n  a:\n    url: {upstream.url}\n"


class App:
    """A connection. `end` is how it came out: a status, or "closed"; "" while nothing has."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.end = ""
        self._follow = asyncio.create_task(self._read(reader))

    @classmethod
    async def flood(cls, running: Redrive, count: int) -> list[App]:
        host, port = running.authority.split(":")
        return [
            cls(*each) for each in await asyncio.gather(*(asyncio.open_connection(host, port) for _ in range(count)))
        ]

    def ask(self) -> None:
        self.writer.write(b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        line = b""
        with contextlib.suppress(ConnectionError):
            line = await reader.readline()
        self.end = line.split(b" ")[1].decode() if line else "closed"

    def leave(self) -> None:
        self._follow.cancel()
        self.writer.transport.abort()


async def connections(running: Redrive) -> int:
    text = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
    lines = (line for line in text.splitlines() if line.startswith("redrive_connections{") and 'side="app"' in line)
    return int(sum(float(line.split(" ")[1]) for line in lines))


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_more_are_served_than_the_limit_says(workers: int, tmp_path: Path) -> None:
    async with (
        Upstream(hang) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers)) as running,
    ):
        apps = await App.flood(running, FLOOD)
        for app in apps:
            app.ask()
        async with asyncio.timeout(30):
            while len(upstream.requests) + sum(bool(app.end) for app in apps) < FLOOD:
                await connections(running)
        ends = Counter(app.end for app in apps)
        assert LIMIT - workers < len(upstream.requests) <= LIMIT  # two that came at once may both have gone
        assert set(ends) <= {"", "503", "closed"}
        for app in apps:
            app.leave()


@pytest.mark.parametrize("workers", [1, 2])
async def test_those_that_are_held_open_to_be_told_are_counted(workers: int, tmp_path: Path) -> None:
    """None says a word. When there is room again, those that were to be told are served after all."""
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers)) as running,
    ):
        apps = await App.flood(running, FLOOD)
        async with asyncio.timeout(30):
            while await connections(running) != sum(not app.end for app in apps) or not any(a.end for a in apps):
                pass
        held = [app for app in apps if not app.end]
        assert LIMIT <= len(held) <= LIMIT + REFUSED_IN_WORDS
        for app in held[:-1]:
            app.leave()
        async with asyncio.timeout(30):
            while await connections(running) != 1:
                pass
        held[-1].ask()
        async with asyncio.timeout(30):
            while not held[-1].end:
                await connections(running)
        assert held[-1].end == "200"
        for app in apps:
            app.leave()
