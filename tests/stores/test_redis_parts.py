"""Parts for apps of buckets in Redis: each sidecar has its own view of them (contract, section 17)."""

from __future__ import annotations

from collections.abc import Callable

from fleet import Sidecar
from support.redis_server import RedisServer, needs_redis

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.buckets import ASK
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec
from proxy.stores.redis.bucket import key_of

pytestmark = needs_redis
Make = Callable[..., Sidecar]

WEB, BATCH = NamedApp("web", 4), NamedApp("batch", 1)
SHARES = (("web", 4), ("batch", 1), ("others", 1))
SPEC = QuotaSpec(600, 5, 5, 5, store="redis", apps=SHARES)


async def test_an_app_leaves_the_parts_of_the_others(redis_server: RedisServer, sidecars: Make) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(SPEC)
    web, batch = bucket.of_app(WEB), bucket.of_app(BATCH)
    web.begin(one.now)
    spent = 0
    while await one.granted(batch, 5):
        spent += 5
    assert spent == 150  # its own 100, and half of the others' 100
    assert await one.granted(web, 5)
    batch.give_back(5, one.now)
    assert await one.granted(batch, 5)


async def test_what_the_fleet_has_spent_counts_here(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server), sidecars(redis_server)
    bucket, seen = one.bucket(SPEC), other.bucket(SPEC)
    while await one.granted(bucket.of_app(WEB), 5):
        pass
    await one.trip(later=0.3)
    low = seen.of_app(WEB.lowered())
    assert await other.granted(seen.of_app(WEB), 5)  # from which it learns the level
    assert not low.affords(5, other.now)  # the fleet's level is not above half


async def test_sidecars_with_other_apps_share_the_bucket() -> None:
    assert key_of("x", ("", "a"), SPEC) == key_of("x", ("", "a"), QuotaSpec(600, 5, 5, 5, store="redis"))


async def test_a_budget_is_granted_by_app_too(redis_server: RedisServer, sidecars: Make) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(BudgetSpec(percent=20, min_per_second=0, window=10, store="redis", apps=SHARES))
    web, batch = bucket.of_app(WEB), bucket.of_app(BATCH)
    for _ in range(10):
        web.begin(one.now)
    for _ in range(90):
        batch.begin(one.now)
    assert web.affords(1, one.now) == ASK
    assert [await one.granted(web, 1) for _ in range(3)] == [True, True, False]
    assert await one.granted(batch, 1)
