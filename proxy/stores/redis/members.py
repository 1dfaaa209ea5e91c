"""The processes of a fleet: how many there are, which of them this one is, and which share of the fleet's tokens this
process may therefore spend while Redis is not available.

Every process reports every few seconds, whether calls come or not. Redis replies with the number of processes that
reported within the last ten seconds, and with this process's rank among them. A process has a share once all others
have been told of it. So the shares of all processes add up to at most the whole, because each process divides by a
number that includes every process with a share. A process that never reported has no share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from proxy.stores.redis.bucket import RedisBucket, Store, space
from proxy.stores.redis.share import NONE, Share

#: Seconds between a member's reports. The first ones follow each other faster, so that a fleet that starts soon has
#: told all its processes of each other.
OFTEN, SELDOM = 0.25, 4.0


class RedisMembers(RedisBucket):
    """This process as a member of its fleet. The fleet is everything under one `prefix`."""

    script = "members"

    def __init__(self, store: Store, prefix: str) -> None:
        self.hold(store, f"{space(prefix)}{{members}}", None)
        self._counts: deque[tuple[float, int]] = deque()  # what was reported within the last `dead` seconds, and when
        #: The number of this process among those of the fleet, from 0 on.
        self.rank = 0
        self._is_told = False
        self._making = ""
        self._pause = OFTEN
        #: The number of processes as of the last report.
        self.crowd = 1

    def count(self, now: float) -> int:
        """The number of processes of the fleet, this one included: the highest that Redis reported within the last ten
        seconds, so that no share becomes larger because Redis lost data.
        """
        self._forget(now)
        return max((number for _, number in self._counts), default=1)

    def share(self, now: float) -> Share:
        """The part of a fleet's buckets that this process may spend if Redis becomes unreachable now."""
        if not self._is_told or now - self.heard_at > self.store.dead:
            return NONE
        return Share(self.count(now), self.rank)

    def _forget(self, now: float) -> None:
        counts = self._counts
        while len(counts) > 1 and now - counts[0][0] > self.store.dead:
            counts.popleft()

    def _report(self, now: float) -> Iterable[float | None]:
        return (float(self._leaving),)

    def _learn(self, values: list[float], now: float) -> None:
        count, rank, told = values
        lost = self._making not in ("", self._made)  # the key was made again: the others know of this process
        self._is_told = bool(told) or (lost and self._is_told)
        self._making, self.rank = self._made, int(rank)
        self._counts.append((now, max(1, int(count))))
        self.crowd = self.count(now)

    def _plan(self, now: float) -> None:
        if not self._leaving:
            self._soon(now + self._pause)
            self._pause = min(2 * self._pause, SELDOM)
