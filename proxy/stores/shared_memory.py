"""Buckets, limiters, cooldowns and seen keys that the workers of one machine share.

Law: the definitions of `proxy.retry` are the only ones. A shared bucket is that very class with its state read from
memory before an operation and published after it, under the record's lock; nothing is decided here. What a killed
worker's calls had paid is lost, and nothing else.

What waits, waits in its own worker: tokens are exact over all of them, the order of arrival is each worker's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from struct import Struct
from typing import cast

from proxy.retry.bucket import Bucket, BudgetBucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.faucet import TokenBucket
from proxy.retry.gates import Cooldown, Waiter
from proxy.retry.making import KEY_SECONDS, Key, Making, SeenKeys
from proxy.retry.pacing import CubicLimiter
from proxy.retry.policy import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.stores import ring, robust
from proxy.stores.memory import STATE, Cell, Definition, Former, Memory, digest

_PAIR = Struct("2d")
_LIMITER = Struct("10d")
#: Budgets are large: three windows of slices.
_BUDGET_WORDS = STATE + 3 * ring.WORDS
_BUDGETS = 1024
#: Remembered keys over all scopes, in rows that one key's hash chooses.
_SEEN_ROWS, _SEEN_WAYS = 8192, 8


def open_memory(descriptor: int) -> Memory:
    """The memory behind a descriptor of `proxy.stores.memory.descriptor`, laid out for what is here."""
    return Memory(descriptor, large=_BUDGET_WORDS, larges=_BUDGETS, seen=_SEEN_ROWS * _SEEN_WAYS)


class SharedQuota(QuotaBucket):
    """A quota in shared memory. Its level is one value, so looking at it takes no lock."""

    __slots__ = ("cell",)

    def __init__(self, spec: QuotaSpec, cell: Cell) -> None:
        super().__init__(spec)
        self.cell = cell

    def level(self, now: float) -> float:
        """Tokens."""
        return self.cell.peek()

    def affords(self, price: float, now: float) -> bool:
        """Whether that much is there."""
        return price <= self.cell.peek()

    def take(self, price: float, now: float) -> bool:
        """Deduct the whole price, or nothing."""
        cell = self.cell
        self._level = cell.open_value()
        try:
            return QuotaBucket.take(self, price, now)
        finally:
            cell.close_value(self._level)

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """The price comes back, never above the capacity."""
        cell = self.cell
        self._level = cell.open_value()
        try:
            QuotaBucket.give_back(self, price, now)
        finally:
            cell.close_value(self._level)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """The last retry's price, or the refund for a first attempt."""
        cell = self.cell
        if cell.peek() >= self.capacity:  # nearly always
            return
        self._level = cell.open_value()
        try:
            QuotaBucket.succeeded(self, last_price, now)
        finally:
            cell.close_value(self._level)

    def charge_app_retry(self, now: float) -> float:
        """min(level, retry_cost)."""
        cell = self.cell
        self._level = cell.open_value()
        try:
            charge = min(self._level, self.spec.retry_cost)
            QuotaBucket.take(self, charge, now)
            return charge
        finally:
            cell.close_value(self._level)

    def share(self) -> float | None:
        """Level by capacity."""
        self._level = self.cell.peek()
        return super().share()


class SharedThrottle(ThrottleBucket):
    """A throttle in shared memory. Its level is one value, in thousandths."""

    __slots__ = ("cell",)

    def __init__(self, spec: ThrottleSpec, cell: Cell) -> None:
        super().__init__(spec)
        self.cell = cell

    def level(self, now: float) -> float:
        """Tokens."""
        return self.cell.peek() / 1000

    def affords(self, price: float, now: float) -> bool:
        """Only above half of max_tokens, the failure before counted already."""
        return 2 * self.cell.peek() > self._most

    def take(self, price: float, now: float) -> bool:
        """Nothing is deducted here."""
        return 2 * self.cell.peek() > self._most

    def failed(self, now: float) -> None:
        """One token, never below 0."""
        cell = self.cell
        self._level = int(cell.open_value())
        try:
            ThrottleBucket.failed(self, now)
        finally:
            cell.close_value(self._level)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """token_ratio, never above max_tokens."""
        cell = self.cell
        if cell.peek() >= self._most:  # nearly always
            return
        self._level = int(cell.open_value())
        try:
            ThrottleBucket.succeeded(self, last_price, now)
        finally:
            cell.close_value(self._level)

    def share(self) -> float | None:
        """Level by max_tokens."""
        self._level = int(self.cell.peek())
        return super().share()


