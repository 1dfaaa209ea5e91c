"""Rates of a fleet whose burst is that of a few calls: what is refilled is used, whoever waits for it, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fleet import Sidecar
from paying import Alarmed, Calls, check, live, until
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.bucket_specs import RateSpec
from proxy.stores.redis.rate import UNUSED, RedisRate

pytestmark = needs_redis
Make = Callable[..., Sidecar]


class Settled(Alarmed):
    """A call that waits, is sent, and puts back what it did not use; then the next comes."""

    def __init__(self, rate: RedisRate, price: float, unused: float, sent: list[float]) -> None:
        super().__init__()
        self._rate, self._price, self._unused, self._sent = rate, price, unused, sent
        self.count = 0

    def ask(self, due: float = float("inf")) -> None:
        if self.stopped:
            return
        now = self._loop.time()
        at = self._rate.gate.ask(self, now, self._price)
        if at > now:
            self.retime(at)
            return
        self.stop()
        self.stopped = False
        self._sent.append(min(now, due))
        self.count += 1
        self._alarm = self._loop.call_later(0.05, self._ended)

    def _ended(self) -> None:
        self._rate.gate.give_back(self._loop.time(), self._unused)
        self.ask()


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("price", [290.0, 600.0, 1300.0], ids=["a quarter", "half", "more than all"])
async def test_calls_of_a_large_price_that_settle_go_on(
    own_redis: RedisServer, sidecars: Make, count: int, price: float
) -> None:
    """Also where a process had a part of the rate whose room is less than the price."""
    sent: list[float] = []
    fleet = await live(sidecars, own_redis, count)
    rates = [each.bucket(RateSpec(rate=12_000.0, burst=1200, store="redis")) for each in fleet]
    calls = [Settled(rate, price, price / 2, sent) for rate in rates for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: all(each.count >= 5 for each in calls))
    for each in calls:
        each.stop()
    assert [each.notices for each in fleet] == [[]] * count


async def test_a_call_that_the_room_of_a_part_does_not_hold_is_served(own_redis: RedisServer, sidecars: Make) -> None:
    """Small calls have had the rate divided before it comes."""
    fleet = await live(sidecars, own_redis, 2)
    rates = [each.bucket(RateSpec(rate=400.0, burst=80, store="redis")) for each in fleet]
    small = [Calls(rate, []) for rate in rates for _ in range(4)]
    for each in small:
        each.ask()
    await until(lambda: all(rate.lease.part > 100 for rate in rates))
    large = Settled(rates[0], 60.0, 0.0, [])
    large.ask()
    await until(lambda: large.count >= 3)
    large.stop()
    for each in small:
        each.stop()


@pytest.mark.parametrize("burst", [1, 3, 10])
async def test_five_processes_send_no_more_than_a_small_burst(
    own_redis: RedisServer, sidecars: Make, burst: int
) -> None:
    sent: list[float] = []
    fleet = await live(sidecars, own_redis, 5)
    rates = [each.bucket(RateSpec(rate=100.0, burst=burst, store="redis")) for each in fleet]
    calls = [Calls(rate, sent) for rate in rates for _ in range(3)]
    for each in calls:
        each.ask()
    await until(lambda: len(sent) >= 200)
    for each in calls:
        each.stop()
    check(sent, 100.0, burst + 1)


async def test_what_is_no_process_s_part_is_asked_for_before_it_fills_the_bucket(
    own_redis: RedisServer, sidecars: Make
) -> None:
    spec = RateSpec(rate=100.0, burst=10, store="redis")
    fleet = await live(sidecars, own_redis, 2)
    rates = [each.bucket(spec) for each in fleet]
    calls = [Calls(rate, []) for rate in rates for _ in range(10)]
    for each in calls:
        each.ask()
    await until(lambda: sum(rate.lease.part for rate in rates) > 0.9 * spec.rate)
    for rate in rates:
        fills = UNUSED * spec.burst / rate._free
        assert rate.due <= rate.heard_at + max(rate._step, fills) + 1e-6
    for each in calls:
        each.stop()
