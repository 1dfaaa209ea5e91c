"""Calls that the governor holds, on the wire (contract, section 14): who is held, who is not, and how a hold ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.capacity import CapacityServer
from support.front import NONE, App, Front, request, to

from proxy.config.settings import Buffers
from proxy.retry.facts import MappingFields, Outcome, Request
from proxy.retry.policies.policy import AutoLimit, Fallback, PushbackPolicy
from proxy.retry.policies.routing import Upstream
from proxy.retry.weather import patience
from proxy.retry.weather.governor import Governor

HELD: dict[str, Any] = {"limit": AutoLimit(), "outage": "hold", "pushback": PushbackPolicy(of="upstream")}


class Outage:
    """A proxy whose upstream has answered, and is stopped; `call` begins a call that is held."""

    def __init__(self, upstream: CapacityServer, front: Front, apps: AsyncExitStack) -> None:
        self.upstream = upstream
        self.front = front
        self._apps = apps

    @property
    def governor(self) -> Governor:
        (upstream,) = self.front.settings.router.upstreams
        where = Request("GET", f"127.0.0.1:{self.upstream.port}", "/", MappingFields([]))
        return self.front.path.registry.scope(upstream.policy, where).governor

    @property
    def target(self) -> str:
        return f"{self.upstream.url}/x"

    async def call(self, method: str = "GET", *fields: str, body: bytes = b"") -> App:
        """Send a request, and wait until the governor holds one more call."""
        before = self.governor.held()
        app = await self._apps.enter_async_context(self.front.app())
        app.send(request(method, self.target, *fields, body=body, host=f"127.0.0.1:{self.upstream.port}"))
        while True:
            if self.governor.held() > before:
                return app
            await asyncio.sleep(0)


@asynccontextmanager
async def outage(*others: Upstream, buffers: Buffers | None = None, **policy: Any) -> AsyncIterator[Outage]:
    """An upstream that has answered and is stopped; `others`: further upstreams; `policy`: changes to its policy."""
    settings = {} if buffers is None else {"buffers": buffers}
    async with (
        CapacityServer(places=10, seconds=0.0) as upstream,
        Front(to("api", upstream.url, hosts=["127.0.0.1"], **{**HELD, **policy}), *others, **settings) as front,
        AsyncExitStack() as apps,
    ):
        app = await apps.enter_async_context(front.app())
        there = Outage(upstream, front, apps)
        assert (await app.ask("GET", there.target)).status == 200
        await upstream.stop()
        yield there


async def test_a_restart_loses_no_call_that_came_meanwhile() -> None:
    async with outage() as there:
        apps = [await there.call() for _ in range(5)]
        apps.append(await there.call("POST", "Idempotency-Key: one", body=b"once"))
        await there.upstream.start()
        assert [(await app.read()).status for app in apps] == [200] * 6


async def test_bodies_of_held_calls_are_read_up_to_half_of_all_buffers() -> None:
    whole = b"x" * (1 << 20)
    async with outage(buffers=Buffers(2 << 20, 8 << 20)) as there:
        store = there.front.path.context.store
        apps = [await there.call("POST", f"Idempotency-Key: {number}", body=whole) for number in range(10)]
        while True:
            if store.held > 3 << 20:
                break
            await asyncio.sleep(0)
        for _ in range(100):  # what has come is read
            await asyncio.sleep(0)
        assert store.held <= store.used < 7 << 20  # without that rule the bodies fill it
        await there.upstream.start()
        assert [(await app.read()).status for app in apps] == [200] * 10
        assert (store.held, store.used) == (0, 0)


async def ask_until_held_in_vain(there: Outage, app: App, method: str, *fields: str) -> Any:
    """Ask, once more if the call's own probe was under way at its deadline, as may happen on a busy machine: that call
    ends by its deadline.
    """
    while True:
        answer = await app.ask(method, there.target, *fields)
        if there.front.observed.outcomes[-1] is not Outcome.DEADLINE:
            return answer


async def test_what_the_app_gets_where_the_outage_outlasts_its_deadline() -> None:
    async with outage() as there, there.front.app() as app:
        answer = await ask_until_held_in_vain(there, app, "GET", "X-Retry-Timeout: 300ms")
        assert (answer.status, answer.one("retry-after"), answer.one("x-should-retry")) == (503, "1", "false")
        status = answer.one("proxy-status") or ""
        assert status.startswith("redrive; error=destination_unavailable; attempts=")
        assert "; outcome=outage; " in status
        grpc = ("Content-Type: application/grpc", "TE: trailers", "Idempotency-Key: one", "X-Retry-Timeout: 300ms")
        answer = await ask_until_held_in_vain(there, app, "POST", *grpc)
        assert (answer.status, answer.one("grpc-status"), answer.one("grpc-retry-pushback-ms")) == (200, "14", "-1")


async def test_a_call_that_an_outage_would_hold_for_too_long_falls_back() -> None:
    async with CapacityServer(places=1, seconds=0.0) as other:
        hold = PushbackPolicy(of="upstream", hold=0.05)
        async with (
            outage(to("b", other.url), pushback=hold, fallback=(Fallback("b"),)) as there,
            there.front.app() as app,
        ):
            assert (await app.ask("GET", there.target)).status == 200
            assert other.served == 1


async def test_what_the_app_gets_where_the_limit_has_no_room() -> None:
    async with (
        CapacityServer(places=10, seconds=0.0) as upstream,
        Front(to("api", upstream.url, strategy=NONE, **{**HELD, "limit": AutoLimit(queue=0)})) as front,
        front.app() as app,
        front.app() as second,
    ):
        assert (await app.ask("GET", "/api/x")).status == 200
        upstream.throttled = 0  # without a delay, so that no cooldown begins
        assert [(await app.ask("GET", "/api/x")).status for _ in range(4)] == [429] * 4
        upstream.throttled, upstream.places = None, 0
        app.send(request("GET", "/api/x", host=app.authority))
        await upstream.until(6)
        answer = await second.ask("GET", "/api/x")
        assert (answer.status, answer.one("retry-after"), answer.one("x-should-retry")) == (503, "1", "false")
        assert "; attempts=0; outcome=overloaded; " in (answer.one("proxy-status") or "")
        upstream.places = 1
        assert (await app.read()).status == 200


async def test_a_call_whose_turn_would_come_after_its_deadline_waits_for_nothing() -> None:
    async with (
        CapacityServer(places=1, seconds=0.0) as upstream,
        Front(to("api", upstream.url, strategy=NONE, **HELD)) as front,
        front.app() as app,
        AsyncExitStack() as kept,
    ):
        assert (await app.ask("GET", "/api/x")).status == 200
        governor = next(iter(front.path.registry._places.values()))[0]
        upstream.throttled = 0
        assert [(await app.ask("GET", "/api/x")).status for _ in range(4)] == [429] * 4
        upstream.throttled, upstream.seconds = None, 0.2
        assert [(await app.ask("GET", "/api/x")).status for _ in range(3)] == [200] * 3
        upstream.places = 0  # so that none is served before it is time
        others = [await kept.enter_async_context(front.app()) for _ in range(6)]
        for other in others:
            other.send(request("GET", "/api/x", host=other.authority))
        while True:
            if governor.held() == 5:
                break
            await asyncio.sleep(0)
        served = upstream.served
        answer = await app.ask("GET", "/api/x", "X-Retry-Timeout: 500ms")  # five calls before it take a second
        assert answer.status == 503
        assert "; attempts=0; outcome=overloaded; " in (answer.one("proxy-status") or "")
        assert (upstream.requests, upstream.served) == (9, served)  # it was not asked for
        upstream.seconds, upstream.places = 0.0, 1
        assert [(await other.read()).status for other in others] == [200] * 6


async def test_from_the_beginning_of_the_end_no_call_is_held() -> None:
    async with outage() as there:
        first, second = await there.call(), await there.call()
        there.front.path.drain()
        assert there.governor.held() == 0
        assert [(await app.read()).status for app in (first, second)] == [502, 502]
        async with there.front.app() as app:
            assert (await app.ask("GET", there.target)).status == 502


async def test_a_worker_that_another_replaces_holds_its_calls() -> None:
    async with outage() as there:
        app = await there.call()
        there.front.path.drain(replaced=True)
        assert there.governor.held() == 1
        await there.upstream.start()
        assert (await app.read()).status == 200


async def test_an_app_that_leaves_while_it_is_held_is_not_served_and_its_patience_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "_SHORTEST", 0.0)  # these leave as soon as they are held
    async with outage() as there:
        route = ""
        first = await there.call()  # goes on waiting
        for left in range(3):
            assert there.governor.patience.of(route, 0.0) == float("inf")
            app = await there.call()
            app.vanish()
            calls = await there.front.observed.until(2 + left)
            assert (calls[-1]["outcome"], calls[-1]["attempts"]) == (Outcome.CLIENT_GONE, 0)
        assert there.governor.held() == 1
        assert there.governor.patience.of(route, 0.0) == 0.0  # they left at once, so holding is of no use
        await there.upstream.start()
        await first.read()
        assert there.upstream.requests == 2


async def test_a_call_that_wants_no_retries_is_not_held() -> None:
    async with outage() as there, there.front.app() as app:
        await there.call()
        answers = [await app.ask("GET", there.target, "X-Retry-Disable: true") for _ in range(3)]
        assert [(answer.status, answer.one("x-attempt-count")) for answer in answers] == [(502, "1")] * 3


async def test_a_tunnel_is_not_held() -> None:
    async with outage(connect="tunnel") as there:
        await there.call()
        for _ in range(2):
            async with there.front.app() as app:
                assert (await app.ask("CONNECT", f"127.0.0.1:{there.upstream.port}")).status == 502
        assert there.governor.held() == 1


async def test_modes_that_hold_no_call() -> None:
    for mode in ("observe", "off"):
        async with outage(mode=mode) as there, there.front.app() as app:
            assert [(await app.ask("GET", there.target)).status for _ in range(8)] == [502] * 8
            assert there.governor.held() == 0
