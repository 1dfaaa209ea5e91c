"""The probe of a lane's outage that the workers of one machine share: whose attempt it is, and whether that worker
still exists.

A process's number is made of its id and of the time at which it started. The id alone would not do: the system gives it
to another process after the first has ended, and then the first one's probe would never count as lost.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

#: The probe under way is another worker's.
ELSEWHERE = object()

#: Bits of a process's number that are its id (Linux gives none of more), and of the time at which it started.
_ID_BITS, _START_BITS = 22, 30


class SharedProbe:
    """The probe of one lane, as all workers know it."""

    __slots__ = ("_number", "_of", "_own")

    def __init__(self) -> None:
        self._of = 0  # the number of the process whose attempt is the probe; 0 for none
        self._number = 0  # the number of the latest probe
        self._own = -1  # the number of this worker's latest probe

    def is_lost(self, probe: object) -> bool:
        """Whether `probe`, the one under way, is that of a worker that has ended."""
        return probe is ELSEWHERE and number_of(self._of & (1 << _ID_BITS) - 1) != self._of

    def restore(self, of: float, number: float, known: object | None) -> object | None:
        """Take over the numbers that `state` returned in another worker. Returns the probe under way: `known`, this
        worker's, ELSEWHERE for another worker's, None for none.
        """
        self._of, self._number = int(of), int(number)
        if not self._of:
            return None
        is_own = self._number == self._own and self._of == _own_number(os.getpid())
        return known if is_own and known is not None else ELSEWHERE

    def state(self, probe: object | None) -> tuple[float, float]:
        """Return the two numbers to store in the memory that workers share: the process whose attempt is the probe (0
        for none), and the number of the latest probe. `probe`: the probe under way as this worker knows it, None for
        none.
        """
        if probe is None:
            self._of = 0
        elif probe is not ELSEWHERE and not (self._of and self._number == self._own):
            self._number += 1
            self._own, self._of = self._number, _own_number(os.getpid())
        return self._of, self._number


def number_of(process: int) -> int:
    """The number of the process with this id, which no earlier and no later process with the id has; 0 if there is no
    such process. One that has ended exists until its parent has taken note. Where the system does not say when a
    process started, the number is the id.
    """
    try:
        with contextlib.suppress(PermissionError):
            os.kill(process, 0)
    except ProcessLookupError:
        return 0
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        started = int(fields[19])  # ticks since the machine started: the twenty-second field of proc(5)
    except (OSError, ValueError, IndexError):
        return process
    return started % (1 << _START_BITS) << _ID_BITS | process


_own_number = cache(number_of)
