"""Floods of HTTP/2: what one hostile connection takes from the calls of others.

    .venv/bin/python bench/floods.py [--rounds 5] [--seconds 2] [--only app,ping] [--clients 32]

h2load calls a good upstream (nghttpd) through one redrive process, in turns with a flood and without. A flood is one
connection of an app, or of an upstream that an app calls, which sends as fast as redrive takes it, reads all that comes
back, and comes again as often as it is cut off. Printed are the rate of the others with and without, the share of it
that they keep, the same share of their calls for each second of redrive's CPU (on a shared machine the figure to trust:
neighbours take time, but do no work in redrive), each the median of the rounds, and what the flood got through.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from measure import Running, cpu_seconds, free_port

HERE = Path(__file__).parent
#: redrive and the flood's upstream on one core, everybody else on the other.
PROXY_CORE, LOAD_CORE = 0, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END, END_HEADERS, ACK = 1, 4, 1
NICE = 15
#: Bytes of a piece of what a flood sends, and pieces after which the last is repeated.
PIECE, MADE = 256 * 1024, 40
Frames = Iterator[bytes]

CONFIG = """
listen: 127.0.0.1:{port}
admin: off
log: {{level: error}}
upstreams:
  good: {{url: "http://127.0.0.1:{good}", hosts: [good.test], protocol: http/2}}
  sink: {{url: "http://127.0.0.1:{sink}", hosts: [sink.test], protocol: http/2}}
  bad: {{url: "http://127.0.0.1:{bad}", hosts: [bad.test], protocol: http/2, strategy: none}}
"""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def block(*fields: tuple[str, str]) -> bytes:
    """Literals without indexing, behind the update that takes the table away."""
    parts = [(name.encode(), value.encode()) for name, value in fields]
    return b"\x20" + b"".join(b"\x00%c%b%c%b" % (len(n), n, len(v), v) for n, v in parts)


def request(method: str = "GET", authority: str = "sink.test") -> bytes:
    return block((":method", method), (":scheme", "http"), (":authority", authority), (":path", "/bench.h2/Tell"))


def number(value: int) -> bytes:
    return struct.pack(">I", value)


# -- what a flood sends, behind preface and SETTINGS --------------------------------------------------------------------


def rapid_reset() -> Frames:
    """Each request is taken back at once."""
    head = request()
    for stream in itertools.count(1, 2):
        yield frame(HEADERS, END | END_HEADERS, stream, head) + frame(RST_STREAM, 0, stream, number(8))


def refused() -> Frames:
    """Requests that nobody has: each is answered 404."""
    head = request(authority="nobody.test")
    return (frame(HEADERS, END | END_HEADERS, stream, head) for stream in itertools.count(1, 2))


def malformed() -> Frames:
    """Requests that are none."""
    head = block((":method", "GET"), (":path", "/"))
    return (frame(HEADERS, END | END_HEADERS, stream, head) for stream in itertools.count(1, 2))


def continuation() -> Frames:
    """A head without end."""
    yield frame(HEADERS, END, 1, request())
    while True:
        yield frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")


def large_heads() -> Frames:
    """Heads of many small fields, a bit too long: each is answered 431."""
    head = request() + b"\x00\x01a\x01b" * 3000
    return (
        frame(HEADERS, END, stream, head[:16384]) + frame(CONTINUATION, END_HEADERS, stream, head[16384:])
        for stream in itertools.count(1, 2)
    )


def ping() -> Frames:
    return itertools.repeat(frame(PING, 0, 0, bytes(8)))


def settings() -> Frames:
    return itertools.repeat(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)))


def empty_data() -> Frames:
    yield frame(HEADERS, END_HEADERS, 1, request("POST"))
    yield from itertools.repeat(frame(DATA, 0, 1))


def small_data() -> Frames:
    """A body in frames of one byte."""
    yield frame(HEADERS, END_HEADERS, 1, request("POST"))
    yield from itertools.repeat(frame(DATA, 0, 1, b"x"))


def window_stall() -> Frames:
    """A thousand answers that may not come, then no more streams: what is refused is asked for again."""
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    head = request()
    yield from (frame(HEADERS, END | END_HEADERS, stream, head) for stream in itertools.count(1, 2))


def window_drip() -> Frames:
    """A hundred answers that may come byte by byte."""
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    streams = range(1, 201, 2)
    yield from (frame(HEADERS, END | END_HEADERS, stream, request()) for stream in streams)
    yield from (frame(WINDOW_UPDATE, 0, stream, number(1)) for stream in itertools.cycle(streams))


def window_updates() -> Frames:
    return itertools.repeat(frame(WINDOW_UPDATE, 0, 0, number(1)))


def priorities() -> Frames:
    return itertools.repeat(frame(PRIORITY, 0, 1, bytes(5)))


def unknown() -> Frames:
    return itertools.repeat(frame(0xFE))


APP: dict[str, Callable[[], Frames]] = {
    each.__name__: each
    for each in (
        *(rapid_reset, refused, malformed, continuation, large_heads, ping, settings, empty_data, small_data),
        *(window_stall, window_drip, window_updates, priorities, unknown),
    )
}

# -- and an upstream, which is asked for something: the stream is 1 -----------------------------------------------------

OK = b"\x88"


def _answer(*frames: bytes) -> Frames:
    yield frame(HEADERS, END_HEADERS, 1, OK)
    yield from itertools.cycle(frames)


UPSTREAM: dict[str, Callable[[], Frames]] = {
    "resets": lambda: iter(()),  # each request is reset as it comes (`Flood._answer_requests`)
    "continuation": lambda: itertools.chain(
        [frame(HEADERS, 0, 1, OK)], itertools.repeat(frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"))
    ),
    "interim": lambda: itertools.repeat(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103")),
    "ping": ping,
    "settings": settings,
    "empty_data": lambda: _answer(frame(DATA, 0, 1)),
    "small_data": lambda: _answer(frame(DATA, 0, 1, b"x")),
    "window_updates": window_updates,
    "unknown": unknown,
}


class Frozen:
    """What a flood sends, in pieces that are made once: who floods must not be busy making frames."""

    def __init__(self, make: Callable[[], Frames]) -> None:
        self._frames = make()
        self._made: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        for at in itertools.count():
            if at == len(self._made):
                piece = bytearray()
                for each in self._frames:
                    piece += each
                    if len(piece) >= PIECE:
                        break
                if not piece:
                    return
                self._made.append(bytes(piece))
            yield self._made[min(at, MADE)]


class Flood(threading.Thread):
    """Sends frames as fast as they are taken until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.sent = self.connections = 0
        self.over = threading.Event()

    def pour(self, s: socket.socket, frames: Frozen) -> None:
        """Send until the other end closes."""
        s.setblocking(False)
        waiting = b""
        pieces = iter(frames)
        with contextlib.suppress(ConnectionError):
            while not self.over.is_set():
                waiting = waiting or next(pieces, b"")
                can_read, can_write, _ = select.select([s], [s] if waiting else [], [], 0.1)
                if can_read and not s.recv(1 << 20):
                    return
                if can_write:
                    size = s.send(waiting)
                    self.sent += size
                    waiting = waiting[size:]


