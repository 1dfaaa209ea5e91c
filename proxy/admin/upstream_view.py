"""The upstreams for the pages: the rows of `/upstreams`, and the counters that the dashboard shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any, NamedTuple

from proxy.admin import weather_view
from proxy.admin.holders import Circuit, Credential, circuits, cooldowns, credentials, under_way
from proxy.admin.turns import gradually, in_turns
from proxy.observe import masking
from proxy.observe.cooldown_log import Begun, CooldownLog
from proxy.observe.metrics import BOUNDS, Metrics, Series, outcomes_of
from proxy.observe.weather import LaneWeather
from proxy.observe.weather_log import WeatherLog
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import Endpoint, Router, Upstream
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.retry.weather.cooldown import ALL_CALLERS, NO_CREDENTIAL
from proxy.transport.clock import monotonic, wall

#: A waiting room in which no call waits.
NO_ROOM = WaitingRoom()
#: A log without limits and outages.
NO_WEATHER = WeatherLog()


class Logs(NamedTuple):
    """The logs of the cooldowns, limits and outages that held calls lately."""

    cooldowns: CooldownLog
    weather: WeatherLog


#: Logs without entries.
NO_LOGS = Logs(CooldownLog(), NO_WEATHER)


@dataclass(frozen=True, slots=True)
class Live:
    """An upstream's counters since the process began, and what holds its calls now.

    `at_once`: calls that succeeded at the first attempt; `after_retries`: calls that succeeded at a later one. `slots`:
    the counts of its histogram of call durations, and `seconds` their sum. `cooldown` is the number of seconds for
    which its callers are still asked to wait; `held`, the number of its calls that a gate holds now. `open`: its
    endpoints whose circuit breakers are open, each with the seconds until a call may go there. `aside`: the numbers of
    its credentials that are put aside, each with the seconds for which it still is. `cooling`: the numbers of its
    credentials whose callers are still asked to wait, each with the seconds. `unreadable`: the numbers of its
    credentials whose files can't be read, so that earlier values stay in use. `under_way`: its attempts that count
    against a concurrency limit; `queued`: its calls that wait for a place under that limit.

    `by` is the number of its held calls by cause (`weather_view.CAUSES`), `began` the cooldown in force and `weather`
    the limits and outages, both as /upstreams has them.

    `arrived`: first attempts of calls that fell back to this upstream from another; `retries`: all further attempts,
    hedges included.
    """

    name: str
    calls: int
    at_once: int
    after_retries: int
    attempts: int
    slots: Sequence[int]
    cooldown: float = 0.0
    held: int = 0
    open: Sequence[tuple[str, float]] = ()
    aside: Sequence[tuple[int, float]] = ()
    under_way: int = 0
    queued: int = 0
    retries: int = 0
    arrived: int = 0
    cooling: Sequence[tuple[int, float]] = ()
    by: Mapping[str, int] = field(default_factory=dict)
    began: Mapping[str, Any] | None = None
    weather: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0
    unreadable: Sequence[int] = ()

    @property
    def sent(self) -> int:
        """The number of calls of which an attempt was sent here, including calls that fell back from another
        upstream.
        """
        return self.attempts - self.retries

    @property
    def failed(self) -> int:
        """The number of calls that did not succeed."""
        return self.calls - self.at_once - self.after_retries

    def figures(self) -> dict[str, int]:
        """The upstream's counters of calls and attempts, by name."""
        counted = ("calls", "at_once", "after_retries", "failed", "attempts", "retries", "arrived")
        return {name: getattr(self, name) for name in counted}


@dataclass(frozen=True, slots=True)
class Provision:
    """The resources that the configuration gives an upstream: the labels of the buckets that its policies pay retries
    from, the labels of its rates, and the number of its credentials.
    """

    buckets: Sequence[str] = ()
    rates: Sequence[str] = ()
    keys: int = 0


async def upstreams(
    router: Router,
    metrics: Metrics,
    registry: Registry,
    now: float,
    only: str | None = None,
    room: WaitingRoom = NO_ROOM,
    logs: Logs = NO_LOGS,
) -> list[dict[str, Any]]:
    """The rows of `/upstreams`: one for every named upstream in file order, then one for all unmatched hosts if any was
    called; or only the row of the upstream `only`. `room` is where held calls wait, `logs` are what
    is kept of cooldowns, limits and outages.
    """
    counted = await _counted({}, metrics)
    held, limited = await cooldowns(router, registry, now), await under_way(router, registry, now)
    broken, keys = await circuits(router, registry, now), await credentials(router, registry, now)
    lanes = weather_view.by_upstream(logs.weather.lanes())
    holding = _Holding(held, limited, broken, keys, lanes)
    chosen = [upstream for upstream in router.upstreams if only in (None, upstream.name)]
    fallback = router.fallback
    if fallback.label in counted and fallback.label not in router.by_name and only in (None, fallback.name):
        chosen.append(fallback)
    return await in_turns(
        {
            **_upstream(each, counted.get(each.label, []), registry, room, holding),
            "cooldown": _in_force(logs.cooldowns.in_force(each.label, now)) if held.get(each.label) else None,
            "weather": weather_view.rows(logs.weather, lanes.get(each.label, ()), now, weather_view.units_of(each)),
        }
        for each in chosen
    )


