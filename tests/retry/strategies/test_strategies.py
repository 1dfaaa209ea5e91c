from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import Failure, OnlyFault, OnlyInfo

import proxy.retry
from proxy.retry import (
    AdaptiveRetryStrategy,
    ErrorRetryInfo,
    ExponentialRetryBackoffStrategy,
    GrpcRetryStrategy,
    HasFault,
    HedgingRetryStrategy,
    LegacyRetryStrategy,
    RetryBackoffStrategy,
    RetryError,
    RetryStrategy,
    RetryToken,
    SmithyRetryStrategy,
    Standard2026RetryStrategy,
    StandardRetryStrategy,
)
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, ThrottleSpec
from proxy.retry.strategies import presets

CLASSES: list[Any] = [
    StandardRetryStrategy,
    Standard2026RetryStrategy,
    LegacyRetryStrategy,
    AdaptiveRetryStrategy,
    SmithyRetryStrategy,
    GrpcRetryStrategy,
    HedgingRetryStrategy,
]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def full() -> float:
    """A draw that takes nothing off the cap."""
    return 1.0


def refresh(strategy: Any, token: RetryToken, **failure: Any) -> RetryToken:
    return strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure(**failure))


def delays(strategy: Any, count: int, **failure: Any) -> list[float]:
    token, found = strategy.acquire_initial_retry_token(), []
    for _ in range(count):
        token = refresh(strategy, token, **failure)
        found.append(token.retry_delay)
    return found


# -- the interface ----------


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_is_usable_without_arguments(cls: Callable[[], Any]) -> None:
    strategy = cls()
    assert isinstance(strategy, RetryStrategy)
    assert isinstance(strategy.backoff_strategy, RetryBackoffStrategy)
    token = strategy.acquire_initial_retry_token()
    assert isinstance(token, RetryToken)
    assert (token.retry_count, token.retry_delay) == (0, 0)
    for count in range(1, strategy.max_attempts):
        token = refresh(strategy, token)
        assert token.retry_count == count
        assert token.retry_delay >= 0
    with pytest.raises(RetryError):
        refresh(strategy, token)


@pytest.mark.parametrize(("cls", "attempts"), list(zip(CLASSES, [3, 3, 4, 3, 6, 4, 3], strict=True)))
def test_attempts(cls: Callable[[], Any], attempts: int) -> None:
    assert cls().max_attempts == attempts


def test_the_protocols_look_at_attributes_alone() -> None:
    assert isinstance(Failure(), ErrorRetryInfo)
    assert isinstance(Failure(), HasFault)
    assert isinstance(OnlyInfo(), ErrorRetryInfo)  # is_timeout_error is no member
    assert not isinstance(OnlyInfo(), HasFault)
    assert isinstance(OnlyFault("client"), HasFault)
    assert not isinstance(ValueError(), ErrorRetryInfo | HasFault)


def test_everything_is_exported() -> None:
    assert all(hasattr(proxy.retry, name) for name in proxy.retry.__all__)


# -- what is retried ----------


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (Failure(safe=True, fault="client"), True),
        (Failure(safe=True, fault=None), True),
        (Failure(safe=False, fault="server"), False),
        (Failure(safe=None, fault="server"), True),
        (Failure(safe=None, fault="client"), "smithy"),
        (Failure(safe=None, fault=None), "smithy"),
        (Failure(safe=False, throttling=True), False),
        (OnlyInfo(), "smithy"),
        (OnlyFault("server"), True),
        (OnlyFault("client"), False),
        (OnlyFault(None), False),
        (ValueError("neither"), False),
    ],
    ids=str,
)
def test_safety_and_fault(cls: Any, error: Exception, retried: bool | str) -> None:
    strategy = cls()
    token = strategy.acquire_initial_retry_token()
    if retried is True or (retried == "smithy" and cls is SmithyRetryStrategy):
        assert strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error).retry_count == 1
    else:
        with pytest.raises(RetryError) as refusal:
            strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error)
        assert refusal.value.__cause__ is error


