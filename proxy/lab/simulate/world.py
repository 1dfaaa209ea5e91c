"""The simulated upstream: what becomes of each request that is sent to it.

Theory. It answers after a latency drawn from a log-normal distribution about its median. With a capacity it is one
queue: each request takes 1/capacity of its time, waits for those before it, and is refused where it would wait longer
than `queue`. Work once begun is done, whether anybody still waits for the answer or not, so that retries which come too
early cost capacity as in life. An outage's failures cost it nothing.
"""

from __future__ import annotations

import math
import random

from proxy.lab.driver import Sending, timed_out
from proxy.lab.simulate.scenario import Kind, Outage, Scenario
from proxy.retry.facts import Fault, FaultKind, MappingFields, NoFields, Progress, Reply

#: Log-normal: 99 of 100 latencies are within twice the median (ln 2 over the normal's 99 % point).
_SIGMA = math.log(2) / 2.3263
#: Where nothing ever comes.
_NEVER = 86_400.0

_FAULTS = {
    FaultKind.CONNECT_FAILURE: Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, error="connection_refused"),
    FaultKind.REFUSED_STREAM: Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED),
    FaultKind.RESET: Fault(FaultKind.RESET, Progress.UNKNOWN),
    FaultKind.ATTEMPT_TIMEOUT: timed_out(),
}
_FINE = Reply(200, NoFields(), end=True)


class World:
    """One column's upstream. `requests` are counted by the second in which they came."""

    def __init__(self, scenario: Scenario, seed: str, *, deaf: bool) -> None:
        self.requests: dict[int, int] = {}
        self._scenario = scenario
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        self._deaf = deaf
        self._free_at = 0.0
        self._edges = sorted({0.0, *(edge for outage in scenario.outages for edge in (outage.at, outage.until))})
        self._until = -1.0
        self._outage: Outage | None = None
        self._replies: dict[tuple[int, int], Reply] = {}

    def __call__(self, attempt: int, now: float) -> Sending:
        """The fate of a request that is sent now."""
        scenario, rng = self._scenario, self._rng
        second = int(now)
        self.requests[second] = self.requests.get(second, 0) + 1
        outage = self._prevailing(now)
        if outage is not None and rng.random() < outage.share:
            kind = outage.kinds[int(rng.random() * len(outage.kinds))] if len(outage.kinds) > 1 else outage.kinds[0]
            return self._failing(kind, outage.after, outage.retry_after)
        if scenario.failing and rng.random() < scenario.failing:
            return self._failing(503, scenario.latency, 0)
        capacity = scenario.capacity if outage is None else outage.capacity
        wait = 0.0
        if capacity is not None:
            wait = max(0.0, self._free_at - now)
            if wait > scenario.queue:
                return self._failing(scenario.overload, 0.001, scenario.retry_after)
            self._free_at = now + wait + 1.0 / capacity
        return Sending(wait + scenario.latency * math.exp(_SIGMA * rng.gauss(0.0, 1.0)), _FINE)

    def _prevailing(self, now: float) -> Outage | None:
        """Looked up once for each stretch of time."""
        if now >= self._until:
            self._outage = self._scenario.outage(now)
            self._until = next((edge for edge in self._edges if edge > now), math.inf)
        return self._outage

    def _failing(self, kind: Kind, after: float, retry_after: int) -> Sending:
        if kind is FaultKind.ATTEMPT_TIMEOUT:
            return Sending(_NEVER, fault=_FAULTS[kind])
        if isinstance(kind, FaultKind):
            return Sending(after, fault=_FAULTS[kind])
        said = 0 if self._deaf else retry_after
        reply = self._replies.get((kind, said))
        if reply is None:
            fields = MappingFields([("retry-after", str(said))]) if said else NoFields()
            reply = self._replies[kind, said] = Reply(kind, fields, end=True)
        return Sending(after, reply)
