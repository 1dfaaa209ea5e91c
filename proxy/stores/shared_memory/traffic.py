"""The attempts of all workers to one endpoint: each worker counts its own ends in a word that only it writes.

A refusal is judged by how many attempts have ended in all workers meanwhile. The endpoint's lane has a record, and each
worker a word for that record's number: so an attempt that ends costs one store, without a lock, and whoever judges adds
the words up. What a worker that has died has counted stays.
"""

from __future__ import annotations

from proxy.retry.capacity.traffic import Traffic
from proxy.stores.shared_memory.records import Memory

try:
    from proxy.retry.capacity.traffic_words import count_in
except ImportError:

    def count_in(traffic: Traffic, words: memoryview, at: int, /) -> None:
        """Have `traffic` count in the item `at` of `words`. Used if compiled code is not available."""
        traffic._word = words[at : at + 1]


class OtherWorkers:
    """The attempts to one endpoint that have ended in the other workers. `row`: this worker's row of the memory.
    `number`: that of the endpoint's lane.
    """

    __slots__ = ("_memory", "_row", "number")

    def __init__(self, memory: Memory, row: int, number: int) -> None:
        self._memory = memory
        self._row = row
        self.number = number

    def __call__(self) -> int:
        return ended_in_all(self._memory, self.number, but=self._row)


def ended_in_all(memory: Memory, number: int, *, but: int = -1) -> int:
    """The attempts that are counted under this number in all workers, except that of the row `but`."""
    words, rows = memory.words, range(memory.rows + 1)
    return sum([words[memory.ended(row) + number] for row in rows if row != but])


def count_by(memory: Memory, row: int, traffic: Traffic, number: int) -> None:
    """Have `traffic` count for all workers under the number of its endpoint's lane, if it does not do so already.
    `row`: this worker's row of the memory.
    """
    before = traffic.others
    if isinstance(before, OtherWorkers) and before.number == number:
        return
    at = memory.ended(row) + number
    count_in(traffic, memory.words, at)
    traffic.share(memory.words[at], OtherWorkers(memory, row, number))
