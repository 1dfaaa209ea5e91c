"""Quotas and rates of a fleet: leases of a real Redis. Nothing is over-spent, and what is not used comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from fleet import REQUEST, Sidecar, policy_of
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.buckets import ASK
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.facts import Class
from proxy.retry.policies.bucket_specs import QuotaSpec, RateSpec

pytestmark = needs_redis
Make = Callable[..., Sidecar]

QUOTA = QuotaSpec(capacity=100, store="redis")


async def test_a_retry_asks_and_the_fleet_pays_once(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    first, second = one.bucket(QUOTA), other.bucket(QUOTA)
    assert (first.level(0), first.affords(5, one.now), first.take(5, one.now)) == (100, ASK, False)
    assert await one.granted(first)
    await one.trip(later=0.02)
    await other.trip()
    second.begin(other.now)
    await other.trip()
    assert second.level(other.now) == 95


@pytest.mark.parametrize("spec", [QUOTA, replace(QUOTA, initial=50)], ids=["full", "a low beginning"])
async def test_what_is_earned_before_anything_was_heard_is_not_lost(
    spec: QuotaSpec, redis_server: RedisServer, sidecars: Make
) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    first = one.bucket(spec)
    assert await one.granted(first, 20)
    await one.trip(later=0.02)
    before = first.level(one.now)
    second = other.bucket(spec)
    second.succeeded(None, other.now)
    await other.trip(later=0.1)
    await other.trip()
    assert second.level(other.now) == before + 1


async def test_never_more_than_there_is_whoever_asks(redis_server: RedisServer, sidecars: Make) -> None:
    fleet = [sidecars(redis_server) for _ in range(4)]
    buckets = [each.bucket(QUOTA) for each in fleet]
    granted = 0
    for turn in range(60):
        sidecar, bucket = fleet[turn % 4], buckets[turn % 4]
        granted += await sidecar.granted(bucket)
        for each in fleet:  # what others keep at hand goes back within a second
            await each.trip(later=0.3)
    assert granted == 20


async def test_a_lease_pays_without_a_round_trip(redis_server: RedisServer, sidecars: Make) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(QUOTA)
    bucket.begin(one.now)
    await one.trip()
    trips = one.store.round_trips
    assert bucket.affords(5, one.now) is True
    assert bucket.take(5, one.now)
    assert one.store.round_trips == trips
    assert bucket.level(one.now) == 95


async def test_an_idle_lease_goes_back_after_a_second(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    bucket, whole = one.bucket(QUOTA), other.bucket(QUOTA)
    bucket.begin(one.now)
    await one.trip()
    assert bucket.lease.left > 0
    assert not await other.granted(whole, 100)
    await one.trip(later=1.001)
    assert bucket.lease.left == 0
    other.now += 1
    assert await other.granted(whole, 100)


async def test_a_dead_sidecars_lease_comes_back(redis_server: RedisServer, sidecars: Make) -> None:
    dead, alive = sidecars(redis_server, dead=1.0), sidecars(redis_server, dead=1.0)
    bucket, whole = dead.bucket(QUOTA), alive.bucket(QUOTA)
    bucket.begin(dead.now)
    await dead.trip()
    assert bucket.lease.left > 0
    assert not await alive.granted(whole, 100)
    async with asyncio.timeout(20):
        while not await alive.granted(whole, 100):
            alive.now += 1
    assert not bucket.take(5, dead.now + 1)  # it was not heard of for so long that it trusts its lease no more


async def test_what_comes_back_and_what_is_earned(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    bucket, seen = one.bucket(QUOTA), other.bucket(QUOTA)
    for _ in range(4):
        assert await one.granted(bucket)
    bucket.give_back(5, one.now)  # not reported yet: it goes into the lease
    await one.trip(later=0.1)
    bucket.succeeded(5, one.now)
    bucket.succeeded(None, one.now)
    await one.trip(later=0.1)
    assert bucket.level(one.now) == 100 - 4 * 5 + 5 + 5 + 1
    seen.begin(other.now)
    await other.trip()
    assert seen.level(other.now) == 91
    for _ in range(20):
        bucket.succeeded(5, one.now)
    await one.trip(later=0.1)
    assert bucket.level(one.now) == 100
    await other.trip(later=1)
    await one.trip(later=1)
    assert await other.granted(seen, 100)


async def test_an_app_that_retries_by_itself_pays_what_there_is(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    bucket, seen = one.bucket(QUOTA), other.bucket(QUOTA)
    assert bucket.charge_app_retry(one.now) == 5
    await one.trip(later=0.1)
    await other.granted(seen, 0)
    seen.begin(other.now)
    await other.trip()
    assert seen.level(other.now) == 95
    assert bucket.price(Class.TIMEOUT) == 5


async def test_where_nothing_is_left_nobody_has_to_wait_for_a_no(redis_server: RedisServer, sidecars: Make) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(replace(QUOTA, capacity=12))
    assert [await one.granted(bucket) for _ in range(3)] == [True, True, False]
    assert bucket.affords(5, one.now + 0.4) is False  # as it was known not half a second ago
    assert bucket.affords(5, one.now + 0.6) == ASK
    assert bucket.affords(0, one.now) is True


async def test_a_changed_definition_has_a_key_of_its_own_and_begins_with_its_share(
    redis_server: RedisServer, sidecars: Make
) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(QUOTA)
    assert await one.granted(bucket, 50)
    one.registry.forget_policies()
    changed = one.bucket(replace(QUOTA, capacity=200))
    assert changed is not bucket
    assert changed.key != bucket.key
    assert changed.level(one.now) == 100
    assert await one.granted(changed, 0)
    changed.begin(one.now)
    await one.trip()
    assert changed.level(one.now) == 100
    one.registry.forget_policies()
    assert one.bucket(replace(QUOTA, capacity=200)) is changed


@pytest.mark.parametrize("levels", [(70, 40, 90), (40, 70, 90), (90, 70, 40)])
async def test_a_key_made_anew_starts_at_the_lowest_level_that_anybody_knows(
    own_redis: RedisServer, sidecars: Make, levels: tuple[int, ...]
) -> None:
    fleet = [sidecars(own_redis) for _ in levels]
    buckets = [each.bucket(QUOTA) for each in fleet]
    lowest = 100
    for sidecar, bucket, level in sorted(zip(fleet, buckets, levels, strict=True), key=lambda each: -each[2]):
        await sidecar.granted(bucket, lowest - level)
        lowest = level
        await sidecar.trip(later=0.02)
    assert [bucket.level(0) for bucket in buckets] == list(levels)  # each as it last heard
    own_redis.restart()
    for sidecar, bucket in zip(fleet, buckets, strict=True):
        bucket.begin(sidecar.now + 1)
        await sidecar.trip(later=1)
        await sidecar.trip()
    newcomer = sidecars(own_redis)
    fresh = newcomer.bucket(QUOTA)
    fresh.begin(newcomer.now)
    await newcomer.trip()
    assert fresh.level(newcomer.now) == 40


async def test_a_lost_reply_a_lost_message_and_one_that_comes_too_late(
    redis_server: RedisServer, sidecars: Make
) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    bucket = one.bucket(QUOTA)
    assert await one.granted(bucket, 10)
    client = one.store.client
    assert client is not None

    async def deliver(message: list[object]) -> list[bytes]:
        from proxy.stores.redis.client import Command

        (reply,) = await client.run([Command("tokens", bucket.key, message)])
        return reply

    bucket.ask(20, one.now, one.now, lambda *_: None)
    await deliver(bucket.message(one.now))  # granted, and the reply is lost
    bucket.unheard(one.now)
    late = bucket.message(one.now)  # a message that is on its way for long
    bucket.unheard(one.now)
    bucket.heard(await deliver(bucket.message(one.now)), one.now)
    assert (await deliver(late))[0] == b"late"
    await one.trip(later=1.1)
    await one.trip(later=1.1)
    seen = other.bucket(QUOTA)
    seen.begin(other.now)
    await other.trip()
    assert seen.level(other.now) == 70
    assert await other.granted(seen, 70)


class TestRate:
    SPEC = RateSpec(rate=0.001, burst=6, store="redis")

    async def test_never_more_than_the_burst_and_what_came(self, redis_server: RedisServer, sidecars: Make) -> None:
        fleet = [sidecars(redis_server) for _ in range(3)]
        gates = [each.registry.scope(policy_of(self.SPEC), REQUEST, each.now).rate for each in fleet]
        taken = 0
        for turn in range(15):
            sidecar, gate, waiter = fleet[turn % 3], gates[turn % 3], Waiter()
            assert gate is not None
            at_once = gate.ask(waiter, sidecar.now) <= sidecar.now
            for each in fleet:
                await each.trip(later=0.4)
            taken += at_once or gate.ask(waiter, sidecar.now) <= sidecar.now
            gate.leave(waiter, sidecar.now)
        assert taken == 6

    async def test_who_waits_is_told_when_there_is_one(self, redis_server: RedisServer, sidecars: Make) -> None:
        one = sidecars(redis_server)
        gate = one.registry.scope(policy_of(self.SPEC), REQUEST, one.now).rate
        assert gate is not None
        waiter = Waiter()
        assert gate.ask(waiter, one.now) > one.now
        await one.trip()
        assert waiter.at == one.now
        assert gate.ask(waiter, one.now) == one.now

    async def test_nobody_is_rejected_before_the_answer_is_there(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        one = sidecars(redis_server)
        spec = replace(self.SPEC, when_empty="reject", burst=1)
        gate = one.registry.scope(policy_of(spec), REQUEST, one.now).rate
        assert gate is not None
        first, second = Waiter(), Waiter()
        assert one.now < gate.ask(first, one.now) < REJECTED
        assert one.now < gate.ask(second, one.now) < REJECTED
        await one.trip()
        assert gate.ask(first, one.now) == one.now
        assert gate.ask(second, one.now) == REJECTED
        assert gate.ask(Waiter(), one.now) == REJECTED
        assert not gate.queue

    async def test_a_bucket_that_has_tokens_rejects_nobody(self, redis_server: RedisServer, sidecars: Make) -> None:
        """A process with a part of the rate asks for what it has not leased yet, at each call that lacks a token."""
        one = sidecars(redis_server)
        policy = policy_of(replace(self.SPEC, rate=1.0, burst=10, when_empty="reject"))
        gate = one.registry.scope(policy, REQUEST, one.now).rate
        assert gate is not None
        granted = 0
        for _ in range(14):
            waiter = Waiter()
            at = gate.ask(waiter, one.now)
            if one.now < at < REJECTED:
                await one.trip()
                at = gate.ask(waiter, one.now)
            granted += at <= one.now
        assert granted == 10

    async def test_parts_of_tokens_are_not_asked_for(self, redis_server: RedisServer, sidecars: Make) -> None:
        """Redis gives whole tokens: what is left of them here and there makes no token, and asking would not end."""
        one = sidecars(redis_server)
        policy = policy_of(replace(self.SPEC, rate=1.0, burst=10.5, when_empty="reject"))
        gate = one.registry.scope(policy, REQUEST, one.now).rate
        assert gate is not None
        waiter = Waiter()
        while (at := gate.ask(waiter, one.now)) != REJECTED:
            if at > one.now:
                await one.trip()
        one.now += 0.7
        assert gate.ask(Waiter(), one.now) == REJECTED  # 0.7 tokens are here, and 0.5 are in Redis

    async def test_an_unused_token_comes_back(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket, seen = one.bucket(self.SPEC), other.bucket(self.SPEC)
        bucket.take(one.now)
        await one.trip()
        assert bucket.take(one.now)
        await one.trip(later=0.02)
        bucket.give_back(one.now)
        await one.trip(later=0.1)
        await one.trip(later=1.1)
        seen.take(other.now)
        await other.trip()
        assert round(seen.level(other.now), 1) == 6


class Waiter:
    at = 0.0

    def retime(self, at: float) -> None:
        self.at = at


REFILLED = QuotaSpec(capacity=20, refill=100.0, store="redis")


async def seconds_of(server: RedisServer) -> float:
    """What Redis' own clock says, which is the one that refills."""
    from redis.asyncio import Redis

    async with Redis.from_url(server.url) as client:
        seconds, micros = await client.time()
    return float(seconds) + float(micros) / 1e6


