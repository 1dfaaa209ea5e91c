"""gRPC service configs: A6's rules, both spellings, and the policies they become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from configs import lines, loaded, policy, settings

from proxy.config.load import LoadResult, load
from proxy.config.settings import Settings
from proxy.retry.facts import GRPC_STATUS_NUMBERS, MappingFields
from proxy.retry.policies.bucket_specs import ThrottleSpec
from proxy.retry.policies.policy import Backoff

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "service_configs.json").read_text())
RETRY: dict[str, Any] = {
    "maxAttempts": 3,
    "initialBackoff": "1s",
    "maxBackoff": "120s",
    "backoffMultiplier": 1.6,
    "retryableStatusCodes": ["ABORTED"],
}


def read(folder: Path, config: object) -> LoadResult:
    (folder / "sc.json").write_text(json.dumps(config, indent=1))
    return loaded(folder, "upstreams:\n  a: {hosts: a.test, service_config: sc.json}\n")


def made(folder: Path, config: object) -> Settings:
    result = read(folder, config)
    assert result.settings is not None, lines(folder, result)
    return result.settings


def method(name: object = None, **policies: object) -> dict[str, object]:
    return {"methodConfig": [{"name": [name or {"service": "S", "method": "M"}], **policies}]}


@pytest.mark.parametrize("case", [each for each in CASES if "service_config" in each], ids=lambda each: each["name"])
def test_what_peers_refuse_and_accept(tmp_path: Path, case: dict[str, Any]) -> None:
    result = read(tmp_path, case["service_config"])
    errors = lines(tmp_path, result)
    assert (result.settings is None) is (case["expect"] == "refused"), errors
    for field in case.get("fields", ()):
        assert any(f": {field}: " in line or f".{field}: " in line for line in errors) or any(
            field.split("[")[0].split(".")[-1] in line for line in errors
        ), errors
    assert all(line.startswith("sc.json:") for line in errors)


def test_the_longest_durations_of_proto3_are_not_lost(tmp_path: Path) -> None:
    longest = "315576000000s"
    retry = {**RETRY, "initialBackoff": longest, "perAttemptRecvTimeout": longest}
    found = policy(made(tmp_path, method(retryPolicy=retry, timeout=longest)), path="/S/M")
    thousand_years = 1000 * 365 * 24 * 3600
    assert (found.timeouts.total, found.timeouts.attempt) == (thousand_years, thousand_years)
    assert found.strategy.backoff.base == thousand_years


def test_the_published_spelling(tmp_path: Path) -> None:
    found = policy(made(tmp_path, method(retryPolicy=RETRY, timeout="2.5s")), path="/S/M")
    assert (found.route, found.strategy.kind, found.strategy.max_attempts) == ("/S/M", "grpc", 3)
    assert found.strategy.backoff == Backoff(1, 120, 1.6, "proportional")
    assert found.strategy.exact_pushback
    assert found.classify.service_codes == {GRPC_STATUS_NUMBERS["ABORTED"]}
    assert (found.timeouts.total, found.timeouts.attempt, found.bucket) == (2.5, None, None)


def test_the_drafts_spelling(tmp_path: Path) -> None:
    draft = {
        "method_config": [
            {
                "name": [{"service": "S", "method": "M"}],
                "retry_policy": {
                    "max_retry_attempts": 2,
                    "exponential_backoff": {"initial_backoff_ms": 250, "max_backoff_ms": 3000, "multiplier": 2},
                    "retryable_status_codes": ["unavailable", 10],
                },
            },
            {
                "name": [{"service": "H"}],
                "hedging_policy": {"max_requests": 4, "hedging_delay_ms": 500, "non_fatal_status_codes": [14]},
            },
        ],
        "retry_throttling": {"max_tokens": 10, "token_ratio": 0.1},
    }
    found = made(tmp_path, draft)
    retry = policy(found, path="/S/M")
    assert (retry.strategy.max_attempts, retry.strategy.backoff) == (3, Backoff(0.25, 3, 2, "full"))
    assert retry.classify.service_codes == {14, 10}
    hedge = policy(found, path="/H/Any")
    assert (hedge.strategy.max_attempts, hedge.strategy.hedging_delay) == (4, 0.5)
    assert (hedge.strategy.non_fatal, hedge.strategy.safe_methods) == ({"UNAVAILABLE"}, True)
    for each in (retry, hedge, policy(found, path="/X/Y")):
        assert each.bucket is not None
        assert (each.bucket.spec, each.bucket.group) == (ThrottleSpec(10, 0.1), "service_config")


def test_hedging_without_a_delay_goes_all_at_once(tmp_path: Path) -> None:
    found = policy(made(tmp_path, method(hedgingPolicy={"maxAttempts": 4})), path="/S/M")
    assert (found.strategy.hedging_delay, found.strategy.non_fatal) == (0, frozenset())


def test_method_before_service_before_all(tmp_path: Path) -> None:
    config = {
        "methodConfig": [
            {"name": [{}], "retryPolicy": {**RETRY, "maxAttempts": 2}},
            {"name": [{"service": "S"}], "retryPolicy": {**RETRY, "maxAttempts": 3}},
            {"name": [{"service": "S", "method": "M"}, {"service": "T"}], "retryPolicy": {**RETRY, "maxAttempts": 4}},
            {"name": [{"service": "S", "method": "N"}]},
        ]
    }
    found = made(tmp_path, config)
    attempts = {path: policy(found, path=path).strategy.max_attempts for path in ("/S/M", "/S/X", "/T/X", "/U/X")}
    assert attempts == {"/S/M": 4, "/S/X": 3, "/T/X": 4, "/U/X": 2}
    assert policy(found, path="/S/N").strategy.kind == "none"
    without = made(tmp_path, method(retryPolicy=RETRY))
    assert (policy(without, path="/S/X").strategy.kind, policy(without, path="/S/X").route) == ("none", "")


def test_attempts_are_clamped_and_said_so(tmp_path: Path) -> None:
    result = read(tmp_path, method(retryPolicy={**RETRY, "maxAttempts": 9}, maxRequestMessageBytes=9))
    assert result.settings is not None
    assert policy(result.settings, path="/S/M").strategy.max_attempts == 5
    assert lines(tmp_path, result, "warning") == [
        "sc.json:11:20: methodConfig[0].retryPolicy.maxAttempts: warning: more than 5 attempts are treated as 5",
        "sc.json:19:4: methodConfig[0].maxRequestMessageBytes: warning: has no effect here",
    ]


@pytest.mark.parametrize(
    ("waits", "held"), [({}, True), ({"waitForReady": True}, True), ({"waitForReady": False}, False)]
)
def test_a_method_that_does_not_wait_for_ready_is_not_held(tmp_path: Path, waits: dict[str, bool], held: bool) -> None:
    found = policy(made(tmp_path, method(retryPolicy=RETRY, **waits)), path="/S/M")
    assert (found.outage, found.limit is not None) == (("hold", True) if held else ("fail", False))


@pytest.mark.parametrize(
    ("waits", "says"),
    [
        (True, "has no effect here: limits and outages hold calls without it, too"),
        (False, "only has the effect that no limit and no outage holds these calls"),
    ],
)
def test_waiting_for_ready_is_warned_about(tmp_path: Path, waits: bool, says: str) -> None:
    result = read(tmp_path, method(retryPolicy=RETRY, waitForReady=waits))
    assert lines(tmp_path, result, "warning") == [f"sc.json:19:20: methodConfig[0].waitForReady: warning: {says}"]


def test_waiting_for_ready_is_true_or_false(tmp_path: Path) -> None:
    result = read(tmp_path, method(retryPolicy=RETRY, waitForReady="no"))
    assert lines(tmp_path, result) == ["sc.json:19:20: methodConfig[0].waitForReady: must be true or false, not 'no'"]


def test_the_time_of_one_attempt(tmp_path: Path) -> None:
    found = made(tmp_path, method(retryPolicy={**RETRY, "perAttemptRecvTimeout": "0.75s"}))
    assert policy(found, path="/S/M").timeouts.attempt == 0.75


def test_an_inline_one_and_routes_beside_it(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a:
            hosts: a.test
            timeouts: {idle: 1m}
            service_config:
              methodConfig:
                - name: [{service: S, method: M}]
                  retryPolicy:
                    maxAttempts: 3
                    initialBackoff: 1s
                    maxBackoff: 2s
                    backoffMultiplier: 2
                    retryableStatusCodes: [14]
              retryThrottling: {maxTokens: 10, tokenRatio: 0.5}
            routes:
              - match: {headers: {x-tier: gold}}
                timeouts: {attempt: 5s}
              - match: {path: /plain/**}
                strategy: standard
              - match: {path: /own/**}
                bucket: {max_tokens: 4}
        """,
    )
    upstream = found.router.by_name["a"]
    gold = upstream.policy_for("POST", b"/S/M", MappingFields([("X-Tier", "gold")]))
    assert (gold.strategy.max_attempts, gold.timeouts.attempt, gold.timeouts.idle) == (3, 5, 60)
    other = upstream.policy_for("POST", b"/S/X", MappingFields([("X-Tier", "gold")]))
    assert (other.strategy.kind, other.timeouts.attempt) == ("none", 5)
    plain = policy(found, path="/plain/x")
    assert (plain.strategy.kind, plain.classify.service_codes) == ("standard", None)
    assert plain.bucket is not None
    assert plain.bucket.spec.kind == "quota"
    own = policy(found, path="/own/x")
    assert own.bucket is not None
    assert (own.bucket.spec, own.bucket.group) == (ThrottleSpec(4, 0.5), "/own/**")


