"""The part that HTTP/2 connections of both sides have in common: bytes from the transport to the session, and back.

A connection takes turns with all others. It reads a limited number of frames (`session.TURN`), and if that took long it
pauses for three times as long, or until no other has anything to do: whatever one peer sends, and whatever its frames
cost, the others keep most of the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from proxy.transport.clock import monotonic
from proxy.transport.flusher import Flusher
from proxy.wire.http2.session import TURN, Session
from proxy.wire.http2.stream import SessionOwner

#: Seconds of reading after which a connection pauses, and how many times as long it pauses.
LONG: Final = 0.0005
SHARE: Final = 3.0
#: The turns of the loop in a row, each of less than so many seconds, after which no other connection has anything to
#: do.
IDLE_TURNS: Final = 3
IDLE_SECONDS: Final = 0.00005
#: Seconds that a peer which broke the rules has to take what was written: it may take nothing.
LAST_SECONDS: Final = 2.0


class Http2Protocol(SessionOwner):
    """An HTTP/2 connection's `asyncio.Protocol`. `transport` is None once the connection is closed."""

    __slots__ = ("_came", "_flusher", "_idle_turns", "_looked", "_loop", "_rests_until", "session", "transport")

    session: Session

    def __init__(self, loop: asyncio.AbstractEventLoop, flusher: Flusher) -> None:
        self._loop = loop
        self._flusher = flusher
        self.transport: asyncio.Transport | None = None
        self._came = 0.0  # when the bytes that are read now arrived
        self._rests_until = 0.0  # reading is paused until then; 0 if it is not paused
        self._looked = 0.0  # when `_look` last ran
        self._idle_turns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of a connection that was opened."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Begin a turn of this connection: read the frames in `data`, the bytes that came from the peer."""
        self._came = monotonic()
        self._read(data, self._came)

    def _read(self, data: bytes, begun: float) -> None:
        """Read the frames in `data` of one turn, at most TURN of them; pause reading if that took long or bytes are
        left over. `begun`: when the turn began (seconds).
        """
        flusher, session = self._flusher, self.session
        flusher.reads()
        try:
            session.feed(data, self._came, TURN)
        finally:
            flusher.gathered(self)
            flusher.flush()
        took = monotonic() - begun
        if (took >= LONG or session.has_unread) and not self._rests_until:
            self._rest(begun, took)

    def _rest(self, begun: float, took: float) -> None:
        """Pause reading after a turn that began at `begun` and took `took` seconds, so that other connections get
        theirs.
        """
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._rests_until = begun + took * (1 + SHARE)
            self._looked, self._idle_turns = begun + took, 0
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Read on if the other connections have had their time, or have nothing to do; else check again in the next
        turn.
        """
        if self.transport is None or self.transport.is_closing():
            return
        now = monotonic()
        self._idle_turns = self._idle_turns + 1 if now - self._looked < IDLE_SECONDS else 0
        self._looked = now
        if now < self._rests_until and self._idle_turns < IDLE_TURNS:
            self._loop.call_soon(self._look)
            return
        self._rests_until = 0.0
        if self.session.has_unread:
            self._read(b"", now)
        if not self._rests_until and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close the connection at once; output that was gathered is not written."""
        if self.transport is not None:
            self.transport.abort()

    def give_up(self) -> None:
        """Write the output that was gathered, and close; after LAST_SECONDS abort, whether the peer has taken it or
        not.
        """
        self.flush()
        if self.transport is not None:
            self.transport.close()
            self._loop.call_later(LAST_SECONDS, self.abort)

    def eof_received(self) -> bool:
        """Close our direction too, because the peer has closed its own: return False, on which asyncio does that."""
        return False

    def pause_writing(self) -> None:
        """Block the output, because the transport's write buffer is full."""
        self.session.outbox.blocked = True

    def resume_writing(self) -> None:
        """Go on writing, because the transport's write buffer drained."""
        self.session.outbox.drained()
        self.send_soon()

    def flush(self) -> None:
        """Write the output that was gathered."""
        transport, outbox = self.transport, self.session.outbox
        while transport is not None and (data := outbox.take()):
            transport.write(data)
            if outbox.blocked:
                return

    def send_soon(self) -> None:
        """Have the output that was gathered written in this turn of the loop."""
        self._flusher.gathered(self)
