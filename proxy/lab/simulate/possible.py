"""The share of a scenario's calls that could have been served, whoever schedules them (contract, section 9).

The scheduler of this module knows at each moment what the upstream takes, and sends calls so that none is refused and
none waits in a queue for nothing: first come, first served. It knows nothing of redrive's deciding core, and cannot be
wrong in the same way. It does not know when an outage will end, nor what chance brings.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from proxy.lab.simulate.arrivals import SIGMA, Arrival, visits
from proxy.lab.simulate.limits import RequestLimit
from proxy.lab.simulate.weather import STALL, Kind, Scenario, ScenarioOutage

#: Seconds for which a call is held at most, and in which an outage's calls are held.
HOLD = 20.0
#: The price of a retry in each sidecar's bucket, and the bucket's capacity (the AWS SDKs' quota, as in `standard`).
_PRICE, _CAPACITY = 5.0, 500.0
#: The level below which a bucket regains tokens, and those that it regains in a second of quiet.
_LOW, _REGAINED = 50.0, 5.0
#: Seconds by which quiet is delayed: by a call, by all calls together at most, and by a retry.
_CALL, _CALLS, _RETRY = 1.0, 10.0, 11.0
#: The seconds below which a wait counts as none.
_NO_WAIT = 1e-6
#: Failures that retries are for; after the others an answer stands.
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, "connect_failure", "refused_stream", "reset"})
#: Failures of which it is known that the upstream did nothing, so that any method is repeated.
_UNPROCESSED = frozenset({429, "connect_failure", "refused_stream"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms on which calls are made. Times are in seconds, None where there is no such bound. `credentials`: how
    many keys the policy has to choose from; 0: each call has its app's. `idempotent`: a call may be repeated although
    it may have been carried out.
    """

    total: float | None = None
    attempt: float | None = None
    first_byte: float | None = None
    max_attempts: int = 3
    waiting: int = 2000
    credentials: int = 0
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Possible:
    """The result of the best scheduler. `median` and `p99` are of the seconds for which the calls that succeeded waited
    until their last attempt was sent. `backlogs`: the stretches of time (from, until) in which calls waited for more
    than a second.
    """

    calls: int
    succeeded: int
    median: float
    p99: float
    backlogs: tuple[tuple[float, float], ...]

    @property
    def success_rate(self) -> float:
        """The share of all calls that succeeded, 0 to 1."""
        return self.succeeded / self.calls if self.calls else 0.0


def possible(scenario: Scenario, terms: Terms, calls: Iterable[Arrival]) -> Possible:
    """The result of the best scheduler for these calls, which are in the order of their arrival, in this scenario,
    without fallbacks to other upstreams.
    """
    return _Scheduler(scenario, terms).serve(calls)


class _Pending:
    """A call that is not served yet: its arrival, the number of attempts made, and the seconds for which it has been
    held so far.
    """

    __slots__ = ("arrival", "attempts", "held")

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.attempts = 0
        self.held = 0.0


class _Opening:
    """An opportunity to send an attempt: the time, the key and endpoint to send it with, and the outage that it meets
    there, None for none.
    """

    __slots__ = ("at", "endpoint", "key", "outage")

    def __init__(self, at: float, key: int, endpoint: int, outage: ScenarioOutage | None) -> None:
        self.at = at
        self.key = key
        self.endpoint = endpoint
        self.outage = outage


