"""Hedging at a percentile on the wire: what one worker measures the other uses, and the bound holds over both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from clients import with_aiohttp
from prometheus_client.parser import text_string_to_metric_families
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

FEWEST = 20
CONFIG = """
upstreams:
  a: {{url: "{url}", strategy: {{kind: hedging, max_attempts: 2, hedging_delay: p95, extra: 10%}}, scope: upstream}}
"""


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_slow_answer_is_hedged_once_the_scope_is_known(workers: int, tmp_path: Path) -> None:
    released = asyncio.Event()

    async def step(turn: Turn) -> None:
        if turn.request.target.endswith("/slow") and turn.request.one("x-attempt-count") == "1":
            await released.wait()
        await turn.write(answer(200, b"ok"))

    listen = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {workers}\n"
    async with (
        Upstream(step) as upstream,
        Redrive(tmp_path, CONFIG.format(url=upstream.url), listen=listen) as running,
    ):
        for _ in range(FEWEST):
            assert (await with_aiohttp("GET", f"{running.url}/a/fast")).status == 200
        assert len(upstream.requests) == FEWEST  # below twenty successes nothing is sent beside anything
        for hedged in (1, 2):
            slow = await with_aiohttp("GET", f"{running.url}/a/slow")
            assert (slow.status, slow.headers["x-attempt-count"]) == (200, "2")
            assert len(upstream.requests) == FEWEST + 2 * hedged
        # Three hedges would be more than a tenth of the 23 calls.
        third = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/slow"))
        await upstream.until(FEWEST + 5)
        (kept,) = json.loads((await with_aiohttp("GET", f"{running.admin}/buckets")).body)["buckets"]
        metrics = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
        released.set()
        last = await third
        assert (last.status, last.headers["x-attempt-count"]) == (200, "1")
        assert len(upstream.requests) == FEWEST + 5
    assert (kept["kind"], kept["hedges"], kept["calls"]) == ("hedging", 2, FEWEST + 3)
    assert (kept["level"], kept["capacity"]) == (0, 2) and kept["hedging_delay"] > 0
    samples = [each for family in text_string_to_metric_families(metrics) for each in family.samples]
    assert sum(each.value for each in samples if each.name == "redrive_hedges_total") == 2
