"""Retries that ask Redis for their price, on a virtual clock: a bucket that is small for its fleet refuses none while
it is not spent, although its tokens are in the hands of many processes; and what has no reply when it is due is
decided without.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import proxy.lab.simulate.weather as weather
from proxy.lab.clock import ALARM, Clock
from proxy.lab.fleet.factory import PlayedFleet
from proxy.lab.fleet.played_redis import PlayedRedis
from proxy.retry.budgets.buckets import ASK, Bucket
from proxy.retry.facts import Class
from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec, ThrottleSpec
from proxy.stores.redis.absence import OnOutage

CAPACITY, PRICE, BACKOFF = 50.0, 5.0, 0.1
SIDECARS, RETRIES = 20, 290


def make_fleet(
    clock: Clock, sidecars: int, spec: BucketSpec, *outages: weather.RedisOutage, on_outage: OnOutage, seed: str = ""
) -> tuple[PlayedRedis, PlayedFleet, list[Any]]:
    """A Redis, its sidecars, and the bucket of each."""
    redis = PlayedRedis(clock, weather.SimulatedRedis(latency=0.002, outages=outages), sidecars)
    fleet = PlayedFleet(redis, timeout=0.05, on_outage=on_outage, seed=seed)
    factories = [fleet.factory() for _ in range(sidecars)]
    return redis, fleet, [each.bucket(("", "fleet"), spec, None, clock.now) for each in factories]


def run_to(clock: Clock, until: float) -> None:
    """Let everything happen until then, and let it be that time."""
    clock.at(until, ALARM, lambda: None)
    clock.run(until)


class Callers:
    """So many callers at a time, whose calls go to the sidecars in turn. Each call fails once, asks for the price of
    its retry as the machine does, and has success with it. `refused`: the retries that were refused.
    """

    def __init__(self, clock: Clock, buckets: list[Any], rng: random.Random) -> None:
        self.granted = self.refused = 0
        self._clock, self._buckets, self._rng = clock, buckets, rng
        self._left = RETRIES

    def call(self) -> None:
        if not self._left:
            return
        self._left -= 1
        bucket = self._buckets[self._left % len(self._buckets)]
        bucket.begin(self._clock.now)
        self._after(0.001, self._failed, bucket)

    def _after(self, seconds: float, what: object, *arguments: object) -> None:
        self._clock.at(self._clock.now + seconds * self._rng.uniform(1.0, 2.0), ALARM, what, *arguments)  # type: ignore[arg-type]

    def _failed(self, bucket: Bucket) -> None:
        now, due, paid = self._clock.now, self._clock.now + BACKOFF, list[bool]()
        if bucket.take(PRICE, now):
            paid.append(True)
        elif bucket.affords(PRICE, now) == ASK:
            bucket.ask(PRICE, due, now, lambda _, granted: paid.append(granted))
        else:
            paid.append(False)
        self._clock.at(due, ALARM, self._due, bucket, paid)

    def _due(self, bucket: Bucket, paid: list[bool]) -> None:
        if not paid:
            self._after(0.001, self._due, bucket, paid)
        elif paid[0] or bucket.take(PRICE, self._clock.now):
            self.granted += 1
            self._after(0.002, self._succeeded, bucket)
        else:
            self.refused += 1
            self.call()

    def _succeeded(self, bucket: Bucket) -> None:
        bucket.succeeded(PRICE, self._clock.now)
        self.call()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at_once", [3, 5, 7, 8])
def test_a_small_quota_refuses_no_retry_while_it_has_tokens(at_once: int, seed: int) -> None:
    """Each retry has its price for a tenth of a second: with eight at a time 40 of 50 tokens are paid."""
    clock = Clock()
    spec = QuotaSpec(capacity=CAPACITY, store="redis")
    redis, _, buckets = make_fleet(clock, SIDECARS, spec, on_outage="deny", seed=f"{seed}")
    callers = Callers(clock, buckets, random.Random(seed))
    for number in range(at_once):
        clock.at(clock.now + 12.0 + 0.001 * number, ALARM, callers.call)
    clock.run(clock.now + 60.0)
    assert (callers.granted, callers.refused) == (RETRIES, 0)
    kept: Any = redis._keys[buckets[0].key]
    assert (kept.pool, kept.leased) == (CAPACITY, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at_once", [3, 5])
def test_a_redis_that_is_always_late_refuses_no_retry(at_once: int, seed: int) -> None:
    """It runs for a quarter of the time, as on a machine that is short of processor time, and replies after up to 150
    ms: three times `timeout`.
    """
    clock = Clock()
    stops = [
        weather.RedisOutage(at=11.0 + 0.2 * number, until=11.15 + 0.2 * number, kind="silent", share=1.0, empty=False)
        for number in range(300)
    ]
    spec = QuotaSpec(capacity=CAPACITY, store="redis")
    _, fleet, buckets = make_fleet(clock, SIDECARS, spec, *stops, on_outage="share", seed=f"{seed}")
    callers = Callers(clock, buckets, random.Random(seed))
    for number in range(at_once):
        clock.at(clock.now + 12.0 + 0.001 * number, ALARM, callers.call)
    clock.run(clock.now + 60.0)
    assert (callers.granted, callers.refused) == (RETRIES, 0)
    assert [each.outages for each in fleet.stores] == [0] * SIDECARS


#: What each of these grants of four retries whose process is one of two that share a quota of 40, or a throttle above
#: its half, or a budget of two retries a second.
SPECS: dict[str, tuple[BucketSpec, dict[OnOutage, list[bool]]]] = {
    "quota": (
        QuotaSpec(capacity=40, retry_cost=10, store="redis"),
        {"share": [True, True, False, False], "local": [True] * 4, "deny": [False] * 4},
    ),
    "throttle": (
        ThrottleSpec(store="redis"),
        {"share": [True] * 4, "local": [True] * 4, "deny": [False] * 4},
    ),
    "budget": (
        BudgetSpec(percent=0, min_per_second=2, store="redis"),
        {"share": [True, False, False, False], "local": [True, True, False, False], "deny": [False] * 4},
    ),
}


@pytest.mark.parametrize("on_outage", ["share", "local", "deny"])
@pytest.mark.parametrize("kind", SPECS)
def test_what_has_no_reply_when_it_is_due_is_decided_then_and_redis_is_not_out(kind: str, on_outage: OnOutage) -> None:
    """Redis replies after 80 ms, which is later than `timeout`, and no outage."""
    spec, expected = SPECS[kind]
    clock = Clock()
    late = weather.RedisOutage(at=20.0, until=20.08, kind="silent", share=1.0, empty=False)
    redis, fleet, buckets = make_fleet(clock, 2, spec, late, on_outage=on_outage)
    for each in buckets:
        each.begin(clock.now)
    run_to(clock, 20.001)
    decided: list[tuple[float, bool]] = []
    bucket, price = buckets[0], buckets[0].price(Class.TRANSIENT)
    for due in (20.002, 20.002, 20.06, 20.07):
        bucket.ask(price, due, clock.now, lambda _, granted: decided.append((round(clock.now, 4), granted)))
    clock.run(20.0799)
    assert decided == list(zip((20.051, 20.051, 20.06, 20.07), expected[on_outage], strict=True))
    assert bucket.withheld() == ("Redis does not answer, and redis.on_outage is deny" if on_outage == "deny" else "")
    clock.run(25.0)
    assert (fleet.stores[0].outages, bucket.withheld()) == (0, "")
    if kind == "quota":
        spent = 10 * sum(granted for _, granted in decided)
        kept: Any = redis._keys[bucket.key]
        assert kept.pool + kept.leased == 40 - spent


@pytest.mark.parametrize(
    ("until", "decided_at", "granted"), [(20.4, 20.402, True), (25.0, 20.504, False)], ids=["late", "out"]
)
def test_a_process_without_a_whole_price_of_its_own_waits_for_redis_s_word(
    until: float, decided_at: float, granted: bool
) -> None:
    """Twenty processes share ten prices: ten of them have none in an outage, and a late reply is not one."""
    clock = Clock()
    silent = weather.RedisOutage(at=20.0, until=until, kind="silent", share=1.0, empty=False)
    spec = QuotaSpec(capacity=CAPACITY, store="redis")
    _, fleet, buckets = make_fleet(clock, SIDECARS, spec, silent, on_outage="share")
    run_to(clock, 20.001)
    with_a_price, without = list[Any](), list[Any]()
    for store, bucket in zip(fleet.stores, buckets, strict=True):
        (with_a_price if store.share_now(clock.now).rank < 10 else without).append(bucket)
    decided: list[tuple[float, bool]] = []
    for bucket in (with_a_price[0], without[0]):
        bucket.ask(PRICE, 20.002, clock.now, lambda _, granted: decided.append((round(clock.now, 3), granted)))
    clock.run(22.0)
    assert decided == [(20.051, True), (pytest.approx(decided_at, abs=0.002), granted)]


def test_a_reply_in_the_backoff_decides_though_it_is_late() -> None:
    clock = Clock()
    late = weather.RedisOutage(at=20.0, until=20.08, kind="silent", share=1.0, empty=False)
    _, _, (bucket, _) = make_fleet(clock, 2, QuotaSpec(capacity=40, store="redis"), late, on_outage="deny")
    run_to(clock, 20.001)
    decided: list[tuple[float, bool]] = []
    bucket.ask(5, 20.101, clock.now, lambda _, granted: decided.append((round(clock.now, 4), granted)))
    clock.run(21.0)
    assert decided == [(20.082, True)]


def test_what_was_decided_alone_is_part_of_the_share_of_an_outage_that_follows() -> None:
    """Of 40 tokens 20 are this process's; it has spent ten of them when the outage begins."""
    clock = Clock()
    gone = weather.RedisOutage(at=20.0, until=25.0, kind="silent", share=1.0, empty=False)
    _, fleet, (bucket, _) = make_fleet(
        clock, 2, QuotaSpec(capacity=40, retry_cost=10, store="redis"), gone, on_outage="share"
    )
    run_to(clock, 20.001)
    decided: list[bool] = []
    bucket.ask(10, 20.002, clock.now, lambda _, granted: decided.append(granted))
    clock.run(21.0)
    assert (decided, fleet.stores[0].out) == ([True], True)
    assert [bucket.take(10, clock.now) for _ in range(2)] == [True, False]
