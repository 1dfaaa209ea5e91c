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

from dataclasses import replace

from proxy.retry.limit_fields import ReportedLimit
from proxy.retry.report_trust import ReportTrust
from proxy.retry.token_estimate import Estimate

_NEVER = float("inf")

#: The units that a limit counts, by their places in a price.
UNIT_INDEX = {"attempts": 0, "tokens": 1, "prompt": 2, "output": 3}
#: An attempt's price: itself, and a language model's tokens: all, those of the prompt, those of the output.
Price = tuple[float, float, float, float]
#: The price of an attempt whose tokens are not known.
ONE: Price = (1.0, 0.0, 0.0, 0.0)
#: By how much the use of a limit has to change between two reports that tell how it refills, and how much the rates
#: that both say may differ.
_MORE_USED, _ALIKE = 1.5, 1.1
#: A limit that is whole again at its reset has at least this part of what is expected.
_PART = 0.5
#: A shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-6


def price_of(estimate: Estimate | None) -> Price:
    """The price of an attempt in each unit that a limit may count: one attempt, then the tokens of `estimate` (in all,
    of the prompt, of the output), zeros if it is None.
    """
    return ONE if estimate is None else (1.0, estimate.price, estimate.prompt, estimate.output)


class _Report:
    """The latest report of one limit. `reported`: the limit as the answer reported it. `spent`: what had been spent of
    the limit in all when the attempt that this report answers had been sent; `order`: the number of that attempt; `at`:
    when the report came; `until`: when the limit is full again; `rate`: what is added each second, 0 if that is not
    known. `is_assumed`: no answer made this report: it was made up at the limit's reset, and says that the limit is
    full.
    """

    __slots__ = ("at", "is_assumed", "order", "rate", "reported", "spent", "until")

    def __init__(
        self, reported: ReportedLimit, spent: float, order: float, at: float, rate: float, *, assumed: bool = False
    ) -> None:
        self.reported = reported
        self.is_assumed = assumed
        self.spent = spent
        self.order = order
        self.at = at
        self.until = at + reported.reset
        self.rate = rate

    @property
    def unit_index(self) -> int:
        """The index, in a price (`price_of`), of the unit that the limit counts."""
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
    comes back.
    """

    __slots__ = ("_used", "_whole_in", "in_part", "period", "rate")

    def __init__(self) -> None:
        self.rate = self.period = 0.0
        self.in_part = False
        self._used = self._whole_in = 0.0  # of the report that others are compared with

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

    __slots__ = ("_refills", "_spent", "reports", "succeeded", "trust")

    def __init__(self) -> None:
        self._spent = list(ONE)
        self._refills: dict[str, _Refill] = {}
        self.reports: dict[str, _Report] = {}
        self.trust = ReportTrust()
        self.succeeded = False  # an attempt did, so that its credential is known to be one

    def sent(self, price: Price, now: float) -> Price:
        """Note that an attempt with this price is sent. Returns the sum of all prices so far, this one included."""
        self.renew(now)
        for place, each in enumerate(price):
            self._spent[place] += each
        attempts, tokens, prompt, output = self._spent
        return attempts, tokens, prompt, output

    def is_old(self, name: str, order: float, now: float) -> bool:
        """Whether a report of the limit `name`, in the answer to the `order`th attempt, is outdated: an attempt that
        was sent later has already been answered with a report of this limit.
        """
        before = self.reports.get(name)
        return before is not None and now < before.until and order < before.order + before.is_assumed

    def heard(self, reported: ReportedLimit, sent: Price, now: float) -> None:
        """Take in the report that an answer made of a limit (`reported`). `sent`: the sum of the prices of all attempts
        up to and with the answer's, as `Account.sent` returned it.
        """
        before = self.reports.get(reported.name)
        refill = self._refills.setdefault(reported.name, _Refill())
        refill.period = max(refill.period, reported.reset)
        if before is not None and before.is_assumed and not refill.in_part and reported.limit is not None:
            expected = reported.limit - (sent[UNIT_INDEX[reported.counts]] - before.spent)
            refill.in_part = reported.remaining < _PART * expected
        if reported.window and reported.limit is not None:
            rate = reported.limit / reported.window
        else:
            refill.learn(reported)
            rate = refill.rate
        self.reports[reported.name] = _Report(reported, sent[UNIT_INDEX[reported.counts]], sent[0], now, rate)

    def renew(self, now: float) -> None:
        """Count each limit whose reset has passed as full from its reset on, if its size is known."""
        for name, each in self.reports.items():
            refill, spent = self._refills[name], self._spent[each.unit_index]
            if each.until > now or each.is_assumed or each.reported.limit is None:
                continue
            left = max(0.0, each.left(spent, each.until)) if refill.in_part else each.reported.limit
            reported = replace(each.reported, remaining=left, reset=refill.period)
            self.reports[name] = _Report(reported, spent, self._spent[0], each.until, each.rate, assumed=True)

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

    def _wait_for(self, report: _Report, price: Price, promised: Price, now: float) -> float:
        place = report.unit_index
        if not price[place]:
            return 0.0
        short = report.needs(price) - (report.left(self._spent[place], now) - promised[place])
        if short <= _ROUNDING:
            return 0.0
        if report.is_assumed and report.order == self._spent[0] and not promised[0]:
            return 0.0  # something came back, and only an answer says how much
        return min(report.until - now, short / report.rate if report.rate else _NEVER)

    def _in_force(self, now: float) -> list[_Report]:
        """The reports that count now: those whose limit's reset is still ahead and which are not known to be wrong."""
        if not self.reports:
            return []
        self.renew(now)
        trust = self.trust
        return [each for name, each in self.reports.items() if now < each.until and not trust.doubts(name, now)]
