"""The bytes that a stream has queued because its peer's windows, for the stream or the connection, have no room, or the
transport accepts no more.
"""

from __future__ import annotations

from collections import deque

#: Queued bytes of a stream above which its writer is asked to wait, and at or below which it is called back.
HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024


class StreamLane:
    """The queued bytes of one stream, in order; `queued` is their number."""

    __slots__ = ("_at", "_pieces", "queued")

    def __init__(self) -> None:
        self.queued = 0
        self._pieces: deque[bytes] = deque()
        self._at = 0  # bytes of the first piece that were cut already

    def put(self, data: bytes) -> None:
        """Queue `data` after what is queued already."""
        self._pieces.append(data)
        self.queued += len(data)

    def cut(self, most: int) -> bytes:
        """Remove and return the next queued bytes, for one frame: at most `most`, and no more than what one `put`
        queued.
        """
        first, at = self._pieces[0], self._at
        left = len(first) - at
        if left <= most:
            self._pieces.popleft()
            self._at = 0
            self.queued -= left
            return first[at:] if at else first
        self._at = at + most
        self.queued -= most
        return first[at : at + most]
