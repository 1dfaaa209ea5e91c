"""The simulated upstream: what becomes of each request that is sent to it.

Theory. It answers after a latency drawn from a log-normal distribution about its median. With a capacity it is one
queue: each request takes 1/capacity of its time, waits for those before it, and is refused where it would wait longer
than `queue`. Work once begun is done, whether anybody still waits for the answer or not, so that retries which come too
early cost capacity as in life. An outage's failures cost it nothing. Each endpoint has its share of the capacity. A
limit is counted for each key in windows that begin with the play, as APIs that allow so many requests a minute do.
"""

from __future__ import annotations

import math
import random

from proxy.lab.driver import Sending
from proxy.lab.simulate.scenario import Kind, Outage, Scenario
from proxy.lab.upstream import FAULTS
from proxy.retry.facts import FaultKind, MappingFields, NoFields, Reply

#: Log-normal: 99 of 100 latencies are within twice the median (ln 2 over the normal's 99 % point).
_SIGMA = math.log(2) / 2.3263
#: Seconds that a refusal takes.
_REFUSAL = 0.001
#: Where nothing ever comes.
_NEVER = 86_400.0

_FINE = Reply(200, NoFields(), end=True)


class World:
    """One column's upstream. `requests` are counted by the second in which they came; `longest_pushback` is the longest
    delay that was named (seconds).
    """

    def __init__(self, scenario: Scenario, seed: str, *, deaf: bool) -> None:
        self.requests: dict[int, int] = {}
        self.longest_pushback = 0
        self._scenario = scenario
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        self._deaf = deaf
        self._free_at = [0.0] * scenario.endpoints
        self._windows: dict[int, tuple[int, int]] = {}  # of each key: the window's number, and what it has had in it
        edges = [edge for outage in scenario.outages for edge in (outage.at, outage.until)]
        self._edges = sorted({0.0, *edges, *(each.until + each.recovers for each in scenario.outages)})
        self._until = -1.0
        self._outages: tuple[Outage, ...] = ()
        self._recovering: Outage | None = None
        self._replies: dict[tuple[int, int], Reply] = {}

    def fate(self, now: float, key: int, endpoint: int) -> Sending:
        """What becomes of a request with this key that is sent to this endpoint now."""
        scenario, rng = self._scenario, self._rng
        second = int(now)
        self.requests[second] = self.requests.get(second, 0) + 1
        if now >= self._until:
            self._look_up(now)
        outage = None
        if self._outages:
            outage = next((each for each in self._outages if each.is_about(key, endpoint)), None)
        if outage is not None and rng.random() < outage.share:
            kind = outage.kinds[int(rng.random() * len(outage.kinds))] if len(outage.kinds) > 1 else outage.kinds[0]
            return self._failing(kind, outage.after, outage.retry_after)
        if scenario.failing and rng.random() < scenario.failing:
            return self._failing(503, scenario.latency, 0)
        limit = scenario.limit if outage is None else outage.limit
        if limit is not None and not self._within(limit, key, now):
            return self._failing(scenario.overload, _REFUSAL, math.ceil(scenario.window - now % scenario.window))
        capacity = scenario.capacity if outage is None else outage.capacity
        if self._recovering is not None and outage is None:
            capacity = self._capacity_again(self._recovering, now)
        wait = 0.0
        if capacity is not None:
            capacity /= scenario.endpoints
            wait = max(0.0, self._free_at[endpoint] - now)
            if wait > scenario.queue:
                return self._failing(scenario.overload, _REFUSAL, scenario.retry_after)
            self._free_at[endpoint] = now + wait + 1.0 / capacity
        latency = scenario.latency if outage is None else outage.latency
        return Sending(wait + latency * math.exp(_SIGMA * rng.gauss(0.0, 1.0)), _FINE)

    def _look_up(self, now: float) -> None:
        """Once for each stretch of time."""
        self._outages = self._scenario.prevailing(now)
        self._recovering = self._scenario.recovering(now)
        self._until = next((edge for edge in self._edges if edge > now), math.inf)

    def _within(self, limit: int, key: int, now: float) -> bool:
        """Whether the window of this key has room for one more, which is then counted."""
        number = int(now // self._scenario.window)
        before, had = self._windows.get(key, (number, 0))
        had = had if before == number else 0
        self._windows[key] = number, had + (had < limit)
        return had < limit

    def _capacity_again(self, outage: Outage, now: float) -> float | None:
        """What there is of the capacity again, which grows evenly."""
        usual = self._scenario.capacity
        if usual is None or outage.capacity is None:
            return usual
        return outage.capacity + (usual - outage.capacity) * (now - outage.until) / outage.recovers

    def _failing(self, kind: Kind, after: float, retry_after: int) -> Sending:
        if kind is FaultKind.ATTEMPT_TIMEOUT:
            return Sending(_NEVER, fault=FAULTS[kind])
        if isinstance(kind, FaultKind):
            return Sending(after, fault=FAULTS[kind])
        self.longest_pushback = max(self.longest_pushback, retry_after)
        said = 0 if self._deaf else retry_after
        reply = self._replies.get((kind, said))
        if reply is None:
            fields = MappingFields([("retry-after", str(said))]) if said else NoFields()
            reply = self._replies[kind, said] = Reply(kind, fields, end=True)
        return Sending(after, reply)
