"""The bodies of requests that are played, and the budget of the buffers that would keep them."""

from __future__ import annotations

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

    def __init__(self, per_request: float, total: float) -> None:
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


class KeptBody:
    """The body of one request, of `size` bytes, which the buffers keep for another attempt if they have room for it.
    Without `buffers` there is room for every body. `has_overflowed`: the body was read, has found no room, and the call
    has yet to be notified of that.
    """

    def __init__(self, size: int, buffers: BufferBudget | None) -> None:
        self.size = size
        self.has_overflowed = False
        self._buffers = buffers
        self._kept: int | None = None  # bytes; None until the body is read

    @property
    def is_lost(self) -> bool:
        """Whether the body was read and is not kept."""
        return self._kept == 0

    def read(self) -> None:
        """Read the whole body, at once, with the first sending that connects."""
        if self._kept is None and self._buffers is not None and self.size:
            kept = self._buffers.keep(self.size)
            self._kept = self.size if kept else 0
            self.has_overflowed = not kept

    def free(self) -> None:
        """Free what is kept."""
        if self._kept and self._buffers is not None:
            self._buffers.free(self._kept)
            self._kept = 0
