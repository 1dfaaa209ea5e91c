"""The maker of the objects that calls share, in this process; other stores make them outside it (`proxy.stores`)."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.budgets.app_buckets import make_app_bucket
from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.policies.bucket_specs import BucketSpec, RateSpec
from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.credentials import Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.governor import Governor

#: The key of a bucket or limiter: (upstream, definition, scope value), or ("", name) for a named one.
Key = tuple[object, ...]


@dataclass(slots=True)
class Shared:
    """A bucket that calls share, with its label in metrics and on /buckets."""

    label: str
    bucket: Bucket | RateBucket


class Factory:
    """The maker of the objects that the registry keeps (`proxy.retry.scopes.registry`). In all methods, `before` is the
    object that this process has had under the key so far, None for none.
    """

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """The bucket for this key and definition. The key is (upstream, strategy definition, scope value), or "" and
        the name of a bucket that `buckets:` defines. `before`: the bucket that this process has had under the key,
        whose level the new one takes over; None for none.
        """
        if before is not None and before.spec == spec:
            return before
        return make_app_bucket(spec, instead_of=before, now=now)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """The rate bucket for this key and definition. The key is (upstream, strategy definition, scope value), or ""
        and the name of a bucket that `buckets:` defines. `before`: the bucket that this process has had under the key,
        whose level the new one takes over; None for none.
        """
        if before is not None and before.spec == spec:
            return before
        return RateBucket(spec, instead_of=before, started=now)

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        """The adaptive limiter for this key (upstream, strategy definition, scope value)."""
        return CubicLimiter(now)

    def hedges(self, key: Key, now: float) -> Hedges:
        """The measurements that hedging needs, for this key (upstream, strategy definition, scope value): the hedges,
        the calls, and how long successes took.
        """
        return Hedges()

    def breaker(self, key: Key, spec: BreakerSpec, before: CircuitBreaker | None) -> CircuitBreaker:
        """The circuit breaker for this key (upstream, endpoint's label) and definition. `before`: the breaker that this
        process has had under the key, None for none.
        """
        return before if before is not None and before.spec == spec else CircuitBreaker(spec)

    def governor(self, upstream: str, value: str) -> Governor:
        """The governor of this upstream and scope value: the object that decides which calls may be sent now."""
        return Governor()

    def seen(self, upstream: str, value: str) -> SeenKeys:
        """The idempotency keys that calls to this upstream with this scope value lately carried."""
        return SeenKeys()

    def places(self, key: Key, most: int) -> Places:
        """The places under the concurrency limit with this key (upstream, the limit's name, scope value). `most`: how
        many attempts may be under way.
        """
        return Places(most)

    def load(self, key: Key) -> Places:
        """The count of the attempts under way to the endpoint with this key (upstream, endpoint's label)."""
        return Places(UNLIMITED)

    def roster(self, upstream: str) -> Roster:
        """The credentials of this upstream: whose turn it is, and which are put aside."""
        return Roster()

    def share_governor(self, upstream: str, value: str, governor: Governor) -> None:
        """Exchange with other machines, if there are any, what the governor of this upstream and scope value finds
        out.
        """

    def share_places(self, key: Key, places: Places) -> None:
        """Share the places of this key, which `places` made, with other machines, if there are any."""

    def share_roster(self, upstream: str, roster: Roster) -> None:
        """Exchange with other machines, if there are any, which credentials of this upstream are put aside."""

    def share_endpoints(self, upstream: str, group: EndpointGroup) -> None:
        """Exchange with other machines, if there are any, which endpoints of this upstream refuse connections. `group`:
        the upstream's endpoints.
        """

    def announce(self, upstream: str, value: str) -> None:
        """Report that calls still use this upstream's scope value `value`, so that processes which only observe keep
        showing it.
        """

    def forget(self, upstream: str, value: str) -> None:
        """Note that this process has forgotten the governor of this upstream and scope value."""
