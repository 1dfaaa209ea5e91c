"""The time during which Redis is not available: when this process tries to reach Redis again, and how many tokens it
may spend meanwhile.

The setting `redis.on_outage` says how many: `share`, the part of the tokens that is this process's
(`proxy.stores.redis.members`); `local`, as many as a bucket of the whole size has; `deny`, none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from proxy.stores.redis.share import NONE, WHOLE, Share

#: The texts in place of figures while they decide nothing: under `deny`, and in a process that has no share.
WITHHELD = "Redis does not answer, and redis.on_outage is deny"
NO_SHARE = "Redis does not answer, and this process, which is new, has no share yet"

OnOutage = Literal["share", "local", "deny"]

#: Seconds between tries while Redis is out: the first pause, and the longest. If Redis was back for less than _STEADY
#: seconds, the pauses go on from where they were: an unstable Redis is not reported ten times a second.
_AGAIN, _SELDOM, _STEADY = 0.1, 1.0, 10.0

#: Seconds over which the processes of a fleet connect again if all connections end at one time: for each, and the most.
_SPREAD, _MOST_SPREAD = 0.0005, 1.0


class Absence:
    """The outages of one Redis. `draw` returns a random number from [0, 1), so that many processes try again at
    different times.
    """

    def __init__(self, on_outage: OnOutage, draw: Callable[[], float]) -> None:
        self.on_outage = on_outage
        self.count = 0
        #: The time of the next try to reach Redis.
        self.next_try = -math.inf
        #: The time at which a connection that has ended is made again.
        self.mends_at = math.inf
        self._draw = draw
        self._tries = 0
        #: The time at which the outage began that is reported and not over; None for none.
        self.since: float | None = None
        self._back_at = -math.inf

    def cut(self, now: float, crowd: int) -> None:
        """Note that the connection has ended, and set the time at which a new connection is made. `crowd`: the number
        of processes of the fleet; the more there are, the longer the time over which their new connections are spread.
        """
        self.mends_at = now + self._draw() * min(_MOST_SPREAD, crowd * _SPREAD)

    def failed(self, now: float, *, begins: bool) -> None:
        """Note that Redis did not answer, and set the time of the next try. Each failure doubles the pause before the
        next try, up to a bound; the pause of this process is a random time between half of that and all of it.
        `begins`: an outage begins with this failure.
        """
        if begins:
            if now - self._back_at > _STEADY:
                self._tries = 0
            if self.since is None:
                self.since = now
                self.count += 1
        pause = min(_SELDOM, _AGAIN * 2 ** min(self._tries, 10))
        self._tries += 1
        self.next_try = now + pause * (0.5 + 0.5 * self._draw())

    def ended(self, now: float) -> float:
        """Note that Redis answered. Returns the seconds that the outage lasted."""
        self._back_at = now
        since, self.since = self.since, None
        return 0.0 if since is None else now - since

    def share(self, of_fleet: Share) -> Share:
        """The part of the fleet's tokens that this process may spend in an outage. `of_fleet`: its share as a member of
        the fleet.
        """
        if self.on_outage == "deny":
            return NONE
        return WHOLE if self.on_outage == "local" else of_fleet

    def withholds(self, share: Share) -> str:
        """The reason why a process with this share of the fleet's tokens is granted none during an outage; "" if it is
        granted some. This method does not check whether there is an outage.
        """
        return "" if share.of else WITHHELD if self.on_outage == "deny" else NO_SHARE

    def in_words(self, share: Share) -> str:
        """Say, in words for the operator, how buckets are decided during the outage by a process with this share."""
        if share.of > 1:
            return f"go on with 1/{share.of} of their tokens in this process"
        if share.of:
            return "carry on by themselves"
        if self.on_outage == "share":
            return "grant nothing, because this process has no share yet: it is new"
        return "grant nothing"
