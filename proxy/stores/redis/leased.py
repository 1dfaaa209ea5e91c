"""Quotas and rates in Redis: their tokens go out on lease.

Law: nothing is spent that is not leased, so that the fleet never spends more than the bucket has. A process that is
using a bucket keeps a little at hand, what it has just been spending, and gives the rest back; one that has spent
nothing for a second gives all of it back. With Redis gone a bucket of the same definition carries on, from the last
known level; what it spends and earns is reported when Redis is back.
"""

from __future__ import annotations

import math

from proxy.retry.bucket import ASK, Affords, Bucket, QuotaBucket, RateBucket
from proxy.retry.facts import Class
from proxy.retry.gates import TokenGate
from proxy.retry.policy import QuotaSpec, RateSpec
from proxy.stores.redis.holding import FORGET, FRESH, PROMPT, Holding, Store, shown
from proxy.stores.redis.lease import Burn, Lease

#: Contract, section 3, "Buckets": an idle lease goes back after a second.
IDLE = 1.0
#: What was spent is told so soon: a process that is killed leaves no more untold than it spent in that time.
TELL = 0.01
#: Seconds of spending that a process keeps tokens for.
AHEAD = 0.25
#: The part of the time after which a lease comes back for which its holder trusts it, and the part after which it says
#: that it is still there.
TRUSTED, ALIVE = 0.8, 0.2


class _Leased(Holding):
    """What quotas and rates have in common."""

    #: What is kept at hand for the next one.
    reserve: float
    capacity: float

    def _begin(self, store: Store, key: str, known: float | None) -> None:
        self.hold(store, key, known)
        self.lease = Lease(store.dead * TRUSTED)
        self._burn = Burn(AHEAD)
        self._used_at = -math.inf
        self._spent_at = -math.inf
        self._level_heard = math.nan
        self._pool_heard = 0.0

    def _known_level(self) -> float:
        """The last known level and our own changes since."""
        if math.isnan(self._level_heard):
            return self.capacity if self._known is None else self._known
        return min(self.capacity, max(0.0, self._level_heard + self.lease.unsent))

    @property
    def knows(self) -> bool:
        """Whether a level was ever heard."""
        return not math.isnan(self._level_heard)

    def _need(self, now: float) -> float:
        """What is worth keeping at hand."""
        if now - self._used_at >= IDLE or self._leaving:
            return 0.0
        return max(self.reserve, float(math.ceil(self._burn.now(now))))

    def _keeps(self, now: float) -> float:
        """A lease shrinks once half of it is not needed; one that nothing was spent of for a second goes back."""
        need = self._need(now)
        if self.lease.left > self.reserve and now - self._spent_at >= IDLE:
            return min(need, self.reserve)
        return self.lease.left if self.lease.left <= 2 * need else need

    def _report_lease(self, now: float, *, asked: float, start: float, rate: float) -> list[object]:
        """`asked`: tokens that are waited for; those at hand are among them."""
        lease = self.lease
        spent_told, changed_told = lease.spent_told, lease.changed_told
        known = None if self.store.observes else self._known_now(now)
        spent, changed, keep = lease.send(max(self._keeps(now), min(asked, lease.left)), now)
        short = max(0.0, asked - keep)
        more = max(0.0, self._need(now) - max(keep - asked, 0.0))
        numbers = [spent, changed, spent_told, changed_told, keep, short, more, known, start, self.capacity, rate]
        store = self.store
        return [*(shown(each) for each in numbers), store.draw(), store.dead, FORGET]

    def _known_now(self, now: float) -> float | None:
        return self._known_level() if self.knows or self._known is not None else None

    def _learn(self, values: list[float], now: float) -> None:
        lease, self._pool_heard, leased = values
        self.lease.confirmed(lease)
        self._level_heard = self._pool_heard + leased
        self._known = None

    def _spend(self, amount: float, now: float) -> None:
        self.lease.spend(amount)
        self._burn.add(amount, now)
        self._used_at = self._spent_at = now
        self._soon(now + TELL)

    def _plan(self, now: float) -> None:
        """When to speak again, if nothing happens."""
        lease = self.lease
        if self._asks:
            self._soon(now)
        if lease.spent != lease.spent_told:
            self._soon(now + TELL)
        if lease.changed != lease.changed_told:
            self._soon(now + PROMPT)
        if lease.left > 0:
            at = self.heard_at + self.store.dead * ALIVE
            if lease.left > self.reserve:
                at = min(at, now + AHEAD)
            self._soon(max(now + TELL, min(at, self._used_at + IDLE)))


