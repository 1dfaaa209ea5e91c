"""The removal of idle scopes: a scope (a host, or a tenant) is removed if no call has come to it for an hour, and if a
new scope in its place would behave the same.

Law: no state that matters is forgotten. A scope is a candidate if no call came to it for IDLE seconds and no call still
uses its state. Of its shared objects only those are removed that equal new ones: a bucket or a rate at its initial
level, a governor that holds no call, a limiter that does not limit, hedges and seen keys whose window has passed, and
places without an attempt. So a quota that only successes refill is kept as long as its level is below or above the
initial one, however long no call comes. Such a bucket is examined again in each round.

Theory. A call sets a mark in its scope's state, and records no time. A sweep looks at AT_ONCE scopes, continuing where
the last sweep ended, and counts each marked scope as used at the time of the sweep. So a scope is removed between one
and two rounds after its hour. A process that only observes has no states of calls. There, a scope counts as used at the
last report of another process that uses it (`Registry.mirror`, `Factory.announce`), and is removed after twice the
time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from proxy.retry.budgets.buckets import Bucket, RateBucket, make_bucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.policies.bucket_specs import RateSpec
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.weather_changes import OBSERVED

#: Seconds without a call after which a scope is idle.
IDLE = 3600.0
#: Seconds after which a scope in use is reported again to observing processes.
_REPORT = IDLE / 2
#: The number of keys that a sweep examines.
AT_ONCE = 64
_EPSILON = 1e-9


class IdleScopes:
    """The remover of the states of scopes that a registry keeps and that no call has used for an hour. `only_looks`:
    this process makes no calls from the registry, and only observes those of other processes.
    """

    def __init__(self, registry: Registry, *, only_looks: bool = False) -> None:
        self._registry = registry
        self._idle = 2 * IDLE if only_looks else IDLE
        self._now = 0.0
        self._work: Iterator[object] = iter(())
        self._reported: dict[tuple[str, str], float] = {}

    def sweep(self, now: float) -> bool:
        """Examine the next scopes of the present round. Returns whether any are left in the round."""
        self._now = now
        for _ in range(AT_ONCE):
            if next(self._work, self) is self:
                self._work = self._round()
                return False
        return True

    def _round(self) -> Iterator[None]:
        registry = self._registry
        by_upstream: dict[str, list[dict[str, ScopeState]]] = {}
        for policy, states in registry._by_policy.items():
            by_upstream.setdefault(policy.upstream, []).append(states)
        for key in list(registry.last_used):
            yield
            self._look_at(key, by_upstream.get(key[0], []))
        tables: tuple[tuple[MutableMapping[Any, Any], Callable[[Any], bool]], ...] = (
            (registry._buckets, self._is_full),
            (registry._rates, self._is_full_rate),
            (registry._limiters, self._limits_not),
            (registry._hedges, self._hedges_not),
            (registry._under_way, self._is_unused),
        )
        for table, is_at_rest in tables:
            for key in list(table):
                yield
                if self._is_forgotten(key) and key in table and is_at_rest(table[key]):
                    del table[key]
        for place in list(registry._places):
            yield
            scope = place[0], place[1].removesuffix(OBSERVED)
            if scope[1] and scope not in registry.last_used and self._is_quiet(*registry._places[place]):
                del registry._places[place]
                registry.forget_scope(*place)

    def _look_at(self, key: tuple[str, str], tables: list[dict[str, ScopeState]]) -> None:
        """Forget the states of the scope `key` (upstream and scope value) if they are idle. `tables`: the states of the
        upstream's policies by scope value, one table for each policy.
        """
        registry, (upstream, value) = self._registry, key
        at = registry.last_used.get(key)
        holding = [table for table in tables if value in table]
        if at is None:
            return
        if sum(table[value].take_mark() for table in holding):
            registry.last_used[key] = self._now
            if self._now - self._reported.get(key, -_REPORT) >= _REPORT:
                self._reported[key] = self._now
                registry.announce(upstream, value)
            return
        if not value or self._now - at < self._idle or any(_is_held(table, value) for table in holding):
            return
        if all(table[value].shadow_is_full(self._now) for table in holding):
            for table in holding:
                del table[value]
            registry.forget_states()
            del registry.last_used[key]
            self._reported.pop(key, None)

    def _is_forgotten(self, key: tuple[Any, ...]) -> bool:
        """Whether this key belongs to a scope whose states are forgotten; never true of a key that has no scope."""
        if len(key) < 3 or not key[2]:
            return False
        value = str(key[2]).partition(" ")[0]  # a space and a credential's digest may follow the value
        return (str(key[0]), value) not in self._registry.last_used

    def _is_full(self, bucket: Bucket) -> bool:
        return abs(bucket.level(self._now) - make_bucket(bucket.spec, now=self._now).level(self._now)) < _EPSILON

    def _is_full_rate(self, bucket: RateBucket) -> bool:
        spec = bucket.spec
        assert isinstance(spec, RateSpec)
        fresh = RateBucket(spec, started=self._now)
        return not bucket.gate.queue and abs(bucket.level(self._now) - fresh.level(self._now)) < _EPSILON

    def _limits_not(self, limiter: CubicLimiter) -> bool:
        limiter.level(self._now)  # for its effect: a shared limiter reads the other processes' state
        return not limiter.enabled and not limiter.gate.queue

    def _hedges_not(self, hedges: Hedges) -> bool:
        return hedges.counts(self._now)[1] == 0

    def _is_unused(self, places: Places) -> bool:
        return places.is_idle

    def _is_quiet(self, governor: Governor, seen: SeenKeys) -> bool:
        return not governor.holds(self._now) and seen.is_over(self._now)


def _references(table: Any, key: Any) -> int:
    return sys.getrefcount(table[key])


#: The number of references to an object that only a table holds, as `_references` counts them.
_ALONE = _references({0: object()}, 0)


def _is_held(table: dict[str, ScopeState], value: str) -> bool:
    """Whether a call still uses the state of the scope value `value` in this table, or the state of one of its
    credentials.
    """
    if _references(table, value) > _ALONE:
        return True
    keys = table[value].keys
    lanes = [] if keys is None else keys.lanes
    return any(lanes[key] is not None and _references(lanes, key) > _ALONE for key in range(len(lanes)))
