"""What each worker uses of everything that has a limit, in its row of shared memory.

Law: a row has one writer. A sum may be one check old (100 ms), so a limit may be exceeded by what came since; only
connections are recorded as they come and go, and their limit is never exceeded (`proxy.server.connection_limit`).
Places to wait in are counted separately, also exactly (`proxy.stores.shared_memory.waiting_room`); their number here is
only for display.
"""

from __future__ import annotations

from proxy.resources import Usage
from proxy.server.connection_limit import Others
from proxy.stores.shared_memory.records import WORKERS, Memory
from proxy.supervisor.heartbeat import ENDS

_CONNECTIONS, _SURPLUS, _SEEN, _FILES, _BEAT, *_USAGE = range(5 + len(Usage._fields))


class Neighbours(Others):
    """The connections of a worker, and of all others."""

    def __init__(self, memory: Memory, row: int) -> None:
        self._words = memory.words
        self._mine = memory.row(row)
        self._count = memory.row(0)
        self._first, self._apart = memory.row(1), memory.row(2) - memory.row(1)

    def tell(self, held: int, surplus: int) -> None:
        """Publish how many connections are open here, and how many of them only to be told that there is no room."""
        self._words[self._mine + _CONNECTIONS], self._words[self._mine + _SURPLUS] = held, surplus

    def count(self) -> tuple[int, int]:
        """The same two counts, of all other workers together."""
        held = surplus = 0
        words = self._words
        for row in range(words[self._count]):
            at = self._first + row * self._apart
            if at != self._mine:
                held += words[at + _CONNECTIONS]
                surplus += words[at + _SURPLUS]
        return held, surplus


class Rows:
    """The rows of all workers; row 0 is the parent's, whose first word says how many there are. The parent alone gives
    them out: which are taken is known to its own `Rows` only.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._taken: set[int] = set()

    def write(self, row: int, usage: Usage, seen: int, files: int | None) -> None:
        """Write one's own row, but for connections (`Neighbours`). `files` None: as before."""
        at, words = self._memory.row(row), self._memory.words
        for word, used in zip(_USAGE, usage, strict=True):
            words[at + word] = used
        words[at + _SEEN] = seen
        if files is not None:
            words[at + _FILES] = files

    def beat(self, row: int) -> None:
        """Count one's own heartbeat on."""
        self._memory.words[self._memory.row(row) + _BEAT] += 1

    def beats_no_more(self, row: int) -> None:
        """Say that one's own process ends, and has no heartbeat any more."""
        self._memory.words[self._memory.row(row) + _BEAT] = ENDS

    def heartbeat(self, row: int) -> int:
        """A worker's heartbeats so far: NOT_BEGUN before the first, ENDS at its end."""
        return self._memory.words[self._memory.row(row) + _BEAT]

    def total(self, *, but: int = 0) -> Usage:
        """What all use, but the worker of one row."""
        return Usage(*(self._sum(word, but) for word in _USAGE))

    @property
    def seen(self) -> int:
        """Calls that ended in those that are there."""
        return self._sum(_SEEN)

    @property
    def files(self) -> int:
        """File descriptors in use by workers."""
        return self._sum(_FILES)

    def _sum(self, word: int, but: int = 0) -> int:
        memory = self._memory
        return sum(memory.words[memory.row(row) + word] for row in range(1, memory.rows + 1) if row != but)

    def free(self, row: int) -> None:
        """The worker of a row is no more: what it used is free, and so is the row."""
        self._taken.discard(row)
        self._clear(row)

    def take(self) -> int:
        """A free row for a new worker, which no other worker gets until it is freed. Only the parent asks."""
        row = next(row for row in range(1, WORKERS) if row not in self._taken)
        self._taken.add(row)
        self._clear(row)
        count = self._memory.row(0)
        self._memory.words[count] = max(self._memory.words[count], row)
        return row

    def _clear(self, row: int) -> None:
        at = self._memory.row(row)
        for word in (_CONNECTIONS, _SURPLUS, _SEEN, _FILES, _BEAT, *_USAGE):
            self._memory.words[at + word] = 0
        self._memory.wipe_pages(row)
