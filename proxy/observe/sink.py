"""The sink for lines: a file descriptor that is written to in batches and never waited for.

Law: a reader that stands still (a full pipe, a stopped terminal) delays no call and does not prevent the end of the
process; a full disk takes lines again once it has room. Lines are kept up to a limit; lines beyond it are dropped,
their number is written once there is room again, and the counter of lost lines is updated at once. Standard error gets
one line when lines can't be written, and one when they can be again.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import socket
import stat
from collections.abc import Callable
from functools import partial
from time import monotonic  # noqa: TID251  the end waits for a descriptor, on no loop
from typing import Protocol

#: A pipe that is ready for writing takes this much without blocking (POSIX: PIPE_BUF on Linux); a file takes any.
_CHUNK = 4096
_FILE_CHUNK = 1024 * 1024
#: Bytes kept for a reader that stands still.
_KEPT = 8 * 1024 * 1024
#: Seconds from the first line of a batch until it is written, and between tries while no reader takes any.
GATHER = 0.02
_AGAIN = 0.2
#: Seconds that the end waits for the reader.
_LAST = 1.0
#: The errors of a file or device without room, such as a file that may not grow any more: there may be room later.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_LINE_END = 10

#: Why lines are dropped where writing itself brings no error.
_STANDS_STILL = "nothing reads it, and lines are dropped"

Later = Callable[[float, Callable[[], None]], object]


class Sink(Protocol):
    """A receiver of whole lines, each with its line end."""

    def add(self, lines: str) -> None:
        """Take one line, or several at once."""
        ...


class LogSink(Sink, Protocol):
    """A sink that can write lines at once, without gathering them first."""

    def add_now(self, lines: str) -> None:
        """Take one line, or several at once, that have been gathered already: no further lines are waited for."""
        ...


class ClosingSink(Sink, Protocol):
    """A sink that has lines to write when it is closed."""

    def close(self) -> None:
        """Write the lines that are left, and wait for that only for a bounded time."""
        ...


class Turn(Protocol):
    """The right to write to a pipe to which several processes write. Only one process has it at a time, so that their
    lines are not mixed.
    """

    def take(self) -> bool:
        """Take the turn to write if no other process has it, without waiting; return whether this process has it."""
        ...

    def give(self) -> None:
        """End this process's turn to write, so that another process can take it."""
        ...