class SharedBudget(BudgetBucket):
    """A budget whose three windows are rings in shared memory."""

    __slots__ = ("_memory", "_placed", "cell")

    def __init__(self, spec: BudgetSpec, cell: Cell, memory: Memory) -> None:
        self.spec = spec
        self.capacity = spec.min_per_second
        self.cell = cell
        self._memory = memory
        self._place()

    def _place(self) -> None:
        at, memory, window = self.cell.value, self._memory, self.spec.window
        self._placed = at
        self._calls = ring.RingCount(memory, at, window)
        self._retries = ring.RingCount(memory, at + ring.WORDS, window, late=True)
        self._last_second = ring.RingCount(memory, at + 2 * ring.WORDS, 1.0, late=True)

    def _open(self) -> None:
        cell = self.cell
        cell.open()
        if cell.value != self._placed:
            self._place()

    def level(self, now: float) -> float:
        """The retries that would be granted now, one after another."""
        self._open()
        try:
            return super().level(now)
        finally:
            self.cell.close()

    def begin(self, now: float) -> None:
        """One more call to take a share of."""
        self._open()
        try:
            self._calls.add(now)
        finally:
            self.cell.close()

    def affords(self, price: float, now: float) -> bool:
        """Fewer than the share of the window's calls, or fewer than the second's minimum."""
        self._open()
        try:
            return super().affords(price, now)
        finally:
            self.cell.close()

    def take(self, price: float, now: float) -> bool:
        """Count one retry, if it is granted."""
        self._open()
        try:
            if not super().affords(price, now):
                return False
            super().charge_app_retry(now)
            return True
        finally:
            self.cell.close()

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """The retry is not counted any more."""
        self._open()
        try:
            super().give_back(price, now, taken_at=taken_at)
        finally:
            self.cell.close()

    def charge_app_retry(self, now: float) -> float:
        """One retry, counted whether it would have been granted or not."""
        self._open()
        try:
            return super().charge_app_retry(now)
        finally:
            self.cell.close()


class SharedRate(RateBucket):
    """A rate bucket in shared memory: level and time are published together."""

    __slots__ = ("cell",)

    def __init__(self, spec: RateSpec, cell: Cell) -> None:
        self.spec = spec
        self.rate, self.capacity = spec.rate, spec.burst
        self.cell = cell
        self._level, self._at = 0.0, 0.0

    def level(self, now: float) -> float:
        """Tokens there now."""
        self._look()
        return super().level(now)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens will have come, if nobody else took one."""
        self._look()
        return super().wait(now, tokens)

    def take(self, now: float) -> bool:
        """One token, if there is one."""
        cell = self.cell
        cell.open()
        try:
            self._level, self._at = cell.load()
            if TokenBucket.wait(self, now) > 0:
                return False
            cell.publish(self._level - 1, self._at)
            return True
        finally:
            cell.close()

    def give_back(self, now: float) -> None:
        """One token that was not used."""
        cell = self.cell
        cell.open()
        try:
            self._level, self._at = cell.load()
            super().give_back(now)
            cell.publish(self._level, self._at)
        finally:
            cell.close()

    def _look(self) -> None:
        cell = self.cell
        cell.open()
        try:
            self._level, self._at = cell.load()
        finally:
            cell.close()


class SharedLimiter(CubicLimiter):
    """The adaptive limiter in shared memory. Its attributes are as of the last operation, `level` included."""

    __slots__ = ("cell",)

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell
        self._look()

    def level(self, now: float) -> float:
        """Tokens there now."""
        self._look()
        return super().level(now)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens will have come; 0 while the limiter is off."""
        self._look()
        return super().wait(now, tokens)

    def take(self, now: float) -> bool:
        """One token for a send; free while the limiter is off."""
        cell = self.cell
        cell.open()
        try:
            self._load()
            if not self.enabled:
                return True
            if TokenBucket.wait(self, now) > 0:
                return False
            self._level -= 1
            self._publish()
            return True
        finally:
            cell.close()

    def give_back(self, now: float) -> None:
        """A token that was taken and not used."""
        self._change(super().give_back, now)

    def reserve(self, now: float) -> float:
        """Take a token that may be still to come; seconds until it is there."""
        cell = self.cell
        cell.open()
        try:
            self._load()
            seconds = TokenBucket.wait(self, now) if self.enabled else 0.0
            if self.enabled:
                self._level -= 1
                self._publish()
            return seconds
        finally:
            cell.close()

    def learn(self, throttled: bool, now: float) -> None:
        """An attempt ended."""
        self._change(super().learn, throttled, now)

    def _change(self, change: Callable[..., object], *arguments: object) -> None:
        cell = self.cell
        cell.open()
        try:
            self._load()
            change(*arguments)
            self._publish()
        finally:
            cell.close()

    def _look(self) -> None:
        cell = self.cell
        cell.open()
        try:
            self._load()
        finally:
            cell.close()

    def _load(self) -> None:
        (
            enabled,
            self.rate,
            self.capacity,
            self._level,
            self._at,
            self.measured_rate,
            count,
            self._last_bucket,
            self._last_max_rate,
            self._last_throttle,
        ) = self.cell.load()
        self.enabled, self._count = bool(enabled), int(count)

    def _publish(self) -> None:
        self.cell.publish(*_limiter_state(self))


