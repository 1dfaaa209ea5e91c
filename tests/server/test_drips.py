"""Heads that drip in: each must be whole after a time, and nobody else is taken for one that is not."""

from __future__ import annotations

import asyncio

import pytest
from support.front import Front, request, to
from support.scripted import Upstream, answer, gated, hang

from proxy.config.settings import Limits
from proxy.resources import REFUSED_IN_WORDS
from proxy.server import acceptor
from proxy.server.connection import AppConnection


async def begun(front: Front) -> None:
    """Wait until a head has begun to come."""
    acceptor = front.path.acceptor
    if acceptor.dripping:
        return
    noticed = asyncio.Event()
    drips = acceptor.drips

    def notice(connection: AppConnection) -> None:
        drips(connection)
        noticed.set()

    acceptor.drips = notice  # type: ignore[method-assign]
    await noticed.wait()
    acceptor.drips = drips  # type: ignore[method-assign]


async def test_a_head_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HEAD_SECONDS", 0.0)
    async with Front() as front, front.app() as app:
        app.send(b"GET / HTTP/1.1\r\nHost: a\r\nX")
        await begun(front)
        front.path.acceptor._look_at_drips()
        assert (await app.read()).status == 408
        assert await app.rest() == b""
        assert not front.path.acceptor.dripping


async def test_a_head_that_came_whole_is_not_one_that_drips() -> None:
    """Its call may take as long as it likes."""
    go = asyncio.Event()
    step = gated(go, b"", answer(200, b"ok"))
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        whole = request("GET", "/api/x", host=app.authority)
        app.send(whole[:20])
        await begun(front)
        app.send(whole[20:])
        await upstream.until(1)
        front.path.acceptor._look_at_drips()
        go.set()
        assert (await app.read()).body == b"ok"
        front.path.acceptor._look_at_drips()
        assert (await app.ask("GET", "/api/x")).body == b"ok"


async def test_rest_before_a_head_does_not_count() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/x")).body == b"ok"
        (connection,) = front.path.acceptor.open
        connection.since -= 1000.0  # it has rested for long
        whole = request("GET", "/api/x", host=app.authority)
        app.send(whole[:20])
        await begun(front)
        front.path.acceptor._look_at_drips()
        app.send(whole[20:])
        assert (await app.read()).body == b"ok"


async def test_half_heads_make_room_for_who_comes_next() -> None:
    """More of them than connections are served: the slowest goes, and is told."""
    limits = Limits(65536, 256, 3, 2000, None)
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url), limits=limits) as front:
        slow = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(3)]
        for at, (_, writer) in enumerate(slow):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX")
            while len(front.path.acceptor.dripping) <= at:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0)
        for _ in range(2):
            async with front.app() as app:
                assert (await app.ask("GET", "/api/x", "Host: 127.0.0.1")).status == 200
        assert (await slow[0][0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 408 ")
        assert front.observed.refusals[0].status == 408
        for _, writer in slow:
            writer.transport.abort()


async def test_where_there_is_no_room_503_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the very last of any number, and before it has said a word."""
    limits = Limits(65536, 256, 1, 2000, None)
    async with Upstream(hang) as upstream, Front(to("api", upstream.url), limits=limits) as front, front.app() as busy:
        busy.send(request("GET", "/api/x", host="127.0.0.1"))
        await upstream.until(1)
        others = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(REFUSED_IN_WORDS + 20)]
        reader, writer = others[-1]
        writer.write(request("GET", "/api/x", host="127.0.0.1"))
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
        for _, writer in others:
            writer.transport.abort()
