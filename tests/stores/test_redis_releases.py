"""Two releases on one Redis, as in a rolling upgrade and back: each goes on with what the other left there.

Of a release its scripts are kept, and what they left in Redis. `Earlier` says to them what that release said. The rule
is in docs/guides/upgrading.md.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as client_library
from callers import cooling
from fleet import Sidecar, policy_of
from paying import Calls, check, live, until
from support.redis_server import RedisServer, needs_redis

from proxy.retry.facts import Request
from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.stores.redis.bucket import FORGET, SCHEMA, key_of
from proxy.stores.redis.client import SCRIPTS

Make = Callable[..., Sidecar]
RELEASES = Path(__file__).parent / "releases"
FOLDERS = sorted(RELEASES.iterdir())
PREFIX = "redrive:"
QUOTA, RATE = QuotaSpec(20, store="redis"), RateSpec(2.0, 10.0, store="redis")
THROTTLE, BUDGET = ThrottleSpec(store="redis"), BudgetSpec(store="redis")
#: As 0.1 called them.
KEYS: dict[str, BucketSpec] = {
    "redrive:1:{quota:570347a3cfe1f0d6}": QUOTA,
    "redrive:1:{throttle:b13c26ca965338e8}": THROTTLE,
    "redrive:1:{rate:b5815a5e2b82f624}": RATE,
    "redrive:1:{budget:733d08f6dca2e6b5}": BUDGET,
}


class Earlier:
    """A holder of an earlier release: says to that release's scripts what it said, in the order of schema 1."""

    def __init__(self, server: RedisServer, folder: Path, holder: str = "earlier") -> None:
        self.client = client_library.Redis.from_url(server.url, protocol=2)
        self._scripts = {file.stem: file.read_text() for file in folder.glob("*.lua")}
        self._holder = holder
        self._sequence = 0
        self._made = ""
        self.spent = self.changed = self.lease = 0.0

    async def run(self, script: str, key: str, *arguments: object) -> list[bytes]:
        texts = [repr(float(each)) if isinstance(each, int | float) else str(each) for each in arguments]
        return await self.client.eval(self._scripts[script], 1, key, *texts)

    async def tokens(
        self, key: str, capacity: float, *, asked: float = 0, keep: float = 0, known: Any = "", rate: float = 0
    ) -> float:
        """Report, and ask for so many tokens; the level."""
        self._sequence += 1
        said = self._sequence, self._made, self.spent, self.changed, self.spent, self.changed, keep, asked, 0
        reply = await self.run("tokens", key, self._holder, *said, known, capacity, capacity, rate, "new", 10, FORGET)
        self._made = reply[0].decode()
        self.lease, pool, leased = map(float, reply[1:])
        return pool + leased


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
async def earlier(request: Any, redis_server: RedisServer) -> Any:
    made = Earlier(redis_server, request.param)
    await made.client.flushall()
    yield made
    await made.client.aclose()


def test_a_release_finds_the_buckets_of_the_one_before() -> None:
    for key, spec in KEYS.items():
        name = key.partition("{")[2].partition(":")[0]
        assert key_of(PREFIX, ("", name), spec) == key
    assert SCHEMA == 1, "a folder of the release that had the schema before is to say what becomes of its keys"


@dataclass(frozen=True, slots=True)
class Quota2(QuotaSpec):
    """As a later release may know it."""

    later: float = 1.0


def test_a_field_of_a_later_release_changes_a_key_only_where_it_is_set() -> None:
    where = PREFIX, ("", "quota")
    assert [each.name for each in fields(Quota2)][-1] == "later"
    assert key_of(*where, Quota2(20, store="redis")) == key_of(*where, QUOTA) == key_of(*where, QuotaSpec(20.0))
    assert key_of(*where, Quota2(20, store="redis", later=2.0)) != key_of(*where, QUOTA)


@needs_redis
async def test_what_a_release_left_is_gone_on_with(earlier: Earlier, redis_server: RedisServer, sidecars: Make) -> None:
    left = json.loads((FOLDERS[0] / "left.json").read_text())
    for key, hashed in left.items():
        packed = {
            name: struct.pack(*next((form, *numbers) for form, numbers in value.items()))
            if isinstance(value, dict)
            else value
            for name, value in hashed.items()
        }
        await earlier.client.hset(key, mapping=packed)
    here = sidecars(redis_server, prefix=PREFIX)
    quota, throttle, rate = (here.bucket(spec, spec.kind) for spec in (QUOTA, THROTTLE, RATE))
    for bucket in (quota, throttle, rate):
        here.store.soon(bucket, here.now)
    await here.trip()
    # The lease of a holder that is silent comes back; a level that nobody touched is what it was.
    assert (quota.level(here.now), throttle.level(here.now), rate.level(here.now)) == (15, 7, 4)
    assert here.notices == []


