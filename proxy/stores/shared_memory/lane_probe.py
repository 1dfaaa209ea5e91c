"""The probe of a lane's outage that the workers of one machine share: whose attempt it is, and whether that worker
still exists.
"""

from __future__ import annotations

import os

#: The probe under way is another worker's.
ELSEWHERE = object()


class SharedProbe:
    """The probe of one lane, as all workers know it."""

    __slots__ = ("_number", "_of", "_own")

    def __init__(self) -> None:
        self._of = 0  # the process whose attempt is the probe; 0 for none
        self._number = 0  # the number of the latest probe
        self._own = -1  # the number of this worker's latest probe

    def is_lost(self, probe: object) -> bool:
        """Whether `probe`, the one under way, is that of a worker that has ended."""
        return probe is ELSEWHERE and not _lives(self._of)

    def restore(self, of: float, number: float, known: object | None) -> object | None:
        """Take over the numbers that `state` returned in another worker. Returns the probe under way: `known`, this
        worker's, ELSEWHERE for another worker's, None for none.
        """
        self._of, self._number = int(of), int(number)
        if not self._of:
            return None
        is_own = self._number == self._own and self._of == os.getpid()
        return known if is_own and known is not None else ELSEWHERE

    def state(self, probe: object | None) -> tuple[float, float]:
        """The numbers that all workers share, for their memory. `probe`: the one under way, None for none."""
        if probe is None:
            self._of = 0
        elif probe is not ELSEWHERE and not (self._of and self._number == self._own):
            self._number += 1
            self._own, self._of = self._number, os.getpid()
        return self._of, self._number


def _lives(process: int) -> bool:
    """Whether a process with this id exists. One that has ended still does until its parent has taken note."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
