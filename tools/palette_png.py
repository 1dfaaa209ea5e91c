"""PNG files of a page with a palette of 256 colours: a third of the size of what a browser writes.

A page has few colours and, at the edges of letters, many shades between them. The palette has the most frequent
colours; every other one becomes the nearest of these.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
#: Bits of each channel by which colours count as alike when the palette is chosen.
_ALIKE = 0xF8


def with_palette(png: bytes) -> bytes:
    """A picture with at most 256 colours, made of a PNG file of 8 bits a channel, in RGB or RGBA, without interlacing.
    Transparency is dropped: the picture of a page has none. Raises ValueError for a PNG file of another kind.
    """
    chunks = list(_chunks(png))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or kind not in (2, 6) or interlaced:
        raise ValueError("the PNG file should have 8 bits a channel, in RGB or RGBA, and no interlacing")
    size = 3 if kind == 2 else 4
    data = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    rows = [[row[at : at + 3] for at in range(0, len(row), size)] for row in _unfiltered(data, width * size, size)]
    counts = Counter(pixel for row in rows for pixel in row)
    palette = _palette(counts)
    place = {pixel: _nearest(pixel, palette) for pixel in counts}
    lines = b"".join(b"\0" + bytes(map(place.__getitem__, row)) for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, body) for name, body in parts)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG file: name and content of each."""
    if not png.startswith(_SIGNATURE):
        raise ValueError("this is no PNG file")
    at = len(_SIGNATURE)
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _unfiltered(data: bytes, length: int, size: int) -> Iterator[bytes]:
    """The rows of a picture without their filters (PNG, section 9). `length`: a row's bytes; `size`: a pixel's."""
    above = bytearray(length)
    for start in range(0, len(data), length + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + length])
        if kind == 2:
            row = bytearray((each + up) & 255 for each, up in zip(row, above, strict=True))
        elif kind:
            for at in range(length):
                left, corner = (row[at - size], above[at - size]) if at >= size else (0, 0)
                row[at] = (row[at] + _predicted(kind, left, above[at], corner)) & 255
        yield bytes(row)
        above = row


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    """What the filter of this kind predicts of a byte by its neighbours."""
    if kind == 1:
        return left
    if kind == 3:
        return (left + up) // 2
    guess = left + up - corner  # Paeth
    far_left, far_up, far_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    if far_left <= far_up and far_left <= far_corner:
        return left
    return up if far_up <= far_corner else corner


def _palette(counts: Counter[bytes]) -> list[bytes]:
    """The most frequent colours; of those that are alike, the most frequent one."""
    chosen: dict[tuple[int, ...], bytes] = {}
    for pixel, _ in counts.most_common():
        chosen.setdefault(tuple(part & _ALIKE for part in pixel), pixel)
        if len(chosen) == _COLOURS:
            break
    return list(chosen.values())


def _nearest(pixel: bytes, palette: list[bytes]) -> int:
    """The position in the palette of the colour that is nearest to this one."""
    red, green, blue = pixel
    far = [(red - each[0]) ** 2 + (green - each[1]) ** 2 + (blue - each[2]) ** 2 for each in palette]
    return far.index(min(far))
