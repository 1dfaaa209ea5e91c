"""The penalty of an endpoint that refuses connections (contract, section 6): it is passed over for 5 s, and for twice
as long each further time, up to 60 s.
"""

from __future__ import annotations

_FIRST, _LAST = 5.0, 60.0


class Penalty:
    """The penalty of one endpoint. `until` is the time at which it ends, 0.0 while there is none."""

    __slots__ = ("_seconds", "until")

    def __init__(self) -> None:
        self._seconds = self.until = 0.0

    def refused(self, now: float) -> None:
        """Note that the endpoint could not be connected to, and begin a penalty. Attempts that fail during a penalty do
        not prolong it, so attempts that fail together count once.
        """
        if now >= self.until:
            self._seconds = min(_LAST, self._seconds * 2 or _FIRST)
            self.until = now + self._seconds

    def reached(self) -> None:
        """Note that the endpoint could be connected to: the penalty ends, and the next one begins at 5 s again."""
        self._seconds = self.until = 0.0
