"""The counts and times that hedging needs, over the workers of one machine: counts in rings, times in a histogram.

Calls and hedges are counted as a budget counts calls and retries, so that the limit on hedges applies to all workers.
Times are not kept one by one: a percentile is the middle of a box whose edges are 4.7 % apart, so it is within 2.4 % of
the measured time (for times below LEAST or above MOST, it is that edge). A percentile covers the last 55 to 60 seconds.
Once there is a percentile, each worker computes it again at most every FRESH seconds.

Law: as in `records`, a change under the lock takes effect by one store. A box is one word. A slice of boxes belongs to
the 5 seconds whose number is stored with it. The slice is emptied before it gets another number, so a process that is
killed in between leaves it empty, or outdated.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

from proxy.retry.budgets.hedges import FEWEST, WINDOW, Hedges, rank
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.records import Former, Memory, Rings, exclusive

#: The middles of the first and the last box, in seconds.
LEAST, MOST = 1e-4, 3600.0
BOXES = 384
_GROWTH = math.log(MOST / LEAST) / (BOXES - 1)
#: The number of slices of the window, and the length of each in seconds.
SLICES = 12
_SLICE = WINDOW / SLICES
#: Seconds for which a worker uses a percentile that it has computed. As long as there is none, each new time is seen at
#: once.
FRESH = 0.1

#: The words of the histogram: the number of all times so far, the slices' numbers, then their boxes. They fit in the
#: place of a budget's third ring.
WORDS = 1 + SLICES + SLICES * BOXES
assert WORDS <= ring.WORDS


def box_of(seconds: float) -> int:
    """The number of the histogram's box that a measured time falls into."""
    if seconds <= LEAST:
        return 0
    return min(BOXES - 1, round(math.log(seconds / LEAST) / _GROWTH))


def middle_of(box: int) -> float:
    """The time that represents all times of a box, in seconds."""
    return LEAST * math.exp(box * _GROWTH)


class SharedHedges(Hedges):
    """The data of hedging for one scope, which workers share in one record: the counts of calls and of hedges (two
    rings), and the histogram of measured times.
    """

    __slots__ = ("_at", "_known", "_memory", "record", "rings_at")

    def __init__(self, record: Rings, memory: Memory) -> None:
        super().__init__()
        self.record = record
        self._memory = memory
        # When the sums were computed, the number of all times then, and for each box the times of the window up to it.
        self._known: tuple[float, int, list[int]] = (-math.inf, -1, [0])
        self.move_to(record.value)

    @staticmethod
    def begin(memory: Memory, at: int, former: Former | None) -> None:
        """Write a new record at the word `at`: an empty one, or one with the contents of the `former` record."""
        for offset in (0, ring.WORDS):
            ring.RingCount.begin(memory, at + offset, former, offset)
        to = at + 2 * ring.WORDS
        if former is None:
            memory.map[to * 8 : (to + WORDS) * 8] = bytes(WORDS * 8)
        else:
            source = former.state + 2 * ring.WORDS
            memory.words[to : to + WORDS] = memory.words[source : source + WORDS]

    def move_to(self, at: int) -> None:
        """Use the rings and the histogram that begin at the word `at` of the memory."""
        memory = self._memory
        self.rings_at = at
        self._begun = ring.RingCount(memory, at, WINDOW)
        self._sent = ring.RingCount(memory, at + ring.WORDS, WINDOW, late=True)
        self._at = at + 2 * ring.WORDS

    began = exclusive(Hedges.began)
    take = exclusive(Hedges.take)
    give_back = exclusive(Hedges.give_back)
    counts = exclusive(Hedges.counts)

    def answered(self, seconds: float, now: float) -> None:
        self._add(box_of(seconds), int(now // _SLICE) + 1)

    def delay(self, percent: float, now: float) -> float | None:
        at, ever, sums = self._known
        if not at <= now < at + FRESH or (sums[-1] < FEWEST and ever != self._memory.words[self._at]):
            ever, sums = self._sums(int(now // _SLICE) + 1)
            self._known = now, ever, sums
        if sums[-1] < FEWEST:
            return None
        return middle_of(bisect_right(sums, rank(percent, sums[-1])))

    @exclusive
    def _add(self, box: int, number: int) -> None:
        """Count one measured time in box `box` of the histogram's slice for the 5 seconds numbered `number`. Slices are
        numbered from 1: 0 marks one that was never used.
        """
        words, slice_ = self._memory.words, self._at + 1 + number % SLICES
        boxes = self._at + 1 + SLICES + number % SLICES * BOXES
        if words[slice_] > number:  # this worker was delayed for longer than the window after it read its clock
            return
        if words[slice_] < number:
            self._memory.map[boxes * 8 : (boxes + BOXES) * 8] = bytes(BOXES * 8)
            words[slice_] = number
        words[boxes + box] += 1
        words[self._at] += 1

    @exclusive
    def _sums(self, number: int) -> tuple[int, list[int]]:
        """The number of all times measured in the window that ends with the slice `number`; and for each box of the
        histogram, the number of times in that window that fell into that box or a lower one.
        """
        words, first = self._memory.words, self._at + 1 + SLICES
        used = [
            words[first + each * BOXES : first + (each + 1) * BOXES].tolist()
            for each in range(SLICES)
            if number - SLICES < words[self._at + 1 + each] <= number
        ]
        sums = list(accumulate(map(sum, zip(*used, strict=True)))) if used else [0]
        return words[self._at], sums
