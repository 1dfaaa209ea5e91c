"""Frames: their header, the errors that its header alone shows, and how frames are written (RFC 9113 sections 4, 6, 7).

`flaw` examines nothing but the frame's header, so an impossible frame is refused before its payload has come.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from proxy.wire.http2.compiled import HEADER

#: The bytes with which a client begins a connection (RFC 9113 section 3.4).
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEADER_SIZE: Final = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

#: Error codes (RFC 9113 section 7).
NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11
CODES = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip

#: The largest payload of a frame that is accepted here (contract, section 12), and the largest that every peer accepts.
FRAME_LIMIT: Final = 64 * 1024
SMALLEST_LIMIT: Final = 16 * 1024
LARGEST_LIMIT: Final = (1 << 24) - 1
#: The largest window, and the largest stream id.
MOST: Final = (1 << 31) - 1
#: The initial size of a window (RFC 9113 section 6.9.2).
FIRST_WINDOW: Final = 65_535


class HeaderRule(NamedTuple):
    """The rule for the headers of frames of one type. `stream`: whether the frame belongs on a stream (True), on the
    connection (False), or on either (None). `least` and `most` bound its length, which is a multiple of `unit`.
    """

    stream: bool | None
    least: int = 0
    most: int = FRAME_LIMIT
    unit: int = 1


#: The rules for frames' headers, by type.
_RULES = (
    HeaderRule(True),  # DATA
    HeaderRule(True),  # HEADERS
    HeaderRule(True, 5, 5),  # PRIORITY
    HeaderRule(True, 4, 4),  # RST_STREAM
    HeaderRule(False, unit=6),  # SETTINGS
    HeaderRule(True, 4),  # PUSH_PROMISE
    HeaderRule(False, 8, 8),  # PING
    HeaderRule(False, 8),  # GOAWAY
    HeaderRule(None, 4, 4),  # WINDOW_UPDATE
    HeaderRule(True),  # CONTINUATION
)
#: Frames of this type or a higher one are unknown, and skipped (RFC 9113 section 4.1).
KNOWN: Final = len(_RULES)

#: The length, type and flags that `HTTP/` makes if read as a frame's header, and the error for it: a length made of
#: letters would mislead.
_HTTP1 = (0x485454, 0x50, 0x2F)
_HTTP1_ANSWER = "it answers in HTTP/1"


def code_name(code: int) -> str:
    """Return the name of an error code, or its number in hex if it has none."""
    return CODES[code] if code < len(CODES) else f"0x{code:x}"


def flaw(kind: int, flags: int, stream: int, size: int) -> tuple[int, str] | None:
    """Return None if a frame may have this header, else an error code of HTTP/2 and a clause for people. `kind`: the
    frame's type; `flags`: its flags, as bits; `stream`: its stream's id; `size`: its payload's length in bytes.
    """
    if size > FRAME_LIMIT:
        if (size, kind, flags) == _HTTP1:
            return FRAME_SIZE_ERROR, _HTTP1_ANSWER
        return FRAME_SIZE_ERROR, f"a frame of {size} bytes"
    if kind >= KNOWN:
        return None
    rule = _RULES[kind]
    if rule.stream is not None and bool(stream) is not rule.stream:
        return PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream}"
    if not rule.least <= size <= rule.most or size % rule.unit or (kind == SETTINGS and flags & ACK and size):
        return FRAME_SIZE_ERROR, f"a frame of type {kind} with {size} bytes"
    return None


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame, encoded. `kind`: its type; `flags`: its flags, as bits; `stream`: its stream's id, 0 for the
    connection.
    """
    size = len(payload)
    return HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(pairs: dict[int, int]) -> bytes:
    """Return a SETTINGS frame with these values, by setting."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs.items()))


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame that lets the peer send `increment` bytes more on the stream with the id `stream`;
    stream 0 is the connection.
    """
    return b"\x00\x00\x04\x08\x00" + struct.pack(">II", stream, increment)


def rst_stream(stream: int, code: int) -> bytes:
    """Return a RST_STREAM frame for the stream with the id `stream`. `code`: an error code of HTTP/2."""
    return b"\x00\x00\x04\x03\x00" + struct.pack(">II", stream, code)


def goaway(last: int, code: int, detail: str = "") -> bytes:
    """Return a GOAWAY frame. `last`: the id of the highest stream that was or may be acted upon; `code`: an error code
    of HTTP/2; `detail`: a text for people, "" for none.
    """
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + detail.encode("ascii", "replace")[:256])


def data_header(stream: int, size: int, end: bool) -> bytes:
    """Return the header of a DATA frame of `size` bytes, on the stream with the id `stream`. `end`: the frame has
    END_STREAM.
    """
    return HEADER.pack(size >> 8, size & 0xFF, DATA, END_STREAM if end else 0, stream)


def header_block(stream: int, block: bytes, end: bool, limit: int) -> bytes:
    """Return a HEADERS frame with `block`, an encoded header block, for the stream with the id `stream`, and as many
    CONTINUATIONs as `limit`, the largest payload that the peer accepts, requires. `end`: the frame has END_STREAM.
    """
    size = len(block)
    ending = END_STREAM if end else 0
    if size <= limit:
        return HEADER.pack(size >> 8, size & 0xFF, HEADERS, ending | END_HEADERS, stream) + block
    out = []
    for at in range(0, size, limit):
        kind, flags = (CONTINUATION, 0) if at else (HEADERS, ending)
        out.append(frame(kind, flags | (0 if at + limit < size else END_HEADERS), stream, block[at : at + limit]))
    return b"".join(out)


class Broken(Exception):  # noqa: N818 - named by what happened
    """Raised if the peer broke the rules of the connection, which then ends with a GOAWAY of this code. `detail` is one
    clause.
    """

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
