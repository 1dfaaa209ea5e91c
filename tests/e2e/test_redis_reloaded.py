"""Reloads that change what a fleet shares, or in which Redis, while its processes run and calls wait."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.process import LISTEN, Redrive
from support.redis_server import RedisServer, needs_redis
from support.scripted import Turn, Upstream, answer
from test_redis_processes import get, metric

pytestmark = needs_redis

CONFIG = """
log: {{format: json}}
workers: {workers}
redis: {{url: "{url}", timeout: {timeout}}}
buckets:
  keep: {{kind: quota, capacity: 50, store: {store}}}
  paced: {{kind: rate, rate: 20/s, burst: 5, store: {store}}}
defaults: {{bucket: keep}}
upstreams: {{u: {{url: "{upstream}", {more}}}}}
"""


class Case:
    """The configurations before and after a reload: `change` is what changes."""

    def __init__(self, upstream: Upstream, server: RedisServer, *, workers: int, more: str) -> None:
        self._options: dict[str, Any] = {"upstream": upstream.url, "workers": workers, "more": more}
        self._options |= {"url": server.url, "timeout": "2s", "store": "redis"}

    def text(self, **changes: str) -> str:
        return CONFIG.format(**(self._options | changes))


async def reload(session: aiohttp.ClientSession, running: Redrive, text: str) -> None:
    running.file.write_text(LISTEN + text)
    async with session.post(f"{running.admin}/reload") as answered:
        assert answered.status == 200


@pytest.mark.parametrize("change", ["store", "timeout", "url"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_places_and_cooldowns_are_the_fleets_after_a_reload_too(
    tmp_path: Path, server: RedisServer, change: str, workers: int
) -> None:
    """Each process went on with what it had of the former Redis, or alone: no call got a place, or twice as many."""
    holds, is_throttled, flying, most = asyncio.Event(), False, 0, 0

    async def step(turn: Turn) -> None:
        nonlocal is_throttled, flying, most
        await turn.read_body()
        if is_throttled:
            is_throttled = False
            await turn.write(answer(429, b"", "retry-after: 5"))
            return
        flying += 1
        most = max(most, flying)
        await holds.wait()
        flying -= 1
        await turn.write(answer(200))

    other = RedisServer()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(other.close)
        upstream = await stack.enter_async_context(Upstream(step))
        case = Case(upstream, server, workers=workers, more="concurrency: {max: 4}")
        first = case.text(store="memory") if change == "store" else case.text()
        then = case.text(**{"store": {}, "timeout": {"timeout": "3s"}, "url": {"url": other.url}}[change])
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        fleet = []
        for name in "ab":
            (tmp_path / name).mkdir()
            fleet.append(await stack.enter_async_context(Redrive(tmp_path / name, first)))
        holds.set()
        for each in fleet:
            for _ in range(2 * workers):  # by whichever worker
                assert (await get(session, each))[0] == 200
        for each in fleet:
            await reload(session, each, then)
        for each in fleet:
            for _ in range(2 * workers):
                assert (await get(session, each))[0] == 200
        holds.clear()
        most = 0
        async with asyncio.TaskGroup() as group:
            begun = len(upstream.requests)
            calls = [group.create_task(get(session, each)) for each in fleet for _ in range(8)]
            await upstream.until(begun + 4)
            holds.set()
        assert {call.result()[0] for call in calls} == {200}
        assert most <= 4
        is_throttled = True
        async with asyncio.TaskGroup() as group:
            group.create_task(get(session, fleet[0]))
            async with asyncio.timeout(20):
                while not await metric(session, fleet[1], 'redrive_cooldown_seconds{upstream="u"}'):
                    pass


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_the_fleet_shares_no_more_goes_on_alone(tmp_path: Path, server: RedisServer, workers: int) -> None:
    async with (
        Upstream(answer(200), answer(429, b"", "retry-after: 1"), answer(200)) as upstream,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        case = Case(upstream, server, workers=workers, more="concurrency: {max: 1}")
        async with Redrive(tmp_path, case.text()) as running:
            assert await get(session, running) == (200, "1")
            await reload(session, running, case.text(store="memory"))
            assert await get(session, running) == (200, "2")
            server.kill()
            for _ in range(4 * workers):
                assert await get(session, running) == (200, "1")
            assert not [line for line in running.lines if line["event"] == "redis"]


@pytest.mark.parametrize("change", ["timeout", "url", "store"])
async def test_calls_that_wait_for_a_rate_of_the_former_redis_are_sent(
    tmp_path: Path, server: RedisServer, change: str
) -> None:
    """Nothing gave them tokens any more: they waited until their deadline."""
    other = RedisServer()
    try:
        async with Upstream(answer(200)) as upstream, aiohttp.ClientSession() as session:
            case = Case(upstream, server, workers=1, more="rate: paced")
            changes = {"timeout": {"timeout": "3s"}, "url": {"url": other.url}, "store": {"store": "memory"}}
            async with Redrive(tmp_path, case.text()) as running, asyncio.timeout(60):
                async with asyncio.TaskGroup() as group:
                    calls = [group.create_task(get(session, running)) for _ in range(20)]
                    await upstream.until(6)
                    await reload(session, running, case.text(**changes[change]))
                assert {call.result() for call in calls} == {(200, "1")}
    finally:
        other.close()


@pytest.mark.parametrize("workers", [1, 2])
async def test_redis_is_said_to_be_back_when_it_answers(tmp_path: Path, workers: int) -> None:
    """A reload that corrects its password wrongly said so too, and then that it was out again."""
    server = RedisServer("--requirepass", "right")
    try:
        async with Upstream(answer(200)) as upstream, aiohttp.ClientSession() as session:
            case = Case(upstream, server, workers=workers, more="")
            urls = {word: f"redis://:{word}@127.0.0.1:{server.port}/0" for word in ("wrong", "worse", "right")}
            async with Redrive(tmp_path, case.text(url=urls["wrong"])) as running:
                for word in ("worse", "right"):
                    await reload(session, running, case.text(url=urls[word]))
                await running.line(lambda line: line["event"] == "redis" and line["state"] == "back")
                states = [line.get("state", "reload") for line in running.lines if line["event"] in ("redis", "reload")]
                assert [each for each in states if each != "reload"] == ["out", "back"]
                assert states.index("back") > states.index("reload")  # not with the first of the two
                assert await metric(session, running, "redrive_redis_outages_total") == 1
                assert await metric(session, running, "redrive_redis_up") == 1
    finally:
        server.close()
