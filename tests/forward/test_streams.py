"""Streams whose beginning decides, on the wire: kept heads, first bytes, errors in successes (contract, section 13)."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.front import CLASSIFY, App, CutError, Front, request, to
from support.scripted import Step, Turn, Upstream, answer

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.facts import Class, FaultKind, Outcome
from proxy.retry.policies.dialect import Classify, EventRule, Rule
from proxy.retry.policies.policy import Timeouts

(ANTHROPIC,) = dialects(["anthropic"], [Mark("", 0, 0)], (), Problems())
BY_PACK = Classify(
    CLASSIFY.statuses, {}, CLASSIFY.faults, (), (ANTHROPIC,), unsafe_methods="provider", own_dialects=True
)
BUSY = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), json=((("error", "code"), "server_busy"),))
EVENT = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), event=EventRule("error"))
ASKS = b'{"model": "m", "stream": true}'
SOON = Timeouts(first_byte=0.3)


def opens(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


OVERLOADED = opens("error", type="error", error={"type": "overloaded_error", "message": "Overloaded"})
BEGUN = opens("message_start", message={}) + opens("ping")
SAID = opens("content_block_delta", delta={"text": "x"})
DONE = opens("message_stop")


def head(*more: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8", "Transfer-Encoding: chunked", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*pieces: bytes, end: bool = True) -> bytes:
    return head() + b"".join(map(chunk, pieces)) + (b"0\r\n\r\n" if end else b"")


def stalls(*pieces: bytes) -> Step:
    """Say so much of a stream, and nothing more until the proxy goes."""

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(stream(*pieces, end=False))
        await turn.gone()
        turn.upstream.gone.set()

    return step


@asynccontextmanager
async def called(*steps: Step, **policy: Any) -> AsyncIterator[tuple[Upstream, Front]]:
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, **policy)) as front:
        yield upstream, front


async def read_chunk(app: App) -> bytes:
    """The next chunk of a body; b"" at its end."""
    size = int((await app.reader.readuntil(b"\r\n")).split(b";")[0], 16)
    data = await app.reader.readexactly(size)
    assert await app.reader.readexactly(2) == b"\r\n"
    return data


async def post(front: Front, body: bytes = ASKS) -> Any:
    async with front.app() as app:
        return await app.ask("POST", "/api/v1/messages", "Content-Type: application/json", body=body)


async def test_a_stream_that_opens_with_an_error_is_made_again_before_the_app_has_seen_a_byte() -> None:
    bad, good = stream(BEGUN, OVERLOADED), stream(BEGUN, SAID, DONE)
    async with called(bad, stream(OVERLOADED, end=False), good, classify=BY_PACK) as (upstream, front):
        reply = await post(front)
        assert (reply.status, reply.body) == (200, BEGUN + SAID + DONE)
        assert [each.body for each in upstream.requests] == [ASKS] * 3
        (call,) = await front.observed.until(1)
    assert [(each.status, each.because, each.decision) for each in call["history"]] == [
        (200, "dialect anthropic: error overloaded_error", "retried"),
        (200, "dialect anthropic: error overloaded_error", "retried"),
        (200, "", "delivered"),
    ]
    assert call["history"][2].first_byte is not None


async def test_when_no_attempt_is_left_the_error_goes_to_the_app_as_it_came() -> None:
    async with called(stream(BEGUN, OVERLOADED), classify=BY_PACK) as (upstream, front):
        reply = await post(front)
        assert (reply.status, reply.body) == (200, BEGUN + OVERLOADED)
        assert reply.one("x-should-retry") == "false"
        assert front.observed.outcomes == [Outcome.ATTEMPTS_EXHAUSTED]
        assert len(upstream.requests) == 3
        assert not front.observed.stream_errors


@pytest.mark.parametrize("said", [(), (b": hello\n\n",), (BEGUN,), (BEGUN + SAID[:-1],)])
async def test_a_stream_that_stalls_before_anything_that_counts_is_given_up_and_made_again(
    said: tuple[bytes, ...],
) -> None:
    async with called(stalls(*said), stream(BEGUN, SAID), classify=BY_PACK, timeouts=SOON) as (upstream, front):
        reply = await post(front)
        assert (reply.status, reply.body) == (200, BEGUN + SAID)
        async with asyncio.timeout(30):
            await upstream.gone.wait()
        first = front.observed.calls[0]["history"][0]
    assert (first.fault, first.detail) == (
        FaultKind.ATTEMPT_TIMEOUT, f"no event within {SOON.first_byte:g}s (timeouts.first_byte)",
    )  # fmt: skip


async def test_after_the_last_attempt_the_app_gets_our_504() -> None:
    async with called(stalls(BEGUN), classify=BY_PACK, timeouts=SOON) as (_, front):
        reply = await post(front)
        assert reply.status == 504
        assert reply.one("content-type") == "application/problem+json"
        assert front.observed.outcomes == [Outcome.ATTEMPTS_EXHAUSTED]


async def test_no_head_at_all_within_the_time_is_the_same() -> None:
    async def silent(turn: Turn) -> None:
        await turn.gone()

    async with called(silent, stream(SAID), classify=BY_PACK, timeouts=SOON) as (_, front):
        assert (await post(front)).body == SAID


async def test_under_a_pack_only_calls_that_ask_for_a_stream_are_bounded() -> None:
    gate = asyncio.Event()

    async def slow(turn: Turn) -> None:
        await turn.read_body()
        await gate.wait()
        await turn.write(answer(200, b"{}", "Content-Type: application/json"))

    short = Timeouts(first_byte=0.01)
    async with called(slow, classify=BY_PACK, timeouts=short) as (upstream, front), front.app() as app:
        app.send(request("POST", "/api/x", body=b'{"stream": false}', host=app.authority))
        await upstream.until(1)
        assert (await post(front)).status == 504  # and so the time of the other is out
        gate.set()
        assert (await app.read()).status == 200
    assert [call["attempts"] for call in front.observed.calls] == [3, 1]


async def test_without_a_pack_any_byte_counts_and_none_that_comes_is_kept_back() -> None:
    more = asyncio.Event()

    async def drips(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await turn.write(b"o")
        await more.wait()
        await turn.write(b"k")

    async with called(drips, timeouts=Timeouts(first_byte=30.0)) as (_, front), front.app() as app:
        app.send(request("GET", "/api/x", host=app.authority))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await app.reader.readexactly(1) == b"o"
        more.set()
        assert await app.reader.readexactly(1) == b"k"


async def test_events_go_on_as_they_come() -> None:
    turns: asyncio.Queue[Turn] = asyncio.Queue()
    over = asyncio.Event()

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(head())
        turns.put_nowait(turn)
        await over.wait()

    async with called(step, classify=BY_PACK, timeouts=Timeouts(first_byte=30.0)) as (_, front), front.app() as app:
        app.send(request("POST", "/api/x", body=ASKS, host=app.authority))
        turn = await turns.get()
        await turn.write(chunk(BEGUN) + chunk(SAID))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        seen = b""
        while len(seen) < len(BEGUN + SAID):
            seen += await read_chunk(app)
        for event in (b"data: 1\n\n", b"data: 2\n\n", DONE):
            await turn.write(chunk(event))
            assert await read_chunk(app) == event
        await turn.write(b"0\r\n\r\n")
        over.set()
        assert await read_chunk(app) == b""
        (call,) = await front.observed.until(1)
    assert call["outcome"] is Outcome.SUCCESS


async def test_a_cut_before_anything_counts_is_a_reset_and_after_it_the_app_is_told() -> None:
    async def cuts(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(stream(BEGUN, end=False))
        turn.close()

    async def cuts_later(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(stream(BEGUN, SAID, end=False))
        turn.close()

    async with called(cuts, stream(SAID, DONE), cuts_later, classify=BY_PACK) as (_, front):
        assert (await post(front)).body == SAID + DONE
        async with front.app() as app:
            app.send(request("POST", "/api/x", body=ASKS, host=app.authority))
            with pytest.raises(CutError) as cut:
                await app.read()
            assert cut.value.answer.body == BEGUN + SAID
        first, second = await front.observed.until(2)
    assert (first["history"][0].fault, first["outcome"]) == (FaultKind.RESET, Outcome.SUCCESS)
    assert second["outcome"] is Outcome.COMMITTED


@pytest.mark.parametrize("coding", ["", "gzip", "deflate"])
async def test_an_error_event_later_goes_to_the_app_as_it_came_and_is_told_of(coding: str) -> None:
    text = BEGUN + SAID + OVERLOADED + SAID
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}[coding](text)
    answered = head(*([f"Content-Encoding: {coding}"] if coding else []))
    whole = answered + b"".join(chunk(packed[at : at + 7]) for at in range(0, len(packed), 7)) + b"0\r\n\r\n"
    async with called(whole, classify=BY_PACK) as (upstream, front):
        assert (await post(front)).body == packed
        (call,) = await front.observed.until(1)
        assert len(upstream.requests) == 1
    assert front.observed.stream_errors == [("api", "dialect anthropic: error overloaded_error")]
    assert call["outcome"] is Outcome.SUCCESS
    assert call["detail"] == "its stream reported an error: dialect anthropic: error overloaded_error"


async def test_json_in_a_success_is_looked_at_where_a_rule_asks() -> None:
    busy, fine = b'{"error": {"code": "server_busy"}}', b'{"id": 1}'
    by = Classify(CLASSIFY.statuses, {}, CLASSIFY.faults, (BUSY,), unsafe_methods="always")
    typed = "Content-Type: application/json"
    async with called(answer(200, busy, typed), answer(200, fine, typed), classify=by) as (_, front):
        assert (await post(front)).body == fine
        assert (await post(front)).body == fine
    assert [call["attempts"] for call in front.observed.calls] == [2, 1]


@pytest.mark.parametrize("length", [True, False])
async def test_what_is_longer_than_is_kept_is_committed(length: bool) -> None:
    long = b'{"a": "' + b"x" * 200_000 + b'"}'
    by = Classify(CLASSIFY.statuses, {}, CLASSIFY.faults, (BUSY, EVENT))
    sent = answer(200, long, "Content-Type: application/json", length=length)
    events = stream(b"data: " + long + b"\n\n")
    step = sent if length else _closing(sent)
    async with called(step, events, classify=by, timeouts=Timeouts(first_byte=30.0)) as (_, front):
        async with front.app() as app:
            assert (await app.ask("GET", "/api/x")).body == long
        async with front.app() as app:
            assert (await app.ask("GET", "/api/x")).body == b"data: " + long + b"\n\n"


def _closing(data: bytes) -> Step:
    async def step(turn: Turn) -> None:
        await turn.write(data)
        turn.close()

    return step


async def test_a_head_that_comes_before_the_requests_end_goes_on_at_once() -> None:
    """A server may answer while the app still speaks, and wait for more: nobody may keep its head then."""

    async def talks(turn: Turn) -> None:
        await turn.write(head())
        await turn.read_body()
        await turn.write(chunk(SAID) + b"0\r\n\r\n")

    long = Timeouts(first_byte=30.0)
    async with called(talks, classify=BY_PACK, timeouts=long) as (upstream, front), front.app() as app:
        app.send(request("POST", "/api/x", f"Content-Length: {len(ASKS)}", host=app.authority))
        await upstream.until(1)
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        app.send(ASKS)
        assert await read_chunk(app) == SAID


async def test_the_deadline_counts_while_a_head_is_kept() -> None:
    timeouts = Timeouts(first_byte=90.0, total=60.0)
    async with called(stalls(BEGUN), classify=BY_PACK, timeouts=timeouts) as (upstream, front):
        asking = asyncio.create_task(post(front))
        await front.head_kept()
        front.pass_time(60.0)
        assert (await asking).status == 504
        async with asyncio.timeout(30):
            await upstream.gone.wait()
        assert front.observed.outcomes == [Outcome.DEADLINE]


async def test_silence_ends_a_look_that_nothing_else_bounds() -> None:
    timeouts = Timeouts(total=None, idle=0.3)
    async with called(stalls(BEGUN), stream(SAID), classify=BY_PACK, timeouts=timeouts) as (_, front):
        assert (await post(front)).body == SAID
