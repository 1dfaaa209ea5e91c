"""Sidecars that share buckets through one real Redis, without their processes.

Round trips happen when a test says so (`trip`), or by themselves after `open`. Each sidecar's own clock is the test's;
what Redis does goes by its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from proxy.retry.budgets.buckets import ASK, Bucket
from proxy.retry.facts import Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import Registry
from proxy.stores.redis.absence import OnOutage
from proxy.stores.redis.factory import RedisFactory
from proxy.stores.redis.store import RedisStore

_prefixes = itertools.count()
STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "none"))
REQUEST = Request("GET", "u.test", "/")


def draw_prefix() -> str:
    """Keys that no other test uses."""
    return f"test{next(_prefixes)}:"


def policy_of(spec: BucketSpec, name: str = "fleet", **more: Any) -> Policy:
    ref = BucketRef(spec, name)
    if spec.kind == "rate":
        return Policy("u", "", STANDARD, None, rate=ref, **more)
    return Policy("u", "", STANDARD, ref, **more)


class Sidecar:
    """One process's store, as the process uses it."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        timeout: float = 5.0,
        on_outage: OnOutage = "local",
        dead: float = 10.0,
        observes: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.now = 1000.0
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self.heard = asyncio.Condition()
        self.store = RedisStore(
            url,
            timeout=timeout,
            on_outage=on_outage,
            clock=clock or (lambda: self.now),
            notify=self._notify,
            dead=dead,
            observes=observes,
        )
        self.factory = RedisFactory(Factory(), self.store, prefix, clock or (lambda: self.now))
        self.factory.upstreams = frozenset({"u"})
        self.registry = Registry(self.factory)
        self._states = asyncio.Queue[str]()

    def _notify(self, event: str, lines: list[str], **facts: Any) -> None:
        self.notices.append((lines[0], facts))
        self._states.put_nowait(facts["state"])

    async def until(self, state: str) -> None:
        """Until it says that Redis is out, or back."""
        async with asyncio.timeout(20):
            while await self._states.get() != state:
                pass

    def bucket(self, spec: BucketSpec, name: str = "fleet") -> Any:
        scope = self.registry.scope(policy_of(spec, name), REQUEST, self.now)
        return scope.rates[0] if spec.kind == "rate" else scope.bucket

    async def trip(self, *, later: float = 0.0) -> None:
        """One round trip, with all that is due by then."""
        self.now += later
        await self.store.round_trip()

    async def granted(self, bucket: Bucket, price: float = 5, *, fresh: bool = True) -> bool:
        """What a call is told that needs a retry: from what is here, or after asking (always, if not `fresh`)."""
        if not fresh:
            self.now += 0.2
        elif bucket.take(price, self.now):
            return True
        if bucket.affords(price, self.now) != ASK:
            return False
        answers: list[bool] = []
        bucket.ask(price, self.now, self.now, lambda _, granted: answers.append(granted))
        await self.trip()
        (answer,) = answers
        return answer

    async def close(self) -> None:
        await self.factory.close()
