"""Upstreams that count a language model's tokens by the minute, each in the way of its provider, and speak as it does.

    async with OpenAI(limit=24_000, window=10.0) as upstream:
        ...  # upstream.url; upstream.refused, upstream.served, upstream.tokens

`window` stands for the minute. What each provider documents is played:

- `OpenAI` counts what a request asks for, its prompt and the maximum that it names, when it comes; nothing comes back
  if the answer is shorter. The limit fills up all the time, and every answer says what is left.
- `AzureOpenAI` counts the same, in minutes that begin on their own; only a 429 says when the next begins.
- `Anthropic` has a limit of input tokens and one of output tokens, which counts what is written, while it is written.
  Both fill up all the time, and what is left is told in whole thousands where the limit is one of many thousands.
- `Gemini` counts input tokens, in minutes that begin on their own. Answers say nothing of it, and a 429 names a delay.

A request is refused with 429 if the limit has not enough left; one that is larger than the limit is served if nothing
of it is used. The tokens of an output are four bytes each, as many as chance says, always in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from aiohttp import web

#: The pieces in which a stream brings its output.
PIECES = 4


class FixedWindow:
    """A limit of `limit` tokens in each window of `window` seconds, the first of which begins with the first request.
    `left` is of other limits' need.
    """

    def __init__(self, limit: float, window: float, left: float = 1.0) -> None:
        self.limit, self.window = limit, window
        self._began = self._used = 0.0

    def left(self, now: float) -> float:
        if now >= self._began + self.window:
            passed = (now - self._began) // self.window if self._began else 0.0
            self._began, self._used = (self._began + passed * self.window if self._began else now), 0.0
        return self.limit - self._used

    def take(self, tokens: float, now: float) -> None:
        self.left(now)
        self._used += tokens

    def whole_in(self, now: float) -> float:
        """Seconds until all of the limit is left."""
        return max(0.0, self._began + self.window - now)

    def fits_in(self, tokens: float, now: float) -> float:
        """Seconds until so many are left."""
        return 0.0 if self.left(now) >= min(tokens, self.limit) else self.whole_in(now)


class Refilled:
    """A limit of `limit` tokens that gets all of them back in `window` seconds, bit by bit. `left`: the share of it
    that is left at first.
    """

    def __init__(self, limit: float, window: float, left: float = 1.0) -> None:
        self.limit, self.window = limit, window
        self._level, self._at = limit * left, 0.0

    def left(self, now: float) -> float:
        self._level = min(self.limit, self._level + (now - (self._at or now)) * self.limit / self.window)
        self._at = now
        return self._level

    def take(self, tokens: float, now: float) -> None:
        self.left(now)
        self._level -= tokens

    def whole_in(self, now: float) -> float:
        """Seconds until all of the limit is left."""
        return (self.limit - self.left(now)) * self.window / self.limit

    def fits_in(self, tokens: float, now: float) -> float:
        """Seconds until so many are left."""
        return max(0.0, (min(tokens, self.limit) - self.left(now)) * self.window / self.limit)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for. `prompt`: its tokens; `most`: the maximum of output tokens that it names; `stream`: the
    answer is to come in events; `usage`: the stream is to say what it cost.
    """

    prompt: int
    most: int
    stream: bool
    usage: bool = True


