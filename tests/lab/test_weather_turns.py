"""Weather that turns: what must not make calls of a healthy upstream fail, or ask one that is away too often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from support.weather_judge import trial

from proxy.config.yaml_tree import Map
from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.figures import Figures, figures
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.simulation import play

ALL_AWAY = """
name: all endpoints are away at once
duration: 60s
sidecars: 1
calls: 20/s
upstream: {endpoints: 6}
outages: [{at: 20s, lasts: 15s, kinds: [connect_failure], after: 1ms}]
"""
SLOWER = """
name: slower for good after delays were named
duration: 150s
sidecars: 1
calls: 50/s
upstream: {latency: 50ms}
outages:
  - {at: 30s, lasts: 6s, kinds: [503], retry_after: 2s}
  - {at: 36s, lasts: 114s, share: 0%, latency: 250ms}
"""
AFTER_A_PAUSE = """
name: a burst of failures just after a pause
duration: 90s
sidecars: 1
calls: 100/s
pauses: [{at: 40s, lasts: 9s}]
upstream: {latency: 50ms, failing: 5%}
outages: [{at: 50s, lasts: 2s, share: 30%, kinds: [503]}]
"""
LONG_ANSWERS = """
name: a limit without a queue, of which answers take long
duration: 5m
sidecars: 2
calls: 6/s
upstream: {latency: 4s, limit: 8, window: 1s, limit_kind: bucket, burst: 10, overload: 429, retry_after: 2s}
outages: [{at: 1m, lasts: 1m, share: 0%, limit: 4}]
"""
LONG_DELAYS = """
name: a limit without a queue, which asks for long delays
duration: 2m
sidecars: 2
calls: 20/s
upstream: {latency: 500ms, capacity: 30/s, queue: 0s, overload: 429, retry_after: 5s}
outages: [{at: 1m, lasts: 30s, share: 0%, capacity: 15/s}]
"""
LONG_DELAYS_BELOW = """
name: a limit without a queue, which takes less than is asked for, and asks for ten seconds
duration: 3m
sidecars: 1
calls: 20/s
upstream: {latency: 50ms, capacity: 14/s, queue: 0s, overload: 429, retry_after: 10s}
"""
SELDOM_BY_CHANCE = """
name: two of a hundred refused by chance, five seconds named
duration: 150s
sidecars: 2
calls: 30/s
upstream: {latency: 100ms}
outages: [{at: 0s, lasts: 150s, share: 2%, kinds: 503, retry_after: 5s}]
"""
TWO_ENDPOINTS = """
name: three of ten refused by chance, of two endpoints whose delays hold the calls to both
duration: 2m
sidecars: 2
calls: 10/s
upstream: {latency: 500ms, endpoints: 2}
outages: [{at: 0s, lasts: 2m, share: 30%, kinds: 429, retry_after: 5s}]
policy: {pushback: {of: upstream}}
"""
THROTTLED = """
name: an upstream takes less than half for a while, and names no delay
duration: 3m
sidecars: 1
calls: 10/s
upstream: {latency: 40ms, capacity: 200/s, queue: 0s, overload: 503}
outages: [{at: 30s, lasts: 90s, share: 0%, capacity: 3/s}]
"""
ALONE = """
name: one client at a limit without a queue, which takes hardly more than is asked, and names no delay
duration: 2m
sidecars: 1
calls: 15/s
upstream: {latency: 100ms, capacity: 16/s, queue: 0s, overload: 503}
"""


def played(text: str, folder: Path) -> Figures:
    """The figures of redrive's defaults in a scenario."""
    (folder / "turn.yaml").write_text(text)
    scenario, problems = read_scenario(str(folder / "turn.yaml"))
    assert scenario is not None, problems
    scenario = replace(scenario, url="http://upstream.example/", policy=Map())
    found, problems = columns(None, scenario, {})
    assert not problems
    return figures(scenario, play(scenario, found[0]))


def test_six_endpoints_that_are_away_take_turns(tmp_path: Path) -> None:
    """All of them together are probed twice a second, as section 9, rule 3, has it, and all calls are served."""
    ours = played(ALL_AWAY, tmp_path)
    scenario, _ = read_scenario(str(tmp_path / "turn.yaml"))
    assert scenario is not None
    assert [verdict.says for verdict in trial(scenario).verdicts() if not verdict.holds] == []
    assert ours.attempts < 1.3 * ours.calls
    assert ours.succeeded > 0.995 * ours.calls


@pytest.mark.parametrize(("text", "least"), [(SLOWER, 0.94), (AFTER_A_PAUSE, 0.997)], ids=["slower", "after a pause"])
def test_a_limit_does_not_stay_when_its_cause_is_gone(text: str, least: float, tmp_path: Path) -> None:
    """These served 31 and 72 % while a limit stayed at one place, or drained more slowly than calls came."""
    ours = played(text, tmp_path)
    assert ours.succeeded >= least * ours.calls


@pytest.mark.parametrize(("text", "least"), [(LONG_ANSWERS, 0.96), (LONG_DELAYS, 0.55)], ids=["answers", "delays"])
def test_places_that_answers_return_late_do_not_hold_back_a_pace(text: str, least: float, tmp_path: Path) -> None:
    """These served 92 and 46 %: each refusal halved the places, which came back one in a round trip of seconds; and the
    pace was not lowered while no attempt had been answered, so that the second was refused each time. Single seeds of
    the delays differ by 12 points, so the mean of four is held.
    """
    plays = [played(f"{text}seed: {seed}\n", tmp_path) for seed in range(1, 5)]
    assert mean(each.succeeded / each.calls for each in plays) >= least


@pytest.mark.parametrize(
    "text", [LONG_DELAYS_BELOW, SELDOM_BY_CHANCE, TWO_ENDPOINTS], ids=["a limit", "by chance", "two endpoints"]
)
def test_long_delays_do_not_serve_fewer_calls_than_no_proxy(text: str, tmp_path: Path) -> None:
    """These served 2 % where no proxy serves 41, 90 where it serves 98, and 18 where it serves 70: each delay held all
    calls, and with two endpoints what holding gives was counted where nothing was held.
    """
    (tmp_path / "turn.yaml").write_text(text)
    scenario, problems = read_scenario(str(tmp_path / "turn.yaml"))
    assert scenario is not None, problems
    for seed in (51, 52):
        judge = trial(replace(scenario, seed=seed))
        assert judge.ours.figures.success_rate >= judge.none.figures.success_rate
        assert judge.worst_load <= 1.0


def test_an_upstream_that_takes_less_than_half_is_not_taken_for_one_that_fails_by_chance(tmp_path: Path) -> None:
    """Here 60 to 62 % were served, and calls that had waited came in bursts of 37 to 39 a second where 10 are asked."""
    (tmp_path / "turn.yaml").write_text(THROTTLED)
    scenario, problems = read_scenario(str(tmp_path / "turn.yaml"))
    assert scenario is not None, problems
    for seed in (1, 2):
        judge = trial(replace(scenario, seed=seed))
        assert judge.ours.figures.success_rate >= 0.63
        assert judge.worst_load < 4.0


@pytest.mark.parametrize("capacity", [16, 21])
def test_a_client_that_is_alone_finds_the_limit_by_the_times_between_its_attempts(
    capacity: int, tmp_path: Path
) -> None:
    """By its refusals alone it passed for chance, and two thirds of the calls were served."""
    found = played(ALONE.replace("16/s", f"{capacity}/s"), tmp_path)
    assert found.success_rate >= 0.97
    assert found.attempts_per_call <= 1.1
