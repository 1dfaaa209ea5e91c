"""How an upstream's limit refills, if its answers say how much of it is left (contract, section 16, "Ahead").

Theory of the refill. Some providers refill a limit continuously, others at the end of a window. If answers name the
window, the limit is taken to refill evenly over it (contract), until they show that it does not: the same reset stays
for longer than two seconds, and no more is left, though by then something would have come back. If they name only the
time until the limit is full, that time shows which kind it is: under continuous refilling it is in proportion to what
was used, otherwise it does not depend on that. So two reports give the rate, if the amount used in one is at least
1.5 times that in the other. A reset that stays the same while attempts are sent is the end of a fixed window. A reset
that attempts put off, or at which only a part comes back, is that of a sliding window: there, each attempt's price
comes back when the attempt is older than the window.

Theory of the reset. From its reset on, a limit counts as full, less what was sent since and what others had used when
the last window ended, until an answer reports more: otherwise all waiting calls would be sent before the first answer
comes. If an answer does not report the limit, the limit no longer counts as full.

Answers that take long in comparison to the window come too late to say what others use. Then the limit holds no call.
"""

from __future__ import annotations

from proxy.retry.answers.limit_fields import ReportedLimit

_NEVER = float("inf")

#: The least change in the use of a limit between two reports that show how it refills, and how much the rates that both
#: show may differ.
_MORE_USED, _ALIKE = 1.5, 1.1
#: A limit that is whole again at its reset has at least this part of what is expected.
_PART = 0.5
#: The part of it that is back, at least, when all came back; and the part of its use that this process has to have
#: made, so that the use is explained.
_MOST, EXPLAINED = 0.9, 0.75
#: The seconds by which reports round the time of a reset, and the seconds for which they name the same one if the limit
#: is full at it.
SECOND, _STANDS = 1.0, 2.0
#: The least that comes back while the same reset is named, if a limit refills evenly.
_FILLED = 2.0
#: Usual lengths of a window, in seconds; and how many times as long as the longest time to a reset that was seen one
#: may be.
_USUAL, _ROUNDED = (3600.0, 1800.0, 900.0, 600.0, 300.0, 120.0, 60.0, 30.0, 20.0, 15.0, 10.0, 5.0, 2.0, 1.0), 1.02
#: The real cost of attempts, as a part of their estimates, is learnt from reports: the weight of the newest report, the
#: least such part, and the part of the limit that attempts must have used for a report to count.
_NEWEST, _LEAST, _ENOUGH = 0.2, 0.05, 0.2
#: The number of reports after which it counts as known what attempts really cost.
_REPORTS = 5
#: The part of a window from which on answers take too long to follow what others use of a limit; and the seconds that
#: they take then at least. The part from which on they take too long to follow what tokens cost, in a window that is
#: whole again at its reset.
_SLOW, _QUICK, _SLOW_TOKENS = 0.05, 0.2, 0.2
#: The part of a window from which on no answer says what is left of it.
_BEYOND = 0.3
#: The windows for which others are expected to go on using a limit.
_SHARED = 2.0


class _Scale:
    """The real cost of attempts, as a part of their estimates: `part`. `reports`: how many reports have shown it."""

    __slots__ = ("part", "reports")

    def __init__(self) -> None:
        self.part = 1.0
        self.reports = 0

    def learn(self, part: float) -> None:
        """Learn it from one report, by which attempts cost `part` of their estimates; more than 1 counts as 1."""
        self.reports += 1
        self.part = max(_LEAST, self.part + _NEWEST * (min(1.0, part) - self.part))


