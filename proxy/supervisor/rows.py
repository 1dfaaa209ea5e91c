"""The use that each worker makes of everything that has a limit, in the worker's row of shared memory.

Law: a row has one writer. A sum may be as old as one check (100 ms), so a limit may be exceeded by what was added
since; only connections are recorded as they are opened and closed, and their limit is never exceeded
(`proxy.server.connection_limit`). Places to wait in are counted separately, also exactly
(`proxy.stores.shared_memory.waiting_room`); their number here is only for display.
"""

from __future__ import annotations

from proxy.resources import Usage
from proxy.server.connection_limit import Others
from proxy.stores.shared_memory.records import WORKERS, Memory
from proxy.supervisor.heartbeat import ENDS

_SERVED, _SURPLUS, _SEEN, _FILES, _BEAT, *_USAGE = range(5 + len(Usage._fields))


class Neighbours(Others):
    """The numbers of app connections that are open: of this worker, which this object publishes, and of all other
    workers, which it reads.
    """

    def __init__(self, memory: Memory, row: int) -> None:
        self._words = memory.words
        self._mine = memory.row(row)
        self._count = memory.row(0)
        self._first, self._apart = memory.row(1), memory.row(2) - memory.row(1)

    def publish(self, served: int, surplus: int) -> None:
        """Publish how many app connections this worker serves (`served`), and how many others it holds open only to be
        refused (`surplus`).
        """
        self._words[self._mine + _SERVED], self._words[self._mine + _SURPLUS] = served, surplus

    def count(self) -> tuple[int, int]:
        """Return how many app connections all other workers serve together, and how many others they hold open only to
        be refused. The two numbers may be of different moments, so neither may be computed from the other. The number
        served is stored as a word of shared memory, not computed from the number of open connections and the number to
        be refused: that difference was one too small when another worker refused a connection between the readings.
        """
        served = surplus = 0
        words = self._words
        for row in range(words[self._count]):
            at = self._first + row * self._apart
            if at != self._mine:
                served += words[at + _SERVED]
                surplus += words[at + _SURPLUS]
        return served, surplus


class Rows:
    """The rows of all workers; row 0 is the parent's, and the first word of row 0 is the number of rows in use. Only
    the parent assigns rows: which are taken is known to its own `Rows` alone.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._taken: set[int] = set()

    def write(self, row: int, usage: Usage, seen: int, files: int | None) -> None:
        """Write this worker's row, except for its connections (`Neighbours`): its `usage`, the number of calls that it
        has `seen` end, and its open `files`; None keeps the row's earlier number of files.
        """
        at, words = self._memory.row(row), self._memory.words
        for word, used in zip(_USAGE, usage, strict=True):
            words[at + word] = used
        words[at + _SEEN] = seen
        if files is not None:
            words[at + _FILES] = files

    def beat(self, row: int) -> None:
        """Increase the heartbeat of the worker with this row by one."""
        self._memory.words[self._memory.row(row) + _BEAT] += 1

    def beats_no_more(self, row: int) -> None:
        """Mark in the row that its worker's process ends, and gives no heartbeat from now on."""
        self._memory.words[self._memory.row(row) + _BEAT] = ENDS

    def heartbeat(self, row: int) -> int:
        """The number of heartbeats so far of the worker with this row: NOT_BEGUN before the first, ENDS at its end."""
        return self._memory.words[self._memory.row(row) + _BEAT]

    def total(self, *, but: int = 0) -> Usage:
        """The use that all workers together make of everything with a limit, without the worker of row `but`."""
        return Usage(*(self._sum(word, but) for word in _USAGE))

    @property
    def seen(self) -> int:
        """The number of calls that ended in workers that still live."""
        return self._sum(_SEEN)

    @property
    def files(self) -> int:
        """The number of file descriptors in use by workers."""
        return self._sum(_FILES)

    def _sum(self, word: int, but: int = 0) -> int:
        memory = self._memory
        return sum(memory.words[memory.row(row) + word] for row in range(1, memory.rows + 1) if row != but)

    def free(self, row: int) -> None:
        """Free the row of a worker that has ended, so that what it used no longer counts."""
        self._taken.discard(row)
        self._clear(row)

    def take(self) -> int:
        """Return the number of a free row for a new worker, which no other worker gets until it is freed. Raises
        StopIteration if none is free. Only the parent calls this.
        """
        row = next(row for row in range(1, WORKERS) if row not in self._taken)
        self._taken.add(row)
        self._clear(row)
        count = self._memory.row(0)
        self._memory.words[count] = max(self._memory.words[count], row)
        return row

    def _clear(self, row: int) -> None:
        at = self._memory.row(row)
        for word in (_SERVED, _SURPLUS, _SEEN, _FILES, _BEAT, *_USAGE):
            self._memory.words[at + word] = 0
        self._memory.wipe_pages(row)
