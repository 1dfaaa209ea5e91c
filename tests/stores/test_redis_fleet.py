"""Fifty sidecars and one budget: an outage's retries stay within it, whoever fails when.

The calls are `proxy.retry.call.machine`'s own on a virtual clock, the leases are a real Redis's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from fleet import Sidecar
from support.redis_server import RedisServer, needs_redis

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver, Sending
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, MappingFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.stores.redis.client import Command

pytestmark = needs_redis

SIDECARS, CALLS, SECONDS = 50, 20, 5.0
STEP = 0.01
LATENCY = 0.02
CLASSIFY = Classify(statuses={503: Class.TRANSIENT})
STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "full"))


def policy(spec: QuotaSpec) -> Policy:
    return Policy("u", "", STANDARD, BucketRef(spec, "fleet"), classify=CLASSIFY)


class Outage:
    """Every attempt fails while it lasts."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.first = self.retries = 0

    def __call__(self, attempt: int, now: float) -> Sending:
        if attempt == 1:
            self.first += 1
        elif now < self.until:
            self.retries += 1
        return Sending(LATENCY, Reply(503 if now < self.until else 200, MappingFields([])))


def schedule(clock: Clock, outage: Outage, registry: list[Registry], spec: QuotaSpec) -> list[Driver]:
    """Every sidecar's calls, at times drawn alike for every run."""
    rng = random.Random(7)
    drivers = []
    for each in registry:
        for at in sorted(rng.uniform(0, SECONDS) for _ in range(CALLS)):
            request = Request("GET", "u.test", "/", plain=True)
            driver = Driver(clock, outage)
            scope = each.scope(policy(spec), request)
            call = Call(request, policy(spec), scope, Env(rng), driver.set_alarm)
            clock.at(at, BEGIN, driver.begin, call)
            drivers.append(driver)
    return drivers


async def test_an_outages_retries_stay_within_the_one_shared_budget(
    redis_server: RedisServer, sidecars: Callable[..., Sidecar], record_property: Callable[[str, object], None]
) -> None:
    clock, outage = Clock(), Outage(until=SECONDS + 10)
    fleet = [sidecars(redis_server, clock=lambda: clock.now) for _ in range(SIDECARS)]
    spec = QuotaSpec(store="redis")
    drivers = schedule(clock, outage, [each.registry for each in fleet], spec)
    while any(driver.outcome is None for driver in drivers):
        clock.run(clock.now + STEP)
        clock.now += STEP
        await asyncio.gather(*(each.store.round_trip() for each in fleet if each.store.is_due()))

    alone, separately = Clock(), Outage(until=SECONDS + 10)
    apart = schedule(alone, separately, [Registry() for _ in range(SIDECARS)], QuotaSpec())
    alone.run()

    budget = int(spec.capacity / spec.retry_cost)
    figures = {"calls": outage.first, "one budget": outage.retries, "50 budgets": separately.retries}
    print(f"retries in an outage, {SIDECARS} sidecars: {figures}; the budget allows {budget}")
    for name, value in figures.items():
        record_property(name, value)
    assert outage.first == separately.first == SIDECARS * CALLS
    assert outage.retries <= budget
    assert outage.retries >= 0.75 * budget  # and it is used: leases don't hoard it
    assert separately.retries == SIDECARS * CALLS * 2
    assert {driver.outcome for driver in apart} == {Outcome.ATTEMPTS_EXHAUSTED}
    assert Outcome.BUCKET_EMPTY in {driver.outcome for driver in drivers}


async def test_after_the_outage_the_fleet_earns_it_back(
    redis_server: RedisServer, sidecars: Callable[..., Sidecar]
) -> None:
    clock, outage = Clock(), Outage(until=SECONDS / 2)
    fleet = [sidecars(redis_server, clock=lambda: clock.now) for _ in range(10)]
    spec = QuotaSpec(capacity=100, store="redis")
    drivers = schedule(clock, outage, [each.registry for each in fleet], spec)
    while any(driver.outcome is None for driver in drivers) or any(each.store.is_due(2.0) for each in fleet):
        clock.run(clock.now + STEP)
        clock.now += STEP
        await asyncio.gather(*(each.store.round_trip() for each in fleet if each.store.is_due()))
    assert outage.retries <= 100 / 5 + CALLS * 10  # what it had, and at most what successes brought
    seen = fleet[0].bucket(spec)
    seen.begin(clock.now)
    await fleet[0].store.round_trip()
    assert 0 < seen.level(clock.now) <= 100
    assert {driver.outcome for driver in drivers} >= {Outcome.SUCCESS, Outcome.BUCKET_EMPTY}


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_lost_late_or_killed_no_more_is_spent_than_there_is(
    redis_server: RedisServer, sidecars: Callable[..., Sidecar], seed: int
) -> None:
    """Retries pay and are given back, messages and replies are lost or come late, sidecars die with their leases."""
    rng = random.Random(seed)
    spec = QuotaSpec(capacity=300, store="redis")
    shaky = [Shaky(sidecars(redis_server), spec) for _ in range(4)]
    spent = 0.0
    for _ in range(400):
        number = rng.randrange(4)
        each = shaky[number]
        each.sidecar.now += rng.choice([0.0, 0.001, 0.02, 0.3])
        action = rng.random()
        if action < 0.5:
            spent += each.spend(rng.choice([1, 5, 7]))
        elif action < 0.55:
            spent -= each.take_back()
        elif action < 0.98:
            await each.say(rng.choice(["heard", "heard", "heard", "lost", "no reply", "late"]))
        else:
            spent = spent + each.paid_by_late_answers
            shaky[number] = Shaky(sidecars(redis_server), spec)  # killed; its lease is not back before 10 s
        paid = spent + sum(other.paid_by_late_answers for other in shaky)
        assert paid <= 300
        assert sum(other.bucket.lease.left for other in shaky) <= 300 - paid + 1e-9
    assert paid > 200


class Shaky:
    """A sidecar whose messages are carried by the test."""

    def __init__(self, sidecar: Sidecar, spec: QuotaSpec) -> None:
        self.sidecar = sidecar
        self.bucket = sidecar.bucket(spec)
        self.paid: list[float] = []
        self.paid_by_late_answers = 0.0
        self._late: list[list[object]] = []

    def spend(self, price: float) -> float:
        bucket, now = self.bucket, self.sidecar.now
        if bucket.take(price, now):
            self.paid.append(price)
            return price
        if not bucket.waiting:
            bucket.ask(price, now + 0.1, now, self._answered)
        return 0.0

    def _answered(self, price: float, granted: bool) -> None:
        if granted:
            self.paid_by_late_answers += price

    def take_back(self) -> float:
        """A retry that was paid for never happens."""
        if not self.paid:
            return 0.0
        price = self.paid.pop()
        self.bucket.give_back(price, self.sidecar.now)
        return price

    async def say(self, fate: str) -> None:
        bucket, now, store = self.bucket, self.sidecar.now, self.sidecar.store
        if store.client is None:
            await store.reach()
        assert store.client is not None
        message = bucket.message(now)
        late, self._late = self._late, []
        if fate == "late":
            self._late = [*late, message]
        for each in [message, *late] if fate in ("heard", "no reply") else []:
            reply = (await store.client.run([Command("tokens", bucket.key, each)]))[0]
            assert not isinstance(reply, Exception)
            if each is message and fate == "heard":
                bucket.heard(reply, now)
            elif each is not message:
                assert reply[0] == b"late"
        if fate != "heard":
            bucket.unheard(now)
