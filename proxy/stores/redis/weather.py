"""The limit and the outage of one lane that a fleet shares: a limit or an outage that one process finds holds the calls
of all processes.

A process that finds a limit or an outage, or finds that it is over, reports that at once, and the others are notified
(`proxy.stores.redis.news`). Redis keeps the number of the fleet's places, and divides them by what each process wants.
Redis also lends the right to send probes to one process at a time. A process that holds calls, or whose attempts have
places, reports some four times a second, in a fleet of thousands less often; a process that neither holds nor sends
calls reports every few seconds. If Redis is not available, each process goes on with its part of the places, and sends
probes by itself.

The limits by which calls return from a cooldown are shared by `proxy.stores.redis.cooldown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lane_in_fleet import go_alone_in_weather, limit_elsewhere, outage_elsewhere
from proxy.stores.redis.bucket import HOLD_LEAST, PAUSE_EACH, RedisBucket, Store, hold_pause

#: Seconds between reports of a process that holds calls or has attempts under way (in large fleets: `hold_pause`), and
#: of one that does neither.
OFTEN, SELDOM = HOLD_LEAST, 5.0
#: The most seconds between reports of the process that sends an outage's probes.
_PROBING_PAUSE = 0.5
#: Seconds between two reports if something has happened.
_PROMPT = 0.05
#: Seconds for which the fleet is told of a limit or an outage that begins, for processes that start later.
_TOLD = 600.0


class RedisWeather(RedisBucket):
    """This process's part of a lane's limit and outage. `tell`: notifies the other processes, which then ask Redis
    about the lane. Its argument is the number of seconds for which processes that start later are notified as well; 0
    if limit and outage are over.
    """

    script = "weather"

    def __init__(self, lane: Lane, governor: Governor, store: Store, key: str, tell: Callable[[float], None]) -> None:
        self._lane = lane
        self._governor = governor
        self._tell = tell
        self._knows = False  # this lane was reported, or another process has told of it
        self._applies = False  # a reply is being applied to the lane, which is no news
        self._news = _News()  # what has happened since the last message
        self._said: _News | None = None  # what the last message says has happened
        self._grown = 0.0  # the limit's `grown` in the last message
        self._wanting = False  # the last message said that this process wants places
        self._limited = self._out = False  # the fleet has a limit, an outage, as far as was heard
        self._making = ""  # the making of the key in Redis whose limit and outage these are
        self.hold(store, key, None)
        lane.fleet.link = self

    # -- for the lane (`proxy.retry.weather.cooldown.FleetLane`) -------------------------------------------------------

    def limit_began(self, now: float) -> None:
        """Report that a limit has begun, as attempts of this process show."""
        if not self._applies:
            self._news.limit_began, self._news.limit_over = True, False
            self._tell(_TOLD)
            self._report_news(now)

    def limit_over(self, now: float) -> None:
        """Report that the limit is over."""
        if not self._applies and (self._limited or self._news.limit_began):
            self._news.limit_over, self._news.limit_began = True, False
            self._tell(0.0)
            self._report_news(now)

    def limit_cut(self, part: float, sent: float, now: float) -> None:
        """Report that an attempt sent at `sent` was refused or slow, so that the limit is multiplied by `part` (below
        1).
        """
        if not self._applies:
            self._news.cut, self._news.cut_sent = self._news.cut * part, sent
            self._report_news(now, self._cut_pause)

    def outage_began(self, now: float) -> None:
        """Report that an outage has begun, as attempts of this process show."""
        if not self._applies:
            self._news.outage_began, self._news.outage_over = True, False
            self._tell(_TOLD)
            self._report_news(now)

    def outage_over(self, now: float) -> None:
        """Report that an attempt was answered, so that the outage is over."""
        if not self._applies:
            self._news.outage_over, self._news.outage_began = True, False
            self._lane.fleet.limit_share = 1.0  # until Redis has divided the places
            self._tell(_TOLD)
            self._report_news(now)

    def held(self, now: float) -> None:
        """Note that a call of this process is held, so that this process reports soon that it needs the fleet's limit
        or outage.
        """
        if self._knows and not self.store.out:
            self._soon(max(now, self._sent_at + self._pause) if self._wanting else now)

    def look(self, now: float) -> None:
        """Ask Redis for the state of the lane, because another process has changed it."""
        self._knows = True
        if not self.store.out:
            self._soon(now + self.store.turn)

    def report_in_force(self, now: float) -> None:
        """Report the limit or the outage that the lane had before it was shared."""
        if self._lane.limit.is_on and not self._lane.limit.returns:
            self.limit_began(now)
        if self._lane.outage.is_on:
            self.outage_began(now)

    # -- for the store ----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        super().leave()
        if self._lane.fleet.link is self:
            self._lane.fleet.link = None

    def puts_off(self, at: float, now: float) -> bool:
        return not self._knows

    def part(self, now: float) -> None:
        """Go on without Redis: with this process's part of the limit, and with probes of its own."""
        self._limited = self._out = False
        if not self._leaving and self._knows:
            lane = self._lane
            self._apply(lambda: lane.change(lambda: go_alone_in_weather(lane, now), now), now)

    def unheard(self, now: float) -> None:
        if self._said is not None:
            self._news.add(self._said)
            self._said = None
        super().unheard(now)

    def _report_news(self, now: float, pause: float = _PROMPT) -> None:
        self._knows = True
        if not self.store.out:
            self._soon(max(now, self._sent_at + pause))

    def _wanted(self) -> int:
        lane = self._lane
        return 0 if self._leaving or lane.limit.returns else lane.places.own_in_use() + len(lane.queue)

    def _report(self, now: float) -> Iterable[float | None]:
        lane, news = self._lane, self._news
        self._said, self._news = news, _News()
        limit, outage = lane.limit, lane.outage
        is_own = limit.is_on and not limit.returns
        self._grown = limit.grown
        if self.store.out or self._made == "":  # what this process knows is news to Redis
            news.limit_began = news.limit_began or (is_own and self._knows and not news.outage_over)
            news.outage_began = news.outage_began or outage.is_on
        self._wanting = self._wanted() > 0
        under_way = lane.traffic.flying / 2
        own = max(under_way, min(limit.most, lane.fleet.limit_share, 1e6)) if news.limit_began and is_own else under_way
        return (
            *(news.limit_began, news.limit_over, news.outage_began, news.outage_over),
            *(own, news.cut, max(0.0, now - news.cut_sent) if news.cut < 1 else 0.0, limit.grown),
            *(self._wanted(), 0 if self._leaving or limit.returns else len(lane.queue)),
            *(now - outage.since if outage.is_on else 0.0, min(1e9, now - outage.probed_at), self._leaving),
            hold_pause(OFTEN, self.store.crowd),
            min(1e9, now - lane.traffic.served_at),
        )

    def _learn(self, values: list[float], now: float) -> None:
        self._said = None
        if not self._leaving:
            self._apply(lambda: self._take(values, now), now)

    def _take(self, values: list[float], now: float) -> None:
        most, threshold, share, queued, wanted, since_age, probe_age, may_probe, served_age = values
        lane, news = self._lane, self._news
        if served_age >= 0:  # by whichever process: what refuses all calls now is then not just a wrong address
            lane.traffic.served_at = max(lane.traffic.served_at, now - served_age)
        was_limited, was_out = self._limited, self._out
        self._limited, self._out = most > 0, since_age >= 0
        lost, self._making = self._making not in ("", self._made), self._made
        if lost:  # Redis has lost what it knew
            news.limit_began = news.limit_began or (lane.limit.is_on and not lane.limit.returns)
            news.outage_began = news.outage_began or lane.outage.is_on
        if self._out and not news.outage_over:
            outage = now - since_age, now - probe_age, may_probe > 0
            lane.change(lambda: outage_elsewhere(lane, *outage, now), now)
        elif was_out and lane.outage.is_on and not news.outage_began:
            lane.fleet.limit_share = 0.0
            lane.fleet.may_probe = True
            lane.answered(now)
        if lane.limit.is_on and lane.limit.returns:
            return
        if self._limited and not news.limit_over and not lane.outage.is_on:
            busy = queued > 0 or 2 * (wanted + self._wanted()) >= most
            more = lane.limit.grown - self._grown if lane.limit.is_on else 0.0
            limit = (most + more) * news.cut, share, threshold if threshold >= 0 else math.inf
            lane.change(lambda: limit_elsewhere(lane, *limit, busy, queued > 0, now), now)
        elif was_limited and not self._limited and lane.limit.is_on and not news.limit_began:
            lane.end_limit(now)

    def _apply(self, change: Callable[[], object], now: float) -> None:
        self._applies = True
        try:
            change()
        finally:
            self._applies = False
        self._governor.lanes.look((self._lane,), now)

    def _plan(self, now: float) -> None:
        lane = self._lane
        if self._leaving:
            return
        if self._news.any:
            self._soon(now + (_PROMPT if self._news.turns else self._cut_pause))
        elif self._limited or self._out or lane.limit.is_on or lane.outage.is_on:
            self._soon(now + (self._pause if self._wanted() else SELDOM))

    @property
    def _pause(self) -> float:
        """The seconds between reports while this process holds calls or has attempts under way. The process that sends
        an outage's probes has the right to do so for a second, and reports before Redis lends that right to another
        process.
        """
        pause = hold_pause(OFTEN, self.store.crowd)
        return min(pause, _PROBING_PAUSE) if self._out and self._lane.fleet.may_probe else pause

    @property
    def _cut_pause(self) -> float:
        """The seconds between this process's reports that attempts were refused or slow. Waiting loses nothing: the
        first such report cuts the fleet's limit, and later ones about attempts sent before that cut change nothing.
        """
        crowd = self.store.crowd
        return hold_pause(max(_PROMPT, min(OFTEN, PAUSE_EACH * crowd)), crowd)


