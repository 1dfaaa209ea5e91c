"""The credit that a peer has on one HTTP/2 connection: how many bytes it may still send, and when it is given more."""

from __future__ import annotations

from typing import Final

from proxy.wire.http2 import frames
from proxy.wire.http2.frames import FIRST_WINDOW, FLOW_CONTROL_ERROR, Broken
from proxy.wire.http2.outbox import Outbox
from proxy.wire.http2.peer_limits import PeerLimits
from proxy.wire.http2.stream import Stream

#: The window of a connection (contract, section 12).
CONNECTION_WINDOW: Final = 16 * 1024 * 1024
#: Bytes of the connection's window that must be owed before they are credited.
_LEAST_CREDIT: Final = CONNECTION_WINDOW // 4


class Credit:
    """The windows that we give to a peer, of the connection and of its streams. `held`: the bytes that are held for
    owners that have paused their streams; `acknowledged`: the peer has acknowledged our SETTINGS, and so knows the
    window of a new stream.
    """

    __slots__ = ("_closed", "_left", "_outbox", "_owed", "_withheld", "acknowledged", "held", "limits")

    def __init__(self, limits: PeerLimits, outbox: Outbox) -> None:
        self.limits = limits
        self._outbox = outbox
        self._left = CONNECTION_WINDOW  # bytes that the peer may still send
        self._owed = 0  # bytes that were taken, and are not credited yet
        self._withheld = 0  # bytes that are credited only once less is held
        self._closed = False
        self.held = 0
        self.acknowledged = False

    def spend(self, size: int) -> None:
        """Count DATA of `size` bytes that came. Raises Broken if the peer had no credit for them."""
        self._left -= size
        if self._left < 0:
            raise Broken(FLOW_CONTROL_ERROR, "more DATA than the connection's window")

    def read(self, stream: Stream, size: int, end: bool) -> None:
        """Give credit for DATA of `size` bytes that the stream's owner gets at once. `end`: no more comes."""
        owed = self._owed + size
        self._owed = owed
        if owed >= _LEAST_CREDIT:
            self.give(0)
        if not end:
            self.give_stream(stream, size)

    def hold(self, stream: Stream, size: int, kept: int) -> None:
        """Give credit for DATA of `size` bytes with its padding, of which the stream holds `kept` bytes: at once for
        the padding, and for the connection, unless too much is held.
        """
        self.held += kept
        self.give_stream(stream, size - kept)
        if self.held > self.limits.held:
            self._withheld += kept
            size -= kept
        self.give(size)

    def release(self, stream: Stream, size: int) -> None:
        """Give credit for `size` bytes that a stream no longer holds."""
        self.held -= size
        if self._withheld and self.held <= self.limits.held:
            withheld, self._withheld = self._withheld, 0
            self.give(withheld)
        self.give_stream(stream, size)

    def give_stream(self, stream: Stream, size: int) -> None:
        """Give credit for `size` bytes of a stream, once enough is owed."""
        if stream.received_all or stream.over:
            return
        owed = stream.owed + size
        window = self.limits.window
        # Until the peer acknowledges our SETTINGS, it may assume RFC 9113's initial window.
        if not owed or owed < (window if self.acknowledged else min(window, FIRST_WINDOW)) // 4:
            stream.owed = owed
            return
        stream.owed = 0
        stream.left += owed
        self._outbox.put(frames.window_update(stream.id, owed))

    def give(self, size: int) -> None:
        """Give credit for `size` bytes of the connection, once enough is owed."""
        owed = self._owed + size
        if owed < _LEAST_CREDIT:
            self._owed = owed
            return
        self._owed = 0
        self._left += owed
        if not self._closed:
            self._outbox.put(frames.window_update(0, owed))

    def close(self) -> None:
        """Give the peer no more credit (no WINDOW_UPDATE is sent any more): the connection is over."""
        self._closed = True
