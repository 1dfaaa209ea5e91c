"""What calls share: buckets, limiters, cooldowns and the memory of keys, each kept once for its definition and scope.

Law: what calls share lives here, what one call knows lives in the call, and a policy holds neither. Commons outlives
reloads: a definition that did not change finds its bucket as it was; one that changed takes over its share of the
capacity.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.retry.bucket import Bucket, RateBucket, make_bucket
from proxy.retry.facts import Request
from proxy.retry.gates import Cooldown, TokenGate
from proxy.retry.pacing import CubicLimiter
from proxy.retry.policy import BucketRef, BucketSpec, Policy, RateSpec, Strategy

#: Contract, sections 3 and 5: header scopes and remembered keys are bounded.
MOST_SCOPES = 10_000
MOST_KEYS = 10_000
KEY_SECONDS = 600.0


class SeenKeys:
    """Idempotency keys and invocation ids of the last ten minutes, hashed: one seen again is an app's own retry."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def again(self, key: str, now: float) -> bool:
        """Remember the key; whether it was known already."""
        digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=12).digest()
        while self._seen and next(iter(self._seen.values())) < now - KEY_SECONDS:
            self._seen.popitem(last=False)
        known = self._seen.pop(digest, None) is not None
        self._seen[digest] = now
        if len(self._seen) > MOST_KEYS:
            self._seen.popitem(last=False)
        return known


class ScopeState:
    """All that the calls of one policy and one scope value share.

    `ungated`: no rate bucket and no limiter, so that only a cooldown could hold a call. `shadow` is the bucket that
    `mode: observe` plays with instead of the real one.
    """

    __slots__ = (
        "_shadow",
        "bucket",
        "cooldown",
        "limiter",
        "pacing",
        "rate",
        "rate_bucket",
        "seen",
        "ungated",
        "value",
    )

    def __init__(
        self,
        value: str,
        bucket: Bucket | None,
        rate: TokenGate | None,
        rate_bucket: RateBucket | None,
        pacing: CubicLimiter | None,
        limiter: TokenGate | None,
        cooldown: Cooldown,
        seen: SeenKeys,
    ) -> None:
        self.value = value
        self.bucket = bucket
        self.rate = rate
        self.rate_bucket = rate_bucket
        self.pacing = pacing
        self.limiter = limiter
        self.cooldown = cooldown
        self.seen = seen
        self.ungated = rate is None and limiter is None
        self._shadow: Bucket | None = None

    @property
    def shadow(self) -> Bucket | None:
        """The observed bucket's double, made when first asked for."""
        if self._shadow is None and self.bucket is not None:
            self._shadow = make_bucket(self.bucket.spec)
        return self._shadow


@dataclass(slots=True)
class Shared:
    """A bucket under its label, as metrics and /buckets list it."""

    label: str
    bucket: Bucket | RateBucket


