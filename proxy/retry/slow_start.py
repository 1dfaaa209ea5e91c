"""How callers that an upstream asked to wait return to it: in order of arrival, never early, by a slow start.

Theory of operation. A delay that the upstream names closes the gate until it is over. Then a limited number of places
is given at a time, one attempt each. The first cooldown begins with one place, and every attempt that comes back with
an answer which is no failure of the upstream's adds one, so that they double with each round trip (RFC 5681, section
3.1, slow start). A further request to wait, while calls are still held, halves them, once for all attempts that were
sent before it came; from there they grow by one a round trip (the same section, congestion avoidance: the rate that was
too much a moment ago is approached with care). The cooldown is over when no call is held.
docs/decisions/0008-cooldown.md has the measurements that led to this.

Law: a place is in use or free, and the number of free places is never negative; a place is free again when its attempt
has a head or an end, or `place_seconds` after it was given. Every held call has an alarm: the first in the queue for
the next moment at which it may be sent, each other one for the moment from which it would wait too long; each call is
retimed when it moves up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.retry.token_bucket import Waiter

#: Contract, section 5: a place is given back after max(1 s, 2 x the delay) at the latest.
SHORTEST_PLACE = 1.0
DELAYS_A_PLACE = 2.0
#: The longest that a call waits in the queue after others, in delays of an upstream that answers 503: about as long as
#: the two retries of the strategy standard would have waited (docs/decisions/0008-cooldown.md has the figures). It does
#: not bound the wait for an upstream that answers 429, since a limit on calls means that some are served.
PATIENT_DELAYS = 1.75

_NEVER = float("inf")
#: Weight of the newest round trip in their mean (RFC 6298, section 2.3).
_NEWEST = 0.125
_TOO_MANY = 429


@dataclass(slots=True, eq=False)
class SlowStart:
    """A group of callers, the cooldown that holds them, and the slow start by which they return. Times are seconds on
    the callers' clock. `grown` is the number of places that successes have added in all. `queue` has the held calls in
    order of arrival, each with the time from which it waits.
    """

    until: float = -_NEVER  # when the delay is over
    delay: float = 0.0  # how long it was
    status: int = 503  # the status of the answer that began it: 429 or 503
    places: float = 1.0  # how many attempts may be under way at a time after the delay; fractions do not count yet
    begun: float = -_NEVER  # when the answer came that began the cooldown in force
    share: float = _NEVER  # how many places this process may have; infinity if no other machine shares them
    grown: float = 0.0
    elsewhere: bool = False  # whether another machine holds calls, as far as is known
    queue: dict[Waiter, float] = field(default_factory=dict)
    _threshold: float = _NEVER  # with each round trip places double up to this number, and grow by one above it
    _well: float = -_NEVER  # when a call was served last, or the first cooldown began
    _round_trip: float = 0.0  # the mean round trip in seconds; 0 if none is known
    _admitted: dict[Waiter, None] = field(default_factory=dict)  # calls that were given a place, and are not sent yet
    _taken: dict[Waiter, float] = field(
        default_factory=dict
    )  # the waiters whose places are in use, and since when, oldest first
    _word_until: float = (
        -_NEVER
    )  # the end of the delay that the answer in force named; an earlier answer's may be later
    _starter: Waiter | None = None  # the call that has the first place once the delay is over
    _own_until: float = -_NEVER  # the end of the delay that the starter's own attempt was given

    # -- requests to wait --------------------------------------------------------------------------------------------

    def start(self, delay: float, status: int, sent: float, now: float) -> bool:
        """Note that the upstream named a delay (seconds) in an answer with this status to an attempt sent at `sent`.

        Returns whether the answer begins a cooldown of its own, rather than being one more answer to attempts that were
        sent before the cooldown in force.
        """
        if delay <= 0:
            return False
        new = self._begin(status, sent, now)
        if new and self.share < _NEVER:
            self.share, self.elsewhere = (
                max(1.0, self.share // 2),
                True,
            )  # until the fleet reports which machine was first
        if new:
            self._word_until = now + delay
        if now + delay > self.until:
            self.until, self.delay = now + delay, delay
            back = list(self._admitted)  # calls that have a place and are not sent yet: held again, before all others
            self._admitted.clear()
            for waiter in back:
                self._vacate(waiter)
            self.queue = {**dict.fromkeys(back, now), **self.queue}
        for waiter in list(self.queue):
            waiter.retime(now)  # each asks again at once, so that a call which would now wait too long is answered
        return new

    def _begin(self, status: int, sent: float, now: float) -> bool:
        if self.is_over(now):
            self.places, self._threshold = 1.0, _NEVER
            if now > self.until + self.place_seconds:
                self._well = now
            self._forget_places()
        elif sent > self.begun:
            self.places = self._threshold = max(1.0, self.places // 2)
        else:
            return False
        self.begun, self.status = now, status
        if self._starter is not None:
            self._vacate(self._starter)
            self._starter = None
        return True

    def started_elsewhere(self, delay: float, status: int, now: float) -> None:
        """Note a delay that callers on another machine were asked to wait: they have the first place, and this process
        has none until it gets its share.
        """
        if self.start(delay, status, now, now) and self.share < _NEVER:
            self.share = 0.0

    def allot(self, places: float, share: float, threshold: float, elsewhere: bool, now: float) -> None:
        """Set the number of places of the whole fleet, and this process's `share` of them. Up to `threshold` places,
        the number doubles with each round trip. `elsewhere`: whether another machine holds calls.
        """
        self.elsewhere = elsewhere
        self.places, self.share, self._threshold = max(1.0, places), share, threshold
        if now >= self.until:
            self._let_go(now)

    def go_alone(self, now: float) -> None:
        """Use all places in this process, since it is connected to no fleet any more."""
        self.allot(self.places, _NEVER, self._threshold, False, now)

    def claim(self, waiter: Waiter, due: float) -> bool:
        """Reserve the first place for the call whose answer began the cooldown, and whose retry is due at `due`
        (seconds). Returns whether the call has the place: only if its retry is due before the cooldown's delay is over,
        and no other call has it.
        """
        if self._starter is None and due <= self.until:
            self._starter, self._own_until = waiter, self._word_until
            self._occupy(waiter, self.until)
        return waiter is self._starter

    # -- callers ----------------------------------------------------------------------------------------------------

    def is_over(self, now: float) -> bool:
        """Whether no call is held."""
        return now >= self.until and not self.queue and not self.elsewhere

    def ask(self, waiter: Waiter, now: float) -> float:
        """Return `now` if the call may be sent; else the latest time at which it asks again, infinity if it will be
        retimed.
        """
        if waiter in self._admitted:
            return now
        if waiter is self._starter and self.share >= 1 and (now >= self.until or self.until == self._own_until):
            self._starter = None  # its own attempt was given the delay in force, so it does not queue
            self._admitted[waiter] = None
            self._occupy(waiter, now)
            return now
        if self.is_over(now):
            return now
        if waiter is self._starter:  # a longer delay was named meanwhile: the starter is held too, before the others
            self._starter = None
            self._vacate(waiter)
            self.queue = {waiter: now, **self.queue}
        else:
            self.queue.setdefault(waiter, now)
        self._let_go(now, asking=waiter)
        if waiter in self._admitted:
            return now
        return self._next(now) if waiter is next(iter(self.queue)) else _NEVER

    def has(self, waiter: Waiter) -> bool:
        """Whether the waiter is in the queue, or has a place."""
        return waiter in self.queue or waiter in self._taken or waiter in self._admitted

    def sent(self, waiter: Waiter) -> None:
        """Note that the waiter's attempt is being sent."""
        self._admitted.pop(waiter, None)

    def landed(self, waiter: Waiter, sent: float, now: float, *, well: bool) -> None:
        """Note that the waiter's attempt, sent at `sent`, has a head or an end; `well`: its answer is no failure of the
        upstream's.

        An attempt that was sent before the cooldown in force began says nothing about the time since: it adds no place.
        """
        if waiter is self._starter:
            self._starter = None
        self._vacate(waiter)
        if well and sent >= self.begun:
            trip = now - sent
            self._round_trip += _NEWEST * (trip - self._round_trip) if self._round_trip else trip
            self._well = now
            if not self.is_over(now):
                more = 1.0 if self.places < self._threshold else 1.0 / self.places
                self.places += more
                self.grown += more
        if now >= self.until:
            self._let_go(now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiter, which sends nothing: its place in the queue and among the attempts is free."""
        if waiter is self._starter:
            self._starter = None
        self.queue.pop(waiter, None)
        self._admitted.pop(waiter, None)
        self._vacate(waiter)
        self._let_go(now)

    def wait_of(self, waiter: Waiter, now: float) -> float:
        """An estimate of the seconds until the waiter is sent, at the pace so far; infinity if it would wait too long.

        The first in the queue is sent when the delay is over, the others as many round trips later as it takes until
        there are places for all that are before them. But an upstream that has served no call since before the cooldown
        in force is expected to go on like that for as long again (for half as long, if the waiter is first and was held
        before); and PATIENT_DELAYS bounds the wait.
        """
        left = max(0.0, self.until - now)
        idle = now - self._well if self.begun > self._well else 0.0
        since = self.queue.get(waiter, now)
        ahead = self._ahead_of(waiter)
        if not ahead:
            return left if since >= self.begun else max(left, idle / 2)
        if self.status != _TOO_MANY and now - since + left > PATIENT_DELAYS * self.delay:
            return _NEVER
        places = max(1.0, min(self.places, self.share))
        return max(left + math.log2(1 + ahead / places) * self._round_trip, idle)

    def _ahead_of(self, waiter: Waiter) -> int:
        if waiter is next(iter(self.queue), None):
            return 0
        if waiter is next(reversed(self.queue), None):
            return len(self.queue) - 1
        return next((place for place, other in enumerate(self.queue) if other is waiter), len(self.queue))

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self.queue)

    # -- places -----------------------------------------------------------------------------------------------------

    @property
    def place_seconds(self) -> float:
        """The longest that a place is in use, in seconds."""
        return max(SHORTEST_PLACE, DELAYS_A_PLACE * self.delay)

    def in_use(self) -> int:
        """The number of places in use."""
        return len(self._taken)

    def wanted(self) -> int:
        """The number of places that this process could use: those that it has, and one for each call that it holds."""
        return len(self._taken) + len(self.queue)

    def _let_go(self, now: float, asking: Waiter | None = None) -> None:
        """Give the free places to the first calls in the queue, and set the alarm of the call that is then first.
        `asking`: the waiter that is asking, whose alarm needs no setting.
        """
        if now >= self.until and self.queue:
            self._expire(now)
            free = min(int(self.places) - self.in_use(), self.share - len(self._taken))
            while self.queue and free > 0:
                free -= 1
                waiter = next(iter(self.queue))
                del self.queue[waiter]
                self._admitted[waiter] = None
                self._occupy(waiter, now)
                if waiter is not asking:
                    waiter.retime(now)
        first = next(iter(self.queue), None)
        if first is not None and first is not asking:
            first.retime(now if now < self.until else self._next(now))

    def _next(self, now: float) -> float:
        """The time at which the first call in the queue may be sent, unless a place becomes free sooner or the delay
        changes.
        """
        if now < self.until:
            return self.until
        if not self._taken and self.share < _NEVER:
            return _NEVER  # other machines have the places; this process is given its share later
        since = next(iter(self._taken.values()), self.until)
        return max(since + self.place_seconds, math.nextafter(now, _NEVER))

    def _expire(self, now: float) -> None:
        """Take back the places of attempts that have been under way for too long."""
        while self._taken:
            waiter, since = next(iter(self._taken.items()))
            if since + self.place_seconds > now:
                return
            self._vacate(waiter)

    def _occupy(self, waiter: Waiter, now: float) -> None:
        self._vacate(waiter)
        self._taken[waiter] = now

    def _vacate(self, waiter: Waiter) -> None:
        self._taken.pop(waiter, None)

    def _forget_places(self) -> None:
        self._taken.clear()
