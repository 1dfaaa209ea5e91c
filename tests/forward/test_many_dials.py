"""More calls at once to an endpoint without a resting connection than it can take dials: all are served, in order."""

# ruff: noqa: SIM117  upstream, proxy and app are nested as they depend on each other
from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.front import STANDARD, Front, request, to
from support.scripted import Turn, Upstream, answer, gated

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Timeouts
from proxy.transport import origins as dial_queue
from proxy.transport.dial import Dialer

MANY = 2000


async def until(so: Callable[[], object]) -> None:
    while not so():  # noqa: ASYNC110  no event tells of it
        await asyncio.sleep(0.001)


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many dials were under way when each began."""
    under_way, seen = 0, []
    opens = Dialer.connecting

    async def counted(self: Dialer, *arguments: object, **options: object) -> object:
        nonlocal under_way
        under_way += 1
        seen.append(under_way)
        try:
            return await opens(self, *arguments, **options)  # type: ignore[arg-type]
        finally:
            under_way -= 1

    monkeypatch.setattr(Dialer, "connecting", counted)
    return seen


async def ask(port: int, target: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("GET", target, "Connection: close", host="127.0.0.1"))
    whole = await reader.read(-1)
    writer.close()
    return whole


async def test_all_of_a_great_many_calls_are_served(dials: list[int]) -> None:
    """On two processors that also play the apps and the upstream, unbounded dials would run into `connect` at once."""
    only = replace(STANDARD, max_attempts=1)
    async with Upstream() as upstream, Front(to("api", upstream.url, strategy=only)) as front:
        answers = await asyncio.gather(*(ask(front.port, f"/api/{at}") for at in range(MANY)))
        assert {each[:15] for each in answers} == {b"HTTP/1.1 200 OK"}
        assert max(dials) <= dial_queue.DIALS
        assert upstream.connections <= len(dials)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_connection_that_becomes_free_serves_the_first_that_waits(
    method: str, dials: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial_queue, "DIALS", 1)
    go = asyncio.Event()
    async with Upstream(gated(go, b"", answer(200, b"ok")), answer(200, b"ok")) as upstream:
        async with (
            Front(to("api", upstream.url)) as front,
            front.app() as one,
            front.app() as two,
            front.app() as three,
        ):
            one.send(request("GET", "/api/1", host="127.0.0.1"))
            await upstream.until(1)
            opens, held = Dialer.connecting, asyncio.Event()

            async def slowly(self: Dialer, *arguments: object, **options: object) -> object:
                await held.wait()
                return await opens(self, *arguments, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(Dialer, "connecting", slowly)
            dialling = two
            dialling.send(request("GET", "/api/2", host="127.0.0.1"))
            (origin,) = front.path.context.pool._origins.values()
            await until(lambda: origin.dials._dialling)
            three.send(request(method, "/api/3", host="127.0.0.1"))
            await until(lambda: origin.dials.waiting)
            go.set()
            assert (await one.read()).status == 200
            assert (await three.read()).status == 200  # its turn to dial has not come yet
            assert not origin.dials.waiting
            held.set()
            assert (await two.read()).status == 200
            assert [r.target for r in upstream.requests] == ["/1", "/3", "/2"]
            assert upstream.connections == 2


async def test_who_waits_is_served_in_order_and_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_queue, "DIALS", 1)
    held = asyncio.Event()
    opens = Dialer.connecting

    async def slowly(self: Dialer, *arguments: object, **options: object) -> object:
        await held.wait()
        return await opens(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Dialer, "connecting", slowly)

    async def step(turn: Turn) -> None:
        await turn.write(answer(200, b"ok", "Connection: close"))
        turn.close()

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front:
        apps = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(6)]
        for at, (_, writer) in enumerate(apps):
            writer.write(request("GET", f"/api/{at}", host="127.0.0.1"))
            await until(lambda at=at: front.path.in_flight > at)
            (origin,) = front.path.context.pool._origins.values()
            await until(lambda at=at, origin=origin: len(origin.dials.waiting) == at)
        for gone in (0, 3):  # one that dials, and one that waits
            apps[gone][1].transport.abort()
        await front.observed.until(2)
        held.set()
        await front.observed.until(6)
        assert [r.target for r in upstream.requests] == ["/1", "/2", "/4", "/5"]
        assert (origin.dials._dialling, len(origin.dials.waiting)) == (0, 0)
        for _, writer in apps:
            writer.transport.abort()


async def test_the_wait_counts_against_the_deadline_and_not_against_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_queue, "DIALS", 1)
    held = asyncio.Event()
    opens = Dialer.connecting
    first = True

    async def slowly(self: Dialer, *arguments: object, **options: object) -> object:
        nonlocal first
        if first:
            first = False
            await held.wait()
        return await opens(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Dialer, "connecting", slowly)
    async with Upstream() as upstream:
        patient = to("a", upstream.url, timeouts=Timeouts(connect=60.0))
        async with Front(patient) as front, front.app() as one, front.app() as two, front.app() as three:
            one.send(request("GET", "/a/1", host="127.0.0.1"))
            await until(lambda: front.path.context.pool._origins)
            (origin,) = front.path.context.pool._origins.values()
            await until(lambda: origin.dials._dialling)
            two.send(request("GET", "/a/2", "X-Retry-Timeout: 50ms", host="127.0.0.1"))
            three.send(request("GET", "/a/3", host="127.0.0.1"))
            reply = await two.read()
            assert (reply.status, front.observed.outcomes) == (504, [Outcome.DEADLINE])
            await until(lambda: len(origin.dials.waiting) == 1)
            held.set()
            assert (await one.read()).status == (await three.read()).status == 200


async def test_those_who_wait_for_a_dead_endpoint_are_told_with_the_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would wait for one timeout after the other."""
    monkeypatch.setattr(dial_queue, "DIALS", 2)
    dialled = 0

    async def never(self: Dialer, *arguments: object, **options: object) -> object:
        nonlocal dialled
        dialled += 1
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Dialer, "connecting", never)
    only = replace(STANDARD, max_attempts=1)
    dead = to("a", "http://127.0.0.1:9", strategy=only, timeouts=Timeouts(connect=0.05))
    async with Front(dead) as front:
        answers = await asyncio.gather(*(ask(front.port, f"/a/{at}") for at in range(40)))
        assert len({each[9:12] for each in answers} & {b"502", b"504"}) == 1
        assert dialled < 40


