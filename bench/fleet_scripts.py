"""`python bench/fleet_scripts.py`: what one Redis takes for the reports of a large fleet, each process on its own connection.

Every process of the fleet is a real connection, which speaks RESP3 and subscribes to the fleet's channels as a process's own
does. On it, reports are sent as often as the rules say (`bucket.hold_pause`, `members.SELDOM`, `RedisRate._pause`), as words of
the Lua scripts, by chance about what a process would report in that state; at most one is under way. `bench/fleet.py` counts
the messages of the store's own classes, of which a machine can run some hundreds on time.

For each state the table has the scripts that were sent, a second and process, as a part of those that the rules send too (a
busy machine sends fewer), Redis's processor time and its time for a script, what it would take for all that the rules send, the
memory of its connections and all its memory. Exits with 1 if that is more than a quarter of a core for each thousand processes.

    python bench/fleet_scripts.py --processes 1000 10000
    python bench/fleet_scripts.py --generators 4 --states idle
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import math
import multiprocessing
import random
import resource
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from fleet import CORES, figures, redis_server
from redis import Redis

from proxy.stores.redis import concurrency, cooldown
from proxy.stores.redis.bucket import FORGET, HOLD_LEAST, hold_pause
from proxy.stores.redis.client import SCRIPTS, SHAS
from proxy.stores.redis.members import SELDOM
from proxy.stores.redis.quota import DRAINED
from proxy.stores.redis.rate import EACH, LATEST, SOONEST

#: Seconds of silence after which a process counts as dead.
DEAD = 10.0
#: Tokens a second of the rate, for each process; seconds between reports of a process whose calls succeed, and of one of which
#: every tenth call fails once (`bench/fleet.py` counts 0.8 a second).
RATE_EACH, HEALTHY, FAILING = 5.0, 1.5, 1.2
#: The channels of a process: two of the fleet's, and its own.
CHANNELS, CHANNEL = ("cooldowns", "news"), "to "
#: Bytes that are read at once, and seconds for which a connection may be silent while it is made.
PIECE, PATIENCE = 65536, 60.0
#: Seconds for which reports go on after the count, since a busy machine counts late.
AFTER = 3.0


class Process:
    """A process of the fleet: its connection, the sums that it has reported, and its part of the rate. `awaits`: whether each of
    the replies that are still to come is one to its report as a member.
    """

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.name = f"{number:012x}"
        self.sock = sock
        self.sequence, self.as_member = 0, 0
        self.spent, self.part, self.lease, self.made = 0.0, 0.0, 0.0, ""
        self.places = 0
        self.awaits: deque[bool] = deque()
        self.unread = b""


class State(NamedTuple):
    """A state of the fleet: its script, the seconds between a process's reports, the words of one, what a process learns of
    the numbers of a reply, and the words that end a report. Each process reports as a member of its fleet, too.
    """

    script: str
    pause: float
    report: Callable[[Process], list[object]]
    learn: Callable[[Process, list[float]], None] = lambda process, numbers: None
    ends: tuple[object, ...] = ()

    @property
    def rule(self) -> float:
        """The scripts that the rules send, a second and process."""
        return 1 / SELDOM + (0.0 if self.script == "members" else 1 / self.pause)


class Part(NamedTuple):
    """The part of a fleet that one generator plays: the processes from number `first` on. `count` are those of all."""

    port: int
    state: str
    count: int
    first: int
    own: int
    settles: float
    seconds: float


def states(count: int, rng: random.Random) -> dict[str, State]:
    """The states of a fleet of so many processes."""
    rate = RATE_EACH * count
    report_pause = max(SOONEST, min(LATEST, EACH * count))
    holds = hold_pause(HOLD_LEAST, count)

    def pays(process: Process) -> list[object]:
        before, used = process.spent, process.part * report_pause * rng.random()
        process.spent += used
        demand = RATE_EACH * rng.choice([0.5, 1.0, 2.0])
        sums = [process.spent, 0.0, before, 0.0, 0.0, 0, 0, 0.0]
        return [*sums, demand, process.part, count, "", rate, rate, rate, 0, 0, 0, ""]

    def learns_part(process: Process, numbers: list[float]) -> None:
        process.part = numbers[7]

    def drained(process: Process) -> list[object]:
        return [0, 0, 0, 0, 0, "5.0", 5.0, 5.0, "", 0.0, 500.0, 0.0, 0]

    def succeeds(process: Process) -> list[object]:
        return [0, 0, 0, 0, process.lease, "", 5.0, 5.0, "", 100.0 * count, 100.0 * count, 0.0, 0]

    def fails(process: Process) -> list[object]:
        before, process.spent = process.spent, process.spent + 5.0  # a retry is paid, and its success earns the same
        sums = [process.spent, process.spent, before, before]
        return [*sums, max(0.0, process.lease - 5.0), "", 5.0, 5.0, "", 100.0 * count, 100.0 * count, 0.0, 0]

    def learns_lease(process: Process, numbers: list[float]) -> None:
        process.lease = numbers[0]

    def cools(process: Process) -> list[object]:
        began = process.name.endswith("0" * 6) and process.sequence == 1
        return [0.0 if began else "", 600.0, 0.0, 5, 1, 1200.0, 5]

    def returns(process: Process) -> list[object]:
        process.spent += rng.random() < 0.01  # places that answers have added
        return ["", 0.0, process.spent, 5, 1, max(1.0, 3 * holds), rng.randint(1, 5)]

    def limited(process: Process) -> list[object]:
        began = float(process.sequence == 1)
        cut = 0.5 if rng.random() < 0.001 else 1.0
        return [
            began,
            0,
            0,
            0,
            5.0,
            cut,
            0.0,
            process.sequence // 4,
            rng.randint(1, 8),
            rng.randint(0, 3),
            0.0,
            1e9,
            0,
            holds,
            0.1,
        ]

    def out(process: Process) -> list[object]:
        return [0, 0, float(process.sequence == 1), 0, 5.0, 1.0, 0.0, 0, 5, 5, 1.0, 0.5, 0, holds, 60.0]

    def needs_places(most: int) -> Callable[[Process], list[object]]:
        return lambda process: [process.places, 5, process.places, 0, most, 0]

    def learns_places(process: Process, numbers: list[float]) -> None:
        process.places = int(numbers[1])

    beat, changes = hold_pause(concurrency.BEAT, count), hold_pause(concurrency.SPACED, count)
    to_places = learns_places, (CHANNEL, changes)
    return {
        "idle": State("members", SELDOM, lambda process: [0.0]),
        "healthy": State("tokens", HEALTHY, succeeds, learns_lease),
        "every tenth call fails": State("tokens", FAILING, fails, learns_lease),
        "drained": State("tokens", DRAINED, drained),
        "waiting for a rate, by parts": State("rate", report_pause, pays, learns_part),
        "a cooldown holds calls": State("places", holds * math.ceil(cooldown.SELDOM / holds), cools),
        "calls return from a cooldown": State("places", holds, returns),
        "a limit holds calls": State("weather", holds, limited),
        "an outage holds calls": State("weather", holds, out),
        "calls wait for places, one for each process": State("concurrency", beat, needs_places(count), *to_places),
        "calls wait for places, one for two processes": State(
            "concurrency", changes, needs_places(count // 2), *to_places
        ),
    }


# -- a connection -------------------------------------------------------------------------------------------------------


def command(*words: object) -> bytes:
    """A command as it is written."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def parsed(data: bytes, at: int) -> tuple[object, int]:
    """The value that begins at this place (RESP3), and the place after it. A push, and an error, is a tuple; what has not come
    whole raises IndexError.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        raise IndexError
    kind, word, at = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b"$":
        size = int(word)
        if size < 0:
            return None, at
        if at + size + 2 > len(data):
            raise IndexError
        return data[at : at + size], at + size + 2
    if kind in b"*>%~":
        values = []
        for _ in range(int(word) * (2 if kind == b"%" else 1)):
            value, at = parsed(data, at)
            values.append(value)
        return (tuple(values) if kind == b">" else values), at
    return ((word,) if kind == b"-" else word), at


def connected(port: int, number: int) -> Process:
    """A process with its connection, which has subscribed to its channels."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    process = Process(number, sock)
    sock.sendall(command("HELLO", 3) + command("SUBSCRIBE", *CHANNELS, f"{CHANNEL}{process.name}"))
    data, at, came = b"", 0, 0
    while came < 2 + len(CHANNELS):
        with contextlib.suppress(IndexError):
            _, at = parsed(data, at)
            came += 1
            continue
        data += sock.recv(PIECE)
    sock.setblocking(False)
    return process


