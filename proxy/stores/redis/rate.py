"""Rates of a fleet: tokens that attempts pay for, first ones too, and calls that wait for them.

Waiting does not poll. A process asks once for all its waiters. Redis gives it the tokens that are there, and reserves
the next ones, for a tenth of a second of the refill at most: the process knows when each comes, hands them out in its
own order, and asks again when the last one has come. So messages grow with tokens, and never with waiting.
"""

from __future__ import annotations

import math

from proxy.retry.buckets import RateBucket
from proxy.retry.policy import RateSpec
from proxy.retry.token_bucket import STEP, TokenBucket
from proxy.stores.redis.bucket import PROMPT, Store
from proxy.stores.redis.lease import AHEAD, EARNED, RENEW, REPORT_PAUSE, Burn, LeasedBucket
from proxy.stores.redis.share import Turns

#: Seconds for each process of the fleet, after which a rate that may not be waited for is asked for again.
REPEAT_EACH = 0.01


class RedisRate(LeasedBucket, RateBucket):
    """A rate of the fleet. Calls wait at its gate as at that of any other rate, and ask again when tokens have arrived.
    Before it is known whether there is a token, no call is refused, and none passes.
    """

    def __init__(self, spec: RateSpec, store: Store, key: str, known: float | None, now: float) -> None:
        RateBucket.__init__(self, spec, started=now)
        self._begin(store, key, known, start=self._level, refill=self.rate, prices=[min(1.0, self.capacity)])
        self._burn = Burn(RENEW)  # a lease lasts until the next report
        self._own: TokenBucket | Turns = TokenBucket(0.0, 0.0, 0.0, now)  # this process's share while Redis is out

    _paces = True

    @property
    def _pause(self) -> float:
        return RENEW  # a rate's tokens that a dead process had are not given to others: it may have spent them

    def _own_level(self, now: float) -> float:
        return self._own.level(now)

    def part(self, now: float) -> None:
        """Let this process's share continue from the last known level."""
        share, level = self.store.share, self._level_now(now)
        self._changed_before = self.lease.changed
        self.lease.future.drop(self.lease.future.count)
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
        lease = self.lease
        lease.mature(now)
        short = tokens - (lease.left if now <= lease.until else 0.0)
        if short <= 1e-9:
            return 0.0
        if self.capacity < 1 or (self.rate <= 0 and self.level(now) < tokens):
            return math.inf
        future = lease.future
        if future.count:
            more = max(0.0, short - future.count)
            return max(STEP, future.at(math.ceil(short)) - now + more / self.rate)
        pool = self._pool_heard + max(0.0, now - self.heard_at) * self.rate if self._has_heard else short
        return max(REPORT_PAUSE, (short - pool) / self.rate if self.rate > 0 else 0.0)

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take the price, one token unless it says otherwise, from the lease; whether the lease had it. Of a price
        above the capacity it must have as much as the capacity.
        """
        self._used_at = now
        if self.store.out:
            if self.store.withholds() or not self._own.take(now, price):
                return False
            self.lease.changed -= price
            return True
        lease = self.lease
        if lease.has(min(price, self.capacity), now):
            self._spend(price, now)
            if price > self.capacity:
                self._soon(now)
            if lease.held < self._enough(now) and now - self.heard_at > (AHEAD if lease.held >= 1 else 0.0):
                self._soon(now)
            return True
        if lease.future.count and now <= lease.until:
            return False  # it is known when the next one comes
        pause = min(EARNED, REPEAT_EACH * self.store.crowd) if self.gate.rejects else REPORT_PAUSE
        if now - self.heard_at > pause or self._pool_heard + self.rate * REPORT_PAUSE >= 1:
            self.gate.asking = True  # no call is refused before the reply
            self._soon(now)
        return False

    def _enough(self, now: float) -> float:
        """The number of leased tokens below which the next are asked for: a quarter of those worth keeping ready. None
        where the fair part is less than one token.
        """
        return max(self.reserve, min(self._need(now), self._part) / 4) if self._part >= self.reserve else 0.0

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        if self.store.out:
            self._own.give_back(now, tokens)
            self.lease.changed += tokens
            return
        self.lease.changed += self.lease.put_back(tokens)
        self._soon(now + PROMPT)

    def _awaited(self) -> float:
        return sum(self.gate.queue.values())

    def _waiting(self) -> tuple[float, float]:
        held = max(0.0, self.lease.held)
        first = next(iter(self.gate.queue.values()), 0.0)  # as a whole, even if less is enough to begin
        return max(0.0, math.ceil(self._awaited() - held)), max(0.0, math.ceil(first - held))

    def _learn(self, values: list[float], now: float) -> None:
        super()._learn(values, now)
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Have the queued calls ask again: all of them now if calls may not wait, or while Redis is out; else those for
        which there are tokens, each when its token is there.
        """
        gate = self.gate
        gate.asking = False
        if gate.rejects or self.withheld():
            for waiter in list(gate.queue):
                waiter.retime(now)
        elif self.store.out:
            gate.retime(now)
        else:
            before, most, held = 0.0, self.capacity, self.lease.held
            for waiter, price in list(gate.queue.items()):
                waiter.retime(now + self.wait(now, before + min(price, most)))
                before += price
                if before > held:
                    break

    def _plan(self, now: float) -> None:
        super()._plan(now)
        if self.gate.queue:
            future = self.lease.future
            self._soon(future.at(future.count) if future.count else now + max(REPORT_PAUSE, min(RENEW, self.wait(now))))
