"""HPACK without a dynamic table (RFC 7541), in which the fields of a header block depend on its bytes alone.

We announce a table of size 0 and index nothing ourselves. After a peer's acknowledgement, its blocks are walked here
and forwarded as slices: each field keeps the bytes that encode it. Blocks from before the acknowledgement need the
table that the peer still has, and are forwarded as literals.

The forwarded block has the same fields and leaves no entry in a table: a literal with incremental indexing becomes one
without, size updates are dropped, never-indexed stays never-indexed, Huffman strings stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from proxy.wire.field_names import ANSWER_KEYS, HOP_BY_HOP, MISLEADING_TRAILERS, REQUEST_KEYS
from proxy.wire.http1.syntax import FVCHAR
from proxy.wire.http2.compiled import SLICER, unhuffed
from proxy.wire.http2.tables import OVERHEAD, STATIC, DynamicTable

#: The update to a table of size 0, with which the first block on each connection begins.
NO_TABLE = b"\x20"
#: The most size updates that a block may begin with: to the smallest size since the last block, and to the present one
#: (RFC 7541 section 4.2).
_UPDATES = 2
_UPDATING = frozenset(bytes((byte,)) for byte in range(0x20, 0x40))
#: Recurring fields are decoded once: the most fields that are cached, and the most bytes of each.
_REMEMBERED, _SHORT = 2048, 128

_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch
#: RFC 9110 section 5.5, the same as in HTTP/1's grammar, so that every accepted value can be written there.
_VALUE = re.compile(FVCHAR + rb"*+").fullmatch


class Unreadable(Exception):  # noqa: N818 - named by what happened
    """Raised for a block that breaks HPACK, after which no block of the connection can be read. Its text is one
    clause.
    """


class TooMuch(Exception):  # noqa: N818 - named by what happened
    """Raised for a block whose fields exceed the limit of its reader."""


class Name:
    """The beginning of a field's encoding, up to its value. `wire`: the bytes to forward. `kept`: fields with this
    beginning may be cached, because it does not mark them as never indexed. `fault`: what is wrong with the name, ""
    for nothing; `steers`: the proxy acts on fields of this name, or the name has a fault, so that a reader of heads
    must examine them.
    """

    __slots__ = ("fault", "kept", "name", "steers", "wire")

    def __init__(self, name: bytes, wire: bytes, *, kept: bool = True) -> None:
        self.name = name
        self.wire = wire
        self.kept = kept
        self.fault = ""
        if _NAME(name) is None:
            self.fault = "a field name is not in lower case" if name.lower() != name else "a field name is malformed"
        self.steers = bool(self.fault) or name[0] == 0x3A or name in _STEERING


class Field:
    """A field. `wire`: its encoding to forward. `fault`: what is wrong with the field by itself, "" for nothing.
    `size`: what it counts for in a header list. `padded`: whether its value begins or ends with white space. `steers`:
    whether a reader of heads must examine it, because the proxy acts on its name, it is padded, or it has a fault. Most
    fields need no examination.
    """

    __slots__ = ("fault", "name", "padded", "size", "steers", "value", "wire")

    def __init__(self, name: Name, value: bytes, wire: bytes) -> None:
        self.name = name.name
        self.value = value
        self.wire = wire
        self.size = len(self.name) + len(value) + 32
        self.fault = name.fault
        self.steers = name.steers
        self.padded = bool(value) and (value[0] in _SPACES or value[-1] in _SPACES)
        if self.padded:
            self.steers = True
        if not self.fault and _VALUE(value) is None:
            self.fault, self.steers = "a field value has a control character", True


_SPACES: Final = b" \t"
_STEERING = frozenset({*REQUEST_KEYS.values(), *ANSWER_KEYS.values(), *HOP_BY_HOP, *MISLEADING_TRAILERS})
#: The fields of the static table by the byte that represents them; None for other bytes.
_INDEXED: tuple[Field | None, ...] = tuple(
    Field(Name(STATIC[byte - 0x81][0], b""), STATIC[byte - 0x81][1], bytes((byte,)))
    if 0x81 <= byte <= 0x80 + len(STATIC)
    else None
    for byte in range(256)
)
_NAMES: dict[bytes, int] = {}
for _index, (_name, _) in enumerate(STATIC, 1):
    _NAMES.setdefault(_name, _index)

#: Caches of decoded fields and names, by the bytes that encode them.
_known: dict[bytes, Field] = {}
_names: dict[bytes, Name] = {}


def integer(value: int, prefix: int, pattern: int = 0) -> bytes:
    """Encode the integer `value` (0 or more) with a prefix of `prefix` bits; `pattern` is a byte that has the bits
    before the prefix (RFC 7541 section 5.1).
    """
    most = (1 << prefix) - 1
    if value < most:
        return bytes((pattern | value,))
    out = bytearray((pattern | most,))
    value -= most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Return the integer whose prefix, of `prefix` bits, is in the byte of `block` at the offset `at`, and the offset
    after the integer. At most 28 bits follow the prefix; raises Unreadable if there are more.
    """
    most = (1 << prefix) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in (0, 7, 14, 21):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Unreadable("an integer is too large")


