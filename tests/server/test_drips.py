"""Heads that drip in: each must be whole after a time, and nobody else is taken for one that is not."""

from __future__ import annotations

import asyncio

import pytest
from support.front import Front, request, to
from support.scripted import Upstream, answer, gated

from proxy.server import door
from proxy.server.connection import AppConnection


async def begun(front: Front) -> None:
    """Wait until a head has begun to come."""
    door = front.path.door
    if door.dripping:
        return
    noticed = asyncio.Event()
    drips = door.drips

    def notice(connection: AppConnection) -> None:
        drips(connection)
        noticed.set()

    door.drips = notice  # type: ignore[method-assign]
    await noticed.wait()
    door.drips = drips  # type: ignore[method-assign]


async def test_a_head_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_SECONDS", 0.0)
    async with Front() as front, front.app() as app:
        app.send(b"GET / HTTP/1.1\r\nHost: a\r\nX")
        await begun(front)
        front.path.door._look_at_drips()
        assert (await app.read()).status == 408
        assert await app.rest() == b""
        assert not front.path.door.dripping


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
        front.path.door._look_at_drips()
        go.set()
        assert (await app.read()).body == b"ok"
        front.path.door._look_at_drips()
        assert (await app.ask("GET", "/api/x")).body == b"ok"


async def test_rest_before_a_head_does_not_count() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/x")).body == b"ok"
        (connection,) = front.path.door.open
        connection.since -= 1000.0  # it has rested for long
        whole = request("GET", "/api/x", host=app.authority)
        app.send(whole[:20])
        await begun(front)
        front.path.door._look_at_drips()
        app.send(whole[20:])
        assert (await app.read()).body == b"ok"