class AppFlood(Flood):
    """One connection of an app, over and over."""

    def __init__(self, port: int, kind: str) -> None:
        super().__init__()
        self._port = port
        self._frames = Frozen(APP[kind])

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while not self.over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5) as s:
                self.connections += 1
                s.sendall(PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK))
                self.pour(s, self._frames)


class UpstreamFlood(Flood):
    """An upstream that floods whoever has asked it for something, and an app that asks, over and over."""

    def __init__(self, port: int, listener: socket.socket, kind: str) -> None:
        super().__init__()
        self._port, self._listener, self._kind = port, listener, kind
        self._frames = Frozen(UPSTREAM[kind])

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        asking = threading.Thread(target=self._ask, daemon=True)
        asking.start()
        self._listener.settimeout(0.1)
        serving: list[threading.Thread] = []
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                s, _ = self._listener.accept()
                self.connections += 1
                serving.append(threading.Thread(target=self._serve, args=(s,), daemon=True))
                serving[-1].start()
        for each in (asking, *serving):
            each.join()

    def _serve(self, s: socket.socket) -> None:
        with s, contextlib.suppress(OSError):
            s.settimeout(5)
            got = b""
            while b"\x00\x00\x00\x01\x04" not in got and b"/bench.h2" not in got:  # a request has come
                s.sendall(b"" if got else frame(SETTINGS) + frame(SETTINGS, ACK))
                data = s.recv(1 << 16)
                if not data:
                    return
                got += data
            if self._kind == "resets":
                self._reset_all(s, got)
            self.pour(s, self._frames)

    def _reset_all(self, s: socket.socket, got: bytes) -> None:
        got = got[len(PREFACE) :]
        while True:
            while len(got) >= 9 and len(got) >= (size := 9 + int.from_bytes(got[:3])):
                if got[3] == HEADERS:
                    s.sendall(frame(RST_STREAM, 0, int.from_bytes(got[5:9]), number(7)))
                    self.sent += 13
                got = got[size:]
            data = s.recv(1 << 16)
            if not data:
                return
            got += data

    def _ask(self) -> None:
        """Sixteen calls at a time, as long as any is answered."""
        head = request(authority="bad.test")
        while not self.over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5) as s:
                s.sendall(
                    PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK) + frame(WINDOW_UPDATE, 0, 0, number(1 << 30))
                )
                streams = itertools.count(1, 2)
                s.sendall(b"".join(frame(HEADERS, END | END_HEADERS, next(streams), head) for _ in range(16)))
                s.settimeout(0.1)
                got = b""
                while not self.over.is_set():
                    try:
                        data = s.recv(1 << 16)
                    except TimeoutError:
                        continue
                    if not data:
                        break
                    got += data
                    more = []
                    while len(got) >= 9 and len(got) >= (size := 9 + int.from_bytes(got[:3])):
                        kind, flags, stream = got[3], got[4], int.from_bytes(got[5:9])
                        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END):
                            more.append(frame(HEADERS, END | END_HEADERS, next(streams), head))
                        elif kind == DATA:
                            more.append(frame(WINDOW_UPDATE, 0, stream, number(size)))
                        got = got[size:]
                    if more:
                        s.sendall(b"".join(more))


