"""A run: two workers in front of an upstream that does what chance says, in rounds; after each the books are balanced.

    .venv/bin/python tests/chaos/chaos_run.py --seed 7 --seconds 60

A round is a few seconds of calls while something happens to the process (reloads, good and bad; Redis gone and back;
the log's disk full for a while; a worker killed), then quiet, then the books. What can't be equal by nature:

- After a kill -9 the worker's calls in flight have no line, and what it had not reported or written is lost: metrics
  are gathered every second, lines written within 40 ms (`SLACK` leaves a slow machine room). So calls that ended in
  that time may lack in one book or the other, and nothing else may.
- A level then may lack what those calls paid and earned, and what calls in flight had paid.
- With Redis gone each worker goes on by itself: its bucket there is held to its bounds alone from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
from chaos_apps import Crowd
from chaos_books import (
    RETRYABLE,
    Differences,
    Line,
    Quota,
    Samples,
    Throttle,
    apps_balance,
    budget,
    call_of,
    metrics_balance,
    rate,
    retries_of,
    sent,
    upstream_balance,
)
from chaos_upstream import ChaosUpstream
from support.process import COMMAND, LISTEN, environment
from support.redis_server import FOUND, RedisServer

APPS = 16
#: Seconds that a thing may take that is waited for; and what a killed worker may have kept to itself.
SECONDS, SLACK = 30.0, 3.0
UPSTREAMS = ("quota", "throttle", "budget", "pace", "tight", "watched", "hedged", "fleet", "pair")
COSTS = {"transient": 5.0, "timeout": 10.0, "throttling": 7.0}
QUOTA = Quota(500_000, COSTS, 1.0)
THROTTLE = Throttle(80_000, 0.1)
HEDGED = Throttle(0, 0.1, (429, 500, 502, 503, 504, 409, "connect_failure", "refused_stream", "reset"))
BURST, PERCENT, TIGHT = 1_000_000, 40.0, 60.0

CONFIG = """
workers: 2
log: {{format: json}}
pool: {{idle: 500ms}}
drain: 5s
buffers: {{per_request: 32KiB, total: 4MiB}}
redis: {{url: "{redis}", timeout: 100ms}}
buckets:
  quota: &quota
    kind: quota
    capacity: 1000000
    initial: 500000
    retry_cost: 5
    timeout_cost: 10
    throttling_cost: 7
    success_refund: 1
  fleet: {{kind: quota, capacity: 1000000, initial: 500000, timeout_cost: 10, throttling_cost: 7, store: redis}}
  throttle: {{kind: throttle, max_tokens: 100000, token_ratio: 0.1, initial: 80000}}
  budget: {{kind: budget, percent: 40, min_per_second: 0, window: 1h}}
  pace: {{kind: rate, rate: 0.001/s, burst: 1000000}}
  tight: {{kind: quota, capacity: 60, retry_cost: 5}}
defaults:
  strategy: {{kind: standard, max_attempts: 4, backoff: {{base: 1ms, max: {longest}ms}}}}
  bucket: off
  timeouts: {{connect: 2s, attempt: 500ms, total: 10s, idle: 1s}}
upstreams:
  quota: {{url: "{url}", bucket: quota}}
  throttle: {{url: "{url}", bucket: throttle}}
  budget: {{url: "{url}", bucket: budget, pushback: {{cooldown: "off"}}}}
  pace: {{url: "{url}", rate: pace}}
  tight: {{url: "{url}", bucket: tight}}
  watched: {{url: "{url}", bucket: quota, mode: observe}}
  hedged:
    url: "{url}"
    bucket: throttle
    strategy: {{kind: hedging, max_attempts: 3, hedging_delay: 20ms}}
  fleet: {{url: "{url}", bucket: fleet}}
  pair: {{url: ["{url}", "http://127.0.0.1:9"], bucket: quota}}
