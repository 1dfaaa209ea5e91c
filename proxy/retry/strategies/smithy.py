"""The strategies as classes with the Smithy interface, for Python programs to use and to build upon.

What one call knows is kept in its token, and what calls share in a bucket and a limiter for each scope; a strategy
holds neither. A token is valid for one use: `refresh_retry_token_for_retry` exchanges it, and `record_success` ends it.
A token that another strategy issued, or that was used already, raises ValueError. A refusal (RetryError, from the
failure itself) takes no tokens from the bucket and leaves the call's token valid.

Theory. A caller uses `acquire_initial_retry_token`, waits the token's delay, and makes the attempt. Then it uses
`record_success`; or it uses `refresh_retry_token_for_retry` with the exception, waits the new token's delay, and makes
the next attempt. The checks are in the contract's order: is the error retryable, are attempts left, are there enough
tokens? Then the wait is computed by the core's own series (`proxy.retry.strategies.backoff.WaitSeries`), and the price
is taken - check and deduction without anything in between. Source: Smithy "Retrying Requests"; smithy-python.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar, Literal, Self
from weakref import WeakSet

from proxy.retry.budgets.buckets import Bucket, make_bucket
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.facts import Class
from proxy.retry.plugins import ErrorRetryInfo, HasFault, RetryBackoffStrategy, RetryError, RetryToken
from proxy.retry.policies.bucket_specs import BucketSpec
from proxy.retry.policies.policy import Strategy
from proxy.retry.strategies import arguments, defaults, presets
from proxy.retry.strategies.backoff import ExponentialRetryBackoffStrategy, WaitSeries

#: The most scopes of one strategy; beyond them the one unused for longest is forgotten.
MOST_SCOPES = 10_000

#: The bucket and the limiter that the calls of one scope share.
Shared = tuple[Bucket | None, CubicLimiter | None]


class _Waits(WaitSeries):
    """The waits between one call's attempts: the core's rules for pushbacks, with backoffs that `backoff_strategy`
    computes.
    """

    __slots__ = ("_compute", "_keywords")

    def __init__(self, definition: Strategy, backoff_strategy: RetryBackoffStrategy) -> None:
        super().__init__(definition, defaults.chance)
        self._compute: Callable[..., float] = backoff_strategy.compute_next_backoff_delay
        parameters = inspect.signature(self._compute).parameters
        self._keywords = [name for name in ("previous", "throttling") if name in parameters]

    def backoff(self, n: int, throttled: bool) -> float:
        known: dict[str, Any] = {"previous": self.previous, "throttling": throttled}
        return float(self._compute(n, **{name: known[name] for name in self._keywords}))


@dataclass(slots=True, weakref_slot=True, eq=False, kw_only=True)
class IssuedToken:
    """The token that one call holds from one attempt to the next. `retry_count`: the number of retries so far.
    `retry_delay`: the seconds to wait before the attempt. `paid`: the tokens of the bucket that the last retry paid.
    """

    retry_count: int
    retry_delay: float
    shared: Shared = field(repr=False)
    waits: WaitSeries = field(repr=False)
    paid: float | None = field(default=None, repr=False)


class _BuiltInStrategy:
    """The base of the built-in strategies. Each of them is a definition (presets.py), with at most one rule of its own.

    `bucket`: the bucket that the retries of each scope are paid from; "own" is the definition's bucket, None is no
    bucket. `clock`: returns seconds, of which only differences matter. `random`: returns a uniform draw from [0, 1).
    Raises ValueError for an invalid argument. A deep copy is the strategy itself, so that a copied client configuration
    shares its buckets.
    """

    definition: ClassVar[Strategy] = presets.STANDARD

    def __init__(
        self,
        *,
        max_attempts: int | None = None,
        backoff_strategy: RetryBackoffStrategy | None = None,
        bucket: BucketSpec | Literal["own"] | None = "own",
        clock: Callable[[], float] | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        arguments.function("random", random, "a draw from [0, 1)")
        arguments.function("clock", clock, "seconds")
        self.max_attempts = self.definition.max_attempts if max_attempts is None else arguments.attempts(max_attempts)
        if not isinstance(backoff_strategy, RetryBackoffStrategy | None) or isinstance(backoff_strategy, type):
            raise ValueError(f"backoff_strategy must have compute_next_backoff_delay, not be {backoff_strategy!r}")
        self.backoff_strategy = backoff_strategy or ExponentialRetryBackoffStrategy.of(self.definition.backoff, random)
        own = replace(self.definition, max_attempts=self.max_attempts).default_bucket
        self._bucket = own if bucket == "own" else arguments.bucket(bucket)
        self._clock = clock or defaults.clock
        self._scopes: OrderedDict[str | None, Shared] = OrderedDict()
        self._issued: WeakSet[IssuedToken] = WeakSet()
        self._lock = Lock()

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call in the scope named `token_scope` (None: the scope without a name), and return the token of its
        first attempt. The caller waits the token's delay, which is 0 except for an adaptive strategy that was
        throttled.
        """
        with self._lock:
            now = self._clock()
            bucket, limiter = shared = self._scope(token_scope, now)
            if bucket is not None:
                bucket.begin(now)
            wait = float(self.backoff_strategy.compute_next_backoff_delay(0))
            if limiter is not None:
                wait = max(wait, limiter.reserve(now))
            waits = _Waits(self.definition, self.backoff_strategy)
            token = IssuedToken(retry_count=0, retry_delay=wait, shared=shared, waits=waits)
            self._issued.add(token)
            return token

    def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange `token_to_renew`, a failed attempt's token, for the next attempt's token. Raises RetryError from
        `error` if there is no next attempt, and ValueError for a token that is not valid.
        """
        with self._lock:
            token = self._own(token_to_renew)
            now, (bucket, limiter) = self._clock(), token.shared
            throttled = bool(getattr(error, "is_throttling_error", False))
            if limiter is not None:
                limiter.learn(throttled, now)
            if not self._is_retryable(error):
                raise RetryError(f"not retryable: {error}") from error
            if bucket is not None:
                bucket.failed(now)
            if token.retry_count + 1 >= self.max_attempts:
                raise RetryError(f"all of {self.max_attempts} attempts were made") from error
            timed_out = Class.TIMEOUT if getattr(error, "is_timeout_error", False) else Class.TRANSIENT
            price = 0.0 if bucket is None else bucket.price(Class.THROTTLING if throttled else timed_out)
            if bucket is not None and not bucket.affords(price, now):
                raise RetryError("the retry bucket is empty") from error
            wait = token.waits.next_wait(_named_delay(error), throttled)
            if limiter is not None:
                wait = max(wait, limiter.reserve(now))
            renewed = IssuedToken(
                retry_count=token.retry_count + 1, retry_delay=wait, shared=token.shared, waits=token.waits
            )
            if bucket is not None:
                bucket.take(price, now)
                renewed.paid = price
            self._issued.discard(token)
            self._issued.add(renewed)
            return renewed

    def record_success(self, *, token: RetryToken) -> None:
        """Record that the attempt of this token succeeded. Raises ValueError for a token that is not valid."""
        with self._lock:
            used = self._own(token)
            now, (bucket, limiter) = self._clock(), used.shared
            self._issued.discard(used)
            if bucket is not None:
                bucket.succeeded(used.paid, now)
            if limiter is not None:
                limiter.learn(False, now)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def tokens_left(self, token_scope: str | None = None) -> float | None:
        """The level of the bucket of the scope named `token_scope` (None: the scope without a name); None if the
        strategy has no bucket.
        """
        with self._lock:
            now = self._clock()
            bucket, _ = self._scope(token_scope, now)
            return bucket.level(now) if bucket is not None else None

    def _is_retryable(self, error: Exception) -> bool:
        """Whether the error may be retried. Its `is_retry_safe` decides; if that is None or absent, the error may be
        retried if the fault is the server's.
        """
        if isinstance(error, ErrorRetryInfo) and error.is_retry_safe is not None:
            return bool(error.is_retry_safe)
        return isinstance(error, HasFault) and error.fault == "server"

    def _scope(self, token_scope: str | None, now: float) -> Shared:
        shared = self._scopes.pop(token_scope, None)
        if shared is None:
            bucket = None if self._bucket is None else make_bucket(self._bucket)
            shared = bucket, CubicLimiter(now) if self.definition.paced else None
        self._scopes[token_scope] = shared
        if len(self._scopes) > MOST_SCOPES:
            self._scopes.popitem(last=False)
        return shared

    def _own(self, token: RetryToken) -> IssuedToken:
        if not isinstance(token, IssuedToken) or token not in self._issued:
            raise ValueError("this token was not issued by this strategy, or was used already")
        return token


class StandardRetryStrategy(_BuiltInStrategy):
    """AWS SDK for Java 2.x, standard: 3 attempts, 100 ms doubling to 20 s with full jitter, a quota of 500 tokens of
    which each retry takes 5.
    """


class Standard2026RetryStrategy(_BuiltInStrategy):
    """AWS SDKs' retry 2.1: a base of 50 ms (1 s after throttling), a retry costs 14 tokens (5 after throttling); a
    pushback is clamped to between the backoff and the backoff + 5 s.
    """

    definition = presets.STANDARD_2026


class LegacyRetryStrategy(_BuiltInStrategy):
    """AWS SDK for Java 2.x, legacy: 4 attempts, and a base of 500 ms after throttling. A retry after throttling costs
    no tokens.
    """

    definition = presets.LEGACY


class AdaptiveRetryStrategy(_BuiltInStrategy):
    """The standard strategy with a client-side rate limiter. It delays first attempts too, so callers must wait the
    initial token's delay.
    """

    definition = presets.ADAPTIVE


class SmithyRetryStrategy(_BuiltInStrategy):
    """Smithy's example: 6 attempts, 1 s doubling to 20 s; a retry after a timeout costs 10 tokens, and every success
    earns 1.
    """

    definition = presets.SMITHY

    def _is_retryable(self, error: Exception) -> bool:
        """Whether the error may be retried. An error with the attributes of `ErrorRetryInfo` may, unless its
        `is_retry_safe` is False, whoever's fault it is. Any other error is judged as by the base class.
        """
        if isinstance(error, ErrorRetryInfo):
            return error.is_retry_safe is not False
        return super()._is_retryable(error)


class GrpcRetryStrategy(_BuiltInStrategy):
    """gRPC A6: 4 attempts, 1 s tripling to 5 s. A delay that the error names is waited exactly, and then the series of
    backoffs starts again.
    """

    definition = presets.GRPC


class HedgingRetryStrategy(_BuiltInStrategy):
    """gRPC A6's hedging policy with one attempt after another: before each retry comes a wait of `hedging_delay`
    seconds, or the delay that the error names. Attempts that overlap need a driver (proxy.retry.call.machine); this
    interface handles one attempt at a time.
    """

    definition = replace(presets.HEDGING, hedging_delay=None)  # the delay is in its own backoff strategy

    def __init__(self, *, hedging_delay: float | None = None, **keywords: Any) -> None:
        seconds = presets.HEDGING.hedging_delay if hedging_delay is None else hedging_delay
        arguments.number("hedging_delay", seconds, unit="seconds")
        assert seconds is not None
        own = ExponentialRetryBackoffStrategy(base=seconds, max=seconds, jitter="none")
        super().__init__(**{"backoff_strategy": own, **keywords})


def _named_delay(error: Exception) -> float | None:
    """The error's `retry_after` in seconds; None if it has none, or none that is a valid number."""
    seconds = getattr(error, "retry_after", None)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        return None
    return float(seconds)
