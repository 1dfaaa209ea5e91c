"""What one sidecar finds out and all must know: credentials that are put aside, endpoints that refuse connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fleet import Sidecar
from support.redis_server import RedisServer, needs_redis

from proxy.retry.policies.policy import Credentials, EndpointShare
from proxy.retry.upstreams.credentials import ASIDE, KeyRing, Roster
from proxy.retry.upstreams.endpoints import EndpointGroup

pytestmark = needs_redis
Make = Callable[..., Sidecar]
SHARES = (EndpointShare("a:80"), EndpointShare("b:80"))


async def until(sidecar: Sidecar, holds: Callable[[], bool]) -> None:
    """Until something has been heard, which no message of this sidecar brings about."""
    async with asyncio.timeout(20):
        while not holds():
            await sidecar.store.look()
            await asyncio.sleep(0.001)


async def fleet_of(count: int, server: RedisServer, sidecars: Make) -> list[Sidecar]:
    made = [sidecars(server) for _ in range(count)]
    for each in made:
        await each.store.open()
        each.factory.listen()
        await each.factory.listening.wait()
    return made


def refuses(sidecar: Sidecar, roster: Roster, value: str = "k1") -> bool:
    """A 401 for this value."""
    ring: KeyRing[Roster] = KeyRing(Credentials("x-api-key", ("{}",), (value,)), roster, lambda key: roster)
    return ring.put_aside(0, sidecar.now)


async def test_a_credential_that_one_puts_aside_is_aside_for_all(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = await fleet_of(2, redis_server, sidecars)
    ours, theirs = one.registry.roster("u"), other.registry.roster("u")
    apart = other.registry.roster("not in Redis")
    assert refuses(one, ours)
    (digest,) = ours._until
    await until(other, lambda: theirs.aside_until(digest) > other.now)
    assert theirs.aside_until(digest) == pytest.approx(other.now + ASIDE, abs=0.001)
    assert apart.aside_until(digest) < 0
    assert not refuses(other, theirs)  # known already, so not told of again
    later = sidecars(redis_server)
    await later.store.open()
    later.factory.listen()
    await later.factory.listening.wait()
    assert later.registry.roster("u").aside_until(digest) == pytest.approx(later.now + ASIDE, abs=5)


async def test_an_endpoint_that_refuses_one_is_passed_over_by_all(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = await fleet_of(2, redis_server, sidecars)
    groups = [EndpointGroup(SHARES) for _ in range(2)]
    for each, group in zip((one, other), groups, strict=True):
        each.factory.share_endpoints("u", group)
    ours, theirs = (group.of("") for group in groups)

    def chosen(sidecar: Sidecar) -> set[int]:
        picked = set()
        for _ in range(4):
            choice = theirs.choose((), sidecar.now)
            assert choice is not None
            theirs.took(choice)
            picked.add(choice.index)
        return picked

    assert chosen(other) == {0, 1}
    ours.refused(0, one.now)
    await until(other, lambda: chosen(other) == {1})
    ours.reached(0)
    await until(other, lambda: chosen(other) == {0, 1})
    ours.refused(1, one.now)
    await until(other, lambda: chosen(other) == {0})
    one.now += 5.0
    ours.refused(1, one.now)  # for 10 s now: but others try it themselves after 5 s
    other.now += 5.1
    assert chosen(other) == {0, 1}


async def test_what_is_found_while_redis_is_out_is_told_when_it_is_back(own_redis: RedisServer, sidecars: Make) -> None:
    one, other = await fleet_of(2, own_redis, sidecars)
    ours, theirs = one.registry.roster("u"), other.registry.roster("u")
    own_redis.kill()
    assert refuses(one, ours)
    (digest,) = ours._until
    await one.until("out")
    own_redis.start()
    await one.until("back")
    await until(other, lambda: theirs.aside_until(digest) > other.now)


async def test_a_fleet_that_finds_it_out_at_once_tells_it_once(redis_server: RedisServer, sidecars: Make) -> None:
    fleet = await fleet_of(5, redis_server, sidecars)
    heard: list[float] = []
    rosters = [each.registry.roster("u") for each in fleet[:4]]
    fleet[4].factory._news.join("aside", "u", lambda digest, seconds: heard.append(seconds))
    assert all(refuses(each, roster) for each, roster in zip(fleet, rosters, strict=False))
    fleet[0].factory._news.join("aside", "u", lambda *_: None)("last", 1.0)
    await until(fleet[4], lambda: 1.0 in heard)
    assert len(heard) == 2