def begun(log: CooldownLog, upstream: str) -> list[dict[str, Any]]:
    """The last cooldowns that answers of an upstream began, as data for JSON, the oldest first. `log` keeps them."""
    return [as_begun(each) for each in log.last(upstream)]


def _in_force(found: Begun | None) -> dict[str, Any] | None:
    return None if found is None else as_begun(found)


def as_begun(found: Begun) -> dict[str, Any]:
    """The cooldown `found` as data for JSON: the answer that began it, the field of that answer that asked for the
    wait, and which callers are held.
    """
    began = found.began
    holds = {ALL_CALLERS: "everybody", NO_CREDENTIAL: "callers without a credential"}
    by_key = "callers with the same credential" if not began.key else f"callers with key {began.key}"
    return {
        "began": round(began.at + wall() - monotonic(), 3),
        "seconds": round(began.delay, 3),
        "status": began.status,
        "field": began.field,
        "holds": holds.get(began.group, by_key),
        "method": began.method,
        "path": began.path,
        "route": began.route,
        "attempt": began.attempt,
        "endpoint": began.endpoint,
        "key": began.key or None,
        "worker": found.worker or None,
        "elsewhere": began.is_elsewhere,
    }


async def live(
    router: Router,
    metrics: Metrics,
    registry: Registry,
    now: float,
    room: WaitingRoom = NO_ROOM,
    logs: Logs = NO_LOGS,
) -> list[Live]:
    """The counters of every named upstream in file order, then those of other labels that have been counted. `room`:
    where held calls wait; `logs`: what is kept of cooldowns, limits and outages.
    """
    counted = await _counted({upstream.label: [] for upstream in router.upstreams}, metrics)
    held, limited = await cooldowns(router, registry, now), await under_way(router, registry, now)
    broken, keys = await circuits(router, registry, now), await credentials(router, registry, now)
    lanes = weather_view.by_upstream(logs.weather.lanes())
    holding = _Holding(held, limited, broken, keys, lanes)
    units = {each.label: weather_view.units_of(each) for each in router.upstreams if each.label in lanes}
    return await in_turns(
        replace(
            _live(label, series, room, holding),
            began=_in_force(logs.cooldowns.in_force(label, now)) if held.get(label) else None,
            weather=weather_view.rows(logs.weather, lanes.get(label, ()), now, units.get(label, {})),
        )
        for label, series in counted.items()
    )


async def provisions(router: Router, registry: Registry) -> dict[str, Provision]:
    """The provision of every named upstream, and of the unmatched ones, by label."""
    found = await in_turns((each.label, _provision(each, registry)) for each in (*router.upstreams, router.fallback))
    return dict(found)


def _provision(upstream: Upstream, registry: Registry) -> Provision:
    labels, credentials = [registry.labels(policy) for policy in upstream.policies], upstream.policy.credentials
    return Provision(
        tuple({bucket for bucket, _, _ in labels if bucket is not None}),
        tuple({rate for _, rates, _ in labels for rate in rates}),
        0 if credentials is None else len(credentials.digests),
    )


async def _counted(found: dict[str, list[Series]], metrics: Metrics) -> dict[str, list[Series]]:
    """Add the series of counters in `metrics` to `found`, by the upstream that each belongs to, and return `found`."""
    async for series in gradually(metrics.all()):
        found.setdefault(series.upstream, []).append(series)
    return found


def _live(label: str, counted: list[Series], room: WaitingRoom, holding: _Holding) -> Live:
    cooldown, keys = holding.cooldowns.get(label, 0.0), holding.credentials.get(label, ())
    used, queued = holding.limits.get(label) or (0, 0)
    calls = at_once = after_retries = attempts = retries = arrived = 0
    seconds = 0.0
    slots = [0] * (len(BOUNDS) + 1)
    for series in counted:
        at_once += sum(series.at_once)
        after_retries += sum(series.after_retries)
        calls += series.calls
        attempts += series.attempts
        came = series.reasons.get("fallback", 0)
        arrived += came
        retries += sum(series.reasons.values()) - came
        seconds += series.call_seconds.total
        slots = list(map(add, slots, series.call_seconds.slots)) if len(counted) > 1 else series.call_seconds.slots
    open_ones = tuple((each.endpoint, each.left) for each in holding.circuits.get(label, ()) if each.is_open)
    aside, waiting = tuple((each.key, each.left) for each in keys if each.left), room.held_for(label)
    cooling = tuple((each.key, each.cooling) for each in keys if each.cooling)
    by = weather_view.held(holding.weather.get(label, ()), waiting=queued, every=waiting)
    now = cooldown, waiting, open_ones, aside, used, queued
    row = Live(label, calls, at_once, after_retries, attempts, tuple(slots), *now, retries, arrived, cooling, by)
    return replace(row, seconds=seconds, unreadable=tuple(each.key for each in keys if each.file is False))


