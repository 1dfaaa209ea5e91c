"""Weather in which answers take long, or never come, while others come at once: neither load nor an outage."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenarios import scenario
from support.weather_judge import trial

POLLS_RESET = """
name: a tenth of a minute of resets beside long polls
duration: 80s
sidecars: 1
calls: 20/s
seed: 679150
routes: [{path: /items/1}, {path: /poll, share: 30%, latency: 25s}]
outages: [{at: 40s, lasts: 4s, kinds: reset}]
policy: {timeouts: {attempt: 60s}}
"""
POLLS_AWAY = """
name: a restart beside long polls
duration: 90s
sidecars: 1
calls: 20/s
seed: 600364
routes: [{path: /items/1}, {path: /poll, share: 30%, latency: 25s}]
outages: [{at: 40s, lasts: 10s, kinds: connect_failure}]
policy: {timeouts: {attempt: 60s}}
"""
ONE_HANGS = """
name: one instance of some answers nothing, the others at once
duration: 90s
sidecars: 1
calls: 20/s
seed: 841689
outages: [{at: 30s, lasts: 40s, share: 25%, kinds: attempt_timeout}]
policy: {timeouts: {attempt: 1s}}
"""
MANY = """
name: a hundred clients, each of which seldom calls, fill an upstream's queue
duration: 100s
sidecars: 100
calls: 70/s
seed: 334185
upstream: {latency: 50ms, capacity: 100/s, queue: 2s, overload: 429}
outages: [{at: 30s, lasts: 30s, share: 0%, capacity: 60/s}]
policy: {timeouts: {attempt: 500ms}}
"""


@pytest.mark.parametrize(
    ("text", "least"),
    [
        pytest.param(POLLS_RESET, 0.99, id="a route's outage"),
        pytest.param(POLLS_AWAY, 0.99, id="an endpoint's"),
        pytest.param(ONE_HANGS, 0.97, id="silence by chance"),
        pytest.param(MANY, 0.85, id="many clients"),
    ],
)
def test_calls_are_served(text: str, least: float, tmp_path: Path) -> None:
    found = trial(scenario(tmp_path, text))
    ours, none = found.ours.figures.success_rate, found.none.figures.success_rate
    assert ours >= max(none, least)
