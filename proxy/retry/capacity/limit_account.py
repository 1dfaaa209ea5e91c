"""The account of one endpoint and credential: what its attempts cost, and what its answers say is left of the
upstream's limits (contract, section 16, "Ahead"). `proxy.retry.capacity.limit_refill` finds out how the limits refill.

A report is as old as the request that it answers, so the cost of attempts sent since then is subtracted.

Law: an attempt's price is subtracted once from every report that answers an attempt sent before it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.budgets.token_estimate import ONE, UNIT_INDEX, Price
from proxy.retry.capacity.limit_refill import EXPLAINED, SECOND, Refill
from proxy.retry.capacity.report_trust import ReportTrust

_NEVER = float("inf")

#: The part of a limit that is so little that a refusal shows it to be nothing.
_LITTLE = 0.2
#: A window is too long if this process has sent more within it than these say of what is used: a factor, and some more.
_TOO_MUCH, _FEW = 1.25, 3.0
#: The same factor for tokens, whose costs are estimates; answers that come later may say that more is used.
_FAR_TOO_MUCH = 1.5
#: Seconds by which a time that is named in milliseconds may be too early.
_MILLISECOND = 0.001
#: Seconds after a reset until more than one attempt is sent: a time that is rounded may be too early.
_LATER = 0.01
#: The parts of a period for which sendings are remembered together.
_SLICES = 64
#: The sendings that are remembered before an answer reports a limit.
_FIRST = 256
#: Seconds of waiting that are worth a test of what is reported.
_WORTH_A_TEST = 0.5
#: The part of a window that answers take at most where a limit is tested only since it may be larger than reported.
_SOON = 0.1
#: The part of a limit that it gets at most between a request and its answer where a refusal shows this to be too much.
_BETWEEN = 0.05
#: A shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-6


class _Report:
    """The latest report of one limit. `reported`: the limit as the answer reported it. `since`: the time at which the
    answered attempt was sent. `spent`: what had been spent of the limit in all at that time, this attempt included.
    `order`: the number of that attempt. `came`: the time at which the answer came. `until`: the time at which the limit
    is full again. `rate`: how much comes back each second, 0 if that is not known.

    `is_assumed`: no answer made this report. It was made up at the limit's reset, and says how much is expected to be
    left. `is_tested`: one attempt is to find out whether the report is right.
    """

    __slots__ = ("came", "is_assumed", "is_tested", "order", "rate", "reported", "since", "spent", "until")

    def __init__(
        self, reported: ReportedLimit, sent: Price, since: float, until: float, rate: float, *, assumed: bool = False
    ) -> None:
        self.reported = reported
        self.is_assumed = assumed
        self.is_tested = False
        self.spent = sent[UNIT_INDEX[reported.counts]]
        self.order = sent[0]
        self.since = self.came = since
        self.until = until
        self.rate = rate

    @property
    def unit_index(self) -> int:
        """The index of the limit's unit in a price, which has one number for each unit (`price_of`)."""
        return UNIT_INDEX[self.reported.counts]

    def needs(self, price: Price) -> float:
        """The amount of the limit that an attempt with this price needs before it can be sent: its price, or the whole
        limit if that is less.
        """
        price_here = price[self.unit_index]
        return price_here if self.reported.limit is None else min(price_here, self.reported.limit)


