"""A second reading of the contract: a model of sections 3 to 5, written from their text alone, and the core beside it.

The model knows one call after another: classes by lists, safety, transparent retries, the order of checks, backoffs,
pushbacks, the arithmetic of quotas and throttles, the deadline. Random policies and calls are played by both, as policy
tests; every start, backoff, level and outcome must be the same. It shares no code with the core.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.policy_suites import failures, suite_of

EPS = 1e-6
DRAW = 0.3713
IDEMPOTENT = ("GET", "PUT", "DELETE")
#: Of each kind: attempts, base, throttling base, max, multiplier, and its own bucket.
KINDS: dict[str, tuple[int, float, float | None, float, float, dict[str, Any] | None]] = {
    "standard": (3, 0.1, None, 20, 2, {"capacity": 500, "retry_cost": 5}),
    "standard-2026": (3, 0.05, 1, 20, 2, {"capacity": 500, "retry_cost": 14, "throttling_cost": 5}),
    "legacy": (4, 0.1, 0.5, 20, 2, {"capacity": 500, "retry_cost": 5, "throttling_cost": 0}),
    "smithy": (6, 1, None, 20, 2, {"capacity": 500, "retry_cost": 5, "timeout_cost": 10, "refund": "flat"}),
    "grpc": (4, 1, None, 5, 3, None),
    "none": (1, 0, None, 0, 1, None),
}
CLASSES: dict[str | int, str] = {
    **dict.fromkeys(("connect_failure", "refused_stream", "reset", 425, 500, 502, 503), "transient"),
    **dict.fromkeys(("attempt_timeout", 408, 504), "timeout"),
    429: "throttling",
}
#: What a delay's field is divided by to get seconds.
DELAYS = {"retry-after": 1, "retry-after-ms": 1000, "x-amz-retry-after": 1000, "grpc-retry-pushback-ms": 1000}


class Level:
    """A quota or a throttle."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.throttle = spec, spec.get("kind") == "throttle"
        self.top = float(spec["max_tokens"] if self.throttle else spec["capacity"])
        self.now = self.top

    def price(self, cls: str) -> float:
        if self.throttle:
            return 0
        return float(self.spec.get(f"{cls}_cost", self.spec["retry_cost"]))

    def pays(self, cls: str) -> bool:
        return self.now > self.top / 2 + EPS if self.throttle else self.now + EPS >= self.price(cls)

    def failed(self) -> None:
        if self.throttle:
            self.now = max(0, self.now - 1)

    def succeeded(self, last: float | None) -> None:
        earned = 1.0 if last is None or self.spec.get("refund") == "flat" else last
        self.now = min(self.top, self.now + (self.spec["token_ratio"] if self.throttle else earned))


def backoff(policy: dict[str, Any], n: int, before: float | None, throttled: bool) -> float:
    _, base, throttling, most, multiplier, _ = KINDS[policy["strategy"]["kind"]]
    base = throttling if throttled and throttling is not None else base
    jitter = policy["jitter"]
    if jitter == "decorrelated":
        return min(most, base + DRAW * (3 * (base if before is None else before) - base))
    cap = min(most, base * multiplier ** (n - 1))
    return {"none": 1, "full": DRAW, "equal": 0.5 + 0.5 * DRAW, "proportional": 0.8 + 0.4 * DRAW}[jitter] * cap


def one_call(policy: dict[str, Any], call: dict[str, Any], bucket: Level | None) -> dict[str, Any]:
    kind, most = policy["strategy"]["kind"], policy["strategy"].get("max_attempts")
    most = KINDS[kind][0] if most is None else most
    script, method = call["attempts"], call["request"]["method"]
    now, entry, attempts, transparent, processed = 0.0, 0, 0, False, False
    series, before, last = 0, None, None
    starts, delays, levels = [0.0], [], []
    outcome = ""
    while not outcome:
        attempts += 1
        while True:
            event = script[min(entry, len(script) - 1)]
            entry += 1
            now += event["after"]
            fault = event.get("fail")
            refused = fault == "connect_failure" or (fault == "refused_stream" and not processed)
            if not refused or transparent or now > policy["total"] + EPS:
                break
            transparent = True
        if now > policy["total"] + EPS:
            now, outcome = policy["total"], "deadline"
            levels.append(bucket.now if bucket else None)
            break
        processed = processed or fault not in ("connect_failure", "refused_stream")
        status, fields = event.get("status", 0), event.get("headers", {})
        cls = CLASSES.get(fault or status)
        said = fields.get("x-should-retry") if status >= 400 else None
        pushback = fields.get("grpc-retry-pushback-ms", "")
        stop = status >= 400 and (said == "false" or pushback == "-1")
        if cls is None and said == "true":
            cls = "transient"
        named = [float(value) / DELAYS[name] for name, value in fields.items() if name in DELAYS and value != "-1"]
        delay = max(named, default=None) if cls else None
        unprocessed = fault == "refused_stream" or cls == "throttling" or status == 425
        never_sent = fault == "connect_failure"
        unsafe = policy["classify"]["unsafe_methods"]
        safe = method in IDEMPOTENT or unsafe == "always" or never_sent or (unprocessed and unsafe != "never")
        success = not fault and status < 400
        if bucket and success:
            bucket.succeeded(last)
        elif bucket and (cls or stop):
            bucket.failed()
        wait = 0.0
        if success:
            outcome = "success"
        elif stop:
            outcome = "pushback_stop"
        elif cls is None or not safe:
            outcome = "not_retryable"
        elif attempts >= most:
            outcome = "attempts_exhausted"
        elif bucket and not bucket.pays(cls):
            outcome = "bucket_empty"
        elif delay is not None and delay > policy["max_delay"]:
            outcome = "pushback_too_long"
        elif kind == "grpc" and delay is not None:  # exactly this long, and the series starts again
            wait, series, before = delay, 0, None
        else:
            series += 1
            wait = before = backoff(policy, series, before, cls == "throttling")
            if delay is not None:
                wait = min(max(delay, wait), wait + 5) if kind == "standard-2026" else max(delay, wait)
        if not outcome and now + wait > policy["total"] + EPS:
            outcome = "deadline"
        if not outcome:
            if bucket and cls:
                last = bucket.price(cls)
                bucket.now -= last
            delays.append(wait)
            starts.append(now + wait)
        levels.append(bucket.now if bucket else None)
        now += wait if not outcome else 0
    return {
        "attempts": attempts, "outcome": outcome, "elapsed": now, "starts": starts, "delays": delays,
        "tokens_after_each": levels, "tokens": bucket.now if bucket else None,
        "sent": [{"x-attempt-count": str(n)} for n in range(1, attempts + 1)],
    }  # fmt: skip


