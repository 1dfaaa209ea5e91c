"""The count of the attempts to one endpoint: how many are under way, and how many have ended.

Every attempt is counted here, twice, even while all is well; so this is compiled, and does nothing else. What is known
beyond it costs only the attempts that `is_watched` or chance names (`proxy.retry.governor`).
"""

from __future__ import annotations


class Traffic:
    """The attempts to one endpoint, as one process counts them. `flying`: those under way; `ended`: those that have
    ended; `answered_at`: when one was answered last (seconds on the callers' clock); `is_watched`: every attempt that
    goes well has to be reported to the governor.
    """

    __slots__ = ("answered_at", "ended", "flying", "is_watched")

    def __init__(self) -> None:
        self.flying = self.ended = 0
        self.answered_at = float("-inf")
        self.is_watched = True

    def went_well(self, now: float) -> bool:
        """Note that an attempt was answered well. Returns whether it has to be reported to the governor."""
        self.flying -= 1
        self.ended += 1
        self.answered_at = now
        return self.is_watched or self.ended & 15 == 0  # contract, section 14: the time of one in sixteen is measured

    def failed(self) -> None:
        """Note that an attempt has failed."""
        self.flying -= 1
        self.ended += 1

    def dropped(self) -> None:
        """Note that an attempt was cancelled, or not decided."""
        self.flying -= 1
