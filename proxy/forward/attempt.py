"""One sending of a request: from the dial to the end of its answer.

Law: an attempt knows nothing of other attempts, nor of what its answer will be judged to be. It listens to its stream,
keeps what nobody has asked for yet, and tells its exchange. States, as the call decides them:

    FLYING -> PEEKING -> HOLDING -> DELIVERING -> GONE        (each may be left out)

The first attempt of a call that needed no decision is kept, with its exchange, for the next call.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from proxy.retry.facts import PUSHBACK_FIELDS, Fault, Reply
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.origins import Origin
from proxy.transport.streams import Stream
from proxy.wire.head import ResponseHead, Trailers

if TYPE_CHECKING:
    from proxy.forward.exchange import Exchange

#: Contract, section 4: what is kept of an answer while its call waits.
HELD = 64 * 1024

_NEVER = float("inf")
_PUSHBACK = frozenset(name.encode() for name in PUSHBACK_FIELDS)


class State(Enum):
    """What becomes of the answer's bytes."""

    FLYING = "flying"
    PEEKING = "peeking"
    HOLDING = "holding"
    DELIVERING = "delivering"
    GONE = "gone"


FLYING, PEEKING, HOLDING, DELIVERING, GONE = State


class Attempt:
    """See the module. Implements `proxy.transport.streams.Listener`.

    `cursor`: bytes of the request's body that were given to the stream. `sent_at`: when the last of it was. `ended`,
    `fault`: how the answer ended, where it did before it was asked for.
    """

    __slots__ = (
        *("arrived", "cursor", "ended", "exchange", "fault", "head", "kept", "kept_size", "limit", "number", "origin"),
        *("sent_at", "state", "stream", "task", "trailers"),
    )

    head: ResponseHead
    arrived: float
    limit: int

    def __init__(self, exchange: Exchange, number: int, origin: Origin) -> None:
        self.exchange = exchange
        self.number = number
        self.origin = origin
        self.state = FLYING
        self.stream: Stream | None = None
        self.task: asyncio.Task[None] | None = None
        self.cursor = 0
        self.sent_at: float | None = None
        self.kept: list[bytes] | None = None
        self.kept_size = 0
        self.ended = False
        self.trailers: Trailers | None = None
        self.fault: Fault | None = None

    # -- sending --------------------------------------------------------------------------------------------------

    def dial(self, *, fresh: bool) -> None:
        """Have a connection opened, in a task. `fresh`: where many wait for that, a used one will not do."""
        self.task = self.exchange.means.loop.create_task(self._dial(fresh))

    async def _dial(self, fresh: bool) -> None:
        exchange, pool = self.exchange, self.exchange.means.pool
        try:
            stream = await exchange.open(self.origin, fresh=fresh)
        except Exception as error:  # a table says what each is
            self.task = None
            exchange.failed(self, pool.dial_failed(self.origin, error))
            return
        self.task = None
        self.begin(stream, monotonic())

    def begin(self, stream: Stream, now: float) -> None:
        """Send the request's head, and what there is of its body."""
        exchange = self.exchange
        if not stream.is_open:
            exchange.failed(self, faults.closed(sent=False, answered=False, reused=False))
            return
        self.stream = stream
        upload = exchange.upload
        asked = exchange.request_for(self, now)
        if upload is None:
            stream.send(self, asked, b"", True, None)
            self._sent(now)
            return
        replay = upload.replay
        body = replay.read(0)
        self.cursor = len(body)
        end = replay.done and self.cursor == replay.end
        stream.send(self, asked, body, end, replay.trailers if end else None)
        if end:
            self._sent(monotonic())
        else:
            self.pump()
        exchange.launched()

    def pump(self) -> None:
        """Give the stream what it has not had of the request's body, while it takes it."""
        stream, upload = self.stream, self.exchange.upload
        if stream is None or upload is None or self.sent_at is not None:
            return
        replay = upload.replay
        while not stream.blocked and self.cursor < replay.end:
            piece = replay.read(self.cursor)
            self.cursor += len(piece)
            stream.write(piece)
        if replay.done and self.cursor == replay.end:
            stream.finish(replay.trailers)
            self._sent(monotonic())

    @property
    def sent(self) -> int:
        """Bytes of the request's body that its upstream, or the kernel for it, has taken. -1: not connected yet."""
        if self.state is GONE or self.state is HOLDING:
            return -2
        return -1 if self.stream is None else max(0, self.cursor - self.stream.unsent)

    @property
    def due(self) -> float:
        """When the attempt's own timeout is over: it runs from the last byte of the request to the final head."""
        timeout = self.exchange.policy.timeouts.attempt
        if timeout is None or self.sent_at is None or self.state is not FLYING or self.exchange.has_outgrown:
            return _NEVER
        return self.sent_at + timeout

    def _sent(self, now: float) -> None:
        self.sent_at = now
        timeout = self.exchange.policy.timeouts.attempt
        if timeout is not None:
            self.exchange.due_by(now + timeout)

    # -- what the stream tells ------------------------------------------------------------------------------------

    def on_info(self, head: ResponseHead) -> None:
        """An interim answer."""
        self.exchange.informed(self, head)

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None) -> None:
        """The final head."""
        exchange = self.exchange
        if not exchange.decided and trailers is None and exchange.hand_on_success(self, head, data, end):
            return
        now = monotonic()
        self.head = head
        self.arrived = exchange.moved = now
        if self.stream is not None and (head.login_bound or exchange.plan.login_bound):
            exchange.app.pin(self.stream, self.origin)
        if end:
            self.stream = None
            self.ended = True
            self.trailers = None if trailers is None else head.trailers_to_hand_on(trailers)
        if data:
            self.kept = [data]
            self.kept_size = len(data)
        says_nothing = trailers is None and _PUSHBACK.isdisjoint(head.specials)
        reply = Reply(head.status, head, end and not data, trailers, says_nothing)
        call = exchange.call if exchange.decided else exchange.decider()
        exchange.tell(now, call.head, self.number, reply, now)

    def on_data(self, data: bytes) -> None:
        """More of the answer's body."""
        exchange = self.exchange
        exchange.moved = monotonic()
        if self.state is DELIVERING:
            exchange.hand_on(self, data)
            return
        if self.kept is None:
            self.kept = []
        self.kept.append(data)
        self.kept_size += len(data)
        if self.state is PEEKING:
            if self.kept_size >= self.limit:
                self._peeked()
        elif self.kept_size >= HELD and self.stream is not None:
            self.stream.pause()

    def on_end(self, trailers: Trailers | None) -> None:
        """The answer is whole; in a tunnel, the upstream sends no more."""
        exchange = self.exchange
        exchange.moved = monotonic()
        if exchange.pipe is not None:
            exchange.upstream_ended()
            return
        self.stream = None
        self.ended = True
        self.trailers = None if trailers is None else self.head.trailers_to_hand_on(trailers)
        if self.state is DELIVERING:
            exchange.answer_ended(self)
        elif self.state is PEEKING:
            self._peeked()

    def on_fault(self, fault: Fault) -> None:
        """The stream broke."""
        self.stream = None
        if self.state is HOLDING:
            self.fault = fault
        elif self.state is not GONE:
            self.exchange.failed(self, fault)

    def on_writable(self) -> None:
        """The stream takes bytes again."""
        self.exchange.upstream_writable(self)

    # -- what the exchange asks -----------------------------------------------------------------------------------

    def peek(self, limit: int) -> None:
        """Collect so much of the body, or all of it, and then say so."""
        self.state = PEEKING
        self.limit = limit
        if self.ended or self.kept_size >= limit:
            self._peeked()

    def hold(self) -> None:
        """Keep the answer."""
        self.state = HOLDING
        if self.kept_size >= HELD and self.stream is not None:
            self.stream.pause()

    def take(self) -> bytes:
        """What was kept of the body."""
        kept, self.kept = self.kept, None
        self.kept_size = 0
        if kept is None:
            return b""
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def drop(self) -> None:
        """Stop sending and listening."""
        self.state = GONE
        self.kept = None
        if self.task is not None:
            self.task.cancel()
            self.task = None
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.cancel()

    def _peeked(self) -> None:
        exchange = self.exchange
        now = monotonic()
        body = b"".join(self.kept or ())
        exchange.tell(now, exchange.call.peeked, self.number, body[: self.limit], now)
