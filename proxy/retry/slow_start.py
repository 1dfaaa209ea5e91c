"""How callers that an upstream asked to wait return to it: in order of arrival, never early, by a slow start.

Theory of operation. A delay that the upstream names closes the gate until it is over. Then so many places are given at
a time. The first cooldown begins with one, and every attempt that comes back with an answer which is no failure of the
upstream's adds one, so that they double with each round trip (RFC 5681, section 3.1, slow start). Another word to wait,
before nobody is held any more, halves them, once for all attempts that were sent before it came; from there they grow
by one a round trip (the same section, congestion avoidance: what was too much a moment ago is come back to with care).
It is over when nobody is held. The figures that this was chosen by stand in docs/decisions/0008-cooldown.md.

Law: a place is in use, or free, and never less than none is; it is free again when its attempt has a head or an end, or
`place_seconds` after it was given. Whoever is held has an alarm: the first in the queue for the next moment at which
it may go, everybody else for the moment from which it would wait for too long, and each is told when it moves up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.retry.token_bucket import Waiter

#: Contract, section 5: a place is given back after max(1 s, 2 x the delay) at the latest.
SHORTEST_PLACE = 1.0
DELAYS_A_PLACE = 2.0
#: Behind others nobody waits for longer than so many delays of an upstream that answers 503: about as long as the two
#: retries of the strategy standard would have waited (docs/decisions/0008-cooldown.md has the figures). Whoever limits
#: calls (429) says by that that it serves some.
PATIENT_DELAYS = 1.75

_NEVER = float("inf")
#: Weight of the newest round trip in their mean (RFC 6298, section 2.3).
_NEWEST = 0.125
_TOO_MANY = 429


@dataclass(slots=True, eq=False)
class SlowStart:
    """One group of callers and the cooldown that holds them. Times are seconds on the callers' clock.

    `grown`: how many places it has added, in all. The queue is in order of arrival, and says since when each waits.
    """

    until: float = -_NEVER  # when the delay is over
    delay: float = 0.0  # how long it was
    status: int = 503  # of the answer that began it: 429 or 503
    places: float = 1.0  # how many attempts may be under way at a time after the delay; fractions do not count yet
    begun: float = -_NEVER  # when the word came that is in force
    share: float = _NEVER  # how many places this process may have; infinity where no other machine shares them
    grown: float = 0.0
    elsewhere: bool = False  # whether another machine holds calls, as far as is known
    queue: dict[Waiter, float] = field(default_factory=dict)
    _threshold: float = _NEVER  # up to so many places they double, above they grow by one, a round trip
    _well: float = -_NEVER  # when somebody was served last, or the first word came
    _round_trip: float = 0.0  # their mean, 0: none is known
    _admitted: dict[Waiter, None] = field(default_factory=dict)  # let go, and not sent yet
    _taken: dict[Waiter, float] = field(default_factory=dict)  # places in use, and since when; in that order
    _word_until: float = -_NEVER  # the end of the delay that the word in force names; an earlier one's may be later
    _starter: Waiter | None = None  # who has the first place once the delay is over
    _own_until: float = -_NEVER  # the end of the delay that the starter itself met

    # -- words ------------------------------------------------------------------------------------------------------

    def start(self, delay: float, status: int, sent: float, now: float) -> bool:
        """The upstream named a delay (seconds) in an answer with this status to an attempt sent at `sent`.

        Returns whether that is a cooldown of its own, not one more answer to attempts sent before the one in force.
        """
        if delay <= 0:
            return False
        new = self._begin(status, sent, now)
        if new and self.share < _NEVER:
            self.share, self.elsewhere = max(1.0, self.share // 2), True  # until the fleet says who was first
        if new:
            self._word_until = now + delay
        if now + delay > self.until:
            self.until, self.delay = now + delay, delay
            back = list(self._admitted)  # let go and not sent yet: held again, before all others
            self._admitted.clear()
            for waiter in back:
                self._vacate(waiter)
            self.queue = {**dict.fromkeys(back, now), **self.queue}
        for waiter in list(self.queue):
            waiter.retime(now)  # it asks again at once: who would wait for too long now is answered now
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

    def heed(self, delay: float, status: int, now: float) -> None:
        """Callers elsewhere were asked to wait, and have the first place, until this process gets its share."""
        if self.start(delay, status, now, now) and self.share < _NEVER:
            self.share = 0.0

    def allot(self, places: float, share: float, threshold: float, elsewhere: bool, now: float) -> None:
        """There are so many places in the fleet, of which this process may have its share. Up to `threshold` they
        double. `elsewhere`: whether another machine holds calls.
        """
        self.elsewhere = elsewhere
        self.places, self.share, self._threshold = max(1.0, places), share, threshold
        if now >= self.until:
            self._let_go(now)

    def go_alone(self, now: float) -> None:
        """Use all places in this process: there is no fleet any more."""
        self.allot(self.places, _NEVER, self._threshold, False, now)

    def claim(self, waiter: Waiter, due: float) -> bool:
        """The caller that met the word in force tries again at `due`. Whether that is in time for the first place."""
        if self._starter is None and due <= self.until:
            self._starter, self._own_until = waiter, self._word_until
            self._occupy(waiter, self.until)
        return waiter is self._starter

    # -- callers ----------------------------------------------------------------------------------------------------

    def is_over(self, now: float) -> bool:
        """Whether nobody is held."""
        return now >= self.until and not self.queue and not self.elsewhere

    def ask(self, waiter: Waiter, now: float) -> float:
        """Now: go; else when to ask again at the latest, infinity where it will be told."""
        if waiter in self._admitted:
            return now
        if waiter is self._starter and self.share >= 1 and (now >= self.until or self.until == self._own_until):
            self._starter = None  # it met the word in force itself
            self._admitted[waiter] = None
            self._occupy(waiter, now)
            return now
        if self.is_over(now):
            return now
        if waiter is self._starter:  # a longer word came: it is held like the others, before them
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
        """Whether it stands in the queue, or has a place."""
        return waiter in self.queue or waiter in self._taken or waiter in self._admitted

    def sent(self, waiter: Waiter) -> None:
        """Its attempt is being sent."""
        self._admitted.pop(waiter, None)

    def landed(self, waiter: Waiter, sent: float, now: float, *, well: bool) -> None:
        """Its attempt, sent at `sent`, has a head or an end; `well`: its answer is no failure of the upstream's.

        An attempt that was sent before the pushback in force describes the time before it: it adds no place.
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
        """Take the caller out of the queue: it sends nothing."""
        if waiter is self._starter:
            self._starter = None
        self.queue.pop(waiter, None)
        self._admitted.pop(waiter, None)
        self._vacate(waiter)
        self._let_go(now)

    def wait_of(self, waiter: Waiter, now: float) -> float:
        """Seconds until it will go at the pace so far, as far as can be told; infinity where nobody can tell.

        The first in the queue goes when the delay is over, the others as many round trips later as it takes until there
        are places for all that are before them. But an upstream that has served nobody since before the word in force
        is expected to go on like that for as long again (for half as long, by who is first and was held before); and
        what PATIENT_DELAYS says bounds it.
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
        """How many places this process would use if it had them: those that it has, and one for each call it holds."""
        return len(self._taken) + len(self.queue)

    def _let_go(self, now: float, asking: Waiter | None = None) -> None:
        """Give the places that are free to the first in the queue, and set the alarm of who is first after them."""
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
        """When the first in the queue may go, if nothing comes between."""
        if now < self.until:
            return self.until
        if not self._taken and self.share < _NEVER:
            return _NEVER  # the places are elsewhere: it gets its share
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
