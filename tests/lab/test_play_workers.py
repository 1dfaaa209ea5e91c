"""Four workers of one machine serve nearly as many calls as one process, in weather that none of them sees whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.play_workers import over_workers
from support.scenarios import scenario

#: Refusals by chance, with a delay that no call need wait for. Where each worker knew only its own refusals, four of
#: them served 31 % of these calls.
BY_CHANCE = """\
name: by_chance
duration: 20s
seed: 1
calls: 20/s
upstream: {latency: 50ms}
outages: [{at: 0s, lasts: 10m, share: 30%, kinds: 429, retry_after: 1s}]
"""
#: Less than is asked, without a queue, and a delay longer than the next place takes. Four workers served 61 %.
NO_QUEUE = """\
name: no_queue
duration: 20s
seed: 1
calls: 20/s
upstream: {latency: 40ms, capacity: 14/s, queue: 0s, overload: 429, retry_after: 2s}
"""


@pytest.mark.parametrize("text", [BY_CHANCE, NO_QUEUE])
def test_four_workers_serve_nearly_as_many_calls_as_one_process(text: str, tmp_path: Path) -> None:
    played = scenario(tmp_path, text)
    none, one, four = (over_workers(played, workers).figures.success_rate for workers in (0, 1, 4))
    assert none < one
    assert four > one - 0.05