# -- a generator --------------------------------------------------------------------------------------------------------


class Generator:
    """The reports of one part of the fleet, and the replies to them."""

    def __init__(self, part: Part) -> None:
        rng = random.Random(part.first)
        self._state = states(part.count, rng)[part.state]
        self._key = part.state.replace(" ", "-")
        self._processes = [connected(part.port, number) for number in range(part.first, part.first + part.own)]
        self._by_descriptor = {each.sock.fileno(): each for each in self._processes}
        self._poll = select.epoll()
        for each in self._processes:
            self._poll.register(each.sock, select.EPOLLIN)
        is_alone = self._state.script == "members"
        self._due = [(rng.random() * SELDOM, place, True) for place in range(part.own)]
        self._due += [] if is_alone else [(rng.random() * self._state.pause, place, False) for place in range(part.own)]
        heapq.heapify(self._due)
        self.pushes = 0

    def play(self, seconds: float) -> None:
        """Report for so many seconds."""
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            while self._due[0][0] <= now:
                at, place, is_member = self._due[0]
                process = self._processes[place]
                if len(process.awaits) < 2:  # one round trip; what could not be sent in time is not sent later
                    self._report(process, is_member)
                pause = SELDOM if is_member else self._state.pause
                heapq.heapreplace(self._due, (max(at + pause, now), place, is_member))
            for descriptor, _ in self._poll.poll(max(0.0, min(0.05, self._due[0][0] - now)), 1000):
                self._read(self._by_descriptor[descriptor])

    def _report(self, process: Process, is_member: bool) -> None:
        if is_member:
            process.as_member += 1
            name, key, sequence, made, words = "members", "members", process.as_member, "", [0.0]
        else:
            process.sequence += 1
            name, key, sequence, made = self._state.script, self._key, process.sequence, process.made
            words = self._state.report(process)
        own = (1, key, process.name, sequence, made)
        process.awaits.append(is_member)
        process.sock.send(command("EVALSHA", SHAS[name], *own, *words, "m", DEAD, FORGET, *self._state.ends))

    def _read(self, process: Process) -> None:
        data, at = process.unread + process.sock.recv(PIECE), 0
        while at < len(data):
            try:
                reply, at = parsed(data, at)
            except IndexError:
                break
            if isinstance(reply, tuple) and reply[0] == b"message":
                self.pushes += 1
                continue
            if isinstance(reply, tuple):
                raise RuntimeError(repr(reply))
            assert isinstance(reply, list)
            if not process.awaits.popleft() and reply[0] != b"late":
                process.made = reply[0].decode()
                self._state.learn(process, [float(value) for value in reply[1:]])
        process.unread = data[at:]


