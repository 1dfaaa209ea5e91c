"""Peers' own cases, as they were read (tests/vectors/raw): those that reach buckets, backoffs, the limiter, headers.

Each case is run, or stands in LEFT_OUT with the reason: peers contradict each other, and the contract decides. Cases
about whole calls, headers and configurations are proved elsewhere, as policy tests (tests/vectors/*.yaml).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.failures import Failure

from proxy.retry import (
    ExponentialRetryBackoffStrategy,
    GrpcRetryStrategy,
    RetryError,
    Standard2026RetryStrategy,
    StandardRetryStrategy,
)
from proxy.retry.answers.classification import classify, classify_fault
from proxy.retry.answers.pushback import read_pushback
from proxy.retry.budgets.buckets import QuotaBucket, ThrottleBucket, make_bucket
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.token_bucket import TokenBucket
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Progress, Reply, Request, Verdict
from proxy.retry.policies.bucket_specs import QuotaSpec, ThrottleSpec
from proxy.retry.policies.dialect import Classify, Dialect, ResetField, Rule
from proxy.retry.policies.policy import Backoff
from proxy.retry.strategies import presets
from proxy.retry.strategies.backoff import delay

RAW = Path(__file__).parent.parent / "vectors" / "raw"
Case = dict[str, Any]

LEFT_OUT = {
    # Another formula, constant or reading than the contract's.
    "smithypy-backoff-11-decorrelated": "smithy-python's own formula; the contract takes the published one",
    "aws20-rust-quota-replenishes-on-success": "smithy-rs prices every transient error as a timeout",
    "aws20-retry-after-capped-at-max-backoff": "the contract waits max(pushback, backoff), without a cap",
    "kotlin-testJitter": "kotlin's jitter is a fraction of its own",
    "kotlin-defaults-2.0": "kotlin's 2.0 defaults are nobody else's",
    "bc-t0-matches-beta": "BETA is a constant (0.7); the case uses 0.6",
    "bc-bucket-min-rate": "MIN_FILL_RATE is a constant (0.5); the case uses 0.2",
    "gov1-class-502": "go v1 calls 502 throttling; the lists say transient",
    "gov1-class-504": "go v1 calls 504 throttling; the lists say timeout",
    "gov1-500-299": "go v1 reads Retry-After on 429 and 503 alone; the contract on every retryable class",
    "azure-retry-after-0-9": "Retry-After is whole seconds (RFC 9110)",
    "azure-retry-after-ms-wins-0-9": "Retry-After is whole seconds (RFC 9110)",
    "azure-x-ms-retry-after-ms-wins-0-9": "Retry-After is whole seconds (RFC 9110)",
    "java-throttledStream-failwithnonretriablestatuscode-withretriablepushback": "a delay makes nothing retryable",
    "lower-bound-22": "Envoy's jittered lower bound is none of the contract's jitters",
    "lower-bound-9999": "Envoy's jittered lower bound is none of the contract's jitters",
    # Beyond these modules.
    "aws21-long-polling-backoff-after-transient-error-when-token-bucket-empty": "long polling is an SDK's",
    "aws21-long-polling-backoff-after-throttling-error-when-token-bucket-empty": "long polling is an SDK's",
    "botocore21-amz-sdk-request-max-present-on-initial": "a request header: aws_headers.yaml",
    "java-resp-header-first-attempt": "a response header: the proxy's business",
    "java-resp-header-after-retry": "a response header: the proxy's business",
    "java-hedging-throttled-by-hedging-streams": "whole calls: grpc_hedging_r05*.yaml",
    "budget-gauge": "Envoy's budget counts calls in flight, the contract's counts windows",
    "budget-runtime-manager-cb0": "Envoy's budget counts calls in flight, the contract's counts windows",
}
LEFT_OUT_KINDS = {
    "retry_state": "whole calls: envoy.yaml",
    "parse_retry_on": "Envoy's own configuration strings",
    "parse_retry_grpc_on": "Envoy's own configuration strings",
}

AWS_THROTTLING = (
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException"),
    *("TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException"),
    *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "RequestThrottled", "SlowDown"),
    *("PriorRequestNotComplete", "EC2ThrottledException"),
)
AWS = Dialect(
    "aws",
    rules=(
        *(Rule(Class.THROTTLING, code, headers=(("x-amzn-errortype", code),)) for code in AWS_THROTTLING),
        *(
            Rule(Class.TRANSIENT, code, headers=(("x-amzn-errortype", code),))
            for code in ("RequestTimeout", "RequestTimeoutException")
        ),
    ),
)
#: The contract's default lists.
LISTS = Classify(
    statuses={
        **dict.fromkeys((425, 500, 502, 503), Class.TRANSIENT),
        429: Class.THROTTLING,
        **dict.fromkeys((408, 504), Class.TIMEOUT),
    },
    faults={
        **dict.fromkeys(
            (FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET),
            Class.TRANSIENT,
        ),
        FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT,
    },
    dialects=(Dialect("http"), AWS),
)
GET = Request("GET", "h", "/")


def load() -> list[Any]:
    files = ("aws_adaptive", "aws_standard", "envoy_retry", "grpc_backoff", "grpc_throttle", "retry_after")
    return [
        pytest.param(case, id=case["id"])
        for name in files
        for case in json.loads((RAW / f"{name}.json").read_text())["cases"]
    ]


@pytest.mark.parametrize("case", load())
def test_peers_case(case: Case) -> None:
    reason = LEFT_OUT.get(case["id"]) or LEFT_OUT_KINDS.get(case["kind"])
    if reason:
        pytest.skip(reason)
    RUNNERS[case["kind"]](case)


def test_nothing_is_left_out_that_is_not_there() -> None:
    known = {param.values[0]["id"] for param in load()}
    assert set(LEFT_OUT) <= known


# -- strategies, backoffs, quotas ---------------------------------------------------------------------------------


def backoff_of(given: Case, *, base: float | None = None) -> ExponentialRetryBackoffStrategy:
    limit = given.get("max_backoff_s")
    return ExponentialRetryBackoffStrategy(
        base=given.get("base_delay_s", base or 0.0),
        max=math.inf if limit is None else limit,
        multiplier=given.get("multiplier", 2),
        jitter=given.get("jitter", "full"),
        throttling_base=given.get("throttling_base_delay_s"),
        random=lambda: float(given.get("rand", given.get("jitter_factor", 1))),
    )


def call_sequence(case: Case) -> None:
    given = case["given"]
    kind = Standard2026RetryStrategy if case["spec"] == "aws-2.1" else StandardRetryStrategy
    tokens = given["initial_tokens"]
    cost = given["retry_cost"]
    strategy = kind(
        max_attempts=given["max_attempts"],
        backoff_strategy=backoff_of(given),
        bucket=QuotaSpec(
            capacity=given.get("max_capacity") or max(tokens, 500),
            retry_cost=cost,
            timeout_cost=given.get("timeout_cost", cost),
            throttling_cost=given.get("throttling_cost", cost),
            initial=tokens,
        ),
        clock=lambda: 0.0,
    )
    token = strategy.acquire_initial_retry_token()
    for step in case["steps"]:
        expect = step["expect"]
        fields = step["response"]
        if fields["status"] < 400:
            assert expect["outcome"] == "success"
            strategy.record_success(token=token)
        else:
            headers = MappingFields(
                [*fields.get("headers", {}).items(), ("x-amzn-errortype", fields.get("error_code", ""))]
            )
            verdict = verdict_on(fields["status"], headers)
            assert verdict.cls.retryable
            error = Failure(
                throttling=verdict.cls is Class.THROTTLING,
                retry_after=read_pushback(headers, fields["status"], verdict.cls, (), 0.0).delay,
            )
            if expect["outcome"] == "retry_request":
                token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error)
                assert token.retry_delay == pytest.approx(expect["delay_s"])
            else:
                why = {"max_attempts_exceeded": "attempts", "retry_quota_exceeded": "empty"}[expect["outcome"]]
                with pytest.raises(RetryError, match=why):
                    strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error)
        if "retry_quota" in expect:
            assert strategy.tokens_left() == expect["retry_quota"]


def backoff_series(case: Case) -> None:
    given, expected = case["given"], case["expect"]["delays_s"]
    if case["spec"] == "botocore-legacy":
        given = {"base_delay_s": given["base"], "multiplier": given["growth_factor"]}
    strategy = backoff_of(given)
    first = 0 if given.get("first_retry_attempt") == 0 else 1
    throttling = given.get("error_kind") == "throttling"
    delays = [
        strategy.compute_next_backoff_delay(n, throttling=throttling) for n in range(first, first + len(expected))
    ]
    assert delays == pytest.approx(expected)


def one_backoff(case: Case) -> None:
    given = case["given"]
    if case["spec"] == "aws-2.0-go":  # 2^attempt: what a base of 2 s gives
        seconds = delay(Backoff(2.0, given["max_backoff_s"]), given["attempt"], given["rand"])
    else:
        seconds = backoff_of(given).compute_next_backoff_delay(given["attempts_made"] + 1)
    assert seconds == pytest.approx(case["expect"]["delay_s"], rel=1e-15)


def jitter_bounds(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    spec = Backoff(1.0, 20.0) if case["spec"] == "aws-2.0" else presets.STANDARD_2026.backoff
    n = given.get("attempt_number", given.get("attempt_index", 0) + 1)
    draws = random.Random(1)
    for _ in range(given["samples"]):
        seconds = delay(spec, n, draws.random(), throttling=given.get("error") == "throttling")
        assert expect["min_s"] <= seconds <= expect["max_s"]


def jitter_distribution(case: Case) -> None:
    draws, given = random.Random(1), case["given"]
    low, high = case["expect"]["uniform_over_s"]
    bins = [0] * (high - low)
    for _ in range(given["samples"]):
        bins[int(delay(Backoff(1.0, 20.0), given["attempt_number"], draws.random()))] += 1
    fair = given["samples"] / len(bins)
    assert all(abs(count - fair) <= case["expect"]["per_bin_tolerance"] * fair for count in bins)


def java_backoff_table(case: Case) -> None:
    given = case["given"]
    spec = Backoff(given["base_delay_ms"], given["max_delay_ms"])
    for attempt, expected in case["expect"]["delay_ms_by_attempt"].items():
        n = int(attempt) - 1
        bound = int(delay(Backoff(spec.base, spec.max, jitter="none"), n, 0.0))
        drawn = {"bound-1": bound - 1, "bound/2": bound // 2, "0": 0}[given["next_int(bound)_returns"]]
        assert round(delay(spec, n, drawn / bound if bound else 0.0)) == expected


def exponential_ops(case: Case) -> None:
    given = case["given"]
    base, n = given["base_ms"], 0
    for step in case["steps"]:
        if step["op"] == "reset":
            base, n = step.get("base_ms", given["base_ms"]), 0
            continue
        for _ in range(step.get("times", 1)):
            n += 1
            cap = int(delay(Backoff(base, given["max_ms"], jitter="none"), n, 0.0))
            seconds = delay(Backoff(base, given["max_ms"]), n, (given["random"] % cap) / cap)
            assert 0 <= seconds <= float(given["max_ms"])
        if "delay_ms" in step["expect"]:
            assert seconds == pytest.approx(step["expect"]["delay_ms"])


def retry_after_delay(case: Case) -> None:
    given = case["given"]
    strategy = Standard2026RetryStrategy(
        backoff_strategy=backoff_of({"base_delay_s": given["t_i_s"], "jitter": "none"})
    )
    after = given.get("retry_after_s")
    if "headers" in given:
        fields = MappingFields(list(given["headers"].items()))
        after = read_pushback(fields, 500, Class.TRANSIENT, (), 0.0).delay
    token = strategy.acquire_initial_retry_token()
    renewed = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure(retry_after=after))
    assert renewed.retry_delay == pytest.approx(case["expect"]["delay_s"])


def quota_ops(case: Case) -> None:
    bucket = make_bucket(QuotaSpec(capacity=case["given"]["capacity"]))
    for step in case["steps"]:
        if step["op"] == "acquire":
            assert bucket.take(step["amount"], 0.0) is step["expect"]["ok"]
        else:
            bucket.give_back(step["amount"], 0.0)
        assert bucket.level(0.0) == step["expect"]["available"]


def quota_cost(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    spec = presets.STANDARD_2026.own_bucket if case["spec"] == "aws-2.1" else presets.STANDARD.own_bucket
    assert isinstance(spec, QuotaSpec)
    bucket = QuotaBucket(QuotaSpec(given["capacity"], spec.retry_cost, spec.timeout_cost, spec.throttling_cost))
    if "acquired" in expect:
        assert bucket.take(bucket.price(Class.TRANSIENT), 0.0) is expect["acquired"]
        return
    throttled = given["error"].lower().startswith("throttling")
    for cls in [Class.THROTTLING] if throttled else [Class.TRANSIENT, Class.TIMEOUT]:
        assert bucket.price(cls) == expect["cost"]
    assert bucket.take(expect["cost"], 0.0)
    assert bucket.level(0.0) == expect["capacity_after"]


def refund(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    bucket = make_bucket(QuotaSpec())
    bucket.take(given.get("other_call_acquired", 0) + given["acquired"], 0.0)
    if given["final_status"] < 400:
        bucket.succeeded(given["acquired"] or None, 0.0)
    assert bucket.level(0.0) == expect["capacity_after"]


def quota_count(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    bucket = make_bucket(QuotaSpec(capacity=given["capacity"], success_refund=given["refund_per_first_try_success"]))
    for _ in range(expect["failures_to_drain"]):
        assert bucket.take(given["cost_per_failure"], 0.0)
    assert bucket.level(0.0) == 0
    for n in range(expect["first_try_successes_to_refill"]):
        assert bucket.level(0.0) == n
        bucket.succeeded(None, 0.0)
    assert bucket.level(0.0) == given["capacity"]


def token_series(case: Case) -> None:
    given = case["given"]
    strategy = StandardRetryStrategy(
        max_attempts=given["max_attempts"],
        bucket=QuotaSpec(given["initial_tokens"], retry_cost=10, timeout_cost=10, throttling_cost=5),
        backoff_strategy=ExponentialRetryBackoffStrategy(
            base=given["base_delay_ms"] / 1000,
            max=given["max_backoff_s"],
            throttling_base=given["throttling_base_delay_ms"] / 1000,
            random=lambda: given["jitter_factor"],
        ),
    )
    token = strategy.acquire_initial_retry_token()
    for step in case["steps"][1:]:
        error = Failure(throttling=step["error_type"] == "THROTTLING")
        token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error)
        assert token.retry_count == step["retry_count"]
        assert token.retry_delay == pytest.approx(step["delay_ms"] / 1000)
    assert strategy.tokens_left() == case["expect"]["capacity_left"]


def max_attempts(case: Case) -> None:
    given = case["given"]
    jitter = {"default": "equal"}.get(given["jitter"], given["jitter"])
    strategy = StandardRetryStrategy(
        max_attempts=given["max_retries"] + 1, backoff_strategy=ExponentialRetryBackoffStrategy(jitter=jitter)
    )
    assert retries_until_refused(strategy, "attempts") == case["expect"]["retries_made"]


def retries_until_refused(strategy: StandardRetryStrategy | GrpcRetryStrategy, why: str) -> int:
    token = strategy.acquire_initial_retry_token()
    with pytest.raises(RetryError, match=why):
        while True:
            token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure())
    return token.retry_count


def multi_call(case: Case) -> None:
    strategy = StandardRetryStrategy()
    if "retries" in case["expect"]:
        assert retries_until_refused(strategy, "attempts") == case["expect"]["retries"]
        return
    for _ in range(case["expect"]["calls_with_3_requests"]):
        assert retries_until_refused(strategy, "attempts") == 2
    assert retries_until_refused(strategy, "empty") == case["expect"]["call_51_requests"] - 1


def refusal_reason(case: Case) -> None:
    strategy = StandardRetryStrategy(bucket=QuotaSpec(capacity=case["given"]["capacity"]))
    assert retries_until_refused(strategy, "empty") == 0


def strategy_ops(case: Case) -> None:
    given = case["given"]
    cost = given["retry_cost"]
    spec = QuotaSpec(given["capacity"], cost, given.get("timeout_cost", cost), given.get("throttling_cost", cost))
    bucket = QuotaBucket(spec)
    classes = {"timeout": Class.TIMEOUT, "throttling": Class.THROTTLING}
    for step in case["steps"]:
        price = bucket.price(classes.get(step.get("error", step.get("last_error")), Class.TRANSIENT))
        match step["op"]:
            case "should_retry":
                attempts_left = step["attempted_retries"] + 1 < given["max_attempts"]
                retried = step["error"] != "non_retryable" and attempts_left and bucket.take(price, 0.0)
                assert retried is step["expect"]["retry"]
            case "take":
                assert bucket.take(step["amount"], 0.0)
            case "give":
                bucket.give_back(step["amount"], 0.0)
            case "first_try_success":
                bucket.succeeded(None, 0.0)
            case "success_after":
                bucket.succeeded(price, 0.0)
        if "available" in step["expect"]:
            assert bucket.level(0.0) == step["expect"]["available"]


def partitioned_quota(case: Case) -> None:
    given = case["given"]
    bucket = QuotaBucket(QuotaSpec(given["initial_bucket_capacity"], given["retry_cost"], given["transient_cost"]))
    for step in case["steps"]:
        if "op" in step:
            for _ in range(step["times"]):
                bucket.succeeded(None, 0.0)
        else:
            price = bucket.price(Class.TIMEOUT if step["error"] == "transient" else Class.TRANSIENT)
            assert bucket.take(price, 0.0) is step["expect"]["ok"]


class LinearBackoff:
    """The Java tests' backoff: so many seconds for each attempt, the coming one counted."""

    def compute_next_backoff_delay(self, retry_attempt: int, *, throttling: bool = False) -> float:
        return (17.0 if throttling else 23.0) * (retry_attempt + 1) if retry_attempt else 0.0


