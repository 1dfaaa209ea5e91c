"""Whether the limits that an upstream's answers report can be believed.

Some servers report a remainder that has nothing to do with what they let through: always 0, or that of another key.
Others report the right remainder with a reset that is always far away. Calls that waited for such limits would wait in
vain.

A report that nothing is left is disproved by an attempt that succeeds all the same, if the attempt was sent after the
report had come and before the limit's reset. If the limit may refill continuously, such a success alone disproves
nothing, since something may have come back; then the report in that attempt's answer decides. But if reports name the
same reset for some time while no more is left, nothing is added before the reset. What was sent since a report is
subtracted from it. So a success also disproves a report that some is left, if more than that was sent since. A reset is
disproved by a report that all of the limit is back long before it.

A remainder that grows by as much as is sent is the number of attempts that were used, not of those that are left. Of a
limit that refills at its reset, less is left with each attempt; and if a limit that refills continuously refilled that
slowly, its attempts would put off its reset. It takes seconds to know this, since resets are rounded. Until then, a
remainder that only grows by what is sent, and has never fallen by it, holds no call: at this pace the limit is not used
up, whatever it is.

A remainder that stays the same, though attempts that lessen it succeed, counts nothing: two of them show this before a
reset that stands, five within two seconds else, if one could have been sent at any time. A limit whose size changes
twice within half a minute is not one limit, but several that share a name.

Calls that wait for the reset test nothing. So one call is sent as if no report had come:

- after three reports in a row that nothing is left, each after the reset that the one before named;
- the second time that nothing is left, or as soon as several calls wait, if this process has not used most of the limit
  itself: others use it too, or the report is wrong;
- as soon as several calls wait for a reset that is too far away to be waited for, or so many that the last of them
  would wait for too long, since the limit may be larger than reported;
- as soon as several calls wait, if no refusal has shown yet that the limit is as small as reported, and answers come
  soon. Nothing else can show this: a limit that is reported as half of what it is looks like any other to those who
  keep to it. So it costs one refused attempt where the reports are right.

Some providers serve a request for tokens as long as any are left. So of a limit on tokens that fills up all the time,
two tests in a row have to succeed, each at a cost that is clearly more than what can have come back.

If that call succeeds, the reports are wrong; if it is refused, they are believed for ten minutes. A refused call costs
less than several that wait in vain.

A limit whose reports were found to be wrong is not believed for ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.answers.limit_fields import ReportedLimit

#: Seconds for which a limit is not believed, or is believed without further tests.
LASTS = 600.0
#: The number of reports in a row, after the reset, that nothing is left, after which the next one is tested.
_IN_A_ROW = 3
#: A limit that fills up all the time has at least this part of what is expected; and clocks differ by this part of the
#: time to the reset.
_PART, _CLOCKS = 0.25, 0.1
#: The part of a limit that is back, and the part of the time to its reset before which it is, if the reset was wrong;
#: the part of a limit that is left at most, so that this can be told; the seconds by which reports round the time.
_BACK, _EARLY, _LOW, _SECOND = 0.9, 0.75, 0.5, 1.0
#: The seconds for which reports name the same reset if nothing is added before it; resets are rounded.
_STANDS = 2.0
#: The seconds, and the attempts, for which what is left has to grow; the part of these attempts by which it grows at
#: least, and the part of what continuous refilling would add by which it grows at most; and the part of the seconds by
#: which the reset is put off at most.
_GROWS_FOR, _GROWS_BY, _BY_SENT, _BY_TIME, _PUT_OFF = 5.0, 5, 0.5, 0.6, 0.19
#: The reports in a row that grow by what is sent, and are not believed while that goes on; by how many times of what is
#: sent they grow at most.
_CLIMBS, _ALIKE = 2, 1.5
#: The attempts after which a remainder that is still the same is wrong: before a reset that stands, and else.
_TWICE, _STUCK = 2, 5
#: The multiples to which providers round what is left of tokens (Anthropic to the nearest thousand).
_ROUNDED = 1000.0
#: The seconds for which a limit is not believed when its size changes, and those within which a second change shows
#: that it is not one limit, but several that share a name: those of different models, say.
_RESIZED, _RESIZED_AGAIN = 1.0, 30.0
#: Seconds after the beginning of a test within which its attempt is sent.
_AT_ONCE = 0.1
#: The tests in a row that show that a limit on tokens is wrong; how much more than can have come back each has cost.
_PASSED, _CLEARLY = 2, 2.0
#: Seconds between two tests of a limit for which several calls wait.
_TESTS = 60.0
_NEVER_YET = -float("inf")


@dataclass(slots=True)
class _Test:
    """A test of a limit of which nothing is left, according to its latest report (`reported`) and to what was sent
    since.

    `began`: the time at which the test began. `came`: the time at which the report came. `spent`: what had been spent
    of the limit in all when the attempt was sent whose answer made the report. `stood`: by then it was known that
    nothing is added before the reset.
    """

    reported: ReportedLimit
    spent: float
    came: float
    began: float
    stood: bool


@dataclass(slots=True)
class _Trust:
    """The knowledge of how far the reports of one limit can be believed. In what follows, the time of a report is when
    it came, and what was spent is the sum that had been spent of the limit by then.

    `empty`: the first report since the last reset that nothing is left; `came`: its time; `spent`: what was spent.
    `row`: how many such reports came in a row, each after the reset of the one before. `times`: how often nothing was
    left. `tested`: the latest such report is being ignored, to see whether it is right. `doubted_until`,
    `proven_until`: the times until which the reports count as wrong, or as right. `low`: the latest report that little
    is left; `low_since`: when the attempt was sent whose answer made it; `low_came`: its time; `low_spent`: what was
    spent.

    `test_at`: when the last test began that was made because several calls waited, if it has not succeeded. `least`:
    the report of the least that was left since the last reset; `least_came`: its time; `least_spent`: what was spent.
    `last`: the latest report; `last_spent`: what had been spent when its attempt was sent. `climbed`: how many reports
    in a row said that more was left, by as much as was sent. `fell`: a report said that less was left, by as much as
    was sent. `test`: the latest test, until an answer shows its result. `passed`: how many tests in a row succeeded, of
    a limit on tokens, that cost clearly more than can have come back. `standing`: the first of the reports that name
    the same reset, while no more is left; `standing_at`: its time. `stands`: such reports have come for long enough to
    show that nothing is added before the reset. `resized_at`: when the size of the limit changed last. `same`: the
    first of the reports in a row that say that as little is left; `same_at`, `same_order`, `same_spent`: its time, the
    number of its attempt, and what had been spent when that was sent.
    """

    empty: ReportedLimit | None = None
    came: float = 0.0
    spent: float = 0.0
    row: int = 0
    times: int = 0
    tested: bool = False
    doubted_until: float = -1.0
    proven_until: float = _NEVER_YET
    low: ReportedLimit | None = None
    low_since: float = 0.0
    low_came: float = 0.0
    low_spent: float = 0.0
    test_at: float = _NEVER_YET
    least: ReportedLimit | None = None
    least_came: float = 0.0
    least_spent: float = 0.0
    last: ReportedLimit | None = None
    last_spent: float = 0.0
    climbed: int = 0
    fell: bool = False
    test: _Test | None = None
    passed: int = 0
    resized_at: float = _NEVER_YET
    same: ReportedLimit | None = None
    same_at: float = 0.0
    same_order: float = 0.0
    same_spent: float = 0.0
    standing: ReportedLimit | None = None
    standing_at: float = 0.0
    stands: bool = False


class ReportTrust:
    """The judge of the reports on the limits of one endpoint and credential: it knows which of them are believed."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[str, _Trust] = {}

    def doubts(self, name: str, now: float) -> bool:
        """Whether the reports of the limit with this name are known to be wrong now."""
        trust = self._limits.get(name)
        return trust is not None and now < trust.doubted_until

    def is_believed(self, name: str, now: float) -> bool:
        """Whether calls wait for the limit with this name. They do unless its reports are known to be wrong, or what is
        left grows by as much as is sent.
        """
        trust = self._limits.get(name)
        return trust is None or (trust.climbed < _CLIMBS and not self.doubts(name, now))

    def disbelieve(self, name: str, now: float) -> None:
        """Note that the reports of the limit with this name are wrong."""
        self._limits.setdefault(name, _Trust()).doubted_until = now + LASTS

    def forget(self, name: str) -> None:
        """Forget what is known of the limit with this name."""
        self._limits.pop(name, None)

    def refused(self, since: float, now: float) -> None:
        """Note that an attempt was refused because a limit was exceeded. `since`: the time at which the attempt was
        sent. A report that nothing is left counts as right now, if it had come by that time, and the reset that it
        names was still ahead then. The same is true of each report that the attempt tested.
        """
        for trust in self._limits.values():
            if trust.test_at <= since < trust.test_at + _AT_ONCE:
                trust.proven_until, trust.passed = now + LASTS, 0
            if trust.empty is not None and trust.came <= since < trust.came + trust.empty.reset * (1 - _CLOCKS):
                trust.proven_until = now + LASTS
                trust.tested, trust.row = False, 0

    def resized(self, name: str, now: float) -> None:
        """Note that a report names another size of the limit with this name than the report before."""
        trust = self._limits.setdefault(name, _Trust())
        again, trust.resized_at = now < trust.resized_at + _RESIZED_AGAIN, now
        trust.doubted_until = max(trust.doubted_until, now + (LASTS if again else _RESIZED))

    def takes(
        self,
        reported: ReportedLimit,
        spent: float,
        since: float,
        now: float,
        *,
        order: float,
        explained: bool = True,
        predicted: bool = False,
    ) -> bool:
        """Whether to believe `reported`, which is in the answer to an attempt that succeeded. `since`: the time at
        which that attempt was sent. `spent`: what had been spent of the limit in all by then. `order`: the number of
        that attempt. `explained`: this process has used most of what the report says is used. `predicted`: it is known
        when the limit comes back bit by bit.
        """
        trust = self._limits.get(reported.name)
        if trust is None:
            if reported.remaining >= 1 and reported.limit is not None and not _is_low(reported):
                return True
            trust = self._limits[reported.name] = _Trust()
        if since >= trust.test_at:
            trust.test_at = _NEVER_YET  # a test that succeeded cost nothing, so another may follow
        if self._came_back_early(trust, reported, spent, since, now) or self._grows(trust, reported, spent, now):
            trust.doubted_until = now + LASTS
        self._climbs(trust, reported, spent)
        self._stands(trust, reported, now)
        if not predicted and self._is_stuck(trust, reported, order, spent, now):
            trust.doubted_until = now + LASTS
        if predicted:
            trust.empty, trust.row, trust.tested = None, 0, False
            return True
        empty = trust.empty
        is_late = empty is not None and since >= trust.came + empty.reset * (1 - _CLOCKS)
        if empty is not None and since >= trust.came:
            seconds = 0.0 if trust.stands else since - trust.came
            if not is_late and self._is_wrong(empty, reported, spent - trust.spent, seconds):
                trust.doubted_until = now + LASTS
            trust.row = trust.row + 1 if is_late else trust.row
            trust.tested = False
        if reported.remaining >= 1:
            trust.empty, trust.row = None, 0
            return True
        if empty is None or is_late:
            trust.empty, trust.came, trust.spent = reported, now, spent
            trust.times += 1
        if (trust.row >= _IN_A_ROW or (trust.times > 1 and not explained)) and now >= max(
            trust.proven_until, trust.doubted_until
        ):
            trust.tested, trust.row = True, 0
        return not trust.tested

    def was_proven(self, name: str) -> bool:
        """Whether a refusal has ever shown that nothing was left of the limit with this name, as reported."""
        trust = self._limits.get(name)
        return trust is not None and trust.proven_until > _NEVER_YET

    def tests(self, name: str, now: float) -> bool:
        """Whether one call may now test what is reported of the limit with this name. It may not if the reports were
        tested lately. If it may, the test counts as begun now.
        """
        trust = self._limits.setdefault(name, _Trust())
        if now < max(trust.proven_until, trust.doubted_until, trust.test_at + _TESTS):
            return False
        trust.test_at = now
        return True

    def test_begins(self, reported: ReportedLimit, spent: float, came: float, now: float) -> None:
        """Note that a test of a limit begins: one attempt is sent, although nothing is left of the limit by its latest
        report and by what was sent since. `reported`: the report, which came at the time `came`. `spent`: what had been
        spent of the limit in all when the reporting answer's own attempt was sent.
        """
        trust = self._limits.setdefault(reported.name, _Trust())
        trust.test = _Test(reported, spent, came, now, trust.stands)

    def test_shows(
        self, reported: ReportedLimit, spent: float, since: float, now: float, *, scale: float = 1.0
    ) -> None:
        """Note the result of the test of a limit, if one is under way: an attempt that was sent since the test began
        has succeeded, and its answer reports the limit as `reported`. `since`: the time at which the attempt was sent.
        `spent`: what had been spent of the limit in all by then. Answers to later attempts may have come first.
        `scale`: what attempts cost, as a part of their estimates.
        """
        trust = self._limits.get(reported.name)
        test = None if trust is None else trust.test
        if trust is None or test is None or since < test.began:
            return
        trust.test, before = None, test.reported
        reset_at = test.came + before.reset
        if now < reset_at:
            self._stands(trust, reported, now)
        if since >= reset_at - max(_SECOND, _CLOCKS * before.reset):
            return
        stands = test.stood or trust.stands
        if stands and now >= reset_at:
            is_wrong = before.remaining < 1  # what this answer reports is of another window
        else:
            seconds, beyond = 0.0 if stands else since - test.came, spent - test.spent - before.remaining
            if before.counts == "attempts" or stands:
                is_wrong = (stands and beyond > 0) or self._is_wrong(before, reported, beyond, seconds)
            else:
                passed = reported.remaining < 1 and scale * beyond > _CLEARLY * _filled(before, seconds)
                trust.passed = trust.passed + 1 if passed else 0
                is_wrong = trust.passed >= _PASSED
        if is_wrong:
            trust.doubted_until = now + LASTS

    @staticmethod
    def _stands(trust: _Trust, reported: ReportedLimit, now: float) -> None:
        """Note whether reports have named the same moment as the limit's reset for some seconds, while the remainder
        did not grow. So the limit does not refill continuously, since each attempt would then put the reset off.
        `trust`: what is known of this limit. `reported`: see `takes`.
        """
        first = trust.standing
        moved = None if first is None else now + reported.reset - trust.standing_at - first.reset
        if first is None or moved is None or abs(moved) >= _SECOND or reported.remaining > first.remaining:
            trust.standing, trust.standing_at, trust.stands = reported, now, False
        elif now - trust.standing_at >= _STANDS:
            trust.stands = True

    @staticmethod
    def _is_stuck(trust: _Trust, reported: ReportedLimit, order: float, spent: float, now: float) -> bool:
        """Whether the same little is left, answer after answer, though attempts that lessen it succeeded in between.
        Nothing comes back before a reset that stands. Else a call may have waited until one more was left, so that an
        answer says again that none is, of a limit on attempts; and as many attempts may come back as were made, if that
        is no more than the reset says. Tokens that come back are never those that were used, to the last one, unless
        the remainder is rounded. `trust`: what is known of this limit. The other arguments are those of `takes`.
        """
        first, is_low = trust.same, reported.limit is None or _is_low(reported)
        if first is None or reported.remaining != first.remaining or not is_low:
            trust.same, trust.same_at, trust.same_order, trust.same_spent = reported, now, order, spent
            return False
        attempts, of_attempts = order - trust.same_order, reported.counts == "attempts"
        if trust.stands and of_attempts:
            return attempts >= _TWICE
        if reported.remaining < 1 if of_attempts else reported.remaining % _ROUNDED == 0:
            return False
        used, seconds = spent - trust.same_spent, now - trust.same_at
        if seconds < _STANDS or min(attempts, used) < _STUCK:
            return False
        return not of_attempts or reported.limit is None or used > 1 + seconds * _refill(reported)

    @staticmethod
    def _came_back_early(trust: _Trust, reported: ReportedLimit, spent: float, since: float, now: float) -> bool:
        """Whether all of the limit is back long before the reset that was named when little was left. If `reported`
        says that little is left, it is remembered. `trust`: what is known of this limit. The other arguments are those
        of `takes`.
        """
        low = trust.low
        if _is_low(reported):
            trust.low, trust.low_since, trust.low_came, trust.low_spent = reported, since, now, spent
            return False
        if low is None or since < trust.low_came:
            return False
        trust.low = None
        if reported.limit is None or reported.limit != low.limit:
            return False
        took = since - trust.low_since + _SECOND
        return took < _EARLY * low.reset and reported.remaining >= _BACK * (reported.limit - (spent - trust.low_spent))

    @staticmethod
    def _grows(trust: _Trust, reported: ReportedLimit, spent: float, now: float) -> bool:
        """Whether the remainder that answers report of a limit on attempts grows as attempts are sent: such a remainder
        is in truth the number of attempts that were used (see the module). A limit on tokens is never judged so, since
        its remainder may grow because providers give tokens back after an answer that was shorter than expected.
        `trust`: what is known of this limit. `reported` and `spent`: see `takes`.
        """
        least = trust.least
        if least is None or reported.remaining < least.remaining or now >= trust.least_came + least.reset:
            trust.least, trust.least_came, trust.least_spent = reported, now, spent
            return False
        seconds, sent, grown = now - trust.least_came, spent - trust.least_spent, reported.remaining - least.remaining
        if seconds < _GROWS_FOR or sent < _GROWS_BY or reported.limit is None or reported.counts != "attempts":
            return False
        filled = (reported.limit - least.remaining) * seconds / least.reset
        put_off = seconds + reported.reset - least.reset
        return _BY_SENT * sent <= grown <= _BY_TIME * filled and put_off <= _PUT_OFF * seconds

    @staticmethod
    def _climbs(trust: _Trust, reported: ReportedLimit, spent: float) -> None:
        """Count the reports in a row whose remainder, of a limit on attempts, grows by as much as was sent. Once the
        remainder has fallen by as much as was sent, no report is counted any more. `trust`: what is known of this
        limit. `reported` and `spent`: see `takes`.
        """
        last, sent = trust.last, spent - trust.last_spent
        trust.last, trust.last_spent = reported, spent
        if last is None or reported.counts != "attempts":
            return
        grown = reported.remaining - last.remaining
        trust.fell = trust.fell or _BY_SENT * sent <= -grown <= _ALIKE * sent
        trust.climbed = trust.climbed + 1 if not trust.fell and _BY_SENT * sent <= grown <= _ALIKE * sent else 0

    @staticmethod
    def _is_wrong(before: ReportedLimit, reported: ReportedLimit, spent: float, seconds: float) -> bool:
        """Whether a report that nothing is left must have been wrong, because a later attempt succeeded. `before`: the
        report. `seconds`: how long after it the attempt was sent. `spent`: what had been spent of the limit since.
        `reported`: the report in that attempt's answer.
        """
        filled = _filled(before, seconds)
        return reported.remaining < 1 if filled < 1 else reported.remaining < _PART * (filled - spent)


def _is_low(reported: ReportedLimit) -> bool:
    return reported.limit is not None and reported.remaining <= _LOW * reported.limit


def _filled(before: ReportedLimit, seconds: float) -> float:
    """The most that comes back of a limit within these seconds of the report `before`, if it fills up all the time."""
    return 0.0 if before.limit is None else before.limit / before.reset * seconds


def _refill(reported: ReportedLimit) -> float:
    """The most that comes back of a limit in a second, if it fills up all the time: all that is used of it is back at
    its reset, which may be rounded up to a whole second.
    """
    assert reported.limit is not None
    return (reported.limit - reported.remaining) / max(reported.reset - _SECOND, 1e-9)
