"""A cooldown in Redis: it is reported to the other machines, and the fleet shares its slow start, in which a growing
number of held calls may be under way ("places").

A cooldown belongs to an upstream and a scope value; each of its lanes cools down separately. The number of places by
which the calls of a lane return is one number for the whole fleet, kept by Redis, and each process that holds calls has
its share of it. While a process holds calls, it reports every PROMPT seconds, in large fleets less often, how many
places it added and how many it would use, and is given its share. While the delay lasts no process has a place, and
each reports every few seconds. If Redis is not available, each process has a slow start of its own; it begins with the
process's share of the places that there were. A limit that begins because attempts are refused, and an outage, are
shared in the same way (`proxy.stores.redis.weather`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import partial

from proxy.retry.weather.caller import Name, is_fleets
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane import Lane, retime_all
from proxy.retry.weather.lane_in_fleet import allot, go_alone, wanted
from proxy.stores.redis.bucket import FRESH, HOLD_LEAST, PAUSE_EACH, PROMPT, Command, Link, RedisBucket, hold_pause
from proxy.stores.redis.weather import RedisWeather

#: The end of the name of a lane that is about one path (`proxy.retry.weather.caller`): a method, and the path. No other
#: machine is told of it, since a path may be a secret.
_OF_A_PATH = re.compile(rb" [A-Z]+ /\S*\Z")
#: The most seconds between reports while the delay lasts; and the pauses between reports after which a process that is
#: silent has lost its rank.
SELDOM, _SILENCES = 4.0, 3
#: Seconds by which the attempt counts as older whose answer began a cooldown that is reported only later.
_BEFORE = 1.0
#: The beginning of the name of an endpoint's lane: longer than the groups of callers (12 bytes at most) are.
_ENDPOINT = b"at endpoint "


def written(name: Name) -> str:
    """A lane's name as Redis and the other machines read it: in hexadecimal, its endpoint and its group of callers; the
    group alone if the lane is for the upstream as a whole.
    """
    endpoint, group = name
    label = endpoint.encode("utf-8", "surrogateescape")
    return (_ENDPOINT + label + b"\0" + group if label else group).hex()


def read(text: str) -> Name:
    """A lane's name, from what `written` made of it."""
    name = bytes.fromhex(text)
    if not name.startswith(_ENDPOINT):
        return "", name
    label, _, group = name[len(_ENDPOINT) :].partition(b"\0")
    return label.decode("utf-8", "surrogateescape"), group


class RedisCooldown:
    """The reports of one scope's cooldowns to the fleet (`proxy.retry.weather.cooldown.FleetCooldowns`). `place`: the
    name by which the fleet knows the scope; `key`: the Redis hash of the cooldowns in force; `channel`: the channel on
    which new cooldowns are published. `tell`: notifies the fleet that a lane's limit or outage has changed; its
    arguments are the names of scope and lane with a dot between them, and the seconds for which processes that start
    later are notified as well (`FleetNews.join`).
    """

    def __init__(
        self,
        governor: Governor,
        place: str,
        store: Link,
        key: str,
        channel: str,
        tell: Callable[[str, float], None],
    ) -> None:
        self._governor = governor
        self._place = place
        self._store = store
        self._key, self._channel = key, channel
        self._lanes: dict[Name, RedisPlaces] = {}
        self._tell = tell
        self._weathers: dict[Name, RedisWeather] = {}

    def adopt(self, name: Name, lane: Lane) -> None:
        if not _OF_A_PATH.search(name[1]):
            known = f"{self._place}.{written(name)}"
            where = f"{self._key}:weather:{self._place}:{written(name)}"
            weather = RedisWeather(lane, self._governor, self._store, where, partial(self._tell, known))
            self._store.add(weather)
            self._weathers[name] = weather
        if not is_fleets(name):
            return
        made = RedisPlaces(lane, self._governor, self._store, f"{self._key}:{self._place}:{written(name)}")
        self._store.add(made)
        self._lanes[name] = made

    def forget(self, name: Name) -> None:
        for each in (self._lanes.pop(name, None), self._weathers.pop(name, None)):
            if each is not None:
                each.leave()

    def look(self, name: Name, now: float) -> None:
        """Ask Redis for the limit and the outage of this lane, because another process has changed them."""
        self._governor.lanes.of(name)
        weather = self._weathers.get(name)
        if weather is not None:
            weather.look(now)

    def began(self, name: Name, status: int, delay: float, *, sent: float, now: float) -> None:
        self._lanes[name].report_pushback(sent, delay, now)
        said = self._place, written(name), self._channel, str(status), repr(delay)
        self._store.send(Command("cooldown", self._key, said))

    def asked(self, name: Name, now: float) -> None:
        self._lanes[name].asked(now)

    def part(self, now: float) -> None:
        for each in (*self._lanes.values(), *self._weathers.values()):
            each.part(now)
            each.leave()
            self._store.soon(each, -math.inf)

    def report_in_force(self, now: float) -> None:
        """Report to the fleet what holds calls in lanes that this process had before it shared them."""
        for name, lane in list(self._governor.lanes.by_name.items()):
            if lane.until > now and name in self._lanes:
                # As if its attempt was sent before: a cooldown that the fleet knows already is no other one.
                self.began(name, lane.status, lane.until - now, sent=lane.begun - _BEFORE, now=now)
            if name in self._weathers:
                self._weathers[name].report_in_force(now)
            retime_all(lane.queue, now)


