"""Connections that are too old, or whose address their name has lost, are not used again."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from support.front import Front, endpoint, to
from support.scripted import Upstream, answer

from proxy.config.settings import PoolLimits
from proxy.transport import renewal, resolver
from proxy.transport.dial import Way
from proxy.transport.origins import Origin
from proxy.transport.resolver import Resolver

AGED = PoolLimits(4.0, 100, 30.0, max_age=100.0)


class Clock:
    """A clock that a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (renewal, resolver):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


def connections(front: Front) -> list[Any]:
    return list(front.path.context.pool.connections)


async def test_a_connection_serves_until_it_is_as_old_as_it_may_be() -> None:
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url), pool=AGED) as front,
        front.app() as app,
    ):
        for _ in range(3):
            assert (await app.ask("GET", "/api/")).status == 200
        assert upstream.connections == 1
        (connection,) = connections(front)
        connection.expires = 0.0  # its age is over
        for _ in range(2):
            assert (await app.ask("GET", "/api/")).status == 200
        assert upstream.connections == 2
        assert connection not in connections(front)


async def test_the_age_is_less_a_random_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    ends: list[float] = []
    async with (
        Upstream(answer(200, b"ok", "Connection: close")) as upstream,
        Front(to("api", upstream.url), pool=AGED) as front,
        front.app() as app,
    ):
        pool = front.path.context.pool
        opened = pool.renewal.opened

        def noted(connection: Any, every: Any) -> None:
            opened(connection, every)
            ends.append(connection.expires)

        monkeypatch.setattr(pool.renewal, "opened", noted)
        for _ in range(20):
            await app.ask("GET", "/api/")
    assert all(clock.now + 90.0 < end <= clock.now + 100.0 for end in ends)
    assert len(set(ends)) == 20


async def test_without_a_bound_and_through_a_parent_proxy_there_is_no_age() -> None:
    async with Upstream(answer(200, b"ok")) as upstream:
        parent = {"via_proxy": upstream.url}
        for pool, target in ((PoolLimits(4.0, 100, 30.0), {}), (AGED, parent)):
            async with Front(to("api", upstream.url, target=target), pool=pool) as front, front.app() as app:
                await app.ask("GET", "/api/")
                (connection,) = connections(front)
                assert connection.expires == float("inf")


async def test_a_reload_changes_the_age_of_open_connections() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/api/")
        (connection,) = connections(front)
        front.path.context.pool.renewal.bound(50.0)
        assert connection.expires < float("inf")
        front.path.context.pool.renewal.bound(None)
        assert connection.expires == float("inf")


class Names:
    """The loop as a resolver uses it, with answers that a test sets; None fails."""

    def __init__(self, found: Resolver, *addresses: str) -> None:
        self.addresses: tuple[str, ...] | None = addresses
        self.asked = 0
        self.create_task = asyncio.get_running_loop().create_task
        found._loop = self  # type: ignore[assignment]

    async def getaddrinfo(self, host: str, port: object, **more: object) -> list[Any]:
        self.asked += 1
        if self.addresses is None:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in self.addresses]


async def test_a_connection_whose_address_is_gone_is_used_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", f"http://localhost:{upstream.port}")) as front,
        front.app() as app,
    ):
        names = Names(front.path.context.pool.dialer.resolver, "127.0.0.1")
        look = front.path.context.pool.renewal.look
        assert (await app.ask("GET", "/api/")).status == 200
        (connection,) = connections(front)
        names.addresses = ("127.0.0.2",)
        for seconds in (200.0, 99.0):  # the look-up that found it is still remembered
            clock.now += seconds
            await look()
            assert connection.expires == float("inf")
        clock.now += 2.0
        await look()
        assert connection.expires == 0.0
        await app.ask("GET", "/api/")
        assert connection not in connections(front)


async def test_look_ups_that_fail_and_a_single_one_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = Clock(monkeypatch), Resolver(asyncio.get_running_loop(), 30.0)
    names = Names(found, "192.0.2.1")
    await found.addresses("a.test")
    assert not found.has_lost("a.test", "192.0.2.9")  # one look-up
    clock.now += 31.0
    names.addresses = None
    await found.addresses("a.test")
    assert not found.has_lost("a.test", "192.0.2.9")  # the second failed
    clock.now += 31.0
    names.addresses = ("192.0.2.1", "192.0.2.2")
    await found.addresses("a.test")
    assert found.has_lost("a.test", "192.0.2.9")
    assert not found.has_lost("a.test", "192.0.2.1")
    assert not found.has_lost("a.test", "192.0.2.2")  # in one of them
    assert not found.has_lost("b.test", "192.0.2.9")
    clock.now += 301.0
    assert not found.has_lost("a.test", "192.0.2.9")  # nothing is known of the last five minutes


async def test_names_are_looked_up_while_there_are_connections_and_no_addresses_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    async with Upstream(answer(200, b"ok")) as upstream:
        for host, looked in (("localhost", 2), ("127.0.0.1", 0)):
            async with Front(to("api", f"http://{host}:{upstream.port}")) as front, front.app() as app:
                names = Names(front.path.context.pool.dialer.resolver, "127.0.0.1")
                await app.ask("GET", "/api/")
                clock.now += 31.0
                await front.path.context.pool.renewal.look()
            assert names.asked == looked


class SharedStub:
    """An HTTP/2 connection, as far as `lease` looks at it."""

    is_free, places = True, 10

    def __init__(self, expires: float) -> None:
        self.expires = expires
        self.drained = asyncio.Event()

    def stream(self) -> SharedStub:
        return self

    def drain(self) -> None:
        self.drained.set()


async def test_a_stream_is_opened_on_no_connection_that_is_too_old() -> None:
    async with Front() as front:
        pool = front.path.context.pool
        origin: Any = Origin(endpoint("https://a.test"), Way(http2=True))
        old, young = SharedStub(99.0), SharedStub(101.0)
        origin.shared = [old, young]
        assert pool.lease(origin, 100.0, True) is young
        await old.drained.wait()  # it closes after its last stream
        assert pool.lease(origin, 102.0, True) is None
        assert pool.lease(origin, 100.0, True, not_on=[young]) is young


async def test_a_connection_that_is_opened_during_a_look_sets_no_second_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look would be followed by two others, and one timer would outlive the pool."""
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url)) as front,
        front.app() as app,
    ):
        look = front.path.context.pool.renewal
        set_by: list[Any] = []
        later = look._loop.call_later

        class Loop:
            """The loop, which notes the timers that are set."""

            create_task = look._loop.create_task

            def call_later(self, delay: float, callback: Any) -> Any:
                set_by.append(callback)
                return later(delay, callback)

        monkeypatch.setattr(look, "_loop", Loop())
        assert (await app.ask("GET", "/api/")).status == 200
        assert set_by == [look._begin]
        look._timer.cancel()
        look._begin()
        task, (connection,) = look._task, connections(front)
        assert task is not None
        look.opened(connection, look._connections)
        assert len(set_by) == 1
        await task
        assert (look._task, len(set_by)) == (None, 2)
