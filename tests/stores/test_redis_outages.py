"""Redis slow, gone, restarted, full, cut off in mid-reply, answering errors: calls go on, and Redis comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from fleet import REQUEST, Sidecar, policy_of
from redis.asyncio import Redis
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.buckets import ASK
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec

pytestmark = needs_redis
Make = Callable[..., Sidecar]

QUOTA = QuotaSpec(capacity=100, store="redis")


async def opened(sidecar: Sidecar) -> Sidecar:
    await sidecar.store.open()
    return sidecar


def live(sidecars: Make, server: RedisServer | str, **options: Any) -> Sidecar:
    """A sidecar that goes by the loop's clock, with a timeout that a busy machine keeps to."""
    return sidecars(server, clock=asyncio.get_running_loop().time, **{"timeout": 2.0, **options})


async def answer_of(bucket: Any, price: float = 5) -> bool:
    """What a call is told that asks."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    now = asyncio.get_running_loop().time()
    bucket.ask(price, now, now, lambda _, granted: answer.set_result(granted))
    async with asyncio.timeout(20):
        return await answer


async def level_seen(sidecars: Make, server: RedisServer, spec: Any = QUOTA) -> float:
    """The level as a newcomer hears it."""
    newcomer = sidecars(server)
    bucket = newcomer.bucket(spec)
    bucket.begin(newcomer.now)
    await newcomer.trip()
    return float(bucket.level(newcomer.now))


async def test_gone_and_there_again(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    bucket = one.bucket(QUOTA)
    now = asyncio.get_running_loop().time()
    assert await answer_of(bucket)
    own_redis.kill()
    assert await answer_of(bucket, 10)  # answered by the bucket that carries on
    await one.until("out")
    assert one.store.out
    assert [bucket.affords(5, now), bucket.take(5, now), bucket.level(now)] == [True, True, 80]
    assert not bucket.take(85, now)
    bucket.succeeded(5, now)
    own_redis.start()
    await one.until("back")
    assert [facts["state"] for _, facts in one.notices] == ["out", "back"]
    assert (one.store.out, one.store.outages) == (False, 1)
    assert await level_seen(sidecars, own_redis) == 85


async def test_one_that_hangs_is_waited_for_no_longer_than_the_timeout(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis, timeout=0.05))
    bucket = one.bucket(QUOTA)
    own_redis.stop()
    assert await answer_of(bucket)  # decided without it; one late reply is no outage yet
    await one.until("out")
    now = asyncio.get_running_loop().time()
    assert bucket.take(5, now)
    own_redis.go_on()
    await one.until("back")
    # What it had been told before is counted once, whichever of the messages it has read.
    async with asyncio.timeout(20):
        while await level_seen(sidecars, own_redis) != 90:
            pass


@pytest.mark.parametrize("lost", [False, True], ids=["before it is noticed", "after"])
async def test_nothing_is_under_way_after_a_process_that_ends_while_it_hangs(
    own_redis: RedisServer, sidecars: Make, lost: bool
) -> None:
    """A task that still closed a connection would be destroyed with its loop."""
    before = asyncio.all_tasks()
    one = await opened(live(sidecars, own_redis, timeout=0.05))
    one.factory.listen()
    await one.factory.listening.wait()
    bucket = one.bucket(QUOTA)
    assert await answer_of(bucket)
    own_redis.stop()
    now = asyncio.get_running_loop().time()
    bucket.ask(50, now, now, lambda _, granted: None)
    if lost:
        await one.until("out")
    await one.close()
    assert asyncio.all_tasks() == before
    own_redis.go_on()


async def test_cut_off_from_it_what_was_spent_meanwhile_is_counted_on_return(
    own_redis: RedisServer, sidecars: Make
) -> None:
    other = sidecars(own_redis)
    seen = other.bucket(QUOTA)
    async with Cutter(own_redis.port) as cutter:
        one = await opened(live(sidecars, cutter.url))
        bucket = one.bucket(QUOTA)
        assert await answer_of(bucket, 20)
        cutter.refuse()
        await answer_of(bucket, 10)
        await one.until("out")
        assert bucket.take(25, 0)
        assert await other.granted(seen, 15)
        await other.trip(later=0.1)
        cutter.accept()
        await one.until("back")
        assert await level_seen(sidecars, own_redis) == 100 - 20 - 10 - 25 - 15


async def test_a_new_connection_may_take_as_long_as_a_reply(own_redis: RedisServer, sidecars: Make) -> None:
    """Redis is short of processor time, so that it greets late."""
    one = sidecars(own_redis, timeout=0.05)
    bucket = one.bucket(QUOTA)
    assert await one.granted(bucket)
    await one.store._drop()
    given = list[float]()

    async def within(work: Any, seconds: float) -> Any:
        given.append(seconds)
        return await work

    one.store._within = within  # type: ignore[method-assign]
    bucket.begin(one.now)
    await one.trip(later=2.0)
    assert given == [one.store.patience] * 2
    assert not one.store.out


async def test_cut_off_in_mid_reply(own_redis: RedisServer, sidecars: Make) -> None:
    async with Cutter(own_redis.port) as cutter:
        one = await opened(live(sidecars, cutter.url))
        bucket = one.bucket(QUOTA)
        assert await answer_of(bucket, 20)
        cutter.cut_after(7)
        assert await answer_of(bucket, 10)  # one new connection is tried at once
        assert not one.store.out
        await one.store.close()
        assert await level_seen(sidecars, own_redis) == 70


async def test_full(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    bucket = one.bucket(QUOTA)
    assert await answer_of(bucket)
    async with Redis.from_url(own_redis.url) as client:
        await client.config_set("maxmemory", "1")
        assert await answer_of(bucket)
        await one.until("out")
        assert one.notices[0][1]["why"] == "command not allowed when used memory > 'maxmemory'"
        await client.config_set("maxmemory", "0")
    await one.until("back")
    assert await level_seen(sidecars, own_redis) == 90
    assert len(one.notices) == 2


async def test_answering_errors(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    bucket = one.bucket(QUOTA)
    async with Redis.from_url(own_redis.url) as client:
        await client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        assert await answer_of(bucket)
        await one.until("out")
        await client.execute_command("ACL", "SETUSER", "default", "+@all")
    await one.until("back")
    assert len(one.notices) == 2


async def test_forgotten_scripts_are_no_outage(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    bucket = one.bucket(QUOTA)
    assert await answer_of(bucket)
    async with Redis.from_url(own_redis.url) as client:
        await client.script_flush()
    assert await answer_of(bucket)
    assert one.notices == []


async def test_never_there(sidecars: Make, own_redis: RedisServer) -> None:
    own_redis.kill()
    one = await opened(live(sidecars, own_redis))
    bucket = one.bucket(QUOTA)
    assert one.store.out
    assert bucket.affords(5, 0) is True
    assert bucket.take(60, 0)
    own_redis.start()
    await one.until("back")
    assert await level_seen(sidecars, own_redis) == 40  # the key was made by one that knew so much


async def test_deny_grants_nothing(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis, on_outage="deny"))
    specs = [QUOTA, ThrottleSpec(store="redis"), BudgetSpec(store="redis")]
    buckets = [one.bucket(spec, spec.kind) for spec in specs]
    rate = one.registry.scope(policy_of(RateSpec(10, 10, store="redis"), "rate"), REQUEST, 0.0).rate
    assert rate is not None
    own_redis.kill()
    assert not await answer_of(buckets[0])
    await one.until("out")
    now = asyncio.get_running_loop().time()
    for bucket in buckets:
        price = bucket.price("transient")
        assert [bucket.affords(price, now), bucket.take(price, now)] == [False, False]
        assert not await answer_of(bucket, price)
    assert rate.ask(Waiting(), now) == REJECTED  # at once, not after a while
    own_redis.start()
    await one.until("back")
    assert [await answer_of(bucket, bucket.price("transient")) for bucket in buckets] == [True] * 3


async def test_every_kind_carries_on_by_itself(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    throttle = one.bucket(ThrottleSpec(store="redis"), "throttle")
    budget = one.bucket(BudgetSpec(percent=0, min_per_second=3, store="redis"), "budget")
    rate = one.bucket(RateSpec(rate=0.001, burst=3, store="redis"), "rate")
    now = asyncio.get_running_loop().time()
    for _ in range(4):
        throttle.failed(now)
    assert await answer_of(throttle, 0)
    own_redis.kill()
    assert await answer_of(budget, 1)
    await one.until("out")
    assert throttle.take(0, now)
    throttle.failed(now)
    assert not throttle.take(0, now)
    assert [budget.take(1, now) for _ in range(3)] == [True, True, False]
    assert [rate.take(now) for _ in range(4)] == [True, True, True, False]
    own_redis.start()
    await one.until("back")
    assert throttle.level(now) == 5
    newcomer = sidecars(own_redis)
    gate = newcomer.registry.scope(policy_of(rate.spec, "rate"), REQUEST, newcomer.now).rate
    assert gate is not None
    gate.ask(Waiting(), newcomer.now)
    await newcomer.trip()
    assert not gate.bucket.take(newcomer.now)


async def test_a_bucket_first_used_while_it_is_gone(own_redis: RedisServer, sidecars: Make) -> None:
    one = await opened(live(sidecars, own_redis))
    first = one.bucket(QUOTA)
    own_redis.kill()
    await answer_of(first)
    await one.until("out")
    later = one.bucket(replace(QUOTA, capacity=7), "later")
    assert [later.take(5, 0), later.take(5, 0)] == [True, False]


async def test_a_url_that_says_nothing(sidecars: Make) -> None:
    one = await opened(live(sidecars, "http://user:secret@nowhere"))
    assert one.store.out
    line, facts = one.notices[0]
    assert "not a scheme" in facts["why"]
    assert "secret" not in line


async def test_passwords_are_not_told(sidecars: Make, own_redis: RedisServer) -> None:
    one = await opened(live(sidecars, f"redis://user:secret@127.0.0.1:{own_redis.port}"))
    assert one.store.out
    assert "secret" not in str(one.notices)


async def test_leases_go_back_when_a_process_ends(own_redis: RedisServer, sidecars: Make) -> None:
    one, other = await opened(live(sidecars, own_redis)), sidecars(own_redis)
    bucket, whole = one.bucket(QUOTA), other.bucket(QUOTA)
    assert await answer_of(bucket)
    bucket.give_back(5, asyncio.get_running_loop().time())
    await one.close()
    assert await other.granted(whole, 100)


async def test_a_sidecar_that_slept_trusts_its_lease_no_more(redis_server: RedisServer, sidecars: Make) -> None:
    one = sidecars(redis_server)
    bucket = one.bucket(QUOTA)
    bucket.begin(one.now)
    await one.trip()
    assert bucket.affords(5, one.now + 7) is True
    assert bucket.affords(5, one.now + 9) == ASK


class Waiting:
    def retime(self, at: float) -> None:
        pass


class Cutter:
    """Between a sidecar and Redis: refuses connections, or cuts them in the middle of what Redis says."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._refusing = False
        self._left: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def __aenter__(self) -> Cutter:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    def refuse(self) -> None:
        """Nothing gets through from now on."""
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def accept(self) -> None:
        self._refusing = False

    def cut_after(self, size: int) -> None:
        """Pass on so many more bytes of what Redis says, then cut the connection; the next one is whole."""
        self._left = size

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, forth}
        for work in (self._pass(reader, forth), self._pass_some(back, writer, forth)):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            async for data in _pieces(reader):
                writer.write(data)
            writer.close()

    async def _pass_some(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            async for data in _pieces(reader):
                if self._left is not None:
                    writer.write(data[: self._left])
                    await writer.drain()
                    self._left = None
                    writer.close()
                    other.transport.abort()
                    return
                writer.write(data)
            writer.close()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(65536):
        yield data


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said but what `tell` says."""
    yield  # type: ignore[misc]
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
