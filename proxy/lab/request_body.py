"""The bodies of requests that are played, and the budget of the buffers that would keep them."""

from __future__ import annotations

import math
from collections.abc import Sequence


class KnownBody:
    """A request's body that is known from the beginning (`proxy.retry.facts.Body`)."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def whole(self) -> Sequence[bytes]:
        """The whole body, in pieces."""
        return self._pieces


class BufferBudget:
    """The replay buffers' budget, as `buffers:` bounds it: bytes for one call and for all."""

    def __init__(self, per_request: float = math.inf, total: float = math.inf) -> None:
        self._per_request = per_request
        self._left = total

    def keep(self, size: int) -> bool:
        """Keep a body of this size for another attempt, if there is room for it; return whether it is kept."""
        if size > self._per_request or size > self._left:
            return False
        self._left -= size
        return True

    def free(self, size: int) -> None:
        """Free the bytes of a body that is no longer needed."""
        self._left += size
