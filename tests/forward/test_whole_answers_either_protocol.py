"""Whole answers on HTTP/1 and HTTP/2, on either side, plain and TLS (contract, section 15, "Whole answers")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import certificates
from support.front import Answer, CutError, Front, to
from support.played import Played, Protocol, asked, playing

from proxy.config.settings import Buffers
from proxy.retry.facts import Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import Timeouts, WholeAnswers

PATIENT = WholeAnswers(pause=60.0, wait=60.0)
BODY = b"0123456789" * 10
SPOKEN: dict[Protocol, dict[str, Any]] = {1: {"protocol": "http/1.1"}, 2: {"protocol": "http/2"}}
either = pytest.mark.parametrize("app", [1, 2])
upstreams = pytest.mark.parametrize("spoken", [1, 2])


def policy(spoken: Protocol, **changes: Any) -> dict[str, Any]:
    return {"answers": PATIENT, "target": SPOKEN[spoken], **changes}


@either
@upstreams
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("come", [0, 1, len(BODY) - 1])
async def test_an_answer_that_breaks_is_asked_for_again(
    app: Protocol, spoken: Protocol, sized: bool, come: int
) -> None:
    plays = Played(BODY, sized=sized, come=come, then="breaks"), Played(BODY, sized=sized)
    async with (
        playing(spoken, *plays) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, BODY, "2")
        assert len(upstream.requests) == 2
        (call,) = await front.observed.until(1)
        assert (call["outcome"], [each.decision for each in call["history"]]) == (
            Outcome.SUCCESS,
            ["retried", "delivered"],
        )


@upstreams
async def test_over_tls_too(spoken: Protocol, tmp_path: Path) -> None:
    ours = certificates.make(tmp_path)
    plays = Played(BODY, come=9, then="breaks"), Played(BODY)
    async with (
        playing(spoken, *plays, tls=ours.server) as upstream,
        Front(to("api", upstream.url, **policy(spoken, target={**SPOKEN[spoken], "verify": str(ours.ca)}))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/x")
        assert isinstance(reply, Answer)
        assert (reply.body, reply.one("x-attempt-count")) == (BODY, "2")


@either
@upstreams
async def test_where_its_retry_is_refused_the_app_gets_our_502_and_nothing_of_it(
    app: Protocol, spoken: Protocol
) -> None:
    broken = Played(BODY, ("Retry-After: 7", "Set-Cookie: a=b"), come=50, then="breaks")
    refused = BucketRef(QuotaSpec(initial=0))
    async with (
        playing(spoken, broken) as upstream,
        Front(to("api", upstream.url, **policy(spoken, bucket=refused))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, Answer)
        assert (reply.status, reply.one("content-type")) == (502, "application/problem+json")
        assert (reply.one("retry-after"), reply.one("set-cookie"), reply.one("x-attempt-count")) == (None, None, "1")
        assert front.observed.outcomes == [Outcome.BUCKET_EMPTY]


@either
@upstreams
async def test_an_earlier_failure_is_not_handed_on_in_its_place(app: Protocol, spoken: Protocol) -> None:
    plays = Played(b"busy", status=503), Played(BODY, ("Set-Cookie: a=b",), come=50, then="breaks")
    once = BucketRef(QuotaSpec(initial=5))
    async with (
        playing(spoken, *plays) as upstream,
        Front(to("api", upstream.url, **policy(spoken, bucket=once))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, Answer)
        assert (reply.status, reply.one("x-attempt-count"), reply.one("set-cookie")) == (502, "2", None)


@either
@upstreams
async def test_on_the_last_attempt_nothing_is_kept(app: Protocol, spoken: Protocol) -> None:
    async with (
        playing(spoken, Played(BODY, come=50, then="breaks")) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, CutError)
        assert (reply.answer.status, reply.answer.one("x-attempt-count")) == (200, "3")
        assert BODY.startswith(reply.answer.body)
        assert front.observed.outcomes == [Outcome.COMMITTED]


@either
@upstreams
@pytest.mark.parametrize(
    ("played", "changes", "settings"),
    [
        (Played(BODY), {"answers": WholeAnswers(pause=60.0, wait=0.01)}, {}),
        (Played(BODY, sized=False), {"answers": WholeAnswers(pause=0.01, wait=60.0)}, {}),
        (Played(BODY), {"answers": WholeAnswers(49, 60.0, 60.0)}, {}),
        (Played(BODY), {}, {"buffers": Buffers(1 << 20, 40)}),
        (Played(BODY, ("Content-Type: text/event-stream",)), {}, {}),
        (Played(BODY), {"timeouts": Timeouts(idle=0.3)}, {}),
    ],
    ids=["wait", "pause", "whole", "buffers", "stream", "idle"],
)
async def test_what_goes_on_and_is_committed_then(
    app: Protocol, spoken: Protocol, played: Played, changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    stalls = Played(played.body, played.fields, sized=played.sized, come=50, then="stalls")
    changes = {"timeouts": Timeouts(idle=0.5), **changes}  # then it is broken off
    async with (
        playing(spoken, stalls) as upstream,
        Front(to("api", upstream.url, **policy(spoken, **changes)), **settings) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, CutError)
        assert (reply.answer.status, reply.answer.body) == (200, BODY[:50])
        (call,) = await front.observed.until(1)
        assert (call["outcome"], call["attempts"], len(upstream.requests)) == (Outcome.COMMITTED, 1, 1)


NEVER_KEPT: dict[str, tuple[str, Played, tuple[str, ...]]] = {
    "a stream of events": ("GET", Played(BODY, ("Content-Type: text/event-stream",)), ()),
    "NDJSON": ("GET", Played(BODY, ("Content-Type: application/x-ndjson",)), ()),
    "a JSON sequence": ("GET", Played(BODY, ("Content-Type: application/json-seq",)), ()),
    "Amazon's event stream": ("GET", Played(BODY, ("Content-Type: application/vnd.amazon.eventstream",)), ()),
    "parts that replace each other": (
        "GET",
        Played(BODY, ("Content-Type: multipart/x-mixed-replace; boundary=x",)),
        (),
    ),
    "X-Retry-Disable": ("GET", Played(BODY), ("X-Retry-Disable: true",)),
    "If-Match": ("GET", Played(BODY), ('If-Match: "a"',)),
    "If-None-Match: *": ("GET", Played(BODY), ("If-None-Match: *",)),
    "If-Unmodified-Since": ("GET", Played(BODY), ("If-Unmodified-Since: Thu, 01 Jan 2026 00:00:00 GMT",)),
    "a PUT": ("PUT", Played(BODY), ()),
    "a DELETE": ("DELETE", Played(BODY), ()),
    "a POST": ("POST", Played(BODY), ()),
}


@either
@upstreams
@pytest.mark.parametrize("name", NEVER_KEPT)
async def test_what_is_never_kept_is_not_asked_for_again(app: Protocol, spoken: Protocol, name: str) -> None:
    method, played, lines = NEVER_KEPT[name]
    broken = Played(played.body, played.fields, come=50, then="breaks")
    async with (
        playing(spoken, broken, Played(BODY)) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, method, "/api/x", *lines, body=b"x" if method in ("PUT", "POST") else b"")
        assert isinstance(reply, CutError)
        assert (reply.answer.status, len(upstream.requests)) == (200, 1)
        assert front.observed.outcomes == [Outcome.COMMITTED]


KEPT: dict[str, tuple[str, tuple[str, ...]]] = {
    "OPTIONS": ("OPTIONS", ()),
    "a POST with a key": ("POST", ("Idempotency-Key: a",)),
    "a PATCH with a key": ("PATCH", ("Idempotency-Key: a",)),
    "a DELETE with a key": ("DELETE", ("Idempotency-Key: a",)),
    "a GET with If-None-Match": ("GET", ('If-None-Match: "a"',)),
    "a GET with If-Modified-Since": ("GET", ("If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT",)),
}


@either
@upstreams
@pytest.mark.parametrize("name", KEPT)
async def test_what_else_is_kept(app: Protocol, spoken: Protocol, name: str) -> None:
    method, lines = KEPT[name]
    async with (
        playing(spoken, Played(BODY, come=50, then="breaks"), Played(BODY)) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, method, "/api/x", *lines, body=b"x" if method in ("PATCH", "POST") else b"")
        assert isinstance(reply, Answer)
        assert (reply.body, len(upstream.requests)) == (BODY, 2)


@either
@upstreams
@pytest.mark.parametrize("size", [65536, 65537])
async def test_the_default_keeps_64_kib(app: Protocol, spoken: Protocol, size: int) -> None:
    body = bytes(200_000)
    async with (
        playing(spoken, Played(body, come=size, then="breaks"), Played(body)) as upstream,
        Front(to("api", upstream.url, **policy(spoken, answers=WholeAnswers(pause=60.0, wait=60.0)))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, Answer if size == 65536 else CutError)
        assert len(upstream.requests) == (2 if size == 65536 else 1)


@either
@upstreams
async def test_the_retry_pays_waits_and_counts(app: Protocol, spoken: Protocol) -> None:
    plays = Played(BODY, come=50, then="breaks"), Played(BODY, sized=False, come=0, then="breaks"), Played(BODY)
    async with (
        playing(spoken, *plays) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, Answer)
        assert reply.one("x-attempt-count") == "3"
        assert [each.one("x-attempt-count") for each in upstream.requests] == ["1", "2", "3"]
        (call,) = await front.observed.until(1)
        assert [each.price for each in call["history"]] == [0.0, 5.0, 5.0]
        assert [each.delay is not None and each.delay > 0 for each in call["history"]] == [True, True, False]
