"""How much more than its burst a fleet sends at one time, and how much of its rate it uses, where the burst is small.

    .venv/bin/python bench/small_bursts.py [--plays 3]

Two or five processes with the stores' own buckets play on a virtual clock, with a Redis that is played too
(proxy/lab/fleet). Their calls wait for a rate of 12,000 tokens a second with a burst of 1,200, and cost 200 to 1,200.
Some put back up to 70 % after 50 ms, some leave after up to 0.2 s of waiting. For each way: the most that was sent in any
time t beyond rate * t, in bursts, and the part of the rate that was used.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import proxy.lab.simulate.weather as weather  # noqa: E402
from proxy.lab.clock import ALARM, Clock  # noqa: E402
from proxy.lab.fleet.factory import PlayedFleet  # noqa: E402
from proxy.lab.fleet.played_redis import PlayedRedis  # noqa: E402
from proxy.retry.budgets.buckets import RateBucket  # noqa: E402
from proxy.retry.policies.bucket_specs import RateSpec  # noqa: E402

RATE, BURST, SECONDS = 12_000.0, 1200, 40.0
#: Seconds until all processes know each other.
MEET = 12.0
#: The ways, and whether calls put tokens back, or leave while they wait.
WAYS = {"sent": (False, False), "put back": (True, False), "leave": (False, True), "both": (True, True)}


class Caller:
    """An app whose calls come one after the other. `sent` has the times and prices, and what was put back."""

    def __init__(self, clock: Clock, bucket: RateBucket, rng: random.Random, way: str, sent: list[tuple[float, float]]):
        self._clock, self._bucket, self._rng, self._sent = clock, bucket, rng, sent
        self._puts_back, self._leaves = WAYS[way]
        self._call, self._alarm, self._waits = 0, 0, False
        self._price = 0.0

    def come(self) -> None:
        self._call, self._waits, self._price = self._call + 1, True, float(self._rng.randint(200, BURST))
        if self._leaves:
            self._later(self._rng.uniform(0.0, 0.2), self._leave, self._call)
        self._ask()

    def retime(self, at: float) -> None:
        self._alarm += 1
        if at < math.inf:
            self._clock.at(max(at, self._clock.now), ALARM, self._ring, self._alarm)

    def _later(self, seconds: float, what: object, *arguments: object) -> None:
        self._clock.at(self._clock.now + seconds, ALARM, what, *arguments)  # type: ignore[arg-type]

    def _ring(self, alarm: int) -> None:
        if alarm == self._alarm and self._waits:
            self._ask()

    def _leave(self, call: int) -> None:
        if call == self._call and self._waits:
            self._bucket.gate.leave(self, self._clock.now)
            self._next()

    def _ask(self) -> None:
        now = self._clock.now
        at = self._bucket.gate.ask(self, now, self._price)
        if at > now:
            self.retime(at)
            return
        self._sent.append((now, self._price))
        if self._puts_back:
            self._later(0.05, self._put_back, self._price * self._rng.uniform(0.0, 0.7))
        self._next()

    def _next(self) -> None:
        self._waits, self._alarm = False, self._alarm + 1
        self._later(self._rng.uniform(0.0, 0.1 if self._leaves else 0.02), self.come)

    def _put_back(self, tokens: float) -> None:
        self._bucket.gate.give_back(self._clock.now, tokens)
        self._sent.append((self._clock.now, -tokens))


def play(way: str, processes: int, seed: int) -> tuple[float, float]:
    """The most sent beyond the rate, in bursts, and the part of the rate that was used."""
    clock, rng, sent = Clock(), random.Random(f"{way}/{processes}/{seed}"), list[tuple[float, float]]()
    redis = PlayedRedis(clock, weather.SimulatedRedis(latency=0.002, outages=()), processes)
    fleet = PlayedFleet(redis, timeout=0.05, on_outage="share", seed=str(seed))
    spec = RateSpec(rate=RATE, burst=BURST, store="redis")
    began = clock.now + MEET
    for _ in range(processes):
        bucket = fleet.factory().rate(("", "fleet"), spec, None, clock.now)
        for _ in range(8 if WAYS[way][1] else 4):
            clock.at(began + rng.uniform(0.0, 0.1), ALARM, Caller(clock, bucket, rng, way, sent).come)
    clock.run(began + SECONDS)
    total, lowest, most = 0.0, math.inf, 0.0
    for at, tokens in sent:
        beyond = total - RATE * (at - began)
        lowest = min(lowest, beyond)
        total += tokens
        most = max(most, beyond + tokens - lowest)
    return most / BURST, total / (RATE * SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plays", type=int, default=3, help="how often each is played")
    plays = parser.parse_args().plays
    print("way       processes  most at one time  of the rate used")
    for way in WAYS:
        for processes in (2, 5):
            found = [play(way, processes, seed) for seed in range(plays)]
            used = sum(each for _, each in found) / plays
            print(f"{way:<10}{processes:>9}{max(each for each, _ in found):>11.2f} bursts{used:>17.1%}", flush=True)


if __name__ == "__main__":
    main()