# -- the measuring ------------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """What was measured while something ran: calls a second of the others, redrive's seconds of CPU a second."""

    rate: float
    cpu: float


def measured(proxy: Running, port: int, clients: int, seconds: int) -> Figure:
    before, begun = cpu_seconds(proxy.pid), time.perf_counter()
    command = ["taskset", "-c", str(LOAD_CORE), "h2load", "-t1", f"-c{clients}", "-m1", f"-D{seconds}"]
    command += ["-H:authority: good.test", f"http://127.0.0.1:{port}/bench.h2/Say"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    took = time.perf_counter() - begun
    done = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", out)
    good = re.search(r"status codes: (\d+) 2xx", out)
    assert done is not None and good is not None, out
    if done[2] != "0" or done[3] != "0" or int(good[1]) < int(done[1]):
        print(f"  calls of others failed: {done[0]}, {good[0]}", flush=True)
    return Figure(int(good[1]) / seconds, max(cpu_seconds(proxy.pid) - before, 0.01) / took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=32, help="connections of the others, a call at a time each")
    parser.add_argument("--only", default="", help="floods whose name has all of these words, comma between them")
    options = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    words = [word for word in options.only.split(",") if word]
    names = [f"{side} {kind}" for side, kinds in (("app", APP), ("upstream", UPSTREAM)) for kind in kinds]
    names = [name for name in names if all(word in name for word in words)]
    with tempfile.TemporaryDirectory() as at, contextlib.ExitStack() as stack:
        folder = Path(at)
        port, good, sink = free_port(), free_port(), free_port()
        listener = socket.create_server(("127.0.0.1", 0))
        answers = folder / "h2" / "bench.h2"
        answers.mkdir(parents=True)
        (answers / "Say").write_bytes(b"x" * 18)
        (answers / "Tell").write_bytes(b"x" * 10240)
        for at, nice in ((good, 0), (sink, NICE)):  # what the flood calls, and who floods, give way to the others
            command = ["nice", f"-n{nice}", "nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", str(folder / "h2")]
            upstream = Running([*command, "-m", "2000", str(at)], at, b"", LOAD_CORE, folder / f"{at}.log")
            stack.callback(upstream.stop)
        config = folder / "redrive.yaml"
        config.write_text(CONFIG.format(port=port, good=good, sink=sink, bad=listener.getsockname()[1]))
        command = [sys.executable, "-m", "proxy", "run", "-c", str(config)]
        proxy = Running(command, port, b"", PROXY_CORE, folder / "proxy.log")
        stack.callback(proxy.stop)
        measured(proxy, port, options.clients, options.seconds)
        titles = ("quiet/s", "flooded/s", "share", "by CPU", "lowest", "CPU", "MB/s", "conn/s")
        print(f"{'flood':24}" + "".join(f"{title:>10}" for title in titles))
        for name in names:
            side, _, kind = name.partition(" ")
            rounds = []
            for _ in range(options.rounds):
                quiet = measured(proxy, port, options.clients, options.seconds)
                flood = AppFlood(port, kind) if side == "app" else UpstreamFlood(port, listener, kind)
                flood.start()
                flooded = measured(proxy, port, options.clients, options.seconds)
                flood.over.set()
                flood.join()
                by_cpu = (flooded.rate / flooded.cpu) / max(quiet.rate / quiet.cpu, 1)
                rate = flood.sent / options.seconds / 1e6, flood.connections / options.seconds
                rounds.append((quiet.rate, flooded.rate, flooded.rate / max(quiet.rate, 1), by_cpu, flooded.cpu, *rate))
            middle = [statistics.median(column) for column in zip(*rounds, strict=True)]
            middle.insert(4, min(each[3] for each in rounds))
            digits = (0, 0, 2, 2, 2, 2, 2, 1)
            print(f"{name:24}" + "".join(f"{v:10.{d}f}" for v, d in zip(middle, digits, strict=True)), flush=True)


if __name__ == "__main__":
    main()
