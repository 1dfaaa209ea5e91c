"""The choice between compiled code for the octets of HTTP/2 (octets.pyx) and its replacement in Python, which is used
if it was not built or is not wanted.

The choice changes nothing but what a frame or a field costs (`docs/decisions/0012-compiled-http2.md`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol


class HeaderForm(Protocol):
    """The packed form of a frame's header: length (16 and 8 bits), type, flags, stream."""

    def pack(self, high: int, low: int, kind: int, flags: int, stream: int, /) -> bytes:
        """Return the 9 bytes of a frame's header with these values. `high` and `low`: the high 16 and the low 8 bits of
        the length; `kind`: the type; `flags`: the flags, as bits; `stream`: the stream's id.
        """
        ...

    def unpack_from(self, data: bytes, at: int, /) -> tuple[int, int, int, int, int]:
        """Return the length (its high 16 bits, its low 8), type, flags and stream of the frame header at `at`."""
        ...


class Cutter(Protocol):
    """An object that cuts bytes, which costs compiled code less than a slice."""

    def cut(self, data: bytes, start: int, end: int, /) -> bytes:
        """Return `data[start:end]`; both offsets are within `data`."""
        ...


HEADER: HeaderForm
SLICER: Cutter | None
#: Returns the text of a Huffman-coded string (RFC 7541, appendix B), None if it is malformed.
unhuffed: Callable[[bytes], bytes | None]

try:
    from proxy.wire.http2.octets import FrameHeader, Slicer, unhuffed

    HEADER, SLICER = FrameHeader(), Slicer()
except ImportError:
    HEADER, SLICER = struct.Struct(">HBBBI"), None
    from hpack.exceptions import (
        HPACKError,
    )  # imported only here: the library's table of codes takes more than half a MiB
    from hpack.huffman_table import decode_huffman

    def unhuffed(text: bytes) -> bytes | None:
        """Return the text of a Huffman-coded string, None if it is malformed."""
        try:
            return decode_huffman(text)
        except HPACKError:
            return None
