"""Counting over a sliding window in shared memory: `proxy.retry.budgets.sliding_window` with its slices in a ring.

To every reader, a method call takes effect as a whole or not at all, even if its process is killed in the middle.
Methods are called under the lock of the record that contains the ring.

Theory. The newest slice is open and is part of the header, of which there are two copies. The closed slices are in the
ring, from `head` up to `tail`, exclusively. To close a slice, it is written after the others, where no process reads,
and then a header with a higher tail is published. To undo an event of a closed slice, the change is first noted in the
header (`amended`, and the resulting count), and then carried out; the next process that opens the header carries it out
again, in case the first one was killed in between.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from struct import Struct

from proxy.retry.budgets.sliding_window import SlidingCount
from proxy.retry.instants import EPSILON
from proxy.stores.shared_memory.records import Former, Memory

#: Instants that are kept separately before any are merged, after which there are at most about a thousand slices more;
#: and the number of slots in the ring.
EXACT = 512
SLOTS = 1536

_HEAD = Struct("qqqddqqq")
_SLICE = Struct("ddq")
_PUBLISHED = 24  # words: the sequence number with padding, two headers
#: Words that one count takes.
WORDS = _PUBLISHED + SLOTS * _SLICE.size // 8
_NONE = -1


@dataclass(slots=True)
class _Header:
    head: int = 0
    tail: int = 0
    total: int = 0
    first: float = 0.0
    last: float = 0.0
    count: int = 0  # events of the open slice; 0 if there is none
    amended: int = _NONE
    amended_count: int = 0


class RingCount(SlidingCount):
    """A count of events over a sliding window, in shared memory from the word `at` on: an open slice in the header, and
    a ring of closed ones.
    """

    __slots__ = ("_at", "_map", "_words")

    def __init__(self, memory: Memory, at: int, window: float, *, late: bool = False) -> None:
        super().__init__(window, late=late)
        self._map = memory.map
        self._words = memory.words
        self._at = at

    @staticmethod
    def begin(memory: Memory, at: int, former: Former | None, offset: int) -> None:
        """Write a new count at the word `at`: an empty one, or a copy of the count that the `former` record has at this
        offset (in words).
        """
        if former is None:
            memory.words[at] = 0
            _HEAD.pack_into(memory.map, (at + 8) * 8, *astuple(_Header()))
            return
        source = former.state + offset
        memory.words[at : at + WORDS] = memory.words[source : source + WORDS]

    def add(self, now: float) -> float:
        """Count one event at the time `now`. Returns the instant at which the event counts. Processes read their clocks
        before they have the lock, so `now` may be earlier than the instant of the newest event; then the event counts
        at that instant.
        """
        header = self._load()
        header.total += 1
        if header.count:
            kept = header.tail - header.head
            width = self._width if kept + 1 >= EXACT else 0.0
            if now <= header.first + width or kept >= SLOTS:
                header.count += 1
                header.last = max(now, header.last)
                self._publish(header)
                return max(now, header.first)
            self._expire_ring(header, now)
        if header.count:
            self._write(header.tail, header.first, header.last, header.count)
            header.tail += 1
        header.first = header.last = max(now, header.first)
        header.count = 1
        self._publish(header)
        return header.first

    def clear(self) -> None:
        self._publish(_Header())

    def count(self, now: float) -> int:
        header = self._load()
        if self._expire_ring(header, now):
            self._publish(header)
        return header.total

    def remove(self, at: float | None) -> None:
        header = self._load()
        index = self._slice_at(header, at)
        while index is not None and index < header.tail and not self._read(index)[2]:
            index += 1  # this slice's events were undone already, as the newest; take one of a later slice
        if index == header.tail and header.count:
            header.count -= 1
            header.total -= 1
            self._publish(header)
        elif index is not None and index < header.tail:
            first, last, count = self._read(index)
            header.total -= 1
            header.amended, header.amended_count = index, count - 1
            self._publish(header)
            self._write(index, first, last, count - 1)

    def _slice_at(self, header: _Header, at: float | None) -> int | None:
        """The index of the slice in which an event at the instant `at` was counted, or of the last slice with an event
        if `at` is None. Returns `header.tail` for the slice that is still open, and None if the slice has left the
        window.
        """
        if at is None:
            if header.count:
                return header.tail
            return next((index for index in range(header.tail - 1, header.head - 1, -1) if self._read(index)[2]), None)
        low, high = header.head, header.tail
        if at < (self._read(low)[0] if low < high else header.first):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._read(middle)[1] < at:
                low = middle + 1
            else:
                high = middle
        return low if low < header.tail or (header.count and at <= header.last) else None

    def _expire_ring(self, header: _Header, now: float) -> bool:
        """Remove the slices that have left the window. Returns whether there were any."""
        before = header.head, header.count
        while header.head < header.tail:
            first, last, count = self._read(header.head)
            if (last if self._late else first) + self.window > now + EPSILON:
                return header.head != before[0]
            header.total -= count
            header.head += 1
        if header.count and (header.last if self._late else header.first) + self.window <= now + EPSILON:
            header.total -= header.count
            header.count = 0
        if not header.count and header.head:
            header.head = header.tail = 0  # an empty count begins again in its first page of memory
        return (header.head, header.count) != before

    # -- memory -----------------------------------------------------------------------------------------------------

    def _load(self) -> _Header:
        header = _Header(*_HEAD.unpack_from(self._map, self._copy(self._words[self._at])))
        if header.amended != _NONE:
            first, last, _ = self._read(header.amended)
            self._write(header.amended, first, last, header.amended_count)
            header.amended = _NONE
        return header

    def _publish(self, h: _Header) -> None:
        sequence = self._words[self._at] + 1
        at = self._copy(sequence)
        _HEAD.pack_into(self._map, at, h.head, h.tail, h.total, h.first, h.last, h.count, h.amended, h.amended_count)
        self._words[self._at] = sequence

    def _copy(self, sequence: int) -> int:
        return (self._at + 8 + 8 * (sequence & 1)) * 8

    def _read(self, index: int) -> tuple[float, float, int]:
        first, last, count = _SLICE.unpack_from(self._map, self._slot(index))
        return first, last, count

    def _write(self, index: int, first: float, last: float, count: int) -> None:
        _SLICE.pack_into(self._map, self._slot(index), first, last, count)

    def _slot(self, index: int) -> int:
        return (self._at + _PUBLISHED) * 8 + index % SLOTS * _SLICE.size
