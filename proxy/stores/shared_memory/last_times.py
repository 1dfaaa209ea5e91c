"""A table of times by digest that processes share: when something with this digest happened last.

Each digest has one row of the table, with room for a few. A new digest takes the place of the oldest time in a full
row. All processes take one lock, for a few loads and stores.
"""

from __future__ import annotations

import math

from proxy.stores.shared_memory.mutex import Mutex
from proxy.stores.shared_memory.records import Memory

#: The digests that have room in one row.
_WAYS = 8


class LastTimes:
    """A table of `size` pairs of a digest and a time (seconds), from the word `start` of the memory on. `lock`: its
    lock.
    """

    __slots__ = ("_lock", "_memory", "_rows", "_start")

    def __init__(self, memory: Memory, start: int, size: int, lock: Mutex) -> None:
        self._memory = memory
        self._start = start
        self._rows = size // _WAYS
        self._lock = lock

    def of(self, wanted: int) -> float:
        """The time that was noted last for this digest; minus infinity if none is known."""
        words, doubles = self._memory.words, self._memory.doubles
        with self._lock:
            return next((doubles[at + 1] for at in self._places(wanted) if words[at] == wanted), -math.inf)

    def note(self, wanted: int, now: float) -> float:
        """Note the time `now` for this digest. Returns the time that was noted before, as `of` does."""
        words, doubles = self._memory.words, self._memory.doubles
        places = self._places(wanted)
        with self._lock:
            for at in places:
                if words[at] == wanted:
                    before = doubles[at + 1]
                    doubles[at + 1] = now
                    return before
            oldest = min(places, key=lambda at: doubles[at + 1] if words[at] else -math.inf)
            words[oldest] = 0  # if the process is killed here, no digest has another one's time
            doubles[oldest + 1] = now
            words[oldest] = wanted
            return -math.inf

    def _places(self, wanted: int) -> range:
        """The words at which the pairs of this digest's row begin."""
        row = self._start + wanted % self._rows * _WAYS * 2
        return range(row, row + 2 * _WAYS, 2)
