"""The rows of `/buckets`: the level of each bucket, and of the limits and bounds that are shown as buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.admin.turns import in_turns
from proxy.retry.budgets.buckets import Bucket, RateBucket, make_bucket
from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.instants import EPSILON
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec
from proxy.retry.policies.policy import Strategy
from proxy.retry.scopes.factory import Key
from proxy.retry.scopes.registry import Registry


async def buckets(registry: Registry, named: Mapping[str, BucketRef], now: float) -> list[dict[str, Any]]:
    """The rows of all buckets: those in use, those of `named` (the buckets that `buckets:` defines) that no call has
    used yet, the adaptive limiters, the concurrency limits, and the bounds on hedges.
    """
    shown = await in_turns(
        {
            "bucket": label,
            "kind": bucket.spec.kind,
            "store": bucket.spec.store,
            **({"unit": bucket.spec.unit} if isinstance(bucket.spec, RateSpec) else {}),
            "level": round(bucket.level(now), 3),
            "capacity": bucket.capacity,
        }
        for label, bucket in all_buckets(registry, named, now)
    )
    shown += await in_turns(
        {
            "bucket": label,
            "kind": "adaptive limiter",
            "level": round(limiter.level(now), 3),  # first: of a shared limiter, this reads the other fields too
            "enabled": limiter.enabled,
            "capacity": limiter.capacity,
            "fill_rate": limiter.fill_rate,
            "measured_rate": limiter.measured_rate,
        }
        for label, limiter in registry.limiters()
    )
    shown += await in_turns(
        _places(key, places, now) for key, places in registry.under_way() if places.most < UNLIMITED
    )
    return shown + await in_turns(_hedging(*each, now) for each in registry.hedging())


def _places(key: Key, places: Places, now: float) -> dict[str, Any]:
    """The row of a concurrency limit, shown as a bucket whose level is the number of places that are left. `key`: the
    limit's upstream and name, which are the row's label.
    """
    used, waiting = places.total(now)
    return {
        "bucket": f"{key[0]}/{key[1]}",
        "kind": "concurrency",
        "level": max(0, places.most - used),
        "capacity": places.most,
        "under_way": used,
        "waiting": waiting,
    }


def _hedging(label: str, strategy: Strategy, hedges: Hedges, now: float) -> dict[str, Any]:
    """The bound on the hedges of a strategy, shown as a bucket `label` whose level is the number of hedges that are
    still allowed, with the delay after which hedges are sent (measured, if it is a percentile).
    """
    sent, calls = hedges.counts(now)
    most = math.floor((strategy.extra or 0.0) * calls + EPSILON)
    percent = strategy.hedging_percentile
    delay = strategy.hedging_delay if percent is None else hedges.delay(percent, now)
    return {
        "bucket": label,
        "kind": "hedging",
        "level": max(0, most - sent),
        "capacity": most,
        "hedges": sent,
        "calls": calls,
        "hedging_delay": None if delay is None else round(delay, 6),
    }


def all_buckets(
    registry: Registry, named: Mapping[str, BucketRef], now: float
) -> Iterator[tuple[str, Bucket | RateBucket]]:
    """Yield every bucket with its label: those in use, and those of `named` (the buckets that `buckets:` defines) that
    no call has used yet.
    """
    used = set()
    for shared in registry.shared(now):
        used.add(shared.label)
        yield shared.label, shared.bucket
    for name, ref in named.items():
        if name not in used:  # a new one shows the level that it would start with
            spec = ref.spec
            yield name, RateBucket(spec) if isinstance(spec, RateSpec) else make_bucket(spec)
