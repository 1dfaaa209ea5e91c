"""The comparison of attempts at several loads: are they refused because of the load, or by chance?

If an upstream lacks capacity, the share of refused attempts rises with the number that are sent. Where the upstream's
queue is short, the odds of a refusal are in proportion to the load (Erlang's loss formula for one server). If attempts
are refused by chance, the odds are the same at any load. The twenty attempts of a trial at half the load can hardly
tell the two apart. So when a limit was given up because attempts seemed to fail by chance, later attempts are compared
with those of its trial. If clearly more of them are refused, the load was the reason after all, and the next trials are
judged together with these counts.

Where refusals come sooner than other answers, an attempt that is under way counts as served. Otherwise nearly all the
attempts that have ended just after the limit was given up would be refused ones, however few are refused by chance.
"""

from __future__ import annotations

import math

_NEVER = float("inf")

#: Seconds for which attempts are compared, and how many loads are at most.
_KEPT, _MOST = 120.0, 6
#: The fewest attempts after which it is judged whether giving up the limit was wrong; and the most.
_FEWEST, _LAST = 10, 300
#: The logarithm of how much more probable load must be than chance, for a limit that was given up to begin again; and
#: for the next one not to be given up.
_AGAIN, _STAYS = 4.5, 1.5
#: The steps in which the odds are found that explain the refusals best; and their bounds, as logarithms.
_STEPS, _BOUND = 30, 30.0


class Loads:
    """The attempts of one lane at several loads, and those since its limit was given up. Times are seconds on the
    callers' clock, and paces are attempts a second.
    """

    __slots__ = ("_at", "_counts", "_ended", "_paces", "_refusals", "_refused", "_sent", "_since")

    def __init__(self) -> None:
        self._at = [-_NEVER] * _MOST  # when the attempts at each load had ended, the latest one at the end,
        self._paces = [0.0] * _MOST  # at which pace they were sent,
        self._counts, self._refused = [0] * _MOST, [0] * _MOST  # how many they were, and how many of them were refused
        self._since = _NEVER  # when the limit was given up,
        self._ended = self._refusals = 0  # and how many attempts had ended, and were refused, in all by then,
        self._sent = 0  # and how many had been sent

    def add(self, pace: float, ended: int, refused: int, now: float) -> None:
        """Note attempts that were made at one load. `pace`: how many a second were sent. `ended`: how many of them
        ended. `refused`: how many were refused.
        """
        self._at, self._paces = [*self._at[1:], now], [*self._paces[1:], pace]
        self._counts, self._refused = [*self._counts[1:], ended], [*self._refused[1:], refused]

    def gave_up(self, ended: int, refusals: int, now: float, flying: int = 0) -> None:
        """Note that the limit was given up. `ended`: how many attempts had ended in all by then. `refusals`: how many
        were refused. `flying`: how many attempts are under way.
        """
        self._since, self._ended, self._refusals, self._sent = now, ended, refusals, ended + flying

    def refused(self, ended: int, refusals: int, now: float, flying: int = 0) -> bool:
        """Note that an attempt was refused while there was no limit. Returns whether it was wrong to give the limit up,
        since attempts are refused because of the load. The arguments are those of `gave_up`; but `flying` is 0 if the
        attempt was refused no sooner than others are answered.
        """
        if self._since == _NEVER:
            return False
        count, refused = max(ended - self._ended, ended + flying - self._sent), refusals - self._refusals
        if count > _LAST:
            self._since = _NEVER
        if not _FEWEST <= count <= _LAST:
            return False
        pace = count / max(now - self._since, 0.05)
        if self._more_probable(pace, count, refused, now) < _AGAIN:
            return False
        self.add(pace, count, refused, now)
        self._since = _NEVER
        return True

    @property
    def latest(self) -> tuple[float, float]:
        """The pace (attempts a second) of the attempts that were noted last, and the share of them that was refused (0
        to 1).
        """
        return self._paces[-1], self._refused[-1] / self._counts[-1]

    def explain(self, pace: float, ended: int, refused: int, now: float) -> bool:
        """Whether the load explains the refusals of a trial, and those noted before, better than chance does. The
        arguments are those of `add`.
        """
        return self._more_probable(pace, ended, refused, now) > _STAYS

    def _more_probable(self, pace: float, ended: int, refused: int, now: float) -> float:
        """The logarithm of the ratio of two probabilities: that of all refusals if load is their cause, to that if
        chance is. The arguments, which are those of `add`, describe further attempts that are included.
        """
        known = zip(self._at, self._paces, self._counts, self._refused, strict=True)
        kept = [(rate, count, part) for at, rate, count, part in known if now - at < _KEPT] + [(pace, ended, refused)]
        count, failed = sum(each[1] for each in kept), sum(each[2] for each in kept)
        if len(kept) < 2 or failed in (0, count):
            return 0.0
        low, high = -_BOUND, _BOUND
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            expected = sum(n * _share(middle, pace) for pace, n, _ in kept)
            low, high = (middle, high) if expected < failed else (low, middle)
        return sum(
            _likelihood(n, part, _share(low, pace)) - _likelihood(n, part, failed / count) for pace, n, part in kept
        )


def _share(level: float, pace: float) -> float:
    """The share of attempts that is refused at the pace `pace` (attempts a second). `level`: the logarithm of the odds
    of a refusal at one attempt a second.
    """
    return 1.0 / (1.0 + math.exp(-level) / max(pace, 1e-3))


def _likelihood(ended: int, refused: int, share: float) -> float:
    """The logarithm of the probability that `refused` of `ended` attempts are refused, if each is refused with the
    probability `share`.
    """
    share = min(1.0 - 1e-9, max(1e-9, share))
    return refused * math.log(share) + (ended - refused) * math.log(1.0 - share)