class Provider:
    """An upstream. `seconds`: how long an answer takes. `outputs`: the fewest and the most tokens of an output, if the
    request allows them; `left`: the share of the limit that is left at first. `refused` and `served` are requests,
    `tokens` the tokens that were counted for those that were served; `asked_first`: the first request has come.
    """

    #: The dialects that an upstream of this provider's names in redrive's configuration.
    dialects: ClassVar[str]
    #: The units of the rates that keep within the provider's limits, one for each.
    counts: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        limit: float,
        window: float,
        *,
        seconds: float = 0.05,
        outputs: tuple[int, int] = (20, 60),
        left: float = 1.0,
    ) -> None:
        self.limit, self.window, self.seconds, self.outputs, self.begins = limit, window, seconds, outputs, left
        self.refused = self.served = 0
        self.tokens = 0.0
        self.asked_first = asyncio.Event()
        self.url = ""
        self._chance = random.Random(36)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = self.asked(request.path, await request.read())
        now = time.monotonic()
        self.asked_first.set()
        wait = self.fits_in(asked, now)
        if wait > 0:
            self.refused += 1
            return web.json_response(self.error(wait), status=429, headers=self.refusal_fields(wait, now))
        self.served += 1
        self.admit(asked, now)
        output = min(asked.most, self._chance.randint(*self.outputs))
        if not asked.stream:
            await asyncio.sleep(self.seconds)
            self.written(output)
            return web.json_response(self.said(asked, output), headers=self.fields(time.monotonic()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **self.fields(now)})
        with contextlib.suppress(ConnectionResetError):  # the app is gone
            await response.prepare(request)
            async for event in self._events(asked, output):
                await response.write(event)
        return response

    async def _events(self, asked: Asked, output: int) -> AsyncIterator[bytes]:
        pieces = [output * (number + 1) // PIECES - output * number // PIECES for number in range(PIECES)]
        for event in self.before(asked):
            yield event
        for piece in pieces:
            await asyncio.sleep(self.seconds / PIECES)
            self.written(piece)
            yield self.piece(asked, piece)
        for event in self.after(asked, output):
            yield event

    # -- what a provider has of its own -------------------------------------------------------------------------------

    def asked(self, path: str, body: bytes) -> Asked:
        """Read the request."""
        raise NotImplementedError

    def fits_in(self, asked: Asked, now: float) -> float:
        """Seconds until the request is served."""
        raise NotImplementedError

    def admit(self, asked: Asked, now: float) -> None:
        """Count the request, which is served."""
        raise NotImplementedError

    def written(self, tokens: int) -> None:
        """Note that so many tokens of an output were written."""

    def fields(self, now: float) -> dict[str, str]:
        """The fields of an answer that say what is left."""
        return {}

    def refusal_fields(self, wait: float, now: float) -> dict[str, str]:
        """The fields of a 429."""
        return self.fields(now)

    def error(self, wait: float) -> dict[str, Any]:
        """The body of a 429."""
        raise NotImplementedError

    def said(self, asked: Asked, output: int) -> dict[str, Any]:
        """The body of an answer that is no stream."""
        raise NotImplementedError

    def before(self, asked: Asked) -> list[bytes]:
        """The events with which a stream begins."""
        return []

    def piece(self, asked: Asked, tokens: int) -> bytes:
        """The event with a piece of the output."""
        raise NotImplementedError

    def after(self, asked: Asked, output: int) -> list[bytes]:
        """The events with which a stream ends."""
        return []


class OpenAI(Provider):
    """See the module. What is counted: the characters of the prompt by four, and the maximum."""

    dialects = "[http, openai]"
    counts = ("requested",)
    kind: type[FixedWindow] | type[Refilled] = Refilled

    def __init__(self, limit: float, window: float, **more: Any) -> None:
        super().__init__(limit, window, **more)
        self._meter = self.kind(limit, window, self.begins)

    def asked(self, path: str, body: bytes) -> Asked:
        said = json.loads(body)
        prompt = sum(len(message["content"]) for message in said["messages"]) // 4
        most = said.get("max_tokens") or said.get("max_completion_tokens") or self.outputs[1]
        options = said.get("stream_options") or {}
        return Asked(prompt, most, bool(said.get("stream")), bool(options.get("include_usage")))

    def fits_in(self, asked: Asked, now: float) -> float:
        return self._meter.fits_in(asked.prompt + asked.most, now)

    def admit(self, asked: Asked, now: float) -> None:
        self._meter.take(asked.prompt + asked.most, now)
        self.tokens += asked.prompt + asked.most

    def fields(self, now: float) -> dict[str, str]:
        left = max(0, int(self._meter.left(now)))
        reset = self._meter.whole_in(now)
        return {
            "x-ratelimit-limit-requests": "10000",
            "x-ratelimit-remaining-requests": "9999",
            "x-ratelimit-reset-requests": "6ms",
            "x-ratelimit-limit-tokens": str(int(self.limit)),
            "x-ratelimit-remaining-tokens": str(left),
            "x-ratelimit-reset-tokens": f"{reset:.3f}s" if reset >= 1 else f"{reset * 1000:.0f}ms",
        }

    def refusal_fields(self, wait: float, now: float) -> dict[str, str]:
        return {
            **self.fields(now), "retry-after-ms": str(int(wait * 1000) + 1), "retry-after": str(int(wait) + 1),
        }  # fmt: skip

    def error(self, wait: float) -> dict[str, Any]:
        return {"error": {"type": "tokens", "code": "rate_limit_exceeded", "message": f"Try again in {wait:.3f}s."}}

    def _usage(self, asked: Asked, output: int) -> dict[str, int]:
        return {
            "prompt_tokens": asked.prompt, "completion_tokens": output, "total_tokens": asked.prompt + output,
        }  # fmt: skip

    def said(self, asked: Asked, output: int) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "said" * output}}
        return {**_CHUNK, "object": "chat.completion", "choices": [choice], "usage": self._usage(asked, output)}

    def piece(self, asked: Asked, tokens: int) -> bytes:
        return _event({**_CHUNK, "choices": [{"index": 0, "delta": {"content": "said" * tokens}}]})

    def after(self, asked: Asked, output: int) -> list[bytes]:
        last = [_event({**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})]
        if asked.usage:
            last.append(_event({**_CHUNK, "choices": [], "usage": self._usage(asked, output)}))
        return [*last, b"data: [DONE]\n\n"]


