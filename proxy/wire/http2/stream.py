"""One stream of a session: what it reports to its owner, which overrides `on_…`, and what its owner can do with it."""

from __future__ import annotations

from proxy.wire.http2.flow import Lane
from proxy.wire.http2.frames import NO_ERROR
from proxy.wire.http2.heads import Request2, Response2, Trailers2


class StreamOutbox:
    """What a stream's frames go through: the base of the session's outbox."""

    __slots__ = ()

    def block(self, stream: Stream, block: bytes, end: bool) -> None:
        """Have a head of `stream` sent."""
        raise NotImplementedError

    def data(self, stream: Stream, data: bytes, end: bool) -> None:
        """Have DATA of `stream` sent, when there is room for it."""
        raise NotImplementedError

    def end(self, stream: Stream, trailers: bytes) -> None:
        """Have END_STREAM sent behind all of it."""
        raise NotImplementedError

    def message(self, stream: Stream, block: bytes, data: bytes, trailers: bytes) -> None:
        """Have a whole message of `stream` sent."""
        raise NotImplementedError

    def resumed(self, stream: Stream) -> None:
        """Have it told what it held."""
        raise NotImplementedError


class StreamSession:
    """Where a stream belongs to: the base of its session. `client`: we opened it. `outbox`: what frames go through."""

    __slots__ = ("client", "outbox")

    client: bool
    outbox: StreamOutbox

    def sent(self, stream: Stream) -> None:
        """Our side of `stream` has ended: its last frame was put into the outbox."""
        raise NotImplementedError

    def reset(self, stream: Stream, code: int) -> None:
        """Break it off with a RST_STREAM."""
        raise NotImplementedError

    def taken(self, stream: Stream, size: int) -> None:
        """So much of what it held is held no more."""
        raise NotImplementedError


