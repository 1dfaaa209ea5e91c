"""The official openai and anthropic clients, streaming, through redrive, against an upstream that fails as documented.

Without redrive each of these failures reaches the app: the clients retry what an answer's status says, and all of these
have status 200. Until a stream has said anything, the call is made again, and the app sees one whole stream; what had
said something when it failed is not repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import aiohttp
import pytest
from support.late import Late
from support.llm_clients import HELLO, stream_of_anthropic, stream_of_completions
from support.process import Redrive
from support.scripted import Step, Turn, Upstream, answer

T = TypeVar("T")

anthropic, openai = Late("anthropic"), Late("openai")


pytestmark = pytest.mark.usefixtures("no_surroundings")


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    line = "" if name is None else f"event: {name}\n"
    return f"{line}data: {json.dumps(data)}\n\n".encode()


def typed(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


@dataclass(frozen=True)
class Api:
    """A provider's interface, and its client. `begun`: what comes first and says nothing yet; `said` and `ends`: the
    rest of a whole stream; `fails` and `busy`: an error that opens a stream, and one that is a whole JSON answer;
    `error`: what its client raises then, as `pkgutil.resolve_name` finds it.
    """

    name: str
    ask: Callable[[str], list[str]]
    begun: bytes
    said: bytes
    ends: bytes
    fails: bytes
    error: str
    because: str
    plainly: Callable[[str], str]
    whole: bytes

    def __str__(self) -> str:
        return self.name


def ask_responses(url: str) -> list[str]:
    client = openai.OpenAI(api_key="sk-test", base_url=f"{url}/llm/v1", max_retries=0)
    stream = client.responses.create(model="m", input="hello", stream=True)
    texts = []
    for each in stream:
        if each.type in ("error", "response.failed"):
            raise openai.OpenAIError(each.type)
        if each.type == "response.output_text.delta":
            texts.append(each.delta)
    return texts


def chunk(content: str) -> bytes:
    delta = {"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": content}}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [delta]})


def plainly_anthropic(url: str) -> str:
    client = anthropic.Anthropic(api_key="sk-ant", base_url=f"{url}/llm", max_retries=0)
    return str(client.messages.create(model="m", max_tokens=10, messages=HELLO).content[0].text)  # type: ignore[union-attr]


def plainly_openai(url: str) -> str:
    client = openai.OpenAI(api_key="sk-test", base_url=f"{url}/llm/v1", max_retries=0)
    return str(client.chat.completions.create(model="m", messages=HELLO).choices[0].message.content)


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
           "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
RESPONSE = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": [], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "status": "in_progress", "error": None}  # fmt: skip
COMPLETION = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [
    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}]}  # fmt: skip
PART = {"item_id": "i", "output_index": 0, "content_index": 0, "logprobs": []}

ANTHROPIC = Api(
    "anthropic",
    stream_of_anthropic,
    typed({"type": "message_start", "message": MESSAGE}) + typed({"type": "ping"}),
    typed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    + typed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
    typed({"type": "content_block_stop", "index": 0})
    + typed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}})
    + typed({"type": "message_stop"}),
    typed({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "anthropic:APIStatusError",
    "dialect anthropic: error overloaded_error",
    plainly_anthropic,
    json.dumps({**MESSAGE, "content": [{"type": "text", "text": "hi"}]}).encode(),
)
COMPLETIONS = Api(
    "openai",
    stream_of_completions,
    b": OPENROUTER PROCESSING\n\n",
    chunk("hi"),
    b"data: [DONE]\n\n",
    event({"error": {"message": "The server had an error", "type": "server_error", "param": None, "code": None}}),
    "openai:APIError",
    "dialect openai: event server_error",
    plainly_openai,
    json.dumps(COMPLETION).encode(),
)
RESPONSES = Api(
    "openai",
    ask_responses,
    typed({"type": "response.created", "sequence_number": 0, "response": RESPONSE})
    + typed({"type": "response.in_progress", "sequence_number": 1, "response": RESPONSE}),
    typed({"type": "response.output_text.delta", "sequence_number": 2, "delta": "hi", **PART}),
    typed({"type": "response.completed", "sequence_number": 3, "response": {**RESPONSE, "status": "completed"}}),
    typed({"type": "error", "sequence_number": 2, "code": "server_error", "message": "no", "param": None}),
    "openai:OpenAIError",
    "dialect openai: error server_error",
    plainly_openai,
    json.dumps(COMPLETION).encode(),
)
EACH = pytest.mark.parametrize(
    "api", [ANTHROPIC, COMPLETIONS, RESPONSES], ids=["anthropic", "completions", "responses"]
)


def stream(*pieces: bytes, end: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + (b"0\r\n\r\n" if end else b"")


def stalls(*pieces: bytes) -> Step:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(stream(*pieces, end=False))
        await turn.gone()

    return step


def cuts(*pieces: bytes) -> Step:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(stream(*pieces, end=False))
        turn.close()

    return step


def config(api: Api, upstream: Upstream, *more: str, attempts: int = 2) -> str:
    lines = [
        "upstreams:",
        "  llm:",
        f"    url: {upstream.url}",
        f"    dialects: [http, {api.name}]",
        f"    strategy: {{kind: standard, max_attempts: {attempts}, backoff: {{base: 0s, jitter: none}}}}",
        *(f"    {line}" for line in more),
    ]
    return "\n".join(lines) + "\n"


SHORTLY = "timeouts: {first_byte: 200ms}"


async def ask(call: Callable[[str], T], redrive: Redrive) -> T:
    """A client's blocking call, beside the loop that plays the provider."""
    return await asyncio.to_thread(call, redrive.url)


