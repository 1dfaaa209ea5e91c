"""The official clients of openai, anthropic and google, streaming, through redrive, from a provider whose streams end
too soon: cleanly, and in every place.

Without redrive, these clients take half an answer for a whole one, or for none at all (contract, section 15, "A
stream's end").
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import aiohttp
import pytest
from support.late import Late
from support.llm_clients import stream_of_anthropic, stream_of_completions
from support.process import Redrive
from support.scripted import Upstream

openai, genai = Late("openai"), Late("google.genai")


pytestmark = pytest.mark.usefixtures("no_surroundings")


def event(data: dict[str, Any] | str, name: str | None = None) -> bytes:
    line = "" if name is None else f"event: {name}\n"
    return f"{line}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def typed(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)


# -- the clients, as an app has them; each returns the texts that it got ----------------------------------------------


def by_responses(url: str) -> list[str]:
    client = openai.OpenAI(api_key="sk-test", base_url=f"{url}/llm/v1", max_retries=0)
    texts = []
    for each in client.responses.create(model="m", input="hello", stream=True):
        if each.type == "error":
            raise openai.OpenAIError(each.message)
        if each.type == "response.output_text.delta":
            texts.append(each.delta)
    return texts


def by_google(url: str) -> list[str]:
    client = genai.Client(api_key="k", http_options={"base_url": f"{url}/llm"})
    return [chunk.text for chunk in client.models.generate_content_stream(model="m", contents="hello") if chunk.text]


# -- what their providers say -----------------------------------------------------------------------------------------


def chunk(content: str | None, reason: str | None = None) -> bytes:
    delta = {"index": 0, "finish_reason": reason, "delta": {} if content is None else {"content": content}}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [delta]})


def gemini(text: str, **more: Any) -> bytes:
    return event({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **more}]})


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
           "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
RESPONSE = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": [], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "status": "in_progress", "error": None}  # fmt: skip
PART = {"item_id": "i", "output_index": 0, "content_index": 0, "logprobs": []}
TEXT = ["o", "n", "e"]


@dataclass(frozen=True)
class Stream:
    """A provider's stream. `ends`: with so many events it has its end, which may be fewer than all; `empty`: so many
    events at its beginning say nothing yet; `repeats`: its client repeats a call that had no answer; `error`: what the
    client raises for the provider's own event of an error.
    """

    dialect: str
    ask: Callable[[str], list[str]]
    events: tuple[bytes, ...]
    error: str
    empty: int = 0
    ends: int = 0
    repeats: bool = True

    @property
    def over(self) -> int:
        return self.ends or len(self.events)

    def sent(self, count: int) -> bytes:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        return head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in self.events[:count]) + b"0\r\n\r\n"


STREAMS = {
    "anthropic": Stream(
        "anthropic",
        stream_of_anthropic,
        (
            typed("message_start", message=MESSAGE),
            typed("ping"),
            typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *(typed("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in TEXT),
            typed("content_block_stop", index=0),
            typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
            typed("message_stop"),
        ),
        "anthropic:APIStatusError",
        empty=2,
    ),
    "completions": Stream(
        "openai",
        stream_of_completions,
        (*map(chunk, TEXT), chunk(None, "stop"), event("[DONE]")),
        "openai:APIError",
        ends=4,
    ),
    "completions without [DONE]": Stream(
        "openai", stream_of_completions, (*map(chunk, TEXT), chunk(None, "stop")), "openai:APIError"
    ),
    "responses": Stream(
        "openai",
        by_responses,
        (
            typed("response.created", sequence_number=0, response=RESPONSE),
            typed("response.in_progress", sequence_number=1, response=RESPONSE),
            *(typed("response.output_text.delta", sequence_number=2 + n, delta=t, **PART) for n, t in enumerate(TEXT)),
            typed("response.completed", sequence_number=5, response={**RESPONSE, "status": "completed"}),
        ),
        "openai:OpenAIError",
        empty=2,
    ),
    "gemini": Stream(
        "google",
        by_google,
        (gemini("o"), gemini("n"), gemini("e", finishReason="STOP")),
        "google.genai.errors:ServerError",
        repeats=False,
    ),
}


def config(stream: Stream, upstream: Upstream, unfinished: str) -> str:
    lines = [
        "upstreams:",
        "  llm:",
        f"    url: {upstream.url}",
        f"    dialects: [http, {stream.dialect}]",
        "    strategy: {kind: standard, max_attempts: 2, backoff: {base: 0s, jitter: none}}",
        f"    streams: {{unfinished: {unfinished}}}",
    ]
    return "\n".join(lines) + "\n"


def plays(stream: Stream) -> Iterator[bytes]:
    """The stream, ended in every place; one that is asked for again comes whole then."""
    for count in range(len(stream.events) + 1):
        yield stream.sent(count)
        if count <= stream.empty and stream.repeats:
            yield stream.sent(len(stream.events))


@pytest.mark.parametrize("unfinished", ["tell", "break", "event"])
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_ends_too_soon_in_every_place(tmp_path: Path, name: str, unfinished: str) -> None:
    stream = STREAMS[name]
    pytest.importorskip(stream.error.partition(":")[0])
    async with (
        Upstream(*plays(stream)) as upstream,
        Redrive(tmp_path, config(stream, upstream, unfinished)) as redrive,
    ):
        for count in range(len(stream.events) + 1):
            before = len(upstream.requests)
            raised: BaseException | None = None
            texts: list[str] = []
            try:
                texts = await asyncio.to_thread(stream.ask, redrive.url)
            except Exception as error:
                raised = error
            made = len(upstream.requests) - before
            where = f"after {count} events of {len(stream.events)}: {raised!r}"
            if count >= stream.over:
                assert (raised, texts, made) == (None, TEXT, 1), where
            elif count <= stream.empty and stream.repeats:
                assert (raised, texts, made) == (None, TEXT, 2), where
            elif count <= stream.empty and not count:
                assert isinstance(raised, resolve_name(stream.error)), where  # our 502, as its client has it
                assert made == 1, where
            else:
                assert made == 1, where
                said = [text for text in TEXT if text.encode() in b"".join(stream.events[:count])]
                if unfinished == "tell":
                    assert raised is None, where  # half of it, as from the provider itself
                    assert len(texts) <= len(said), where
                elif unfinished == "event":
                    assert isinstance(raised, resolve_name(stream.error)), where
                    assert "ended before its end" in str(raised), where
                else:
                    assert raised is not None, where
        counted = await unfinished_streams(redrive)
    assert counted == stream.over - 1 - (stream.empty if stream.repeats else 0)


async def unfinished_streams(redrive: Redrive) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{redrive.admin}/metrics") as got:
        lines = (await got.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("redrive_streams_unfinished_total{"))


@pytest.mark.parametrize("name", ["anthropic", "completions", "gemini"])
async def test_without_redrive_half_an_answer_passes_for_a_whole_one(name: str) -> None:
    stream = STREAMS[name]
    pytest.importorskip(stream.error.partition(":")[0])
    async with Upstream(stream.sent(stream.empty + 2)) as upstream:
        texts = await asyncio.to_thread(stream.ask, upstream.url)
    assert texts == TEXT[: len(texts)] != TEXT
