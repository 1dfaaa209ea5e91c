"""Evidence that an upstream lacks capacity: more attempts are refused than chance explains.

Contract, section 14, "The limit". The refusals among the latest few attempts are compared with the share of refusals in
the last minute. As long as no attempt is refused, each attempt costs only one addition to a counter. Where processes
share a lane, the attempts and refusals of all of them count, so that the limit begins after as many as in one process.
"""

from __future__ import annotations

import math

from proxy.retry.capacity.chances import tail
from proxy.retry.capacity.delays_by_chance import DelaysByChance
from proxy.retry.capacity.least_gap import LeastGap
from proxy.retry.capacity.loads import Loads
from proxy.retry.capacity.throughput import Throughput
from proxy.retry.capacity.traffic import Traffic

#: The number of latest attempts that are looked at, and how many of them must be refused for a limit to begin if none
#: was refused before.
LATEST, FEW = 10, 3
#: The probability of the latest refusals by chance below which they are want of capacity: before there is a limit, and
#: before the limit in force is cut.
BEGINS, CUTS = 1e-3, 0.02
#: The share of refusals that is called usual, at most, once the one that was learnt has turned out to be no chance.
_UNLEARNT = 0.05
#: Seconds over which the usual share of refusals is measured.
_MINUTE = 60.0
#: The most failures of a lane that are remembered for observers.
_KEPT = 16
#: The number of an attempt that is none: far below that of any other.
_NO_ATTEMPT = -1_000_000_000
_NEVER = float("inf")
_exp = math.exp


