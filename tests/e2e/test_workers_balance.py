"""`balance: least` over several processes: each knows the attempts of all, and a killed one's are gone."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
from support.process import Redrive
from support.scripted import Turn, Upstream, answer, hang
from test_workers import LISTEN, ended, until, whole, workers_of


def unless_stream(name: bytes) -> object:
    """A step that lets /stream wait for ever, and answers others with the name."""

    async def step(turn: Turn) -> None:
        await (hang(turn) if turn.request.target == "/stream" else turn.write(answer(200, name)))

    return step


async def ask(running: Redrive, path: str) -> str:
    """Ask on a connection of its own, so that any worker may get it."""
    async with aiohttp.ClientSession() as session, session.get(f"{running.url}/a/{path}") as reply:
        return await reply.text()


async def test_streams_are_spread_as_if_by_one_process(tmp_path: Path) -> None:
    least = "upstreams:\n  a:\n    url: [{}, {}]\n    balance: least\n    concurrency: off\n    outage: fail\n"
    async with (
        Upstream(unless_stream(b"one")) as one,
        Upstream(unless_stream(b"two")) as two,
        Redrive(tmp_path, least.format(one.url, two.url), listen=LISTEN.format(3)) as running,
    ):
        streams: list[asyncio.Task[str]] = []

        async def send() -> None:
            before = len(one.requests) + len(two.requests)
            streams.append(asyncio.create_task(ask(running, "stream")))

            async def came() -> bool:
                return len(one.requests) + len(two.requests) > before

            await until(came)

        for _ in range(9):
            await send()
        assert sorted((len(one.requests), len(two.requests))) == [4, 5]
        shorter = "one" if len(one.requests) == 4 else "two"
        assert await ask(running, "short") == shorter

        workers = workers_of(running.pid)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        await ended(workers)
        await whole(running, 3, 3)
        for each in streams:  # some asked again
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

        async def nothing_is_under_way() -> bool:
            return {await ask(running, "short") for _ in range(8)} == {"one", "two"}

        await until(nothing_is_under_way)
