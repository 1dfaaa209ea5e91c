"""Buckets, limiters and seen keys that the workers of one machine share.

Law: the rules are those of `proxy.retry` alone, and nothing is decided here. Each shared class is a subclass of a class
there. Its state is read from a record before a method runs and published after it, under the record's lock.

Each call waits in its own worker. So all workers share the tokens exactly, but calls are served in order of arrival
only among those of the same worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.app_buckets import AppBudget, PartedQuota
from proxy.retry.budgets.buckets import Bucket, BudgetBucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.token_bucket import TokenBucket
from proxy.retry.instants import EPSILON
from proxy.retry.policies.bucket_specs import (
    QUIET_MEMORY,
    QUIET_PER_RETRY,
    BudgetSpec,
    QuotaSpec,
    RateSpec,
    ThrottleSpec,
)
from proxy.retry.scopes.seen_keys import KEY_SECONDS, SeenKeys
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.last_times import LastTimes
from proxy.stores.shared_memory.records import Memory, Number, Record, Rings, digest, exclusive, reading

#: Seconds for which a process trusts the level that it saw, where a call of it puts quiet off only if that is low.
TRUSTED = QUIET_PER_RETRY - QUIET_MEMORY
#: Seconds after which a process notes again that an app makes calls.
_NOTED_EVERY = 1.0


class SharedQuota(QuotaBucket):
    """A quota in shared memory. Time is the machine's monotonic clock, the same for all workers.

    If the quota refills in quiet (`quiet_up_to`), a call that begins looks at the level that this process saw last,
    which may be a second old. An outdated level does no harm, because the payment that lowers the level puts quiet off
    by a second more than calls do (`QUIET_PER_RETRY`).
    """

    __slots__ = ("record",)

    def __init__(self, spec: QuotaSpec, record: Record) -> None:
        super().__init__(spec)
        self.record = record
        self._trusted = -math.inf

    level = reading(QuotaBucket.level)
    affords = reading(QuotaBucket.affords)
    take = exclusive(QuotaBucket.take)
    _put_back = exclusive(QuotaBucket._put_back)
    charge_app_retry = exclusive(QuotaBucket.charge_app_retry)
    _put_off = exclusive(QuotaBucket._note_call)
    _earn = exclusive(QuotaBucket.succeeded)

    def _note_call(self, now: float) -> None:
        self._level, self._trusted = self.record.peek(), now + TRUSTED
        if self._level < self._low:
            self._put_off(now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """Put back what a successful call earns: the price that its last retry paid (`last_price`) or, if it was not
        retried (None), the refund.
        """
        if self.record.peek() < self.capacity:  # nearly always the quota is full
            self._earn(last_price, now)


class SharedPartedQuota(PartedQuota):
    """A quota in shared memory of which each app has a part: one record has the numbers of the quota and of its
    parts.
    """

    __slots__ = ("_noted", "record")

    def __init__(self, spec: QuotaSpec, record: Record) -> None:
        super().__init__(spec)
        self.record = record
        self._trusted = -math.inf
        self._noted: dict[int, float] = {}  # when this process last noted that an app makes calls

    level = reading(PartedQuota.level)
    available = reading(PartedQuota.available)
    affords_for = reading(PartedQuota.affords_for)
    affords = reading(PartedQuota.affords)
    take = exclusive(PartedQuota.take)
    take_for = exclusive(PartedQuota.take_for)
    charge_for = exclusive(PartedQuota.charge_for)
    charge_app_retry = exclusive(PartedQuota.charge_app_retry)
    succeeded = exclusive(PartedQuota.succeeded)
    _put_back = exclusive(PartedQuota._put_back)
    _note = exclusive(PartedQuota.came)
    _put_off = exclusive(PartedQuota._note_call)
    _earn_for = exclusive(PartedQuota.earn_for)

    def came(self, place: int, now: float) -> None:
        """Count a call that begins, of the app with the number `place`. Each process writes at most once a second to
        the shared record that the app makes calls.
        """
        if now - self._noted.get(place, -math.inf) >= _NOTED_EVERY:
            self._noted[place] = now
            self._note(place, now)
        else:
            self.begin(now)

    def _note_call(self, now: float) -> None:
        self._level, self._trusted = self.record.peek(), now + TRUSTED
        if self._level < self._low:
            self._put_off(now)

    def earn_for(self, place: int, tokens: float, now: float) -> None:
        if self.record.peek() < self.capacity:  # nearly always the quota is full
            self._earn_for(place, tokens, now)


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
    """A budget whose three windows (of calls, retries, and retries of the last second) are rings in shared memory; each
    ring publishes its own changes.
    """

    __slots__ = ("_memory", "record", "rings_at")

    def __init__(self, spec: BudgetSpec, record: Rings, memory: Memory) -> None:
        super().__init__(spec)
        self.record = record
        self._memory = memory
        self.move_to(record.value)

    def move_to(self, at: int) -> None:
        """Use the rings (of calls, retries, and retries of the last second) that begin at the word `at` of the
        memory.
        """
        memory, window = self._memory, self.spec.window
        self.rings_at = at
        self._calls = ring.RingCount(memory, at, window)
        self._retries = ring.RingCount(memory, at + ring.WORDS, window, late=True)
        self._last_second = ring.RingCount(memory, at + 2 * ring.WORDS, 1.0, late=True)

    level = exclusive(BudgetBucket.level)
    begin = exclusive(BudgetBucket.begin)
    affords = exclusive(BudgetBucket.affords)
    take = exclusive(BudgetBucket.take)
    _uncount = exclusive(BudgetBucket._uncount)
    charge_app_retry = exclusive(BudgetBucket.charge_app_retry)


class SharedPartedBudget(SharedBudget):
    """A budget in shared memory for the calls of all apps, which also gives each app a budget of its own calls.
    `of_name` makes an app's budget by the app's name.
    """

    __slots__ = ("_of_name", "_views")

    def __init__(self, spec: BudgetSpec, record: Rings, memory: Memory, of_name: Callable[[str], SharedBudget]) -> None:
        super().__init__(spec, record, memory)
        self._of_name = of_name
        self._views: dict[str, Bucket] = {}

    def of_app(self, app: NamedApp) -> Bucket:
        view = self._views.get(app.name)
        if view is None:
            view = self._views[app.name] = AppBudget(self, self._of_name(app.name))
        return view


class SharedRate(RateBucket):
    """A rate bucket in shared memory. Only its own tokens are under its record's lock, not its heir's: a process that
    makes a record holds the lock by which others find theirs, and may wait for this record.
    """

    __slots__ = ("record",)

    def __init__(self, spec: RateSpec, record: Record) -> None:
        super().__init__(spec)
        self.record = record

    level = reading(RateBucket.level)
    wait = reading(RateBucket.wait)
    _pays = exclusive(TokenBucket.take)
    _regains = exclusive(TokenBucket.give_back)


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
        return (not self.enabled and not self.record.peek()) or self._take(now, price)


class SharedSeen(SeenKeys):
    """The idempotency keys seen lately, in shared memory. `times`: when each was seen."""

    __slots__ = ("_scope", "_times")

    def __init__(self, times: LastTimes, scope: int) -> None:
        self._times = times
        self._scope = scope

    def is_over(self, now: float) -> bool:
        return True  # keys stay in memory, whatever this process forgets

    def again(self, key: str, now: float) -> bool:
        return self._times.note(digest(self._scope, key), now) >= now - KEY_SECONDS - EPSILON
