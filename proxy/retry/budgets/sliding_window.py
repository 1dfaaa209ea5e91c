"""A count of the events of the last so-many seconds: exact for few events, and within bounds for any number.

Law: an event at t counts at `now` while now - t < window, where instants less than a nanosecond apart are the same one:
sums of decimal seconds have no exact binary form. Every instant is kept by itself until there are EXACT of them. After
that, instants closer together than window/1000 share a slice, so that the memory is bounded at any rate
(EXACT + about 1,000 slices), and a count is off by at most the events within window/1000. The user of the count chooses
in which direction it is off: a slice leaves the window when its newest event does (`late`), or when its oldest does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from copy import copy
from dataclasses import dataclass

from proxy.retry.instants import EPSILON

#: The number of instants that are kept apart before any are merged.
EXACT = 2048


@dataclass(slots=True)
class _Slice:
    first: float
    last: float
    count: int = 1


class SlidingCount:
    """The number of events within the last `window` seconds. `late`: events that were merged into a slice leave the
    window when the newest of them does; if False, when the oldest does.
    """

    __slots__ = ("_late", "_slices", "_total", "_width", "window")

    def __init__(self, window: float, *, late: bool = False) -> None:
        self.window = window
        self._width = window / 1000
        self._late = late
        self._slices: deque[_Slice] = deque()
        self._total = 0

    def remember(self, other: SlidingCount) -> None:
        """Take over the events that another counter (`other`) has counted."""
        self._slices = deque(copy(piece) for piece in other._slices)
        self._total = other._total

    def add(self, now: float) -> float:
        """Count one event, now. Returns the instant at which it counts. Time does not run backwards, so an event
        earlier than the newest instant counts at that instant.
        """
        slices = self._slices
        self._total += 1
        if slices:
            newest = slices[-1]
            if now <= newest.first + (self._width if len(slices) >= EXACT else 0.0):
                newest.count += 1
                newest.last = max(now, newest.last)
                return max(now, newest.first)
            if slices[0].first + self.window <= now + EPSILON:
                self._expire(now)
        slices.append(_Slice(now, now))
        return now

    def count(self, now: float) -> int:
        """The number of events within the window that ends at `now`."""
        if self._slices and self._slices[0].first + self.window <= now + EPSILON:
            self._expire(now)
        return self._total

    def clear(self) -> None:
        """Forget all events."""
        self._slices.clear()
        self._total = 0

    def remove(self, at: float | None) -> None:
        """Undo the event that counts at the instant `at`, as `add` returned it, or the newest event if that is None. If
        the event has already left the window, nothing changes.
        """
        slices = self._slices
        if not slices:
            return
        index = len(slices) - 1
        if at is not None:
            index = bisect_left(slices, at, key=lambda piece: piece.last)
            if index == len(slices) or slices[index].first > at:
                return
        slices[index].count -= 1
        self._total -= 1
        if not slices[index].count:
            del slices[index]

    def _expire(self, now: float) -> None:
        slices = self._slices
        while slices and (slices[0].last if self._late else slices[0].first) + self.window <= now + EPSILON:
            self._total -= slices.popleft().count
