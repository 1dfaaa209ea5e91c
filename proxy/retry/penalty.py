"""The penalty of an endpoint that refuses connections (contract, section 6): it is passed over for 5 s, and for twice
as long each further time, up to 60 s.
"""

from __future__ import annotations

FIRST, _LAST = 5.0, 60.0


class Penalty:
    """The penalty of one endpoint. `until` is the time at which it ends, 0.0 while there is none; `seconds` is how long
    it lasts in all.
    """

    __slots__ = ("seconds", "until")

    def __init__(self) -> None:
        self.seconds = self.until = 0.0

    def refused(self, now: float) -> bool:
        """Note that the endpoint could not be connected to. Returns whether that begins a penalty: attempts that fail
        during one do not prolong it, so attempts that fail together count once.
        """
        if now < self.until:
            return False
        self.seconds = min(_LAST, self.seconds * 2 or FIRST)
        self.until = now + self.seconds
        return True

    def reached(self) -> None:
        """Note that the endpoint could be connected to: the penalty ends, and the next one begins at 5 s again."""
        self.seconds = self.until = 0.0