def test_a_refusal_comes_from_the_original_in_the_order_of_checks() -> None:
    strategy = StandardRetryStrategy(max_attempts=1, bucket=QuotaSpec(capacity=0))
    token = strategy.acquire_initial_retry_token()
    with pytest.raises(RetryError, match="not retryable"):
        refresh(strategy, token, safe=False)
    with pytest.raises(RetryError, match="attempts"):
        refresh(strategy, token)
    strategy = StandardRetryStrategy(bucket=QuotaSpec(capacity=4))
    with pytest.raises(RetryError, match="bucket"):
        refresh(strategy, strategy.acquire_initial_retry_token())
    assert strategy.tokens_left() == 4


# -- tokens ----------


@pytest.mark.parametrize("cls", CLASSES)
def test_a_token_is_good_for_one_use_by_its_own_strategy(cls: Callable[[], Any]) -> None:
    strategy, other = cls(), cls()
    token = strategy.acquire_initial_retry_token()
    for foreign in (other.acquire_initial_retry_token(), copy.copy(token), object(), None):
        with pytest.raises(ValueError, match="token"):
            refresh(strategy, foreign)
        with pytest.raises(ValueError, match="token"):
            strategy.record_success(token=foreign)
    renewed = refresh(strategy, token)
    with pytest.raises(ValueError, match="used"):
        refresh(strategy, token)
    with pytest.raises(ValueError, match="used"):
        strategy.record_success(token=token)
    strategy.record_success(token=renewed)
    with pytest.raises(ValueError, match="used"):
        strategy.record_success(token=renewed)


def test_a_bad_token_changes_nothing() -> None:
    strategy = StandardRetryStrategy()
    token = strategy.acquire_initial_retry_token()
    refresh(strategy, token)
    with pytest.raises(ValueError, match="used"):
        refresh(strategy, token)
    assert strategy.tokens_left() == 495


def test_forgotten_tokens_are_not_kept() -> None:
    strategy = StandardRetryStrategy()
    for _ in range(100):
        strategy.acquire_initial_retry_token()
    assert len(strategy._issued) <= 1


def test_scopes_have_buckets_of_their_own() -> None:
    strategy = StandardRetryStrategy(bucket=QuotaSpec(capacity=5))
    for scope in ("a", "b", None):
        refresh(strategy, strategy.acquire_initial_retry_token(token_scope=scope))
    with pytest.raises(RetryError):
        refresh(strategy, strategy.acquire_initial_retry_token(token_scope="a"))
    assert strategy.tokens_left("c") == 5


def test_the_scope_unused_for_longest_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.retry.strategies.smithy.MOST_SCOPES", 2)
    strategy = StandardRetryStrategy(bucket=QuotaSpec(capacity=10))
    for scope in ("a", "b"):
        refresh(strategy, strategy.acquire_initial_retry_token(token_scope=scope))
    assert [strategy.tokens_left(scope) for scope in ("a", "b", "a", "c")] == [5, 5, 5, 10]
    assert [strategy.tokens_left(scope) for scope in ("a", "b")] == [5, 10]


# -- waits ----------


def test_standard() -> None:
    assert delays(StandardRetryStrategy(random=full, max_attempts=5), 4) == [0.1, 0.2, 0.4, 0.8]
    strategy = StandardRetryStrategy(random=full)
    assert delays(strategy, 2, retry_after=0.15) == [0.15, 0.2]  # max(pushback, backoff)
    assert strategy.tokens_left() == 490


def test_standard_2026() -> None:
    strategy = Standard2026RetryStrategy(random=full)
    assert delays(strategy, 2) == [0.05, 0.1]
    assert strategy.tokens_left() == 472
    assert delays(strategy, 2, throttling=True) == [1.0, 2.0]
    assert strategy.tokens_left() == 462
    assert delays(strategy, 1, retry_after=30) == [5.05]
    assert delays(strategy, 1, retry_after=3) == [3]
    assert delays(strategy, 1, retry_after=0.01) == [0.05]


def test_legacy() -> None:
    strategy = LegacyRetryStrategy(random=full)
    assert delays(strategy, 3, throttling=True) == [0.5, 1.0, 2.0]
    assert strategy.tokens_left() == 500
    assert delays(strategy, 3) == pytest.approx([0.1, 0.2, 0.4])
    assert strategy.tokens_left() == 485


