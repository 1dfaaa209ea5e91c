"""The limit on the attempts under way in one lane, while the upstream has less capacity than is asked of it.

Contract, section 14. While all is well there is no limit. It begins at half of what was under way (RFC 5681, section
3.1: multiplicative decrease), is halved by further refusals, once for all attempts that were sent before the last cut,
and is cut where even the fastest answers take several times as long as when all was well: then calls wait in the
upstream's queue instead of here (Brakmo and Peterson, TCP Vegas, 1995). Other answers make it grow, by one each up to a
threshold, and by one a round trip above it.

Where an upstream refuses without a queue, the number under way says nothing. Then sendings are spaced in time as well:
a little below the pace that was refused last, from where the pace returns to that one along a cubic curve (RFC 9438,
section 4.2).

What fails by chance is no want of capacity. If, at half of what was under way, as many attempts fail as before, and
answers come as fast as usual, the limit is given up, and not tried again for 5 s, then 10 s, up to a minute.
"""

from __future__ import annotations

import math

from proxy.retry.evidence import CUTS, Evidence, tail
from proxy.retry.traffic import Traffic
from proxy.retry.trial import FAST, Trial

_NEVER = float("inf")

#: The weight of the newest round trip in their mean (RFC 6298, section 2.3).
_NEWEST = 0.125
#: An answer came much slower than usual above this multiple of the usual time.
SLOW = 3.5
#: The most that slow answers take away at once.
_SLOW_CUT = 0.7
#: So many answers are waited for before the fastest of them counts as slow.
_FASTEST_OF = 4
#: At half the limit, answers that take this part of what they took still count as as slow.
_AS_SLOW = 0.75
#: Seconds for which answers stay slow before that is called usual: a queue in the upstream has gone by then.
_SLOW_FOR = 5.0
#: Seconds for which a limit that was given up is not tried again: at first, and at most.
_GIVEN_UP, _GIVEN_UP_LONGEST = 5.0, 60.0
#: Seconds without a held call after which a limit that does not bind is over; and one with a pace.
_UNBOUND, _UNBOUND_PACED = 2.0, 5.0
#: The part that a refusal takes from the pace; the part of the pace that is left if hardly an attempt was served since
#: the last cut; and the seconds of full use until it is reached again.
_PACE_CUT, _PACE_CUT_HARD, _PACE_CUT_SLOW, _PACE_BACK = 0.15, 0.7, 0.5, 6.0
#: Two refused paces are the same if they differ by at most this part. Each time that the same pace is refused, it is
#: surer that this is the upstream's limit: it is approached half as closely, and half as fast, up to this.
_PACE_SAME, _PACE_SUREST = 0.1, 16.0
#: How fast the pace grows beyond the one that was refused: by this part a second.
_PACE_GROWTH = 0.05
_HARDLY = 5
#: Seconds since the last served attempt for which the upstream counts as one that serves.
_SERVES = 5.0
#: The slowest pace, in sendings a second.
_SLOWEST = 0.2


