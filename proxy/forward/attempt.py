"""An attempt: from the dial to the end of its answer.

An attempt has no reference to other attempts, and does not judge its answer. It listens to its stream, keeps bytes that
its exchange has not taken yet, and reports events to its exchange. Its states follow what the call decides:

    FLYING -> PEEKING -> HOLDING -> DELIVERING -> GONE        (each may be left out)

The answer has not come (FLYING), the beginning of its body is collected for the decision (PEEKING), it is kept while
the call waits (HOLDING), it goes to the app (DELIVERING), or nothing more of it is of interest (GONE). The first
attempt of a call that needed no decision is kept, with its exchange, for the next call.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from proxy.retry.answers.first_byte import BodyWait
from proxy.retry.answers.stream_errors import StreamWatch
from proxy.retry.answers.token_usage import UsageReader
from proxy.retry.facts import PUSHBACK_FIELDS, Fault, Reply
from proxy.transport.clock import monotonic
from proxy.transport.direct_dial import DirectDial
from proxy.transport.origins import Origin
from proxy.transport.replay_buffer import Replay
from proxy.transport.streams import Listener, UpstreamStream
from proxy.wire.head import ResponseHead, Trailers

#: The bytes that are kept of an answer while its call waits (contract, section 4).
HELD = 64 * 1024

#: The fields for which an answer is looked at more closely: those of pushbacks and of logins (NTLM, Negotiate).
_TELLING = frozenset(name.encode() for name in (*PUSHBACK_FIELDS, "www-authenticate", "proxy-authenticate"))
#: The fields that the proxy acts on (`specials`) of the two latest heads that had none of these, mostly a failure's and
#: a success's. A connection returns the same head as long as the same bytes come.
_NOT_TELLING: list[dict[bytes, bytes]] = [{}, {}]


class State(Enum):
    """The state of an attempt, which decides what happens to the answer's bytes."""

    FLYING = "flying"
    PEEKING = "peeking"
    HOLDING = "holding"
    DELIVERING = "delivering"
    GONE = "gone"


FLYING, PEEKING, HOLDING, DELIVERING, GONE = State


