"""What hedging needs to know, over the workers of one machine: counts in rings, and times in a histogram.

Calls and hedges are counted like a budget's, so that the limit on hedges applies to all workers. Times are not kept one
by one: a percentile is the middle of a box whose edges are 4.7 % apart, so it is within 2.4 % of the measured time
(below LEAST and above MOST: the edge). It looks back 55 to 60 seconds, and is computed again at most every FRESH
seconds in each worker, once there is one.

Law: as in `records`, a change under the lock takes effect by one store. A box is one word. A slice of boxes belongs to
the 5 seconds whose number is stored with it; it is emptied before it gets another number, so a process that is killed
in between leaves it empty, or outdated.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

from proxy.retry.hedges import FEWEST, WINDOW, Hedges, rank
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.records import Former, Memory, Rings, exclusive

#: Seconds: the middle of the first box's times, and of the last one's.
LEAST, MOST = 1e-4, 3600.0
BOXES = 384
_GROWTH = math.log(MOST / LEAST) / (BOXES - 1)
#: Slices of the window, and the seconds that each of them has.
SLICES = 12
_SLICE = WINDOW / SLICES
#: Seconds for which a worker keeps to a percentile that it has worked out. That there is none yet it sees at once.
FRESH = 0.1

#: Words: how many times there were ever, the numbers of the slices, then their boxes. They take the place of a budget's
#: third ring.
WORDS = 1 + SLICES + SLICES * BOXES
assert WORDS <= ring.WORDS


def box_of(seconds: float) -> int:
    """The box that a time falls into."""
    if seconds <= LEAST:
        return 0
    return min(BOXES - 1, round(math.log(seconds / LEAST) / _GROWTH))


def middle_of(box: int) -> float:
    """The time that stands for all of a box, in seconds."""
    return LEAST * math.exp(box * _GROWTH)


class SharedHedges(Hedges):
    """What hedging looks at, in a record of two rings and a histogram."""

    __slots__ = ("_at", "_known", "_memory", "placed", "record")

    def __init__(self, record: Rings, memory: Memory) -> None:
        super().__init__()
        self.record = record
        self._memory = memory
        # When it was worked out, of how many times ever, and how many of the window are in no higher box.
        self._known: tuple[float, int, list[int]] = (-math.inf, -1, [0])
        self.place(record.value)

    @staticmethod
    def begin(memory: Memory, at: int, former: Former | None) -> None:
        """Write a new record, or what the former one has."""
        for offset in (0, ring.WORDS):
            ring.RingCount.begin(memory, at + offset, former, offset)
        to = at + 2 * ring.WORDS
        if former is None:
            memory.map[to * 8 : (to + WORDS) * 8] = bytes(WORDS * 8)
        else:
            source = former.state + 2 * ring.WORDS
            memory.words[to : to + WORDS] = memory.words[source : source + WORDS]

    def place(self, at: int) -> None:
        """The record's rings begin at this word."""
        memory = self._memory
        self.placed = at
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
        """Count a time in the slice of this number. Slices are numbered from 1: 0 is one that was never used."""
        words, slice_ = self._memory.words, self._at + 1 + number % SLICES
        boxes = self._at + 1 + SLICES + number % SLICES * BOXES
        if words[slice_] > number:  # this worker was held up for longer than the window, with its clock read
            return
        if words[slice_] < number:
            self._memory.map[boxes * 8 : (boxes + BOXES) * 8] = bytes(BOXES * 8)
            words[slice_] = number
        words[boxes + box] += 1
        words[self._at] += 1

    @exclusive
    def _sums(self, number: int) -> tuple[int, list[int]]:
        """How many times there were ever, and for each box how many of the window, up to the slice of this number, are
        in no higher one.
        """
        words, first = self._memory.words, self._at + 1 + SLICES
        used = [
            words[first + each * BOXES : first + (each + 1) * BOXES].tolist()
            for each in range(SLICES)
            if number - SLICES < words[self._at + 1 + each] <= number
        ]
        sums = list(accumulate(map(sum, zip(*used, strict=True)))) if used else [0]
        return words[self._at], sums