class _Holding(NamedTuple):
    """The state that holds calls at present, by upstream: cooldowns, limits of attempts under way, circuit breakers,
    credentials that are not used, and lanes with a limit, an outage or held calls.
    """

    cooldowns: Mapping[str, float]
    limits: Mapping[str, tuple[int, int]]
    circuits: Mapping[str, Sequence[Circuit]]
    credentials: Mapping[str, Sequence[Credential]]
    weather: Mapping[str, Sequence[LaneWeather]]


def _upstream(
    upstream: Upstream, counted: list[Series], registry: Registry, room: WaitingRoom, holding: _Holding
) -> dict[str, Any]:
    limit, broken, keys = holding.limits.get(upstream.label), holding.circuits, holding.credentials
    seen = _live(upstream.label, counted, room, holding)
    outcomes: Counter[str] = Counter(success=seen.at_once)
    fallbacks: Counter[str] = Counter()
    results: Counter[str] = Counter(success=seen.at_once)
    denied: Counter[str] = Counter()
    for series in counted:
        results.update(series.results)
        denied.update({why.value: count for why, count in series.denied.items()})
        for (to, _), count in series.fallbacks.items():
            fallbacks[to] += count
        for (outcome, _), count in outcomes_of(series).items():
            outcomes[outcome.value] += count
    return {
        "name": upstream.name,
        "endpoints": [endpoint_url(endpoint) for endpoint in upstream.target.endpoints],
        "hosts": [str(host) for host in upstream.hosts],
        "prefix": upstream.prefix,
        "services": list(upstream.services),
        "protocol": upstream.target.protocol,
        "connect": upstream.connect,
        "label": upstream.label,
        **_policy(upstream.policy, registry),
        "routes": [_policy(route.policy, registry) for route in upstream.routes],
        "calls": seen.calls,
        "succeeded_at_once": seen.at_once,
        "succeeded_after_retries": seen.after_retries,
        "failed": seen.failed,
        "attempts": seen.attempts,
        "retries": seen.retries,
        "arrived_by_fallback": seen.arrived,
        "attempts_per_call": round(seen.attempts / seen.sent, 3) if seen.sent else None,
        "outcomes": {outcome: count for outcome, count in outcomes.items() if count},
        "results": {result: count for result, count in results.items() if count},
        "denied": dict(denied),
        "app_retries": sum(series.app_retries for series in counted),
        "likely_app_retries": sum(series.likely_app_retries for series in counted),
        "fallbacks": dict(fallbacks),
        "stream_errors": sum(series.stream_errors for series in counted),
        "cooldown_seconds": round(seen.cooldown, 3),
        "held_calls": seen.held,
        "held_by": dict(seen.by),
        "circuits": [
            {"endpoint": each.endpoint, "open": each.is_open, "seconds_left": round(each.left, 3)}
            for each in broken.get(upstream.label, ())
        ],
        "credentials": [each.as_data() for each in keys.get(upstream.label, ())],
        "under_way": None if limit is None else seen.under_way,
        "waiting_for_a_place": None if limit is None else seen.queued,
    }


def _policy(policy: Policy, registry: Registry) -> dict[str, Any]:
    strategy = policy.strategy
    bucket, rates, limiter = registry.labels(policy)
    return {
        "route": policy.route,
        "strategy": strategy.name,
        "kind": strategy.kind,
        "max_attempts": strategy.max_attempts,
        "bucket": bucket,
        "rate": rates[0] if rates else None,
        "rates": list(rates),
        "limiter": limiter,
        "concurrency": _concurrency(policy),
        "outage": policy.outage,
        "mode": policy.mode,
        "fallback": [entry.to for entry in policy.fallback],
    }


def _concurrency(policy: Policy) -> int | str | None:
    """How many attempts of a policy may be under way: a number, "auto", or None for no limit."""
    if policy.concurrency is not None:
        return policy.concurrency.max
    return None if policy.limit is None else "auto"


def endpoint_url(endpoint: Endpoint) -> str:
    """The url of an endpoint, as the configuration's `url` would have it."""
    if endpoint.unix is not None:
        return f"unix:{endpoint.unix}"
    return masking.url(f"{endpoint.scheme}://{endpoint.authority}{endpoint.shown_path}")
