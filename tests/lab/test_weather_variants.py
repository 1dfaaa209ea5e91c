"""Weather that no rule was tuned for: variants of the examples that are served well, so that they stay so.

Each names the rules of the contract's section 9 that are held in it. None serves fewer calls than no retries do.
Decision 0015 has the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.weather_judge import trial

from proxy.lab.simulate.scenario import read_scenario

#: By name: the scenario, without its name, and the rules that hold.
VARIANTS = {
    "a second's window, two sidecars, a limit of more than is asked": (
        """
duration: 3m
sidecars: 2
calls: 45/s
seed: 2
upstream: {latency: 40ms, limit: 60, window: 1s, limit_kind: sliding, overload: 429}
""",
        {1, 3},
    ),
    "a second's window, one sidecar, and the limit dips below what is asked": (
        """
duration: 3m
sidecars: 1
calls: 20/s
upstream: {latency: 100ms, limit: 30, window: 1s, limit_kind: sliding, overload: 429}
outages: [{at: 1m, lasts: 30s, share: 0%, limit: 15}]
""",
        {3},
    ),
    "one of three instances hangs, and a row of its timeouts begins an outage by chance": (
        """
duration: 2m
sidecars: 1
calls: 20/s
seed: 556046
outages: [{at: 40s, lasts: 40s, share: 33%, kinds: attempt_timeout}]
policy: {timeouts: {attempt: 500ms}}
""",
        {1},
    ),
    "too much is asked all the time, and calls return from outages of its queue": (
        """
seed: 207167
duration: 2m
sidecars: 4
calls: 60/s
upstream: {latency: 50ms, capacity: 41/s, queue: 10s}
policy: {timeouts: {attempt: 1s}}
""",
        {3},
    ),
    "no queue and no delay named, one sidecar": (
        """
duration: 2m
sidecars: 1
calls: 45/s
upstream: {latency: 40ms, capacity: 60/s, queue: 0s, overload: 429}
""",
        {1, 2, 3},
    ),
    "three of ten refused by chance, no delay named": (
        """
duration: 2m
sidecars: 5
calls: 40/s
outages: [{at: 0s, lasts: 2m, share: 30%, kinds: 429}]
""",
        {1, 3},
    ),
    "one of five refused by chance, a second named": (
        """
duration: 2m
sidecars: 3
calls: 20/s
upstream: {latency: 100ms}
outages: [{at: 0s, lasts: 2m, share: 20%, kinds: 503, retry_after: 1s}]
""",
        {1, 3},
    ),
    "six seconds of 429 on all calls, no delay named": (
        """
duration: 80s
sidecars: 2
calls: 20/s
upstream: {latency: 50ms}
outages: [{at: 30s, lasts: 6s, kinds: 429}]
""",
        {1, 3, 6},
    ),
    "ninety seconds of 429 on all calls, no delay named": (
        """
duration: 160s
sidecars: 1
calls: 20/s
upstream: {latency: 50ms}
outages: [{at: 30s, lasts: 90s, kinds: 429}]
""",
        {1, 2, 3, 4, 6},
    ),
    "slower for good after a restart": (
        """
duration: 3m
sidecars: 4
calls: 40/s
upstream: {capacity: 200/s, queue: 2s}
outages:
  - {at: 1m, lasts: 8s, kinds: connect_failure}
  - {at: 68s, lasts: 112s, share: 0%, latency: 400ms}
""",
        {1, 3},
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_the_weather_is_served_as_well_as_before(tmp_path: Path, name: str) -> None:
    text, holds = VARIANTS[name]
    file = tmp_path / "variant.yaml"
    file.write_text(f"name: {name}\n{text}")
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    judge = trial(found)
    broken = [each for each in judge.verdicts() if each.rule in holds and not each.holds]
    assert [each.says for each in broken] == []
    assert judge.ours.figures.success_rate >= judge.none.figures.success_rate - 0.001
