"""Errors inside a 200, and streams that end without their last event, on HTTP/1 and HTTP/2 on either side (contract,
section 15).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.front import CLASSIFY, Answer, CutError, Front, to
from support.played import Played, Protocol, asked, playing

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.facts import Outcome
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import WholeAnswers

SPOKEN: dict[Protocol, dict[str, Any]] = {1: {"protocol": "http/1.1"}, 2: {"protocol": "http/2"}}
either = pytest.mark.parametrize("app", [1, 2])
upstreams = pytest.mark.parametrize("spoken", [1, 2])
XML = ("Content-Type: application/xml",)
SSE = ("Content-Type: text/event-stream",)
EVENTS = [b'data: {"choices": [{"finish_reason": null}]}\n\n'] * 3 + [b"data: [DONE]\n\n"]


def by(name: str) -> Classify:
    (pack,) = dialects([name], [Mark("", 0, 0)], (), Problems())
    lists = CLASSIFY.statuses, {}, CLASSIFY.faults
    return Classify(*lists, (), (pack,), unsafe_methods="provider", own_dialects=True)


@either
@upstreams
@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
async def test_a_copy_that_failed_inside_its_200(app: Protocol, spoken: Protocol, code: str) -> None:
    failed = f'<?xml version="1.0"?>\n \n <Error><Code>{code}</Code></Error>'.encode()
    done = b"<CopyObjectResult/>"
    async with (
        playing(spoken, Played(failed, XML, sized=False), Played(done, XML)) as upstream,
        Front(to("api", upstream.url, classify=by("aws"), target=SPOKEN[spoken])) as front,
    ):
        reply = await asked(front, app, "PUT", "/api/b/k", "X-Amz-Copy-Source: /b/k", body=b"")
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, done, "2")


@either
@upstreams
@pytest.mark.parametrize("unfinished", ["tell", "break", "event"])
async def test_a_stream_without_its_last_event(app: Protocol, spoken: Protocol, unfinished: str) -> None:
    half = Played(b"".join(EVENTS[:2]), SSE, sized=False)
    changes = {"classify": by("openai"), "target": SPOKEN[spoken], "unfinished": unfinished}
    body = b'{"stream": true}'
    async with playing(spoken, half) as upstream, Front(to("api", upstream.url, **changes)) as front:
        reply = await asked(front, app, "POST", "/api/x", "Content-Type: application/json", body=body)
        if unfinished == "break":
            assert isinstance(reply, CutError)
            assert half.body.startswith(reply.answer.body)
        else:
            assert isinstance(reply, Answer)
            error = reply.body.removeprefix(half.body)
            assert (reply.body[: len(half.body)], bool(error)) == (half.body, unfinished == "event")
            assert not error or "error" in json.loads(error.partition(b"data: ")[2])
        (call,) = await front.observed.until(1)
        assert (call["outcome"], len(upstream.requests)) == (Outcome.COMMITTED, 1)
        assert front.observed.unfinished == ["api"]


@either
@upstreams
async def test_one_in_which_nothing_has_come_is_asked_for_again(app: Protocol, spoken: Protocol) -> None:
    plays = Played(b"", SSE, sized=False), Played(b"".join(EVENTS), SSE, sized=False)
    changes = {"classify": by("openai"), "target": SPOKEN[spoken], "unfinished": "break"}
    async with playing(spoken, *plays) as upstream, Front(to("api", upstream.url, **changes)) as front:
        reply = await asked(front, app, "POST", "/api/x", "Content-Type: application/json", body=b'{"stream": true}')
        assert isinstance(reply, Answer)
        assert (reply.body, reply.one("x-attempt-count")) == (b"".join(EVENTS), "2")
        assert front.observed.outcomes == [Outcome.SUCCESS]


@either
@upstreams
async def test_a_409_to_a_repeat_of_a_keyed_call_is_transient_after_a_broken_answer(
    app: Protocol, spoken: Protocol
) -> None:
    plays = Played(b"0123", come=2, then="breaks"), Played(b"at work", status=409), Played(b"done")
    async with (
        playing(spoken, *plays) as upstream,
        Front(to("api", upstream.url, answers=WholeAnswers(), target=SPOKEN[spoken])) as front,
    ):
        reply = await asked(front, app, "POST", "/api/x", "Idempotency-Key: a", body=b"x")
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"done", "3")
    async with (
        playing(spoken, Played(b"busy", status=503), Played(b"at work", status=409)) as upstream,
        Front(to("api", upstream.url, answers=WholeAnswers(), target=SPOKEN[spoken])) as front,
    ):
        reply = await asked(front, app, "POST", "/api/x", body=b"x")  # no key: its 503 is not repeated
        assert isinstance(reply, Answer)
        assert (reply.status, len(upstream.requests)) == (503, 1)