@needs_redis
async def test_two_releases_side_by_side_spend_one_quota_and_back(
    earlier: Earlier, redis_server: RedisServer, sidecars: Make
) -> None:
    key, here = key_of(PREFIX, ("", "quota"), QUOTA), sidecars(redis_server, prefix=PREFIX)
    bucket = here.bucket(QUOTA, "quota")
    assert await earlier.tokens(key, 20, asked=10) == 20
    earlier.spent = 10.0  # of its lease
    assert [await here.granted(bucket, 5, fresh=False) for _ in range(4)] == [True, True, False, False]
    await here.close()  # back to the earlier release: what was leased is given back, what was spent is gone
    assert await earlier.tokens(key, 20, asked=5) == 0
    assert earlier.lease == 0
    assert here.notices == []


@needs_redis
async def test_two_releases_side_by_side_spend_one_rate(
    earlier: Earlier, redis_server: RedisServer, sidecars: Make
) -> None:
    """The earlier release knows no parts: from its first message on there are none, and back when it is gone."""
    spec, sent = RateSpec(100.0, 40.0, store="redis"), []
    key = key_of(PREFIX, ("", "fleet"), spec)
    loop = asyncio.get_running_loop()
    fleet = await live(sidecars, redis_server, 2, prefix=PREFIX)
    rates = [each.bucket(spec) for each in fleet]
    calls = [Calls(rate, sent) for rate in rates for _ in range(4)]
    for each in calls:
        each.ask()
    await until(lambda: sum(rate.lease.part for rate in rates) > 80)
    begun = len(sent)
    async with asyncio.timeout(60):
        while len(sent) < begun + 300:
            await earlier.tokens(key, 40, asked=1, rate=100)
            if earlier.lease >= 1:
                earlier.spent += 1
                sent.append(loop.time())
            await asyncio.sleep(0.01)
    assert [rate.lease.part for rate in rates] == [0, 0]
    for each in calls:
        each.stop()
    check(sorted(sent), spec.rate, 2 * spec.burst)
    assert earlier.spent > 20
    assert [each.notices for each in fleet] == [[], []]


@needs_redis
async def test_two_releases_side_by_side_know_one_throttle(
    earlier: Earlier, redis_server: RedisServer, sidecars: Make
) -> None:
    key, here = key_of(PREFIX, ("", "throttle"), THROTTLE), sidecars(redis_server, prefix=PREFIX)
    throttle = here.bucket(THROTTLE, "throttle")
    await earlier.tokens(key, 10_000)
    earlier.changed = -4000.0
    # What it reports is cumulative, what it had reported before is kept in its record.
    assert await earlier.tokens(key, 10_000) == 6000
    throttle.failed(here.now)
    await here.trip(later=0.2)
    assert throttle.level(here.now) == 5
    assert await earlier.tokens(key, 10_000) == 5000


@needs_redis
async def test_two_releases_side_by_side_count_one_budget(
    earlier: Earlier, redis_server: RedisServer, sidecars: Make
) -> None:
    key, here = key_of(PREFIX, ("", "budget"), BUDGET), sidecars(redis_server, prefix=PREFIX)
    bucket = here.bucket(BUDGET, "budget")
    said = "earlier", 1, "", 100, 12, 0, 0, 0, "", "", "", 10, 20, 10, "new", 10, FORGET
    await earlier.run("budget", key, *said)
    assert await here.granted(bucket, 1, fresh=False)
    assert bucket.level(here.now) == 20 - 12 - 1
    await here.trip(later=0.2)
    reply = await earlier.run("budget", key, "earlier", 2, "new", *said[3:])
    assert [float(each) for each in reply[1:3]] == [100, 13]


@needs_redis
async def test_a_cooldown_of_either_release_holds_the_callers_of_both(
    earlier: Earlier, redis_server: RedisServer, sidecars: Make
) -> None:
    one, two = (sidecars(redis_server, prefix=PREFIX) for _ in range(2))
    request = Request("GET", "u.test", "/")
    for each in (one, two):
        await each.store.open()
        each.governor = each.registry.scope(policy_of(QUOTA), request, each.now).governor
    one.factory.listen()
    await one.factory.listening.wait()
    two.governor.requests_wait(cooling(), 503, 5.0, sent=two.now, now=two.now, whole=True)
    await two.store.round_trip()
    key = f"{PREFIX}{SCHEMA}:{{cooldowns}}"
    ((field, value),) = (await earlier.client.hgetall(key)).items()
    place, group = field.decode().split()  # as 0.1 reads it
    until, status = value.decode().split()
    assert float(until) > 0 and status == "503"
    # A longer one of the earlier release; and one that says more than is known here.
    await earlier.run("cooldown", key, place, group, f"{PREFIX}{SCHEMA}:cooldowns", "429", "60.0")
    await earlier.client.publish(f"{PREFIX}{SCHEMA}:cooldowns", f"{place} {group} 429 90.0 more words")
    async with asyncio.timeout(20):
        while one.governor.lanes.seconds_left(one.now) < 80:
            await one.store.look()
    assert one.notices == two.notices == []


def test_no_script_of_a_release_is_forgotten() -> None:
    assert {file.stem for folder in FOLDERS for file in folder.glob("*.lua")} <= set(SCRIPTS)
