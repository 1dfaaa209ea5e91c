"""The test of whether it pays to hold calls for the delays that an upstream names.

Contract, section 5: when an upstream answers one call with a delay, other calls are held for that delay too, and are
sent by a slow start after it. Where attempts are refused by chance, however few are sent, this serves hardly any call:
the next refusal comes before the number of calls sent at a time has grown, and holds all calls again. The same is true
where delays are much longer than the upstream needs. Fewer calls would be served than without a proxy.

So the gain from holding is measured: the share of the calls that are served. Where calls have waited for long, and more
would be served if refusals were chance, several calls are sent at once when the delay is over. An upstream that lacks
capacity refuses most of them. An upstream that has no queue refuses all but one; the next such group of calls is sent
to it only after minutes. If most of the group are served, a test begins. During the test a delay holds only the call
that was refused, and the waiting calls are sent only a little faster than calls come, so that the test is no burst upon
an upstream that lacks capacity. If a clearly larger share is served than before, delays go on to hold only their own
calls. Otherwise all calls are held again, and the next test is made after twice the time. Where holding serves far
fewer calls than could be served, no such group is sent first: an upstream without a queue would refuse it, although
more is served without holding (`proxy.retry.capacity.unheld`).

Before either test, calls are sent at reserved times (`proxy.retry.capacity.reserving`) where other clients of an
upstream without a queue seem to be the reason for refusals. A delay then holds only its own call, too. If reserved
times turn out to be of no use, chance is tested.
"""

from __future__ import annotations

import math

from proxy.retry.capacity.chances import tail
from proxy.retry.capacity.held_counts import HeldCounts
from proxy.retry.capacity.refused_attempts import RefusedAttempts
from proxy.retry.capacity.reserving import Reserving
from proxy.retry.capacity.unheld import Unheld

_NEVER = float("inf")

#: A test is made if calls will have waited for so many seconds at the end of the delay, or for twice as many if each
#: first attempt after a delay was served, as by an upstream that only lacks capacity; and if so much more (a share of
#: the calls) would be served if refusals were chance.
_LONG, _WORTH = 8.0, 0.2
#: The part of the calls that would be served if refusals were chance, below which it is tested whether more are if
#: delays hold only their own calls (`proxy.retry.capacity.unheld`); the seconds of a delay up to which that is tested
#: after twice the time; and the part for these, if calls that were sent at once have shown that the upstream has no
#: queue.
_FEWER, _SHORT, _FEWER_NO_QUEUE = 0.5, 1.0, 0.6
#: How many calls are sent at once before a test, at most and at least; the share of them that has to be served; and the
#: seconds within which they are sent.
_TOGETHER, _AT_LEAST, _MOSTLY, _AT_ONCE = 8, 5, 0.6, 0.01
#: Seconds for which the ends of these calls are waited for: of one that is cancelled, or fails in another way, none is
#: reported.
_WAITED_FOR = 30.0
#: A test has so many attempts at least, and takes so many times the longest named delay, but no more seconds than that.
#: The last of these: a test of so many attempts has shown nothing, if it has not shown that more are served.
_ATTEMPTS, _DELAYS, _LONGEST, _ENOUGH = 20, 1.5, 15.0, 50
#: Seconds from a test that showed nothing to the next one, and from calls that were sent at once and mostly refused to
#: the next ones: at first, and at most, since they are doubled each time.
_AGAIN, _AGAIN_LONGEST, _SOON, _SOON_LONGEST = 20.0, 320.0, 5.0, 40.0
#: At most one of so many calls that were sent at once is served by an upstream without a queue, which lacks capacity:
#: then the next ones are sent after so many seconds.
_ONE_OF, _LATER = 8, 300.0
#: The least difference by which the share of served calls in a test must exceed that before.
_MORE = 0.1
#: How many attempts a second are made in a test, and after it while calls wait that were held, as multiples of the
#: calls that came a second.
_PACE, _PACE_KNOWN = 1.25, 2.0
#: Seconds after a test within which the calls that it left waiting are sent faster.
_JUST = 5.0
#: The least pace of an upstream that calls are sent to at reserved times (attempts a second).
_LEAST = 1.0
#: The probability, by the share of refusals in the test, of as few as before, above which these are called as many.
_PROBABLE = 0.02
#: Seconds for which it is remembered that holding does not pay, after the last refusal.
_KNOWN = 120.0


