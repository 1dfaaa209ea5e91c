"""The buckets of a fleet, made from their definitions, for any store that carries their messages."""

from __future__ import annotations

import math
from typing import TypeVar

from proxy.retry.budgets.buckets import Bucket, BudgetBucket, RateBucket
from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.scopes.factory import Key
from proxy.stores.redis.batches import Batches
from proxy.stores.redis.bucket import RedisBucket, key_of
from proxy.stores.redis.levels import RedisBudget, RedisThrottle
from proxy.stores.redis.quota import RedisQuota
from proxy.stores.redis.rate import RedisRate

Made = TypeVar("Made", bound=RedisBucket)


def is_shared(spec: BucketSpec) -> bool:
    """Whether a bucket is kept in Redis. A quota without bounds is not: it has nothing to share."""
    return spec.store == "redis" and not (isinstance(spec, QuotaSpec) and math.isinf(spec.capacity))


def make_bucket(
    store: Batches, prefix: str, key: Key, spec: BucketSpec, before: Bucket | None, now: float
) -> RedisQuota | RedisThrottle | RedisBudget:
    """Return the fleet's bucket of this key and definition: `before`, the bucket that this process has had under the
    key so far, if that still has this definition; else a new one. `prefix`: that of all keys in Redis.
    """
    if isinstance(before, RedisQuota | RedisThrottle | RedisBudget) and _fits(before, spec, store):
        return before
    where = key_of(prefix, key, spec)
    share = before.share(now) if before is not None else None
    match spec:
        case QuotaSpec():
            known = None if share is None else share * spec.capacity
            return _added(RedisQuota(spec, store, where, known), store, now)
        case ThrottleSpec():
            known = None if share is None else share * spec.max_tokens
            return _added(RedisThrottle(spec, store, where, known), store, now)
        case BudgetSpec():
            counted = before if isinstance(before, BudgetBucket) else None
            return _added(RedisBudget(spec, store, where, counted), store, now)
        case _:
            raise TypeError("a bucket of kind rate is a gate for attempts: `rate`")


def make_rate(
    store: Batches, prefix: str, key: Key, spec: RateSpec, before: RateBucket | None, now: float, channel: str = ""
) -> RedisRate:
    """Return the fleet's rate bucket of this key and definition: `before`, the one that this process has had under the
    key so far, if that still has this definition; else a new one. `prefix`: that of all keys in Redis; `channel`: the
    beginning of the names of the channels on which Redis asks processes to report.
    """
    if isinstance(before, RedisRate) and _fits(before, spec, store):
        return before
    known = None
    if before is not None and before.capacity > 0:
        known = before.level(now) / before.capacity * spec.burst
    made = _added(RedisRate(spec, store, key_of(prefix, key, spec), known, now, channel), store, now)
    if before is not None:
        before.replaced_by(made)
    return made


def _fits(before: RedisQuota | RedisThrottle | RedisBudget | RedisRate, spec: BucketSpec, store: Batches) -> bool:
    return before.store is store and before.spec == spec


def _added(made: Made, store: Batches, now: float) -> Made:
    store.add(made)
    if store.out:
        made.part(now)
    return made
