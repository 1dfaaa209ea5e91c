"""Calls that wait for the tokens of a fleet: each is served in its turn, Redis is asked once a token, and no token lies
where it can't be spent.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from fleet import REQUEST, Sidecar, policy_of
from redis.asyncio import Redis
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.token_bucket import TokenGate
from proxy.retry.policies.bucket_specs import QuotaSpec, RateSpec
from proxy.stores.redis.client import Command

pytestmark = needs_redis
Make = Callable[..., Sidecar]


class Caller:
    """A call that waits at a gate, and asks again when its alarm rings, as calls do."""

    def __init__(self, gate: TokenGate, served: Callable[[], None]) -> None:
        self._gate = gate
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        now = self._loop.time()
        at = self._gate.ask(self, now)
        if at <= now:
            self._served()
        else:
            self.retime(at)

    def retime(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self.ask)


async def gates_of(fleet: Sequence[Sidecar], spec: RateSpec) -> list[TokenGate]:
    gates = []
    for each in fleet:
        await each.store.open()
        gate = each.registry.scope(policy_of(spec), REQUEST, asyncio.get_running_loop().time()).rates[0].gate
        assert gate is not None
        gates.append(gate)
    return gates


@pytest.mark.parametrize("burst", [1, 5])
async def test_redis_is_asked_once_a_token_and_no_token_is_given_twice(
    own_redis: RedisServer, sidecars: Make, burst: int
) -> None:
    loop = asyncio.get_running_loop()
    spec = RateSpec(rate=50.0, burst=burst, store="redis")
    fleet = [sidecars(own_redis, clock=loop.time, timeout=2.0) for _ in range(6)]
    gates = await gates_of(fleet, spec)
    sent: list[tuple[float, int]] = []
    done = asyncio.Event()

    def served(number: int) -> None:
        sent.append((loop.time(), number))
        if len(sent) == 60:
            done.set()

    async with Redis.from_url(own_redis.url) as client:
        await client.config_resetstat()
        begun = loop.time()
        for number, gate in enumerate(gates):
            for _ in range(10):
                Caller(gate, lambda number=number: served(number)).ask()
        async with asyncio.timeout(30):
            await done.wait()
        asked = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    # A token that is taken late makes room for none: what counts is the time since the first.
    assert all(number + 1 <= burst + 1 + spec.rate * (at - begun) for number, (at, _) in enumerate(sent))
    members = 4 * len(fleet)  # reports of the processes themselves
    # About one script a token (`bench/fleet.py` measures it); a waiter that polled would ask some eight hundred times.
    assert asked <= 2 * 60 + 2 * len(fleet) + members
    first = [number for _, number in sent[:30]]
    assert all(first.count(number) >= 2 for number in range(6))  # they take turns


async def test_a_waiter_that_leaves_keeps_no_token_from_others(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    spec = RateSpec(rate=0.001, burst=1, store="redis")
    gate, others = (each.registry.scope(policy_of(spec), REQUEST, each.now).rate for each in (one, other))
    assert gate is not None and others is not None
    first, second = Silent(), Silent()
    assert gate.ask(first, one.now) > one.now
    await one.trip()
    gate.leave(first, one.now)  # its token came, and is not needed any more
    await one.trip(later=2.0)
    assert others.ask(second, other.now) > other.now
    await other.trip()
    assert others.ask(second, other.now) == other.now


async def test_reserved_tokens_come_one_after_the_other_to_all_who_wait(
    redis_server: RedisServer, sidecars: Make
) -> None:
    """The script reserves what will be refilled: each process is told when its token comes."""
    spec = RateSpec(rate=0.01, burst=1, initial=0, store="redis")  # seconds apart, whatever the trips take
    fleet = [sidecars(redis_server) for _ in range(4)]
    waits = []
    for each in fleet:
        gate = each.registry.scope(policy_of(spec), REQUEST, each.now).rates[0].gate
        assert gate is not None
        gate.ask(Silent(), each.now)
        await each.trip()
        waits.append(gate.bucket.wait(each.now))
    assert [later - sooner for sooner, later in pairwise(waits)] == pytest.approx([100.0] * 3, abs=20.0)
    assert 0.0 < waits[0] <= 100.0


@pytest.mark.parametrize("remainder", [0.0, 0.25])
async def test_a_call_that_waits_for_a_reserved_token_costs_one_message_a_token(
    redis_server: RedisServer, sidecars: Make, remainder: float
) -> None:
    """Also in a process that has less than a token, such as is left of a part, which no call can take."""
    one = sidecars(redis_server)
    spec = RateSpec(rate=0.3, burst=1, store="redis")
    rate = one.registry.scope(policy_of(spec), REQUEST, one.now).rates[0]
    gate, calls = rate.gate, [Silent() for _ in range(3)]
    assert gate.ask(calls[0], one.now) > one.now
    await one.trip()
    assert gate.ask(calls[0], one.now) == one.now
    rate.give_back(one.now, remainder)
    one.now += 0.1
    for each in calls[1:]:
        gate.ask(each, one.now)
    await one.trip()
    comes, messages = rate.lease.future.at(1), rate._sequence
    assert comes > one.now + 2.0
    while one.now < comes:
        one.now = min(comes, max(one.now + 0.001, rate.due))
        await one.trip()
    assert rate._sequence == messages
    assert rate.due > comes  # the call whose token has come asks first
    assert gate.ask(calls[1], one.now) == one.now
    one.now += 0.02
    trip = asyncio.create_task(one.trip())
    await asyncio.sleep(0)
    assert rate._sequence == messages + 1
    one.now += 0.05
    assert gate.ask(calls[2], one.now) > one.now  # while the message is under way that asks for its token
    await trip
    await one.trip()
    assert (rate._sequence, rate.lease.future.count) == (messages + 1, 1)


async def test_a_reserved_token_that_comes_late_is_kept(redis_server: RedisServer, sidecars: Make) -> None:
    """Many processes wait for few tokens: each one's turn comes later than a lease is trusted without a report."""
    one = sidecars(redis_server)
    rate = one.registry.scope(
        policy_of(RateSpec(rate=0.05, burst=1, initial=0, store="redis")), REQUEST, one.now
    ).rates[0]
    gate, call = rate.gate, Silent()
    assert gate.ask(call, one.now) > one.now
    await one.trip()
    comes, messages = rate.lease.future.at(1), rate._sequence
    assert comes > one.now + 10.0
    while one.now < comes:
        one.now = min(comes, max(one.now + 0.001, rate.due))
        await one.trip()
    assert gate.ask(call, one.now) == one.now
    assert rate._sequence - messages <= 3