class LineSink:
    """A sink that writes to a file descriptor. `later(seconds, function)` is the event loop's `call_later`. `lost`:
    called with the number of lines that will never be written; `trouble`: called once with the reason when lines can't
    be written, and once with "" when they can be written again.
    """

    def __init__(
        self,
        descriptor: int,
        later: Later,
        turn: Turn | None = None,
        lost: Callable[[int], None] | None = None,
        trouble: Callable[[str], None] | None = None,
    ) -> None:
        self._turn = turn
        self._has_turn = False
        self._later = later
        self._lost = lost
        self._trouble = trouble
        self._is_in_trouble = False
        self._lines: list[str] = []  # one each, or several
        self._rest = bytearray()
        self._dropped = 0
        self._set = False
        self._broken = False
        self._within = False  # the last line that was written is not whole
        self._own: socket.socket | io.FileIO | None = None
        self._poll = select.poll()
        self._may_block = False
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:  # we were begun without one
            self._broken = True
            return
        self._chunk = _FILE_CHUNK if stat.S_ISREG(mode) else _CHUNK
        self._put, self._own, self._may_block = _writer(descriptor, mode)
        self._poll.register(descriptor, select.POLLOUT)

    def add(self, lines: str) -> None:
        """Take one line, or several at once; they are written within GATHER seconds."""
        self._lines.append(lines)
        if not self._set:
            self._set = True
            self._later(GATHER, self._flush)

    def add_now(self, lines: str) -> None:
        """Take one line, or several at once, and write at once as much as can be written."""
        self._lines.append(lines)
        self._write_gathered()

    def _flush(self) -> None:
        self._set = False
        self._write_gathered()

    def _write_gathered(self) -> None:
        """Write as many of the lines that are kept as can be written, and try again later with those that are left."""
        if self._gather() and not ((self._turn is None or self._may_write()) and self._write()) and not self._set:
            self._set = True
            self._later(_AGAIN, self._flush)

    def close(self) -> None:
        """Write the lines that are left. Waits at most a second in all for a reader that reads nothing or hardly
        anything.
        """
        if self._gather():
            until = monotonic() + _LAST
            while (not self._may_write() or not self._write()) and monotonic() < until:
                if self._has_turn:
                    self._poll.poll(10)
                select.select([], [], [], 0.01)
            self._lose(self._rest.count(b"\n"))
            self._rest.clear()
            self._give_turn()
        self._broken = True
        if self._own is not None:
            self._own.close()
            self._own = None

    def _may_write(self) -> bool:
        if self._turn is not None and not self._has_turn:
            self._has_turn = self._turn.take()
            return self._has_turn
        return True

    def _give_turn(self) -> None:
        if self._turn is not None and self._has_turn:
            self._has_turn = False
            self._turn.give()

    def _lose(self, lines: int) -> None:
        if lines and self._lost is not None:
            self._lost(lines)

    def _report(self, why: str) -> None:
        """Report why lines can't be written, unless that was reported already; if `why` is "", report that they can be
        written again.
        """
        if self._trouble is not None and self._is_in_trouble != bool(why):
            self._is_in_trouble = bool(why)
            self._trouble(why)

    def _gather(self) -> bool:
        lines, self._lines = "".join(self._lines), []
        if self._broken:
            self._lose(lines.count("\n"))
            return False
        if len(self._rest) > _KEPT:
            lost = lines.count("\n")
            self._dropped += lost
            self._lose(lost)
            self._report(_STANDS_STILL)
            return True
        if self._dropped and lines:
            lines += f'{{"event":"dropped","lines":{self._dropped}}}\n'
            self._dropped = 0
        self._rest += lines.encode("utf-8", "backslashreplace")
        return bool(self._rest)

    def _write(self) -> bool:
        """Write as many queued lines as the descriptor takes. Returns True if the queue is empty afterwards, because
        all lines were written or dropped (a line is dropped if it can never be written).
        """
        rest, sent = self._rest, 0
        while sent < len(rest) and (not self._may_block or self._poll.poll(0)):
            try:
                if not sent and len(rest) <= self._chunk:  # nearly always
                    sent = self._put(rest)
                else:
                    sent += self._put(rest[sent : self._upto(sent)])
            except BlockingIOError:
                break
            except OSError as error:
                self._report(error.strerror or str(error))
                if error.errno in _FULL:
                    break
                # The reader is gone for good: a log without a reader is no reason to stop serving.
                self._broken = True
                self._lose(rest.count(b"\n", sent))
                rest.clear()
                sent = 0
                break
        if self._broken:
            self._within = False
        elif sent:
            self._within = rest[sent - 1] != _LINE_END
        if self._has_turn and not self._within:  # else no other writer may write before the line is whole
            self._give_turn()
        if sent == len(rest):
            rest.clear()
        else:
            del rest[:sent]
        if self._is_in_trouble and not rest and not self._broken:
            self._report("")
        return not rest

    def _upto(self, sent: int) -> int:
        """The index at which the next write ends, if it begins at index `sent` of the queued bytes. That is the end of
        the last whole line that fits into one write, so that no line is half written if the process is killed. A line
        that is longer than one write is cut.
        """
        end = sent + self._chunk
        if end >= len(self._rest):
            return end
        return self._rest.rfind(b"\n", sent, end) + 1 or end


def _writer(descriptor: int, mode: int) -> tuple[Callable[[bytearray], int], socket.socket | io.FileIO | None, bool]:
    """Return three things: the function that writes to a descriptor without waiting; the object that has to be closed
    afterwards (None for none); and whether the function might block all the same if the descriptor is not ready.
    `mode`: the descriptor's mode, by `fstat`.

    A pipe or a terminal is opened a second time: whether writing blocks is a property of the open file, which other
    processes share (a shell, the process at the other end of `2>&1`). A regular file never blocks: it has room or has
    none.
    """
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=os.dup(descriptor))
        return lambda data: sock.send(data, socket.MSG_DONTWAIT), sock, False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK | os.O_NOCTTY
        try:
            own = io.FileIO(os.open(f"/proc/self/fd/{descriptor}", flags), "w")
        except OSError:  # another user's, or no such folder here
            return partial(os.write, descriptor), None, True
        return partial(os.write, own.fileno()), own, False
    return partial(os.write, descriptor), None, not stat.S_ISREG(mode)