class Commons:
    """The registry. One for each worker; it lives over reloads."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[object, ...], Bucket] = OrderedDict()
        self._rates: OrderedDict[tuple[object, ...], tuple[RateBucket, TokenGate]] = OrderedDict()
        self._pacing: OrderedDict[tuple[object, ...], tuple[CubicLimiter, TokenGate]] = OrderedDict()
        self._places: OrderedDict[tuple[str, str], tuple[Cooldown, SeenKeys]] = OrderedDict()
        self._by_policy: dict[Policy, OrderedDict[str, ScopeState]] = {}
        self._definitions: dict[tuple[str, str], list[Strategy]] = {}

    def scope(self, policy: Policy, request: Request, now: float = 0.0) -> ScopeState:
        """The shared state for this policy and this request's scope value. `now`: what is made anew begins here."""
        by = policy.scope.by
        if by == "host":
            value = request.authority
        elif by == "upstream":
            value = ""
        else:
            value = _hashed(request.fields.get_all(policy.scope.header))
        states = self._by_policy.get(policy)
        if states is None:
            states = self._by_policy[policy] = OrderedDict()
        state = states.get(value)
        if state is None:
            state = states[value] = self._make(policy, value, now)
            if len(states) > MOST_SCOPES:
                states.popitem(last=False)
        return state

    def forget_policies(self) -> None:
        """After a reload: the old generation's policies keep what their calls hold, new ones look shared state up."""
        self._by_policy.clear()
        self._definitions.clear()

    def shared(self) -> Iterator[Shared]:
        """Every bucket that has been used, with a label that tells it apart."""
        for key, bucket in self._buckets.items():
            yield Shared(_label(key), bucket)
        for key, (rate, _) in self._rates.items():
            yield Shared(_label(key), rate)

    def cooldowns(self, now: float) -> Iterator[tuple[str, str, float]]:
        """(upstream, scope value, seconds left) of every cooldown in force."""
        for (upstream, value), (cooldown, _) in self._places.items():
            left = cooldown.seconds_left(now)
            if left > 0:
                yield upstream, value, left

    def limiters(self) -> Iterator[tuple[str, CubicLimiter]]:
        """Every adaptive limiter, with its label."""
        for key, (pacing, _) in self._pacing.items():
            yield _label(key), pacing

    # -- making ---------------------------------------------------------------------------------------------------

    def _make(self, policy: Policy, value: str, now: float) -> ScopeState:
        own = (policy.upstream, self._definition(policy), value)
        rate = rate_gate = pacing = limiter = None
        if policy.rate is not None:
            rate, rate_gate = self._rate(_key(policy.rate, own), policy.rate.spec, now)
        if policy.strategy.paced:
            pacing, limiter = self._limiter(own, now)
        cooldown, seen = self._place(policy.upstream, value)
        return ScopeState(value, self._bucket(policy.bucket, own), rate_gate, rate, pacing, limiter, cooldown, seen)

    def _definition(self, policy: Policy) -> str:
        """What tells one strategy definition of an upstream from another: its name, numbered where two share one.

        The number is the order of first use, not a digest: a definition that is edited finds its state again.
        """
        name = policy.strategy.name
        alike = self._definitions.setdefault((policy.upstream, name), [])
        if policy.strategy not in alike:
            alike.append(policy.strategy)
        place = alike.index(policy.strategy)
        return f"{name}-{place + 1}" if place else name

    def _bucket(self, ref: BucketRef | None, own: tuple[object, ...]) -> Bucket | None:
        if ref is None:
            return None
        key = _key(ref, own)
        bucket = self._buckets.get(key)
        if bucket is None or bucket.spec != ref.spec:
            bucket = self._buckets[key] = make_bucket(ref.spec, instead_of=bucket)
            _bound(self._buckets)
        return bucket

    def _rate(self, key: tuple[object, ...], spec: BucketSpec, now: float) -> tuple[RateBucket, TokenGate]:
        assert isinstance(spec, RateSpec)
        found = self._rates.get(key)
        if found is None or found[0].spec != spec:
            bucket = RateBucket(spec, instead_of=found[0] if found else None, started=now)
            found = self._rates[key] = bucket, TokenGate(bucket, rejects=spec.when_empty == "reject")
            _bound(self._rates)
        return found

    def _limiter(self, own: tuple[object, ...], now: float) -> tuple[CubicLimiter, TokenGate]:
        found = self._pacing.get(own)
        if found is None:
            pacing = CubicLimiter(now)
            found = self._pacing[own] = pacing, TokenGate(pacing)
            _bound(self._pacing)
        return found

    def _place(self, upstream: str, value: str) -> tuple[Cooldown, SeenKeys]:
        found = self._places.get((upstream, value))
        if found is None:
            found = self._places[upstream, value] = Cooldown(), SeenKeys()
            _bound(self._places)
        return found


def _key(ref: BucketRef, own: tuple[object, ...]) -> tuple[object, ...]:
    if ref.name is not None:
        return ("", ref.name)
    return own if ref.group is None else (own[0], ref.group, own[2])


def _label(key: tuple[object, ...]) -> str:
    upstream, name, *_ = key
    return f"{upstream}/{name}" if upstream else str(name)


def _hashed(values: object) -> str:
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _bound(table: OrderedDict[tuple[object, ...], object] | OrderedDict[tuple[str, str], object] | object) -> None:
    assert isinstance(table, OrderedDict)
    if len(table) > MOST_SCOPES:
        table.popitem(last=False)