REFUSED: dict[str, tuple[object, str]] = {
    "not an object": ([1], "a service config is an object, not a list"),
    "methods no array": ({"methodConfig": {}}, "methodConfig: is not an array"),
    "method no object": ({"methodConfig": [3]}, "methodConfig[0]: is not an object"),
    "policy no object": (method(retryPolicy=5), "retryPolicy: is not an object"),
    "fraction": (method(retryPolicy={**RETRY, "maxAttempts": 2.5}), "maxAttempts: must be a whole number"),
    "no codes": (method(retryPolicy={k: RETRY[k] for k in list(RETRY)[:-1]}), "retryableStatusCodes: is missing"),
    "negative": (method(retryPolicy={**RETRY, "maxBackoff": "-1s"}), "maxBackoff: must be greater than 0"),
    "nanoseconds": (method(retryPolicy={**RETRY, "maxBackoff": "1.0000000001s"}), "maxBackoff: is not a duration"),
    "no seconds": (method(retryPolicy={**RETRY, "maxBackoff": "s"}), "maxBackoff: is not a duration"),
    "recv timeout": (method(retryPolicy={**RETRY, "perAttemptRecvTimeout": "0s"}), "perAttemptRecvTimeout: must be"),
    "no time": (method(timeout="0s"), "timeout: must be greater than 0"),
    "negative time": (method(timeout="-1s"), "timeout: must be greater than 0"),
    "code out of range": (method(retryPolicy={**RETRY, "retryableStatusCodes": [17]}), "[0]: is not a gRPC status"),
    "draft attempts": (
        method(retryPolicy={"maxRetryAttempts": 0, "exponentialBackoff": {}, "retryableStatusCodes": [1]}),
        "maxRetryAttempts: must be at least 1",
    ),
    "hedging delay": (method(hedgingPolicy={"maxAttempts": 2, "hedgingDelay": "1 s"}), "hedgingDelay: is not a dur"),
    "method without service": (method({"method": "M"}), "name[0].method: names a method without its service"),
    "service a number": (method({"service": 5}), "name[0]: service and method are strings"),
    "method true": (method({"service": "S", "method": True}), "name[0]: service and method are strings"),
    "named twice": (
        {"methodConfig": [{"name": [{"service": "S"}]}, {"name": [{"service": "S"}]}]},
        "methodConfig[1].name[0]: is named by two methodConfig entries",
    ),
    "tokens a fraction": ({"retryThrottling": {"maxTokens": 2.5, "tokenRatio": 0.1}}, "maxTokens: must be a whole"),
    "tokens zero": ({"retryThrottling": {"maxTokens": 0, "tokenRatio": 0.1}}, "maxTokens: must be above 0"),
    "ratio zero": ({"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.0001}}, "tokenRatio: must be at least 0.001"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    config, words = REFUSED[name]
    errors = lines(tmp_path, read(tmp_path, config))
    assert any(words in line for line in errors), errors


def test_a_broken_or_missing_file(tmp_path: Path) -> None:
    text = "upstreams:\n  a: {hosts: a.test, service_config: none.json}\n"
    assert lines(tmp_path, loaded(tmp_path, text)) == [
        "redrive.yaml:2:38: upstreams.a.service_config: none.json: cannot be read: no such file or directory"
    ]
    (tmp_path / "none.json").write_text('{"methodConfig": [}')
    (line,) = lines(tmp_path, load(str(tmp_path / "redrive.yaml"), {}))
    assert line.startswith("none.json:1:19: this is not valid YAML")


def test_strategy_and_bucket_beside_it_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "sc.json").write_text("{}")
    text = "upstreams:\n  a: {hosts: a.test, service_config: sc.json, strategy: standard, bucket: off}\n"
    result = loaded(tmp_path, text)
    assert lines(tmp_path, result, "warning") == [
        "redrive.yaml:2:47: upstreams.a.strategy: warning: has no effect: service_config replaces it",
        "redrive.yaml:2:67: upstreams.a.bucket: warning: has no effect: service_config replaces it",
    ]
    assert result.settings is not None
    assert policy(result.settings).strategy.kind == "none"
