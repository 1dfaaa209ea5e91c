"""The account of one endpoint and credential: what its attempts cost, and what its answers say is left of the
upstream's limits (contract, section 16, "Ahead").

A report is as old as the request that it answers: what attempts sent since then cost is taken off.

Theory of the refill. Some providers refill a limit continuously, others at the end of a window. If answers name the
window, the limit is taken to refill evenly over it (contract). If they name only the time until the limit is full, that
time tells which kind it is: under continuous refilling it is in proportion to what was used, otherwise it does not
depend on it. So two reports whose used amounts differ by half tell the rate; until then nothing is added before the
reset.

Theory of the reset. From its reset on, a limit counts as full, less what was sent since, until an answer reports more:
otherwise all waiting calls would be sent before the first answer comes. If that answer shows that only a part came back
(as from a sliding window that names the time of its next part), after each later reset a single attempt finds out how
much there is. If an answer reports nothing of the limit, the limit no longer counts as full.

Law: an attempt's price is taken off every report of an attempt that was sent before it, once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from proxy.retry.limit_fields import ReportedLimit
from proxy.retry.report_trust import ReportTrust
from proxy.retry.token_estimate import ONE, UNIT_INDEX, Price

_NEVER = float("inf")

#: By how much the use of a limit has to change between two reports that tell how it refills, and how much the rates
#: that both say may differ.
_MORE_USED, _ALIKE = 1.5, 1.1
#: A limit that is whole again at its reset has at least this part of what is expected.
_PART = 0.5
#: The part of a limit below which little is left of it; the part of it that is back, at least, when all came back; and
#: the part of its use that this process has to have made, so that the use is explained.
_LOW, _MOST, _EXPLAINED = 0.25, 0.9, 0.75
#: The parts of a period for which sendings are remembered together.
_SLICES = 64
#: Seconds of waiting that are worth a test of what is reported.
_WORTH_A_TEST = 0.5
#: A shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-6


class _Report:
    """The latest report of one limit. `reported`: the limit as the answer reported it. `spent`: what had been spent of
    the limit in all when the attempt that this report answers had been sent; `order`: the number of that attempt; `at`:
    when the report came; `until`: when the limit is full again; `rate`: what is added each second, 0 if that is not
    known. `is_assumed`: no answer made this report: it was made up at the limit's reset, and says that the limit is
    full. `is_tested`: one attempt finds out whether the report is right.
    """

    __slots__ = ("at", "is_assumed", "is_tested", "order", "rate", "reported", "spent", "until")

    def __init__(
        self,
        reported: ReportedLimit,
        spent: float,
        order: float,
        at: float,
        rate: float,
        *,
        assumed: bool = False,
        tested: bool = False,
    ) -> None:
        self.reported = reported
        self.is_assumed = assumed
        self.is_tested = tested
        self.spent = spent
        self.order = order
        self.at = at
        self.until = at + reported.reset
        self.rate = rate

    @property
    def unit_index(self) -> int:
        """The index of the unit that the limit counts in a price, which has one number for each unit (`price_of`)."""
        return UNIT_INDEX[self.reported.counts]

    def left(self, spent: float, now: float) -> float:
        """The rest of the limit at `now`; below zero if more was sent since the report than was left. `spent`: what has
        been spent of the limit in all.
        """
        most = _NEVER if self.reported.limit is None else self.reported.limit
        return min(most, self.reported.remaining + self.rate * (now - self.at)) - (spent - self.spent)

    def needs(self, price: Price) -> float:
        """The amount that an attempt with this price needs to begin: its price, or the whole limit if that is less."""
        price_here = price[self.unit_index]
        return price_here if self.reported.limit is None else min(price_here, self.reported.limit)


class _Refill:
    """Finds out how one limit refills if its reports do not name a window. `rate`: what is added each second; 0 until
    it is known. `period`: the longest time (seconds) that a report named until the limit is full. `in_part`: after a
    reset only a part of the limit had come back, as with a sliding window that names the time at which its next part
    comes back. `took`: the longest time (seconds) that an answer with a report took. `base`: what
    had been spent of the limit in all when it was full last; `was_low`: little was left of it at the last reset.
    `is_own`: at a reset all of the limit came back, and since then no report says that another process uses it.
    """

    __slots__ = ("_used", "_whole_in", "base", "base_before", "in_part", "is_own", "period", "rate", "took", "was_low")

    def __init__(self) -> None:
        self.rate = self.period = self.took = 0.0
        self.base = self.base_before = 1.0
        self.in_part = self.is_own = self.was_low = False
        self._used = self._whole_in = 0.0  # of the report that others are compared with

    def renewed(self, left: float, limit: float, spent: float) -> None:
        """Note that the reset has come, when `left` was left of the limit, and `spent` had been spent in all."""
        self.was_low = left < _LOW * limit
        if not self.in_part:
            self.base_before, self.base = self.base, spent

    def came_back(self, remaining: float, expected: float) -> None:
        """Note what an answer says is left after a reset (`remaining`), where `expected` would be left if all had come
        back.
        """
        if remaining < _PART * expected:
            self.in_part, self.is_own, self.base = True, False, self.base_before
        elif remaining >= _MOST * expected:
            self.in_part, self.is_own = False, self.is_own or self.was_low

    def learn(self, reported: ReportedLimit) -> None:
        """Learn how fast the limit refills from another report of it, `reported`, which does not name a window. If this
        report and the one before it agree on a speed, `rate` is set to it (units a second); if they do not, to 0.
        """
        if reported.limit is None or reported.remaining >= reported.limit:
            return
        used, whole_in = reported.limit - reported.remaining, reported.reset
        if self._used and max(used, self._used) < _MORE_USED * min(used, self._used):
            return
        if self._used:
            rate, before = used / whole_in, self._used / self._whole_in
            self.rate = rate if max(rate, before) <= _ALIKE * min(rate, before) else 0.0
        self._used, self._whole_in = used, whole_in


class Account:
    """The attempts of one endpoint and credential, and the limits that their answers report."""

    __slots__ = ("_refills", "_sent", "_spent", "refused_since", "reports", "succeeded", "trust")

    def __init__(self) -> None:
        self._spent = list(ONE)
        self._sent: deque[tuple[float, float, Price]] = deque(
            [(-_NEVER, -_NEVER, ONE)]
        )  # slices: first, last, sum so far
        self._refills: dict[str, _Refill] = {}
        self.reports: dict[str, _Report] = {}
        self.trust = ReportTrust()
        self.refused_since = -_NEVER  # when the last attempt was sent whose refusal named a delay
        self.succeeded = False  # an attempt did, so that its credential is known to be one

    def sent(self, price: Price, now: float) -> Price:
        """Note that an attempt with this price is sent. Returns the sum of all prices so far, this one included."""
        self.renew(now)
        for place, each in enumerate(price):
            self._spent[place] += each
        attempts, tokens, prompt, output = self._spent
        spent = attempts, tokens, prompt, output
        self._remember(spent, now)
        return spent

    def _remember(self, spent: Price, now: float) -> None:
        """Remember what had been spent in all by now, for as long as the longest period of a limit; of what was spent
        before, only the sum is kept.
        """
        longest = max((each.period + each.took for each in self._refills.values()), default=0.0)
        slices, begun = self._sent, now
        if now - slices[-1][0] < longest / _SLICES:
            begun = slices.pop()[0]
        slices.append((begun, now, spent))
        while len(slices) > 1 and slices[1][1] <= now - longest:
            slices.popleft()

    def is_old(self, name: str, order: float, now: float) -> bool:
        """Whether a report of the limit `name`, in the answer to the `order`th attempt, is outdated: an attempt that
        was sent later has already been answered with a report of this limit.
        """
        before = self.reports.get(name)
        return (
            before is not None and now < before.until and order < before.order + (before.is_assumed or before.is_tested)
        )

    def heard(
        self, reported: ReportedLimit, sent: Price, now: float, *, took: float = 0.0, tested: bool = False
    ) -> bool:
        """Take in the report that an answer made of a limit (`reported`). `sent`: the sum of the prices of all attempts
        up to and with the answer's, as `Account.sent` returned it; `took`: how long the answer took, in seconds.
        `tested`: one attempt, sent as if the report had not come, is to find out whether it is right. Returns whether
        this is the first report since the limit's reset.
        """
        if tested:
            attempts, tokens, prompt, output = self._spent
            sent = attempts, tokens, prompt, output
        before = self.reports.get(reported.name)
        refill = self._refills.setdefault(reported.name, _Refill())
        refill.period, refill.took = max(refill.period, reported.reset), max(refill.took, took)
        if before is not None and before.is_assumed and reported.limit is not None:
            refill.came_back(reported.remaining, reported.limit - (sent[UNIT_INDEX[reported.counts]] - before.spent))
        if (
            reported.limit is not None
            and reported.remaining < self._not_used(reported, refill, now) - (1 - _MOST) * reported.limit
        ):
            refill.is_own = False
        if reported.window and reported.limit is not None:
            rate = reported.limit / reported.window
        else:
            refill.learn(reported)
            rate = refill.rate
        self.reports[reported.name] = _Report(
            reported, sent[UNIT_INDEX[reported.counts]], sent[0], now, rate, tested=tested
        )
        return before is not None and before.is_assumed and not refill.in_part

    def renew(self, now: float) -> None:
        """Count each limit whose reset has passed as full from its reset on, if its size is known."""
        for name, each in self.reports.items():
            refill, spent = self._refills[name], self._spent[each.unit_index]
            if each.until > now or each.is_assumed or each.reported.limit is None:
                continue
            rest = max(0.0, each.left(spent, each.until))
            refill.renewed(rest, each.reported.limit, spent)
            left = rest if refill.in_part else each.reported.limit
            reported = replace(each.reported, remaining=left, reset=refill.period)
            self.reports[name] = _Report(reported, spent, self._spent[0], each.until, each.rate, assumed=True)

    def explains(self, reported: ReportedLimit, sent: Price) -> bool:
        """Whether attempts of this process have used most of what is used of a limit, as an answer reports it
        (`reported`), since the limit was full. `sent`: the sum of the prices of all attempts up to and with that whose
        answer it is.
        """
        refill = self._refills.get(reported.name)
        base = 1.0 if refill is None else refill.base
        return reported.limit is not None and sent[UNIT_INDEX[reported.counts]] - base >= _EXPLAINED * (
            reported.limit - reported.remaining
        )

    def refused(self, since: float, now: float) -> None:
        """Note that an attempt sent at `since` was refused for want of a limit: forget what is left of all. What the
        answers to attempts report that were sent before is older.
        """
        self.refused_since = max(self.refused_since, since)
        self.trust.refused(since, now)
        self.reports.clear()
        for each in self._refills.values():
            each.is_own = False

    def _not_used(self, reported: ReportedLimit, refill: _Refill, now: float) -> float:
        """The part of a limit that this process has not sent within its longest period, up to now."""
        if reported.limit is None:
            return 0.0
        place, since = UNIT_INDEX[reported.counts], now - refill.period - refill.took
        before = next((each[2] for each in reversed(self._sent) if each[1] <= since), self._sent[0][2])
        return reported.limit - (self._spent[place] - before[place])

    def _comes_back(self, report: _Report, needed: float, now: float) -> float:
        """The seconds until this process has sent so little of a limit of its own within the longest period that
        `needed` is left of it; infinity if that can't be known.
        """
        refill, place = self._refills[report.reported.name], report.unit_index
        if not refill.is_own or report.reported.limit is None:
            return _NEVER
        gone = self._spent[place] + needed - report.reported.limit
        for _, last, spent in self._sent:
            if spent[place] >= gone - _ROUNDING:
                return max(0.0, last + refill.period + refill.took - now)
        return _NEVER

    def assumed(self, order: float) -> list[str]:
        """The names of the limits that count as full since before the `order`th attempt was sent, because their reset
        has passed, though no answer has reported it.
        """
        return [name for name, each in self.reports.items() if each.is_assumed and each.order < order]

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
        self.trust.forget(name)

    def believes_none(self, now: float) -> bool:
        """Whether there are reports, and none of them is believed."""
        return bool(self.reports) and not any(self.trust.is_believed(name, now) for name in self.reports)

    def left(self, now: float) -> tuple[tuple[str, float], ...]:
        """The rest of each limit that is known, with the limit's name; never below zero."""
        return tuple(
            (each.reported.name, max(0.0, each.left(self._spent[each.unit_index], now))) for each in self._in_force(now)
        )

    def wait(self, price: Price, now: float, promised: Price = (0.0, 0.0, 0.0, 0.0)) -> float:
        """The seconds until an attempt with this price fits into all limits; 0 if it fits now. `promised`: the prices
        of attempts that will be sent before it.
        """
        return max((self._wait_for(each, price, promised, now) for each in self._in_force(now)), default=0.0)

    def test(self, wait: float, most: float, now: float) -> bool:
        """Have one attempt test limits as if they had not been reported: those whose reset is more than `most` seconds
        away, and those that others have used up, or are reported wrongly. `wait`: the seconds that a call waits for
        them. Returns whether there are such limits, and a test of them may begin.
        """
        tested = [
            each
            for each in self._in_force(now)
            if wait >= _WORTH_A_TEST
            and (each.until - now > most or not self._is_own_use(each))
            and not each.is_tested
            and self.trust.tests(each.reported.name, now)
        ]
        for each in tested:
            each.is_tested, each.order = True, self._spent[0]
            if each.reported.counts == "attempts" and each.left(self._spent[each.unit_index], now) < 1:
                self.trust.test_begins(each.reported, each.spent, each.at, now)
        return bool(tested)

    def _is_own_use(self, report: _Report) -> bool:
        """Whether this process has used most of what this report says is used."""
        reported, base = report.reported, self._refills[report.reported.name].base
        return reported.limit is not None and report.spent - base >= _EXPLAINED * (reported.limit - reported.remaining)

    def _wait_for(self, report: _Report, price: Price, promised: Price, now: float) -> float:
        place = report.unit_index
        if not price[place]:
            return 0.0
        short = report.needs(price) - (report.left(self._spent[place], now) - promised[place])
        if short <= _ROUNDING:
            return 0.0
        if (report.is_assumed or report.is_tested) and report.order == self._spent[0] and not promised[0]:
            return 0.0  # something came back, or is left, and only an answer says how much
        by_rate = short / report.rate if report.rate else _NEVER
        return min(report.until - now, by_rate, self._comes_back(report, report.needs(price) + promised[place], now))

    def _in_force(self, now: float) -> list[_Report]:
        """The reports that count now: those whose limit's reset is still ahead and which are not known to be wrong."""
        if not self.reports:
            return []
        self.renew(now)
        trust = self.trust
        return [each for name, each in self.reports.items() if now < each.until and trust.is_believed(name, now)]