"""
BROKEN = "upstreams: {quota: {url: [}\n"


class Sidecar:
    """The real command with two workers, its log in a file: what a disk does to it can be done to this one.

    `parent` is its pid; `url` and `admin` are where it listens.
    """

    def __init__(self, folder: Path, config: str) -> None:
        self.file, self.log, self.errors = folder / "redrive.yaml", folder / "log.json", folder / "errors.txt"
        self.config = config
        self.file.write_text(LISTEN + config)

    async def __aenter__(self) -> Self:
        # Appending, as a shell's `>>` and a container's log are: several processes write there.
        with self.log.open("ab") as out, self.errors.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *COMMAND, "run", "-c", str(self.file), stdout=out, stderr=errors, env=environment()
            )
        self.parent = self.process.pid
        await until(lambda: self.process.returncode is not None or self.events("ready"), "it is ready")
        (ready,) = self.events("ready")
        self.url, self.admin = f"http://{ready['listen'][0]}", f"http://{ready['admin'][0]}"
        self.port = int(ready["listen"][0].rsplit(":", 1)[1])
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        if error is not None:
            sys.stderr.write(self.errors.read_text())

    def lines(self) -> tuple[list[Line], int]:
        """Every line of the log, and how many are none (half of one is left by a worker that was killed)."""
        whole, torn = [], 0
        for text in self.log.read_bytes().split(b"\n"):
            try:
                whole.append(json.loads(text)) if text else None
            except ValueError:
                torn += 1
        return whole, torn

    def events(self, event: str) -> list[Line]:
        return [line for line in self.lines()[0] if line["event"] == event]

    def workers(self) -> set[int]:
        """The pids of live workers."""
        found = set()
        for task in Path(f"/proc/{self.parent}/task").iterdir():
            found.update(int(child) for child in (task / "children").read_text().split() if is_alive(int(child)))
        return found

    async def page(self, path: str) -> str:
        async with asyncio.timeout(SECONDS), self.session.get(f"{self.admin}{path}") as answered:
            return await answered.text()

    async def metrics(self) -> Samples:
        return Samples(await self.page("/metrics"))

    async def levels(self) -> dict[str, float]:
        shown: Any = json.loads(await self.page("/buckets"))
        rows = shown["buckets"] if isinstance(shown, dict) else shown
        return {row["bucket"]: float(row["level"]) for row in rows}

    async def reload(self) -> int:
        async with asyncio.timeout(SECONDS), self.session.post(f"{self.admin}/reload") as answered:
            return answered.status

    def descriptors(self) -> int:
        """Open files of all its processes."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in {self.parent, *self.workers()})

    def room_for_log(self, size: int) -> None:
        """The log's disk has room for so many bytes more: -1 for any number. What is written beyond fails (EFBIG)."""
        most = resource.RLIM_INFINITY if size < 0 else self.log.stat().st_size + size
        for pid in {self.parent, *self.workers()}:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(reached: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Ask again until it is so: other processes set no event here."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = reached()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{seconds:g} s, and not yet: {what}") from None