class _Spell:
    """The time between two changes of the upstream, and the outages that are in force in it. `until`: when it ends."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._edges = scenario.edges
        self._since, self.until = 0.0, -1.0
        self._outages: tuple[ScenarioOutage, ...] = ()
        self._recovering: ScenarioOutage | None = None

    def look_up(self, at: float) -> None:
        """Make this the spell, the time between two changes of the upstream, that contains the time `at`."""
        if self._since <= at < self.until:
            return
        edges = self._edges
        number = bisect_right(edges, at)
        self._since = edges[number - 1]
        self.until = edges[number] if number < len(edges) else math.inf
        self._outages = self._scenario.outages_at(at)
        self._recovering = self._scenario.recovering_at(at)

    def about(self, key: int, endpoint: int, route: int) -> ScenarioOutage | None:
        """The outage, of those in force in this time, that an attempt to this endpoint meets if its call has this key
        and route; None for none.
        """
        return next((each for each in self._outages if each.is_about(key, endpoint, route)), None)

    def capacity(self, outage: ScenarioOutage | None, at: float) -> float | None:
        """The capacity of all endpoints together at the time `at`, in requests a second: that of `outage`, if one is
        given, else the usual one, or the part of it that has come back so far after a past outage. None if it has no
        bound.
        """
        if outage is not None:
            return outage.capacity
        scenario = self._scenario
        return scenario.capacity if self._recovering is None else scenario.capacity_after(self._recovering, at)


class _Scheduler:
    """The best scheduler of one scenario's calls. Calls and retries are handled in the order of their times, so that
    the first to come gets the first opening (opportunity to send an attempt). An opening is reserved as soon as the
    call comes, so the call's wait is known at once.
    """

    def __init__(self, scenario: Scenario, terms: Terms) -> None:
        self._scenario = scenario
        self._terms = terms
        self._chance = random.Random(f"{scenario.seed}/possible")  # noqa: S311, TID251 - a driver: it plays the world
        self._keys = range(terms.credentials) if terms.credentials else None
        self._endpoints = range(scenario.endpoints)
        self._patience = math.inf if scenario.patience is None else scenario.patience
        self._is_bounded = (terms.attempt, terms.first_byte, scenario.patience) != (None, None, None)
        self._free_at = [0.0] * scenario.endpoints
        self._limits: dict[int, RequestLimit] = {}
        self._last: dict[int, float] = {}  # when a request was last counted, by key
        self._spell = _Spell(scenario)
        self._held: dict[int, list[float]] = {}  # by sidecar: until when each of its calls is held
        self._tokens: dict[int, float] = {}  # of each sidecar's bucket that is not full
        self._quiet: dict[int, float] = {}  # when quiet begins there
        self._low = min(_CAPACITY, max(_LOW, (terms.max_attempts - 1) * _PRICE))
        self._retries: list[tuple[float, int, _Pending]] = []
        self._sequence = count()
        self._waits: list[float] = []
        self._backlogs: list[tuple[float, float]] = []

    def serve(self, calls: Iterable[Arrival]) -> Possible:
        """Schedule these calls, which are in the order of their arrival, and their retries. Returns how many succeeded,
        and how long they waited.
        """
        begun, retries = 0, self._retries
        neighbours = visits(self._scenario)
        visit = next(neighbours, math.inf)
        for arrival in calls:
            begun += 1
            while retries and retries[0][0] <= arrival.at:
                at, _, pending = heapq.heappop(retries)
                self._send(pending, at)
            while visit <= arrival.at:
                self._visit(visit)
                visit = next(neighbours, math.inf)
            if arrival.sidecar in self._tokens:
                due = max(self._quiet[arrival.sidecar], arrival.at)
                self._put_off(arrival.sidecar, min(due + _CALL, arrival.at + _CALLS), arrival.at)
            self._send(_Pending(arrival), arrival.at)
        while retries:
            at, _, pending = heapq.heappop(retries)
            self._send(pending, at)
        waits = sorted(self._waits)
        middle, last = (waits[min(len(waits) - 1, int(part * len(waits)))] if waits else 0.0 for part in (0.5, 0.99))
        return Possible(begun, len(waits), middle, last, tuple(self._backlogs))

    # attempts

    def _send(self, pending: _Pending, at: float) -> None:
        """Send a call's next attempt at the first time from `at` on at which the upstream takes it. If there is none
        within the call's time, do nothing, so that the call fails.
        """
        arrival, terms = pending.arrival, self._terms
        end = min(self._patience, math.inf if terms.total is None else terms.total) + arrival.at
        spread = math.exp(SIGMA * self._chance.gauss(0.0, 1.0)) if self._is_bounded else 1.0
        # a place that comes so late that the answer would be too late is left to the next call
        latest = min(at + HOLD - pending.held, end - spread * self._latency(arrival.route, None))
        opening = self._opening(arrival, at, latest)
        if opening is None or opening.at > latest or not self._hold(pending, at, opening.at):
            return
        pending.attempts += 1
        failure, took = self._result(arrival, opening, spread)
        if failure is not None:
            self._retry(pending, failure, opening.at + took)
        elif opening.at + took <= end:
            self._waits.append(opening.at - arrival.at)
            self._earn(arrival.sidecar, _PRICE if pending.attempts > 1 else 1.0)

    def _hold(self, pending: _Pending, at: float, until: float) -> bool:
        """Hold a call from `at` until `until` (seconds); a call that need not wait is not held. Returns False if its
        sidecar already holds as many calls as it may, so that the call fails.
        """
        wait = until - at
        if wait <= _NO_WAIT:
            return True
        held = self._held.setdefault(pending.arrival.sidecar, [])
        while held and held[0] <= at:
            heapq.heappop(held)
        if len(held) >= self._terms.waiting // 2:
            return False
        heapq.heappush(held, until)
        pending.held += wait
        if wait > 1.0:
            began, ended = self._backlogs.pop() if self._backlogs and at <= self._backlogs[-1][1] else (at, until)
            self._backlogs.append((began, max(ended, until)))
        return True

    def _latency(self, route: int, outage: ScenarioOutage | None) -> float:
        """The median latency of the route's answers during this outage (None for none), in seconds."""
        scenario = self._scenario
        latency = scenario.latency if outage is None else outage.latency
        return latency * scenario.routes[route].slower if scenario.routes else latency

    def _result(self, arrival: Arrival, opening: _Opening, spread: float) -> tuple[Kind | None, float]:
        """The failure of an attempt of this call that is sent at `opening`, None for a success, and the seconds until
        its end. `spread`: how much longer than usual the answer takes, as a multiple.
        """
        scenario, chance, outage = self._scenario, self._chance, opening.outage
        if outage is not None and outage.share and chance.random() < outage.share:
            kind = outage.kinds[int(chance.random() * len(outage.kinds))]
            return kind, self._silence(kind) if kind in ("attempt_timeout", STALL) else outage.after
        if scenario.failing and chance.random() < scenario.failing:
            return 503, scenario.latency
        self._take(opening, arrival.size)
        latency = self._latency(arrival.route, outage) * spread
        if scenario.slow and chance.random() < scenario.slow:
            latency = max(latency, scenario.slow_latency * spread)
        if self._is_bounded:
            silence = self._silence("attempt_timeout")
            if latency > silence:
                return "attempt_timeout", silence
        if scenario.breaking and chance.random() < scenario.breaking:
            return "reset", latency
        return None, latency

    def _silence(self, kind: Kind) -> float:
        """The seconds after which an attempt is given up whose failure is silence (`kind`: no answer, or a body that
        stalls); infinite if nothing bounds it.
        """
        terms = self._terms
        bounds = [terms.first_byte] if kind == STALL else [terms.first_byte, terms.attempt]
        return min((bound for bound in bounds if bound is not None), default=math.inf)

    def _retry(self, pending: _Pending, failure: Kind, at: float) -> None:
        """Schedule a retry of a call after `failure`, which was known at `at`, if retries are for such failures,
        attempts are left and the bucket pays.
        """
        is_silence = failure in ("attempt_timeout", STALL)
        if not is_silence and failure not in _RETRIED:
            return
        if at == math.inf or not (self._terms.idempotent or failure in _UNPROCESSED):
            return
        sidecar = pending.arrival.sidecar
        if pending.attempts >= self._terms.max_attempts or self._level(sidecar, at) < _PRICE:
            return
        self._put_off(sidecar, at + _RETRY, at)
        self._tokens[sidecar] -= _PRICE
        heapq.heappush(self._retries, (at, next(self._sequence), pending))

    def _level(self, sidecar: int, at: float) -> float:
        """The tokens in a sidecar's bucket at this time."""
        level = self._tokens.get(sidecar, _CAPACITY)
        if level < self._low and at > self._quiet[sidecar]:
            level = min(self._low, level + (at - self._quiet[sidecar]) * _REGAINED)
        return level

    def _put_off(self, sidecar: int, until: float, at: float) -> None:
        """Let the bucket of `sidecar` refill no sooner than at the time `until`, because a call or a retry comes at the
        time `at`: it refills in quiet only.
        """
        self._tokens[sidecar] = self._level(sidecar, at)
        self._quiet[sidecar] = max(self._quiet.get(sidecar, 0.0), until)

    def _earn(self, sidecar: int, amount: float) -> None:
        level = self._tokens.get(sidecar)
        if level is not None:
            self._tokens[sidecar] = min(_CAPACITY, level + amount)

    # places at the upstream

    def _opening(self, arrival: Arrival, at: float, latest: float) -> _Opening | None:
        """The first opening for a call's attempt from `at` on; None if none comes up to `latest`, or if the call came
        so late in an outage of all endpoints that it is not held for the outage's end.
        """
        keys = (arrival.key,) if self._keys is None else self._keys
        while at <= latest:
            self._spell.look_up(at)
            best: _Opening | None = None
            least = 1.0
            closed: list[ScenarioOutage] = []
            for key in keys:
                for endpoint in self._endpoints:
                    outage = self._spell.about(key, endpoint, arrival.route)
                    share = 0.0 if outage is None else outage.share
                    if outage is not None and share >= 1.0:
                        closed.append(outage)
                        continue
                    when = self._room(key, endpoint, outage, at, arrival.size, latest)
                    if best is None or (share, when) < (least, best.at):
                        best, least = _Opening(when, key, endpoint, outage), share
            if best is None:
                if arrival.at >= max(each.at for each in closed) + HOLD:
                    return None
                at = min(each.until for each in closed)
            elif best.at < self._spell.until:
                return best
            else:
                at = self._spell.until  # by then the upstream can do more, or less
        return None

    def _room(
        self, key: int, endpoint: int, outage: ScenarioOutage | None, at: float, size: int, latest: float
    ) -> float:
        """The first time from `at` on at which both the key's limit and the endpoint's queue have room for a request of
        this size, which meets this `outage` (None for none), by what has been sent so far; infinite if the limit has
        none up to `latest`.
        """
        scenario = self._scenario
        most = scenario.limit if outage is None else outage.limit
        if most is not None:
            limit, at = self._limit(key, most), max(at, self._last.get(key, 0.0))
            while (wait := limit.wait(at, size, most)) > 0:
                at += wait + _NO_WAIT
                if at > latest:
                    return math.inf
        if self._spell.capacity(outage, at) is not None:
            at = max(at, self._free_at[endpoint])
        return at

    def _take(self, opening: _Opening, size: int) -> None:
        """Send a request at the moment of `opening`: count it against the limit of the opening's key (`size`: how much
        of the limit it takes, in requests or tokens), and keep the opening's endpoint busy for as long as its capacity
        says.
        """
        outage, at = opening.outage, opening.at
        most = self._scenario.limit if outage is None else outage.limit
        if most is not None:
            self._limit(opening.key, most).take(at, size, most)
            if self._scenario.limit_kind != "fixed":
                self._last[opening.key] = at
        capacity = self._spell.capacity(outage, at)
        if capacity is not None:
            self._free_at[opening.endpoint] = at + self._scenario.endpoints / capacity

    def _limit(self, key: int, most: int) -> RequestLimit:
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = self._scenario.new_limit(most)
        return limit

    def _visit(self, at: float) -> None:
        """Handle a request of a neighbour, a client without redrive that sends a request once: take it if it need not
        wait for longer than the upstream's queue allows.
        """
        scenario = self._scenario
        endpoint = int(self._chance.random() * scenario.endpoints)
        self._spell.look_up(at)
        outage = self._spell.about(0, endpoint, 0)
        if outage is not None and self._chance.random() < outage.share:
            return
        when = self._room(0, endpoint, outage, at, 1, at + scenario.queue)
        if when <= at + scenario.queue:
            self._take(_Opening(when, 0, endpoint, outage), 1)
