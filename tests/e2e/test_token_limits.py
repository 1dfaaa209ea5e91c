"""The official clients of OpenAI, Azure OpenAI, Anthropic and Gemini, against an upstream that counts tokens by the
window (contract, section 16): with a rate of tokens, or with what answers say is left, they are hardly refused.

What is compared is how often the upstream refuses, never how long something takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.late import Late
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from support.token_counter import TokenCounter

anthropic, openai, genai = Late("anthropic"), Late("openai"), Late("google.genai")

MESSAGES: Any = [{"role": "user", "content": "x" * 100}]


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own proxies and keys."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "OPENAI_BASE_URL", "OPENAI_API_KEY",
                 "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "GOOGLE_API_KEY",
                 "GEMINI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def ask_openai(url: str) -> Callable[[], object]:
    client = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
    return lambda: client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=60)


def ask_azure(url: str) -> Callable[[], object]:
    client = openai.AzureOpenAI(api_key="k", azure_endpoint=url, api_version="2024-10-21", max_retries=0)
    return lambda: client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=60)


def ask_anthropic(url: str) -> Callable[[], object]:
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
    return lambda: client.messages.create(model="m", max_tokens=60, messages=MESSAGES)


def ask_google(url: str) -> Callable[[], object]:
    client = genai.Client(api_key="k", http_options={"base_url": url})
    return lambda: client.models.generate_content(model="m", contents="x" * 100, config={"max_output_tokens": 60})


CLIENTS = {
    "openai": (ask_openai, "[http, openai]"),
    "azure": (ask_azure, "[http, azure, openai]"),
    "anthropic": (ask_anthropic, "[http, anthropic]"),
    "google": (ask_google, "[http, google]"),
}
#: Tokens of a window, and its seconds. The rate and its burst leave a sixth of the window: an upstream that is late by
#: some tenths of a second, since the machine is busy, counts requests of two windows in one.
LIMIT, WINDOW = 2400, 1.0
TPM = "buckets: {{tpm: {{kind: rate, rate: {rate}/s, burst: {burst}, unit: tokens{more}}}}}\n"


def config(url: str, dialects: str, how: str) -> str:
    if how == "rate":
        return (
            TPM.format(rate=1600, burst=400, more="")
            + f'upstreams: {{llm: {{url: "{url}", dialects: {dialects}, rate: tpm, tokens: {{output: 60}}}}}}\n'
        )
    ahead = {"ahead": ", pushback: {ahead: on}", "off": ", mode: off"}.get(how, "")
    return f'upstreams: {{llm: {{url: "{url}", dialects: {dialects}, concurrency: off, bucket: off{ahead}}}}}\n'


@dataclass
class Played:
    """What came of it: calls that succeeded, answers of 429, and calls a second."""

    succeeded: int
    refused: int
    a_second: float


async def play(folder: Path, name: str, how: str, *, at_once: int, calls: int) -> Played:
    """Make so many calls, so many at once."""
    ask, dialects = CLIENTS[name]
    async with (
        TokenCounter(LIMIT, WINDOW) as upstream,
        Redrive(folder, config(upstream.url, dialects, how)) as redrive,
    ):
        call = ask(f"{redrive.url}/llm")
        turns, succeeded = iter(range(calls)), 0

        async def app() -> None:
            nonlocal succeeded
            for _ in turns:
                try:
                    await asyncio.to_thread(call)
                except Exception as error:
                    assert "429" in str(error) or "503" in str(error), error
                else:
                    succeeded += 1

        await asyncio.to_thread(call)  # what a client begins with is not measured
        upstream.refused, began = 0, time.monotonic()
        await asyncio.gather(*[app() for _ in range(at_once)])
        return Played(succeeded, upstream.refused, succeeded / (time.monotonic() - began))


@pytest.mark.parametrize("at_once", [1, 50])
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_rate_of_tokens_keeps_the_upstream_from_refusing(name: str, at_once: int, tmp_path: Path) -> None:
    played = await play(tmp_path, name, "rate", at_once=at_once, calls=20 if at_once == 1 else 150)
    assert played.succeeded == (20 if at_once == 1 else 150)
    assert played.refused <= 3


@pytest.mark.parametrize("name", ["openai", "azure", "anthropic"])
async def test_what_answers_say_is_left_does_so_too(name: str, tmp_path: Path) -> None:
    without = await play(tmp_path, name, "off", at_once=50, calls=150)
    ahead = await play(tmp_path, name, "ahead", at_once=50, calls=150)
    assert ahead.succeeded == 150
    assert without.refused >= 20
    assert ahead.refused <= 3


async def test_a_request_larger_than_the_burst_is_served(tmp_path: Path) -> None:
    async with (
        TokenCounter(LIMIT, WINDOW) as upstream,
        Redrive(tmp_path, config(upstream.url, "[http, openai]", "rate")) as redrive,
    ):
        client = openai.OpenAI(api_key="k", base_url=f"{redrive.url}/llm/v1", max_retries=0)
        large: Any = [{"role": "user", "content": "x" * 6000}]  # 1,500 tokens; the burst is 400
        said = await asyncio.to_thread(lambda: client.chat.completions.create(model="m", messages=large, max_tokens=60))
    assert said.usage.prompt_tokens > 1000
    assert upstream.refused == 0


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@needs_redis
async def test_two_sidecars_over_one_redis_keep_the_sum(tmp_path: Path, redis_server: RedisServer) -> None:
    async with TokenCounter(LIMIT, WINDOW) as upstream:
        text = (
            f"redis: {{url: {redis_server.url}}}\n"
            + TPM.format(rate=1600, burst=400, more=", store: redis")
            + f'upstreams: {{llm: {{url: "{upstream.url}", dialects: [http, openai], rate: tpm}}}}\n'
        )
        one, other = tmp_path / "one", tmp_path / "other"
        one.mkdir()
        other.mkdir()
        async with Redrive(one, text) as first, Redrive(other, text) as second:
            calls = [ask_openai(f"{each.url}/llm") for each in (first, second)]

            async def app(number: int) -> None:
                for _ in range(5):
                    await asyncio.to_thread(calls[number % 2])

            await asyncio.gather(*[app(number) for number in range(24)])
    assert upstream.served == 120
    assert upstream.refused <= 6
