"""`python bench/fleet.py`: what a fleet's buckets cost its Redis: messages of each sidecar, and Redis's processor, by state.

Sidecars are the store's own classes (`proxy.stores.redis`), many to a process, each with a connection of its own; Redis is
a real one, started for the run. For each state the table has the scripts that Redis ran a second and sidecar (`INFO
commandstats`), the processor time that it took (`INFO cpu`), the time for which the bench's own loops were not late
(below some nine tenths the machine has too few processors for the run: the sidecars then say less than they would), the
connections, and what the state is held to. Exits with 1 if a target is missed.

    python bench/fleet.py                         all states, 50 sidecars
    python bench/fleet.py --sidecars 400 --states idle healthy --seconds 20
    python bench/fleet.py --processes 4           so many processes carry the sidecars

The states: idle (the bucket was used, and no calls come), healthy (calls succeed; a quota, and with `pace` a rate that
is not used up), failing (every tenth call fails once), scarce (the same, with a quota of 500 for all: no retry is to be
refused), drained (calls fail, and the quota is empty), waiting (calls wait for a rate of 50/s), sharing (calls wait for a rate of 5/s
for each sidecar), holding (calls are held by a cooldown), places (calls wait for places under `concurrency`,
of which there is one for each sidecar, and end after a tenth of a second), limited (calls are held by a limit that all
sidecars found at once), outage (calls are held by an outage, whose probes can't connect).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from measure import free_port
from redis import Redis

from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.token_bucket import TokenGate
from proxy.retry.facts import MappingFields, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, QuotaSpec, RateSpec
from proxy.retry.policies.policy import Backoff, Concurrency, Policy, Strategy
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.stores.redis.factory import RedisFactory
from proxy.stores.redis.members import SELDOM
from proxy.stores.redis.store import RedisStore

#: Calls a second of each sidecar, unless `--calls` says otherwise.
CALLS = 10.0
#: Seconds between two looks of a process at its loop: one that runs late has fewer.
TICK = 0.05
#: The part of a core that Redis may use for a thousand sidecars.
CORES = 0.25
#: Tokens a second of the rate that calls wait for: in all, and for each sidecar where all share it; and the calls that
#: wait in each sidecar.
RATE, RATE_EACH, WAITERS = 50.0, 5.0, 5
#: Seconds after which a process reports that waits for a token that comes later.
RENEWED = 6.0
#: Seconds in which a state settles, before anything is counted: in any fleet, and for each sidecar.
SETTLES, SETTLES_EACH = 4.0, 0.006
#: Scripts a second and sidecar, 5 % more at most; for `waiting` scripts a token, beside the reports of the processes.
TARGETS = {
    "healthy": 1.0,
    "drained": 2.0,
    "waiting": 1.0,
    "sharing": 1.0,
    "holding": 4.0,
    "places": 4.0,
    "limited": 4.0,
    "outage": 4.0,
}
STATES = (
    "idle",
    "healthy",
    "pace",
    "failing",
    "scarce",
    "drained",
    "waiting",
    "sharing",
    "holding",
    "places",
    "limited",
    "outage",
)
#: The states in which the fleet shares what is known of an upstream, not a bucket alone.
SHARED = ("holding", "places", "limited", "outage")
#: Seconds for which a call has its place.
UNDER_WAY = 0.1
#: The part of the attempts that are refused while a limit holds calls, so that it goes on.
REFUSALS = 0.2
RULES = Concurrency(1, 1000, 3600.0)
REFUSED = AttemptEnding(False, True, False, True, "", "503")
UNCONNECTED = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")
#: Seconds of backoff before a retry.
BACKOFF = 0.1
STANDARD = Strategy("standard", "standard", 3, Backoff(BACKOFF, 20.0, 2.0, "none"))
REQUEST = Request("GET", "u.test", "/")


class Run(NamedTuple):
    """One state of a fleet. `settles`: the seconds before anything is counted; `calls`: calls a second and sidecar."""

    url: str
    state: str
    sidecars: int
    seconds: float
    settles: float
    calls: float


class Figures(NamedTuple):
    """The figures of one state: scripts a second and sidecar, Redis's processor (cores), microseconds a script, what came
    of the calls (tokens that calls waited for, granted, refused), the part of the time for which the loops of the bench
    were not late, and the connections to Redis.
    """

    scripts: float
    cores: float
    micros: float
    tokens: int
    granted: int
    refused: int
    on_time: float
    connections: int


@dataclass
class Sidecar:
    """One process's store as the process uses it, and its calls."""

    store: RedisStore
    factory: RedisFactory
    scope: ScopeState
    granted: int = 0
    refused: int = 0
    tokens: int = 0


