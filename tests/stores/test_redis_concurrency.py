"""`concurrency: {max: N}` over machines: never more than N attempts under way in a fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from callers import Waiting
from fleet import REQUEST, Sidecar, policy_of
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.policies.policy import Concurrency, Policy
from proxy.transport.clock import monotonic

pytestmark = needs_redis
Make = Callable[..., Sidecar]
QUOTA = QuotaSpec(capacity=100, store="redis")


class Machine:
    """One sidecar's calls under the limit. Its clock is the real one if it `runs`, so that it reports by itself."""

    def __init__(self, sidecar: Sidecar, most: int, queue: int = 1000) -> None:
        self.sidecar = sidecar
        self.rules = Concurrency(most, queue, 1000.0)
        self.policy: Policy = policy_of(QUOTA, concurrency=self.rules)
        found = sidecar.registry.scope(self.policy, REQUEST, 0.0).places
        assert found is not None
        self.places: Places = found
        self.waiting: list[Waiting] = []

    @property
    def now(self) -> float:
        return self.sidecar.store._clock()

    def come(self, calls: int) -> int:
        """So many calls come; how many are under way then."""
        self.waiting += [Waiting() for _ in range(calls)]
        return self.go()

    def go(self) -> int:
        for waiter in list(self.waiting):
            at = self.places.ask(waiter, self.rules, self.now)
            if at <= self.now or at == REJECTED:
                self.waiting.remove(waiter)
        return self.places.in_use

    def end(self, calls: int = 1) -> None:
        for _ in range(min(calls, self.places.in_use)):
            self.places.give_back(self.now)


async def fleet_of(
    count: int, server: RedisServer, sidecars: Make, most: int, *, runs: bool = True, **options: Any
) -> list[Machine]:
    made = [sidecars(server, **({"clock": monotonic} if runs else {}), **options) for _ in range(count)]
    machines = [Machine(each, most) for each in made]
    for each in made:
        await each.store.open()
        each.store._running = runs
        each.factory.listen()
        await each.factory.listening.wait()
    return machines


async def until(machines: list[Machine], holds: Callable[[], bool], most: int) -> None:
    """Until this is so, while calls go as they may; at no time are more than `most` under way."""
    async with asyncio.timeout(30):
        while not holds():
            for machine in machines:
                machine.go()
                assert sum(each.places.in_use for each in machines) <= most
            await asyncio.sleep(0.001)


def used(machines: list[Machine]) -> list[int]:
    return [machine.places.in_use for machine in machines]


async def test_never_more_than_max_are_under_way_and_each_machine_has_its_part(
    redis_server: RedisServer, sidecars: Make
) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars, 8)
    one.come(20)
    await until(machines, lambda: used(machines) == [8, 0], 8)
    other.come(20)
    while used(machines) != [4, 4]:
        one.end()
        before = one.places.in_use
        await until(machines, lambda before=before: sum(used(machines)) == 8 or one.places.in_use < before, 8)
    other.waiting.clear()
    for waiter in list(other.places.queue):
        other.places.leave(waiter, other.now)
    other.end(4)
    await until(machines, lambda: used(machines) == [8, 0], 8)  # what one does not need the other gets


