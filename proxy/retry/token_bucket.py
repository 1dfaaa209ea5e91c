"""Tokens that accrue with time, for the `rate` bucket and the adaptive limiter, and the gate at which calls wait for
them.

Law: over any stretch of time no more tokens are given than were in the bucket at its beginning and accrued during it. A
level is at most `capacity`; time that runs backwards adds nothing.

A gate is asked, never waited for. `ask(waiter, now)` grants (returns a time not after now) or names the time at which
to ask again; the waiter sets an alarm and asks again when it rings, so a gate that has closed further meanwhile is
never overlooked. If a gate opens sooner, or later, than it had said, it moves the alarms of its waiters (`retime`).
Queues are in order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.retry.apps import NamedApp
from proxy.retry.fair_order import FairOrder, app_of, latest_of, leave_first, take_place
from proxy.retry.waiter import Waiter

#: The result of a gate at which no call may wait: the call is refused at once.
REJECTED = float("inf")
#: Seconds after which a waiter asks again if its token is due but earlier waiters, whose tokens are due too, must take
#: theirs first: a microsecond later is after every alarm of this instant, on the real and on the virtual clock.
STEP = 1e-6


class TokenBucket:
    """Tokens that accrue with time: `rate` a second, at most `capacity`. The classic token bucket, at which calls may
    wait. A shortfall of less than a microsecond's worth counts as none (else a wait to its end could lead to another
    wait of zero length, as smithy-rs found); that shortfall is kept as a debt, so that over time no token is given
    twice.
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
        """Take over a state that `state` has returned, of this object or of another with the same definition."""
        self._level, self._at = state

    def level(self, now: float) -> float:
        """The number of tokens left now, never below zero."""
        self._refill(now)
        return max(0.0, self._level)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until `tokens` tokens are available if no other call takes one meanwhile; 0 if they are now."""
        self._refill(now)
        short = tokens - self._level
        if short <= 1e-9 or short <= min(1e-6 * self.rate, 1e-3):
            return 0.0
        return short / self.rate if self.rate > 0 and self.capacity >= 1 else math.inf

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take `price` tokens; False if there are too few. A price above the capacity is granted from a full bucket,
        and taken whole: what is missing is a debt, which later tokens pay (contract, section 16).
        """
        if TokenBucket.wait(self, now, min(price, self.capacity)) > 0:
            return False
        self._level -= price
        return True

    def withheld(self) -> str:
        """Why no token is given at the moment although the level may suffice; "" if the level alone decides."""
        return ""

    def lacks(self, now: float) -> None:
        """Note that a call waits for more tokens than are here. Does nothing in this process; a bucket outside it then
        asks its store for tokens.
        """

    def paid_with(self, others: Iterable[TokenBucket]) -> None:
        """Note that attempts pay the buckets `others` together with this one. Does nothing here; a bucket that is kept
        outside this process needs it.
        """

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        """Put back tokens that were not used. A negative number takes more, for what was used beyond the price."""
        self._refill(now)
        self._level = min(self.capacity, self._level + tokens)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.capacity, self._level + (now - self._at) * self.rate)
            self._at = now


