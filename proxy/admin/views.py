"""The data that the admin port shows of the process: its state as plain data, for the pages and the metrics' gauges.

Reading never changes anything: no page creates a bucket or another object of the process, and apart from `reload` and
`drain` a `View` only reads. Its data has secrets masked already, or contains none. Labels are bounded: the buckets that
one definition has for many hosts or header values have one label, with the lowest level among them. Lists that grow
with the number of upstreams are made in pieces (`turns`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any, NamedTuple

from proxy.admin import weather_view
from proxy.admin.turns import gradually, in_turns
from proxy.config.provenance import Provenance
from proxy.config.settings import Settings
from proxy.observe import masking
from proxy.observe.cooldown_log import Begun, CooldownLog
from proxy.observe.exposition import Gauges
from proxy.observe.metrics import BOUNDS, Metrics, Series
from proxy.observe.recent_calls import RecentCalls
from proxy.observe.weather import LaneWeather
from proxy.observe.weather_log import WeatherLog
from proxy.resources import Usage, enough_for, processes
from proxy.retry.buckets import Bucket, RateBucket, make_bucket
from proxy.retry.concurrency import UNLIMITED, Places
from proxy.retry.cooldown import ALL_CALLERS, NO_CREDENTIAL, credential_of
from proxy.retry.facts import Outcome
from proxy.retry.governor import Governor
from proxy.retry.hedges import Hedges
from proxy.retry.instants import EPSILON
from proxy.retry.policy import BucketRef, Policy, RateSpec, Strategy
from proxy.retry.registry import Key, KeyFields, Registry
from proxy.retry.routing import Endpoint, Router, Upstream
from proxy.retry.waiting_room import WaitingRoom
from proxy.transport.clock import monotonic, wall
from proxy.wire.http1.compiled import CORE

#: A waiting room in which no call waits.
NO_ROOM = WaitingRoom()
#: A log without limits and outages.
NO_WEATHER = WeatherLog()


class Logs(NamedTuple):
    """The logs of what held calls lately."""

    cooldowns: CooldownLog
    weather: WeatherLog


#: Logs without entries.
NO_LOGS = Logs(CooldownLog(), NO_WEATHER)


@dataclass(frozen=True, slots=True)
class Live:
    """An upstream's counters since the process began, and what holds its calls now.

    `slots` is its histogram of call durations. `cooldown` is the number of seconds for which its callers are still
    asked to wait; `held`, the number of its calls that a gate holds now. `open`: its endpoints whose circuit breakers
    are open, each with the seconds until a call may go there. `aside`: the numbers of its credentials that are put
    aside, each with the seconds for which it still is. `cooling`: the numbers of its credentials whose callers are
    still asked to wait, each with the seconds. `under_way`: its attempts that count against a concurrency limit;
    `queued`: its calls that wait for a place under that limit.

    `by` is the number of its held calls by cause (`weather_view.CAUSES`), `weather` its limits and outages as
    /upstreams has them.

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
    weather: Sequence[Mapping[str, Any]] = ()

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
        """The counters, by name."""
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


