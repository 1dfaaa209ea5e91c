"""Buckets under overlapping calls, against a model that counts in whole microseconds and exact fractions.

The model is written from the contract's section 3 alone. What has left a window and what time has refilled must not
depend on which sums of decimal seconds have an exact binary form.
"""

from __future__ import annotations

import heapq
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from proxy.lab.policy_tests import load_suite, run_suite
from proxy.lab.policy_tests.report import as_json

SECOND = 1_000_000
ENDS, ALARMS, BEGINS = range(3)  # what happens first of all that happens at one instant (contract, section 8)
COSTS = {503: 5, 504: 3, 429: 2}
BUCKETS: list[dict[str, Any]] = [
    {"kind": "quota", "capacity": 5, "initial": 0, "refill": "10/s"},
    {"kind": "quota", "capacity": 10, "refill": "0.7/s"},
    {"kind": "quota", "capacity": 12, "initial": 3, "refill": "0.1/s"},
    {"kind": "throttle", "max_tokens": 4, "token_ratio": 0.57},
    {"kind": "throttle", "max_tokens": 10, "token_ratio": 0.1},
    {"kind": "budget", "percent": 20, "min_per_second": 1, "window": "3s"},
    {"kind": "budget", "percent": 0, "min_per_second": 2, "window": "2s"},
    {"kind": "budget", "percent": 100, "min_per_second": 0, "window": "1s"},
]
Call = tuple[
    int, list[tuple[int, int]]
]  # when it begins, and the status of each attempt's answer and how long it takes


class Level:
    """The bucket of the model. `now` only grows."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.kind, self.at = spec, spec["kind"], 0
        self.most = Fraction(spec.get("capacity", spec.get("max_tokens", 0)))
        self.tokens = Fraction(spec.get("initial", self.most))
        self.begun: list[int] = []
        self.retried: list[int] = []

    def advance(self, now: int) -> None:
        if self.kind == "quota":
            self.add(Fraction(now - self.at, SECOND) * Fraction(self.spec["refill"].removesuffix("/s")))
        self.at = now

    def add(self, tokens: Fraction | int) -> None:
        self.tokens = max(Fraction(0), min(self.most, self.tokens + tokens))

    def _counts(self) -> tuple[Fraction, int]:
        """How many retries the share and the minimum still grant."""
        window = int(self.spec["window"].removesuffix("s")) * SECOND
        calls, retries = (sum(self.at - each < window for each in events) for events in (self.begun, self.retried))
        share = Fraction(self.spec["percent"] * calls, 100) - retries
        return share, self.spec["min_per_second"] - sum(self.at - each < SECOND for each in self.retried)

    def take(self, status: int) -> bool:
        if self.kind == "quota":
            if self.tokens < COSTS[status]:
                return False
            self.add(-COSTS[status])
            return True
        if self.kind == "throttle":
            return self.tokens > self.most / 2
        if max(self._counts()) <= 0:
            return False
        self.retried.append(self.at)
        return True

    def ended(self, status: int, last: int | None) -> None:
        """An attempt has ended: what that gives or takes by itself. `last`: what the call's last retry paid."""
        if status == 200:
            earned = {"quota": COSTS.get(last or 0, 1), "throttle": Fraction(str(self.spec.get("token_ratio", 0)))}
            self.add(earned.get(self.kind, 0))
        elif self.kind == "throttle" and status in COSTS:
            self.add(-1)

    def shown(self) -> float:
        return float(self.tokens) if self.kind != "budget" else float(-(-max(*self._counts(), 0) // 1))


def model(
    spec: dict[str, Any], calls: list[Call], attempts: int, backoff: int
) -> list[tuple[str, list[int], list[float]]]:
    """Outcome, starts and levels after each attempt, for each call."""
    bucket, order = Level(spec), 0
    starts: list[list[int]] = [[] for _ in calls]
    levels: list[list[float]] = [[] for _ in calls]
    outcomes, paid = [""] * len(calls), [None] * len(calls)
    events = [(at, BEGINS, number, number, 0) for number, (at, _) in enumerate(calls)]
    order = len(calls)
    heapq.heapify(events)
    while events:
        now, what, _, number, status = heapq.heappop(events)
        bucket.advance(now)
        begun, answers = calls[number]
        order += 1
        if what != ENDS:
            if what == BEGINS:
                bucket.begun.append(now)
            status, after = answers[min(len(starts[number]), len(answers) - 1)]
            starts[number].append(now - begun)
            heapq.heappush(events, (now + after, ENDS, order, number, status))
            continue
        bucket.ended(status, paid[number])
        if status not in COSTS:
            outcomes[number] = "success" if status == 200 else "not_retryable"
        elif len(starts[number]) >= attempts:
            outcomes[number] = "attempts_exhausted"
        elif not bucket.take(status):
            outcomes[number] = "bucket_empty"
        else:
            paid[number] = status
            heapq.heappush(events, (now + backoff, ALARMS, order, number, 0))
        levels[number].append(bucket.shown())
    return list(zip(outcomes, starts, levels, strict=True))


def drawn(rng: random.Random) -> list[Call]:
    grid, at, calls = rng.choice([100_000, 50_000]), 0, []
    for _ in range(rng.choice([3, 6, 10])):
        at += rng.choice([0, 1, 2, 3, 7, 10, 13]) * grid
        statuses = [rng.choice([200, 200, 503, 503, 429, 504, 404]) for _ in range(rng.choice([1, 2, 4]))]
        calls.append((at, [(status, rng.choice([0, 1, 2, 5, 10]) * grid) for status in statuses]))
    return calls


@pytest.mark.parametrize("spec", BUCKETS, ids=lambda spec: "-".join(str(value) for value in spec.values()))
def test_levels_and_grants_are_those_of_exact_arithmetic(spec: dict[str, Any], tmp_path: Path) -> None:
    rng = random.Random(json.dumps(spec))
    costs = {"retry_cost": 5, "timeout_cost": 3, "throttling_cost": 2} if spec["kind"] == "quota" else {}
    for attempts, backoff in [(2, 100_000), (5, 100_000), (3, 300_000), (5, 700_000)]:
        policy = {
            "hosts": ["u.test"],
            "bucket": spec | costs,
            "strategy": {
                "kind": "standard",
                "max_attempts": attempts,
                "backoff": {"base": f"{backoff}us".replace("000us", "ms"), "multiplier": 1, "jitter": "none"},
            },
            "pushback": {"cooldown": "off"},
        }
        suites = [drawn(rng) for _ in range(8)]
        tests = [
            {
                "name": str(number),
                "calls": [
                    {
                        "at": f"{at // 1000}ms",
                        "request": {"url": "http://u.test/"},
                        "attempts": [{"status": status, "after": f"{after // 1000}ms"} for status, after in answers],
                    }
                    for at, answers in calls
                ],
            }
            for number, calls in enumerate(suites)
        ]
        file = tmp_path / "drawn.yaml"
        file.write_text(json.dumps({"config": {"upstreams": {"u": policy}}, "tests": tests}))
        suite, problems = load_suite(file, {})
        assert suite is not None, problems
        wanted = [each for calls in suites for each in model(spec, calls, attempts, backoff)]
        for (outcome, starts, levels), got in zip(wanted, json.loads(as_json(run_suite(suite))), strict=True):
            assert got["outcome"] == outcome, (got, suites[int(got["name"])])
            assert got["starts"] == pytest.approx([start / SECOND for start in starts], abs=1e-6)
            assert got["tokens_after_each"] == pytest.approx(levels, abs=1e-6)
