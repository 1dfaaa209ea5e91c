"""Buckets of which each of several apps spends a part (contract, section 17, "Retry tokens").

There are three kinds of buckets. From a quota, an app spends what `proxy.retry.budgets.app_parts` allows. With a
budget, a retry must be granted twice: by the budget of the app's own calls, and by the budget of all calls. A throttle
is shared by all apps, without parts. `of_app` returns one app's view of a bucket: an object with the interface of a
bucket, for that app's calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.budgets.app_parts import AppParts
from proxy.retry.budgets.buckets import Affords, Bucket, BudgetBucket, QuotaBucket, make_bucket
from proxy.retry.facts import Class
from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec

_LOW = RANKS["low"]
_INFINITE = math.inf


def make_app_bucket(spec: BucketSpec, *, instead_of: Bucket | None = None, now: float = -math.inf) -> Bucket:
    """Make the bucket that `spec` defines. If `spec` names apps, each app has a part of the bucket. `instead_of`: the
    bucket that the new one replaces, None for none. `now`: seconds; minus infinity if the bucket's time begins when it
    is first used.
    """
    if isinstance(spec, QuotaSpec) and has_parts(spec):
        return PartedQuota(spec, instead_of=instead_of, now=now)
    if isinstance(spec, BudgetSpec) and spec.apps:
        return PartedBudget(spec, instead_of=instead_of)
    return make_bucket(spec, instead_of=instead_of, now=now)


def has_parts(spec: QuotaSpec) -> bool:
    """Whether apps have parts of this quota. A quota of infinite capacity has no parts."""
    return bool(spec.apps) and not math.isinf(spec.capacity)


def parts_of(spec: QuotaSpec, level: float) -> AppParts:
    """Make the parts of the apps that a quota's definition names, for a quota that has `level` tokens."""
    return AppParts(spec.apps, spec.capacity, spec.dearest, level)


# -- quotas ----------------------------------------------------------------------------------------------------------


class PartedQuota(QuotaBucket):
    """A quota of which each app has a part. `parts`: the parts. `index`, in all methods, is the number of an app among
    the parts.

    A quota rests while it is full: calls then need not be reported to it, and each call only sets `called_at` of its
    app's view. The quota notes those times in the parts before it asks them anything.
    """

    # Methods of the base class are called by its name, since compiled code goes through the interpreter for `super()`.

    __slots__ = ("_views", "parts")

    def __init__(self, spec: QuotaSpec, *, instead_of: Bucket | None = None, now: float = -math.inf) -> None:
        QuotaBucket.__init__(self, spec, instead_of=instead_of, now=now)
        self.parts = parts_of(spec, self._level)
        self._views: dict[str, AppQuota] = {}

    def of_app(self, app: NamedApp) -> Bucket:
        return app_view(self._views, self, app)

    def state(self) -> tuple[float, ...]:
        """The state as numbers, to be kept elsewhere: first those of the whole bucket, then those of its parts."""
        self._note_calls()
        return (*QuotaBucket.state(self), *self.parts.state())

    def restore(self, state: tuple[float, ...]) -> None:
        QuotaBucket.restore(self, state[:4])
        self.parts.restore(state[4:])
        for view in self._views.values():
            view.rests = False

    def _advance(self, now: float) -> None:
        before = self._level
        QuotaBucket._advance(self, now)
        self.parts.refilled(before, self._level)

    def _note_payment(self, now: float) -> None:
        if self.rests:
            self._end_rest()
        QuotaBucket._note_payment(self, now)

    def _end_rest(self) -> None:
        """End the rest: note in the parts when each app made its latest call, and have all calls reported again until a
        success finds the quota full.
        """
        self._note_calls(ends_rest=True)
        self.rests = False

    def _note_calls(self, ends_rest: bool = False) -> None:
        """Note in the parts when each app made its latest call, if calls were not reported because the quota rested.
        `ends_rest`: have later calls reported.
        """
        for view in self._views.values():
            if view.called_at > self.parts.seen(view.index):
                self.parts.came(view.index, view.called_at)
            if ends_rest:
                view.rests = False

    def _put_back(self, price: float, now: float) -> None:
        before = self.level(now)
        QuotaBucket._put_back(self, price, now)
        self.parts.refilled(before, self._level)

    def succeeded(self, last_price: float | None, now: float) -> None:
        before = self.level(now)
        QuotaBucket.succeeded(self, last_price, now)
        self.parts.refilled(before, self._level)

    def came(self, index: int, now: float) -> None:
        self.parts.came(index, now)
        self.begin(now)

    def available(self, index: int, low: bool, now: float) -> float:
        """The tokens that the app with the number `index` may spend now. `low`: its call has low priority."""
        if self.rests:
            self._note_calls()
        return self.parts.available(index, low, self.level(now), now)

    def affords_for(self, index: int, low: bool, price: float, now: float) -> bool:
        if self.rests:
            self._end_rest()
        return not price or self.parts.affords(index, low, price, self.level(now), now)

    def take_for(self, index: int, low: bool, price: float, now: float) -> bool:
        level = self.level(now)
        if not price:
            return True
        if self.rests:
            self._end_rest()
        if not self.parts.affords(index, low, price, level, now):
            return False
        self.parts.took(index, price, level, now)
        self._level = max(0.0, level - price)
        self._note_payment(now)
        return True

    def earn_for(self, index: int, tokens: float, now: float) -> None:
        """Put tokens back that the app with the number `index` earned by a success, or that a payment gave back."""
        if self._level >= self.capacity:  # nearly always the case; every part is full then
            self.rests = self._trusted == _INFINITE
            return
        self._level = min(self.capacity, self.level(now) + tokens)
        self.parts.earned(index, tokens, self._level)

    def succeeded_for(self, index: int, last_price: float | None, now: float) -> None:
        self.earn_for(index, self._refund if last_price is None or self.spec.flat_refund else last_price, now)

    def charge_for(self, index: int, low: bool, now: float) -> float:
        """Charge a call that the app with the number `index` made as its own retry. The charge is the price of a retry,
        or what the app may spend if that is less. `low`: the call has low priority. Returns the tokens that were taken.
        """
        charge = min(self.available(index, low, now), self.spec.retry_cost)
        return charge if self.take_for(index, low, charge, now) else 0.0


