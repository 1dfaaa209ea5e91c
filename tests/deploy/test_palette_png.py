"""Pictures of the guide have a palette, and are small."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from palette_png import with_palette  # noqa: E402


def png(rows: list[bytes], width: int, kind: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, len(rows), 8, kind, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )


def pixels(picture: bytes) -> list[list[tuple[int, ...]]]:
    """The rows of a picture that has a palette and no filters."""
    at, found = 8, {}
    while at < len(picture):
        length = int.from_bytes(picture[at : at + 4])
        found[picture[at + 4 : at + 8]] = picture[at + 8 : at + 8 + length]
        at += length + 12
    width, height, depth, kind = struct.unpack(">IIBB", found[b"IHDR"][:10])
    assert (depth, kind) == (8, 3)
    palette, data = found[b"PLTE"], zlib.decompress(found[b"IDAT"])
    assert len(palette) <= 3 * 256
    rows = [data[row * (width + 1) : (row + 1) * (width + 1)] for row in range(height)]
    assert all(row[0] == 0 for row in rows)
    return [[tuple(palette[3 * each : 3 * each + 3]) for each in row[1:]] for row in rows]


RED, BLUE, GREY = (200, 0, 0), (0, 0, 200), (100, 110, 120)


def test_every_filter_is_undone() -> None:
    rows = [
        bytes([0, *RED, *BLUE]),
        bytes([1, *RED, 56, 0, 200]),  # the difference to the pixel on the left
        bytes([2, 156, 110, 120, 100, 110, 176]),  # to the one above
        bytes([3, 50, 55, 60, 0, 0, 0]),  # to the mean of both
        bytes([4, 0, 0, 0, 0, 0, 0]),  # to the one of three that fits best
    ]
    shown = pixels(with_palette(png(rows, 2, 2)))
    assert shown == [[RED, BLUE], [RED, BLUE], [GREY, GREY], [GREY, GREY], [GREY, GREY]]


def test_transparency_is_dropped_and_rare_colours_become_the_nearest() -> None:
    many = b"".join(bytes([shade, shade, shade, 255]) for shade in range(256))
    [row] = pixels(with_palette(png([b"\0" + many], 256, 6)))
    assert len(set(row)) <= 256
    assert all(abs(each[0] - shade) < 8 for shade, each in enumerate(row))


@pytest.mark.parametrize("picture", [b"GIF89a", png([b"\0\0"], 1, 0)])
def test_another_kind_of_file_is_refused(picture: bytes) -> None:
    with pytest.raises(ValueError, match="PNG file"):
        with_palette(picture)


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "guides").glob("*.png")), ids=lambda file: file.name)
def test_the_pictures_of_the_guide_are_small(file: Path) -> None:
    assert file.stat().st_size < 100_000