class AttemptOwner:
    """The owner of attempts, which gets their events: the exchange of a call. It is a base class, and no protocol,
    because compiled code calls its methods without the interpreter.

    `moved`: the time at which bytes last came or were sent. `flights`: the attempts that have not ended, or whose
    answers are kept or being delivered, by number. `decided`: whether anything had to be decided about the call.
    """

    __slots__ = ("decided", "flights", "moved")

    decided: bool
    flights: dict[int, Attempt]
    moved: float

    def begun(self, attempt: Attempt) -> None:
        """Note that the proxy has begun to send the attempt's request; if the attempt's `sent_at` is set, all of it was
        sent.
        """

    def informed(self, attempt: Attempt, head: ResponseHead) -> None:
        """Take an interim answer (1xx) of the attempt."""

    def forward_success(
        self, attempt: Attempt, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None
    ) -> bool:
        """Forward an answer for which nothing has to be decided, and return True; for any other answer, do nothing and
        return False. Called only while the call is not `decided`. `head`: of a status below 400, since all others have
        to be decided about. `data`: the part of the
        answer's body that came with its head, all of it if `end`; only then may there be `trailers`.
        """
        raise NotImplementedError

    def answered(self, attempt: Attempt, reply: Reply, stream: UpstreamStream | None) -> None:
        """Take the head of an attempt's answer, `reply`, if the call has to decide what to do with it. `stream`: the
        stream by which the head came; the stream may have ended with that head.
        """

    def peeked(self, attempt: Attempt, body: bytes) -> None:
        """Take the part of an answer's body that was to be examined before the decision, or the whole body if it is
        shorter.
        """

    def forward(self, attempt: Attempt, data: bytes) -> None:
        """Take `data`, more bytes of the body of the answer that is being delivered to the app."""

    def forward_chunks(self, attempt: Attempt, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        """Take more of the answer that is being delivered to the app: `chunks`, with the framing that they came in.
        `size`: the bytes in them without the framing. `owed`: the bytes that are missing of the last chunk, 0 if it is
        whole. `payload`: the bytes without the framing, if the attempt's `watch` reads them, else None.
        """

    def answer_ended(self, attempt: Attempt) -> None:
        """Note that the answer that is being delivered is whole, or that the upstream sends no more into a tunnel."""

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """Note that the attempt ended with this fault, without a whole answer."""

    def upstream_writable(self, attempt: Attempt) -> None:
        """Send more of the request's body, because the attempt's stream takes bytes again."""

    def break_down(self, error: Exception, now: float) -> None:
        """End the call, because `error` has shown a defect of the proxy; with an answer if none has begun."""


class Attempt(Listener):
    """An attempt of a call: its stream, its request as far as it is sent, and its answer as far as it is kept.

    `kept`: what came of the answer's body and the exchange has not taken yet (`take`), in pieces if it came after the
    head. `body_wait`: the reader of the beginning of a success whose delivery waits for what it
    finds, None if there is none; `watch`: the reader that looks for errors and token counts in the delivered answer,
    None if there is none. `cursor`: bytes of the request's body that were given to the stream; `sent_at`: the time at
    which the last of them was given. `ended`, `fault`: how the answer ended, if it ended before it was delivered.
    `task`: the dial, while it lasts. `sent_on`: the stream that the attempt was sent on, set once that stream is over
    or has failed. `protocol`: the version of HTTP that the attempt was sent in; set only for calls that begin without
    the object that decides (`Call`), because nothing has to be decided. `key`: the number of the credential that the
    attempt carries, None for none.
    """

    __slots__ = (
        "arrived", "body_wait", "cursor", "ended", "fault", "head", "kept", "kept_size", "key", "limit", "number",
        "origin", "owner", "protocol", "replay", "sent_at", "sent_on", "state", "stream", "task", "trailers", "watch",
    )  # fmt: skip

    head: ResponseHead
    arrived: float
    limit: int

    def __init__(self, owner: AttemptOwner, number: int, origin: Origin) -> None:
        self.begin(owner, number, origin)

    def begin(self, owner: AttemptOwner, number: int, origin: Origin) -> None:
        """Begin the attempt, on an object that was made past its constructor, which takes longer, or has ended."""
        self.owner = owner
        self.number = number
        self.origin = origin
        self.state = FLYING
        self.stream: UpstreamStream | None = None
        self.protocol = ""
        self.key: int | None = None
        self.task: asyncio.Task[None] | DirectDial | None = None
        self.replay: Replay | None = None
        self.cursor = 0
        self.sent_at: float | None = None
        self.sent_on: UpstreamStream | None = None
        self.kept: bytes | list[bytes] = b""
        self.kept_size = 0
        self.ended = False
        self.trailers: Trailers | None = None
        self.fault: Fault | None = None
        self.body_wait: BodyWait | None = None
        self.watch: StreamWatch | UsageReader | None = None

    # -- sending --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Write further bytes of the request's body to the stream, while it takes them."""
        stream, replay = self.stream, self.replay
        if stream is None or replay is None or self.sent_at is not None:
            return
        last = b""
        while not stream.blocked and self.cursor < replay.end:
            piece = replay.read(self.cursor)
            self.cursor += len(piece)
            if replay.done and self.cursor == replay.end:
                last = piece
            else:
                stream.write(piece)
        if replay.done and self.cursor == replay.end:
            stream.finish(replay.trailers, last)
            self.sent_at = monotonic()

    @property
    def sent(self) -> int:
        """The number of bytes of the request's body that the upstream, or the kernel on the way to it, has taken. -1:
        the attempt has no connection yet; -2: the attempt no longer needs the body.
        """
        if self.state is GONE or self.state is HOLDING:
            return -2
        return -1 if self.stream is None else max(0, self.cursor - self.stream.unsent)

    # -- events of the stream -------------------------------------------------------------------------------------

    def on_info(self, head: ResponseHead) -> None:
        try:
            self.owner.informed(self, head)
        except Exception as error:
            self._break_down(error)

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None) -> None:
        """Report the final head of the answer. `data`: the part of the body that came with it, all of it if `end`, with
        its `trailers`.
        """
        owner = self.owner
        try:
            if (
                trailers is None
                and not owner.decided
                and head.status < 400
                and owner.forward_success(self, head, data, end, None)
            ):
                return
            self.head = head
            self.arrived = owner.moved = monotonic()
            stream = self.stream
            if end:
                self.stream, self.sent_on = None, stream
                self.ended = True
                self.trailers = None if trailers is None else head.trailers_to_forward(trailers)
            if data:
                self.kept = data
                self.kept_size = len(data)
            reply = Reply.__new__(Reply)
            is_bare = end and not data and trailers is None
            # Nothing is judged by trailers, since they may come later than the head, and most do (gRPC A6).
            reply.begin(head.status, head, is_bare, None, _tells_nothing(head.specials), self.sent_at is None)
            reply.whole = end
            owner.answered(self, reply, stream)
        except Exception as error:
            self._break_down(error)

    def on_whole(self, head: ResponseHead, data: bytes, trailers: Trailers) -> bool:
        """Forward an answer that came in one piece (head, body `data` and trailers), and return True; False if the call
        has to decide something first, so that nothing was forwarded.
        """
        owner = self.owner
        return head.status < 400 and not owner.decided and owner.forward_success(self, head, data, True, trailers)

    def on_data(self, data: bytes) -> None:
        """Take more of the answer's body: forward it if the answer is being delivered, else keep it."""
        try:
            self._take_data(data)
        except Exception as error:
            self._break_down(error)

    def _take_data(self, data: bytes) -> None:
        self.owner.moved = monotonic()
        if self.state is DELIVERING:
            self.owner.forward(self, data)
            return
        kept = self.kept
        if isinstance(kept, bytes):
            kept = self.kept = [kept] if kept else []
        kept.append(data)
        self.kept_size += len(data)
        if self.state is PEEKING:
            body_wait = self.body_wait
            if self.kept_size >= self.limit if body_wait is None else body_wait.feed(data, self.owner.moved):
                self._peeked()
        elif self.kept_size >= HELD and self.stream is not None:
            self.stream.pause()

    def on_chunks(self, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        try:
            if size:
                self.owner.moved = monotonic()
            self.owner.forward_chunks(self, chunks, size, owed, payload)
        except Exception as error:
            self._break_down(error)

    def on_end(self, trailers: Trailers | None) -> None:
        try:
            self._take_end(trailers)
        except Exception as error:
            self._break_down(error)

    def _take_end(self, trailers: Trailers | None) -> None:
        self.owner.moved = monotonic()
        self.ended = True
        self.trailers = None if trailers is None else self.head.trailers_to_forward(trailers)
        if self.state is DELIVERING:
            self.owner.answer_ended(self)
            return
        self.stream = None
        if self.state is PEEKING:
            self._peeked()

    def on_fault(self, fault: Fault) -> None:
        """Report that the stream broke; if the answer is kept while its call waits, only note the fault."""
        self.stream, self.sent_on = None, self.stream
        if self.state is HOLDING:
            self.fault = fault
        elif self.state is not GONE:
            try:
                self.owner.failed(self, fault)
            except Exception as error:
                self._break_down(error)

    def on_writable(self) -> None:
        try:
            self.owner.upstream_writable(self)
        except Exception as error:
            self._break_down(error)

    def _break_down(self, error: Exception) -> None:
        """Have the owner end the call because of `error`, a defect of the proxy. The exception goes no further: other
        calls may share the connection whose bytes were being handled.
        """
        self.owner.break_down(error, monotonic())

    # -- for the exchange -----------------------------------------------------------------------------------------

    def peek(self, limit: int, body_wait: BodyWait | None = None) -> None:
        """Collect `limit` bytes of the answer's body, or all of it if that is less, or, if there is a `body_wait`, as
        much as that waits for; then report them to the owner.
        """
        self.state = PEEKING
        self.limit = limit
        self.body_wait = body_wait
        seen = False
        if body_wait is not None:
            body_wait.began = self.sent_at
            pieces = [self.kept] if isinstance(self.kept, bytes) else self.kept
            seen = any(body_wait.feed(piece, self.arrived) for piece in pieces if piece)
        if self.ended or seen or (body_wait is None and self.kept_size >= limit):
            self._peeked()

    def tire(self, now: float) -> None:
        """Report an answer that is kept until its body begins (`waits`), if at `now` it has been kept for as long as
        `body_wait` allows.
        """
        if self.waits and self.body_wait is not None and self.body_wait.tire(now):
            self._peeked()

    def stop_keeping(self) -> bool:
        """Report an answer that is kept only until it is whole, or an error whose body is looked at, with the body so
        far, and return True. Return False, and do nothing, if it is not kept, or is a success whose beginning has yet
        to be judged.
        """
        body_wait = self.body_wait
        if self.state is not PEEKING or (body_wait is not None and not body_wait.over):
            return False
        if body_wait is not None:
            body_wait.give_up()
        self._peeked()
        return True

    @property
    def waits(self) -> bool:
        """Whether the answer is a success whose head is kept until `body_wait` has found the beginning of the body that
        it waits for.
        """
        return self.state is PEEKING and self.body_wait is not None

    def take(self) -> bytes:
        """Return the kept bytes of the answer's body, and keep them no longer."""
        kept, self.kept = self.kept, b""
        self.kept_size = 0
        return kept if isinstance(kept, bytes) else b"".join(kept)

    def drop(self) -> None:
        """End the attempt: cancel its dial or stream, and ignore further events of it."""
        self.state = GONE
        self.kept = b""
        if self.body_wait is not None:
            self.body_wait.give_up()
        if self.task is not None:
            self.task.cancel()
            self.task = None
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.cancel()

    def _peeked(self) -> None:
        kept = self.kept if isinstance(self.kept, bytes) else b"".join(self.kept)
        self.owner.peeked(self, kept[: self.limit])


def _tells_nothing(specials: dict[bytes, bytes]) -> bool:
    """Whether none of a head's fields that the proxy acts on has it looked at more closely; if so, it is remembered."""
    if specials is not _NOT_TELLING[0] and specials is not _NOT_TELLING[1]:
        if not _TELLING.isdisjoint(specials):
            return False
        _NOT_TELLING[0], _NOT_TELLING[1] = _NOT_TELLING[1], specials
    return True
