"""`python bench/apps.py`: how little the calls of a website feel a batch that makes ten times as many, on the wire.

Each scene is played twice: the web alone, and the web beside the batch. The table has the web's 99th percentile in
both, and what the best scheduler would give that neither interrupts a call nor keeps a place free for one that may
come: the same arrivals in a model, the web's calls always first (there is no such model of an outage and of failures).
Calls are few, so that the load of the machine matters little; `late` is how late the bench's own loop was, at the 99th
percentile: where it is some tenths of what is measured, the figures say nothing.

With `--fair`, the batch has a scene to itself, with more connections than are served at a time: what it gets, as a part
of what there is. Then five apps of equal weight have it together, with 10 to 50 connections: Jain's index of what they
get (1 where all get the same; R. Jain, D. Chiu and W. Hawe, 1984).

    python bench/apps.py                          all scenes, one worker
    python bench/apps.py --workers 4 --only places --seconds 60
    python bench/apps.py --workers 4 --only rate,places --fair
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import free_port

APPS = """
apps:
  by: [{header: X-App}]
  known: {web: {weight: 4, priority: high}, batch: {weight: 1, priority: low}, a: {}, b: {}, c: {}, d: {}, e: {}}
defaults: {timeouts: {total: 'off'}}
"""


@dataclass(frozen=True)
class Scene:
    """`policy`: the upstream's; `rate`: what is given a second, of `burst` at most at once, or `places`: how many calls
    are under way at most; 0 for either that is not limited. `web`: its calls a second; the batch makes ten times as
    many. `work`: the seconds that an answer takes; `spread`: by how much of it, up or down. `closed`: the batch makes
    its calls one after the other on so many connections, as fast as it can, instead. `out`: the second in which an outage
    begins, and that in which it ends, from the first request on; `failing`: the share of attempts that fail at any time.
    """

    name: str
    policy: str
    web: float
    work: float = 0.5
    spread: float = 0.0
    rate: float = 0.0
    burst: float = 1.0
    places: int = 0
    closed: int = 0
    out: tuple[float, float] = (0.0, 0.0)
    failing: float = 0.0


SCENES = [
    Scene("rate", "rate: {kind: rate, rate: 50/s, burst: 1}", 5, rate=50),
    Scene("places", "concurrency: {max: 40, queue: 2000}", 8, places=40),
    Scene("places-spread", "concurrency: {max: 40, queue: 2000}", 8, spread=0.5, places=40),
    Scene("places-closed", "concurrency: {max: 40, queue: 2000}", 8, places=40, closed=100),
    Scene("places-closed-spread", "concurrency: {max: 40, queue: 2000}", 8, spread=0.5, places=40, closed=100),
    Scene("few-places", "concurrency: {max: 8, queue: 2000}", 1.6, places=8),
    Scene("few-places-closed", "concurrency: {max: 8, queue: 2000}", 1.6, places=8, closed=40),
    Scene("outage", "timeouts: {total: 'off'}", 5, out=(10, 20)),
    Scene("bucket", "bucket: {kind: quota, capacity: 100}", 20, work=0.1, failing=0.2),
]
#: The apps of equal weight for `--fair`, each with its connections.
EQUALS = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50}


# -- the upstream ---------------------------------------------------------------------------------------------------


def serve(port: int, scene: Scene) -> None:
    """Answer each request `work` seconds after it came, on connections that stay open."""
    asyncio.run(_serve(port, scene))


async def _serve(port: int, scene: Scene) -> None:
    chance, begun = random.Random(3), math.inf

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                at = time.monotonic()
                begun = min(begun, at)
                if scene.out[0] <= at - begun < scene.out[1] or chance.random() < scene.failing:
                    writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                    continue
                await asyncio.sleep(scene.work * (1 + scene.spread * chance.uniform(-1, 1)))
                writer.write(b"HTTP/1.1 200 OK\r\nX-At: %.6f\r\nContent-Length: 2\r\n\r\nok" % at)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1000)
    await server.serve_forever()


# -- the apps -------------------------------------------------------------------------------------------------------


@dataclass
class Took:
    """A call: its app, when it was made, when it came to the upstream, how long it took, and its status."""

    app: str
    at: float
    sent: float
    seconds: float
    status: int


class Load:
    """The calls of both apps, each on a connection of its own unless one is free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.took: list[Took] = []
        self.late: list[float] = []

    async def call(self, app: str, due: float) -> None:
        begun = time.monotonic()
        self.late.append(begun - due)
        if self._free:
            reader, writer = self._free.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET /a/x HTTP/1.1\r\nHost: localhost\r\nX-App: {app}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        self._free.append((reader, writer))
        sent = re.search(rb"(?i)x-at: ([0-9.]+)", head)
        took = time.monotonic() - begun
        self.took.append(Took(app, begun, float(sent[1]) if sent else begun, took, int(head[9:12])))

    async def open(self, app: str, rate: float, seconds: float) -> None:
        """Make calls at random times, so many a second."""
        chance, due, calls = random.Random(app), time.monotonic(), []
        end = due + seconds
        while (due := due + chance.expovariate(rate)) < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            calls.append(asyncio.create_task(self.call(app, due)))
        if app == "web":
            await asyncio.gather(*calls)
        else:
            for each in calls:
                each.cancel()

    async def closed(self, app: str, connections: int, seconds: float) -> None:
        async def one() -> None:
            while True:
                await self.call(app, time.monotonic())

        calls = [asyncio.create_task(one()) for _ in range(connections)]
        await asyncio.sleep(seconds)
        for each in calls:
            each.cancel()


