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


class DelaysByChance:
    """The test of one lane. Times are seconds on the callers' clock. `at_once`: how many calls may return at once when
    the delay is over, beside those that the limit allows. `was_tested`: the attempt that was refused last was part of a
    test, so that it says nothing about the pace and the number of calls that the limit allows.
    """

    __slots__ = (
        "_came", "_cooldowns", "_ends", "_first_at", "_first_refused", "_is_test", "_known_until", "_least",
        "_mistaken_at", "_numbers", "_opens_at", "_served", "_serves", "_together", "_wanted", "at_once", "was_tested",
    )  # fmt: skip

    def __init__(self) -> None:
        self._cooldowns, self._wanted = 0, _COOLDOWNS
        self._first_refused = False  # in a cooldown of these, the first attempt after the delay before was refused
        self._least = _COOLDOWNS  # the cooldowns in a row before the first test; more after mistakes,
        self._mistaken_at = -_NEVER  # the latest of which was found then
        self._known_until = -_NEVER
        self._together = _TOGETHER  # how many calls return at once while it is known
        self._opens_at = self._first_at = _NEVER  # when calls may return, and when the first of them did
        self._numbers: dict[object, int] = {}  # of the attempts that were sent at once and are under way
        self._ends: list[str] = []  # how each of those ended: "served", "refused", "" while that is not known
        self._came = 0  # the calls that came since the last cooldown began
        self._serves = False  # an attempt was served since the last cooldown began
        self._served = 0  # how many were served after a refused one in the tests before
        self._is_test = False  # the attempts that were sent at once are a test
        self.at_once = 0
        self.was_tested = False

    def holds(self, now: float) -> bool:
        """Whether delays are known to be named by chance."""
        return now < self._known_until

    def cooldown(self, served: float, until: float, now: float) -> None:
        """Note that a cooldown begins, after `served` attempts since the one before (infinity if nothing was held); its
        delay is over at `until`. Some calls may then be to return at once, as a test (`at_once`).
        """
        self.at_once = self._came = 0
        if self.holds(now):  # attempts of the last batch are still counted, one of which began this cooldown
            self._count_from(until)
            return
        if served >= _MANY:
            self._cooldowns, self._first_refused = 0, False
        elif self._serves:
            self._cooldowns += 1
        else:
            self._first_refused = True
        self._serves = False
        if not self._is_read(now) or self._cooldowns < self._wanted * (1 if self._first_refused else _UNLESS_FIRST):
            return
        self._cooldowns, self._first_refused = 0, False
        self._count_from(until)
        self._clear()
        self.at_once, self._is_test = AT_ONCE, True

    def _is_read(self, now: float) -> bool:
        """Whether the attempts of the test before have ended, so that another one may begin; its result is noted."""
        if not self._is_test:
            return True
        after = self._after()
        if "" in after and now - self._first_at < _LONGEST:
            return False
        served = after.count("served")
        if served and self._is_mostly_served():
            self._served, self._wanted = self._served + served, max(1, self._least // _COOLDOWNS)
        elif len(after) > 1:
            self._served, self._wanted = 0, min(_COOLDOWNS_MOST, 2 * max(_COOLDOWNS, self._wanted))
        self._is_test = False
        return True

    def _after(self) -> list[str]:
        """The ends of the attempts that were sent at once, from the first one that was refused on."""
        ends = self._ends
        return ends[ends.index("refused") :] if "refused" in ends else []

    def _count_from(self, at: float) -> None:
        self._opens_at, self._first_at, self._is_test = at, _NEVER, False

    def _is_mostly_served(self) -> bool:
        """Whether most of the attempts that were sent at once have been served."""
        return self._ends.count("served") >= _MOSTLY * len(self._ends)

    def _clear(self) -> None:
        self._numbers.clear()
        self._ends.clear()

    @property
    def together(self) -> float:
        """How many calls may return at once while delays are known to be named by chance; infinity for all."""
        return self._together if self._together < _LOOKED_AT else _NEVER

    def take_at_once(self) -> int:
        """The number of calls that may return at once now, as a test; zero when it is asked again."""
        at_once, self.at_once = min(self.at_once, self._came), 0
        return at_once if at_once >= _AT_LEAST else 0

    def came(self) -> None:
        """Note that a call waits from now on."""
        self._came += 1

    def sent(self, attempt: object, now: float) -> None:
        """Note that an attempt is sent."""
        if now < self._opens_at or now - self._first_at > _AT_ONCE_WITHIN:
            return
        if self._first_at == _NEVER:
            if self.holds(now) and self._ends and self._is_mostly_served():
                self._together *= 2
            self._clear()
            self._first_at = now
        if len(self._ends) == _LOOKED_AT:
            return
        self._numbers[attempt] = len(self._ends)
        self._ends.append("")

    def ended(self, attempt: object, now: float, *, refused: bool) -> bool:
        """Note that an attempt was served, or `refused` by an answer that names a delay. Returns whether that shows
        that delays are named by chance, which was not known before.
        """
        number = self._numbers.pop(attempt, None)
        self._serves = self._serves or not refused
        if refused:
            self.was_tested = number is not None and self._is_test
        if number is None:
            return False
        self._ends[number] = "refused" if refused else "served"
        after = self._after()
        if self._served + after.count("served") >= _SERVED and self._is_mostly_served():
            was_known, self._known_until = self.holds(now), now + _KNOWN
            if not was_known:
                self._together = _TOGETHER
            self._served, self._wanted = 0, self._least_now(now)
            return not was_known
        count = after.count("refused")
        few = len(after) - count < _FEW * len(after) or count > _MOST * len(self._ends)
        if self.holds(now) and count >= _REFUSED and few:
            self._least = self._wanted = min(_COOLDOWNS_MOST, 2 * self._least_now(now))
            self._known_until, self._mistaken_at = -_NEVER, now
        return False

    def _least_now(self, now: float) -> int:
        """The cooldowns in a row before the first test: three, unless there was a mistake lately."""
        if now - self._mistaken_at > _FORGOTTEN:
            self._least = _COOLDOWNS
        return self._least
