"""The state of hedging in a scope: how long its successes took, and how many of its calls may be hedged.

Law: every result is a function of the last WINDOW seconds. The percentile p of n times is the time in place ceil(p · n
/ 100) of them in order (the nearest rank, Hyndman and Fan's definition 1), so it is a time that was measured; fewer
than FEWEST times have no percentile. A hedge may be sent if the hedges of the window, with this one, are at most
`share` times the calls that began in the window.

If the bound leaves no room for a hedge, the call's timer does not ask for the hedge again. Finagle's backup requests,
from which the percentile and the bound on extra load are taken, ask once too; a timer of a few milliseconds would ask
hundreds of times a second. Source: Finagle, `BackupRequestFilter`.

Theory. The percentile is of the time that a hedge would have waited for: from the sending of the oldest attempt that
had not ended when the success came. If the first attempt succeeds, this is how long its answer took. If a hedge
succeeds first, it is a time within which the first attempt was not answered. To measure how long the hedge's own answer
took would be wrong: no slow answer would ever be measured, so the percentile would become ever shorter, and hedges ever
more frequent.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

from proxy.retry.budgets.sliding_window import SlidingCount
from proxy.retry.instants import EPSILON

#: Contract, section 13: the window in seconds, and the fewest successes that have a percentile.
WINDOW = 60.0
FEWEST = 20
#: The most times that are kept: beyond them (273 a second) the newest stand for the minute.
MOST_TIMES = 16_384

#: Tolerance for shares of floating-point numbers, which may miss a whole number that they equal exactly.
_EPSILON = 1e-9


def rank(percent: float, count: int) -> int:
    """The index, from 0, of the percentile `percent` among `count` measured times in ascending order."""
    return max(0, math.ceil(percent * count / 100 - _EPSILON) - 1)


def allows(hedges: int, share: float, calls: int) -> bool:
    """Whether `hedges` is at most the share `share` (0 to 1) of `calls`."""
    return hedges <= share * calls + _EPSILON


class Hedges:
    """The hedges that were sent in one scope, its calls, and the times (seconds) that its successes took. Only policies
    with `extra` (the bound on hedges) or a percentile as delay use it.
    """

    __slots__ = ("_begun", "_in_order", "_sent", "_times")

    def __init__(self) -> None:
        # If there are too many to count exactly, both err towards fewer hedges.
        self._begun = SlidingCount(WINDOW)
        self._sent = SlidingCount(WINDOW, late=True)
        self._times: deque[tuple[float, float]] = deque()  # (when, how long), in order of arrival
        self._in_order: list[float] = []

    def began(self, now: float) -> None:
        """Count a call that begins."""
        self._begun.add(now)

    def answered(self, seconds: float, now: float) -> None:
        """Record that a call succeeded `seconds` seconds after its oldest attempt in flight was sent."""
        self._forget(now)
        if len(self._times) >= MOST_TIMES:
            self._drop()
        self._times.append((now, seconds))
        insort(self._in_order, seconds)

    def delay(self, percent: float, now: float) -> float | None:
        """The percentile `percent` of the success times in the window, in seconds; None if there are fewer than FEWEST
        times.
        """
        self._forget(now)
        count = len(self._in_order)
        return None if count < FEWEST else self._in_order[rank(percent, count)]

    def take(self, share: float, now: float) -> float | None:
        """Count one hedge, if the hedges then are at most `share` (0 to 1) of the calls. Returns the time at which the
        hedge counts; None if there is no room for it.
        """
        if not allows(self._sent.count(now) + 1, share, self._begun.count(now)):
            return None
        return self._sent.add(now)

    def give_back(self, taken_at: float) -> None:
        """Undo the count of a hedge that was not sent. `taken_at`: the time at which it counted, as `take` returned
        it.
        """
        self._sent.remove(taken_at)

    def counts(self, now: float) -> tuple[int, int]:
        """The numbers of hedges and of calls within the window."""
        return self._sent.count(now), self._begun.count(now)

    def _forget(self, now: float) -> None:
        times = self._times
        while times and times[0][0] + WINDOW <= now + EPSILON:
            self._drop()

    def _drop(self) -> None:
        _, seconds = self._times.popleft()
        del self._in_order[bisect_left(self._in_order, seconds)]