class AzureOpenAI(OpenAI):
    """See the module."""

    dialects = "[http, azure, openai]"
    kind = FixedWindow

    def fields(self, now: float) -> dict[str, str]:
        left = max(0, int(self._meter.left(now)))
        return {"x-ratelimit-remaining-requests": "999", "x-ratelimit-remaining-tokens": str(left)}

    def refusal_fields(self, wait: float, now: float) -> dict[str, str]:
        seconds = str(int(wait) + 1)
        return {**self.fields(now), "retry-after": seconds, "x-ratelimit-reset-tokens": seconds}

    def error(self, wait: float) -> dict[str, Any]:
        return {"error": {"code": "429", "message": f"Please retry after {int(wait) + 1} seconds."}}


class Anthropic(Provider):
    """See the module. `limit` is that of input tokens, and of output tokens, too."""

    dialects = "[http, anthropic]"
    counts = ("prompt", "output")

    def __init__(self, limit: float, window: float, **more: Any) -> None:
        super().__init__(limit, window, **more)
        self._input, self._output = Refilled(limit, window, self.begins), Refilled(limit, window, self.begins)

    def asked(self, path: str, body: bytes) -> Asked:
        said = json.loads(body)
        prompt = sum(len(message["content"]) for message in said["messages"]) // 4
        return Asked(prompt, said["max_tokens"], bool(said.get("stream")))

    def fits_in(self, asked: Asked, now: float) -> float:
        return max(self._input.fits_in(asked.prompt, now), self._output.fits_in(1, now))

    def admit(self, asked: Asked, now: float) -> None:
        self._input.take(asked.prompt, now)
        self.tokens += asked.prompt

    def written(self, tokens: int) -> None:
        self._output.take(tokens, time.monotonic())
        self.tokens += tokens

    def fields(self, now: float) -> dict[str, str]:
        step = 1000 if self.limit >= 20_000 else 1
        found = {}
        for name, meter in (("input-tokens", self._input), ("output-tokens", self._output)):
            reset = datetime.fromtimestamp(time.time() + meter.whole_in(now), UTC)
            left = round(max(0.0, meter.left(now)) / step) * step if step > 1 else max(0, int(meter.left(now)))
            found |= {
                f"anthropic-ratelimit-{name}-limit": str(int(self.limit)),
                f"anthropic-ratelimit-{name}-remaining": str(left),
                f"anthropic-ratelimit-{name}-reset": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        return found

    def refusal_fields(self, wait: float, now: float) -> dict[str, str]:
        return {**self.fields(now), "retry-after": str(int(wait) + 1)}

    def error(self, wait: float) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "rate_limit_error", "message": "tokens a minute"}}

    def said(self, asked: Asked, output: int) -> dict[str, Any]:
        usage = {"input_tokens": asked.prompt, "output_tokens": output}
        return {
            **_MESSAGE,
            "content": [{"type": "text", "text": "said" * output}],
            "stop_reason": "end_turn",
            "usage": usage,
        }

    def before(self, asked: Asked) -> list[bytes]:
        usage = {"input_tokens": asked.prompt, "output_tokens": 1}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return [
            _event({"type": "message_start", "message": {**_MESSAGE, "content": [], "usage": usage}}, "message_start"),
            _event(block, "content_block_start"),
        ]

    def piece(self, asked: Asked, tokens: int) -> bytes:
        delta = {"type": "text_delta", "text": "said" * tokens}
        return _event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")

    def after(self, asked: Asked, output: int) -> list[bytes]:
        delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}
        return [
            _event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
            _event(delta, "message_delta"),
            _event({"type": "message_stop"}, "message_stop"),
        ]


