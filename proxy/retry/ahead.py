"""The limits of an upstream as its answers report them, and the calls that wait until they fit into the rest of such a
limit (contract, section 16, "Ahead").

Each answer reports what is left of some limits (`proxy.retry.limit_fields`). Such a report is about one endpoint and
one credential, and as old as the request that it answers: what attempts sent since then cost is taken off. A call that
would not fit waits, in a lane of the governor's like any other, until it does. A report alone never refuses a call.

Theory of the refill. Some providers fill a limit up all the time, others at the end of a window. Where answers name the
window, so much is added each second (contract). Where they name only the time until the limit is whole, that time says
which kind it is: if the limit fills up all the time, it is in proportion to what was used, else it does not depend on
it. So two reports between which the use has changed by half tell the rate; until then nothing is added before the
reset.

Law: an attempt's price is taken off every report of an attempt that was sent before it, once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from proxy.retry.caller import Caller
from proxy.retry.fair_order import app_of, take_place
from proxy.retry.lane import Lane
from proxy.retry.limit_fields import ReportedLimit
from proxy.retry.report_trust import ReportTrust
from proxy.retry.token_estimate import Estimate
from proxy.retry.traffic import Traffic
from proxy.retry.waiter import Waiter

_NEVER = float("inf")

#: Contract, section 16: the most limits of a scope that are known.
MOST_LIMITS = 32
#: The most pairs of endpoint and credential whose attempts are counted; those with a limit that is known stay longest.
_MOST_ACCOUNTS = 64
#: The units that a limit counts, by their places in a price.
_PLACES = {"attempts": 0, "tokens": 1, "prompt": 2, "output": 3}
#: An attempt's price: itself, and a language model's tokens: all, those of the prompt, those of the output.
Price = tuple[float, float, float, float]
#: The price of an attempt whose tokens are not known.
ONE: Price = (1.0, 0.0, 0.0, 0.0)
#: By how much the use of a limit has to change between two reports that tell how it refills, and how much the rates
#: that both say may differ.
_MORE_USED, _ALIKE = 1.5, 1.1
#: A shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-6
#: The endpoint, and the hash of the credential.
Whose = tuple[str, bytes]


def price_of(estimate: Estimate | None) -> Price:
    """The price of an attempt in each unit that a limit may count: one attempt, then the tokens of `estimate` (in all,
    of the prompt, of the output), zeros if it is None.
    """
    return ONE if estimate is None else (1.0, estimate.price, estimate.prompt, estimate.output)


class _Report:
    """The latest report of one limit, `said`. `spent`: what had been spent of the limit in all when the attempt that
    this report answers had been sent; `order`: the number of that attempt; `at`: when the report came; `until`: when
    the limit is whole again; `rate`: what is added each second, 0 if that is not known.
    """

    __slots__ = ("at", "order", "rate", "said", "spent", "until")

    def __init__(self, said: ReportedLimit, spent: float, order: float, at: float, rate: float) -> None:
        self.said = said
        self.spent = spent
        self.order = order
        self.at = at
        self.until = at + said.reset
        self.rate = rate

    @property
    def place(self) -> int:
        """The index, in a price (`price_of`), of the unit that the limit counts."""
        return _PLACES[self.said.counts]

    def left(self, spent: float, now: float) -> float:
        """The rest of the limit at `now`; below zero if more was sent since the report than was left. `spent`: what has
        been spent of the limit in all.
        """
        most = _NEVER if self.said.limit is None else self.said.limit
        return min(most, self.said.remaining + self.rate * (now - self.at)) - (spent - self.spent)

    def needs(self, price: Price) -> float:
        """The amount that an attempt with this price needs to begin: its price, or the whole limit if that is less."""
        price_here = price[self.place]
        return price_here if self.said.limit is None else min(price_here, self.said.limit)


class _Refill:
    """Finds out how one limit refills if its reports do not name a window. `rate`: what is added each second; 0 until
    it is known.
    """

    __slots__ = ("_used", "_whole_in", "rate")

    def __init__(self) -> None:
        self.rate = 0.0
        self._used = self._whole_in = 0.0  # of the report that others are compared with

    def learn(self, said: ReportedLimit) -> None:
        """Learn from the report `said`, which does not name a window."""
        if said.limit is None or said.remaining >= said.limit:
            return
        used, whole_in = said.limit - said.remaining, said.reset
        if self._used and max(used, self._used) < _MORE_USED * min(used, self._used):
            return
        if self._used:
            rate, before = used / whole_in, self._used / self._whole_in
            self.rate = rate if max(rate, before) <= _ALIKE * min(rate, before) else 0.0
        self._used, self._whole_in = used, whole_in


class Account:
    """The attempts of one endpoint and credential, and the limits that their answers report. `lane`: that of the calls
    that wait until they fit into these limits, None until a limit is known.
    """

    __slots__ = ("_refills", "_spent", "lane", "reports", "succeeded", "trust")

    def __init__(self) -> None:
        self._spent = list(ONE)
        self._refills: dict[str, _Refill] = {}
        self.reports: dict[str, _Report] = {}
        self.trust = ReportTrust()
        self.succeeded = False  # an attempt did, so that its credential is known to be one
        self.lane: AheadLane | None = None

    def sent(self, price: Price) -> Price:
        """Note that an attempt with this price is sent. Returns the sum of all prices so far, this one included."""
        for place, each in enumerate(price):
            self._spent[place] += each
        attempts, tokens, prompt, output = self._spent
        return attempts, tokens, prompt, output

    def heard(self, said: ReportedLimit, sent: Price, now: float) -> bool:
        """Take in the report `said` in an answer, and return True; False if an attempt that was sent later has been
        answered with a report already. `sent`: what `Account.sent` returned for the answer's attempt.
        """
        before = self.reports.get(said.name)
        if before is not None and before.order > sent[0] and now < before.until:
            return False
        refill = self._refills.setdefault(said.name, _Refill())
        if said.window and said.limit is not None:
            rate = said.limit / said.window
        else:
            refill.learn(said)
            rate = refill.rate
        self.reports[said.name] = _Report(said, sent[_PLACES[said.counts]], sent[0], now, rate)
        return True

    def forget(self, name: str) -> None:
        """Forget a limit."""
        self.reports.pop(name, None)
        self._refills.pop(name, None)

    def left(self, now: float) -> tuple[tuple[str, float], ...]:
        """The rest of each limit that is known, with the limit's name; never below zero."""
        return tuple(
            (each.said.name, max(0.0, each.left(self._spent[each.place], now))) for each in self._in_force(now)
        )

    def wait(self, price: Price, now: float, promised: Price = (0.0, 0.0, 0.0, 0.0)) -> float:
        """The seconds until an attempt with this price fits into all limits; 0 if it fits now. `promised`: the prices
        of attempts that will be sent before it.
        """
        return max((self._wait_for(each, price, promised, now) for each in self._in_force(now)), default=0.0)

    def _wait_for(self, report: _Report, price: Price, promised: Price, now: float) -> float:
        place = report.place
        if not price[place]:
            return 0.0
        short = report.needs(price) - (report.left(self._spent[place], now) - promised[place])
        if short <= _ROUNDING:
            return 0.0
        return min(report.until - now, short / report.rate if report.rate else _NEVER)

    def _in_force(self, now: float) -> list[_Report]:
        """The reports that still count: neither is the limit whole again, nor are its reports known to be wrong."""
        if not self.reports:
            return []
        trust = self.trust
        return [each for name, each in self.reports.items() if now < each.until and not trust.doubts(name, now)]


