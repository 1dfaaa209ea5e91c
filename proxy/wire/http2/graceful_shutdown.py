"""The graceful shutdown of an HTTP/2 connection: first a GOAWAY that names no stream, then one that names the last
(RFC 9113, 6.8).
"""

from __future__ import annotations

from typing import Final

from proxy.wire.http2 import frames
from proxy.wire.http2.frames import MOST, NO_ERROR, PING
from proxy.wire.http2.outbox import Outbox

#: Seconds from the GOAWAY that announces draining to the one that names the last stream, if the PING is not answered.
DRAIN_SECONDS: Final = 1.0
_DRAINING: Final = b"redrive\0"
NEVER: Final = float("inf")


class GracefulShutdown:
    """The shutdown of one connection. `due`: the time at which the last stream is named, infinity before it is begun
    and afterwards; `named`: our last GOAWAY named the last stream.
    """

    __slots__ = ("_outbox", "due", "named")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.due = NEVER
        self.named = False

    @property
    def has_begun(self) -> bool:
        """Whether the first GOAWAY was sent."""
        return self.named or self.due < NEVER

    def begin(self, now: float) -> None:
        """Send the first GOAWAY, and a PING whose answer shows that the peer knows of it."""
        self._outbox.put(frames.goaway(MOST, NO_ERROR))
        self._outbox.put(frames.frame(PING, 0, 0, _DRAINING))
        self.due = now + DRAIN_SECONDS

    def is_answered(self, payload: bytes) -> bool:
        """Whether an answer to a PING, with this payload, shows that the peer knows of the first GOAWAY."""
        return payload == _DRAINING and self.due < NEVER

    def name_last(self, number: int) -> None:
        """Send the GOAWAY that names the last stream, `number`."""
        self.due = NEVER
        self.named = True
        self._outbox.put(frames.goaway(number, NO_ERROR))
