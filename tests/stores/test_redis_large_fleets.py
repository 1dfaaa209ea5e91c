"""Scripts that thousands of holders use: what a script says to Redis is never more than Lua takes at once, and
processes that are told of something at the same time do not all ask in one instant.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from callers import Waiting, cooling
from fleet import REQUEST, Sidecar, policy_of
from redis import Redis
from support.redis_server import RedisServer, client_of_own, needs_redis

from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.policies.policy import Concurrency
from proxy.retry.weather.caller import ALL_CALLERS
from proxy.stores.redis.bucket import FORGET, HOLD_MOST, IN_TURN, hold_pause
from proxy.stores.redis.client import SCRIPTS
from proxy.stores.redis.store import RedisStore

pytestmark = needs_redis
Make = Callable[..., Sidecar]
#: More than Lua's `unpack` takes.
MANY = 9000
#: Words of a holder's report to a script, by script: one that holds calls, and one that begins its cooldown anew.
HOLDS: dict[str, list[object]] = {
    "weather": [1, 0, 0, 0, 5, 1, 0, 0, 3, 1, 0, 1e9, 0, 1.5, 1e9],
    "places": ["", 60.0, 0, 1, 1, 10.0, 1],
    "budget": [1, 0, 0, 0, 0.0, "", "", "", 10.0, 20.0, 10.0],
    "members": [0],
}
AGAIN: list[object] = [0.0, 60.0, 0, 1, 1, 10.0, 1]

redis = pytest.fixture(client_of_own)


def say(redis: Redis, script: str, holder: str, words: list[object], dead: float) -> list[bytes]:
    reply = redis.eval(SCRIPTS[script], 1, script, holder, 1, "", *words, "making", dead, FORGET)  # type: ignore[arg-type]
    assert isinstance(reply, list)
    return reply


@pytest.mark.parametrize("script", HOLDS)
def test_all_holders_but_one_have_died(redis: Redis, script: str) -> None:
    words, sha = HOLDS[script], redis.script_load(SCRIPTS[script])
    with redis.pipeline(transaction=False) as pipe:
        for number in range(MANY):
            pipe.evalsha(sha, 1, script, f"{number}", 1, "", *map(str, words), "making", "1000", FORGET)
        pipe.execute()
    if script in ("weather", "members"):
        redis.hset(script, "scanned", 0)
    dead_now = list(words)
    if script == "places":
        redis.hset(script, "scanned", 0)
        dead_now[5] = 0.0
    say(redis, script, "last", dead_now, 0.0)
    assert len([each for each in redis.hkeys(script) if each.startswith(b"h:")]) == 1  # type: ignore[union-attr]


def test_a_cooldown_of_many_holders_begins_again(redis: Redis) -> None:
    sha = redis.script_load(SCRIPTS["places"])
    with redis.pipeline(transaction=False) as pipe:
        for number in range(MANY):
            pipe.evalsha(sha, 1, "places", f"{number}", 1, "", *map(str, HOLDS["places"]), "making", "1000", FORGET)
        pipe.execute()
    reply = say(redis, "places", "other", AGAIN, 1000.0)
    assert reply[2] == b"1"  # it reported the pushback, so it has the first place
    assert len([each for each in redis.hkeys("places") if each.startswith(b"h:")]) == 1  # type: ignore[union-attr]


def test_large_fleets_report_less_often() -> None:
    assert [hold_pause(0.27, crowd) for crowd in (1, 100, 1000, 2000, 10_000, 100_000)] == [
        *(0.27, 0.27, 0.5, 1.0),
        *(HOLD_MOST, HOLD_MOST),
    ]


async def test_holders_of_a_long_cooldown_report_seldom(redis_server: RedisServer, sidecars: Make) -> None:
    """No process has a place before the delay is over."""
    one = sidecars(redis_server)
    scope = one.registry.scope(policy_of(QuotaSpec(capacity=100, store="redis")), REQUEST, one.now)
    governor = scope.governor
    governor.requests_wait(cooling(), 503, 30.0, sent=one.now, now=one.now, whole=True)
    governor.ask(Waiting(), cooling(), one.now)
    places = governor.lanes.fleet._lanes["", ALL_CALLERS]  # type: ignore[union-attr]
    began, times = one.now, []
    while one.now < began + 32.0:
        await one.trip()
        times.append(one.now - began)
        one.now = max(places.due, one.now + 0.001)
    during = [each for each in times if each < 30.0]
    assert len(during) <= 10
    assert times[len(during)] < 30.3


@pytest.mark.parametrize(("crowd", "pause", "beat"), [(100, 0.25, 1.0), (1000, 0.5, 1.0), (10_000, 1.5, 1.5)])
async def test_large_fleets_report_less_often_how_many_places_they_need(
    redis_server: RedisServer, sidecars: Make, monkeypatch: pytest.MonkeyPatch, crowd: int, pause: float, beat: float
) -> None:
    monkeypatch.setattr(RedisStore, "crowd", crowd)
    one, rules = sidecars(redis_server), Concurrency(2, 100, 1000.0)
    places = one.registry.scope(
        policy_of(QuotaSpec(capacity=100, store="redis"), concurrency=rules), REQUEST, 0.0
    ).places
    assert places is not None
    lease: Any = places._fleet
    first = Waiting()
    places.ask(first, rules, one.now)
    await one.trip()
    assert places.ask(first, rules, one.now) == one.now
    await one.trip(later=5.0)
    assert lease.due == pytest.approx(one.now + beat)
    places.ask(Waiting(), rules, one.now + 0.01)
    assert lease.due == pytest.approx(one.now + (pause if crowd > 500 else 0.01))
    await one.trip(later=2.0)
    for _ in range(3):  # the limit has no more places than the process has said that it needs
        places.ask(Waiting(), rules, one.now)
    assert lease.due == pytest.approx(one.now + beat)


async def test_processes_ask_in_turn_about_what_all_are_told_of(redis_server: RedisServer, sidecars: Make) -> None:
    one, other = sidecars(redis_server, dead=10.0), sidecars(redis_server)
    assert one.store.turn == 0.0
    for each in (one, other):
        await each.store.open()
    async with asyncio.timeout(30):
        while {one.store.turn, other.store.turn} != {0.0, IN_TURN}:
            for each in (one, other):
                each.now += 0.3
                await each.store.look()
    for each in (one, other):
        weather = each.registry.scope(policy_of(QuotaSpec(capacity=100, store="redis")), REQUEST, each.now).governor
        known = weather.lanes.fleet._weathers  # type: ignore[union-attr]
        assert all(math.isinf(bucket.due) for bucket in known.values())
        weather.lanes.fleet.look(("", ALL_CALLERS), each.now)  # type: ignore[union-attr]
        assert known["", ALL_CALLERS].due == each.now + each.store.turn