# -- what is possible -----------------------------------------------------------------------------------------------


def best(scene: Scene, took: list[Took]) -> float:
    """The web's 99th percentile of the same arrivals, where its calls are always first."""
    chance = random.Random(3)
    arrivals = sorted((each.at, each.app != "web") for each in took)
    if not arrivals or not (scene.places or scene.rate):
        return math.nan
    gives = _places(scene, arrivals, chance) if scene.places else _tokens(scene, arrivals)
    return p99([seconds for is_batch, seconds in gives if not is_batch])


def _places(scene: Scene, arrivals: list[tuple[float, bool]], chance: random.Random) -> Iterator[tuple[bool, float]]:
    ends: list[float] = []
    waiting: list[tuple[bool, float]] = []
    coming = iter(arrivals)
    following = next(coming, None)
    now = 0.0
    while following is not None or waiting:
        if (
            following is not None
            and (not waiting or len(ends) >= scene.places)
            and (len(ends) < scene.places or following[0] <= ends[0])
        ):
            now = max(now, following[0])
            heapq.heappush(waiting, (following[1], following[0]))
            following = next(coming, None)
        elif len(ends) >= scene.places:
            now = max(now, ends[0])
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        while waiting and len(ends) < scene.places:
            is_batch, came = heapq.heappop(waiting)
            end = now + scene.work * (1 + scene.spread * chance.uniform(-1, 1))
            heapq.heappush(ends, end)
            yield is_batch, end - came


def _tokens(scene: Scene, arrivals: list[tuple[float, bool]]) -> Iterator[tuple[bool, float]]:
    waiting: list[tuple[bool, float]] = []
    coming = iter(arrivals)
    following = next(coming, None)
    level, now = scene.burst, arrivals[0][0]
    while following is not None or waiting:
        due = now + max(0.0, 1 - level) / scene.rate
        at = following[0] if following is not None and (not waiting or following[0] <= due) else due
        level, now = min(scene.burst, level + (at - now) * scene.rate), at
        if following is not None and following[0] <= now:
            heapq.heappush(waiting, (following[1], following[0]))
            following = next(coming, None)
        while waiting and level >= 1 - 1e-9:
            level -= 1
            is_batch, came = heapq.heappop(waiting)
            yield is_batch, now - came + scene.work


def overtaken(took: list[Took]) -> float:
    """How many of the batch's calls came to the upstream while a call of the web's was under way to it, at the 99th
    percentile.
    """
    sent = sorted(each.sent for each in took if each.app != "web")
    web = [each for each in took if each.app == "web"]
    return p99([bisect_left(sent, each.sent) - bisect_left(sent, each.at) for each in web])


def p99(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.99 * len(times)) - 1] if times else math.nan


# -- a run ----------------------------------------------------------------------------------------------------------