def test_smithy() -> None:
    strategy = SmithyRetryStrategy(random=full)
    assert delays(strategy, 5) == [1, 2, 4, 8, 16]
    assert strategy.tokens_left() == 475
    token = refresh(strategy, strategy.acquire_initial_retry_token(), timeout=True)
    assert strategy.tokens_left() == 465
    strategy.record_success(token=token)
    assert strategy.tokens_left() == 466  # flat: +1, whatever was paid


def test_grpc_waits_a_named_delay_exactly_and_begins_again() -> None:
    strategy = GrpcRetryStrategy(random=full, max_attempts=9)
    token, found = strategy.acquire_initial_retry_token(), []
    for after in (None, None, 0.01, None, None, 60.0, None):
        token = refresh(strategy, token, retry_after=after)
        found.append(token.retry_delay)
    assert found == [1, 3, 0.01, 1, 3, 60, 1]
    assert strategy.tokens_left() is None


def test_hedging_one_after_another() -> None:
    strategy = HedgingRetryStrategy(max_attempts=5)
    assert delays(strategy, 3) == [0.5, 0.5, 0.5]
    assert delays(strategy, 2, retry_after=0.01) == [0.01, 0.01]
    assert delays(HedgingRetryStrategy(hedging_delay=2), 2) == [2, 2]


@pytest.mark.parametrize("after", [None, -1, float("nan"), float("inf"), "5", object()])
def test_what_is_no_delay_is_as_if_absent(after: Any) -> None:
    assert delays(SmithyRetryStrategy(random=full), 1, retry_after=after) == [1]


def test_decorrelated_jitter_is_kept_in_the_token() -> None:
    strategy = StandardRetryStrategy(
        max_attempts=9,
        backoff_strategy=ExponentialRetryBackoffStrategy(base=1, jitter="decorrelated", random=lambda: 0.5),
    )
    one, other = strategy.acquire_initial_retry_token(), strategy.acquire_initial_retry_token()
    series = []
    for _ in range(3):
        one, other = refresh(strategy, one), refresh(strategy, other)
        series.append((one.retry_delay, other.retry_delay))
    assert series == [(2.0, 2.0), (3.5, 3.5), (5.75, 5.75)]


def test_a_draw_is_made_only_when_a_backoff_is_computed() -> None:
    drawn: list[int] = []

    def draw() -> float:
        drawn.append(1)
        return 0.5

    strategy = GrpcRetryStrategy(random=draw)
    token = strategy.acquire_initial_retry_token()
    token = refresh(strategy, token, retry_after=1.0)
    with pytest.raises(RetryError):
        refresh(strategy, token, safe=False)
    assert not drawn
    refresh(strategy, token)
    assert drawn == [1]


class OwnBackoff:
    def compute_next_backoff_delay(self, retry_attempt: int) -> float:
        return 7.0 * retry_attempt


def test_custom_backoff_strategies() -> None:
    assert isinstance(OwnBackoff(), RetryBackoffStrategy)
    strategy = StandardRetryStrategy(backoff_strategy=OwnBackoff())
    assert strategy.backoff_strategy.compute_next_backoff_delay(0) == 0
    assert delays(strategy, 2) == [7, 14]


# -- buckets ----------


def test_success_brings_back_the_last_price() -> None:
    strategy = StandardRetryStrategy()
    token = refresh(strategy, strategy.acquire_initial_retry_token())
    strategy.record_success(token=refresh(strategy, token))
    assert strategy.tokens_left() == 495
    strategy.record_success(token=strategy.acquire_initial_retry_token())
    assert strategy.tokens_left() == 496


def test_other_buckets() -> None:
    strategy = GrpcRetryStrategy(bucket=ThrottleSpec(4, 0.5))
    token = refresh(strategy, strategy.acquire_initial_retry_token())
    with pytest.raises(RetryError, match="bucket"):
        refresh(strategy, token)
    strategy.record_success(token=strategy.acquire_initial_retry_token())
    assert strategy.tokens_left() == 2.5
    clock = Clock()
    budget = StandardRetryStrategy(bucket=BudgetSpec(percent=50, min_per_second=0), clock=clock)
    tokens = [budget.acquire_initial_retry_token() for _ in range(4)]
    for token in tokens[:2]:
        refresh(budget, token)
    with pytest.raises(RetryError):
        refresh(budget, tokens[2])
    clock.now = 10.0
    assert budget.tokens_left() == 0


