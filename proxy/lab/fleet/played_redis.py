"""A simulated Redis server: its keys, scripts, outages and messages on channels, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from proxy.lab.clock import UPSTREAM, Clock
from proxy.lab.fleet.budget import BudgetKey
from proxy.lab.fleet.members import MembersKey
from proxy.lab.fleet.places import PlacesKey
from proxy.lab.fleet.rate import RateKey
from proxy.lab.fleet.tokens import TokensKey
from proxy.lab.fleet.weather import WeatherKey
from proxy.lab.simulate.weather import RedisOutage, SimulatedRedis
from proxy.stores.redis.bucket import Command

_AnyKey = TokensKey | RateKey | BudgetKey | MembersKey | PlacesKey | WeatherKey

_KINDS: dict[str, type[_AnyKey]] = {
    "tokens": TokensKey,
    "rate": RateKey,
    "budget": BudgetKey,
    "members": MembersKey,
    "places": PlacesKey,
    "weather": WeatherKey,
}


#: The part of a fact's time that makes it known already: a sidecar that knows the fact for so long is not told again.
_ALIKE = 0.9


class Connected(Protocol):
    """A sidecar's connection to the played Redis."""

    def called(self, key: str) -> None:
        """Report on the rate of this key soon, because another sidecar needs some of this one's part."""

    def cut(self) -> None:
        """Note that the connection has ended."""

    def heard(self, channel: str, message: bytes) -> None:
        """Take in a message of a channel."""


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
        self._keys: dict[str, _AnyKey] = {}
        #: The facts for all sidecars, by the names of their hash and field: when each ends, and its further words.
        self._published: dict[str, dict[bytes, tuple[float, str]]] = {}
        self._connected: dict[str, Connected] = {}

    def connect(self, holder: str, sidecar: Connected) -> None:
        """Connect a sidecar, which the scripts know by the name `holder`; the first to connect is number 0."""
        self._connected[holder] = sidecar

    def begin(self) -> None:
        """Schedule the outages."""
        for each in self._outages:
            if each.kind == "gone":
                self.clock.at(each.at, UPSTREAM, self._end_connections, each)
            if each.empty:
                self.clock.at(each.until, UPSTREAM, self._keys.clear)
                self.clock.at(each.until, UPSTREAM, self._published.clear)

    def outage(self, sidecar: int, now: float) -> RedisOutage | None:
        """The outage that the sidecar of this number has at the time `now`; None for none."""
        for each in self._outages:
            if each.at <= now < each.until and self._has(each, sidecar):
                return each
        return None

    def run(self, script: str, key: str, words: Sequence[Any]) -> list[Any]:
        """Run the script called `script` now for the key `key`, with the arguments `words`, and return its reply."""
        self.scripts += 1
        found = self._keys.get(key)
        if found is None or found.expires < self.clock.now:
            found = self._keys[key] = _KINDS[script]()
        return found.run(words, self.clock.now, lambda holder: self._call(holder, key))

    def publish(self, command: Command) -> None:
        """Run `cooldown.lua` or `news.lua` now: keep the fact while it lasts, and send it to all sidecars."""
        self.scripts += 1
        now, facts = self.clock.now, self._published.setdefault(command.key, {})
        words = [str(each) for each in command.arguments]
        if command.script == "cooldown":
            place, group, channel, status, delay = words
            field, until = f"{place} {group}".encode(), now + float(delay)
            if field in facts and facts[field][0] >= until:
                return
            facts[field] = until, f" {status}"
            message = f"{place} {group} {status} {float(delay):.6f}"
        else:
            name, channel, delay = words
            field, seconds = name.encode(), float(delay)
            if seconds > 0:
                if field in facts and facts[field][0] >= now + seconds * _ALIKE:
                    return
                facts[field] = now + seconds, ""
            elif facts.pop(field, None) is None:
                return
            message = f"{name} {seconds:.6f}"
        for each in self._connected.values():
            self.clock.at(now + self.latency, UPSTREAM, each.heard, channel, message.encode())

    def published(self, key: str) -> dict[bytes, bytes]:
        """The hash at `key`, in which the sidecars' cooldowns or news are kept, as Redis would return it: its fields
        and values, without those that have expired.
        """
        known = self._published.get(key, {}).items()
        return {field: f"{until:.6f}{more}".encode() for field, (until, more) in known if until > self.clock.now}

    def _has(self, outage: RedisOutage, sidecar: int) -> bool:
        return sidecar < round(outage.share * self._sidecars)

    def _end_connections(self, outage: RedisOutage) -> None:
        for number, each in enumerate(self._connected.values()):
            if self._has(outage, number):
                each.cut()

    def _call(self, holder: str, key: str) -> None:
        sidecar = self._connected.get(holder)
        if sidecar is not None:
            self.clock.at(self.clock.now + self.latency, UPSTREAM, sidecar.called, key)
