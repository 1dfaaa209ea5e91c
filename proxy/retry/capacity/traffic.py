"""The count of the attempts to one endpoint: how many are under way, and how many have ended.

Every attempt is counted here, at its beginning and at its end, even while all is well; so this module is compiled, and
does nothing else. Where processes share the endpoint, each end costs one store in the memory that they share, so that a
refusal can be judged by the attempts of all of them. The governor (the object that decides which calls may be sent)
learns more of an attempt that succeeds only if `is_watched`, or for one attempt in sixteen
(`proxy.retry.weather.governor`).
"""

from __future__ import annotations

from collections.abc import Callable

#: Seconds between two measurements of the rate, and over which it is a mean.
_RATED_EVERY, _RATED_OVER = 1.0, 10.0


class Traffic:
    """The attempts to one endpoint, as one process counts them. `flying`: how many are under way. `ended`: how many
    have ended. `answered_at`: the time of the last answer (seconds on the callers' clock). `served_at`: the time of the
    last answer that was no failure. `is_watched`: every attempt that is answered well has to be reported to the
    governor. `note_at`: the first attempt that is answered well after this time has to be reported as well, so that
    routes to which few calls go are known to answer. `rate`: attempts a second while all was well, over some ten
    seconds, of all processes that share the endpoint; 0 if that is not known. `others`: returns how many attempts have
    ended in the other processes; None if no other process shares the endpoint.
    """

    __slots__ = (
        "_rated", "_rated_at", "_word", "answered_at", "ended", "flying", "is_watched", "note_at", "others", "rate",
        "served_at",
    )  # fmt: skip

    #: The word of shared memory that has `ended` for the other processes; a pointer when compiled.
    _word: memoryview

    def __init__(self) -> None:
        self.flying = self.ended = 0
        self.answered_at = self.served_at = float("-inf")
        self.is_watched = True
        self.others: Callable[[], int] | None = None
        self.note_at = float("-inf")
        self.rate = 0.0
        self._rated = 0  # how many had ended in all processes when the rate was worked out last,
        self._rated_at = float("-inf")  # at this time

    def went_well(self, now: float) -> bool:
        """Note that an attempt was answered well. Returns whether it has to be reported to the governor."""
        self.flying -= 1
        ended = self.ended = self.ended + 1
        self.answered_at = self.served_at = now
        if self.others is not None:
            self._word[0] = ended
        return self.is_watched or ended & 15 == 0 or now >= self.note_at

    def measure(self, now: float) -> bool:
        """Measure the rate of attempts again, unless that was done within the last second. Called only while all is
        well. Returns whether the time that the latest answer took is to count for the usual times: every sixteenth does
        (contract, section 14) and, while `is_watched`, every one.
        """
        seconds = now - self._rated_at
        if seconds >= _RATED_EVERY:
            if seconds <= _RATED_OVER:
                rate = (self.all_ended() - self._rated) / seconds
                self.rate += (rate - self.rate) * seconds / _RATED_OVER if self.rate else rate
            self._rated, self._rated_at = self.all_ended(), now
        return self.is_watched or self.ended & 15 == 0

    def skip(self, now: float) -> None:
        """Leave the attempts that have ended since the last measurement out of the rate, because calls were held."""
        self._rated, self._rated_at = self.all_ended(), now

    def failed(self) -> None:
        """Note that an attempt has failed."""
        self.flying -= 1
        ended = self.ended = self.ended + 1
        if self.others is not None:
            self._word[0] = ended

    def all_ended(self) -> int:
        """The number of attempts that have ended, in all processes that share the endpoint."""
        return self.ended if self.others is None else self.ended + self.others()

    def share(self, ended: int, others: Callable[[], int]) -> None:
        """Go on from a count of `ended`, which other processes see from now on. `others`: the attempts of those."""
        self.ended, self.others, self._rated_at = ended, others, float("-inf")

    def dropped(self) -> None:
        """Note that an attempt was cancelled, or ended in a way that is no success and no failure."""
        self.flying -= 1
