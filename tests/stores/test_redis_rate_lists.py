"""A list of rates that a fleet shares: an attempt pays all in one step, and no two processes wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fleet import REQUEST, STANDARD, Sidecar
from paying import Alarmed, Calls, check, live, until
from support.redis_server import RedisServer, needs_redis

from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec
from proxy.retry.policies.policy import Policy

pytestmark = needs_redis
Make = Callable[..., Sidecar]


class Payer(Alarmed):
    """A call that pays a list of rates; when it is sent, the next comes. `tokens`: its price in a model's tokens."""

    def __init__(self, rates: Rates, sent: list[float], tokens: float = 1.0) -> None:
        super().__init__()
        self._rates, self._sent, self.estimate = rates, sent, Estimate(prompt=tokens, output=0.0)
        self.answer = 0.0

    def ask(self, due: float = 0.0) -> None:
        while not self.stopped:
            now = self._loop.time()
            self.answer = self._rates.ask(self, now)
            if self.answer > now:
                self.retime(self.answer)
                return
            self._sent.append(now)


def rates_of(sidecar: Sidecar, *specs: tuple[str, RateSpec]) -> Rates:
    first, *more = (BucketRef(spec, name) for name, spec in specs)
    policy = Policy("u", "", STANDARD, None, rate=first, more_rates=tuple(more))
    rates = sidecar.registry.scope(policy, REQUEST, asyncio.get_running_loop().time()).rate
    assert isinstance(rates, Rates)
    return rates


@pytest.mark.parametrize("burst", [1, 10, 60], ids=["one token", "few", "parts"])
async def test_processes_that_name_them_in_another_order_are_all_served(
    own_redis: RedisServer, sidecars: Make, burst: int
) -> None:
    """With a burst of one, each could hold the only token that the other waits for."""
    sent: list[float] = []
    one, other = ("one", RateSpec(100.0, burst, store="redis")), ("other", RateSpec(80.0, burst, store="redis"))
    fleet = await live(sidecars, own_redis, 4)
    lists = [rates_of(each, *((one, other) if place % 2 else (other, one))) for place, each in enumerate(fleet)]
    payers = [Payer(rates, sent) for rates in lists for _ in range(3)]
    for each in payers:
        each.ask()
    await until(lambda: len(sent) >= burst + 150)
    for each in payers:
        each.stop()
    check(sent, 80.0, burst + 1)
    assert [each.notices for each in fleet] == [[]] * 4


async def test_a_models_tokens_and_calls_are_paid_together(own_redis: RedisServer, sidecars: Make) -> None:
    sent: list[float] = []
    calls = ("rpm", RateSpec(1000.0, 100, store="redis"))
    tokens = ("tpm", RateSpec(4000.0, 2000, store="redis", unit="tokens"))
    fleet = await live(sidecars, own_redis, 3)
    lists = [rates_of(each, calls, tokens) for each in fleet]
    payers = [Payer(rates, sent, 100.0) for rates in lists for _ in range(3)]
    for each in payers:
        each.ask()
    await until(lambda: len(sent) >= 100)
    for each in payers:
        each.stop()
    check(sent, 40.0, 21)


async def test_tokens_do_not_lie_with_calls_that_can_not_go(own_redis: RedisServer, sidecars: Make) -> None:
    """A process whose ten calls wait for one rate keeps no more of the other than one call needs."""
    first, second = await live(sidecars, own_redis, 2)
    plenty = ("plenty", RateSpec(0.001, 5, store="redis"))
    empty = ("to wait for", RateSpec(0.001, 5, initial=0, store="redis"))
    rates, others = rates_of(first, plenty, empty), second.bucket(plenty[1], "plenty")
    sent: list[float] = []
    payers = [Payer(rates, sent) for _ in range(10)]
    for each in payers:
        each.ask()
    await until(lambda: all(gate.bucket.heard_at > 0 for gate, _ in rates.gates if "plenty" in gate.bucket.key))
    call = Calls(others, [])
    call.ask()
    await until(lambda: call.count >= 4)
    call.stop()
    for each in payers:
        each.stop()
    assert sent == []


async def test_no_call_is_rejected_before_redis_has_answered(own_redis: RedisServer, sidecars: Make) -> None:
    (one,) = await live(sidecars, own_redis, 1)
    specs = [(name, RateSpec(0.001, 1, store="redis", when_empty="reject")) for name in ("a", "b")]
    rates, sent = rates_of(one, *specs), []
    payers = [Payer(rates, sent) for _ in range(2)]
    for each in payers:
        each.ask()
    await until(lambda: len(sent) == 1 and any(each.answer == REJECTED for each in payers))
    for each in payers:
        each.stop()
