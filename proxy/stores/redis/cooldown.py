"""A cooldown in Redis: it is reported to the other machines, and its slow start, in which a growing number of held
calls may be under way ("places"), is shared by the fleet.

A cooldown belongs to an upstream and a scope value; its groups of callers cool down separately. The number of places by
which a group returns is one for the whole fleet, kept by Redis; each process that holds calls has its share of it.
Every PROMPT seconds while it holds any, a process reports how many places it added and how many it would use, and is
given its share. If Redis is not available, each process has a slow start of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proxy.retry.cooldown import Cooldown
from proxy.retry.slow_start import SlowStart
from proxy.stores.redis.bucket import FRESH, PROMPT, RedisBucket
from proxy.stores.redis.client import Command
from proxy.stores.redis.store import RedisStore


class RedisCooldown:
    """Reports one scope's cooldown to the fleet (`proxy.retry.cooldown.FleetCooldowns`). `place` is the scope's name in
    the fleet; the hash `key` contains the cooldowns in force, `channel` publishes those that begin.
    """

    def __init__(self, cooldown: Cooldown, place: str, store: RedisStore, key: str, channel: str) -> None:
        self._cooldown = cooldown
        self._place = place
        self._store = store
        self._key, self._channel = key, channel
        self._groups: dict[bytes, RedisPlaces] = {}

    def adopt(self, name: bytes, group: SlowStart) -> None:
        made = RedisPlaces(group, self._cooldown, self._store, f"{self._key}:{self._place}:{name.hex()}")
        self._store.add(made)
        self._groups[name] = made

    def forget(self, name: bytes) -> None:
        places = self._groups.pop(name, None)
        if places is not None:
            places.leave()

    def began(self, name: bytes, status: int, delay: float, *, sent: float, now: float) -> None:
        self._groups[name].report_pushback(sent, delay, now)
        said = self._place, name.hex(), self._channel, str(status), repr(delay)
        self._store.send(Command("cooldown", self._key, said))

    def asked(self, name: bytes, now: float) -> None:
        self._groups[name].asked(now)


class RedisPlaces(RedisBucket):
    """This process's share of the fleet's places for one group of callers. A place lets a call of the group through
    during the slow start that ends a cooldown.
    """

    script = "places"

    def __init__(self, group: SlowStart, cooldown: Cooldown, store: RedisStore, key: str) -> None:
        self._group = group
        self._cooldown = cooldown
        # A pushback that is to be reported: when its attempt was sent, and its delay.
        self._word: tuple[float, float] | None = None
        self._in_report: tuple[float, float] | None = None  # the one that the last message reports
        self._grown = 0.0  # the group's `grown` in the last message
        self._wanted = 0  # the places that it said this process would use
        self.hold(store, key, None)
        group.share = math.inf if store.out else 0.0

    def report_pushback(self, sent: float, delay: float, now: float) -> None:
        """Report a pushback to the fleet: the answer to an attempt sent at `sent` asked for a delay of `delay`
        seconds.
        """
        self._word = sent, delay + now - sent
        self.store.soon(self, now)

    def asked(self, now: float) -> None:
        """Note that calls of the group wait for places or use them, in this process or elsewhere, so that this process
        asks Redis for its share of places.
        """
        if not self._wanted and self._group.wanted():
            self._soon(now)
        elif self._group.elsewhere:
            self._soon(max(now + FRESH, self._group.until))

    def part(self, now: float) -> None:
        """Go on without Redis, with a slow start of this process alone."""
        self._word = None
        if not self._leaving:
            self._group.go_alone(now)
            self._cooldown.allotted(self._group)

    def _report(self, now: float) -> Iterable[float | None]:
        group, word = self._group, self._word
        self._in_report, self._grown = word, group.grown
        self._wanted = 0 if self._leaving else group.wanted()
        age, delay = (None, 0.0) if word is None else (now - word[0], word[1])
        queued = 0 if self._leaving else len(group.queue)
        return age, delay, group.grown, self._wanted, group.places, group.place_seconds, queued

    def _learn(self, values: list[float], now: float) -> None:
        if self._word is not self._in_report:
            return  # another pushback arrived meanwhile
        self._word = None
        if self._leaving:
            return
        places, share, threshold, others = values
        more = self._group.grown - self._grown
        self._group.allot(places + more, share, threshold if threshold >= 0 else math.inf, others > 0, now)
        self._cooldown.allotted(self._group)

    def _plan(self, now: float) -> None:
        if self._word is not None:
            self._soon(now)
        elif self._leaving:
            return
        elif self._wanted or self._group.wanted():
            self._soon(now + PROMPT)
        elif self._group.elsewhere:  # a new caller is held as long as any other caller is
            self._soon(max(now + FRESH, self._group.until))
