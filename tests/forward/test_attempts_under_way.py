"""Attempts under way on the wire: each has its place until its answer's last byte, or until it is judged a failure, and
gives it back however it ends.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.front import FAST, App, Front, request, to
from support.ports import free_port
from support.scripted import Turn, Upstream, answer, close, gated, hang, reset

from proxy.forward import call_driver
from proxy.retry.call.machine import Call
from proxy.retry.facts import FaultKind, Outcome, Request
from proxy.retry.policies.policy import Concurrency, Policy, Strategy, Timeouts
from proxy.retry.scopes.registry import Registry

ONE = Concurrency(1)
WHOLE = answer(200, b"whole")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")


def in_use(registry: Registry) -> tuple[int, int]:
    """Attempts under way and calls that wait, over all limits."""
    totals = [places.total(0.0) for _, places in registry.under_way()]
    return sum(used for used, _ in totals), sum(waiting for _, waiting in totals)


async def until(front: Front, used: int, waiting: int) -> None:
    """Wait until so much is so, for as long as the test may take."""
    async with asyncio.timeout(60):
        while in_use(front.path.registry) != (used, waiting):  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.001)


def asked(front: Front, app: App, target: str = "/api/x", *fields: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(app.ask("GET", target, *fields))


async def test_the_next_goes_with_the_last_byte_of_the_answer_before() -> None:
    rest = asyncio.Event()
    slow = gated(rest, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwh", b"ole")
    async with (
        Upstream(slow, WHOLE) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        front.app() as one,
        front.app() as two,
    ):
        first = asked(front, one)
        await upstream.until(1)
        second = asked(front, two)
        await until(front, 1, 1)
        assert front.path.waiting == 1
        rest.set()
        assert (await first).body == (await second).body == b"whole"
        assert in_use(front.path.registry) == (0, 0)
        (held,) = [call for call in await front.observed.until(2) if call["history"]]
        assert [(each.held_by, each.held > 0) for each in held["history"]] == [("concurrency", True)]


async def test_calls_go_in_order_of_arrival() -> None:
    gate = asyncio.Event()

    async def first(turn: Turn) -> None:
        await gate.wait()
        await turn.write(WHOLE)

    async with (
        Upstream(first, WHOLE) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        AsyncExitStack() as apps,
    ):
        tasks = []
        for number in range(5):
            app = await apps.enter_async_context(front.app())
            tasks.append(asked(front, app, f"/api/{number}"))
            await until(front, 1, number)
        gate.set()
        await asyncio.gather(*tasks)
        assert [each.target for each in upstream.requests] == [f"/{number}" for number in range(5)]


async def test_who_finds_no_place_is_told_so_and_not_to_retry() -> None:
    rules = Concurrency(1, queue=0)
    async with (
        Upstream(hang) as upstream,
        Front(to("api", upstream.url, concurrency=rules)) as front,
        front.app() as one,
        front.app() as two,
    ):
        asked(front, one)
        await upstream.until(1)
        reply = await two.ask("GET", "/api/x")
        assert (reply.status, reply.one("x-should-retry"), reply.one("retry-after")) == (503, "false", "1")
        assert b'"outcome": "overloaded"' in reply.body
        assert b"concurrency.max allows, 1, and as many calls wait as concurrency.queue allows, 0" in reply.body
        assert "error=connection_limit_reached" in (reply.one("proxy-status") or "")
        one.vanish()
        await front.observed.until(2)
        assert front.observed.outcomes == [Outcome.OVERLOADED, Outcome.CLIENT_GONE]
        assert in_use(front.path.registry) == (0, 0)


async def test_on_a_retry_the_last_answer_goes_to_the_app() -> None:
    """Both wait in turn: the failure's place goes to the other, and its retry finds none in time."""
    failed = asyncio.Event()

    async def fails(turn: Turn) -> None:
        await failed.wait()
        await turn.write(answer(502, b"bad"))

    rules = Concurrency(1, wait=0.2)
    async with (
        Upstream(fails, hang) as upstream,
        Front(to("api", upstream.url, concurrency=rules)) as front,
        front.app() as one,
        front.app() as two,
    ):
        first = asked(front, one)
        await upstream.until(1)
        asked(front, two)
        await until(front, 1, 1)
        failed.set()
        reply = await first
        assert (reply.status, reply.body, reply.one("x-should-retry")) == (502, b"bad", "false")
        assert "outcome=overloaded" in (reply.one("proxy-status") or "")
        assert "no place became free within concurrency.wait, 0.2 s" in (reply.one("proxy-status") or "")