class SharedCooldown(Cooldown):
    """A cooldown in shared memory: any worker's word holds the calls of all. Each lets its own queue go."""

    __slots__ = ("_opened_for", "cell")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._opened_for = -math.inf
        self.queue = {}
        self._slots = {}

    @property
    def until(self) -> float:  # type: ignore[override]
        """Until when nobody goes: one value, read without a lock."""
        return self.cell.peek()

    @property
    def span(self) -> float:  # type: ignore[override]
        """Seconds over which those that waited go."""
        cell = self.cell
        return cell.doubles[cell.value + 1]

    def start(self, delay: float, spread: float, now: float) -> bool:
        """Hold everybody for `delay` seconds. A shorter word than the one in force changes nothing."""
        if delay <= 0:
            return False
        cell = self.cell
        cell.open()
        try:
            until = now + delay
            if until <= cell.doubles[cell.value]:
                return False
            # The span before the time: whoever sees the time sees its span, and a span alone holds nobody.
            cell.doubles[cell.value + 1] = spread * delay
            cell.doubles[cell.value] = until
        finally:
            cell.close()
        self._slots.clear()
        for waiter in list(self.queue):
            waiter.retime(now)
        return True

    def ask(self, waiter: Waiter, now: float) -> float:
        """Now, or the time to ask again."""
        until = self.until
        if until != self._opened_for:  # another worker's word: whoever was to be let go is held again
            self._opened_for = until
            self._slots.clear()
        return super().ask(waiter, now)


class SharedSeen(SeenKeys):
    """Seen keys in shared memory: rows of a few keys, the oldest of a full row giving way."""

    __slots__ = ("_memory", "_scope")

    def __init__(self, memory: Memory, scope: int) -> None:
        self._memory = memory
        self._scope = scope

    def again(self, key: str, now: float) -> bool:
        """Remember the key; whether it was known already."""
        memory, wanted = self._memory, digest(self._scope, key)
        words, doubles = memory.words, memory.doubles
        row = memory.seen + wanted % _SEEN_ROWS * _SEEN_WAYS * 2
        places = range(row, row + 2 * _SEEN_WAYS, 2)
        answer = robust.take(memory.seen_lock)
        if answer:
            robust.wait(memory.seen_lock, answer)
        try:
            for at in places:
                if words[at] == wanted:
                    known = doubles[at + 1] >= now - KEY_SECONDS
                    doubles[at + 1] = now
                    return known
            oldest = min(places, key=lambda at: doubles[at + 1] if words[at] else -math.inf)
            words[oldest] = 0  # a key and its time belong together, also where this is the last that is done
            doubles[oldest + 1] = now
            words[oldest] = wanted
            return False
        finally:
            robust.free(memory.seen_lock)


