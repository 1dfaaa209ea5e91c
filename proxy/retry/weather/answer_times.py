"""The times between answers under one limit, how slow the answers are, and after what time attempts are given up.

Where even one attempt under way for each client is too much, sendings are spaced in time, and their pace (sendings a
second) depends on the answers (`proxy.retry.weather.limit`). Answers are rare then, and each shows how long the
upstream's queue was when its request was sent. So it matters whether answers become slower: a pace that grows until
they are too slow has grown for too long.
"""

from __future__ import annotations

_NEVER = float("inf")

#: The weight of the newest gap between answers in their mean, and the least weight in their mean over a longer time.
_NEWEST, _NEWEST_LONG = 0.125, 0.02
#: Answers are much slower than usual above this multiple of the usual time; or from this part of the time on after
#: which attempts are given up, if that is less; but never below this multiple.
MUCH_SLOWER, _PART, _LEAST = 6.0, 0.5, 2.0
#: The times that the rise from one answer's time to the next one's is added, to look ahead; and the seconds between the
#: two answers from which on the rise counts in full: if they come closer together, it is partly chance.
_AHEAD, _TREND = 2.0, 0.5
#: A usual time is too long if so many answers in a row come within less than this part of it: nine of ten answers take
#: longer than a true one. Such a time was learnt in bad weather, which a restart, say, has ended.
_IN_A_ROW, _QUICKER = 8, 0.5


class AnswerTimes:
    """The answers to attempts under one limit: the times between them, and how slow they are. Slowness is a multiple of
    the usual time of the answer's route.

    `gap` and `gap_long`: the mean seconds between two served attempts, over the last few and over many; 0 if none are
    known. `missing_at`: the time (seconds) of the latest refusal, if the upstream named two delays and served no
    attempt between them, which shows that all of its clients return together; otherwise minus infinity.
    """

    __slots__ = (
        "_at", "_count", "_given_up", "_last_gap", "_quicker", "_quicker_slowest", "_slower", "_usual", "gap",
        "gap_long", "missing_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self._usual = 0.0  # the usual time of the latest answer's route, in seconds
        self._given_up = _NEVER  # the multiple after which an attempt was given up last
        self.restart()

    def restart(self) -> None:
        """Forget the answers so far, because a new limit begins."""
        self.gap = self.gap_long = self._last_gap = 0.0
        self._count = 0
        self.missing_at = -_NEVER
        self._at = -_NEVER  # when the latest answer came
        self._slower = _NEVER  # the multiple that the latest answer took while sendings were spaced
        self._quicker = 0  # the latest answers in a row that were much quicker than usual,
        self._quicker_slowest = 0.0  # and the greatest multiple that one of them took

    def came(self, trip: float, ratio: float, now: float) -> None:
        """Note an answer that took `trip` seconds, which is `ratio` times the usual time (0 if that is not known)."""
        if ratio:
            self._usual = trip / ratio
        if self._at > -_NEVER:
            gap = self._last_gap = now - self._at
            self.gap += _NEWEST * (gap - self.gap) if self.gap else gap
            self._count += 1
            self.gap_long += max(_NEWEST_LONG, 1.0 / self._count) * (gap - self.gap_long)
        self._at = now

    def usual_for_now(self, ratio: float, usual: float) -> float:
        """Note an answer that took `ratio` times the usual time (0 if that is not known), and return the multiple of
        the usual time that is normal at present. The result is `usual`, the multiple so far, unless many answers in a
        row were much quicker; then it is the multiple of the slowest of these.
        """
        if not ratio or ratio >= _QUICKER * usual:
            self._quicker, self._quicker_slowest = 0, 0.0
            return usual
        self._quicker += 1
        self._quicker_slowest = max(self._quicker_slowest, ratio)
        if self._quicker < _IN_A_ROW:
            return usual
        usual = self._quicker_slowest
        self._quicker, self._quicker_slowest = 0, 0.0
        return usual

    def asked_to_wait_again(self, now: float, *, served: bool) -> None:
        """Note that the upstream named one more delay. `served`: the upstream has served an attempt since the previous
        delay.
        """
        if not served or self.missing_at > -_NEVER:
            self.missing_at = now

    def refused(self, now: float) -> None:
        """Note that an attempt was refused for want of capacity."""
        if self.missing_at > -_NEVER:
            self.missing_at = now

    def given_up(self, seconds: float, least: float) -> None:
        """Note that an attempt was given up after so many seconds without an answer. Nothing is noted if `seconds` is
        not more than `least` times the usual time: such an attempt was not given up because it took too long.
        """
        if self._usual and seconds > least * self._usual:
            self._given_up = seconds / self._usual

    @property
    def much_slower(self) -> float:
        """The multiple above which answers are much slower than usual."""
        return max(_LEAST, min(MUCH_SLOWER, _PART * self._given_up))

    def expected(self, slower: float) -> float:
        """Note an answer that took `slower` times the usual time, and return the multiple that answers will probably
        take soon, if they go on becoming slower as they did from the answer before to this one.
        """
        rise = max(0.0, slower - self._slower) * min(1.0, self._last_gap / _TREND)
        self._slower = slower
        return slower + _AHEAD * rise
