"""How long a strategy waits before each retry of a call: backoff, and what a pushback makes of it.

Law: a retry never comes sooner than a pushback says; only `standard-2026`'s clamp may bring it forward.
"""

from __future__ import annotations

from typing import Protocol

from proxy.retry.backoff import delay as backoff_delay
from proxy.retry.policy import Strategy


class Chance(Protocol):
    """Where jitter comes from."""

    def random(self) -> float:
        """A uniform draw from [0, 1)."""
        ...


class WaitSeries:
    """The waits of one call. `previous` is the backoff computed before, for decorrelated jitter."""

    __slots__ = ("n", "previous", "strategy")

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.n = 0
        self.previous: float | None = None

    def next(self, pushback: float | None, throttled: bool, rng: Chance) -> float:
        """Seconds to wait before the next retry."""
        strategy = self.strategy
        if strategy.hedging_delay is not None:  # an unsafe call under a hedging policy: one after another
            return strategy.hedging_delay if pushback is None else pushback
        if strategy.exact_pushback and pushback is not None:  # gRPC A6: exactly so long, and the series starts again
            self.n = 0
            return pushback
        backoff = self._backoff(throttled, rng)
        if pushback is None:
            return backoff
        if strategy.pushback_clamp is not None:  # AWS retry 2.1
            return min(max(pushback, backoff), backoff + strategy.pushback_clamp)
        return max(pushback, backoff)

    def _backoff(self, throttled: bool, rng: Chance) -> float:
        spec = self.strategy.backoff
        self.n += 1
        draw = rng.random() if spec.jitter != "none" else 0.0
        self.previous = backoff_delay(spec, self.n, draw, throttling=throttled, previous=self.previous)
        return self.previous
