"""A second reader of HTTP/1, by splitting and counting, with nothing of the code under test in it.

Law: it raises Malformed for whatever two readers could disagree on. It serves as the judge of what was forwarded, of
what an app was given, and of whether an upstream's answer was whole.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field

_TOKEN = frozenset((string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~").encode())
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGITS = b"0123456789"
#: What no value and no target may contain; a value may contain HTAB, a target no space either.
_CONTROLS = bytes([*range(9), *range(10, 32), 127])
_NOT_IN_TARGETS = bytes([*range(33), 127])


class Malformed(Exception):  # noqa: N818 - named by what is read
    """It is not what the grammar says."""


@dataclass
class Read:
    """One message. `whole`: it came to its end. `raw` is of a tunnel: what follows the head."""

    line: list[bytes]
    fields: list[tuple[bytes, bytes]]
    body: bytes = b""
    trailers: bytes = b""
    whole: bool = False
    infos: list[list[bytes]] = field(default_factory=list)
    tunnel: bool = False

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name]


def split_fields(block: bytes) -> list[tuple[bytes, bytes]]:
    """Field lines, each with its CRLF."""
    pairs = []
    for line in block.split(b"\r\n")[:-1]:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise Malformed(line)
        if len(value.translate(None, _CONTROLS)) != len(value):
            raise Malformed(line)
        pairs.append((name, value.strip(b" \t")))
    return pairs


def split_head(data: bytes) -> tuple[list[bytes], list[tuple[bytes, bytes]], bytes] | None:
    """(first line in three parts, fields, what is behind), or None where the empty line has not come."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, rest = data[: end + 2], data[end + 4 :]
    if len(head.split(b"\n")) != len(head.split(b"\r\n")) or len(head.split(b"\r")) != len(head.split(b"\r\n")):
        raise Malformed(head)
    line, _, fields = head.partition(b"\r\n")
    return line.split(b" ", 2), split_fields(fields), rest


def number(digits: bytes) -> int:
    if not digits or digits.translate(None, _DIGITS):
        raise Malformed(digits)
    return int(digits)


def read_chunks(message: Read, data: bytes) -> bytes:
    """A chunked body into `message`; what is behind it."""
    while True:
        line, end, rest = data.partition(b"\r\n")
        if not end:
            return b""
        size, _, extension = line.partition(b";")
        size = size.rstrip(b" \t") if _ else size
        if not size or not _HEX.issuperset(size) or b"\n" in extension or b"\r" in extension:
            raise Malformed(line)
        length = int(size, 16)
        if not length:
            break
        message.body += rest[:length]
        if len(rest) < length + 2:
            if not b"\r\n".startswith(rest[length:]):
                raise Malformed(rest[length:])
            return b""
        if rest[length : length + 2] != b"\r\n":
            raise Malformed(rest[length : length + 2])
        data = rest[length + 2 :]
    if rest.startswith(b"\r\n"):
        message.whole = True
        return rest[2:]
    end = rest.find(b"\r\n\r\n")
    if end < 0:
        return b""
    message.trailers = rest[: end + 2]
    for name, _value in split_fields(message.trailers):
        if name.lower() in (b"content-length", b"transfer-encoding", b"host"):
            raise Malformed(name)
    message.whole = True
    return rest[end + 4 :]


def framing(message: Read) -> int | None:
    """How long the body is: a number, -1 for chunked, None where nothing says so."""
    lengths, codings = message.all(b"content-length"), message.all(b"transfer-encoding")
    if codings:
        if lengths or [coding.lower() for coding in codings] != [b"chunked"]:
            raise Malformed(b"framing")
        return -1
    if not lengths:
        return None
    each = {member.strip(b" \t") for value in lengths for member in value.split(b",")}
    if len(each) != 1:
        raise Malformed(b"lengths")
    return number(each.pop())


def read_body(message: Read, size: int | None, rest: bytes) -> bytes:
    if size == -1:
        return read_chunks(message, rest)
    assert size is not None
    message.body = rest[:size]
    message.whole = len(rest) >= size
    return rest[size:]


def read_requests(data: bytes) -> list[Read]:
    """Requests that a proxy has sent on one connection; the last may be unfinished. One Host each, HTTP/1.1 alone."""
    requests = []
    while data:
        found = split_head(data)
        if found is None:
            break
        line, fields, rest = found
        message = Read(line, fields)
        requests.append(message)
        if len(line) != 3 or not line[0] or not _TOKEN.issuperset(line[0]) or line[2] != b"HTTP/1.1":
            raise Malformed(b" ".join(line))
        if not line[1] or len(line[1].translate(None, _NOT_IN_TARGETS)) != len(line[1]):
            raise Malformed(line[1])
        if len(message.all(b"host")) != 1 or len(message.all(b"content-length")) > 1:
            raise Malformed(b"host or length")
        data = read_body(message, framing(message) or 0, rest)
        if not message.whole:
            break
    return requests


def read_answer(data: bytes, method: bytes, *, ended: bool) -> tuple[Read | None, bytes]:
    """The final answer to one request, and what is behind it. `ended`: nothing more will come, by an orderly end."""
    infos: list[list[bytes]] = []
    while True:
        found = split_head(data)
        if found is None:
            return None, data
        line, fields, rest = found
        if len(line) < 2 or line[0][:7] != b"HTTP/1." or len(line[1]) != 3 or number(line[1]) < 100:
            raise Malformed(b" ".join(line))
        message = Read(line, fields, infos=infos)
        status = int(line[1])
        if status >= 200 or status == 101:
            break
        infos.append(line)
        data = rest
    if status == 101 or (method == b"CONNECT" and status < 300):
        message.tunnel = message.whole = True
        return message, rest
    size = framing(message)
    if size == -1 and line[0] == b"HTTP/1.0":
        raise Malformed(b"chunked in HTTP/1.0")
    if method == b"HEAD" or status in (204, 304):
        message.whole = True
        return message, rest
    if size is None:
        message.body, message.whole = rest, ended
        return message, b""
    return message, read_body(message, size, rest)
