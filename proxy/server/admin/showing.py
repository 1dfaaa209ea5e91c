"""The house's state as plain data, for the admin port's pages and the metrics' gauges.

Law: reading never changes anything: nothing is made for a page that was not there. Labels are bounded: the buckets
that one definition has for many hosts or header values are one label, told by the lowest level among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.observe import mask
from proxy.observe.metrics import Metrics, Series
from proxy.retry.bucket import Bucket, RateBucket, make_bucket
from proxy.retry.commons import Commons
from proxy.retry.policy import BucketRef, Policy, RateSpec
from proxy.retry.router import Router, Upstream
from proxy.retry.target import Endpoint


def upstreams(router: Router, metrics: Metrics, commons: Commons, now: float) -> list[dict[str, Any]]:
    """Every named upstream in file order, then the unmatched ones together where any was called."""
    counted: dict[str, list[Series]] = {}
    for series in metrics.all():
        counted.setdefault(series.upstream, []).append(series)
    held = cooldowns(router, commons, now)
    shown = [_upstream(upstream, counted.get(upstream.label, []), dict(held)) for upstream in router.upstreams]
    fallback = router.fallback
    if fallback.label in counted and fallback.label not in router.by_name:
        shown.append(_upstream(fallback, counted[fallback.label], dict(held)))
    return shown


def _upstream(upstream: Upstream, counted: list[Series], held: dict[str, float]) -> dict[str, Any]:
    calls = sum(series.calls for series in counted)
    attempts = sum(series.attempts for series in counted)
    at_once = sum(sum(series.at_once) for series in counted)
    retried = sum(n for series in counted for (outcome, _), n in series.outcomes.items() if outcome == "success")
    return {
        "name": upstream.name,
        "endpoints": [endpoint_url(endpoint) for endpoint in upstream.target.endpoints],
        "hosts": [str(host) for host in upstream.hosts],
        "prefix": upstream.prefix,
        "connect": upstream.connect,
        **_policy(upstream.policy),
        "routes": [_policy(route.policy) for route in upstream.routes],
        "calls": calls,
        "succeeded_at_once": at_once,
        "succeeded_after_retries": retried,
        "failed": calls - at_once - retried,
        "attempts": attempts,
        "attempts_per_call": round(attempts / calls, 3) if calls else None,
        "cooldown_seconds": round(held.get(upstream.label, 0.0), 3),
    }


def _policy(policy: Policy) -> dict[str, Any]:
    strategy = policy.strategy
    return {
        "route": policy.route,
        "strategy": strategy.name,
        "kind": strategy.kind,
        "max_attempts": strategy.max_attempts,
        "bucket": _bucket_name(policy, policy.bucket),
        "rate": _bucket_name(policy, policy.rate),
        "mode": policy.mode,
    }


def _bucket_name(policy: Policy, ref: BucketRef | None) -> str | None:
    if ref is None:
        return None
    return ref.name if ref.name is not None else f"{policy.upstream}/{policy.strategy.name}"


def endpoint_url(endpoint: Endpoint) -> str:
    """An endpoint as the configuration would name it."""
    if endpoint.unix is not None:
        return f"unix:{endpoint.unix}"
    return mask.url(f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}")


def buckets(commons: Commons, named: Mapping[str, BucketRef], now: float) -> list[dict[str, Any]]:
    """Every bucket: those in use, the named ones that nobody has used yet, and the adaptive limiters."""
    shown = [
        {
            "bucket": label,
            "kind": bucket.spec.kind,
            "store": bucket.spec.store,
            "level": round(bucket.level(now), 3),
            "capacity": bucket.capacity,
        }
        for label, bucket in _all_buckets(commons, named)
    ]
    shown += [
        {
            "bucket": label,
            "kind": "adaptive limiter",
            "level": round(limiter.level(now), 3),  # first: where it is shared, this looks the others up
            "enabled": limiter.enabled,
            "capacity": limiter.capacity,
            "fill_rate": limiter.fill_rate,
            "measured_rate": limiter.measured_rate,
        }
        for label, limiter in commons.limiters()
    ]
    return shown


def levels(commons: Commons, named: Mapping[str, BucketRef], now: float) -> list[tuple[str, float]]:
    """Each label's lowest level."""
    lowest: dict[str, float] = {}
    for label, bucket in _all_buckets(commons, named):
        level = bucket.level(now)
        lowest[label] = min(level, lowest.get(label, level))
    return list(lowest.items())


def capacities(commons: Commons, named: Mapping[str, BucketRef]) -> list[tuple[str, float]]:
    """Each label's capacity."""
    return list({label: bucket.capacity for label, bucket in _all_buckets(commons, named)}.items())


def _all_buckets(commons: Commons, named: Mapping[str, BucketRef]) -> Iterator[tuple[str, Bucket | RateBucket]]:
    used = set()
    for shared in commons.shared():
        used.add(shared.label)
        yield shared.label, shared.bucket
    for name, ref in named.items():
        if name not in used:  # a passing one shows what it would start with
            spec = ref.spec
            yield name, RateBucket(spec) if isinstance(spec, RateSpec) else make_bucket(spec)


def cooldowns(router: Router, commons: Commons, now: float) -> list[tuple[str, float]]:
    """Each upstream's longest cooldown in force; 0 for the others that are named."""
    longest = {upstream.label: 0.0 for upstream in router.upstreams}
    for upstream, _, left in commons.cooldowns(now):
        longest[upstream] = max(left, longest.get(upstream, 0.0))
    return list(longest.items())
