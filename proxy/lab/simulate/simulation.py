"""The simulation of one column of a scenario's table, that is, of one way to retry: calls go through the policy at many
sidecars, and to one simulated upstream.

`Call` decides, as in the proxy; `Driver` carries its actions out; `World` is the upstream, which answers. This module
begins the calls and counts their results. Sidecars share the upstream, and the buckets that the policy keeps in Redis,
of which each sidecar has leases (`proxy.lab.fleet`). They share nothing else.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain

from proxy.lab.clock import ALARM, BEGIN, DEADLINE, Clock
from proxy.lab.driver import Driver
from proxy.lab.fleet.factory import PlayedFleet
from proxy.lab.fleet.played_redis import PlayedRedis
from proxy.lab.fresh_policies import Fresh
from proxy.lab.played_keys import key_version
from proxy.lab.simulate.arrivals import Arrival, arrivals, visits
from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.ledger import Ledger
from proxy.lab.simulate.weather import Other, Scenario
from proxy.lab.simulate.world import World
from proxy.lab.upstream import Sending
from proxy.retry.answers.token_usage import TokenUsage
from proxy.retry.apps import NamedApp
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.states import Flying
from proxy.retry.facts import Fields, MappingFields, Outcome, Request
from proxy.retry.policies.bucket_specs import TokenRules
from proxy.retry.policies.policy import Fallback, KeyFile, Policy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.stores.redis.making import is_shared

#: Seconds between looks at which calls are still there, so that one which ended is not kept for its deadline.
_SWEEP = 2.0
#: The text in a route's path that stands for the number of the call.
_NUMBER = "{call}"


@dataclass(slots=True)
class PlayedApp:
    """The results of one app's calls; `seconds` are those of the calls that succeeded."""

    begun: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Played:
    """The results of the calls in one column of the simulation's table, that is, under one of the ways to retry that
    are compared. Calls are counted by the second in which they began, `requests` by the second in which they reached
    the upstream. `hedges` are attempts that were sent while another attempt of their call was in flight.
    `longest_pushback` is the longest delay that the upstream named, in seconds. `refused`: requests that a limit of the
    upstream's refused; `by_app`: the results of each app of the scenario; `scripts`: the number of scripts that Redis
    ran.
    """

    name: str
    begun: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)
    requests: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    hedges: int = 0
    longest_pushback: int = 0
    scripts: int = 0
    refused: int = 0
    by_app: tuple[PlayedApp, ...] = ()


class _Sidecar:
    """A simulated redrive: its policy, the state that its calls share, its waiting room, and whose turn it is among the
    endpoints (`turn`). `keys` are those of its credentials that stand in files.
    """

    __slots__ = ("env", "keys", "others", "policy", "scope", "turn", "why_not")

    def __init__(self, column: Column, fleet: PlayedFleet, env: Env) -> None:
        fresh, registry = Fresh(), Registry(fleet.factory())
        self.policy = fresh.policy(column.policy)
        self.scope = registry.scope(self.policy, column.request)
        self.others: dict[str, tuple[Request, Policy, ScopeState]] = {}
        if self.policy.fallback:
            for name, (request, made) in column.others.items():
                policy = fresh.policy(made)
                self.others[name] = request, policy, registry.scope(policy, request)
        self.why_not = self._why_not if self.policy.fallback else None
        self.env, self.keys = env, fresh.keys
        env.read_key_file = fresh.keys.read
        self.turn = 0

    def _why_not(self, entry: Fallback) -> str:
        return "" if entry.to in self.others else "the scenario says nothing about it"


