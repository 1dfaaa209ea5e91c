"""`possible`: what the best scheduler serves, compared with what a pencil says; and the kinds of limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.scenarios import scenario

from proxy.lab.simulate import run_scenario
from proxy.lab.simulate.arrivals import arrivals
from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.figures import Figures, figures
from proxy.lab.simulate.limits import BurstLimit, FixedWindow, RequestLimit, SlidingWindow
from proxy.lab.simulate.possible import Possible, Terms, possible
from proxy.lab.simulate.simulation import play
from proxy.lab.simulate.weather import Scenario

STEADY = "duration: 2m\nsidecars: 1\ncalls: 100/s\narrivals: steady\n"


def best(folder: Path, text: str, terms: Terms | None = None) -> Possible:
    found = scenario(folder, text)
    return possible(found, Terms(waiting=10_000) if terms is None else terms, arrivals(found))


def test_in_good_weather_all_is_possible_at_once(tmp_path: Path) -> None:
    done = best(tmp_path, STEADY)
    assert done.calls == done.succeeded == 12_000
    assert done.median == done.p99 == 0.0


@pytest.mark.parametrize(("lasts", "lost"), [(8, 0), (20, 0), (30, 10), (60, 60)])
def test_in_an_outage_only_calls_of_its_first_20_seconds_are_held_and_for_20_seconds_at_most(
    tmp_path: Path, lasts: int, lost: int
) -> None:
    done = best(tmp_path, f"{STEADY}outages: [{{at: 30s, lasts: {lasts}s, kinds: connect_failure}}]\n")
    # of 30 s the first 10 would have to wait for longer than 20; those of the last 10 are not held
    expected = lost if lasts != 30 else 20
    assert done.calls - done.succeeded == pytest.approx(expected * 100, abs=5)


def test_a_dip_makes_a_backlog_that_is_served_in_order(tmp_path: Path) -> None:
    text = "upstream: {capacity: 150/s}\noutages: [{at: 30s, lasts: 30s, share: 0%, capacity: 50/s}]\n"
    done = best(tmp_path, STEADY + text)
    assert done.succeeded == done.calls
    # the backlog is 1,500 calls at the end, and falls by 50 a second; at 100 to 150 of them none waits for a second
    ((began, ended),) = done.backlogs
    assert began == pytest.approx(31, abs=0.6) and ended == pytest.approx(87.5, abs=1)
    early = best(tmp_path, STEADY + text, Terms(total=5.0, waiting=10_000))
    # after 5 s 250 calls wait for 5 s: from then on every second call is served, until 5 s before the dip's end
    assert early.calls - early.succeeded == pytest.approx(0.5 * 20 * 100, abs=20)


def test_no_more_than_half_of_waiting_are_held(tmp_path: Path) -> None:
    text = f"{STEADY}outages: [{{at: 30s, lasts: 8s}}]\n"
    done = best(tmp_path, text, Terms(waiting=600))
    assert done.calls - done.succeeded == 800 - 300


def test_apps_that_leave_are_served_in_time_or_not(tmp_path: Path) -> None:
    done = best(tmp_path, f"{STEADY}patience: 5s\noutages: [{{at: 30s, lasts: 10s}}]\n")
    assert done.calls - done.succeeded == pytest.approx(500, abs=10)


def test_chance_is_met_with_retries(tmp_path: Path) -> None:
    text = f"{STEADY}upstream: {{failing: 30%}}\n"
    assert best(tmp_path, text, Terms(max_attempts=3)).success_rate == pytest.approx(1 - 0.3**3, abs=0.005)
    dry = best(tmp_path, text.replace("30%", "90%"), Terms(max_attempts=3))
    assert dry.success_rate < 0.15, "the bucket pays 100 retries, and what comes back"
    assert best(tmp_path, text, Terms(max_attempts=1)).success_rate == pytest.approx(0.7, abs=0.01)
    post = best(tmp_path, text, Terms(idempotent=False))
    assert post.success_rate == pytest.approx(0.7, abs=0.01)


def test_answers_that_break_are_asked_for_again(tmp_path: Path) -> None:
    text = f"{STEADY}upstream: {{breaking: 30%}}\n"
    assert best(tmp_path, text, Terms(max_attempts=3)).success_rate == pytest.approx(1 - 0.3**3, abs=0.005)
    assert best(tmp_path, text, Terms(idempotent=False)).success_rate == pytest.approx(0.7, abs=0.01)


def test_endpoints_and_keys_that_fail_alone_are_passed_over(tmp_path: Path) -> None:
    outage = "outages: [{at: 30s, lasts: 1m, endpoint: 1}]\n"
    assert best(tmp_path, f"{STEADY}upstream: {{endpoints: 2}}\n{outage}").success_rate == 1.0
    keys = outage.replace("endpoint: 1", "key: 1, kinds: 429")
    assert best(tmp_path, STEADY + keys, Terms(credentials=2)).success_rate == 1.0
    assert best(tmp_path, f"{STEADY}upstream: {{keys: 2}}\n{keys}").success_rate < 0.9


def test_neighbours_take_their_part(tmp_path: Path) -> None:
    text = STEADY.replace("100/s", "10/s") + "upstream: {capacity: 100/s, queue: 1s}\nneighbours: 95/s\n"
    done = best(tmp_path, text)
    assert done.success_rate == 1.0
    assert 0.5 < done.p99 < 1.5  # the queue is full of them


@pytest.mark.parametrize(
    ("limit", "waits"),
    [
        (FixedWindow(10.0), [0.0, 0.0, 7.0, 0.0]),
        (SlidingWindow(10.0), [0.0, 0.0, 8.0, 0.0]),
        (BurstLimit(10.0, 2.0), [0.0, 0.0, 3.0, 0.0]),
    ],
)
def test_limits_by_hand(limit: RequestLimit, waits: list[float]) -> None:
    """Two requests in ten seconds are allowed; they come after 1, 2, 3 and 13 seconds."""
    for now, expected in zip((1.0, 2.0, 3.0, 13.0), waits, strict=True):
        wait = limit.wait(now, 1, 2)
        assert wait == pytest.approx(expected)
        if not wait:
            limit.take(now, 1, 2)


def without_redrive(found: Scenario) -> Figures:
    """What apps get that ask the upstream themselves, once for each call."""
    (none,) = (column for column in columns(None, found, {})[0] if column.name == "none")
    return figures(found, play(found, none))


@pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
def test_limits_that_the_simulator_plays(tmp_path: Path, kind: str) -> None:
    text = f"{STEADY}upstream: {{limit: 1000, window: 10s, limit_kind: {kind}, burst: 100, overload: 429}}\n"
    text += "outages: [{at: 30s, lasts: 20s, share: 0%, limit: 500}]\n"
    # for 20 s of 120 half is refused
    assert without_redrive(scenario(tmp_path, text)).success_rate == pytest.approx(1 - 10 / 120, abs=0.01)


def test_a_limit_without_a_queue_refuses_what_comes_too_close(tmp_path: Path) -> None:
    text = "duration: 2m\ncalls: 60/s\nupstream: {capacity: 60/s, queue: 0s, overload: 503, retry_after: 1s}\n"
    found = scenario(tmp_path, text)
    none = without_redrive(found)
    assert none.success_rate == pytest.approx(0.5, abs=0.02)  # random arrivals: 1 / (1 + 60/60)
    steady = without_redrive(replace(found, arrivals="steady", calls=59.0))
    assert steady.success_rate > 0.99


def test_an_app_that_leaves_ends_its_call(tmp_path: Path) -> None:
    text = f"{STEADY}patience: 3s\noutages: [{{at: 30s, lasts: 10s, latency: 10s, share: 0%}}]\n"
    for each in run_scenario(None, scenario(tmp_path, text.replace("100/s", "10/s")), {}):
        assert each.outcomes["client_gone"] == pytest.approx(100, abs=2)
        assert each.latency["p99"] == pytest.approx(3.0)


def test_no_call_begins_in_a_pause_and_routes_have_their_share(tmp_path: Path) -> None:
    text = f"{STEADY}pauses: [{{at: 30s, lasts: 30s}}]\nroutes: [{{path: /a}}, {{path: /b, share: 20%, latency: 2s}}]\n"
    calls = list(arrivals(scenario(tmp_path, text)))
    assert len(calls) == 9000 and not any(30 <= call.at < 60 for call in calls)
    assert sum(call.route == 1 for call in calls) == pytest.approx(1800, abs=150)
    outage = "outages: [{at: 10s, lasts: 10s, route: 2, kinds: 404}]\n"
    ours, *_ = run_scenario(None, scenario(tmp_path, text + outage), {})
    assert ours.latency["p50"] < 0.06 and ours.latency["p90"] > 1.0
    assert ours.calls - ours.succeeded == pytest.approx(200, abs=50)