def java_strategy(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    cost = given["retry_cost"]
    quota = QuotaSpec(given["capacity"], cost, cost, given.get("throttling_cost", cost))
    strategy = StandardRetryStrategy(
        max_attempts=given["max_attempts"],
        bucket=quota if given.get("circuit_breaker", True) else None,
        backoff_strategy=LinearBackoff(),
    )
    token, state = strategy.acquire_initial_retry_token(), "SUCCEEDED"
    try:
        for letter in given["errors_then_success"]:
            error = Failure(throttling=letter == "T", safe=letter != "N")
            token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=error)
        strategy.record_success(token=token)
    except RetryError as stop:
        state = "TOKEN_ACQUISITION_FAILED" if "empty" in str(stop) else "MAX_RETRIES_REACHED"
    assert state == expect["state"]
    if given.get("circuit_breaker", True):
        assert strategy.tokens_left() == expect["final_capacity"]
    if "last_delay_s" in expect:
        assert token.retry_delay == expect["last_delay_s"]


def defaults(case: Case) -> None:
    expect, strategy = case["expect"], presets.STANDARD_2026
    quota = strategy.own_bucket
    assert isinstance(quota, QuotaSpec)
    assert strategy.backoff.base == expect["initial_delay_s"]
    assert strategy.backoff.multiplier == expect["scale_factor"]
    assert strategy.backoff.throttling_base == expect["throttling_base_delay_s"]
    assert strategy.pushback_clamp == expect["retry_after_max_overshoot_s"]
    assert quota.retry_cost == expect["retry_cost"] == expect["transient_cost"]