@dataclass(slots=True, eq=False)
class TokenGate:
    """The queue for a rate bucket or an adaptive limiter, in order of arrival. `queue`: each waiter with the tokens
    that its attempt costs (one, unless the bucket counts a language model's tokens).

    `asking`: the bucket is kept outside this process and has been asked; until it answers, no call is rejected.

    Theory. Each waiter's alarm rings when its tokens are due if no waiter before it leaves. When one does, only the
    alarm of the first is moved; from then on, until the queue is empty, so is that of each waiter that becomes the
    first. So an app that goes away costs the same however many calls wait.
    """

    bucket: TokenBucket
    rejects: bool = False
    asking: bool = False
    queue: dict[Waiter, float] = field(default_factory=dict)
    order: FairOrder | None = None  # of the calls of several apps
    _total: float = 0.0  # the tokens of all that wait
    _is_late: bool = False  # a waiter has left, so that alarms of those after it ring later than they might

    def ask(self, waiter: Waiter, now: float, price: float = 1.0) -> float:
        """Take the price for the waiter and return `now`; else return the time to ask again, or REJECTED if the waiter
        may not wait.
        """
        if self.is_first(waiter) and self.take(waiter, now, price):
            return now
        return self.join(waiter, now, price)

    def pass_at_once(self, app: NamedApp | None, now: float) -> bool:
        """Take one token for a call of this app that has not waited; False if others wait, or there is no token."""
        if self.queue or not self.bucket.take(now):
            return False
        if self.order is not None and app is not None:
            self.order.went(app, 1.0, others=False)
        return True

    def is_first(self, waiter: Waiter) -> bool:
        """Whether no other waiter is before this one."""
        queue = self.queue
        return not queue or waiter is next(iter(queue))

    def take(self, waiter: Waiter, now: float, price: float) -> bool:
        """Take the price for the first waiter, which leaves the queue; False if there are too few tokens."""
        if not self.bucket.take(now, price):
            return False
        self.passed(waiter, price, now)
        return True

    def passed(self, waiter: Waiter, price: float, now: float) -> None:
        """Remove the first waiter from the queue: it has paid."""
        if self.order is not None:
            leave_first(self.order, waiter, self.queue, price)
        if self.queue:
            self._remove(waiter)
            if self._is_late:
                self._retime_first(now)

    def join(self, waiter: Waiter, now: float, price: float = 1.0) -> float:
        """Put the waiter into the queue, unless it waits there already. Returns the time to ask again, or REJECTED if
        it may not wait.
        """
        queue = self.queue
        if self.rejects and not self.asking:
            self._remove(waiter, late=True)
            return REJECTED
        self.stand(waiter, price, now)
        before = 0.0
        if waiter is next(reversed(queue)):
            before = self._total - price
        else:
            for other, others in queue.items():
                if other is waiter:
                    break
                before += others
        return max(now + self.bucket.wait(now, before + min(price, self.bucket.capacity)), now + STEP)

    def stand(self, waiter: Waiter, price: float, now: float) -> None:
        """Put the waiter into the queue, at the place that its app's priority and weight give it, unless it waits there
        already.
        """
        queue = self.queue
        before = queue.get(waiter)
        comes = before is None
        queue[waiter] = price
        self._total += price - (before or 0.0)
        if comes and app_of(waiter) is not None:
            self.order = take_place(self.order, queue, priced=True)
            if waiter is not next(reversed(queue)):
                self.retime(now)  # those that it overtakes wait longer

    def give_back(self, now: float, price: float = 1.0) -> None:
        """Put back the price of an attempt that is not sent."""
        self.bucket.give_back(now, price)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiter from the queue; those after it move up."""
        if waiter not in self.queue:
            return
        was_first = waiter is next(iter(self.queue))
        self._remove(waiter, late=True)
        if was_first:
            self._retime_first(now)

    def _remove(self, waiter: Waiter, late: bool = False) -> None:
        """Remove the waiter from the queue, if it is in it. `late`: it has not paid, so that those after it wait for
        less than their alarms say.
        """
        self._total -= self.queue.pop(waiter, 0.0)
        self._is_late = self._is_late or late
        if not self.queue:
            self._total, self._is_late = 0.0, False

    def _retime_first(self, now: float) -> None:
        """Move the alarm of the first waiter to the time at which its tokens are due. If there will be none, it asks
        now, and is refused.
        """
        first = next(iter(self.queue), None)
        if first is not None:
            at = now + self.bucket.wait(now, min(self.queue[first], self.bucket.capacity))
            first.retime(at if at < REJECTED else now)

    def retime(self, now: float) -> None:
        """Move the alarms of all waiters, because tokens now accrue faster or slower, or one call has overtaken
        another. Those that would wait for longer than they may ask again at once.
        """
        before, most = 0.0, self.bucket.capacity
        for other, price in list(self.queue.items()):
            at = now + self.bucket.wait(now, before + min(price, most))
            other.retime(at if at <= latest_of(other) + STEP else now)
            before += price

    def seconds_left(self, now: float, price: float = 1.0) -> float:
        """Seconds that a new caller would wait for its tokens."""
        return self.bucket.wait(now, self._total + min(price, self.bucket.capacity))

    def withheld(self) -> str:
        """Why no token is given at the moment although the level may suffice; "" if the level alone decides."""
        return self.bucket.withheld()
