"""A stream of a session: the events that it reports to its owner, a subclass that overrides `on_…`, and the actions
that the owner may take. Also the base classes of what it works with: the session, its outbox, and its owner.
"""

from __future__ import annotations

from proxy.wire.http2.fields import Trailers2
from proxy.wire.http2.flow import StreamLane
from proxy.wire.http2.frames import NO_ERROR
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2


class StreamOutbox:
    """The methods by which a stream sends frames: the base class of the session's outbox."""

    __slots__ = ()

    def block(self, stream: Stream, block: bytes, end: bool) -> None:
        """Add a head of `stream`; `block`: the head, encoded. `end`: nothing follows it."""
        raise NotImplementedError

    def data(self, stream: Stream, data: bytes, end: bool) -> None:
        """Add DATA of `stream`, to be sent when there is room for it. `end`: nothing follows it."""
        raise NotImplementedError

    def end(self, stream: Stream, trailers: bytes) -> None:
        """Add END_STREAM after all DATA of `stream`. `trailers`: an encoded header block, b"" for none."""
        raise NotImplementedError

    def message(self, stream: Stream, block: bytes, data: bytes, trailers: bytes) -> None:
        """Add a whole message of `stream`: the head `block` and the `trailers` (b"" for none), both encoded already,
        and the body `data`.
        """
        raise NotImplementedError

    def resumed(self, stream: Stream) -> None:
        """Have `stream` report to its owner, later, the part of the peer's body that came while the owner had paused
        the stream.
        """
        raise NotImplementedError


class StreamSession:
    """The session that a stream belongs to, as the stream sees it: the base class of sessions. `client`: we opened the
    stream. `outbox`: takes the stream's frames.
    """

    __slots__ = ("client", "outbox")

    client: bool
    outbox: StreamOutbox

    def sent(self, stream: Stream) -> None:
        """Note that our side of `stream` has ended: its last frame was put into the outbox."""
        raise NotImplementedError

    def reset(self, stream: Stream, code: int) -> None:
        """Break `stream` off with a RST_STREAM; `code`: an error code of HTTP/2."""
        raise NotImplementedError

    def taken(self, stream: Stream, size: int) -> None:
        """Note that `stream` has released `size` bytes that it held."""
        raise NotImplementedError


class SessionOwner:
    """The methods that a session calls on its owner: the base class of owners."""

    __slots__ = ()

    def accept(self) -> Stream:
        """Return a stream for a request that an app opens."""
        raise NotImplementedError

    def opened(self) -> None:
        """Take note that the peer's SETTINGS have come."""
        raise NotImplementedError

    def changed(self) -> None:
        """Take note that a stream is over, that the number of `places` has changed, or that the session drains."""
        raise NotImplementedError

    def failed(self, code: int, detail: str) -> None:
        """Send what was gathered, and close the connection, which is given up for an error of the peer. `code`: the
        error code of HTTP/2; `detail`: what the peer did, in a clause for people.
        """
        raise NotImplementedError


