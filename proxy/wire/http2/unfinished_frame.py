"""The beginning of a frame, or of the preface, whose other bytes have not come yet."""

from __future__ import annotations

from proxy.wire.http2.frames import HEADERS


class UnfinishedFrame:
    """The bytes of one connection that are kept until their frame is whole. `rest`: these bytes; `need`: the number of
    bytes with which the frame is whole; `since`: when it began to come.
    """

    __slots__ = ("need", "rest", "since")

    def __init__(self, now: float) -> None:
        self.rest = bytearray()
        self.need = 0
        self.since = now

    def joined(self, data: bytes) -> bytes:
        """Return the kept bytes and `data` after them, if these make the frame whole; else keep `data` as well, and
        return b"".
        """
        rest = self.rest
        if len(rest) + len(data) < self.need:
            rest += data
            return b""
        return b"".join((rest, data))

    def keep(self, data: bytes, at: int, now: float) -> None:
        """Keep `data` from the offset `at` on."""
        self.rest = bytearray(data[at:])
        self.since = now

    @property
    def is_head(self) -> bool:
        """Whether it is a HEADERS frame."""
        return len(self.rest) > 3 and self.rest[3] == HEADERS
