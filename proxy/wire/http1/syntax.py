"""The strict HTTP/1 grammar as compiled expressions (RFC 9110 section 5, RFC 9112), and why a head is refused.

There is no lenient mode, and time is linear. Every repeat is possessive, so no octet is matched twice; the end of a
match is the beginning of the body. The bytes are matched as received. The result never depends on how those bytes were
cut into packets: only the first `limit` bytes are searched for errors, and the earliest error is the one reported.
"""

from __future__ import annotations

import re

from proxy.wire.errors import BadAnswer, Refused, malformed

TCHAR = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"  # RFC 9110 section 5.6.2
FVCHAR = rb"[\t -~\x80-\xff]"  # field-vchar, SP and HTAB; obs-text passes through
TARGET = rb'[!"$-~\x80-\xff]'  # visible octets, without "#": a fragment is never sent (RFC 9112 section 3.2)

#: The field lines of a head, without the empty line that ends them.
LINES = rb"(?:" + TCHAR + rb"++:" + FVCHAR + rb"*+\r\n)*+"

#: Groups: method, target, minor version.
REQUEST = re.compile(rb"(" + TCHAR + rb"{1,64}+) (" + TARGET + rb"++) HTTP/1\.([0-9])\r\n" + LINES + rb"\r\n").match

#: Groups: method, target. A request line of HTTP/1.1, without its CRLF.
REQUEST_LINE = re.compile(rb"(" + TCHAR + rb"{1,64}+) (" + TARGET + rb"++) HTTP/1\.1").fullmatch

#: Groups: minor version, status, reason with its space (None if the line ends after the status).
RESPONSE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])( " + FVCHAR + rb"*+)?+\r\n" + LINES + rb"\r\n").match

#: A field line, and a status line, each without its CRLF; the groups of the latter are those of RESPONSE.
FIELD_LINE = re.compile(TCHAR + rb"++:" + FVCHAR + rb"*+").fullmatch
STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])( " + FVCHAR + rb"*+)?+").fullmatch

#: The trailer section of a chunked body, with the empty line that ends it.
TRAILERS = re.compile(LINES + rb"\r\n").match

#: A list of tokens with optional white space; empty elements are accepted (RFC 9110 section 5.6.1.2).
TOKENS = re.compile(rb"[ \t]*+(?:" + TCHAR + rb"++[ \t]*+)?+(?:,[ \t]*+(?:" + TCHAR + rb"++[ \t]*+)?+)*+").fullmatch

_FORBIDDEN = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search
_ANY_REQUEST_LINE = re.compile(rb"(" + TCHAR + rb"++) " + TARGET + rb"++ HTTP/([0-9])\.[0-9]").fullmatch


def forbidden_octet(data: bytes | bytearray, start: int, end: int) -> str | None:
    """Describe the first octet between `start` and `end` that no head may contain; None if there is none.

    A CR that is the last octet may yet be followed by LF.
    """
    found = _FORBIDDEN(data, max(start, 0), end)
    if found is None:
        return None
    octet = found.group()[:1]
    if octet == b"\n":
        return "a line feed without a carriage return"
    if octet == b"\r":
        return "a carriage return without a line feed"
    return f"a control character (0x{octet[0]:02x})"


def check_request_line(line: bytes) -> None:
    """Raise Refused if a finished request line (without CRLF) is not one of HTTP/1."""
    found = _ANY_REQUEST_LINE(line)
    if found is None:
        if b"#" in line and line.count(b" ") == 2:
            raise malformed("the request target has a fragment")
        raise malformed("the request line is malformed")
    if found[2] != b"1":
        raise Refused(505, "HTTP Version Not Supported", "only HTTP/1.1 and HTTP/1.0 are supported here")
    if len(found[1]) > 64:
        raise Refused(501, "Not Implemented", "the method is longer than 64 bytes")


def check_status_line(line: bytes) -> None:
    """Raise BadAnswer if a finished status line (without CRLF) is not one of HTTP/1."""
    if STATUS_LINE(line) is None:
        raise BadAnswer("the status line is malformed")