class Stream:
    """See the module.

    For its owner: `id`; `blocked`, what is written should wait for `on_writable`; `bodiless`, to be set where the
    request's method is HEAD; `over`, it is not opened yet, or has ended both ways.
    For its session: `answered`, a final head has come, or was sent; `window`, the bytes that the peer takes now, below
    0 where it took some back; `lane`, what waits for it, where anything has had to; `left`, the bytes that the peer may
    still send, and `owed`, those that were taken and not credited yet; `received_all` and `sent_all`, which sides have
    ended; `begun`, what is told together with its head; `expected`, bytes of body that content-length names, -1 for any
    number; `received`, those that came; `interim`, the size of interim answers; `unwanted`, it is reset once our side
    has ended.
    """

    __slots__ = (
        "_held", "_left", "_paused", "_whole_held", "answered", "begun", "blocked", "bodiless", "ending", "expected",
        "id", "interim", "lane", "left", "over", "owed", "received", "received_all", "sent_all", "session", "told",
        "trailers_behind", "trailers_queued", "unwanted", "window",
    )  # fmt: skip

    session: StreamSession

    def __init__(self) -> None:
        self.id = 0
        self.window = self.left = self.owed = 0
        self.lane: Lane | None = None
        self.over = True
        self.answered = False
        self.blocked = False
        self.bodiless = False
        self.told = False  # its first head was told
        self.begun: list[bytes] | None = None
        self.trailers_behind: Trailers2 | None = None  # they are told with its head, or with what is held
        self.received_all = False
        self.received = 0
        self.expected = -1
        self.interim = 0
        self.sent_all = True  # until it is opened
        self.ending = False  # END_STREAM follows what is queued,
        self.trailers_queued = b""  # with this block
        self.unwanted = False
        self._paused = False
        self._held: list[bytes] | None = None  # what came while paused
        self._whole_held = False  # and that it is all
        self._left = False  # by its owner: nothing more is told

    # -- told to its owner ----------------------------------------------------------------------------------------

    def on_info(self, head: Response2) -> None:
        """An interim answer."""

    def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        """The head, with what of body and trailers stood behind it; `end`: that is all."""

    def on_data(self, data: bytes) -> None:
        """More of the body."""

    def on_end(self, trailers: Trailers2 | None) -> None:
        """The body is whole."""

    def on_too_large(self, head: Request2, detail: str) -> None:
        """The request's head is above the limits: it is to be answered with 431."""

    def on_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """It was broken off: by the peer's RST_STREAM, for what the peer did, or (None) with the connection.

        `processed`: False where the peer says that it did nothing of it. Nothing more is told.
        """

    def on_writable(self) -> None:
        """What was written has gone: write on. Told from within no other method."""

    def on_defect(self, error: Exception) -> None:
        """One of the methods above raised: what it was called for is lost, and the session goes on without this stream.
        Its connection has others. An owner that can't report a defect has it raised.
        """
        raise error

    # -- asked by its owner ---------------------------------------------------------------------------------------

    def send_info(self, block: bytes) -> None:
        """Send the head of an interim answer."""
        if not self.sent_all:
            self.session.outbox.block(self, block, False)

    def send_head(self, block: bytes, end: bool) -> None:
        """Send the head; `end`: that is all."""
        if not self.sent_all:
            if not self.session.client:
                self.answered = True
            self.session.outbox.block(self, block, end)

    def send_data(self, data: bytes) -> None:
        """Send more of the body; it waits where the peer or the transport takes no more."""
        if data and not self.sent_all:
            self.session.outbox.data(self, data, False)

    def send_end(self, data: bytes = b"", trailers: bytes = b"") -> None:
        """Send the rest of the body, and trailers, a block, where there are any."""
        if self.sent_all:
            return
        outbox = self.session.outbox
        if data:
            outbox.data(self, data, not trailers)
        if trailers or not data:
            outbox.end(self, trailers)

    def send_message(self, block: bytes, data: bytes, trailers: bytes = b"") -> None:
        """Send the head, the whole body, and trailers, a block, where there are any."""
        if self.sent_all:
            return
        if not self.session.client:
            self.answered = True
        self.session.outbox.message(self, block, data, trailers)

    @property
    def queued(self) -> int:
        """Bytes of the body that wait here."""
        return 0 if self.lane is None else self.lane.queued

    def reset(self, code: int) -> None:
        """Break it off. Nothing more is reported of it."""
        self._left = True
        self.drop_held()
        if not self.over:
            self.session.reset(self, code)

    def refuse_rest(self) -> None:
        """The peer may keep what it has not sent of its body: it is told so once all of ours has gone."""
        if not self.received_all and not self.over:
            self.unwanted = True
            if self.sent_all:
                self.reset(NO_ERROR)

    def pause(self) -> None:
        """Take no more of the peer's body for now: no credit is given, and what comes still is held."""
        self._paused = True

    def resume(self) -> None:
        """Take more of it; what was held is told with the next flush."""
        if self._paused:
            self._paused = False
            if self._held is not None or self._whole_held:
                self.session.outbox.resumed(self)

    # -- by its session -------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether what comes now has to wait for its owner."""
        return self._paused or self._held is not None

    def hold(self, data: bytes) -> None:
        """Keep more of the body until its owner takes it."""
        if self._held is None:
            self._held = []
        self._held.append(data)

    def tell_info(self, head: Response2) -> None:
        """Report an interim answer."""
        try:
            self.on_info(head)
        except Exception as error:
            self.on_defect(error)

    def tell_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        """Report the head, with what stood behind it."""
        try:
            self.on_head(head, data, end, trailers)
        except Exception as error:
            self.on_defect(error)

    def tell_too_large(self, head: Request2, detail: str) -> None:
        """Report a head that is above the limits."""
        try:
            self.on_too_large(head, detail)
        except Exception as error:
            self.on_defect(error)

    def tell_writable(self) -> None:
        """Report that what was written has gone."""
        try:
            self.on_writable()
        except Exception as error:
            self.on_defect(error)

    def tell_data(self, data: bytes) -> None:
        """Tell more of the body."""
        if self._left:
            return
        try:
            self.on_data(data)
        except Exception as error:
            self.on_defect(error)

    def tell_end(self, trailers: Trailers2 | None) -> None:
        """Tell that the body is whole, behind what is held of it."""
        if self._paused or self._held is not None:
            self._whole_held, self.trailers_behind = True, trailers
        elif not self._left:
            try:
                self.on_end(trailers)
            except Exception as error:
                self.on_defect(error)

    def tell_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        """Tell that it was broken off, and drop what is held."""
        self.drop_held()
        if not self._left:
            self._left = True
            try:
                self.on_gone(code, processed=processed, detail=detail)
            except Exception as error:
                self.on_defect(error)

    @property
    def holds_all(self) -> bool:
        """Whether all of the body came, and some of it is held."""
        return self._whole_held

    def drop_held(self) -> None:
        """What is held is nobody's."""
        held, self._held = self._held, None
        self._whole_held = False
        if held:
            self.session.taken(self, sum(map(len, held)))

    def tell_held(self) -> None:
        """Tell what was held, while its owner takes it."""
        while self._held is not None and not self._paused:
            data, self._held = b"".join(self._held), None
            self.session.taken(self, len(data))
            if data:
                self.tell_data(data)
        if self._whole_held and not self._paused:
            self._whole_held = False
            self.tell_end(self.trailers_behind)
