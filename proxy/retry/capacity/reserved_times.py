"""Reserved times: the calls of one lane (the queue of a group of callers) are sent at the moments of each second at
which calls were served in the second before.

Where an upstream has no queue, several clients of it refuse each other's calls, whatever the pace of each: an attempt
is refused if another client's attempt came just before it. A slower pace only leaves more to the others. But attempts
that were served came at moments at which no other client sends. So each client sends at these moments again, one period
later, and tries new ones only for calls for which it has no moment. After some periods the clients' moments are apart,
like the slots that stations reserve in a radio channel (Crowther et al., A system for broadcast communication:
Reservation-ALOHA, 1973). Each moment is kept by itself: evenly spaced moments of clients whose paces differ a little
would meet again and again.
"""

from __future__ import annotations

import heapq
import math

from proxy.retry.capacity.fading_share import FadingShare

#: The period, in seconds; and the seconds after its moment for which an attempt may still be sent, since an alarm may
#: be late.
_PERIOD, _LATE = 1.0, 0.005
#: The refusals in a row after which a moment is not used any more, if it has served before; requests may arrive late by
#: chance.
_STRIKES = 2
#: The periods in a row in which a moment is not used after which it is forgotten.
_UNUSED = 4
#: The most that is sent in a period, as a multiple of the kept moments, if that is more than the part that is due at
#: first; and half an attempt more, so that clients with few calls try new moments, too.
_MORE, _AND = 1.25, 0.5
#: The share of refusals at kept moments from which on a multiple of what was served is sent, not what is kept; and that
#: multiple.
_MANY, _OF_SERVED = 0.4, 1.1
#: The attempts at kept moments, and at new ones, that are compared at least; and the part of the share refused at new
#: moments from which on as many are refused at kept ones: in general, and when half of the periods are over.
_KEPT, _NEW, _AS_MANY, _SURELY = 20, 10, 0.7, 0.95
#: The share of refusals at kept moments from which on the number of periods does not matter.
_MOST = 0.8
#: Attempts that are enough to see that nearly all are refused, and the share that is nearly all.
_FEW, _ALL = 10, 0.9
#: The most attempts whose ends are waited for.
_UNDER_WAY = 2000
#: The constants of a linear congruential generator with the modulus 2^64 (Knuth, MMIX).
_TIMES, _PLUS, _MODULUS = 6364136223846793005, 1442695040888963407, 2**64


class Moment:
    """A moment of each period. `at`: the next time at which it comes (seconds). `uses`: how many attempts were sent at
    it. `strikes`: how many of the latest of these were refused in a row. `unused`: the latest periods in which no call
    was sent at it. `is_gone`: it is not used any more.
    """

    __slots__ = ("at", "is_gone", "strikes", "unused", "uses")

    def __init__(self, at: float) -> None:
        self.at = at
        self.uses = self.strikes = self.unused = 0
        self.is_gone = False


class MomentCounts:
    """The attempts at some moments in one period. `sent`: how many were sent. `refused`: how many were refused."""

    __slots__ = ("refused", "sent")

    def __init__(self) -> None:
        self.sent = self.refused = 0

    def move_to(self, share: FadingShare) -> int:
        """Add these attempts to `share`, and count from 0 again. Returns how many of them were not refused."""
        served = self.sent - self.refused
        share.add(self.sent, self.refused)
        self.sent = self.refused = 0
        return served