class Waiting:
    """A call that waits at a gate; when it has its token, the next one comes."""

    def __init__(self, sidecar: Sidecar, gate: TokenGate) -> None:
        self._sidecar, self._gate = sidecar, gate
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Ask until the gate lets the call wait."""
        now = self._loop.time()
        while (at := self._gate.ask(self, now)) <= now:
            self._sidecar.tokens += 1
        self.retime(at)

    def retime(self, at: float) -> None:
        """Ask again at this time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self.ask)


class Placed:
    """A call that waits for a place; when it has ended, the next one comes."""

    def __init__(self, sidecar: Sidecar, places: Places) -> None:
        self._sidecar, self._places = sidecar, places
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Ask for a place."""
        now = self._loop.time()
        at = self._places.ask(self, RULES, now)
        if at <= now:
            self._sidecar.granted += 1
            self._loop.call_later(UNDER_WAY, self._end)
        else:
            self.retime(at)

    def _end(self) -> None:
        self._places.give_back(self._loop.time())
        self.ask()

    def retime(self, at: float) -> None:
        """Ask again at this time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self.ask)


class Held:
    """A call that is held for the whole run, or asks once."""

    def retime(self, at: float) -> None:
        """Do nothing: the call is not sent."""


def spec_of(state: str, sidecars: int, calls: float) -> BucketSpec:
    """The bucket that the fleet shares in this state."""
    if state == "waiting":
        return RateSpec(RATE, RATE, store="redis")
    if state == "sharing":
        return RateSpec(RATE_EACH * sidecars, RATE_EACH * sidecars, store="redis")
    if state == "pace":
        return RateSpec(2 * calls * sidecars, 2 * calls * sidecars, store="redis")
    capacity = {"drained": 10.0, "scarce": 500.0}.get(state, 100.0 * sidecars)
    return QuotaSpec(capacity=capacity, store="redis")


async def make(run: Run) -> Sidecar:
    """A sidecar that is connected."""
    clock, state, sidecars = asyncio.get_running_loop().time, run.state, run.sidecars
    store = RedisStore(run.url, timeout=1.0, on_outage="share", clock=clock, notify=lambda *_, **__: None)
    factory = RedisFactory(Factory(), store, f"{state}:", clock)
    factory.upstreams = frozenset({"u"}) if state in SHARED else frozenset()
    spec = spec_of(state, sidecars, run.calls)
    ref = BucketRef(spec, "fleet")
    limit = Concurrency(sidecars) if state == "places" else None
    policy = Policy("u", "", STANDARD, None, rate=ref)
    if spec.kind != "rate":
        policy = Policy("u", "", STANDARD, ref, concurrency=limit)
    await store.open()
    return Sidecar(store, factory, Registry(factory).scope(policy, REQUEST, clock()))


def call(sidecar: Sidecar, state: str, number: int, now: float) -> None:
    """One call of the sidecar, and its retry if it has one."""
    scope = sidecar.scope
    if state == "pace":
        gate = scope.rate
        assert gate is not None
        waiter = Held()
        if gate.ask(waiter, now) > now:
            sidecar.refused += 1
            gate.leave(waiter, now)
        else:
            sidecar.granted += 1
        return
    bucket = scope.bucket
    assert bucket is not None
    bucket.begin(now)
    fails = state == "drained" or (state in ("failing", "scarce") and number % 10 == 0)
    if not fails:
        bucket.succeeded(None, now)
        return

    def answered(price: float, granted: bool) -> None:
        sidecar.granted, sidecar.refused = sidecar.granted + granted, sidecar.refused + (not granted)
        if granted and state != "drained":
            bucket.succeeded(price, asyncio.get_running_loop().time())

    price = bucket.price("transient")
    if bucket.take(price, now):
        answered(price, True)
    elif bucket.affords(price, now) == "ask":
        bucket.ask(price, now + BACKOFF, now, answered)
    else:
        sidecar.refused += 1


