"""The factory of the objects that machines share: those whose definition says so are made in Redis, and the inner
factory makes the others.

Redis keeps buckets whose definition says `store: redis`, and the cooldowns of upstreams that use such a bucket. A
cooldown that a call of this process starts is published. A cooldown that another process publishes holds the calls of
this process too, and never shortens one that this process has already. A credential that is put aside and an endpoint
that refuses connections are published too (`news`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from weakref import WeakValueDictionary

from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.policies.bucket_specs import BucketSpec, RateSpec
from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.credentials import Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.governor import Governor
from proxy.stores.redis.bucket import space
from proxy.stores.redis.client import RedisClient
from proxy.stores.redis.concurrency import PlaceLease
from proxy.stores.redis.making import is_shared, make_bucket, make_rate
from proxy.stores.redis.members import RedisMembers
from proxy.stores.redis.news import FleetNews
from proxy.stores.redis.rate import RedisRate
from proxy.stores.redis.scopes import FleetScopes, name_of
from proxy.stores.redis.store import RedisStore

#: Seconds between attempts to subscribe.
_LISTEN_AGAIN = 1.0


class RedisFactory(Factory):
    """The factory of buckets and cooldowns in Redis; `inner` makes everything else. `prefix`: the text before the names
    of keys and channels, from the configuration. `upstreams`: the upstreams whose cooldowns the fleet shares.
    """

    def __init__(self, inner: Factory, store: RedisStore, prefix: str, clock: Callable[[], float]) -> None:
        self.inner = inner
        self.store = store
        self.upstreams: frozenset[str] = frozenset()
        self._prefix = prefix
        self._clock = clock
        self._channel_to = f"{space(prefix)}to:"  # what the names of the processes' own channels begin with
        self._leases: WeakValueDictionary[str, PlaceLease] = WeakValueDictionary()  # by their keys
        self._rates: WeakValueDictionary[str, RedisRate] = WeakValueDictionary()  # by their keys
        self._news = FleetNews(store, prefix, clock)
        self.scopes = FleetScopes(store, prefix, self._news, clock)
        self._listener: asyncio.Task[None] | None = None
        #: Set while the subscription is open and the cooldowns in force are known.
        self.listening = asyncio.Event()
        store.returned.append(self._listen_anew)
        if not store.observes:
            self._members = RedisMembers(store, prefix)
            store.join(self._members)

    # -- proxy.retry.scopes.factory.Factory ----------------------------------------------------------------------------

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if not is_shared(spec):
            return self.inner.bucket(key, spec, before, now)
        return make_bucket(self.store, self._prefix, key, spec, before, now)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        if not is_shared(spec):
            return self.inner.rate(key, spec, before, now)
        made = make_rate(self.store, self._prefix, key, spec, before, now, self._channel_to)
        self._rates[made.key] = made
        return made

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        return self.inner.limiter(key, now)  # each machine's own

    def hedges(self, key: Key, now: float) -> Hedges:
        return self.inner.hedges(key, now)  # each machine's own

    def breaker(self, key: Key, spec: BreakerSpec, before: CircuitBreaker | None) -> CircuitBreaker:
        return self.inner.breaker(key, spec, before)  # each machine's own

    def seen(self, upstream: str, value: str) -> SeenKeys:
        return self.inner.seen(upstream, value)  # each machine's own

    def places(self, key: Key, most: int) -> Places:
        return self.inner.places(key, most)

    def share_places(self, key: Key, places: Places) -> None:
        """Have Redis lease places to this process, if the fleet shares the limits of the key's upstream."""
        if str(key[0]) in self.upstreams and not self.store.observes:
            where = f"{space(self._prefix)}{{places:{name_of(*key)}}}"
            lease = PlaceLease(places, self.store, where, self._channel_to, self._clock())
            self.store.add(lease)
            self._leases[where] = lease

    def load(self, key: Key) -> Places:
        return self.inner.load(key)  # each machine's own

    def roster(self, upstream: str) -> Roster:
        return self.inner.roster(upstream)

    def share_roster(self, upstream: str, roster: Roster) -> None:
        """Have a credential of this upstream that is put aside put aside in the whole fleet."""
        if upstream in self.upstreams:
            self._news.share_roster(upstream, roster)

    def share_endpoints(self, upstream: str, group: EndpointGroup) -> None:
        """Share with the fleet which endpoints of this upstream refuse connections: publish what this process finds
        out, and take over what other processes publish.
        """
        self.inner.share_endpoints(upstream, group)
        if upstream in self.upstreams:
            self._news.share_endpoints(upstream, group)

    def governor(self, upstream: str, value: str) -> Governor:
        return self.inner.governor(upstream, value)

    def share_governor(self, upstream: str, value: str, governor: Governor) -> None:
        """Share what the governor of the scope of `upstream` with the scope value `value` finds out. If the fleet has a
        cooldown in force for the scope, the governor holds calls by it from the start.
        """
        if upstream in self.upstreams:
            self.scopes.share(governor, upstream, value)

    def use(self, upstreams: frozenset[str]) -> None:
        """Share the cooldowns of these upstreams from now on, and those of no other."""
        for upstream in self.upstreams - upstreams:
            self.scopes.share_no_more(upstream)
            self._news.share_no_more(upstream)
        self.upstreams = upstreams

    def announce(self, upstream: str, value: str) -> None:
        self.inner.announce(upstream, value)

    def forget(self, upstream: str, value: str) -> None:
        """Forget the governor of the scope of `upstream` with the scope value `value`. Cooldowns of the scope that
        begin elsewhere from now on are kept as those of a scope that no call has used.
        """
        self.scopes.forget(upstream, value)

    # -- cooldowns of others ----------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to receive the fleet's cooldowns, if any upstream shares them."""
        if self._listener is None and self.upstreams:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """Stop listening, return leases, and close the store."""
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._listener
        await self.store.close()

    async def replaced(self) -> None:
        """Close the store, because another one takes its place; calls that use its buckets go on without it."""
        await self.close()
        self.store.retire(self._clock())

    def _listen_anew(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        self.listen()

    async def _listen(self) -> None:
        """Receive cooldowns as they begin, and those in force whenever the subscription begins."""
        while True:
            if self.store.client is not None:
                with contextlib.suppress(Exception):  # the store reports what is wrong with Redis
                    await self._hear(self.store.client)
                self.listening.clear()
            await asyncio.sleep(_LISTEN_AGAIN)  # noqa: TID251 - no call waits for it

    async def _hear(self, client: RedisClient) -> None:
        own = self._channel_to + self.store.holder
        async for heard in client.listen(self.scopes.channel, self._news.channel, own):
            if heard is not None:
                channel, message = heard
                if channel == self._news.channel:
                    self._news.hear(message)
                elif channel == own:
                    self._hear_own(message)
                else:
                    self.scopes.hear(message)
                continue
            server, known = await client.fields(self.scopes.in_force)
            self.scopes.hear_all(known, server)
            server, facts = await client.fields(self._news.key)
            self._news.hear_all(facts, server)
            self.listening.set()

    def _hear_own(self, message: bytes) -> None:
        """Handle a message for this process alone: that it is to report what it uses of a rate, or how many places
        Redis now leases to it under one limit.
        """
        first, _, called = message.decode().partition(" ")
        if first == "part":
            rate = self._rates.get(called)
            if rate is not None:
                rate.called(self._clock())
            return
        lease, share, version, key = message.decode().split(maxsplit=3)
        found = self._leases.get(key)
        if found is not None:
            found.published(int(lease), float(share), float(version), self._clock())
