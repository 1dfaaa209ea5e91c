"""The waiting room of all workers of one machine: the limit `limits.waiting`, and each upstream's share of it, kept
exactly over all workers.

Law: a worker writes only its own page of shared memory, and both limits are checked over all pages under one lock, so
that no two workers take the same place. The page of a worker that was killed is wiped by the parent, which frees its
places.

Theory. A page begins with the worker's number of waiting calls. After it comes a table of the upstreams whose calls a
gate holds in this worker. Each upstream has a pair of words: the hash of its name, and the number of these calls. A
pair is found by probing from the hash up to the first empty pair. A pair whose count is 0 stays as a bridge until the
pair after it is empty.
"""

from __future__ import annotations

from proxy.retry.queues.waiting_room import Guest, WaitingRoom
from proxy.stores.shared_memory.records import PAGE_PAIRS, Memory, digest


class SharedWaitingRoom(WaitingRoom):
    """The waiting room as one worker uses it. `row`: the worker's row of the memory; `capacity`: the most calls that
    may wait in all workers together.
    """

    __slots__ = ("_memory", "_page", "_row")

    def __init__(self, memory: Memory, row: int, capacity: int = 2000) -> None:
        super().__init__(capacity)
        self._memory = memory
        self._row = row
        self._page = memory.page(row)

    def enter(self, upstream: str, held: bool = False, guest: Guest | None = None) -> bool:
        """Take a place for a waiting call, if the limits allow one more call over all workers. Returns whether a place
        was taken. `held`: a gate of the upstream holds the call, so the upstream's share is checked as well as
        `limits.waiting`. `guest`: this call's wait. If there is no room for it, a held call of this worker with a lower
        priority gives up its place to it.
        """
        key = digest("waiting", upstream) if held else 0
        memory = self._memory
        with memory.waiting_lock:
            if held and _pair_of(memory, self._page, key) < 0:
                return False  # the table is full: calls of PAGE_PAIRS upstreams are held here already
            elsewhere = self._elsewhere(key)
            if not self._enter(upstream, held, *elsewhere):
                ousted = self._oust(upstream, held, guest, *elsewhere)
                if ousted is None:
                    return False
                self._publish(ousted.upstream, digest("waiting", ousted.upstream))
                self._enter(upstream, held, *elsewhere)
            if held:
                self._sit(guest)
                self._publish(upstream, key)
            memory.words[self._page] = self.waiting
            return True

    def leave(self, upstream: str, held: bool = False, guest: Guest | None = None) -> None:
        memory = self._memory
        with memory.waiting_lock:
            super().leave(upstream, held, guest)
            memory.words[self._page] = self.waiting
            if held:
                self._publish(upstream, digest("waiting", upstream))

    def _publish(self, upstream: str, key: int) -> None:
        """Write the number of this upstream's held calls to the worker's page, which has a place for the upstream's
        `key`, the hash of its name.
        """
        memory, pair = self._memory, _pair_of(self._memory, self._page, key)
        memory.words[pair + 1] = count = self._held.get(upstream, 0)
        if count:
            memory.words[pair] = key
        else:
            _sweep(memory, self._page, pair)

    def held_for(self, upstream: str) -> int:
        return super().held_for(upstream) + self._elsewhere(digest("waiting", upstream))[1]

    def _elsewhere(self, key: int) -> tuple[int, int]:
        """Return the number of calls that wait in other workers, and the number of calls there that are held by a gate
        of the upstream with this key (the hash of its name).
        """
        memory, words = self._memory, self._memory.words
        waiting = held = 0
        for row in range(1, memory.rows + 1):
            if row == self._row:
                continue
            page = memory.page(row)
            here = words[page]
            waiting += here
            if here and key:
                pair = _pair_of(memory, page, key)
                held += words[pair + 1] if pair >= 0 and words[pair] == key else 0
        return waiting, held


def _pair_of(memory: Memory, page: int, key: int) -> int:
    """The index of an upstream's pair on a worker's page: the pair of words (key, count) that has the upstream's `key`
    (the hash of its name), else the pair to put it in; -1 if the page's table is full.
    """
    words, table, spare = memory.words, page + 1, -1
    for step in range(PAGE_PAIRS):
        pair = table + 2 * ((key + step) % PAGE_PAIRS)
        found = words[pair]
        if found == key:
            return pair
        if spare < 0 and not words[pair + 1]:
            spare = pair
        if not found:
            break
    return spare


def _sweep(memory: Memory, page: int, pair: int) -> None:
    """Free the pair at the word `pair` of the page at the word `page`, whose count is 0, and any pairs with the count 0
    right before it. Do nothing if the next pair is in use: a search goes from pair to pair and ends at a free one, so
    it would miss the later pairs.
    """
    words, table = memory.words, page + 1
    number = (pair - table) // 2
    if words[table + 2 * ((number + 1) % PAGE_PAIRS)]:
        return
    while words[pair] and not words[pair + 1]:
        words[pair] = 0
        number = (number - 1) % PAGE_PAIRS
        pair = table + 2 * number