class SpentByApps(Protocol):
    """The methods of a quota that `AppQuota`, one app's view of the quota, calls. The quota may be kept outside this
    process. `index`, in all methods, is the number of the app in the quota's `parts`.
    """

    spec: QuotaSpec
    capacity: float
    parts: AppParts
    rests: bool

    def level(self, now: float) -> float:
        """The tokens left."""

    def price(self, cls: Class) -> float:
        """The price of a retry after a failure of this class."""

    def share(self, now: float) -> float | None:
        """The level as a share of the capacity (0 to 1); None if the quota has no such share."""

    def withheld(self) -> str:
        """The reason why no retry is granted at the moment, even if the level is high enough, as a clause for people;
        "" if the level alone decides.
        """

    def came(self, index: int, now: float) -> None:
        """Note that the app with the number `index` makes a call."""

    def available(self, index: int, low: bool, now: float) -> float:
        """The tokens that the app with the number `index` may spend now. `low`: its call has low priority."""

    def affords_for(self, index: int, low: bool, price: float, now: float) -> Affords:
        """Whether the app with the number `index` could take the price now. `low`: its call has low priority."""

    def take_for(self, index: int, low: bool, price: float, now: float) -> bool:
        """Take the price from what the app with the number `index` may spend, and return True; if that is too little,
        take nothing and return False. `low`: the app's call has low priority.
        """

    def earn_for(self, index: int, tokens: float, now: float) -> None:
        """Put tokens back that the app with the number `index` earned by a success, or that a payment gave back."""

    def succeeded_for(self, index: int, last_price: float | None, now: float) -> None:
        """Refund a call of the app with the number `index` that succeeded. `last_price`: the price of the call's last
        retry, None if it was not retried.
        """

    def charge_for(self, index: int, low: bool, now: float) -> float:
        """Charge a call that the app with the number `index` made as its own retry. `low`: the call has low priority.
        Returns the tokens that were taken.
        """

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        """Ask the bucket, if it is kept outside this process, for the price of a retry that is due at the time `due`.
        `answer(price, granted)` is called once; `granted` says whether the price was taken.
        """


