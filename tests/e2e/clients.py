"""Applications that know nothing of redrive: curl, requests, httpx, aiohttp, as people use them.

Each does one request and gives a plain `Answer`. They find the proxy as they always do, in the environment.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import httpx
import pytest
import requests
from support.process import run


@dataclass(frozen=True)
class Answer:
    """Field names are in lower case; of several fields with one name the last counts here."""

    status: int
    headers: dict[str, str]
    body: bytes


App = Callable[..., Awaitable[Answer]]


async def curl(method: str, url: str, body: bytes | None = None, **env: str) -> Answer:
    """Finds http_proxy (curl ignores HTTP_PROXY, which a CGI could be tricked with)."""
    sent = ["--data-binary", "@-"] if body is not None else []
    status, out, err = await run(
        "curl", "-sS", "-i", "--max-time", "30", "-X", method, *sent, url, stdin=body, **env
    )  # fmt: skip
    assert status == 0, err
    head, _, rest = out.partition("\r\n\r\n")
    while head.startswith("HTTP/1.1 1") or "200 Connection established" in head:
        head, _, rest = rest.partition("\r\n\r\n")
    line, *fields = head.split("\r\n")
    pairs = (field.split(":", 1) for field in fields)
    return Answer(int(line.split(" ")[1]), {name.lower(): value.strip() for name, value in pairs}, rest.encode())


async def with_requests(method: str, url: str, body: bytes | None = None, **env: str) -> Answer:
    def ask() -> Answer:
        with pytest.MonkeyPatch.context() as patch, requests.Session() as session:
            _set(patch, env)
            got = session.request(method, url, data=body, timeout=30)
            return Answer(got.status_code, {k.lower(): v for k, v in got.headers.items()}, got.content)

    return await asyncio.to_thread(ask)


async def with_httpx(method: str, url: str, body: bytes | None = None, **env: str) -> Answer:
    with pytest.MonkeyPatch.context() as patch:
        _set(patch, env)
        async with httpx.AsyncClient(timeout=30) as client:
            got = await client.request(method, url, content=body)
            return Answer(got.status_code, {k.lower(): v for k, v in got.headers.items()}, got.content)


async def with_aiohttp(method: str, url: str, body: bytes | None = None, **env: str) -> Answer:
    with pytest.MonkeyPatch.context() as patch:
        _set(patch, env)
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(30)) as session,
            session.request(method, url, data=body) as got,
        ):
            return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, await got.read())


def _set(patch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in (
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
    ):
        patch.delenv(name, raising=False)
    for name, value in env.items():
        patch.setenv(name, value)


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

APPS = [
    pytest.param(curl, id="curl", marks=needs_curl),
    pytest.param(with_requests, id="requests"),
    pytest.param(with_httpx, id="httpx"),
    pytest.param(with_aiohttp, id="aiohttp"),
]


def proxied(url: str) -> dict[str, str]:
    """What the contract tells people to set."""
    return {"HTTP_PROXY": url, "http_proxy": url}


async def status_and_attempts(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """The status of a call, and how many attempts it took, as its answer says."""
    async with session.get(url) as answered:
        await answered.read()
        return answered.status, answered.headers.get("x-attempt-count", "")