# -- classification -----------------------------------------------------------------------------------------------


def verdict_on(status: int, fields: MappingFields) -> Verdict:
    verdict = classify(LISTS, GET, Reply(status, fields, end=True), None)
    assert isinstance(verdict, Verdict)
    return verdict


def classification(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    if given["status"] is None:
        cls = classify_fault(LISTS, GET, Fault(FaultKind.RESET, Progress.UNKNOWN)).cls
    else:
        code = given.get("error_code")
        fields = MappingFields([("x-amzn-errortype", code)] if code else [])
        cls = verdict_on(given["status"], fields).cls
    throttled = expect.get("is_throttling", expect.get("is_throttle"))
    if throttled is not None:
        assert (cls is Class.THROTTLING) is throttled
    if "is_transient" in expect and given.get("error_code") != "PriorRequestNotComplete":  # throttling to the contract
        assert (cls in (Class.TRANSIENT, Class.TIMEOUT)) is expect["is_transient"]
    if "is_retryable" in expect:
        assert cls.retryable is expect["is_retryable"]
    if expect.get("is_server_error_other"):
        assert cls is Class.UNNAMED


def classifier(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    verdict = given.get("earlier_verdict", "transient")
    status = 500 if verdict is not None else 400
    code = given["error_code"]
    fields = MappingFields([*given["headers"].items(), *([("x-amzn-errortype", code)] if code else [])])
    cls = verdict_on(status, fields).cls
    assert cls.retryable is expect["retry"]
    pushback = read_pushback(fields, status, cls, LISTS.dialects, 0.0)
    assert pushback.delay == expect.get("explicit_delay_s")
    if expect.get("error_kind") == "throttling":
        assert cls is Class.THROTTLING


def should_retry(case: Case) -> None:
    assert verdict_on(case["given"]["status"], MappingFields([])).cls.retryable is case["expect"]["retry"]


def retried_call(case: Case) -> None:
    given = case["given"]
    fields = MappingFields(list(given.get("headers", {}).items()))
    retried = verdict_on(given["status"], fields).cls.retryable
    assert (2 if retried else 1) == case["expect"]["upstream_requests"]


# -- headers ------------------------------------------------------------------------------------------------------


def read(given: Case) -> float | None:
    fields = MappingFields([(name, value) for name, value in given["headers"].items()])
    wall = given.get("now_unix", given.get("now_unix_ms", 0) / 1000)
    return read_pushback(fields, given.get("status", 503), Class.TRANSIENT, (), wall).delay


def header(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    seconds = read(given)
    if expect["delay_s"] is None:  # unreadable, or longer than the peer waits: max_delay is the policy's
        assert seconds is None or seconds > given["honour_up_to_s"]
    else:
        assert seconds == pytest.approx(expect["delay_s"], abs=expect.get("tolerance_s", 1e-12))


def sleep(case: Case) -> None:
    assert read(case["given"]) == case["expect"]["sleeps_s"]


def status_gate(case: Case) -> None:
    fields = MappingFields([("retry-after", "7")])
    cls = verdict_on(case["given"]["status"], fields).cls
    considered = read_pushback(fields, case["given"]["status"], cls, (), 0.0).delay == 7
    assert considered is case["expect"]["retry_after_considered"]


def bound(case: Case) -> None:
    assert read(case["given"]) is None


def reset_header(case: Case) -> None:
    given = case["given"]
    name = given["reset_header"]["name"]
    if given["reset_header"]["format"] == "SECONDS":
        seconds = read(given)
    else:
        dialect = Dialect("x", resets=(ResetField("x-reset", "epoch"),))
        fields = MappingFields([("x-reset", given["headers"][name])])
        seconds = read_pushback(fields, 429, Class.THROTTLING, (dialect,), given["now_unix"]).delay
    assert seconds == case["expect"]["delay_s"]


def grpc_pushback(case: Case) -> None:
    given = case["given"]
    attempt = next(given[name] for name in ("attempt_2", "attempt", "attempt_1") if name in given)
    values = attempt["grpc-retry-pushback-ms"]
    pairs = [("grpc-retry-pushback-ms", value) for value in (values if isinstance(values, list) else [values])]
    pushback = read_pushback(MappingFields([("grpc-status", "14"), *pairs]), 200, Class.TRANSIENT, (), 0.0)
    if "delay_between_ms" in case["expect"]:
        assert pushback.delay == case["expect"]["delay_between_ms"][0] / 1000
        assert not pushback.stop
    else:
        assert pushback.stop


def grpc_property(case: Case) -> None:
    fields = MappingFields([("grpc-status", "0"), ("grpc-retry-pushback-ms", "10")])
    cls = verdict_on(200, fields).cls
    assert cls is Class.SUCCESS
    assert read_pushback(fields, 200, cls, (), 0.0).delay is None


def grpc_delay_series(case: Case) -> None:
    policy = case["given"]["retryPolicy"]
    seconds = {name: float(policy[name].removesuffix("s")) for name in ("initialBackoff", "maxBackoff")}
    strategy = GrpcRetryStrategy(
        max_attempts=policy["maxAttempts"],
        backoff_strategy=ExponentialRetryBackoffStrategy(
            base=seconds["initialBackoff"],
            max=seconds["maxBackoff"],
            multiplier=policy["backoffMultiplier"],
            jitter="proportional",
            random=lambda: 0.5,
        ),
    )
    token = strategy.acquire_initial_retry_token()
    for step in case["steps"]:
        named = step["server"].get("grpc-retry-pushback-ms")
        fields = MappingFields([("grpc-retry-pushback-ms", named)] if named else [])
        after = read_pushback(fields, 200, Class.TRANSIENT, (), 0.0).delay
        if step["expect"].get("retry") is False:
            with pytest.raises(RetryError):
                strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure(retry_after=after))
            continue
        token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure(retry_after=after))
        assert token.retry_delay == pytest.approx(step["expect"]["retry_after_s"])


def grpc_formula(case: Case) -> None:
    spec = Backoff(1.0, 5.0, 3.0, "proportional")
    if case["id"] == "a6-formula":
        for n in range(1, 8):
            cap = min(3.0 ** (n - 1), 5.0)
            assert [delay(spec, n, r) for r in (0.0, 0.5)] == pytest.approx([0.8 * cap, cap])
            assert delay(spec, n, 0.999999) == pytest.approx(1.2 * cap, rel=1e-5)
    else:
        fields = MappingFields([("grpc-retry-pushback-ms", "1234")])
        assert read_pushback(fields, 200, Class.TRANSIENT, (), 0.0).delay == 1.234


# -- throttling ---------------------------------------------------------------------------------------------------


def token_ops(case: Case) -> None:
    given = case["given"]
    bucket = ThrottleBucket(ThrottleSpec(given["maxTokens"], given["tokenRatio"]))
    for step in case["steps"]:
        expect = step["expect"]
        match step["op"]:
            case "failure":
                bucket.failed(0.0)
                assert bucket.take(0.0, 0.0) is expect["allowed"]
            case "success":
                bucket.succeeded(None, 0.0)
            case "isAboveThreshold":
                assert bucket.affords(0.0, 0.0) is expect["above"]
        if "tokens_after" in expect:
            assert bucket.level(0.0) == expect["tokens_after"]


def throttled_call(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    strategy = GrpcRetryStrategy(
        max_attempts=given["maxAttempts"],
        bucket=ThrottleSpec(given["maxTokens"], given["tokenRatio"], initial=given["tokens_before"]),
    )
    error = Failure(safe=given["attempt_1"]["status"] in given["retryableStatusCodes"])
    with pytest.raises(RetryError):
        strategy.refresh_retry_token_for_retry(token_to_renew=strategy.acquire_initial_retry_token(), error=error)
    assert strategy.tokens_left() == expect["tokens_after"]


def call_series(case: Case) -> None:
    throttling, policy = case["given"]["retryThrottling"], case["given"]["retryPolicy"]
    strategy = GrpcRetryStrategy(
        max_attempts=policy["maxAttempts"], bucket=ThrottleSpec(throttling["maxTokens"], throttling["tokenRatio"])
    )
    for step in case["steps"]:
        token = strategy.acquire_initial_retry_token()
        *retried, last = step["server_statuses"]
        for _ in retried:
            token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure())
        if last == "OK":
            strategy.record_success(token=token)
        else:
            with pytest.raises(RetryError):
                strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure())
        expect = step["expect"]
        assert strategy.tokens_left() == expect.get("tokens_after_by_rule", expect.get("tokens_after"))


