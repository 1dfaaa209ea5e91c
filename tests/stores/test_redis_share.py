"""The share of a process while Redis is gone: all shares together are at most the whole, whoever knows whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from fleet import REQUEST, Sidecar, policy_of
from hypothesis import given
from hypothesis import strategies as st
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.buckets import ASK
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.stores.redis.share import NONE, WHOLE, Share, Turns

Make = Callable[..., Sidecar]

QUOTA = QuotaSpec(capacity=100, store="redis")
RATE = RateSpec(rate=50.0, burst=50.0, store="redis")


@given(st.integers(1, 200), st.floats(0, 1e6), st.floats(0.1, 100))
def test_all_parts_together_are_at_most_the_whole(of: int, tokens: float, price: float) -> None:
    parts = [Share(of, rank).part(tokens, price) for rank in range(of)]
    assert sum(parts) <= tokens * (1 + 1e-9) + 1e-6
    if tokens >= price:  # and whatever there is can be spent: in whole prices
        assert sum(part // price for part in parts) >= 1 or tokens / of >= price * 0.999999


def test_a_part_below_a_price_is_a_whole_price_for_some() -> None:
    assert [Share(4, rank).part(10, 5) for rank in range(4)] == [5, 5, 0, 0]
    assert (WHOLE.part(3, 5), NONE.part(100, 5)) == (3, 0)


@given(
    of=st.integers(2, 20),
    rate=st.sampled_from([0.1, 1.0, 7.0, 50.0]),
    burst=st.floats(1, 10),
    level=st.floats(0, 10),
    tries=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 19), st.booleans()), max_size=120),
)
def test_turns_give_together_no_more_than_the_rate(
    of: int, rate: float, burst: float, level: float, tries: Sequence[tuple[float, int, bool]]
) -> None:
    now = 100.0
    turns = [Turns(rate, burst, min(level, burst), Share(of, rank), now) for rank in range(of)]
    sent: list[float] = []
    for pause, first, wait in tries:
        now += pause / rate
        rank = first % of
        if wait:
            now += min(3.0, max(0.0, turns[rank].wait(now)))
        for turn in (turns[rank], *turns):
            if turn.take(now):
                sent.append(now)
    check_bound(sent, rate, burst + 1)


def check_bound(sent: Sequence[float], rate: float, burst: float) -> None:
    """In any time t at most rate * t + burst is sent."""
    lowest = 0.0
    for number, at in enumerate(sent):
        # number + 1 - (number of an earlier one) <= rate * (at - earlier) + burst, for every earlier one
        lowest = min(lowest, number - rate * at) if number else -rate * at
        assert number + 1 - rate * at - lowest <= burst + 1e-6


async def told(fleet: Sequence[Sidecar]) -> None:
    """All have reported since the last began, and again since they all had."""
    for _ in range(3):
        for each in fleet:
            await each.trip(later=0.6)
        await asyncio.sleep(0.11)  # by Redis's own clock: it looks at all members so often


async def lose(fleet: Sequence[Sidecar], server: RedisServer) -> None:
    server.kill()
    for each in fleet:
        while not each.store.out:
            await each.trip(later=4.0)


@needs_redis
class TestMembers:
    async def test_a_process_has_its_share_once_all_others_know(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        first = sidecars(redis_server)
        await first.trip()
        assert first.store.members.count(first.now) == 1
        fleet = [first, *(sidecars(redis_server, on_outage="share") for _ in range(3))]
        second = fleet[1]
        await second.trip()
        assert second.store.members.count(second.now) == 2
        assert second.store.share_now(second.now) == NONE  # the first would not divide by two yet
        await told(fleet)
        shares = [each.store.share_now(each.now) for each in fleet]
        assert [each.store.members.count(each.now) for each in fleet] == [4] * 4
        assert {*shares[1:], Share(4, 0)} == {Share(4, rank) for rank in range(4)}
        assert shares[0] == WHOLE  # on_outage: local
        await fleet.pop().close()
        await told(fleet)
        first.now += 10.1  # for ten seconds the higher number counts
        await told(fleet)
        assert first.store.members.count(first.now) == 3

    async def test_a_silent_process_is_not_counted(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = (sidecars(redis_server, dead=1.0) for _ in range(2))
        async with asyncio.timeout(60):
            while one.store.members.count(one.now) != 2:
                await other.trip(later=0.6)
                await one.trip(later=0.6)
            while one.store.members.count(one.now) != 1:
                await one.trip(later=4.0)

    async def test_lost_data_makes_no_share_larger(self, own_redis: RedisServer, sidecars: Make) -> None:
        fleet = [sidecars(own_redis, on_outage="share") for _ in range(3)]
        await told(fleet)
        own_redis.restart()
        for each in fleet:
            await each.trip(later=3.0)
        assert [each.store.share_now(each.now).of for each in fleet] == [3] * 3

    async def test_who_only_looks_is_no_member(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, watching = sidecars(redis_server), sidecars(redis_server, observes=True)
        watching.bucket(QUOTA)
        await watching.store.look()
        await told([one])
        assert one.store.members.count(one.now) == 1


@needs_redis
class TestOutage:
    @pytest.mark.parametrize("burst", [50.0, 5.0, 1.0], ids=["parts", "turns", "one token"])
    @pytest.mark.parametrize("drained", [False, True], ids=["full", "drained"])
    async def test_the_fleet_keeps_the_rate(
        self, own_redis: RedisServer, sidecars: Make, burst: float, drained: bool
    ) -> None:
        """In any time t at most rate * t + 2 * burst."""
        spec = RateSpec(rate=50.0, burst=burst, store="redis")
        fleet = [sidecars(own_redis, on_outage="share") for _ in range(10)]
        rates = [each.bucket(spec) for each in fleet]
        sent: list[float] = []
        await told(fleet)
        now = fleet[0].now
        for each in fleet:
            each.now = now
        for each, rate in zip(fleet, rates, strict=True):
            for _ in range(int(burst) if drained else 1):
                if rate.take(now):
                    sent.append(now)
                await each.trip()
        await lose(fleet, own_redis)
        assert {facts["share_of"] for each in fleet for _, facts in each.notices} == {10}
        now = max(each.now for each in fleet)
        before = len(sent)
        for step in range(600):
            for rate in rates:
                while rate.take(now + step * 0.01):
                    sent.append(now + step * 0.01)
        check_bound(sent, spec.rate, 2 * burst + 1e-6 + (burst < 10))
        assert len(sent) - before >= 0.9 * spec.rate * 6  # and the whole rate is used

    async def test_a_quota_is_divided_and_a_small_one_pays_whole_prices(
        self, own_redis: RedisServer, sidecars: Make
    ) -> None:
        fleet = [sidecars(own_redis, on_outage="share") for _ in range(5)]
        large = [each.bucket(QUOTA) for each in fleet]
        small = [each.bucket(QuotaSpec(capacity=12, store="redis"), "small") for each in fleet]
        await told(fleet)
        for each, bucket, other in zip(fleet, large, small, strict=True):
            bucket.begin(each.now)
            other.begin(each.now)
            await each.trip()
        await lose(fleet, own_redis)
        now = max(each.now for each in fleet)
        assert [sum(bucket.take(5, now) for _ in range(100)) for bucket in large] == [4] * 5
        assert sum(sum(bucket.take(5, now) for _ in range(100)) for bucket in small) == 2
        assert not any(bucket.affords(5, now) for bucket in (*large, *small))
        spender = next(each for each in small if each.level(now) <= 2)
        spender.succeeded(5, now)  # what successes earn can be spent, a whole price of it
        assert spender.take(5, now)

    async def test_a_throttle_and_a_budget_are_divided(self, own_redis: RedisServer, sidecars: Make) -> None:
        fleet = [sidecars(own_redis, on_outage="share") for _ in range(4)]
        throttles = [each.bucket(ThrottleSpec(store="redis"), "throttle") for each in fleet]
        budgets = [each.bucket(BudgetSpec(percent=0, min_per_second=2, store="redis"), "budget") for each in fleet]
        await told(fleet)
        for each, throttle in zip(fleet, throttles, strict=True):
            each.store.soon(throttle, each.now)
            await each.trip()
        await lose(fleet, own_redis)
        now = max(each.now for each in fleet)
        assert [throttle.level(now) for throttle in throttles] == [2.5] * 4
        throttles[0].failed(now)
        assert throttles[0].take(0, now)
        throttles[0].failed(now)
        assert [throttle.take(0, now) for throttle in throttles] == [False, True, True, True]
        sent = [now + step * 0.05 for step in range(100) for budget in budgets if budget.take(1, now + step * 0.05)]
        check_bound(sent, 2.0, 3.0)
        assert len(sent) >= 9
        await fleet[0].store.close()

    @pytest.mark.parametrize("on_outage", ["share", "deny"])
    async def test_who_has_no_share_is_refused_and_nobody_hangs(
        self, own_redis: RedisServer, sidecars: Make, on_outage: str
    ) -> None:
        """Calls that wait in line when Redis goes are treated as those that come."""
        old, one = sidecars(own_redis), sidecars(own_redis, on_outage=on_outage)
        await old.trip()
        bucket = one.bucket(QUOTA)
        spec = RateSpec(rate=0.001, burst=1, store="redis")
        rate = one.registry.scope(policy_of(spec), REQUEST, one.now).rate
        assert rate is not None
        waiting = [Waiting() for _ in range(3)]
        for each in waiting:
            rate.ask(each, one.now)
        await one.trip()
        assert rate.ask(waiting[0], one.now) == one.now
        answers: list[bool] = []
        bucket.ask(5, one.now, one.now, lambda _, granted: answers.append(granted))
        await lose([one], own_redis)
        assert answers == [False]
        assert [each.at for each in waiting[1:]] == [one.now] * 2  # now, not at their deadline
        for each in waiting[1:]:
            assert rate.ask(each, one.now) == REJECTED
            rate.leave(each, one.now)
            assert [after.at for after in waiting[2:]] == [one.now]  # it still asks now
        assert "Redis does not answer" in rate.bucket.withheld() and "Redis does not answer" in bucket.withheld()
        assert bucket.affords(5, one.now) is False

    async def test_a_retry_that_is_due_when_redis_is_back_is_decided_by_redis(
        self, own_redis: RedisServer, sidecars: Make
    ) -> None:
        """A new process has no share, and grants nothing while Redis does not answer."""
        old, one = sidecars(own_redis), sidecars(own_redis, on_outage="share")
        await old.trip()
        bucket = one.bucket(QUOTA)
        answers: list[bool] = []
        bucket.ask(5, one.now + 3600, one.now, lambda _, granted: answers.append(granted))
        await lose([one], own_redis)
        assert "Redis does not answer" in bucket.withheld()
        assert answers == []
        own_redis.start()
        while one.store.out or not answers:
            await one.trip(later=4.0)
        assert answers == [True]

    async def test_a_retry_that_is_due_before_redis_is_back_is_decided_then(
        self, own_redis: RedisServer, sidecars: Make
    ) -> None:
        one = sidecars(own_redis, on_outage="deny")
        bucket = one.bucket(QUOTA)
        answers: list[bool] = []
        due = one.now + 3600
        bucket.ask(5, due, one.now, lambda _, granted: answers.append(granted))
        (asking,) = bucket._asks
        await lose([one], own_redis)
        assert answers == []
        bucket._overdue(asking, due)
        assert answers == [False]
        bucket._overdue(asking, due)  # the alarm rings once more
        assert answers == [False]

    async def test_what_was_spent_meanwhile_is_reported(self, own_redis: RedisServer, sidecars: Make) -> None:
        fleet = [sidecars(own_redis, on_outage="share") for _ in range(2)]
        buckets = [each.bucket(QUOTA) for each in fleet]
        await told(fleet)
        await lose(fleet, own_redis)
        now = max(each.now for each in fleet)
        assert [sum(bucket.take(5, now) for _ in range(100)) for bucket in buckets] == [10, 10]
        own_redis.start()
        for each in fleet:
            while each.store.out:
                await each.trip()
        for each in fleet:
            await each.trip(later=0.1)
        seen = buckets[0]
        assert seen.affords(5, fleet[0].now) in (False, ASK)
        assert seen.level(fleet[0].now) == 0  # data was lost too: what one spent is taken to be what each spent

    async def test_one_late_reply_is_no_outage(self, own_redis: RedisServer, sidecars: Make) -> None:
        loop = asyncio.get_running_loop()
        one = sidecars(own_redis, timeout=1.0, clock=loop.time, on_outage="deny")
        await one.store.open()
        bucket = one.bucket(QUOTA)
        for late in (1.3, 0.0, 1.3):  # not one after the other
            answer: asyncio.Future[bool] = loop.create_future()
            own_redis.stop()
            loop.call_later(late, own_redis.go_on)
            now = loop.time()  # the backoff is longer than the reply takes
            bucket.ask(5, now + 10, now, lambda _, granted, answer=answer: answer.set_result(granted))
            async with asyncio.timeout(20):
                assert await answer
        assert one.notices == []


class Waiting:
    at = 0.0

    def retime(self, at: float) -> None:
        self.at = at
