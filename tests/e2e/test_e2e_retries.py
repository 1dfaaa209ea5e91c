"""What an app and an upstream see of a call that meets trouble, over real sockets and the real process."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from clients import Answer, with_aiohttp
from support.process import Redrive
from support.scripted import Upstream, answer, close, reset

APP = with_aiohttp


async def admin(redrive: Redrive, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(redrive.admin + path) as got:
        return json.loads(await got.text())


async def level(redrive: Redrive) -> float:
    """The level of the one bucket in use."""
    buckets = (await admin(redrive, "/buckets"))["buckets"]
    assert len(buckets) == 1, buckets
    found: float = buckets[0]["level"]
    return found


def config(upstream: Upstream, more: str = "") -> str:
    return f"upstreams:\n  a:\n    url: {upstream.url}\n{more}"


@pytest.fixture
async def free_port() -> AsyncIterator[int]:
    """A port that nobody listens on, kept so by being bound."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


async def test_two_failures_and_a_success(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503, b"no"), answer(503, b"no", "Retry-After: 1"), answer(200, b"yes", "X-Own: 1")) as upstream,
        Redrive(tmp_path, config(upstream)) as redrive,
    ):
        got = await APP("GET", f"{redrive.url}/a/x")
        line = await redrive.call()
        left = await level(redrive)
    assert (got.status, got.body, got.headers["x-own"]) == (200, b"yes", "1")
    assert [request.one("x-attempt-count") for request in upstream.requests] == ["1", "2", "3"]
    assert got.headers["x-attempt-count"] == "3"
    assert got.headers["proxy-status"].startswith("redrive")
    assert "attempts=3" in got.headers["proxy-status"]
    assert "x-should-retry" not in got.headers
    assert left == 500 - 5 - 5 + 5
    first, second, third = line["history"]
    assert [attempt["decision"] for attempt in line["history"]] == ["retried", "retried", "delivered"]
    assert 0 <= first["delay"] <= 0.1  # full jitter over the base
    assert 1 <= second["delay"] <= 20
    assert third["start"] - second["start"] - second["duration"] >= 1  # never sooner than the upstream said
    assert (line["outcome"], line["attempts"], line["status"]) == ("success", 3, 200)


