"""Simulated sidecars that share buckets in Redis: with the leases and shares that they have, also while it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenarios import scenario

from proxy.lab.simulate import run_scenario
from proxy.lab.simulate.figures import Figures

RATE, BURST = 50, 40
OVERLOAD = f"""
duration: 1m
sidecars: 10
calls: 100/s
policy:
  rate: {{kind: rate, rate: {RATE}/s, burst: {BURST}, store: redis}}
  timeouts: {{total: 5s}}
"""
QUOTA = """
duration: 1m
sidecars: 10
calls: 50/s
outages: [{at: 20s, lasts: 20s, kinds: 500}]
policy:
  bucket: {kind: quota, capacity: 100, success_refund: 0, store: redis}
  classify: {transient: [500]}
"""


def played(folder: Path, text: str) -> dict[str, Figures]:
    """The figures of the policy, by what it does in an outage of Redis."""
    found = run_scenario(None, scenario(folder, text), {})
    return {each.name.rpartition(", ")[2]: each for each in found}


def most_above(figures: Figures, times: float = 1) -> float:
    """By how much the requests of any stretch of time were more than the rate allows, times so many, in bursts."""
    worst, requests = 0.0, [each[2] for each in figures.series]
    for start in range(len(requests)):
        total = 0
        for end in range(start, len(requests)):
            total += requests[end]
            # the seconds of the series begin and end within those of the stretch
            worst = max(worst, total - times * RATE * (end - start + 1))
    return worst / BURST


def test_a_fleet_gets_the_rate_that_it_shares(tmp_path: Path) -> None:
    fleet = played(tmp_path, OVERLOAD)["policy: standard"]
    assert most_above(fleet) <= 1
    assert fleet.requests >= 0.95 * RATE * 60
    assert 0 < fleet.scripts <= 60 * 10  # messages do not grow with the calls that wait


@pytest.mark.parametrize("kind", ["gone", "silent"])
def test_without_redis_each_has_its_share_or_all_or_nothing(tmp_path: Path, kind: str) -> None:
    weather = f"redis: {{on_outage: [share, local, deny], outages: [{{at: 20s, lasts: 20s, kind: {kind}}}]}}"
    found = played(tmp_path, OVERLOAD + weather)
    share, local, deny = found["policy: standard"], found["local"], found["deny"]
    assert most_above(share) <= 2
    assert share.requests >= 0.9 * RATE * 60
    assert most_above(local) > 10
    assert sum(each[2] for each in deny.series[25:40]) == 0
    assert deny.outcomes["rate_limited"] > 500
    for each in (
        share,
        deny,
    ):  # and nearly all is as before when it is back: parts that were trusted meanwhile count still
        assert sum(second[2] for second in each.series[45:60]) >= 0.85 * RATE * 15


def test_where_half_of_them_lose_it_at_most_twice_as_much_is_sent(tmp_path: Path) -> None:
    weather = "redis: {outages: [{at: 20s, lasts: 20s, share: 50%}]}"
    assert most_above(played(tmp_path, OVERLOAD + weather)["policy: standard"], 2) <= 2


def test_lost_data_refill_no_bucket(tmp_path: Path) -> None:
    """Redis returns empty in the middle of the upstream's outage, when the quota is spent."""
    kept = played(tmp_path, QUOTA)["policy: standard"]
    lost = played(tmp_path, QUOTA + "redis: {outages: [{at: 29s, lasts: 1s, empty: true}]}")["policy: standard"]
    retries = [each.attempts - each.calls for each in (kept, lost)]
    assert retries == [20, 20]


def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    text = OVERLOAD + "redis: {outages: [{at: 6s, lasts: 4s}, {at: 14s, lasts: 3s, kind: silent, share: 30%}]}"
    text = text.replace("duration: 1m", "duration: 20s")
    first, again = (played(tmp_path, text)["policy: standard"] for _ in range(2))
    assert first == again


def test_columns_are_only_of_policies_that_use_redis(tmp_path: Path) -> None:
    text = "duration: 5s\nredis: {on_outage: [deny, share]}\ncompare: {fleet: {bucket: {kind: quota, store: redis}}}\n"
    names = [each.name for each in run_scenario(None, scenario(tmp_path, text + "policy: {}"), {})]
    assert names == ["policy: standard", "fleet", "fleet, share", "without holding", "none", "naive: 3 at once"]


def requests_of(folder: Path, outage: str, store: str) -> list[int]:
    """The requests of each second, if ten sidecars keep their quota in this store and have this outage from 20 s on."""
    policy = f"policy: {{bucket: {{kind: quota, capacity: 500, store: {store}}}}}"
    text = f"duration: 40s\nsidecars: 10\ncalls: 50/s\noutages: [{outage}]\n{policy}\n"
    return [second[2] for second in played(folder, text)["policy: standard"].series]


def test_an_outage_that_one_sidecar_finds_is_probed_by_one(tmp_path: Path) -> None:
    outage = "{at: 20s, lasts: 15s, kinds: connect_failure}"
    alone, shared = (requests_of(tmp_path, outage, store) for store in ("memory", "redis"))
    assert sum(alone[24:34]) >= 10 * 9  # each has its own probes
    assert sum(shared[24:34]) <= 12
    assert sum(shared[20:24]) < sum(alone[20:24])


def test_a_cooldown_that_one_sidecar_is_told_holds_all(tmp_path: Path) -> None:
    outage = "{at: 20s, lasts: 2s, kinds: 429, retry_after: 5s}"
    alone, shared = (requests_of(tmp_path, outage, store) for store in ("memory", "redis"))
    assert (alone[20], shared[20]) == (10, 1)  # each asks once
    assert sum(shared[21:25]) == 0
