"""No page of many upstreams, buckets or calls holds the loop: few things are made between two of its turns."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient
from support.front import policy, to

from proxy.admin import bucket_view, gauge_view, handlers, live_board, upstream_view
from proxy.admin.app import admin_app
from proxy.admin.handlers import PIECE
from proxy.admin.turns import AT_A_STRETCH, CHEAP_AT_A_STRETCH
from proxy.admin.views import Readiness, View
from proxy.observe import recent_calls as ring
from proxy.observe.call_record import refused
from proxy.observe.metrics import Metrics, Series
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.facts import Outcome, Request
from proxy.retry.policies.routing import Router, Target, Upstream
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

#: Enough for many stretches.
MANY = 10 * AT_A_STRETCH
#: A page, and the samples that the board takes beside it.
AT_ONCE = 2 * AT_A_STRETCH


class Counting:
    """What was made in each turn of the loop, by the name of what makes it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.made: Counter[tuple[str, int]] = Counter()
        self._patch = patch
        self._count()

    def _count(self) -> None:
        self.turn += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def each(self, where: Any, name: str) -> None:
        """Count the calls of a function or method."""
        made: Callable[..., Any] = getattr(where, name)

        def counted(*args: Any, **named: Any) -> Any:
            self.made[name, self.turn] += 1
            return made(*args, **named)

        self._patch.setattr(where, name, counted)

    def each_of(self, where: Any, name: str) -> None:
        """Count what comes out of a function that yields: what a compiled object does cannot be replaced."""
        made: Callable[..., Iterator[Any]] = getattr(where, name)

        def counted(*args: Any, **named: Any) -> Iterator[Any]:
            for each in made(*args, **named):
                self.made[name, self.turn] += 1
                yield each

        self._patch.setattr(where, name, counted)

    def most(self, name: str) -> tuple[int, int]:
        """In all, and in one turn at most."""
        counts = [count for (each, _), count in self.made.items() if each == name]
        return sum(counts), max(counts, default=0)

    def end(self) -> None:
        self._next.cancel()


@pytest.fixture
async def counting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    counting = Counting(monkeypatch)
    yield counting
    counting.end()


@pytest.fixture
async def admin(aiohttp_client: AiohttpClient) -> TestClient[web.Request, web.Application]:
    """A process with MANY upstreams that have all been called, and as many calls to show."""
    upstreams = [to(f"u{number}", "http://127.0.0.1:9") for number in range(MANY)]
    last = Upstream("unmatched", "unmatched", Target(), policy("unmatched", Target()), "tunnel")
    router, metrics, registry, recent = Router(upstreams, last), Metrics(), Registry(), RecentCalls()
    for upstream in upstreams:
        metrics.series(upstream.policy)
        registry.scope(upstream.policy, Request("GET", "h", "/"))
        recent.add([refused(0.0, "", 400, Outcome.BAD_REQUEST, "")])
    view = View(
        readiness=lambda: Readiness(True, False, ""),
        metrics=None,  # type: ignore[arg-type]
        config=dict,
        upstreams=lambda only: upstream_view.upstreams(router, metrics, registry, 0.0, only),
        buckets=lambda: bucket_view.buckets(registry, {}, 0.0),
        recent=recent,
        reload=None,  # type: ignore[arg-type]
        drain=lambda: None,
        live=lambda: upstream_view.live(router, metrics, registry, 0.0),
    )
    return await aiohttp_client(admin_app(view))


@pytest.mark.parametrize(
    ("page", "where", "name"),
    [
        ("/upstreams", upstream_view, "_upstream"),
        ("/buckets", bucket_view, "all_buckets"),
        ("/requests", ring, "_shown"),
    ],
)
async def test_a_page(admin: Any, counting: Counting, page: str, where: Any, name: str) -> None:
    (counting.each_of if inspect.isgeneratorfunction(getattr(where, name)) else counting.each)(where, name)
    assert (await admin.get(page)).status == 200
    in_all, in_one_turn = counting.most(name)
    assert in_all >= MANY
    assert in_one_turn <= AT_ONCE


async def test_the_board_and_who_reads_it_from_the_beginning(admin: Any, counting: Counting) -> None:
    names = ("_live", "_update_row", "_shown")
    for where, name in zip((upstream_view, live_board, ring), names, strict=True):
        counting.each(where, name)
    async with asyncio.timeout(20), admin.get(f"/events?board&most={MANY}", headers={"Last-Event-ID": "0"}) as stream:
        while await stream.content.readline() != b"event: board\n":
            pass
        assert len(await stream.content.readline()) > MANY
    for name in names:
        in_all, in_one_turn = counting.most(name)
        assert in_all >= MANY
        assert in_one_turn <= AT_ONCE


async def test_what_a_look_goes_through_leaves_turns_to_others(counting: Counting) -> None:
    bucket = {"bucket": "a/x", "kind": "quota", "level": 1.0, "capacity": 1.0}
    metrics = Metrics()
    for number in range(3 * CHEAP_AT_A_STRETCH):
        metrics.put(Series(f"u{number}", ""))
    for look in (live_board._lowest([bucket] * 3 * CHEAP_AT_A_STRETCH), upstream_view._counted({}, metrics)):
        began = counting.turn
        await look
        assert counting.turn >= began + 3


async def test_a_large_board_is_written_in_pieces(
    admin: Any, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "PIECE", 2048)
    counting.each(web.StreamResponse, "write")
    async with asyncio.timeout(20), admin.get("/events?board") as stream:
        while await stream.content.readline() != b"event: board\n":
            pass
        assert len(await stream.content.readline()) > 5 * 2048
    in_all, in_one_turn = counting.most("write")
    assert in_all > 5
    assert in_one_turn == 1


async def test_calls_that_are_held_now_are_told_of() -> None:
    room = WaitingRoom()
    router = Router(
        [to("a", "http://127.0.0.1:9"), to("b", "http://127.0.0.1:9")], to("unmatched", "http://127.0.0.1:9")
    )
    room.enter("b", held=True)
    room.enter("b")
    shown = await upstream_view.upstreams(router, Metrics(), Registry(), 0.0, None, room)
    assert [(each["name"], each["held_calls"]) for each in shown] == [("a", 0), ("b", 1)]
    assert [row.held for row in await upstream_view.live(router, Metrics(), Registry(), 0.0, room)] == [0, 1]


async def test_the_copy_of_metrics(counting: Counting) -> None:
    class Copied(Series):
        def copy(self) -> Series:
            counting.made["copy", counting.turn] += 1
            return super().copy()

    metrics = Metrics()
    for number in range(MANY):
        metrics.put(Copied(f"u{number}", ""))
    copied = await gauge_view.copied(metrics)
    assert [series.upstream for series in copied.all()] == [series.upstream for series in metrics.all()]
    assert counting.most("copy") == (MANY, AT_A_STRETCH)


async def test_a_large_body_is_written_in_pieces(aiohttp_client: AiohttpClient, counting: Counting) -> None:
    counting.each(web.StreamResponse, "write")
    values = {"values": "v" * (5 * PIECE)}
    view = View(None, None, lambda: values, None, None, RecentCalls(), None, None)  # type: ignore[arg-type]
    admin = await aiohttp_client(admin_app(replace(view, buckets=no_buckets)))
    reply = await admin.get("/config")
    assert await reply.json() == values
    assert reply.content_length == len(await reply.read())
    assert (await admin.head("/config")).content_length == reply.content_length
    assert counting.most("write") == (6, 1)


async def no_buckets() -> list[dict[str, Any]]:
    return []
