"""The state that a process shares with its fleet: buckets and cooldowns in Redis, if the configuration names any.

The client library is loaded when a configuration first says `store: redis`, and not before. Nothing here is on a call's
path: `proxy.stores.redis` makes what calls use. A configuration that changes `redis:` gets a new store, and buckets
that start with the share of the former ones; the old store returns its leases and is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.config.settings import Settings
from proxy.extras import is_installed
from proxy.process import Background
from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.policies.bucket_specs import BucketSpec, RateSpec
from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.registry import Spec
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.credentials import Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.cooldown import CooldownBegan
from proxy.retry.weather.governor import Governor
from proxy.transport.clock import monotonic

if TYPE_CHECKING:
    from proxy.stores.redis.factory import RedisFactory

#: Seconds that a start waits for Redis before it goes on without.
_START = 1.0

Notify = Callable[..., None]
Met = Callable[[str, Key, Spec | None], None]


class Fleet(Factory):
    """The factory of the state that calls share, such as buckets and cooldowns: in Redis if the configuration says so,
    else made by `inner`.

    `notify` reports to the operator. `met` is called for each bucket in Redis that this process begins to use, so that
    the figures of several workers can be added up. If `observes` (the parent of the workers, which carries no calls),
    levels are read on request, cooldowns are not listened for, and nothing is reported. `heard` is called for each
    cooldown that began on another machine.
    """

    def __init__(
        self,
        inner: Factory,
        settings: Settings,
        notify: Notify,
        *,
        met: Met | None = None,
        observes: bool = False,
        heard: Callable[[CooldownBegan], None] = lambda began: None,
    ) -> None:
        self._inner = inner
        self._heard = heard
        self._notify = (lambda *_, **facts: None) if observes else notify
        self._met = met
        self._observes = observes
        self._redis: RedisFactory | None = None
        self._said: object = None
        self._past_outages = 0
        self._background = Background()
        self._change(settings)

    async def open(self) -> None:
        """Connect to Redis before the first call, and begin to receive the fleet's cooldowns. If Redis does not answer
        within a short time, the process starts without it.
        """
        if self._redis is not None and not self._observes:
            await self._redis.store.open(_START)
            self._redis.listen()

    def use(self, settings: Settings) -> frozenset[str]:
        """Take a new configuration: buckets that are made from now on follow it. If it has other settings for Redis,
        disconnect from the former Redis and connect to the new one. Returns the upstreams whose cooldowns are shared
        now and were not before, or the other way round, or that are shared in another Redis.
        """
        before, shared = self._redis, self._upstreams
        self._change(settings)
        if self._redis is before:
            return shared ^ self._upstreams
        if self._redis is not None:
            self._background.begin(self.open())
        return shared | self._upstreams

    def _change(self, settings: Settings) -> None:
        says = settings.redis if settings.uses_redis and is_installed("redis") else None
        if says != self._said:
            former = self._redis
            self._said = says
            if self._redis is not None:
                self._past_outages += self._redis.store.outages
                if says is None:
                    self._redis.store.given_up()
                self._background.begin(self._redis.replaced())
            self._redis = None
            if says is not None:
                from proxy.stores.redis.factory import RedisFactory
                from proxy.stores.redis.store import RedisStore

                store = RedisStore(
                    says.url,
                    timeout=says.timeout,
                    on_outage=says.on_outage,
                    clock=monotonic,
                    notify=self._notify,
                    observes=self._observes,
                )
                if former is not None:
                    store.take_over(former.store)
                self._redis = RedisFactory(self._inner, store, says.prefix, monotonic)
                self._redis.scopes.heard = self._heard
        self._upstreams: frozenset[str] = frozenset()
        if self._redis is not None and not self._observes:
            self._upstreams = settings.redis_upstreams
            self._redis.use(self._upstreams)
            if self._redis.store.client is not None:
                self._redis.listen()

    async def close(self) -> None:
        """Give the leased tokens back to Redis, and release the store."""
        if self._redis is not None:
            await self._redis.close()
        if self._background.tasks:
            await asyncio.wait(self._background.tasks, timeout=_START)

    async def refresh(self) -> None:
        """Read the levels of all buckets, for a page: one round trip, or none if Redis is not available."""
        if self._redis is not None:
            await self._redis.store.look()

    @property
    def is_up(self) -> bool | None:
        """Whether Redis is available; None if the configuration keeps nothing in Redis."""
        return None if self._redis is None else self._redis.store.out_since is None

    @property
    def outages(self) -> int:
        """The number of times that Redis became unavailable."""
        return self._past_outages + (self._redis.store.outages if self._redis is not None else 0)

    @property
    def _factory(self) -> Factory:
        return self._inner if self._redis is None else self._redis

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        made = self._factory.bucket(key, spec, before, now)
        if made is not before and spec.store == "redis" and self._met is not None:
            self._met("bucket", key, spec)
        return made

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        made = self._factory.rate(key, spec, before, now)
        if made is not before and spec.store == "redis" and self._met is not None:
            self._met("rate", key, spec)
        return made

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        return self._factory.limiter(key, now)

    def hedges(self, key: Key, now: float) -> Hedges:
        return self._factory.hedges(key, now)

    def breaker(self, key: Key, spec: BreakerSpec, before: CircuitBreaker | None) -> CircuitBreaker:
        return self._inner.breaker(key, spec, before)

    def governor(self, upstream: str, value: str) -> Governor:
        return self._factory.governor(upstream, value)

    def places(self, key: Key, most: int) -> Places:
        return self._factory.places(key, most)

    def load(self, key: Key) -> Places:
        return self._factory.load(key)

    def seen(self, upstream: str, value: str) -> SeenKeys:
        return self._factory.seen(upstream, value)

    def roster(self, upstream: str) -> Roster:
        return self._factory.roster(upstream)

    def share_governor(self, upstream: str, value: str, governor: Governor) -> None:
        self._factory.share_governor(upstream, value, governor)

    def share_places(self, key: Key, places: Places) -> None:
        self._factory.share_places(key, places)

    def share_roster(self, upstream: str, roster: Roster) -> None:
        self._factory.share_roster(upstream, roster)

    def share_endpoints(self, upstream: str, group: EndpointGroup) -> None:
        self._factory.share_endpoints(upstream, group)

    def announce(self, upstream: str, value: str) -> None:
        self._factory.announce(upstream, value)

    def forget(self, upstream: str, value: str) -> None:
        self._factory.forget(upstream, value)


class Outages:
    """The outages of Redis, as workers report them: an outage begins when the first worker reports Redis out, and ends
    when the last one has it back.
    """

    def __init__(self) -> None:
        self._out: set[int] = set()
        self.count = 0

    def is_news(self, pid: int, state: str) -> bool:
        """Take the report of the worker with this process id, whose `state` is `out` if it has lost Redis; return
        whether this begins or ends an outage, and so is worth a log line.
        """
        before = bool(self._out)
        (self._out.add if state == "out" else self._out.discard)(pid)
        if self._out and not before:
            self.count += 1
        return before != bool(self._out)

    def ended(self, pid: int) -> None:
        """Forget a worker that has ended."""
        self._out.discard(pid)

    @property
    def is_out(self) -> bool:
        """Whether any worker is without Redis."""
        return bool(self._out)
