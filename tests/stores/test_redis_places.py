"""Where Redis may be: behind a password, TLS, a unix socket, Sentinel, in a Cluster; and URLs that say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from callers import cooling
from fleet import Sidecar, policy_of
from redis.asyncio import Redis
from support.certificates import make
from support.ports import free_port
from support.redis_server import RedisServer, needs_redis

from proxy.retry.facts import Request
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.weather.cooldown import ALL_CALLERS
from proxy.stores.redis.client import BadUrlError, RedisClient

pytestmark = needs_redis
Make = Callable[..., Sidecar]
QUOTA = QuotaSpec(capacity=100, store="redis")
#: As docs/reference/fleet.md has it.
ALLOWED = "+@connection +@scripting +@hash +@pubsub +pttl +pexpire +time"


async def shares(sidecars: Make, url: str) -> None:
    """Two sidecars pay from one bucket, and one hears of the other's cooldown."""
    one, other = sidecars(url), sidecars(url)
    await one.store.open()
    await other.store.open()
    assert (one.notices, other.notices) == ([], [])
    bucket, seen = one.bucket(QUOTA), other.bucket(QUOTA)
    answers: list[asyncio.Future[bool]] = []
    for each, sidecar in ((bucket, one), (seen, other)):
        answer = asyncio.get_running_loop().create_future()
        each.ask(40, sidecar.now, sidecar.now, lambda _, granted, answer=answer: answer.set_result(granted))
        answers.append(answer)
        async with asyncio.timeout(20):
            assert await answer
    one.now, other.now = one.now + 0.3, other.now + 0.3
    async with asyncio.timeout(20):
        await one.store.look()
        await other.store.look()
        await one.store.look()
    assert bucket.level(one.now) == seen.level(other.now) == 20
    await hears(one, other)


async def hears(one: Sidecar, other: Sidecar) -> None:
    request, policy = Request("GET", "u.test", "/"), policy_of(QUOTA)
    ours, theirs = (each.registry.scope(policy, request, each.now) for each in (one, other))
    other.factory.listen()
    await other.factory.listening.wait()
    ours.governor.requests_wait(cooling(), 503, 30.0, sent=one.now, now=one.now, whole=True)
    async with asyncio.timeout(20):
        while not theirs.governor.holds(other.now):
            await one.store.look()
    assert theirs.governor.lanes.seconds_left(other.now) == pytest.approx(30, abs=0.01)


async def test_plain(redis_server: RedisServer, sidecars: Make) -> None:
    await shares(sidecars, redis_server.url)
    await shares(sidecars, redis_server.url.replace("redis://", "valkey://").replace("/0", "/3"))


async def test_who_comes_later_hears_of_a_cooldown_in_force(redis_server: RedisServer, sidecars: Make) -> None:
    one, later = sidecars(redis_server), sidecars(redis_server)
    request, policy = Request("GET", "u.test", "/"), policy_of(QUOTA)
    ours = one.registry.scope(policy, request, one.now).governor
    assert ours.lanes.fleet is not None
    ours.requests_wait(cooling(), 503, 30.0, sent=one.now, now=one.now, whole=True)
    ours.lanes.fleet.began(("", ALL_CALLERS), 503, 10.0, sent=one.now, now=one.now)  # a shorter word changes nothing
    await one.trip()
    await later.store.open()
    later.factory.listen()
    await later.factory.listening.wait()
    governor = later.registry.scope(policy, request, later.now).governor
    assert governor.lanes.seconds_left(later.now) == pytest.approx(30, abs=1)


async def test_a_password_and_a_user(sidecars: Make) -> None:
    server = RedisServer("--requirepass", "s3cr:t@")
    try:
        await shares(sidecars, f"redis://:s3cr%3At%40@127.0.0.1:{server.port}/1")
        async with Redis.from_url(f"redis://:s3cr%3At%40@127.0.0.1:{server.port}") as client:
            rights = ["on", ">pw", "~test*", "&test*", *ALLOWED.split()]
            await client.execute_command("ACL", "SETUSER", "sidecar", *rights)
        await shares(sidecars, f"redis://sidecar:pw@127.0.0.1:{server.port}")
    finally:
        server.close()


async def test_tls(sidecars: Make, tmp_path: Path) -> None:
    ca, cert = make(tmp_path).ca, tmp_path / "server.pem"
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(cert)]
    server = RedisServer(*options, "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no", "--requirepass", "pw")
    try:
        await shares(sidecars, f"rediss://:pw@localhost:{port}/0?ssl_ca_certs={ca}")
        stranger = sidecars(f"rediss://:pw@localhost:{port}/0")
        await stranger.store.open()
        assert "certificate" in stranger.notices[0][1]["why"].lower()
    finally:
        server.close()


async def test_a_unix_socket(sidecars: Make, tmp_path: Path) -> None:
    server = RedisServer("--unixsocket", str(tmp_path / "redis.sock"))
    try:
        await shares(sidecars, f"unix://{tmp_path}/redis.sock?db=2")
    finally:
        server.close()


async def test_sentinel(sidecars: Make, redis_server: RedisServer) -> None:
    port = redis_server.port
    sentinel = RedisServer(sentinel=f"sentinel monitor main 127.0.0.1 {port} 1\n")
    try:
        await shares(sidecars, f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/main/4")
    finally:
        sentinel.close()


async def test_cluster(sidecars: Make) -> None:
    servers = [RedisServer("--cluster-enabled", "yes") for _ in range(2)]
    try:
        await form_cluster(servers)
        await shares(sidecars, f"redis+cluster://127.0.0.1:{servers[0].port},127.0.0.1:{servers[1].port}")
    finally:
        for server in servers:
            server.close()


async def form_cluster(servers: list[RedisServer]) -> None:
    """Half of the slots each; until both say that it is whole."""
    clients = [Redis(port=server.port) for server in servers]
    halves = ((0, 8191), (8192, 16383))
    for client, (first, last) in zip(clients, halves, strict=True):
        await client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
    await clients[0].execute_command("CLUSTER", "SET-CONFIG-EPOCH", 1)
    await clients[1].execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
    await clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", servers[1].port)
    async with asyncio.timeout(30):
        for client in clients:
            while b"cluster_state:ok" not in await info(client) or b"known_nodes:2" not in await info(client):
                pass
    for client in clients:
        await client.aclose()


async def info(client: Redis) -> bytes:
    found = await client.execute_command("CLUSTER", "INFO")
    return found if isinstance(found, bytes) else "\n".join(f"{k}:{v}" for k, v in found.items()).encode()


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "localhost:6379",
        "redis+sentinel://x:26379",
        "redis+cluster://",
        "redis+sentinel://x:y/main",
        "redis+x://y",
    ],
)
def test_urls_that_say_nothing(url: str) -> None:
    with pytest.raises(BadUrlError):
        RedisClient(url, connecting=1.0)
