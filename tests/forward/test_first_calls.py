"""The way of a call: forward and reverse, first success, retries, giving up, faults."""

from __future__ import annotations

import json

import pytest
from support.front import FAST, NONE, Front, policy, to
from support.ports import free_port
from support.scripted import Upstream, answer, close, reset

from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import PushbackPolicy, Strategy


async def test_a_first_success_carries_the_count_and_via_and_nothing_else_of_ours() -> None:
    ok = answer(200, b"hello", "Date: Thu, 01 Jan 2026 00:00:00 GMT", "X-Mine: 1", "X-Mine: 2")
    async with Upstream(ok) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/x?q=%2F|")
        assert reply.status == 200
        assert reply.body == b"hello"
        assert [name for name, _ in reply.fields] == [
            "Date",
            "X-Mine",
            "X-Mine",
            "Content-Length",
            "X-Attempt-Count",
            "Via",
        ]
        assert reply.one("x-attempt-count") == "1"
        sent = upstream.requests[0]
        assert sent.line == "GET /x?q=%2F| HTTP/1.1"
        assert sent.one("host") == upstream.authority
        assert sent.one("x-attempt-count") == "1"
        assert sent.one("via") == f"1.1 {front.path.context.via}" == reply.one("via")
        assert front.observed.outcomes == [Outcome.SUCCESS]
        assert front.observed.calls[0]["endpoint"] == upstream.authority


async def test_absolute_form_goes_to_the_host_that_was_named() -> None:
    async with Upstream(answer(200, b"hello")) as upstream, Front() as front, front.app() as app:
        for _ in range(2):
            reply = await app.ask("GET", f"{upstream.url}/a//b/../c?x", "Host: elsewhere.test")
            assert reply.body == b"hello"
        assert upstream.requests[0].line == "GET /a//b/../c?x HTTP/1.1"
        assert upstream.requests[0].one("host") == upstream.authority
        assert upstream.connections == 1


async def test_a_post_passes_with_its_body_in_one_piece() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("POST", "/api/", body=b"x" * 10_000)
        assert upstream.requests[0].body == b"x" * 10_000
        assert front.observed.calls[0]["bytes_in"] == 10_000


async def test_failures_are_ridden_out() -> None:
    steps = (answer(503, b"", "Connection: close"), reset, answer(200, b"ok"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("PUT", "/api/x", body=b"again and again")
        assert reply.status == 200
        assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]
        assert {r.body for r in upstream.requests} == {b"again and again"}
        assert reply.one("x-attempt-count") == "3"
        assert reply.one("proxy-status") == (
            'redrive; received-status=200; attempts=3; outcome=success; details="attempt 1: 503, attempt 2: reset"'
        )
        assert [r.decision for r in front.observed.calls[0]["history"]] == ["retried", "retried", "delivered"]
        assert {r.endpoint for r in front.observed.calls[0]["history"]} == {upstream.authority}


async def test_the_last_answer_goes_to_the_app_as_it_came() -> None:
    bad = answer(503, b"\x00broken", "X-Should-Retry: true", "X-Attempt-Count: 77")
    async with Upstream(bad) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.body) == (503, b"\x00broken")
        assert reply.one("x-should-retry") == "false"
        assert reply.one("x-attempt-count") == "3"
        assert "received-status=503; attempts=3; outcome=attempts_exhausted" in (reply.one("proxy-status") or "")
        assert front.observed.outcomes == [Outcome.ATTEMPTS_EXHAUSTED]


async def test_a_post_that_meets_a_500_or_a_reset_is_sent_once() -> None:
    async with Upstream(answer(500), reset) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        first = await app.ask("POST", "/api/x", body=b"1")
        second = await app.ask("POST", "/api/x", body=b"2")
        assert first.status == 500
        assert first.one("x-should-retry") is None
        assert first.one("proxy-status") == (
            "redrive; received-status=500; attempts=1; outcome=not_retryable; "
            'details="attempt 1: 500; POST may have been carried out, and is not idempotent"'
        )
        assert second.status == 502
        assert len(upstream.requests) == 2
        assert front.observed.outcomes == [Outcome.NOT_RETRYABLE] * 2


