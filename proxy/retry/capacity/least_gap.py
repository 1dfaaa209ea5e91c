"""The least time between two attempts of a client at which an upstream without a queue serves the second one.

Such an upstream refuses an attempt that comes too soon after the one that it served before (as nginx's `limit_req` does
without `burst`). So a client that is alone there can see the limit itself: attempts that came sooner were refused, and
attempts that came later were served. The pace (attempts a second) need not be found by being refused again and again.

If other clients, or chance, refuse attempts, no such time separates the two: attempts are refused that came later than
others which were served. Then nothing is concluded from these times. How well they are separated is measured as in the
test of Mann and Whitney (1947): by the share of pairs, of a refused and a served attempt, of which the refused one came
sooner after the attempt before it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_NEVER = float("inf")

#: The most attempts of which it is remembered when they were sent; and the latest refused ones, and the latest served
#: ones, that are compared.
_REMEMBERED, _LATEST = 128, 24
#: The share of pairs from which on this client may be alone; the refused and served attempts that make it known; and by
#: how many standard deviations more pairs than half have to be so, which few attempts are by chance. They are compared
#: at each refusal, so that chance separates them now and then: it has to be so at so many refusals in a row.
_SEPARATE, _REFUSED, _SERVED, _SURE, _IN_A_ROW = 0.9, 4, 6, 2.8, 2
#: The multiple of the time that a refusal took, before which what was sent, and is not refused, is served.
_SOONER = 3.0
#: The ratio of two times up to which the limit is known closely: the least at which attempts were served, to the
#: longest at which one was refused. The part of the pace that the first of these times allows, at which calls then go.
_CLOSE, _BELOW = 1.5, 0.98
#: Seconds for which all this is remembered after the last refusal.
_KNOWN = 120.0
#: The numbers that stand before the lists in what processes share; and how many numbers there are at most.
_LISTS = 7
NUMBERS = _LISTS + _REMEMBERED + 2 * _LATEST


#: The part that a refusal takes from a pace that is known to be served, or from a lower one.
_LESS = 0.05


def settled(pace: float, refused: float) -> float:
    """The pace to send at, in attempts a second, after a refusal: `pace`, which the upstream is known to take; or, if
    an attempt was refused at no more than that, a little less than the refused pace, since requests take different
    times to arrive. `refused`: the pace of the sendings so far, 0 if they were not spaced.
    """
    return refused * (1.0 - _LESS) if 0.0 < refused <= pace else pace


class LeastGap:
    """The times between the attempts of one lane (the queue of a group of callers), in seconds. `pace`: the pace to
    send at, in attempts a second, if this client is alone; 0 if the limit is not known closely. `changes`: how often
    any of this has changed.
    """

    __slots__ = ("_at", "_judged", "_refused", "_row", "_sent", "_served", "changes", "pace")

    def __init__(self) -> None:
        self.changes = 0
        self._sent: list[float] = []  # when the latest attempts were sent that were not refused,
        self._judged = 0  # and how many of them are known to be served
        self._served: list[float] = []  # the times after which the latest attempts were served,
        self._refused: list[float] = []  # and those after which the latest ones were refused
        self._at = -_NEVER  # when one was refused last
        self._row = 0  # the latest refusals in a row at which refused ones came sooner than served ones
        self.pace = 0.0

    def begin(self) -> None:
        """Forget when attempts were sent, since others were sent meanwhile that are not known here."""
        self._sent.clear()
        self._judged = 0
        self.changes += 1

    def sent(self, now: float) -> None:
        """Note that an attempt is sent. Another process may have noted a later one already."""
        sent = self._sent
        number = len(sent) if not sent or now >= sent[-1] else bisect_right(sent, now)
        sent.insert(number, now)
        self._judged += number < self._judged
        if len(sent) > _REMEMBERED:
            del sent[0]
            self._judged = max(0, self._judged - 1)
        self.changes += 1

    def refused(self, sent: float, now: float) -> None:
        """Note that an attempt was refused. `sent`: the time at which it was sent. Refusals come sooner than answers:
        attempts that were sent before, and are not refused by now, are served.
        """
        if now - self._at > _KNOWN:
            self._served.clear()
            self._refused.clear()
        self._at = now
        self.changes += 1
        number = bisect_right(self._sent, sent) - 1  # the last one of that time
        is_known = number >= 0 and self._sent[number] == sent
        self._serve(bisect_left(self._sent, now - _SOONER * (now - sent)))
        if not is_known:
            return
        del self._sent[number]
        self._judged -= number < self._judged
        if number:
            self._refused = [*self._refused[1 - _LATEST :], sent - self._sent[number - 1]]
            self._judge()

    def _serve(self, upto: int) -> None:
        """Note that the attempts before this one were served, by its number among those that were sent."""
        first = max(1, self._judged)
        gaps = [self._sent[number] - self._sent[number - 1] for number in range(first, upto)]
        self._served = [*self._served, *gaps][-_LATEST:]
        if len(gaps) >= _LATEST:  # so many were served in a row that more is taken now than when others were refused
            middle = sorted(self._served)[_LATEST // 2]
            self._refused = [gap for gap in self._refused if gap < middle]
        self._judged = max(self._judged, upto)

    def _judge(self) -> None:
        """Compare the refused attempts with those that were served."""
        refused, served = sorted(self._refused), sorted(self._served)
        sooner = sum(len(served) - 0.5 * (bisect_left(served, gap) + bisect_right(served, gap)) for gap in refused)
        pairs = max(1, len(refused) * len(served))
        deviation = math.sqrt((len(refused) + len(served) + 1) / (12.0 * pairs))  # of the share, by chance
        is_separate = sooner / pairs >= max(_SEPARATE, min(1.0, 0.5 + _SURE * deviation))
        self._row = self._row + 1 if is_separate else 0
        longest = refused[-1 if len(refused) < _LATEST else -2]
        above = bisect_right(served, longest)
        least = served[above] if above < len(served) else _NEVER
        self.pace = _BELOW / least if self._is_separate and least <= _CLOSE * longest else 0.0

    @property
    def _is_separate(self) -> bool:
        """Whether refused attempts came sooner than served ones, at several refusals in a row."""
        return self._row >= _IN_A_ROW

    def is_alone(self, now: float) -> bool:
        """Whether this client's own attempts are known to be the reason for refusals."""
        known = len(self._refused) >= _REFUSED and len(self._served) >= _SERVED
        return known and self._is_separate and now - self._at <= _KNOWN

    # -- where processes share the lane -------------------------------------------------------------------------------

    def state(self) -> tuple[float, ...]:
        """All this as numbers, at most NUMBERS of them, for `restore` in another process."""
        counts = len(self._sent), len(self._served)
        return (
            *(self._at, self.pace, self._judged, self._row, *counts, len(self._refused)),
            *(*self._sent, *self._served, *self._refused),
        )

    def restore(self, state: Sequence[float]) -> None:
        """Take over the numbers that `state` returned in another process. More may follow them."""
        self._at, self.pace = state[:2]
        self._judged, self._row, sent, served, refused = map(int, state[2:_LISTS])
        ends = _LISTS + sent, _LISTS + sent + served
        self._sent, self._served = [*state[_LISTS : ends[0]]], [*state[ends[0] : ends[1]]]
        self._refused = [*state[ends[1] : ends[1] + refused]]
        self.changes += 1
