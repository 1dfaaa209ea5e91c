"""A successor takes over from a redrive that intercepts TLS, carries tunnels, or keeps its buckets in Redis."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from support.certificates import Authority
from support.process import Redrive
from support.redis_server import RedisServer, needs_redis
from support.scripted import Turn, Upstream, answer
from test_e2e_intercept import NAME, configuration, make_ca
from test_take_over import CALLERS, CALLS, SECONDS_FOR_ALL, calls_of, event, successor
from test_workers import LISTEN, config

SECONDS = 60.0

pytestmark = pytest.mark.timeout(SECONDS_FOR_ALL)


async def status_of(client: httpx.AsyncClient, url: str) -> Any:
    try:
        return (await client.get(url)).status_code
    except httpx.HTTPError as error:
        return repr(error)


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_intercepted_call_of_two_thousand_fails(tmp_path: Path, authority: Authority, workers: int) -> None:
    """TLS that redrive ends, on connections that are kept; every thirtieth call comes on a new one."""
    listen, begun = LISTEN.format(workers), asyncio.Event()
    async with Upstream(answer(200, b"whole"), tls=authority.server) as upstream:
        text = configuration(upstream, authority)
        await make_ca(tmp_path, text, authority, "--for", NAME)
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca/cert.pem"))
        async with Redrive(tmp_path, text, listen=listen) as before:

            def client() -> httpx.AsyncClient:
                limits = httpx.Limits(max_connections=CALLERS)
                return httpx.AsyncClient(proxy=before.url, verify=trusted, timeout=SECONDS, limits=limits)

            async with client() as kept:

                async def call(_: int, number: int) -> Any:
                    if number % 30:
                        return await status_of(kept, f"https://{NAME}/{number}")
                    async with client() as new:
                        return await status_of(new, f"https://{NAME}/{number}")

                calls = asyncio.create_task(calls_of(call, begun))
                await begun.wait()
                async with successor(before, tmp_path, text, listen) as after:
                    assert await before.ended() == 0
                    assert await calls == {200: CALLS}
                    assert (await event(before, "ended"))["calls_cut"] == 0
                    assert (await after.call())["upstream"] == "payments"


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """A server whose WebSocket says everything again; its authority."""

    async def answered(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        if not socket.can_prepare(request):
            return web.Response(text="plain")
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    runner = web.ServerRunner(web.Server(answered))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"{host}:{port}"
    await runner.cleanup()


@pytest.mark.parametrize("workers", [1, 2])
async def test_tunnels_and_websockets_go_on_where_they_are(tmp_path: Path, workers: int) -> None:
    """In the process that drains, as long as it does; what is opened meanwhile is the successor's."""
    listen = LISTEN.format(workers)
    async with echoing() as at, Upstream() as unused, asyncio.timeout(SECONDS), aiohttp.ClientSession() as session:
        text = f"{config(unused)}  echo: {{url: 'http://{at}', connect: tunnel}}\n"

        async def tunnel(through: Redrive) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            """A WebSocket inside of a CONNECT, of which redrive sees no more than bytes."""
            host, port = through.authority.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            return reader, writer

        async def asks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            return head[:12] + await reader.readexactly(5)

        async def echo(socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
            await socket.send_str(text)
            assert await socket.receive_str() == text

        async with Redrive(tmp_path, text, listen=listen) as before:
            old = await session.ws_connect(f"{before.url}/echo/x")
            blind = await tunnel(before)
            await echo(old, "before")
            assert await asks(*blind) == b"HTTP/1.1 200plain"
            async with successor(before, tmp_path, text, listen) as after:
                await event(before, "draining")
                new, other = await session.ws_connect(f"{after.url}/echo/x"), await tunnel(after)
                for each in (old, new):
                    await echo(each, "meanwhile")
                for through in (blind, other):
                    assert await asks(*through) == b"HTTP/1.1 200plain"
                await old.close()
                blind[1].close()
                assert await before.ended() == 0
                assert (await event(before, "ended"))["calls_cut"] == 0
                await echo(new, "after")
                assert await asks(*other) == b"HTTP/1.1 200plain"
                await new.close()
                other[1].close()


@needs_redis
@pytest.mark.parametrize("workers", [1, 2])
async def test_no_call_fails_and_no_token_is_lost_with_redis(tmp_path: Path, workers: int) -> None:
    """The first call of each tenth fails once; what the retries paid comes back, and the old process's leases too."""
    listen, begun, seen = LISTEN.format(workers), asyncio.Event(), set[str]()

    async def fails_once(turn: Turn) -> None:
        target = turn.request.target
        await turn.write(answer(503 if target.endswith("0") and target not in seen else 200))
        seen.add(target)

    server = RedisServer()
    top = f"redis: {{url: '{server.url}', timeout: 20s}}\n"
    bucket = "    bucket: {kind: quota, capacity: 100, store: redis}\n    concurrency: off\n    outage: fail\n"
    rate = "    rate: {kind: rate, rate: 3000/s, burst: 100, store: redis}\n"
    try:
        async with (
            Upstream(fails_once) as upstream,
            httpx.AsyncClient(timeout=SECONDS, limits=httpx.Limits(max_connections=CALLERS)) as client,
            Redrive(tmp_path, config(upstream, bucket + rate, top), listen=listen) as before,
        ):

            async def call(_: int, number: int) -> Any:
                return await status_of(client, f"{before.url}/a/{number}")

            calls = asyncio.create_task(calls_of(call, begun))
            await begun.wait()
            async with successor(before, tmp_path, config(upstream, bucket + rate, top), listen) as after:
                assert await before.ended() == 0
                assert await calls == {200: CALLS}
                assert (await event(before, "ended"))["calls_cut"] == 0
                async with asyncio.timeout(SECONDS):
                    while (await levels(after))["quota"] != 100:
                        pass  # each look is a request to the process
                for running in (before, after):
                    assert not any(line["event"] == "redis" for line in running.lines)
    finally:
        server.close()


async def levels(running: Redrive) -> dict[str, float]:
    """The level of each bucket, by kind, as the admin port shows it."""
    async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/buckets") as answered:
        shown = await answered.json()
    return {row["kind"]: row["level"] for row in (shown["buckets"] if isinstance(shown, dict) else shown)}
