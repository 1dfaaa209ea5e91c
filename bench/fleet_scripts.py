"""`python bench/fleet_scripts.py`: the processor time that one Redis takes for the reports of a large fleet.

The reports of all processes are sent over one connection, each process's as often as its rule says (`bucket.hold_pause`,
`members.SELDOM`, `RedisRate._pause`), as words of the Lua scripts, by chance about what a process would report in that
state. So a machine that could not run a thousand sidecars measures what their Redis needs. `bench/fleet.py` counts the
messages of real ones. Exits with 1 if Redis takes more than a quarter of a core for each thousand processes.

    python bench/fleet_scripts.py --processes 1000 10000
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from measure import free_port
from redis import Redis

from proxy.stores.redis.bucket import FORGET, HOLD_LEAST, hold_pause
from proxy.stores.redis.client import SCRIPTS
from proxy.stores.redis.members import SELDOM
from proxy.stores.redis.rate import EACH, LATEST, SOONEST

#: Seconds of silence after which a process counts as dead, and seconds between two batches of reports.
DEAD, TICK = 10.0, 0.02
#: The part of a core that Redis may use for a thousand processes.
CORES = 0.25
#: Tokens a second of the rate, for each process, and seconds between retries of a process whose quota is empty.
RATE_EACH, DRAINED = 5.0, 0.6


class Process:
    """A process of the fleet: the sums that it has reported, and its part of the rate."""

    def __init__(self, number: int) -> None:
        self.name = f"{number:012x}"
        self.sequence, self.spent, self.part, self.lease, self.made = 0, 0.0, 0.0, 0.0, ""


class State(NamedTuple):
    """A state of the fleet: its script, the seconds between a process's reports, the words of one, and what a process
    learns of the numbers of a reply. With `due`, each process reports as a member of its fleet, too.
    """

    script: str
    pause: float
    report: Callable[[Process], list[object]]
    learn: Callable[[Process, list[float]], None] = lambda process, numbers: None


def states(count: int, rng: random.Random) -> dict[str, State]:
    """The states of a fleet of so many processes."""
    rate = RATE_EACH * count
    report_pause = max(SOONEST, min(LATEST, EACH * count))
    holds = hold_pause(HOLD_LEAST, count)

    def pays(process: Process) -> list[object]:
        before, used = process.spent, process.part * report_pause * rng.random()
        process.spent += used
        demand = RATE_EACH * rng.choice([0.5, 1.0, 2.0])
        return [
            process.spent,
            0.0,
            before,
            0.0,
            0.0,
            0,
            0,
            0.0,
            demand,
            process.part,
            count,
            "",
            rate,
            rate,
            rate,
            0,
            "",
        ]

    def learns_part(process: Process, numbers: list[float]) -> None:
        process.part = numbers[7]

    def drained(process: Process) -> list[object]:
        return [0, 0, 0, 0, 0, "5.0", 5.0, 5.0, "", 0.0, 500.0, 0.0, 0]

    def succeeds(process: Process) -> list[object]:
        return [0, 0, 0, 0, process.lease, "", 5.0, 5.0, "", 100.0 * count, 100.0 * count, 0.0, 0]

    def learns_lease(process: Process, numbers: list[float]) -> None:
        process.lease = numbers[0]

    def cools(process: Process) -> list[object]:
        began = process.name.endswith("0" * 6) and process.sequence == 1
        return [0.0 if began else "", 600.0, 0.0, 5, 1, 10.0, 5]

    def limited(process: Process) -> list[object]:
        began = float(process.sequence == 1)
        cut = 0.5 if rng.random() < 0.001 else 1.0
        return [began, 0, 0, 0, 5.0, cut, 0.0, process.sequence // 4, rng.randint(1, 8), rng.randint(0, 3), 0.0, 1e9, 0]

    def out(process: Process) -> list[object]:
        return [0, 0, float(process.sequence == 1), 0, 5.0, 1.0, 0.0, 0, 5, 5, 1.0, 0.5, 0]

    return {
        "idle": State("members", SELDOM, lambda process: [0.0]),
        "healthy": State("tokens", 1.5, succeeds, learns_lease),
        "drained": State("tokens", DRAINED, drained),
        "a rate by parts": State("rate", report_pause, pays, learns_part),
        "a cooldown holds calls": State("places", holds, cools),
        "a limit holds calls": State("weather", holds, limited),
        "an outage holds calls": State("weather", holds, out),
    }


def play(redis: Redis, name: str, state: State, count: int, seconds: float, rng: random.Random) -> tuple[float, float]:
    """Let the processes report for so many seconds, after a settling time. Returns the scripts a second, and Redis's
    processor (cores).
    """
    scripts = {each: redis.register_script(SCRIPTS[each]) for each in {state.script, "members"}}
    fleet, member = [Process(number) for number in range(count)], [Process(number) for number in range(count)]
    plan = [(rng.random() * state.pause, place, False) for place in range(count)]
    if state.script != "members":
        plan += [(rng.random() * SELDOM, place, True) for place in range(count)]
    plan.sort()
    settles = 2 * max(state.pause, SELDOM) + 2
    began, sent, before, since = time.monotonic(), 0, 0.0, 0.0
    redis.flushall()
    for each in scripts.values():
        redis.script_load(each.script)
    while True:
        now = time.monotonic() - began
        if before == 0.0 and now >= settles:
            before, since, sent = used(redis), now, 0
        if now >= settles + seconds:
            return sent / (now - since), (used(redis) - before) / (now - since)
        due = [each for each in plan if each[0] <= now]
        later = [each for each in plan if each[0] > now]
        for start in range(0, len(due), 500):
            batch, pipe = due[start : start + 500], redis.pipeline(transaction=False)
            for _, place, is_member in batch:
                process = member[place] if is_member else fleet[place]
                process.sequence += 1
                words = [0.0] if is_member else state.report(process)
                script = scripts["members" if is_member else state.script]
                key = "members" if is_member else name
                pipe.evalsha(
                    script.sha, 1, key, process.name, process.sequence, process.made, *words, "m", DEAD, FORGET
                )
            for (_, place, is_member), reply in zip(batch, pipe.execute(), strict=True):
                if not is_member and reply[0] != b"late":
                    fleet[place].made = reply[0].decode()
                    state.learn(fleet[place], [float(value) for value in reply[1:]])
            sent += len(batch)
        again = [(at + (SELDOM if is_member else state.pause), place, is_member) for at, place, is_member in due]
        plan = sorted(later + again)
        time.sleep(max(0.0, TICK - (time.monotonic() - began - now)))


def used(redis: Redis) -> float:
    """The processor seconds that Redis has used."""
    cpu = redis.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="*", default=[1000, 10000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--states", nargs="*")
    options = parser.parse_args()
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        print("bench/fleet_scripts.py needs redis-server or valkey-server", file=sys.stderr)
        return 2
    port, missed = free_port(), False
    with tempfile.TemporaryDirectory() as folder:
        where = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        server = subprocess.Popen([found, *where], stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if b"eady to accept" in line:
                    break
            redis = Redis(port=port)
            print("| processes | state | scripts a second, each | of those that its rule sends | Redis, cores |")
            print("| --- | --- | --- | --- | --- |")
            for count in options.processes:
                rng = random.Random(count)
                for name, state in states(count, rng).items():
                    if options.states and name not in options.states:
                        continue
                    scripts, cores = play(redis, name, state, count, options.seconds, rng)
                    rule = count * (1 / state.pause + (1 / SELDOM if state.script != "members" else 0.0))
                    verdict = "" if cores <= CORES * count / 1000 else ": missed"
                    missed |= bool(verdict)
                    print(
                        f"| {count} | {name} | {scripts / count:.2f} | {scripts / rule:.0%} | {cores:.3f}{verdict} |",
                        flush=True,
                    )
        finally:
            server.terminate()
            server.wait()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
