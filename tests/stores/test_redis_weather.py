"""Limits and outages of a fleet: what one sidecar finds out is so for all, places are divided, and one probes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from callers import REFUSED, UNCONNECTED, Waiting, caller
from fleet import REQUEST, Sidecar, policy_of
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.weather_changes import WeatherChanged, WeatherWatch
from proxy.stores.redis.cooldown import read, written
from proxy.transport.clock import monotonic

pytestmark = needs_redis
Make = Callable[..., Sidecar]
QUOTA = QuotaSpec(capacity=100, store="redis")


class Machine:
    """One sidecar's calls, and its attempts under way; on the real clock."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.governor: Governor = sidecar.registry.scope(policy_of(QUOTA), REQUEST, 0.0).governor
        self.waiting: dict[Waiting, Caller] = {}
        self.flying: dict[object, tuple[float, Caller]] = {}

    @property
    def now(self) -> float:
        return self.sidecar.store._clock()

    @property
    def lane(self) -> Any:
        return self.governor.first

    def come(self, calls: int) -> None:
        for _ in range(calls):
            self.waiting[Waiting()] = caller()

    def go(self) -> None:
        """Send the calls that may be sent."""
        for waiter, who in list(self.waiting.items()):
            now = self.now
            if not self.governor.holds(now) or self.governor.ask(waiter, who, now)[0] <= now:
                del self.waiting[waiter]
                attempt = object()
                self.governor.traffic.flying += 1
                self.governor.sent(waiter, attempt, now)
                self.flying[attempt] = now, who

    def answer(self, attempts: int = 1_000_000) -> None:
        for attempt, (sent, who) in list(self.flying.items())[:attempts]:
            del self.flying[attempt]
            if self.governor.traffic.went_well(self.now) or self.governor.holds(self.now):
                self.governor.answered_well(attempt, who, sent, self.now)

    def fail(self, attempts: int, ending: Any = REFUSED, *, again: bool = False) -> None:
        for attempt, (sent, who) in list(self.flying.items())[:attempts]:
            del self.flying[attempt]
            self.governor.traffic.failed()
            self.governor.failed(attempt, who, ending, sent, self.now, again=again, cools=False)

    def is_well(self) -> None:
        for _ in range(30):
            self.come(1)
            self.go()
            self.answer()


async def fleet_of(count: int, server: RedisServer, sidecars: Make, **options: Any) -> list[Machine]:
    machines = [Machine(sidecars(server, clock=monotonic, **options)) for _ in range(count)]
    for machine in machines:
        await machine.sidecar.store.open()
        machine.sidecar.factory.listen()
        await machine.sidecar.factory.listening.wait()
        machine.is_well()
    return machines


async def until(machines: list[Machine], holds: Callable[[], bool], step: Callable[[], None] = lambda: None) -> None:
    """Until this is so, while calls go as they may."""
    async with asyncio.timeout(30):
        while not holds():
            for machine in machines:
                machine.go()
            step()
            await asyncio.sleep(0.002)


def flying(machines: list[Machine]) -> list[int]:
    return [len(machine.flying) for machine in machines]


