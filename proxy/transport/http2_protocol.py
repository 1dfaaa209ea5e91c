"""What HTTP/2 connections of both sides do alike: bytes from the transport to the session, and frames back to it.

A connection takes turns with all others. It reads a limited number of frames (`session.TURN`), and if that took long it
rests for three times as long, or until no other has anything to do: whatever one peer sends, and whatever its frames
cost, the others keep most of the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from proxy.transport.clock import monotonic
from proxy.transport.flusher import Flusher
from proxy.wire.http2.session import TURN, Session, SessionOwner

#: Seconds of reading after which others come first, and for how many times as long.
LONG: Final = 0.0005
SHARE: Final = 3.0
#: Where so many turns of the loop one behind the other took less than so many seconds, nobody else has anything to do.
IDLE_TURNS: Final = 3
IDLE_SECONDS: Final = 0.00005
#: Seconds that a peer which broke the rules gets to take what was written: it may take nothing.
LAST_SECONDS: Final = 2.0


class Http2Protocol(SessionOwner):
    """See the module. `transport` is None where the connection is closed. It is its transport's `asyncio.Protocol`."""

    __slots__ = ("_came", "_flusher", "_idle_turns", "_looked", "_loop", "_rests_until", "session", "transport")

    session: Session

    def __init__(self, loop: asyncio.AbstractEventLoop, flusher: Flusher) -> None:
        self._loop = loop
        self._flusher = flusher
        self.transport: asyncio.Transport | None = None
        self._came = 0.0  # what is read, at that time
        self._rests_until = 0.0  # it reads nothing before; 0: it reads
        self._looked = 0.0  # at the time, last, while it rested
        self._idle_turns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Frames."""
        self._came = monotonic()
        self._read(data, self._came)

    def _read(self, data: bytes, begun: float) -> None:
        """Read a turn's worth of what came."""
        flusher, session = self._flusher, self.session
        flusher.reads()
        try:
            session.feed(data, self._came, TURN)
        finally:
            flusher.gathered(self)
            flusher.flush()
        took = monotonic() - begun
        if (took >= LONG or session.behind) and not self._rests_until:
            self._rest(begun, took)

    def _rest(self, begun: float, took: float) -> None:
        """Let the others go on."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._rests_until = begun + took * (1 + SHARE)
            self._looked, self._idle_turns = begun + took, 0
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Go on where the others have had their time, or have nothing to do."""
        if self.transport is None or self.transport.is_closing():
            return
        now = monotonic()
        self._idle_turns = self._idle_turns + 1 if now - self._looked < IDLE_SECONDS else 0
        self._looked = now
        if now < self._rests_until and self._idle_turns < IDLE_TURNS:
            self._loop.call_soon(self._look)
            return
        self._rests_until = 0.0
        if self.session.behind:
            self._read(b"", now)
        if not self._rests_until and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def give_up(self) -> None:
        """Write what was gathered, and close: soon, whether that is taken or not."""
        self.flush()
        if self.transport is not None:
            self.transport.close()
            self._loop.call_later(LAST_SECONDS, self.abort)

    def eof_received(self) -> bool:
        """The peer sends no more: so do we."""
        return False

    def pause_writing(self) -> None:
        """The peer does not take what is written."""
        self.session.outbox.blocked = True

    def resume_writing(self) -> None:
        """The transport's write buffer drained."""
        self.session.outbox.drained()
        self.send_soon()

    def flush(self) -> None:
        """Write what was gathered."""
        transport, outbox = self.transport, self.session.outbox
        while transport is not None and (data := outbox.take()):
            transport.write(data)
            if outbox.blocked:
                return

    def send_soon(self) -> None:
        """Something was gathered."""
        self._flusher.gathered(self)