@dataclass(frozen=True, slots=True)
class Circuit:
    """An endpoint's circuit breaker. `left` is the number of seconds until a call may go there."""

    endpoint: str
    is_open: bool = False
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential of an upstream, by its number, from 1. `left` is the number of seconds for which it is still put
    aside, 0 if it is not; `cooling`, the seconds for which callers with it are still asked to wait.
    """

    key: int
    left: float = 0.0
    cooling: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """The credential for JSON."""
        return {
            "key": self.key,
            "usable": not self.left,
            "seconds_left": round(self.left, 3),
            "cooldown_seconds": round(self.cooling, 3),
        }


async def _nothing() -> Any:
    """Return an empty list: the default for functions of a `View` that its maker does not set."""
    return []


async def _no_provisions() -> dict[str, Provision]:
    return {}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether calls should be sent to this process, and other facts about it. `warnings` are those of the configuration
    in force; `reload_errors`, those of the last file that was refused ([] once a good one has been loaded).
    `credentials_aside`: the credentials that their upstreams refuse, by upstream and number. `core`: whether heads are
    read by compiled code, or in Python. `redis`: "up", or "out" if no worker or not every worker reaches it; None if no
    bucket is kept there.
    """

    ready: bool
    draining: bool
    config_file: str
    warnings: list[str] = field(default_factory=list)
    reload_errors: list[str] = field(default_factory=list)
    listen: list[str] = field(default_factory=list)
    in_flight: int = 0
    credentials_aside: list[dict[str, Any]] = field(default_factory=list)
    core: str = CORE
    redis: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The functions that pages call for their data; each is called only when its page is requested.

    `config` is called in a thread. `upstreams` takes the name of an upstream, or None for all.
    `refresh` fetches what other processes have counted, before a page shows it.
    `live` gives the counters of every upstream, `provisions` what the configuration in force gives each, by label.
    `places` gives the effective values of a policy (upstream and route; "" is the top level) with their file and line,
    `loads` the number of configurations that were loaded since the start.
    `cooldowns` gives those that answers of an upstream began lately, `weather` its limits and outages that began or
    were over lately.
    `explain` takes a call as `/requests` has it, and gives what `redrive explain --json` prints. It is called in a
    thread. `policy` gives the parts of an upstream's policy that a draft may change. `what_if` takes an upstream, a
    draft of its policy and calls, and gives what is wrong with the draft and how the calls would have gone. Both give
    None if the file has no such upstream, and both are called in a thread.
    `metrics` takes an Accept field and gives (text, content type); `reload` gives error lines, [] if it succeeded.
    """

    readiness: Callable[[], Readiness]
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    config: Callable[[], Any]
    upstreams: Callable[[str | None], Awaitable[list[dict[str, Any]]]]
    buckets: Callable[[], Awaitable[list[dict[str, Any]]]]
    recent: RecentCalls
    reload: Callable[[], Awaitable[list[str]]]
    drain: Callable[[], None]
    refresh: Callable[[], Awaitable[None]] = _nothing
    live: Callable[[], Awaitable[list[Live]]] = _nothing
    provisions: Callable[[], Awaitable[dict[str, Provision]]] = _no_provisions
    places: Callable[[str, str], list[dict[str, str]]] = lambda upstream, route: []
    loads: Callable[[], int] = int
    explain: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda call: {}
    policy: Callable[[str], dict[str, Any] | None] = lambda upstream: None
    what_if: Callable[[str, str, Sequence[Mapping[str, Any]]], dict[str, Any] | None] = lambda *draft: None
    cooldowns: Callable[[str], list[dict[str, Any]]] = lambda upstream: []
    weather: Callable[[str], list[dict[str, Any]]] = lambda upstream: []


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
            "weather": weather_view.rows(logs.weather, lanes.get(each.label, ()), now),
        }
        for each in chosen
    )


def begun(log: CooldownLog, upstream: str) -> list[dict[str, Any]]:
    """The last cooldowns that answers of an upstream began, as data for JSON, the oldest first. `log` keeps them."""
    return [as_begun(each) for each in log.last(upstream)]


def _in_force(found: Begun | None) -> dict[str, Any] | None:
    return None if found is None else as_begun(found)


def as_begun(found: Begun) -> dict[str, Any]:
    """A cooldown as data for JSON: the answer that began it, the field of that answer that asked for the wait, and
    which callers are held.
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
    weather: WeatherLog = NO_WEATHER,
) -> list[Live]:
    """The counters of every named upstream in file order, then those of other labels that have been counted."""
    counted = await _counted({upstream.label: [] for upstream in router.upstreams}, metrics)
    held, limited = await cooldowns(router, registry, now), await under_way(router, registry, now)
    broken, keys = await circuits(router, registry, now), await credentials(router, registry, now)
    lanes = weather_view.by_upstream(weather.lanes())
    holding = _Holding(held, limited, broken, keys, lanes)
    return await in_turns(
        replace(_live(label, series, room, holding), weather=weather_view.rows(weather, lanes.get(label, ()), now))
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
    slots = [0] * (len(BOUNDS) + 1)
    for series in counted:
        first = sum(series.at_once)
        at_once += first
        calls += first + sum(series.outcomes.values())
        attempts += first + sum(series.results.values())
        after_retries += sum(n for (outcome, _), n in series.outcomes.items() if outcome is Outcome.SUCCESS)
        came = series.reasons["fallback"] if series.reasons else 0
        arrived += came
        retries += sum(series.reasons.values()) - came
        slots = list(map(add, slots, series.call_seconds.slots)) if len(counted) > 1 else series.call_seconds.slots
    open_ones = tuple((each.endpoint, each.left) for each in holding.circuits.get(label, ()) if each.is_open)
    aside, waiting = tuple((each.key, each.left) for each in keys if each.left), room.held_for(label)
    cooling = tuple((each.key, each.cooling) for each in keys if each.cooling)
    by = weather_view.held(holding.weather.get(label, ()), waiting=queued, every=waiting)
    now = cooldown, waiting, open_ones, aside, used, queued
    return Live(label, calls, at_once, after_retries, attempts, tuple(slots), *now, retries, arrived, cooling, by)


def places(provenance: Provenance, upstream: str, route: str) -> list[dict[str, str]]:
    """Every effective value of a policy, or of the top level if no upstream is named, with the place that sets it."""
    origins = provenance.of(upstream, route) if upstream else provenance.of_top()
    return [
        {
            "path": each.path,
            "value": masking.place(each.path, each.plain, argument=each.argument),
            "from": str(each.mark),
        }
        for each in origins
    ]


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
    for series in counted:
        for (to, _), count in series.fallbacks.items():
            fallbacks[to] += count
        for (outcome, _), count in series.outcomes.items():
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
        "results": dict(sum((series.results for series in counted), Counter(success=seen.at_once))),
        "denied": {why.value: n for why, n in sum((series.denied for series in counted), Counter()).items()},
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
    """An endpoint as the configuration would name it."""
    if endpoint.unix is not None:
        return f"unix:{endpoint.unix}"
    return masking.url(f"{endpoint.scheme}://{endpoint.authority}{endpoint.shown_path}")


async def buckets(registry: Registry, named: Mapping[str, BucketRef], now: float) -> list[dict[str, Any]]:
    """The rows of every bucket: those in use, the named ones that no call has used yet, the adaptive limiters, the
    limits of attempts under way, and the bounds on hedges.
    """
    shown = await in_turns(
        {
            "bucket": label,
            "kind": bucket.spec.kind,
            "store": bucket.spec.store,
            "level": round(bucket.level(now), 3),
            "capacity": bucket.capacity,
        }
        for label, bucket in _all_buckets(registry, named, now)
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
    """A limit of attempts under way, shown as a bucket whose level is the number of places that are left."""
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
    """The bound on hedges, shown as a bucket whose level is the number of hedges that are left, with the measured
    delay.
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


def _all_buckets(
    registry: Registry, named: Mapping[str, BucketRef], now: float
) -> Iterator[tuple[str, Bucket | RateBucket]]:
    used = set()
    for shared in registry.shared(now):
        used.add(shared.label)
        yield shared.label, shared.bucket
    for name, ref in named.items():
        if name not in used:  # a new one shows the level that it would start with
            spec = ref.spec
            yield name, RateBucket(spec) if isinstance(spec, RateSpec) else make_bucket(spec)


async def cooldowns(router: Router, registry: Registry, now: float) -> dict[str, float]:
    """Each upstream's longest cooldown in force, in seconds; 0 for named upstreams without one."""
    longest = {upstream.label: 0.0 for upstream in router.upstreams}
    for upstream, _, left in await in_turns(registry.cooldowns(now)):
        longest[upstream] = max(left, longest.get(upstream, 0.0))
    return longest


async def circuits(router: Router, registry: Registry, now: float) -> dict[str, list[Circuit]]:
    """The circuit breakers of each upstream that has any, by label: those of all its endpoints or, if requests name the
    endpoint, only those that are open.
    """
    every = {upstream.label: upstream for upstream in (*router.upstreams, router.fallback)}
    found: dict[str, dict[str, Circuit]] = {
        label: {share.label: Circuit(share.label) for share in upstream.policy.endpoints}
        for label, upstream in every.items()
        if upstream.policy.circuit_breaker is not None
    }
    async for label, endpoint, breaker in gradually(registry.breakers()):
        ours = found.get(label)
        if ours is None or breaker.spec != every[label].policy.circuit_breaker:
            continue  # a breaker of another configuration
        is_open = breaker.is_open
        if endpoint in ours or (is_open and not every[label].policy.endpoints):
            ours[endpoint] = Circuit(endpoint, is_open, breaker.seconds_left(now) if is_open else 0.0)
    return {label: list(ours.values()) for label, ours in found.items()}


def open_circuits(found: Mapping[str, Sequence[Circuit]], router: Router) -> list[tuple[tuple[str, str], float]]:
    """The samples of a gauge, by upstream and endpoint: 1 for an open circuit. Endpoints that requests name are not
    used as labels: such an upstream has one sample, the number of its open circuits.
    """
    samples: list[tuple[tuple[str, str], float]] = []
    for label, broken in found.items():
        upstream = router.by_name.get(label, router.fallback)
        if upstream.policy.endpoints:
            samples += (((label, each.endpoint), float(each.is_open)) for each in broken)
        else:
            samples.append(((label, ""), float(len(broken))))
    return samples


async def credentials(router: Router, registry: Registry, now: float) -> dict[str, list[Credential]]:
    """The credentials of each upstream that has any, by label."""
    found: dict[str, list[Credential]] = {}
    held: dict[str, list[Governor]] = {}
    async for label, governor in gradually(registry.cooling(now)):
        held.setdefault(label, []).append(governor)
    async for upstream in gradually(iter(router.upstreams)):
        if upstream.policy.credentials is not None:
            found[upstream.label] = _credentials(upstream, registry, now, held.get(upstream.label, ()))
    return found


def _credentials(upstream: Upstream, registry: Registry, now: float, held: Sequence[Governor] = ()) -> list[Credential]:
    """An upstream's credentials. `held` are its cooldowns in force; without them, `cooling` is 0 for all."""
    definition, roster = upstream.policy.credentials, registry.roster(upstream.label)
    digests = () if definition is None else definition.digests
    groups = [credential_of(KeyFields(digest)) if held else b"" for digest in digests]
    endpoints = [share.label for share in upstream.policy.endpoints] if len(upstream.policy.endpoints) > 1 else []
    return [
        Credential(
            key,
            max(0.0, roster.aside_until(digest) - now),
            max((governor.left_of(group, endpoints, now) for governor in held), default=0.0),
        )
        for key, (digest, group) in enumerate(zip(digests, groups, strict=True), 1)
    ]


def credentials_aside(router: Router, registry: Registry, now: float) -> list[dict[str, Any]]:
    """The credentials that are put aside, for /readyz."""
    return [
        {"upstream": upstream.name, "key": each.key, "seconds_left": round(each.left, 3)}
        for upstream in router.upstreams
        if upstream.policy.credentials is not None
        for each in _credentials(upstream, registry, now)
        if each.left
    ]


def usable_credentials(found: Mapping[str, Sequence[Credential]]) -> list[tuple[tuple[str, str], float]]:
    """The samples of a gauge, by upstream and number: 0 for a credential that is put aside."""
    return [((label, str(each.key)), float(not each.left)) for label, keys in found.items() for each in keys]


async def under_way(router: Router, registry: Registry, now: float) -> dict[str, tuple[int, int]]:
    """The number of attempts under way, and of calls that wait for a place, of each upstream that limits them; summed
    over all scopes.
    """
    upstreams = (*router.upstreams, router.fallback)
    found = {each.label: (0, 0) for each in upstreams if any(one.concurrency is not None for one in each.policies)}
    for (upstream, *_), (used, waiting) in await in_turns(
        (key, places.total(now)) for key, places in registry.under_way()
    ):
        if upstream in found or used or waiting:
            before = found.get(str(upstream), (0, 0))
            found[str(upstream)] = before[0] + used, before[1] + waiting
    return found


async def copied(metrics: Metrics) -> Metrics:
    """Copy the metrics, so that a thread can read the copy while calls go on counting in the original."""
    copy = Metrics()
    for series in await in_turns(series.copy() for series in metrics.all()):
        copy.put(series)
    copy.reloads, copy.lines_lost = metrics.reloads.copy(), metrics.lines_lost
    return copy


async def gauges(  # noqa: PLR0913  a record of all gauges is built
    settings: Settings,
    registry: Registry,
    usage: Usage,
    now: float,
    *,
    room: WaitingRoom,
    weather: WeatherLog,
    begun: Mapping[str, int],
    descriptors: int,
    workers: list[tuple[str, float]],
    **of_process: Any,
) -> Gauges:
    """The values for `/metrics` that are not counters: levels, how much of each limit is used, and the limits
    themselves. `room` is where held calls wait, `weather` the log of limits and outages, `begun` the number of
    cooldowns that each upstream began, `descriptors` the number of file descriptors that each process may have,
    `workers` the processes by state, `of_process` gauges that the caller already has.
    """
    capacities: dict[str, float] = {}
    levels: dict[str, float] = {}  # the lowest of each label
    found = ((label, b.capacity, b.level(now)) for label, b in _all_buckets(registry, settings.buckets, now))
    for label, capacity, level in await in_turns(found):
        capacities[label] = capacity
        levels[label] = min(level, levels.get(label, level))
    limited = await under_way(settings.router, registry, now)
    left = await cooldowns(settings.router, registry, now)
    lanes = weather_view.by_upstream(weather.lanes())
    held = {
        label: weather_view.held(
            lanes.get(label, ()), waiting=limited.get(label, (0, 0))[1], every=room.held_for(label)
        )
        for label in left
    }
    return Gauges(
        levels=list(levels.items()),
        capacities=list(capacities.items()),
        cooldowns=list(left.items()),
        begun=[(label, begun.get(label, 0)) for label in {**left, **begun}],
        held=[((label, by), count) for label, of in held.items() for by, count in of.items()],
        places=weather_view.limits(lanes, settings.router),
        outages=weather_view.outages(lanes, settings.router),
        circuits=open_circuits(await circuits(settings.router, registry, now), settings.router),
        credentials=usable_credentials(await credentials(settings.router, registry, now)),
        under_way=[(label, used) for label, (used, _) in limited.items()],
        waiting_for_place=[(label, waiting) for label, (_, waiting) in limited.items()],
        buffered_bytes=usage.buffered,
        waiting_calls=usage.waiting,
        limits=[
            ("connections", min(settings.limits.connections, enough_for(descriptors))),
            ("waiting_calls", settings.limits.waiting),
            ("buffered_bytes", settings.buffers.total),
            ("open_files", descriptors * (processes(settings.workers) if workers else 1)),
        ],
        workers=workers,
        **of_process,
    )
