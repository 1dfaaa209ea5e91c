"""Limits and outages as the log, the admin port and the metrics report them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proxy.admin import weather_view
from proxy.config.load import load_tree
from proxy.observe.weather import NO_LIMIT, LaneWeather, added_up, callers, evidence, facts, line, weather
from proxy.observe.weather_log import EACH, FirstAndLast, WeatherLog
from proxy.retry.weather.caller import ROUTE
from proxy.retry.weather.cooldown import ALL_CALLERS, NO_CREDENTIAL
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.weather_changes import OBSERVED, REASONS, WeatherChanged

BEGAN = WeatherChanged(
    event="outage_began",
    upstream="u",
    scope="u.example",
    endpoint="e1:80",
    group=ALL_CALLERS,
    at=13.5,
    since=13.0,
    limit=NO_LIMIT,
    ended=(("connect_failure", 4), ("reset", 1)),
    of=5,
    why="lost",
)
LANE = LaneWeather("u", "u.example", "e1:80", ALL_CALLERS, "", 0, NO_LIMIT, 0.0, 0, False, NO_LIMIT, NO_LIMIT)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {},
            "u: e1:80: an outage began: the last 5 attempts ended without an answer "
            "(4 x connect_failure, 1 x reset), the first of them 0.5 s ago",
        ),
        (
            {"event": "outage_over", "why": "answered", "endpoint": "", "at": 21.0},
            "u: the outage is over after 8.0 s: an attempt was answered",
        ),
        (
            {
                "event": "limit_began",
                "why": "refused",
                "limit": 12.0,
                "ended": (("503", 3),),
                "of": 10,
                "group": b"x" * 12,
            },
            "u: e1:80 (callers with the same credential): a limit of 12 attempts at a time began: "
            "3 of the last 10 attempts ended for want of capacity (3 x 503)",
        ),
        (
            {"event": "limit_began", "why": "returned", "limit": 1.0},
            "u: e1:80: a limit of 1 attempt at a time began: held calls returned after an outage",
        ),
        (
            {"event": "limit_began", "why": "returned", "limit": 1e9},
            "u: e1:80: a limit of attempts a second began: held calls returned after an outage",
        ),
        (
            {"event": "limit_over", "why": "unused", "limit": 1e9, "at": 20.0},
            "u: e1:80: the limit is over after 7.0 s: no call was held any more, and the limit did not bind",
        ),
        (
            {"event": "limit_over", "why": "unused", "limit": 3.0, "at": 20.0},
            "u: e1:80: the limit is over after 7.0 s (3 attempts at a time at the least): "
            "no call was held any more, and the limit did not bind",
        ),
    ],
)
def test_a_change_in_words(changed: dict[str, Any], text: str) -> None:
    assert line(replace(BEGAN, **changed)) == text


def test_a_change_for_machines_has_its_evidence() -> None:
    assert facts(BEGAN) == {
        "upstream": "u",
        "endpoint": "e1:80",
        "callers": "everybody",
        "why": "lost",
        "ended": {"connect_failure": 4, "reset": 1},
        "of": 5,
        "limit": None,
        "seconds": 0.5,
        "observed": False,
    }


def test_calls_that_return_one_after_another_have_a_pace_and_no_number_of_places() -> None:
    assert facts(replace(BEGAN, limit=1e9))["limit"] is None
    draining = LANE._replace(limit=1e9, pace=2.213, limited_since=13.0)
    (row,) = weather_view.rows(WeatherLog(), [draining], 20.0)
    assert (row["limit"]["attempts"], row["limit"]["per_second"]) == (None, 2.213)
    idle = {"circuits": [], "cooldown_seconds": 0, "held_by": {"rate": 0}, "waiting_for_a_place": 0}
    assert weather_view.holding({"weather": [row], **idle}) == [
        "e1:80: a limit of 2.21 a second for 7.0 s, with 0 under way"
    ]
    settings = load_tree({"upstreams": {"u": {"url": "http://e1:80"}}}, "redrive.yaml", {}).settings
    assert settings is not None
    ((_, shown),) = weather_view.limits({"u": [draining]}, settings.router)
    assert shown == NO_LIMIT
    ((_, shown),) = weather_view.limits({"u": [draining, LANE._replace(limit=3.0)]}, settings.router)
    assert shown == 3.0


def test_what_is_only_observed_says_so() -> None:
    observed = replace(BEGAN, scope="u.example" + OBSERVED)
    assert line(observed) == line(BEGAN) + " (mode: observe: no call is held)"
    assert facts(observed)["observed"] is True
    assert weather_view.rows(WeatherLog(), [LANE._replace(scope=OBSERVED, out_since=13.0)], 20.0) == []


def test_every_change_has_words() -> None:
    for why in REASONS.keys() - {"lost", "refused"}:
        assert line(replace(BEGAN, event="limit_over", why=why, limit=2.0)).endswith(f": {REASONS[why]}")


def test_callers_in_words() -> None:
    names = [callers(group) for group in (ALL_CALLERS, NO_CREDENTIAL, ROUTE + b"r GET", ROUTE + b" /s/M", b"\x01" * 12)]
    assert names == [
        "everybody",
        "callers without a credential",
        "GET of route r",
        "/s/M",
        "callers with the same credential",
    ]


def test_what_workers_know_is_added_up() -> None:
    one = LANE._replace(by="limit", held=2, limit=4.0, under_way=4, limited_since=10.0)
    other = LANE._replace(by="outage", held=1, out_since=12.0)
    (both,) = added_up([one, other])
    assert (both.by, both.held, both.limit, both.limited_since, both.is_out) == ("outage", 3, 4.0, 10.0, True)
    (sum_,) = added_up([one, one])
    assert (sum_.limit, sum_.under_way) == (8.0, 8)
    (shared,) = added_up([one._replace(is_shared=True), one._replace(is_shared=True)])
    assert (shared.limit, shared.under_way, shared.held) == (4.0, 4, 4)


def test_a_governor_that_holds_no_call_has_no_weather() -> None:
    governor = Governor()
    assert list(weather([("u", "h", governor)], 1.0)) == []
    governor.lanes.of_endpoint("").start(5.0, 503, 1.0, 1.0)
    assert list(weather([("u", "h", governor)], 2.0)) == []  # a cooldown that no call meets is shown elsewhere


def test_the_sentences_about_what_holds_calls_now() -> None:
    log = WeatherLog()
    log.note(BEGAN)
    lanes = [
        LANE._replace(by="outage", held=3, out_since=13.0),
        LANE._replace(endpoint="", group=NO_CREDENTIAL, by="limit", limit=4.0, under_way=4, limited_since=10.0),
    ]
    row: dict[str, Any] = {
        "weather": weather_view.rows(log, lanes, 20.0),
        "cooldown_seconds": 2.5,
        "circuits": [{"endpoint": "e2:80", "open": True}, {"endpoint": "e1:80", "open": False}],
        "waiting_for_a_place": None,
        "held_by": {"rate": 2},
        "rates": ["rpm", "tpm"],
    }
    assert weather_view.holding(row) == [
        "e1:80: an outage for 7.0 s: one probe at a time is sent, and other calls are held; 3 held now "
        "(the last 5 attempts ended without an answer (4 x connect_failure, 1 x reset))",
        "(callers without a credential): a limit of 4 at a time for 10.0 s, with 4 under way",
        "calls are asked to wait for another 2.5 s (a cooldown)",
        "the circuit breaker of e2:80 is open",
        "calls wait for tokens of their rate (rpm, tpm): 2 do now",
    ]
    calm = {"weather": [], "cooldown_seconds": 0.0, "circuits": [], "waiting_for_a_place": 0, "held_by": {"rate": 0}}
    assert weather_view.holding(calm) == ["nothing holds calls now"]


def test_the_log_keeps_the_last_changes_and_finds_what_began() -> None:
    log = WeatherLog()
    for number in range(EACH + 5):
        log.note(replace(BEGAN, at=float(number)))
    assert [noted.change.at for noted in log.last("u")] == [float(number) for number in range(5, EACH + 5)]
    assert len(log.news()) == EACH + 5
    assert log.news() == ()
    found = log.began(LANE, "outage_began")
    assert found is not None
    assert found.at == EACH + 4
    assert log.began(LANE._replace(endpoint="e2:80"), "outage_began") is None
    assert log.began(LANE, "limit_began") is None


def test_of_the_workers_that_notice_an_outage_the_one_with_evidence_counts() -> None:
    log = WeatherLog()
    log.note(replace(BEGAN, at=1.0), 7)
    log.note(BEGAN, 7)
    log.note(replace(BEGAN, at=14.0, ended=(), of=0), 8)
    assert log.began(LANE, "outage_began") == BEGAN
    assert line(replace(BEGAN, of=0)).endswith(f"{REASONS['lost']}, the first of them 0.5 s ago")


def test_the_lanes_of_a_worker_go_with_it() -> None:
    log = WeatherLog()
    log.heard(1, [LANE._replace(held=1)], Counter({("u", "web", "outage"): 1}))
    log.heard(2, [LANE._replace(held=2)], Counter({("u", "web", "outage"): 1, ("u", "batch", "rate"): 1}))
    assert [lane.held for lane in log.lanes()] == [3]
    assert log.held_by_app() == {("u", "web", "outage"): 2, ("u", "batch", "rate"): 1}
    log.ended(2)
    assert [lane.held for lane in log.lanes()] == [1]
    assert log.held_by_app() == {("u", "web", "outage"): 1}


def test_only_the_first_worker_to_notice_and_the_last_are_news() -> None:
    noticed, about = FirstAndLast(), facts(BEGAN)
    assert not noticed.is_news(2, "outage_began", {**about, "of": 0})  # it sees what another worker has found
    assert noticed.is_news(1, "outage_began", about)
    assert not noticed.is_news(2, "outage_began", about)
    assert noticed.is_news(2, "outage_began", {**about, "endpoint": "e2:80"})
    assert not noticed.is_news(1, "outage_over", about)
    assert noticed.is_news(2, "outage_over", about)
    assert noticed.is_news(3, "limit_began", about)
    noticed.ended(3)
    assert noticed.is_news(4, "limit_began", about)


def test_answers_of_gateways_are_no_answers_of_the_upstreams_own() -> None:
    """A 502 that counted was said to be no answer."""
    why = evidence(replace(BEGAN, ended=(("502", 4), ("reset", 1))))
    assert why == "the last 5 attempts ended without an answer of the upstream's own (4 x 502, 1 x reset)"


def test_held_calls_by_cause() -> None:
    lanes = [LANE._replace(by="outage", held=3), LANE._replace(by="cooling", held=2)]
    held = weather_view.held(lanes, waiting=4, every=10)
    assert held == {"cooling": 2, "ahead": 0, "limit": 0, "outage": 3, "concurrency": 4, "rate": 1}


def test_a_row_says_since_when_and_why() -> None:
    log = WeatherLog()
    log.note(BEGAN)
    (row,) = weather_view.rows(log, [LANE._replace(by="outage", held=3, out_since=13.0)], 20.0)
    assert (row["endpoint"], row["callers"], row["held_by"], row["held_calls"]) == ("e1:80", "everybody", "outage", 3)
    assert row["limit"] is None
    assert row["outage"]["seconds"] == 7.0
    assert row["outage"]["why"] == "the last 5 attempts ended without an answer (4 x connect_failure, 1 x reset)"
    (change,) = weather_view.changes(log, "u")
    assert change["event"] == "outage_began"
    assert row["outage"]["why"] in change["says"]


def test_what_is_left_is_said_with_its_unit() -> None:
    lane = LANE._replace(by="ahead", held=3, left=(("input-tokens", 6000.4), ("requests", 0.0), ("per-key", 12.0)))
    units = {"requests": "requests", "input-tokens": "input tokens"}
    (row,) = weather_view.rows(WeatherLog(), [lane], 20.0, units)
    assert row["left_says"] == "6,000 input tokens, 0 requests, 12 requests (per-key)"
    upstream = {
        "weather": [row],
        "cooldown_seconds": 0,
        "circuits": [],
        "waiting_for_a_place": 0,
        "held_by": {"rate": 0},
    }
    assert weather_view.holding(upstream) == [
        "3 calls are held by what the upstream said is left of its limits: "
        "6,000 input tokens, 0 requests, 12 requests (per-key)"
    ]
    del row["left_says"]  # as an earlier version of redrive has it
    assert weather_view.holding(upstream) == ["3 calls are held by what the upstream said is left of its limits"]
    upstream |= {"weather": [], "held_by": {"rate": 0, "cooling": 2}}
    assert weather_view.holding(upstream) == [
        "calls are held by the slow start after the upstream's cooldown: 2 are now"
    ]


def test_units_are_those_that_the_dialect_packs_name() -> None:
    tree = {"upstreams": {"llm": {"url": "https://llm.example", "dialects": ["http", "anthropic"]}}}
    settings = load_tree(tree, "redrive.yaml", {}).settings
    assert settings is not None
    (upstream,) = settings.router.upstreams
    assert weather_view.units_of(upstream) == {
        "requests": "requests",
        "tokens": "tokens",
        "input-tokens": "input tokens",
        "output-tokens": "output tokens",
    }
