"""`balance: least` on the wire: calls go where the fewest attempts are under way, each to its answer's last byte."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from support.front import App, Front, to
from support.scripted import Turn, Upstream, answer, gated

from proxy.retry.policies.policy import EndpointShare

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def by_path(end: asyncio.Event, name: bytes) -> Any:
    """A step that answers /stream with a stream, which ends with the event, and others at once with the name."""

    async def step(turn: Turn) -> None:
        if turn.request.target != "/stream":
            await turn.write(answer(200, name))
            return
        await gated(end, HEAD + b"data: a\n\n", b"data: b\n\n")(turn)
        turn.close()

    return step


def balanced(one: Upstream, two: Upstream) -> Any:
    shares = tuple(EndpointShare(each.authority) for each in (one, two))
    return to("api", one.url, two.url, endpoints=shares, balance="least")


def asked(app: App) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(app.ask("GET", "/api/stream"))


async def came(one: Upstream, two: Upstream, count: int) -> None:
    while len(one.requests) + len(two.requests) < count:  # noqa: ASYNC110 - either of them gets it
        await asyncio.sleep(0)


async def test_while_one_endpoint_has_more_streams_calls_go_to_the_other() -> None:
    end = asyncio.Event()
    async with (
        Upstream(by_path(end, b"one")) as one,
        Upstream(by_path(end, b"two")) as two,
        Front(balanced(one, two)) as front,
        AsyncExitStack() as apps,
    ):
        app, *streams = [await apps.enter_async_context(front.app()) for _ in range(4)]
        tasks = []
        for count, each in enumerate(streams, 1):
            tasks.append(asked(each))
            await came(one, two, count)
        assert sorted((len(one.requests), len(two.requests))) == [1, 2]
        shorter = b"one" if len(one.requests) == 1 else b"two"
        assert [(await app.ask("GET", "/api/short")).body for _ in range(4)] == [shorter] * 4
        end.set()
        assert all(each.body.endswith(b"data: b\n\n") for each in await asyncio.gather(*tasks))
        await front.observed.until(7)


async def test_a_stream_that_its_app_leaves_is_not_under_way_any_more() -> None:
    end = asyncio.Event()
    async with (
        Upstream(by_path(end, b"one")) as one,
        Upstream(by_path(end, b"two")) as two,
        Front(balanced(one, two)) as front,
        front.app() as first,
        front.app() as second,
        front.app() as app,
    ):
        leaves, stays = asked(first), asked(second)
        await came(one, two, 2)
        first.vanish()
        await front.observed.until(1)
        left = b"one" if front.observed.calls[0]["endpoint"] == one.authority else b"two"
        assert [(await app.ask("GET", "/api/short")).body for _ in range(4)] == [left] * 4
        end.set()
        assert (await stays).body.endswith(b"data: b\n\n")
        await asyncio.gather(leaves, return_exceptions=True)
        await front.observed.until(6)