async def serve(sidecar: Sidecar, run: Run, offset: float, until: float) -> None:
    """The calls of one sidecar."""
    loop, state = asyncio.get_running_loop(), run.state
    if state in ("waiting", "sharing"):
        assert sidecar.scope.rate is not None
        for _ in range(WAITERS):
            Waiting(sidecar, sidecar.scope.rate).ask()
    if state == "holding":
        governor = sidecar.scope.governor
        caller = Caller(REQUEST, MappingFields([]), "r")
        caller.cools = True
        now = loop.time()
        governor.requests_wait(caller, 503, 600.0, sent=now, now=now, whole=True)
        for _ in range(WAITERS):
            held = Caller(REQUEST, MappingFields([]), "r")
            held.cools = True
            governor.ask(Held(), held, now)
    if state == "places":
        assert sidecar.scope.places is not None
        for _ in range(WAITERS):
            Placed(sidecar, sidecar.scope.places).ask()
    if state in ("limited", "outage"):
        if state == "outage":
            factory = sidecar.factory
            factory.listen()
            await factory.listening.wait()
        await trouble(sidecar, run, until)
        return
    if state in ("waiting", "sharing", "holding", "places", "idle"):
        if state == "idle":
            call(sidecar, "failing", 0, loop.time())
        await asyncio.sleep(until - loop.time())
        return
    await asyncio.sleep(offset / run.calls)
    number = random.randrange(10)  # which of its calls fail is not the same for all
    while loop.time() < until:
        call(sidecar, state, number, loop.time())
        number += 1
        await asyncio.sleep(1 / run.calls)


async def trouble(sidecar: Sidecar, run: Run, until: float) -> None:
    """Calls that are held by a limit or an outage, and the attempts of those that are let through: they are served, or
    can't connect.
    """
    loop, governor, state = asyncio.get_running_loop(), sidecar.scope.governor, run.state
    ending = UNCONNECTED if state == "outage" else REFUSED

    def come() -> Caller:
        caller = Caller(REQUEST, MappingFields([]), "r")
        caller.cools = caller.limits = caller.outages = True
        return caller

    for number in range(6):
        now, attempt = loop.time(), object()
        governor.traffic.flying += 2
        governor.traffic.answered_at = now - 1.0
        governor.traffic.failed()
        governor.failed(attempt, come(), ending, now, now, number > 0, False)
    calls = {Held(): come() for _ in range(WAITERS)}
    while loop.time() < until:
        now = loop.time()
        for waiter, caller in list(calls.items()):
            if governor.ask(waiter, caller, now)[0] <= now:
                attempt = object()
                governor.traffic.flying += 1
                governor.sent(waiter, attempt, now)
                del calls[waiter]
                calls[Held()] = come()
                if state == "outage":
                    governor.traffic.failed()
                    governor.failed(attempt, caller, ending, now, now, True, False)
                else:
                    sidecar.granted += 1
                    ends = refuse if random.random() < REFUSALS else answer
                    loop.call_later(UNDER_WAY, ends, governor, attempt, caller, now)
        await asyncio.sleep(max(0.02, run.sidecars / 5000))


def refuse(governor: Governor, attempt: object, caller: Caller, sent: float) -> None:
    """The attempt is refused: there are too many."""
    governor.traffic.failed()
    governor.failed(attempt, caller, REFUSED, sent, asyncio.get_running_loop().time(), False, False)


def answer(governor: Governor, attempt: object, caller: Caller, sent: float) -> None:
    """The attempt is answered well."""
    now = asyncio.get_running_loop().time()
    governor.traffic.went_well(now)
    governor.answered_well(attempt, caller, sent, now)


async def tick(until: float) -> int:
    """The number of times that the loop came round, of those for which there was time."""
    loop, count = asyncio.get_running_loop(), 0
    while loop.time() < until:
        count += 1
        await asyncio.sleep(TICK)
    return count


async def run_sidecars(run: Run, own: int, ready: Barrier) -> tuple[int, int, int, float]:
    """The sidecars of one process: how many tokens calls that waited got, retries granted and refused; and the part of
    the time for which the loop was not late.
    """
    fleet = [await make(run) for _ in range(own)]
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, ready.wait)
    until = loop.time() + run.settles + run.seconds
    work = [loop.create_task(serve(each, run, number / max(1, own), until)) for number, each in enumerate(fleet)]
    await asyncio.sleep(run.settles)
    before = [(each.tokens, each.granted, each.refused) for each in fleet]
    ticks = loop.create_task(tick(until))
    await asyncio.gather(*work)
    after = [(each.tokens, each.granted, each.refused) for each in fleet]
    lost = sum(each.store.outages for each in fleet)
    for each in fleet:
        each.store._running = False
    if lost:
        print(f"{run.state}: {lost} outages", file=sys.stderr)
    sums = [sum(row[place] for row in after) - sum(row[place] for row in before) for place in range(3)]
    return sums[0], sums[1], sums[2], await ticks * TICK / run.seconds


