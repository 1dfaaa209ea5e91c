"""A scenario as data: the apps' calls, the upstream's abilities, and its outages.

This module, like `arrivals`, `limits` and `possible`, imports nothing of redrive's deciding core: what was possible is
computed without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from proxy.config.problems import Mark
from proxy.config.yaml_tree import Map
from proxy.lab.simulate.limits import LimitKind, RequestLimit, limit_of
from proxy.lab.simulate.reports import Reports

#: A failure that is no status and no fault: the head of a stream comes, and nothing after it.
STALL = "stall"
#: The ways of a sidecar while it has no Redis, as in `proxy.stores.redis.absence`, which is not imported: what was
#: possible is worked out from a scenario without the code that is judged.
OnOutage = Literal["share", "local", "deny"]
#: A failure: a status, or the name of a fault kind, or `stall`.
Kind = int | str


@dataclass(frozen=True, slots=True)
class ScenarioOutage:
    """An outage of the simulated upstream; its keys in the file are described in OUTAGE. Times are in seconds, shares
    from 0 to 1. `capacity`, `latency` and `limit` are those of the upstream if the outage names none; `key`, `endpoint`
    and `route` are the index of the API key, endpoint or route that it concerns, from 0, None for all.
    """

    at: float
    until: float
    share: float
    kinds: tuple[Kind, ...]
    after: float
    retry_after: int
    capacity: float | None
    recovers: float
    latency: float
    limit: int | None
    key: int | None
    endpoint: int | None
    route: int | None = None

    def is_about(self, key: int, endpoint: int, route: int) -> bool:
        """Whether the outage concerns requests of this route, with this API key, to this endpoint."""
        return (
            (self.key is None or self.key == key)
            and (self.endpoint is None or self.endpoint == endpoint)
            and (self.route is None or self.route == route)
        )


@dataclass(frozen=True, slots=True)
class ScenarioRoute:
    """A part of the apps' calls, with its share of them (0 to 1) and its latency as a multiple of the upstream's."""

    method: str
    path: str
    share: float
    slower: float


@dataclass(frozen=True, slots=True)
class ScenarioApp:
    """An app, with its share of the calls (0 to 1). `weight` and `priority` have the meaning of the keys of the same
    names under `apps.known`. They are used if the scenario contains the policies.
    """

    name: str
    share: float
    weight: int
    priority: str


@dataclass(frozen=True, slots=True)
class ScenarioRotation:
    """A time `at` which the upstream has a new value for the credential `key` (an index, from 0). It takes the earlier
    value for `overlap` seconds more; the credential's file has the new one after `file_after` seconds. `mark`: where it
    is written.
    """

    mark: Mark
    at: float
    key: int
    overlap: float
    file_after: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A time, in seconds, in which no call begins."""

    at: float
    until: float


@dataclass(frozen=True, slots=True)
class RedisOutage:
    """An outage of Redis for a `share` of the sidecars (0 to 1), those with the lowest numbers. `kind`: `gone`,
    connections end and are refused; or `silent`, nothing is answered. `empty`: Redis returns without its data.
    """

    at: float
    until: float
    kind: str
    share: float
    empty: bool


@dataclass(frozen=True, slots=True)
class SimulatedRedis:
    """The Redis of a scenario. `latency`: the seconds of a round trip. `on_outage`: what sidecars do in an outage, each
    word played as a column of its own; empty: only the configuration's.
    """

    latency: float = 0.001
    on_outage: tuple[OnOutage, ...] = ()
    outages: tuple[RedisOutage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another upstream, to which calls may go on as their fallback; its keys in the file are described in OTHER."""

    latency: float
    failing: float
    capacity: float | None
    queue: float
    overload: Kind
    retry_after: int
    policy: Map | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario; its keys in the file are described in SCENARIO and UPSTREAM. `policy` and `compare` are parsed YAML
    trees, which know the file's lines of their keys. Without `routes` all calls have the `method` and the path `/`.
    """

    file: str
    name: str
    duration: float
    seed: int
    sidecars: int
    calls: float
    arrivals: str
    method: str
    url: str | None = None
    latency: float
    slow: float = 0.0
    slow_latency: float = 1.0
    failing: float
    breaking: float = 0.0
    order: str = "sent"
    transit: float = 0.0
    capacity: float | None
    queue: float
    overload: Kind
    retry_after: int
    limit: int | None = None
    limit_kind: LimitKind = "fixed"
    burst: int | None = None
    tokens: int | None = None
    window: float
    keys: int
    endpoints: int
    outages: tuple[ScenarioOutage, ...]
    routes: tuple[ScenarioRoute, ...] = ()
    pauses: tuple[Pause, ...] = ()
    rotations: tuple[ScenarioRotation, ...] = ()
    patience: float | None = None
    neighbours: float | None = None
    possible: float | None = None
    policy: Map | None
    compare: Map
    others: Mapping[str, Other] = field(default_factory=dict)
    redis: SimulatedRedis = SimulatedRedis()
    reports: Reports = "off"
    prompt: float = 0.5
    max_tokens: int | None = None
    apps: tuple[ScenarioApp, ...] = ()

    @property
    def edges(self) -> list[float]:
        """The times at which what the upstream takes changes, sorted, from 0: the beginning and the end of each outage,
        and the end of the recovery after it.
        """
        edges = [edge for outage in self.outages for edge in (outage.at, outage.until)]
        return sorted({0.0, *edges, *(each.until + each.recovers for each in self.outages)})

    def outages_at(self, now: float) -> tuple[ScenarioOutage, ...]:
        """The outages that are in force `now`, in the order of the file."""
        return tuple(each for each in self.outages if each.at <= now < each.until)

    def takes_key(self, key: int, version: int, now: float) -> bool:
        """Whether the upstream takes this version (from 1) of the value of the credential `key` (an index, from 0) at
        the time `now`.
        """
        rotations = [each for each in self.rotations if each.key == key]
        if version > len(rotations):
            return True
        return now < rotations[version - 1].at + rotations[version - 1].overlap

    def recovering_at(self, now: float) -> ScenarioOutage | None:
        """The past outage from which the capacity is still recovering `now`; None for none."""
        return next((each for each in self.outages if each.until <= now < each.until + each.recovers), None)

    def capacity_after(self, outage: ScenarioOutage, now: float) -> float | None:
        """The upstream's capacity in requests a second, at a time `now` of the recovery after `outage`: it grows evenly
        from the outage's capacity to the usual one. None if it has no bound.
        """
        if self.capacity is None or outage.capacity is None:
            return self.capacity
        return outage.capacity + (self.capacity - outage.capacity) * (now - outage.until) / outage.recovers

    def new_limit(self, most: int) -> RequestLimit:
        """A new limit for one key, which allows `most` in a window at first."""
        usual = most if self.limit is None else self.limit
        return limit_of(self.limit_kind, self.window, float(usual if self.burst is None else self.burst))
