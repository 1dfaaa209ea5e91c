"""The head of an answer that came on HTTP/2, with the interface of HTTP/1's, as a request's has it
(`wire.http2.request`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.wire.errors import BadAnswer
from proxy.wire.field_names import ANSWER_CUT, ANSWER_KEYS
from proxy.wire.fields import NO_NAMES, Trailers
from proxy.wire.http1.response import ResponseHead
from proxy.wire.http1.syntax import RESPONSE
from proxy.wire.http2.fields import (
    CONNECTION_SPECIFIC,
    Malformed,
    check_padding,
    length_of,
    lines_of,
    value_of,
    values_of,
    wire_of,
)
from proxy.wire.http2.hpack import Field, encoded_lines, literal, walk

#: Fields that are never forwarded, whatever the policy; TE passes.
_ANSWER_CUT = ANSWER_CUT - {b"te"}
_ANSWER_NAMES = frozenset(ANSWER_KEYS.values())

_STATUS = re.compile(rb"[1-9][0-9][0-9]").fullmatch


class Response2(ResponseHead):
    """The head of an answer that came on HTTP/2. `fields`: its regular fields, without `:status`; `whole`: no body
    follows it.
    """

    __slots__ = ("_text", "_wired", "_written", "count", "fields", "list_size", "whole")

    def __init__(self, fields: list[Field], whole: bool) -> None:
        self._read(fields, whole)

    def _read(self, fields: list[Field], whole: bool) -> None:
        specials: dict[bytes, bytes] = {}
        size = 0
        padded = False
        if not fields or fields[0].name != b":status" or _STATUS(fields[0].value) is None:
            raise Malformed(":status is missing, or malformed")
        for at, field in enumerate(fields):
            size += field.size
            if not field.steers:
                continue
            name, value = field.name, field.value
            if field.fault:
                raise Malformed(field.fault)
            padded = padded or field.padded
            if name[0] == 0x3A and at:
                raise Malformed(f"{name.decode('latin-1')} is unknown, repeated, or after a field")
            if name in CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
                raise Malformed(f"{name.decode('latin-1')} is not a field of HTTP/2")
            if name in _ANSWER_NAMES:
                if name == b"content-length" and specials.get(name, value) != value:
                    raise Malformed("more than one content-length")
                specials[name] = value.lower()
        if padded:
            check_padding(fields)
        self.status = int(fields[0].value)
        if self.status == 101:
            raise Malformed("101 is not an answer of HTTP/2")
        self.fields = fields[1:]
        self.list_size = size
        self.count = len(fields)
        self.whole = whole
        self.specials = specials
        self._lowered = None
        self.raw = b""
        self._written: bytes | None = None
        self._text: ResponseHead | None = None
        self._wired: bytes | None = None
        self.slow_path = None
        self.scanned = False
        self._kept = None
        length = specials.get(b"content-length")
        self.content_length = (0 if whole else None) if length is None else length_of(length)
        self.version = "2.0"
        self.keep_alive = True
        self.chunked = not whole and length is None
        self.simple = False

    def text(self) -> bytes:
        if self._written is not None:
            return self._written
        framing = b""
        if b"content-length" not in self.specials and self.status >= 200 and self.status not in (204, 304):
            framing = b"Content-Length: 0\r\n" if self.whole else b"Transfer-Encoding: chunked\r\n"
        self._written = b"HTTP/1.1 %d \r\n%b%b\r\n" % (self.status, lines_of(self.fields), framing)
        return self._written

    def says_same(self, other: ResponseHead) -> bool:
        """Return False: heads on HTTP/2 are not compared, since equal blocks already share one head."""
        return False

    @property
    def login_bound(self) -> bool:
        """Always False: NTLM and Negotiate are no schemes of HTTP/2."""
        return False

    def get(self, name: bytes) -> bytes | None:
        return value_of(self.fields, name)

    def trailers_to_forward(self, trailers: Trailers) -> Trailers | None:
        return trailers.without(ANSWER_CUT)

    def get_all(self, name: str) -> Sequence[str]:
        key = ANSWER_KEYS.get(name)
        if key is not None and key not in self.specials:
            return ()
        return values_of(self.fields, name)

    def render(self, *, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
        """Render the head to forward on HTTP/1.1: without the fields named in `drop`, and with the lines `add` at the
        end. Raises BadAnswer if HTTP/1 can't express it.
        """
        text = self._text
        if text is None:
            raw = self.text()
            found = RESPONSE(raw)
            if found is None or found.end() != len(raw):
                raise BadAnswer("a field holds an octet that HTTP/1 can't carry")
            self._text = text = ResponseHead(raw, found[1], found[2], found[3])
        return text.render(drop=drop, add=add)

    def block(self, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
        """Encode the head to forward as HPACK: fields as they were encoded, then `add`, lines with their CRLF; without
        the fields named in `drop`.
        """
        if not drop or drop <= ANSWER_CUT:
            block = self._wired
            if block is None:
                block = self._wired = status_field(self.status) + wire_of(self.fields, _ANSWER_CUT)
        else:
            block = status_field(self.status) + wire_of(self.fields, _ANSWER_CUT | drop)
        return block + encoded_lines(add) if add else block


@lru_cache(maxsize=64)
def status_field(status: int) -> bytes:
    """Encode `:status`, by the static table if it has the status, else as a literal."""
    index = {200: 0x88, 204: 0x89, 206: 0x8A, 304: 0x8B, 400: 0x8C, 404: 0x8D, 500: 0x8E}.get(status)
    return literal(b":status", b"%d" % status) if index is None else bytes((index,))


@lru_cache(maxsize=512)
def read_answer(block: bytes, whole: bool) -> Response2:
    """Return the answer whose head is this header block, which can be decoded without HPACK's dynamic table. `whole`:
    no body follows it. Raises Malformed, `hpack.Unreadable`.
    """
    return Response2(walk(block), whole)
