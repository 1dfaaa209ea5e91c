"""Leases: tokens of the fleet's quotas and rates that one process may spend without asking.

Law: nothing is spent that is not leased, so the fleet never spends more than the bucket has. A process that is using a
bucket keeps a few tokens ready, as many as it has just been spending, and returns the rest; one that has spent nothing
for a second returns all of them. If Redis is out, a bucket of this process's share of the definition continues from its
share of the last known level, which the unspent lease is a part of; what it spends and earns is reported when Redis is
back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from proxy.retry.buckets import ASK, Affords, Bucket, QuotaBucket, RateBucket
from proxy.retry.facts import Class
from proxy.retry.policy import QuotaSpec, RateSpec
from proxy.retry.token_bucket import TokenBucket
from proxy.stores.redis.bucket import FRESH, PROMPT, RedisBucket, Store
from proxy.stores.redis.share import Turns

#: Contract, section 3, "Buckets": an idle lease goes back after a second.
IDLE = 1.0
#: Seconds after which spending is reported: a process that is killed leaves no more unreported than it spent in them.
REPORT_PAUSE = 0.01
#: Seconds of spending for which a process keeps tokens ready.
AHEAD = 0.25
#: Parts of the time after which Redis takes a silent holder's lease back: for the first the holder spends from its
#: lease, and after the second it renews it.
TRUSTED, ALIVE = 0.8, 0.2


class Lease:
    """Tokens that are leased to this process, and its sums to report about them.

    `spent` and `changed` are sums since the beginning, as they are reported; `*_reported`: the same as of the last
    report that was answered. `left` is never more than what Redis has recorded as leased to this process. A lease that
    was not confirmed within `lasts` seconds may have been given to others, and is not spent any more.
    """

    __slots__ = ("_sent", "changed", "changed_reported", "lasts", "left", "spent", "spent_reported", "until")

    def __init__(self, lasts: float) -> None:
        self.lasts = lasts
        self.left = 0.0
        self.until = -math.inf
        self.spent = self.spent_reported = 0.0
        self.changed = self.changed_reported = 0.0
        self._sent = (0.0, 0.0, 0.0, -math.inf)

    def has(self, amount: float, now: float) -> bool:
        """Whether `amount` tokens can be spent from the lease now: it has them, and was confirmed lately enough."""
        return amount <= self.left and now <= self.until

    def spend(self, amount: float) -> None:
        """Take an amount from the lease, which must have it."""
        self.left -= amount
        self.spent += amount

    def put_back(self, amount: float) -> float:
        """Put tokens back into the lease, up to the spending that was not reported yet; the rest, which is to be
        reported as earned.
        """
        back = min(amount, max(0.0, self.spent - self.spent_reported))
        self.left += back
        self.spent -= back
        return amount - back

    @property
    def unsent(self) -> float:
        """The difference that this process has made to the level since the last report that was answered, in tokens."""
        return (self.changed - self.changed_reported) - (self.spent - self.spent_reported)

    def send(self, keep: float, now: float) -> tuple[float, float, float]:
        """Make a report: the sums of what was spent and changed, and how much of the lease is kept. The rest of the
        lease is not ours from now on.
        """
        if now > self.until:
            keep = 0.0
        self.left = min(self.left, keep)
        self._sent = (self.spent, self.changed, self.left, now)
        return self.spent, self.changed, self.left

    def confirmed(self, lease: float) -> None:
        """Note that the report was answered; `lease` is the amount that Redis has recorded as ours now."""
        spent, changed, kept, at = self._sent
        self.left += lease - kept
        self.until = at + self.lasts
        self.spent_reported, self.changed_reported = spent, changed
        if self.spent < spent:  # tokens were put back that had been reported as spent
            back = spent - self.spent
            self.spent = spent
            self.left -= back
            self.changed += back
        self.left = max(0.0, self.left)  # Redis took the lease back; what was spent of it is reported


class Burn:
    """The number of tokens spent lately: each counts less the older it is, by an exponential decay with the time
    constant `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._while = seconds
        self._amount = 0.0
        self._at = -math.inf

    def add(self, amount: float, now: float) -> None:
        """Add an amount that was spent."""
        self._amount = self.now(now) + amount
        self._at = now

    def now(self, now: float) -> float:
        """The number of tokens spent lately, after the decay until `now`."""
        if self._amount <= 0 or now - self._at > 20 * self._while:
            return 0.0
        return self._amount * math.exp(-max(0.0, now - self._at) / self._while)


class LeasedBucket(RedisBucket):
    """A bucket of the fleet that this process spends by a lease: what quotas and rates in Redis have in common."""

    capacity: float

    def _begin(
        self, store: Store, key: str, known: float | None, *, start: float, refill: float, reserve: float
    ) -> None:
        """Set the attributes up. `start`: the level of a new bucket; `refill`: tokens a second; `reserve`: tokens that
        are kept ready for the next retry or call.
        """
        self.hold(store, key, known)
        self._start, self._per_second, self.reserve = start, refill, reserve
        self.lease = Lease(store.dead * TRUSTED)
        self._burn = Burn(AHEAD)
        self._used_at = self._spent_at = -math.inf
        self._changed_before = 0.0  # the lease's `changed` when the outage began
        self._level_heard = math.nan
        self._pool_heard = 0.0

    def level(self, now: float) -> float:
        """The tokens of the fleet, leased ones included; while Redis is out, those of the bucket of this process
        alone.
        """
        return self._own_level(now) if self.store.out else self._level_now(now)

    def _own_level(self, now: float) -> float:
        raise NotImplementedError

    def _level_now(self, now: float) -> float:
        """The fleet's level: the last known one, our own changes since, and the refill since. Redis counts by its own
        clock, and we count the seconds since its reply, so that machines need not agree on what time it is.
        """
        if not self._has_heard:
            return self._start if self._known is None else self._known
        level = min(self.capacity, max(0.0, self._level_heard + self.lease.unsent))
        return min(self.capacity, level + max(0.0, now - self.heard_at) * self._per_second)

    def _known_level(self, now: float) -> float:
        """The level with which a key that Redis has lost is made again. What this process has spent in an outage is
        taken to be what every other process spent.
        """
        if not self.store.out:
            return self._level_now(now)
        level = (
            self._level_now(now) if self._has_heard else min(self.capacity, self._level_now(now) + self.lease.unsent)
        )
        spent = max(0.0, self._changed_before - self.lease.changed)
        return max(0.0, level - spent * max(0, self.store.share.of - 1))

    @property
    def _has_heard(self) -> bool:
        """Whether Redis has reported this bucket's level at least once."""
        return not math.isnan(self._level_heard)

    @property
    def _knows(self) -> bool:
        """Whether a level is known: one reported by Redis, or that of an earlier definition of this bucket."""
        return self._has_heard or self._known is not None

    def _need(self, now: float) -> float:
        """The number of tokens worth keeping ready."""
        if now - self._used_at >= IDLE or self._leaving:
            return 0.0
        return max(self.reserve, float(math.ceil(self._burn.now(now))))

    def _keeps(self, now: float) -> float:
        """The number of leased tokens to keep: all of them, unless more than half are not needed, then those needed;
        after a second without spending, only the reserve.
        """
        need = self._need(now)
        if self.lease.left > self.reserve and now - self._spent_at >= IDLE:
            return min(need, self.reserve)
        return self.lease.left if self.lease.left <= 2 * need else need

    def _awaited(self) -> float:
        """The tokens that waiting calls need in all; the lease may already have some of them."""
        return sum(price for price, _ in self._asks)

    def _report(self, now: float) -> Iterable[float | None]:
        lease, asked = self.lease, self._awaited()
        reported = lease.spent_reported, lease.changed_reported
        known = self._known_level(now) if (self._knows or self.store.out) and not self.store.observes else None
        *sums, keep = lease.send(max(self._keeps(now), min(asked, lease.left)), now)
        short = max(0.0, asked - keep)
        more = max(0.0, self._need(now) - max(keep - asked, 0.0))
        return *sums, *reported, keep, short, more, known, self._start, self.capacity, self._per_second

    def _learn(self, values: list[float], now: float) -> None:
        lease, self._pool_heard, leased = values
        self.lease.confirmed(lease)
        self._level_heard = self._pool_heard + leased

    def _spend(self, amount: float, now: float) -> None:
        self.lease.spend(amount)
        self._burn.add(amount, now)
        self._used_at = self._spent_at = now
        self._soon(now + REPORT_PAUSE)

    def _plan(self, now: float) -> None:
        lease = self.lease
        if self._asks:
            self._soon(now)
        if lease.spent != lease.spent_reported:
            self._soon(now + REPORT_PAUSE)
        if lease.changed != lease.changed_reported:
            self._soon(now + PROMPT)
        if lease.left > 0:
            at = self.heard_at + self.store.dead * ALIVE
            if lease.left > self.reserve:
                at = min(at, now + AHEAD)
            self._soon(max(now + REPORT_PAUSE, min(at, self._used_at + IDLE)))


class RedisQuota(LeasedBucket, Bucket):
    """A quota of the fleet (contract, section 3, "Buckets"): the rules of `QuotaBucket`, paid from a lease. Tokens that
    a call earns offset what this process has spent and not yet reported to Redis, and so stay in its lease; the rest of
    them is reported, for the whole fleet.
    """

    spec: QuotaSpec

    def __init__(self, spec: QuotaSpec, store: Store, key: str, known: float | None) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self._own = QuotaBucket(spec)  # used for prices at all times; while Redis is out, this process's share
        reserve = max(spec.retry_cost, spec.timeout_cost, spec.throttling_cost)
        self._begin(store, key, known, start=self._own.level(0.0), refill=spec.refill, reserve=reserve)

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
        self._own.restore((share.part(level, self.reserve) if share.of else level, now, 0.0))

    def share(self, now: float) -> float | None:
        if self.capacity <= 0:
            return None
        return self._own.share(now) if self.store.out else self.level(now) / self.capacity

    def price(self, cls: Class) -> float:
        return self._own.price(cls)

    def begin(self, now: float) -> None:
        """Note that a call began, which may have to be retried: if the lease lacks the reserve, ask for it."""
        self._used_at = now
        if self.lease.left < self.reserve and now - self.heard_at >= AHEAD and not self.store.out:
            self._soon(now)

    def affords(self, price: float, now: float) -> Affords:
        """Whether the lease has the price; ASK if Redis may have it, unless it is known to have less."""
        if self.store.out:
            return not price or (not self.store.withholds() and self._own.affords(price, now))
        if not price or self.lease.has(price, now):
            return True
        fresh = now - self.heard_at <= FRESH
        return False if fresh and self._level_now(now) < price else ASK

    def take(self, price: float, now: float) -> bool:
        """Take the whole price from the lease, or nothing; whether it was taken."""
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

    def _pay_late(self, price: float, now: float) -> bool:
        if self.take(price, now):
            return True
        if price > self.store.share_now(now).part(self._level_now(now), self.reserve):
            return False
        self.lease.changed -= price
        return True

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """Put tokens back, up to the capacity as far as the level is known."""
        if self.store.out:
            before = self._own.level(now)
            self._own.give_back(price, now)
            self.lease.changed += self._own.level(now) - before
            return
        rest = self.lease.put_back(price)
        room = self.capacity - self._level_now(now) if self._knows else math.inf  # the script keeps the capacity
        if min(rest, room) > 0:
            self.lease.changed += min(rest, room)
            self._soon(now + PROMPT)

    def succeeded(self, last_price: float | None, now: float) -> None:
        refund = self.spec.success_refund if last_price is None or self.spec.flat_refund else last_price
        if refund:
            self.give_back(refund, now)

    def charge_app_retry(self, now: float) -> float:
        """Take min(level, retry_cost), from the lease first, and report the rest as a change of the fleet's tokens; the
        amount.
        """
        charge = min(self.level(now), self.spec.retry_cost)
        if self.store.out:
            return charge if self.take(charge, now) else 0.0
        leased = min(charge, self.lease.left) if now <= self.lease.until else 0.0
        if leased:
            self._spend(leased, now)
        if charge > leased:
            self.lease.changed -= charge - leased
            self._soon(now + REPORT_PAUSE)
        return charge

    def app_succeeded(self, charged: float, now: float) -> None:
        self.give_back(charged, now)


class RedisRate(LeasedBucket, RateBucket):
    """A rate of the fleet. Calls wait at its gate as at that of any other rate, and ask again when tokens have arrived.
    Before it is known whether there is a token, no call is refused, and none passes.
    """

    def __init__(self, spec: RateSpec, store: Store, key: str, known: float | None, now: float) -> None:
        RateBucket.__init__(self, spec, started=now)
        self._begin(store, key, known, start=self._level, refill=self.rate, reserve=min(1.0, self.capacity))
        self._own: TokenBucket | Turns = TokenBucket(0.0, 0.0, 0.0, now)  # this process's share while Redis is out

    def _own_level(self, now: float) -> float:
        return self._own.level(now)

    def part(self, now: float) -> None:
        """Let this process's share continue from the last known level."""
        share, level = self.store.share, self._level_now(now)
        self._changed_before = self.lease.changed
        if not share.of:
            self._own = TokenBucket(0.0, self.capacity, level, now)  # a figure to show: nothing is granted
        elif share.of > 1 and self.capacity / share.of < 1 <= self.capacity:
            self._own = Turns(self.rate, self.capacity, level, share, now)
        else:
            part = self.capacity / share.of
            self._own = TokenBucket(self.rate / share.of, part, min(part, level / share.of), now)

    def parted(self, now: float) -> None:
        """Let the queued calls ask the share of this process. If it has none, they are answered at once."""
        super().parted(now)
        self._wake(now)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens may be available; infinity if they never will, so long as Redis is out."""
        if self.store.out:
            return math.inf if self.store.withholds() else self._own.wait(now, tokens)
        short = tokens - (self.lease.left if now <= self.lease.until else 0.0)
        if short <= 1e-9:
            return 0.0
        if self.capacity < 1 or (self.rate <= 0 and self.level(now) < tokens):
            return math.inf
        pool = self._pool_heard + max(0.0, now - self.heard_at) * self.rate if self._has_heard else short
        return max(REPORT_PAUSE, (short - pool) / self.rate if self.rate > 0 else 0.0)

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take the price, one token unless it says otherwise, from the lease; whether the lease had it."""
        self._used_at = now
        if self.store.out:
            if self.store.withholds() or not self._own.take(now, price):
                return False
            self.lease.changed -= price
            return True
        if self.lease.has(price, now):
            self._spend(price, now)
            if self.lease.left < self.reserve:
                self._soon(now)
            return True
        if now - self.heard_at > REPORT_PAUSE or self._pool_heard + self.rate * REPORT_PAUSE >= 1:
            self.gate.asking = True  # no call is refused before the reply
            self._soon(now)
        return False

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        if self.store.out:
            self._own.give_back(now, tokens)
            self.lease.changed += tokens
            return
        self.lease.changed += self.lease.put_back(tokens)
        self._soon(now + PROMPT)

    def _awaited(self) -> float:
        return float(len(self.gate.queue))

    def _learn(self, values: list[float], now: float) -> None:
        super()._learn(values, now)
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Have the queued calls ask again: all of them now if calls may not wait, else each when a token for it may be
        available.
        """
        gate = self.gate
        gate.asking = False
        if gate.rejects or self.withheld():
            for waiter in list(gate.queue):
                waiter.retime(now)
        else:
            gate.retime(now)

    def _plan(self, now: float) -> None:
        super()._plan(now)
        if self.gate.queue:
            self._soon(now + max(REPORT_PAUSE, self.wait(now)))
