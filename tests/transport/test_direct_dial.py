"""Connections that are opened without a task: what is told of them, and what is given back, however a dial ends."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from support.certificates import make
from support.ports import free_port
from support.scripted import Upstream

from proxy.retry.policies.routing import Endpoint
from proxy.transport.dial import Dialer, Way
from proxy.transport.direct_dial import DirectDial
from proxy.transport.egress_guard import Guard
from proxy.transport.origins import DIALS, Origin
from proxy.transport.pool import Pool
from proxy.transport.resolver import Resolver
from proxy.transport.tls import Contexts, ResumingContext


class Noted(DirectDial):
    """A dial whose end is `ended`: the connection, or the error."""

    def __init__(self, pool: Pool, origin: Origin) -> None:
        super().__init__(pool, origin)
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def opened(self, connection: Any) -> None:
        self.ended.set_result(connection)

    def failed(self, error: BaseException) -> None:
        self.ended.set_exception(error)


def pool_of(kind: type[Pool] = Pool) -> Pool:
    loop = asyncio.get_running_loop()
    return kind(loop, Dialer(loop, Resolver(loop, 30.0), Guard(()), Contexts()), idle=4.0, max_idle=10)


def origin_at(port: int, host: str = "127.0.0.1", **way: Any) -> Origin:
    return Origin(Endpoint("http", host, port), Way(**{"named": True, **way}))


def is_over(pool: Pool, origin: Origin) -> bool:
    """Whether nothing is left of any dial."""
    return not (pool.connections or origin.open or origin.dials._dialling or pool._dialling or pool.dialer.times._due)


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
async def test_a_connection_is_opened(secure: bool, tmp_path: Path) -> None:
    authority = make(tmp_path)
    pool = pool_of()
    async with Upstream(tls=authority.server if secure else None) as upstream:
        endpoint = Endpoint("https" if secure else "http", "127.0.0.1", upstream.port)
        origin = Origin(endpoint, Way(verify=str(authority.ca), named=True))
        pool.dialer.failed_at(("127.0.0.1", upstream.port))
        dial = Noted(pool, origin)
        assert dial.begin(20.0)
        assert origin.dials._dialling == 1
        connection = await dial.ended
        assert connection.is_open
        assert pool.connections == {connection}
        assert not pool.dialer._failed
        if secure:
            wrapped = connection.transport.get_extra_info("ssl_object")
            assert wrapped.getpeercert(True)
            assert wrapped.getpeercert() is None  # as text nobody needs it
        connection.abort()
        await pool.close()
    assert is_over(pool, origin)


async def test_an_endpoint_that_refuses_is_told_of() -> None:
    pool, origin = pool_of(), origin_at(free_port())
    dial = Noted(pool, origin)
    assert dial.begin(20.0)
    with pytest.raises(ConnectionRefusedError):
        await dial.ended
    assert is_over(pool, origin)
    assert list(pool.dialer._failed) == [("127.0.0.1", origin.endpoint.port)]


async def test_what_fails_at_once_is_told_of_after_the_dial_has_begun() -> None:
    """An error of the system, say, or a file of certificates that is missing."""
    pool = pool_of()
    origin = Origin(Endpoint("https", "127.0.0.1", 443), Way(verify="/nowhere/ca.pem", named=True))
    dial = Noted(pool, origin)
    assert dial.begin(20.0)
    assert not dial.ended.done()
    with pytest.raises(FileNotFoundError):
        await dial.ended
    assert is_over(pool, origin)


async def test_a_dial_that_failed_at_once_and_was_given_up_tells_nothing() -> None:
    """Else a call would be told that is over, and whose attempt may be the next call's by now."""
    pool = pool_of()
    origin = Origin(Endpoint("https", "127.0.0.1", 443), Way(verify="/nowhere/ca.pem", named=True))
    dial = Noted(pool, origin)
    assert dial.begin(20.0)
    dial.cancel()
    while origin.dials._dialling:  # noqa: ASYNC110  the loop's next turns
        await asyncio.sleep(0)
    assert not dial.ended.done()
    assert is_over(pool, origin)


async def test_an_error_that_comes_as_the_dial_is_given_up_is_no_error_of_the_loop() -> None:
    """The loop reports each error of a future that was never looked at."""
    pool, origin = pool_of(), origin_at(free_port())
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    waited = [loop.create_future()]

    async def connecting() -> None:
        await waited[0]

    pool.dialer.connecting = lambda *_, **__: connecting()
    dial = Noted(pool, origin)
    assert dial.begin(20.0)
    waited[0].set_exception(ConnectionRefusedError())
    dial.cancel()
    while origin.dials._dialling:  # noqa: ASYNC110  the loop's next turns
        await asyncio.sleep(0)
    waited.clear()
    del dial
    gc.collect()
    assert not reported
    assert is_over(pool, origin)


async def test_a_dial_whose_time_is_out_is_told_of() -> None:
    pool, origin = pool_of(), origin_at(free_port())

    async def hangs(*_: Any, **__: Any) -> None:
        await asyncio.get_running_loop().create_future()

    pool.dialer.connecting = hangs
    dial = Noted(pool, origin)
    assert dial.begin(0.0)
    with pytest.raises(TimeoutError):
        await dial.ended
    assert is_over(pool, origin)


