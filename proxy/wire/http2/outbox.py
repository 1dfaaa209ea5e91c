"""The sending side of a session: frames gathered for one write, and DATA queued in its streams until it may be sent.

Streams with queued bytes take turns, one frame each, and no frame exceeds the peer's windows, its limit for a frame, or
what the transport accepts. Replies that a peer makes us write and does not read are counted.
"""

from __future__ import annotations

from typing import Final

from proxy.wire.http2 import frames
from proxy.wire.http2.compiled import HEADER
from proxy.wire.http2.flow import HIGH_WATER, LOW_WATER, StreamLane
from proxy.wire.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW,
    HEADER_SIZE,
    HEADERS,
    SMALLEST_LIMIT,
    Broken,
)
from proxy.wire.http2.hpack import NO_TABLE
from proxy.wire.http2.stream import Stream, StreamOutbox

#: Replies (to PING and SETTINGS, and resets) that may wait for a peer which reads none (contract, section 12).
REPLIES: Final = 1000
#: Bytes gathered in the outbox from which on DATA is queued until the transport accepts more.
GATHERED: Final = 256 * 1024


class Outbox(StreamOutbox):
    """The outbox of one session. `blocked`: the transport accepts no more for now. `window`: the peer's window for the
    connection; `frame_limit`: the largest frame that it accepts. When a stream's last frame has been put in, its
    session is notified (`StreamSession.sent`).
    """

    __slots__ = (
        "_begun", "_out", "_replies", "_resumed", "_size", "_waiting", "_writable", "blocked", "frame_limit",
        "window",
    )  # fmt: skip

    def __init__(self) -> None:
        self.blocked = False
        self.window = FIRST_WINDOW
        self.frame_limit = SMALLEST_LIMIT
        self._out: list[bytes] = []
        self._size = 0
        self._replies = 0
        self._begun = False  # whether our first block was sent, with its size update
        self._waiting: dict[
            Stream, None
        ] = {}  # streams with queued bytes and open windows, in the order of their turns
        self._writable: list[Stream] = []  # streams no longer blocked, whose owners are to be notified
        self._resumed: list[Stream] = []  # streams whose owners accept again what was held

    def put(self, data: bytes) -> None:
        """Add a frame to those that `take` returns next."""
        self._out.append(data)
        self._size += len(data)

    def reply(self, data: bytes) -> None:
        """Add a frame that the peer asked for (the acknowledgement of a PING, say). Raises Broken if too many replies
        wait to be written.
        """
        self._replies += 1
        if self._replies > REPLIES:
            raise Broken(ENHANCE_YOUR_CALM, f"more than {REPLIES} replies that were not read")
        self.put(data)

    def take(self) -> bytes:
        """Return what is to be written now, b"" for nothing. Callers repeat the call until it returns b"", or until the
        transport is `blocked`.
        """
        if self._waiting:
            self.pump()
        if self._writable or self._resumed:
            self.notify_streams()
        out = self._out
        if not out:
            return b""
        self._out = []
        self._size = 0
        if not self.blocked:
            self._replies = 0
        return out[0] if len(out) == 1 else b"".join(out)

    def notify_streams(self) -> None:
        """Notify streams that they may write again, and have resumed ones report the body that they held. Neither may
        be done from within a stream's own methods, so `take` does it first.
        """
        while self._writable:
            stream = self._writable.pop()
            if not stream.blocked and not stream.over:
                stream.report_writable()
        while self._resumed:
            self._resumed.pop().report_held()

    def resumed(self, stream: Stream) -> None:
        """Note that the owner of `stream` takes the peer's body again after a pause. With the next `notify_streams`,
        the stream reports to its owner the part of that body which came meanwhile.
        """
        self._resumed.append(stream)

    def drained(self) -> None:
        """Note that the transport has written all that it was given."""
        self.blocked = False
        self._replies = 0

    def block(self, stream: Stream, block: bytes, end: bool) -> None:
        """Add `block`, an encoded header block: a head of `stream`, or its trailers if none of its DATA is queued (with
        queued DATA, call `end`). `end`: nothing of the stream follows it.
        """
        if not self._begun:
            self._begun = True
            block = NO_TABLE + block
        self.put(frames.header_block(stream.id, block, end, self.frame_limit))
        if end:
            stream.session.sent(stream)

    def message(self, stream: Stream, block: bytes, data: bytes, trailers: bytes) -> None:
        """Add a whole message of `stream`, of which nothing was sent yet: the head `block` and the `trailers` (b"" for
        none), both encoded already, and the body `data`. If there is room for all of it, it becomes one group of
        frames; else each part is queued as usual.
        """
        head, size, tail = len(block), len(data), len(trailers)
        if (
            not data
            or size > stream.window
            or size > self.window
            or head + size + tail > self.frame_limit
            or self._size >= GATHERED
            or self.blocked
            or not self._begun
        ):
            self.block(stream, block, not data and not trailers)
            if data:
                self.data(stream, data, not trailers)
            if trailers:
                self.end(stream, trailers)
            return
        number = stream.id
        stream.window -= size
        self.window -= size
        opening = HEADER.pack(head >> 8, head & 0xFF, HEADERS, END_HEADERS, number)
        if trailers:
            middle = HEADER.pack(size >> 8, size & 0xFF, DATA, 0, number)
            ending = HEADER.pack(tail >> 8, tail & 0xFF, HEADERS, END_HEADERS | END_STREAM, number)
            self._out += (opening, block, middle, data, ending, trailers)
        else:
            self._out += (opening, block, HEADER.pack(size >> 8, size & 0xFF, DATA, END_STREAM, number), data)
        self._size += head + size + tail + 3 * HEADER_SIZE
        stream.session.sent(stream)

    def data(self, stream: Stream, data: bytes, end: bool) -> None:
        """Add DATA of `stream`: now if there is room for all of it, else in its turn. `end`: nothing follows it."""
        lane, size = stream.lane, len(data)
        if (
            (lane is None or not lane.queued)
            and size <= stream.window
            and size <= self.window
            and size <= self.frame_limit
            and self._size < GATHERED
            and not self.blocked
        ):
            self._frame(stream, data, end)
            if end:
                stream.session.sent(stream)
            return
        if lane is None:
            lane = stream.lane = StreamLane()
        lane.put(data)
        stream.ending = end
        self._waiting[stream] = None
        self.pump()
        stream.blocked = stream.blocked or lane.queued > HIGH_WATER

    def end(self, stream: Stream, trailers: bytes) -> None:
        """Add the end of `stream`, after what is queued of it: `trailers`, an encoded header block, or if that is b""
        an empty DATA frame with END_STREAM.
        """
        if stream.queued:
            stream.ending, stream.trailers_queued = True, trailers
        elif trailers:
            self.block(stream, trailers, True)
        else:
            self.put(frames.data_header(stream.id, 0, True))
            stream.session.sent(stream)

    def _frame(self, stream: Stream, data: bytes, end: bool) -> None:
        size = len(data)
        stream.window -= size
        self.window -= size
        self._out.append(frames.data_header(stream.id, size, end))
        self._out.append(data)
        self._size += size + HEADER_SIZE

    def grant(self, stream: Stream, increment: int) -> None:
        """Enlarge the peer's window of `stream` by `increment`, or shrink it if that is negative."""
        stream.window += increment
        if stream.lane is not None and stream.window > 0 and stream.queued:
            self._waiting[stream] = None

    def leave(self, stream: Stream) -> None:
        """Drop what is queued for `stream`."""
        stream.lane = None
        self._waiting.pop(stream, None)

    def clear(self) -> None:
        """Drop what is queued for all streams."""
        self._waiting.clear()

    @property
    def has_waiting(self) -> bool:
        """Whether bytes are queued that may be sent as soon as windows and transport have room."""
        return bool(self._waiting)

    def pump(self) -> None:
        """Send queued bytes while windows and transport have room."""
        waiting = self._waiting
        while waiting and self.window > 0 and self._size < GATHERED and not self.blocked:
            stream = next(iter(waiting))
            del waiting[stream]
            lane = stream.lane
            room = min(stream.window, self.window, self.frame_limit)
            if room <= 0 or lane is None or not lane.queued:
                continue  # `grant` puts the stream back when its window grows
            data = lane.cut(room)
            last = stream.ending and not lane.queued
            self._frame(stream, data, last and not stream.trailers_queued)
            if lane.queued:
                waiting[stream] = None
            elif last and stream.trailers_queued:
                self.block(stream, stream.trailers_queued, True)
            elif last:
                stream.session.sent(stream)
            if stream.blocked and lane.queued <= LOW_WATER and not stream.ending:
                stream.blocked = False
                self._writable.append(stream)
