"""The penalty of an endpoint that refuses connections (contract, section 6): no attempt is sent to it for 5 s, and for
twice as long each further time, up to 60 s, while another endpoint is left.
"""

from __future__ import annotations

FIRST, _LAST = 5.0, 60.0


class Penalty:
    """The penalty of one endpoint. `until`: the time at which it ends, 0.0 while there is none. `seconds`: how long it
    lasts in all.
    """

    __slots__ = ("seconds", "until")

    def __init__(self) -> None:
        self.seconds = self.until = 0.0

    def refused(self, now: float) -> bool:
        """Note that no connection to the endpoint could be made. Returns whether this begins a penalty. Attempts that
        fail during a penalty do not prolong it, so attempts that fail together count once.
        """
        if now < self.until:
            return False
        self.seconds = min(_LAST, self.seconds * 2 or FIRST)
        self.until = now + self.seconds
        return True

    def reached(self) -> None:
        """Note that a connection to the endpoint could be made: the penalty ends, and the next one lasts 5 s again."""
        self.seconds = self.until = 0.0
