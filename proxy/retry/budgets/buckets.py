"""Retry buckets, which calls share so that retries stay a bounded share of the work (contract, section 3, "Buckets").

Law: `take` is check and deduction in one step, a refusal deducts nothing, and a level never leaves [0, capacity]. A
bucket knows no calls: what a call paid is kept in the call's payment, and is returned by `succeeded` (the last retry's
price) or `give_back` (a granted retry that was never sent). Levels are tokens, times are seconds on the driver's clock.
Zero costs, zero capacities and infinities are valid.

Theory. The kinds differ in what costs and what earns tokens:

    quota     AWS SDKs: a retry pays by its failure's class, a retried success returns the last payment, a first
              attempt's success earns a little; a failing upstream drains it within seconds, and a healthy one refills
              it, as time does if `refill` is set
    throttle  gRPC A6: a failed attempt costs 1, a success earns token_ratio; retries only above half, in thousandths
    budget    Finagle, Linkerd, Envoy: retries may be a percentage of the calls of a window, or so many a second
    rate      a classic token bucket on attempts: a gate that calls wait at, not a price
    (proxy/retry/budgets/token_bucket.py)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.sliding_window import SlidingCount
from proxy.retry.budgets.token_bucket import TokenBucket, TokenGate
from proxy.retry.facts import Class
from proxy.retry.policies.bucket_specs import (
    QUIET_MEMORY,
    QUIET_PER_CALL,
    QUIET_PER_RETRY,
    QUIET_REFILL,
    BucketSpec,
    BudgetSpec,
    QuotaSpec,
    RateSpec,
    ThrottleSpec,
)

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_TIMEOUT, _THROTTLING = Class.TIMEOUT, Class.THROTTLING
#: The answer of a bucket outside this process that has to be asked first. A true value like True: in both cases the
#: payment itself decides.
ASK: Final = "ask"
_INFINITE = math.inf
#: Tolerance in tokens: a shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-9
Affords = bool | Literal["ask"]


class Bucket:
    """The store of tokens that the retries of a policy are paid from. Buckets kept outside this process (stores/) have
    the same interface.

    `rests`: the bucket is full, and this process alone changes it. A caller need not call `succeeded` then, and may set
    `called_at` (the time of the latest call that began in this way) instead of calling `begin`. `charges_failures`:
    failed attempts cost tokens, so each must be reported (`failed`). `capacity`: the most tokens that the bucket holds.
    """

    __slots__ = ("called_at", "capacity", "charges_failures", "rests", "spec")

    spec: BucketSpec

    def __init__(self, spec: BucketSpec, capacity: float) -> None:
        self.spec = spec
        self.capacity = capacity
        self.rests = self.charges_failures = False
        self.called_at = -_INFINITE

    def level(self, now: float) -> float:
        """The number of tokens left; for a budget, the number of retries that would be granted now."""
        raise NotImplementedError

    def begin(self, now: float) -> None:
        """Count a call that begins."""

    def price(self, cls: Class) -> float:
        """The price (tokens) of a retry after a failure of this class. A failure that no rule, dialect or list of the
        policy names is priced as a transient one.
        """
        raise NotImplementedError

    def affords(self, price: float, now: float) -> Affords:
        """Whether `take` would succeed now. The result is ASK if this process can't know, because the tokens are kept
        outside it; then `take` would refuse, and `ask` finds out.
        """
        raise NotImplementedError

    def offer(self, cls: Class, now: float) -> float | None:
        """The price (tokens) of a retry after a failure of this class; None if the bucket would refuse it now. If the
        bucket has to be asked first (ASK), the price is returned too.
        """
        price = self.price(cls)
        return price if self.affords(price, now) else None

    def take(self, price: float, now: float) -> bool:
        """Check and deduct the price in one step. Returns False if the price was refused, and nothing deducted."""
        raise NotImplementedError

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        """Find out whether the bucket grants the price of a retry that is due at the time `due`, and take the price if
        so. `answer(price, granted)` is called exactly once: at the latest at the time `due` or, if that is later, a
        round trip to Redis from now.
        """
        answer(price, self.take(price, now))

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """Put back the price of a granted retry that was never sent. `taken_at`: when it was granted, if known (for a
        budget).
        """

    def failed(self, now: float) -> None:
        """Count a failed attempt. Called only if the bucket has `charges_failures`, and only for failures that are
        retryable, or whose pushback forbids a retry.
        """

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Refund a call that succeeded. `last_price`: the price of its last retry, None if it was not retried."""
        raise NotImplementedError

    def charge_app_retry(self, now: float) -> float:
        """Charge a call that is the app's own retry: take the price of a retry, or as much of it as the bucket has, and
        never refuse. Returns the tokens that were taken.
        """
        raise NotImplementedError

    def app_succeeded(self, charged: float, now: float) -> None:
        """Refund a call that was the app's own retry, and whose first attempt succeeded. `charged`: the tokens that it
        was charged, which are put back in place of the usual refund.
        """
        self.succeeded(charged, now)

    def share(self, now: float) -> float | None:
        """The level as a share of the capacity (0 to 1); None if a bucket of this kind has no such share. A bucket that
        replaces this one starts with the same share.
        """
        return None

    def withheld(self) -> str:
        """The reason why no retry is granted at the moment, even if the level is high enough, as a clause for people;
        "" if the level alone decides.
        """
        return ""

    def of_app(self, app: NamedApp) -> Bucket:
        """Return one app's view of the bucket, from which the calls of this app pay; the bucket itself if apps have no
        parts of it.
        """
        return self

    def came(self, place: int, now: float) -> None:
        """Count a call that begins. `place`: the number of the call's app among the bucket's parts; a bucket without
        parts ignores it.
        """
        self.begin(now)

    def affords_for(self, place: int, low: bool, price: float, now: float) -> Affords:
        """Whether `take_for` would succeed now; the result is that of `affords`. `place`: the number of the call's app
        among the bucket's parts. `low`: the call has low priority.
        """
        return self.affords(price, now)

    def take_for(self, place: int, low: bool, price: float, now: float) -> bool:
        """Take the price from what an app may spend, and return True; if that is too little, take nothing and return
        False. `place`: the number of the app among the bucket's parts. `low`: the app's call has low priority.
        """
        return self.take(price, now)

    def succeeded_for(self, place: int, last_price: float | None, now: float) -> None:
        """Refund a call that succeeded. `place`: the number of the call's app among the bucket's parts; a bucket
        without parts ignores it. `last_price`: the price of the call's last retry, None if it was not retried.
        """
        self.succeeded(last_price, now)

    def spendable(self, now: float) -> float:
        """The tokens that may be spent now: the bucket's level or, for one app's view of the bucket (`of_app`), what
        that app may spend.
        """
        return self.level(now)