async def test_a_refused_connection_is_502_with_a_problem() -> None:
    port = free_port()
    async with Front(to("api", f"http://127.0.0.1:{port}")) as front, front.app() as app:
        reply = await app.ask("POST", "/api/x", body=b"1")
        assert reply.status == 502
        assert reply.one("content-type") == "application/problem+json"
        problem = json.loads(reply.body)
        assert problem.pop("type").endswith("docs/reference/problems.md#attempts_exhausted")
        assert problem.pop("message").startswith("redrive: the connection was refused by ")
        assert problem == {
            "status": 502,
            "title": "Bad gateway",
            "detail": f"the connection was refused by 127.0.0.1:{port}",
            "upstream": "api",
            "attempts": 3,
            "outcome": "attempts_exhausted",
        }
        assert reply.one("proxy-status") == (
            "redrive; error=connection_refused; attempts=3; outcome=attempts_exhausted; "
            f'details="the connection was refused by 127.0.0.1:{port}"'
        )
        assert reply.one("x-should-retry") == "false"


async def test_a_grpc_call_gets_a_trailers_only_answer() -> None:
    async with Front(to("api", f"http://127.0.0.1:{free_port()}", strategy=NONE)) as front, front.app() as app:
        reply = await app.ask("POST", "/api/svc/M", "Content-Type: application/grpc+proto", body=b"1")
        assert (reply.status, reply.body) == (200, b"")
        assert reply.one("grpc-status") == "14"
        assert reply.one("content-type") == "application/grpc"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_grpc_call_that_a_cooldown_refuses_is_told_of_exhaustion(status: int) -> None:
    told = answer(status, b"", "Retry-After: 61")  # above max_delay: no retry is waited for
    word = PushbackPolicy(cooldown="reject")
    async with Upstream(told) as upstream, Front(to("api", upstream.url, pushback=word)) as front, front.app() as app:
        await app.ask("GET", "/api/")
        reply = await app.ask("POST", "/api/svc/M", "Content-Type: application/grpc", body=b"1")
        assert (reply.status, reply.one("grpc-status")) == (200, "8")
        assert len(upstream.requests) == 1


async def test_no_retry_is_no_reason_to_tell_the_app_anything() -> None:
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url, strategy=NONE)) as front:
        async with front.app() as app:
            reply = await app.ask("GET", "/api/x")
        assert reply.status == 503
        assert "outcome=attempts_exhausted" in (reply.one("proxy-status") or "")
        assert front.observed.outcomes == [Outcome.ATTEMPTS_EXHAUSTED]


async def test_a_dead_pooled_connection_costs_the_app_nothing() -> None:
    steps = (answer(200, b"one"), close, answer(200, b"two"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/api/1")
        reply = await app.ask("GET", "/api/2")
        assert reply.body == b"two"
        assert reply.one("x-attempt-count") == "1"
        assert upstream.requests[2].one("x-attempt-count") == "1"
        assert [c["resent"] for c in front.observed.calls] == [False, True]


async def test_a_retry_avoids_the_endpoint_that_failed() -> None:
    async with (
        Upstream(answer(503)) as bad,
        Upstream(answer(200, b"good")) as good,
        Front(to("api", bad.url, good.url)) as front,
        front.app() as app,
    ):
        for _ in range(4):
            assert (await app.ask("GET", "/api/x")).status == 200
        assert len(good.requests) == 4
        assert 1 <= len(bad.requests) <= 3


async def test_a_wait_for_a_retry_holds_the_answer_and_its_end() -> None:
    slow = Strategy("standard", "slow", 2, FAST)
    async with (
        Upstream(answer(503, b"x" * 200_000), answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, strategy=slow, bucket=None)) as front,
        front.app() as app,
    ):
        assert (await app.ask("GET", "/api/x")).body == b"ok"


def test_the_hand_made_policy_is_the_default_one() -> None:
    assert policy().timeouts.total == 900.0