class SharedMaking(Making):
    """Makes what calls share, in shared memory. `generation` is the configuration's, counted by the parent.

    `made` are the keys that were asked for since it was last emptied, for who adds workers up.
    """

    def __init__(self, memory: Memory, generation: int = 0) -> None:
        self.memory = memory
        self.generation = generation
        self.made: list[tuple[str, Key, BucketSpec | None]] = []

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """The bucket of this key and definition."""
        cell = getattr(before, "cell", None)
        if before is not None and before.spec == spec and isinstance(cell, Cell):
            if cell.renew(self.generation):
                self.made.append(("bucket", key, spec))
            return before
        self.made.append(("bucket", key, spec))
        table = self.memory.small
        match spec:
            case QuotaSpec():
                wanted = self._definition("bucket", key, spec, spec.capacity)
                return SharedQuota(spec, Cell(table, wanted, lambda at, former: self._begin_quota(spec, at, former)))
            case ThrottleSpec():
                wanted = self._definition("bucket", key, spec, ThrottleBucket(spec)._most)
                return SharedThrottle(
                    spec, Cell(table, wanted, lambda at, former: self._begin_throttle(spec, at, former))
                )
            case BudgetSpec():
                wanted = self._definition("bucket", key, spec, 0.0)
                return SharedBudget(spec, Cell(self.memory.large, wanted, self._begin_budget), self.memory)
            case _:
                raise TypeError("a bucket of kind rate is a gate for attempts: `rate`")

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """The rate bucket of this key and definition."""
        if isinstance(before, SharedRate) and before.spec == spec:
            if before.cell.renew(self.generation):
                self.made.append(("rate", key, spec))
            return before
        self.made.append(("rate", key, spec))

        def begin(at: int, former: Former | None) -> None:
            instead = None
            if former is not None:
                level, since = former.doubles[former.state], former.doubles[former.state + 1]
                instead = cast(RateBucket, TokenBucket(0.0, former.size, level, since))
            bucket = RateBucket(spec, instead_of=instead, started=now)
            _PAIR.pack_into(self.memory.map, at * 8, bucket._level, bucket._at)

        wanted = self._definition("rate", key, spec, spec.burst)
        return SharedRate(spec, Cell(self.memory.small, wanted, begin, _PAIR))

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        """The adaptive limiter of this key."""
        self.made.append(("limiter", key, None))

        def begin(at: int, former: Former | None) -> None:
            _LIMITER.pack_into(self.memory.map, at * 8, *_limiter_state(CubicLimiter(now)))

        return SharedLimiter(Cell(self.memory.small, self._definition("limiter", key, None), begin, _LIMITER))

    def cooldown(self, upstream: str, value: str) -> Cooldown:
        """The cooldown of this upstream and scope value."""
        key = upstream, value
        self.made.append(("cooldown", key, None))

        def begin(at: int, former: Former | None) -> None:
            _PAIR.pack_into(self.memory.map, at * 8, -math.inf, 0.0)

        return SharedCooldown(Cell(self.memory.small, self._definition("cooldown", key, None), begin))

    def seen(self, upstream: str, value: str) -> SeenKeys:
        """The seen keys of this upstream and scope value."""
        return SharedSeen(self.memory, digest("seen", upstream, value))

    # -- beginnings -------------------------------------------------------------------------------------------------

    def _definition(self, sort: str, key: Key, spec: BucketSpec | None, size: float = 0.0) -> Definition:
        return Definition(digest(sort, key), digest(spec), self.generation, size)

    def _begin_quota(self, spec: QuotaSpec, at: int, former: Former | None) -> None:
        self.memory.doubles[at] = QuotaBucket(spec, instead_of=_former_bucket(former))._level

    def _begin_throttle(self, spec: ThrottleSpec, at: int, former: Former | None) -> None:
        self.memory.doubles[at] = ThrottleBucket(spec, instead_of=_former_bucket(former))._level

    def _begin_budget(self, at: int, former: Former | None) -> None:
        for offset in (0, ring.WORDS, 2 * ring.WORDS):
            ring.RingCount.begin(self.memory, at + offset, former, offset)


class _Before(QuotaBucket):
    """A bucket that another takes the place of, whatever kind it was: its share is what counts."""

    __slots__ = ()

    def __init__(self, level: float, capacity: float) -> None:
        super().__init__(QuotaSpec(capacity, initial=level))


def _former_bucket(former: Former | None) -> Bucket | None:
    return None if former is None else _Before(former.doubles[former.state], former.size)


def _limiter_state(limiter: CubicLimiter) -> tuple[float, ...]:
    return (
        limiter.enabled,
        limiter.rate,
        limiter.capacity,
        limiter._level,
        limiter._at,
        limiter.measured_rate,
        limiter._count,
        limiter._last_bucket,
        limiter._last_max_rate,
        limiter._last_throttle,
    )
