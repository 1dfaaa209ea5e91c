"""The test of whether more calls are served if a long delay holds only the call that was refused.

Contract, section 5: a delay that an upstream names in one answer holds other calls too. Where an upstream refuses
without a queue, or by chance, and names many seconds, each refusal holds all calls for longer than the upstream needs.
Hardly any call is then served: fewer than without a proxy. Section 9, rule 1, which forbids this, takes precedence.

So a test begins where calls have waited for long, and far fewer of them are served than the share of served attempts
would allow. During the test a delay holds only the call that was refused, and all calls are sent at a pace, a number of
attempts a second (`proxy.retry.capacity.refusal_pace`). If the share of attempts that are served is clearly larger than
the share of calls that were served before, delays go on to hold only their own calls. Otherwise delays hold all calls
again, and the next test is made after twice the time.
"""

from __future__ import annotations

from proxy.retry.capacity.held_counts import HeldCounts
from proxy.retry.capacity.refusal_pace import RefusalPace
from proxy.retry.capacity.refused_attempts import RefusedAttempts

_NEVER = float("inf")

#: A test has so many attempts at least, and takes so many times the longest named delay, but no more seconds than that.
_ATTEMPTS, _DELAYS, _LONGEST = 24, 1.5, 15.0
#: The least difference by which the share of served attempts in a test must exceed that of served calls before.
_MORE = 0.1
#: Seconds from a test that showed nothing to the next one: at first, and at most, since they are doubled each time.
_AGAIN, _AGAIN_LONGEST = 20.0, 320.0
#: Seconds for which it is known that more is served, after the last refusal; and after which it is judged again.
_KNOWN, _JUDGED_AFTER = 120.0, 20.0
#: Seconds from the latest refusal for which calls are sent at the pace; and from an attempt after which calls wait.
_PACED, _GOES_ON = 5.0, 1.0


class Unheld:
    """The test of one lane (the queue of a group of callers). Times are seconds on the callers' clock. `pace`: the pace
    at which calls are sent; None while delays hold all calls.
    """

    __slots__ = (
        "_again", "_begun", "_delay", "_gives", "_judged_at", "_known_until", "_next_at", "_opens_at", "_paced_until",
        "_tested", "pace",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pace: RefusalPace | None = None
        self._opens_at = _NEVER  # a test begins then
        self._begun = _NEVER  # a test is under way since then
        self._delay = 0.0  # the longest delay named lately
        self._tested = RefusedAttempts()
        self._gives = 0.0  # the share of the calls that was served before
        self._known_until = self._paced_until = -_NEVER
        self._judged_at = _NEVER
        self._next_at = -_NEVER  # the next test begins no sooner,
        self._again = _AGAIN  # and the one after it so many seconds later

    def is_on(self, now: float) -> bool:
        """Whether a delay now holds only the call that was refused, and no other call: this is being tested, or the
        last test showed that it serves more calls.
        """
        return self._begun < _NEVER or now < self._known_until

    def paces(self, now: float) -> bool:
        """Whether a delay now holds only the call that was refused, while all calls are sent at the pace, because one
        was refused lately.
        """
        return now < self._paced_until and self.is_on(now)

    def begins_at(self, at: float, delay: float) -> bool:
        """Plan a test that begins at the time `at`, when the present delay is over, if a test may be made then. Returns
        whether it may. `delay`: the longest delay that was named lately, in seconds.
        """
        self._opens_at, self._delay = at if at >= self._next_at else _NEVER, delay
        return self._opens_at < _NEVER

    def holds_again(self) -> None:
        """Note that delays hold all calls again. No test begins when the present delay is over, unless `begins_at` is
        called.
        """
        self._opens_at, self.pace = _NEVER, None

    def opens(self, counts: HeldCounts, now: float) -> bool:
        """Begin the test if it is due. Returns whether it begins. `counts`: the calls and attempts of the latest
        seconds.
        """
        if now < self._opens_at:
            return False
        counts.fade(now)
        self.open(counts.gives, counts, now)
        return True

    def open(self, gives: float, counts: HeldCounts, now: float) -> None:
        """Begin the test. `gives`: the share of the calls that was served before. `counts`: the calls and attempts of
        the latest seconds.
        """
        self._opens_at, self._gives = _NEVER, gives
        counts.refused = 0.0
        self.pace = RefusalPace(counts.rate, now)
        self._begun, self._paced_until = now, now + _PACED
        self._tested.begin()

    def sent(self, counts: HeldCounts, waiting: int, now: float) -> None:
        """Note that an attempt is sent. `counts`: the calls and attempts of the latest seconds. `waiting`: how many
        calls wait.
        """
        if self.pace is None:
            return
        self.pace.sent(counts.rate, counts.served_rate, waiting, now)
        if waiting:
            self._paced_until = max(self._paced_until, now + _GOES_ON)

    def refused(self, counts: HeldCounts, ended: int, flying: int, now: float) -> None:
        """Note that an attempt was refused by an answer that names a delay. `counts`: the calls and attempts of the
        latest seconds. `ended`: how many attempts have ended so far. `flying`: how many are under way.
        """
        if now >= self._paced_until:
            counts.skip(now)
        counts.fade(now)
        counts.refused += 1
        self._paced_until = now + _PACED
        if self.pace is not None:
            self.pace.refused()
        tested = self._tested
        if tested.add(ended, flying):
            self._begun = now
        if self._begun == _NEVER:
            if tested.are_most or (now >= self._judged_at and counts.gives < self._gives):
                self._fails(now)
            else:
                self._known_until = now + _KNOWN
            return
        serves = 1.0 - tested.refused / tested.sent
        is_better = serves > self._gives + _MORE
        if tested.are_most or (tested.sent >= _ATTEMPTS and not is_better):
            self._fails(now)
        elif tested.sent >= _ATTEMPTS and now - self._begun >= min(_LONGEST, _DELAYS * self._delay):
            self._begun, self._again = _NEVER, _AGAIN
            self._known_until, self._judged_at = now + _KNOWN, now + _JUDGED_AFTER

    def _fails(self, now: float) -> None:
        """Note that it pays to hold all calls for delays. The next test may begin after a while."""
        self._begun, self.pace = _NEVER, None
        self._known_until = self._paced_until = -_NEVER
        self._next_at = now + self._again
        self._again = min(_AGAIN_LONGEST, 2.0 * self._again)
