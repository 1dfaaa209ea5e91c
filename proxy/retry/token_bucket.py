"""Tokens that come with time, as the `rate` bucket and the adaptive limiter use them, and the gate before them.

Law: over any stretch of time no more is given than was there and came. A level is at most `capacity`; time that runs
backwards brings nothing.

A gate is asked, never waited for. `ask(waiter, now)` grants (a time not after now) or names the time at which to
ask again; the waiter sets an alarm and asks again when it rings, so a gate that closed further meanwhile is never
missed. When a gate opens sooner, or later, than it had said, it moves the alarms of those that wait (`retime`).
Queues are in order of arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

#: Asked of a gate that holds nobody: the call is refused at once.
REJECTED = float("inf")
#: A waiter whose turn has come, but behind others whose turn has come too, asks again after them: one step of a
#: microsecond is past every alarm of this instant on either clock.
STEP = 1e-6


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
        """The bucket's state as numbers, for stores outside this process (`proxy.stores`)."""
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

    def withheld(self) -> str:
        """Why no token is given at the moment, whatever the level; "" where the level decides."""
        return ""

    def give_back(self, now: float) -> None:
        """One token that was not used."""
        self._refill(now)
        self._level = min(self.capacity, self._level + 1)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.capacity, self._level + (now - self._at) * self.rate)
            self._at = now


class Waiter(Protocol):
    """A call that waits at a gate, as gates see it."""

    def retime(self, at: float) -> None:
        """Move the alarm: ask again at `at` (seconds)."""


@dataclass(slots=True, eq=False)
class TokenGate:
    """The queue before a rate bucket or an adaptive limiter: one token an attempt, in order of arrival.

    `asking`: the bucket is kept elsewhere and has been asked; until it has answered nobody is turned away.
    """

    bucket: TokenBucket
    rejects: bool = False
    asking: bool = False
    queue: dict[Waiter, None] = field(default_factory=dict)

    def ask(self, waiter: Waiter, now: float) -> float:
        """Now, with one token taken; or the time to ask again; or REJECTED."""
        queue = self.queue
        if (not queue or waiter is next(iter(queue))) and self.bucket.take(now):
            queue.pop(waiter, None)
            return now
        if self.rejects and not self.asking:
            queue.pop(waiter, None)
            return REJECTED
        queue[waiter] = None
        place = next(place for place, other in enumerate(queue, start=1) if other is waiter)
        return max(now + self.bucket.wait(now, place), now + STEP)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Give up one's place; those behind move up."""
        if waiter in self.queue:
            del self.queue[waiter]
            self.retime(now)

    def retime(self, now: float) -> None:
        """Tokens come faster or slower: tell everybody in line when to ask again."""
        for place, other in enumerate(list(self.queue), start=1):
            other.retime(now + self.bucket.wait(now, place))

    def seconds_left(self, now: float) -> float:
        """The seconds that a new caller would wait for a token."""
        return self.bucket.wait(now, len(self.queue) + 1)