def run_part(run: Run, own: int, ready: Barrier, results: Callable[..., None]) -> None:
    """Run one process's sidecars, and report what came of them."""
    results(asyncio.run(run_sidecars(run, own, ready)))


def measure(run: Run, processes: int) -> Figures:
    """Run one state with so many processes."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes + 1), context.SimpleQueue()
    shares = [run.sidecars // processes + (number < run.sidecars % processes) for number in range(processes)]
    work = [context.Process(target=run_part, args=(run, own, ready, results.put)) for own in shares]
    for each in work:
        each.start()
    ready.wait()
    redis: Redis = Redis.from_url(run.url)
    time.sleep(run.settles)
    before, began = figures(redis), time.monotonic()
    time.sleep(run.seconds - 0.5)
    after, took = figures(redis), time.monotonic() - began
    connections = redis.info("clients")["connected_clients"] - 1
    sums = [0.0] * 4
    for _ in work:
        for place, value in enumerate(results.get()):
            sums[place] += value
    for each in work:
        each.join()
    redis.close()
    scripts, cpu = after[0] - before[0], after[1] - before[1]
    tokens, granted, refused = (round(each * took / run.seconds) for each in sums[:3])
    return Figures(
        scripts / took / run.sidecars,
        cpu / took,
        cpu / max(1, scripts) * 1e6,
        tokens,
        granted,
        refused,
        sums[3] / processes,
        connections,
    )


@contextlib.contextmanager
def redis_server(connections: int) -> Iterator[int]:
    """A Redis, or Valkey, for so many connections, without files; its port. Ends the program if there is none."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        sys.exit("the bench needs redis-server or valkey-server")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        where = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        server = subprocess.Popen([found, *where, "--maxclients", str(connections)], stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if b"eady to accept" in line:
                    break
            yield port
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


def figures(redis: Redis) -> tuple[int, float]:
    """The scripts that Redis has run, and its processor seconds."""
    stats = redis.info("commandstats")
    cpu = redis.info("cpu")
    scripts = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    return scripts, cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def judge(run: Run, found: Figures) -> tuple[str, str]:
    """The scripts of a state as they are shown, and its target, with "missed" if it was."""
    state, counted = run.state, found.scripts
    shown, target = f"{counted:.2f}", TARGETS.get(state)
    if state in ("waiting", "sharing"):
        tokens = found.tokens / (run.seconds - 0.5)
        renewals = 1 / RENEWED if run.state == "waiting" and run.sidecars / RATE > RENEWED else 0.0
        counted = (counted - 1 / SELDOM - renewals) * run.sidecars / max(1.0, tokens)
        shown = f"{shown}: {counted:.2f} a token, of which {tokens:.0f} a second came"
    elif state in ("pace", "failing", "scarce", "drained"):
        shown += f" ({found.granted} granted, {found.refused} refused)"
    if state == "scarce":
        target, counted = 0.0, float(found.refused)  # retries refused
    verdict = "" if target is None else f"{target:g}" + ("" if counted <= target * 1.05 else ": missed")
    if run.sidecars >= 1000:
        verdict += f", {CORES:g} cores" + ("" if found.cores <= CORES * run.sidecars / 1000 else ": missed")
    return shown, verdict.removeprefix(", ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sidecars", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--calls", type=float, default=CALLS, help="calls a second of each sidecar")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--states", nargs="*", choices=STATES, default=STATES)
    options = parser.parse_args()
    missed = False
    with redis_server(options.sidecars * 2 + 100) as port:
        settles = SETTLES + SETTLES_EACH * options.sidecars
        print(f"{options.sidecars} sidecars, {options.calls:g} calls a second each, {options.seconds:g} s a state\n")
        print("| state | scripts a second and sidecar | Redis, cores | us a script | on time | connections | target |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for state in options.states:
            url = f"redis://127.0.0.1:{port}/0"
            run = Run(url, state, options.sidecars, options.seconds, settles, options.calls)
            found_here = measure(run, options.processes)
            shown, verdict = judge(run, found_here)
            missed |= "missed" in verdict
            print(
                f"| {state} | {shown} | {found_here.cores:.3f} | {found_here.micros:.0f} | {found_here.on_time:.0%} "
                f"| {found_here.connections} | {verdict} |",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
