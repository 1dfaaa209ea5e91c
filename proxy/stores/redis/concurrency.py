"""This process's places under a limit on attempts under way (`concurrency: {max: N}`) that a fleet shares.

Redis leases places to the processes, at most N in all. A process uses the places that it leases without asking. When
they are not enough, it asks once for all its waiting calls, and is told of places as they become free
(`concurrency.lua` says how they are divided). So the number of messages grows with processes, not with calls. While a
process has places or waits for some, it reports every BEAT seconds, and sooner only if the number of places that it
needs changes: MOST times a second at most. In large fleets it reports less often (`bucket.hold_pause`), and places
change hands less often.

If Redis is not available, a process uses its share of the places: N divided by the number of processes of the fleet, at
least one; under `on_outage: local`, all N. Attempts that are under way when Redis becomes unavailable go on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.stores.redis.bucket import RedisBucket, Store, hold_pause

#: The most messages in any second; and seconds: if calls were added to those that wait, the next report comes so long
#: after. In a large fleet it is longer, and no two messages follow each other faster.
MOST, SPACED = 4, 0.25
#: Seconds between reports of a process that has places, or waits for some, if nothing changes.
BEAT = 1.0
#: The parts of the silence after which leases of buckets are taken back: after which a process's places are taken back,
#: and for which it trusts them.
_DEAD, _TRUSTED = 0.8, 0.7


class PlaceLease(RedisBucket):
    """The part of a fleet's places that this process leases. `channel`: the beginning of the names of the channels on
    which Redis notifies processes of places.
    """

    script = "concurrency"

    def __init__(self, places: Places, store: Store, key: str, channel: str, now: float) -> None:
        self._places = places
        self._channel = channel
        self._lease = 0  # the places that Redis leases to this process,
        self._share = 0.0  # and how many of them it may use
        self._version = -math.inf  # of what Redis said last of them
        self._short = False  # there are not enough places for the fleet
        self._holders = math.inf  # the processes that use this limit, as far as is known
        self._peak = 0  # the most places that were in use since the last message
        self._reported = 0  # the need that the last message reported
        self._keeps: int | None = None  # the places that the message under way says this process keeps
        self._late: tuple[int, float, float] | None = None  # what was published while a message was under way
        self._sent: deque[float] = deque(maxlen=MOST)
        self.hold(store, key, None)
        places.join(self)
        if store.out:
            self._go_alone(now)
        else:
            places.allot(0.0, now=now)
            if not places.is_idle:  # they were in use before a reload had them shared
                self.changed(now)

    @property
    def may_give(self) -> bool:
        """Whether Redis may have more places for this process, as far as this process knows."""
        return not self.store.out and not self._short

    # -- for the places ---------------------------------------------------------------------------------------------

    def changed(self, now: float) -> None:
        """Note that an attempt of this process began or ended, or that more or fewer of its calls wait."""
        places = self._places
        used = places.in_use
        self._peak = max(self._peak, used)
        if self.store.out or self._keeps is not None:
            return
        need = self._need()
        if places.queue and used >= places.share:
            if need > self._reported:
                self._soon(self._next(now if self._reported <= self._share else now + self._pause))
        elif self._lease > max(used, self._share):
            self._soon(self._next(now))
        elif self.due == math.inf:
            self._soon(now + hold_pause(BEAT, self.store.crowd))

    def published(self, lease: int, share: float, version: float, now: float) -> None:
        """Take in a message that Redis published for this process: the number of places leased to it now (`lease`), and
        how many of them it may use (`share`). `version`: a number that grows with each such message; a message with a
        lower one than before is ignored.
        """
        if version <= self._version or self.store.out or self._leaving:
            return
        if self._keeps is not None:
            self._late = lease, share, version
            return
        self._lease, self._share, self._version = lease, share, version
        self._short = share < lease or self._short
        self._places.allot(share, now=now, until=self._trusted())
        self.changed(now)

    # -- for the store ----------------------------------------------------------------------------------------------

    def message(self, now: float) -> list[object]:
        said = super().message(now)
        if now - self.heard_at > self.store.dead:
            said[2] = ""  # what this process knew of the key has been forgotten by now
        said[-2] = self.store.dead * _DEAD
        self._sent.append(now)
        return [*said, self._channel, self._pause]

    def _report(self, now: float) -> Iterable[float | None]:
        places = self._places
        used, most, need = places.in_use, self._most, self._need()
        ready = self._peak + 1 if self._peak and not self._short else 0
        trusted = not self.store.out and now < self._trusted()
        keep = max(used, min(int(self._share), max(need, ready))) if trusted else used
        if self._leaving:
            used = need = keep = 0
        self._reported, self._keeps, self._late = need, keep, None
        self._peak = used
        if not self._leaving:
            places.allot(keep, now=now, until=self._trusted())
        return used, need - used, keep, max(0, min(ready, most) - max(keep, need)), most, self._leaving

    def _learn(self, values: list[float], now: float) -> None:
        lease, share, version, short, holders = values[:5]
        self._short, self._holders = short > 0, max(1.0, holders)
        if self._late is not None and self._late[2] > version:
            lease, share, version = self._late
        self._lease, self._share, self._version = int(lease), share, version
        self._keeps = self._late = None
        if not self._leaving:
            self._places.allot(share, now=now, until=self._trusted())

    def _plan(self, now: float) -> None:
        if self._leaving:
            return
        self.changed(now)
        if self._reported or self._lease:
            self._soon(now + hold_pause(BEAT, self.store.crowd))

    def unheard(self, now: float) -> None:
        self._keeps = None
        super().unheard(now)
        if self.store.out:
            self.part(now)

    def part(self, now: float) -> None:
        if not self._leaving:
            self._go_alone(now)

    def leave(self) -> None:
        super().leave()
        self.store.soon(self, -math.inf)

    def _go_alone(self, now: float) -> None:
        self._keeps = self._late = None
        # A process without a share (under `on_outage: deny`, or if it is new) goes by the processes that use the limit.
        of = self.store.share.of or self._holders
        self._places.allot(max(1.0, self._places.most // of), now=now)

    @property
    def _most(self) -> float:
        return min(self._places.most, UNLIMITED)

    def _need(self) -> int:
        """The places for attempts under way and for calls that wait, but no more than the limit has."""
        used, queue = self._places.in_use, self._places.queue
        return int(min(used + len(queue), max(self._most, used)))

    def _trusted(self) -> float:
        return self.heard_at + self.store.dead * _TRUSTED

    @property
    def _pause(self) -> float:
        """The seconds after which this process reports that more of its calls wait; in a large fleet, the least seconds
        between any two messages.
        """
        return hold_pause(SPACED, self.store.crowd)

    def _next(self, at: float) -> float:
        """The time at which the next message may be sent: `at`, or later if MOST messages were sent within the last
        second. In a fleet so large that `_pause` is longer than SPACED, a message is sent no sooner than `_pause` after
        the one before.
        """
        pause = self._pause
        if pause > SPACED:
            return max(at, self._sent_at + pause)
        return at if len(self._sent) < MOST else max(at, self._sent[0] + 1.0)