def test_no_bucket() -> None:
    strategy = StandardRetryStrategy(bucket=None, max_attempts=1000)
    assert len(delays(strategy, 999)) == 999
    assert strategy.tokens_left() is None


@given(st.lists(st.sampled_from(["call", "fail", "throttled", "timeout", "fatal", "succeed"]), max_size=100))
def test_tokens_are_conserved(script: list[str]) -> None:
    strategy = StandardRetryStrategy(
        max_attempts=4, bucket=QuotaSpec(30, 5, 7, 3, initial=20), clock=Clock(), random=full
    )
    flying: list[RetryToken] = []
    for step in script:
        before = strategy.tokens_left()
        assert before is not None
        if step == "call":
            flying.append(strategy.acquire_initial_retry_token())
        elif flying and step == "succeed":
            strategy.record_success(token=flying.pop())
            assert before <= (strategy.tokens_left() or 0) <= 30
        elif flying:
            token = flying.pop()
            try:
                flying.append(
                    refresh(
                        strategy, token, safe=step != "fatal", throttling=step == "throttled", timeout=step == "timeout"
                    )
                )
                price = {"fail": 5, "throttled": 3, "timeout": 7}[step]
            except RetryError:
                price = 0
            assert strategy.tokens_left() == before - price >= 0


# -- adaptive ----------


def test_adaptive_delays_first_attempts_after_throttling() -> None:
    clock = Clock()
    strategy = AdaptiveRetryStrategy(clock=clock, random=full)
    first = strategy.acquire_initial_retry_token()
    assert first.retry_delay == 0
    clock.now = 0.5
    with pytest.raises(RetryError):
        refresh(strategy, first, safe=False, throttling=True)  # it learns from the end of every attempt
    waits = [strategy.acquire_initial_retry_token().retry_delay for _ in range(3)]
    assert waits == pytest.approx([1 / 1.12, 2 / 1.12, 3 / 1.12])
    assert strategy.acquire_initial_retry_token(token_scope="another").retry_delay == 0


def test_adaptive_waits_for_the_later_of_backoff_and_token() -> None:
    clock = Clock()
    strategy = AdaptiveRetryStrategy(clock=clock, random=full)
    token = strategy.acquire_initial_retry_token()
    clock.now = 0.5
    token = refresh(strategy, token, throttling=True)
    assert token.retry_delay == pytest.approx(1 / 1.12)
    slow = AdaptiveRetryStrategy(clock=clock, backoff_strategy=OwnBackoff())
    assert refresh(slow, slow.acquire_initial_retry_token(), throttling=True).retry_delay == 7


def test_adaptive_speeds_up_again() -> None:
    clock = Clock()
    strategy = AdaptiveRetryStrategy(clock=clock)
    refresh(strategy, strategy.acquire_initial_retry_token(), throttling=True)
    waits = []
    for _ in range(60):
        token = strategy.acquire_initial_retry_token()
        waits.append(token.retry_delay)
        clock.now += token.retry_delay + 0.05
        strategy.record_success(token=token)
    assert waits[0] > waits[-1]


# -- the table ----------


def test_the_contracts_table() -> None:
    rows = {
        name: (kind.max_attempts, kind.backoff.base, kind.backoff.max, kind.backoff.multiplier)
        for name, kind in presets.BUILT_IN.items()
    }
    assert rows == {
        "standard": (3, 0.1, 20, 2),
        "standard-2026": (3, 0.05, 20, 2),
        "legacy": (4, 0.1, 20, 2),
        "adaptive": (3, 0.1, 20, 2),
        "smithy": (6, 1, 20, 2),
        "grpc": (4, 1, 5, 3),
        "hedging": (3, 0, 0, 2),
        "none": (1, 0, 0, 2),
    }
    assert presets.STANDARD_2026.backoff.throttling_base == 1
    assert presets.LEGACY.backoff.throttling_base == 0.5
    assert not any(kind.own_bucket for kind in (presets.GRPC, presets.HEDGING, presets.NONE))
