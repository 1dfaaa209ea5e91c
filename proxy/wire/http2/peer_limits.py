"""The bounds of a peer on one HTTP/2 connection: limits, a budget of frames, and how its latest streams ended."""

from __future__ import annotations

from typing import Final

from proxy.wire.http2.frames import ENHANCE_YOUR_CALM, Broken

#: Streams that are over whose way of ending is remembered: at least so many, and at most twice as many.
_REMEMBERED: Final = 512


class PeerLimits:
    """The limits for a peer (contract, sections 3 and 12).

    header_bytes, headers: the size of one header list, and its number of fields. streams: streams in flight at once.
    resets: frames per second that do no work for a call, such as RST_STREAM, PING, SETTINGS or an empty DATA. window:
    the window of a stream, in bytes. held: the bytes held for slow readers above which the connection gets no credit.
    """

    __slots__ = ("header_bytes", "headers", "held", "resets", "streams", "window")

    def __init__(
        self,
        header_bytes: int = 64 * 1024,
        headers: int = 256,
        streams: int = 1000,
        resets: float = 1000.0,
        window: int = 256 * 1024,
        held: int = 64 * 1024 * 1024,
    ) -> None:
        self.header_bytes = header_bytes
        self.headers = headers
        self.streams = streams
        self.resets = resets
        self.window = window
        self.held = held

    def with_window(self, window: int) -> PeerLimits:
        """Return a copy with another window of a stream."""
        return PeerLimits(self.header_bytes, self.headers, self.streams, self.resets, window, self.held)


class FrameBudget:
    """The budget of a peer for frames that do no work for a call (`PeerLimits.resets`)."""

    __slots__ = ("_at", "_left")

    def __init__(self, rate: float, now: float) -> None:
        self._left, self._at = rate, now

    def spend(self, rate: float, now: float) -> None:
        """Count a frame; raise Broken if the peer sends more than `rate` of them per second."""
        self._left = min(rate, self._left + (now - self._at) * rate) - 1
        self._at = now
        if self._left < 0:
            raise Broken(ENHANCE_YOUR_CALM, f"more than {rate:g} frames a second that carry nothing")


class EndedStreams:
    """The latest streams of a connection that are over, by their ids, each with whether we broke it off."""

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        self._latest: dict[int, bool] = {}
        self._before: dict[int, bool] = {}

    @property
    def any(self) -> bool:
        """Whether any stream of this connection has ended; once true, this stays true."""
        return bool(self._latest)

    def add(self, number: int, was_reset: bool) -> None:
        """Remember that the stream with the id `number` is over, or change what is remembered of it. `was_reset`: we
        broke it off.
        """
        if len(self._latest) >= _REMEMBERED:
            self._before, self._latest = self._latest, {}
        self._latest[number] = was_reset

    def was_reset(self, number: int) -> bool | None:
        """Whether we broke off this stream, which is over; None if it never existed or is forgotten."""
        return self._latest.get(number, self._before.get(number))
