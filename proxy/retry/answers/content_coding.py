"""Content codings, removed so that a body can be looked into. The app gets the bytes as they came (contract, section
4).

gzip and deflate can be decoded with Python's zlib; a body under any other coding, or under several, is not looked into.
"""

from __future__ import annotations

import zlib

from proxy.retry.facts import Fields, Reply

#: Contract, section 4: the most bytes out of gzip or deflate that are looked at.
DECODED = 64 * 1024

READABLE = frozenset({"", "gzip", "x-gzip", "deflate"})
# zlib reads gzip and zlib's own form (RFC 1950, what "deflate" means) alike; some send bare RFC 1951 as deflate.
_FORMS = (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS)


def coding_of(fields: Fields) -> str:
    """The content coding that the fields name, in lower case; "" for none or `identity`. Several codings are joined by
    commas; they can't be decoded here.
    """
    values = fields.get_all("content-encoding")
    return ",".join([value.lower() for value in values if value.lower() != "identity"]) if values else ""


def coding_of_reply(reply: Reply) -> str:
    """The content coding of an answer (`coding_of`), which is kept with it."""
    coding = reply.coding
    if coding is None:
        coding = reply.coding = coding_of(reply.fields)
    return coding


def decoded(body: bytes, coding: str) -> bytes:
    """The decoded body: the content coding `coding` is removed from as much of the body as has come, and at most
    DECODED bytes are returned; b"" if the coding can't be decoded.
    """
    if not coding:
        return body
    for form in _FORMS:
        try:
            return zlib.decompressobj(form).decompress(body, DECODED)
        except zlib.error:
            continue
    return b""


class Decoder:
    """The decoder of a body that comes in pieces, under one content coding. `over`: nothing more of the body can be
    decoded.
    """

    __slots__ = ("_begun", "_inflate", "over")

    def __init__(self, coding: str) -> None:
        self._inflate = zlib.decompressobj(_FORMS[0]) if coding else None
        self._begun = b""
        self.over = coding not in READABLE

    def feed(self, data: bytes, most: int) -> bytes:
        """Decode `data`, a piece of the body, to at most `most` bytes; a piece that decodes to more is cut there, and
        the decoder is `over`.
        """
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
        """Decode the body again from its beginning, as bare deflate: some servers send this as "deflate", without the
        zlib header that the coding requires. If that fails too, the decoder is `over`, and b"" is returned. `most`: the
        most decoded bytes to return.
        """
        if len(self._begun) < 2:
            self._inflate = zlib.decompressobj(_FORMS[1])
            try:
                return self._inflate.decompress(self._begun + data, most)
            except zlib.error:
                pass
        self.over = True
        return b""