class Chaos:
    """One run. `kills` are the loop's times of workers killed; `outage`: Redis has been away."""

    def __init__(self, folder: Path, seed: int, upstream: ChaosUpstream, redis: RedisServer | None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.upstream = upstream
        self.redis = redis
        self.folder = folder
        self.longest = 10
        self.kills: list[float] = []
        self.outage = redis is None
        self.reloads: Counter[str] = Counter()
        self.sidecar = Sidecar(folder, self.config())

    def config(self) -> str:
        where = self.redis.url if self.redis is not None else "redis://127.0.0.1:9/0"
        return CONFIG.format(url=self.upstream.url, redis=where, longest=self.longest)

    # -- what happens ---------------------------------------------------------------------------------------------

    async def nothing(self) -> None:
        """Calls alone."""

    async def reload(self) -> None:
        """A good configuration, asked for or found."""
        self.longest = self.longest % 20 + 1
        before = await self.reloaded("success")
        self.sidecar.file.write_text(LISTEN + self.config())
        if self.random.random() < 0.5:
            assert await self.sidecar.reload() == 200
        else:
            self.sidecar.process.send_signal(signal.SIGHUP)

        async def taken() -> bool:
            return await self.reloaded("success") > before

        await until(taken, "a good file is taken")

    async def reload_badly(self) -> None:
        """A file that is refused, and the good one again."""
        before = await self.reloaded("failure")
        self.sidecar.file.write_text(BROKEN)

        async def refused() -> bool:
            return await self.reloaded("failure") > before

        await until(refused, "a bad file is refused")
        await self.reload()

    async def reloaded(self, result: str) -> int:
        said = await self.sidecar.metrics()
        return said.by("redrive_config_reloads_total", "result")[result,]

    async def kill(self) -> None:
        """A worker dies at once."""
        pid = self.random.choice(sorted(self.sidecar.workers()))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_alive(pid), "the worker is dead")
        self.kills.append(asyncio.get_running_loop().time())
        await until(lambda: len(self.sidecar.workers()) == 2, "another worker is there")

    async def roll(self) -> None:
        """All workers are replaced."""
        before = len(self.sidecar.events("rolled"))
        self.sidecar.process.send_signal(signal.SIGUSR2)
        await until(lambda: len(self.sidecar.events("rolled")) > before, "all workers were replaced")

    async def redis_away(self) -> None:
        """Redis hangs, or is gone with all that it knew; and comes back."""
        if self.redis is None:
            return
        self.outage = True
        hangs = self.random.random() < 0.5
        (self.redis.stop if hangs else self.redis.kill)()

        async def out() -> bool:
            return (await self.sidecar.metrics()).one("redrive_redis_up") == 0

        await until(out, "Redis is missed")
        (self.redis.go_on if hangs else self.redis.start)()

        async def back() -> bool:
            return (await self.sidecar.metrics()).one("redrive_redis_up") == 1

        await until(back, "Redis is back")

    async def disk_full(self) -> None:
        """The log's disk is full in the middle of a line, for a while, and then not."""
        before = len(self.answers)
        self.sidecar.room_for_log(self.random.randrange(2000))
        await until(lambda: len(self.answers) > before + 100, "calls go on without a log")
        self.sidecar.room_for_log(-1)

    @property
    def answers(self) -> dict[str, Any]:
        return self.crowd.answers

    # -- the run --------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> dict[str, Any]:
        """Rounds for about so long, each balanced, and an end under load; figures for people."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        async with self.sidecar:
            self.crowd = Crowd(self.sidecar.port, UPSTREAMS, self.seed)
            await self.warm_up()
            plans: list[list[Callable[[], Awaitable[None]]]] = [
                [self.reload, self.reload_badly],
                [self.disk_full, self.redis_away, self.reload],
                [self.kill, self.reload_badly],
            ]
            rounds = 0
            while rounds < len(plans) or loop.time() < ends:
                if rounds < len(plans):
                    plan = plans[rounds]
                else:
                    some = (self.reload, self.reload_badly, self.disk_full, self.redis_away, self.roll, self.kill)
                    plan = self.random.sample(some, self.random.randrange(1, 4))
                rounds += 1
                await self.crowd.call(APPS, lambda plan=plan: self.happen(plan, max(1.5, seconds / 10)))  # type: ignore[misc]
                await self.balance(f"round {rounds}: {', '.join(each.__name__ for each in plan)}")
            await self.end()
        lines = [line for line in self.sidecar.lines()[0] if line["event"] == "call"]
        return {
            "calls": len(lines),
            "attempts": sum(len(sent(line)) for line in lines),
            "rounds": rounds,
            "kills": len(self.kills),
            "outcomes": dict(Counter(line["outcome"] for line in lines)),
        }

    async def happen(self, plan: list[Callable[[], Awaitable[None]]], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for act in plan:
            await act()
        await until(lambda: loop.time() >= begun + seconds, "a round's calls were made", seconds + SECONDS)

    async def warm_up(self) -> None:
        """What is opened once (a connection to Redis, a look at the metrics) is open before files are counted."""
        self.upstream.calm = True
        crowd = Crowd(self.sidecar.port, UPSTREAMS, self.seed)
        crowd.rounds = -1
        self.crowd = crowd
        await crowd.call(4, self.enough)
        self.upstream.calm = False
        self.crowd = crowd
        await self.settled()
        self.files = await self.resting_files()

    async def enough(self) -> None:
        await until(lambda: len(self.answers) > 100, "calls are served")

    async def resting_files(self) -> int:
        """Open files once nothing is under way: as many as before, several times over."""
        found = [0]
        for _ in range(20):
            found.append(self.sidecar.descriptors())
            await asyncio.sleep(0.01)
        return min(found[1:])

    async def settled(self) -> None:
        """Nothing waits, nothing is kept, nobody is connected, on either side."""
        names = ("redrive_waiting_calls", "redrive_buffered_bytes", "redrive_connections")
        last: dict[str, float] = {}

        async def nothing_is_left() -> bool:
            said = await self.sidecar.metrics()
            last.update({name: said.one(name) for name in names}, upstream=float(len(self.upstream.open)))
            return not any(last.values())

        try:
            await until(nothing_is_left, "nothing is held")
        except AssertionError:
            raise AssertionError(f"held {SECONDS:g} s after the last call: {last}") from None

    async def balance(self, what: str) -> None:
        """The books of everything so far."""
        await self.settled()
        differences = Differences()
        patience = asyncio.get_running_loop().time() + 5.0
        while True:  # the last lines and counts may be on their way
            differences = await self.books()
            if not differences.rows or asyncio.get_running_loop().time() > patience:
                break
            await asyncio.sleep(0.1)
        assert not differences.rows, f"\nseed {self.seed}, {what}: the books do not balance\n{differences.table()}"

    async def books(self) -> Differences:
        differences = Differences()
        every, torn = self.sidecar.lines()
        differences.within("lines that are none", "all", 0, torn, len(self.kills))
        named: dict[str, Line] = {}
        for line in every:
            if line["event"] == "dropped":
                differences.equal("lines dropped", "all", line["lines"], 0)
            if line["event"] == "repeated":
                differences.equal("lines left out", "all", line["lines"], 0)
            if line["event"] == "failed":
                differences.equal("failed", str(line.get("what")), line.get("error"), "")
            if line["event"] == "call":
                call = call_of(line)
                differences.equal("lines of a call", call, 2 if call in named else 1, 1)
                named[call] = line
        lost = self.lost(named)
        lines = list(named.values())
        crowd = self.crowd
        differences.equal("calls answered twice", "all", crowd.twice, [])
        differences.equal("calls never answered", "all", crowd.unanswered, [])
        unknown = set(named) - set(crowd.begun)
        differences.equal("calls in the log that nobody made", "all", sorted(unknown), [])
        apps_balance(named, crowd.answers, differences, lost)
        upstream_balance(lines, self.upstream, differences)
        for call in {call for call, _ in self.upstream.seen} - set(named) - lost:
            differences.equal("calls: upstream / log", call, "seen", "no line")
        said = await self.sidecar.metrics()
        metrics_balance(lines, said, differences, self.unreported(named))
        await self.levels_balance(lines, differences, len(lost))
        self.rest_balances(said, differences)
        return differences

    def lost(self, named: dict[str, Line]) -> set[str]:
        """Calls without a line that a kill may have taken: they had begun before it, and had not ended long before."""
        found = set()
        for call, begun in self.crowd.begun.items():
            if call not in named and any(begun <= kill and self.ended(call) >= kill - SLACK for kill in self.kills):
                found.add(call)
        return found

    def ended(self, call: str) -> float:
        answer = self.crowd.answers.get(call)
        return answer.at if answer is not None else float("inf")

    def unreported(self, named: dict[str, Line]) -> int:
        """Calls with a line that ended so shortly before a kill that they may not have been counted, or the reverse."""
        begun = self.crowd.begun
        if not self.kills:
            return 0
        return sum(
            any(begun[call] <= kill and ((self.ended(call) == float("inf") and begun[call] >= kill - 2 * SLACK)
                or kill - SLACK <= self.ended(call) <= kill + 0.5) for kill in self.kills)
            for call in begun
        )  # fmt: skip

    async def levels_balance(self, lines: list[Line], differences: Differences, lost: int) -> None:
        """Levels = what the rules give. A lost call may have paid for three retries, or earned what it would."""
        levels = await self.sidecar.levels()
        by: dict[str, list[Line]] = {name: [] for name in UPSTREAMS}
        for line in lines:
            if line["upstream"]:
                by[line["upstream"]].append(line)
        book = "levels: rules / buckets"
        paid = lost * 3 * max(COSTS.values())
        quota = QUOTA.initial + sum(QUOTA.change(line) for line in (*by["quota"], *by["pair"]))
        differences.within(book, "quota", quota - paid, levels["quota"], quota + lost)
        throttle = THROTTLE.initial + sum(THROTTLE.change(line) for line in by["throttle"])
        throttle += sum(HEDGED.change(line) for line in by["hedged"])
        differences.within(book, "throttle", throttle - 4 * lost - 0.001, levels["throttle"], throttle + lost + 0.001)
        granted = budget(by["budget"], PERCENT)
        differences.within(book, "budget", granted - 4 * lost, levels["budget"], granted + lost)
        left = rate(by["pace"], BURST)
        differences.within(book, "pace", left - 4 * lost, levels["pace"], left + 1)
        differences.within(book, "tight", 0, levels["tight"], TIGHT)
        earned = sum(5 if line["attempts"] > 1 else 1 for line in by["tight"] if line["outcome"] == "success")
        most = (TIGHT + earned) / 5
        differences.within("retries: rules / log", "tight", 0, retries_of(by["tight"]), most)
        fleet = QUOTA.initial + sum(QUOTA.change(line) for line in by["fleet"])
        if self.outage or lost:
            differences.within(book, "fleet", 0, levels["fleet"], 1_000_000)
        else:
            differences.within(book, "fleet", fleet, levels["fleet"], fleet)
        for line in lines:
            records = sent(line)
            if line["upstream"] == "quota":
                for before, record in pairwise(records):
                    if before.get("class") in RETRYABLE and before["decision"] != "probed":
                        expected = COSTS[before["class"]]
                        differences.equal("prices: rules / log", call_of(line), expected, record.get("price"))

    def rest_balances(self, said: Samples, differences: Differences) -> None:
        """What is open and held."""
        differences.equal("workers", "all", int(said.by("redrive_workers", "state")["ready",]), 2)
        differences.equal("worker restarts", "all", int(said.one("redrive_worker_restarts_total")), len(self.kills))
        files = self.sidecar.descriptors()
        differences.within("open files", "now / at the beginning", 0, files, self.files + 2)

    async def end(self) -> None:
        """Told to end under load, it ends: calls get `drain`, and everything is told."""

        async def ended() -> None:
            await asyncio.sleep(0.3)
            self.sidecar.process.send_signal(signal.SIGTERM)
            status = await asyncio.wait_for(self.sidecar.process.wait(), SECONDS)
            assert status == 0, f"seed {self.seed}: exit status {status}"
            self.crowd.over = True

        self.workers_at_end = self.sidecar.workers()
        await self.crowd.call(APPS, ended)
        await until(lambda: not any(is_alive(pid) for pid in self.workers_at_end), "workers are gone")
        await until(lambda: not self.upstream.open, "nothing is open at the upstream")
        every, torn = self.sidecar.lines()
        assert every[-1]["event"] == "ended", f"seed {self.seed}: {every[-1]}"
        named = {call_of(line): line for line in every if line["event"] == "call"}
        differences = Differences()
        differences.within("lines that are none", "all", 0, torn, len(self.kills))
        apps_balance(named, self.crowd.answers, differences, self.lost(named))
        upstream_balance(named.values(), self.upstream, differences)
        lost = self.lost(named)
        for call in {call for call, _ in self.upstream.seen} - set(named) - lost:
            differences.equal("calls: upstream / log", call, "seen", "no line")
        for line in every:
            if line["event"] == "failed":
                differences.equal("failed", str(line.get("what")), line.get("error"), "")
        errors = self.sidecar.errors.read_text()
        differences.equal("standard error", "tracebacks", "Traceback" in errors, False)
        assert not differences.rows, f"\nseed {self.seed}, the end: the books do not balance\n{differences.table()}"


async def play(folder: Path, seed: int, seconds: float) -> dict[str, Any]:
    """One run with this seed."""
    redis = RedisServer() if FOUND is not None else None
    try:
        async with ChaosUpstream(seed) as upstream:
            return await Chaos(folder, seed, upstream, redis).run(seconds)
    finally:
        if redis is not None:
            redis.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the configuration and the log")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}, {options.seconds:g} s", flush=True)
    with TemporaryDirectory(prefix="redrive-chaos-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            figures = asyncio.run(play(folder, seed, options.seconds))
        except AssertionError as error:
            print(f"CHAOS_SEED={seed}: {error}", file=sys.stderr)
            return 1
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
