"""A rate of the fleet: what waits at its gate waits as at any other, and is told when tokens have come.

As in `proxy.stores.redis.leased`. Nobody is turned away, and nobody let through, before it is known whether there
is a token.
"""

from __future__ import annotations

import math

from proxy.retry.buckets import RateBucket
from proxy.retry.policy import RateSpec
from proxy.stores.redis.bucket import PROMPT, Store
from proxy.stores.redis.leased import TELL, LeasedBucket


class RedisRate(LeasedBucket, RateBucket):
    """A rate of the fleet. Who waits at its gate waits as at any other; the gate is told when tokens have come."""

    def __init__(self, spec: RateSpec, store: Store, key: str, known: float | None, now: float) -> None:
        RateBucket.__init__(self, spec, started=now)
        self._begin(store, key, known, start=self._level, refill=self.rate, reserve=min(1.0, self.capacity))

    # -- proxy.retry.buckets.RateBucket ------------------------------------------------------------------------------

    def _own_level(self, now: float) -> float:
        return RateBucket.level(self, now)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens may be there. With Redis gone and `on_outage: deny`: never."""
        if self.store.out:
            return math.inf if self.store.denies else super().wait(now, tokens)
        short = tokens - (self.lease.left if now <= self.lease.until else 0.0)
        if short <= 1e-9:
            return 0.0
        if self.rate <= 0 and self.level(now) < tokens:
            return math.inf
        pool = self._pool_heard + max(0.0, now - self.heard_at) * self.rate if self._knows else short
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
        if self.store.out:
            super().give_back(now)
            self.lease.changed += 1
            return
        self.lease.changed += self.lease.put_back(1.0)
        self._soon(now + PROMPT)

    def _question(self, now: float) -> None:
        """Nobody is turned away before the answer is there."""
        self.gate.asking = True
        self._soon(now)

    # -- proxy.stores.redis.bucket.RedisBucket -------------------------------------------------------------------------

    def _awaited(self) -> float:
        return float(len(self.gate.queue))

    def _learn(self, values: list[float], now: float) -> None:
        super()._learn(values, now)
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Those in line ask again: now where there are tokens, or where nobody may wait; else when they have come."""
        gate = self.gate
        gate.asking = False
        if gate.rejects:
            for waiter in list(gate.queue):
                waiter.retime(now)
        else:
            gate.retime(now)

    def _plan(self, now: float) -> None:
        super()._plan(now)
        if self.gate.queue:
            self._soon(now + max(TELL, self.wait(now)))

    def part(self, now: float) -> None:
        """The own bucket carries on from the last known level."""
        self._level, self._at = self._level_now(now), now

    def parted(self, now: float) -> None:
        """Those in line ask the own bucket."""
        super().parted(now)
        self._wake(now)
