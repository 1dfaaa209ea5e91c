"""Real processes and a real Redis: one budget for all of them, one cooldown, and life without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio
from clients import status_and_attempts
from support.process import Redrive
from support.redis_server import FOUND, RedisServer, needs_redis
from support.scripted import Turn, Upstream, answer

pytestmark = needs_redis

CONFIG = """
log: {{format: json}}
redis: {{url: "{redis}", timeout: 2s, on_outage: {on_outage}}}
buckets:
  fleet: {{kind: quota, capacity: 20, store: redis}}
defaults:
  strategy: {{kind: standard, backoff: {{base: 20ms, max: 20ms}}}}
  bucket: fleet
upstreams:
  u: {{url: "{upstream}"}}
{more}
"""


@contextlib.asynccontextmanager
async def sidecar(
    folder: Path, upstream: Upstream, redis: RedisServer, *, more: str = "", on_outage: str = "local"
) -> AsyncIterator[Redrive]:
    folder.mkdir()  # noqa: ASYNC240 - a local directory
    text = CONFIG.format(redis=redis.url, upstream=upstream.url, more=more, on_outage=on_outage)
    async with Redrive(folder, text) as process:
        yield process


async def get(session: aiohttp.ClientSession, process: Redrive) -> tuple[int, str]:
    return await status_and_attempts(session, f"{process.url}/u/x")


async def page(session: aiohttp.ClientSession, process: Redrive, path: str) -> str:
    async with session.get(f"{process.admin}{path}") as answered:
        return await answered.text()


async def level(session: aiohttp.ClientSession, process: Redrive) -> Any:
    shown = json.loads(await page(session, process, "/buckets"))
    rows = shown["buckets"] if isinstance(shown, dict) else shown
    return next(row["level"] for row in rows if row["bucket"] == "fleet")


async def metric(session: aiohttp.ClientSession, process: Redrive, name: str) -> float:
    text = await page(session, process, "/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.split(" ")[0] == name)


async def test_two_sidecars_pay_from_one_bucket(tmp_path: Path, server: RedisServer) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        sidecar(tmp_path / "a", upstream, server) as one,
        sidecar(tmp_path / "b", upstream, server) as other,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(4):
            await get(session, one)
            await get(session, other)
        retries = len(upstream.requests) - 8
        assert retries <= 4  # 20 tokens, 5 a retry
        assert await level(session, one) == await level(session, other) == 20 - 5 * retries
        assert await metric(session, one, "redrive_redis_up") == 1


#: (Measured with twenty sidecars and 290 retries, too: docs/reference/fleet.md, "Sizing".)
SIDECARS, RETRIES, CALLERS = 5, 60, 3


async def test_a_quota_that_is_small_for_its_fleet_refuses_no_retry(tmp_path: Path, server: RedisServer) -> None:
    """A full bucket of ten prices: where each process kept a piece of it, most retries were refused."""
    seen: set[str] = set()

    async def fails_once(turn: Turn) -> None:
        target = turn.request.target
        await turn.write(answer(200 if target in seen else 503))
        seen.add(target)

    async with Upstream(fails_once) as upstream, contextlib.AsyncExitStack() as stack:
        text = CONFIG.format(redis=server.url, upstream=upstream.url, more="", on_outage="deny")
        text = text.replace("capacity: 20", "capacity: 50").replace("20ms, max: 20ms", "100ms, jitter: none")
        text = text.replace("defaults:\n", "defaults:\n  concurrency: off\n")
        fleet = []
        for number in range(SIDECARS):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            fleet.append(await stack.enter_async_context(Redrive(folder, text)))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        numbers, results = iter(range(RETRIES)), list[int]()

        async def caller() -> None:
            for number in numbers:
                async with session.get(f"{fleet[number % SIDECARS].url}/u/{number}") as answered:
                    results.append(answered.status)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        assert results == [200] * RETRIES
        async with asyncio.timeout(20):
            while await level(session, fleet[0]) != 50:
                pass  # each look is a request to the process


async def test_workers_are_lease_holders_and_their_parent_shows_the_level(tmp_path: Path, server: RedisServer) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        sidecar(tmp_path / "a", upstream, server, more="workers: 2") as one,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        for _ in range(8):
            await get(session, one)
        retries = len(upstream.requests) - 8
        assert 1 <= retries <= 4
        assert await level(session, one) == 20 - 5 * retries
        server.kill()
        while await metric(session, one, "redrive_redis_up"):
            await get(session, one)
        assert await metric(session, one, "redrive_redis_outages_total") == 1
        server.start()
        back = await one.line(lambda line: line["event"] == "redis" and line["state"] == "back")
        assert back is not None
        said = [line["state"] for line in one.lines if line["event"] == "redis"]
        assert said == ["out", "back"]  # once, for all workers


async def test_two_sidecars_of_two_workers_pay_from_one_bucket_and_hold_each_other(
    tmp_path: Path, server: RedisServer
) -> None:
    """Four processes that carry calls, on two machines as far as they know."""
    answers = [answer(503)]

    async def say(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(answers.pop(0) if len(answers) > 1 else answers[0])

    async with (
        Upstream(say) as upstream,
        sidecar(tmp_path / "a", upstream, server, more="workers: 2") as one,
        sidecar(tmp_path / "b", upstream, server, more="workers: 2") as other,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        calls = 0
        for _ in range(8):
            for each in (one, other):
                await get(session, each)
                calls += 1
        retries = len(upstream.requests) - calls
        assert 1 <= retries <= 4  # 20 tokens, 5 a retry, whichever worker of whichever sidecar pays
        assert await level(session, one) == await level(session, other) == 20 - 5 * retries
        answers[:] = [answer(503, b"", "retry-after: 5"), answer(200)]  # all four are held long before that
        begun = len(upstream.requests)
        async with asyncio.TaskGroup() as group:
            met = group.create_task(get(session, one))
            while not await metric(session, other, 'redrive_cooldown_seconds{upstream="u"}'):
                pass
            held = [group.create_task(get(session, other)) for _ in range(4)]
            while await metric(session, other, "redrive_waiting_calls") < len(held):
                pass
            assert len(upstream.requests) == begun + 1
        assert met.result()[0] in (200, 503)  # with an empty bucket it is not retried
        assert [each.result() for each in held] == [(200, "1")] * 4


async def test_one_sidecars_429_holds_the_others(tmp_path: Path, server: RedisServer) -> None:
    async with (
        Upstream(answer(200), answer(429, b"", "retry-after: 5"), answer(200)) as upstream,
        sidecar(tmp_path / "a", upstream, server) as one,
        sidecar(tmp_path / "b", upstream, server) as other,
        aiohttp.ClientSession() as session,
    ):
        assert await get(session, other) == (200, "1")
        async with asyncio.TaskGroup() as group:
            met = group.create_task(get(session, one))
            while not await metric(session, other, 'redrive_cooldown_seconds{upstream="u"}'):
                pass
            held = group.create_task(get(session, other))
            while not await metric(session, other, "redrive_waiting_calls"):
                pass
            assert len(upstream.requests) == 2  # it is held before it has sent anything
        assert (met.result(), held.result()) == ((200, "2"), (200, "1"))


async def test_without_redis_calls_go_on_and_with_it_they_share_again(tmp_path: Path, server: RedisServer) -> None:
    async with (
        Upstream(answer(503), answer(200)) as upstream,
        sidecar(tmp_path / "a", upstream, server) as one,
        aiohttp.ClientSession() as session,
    ):
        assert await get(session, one) == (200, "2")
        server.kill()
        while await metric(session, one, "redrive_redis_up"):
            assert await get(session, one) == (200, "1")
        assert await get(session, one) == (200, "1")
        server.start()
        back = await one.line(lambda line: line["event"] == "redis" and line["state"] == "back")
        assert back is not None
        assert await metric(session, one, "redrive_redis_up") == 1


async def test_deny_says_bucket_empty(tmp_path: Path, server: RedisServer) -> None:
    server.kill()
    async with (
        Upstream(answer(503)) as upstream,
        sidecar(tmp_path / "a", upstream, server, on_outage="deny") as one,
        aiohttp.ClientSession() as session,
    ):
        assert await get(session, one) == (503, "1")
        line = await one.call()
        assert line["outcome"] == "bucket_empty"
        # Its level is not what refused it, and no figure says so.
        assert line["history"][-1]["why"] == "Redis does not answer, and redis.on_outage is deny"


@pytest.mark.parametrize("when_empty", ["wait", "reject"])
async def test_deny_answers_rate_limited_while_a_rate_cannot_be_asked(
    tmp_path: Path, server: RedisServer, when_empty: str
) -> None:
    paced = f"  paced: {{{{kind: rate, rate: 100/s, store: redis, when_empty: {when_empty}}}}}"
    config = CONFIG.replace("defaults:", f"{paced}\ndefaults:\n  rate: paced")
    server.kill()
    async with Upstream() as upstream:
        text = config.format(redis=server.url, upstream=upstream.url, more="", on_outage="deny")
        async with Redrive(tmp_path, text) as one, aiohttp.ClientSession() as session:
            async with session.get(f"{one.url}/u/x") as answered:
                problem = await answered.json(content_type=None)
                retry_after = answered.headers.get("retry-after")
            assert (answered.status, problem["outcome"], retry_after) == (503, "rate_limited", "1")
            assert problem["detail"] == "Redis does not answer, and redis.on_outage is deny"
            assert (await one.call())["outcome"] == "rate_limited"
        assert not upstream.requests


async def test_a_fleet_that_loses_redis_keeps_its_rate(tmp_path: Path, server: RedisServer) -> None:
    """Four processes share 20/s; Redis dies under load. In any time t at most rate * t + 2 * burst is sent: by their
    own clocks, since what is sent may arrive late on a busy machine, and then all at once.
    """
    rate, burst = 20.0, 10.0
    paced = "  paced: {{kind: rate, rate: 20/s, burst: 10, store: redis}}"
    config = CONFIG.replace("defaults:", f"{paced}\ndefaults:\n  rate: paced")

    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Upstream(answer(200)))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        text = config.format(redis=server.url, upstream=upstream.url, more="", on_outage="share")
        fleet = []
        for name in "abcd":
            (tmp_path / name).mkdir()
            fleet.append(await stack.enter_async_context(Redrive(tmp_path / name, text)))

        async def until(count: int) -> None:
            """Call all of them at once, until the upstream has had so many more calls."""
            enough = len(upstream.requests) + count

            async def keep_calling(process: Redrive) -> None:
                while len(upstream.requests) < enough:
                    await get(session, process)

            async with asyncio.TaskGroup() as group:
                for process in fleet:
                    for _ in range(4):
                        group.create_task(keep_calling(process))

        await until(130)  # more than four seconds: by then all have been told of each other
        server.kill()
        await until(60)
        for process in fleet:
            line = await process.line(lambda line: line["event"] == "redis" and line["state"] == "out")
            assert line is not None
            assert (line["on_outage"], line["share_of"]) == ("share", 4)
        for process in fleet:
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0  # having written all lines
        count = len(upstream.requests)
    sent = sorted(sent_at(line) for process in fleet for line in process.lines if line["event"] == "call")
    assert len(sent) == count
    lowest = 0.0
    for number, at in enumerate(at - sent[0] for at in sent):
        lowest = min(lowest, number - rate * at)
        assert number + 1 - rate * at - lowest <= 2 * burst + 1


def sent_at(call: dict[str, Any]) -> float:
    """When a call's only attempt was sent, by its line in the log."""
    (attempt,) = call.get("history", [{"start": 0.0}])
    return datetime.fromisoformat(call["time"]).timestamp() + float(attempt["start"])


