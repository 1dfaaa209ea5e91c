"""The measure of whether it pays to hold calls for the whole of long delays that an upstream names.

Contract, section 5: a delay holds other calls too. Where an upstream refuses without a queue and names many seconds,
each refusal holds all calls for longer than the upstream needs, and hardly any call is served: fewer than without a
proxy. Section 9, rule 1, goes before. So where calls have waited for long, and the share of them that is served is less
than half of the share of attempts, a delay holds other calls for a second only; the call that was refused waits for its
own delay as ever. A second is enough for a limit
that learns from refusals, and bounds what an upstream in trouble is asked for. If no more of the calls that come are
served by that, delays hold calls for all of their time again, and this is tried again later.
"""

from __future__ import annotations

_NEVER = float("inf")

#: The longest that a delay holds other calls then, in seconds.
SHORT = 1.0
#: Seconds after which it is judged whether more is served; and by how much the share of the calls that come has to be
#: larger than before.
_JUDGED_AFTER, _MORE = 20.0, 0.05
#: Seconds for which it is known that more is served, after the last refusal.
_KNOWN = 120.0
#: Seconds until short holds are tried again, if no more was served: at first, and at most, since they are doubled.
_AGAIN, _AGAIN_LONGEST = 60.0, 480.0


class ShortHolds:
    """The measure of one lane. Times are seconds on the callers' clock."""

    __slots__ = ("_again", "_before", "_begun", "_next_at", "_until")

    def __init__(self) -> None:
        self._until = self._next_at = -_NEVER
        self._begun = _NEVER
        self._before = 0.0  # the share of the calls that was served by holding them for all of the delays
        self._again = _AGAIN

    def are_used(self, now: float) -> bool:
        """Whether delays hold other calls for a short time only."""
        return now < self._until

    def may_begin(self, now: float) -> bool:
        """Whether short holds may be tried."""
        return not self.are_used(now) and now >= self._next_at

    def begin(self, gives: float, now: float) -> None:
        """Hold calls for a short time from now on. `gives`: the share of the calls that came which were served so
        far.
        """
        self._before, self._begun, self._until = gives, now, now + _KNOWN

    def refused(self, gives: float, now: float) -> None:
        """Note that an attempt was refused again while calls are held for a short time, which gives the share `gives`
        of the calls that come.
        """
        if now - self._begun < _JUDGED_AFTER:
            return
        if gives >= self._before + _MORE:
            self._until = now + _KNOWN
            return
        self._until, self._next_at = now, now + self._again
        self._again = min(_AGAIN_LONGEST, 2.0 * self._again)
