"""The official clients of OpenAI, Azure OpenAI, Anthropic and Gemini, against upstreams that count tokens by the window
in the way of each (contract, section 16): with a rate of what the provider counts, or with what answers say is left,
they are hardly refused. What the clients get without redrive is what it is compared with.

What is compared is how often the upstream refuses, never how long something takes: bench/token_limits.py measures that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.late import Late
from support.llm_clients import CLIENTS
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from support.token_providers import PROVIDERS, AzureOpenAI, Provider

openai = Late("openai")

#: Seconds of a window, and the calls that its limit has room for, by the calls at once: so few that clients on a busy
#: machine make more, too.
WINDOW, ROOM = 6.0, {1: 4, 10: 25, 50: 40}
#: What each provider counts for a call, about. The rate and its burst leave a sixth of the window: an upstream that is
#: late by some tenths of a second, since the machine is busy, counts requests of two windows in one.
PRICES = {"openai": 300, "azure": 300, "anthropic": 200, "google": 100}
PART, BURST = 0.83, 0.15


pytestmark = pytest.mark.usefixtures("no_surroundings")


def provider(name: str, at_once: int) -> Provider:
    return PROVIDERS[name](ROOM[at_once] * PRICES[name], WINDOW, outputs=(150, 200))


def config(upstream: Provider, how: str, price: float = 300, more: str = "") -> str:
    keys = [f'url: "{upstream.url}"', f"dialects: {upstream.dialects}"]
    if how == "rate":
        burst = max(price, BURST * upstream.limit)
        bucket = f"kind: rate, rate: {(PART * upstream.limit - burst) / WINDOW}/s, burst: {burst}"
        keys.append("rate: [" + ", ".join(f"{{{bucket}{more}, unit: {unit}}}" for unit in upstream.counts) + "]")
    if how == "ahead":
        keys.append("pushback: {ahead: on}")
    if how == "off":
        keys.append("mode: off")
    return f"upstreams: {{llm: {{{', '.join(keys)}}}}}\n"


@dataclass
class Played:
    """What came of it: calls that succeeded, and answers of 429."""

    succeeded: int
    refused: int


async def play(folder: Path, name: str, how: str, *, at_once: int, calls: int) -> Played:
    """Make so many calls, so many at once; "alone" is the client by itself, with its own retries."""
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(provider(name, at_once))
        url = upstream.url
        if how != "alone":
            place = folder / f"{name}-{how}"
            place.mkdir()
            redrive = await stack.enter_async_context(Redrive(place, config(upstream, how, PRICES[name])))
            url = f"{redrive.url}/llm"
        call = CLIENTS[name](url, retries=how == "alone")
        numbers, succeeded = iter(range(calls)), 0

        async def app() -> None:
            nonlocal succeeded
            for number in numbers:
                try:
                    await call(number)
                except Exception as error:
                    assert "429" in str(error) or "503" in str(error), error
                else:
                    succeeded += 1

        await asyncio.gather(*[app() for _ in range(at_once)])
        return Played(succeeded, upstream.refused)


async def hardly_refused(folder: Path, name: str, *, at_once: int, calls: int) -> None:
    """Play a client alone, and with a rate, at the same time. On a machine that is slower than the limit, the client
    alone is not refused either.
    """
    alone, ours = await asyncio.gather(
        *[play(folder, name, how, at_once=at_once, calls=calls) for how in ("alone", "rate")]
    )
    assert ours.succeeded == calls >= alone.succeeded, name
    assert ours.refused <= max(1, 0.05 * alone.refused), name


async def test_with_a_rate_of_what_a_provider_counts_hardly_one_call_after_the_other_is_refused(tmp_path: Path) -> None:
    """All clients at the same time, since they wait most of it."""
    await asyncio.gather(*[hardly_refused(tmp_path, name, at_once=1, calls=5) for name in CLIENTS])


@pytest.mark.parametrize("names", [("openai", "azure"), ("anthropic", "google")])
async def test_with_a_rate_of_what_a_provider_counts_hardly_one_of_fifty_calls_is_refused(
    names: tuple[str, str], tmp_path: Path
) -> None:
    await asyncio.gather(*[hardly_refused(tmp_path, name, at_once=50, calls=50) for name in names])


async def test_what_answers_say_is_left_does_so_too(tmp_path: Path) -> None:
    """Azure OpenAI says of a limit only what is left, not when it is whole again, and Gemini says nothing."""
    names = ("openai", "anthropic")
    for without, ahead in await asyncio.gather(
        *[
            asyncio.gather(*[play(tmp_path, name, how, at_once=10, calls=40) for how in ("off", "ahead")])
            for name in names
        ]
    ):
        assert ahead.succeeded == 40 >= without.succeeded
        assert ahead.refused <= 10, "those that go at once know no answer yet"


async def test_a_request_larger_than_the_burst_is_served(tmp_path: Path) -> None:
    async with (
        AzureOpenAI(6000, 1.0) as upstream,
        Redrive(tmp_path, config(upstream, "rate")) as redrive,
    ):
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{redrive.url}/llm/v1", max_retries=0)
        large: Any = [{"role": "user", "content": "x" * 10_000}]  # 2,500 tokens; the burst is 900
        said = await client.chat.completions.create(model="m", messages=large, max_tokens=60)
    assert said.usage.prompt_tokens == 2500
    assert upstream.refused == 0


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@needs_redis
async def test_two_sidecars_over_one_redis_keep_the_sum(tmp_path: Path, redis_server: RedisServer) -> None:
    async with provider("azure", 50) as upstream:
        text = f"redis: {{url: {redis_server.url}}}\n" + config(upstream, "rate", more=", store: redis")
        one, other = tmp_path / "one", tmp_path / "other"
        one.mkdir()
        other.mkdir()
        async with Redrive(one, text) as first, Redrive(other, text) as second:
            calls = [CLIENTS["azure"](f"{each.url}/llm", retries=False) for each in (first, second)]
            await asyncio.gather(*[calls[number % 2](number) for number in range(50)])
    assert upstream.served == 50
    assert upstream.refused <= 2