class _News:
    """The events in a lane since its last message. `cut`: the part of the limit (1 for all) that is left after
    refusals; `cut_sent`: when the attempt was sent that was refused last (seconds).
    """

    __slots__ = ("cut", "cut_sent", "limit_began", "limit_over", "outage_began", "outage_over")

    def __init__(self) -> None:
        self.limit_began = self.limit_over = self.outage_began = self.outage_over = False
        self.cut, self.cut_sent = 1.0, -math.inf

    @property
    def turns(self) -> bool:
        """Whether a limit or an outage has begun or ended since the lane's last message."""
        return self.limit_began or self.limit_over or self.outage_began or self.outage_over

    @property
    def any(self) -> bool:
        """Whether anything has happened since the lane's last message that has to be reported."""
        return self.turns or self.cut < 1

    def add(self, earlier: _News) -> None:
        """Add the events of `earlier`, which is older than these and could not be reported."""
        self.limit_began = self.limit_began or (earlier.limit_began and not self.limit_over)
        self.limit_over = self.limit_over or (earlier.limit_over and not self.limit_began)
        self.outage_began = self.outage_began or (earlier.outage_began and not self.outage_over)
        self.outage_over = self.outage_over or (earlier.outage_over and not self.outage_began)
        self.cut, self.cut_sent = self.cut * earlier.cut, max(self.cut_sent, earlier.cut_sent)
