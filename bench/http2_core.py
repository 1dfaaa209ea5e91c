"""What one unary gRPC call costs in this process: `python bench/http2_core.py [REPEATS]`. No sockets.

An app's session, the exchange, an upstream's session and the observers are the real ones, between transports that only
keep what they are given; calls come eight to a read. Prints the lowest of the repeats, which is the figure that
neighbours on the machine disturb least.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from typing import Any

from proxy.config.load import load
from proxy.observe.access_log import AccessLog
from proxy.observe.metrics import Metrics
from proxy.observe.observers import Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.runtime import DataPath
from proxy.server.http2 import Http2Connection
from proxy.server.routing import Exposure
from proxy.transport.http2 import UpstreamConnection
from proxy.wire.http2 import frames
from proxy.wire.http2.hpack import NO_TABLE, literal

CONFIG = 'listen: 127.0.0.1:4711\nupstreams: {h2: {url: "http://127.0.0.1:4712", services: [bench.h2]}}\n'
MESSAGE = b"\x00\x00\x00\x00\x0d\x0a\x0bhello,world"
LARGE = b"\x00\x00\x00\x28\x00" + b"x" * 10240
CALLS, TOGETHER = 2000, 8
HUGE = (1 << 30) - 1
ANSWER = [(b":status", b"200"), (b"content-type", b"application/grpc")]
ENDING = [(b"grpc-status", b"0")]


class Kept(asyncio.Transport):
    """Keeps what is written. It is its own socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "peername": ("127.0.0.1", 5)}.get(name, default)

    def fileno(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written.append(data)


class Nowhere:
    """Where lines of the log go."""

    def add(self, line: str) -> None:
        pass

    def add_now(self, line: str) -> None:
        pass


def request(number: int, what: str) -> list[tuple[bytes, bytes]]:
    """A call's fields; `what` differs from call to call."""
    path = b"/bench.h2/Say?n=%d" % number if what == "query" else b"/bench.h2/Say"
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"127.0.0.1:4711")]
    fields += [(b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"user-agent", b"grpc-python/1.80.0")]
    if what == "deadline":
        fields.append((b"grpc-timeout", b"%dm" % (10_000_000 + number)))
    elif what == "trace":
        fields.append((b"traceparent", b"00-4bf92f3577b34da6a3ce929d%08x-00f067aa%08x-01" % (number, number)))
    return [*fields, (b"grpc-accept-encoding", b"gzip")]


def head(stream: int, fields: list[tuple[bytes, bytes]], end: bool) -> bytes:
    """A HEADERS frame; the first of a connection says that its sender has no table."""
    block = b"".join(literal(*field) for field in fields)
    return frames.header_block(stream, NO_TABLE + block if stream == 1 and not end else block, end, 1 << 16)


def data(stream: int, body: bytes, end: bool) -> bytes:
    return frames.data_header(stream, len(body), end) + body


class Rig:
    """One connection of an app, and one to the upstream."""

    def __init__(self, path: DataPath) -> None:
        self._here = Kept()
        self._there = Kept()
        self._dialled = asyncio.Event()
        self._number = -1
        exposure = Exposure(loopback=True)
        self.app = Http2Connection(path.acceptor, self._here, client="127.0.0.1:5", exposure=exposure, inside=None)
        path.acceptor.connection_limit.enter(self.app)
        self.app.data_received(frames.PREFACE + self._opening())
        path.context.pool.dialer.open = self._open  # type: ignore[method-assign, assignment]

    def _opening(self) -> bytes:
        ack = frames.frame(frames.SETTINGS, frames.ACK, 0)
        return (
            frames.settings({frames.MAX_CONCURRENT_STREAMS: 2000, frames.INITIAL_WINDOW_SIZE: HUGE})
            + ack
            + frames.window_update(0, HUGE)
        )

    async def _open(self, endpoint: object, way: object, protocol: UpstreamConnection, **_: object) -> None:
        self.upstream = protocol
        self.upstream.connection_made(self._there)
        self.upstream.data_received(self._opening())
        self._dialled.set()

    async def begin(self) -> None:
        """One call, for which the upstream is dialled."""
        (asked,), (answered,) = self.calls("", MESSAGE, 1)
        self.app.data_received(asked)
        await self._dialled.wait()
        await asyncio.sleep(0)  # what waited for it is told in the next turn of the loop, and sends then
        await asyncio.sleep(0)
        self.upstream.data_received(answered)

    def calls(self, what: str, body: bytes, count: int = CALLS) -> tuple[list[bytes], list[bytes]]:
        """What the app sends, and what the upstream answers with, read by read."""
        asked, answered = [], []
        for first in range(0, count, TOGETHER):
            streams = [self._number + 2 * (each + 1) for each in range(min(TOGETHER, count - first))]
            self._number = streams[-1]
            asked.append(b"".join(head(s, request(s, what), False) + data(s, MESSAGE, True) for s in streams))
            whole = [head(s, ANSWER, False) + data(s, body, False) + head(s, ENDING, True) for s in streams]
            answered.append(b"".join(whole))
        return asked, answered

    def run(self, what: str, body: bytes) -> float:
        """Seconds of processor time of CALLS calls."""
        for connection in (self.app, self.upstream):
            connection.session.outbox.window = frames.MOST
        asked, answered = self.calls(what, body)
        app, upstream = self.app.data_received, self.upstream.data_received
        gc.collect()
        gc.disable()
        began = time.process_time()
        for one, other in zip(asked, answered, strict=True):
            app(one)
            upstream(other)
            self._here.written.clear()
            self._there.written.clear()
        spent = time.process_time() - began
        gc.enable()
        assert not self.app.session.streams
        assert not self.upstream.session.streams
        return spent


async def main() -> None:
    """Measure and print."""
    loop = asyncio.get_running_loop()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CONFIG)
        file.flush()
        settings = load(file.name, {}).settings
    assert settings is not None
    log = AccessLog(Nowhere(), later=loop.call_later)
    rig = Rig(DataPath(loop, settings, Observers(Metrics(), RecentCalls(), log, loop.call_later)))
    await rig.begin()
    rows = {"the same again and again": ("", MESSAGE), "10 KiB answers": ("", LARGE)}
    rows |= {f"another {what} each": (what, MESSAGE) for what in ("deadline", "query", "trace")}
    best = dict.fromkeys(rows, float("inf"))
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 9):
        for name, (what, body) in rows.items():
            best[name] = min(best[name], rig.run(what, body))
            await asyncio.sleep(0)
    for name, seconds in best.items():
        print(f"{name:32} {seconds / CALLS * 1e6:6.2f} us")


if __name__ == "__main__":
    asyncio.run(main())
