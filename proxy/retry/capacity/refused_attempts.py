"""The refused attempts of a test during which a delay holds only the call that was refused."""

from __future__ import annotations

#: The latest refusals, and the most attempts of which they may be, for most attempts to count as refused.
_REFUSED, _OF = 14, 16
#: The number of an attempt that is none: far below that of any other.
_NO_ATTEMPT = -1_000_000_000


class RefusedAttempts:
    """The count of a test's attempts, from the first refused one on. `sent`: how many were sent. `refused`: how many
    were refused. `are_most`: nearly all of the latest attempts were refused.
    """

    __slots__ = ("_before", "_latest", "are_most", "refused", "sent")

    def __init__(self) -> None:
        self._before = -1  # how many attempts had been sent before; below 0: none was refused yet
        self._latest = [_NO_ATTEMPT] * _REFUSED  # how many had ended at each of the latest refusals
        self.refused, self.sent = 0, 1
        self.are_most = False

    def begin(self) -> None:
        """Begin a new count, which starts at the next attempt that is refused."""
        self._before = -1

    def add(self, ended: int, flying: int) -> bool:
        """Count an attempt that was refused. Returns whether it is the first of the count. `ended`: how many attempts
        have ended so far. `flying`: how many are under way.
        """
        latest, is_first = self._latest, self._before < 0
        if is_first:
            self._before, self.refused = ended + flying, 0
            latest = [_NO_ATTEMPT] * _REFUSED
        self._latest = [*latest[1:], ended]
        self.refused += 1
        self.sent = max(1, ended + flying - self._before)
        self.are_most = ended - self._latest[0] + 1 + flying <= _OF
        return is_first