async def test_a_reload_brings_redis_and_takes_it_away(tmp_path: Path, server: RedisServer) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        sidecar(tmp_path / "a", upstream, server) as one,
        aiohttp.ClientSession() as session,
    ):
        await get(session, one)
        text = one.file.read_text()
        assert await level(session, one) == 10
        for changed, share in ((text.replace(", store: redis", ""), 10), (text, 10)):
            one.file.write_text(changed)
            async with session.post(f"{one.admin}/reload") as answered:
                assert answered.status == 200
            async with session.get(f"{one.url}/u/x", headers={"x-retry-disable": "true"}) as answered:
                await answered.read()
            assert await level(session, one) == share


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_password_that_changes_in_its_file_is_used(tmp_path: Path, workers: int) -> None:
    """The server takes the new password alone, and has dropped its connections. Under `deny` only Redis grants."""
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH")
    server, secret = RedisServer("--requirepass", "hunter-one"), tmp_path / "password"
    secret.write_text("hunter-one\n")
    url = f"redis://:${{file:{secret}}}@127.0.0.1:{server.port}/0"
    folder = tmp_path / "a"
    folder.mkdir()
    try:
        async with Upstream(answer(503)) as upstream, aiohttp.ClientSession() as session:
            text = CONFIG.format(redis=url, upstream=upstream.url, more=f"workers: {workers}", on_outage="deny")
            async with Redrive(folder, text) as running:
                assert await get(session, running) == (503, "3")
                async with redis.asyncio.Redis(port=server.port, password="hunter-one") as administrator:
                    await administrator.config_set("requirepass", "hunter-two")
                    for kind in ("normal", "pubsub"):
                        await administrator.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                # It is tried again with the first password, in vain.
                assert await running.line(lambda line: line["event"] == "redis" and line["state"] == "out") is not None
                assert json.loads(await page(session, running, "/readyz?verbose"))["redis"] == "out"
                secret.write_text("hunter-two\n")
                assert await running.line(lambda line: line["event"] == "redis" and line["state"] == "back") is not None
                assert await running.line(lambda line: line["event"] == "reload") is not None
                async with asyncio.timeout(20):
                    while (await get(session, running))[1] == "1":
                        pass
                assert json.loads(await page(session, running, "/readyz?verbose"))["redis"] == "up"
                assert await metric(session, running, "redrive_redis_up") == 1
                shown = await page(session, running, "/config")
                assert "hunter-" not in shown + running.errors + json.dumps(running.lines)
    finally:
        server.close()
