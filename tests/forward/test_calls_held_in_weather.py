"""Bad weather on the wire: an upstream with a capacity, a queue and an end (contract, section 14)."""

from __future__ import annotations

import asyncio
from typing import Any

from support.capacity import CapacityServer
from support.front import Front, to

from proxy.config.settings import Limits
from proxy.retry.policies.policy import AutoLimit, EndpointShare, PushbackPolicy, Timeouts

HELD: dict[str, Any] = {"limit": AutoLimit(), "outage": "hold", "pushback": PushbackPolicy(of="upstream")}


async def calls(front: Front, count: int, method: str = "GET", *fields: str) -> list[int]:
    """The statuses that one app gets for so many calls, one after another."""
    async with front.app() as app:
        body = b"" if method == "GET" else b"{}"
        return [(await app.ask(method, "/api/x", *fields, body=body)).status for _ in range(count)]


async def test_a_restart_under_load_loses_no_get_and_no_post_with_a_key() -> None:
    async with CapacityServer(places=10, seconds=0.001) as upstream, Front(to("api", upstream.url, **HELD)) as front:
        assert await calls(front, 25) == [200] * 25
        under_load = [asyncio.create_task(calls(front, 30)) for _ in range(10)]
        under_load += [asyncio.create_task(calls(front, 30, "POST", f"Idempotency-Key: {app}")) for app in range(5)]
        await upstream.until(150)
        await upstream.stop()
        governor = next(iter(front.path.registry._places.values()))[0]
        while True:
            if governor.held() >= 10:  # most apps have a call that is held; the others are about to try again
                break
            await asyncio.sleep(0)
        before = upstream.requests
        await upstream.start()
        statuses = await asyncio.gather(*under_load)
        assert statuses == [[200] * 30] * 15
        assert upstream.requests > before
        assert governor.held() == 0


async def test_whom_an_outage_has_no_room_to_hold_is_told_not_to_retry() -> None:
    limits = Limits(65536, 256, 10000, 2, None)  # one call of an upstream may be held: half of two
    async with (
        CapacityServer(places=10, seconds=0.001) as upstream,
        Front(to("api", upstream.url, **HELD), limits=limits) as front,
        front.app() as other,
    ):
        assert await calls(front, 1) == [200]
        await upstream.stop()
        held = asyncio.create_task(calls(front, 1))
        governor = next(iter(front.path.registry._places.values()))[0]
        while True:
            if governor.held():
                break
            await asyncio.sleep(0)
        reply = await other.ask("GET", "/api/x")
        assert (reply.status, reply.one("x-should-retry"), reply.one("retry-after")) == (503, "false", "1")
        assert b'"outcome": "overloaded"' in reply.body
        assert b"the upstream's outage holds it, and limits.waiting has no place for it" in reply.body
        await upstream.start()
        assert await held == [200]


async def test_an_upstream_at_a_quarter_of_its_capacity_serves_what_it_can() -> None:
    """Sixty calls at a time are a queue of 3 s, but an attempt has 2 s, which is more than a machine stands still: what
    times out is made again, and no call fails. What is made again waits for a place, so that it does not lengthen the
    queue.
    """
    timeouts = Timeouts(attempt=2.0)
    async with (
        CapacityServer(places=4, seconds=0.05) as upstream,
        Front(to("api", upstream.url, timeouts=timeouts, **HELD)) as front,
    ):
        assert await asyncio.gather(*(calls(front, 10) for _ in range(4))) == [[200] * 10] * 4
        upstream.places = 1
        statuses = await asyncio.gather(*(calls(front, 2) for _ in range(60)))
        assert statuses == [[200] * 2] * 60
        again = [made for call in front.observed.calls for made in call["history"] if made.attempt > 1]
        assert any(made.held_by == "limit" for made in again)


async def test_one_endpoint_of_two_that_is_refused_costs_nothing() -> None:
    async with CapacityServer(places=10, seconds=0.0) as well, CapacityServer(places=10, seconds=0.0) as ill:
        shares = tuple(EndpointShare(f"127.0.0.1:{server.port}") for server in (well, ill))
        policy = {**HELD, "pushback": PushbackPolicy(of="endpoint"), "endpoints": shares}
        async with Front(to("api", well.url, ill.url, **policy)) as front:
            assert await calls(front, 25) == [200] * 25
            assert ill.requests > 0
            await ill.stop()
            before = well.requests
            assert await calls(front, 50) == [200] * 50
            assert well.requests == before + 50
            ended = front.observed.calls[-40:]
            assert [call["attempts"] for call in ended] == [1] * 40
            await ill.start()
            assert await calls(front, 1) == [200]


async def test_one_endpoint_of_two_that_throttles_holds_no_call() -> None:
    async with CapacityServer(places=10, seconds=0.0) as well, CapacityServer(places=10, seconds=0.0) as ill:
        shares = tuple(EndpointShare(f"127.0.0.1:{server.port}") for server in (well, ill))
        policy = {**HELD, "pushback": PushbackPolicy(of="endpoint"), "endpoints": shares}
        async with Front(to("api", well.url, ill.url, **policy)) as front:
            ill.throttled = 4
            assert await calls(front, 50) == [200] * 50
            assert ill.requests == 1
            assert sum(call["attempts"] for call in front.observed.calls) == 51
