"""A reload that changes a rate while calls wait for it: with those that come, they keep the higher of both rates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from support.scripted import Upstream, answer
from test_redis_processes import get, sent_at

CONFIG = """
log: {{format: json}}
workers: {workers}
redis: {{url: "{redis}", timeout: 2s}}
buckets:
  paced: {{kind: rate, rate: {rate}/s, burst: 5, store: {store}}}
defaults: {{rate: paced}}
upstreams: {{u: {{url: "{upstream}"}}}}
"""
BEFORE, AFTER, WAITING, NEW = 40, 20, 60, 30


@needs_redis
@pytest.mark.parametrize(("workers", "store"), [(3, "memory"), (1, "redis"), (2, "redis")])
async def test_a_lowered_rate_is_not_given_on_top_of_the_former_one(
    tmp_path: Path, server: RedisServer, workers: int, store: str
) -> None:
    """By the proxy's own clock, since what is sent may arrive late on a busy machine."""
    async with (
        Upstream(answer(200)) as upstream,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        options = {"workers": workers, "store": store, "redis": server.url, "upstream": upstream.url}
        async with Redrive(tmp_path, CONFIG.format(rate=BEFORE, **options)) as running:
            async with asyncio.TaskGroup() as group:
                for _ in range(WAITING):
                    group.create_task(get(session, running))
                await upstream.until(10)  # the burst is spent, and the others wait
                running.file.write_text(running.file.read_text().replace(f"{BEFORE}/s", f"{AFTER}/s"))
                async with session.post(f"{running.admin}/reload") as answered:
                    assert answered.status == 200
                for _ in range(NEW):
                    group.create_task(get(session, running))
            await running.call(WAITING + NEW)
        sent = sorted(sent_at(line) for line in running.lines if line["event"] == "call")
        lowest = 0.0
        for number, at in enumerate(at - sent[0] for at in sent):
            lowest = min(lowest, number - BEFORE * at)
            assert number + 1 - BEFORE * at - lowest <= 2 * 5 + 1 + BEFORE * 0.001  # the log's times are cut to 1 ms