def make_bucket(spec: BucketSpec, *, instead_of: Bucket | None = None, now: float = -math.inf) -> Bucket:
    """Make the bucket that `spec` defines. `instead_of`: the bucket that the new one replaces; the new one starts with
    the same share of its capacity as the old one had at the time `now`. `now`: seconds on the driver's clock; if
    omitted, the bucket's time begins when it is first used.
    """
    if isinstance(spec, QuotaSpec):
        return QuotaBucket(spec, instead_of=instead_of, now=now)
    if isinstance(spec, ThrottleSpec):
        return ThrottleBucket(spec, instead_of=instead_of, now=now)
    if isinstance(spec, BudgetSpec):
        return BudgetBucket(spec, instead_of=instead_of)
    raise TypeError("retries are not paid from a bucket of kind rate: make a RateBucket")


class QuotaBucket(Bucket):
    """AWS's retry quota. Source: AWS SDK for Java 2.x (500 tokens, 5 for a retry, 1 for a success); Smithy's example
    with `flat_refund`.

    With `refill`, time adds tokens too, computed whenever the level is read: `_level` is the level at the time `_at`. A
    quota that refills in quiet (while few calls begin and no retry is paid) does the same while its level is below
    `_low`, which is 0 for any other quota. For such a quota `_at` may lie ahead: it is the time at which quiet begins.
    Calls that begin delay quiet, but are noted only while the level is below `_low`. Earlier calls do not matter, since
    the payment that lowers the level below `_low` delays quiet by more than they could. `_trusted`: the time from which
    `begin` has to look at the level again, because other processes change it too.
    """

    __slots__ = (
        "_at", "_cost", "_flat_refund", "_level", "_low", "_refill", "_refund", "_throttling_cost", "_timeout_cost",
        "_trusted",
    )  # fmt: skip

    spec: QuotaSpec

    def __init__(self, spec: QuotaSpec, *, instead_of: Bucket | None = None, now: float = -math.inf) -> None:
        super().__init__(spec, spec.capacity)
        self._cost, self._throttling_cost = spec.retry_cost, spec.throttling_cost
        self._timeout_cost = spec.timeout_cost
        self._refund, self._flat_refund = spec.success_refund, spec.flat_refund
        self._refill = QUIET_REFILL * spec.capacity if spec.quiet_up_to else spec.refill
        self._low = spec.quiet_up_to
        self._trusted = _INFINITE
        self._level = _start(spec.capacity, spec.initial, instead_of, now)
        self._at = now

    def state(self) -> tuple[float, ...]:
        """The bucket's state as numbers, for stores outside this process (`proxy.stores`)."""
        return self._level, self._at, self._refill, self._low

    def restore(self, state: tuple[float, ...]) -> None:
        """Take over a state that the method `state` returned, of this object or of another with the same definition."""
        self._level, self._at, self._refill, self._low = state
        self.rests = False

    def level(self, now: float) -> float:
        if self._refill:
            self._advance(now)
        return self._level

    def _advance(self, now: float) -> None:
        """Add the tokens that time added since `_at`; none if `now` is not later."""
        if now > self._at:
            most = self._low or self.capacity
            if self._level < most and self._at > -math.inf:
                self._level = min(most, self._level + (now - self._at) * self._refill)
            self._at = now

    def begin(self, now: float) -> None:
        if self._level < self._low or now >= self._trusted:
            self._note_call(now)

    def _note_call(self, now: float) -> None:
        """Note that a call began, which delays the refill in quiet."""
        self._advance(now)
        self._at = max(self._at, min(self._at + QUIET_PER_CALL, now + QUIET_MEMORY))

    def _note_payment(self, now: float) -> None:
        """Note that a retry was paid: the quota is no longer full. If it refills in quiet (see the class), quiet cannot
        begin until QUIET_PER_RETRY seconds after `now`.
        """
        self.rests = False
        if self._low:
            self._at = max(self._at, now + QUIET_PER_RETRY)

    def price(self, cls: Class) -> float:
        if cls is _TIMEOUT:
            return self._timeout_cost
        return self._throttling_cost if cls is _THROTTLING else self._cost

    def affords(self, price: float, now: float) -> bool:
        if self._refill and now > self._at:
            self._advance(now)
        return price <= self._level or self._is_rounding(price)

    def _is_rounding(self, price: float) -> bool:
        """Whether the level is below the price only because sums of what time added have no exact binary form."""
        return bool(self._refill) and price <= self._level + _ROUNDING

    def take(self, price: float, now: float) -> bool:
        if self._refill and now > self._at:
            self._advance(now)
        if price > self._level and not self._is_rounding(price):
            return False
        if price:
            self._level = max(0.0, self._level - price) if self._level < _INFINITE else _INFINITE
            self._note_payment(now)
        return True

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        self._put_back(price, now)

    def _put_back(self, price: float, now: float) -> None:
        self._level = min(self.capacity, self.level(now) + price)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Put back `last_price`, the price of the call's last retry; if that is None, since the first attempt
        succeeded, put back the refund. With `flat_refund` every success earns only the refund.
        """
        if self._level >= self.capacity:  # nearly always the case
            self.rests = self._trusted == _INFINITE
            return
        if self._refill:
            self._advance(now)
        refund = self._refund if last_price is None or self._flat_refund else last_price
        self._level = min(self.capacity, self._level + refund)

    def charge_app_retry(self, now: float) -> float:
        charge = min(self.level(now), self._cost)
        self.take(charge, now)
        return charge

    def app_succeeded(self, charged: float, now: float) -> None:
        """Put back the tokens that an app's own retry was charged, even with `flat_refund`."""
        self.give_back(charged, now)

    def share(self, now: float) -> float | None:
        return _share(self.level(now), self.capacity)


