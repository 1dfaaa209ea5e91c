"""Throttles and budgets of a fleet: the last known level and one's own unsent changes."""

from __future__ import annotations

from collections.abc import Callable

from fleet import Sidecar
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.buckets import ASK
from proxy.retry.policies.bucket_specs import BudgetSpec, ThrottleSpec

pytestmark = needs_redis
Make = Callable[..., Sidecar]

THROTTLE = ThrottleSpec(max_tokens=10, token_ratio=0.1, store="redis")
BUDGET = BudgetSpec(percent=20, min_per_second=2, window=10, store="redis")


class TestThrottle:
    async def test_one_sidecars_failures_are_all_sidecars_failures(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket, seen = one.bucket(THROTTLE), other.bucket(THROTTLE)
        assert await other.granted(seen, 0)
        for _ in range(6):
            bucket.failed(one.now)
        assert bucket.level(one.now) == 4  # its own changes count at once
        await one.trip(later=0.1)
        assert not await one.granted(bucket, 0)
        other.now += 0.2
        assert seen.affords(0, other.now) == ASK  # what it knows is too old to decide on
        assert not await other.granted(seen, 0)
        assert seen.level(other.now) == 4

    async def test_thousandths_add_up_and_stay_within_bounds(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket, seen = one.bucket(THROTTLE), other.bucket(THROTTLE)
        for _ in range(3):
            bucket.failed(one.now)
        for _ in range(7):
            bucket.succeeded(None, one.now)
        await one.trip(later=0.1)
        assert bucket.level(one.now) == 7.7
        for _ in range(9):
            seen.failed(other.now)
        await other.trip(later=0.1)
        assert seen.level(other.now) == 0  # 7.7 - 9: never below
        for _ in range(200):
            seen.succeeded(None, other.now)
        await other.trip(later=0.1)
        await one.trip(later=1)
        await one.granted(bucket, 0)
        assert bucket.level(one.now) == 10

    async def test_what_happens_before_the_level_is_known_counts(
        self, redis_server: RedisServer, sidecars: Make
    ) -> None:
        """A process that begins thinks of its own `initial`; the fleet may be anywhere."""
        low = ThrottleSpec(max_tokens=10, token_ratio=0.5, initial=0, store="redis")
        one = sidecars(redis_server)
        for spec, name, before, act, after in (
            (THROTTLE, "full", lambda bucket: [bucket.failed(one.now) for _ in range(6)], "succeeded", 4.2),
            (low, "low", lambda bucket: [bucket.succeeded(None, one.now) for _ in range(8)], "failed", 2),
        ):
            known = one.bucket(spec, name)
            await one.trip(later=0.1)
            before(known)
            await one.trip(later=0.1)
            begins = sidecars(redis_server)
            bucket = begins.bucket(spec, name)
            for _ in range(2):
                bucket.succeeded(None, begins.now) if act == "succeeded" else bucket.failed(begins.now)
            await begins.trip(later=0.1)
            assert bucket.level(begins.now) == after

    async def test_a_fresh_level_is_decided_on_at_once(self, redis_server: RedisServer, sidecars: Make) -> None:
        one = sidecars(redis_server)
        bucket = one.bucket(THROTTLE)
        assert await one.granted(bucket, 0)
        trips = one.store.round_trips
        assert bucket.take(0, one.now + 0.09)
        assert bucket.affords(0, one.now + 0.11) == ASK
        assert one.store.round_trips == trips
        await one.trip(later=0.05)  # while retries are decided on, it is kept fresh
        assert one.store.round_trips == trips + 1
        assert bucket.take(0, one.now + 0.09)

    async def test_a_level_that_was_lost(self, own_redis: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(own_redis), sidecars(own_redis)
        bucket, seen = one.bucket(THROTTLE), other.bucket(THROTTLE)
        for each, sidecar, failures in ((bucket, one, 2), (seen, other, 3)):
            for _ in range(failures):
                each.failed(sidecar.now)
            await sidecar.trip(later=0.1)
        assert (bucket.level(0), seen.level(0)) == (8, 5)
        own_redis.restart()
        assert await one.granted(bucket, 0, fresh=False)
        assert bucket.level(one.now) == 8
        assert not await other.granted(seen, 0, fresh=False)
        assert not await one.granted(bucket, 0, fresh=False)
        assert bucket.level(one.now) == 5


class TestBudget:
    async def test_the_share_is_of_all_calls(self, redis_server: RedisServer, sidecars: Make) -> None:
        fleet = [sidecars(redis_server) for _ in range(4)]
        buckets = [each.bucket(BUDGET) for each in fleet]
        for sidecar, bucket in zip(fleet, buckets, strict=True):
            for _ in range(25):
                bucket.begin(sidecar.now)
            await sidecar.trip(later=0.1)
        granted = 0
        for turn in range(40):
            granted += await fleet[turn % 4].granted(buckets[turn % 4], 1, fresh=False)
            await fleet[turn % 4].trip(later=0.1)  # told within 100 ms, as the others' clocks have it too
        assert granted == 20

    async def test_the_minimum_is_of_all_retries(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket, seen = one.bucket(BUDGET), other.bucket(BUDGET)
        assert bucket.level(one.now) == 2
        granted = [await one.granted(bucket, 1), await other.granted(seen, 1), await one.granted(bucket, 1)]
        await one.trip(later=0.1)
        assert granted[:2] == [True, True]
        assert not await other.granted(seen, 1, fresh=False)

    async def test_a_retry_that_did_not_happen(self, redis_server: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(redis_server), sidecars(redis_server)
        bucket, seen = one.bucket(BUDGET), other.bucket(BUDGET)
        assert await one.granted(bucket, 1)
        assert bucket.charge_app_retry(one.now) == 1
        await one.trip(later=0.1)
        bucket.give_back(1, one.now)
        bucket.give_back(1, one.now)
        await one.trip(later=0.1)
        assert await other.granted(seen, 1)
        assert seen.level(other.now) == 1

    async def test_counts_that_were_lost(self, own_redis: RedisServer, sidecars: Make) -> None:
        one, other = sidecars(own_redis), sidecars(own_redis)
        bucket, seen = one.bucket(BUDGET), other.bucket(BUDGET)
        for _ in range(100):
            bucket.begin(one.now)
        for _ in range(12):
            bucket.charge_app_retry(one.now)
        await one.trip(later=0.1)
        seen.begin(other.now)
        await other.trip(later=0.1)
        assert (bucket.level(one.now), seen.level(other.now)) == (8, 9)
        own_redis.restart()
        await other.granted(seen, 0, fresh=False)
        await one.granted(bucket, 0, fresh=False)
        await other.granted(seen, 0, fresh=False)
        assert seen.level(other.now) <= 8
