"""Whole calls by chance: the laws that `random_play` names hold for some hundred scripts each time.
`make random-play` plays more, and makes what it finds small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from random_play import broken, play, reduced
from random_scripts import Asked, Limit, Script, Weather, drawn

from proxy.retry.call.endpoint_picker import EndpointPicker
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.weather.governor import Governor
from proxy.wire.http1.compiled import CORE

#: The scripts of one test.
EACH = 8


@pytest.mark.parametrize("seed", range(12))
def test_the_laws_of_calls_hold_whatever_is_drawn(seed: int) -> None:
    for number in range(EACH * seed, EACH * (seed + 1)):
        assert not broken(drawn(number)), f"script {number}"


def test_a_key_is_not_used_too_soon_at_an_endpoint_that_refused_it_while_another_key_is_free_there() -> None:
    assert not broken(drawn(811673))


def test_what_a_probe_paid_stays_paid_if_the_process_ends_meanwhile_and_no_other_follows() -> None:
    """From SIGTERM nobody is held, so that the failed probe is an attempt like others."""
    assert not broken(drawn(911168))


@pytest.mark.parametrize("seed", [915252, 1200541])
def test_no_call_is_put_back_into_a_queue_of_a_process_that_ends(seed: int) -> None:
    """The turn of these calls had come, and a later gate held them: a delay that an answer named then put them back."""
    assert not broken(drawn(seed))


def test_scripts_reach_all_gates_and_ends() -> None:
    """Else the laws would say little."""
    left = {"cooldown", "ahead", "limit", "outage", "rate", "concurrency"}
    left |= {"success", "attempts_exhausted", "cooling", "deadline", "overloaded", "client_gone"}
    numbers = iter(range(1000, 1060))
    while left:
        for player in play(drawn(next(numbers))).players:
            assert player.outcome is not None
            left -= {player.outcome.value, *(record.held_by for record in player.call.so_far.history)}


def _two_endpoints() -> Script:
    """The first endpoint asks the call to wait, the second fails, so that the third attempt could go back too soon."""
    upstream: dict[str, Any] = {
        "url": ["http://a0.test", "http://a1.test"], "hosts": ["a.test"], "pushback": {"cooldown": "off"},
        "strategy": {"kind": "standard", "max_attempts": 5},
    }  # fmt: skip
    config = {"upstreams": {"a": upstream}}
    weather = {"a": (Weather(0.0, "refused", 0.01, 30.0, "0"), Weather(0.0, "failed", 0.01, None, "1"))}
    return Script(0, config, config, weather, {}, (Asked(0.0),))


def test_calls_that_a_slow_start_holds_do_not_pass_outages_probes_round_for_ever() -> None:
    """Two endpoints are out, and calls of four apps with two keys return slowly after a delay. The probe of each
    outage left for the slow start's queue, whose first call left for that of the outage.
    """
    config = {
        "apps": {
            "by": [{"header": "X-App"}],
            "known": {"web": {"weight": 4, "priority": "high"}, "batch": {"weight": 1, "priority": "low"}, "mid": {}},
        },
        "upstreams": {
            "a": {
                "url": ["http://a0.test", "http://a1.test"], "hosts": ["a.test"],
                "pushback": {"of": "upstream"}, "timeouts": {"attempt": "400ms"}, "fallback": ["b"],
            },
            "b": {"url": "http://b.test", "hosts": ["b.test"]},
        },
    }  # fmt: skip
    mine, other = (("authorization", "Bearer mine"),), (("authorization", "Bearer other"),)
    weather = {
        "a": (Weather(0.0, "unavailable", 0.001, 0.04, "Bearer other"), Weather(12.0, "well", 0.5)),
        "b": (Weather(7.0, "refused", 0.0, 3.0),),
    }
    calls = (
        Asked(0.14391437542210608, "b", headers=mine, path="/r"),
        Asked(0.1751872732628172, headers=other),
        Asked(2.1934230519192157, "b", headers=mine),
        Asked(2.387399670190778, headers=mine, path="/r"),
        Asked(11.437601093054804, headers=other, path="/r"),
        Asked(11.459756368986564, headers=mine),
        Asked(11.719938112963952, headers=other),
        Asked(14.713846785231134, headers=mine),
        Asked(14.967398796521152, headers=other, path="/r"),
        Asked(15.69710829059233, headers=(*other, ("x-app", "batch"))),
        Asked(15.892069096446145, headers=(*other, ("x-app", "web"))),
    )
    script = Script(771433, config, config, weather, {"b": Limit("bucket", 1, 5.0, "garbage", True)}, calls)
    assert not broken(script)


def _forgets(*_: object, **__: object) -> None:
    """Do nothing."""


@pytest.mark.skipif(CORE == "compiled", reason="compiled classes can't be made to fail")
@pytest.mark.parametrize(
    ("owner", "name", "scripts", "what"),
    [
        (EndpointPicker, "push_back", [_two_endpoints()], "before its pushback ends"),
        (WaitingRoom, "leave", map(drawn, range(8)), "seats of the waiting room"),
        (Governor, "leave", map(drawn, range(8)), "lane"),
    ],
    ids=["pushbacks", "seats", "turns"],
)
def test_a_broken_law_is_found(
    owner: type, name: str, scripts: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, _forgets)
    assert any(what in broken(script) for script in scripts)


@pytest.mark.skipif(CORE == "compiled", reason="compiled classes can't be made to fail")
def test_what_is_found_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndpointPicker, "push_back", _forgets)
    script = _two_endpoints()
    larger = replace(script, calls=(Asked(0.0), Asked(0.5, size=10), Asked(40.0, gone=0.1)))
    small = reduced(larger, broken(larger))
    assert len(small.calls) == 1
    assert "before its pushback ends" in broken(small)
