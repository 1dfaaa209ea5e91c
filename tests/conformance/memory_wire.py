"""The proxy's real connections over transports in memory: an app that plays packets, and upstreams that play answers.

Theory of operation. `Stage` has a DataPath that listens nowhere; an `AppConnection` is given a `Wire`, and what the
pool "connects" are real upstream `Connection`s on further `Wire`s. Bytes that the proxy writes are kept; bytes for the
proxy are put in by the driver, between turns of the loop, as a kernel would. A wire that was paused is given nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any

from staged_pool import staged
from strict_reader import Malformed, read_requests
from support.front import Front, RecordingObserver

from proxy.retry.policies.policy import Backoff, Strategy
from proxy.runtime import DataPath
from proxy.server import presence
from proxy.server.connection import AppConnection
from proxy.transport.connection import Connection

#: Turns of the loop without news after which everything has settled.
QUIET = 3
EOF, RESET = "eof", "reset"

_silent, _ = os.pipe()
os.set_blocking(_silent, False)


class Wire(asyncio.Transport):
    """One end of a connection that exists in memory alone. `out` is what was written; `coming` waits to be read."""

    def __init__(self, protocol: Any, stage: Stage) -> None:
        super().__init__()
        self.protocol = protocol
        self.stage = stage
        self.out = bytearray()
        self.coming: deque[bytes | str] = deque()
        self.paused = self.closing = self.lost = self.ended = self.aborted = False

    # -- what the proxy calls -------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "sockname": "", "peername": ""}.get(name, default)

    def fileno(self) -> int:
        return _silent

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def setsockopt(self, *_: object) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written behind the end"
        self.stage.news += 1
        if not self.closing:
            self.out += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True
        self.stage.news += 1

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.stage.news += 1

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self.aborted = True
        self._close(None)

    def _close(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            self.stage.loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        self.lost = True
        self.stage.news += 1
        self.protocol.connection_lost(error)

    # -- what the driver calls ------------------------------------------------------------------------------------

    def deliver(self) -> bool:
        """Hand the next of what is coming to the protocol, if it reads."""
        if self.paused or self.closing or not self.coming:
            return False
        item = self.coming.popleft()
        if item == EOF:
            if not self.protocol.eof_received():
                self._close(None)
        elif item == RESET:
            self._close(ConnectionResetError())
        else:
            self.protocol.data_received(item)
        return True


class Far:
    """An upstream's end: it reads requests, and answers the n-th that arrives anywhere with the n-th of the script."""

    def __init__(self, wire: Wire, stage: Stage) -> None:
        self.wire = wire
        self.stage = stage
        self.answered = 0
        self.looked = 0  # how much was there at the last look
        self.methods: list[bytes] = []
        self.said: list[tuple[bytes, str]] = []

    def look(self) -> bool:
        """Answer what has newly come with its head; whether anything had."""
        if self.wire.protocol._tunnel or len(self.wire.out) == self.looked:
            return False
        self.looked = len(self.wire.out)
        try:
            requests = read_requests(bytes(self.wire.out))
        except Malformed as bad:
            raise AssertionError(f"forwarded: {bad} in {bytes(self.wire.out)!r}") from None
        if len(requests) == self.answered or self.wire.closing:
            return False
        self.answered += 1
        self.methods.append(requests[self.answered - 1].line[0])
        # Bytes behind an answer that arrive once the next request is on its way are an answer to it for anybody.
        self.wire.coming.clear()
        answer = self.stage.script.popleft() if self.stage.script else None
        if answer is None:
            return False
        packets, end = answer
        self.said.append((b"".join(packets), end))
        self.wire.coming.extend(packets)
        if end:
            self.wire.coming.append(end)
        return True


class Stage:
    """A proxy for one case after the other. `script`: answers to come, each (packets, EOF | RESET | "")."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.news = 0
        self.script: deque[tuple[list[bytes], str]] = deque()
        self.fars: list[Far] = []
        self.errors: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.errors.append(context))
        strategy = Strategy("standard", "standard", 2, Backoff(0.0, 0.0, jitter="none"))
        front = Front(fallback={"strategy": strategy})
        self.observed = RecordingObserver()
        with staged(self.connect):
            self.path = DataPath(loop, front.settings, self.observed)
        self._kept = presence.is_connected, presence.has_ended
        presence.is_connected = lambda _: True
        presence.has_ended = lambda _: False

    def leave(self) -> None:
        presence.is_connected, presence.has_ended = self._kept

    def connect(self, origin: Any, *, tunnel: bool) -> Connection:
        connection = Connection(self.path.context.pool, origin, tunnel=tunnel)
        wire = Wire(connection, self)
        self.fars.append(Far(wire, self))
        connection.connection_made(wire)
        return connection

    def app(self) -> Wire:
        """An app that has connected."""
        connection = AppConnection(self.path.acceptor)
        wire = Wire(connection, self)
        connection.connection_made(wire)
        return wire

    async def settle(self) -> None:
        """Let everything that can happen happen."""
        quiet = 0
        turns = 0
        while quiet < QUIET:
            turns += 1
            assert turns < 20_000, "it never settles"
            before = self.news
            await asyncio.sleep(0)
            moved = False
            for far in self.fars:
                moved |= far.look()
                moved |= far.wire.deliver()
            quiet = 0 if moved or self.news != before else quiet + 1