@pytest.mark.parametrize("timed_out", [False, True], ids=["in time", "time is out"])
async def test_a_dial_that_was_given_up_tells_nothing(timed_out: bool) -> None:
    async with Upstream() as upstream:
        pool, origin = pool_of(), origin_at(upstream.port)
        dial = Noted(pool, origin)
        assert dial.begin(20.0)
        if timed_out:
            pool.dialer.times._due.clear()
            dial.cancel()
        dial.cancel()
        while origin.dials._dialling:  # noqa: ASYNC110  the loop's next turns
            await asyncio.sleep(0)
        assert not dial.ended.done()
        assert is_over(pool, origin)


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
async def test_a_dial_that_is_given_up_as_its_connection_comes_leaves_nothing_behind(
    secure: bool, tmp_path: Path
) -> None:
    authority = make(tmp_path)

    class Leaving(Pool):
        def opened(self, connection: Any) -> None:
            super().opened(connection)
            dial.cancel()

    async with Upstream(tls=authority.server if secure else None) as upstream:
        pool = pool_of(Leaving)
        endpoint = Endpoint("https" if secure else "http", "127.0.0.1", upstream.port)
        origin = Origin(endpoint, Way(verify=str(authority.ca), named=True))
        dial = Noted(pool, origin)
        assert dial.begin(20.0)
        while origin.dials._dialling:  # noqa: ASYNC110  the loop's next turns
            await asyncio.sleep(0)
        while upstream.open:  # noqa: ASYNC110  the other end sees it closed
            await asyncio.sleep(0)
        assert not dial.ended.done()
        assert is_over(pool, origin)


@pytest.mark.parametrize("by", ["itself", "a task", "a task, with a socket"])
async def test_a_dial_that_is_given_up_as_tls_begins_leaves_no_tls_behind(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make(tmp_path)
    wrap, loop, wraps = ResumingContext.wrap_bio, asyncio.get_running_loop(), []

    def leaving(*arguments: Any, **named: Any) -> Any:
        wraps.append(loop.call_soon(dial.cancel))
        return wrap(*arguments, **named)

    monkeypatch.setattr(ResumingContext, "wrap_bio", leaving)
    async with Upstream(tls=authority.server) as upstream:
        pool = pool_of()
        if by == "a task, with a socket":
            monkeypatch.setattr(Resolver, "addresses", both)
        origin = Origin(Endpoint("https", "localhost", upstream.port), Way(verify=str(authority.ca), named=True))
        if by == "itself":
            origin = Origin(Endpoint("https", "127.0.0.1", upstream.port), origin.way)
        before = protocols_of_tls()
        dial: Any = Noted(pool, origin)
        if by == "itself":
            assert dial.begin(20.0)
        else:
            dial = asyncio.create_task(pool._dial(origin, within=20.0, tunnel=False))
            with pytest.raises(asyncio.CancelledError):
                await dial
        while origin.dials._dialling or upstream.open:  # noqa: ASYNC110  the loop's next turns
            await asyncio.sleep(0)
        assert wraps
        assert is_over(pool, origin)
        async with asyncio.timeout(20):
            while protocols_of_tls() > before:  # noqa: ASYNC110  the other end's is closed in the loop's next turns
                await asyncio.sleep(0.01)


async def test_what_a_dial_leaves_that_is_given_up_before_its_connection_comes_ends_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has seen the connection, and begins TLS on it, before it sees that nobody waits for it."""
    authority, wrap = make(tmp_path), ResumingContext.wrap_bio

    def leaving(*arguments: Any, **named: Any) -> Any:
        dial.cancel()
        return wrap(*arguments, **named)

    monkeypatch.setattr(ResumingContext, "wrap_bio", leaving)
    async with Upstream(tls=authority.server) as upstream:
        pool, before = pool_of(), protocols_of_tls()
        origin = Origin(Endpoint("https", "127.0.0.1", upstream.port), Way(verify=str(authority.ca), named=True))
        dial = Noted(pool, origin)
        assert dial.begin(0.2)
        async with asyncio.timeout(20):
            while origin.dials._dialling or protocols_of_tls() > before:  # noqa: ASYNC110  a timer of the loop's
                await asyncio.sleep(0.01)
        assert is_over(pool, origin)


async def both(*_: object) -> list[str]:
    """Two addresses, which race."""
    return ["127.0.0.1", "127.0.0.2"]


def protocols_of_tls() -> int:
    """How many of the loop's TLS connections there are."""
    gc.collect()
    return sum(type(each).__name__ == "SSLProtocol" for each in gc.get_objects())


WAITS = {
    "a name": origin_at(80, "upstream.test"),
    "a parent proxy": origin_at(80, parent="http://127.0.0.1:3128"),
    "a unix socket": Origin(Endpoint("http", "localhost", 80, unix="/run/a.sock"), Way(named=True)),
    "HTTP/2": origin_at(80, http2=True),
    "a zone": origin_at(80, "fe80::1%1"),
    "the guard": origin_at(80, "169.254.169.254", named=False),
}


@pytest.mark.parametrize("what", WAITS)
async def test_a_dial_that_needs_more_is_not_begun(what: str) -> None:
    pool, origin = pool_of(), WAITS[what]
    assert not Noted(pool, origin).begin(20.0)
    assert is_over(pool, origin)


async def test_no_dial_is_begun_without_a_place() -> None:
    pool, origin = pool_of(), origin_at(free_port())
    pool.most = 0
    assert not Noted(pool, origin).begin(20.0)
    pool.most = 1000
    for _ in range(DIALS):
        origin.dials.take()
    assert not Noted(pool, origin).begin(20.0)
    for _ in range(DIALS):
        origin.dials.leave()
    assert is_over(pool, origin)