class _Simulated(Driver):
    """A call at one sidecar, made with one of the apps' API keys; the run is notified when the call is over."""

    def __init__(self, run: _Run, sidecar: _Sidecar, arrival: Arrival) -> None:
        super().__init__(run.clock, self._fate, timeouts=sidecar.policy.timeouts)
        self._run = run
        self._arrival = arrival
        self._sidecar = sidecar
        self._failed_at: tuple[int, ...] = ()  # endpoints that it has been sent to
        self._other: World | None = None  # the upstream that it went on to

    def _fate(self, attempt: int, now: float) -> Sending:
        if self._other is not None:
            return self._other.fate(now, 0, 0)
        count, world, sidecar = self._run.endpoints, self._run.world, self._sidecar
        _, _, key, route, size, _ = self._arrival
        if self.key is not None:
            key = self.key
            if self._run.scenario.rotations:
                version = key_version(sidecar.policy.credentials, key) or 1
                if not self._run.scenario.takes_key(key, version, now):
                    return world.unauthorized(now)
        if self.endpoint is not None:
            return world.fate(now, key, self.endpoint, size, route)
        if count == 1:
            return world.fate(now, key, 0, size, route)
        turns = range(sidecar.turn, sidecar.turn + count)
        endpoint = next((turn % count for turn in turns if turn % count not in self._failed_at), sidecar.turn % count)
        sidecar.turn = endpoint + 1
        self._failed_at = (*self._failed_at, endpoint)
        return world.fate(now, key, endpoint, size, route)

    def call_elsewhere(self, entry: Fallback) -> Call:
        request, policy, scope = self._sidecar.others[entry.to]
        self._other = self._run.others[entry.to]
        self.timeouts = policy.timeouts
        call = Call(request, policy, scope, self._sidecar.env, self.set_alarm)
        self.expect(call, policy, scope)
        return call

    def expect(self, call: Call, policy: Policy, scope: ScopeState) -> None:
        """Tell the call how many tokens of the upstream's limit it is expected to cost, if its policy counts them, as
        the proxy works it out from the request's body. `scope`: the state of its scope, which knows what answers cost.
        """
        rules = policy.tokens
        if rules is not None:
            prompt, most = self._run.scenario.prompt * self._arrival.size, self._run.scenario.max_tokens
            if most is not None:
                call.expects(Estimate(prompt, min(most, rules.burst)))
                return
            known = None if scope.token_sizes is None else scope.token_sizes.expected("", self.clock.now)
            call.expects(Estimate(prompt, rules.output if known is None else known))

    def usage(self, rules: TokenRules, sending: Sending, *, whole: bool = True) -> TokenUsage:
        """The tokens that the call really cost: as many as it took of the upstream's limit."""
        if not whole:
            return TokenUsage()
        prompt = self._run.scenario.prompt * self._arrival.size
        return TokenUsage(prompt, self._arrival.size - prompt)

    def watch(self, deadline: float) -> None:
        """Schedule the end of the call's time. A distant deadline is scheduled later, by a sweep over all calls that
        still last then, since few calls last so long.
        """
        if deadline - self.clock.now <= 2 * _SWEEP:
            super().watch(deadline)
        else:
            self._run.watched.append((deadline, self))

    @property
    def app(self) -> int:
        """The number of the app that calls."""
        return self._arrival.app

    def launched(self, attempt: int) -> float:
        call = self.call
        state = call.so_far.state
        if attempt > 1 and call.hedged and isinstance(state, Flying) and min(state.flights) < attempt:
            self._run.played.hedges += 1
        return self._run.world.transit()

    def over(self) -> None:
        self._run.over(self)


class _Watched(_Simulated):
    """A call each of whose sendings is noted in the run's ledger."""

    sent = math.inf

    def _fate(self, attempt: int, now: float) -> Sending:
        sending = super()._fate(attempt, now)
        ledger = self._run.ledger
        assert ledger is not None
        reply = sending.reply
        ledger.send(now, attempt, took=reply is not None and reply.status < 400 and not sending.never_ends)
        self.sent = min(self.sent, now)
        return sending

    def over(self) -> None:
        ledger = self._run.ledger
        assert ledger is not None and self.outcome is not None
        ledger.sidecar.append(self._arrival.sidecar)
        ledger.route.append(self._arrival.route)
        ledger.end(self.call, self.began, self.sent, self.clock.now, self.outcome)
        super().over()


