"""The play of one column of a scenario: calls through the policy at many sidecars, against one simulated upstream.

Nothing here decides: `Call` does, `Driver` carries out, `World` answers; the rest begins calls and counts. Sidecars
share only the upstream, and the buckets that the policy keeps in Redis.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver, Fresh
from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.scenario import STALL, Kind, Other, Outage, Scenario
from proxy.lab.upstream import FAULTS, Sending
from proxy.retry.buckets import Bucket, RateBucket
from proxy.retry.environment import Env
from proxy.retry.facts import FaultKind, MappingFields, NoFields, Outcome, Reply, Request
from proxy.retry.machine import Call
from proxy.retry.policy import BucketSpec, Fallback, Policy, RateSpec
from proxy.retry.registry import Factory, Key, Registry, ScopeState
from proxy.retry.states import Flying
from proxy.retry.waiting_room import WaitingRoom

#: Seconds between looks at which calls are still there, so that one which ended is not kept for its deadline.
_SWEEP = 2.0
#: Log-normal: 99 of 100 latencies are within twice the median (ln 2 over the normal's 99 % point).
_SIGMA = math.log(2) / 2.3263
#: Seconds that a refusal takes.
_REFUSAL = 0.001
#: Where nothing ever comes.
_NEVER = 86_400.0

_FINE = Reply(200, NoFields())
_BEGUN = Reply(200, MappingFields([("content-type", "text/event-stream")]))


class World:
    """A column's upstream, which decides what happens to each request that is sent to it.

    Theory. The upstream answers after a latency drawn from a log-normal distribution about its median. With a capacity
    it is one queue: each request takes 1/capacity of its time, waits for those before it, and is refused if it would
    wait longer than `queue`. Work that has begun is finished whether a caller still waits for the answer or not, so
    that retries which come too early cost capacity, as they do in life. An outage's failures cost no capacity. Each
    endpoint has its share of the capacity.

    A limit is counted for each key in windows that begin with the play, as it is by APIs that allow so many requests a
    minute, or so many tokens: then each call takes a number of tokens that is drawn like the latencies.

    `requests` are counted by the second in which they came; `longest_pushback` is the longest delay that was named
    (seconds).
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

    def fate(self, now: float, key: int, endpoint: int, size: int = 1) -> Sending:
        """The answer or fault that a request gets which is sent `now` to this endpoint; it counts with `size` against
        the limit of its `key`.
        """
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
        if limit is not None and not self._within(limit, key, now, size):
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
        if scenario.slow and rng.random() < scenario.slow:
            latency = max(latency, scenario.slow_latency)
        return Sending(wait + latency * math.exp(_SIGMA * rng.gauss(0.0, 1.0)), _FINE)

    def _look_up(self, now: float) -> None:
        """Find the outages that are in force `now`, in the order of the file, and the past outage from which the
        capacity is still recovering.
        """
        outages = self._scenario.outages
        self._outages = tuple(each for each in outages if each.at <= now < each.until)
        self._recovering = next((each for each in outages if each.until <= now < each.until + each.recovers), None)
        self._until = next((edge for edge in self._edges if edge > now), math.inf)

    def _within(self, limit: int, key: int, now: float, size: int) -> bool:
        """Whether the window of this key has room for one more request of this size; if so, the request is counted."""
        number = int(now // self._scenario.window)
        before, had = self._windows.get(key, (number, 0))
        had = had if before == number else 0
        has_room = had + size <= limit
        self._windows[key] = number, had + size * has_room
        return has_room

    def _capacity_again(self, outage: Outage, now: float) -> float | None:
        """The upstream's capacity during the recovery from an outage, in which it grows evenly."""
        usual = self._scenario.capacity
        if usual is None or outage.capacity is None:
            return usual
        return outage.capacity + (usual - outage.capacity) * (now - outage.until) / outage.recovers

    def _failing(self, kind: Kind, after: float, retry_after: int) -> Sending:
        if kind is FaultKind.ATTEMPT_TIMEOUT:
            return Sending(_NEVER, fault=FAULTS[kind])
        if kind == STALL:
            return Sending(after, _BEGUN, pieces=((math.inf, b""),))
        if isinstance(kind, FaultKind):
            return Sending(after, fault=FAULTS[kind])
        self.longest_pushback = max(self.longest_pushback, retry_after)
        said = 0 if self._deaf else retry_after
        reply = self._replies.get((kind, said))
        if reply is None:
            fields = MappingFields([("retry-after", str(said))]) if said else NoFields()
            reply = self._replies[kind, said] = Reply(kind, fields, end=True)
        return Sending(after, reply)


@dataclass(slots=True)
class Played:
    """The results of a column's calls. Calls are counted by the second in which they began, `requests` by the second in
    which they reached the upstream. `hedges` are attempts that were sent while another attempt of their call was in
    flight. `cooled_until` is the last time at which a cooldown held a call, `longest_pushback` the longest delay that
    the upstream named; both in seconds.
    """

    name: str
    begun: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)
    requests: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    hedges: int = 0
    cooled_until: float = 0.0
    longest_pushback: int = 0


