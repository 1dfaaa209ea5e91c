"""Makes what calls share, where the fleet shares it: in Redis what says so, elsewhere by whoever made it until now.

Redis keeps buckets whose definition says `store: redis`, and the cooldowns of upstreams that use one; everything
else stays where it was. A cooldown that a call of this process starts is published; one that is heard of holds the
calls of this process too, and is never shortened by what is heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable

from proxy.retry.buckets import Bucket, BudgetBucket, RateBucket
from proxy.retry.cooldown import Cooldown
from proxy.retry.cubic_limiter import CubicLimiter
from proxy.retry.policy import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.registry import MOST_SCOPES, Factory, Key, SeenKeys
from proxy.retry.slow_start import SlowStart
from proxy.stores.redis.bucket import RedisBucket, key_of
from proxy.stores.redis.client import Command, RedisClient
from proxy.stores.redis.levels import RedisBudget, RedisThrottle
from proxy.stores.redis.places import RedisPlaces
from proxy.stores.redis.quota import RedisQuota
from proxy.stores.redis.rate import RedisRate
from proxy.stores.redis.store import RedisStore

#: Seconds between tries to listen.
_LISTEN_AGAIN = 1.0


class RedisFactory(Factory):
    """`inner` makes what is not in Redis. `upstreams` are those whose cooldowns the fleet shares."""

    def __init__(self, inner: Factory, store: RedisStore, prefix: str, clock: Callable[[], float]) -> None:
        self.inner = inner
        self.store = store
        self.upstreams: frozenset[str] = frozenset()
        self._prefix = prefix
        self._clock = clock
        self._cooldowns: OrderedDict[str, Cooldown] = OrderedDict()
        self._heard: OrderedDict[str, dict[bytes, tuple[float, int]]] = OrderedDict()  # of places not used here yet
        self._listener: asyncio.Task[None] | None = None
        #: Cooldowns are heard of, and those in force are known.
        self.listening = asyncio.Event()
        store.returned.append(self._listen_anew)

    # -- proxy.retry.registry.Factory ----------------------------------------------------------------------------------

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if not _shared(spec):
            return self.inner.bucket(key, spec, before, now)
        if before is not None and self._is_mine(before) and before.spec == spec:
            return before
        where = key_of(self._prefix, key, spec)
        share = before.share(now) if before is not None else None
        made: RedisQuota | RedisThrottle | RedisBudget
        match spec:
            case QuotaSpec():
                made = RedisQuota(spec, self.store, where, None if share is None else share * spec.capacity)
            case ThrottleSpec():
                made = RedisThrottle(spec, self.store, where, None if share is None else share * spec.max_tokens)
            case BudgetSpec():
                made = RedisBudget(spec, self.store, where, before if isinstance(before, BudgetBucket) else None)
            case _:
                raise TypeError("a bucket of kind rate is a gate for attempts: `rate`")
        self._add(made, now)
        return made

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        if not _shared(spec):
            return self.inner.rate(key, spec, before, now)
        if before is not None and self._is_mine(before) and before.spec == spec:
            return before
        known = None
        if before is not None and before.capacity > 0:
            known = before.level(now) / before.capacity * spec.burst
        made = RedisRate(spec, self.store, key_of(self._prefix, key, spec), known, now)
        self._add(made, now)
        return made

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        """The adaptive limiter: each machine's own."""
        return self.inner.limiter(key, now)

    def cooldown(self, upstream: str, value: str) -> Cooldown:
        """The cooldown of this place; one that the fleet knows is in force at once."""
        cooldown = self.inner.cooldown(upstream, value)
        if upstream in self.upstreams:
            place = _place(upstream, value)
            self._cooldowns[place] = cooldown
            if len(self._cooldowns) > MOST_SCOPES:
                self._cooldowns.popitem(last=False)
            cooldown.fleet = _Telling(self, place, cooldown)
            for group, (until, status) in self._heard.pop(place, {}).items():
                self._hold(cooldown, group, until, status)
        return cooldown

    def seen(self, upstream: str, value: str) -> SeenKeys:
        """The seen keys: each machine's own."""
        return self.inner.seen(upstream, value)

    def _add(self, made: RedisBucket, now: float) -> None:
        self.store.add(made)
        if self.store.out:
            made.part(now)

    def _is_mine(self, bucket: Bucket | RateBucket) -> bool:
        return isinstance(bucket, RedisBucket) and bucket.store is self.store

    # -- cooldowns of others ----------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to hear of the fleet's cooldowns, where any upstream shares them."""
        if self._listener is None and self.upstreams:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """Stop listening, give leases back, let go."""
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._listener
        await self.store.close()

    def _listen_anew(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        self.listen()

    async def _listen(self) -> None:
        """Hear of cooldowns as they begin, and of those in force whenever listening begins."""
        while True:
            client = self.store.client
            if client is not None:
                with contextlib.suppress(Exception):  # the store tells of what is wrong with Redis
                    await self._hear(client)
                self.listening.clear()
            await _pause(_LISTEN_AGAIN)

    async def _hear(self, client: RedisClient) -> None:
        async for message in client.listen(f"{self._prefix}cooldowns"):
            if message is not None:
                place, group, status, delay = message.decode().split()
                self._begin(place, bytes.fromhex(group), int(status), float(delay))
                continue
            server, known = await client.fields(f"{self._prefix}{{cooldowns}}")
            for field, value in known.items():
                place, group = field.decode().split()
                until, status = value.decode().split()
                self._begin(place, bytes.fromhex(group), int(status), float(until) - server)
            self.listening.set()

    def _begin(self, place: str, group: bytes, status: int, delay: float) -> None:
        """A cooldown of this group began."""
        cooldown = self._cooldowns.get(place)
        until = self._clock() + delay
        if delay <= 0 or not math.isfinite(delay):
            return
        if cooldown is not None:
            self._hold(cooldown, group, until, status)
            return
        self._heard.setdefault(place, {})[group] = until, status
        if len(self._heard) > MOST_SCOPES:
            self._heard.popitem(last=False)

    def _hold(self, cooldown: Cooldown, group: bytes, until: float, status: int) -> None:
        now = self._clock()
        if until > now:
            cooldown.heed(group, status, until - now, now)

    def tell(self, place: str, group: bytes, status: int, delay: float) -> None:
        """Tell the fleet of a cooldown that began here."""
        channel = f"{self._prefix}cooldowns"
        self.store.send(
            Command("cooldown", f"{self._prefix}{{cooldowns}}", (place, group.hex(), channel, str(status), repr(delay)))
        )

    def places(self, place: str, name: bytes, group: SlowStart, cooldown: Cooldown) -> RedisPlaces:
        """This process's part of the places of one group."""
        made = RedisPlaces(group, cooldown, self.store, f"{self._prefix}{{cooldowns}}:{place}:{name.hex()}")
        self.store.add(made)
        return made


class _Telling:
    """Tells the fleet of one place's cooldown, and shares its places (`proxy.retry.cooldown.FleetCooldowns`)."""

    __slots__ = ("_cooldown", "_factory", "_place", "_places")

    def __init__(self, factory: RedisFactory, place: str, cooldown: Cooldown) -> None:
        self._factory = factory
        self._cooldown = cooldown
        self._place = place
        self._places: dict[bytes, RedisPlaces] = {}

    def adopt(self, name: bytes, group: SlowStart) -> None:
        self._places[name] = self._factory.places(self._place, name, group, self._cooldown)

    def forget(self, name: bytes) -> None:
        self._places.pop(name, None)

    def began(self, name: bytes, status: int, delay: float, *, sent: float, now: float) -> None:
        self._places[name].tell(sent, delay, now)
        self._factory.tell(self._place, name, status, delay)

    def asked(self, name: bytes, now: float) -> None:
        self._places[name].asked(now)


def _shared(spec: BucketSpec) -> bool:
    """Whether it is kept in Redis. A bucket without bounds has nothing to share."""
    return spec.store == "redis" and not (isinstance(spec, QuotaSpec) and math.isinf(spec.capacity))


def _place(upstream: str, value: str) -> str:
    return hashlib.blake2b(repr((upstream, value)).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)  # noqa: TID251 - between two tries to listen; no call waits for it