class AheadLane(Lane):
    """The calls of one worker that wait until they fit into what is left of their upstream's limits. When they fit,
    they are sent by a slow start, as after a cooldown.
    """

    is_ahead = True
    __slots__ = ("_account",)

    def __init__(self, traffic: Traffic, account: Account, name: Whose) -> None:
        super().__init__(traffic)
        self.name = name
        self._account = account

    def ask(self, waiter: Waiter, now: float, retries: bool = False) -> float:
        """Return `now` if the call may be sent; else the latest time at which it asks again, infinity if its alarm is
        moved when its turn comes (`retime`). `retries` makes no difference here.
        """
        if waiter in self._admitted:
            return now
        if waiter not in self.queue:
            if not self.queue and self._account.wait(_price_of(waiter), now, self._promised()) <= 0:
                return now
            self.queue[waiter] = now
            if app_of(waiter) is not None:
                self.order = take_place(self.order, self.queue)
        if not self.limit.is_on:
            self.limit.return_slowly(now)
        self.release(now, asking=waiter)
        if waiter in self._admitted:
            return now
        return self._next(now) if waiter is next(iter(self.queue)) else _NEVER

    def holds(self, now: float) -> str:
        """The reason for which calls are held now: "ahead", or "" if none are."""
        return "ahead" if self.queue else ""

    def wait_of(self, waiter: Waiter, now: float, hold: float = _NEVER) -> float:
        """An estimate of the seconds until the waiter is sent, if those before it in the queue are sent first. `hold`
        makes no difference here.
        """
        promised = self._promised()
        for other in self.queue:
            if other is waiter:
                break
            promised = _sum(promised, _price_of(other))
        return self._account.wait(_price_of(waiter), now, promised)

    def left(self, now: float) -> tuple[tuple[str, float], ...]:
        """The rest of each limit that is known, with the limit's name; never below zero."""
        return self._account.left(now)

    def _release(self, now: float, asking: Waiter | None) -> None:
        free = self.free(now)
        while self.queue and free >= 1:
            first = next(iter(self.queue))
            if self._account.wait(_price_of(first), now, self._promised()) > 0:
                return
            free -= 1
            self._admit(first, now, asking)

    def _next(self, now: float) -> float:
        wait = self._account.wait(_price_of(next(iter(self.queue))), now, self._promised())
        return now + wait if wait > 0 else super()._next(now)

    def _promised(self) -> Price:
        """The sum of the prices of the calls that may be sent, but are not sent yet."""
        promised: Price = (0.0, 0.0, 0.0, 0.0)
        for waiter in self._admitted:
            promised = _sum(promised, _price_of(waiter))
        return promised


