"""HTTP/2 by hand: frames of a case's own making, and what a peer answered, read by rules of the test's own.

Blocks are written as literals without a table, and read by `hpack`, which knows nothing of the code under test.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import hpack
from conformance_kit import GUARD, Peer, Proxy, Upstream

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED = 0, 1, 2, 3, 5
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CALM = 6, 7, 8, 9, 11
ENDLESS = 0x7FFFFFFF
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Fields = list[tuple[str, str]]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends(self) -> bool:
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)

    @property
    def code(self) -> int:
        """Of a RST_STREAM or GOAWAY."""
        return int.from_bytes(self.payload[:4] if self.kind == RST_STREAM else self.payload[4:8])


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def string(text: bytes, most: int = 127) -> bytes:
    """A string of HPACK, not Huffman-coded."""
    if len(text) < most:
        return bytes([len(text)]) + text
    left, octets = len(text) - most, [most]
    while left > 127:
        octets.append(left % 128 | 128)
        left //= 128
    return bytes([*octets, left]) + text


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Literals without indexing."""
    pairs = [[each.encode("latin-1") if isinstance(each, str) else each for each in pair] for pair in fields]
    return b"".join(b"\x00" + string(name) + string(value) for name, value in pairs)


def headers(stream: int, fields: Iterable[tuple[Any, Any]] | bytes, *, end: bool = True, update: bool = True) -> bytes:
    """A HEADERS frame. `update`: it begins as RFC 7541 section 4.2 asks for where the table was taken away."""
    text = fields if isinstance(fields, bytes) else block(fields)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, (b"\x20" if update else b"") + text)


def data(stream: int, payload: bytes = b"", *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, payload)


