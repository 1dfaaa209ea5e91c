"""Answers that are kept until they are whole, on the wire (contract, section 15, "Whole answers")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support import certificates
from support.front import CLASSIFY, NONE, STANDARD, App, CutError, Front, chunked, request, to
from support.scripted import Step, Turn, Upstream, answer, then_close, then_stall

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.config.settings import Buffers
from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import IdempotencyKey, Timeouts, WholeAnswers

#: Bounds that no test waits for, unless it says so.
PATIENT = WholeAnswers(pause=60.0, wait=60.0)
(OPENAI,) = dialects(["openai"], [Mark("", 0, 0)], (), Problems())
BY_OPENAI = Classify(
    CLASSIFY.statuses, {}, CLASSIFY.faults, (), (OPENAI,), unsafe_methods="provider", own_dialects=True
)
BODY = b"0123456789" * 10
WHOLE = answer(200, BODY)
CHUNKED = answer(200, b"", "Transfer-Encoding: chunked", length=False)


@asynccontextmanager
async def called(*steps: Step, answers: WholeAnswers | None = PATIENT, **more: Any) -> AsyncIterator[tuple[Any, ...]]:
    settings = {name: more.pop(name) for name in ("buffers",) if name in more}
    async with (
        Upstream(*steps) as upstream,
        Front(to("api", upstream.url, answers=answers, **more), **settings) as front,
        front.app() as app,
    ):
        yield upstream, front, app


CUTS = {
    "after the head": answer(200, BODY)[: -len(BODY)],
    "in the first byte": answer(200, BODY)[: 1 - len(BODY)],
    "before the last byte": answer(200, BODY)[:-1],
    "after the head, in chunks": CHUNKED,
    "in a chunk": CHUNKED + chunked(BODY)[:20],
    "before the last chunk": CHUNKED + chunked(BODY)[:-5],
    "in the trailers": CHUNKED + chunked(BODY, trailers=b"X-Sum: 1\r\n")[:-2],
}


@pytest.mark.parametrize("place", CUTS)
async def test_an_answer_that_breaks_is_asked_for_again_and_the_app_sees_one_whole_answer(place: str) -> None:
    good = WHOLE if b"chunked" not in CUTS[place] else CHUNKED + chunked(BODY)
    async with called(then_close(CUTS[place]), good) as (upstream, front, app):
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, BODY, "2")
        assert len(upstream.requests) == 2
        (call,) = await front.observed.until(1)
    assert call["outcome"] is Outcome.SUCCESS
    assert [(each.fault, each.decision) for each in call["history"]] == [
        (FaultKind.RESET, "retried"),
        (None, "delivered"),
    ]


async def test_over_tls_too(tmp_path: Path) -> None:
    ours = certificates.make(tmp_path)
    async with (
        Upstream(then_close(CUTS["before the last byte"]), WHOLE, tls=ours.server) as upstream,
        Front(
            to(
                "api",
                upstream.url,
                answers=PATIENT,
                target={"verify": str(ours.ca)},
            )
        ) as front,
        front.app() as app,
    ):
        reply = await app.ask("GET", "/api/x")
        assert (reply.body, reply.one("x-attempt-count")) == (BODY, "2")


async def test_an_answer_that_comes_whole_with_its_head_needs_no_decision() -> None:
    async with called(WHOLE, WHOLE) as (_, front, app):
        for _ in range(2):
            assert (await app.ask("GET", "/api/x")).body == BODY
        (connection,) = front.path.acceptor.open
        assert not connection.exchange.decided if connection.exchange is not None else True
    assert [call["history"] for call in front.observed.calls] == [[], []]


async def test_an_answer_that_comes_in_pieces_is_kept_and_recorded_like_any_other() -> None:
    turns: asyncio.Queue[Turn] = asyncio.Queue()

    async def step(turn: Turn) -> None:
        await turn.write(WHOLE[:-50])
        turns.put_nowait(turn)

    async with called(WHOLE, step) as (_, front, app):
        await app.ask("GET", "/api/x")
        app.send(request("GET", "/api/x", host=app.authority))
        turn = await turns.get()
        while not front.path.buffered:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
        assert front.path.buffered == 50
        await turn.write(WHOLE[-50:])
        reply = await app.read()
        assert (reply.body, reply.one("x-attempt-count")) == (BODY, "1")
        assert front.path.buffered == 0
        first, second = await front.observed.until(2)
        assert {**second, "took": 0} == {**first, "took": 0}


async def test_a_connection_whose_answer_was_kept_is_used_again() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(WHOLE[:-50])
        await asyncio.sleep(0)
        await turn.write(WHOLE[-50:])

    async with called(step) as (upstream, _, app):
        for _ in range(3):
            assert (await app.ask("GET", "/api/x")).body == BODY
        assert upstream.connections == 1


async def _kept(front: Front) -> None:
    while not front.path.buffered:  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0)


async def _seen(app: App, size: int) -> bytes:
    assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    return await app.reader.readexactly(size)


async def test_what_is_longer_than_is_kept_goes_on_and_is_committed() -> None:
    long = answer(200, b"x" * 2000)
    async with called(then_stall(long[:-500]), answers=WholeAnswers(1000, 60.0, 60.0)) as (_, __, app):
        app.send(request("GET", "/api/x", host=app.authority))
        assert len(await _seen(app, 1500)) == 1500
    async with called(then_close(long[:-1900]), long, answers=WholeAnswers(1000, 60.0, 60.0)) as (_, __, app):
        assert (await app.ask("GET", "/api/x")).one("x-attempt-count") == "2"
    async with called(then_close(long[:-500]), answers=WholeAnswers(1000, 60.0, 60.0)) as (_, front, app):
        with pytest.raises(CutError):
            await app.ask("GET", "/api/x")
        (call,) = await front.observed.until(1)
    assert (call["outcome"], call["attempts"]) == (Outcome.COMMITTED, 1)


@pytest.mark.parametrize("sized", [True, False])
async def test_silence_lets_an_answer_go_on(sized: bool) -> None:
    begun = WHOLE[:-50] if sized else CHUNKED + chunked(BODY[:50])[:-5]
    answers = WholeAnswers(pause=60.0, wait=0.01) if sized else WholeAnswers(pause=0.01, wait=60.0)
    async with called(then_stall(begun), answers=answers) as (_, __, app):
        app.send(request("GET", "/api/x", host=app.authority))
        assert BODY[:50] in await _seen(app, 50 if sized else 54)


async def test_an_event_stream_is_not_kept() -> None:
    stream = answer(
        200, b"", "Content-Type: Text/Event-Stream; charset=utf-8", "Transfer-Encoding: chunked", length=False
    )
    async with called(then_stall(stream)) as (_, __, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _seen(app, 0)


@pytest.mark.parametrize(
    "line",
    [
        "Content-Type: application/x-ndjson",
        "Content-Type: application/json-seq",
        "Content-Type: application/vnd.amazon.eventstream",
        "Content-Type: multipart/x-mixed-replace; boundary=x",
        "Content-Type: application/grpc+proto",
    ],
)
async def test_nor_is_another_stream(line: str) -> None:
    async with called(then_stall(answer(200, BODY, line)[:-1])) as (_, __, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _seen(app, len(BODY) - 1)


async def test_a_range_beyond_what_is_kept_is_not_kept_and_a_smaller_one_is() -> None:
    part = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/500\r\nContent-Length: 100\r\n\r\n" + BODY
    async with called(then_stall(part[:-1]), answers=WholeAnswers(99, 60.0, 60.0)) as (_, __, app):
        app.send(request("GET", "/api/x", "Range: bytes=0-99", host=app.authority))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 206 ")
    async with called(then_close(part[:-1]), part, answers=WholeAnswers(100, 60.0, 60.0)) as (_, __, app):
        assert (await app.ask("GET", "/api/x", "Range: bytes=0-99")).one("x-attempt-count") == "2"


KEYED = ["Idempotency-Key: a", "Content-Type: application/json"]


@pytest.mark.parametrize(
    ("method", "lines", "policy", "kept"),
    [
        ("OPTIONS", [], {}, True),
        ("PUT", [], {}, False),
        ("DELETE", [], {}, False),
        ("POST", [], {}, False),
        ("POST", KEYED, {}, True),
        ("POST", [], {"idempotency_key": IdempotencyKey(inject=True)}, False),
        ("POST", [], {"classify": BY_OPENAI}, True),
        ("DELETE", [], {"classify": BY_OPENAI}, False),
        ("POST", ["If-Match: *"], {"classify": BY_OPENAI}, False),
        ("POST", ["If-None-Match: *"], {"classify": BY_OPENAI}, False),
        ("POST", ["If-Unmodified-Since: Thu, 01 Jan 2026 00:00:00 GMT"], {"classify": BY_OPENAI}, False),
        ("POST", [*KEYED, "If-Match: *"], {}, False),
        ("GET", ['If-None-Match: "a"'], {}, True),
        ("GET", ["X-Retry-Disable: true"], {}, False),
        ("GET", [], {"strategy": NONE}, False),
        ("GET", [], {"mode": "observe"}, False),
        ("GET", [], {"mode": "off"}, False),
        ("GET", [], {"answers": None}, False),
        ("GET", [], {"classify": Classify(CLASSIFY.statuses)}, False),  # its reset would not be retried
    ],
)
async def test_which_calls_are_kept(method: str, lines: list[str], policy: dict[str, Any], kept: bool) -> None:
    body = b"{}" if method in ("POST", "PUT") else b""
    cut = then_close(CUTS["before the last byte"])
    async with called(cut, WHOLE, **policy) as (upstream, front, app):
        if kept:
            reply = await app.ask(method, "/api/x", *lines, body=body)
            assert (reply.body, reply.one("x-attempt-count")) == (BODY, "2")
        else:
            with pytest.raises(CutError):
                await app.ask(method, "/api/x", *lines, body=body)
            assert front.observed.outcomes == [Outcome.COMMITTED]
        assert len(upstream.requests) == 1 + kept
        assert {each.body for each in upstream.requests} == {body}


async def test_on_the_last_attempt_nothing_is_kept() -> None:
    async with called(then_close(CUTS["before the last byte"])) as (upstream, front, app):
        with pytest.raises(CutError) as cut:
            await app.ask("GET", "/api/x")
        assert cut.value.answer.body == BODY[:-1]
        assert cut.value.answer.one("x-attempt-count") == "3"
        assert front.observed.outcomes == [Outcome.COMMITTED]
        assert len(upstream.requests) == 3


async def test_where_the_retry_is_refused_the_app_gets_our_502_and_nothing_of_the_broken_answer() -> None:
    broken = answer(200, BODY, "Retry-After: 7", "Set-Cookie: a=b")[:-1]
    async with called(then_close(broken), bucket=BucketRef(QuotaSpec(initial=0))) as (_, front, app):
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.one("content-type")) == (502, "application/problem+json")
        assert (reply.one("retry-after"), reply.one("set-cookie")) == (None, None)
        assert front.observed.outcomes == [Outcome.BUCKET_EMPTY]


async def test_a_full_buffer_lets_an_answer_go_on() -> None:
    async with called(then_stall(WHOLE[:-1]), buffers=Buffers(1 << 20, 50)) as (_, __, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _seen(app, len(BODY) - 1)


async def test_an_app_that_leaves_frees_what_was_kept() -> None:
    async with called(then_stall(WHOLE[:-1])) as (_, front, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _kept(front)
        app.vanish()
        (call,) = await front.observed.until(1)
        assert call["outcome"] is Outcome.CLIENT_GONE
        assert front.path.buffered == 0


async def test_at_the_deadline_an_answer_in_time_goes_on() -> None:
    async with called(then_stall(WHOLE[:-1]), timeouts=Timeouts(total=30.0)) as (_, front, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _kept(front)
        front.pass_time(30.0)
        await _seen(app, len(BODY) - 1)


async def test_the_attempts_timeout_ends_at_the_head() -> None:
    async with called(then_stall(WHOLE[:-1]), timeouts=Timeouts(attempt=30.0)) as (_, front, app):
        app.send(request("GET", "/api/x", host=app.authority))
        await _kept(front)
        front.pass_time(30.0)
        assert front.path.buffered, "it is kept for longer than the attempt's timeout"
        front.pass_time(60.0)
        await _seen(app, len(BODY) - 1)


async def test_a_head_that_comes_before_the_requests_end_goes_on_at_once() -> None:
    async def early(turn: Turn) -> None:
        await turn.write(WHOLE[:-1])
        await turn.gone()

    async with called(early, classify=BY_OPENAI) as (upstream, __, app):
        app.send(request("POST", "/api/x", "Content-Length: 5", host=app.authority))
        await upstream.until(1)
        await _seen(app, len(BODY) - 1)


async def test_a_broken_answer_pays_for_its_retry() -> None:
    async with called(then_close(CUTS["before the last byte"]), WHOLE, strategy=STANDARD) as (_, front, app):
        await app.ask("GET", "/api/x")
        (call,) = await front.observed.until(1)
    assert [each.price for each in call["history"]] == [0.0, 5.0]
