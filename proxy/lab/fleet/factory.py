"""The factories of a simulation's sidecars: buckets in a Redis that is played if the policy says so, else in memory."""

from __future__ import annotations

import random

from proxy.lab.fleet.played_redis import PlayedRedis
from proxy.lab.fleet.played_store import PlayedStore
from proxy.retry.bucket_specs import BucketSpec, RateSpec
from proxy.retry.buckets import Bucket, RateBucket
from proxy.retry.factory import Factory, Key
from proxy.stores.redis.absence import OnOutage
from proxy.stores.redis.making import is_shared, make_bucket, make_rate
from proxy.stores.redis.members import RedisMembers

#: The beginning of all keys.
_PREFIX = ""


class PlayedFleet:
    """The sidecars of a simulation that keep buckets in one Redis. `timeout` and `on_outage` are the configuration's;
    `seed` seeds what the sidecars draw.
    """

    def __init__(self, redis: PlayedRedis, *, timeout: float, on_outage: OnOutage, seed: str) -> None:
        self.redis = redis
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

    @property
    def store(self) -> PlayedStore:
        """The sidecar's store."""
        if self._store is None:
            self._store = self._fleet.make_store()
        return self._store

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
