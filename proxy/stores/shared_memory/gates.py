"""Limiters and seen keys that the workers of one machine share.

Law: the definitions of `proxy.retry` are the only ones. What is shared is that very class, its state read from memory
before an operation and published after it, under the record's lock; nothing is decided here.

What waits, waits in its own worker: tokens are exact over all of them, the order of arrival is each worker's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from proxy.retry.cubic_limiter import CubicLimiter
from proxy.retry.registry import KEY_SECONDS, SeenKeys
from proxy.retry.token_bucket import TokenBucket
from proxy.stores.shared_memory import mutex
from proxy.stores.shared_memory.cell import Cell
from proxy.stores.shared_memory.records import Memory, digest

#: Remembered keys over all scopes, in rows that one key's hash chooses.
SEEN_ROWS, SEEN_WAYS = 8192, 8


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
        self.cell.publish(*limiter_state(self))


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
        row = memory.seen + wanted % SEEN_ROWS * SEEN_WAYS * 2
        places = range(row, row + 2 * SEEN_WAYS, 2)
        answer = mutex.take(memory.seen_lock)
        if answer:
            mutex.wait(memory.seen_lock, answer)
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
            mutex.free(memory.seen_lock)


def limiter_state(limiter: CubicLimiter) -> tuple[float, ...]:
    """All that a limiter knows, in the order in which `SharedLimiter` reads it."""
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
