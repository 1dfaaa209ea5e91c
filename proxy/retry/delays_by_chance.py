"""The test of whether an upstream names delays by chance: it refuses a part of the attempts, however few are sent.

Contract, section 5: after a delay that an upstream named, held calls go by a slow start. Where attempts are refused by
chance, that serves hardly any call: the next refusal comes before the places have grown, and holds all calls again. So
after some cooldowns in a row, each after few served attempts, several calls return at once: later, if the first attempt
after each delay was served, since an upstream that only lacks capacity serves it. Of the calls that return at once, an
upstream without capacity serves the first and refuses the others. If some are served that were sent after one that is
refused, capacity was not the reason. From then on held calls return together, until most of them are refused again.

Attempts that are sent at once may arrive in any order. An upstream whose quota is used up serves some of them then that
were sent after a refused one, too. So most of a test has to be served: a quota of which that much is left is not used
up. And a mistake makes the next tests rarer, since calls were sent for it that the upstream refused.
"""

from __future__ import annotations

_NEVER = float("inf")

#: A cooldown follows few served attempts if they are fewer than so many since the cooldown before.
_MANY = 10
#: The cooldowns in a row after which the test is made at first, and at most: they double with each test. They are so
#: many times more while no first attempt after a delay was refused, since an upstream that asks for long delays loses
#: much by a test that shows nothing.
_COOLDOWNS, _COOLDOWNS_MOST, _UNLESS_FIRST = 3, 48, 2
#: The calls that return at once in a test, at most and at least. They are no more than came during the delay: an
#: upstream that takes a call or two a second would refuse most of a longer test.
AT_ONCE, _AT_LEAST = 8, 5
#: Attempts are sent at once if they follow the first within so many seconds; and how many of them are looked at.
_AT_ONCE_WITHIN, _LOOKED_AT = 0.01, 64
#: How many must be served after one that is refused, and which share of all that were sent at once, for refusals to be
#: chance.
_SERVED, _MOSTLY = 3, 0.6
#: How many must be refused for refusals to be no chance any more, while they are more than a share of all that were
#: sent at once, or less than a share of those that follow the first of them are not refused.
_REFUSED, _MOST, _FEW = 8, 2 / 3, 0.2
#: How many calls return at once as soon as refusals are known to be chance. They are twice as many after each time that
#: most were served, so that a mistake sends few; all, if as many as are looked at would do.
_TOGETHER = 2 * AT_ONCE
#: Seconds for which the ends of a test's attempts are waited for at most.
_LONGEST = 30.0
#: Seconds for which it is remembered that delays are named by chance.
_KNOWN = 120.0
#: Seconds after which a mistake is forgotten.
_FORGOTTEN = 600.0


class Batch:
    """The attempts that were sent at once, in order, and how each of them ended. `is_test`: they are a test that was
    not read yet; `begun`: when the first of them was sent (seconds on the callers' clock), minus infinity if none is
    taken up.
    """

    __slots__ = ("_ends", "_numbers", "begun", "is_test")

    def __init__(self, *, is_test: bool, begun: float = -_NEVER) -> None:
        self.is_test, self.begun = is_test, begun
        self._numbers: dict[object, int] = {}  # of the attempts that are under way
        self._ends: list[str] = []  # how each attempt ended: "served", "refused", "" while that is not known

    def close(self) -> None:
        """Take up no further attempts. The ends of those that were sent are still noted, but they are no test."""
        self.begun, self.is_test = -_NEVER, False

    def sent(self, attempt: object, now: float) -> None:
        """Take up an attempt that is sent, if it follows the first one at once."""
        if now - self.begun <= _AT_ONCE_WITHIN and len(self._ends) < _LOOKED_AT:
            self._numbers[attempt] = len(self._ends)
            self._ends.append("")

    def ended(self, attempt: object, *, refused: bool) -> bool:
        """Note how an attempt ended. Returns whether it is one of these attempts."""
        number = self._numbers.pop(attempt, None)
        if number is None:
            return False
        self._ends[number] = "refused" if refused else "served"
        return True

    def since_refused(self) -> list[str]:
        """The ends of the attempts from the first one that was refused on."""
        return self._ends[self._ends.index("refused") :] if "refused" in self._ends else []

    @property
    def is_mostly_served(self) -> bool:
        """Whether most of the attempts have been served; also True if there are none."""
        return self._ends.count("served") >= _MOSTLY * len(self._ends)

    @property
    def is_mostly_refused(self) -> bool:
        """Whether so many attempts have been refused that it is hardly chance."""
        since = self.since_refused()
        refused = since.count("refused")
        is_most = len(since) - refused < _FEW * len(since) or refused > _MOST * len(self._ends)
        return refused >= _REFUSED and is_most

    def __len__(self) -> int:
        return len(self._ends)


