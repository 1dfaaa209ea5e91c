"""The factories of a simulation's sidecars: buckets in a Redis that is played if the policy says so, else in memory."""

from __future__ import annotations

import random

from proxy.lab.clock import UPSTREAM
from proxy.lab.fleet.played_redis import PlayedRedis
from proxy.lab.fleet.played_store import PlayedStore
from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.policies.bucket_specs import BucketSpec, RateSpec
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.upstreams.credentials import Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.governor import Governor
from proxy.stores.redis.absence import OnOutage
from proxy.stores.redis.making import is_shared, make_bucket, make_rate
from proxy.stores.redis.members import RedisMembers
from proxy.stores.redis.news import FleetNews
from proxy.stores.redis.scopes import FleetScopes

#: The beginning of all keys.
_PREFIX = ""


class PlayedFleet:
    """The sidecars of a simulation that keep buckets in one Redis. `timeout` and `on_outage` are the configuration's.
    `seed` is the seed of the sidecars' random numbers. `upstreams`: the upstreams whose cooldowns, limits and outages
    the sidecars share.
    """

    def __init__(
        self,
        redis: PlayedRedis,
        *,
        timeout: float,
        on_outage: OnOutage,
        seed: str,
        upstreams: frozenset[str] = frozenset(),
    ) -> None:
        self.redis, self.upstreams = redis, upstreams
        self.stores: list[PlayedStore] = []
        self._timeout, self._on_outage = timeout, on_outage
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the sidecars' part

    def factory(self) -> Factory:
        """The factory of the next sidecar."""
        return _SidecarFactory(self)

    def make_store(self) -> PlayedStore:
        """Make the store of the next sidecar, which reports to the fleet from now on."""
        number, rng = len(self.stores), self._rng
        store = PlayedStore(self.redis, number, rng, timeout=self._timeout, on_outage=self._on_outage)
        store.join(RedisMembers(store, _PREFIX))
        self.stores.append(store)
        return store

    def end(self) -> None:
        """End all sidecars."""
        for each in self.stores:
            each.end()


class _SidecarFactory(Factory):
    """The factory of one sidecar. Its store is made with its first bucket in Redis."""

    def __init__(self, fleet: PlayedFleet) -> None:
        self._fleet = fleet
        self._store: PlayedStore | None = None
        self._news: FleetNews | None = None
        self._scopes: FleetScopes | None = None

    @property
    def store(self) -> PlayedStore:
        """The sidecar's store."""
        if self._store is None:
            self._store = self._fleet.make_store()
        return self._store

    @property
    def news(self) -> FleetNews:
        """The facts that the fleet tells this sidecar, and that this sidecar tells the fleet."""
        if self._news is None:
            self._news = FleetNews(self.store, _PREFIX, self._now)
            self.store.hear = self._hear
            self.store.returned.append(self._listen)
        return self._news

    @property
    def scopes(self) -> FleetScopes:
        """The scopes of its upstreams, as this sidecar shares them with its fleet."""
        if self._scopes is None:
            self._scopes = FleetScopes(self.store, _PREFIX, self.news, self._now)
        return self._scopes

    def _now(self) -> float:
        return self._fleet.redis.clock.now

    def _hear(self, channel: str, message: bytes) -> None:
        """Take in a message of a channel."""
        if channel == self.news.channel:
            self.news.hear(message)
        else:
            self.scopes.hear(message)

    def _listen(self) -> None:
        """Have this sidecar take over, a round trip later, all cooldowns and news that are in force in Redis, which is
        back now.
        """
        redis = self._fleet.redis
        redis.clock.at(self._now() + redis.latency, UPSTREAM, self._hear_all)

    def _hear_all(self) -> None:
        if self.store.hears:
            published, now = self._fleet.redis.published, self._now()
            self.scopes.hear_all(published(self.scopes.in_force), now)
            self.news.hear_all(published(self.news.key), now)

    def share_governor(self, upstream: str, value: str, governor: Governor) -> None:
        if upstream in self._fleet.upstreams:
            self.scopes.share(governor, upstream, value)

    def share_roster(self, upstream: str, roster: Roster) -> None:
        if upstream in self._fleet.upstreams:
            self.news.share_roster(upstream, roster)

    def share_endpoints(self, upstream: str, group: EndpointGroup) -> None:
        if upstream in self._fleet.upstreams:
            self.news.share_endpoints(upstream, group)

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if not is_shared(spec):
            return super().bucket(key, spec, before, now)
        return make_bucket(self.store, _PREFIX, key, spec, before, now)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        if not is_shared(spec):
            return super().rate(key, spec, before, now)
        made = make_rate(self.store, _PREFIX, key, spec, before, now)
        self.store.rates[made.key] = made
        return made
