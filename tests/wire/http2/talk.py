"""Sessions to talk to: streams that record what is reported to them, frames by hand, and what a session answered."""

from __future__ import annotations

import struct
from typing import Any

from proxy.wire.http2 import frames
from proxy.wire.http2.compiled import HEADER
from proxy.wire.http2.fields import Trailers2
from proxy.wire.http2.hpack import literal
from proxy.wire.http2.peer_limits import PeerLimits
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2
from proxy.wire.http2.session import Session
from proxy.wire.http2.stream import SessionOwner, Stream

GET = ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"api.test"), (b":path", b"/a"))
POST = ((b":method", b"POST"), *GET[1:])
OK = ((b":status", b"200"),)


def block(*fields: tuple[bytes, bytes]) -> bytes:
    return b"".join(literal(name, value) for name, value in fields)


def headers(stream: int, fields: Any, *, end: bool = True, update: bytes = b"\x20", more: bool = False) -> bytes:
    flags = (frames.END_STREAM if end else 0) | (0 if more else frames.END_HEADERS)
    return frames.frame(frames.HEADERS, flags, stream, update + block(*fields))


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.data_header(stream, len(payload), end) + payload


def settings(**pairs: int) -> bytes:
    return frames.settings({getattr(frames, name): value for name, value in pairs.items()})


ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)


class Recorder(Stream):
    """Records the events reported to a stream: tuples, body joined."""

    __slots__ = ("body", "events", "head", "trailers", "whole")

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.head: Any = None
        self.body = b""
        self.trailers: Trailers2 | None = None
        self.whole = False

    def on_info(self, head: Response2) -> None:
        self.events.append(("info", head.status))

    def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: Trailers2 | None) -> None:
        self.events.append("head")
        self.head = head
        self.on_data(data)
        if end:
            self.on_end(trailers)

    def on_data(self, data: bytes) -> None:
        self.body += data

    def on_end(self, trailers: Trailers2 | None) -> None:
        assert not self.whole
        self.events.append("end")
        self.whole, self.trailers = True, trailers

    def on_too_large(self, head: Request2, detail: str) -> None:
        self.events.append(("too large", detail))

    def on_gone(self, code: int | None, *, processed: bool, detail: str) -> None:
        self.events.append(("gone", code, processed))

    def on_writable(self) -> None:
        self.events.append("writable")


class Side(SessionOwner):
    """An owner of a session, and the streams that were opened to it."""

    def __init__(self, *, client: bool, limits: PeerLimits | None = None, now: float = 0.0) -> None:
        self.accepted: list[Recorder] = []
        self.failure: tuple[int, str] | None = None
        self.is_open = False
        self.changes = 0
        self.now = now
        self.session = Session(self, limits or PeerLimits(), now, client=client)

    def accept(self) -> Stream:
        self.accepted.append(self.make())
        return self.accepted[-1]

    def make(self) -> Recorder:
        return Recorder()

    def opened(self) -> None:
        self.is_open = True

    def changed(self) -> None:
        self.changes += 1

    def failed(self, code: int, detail: str) -> None:
        self.failure = (code, detail)

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.session.feed(piece, self.now)

    def resume(self, stream: Recorder) -> None:
        stream.resume()
        self.session.outbox.notify_streams()

    def out(self) -> bytes:
        pieces = []
        while piece := self.session.outbox.take():
            pieces.append(piece)
        return b"".join(pieces)

    def said(self) -> list[tuple[int, int, int, bytes]]:
        """What it sends, as (type, flags, stream, payload)."""
        return parsed(self.out().removeprefix(frames.PREFACE))

    def request(self, fields: Any = GET, *, end: bool = True) -> Recorder:
        stream = self.make()
        stream.bodiless = (b":method", b"HEAD") in fields
        self.session.open(stream)
        stream.send_head(block(*fields), end)
        return stream


def parsed(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found = []
    at = 0
    while at < len(data):
        high, low, kind, flags, stream = HEADER.unpack_from(data, at)
        end = at + 9 + (high << 8 | low)
        found.append((kind, flags, stream, data[at + 9 : end]))
        at = end
    assert at == len(data)
    return found


def goaways(said: list[tuple[int, int, int, bytes]]) -> list[tuple[int, int]]:
    return [struct.unpack_from(">II", payload) for kind, _, _, payload in said if kind == frames.GOAWAY]  # type: ignore[misc]


def resets(said: list[tuple[int, int, int, bytes]]) -> list[tuple[int, int]]:
    return [(stream, int.from_bytes(payload)) for kind, _, stream, payload in said if kind == frames.RST_STREAM]


def app(limits: PeerLimits | None = None, *, acknowledged: bool = True) -> Side:
    """The app-facing side of a connection whose preface and SETTINGS have come."""
    side = Side(client=False, limits=limits)
    side.feed(frames.PREFACE, settings(), ACK if acknowledged else b"")
    side.out()
    return side


def upstream(limits: PeerLimits | None = None) -> Side:
    """The upstream-facing side of a connection that is open."""
    side = Side(client=True, limits=limits or PeerLimits(window=1 << 20))
    side.feed(settings(), ACK)
    side.out()
    return side
