"""What quotas and rates in Redis have in common: their tokens go out on lease.

Law: nothing is spent that is not leased, so that the fleet never spends more than the bucket has. A process that is
using a bucket keeps a little at hand, what it has just been spending, and gives the rest back; one that has spent
nothing for a second gives all of it back. With Redis gone a bucket of the same definition carries on, from the last
known level; what it spends and earns is reported when Redis is back.
"""

from __future__ import annotations

import math

from proxy.stores.redis.bucket import FORGET, PROMPT, RedisBucket, Store, shown
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


class LeasedBucket(RedisBucket):
    """What quotas and rates have in common."""

    capacity: float

    def _begin(
        self, store: Store, key: str, known: float | None, *, start: float, refill: float, reserve: float
    ) -> None:
        """`start`: the level of a new one; `refill`: tokens a second; `reserve`: what is kept at hand for the next."""
        self.hold(store, key, known)
        self._start, self._per_second, self.reserve = start, refill, reserve
        self.lease = Lease(store.dead * TRUSTED)
        self._burn = Burn(AHEAD)
        self._used_at = -math.inf
        self._spent_at = -math.inf
        self._level_heard = math.nan
        self._pool_heard = 0.0

    def level(self, now: float) -> float:
        """Tokens of the fleet, those on lease included."""
        return self._own_level(now) if self.store.out else self._level_now(now)

    def _own_level(self, now: float) -> float:
        """That of the bucket that carries on where Redis can't be had."""
        raise NotImplementedError

    def _level_now(self, now: float) -> float:
        """The last known level, our own changes since, and what time has brought since: Redis counts by its own clock,
        and we the seconds since we heard of it, so that machines need not agree on what time it is.
        """
        if not self._knows:
            return self._start if self._known is None else self._known
        level = min(self.capacity, max(0.0, self._level_heard + self.lease.unsent))
        return min(self.capacity, level + max(0.0, now - self.heard_at) * self._per_second)

    @property
    def _knows(self) -> bool:
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

    def _awaited(self) -> float:
        """Tokens that are waited for; those at hand are among them."""
        raise NotImplementedError

    def _report(self, now: float) -> list[object]:
        lease, asked = self.lease, self._awaited()
        spent_told, changed_told = lease.spent_told, lease.changed_told
        knows = self._knows or self._known is not None or self.store.out
        known = self.level(now) if knows and not self.store.observes else None
        spent, changed, keep = lease.send(max(self._keeps(now), min(asked, lease.left)), now)
        short = max(0.0, asked - keep)
        more = max(0.0, self._need(now) - max(keep - asked, 0.0))
        bounds = self._start, self.capacity, self._per_second
        numbers = [spent, changed, spent_told, changed_told, keep, short, more, known, *bounds]
        store = self.store
        return [*(shown(each) for each in numbers), store.draw(), store.dead, FORGET]

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
