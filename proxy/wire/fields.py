"""Header fields kept as the bytes that came; what decisions need is read from them at offsets.

Law: nothing is parsed and put together again. A block is lowered once, offsets stay valid, and a value is cut from the
raw bytes only when it is asked for. White space around a value does not belong to it when deciding, and is kept when
forwarding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

#: `body_size` of a head where it is no number of bytes.
CHUNKED = -1
UNTIL_CLOSE = -2

NO_NAMES: frozenset[bytes] = frozenset()


@lru_cache(maxsize=4096)
def needle(name: str) -> bytes:
    """What precedes a field's value in a lowered block. `name` is in lower case."""
    return b"\n" + name.encode("latin-1", "replace") + b":"


class FieldBlock:
    """Lines of a head, or trailers. `raw` is the block, its first field line preceded by a line feed.

    `lowered` is `raw.lower()`. Implements `proxy.retry.facts.Fields`.
    """

    __slots__ = ("lowered", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.lowered = raw.lower()

    def get_all(self, name: str) -> Sequence[str]:
        """Every value of the field of this lower-case name, in order, white space around it stripped, as latin-1."""
        mark = needle(name)
        if self.lowered.find(mark) < 0:
            return ()
        return [value.decode("latin-1") for value in self.values(mark)]

    def get(self, name: bytes) -> bytes | None:
        """The first value of the field of this lower-case name, stripped; None where there is none."""
        mark = b"\n" + name + b":"
        at = self.lowered.find(mark)
        if at < 0:
            return None
        at += len(mark)
        return self.raw[at : self.raw.find(b"\r", at)].strip(b" \t")

    def values(self, mark: bytes) -> list[bytes]:
        """Every value, stripped, of the field that this needle finds."""
        raw, found = self.raw, []
        at = self.lowered.find(mark)
        while at >= 0:
            at += len(mark)
            end = raw.find(b"\r", at)
            found.append(raw[at:end].strip(b" \t"))
            at = self.lowered.find(mark, end)
        return found

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """All fields as (name as it came, value stripped), in order. Not for the data path."""
        lines = self.raw.split(b"\r\n")[1:]
        return [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines if line)]


def trailer_fields(trailers: bytes) -> FieldBlock:
    """Trailers as a body reader gives them (lines with their CRLF), as Fields."""
    return FieldBlock(b"\r\n" + trailers)


def edited(block: FieldBlock, start: int, cut: Iterable[bytes], put: Mapping[bytes, bytes]) -> list[bytes]:
    """The field lines of a head from offset `start` on, as slices of what came, without the empty line.

    Every line of a (lower-case) name in `cut` is left out; the first line of a name in `put` is replaced by what it
    maps to (whole lines), further ones are left out, and where there is none the replacement goes in front.
    """
    raw, lowered = block.raw, block.lowered
    edits: list[tuple[int, int, bytes]] = []
    for name, line in put.items():
        edits.extend(_spans(lowered, name, line) or [(start, start, line)])
    for name in cut:
        if name not in put:
            edits.extend(_spans(lowered, name, b""))
    edits.sort()
    parts: list[bytes] = []
    for begin, end, line in edits:
        parts += (raw[start:begin], line)
        start = end
    parts.append(raw[start:-2])
    return parts


def _spans(lowered: bytes, name: bytes, line: bytes) -> list[tuple[int, int, bytes]]:
    """Where the lines of a name begin and end; the first is to be replaced by `line`, the others by nothing."""
    mark = b"\n" + name + b":"
    spans = []
    at = lowered.find(mark)
    while at >= 0:
        end = lowered.find(b"\n", at + 1)
        spans.append((at + 1, end + 1, line))
        line = b""
        at = lowered.find(mark, end)
    return spans
