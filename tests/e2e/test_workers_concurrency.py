"""Attempts under way over several processes: never more than `max`, whoever is killed, and no place is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from pathlib import Path

import pytest
from clients import with_aiohttp
from support.process import Redrive
from support.scripted import Turn, Upstream, answer, hang
from test_workers import LISTEN, SECONDS, ask_once, config, ended, metrics, until, whole, workers_of


class Busy:
    """An upstream's step that counts what it has in hand: requests that it has not answered, of which the other side
    still waits for the answer. `most` is the highest count that it has seen.
    """

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.most = self.answered = 0
        self._in_hand: set[socket.socket] = set()

    async def __call__(self, turn: Turn) -> None:
        sock = socket.socket(fileno=os.dup(turn.writer.get_extra_info("socket").fileno()))
        self._in_hand.add(sock)
        try:
            self.most = max(self.most, sum(map(_is_waited_for, self._in_hand)))
            await asyncio.sleep(self.takes)  # how long it works
        finally:
            self._in_hand.discard(sock)
            sock.close()
        await turn.write(answer(200, b"ok"))
        self.answered += 1


def _is_waited_for(sock: socket.socket) -> bool:
    """A killed process's connection is closed before anybody hears of its end; what is unread says so."""
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def limit(most: int, queue: int = 100) -> str:
    return f"    concurrency: {{max: {most}, queue: {queue}}}\n"


@pytest.mark.parametrize("workers", [1, 3])
async def test_never_more_than_max_whichever_worker_has_them(tmp_path: Path, workers: int) -> None:
    busy = Busy(0.01)
    async with (
        Upstream(busy) as upstream,
        Redrive(tmp_path, config(upstream, limit(2)), listen=LISTEN.format(workers)) as running,
    ):
        assert await asyncio.gather(*(ask_once(running) for _ in range(60))) == [200] * 60
        assert busy.most == 2

        async def all_is_given_back() -> bool:
            counted = await metrics(running)
            return (counted("redrive_concurrency"), counted("redrive_concurrency_waiting")) == (0, 0)

        await until(all_is_given_back)


async def test_a_killed_workers_places_come_back_and_the_others_keep_theirs(tmp_path: Path) -> None:
    async with (
        Upstream(hang) as upstream,
        Redrive(tmp_path, config(upstream, limit(4)), listen=LISTEN.format(3)) as running,
    ):
        calls = {asyncio.create_task(ask_once(running)) for _ in range(6)}
        await upstream.until(4)

        async def says(under_way: int, waiting: int) -> bool:
            counted = await metrics(running)
            told = counted("redrive_concurrency", upstream="a"), counted("redrive_concurrency_waiting", upstream="a")
            return told == (under_way, waiting)

        await until(lambda: says(4, 2))
        (shown,) = [each for each in await buckets(running) if each["kind"] == "concurrency"]
        assert (shown["bucket"], shown["level"], shown["capacity"]) == ("a/concurrency", 0, 4)
        assert (shown["under_way"], shown["waiting"]) == (4, 2)
        for restarts in range(1, 4):
            victim = random.Random(restarts).choice(sorted(workers_of(running.pid)))
            os.kill(victim, signal.SIGKILL)
            await ended({victim})
            await whole(running, 3, restarts)
            calls = {each for each in calls if not each.done()}  # those of the killed one have broken
            calls |= {asyncio.create_task(ask_once(running)) for _ in range(6 - len(calls))}
            await until(lambda: says(4, 2))
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: says(0, 0))


async def buckets(running: Redrive) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((await with_aiohttp("GET", f"{running.admin}/buckets")).body)["buckets"]
    return found


async def test_workers_are_killed_under_load_and_no_place_is_lost_or_doubled(tmp_path: Path) -> None:
    busy, most = Busy(0.005), 3
    async with (
        Upstream(busy) as upstream,
        Redrive(tmp_path, config(upstream, limit(most)), listen=LISTEN.format(3)) as running,
    ):
        over = asyncio.Event()
        told: list[int | None] = []

        async def calls() -> None:
            while not over.is_set():
                told.append(await ask_once(running))

        apps = [asyncio.create_task(calls()) for _ in range(12)]
        rng = random.Random(3)
        for restarts in range(1, 7):
            before = busy.answered

            async def goes_on(before: int = before) -> bool:
                return busy.answered >= before + 40

            await until(goes_on)
            victim = rng.choice(sorted(workers_of(running.pid)))
            os.kill(victim, signal.SIGKILL)
            await ended({victim})
            await whole(running, 3, restarts)
        over.set()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*apps)
        assert set(told) <= {200, None}
        assert busy.most == most

        async def all_is_given_back() -> bool:
            counted = await metrics(running)
            return (counted("redrive_concurrency"), counted("redrive_concurrency_waiting")) == (0, 0)

        await until(all_is_given_back)
        busy.most = 0
        assert await asyncio.gather(*(ask_once(running) for _ in range(30))) == [200] * 30
        assert busy.most == most, "all places are there"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_reload_lets_waiters_go_and_cuts_nobody(tmp_path: Path, workers: int) -> None:
    async with (
        Upstream(hang) as upstream,
        Redrive(tmp_path, config(upstream, limit(2)), listen=LISTEN.format(workers)) as running,
    ):
        calls = [asyncio.create_task(ask_once(running)) for _ in range(8)]

        async def says(under_way: int, waiting: int) -> bool:
            counted = await metrics(running)
            return (counted("redrive_concurrency"), counted("redrive_concurrency_waiting")) == (under_way, waiting)

        async def change(most: str) -> None:
            head = running.file.read_text().partition("    concurrency:")[0]
            running.file.write_text(head + most)
            running.process.send_signal(signal.SIGHUP)

        await until(lambda: says(2, 6))
        await change(limit(5))
        await until(lambda: says(5, 3))
        await change(limit(1))

        async def is_one() -> bool:
            return [each["capacity"] for each in await buckets(running) if each["kind"] == "concurrency"] == [1]

        await until(is_one)
        assert await says(5, 3)
        await change("")
        await until(lambda: says(8, 0))
        await upstream.until(8)
        assert not any(each.done() for each in calls)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
