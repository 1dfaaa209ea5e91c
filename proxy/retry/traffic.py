"""The count of the attempts to one endpoint: how many are under way, and how many have ended.

Every attempt is counted here, at its beginning and at its end, even while all is well; so this module is compiled, and
does nothing else. The governor (the object that decides which calls may be sent) learns more of an attempt that
succeeds only if `is_watched`, or for one attempt in sixteen (`proxy.retry.governor`).
"""

from __future__ import annotations

#: Seconds between two measurements of the rate, and over which it is a mean.
_RATED_EVERY, _RATED_OVER = 1.0, 10.0


class Traffic:
    """The attempts to one endpoint, as one process counts them. `flying`: how many are under way. `ended`: how many
    have ended. `answered_at`: the time of the last answer (seconds on the callers' clock). `served_at`: the time of the
    last answer that was no failure. `is_watched`: every attempt that is answered well has to be reported to the
    governor. `note_at`: the first attempt that is answered well after this time has to be reported as well, so that
    routes to which few calls go are known to answer. `rate`: attempts a second while all was well, over some ten
    seconds; 0 if that is not known.
    """

    __slots__ = ("_rated", "_rated_at", "answered_at", "ended", "flying", "is_watched", "note_at", "rate", "served_at")

    def __init__(self) -> None:
        self.flying = self.ended = 0
        self.answered_at = self.served_at = float("-inf")
        self.is_watched = True
        self.note_at = float("-inf")
        self.rate = 0.0
        self._rated = 0  # how many had ended when the rate was worked out last,
        self._rated_at = float("-inf")  # at this time

    def went_well(self, now: float) -> bool:
        """Note that an attempt was answered well. Returns whether it has to be reported to the governor."""
        self.flying -= 1
        ended = self.ended = self.ended + 1
        self.answered_at = self.served_at = now
        return self.is_watched or ended & 15 == 0 or now >= self.note_at

    def measure(self, now: float) -> bool:
        """Measure the rate of attempts again, unless that was done within the last second. Called only while all is
        well. Returns whether the time that the latest answer took is to count for the usual times: every sixteenth does
        (contract, section 14) and, while `is_watched`, every one.
        """
        seconds = now - self._rated_at
        if seconds >= _RATED_EVERY:
            if seconds <= _RATED_OVER:
                rate = (self.ended - self._rated) / seconds
                self.rate += (rate - self.rate) * seconds / _RATED_OVER if self.rate else rate
            self._rated, self._rated_at = self.ended, now
        return self.is_watched or self.ended & 15 == 0

    def skip(self, now: float) -> None:
        """Leave the attempts that have ended since the last measurement out of the rate, because calls were held."""
        self._rated, self._rated_at = self.ended, now

    def failed(self) -> None:
        """Note that an attempt has failed."""
        self.flying -= 1
        self.ended += 1

    def dropped(self) -> None:
        """Note that an attempt was cancelled, or ended in a way that is no success and no failure."""
        self.flying -= 1
