"""Five sidecars over one real Redis: what one finds out about an upstream in trouble is so for all, and calls that wait
are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from support.capacity import CapacityServer
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from test_workers import workers_of
from test_workers_weather import owner_of

pytestmark = needs_redis

SIDECARS = 5
SECONDS = 60
CONFIG = """
log: {{format: json}}
workers: {workers}
redis: {{url: "{redis}", timeout: 2s}}
upstreams:
  u:
    url: "{upstream}"
    bucket: {{kind: quota, capacity: 1000, store: redis}}
    pushback: {{hold: 60s}}
    {more}
"""
AUTO = "concurrency: {max: auto, queue: 1000, wait: 60s}"


class Fleet:
    """The sidecars, and what their calls were answered."""

    def __init__(self, sidecars: list[Redrive], session: aiohttp.ClientSession) -> None:
        self.sidecars = sidecars
        self.session = session

    async def call(self, sidecar: Redrive) -> int:
        """The status of one call; 0 if its connection broke."""
        try:
            async with self.session.get(f"{sidecar.url}/u/x") as answered:
                await answered.read()
                return answered.status
        except aiohttp.ClientError:
            return 0

    def calls(self, each: int) -> list[asyncio.Task[int]]:
        return [asyncio.create_task(self.call(sidecar)) for _ in range(each) for sidecar in self.sidecars]

    async def metric(self, sidecar: Redrive, name: str) -> float:
        async with self.session.get(f"{sidecar.admin}/metrics") as answered:
            text = await answered.text()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))

    async def until_all(self, name: str, holds: Callable[[float], bool]) -> None:
        """Until this is so of the metric of every sidecar."""

        async def is_so(sidecar: Redrive) -> bool:
            return holds(await self.metric(sidecar, name))

        await until(lambda: all_of(is_so(each) for each in self.sidecars))


async def all_of(answers: Iterator[Awaitable[bool]]) -> bool:
    return all(await asyncio.gather(*answers))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await holds():  # noqa: ASYNC110  another process's state
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def fleet_of(
    folder: Path, upstream: str, redis: RedisServer, more: str = "", workers: int = 1, sidecars: int = SIDECARS
) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as stack:
        running = []
        for number in range(sidecars):
            own = folder / str(number)
            own.mkdir()
            text = CONFIG.format(redis=redis.url, upstream=upstream, more=more, workers=workers)
            running.append(await stack.enter_async_context(Redrive(own, text)))
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Fleet(running, session)


async def test_an_outage_and_its_end_are_the_fleets(tmp_path: Path, server: RedisServer) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        fleet_of(tmp_path, upstream.url, server) as fleet,
    ):
        assert set(await asyncio.gather(*fleet.calls(20))) == {200}
        await upstream.stop()
        first = asyncio.create_task(fleet.call(fleet.sidecars[0]))
        await fleet.until_all("redrive_outage", lambda out: out == 1)  # four of them have sent nothing
        calls = fleet.calls(8)
        await fleet.until_all("redrive_held_calls", lambda held: held >= 8)
        came = asyncio.Queue[None]()
        silent = asyncio.Event()

        async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.put_nowait(None)
            await silent.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            writer.close()

        probed = await asyncio.start_server(hang, sock=upstream.take_port())
        async with asyncio.timeout(SECONDS):
            await came.get()
        # While that probe is under way all others are held: every sidecar reports meanwhile, and none sends another.
        for _ in range(2):
            await fleet.until_all("redrive_held_calls", lambda held: held >= 7)
        assert came.empty()
        probed.close()
        silent.set()
        await upstream.start()
        async with asyncio.timeout(SECONDS):
            assert set(await asyncio.gather(first, *calls)) == {200}
        await fleet.until_all("redrive_outage", lambda out: out == 0)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_restart_loses_no_call_of_the_fleet(tmp_path: Path, server: RedisServer, workers: int) -> None:
    async with (
        CapacityServer(places=10, seconds=0.01) as upstream,
        fleet_of(tmp_path, upstream.url, server, AUTO, workers, SIDECARS if workers == 1 else 2) as fleet,
    ):
        assert set(await asyncio.gather(*fleet.calls(20))) == {200}
        await upstream.stop()
        calls = fleet.calls(10)
        await fleet.until_all("redrive_held_calls", lambda held: held >= 5)
        await upstream.start()
        async with asyncio.timeout(SECONDS):
            assert set(await asyncio.gather(*calls)) == {200}


async def test_a_sidecar_that_is_killed_while_it_probes_blocks_no_other(tmp_path: Path, server: RedisServer) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        fleet_of(tmp_path, upstream.url, server) as fleet,
    ):
        assert set(await asyncio.gather(*fleet.calls(20))) == {200}
        await upstream.stop()
        victim, *others = fleet.sidecars
        first = asyncio.create_task(fleet.call(victim))
        await fleet.until_all("redrive_outage", lambda out: out == 1)
        fleet.sidecars = others
        calls = fleet.calls(4)
        await fleet.until_all("redrive_held_calls", lambda held: held >= 4)
        victim.process.send_signal(signal.SIGKILL)
        await victim.process.wait()
        assert await first == 0
        await upstream.start()
        async with asyncio.timeout(SECONDS):
            assert set(await asyncio.gather(*calls)) == {200}


async def test_attempts_under_way_stay_within_max_and_a_killed_sidecar_s_places_come_back(
    tmp_path: Path, server: RedisServer
) -> None:
    async with (
        CapacityServer(places=100, seconds=0.02) as upstream,
        fleet_of(tmp_path, upstream.url, server, "concurrency: {max: 4, queue: 1000, wait: 60s}") as fleet,
    ):
        assert set(await asyncio.gather(*fleet.calls(20))) == {200}
        assert upstream.most <= 4
        victim, *others = fleet.sidecars
        upstream.seconds = 1000.0
        before = upstream.requests
        stuck = [asyncio.create_task(fleet.call(victim)) for _ in range(4)]
        await upstream.until(before + 4)  # it has all places
        upstream.seconds = 0.0
        fleet.sidecars = others
        calls = fleet.calls(3)
        victim.process.send_signal(signal.SIGKILL)
        await victim.process.wait()
        assert set(await asyncio.gather(*stuck)) == {0}
        async with asyncio.timeout(SECONDS):
            assert set(await asyncio.gather(*calls)) == {200}


class Stuck:
    """An upstream that answers no request until it is `free`. `most`: the largest number of requests that were there at
    a time, without those of a killed process (`dead`): that they have ended is noticed later.
    """

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.there: dict[int, int] = {}  # the requests that are there, by the port that they came from, in order
        self.dead: set[int] = set()
        self.served = self.most = 0
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.there[port] = 1
                self.most = max(self.most, len(self.there.keys() - self.dead))
                await self._tell()
                gone, free = asyncio.create_task(reader.read(1)), asyncio.create_task(self.free.wait())
                await asyncio.wait([gone, free], return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not self.free.is_set():
                    break
                await asyncio.wait([gone])
                self.there.pop(port)
                self.served += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.there.pop(port, None)
        await self._tell()
        writer.close()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self.changed:
            await self.changed.wait_for(holds)


async def test_a_worker_that_is_killed_gives_the_fleet_its_places_back_and_no_more(
    tmp_path: Path, server: RedisServer
) -> None:
    """Five sidecars with four workers each over one Redis, and a limit of six attempts at a time."""
    stuck = Stuck()
    listener = await asyncio.start_server(stuck.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    more = "concurrency: {max: 6, queue: 1000, wait: 60s}"
    async with fleet_of(tmp_path, f"http://127.0.0.1:{port}", server, more, workers=4, sidecars=SIDECARS) as fleet:
        victim, *others = fleet.sidecars
        first = [asyncio.create_task(fleet.call(victim)) for _ in range(6)]
        await stuck.until(lambda: len(stuck.there) == 6)  # the victim has all places
        fleet.sidecars = others
        rest = fleet.calls(10)
        await fleet.until_all("redrive_waiting_calls", lambda waiting: waiting >= 1)
        worker = owner_of(next(iter(stuck.there)), port, workers_of(victim.pid))
        its = [each for each in stuck.there if owner_of(each, port, workers_of(victim.pid)) == worker]
        stuck.dead.update(its)
        os.kill(worker, signal.SIGKILL)
        await stuck.until(lambda: not any(each in stuck.there for each in its))
        await stuck.until(lambda: len(stuck.there) == 6)  # its places are others'
        assert stuck.most == 6
        stuck.free.set()
        async with asyncio.timeout(SECONDS):
            told, others_told = await asyncio.gather(*first), await asyncio.gather(*rest)
        assert set(told) <= {0, 200}
        assert told.count(0) <= len(its)  # aiohttp may send a call again whose connection broke
        assert set(others_told) == {200}
        assert (stuck.most, stuck.served) == (6, told.count(200) + 40)
    listener.close()


async def test_half_the_capacity_is_divided_and_all_calls_are_served(tmp_path: Path, server: RedisServer) -> None:
    async with (
        CapacityServer(places=20, seconds=0.02) as upstream,
        fleet_of(tmp_path, upstream.url, server, AUTO) as fleet,
    ):
        assert set(await asyncio.gather(*fleet.calls(40))) == {200}
        upstream.places = 10
        upstream.throttled = 1
        begun = fleet.calls(10)
        await fleet.until_all("redrive_held_calls", lambda held: held >= 1)
        upstream.throttled = None
        upstream.most = 0
        async with asyncio.timeout(SECONDS):
            later = fleet.calls(40)
            # A call that came while only one place was left may have spent its attempts before a limit was found.
            assert set(await asyncio.gather(*begun)) <= {200, 429}
            assert set(await asyncio.gather(*later)) == {200}