async def test_places_are_given_by_demand(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(3, redis_server, sidecars, 10)
    for machine, calls in zip(machines, (1, 2, 30), strict=True):
        machine.come(calls)
    while used(machines) != [1, 2, 7]:
        machines[2].end()  # it may have taken a place before it was known that others need it
        machines[2].come(1)
        await until(machines, lambda: sum(used(machines)) == 10, 10)


async def test_more_machines_than_places_take_turns(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(4, redis_server, sidecars, 1)
    served = [0] * 4
    for machine in machines:
        machine.come(1000)
    async with asyncio.timeout(60):
        while not all(served):
            for place, machine in enumerate(machines):
                machine.go()
                assert sum(used(machines)) <= 1
                served[place] += machine.places.in_use
                await asyncio.sleep(0)
                machine.end()
            await asyncio.sleep(0.001)


async def test_a_dead_machine_s_places_come_back(redis_server: RedisServer, sidecars: Make) -> None:
    dying, other = machines = await fleet_of(2, redis_server, sidecars, 4, dead=2.0)
    dying.come(4)
    await until(machines, lambda: used(machines) == [4, 0], 4)
    other.come(2)
    dying.sidecar.store._running = False  # and nothing is heard of it any more
    await until([other], lambda: other.places.in_use == 2, 4)


async def test_a_machine_that_ends_gives_its_places_back(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars, 4)
    one.come(4)
    await until(machines, lambda: used(machines) == [4, 0], 4)
    other.come(2)
    await one.sidecar.close()
    one.end(4)
    await until([other], lambda: other.places.in_use == 2, 4)


async def test_waiting_calls_cost_no_messages(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars, 2)
    one.come(2)
    await until(machines, lambda: used(machines) == [2, 0], 2)
    begun, before = other.now, other.sidecar.store.round_trips
    for _ in range(200):
        other.come(1)
        await asyncio.sleep(0.005)
    seconds = other.now - begun
    assert len(other.places.queue) == 200
    assert other.sidecar.store.round_trips - before <= 4 * (seconds + 1)


async def test_a_queue_of_none_still_waits_for_the_reply(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars, 3, runs=False)
    for machine in machines:
        machine.rules = Concurrency(3, 0, 30.0)
    assert one.come(5) == 0
    assert len(one.waiting) == 3  # no more than there may be places
    await one.sidecar.trip()
    assert one.go() == 3
    assert other.come(2) == 0
    assert len(other.waiting) == 2
    await other.sidecar.trip()
    assert other.go() == 0
    assert not other.waiting  # refused: there is no place, and nobody may wait


async def test_without_redis_each_has_its_share_of_max(own_redis: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(4, own_redis, sidecars, 8, on_outage="share")
    for machine in machines:
        machine.come(1)
    await until(machines, lambda: used(machines) == [1] * 4, 8)
    async with asyncio.timeout(30):
        while any(machine.sidecar.store.share_now(machine.now).of < 4 for machine in machines):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    own_redis.kill()
    for machine in machines:
        machine.come(20)
    await until(machines, lambda: used(machines) == [2] * 4, 8)
    own_redis.start()
    for machine in machines:
        await machine.sidecar.until("back")
    machines[0].waiting.clear()
    for waiter in list(machines[0].places.queue):
        machines[0].places.leave(waiter, machines[0].now)
    machines[0].end(2)
    await until(machines, lambda: sum(used(machines)) == 8 and not machines[0].places.in_use, 8)


async def test_a_limit_is_kept_when_redis_loses_its_data(own_redis: RedisServer, sidecars: Make) -> None:
    """But for a machine that never used it before, which cannot know that there was a key."""
    one, other = machines = await fleet_of(2, own_redis, sidecars, 6)
    other.come(1)
    await until(machines, lambda: used(machines) == [0, 1], 6)
    other.end()
    one.come(6)
    await until(machines, lambda: used(machines) == [6, 0], 6)
    client = one.sidecar.store.client
    assert client is not None
    await client._client.flushall()
    other.come(3)
    one.end(1)
    await until(machines, lambda: used(machines) == [5, 1], 6)


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_comes_there_are_never_more_than_max(
    redis_server: RedisServer, sidecars: Make, seed: int
) -> None:
    """Calls come, wait, leave and end; messages are late, lost and answered too late."""
    rng, most = random.Random(seed), 7
    machines = await fleet_of(3, redis_server, sidecars, most)
    for _ in range(300):
        machine = rng.choice(machines)
        match rng.randrange(4):
            case 0:
                machine.come(rng.randrange(4))
            case 1:
                machine.end(rng.randrange(3))
            case 2 if machine.waiting:
                machine.places.leave(machine.waiting.pop(), machine.now)
            case _:
                await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
        for each in machines:
            each.go()
        assert sum(used(machines)) <= most
    for machine in machines:
        machine.come(most)
    await until(machines, lambda: sum(used(machines)) == most, most)
