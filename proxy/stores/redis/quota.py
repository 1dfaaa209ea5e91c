"""A quota of the fleet (contract, section 3, "Buckets"): the bucket's words, paid from a lease.

As in `proxy.stores.redis.leased`. What a call earns goes into the lease as far as its spending is not told yet,
and to the fleet otherwise; nothing is earned beyond the capacity, as far as the level is known.
"""

from __future__ import annotations

import math

from proxy.retry.buckets import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.facts import Class
from proxy.retry.policy import QuotaSpec
from proxy.stores.redis.bucket import FRESH, PROMPT, Store
from proxy.stores.redis.leased import AHEAD, TELL, LeasedBucket


class RedisQuota(LeasedBucket, Bucket):
    """A quota of the fleet."""

    spec: QuotaSpec

    def __init__(self, spec: QuotaSpec, store: Store, key: str, known: float | None) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self._own = QuotaBucket(spec)  # carries on where Redis can't be had; also the price list
        reserve = max(spec.retry_cost, spec.timeout_cost, spec.throttling_cost)
        self._begin(store, key, known, start=self._own.level(0.0), refill=spec.refill, reserve=reserve)

    # -- proxy.retry.buckets.Bucket ----------------------------------------------------------------------------------

    def _own_level(self, now: float) -> float:
        return self._own.level(now)

    def share(self, now: float) -> float | None:
        return self.level(now) / self.capacity if self.capacity > 0 else None

    def price(self, cls: Class) -> float:
        return self._own.price(cls)

    def begin(self, now: float) -> None:
        """A call began: one of the next may have to be retried."""
        self._used_at = now
        if self.lease.left < self.reserve and now - self.heard_at >= AHEAD and not self.store.out:
            self._soon(now)

    def affords(self, price: float, now: float) -> Affords:
        """From the lease; or it has to be asked, unless it is known well enough that there is not so much."""
        if self.store.out:
            return not price or (not self.store.denies and self._own.affords(price, now))
        if not price or self.lease.has(price, now):
            return True
        fresh = now - self.heard_at <= FRESH
        return False if fresh and self._level_now(now) < price else ASK

    def take(self, price: float, now: float) -> bool:
        """From the lease, the whole price or nothing."""
        if self.store.out:
            return self._take_own(price, now)
        if not price:
            return True
        if not self.lease.has(price, now):
            return False
        self._spend(price, now)
        return True

    _pay = take

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        self._earn(price, now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        refund = self.spec.success_refund if last_price is None or self.spec.flat_refund else last_price
        if refund:
            self._earn(refund, now)

    def charge_app_retry(self, now: float) -> float:
        """min(level, retry_cost): of the lease, and of what the pool is known to have."""
        charge = min(self.level(now), self.spec.retry_cost)
        if self.store.out:
            return charge if self._take_own(charge, now) else 0.0
        leased = min(charge, self.lease.left) if now <= self.lease.until else 0.0
        if leased:
            self._spend(leased, now)
        if charge > leased:
            self.lease.changed -= charge - leased
            self._soon(now + TELL)
        return charge

    def app_succeeded(self, charged: float, now: float) -> None:
        self._earn(charged, now)

    # -- proxy.stores.redis.bucket.RedisBucket -------------------------------------------------------------------------

    def _earn(self, amount: float, now: float) -> None:
        """Tokens come: never above the capacity, as far as that is known."""
        if self.store.out:
            before = self._own.level(now)
            self._own.give_back(amount, now)
            self.lease.changed += self._own.level(now) - before
            return
        rest = self.lease.put_back(amount)
        knows = self._knows or self._known is not None
        room = self.capacity - self._level_now(now) if knows else math.inf  # the script keeps the capacity
        if min(rest, room) > 0:
            self.lease.changed += min(rest, room)
            self._soon(now + PROMPT)

    def _take_own(self, price: float, now: float) -> bool:
        if not price:
            return True
        if self.store.denies or not self._own.take(price, now):
            return False
        self.lease.changed -= price
        return True

    def _awaited(self) -> float:
        return sum(price for price, _ in self._asks)

    def part(self, now: float) -> None:
        self._own.restore((self._level_now(now), now, self.spec.refill))