class RedisQuota(_Leased, Bucket):
    """A quota of the fleet."""

    spec: QuotaSpec

    def __init__(self, spec: QuotaSpec, store: Store, key: str, known: float | None) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self._own = QuotaBucket(spec)  # carries on where Redis can't be had; also the price list
        self.reserve = max(spec.retry_cost, spec.timeout_cost, spec.throttling_cost)
        self._start = self._own.level(0.0)
        self._begin(store, key, known)

    # -- proxy.retry.bucket.Bucket ----------------------------------------------------------------------------------

    def level(self, now: float) -> float:
        """Tokens of the fleet, those on lease included."""
        if self.store.out:
            return self._own.level(now)
        return self._known_level() if self.knows or self._known is not None else self._start

    def share(self) -> float | None:
        """Level by capacity."""
        return self.level(0.0) / self.capacity if self.capacity > 0 else None

    def price(self, cls: Class) -> float:
        """By class."""
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
        return False if fresh and self._known_level() < price else ASK

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
        """The price comes back."""
        self._earn(price, now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """The last retry's price, or the refund for a first attempt."""
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
        """The charge comes back, where the refund is flat too."""
        self._earn(charged, now)

    # -- proxy.stores.redis.holding.Holding -------------------------------------------------------------------------

    def _earn(self, amount: float, now: float) -> None:
        """Tokens come: never above the capacity, as far as that is known."""
        if self.store.out:
            before = self._own.level(now)
            self._own.give_back(amount, now)
            self.lease.changed += self._own.level(now) - before
            return
        rest = self.lease.put_back(amount)
        room = self.capacity - self._known_level()
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

    def _report(self, now: float) -> list[object]:
        asked = sum(price for price, _ in self._asks)
        return self._report_lease(now, asked=asked, start=self._start, rate=0.0)

    def _known_now(self, now: float) -> float | None:
        return self._own.level(now) if self.store.out else super()._known_now(now)

    def part(self, now: float) -> None:
        """The own bucket carries on from the last known level."""
        level = self._known_level() if self.knows or self._known is not None else self._start
        self._own = QuotaBucket(self.spec)
        self._own._level = level


class RedisRate(_Leased, RateBucket):
    """A rate of the fleet. Who waits at its gate waits as at any other; the gate is told when tokens have come."""

    def __init__(self, spec: RateSpec, store: Store, key: str, known: float | None, now: float) -> None:
        RateBucket.__init__(self, spec, started=now)
        self.reserve = min(1.0, self.capacity)
        self._start = self._level
        self.gate: TokenGate | None = None
        self._begin(store, key, known)

    # -- proxy.retry.bucket.RateBucket ------------------------------------------------------------------------------

    def level(self, now: float) -> float:
        """Tokens of the fleet, those on lease included."""
        if self.store.out:
            return super().level(now)
        if not self.knows:
            return self._start if self._known is None else self._known
        return min(self.capacity, self._known_level() + max(0.0, now - self.heard_at) * self.rate)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens may be there. With Redis gone and `on_outage: deny`: never."""
        if self.store.out:
            return math.inf if self.store.denies else super().wait(now, tokens)
        short = tokens - (self.lease.left if now <= self.lease.until else 0.0)
        if short <= 1e-9:
            return 0.0
        if self.rate <= 0 and self.level(now) < tokens:
            return math.inf
        pool = self._pool_heard + max(0.0, now - self.heard_at) * self.rate if self.knows else short
        if self.capacity < 1:
            return math.inf
        return max(TELL, (short - pool) / self.rate if self.rate > 0 else 0.0)

    def take(self, now: float) -> bool:
        """One token of the lease."""
        self._used_at = now
        if self.store.out:
            if self.store.denies or not super().take(now):
                return False
            self.lease.changed -= 1
            return True
        if self.lease.has(1.0, now):
            self._spend(1.0, now)
            if self.lease.left < self.reserve:
                self._soon(now)
            return True
        if now - self.heard_at > TELL or self._pool_heard + self.rate * TELL >= 1:
            self._question(now)
        return False

    def give_back(self, now: float) -> None:
        """One token that was not used."""
        if self.store.out:
            super().give_back(now)
            self.lease.changed += 1
            return
        self.lease.changed += self.lease.put_back(1.0)
        self._soon(now + PROMPT)

    def _question(self, now: float) -> None:
        """Nobody is turned away before the answer is there."""
        if self.gate is not None:
            self.gate.asking = True
        self._soon(now)

    # -- proxy.stores.redis.holding.Holding -------------------------------------------------------------------------

    def _report(self, now: float) -> list[object]:
        asked = float(len(self.gate.queue)) if self.gate is not None else 0.0
        return self._report_lease(now, asked=asked, start=self._start, rate=self.rate)

    def _known_now(self, now: float) -> float | None:
        if self.store.out:
            return super().level(now)
        return self.level(now) if self.knows or self._known is not None else None

    def _learn(self, values: list[float], now: float) -> None:
        super()._learn(values, now)
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Those in line ask again: now where there are tokens, or where nobody may wait; else when they have come."""
        gate = self.gate
        if gate is None:
            return
        gate.asking = False
        if gate.rejects:
            for waiter in list(gate.queue):
                waiter.retime(now)
        else:
            gate.retime(now)

    def _plan(self, now: float) -> None:
        super()._plan(now)
        if self.gate is not None and self.gate.queue:
            self._soon(now + max(TELL, self.wait(now)))

    def part(self, now: float) -> None:
        """The own bucket carries on from the last known level."""
        self._level, self._at = self.level(now), now

    def parted(self, now: float) -> None:
        """Those in line ask the own bucket."""
        super().parted(now)
        self._wake(now)
