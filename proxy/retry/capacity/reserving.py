"""The decision whether calls are sent at reserved times (`proxy.retry.capacity.reserved_times`).

It is taken where other clients, or chance, seem to be the reason for refusals, and capacity is not: after delays that
the upstream named, the first attempt is refused again and again, though nothing was sent before it, and others are
served. That does not happen to a client that is alone.

It does happen where a queue is full. Answers then take several times as long as usual, and no times are reserved: where
requests wait in a queue, the moment at which one was sent says nothing.

If moments that served before are refused about as often as new ones, chance is the reason, or the upstream counts
requests over time. Then no times are reserved for a while.
"""

from __future__ import annotations

from proxy.retry.capacity.own_gaps import OwnGaps
from proxy.retry.capacity.reserved_times import ReservedTimes

_NEVER = float("inf")

#: Times are reserved after a delay if this many of so many delays were followed by an attempt that was refused.
_VAIN, _OF = 3, 4
#: Seconds from the latest refusal for which calls are sent at reserved times, and for which they are used again.
_PACED, _KNOWN = 8.0, 120.0
#: Seconds after which times may be reserved again, if they were of no use: at first, and at most.
_AGAIN, _AGAIN_LONGEST = 60.0, 320.0
#: The number of periods after which reserved times are judged, and the part of the calls that come which is sent at
#: first.
_SETTLED, _AT_FIRST = 20, 0.8
#: The latest answers that are looked at, the part of them that is faster than the others, and how many times the usual
#: time that part takes where there is a queue.
_ANSWERS, _FASTEST, _SLOW = 16, 4, 3.0


class Reserving:
    """The decision of one lane (the queue of a group of callers). Times are seconds on the callers' clock.

    `times`: the reserved times. `gaps`: the times between this client's own attempts. `gives`: the share of the calls
    that was served before times were reserved.
    """

    __slots__ = (
        "_again", "_first", "_known_until", "_latest", "_next_at", "_opens_at", "_paced_until", "_ratios",
        "_vain", "gaps", "gives", "times",
    )  # fmt: skip

    def __init__(self) -> None:
        self.times = ReservedTimes()
        self.gaps = OwnGaps()
        self.gives = 1.0
        self._first: object = None  # the first attempt since the last delay was named,
        self._vain = False  # and whether the attempt that was refused last was this one
        self._ratios: list[float] = []  # the times that the latest answers took, as multiples of their usual times
        self._latest: list[bool] = []  # of the latest delays, whether the first attempt after it was refused
        self._opens_at = _NEVER
        self._paced_until = self._known_until = -_NEVER
        self._next_at = -_NEVER  # times are reserved no sooner,
        self._again = _AGAIN  # and the next time so many seconds later

    def is_on(self, now: float) -> bool:
        """Whether a delay now holds only the call that was refused, since times are reserved."""
        return now < self._known_until

    def paces(self, now: float) -> bool:
        """Whether all calls are now sent at reserved times, because one was refused lately."""
        return now < self._paced_until

    def sent(self, waiter: object, attempt: object, now: float) -> None:
        """Note that the attempt of this waiting call is being sent."""
        if self._first is None:
            self._first = attempt
        self.gaps.sent(attempt, now)
        self.times.sent(waiter, attempt)

    def served(self, attempt: object, ratio: float) -> None:
        """Note that an attempt was served. `ratio`: the time that the answer took, as a multiple of its route's usual
        time, 0 if that is not known.
        """
        self.gaps.served(attempt)
        self.times.served(attempt)
        self._ratios = [*self._ratios[1 - _ANSWERS :], ratio]

    def refused_held(self, attempt: object) -> None:
        """Note that an attempt was refused while delays hold all calls."""
        self._vain = attempt is self._first
        self.gaps.refused(attempt)

    def begins_at(self, at: float, may: bool, rate: float) -> bool:
        """Note that the upstream named a delay again, which is over at the time `at`. Returns whether times are
        reserved from then on. `may`: that may be, since no other process or machine has calls in this lane, and calls
        are served. `rate`: how many calls come in a second.
        """
        self._first, self._opens_at = None, _NEVER
        if not may or self.gaps.are_at_once(rate) or self._is_queue():
            return False
        self._latest = [*self._latest[1 - _OF :], self._vain]
        self._opens_at = at if sum(self._latest) >= _VAIN and at >= self._next_at else _NEVER
        return self._opens_at < _NEVER

    def opens(self, gives: float, now: float) -> bool:
        """Begin to reserve times if that is due. Returns whether it begins. `gives`: the share of the calls that was
        served before.
        """
        if now < self._opens_at:
            return False
        self._opens_at, self.gives = _NEVER, gives
        self._latest.clear()
        self.gaps.clear()
        self.times = ReservedTimes(_SETTLED, _AT_FIRST, now)
        self._paced_until, self._known_until = now + _PACED, now + _KNOWN
        return True

    def refused(self, attempt: object, now: float) -> bool:
        """Note that an attempt was refused while times are reserved. Returns whether chance has to be tested now, since
        reserved times are of no use at delays that the upstream names.
        """
        self.times.refused(attempt)
        self._paced_until, self._known_until = now + _PACED, now + _KNOWN
        if not self.times.are_vain:
            return False
        self._paced_until = self._known_until = -_NEVER
        self._next_at = now + self._again
        self._again = min(_AGAIN_LONGEST, 2.0 * self._again)
        return True

    def _is_queue(self) -> bool:
        """Whether requests wait in a queue of the upstream's: even the fastest of the latest answers were slow."""
        return bool(self._ratios) and sorted(self._ratios)[len(self._ratios) // _FASTEST] > _SLOW
