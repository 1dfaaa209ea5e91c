"""The cooldowns, limits and outages of upstreams' scopes that a process shares with its fleet.

A cooldown that a call of this process starts is published. A cooldown that another process publishes holds the calls of
this process too, and never shortens one that this process has already. There is no I/O here, and time is an argument:
the messages are carried by a real store, or by a simulated one (`proxy.lab.fleet`).
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from proxy.retry.scopes.registry import MOST_SCOPES
from proxy.retry.weather.caller import Name
from proxy.retry.weather.cooldown import MOST_GROUPS, CooldownBegan, Ends
from proxy.retry.weather.governor import Governor
from proxy.stores.redis.bucket import Link, space
from proxy.stores.redis.cooldown import RedisCooldown, read
from proxy.stores.redis.news import FleetNews


class Heard:
    """Cooldowns that began on other machines, for a scope that no call of this process has used: by lane, their ends
    and statuses. If there are too many lanes, the one whose cooldown ends first is dropped, as in a governor.
    """

    __slots__ = ("_ends", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[Name, tuple[float, int]] = {}
        self._ends: Ends[Name] = Ends()

    def note(self, name: Name, until: float, status: int) -> None:
        """Note that a cooldown of this lane began after an answer with this status, and holds calls until `until`. Of
        two cooldowns of a lane, the one that ends later is kept.
        """
        known = self.lanes.get(name)
        if known is None:
            if len(self.lanes) >= MOST_GROUPS and (first := self._ends.pop(self._until_of)) is not None:
                del self.lanes[first[1]]
            self._ends.add(name, until)
        if known is None or until > known[0]:
            self.lanes[name] = until, status

    def _until_of(self, name: Name) -> float | None:
        known = self.lanes.get(name)
        return None if known is None else known[0]


class FleetScopes:
    """The scopes of a process's upstreams, as it shares them with its fleet. `news`: carries the messages about limits
    and outages; `in_force`: the Redis hash of the cooldowns in force; `channel`: the channel on which new cooldowns are
    published.
    """

    def __init__(self, store: Link, prefix: str, news: FleetNews, clock: Callable[[], float]) -> None:
        self.in_force, self.channel = f"{space(prefix)}{{cooldowns}}", f"{space(prefix)}cooldowns"
        self._store = store
        self._news = news
        self._clock = clock
        self._governors: OrderedDict[str, tuple[str, Governor]] = OrderedDict()  # by the scope's name in the fleet
        self._tells: dict[str, Callable[[str, float], None]] = {}  # by upstream: tells the fleet of its weather
        self._fleets: WeakValueDictionary[str, RedisCooldown] = WeakValueDictionary()  # by the scope's name, too
        self._heard: OrderedDict[str, Heard] = OrderedDict()  # for scopes that are not used here yet
        #: Called with each cooldown that began on another machine and holds calls here.
        self.heard: Callable[[CooldownBegan], None] = lambda began: None

    def share(self, governor: Governor, upstream: str, value: str) -> None:
        """Share what `governor`, that of the scope of `upstream` with the scope value `value`, finds out. If the fleet
        has a cooldown in force for the scope, the governor holds calls by it from the start.
        """
        place = name_of(upstream, value)
        self._governors[place] = upstream, governor
        if len(self._governors) > MOST_SCOPES:
            self._governors.popitem(last=False)
        tell = self._tells.get(upstream)
        if tell is None:
            tell = self._tells[upstream] = self._news.join("weather", upstream, self._hear_weather)
        fleet = RedisCooldown(governor, place, self._store, self.in_force, self.channel, tell)
        governor.lanes.join(fleet)
        self._fleets[place] = fleet
        for item in self._news.known("weather", upstream):
            if item.startswith(f"{place}."):
                self._hear_weather(item, 0.0)
        heard = self._heard.pop(place, None)
        for name, (until, status) in heard.lanes.items() if heard is not None else ():
            self._hold(upstream, governor, name, until, status)
        fleet.report_in_force(self._clock())

    def share_no_more(self, upstream: str) -> None:
        """Forget the governors of this upstream, which the fleet shares no more."""
        for place in [place for place, (of, _) in self._governors.items() if of == upstream]:
            del self._governors[place]
        self._tells.pop(upstream, None)

    def forget(self, upstream: str, value: str) -> None:
        """Forget the governor of the scope of `upstream` with the scope value `value`. Cooldowns of the scope that
        begin elsewhere from now on are kept as those of a scope that no call has used.
        """
        self._governors.pop(name_of(upstream, value), None)

    def hear(self, message: bytes) -> None:
        """Take in a message of the channel: a cooldown that begins."""
        place, group, status, delay, *_ = message.decode().split()  # a later release may add words
        self._begin(place, group, status, float(delay))

    def hear_all(self, known: Mapping[bytes, bytes], server: float) -> None:
        """Take in the cooldowns that Redis keeps. `known`: by the fields of the hash (scope and lane), the end of each
        on the clock of Redis (seconds) and the status that began it, separated by a space; `server`: what that clock
        says now.
        """
        for field, value in known.items():
            place, group, *_ = field.decode().split()
            until, status, *_ = value.decode().split()
            self._begin(place, group, status, float(until) - server)

    def _hear_weather(self, what: str, seconds: float) -> None:
        """Ask Redis about a lane, because another process has found that a limit or an outage begins or is over. `what`
        is the name of the scope in the fleet, a dot, and the lane's name as `written`; `seconds` is not used.
        """
        place, _, name = what.partition(".")
        fleet = self._fleets.get(place)
        if fleet is not None:
            fleet.look(read(name), self._clock())

    def _begin(self, place: str, group: str, status: str, delay: float) -> None:
        """Take over a cooldown that began on another machine. `place` is the name of its scope in the fleet, `group`
        its lane's name as `written`, `status` that of the answer that began it, and `delay` the seconds that are left.
        """
        if delay <= 0 or not math.isfinite(delay):
            return
        known, name, until = self._governors.get(place), read(group), self._clock() + delay
        if known is not None:
            self._hold(*known, name, until, int(status))
            return
        self._heard.setdefault(place, Heard()).note(name, until, int(status))
        if len(self._heard) > MOST_SCOPES:
            self._heard.popitem(last=False)

    def _hold(self, upstream: str, governor: Governor, name: Name, until: float, status: int) -> None:
        now = self._clock()
        if until > now and governor.lanes.started_elsewhere(name, status, until - now, now):
            # No call of this process caused it.
            self.heard(CooldownBegan(upstream, "", name[1], status, "", until - now, now, "", "", 0, name[0], 0))


def name_of(*key: object) -> str:
    """The name by which the fleet knows an object, a scope for example, from the object's key in the registry."""
    return hashlib.blake2b(repr(key).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
