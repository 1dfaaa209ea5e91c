"""A Redis that is played: the keys, the scripts, the outages and the messages on channels, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.clock import UPSTREAM, Clock
from proxy.lab.fleet.budget import BudgetKey
from proxy.lab.fleet.members import MembersKey
from proxy.lab.fleet.rate import RateKey
from proxy.lab.fleet.tokens import TokensKey
from proxy.lab.simulate.weather import RedisOutage, SimulatedRedis

_KINDS: dict[str, type[TokensKey | RateKey | BudgetKey | MembersKey]] = {
    "tokens": TokensKey,
    "rate": RateKey,
    "budget": BudgetKey,
    "members": MembersKey,
}


class PlayedRedis:
    """A Redis for all sidecars of a simulation. An outage concerns a share of the sidecars, those with the lowest
    numbers. `scripts` counts those that were run.
    """

    def __init__(self, clock: Clock, weather: SimulatedRedis, sidecars: int) -> None:
        self.clock = clock
        self.latency = weather.latency
        self.scripts = 0
        self._outages = weather.outages
        self._sidecars = sidecars
        self._keys: dict[str, TokensKey | RateKey | BudgetKey | MembersKey] = {}
        self._called: dict[str, Callable[[str], None]] = {}
        self._cut: list[Callable[[], None]] = []

    def connect(self, holder: str, called: Callable[[str], None], cut: Callable[[], None]) -> None:
        """Connect a sidecar, which the scripts know by the name `holder`; the first to connect is number 0. `called` is
        given the key of a rate that the sidecar is to report on, and `cut` is called when the connection ends.
        """
        self._called[holder] = called
        self._cut.append(cut)

    def begin(self) -> None:
        """Schedule the outages."""
        for each in self._outages:
            if each.kind == "gone":
                self.clock.at(each.at, UPSTREAM, self._end_connections, each)
            if each.empty:
                self.clock.at(each.until, UPSTREAM, self._keys.clear)

    def outage(self, sidecar: int, now: float) -> RedisOutage | None:
        """The outage that the sidecar of this number has at the time `now`; None for none."""
        for each in self._outages:
            if each.at <= now < each.until and self._has(each, sidecar):
                return each
        return None

    def run(self, script: str, key: str, words: Sequence[Any]) -> list[Any]:
        """Run a script now for this key, with the arguments `words`, and return its reply."""
        self.scripts += 1
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = _KINDS[script]()
        return found.run(words, self.clock.now, lambda holder: self._call(holder, key))

    def _has(self, outage: RedisOutage, sidecar: int) -> bool:
        return sidecar < round(outage.share * self._sidecars)

    def _end_connections(self, outage: RedisOutage) -> None:
        for number, cut in enumerate(self._cut):
            if self._has(outage, number):
                cut()

    def _call(self, holder: str, key: str) -> None:
        called = self._called.get(holder)
        if called is not None:
            self.clock.at(self.clock.now + self.latency, UPSTREAM, called, key)
