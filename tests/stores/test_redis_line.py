"""One connection a process: it carries commands and the subscription, and its end is noticed at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fleet import Sidecar
from redis.asyncio import Redis
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.stores.redis.client import RedisClient

pytestmark = needs_redis
Make = Callable[..., Sidecar]
SPEC = QuotaSpec(capacity=100, store="redis")


async def connected(server: RedisServer) -> list[dict[str, Any]]:
    """The connections of others."""
    async with Redis.from_url(server.url) as client:
        own = await client.client_id()
        return [each for each in await client.client_list() if int(each["id"]) != own]


async def listening(sidecars: Make, server: RedisServer, **options: Any) -> Sidecar:
    one = sidecars(server, clock=asyncio.get_running_loop().time, timeout=2.0, **options)
    await one.store.open()
    one.factory.listen()
    await one.factory.listening.wait()
    return one


async def granted(one: Sidecar) -> bool:
    bucket, loop = one.bucket(SPEC), asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()
    bucket.ask(5, loop.time(), loop.time(), lambda _, granted: answer.set_result(granted))
    async with asyncio.timeout(20):
        return await answer


async def test_a_process_has_one_connection(own_redis: RedisServer, sidecars: Make) -> None:
    fleet = [await listening(sidecars, own_redis) for _ in range(3)]
    assert all([await granted(each) for each in fleet])
    assert len(await connected(own_redis)) == 3
    for each in fleet:  # and so it remains when the subscription is made again
        each.factory._listen_anew()
        await each.factory.listening.wait()
    assert all([await granted(each) for each in fleet])
    assert len(await connected(own_redis)) == 3


async def test_calls_that_come_while_it_connects_make_no_second_connection(
    own_redis: RedisServer, sidecars: Make
) -> None:
    """One that is forgotten would stay open, and its reader would be destroyed while it waits."""
    one = sidecars(own_redis, clock=asyncio.get_running_loop().time, timeout=2.0)
    opening = asyncio.create_task(one.store.open())
    await asyncio.sleep(0)  # it has begun
    answered = asyncio.create_task(granted(one))
    looked = asyncio.create_task(one.store.look())
    assert await answered
    await asyncio.wait({opening, looked})
    assert len(await connected(own_redis)) == 1
    assert one.notices == []


async def test_an_older_server_has_two(sidecars: Make) -> None:
    server = RedisServer("--rename-command", "HELLO", "")
    try:
        one = await listening(sidecars, server)
        assert await granted(one)
        async with Redis.from_url(server.url, protocol=2) as client:
            assert len(await client.client_list()) == 3
        assert one.notices == []
    finally:
        server.close()


async def test_what_the_guide_permits_is_enough(own_redis: RedisServer, sidecars: Make) -> None:
    async with Redis.from_url(own_redis.url) as client:
        permitted = "~test* &test* +@connection +@scripting +@hash +@pubsub +pttl +pexpire +time"
        await client.execute_command("ACL", "SETUSER", "app", "on", ">pw", *permitted.split())
    one = sidecars(own_redis.url.replace("//", "//app:pw@"), clock=asyncio.get_running_loop().time, timeout=2.0)
    await one.store.open()
    one.factory.listen()
    await one.factory.listening.wait()
    assert await granted(one)
    assert len(await connected(own_redis)) == 1
    assert one.notices == []


async def test_a_subscription_that_is_not_permitted_stops_no_command(own_redis: RedisServer) -> None:
    async with Redis.from_url(own_redis.url) as client:
        await client.execute_command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all")
    client = RedisClient(own_redis.url.replace("//", "//deaf:pw@"), connecting=5.0)
    await client.connect()
    try:
        with pytest.raises(Exception, match="channel"):
            async for _ in client.listen("one", "two"):
                raise AssertionError("it is not permitted")
        assert (await client.fields("hash"))[1] == {}
    finally:
        await client.close()


async def test_the_end_of_the_connection_is_noticed_without_a_message(own_redis: RedisServer, sidecars: Make) -> None:
    one = await listening(sidecars, own_redis)
    assert await granted(one)
    one.store._schedule.clear()  # nothing is due
    own_redis.kill()
    await one.until("out")
    own_redis.start()
    await one.until("back")
    await one.factory.listening.wait()


async def test_a_connection_that_is_cut_is_made_again_and_hears(own_redis: RedisServer, sidecars: Make) -> None:
    one = await listening(sidecars, own_redis)
    async with Redis.from_url(own_redis.url) as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        one.factory.listening.clear()
        async with asyncio.timeout(20):
            await one.factory.listening.wait()
    assert await granted(one)
    assert one.notices == []
    assert len(await connected(own_redis)) == 1


async def test_replies_and_messages_do_not_mix(own_redis: RedisServer) -> None:
    client = RedisClient(own_redis.url, connecting=5.0)
    await client.connect()
    heard: list[int] = []

    async def listen() -> None:
        async for each in client.listen("numbers"):
            if each is None:
                ready.set()
            else:
                heard.append(int(each[1]))

    ready = asyncio.Event()
    task = asyncio.get_running_loop().create_task(listen())
    await ready.wait()
    async with Redis.from_url(own_redis.url) as other:
        for number in range(200):
            await other.hset(f"hash{number}", mapping={"number": number})
            await other.publish("numbers", number)
            assert (await client.fields(f"hash{number}"))[1] == {b"number": b"%d" % number}
        async with asyncio.timeout(20):
            while len(heard) < 200:  # noqa: ASYNC110  a state
                await asyncio.sleep(0.001)
    assert heard == list(range(200))
    task.cancel()
    await client.close()