def generate(part: Part, ready: Barrier, results: Callable[[int], None]) -> None:
    """Play a part of the fleet: connect, wait for the others, and report."""
    generator = Generator(part)
    ready.wait()
    generator.play(part.settles + part.seconds + AFTER)
    results(generator.pushes)


# -- a state ------------------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """What a state took: scripts a second, Redis's cores, and mebibytes of its connections and in all."""

    scripts: float
    cores: float
    connections: int
    clients_memory: float
    memory: float


def play(redis: Redis, port: int, state: str, count: int, seconds: float, generators: int) -> Taken:
    """Let a fleet of so many processes report for so many seconds, after a settling time."""
    redis.flushall()
    for each in SCRIPTS.values():
        redis.script_load(each)
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(generators + 1), context.SimpleQueue()
    found = states(count, random.Random(0))[state]
    settles = 2 * max(found.pause, SELDOM) + 2
    bounds = [count * each // generators for each in range(generators + 1)]
    parts = [
        Part(port, state, count, first, end - first, settles, seconds) for first, end in itertools.pairwise(bounds)
    ]
    work = [context.Process(target=generate, args=(part, ready, results.put)) for part in parts]
    for each in work:
        each.start()
    ready.wait()
    time.sleep(settles)
    before, began = figures(redis), time.monotonic()
    time.sleep(seconds / 2)
    connections, memory = redis.info("clients")["connected_clients"] - 1, redis.info("memory")
    time.sleep(seconds / 2)
    after, took = figures(redis), time.monotonic() - began
    for _ in work:
        results.get()
    for each in work:
        each.join()
    return Taken(
        (after[0] - before[0]) / took,
        (after[1] - before[1]) / took,
        connections,
        memory["mem_clients_normal"] / 2**20,
        memory["used_memory_rss"] / 2**20,
    )


def line(name: str, count: int, taken: Taken) -> str:
    """A row of the table."""
    rule = count * states(count, random.Random(0))[name].rule
    micros = taken.cores / max(1.0, taken.scripts) * 1e6
    whole = max(taken.cores, rule * micros / 1e6)
    verdict = "" if whole <= CORES * count / 1000 else ": missed"
    sent = f"{taken.scripts / count:.2f} | {taken.scripts / rule:.0%}"
    memory = f"{taken.clients_memory:.0f} | {taken.memory:.0f}"
    return f"| {count} | {name} | {taken.connections} | {sent} | {taken.cores:.3f} | {micros:.0f} | {whole:.3f}{verdict} | {memory} |"


HEAD: Sequence[str] = (
    "processes", "state", "connections", "scripts a second, each", "of those that the rules send", "Redis, cores",
    "us a script", "cores for all of them", "MiB of connections", "MiB in all",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="*", default=[1000, 10000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--generators", type=int, default=2)
    parser.add_argument("--states", nargs="*")
    options = parser.parse_args()
    most = math.ceil(max(options.processes) / options.generators) + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, most)), hard))
    missed = False
    with redis_server(max(options.processes) + 100) as port, Redis(port=port) as redis:
        print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
        for count in options.processes:
            for name in states(count, random.Random(0)):
                if options.states and name not in options.states:
                    continue
                taken = play(redis, port, name, count, options.seconds, options.generators)
                print(line(name, count, taken), flush=True)
                missed |= "missed" in line(name, count, taken)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
