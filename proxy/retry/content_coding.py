"""Content codings undone for a look: the bytes themselves go on as they came (contract, section 4).

gzip and deflate can be undone with what Python includes; a body under any other coding, or under several, is not looked
into.
"""

from __future__ import annotations

import zlib

from proxy.retry.facts import Fields

#: Contract, section 4: so much of what comes out of gzip or deflate is looked at.
DECODED = 64 * 1024

READABLE = frozenset({"", "gzip", "x-gzip", "deflate"})
# zlib reads gzip and zlib's own form (RFC 1950, what "deflate" means) alike; some send bare RFC 1951 as deflate.
_FORMS = (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS)


def coding_of(fields: Fields) -> str:
    """The content coding; several are one that nobody reads, identity is none."""
    values = fields.get_all("content-encoding")
    return ",".join(value.lower() for value in values if value.lower() != "identity") if values else ""


def decoded(body: bytes, coding: str) -> bytes:
    """What is there of a body without its content coding, at most DECODED bytes; b"" where it can't be undone."""
    if not coding:
        return body
    for form in _FORMS:
        try:
            return zlib.decompressobj(form).decompress(body, DECODED)
        except zlib.error:
            continue
    return b""


class Decoder:
    """Undoes the coding of a body that comes in pieces. `over`: the rest of it can't be told any more."""

    __slots__ = ("_begun", "_inflate", "over")

    def __init__(self, coding: str) -> None:
        self._inflate = zlib.decompressobj(_FORMS[0]) if coding else None
        self._begun = b""
        self.over = coding not in READABLE

    def feed(self, data: bytes, most: int) -> bytes:
        """What these bytes are without the coding: at most so many bytes at once, where more is `over`."""
        inflate = self._inflate
        if inflate is None or self.over:
            return b"" if self.over else data
        try:
            out = inflate.decompress(data, most)
        except zlib.error:
            out = self._anew(data, most)
        if self._inflate is not None and self._inflate.unconsumed_tail:
            self.over = True
        if len(self._begun) < 2:
            self._begun += data[:2]
        return out

    def _anew(self, data: bytes, most: int) -> bytes:
        """The first bytes are no zlib's: bare deflate, or nothing that can be undone."""
        if len(self._begun) < 2:
            self._inflate = zlib.decompressobj(_FORMS[1])
            try:
                return self._inflate.decompress(self._begun + data, most)
            except zlib.error:
                pass
        self.over = True
        return b""
