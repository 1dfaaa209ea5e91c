"""Whole answers on HTTP/1 and HTTP/2, on either side, plain and TLS (contract, section 15, "Whole answers")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import certificates
from support.front import Answer, CutError, Front, to
from support.played import Played, Protocol, asked, playing

from proxy.config.settings import Buffers
from proxy.retry.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.facts import Outcome
from proxy.retry.policy import Timeouts, WholeAnswers

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
        (Played(BODY), {"timeouts": Timeouts(total=0.05, idle=0.2)}, {}),
        (Played(BODY), {"timeouts": Timeouts(idle=0.05)}, {}),
    ],
    ids=["wait", "pause", "whole", "buffers", "stream", "deadline", "idle"],
)
async def test_what_goes_on_and_is_committed_then(
    app: Protocol, spoken: Protocol, played: Played, changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    stalls = Played(played.body, played.fields, sized=played.sized, come=50, then="stalls")
    changes = {"timeouts": Timeouts(idle=0.2), **changes}  # then it is broken off
    async with (
        playing(spoken, stalls) as upstream,
        Front(to("api", upstream.url, **policy(spoken, **changes)), **settings) as front,
    ):
        reply = await asked(front, app, "GET", "/api/x")
        assert isinstance(reply, CutError)
        assert (reply.answer.status, reply.answer.body) == (200, BODY[:50])
        (call,) = await front.observed.until(1)
        assert (call["outcome"], call["attempts"], len(upstream.requests)) == (Outcome.COMMITTED, 1, 1)