class ReservedTimes:
    """The reserved times of one lane, from the time `now` on. Times are seconds on the callers' clock. `settled`: the
    number of periods after which it is judged whether they are of use. `at_first`: the part of the calls that come
    which is sent at least.
    """

    __slots__ = (
        "_at_first", "_draw", "_given", "_in_kept", "_in_new", "_kept", "_moments", "_number", "_of_kept", "_of_new",
        "_periods", "_planned_at", "_sent", "_settled",
    )  # fmt: skip

    def __init__(self, settled: int = 0, at_first: float = 0.0, now: float = 0.0) -> None:
        self._settled, self._at_first = settled, at_first
        self._moments: list[tuple[float, int, Moment]] = []  # a heap, by the time of the next use
        self._number = 0  # of the moment that was added last
        self._kept = 0  # how many moments are kept, since attempts were sent at them
        self._planned_at = now  # when new moments are chosen next
        self._periods = 0  # how often they were chosen
        self._given: dict[object, Moment] = {}  # the moments of calls that are being sent
        self._sent: dict[object, tuple[Moment, bool]] = {}  # those of attempts, and whether they were kept ones
        self._of_kept, self._of_new = FadingShare(), FadingShare()
        self._in_kept, self._in_new = MomentCounts(), MomentCounts()  # of this period
        self._draw = int(now * 1e6)

    def plan(self, now: float, waiting: int, rate: float) -> float:
        """The time at which the next attempt may be sent. `waiting`: how many calls wait. `rate`: how many calls come
        in a second.
        """
        moments = self._moments
        while moments and (moments[0][2].is_gone or moments[0][0] < now - _LATE):
            moment = heapq.heappop(moments)[2]
            if moment.is_gone:
                continue
            moment.unused += 1
            if moment.unused > _UNUSED or not moment.uses:
                self._drop(moment)
                continue
            moment.at += _PERIOD * math.ceil((now - _LATE - moment.at) / _PERIOD)
            self._add(moment)
        if now >= self._planned_at:
            self._choose(now, waiting, rate)
        return min(moments[0][0], self._planned_at) if moments else self._planned_at

    def _choose(self, now: float, waiting: int, rate: float) -> None:
        """Choose the new moments of the next period. The arguments are those of `plan`."""
        served = self._in_kept.move_to(self._of_kept) + self._in_new.move_to(self._of_new)
        self._periods += 1
        self._planned_at = now + _PERIOD
        most = _OF_SERVED * served if self._of_kept.share > _MANY else _MORE * self._kept
        most = max(most + _AND, self._at_first * rate * _PERIOD)
        wanted = min(waiting + rate * _PERIOD, most) - self._kept
        for _ in range(math.floor(wanted + self._random())):
            self._add(Moment(now + self._random() * _PERIOD))

    def take(self, waiter: object, now: float) -> None:
        """Note that this waiting call is to be sent now, at the moment that has come."""
        moments = self._moments
        if not moments or moments[0][0] > now:
            return
        moment = heapq.heappop(moments)[2]
        moment.at += _PERIOD
        moment.unused = 0
        self._add(moment)
        self._given[waiter] = moment

    def sent(self, waiter: object, attempt: object) -> None:
        """Note that the attempt of this waiting call is being sent."""
        moment = self._given.pop(waiter, None)
        if moment is None or moment.is_gone:
            return
        was_kept = moment.uses > 0
        if was_kept:
            self._in_kept.sent += 1
        else:
            self._in_new.sent += 1
            self._kept += 1
        moment.uses += 1
        self._sent[attempt] = moment, was_kept
        if len(self._sent) > _UNDER_WAY:
            del self._sent[next(iter(self._sent))]

    def left(self, waiter: object) -> None:
        """Note that this waiting call is not sent after all."""
        self._given.pop(waiter, None)

    def served(self, attempt: object) -> None:
        """Note that an attempt was served."""
        found = self._sent.pop(attempt, None)
        if found is not None:
            found[0].strikes = 0

    def refused(self, attempt: object) -> None:
        """Note that an attempt was refused."""
        found = self._sent.pop(attempt, None)
        if found is None:
            return
        moment, was_kept = found
        (self._in_kept if was_kept else self._in_new).refused += 1
        moment.strikes += 1
        if not moment.is_gone and (not was_kept or moment.strikes >= _STRIKES):
            self._drop(moment)

    @property
    def are_vain(self) -> bool:
        """Whether reserved times are of no use: attempts at kept moments are refused about as often as those at new
        ones, or nearly all are refused.
        """
        kept, new = self._of_kept, self._of_new
        if kept.count + new.count >= _FEW and kept.refused + new.refused >= _ALL * (kept.count + new.count):
            return True
        if kept.count < _KEPT or new.count < _NEW:
            return False
        if self._periods >= self._settled or kept.share >= _MOST:
            return kept.share > _AS_MANY * new.share
        return 2 * self._periods >= self._settled and kept.share > _SURELY * new.share

    def _drop(self, moment: Moment) -> None:
        """Use a moment no more."""
        moment.is_gone = True
        if moment.uses:
            self._kept -= 1

    def _add(self, moment: Moment) -> None:
        """Put a moment among those that are to come."""
        self._number += 1
        heapq.heappush(self._moments, (moment.at, self._number, moment))

    def _random(self) -> float:
        """A number from 0 to 1, below 1. Clients that begin at different times get different ones."""
        self._draw = (self._draw * _TIMES + _PLUS) % _MODULUS
        return self._draw / _MODULUS