async def attempts(redrive: Redrive) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = (await redrive.call())["history"]
    return found


@EACH
async def test_a_stream_that_opens_with_an_error(tmp_path: Path, api: Api) -> None:
    whole = stream(api.begun, api.said, api.ends)
    async with (
        Upstream(stream(api.begun, api.fails), whole) as upstream,
        Redrive(tmp_path, config(api, upstream)) as redrive,
    ):
        assert await ask(api.ask, redrive) == ["hi"]
        first, second = await attempts(redrive)
    assert (first["status"], first["because"], first["decision"]) == (200, api.because, "retried")
    assert (second["status"], second["class"], "first_byte" in second) == (200, "success", True)
    assert upstream.requests[0].body == upstream.requests[1].body


@EACH
@pytest.mark.parametrize("begun", [False, True], ids=["after its head", "after what says nothing"])
async def test_a_stream_that_stalls(tmp_path: Path, api: Api, begun: bool) -> None:
    step = stalls(api.begun) if begun else stalls()
    async with (
        Upstream(step, stream(api.begun, api.said, api.ends)) as upstream,
        Redrive(tmp_path, config(api, upstream, SHORTLY, attempts=10)) as redrive,
    ):
        assert await ask(api.ask, redrive) == ["hi"]
        first, *_ = await attempts(redrive)  # more than two where a machine takes longer to answer
    assert (first["fault"], first["decision"]) == ("attempt_timeout", "retried")


@EACH
async def test_a_stream_that_is_cut_before_it_has_said_anything(tmp_path: Path, api: Api) -> None:
    async with (
        Upstream(cuts(api.begun), stream(api.begun, api.said, api.ends)) as upstream,
        Redrive(tmp_path, config(api, upstream)) as redrive,
    ):
        assert await ask(api.ask, redrive) == ["hi"]
        assert (await attempts(redrive))[0]["fault"] == "reset"


@EACH
async def test_a_stream_that_goes_on_failing_is_the_clients_to_tell_of(tmp_path: Path, api: Api) -> None:
    async with Upstream(stream(api.fails)) as upstream, Redrive(tmp_path, config(api, upstream)) as redrive:
        with pytest.raises(resolve_name(api.error)):
            await ask(api.ask, redrive)
        assert (await redrive.call())["outcome"] == "attempts_exhausted"
    assert len(upstream.requests) == 2


@EACH
async def test_one_that_stalls_every_time_is_a_504(tmp_path: Path, api: Api) -> None:
    timed_out = anthropic.APIStatusError if api is ANTHROPIC else openai.APIStatusError
    async with Upstream(stalls(api.begun)) as upstream, Redrive(tmp_path, config(api, upstream, SHORTLY)) as redrive:
        with pytest.raises(timed_out) as caught:
            await ask(api.ask, redrive)
    assert caught.value.status_code == 504
    assert caught.value.response.headers["x-should-retry"] == "false"