def config_value(case: Case) -> None:
    bucket = ThrottleBucket(ThrottleSpec(10, case["given"]["tokenRatio"], initial=0))
    bucket.succeeded(None, 0.0)
    assert bucket.level(0.0) == case["expect"]["effective"]


# -- the CUBIC limiter ---------------------------------------------------------------------------------------------


def limiter_at(*, last_max_rate: float, last_throttle: float) -> CubicLimiter:
    limiter = CubicLimiter()
    limiter._last_max_rate, limiter._last_throttle = last_max_rate, last_throttle
    return limiter


def cubic_table(case: Case) -> None:
    limiter = limiter_at(
        last_max_rate=case["given"]["last_max_rate"], last_throttle=case["given"]["last_throttle_time"]
    )
    for step in case["steps"]:
        assert limiter.cubic_rate(step["t"]) == pytest.approx(step["calculated_rate"], rel=1e-9)


def cubic_property(case: Case) -> None:
    limiter = limiter_at(last_max_rate=case["given"]["starting_max_rate"], last_throttle=case["given"]["start_time"])
    k = (10 * 0.3 / 0.4) ** (1 / 3)
    assert all(limiter.cubic_rate(k / part) <= 10 for part in (3, 2, 1.1))
    assert limiter.cubic_rate(k) == pytest.approx(10.0)
    assert all(limiter.cubic_rate(k * factor) >= 10 for factor in (1.1, 2))