class TestSchedule:
    """After how many cooldowns in a row, each after few served attempts, the next test is made."""

    __slots__ = ("_cooldowns", "_first_refused", "_least", "_mistaken_at", "_serves", "_wanted")

    def __init__(self) -> None:
        self._cooldowns = 0
        self._first_refused = False  # in a cooldown of these, the first attempt after the delay before was refused
        self._serves = False  # an attempt was served since the last cooldown began
        self._wanted = _COOLDOWNS  # how many cooldowns it takes now; at first, and after chance was shown,
        self._least = _COOLDOWNS  # it takes so many: more after mistakes,
        self._mistaken_at = -_NEVER  # the latest of which was found then

    def attempt_served(self) -> None:
        """Note that an attempt was served."""
        self._serves = True

    def cooldown(self, served: float) -> None:
        """Count a cooldown that begins after `served` attempts since the one before."""
        if served >= _MANY:
            self.restart()
        elif self._serves:
            self._cooldowns += 1
        else:
            self._first_refused = True
        self._serves = False

    @property
    def is_due(self) -> bool:
        """Whether a test is to be made after the cooldown that was counted last."""
        return self._cooldowns >= self._wanted * (1 if self._first_refused else _UNLESS_FIRST)

    def restart(self) -> None:
        """Count cooldowns from zero."""
        self._cooldowns, self._first_refused = 0, False

    def some_shown(self) -> None:
        """Make the next test soon: the last one showed some chance, but too little to know."""
        self._wanted = max(1, self._least // _COOLDOWNS)

    def none_shown(self) -> None:
        """Make the next test half as soon: the last one showed no chance."""
        self._wanted = min(_COOLDOWNS_MOST, 2 * max(_COOLDOWNS, self._wanted))

    def chance_shown(self, now: float) -> None:
        """Make the next test, if one is needed again, as soon as the first."""
        self._wanted = self._least_now(now)

    def mistaken(self, now: float) -> None:
        """Make tests half as soon from now on, because it was a mistake to take refusals for chance."""
        self._least = self._wanted = min(_COOLDOWNS_MOST, 2 * self._least_now(now))
        self._mistaken_at = now

    def _least_now(self, now: float) -> int:
        """The cooldowns in a row before the first test: three, unless there was a mistake lately."""
        if now - self._mistaken_at > _FORGOTTEN:
            self._least = _COOLDOWNS
        return self._least


class DelaysByChance:
    """The test of one lane. Times are seconds on the callers' clock. `at_once`: how many calls may return at once when
    the delay is over, beside those that the limit allows. `was_tested`: the attempt that was refused last was part of a
    test, so that it says nothing about the pace and the number of calls that the limit allows.
    """

    __slots__ = (
        "_batch", "_came", "_known_until", "_opens_at", "_schedule", "_served", "_together", "at_once", "was_tested",
    )  # fmt: skip

    def __init__(self) -> None:
        self._schedule = TestSchedule()
        self._batch = Batch(is_test=False)  # the latest attempts that were sent at once;
        self._opens_at = _NEVER  # the first that is sent from then on begins the next batch
        self._served = 0  # how many were served after a refused one in the tests before
        self._known_until = -_NEVER
        self._together = _TOGETHER  # how many calls return at once while it is known
        self._came = 0  # the calls that came since the last cooldown began
        self.at_once = 0
        self.was_tested = False

    def holds(self, now: float) -> bool:
        """Whether delays are known to be named by chance."""
        return now < self._known_until

    @property
    def together(self) -> float:
        """How many calls may return at once while delays are known to be named by chance; infinity for all."""
        return self._together if self._together < _LOOKED_AT else _NEVER

    # -- cooldowns, and the calls that they hold ----------------------------------------------------------------------

    def cooldown(self, served: float, until: float, now: float) -> None:
        """Note that a cooldown begins, after `served` attempts since the one before (infinity if nothing was held); its
        delay is over at `until`. Some calls may then be to return at once, as a test (`at_once`).
        """
        self.at_once = self._came = 0
        if self.holds(now):
            self._batch.close()  # one of its attempts began this cooldown, and the ends of others are still to come
            self._opens_at = until
            return
        self._schedule.cooldown(served)
        if self._is_read(now) and self._schedule.is_due:
            self._schedule.restart()
            self._batch, self._opens_at, self.at_once = Batch(is_test=True), until, AT_ONCE

    def came(self) -> None:
        """Note that a call waits from now on."""
        self._came += 1

    def take_at_once(self) -> int:
        """The number of calls that may return at once now, as a test; zero when it is asked again."""
        at_once, self.at_once = min(self.at_once, self._came), 0
        return at_once if at_once >= _AT_LEAST else 0

    # -- attempts -----------------------------------------------------------------------------------------------------

    def sent(self, attempt: object, now: float) -> None:
        """Note that an attempt is sent."""
        if now >= self._opens_at:
            self._begin_batch(now)
        self._batch.sent(attempt, now)

    def _begin_batch(self, now: float) -> None:
        before = self._batch
        if self.holds(now) and before and before.is_mostly_served:
            self._together *= 2
        self._batch, self._opens_at = Batch(is_test=before.is_test, begun=now), _NEVER

    def ended(self, attempt: object, now: float, *, refused: bool) -> bool:
        """Note that an attempt was served, or `refused` by an answer that names a delay. Returns whether that shows
        that delays are named by chance, which was not known before.
        """
        batch = self._batch
        is_counted = batch.ended(attempt, refused=refused)
        if refused:
            self.was_tested = is_counted and batch.is_test
        else:
            self._schedule.attempt_served()
        if not is_counted:
            return False
        was_known = self.holds(now)
        if self._served + batch.since_refused().count("served") >= _SERVED and batch.is_mostly_served:
            self._know(now)
            return not was_known
        if was_known and batch.is_mostly_refused:
            self._known_until = -_NEVER
            self._schedule.mistaken(now)
        return False

    def _know(self, now: float) -> None:
        """Note that delays are named by chance, as the latest attempts show."""
        if not self.holds(now):
            self._together = _TOGETHER
        self._known_until, self._served = now + _KNOWN, 0
        self._schedule.chance_shown(now)

    def _is_read(self, now: float) -> bool:
        """Whether the attempts of the test before have ended, so that another one may begin; its result is noted."""
        batch = self._batch
        if not batch.is_test:
            return True
        since = batch.since_refused()
        if "" in since and now - batch.begun < _LONGEST:
            return False
        served = since.count("served")
        if served and batch.is_mostly_served:
            self._served += served
            self._schedule.some_shown()
        elif len(since) > 1:
            self._served = 0
            self._schedule.none_shown()
        batch.is_test = False
        return True
