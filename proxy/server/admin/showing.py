"""The house's state as plain data, for the admin port's pages and the metrics' gauges.

Law: reading never changes anything: nothing is made for a page that was not there. Labels are bounded: the buckets
that one definition has for many hosts or header values are one label, told by the lowest level among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import add
from typing import Any

from proxy.config.provenance import Origin, Provenance
from proxy.observe import mask
from proxy.observe.metrics import BOUNDS, Metrics, Series
from proxy.retry.bucket import Bucket, RateBucket, make_bucket
from proxy.retry.commons import Commons
from proxy.retry.facts import Outcome
from proxy.retry.policy import BucketRef, Policy, RateSpec
from proxy.retry.router import Router, Upstream
from proxy.retry.target import Endpoint
from proxy.server.admin.view import Live


def upstreams(
    router: Router, metrics: Metrics, commons: Commons, now: float, only: str | None = None
) -> list[dict[str, Any]]:
    """Every named upstream in file order, then the unmatched ones together where any was called; or the `only` one."""
    counted: dict[str, list[Series]] = {}
    for series in metrics.all():
        counted.setdefault(series.upstream, []).append(series)
    held = dict(cooldowns(router, commons, now))
    shown = [
        _upstream(upstream, counted.get(upstream.label, []), commons, held)
        for upstream in router.upstreams
        if only in (None, upstream.name)
    ]
    fallback = router.fallback
    if fallback.label in counted and fallback.label not in router.by_name and only in (None, fallback.name):
        shown.append(_upstream(fallback, counted[fallback.label], commons, held))
    return shown


def live(router: Router, metrics: Metrics, commons: Commons, now: float) -> list[Live]:
    """The counters of every named upstream in file order, then those of labels that have been counted besides."""
    counted: dict[str, list[Series]] = {upstream.label: [] for upstream in router.upstreams}
    for series in metrics.all():
        counted.setdefault(series.upstream, []).append(series)
    held = dict(cooldowns(router, commons, now))
    return [_live(label, series, held.get(label, 0.0)) for label, series in counted.items()]


def _live(label: str, counted: list[Series], cooldown: float) -> Live:
    calls = at_once = after_retries = attempts = 0
    slots = [0] * (len(BOUNDS) + 1)
    for series in counted:
        first = sum(series.at_once)
        at_once += first
        calls += first + sum(series.outcomes.values())
        attempts += first + sum(series.results.values())
        after_retries += sum(n for (outcome, _), n in series.outcomes.items() if outcome is Outcome.SUCCESS)
        slots = list(map(add, slots, series.call_seconds.slots)) if len(counted) > 1 else series.call_seconds.slots
    return Live(label, calls, at_once, after_retries, attempts, tuple(slots), cooldown)


def places(provenance: Provenance, upstream: str, route: str) -> list[dict[str, str]]:
    """Every effective value of a policy, or of the top level where no upstream is named, and who says so."""
    origins = provenance.of(upstream, route) if upstream else provenance.of_top()
    return [{"path": each.path, "value": _value(each), "from": str(each.mark)} for each in origins]


def _value(origin: Origin) -> str:
    return mask.place(origin.path, origin.plain, argument=origin.argument)


def _upstream(upstream: Upstream, counted: list[Series], commons: Commons, held: dict[str, float]) -> dict[str, Any]:
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
        "label": upstream.label,
        **_policy(upstream.policy, commons),
        "routes": [_policy(route.policy, commons) for route in upstream.routes],
        "calls": calls,
        "succeeded_at_once": at_once,
        "succeeded_after_retries": retried,
        "failed": calls - at_once - retried,
        "attempts": attempts,
        "attempts_per_call": round(attempts / calls, 3) if calls else None,
        "outcomes": _outcomes(counted),
        "results": dict(sum((series.results for series in counted), Counter(success=at_once))),
        "denied": {why.value: n for why, n in sum((series.denied for series in counted), Counter()).items()},
        "app_retries": sum(series.app_retries for series in counted),
        "likely_app_retries": sum(series.likely_app_retries for series in counted),
        "cooldown_seconds": round(held.get(upstream.label, 0.0), 3),
    }


def _outcomes(counted: list[Series]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for series in counted:
        found["success"] += sum(series.at_once)
        for (outcome, _), count in series.outcomes.items():
            found[outcome.value] += count
    return {outcome: count for outcome, count in found.items() if count}


def _policy(policy: Policy, commons: Commons) -> dict[str, Any]:
    strategy = policy.strategy
    bucket, rate, limiter = commons.labels(policy)
    return {
        "route": policy.route,
        "strategy": strategy.name,
        "kind": strategy.kind,
        "max_attempts": strategy.max_attempts,
        "bucket": bucket,
        "rate": rate,
        "limiter": limiter,
        "mode": policy.mode,
    }


def endpoint_url(endpoint: Endpoint) -> str:
    """An endpoint as the configuration would name it."""
    if endpoint.unix is not None:
        return f"unix:{endpoint.unix}"
    return mask.url(f"{endpoint.scheme}://{endpoint.authority}{endpoint.shown_path}")


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
        for label, bucket in _all_buckets(commons, named, now)
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
    for label, bucket in _all_buckets(commons, named, now):
        level = bucket.level(now)
        lowest[label] = min(level, lowest.get(label, level))
    return list(lowest.items())


def capacities(commons: Commons, named: Mapping[str, BucketRef], now: float) -> list[tuple[str, float]]:
    """Each label's capacity."""
    return list({label: bucket.capacity for label, bucket in _all_buckets(commons, named, now)}.items())


def _all_buckets(
    commons: Commons, named: Mapping[str, BucketRef], now: float
) -> Iterator[tuple[str, Bucket | RateBucket]]:
    used = set()
    for shared in commons.shared(now):
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