class SentNote:
    """The note of an attempt that was sent, for the limits that its answer may report. `whose`: its endpoint and
    credential; `account`: their attempts and limits; `spent`: the sum of the prices of these attempts, up to and with
    this one.
    """

    __slots__ = ("account", "spent", "whose")

    def __init__(self, whose: Whose, account: Account, price: Price) -> None:
        self.whose = whose
        self.account = account
        self.spent = account.sent(price)


class Ahead:
    """The limits of one scope, as answers report them, for each endpoint and credential. `traffic`: the count of the
    scope's attempts.
    """

    __slots__ = ("_accounts", "_known", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._accounts: OrderedDict[Whose, Account] = OrderedDict()
        self._known: OrderedDict[tuple[Whose, str], None] = OrderedDict()  # the limits; the longest unused first

    def account(self, whose: Whose) -> Account:
        """The attempts of the endpoint and credential in `whose`, and the limits that their answers report."""
        account = self._accounts.get(whose)
        if account is None:
            account = self._accounts[whose] = Account()
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._drop_one(whose)
        return account

    def _drop_one(self, but: Whose) -> None:
        for whose, account in self._accounts.items():
            if whose != but and not account.reports and (account.lane is None or not account.lane.queue):
                del self._accounts[whose]
                return

    def line(
        self, waiter: Waiter, caller: Caller, joined: Sequence[Lane], now: float, *, cools: bool
    ) -> AheadLane | None:
        """The lane in which the call waits until it fits into the limits of its endpoint and credential; None if no
        limits are known, or if a delay that the upstream named holds the call (`cools`). `joined`: the lanes that the
        call is in already; it leaves those of them that are for the limits of another endpoint or credential.
        """
        line = None
        if caller.ahead and not cools:
            account = self._accounts.get((caller.endpoint, caller.credential()))
            line = None if account is None else account.lane
        for lane in joined:
            if lane.is_ahead and lane is not line:
                lane.leave(waiter, now)
        return line

    def wait(self, whose: Whose, waiter: Waiter, now: float) -> float:
        """The seconds until an attempt of this call fits into the limits of the endpoint and credential in `whose`; 0
        if it does now.
        """
        account = self._accounts.get(whose)
        return 0.0 if account is None else account.wait(_price_of(waiter), now)

    def heard(self, note: SentNote, said: Sequence[ReportedLimit], since: float, well: bool, now: float) -> None:
        """Take in the limits that an answer reports (`said`). `note`: the note of the answered attempt, which was sent
        at `since`; `well`: the attempt succeeded. Nothing is kept for a credential until an attempt with it has
        succeeded, so that no app can fill the memory with invented keys.
        """
        whose, account, spent = note.whose, note.account, note.spent
        account.succeeded = account.succeeded or well
        if not account.succeeded:
            return
        if account.lane is None:
            account.lane = AheadLane(self._traffic, account, whose)
        for each in said:
            if well and not account.trust.takes(each, spent[_PLACES[each.counts]], since, now):
                account.forget(each.name)
            elif account.heard(each, spent, now):
                self._known[whose, each.name] = None
                self._known.move_to_end((whose, each.name))
        while len(self._known) > MOST_LIMITS:
            (other, name), _ = self._known.popitem(last=False)
            if other in self._accounts:
                self._accounts[other].forget(name)
                self._accounts[other].trust.forget(name)
        if account.lane.queue:
            account.lane.release(now)

    def forget(self, whose: Whose, now: float) -> None:
        """Forget the limits of the endpoint and credential in `whose`, because the upstream itself said how long to
        wait.
        """
        account = self._accounts.get(whose)
        if account is not None:
            account.trust.refused(now)
            for name in list(account.reports):
                account.forget(name)
                self._known.pop((whose, name), None)
            if account.lane is not None:
                account.lane.release(now)

    def lanes(self) -> list[AheadLane]:
        """The lanes in which calls wait, one for each endpoint and credential with limits that are known."""
        return [each.lane for each in self._accounts.values() if each.lane is not None]


def _price_of(waiter: Waiter) -> Price:
    price: Price = getattr(waiter, "price", ONE)
    return price


def _sum(one: Price, other: Price) -> Price:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]