class RedisPlaces(RedisBucket):
    """This process's share of the fleet's places for one lane. A place lets a call of the lane through
    during the slow start that ends a cooldown.
    """

    script = "places"

    def __init__(self, lane: Lane, governor: Governor, store: Link, key: str) -> None:
        self._lane = lane
        self._governor = governor
        # A pushback that is to be reported: when its attempt was sent, and its delay.
        self._word: tuple[float, float] | None = None
        self._in_report: tuple[float, float] | None = None  # the one that the last message reports
        self._grown = 0.0  # the limit's `grown` in the last message
        self._wanted = 0  # the places that it said this process would use
        self.hold(store, key, None)
        lane.fleet.share = math.inf if store.out else 0.0

    def report_pushback(self, sent: float, delay: float, now: float) -> None:
        """Report a pushback to the fleet: the answer to an attempt sent at `sent` asked for a delay of `delay`
        seconds.
        """
        self._word = sent, delay + now - sent
        self.store.soon(self, now)

    def asked(self, now: float) -> None:
        """Note that calls of the lane wait for places or use them, in this process or elsewhere, so that this process
        asks Redis for its share of places.
        """
        lane, turn = self._lane, self.store.turn
        if not self._wanted and wanted(lane):
            self._soon(now + turn if now + turn < lane.until else now)
        elif lane.fleet.elsewhere:
            self._soon(max(now + FRESH, lane.until + turn))

    def part(self, now: float) -> None:
        """Go on without Redis: the lane's slow start is now that of this process alone."""
        self._word = None
        if not self._leaving:
            lane = self._lane
            # What was heard before the delay was over is no share: the other processes had not asked for theirs yet.
            heard = lane.fleet.share if self.heard_at >= lane.until or lane.fleet.share == math.inf else 0.0
            share = max(heard, lane.limit.most / self.store.crowd)
            lane.change(lambda: go_alone(lane, share, now), now)
            self._governor.lanes.look((lane,), now)

    def _report(self, now: float) -> Iterable[float | None]:
        lane, word = self._lane, self._word
        self._in_report, self._grown = word, lane.limit.grown
        self._wanted = 0 if self._leaving else wanted(lane)
        age, delay = (None, 0.0) if word is None else (now - word[0], word[1])
        queued = 0 if self._leaving else len(lane.queue)
        places = lane.limit.most if lane.limit.returns and lane.limit.is_on else 1.0
        dead = max(lane.place_seconds, _SILENCES * self._pause)
        return age, delay, lane.limit.grown, self._wanted, places, dead, queued

    def _learn(self, values: list[float], now: float) -> None:
        if self._word is not self._in_report:
            return  # another pushback arrived meanwhile
        self._word = None
        if self._leaving:
            return
        places, share, threshold, others = values
        lane = self._lane
        places += lane.limit.grown - self._grown
        most = threshold if threshold >= 0 else math.inf
        lane.change(lambda: allot(lane, places, share, most, others > 0, now), now)
        self._governor.lanes.look((lane,), now)

    def _plan(self, now: float) -> None:
        if self._word is not None:
            self._soon(now)
        elif self._leaving:
            return
        elif self._wanted or wanted(self._lane):
            # No process has a place before the delay is over; and Redis knows already if this one wanted places.
            rest = min(self._lane.until - now, SELDOM) if self._wanted else 0.0
            self._soon(now + self._pause * max(1, math.ceil(rest / self._pause)))
        elif self._lane.fleet.elsewhere:  # a new caller is held as long as any other caller is
            self._soon(max(now + FRESH, self._lane.until + self.store.turn))

    @property
    def _pause(self) -> float:
        """Seconds between reports while this process holds calls, or has attempts with places."""
        crowd = self.store.crowd
        return hold_pause(max(PROMPT, min(HOLD_LEAST, 5 * PAUSE_EACH * crowd)), crowd)
