"""The SETTINGS of an HTTP/2 peer, as far as they bind us."""

from __future__ import annotations

import struct

from proxy.wire.http2 import frames
from proxy.wire.http2.frames import (
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    LARGEST_LIMIT,
    MOST,
    PROTOCOL_ERROR,
    SMALLEST_LIMIT,
    Broken,
)


class PeerSettings:
    """The SETTINGS of one peer. `came`: they have come; `window`: the peer's window of a new stream; `frame_limit`: the
    longest frame that the peer takes; `streams`: how many we may open at once, by the peer's limit and by ours, `most`.
    """

    __slots__ = ("_most", "came", "frame_limit", "streams", "window")

    def __init__(self, most: int) -> None:
        self._most = most
        self.came = False
        self.window = FIRST_WINDOW
        self.frame_limit = SMALLEST_LIMIT
        self.streams = most

    def read(self, payload: bytes, client: bool) -> None:
        """Take over what a SETTINGS frame says. Raises Broken. `client`: we are the client."""
        self.came = True
        for key, value in struct.iter_unpack(">HI", payload):
            if key == frames.INITIAL_WINDOW_SIZE:
                if value > MOST:
                    raise Broken(FLOW_CONTROL_ERROR, "an initial window above 2^31-1")
                self.window = value
            elif key == frames.MAX_FRAME_SIZE:
                if not SMALLEST_LIMIT <= value <= LARGEST_LIMIT:
                    raise Broken(PROTOCOL_ERROR, "a limit of frames out of range")
                self.frame_limit = value
            elif key == frames.MAX_CONCURRENT_STREAMS:
                self.streams = min(value, self._most)
            elif key == frames.ENABLE_PUSH and (value > 1 or (value and client)):
                raise Broken(PROTOCOL_ERROR, "ENABLE_PUSH out of range")
