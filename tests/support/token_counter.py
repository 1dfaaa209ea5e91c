"""An upstream that counts a language model's tokens by the window, as providers count them by the minute, and speaks as
OpenAI, Azure OpenAI, Anthropic and Gemini do.

    async with TokenCounter(limit=2000, window=2.0) as upstream:
        ...  # upstream.refused, upstream.served, upstream.most

A request is refused with 429 where the tokens of the window so far, with its own, are more than the limit; one that is
larger than the limit is served in an empty window. What an answer says that it cost is what is counted.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any, Self

from aiohttp import web


class TokenCounter:
    """See the module. `seconds`: how long an answer takes; `output`: the tokens of its output. `reports`: answers say
    what is left. `sliding`: what was counted within the last `window` counts, not what was since a window began; the
    reset is when all of it is older ("whole"), or the first of it ("next"). `most`: the most tokens that were counted
    in any window.
    """

    def __init__(
        self,
        limit: float,
        window: float,
        *,
        seconds: float = 0.05,
        output: int = 40,
        reports: bool = True,
        sliding: str = "",
    ) -> None:
        self.sliding = sliding
        self._taken: deque[tuple[float, float]] = deque()  # of a sliding window: when, and how much
        self.limit, self.window, self.seconds, self.output, self.reports = limit, window, seconds, output, reports
        self.refused = self.served = 0
        self.most = 0.0
        self.url = ""
        self._began = 0.0  # when the window began
        self._counted = 0.0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def left(self) -> float:
        """What the window has left."""
        now = time.monotonic()
        if self.sliding:
            while self._taken and now >= self._taken[0][0] + self.window:
                self._counted -= self._taken.popleft()[1]
            self._began = self._taken[0 if self.sliding == "next" else -1][0] if self._taken else now - self.window
        elif now >= self._began + self.window:
            self._began, self._counted = now, 0.0
        return self.limit - self._counted

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        prompt = max(1, len(body) // 4)
        cost = prompt + self.output
        left = self.left()
        if left < min(cost, self.limit):
            self.refused += 1
            return web.json_response(_error(request.path), status=429, headers=self._fields(request.path, left))
        self._counted += cost
        self._taken.append((time.monotonic(), cost))
        self.served += 1
        self.most = max(self.most, self.limit - self.left())
        await asyncio.sleep(self.seconds)
        said = _said(request.path, prompt, self.output)
        return web.json_response(said, headers=self._fields(request.path, self.left()))

    def _fields(self, path: str, left: float) -> dict[str, str]:
        if not self.reports:
            return {}
        reset = max(0.01, self._began + self.window - time.monotonic())
        if path.endswith("/messages"):
            from datetime import UTC, datetime

            at = datetime.fromtimestamp(time.time() + reset, UTC).isoformat(timespec="milliseconds")
            name = "anthropic-ratelimit-tokens"
            values = {"limit": str(int(self.limit)), "remaining": str(int(max(0, left))), "reset": at}
            return {f"{name}-{part}": value for part, value in values.items()}
        if ":generateContent" in path:
            return {"ratelimit": f'"tokens";r={int(max(0, left))};t={max(1, round(reset))};qu="tokens"'}
        values = {"limit": str(int(self.limit)), "remaining": str(int(max(0, left))), "reset": f"{reset * 1000:.0f}ms"}
        return {f"x-ratelimit-{part}-tokens": value for part, value in values.items()}


def _error(path: str) -> dict[str, Any]:
    if path.endswith("/messages"):
        return {"type": "error", "error": {"type": "rate_limit_error", "message": "tokens a minute"}}
    if ":generateContent" in path:
        return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "tokens a minute"}}
    return {"error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "tokens a minute"}}


def _said(path: str, prompt: int, output: int) -> dict[str, Any]:
    if path.endswith("/messages"):
        return {
            "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "said"}], "usage": {"input_tokens": prompt, "output_tokens": output},
        }  # fmt: skip
    if ":generateContent" in path:
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output}
        content = {"role": "model", "parts": [{"text": "said"}]}
        return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "said"}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def text_of(size: int) -> str:
    """A prompt of so many bytes."""
    return json.dumps("x" * size)[1:-1]
