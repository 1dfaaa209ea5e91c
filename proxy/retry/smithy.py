"""The strategies by class, behind the Smithy interface: for Python programs, and to build one's own upon.

What a call knows lives in its token, what calls share lives in a bucket and a limiter for each scope, and a
strategy holds neither. A token is good for one use: `refresh` exchanges it, `record_success` ends it; one that another
strategy issued, or that was used already, is a ValueError. A refusal (RetryError, from the failure itself) takes
nothing and uses nothing up.

Theory. A call is `acquire_initial_retry_token`, wait its delay, attempt; then `record_success`, or `refresh` with the
exception, wait the new token's delay, attempt again. The checks go in the contract's order: retryable? attempts left?
enough tokens? Then the wait is worked out by the core's own series (`proxy.retry.backoff.WaitSeries`), and the price is
taken - check and deduction without anything in between.
Source: Smithy "Retrying Requests"; smithy-python.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, ClassVar, Literal
from weakref import WeakSet

from proxy.retry import defaults, presets
from proxy.retry.backoff import ExponentialRetryBackoffStrategy, WaitSeries
from proxy.retry.buckets import Bucket, make_bucket
from proxy.retry.cubic_limiter import CubicLimiter
from proxy.retry.facts import Class
from proxy.retry.plugins import ErrorRetryInfo, HasFault, RetryBackoffStrategy, RetryError, RetryToken
from proxy.retry.policy import BucketSpec, Strategy

#: Scopes that one strategy keeps apart; beyond them the one unused for longest starts anew.
MOST_SCOPES = 10_000


class _Shared:
    """What the calls of one scope share."""

    __slots__ = ("bucket", "limiter")

    def __init__(self, bucket: BucketSpec | None, limiter: CubicLimiter | None) -> None:
        self.bucket: Bucket | None = make_bucket(bucket) if bucket is not None else None
        self.limiter = limiter


class _Waits(WaitSeries):
    """A call's waits by the core's rules, whatever backoff strategy computes the backoffs."""

    __slots__ = ("_compute", "_keywords")

    def __init__(self, definition: Strategy, backoff_strategy: RetryBackoffStrategy) -> None:
        super().__init__(definition, defaults.chance)
        self._compute: Callable[..., float] = backoff_strategy.compute_next_backoff_delay
        self._keywords = _keywords_of(backoff_strategy)

    def backoff(self, n: int, throttled: bool) -> float:
        known: dict[str, Any] = {"previous": self.previous, "throttling": throttled}
        return float(self._compute(n, **{name: known[name] for name in self._keywords}))


class IssuedToken:
    """One call's state between two attempts. `retry_delay` is seconds."""

    __slots__ = ("__weakref__", "_paid", "_shared", "_waits", "retry_count", "retry_delay")

    def __init__(self, shared: _Shared, waits: _Waits, retry_count: int, retry_delay: float) -> None:
        self.retry_count = retry_count
        self.retry_delay = retry_delay
        self._shared = shared
        self._waits = waits
        self._paid: float | None = None  # what the last retry paid

    def __repr__(self) -> str:
        return f"{type(self).__name__}(retry_count={self.retry_count}, retry_delay={self.retry_delay})"


