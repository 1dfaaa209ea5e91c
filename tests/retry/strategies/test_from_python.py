"""What a program that uses the strategies relies on: arguments, copies, and awaiting."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from support.failures import Failure

from proxy.retry import (
    AdaptiveRetryStrategy,
    BudgetSpec,
    ExponentialRetryBackoffStrategy,
    GrpcRetryStrategy,
    HedgingRetryStrategy,
    LegacyRetryStrategy,
    QuotaSpec,
    RetryError,
    SmithyRetryStrategy,
    Standard2026RetryStrategy,
    StandardRetryStrategy,
    ThrottleSpec,
    aio,
)
from proxy.retry.policies.bucket_specs import RateSpec

CLASSES: list[Any] = [
    StandardRetryStrategy,
    Standard2026RetryStrategy,
    LegacyRetryStrategy,
    AdaptiveRetryStrategy,
    SmithyRetryStrategy,
    GrpcRetryStrategy,
    HedgingRetryStrategy,
]
Backoff = ExponentialRetryBackoffStrategy
Standard = StandardRetryStrategy
Hedging = HedgingRetryStrategy


@pytest.mark.parametrize(
    ("make", "arguments", "said"),
    [
        (Backoff, {"jitter": "ful"}, "jitter must be one of none, full, equal, proportional, decorrelated, not 'ful'"),
        (Backoff, {"jitter": "FULL"}, r"not 'FULL' \(did you mean 'full'\?\)"),
        (Backoff, {"jitter": None}, "jitter must be one of"),
        (Backoff, {"jitter": ["full"]}, "jitter must be one of"),
        (Backoff, {"base": -0.1}, r"base must be a number of seconds, zero or more and finite, not -0\.1"),
        (Backoff, {"base": "1s"}, "base must be a number of seconds, not '1s'"),
        (Backoff, {"base": True}, "base must be a number of seconds, not True"),
        (Backoff, {"base": math.nan}, "base must be a number of seconds, zero or more and finite, not nan"),
        (Backoff, {"base": math.inf}, "base must be .* not inf"),
        (Backoff, {"max": -1}, "max must be a number of seconds, zero or more, not -1"),
        (Backoff, {"max": None}, "max must be a number of seconds, not None"),
        (Backoff, {"multiplier": -2}, "multiplier must be a number, zero or more and finite, not -2"),
        (Backoff, {"throttling_base": -1}, "throttling_base must be"),
        (Backoff, {"random": 0.5}, r"random must be a function that gives a draw from \[0, 1\), not 0\.5"),
        (Standard, {"max_attempts": 0}, "max_attempts must be at least 1, not 0: it counts the first attempt too"),
        (Standard, {"max_attempts": 2.5}, r"max_attempts must be a whole number, not 2\.5"),
        (Standard, {"max_attempts": "3"}, "max_attempts must be a whole number, not '3'"),
        (Standard, {"max_attempts": True}, "max_attempts must be a whole number, not True"),
        (Standard, {"backoff_strategy": 0.5}, r"backoff_strategy must have compute_next_backoff_delay, not be 0\.5"),
        (
            Standard,
            {"backoff_strategy": Backoff},
            "backoff_strategy must have compute_next_backoff_delay, not be <class",
        ),
        (Standard, {"random": 1}, "random must be a function"),
        (Standard, {"clock": 1.0}, r"clock must be a function that gives seconds, not 1\.0"),
        (
            Standard,
            {"bucket": "quota"},
            "bucket must be a QuotaSpec, a ThrottleSpec, a BudgetSpec, None for none or 'own'",
        ),
        (Standard, {"bucket": 500}, "bucket must be a QuotaSpec"),
        (Standard, {"bucket": RateSpec(1, 1)}, "limits all attempts"),
        (Standard, {"bucket": BudgetSpec(window=0)}, r"BudgetSpec\.window must be longer than 0"),
        (Standard, {"bucket": QuotaSpec(capacity=-1)}, r"QuotaSpec\.capacity must be a number, zero or more"),
        (Standard, {"bucket": QuotaSpec(initial=math.nan)}, r"QuotaSpec\.initial must be a number"),
        (Standard, {"bucket": QuotaSpec(store="redis")}, "store must be 'memory' here"),
        (Hedging, {"hedging_delay": -1}, "hedging_delay must be a number of seconds, zero or more and finite, not -1"),
        (Hedging, {"hedging_delay": "p95"}, "hedging_delay must be a number of seconds, not 'p95'"),
        (Hedging, {"max_attempts": -1}, "max_attempts must be at least 1, not -1"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said_as_it_is_passed(
    make: Any, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as told:
        make(**arguments)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("made", CLASSES)
def test_what_is_right_is_taken(made: Any) -> None:
    own = Backoff(base=0, max=math.inf, multiplier=0.5, jitter="none", throttling_base=2, random=lambda: 0.5)
    for bucket in ("own", None, QuotaSpec(0), QuotaSpec(10, initial=3, refill=0.5), ThrottleSpec(), BudgetSpec(0)):
        strategy = made(max_attempts=1, backoff_strategy=own, bucket=bucket, clock=lambda: 0.0, random=lambda: 0.0)
        assert strategy.acquire_initial_retry_token().retry_count == 0
    assert Backoff(base=5, max=1).compute_next_backoff_delay(1) <= 1


@pytest.mark.parametrize("made", CLASSES)
def test_a_deep_copy_shares_the_bucket(made: Any) -> None:
    """As smithy-core's strategies do it: its clients copy their configuration for every call."""
    strategy = made(random=lambda: 0.0)
    config = copy.deepcopy({"retry_strategy": strategy, "awaited": aio.wrap(strategy), "backoff": Backoff()})
    assert config["retry_strategy"] is strategy and config["awaited"].strategy is strategy
    token = strategy.acquire_initial_retry_token()
    config["retry_strategy"].record_success(token=token)


