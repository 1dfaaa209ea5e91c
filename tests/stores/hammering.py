"""A process that pays from shared buckets as fast as it can: python hammering.py DESCRIPTOR NUMBER SEED ROUNDS WHAT.

It keeps its account in its own row of the memory: what it holds of the bucket, and how many operations it has made.
It says "ready", waits for a line, and says "done" after its rounds (0: never).
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial

from proxy.retry.apps import NamedApp
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.stores.shared_memory.factory import SharedFactory, open_memory

QUOTA = QuotaSpec(1000, retry_cost=5)
THROTTLE = ThrottleSpec(1000, 0.5)
RATE = RateSpec(0.0, 1000.0)
PARTED = QuotaSpec(1000, retry_cost=5, apps=(("web", 4), ("batch", 1), ("others", 1)))
BUDGET = BudgetSpec(percent=100, min_per_second=0, window=100_000)
SHARE = 0.3
HELD, DONE = 0, 1


def main() -> None:
    descriptor, number, seed, rounds = map(int, sys.argv[1:5])
    memory = open_memory(descriptor)
    at = memory.row(number)
    rng = random.Random(seed)
    kinds = {"quota": quota, "parted": parted, "rate": rate, "budget": budget, "limiter": limiter, "hedges": hedges}
    one = {**kinds, "refusals": refusals}[sys.argv[5]](SharedFactory(memory, row=number), rng)
    words = memory.words
    held = words[at + HELD]
    print("ready", flush=True)
    sys.stdin.readline()
    count = 0
    while not rounds or count < rounds:
        count += 1
        held += one(held)
        words[at + HELD] = held
        words[at + DONE] = count
    print("done", flush=True)


def quota(factory, rng):
    bucket = factory.bucket(("", "a"), QUOTA, None, 0.0)

    def one(held):
        if held and rng.random() < 0.5:
            bucket.give_back(5, 0.0)
            return -5
        return 5 if bucket.take(5, 0.0) else 0

    return one


def parted(factory, rng):
    """Each process is one app. What it holds is what it took."""
    name = ["web", "batch", "others", "web"][int(sys.argv[2])]
    bucket = factory.bucket(("", "a"), PARTED, None, 0.0).of_app(NamedApp(name))
    bucket.begin(0.0)

    def one(held):
        if held and rng.random() < 0.4:
            bucket.give_back(5, 0.0)
            return -5
        return 5 if bucket.take(5, 0.0) else 0

    return one


def rate(factory, rng):
    bucket = factory.rate(("", "a"), RATE, None, 0.0)

    def one(held):
        if held and rng.random() < 0.5:
            bucket.give_back(0.0)
            return -1
        return 1 if bucket.take(0.0) else 0

    return one


def budget(factory, rng):
    """Every retry is one of its own call, so that what is held is what was counted."""
    bucket = factory.bucket(("", "a"), BUDGET, None, 0.0)

    def one(held):
        now = time.monotonic()
        bucket.begin(now)
        if held and rng.random() < 0.5:
            bucket.give_back(1.0, now)
            return -1
        return 1 if bucket.take(1.0, now) else 0

    return one


def limiter(factory, rng):
    cubic = factory.limiter(("a", "adaptive", "x"), 0.0)

    def one(held):
        now = time.monotonic()
        cubic.take(now)
        cubic.learn(rng.random() < 0.1, now)
        return 0

    return one


def hedges(factory, rng):
    """What is held is what was hedged; every round begins a call, and measures one."""
    kept = factory.hedges(("a", "p95", "x"), 0.0)
    taken = []

    def one(held):
        now = time.monotonic()
        kept.began(now)
        kept.answered(rng.lognormvariate(-3, 1), now)
        kept.delay(95, now)
        if taken and rng.random() < 0.1:
            kept.give_back(taken.pop())
            return -1
        at = kept.take(SHARE, now)
        if at is None:
            return 0
        taken.append(at)
        return 1

    return one


def refusals(factory, rng):
    """It holds the refusals that it noted."""
    governor = factory.governor("u", "x")
    lane, traffic = governor.first, governor.traffic

    def one(held):
        now = time.monotonic()
        traffic.failed()
        evidence = lane.limit.evidence
        lane.change(partial(evidence.refused, "503", now, counts=False), now)
        lane.change(partial(evidence.refused_quickly, now - 0.001, now), now)
        lane.change(lambda: evidence.least_gap.sent(now), now)
        return 1

    return one


if __name__ == "__main__":
    main()