class ThrottleBucket(Bucket):
    """gRPC A6's retry throttling, in whole thousandths of a token. Further decimals are dropped, as in grpc-core."""

    __slots__ = ("_level", "_most", "_ratio")

    spec: ThrottleSpec

    def __init__(self, spec: ThrottleSpec, *, instead_of: Bucket | None = None, now: float = -math.inf) -> None:
        super().__init__(spec, spec.max_tokens)
        self.charges_failures = True
        self._most = _thousandths(spec.max_tokens)
        self._ratio = _thousandths(spec.token_ratio)
        self._level: float = _thousandths(_start(spec.max_tokens, spec.initial, instead_of, now))

    def level(self, now: float) -> float:
        return self._level / 1000

    def price(self, cls: Class) -> float:
        """Zero: a throttle charges failures, not retries."""
        return 0.0

    def affords(self, price: float, now: float) -> bool:
        """Whether the level is above half of max_tokens; the failure that is to be retried has been counted already."""
        return 2 * self._level > self._most

    def take(self, price: float, now: float) -> bool:
        """Whether the retry is granted: the level is above half of max_tokens. Nothing is deducted, since a throttle
        takes its tokens when an attempt fails.
        """
        return 2 * self._level > self._most

    def failed(self, now: float) -> None:
        self._level = max(0, self._level - 1000)

    def succeeded(self, last_price: float | None, now: float) -> None:
        if self._level < self._most:
            self._level = min(self._most, self._level + self._ratio)

    def charge_app_retry(self, now: float) -> float:
        """Charge nothing: the failure that the app retries has been charged to the throttle already."""
        return 0.0

    def share(self, now: float) -> float | None:
        return _share(self._level, self._most)