class Refill:
    """The knowledge of how one limit refills, which is found out if the limit's reports do not name a window.

    `rate`: what comes back each second; 0 until it is known. `window`: the longest time (seconds) from an attempt until
    the reset that its answer named. `took`: the longest time that an answer took. `takes`: the mean time that answers
    take. `slides`: the window slides, so that what was sent comes back when it is older than the window. `is_proven`:
    it is known whether the window slides. `in_part`: at the last reset only a part of the limit came back. `base`: what
    had been spent of the limit in all when its present window began. `others`: the part of the limit that others had
    used then. `unexplained`: the part that, by the last report, is used but not by this process. `shared_until`: until
    this time, others are expected to use much of the limit. `most`: the most that was ever left. `fits`: this process
    has not sent more within the window than is used. `is_fixed`: answers name a window, but nothing comes back
    before its end.
    """

    __slots__ = (
        "_earlier", "_least", "_longest", "_rated", "_scale", "_standing", "base", "fits",
        "in_part", "is_fixed", "is_proven", "most", "others", "rate", "shared_until", "slides", "takes",
        "took", "unexplained", "window",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rate = self.window = self.took = self.takes = self.others = self.unexplained = 0.0
        self.base = 1.0
        self._scale = _Scale()
        self.slides = self.is_proven = self.in_part = self.is_fixed = False
        self.fits = True
        self.most = 0.0
        self.shared_until = -_NEVER
        self._least = self._longest = 0.0  # the window is no shorter, and about as long as this
        #: The report that the next one is compared with: what it said was used, and the seconds until all is back.
        self._rated: tuple[float, float] | None = None
        #: An earlier report of a limit that refills all the time: what was left, when its attempt was sent, and what
        #: had been spent in all then.
        self._earlier: tuple[float, float, float] | None = None
        #: The reset that reports name; when the attempt was sent whose answer named it first; what was left then.
        self._standing = (0.0, 0.0, 0.0)

    @property
    def scale(self) -> float:
        """The real cost of attempts, as a part of their estimates."""
        return self._scale.part

    @property
    def is_scaled(self) -> bool:
        """Whether enough reports have shown what attempts really cost."""
        return self._scale.reports >= _REPORTS

    def learn_window(self, reported: ReportedLimit, took: float) -> None:
        """Learn how long the limit's window is, from a report in an answer that took `took` seconds. It is the longest
        time to a reset that was seen, or a usual length of windows that equals that time up to rounding.
        """
        self.takes += (took - self.takes) * (_NEWEST if self._longest else 1.0)
        self.took, self._longest = max(self.took, took), max(self._longest, reported.reset + took)
        whole = reported.reset % 1 == 0
        self._least = max(self._least, reported.reset + took - (SECOND if whole else 0.0))
        self.window = reported.window or next(
            (each for each in _USUAL if self._least <= each <= _ROUNDED * self._longest), self._longest
        )

    def came_back(self, remaining: float, expected: float, now: float) -> None:
        """Note what is left after a reset. `remaining`: what an answer says is left. `expected`: what would be left if
        everything had come back. If only a part has, the window slides, unless others use the limit.
        """
        if remaining < _PART * expected:
            self.in_part, self.slides = True, self.slides or now >= self.shared_until
            self.is_proven = True
        elif remaining >= _MOST * expected:
            self.in_part = False
            self.is_proven = True

    def moves(self, reported: ReportedLimit, since: float, until: float) -> None:
        """Note that an answer says that the limit is full at the time `until`. If later answers name the same time, the
        limit refills at its reset. If the time is put off before it has come, the window slides. `reported`: the limit
        as the answer reports it. `since`: the time at which the answered attempt was sent.
        """
        before, begun, left = self._standing
        if abs(until - before) <= SECOND:
            stood = since - begun
            if reported.window and stood > 0:
                filled = (reported.limit or 0.0) / reported.window * stood
                if reported.remaining > left:
                    self.is_fixed = False
                elif stood > _STANDS and filled >= _FILLED:
                    self.is_fixed = True
            self.is_proven = self.is_proven or stood >= _STANDS
            if stood >= _PART * self.window:
                self.slides = False
            return
        if before and (since < before - SECOND or until < before + _PART * self.window):
            self.slides = self.is_proven = True
            self.is_fixed = False
        self._standing = until, since, reported.remaining

    def is_too_late(self, reported: ReportedLimit, now: float) -> bool:
        """Whether answers take too long, in comparison to the limit's window, to say how much is left: others use much
        of the limit, or no answer has said yet that a part of it is left, or the costs of attempts are estimates.
        """
        if reported.limit is None:
            return False
        if self.takes > _BEYOND * self.window and not self.rate:
            return True  # what is reported is of a window that is nearly over
        if self.slides and not (self.fits or self.rate or reported.window):
            return True  # the window is shorter than it seems
        is_slow, is_shared = self.takes > max(_QUICK, _SLOW * self.window), now < self.shared_until
        if self.slides and reported.counts != "attempts":
            return is_slow or is_shared
        if reported.counts != "attempts" and self.takes > _SLOW_TOKENS * self.window:
            return is_slow
        return is_slow and (is_shared or self.most < (1 - EXPLAINED) * reported.limit)

    def learn(self, reported: ReportedLimit) -> None:
        """Learn how fast the limit refills from another report of it, `reported`, which does not name a window. If this
        report and the one before it give the same speed, `rate` is set to it (units a second); if not, to 0.
        """
        if reported.limit is None or reported.remaining >= reported.limit:
            return
        used, whole_in = reported.limit - reported.remaining, reported.reset
        if self._rated is not None:
            used_before, whole_in_before = self._rated
            if max(used, used_before) < _MORE_USED * min(used, used_before):
                return
            rate, before = used / whole_in, used_before / whole_in_before
            self.rate = rate if max(rate, before) <= _ALIKE * min(rate, before) else 0.0
        self._rated = used, whole_in

    def learn_scale(self, used: float, estimated: float, limit: float) -> bool:
        """Learn what part of their estimates attempts really cost. `used`: what a report says is used of the limit.
        `estimated`: what should be used according to the estimates. If more is used than estimated, nothing is learnt,
        since others may have used it. Returns whether the estimates are large enough to learn from.
        """
        if estimated < _ENOUGH * limit:
            return False
        self._scale.learn(used / estimated)
        return True

    def learn_scale_of_refilled(self, reported: ReportedLimit, spent: float, since: float, rate: float) -> None:
        """Learn what part of their estimates attempts really cost, for a limit that refills at `rate` a second, from
        what is left and what was sent since an earlier report. `reported`: the new report. `since`: the time at which
        its attempt was sent. `spent`: what had been spent in all at that time.
        """
        limit, earlier = reported.limit or 0.0, self._earlier
        if earlier is None and reported.window:
            self.learn_scale(limit - reported.remaining, spent - self.base, limit)
        elif earlier is None:
            self._scale = _Scale()  # what was learnt before took the limit for one that is full again at its reset
        elif reported.remaining < limit:
            remaining, at, before = earlier
            used = max(0.0, remaining + rate * (since - at) - reported.remaining)
            if not self.learn_scale(used, spent - before, limit):
                return
        self._earlier = reported.remaining, since, spent

    def learn_others(self, unexplained: float, left: float, limit: float, now: float) -> None:
        """Note how much others use, by a report. `left`: what is left of the limit. `unexplained`: how much is used,
        but not by this process. `limit`: the whole limit.
        """
        self.unexplained, self.most = unexplained, max(self.most, left)
        if unexplained > (1 - EXPLAINED) * limit:
            self.shared_until = now + _SHARED * self.window
