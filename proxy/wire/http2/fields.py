"""The fields of a head that came on HTTP/2, and trailers, which are nothing but fields.

Fields stay as they were encoded. Those that RFC 9113 section 8 calls malformed raise Malformed, and go no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import lru_cache

from proxy.wire.field_names import MISLEADING_TRAILERS
from proxy.wire.fields import Trailers
from proxy.wire.http2.hpack import Field, walk

#: Fields that concern one HTTP/1 connection (RFC 9113 section 8.2.2). TE is allowed with the value `trailers`.
CONNECTION_SPECIFIC = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
#: Fields that are malformed in trailers. TE belongs in the head of a request alone.
_NOT_IN_TRAILERS = CONNECTION_SPECIFIC | MISLEADING_TRAILERS | {b"te"}


class Malformed(Exception):  # noqa: N818 - named by what happened
    """Raised for a head that RFC 9113 calls malformed, whose stream is reset. Its text is one clause."""


def values_of(fields: list[Field], name: str) -> Sequence[str]:
    """Return every value of the fields with this lower-case name, in order, stripped, as latin-1."""
    wanted = name.encode("latin-1", "replace")
    return [field.value.strip(b" \t").decode("latin-1") for field in fields if field.name == wanted]


def value_of(fields: list[Field], name: bytes) -> bytes | None:
    """Return the first value of the fields with this lower-case name, stripped, or None if there is none."""
    for field in fields:
        if field.name == name:
            return field.value.strip(b" \t")
    return None


def check_padding(fields: list[Field]) -> None:
    """Raise Malformed if any of these fields has white space around its value (RFC 9113 section 8.2.1), unless the
    fields are gRPC's. C-core sends metadata and messages as an application wrote them, and gRPC accepts white space
    around them (PROTOCOL-HTTP2, ASCII-Value). Writers of HTTP/1 strip it.
    """
    kind = value_of(fields, b"content-type") or b""
    if not kind.lower().startswith(b"application/grpc") and value_of(fields, b"grpc-status") is None:
        raise Malformed("a field value begins or ends with white space")


def lines_of(fields: Iterable[Field]) -> bytes:
    """Return fields as HTTP/1 lines; `cookie` lines are joined into one at the place of the first (RFC 9113 section
    8.2.3).
    """
    lines: list[bytes] = []
    cookies: list[bytes] = []
    for field in fields:
        name, text = field.name, field.value.strip(b" \t")
        if name != b"cookie":
            lines.append(b"%b: %b\r\n" % (name, text))
            continue
        if not cookies:
            lines.append(b"")
            index = len(lines) - 1
        cookies.append(text)
        lines[index] = b"cookie: %b\r\n" % b"; ".join(cookies)
    return b"".join(lines)


def wire_of(fields: list[Field], cut: Set[bytes]) -> bytes:
    """Return the encodings of all fields but those with these lower-case names, as the fields came."""
    return b"".join([field.wire for field in fields if field.name not in cut])


def whole_wire(fields: list[Field]) -> bytes:
    """Return the encodings of all fields, as they came."""
    return b"".join([field.wire for field in fields])


def length_of(value: bytes) -> int:
    """Return the number in a value of content-length. Raises Malformed."""
    if not value.isdigit() or len(value) > 18:
        raise Malformed("content-length is not a number of 1 to 18 digits")
    return int(value)


class Trailers2(Trailers):
    """Trailers that came on HTTP/2. `fields`: as they came; `block`: their encoding to forward; `list_size`: what they
    count for in a header list.
    """

    __slots__ = ("_names", "_written", "block", "fields", "list_size")

    def __init__(self, fields: list[Field]) -> None:
        self._read(fields)

    def _read(self, fields: list[Field]) -> None:
        size = 0
        padded = False
        for field in fields:
            size += field.size
            if field.steers:
                name = field.name
                padded = padded or field.padded
                if field.fault or name[0] == 0x3A or name in _NOT_IN_TRAILERS:
                    raise Malformed(field.fault or f"{name.decode('latin-1')} in trailers")
        if padded:
            check_padding(fields)
        self.list_size = size
        self.fields = fields
        self.block = whole_wire(fields)
        self._names = frozenset([field.name for field in fields])
        self._lowered = None
        self.raw = b""
        self._written: bytes | None = None

    def text(self) -> bytes:
        if self._written is not None:
            return self._written
        self._written = b"\r\n" + lines_of(self.fields)
        return self._written

    def get(self, name: bytes) -> bytes | None:
        return value_of(self.fields, name)

    def get_all(self, name: str) -> Sequence[str]:
        return values_of(self.fields, name)

    def without(self, names: Set[bytes]) -> Trailers2 | None:
        if names.isdisjoint(self._names):
            return self
        left = [field for field in self.fields if field.name not in names]
        return Trailers2(left) if left else None


@lru_cache(maxsize=512)
def read_trailers(block: bytes) -> Trailers2:
    """Return the trailers in this header block, which can be decoded without HPACK's dynamic table. Raises Malformed,
    `hpack.Unreadable`.
    """
    return Trailers2(walk(block))