class BudgetBucket(Bucket):
    """A retry budget over sliding windows. Sources: Finagle's RetryBudget, Linkerd's, Envoy's retry_budget. At high
    rates neighbouring events are merged into slices (sliding_window.py). The resulting error never grants too much: it
    makes calls leave their window early, and retries late.
    """

    __slots__ = ("_calls", "_last_second", "_retries")

    spec: BudgetSpec

    def __init__(self, spec: BudgetSpec, *, instead_of: Bucket | None = None) -> None:
        # A budget has no store of tokens: its capacity is what it grants without any calls at all.
        super().__init__(spec, spec.min_per_second)
        self._calls: SlidingCount = SlidingCount(spec.window)
        self._retries: SlidingCount = SlidingCount(spec.window, late=True)
        self._last_second: SlidingCount = SlidingCount(1.0, late=True)
        if isinstance(instead_of, BudgetBucket):
            self._calls.remember(instead_of._calls)
            self._retries.remember(instead_of._retries)
            self._last_second.remember(instead_of._last_second)

    def level(self, now: float) -> float:
        """The number of retries that would be granted now, one after another."""
        by_share = self.spec.percent * self._calls.count(now) / 100 - self._retries.count(now)
        by_second = self.spec.min_per_second - self._last_second.count(now)
        most = max(by_share, by_second, 0.0)
        return float(math.ceil(most)) if most < math.inf else most

    def begin(self, now: float) -> None:
        """Count one more call. The more calls the window has, the more retries the budget grants."""
        self._calls.add(now)

    def price(self, cls: Class) -> float:
        return 1.0

    def affords(self, price: float, now: float) -> bool:
        """Whether the window's retries are fewer than the allowed percentage of its calls, or the last second's retries
        are fewer than the allowed minimum.
        """
        return self._has_room(now)

    def _has_room(self, now: float) -> bool:
        if 100 * self._retries.count(now) < self.spec.percent * self._calls.count(now):
            return True
        return self._last_second.count(now) < self.spec.min_per_second

    def take(self, price: float, now: float) -> bool:
        if not self._has_room(now):
            return False
        self._retries.add(now)
        self._last_second.add(now)
        return True

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """Stop counting a granted retry that was never sent: the one granted at the time `taken_at`, or the newest if
        that is None. Nothing is done if `price` is 0.
        """
        if price:
            self._uncount(taken_at)

    def _uncount(self, taken_at: float | None) -> None:
        self._retries.remove(taken_at)
        self._last_second.remove(taken_at)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Do nothing: a budget grows when calls begin, not when they succeed."""

    def charge_app_retry(self, now: float) -> float:
        """Count one more retry, whether the budget has room for it or not. Returns 1, the number of tokens that were
        taken.
        """
        self._retries.add(now)
        self._last_second.add(now)
        return 1.0


class RateBucket(TokenBucket):
    """The bucket of kind rate, from which every attempt takes tokens, first attempts too. `gate`: the gate at which
    calls wait for tokens. `started`: the time at which the bucket is made, on the driver's clock; from then on, a low
    `initial` level fills up. `heir`: the bucket that a reload put in the place of this one, None for none. Calls that
    began before go on paying here, and the heir is charged too, so that both together give no more than the heir may.
    """

    __slots__ = ("gate", "heir", "spec")

    def __init__(self, spec: RateSpec, *, instead_of: TokenBucket | None = None, started: float = 0.0) -> None:
        self.spec = spec
        level = spec.initial if spec.initial is not None else spec.burst
        if instead_of is not None and (share := _share(instead_of._level, instead_of.capacity)) is not None:
            level, started = (share * spec.burst if share else 0.0), instead_of._at
        super().__init__(spec.rate, spec.burst, min(level, spec.burst), started)
        self.gate = TokenGate(self, rejects=spec.when_empty == "reject")
        self.heir: RateBucket | None = None
        if isinstance(instead_of, RateBucket):
            instead_of.replaced_by(self)

    def replaced_by(self, heir: RateBucket) -> None:
        """Charge `heir`, which a reload put in the place of this bucket, for what calls from before go on paying here.
        A bucket that counts in another unit is not charged, since prices say nothing there.
        """
        if heir.spec.unit == self.spec.unit:
            self.heir = heir

    #: The bucket's own tokens alone, without the heir: where they are kept elsewhere, both are overridden.
    _pays = TokenBucket.take
    _regains = TokenBucket.give_back

    def take(self, now: float, price: float = 1.0) -> bool:
        taken = self._pays(now, price)
        if taken and self.heir is not None:
            self.heir.give_back(now, -price)
        return taken

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        self._regains(now, tokens)
        if self.heir is not None:
            self.heir.give_back(now, tokens)


def _start(capacity: float, initial: float | None, instead_of: Bucket | None, now: float) -> float:
    """The level in tokens at which a new bucket starts. If it replaces the bucket `instead_of`: the same share of
    `capacity` as that bucket has at the time `now`. If it replaces none: `initial`, or `capacity` if `initial` is None.
    """
    share = instead_of.share(now) if instead_of is not None else None
    if share is not None:
        return share * capacity if share else 0.0
    return capacity if initial is None else min(initial, capacity)


def _share(level: float, capacity: float) -> float | None:
    if capacity <= 0:
        return None
    return 1.0 if level == math.inf else max(0.0, level / capacity)


def _thousandths(tokens: float) -> int:
    """The tokens in whole thousandths, with further decimals dropped. They are computed from the decimal digits, so
    that 0.57 is 570 and not 569.
    """
    from decimal import Decimal  # imported here, since only this bucket needs it

    return int(min(Decimal(str(tokens)), Decimal(10**15)) * 1000)
