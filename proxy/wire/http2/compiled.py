"""Octets of HTTP/2 by compiled code (octets.pyx), or its replacement in Python if it was not built, or is not wanted.

It changes nothing but what a frame or a field costs (`docs/decisions/0012-compiled-http2.md`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol


class HeaderForm(Protocol):
    """The header of a frame as bytes: length (16 and 8 bits), type, flags, stream."""

    def pack(self, high: int, low: int, kind: int, flags: int, stream: int, /) -> bytes:
        """The header of these."""
        ...

    def unpack_from(self, data: bytes, at: int, /) -> tuple[int, int, int, int, int]:
        """The length (its highest octet, the other two), type, flags and stream of the frame header at `at`."""
        ...


class Cutter(Protocol):
    """Cuts bytes, for less than a slice costs compiled code."""

    def cut(self, data: bytes, start: int, end: int, /) -> bytes:
        """`data[start:end]`, where both are in it."""
        ...


HEADER: HeaderForm
SLICER: Cutter | None
#: What a Huffman string says (RFC 7541, appendix B); None: it is malformed.
unhuffed: Callable[[bytes], bytes | None]

try:
    from proxy.wire.http2.octets import FrameHeader, Slicer, unhuffed

    HEADER, SLICER = FrameHeader(), Slicer()
except ImportError:
    HEADER, SLICER = struct.Struct(">HBBBI"), None
    from hpack.exceptions import HPACKError  # the library's table of codes takes more than half a MiB
    from hpack.huffman_table import decode_huffman

    def unhuffed(text: bytes) -> bytes | None:
        """The text of a Huffman-coded string, None where it is malformed."""
        try:
            return decode_huffman(text)
        except HPACKError:
            return None
