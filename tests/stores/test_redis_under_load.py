"""A rate of a fleet under load while Redis pauses, loses its data, or sidecars are killed; and prices as large as the
bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from fleet import Sidecar
from paying import Calls
from redis.asyncio import Redis
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.bucket_specs import RateSpec

pytestmark = needs_redis
Make = Callable[..., Sidecar]

SPEC = RateSpec(rate=100.0, burst=20, store="redis")


async def loaded(
    sidecars: Make,
    server: RedisServer,
    count: int,
    sent: list[float],
    spec: RateSpec = SPEC,
    price: float = 1.0,
    dead: float = 10.0,
) -> tuple[list[Sidecar], list[Calls]]:
    loop = asyncio.get_running_loop()
    fleet = [sidecars(server, clock=loop.time, timeout=5.0, on_outage="share", dead=dead) for _ in range(count)]
    load = []
    for each in fleet:
        each.now = loop.time()
        await each.store.open()
        rate = each.bucket(spec)
        load += [Calls(rate, sent, price=price) for _ in range(3)]
    for one in load:
        one.ask()
    return fleet, load


async def until(sent: Sequence[float], count: int) -> None:
    """Until so many more were sent."""
    enough = len(sent) + count
    async with asyncio.timeout(60):
        while len(sent) < enough:  # noqa: ASYNC110  a state
            await asyncio.sleep(0.001)


def check(sent: Sequence[float], rate: float, burst: float) -> None:
    """In any time t at most rate * t + burst is sent."""
    lowest, sent = float("inf"), sorted(sent)
    for number, at in enumerate(at - sent[0] for at in sent):
        lowest = min(lowest, number - rate * at)
        assert number + 1 - rate * at - lowest <= burst


async def test_a_pause_of_redis_is_no_outage(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    fleet, load = await loaded(sidecars, own_redis, 6, sent)
    await until(sent, 60)
    for _ in range(3):
        own_redis.stop()
        asyncio.get_running_loop().call_later(0.08, own_redis.go_on)
        await until(sent, 60)
    for one in load:
        one.stop()
    assert [each.notices for each in fleet] == [[]] * 6
    check(sent, SPEC.rate, 2 * SPEC.burst + 1)


async def test_lost_data_under_load(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    fleet, load = await loaded(sidecars, own_redis, 6, sent)
    async with Redis.from_url(own_redis.url) as client:
        for _ in range(5):
            await until(sent, 40)
            await client.flushall()
    await until(sent, 40)
    for one in load:
        one.stop()
    assert [each.notices for each in fleet] == [[]] * 6
    check(sent, SPEC.rate, 2 * SPEC.burst + 1)


async def test_the_whole_rate_is_used_when_most_are_killed(own_redis: RedisServer, sidecars: Make) -> None:
    """The dead keep no part of it."""
    sent: list[float] = []
    fleet, load = await loaded(sidecars, own_redis, 6, sent, dead=2.0)
    await until(sent, 60)
    for index, each in enumerate(fleet[1:], start=1):
        for one in load[3 * index : 3 * index + 3]:
            one.stop()
        each.store._running = False  # nothing is said any more, and nothing returned
        if each.store._timer is not None:
            each.store._timer.cancel()
    lease = fleet[0].bucket(SPEC).lease
    async with asyncio.timeout(60):
        while lease.part < 0.9 * SPEC.rate:  # noqa: ASYNC110  a state
            await asyncio.sleep(0.001)
    await until(sent, 60)
    for one in load:
        one.stop()
    check(sent, SPEC.rate, 2 * SPEC.burst + 1)


@pytest.mark.parametrize("price", [20.0, 13.0, 50.0])
async def test_prices_as_large_as_the_bucket_are_paid_by_one_after_the_other(
    own_redis: RedisServer, sidecars: Make, price: float
) -> None:
    """None holds a part of what its first call needs while others wait for the rest: all of them are served."""
    sent: list[float] = []
    spec = RateSpec(rate=400.0, burst=20, store="redis")
    fleet, load = await loaded(sidecars, own_redis, 4, sent, spec, price)
    await until(sent, 24)
    for one in load:
        one.stop()
    assert [each.notices for each in fleet] == [[]] * 4
    check(sent, spec.rate / price, 20 / price + 2)