class Stream:
    """A stream of a session.

    For its owner: `id`; `blocked`, whether writing should wait for `on_writable`; `bodiless`, to be set if the
    request's method is HEAD; `over`, whether it is not opened yet or has ended both ways.

    For its session: `answered`, a final head has come, or was sent; `window`, the bytes that the peer accepts now,
    below 0 if it has reduced its window; `lane`, the queued bytes, if any were ever queued; `left`, the bytes that the
    peer may still send, and `owed`, those that were taken and not credited yet; `received_all` and `sent_all`, which
    sides have ended; `begun`, the body that is reported together with its head; `expected`, the bytes of body that
    content-length names, -1 for any number; `received`, those that came; `interim`, the size of interim answers;
    `unwanted`, whether it is reset once our side has ended.
    """

    __slots__ = (
        "_held", "_left", "_paused", "_whole_held", "answered", "begun", "blocked", "bodiless", "ending", "expected",
        "head_reported", "held_trailers", "id", "interim", "lane", "left", "over", "owed", "received", "received_all",
        "sent_all", "session", "trailers_queued", "unwanted", "window",
    )  # fmt: skip

    session: StreamSession

    def __init__(self) -> None:
        self.id = 0
        self.window = self.left = self.owed = 0
        self.lane: StreamLane | None = None
        self.over = True
        self.answered = False
        self.blocked = False
        self.bodiless = False
        self.head_reported = False  # whether its first head was reported
        self.begun: list[bytes] | None = None
        self.held_trailers: Trailers2 | None = None  # trailers to report with what is held
        self.received_all = False
        self.received = 0
        self.expected = -1
        self.interim = 0
        self.sent_all = True  # until it is opened
        self.ending = False  # whether END_STREAM follows what is queued,
        self.trailers_queued = b""  # and the block of trailers that carries it, if any
        self.unwanted = False
        self._paused = False
        self._held: list[bytes] | None = None  # what came while paused
        self._whole_held = False  # whether the end of the body came while paused
        self._left = False  # whether the owner wants no further event

    # -- events, reported to the owner ----------------------------------------------------------------------------

    def on_info(self, head: Response2) -> None:
        """Take the head of an interim answer (1xx)."""

    def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        """Take the head, with `data`, the part of the body that came with it (b"" for none). `end`: the message is
        whole, with its `trailers` (None for none).
        """

    def on_data(self, data: bytes) -> None:
        """Take more of the body."""

    def on_end(self, trailers: Trailers2 | None) -> None:
        """Take the end of the body, with the trailers, None if none came."""

    def on_too_large(self, head: Request2, detail: str) -> None:
        """Answer with 431, because the request's head exceeds the limits; `detail` says how, in a clause."""

    def on_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """Note that the stream was broken off. `code`: the error code of HTTP/2, of the peer's RST_STREAM or of the
        peer's error; None if the connection was lost. `detail`: the reason in a clause.

        `processed`: False if the peer says that it did not process the stream. No further event is reported.
        """

    def on_writable(self) -> None:
        """Continue to write: the queued bytes were sent. Never called from within another method of the stream."""

    def on_defect(self, error: Exception) -> None:
        """Handle an exception that another of the owner's `on_…` methods raised: its event is lost, and the session
        goes on without this stream, because the connection has others. This default raises the error, for owners that
        can't report a defect.
        """
        raise error

    # -- actions of the owner -------------------------------------------------------------------------------------

    def send_info(self, block: bytes) -> None:
        """Send `block`, the encoded head of an interim answer."""
        if not self.sent_all:
            self.session.outbox.block(self, block, False)

    def send_head(self, block: bytes, end: bool) -> None:
        """Send the head `block`, which is encoded already; `end`: nothing follows it."""
        if not self.sent_all:
            if not self.session.client:
                self.answered = True
            self.session.outbox.block(self, block, end)

    def send_data(self, data: bytes) -> None:
        """Send more of the body; it is queued if the peer or the transport accepts no more."""
        if data and not self.sent_all:
            self.session.outbox.data(self, data, False)

    def send_end(self, data: bytes = b"", trailers: bytes = b"") -> None:
        """Send `data`, the rest of the body (b"" for none), and the trailers (an encoded block, b"" for none)."""
        if self.sent_all:
            return
        outbox = self.session.outbox
        if data:
            outbox.data(self, data, not trailers)
        if trailers or not data:
            outbox.end(self, trailers)

    def send_message(self, block: bytes, data: bytes, trailers: bytes) -> None:
        """Send the head `block` and the `trailers` (b"" for none), both encoded already, and between them the whole
        body `data`.
        """
        if self.sent_all:
            return
        if not self.session.client:
            self.answered = True
        self.session.outbox.message(self, block, data, trailers)

    @property
    def queued(self) -> int:
        """The number of queued bytes of the body."""
        return 0 if self.lane is None else self.lane.queued

    def reset(self, code: int) -> None:
        """Break the stream off with a RST_STREAM; `code`: an error code of HTTP/2. No further event is reported."""
        self._left = True
        self.drop_held()
        if not self.over:
            self.session.reset(self, code)

    def refuse_rest(self) -> None:
        """Refuse the rest of the peer's body: the peer gets a reset once our side has been sent completely."""
        if not self.received_all and not self.over:
            self.unwanted = True
            if self.sent_all:
                self.reset(NO_ERROR)

    def pause(self) -> None:
        """Stop taking the peer's body for now: no credit is given, and what still comes is held."""
        self._paused = True

    def resume(self) -> None:
        """Take the peer's body again; what was held is reported with the outbox's next `notify_streams`."""
        if self._paused:
            self._paused = False
            if self._held is not None or self._whole_held:
                self.session.outbox.resumed(self)

    # -- for the session ------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether parts of the body that come now are kept until the owner resumes the stream."""
        return self._paused or self._held is not None

    def hold(self, data: bytes) -> None:
        """Keep more of the body until the owner takes it."""
        if self._held is None:
            self._held = []
        self._held.append(data)

    def report_info(self, head: Response2) -> None:
        """Report the head of an interim answer to the owner."""
        try:
            self.on_info(head)
        except Exception as error:
            self.on_defect(error)

    def report_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        """Report the head to the owner, with `data`, the part of the body that came with it (b"" for none). `end`: the
        message is whole, with its `trailers` (None for none).
        """
        try:
            self.on_head(head, data, end, trailers)
        except Exception as error:
            self.on_defect(error)

    def report_too_large(self, head: Request2, detail: str) -> None:
        """Report to the owner a request whose head exceeds the limits; `detail` says how."""
        try:
            self.on_too_large(head, detail)
        except Exception as error:
            self.on_defect(error)

    def report_writable(self) -> None:
        """Report to the owner that the queued bytes were sent."""
        try:
            self.on_writable()
        except Exception as error:
            self.on_defect(error)

    def report_data(self, data: bytes) -> None:
        """Report more of the body to the owner."""
        if self._left:
            return
        try:
            self.on_data(data)
        except Exception as error:
            self.on_defect(error)

    def report_end(self, trailers: Trailers2 | None) -> None:
        """Report to the owner that the body is whole, with its trailers (None for none), once the owner has taken the
        part of the body that is held.
        """
        if self._paused or self._held is not None:
            self._whole_held, self.held_trailers = True, trailers
        elif not self._left:
            try:
                self.on_end(trailers)
            except Exception as error:
                self.on_defect(error)

    def report_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """Report to the owner that the stream was broken off, with the arguments of `on_gone`, and drop the part of the
        body that is held.
        """
        self.drop_held()
        if not self._left:
            self._left = True
            try:
                self.on_gone(code, processed=processed, detail=detail)
            except Exception as error:
                self.on_defect(error)

    @property
    def holds_all(self) -> bool:
        """Whether all of the body came, and its end has yet to be reported."""
        return self._whole_held

    def drop_held(self) -> None:
        """Drop the part of the body that is held, and credit its bytes to the session."""
        held, self._held = self._held, None
        self._whole_held = False
        if held:
            self.session.taken(self, sum(map(len, held)))

    def report_held(self) -> None:
        """Report the held part of the body to the owner, piece by piece, as long as the owner does not pause the
        stream.
        """
        while self._held is not None and not self._paused:
            data, self._held = b"".join(self._held), None
            self.session.taken(self, len(data))
            if data:
                self.report_data(data)
        if self._whole_held and not self._paused:
            self._whole_held = False
            self.report_end(self.held_trailers)