@EACH
async def test_an_error_that_comes_later_is_passed_on_and_told_of(tmp_path: Path, api: Api) -> None:
    async with (
        Upstream(stream(api.begun, api.said, api.fails)) as upstream,
        Redrive(tmp_path, config(api, upstream)) as redrive,
    ):
        with pytest.raises(resolve_name(api.error)):
            await ask(api.ask, redrive)
        event = await redrive.line(lambda line: line["event"] == "stream_error")
        counted = await metrics(redrive, "redrive_stream_errors_total")
    assert len(upstream.requests) == 1
    assert event is not None
    assert (event["upstream"], event["route"], event["error"]) == ("llm", "", api.because)
    assert counted == {'{route="",upstream="llm"}': 1.0}


@EACH
async def test_a_stream_that_is_cut_once_it_has_said_something_is_not_repeated(tmp_path: Path, api: Api) -> None:
    async with Upstream(cuts(api.begun, api.said)) as upstream, Redrive(tmp_path, config(api, upstream)) as redrive:
        with pytest.raises(Exception, match=r"(?i)closed|incomplete|connection|protocol"):
            await ask(api.ask, redrive)
        assert (await redrive.call())["outcome"] == "committed"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("api", [ANTHROPIC, COMPLETIONS], ids=["anthropic", "completions"])
async def test_an_answer_that_is_an_error_in_json_under_200(tmp_path: Path, api: Api) -> None:
    kind = "application/json"
    busy = answer(200, b'{"error": {"code": "server_busy"}}', f"Content-Type: {kind}")
    rule = "classify: {rules: [{status: 200, json: {error.code: server_busy}, as: transient}]}"
    async with (
        Upstream(busy, answer(200, api.whole, f"Content-Type: {kind}")) as upstream,
        Redrive(tmp_path, config(api, upstream, rule, "timeouts: {first_byte: 20s}")) as redrive,
    ):
        assert await ask(api.plainly, redrive) == "hi"
        first, _ = await attempts(redrive)
    assert (first["status"], first["because"]) == (200, "rule 1")


async def metrics(redrive: Redrive, name: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{redrive.admin}/metrics") as got:
        lines = [line for line in (await got.text()).splitlines() if line.startswith(f"{name}{{")]
    return {line[len(name) :].rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_two_workers_count_what_both_saw(tmp_path: Path) -> None:
    api = ANTHROPIC
    async with (
        Upstream(stream(api.begun, api.said, api.fails)) as upstream,
        Redrive(tmp_path, "workers: 2\n" + config(api, upstream, "timeouts: {first_byte: 20s}")) as redrive,
    ):
        calls = [ask(api.ask, redrive) for _ in range(8)]
        assert all(
            isinstance(each, resolve_name(api.error)) for each in await asyncio.gather(*calls, return_exceptions=True)
        )
        assert await metrics(redrive, "redrive_stream_errors_total") == {'{route="",upstream="llm"}': 8.0}
        assert await metrics(redrive, "redrive_first_byte_seconds_count") == {'{route="",upstream="llm"}': 8.0}


async def test_what_stalls_every_time_goes_on_at_another_upstream_which_has_a_time_of_its_own(tmp_path: Path) -> None:
    api = ANTHROPIC
    whole = stream(api.begun, api.said, api.ends)
    async with Upstream(stalls(api.begun)) as ill, Upstream(stalls(api.begun), whole) as well:
        text = config(api, ill, SHORTLY, "fallback: [{to: other, keep: [x-api-key]}]")
        other = config(api, well, "timeouts: {first_byte: 300ms}", attempts=10).replace("  llm:", "  other:")
        other = other.partition("\n")[2]
        async with Redrive(tmp_path, text + other) as redrive:
            assert await ask(api.ask, redrive) == ["hi"]
            *late, last = await attempts(redrive)
    assert len(late) >= 3  # more where a machine takes longer to answer
    assert {each["fault"] for each in late} == {"attempt_timeout"} and "fault" not in last
    assert [each["upstream"] for each in (*late, last)] == ["llm"] * 2 + ["other"] * (len(late) - 1)
