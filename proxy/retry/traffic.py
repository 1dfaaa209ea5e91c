"""The count of the attempts to one endpoint: how many are under way, and how many have ended.

Every attempt is counted here, twice, even while all is well; so this is compiled, and does nothing else. What is known
beyond it costs only the attempts that `is_watched` or chance names (`proxy.retry.governor`).
"""

from __future__ import annotations


class Traffic:
    """The attempts to one endpoint, as one process counts them. `flying`: those under way; `ended`: those that have
    ended; `answered_at`: when one was answered last (seconds on the callers' clock); `is_watched`: every attempt that
    goes well has to be reported to the governor; `note_at`: the first that goes well from this time on has to be, too,
    so that routes to which few calls go are known to answer.
    """

    __slots__ = ("answered_at", "ended", "flying", "is_watched", "note_at")

    def __init__(self) -> None:
        self.flying = self.ended = 0
        self.answered_at = float("-inf")
        self.is_watched = True
        self.note_at = float("-inf")

    def went_well(self, now: float) -> bool:
        """Note that an attempt was answered well. Returns whether it has to be reported to the governor."""
        self.flying -= 1
        self.ended += 1
        self.answered_at = now
        return self.is_watched or self.ended & 15 == 0 or now >= self.note_at

    @property
    def is_timed(self) -> bool:
        """Whether the time of the answer that came last is measured: that of one in sixteen is (contract, section 14),
        and of all while attempts are watched.
        """
        return self.is_watched or self.ended & 15 == 0

    def failed(self) -> None:
        """Note that an attempt has failed."""
        self.flying -= 1
        self.ended += 1

    def dropped(self) -> None:
        """Note that an attempt was cancelled, or not decided."""
        self.flying -= 1
