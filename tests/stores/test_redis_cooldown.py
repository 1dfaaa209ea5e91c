"""The places by which a fleet's callers return from a cooldown: one number for all, its first given once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from callers import cooling
from fleet import Sidecar, policy_of
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.token_bucket import Waiter
from proxy.retry.facts import Request
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.weather.caller import Name
from proxy.retry.weather.cooldown import ALL_CALLERS, CooldownBegan
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane import Lane
from proxy.stores.redis.cooldown import read, written

pytestmark = needs_redis
Make = Callable[..., Sidecar]
QUOTA = QuotaSpec(capacity=100, store="redis")
DELAY = 0.05


class Caller(Waiter):
    """A call that waits, and is told when it may go."""

    def __init__(self, due: float = 0.0) -> None:
        self.at = math.nan
        self.due = due

    def retime(self, at: float) -> None:
        self.at = at


class Machine:
    """One sidecar's side of the cooldown, and its callers. `flying`: those whose attempt is under way."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.governor: Governor = sidecar.registry.scope(policy_of(QUOTA), Request("GET", "u.test", "/"), 0.0).governor
        self.waiting: list[Caller] = []
        self.flying: dict[object, float] = {}

    @property
    def now(self) -> float:
        return self.sidecar.now

    @property
    def lane(self) -> Lane:
        lane = self.governor.lanes.find(("", ALL_CALLERS))
        assert lane is not None
        return lane

    def meets(self, delay: float = DELAY, status: int = 503, sent: float | None = None) -> None:
        """An attempt is answered with a delay."""
        sent = self.now if sent is None else sent
        name = self.governor.requests_wait(cooling(), status, delay, sent=sent, now=self.now, whole=True)
        caller = Caller(self.now + delay)
        if name is not None and self.governor.claim(caller, name, self.now + delay):
            self.waiting.insert(0, caller)

    def come(self, callers: int) -> None:
        self.waiting += [Caller() for _ in range(callers)]
        self.go()

    def go(self) -> int:
        """Let go whoever may: how many are under way."""
        for caller in list(self.waiting):
            if caller.due <= self.now and self.governor.ask(caller, cooling(), self.now)[0] <= self.now:
                attempt = object()
                self.governor.sent(caller, attempt, self.now)
                self.waiting.remove(caller)
                self.flying[attempt] = self.now
        return len(self.flying)

    def land(self, *, well: bool = True) -> None:
        for attempt, sent in self.flying.items():
            self.governor._landed(attempt, cooling(), sent, self.now, well=well)
        self.flying.clear()


async def later(machines: list[Machine], seconds: float = 0.06) -> None:
    """Time passes, and everybody hears of everybody."""
    for machine in machines:
        machine.sidecar.now += seconds
    for _ in range(2):
        for machine in machines:
            await machine.sidecar.store.round_trip()


async def fleet_of(count: int, server: RedisServer, sidecars: Make) -> list[Machine]:
    machines = [Machine(sidecars(server)) for _ in range(count)]
    for machine in machines:
        await machine.sidecar.store.open()
        machine.sidecar.store._running = False  # round trips are this test's
        machine.sidecar.factory.listen()
        await machine.sidecar.factory.listening.wait()
    return machines


async def heard(machines: list[Machine]) -> None:
    """Until all have heard of the word."""
    async with asyncio.timeout(20):
        while not all(machine.governor.lanes.seconds_left(machine.now) for machine in machines):  # noqa: ASYNC110  a state
            await asyncio.sleep(0.001)


async def test_the_first_place_is_given_once(redis_server: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(3, redis_server, sidecars)
    cooldowns: list[list[CooldownBegan]] = [[], [], []]
    for machine, its in zip(machines, cooldowns, strict=True):
        machine.sidecar.factory.scopes.heard = its.append
    machines[0].meets()
    machines[1].meets(sent=machines[1].now - 1)  # to an attempt sent before the first word: it is the same cooldown
    for machine in machines[:2]:
        machine.come(3)
    await later(machines, 0.001)
    await heard(machines)
    assert [len(its) for its in cooldowns] == [0, 0, 1]  # the others' calls met it themselves
    assert (cooldowns[2][0].upstream, cooldowns[2][0].status, cooldowns[2][0].is_elsewhere) == ("u", 503, True)
    machines[2].come(3)
    await later(machines)
    assert [machine.go() for machine in machines] == [1, 0, 0]
    await later(machines, 10 * DELAY)
    assert [machine.go() for machine in machines] == [1, 0, 0]  # for as long as its attempt is under way
    machines[0].land()
    await later(machines)
    assert sum(machine.go() for machine in machines) == 2


async def test_two_sidecars_together_have_no_more_places_than_there_are(
    redis_server: RedisServer, sidecars: Make
) -> None:
    """Once all know of each other; a newcomer may have its share before the others know of it."""
    machines = await fleet_of(2, redis_server, sidecars)
    machines[0].meets()
    machines[0].come(40)
    await later(machines, 0.001)
    await heard(machines)
    machines[1].come(40)
    await later(machines)
    sums = []
    for _ in range(7):
        sums.append(sum(machine.go() for machine in machines))
        for machine in machines:
            machine.land()
        await later(machines)
        await later(machines)
    assert sums[:6] == [1, 2, 4, 8, 16, 32]  # they double, for all together
    assert not machines[0].waiting or machines[1].go()


async def test_a_newcomer_exceeds_the_number_by_its_share_until_the_others_know(
    redis_server: RedisServer, sidecars: Make
) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars)
    one.meets()
    one.come(60)
    await later(machines, 0.001)
    await heard(machines)
    await later(machines)
    for _ in range(3):
        one.go()
        one.land()
        await later(machines)
    places = int(one.lane.limit.most)
    assert places == 8
    other.come(20)
    await other.sidecar.store.round_trip()  # and the first has not heard of it yet
    assert one.go() + other.go() <= places + places // 2
    one.land()
    await later(machines)
    assert one.go() + other.go() <= int(one.lane.limit.most)


