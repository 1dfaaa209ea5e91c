"""What a stream has to send and may not yet: its peer's windows, for the stream or the connection, have no room, or the
transport accepts no more.
"""

from __future__ import annotations

from collections import deque

#: Bytes that wait on a stream before its writer is asked to wait, and at which it is called back.
HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024


class Lane:
    """Bytes of one stream that wait, in order; `queued`: how many."""

    __slots__ = ("_at", "_pieces", "queued")

    def __init__(self) -> None:
        self.queued = 0
        self._pieces: deque[bytes] = deque()
        self._at = 0  # how much of the first piece has gone

    def put(self, data: bytes) -> None:
        """Have `data` wait, behind what waits already."""
        self._pieces.append(data)
        self.queued += len(data)

    def cut(self, most: int) -> bytes:
        """The next bytes, at most so many, of one piece: what is sent in one frame. They no longer wait."""
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
