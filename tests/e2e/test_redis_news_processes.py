"""Sidecars of one fleet, as processes: a credential that one puts aside is aside for all, and an endpoint that refuses
one is passed over by all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import redis.asyncio
from clients import status_and_attempts
from support.ports import free_port
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from support.scripted import Turn, Upstream, answer

pytestmark = needs_redis

SIDECARS, SECONDS = 4, 30
CONFIG = """
log: {{format: json}}
workers: {workers}
redis: {{url: "{redis}", timeout: 2s}}
upstreams:
  u:
    url: {url}
    bucket: {{kind: quota, capacity: 100, store: redis}}
    strategy: {{kind: standard, backoff: {{base: 1ms, max: 1ms}}}}
    {more}
"""


@contextlib.asynccontextmanager
async def fleet_of(
    folder: Path, server: RedisServer, url: str, more: str = "", workers: int = 1
) -> AsyncIterator[tuple[list[Redrive], aiohttp.ClientSession]]:
    async with contextlib.AsyncExitStack() as stack:
        fleet = []
        for number in range(SIDECARS):
            own = folder / str(number)
            own.mkdir()
            text = CONFIG.format(redis=server.url, url=url, more=more, workers=workers)
            fleet.append(await stack.enter_async_context(Redrive(own, text)))
        connector = aiohttp.TCPConnector(force_close=True)
        yield fleet, await stack.enter_async_context(aiohttp.ClientSession(connector=connector))


async def call(session: aiohttp.ClientSession, sidecar: Redrive) -> tuple[int, str]:
    return await status_and_attempts(session, f"{sidecar.url}/u/x")


async def aside(session: aiohttp.ClientSession, sidecar: Redrive) -> list[int]:
    """The numbers of the credentials that it says are put aside."""
    async with session.get(f"{sidecar.admin}/readyz?verbose") as answered:
        shown = await answered.json()
    return [each["key"] for each in shown.get("credentials_aside", [])]


async def transparent(session: aiohttp.ClientSession, sidecar: Redrive) -> float:
    """How many sendings of its calls did not connect, and were repeated."""
    async with session.get(f"{sidecar.admin}/metrics") as answered:
        text = await answered.text()
    lines = [line for line in text.splitlines() if line.startswith("redrive_transparent_retries_total")]
    return sum(float(line.split()[-1]) for line in lines)


@contextlib.asynccontextmanager
async def news(server: RedisServer) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Waits until a sidecar has told the others something."""
    async with redis.asyncio.from_url(server.url) as client, client.pubsub() as heard:
        await heard.subscribe("redrive:1:news")

        async def comes() -> None:
            async with asyncio.timeout(SECONDS):
                while (await heard.get_message(timeout=SECONDS) or {}).get("type") != "message":
                    pass

        yield comes


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_credential_that_one_puts_aside_is_aside_for_all(
    tmp_path: Path, server: RedisServer, workers: int
) -> None:
    async def refuses_the_first(turn: Turn) -> None:
        await turn.write(answer(401 if turn.request.one("x-api-key") == "value-a" else 200))

    more = "credentials: {header: x-api-key, values: [value-a, value-b], pick: first}"
    async with (
        Upstream(refuses_the_first) as upstream,
        fleet_of(tmp_path, server, upstream.url, more, workers) as (fleet, session),
        news(server) as comes,
    ):
        first, *others = fleet
        assert await call(session, first) == (401, "1")
        await comes()
        for each in others:  # it has read what came before this request
            await aside(session, each)
        before = len(upstream.requests)
        for each in others * 3:
            assert await call(session, each) == (200, "1")
        assert {request.one("x-api-key") for request in upstream.requests[before:]} == {"value-b"}
        assert [await aside(session, each) for each in fleet] == [[1]] * SIDECARS


async def test_an_endpoint_that_refuses_one_is_passed_over_by_all(tmp_path: Path, server: RedisServer) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with (
        Upstream(answer(200)) as upstream,
        fleet_of(tmp_path, server, f"[{dead}, {upstream.url}]") as (fleet, session),
        news(server) as comes,
    ):
        first, *others = fleet
        async with asyncio.timeout(SECONDS):
            while not await transparent(session, first):
                assert await call(session, first) == (200, "1")
        await comes()
        for each in others * 2:
            await aside(session, each)  # it has read what came before this request
            assert await call(session, each) == (200, "1")
        assert [await transparent(session, each) for each in others] == [0.0] * len(others)
