"""Tokens that accrue with time, for the `rate` bucket and the adaptive limiter, and the gate at which calls wait for
them.

Law: over any stretch of time, no more tokens are given than were in the bucket at its beginning and accrued during it.
A level is at most `capacity`; time that runs backwards adds nothing.

A call does not block on a gate, but asks it. `ask(waiter, now)` grants (it returns a time not after now) or names the
time at which to ask again. The waiting call sets an alarm and asks again when it rings, so it always notices if the
gate has closed further meanwhile. If a gate opens sooner, or later, than it had said, it moves the alarms of its
waiting calls (`retime`). Queues are in order of arrival.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from proxy.retry.apps import NamedApp
from proxy.retry.queues.fair_lines import FairLines, Spare
from proxy.retry.queues.fair_order import app_of, latest_of
from proxy.retry.queues.waiter import Waiter

#: The result of a gate at which no call may wait: the call is refused at once.
REJECTED = float("inf")
#: Seconds after which a waiter asks again if its token is due but earlier waiters, whose tokens are due too, must take
#: theirs first: a microsecond later is after every alarm of this instant, on the real and on the virtual clock.
STEP = 1e-6
#: The most seconds that it waits so: each time twice as long, while no other waiter is sent. One whose turn it is may
#: be held by another gate, until an alarm that is not this gate's.
_LONGEST_STEP = 1e-3


class TokenBucket:
    """Tokens that accrue with time: `rate` a second, at most `capacity`. The classic token bucket, at which calls may
    wait.

    If less than a microsecond's worth of tokens is missing, the bucket counts as having enough; otherwise a wait could
    lead to another wait of zero length, as smithy-rs found. What was missing is kept as a debt, so that over time no
    token is given twice.
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
        """Take over a state that the method `state` returned, of this object or of another with the same definition."""
        self._level, self._at = state

    def level(self, now: float) -> float:
        """The number of tokens left now, never below zero."""
        self._refill(now)
        return max(0.0, self._level)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """The seconds until `tokens` tokens are available, if no other call takes one meanwhile; 0 if they are
        available now.
        """
        self._refill(now)
        short = tokens - self._level
        if short <= 1e-9 or short <= min(1e-6 * self.rate, 1e-3):
            return 0.0
        return short / self.rate if self.rate > 0 and self.capacity >= 1 else math.inf

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take `price` tokens, and return True; if there are too few, return False. A price above the capacity is
        granted from a full bucket, and taken whole: what is missing is a debt, which later tokens pay (contract,
        section 16).
        """
        if TokenBucket.wait(self, now, min(price, self.capacity)) > 0:
            return False
        self._level -= price
        return True

    def withheld(self) -> str:
        """The reason why no token is given at the moment, even if the level is high enough; "" if the level alone
        decides.
        """
        return ""

    @property
    def charges(self) -> bool:
        """Whether `take` really takes tokens at present, so that `give_back` may put them back. A limiter that is off
        takes none.
        """
        return True

    def lacks(self, now: float, tokens: float = 1.0) -> None:
        """Note that a call needs `tokens` tokens, which are more than this process has. Does nothing here; a bucket
        that is kept outside this process then asks its store for tokens.
        """

    def paid_with(self, others: Iterable[TokenBucket]) -> None:
        """Note that attempts pay the buckets `others` together with this one. Does nothing here; a bucket that is kept
        outside this process needs to know it.
        """

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        """Put back tokens that were not used. If `tokens` is negative, take as many more, for an attempt that used more
        than its price.
        """
        self._refill(now)
        self._level = min(self.capacity, self._level + tokens)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.capacity, self._level + (now - self._at) * self.rate)
            self._at = now


@dataclass(slots=True, eq=False)
class TokenGate:
    """The gate of a rate bucket or an adaptive limiter, with the queue of the calls that wait for tokens. `queue`: each
    waiting call, in order of arrival, with the tokens that its attempt costs (one, unless the bucket counts a language
    model's tokens). `lines`: the same calls by app, which decides whose turn it is; None as long as no call has an app.
    `make_lines`: makes `lines`.

    `rejects`: calls are refused instead of waiting. `asking`: the bucket is kept outside this process and has been
    asked for tokens; until it answers, no call is refused.

    Theory. Each waiting call's alarm is set to the time at which its tokens are due if no call before it leaves. When a
    call leaves, only the alarm of the first is moved; from then on, until the queue is empty, the alarm of each call
    that becomes the first is moved too. So an app that goes away costs the same however many calls wait. A call that
    was overtaken asks again at the time that it was first given, and is given another one; it asks at once if it may
    have too little time left.

    Theory of several gates that one attempt pays (`proxy.retry.budgets.rates`). Where calls have apps, one of the gates
    leads: its lines alone decide whose turn it is. At the other gates, only the first call of those lines counts. If a
    gate also has a first call in lines of its own, the one of these calls that came first goes first. So no two calls
    wait for each other.
    """

    bucket: TokenBucket
    rejects: bool = False
    asking: bool = False
    queue: dict[Waiter, float] = field(default_factory=dict)
    lines: FairLines | None = None
    make_lines: Callable[[], FairLines] = FairLines
    _total: float = 0.0  # the tokens of all that wait
    _step: float = STEP  # the seconds after which the next waiter that others' turns hold up asks again
    _is_late: bool = False  # a waiter has left, so that alarms of those after it ring later than they might
    _spare: Spare = field(default_factory=Spare)
    _led: dict[Waiter, FairLines] = field(default_factory=dict)  # the lines of other gates, for calls that those lead
    _leads: Counter[FairLines] = field(default_factory=Counter)  # the same lines, each with its number of these calls

    def ask(self, waiter: Waiter, now: float, price: float = 1.0) -> float:
        """Take the price for the waiting call and return `now`. If that is not possible yet, return the time at which
        to ask again, or REJECTED if the call may not wait.
        """
        if self.may_stand and self.lines_for(waiter, now) is not None:
            self.stand(waiter, price, now)
        if self.is_first(waiter, now) and self.take(waiter, now, price):
            return now
        return self.join(waiter, now, price)

    @property
    def may_stand(self) -> bool:
        """Whether a call may wait here now."""
        return self.asking or not self.rejects

    def pass_at_once(self, app: NamedApp | None, now: float) -> bool:
        """Take one token for a call of this app that has not waited, and return True. Returns False if other calls
        wait, or there is no token.
        """
        if self.queue:
            return False
        if app is not None and self.make_lines is not FairLines and self._made_lines(now).waits_elsewhere(now):
            return False
        return self.bucket.take(now)

    def lines_for(self, waiter: Waiter, now: float) -> FairLines | None:
        """The lines that decide this call's turn, if this gate leads; None if neither this call nor any call before it
        had an app.
        """
        if self.lines is None and app_of(waiter) is not None:
            return self._made_lines(now)
        return self.lines

    def _made_lines(self, now: float) -> FairLines:
        if self.lines is None:
            self.lines = self.make_lines()
            for other, price in self.queue.items():
                if other not in self._led:
                    self.lines.add(other, price, now)
        return self.lines

    def is_first(self, waiter: Waiter, now: float) -> bool:
        """Whether it is the turn of this waiting call."""
        lines = self._led.get(waiter, self.lines)
        if lines is None or waiter not in lines:
            return not self.queue or waiter is next(iter(self.queue))
        if not lines.is_next(waiter, now):
            return False
        if not self._leads:
            return True
        came = lines.came(waiter)
        return all(
            first not in self.queue or each.came(first) >= came for each, first in self._firsts() if each is not lines
        )

    def _firsts(self) -> Iterator[tuple[FairLines, Waiter]]:
        """Iterate over all lines whose calls wait here, each with the call whose turn it is."""
        for lines in self._leads if self.lines is None else chain((self.lines,), self._leads):
            first = lines.first()
            if first is not None:
                yield lines, first

    def take(self, waiter: Waiter, now: float, price: float) -> bool:
        """Take the price for the call whose turn it is, remove the call from the queue, and return True. Returns False
        if there are too few tokens.
        """
        if not self.bucket.take(now, price):
            return False
        self.passed(waiter, price, now)
        return True

    def passed(self, waiter: Waiter, price: float, now: float) -> None:
        """Remove the call whose turn it was from the queue, because it has paid `price` tokens."""
        self._step = STEP
        if not self.queue:
            return
        if self.lines is not None:
            self.lines.went(waiter, price, now)
        self._remove(waiter, now)
        if self._is_late or self.lines is not None or self._leads:
            self._retime_first(now)

    def join(self, waiter: Waiter, now: float, price: float = 1.0) -> float:
        """Put the waiting call into the queue, unless it is in the queue already. Returns the time at which to ask
        again, or REJECTED if the call may not wait. `price`: the tokens that its attempt costs.
        """
        if not self.may_stand:
            self._remove(waiter, now, late=True)
            return REJECTED
        self.stand(waiter, price, now)
        needs = min(price, self.bucket.capacity)
        lines = self._led.get(waiter, self.lines)
        if lines is None:
            at = now + self.bucket.wait(now, self._before(waiter, price) + needs)
        else:
            number, before = lines.before(waiter)
            if lines is not self.lines:
                before = number * self._total / len(self.queue)
            at = now + self.bucket.wait(now, before + needs)
            self._spare.note(waiter, at)
            if waiter is lines.first():  # it looks at the next token: how many calls are before it is an estimate
                at = self._next_look(lines, now + self.bucket.wait(now, needs), needs, now)
            else:
                at = lines.later_look(now, at)
        if at > now + STEP:
            return at
        step, self._step = self._step, min(2 * self._step, _LONGEST_STEP)
        return now + step

    def _next_look(self, lines: FairLines, due: float, needs: float, now: float) -> float:
        """The time at which the first call of `lines` should check whether it is its turn. `due`: the time at which its
        tokens are there. `needs`: how many tokens it needs.
        """
        bucket = self.bucket
        return lines.next_look(now, due, (bucket.capacity - needs) / bucket.rate if bucket.rate > 0 else REJECTED)

    def _before(self, waiter: Waiter, price: float) -> float:
        """The tokens that the calls before this one need, in order of arrival. `price`: the tokens that this call
        needs.
        """
        if waiter is next(reversed(self.queue)):
            return self._total - price
        before = 0.0
        for other, others in self.queue.items():
            if other is waiter:
                break
            before += others
        return before

    def stand(self, waiter: Waiter, price: float, now: float, lead: FairLines | None = None) -> None:
        """Put the waiting call into the queue, unless it is in the queue already. `price`: the tokens that its attempt
        costs. `lead`: the lines of another gate, which decide the call's turn; None if this gate decides it.
        """
        queue = self.queue
        before = queue.get(waiter)
        queue[waiter] = price
        self._total += price - (before or 0.0)
        if before is not None:
            return
        if lead is not None:
            self._led[waiter] = lead
            self._leads[lead] += 1
        elif self.lines is not None:
            self.lines.add(waiter, price, now)
        if self.bucket.rate > 0:
            for other in self._spare.overtaken(price / self.bucket.rate):
                other.retime(now)

    def turns(self) -> list[Waiter]:
        """All waiting calls, in the order in which they will go if no other call comes."""
        if self.lines is None and not self._leads:
            return list(self.queue)
        known = [self.lines] if self.lines is not None else []
        return [waiter for lines in (*known, *self._leads) for waiter in lines if waiter in self.queue]

    def give_back(self, now: float, price: float = 1.0) -> None:
        """Put back the price of an attempt that is not sent. The first waiting call asks again, since its alarm was set
        for the time at which its tokens would have come without these.
        """
        self.bucket.give_back(now, price)
        if self.queue:
            self.moved(now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call from the queue; those after it move up."""
        if waiter not in self.queue:
            return
        was_first = self.lines is not None or self._leads or waiter is next(iter(self.queue))
        self._remove(waiter, now, late=True)
        if was_first:
            self._retime_first(now)

    def _remove(self, waiter: Waiter, now: float, late: bool = False) -> None:
        """Remove the waiting call from the queue, if it is in the queue. `late`: it has not paid, so those after it
        have to wait for less time than their alarms say.
        """
        self._total -= self.queue.pop(waiter, 0.0)
        self._is_late = self._is_late or late
        if not self.queue:
            self._total, self._is_late = 0.0, False
        if self.lines is not None:
            self.lines.remove(waiter, now)
        self._spare.forget(waiter)
        lead = self._led.pop(waiter, None)
        if lead is not None:
            self._leads[lead] -= 1
            if not self._leads[lead]:
                del self._leads[lead]

    def _retime_first(self, now: float) -> None:
        """Move the alarm of the first waiting call to the time at which its tokens are due. If there will never be
        enough tokens, the call asks now, and is refused.
        """
        most = self.bucket.capacity
        if self.lines is None and not self._leads:
            first = next(iter(self.queue), None)
            if first is not None:
                at = now + self.bucket.wait(now, min(self.queue[first], most))
                first.retime(at if at < REJECTED else now)
            return
        for lines, first in self._firsts():
            if first in self.queue:
                needs = min(self.queue[first], most)
                at = now + self.bucket.wait(now, needs)
                first.retime(self._next_look(lines, at, needs, now) if now < at < REJECTED else now)

    def moved(self, now: float) -> None:
        """Note that tokens came back, or that more of them were taken. The alarm of the first waiting call is moved,
        and from now on that of each call that becomes the first.
        """
        self._is_late = True
        self._retime_first(now)

    def retime(self, now: float) -> None:
        """Move the alarms of all waiting calls, because tokens now accrue faster or slower. Calls that would wait for
        longer than they may ask again at once.
        """
        before, most = 0.0, self.bucket.capacity
        for other in self.turns():
            price = self.queue[other]
            at = now + self.bucket.wait(now, before + min(price, most))
            other.retime(at if at <= latest_of(other) + STEP else now)
            before += price

    def seconds_left(self, now: float, price: float = 1.0) -> float:
        """The seconds that a new call would wait for its tokens. `price`: how many tokens it needs."""
        return self.bucket.wait(now, self._total + min(price, self.bucket.capacity))

    def withheld(self) -> str:
        """The reason why no token is given at the moment, even if the level is high enough; "" if the level alone
        decides.
        """
        return self.bucket.withheld()
