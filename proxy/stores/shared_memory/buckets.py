"""Buckets, limiters and seen keys that the workers of one machine share.

Law: the rules are those of `proxy.retry` alone. A shared class is a subclass whose state is read from a record before a
method and published after it, under the record's lock; nothing is decided here.

Each call waits in its own worker: tokens are exact over all workers, the order of arrival is each worker's own.
"""

from __future__ import annotations

import math

from proxy.retry.buckets import BudgetBucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.cubic_limiter import CubicLimiter
from proxy.retry.policy import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.seen_keys import KEY_SECONDS, SeenKeys
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.records import Memory, Number, Record, Rings, digest, exclusive, reading

#: The table of seen keys for all scopes: its rows, one of which a key's hash chooses, and the keys in each row.
SEEN_ROWS, SEEN_WAYS = 8192, 8


class SharedQuota(QuotaBucket):
    """A quota in shared memory. Time is the machine's monotonic clock, the same for all workers."""

    __slots__ = ("record",)

    def __init__(self, spec: QuotaSpec, record: Record) -> None:
        super().__init__(spec)
        self.record = record

    level = reading(QuotaBucket.level)
    affords = reading(QuotaBucket.affords)
    take = exclusive(QuotaBucket.take)
    _put_back = exclusive(QuotaBucket._put_back)
    charge_app_retry = exclusive(QuotaBucket.charge_app_retry)
    _earn = exclusive(QuotaBucket.succeeded)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Put back the last retry's price, or the refund for a first attempt."""
        if self._refill or self.record.peek() < self.capacity:  # nearly always the quota is full
            self._earn(last_price, now)


class SharedThrottle(ThrottleBucket):
    """A throttle in shared memory."""

    __slots__ = ("record",)

    def __init__(self, spec: ThrottleSpec, record: Number) -> None:
        super().__init__(spec)
        self.record = record

    level = reading(ThrottleBucket.level)
    affords = reading(ThrottleBucket.affords)
    take = reading(ThrottleBucket.take)
    failed = exclusive(ThrottleBucket.failed)
    share = reading(ThrottleBucket.share)
    _earn = exclusive(ThrottleBucket.succeeded)

    def succeeded(self, last_price: float | None, now: float) -> None:
        if self.record.peek() < self._most:  # nearly always the throttle is full
            self._earn(last_price, now)


class SharedBudget(BudgetBucket):
    """A budget whose three windows are rings in shared memory, each of which publishes what it counts."""

    __slots__ = ("_memory", "placed", "record")

    def __init__(self, spec: BudgetSpec, record: Rings, memory: Memory) -> None:
        super().__init__(spec)
        self.record = record
        self._memory = memory
        self.place(record.value)

    def place(self, at: int) -> None:
        """Use the rings (of calls, retries, and retries of the last second) that begin at the word `at` of the
        memory.
        """
        memory, window = self._memory, self.spec.window
        self.placed = at
        self._calls = ring.RingCount(memory, at, window)
        self._retries = ring.RingCount(memory, at + ring.WORDS, window, late=True)
        self._last_second = ring.RingCount(memory, at + 2 * ring.WORDS, 1.0, late=True)

    level = exclusive(BudgetBucket.level)
    begin = exclusive(BudgetBucket.begin)
    affords = exclusive(BudgetBucket.affords)
    take = exclusive(BudgetBucket.take)
    _uncount = exclusive(BudgetBucket._uncount)
    charge_app_retry = exclusive(BudgetBucket.charge_app_retry)


class SharedRate(RateBucket):
    """A rate bucket in shared memory."""

    __slots__ = ("record",)

    def __init__(self, spec: RateSpec, record: Record) -> None:
        super().__init__(spec)
        self.record = record

    level = reading(RateBucket.level)
    wait = reading(RateBucket.wait)
    take = exclusive(RateBucket.take)
    give_back = exclusive(RateBucket.give_back)


class SharedLimiter(CubicLimiter):
    """The adaptive limiter in shared memory. Its attributes have the values of the last method call, not the current
    ones.
    """

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record
        self.level(-math.inf)

    level = reading(CubicLimiter.level)
    wait = reading(CubicLimiter.wait)
    give_back = exclusive(CubicLimiter.give_back)
    _take = exclusive(CubicLimiter.take)
    reserve = exclusive(CubicLimiter.reserve)
    learn = exclusive(CubicLimiter.learn)

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take one token for an attempt; free while the limiter is off, which it is until the first throttling in any
        worker.
        """
        return (not self.enabled and not self.record.peek()) or self._take(now, price)


class SharedSeen(SeenKeys):
    """The idempotency keys seen lately, in shared memory: rows of a few keys each. A new key takes the place of the
    oldest in a full row.
    """

    __slots__ = ("_memory", "_scope")

    def __init__(self, memory: Memory, scope: int) -> None:
        self._memory = memory
        self._scope = scope

    def is_over(self, now: float) -> bool:
        return True  # keys stay in memory, whatever this process forgets

    def again(self, key: str, now: float) -> bool:
        memory, wanted = self._memory, digest(self._scope, key)
        words, doubles = memory.words, memory.doubles
        row = memory.seen + wanted % SEEN_ROWS * SEEN_WAYS * 2
        places = range(row, row + 2 * SEEN_WAYS, 2)
        with memory.seen_lock:
            for at in places:
                if words[at] == wanted:
                    known = doubles[at + 1] >= now - KEY_SECONDS
                    doubles[at + 1] = now
                    return known
            oldest = min(places, key=lambda at: doubles[at + 1] if words[at] else -math.inf)
            words[oldest] = 0  # if the process is killed here, no key has another key's time
            doubles[oldest + 1] = now
            words[oldest] = wanted
            return False
