"""The trial of a limit: it finds out whether attempts were refused for want of capacity, or by chance.

Contract, section 14: a limit "is given up where at half as much, over 20 attempts at least, as many fail and answers
come as fast as usual (that was not load)". First, the attempts that were under way when the limit began are compared
with those that were sent next, under the limit. Later, each time that clearly fewer attempts are sent a second than
before, the latest attempts are compared with those of the last comparison.

A limit often begins with refusals that came together by chance, so the share of refusals before it is known only
roughly. If answers were slow, and are as slow at half the load, the load is not the reason. A small share of refusals
under the limit then counts as if it were as large as before.
"""

from __future__ import annotations

import math

_NEVER = float("inf")

#: The number of attempts that are compared at a time.
_ATTEMPTS = 20
#: More attempts than are ever under way: taken off where it is not known how those under way will end.
_UNKNOWN = -1_000_000_000
#: The fewest answers, unless all attempts have ended: they show how long answers take.
_ANSWERS = 4
#: The most attempts that are waited for if the share of refusals is smaller than before, but not below this part of it:
#: then it is not clear yet whether they are chance.
_ENOUGH, _UNCLEAR = 60, 0.3
#: The fewest attempts that were under way when the limit began, for their share of refusals to be known.
_UNDER_WAY = 8
#: The fewest attempts that must have ended, and the share of refused ones below which most attempts count as served.
_FEW, _MANY = 4, 0.7
#: The share of refusals that is expected if too few attempts were under way to know it: three of ten, as in the
#: evidence.
_EXPECTED = 0.3
#: The least part of the earlier share of failures at which as many attempts fail as before; and the shares of failures
#: below which, and above which, they are not called chance.
_AS_MANY, _LEAST, _MOST = 0.6, 0.02, 0.5
#: The share of failures above which they are never called chance.
_MOST_OF_ALL = 0.85
#: Less is sent than before if it is at most the first part of what was sent; answers are as slow as before if they take
#: at least the second part of the earlier time. Attempts that were under way when the limit began are slower than most,
#: since others had ended.
_LESS, _AS_SLOW = 0.6, 0.65
#: The part of the answers that has to come about as fast as usual.
_NEARLY_ALL = 0.8
#: Answers are about as fast as usual up to this multiple of the usual time.
FAST = 2.5


class Cohort:
    """A count of attempts that were sent at about the same time. `ended`: how many have ended. `refused`: how many of
    these were refused for want of capacity. `quick`: how many answers came about as fast as usual. `silent`: how many
    had no answer. `under_way`: how many are under way; they count as served.
    """

    __slots__ = ("_logs", "_timed", "ended", "quick", "refused", "silent", "under_way")

    def __init__(self) -> None:
        self.clear()

    def count(self, ratio: float, refused: bool, silent: bool = False) -> None:
        """Count an attempt that has ended. `ratio`: the time that its answer took, as a multiple of its route's usual
        time. `refused`: it was refused for want of capacity. `silent`: it had no answer.
        """
        self.ended += 1
        self.refused += refused
        self.silent += silent
        self.quick += ratio <= FAST
        if not refused and ratio > 0.0:
            self._timed += 1
            self._logs += math.log(ratio)

    def clear(self) -> None:
        """Set all counts to zero, so that other attempts can be counted from now on."""
        self.ended = self.refused = self.quick = self.silent = self._timed = self.under_way = 0
        self._logs = 0.0  # the sum of the logarithms of the multiples that `_timed` answers took

    @property
    def slowness(self) -> float:
        """The geometric mean of the times that answers took, each as a multiple of its route's usual time; infinity if
        no time is known.
        """
        return math.exp(self._logs / self._timed) if self._timed else _NEVER

    @property
    def is_fast(self) -> bool:
        """Whether nearly all answers came about as fast as usual."""
        return self.quick >= _NEARLY_ALL * (self.ended - self.refused)

    @property
    def known(self) -> int:
        """The number of attempts that have been served or refused, or count as served."""
        return self.ended + max(0, self.under_way)

    @property
    def share(self) -> float:
        """The share (0 to 1) of attempts that were refused."""
        return self.refused / self.known if self.known else 0.0

    @property
    def least_share(self) -> float:
        """The share (0 to 1) of attempts that were refused. If it is so small that chance may have added to it, the
        result is lower, by the standard deviation of the number of refusals.
        """
        share = self.share
        return share if share >= _EXPECTED else max(0.0, self.refused - math.sqrt(self.refused)) / max(1, self.known)


