"""What deciding costs a call that succeeds at once: `python bench/core.py`. No sockets, no observers.

Prints the lowest of several repeats, which is the figure that neighbours on the machine disturb least.
"""

from __future__ import annotations

import random
import timeit

from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, MappingFields, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.retry.strategies.backoff import delay

POLICY = Policy(
    "upstream",
    "",
    Strategy("standard", "standard", 3, Backoff(0.1, 20)),
    BucketRef(QuotaSpec()),
    classify=Classify(statuses={503: Class.TRANSIENT}),
)
FIELDS = MappingFields([("content-type", "text/plain"), ("content-length", "13")])
FAILED = Reply(503, FIELDS)


def at_once(registry: Registry, env: Env) -> None:
    """Scope, call, launch, a 200, its end: with a quota that takes the success."""
    request = Request("GET", "api.example", "/", FIELDS, plain=True)
    call = Call(request, POLICY, registry.scope(POLICY, request), env)
    call.start(0.0)
    call.head(1, Reply(200, FIELDS), 0.0)
    call.ended(1, 0.0)


def retried(registry: Registry, env: Env) -> None:
    """The same with a 503 first: classified, paid for, waited for, given back."""
    request = Request("GET", "api.example", "/", FIELDS, plain=True)
    call = Call(request, POLICY, registry.scope(POLICY, request), env)
    call.start(0.0)
    call.head(1, FAILED, 0.0)
    call.woke(1.0)
    call.head(2, Reply(200, FIELDS), 1.0)
    call.ended(2, 1.0)


def main() -> None:
    """Measure and print."""
    registry, env = Registry(), Env(random.Random(7))
    number = 20_000
    for name, run in (("a call that succeeds at once", at_once), ("a call that is retried once", retried)):
        best = min(timeit.repeat(lambda run=run: run(registry, env), number=number, repeat=9))  # type: ignore[misc]
        print(f"{name:32} {best / number * 1e6:6.2f} us")
    best = min(timeit.repeat(lambda: delay(POLICY.strategy.backoff, 3, 0.5), number=number, repeat=9))
    print(f"{'one backoff':32} {best / number * 1e6:6.2f} us")


if __name__ == "__main__":
    main()
