"""What a policy test says of a call is what happens to that call on the wire, to the field.

Policies, requests and answers are drawn at random, of packs, rules, buckets, credentials and fallbacks. Backoffs are 0,
and nothing is held, so that the clock, which differs, decides nothing.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.front import Front
from support.scripted import Turn, Upstream, answer

from proxy.lab.policy_tests import Suite, load_suite, run_suite
from proxy.lab.policy_tests.report import as_json

PACKS = ("grpc", "openai", "aws", "anthropic", "azure", "stripe", "github", "google")
RULES: list[dict[str, Any]] = [
    {"status": 418, "as": "success"},
    {"status": 404, "as": "transient"},
    {"status": "4xx", "json": {"code": "x"}, "as": "timeout"},
    {"status": 503, "header": {"x-bad": "*"}, "as": "fatal"},
    {"status": 200, "json": {"error.code": "server_busy"}, "as": "transient"},
    {"status": 200, "header": {"x-bad": "y*"}, "as": "transient"},
    {"status": "5xx", "json": {"error.message": "*"}, "as": "throttling"},
]
BUCKETS: list[Any] = [
    "off",
    {"kind": "quota", "capacity": 4, "timeout_cost": 3, "throttling_cost": 2},
    {"kind": "quota", "capacity": 37, "timeout_cost": 3, "throttling_cost": 2},
    {"kind": "quota", "capacity": 30, "refund": "flat", "success_refund": 2},
    {"kind": "throttle", "max_tokens": 4, "token_ratio": 0.5},
]
STATUSES = [
    200,
    200,
    200,
    201,
    204,
    301,
    400,
    401,
    403,
    404,
    408,
    409,
    418,
    425,
    429,
    429,
    500,
    502,
    503,
    504,
    501,
    529,
]
FIELDS: list[dict[str, str]] = [
    {},
    {},
    {"retry-after": "0"},
    {"retry-after": "100"},
    {"retry-after-ms": "5"},
    {"x-ms-retry-after-ms": "7"},
    {"x-should-retry": "true"},
    {"x-should-retry": "false"},
    {"stripe-should-retry": "false"},
    {"x-amzn-errortype": "ThrottlingException:http://x"},
    {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"},
    {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "5ms"},
    {"grpc-status": "14"},
    {"grpc-retry-pushback-ms": "-1"},
    {"x-bad": "yes"},
]
BODIES = [
    "",
    "x",
    "{bad json",
    '{"error": {"code": "rate_limit_exceeded", "type": "requests"}}',
    '{"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}',
    '{"type": "error", "error": {"type": "overloaded_error"}}',
    '{"__type": "com.amazon#ProvisionedThroughputExceededException"}',
    "<Error><Code>SlowDown</Code></Error>",
    '{"error": {"code": "lock_timeout", "type": "invalid_request_error"}}',
    '{"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "0s"}]}}',
    '{"error": {"message": "x"}}',
    '{"error": {"code": "server_busy"}}',
    '{"code": "x"}',
]
COUNTS = ("x-attempt-count", "grpc-previous-rpc-attempts", "amz-sdk-request", "x-envoy-attempt-count")


def drawn_policy(rng: random.Random, number: int, url: str) -> dict[str, Any]:
    """An upstream whose calls take no time."""
    kind = rng.choice(["standard", "standard-2026", "legacy", "smithy", "grpc", "none"])
    strategy: dict[str, Any] = {"kind": kind}
    if kind != "none":
        strategy |= {"max_attempts": rng.randint(1, 4), "backoff": {"base": "0s", "throttling_base": "0s"}}
    classify: dict[str, Any] = {
        "unsafe_methods": rng.choice(["never", "unprocessed", "provider", "provider", "always"])
    }
    if rng.random() < 0.35:
        classify["rules"] = rng.sample(RULES, 2)
    policy = {
        "hosts": [f"u{number}.test"],
        "url": url,
        "strategy": strategy,
        "pushback": {"cooldown": "off", "max_delay": "2s"},
        "dialects": ["http", rng.choice(PACKS)] if rng.random() < 0.8 else ["http"],
        "classify": classify,
    }
    keys: list[tuple[float, str, Any]] = [
        (0.6, "bucket", rng.choice(BUCKETS)),
        (0.1, "mode", rng.choice(["observe", "off"])),
        (0.15, "credentials", {"header": "x-api-key", "values": ["a", "b"], "pick": rng.choice(["first", "next"])}),
        (0.15, "idempotency_key", {"inject": True}),
        (0.3, "attempt_headers", rng.sample(["grpc", "aws", "envoy"], 2)),
        (0.2, "answers", "off"),
        (0.25 if number else 0.0, "fallback", [f"u{rng.randrange(max(number, 1))}"]),
    ]
    return policy | {key: value for chance, key, value in keys if rng.random() < chance}


def drawn_step(rng: random.Random) -> dict[str, Any]:
    """What the upstream does to one attempt."""
    if rng.random() < 0.12:
        return {"fail": "reset"}
    fields, body = dict(rng.choice(FIELDS)), rng.choice(BODIES)
    status = rng.choice(STATUSES)
    if status == 204:
        return {"status": status, "headers": fields}
    kind = "application/json" if body.startswith("{") else "text/plain"
    return {"status": status, "headers": {**fields, "content-type": kind}, "body": body}


def drawn_call(rng: random.Random, number: int, policies: int) -> dict[str, Any]:
    """A call of one of so many policies, at a second of its own."""
    headers = {"x-call": str(number)}
    if rng.random() < 0.15:
        headers["idempotency-key"] = f"k{number}"
    if rng.random() < 0.06:
        headers["x-retry-disable"] = "true"
    if rng.random() < 0.08:
        headers |= {"authorization": "AWS4-HMAC-SHA256 Credential=x", "amz-sdk-invocation-id": f"i{number}"}
        headers["amz-sdk-request"] = f"attempt=1; max={rng.choice([1, 3])}"
    method = rng.choice(["GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
    request = {"method": method, "url": f"http://u{rng.randrange(policies)}.test/x", "headers": headers}
    if method in ("POST", "PUT", "PATCH"):
        request["body"] = "b" * rng.choice([1, 20])
    steps = [drawn_step(rng) for _ in range(rng.randint(1, 5))]
    return {"at": f"{number}s", "request": request, "attempts": steps}


class Script:
    """The upstream of all calls: each request's x-call says whose script it follows. `sent`: the attempt counts of each
    call's requests.
    """

    def __init__(self) -> None:
        self.steps: list[list[dict[str, Any]]] = []
        self.sent: list[list[dict[str, str]]] = []

    def follow(self, calls: list[dict[str, Any]]) -> None:
        """Play the scripts of these calls."""
        self.steps = [call["attempts"] for call in calls]
        self.sent = [[] for _ in calls]

    async def play(self, turn: Turn) -> None:
        """React to one request. Each has a connection of its own, so that no reset is one of a kept connection."""
        await turn.read_body()
        number = int(turn.request.one("x-call") or 0)
        step = self.steps[number][min(len(self.sent[number]), len(self.steps[number]) - 1)]
        self.sent[number].append(counts(dict(turn.request.fields)))
        if "fail" in step:
            turn.reset()
            return
        fields = [f"{name}: {value}" for name, value in step["headers"].items()]
        whole = answer(step["status"], step.get("body", "").encode(), *fields, "Connection: close")
        head, _, _ = whole.partition(b"\r\n\r\n")
        await turn.write(head + b"\r\n\r\n" if turn.request.method == "HEAD" else whole)
        turn.close()


def counts(fields: dict[str, str]) -> dict[str, str]:
    """The fields of a request that count its call's attempts."""
    return {name.lower(): value for name, value in fields.items() if name.lower() in COUNTS}