# -- awaited ----------------------------------------------------------------------------------------------------------


class Refusing:
    """A strategy of one's own that has no initial token to give."""

    backoff_strategy = Backoff()
    max_attempts = 2

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Any:
        raise RetryError(f"nothing for {token_scope}")

    def refresh_retry_token_for_retry(self, *, token_to_renew: Any, error: Exception) -> Any:
        raise RetryError("never")

    def record_success(self, *, token: Any) -> None:
        raise ValueError("no such token")


class Awaited:
    backoff_strategy = Backoff()
    max_attempts = 2

    async def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Any: ...

    async def refresh_retry_token_for_retry(self, *, token_to_renew: Any, error: Exception) -> Any: ...

    async def record_success(self, *, token: Any) -> None: ...


@pytest.mark.parametrize("made", CLASSES)
async def test_any_strategy_is_awaited(made: Any) -> None:
    strategy = made(random=lambda: 0.0)
    awaited = aio.wrap(strategy)
    assert isinstance(awaited, aio.AwaitedRetryStrategy)
    assert awaited.max_attempts == strategy.max_attempts
    assert awaited.backoff_strategy is strategy.backoff_strategy
    token = await awaited.acquire_initial_retry_token(token_scope="a")
    token = await awaited.refresh_retry_token_for_retry(token_to_renew=token, error=Failure())
    assert token.retry_count == 1
    await awaited.record_success(token=token)
    with pytest.raises(ValueError, match="used already"):
        await awaited.record_success(token=token)
    token, failure = await awaited.acquire_initial_retry_token(), Failure(safe=False)
    with pytest.raises(aio.RetryError, match="not retryable") as no:
        await awaited.refresh_retry_token_for_retry(token_to_renew=token, error=failure)
    assert isinstance(no.value, RetryError) and no.value.__cause__ is failure


async def test_one_of_ones_own_is_awaited() -> None:
    awaited, failure = aio.wrap(Refusing()), Failure()
    with pytest.raises(aio.RetryError, match="nothing for a"):
        await awaited.acquire_initial_retry_token(token_scope="a")
    with pytest.raises(aio.RetryError, match="never") as no:
        await awaited.refresh_retry_token_for_retry(token_to_renew=None, error=failure)  # type: ignore[arg-type]
    assert no.value.__cause__ is failure and no.value.retry_after is None
    with pytest.raises(ValueError, match="no such token"):
        await awaited.record_success(token=None)  # type: ignore[arg-type]


def test_one_that_is_awaited_already_stays() -> None:
    strategy: Any = Awaited()
    assert aio.wrap(strategy) is strategy
    assert aio.wrap(aio.wrap(Refusing())).max_attempts == 2
    with pytest.raises(ValueError, match="is awaited already"):
        aio.AsyncRetryStrategy(strategy)
    with pytest.raises(ValueError, match=r"StandardRetryStrategy is a class; make a strategy of it"):
        aio.wrap(StandardRetryStrategy)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a RetryStrategy: it has no acquire_initial_retry_token"):
        aio.wrap(object())  # type: ignore[arg-type]


def test_all_that_is_public_for_callers_that_await_is_exported() -> None:
    own = {
        name
        for name, found in vars(aio).items()
        if not name.startswith("_") and getattr(found, "__module__", "") == aio.__name__
    }
    assert own == set(aio.__all__)
