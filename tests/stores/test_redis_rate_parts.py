"""The parts of a fleet's rate: together they are at most the rate, by what each process could use, and few messages
divide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fleet import Sidecar
from paying import Calls, check, live, until
from redis.asyncio import Redis
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.bucket_specs import RateSpec
from proxy.transport.clock import monotonic

pytestmark = needs_redis
Make = Callable[..., Sidecar]

SPEC = RateSpec(rate=200.0, burst=60, store="redis")


@pytest.mark.parametrize("count", [1, 3, 8])
async def test_the_whole_rate_is_divided_with_few_messages(own_redis: RedisServer, sidecars: Make, count: int) -> None:
    sent: list[float] = []
    fleet = await live(sidecars, own_redis, count)
    rates = [each.bucket(SPEC) for each in fleet]
    calls = [Calls(rate, sent) for rate in rates for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: len(sent) >= 200)
    await until(lambda: sum(rate.lease.part for rate in rates) > 0.9 * SPEC.rate)
    async with Redis.from_url(own_redis.url) as client:
        await client.config_resetstat()
        before = len(sent)
        await until(lambda: len(sent) >= before + 800)
        scripts = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    for each in calls:
        each.stop()
    check(sent, SPEC.rate, SPEC.burst + 1)
    assert scripts < 800 / 4
    assert sum(rate.lease.part for rate in rates) <= SPEC.rate + 1e-6


async def test_parts_go_by_what_each_could_use(own_redis: RedisServer, sidecars: Make) -> None:
    """Two processes with few calls have what they use, and the one with many has the rest."""
    sent: list[float] = []
    fleet = await live(sidecars, own_redis, 3)
    rates = [each.bucket(SPEC) for each in fleet]
    calls = [Calls(rates[0], sent) for _ in range(4)] + [Calls(rate, sent, 10.0) for rate in rates[1:]]
    for each in calls:
        each.ask()
    await until(lambda: rates[0].lease.part > 0.6 * SPEC.rate and all(rate.lease.part >= 8 for rate in rates[1:]))
    assert max(rate.lease.part for rate in rates[1:]) < 60
    for each in calls:
        each.stop()
    check(sent, SPEC.rate, SPEC.burst + 1)


async def test_one_that_comes_gets_its_part_from_those_that_have_more(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    first, second = await live(sidecars, own_redis, 2)
    one, other = first.bucket(SPEC), second.bucket(SPEC)
    calls = [Calls(one, sent) for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: one.lease.part > 0.9 * SPEC.rate)
    calls += [Calls(other, sent) for _ in range(4)]
    for each in calls[4:]:
        each.ask()
    await until(lambda: other.lease.part > 0.45 * SPEC.rate)
    assert one.lease.part + other.lease.part <= SPEC.rate
    for each in calls[4:]:
        each.stop()
    await until(lambda: one.lease.part > 0.9 * SPEC.rate)  # and back
    for each in calls:
        each.stop()
    check(sent, SPEC.rate, SPEC.burst + 1)


async def test_the_part_of_a_dead_process_goes_to_the_others(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    first, second = await live(sidecars, own_redis, 2, dead=3.0)
    one, other = first.bucket(SPEC), second.bucket(SPEC)
    calls = [Calls(rate, sent) for rate in (one, other) for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: min(one.lease.part, other.lease.part) > 0.45 * SPEC.rate)
    for each in calls[4:]:
        each.stop()
    second.store._running = False  # nothing is said any more
    if second.store._timer is not None:
        second.store._timer.cancel()
    await until(lambda: one.lease.part > 0.9 * SPEC.rate)
    for each in calls:
        each.stop()
    check(sent, SPEC.rate, SPEC.burst + 1)


async def test_without_use_there_is_no_part(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    (one,) = await live(sidecars, own_redis, 1)
    rate = one.bucket(SPEC)
    call = Calls(rate, sent)
    call.ask()
    await until(lambda: rate.lease.part > 0)
    call.stop()
    rate.gate.leave(call, asyncio.get_running_loop().time())
    await until(lambda: rate.lease.part == 0 and rate.lease.held == 0)
    assert rate.level(asyncio.get_running_loop().time()) > 0


async def test_an_outage_after_which_redis_has_its_data_keeps_the_bound(own_redis: RedisServer, sidecars: Make) -> None:
    """Redis kept its data: each part has come in full meanwhile, and was spent as a share."""
    sent: list[float] = []
    fleet = await live(sidecars, own_redis, 4, timeout=0.3)
    rates = [each.bucket(SPEC) for each in fleet]
    calls = [Calls(rate, sent) for rate in rates for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: sum(rate.lease.part for rate in rates) > 0.9 * SPEC.rate)
    await until(lambda: all(each.store.share_now(each.store._clock()).of == 4 for each in fleet))
    own_redis.stop()
    await until(lambda: all(each.store.out for each in fleet))
    before = len(sent)
    await until(lambda: len(sent) >= before + 300)
    own_redis.go_on()
    await until(lambda: not any(each.store.out for each in fleet))
    await until(lambda: len(sent) >= before + 900)
    for each in calls:
        each.stop()
    check(sent, SPEC.rate, 1.5 * SPEC.burst)


async def test_a_tiny_part_lasts_until_the_rate_is_divided_again(own_redis: RedisServer, sidecars: Make) -> None:
    """A process that has just come may have a hundredth of a token a second: no call is refused for that."""
    rate = (await live(sidecars, own_redis, 1))[0].bucket(SPEC)
    lease, now = rate.lease, monotonic()
    lease.until, lease.left = now + 3.0, 0.0
    lease.part, lease.most = 0.01, 60.0
    assert rate.wait(now, 1.0) == pytest.approx(3.0 + 0.97 / SPEC.rate, abs=0.01)
    assert rate.wait(now, 30.0) == pytest.approx(3.0 + 29.97 / SPEC.rate, abs=0.01)
    lease.part = 100.0
    assert rate.wait(now, 30.0) == pytest.approx(0.3, abs=0.02)