def drawn_policy(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(list(KINDS))
    policy: dict[str, Any] = {
        "strategy": {"kind": kind}, "classify": {"unsafe_methods": draw.choice(["never", "unprocessed", "always"])},
        "jitter": "full", "total": draw.choice([1.0123, 10.0019, 7200.0]), "max_delay": draw.choice([1, 60]),
        "bucket": KINDS[kind][5],
    }  # fmt: skip
    if kind != "none":
        policy["jitter"] = draw.choice(["none", "full", "equal", "proportional", "decorrelated"])
        policy["strategy"] |= {"max_attempts": draw.randint(1, 9), "backoff": {"jitter": policy["jitter"]}}
    if draw.random() < 0.3:
        policy["bucket"] = {"kind": "throttle", "max_tokens": draw.choice([1, 3, 10]), "token_ratio": 0.5}
    elif draw.random() < 0.4:
        costs = {name: draw.choice([0, 1, 5, 14]) for name in ("retry_cost", "timeout_cost", "throttling_cost")}
        policy["bucket"] = {"kind": "quota", "capacity": draw.choice([4, 13, 50]), **costs}
    return policy


def drawn_attempt(draw: random.Random) -> dict[str, Any]:
    after = draw.randint(1, 40000) / 1e5
    if draw.random() < 0.3:
        faults = ["connect_failure", "refused_stream", "reset", "attempt_timeout"]
        return {"fail": draw.choice(faults), "after": after}
    status = draw.choice([200, 302, 404, 408, 425, 429, 429, 429, 500, 501, 502, 503, 503, 503, 504])
    fields: dict[str, str] = {}
    for name in draw.sample([*DELAYS, "x-should-retry"], draw.choice([0, 0, 0, 1, 1, 2])):
        values = {"x-should-retry": ["true", "false"], "retry-after": ["0", "2", "9"]}
        fields[name] = draw.choice(values.get(name, ["0", "137.5", "1500", "7000"]))
    if "grpc-retry-pushback-ms" in fields and draw.random() < 0.2:
        fields["grpc-retry-pushback-ms"] = "-1"
    return {"status": status, "headers": fields, "after": after}


@pytest.mark.parametrize("seed", range(4))
def test_the_core_and_the_model_agree(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    upstreams, tests = {}, []
    for number in range(150):
        policy, calls = drawn_policy(draw), []
        upstreams[f"u{number}"] = as_upstream(number, policy)
        bucket = Level(policy["bucket"]) if policy["bucket"] else None
        for position in range(draw.choice([1, 4, 9])):
            method = draw.choice(["GET", "GET", "PUT", "POST", "PATCH"])
            call: dict[str, Any] = {
                "at": f"{3 * position}h", "request": {"method": method, "url": f"http://u{number}.test/"},
                "attempts": [drawn_attempt(draw) for _ in range(draw.randint(1, 6))],
            }  # fmt: skip
            call["expect"] = in_seconds(one_call(policy, call, bucket))
            call["attempts"] = [attempt | {"after": f"{attempt['after']}s"} for attempt in call["attempts"]]
            calls.append(call)
        tests.append({"name": str(number), "calls": calls})
    file = tmp_path / "drawn.yaml"
    file.write_text(yaml.safe_dump({"config": {"upstreams": upstreams}, "random": DRAW, "tests": tests}))
    assert failures(suite_of(file)) == []


def in_seconds(expect: dict[str, Any]) -> dict[str, Any]:
    times = {name: [f"{seconds:.9f}s" for seconds in expect[name]] for name in ("starts", "delays")}
    without_bucket = {"tokens", "tokens_after_each"} if expect["tokens"] is None else set()
    known = {name: value for name, value in expect.items() if name not in without_bucket}
    return known | times | {"elapsed": f"{expect['elapsed']:.9f}s"}


def as_upstream(number: int, policy: dict[str, Any]) -> dict[str, Any]:
    bucket = policy["bucket"]
    return {
        "hosts": [f"u{number}.test"], "strategy": policy["strategy"], "classify": policy["classify"],
        "bucket": {"kind": "quota", **bucket} if bucket else "off", "answers": "off",
        "timeouts": {"attempt": "30s", "total": f"{policy['total']}s"},
        "pushback": {"cooldown": "off", "max_delay": f"{policy['max_delay']}s"},
    }  # fmt: skip
