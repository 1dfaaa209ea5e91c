"""The ids of the streams of one HTTP/2 connection: which were opened, and how those ended that are over."""

from __future__ import annotations

from proxy.wire.http2.frames import MOST, PROTOCOL_ERROR, Broken
from proxy.wire.http2.peer_limits import EndedStreams


class StreamIds:
    """The ids of the streams of one connection. `client`: whether we open its streams. `highest`: the highest id of the
    streams that the peer opened; `next`: the id of the next stream that we open; `ended`: the streams that are over.
    """

    __slots__ = ("client", "ended", "highest", "next")

    def __init__(self, client: bool) -> None:
        self.client = client
        self.next = 1
        self.highest = 0
        self.ended = EndedStreams()

    @property
    def are_used_up(self) -> bool:
        """Whether we can open no further stream."""
        return self.next > MOST

    def is_new(self, number: int) -> bool:
        """Whether the peer may open a stream with this id."""
        return not self.client and number & 1 == 1 and number > self.highest

    def check_known(self, number: int) -> None:
        """Raise Broken if stream `number` was never opened."""
        if number >= self.next if bool(number & 1) is self.client else number > self.highest:
            raise Broken(PROTOCOL_ERROR, f"a frame on the idle stream {number}")