class _Run:
    """The play of one column: the scenario's calls under that column's way to retry."""

    def __init__(
        self, scenario: Scenario, column: Column, report: Callable[[float], None], ledger: Ledger | None
    ) -> None:
        self.clock = Clock()
        self.ledger = ledger
        self._driver = _Simulated if ledger is None else _Watched
        self._report = report
        self.endpoints = scenario.endpoints
        self._requests = _requests(column, scenario)
        self._numbered = [_NUMBER in route.path for route in scenario.routes]
        self._calls = 0
        self.played = Played(column.name, by_app=tuple(PlayedApp() for _ in scenario.apps))
        self.scenario = scenario
        self._arrivals = arrivals(scenario)
        self._patience = scenario.patience
        self._visits = visits(scenario)
        self.world = World(scenario, f"{scenario.seed}/world", deaf=column.deaf)
        self.others = {
            name: World(_alone(scenario, said), f"{scenario.seed}/world/{name}", deaf=column.deaf)
            for name, said in scenario.others.items()
        }
        jitter = random.Random(f"{scenario.seed}/jitter")  # noqa: S311, TID251 - a driver makes its source
        redis = PlayedRedis(self.clock, scenario.redis, scenario.sidecars)
        terms, policies = column.redis, (column.policy, *(policy for _, policy in column.others.values()))
        self._fleet = PlayedFleet(
            redis,
            timeout=terms.timeout,
            on_outage=terms.on_outage,
            seed=f"{scenario.seed}/redis",
            upstreams=frozenset(each.upstream for each in policies if _is_shared(each)),
        )
        self._open, self._all_begun = 0, False
        self._sidecars = [
            _Sidecar(column, self._fleet, Env(jitter, 0.0, WaitingRoom(column.waiting)))
            for _ in range(scenario.sidecars)
        ]
        self.watched: deque[tuple[float, _Simulated]] = deque()

    def play(self) -> Played:
        """Play from the first call's beginning to the last one's end."""
        self._fleet.redis.begin()
        self._await_next()
        self._await_visit()
        versions = Counter[int]()  # by key, of the values that a rotation has named so far, but for the first one
        for rotation in self.scenario.rotations:
            versions[rotation.key] += 1
            version, at = 1 + versions[rotation.key], rotation.at + rotation.file_after
            for sidecar in self._sidecars:
                file = _file_of(sidecar.policy, rotation.key)
                if file is not None:
                    self.clock.at(at, ALARM, sidecar.keys.rotate, file.path, self.clock, version)
        self.clock.at(_SWEEP, BEGIN, self._sweep)
        self.clock.run()
        self.played.requests, self.played.longest_pushback = self.world.requests, self.world.longest_pushback
        self.played.scripts = self._fleet.redis.scripts
        self.played.refused = self.world.refused
        return self.played

    def _await_next(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self.clock.at(arrival[0], BEGIN, self._arrive, arrival)
        else:
            self._all_begun = True
            self._end_fleet()

    def _end_fleet(self) -> None:
        """End the sidecars once the last call is over: until then they report to Redis."""
        if self._all_begun and not self._open:
            self._fleet.end()

    def _arrive(self, arrival: Arrival) -> None:
        now = self.clock.now
        self._open += 1
        self._await_next()
        _, number, key, route, _, app = arrival
        sidecar = self._sidecars[number]
        self.played.begun[int(now)] += 1
        if self.played.by_app:
            self.played.by_app[app].begun += 1
        driver = self._driver(self, sidecar, arrival)
        request = self._requests[app][route][key]
        if self._numbered and self._numbered[route]:
            request = self._number(request)
        call = Call(request, sidecar.policy, sidecar.scope, sidecar.env, driver.set_alarm, sidecar.why_not)
        driver.expect(call, sidecar.policy, sidecar.scope)
        driver.begin(call)
        if self._patience is not None:
            self.clock.at(now + self._patience, DEADLINE, driver.go_away)

    def _number(self, request: Request) -> Request:
        """The request with the number of its call in its path."""
        self._calls += 1
        path = request.path.replace(_NUMBER, str(self._calls))
        made = Request(request.method, request.authority, path, request.fields, request.plain, request.timed)
        made.app = request.app
        return made

    def _await_visit(self) -> None:
        at = next(self._visits, None)
        if at is not None:
            self.clock.at(at, BEGIN, self._visit)

    def _visit(self) -> None:
        """Let one request of a neighbour, a client without redrive, come to the upstream and take capacity there."""
        self.world.neighbour(self.clock.now)
        self._await_visit()

    def _sweep(self) -> None:
        for deadline, driver in self.watched:
            if driver.finished is None:
                Driver.watch(driver, deadline)
        self.watched.clear()
        self._report(self.clock.now)
        if self.clock.now < self.scenario.duration:
            self.clock.at(self.clock.now + _SWEEP, BEGIN, self._sweep)

    def over(self, driver: _Simulated) -> None:
        """Count the call of this driver, which has ended."""
        played, began = self.played, driver.began
        assert driver.outcome is not None
        played.attempts += driver.call.so_far.attempts
        played.outcomes[driver.outcome] += 1
        played.seconds.append(self.clock.now - began)
        if driver.outcome is Outcome.SUCCESS:
            played.succeeded[int(began)] += 1
            if played.by_app:
                played.by_app[driver.app].seconds.append(self.clock.now - began)
        del driver.call
        self._open -= 1
        self._end_fleet()


def _alone(scenario: Scenario, said: Other) -> Scenario:
    """The scenario `scenario`, changed to the abilities of another upstream, `said`, to which calls fall back. It has
    one endpoint, no outage and no limit.
    """
    can = {name: getattr(said, name) for name in ("latency", "failing", "capacity", "queue", "overload", "retry_after")}
    return replace(scenario, **can, slow=0.0, breaking=0.0, limit=None, tokens=None, endpoints=1, outages=(), routes=())


def _requests(column: Column, scenario: Scenario) -> list[list[list[Request]]]:
    """The scenario's requests, as lists in lists: by app, by route, and by API key (all apps use the same keys)."""
    apps: list[NamedApp | None] = [*column.apps] or [None] * max(1, len(scenario.apps))
    return [_requests_of(app, column, scenario) for app in apps]


def _requests_of(app: NamedApp | None, column: Column, scenario: Scenario) -> list[list[Request]]:
    asked = column.request
    places = [(route.method, route.path) for route in scenario.routes] or [(asked.method, asked.path)]
    fields: list[Fields] = [asked.fields]
    if scenario.keys > 1:
        fields = [MappingFields([("authorization", f"Bearer {key}")]) for key in range(scenario.keys)]
    found = [
        [Request(method, asked.authority, path, each, asked.plain, asked.timed) for each in fields]
        for method, path in places
    ]
    for request in chain(*found):
        request.app = app
    return found


def play(
    scenario: Scenario,
    column: Column,
    report: Callable[[float], None] = lambda now: None,
    ledger: Ledger | None = None,
) -> Played:
    """Play one column, a way to retry. `report` is called with the time in the scenario, every few seconds of it; each
    call and sending is noted in the `ledger`, if there is one.
    """
    return _Run(scenario, column, report, ledger).play()


def _file_of(policy: Policy, key: int) -> KeyFile | None:
    """The file that has the credential with this index, from 0; None if the policy has no such credential, or has it
    from no file.
    """
    credentials = policy.credentials
    return None if credentials is None or key >= len(credentials.files) else credentials.files[key]


def _is_shared(policy: Policy) -> bool:
    """Whether the policy keeps a bucket in Redis, so that a fleet shares what it finds out about the upstream."""
    refs = (*((policy.bucket,) if policy.bucket is not None else ()), *policy.rates)
    return any(is_shared(ref.spec) for ref in refs)
