"""Calls that wait until they fit into the rest of a limit that the upstream's answers report (contract, section 16,
"Ahead").

Each answer reports what is left of some limits (`proxy.retry.answers.limit_fields`). Such a report is about one
endpoint and one credential, and is as old as the request that it answers, so the cost of attempts sent since then is
subtracted. A call that would not fit waits until it does, in a lane: a queue of the governor, the object that decides
which calls may be sent now. A report alone never refuses a call.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.budgets.token_estimate import ONE, UNIT_INDEX, Price
from proxy.retry.capacity.limit_account import Account
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.queues.fair_order import app_of
from proxy.retry.queues.waiter import Waiter
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.lane import Lane

_NEVER = float("inf")

#: The calls that are sent at once if no limit holds those that wait any more: the first window of RFC 6928, section 2.
_AT_ONCE = 10.0
#: The number of calls that wait for a limit at which one of them tests what is reported of it.
SEVERAL = 5
#: Contract, section 16: the most limits of a scope that are known.
MOST_LIMITS = 32
#: The most pairs of endpoint and credential whose attempts are counted; those with a limit that is known stay longest.
_MOST_ACCOUNTS = 64
#: The endpoint, and the hash of the credential.
Whose = tuple[str, bytes]


class AheadLane(Lane):
    """The calls to one endpoint, with one credential, that wait until they fit into what is left of the limits there.
    If it is known how the limits come back, a call is sent as soon as it fits. Otherwise calls are sent by a slow
    start, as after a cooldown. The same happens when no limit holds the calls any more, since many may be waiting.
    """

    is_ahead = True
    __slots__ = ("_account", "_held", "_reset_at")

    def __init__(self, traffic: Traffic, account: Account, name: Whose) -> None:
        super().__init__(traffic)
        self._reset_at = _NEVER  # when the limit is whole for which the first call in the queue waits
        self._held = ""  # what held calls when some were released last (`Account.holds`)
        self.name = name
        self._account = account

    def ask(self, waiter: Waiter, now: float, retries: bool = False) -> float:
        """Return `now` if the call may be sent. If not, return the time at which the call has to ask again at the
        latest, or infinity if the lane will move the call's alarm when its turn comes (`retime`). `retries`, which
        other lanes need, is not used.
        """
        if waiter in self.due.admitted:
            return now
        if waiter not in self.queue:
            if not self.queue and self._account.wait(_price_of(waiter), now, self._promised()) <= 0:
                return now
            self.queue.join(waiter, now)
            if app_of(waiter) is not None:
                self.queue.arrange(False, now, None)
        self.release(now, asking=waiter)
        if waiter in self.due.admitted:
            return now
        return self._next(now) if waiter is self.queue.first() else _NEVER

    def holds(self, now: float) -> str:
        """The reason for which calls are held now: "ahead", or "" if none are."""
        return "ahead" if self.queue else ""

    def wait_of(self, waiter: Waiter, now: float, hold: float = _NEVER) -> float:
        """An estimate of the seconds until the waiter is sent, if those before it in the queue are sent first: until it
        fits, and until the slow start comes to it, if there is one. `hold`, which other lanes need, is not used.
        """
        if waiter not in self.queue:
            return 0.0  # its turn has come, and only another lane holds it still
        promised = first = self._promised()
        before = 0
        for other in self.queue:
            if other is waiter:
                break
            promised = _sum(promised, _price_of(other))
            before += 1
        wait = self._account.wait(_price_of(waiter), now, promised)
        if self._account.holds(now) != "known":
            begins = self._account.wait(_price_of(next(iter(self.queue))), now, first)
            wait = max(wait, begins + self._slow_start(before, now, restarts=begins > 0))
        return wait

    def _slow_start(self, before: int, now: float, *, restarts: bool) -> float:
        """An estimate of the seconds after which the slow start sends a call with this many calls before it (`before`).
        `restarts`: it begins again with one call; otherwise it goes on with the places that it has.
        """
        most = 1.0
        if not restarts and self.limit.is_on:
            most = max(1.0, self.limit.most)
            before += max(0, int(most - self.free(now)))
        return math.log2(1 + before / most) * (self.limit.round_trip or self._account.answers_take)

    def left(self, now: float) -> tuple[tuple[str, float], ...]:
        """The rest of each limit that is known, as pairs of the limit's name and the rest; never below zero."""
        return self._account.left(now)

    def return_slowly(self, now: float) -> None:
        """Begin the slow start again with one call, whose answer will say what is left of the limits."""
        self.limit.return_slowly(now)
        self.places.forget()

    def _release(self, now: float, asking: Waiter | None) -> None:
        before, self._held = self._held, self._account.holds(now)
        if self._held == "known":
            free = _NEVER
        else:
            if self._held != before or now >= self._reset_at or not self.limit.is_on:
                self.return_slowly(now)
                if not self._held:
                    self.limit.set(_AT_ONCE, _NEVER)
            free = self.free(now)
        while self.queue and free >= 1:
            first = next(iter(self.queue))
            if self._wait(first, now) > 0:
                return
            free -= 1
            self._admit(first, now, asking)

    def _next(self, now: float) -> float:
        wait = self._wait(next(iter(self.queue)), now)
        return now + wait if wait > 0 else super()._next(now)

    def _wait(self, first: Waiter, now: float) -> float:
        """The seconds until the first call in the queue fits; 0 if it fits now."""
        wait = self._account.wait(_price_of(first), now, self._promised())
        self._reset_at = now + wait if wait > 0 and self._account.resets(now + wait) else _NEVER
        return wait

    def _promised(self) -> Price:
        """The sum of the prices of the calls that the lane has let go but whose attempts are not sent yet."""
        promised: Price = (0.0, 0.0, 0.0, 0.0)
        for waiter in self.due.admitted:
            promised = _sum(promised, _price_of(waiter))
        return promised


