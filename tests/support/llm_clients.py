"""The official clients of OpenAI, Azure OpenAI, Anthropic and Gemini, each as a function that makes one call.

    call = CLIENTS["openai"](url, retries=False)
    await call(0)

The number of a call says how it is to be answered: in one piece, in a stream, or in a stream that says its usage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from support.late import Late

anthropic, openai, genai, genai_types = (
    Late("anthropic"),
    Late("openai"),
    Late("google.genai"),
    Late("google.genai.types"),
)

#: Characters of a prompt, and the maximum of output tokens that calls name.
PROMPT, MAXIMUM = 400, 200
Call = Callable[[int], Awaitable[None]]

#: The variables of the environment that providers' clients look for.
SURROUNDINGS = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_GENAI_USE_VERTEXAI", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "AWS_PROFILE",
)  # fmt: skip

_MESSAGES: Any = [{"role": "user", "content": "x" * PROMPT}]
HELLO: Any = [{"role": "user", "content": "hello"}]


def _retries(wanted: bool) -> dict[str, int]:
    return {} if wanted else {"max_retries": 0}


def _chat(client: Any) -> Call:
    async def call(number: int) -> None:
        options: Any = [{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}][number % 3]
        said = await client.chat.completions.create(model="m", messages=_MESSAGES, max_tokens=MAXIMUM, **options)
        if options:
            async for _ in said:
                pass

    return call


def openai_client(url: str, *, retries: bool) -> Call:
    return _chat(openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", timeout=600, **_retries(retries)))


def stream_of_anthropic(url: str) -> list[str]:
    """The texts of a message that is streamed, from the upstream `llm`."""
    client = anthropic.Anthropic(api_key="sk-ant", base_url=f"{url}/llm", max_retries=0)
    with client.messages.stream(model="m", max_tokens=10, messages=HELLO) as stream:
        return list(stream.text_stream)


def stream_of_completions(url: str) -> list[str]:
    """The texts of a chat completion that is streamed, from the upstream `llm`."""
    client = openai.OpenAI(api_key="sk-test", base_url=f"{url}/llm/v1", max_retries=0)
    stream = client.chat.completions.create(model="m", messages=HELLO, stream=True)
    return [chunk.choices[0].delta.content for chunk in stream if chunk.choices and chunk.choices[0].delta.content]


def azure_client(url: str, *, retries: bool) -> Call:
    more: Any = {"azure_endpoint": url, "api_version": "2024-10-21", **_retries(retries)}
    return _chat(openai.AsyncAzureOpenAI(api_key="k", timeout=600, **more))


def anthropic_client(url: str, *, retries: bool) -> Call:
    client = anthropic.AsyncAnthropic(api_key="k", base_url=url, timeout=600, **_retries(retries))

    async def call(number: int) -> None:
        said = await client.messages.create(model="m", max_tokens=MAXIMUM, messages=_MESSAGES, stream=number % 3 > 0)
        if number % 3:
            async for _ in said:
                pass

    return call


def google_client(url: str, *, retries: bool) -> Call:
    """Without options this client makes no retries; those of its HttpRetryOptions() are its own."""
    options = genai_types.HttpOptions(
        base_url=url, retry_options=genai_types.HttpRetryOptions() if retries else None, timeout=600_000
    )
    models = genai.Client(api_key="k", http_options=options).aio.models
    config = genai_types.GenerateContentConfig(max_output_tokens=MAXIMUM)

    async def call(number: int) -> None:
        if number % 3:
            async for _ in await models.generate_content_stream(model="m", contents="x" * PROMPT, config=config):
                pass
        else:
            await models.generate_content(model="m", contents="x" * PROMPT, config=config)

    return call


CLIENTS: dict[str, Callable[..., Call]] = {
    "openai": openai_client, "azure": azure_client, "anthropic": anthropic_client, "google": google_client,
}  # fmt: skip
