"""What is told of calls that are kept: nothing that is not so, whatever came of them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config.load import load_tree
from proxy.config.settings import Settings
from proxy.lab.explain.kept import explain_kept

CONFIG: dict[str, Any] = {
    "strategies": {"fast": {"kind": "standard", "backoff": {"base": "100ms", "jitter": "none"}}},
    "defaults": {"strategy": "fast"},
    "upstreams": {
        "payments": {
            "url": "https://pay.example/v2",
            "fallback": ["backup"],
            "classify": {"rules": [{"status": 200, "json": {"error": "*"}, "as": "transient"}]},
            "routes": [{"match": {"path": "/v1/*", "headers": {"X-Tier": "gold"}}, "strategy": "none"}],
        },
        "backup": {"url": "http://10.0.0.2"},
        "hedged": {"url": "http://h.example", "strategy": {"kind": "hedging", "hedging_delay": "10ms"}},
        "rpc": {"url": "http://10.0.0.3:50051", "services": ["a.B"], "dialects": ["http", "grpc"]},
    },
}


@pytest.fixture(scope="module")
def settings() -> Settings:
    found = load_tree(CONFIG, "redrive.yaml", {})
    assert found.settings is not None, found.errors
    return found.settings


def attempt(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"attempt": number, "start": number * 0.1, "duration": 0.01, "decision": "retried", **more}


def call(*history: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {
        "number": 7,
        "time": "2026-01-01T00:00:00.000Z",
        "upstream": "payments",
        "route": "",
        "method": "GET",
        "host": "pay.example",
        "path": "/payments/orders?card=***",
        "status": 503,
        "outcome": "attempts_exhausted",
        "attempts": len(history),
        "duration": 0.5,
        "history": list(history),
    }
    return {**made, **more}


def transient(status: int = 503) -> dict[str, Any]:
    return {"status": status, "class": "transient", "because": f"transient: {status}"}


def ends(explained: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    return [(each["end"], each["class"], each["outcome"], each["attempts"]) for each in explained["ends"]]


@pytest.mark.parametrize(
    ("host", "path"),
    [("pay.example", "/payments/orders?card=***"), ("pay.example", "/orders"), ("pay.example:443", "/orders")],
)
def test_it_finds_the_upstream_however_the_app_asked(settings: Settings, host: str, path: str) -> None:
    explained = explain_kept(settings, call(attempt(**transient()), host=host, path=path))
    assert explained["applies"]["upstream"].startswith("payments, by ")
    assert explained["refused"] is None
    assert ends(explained) == [("503", "transient", "attempts_exhausted", 6)]  # and three at the fallback
    assert {each["key"] for each in explained["values"]} > {"strategy.backoff.base"}


def test_what_the_upstream_said_about_waiting_counts(settings: Settings) -> None:
    for name, delay in (("retry-after", 90.0), ("retry-after-ms", 61.5), ("x-ratelimit-reset", 99.25)):
        said = attempt(status=429, **{"class": "throttling", "pushback": name, "pushback_delay": delay})
        (end,) = explain_kept(settings, call(said))["ends"]
        assert end["judgements"][0]["decision"].endswith("more than pushback.max_delay, 60 s")
    stop = attempt(**transient(), pushback="x-should-retry", decision="pushback_stop")
    (end,) = explain_kept(settings, call(stop, upstream="backup", host="10.0.0.2", path="/x"))["ends"]
    assert end["outcome"] == "pushback_stop"


def test_a_call_that_was_held_has_no_answer_to_explain(settings: Settings) -> None:
    explained = explain_kept(settings, call(outcome="cooling", attempts=0))
    assert explained["ends"] == []
    assert "no attempt was made: the call was held for 0.5 s, and answered by redrive (cooling)" in explained["notes"]


def test_attempts_elsewhere_are_told_apart(settings: Settings) -> None:
    history = [
        attempt(1, upstream="payments", **transient(), decision="fell back"),
        attempt(2, upstream="backup", **transient(500), decision="not_retryable"),
    ]
    explained = explain_kept(settings, call(*history))
    assert [each["end"] for each in explained["ends"]] == ["503"]
    assert "backup took the call over under its own policy: attempt 2" in explained["notes"]


def test_a_hedge_that_lost_has_no_answer(settings: Settings) -> None:
    lost = attempt(2, decision="cancelled")
    won = attempt(1, status=200, **{"class": "success"}, decision="delivered")
    explained = explain_kept(settings, call(won, lost, upstream="hedged", host="h.example", path="/x", status=200))
    assert [each["end"] for each in explained["ends"]] == ["200"]
    assert "attempt 2 was cancelled before its answer was known: another one ended the call" in explained["notes"]
    assert any(note.startswith("attempts are hedged") for note in explained["notes"])


def test_a_grpc_call_is_judged_by_its_own_status(settings: Settings) -> None:
    history = attempt(status=200, grpc_status=14, because="transient: UNAVAILABLE", **{"class": "transient"})
    more = {"upstream": "rpc", "host": "10.0.0.3:50051", "path": "/a.B/C", "method": "POST", "grpc_status": 14}
    explained = explain_kept(settings, call(history, protocol="http/2", **more))
    assert explained["applies"]["upstream"].startswith("rpc, by ")
    assert [(each["end"], each["class"]) for each in explained["ends"]] == [("UNAVAILABLE", "transient")]


def test_a_stream_that_broke_under_the_apps_hands_cannot_be_retried(settings: Settings) -> None:
    broke = attempt(fault="reset", **{"class": "transient"}, decision="committed")
    explained = explain_kept(settings, call(broke, outcome="committed"))
    assert explained["ends"] == []
    assert any("could not be followed by another one, whatever the policy says" in note for note in explained["notes"])


def test_what_was_judged_by_a_body_is_not_explained_without_it(settings: Settings) -> None:
    judged = attempt(status=200, because="rule 1", **{"class": "transient"})
    explained = explain_kept(settings, call(judged))
    assert explained["ends"] == []
    assert "attempt 1 (200) was judged transient (rule 1), by a header or a body that is not kept" in explained["notes"]
    otherwise = attempt(status=418, because="transient: 418", **{"class": "transient"})
    explained = explain_kept(settings, call(otherwise))
    assert [(each["end"], each["class"]) for each in explained["ends"]] == [("418", "unnamed")]
    assert any("under the configuration in force 418 is unnamed" in note for note in explained["notes"])


def test_a_route_that_headers_chose_is_taken_again(settings: Settings) -> None:
    explained = explain_kept(settings, call(attempt(**transient()), route="/v1/*", path="/payments/v1/x"))
    assert explained["applies"]["route"].startswith("/v1/*")
    assert ends(explained)[0][2:] == ("attempts_exhausted", 4)
    gone = explain_kept(settings, call(attempt(**transient()), route="/gone"))
    assert any("is not in the configuration any more" in note for note in gone["notes"])


def test_what_never_was_a_call(settings: Settings) -> None:
    nothing = {"upstream": "", "method": "", "host": "", "path": "", "outcome": "bad_request", "attempts": 0}
    assert explain_kept(settings, call(**nothing))["notes"][0].startswith("the request could not be read")
    tunnel = explain_kept(settings, call(method="CONNECT", host="pay.example:443", path=""))
    assert tunnel["applies"]["connect"].startswith("auto")
    moved = explain_kept(settings, call(attempt(**transient()), upstream="gone", host="pay.example", path="/x"))
    assert "the call went to gone; the configuration in force sends it elsewhere" in moved["notes"]


def test_secrets_are_not_repeated(settings: Settings) -> None:
    explained = explain_kept(settings, call(attempt(**transient()), host="user:pass@pay.example", path="/x?card=4242"))
    assert "4242" not in str(explained)
    assert "pass" not in str(explained)
