"""Apps by name over several workers: what is shown of their held calls, and whose call gives way where the waiting room
is full.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
from support.process import Redrive
from support.scripted import Turn, Upstream, answer
from test_workers import LISTEN, config, metrics, patient, until

APPS = """
apps:
  by: [{header: X-App}]
  known: {web: {weight: 4, priority: high}, batch: {weight: 1, priority: low}}
defaults: {timeouts: {total: 'off'}}
"""
ROOM = APPS + "limits: {waiting: 8}\n"
SLOW_RATE = "    rate: {kind: rate, rate: 1/h, burst: 1}\n"


async def ask(running: Redrive, app: str, upstream: str = "a") -> tuple[str, int, str]:
    """The app, the status of its call on a connection of its own, and the reason that the answer gives."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.get(f"{running.url}/{upstream}/x", headers={"X-App": app}) as got,
    ):
        await got.read()
        return app, got.status, got.headers.get("proxy-status", "")


class Calls:
    """Calls that are under way."""

    def __init__(self, running: Redrive) -> None:
        self._running = running
        self.tasks: list[asyncio.Task[tuple[str, int, str]]] = []

    def begin(self, app: str, count: int = 1, upstream: str = "a") -> None:
        self.tasks += [asyncio.create_task(ask(self._running, app, upstream)) for _ in range(count)]

    async def held(self, by: str, upstream: str = "a", **apps: int) -> None:
        """Wait until so many calls of each app are held at this upstream, by this cause, and no others are."""

        async def are_held() -> bool:
            counted = await metrics(self._running)
            found = {app: counted("redrive_held_calls", upstream=upstream, by=by, app=app) for app in apps}
            return found == apps and counted("redrive_held_calls", upstream=upstream) == sum(apps.values())

        await until(are_held)

    async def over(self, count: int) -> list[tuple[str, int, str]]:
        """Wait until so many calls are over; what came of them."""

        async def are_over() -> bool:
            return sum(each.done() for each in self.tasks) == count

        await until(are_over)
        return [each.result() for each in self.tasks if each.done()]

    async def end(self) -> None:
        for each in self.tasks:
            each.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_held_calls_of_all_workers_are_shown_by_app_and_cause(tmp_path: Path) -> None:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        if turn.request.target.startswith("/a"):
            await turn.write(answer(200))
        elif turn.request.target.startswith("/b"):
            await turn.gone()
        else:
            await turn.write(answer(429, b"", "Retry-After: 50"))

    async with Upstream(step) as upstream:
        held = {
            "a": ("rate", SLOW_RATE),
            "b": ("concurrency", "    concurrency: {max: 1, queue: 100}\n"),
            "c": ("cooling", "    pushback: {hold: 60s}\n"),
        }
        text = "".join(f"  {name}:\n    url: {upstream.url}/{name}\n{more}" for name, (_, more) in held.items())
        async with Redrive(tmp_path, f"{APPS}upstreams:\n{text}", listen=LISTEN.format(2)) as running:
            calls = Calls(running)
            for name in held:
                calls.begin("web", upstream=name)  # it brings about what holds the others
            await upstream.until(3)
            assert await calls.over(1) == [("web", 200, "")]
            for name, (by, _) in held.items():
                calls.begin("web", 3, upstream=name)
                calls.begin("batch", 8, upstream=name)
                calls.begin("sk-secret", 2, upstream=name)
                await calls.held(by, upstream=name, web=3, batch=8, others=2)
            assert "sk-secret" not in str((await metrics(running)).samples)
            await calls.end()
            for name, (by, _) in held.items():
                await calls.held(by, upstream=name, web=0, batch=0, others=0)


async def test_in_a_full_waiting_room_calls_of_a_lower_priority_give_way(tmp_path: Path) -> None:
    """In the worker that the better call comes to; calls that other workers hold keep their places."""
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, SLOW_RATE, ROOM), listen=LISTEN.format(2)) as running,
    ):
        calls = Calls(running)
        calls.begin("web")
        assert [status for _, status, _ in await calls.over(1)] == [200]
        calls.begin("batch", 10)
        refused = await calls.over(1 + 6)
        assert {(app, status) for app, status, _ in refused[1:]} == {("batch", 503)}
        web = 0
        while web < 4:
            calls.begin("web")
            over = await calls.over(len(calls.tasks) - 4)
            web = sum(app == "batch" for app, _, _ in over) - 6
        await calls.held("rate", web=4, batch=0)
        told = Counter((app, "better priority" in why) for app, status, why in over if status == 503)
        assert told["batch", True] == 4
        assert set(told) <= {("batch", True), ("batch", False), ("web", False)}
        assert all("outcome=overloaded" in why for _, status, why in over if status == 503)
        await calls.end()


async def test_retry_tokens_of_apps_are_exact_over_four_workers(tmp_path: Path) -> None:
    """Of a hundred tokens the batch spends half, since its calls are of low priority: ten retries. What its own part
    did not have it took from those of the others, so that the web has 40 of its 66.7 left, and half of what is left of
    the part of all others: eight retries.
    """
    top = APPS + patient(4) + "buckets: {low: {kind: quota, capacity: 100, retry_cost: 5}}\n"
    more = "    strategy: patient\n    bucket: low\n    concurrency: off\n    outage: fail\n"
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream, more, top), listen=LISTEN.format(4)) as running,
    ):
        for app, retries in (("batch", 10), ("web", 8)):
            assert {status for _, status, _ in await asyncio.gather(*(ask(running, app) for _ in range(40)))} == {503}
            counted = await metrics(running)
            assert counted("redrive_retries_total", app=app) == retries
            assert counted("redrive_calls_total", app=app, upstream="a") == 40
        assert counted("redrive_bucket_level", bucket="low") == 100 - 18 * 5
        assert len(upstream.requests) == 80 + 18
