"""The upstream of a simulation, which decides what happens to each request that is sent to it."""

from __future__ import annotations

import math
import random

from proxy.lab.simulate.arrivals import SIGMA
from proxy.lab.simulate.limits import RequestLimit
from proxy.lab.simulate.reports import reported
from proxy.lab.simulate.weather import STALL, Kind, Scenario, ScenarioOutage
from proxy.lab.upstream import FAULTS, Sending
from proxy.retry.facts import FaultKind, MappingFields, NoFields, Reply

#: The most seconds that a request takes to arrive: requests that are sent together arrive in any order.
_TRANSIT = 0.001
#: Seconds that a refusal takes.
_REFUSAL = 0.001
#: The duration, in seconds, of a sending that is never answered.
_NEVER = 86_400.0

_FINE = Reply(200, NoFields())
_BEGUN = Reply(200, MappingFields([("content-type", "text/event-stream")]))


class World:
    """The upstream of one column of the simulation's table (one way to retry): it decides how each request ends.

    Theory. The upstream answers after a latency drawn from a log-normal distribution about its median. With a capacity
    it is one queue: each request takes 1/capacity of its time, waits for those before it, and is refused if it would
    wait longer than `queue`. Work that has begun is finished whether a caller still waits for the answer or not, so
    that retries which come too early cost capacity, as they do in life. An outage's failures cost no capacity. Each
    endpoint has its share of the capacity.

    A limit is counted for each key, by `limits`. Where it is one of tokens, each call takes a number of them that is
    drawn like the latencies.

    Neighbours are other clients of the upstream, without redrive, which send a request once and give up.

    `requests` are counted by the second in which they came, and those that a limit `refused`; `longest_pushback` is the
    longest delay that was named (seconds).
    """

    def __init__(self, scenario: Scenario, seed: str, *, deaf: bool) -> None:
        self.requests: dict[int, int] = {}
        self.longest_pushback = self.refused = 0
        self._scenario = scenario
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        order = random.Random(f"{seed}/order")  # noqa: S311, TID251 - the same
        self._order = order if scenario.order == "random" or scenario.transit else None
        self._deaf = deaf
        self._free_at = [0.0] * scenario.endpoints
        self._limits: dict[int, RequestLimit] = {}  # of each key
        self._edges = scenario.edges
        self._until = -1.0
        self._outages: tuple[ScenarioOutage, ...] = ()
        self._recovering: ScenarioOutage | None = None
        self._replies: dict[tuple[int, int], Reply] = {}

    def transit(self) -> float:
        """The seconds that a request takes to arrive: none; or drawn about the scenario's mean, so that requests arrive
        bunched; or up to a millisecond, where requests of one moment arrive in any order.
        """
        if self._order is None:
            return 0.0
        mean = self._scenario.transit
        return self._order.expovariate(1.0 / mean) if mean else _TRANSIT * self._order.random()

    def fate(self, now: float, key: int, endpoint: int, size: int = 1, route: int = 0) -> Sending:
        """The answer or fault that a request of this route gets which is sent `now` to this endpoint; it counts with
        `size` against the limit of its `key`.
        """
        second = int(now)
        self.requests[second] = self.requests.get(second, 0) + 1
        scenario, rng = self._scenario, self._rng
        if now >= self._until:
            self._look_up(now)
        outage = None
        if self._outages:
            outage = next((each for each in self._outages if each.is_about(key, endpoint, route)), None)
        if outage is not None and rng.random() < outage.share:
            kind = outage.kinds[int(rng.random() * len(outage.kinds))] if len(outage.kinds) > 1 else outage.kinds[0]
            return self._failing(kind, outage.after, outage.retry_after)
        if scenario.failing and rng.random() < scenario.failing:
            return self._failing(503, scenario.latency, 0)
        limit = scenario.limit if outage is None else outage.limit
        if limit is not None:
            refused = self._refused_by(limit, key, now, size)
            if refused is not None:
                self.refused += 1
                return refused
        capacity = scenario.capacity if outage is None else outage.capacity
        if self._recovering is not None and outage is None:
            capacity = scenario.capacity_after(self._recovering, now)
        wait = 0.0
        if capacity is not None:
            capacity /= scenario.endpoints
            wait = max(0.0, self._free_at[endpoint] - now)
            if wait > scenario.queue:
                return self._failing(scenario.overload, _REFUSAL, scenario.retry_after)
            self._free_at[endpoint] = now + wait + 1.0 / capacity
        latency = scenario.latency if outage is None else outage.latency
        if scenario.slow and rng.random() < scenario.slow:
            latency = max(latency, scenario.slow_latency)
        if scenario.routes:
            latency *= scenario.routes[route].slower
        takes = wait + latency * math.exp(SIGMA * rng.gauss(0.0, 1.0))
        if scenario.breaking and rng.random() < scenario.breaking:
            return Sending(takes, Reply(200, NoFields()), cut=0.0)
        if scenario.reports != "off" and limit is not None:
            return Sending(takes, Reply(200, MappingFields(self._report(limit, key, now, takes))))
        return Sending(takes, _FINE)

    def unauthorized(self, now: float) -> Sending:
        """The answer to a request that is sent `now` with a value of a key that the upstream does not take any more."""
        second = int(now)
        self.requests[second] = self.requests.get(second, 0) + 1
        return self._failing(401, _REFUSAL, 0)

    def _report(self, most: int, key: int, now: float, takes: float) -> list[tuple[str, str]]:
        """The fields in which an answer, which `takes` so many seconds, says what is left of the limit of this key,
        which allows `most` in a window.
        """
        scenario, limit, how = self._scenario, self._limits[key], self._scenario.reports
        reset = max(0.001, limit.more_in(now, most, whole=how != "next") - takes)
        return reported(
            how,
            left=limit.left(now, most),
            most=most,
            reset=reset,
            now=now + takes,
            window=scenario.window,
            tokens=scenario.tokens is not None,
        )

    def neighbour(self, now: float) -> None:
        """Take a request of a neighbour, another client of the upstream, at any endpoint. It uses capacity, but is not
        counted among the column's `requests`.
        """
        endpoints = self._scenario.endpoints
        refused = self.refused
        self.fate(now, 0, int(self._rng.random() * endpoints) if endpoints > 1 else 0)
        self.requests[int(now)] -= 1
        self.refused = refused

    def _look_up(self, now: float) -> None:
        """Find the outages that are in force `now`, and the past outage from which the capacity is still recovering."""
        self._outages = self._scenario.outages_at(now)
        self._recovering = self._scenario.recovering_at(now)
        self._until = next((edge for edge in self._edges if edge > now), math.inf)

    def _refused_by(self, most: int, key: int, now: float, size: int) -> Sending | None:
        """Count a request against the limit of this key, and return None; if the limit has no room for it, count
        nothing and return the refusal. `most`: what the limit allows in a window; `size`: how much of that the request
        takes.
        """
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = self._scenario.new_limit(most)
        wait = limit.wait(now, size, most)
        if wait > 0:
            refusal = self._failing(self._scenario.overload, _REFUSAL, math.ceil(wait))
            if self._scenario.reports != "off" and refusal.reply is not None:
                said = [("retry-after", str(math.ceil(wait)))] if not self._deaf else []
                fields = MappingFields([*said, *self._report(most, key, now, _REFUSAL)])
                refusal.reply = Reply(refusal.reply.status, fields, end=True)
            return refusal
        limit.take(now, size, most)
        return None

    def _failing(self, kind: Kind, after: float, retry_after: int) -> Sending:
        if kind == FaultKind.ATTEMPT_TIMEOUT:
            return Sending(_NEVER, fault=FAULTS[FaultKind.ATTEMPT_TIMEOUT])
        if kind == STALL:
            return Sending(after, _BEGUN, pieces=((math.inf, b""),))
        if isinstance(kind, str):
            return Sending(after, fault=FAULTS[FaultKind(kind)])
        self.longest_pushback = max(self.longest_pushback, retry_after)
        said = 0 if self._deaf else retry_after
        reply = self._replies.get((kind, said))
        if reply is None:
            fields = MappingFields([("retry-after", str(said))]) if said else NoFields()
            reply = self._replies[kind, said] = Reply(kind, fields, end=True)
        return Sending(after, reply)