class Trial:
    """The trial of one limit, which shows whether it helps to send less. Times are seconds on the callers' clock.

    `is_on`: the trial is under way, since the limit began with refusals, which may have been chance. `first`: the
    attempts that were under way when the limit began. `second`: the latest attempts that were sent since then. `pace`:
    the attempts a second before the limit.
    """

    __slots__ = (
        "_by_silence", "_is_first", "_seen", "_share", "_since", "_slowness", "first", "is_on", "pace", "second",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_on = False
        self.first = Cohort()  # the attempts that were under way when the limit began
        self.second = Cohort()  # the latest of those that were sent since
        self._since = 0.0  # since when the second cohort is counted
        self._is_first = True
        self._by_silence = False  # it began since attempts had no answer, under a limit of returning calls
        self.pace = 0.0  # attempts a second, as many as fail with the share,
        self._seen = 0.0  # the share of refusals just before the limit, of few attempts
        self._share = 0.0  # and whose answers took this multiple of the usual time
        self._slowness = _NEVER

    def begin(self, pace: float, seen: float, now: float, silent: bool = False) -> None:
        """Begin the trial of a limit that begins now. `pace`: the attempts a second before it. `seen`: the share (0 to
        1) of the latest of these that was refused. `silent`: an attempt that had no answer under the limit is the
        reason for the trial. Answers that are as slow as before then show nothing, since a queue may be the reason.
        """
        self._seen = seen
        self.is_on = self._is_first = True
        self.pace, self._share, self._slowness, self._since = pace, _EXPECTED, _NEVER, now
        self.first.clear()
        self.second.clear()
        self.second.silent, self._by_silence = int(silent), silent

    def restart(self, now: float) -> None:
        """Forget the attempts that were sent under the limit so far, because the limit works in another way from now
        on: sendings are spaced.
        """
        self._since = now
        self.second.clear()

    def sent_since(self, now: float) -> tuple[float, int, int]:
        """Three numbers of the attempts that are compared with those before: how many were made a second, how many have
        ended, and how many of these were refused.
        """
        return self.second.known / max(now - self._since, 1e-3), self.second.known, self.second.refused

    def end(self) -> None:
        """End the trial without a result: nothing is compared any more."""
        self.is_on = False

    @property
    def is_first(self) -> bool:
        """Whether the trial is under way and has made no comparison yet."""
        return self.is_on and self._is_first

    @property
    def shows_no_queue(self) -> bool:
        """Whether some attempts were answered, and nearly all of them about as fast as usual. Then no requests queue in
        the upstream.
        """
        return self.first.quick + self.second.quick > 0 and self.first.is_fast and self.second.is_fast

    @property
    def is_careful(self) -> bool:
        """Whether the limit should not be cut before the trial's first comparison, because most attempts are served and
        all are answered.
        """
        if not self.is_on or not self._is_first:
            return False
        known, refused = self.first.ended + self.second.known, self.first.refused + self.second.refused
        return known >= _FEW and refused < _MANY * known and not self.first.silent and not self.second.silent

    def sent(self) -> None:
        """Count an attempt that is sent under the limit. As long as refusals come sooner than other answers, it counts
        as served while it is under way: otherwise, where answers take long, nearly all the attempts that have ended
        would be refused ones.
        """
        self.second.under_way += 1

    def count(
        self, ratio: float, sent: float, begun: float, refused: bool, silent: bool = False, late: bool = False
    ) -> None:
        """Count an attempt that has ended. `ratio`: the time that its answer took, as a multiple of its route's usual
        time. `sent`: the time at which it was sent. `begun`: the time at which the limit began. `refused`: it was
        refused for want of capacity. `silent`: it had no answer. `late`: it was refused, but no sooner than served
        attempts are answered.
        """
        if sent < begun:
            self.first.count(ratio, refused=refused, silent=silent)
        elif sent >= self._since:
            self.second.under_way = _UNKNOWN if late else self.second.under_way - 1
            self.second.count(ratio, refused=refused, silent=silent)

    def chance(self, now: float, several: bool = True) -> float:
        """Compare the attempts of the trial, if enough have ended. Returns the share (0 to 1) of attempts that fail by
        chance; 0 if the comparison shows that they fail for want of capacity, or shows nothing yet.

        `several`: the limit held several calls at a time. Then a share above a half is never called chance: too few
        attempts are compared for that, and if it were a mistake, all of these calls would be sent to an upstream that
        refuses most.
        """
        first, second = self.first, self.second
        if not self.is_on or second.known < _ATTEMPTS or second.ended < min(_ATTEMPTS, second.refused + _ANSWERS):
            return 0.0
        pace, share, slowness = second.known / max(now - self._since, 1e-3), second.share, second.slowness
        if self._is_first and first.ended:
            self._slowness = first.slowness
            if first.ended >= _UNDER_WAY:
                self._share = first.least_share
        is_less = pace <= _LESS * self.pace or (self._is_first and first.ended >= _UNDER_WAY)
        part = min(1.0, pace / max(_LESS * self.pace, 1e-3))  # the less is sent, the fewer refusals load would explain
        is_slow = _AS_SLOW * self._slowness <= slowness < _NEVER and not self._by_silence
        as_slow = second.is_fast or is_slow
        stays_slow = is_slow and slowness > FAST and not second.is_fast
        as_many = stays_slow or share >= max(_LEAST, _AS_MANY * part * self._share)
        as_many = as_many and (share <= _MOST or (not several and self._is_chance(share, pace)))
        answered = second.silent * 2 <= second.refused or second.is_fast  # in a queue, other answers are slow too
        if is_less and as_many and as_slow and answered:
            return max(share, _LEAST)
        if is_less and as_slow and answered and _UNCLEAR * self._share <= share <= _MOST and second.known < _ENOUGH:
            return 0.0  # more attempts will tell
        if pace > _LESS * self.pace:  # as much was sent: this says better what to expect
            self._seen = share
            self.pace, self._share, self._slowness = max(pace, self.pace), share, min(slowness, self._slowness)
        self._is_first, self._since = False, now
        second.clear()
        return 0.0

    def _is_chance(self, share: float, pace: float) -> bool:
        """Whether refusals were chance although many attempts were refused. `share`: the share (0 to 1) of the attempts
        under the limit that was refused. `pace`: how many of these were sent a second.

        If refusals came from load, the upstream would serve the same number of attempts a second at any pace, so at the
        earlier, higher pace a larger share would have been refused. So refusals are chance if the share that was
        refused just before the limit began is nearer to `share` than to that larger share. A few attempts before the
        limit are enough to tell.
        """
        if share > _MOST_OF_ALL:
            return False
        under_load = 1.0 - (1.0 - share) * min(1.0, pace / max(self.pace, 1e-3))
        return self._seen < (share + under_load) / 2.0