def cubic_throttle(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    limiter = limiter_at(last_max_rate=given["starting_max_rate"], last_throttle=0.0)
    limiter.enabled = True
    limiter.rate = limiter.measured_rate = given["current_rate"]
    limiter._last_bucket = given["t"]  # the measured rate stays
    limiter.learn(True, given["t"])
    assert limiter.fill_rate == pytest.approx(expect["new_rate"])
    assert limiter.cubic_rate(given["t"] + expect["k"]) == pytest.approx(expect["w_max"])


def throttle_first_update(case: Case) -> None:
    given = case["given"]
    limiter = limiter_at(last_max_rate=given["last_max_rate"], last_throttle=given["last_throttle_time"])
    limiter.learn(True, given["t"])
    assert limiter.measured_rate * 0.7 == pytest.approx(case["expect"]["calculated_rate"], abs=1e-8)
    assert limiter.fill_rate == 0.5


def token_bucket(case: Case) -> None:
    given = case["given"]
    if case["steps"][0]["op"] == "set_rate":
        step, limiter = case["steps"][0], CubicLimiter()
        limiter._set_rate(step["rate"], step["t"])
        assert (limiter.fill_rate, limiter.capacity) == (step["expect"]["rate"], step["expect"]["max_capacity"])
        return
    bucket = TokenBucket(given["max_rate"], given["max_rate"], 0.0, given["created_at"])
    for step in case["steps"]:
        ready = bucket.wait(step["t"], step["amount"]) == 0
        assert ready is step["expect"]["ok"]
        if ready:
            assert bucket.take(step["t"])


def limiter(case: Case) -> None:
    limiter = CubicLimiter()
    if case["given"].get("response") == "throttle":
        limiter.learn(True, 0.5)
    before = limiter.level(10.0)
    assert limiter.take(10.0)
    took = limiter.level(10.0) == before - 1
    assert took is case["expect"].get("first_send_takes_token", case["expect"].get("next_send_takes_token"))


def rate_clocker(case: Case) -> None:
    limiter, expect = CubicLimiter(), case["expect"]
    rates = []
    for at in case["given"]["records_at"]:
        limiter.learn(False, at)
        rates.append(limiter.measured_rate)
    if "after_6" in expect:
        assert rates[4] == expect["after_5"]
        assert rates[5] == pytest.approx(expect["after_6"])
    else:
        assert limiter.measured_rate >= expect.get("measured_rate_at_least", expect.get("measured_rate"))


def limiter_sequence(case: Case) -> None:
    given, limiter = case["given"], CubicLimiter()
    if given.get("enabled"):
        limiter.enabled, limiter.rate, limiter.capacity = True, 0.5, 1.0
        limiter._level, limiter._at = 1 - 1e-12, given["last_timestamp"]
    for step in case["steps"]:
        if step["op"] == "update":
            limiter.learn(True, step["t"])
            continue
        waits = [limiter.wait(step["t"]) for _ in range(step.get("times", 1))]
        assert limiter.take(step["t"]) is step["expect"]["ok"]
        assert len(set(waits)) == 1
        assert limiter.level(step["t"]) >= 0
        if "capacity" in step["expect"]:
            assert limiter.level(step["t"]) == pytest.approx(step["expect"]["capacity"])


def acquire_wait(case: Case) -> None:
    given, limiter = case["given"], CubicLimiter()
    limiter.enabled, limiter.rate, limiter.capacity = True, given["fill_rate"], given["max_capacity"]
    assert limiter.wait(given["idle_s"], given["amount"]) == case["expect"]["wait_s"]


RUNNERS: dict[str, Callable[[Case], None]] = {
    "call_sequence": call_sequence,
    "backoff_series": backoff_series,
    "backoff": one_backoff,
    "jitter_bounds": jitter_bounds,
    "jitter_distribution": jitter_distribution,
    "java_backoff_table": java_backoff_table,
    "backoff_ops": exponential_ops,
    "retry_after_delay": retry_after_delay,
    "clamped_delay": retry_after_delay,
    "quota_ops": quota_ops,
    "quota_cost": quota_cost,
    "quota_count": quota_count,
    "refund": refund,
    "token_series": token_series,
    "max_attempts": max_attempts,
    "multi_call": multi_call,
    "refusal_reason": refusal_reason,
    "strategy_ops": strategy_ops,
    "partitioned_quota": partitioned_quota,
    "java_strategy": java_strategy,
    "defaults": defaults,
    "classification": classification,
    "classifier": classifier,
    "should_retry": should_retry,
    "call": retried_call,
    "header": header,
    "sleep": sleep,
    "status_gate": status_gate,
    "bound": bound,
    "reset_header": reset_header,
    "pushback": grpc_pushback,
    "property": grpc_property,
    "delay_series": grpc_delay_series,
    "formula": grpc_formula,
    "token_ops": token_ops,
    "throttled_call": throttled_call,
    "call_series": call_series,
    "config_value": config_value,
    "cubic_table": cubic_table,
    "cubic_property": cubic_property,
    "cubic_throttle": cubic_throttle,
    "throttle_first_update": throttle_first_update,
    "token_bucket": token_bucket,
    "limiter": limiter,
    "rate_clocker": rate_clocker,
    "limiter_sequence": limiter_sequence,
    "acquire_wait": acquire_wait,
}
