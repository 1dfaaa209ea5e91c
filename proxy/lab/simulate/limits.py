"""The kinds of limit on requests, or on tokens, that a simulated upstream can have, each counted for one key.

`fixed` counts in windows that begin with the play, one after the other, as APIs do that allow so many requests a
minute. `sliding` counts what it took within the last window. `bucket` is a token bucket: it fills
evenly, by the limit in each window, and holds at most `burst`.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, Protocol

LimitKind = Literal["fixed", "sliding", "bucket"]


class RequestLimit(Protocol):
    """A limit of one key. Times are seconds and never go back. `size`: how much of the limit a request takes. `most`:
    how much the limit allows in one window, or refills in one; outages may change it. Both are in requests, or in
    tokens.
    """

    def wait(self, now: float, size: int, most: int) -> float:
        """The seconds until a request of this size may fit; 0 if it fits now."""

    def take(self, now: float, size: int, most: int) -> None:
        """Count a request that fits."""

    def left(self, now: float, most: int) -> float:
        """How much of the limit is left at `now`, in the unit of `most`: the most that a request may take now."""

    def more_in(self, now: float, most: int, *, whole: bool) -> float:
        """The seconds until all of the limit is left (`whole`), or until more of it is left than now (not `whole`); 0
        if all is left.
        """


class FixedWindow:
    """A limit that is counted in windows of `window` seconds, which begin at 0. The arguments are those of
    `RequestLimit`.
    """

    __slots__ = ("_had", "_window")

    def __init__(self, window: float) -> None:
        self._window = window
        self._had: dict[int, int] = {}  # by the window's number

    def wait(self, now: float, size: int, most: int) -> float:
        """The seconds until the next window begins, or 0 if the request fits into the present one."""
        if self._had.get(int(now // self._window), 0) + size <= most:
            return 0.0
        return self._window - now % self._window

    def take(self, now: float, size: int, most: int) -> None:
        """Count the request in the window of `now`."""
        number = int(now // self._window)
        self._had[number] = self._had.get(number, 0) + size

    def left(self, now: float, most: int) -> float:
        """The rest of the limit in the window that `now` is in: `most` less what was taken in it."""
        return most - self._had.get(int(now // self._window), 0)

    def more_in(self, now: float, most: int, *, whole: bool) -> float:
        """The seconds until the next window begins, with `whole` or without it: then all of the limit is left."""
        return self._window - now % self._window


class SlidingWindow:
    """A limit on what was taken within the last `window` seconds. The arguments are those of `RequestLimit`."""

    __slots__ = ("_taken", "_total", "_window")

    def __init__(self, window: float) -> None:
        self._window = window
        self._taken: deque[tuple[float, int]] = deque()  # when, and how much
        self._total = 0

    def wait(self, now: float, size: int, most: int) -> float:
        """The seconds until so much of what was taken is older than the window that the request fits, or 0."""
        if self._total + size <= most:
            return 0.0
        total, until = self._total, now
        for when, had in self._taken:
            if when + self._window > now and total + size <= most:
                break
            total, until = total - had, when + self._window
        if size > most:
            return self._window
        return max(0.0, until - now)

    def take(self, now: float, size: int, most: int) -> None:
        """Count a request that takes `size` of the limit, and forget those older than the window. `most` is of no use
        to this kind of limit.
        """
        taken = self._taken
        while taken and taken[0][0] + self._window <= now:
            self._total -= taken.popleft()[1]
        taken.append((now, size))
        self._total += size

    def left(self, now: float, most: int) -> float:
        """The rest of the limit: `most` less what was taken within the window."""
        return most - sum(size for when, size in self._taken if when + self._window > now)

    def more_in(self, now: float, most: int, *, whole: bool) -> float:
        """The seconds until the latest request that was taken is older than the window (`whole`), or the earliest one
        within the window (not `whole`); 0 if the window has none. `most` is of no use to this kind of limit.
        """
        within = [when for when, _ in self._taken if when + self._window > now]
        return within[-1 if whole else 0] + self._window - now if within else 0.0


class BurstLimit:
    """A token bucket, full at first. It fills by the limit in each `window` seconds, and holds at most `burst`. The
    arguments are those of `RequestLimit`.
    """

    __slots__ = ("_burst", "_last", "_level", "_window")

    def __init__(self, window: float, burst: float) -> None:
        self._window = window
        self._burst = burst
        self._level = burst
        self._last = 0.0

    def _level_at(self, now: float, most: int) -> float:
        return min(self._burst, self._level + max(0.0, now - self._last) * most / self._window)

    def wait(self, now: float, size: int, most: int) -> float:
        """The seconds until the bucket has filled far enough for the request, 0 if it has."""
        missing = size - self._level_at(now, most)
        return missing * self._window / most if missing > _EPSILON else 0.0

    def take(self, now: float, size: int, most: int) -> None:
        """Take the request's size out of the bucket."""
        self._level = self._level_at(now, most) - size
        self._last = max(now, self._last)

    def left(self, now: float, most: int) -> float:
        """The level of the bucket, which refills by `most` in each window."""
        return self._level_at(now, most)

    def more_in(self, now: float, most: int, *, whole: bool) -> float:
        """The seconds until the bucket is full (`whole`), or has one token more (not `whole`)."""
        missing = self._burst - self._level_at(now, most)
        return (missing if whole else min(1.0, missing)) * self._window / most


#: The rounding error of sums of decimal seconds.
_EPSILON = 1e-9


def limit_of(kind: LimitKind, window: float, burst: float) -> RequestLimit:
    """A new limit of this kind for one key. `window` is in seconds, `burst` in requests or tokens."""
    if kind == "fixed":
        return FixedWindow(window)
    return SlidingWindow(window) if kind == "sliding" else BurstLimit(window, burst)
