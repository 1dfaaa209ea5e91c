"""The circuit breaker of one endpoint (contract, section 13, "Circuit breaker").

An attempt counts when its class is known: at the head of an answer that goes to the app (or at the part of the body
that the policy looks at), or at the end of an attempt that fails. The classes transient and timeout are signs that the
endpoint is ill. Throttling is not a sign, nor is a failure that no rule, dialect or list of the policy names. A
cancelled attempt is not counted at all.

A closed breaker counts the attempts that ended within the window, and decides at the end of each whether to open. An
open breaker lets no call pass for its open time; after that it lets one attempt at a time pass, as a probe. Other
attempts that end while it is open are not counted. A probe that succeeds closes the breaker, and attempts that were
sent before that are no longer counted. A probe that fails doubles the open time, which begins again. A probe that takes
longer than the open time no longer decides anything: the next attempt is a probe.
"""

from __future__ import annotations

import math

from proxy.retry.budgets.sliding_window import SlidingCount
from proxy.retry.policies.policy import BreakerSpec

#: Contract, section 13: the longest time that doubling leads to (seconds).
LONGEST = 60.0

NEVER = math.inf
#: Tolerance for sums of floating-point seconds and shares of counts, which may miss a bound that they equal exactly.
_EPSILON = 1e-9


class CircuitBreaker:
    """The breaker of one endpoint. `until`: the time at which the next probe may be sent (seconds); minus infinity
    while the breaker is closed.
    """

    __slots__ = ("_ended", "_forgotten", "_ill", "_is_out", "_open_for", "_probe", "spec", "until")

    def __init__(self, spec: BreakerSpec) -> None:
        self.spec = spec
        self.until = -NEVER
        self._open_for = spec.open
        self._probe = 0  # the number of the newest probe
        self._is_out = False  # whether that probe is under way
        self._forgotten = -NEVER  # when the counts were last cleared: earlier attempts no longer count
        self._ended = SlidingCount(spec.window)
        self._ill = SlidingCount(spec.window)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open, even if a probe is due or under way."""
        return self.until > -NEVER

    def passes(self, now: float) -> bool:
        """Whether a call may be sent to the endpoint now. While the breaker is open, such a call is its probe."""
        return now >= self.until - _EPSILON

    def seconds_left(self, now: float) -> float:
        """Seconds until a call may be sent; 0 if one may now."""
        return max(0.0, self.until - now)

    def enter(self, now: float) -> int | None:
        """Admit an attempt that is about to be sent. Returns 0 if the breaker is closed; the number of the probe that
        the attempt becomes if the breaker is open; None if the attempt may not be sent.
        """
        if not self.is_open:
            return 0
        if not self.passes(now):
            return None
        self._probe += 1
        self._is_out = True
        self.until = now + self._open_for
        return self._probe

    def ended(self, ill: bool, sent: float, probe: int, now: float) -> bool | None:
        """Count an attempt now that its class is known. `ill`: the class is a sign that the endpoint is ill. `sent`:
        the time at which the attempt was sent. `probe`: the number of the probe that the attempt was, 0 for none.
        Returns True if the breaker opened, False if it closed, None if neither.
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
        """Count an attempt as a sign of an ill endpoint after all: it was counted as healthy when its head came, but
        has ended with a bad gRPC status. `sent`: the time at which it was sent. Returns True if the breaker opened,
        otherwise None.
        """
        if self.is_open or sent < self._forgotten:
            return None
        self._ill.add(now)
        return self._judge(now)

    def undecided(self, probe: int, now: float) -> None:
        """End a probe that was cancelled, or not sent at all, without a verdict: the next probe may be sent at once.
        `probe`: its number, 0 for none.
        """
        if probe and self._decides(probe, now):
            self._is_out = False
            self.until = now

    def _decides(self, probe: int, now: float) -> bool:
        return self._is_out and probe == self._probe and now <= self.until + _EPSILON

    def _judge(self, now: float) -> bool | None:
        """Open the breaker if enough attempts have ended, and enough of them were signs of an ill endpoint. Returns
        True if the breaker opened, otherwise None.
        """
        spec, ended = self.spec, self._ended.count(now)
        if ended < spec.minimum_attempts or self._ill.count(now) < spec.failure_ratio * ended - _EPSILON:
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