def literal(name: bytes, value: bytes, *, never: bool = False) -> bytes:
    """Encode a field as a literal without indexing or, if `never`, as one that no intermediary may index. `name` is in
    lower case.
    """
    pattern = 0x10 if never else 0
    index = _NAMES.get(name)
    start = integer(index, 4, pattern) if index else bytes((pattern,)) + integer(len(name), 7) + name
    return start + integer(len(value), 7) + value


#: Fields that hold a credential, which no intermediary may index (RFC 7541 section 7.1.3).
CREDENTIALS = frozenset({b"authorization", b"proxy-authorization", b"api-key", b"x-api-key", b"x-goog-api-key"})


@lru_cache(maxsize=512)
def encoded_lines(lines: bytes) -> bytes:
    """Encode HTTP/1 field lines as literals of HPACK: names in lower case, values without surrounding white space.
    Each line given ends with CRLF, which is not encoded.
    """
    split = (line.partition(b":") for line in lines.split(b"\r\n") if line)
    fields = ((name.lower(), value.strip(b" \t")) for name, _, value in split)
    return b"".join(literal(name, value, never=name in CREDENTIALS) for name, value in fields)


def starts_without_table(block: bytes) -> tuple[bool, int]:
    """Whether size updates to 0 stand at a block's beginning, and none to more, and the offset after them.

    Raises Unreadable if there are more updates than a block may have. After the acknowledgement of a maximum of 0, one
    to more is an error even if another follows it (RFC 7541 section 6.3).
    """
    if block[:1] == NO_TABLE and block[1:2] not in _UPDATING:
        return True, 1
    at, largest = 0, -1
    try:
        for _ in range(_UPDATES):
            if block[at : at + 1] == b"" or block[at] & 0xE0 != 0x20:
                break
            size, at = _read_integer(block, at, 5)
            largest = max(largest, size)
        if at < len(block) and block[at] & 0xE0 == 0x20:
            raise Unreadable("more size updates than a table has sizes")
    except IndexError:
        raise Unreadable("a size update is cut short") from None
    return largest == 0, at


def shows_no_table(block: bytes) -> bool:
    """Whether a block shows that its encoder keeps no dynamic table: it has literals without indexing, none with, and
    no size update. Encoders that never index send no update either: that of .NET's HttpClient, and gRPC C-core's
    servers if a call ends before its answer began (close_from_api). RFC 9113 section 4.3.1 asks for an update if the
    new maximum is below the size of the table, and theirs has size 0.
    """
    at, unindexed = 0, False
    try:
        while at < len(block):
            first = block[at]
            if first >= 0x80:
                _, at = _read_integer(block, at, 7)
                continue
            if first >= 0x20:
                return False
            unindexed = unindexed or first < 0x10
            index, at = _read_integer(block, at, 4)
            for _ in range(1 if index else 2):
                length, at = _read_integer(block, at, 7)
                at += length
    except IndexError:
        return False
    return unindexed


def walk(block: bytes, at: int = 0, most: int = 4096) -> list[Field]:
    """Return the fields of a block that needs no table, from `at`, the offset after its size updates. Raises
    Unreadable, and TooMuch if there are more than `most` fields.
    """
    fields: list[Field] = []
    end = len(block)
    may_be_many = end > most  # a field has a byte at least
    known = _known
    try:
        while at < end:
            if may_be_many and len(fields) > most:
                raise TooMuch
            first = block[at]
            if first >= 0x80:
                field = _INDEXED[first]
                if field is None:
                    raise Unreadable("an index beyond the static table")
                at += 1
                fields.append(field)
                continue
            begin = at
            if first >= 0x40:
                named = first & 0x3F
                at += 1
                if named > 61:
                    raise Unreadable("an index beyond the static table")
            elif first >= 0x20:
                raise Unreadable("a size update after a field")
            else:
                named = first & 0x0F
                at += 1
                if named == 15:
                    named, at = _read_integer(block, at - 1, 4)
            if not named:
                length = block[at] & 0x7F
                if length == 0x7F:
                    length, at = _read_integer(block, at, 7)
                    at += length
                else:
                    at += 1 + length
            middle = at
            length = block[at] & 0x7F
            if length == 0x7F:
                length, at = _read_integer(block, at, 7)
                at += length
            else:
                at += 1 + length
            if at > end:
                raise Unreadable("a block is cut short")
            known_as = block[begin:at] if SLICER is None else SLICER.cut(block, begin, at)
            fields.append(known.get(known_as) or _read(block[begin:middle], block[middle:at]))
    except IndexError:
        raise Unreadable("a block is cut short") from None
    if len(fields) > most:
        raise TooMuch
    return fields


