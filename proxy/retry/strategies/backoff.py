"""How long to wait before retry n: exponential growth up to a maximum, times a jitter.

Law: a pure function of (definition, n, draw). The backoff computed before, which `decorrelated` needs, is an argument,
and is kept in the call's token. So two calls can never share it (smithy-python keeps it on the shared strategy object,
and mixes the series of concurrent calls).

Theory (contract, section 3). `cap(n) = min(max, base * multiplier^(n-1))` for n = 1, 2, ...; r is uniform in [0, 1).

    none          cap                       full          r * cap
    equal         (0.5 + 0.5 r) * cap       proportional  (0.8 + 0.4 r) * cap      (gRPC A6 as published; may pass max)
    decorrelated  min(max, base + r * (3 * previous - base)), previous = base before the first retry

Sources: AWS Architecture Blog "Exponential Backoff And Jitter" (full, equal, decorrelated); gRPC A6 (proportional). A
`max` below `base`, and zeros, are accepted: the formulas hold for them too.

`WaitSeries` combines the backoff with pushbacks: a retry is never sent sooner than a pushback says, except that the
clamp of `standard-2026` limits how long a pushback may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from proxy.retry.policies.policy import Backoff, Jitter, Strategy
from proxy.retry.strategies import arguments, defaults

#: The largest exponent that is used: a float still holds it exactly, and any power of it is infinite, 1 or 0.
_LARGEST_EXPONENT = 2**53


def needs_draw(backoff: Backoff) -> bool:
    """Whether `delay` uses its random draw; callers draw only if it does."""
    return backoff.jitter != "none"


def delay(backoff: Backoff, n: int, r: float, throttling: bool = False, previous: float | None = None) -> float:
    """The seconds to wait before retry `n` (1, 2, ...; for the initial attempt, with `n` below 1, the result is 0).
    `r`: a draw from [0, 1).

    `throttling`: whether the previous attempt failed by throttling, so that `throttling_base` replaces `base`.
    `previous`: the backoff that was computed last in this call (not a pushback), None before the first retry.
    """
    if n < 1:
        return 0.0
    base = backoff.base
    if throttling and backoff.throttling_base is not None:
        base = backoff.throttling_base
    if backoff.jitter == "decorrelated":
        before = base if previous is None else previous
        return min(backoff.max, base + _times(r, 3.0 * before - base))
    cap = min(backoff.max, base * 1.0 if n == 1 else _times(base, _power(backoff.multiplier, n - 1)))
    match backoff.jitter:
        case "full":
            return _times(r, cap)
        case "equal":
            return (0.5 + 0.5 * r) * cap
        case "proportional":
            return (0.8 + 0.4 * r) * cap
        case _:
            return cap


def _power(multiplier: float, exponent: int) -> float:
    """multiplier^exponent, or infinity if a float can't hold it."""
    try:
        return float(multiplier) ** min(exponent, _LARGEST_EXPONENT)
    except OverflowError:
        return math.inf


def _times(left: float, right: float) -> float:
    """The product of two numbers of zero or more, in which zero times infinity is zero: a delay of zero stays zero,
    however often it is doubled.
    """
    return left * right if left and right else 0.0


class Chance(Protocol):
    """The source of jitter's random draws."""

    def random(self) -> float:
        """A uniform draw from [0, 1)."""


class WaitSeries:
    """The series of waits between one call's attempts. `n`: how many backoffs were computed so far in the series.
    `previous`: the last of them in seconds, which decorrelated jitter needs. `strategy`: the policy's strategy. `rng`:
    the source of random draws.
    """

    __slots__ = ("n", "previous", "rng", "strategy")

    previous: float | None

    def __init__(self, strategy: Strategy, rng: Chance) -> None:
        self.strategy = strategy
        self.rng = rng
        self.n = 0
        self.previous = None

    def next_wait(self, pushback: float | None, throttled: bool) -> float:
        """The seconds to wait before the next retry. `pushback`: the seconds that the upstream asked to wait, None if
        it did not ask. `throttled`: the failure was throttling.
        """
        strategy = self.strategy
        if (
            strategy.hedging_delay is not None
        ):  # a hedging policy whose call may not be hedged: its attempts follow each other
            return strategy.hedging_delay if pushback is None else pushback
        if strategy.exact_pushback and pushback is not None:  # gRPC A6: wait exactly this long; the series starts again
            self.n, self.previous = 0, None
            return pushback
        backoff = self.previous = self.backoff(self.n + 1, throttled)
        self.n += 1
        if pushback is None:
            return backoff
        if strategy.pushback_clamp is not None:  # AWS retry 2.1
            return min(max(pushback, backoff), backoff + strategy.pushback_clamp)
        return max(pushback, backoff)

    def backoff(self, n: int, throttled: bool) -> float:
        """The backoff before retry n, in seconds. `throttled`: the failure was throttling."""
        spec = self.strategy.backoff
        draw = self.rng.random() if spec.jitter != "none" else 0.0  # `needs_draw`
        return delay(spec, n, draw, throttled, self.previous)


class ExponentialRetryBackoffStrategy:
    """This module's formulas as a `RetryBackoffStrategy`. It keeps no state: the previous backoff is an argument.

    Times are seconds; `random` returns a uniform draw from [0, 1), and is called only if the jitter needs a draw.
    Raises ValueError for an invalid argument.
    """

    def __init__(
        self,
        *,
        base: float = 0.1,
        max: float = 20.0,
        multiplier: float = 2.0,
        jitter: Jitter = "full",
        throttling_base: float | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        if throttling_base is not None:
            arguments.number("throttling_base", throttling_base, unit="seconds")
        self.backoff = Backoff(
            arguments.number("base", base, unit="seconds"),
            arguments.number("max", max, unit="seconds", endless=True),
            arguments.number("multiplier", multiplier),
            arguments.jitter(jitter),
            throttling_base,
        )
        self._draw = arguments.function("random", random, "a draw from [0, 1)") or defaults.draw

    @classmethod
    def of(cls, backoff: Backoff, random: Callable[[], float] | None = None) -> ExponentialRetryBackoffStrategy:
        """Make a strategy from the definition `backoff`. `random`: the function that returns draws from [0, 1); None
        for the default source.
        """
        strategy = cls(random=random)
        strategy.backoff = backoff
        return strategy

    def compute_next_backoff_delay(
        self, retry_attempt: int, *, previous: float | None = None, throttling: bool = False
    ) -> float:
        """The seconds to wait before the retry with the number `retry_attempt` (1, 2, ...); 0 for attempt 0.

        `previous`: the last backoff in seconds, for decorrelated jitter. `throttling`: whether the last failure was
        throttling.
        """
        if retry_attempt < 1:
            return 0.0
        draw = self._draw() if needs_draw(self.backoff) else 0.0
        return delay(self.backoff, retry_attempt, draw, throttling=throttling, previous=previous)
