"""Quotas of a fleet: the rules of `QuotaBucket`, paid from a lease, and in an outage of Redis from this process's
share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.app_buckets import AppQuota, app_view, parts_of
from proxy.retry.budgets.buckets import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.facts import Class
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.stores.redis.bucket import Store
from proxy.stores.redis.lease import AHEAD, RENEW, LeasedBucket
from proxy.stores.redis.share import Share

#: Seconds for which a level that can't pay is believed: retries are refused meanwhile, and Redis is not asked.
DRAINED = 0.6


class RedisQuota(LeasedBucket, Bucket):
    """A quota of the fleet (contract, section 3, "Buckets"): the rules of `QuotaBucket`, paid from a lease. `key`: its
    key in Redis; `known`: the last known level of the bucket that this one replaces, None if it replaces none.

    Tokens that a call earns offset what this process has spent and not yet reported to Redis, and so stay in its lease;
    the rest of them is reported, for the whole fleet.
    """

    spec: QuotaSpec

    def __init__(self, spec: QuotaSpec, store: Store, key: str, known: float | None) -> None:
        Bucket.__init__(self, spec, spec.capacity)
        self.parts = parts_of(spec, spec.capacity)  # this process's view of the apps' parts
        self._views: dict[str, AppQuota] = {}
        self._own = QuotaBucket(spec)  # used for prices at all times; while Redis is out, this process's share
        prices = spec.retry_cost, spec.timeout_cost, spec.throttling_cost
        self._begin(store, key, known, start=self._own.level(0.0), refill=spec.refill, prices=prices)

    def _own_level(self, now: float) -> float:
        return self._own.level(now)

    def part(self, now: float) -> None:
        share, spec = self.store.share, self.spec
        self._changed_before = self.lease.changed
        if share.of:
            capacity = spec.capacity / share.of
            if share.of > 1:
                capacity = max(capacity, min(self.reserve, spec.capacity))
            self._own = QuotaBucket(replace(spec, capacity=capacity, refill=spec.refill / share.of))
        level = self._level_now(now)
        level = max(0.0, self._share_left(share, now)) if share.of else level
        self._own.restore((level, now, *self._own.state()[2:]))

    def _share_left(self, share: Share, now: float) -> float:
        """The rest of this process's `share` of the level, less what it has spent of it since Redis was heard last."""
        known = self._level_now(now) + (self._alone if self._has_heard else 0.0)  # a level not heard is as at the start
        return share.part(known, self.reserve) - self._alone

    def share(self, now: float) -> float | None:
        if self.capacity <= 0:
            return None
        return self._own.share(now) if self.store.out else self.level(now) / self.capacity

    def price(self, cls: Class) -> float:
        return self._own.price(cls)

    def begin(self, now: float) -> None:
        """Note that a call began, which may have to be retried: if the lease has less than the dearest price, ask Redis
        for tokens. If the fleet has too few tokens for that, ask only now and then, to know the level.
        """
        self._used_at = now
        pause = AHEAD if self._part >= self.reserve else RENEW
        if self.lease.left < self.reserve and now - self.heard_at >= pause and not self.store.out:
            self._soon(now)

    def affords(self, price: float, now: float) -> Affords:
        """Whether the lease has the price (tokens). If it has not: ASK if Redis may have the tokens, else False."""
        if self.store.out:
            return not price or (not self.store.withholds() and self._own.affords(price, now))
        if not price or self.lease.has(price, now):
            return True
        fresh = now - self.heard_at <= DRAINED
        return False if fresh and self._level_now(now) < price else ASK

    def take(self, price: float, now: float) -> bool:
        if not price:
            return True
        if self.store.out:
            if self.store.withholds() or not self._own.take(price, now):
                return False
            self.lease.changed -= price
            return True
        if not self.lease.has(price, now):
            return False
        self._spend(price, now)
        return True

    _pay = take

    def _pay_alone(self, price: float, now: float) -> bool:
        if self._share_left(self.store.share_now(now), now) < price:
            return False
        self._alone += price
        self._take_beside(price, now)
        return True

    def _is_in_pieces(self, price: float, now: float) -> bool:
        level = self._level_now(now)
        return level / max(1, self.store.share_now(now).of) < price <= level

    def _take_beside(self, tokens: float, now: float) -> None:
        """Take tokens from the lease first; the rest is reported as a change of the fleet's tokens."""
        leased = min(tokens, self.lease.left) if now <= self.lease.until else 0.0
        if leased:
            self._spend(leased, now)
        if tokens > leased:
            self.lease.changed -= tokens - leased
            self._soon(now + self._pause)

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """Put tokens back (`price`), up to the capacity as far as the level is known. `taken_at` is not used."""
        if self.store.out:
            before = self._own.level(now)
            self._own.give_back(price, now)
            self.lease.changed += self._own.level(now) - before
            return
        rest = self.lease.put_back(price)
        self._alone = max(0.0, self._alone - rest)  # as the bucket of an outage gets it back
        room = self.capacity - self._level_now(now) if self._knows else math.inf  # the script keeps the capacity
        if min(rest, room) > 0:
            self.lease.changed += min(rest, room)
            self._soon(now + self._earned_pause)

    def succeeded(self, last_price: float | None, now: float) -> None:
        refund = self._refund(last_price)
        if refund:
            self.give_back(refund, now)

    def _refund(self, last_price: float | None) -> float:
        """The tokens that a success earns; `last_price` is what its last retry paid, None if it was not retried."""
        return self.spec.success_refund if last_price is None or self.spec.flat_refund else last_price

    def charge_app_retry(self, now: float) -> float:
        """Charge a call that is the app's own retry: a retry's price, or the level if that is less. The tokens come
        from the lease first; the rest is reported as a change of the fleet's tokens. Returns their number.
        """
        charge = min(self.level(now), self.spec.retry_cost)
        if self.store.out:
            return charge if self.take(charge, now) else 0.0
        self._take_beside(charge, now)
        return charge

    def app_succeeded(self, charged: float, now: float) -> None:
        self.give_back(charged, now)

    # -- for apps: the fleet's level, and this process's own view of the parts ----------------------------------------

    def of_app(self, app: NamedApp) -> Bucket:
        return app_view(self._views, self, app) if self.spec.apps else self

    def came(self, index: int, now: float) -> None:
        self.begin(now)
        self.parts.came(index, now)

    def succeeded_for(self, index: int, last_price: float | None, now: float) -> None:
        self.earn_for(index, self._refund(last_price), now)

    def available(self, index: int, low: bool, now: float) -> float:
        """The tokens that the app with the number `index` may spend now. `low`: its call has low priority, and gets
        nothing from a bucket that is at most half full.
        """
        return self.parts.available(index, low, self.level(now), now)

    def affords_for(self, index: int, low: bool, price: float, now: float) -> Affords:
        """Whether the app with the number `index` may spend the price, and the lease has it; ASK if Redis may have it.
        `low`: the app's call has low priority, and gets nothing from a bucket that is at most half full.
        """
        if price and not self.parts.affords(index, low, price, self.level(now), now):
            return False
        return self.affords(price, now)

    def take_for(self, index: int, low: bool, price: float, now: float) -> bool:
        level = self.level(now)
        if price and not self.parts.affords(index, low, price, level, now):
            return False
        if not self.take(price, now):
            return False
        self.parts.took(index, price, level, now)
        return True

    def earn_for(self, index: int, tokens: float, now: float) -> None:
        """Put back tokens that the app with the number `index` earned, or got back."""
        if tokens:
            self.give_back(tokens, now)
            self.parts.earned(index, tokens, self.level(now))

    def charge_for(self, index: int, low: bool, now: float) -> float:
        """Charge a call that is the own retry of the app with the number `index`: a retry's price, or what the app may
        spend if that is less. Returns the tokens that were taken. `low`: the call has low priority.
        """
        may = self.available(index, low, now)
        if may < self.spec.retry_cost:
            return may if self.take_for(index, low, may, now) else 0.0
        level = self.level(now)
        charge = self.charge_app_retry(now)
        self.parts.took(index, charge, level, now)
        return charge
