"""Header fields, kept as the bytes that came; what decisions need is read from them at offsets.

A block is never split into fields and joined again. It is lower-cased once, offsets stay valid, and a value is cut from
the raw bytes only when it is needed. White space around a value is ignored for decisions and kept when the field is
forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

#: The `body_size` of a head if it is not a number of bytes.
CHUNKED = -1
UNTIL_CLOSE = -2

NO_NAMES: frozenset[bytes] = frozenset()

_CODING = b"\ntransfer-encoding:"
#: The line that replaces a Transfer-Encoding which is not `coded_plainly`.
CODING_LINE = b"Transfer-Encoding: chunked\r\n"

_each_line = re.compile(rb"\n([^:\r\n]++):[^\n]*+").finditer
_each_name = re.compile(rb"\n([^:\r\n]++):").findall


@lru_cache(maxsize=4096)
def needle(name: str) -> bytes:
    """The bytes that precede a field's value in a lower-cased block: line feed, name and colon. `name` is in lower
    case.
    """
    return b"\n" + name.encode("latin-1", "replace") + b":"


class FieldBlock:
    """The field lines of a head, or of trailers. `raw` is the block, its first field line preceded by a line feed.

    Implements `proxy.retry.facts.Fields`.
    """

    __slots__ = ("_lowered", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._lowered: bytes | None = None

    def text(self) -> bytes:
        """Return `raw`. For fields that came on HTTP/2 the text is made by the first call."""
        return self.raw

    @property
    def lowered(self) -> bytes:
        """The block in lower case, with the same offsets; made by the first access."""
        lowered = self._lowered
        if lowered is None:
            self._lowered = lowered = self.text().lower()
        return lowered

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of the field with this lower-case name, in order, without surrounding white space, as
        latin-1.
        """
        mark, lowered = needle(name), self._lowered
        if lowered is None:
            lowered = self.lowered
        at = lowered.find(mark)
        if at < 0:
            return ()
        found: list[str] = []
        for value in self._values(mark, at):
            found.append(value.decode("latin-1"))
        return found

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of the field with this lower-case name, stripped, or None if there is none."""
        mark, lowered = b"\n" + name + b":", self._lowered
        if lowered is None:
            lowered = self.lowered
        at = lowered.find(mark)
        if at < 0:
            return None
        at += len(mark)
        raw = self.text()
        return raw[at : raw.find(b"\r", at)].strip(b" \t")

    def values(self, mark: bytes) -> list[bytes]:
        """Return every value, stripped, of the field whose line begins with `mark`: a line feed, the lower-case name
        and a colon.
        """
        return self._values(mark, self.lowered.find(mark))

    def _values(self, mark: bytes, at: int) -> list[bytes]:
        """Return every value, stripped, of the field whose line begins with `mark` (see `values`). `at`: the offset at
        which the first of these lines begins; negative if there is none.
        """
        raw, lowered = self.text(), self.lowered
        found: list[bytes] = []
        while at >= 0:
            at += len(mark)
            end = raw.find(b"\r", at)
            while at < end and raw[at] in b" \t":
                at += 1
            after = end
            while after > at and raw[after - 1] in b" \t":
                after -= 1
            found.append(raw[at:after])
            at = lowered.find(mark, end)
        return found

    @property
    def coded_plainly(self) -> bool:
        """Whether the one Transfer-Encoding line is written in the usual way.

        A line that is written in another way (in other case, with tabs, with white space after the value) may be meant
        to make two readers disagree on where the body ends. Such a line is not forwarded: redrive writes one of its
        own, as it writes the chunks.
        """
        raw = self.text()
        at = self.lowered.find(_CODING) + len(_CODING)
        return raw[at : raw.find(b"\r", at)] in (b" chunked", b"chunked")

    def present(self, names: frozenset[bytes]) -> frozenset[bytes]:
        """Return those of these lower-case names whose fields came."""
        return names.intersection(_each_name(self.lowered)) if names else NO_NAMES

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Return all fields as (name as it came, value stripped), in order. Too slow for the data path."""
        lines = self.text().split(b"\r\n")[1:]
        return [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines if line)]


class Trailers(FieldBlock):
    """The fields after a body. `raw` is the CRLF of an empty line, then the field lines, each with its CRLF."""

    __slots__ = ()

    @property
    def lines(self) -> bytes:
        """The field lines, as HTTP/1 sends them after the last chunk."""
        return self.text()[2:]

    def without(self, names: Set[bytes]) -> Trailers | None:
        """Return the trailers to forward: all but the fields with these lower-case names, as they came; None if none is
        left.
        """
        if names.isdisjoint(_each_name(self.lowered)):
            return self
        left = edited(FieldBlock(self.text() + b"\r\n"), 2, names, {})
        return Trailers(b"\r\n" + left) if left else None


def trailer_fields(lines: bytes) -> Trailers:
    """Return trailers, given by a body reader as lines with their CRLF, as fields."""
    return Trailers(b"\r\n" + lines)


def edited(block: FieldBlock, start: int, cut: Set[bytes], put: Mapping[bytes, bytes]) -> bytes:
    """Return the field lines of a head from offset `start` on, as they came, without the empty line after them.

    Every line with a (lower-case) name in `cut` is left out. The first line with a name in `put` is replaced by the
    whole lines that `put` maps it to, and further lines with that name are left out. A replacement for a field that did
    not come goes to the end, or to the beginning if it is Host.
    """
    raw = block.text()
    end = len(raw) - 2
    names = put.keys() | cut
    edits: list[tuple[int, int, bytes]] = []
    seen = set()
    for begin, after, name in _lines(block.lowered, names) if len(names) > FEW else _spans(block.lowered, names):
        edits.append((begin, after, b"" if name in seen else put.get(name, b"")))
        seen.add(name)
    for name in put.keys() - seen:
        place = start if name == b"host" else end
        edits.append((place, place, put[name]))
    edits.sort()
    parts: list[bytes] = []
    for begin, after, line in edits:
        parts += (raw[start:begin], line)
        start = after
    parts.append(raw[start:end])
    return b"".join(parts)


#: Up to so many names are searched for one by one; more are found in one pass over all lines, so time stays linear.
FEW = 8


def _spans(lowered: bytes, names: Set[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield begin, end and name of each line of `lowered`, a head in lower case, with one of these names; one search
    for each name, so the lines are not in order.
    """
    for name in names:
        mark = b"\n" + name + b":"
        at = lowered.find(mark)
        while at >= 0:
            after = lowered.find(b"\n", at + 1)
            yield at + 1, after + 1, name
            at = lowered.find(mark, after)


def _lines(lowered: bytes, names: Set[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield begin, end and name of each line of `lowered`, a head in lower case, with one of these names, in one pass
    over all lines.
    """
    for line in _each_line(lowered):
        if line[1] in names:
            yield line.start() + 1, line.end() + 1, line[1]
