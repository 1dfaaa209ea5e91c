"""Flow control (RFC 9113 section 5.2): what a stream has to send, and what a peer may still send.

Law: a byte is sent only where the peer's windows, of stream and connection, both have room; a byte of credit is given
once for each byte that was taken, and never before it came.
"""

from __future__ import annotations

from collections import deque

#: Bytes that wait on a stream before its writer is asked to wait, and at which it is called back.
HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024


class Lane:
    """What a stream has to send. `window`: bytes that the peer takes now, below 0 where it took some back; `queued`:
    bytes that wait.
    """

    __slots__ = ("_at", "_pieces", "queued", "window")

    def __init__(self, window: int) -> None:
        self.window = window
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

    def clear(self) -> None:
        """Nothing of it is to be sent any more."""
        self._pieces.clear()
        self._at = self.queued = 0


class Credit:
    """What a peer may still send: `left` bytes, of a window of `window`. `owed`: taken, and not credited yet."""

    __slots__ = ("left", "owed", "window")

    def __init__(self, window: int) -> None:
        self.window = self.left = window
        self.owed = 0

    def spend(self, size: int) -> bool:
        """So many bytes came. False: more than there was credit for."""
        self.left -= size
        return self.left >= 0

    def give(self, size: int, least: int) -> int:
        """So many bytes were taken: how many to credit now, 0 while less than `least` are owed."""
        owed = self.owed + size
        if owed < least:
            self.owed = owed
            return 0
        self.owed = 0
        self.left += owed
        return owed