class Silent:
    def retime(self, at: float) -> None:
        pass


class TestWholePrices:
    async def test_a_full_bucket_never_refuses(self, redis_server: RedisServer, sidecars: Make) -> None:
        """Twenty sidecars and a quota of 50: tokens come back and are asked for all the time, wherever they were."""
        rng = random.Random(5)
        spec = QuotaSpec(capacity=50, store="redis")
        fleet = [sidecars(redis_server) for _ in range(20)]
        buckets = [each.bucket(spec) for each in fleet]
        paid: list[int] = []
        refused = 0
        for _ in range(600):
            number = rng.randrange(20)
            each, bucket = fleet[number], buckets[number]
            for other in fleet:
                other.now += 0.05
            bucket.begin(each.now)
            if len(paid) < 4:
                if await each.granted(bucket):
                    paid.append(number)
                else:
                    refused += 1
            else:
                back = paid.pop(rng.randrange(len(paid)))
                buckets[back].succeeded(5, fleet[back].now)
            await asyncio.gather(*(other.store.round_trip() for other in fleet if other.store.is_due()))
        # At most 20 of the 50 tokens are in use at any time; what came back is known a tenth of a second later.
        assert refused == 0

    async def test_a_late_reply_refuses_no_retry_because_each_process_s_part_is_less_than_a_price(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        """Three sidecars and two prices: the one that has none while Redis is out waits for the reply."""
        spec = QuotaSpec(capacity=10, store="redis")
        fleet = [sidecars(redis_server, on_outage="share") for _ in range(3)]
        buckets = [each.bucket(spec) for each in fleet]
        async with asyncio.timeout(30):
            while sorted(each.store.share_now(each.now) for each in fleet) != [(3, 0), (3, 1), (3, 2)]:
                for each in fleet:
                    await each.trip(later=0.5)
        (last,) = (number for number, each in enumerate(fleet) if each.store.share_now(each.now).rank == 2)
        one, bucket, decided = fleet[last], buckets[last], list[bool]()
        patience, one.store.timeout = one.store.timeout, 0.05  # for the retry, not for the trip
        bucket.ask(5, one.now, one.now, lambda _, granted: decided.append(granted))
        overdue = asyncio.Event()
        one.store.alarm(one.now + one.store.timeout + 0.001, lambda _: overdue.set())
        await overdue.wait()
        one.store.timeout = patience
        assert not decided
        await one.trip()
        assert decided == [True]

    @pytest.mark.parametrize("heard", [False, True])
    async def test_what_a_retry_without_a_reply_paid_is_there_for_the_next_one_once_it_came_back(
        self, redis_server: RedisServer, sidecars: Make, heard: bool
    ) -> None:
        """Two sidecars and eight prices: each has four of its own while Redis is silent, as in an outage."""
        fleet = [sidecars(redis_server, on_outage="share") for _ in range(2)]
        bucket, one = fleet[0].bucket(QuotaSpec(capacity=40, store="redis")), fleet[0]
        async with asyncio.timeout(30):
            while {each.store.share_now(each.now).of for each in fleet} != {2}:
                for each in fleet:
                    await each.trip(later=0.5)
        if heard:
            bucket.begin(one.now)
            await one.trip()
            bucket.lease.send(0.0, one.now)  # nothing is leased, so that each price is decided without Redis

        def decided_alone() -> bool:
            answers: list[bool] = []
            bucket.ask(5, one.now, one.now, lambda _, granted: answers.append(granted))
            (asking,) = bucket._asks
            bucket._overdue(asking, one.now)
            return answers == [True]

        assert [decided_alone() for _ in range(5)] == [True] * 4 + [False]
        for _ in range(4):
            bucket.succeeded(5, one.now)
        for _ in range(20):
            assert decided_alone()
            bucket.succeeded(5, one.now)
        assert [decided_alone() for _ in range(5)] == [True] * 4 + [False]

    async def test_a_retry_that_was_refused_once_waits_for_the_reply_to_its_second_question(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        """The other's tokens come back between the two."""
        fleet = [sidecars(redis_server, timeout=0.05, on_outage="share") for _ in range(2)]
        one, other = [each.bucket(QuotaSpec(capacity=5, store="redis")) for each in fleet]
        async with asyncio.timeout(30):
            while {each.store.share_now(each.now).of for each in fleet} != {2}:
                for each in fleet:
                    await each.trip(later=0.5)
        assert await fleet[1].granted(other)
        other.give_back(5, fleet[1].now)  # in its lease, which Redis still has as leased
        decided, asker = list[bool](), fleet[0]
        one.ask(5, asker.now + 0.1, asker.now, lambda _, granted: decided.append(granted))
        await asker.trip()
        assert not decided
        other.leave()
        fleet[1].store.soon(other, -math.inf)
        await fleet[1].trip()
        overdue = asyncio.Event()
        asker.store.alarm(asker.now + 0.101, lambda _: overdue.set())
        await overdue.wait()
        assert not decided
        await asker.trip(later=0.1)
        assert decided == [True]

    async def test_prices_are_granted_whole_in_the_order_of_those_who_ask(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        one = sidecars(redis_server)
        bucket = one.bucket(QuotaSpec(capacity=17, timeout_cost=10, store="redis"))
        answers: list[tuple[float, bool]] = []
        for price in (5, 10, 5, 10, 2):
            bucket.ask(price, one.now, one.now, lambda price, granted: answers.append((price, granted)))
        await one.trip()
        assert answers == [(5, True), (10, True), (5, False), (10, False), (2, True)]
        assert bucket.lease.left == 0

    async def test_what_is_less_than_a_price_goes_back(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket = one.bucket(QuotaSpec(capacity=100, store="redis"))
        assert await one.granted(bucket)
        bucket.give_back(3, one.now)
        assert bucket.lease.left == 3
        one.now += 0.9
        bucket.begin(one.now)  # it is in use
        await one.trip()
        assert bucket.lease.left % 5 == 0
        assert other is not one

    async def test_one_message_asks_for_a_hundred(self, redis_server: RedisServer, sidecars: Make) -> None:
        one = sidecars(redis_server)
        bucket = one.bucket(QuotaSpec(capacity=1000, store="redis"))
        answers: list[bool] = []
        for _ in range(150):
            bucket.ask(5, one.now, one.now, lambda _, granted: answers.append(granted))
        await one.trip()
        assert answers == [True] * 100
        await one.trip()
        assert answers == [True] * 150


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_lost_late_or_killed_a_rate_is_never_exceeded(
    redis_server: RedisServer, sidecars: Make, seed: int
) -> None:
    """Messages and replies are lost or come late, tokens are given back, sidecars die with their leases."""
    rng = random.Random(seed)
    spec = RateSpec(rate=300.0, burst=20, store="redis")
    loop = asyncio.get_running_loop()
    async with Redis.from_url(redis_server.url) as client:
        shaky = [Shaky(sidecars(redis_server, clock=loop.time), spec) for _ in range(4)]
        begun = await client.time()
        sent = 0
        for _ in range(500):
            number = rng.randrange(4)
            each = shaky[number]
            action = rng.random()
            if action < 0.45:
                sent += each.take(loop.time())
            elif action < 0.5:
                sent -= each.give_back(loop.time())
            elif action < 0.98:
                await each.say(rng.choice(["heard", "heard", "heard", "lost", "no reply", "late"]), loop.time())
            else:
                shaky[number] = Shaky(sidecars(redis_server, clock=loop.time), spec)
            now = await client.time()
            elapsed = now[0] - begun[0] + (now[1] - begun[1]) / 1e6
            held = sum(other.bucket.lease.left for other in shaky if loop.time() <= other.bucket.lease.until)
            assert sent + held <= 20 + 300 * elapsed + 1e-6
        assert sent > 10


class Shaky:
    """A sidecar whose messages are carried by the test, with calls that wait for a rate."""

    def __init__(self, sidecar: Sidecar, spec: RateSpec) -> None:
        self.sidecar = sidecar
        self.bucket = sidecar.bucket(spec)
        self._spent = 0
        self._late: list[list[object]] = []

    def take(self, now: float) -> int:
        gate = self.bucket.gate
        waiter = next(iter(gate.queue), None) or Silent()
        granted = int(gate.ask(waiter, now) <= now)
        self._spent += granted
        gate.queue.setdefault(Silent(), 1.0)
        return granted

    def give_back(self, now: float) -> int:
        """An attempt that had its token is never sent."""
        if not self._spent:
            return 0
        self._spent -= 1
        self.bucket.give_back(now)
        return 1

    async def say(self, fate: str, now: float) -> None:
        bucket, store = self.bucket, self.sidecar.store
        if store.client is None:
            await store.reach()
        assert store.client is not None
        message = bucket.message(now)
        late, self._late = self._late, []
        if fate == "late":
            self._late = [*late, message]
        for each in [message, *late] if fate in ("heard", "no reply") else []:
            reply = (await store.client.run([Command(bucket.script, bucket.key, each)]))[0]
            if each is message and fate == "heard":
                bucket.heard(reply, asyncio.get_running_loop().time())
            elif each is not message:
                assert reply[0] == b"late"
        if fate != "heard":
            bucket.unheard(now)
