"""A rate that a reload changes, while calls of several workers wait at the former one."""

from __future__ import annotations

import pytest
from fleet import REQUEST, policy_of

from proxy.retry.policies.bucket_specs import BucketRef, RateSpec
from proxy.retry.queues.waiter import Waiter
from proxy.retry.scopes.registry import Registry
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.records import Memory

BEFORE = RateSpec(20.0, 5)


class Waiting(Waiter):
    """A call that waits."""

    def retime(self, at: float) -> None:
        """Take no note of it: the test's steps ask for each call."""


def reload(worker: Registry, spec: RateSpec, now: float) -> None:
    factory = worker._factory
    assert isinstance(factory, SharedFactory)
    factory.generation += 1
    worker.forget_policies(lambda _: [policy_of(spec)], {"fleet": BucketRef(spec, "fleet")}, now)


@pytest.mark.parametrize("after", [RateSpec(10.0, 5), RateSpec(40.0, 5), RateSpec(10.0, 5, when_empty="reject")])
def test_calls_at_the_former_rate_and_new_calls_keep_the_higher_rate(own_memory: Memory, after: RateSpec) -> None:
    """The new calls are one worker's alone: what waits in the others is charged all the same."""
    workers = [Registry(SharedFactory(own_memory)) for _ in range(3)]
    former = [worker.scope(policy_of(BEFORE), REQUEST, 0.0).rates[0] for worker in workers]
    while former[0].take(0.0):
        pass
    waiting = [Waiting() for _ in former]
    for rate, waiter in zip(former, waiting, strict=True):
        rate.gate.join(waiter, 0.0)
    for worker in workers:
        reload(worker, after, 0.0)
    new = workers[0].scope(policy_of(after), REQUEST, 0.0).rates[0]
    given = 0
    for now in (step / 100 for step in range(1001)):
        given += sum(rate.take(now) for rate in former) + new.take(now)
    assert given == pytest.approx(10 * max(BEFORE.rate, after.rate), abs=after.burst + 1)
    level = new.level(100.0)
    assert former[1].take(100.0) and new.level(100.0) == level - 1
    former[1].give_back(100.0)
    assert new.level(100.0) == level