async def served(suite: Suite, calls: list[dict[str, Any]]) -> list[tuple[int, dict[str, str], bytes, str]]:
    """The status, fields, body and outcome that each call really has."""
    found = []
    async with Front(router=suite.settings.router, buckets=suite.settings.buckets) as front, front.app() as app:
        for number, call in enumerate(calls, start=1):
            request = call["request"]
            lines = [f"{name}: {value}" for name, value in request["headers"].items()]
            body = request.get("body", "").encode()
            reply = await app.ask(request["method"], request["url"], *lines, body=body)
            ended = (await front.observed.until(number))[-1]
            fields = {name.lower(): value for name, value in reply.fields}
            found.append((reply.status, fields, reply.body, ended["outcome"].value))
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_calls_are_served_as_a_policy_test_says(tmp_path: Path, seed: int) -> None:
    rng, script = random.Random(seed), Script()
    async with Upstream(script.play) as upstream:
        policies = {f"u{number}": drawn_policy(rng, number, upstream.url) for number in range(20)}
        calls = [drawn_call(rng, number, len(policies)) for number in range(150)]
        script.follow(calls)
        file = tmp_path / "drawn.yaml"
        tests = [{"name": "drawn", "calls": calls}]
        file.write_text(json.dumps({"config": {"upstreams": policies}, "random": 1.0, "tests": tests}))
        suite, problems = load_suite(file, {})
        assert suite is not None, problems
        for call, sent, said, (status, fields, body, outcome) in zip(
            calls, script.sent, json.loads(as_json(run_suite(suite))), await served(suite, calls), strict=True
        ):
            assert (status, outcome) == (said["status"], said["outcome"]), (call, said)
            assert sent == [counts(each) for each in said["sent"]], (call, said)
            assert fields["x-attempt-count"] == str(said["attempts"]) == str(len(sent))
            ended_with = call["attempts"][min(len(sent), len(call["attempts"])) - 1]
            if "fail" not in ended_with and call["request"]["method"] != "HEAD":
                assert body.decode() == ended_with.get("body", "")
            assert ("proxy-status" in fields) == (len(sent) > 1 or outcome != "success")