async def test_time_refills_the_fleet_s_quota_and_no_more_is_spent(redis_server: RedisServer, sidecars: Make) -> None:
    """Sidecars whose clocks differ by hours share it: only the clock of Redis counts."""
    fleet = [sidecars(redis_server) for _ in range(3)]
    for number, each in enumerate(fleet):
        each.now += 7200 * number
    buckets = [each.bucket(REFILLED) for each in fleet]
    before = await seconds_of(redis_server)
    granted = 0
    async with asyncio.timeout(20):
        while granted < 40:  # ten times what it holds: the rest has come with time
            turn = granted % 3
            granted += await fleet[turn].granted(buckets[turn])
            for each in fleet:
                await each.trip(later=0.01)
    assert 5 * granted <= 20 + 100 * (await seconds_of(redis_server) - before) + 1e-6


async def test_a_refilled_level_is_worked_out_when_it_is_looked_at(redis_server: RedisServer, sidecars: Make) -> None:
    slow = QuotaSpec(capacity=100, initial=0, refill=1.0, store="redis")
    one = sidecars(redis_server)
    bucket = one.bucket(slow)
    assert not await one.granted(bucket, 50)
    heard = bucket.level(one.now)
    assert heard < 20
    assert bucket.level(one.now + 30) == pytest.approx(heard + 30, abs=0.1)
    assert bucket.level(one.now + 3600) == 100
    assert bucket.affords(50, one.now + 60) == ASK  # it is not known well enough: Redis decides
    assert bucket.share(one.now + 3600) == 1.0


async def test_without_redis_the_own_bucket_is_refilled_from_the_last_known_level(
    own_redis: RedisServer, sidecars: Make
) -> None:
    slow = QuotaSpec(capacity=100, refill=1.0, store="redis")
    one = sidecars(own_redis)
    bucket = one.bucket(slow)
    assert await one.granted(bucket, 90)
    await one.trip(later=0.02)
    await one.store.open(5.0)
    own_redis.kill()
    async with asyncio.timeout(20):
        while not one.store.out:
            await one.trip(later=0.2)
    level = bucket.level(one.now)
    assert level == pytest.approx(10, abs=5)
    assert not bucket.take(50, one.now)
    assert bucket.take(50, one.now + 45)
    assert bucket.level(one.now + 45) == pytest.approx(level - 5, abs=0.1)
