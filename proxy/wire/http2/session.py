"""An HTTP/2 connection, as client or server: frames come in, streams get events, and what is to be sent is gathered.

Theory of operation. `feed` takes the bytes that came, with the time, and reports events to streams (`Stream`'s `on_…`),
and to its owner what concerns all of them. What came of one stream in one piece is reported as one event: a head with
its body and trailers, if they come together, even with frames of other streams between them. What is to be sent is
gathered in the `outbox`, which returns it for one write.

Law: a violation by the peer ends the stream or the connection with the code of the contract's table (section 12), and
costs no more than the bytes that the peer sent: nothing that it leaves unread, unfinished or unanswered grows without
limit. A stream that was broken off, by either side, gets that as its last event, and none at all once its owner has
left it.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Final

from proxy.wire.http2 import frames
from proxy.wire.http2.compiled import HEADER, SLICER
from proxy.wire.http2.credit import CONNECTION_WINDOW, Credit
from proxy.wire.http2.fields import Malformed, Trailers2
from proxy.wire.http2.frames import (
    ACK,
    CANCEL,
    CODES,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_LIMIT,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADER_SIZE,
    HEADERS,
    INTERNAL_ERROR,
    KNOWN,
    MOST,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    SMALLEST_LIMIT,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Broken,
    code_name,
    flaw,
)
from proxy.wire.http2.graceful_shutdown import NEVER, GracefulShutdown
from proxy.wire.http2.head_reader import HEAD_SECONDS, HeadReader
from proxy.wire.http2.outbox import Outbox
from proxy.wire.http2.peer_limits import FrameBudget, PeerLimits
from proxy.wire.http2.peer_settings import PeerSettings
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2
from proxy.wire.http2.stream import SessionOwner, Stream, StreamSession
from proxy.wire.http2.stream_ids import StreamIds
from proxy.wire.http2.unfinished_frame import UnfinishedFrame

#: The most bytes of all interim answers of one stream, as header lists count: they pass at once, and no other limit
#: bounds them.
_INTERIM: Final = 256 * 1024
#: The flags of HEADERS that decide how the frame is to be read.
_SHAPE: Final = PADDED | PRIORITIZED | END_HEADERS
#: The budget of one turn while other connections wait for theirs: a frame costs `_LIGHT`, and the frames of a header
#: list also their bytes.
TURN: Final = 16384
_LIGHT: Final = 64


class Session(StreamSession):
    """An HTTP/2 connection. `client`: whether we open its streams; else an app does.

    `streams`: those in flight, by id. `draining`: no more streams are opened. `ended`: the connection is lost, or given
    up. `has_unread`: the last `feed` left bytes unread. `errors` counts, by error code, the streams reset and
    connections given up, by either end (`_count`).
    """

    __slots__ = (
        "_begun", "_budget", "_errors", "_has_changed", "_heads", "_outbox", "_peer", "_preface", "_reading",
        "_shutdown", "_started", "_unfinished", "credit", "draining", "ended", "has_unread", "ids", "limits", "owner",
        "streams",
    )  # fmt: skip

    outbox: Outbox

    def __init__(
        self, owner: SessionOwner, limits: PeerLimits, now: float, *, client: bool, errors: Counter[int] | None = None
    ) -> None:
        self.owner = owner
        self.limits = limits
        self.client = client
        self._errors = Counter() if errors is None else errors
        self.streams: dict[int, Stream] = {}
        self.draining = False
        self.ended = self.has_unread = False
        self.outbox = self._outbox = Outbox()
        self.credit = Credit(limits, self._outbox)
        self.ids = StreamIds(client)
        self._peer = PeerSettings(limits.streams)
        self._shutdown = GracefulShutdown(self._outbox)
        self._heads = HeadReader(limits.header_bytes)
        self._begun: dict[Stream, Request2 | Response2] = {}  # heads to report, with what comes with them
        self._unfinished = UnfinishedFrame(now)
        self._started = now
        self._preface = not client  # whether the preface has yet to come
        self._reading = self._has_changed = False
        self._budget = FrameBudget(limits.resets, now)
        pairs = {
            frames.HEADER_TABLE_SIZE: 0,
            frames.INITIAL_WINDOW_SIZE: limits.window,
            frames.MAX_FRAME_SIZE: FRAME_LIMIT,
            frames.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        if client:
            self._outbox.put(PREFACE)
            pairs[frames.ENABLE_PUSH] = 0
        else:
            pairs[frames.MAX_CONCURRENT_STREAMS] = limits.streams
        self._outbox.put(frames.settings(pairs))
        self._outbox.put(frames.window_update(0, CONNECTION_WINDOW - FIRST_WINDOW))

    # -- streams --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the peer's SETTINGS have come, and the connection is not given up."""
        return self._peer.came and not self.ended

    @property
    def places(self) -> int:
        """The number of further streams that may be opened now; below 0 if the peer has reduced its limit."""
        return self._peer.streams - len(self.streams) if self._peer.came and not self.draining else 0

    @property
    def is_free(self) -> bool:
        """Whether another stream may be opened."""
        return len(self.streams) < self._peer.streams and self._peer.came and not self.draining

    @property
    def used(self) -> bool:
        """Whether any stream of the connection is over, so that the connection has served a call."""
        return self.ids.ended.any

    def broke_off(self, stream: Stream) -> bool:
        """Whether we, not the peer, broke off this stream, which is over; True, too, if that is not remembered any
        more.
        """
        return self.ids.ended.was_reset(stream.id) is not False

    def open(self, stream: Stream) -> None:
        """Open `stream`, for which a place must be free; the owner sends its head next."""
        number = self.ids.next
        self._enter(stream, number)
        self.ids.next = number + 2
        if self.ids.are_used_up:
            self.draining = True

    def _enter(self, stream: Stream, number: int) -> None:
        stream.id = number
        stream.session = self
        stream.over = stream.sent_all = False
        stream.window = self._peer.window
        stream.left = self.limits.window
        self.streams[number] = stream

    def sent(self, stream: Stream) -> None:
        stream.sent_all = True
        if stream.received_all:
            self._close(stream, False)
        elif stream.unwanted:
            stream.reset(NO_ERROR)

    def _received(self, stream: Stream) -> None:
        """Note that the peer's side of a stream has ended."""
        stream.received_all = True
        if stream.sent_all:
            self._close(stream, False)

    def _close(self, stream: Stream, was_reset: bool) -> None:
        if was_reset:
            stream.drop_held()
        stream.over = stream.sent_all = True
        stream.blocked = False
        number = stream.id
        del self.streams[number]
        if stream.lane is not None:
            self._outbox.leave(stream)
        self.ids.ended.add(number, was_reset)
        if self._reading:
            self._has_changed = True
        else:
            self.owner.changed()

    def _notify_changed(self) -> None:
        """Notify the session's owner that a stream is over, or that the number of free places has changed. Called after
        reading: the owner may then close the connection, which must not happen before streams got all events of what
        was read.
        """
        if self._reading:
            self._has_changed = True
        else:
            self.owner.changed()

    def reset(self, stream: Stream, code: int) -> None:
        self._begun.pop(stream, None)
        self._close(stream, True)
        if code not in (NO_ERROR, CANCEL):
            self._count(code)
        if not self.ended:
            self._outbox.put(frames.rst_stream(stream.id, code))

    def _refuse(self, number: int, code: int) -> None:
        """Send RST_STREAM with this code for stream `number`, which is not opened, or is over."""
        self.ids.ended.add(number, True)
        self._count(code)
        self._outbox.reply(frames.rst_stream(number, code))

    def _count(self, code: int) -> None:
        """Count an error by its code, for metrics. An unknown code counts as INTERNAL_ERROR (RFC 9113 section 7)."""
        self._errors[code if code < len(CODES) else INTERNAL_ERROR] += 1

    def _break(self, stream: Stream, code: int, detail: str, now: float) -> None:
        """Break off a stream on which the peer broke the rules: `code` is the error code of HTTP/2, `detail` says which
        rule, in a clause. A peer that makes us reset streams counts as one that resets them.
        """
        self._report_begun()
        if not stream.over:
            self._budget.spend(self.limits.resets, now)
            self.reset(stream, code)
            stream.report_gone(code, processed=True, detail=detail)

    # -- credit ---------------------------------------------------------------------------------------------------

    def taken(self, stream: Stream, size: int) -> None:
        self.credit.release(stream, size)

    # -- what came ------------------------------------------------------------------------------------------------

    def feed(self, data: bytes, now: float, turn: int = MOST) -> None:
        """Read bytes that came from the peer, at time `now`. `turn` bounds about how much is read at once (see TURN);
        if bytes are left over (property `has_unread`) afterwards, feed again, with b"" if nothing more came.
        """
        if self.ended:
            return
        unfinished = self._unfinished
        if unfinished.rest:
            data = unfinished.joined(data)
            if not data:
                return
        self._reading = True
        self.has_unread = False
        try:
            at = self._read(data, now, turn)
            self._report_begun()
        except Broken as broken:
            self._report_begun()
            self.fail(broken.code, broken.detail)
            return
        finally:
            self._reading = False
        if self._has_changed:
            self._has_changed = False
            self.owner.changed()
        if unfinished.rest or at < len(data):
            unfinished.keep(data, at, now)

    def _read(self, data: bytes, now: float, turn: int) -> int:
        """Read whole frames of `data` until their costs exceed `turn`, the budget of one turn (see `_LIGHT`). Returns
        the offset in `data` of the first frame that was not read.
        """
        at, size, heads, peer = 0, len(data), self._heads, self._peer
        length: int
        if self._preface:
            at = self._read_preface(data)
            if not at:
                return 0
        while size - at >= HEADER_SIZE:
            high, low, kind, flags, number = HEADER.unpack_from(data, at)
            length = high << 8 | low
            number &= MOST
            if kind > HEADERS or not number or length > SMALLEST_LIMIT:  # no other header can be invalid
                wrong = flaw(kind, flags, number, length)
                if wrong is not None:
                    raise Broken(*wrong)
            if not peer.came or heads.number:
                self._check_order(kind, flags, number)
            end = at + HEADER_SIZE + length
            if end > size:
                self._unfinished.need = HEADER_SIZE + length
                return at
            at += HEADER_SIZE
            payload = data[at:end] if SLICER is None else SLICER.cut(data, at, end)
            if kind == DATA:
                self._data(flags, number, payload, now)
            elif kind == HEADERS:
                if flags & _SHAPE == END_HEADERS:
                    self._head(number, payload, flags & END_STREAM != 0, now)
                else:
                    self._headers(flags, number, payload, now)
            elif kind < KNOWN:
                self._other(kind, flags, number, payload, now)
            if self.ended:
                return size
            at = end
            turn -= _LIGHT
            if kind in (HEADERS, CONTINUATION):
                turn -= length
            if turn <= 0 and at < size:
                self.has_unread = True
                self._unfinished.need = 0
                return at
        self._unfinished.need = HEADER_SIZE
        return at

    def _read_preface(self, data: bytes) -> int:
        """Return the offset of the first frame, after the client's preface; 0 if that is not whole yet."""
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise Broken(PROTOCOL_ERROR, "the preface is malformed")
        if len(data) < len(PREFACE):
            return 0
        self._preface = False
        return len(PREFACE)

    def _check_order(self, kind: int, flags: int, number: int) -> None:
        """Raise Broken for a frame that may not come here: one before SETTINGS, or one between the frames of a head.
        `kind`: the frame's type; `number`: its stream's id, 0 for the connection.
        """
        if not self._peer.came and (kind != SETTINGS or flags & ACK):
            raise Broken(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._heads.number and (kind != CONTINUATION or number != self._heads.number):
            raise Broken(PROTOCOL_ERROR, "a head is interrupted")

    def _report_begun(self) -> None:
        """Report the heads that were kept until the bytes of a `feed` were read, each with the body and trailers that
        came after it.
        """
        while self._begun:
            self._report_head(next(iter(self._begun)), None)

    def _report_head(self, stream: Stream, trailers: Trailers2 | None) -> None:
        """Report the head of a stream to the stream's owner, with the body and trailers that came with it."""
        head = self._begun.pop(stream)
        body, stream.begun = stream.begun, None
        data = b""
        if body:
            data = body[0] if len(body) == 1 else b"".join(body)
        stream.head_reported = True
        stream.report_head(head, data, stream.received_all, trailers)

    # -- bodies ---------------------------------------------------------------------------------------------------

    def _data(self, flags: int, number: int, payload: bytes, now: float) -> None:
        size = len(payload)
        self.credit.spend(size)
        stream = self.streams.get(number)
        if flags & PADDED:
            payload = _unpadded(payload, 0)
        end = flags & END_STREAM != 0
        if not payload and not end:
            self._budget.spend(self.limits.resets, now)
        if stream is None:
            self._stray_data(number, size, now)
            return
        if (
            stream.received_all
            or size > stream.left
            or (not stream.head_reported and stream.begun is None)
            or (stream.expected >= 0 and not _fits(stream, len(payload), end))
        ):
            self._break_for_data(stream, size, now)
            return
        stream.left -= size
        if end:
            self._received(stream)
        if stream.begun is None and payload and stream.holds:
            self._hold(stream, payload, size, end)
            return
        self.credit.read(stream, size, end)
        if stream.begun is not None:
            if payload:
                stream.begun.append(payload)
            if end:
                self._report_head(stream, None)
            return
        if payload:
            stream.report_data(payload)
        if end:
            stream.report_end(None)

    def _stray_data(self, number: int, size: int, now: float) -> None:
        """Refuse DATA of the closed stream with the id `number`, with a RST_STREAM unless we had broken the stream off.
        Raises Broken if the stream was never opened. The bytes, `size` of them with the padding, are credited to the
        connection.
        """
        self.credit.give(size)
        self.ids.check_known(number)
        if not self.ids.ended.was_reset(number):
            self._budget.spend(self.limits.resets, now)
            self._refuse(number, STREAM_CLOSED)

    def _break_for_data(self, stream: Stream, size: int, now: float) -> None:
        """Break off a stream whose peer sent `size` bytes of DATA that it may not send, for the first reason that
        holds.
        """
        if stream.received_all:
            code, detail = STREAM_CLOSED, "DATA after the end of the stream"
        elif size > stream.left:
            code, detail = FLOW_CONTROL_ERROR, "more DATA than the stream's window"
        elif not stream.head_reported and stream.begun is None:
            code, detail = PROTOCOL_ERROR, "DATA before a head"
        else:
            code, detail = PROTOCOL_ERROR, "DATA that does not match content-length"
        self.credit.give(size)
        self._break(stream, code, detail, now)

    def _hold(self, stream: Stream, payload: bytes, size: int, end: bool) -> None:
        """Hold DATA of a stream that has paused. `payload`: its bytes without the padding; `size`: their number with
        the padding; `end`: it had END_STREAM.
        """
        stream.hold(payload)
        self.credit.hold(stream, size, len(payload))
        if end:
            stream.report_end(None)

    # -- heads ----------------------------------------------------------------------------------------------------

    def _headers(self, flags: int, number: int, payload: bytes, now: float) -> None:
        """Read a HEADERS frame of the stream with the id `number` that is padded, has a priority, or continues in other
        frames: its header block without these, or the beginning of that block.
        """
        start = 5 if flags & PRIORITIZED else 0
        if flags & PADDED:
            payload = _unpadded(payload, start)
        elif start:
            if len(payload) < start:
                raise Broken(FRAME_SIZE_ERROR, "a head is shorter than its priority")
            payload = payload[start:]
        if flags & END_HEADERS:
            self._head(number, payload, flags & END_STREAM != 0, now)
        else:
            self._heads.begin(number, payload, bool(flags & END_STREAM), now)

    def _continuation(self, flags: int, payload: bytes, now: float) -> None:
        number = self._heads.number
        block = self._heads.go_on(payload, bool(flags & END_HEADERS))
        if block is not None:
            self._head(number, block, self._heads.end, now)

    def _head(self, number: int, block: bytes, end: bool, now: float) -> None:
        """Read a whole header block of stream `number` as what it is: the head of a request or of an answer, or
        trailers. A block that may not come here breaks its stream off, or is refused if there is no such stream; it is
        decoded all the same, because later blocks depend on it. `end`: END_STREAM came with it.
        """
        stream = self.streams.get(number)
        if stream is None:
            if self.ids.is_new(number):
                self._request(number, block, end, now)
            else:
                self._stray_head(number, block, now)
            return
        try:
            if stream.received_all:
                self._heads.pass_over(block)
                self._break(stream, STREAM_CLOSED, "a head after the end of the stream", now)
            elif self.client and not stream.answered:
                self._answer(stream, block, end, now)
            else:
                self._trailers(stream, block, end, now)
        except Malformed as bad:
            self._break(stream, PROTOCOL_ERROR, str(bad), now)

    def _stray_head(self, number: int, block: bytes, now: float) -> None:
        """Refuse a head on the stream with the id `number`, which is over, with a RST_STREAM unless we had broken the
        stream off; its header block is decoded all the same. Raises Broken if the stream never existed.
        """
        was_reset = self.ids.ended.was_reset(number)
        if was_reset is None:
            raise Broken(PROTOCOL_ERROR, f"a head on the stream {number}")
        self._heads.pass_over(block)
        if not was_reset:
            self._budget.spend(self.limits.resets, now)
            self._refuse(number, STREAM_CLOSED)

    def _request(self, number: int, block: bytes, end: bool, now: float) -> None:
        """Open the stream `number` for an app's request, whose header block has come. The stream is refused with a
        RST_STREAM if too many are open or the head is malformed. `end`: no body follows the head.
        """
        limits = self.limits
        if self._shutdown.named:  # the client knows from our GOAWAY that the stream is not served
            self._heads.pass_over(block)
            self.ids.highest = number
            self.ids.ended.add(number, True)
            return
        if len(self.streams) >= limits.streams:
            self._heads.pass_over(block)
            self.ids.highest = number
            self._refuse(number, REFUSED_STREAM)
            return
        try:
            head = self._heads.request(block, end)
            self.ids.highest = number
        except Malformed:
            self.ids.highest = number
            self._budget.spend(self.limits.resets, now)
            self._refuse(number, PROTOCOL_ERROR)
            return
        stream = self.owner.accept()
        self._enter(stream, number)
        stream.received_all = end
        if head.content_length is not None:
            stream.expected = head.content_length
        if head.list_size > limits.header_bytes or head.count > limits.headers:
            large = self._too_large(head.list_size)
            stream.head_reported = True
            stream.report_too_large(head, large)
        elif end:
            stream.head_reported = True
            stream.report_head(head, b"", True, None)
        else:
            self._begun[stream] = head
            stream.begun = []

    def _too_large(self, size: int) -> str:
        """Return a clause that says how a header list of `size` bytes exceeds the limits. Raises Broken for a list that
        is more than twice as large.
        """
        most = self.limits.header_bytes
        if size > 2 * most:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit")
        if size > most:
            return f"the header is longer than {most} bytes"
        return f"more than {self.limits.headers} header fields"

    def _answer(self, stream: Stream, block: bytes, end: bool, now: float) -> None:
        """Read the header block of an answer, and report its head: an interim one at once, a final one with the part of
        the body that came with it. Raises Malformed. `end`: no body follows the head.
        """
        head = self._heads.answer(block, end)
        limits = self.limits
        if head.list_size > limits.header_bytes or head.count > limits.headers:
            self._break(stream, ENHANCE_YOUR_CALM, self._too_large(head.list_size), now)
        elif head.status < 200:
            stream.interim += head.list_size
            if end or stream.interim > _INTERIM:
                raise Malformed("an interim answer that ends the stream, or too many of them")
            stream.report_info(head)
        else:
            length = head.content_length
            stream.answered = True
            if stream.bodiless or head.status in (204, 304):
                stream.expected = 0
            elif length is not None:
                stream.expected = length
            if end and stream.expected > 0:
                raise Malformed("content-length on an answer without a body")
            self._begun[stream] = head
            stream.begun = []
            if end:
                self._received(stream)
                self._report_head(stream, None)

    def _trailers(self, stream: Stream, block: bytes, end: bool, now: float) -> None:
        trailers = self._heads.trailers(block)
        if not end:
            raise Malformed("trailers that do not end the stream")
        limits = self.limits
        if trailers.list_size > limits.header_bytes or len(trailers.fields) > limits.headers:
            self._break(stream, ENHANCE_YOUR_CALM, self._too_large(trailers.list_size), now)
            return
        if stream.expected >= 0 and not _fits(stream, 0, True):
            raise Malformed("DATA that does not match content-length")
        self._received(stream)
        if stream.begun is not None:
            self._report_head(stream, trailers)
        else:
            stream.report_end(trailers)

    # -- other frames ---------------------------------------------------------------------------------------------

    def _other(self, kind: int, flags: int, number: int, payload: bytes, now: float) -> None:
        """Act on a frame that is neither DATA nor HEADERS, by its type `kind`; `number`: its stream's id, 0 for the
        connection. Frames of PRIORITY and of unknown types are ignored.
        """
        if kind == WINDOW_UPDATE:
            self._window_update(number, payload, now)
        elif kind == RST_STREAM:
            self._rst_stream(number, payload, now)
        elif kind == SETTINGS:
            self._settings(flags, payload, now)
        elif kind == PING:
            self._ping(flags, payload, now)
        elif kind == CONTINUATION:
            self._continuation(flags, payload, now)
        elif kind == GOAWAY:
            self._goaway(payload)
        elif kind == PUSH_PROMISE:
            raise Broken(PROTOCOL_ERROR, "a PUSH_PROMISE")

    def _rst_stream(self, number: int, payload: bytes, now: float) -> None:
        self._report_begun()
        stream = self.streams.get(number)
        if stream is None:
            self.ids.check_known(number)
            return
        if not self.client and not stream.answered:
            self._budget.spend(self.limits.resets, now)
        code = int.from_bytes(payload, "big")
        if code and (self.client or code != CANCEL):  # an app that cancels is no error
            self._count(code)
        if (
            self.client and stream.received_all
        ):  # the answer is whole, and reported or held; the peer wants no more of our body
            self._close(stream, stream.holds_all is False)
            return
        self._close(stream, True)
        self.ids.ended.add(number, False)  # the peer has nothing of it under way: what still comes is after its end
        stream.report_gone(code, processed=code != REFUSED_STREAM, detail=f"the peer reset it: {code_name(code)}")

    def _settings(self, flags: int, payload: bytes, now: float) -> None:
        first = not self._peer.came
        if not first:
            self._budget.spend(self.limits.resets, now)
        if flags & ACK:
            self._heads.acknowledged = self.credit.acknowledged = True
            return
        window = self._peer.window
        self._peer.read(payload, self.client)
        self._outbox.frame_limit = min(self._peer.frame_limit, FRAME_LIMIT)
        self._outbox.reply(frames.frame(SETTINGS, ACK, 0))
        if self._peer.window != window:
            self._grow(self._peer.window - window)
        if first:
            self.owner.opened()
        self._notify_changed()

    def _grow(self, increment: int) -> None:
        """Enlarge the window of every stream by `increment`, or shrink it if that is negative."""
        for stream in self.streams.values():
            self._outbox.grant(stream, increment)
            if stream.window > MOST:
                raise Broken(FLOW_CONTROL_ERROR, "a window above 2^31-1")
        self._outbox.pump()

    def _ping(self, flags: int, payload: bytes, now: float) -> None:
        self._budget.spend(self.limits.resets, now)
        if not flags & ACK:
            self._outbox.reply(frames.frame(PING, ACK, 0, payload))
        elif self._shutdown.is_answered(payload):
            self._name_last()

    def _goaway(self, payload: bytes) -> None:
        last, code = struct.unpack_from(">II", payload)
        last &= MOST
        self.draining = True
        if code:
            self._count(code)
        if self.client:
            self._report_begun()
            for stream in [each for key, each in self.streams.items() if key > last]:
                if not stream.over:
                    self._close(stream, True)
                    stream.report_gone(REFUSED_STREAM, processed=False, detail=f"the peer goes away: {code_name(code)}")
        self._notify_changed()

    def _window_update(self, number: int, payload: bytes, now: float) -> None:
        increment = int.from_bytes(payload, "big") & MOST
        if number == 0:
            self._outbox.window += increment
            if not increment:
                raise Broken(PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
            if self._outbox.window > MOST:
                raise Broken(FLOW_CONTROL_ERROR, "a window above 2^31-1")
        else:
            stream = self.streams.get(number)
            if stream is None:
                self.ids.check_known(number)
                return
            self._outbox.grant(stream, increment)
            if not increment:
                self._break(stream, PROTOCOL_ERROR, "a WINDOW_UPDATE of 0", now)
                return
            if stream.window > MOST:
                self._break(stream, FLOW_CONTROL_ERROR, "a window above 2^31-1", now)
                return
        if self._outbox.has_waiting:
            self._outbox.pump()

    # -- the end --------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The time (seconds) at which `tick` is to be called next; infinite if nothing is awaited."""
        if self._peer.came and not self._unfinished.rest and not self._heads.number:  # the usual case, made fast
            return self._shutdown.due
        return min(self._late_at, self._shutdown.due)

    @property
    def _late_at(self) -> float:
        """The time by which what has begun to come must be whole: a head, or the preface and SETTINGS."""
        if self._heads.number:
            return self._heads.since + HEAD_SECONDS
        if not self._peer.came and not self.client:
            return self._started + HEAD_SECONDS
        return self._unfinished.since + HEAD_SECONDS if self._unfinished.is_head else NEVER

    def tick(self, now: float) -> None:
        """Handle the passing of time: a head that is not whole by now ends the connection; a session that drains sends
        the GOAWAY that names its last stream.
        """
        if self.ended:
            return
        if now >= self._late_at:
            self.fail(PROTOCOL_ERROR, f"a head that was not whole in {HEAD_SECONDS:g} s")
        elif now >= self._shutdown.due:
            self._name_last()

    def drain(self, now: float) -> None:
        """Serve the open streams, and those that the peer opens before it learns of the drain; then no more (RFC 9113,
        6.8).
        """
        if self.ended or self._shutdown.has_begun:
            return
        self.draining = True
        self._shutdown.begin(now)

    def _name_last(self) -> None:
        self._shutdown.name_last(self.ids.highest)
        self._notify_changed()

    @property
    def drained(self) -> bool:
        """Whether the session drains, and has nothing left to do."""
        return self.draining and self._shutdown.due == NEVER and not self.streams

    def fail(self, code: int, detail: str) -> None:
        """Give the connection up: send GOAWAY, and report every stream as gone. `code`: the error code of HTTP/2;
        `detail`: what the peer did, in a clause for people.
        """
        if not self.ended:
            if code:
                self._count(code)
            self._outbox.put(frames.goaway(self.ids.highest, code, detail))
            self.lost(code, detail)
            self.owner.failed(code, detail)

    def lost(self, code: int | None = None, detail: str = "the connection was lost") -> None:
        """Note that the connection is lost: every stream gets that event, except for one whose answer came whole, which
        stays whole. `code`: the error code of HTTP/2 for which we gave the connection up, None if we did not; `detail`:
        the reason in a clause.
        """
        if self.ended:
            return
        self.ended = self.draining = True
        self.has_unread = False
        self._begun.clear()
        self._unfinished.rest = bytearray()
        self.credit.close()
        self._outbox.clear()
        for stream in list(self.streams.values()):
            if stream.over:
                continue
            whole = self.client and stream.holds_all
            self._close(stream, not whole)
            if not whole:
                stream.report_gone(code, processed=True, detail=detail)


def _unpadded(payload: bytes, start: int) -> bytes:
    """Return a payload without its padding and without the `start` bytes of its priority. Raises Broken if the padding
    is longer than the rest of the frame.
    """
    padding = payload[0] if payload else 256
    if 1 + start + padding > len(payload):
        raise Broken(PROTOCOL_ERROR, "more padding than frame")
    return payload[1 + start : len(payload) - padding]


def _fits(stream: Stream, size: int, end: bool) -> bool:
    """Count `size` more bytes of body (`end`: the last ones). Returns whether the body still matches content-length."""
    stream.received += size
    return stream.received == stream.expected if end else stream.received <= stream.expected
