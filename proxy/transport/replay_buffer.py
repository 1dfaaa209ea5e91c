"""Request bodies, kept for another attempt.

A call has one list of chunks, and a cursor for each attempt: hedges share the bytes. Kept bytes are counted for the
call and for the worker in all (gRPC A6: per_rpc_buffer_limit, retry_buffer_size). A body that outgrows either limit is
*lost*: from then on only the bytes that some attempt has still to send stay, and no further attempt is possible.

A cursor is a count of bytes from the body's beginning, including those dropped, so it stays valid when bytes are freed.
Small pieces are joined, so that a body that arrives in drips takes no more memory than its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.wire.head import Trailers

#: A last chunk shorter than this is extended instead of being followed by another.
SMALL = 4096
#: The bytes that one read returns, about: a write of kept bytes is not much larger than one of a streaming body.
PIECE = 256 * 1024


class ReplayStore:
    """The limits of one worker's replay buffers, in bytes: `per_request` for one body, `total` for all. `used`: the
    bytes that are kept now; `held`: those of them that belong to calls that wait without an attempt in flight.
    """

    __slots__ = ("held", "per_request", "total", "used")

    def __init__(self, per_request: int, total: int) -> None:
        self.per_request = per_request
        self.total = total
        self.used = 0
        self.held = 0


class Replay:
    """The request body of one call, as far as it has arrived.

    `end` counts the bytes that have arrived. `done`: it has arrived whole; `trailers` are then the fields after it.
    """

    __slots__ = ("_base", "_chunks", "_store", "_taken", "_waits", "done", "end", "lost", "trailers")

    def __init__(self, store: ReplayStore, *, done: bool = False) -> None:
        self._store = store
        self._chunks: list[bytes] = []
        self._base = 0  # the cursor of the first byte that is still kept
        self._taken = 0  # bytes charged to the store
        self._waits = False  # they count as held, too
        self.end = 0
        self.done = done
        self.lost = False
        self.trailers: Trailers | None = None

    def append(self, data: bytes) -> bool:
        """Add `data` to the body. Returns False if the body outgrows the limits by it: the caller is to call `lose`."""
        size = len(data)
        fits = self.lost or self.has_room(size)
        if not self.lost and fits:
            self._charge(size)
        if self._chunks and len(self._chunks[-1]) < SMALL:
            self._chunks[-1] += data
        else:
            self._chunks.append(data)
        self.end += size
        return fits

    def _charge(self, size: int) -> None:
        self._taken += size
        self._store.used += size
        if self._waits:
            self._store.held += size

    def wait(self, waits: bool) -> None:
        """Note whether the call waits without an attempt in flight, so that its bytes count among those that waiting
        calls keep (`ReplayStore.held`).
        """
        if waits is not self._waits:
            self._waits = waits
            self._store.held += self._taken if waits else -self._taken

    @property
    def piece(self) -> int:
        """The bytes for which there has to be room before more of the body is read: PIECE, or a part of a small limit,
        which would otherwise have no room for any.
        """
        return min(PIECE, self._store.per_request // 4)

    def has_room_held(self, size: int) -> bool:
        """Whether `size` more bytes can be kept for a call that waits: such calls have half of all bytes (contract,
        section 14).
        """
        return self.has_room(size) and self._store.held + size <= self._store.total // 2

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes can be kept for another attempt."""
        return self._taken + size <= self._store.per_request and self._store.used + size <= self._store.total

    def has(self, cursor: int) -> bool:
        """Whether all bytes after the cursor that have come are still kept."""
        return cursor >= self._base

    def read(self, cursor: int) -> bytes:
        """The bytes after the cursor, up to about PIECE; b"" if none has arrived yet.

        Raises LookupError if they were freed: other bytes must never take their place.
        """
        skip = cursor - self._base
        if skip < 0:
            raise LookupError(f"the body's bytes before {self._base} are gone, and {cursor} is asked for")
        if self._chunks and cursor == self.end - len(self._chunks[-1]):
            return self._chunks[-1]  # nearly always: what has just come
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
        """The whole body, in pieces; None if it has not arrived whole, or is not kept any more."""
        return self._chunks if self.done and not self.lost else None

    def lose(self) -> None:
        """Stop keeping the body for another attempt."""
        self.lost = True
        self._charge(-self._taken)

    def forget(self, cursor: int) -> None:
        """Free the bytes before the cursor, which every attempt has sent. Only for a lost body."""
        sent = 0
        for chunk in self._chunks:
            if self._base + len(chunk) > cursor:
                break
            self._base += len(chunk)
            sent += 1
        del self._chunks[:sent]

    def close(self) -> None:
        """Free the body: its call is over."""
        self.lose()
        self._chunks.clear()
