"""What calls share, made: in this process here; elsewhere by who overrides this (`proxy.stores`).

Law: whoever makes, the words and the meaning are those of `proxy.retry`. A definition that did not change keeps what it
had; in place of a changed one comes what begins with its share.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from proxy.retry.bucket import Bucket, RateBucket, make_bucket
from proxy.retry.cooldown import Cooldown
from proxy.retry.gates import TokenGate
from proxy.retry.pacing import CubicLimiter
from proxy.retry.policy import BucketSpec, RateSpec

#: Contract, section 5: remembered keys are bounded.
MOST_KEYS = 10_000
KEY_SECONDS = 600.0

#: What a bucket or limiter is kept by: (upstream, definition, scope value), or ("", name) for a named one.
Key = tuple[object, ...]


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


class Making:
    """Makes what is kept under a key. `before` is what this process has had there until now."""

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """The bucket of this key and definition."""
        if before is not None and before.spec == spec:
            return before
        return make_bucket(spec, instead_of=before, now=now)

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """The bucket of kind rate of this key and definition."""
        if before is not None and before.spec == spec:
            return before
        return RateBucket(spec, instead_of=before, started=now)

    def gated(self, bucket: RateBucket, gate: TokenGate) -> None:
        """Calls wait for this bucket at this gate."""

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        """The adaptive limiter of this key."""
        return CubicLimiter(now)

    def cooldown(self, upstream: str, value: str) -> Cooldown:
        """The cooldown of this upstream and scope value."""
        return Cooldown()

    def seen(self, upstream: str, value: str) -> SeenKeys:
        """The seen keys of this upstream and scope value."""
        return SeenKeys()
