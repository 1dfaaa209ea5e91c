"""The part of a fleet's rate that one process has: tokens that it leases, and a portion of the refill.

Redis says how many tokens a second the part brings, and up to how many tokens in the lease (`rate.lua`). If the burst
has less than one token for each process of the fleet, there are no parts. Then Redis reserves, for the calls that wait,
tokens that will be refilled next, and the time at which each comes is known.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from proxy.stores.redis.lease import IDLE, Lease


class Reserved:
    """Tokens of a rate that will be refilled, and are reserved for this process: the time of each is known."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs: deque[tuple[float, float, int]] = deque()  # when the first comes, the pause between two, how many

    def add(self, first: float, pause: float, count: int) -> None:
        """Add `count` tokens, of which the first comes at the time `first`, and one more after each `pause`
        (seconds).
        """
        if count > 0:
            self._runs.append((first, pause, count))
            self.count += count

    def come(self, now: float) -> int:
        """Remove the tokens whose time has come. Returns their number."""
        came = 0
        while self._runs and self._runs[0][0] <= now + 1e-9:
            first, pause, count = self._runs.popleft()
            number = min(count, math.floor((now + 1e-9 - first) / pause) + 1)
            came += number
            if number < count:
                self._runs.appendleft((first + number * pause, pause, count - number))
                break
        self.count -= came
        return came

    def skip(self, count: int) -> int:
        """Remove up to `count` of the tokens, those with the earliest times. Returns the number that was removed."""
        skipped = 0
        while skipped < count and self._runs:
            first, pause, number = self._runs.popleft()
            some = min(number, count - skipped)
            skipped += some
            if some < number:
                self._runs.appendleft((first + some * pause, pause, number - some))
        self.count -= skipped
        return skipped

    def drop(self, count: int) -> None:
        """Remove up to `count` of the tokens, those with the latest times."""
        while count > 0 and self._runs:
            first, pause, number = self._runs.pop()
            if number > count:
                self._runs.append((first, pause, number - count))
            self.count -= min(number, count)
            count -= number

    def at(self, place: int) -> float:
        """The time at which the token with the number `place` comes, counted from 1; if there are fewer, that of the
        last.
        """
        for first, pause, count in self._runs:
            if place <= count:
                return first + (place - 1) * pause
            place -= count
        first, pause, count = self._runs[-1]
        return first + (count - 1) * pause


class Grant(NamedTuple):
    """The reply of Redis to a report. `lease`: the number of tokens that Redis has recorded as leased to this process;
    `reserved`: how many of these come later, the first at the time `first`, and one more after each `pause` (seconds).
    `part`: the tokens a second that this process's part of the rate brings, while the lease has fewer than `most`
    tokens.
    """

    lease: float
    first: float = 0.0
    pause: float = 0.0
    reserved: int = 0
    part: float = 0.0
    most: float = 0.0


class PartLease(Lease):
    """The tokens that are leased to this process, those that are reserved for it, and its part of the rate, which
    brings more of them. `capacity`: that of the bucket. A process that stood still while its reserved tokens came has
    as many of them; the others go back with its next report.

    Law: from the time at which a report is sent until its reply arrives, the part brings nothing. So the reply may
    grant a larger or smaller part than before: Redis counts the former part up to the report, and the new one from the
    reply on.
    """

    __slots__ = ("_at", "_capacity", "future", "most", "part")

    def __init__(self, lasts: float, capacity: float = math.inf) -> None:
        super().__init__(lasts)
        self._capacity = capacity
        self.future = Reserved()
        self.part = self.most = 0.0
        self._at = math.inf  # until when the part has brought its tokens; infinity while a report is under way

    @property
    def held(self) -> float:
        """All tokens of the lease, those included whose time has not come."""
        return self.left + self.future.count

    def mature(self, now: float) -> None:
        """Add to the tokens that can be spent: the reserved tokens whose time has come, and the tokens that this
        process's part of the rate has brought.
        """
        if self.future.count:
            self.left = max(self.left, min(self._capacity, self.left + self.future.come(now)))
        until = min(now, self.until)
        if self.part and until > self._at:
            came = self.left + self.part * (until - self._at)
            self.left = max(self.left, min(self.most, came))
            self._at = until

    def has(self, amount: float, now: float) -> bool:
        self.mature(now)
        return amount <= self.left + 1e-9 and now <= self.until

    def wait(self, tokens: float, now: float) -> float:
        """Seconds until the lease has this number of tokens; infinity if it is not known when."""
        self.mature(now)
        if now > self.until:
            return math.inf
        short = tokens - self.left
        if short <= 1e-9:
            return 0.0
        wait = short / self.part if self.part else math.inf
        if self.future.count >= short:
            wait = min(wait, self.future.at(math.ceil(short)) - now)
        return wait

    def send(self, keep: float, now: float) -> tuple[float, float, float]:
        self.mature(now)
        if self.left < 0:  # the next tokens that come were spent already
            self.left += self.future.skip(math.ceil(-self.left))
        if now > self.until:
            keep = 0.0
        self._at = math.inf
        future = self.future
        future.drop(math.floor(self.held - keep + 1e-9))
        future.drop(math.ceil(future.count - keep - 1e-9))
        self.left = max(0.0, min(self.left, keep - future.count))  # a remainder that is less than a token
        return super().send(keep, now)

    def granted(self, grant: Grant, now: float) -> None:
        """Note the reply of Redis to a report: the part of the rate and the tokens that it grants."""
        self.future.add(grant.first, grant.pause, grant.reserved)
        self.part, self.most, self._at = grant.part, grant.most, now
        self.confirmed(grant.lease - grant.reserved)
        if self.future.count:  # Redis takes these as spent when they come
            self.until = min(self.until, self.future.at(self.future.count) + IDLE)

    def _cover(self) -> None:
        lost = min(self.future.count, math.ceil(-self.left))
        self.future.drop(lost)
        self.left = max(0.0, self.left + lost)

    def drop_part(self) -> None:
        """Give up the part of the rate and the reserved tokens, because Redis is out."""
        self.part = 0.0
        self.future.drop(self.future.count)