class Account:
    """The attempts of one endpoint and credential, and the limits that their answers report. `reports`: the latest
    report of each limit, by the limit's name. `trust`: which reports are believed.
    """

    __slots__ = (
        "_began", "_late", "_refills", "_sent", "_spent", "refused_since", "reports", "succeeded", "trust",
    )  # fmt: skip

    def __init__(self) -> None:
        self._spent = list(ONE)
        self._sent: deque[tuple[float, float, Price]] = deque(
            [(-_NEVER, -_NEVER, ONE)]
        )  # slices: first, last, sum so far
        self._began = _NEVER  # when the first attempt was sent
        self._refills: dict[str, Refill] = {}
        self._late: set[str] = set()  # limits whose reports say what was left when the answer came, not its request
        self.reports: dict[str, _Report] = {}
        self.trust = ReportTrust()
        self.refused_since = -_NEVER  # when the last attempt was sent whose refusal named a delay
        self.succeeded = False  # an attempt did, so that its credential is known to be one

    @property
    def answers_take(self) -> float:
        """The mean time that answers take (seconds), as far as it is known from those that reported limits."""
        return max((each.takes for each in self._refills.values()), default=0.0)

    def sent(self, price: Price, now: float) -> Price:
        """Note that an attempt with this price is sent. Returns the sum of the prices of all attempts so far, including
        this one.
        """
        self.renew(now)
        self._began = min(self._began, now)
        for place, each in enumerate(price):
            self._spent[place] += each
        spent = self._sum()
        self._remember(spent, now)
        return spent

    def _sum(self) -> Price:
        attempts, tokens, prompt, output = self._spent
        return attempts, tokens, prompt, output

    def _remember(self, spent: Price, now: float) -> None:
        """Remember what has been spent in all up to now. This is kept for as long as the longest window of a limit and
        the time that answers take; of what was spent before, only the sum is kept.
        """
        longest = max((each.window + each.took for each in self._refills.values()), default=0.0)
        slices, begun = self._sent, now
        if now - slices[-1][0] < longest / _SLICES:
            begun = slices.pop()[0]
        slices.append((begun, now, spent))
        while len(slices) > 1 and (slices[1][1] <= now - longest if self._refills else len(slices) > _FIRST):
            slices.popleft()

    def _spent_by(self, at: float, place: int, *, most: bool = False) -> float:
        """The amount that had been spent in all by the time `at`, in the unit with the index `place`. Where sendings
        before and after that time are remembered together, the result is the least possible amount or, with `most`, the
        greatest.
        """
        for begun, last, spent in reversed(self._sent):
            if (begun if most else last) <= at:
                return spent[place]
        return self._sent[0][2][place]

    def is_old(self, name: str, order: float, now: float) -> bool:
        """Whether a report is outdated, because an attempt that was sent later has already been answered with a report
        of the same limit. `name`: the limit's name. `order`: the number of the attempt whose answer made the report.
        """
        before = self.reports.get(name)
        return (
            before is not None and now < before.until and order < before.order + (before.is_assumed or before.is_tested)
        )

    def heard(
        self, reported: ReportedLimit, sent: Price, now: float, *, took: float = 0.0, tested: bool = False
    ) -> None:
        """Record a limit as an answer reports it. `reported`: the limit. `sent`: the sum of the prices of all attempts
        up to and including the answered one, as `Account.sent` returned it. `took`: how many seconds the answer took.
        `tested`: the report is not believed yet, and one attempt is to find out whether it is right.
        """
        sent, since = (self._sum(), now) if tested else (sent, now - took)
        before = self.reports.get(reported.name)
        refill = self._refills.setdefault(reported.name, Refill())
        refill.learn_window(reported, took)
        if before is not None and before.is_assumed and reported.limit is not None:
            used = refill.scale * (sent[UNIT_INDEX[reported.counts]] - before.spent)
            refill.came_back(reported.remaining, before.reported.remaining - used, now)
        refill.moves(reported, since, now + reported.reset)
        if reported.window and reported.limit is not None:
            rate = 0.0 if refill.is_fixed else reported.limit / reported.window
        else:
            refill.learn(reported)
            rate = refill.rate
        later = 0.0 if reported.reset % 1 == 0 else _MILLISECOND
        report = _Report(reported, sent, since, now + reported.reset + later, rate)
        report.is_tested, report.came = tested, now
        self.reports[reported.name] = report
        own, used = self._estimated(report), _NEVER if reported.limit is None else reported.limit - reported.remaining
        if reported.counts == "attempts":
            refill.fits = own <= _TOO_MUCH * used + _FEW
        else:
            refill.fits = reported.remaining >= 1 or not refill.is_scaled or refill.scale * own <= _FAR_TOO_MUCH * used
            if refill.slides and not refill.fits:
                self.trust.disbelieve(reported.name, now)
        if reported.limit is not None:
            if reported.counts != "attempts" and rate:
                refill.learn_scale_of_refilled(reported, report.spent, since, rate)
            elif reported.counts != "attempts" and reported.remaining >= 1:  # with nothing left, more may be used
                refill.learn_scale(used, own, reported.limit)
            refill.learn_others(used - self._own(report), reported.remaining, reported.limit, now)
        refill.others = self._of_others(report)

    def renew(self, now: float) -> None:
        """Count each limit whose reset has come as full again, if its size is known. Two things are subtracted: what
        others had used at its last reset and, if it has a sliding window, what was sent within the window.
        """
        for name, each in self.reports.items():
            refill, limit = self._refills[name], each.reported.limit
            if each.until > now or each.is_assumed or limit is None:
                continue
            if self.predicts(name, now):
                each.until += refill.window
                continue
            place = each.unit_index
            left = limit - refill.others
            if refill.in_part and not refill.slides:
                left = self.left_of(each, each.until)
            elif refill.slides:
                left -= refill.scale * (self._spent[place] - self._spent_by(each.until - refill.window, place))
            if not (refill.slides or refill.in_part):
                refill.base = self._spent[place]
            reported = replace(each.reported, remaining=max(0.0, left), reset=refill.window)
            until = each.until + refill.window
            self.reports[name] = _Report(reported, self._sum(), each.until, until, each.rate, assumed=True)

    def _of_others(self, report: _Report) -> float:
        """The amount of a limit that others have used, by this report. 0 if it is not known how much this process has
        used, because the process began later than the limit's window.
        """
        refill = self._refills[report.reported.name]
        begun = (report.since if refill.slides else report.until) - refill.window
        return 0.0 if begun <= self._began else max(0.0, refill.unexplained)

    def _own(self, report: _Report) -> float:
        """The amount of a limit that this process had used when the report's attempt had been sent. Unlike
        `_estimated`, it counts what attempts really cost, as far as that is known.
        """
        return self._refills[report.reported.name].scale * self._estimated(report)

    def _estimated(self, report: _Report) -> float:
        """The amount of a limit, by the attempts' estimated prices, that this process had used when the report's
        attempt had been sent. It is counted over the window before that time if the window slides, otherwise since the
        limit's last reset.
        """
        refill = self._refills[report.reported.name]
        if not refill.slides:
            return report.spent - refill.base
        return report.spent - self._spent_by(report.since - refill.window, report.unit_index)

    def predicts(self, name: str, now: float) -> bool:
        """Whether this process can compute when each part of the limit `name` comes back: the limit's window slides,
        its reports fit what this process has sent for at least a whole window, and others use little of the limit. In
        that case an attempt may succeed after a report that nothing was left, although the report was right.
        """
        refill = self._refills.get(name)
        if refill is None or not (refill.slides and refill.fits) or now < refill.shared_until:
            return False
        return now - self._began >= refill.window  # before that, nothing that was sent has shown how long the window is

    def scale(self, name: str) -> float:
        """The real cost of attempts, as a part of what they were expected to cost of the limit `name`."""
        refill = self._refills.get(name)
        return 1.0 if refill is None else refill.scale

    def resizes(self, reported: ReportedLimit) -> bool:
        """Whether an answer reports another size of a limit than the answer before it."""
        before = self.reports.get(reported.name)
        if before is None or reported.limit is None:
            return False
        return before.reported.limit not in (None, reported.limit)

    def explains(self, reported: ReportedLimit, sent: Price) -> bool:
        """Whether attempts of this process account for most of what is used of a limit, as an answer reports it.
        `reported`: the limit. `sent`: the sum of the prices of all attempts up to and including the answered one.
        """
        refill = self._refills.get(reported.name)
        base = 1.0 if refill is None else refill.base
        return reported.limit is not None and sent[UNIT_INDEX[reported.counts]] - base >= EXPLAINED * (
            reported.limit - reported.remaining
        )

    def refused(self, since: float, now: float, delay: float = 0.0) -> None:
        """Note that an attempt was refused because a limit was exceeded, in an answer that names a delay of `delay`
        seconds. `since`: the time at which the attempt was sent.

        The delay counts more than what is known of limits, so the reports are forgotten. Two kinds are kept: limits
        that are full by the end of the delay, and limits with a sliding window, of which nothing is taken to be left if
        little was.
        """
        self.refused_since = max(self.refused_since, since)
        self.trust.refused(since, now)
        self.renew(now)
        kept = {}
        for name, each in self.reports.items():
            limit = each.reported.limit
            if limit is None:
                continue
            if each.rate:
                between = each.rate * (each.came - each.since)
                if each.came <= since and not each.is_assumed and 0 < between <= _BETWEEN * limit:
                    self._late.add(name)
                continue
            if self.predicts(name, now):
                if self.left_of(each, now) <= _LITTLE * limit:
                    each = _Report(replace(each.reported, remaining=0.0), self._sum(), now, each.until, 0.0)
                kept[name] = each
            elif each.until <= now + delay + SECOND:
                each.until = min(each.until, now + delay)
                kept[name] = each
        self.reports = kept

    def left_of(self, report: _Report, now: float) -> float:
        """The amount that is left now of the limit of this report; below zero if more was sent since the report than
        was left.
        """
        reported, place = report.reported, report.unit_index
        refill = self._refills[reported.name]
        back = report.rate * (now - (report.came if reported.name in self._late else report.since))
        if report.rate:
            back /= refill.scale
        elif refill.slides and refill.fits:
            since = report.since - refill.window
            back = max(
                0.0, self._spent_by(now - _LATER - refill.window, place) - self._spent_by(since, place, most=True)
            )
        most = _NEVER if reported.limit is None else reported.limit
        return min(most, reported.remaining + refill.scale * back) - refill.scale * (self._spent[place] - report.spent)

    def _comes_back(self, report: _Report, short: float, now: float) -> float:
        """The seconds until `short` more than now is left of a limit with a sliding window, because earlier sendings
        are then older than the window; infinity if that can't be known.
        """
        refill, place = self._refills[report.reported.name], report.unit_index
        if not (refill.slides and refill.fits):
            return _NEVER
        now_gone = self._spent_by(now - _LATER - refill.window, place)
        short /= refill.scale
        gone = max(now_gone, self._spent_by(report.since - refill.window, place, most=True)) + short
        for _, last, spent in self._sent:
            if spent[place] >= gone - _ROUNDING:
                return max(0.0, last + refill.window + _LATER - now)
        return _NEVER

    def assumed(self, order: float) -> list[str]:
        """The names of the limits that count as full because their reset has passed, and that no answer has reported
        since. Only limits that counted as full before the attempt with the number `order` was sent are listed.
        """
        return [name for name, each in self.reports.items() if each.is_assumed and each.order < order]

    def holds(self, now: float) -> str:
        """The kind of limits that hold calls. "known": this process knows how each of these limits refills, so that
        calls that fit are sent without waiting for each other's answers. "unknown": it does not know, or a limit was
        reported without its size. "": no limit holds calls.
        """
        if any(
            each.reported.limit is None and self.trust.is_believed(name, now) for name, each in self.reports.items()
        ):
            return "unknown"
        in_force = self._in_force(now)
        if not in_force:
            return ""
        is_known = all(
            (each.rate or self._refills[each.reported.name].is_proven) and not each.is_tested for each in in_force
        )
        return "known" if is_known else "unknown"

    def resets(self, at: float) -> bool:
        """Whether any of the reported limits is full again at the time `at` (give or take a rounding error)."""
        return any(abs(each.until - at) < _ROUNDING for each in self.reports.values())

    def forget(self, name: str) -> None:
        """Forget what is left of a limit, but not how it refills."""
        self.reports.pop(name, None)

    def drop(self, name: str) -> None:
        """Forget all that is known of a limit."""
        self.forget(name)
        self._refills.pop(name, None)
        self._late.discard(name)
        self.trust.forget(name)

    def left(self, now: float) -> tuple[tuple[str, float], ...]:
        """The rest of each limit that is known, as pairs of the limit's name and the rest; never below zero."""
        return tuple((each.reported.name, max(0.0, self.left_of(each, now))) for each in self._in_force(now))

    def wait(self, price: Price, now: float, promised: Price = (0.0, 0.0, 0.0, 0.0)) -> float:
        """The seconds until an attempt with this price fits into all limits; 0 if it fits now. `promised`: the sum of
        the prices of attempts that will be sent before it.
        """
        return max((self._wait_for(each, price, promised, now) for each in self._in_force(now)), default=0.0)

    def test(self, wait: float, most: float, now: float, waiting: Price = ONE) -> bool:
        """Have one attempt test limits, as if they had not been reported. Tested are limits whose reset is more than
        half of `most` seconds away, or for which calls would wait for more than `most` seconds, and limits that others
        have used up or that are reported wrongly. `wait`: the seconds that the first call waits for the limits.
        `waiting`: the sum of the prices of all calls that wait. Returns whether there are such limits that may be
        tested.
        """
        tested = [
            each
            for each in self._in_force(now)
            if wait >= _WORTH_A_TEST
            and (
                self._is_unproven(each, now)
                or self._is_too_far(each, waiting, wait, most, now)
                or not self._is_own_use(each, now)
            )
            and not each.is_tested
            and self.trust.tests(each.reported.name, now)
        ]
        for each in tested:
            each.is_tested, each.order = True, self._spent[0]
            if self.left_of(each, now) < 1 and (each.reported.counts == "attempts" or each.reported.remaining < 1):
                self.trust.test_begins(each.reported, each.spent, each.since, now)
        return bool(tested)

    def _is_unproven(self, report: _Report, now: float) -> bool:
        """Whether this report's limit may be larger than reported, since no refusal has ever shown that it is not, and
        a test is worth a refused attempt. It is not where answers take long, since a cooldown then costs more than the
        calls wait, nor where it is known when each part of the limit comes back.
        """
        name, refill = report.reported.name, self._refills[report.reported.name]
        is_quick = refill.takes <= _SOON * refill.window
        return is_quick and not (self.trust.was_proven(name) or self.predicts(name, now))

    def _is_too_far(self, report: _Report, waiting: Price, wait: float, most: float, now: float) -> bool:
        """Whether this report's limit comes back in more than half of `most` seconds, or in so many windows for all
        calls that wait that the last of them would wait for more than `most`. `waiting`: the sum of their prices. A
        limit that is known to come back bit by bit does so in `wait` seconds, any other at its reset.
        """
        reported, refill = report.reported, self._refills[report.reported.name]
        begins = wait if self.predicts(reported.name, now) else report.until - now
        if reported.limit is None:
            return begins > most / 2
        windows = math.ceil(refill.scale * waiting[report.unit_index] / reported.limit) - 1
        return begins > most / 2 or begins + windows * refill.window > most

    def _is_own_use(self, report: _Report, now: float) -> bool:
        """Whether this process has used most of what is used, according to this report."""
        reported = report.reported
        if self.predicts(reported.name, now):
            return True
        return reported.limit is not None and self._own(report) >= EXPLAINED * (reported.limit - reported.remaining)

    def _wait_for(self, report: _Report, price: Price, promised: Price, now: float) -> float:
        place = report.unit_index
        if not price[place]:
            return 0.0
        short = report.needs(price) - (
            self.left_of(report, now) - self._refills[report.reported.name].scale * promised[place]
        )
        if short <= _ROUNDING:
            is_second = report.is_assumed and (promised[0] > 0 or report.order < self._spent[0])
            return max(0.0, report.since + _LATER - now) if is_second else 0.0
        if (report.is_assumed or report.is_tested) and report.order == self._spent[0] and not promised[0]:
            return 0.0  # something came back, or is left, and only an answer says how much
        by_rate = short / report.rate if report.rate else _NEVER
        return min(report.until - now, by_rate, self._comes_back(report, short, now))

    def _in_force(self, now: float) -> list[_Report]:
        """The reports that count now: their reset is still ahead, and they are not known to be wrong."""
        if not self.reports:
            return []
        self.renew(now)
        trust = self.trust
        return [
            each
            for name, each in self.reports.items()
            if now < each.until
            and trust.is_believed(name, now)
            and not self._refills[name].is_too_late(each.reported, now)
        ]
