"""Tokens that come with time: the classic token bucket, as the `rate` bucket and the adaptive limiter use it.

Law: over any stretch of time no more is given than was there and came. A level is at most `capacity`; time that runs
backwards brings nothing.
"""

from __future__ import annotations

import math


class TokenBucket:
    """Tokens that come with time: `rate` a second, at most `capacity`. The classic; who finds none may wait.

    A shortfall of less than a microsecond's worth counts as none (a wait that was slept to its end must not end in
    another of zero length, as smithy-rs found); the debt is kept, so that over time no token is given twice.
    """

    __slots__ = ("_at", "_level", "capacity", "rate")

    def __init__(self, rate: float, capacity: float, level: float, started: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self._level = level
        self._at = started

    def state(self) -> tuple[float, ...]:
        """What it knows, in numbers, for who keeps it elsewhere (`proxy.stores`)."""
        return self._level, self._at

    def restore(self, state: tuple[float, ...]) -> None:
        """Know this from now on: a `state`."""
        self._level, self._at = state

    def level(self, now: float) -> float:
        """Tokens there now."""
        self._refill(now)
        return max(0.0, self._level)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many tokens will have come, if nobody else took one; 0 where they are there."""
        self._refill(now)
        short = tokens - self._level
        if short <= 1e-9 or short <= min(1e-6 * self.rate, 1e-3):
            return 0.0
        return short / self.rate if self.rate > 0 and self.capacity >= 1 else math.inf

    def take(self, now: float) -> bool:
        """One token, if there is one."""
        if TokenBucket.wait(self, now) > 0:
            return False
        self._level -= 1
        return True

    def give_back(self, now: float) -> None:
        """One token that was not used."""
        self._refill(now)
        self._level = min(self.capacity, self._level + 1)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.capacity, self._level + (now - self._at) * self.rate)
            self._at = now