async def test_a_dead_sidecar_s_places_come_back(redis_server: RedisServer, sidecars: Make) -> None:
    dying, other = machines = await fleet_of(2, redis_server, sidecars)
    dying.meets()
    dying.come(1)
    await later(machines, 0.001)
    await heard(machines)
    other.come(2)
    await later(machines)
    assert (dying.go(), other.go()) == (1, 0)  # and nothing is heard of it any more
    async with asyncio.timeout(20):
        while not other.go():
            await later([other])


async def two_that_share_eight(redis: RedisServer, sidecars: Make) -> list[Machine]:
    """Two machines whose calls return from a cooldown, and share eight places by now."""
    machines = await fleet_of(2, redis, sidecars)
    one, other = machines
    one.meets()
    one.come(60)
    await later(machines, 0.001)
    await heard(machines)
    other.come(60)
    await later(machines)
    for _ in range(3):
        for machine in machines:
            machine.go()
        for machine in machines:
            machine.land()
        await later(machines)
        await later(machines)
    assert one.lane.limit.most == other.lane.limit.most == 8
    return machines


async def test_another_word_halves_the_number_once_for_all(redis_server: RedisServer, sidecars: Make) -> None:
    machines = one, other = await two_that_share_eight(redis_server, sidecars)
    assert sum(machine.go() for machine in machines) == 8
    one.meets(delay=1.0)
    other.meets(delay=1.0, sent=other.now - 0.2)  # sent before the others' word, after the one before that
    await later(machines, 0.0)
    await later(machines)
    assert one.lane.limit.most == other.lane.limit.most == 4


async def test_without_redis_each_has_its_own(own_redis: RedisServer, sidecars: Make) -> None:
    machines = await fleet_of(2, own_redis, sidecars)
    machines[0].meets()
    await later(machines, 0.001)
    await heard(machines)
    for machine in machines:
        machine.come(3)
    await later(machines)
    assert [machine.go() for machine in machines] == [1, 0]
    own_redis.kill()
    await later(machines)
    assert [machine.go() for machine in machines] == [1, 1]
    for machine in machines:
        machine.land()
    assert [machine.go() for machine in machines] == [2, 2]


@pytest.mark.parametrize("waits", [False, True])
async def test_without_redis_each_goes_on_with_its_share_of_the_places(
    own_redis: RedisServer, sidecars: Make, waits: bool
) -> None:
    """All of the fleet's places in every process would send whoever is held at once. `waits`: the delay of another
    pushback, which has halved the number, is not over when Redis is lost.
    """
    machines = one, other = await two_that_share_eight(own_redis, sidecars)
    if waits:
        one.meets(delay=1.0)
        await later(machines, 0.0)
        await heard(machines)
        await later(machines)
        assert one.lane.limit.most == other.lane.limit.most == 4
    own_redis.kill()
    await later(machines, 1.0 if waits else 0.06)
    assert [machine.go() for machine in machines] == ([2, 2] if waits else [4, 4])
    for machine in machines:
        machine.land()
    assert all(2 <= machine.go() <= 8 for machine in machines)


async def test_it_is_over_for_all_when_nobody_is_held_anywhere(redis_server: RedisServer, sidecars: Make) -> None:
    one, idle = machines = await fleet_of(2, redis_server, sidecars)
    one.meets()
    one.come(2)
    await later(machines, 0.001)
    await heard(machines)
    await later(machines)
    assert idle.governor.holds(idle.now)  # though nobody is held here, and the delay is over
    for _ in range(3):
        one.go()
        one.land()
        await later(machines)
    await later(machines, 0.11)
    caller = Caller()
    assert [machine.governor.ask(caller, cooling(), machine.now)[0] <= machine.now for machine in machines] == [
        True,
        True,
    ]
    assert [machine.governor.holds(machine.now) for machine in machines] == [False, False]


NAMES: list[Name] = [("", ALL_CALLERS), ("", b"0123\0 456789"), ("a.test:80", ALL_CALLERS), ("é:1", b"\0" * 12)]


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_has_one_name_in_the_fleet(name: Name) -> None:
    assert read(written(name)) == name
    assert name[0] or written(name) == name[1].hex()  # as releases without lanes for endpoints wrote it


async def test_a_cooldown_of_one_endpoint_holds_the_other_machines_calls_to_it_alone(
    redis_server: RedisServer, sidecars: Make
) -> None:
    one, other = machines = await fleet_of(2, redis_server, sidecars)
    met = cooling()
    met.endpoint = "a.test:80"
    assert one.governor.requests_wait(met, 503, 5.0, sent=one.now, now=one.now, whole=False) == (
        met.endpoint,
        ALL_CALLERS,
    )
    await later(machines, 0.001)
    await heard(machines)
    elsewhere = cooling()
    elsewhere.endpoint = "b.test:80"
    assert other.governor.ask(Caller(), met, other.now)[0] > other.now
    assert other.governor.ask(Caller(), elsewhere, other.now)[0] == other.now
