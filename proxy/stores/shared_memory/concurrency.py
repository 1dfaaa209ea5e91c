"""Places for attempts under way that the workers of one machine share: never more than `most` over all of them.

Law: a worker writes only its own page of shared memory, and all pages are read under one lock, so that no two workers
take the same place. The page of a worker that was killed is wiped by the parent, which frees its places.

Theory. A directory gives each key a slot, which is the same in every page. In the slot, a worker writes how many of its
attempts are under way, how many of its calls wait, when the first of these calls arrived, and when that call last
checked for a place. A free place belongs to the call that arrived earliest, over all workers; if apps have names, it
belongs to the app whose turn it is (`fair_lines`). A call waits in its own worker. The first call in line there is
notified of places that become free in the same worker, and checks every POLL seconds for places that become free in
other workers. A worker whose first call has not checked for STALE seconds (the worker hangs, or was killed) keeps the
places it has, and delays no other worker.
"""

from __future__ import annotations

from proxy.retry.budgets.concurrency import NONE_ELSEWHERE, UNLIMITED, Elsewhere, Places
from proxy.retry.queues.fair_lines import FairLines
from proxy.stores.shared_memory.fair_lines import SharedLines
from proxy.stores.shared_memory.records import PROBES, SLOT, SLOTS, Memory, exclusive

#: Seconds between two checks for places that other workers may have given back.
POLL = 0.005
#: Seconds without a check after which a worker's first call in line no longer counts; it checks twice as often.
STALE = 0.25

_IN_USE, _WAITING, _CAME, _LOOKED = range(SLOT)


class _Pages:
    """All workers' pages in the form of a record, for the decorator `exclusive`. To open this record is to take the one
    lock of all pages. Places write each change to their page at once, so `save` has nothing to publish.
    """

    __slots__ = ("_lock", "is_open")

    def __init__(self, memory: Memory) -> None:
        self._lock = memory.under_way_lock
        self.is_open = False

    def open(self) -> None:
        """Take the lock."""
        self._lock.__enter__()
        self.is_open = True

    def free(self) -> None:
        """Release the lock."""
        self._lock.__exit__()

    def load(self, places: SharedPlaces) -> None:
        """Set the slot in `places`: the number under which the entry of its key stands in every page. A key without a
        slot gets a free one (`SharedPlaces.find_slot`).
        """
        places.find_slot()

    def save(self, places: SharedPlaces) -> None:
        """Do nothing: every change is written already."""


class SharedPlaces(Places):
    """The places for attempts under way that a key (such as an upstream) has in all workers together, as one worker
    uses them. `most`: the number of places; `key`: the key's hash; `row`: the worker's row of the memory; a process
    with row 0 only reads.
    """

    _polls = True
    __slots__ = ("_key", "_row", "_slot", "memory", "record")

    def __init__(self, memory: Memory, row: int, key: int, most: int) -> None:
        super().__init__(most)
        self.memory = memory
        self.record = _Pages(memory)
        self._row = row
        self._key = key
        self._slot = -1

    ask = exclusive(Places.ask)
    enter = exclusive(Places.enter)
    enter_at_once = exclusive(Places.enter_at_once)
    leave = exclusive(Places.leave)
    give_back = exclusive(Places.give_back)
    total = exclusive(Places.total)

    def find_slot(self) -> None:
        """Look up this key's slot in the pages, unless the slot found last still belongs to the key. The slot becomes
        -1 if all slots in which the key may be are used by other keys, or if the key has none and this process only
        reads.
        """
        words, directory = self.memory.words, self.memory.slots
        if self._slot >= 0 and words[directory + self._slot] == self._key:
            return
        free = -1
        for step in range(PROBES):
            slot = (self._key + step) % SLOTS
            found = words[directory + slot]
            if found == self._key:
                self._slot = slot
                return
            if free < 0 and self._row and (not found or self._is_unused(slot)):
                free = slot
            if not found:
                break
        self._slot = free
        if free >= 0:
            words[directory + free] = self._key

    def _is_unused(self, slot: int) -> bool:
        """Whether the slot is free for another key: no worker has an attempt under way or a waiting call in it."""
        memory, words = self.memory, self.memory.words
        pages = (memory.under_way(row) + slot * SLOT for row in range(1, memory.rows + 1))
        return not any(words[at + _IN_USE] or words[at + _WAITING] for at in pages)

    def _elsewhere(self, came: float, now: float) -> Elsewhere:
        memory, words, doubles = self.memory, self.memory.words, self.memory.doubles
        if self._slot < 0:
            return Elsewhere(UNLIMITED) if self._row else NONE_ELSEWHERE
        in_use = waiting = 0
        earlier = False
        for row in range(1, memory.rows + 1):
            if row == self._row:
                continue
            at = memory.under_way(row) + self._slot * SLOT
            in_use += words[at + _IN_USE]
            count = words[at + _WAITING]
            if count:
                waiting += count
                looks = now - doubles[at + _LOOKED] <= STALE
                earlier = earlier or (looks and (doubles[at + _CAME], row) < (came, self._row))
        if self._fleet is not None:
            earlier = False  # each worker has places of its own
        return Elsewhere(in_use, waiting, earlier)

    def _changed(self, now: float) -> None:
        super()._changed(now)
        if self._slot < 0 or not self._row:
            return
        memory = self.memory
        at = memory.under_way(self._row) + self._slot * SLOT
        memory.words[at + _IN_USE] = self.in_use
        memory.words[at + _WAITING] = len(self.queue)
        if self.queue:
            memory.doubles[at + _CAME] = next(iter(self.queue.values()))
            memory.doubles[at + _LOOKED] = now

    def _make_lines(self) -> FairLines:
        if self._fleet is not None:
            return super()._make_lines()  # each worker has places of its own
        return SharedLines(self.memory, self._row, ("places", self._key))

    def _next_look(self, others: Elsewhere, now: float) -> float:
        if self.in_use >= self.share:
            return super()._next_look(others, now)
        at = now + (POLL if others.in_use or others.waiting else STALE / 2)
        return at if self._lines is None else self._lines.next_look(now, at)