async def test_an_app_that_goes_gives_up_its_place_and_its_turn() -> None:
    async with (
        Upstream(hang, WHOLE) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        front.app() as one,
        front.app() as two,
        front.app() as three,
    ):
        asked(front, one)
        await upstream.until(1)
        asked(front, two)
        await until(front, 1, 1)
        third = asked(front, three)
        await until(front, 1, 2)
        two.vanish()
        await until(front, 1, 1)
        one.vanish()
        assert (await third).body == b"whole"
        assert in_use(front.path.registry) == (0, 0)


@pytest.mark.parametrize("step", [reset, answer(404, b"no"), b"HTTP/1.1 2xx\r\n\r\n", answer(503)])
async def test_however_an_attempt_ends_its_place_is_free(step: Any) -> None:
    async with (
        Upstream(step) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        front.app() as app,
    ):
        for _ in range(3):
            await app.ask("GET", "/api/x")
            assert in_use(front.path.registry) == (0, 0)


async def test_a_dial_holds_a_place_and_its_failure_gives_it_back() -> None:
    async with Front(to("api", f"http://127.0.0.1:{free_port()}", concurrency=ONE)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/x")).status == 502
        assert in_use(front.path.registry) == (0, 0)


async def test_an_answer_that_breaks_off_gives_its_place_back() -> None:
    async def breaks(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwh")
        turn.close()

    async with (
        Upstream(breaks) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        front.app() as app,
    ):
        app.send(request("GET", "/api/x", host=app.authority))
        await front.observed.until(1)
        assert front.observed.outcomes == [Outcome.COMMITTED]
        assert in_use(front.path.registry) == (0, 0)


async def test_the_deadline_ends_the_wait_and_the_attempt() -> None:
    policy = {"concurrency": ONE, "timeouts": Timeouts(total=0.3)}
    async with (
        Upstream(hang) as upstream,
        Front(to("api", upstream.url, **policy)) as front,
        front.app() as one,
        front.app() as two,
    ):
        tasks = asked(front, one), asked(front, two, "/api/x", "X-Retry-Timeout: 100ms")
        replies = await asyncio.gather(*tasks)
        assert [reply.status for reply in replies] == [504, 504]
        assert {call["outcome"] for call in await front.observed.until(2)} == {Outcome.DEADLINE}
        assert in_use(front.path.registry) == (0, 0)


async def test_a_websocket_has_its_place_until_it_closes() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(SWITCH)
        await turn.gone()

    async with (
        Upstream(step, WHOLE) as upstream,
        Front(to("api", upstream.url, concurrency=ONE)) as front,
        front.app() as app,
        front.app() as other,
    ):
        assert (await app.ask("GET", "/api/ws", *WEBSOCKET)).status == 101
        waiting = asked(front, other)
        await until(front, 1, 1)
        app.end()
        assert await app.rest() == b""
        assert (await waiting).body == b"whole"
        assert in_use(front.path.registry) == (0, 0)


async def test_a_tunnel_has_its_place_until_it_closes() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Front(fallback={"concurrency": Concurrency(1, queue=0)}) as front:
        async with front.app() as app, front.app() as other:
            assert (await app.ask("CONNECT", target)).status == 200
            assert (await other.ask("CONNECT", target)).status == 503
        await front.observed.until(2)
        assert in_use(front.path.registry) == (0, 0)


async def test_hedges_that_lose_give_their_places_back() -> None:
    non_fatal = frozenset({503, FaultKind.RESET})
    hedging = Strategy("hedging", "hedging", 3, FAST, hedging_delay=0.0, non_fatal=non_fatal)
    async with (
        Upstream(hang, WHOLE, hang) as upstream,
        Front(to("api", upstream.url, strategy=hedging, bucket=None, concurrency=Concurrency(2))) as front,
        front.app() as app,
    ):
        assert (await app.ask("GET", "/api/x")).body == b"whole"
        assert len(upstream.requests) == 2, "there was no place for the third"
        await front.observed.until(1)
        assert in_use(front.path.registry) == (0, 0)


async def test_calls_that_find_a_place_at_once_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Upstream(WHOLE, WHOLE, WHOLE, close, WHOLE) as upstream,
        Front(to("api", upstream.url), to("held", upstream.url, concurrency=ONE)) as front,
        front.app() as app,
    ):
        decided: list[str] = []

        class Noted(Call):
            """Notes whose call something had to be decided of."""

            def __init__(self, request: Request, policy: Policy, *rest: Any) -> None:
                decided.append(policy.upstream)
                super().__init__(request, policy, *rest)

        monkeypatch.setattr(call_driver, "Call", Noted)
        for target in ("/api/x", "/api/x", "/held/x"):
            await app.ask("GET", target)
        assert decided == [], "not even the first, which dials"
        assert in_use(front.path.registry) == (0, 0)
        await app.ask("GET", "/held/x")
        assert decided == ["held"], "its connection was closed, and its place goes over to the Call"
        assert in_use(front.path.registry) == (0, 0)
