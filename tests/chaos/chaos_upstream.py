"""An upstream that does to each sending what chance says (answers, breaks, stalls, lies), and writes it down.

What is done to the n-th sending of an attempt of a call is drawn from the seed and those three alone: a seed that has
found something does the same to the same call again, whatever the timing was.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from random import Random
from types import TracebackType
from typing import Any, Self

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfine\n"
#: How often each thing is done, of all.
WEIGHTS = {
    "ok": 30,
    "chunked": 6,
    "until_close": 3,
    "fine_then_close": 4,
    "hints": 2,
    "missing": 3,
    "redirect": 2,
    "failure": 8,
    "gateway": 3,
    "busy": 3,
    "throttled": 4,
    "throttled_named": 3,
    "too_late": 3,
    "stop": 1,
    "reset": 4,
    "close": 4,
    "stall": 2,
    "short": 3,
    "short_reset": 2,
    "short_chunked": 2,
    "stall_in_body": 1,
    "long": 3,
    "garbage": 2,
    "half_head": 2,
    "two_lengths": 1,
    "early": 3,
    "early_close": 2,
    "slow": 3,
}
#: What is done before the request's body has come.
EARLY = frozenset({"early", "early_close"})
#: Of so many connections one is reset when it is accepted, and of so many that rest one is closed without a word.
RESET_AT_ONCE, CLOSED_AT_REST = 60, 12


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, upstream: ChaosUpstream) -> None:
        self.upstream = upstream
        self.transport: Any = None
        self.held = b""
        self.size = -1  # of the body that is to come; -1: a head is awaited
        self.is_chunked = False
        self.kind = ""
        self.over = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.upstream.open.add(self)
        self.upstream.connections += 1
        if self.upstream.random.randrange(RESET_AT_ONCE) == 0:
            self.reset()

    def connection_lost(self, exc: Exception | None) -> None:
        self.upstream.open.discard(self)
        self.over = True

    def data_received(self, data: bytes) -> None:
        self.held += data
        while not self.over:
            if self.size < 0 and not self.head():
                return
            if not self.body():
                return
            kind, self.kind, self.size = self.kind, "", -1
            if kind:
                getattr(self, kind)()

    def head(self) -> bool:
        end = self.held.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = self.held[:end].decode("latin-1").split("\r\n")
        self.held = self.held[end + 4 :]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.size = int(fields.get("content-length", 0))
        self.is_chunked = fields.get("transfer-encoding", "") == "chunked"
        call, attempt = lines[0].split(" ")[1].rsplit("/", 1)[1], int(fields["x-attempt-count"])
        self.kind = self.upstream.take(call, attempt)
        if self.kind in EARLY:
            kind, self.kind = self.kind, ""
            getattr(self, kind)()
        return not self.over

    def body(self) -> bool:
        """Read the body over; whether it is whole."""
        if self.is_chunked:
            end = 0 if self.held.startswith(b"0\r\n\r\n") else self.held.find(b"\r\n0\r\n\r\n") + 2
            if end < 2 and not self.held.startswith(b"0\r\n\r\n"):
                return False
            self.held = self.held[end + 5 :]
            return True
        taken = min(self.size, len(self.held))
        self.held, self.size = self.held[taken:], self.size - taken
        return self.size == 0

    # -- what is done ---------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def end(self) -> None:
        self.over = True
        self.transport.close()

    def reset(self) -> None:
        """With a RST."""
        self.over = True
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def answer(self, status: int, *lines: str, body: bytes = b"no\n") -> None:
        fields = "".join(f"{line}\r\n" for line in (*lines, f"Content-Length: {len(body)}"))
        self.write(f"HTTP/1.1 {status} So\r\n{fields}\r\n".encode() + body)
        if self.upstream.random.randrange(CLOSED_AT_REST) == 0:
            pause = self.upstream.random.choice((0.0, 0.001, 0.01, 0.1))
            asyncio.get_running_loop().call_later(pause, self.rest_no_more)

    def rest_no_more(self) -> None:
        if not self.over and self.size < 0 and not self.held:
            self.end()

    def ok(self) -> None:
        self.answer(200, body=b"fine\n" * self.upstream.random.choice((1, 1, 100, 5000)))

    def slow(self) -> None:
        asyncio.get_running_loop().call_later(0.05, lambda: self.over or self.write(OK))

    def chunked(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.write(head + b"5\r\nfine\n\r\n" * 3 + b"0\r\nX-Sum: 3\r\n\r\n")

    def until_close(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end\n")
        self.end()

    def fine_then_close(self) -> None:
        self.write(OK)
        self.end()

    def hints(self) -> None:
        self.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK)

    def missing(self) -> None:
        self.answer(404)

    def redirect(self) -> None:
        self.answer(307, "Location: /elsewhere")

    def failure(self) -> None:
        self.answer(503)

    def gateway(self) -> None:
        self.answer(502)

    def busy(self) -> None:
        self.answer(503, "Retry-After-Ms: 20")

    def throttled(self) -> None:
        self.answer(429)

    def throttled_named(self) -> None:
        self.answer(429, "Retry-After-Ms: 30")

    def too_late(self) -> None:
        self.answer(504)

    def stop(self) -> None:
        self.answer(503, "x-should-retry: false")

    def close(self) -> None:
        self.end()

    def stall(self) -> None:
        """It has the request, and says nothing."""

    def short(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all of it\n")
        self.end()

    def short_reset(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all of it\n")
        asyncio.get_running_loop().call_later(0.005, lambda: self.over or self.reset())

    def short_chunked(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfine\n\r\n")
        self.end()

    def stall_in_body(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all of it\n")

    def long(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfine\nand more than was said\n")

    def garbage(self) -> None:
        self.write(b"\x00\x16 nonsense\r\n: : :\r\n\r\n")

    def half_head(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        self.end()

    def two_lengths(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nfine\n")

    def early(self) -> None:
        self.answer(413)

    def early_close(self) -> None:
        self.write(b"HTTP/1.1 503 So\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
        self.end()


class ChaosUpstream:
    """`seen` counts the sendings of each (call, attempt) whose head was whole, `did` what was done to them.

    `open` are connections; `calm` makes it answer everything at once and well.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.seen: Counter[tuple[str, int]] = Counter()
        self.did: dict[tuple[str, int], list[str]] = {}
        self.open: set[Peer] = set()
        self.connections = 0
        self.calm = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", 0, backlog=1000)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for peer in list(self.open):
            peer.transport.abort()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, call: str, attempt: int) -> str:
        """Write down a sending, and say what to do to it."""
        self.seen[call, attempt] += 1
        sending = self.seen[call, attempt]
        draw = Random(f"{self.seed}/{call}/{attempt}/{sending}")
        kind = "ok" if self.calm else draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.did.setdefault((call, attempt), []).append(kind)
        return kind