class AppQuota(Bucket):
    """A quota as one app's calls spend it. `whole`: the quota of all apps. `index`: the app's number among the quota's
    parts. `name`: the app's name.
    """

    __slots__ = ("_low", "index", "name", "whole")

    spec: QuotaSpec

    def __init__(self, whole: SpentByApps, app: NamedApp) -> None:
        super().__init__(whole.spec, whole.capacity)
        self.whole = whole
        self.name = app.name
        self.index, self._low = whole.parts.index(app.name), app.rank == _LOW

    def level(self, now: float) -> float:
        return self.whole.level(now)

    def spendable(self, now: float) -> float:
        """The tokens that the app may spend now."""
        return self.whole.available(self.index, self._low, now)

    def begin(self, now: float) -> None:
        self.whole.came(self.index, now)

    def price(self, cls: Class) -> float:
        return self.whole.price(cls)

    def affords(self, price: float, now: float) -> Affords:
        return self.whole.affords_for(self.index, self._low, price, now)

    def take(self, price: float, now: float) -> bool:
        return self.whole.take_for(self.index, self._low, price, now)

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        self.whole.ask(price, due, now, partial(self._answered, now, answer))

    def _answered(self, now: float, answer: Callable[[float, bool], None], price: float, granted: bool) -> None:
        """Pass the answer of the quota outside this process on to `answer`. If the quota granted the price, count it as
        spent by this app.
        """
        if granted:
            self.whole.parts.took(self.index, price, self.whole.level(now) + price, now)
        answer(price, granted)

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        self.whole.earn_for(self.index, price, now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        self.whole.succeeded_for(self.index, last_price, now)
        self.rests = self.whole.rests

    def charge_app_retry(self, now: float) -> float:
        return self.whole.charge_for(self.index, self._low, now)

    def app_succeeded(self, charged: float, now: float) -> None:
        self.whole.earn_for(self.index, charged, now)

    def share(self, now: float) -> float | None:
        return self.whole.share(now)

    def withheld(self) -> str:
        return self.whole.withheld()


def app_view(views: dict[str, AppQuota], whole: SpentByApps, app: NamedApp) -> AppQuota:
    """Return one app's view of the quota `whole`: the one in `views` or, if it has none yet, a new one, which is
    added. Calls of low priority have views of their own.
    """
    name = app.name if app.rank != _LOW else "low " + app.name
    view = views.get(name)
    if view is None:
        view = views[name] = AppQuota(whole, app)
    return view


# -- budgets ---------------------------------------------------------------------------------------------------------


class PartedBudget(BudgetBucket):
    """A budget for the calls of all apps, which also gives each app a budget of its own calls (`AppBudget`)."""

    __slots__ = ("_views",)

    def __init__(self, spec: BudgetSpec, *, instead_of: Bucket | None) -> None:
        super().__init__(spec, instead_of=instead_of)
        self._views: dict[str, Bucket] = {}

    def of_app(self, app: NamedApp) -> Bucket:
        view = self._views.get(app.name)
        if view is None:
            view = self._views[app.name] = AppBudget(self, BudgetBucket(self.spec))
        return view


class AppBudget(Bucket):
    """A budget as one app's calls spend it: a retry has to fit into both `whole`, the budget of all calls, and `own`,
    that of this app's calls.
    """

    __slots__ = ("own", "whole")

    spec: BudgetSpec

    def __init__(self, whole: Bucket, own: BudgetBucket) -> None:
        super().__init__(own.spec, whole.capacity)
        self.whole = whole
        self.own = own

    def level(self, now: float) -> float:
        return self.whole.level(now)

    def spendable(self, now: float) -> float:
        """The number of retries that would be granted to the app now: the smaller of what the budget of all calls and
        the app's own have left.
        """
        return min(self.whole.level(now), self.own.level(now))

    def begin(self, now: float) -> None:
        self.whole.begin(now)
        self.own.begin(now)

    def price(self, cls: Class) -> float:
        return self.whole.price(cls)

    def affords(self, price: float, now: float) -> Affords:
        return self.own.affords(price, now) and self.whole.affords(price, now)

    def take(self, price: float, now: float) -> bool:
        if not self.own.take(price, now):
            return False
        if not self.whole.take(price, now):
            self.own.give_back(price, now, taken_at=now)
            return False
        return True

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        self.whole.ask(price, due, now, partial(self._answered, now, answer))

    def _answered(self, now: float, answer: Callable[[float, bool], None], price: float, granted: bool) -> None:
        """Pass the answer of the budget outside this process on to `answer`. If that budget granted the retry, count
        the retry in the app's own budget too.
        """
        if granted:
            self.own.charge_app_retry(now)
        answer(price, granted)

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        self.whole.give_back(price, now, taken_at=taken_at)
        self.own.give_back(price, now, taken_at=taken_at)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Do nothing: a budget grows when a call begins, and not when it succeeds."""

    def app_succeeded(self, charged: float, now: float) -> None:
        """Do nothing when an app's own retry succeeds: a success earns no tokens in a budget."""

    def charge_app_retry(self, now: float) -> float:
        self.own.charge_app_retry(now)
        return self.whole.charge_app_retry(now)

    def share(self, now: float) -> float | None:
        return self.whole.share(now)

    def withheld(self) -> str:
        return self.whole.withheld()
