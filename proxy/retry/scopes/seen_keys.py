"""The idempotency keys and invocation ids that calls of one scope have carried lately. A key that comes again marks an
app's own retry (contract, section 5).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from proxy.retry.instants import EPSILON

#: Contract, section 5: remembered keys are bounded.
MOST_KEYS = 10_000
KEY_SECONDS = 600.0


class SeenKeys:
    """The idempotency keys and invocation ids of the last ten minutes, hashed. A key that comes again marks an app's
    own retry.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def again(self, key: str, now: float) -> bool:
        """Remember this idempotency key or invocation id. Returns whether it was known already."""
        digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=12).digest()
        while self._seen and next(iter(self._seen.values())) < now - KEY_SECONDS - EPSILON:
            self._seen.popitem(last=False)
        known = self._seen.pop(digest, None) is not None
        self._seen[digest] = now
        if len(self._seen) > MOST_KEYS:
            self._seen.popitem(last=False)
        return known

    def is_over(self, now: float) -> bool:
        """Whether all keys that were remembered have expired."""
        return not self._seen or next(reversed(self._seen.values())) < now - KEY_SECONDS - EPSILON