def rst(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


SETTINGS_ACK = frame(SETTINGS, ACK)
MAX_STREAMS, INITIAL_WINDOW = 3, 4


class Answer(NamedTuple):
    """What came on a stream. `reset`: the code of the RST_STREAM that ended it, else None."""

    infos: list[Fields]
    fields: Fields
    body: bytes
    trailers: Fields | None
    reset: int | None
    is_trailers_only: bool = False

    def get(self, name: str) -> str | None:
        return dict(self.fields).get(name)

    @property
    def status(self) -> int:
        return int(dict(self.fields)[":status"])

    @property
    def grpc_status(self) -> int | None:
        found = dict(self.trailers or self.fields).get("grpc-status")
        return None if found is None else int(found)


class Wire:
    """One end of an HTTP/2 connection. What was read is kept; PING and SETTINGS are answered where it is `polite`."""

    def __init__(self, peer: Peer, *, polite: bool = True) -> None:
        self.peer = peer
        self.polite = polite
        self.decoder = hpack.Decoder()
        self.decoder.max_allowed_table_size = 4096
        self.frames: list[Frame] = []  # all that came, a head's CONTINUATIONs joined to it
        self._unseen: list[Frame] = []  # of those
        self._decoded: dict[int, Fields] = {}
        self.eof = False

    def send(self, *pieces: bytes) -> None:
        self.peer.send(b"".join(pieces))

    def read(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        try:
            head = self.peer.read(9)
            size, kind, flags, stream = (
                int.from_bytes(head[:3]),
                head[3],
                head[4],
                int.from_bytes(head[5:]) & 0x7FFFFFFF,
            )
            payload = self.peer.read(size)
            if kind == HEADERS:
                while not flags & END_HEADERS:
                    more = self.peer.read(9)
                    assert more[3] == CONTINUATION and int.from_bytes(more[5:]) == stream, more
                    flags |= more[4]
                    payload += self.peer.read(int.from_bytes(more[:3]))
        except EOFError:
            self.eof = True
            return None
        got = Frame(kind, flags, stream, payload)
        if kind == HEADERS:
            self._decoded[len(self.frames)] = [
                (bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
                for name, value in self.decoder.decode(payload, raw=True)
            ]
        self.frames.append(got)
        self._unseen.append(got)
        if self.polite and kind == SETTINGS and not flags & ACK:
            self.peer.try_send(SETTINGS_ACK)
        if self.polite and kind == PING and not flags & ACK:
            self.peer.try_send(frame(PING, ACK, 0, payload))
        return got

    def until(self, *kinds: int, stream: int | None = None) -> Frame:
        """The next frame of one of these types, and of that stream, that was not looked at before."""
        while True:
            for at, got in enumerate(self._unseen):
                if got.kind in kinds and stream in (None, got.stream):
                    del self._unseen[at]
                    return got
            assert self.read() is not None, ("the end", self.frames)

    def fields(self, got: Frame) -> Fields:
        return next(self._decoded[at] for at, each in enumerate(self.frames) if each is got)

    def has_ended(self, stream: int) -> bool:
        return any(each.stream == stream and (each.ends or each.kind == RST_STREAM) for each in self.frames)

    def answer(self, stream: int) -> Answer:
        """All of what comes on a stream, to its end."""
        while not self.has_ended(stream):
            assert self.read() is not None, ("the end", self.frames)
        heads, body, code, alone = [], b"", None, False
        for at, got in enumerate(self.frames):
            if got.stream != stream:
                continue
            if got.kind == HEADERS:
                heads.append(self._decoded[at])
                alone = got.ends and not body
            elif got.kind == DATA:
                body += got.payload
            elif got.kind == RST_STREAM:
                code = got.code
        infos = list(itertools.takewhile(lambda each: dict(each)[":status"].startswith("1"), heads))
        heads = heads[len(infos) :]
        assert len(heads) <= 2, heads
        return Answer(
            infos,
            heads[0] if heads else [],
            body,
            heads[1] if len(heads) > 1 else None,
            code,
            alone and len(heads) == 1,
        )

    def request(self) -> tuple[int, Fields, bytes]:
        """A whole request: its stream, its fields, its body."""
        got = self.until(HEADERS)
        fields, body = self.fields(got), b""
        stream, ends = got.stream, got.ends
        while not ends:
            got = self.until(DATA, HEADERS, RST_STREAM, stream=stream)
            body += got.payload if got.kind == DATA else b""
            ends = got.ends or got.kind == RST_STREAM
        return stream, fields, body

    def end(self) -> list[Frame]:
        """What came, up to the end of the connection."""
        while self.read() is not None:
            pass
        return self.frames

    def last_goaway(self) -> int:
        """The code of the GOAWAY that the connection ends with."""
        found = [each for each in self.end() if each.kind == GOAWAY]
        assert found, self.frames
        return found[-1].code

    def is_answering(self) -> None:
        """Show that the other end has read all that was sent: it answers a PING."""
        mark = struct.pack(">Q", next(_marks))
        self.send(frame(PING, 0, 0, mark))
        while True:
            got = self.until(PING)
            if got.flags & ACK and got.payload == mark:
                return


_marks = itertools.count(1)


class Place(NamedTuple):
    """An upstream of the proxy's that nobody else of the tests uses: its name and its listener."""

    authority: str
    listener: Upstream

    def accept(self, *pairs: tuple[int, int], greet: bool = True) -> Wire:
        """The next connection to it, its preface read and answered with SETTINGS of these pairs."""
        wire = Wire(self.listener.accept())
        assert wire.peer.read(len(PREFACE)) == PREFACE
        if greet:
            wire.send(settings(*pairs))
        return wire

    def fields(self, method: str = "GET", path: str = "/a", *more: tuple[str, str]) -> Fields:
        return [(":method", method), (":scheme", "http"), (":authority", self.authority), (":path", path), *more]

    def grpc(self, *more: tuple[str, str]) -> Fields:
        return self.fields("POST", "/acme.Echo/echo", ("content-type", "application/grpc"), ("te", "trailers"), *more)


class Http2Proxy(Proxy):
    """A proxy with so many upstreams, which cases take one by one."""

    def __init__(self, folder: Path, config: str, *, number: int) -> None:
        self._listeners = [Upstream() for _ in range(number)]
        self._free = iter([Place(f"u{at}.test", listener) for at, listener in enumerate(self._listeners)])
        lines = [
            f'  u{at}: {{url: "http://{each.authority}", hosts: [u{at}.test]}}\n'
            for at, each in enumerate(self._listeners)
        ]
        super().__init__(folder, f"{config}\nupstreams:\n{''.join(lines)}")

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        for each in self._listeners:
            each.__exit__()

    def place(self) -> Place:
        return next(self._free)

    def http2(self, *pairs: tuple[int, int], window: int = 1 << 20, polite: bool = True) -> Wire:
        """An app's connection, its SETTINGS exchanged."""
        wire = Wire(self.app(), polite=polite)
        wire.send(PREFACE, settings(*pairs), window_update(0, window))
        wire.until(SETTINGS)
        if not polite:
            wire.send(SETTINGS_ACK)
        return wire

    def log(self, upstream: str) -> dict[str, Any]:
        """The log line of the next call to this upstream."""
        while True:
            line = json.loads(self.lines.get(timeout=GUARD))
            if line.get("event") == "call" and line.get("upstream") == upstream:
                return dict(line)
