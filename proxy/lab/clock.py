"""A virtual clock. Time moves only from one event to the next, so ten minutes cost only what their events cost.

Events of the same instant happen in this order, whatever order they were scheduled in: ends of attempts at the
upstream, alarms that the core has set, calls that begin, deadlines. So an answer exactly at the deadline counts, and a
wait that ends exactly then is begun (contract, section 8). Events of one rank happen in the order in which they were
scheduled, which makes every run of the same script the same. An instant is a nanosecond wide, because sums of decimal
seconds differ by less: an attempt sent at 100 ms and answered after 200 is answered at 300.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

#: The order of events at one instant.
UPSTREAM, ALARM, BEGIN, DEADLINE = range(4)


class Clock:
    """A virtual clock: a heap of events, each of which happens at its time. `now` is in seconds since the run began."""

    __slots__ = ("_heap", "_sequence", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, int, int, float, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, when: float, rank: int, act: Callable[..., None], *args: Any) -> None:
        """Schedule the call of `act` for the time `when`; a time that has passed counts as now. `rank` orders events of
        one instant. No event is ever cancelled: a stale event does nothing.
        """
        sequence = self._sequence = self._sequence + 1
        if when < self.now:
            when = self.now
        heapq.heappush(self._heap, (_instant(when), rank, sequence, when, act, args))

    def run(self, until: float = math.inf) -> None:
        """Let events happen until none is left, or the next one is later than `until`."""
        heap, last, pop = self._heap, _instant(until), heapq.heappop
        while heap and heap[0][0] <= last:
            _, _, _, when, act, args = pop(heap)
            if when > self.now:  # events of one instant may be less than a nanosecond apart
                self.now = when
            act(*args)


def _instant(when: float) -> float:
    """The time `when` (seconds), converted to nanoseconds and rounded to a whole number of them."""
    nanoseconds = when * 1e9
    return int(nanoseconds + 0.5) if nanoseconds < _EXACT else nanoseconds


#: The number from which on every float is a whole number, of nanoseconds too.
_EXACT = 2.0**53