class SentNote:
    """A note made when an attempt is sent, which shows what a report in its answer has already counted. `whose`: the
    attempt's endpoint and credential. `account`: the attempts and limits of these. `spent`: the sum of the prices of
    all their attempts up to and including this one, in each unit.
    """

    __slots__ = ("account", "spent", "whose")

    def __init__(self, whose: Whose, account: Account, price: Price, now: float) -> None:
        self.whose = whose
        self.account = account
        self.spent = account.sent(price, now)


class Ahead:
    """The limits that answers report in one scope (a set of calls that share their limits), for each endpoint and
    credential. `traffic`: the count of the scope's attempts.
    """

    __slots__ = ("_accounts", "_known", "_lanes", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._accounts: OrderedDict[Whose, Account] = OrderedDict()
        self._lanes: dict[Whose, AheadLane] = {}  # of the accounts with a limit that was reported
        self._known: OrderedDict[tuple[Whose, str], None] = OrderedDict()  # the limits; the longest unused first

    def account(self, whose: Whose) -> Account:
        """The account of the endpoint and credential in `whose`: their attempts, and the limits that answers report for
        them. It is made if there is none yet.
        """
        account = self._accounts.get(whose)
        if account is None:
            account = self._accounts[whose] = Account()
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._drop_one(whose)
        return account

    def _drop_one(self, but: Whose) -> None:
        for whose, account in self._accounts.items():
            lane = self._lanes.get(whose)
            if whose != but and not account.reports and (lane is None or not lane.queue):
                del self._accounts[whose]
                self._lanes.pop(whose, None)
                return

    def line(
        self, waiter: Waiter, caller: Caller, joined: Sequence[Lane], now: float, *, cools: bool
    ) -> AheadLane | None:
        """Return the lane in which the call waits until it fits into the limits of its endpoint and credential. None if
        no limits of these are known, or if a cooldown or an outage holds the call anyway (`cools`). `joined`: the lanes
        that the call is in already; it leaves those that belong to the limits of another endpoint or credential.
        """
        line = None
        if caller.ahead and not cools:
            line = self._lanes.get((caller.endpoint, caller.credential()))
        for lane in joined:
            if lane.is_ahead and lane is not line:
                lane.leave(waiter, now)
        return line

    def wait(self, whose: Whose, waiter: Waiter, now: float) -> float:
        """The seconds until an attempt of this call fits into the limits of the endpoint and credential in `whose`; 0
        if it fits now.
        """
        account = self._accounts.get(whose)
        return 0.0 if account is None else account.wait(_price_of(waiter), now)

    def answers_take(self, whose: Whose) -> float:
        """The mean time (seconds) that answers of the endpoint and credential in `whose` take; 0 if it is not known."""
        account = self._accounts.get(whose)
        return 0.0 if account is None else account.answers_take

    def test(self, whose: Whose, wait: float, most: float, now: float, others: int = 0) -> bool:
        """Have one call find out whether the reported limits of the endpoint and credential in `whose` are right, if
        several calls wait for them. `wait`: the seconds until the first of these calls fits. `most`: the most seconds
        that a call waits. `others`: the number of calls that a cooldown holds meanwhile. Returns whether the test
        begins.
        """
        lane = self._lanes.get(whose)
        calls = 0 if lane is None else len(lane.queue) + others
        if lane is None or calls < SEVERAL:
            return False
        first = next(iter(lane.queue), None)
        price = ONE if first is None else _price_of(first)
        return self._accounts[whose].test(wait, most, now, _times(price, calls))

    def refused(self, whose: Whose, since: float, now: float) -> None:
        """Note that an attempt was refused because a limit was exceeded, in an answer that names no delay. `since`: the
        time at which the attempt was sent.
        """
        account = self._accounts.get(whose)
        if account is not None:
            account.trust.refused(since, now)

    def heard(self, note: SentNote, reports: Sequence[ReportedLimit], since: float, well: bool, now: float) -> None:
        """Update the known limits by `reports`, which one answer made. `note`: the note made when the answered attempt
        was sent, at the time `since`. `well`: the attempt succeeded. Nothing is kept for a credential until an attempt
        with it has succeeded, so no app can fill the memory with invented keys.
        """
        whose, account, spent = note.whose, note.account, note.spent
        account.succeeded = account.succeeded or well
        if not account.succeeded or self._accounts.get(whose) is not account or since < account.refused_since:
            return
        lane = self._lanes.get(whose)
        if lane is None:
            lane = self._lanes[whose] = AheadLane(self._traffic, account, whose)
        for each in reports:
            if well:
                scale = account.scale(each.name)
                account.trust.test_shows(each, spent[UNIT_INDEX[each.counts]], since, now, scale=scale)
            if account.is_old(each.name, spent[0], now):
                continue
            if well and account.resizes(each):
                account.trust.resized(each.name, now)
            believed = not well or account.trust.takes(
                each,
                spent[UNIT_INDEX[each.counts]],
                since,
                now,
                order=spent[0],
                explained=account.explains(each, spent),
                predicted=account.predicts(each.name, now),
            )
            account.heard(each, spent, now, took=now - since, tested=not believed)
            if not believed:
                lane.return_slowly(now)
            self._known[whose, each.name] = None
            self._known.move_to_end((whose, each.name))
        for name in account.assumed(spent[0]) if well else ():
            account.forget(name)
        while len(self._known) > MOST_LIMITS:
            (other, name), _ = self._known.popitem(last=False)
            if other in self._accounts:
                self._accounts[other].drop(name)
        if lane.queue:
            lane.release(now)

    def forget(self, whose: Whose, since: float, now: float, delay: float = 0.0) -> None:
        """Forget the limits of the endpoint and credential in `whose`, because the upstream itself said to wait, in its
        answer to an attempt that was sent at the time `since`. `delay`: how long it said to wait, in seconds.
        """
        account = self._accounts.get(whose)
        if account is not None:
            account.refused(since, now, delay)
        lane = self._lanes.get(whose)
        if lane is not None:
            lane.release(now)

    def lanes(self) -> list[AheadLane]:
        """The lanes in which calls wait, one for each endpoint and credential with limits that are known."""
        return list(self._lanes.values())


def _price_of(waiter: Waiter) -> Price:
    price: Price = getattr(waiter, "price", ONE)
    return price


def _sum(one: Price, other: Price) -> Price:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def _times(price: Price, calls: int) -> Price:
    return price[0] * calls, price[1] * calls, price[2] * calls, price[3] * calls