async def test_a_success_at_once_carries_the_count_and_via_and_nothing_else(tmp_path: Path) -> None:
    date = "Date: Thu, 01 Jan 2026 00:00:00 GMT"  # RFC 9110 section 6.6.1: a proxy adds one where there is none
    ok = answer(200, b"ok", date, "Content-Type: text/plain", "X-Own: 1", "Set-Cookie: a", "Set-Cookie: b")
    async with (
        Upstream(ok) as upstream,
        Redrive(tmp_path, config(upstream)) as redrive,
    ):
        async with aiohttp.ClientSession() as session, session.get(f"{redrive.url}/a/x") as got:
            fields = [(name.decode().lower(), value.decode()) for name, value in got.raw_headers]
        left = await level(redrive)
    ours = [(name, value) for name, value in fields if name in ("x-attempt-count", "via")]
    assert [field for field in fields if field not in ours] == [
        ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("content-type", "text/plain"),
        ("x-own", "1"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("content-length", "2"),
    ]
    assert sorted(name for name, _ in ours) == ["via", "x-attempt-count"]
    assert dict(ours)["x-attempt-count"] == "1"
    sent = [name.lower() for name, _ in upstream.requests[0].fields]
    assert sorted(set(sent) - {"host", "accept", "accept-encoding", "user-agent"}) == ["via", "x-attempt-count"]
    assert left == 500


@pytest.mark.parametrize("step", [answer(500, b"broken"), reset, close], ids=["500", "reset", "close"])
async def test_a_post_that_may_have_been_carried_out_is_sent_once(step: Any, tmp_path: Path) -> None:
    async with Upstream(step) as upstream, Redrive(tmp_path, config(upstream)) as redrive:
        got = await APP("POST", f"{redrive.url}/a/x", b"pay 10")
    assert len(upstream.requests) == 1
    assert upstream.requests[0].body == b"pay 10"
    assert got.headers["x-attempt-count"] == "1"
    if step is reset or step is close:
        problem(got, 502, "not_retryable", attempts=1)
    else:
        assert (got.status, got.body) == (500, b"broken")
        assert "x-should-retry" not in got.headers


async def test_a_get_that_was_reset_is_sent_again(tmp_path: Path) -> None:
    async with Upstream(reset, answer(200, b"ok")) as upstream, Redrive(tmp_path, config(upstream)) as redrive:
        got = await APP("GET", f"{redrive.url}/a/x")
    assert (got.status, got.headers["x-attempt-count"], len(upstream.requests)) == (200, "2", 2)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_refused_connection(method: str, tmp_path: Path, free_port: int) -> None:
    text = f"upstreams: {{a: {{url: 'http://127.0.0.1:{free_port}'}}}}\n"
    async with Redrive(tmp_path, text) as redrive:
        got = await APP(method, f"{redrive.url}/a/x")
        line = await redrive.call()
    problem(got, 502, "attempts_exhausted", attempts=3)
    assert got.headers["x-should-retry"] == "false"
    assert "error=" in got.headers["proxy-status"]
    assert any(attempt["decision"] == "transparent" for attempt in line["history"])


def problem(got: Answer, status: int, outcome: str, *, attempts: int) -> None:
    """The proxy's own answer."""
    assert got.status == status
    assert got.headers["content-type"] == "application/problem+json"
    members = json.loads(got.body)
    assert (members["status"], members["outcome"], members["attempts"], members["upstream"]) == (
        status,
        outcome,
        attempts,
        "a",
    )
    assert members["title"]
    assert members["detail"]
    assert "proxy-status" in got.headers


async def test_an_upstream_that_is_down_is_heard_byte_for_byte(tmp_path: Path) -> None:
    body = b'{"error": "maintenance"}\x00\xff'
    down = answer(503, body, "Content-Type: application/json", "X-Should-Retry: true")
    async with Upstream(down) as upstream, Redrive(tmp_path, config(upstream)) as redrive:
        got = await APP("GET", f"{redrive.url}/a/x")
        left = await level(redrive)
        metrics = await scrape(redrive)
    assert (got.status, got.body, got.headers["content-type"]) == (503, body, "application/json")
    assert got.headers["x-should-retry"] == "false"
    assert got.headers["x-attempt-count"] == "3"
    assert "outcome=attempts_exhausted" in got.headers["proxy-status"]
    assert len(upstream.requests) == 3
    assert left == 490
    assert 'redrive_calls_total{code_class="5xx",outcome="attempts_exhausted",route="",upstream="a"} 1.0' in metrics
    assert 'redrive_attempts_total{result="transient",route="",upstream="a"} 3.0' in metrics
    assert 'redrive_retries_total{reason="transient",route="",upstream="a"} 2.0' in metrics
    assert 'redrive_retries_denied_total{upstream="a",why="attempts_exhausted"} 1.0' in metrics
    assert 'redrive_bucket_level{bucket="a/standard"} 490.0' in metrics


async def scrape(redrive: Redrive) -> set[str]:
    """Sample lines, their labels in order of name."""
    from prometheus_client.parser import text_string_to_metric_families

    async with aiohttp.ClientSession() as session, session.get(redrive.admin + "/metrics") as got:
        families = text_string_to_metric_families(await got.text())
        return {
            s.name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(s.labels.items())) + "} " + str(s.value)
            for family in families
            for s in family.samples
        }


async def test_an_empty_bucket_ends_the_retries(tmp_path: Path) -> None:
    own = "    bucket: {kind: quota, capacity: 5}\n"
    async with Upstream(answer(503)) as upstream, Redrive(tmp_path, config(upstream, own)) as redrive:
        got = await APP("GET", f"{redrive.url}/a/x")
        assert (got.headers["x-attempt-count"], await level(redrive)) == ("2", 0)
        again = await APP("GET", f"{redrive.url}/a/x")
    assert again.headers["x-attempt-count"] == "1"
    assert again.headers["proxy-status"] == (
        "redrive; received-status=503; attempts=1; outcome=bucket_empty; "
        'details="attempt 1: 503; the bucket has 0, and a retry costs 5"'
    )
    assert again.headers["x-should-retry"] == "false"


async def test_secrets_stay_out_of_everything_that_is_shown(tmp_path: Path) -> None:
    own = "    headers: {request: {set: {X-Whatever: '${PLANTED}', Authorization: Bearer s3cret}}}\n"
    async with (
        Upstream(answer(503), answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, own), PLANTED="s3cret") as redrive,
    ):
        async with (
            aiohttp.ClientSession(cookies={"session": "s3cret"}) as session,
            session.get(
                f"{redrive.url}/a/x?key=s3cret&s3cret",
                headers={"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret"},
            ) as got,
        ):
            assert got.status == 200
        line = await redrive.call()
        shown = [json.dumps(line)]
        shown += [
            json.dumps(await admin(redrive, page)) for page in ("/config", "/requests", "/upstreams", "/readyz?verbose")
        ]
        assert upstream.requests[0].one("x-whatever") == "s3cret"
    assert line["path"] == "/a/x?key=***&***"
    for text in (*shown, redrive.errors):
        assert "s3cret" not in text
