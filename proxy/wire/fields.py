"""Header fields kept as the bytes that came; what decisions need is read from them at offsets.

Nothing is taken apart and put together again. A block is lower-cased once, offsets stay valid, and a value is cut from
the raw bytes only when it is needed. White space around a value does not belong to it when deciding, and is kept when
forwarding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

#: `body_size` of a head where it is not a number of bytes.
CHUNKED = -1
UNTIL_CLOSE = -2

NO_NAMES: frozenset[bytes] = frozenset()

_CODING = b"\ntransfer-encoding:"
#: What is written in the place of an odd one.
CODING_LINE = b"Transfer-Encoding: chunked\r\n"

_each_line = re.compile(rb"\n([^:\r\n]++):[^\n]*+").finditer
_each_name = re.compile(rb"\n([^:\r\n]++):").findall


@lru_cache(maxsize=4096)
def needle(name: str) -> bytes:
    """What precedes a field's value in a lowered block. `name` is in lower case."""
    return b"\n" + name.encode("latin-1", "replace") + b":"


class FieldBlock:
    """Lines of a head, or trailers. `raw` is the block, its first field line preceded by a line feed.

    Implements `proxy.retry.facts.Fields`.
    """

    __slots__ = ("_lowered", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._lowered: bytes | None = None

    def text(self) -> bytes:
        """`raw`; of what came on HTTP/2 it is made when it is first asked for."""
        return self.raw

    @property
    def lowered(self) -> bytes:
        """The block in lower case, offset by offset; made when it is first asked for."""
        lowered = self._lowered
        if lowered is None:
            self._lowered = lowered = self.text().lower()
        return lowered

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
        raw = self.text()
        return raw[at : raw.find(b"\r", at)].strip(b" \t")

    def values(self, mark: bytes) -> list[bytes]:
        """Every value, stripped, of the field that this needle finds."""
        raw, lowered = self.text(), self.lowered
        found: list[bytes] = []
        at = lowered.find(mark)
        while at >= 0:
            at += len(mark)
            end = raw.find(b"\r", at)
            found.append(raw[at:end].strip(b" \t"))
            at = lowered.find(mark, end)
        return found

    @property
    def coded_plainly(self) -> bool:
        """Whether Transfer-Encoding, which came once, stands there as anybody would write it.

        An obfuscated one (case, tabs, white space after it) is made for two readers that disagree. The framing of what
        is sent on is our own, and so is then the line that announces it.
        """
        raw = self.text()
        at = self.lowered.find(_CODING) + len(_CODING)
        return raw[at : raw.find(b"\r", at)] in (b" chunked", b"chunked")

    def present(self, names: frozenset[bytes]) -> frozenset[bytes]:
        """The names, of these lower-case ones, whose fields came."""
        return names.intersection(_each_name(self.lowered)) if names else NO_NAMES

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """All fields as (name as it came, value stripped), in order. Not for the data path."""
        lines = self.text().split(b"\r\n")[1:]
        return [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines if line)]


class Trailers(FieldBlock):
    """Fields behind a body. `raw` is an empty line's CRLF and their lines, each with its CRLF."""

    __slots__ = ()

    @property
    def lines(self) -> bytes:
        """The lines, as HTTP/1 sends them behind the last chunk."""
        return self.text()[2:]

    def without(self, names: Set[bytes]) -> Trailers | None:
        """The field lines to send on, as they came: all but these lower-case names. None where nothing is left."""
        if names.isdisjoint(_each_name(self.lowered)):
            return self
        left = edited(FieldBlock(self.text() + b"\r\n"), 2, names, {})
        return Trailers(b"\r\n" + left) if left else None


def trailer_fields(lines: bytes) -> Trailers:
    """Trailers as a body reader gives them (lines with their CRLF), as Fields."""
    return Trailers(b"\r\n" + lines)


def edited(block: FieldBlock, start: int, cut: Set[bytes], put: Mapping[bytes, bytes]) -> bytes:
    """The field lines of a head from offset `start` on, as they came, without the empty line behind them.

    Every line of a (lower-case) name in `cut` is left out; the first line of a name in `put` is replaced by what it
    maps to (whole lines), further ones are left out. A replacement of what is not there goes to the end, Host in
    front.
    """
    raw = block.text()
    end = len(raw) - 2
    names = put.keys() | cut
    edits: list[tuple[int, int, bytes]] = []
    seen = set()
    for begin, behind, name in _lines(block.lowered, names) if len(names) > FEW else _spans(block.lowered, names):
        edits.append((begin, behind, b"" if name in seen else put.get(name, b"")))
        seen.add(name)
    for name in put.keys() - seen:
        place = start if name == b"host" else end
        edits.append((place, place, put[name]))
    edits.sort()
    parts: list[bytes] = []
    for begin, behind, line in edits:
        parts += (raw[start:begin], line)
        start = behind
    parts.append(raw[start:end])
    return b"".join(parts)


#: So many names are looked for one by one; more in one pass over all lines, so that time stays linear.
FEW = 8


def _spans(lowered: bytes, names: Set[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Where the lines of these names begin and end; those of one name in order."""
    for name in names:
        mark = b"\n" + name + b":"
        at = lowered.find(mark)
        while at >= 0:
            behind = lowered.find(b"\n", at + 1)
            yield at + 1, behind + 1, name
            at = lowered.find(mark, behind)


def _lines(lowered: bytes, names: Set[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Where the lines of these names begin and end, found in one pass over all lines."""
    for line in _each_line(lowered):
        if line[1] in names:
            yield line.start() + 1, line.end() + 1, line[1]
