"""The adaptive strategy's client-side rate limiter: CUBIC, as the AWS SDKs have it (ADAPTIVE_V2).

The limiter is off until the first throttling answer. From then on every send takes one token, and every attempt's end
changes the rate: a throttled attempt lowers it to BETA of its value, and any other raises it along a cubic curve that
is flat around the rate at which the last throttling happened. The rate never exceeds twice the measured rate, so an
idle client does not learn to send faster.

Theory. The measured rate counts ended attempts in half-second buckets, smoothed (new bucket 0.8, history 0.2). After a
throttling at rate w the curve is SCALE * (t - K)^3 + w with K = cbrt(w * (1 - BETA) / SCALE): it starts at BETA * w,
returns to w after K seconds, and probes beyond. Source: AWS SDKs' retry specification, as smithy-rs
`client_rate_limiter.rs` and botocore `retries/{adaptive,throttling,bucket}.py` have it; tables in tests/vectors/raw.
"""

from __future__ import annotations

import math

from proxy.retry.budgets.token_bucket import TokenBucket, TokenGate
from proxy.retry.instants import EPSILON

MIN_FILL_RATE = 0.5  # tokens a second
MIN_CAPACITY = 1.0
SMOOTH = 0.8
BETA = 0.7
SCALE_CONSTANT = 0.4
BUCKETS_PER_SECOND = 2  # measuring buckets of half a second
RATE_CAP_FACTOR = 2.0


class CubicLimiter(TokenBucket):
    """The limiter of one scope, and its gate. `started`: the time at which it is made, on the driver's clock.

    A caller that can wait and ask again uses `wait` and `take`; callers are served in order of arrival. A caller that
    can't come back to ask uses `reserve`. `learn` must be called at every attempt's end.
    """

    __slots__ = ("_count", "_last_bucket", "_last_max_rate", "_last_throttle", "enabled", "gate", "measured_rate")

    def __init__(self, started: float = 0.0) -> None:
        super().__init__(0.0, 0.0, 0.0, started)
        self.gate = TokenGate(self)
        self.enabled = False
        self.measured_rate = self._count = self._last_max_rate = 0.0
        self._last_bucket = float(math.floor(started))
        self._last_throttle = started

    def state(self) -> tuple[float, ...]:
        """The limiter's state as numbers, for stores outside this process (`proxy.stores`)."""
        known = self.enabled, self.rate, self.capacity, self._level, self._at, self.measured_rate
        return (*known, self._count, self._last_bucket, self._last_max_rate, self._last_throttle)

    def restore(self, state: tuple[float, ...]) -> None:
        """Take over a state that the method `state` returned, of this object or of another."""
        enabled, self.rate, self.capacity, self._level, self._at, self.measured_rate = state[:6]
        self._count, self._last_bucket, self._last_max_rate, self._last_throttle = state[6:]
        self.enabled = bool(enabled)

    @property
    def fill_rate(self) -> float:
        """The rate in tokens a second."""
        return self.rate

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until the limiter has this many tokens; 0 while the limiter is off."""
        return super().wait(now, tokens) if self.enabled else 0.0

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take `price` tokens for a send, and return True; if there are fewer, return False. While the limiter is off,
        no token is taken, and True is returned.
        """
        return super().take(now, price) if self.enabled else True

    @property
    def charges(self) -> bool:
        """Whether tokens are taken at the moment: not while the limiter is off."""
        return self.enabled

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        """Put back tokens that were taken and not used."""
        if self.enabled:
            super().give_back(now, tokens)

    def reserve(self, now: float) -> float:
        """Take a token in advance, for a caller that can't ask again. Returns the seconds until the caller may send,
        which is when the rate has brought this token. Each later reservation waits for longer.
        """
        if not self.enabled:
            return 0.0
        seconds = super().wait(now)
        self._level -= 1
        return seconds

    def learn(self, throttled: bool, now: float) -> None:
        """Adjust the rate at an attempt's end. `throttled`: the attempt was throttled (a timeout is no throttling)."""
        self._count += 1
        bucket = math.floor((now + EPSILON) * BUCKETS_PER_SECOND) / BUCKETS_PER_SECOND
        if bucket > self._last_bucket:
            current = self._count / (bucket - self._last_bucket)
            self.measured_rate = SMOOTH * current + (1 - SMOOTH) * self.measured_rate
            self._count, self._last_bucket = 0.0, bucket
        if throttled:
            rate = min(self.measured_rate, self.rate) if self.enabled else self.measured_rate
            self._last_max_rate = rate
            self._last_throttle = now
            self.enabled = True
            calculated = rate * BETA
        else:
            calculated = self.cubic_rate(now)
        self._set_rate(min(calculated, RATE_CAP_FACTOR * self.measured_rate), now)

    def cubic_rate(self, now: float) -> float:
        """The rate that the curve allows at `now`, from the time since the last throttling."""
        window = math.cbrt(self._last_max_rate * (1 - BETA) / SCALE_CONSTANT)
        return float(SCALE_CONSTANT * (now - self._last_throttle - window) ** 3 + self._last_max_rate)

    def _set_rate(self, rate: float, now: float) -> None:
        """Set the rate (tokens a second) from `now` on. The tokens of the time before are first added at the old rate,
        however.
        """
        self._refill(now)
        self.rate = max(rate, MIN_FILL_RATE)
        self.capacity = max(rate, MIN_CAPACITY)
        self._level = min(self._level, self.capacity)