async def limited(machines: list[Machine], under_way: int = 20) -> None:
    """One machine's attempts are refused, until that limits all."""
    for machine in machines:
        machine.come(under_way)
        machine.go()
    machines[0].fail(under_way // 2)
    assert machines[0].lane.limit.is_on
    await until(machines, lambda: all(machine.lane.limit.is_on for machine in machines))


async def test_a_limit_that_one_finds_is_one_of_the_whole_fleet(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(3, redis_server, sidecars)
    told: list[list[WeatherChanged]] = [[] for _ in machines]
    for machine, its in zip(machines, told, strict=True):
        machine.governor.lanes.watch = WeatherWatch("u", "x", its.append)
    await limited(machines)
    assert [(its[0].event, its[0].why) for its in told] == [
        ("limit_began", "refused"),
        *[("limit_began", "elsewhere")] * 2,
    ]
    for machine in machines:
        machine.answer()
        machine.come(100)

    lanes, stores = [machine.lane for machine in machines], [machine.sidecar.store for machine in machines]
    trips = [store.round_trips for store in stores]

    def turn_over() -> None:
        """One attempt of each ends, once each has heard of what the others did; a busy machine takes its time."""
        if all(store.round_trips >= before + 2 for store, before in zip(stores, trips, strict=True)):
            trips[:] = [store.round_trips for store in stores]
            for machine in machines:
                machine.answer(1)
                machine.come(1)

    def is_shared() -> bool:
        parts = sum(lane.fleet.limit_share for lane in lanes) <= min(lane.limit.most for lane in lanes)
        return parts and all(flying(machines)) and within(machines)

    # A machine may exceed the number by what the others have just got, until it hears of them.
    for _ in range(4):
        before = list(trips)
        await until(machines, lambda before=before: trips != before, turn_over)  # type: ignore[misc]
        await until(machines, is_shared, turn_over)


def within(machines: list[Machine]) -> bool:
    """Whether no more attempts have a place than the limit says. (An attempt of more than a second has none.)"""
    young = sum(machine.now - sent < 1 for machine in machines for sent, _ in machine.flying.values())
    return young <= max(machine.lane.limit.most for machine in machines)


async def test_places_go_to_those_that_want_them(redis_server: RedisServer, sidecars: Make) -> None:
    busy, idle = machines = await fleet_of(2, redis_server, sidecars)
    await limited(machines)
    for machine in machines:
        machine.waiting.clear()
        machine.answer()
    busy.come(500)
    idle.come(1)
    await until(machines, lambda: len(busy.flying) >= int(busy.lane.limit.most) - 4 and len(idle.flying) == 1)


async def test_two_cuts_for_one_time_are_one(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars)
    await limited(machines)
    for machine in machines:
        machine.answer()
        machine.come(200)
    await until(machines, lambda: one.lane.limit.most == other.lane.limit.most and all(flying(machines)))
    before = one.lane.limit.most
    for machine in machines:
        machine.lane.limit._trial.end()  # until it ends, a limit under which most are served is not cut
    one.fail(3)
    other.fail(3)
    assert max(one.lane.limit.most, other.lane.limit.most) < before
    await until(machines, lambda: one.lane.limit.most == other.lane.limit.most)
    assert one.lane.limit.most >= before / 2 - 1


async def test_a_limit_is_over_for_all_when_no_call_needs_it(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(3, redis_server, sidecars)
    await limited(machines)

    def lightly() -> None:
        for machine in machines:
            machine.answer()
        machines[0].come(1)

    await until(machines, lambda: not any(machine.lane.limit.is_on for machine in machines), lightly)
    assert all(machine.lane.fleet.limit_share == float("inf") for machine in machines)


async def outage(machines: list[Machine]) -> None:
    """One machine's attempts can't connect, until that is an outage of all."""
    machines[0].come(2)
    machines[0].go()
    machines[0].fail(1, UNCONNECTED)
    machines[0].fail(1, UNCONNECTED, again=True)
    assert machines[0].lane.outage.is_on
    await until(machines, lambda: all(machine.lane.outage.is_on for machine in machines))


async def test_one_machine_probes_and_all_hear_of_the_end(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(4, redis_server, sidecars)
    await outage(machines)
    for machine in machines:
        machine.come(5)
    probes = 0

    def probe() -> None:
        nonlocal probes
        assert sum(flying(machines)) <= 1
        if sum(flying(machines)):
            probes += 1
            for machine in machines:
                for sent, who in list(machine.flying.values()):
                    (attempt,) = machine.flying
                    machine.flying.clear()
                    machine.governor.traffic.failed()
                    machine.governor.failed(attempt, who, UNCONNECTED, sent, machine.now, again=True, cools=False)

    await until(machines, lambda: probes >= 3, probe)
    await until(machines, lambda: sum(flying(machines)) == 1)
    for machine in machines:
        machine.answer()
    await until(machines, lambda: not any(machine.lane.outage.is_on for machine in machines))

    def serve() -> None:
        for machine in machines:
            machine.answer()

    await until(machines, lambda: not any(machine.waiting for machine in machines), serve)


async def test_another_probes_when_the_one_that_did_is_gone(redis_server: RedisServer, sidecars: Make) -> None:
    dying, other = machines = await fleet_of(2, redis_server, sidecars)
    await outage(machines)
    dying.come(1)
    await until(machines, lambda: flying(machines) == [1, 0])
    other.come(1)
    dying.sidecar.store._running = False  # and nothing is heard of it any more
    await until([other], lambda: len(other.flying) == 1)


async def test_without_redis_each_goes_on_with_its_part_and_probes(own_redis: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(2, own_redis, sidecars)
    await limited(machines)
    for machine in machines:
        machine.answer()
        machine.come(100)
    lanes = [machine.lane for machine in machines]
    await until(
        machines, lambda: all(flying(machines)) and sum(lane.fleet.limit_share for lane in lanes) <= lanes[0].limit.most
    )
    most = lanes[0].limit.most
    own_redis.kill()
    await until(machines, lambda: all(machine.sidecar.store.out for machine in machines))
    assert sum(machine.lane.limit.most for machine in machines) <= most + 2
    for machine in machines:
        machine.answer()
    await until(machines, lambda: all(flying(machines)))


async def test_who_comes_later_knows_of_an_outage(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(1, redis_server, sidecars)
    await outage(machines)
    sidecar = sidecars(redis_server, clock=monotonic)
    await sidecar.store.open()
    sidecar.factory.listen()
    await sidecar.factory.listening.wait()
    later = Machine(sidecar)
    await until([*machines, later], lambda: later.lane.outage.is_on)


async def test_a_fleet_whose_every_attempt_is_refused_sends_one_at_a_time_and_goes_on_once_one_is_served(
    redis_server: RedisServer, sidecars: Make
) -> None:
    """Answers refuse at once and name no delay. One sidecar has come later, and was never served by this upstream."""
    machines = await fleet_of(4, redis_server, sidecars)
    sidecar = sidecars(redis_server, clock=monotonic)
    await sidecar.store.open()
    sidecar.factory.listen()
    await sidecar.factory.listening.wait()
    machines.append(Machine(sidecar))
    sent: list[float] = []
    refuses = True

    def step() -> None:
        for machine in machines:
            if refuses:
                machine.come(len(machine.waiting) < 20)
                sent.extend([machine.now] * len(machine.flying))
                machine.fail(1_000_000)
            else:
                machine.answer()

    await until(machines, lambda: all(machine.lane.limit.all_refused.is_on for machine in machines), step)
    before = len(sent)
    await until(machines, lambda: len(sent) > before and sent[-1] - sent[before] > 2.0, step)
    in_a_second = [sum(at <= other < at + 1.0 for other in sent[before:]) for at in sent[before:]]
    assert max(in_a_second) <= 2 * len(machines)  # section 9, rule 3
    refuses = False
    await until(machines, lambda: not any(machine.waiting for machine in machines), step)


@pytest.mark.parametrize("name", [("", b"route r GET"), ("a.test:80", b"route r /s/M")])
def test_a_route_has_one_name_in_the_fleet(name: tuple[str, bytes]) -> None:
    assert read(written(name)) == name
