"""One column of a scenario, played: calls through the policy at many sidecars, against one upstream.

Nothing here decides. `Call` does, `Driver` carries out, `World` answers; this module begins calls and counts.
Sidecars share nothing but the upstream, and the buckets that the policy keeps in Redis.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy.lab.clock import BEGIN, DEADLINE, Clock
from proxy.lab.driver import Driver, Sending
from proxy.lab.recorder import Fresh
from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.scenario import Scenario
from proxy.lab.simulate.world import World
from proxy.retry.buckets import Bucket, RateBucket
from proxy.retry.facts import MappingFields, Outcome, Request
from proxy.retry.machine import Call, Env
from proxy.retry.policy import BucketSpec, Policy, RateSpec
from proxy.retry.registry import Factory, Key, Registry, ScopeState
from proxy.retry.waiting_room import WaitingRoom

#: Seconds between looks at which calls are still there, so that one which ended is not kept for its deadline.
_SWEEP = 2.0


@dataclass(slots=True)
class Played:
    """What became of a column's calls. Counts are by the second in which a call began; `requests` when one came.

    `cooled_until` is when the last call was held by a cooldown, `longest_pushback` the longest delay that the upstream
    named; both in seconds.
    """

    name: str
    begun: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)
    requests: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    cooled_until: float = 0.0
    longest_pushback: int = 0


class _Fleet(Factory):
    """Buckets in Redis, which all sidecars share: as exact as if Redis answered at once."""

    def __init__(self) -> None:
        self._buckets: dict[Key, Bucket] = {}
        self._rates: dict[Key, RateBucket] = {}

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """One for each sidecar, or one for all."""
        made = super().bucket(key, spec, before, now)
        return made if spec.store == "memory" else self._buckets.setdefault(key, made)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """Likewise."""
        made = super().rate(key, spec, before, now)
        return made if spec.store == "memory" else self._rates.setdefault(key, made)


class _Sidecar:
    """One redrive: its policy, what its calls share, its waiting room, and the endpoint whose turn it is."""

    __slots__ = ("env", "policy", "scope", "turn")

    def __init__(self, column: Column, fleet: _Fleet, env: Env) -> None:
        self.policy: Policy = Fresh().policy(column.policy)
        self.scope: ScopeState = Registry(fleet).scope(self.policy, column.request)
        self.env = env
        self.turn = 0


class _Simulated(Driver):
    """One call with one of the keys, at one sidecar; it tells its column when it is over."""

    __slots__ = ("_failed_at", "_key", "_sidecar", "_world", "run")

    def __init__(self, run: _Run, world: World, timeout: float | None, key: int, sidecar: _Sidecar) -> None:
        super().__init__(run.clock, self._fate, attempt_timeout=timeout)
        self.run = run
        self._world = world
        self._key = key
        self._sidecar = sidecar
        self._failed_at: tuple[int, ...] = ()  # endpoints that it has been sent to

    def _fate(self, attempt: int, now: float) -> Sending:
        count, sidecar = self.run.endpoints, self._sidecar
        if count == 1:
            return self._world.fate(now, self._key, 0)
        turns = range(sidecar.turn, sidecar.turn + count)
        endpoint = next((turn % count for turn in turns if turn % count not in self._failed_at), sidecar.turn % count)
        sidecar.turn = endpoint + 1
        self._failed_at = (*self._failed_at, endpoint)
        return self._world.fate(now, self._key, endpoint)

    def begin(self, call: Call) -> None:
        """As the driver does, but for the deadline: it is watched by the run, since few calls live to see it."""
        self.call = call
        self.began = self.clock.now
        self._carry_out(call.start(self.clock.now))
        if call.deadline is not None and self.finished is None:
            self.run.watch(self, call.deadline)

    def expire(self) -> None:
        """The deadline has come."""
        self._deadline()

    def over(self) -> None:
        """Counted by the run."""
        self.run.over(self)


class _Run:
    """The play of one column."""

    def __init__(self, scenario: Scenario, column: Column, tell: Callable[[float], None]) -> None:
        self.clock = Clock()
        self._tell = tell
        self.endpoints = scenario.endpoints
        self._requests = _requests(column, scenario.keys)
        self.played = Played(column.name)
        self._scenario = scenario
        self._column = column
        self._arrivals = random.Random(f"{scenario.seed}/arrivals")  # noqa: S311, TID251 - the same for each column
        self._world = World(scenario, f"{scenario.seed}/world", deaf=column.deaf)
        jitter = random.Random(f"{scenario.seed}/jitter")  # noqa: S311, TID251 - a driver makes its source
        fleet = _Fleet()
        self._sidecars = [
            _Sidecar(column, fleet, Env(jitter, 0.0, WaitingRoom(column.waiting))) for _ in range(scenario.sidecars)
        ]
        self._watched: deque[tuple[float, _Simulated]] = deque()
        self._number = 0

    def play(self) -> Played:
        """From the first call's beginning to the last one's end."""
        self.clock.at(self._next(0.0), BEGIN, self._arrive)
        self.clock.at(_SWEEP, BEGIN, self._sweep)
        self.clock.run()
        self.played.requests = self._world.requests
        self.played.longest_pushback = self._world.longest_pushback
        return self.played

    def _next(self, now: float) -> float:
        if self._scenario.steady:
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
        policy = sidecar.policy
        key = int(self._arrivals.random() * len(self._requests)) if len(self._requests) > 1 else 0
        driver = _Simulated(self, self._world, policy.timeouts.attempt, key, sidecar)
        driver.begin(Call(self._requests[key], policy, sidecar.scope, sidecar.env, driver.set_alarm))

    def watch(self, driver: _Simulated, deadline: float) -> None:
        """Mind this call's deadline, if it is still there when the next sweep comes."""
        if deadline - self.clock.now <= 2 * _SWEEP:
            self.clock.at(deadline, DEADLINE, driver.expire)
        else:
            self._watched.append((deadline, driver))

    def _sweep(self) -> None:
        for deadline, driver in self._watched:
            if driver.finished is None:
                self.clock.at(deadline, DEADLINE, driver.expire)
        self._watched.clear()
        self._tell(self.clock.now)
        if self.clock.now < self._scenario.duration:
            self.clock.at(self.clock.now + _SWEEP, BEGIN, self._sweep)

    def over(self, driver: _Simulated) -> None:
        """Count it."""
        played, began = self.played, driver.began
        assert driver.call is not None and driver.outcome is not None
        played.attempts += driver.call.attempts
        played.outcomes[driver.outcome] += 1
        played.seconds.append(self.clock.now - began)
        if driver.call.was_cooled:
            played.cooled_until = max(played.cooled_until, self.clock.now)
        if driver.outcome is Outcome.SUCCESS:
            played.succeeded[int(began)] += 1
        driver.call.forget_alarm()  # else call and driver would keep each other until the collector comes
        driver.call = None


def _requests(column: Column, keys: int) -> list[Request]:
    """The scenario's request with each of the keys."""
    if keys == 1:
        return [column.request]
    fields = [MappingFields([("authorization", f"Bearer {key}")]) for key in range(keys)]
    return [replace(column.request, fields=each) for each in fields]


def play(scenario: Scenario, column: Column, tell: Callable[[float], None] = lambda now: None) -> Played:
    """Play one column. `tell` hears how far it is, every few seconds of the scenario's time."""
    return _Run(scenario, column, tell).play()