class Evidence:
    """How many attempts an upstream refused for want of capacity: the share among its latest attempts, and the usual
    share. Times are seconds on the callers' clock.

    `traffic`: the count of the attempts that have ended. `by_chance`: the test of whether the upstream names delays by
    chance, not because of its load; None before the first cooldown. `loads`: the counts of attempts at several loads;
    None until a limit has been given up. `throughput`: how many attempts the upstream serves a second; None until an
    answer that came quickly has named a delay. `least_gap`: the times between attempts at which they are served; None
    until one was refused quickly. `found`: the pace (attempts a second) and the share of refusals (0 to 1)
    for which the last limit was begun. `failures`: the latest attempts that failed, each with its number and how it
    ended, for observers.
    """

    __slots__ = (
        "_all", "_at", "_noted", "_numbers", "_refusals", "_refused", "_times", "_upto", "by_chance", "failures",
        "found", "least_gap", "loads", "throughput", "traffic",
    )  # fmt: skip

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.by_chance: DelaysByChance | None = None
        self.loads: Loads | None = None
        self.throughput: Throughput | None = None
        self.least_gap: LeastGap | None = None
        self.found = (0.0, 1.0)
        self.failures: list[tuple[int, str]] = []
        self._noted = -1  # the number of the last of these
        self._numbers = [_NO_ATTEMPT] * LATEST  # `ended` at each of the latest refusals, the last one at the end,
        self._times = [-_NEVER] * LATEST  # and when they were
        self._refusals = 0  # how many there were in all
        self._all = self._refused = 0.0  # counts of the last minute, fading
        self._at = 0.0  # when those counts were true,
        self._upto = 0  # and for how many `ended`

    @property
    def ended(self) -> int:
        """The number of attempts that have ended, in all processes that share the lane."""
        return self.traffic.all_ended()

    def note(self, number: int, how: str) -> None:
        """Note for observers how the attempt with this number failed: a status, or a kind of fault."""
        failures = self.failures
        if number == self._noted:
            return
        self._noted = number
        if len(failures) >= _KEPT:
            failures.pop(0)
        failures.append((number, how))

    def take_over_failures(self, failures: list[tuple[int, str]]) -> None:
        """Remember these failures, which another process has noted, beside those that were noted here."""
        self.failures = sorted({**dict(self.failures), **dict(failures)}.items())[-_KEPT:]

    def refused(self, how: str, now: float, counts: bool = True, quick: bool = False) -> bool:
        """Note, while there is no limit, that the attempt which ended last was refused. `how`: a status, or a kind of
        fault.

        Returns whether a limit is needed. There are two reasons for one: the counts at several loads show that the load
        causes the refusals; or so many of the latest attempts were refused that this is hardly chance. `counts`: the
        second reason may be used too, since no limit was given up lately. `quick`: the attempt was refused sooner than
        others are answered.
        """
        numbers, times, total = self._numbers, self._times, self.traffic.all_ended()
        ended = max(total, numbers[-1] + 1)  # one of two that were refused together ended first
        self.note(ended, how)
        if self.refused_at_loads(total, now, quick):
            return True
        if self.is_alone(now):
            self.found = self.pace, self.latest_share(total)
            return True
        if not counts:
            return False
        self._count(total, now, 1)
        del numbers[0], times[0]
        numbers.append(ended)
        times.append(now)
        oldest = ended - LATEST
        if numbers[-FEW] <= oldest:
            return False
        recent = 0
        for number in numbers:
            recent += number > oldest
        if tail(min(ended, LATEST), recent, self.share(recent, LATEST)) >= BEGINS:
            return False
        self.found = self.pace, self.latest_share(ended)
        return True

    def limit_given_up(self, now: float) -> None:
        """Count attempts from now on, to be compared with those of the trial by which the limit has just been given up
        (`loads`).
        """
        if self.loads is not None:
            self.loads.gave_up(self.traffic.all_ended(), self._refusals, now, self.traffic.flying)

    def refused_at_loads(self, ended: int, now: float, quick: bool = False) -> bool:
        """Note that the attempt which ended last was refused, if attempts are being counted at several loads. `ended`:
        how many attempts have ended in all. `quick`: the attempt was refused sooner than others are answered. Returns
        whether these counts show by now that the load causes the refusals.
        """
        loads = self.loads
        self._refusals += 1
        if loads is None or not loads.refused(ended, self._refusals, now, self.traffic.flying if quick else 0):
            return False
        self.unlearn()
        self.found = loads.latest
        return True

    # -- answers that name a delay ------------------------------------------------------------------------------------

    def cooldown(self, delay: float, since: float, now: float, may_reserve: bool = False) -> None:
        """Note that the upstream has named a delay (seconds) again, while calls wait. It may then be tested whether it
        pays to hold calls for such delays. `since`: the time since which the first of the waiting calls waits.
        `may_reserve`: calls may be sent at reserved times.
        """
        by_chance, throughput = self.by_chance, self.throughput
        if by_chance is not None:
            counts = throughput is not None and throughput.counts(now)
            by_chance.cooldown(delay, since, now, may_reserve=may_reserve and not counts)

    def delays_by_chance(self, now: float) -> bool:
        """Whether a delay holds only the call that was refused, because the upstream names delays by chance, or because
        this is being tested.
        """
        by_chance = self.by_chance
        return by_chance is not None and by_chance.holds_none(now)

    def delay_holds(self, attempt: object, now: float) -> None:
        """Note that this attempt was refused by an answer that names a delay, for which calls are held."""
        if self.by_chance is None:
            self.by_chance = DelaysByChance()
        self.by_chance.refused_held(attempt, now)

    @property
    def was_tested(self) -> bool:
        """Whether the attempt that was refused last was sent to test whether refusals are chance (`delays_by_chance`).
        Its refusal then says nothing about the limit.
        """
        return self.by_chance is not None and self.by_chance.was_tested

    # -- times between attempts ---------------------------------------------------------------------------------------

    def refused_quickly(self, sent: float, now: float) -> None:
        """Note that an answer refused an attempt, sooner than a request that is served is answered. `sent`: the time at
        which the attempt was sent.
        """
        if self.least_gap is None:
            self.least_gap = LeastGap()
        self.least_gap.refused(sent, now)

    def is_alone(self, now: float) -> bool:
        """Whether this client's own attempts are known to be the reason for refusals, at an upstream without a queue
        that does not count requests over time.
        """
        if self.throughput is not None and self.throughput.counts(now):
            return False
        return self.least_gap is not None and self.least_gap.is_alone(now)

    def known_pace(self, now: float) -> float:
        """The pace (attempts a second) that the upstream is known to take, since this client is alone; 0 if none is
        known.
        """
        return self.least_gap.pace if self.least_gap is not None and self.is_alone(now) else 0.0

    def reserves_times(self, now: float) -> bool:
        """Whether calls are sent at reserved times, or would be if one were refused."""
        return self.by_chance is not None and self.by_chance.reserving.is_on(now)

    def latest_share(self, ended: int) -> float:
        """The share (0 to 1) of refused attempts among the latest of `ended` attempts, counted from the attempt after
        the first of the latest refusals up to the last refusal. Attempts before these are not counted, since they may
        have been made while all was well. If only few of the latest attempts were refused, the share is 1, so that
        nothing is concluded from it.
        """
        oldest = ended - LATEST
        recent = [number for number in self._numbers if number > oldest]
        return 1.0 if len(recent) < FEW else (len(recent) - 1) / max(1, recent[-1] - recent[0])

    def latest_row(self, now: float) -> tuple[int, float]:
        """How many of the latest attempts were refused in a row while there was no limit, up to one that is refused
        now, and the time at which the first of these was refused.
        """
        row, since, number = 0, now, self._numbers[-1]
        if self._times[-1] != now:
            return row, since
        for ended, at in zip(reversed(self._numbers), reversed(self._times), strict=True):
            if ended != number:
                break
            row, since, number = row + 1, at, number - 1
        return row, since

    def refused_under_limit(self, now: float) -> None:
        """Note that the attempt which ended last was refused under a limit that has held no call so far. Such a refusal
        counts for the usual share, since the limit has changed nothing.
        """
        self._count(self.traffic.all_ended(), now, 1)

    @property
    def pace(self) -> float:
        """The number of attempts a second that ended between the first and the last of the latest refusals; 0 if there
        was only one.
        """
        known = LATEST - self._numbers.count(_NO_ATTEMPT)
        if known < 2:
            return 0.0
        return (self._numbers[-1] - self._numbers[-known]) / max(self._times[-1] - self._times[-known], 0.05)

    def share(self, refused: int = 0, ended: int = 0) -> float:
        """The usual share of refusals, from 0 to 1. The latest `ended` attempts, `refused` of which were refused, are
        left out, so that they can be compared with the usual share.
        """
        return max(0.0, self._refused - refused + 0.1) / max(10.0, self._all - ended + 10.0)

    def skip(self, now: float) -> None:
        """Leave the attempts that have ended and are not counted yet out of the usual share of refusals, because a
        limit was in force.
        """
        self._upto = self.traffic.all_ended()
        self._count(self._upto, now, 0)

    def learn(self, share: float, now: float) -> None:
        """Take this share of refusals (0 to 1) for the usual one: a trial has shown that as many attempts fail at half
        the load, which means that they fail by chance.
        """
        self.skip(now)
        self._numbers, self._times = [_NO_ATTEMPT] * LATEST, [-_NEVER] * LATEST
        self._all = max(self._all, 40.0)
        self._refused = max(self._refused, share * self._all)

    def unlearn(self) -> None:
        """Forget the share of refusals that was taken for the usual one, because it turned out not to be chance."""
        self._refused = min(self._refused, _UNLEARNT * self._all)

    def _count(self, ended: int, now: float, refused: int) -> None:
        """Let the counts of the last minute fade, and add the attempts that have ended since the last time. `ended`:
        how many have ended in all. `refused`: how many of these were refused since then.
        """
        faded = _exp((self._at - now) / _MINUTE) if now > self._at else 1.0
        self._all = self._all * faded + (ended - self._upto)
        self._refused = self._refused * faded + refused
        self._at, self._upto = now, ended