# -- of several apps (contract, section 17, "Queues") ----------

WEB, BATCH = NamedApp("web", 4, RANKS["high"]), NamedApp("batch", 1, RANKS["low"])


async def test_of_each_eight_dials_one_goes_to_the_lower_priority() -> None:
    queue, order = dial_queue.DialQueue(), list[str]()

    async def dial(app: NamedApp | None) -> None:
        assert await queue.enter(20.0, lambda _: None, connection=False, app=app) is None
        order.append("" if app is None else app.name)
        queue.leave(reached=True)

    taken = [queue.enter(20.0, lambda _: None, connection=False) for _ in range(dial_queue.DIALS)]
    for each in taken:
        assert await each is None
    waiting = [asyncio.create_task(dial(app)) for app in [BATCH] * 10 + [WEB] * 10]
    await until(lambda: len(queue.waiting) == 20)
    queue.leave(reached=True)
    await asyncio.gather(*waiting)
    assert order[:8] == [*["web"] * 7, "batch"]
    assert order[-1] == "batch"


async def test_without_names_dials_go_by_arrival() -> None:
    queue, order = dial_queue.DialQueue(), list[int]()

    async def dial(number: int) -> None:
        await queue.enter(20.0, lambda _: None, connection=False)
        order.append(number)
        queue.leave(reached=True)

    for _ in range(dial_queue.DIALS):
        await queue.enter(20.0, lambda _: None, connection=False)
    waiting = [asyncio.create_task(dial(number)) for number in range(5)]
    await until(lambda: len(queue.waiting) == 5)
    queue.leave(reached=True)
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
