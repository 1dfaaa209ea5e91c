"""Gates: what may hold a call before an attempt. Each gives a place in a queue and a time to ask again.

Law: a gate is asked, never waited for. `ask(waiter, now)` grants (a time not after now) or names the time at which to
ask again; the waiter sets an alarm and asks again when it rings, so a gate that closed further meanwhile is never
missed. When a gate opens sooner, or later, than it had said, it moves the alarms of those that wait (`retime`).
Queues are in order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from proxy.retry.token_bucket import TokenBucket

#: Asked of a gate that holds nobody: the call is refused at once.
REJECTED = float("inf")
#: A waiter whose turn has come, but behind others whose turn has come too, asks again after them: one step of a
#: microsecond is past every alarm of this instant on either clock.
STEP = 1e-6


class Waiter(Protocol):
    """Who waits at a gate: a call, as gates see it."""

    def retime(self, at: float) -> None:
        """Move the alarm: ask again at `at` (seconds)."""
        ...


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
        if self.queue:
            return self._ask_in_line(waiter, now)
        if self.bucket.take(now):
            return now
        if self.rejects and not self.asking:
            return REJECTED
        self.queue[waiter] = None
        return max(now + self.bucket.wait(now), now + STEP)

    def _ask_in_line(self, waiter: Waiter, now: float) -> float:
        if waiter not in self.queue:
            if self.rejects and not self.asking:
                return REJECTED
            self.queue[waiter] = None
        if waiter is next(iter(self.queue)) and self.bucket.take(now):
            del self.queue[waiter]
            return now
        if self.rejects and not self.asking:
            del self.queue[waiter]
            return REJECTED
        return max(self._due(waiter, now), now + STEP)

    def _due(self, waiter: Waiter, now: float) -> float:
        for place, other in enumerate(self.queue, start=1):
            if other is waiter:
                return now + self.bucket.wait(now, place)
        return now

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
        """How long a newcomer would wait."""
        return self.bucket.wait(now, len(self.queue) + 1)