@contextmanager
def running(scene: Scene, workers: int) -> Iterator[int]:
    """The upstream, and redrive before it; its port."""
    upstream, port, admin = free_port(), free_port(), free_port()
    process = multiprocessing.Process(target=serve, args=(upstream, scene), daemon=True)
    process.start()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "redrive.yaml"
        file.write_text(
            f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nworkers: {workers}\n{APPS}"
            f"upstreams:\n  a:\n    url: http://127.0.0.1:{upstream}/\n    {scene.policy}\n"
        )
        proxy = subprocess.Popen(
            [sys.executable, "-m", "proxy", "run", "-c", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert proxy.stdout is not None
            while json.loads(proxy.stdout.readline()).get("event") != "ready":
                pass
            yield port
        finally:
            proxy.terminate()
            proxy.communicate()
            process.kill()
            process.join()


async def play(scene: Scene, port: int, seconds: float, beside: bool) -> Load:
    load = Load(port)
    apps = [load.open("web", scene.web, seconds)]
    if beside and scene.closed:
        apps.append(load.closed("batch", scene.closed, seconds + 5))
    elif beside:
        apps.append(load.open("batch", 10 * scene.web, seconds + 5))
    await asyncio.gather(*apps)
    return load


async def share(port: int, connections: dict[str, int], seconds: float) -> dict[str, int]:
    """Have apps make calls one after the other on so many connections each. How many calls of each were served."""
    load = Load(port)
    await asyncio.gather(*(load.closed(app, count, seconds) for app, count in connections.items()))
    return {app: sum(each.app == app and each.status == 200 for each in load.took) for app in connections}


def jain(got: dict[str, int]) -> float:
    """Jain's index of what the apps got."""
    return sum(got.values()) ** 2 / (len(got) * sum(each**2 for each in got.values()))


def beside(scene: Scene, workers: int, seconds: float) -> str:
    """The line of a scene: the web alone, and beside the batch."""
    with running(scene, workers) as port:
        alone = asyncio.run(play(scene, port, seconds, beside=False))
    with running(scene, workers) as port:
        both = asyncio.run(play(scene, port, seconds, beside=True))
    web = [[each for each in load.took if each.app == "web"] for load in (alone, both)]
    one, two = (p99([each.seconds for each in calls]) for calls in web)
    served = " / ".join(f"{sum(each.status == 200 for each in calls) / len(calls):.2%}" for calls in web)
    possible = best(scene, both.took)
    batch = [each for each in both.took if each.app != "web"]
    return (
        f"{scene.name:20}{one:9.3f}{two:9.3f}{two / one - 1:+8.1%}{possible:10.3f}{possible / one - 1:+8.1%}"
        f"{p99(both.late):9.4f}{overtaken(both.took):11.0f}  {served:>19}"
        f"  {sum(each.status == 200 for each in batch) / (seconds + 5):5.1f}/s of {len(batch) / (seconds + 5):5.1f}"
    )


def fair(scene: Scene, workers: int, seconds: float) -> str:
    """The line of a scene with `--fair`."""
    possible = scene.rate or scene.places / scene.work
    with running(scene, workers) as port:
        got = asyncio.run(share(port, {"batch": 2 * max(scene.places, 50)}, seconds))
        alone = got["batch"] / (seconds - scene.work)  # the first answers come after so long
    with running(scene, workers) as port:
        got = asyncio.run(share(port, EQUALS, seconds))
    each = ", ".join(f"{app} {count}" for app, count in got.items())
    return f"{scene.name:20}{alone:9.1f}/s of {possible:5.1f} ({alone / possible:6.1%})  Jain's index {jain(got):.4f} ({each})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(each.name for each in SCENES), help="the scenes, by name")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--fair", action="store_true", help="the batch alone, and apps of equal weight")
    options = parser.parse_args()
    print(f"{options.workers} workers, {options.seconds:.0f} s each; the web's 99th percentiles in seconds")
    if not options.fair:
        print(
            f"{'scene':20}{'alone':>9}{'beside':>9}{'':>8}{'possible':>10}{'':>8}{'late':>9}{'overtaken':>11}"
            f"  {'served':>19}  {'the batch':>7}"
        )
    for scene in (each for each in SCENES if each.name in options.only.split(",")):
        if not options.fair or scene.rate or scene.places:
            line = (fair if options.fair else beside)(scene, options.workers, options.seconds)
            print(f"{line}  load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
