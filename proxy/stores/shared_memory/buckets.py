"""Buckets that the workers of one machine share.

Law: the definitions of `proxy.retry` are the only ones. What is shared is that very class, its state read from memory
before an operation and published after it, under the record's lock; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from proxy.retry.buckets import BudgetBucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.policy import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.token_bucket import TokenBucket
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.cell import Cell
from proxy.stores.shared_memory.records import Memory

T = TypeVar("T")


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

    def share(self, now: float) -> float | None:
        """Level by capacity."""
        self._level = self.cell.peek()
        return super().share(now)


class SharedRefilledQuota(QuotaBucket):
    """A quota that time refills, in shared memory: level and time are published together, and the rate with them, for
    whoever takes its place. Time is the machine's monotonic clock, the same for all workers.
    """

    __slots__ = ("cell",)

    def __init__(self, spec: QuotaSpec, cell: Cell) -> None:
        super().__init__(spec)
        self.cell = cell

    def level(self, now: float) -> float:
        """Tokens there now."""
        return self._within(self._look, now, changes=False)

    def affords(self, price: float, now: float) -> bool:
        """Whether that much is there."""
        return price <= self.level(now)

    def take(self, price: float, now: float) -> bool:
        """Deduct the whole price, or nothing."""
        return self._within(self._take, price, now)

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """The price comes back, never above the capacity."""
        self._within(self._put, price, now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        """The last retry's price, or the refund for a first attempt."""
        refund = self._refund if last_price is None or self.spec.flat_refund else last_price
        self._within(self._put, refund, now)

    def charge_app_retry(self, now: float) -> float:
        """min(level, retry_cost)."""
        return self._within(self._charge, now)

    def share(self, now: float) -> float | None:
        """Level by capacity."""
        level = self.level(now)
        return None if self.capacity <= 0 else level / self.capacity

    def _take(self, price: float, now: float) -> bool:
        self._advance(now)
        if price > self._level:
            return False
        self._level -= price
        return True

    def _put(self, amount: float, now: float) -> None:
        self._advance(now)
        self._level = min(self.capacity, self._level + amount)

    def _charge(self, now: float) -> float:
        self._advance(now)
        charge = min(self._level, self.spec.retry_cost)
        self._level -= charge
        return charge

    def _look(self, now: float) -> float:
        self._advance(now)
        return self._level

    def _within(self, act: Callable[..., T], *facts: float, changes: bool = True) -> T:
        """Do something with the state as it is, and publish what it comes to."""
        cell = self.cell
        cell.open()
        try:
            self._level, self._at, _ = cell.load()
            answer = act(*facts)
            if changes:
                cell.publish(self._level, self._at, self._refill)
            return answer
        finally:
            cell.close()


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

    def share(self, now: float) -> float | None:
        """Level by max_tokens."""
        self._level = int(self.cell.peek())
        return super().share(now)


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