class Batch:
    """The attempts that are sent at once before a test, by one process. `count`: how many there are. `flying`: how many
    of them have not ended. `served`, `refused`: how many ended so. `begun`: the time (seconds) at which they are sent.
    `has_failed`: it was noted that too many of them were refused.
    """

    __slots__ = ("_attempts", "begun", "count", "flying", "has_failed", "refused", "served")

    def __init__(self, count: int = 0, now: float = -_NEVER) -> None:
        self._attempts: dict[object, float] = {}  # each with `begun` of its batch
        self.count = count
        self.flying = 0
        self.served = self.refused = 0
        self.begun = now
        self.has_failed = False

    def is_open(self, now: float) -> bool:
        """Whether some of these attempts have not ended yet, and their ends are still waited for."""
        return self.flying > 0 and now - self.begun <= _WAITED_FOR

    @property
    def are_served(self) -> bool:
        """Whether most of these attempts were served."""
        return self.served >= self._most

    @property
    def are_refused(self) -> bool:
        """Whether so many attempts of the batch were refused that most of them can't be served any more."""
        return self.refused > self.count - self._most

    @property
    def _most(self) -> int:
        """How many of these attempts have to be served to count as most of them."""
        return math.ceil(_MOSTLY * self.count)

    def sent(self, attempt: object, now: float) -> None:
        """Add an attempt that is being sent to the batch, if the batch began just now."""
        if now - self.begun <= _AT_ONCE:
            self._attempts[attempt] = self.begun
            self.flying += 1

    def ended(self, attempt: object, *, refused: bool) -> bool:
        """Note how an attempt ended, if it belongs to the batch. Returns whether it does. `refused`: the attempt was
        refused; if False, it was served.
        """
        if self._attempts.pop(attempt, None) != self.begun:
            return False
        self.flying -= 1
        self.served += not refused
        self.refused += refused
        return True


