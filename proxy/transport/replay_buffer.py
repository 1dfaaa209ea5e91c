"""Request bodies, kept for another attempt.

One list of chunks for a call, a cursor for each attempt: hedges share the bytes. What is kept is counted for the
call and for the worker in all (gRPC A6: per_rpc_buffer_limit, retry_buffer_size). A body that outgrows either is
*lost*: from then on only what some attempt has still to send stays, and no further attempt is possible.

A cursor is a count of bytes from the body's beginning, those dropped included, so it never moves when bytes go. Small
pieces are put together, so that a body that drips in costs no more memory than its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.wire.head import Trailers

#: A chunk shorter than this is added to instead of being followed by another.
SMALL = 4096
#: How much one read hands out: a write is never much larger than what streams.
PIECE = 256 * 1024


@dataclass(slots=True)
class ReplayStore:
    """What replay buffers may take: `per_request` bytes each, `total` in all. One for each worker."""

    per_request: int
    total: int
    used: int = 0


class Replay:
    """One call's request body, as far as it has come.

    `end` counts the bytes that have come. `done`: it has come whole; `trailers` are then the fields behind it.
    """

    __slots__ = ("_base", "_chunks", "_store", "_taken", "done", "end", "lost", "trailers")

    def __init__(self, store: ReplayStore, *, done: bool = False) -> None:
        self._store = store
        self._chunks: deque[bytes] = deque()
        self._base = 0  # the cursor of the first byte that is still here
        self._taken = 0  # bytes charged to the store
        self.end = 0
        self.done = done
        self.lost = False
        self.trailers: Trailers | None = None

    def append(self, data: bytes) -> bool:
        """Keep `data` too. False where it outgrows the limits: the caller says `lose`, and goes on."""
        size = len(data)
        fits = self.lost or self.has_room(size)
        if not self.lost and fits:
            self._taken += size
            self._store.used += size
        if self._chunks and len(self._chunks[-1]) < SMALL:
            self._chunks[-1] += data
        else:
            self._chunks.append(data)
        self.end += size
        return fits

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more can be kept for another attempt."""
        return self._taken + size <= self._store.per_request and self._store.used + size <= self._store.total

    def read(self, cursor: int) -> bytes:
        """What follows the cursor, up to about PIECE bytes; b"" where nothing has come yet.

        Raises LookupError where it was let go: other bytes must never take its place.
        """
        skip = cursor - self._base
        if skip < 0:
            raise LookupError(f"the body's bytes before {self._base} are gone, and {cursor} is asked for")
        pieces: list[bytes] = []
        size = 0
        for chunk in self._chunks:
            if skip >= len(chunk):
                skip -= len(chunk)
                continue
            pieces.append(chunk[skip:] if skip else chunk)
            size += len(pieces[-1])
            skip = 0
            if size >= PIECE:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def whole(self) -> Iterable[bytes] | None:
        """The whole body, in pieces; None where it has not come whole, or is not kept any more."""
        return self._chunks if self.done and not self.lost else None

    def lose(self) -> None:
        """Nothing is kept for another attempt any more."""
        self.lost = True
        self._store.used -= self._taken
        self._taken = 0

    def forget(self, cursor: int) -> None:
        """Every attempt has sent what is before the cursor: free it. Only once the body is lost."""
        while self._chunks and self._base + len(self._chunks[0]) <= cursor:
            self._base += len(self._chunks.popleft())

    def close(self) -> None:
        """Free the body: its call is over."""
        self.lose()
        self._chunks.clear()
