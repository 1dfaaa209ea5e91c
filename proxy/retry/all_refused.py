"""The time in which an upstream refuses every attempt, and names no delay: an outage that is told as throttling.

Contract, section 14: a limit is given up where as many attempts fail at half the load, since that was not load. But
where nothing at all is served, that is no chance either. Giving the limit up, or sending as many attempts as places
allow, serves no call: a refusal comes within milliseconds, and calls spend their attempts one after another. So the
limit then sends one attempt at a time, after 100 ms at first, and after up to a second later, as the probes of an
outage are sent (`proxy.retry.outage`). As soon as one is served, the held calls return as they do from an outage.
"""

from __future__ import annotations

from proxy.retry.outage import is_row

_NEVER = float("inf")

#: The seconds before the next attempt: at first, and at most, since they are doubled each time (section 14, as for the
#: probes of an outage).
_FIRST, _LAST = 0.1, 1.0
#: The least share of refusals (0 to 1) by which a row is chance, since clients may share what an upstream takes: eight
#: in a row are needed, and twenty once attempts were served under the limit.
_SHARED, _SERVES = 0.42, 0.7
#: All are refused for fewer seconds by chance, too, where other clients use up what the upstream takes.
_LASTS = 1.0
#: Seconds without an attempt after which it is not known any more whether all are refused, as of an outage.
_UNKNOWN_AFTER = 10.0


class AllRefused:
    """The latest attempts of one lane that were refused in a row by answers that name no delay. `is_on`: nothing is
    served; `since`: when the first of them was refused, infinity for none; `gap`: the seconds until the next attempt
    is sent; `most` and `threshold`: those of the limit before that. Times are seconds on the callers' clock.
    """

    __slots__ = ("_at", "_row", "_serves", "gap", "is_on", "most", "since", "threshold")

    def __init__(self) -> None:
        self.is_on = False
        self.since = _NEVER
        self.gap = 0.0
        self.most = self.threshold = 1.0
        self._row = 0
        self._at = -_NEVER  # when an attempt was refused last
        self._serves = False  # an attempt was served under the limit, or between those for which it began

    def begin(self, row: int, since: float, serves: bool, answered_at: float) -> None:
        """Begin to count, because a limit begins: the latest `row` attempts were refused, the first of them at `since`;
        `serves`: others were served between those for which it begins. An earlier row goes on if no attempt was
        answered well since it began; `answered_at`: when one was last.
        """
        self.is_on, self._serves = False, serves
        if answered_at >= self.since or not self._row:
            self.since = since
        self._row = row

    def refused(self, sent: float, share: float, alone: bool, now: float) -> bool:
        """Note that an attempt sent at `sent` was refused. `share`: the usual share of refusals (0 to 1); `alone`: no
        other is under way, which might still be served. Returns whether all are refused.
        """
        if not self._row:
            self.since = now
        self._row += 1
        before, self._at = self._at, now
        if self.is_on:
            if sent >= before:
                self.gap = min(_LAST, 2.0 * self.gap)
        elif alone and is_row(self._row, now - self.since, max(share, _SERVES if self._serves else _SHARED)):
            self.is_on, self.gap = True, _FIRST
        return self.is_on

    def served(self, sent: float) -> bool:
        """Note that an attempt sent at `sent` was served. Returns whether that ends the time in which none is."""
        if self._row and sent < self.since:
            return False  # sent before the first refusal
        was_on, self.is_on = self.is_on, False
        self._row, self._serves = 0, True
        return was_on

    def lasted(self, now: float) -> bool:
        """Whether the time that has just ended was too long for chance."""
        return now - self.since >= _LASTS

    def is_known(self, now: float) -> bool:
        """Whether all attempts are refused, and one was lately."""
        return self.is_on and now - self._at < _UNKNOWN_AFTER
