"""The measure of how many attempts an upstream serves a second, including the time of the delays that it names. It
bounds the pace (attempts a second) at upstreams that count requests over time.

Contract, sections 5 and 14: where an upstream refuses without a queue, sendings are spaced in time. An upstream that
counts the requests within a second serves several attempts after a delay, at any pace, and then refuses the next. So
the pace at which it refuses says nothing, and a client that only lowers its pace little by little spends most of its
time in delays. An upstream that serves one call at a time and has no queue never serves two attempts that are sent at
once. So an upstream that does serve two such attempts is taken to count. If it then refuses again and again within a
few seconds, the pace becomes a little more than the number that it served in a second.
"""

from __future__ import annotations

_NEVER = float("inf")

#: Seconds over which it is measured what is served a second; and what is left of the best figure after so many more.
_MEASURED_OVER, _FADES = 10.0, 0.9
#: Two attempts are sent at once if the time between them is less than this part of the time between two at the pace
#: that was refused.
_AT_ONCE = 0.1
#: How many refusals in a row call for the bound, each within so many seconds of the one before, and after at least so
#: many served attempts.
_IN_A_ROW, _SOON, _SEVERAL = 3, 2.0, 5
#: The bound, as a multiple of what was served a second at best: the pace may grow when the upstream serves more.
_MORE = 1.5
#: Seconds for which it is remembered that the upstream counts; and those without a refusal that end the measure.
_KNOWN = 120.0


class Throughput:
    """The measure of how many attempts one lane's upstream serves a second. A lane is the queue of a group of callers.
    Times are seconds on the callers' clock.
    """

    __slots__ = ("_best", "_closest", "_closest_before", "_counts_until", "_from", "_in_a_row", "_refused_at", "_sent",
                 "_served")  # fmt: skip

    def __init__(self) -> None:
        self._sent = -_NEVER  # when the attempt that was served last was sent,
        self._closest = self._closest_before = _NEVER  # and the least time between two: lately, and before that
        self._counts_until = -_NEVER  # so long it is known that the upstream counts over time
        self._best = 0.0  # the most that was served a second, fading
        self._from, self._served = -_NEVER, 0  # since when it is measured, and how many were served since
        self._refused_at = -_NEVER
        self._in_a_row = 0  # refusals soon after one another

    def served(self, sent: float) -> None:
        """Note that an attempt was served. `sent`: the time at which it was sent."""
        self._closest = min(self._closest, abs(sent - self._sent))
        self._sent = sent

    def counts(self, now: float) -> bool:
        """Whether the upstream is known to count requests over time: it has served two that were sent at once."""
        return now < self._counts_until

    def bound(self, pace: float, served: int, now: float) -> float:
        """Note that an attempt was refused at the pace `pace` (attempts a second). `served`: how many were served since
        the refusal before. Returns the pace, or what the upstream can serve a second if that is clearly less.
        """
        since, self._refused_at = now - self._refused_at, now
        self._measure(served, since, now)
        if min(self._closest, self._closest_before) * pace < _AT_ONCE:
            self._counts_until = now + _KNOWN
        self._in_a_row = self._in_a_row + 1 if since < _SOON and served >= _SEVERAL else 0
        is_bound = now < self._counts_until and self._in_a_row >= _IN_A_ROW and self._best > 0.0
        return min(pace, _MORE * self._best) if is_bound else pace

    def _measure(self, served: int, since: float, now: float) -> None:
        if since > _KNOWN:
            self._best, self._from, self._served = 0.0, now, 0
            return
        self._served += served
        if now - self._from >= _MEASURED_OVER:
            self._best = max(_FADES * self._best, self._served / (now - self._from))
            self._from, self._served = now, 0
            self._closest, self._closest_before = _NEVER, self._closest