class DelaysByChance:
    """The test of one lane (the queue of a group of callers). Times are seconds on the callers' clock.

    `at_once`: how many calls may be sent at once when the delay is over, in addition to those that the limit allows.
    `was_tested`: the attempt that was refused last was one of those, so its refusal says nothing about the pace and the
    number of calls that the limit allows. `share`: the share of attempts that were refused in the latest test, from 0
    to 1. `reserving`: the decision whether calls are sent at reserved times.
    """

    __slots__ = (
        "_again", "_batch", "_begun", "_counts", "_delay", "_first_refused", "_known_until", "_next_at",
        "_no_queue_until", "_opens_at", "_sends_until", "_serves", "_soon", "_tested", "_unheld",
        "at_once", "reserving", "share", "was_tested",
    )  # fmt: skip

    def __init__(self) -> None:
        self._counts = HeldCounts()
        self._unheld = Unheld()
        self.reserving = Reserving()
        self._delay = 0.0  # the longest delay named lately
        self.at_once = 0
        self._batch: Batch | None = None
        self.was_tested = False
        self._opens_at = _NEVER  # a test begins then
        self._begun = _NEVER  # a test is under way since then
        self._tested = RefusedAttempts()
        self._known_until = -_NEVER
        self._no_queue_until = -_NEVER  # calls that were sent at once have shown that there is no queue
        self._next_at = -_NEVER  # calls are sent at once no sooner,
        self._again, self._soon = _AGAIN, _SOON  # and the next time so many seconds later
        self._sends_until = -_NEVER  # a test has just shown that holding does not pay
        self._serves = self._first_refused = False  # an attempt was served since the last delay; one delay had none
        self.share = 0.0

    @property
    def calls(self) -> float:
        """The number of calls that come a second."""
        return self._counts.rate

    def is_known(self, now: float) -> bool:
        """Whether a test has shown that holding does not pay."""
        return now < self._known_until

    def holds_none(self, now: float) -> bool:
        """Whether a delay now holds only the call that was refused, and no other call: this is known to serve more
        calls, or is being tested.
        """
        return self._begun < _NEVER or now < self._known_until or self._unheld.is_on(now) or self.reserving.is_on(now)

    def paces(self, now: float) -> bool:
        """Whether a delay now holds only the call that was refused, while all calls are sent at the `pace` (attempts a
        second).
        """
        return self._unheld.paces(now) or self.reserving.paces(now)

    # -- while delays hold calls --------------------------------------------------------------------------------------

    def came(self, now: float) -> None:
        """Note that a call has come, which may have to wait."""
        if self._begun == _NEVER:
            self._counts.call_came(now)

    def served(self, attempt: object, now: float, ratio: float = 0.0) -> bool:
        """Note that an attempt was served. `ratio`: the time that the answer took, as a multiple of the usual time, 0
        if that is not known. Returns whether a test is to begin at once.
        """
        self.reserving.served(attempt, ratio)
        if self._begun < _NEVER or (self._unheld.is_on(now) and not self._unheld.paces(now)):
            return False  # calls are not counted either
        self._counts.fade(now)
        self._counts.served += 1
        self._serves = True
        batch = self._batch
        if batch is None or not batch.ended(attempt, refused=False):
            return False
        self._look_at_failed(batch, now)
        if not batch.are_served:
            return False
        self._batch, self._opens_at = None, now
        return True

    def refused_held(self, attempt: object, now: float) -> None:
        """Note that an attempt was refused by an answer that names a delay, while delays hold calls."""
        self._counts.fade(now)
        self._counts.refused += 1
        self.reserving.refused_held(attempt)
        batch = self._batch
        self.was_tested = batch is not None and batch.ended(attempt, refused=True)
        if batch is not None and self.was_tested:
            self._look_at_failed(batch, now)

    def _look_at_failed(self, batch: Batch, now: float) -> None:
        """Put off the next group of calls that is sent at once, if most of this group (`batch`) were refused; for a
        long time if nearly all were.
        """
        if not batch.are_refused:
            return
        if not batch.has_failed:
            batch.has_failed = True
            self._fails(self._soon, now)
            self._soon = min(_SOON_LONGEST, 2.0 * self._soon)
        if batch.served * _ONE_OF <= batch.count and not batch.is_open(now):
            self._next_at = self._no_queue_until = now + _LATER
            self.was_tested = False  # the pace was too fast

    def cooldown(self, delay: float, since: float, now: float, may_reserve: bool = False) -> None:
        """Note that a delay of `delay` seconds begins, and was not the first. `since`: the time since which the first
        waiting call waits. `may_reserve`: calls may be sent at reserved times, if others are the reason for refusals.
        When the delay is over, some calls may be sent at once, or a test may begin.
        """
        self._counts.fade(now)
        self._delay = max(self._delay, delay)
        self.at_once, self._opens_at = 0, _NEVER
        self._first_refused, self._serves = self._first_refused or not self._serves, False
        if self._batch is not None and self._batch.is_open(now):
            return
        counts, unheld, until = self._counts, self._unheld, now + delay
        gives, chance = counts.gives, counts.chance
        unheld.holds_again()
        if self.reserving.begins_at(until, may_reserve and counts.served >= 1.0, counts.rate) or counts.served < 1.0:
            return
        if gives + _WORTH >= chance:
            return
        long, fewer = _LONG, _FEWER
        if delay <= _SHORT:
            long, fewer = 2.0 * _LONG, _FEWER_NO_QUEUE if now < self._no_queue_until else _FEWER
        if until - since >= long and gives < fewer * chance and unheld.begins_at(until, self._delay):
            return
        long = _LONG if self._first_refused else 2.0 * _LONG
        if until - since >= long and until >= self._next_at:
            self.at_once = _TOGETHER

    def take_at_once(self, waiting: int, now: float) -> int:
        """The number of calls that may be sent at once now. `waiting`: how many calls wait. If this method is called
        again, it returns 0.
        """
        at_once, self.at_once = min(self.at_once, waiting), 0
        if at_once < _AT_LEAST:
            return 0
        self._batch = Batch(at_once, now)
        return at_once

    def sent(self, waiter: object, attempt: object, waiting: int, now: float) -> None:
        """Note that the attempt of the waiting call `waiter` is sent. `waiting`: how many calls wait at the moment."""
        self.reserving.sent(waiter, attempt, now)
        self._unheld.sent(self._counts, waiting, now)
        if self._batch is not None:
            self._batch.sent(attempt, now)

    # -- the test -----------------------------------------------------------------------------------------------------

    def opens(self, now: float) -> bool:
        """Begin a test if it is due. Returns whether the held calls are to be sent at the `pace`: a test begins, or one
        has just shown that holding does not pay.
        """
        if self.reserving.opens(self._counts.gives, now) or self._unheld.opens(self._counts, now):
            return True
        if now < self._sends_until:
            self._sends_until = -_NEVER
            return True
        if now != self._opens_at:  # once that moment is over, no call waited then
            return False
        self._counts.fade(now)
        self._begun, self._opens_at = now, _NEVER
        self._tested.begin()
        return True

    def pace(self, now: float) -> float:
        """The attempts to make in a second while a test is under way, or after a test which has shown that holding does
        not pay.
        """
        if self.reserving.is_on(now):
            return max(_LEAST, self._counts.rate)
        if self._unheld.pace is not None:
            return self._unheld.pace.rate
        return (_PACE if self._begun < _NEVER else _PACE_KNOWN) * self._counts.rate

    def settle(self, rate: float) -> None:
        """Set the pace of calls whose delays hold only themselves, if they are sent at one, to `rate` (attempts a
        second), since the times between this client's attempts show that the upstream takes so many; 0 if they don't.
        """
        if self._unheld.pace is not None:
            self._unheld.pace.settle(rate)

    def refused(self, attempt: object, ended: int, flying: int, now: float) -> None:
        """Note that an attempt was refused by an answer that names a delay, while delays hold only their own calls.
        `ended`: how many attempts have ended so far. `flying`: how many are under way.
        """
        counts = self._counts
        if self.reserving.is_on(now):
            counts.fade(now)
            counts.refused += 1
            if self.reserving.refused(attempt, now) and not self._unheld.is_on(now):
                self._unheld.open(self.reserving.gives, counts, now)
            return
        if self._unheld.is_on(now):
            self._unheld.refused(counts, ended, flying, now)
            return
        tested = self._tested
        if tested.add(ended, flying):
            self._begun = now
        if self._begun == _NEVER:
            self._known_until = -_NEVER if tested.are_most else now + _KNOWN
            return
        if tested.are_most:
            self._end(now)
        elif tested.sent >= _ATTEMPTS and now - self._begun >= min(_LONGEST, _DELAYS * self._delay):
            self.share = tested.refused / tested.sent
            better = self._is_better()
            if better or tested.sent >= _ENOUGH:
                self._end(now, better=better)

    def _is_better(self) -> bool:
        """Whether the test has shown that refusals are chance: a clearly larger share is served in the test than
        before, and refusals were as frequent before, when fewer attempts were sent.
        """
        if 1.0 - self.share <= self._counts.gives + _MORE:
            return False
        held = round(self._counts.served + self._counts.refused)
        return 1.0 - tail(held, round(self._counts.refused) + 1, self.share) > _PROBABLE

    def _end(self, now: float, better: bool = False) -> None:
        """End the test. `better`: a clearly larger share was served than before."""
        self._counts.skip(now)
        self._begun = _NEVER
        self._soon = _SOON
        if better:
            self._known_until, self._sends_until, self._again = now + _KNOWN, now + _JUST, _AGAIN
        else:
            self._fails(self._again, now)
            self._again = min(_AGAIN_LONGEST, 2.0 * self._again)

    def _fails(self, again: float, now: float) -> None:
        """Note that refusals seem to be no chance. `again`: the seconds until the next test may begin."""
        self._first_refused = False
        self._next_at = now + again
