"""The circuit breaker of one endpoint (contract, section 13, "Circuit breaker").

An attempt counts when its class is known: at the head of an answer that goes to the app (or at what a policy has
looked at beyond it), at the end of one that fails. What is transient or a timeout is a sign of illness; a throttling is
none, nor is a failure that nothing names, and what was cancelled counts not at all.

Closed, it counts what ended within the window, and judges at each end. Open, it lets nobody pass, but one call at a
time as a probe once its time is over: so nothing else that ends meanwhile is counted. A probe that ends well closes it,
and whatever was sent before that tells of a time that is forgotten. One that fails doubles the time; one that has not
ended by the end of another such time, or never does, decides nothing.
"""

from __future__ import annotations

import math

from proxy.retry.policy import BreakerSpec
from proxy.retry.sliding_window import SlidingCount

#: Contract, section 13: the longest time that doubling leads to (seconds).
LONGEST = 60.0

NEVER = math.inf
#: Sums of floating-point seconds, and shares of counts, may miss what they meet exactly.
_HAIR = 1e-9


class CircuitBreaker:
    """One endpoint's breaker. `until`: when the next probe may go (seconds), minus infinity while it is closed."""

    __slots__ = ("_ended", "_forgotten", "_ill", "_is_out", "_open_for", "_probe", "spec", "until")

    def __init__(self, spec: BreakerSpec) -> None:
        self.spec = spec
        self.until = -NEVER
        self._open_for = spec.open
        self._probe = 0  # the number of the newest probe,
        self._is_out = False  # and whether it has not ended yet
        self._forgotten = -NEVER  # when the window was forgotten last
        self._ended = SlidingCount(spec.window)
        self._ill = SlidingCount(spec.window)

    @property
    def is_open(self) -> bool:
        """Whether it is open, though a probe may be due or under way."""
        return self.until > -NEVER

    def passes(self, now: float) -> bool:
        """Whether a call may be sent now; if it is open, as its probe."""
        return now >= self.until - _HAIR

    def seconds_left(self, now: float) -> float:
        """Seconds until a call may be sent."""
        return max(0.0, self.until - now)

    def enter(self, now: float) -> int | None:
        """An attempt is about to be sent: 0; the number of the probe that it is; or None, it may not be."""
        if not self.is_open:
            return 0
        if not self.passes(now):
            return None
        self._probe += 1
        self._is_out = True
        self.until = now + self._open_for
        return self._probe

    def ended(self, ill: bool, sent: float, probe: int, now: float) -> bool | None:
        """The class of an attempt is known that was sent at `sent`, as this `probe` (0: as none). Whether it opened
        (True) or closed the breaker; None: neither.
        """
        if probe and self._decides(probe, now):
            self._is_out = False
            if ill:
                self._open(max(self._open_for, min(2 * self._open_for, LONGEST)), now)
                return None
            self._close(now)
            return False
        if self.is_open or sent < self._forgotten:
            return None
        self._ended.add(now)
        if ill:
            self._ill.add(now)
        return self._judge(now)

    def turned_ill(self, sent: float, now: float) -> bool | None:
        """An attempt that had ended well was ill after all: a gRPC status came behind its messages. As above."""
        if self.is_open or sent < self._forgotten:
            return None
        self._ill.add(now)
        return self._judge(now)

    def undecided(self, probe: int, now: float) -> None:
        """This probe will never end: it was cancelled, or not sent at all. The next one may go."""
        if probe and self._decides(probe, now):
            self._is_out = False
            self.until = now

    def _decides(self, probe: int, now: float) -> bool:
        return self._is_out and probe == self._probe and now <= self.until + _HAIR

    def _judge(self, now: float) -> bool | None:
        """Open it where enough has ended, and enough of that was ill; True where it does."""
        spec, ended = self.spec, self._ended.count(now)
        if ended < spec.minimum_attempts or self._ill.count(now) < spec.failure_ratio * ended - _HAIR:
            return None
        self._open(spec.open, now)
        return True

    def _open(self, seconds: float, now: float) -> None:
        self._open_for = seconds
        self.until = now + seconds

    def _close(self, now: float) -> None:
        self.until = -NEVER
        self._forgotten = now
        self._ended.clear()
        self._ill.clear()
