"""Where lines go: a file descriptor, written to in batches, and never waited for.

Law: a reader that stands still (a full pipe, a stopped terminal) holds no call up. Lines are kept up to a limit; past
it they are dropped and the number of those is written when there is room again.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from typing import Protocol

#: A pipe that is ready for writing takes this much without blocking (POSIX: PIPE_BUF on Linux); a file takes any.
_CHUNK = 4096
_FILE_CHUNK = 1024 * 1024
#: Bytes kept for a reader that stands still.
_KEPT = 8 * 1024 * 1024
#: Seconds from the first line of a batch until it is written, and between tries where nobody reads.
GATHER = 0.02
_AGAIN = 0.2

Later = Callable[[float, Callable[[], None]], object]


class Sink(Protocol):
    """Who takes whole lines, each with its line end."""

    def add(self, line: str) -> None:
        """Take one."""
        ...


class Turn(Protocol):
    """Whose turn it is to write, where several processes write to one pipe: lines must not be mixed."""

    def take(self) -> bool:
        """Whether it is ours now; it is not waited for."""
        ...

    def give(self) -> None:
        """Let others write."""
        ...


class LineSink:
    """A sink over a file descriptor. `later(seconds, function)` is the event loop's `call_later`."""

    def __init__(self, descriptor: int, later: Later, turn: Turn | None = None) -> None:
        self._turn = turn
        self._has_turn = False
        self._descriptor = descriptor
        self._later = later
        self._lines: list[str] = []
        self._rest = bytearray()
        self._dropped = 0
        self._set = False
        self._broken = False
        self._chunk = _FILE_CHUNK if stat.S_ISREG(os.fstat(descriptor).st_mode) else _CHUNK
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def add(self, line: str) -> None:
        """Take one line; it is written within GATHER seconds."""
        self._lines.append(line)
        if not self._set:
            self._set = True
            self._later(GATHER, self._flush)

    def _flush(self) -> None:
        self._set = False
        if not self._gather():
            return
        if not self._may_write() or not self._write(block=False):
            self._set = True
            self._later(_AGAIN, self._flush)

    def close(self) -> None:
        """Write what is left, waiting at most a second for a reader that stands still."""
        if not self._gather():
            return
        for _ in range(100):
            if self._may_write():
                break
            select.select([], [], [], 0.01)
        self._write(block=True)

    def _may_write(self) -> bool:
        if self._turn is not None and not self._has_turn:
            self._has_turn = self._turn.take()
            return self._has_turn
        return True

    def _gather(self) -> bool:
        lines, self._lines = self._lines, []
        if self._broken:
            return False
        if len(self._rest) > _KEPT:
            self._dropped += len(lines)
            return True
        if self._dropped and lines:
            lines.append(f'{{"event":"dropped","lines":{self._dropped}}}\n')
            self._dropped = 0
        self._rest += "".join(lines).encode("utf-8", "backslashreplace")
        return bool(self._rest)

    def _write(self, *, block: bool) -> bool:
        """Whether all of it went out (or never will)."""
        rest, sent = self._rest, 0
        while sent < len(rest) and self._poll.poll(1000 if block else 0):
            try:
                sent += os.write(self._descriptor, rest[sent : self._upto(sent)])
            except BlockingIOError:
                break
            except OSError:  # the reader is gone for good: a log nobody reads is no reason to stop serving
                self._broken = True
                self._rest = rest = bytearray()
                break
        within_a_line = sent and rest[sent - 1 : sent] not in (bytearray(b"\n"), bytearray())
        if self._turn is not None and self._has_turn and not within_a_line:
            self._has_turn = False
            self._turn.give()
        del rest[:sent]
        return not rest

    def _upto(self, sent: int) -> int:
        """The end of what is written at once: of a line if one ends there, so that a kill leaves none half written."""
        end = sent + self._chunk
        if end >= len(self._rest):
            return end
        return self._rest.rfind(b"\n", sent, end) + 1 or end
