"""The time in which an upstream refuses every attempt and names no delay: an outage that looks like throttling.

Contract, section 14: a limit is given up where as many attempts fail at half the load, since then the load is not the
reason. But if no attempt at all is served, that is not chance either. To give the limit up, or to send as many attempts
as it allows, would serve no call: a refusal comes within milliseconds, and calls would use up their attempts one after
another. So the limit then sends one attempt at a time, first after 100 ms, and later after up to a second, as the
probes of an outage are sent (`proxy.retry.weather.outage`). As in an outage, this is done only if an attempt was served
within the ten minutes before. As soon as one is served again, the held calls return as they do from an outage.
"""

from __future__ import annotations

from proxy.retry.weather.outage import FIRST_PROBE, LAST_PROBE, UNKNOWN_AFTER, is_row

_NEVER = float("inf")

#: The least share of refusals (0 to 1) by which a row is chance, since clients may share what an upstream takes: eight
#: in a row are needed, and twenty once attempts were served under the limit.
_SHARED, _SERVES = 0.42, 0.7
#: All are refused for fewer seconds by chance, too, where other clients use up what the upstream takes.
_LASTS = 1.0


class AllRefused:
    """The latest attempts of one lane (the queue of a group of callers) that were refused in a row by answers that name
    no delay. Times are seconds on the callers' clock.

    `is_on`: every attempt is being refused. `since`: the time at which the first attempt of the row was refused,
    infinity for none. `gap`: the seconds until the next attempt is sent. `most` and `threshold`: those of the limit
    before that time.
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

    def begin(self, row: int, since: float, serves: bool, served_at: float) -> None:
        """Begin to count, because a limit begins. `row`: how many of the latest attempts were refused in a row.
        `since`: the time at which the first of them was refused. `serves`: other attempts were served between those
        whose refusals began the limit. `served_at`: the time at which an attempt was last answered well; an earlier row
        goes on if that was before the row began, and its last attempt not long before `since`.
        """
        self.is_on, self._serves = False, serves
        if served_at >= self.since or not self._row or since - self._at >= UNKNOWN_AFTER:
            self.since = since
        self._row = row

    def refused(self, sent: float, share: float, alone: bool, now: float) -> bool:
        """Note that an attempt was refused; return whether all attempts are. `sent`: the time at which it was sent.
        `share`: the usual share of refusals (0 to 1). `alone`: no other attempt is under way, which might still be
        served.
        """
        if not self._row:
            self.since = now
        self._row += 1
        before, self._at = self._at, now
        if self.is_on:
            if sent >= before:
                self.gap = min(LAST_PROBE, 2.0 * self.gap)
        elif alone and is_row(self._row, now - self.since, max(share, _SERVES if self._serves else _SHARED)):
            self.is_on, self.gap = True, FIRST_PROBE
        return self.is_on

    def served(self, sent: float) -> bool:
        """Note that an attempt was served; return whether this ends the time in which all were refused. `sent`: the
        time at which it was sent.
        """
        if self._row and sent < self.since:
            return False  # sent before the first refusal
        was_on, self.is_on = self.is_on, False
        self._row, self._serves = 0, True
        return was_on

    def lasted(self, now: float) -> bool:
        """Whether the time in which all attempts were refused, which has just ended, was too long to be chance."""
        return now - self.since >= _LASTS

    def is_known(self, now: float) -> bool:
        """Whether all attempts are being refused, and one was refused lately."""
        return self.is_on and now - self._at < UNKNOWN_AFTER
