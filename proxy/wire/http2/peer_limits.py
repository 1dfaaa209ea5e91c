"""The bounds of a peer on one HTTP/2 connection: limits, a budget of frames, and how its latest streams ended."""

from __future__ import annotations

from typing import Final

from proxy.wire.http2.frames import ENHANCE_YOUR_CALM, Broken

#: The number of later streams, or of streams that ended as late, after which it is forgotten how a stream ended.
_REMEMBERED: Final = 512
#: The most streams, from the oldest to the newest, of which `EndedStreams` keeps an octet each.
_SPAN: Final = 4 * _REMEMBERED
#: The values of such an octet: the stream ended, or we broke it off.
_ENDED: Final = 1
_RESET: Final = 2


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
    """The latest streams of a connection that are over, by their ids, each with whether we broke it off.

    Nearly all streams end soon after they were opened, about in the order of their ids: each of these takes one octet
    of `_near`, which begins with the stream `_first` (counted in streams, so half its id). A stream that ends after
    most of those that were opened later is one of few, and kept by its number; so are streams before ids that were
    skipped.
    """

    __slots__ = ("_before", "_first", "_latest", "_near")

    def __init__(self) -> None:
        self._near = bytearray()  # by stream: 0 for none that is over, _ENDED or _RESET
        self._first = 0
        self._latest: dict[int, bool] = {}  # the few that are kept by number
        self._before: dict[int, bool] = {}

    @property
    def any(self) -> bool:
        """Whether any stream of this connection has ended; once true, this stays true."""
        return self._first > 0 or len(self._near) > 0

    def add(self, number: int, was_reset: bool) -> None:
        """Remember that the stream with the id `number` is over, or change what is remembered of it. `was_reset`: we
        broke it off.
        """
        near = self._near
        place = (number >> 1) - self._first
        if place < len(near) - _REMEMBERED:
            self._add_late(number, was_reset)
            return
        if place >= _SPAN:
            passed = place - _SPAN // 2
            self._pass(passed)
            place -= passed
        if place >= len(near):
            near.extend(bytes(place + 1 - len(near)))
        near[place] = _RESET if was_reset else _ENDED

    def _add_late(self, number: int, was_reset: bool) -> None:
        if len(self._latest) >= 2 * _REMEMBERED:
            self._before, self._latest = self._latest, {}
        self._latest[number] = was_reset

    def _pass(self, passed: int) -> None:
        """Drop the first `passed` octets. If few streams are left then, because the peer skips ids, the latest of those
        that had ended are kept by their numbers.
        """
        near, first = self._near, self._first
        few = _REMEMBERED - (len(near[passed:]) - near.count(0, passed))
        place = min(passed, len(near))
        while few > 0 and place > 0:
            place -= 1
            number = 2 * (first + place) + 1
            if near[place] and number not in self._latest and number not in self._before:  # these are newer
                self._add_late(number, near[place] == _RESET)
                few -= 1
        del near[:passed]
        self._first = first + passed

    def was_reset(self, number: int) -> bool | None:
        """Whether we broke off this stream, which is over; None if it never existed or is forgotten."""
        if not number & 1:  # no client's stream, and servers open none here
            return None
        late = self._latest.get(number, self._before.get(number))
        if late is not None:
            return late
        place = (number >> 1) - self._first
        if place < 0 or place >= len(self._near) or not self._near[place]:
            return None
        return self._near[place] == _RESET