def _read(start: bytes, coded: bytes) -> Field:
    """Decode a literal from `start`, its encoding up to the value, and `coded`, its encoded value; cache the field."""
    name = _names.get(start) or _read_name(start)
    field = Field(name, _read_string(coded, 0), name.wire + coded)
    if name.kept and len(start) + len(coded) <= _SHORT:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[start + coded] = field
    return field


def _read_name(start: bytes) -> Name:
    first = start[0]
    incremental = first >= 0x40
    index, at = _read_integer(start, 0, 6 if incremental else 4)
    if index > len(STATIC):
        raise Unreadable("an index beyond the static table")
    text = STATIC[index - 1][0] if index else _read_string(start, at)
    wire = integer(index, 4) + start[at:] if incremental else start
    name = Name(text, wire, kept=incremental or not first & 0x10)
    if len(start) <= _SHORT:
        if len(_names) >= _REMEMBERED:
            _names.clear()
        _names[start] = name
    return name


def _read_string(raw: bytes, at: int) -> bytes:
    """Decode the string whose length is at `at`, and which extends to the end of `raw`."""
    first = raw[at]
    text = raw[at + 1 :] if first & 0x7F != 0x7F else raw[_read_integer(raw, at, 7)[1] :]
    return _unhuffed(text) if first >= 0x80 else text


def _unhuffed(text: bytes) -> bytes:
    said = unhuffed(text)
    if said is None:
        raise Unreadable("a Huffman string is malformed")
    return said


class PeerTable:
    """A reader of header blocks that a peer sent before it acknowledged redrive's SETTINGS, while it still has a
    dynamic table. `limit`: the size of a header list above which TooMuch is raised.
    """

    __slots__ = ("_limit", "_table")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._table = DynamicTable()

    @property
    def is_given_up(self) -> bool:
        """Whether the sender has set its table's size to 0, so that its later blocks need not say so again."""
        return self._table.size == 0

    @property
    def is_empty(self) -> bool:
        """Whether the sender has no field in its table."""
        return self._table.is_empty

    def read(self, block: bytes) -> list[Field]:
        """Return the fields of a block, each encoded as a literal for forwarding. Raises Unreadable, TooMuch."""
        _, end_of_updates = starts_without_table(block)
        fields: list[Field] = []
        at = held = 0
        try:
            while at < end_of_updates:
                size, at = _read_integer(block, at, 5)
                self._table.resize(size)
            while at < len(block):
                first = block[at]
                if first & 0xE0 == 0x20:
                    raise Unreadable("a size update after a field")
                never = first & 0xF0 == 0x10
                if first >= 0x80:
                    index, at = _read_integer(block, at, 7)
                    name, value = self._table[index]
                else:
                    index, at = _read_integer(block, at, 6 if first >= 0x40 else 4)
                    name, at = (self._table[index][0], at) if index else _next_string(block, at)
                    value, at = _next_string(block, at)
                    if first >= 0x40:
                        self._table.add(name, value)
                held += len(name) + len(value) + OVERHEAD
                if held > self._limit:
                    raise TooMuch
                fields.append(Field(Name(name, b""), value, literal(name, value, never=never)))
        except IndexError:
            raise Unreadable("a block is cut short, or an index is beyond the tables") from None
        except ValueError:
            raise Unreadable("a table above the size that it may have") from None
        return fields


def _next_string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return the string of `block` whose length is at the offset `at`, without its Huffman code if it has one, and the
    offset after the string.
    """
    coded = block[at] >= 0x80
    length, at = _read_integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise Unreadable("a block is cut short")
    text = block[at:end]
    return _unhuffed(text) if coded else text, end
