"""Policy tests with drawn numbers give what two plain models of the contract's formulas give."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from plain_models import Cubic, Playing, Sequence, drawn_calls, drawn_upstream, milliseconds, seconds

from proxy.lab.policy_tests import load_suite, run_suite
from proxy.lab.policy_tests.report import as_json


def played(tmp_path: Path, upstream: dict[str, Any], calls: list[dict[str, Any]], draw: float) -> list[dict[str, Any]]:
    """The results of these calls, as `redrive test --json` prints them."""
    file = tmp_path / "drawn.yaml"
    config = {"upstreams": {"u": upstream}}
    file.write_text(json.dumps({"config": config, "random": draw, "tests": [{"name": "drawn", "calls": calls}]}))
    suite, problems = load_suite(file, {})
    assert suite is not None, problems
    results: list[dict[str, Any]] = json.loads(as_json(run_suite(suite)))
    return results


def when(call: dict[str, Any]) -> float:
    """When a call begins."""
    return float(call["at"].removesuffix("ms")) / 1000


def same(expected: Any, found: Any) -> bool:
    """Whether two results agree, within 1 ms."""
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, str) or expected is None:
        return bool(expected == found)
    return abs(expected - found) < 1.1e-3


@pytest.mark.parametrize("seed", range(8))
def test_sequences_of_calls(tmp_path: Path, seed: int) -> None:
    rng, compared = random.Random(seed), 0
    for _ in range(40):
        upstream, calls, draw = drawn_upstream(rng), drawn_calls(rng), rng.choice([0.0, 0.25, 0.5, 1.0])
        model, found = Sequence(upstream, draw), played(tmp_path, upstream, calls, draw)
        for call, following, result in zip(calls, [*calls[1:], None], found, strict=True):
            expected = Playing(model, call, when(call)).play()
            if following is not None and when(call) + expected["elapsed"] >= when(following):
                break  # calls that overlap are not the model's subject
            got = {key: result[key] for key in expected}
            assert all(same(value, got[key]) for key, value in expected.items()), (expected, got, upstream, call)
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("seed", range(4))
def test_the_limiter_of_adaptive(tmp_path: Path, seed: int) -> None:
    rng, compared = random.Random(seed), 0
    for _ in range(40):
        draw, calls = rng.choice([0.0, 0.5, 1.0]), []
        at = 0.0
        for _ in range(rng.randint(3, 25)):
            statuses = [rng.choice([200, 200, 429, 429, 503, 404]) for _ in range(3)]
            steps = [{"status": status, "after": rng.choice(["11ms", "70ms", "130ms"])} for status in statuses]
            calls.append(
                {"at": milliseconds(at), "request": {"method": "GET", "url": "http://u.test/"}, "attempts": steps}
            )
            at += rng.choice([0.21, 0.57, 1.03, 2.7, 9.3])
        upstream = {"hosts": ["u.test"], "strategy": "adaptive", "bucket": "off", "pushback": {"cooldown": "off"}}
        limiter, found = Cubic(), played(tmp_path, upstream, calls, draw)
        for call, following, result in zip(calls, [*calls[1:], None], found, strict=True):
            starts, now = through(limiter, call, draw)
            if following is not None and now >= when(following):
                break
            got = (result["starts"], result["fill_rate"], result["measured_rate"])
            assert same(starts, got[0]), (starts, got, calls)
            assert got[1:] == pytest.approx((limiter.fill, limiter.measured), rel=1e-5), calls
            compared += 1
    assert compared > 60


def through(limiter: Cubic, call: dict[str, Any], draw: float) -> tuple[list[float], float]:
    """Play a call of at most three attempts through the limiter. Returns its starts, and when it ended."""
    now, starts = when(call), []
    for number, step in enumerate(call["attempts"]):
        now = limiter.acquire(now)
        starts.append(now - when(call))
        now += seconds(step)
        limiter.learn(now, step["status"] == 429)
        if step["status"] in (200, 404) or number == 2:
            break
        now += draw * 0.1 * 2**number
    return starts, now
