"""Endpoints and their circuit breakers over real sockets: one process, and two workers that share them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from clients import with_aiohttp
from prometheus_client.parser import text_string_to_metric_families
from support.ports import free_port
from support.process import Redrive
from support.scripted import Upstream, answer, gated

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {}\n"
NONE = "    strategy: none\n"


def breaker(minimum: int = 4, opened: str = "1m") -> str:
    return f"    circuit_breaker: {{minimum_attempts: {minimum}, window: 1m, open: {opened}}}\n"


def config(*urls: str, more: str = "") -> str:
    return f"upstreams:\n  a:\n    url: [{', '.join(urls)}]\n{more}"


async def show(running: Redrive, page: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/{page}") as got:
        return json.loads(await got.text()) if page != "metrics" else await got.text()


async def circuits(running: Redrive) -> dict[str, bool]:
    (upstream,) = (await show(running, "upstreams"))["upstreams"]
    text = await show(running, "metrics")
    samples = {
        sample.labels["endpoint"]: bool(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "redrive_circuit_open" and sample.labels["upstream"] == "a"
    }
    assert samples == {each["endpoint"]: each["open"] for each in upstream["circuits"]}
    return samples


async def ask(running: Redrive, times: int = 1) -> list[Any]:
    return [await with_aiohttp("GET", f"{running.url}/a/x") for _ in range(times)]


async def ask_until(running: Redrive, reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await ask(running)
            await asyncio.sleep(0.02)  # what the wall's clock brings sets no event here


async def test_an_endpoint_that_fails_is_passed_over(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as ill,
        Upstream(answer(200, b"ok")) as well,
        Redrive(tmp_path, config(ill.url, well.url, more=NONE + breaker(4, "1m"))) as running,
    ):
        got = await ask(running, 8)  # by turns
        assert [each.status for each in got] == [503, 200] * 4
        event = await running.line(lambda line: line["event"] == "circuit_open")
        assert event is not None
        assert (event["upstream"], event["endpoint"], event["seconds"]) == ("a", ill.authority, 60.0)
        assert {each.status for each in await ask(running, 5)} == {200}
        assert len(ill.requests) == 4
        assert await circuits(running) == {ill.authority: True, well.authority: False}


async def test_an_endpoint_whose_probe_succeeds_has_its_turns_again(tmp_path: Path) -> None:
    async with (
        Upstream(*[answer(503)] * 4, answer(200, b"well again")) as ill,
        Upstream(answer(200, b"ok")) as well,
        Redrive(tmp_path, config(ill.url, well.url, more=NONE + breaker(4, "200ms"))) as running,
    ):
        await ask_until(running, lambda: len(ill.requests) > 4)
        event = await running.line(lambda line: line["event"] == "circuit_closed")
        assert event is not None
        assert event["endpoint"] == ill.authority
        assert await circuits(running) == {ill.authority: False, well.authority: False}
        before = len(ill.requests)
        await ask(running, 4)
        assert len(ill.requests) == before + 2


async def test_where_none_is_left_calls_of_all_workers_are_answered(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream.url, more=NONE + breaker(4, "1m")), listen=LISTEN.format(2)) as running,
    ):
        assert {each.status for each in await ask(running, 4)} == {503}
        got = await ask(running, 10)
        assert len(upstream.requests) == 4
        for each in got:
            assert each.status == 503
            assert 1 <= int(each.headers["retry-after"]) <= 60
            assert each.headers["x-should-retry"] == "false"
            assert "outcome=circuit_open" in each.headers["proxy-status"]
            assert "error=destination_unavailable" in each.headers["proxy-status"]
            said = json.loads(each.body)
            assert (said["outcome"], said["attempts"], said["upstream"]) == ("circuit_open", 0, "a")
        assert await circuits(running) == {upstream.authority: True}
        requests = (await show(running, "requests?outcome=circuit_open"))["requests"]
        assert requests
        assert all("circuit breaker" in each["detail"] for each in requests if each["outcome"] == "circuit_open")


async def test_one_probe_goes_for_all_workers(tmp_path: Path) -> None:
    asked_again = asyncio.Event()
    probe = gated(asked_again, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with (
        Upstream(*[answer(503)] * 4, probe, answer(200)) as upstream,
        Redrive(tmp_path, config(upstream.url, more=NONE + breaker(4, "3s")), listen=LISTEN.format(2)) as running,
    ):
        assert {each.status for each in await ask(running, 4)} == {503}
        calls: list[asyncio.Task[Any]] = []
        async with asyncio.timeout(60):
            while len(upstream.requests) < 5:
                calls.append(asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x")))
                await asyncio.sleep(0.02)
        # No more than are answered before the probe has lasted so long that another one goes.
        at_once = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/x") for _ in range(6)))
        assert {each.status for each in at_once} == {503}
        assert len(upstream.requests) == 5
        asked_again.set()
        answers = [each.status for each in await asyncio.gather(*calls)]
        assert answers.count(200) == 1
        await ask_until(running, lambda: len(upstream.requests) > 5)
        assert {each.status for each in await ask(running, 5)} == {200}
        assert await circuits(running) == {upstream.authority: False}


async def test_a_higher_priority_serves_once_the_lower_is_open(tmp_path: Path) -> None:
    strategy = "    strategy: {kind: standard, backoff: {base: 1ms, max: 2ms}}\n"
    async with (
        Upstream(answer(503)) as first,
        Upstream(answer(200)) as second,
        Redrive(
            tmp_path,
            config(first.url, f'{{url: "{second.url}", priority: 1}}', more=strategy + breaker(2)),
        ) as running,
    ):
        (got,) = await ask(running)
        assert (got.status, got.headers["x-attempt-count"]) == (200, "3")
        assert (len(first.requests), len(second.requests)) == (2, 1)
        assert {each.headers["x-attempt-count"] for each in await ask(running, 5)} == {"1"}
        assert (len(first.requests), len(second.requests)) == (2, 6)


async def test_a_higher_priority_serves_while_the_lower_refuses_connections(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200)) as second,
        Redrive(
            tmp_path, config(f"http://127.0.0.1:{free_port()}", f'{{url: "{second.url}", priority: 1}}', more=NONE)
        ) as running,
    ):
        assert {(each.status, each.headers["x-attempt-count"]) for each in await ask(running, 4)} == {(200, "1")}
        assert len(second.requests) == 4


async def test_turns_by_weight(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200, b"a")) as a,
        Upstream(answer(200, b"b")) as b,
        Redrive(tmp_path, config(f'{{url: "{a.url}", weight: 3}}', b.url)) as running,
    ):
        assert b"".join([each.body for each in await ask(running, 8)]) == b"aabaaaba"