class _Fleet(Factory):
    """The factory of the sidecars' buckets. Those that the policy keeps in Redis are shared by all sidecars, as exactly
    as if Redis answered at once.
    """

    def __init__(self) -> None:
        self._buckets: dict[Key, Bucket] = {}
        self._rates: dict[Key, RateBucket] = {}

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """Make a bucket for one sidecar, or return the bucket that all share if the policy keeps it in Redis."""
        made = super().bucket(key, spec, before, now)
        return made if spec.store == "memory" else self._buckets.setdefault(key, made)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """Make a rate for one sidecar, or return the rate that all share if the policy keeps it in Redis."""
        made = super().rate(key, spec, before, now)
        return made if spec.store == "memory" else self._rates.setdefault(key, made)


class _Sidecar:
    """A simulated redrive: its policy, the state that its calls share, its waiting room, and the endpoint whose turn it
    is.
    """

    __slots__ = ("env", "others", "policy", "scope", "turn", "why_not")

    def __init__(self, column: Column, fleet: _Fleet, env: Env) -> None:
        fresh, registry = Fresh(), Registry(fleet)
        self.policy = fresh.policy(column.policy)
        self.scope = registry.scope(self.policy, column.request)
        self.others: dict[str, tuple[Request, Policy, ScopeState]] = {}
        if self.policy.fallback:
            for name, (request, made) in column.others.items():
                policy = fresh.policy(made)
                self.others[name] = request, policy, registry.scope(policy, request)
        self.why_not = self._why_not if self.policy.fallback else None
        self.env = env
        self.turn = 0

    def _why_not(self, entry: Fallback) -> str:
        return "" if entry.to in self.others else "the scenario says nothing about it"


class _Simulated(Driver):
    """A call at one sidecar, made with one of the apps' API keys; the run is notified when the call is over."""

    def __init__(self, run: _Run, key: int, sidecar: _Sidecar, size: int) -> None:
        super().__init__(run.clock, self._fate, attempt_timeout=sidecar.policy.timeouts.attempt)
        self.idle_timeout = sidecar.policy.timeouts.idle
        self._run = run
        self._apps_key = key
        self._size = size
        self._sidecar = sidecar
        self._failed_at: tuple[int, ...] = ()  # endpoints that it has been sent to
        self._other: World | None = None  # the upstream that it went on to

    def _fate(self, attempt: int, now: float) -> Sending:
        if self._other is not None:
            return self._other.fate(now, 0, 0)
        count, world, sidecar = self._run.endpoints, self._run.world, self._sidecar
        key = self._apps_key if self.key is None else self.key
        if self.endpoint is not None:
            return world.fate(now, key, self.endpoint, self._size)
        if count == 1:
            return world.fate(now, key, 0, self._size)
        turns = range(sidecar.turn, sidecar.turn + count)
        endpoint = next((turn % count for turn in turns if turn % count not in self._failed_at), sidecar.turn % count)
        sidecar.turn = endpoint + 1
        self._failed_at = (*self._failed_at, endpoint)
        return world.fate(now, key, endpoint, self._size)

    def call_elsewhere(self, entry: Fallback) -> Call:
        request, policy, scope = self._sidecar.others[entry.to]
        self._other = self._run.others[entry.to]
        self.attempt_timeout, self.idle_timeout = policy.timeouts.attempt, policy.timeouts.idle
        return Call(request, policy, scope, self._sidecar.env, self.set_alarm)

    def watch(self, deadline: float) -> None:
        """Schedule the end of the call's time. A distant deadline is scheduled only by a later sweep, if the call still
        lasts then: few do.
        """
        if deadline - self.clock.now <= 2 * _SWEEP:
            super().watch(deadline)
        else:
            self._run.watched.append((deadline, self))

    def launched(self, attempt: int) -> None:
        call = self.call
        state = call.so_far.state
        if attempt > 1 and call.hedged and isinstance(state, Flying) and min(state.flights) < attempt:
            self._run.played.hedges += 1

    def over(self) -> None:
        self._run.over(self)


