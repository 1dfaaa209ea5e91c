"""Streams of events that end cleanly without their end, on the wire (contract, section 15, "A stream's end")."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from support.front import CLASSIFY, Answer, CutError, Front, chunked, to
from support.scripted import Step, Upstream, then_close

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.dialect import Classify

PACKS = {name: dialects([name], [Mark("", 0, 0)], (), Problems())[0] for name in ("anthropic", "openai", "google")}


def by(name: str) -> Classify:
    lists = CLASSIFY.statuses, {}, CLASSIFY.faults
    return Classify(*lists, (), (PACKS[name],), unsafe_methods="provider", own_dialects=True)


def event(data: Any, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def chat(reason: str | None, text: str = "x") -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": reason}]})


def named(name: str, **data: Any) -> bytes:
    return event({"type": name, **data}, name)


def gemini(**candidate: Any) -> bytes:
    return event({"candidates": [{"content": {"parts": [{"text": "x"}]}, **candidate}]})


ANTHROPIC = [
    named("message_start"),
    named("ping"),
    named("content_block_start"),
    named("content_block_delta"),
    named("message_delta", delta={"stop_reason": "end_turn"}),
    named("message_stop"),
]
RESPONSE = [named("response.created"), named("response.in_progress"), named("response.output_text.delta")]
STREAMS: dict[str, tuple[str, list[bytes]]] = {
    "anthropic": ("anthropic", ANTHROPIC),
    "anthropic, an error": ("anthropic", [*ANTHROPIC[:4], named("error", error={"type": "overloaded_error"})]),
    "openai": ("openai", [chat(None), chat(None, '"finish_reason": "stop"'), chat(None), event("[DONE]")]),
    "openai, without [DONE]": ("openai", [chat(None), chat(None), chat("stop")]),
    "openai, usage last": (
        "openai",
        [chat(None), chat("length"), event({"choices": [], "usage": {}}), event("[DONE]")],
    ),
    "a response": ("openai", [*RESPONSE, named("response.completed")]),
    "a response that failed": ("openai", [*RESPONSE, named("response.failed")]),
    "a response that was cut short": ("openai", [*RESPONSE, named("response.incomplete")]),
    "a transcript": ("openai", [event({"type": "transcript.text.delta"}), event({"type": "transcript.text.done"})]),
    "an image": ("openai", [named("image_generation.partial_image"), named("image_generation.completed")]),
    "gemini": ("google", [gemini(), gemini(finishReason=None), gemini(finishReason="STOP")]),
    "gemini, blocked": ("google", [event({"promptFeedback": {"blockReason": "SAFETY"}})]),
}
#: The number of events of each stream that say nothing yet.
EMPTY = {"anthropic": 2, "anthropic, an error": 2} | {name: 2 for name in STREAMS if name.startswith("a response")}
#: The number of events of each stream with which it has its end.
ENDS = {"openai, usage last": 2}
PATH = "/api/v1beta/models/m:streamGenerateContent?alt=sse"


def streamed(*events: bytes, lines: tuple[str, ...] = ()) -> bytes:
    head = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *lines]
    return "\r\n".join([*head, "", ""]).encode() + chunked(*events)


async def asked(steps: tuple[Step, ...], pack: str, body: bytes = b'{"stream": true}', **policy: Any) -> Any:
    """Make a call; its answer (`CutError` if it broke off), its record, and the front."""
    policy = {"classify": by(pack), **policy}
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, **policy)) as front, front.app() as app:
        answer: Answer | CutError
        try:
            path = PATH if pack == "google" else "/api/v1/x"
            answer = await app.ask("POST", path, "Content-Type: application/json", "Idempotency-Key: a", body=body)
        except CutError as cut:
            answer = cut
        (call,) = await front.observed.until(1)
    return answer, call, front.observed.unfinished


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_with_its_end_is_a_success(name: str) -> None:
    pack, events = STREAMS[name]
    answer, call, told = await asked((streamed(*events),), pack)
    assert (answer.body, call["outcome"], told) == (b"".join(events), Outcome.SUCCESS, [])


@pytest.mark.parametrize("name", STREAMS)
async def test_one_that_ends_without_it_in_every_place_is_told_of(name: str) -> None:
    pack, events = STREAMS[name]
    empty, ends = EMPTY.get(name, 0), ENDS.get(name, len(events))
    for come in range(ends):
        if come <= empty:
            steps: tuple[Step, ...] = (streamed(*events[:come]), streamed(*events))
            answer, call, told = await asked(steps, pack)
            assert (answer.body, answer.one("x-attempt-count")) == (b"".join(events), "2")
            assert [each.fault for each in call["history"]] == [FaultKind.RESET, None]
            assert (call["outcome"], told) == (Outcome.SUCCESS, [])
        else:
            answer, call, told = await asked((streamed(*events[:come]),), pack)
            assert answer.body == b"".join(events[:come])
            assert (call["outcome"], call["attempts"], told) == (Outcome.COMMITTED, 1, ["api"])


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini"])
@pytest.mark.parametrize("whole", [True, False])
async def test_a_break_or_the_providers_own_error_where_that_is_asked_for(name: str, whole: bool) -> None:
    pack, events = STREAMS[name]
    come = events[: EMPTY.get(name, 0) + 1]
    cut = streamed(*come) if whole else then_close(streamed(*come))
    answer, call, _ = await asked((cut,), pack, unfinished="break")
    assert isinstance(answer, CutError)
    assert call["outcome"] is Outcome.COMMITTED
    answer, call, _ = await asked((cut,), pack, unfinished="event")
    assert call["outcome"] is Outcome.COMMITTED
    *before, error, rest = answer.body.split(b"\n\n")
    assert (b"\n\n".join([*before, b""]), rest) == (b"".join(come), b"")
    said = json.loads(error.partition(b"data: ")[2])
    assert said["error"]["message"] == "The stream ended before its end."


async def test_an_error_that_cannot_be_written_is_a_break() -> None:
    _, events = STREAMS["anthropic"]
    come = b"".join(events[:4])
    for body, lines in (
        (come + b"event: content_block_delta\ndata: {", ()),
        (gzip.compress(come), ("Content-Encoding: gzip",)),
    ):
        answer, *_ = await asked((streamed(body, lines=lines),), "anthropic", unfinished="event")
        assert isinstance(answer, CutError)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(come)
    _, call, told = await asked((head + come,), "anthropic", unfinished="event")
    assert (call["outcome"], told) == (Outcome.COMMITTED, ["api"])


@pytest.mark.parametrize(
    ("pack", "body", "events"),
    [
        ("openai", b'{"stream": false}', [chat(None)]),
        ("openai", b"{}", [chat(None)]),
        ("openai", b'{"stream": true}', [event({"type": "speech.audio.delta"})]),
        ("anthropic", b'{"stream": true}', [event({"hello": 1}, "hello")]),
    ],
)
async def test_other_streams_are_not_judged(pack: str, body: bytes, events: list[bytes]) -> None:
    answer, call, told = await asked((streamed(*events),), pack, body, unfinished="break")
    assert (answer.body, call["outcome"], told) == (b"".join(events), Outcome.SUCCESS, [])


async def test_it_earns_nothing_and_where_it_is_not_safe_it_is_not_repeated() -> None:
    lists = CLASSIFY.statuses, {}, CLASSIFY.faults
    cautious = Classify(*lists, (), (PACKS["openai"],), unsafe_methods="unprocessed", own_dialects=True)
    async with (
        Upstream(streamed()) as upstream,
        Front(to("api", upstream.url, classify=cautious)) as front,
        front.app() as app,
    ):
        answer = await app.ask("POST", "/api/x", body=b'{"stream": true}')
        assert (answer.status, len(upstream.requests)) == (502, 1)
        assert front.observed.outcomes == [Outcome.NOT_RETRYABLE]


async def test_under_observe_it_is_told_of_and_no_more() -> None:
    answer, call, told = await asked((streamed(chat(None)),), "openai", unfinished="break", mode="observe")
    assert (answer.body, call["outcome"], told) == (chat(None), Outcome.COMMITTED, ["api"])