class _BuiltInStrategy:
    """What all of them do; a kind is a definition (presets.py), and at most one rule of its own.

    `bucket`: what each scope's retries are paid from; "own" is the kind's, None is no bucket. `clock` is seconds of
    which only differences mean something, `random` a uniform draw from [0, 1).
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
        attempts = self.definition.max_attempts if max_attempts is None else max_attempts
        if attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {attempts}")
        self.max_attempts = attempts
        self.backoff_strategy = backoff_strategy or ExponentialRetryBackoffStrategy.of(self.definition.backoff, random)
        self._bucket = self.definition.own_bucket if bucket == "own" else bucket
        self._clock = clock or defaults.clock
        self._scopes: OrderedDict[str | None, _Shared] = OrderedDict()
        self._issued: WeakSet[IssuedToken] = WeakSet()
        self._lock = Lock()

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call; wait the token's delay (not 0 only for an adaptive strategy that was throttled), then send."""
        with self._lock:
            now = self._clock()
            shared = self._scope(token_scope, now)
            if shared.bucket is not None:
                shared.bucket.begin(now)
            wait = float(self.backoff_strategy.compute_next_backoff_delay(0))
            if shared.limiter is not None:
                wait = max(wait, shared.limiter.reserve(now))
            return self._issue(IssuedToken(shared, _Waits(self.definition, self.backoff_strategy), 0, wait))

    def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """The next attempt's token. Raises RetryError from `error`, or ValueError for a token that is not good."""
        with self._lock:
            token = self._own(token_to_renew)
            return self._renew(token, error, self._clock())

    def record_success(self, *, token: RetryToken) -> None:
        """The attempt of this token succeeded. Raises ValueError for a token that is not good."""
        with self._lock:
            used = self._own(token)
            now = self._clock()
            self._issued.discard(used)
            if used._shared.bucket is not None:
                used._shared.bucket.succeeded(used._paid, now)
            if used._shared.limiter is not None:
                used._shared.limiter.learn(False, now)

    def tokens_left(self, token_scope: str | None = None) -> float | None:
        """The level of a scope's bucket; None where the strategy has none."""
        with self._lock:
            now = self._clock()
            bucket = self._scope(token_scope, now).bucket
            return bucket.level(now) if bucket is not None else None

    def _renew(self, token: IssuedToken, error: Exception, now: float) -> IssuedToken:
        shared = token._shared
        throttled = bool(getattr(error, "is_throttling_error", False))
        if shared.limiter is not None:
            shared.limiter.learn(throttled, now)
        if not self._is_retryable(error):
            raise RetryError(f"not retryable: {error}") from error
        bucket = shared.bucket
        if bucket is not None:
            bucket.failed(now)
        if token.retry_count + 1 >= self.max_attempts:
            raise RetryError(f"all of {self.max_attempts} attempts were made") from error
        price = 0.0 if bucket is None else bucket.price(_class_of(error, throttled))
        if bucket is not None and not bucket.affords(price, now):
            raise RetryError("the retry bucket is empty") from error
        wait = token._waits.next(_named_delay(error), throttled)
        if shared.limiter is not None:
            wait = max(wait, shared.limiter.reserve(now))
        successor = IssuedToken(shared, token._waits, token.retry_count + 1, wait)
        if bucket is not None:
            bucket.take(price, now)
            successor._paid = price
        self._issued.discard(token)
        return self._issue(successor)

    def _is_retryable(self, error: Exception) -> bool:
        """False is never retried; None where the fault is the server's; neither protocol: no."""
        if isinstance(error, ErrorRetryInfo) and error.is_retry_safe is not None:
            return bool(error.is_retry_safe)
        return isinstance(error, HasFault) and error.fault == "server"

    def _scope(self, token_scope: str | None, now: float) -> _Shared:
        shared = self._scopes.get(token_scope)
        if shared is None:
            limiter = CubicLimiter(now) if self.definition.paced else None
            shared = self._scopes[token_scope] = _Shared(self._bucket, limiter)
            if len(self._scopes) > MOST_SCOPES:
                self._scopes.popitem(last=False)
        else:
            self._scopes.move_to_end(token_scope)
        return shared

    def _issue(self, token: IssuedToken) -> IssuedToken:
        self._issued.add(token)
        return token

    def _own(self, token: RetryToken) -> IssuedToken:
        if not isinstance(token, IssuedToken) or token not in self._issued:
            raise ValueError("this token was not issued by this strategy, or was used already")
        return token


class StandardRetryStrategy(_BuiltInStrategy):
    """AWS SDK for Java 2.x, standard: 3 attempts, 100 ms doubling to 20 s with full jitter, a quota of 500 at 5."""


class Standard2026RetryStrategy(_BuiltInStrategy):
    """AWS SDKs' retry 2.1: 50 ms (1 s after throttling), cost 14 (5); a pushback is clamped to d(n) .. d(n) + 5 s."""

    definition = presets.STANDARD_2026


class LegacyRetryStrategy(_BuiltInStrategy):
    """AWS SDK for Java 2.x, legacy: 4 attempts, 500 ms after throttling, which costs nothing."""

    definition = presets.LEGACY


class AdaptiveRetryStrategy(_BuiltInStrategy):
    """Standard behind a client-side rate limiter, which delays first attempts too: wait the initial token's delay."""

    definition = presets.ADAPTIVE


class SmithyRetryStrategy(_BuiltInStrategy):
    """Smithy's example: 6 attempts, 1 s doubling to 20 s, timeouts cost 10, +1 on every success."""

    definition = presets.SMITHY

    def _is_retryable(self, error: Exception) -> bool:
        """Only what says that it is not safe is not retried, whoever's fault it is."""
        if isinstance(error, ErrorRetryInfo):
            return error.is_retry_safe is not False
        return super()._is_retryable(error)


class GrpcRetryStrategy(_BuiltInStrategy):
    """gRPC A6: 4 attempts, 1 s tripling to 5 s; a named delay is waited exactly and starts the series again."""

    definition = presets.GRPC


class HedgingRetryStrategy(_BuiltInStrategy):
    """gRPC A6 hedging, one after another: `hedging_delay` seconds, or exactly the named delay, before each retry.

    Attempts that overlap need a driver (proxy.retry.machine); this interface knows of one attempt at a time.
    """

    definition = replace(presets.HEDGING, hedging_delay=None)  # its own backoff strategy has it

    def __init__(self, *, hedging_delay: float | None = None, **keywords: Any) -> None:
        seconds = presets.HEDGING.hedging_delay if hedging_delay is None else hedging_delay
        assert seconds is not None
        keywords.setdefault(
            "backoff_strategy", ExponentialRetryBackoffStrategy(base=seconds, max=seconds, jitter="none")
        )
        super().__init__(**keywords)


def _class_of(error: Exception, throttled: bool) -> Class:
    """What a retry after this failure is priced as."""
    if throttled:
        return Class.THROTTLING
    return Class.TIMEOUT if getattr(error, "is_timeout_error", False) else Class.TRANSIENT


def _named_delay(error: Exception) -> float | None:
    """`retry_after` in seconds; what is no such number is as if absent."""
    seconds = getattr(error, "retry_after", None)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        return None
    return float(seconds)


def _keywords_of(strategy: RetryBackoffStrategy) -> tuple[str, ...]:
    """Which of the optional keywords a backoff strategy takes."""
    parameters = inspect.signature(strategy.compute_next_backoff_delay).parameters
    return tuple(name for name in ("previous", "throttling") if name in parameters)