class _Run:
    """The play of one column: the scenario's calls under that column's way to retry."""

    def __init__(self, scenario: Scenario, column: Column, report: Callable[[float], None]) -> None:
        self.clock = Clock()
        self._report = report
        self.endpoints = scenario.endpoints
        self._requests = _requests(column, scenario.keys)
        self.played = Played(column.name)
        self._scenario = scenario
        self._sizes = random.Random(f"{scenario.seed}/sizes")  # noqa: S311, TID251 - the same for each column
        self._arrivals = random.Random(f"{scenario.seed}/arrivals")  # noqa: S311, TID251 - the same for each column
        self.world = World(scenario, f"{scenario.seed}/world", deaf=column.deaf)
        self.others = {
            name: World(_alone(scenario, said), f"{scenario.seed}/world/{name}", deaf=column.deaf)
            for name, said in scenario.others.items()
        }
        jitter = random.Random(f"{scenario.seed}/jitter")  # noqa: S311, TID251 - a driver makes its source
        fleet = _Fleet()
        self._sidecars = [
            _Sidecar(column, fleet, Env(jitter, 0.0, WaitingRoom(column.waiting))) for _ in range(scenario.sidecars)
        ]
        self.watched: deque[tuple[float, _Simulated]] = deque()
        self._number = 0

    def play(self) -> Played:
        """Play from the first call's beginning to the last one's end."""
        self.clock.at(self._next(0.0), BEGIN, self._arrive)
        self.clock.at(_SWEEP, BEGIN, self._sweep)
        self.clock.run()
        self.played.requests, self.played.longest_pushback = self.world.requests, self.world.longest_pushback
        return self.played

    def _next(self, now: float) -> float:
        if self._scenario.arrivals == "steady":
            return (self._number + 1) / self._scenario.calls
        return now + self._arrivals.expovariate(self._scenario.calls)

    def _arrive(self) -> None:
        now = self.clock.now
        if now >= self._scenario.duration:
            return
        self.clock.at(self._next(now), BEGIN, self._arrive)
        sidecar = self._sidecars[int(self._arrivals.random() * len(self._sidecars))]
        self._number += 1
        self.played.begun[int(now)] += 1
        key = int(self._arrivals.random() * len(self._requests)) if len(self._requests) > 1 else 0
        driver = _Simulated(self, key, sidecar, self._size())
        call = Call(self._requests[key], sidecar.policy, sidecar.scope, sidecar.env, driver.set_alarm, sidecar.why_not)
        driver.begin(call)

    def _size(self) -> int:
        """Draw the amount by which the next call counts against its key's limit."""
        middle = self._scenario.tokens
        return 1 if middle is None else max(1, round(middle * math.exp(_SIGMA * self._sizes.gauss(0.0, 1.0))))

    def _sweep(self) -> None:
        for deadline, driver in self.watched:
            if driver.finished is None:
                Driver.watch(driver, deadline)
        self.watched.clear()
        self._report(self.clock.now)
        if self.clock.now < self._scenario.duration:
            self.clock.at(self.clock.now + _SWEEP, BEGIN, self._sweep)

    def over(self, driver: _Simulated) -> None:
        """Count a call that has ended."""
        played, began = self.played, driver.began
        assert driver.outcome is not None
        played.attempts += driver.call.so_far.attempts
        played.outcomes[driver.outcome] += 1
        played.seconds.append(self.clock.now - began)
        if driver.call.so_far.was_cooled:
            played.cooled_until = max(played.cooled_until, self.clock.now)
        if driver.outcome is Outcome.SUCCESS:
            played.succeeded[int(began)] += 1
        driver.call.forget_alarm()  # else call and driver would keep each other until the collector comes
        del driver.call


def _alone(scenario: Scenario, said: Other) -> Scenario:
    """The scenario of another upstream (a fallback), as `said` describes it, without outages and limits."""
    can = {name: getattr(said, name) for name in ("latency", "failing", "capacity", "queue", "overload", "retry_after")}
    return replace(scenario, **can, slow=0.0, limit=None, tokens=None, endpoints=1, outages=())


def _requests(column: Column, keys: int) -> list[Request]:
    """The scenario's request, once with each of so many API keys."""
    if keys == 1:
        return [column.request]
    fields = [MappingFields([("authorization", f"Bearer {key}")]) for key in range(keys)]
    asked = column.request
    return [Request(asked.method, asked.authority, asked.path, each, asked.plain, asked.timed) for each in fields]


def play(scenario: Scenario, column: Column, report: Callable[[float], None] = lambda now: None) -> Played:
    """Play one column, a way to retry. `report` is called with the time in the scenario, every few seconds of it."""
    return _Run(scenario, column, report).play()