class Limit:
    """The limit of one lane. `most`: how many attempts may be under way at a time, infinity while there is no limit;
    fractions do not count yet. `next_at`: when the next attempt may be sent, if sendings are spaced. Times are seconds
    on the callers' clock.
    """

    __slots__ = (
        "_base", "_cut_at", "_fastest", "_gap", "_given_up_for", "_given_up_until", "_latest", "_pace_sure",
        "_pace_top", "_pace_used", "_refused", "_served", "_served_at", "_slow",
        "_slow_most", "_slow_since", "_trial", "begun", "evidence", "grown", "held_at", "most", "next_at", "pace",
        "part", "returns", "round_trip", "threshold", "was_chance",
    )  # fmt: skip

    def __init__(self, traffic: Traffic) -> None:
        self.evidence = Evidence(traffic)
        self.most = _NEVER
        self.was_chance = False  # the last limit was given up, since attempts fail by chance
        self.returns = False  # held calls return from a cooldown, and nothing has cut the limit since
        self.grown = 0.0  # the places that answers have added in all
        self.held_at = -_NEVER  # when the limit held a call last
        self.round_trip = 0.0  # the mean round trip; 0 if none is known
        self.part = 1.0  # the part of the limit's places that this machine uses, if machines share them
        self.pace = 0.0  # sendings a second of this machine; 0 if they are not spaced
        self.next_at = -_NEVER
        self.threshold = _NEVER
        self.begun = -_NEVER  # when the limit began
        self._cut_at = -_NEVER  # attempts that were sent before say nothing about the limit in force
        self._fastest = _NEVER  # the least multiple of the usual time, of the `_latest` answers since it was looked at
        self._latest = 0
        self._gap = 0.0  # the mean time between two served attempts; 0 if none is known
        self._served_at = -_NEVER
        self._served = self._refused = 0  # attempts sent since the last cut that have ended so
        self._pace_top = 0.0  # the pace that was refused last
        self._pace_sure = 1.0  # how sure it is that this is the upstream's limit
        self._pace_used = 0.0  # the seconds for which the pace was in use since it was cut
        self._given_up_until = -_NEVER
        self._given_up_for = 0.0
        self._base = 1.0  # the multiple of the usual time that is usual for now
        self._slow = 0.0  # the multiple at which answers were called slow first, when the limit was `_slow_most`
        self._slow_most = self._slow_since = 0.0
        self._trial = Trial()

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.most < _NEVER

    @property
    def has_evidence(self) -> bool:
        """Whether the limit began because attempts were refused, not because held calls return."""
        return self._trial.is_on

    def return_slowly(self, now: float, cooldown: bool = True) -> None:
        """Begin with one place, since calls return that were held by a cooldown or an outage."""
        self._begin(1.0, _NEVER, now)
        self.returns = cooldown

    def halve(self, now: float) -> None:
        """Halve the limit, since the upstream asked to wait again."""
        self.most = self.threshold = max(1.0, self.most // 2)
        self._cut(now)

    def begin_elsewhere(self, most: float, threshold: float, now: float) -> None:
        """Begin with the limit that another machine has found: its places, and up to how many they double."""
        self._begin(most, threshold, now)

    def end(self, now: float) -> None:
        """End the limit."""
        self.most, self.pace, self.part = _NEVER, 0.0, 1.0
        self._trial.end()
        self.evidence.skip(now)

    def is_over(self, in_use: int, now: float) -> bool:
        """Whether the limit has held no call for a while, and does not bind."""
        quiet = _UNBOUND_PACED if self.pace else _UNBOUND
        return self.is_on and in_use < self.most / 2 and now - self.held_at >= quiet

    def add_under_way(self, more: int) -> None:
        """Note that so many more attempts than had been counted were under way when the limit began: those of another
        process of this machine.
        """
        if self._cut_at == self.begun:
            self.most += more / 2
            self.threshold += more / 2

    def _begin(self, most: float, threshold: float, now: float) -> None:
        self.most, self.threshold = most, threshold
        self.returns = self.was_chance = False
        self._base, self._slow = 1.0, 0.0
        self._trial.end()
        self._gap, self._served_at = 0.0, -_NEVER
        self.held_at = self.begun = now
        self.pace, self.next_at = 0.0, -_NEVER
        self._cut(now)

    def _cut(self, now: float) -> None:
        self._cut_at = now
        self._fastest, self._latest = _NEVER, 0
        self._served = self._refused = 0

    # -- how attempts end -------------------------------------------------------------------------------------------

    def served(self, sent: float, now: float, ratio: float) -> None:
        """Note that an attempt sent at `sent` was answered in `ratio` times the usual time (0 if that is not known)."""
        self._trial.count(ratio, before=sent < self.begun, refused=False)
        if sent < self._cut_at:
            return
        trip = now - sent
        if self._served_at > -_NEVER:
            gap = now - self._served_at
            self._gap += _NEWEST * (gap - self._gap) if self._gap else gap
        self._served_at = now
        self.round_trip += _NEWEST * (trip - self.round_trip) if self.round_trip else trip
        self._served += 1
        self._latest += 1
        self._fastest = min(self._fastest, ratio)
        if self._latest >= _FASTEST_OF:
            fastest, self._fastest, self._latest = self._fastest, _NEVER, 0
            if not self._trial.is_careful and self._is_slow(fastest, now):
                self.most = self.threshold = max(1.0, self.most * max(_SLOW_CUT, SLOW * self._base / fastest))
                self._cut(now)
                return
        if ratio <= FAST * self._base:
            more = 1.0 if self.most < self.threshold else 1.0 / self.most
            self.most += more
            self.grown += more

    def _is_slow(self, fastest: float, now: float) -> bool:
        """Whether the fastest of the latest answers says that calls wait in the upstream's queue. Answers that stay as
        slow at half the limit do not: they are slow for another reason, and so they are the usual ones for now.
        """
        if fastest < self._base:
            self._base = max(1.0, fastest)
        if fastest <= SLOW * self._base:
            return False
        if not self._slow or fastest < _AS_SLOW * self._slow:
            self._slow, self._slow_most, self._slow_since = fastest, self.most, now
        elif now - self._slow_since >= _SLOW_FOR and self.most <= self._slow_most / 2:
            self._base, self._slow = fastest, 0.0
            return False
        return True

    def refused(self, sent: float, now: float, under_way: int, quick: bool, silent: bool = False) -> None:
        """Note that an attempt sent at `sent` was refused for want of capacity, while `under_way` attempts were under
        way. `quick`: by an answer, sooner than requests are served; `silent`: by no answer.
        """
        if not self.is_on:
            if now >= self._given_up_until and self.evidence.refused(now):
                self._begin(max(1.0, under_way / 2), max(1.0, under_way / 2), now)
                self._trial.begin(self.evidence.pace, now)
            return
        self._trial.count(_NEVER, before=sent < self.begun, refused=True, silent=silent)
        if sent < self._cut_at:
            return
        self._refused += 1
        if self._trial.is_careful:
            return
        if tail(self._served + self._refused, self._refused, self.evidence.share()) >= CUTS:
            return
        if (quick and self._answers_fast()) or (self.most < 2.0 and not quick):
            self._slow_down(now, quick=quick)
        self.most = self.threshold = max(1.0, self.most / 2)
        self._cut(now)

    def asked_to_wait(self, sent: float, now: float, quick: bool) -> None:
        """Note that an attempt sent at `sent` was refused with a delay, after which the limit is halved or begins
        again (`halve`, `return_slowly`). Sendings are spaced if the upstream refuses without a queue.
        """
        if self.is_on and sent >= self._cut_at and quick and self._answers_fast():
            self._slow_down(now, quick=quick)

    def _answers_fast(self) -> bool:
        """Whether served answers came as fast as usual lately, or none came: there is no queue."""
        return self._fastest == _NEVER or self._fastest <= FAST * self._base

    def judge(self, now: float) -> bool:
        """Give the limit up if it turns out that attempts fail by chance. Returns whether it was given up."""
        share = self._trial.chance(now)
        if share:
            self._give_up(share, now)
        return share > 0.0

    def _give_up(self, share: float, now: float) -> None:
        self._given_up_for = min(_GIVEN_UP_LONGEST, self._given_up_for * 2 or _GIVEN_UP)
        self._given_up_until, self.was_chance = now + self._given_up_for, True
        self.end(now)
        self.evidence.learn(share, now)

    # -- pace -------------------------------------------------------------------------------------------------------

    def _slow_down(self, now: float, quick: bool) -> None:
        """Space sendings, or space them more; but an upstream that serves nothing is not asked more slowly for that."""
        if not self._served if quick else now - self._served_at > _SERVES:
            return
        pace = self.pace or self.most * self.part / max(self.round_trip, 0.001)
        if self._served >= _HARDLY:
            is_same = abs(pace - self._pace_top) <= _PACE_SAME * pace
            self._pace_sure = min(_PACE_SUREST, 2.0 * self._pace_sure) if is_same else 1.0
            self._pace_top = pace
            self.pace, self._pace_used = pace * (1.0 - _PACE_CUT / self._pace_sure), 0.0
        else:  # the pace that the upstream can take is far from known: approach it faster
            self._pace_sure = 1.0
            self._pace_top = self.pace = pace * (_PACE_CUT_HARD if quick else _PACE_CUT_SLOW)
            self._pace_used = _PACE_BACK
        self.pace = max(_SLOWEST, self.pace)

    def _paced(self) -> float:
        """The pace by now, from the seconds for which it was in use since it was cut: `_PACE_CUT` of the refused pace
        at first, the same pace `_PACE_BACK` seconds later, and then a growing one.
        """
        back = _PACE_BACK * self._pace_sure
        left = 1.0 - self._pace_used / back
        if left > 0.0:
            return max(_SLOWEST, self._pace_top * (1.0 - _PACE_CUT / self._pace_sure * left**3))
        return max(_SLOWEST, self._pace_top * math.exp(-left * back * _PACE_GROWTH / self._pace_sure))

    def sent(self, now: float, binds: bool) -> None:
        """Note that an attempt is sent, so that the next one follows at the pace. `binds`: more calls wait."""
        if self.pace:
            if binds:
                self._pace_used += 1.0 / self.pace
                self.pace = self._paced()
            self.next_at = max(now, self.next_at) + 1.0 / self.pace

    def set(self, most: float, threshold: float) -> None:
        """Set the number of places, and the number up to which it doubles with each round trip."""
        self.most, self.threshold = most, threshold

    def wait_for(self, ahead: int, now: float, share: float = _NEVER) -> float:
        """An estimate of the seconds until a call with `ahead` calls before it in the queue is sent, if this process
        may use `share` of the places.
        """
        trip = self.round_trip
        most = max(1.0, min(self.most, share))
        wait = (
            math.log2(1 + ahead / most) * trip if most < self.threshold else ahead * trip / most
        )  # fewer than one a round trip is not known
        if self.pace:
            wait = max(wait, ahead / self.pace)
        return min(wait, ahead * self._gap) if self._gap else wait