class Gemini(Provider):
    """See the module."""

    dialects = "[http, google]"
    counts = ("prompt",)

    def __init__(self, limit: float, window: float, **more: Any) -> None:
        super().__init__(limit, window, **more)
        self._meter = FixedWindow(limit, window)

    def asked(self, path: str, body: bytes) -> Asked:
        said = json.loads(body)
        prompt = sum(len(part["text"]) for content in said["contents"] for part in content["parts"]) // 4
        most = said.get("generationConfig", {}).get("maxOutputTokens", self.outputs[1])
        return Asked(prompt, most, ":stream" in path)

    def fits_in(self, asked: Asked, now: float) -> float:
        return self._meter.fits_in(asked.prompt, now)

    def admit(self, asked: Asked, now: float) -> None:
        self._meter.take(asked.prompt, now)
        self.tokens += asked.prompt

    def error(self, wait: float) -> dict[str, Any]:
        quota = {"quotaId": "GenerateContentPaidTierInputTokensPerModelPerMinute", "quotaValue": str(int(self.limit))}
        details = [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [quota]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait:.9f}s"},
        ]
        message = "You exceeded your current quota."
        return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message, "details": details}}

    def said(self, asked: Asked, output: int) -> dict[str, Any]:
        usage = {
            "promptTokenCount": asked.prompt, "candidatesTokenCount": output, "totalTokenCount": asked.prompt + output,
        }  # fmt: skip
        content = {"role": "model", "parts": [{"text": "said" * output}]}
        return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}

    def piece(self, asked: Asked, tokens: int) -> bytes:
        content = {"role": "model", "parts": [{"text": "said" * tokens}]}
        return _event({"candidates": [{"content": content}], "usageMetadata": {"promptTokenCount": asked.prompt}})

    def after(self, asked: Asked, output: int) -> list[bytes]:
        return [_event({**self.said(asked, output), "candidates": [{"finishReason": "STOP"}]})]


_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m"}

PROVIDERS: dict[str, type[Provider]] = {
    "openai": OpenAI, "azure": AzureOpenAI, "anthropic": Anthropic, "google": Gemini,
}  # fmt: skip


def _event(said: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(said)}\n\n".encode()
