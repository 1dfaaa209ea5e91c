"""Requests that are refused: framing, grammar, Host, target, size. Nothing of them is forwarded, and the connection
closes (RFC 9112 sections 2.2, 3, 5, 6, 7 and 11.2).

Each row goes through the proxy in four ways: in one write, cut at every line's end, octet by octet, and behind a good
request in the same write. `%A` stands for the upstream's authority.
"""

from __future__ import annotations

import re

import pytest
from conformance_kit import MAY, MUST, OURS, SHOULD, Case, Peer, Proxy, Upstream, get, ids, message, reply

BAD = (400,)


def row(name: str, section: str, level: str, raw: bytes, *statuses: int) -> Case:
    return Case(name, section, level, (raw, statuses or BAD))


def req(*fields: str | bytes, line: str | bytes = "GET http://%A/x HTTP/1.1", body: bytes = b"") -> bytes:
    """A GET with a Host and these fields."""
    return message(line, "Host: %A", *fields, body=body)


def post(*fields: str | bytes, body: bytes = b"") -> bytes:
    return req(*fields, line="POST http://%A/x HTTP/1.1", body=body)


def host(value: str | bytes) -> bytes:
    """A GET with this Host."""
    value = value.encode("latin-1") if isinstance(value, str) else value
    return message("GET http://%A/x HTTP/1.1", b"Host: " + value)


SMUGGLED = b"GET http://%A/smuggled HTTP/1.1\r\nHost: %A\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
CL, TE = "Content-Length: 5", "Transfer-Encoding: chunked"

LENGTHS = [
    row(f"Content-Length {name}", "RFC 9112 6.3", MUST, post(f"Content-Length: {value}", body=b"hello"))
    for name, value in (
        ("with a plus", "+5"),
        ("with a minus", "-5"),
        ("minus zero", "-0"),
        ("in hex", "0x5"),
        ("with a decimal point", "5.0"),
        ("with an exponent", "5e0"),
        ("with an underscore", "1_0"),
        ("in words", "five"),
        ("empty", ""),
        ("of a space", " "),
        ("with a space inside", "5 5"),
        ("with a tab inside", "5\t5"),
        ("list of two", "5, 6"),
        ("list with an empty member", "5,"),
        ("list that begins empty", ",5"),
        ("with a semicolon", "5;5"),
        ("quoted", '"5"'),
        ("in superscript", "\xb2"),
        ("with a no-break space", "\xa05"),
        ("beyond 64 bits", "18446744073709551621"),
        ("of thirty digits", "0" * 25 + "00005"),
        ("with a trailing letter", "5b"),
        ("with a suffix", "5 bytes"),
        ("with a leading letter", "a5"),
    )
] + [
    row("Content-Length list of equals", "RFC 9112 6.3", MAY, post("Content-Length: 5, 5", body=b"hello")),
    row("Content-Length twice, equal", "RFC 9112 6.3", MAY, post(CL, CL, body=b"hello")),
    row("Content-Length twice, different", "RFC 9112 6.3", MUST, post(CL, "Content-Length: 6", body=b"hello!")),
    row("Content-Length twice, 0 first", "RFC 9112 6.3", MUST, post("Content-Length: 0", CL, body=b"hello")),
    row("Content-Length twice in two cases", "RFC 9112 6.3", MUST, post(CL, "content-length: 44", body=b"hello")),
    row("Content-Length good and bad", "RFC 9112 6.3", MUST, post(CL, "Content-Length: x", body=b"hello")),
    row("Content-Length apart", "RFC 9112 6.3", MUST, post(CL, "X: y", "Content-Length: 0", body=b"hello")),
    row("Content-Length with a NUL", "RFC 9110 5.5", MUST, post("Content-Length: 5\0", body=b"hello")),
    row("Content-Length with a vertical tab", "RFC 9110 5.5", MUST, post("Content-Length: \x0b5", body=b"hello")),
    row("Content-Length with a form feed", "RFC 9110 5.5", MUST, post("Content-Length: 5\x0c", body=b"hello")),
    row("Content-Length with a bare CR", "RFC 9112 2.2", MUST, post("Content-Length: \r5", body=b"hello")),
    row("Content-Length, space before the colon", "RFC 9112 5.1", MUST, post("Content-Length : 5", body=b"hello")),
    row("Content-Length, tab before the colon", "RFC 9112 5.1", MUST, post("Content-Length\t: 5", body=b"hello")),
    row("Content-Length folded", "RFC 9112 5.2", MUST, post("Content-Length:", " 5", body=b"hello")),
    row("Content-Length in HTTP/1.0, bad", "RFC 9112 6.3", MUST,
        message("POST http://%A/ HTTP/1.0", "Content-Length: x", body=b"hello")),
    row("Content-Length list in HTTP/1.0", "RFC 9112 6.3", MUST,
        message("POST http://%A/ HTTP/1.0", "Content-Length: 1, 5", body=b"hello")),
]  # fmt: skip

CODINGS = [
    row(f"Transfer-Encoding {name}", "RFC 9112 6.3", MUST, post(f"Transfer-Encoding: {value}", body=CHUNKS))
    for name, value in (
        ("gzip", "gzip"),
        ("identity", "identity"),
        ("of an unknown name", "xchunked"),
        ("chunkedx", "chunkedx"),
        ("chunked, then identity", "chunked, identity"),
        ("chunked, then gzip", "chunked, gzip"),
        ("chunked twice", "chunked, chunked"),
        ("chunked with a parameter", "chunked;q=1"),
        ("quoted", '"chunked"'),
        ("in single quotes", "'chunked'"),
        ("empty", ""),
        ("of a comma", ","),
        ("with a trailing comma", "chunked,"),
        ("with a leading comma", ",chunked"),
        ("with words", "chunked foo"),
        ("with a colon", ": chunked"),
        ("with a semicolon", "chunked;"),
        ("with a no-break space", "chunked\xa0"),
        ("with a leading no-break space", "\xa0chunked"),
        ("with an accent", "chunk\xe9d"),
        ("cow", "cow"),
    )
] + [
    row("Transfer-Encoding gzip, chunked", "RFC 9112 6.1", SHOULD,
        post("Transfer-Encoding: gzip, chunked", body=CHUNKS), 501),
    row("Transfer-Encoding gzip and chunked in two", "RFC 9112 6.1", SHOULD,
        post("Transfer-Encoding: gzip", TE, body=CHUNKS), 501),
    row("Transfer-Encoding identity, chunked", "RFC 9112 6.1", SHOULD,
        post("Transfer-Encoding: identity, chunked", body=CHUNKS), 400, 501),
    row("Transfer-Encoding twice", "RFC 9112 6.1", MUST, post(TE, TE, body=CHUNKS)),
    row("Transfer-Encoding twice, the other unknown", "RFC 9112 6.3", MUST,
        post(TE, "Transfer-Encoding: cow", body=CHUNKS)),
    row("Transfer-Encoding twice, the other empty", "RFC 9112 6.3", MUST,
        post(TE, "Transfer-Encoding:", body=CHUNKS)),
    row("Transfer-Encoding twice, the first empty", "RFC 9112 6.3", MUST,
        post("Transfer-Encoding:", TE, body=CHUNKS)),
    row("Transfer-Encoding, then a length", "RFC 9112 6.1", MAY, post(TE, "Content-Length: 15", body=CHUNKS)),
    row("a length, then Transfer-Encoding", "RFC 9112 6.1", MAY, post("Content-Length: 15", TE, body=CHUNKS)),
    row("a short length beside Transfer-Encoding", "RFC 9112 6.1", MAY,
        post("Content-Length: 3", TE, body=b"0\r\n\r\n" + SMUGGLED)),
    row("length 0 beside Transfer-Encoding", "RFC 9112 6.1", MAY, post("Content-Length: 0", TE, body=CHUNKS)),
    row("a bad length beside Transfer-Encoding", "RFC 9112 6.1", MAY, post("Content-Length: x", TE, body=CHUNKS)),
    row("a length beside an unknown coding", "RFC 9112 6.3", MUST,
        post(CL, "Transfer-Encoding: xchunked", body=b"hello")),
    row("a length beside identity", "RFC 9112 6.3", MUST, post(CL, "Transfer-Encoding: identity", body=b"hello")),
    row("a length beside an empty coding", "RFC 9112 6.3", MUST, post(CL, "Transfer-Encoding:", body=b"hello")),
    row("Transfer-Encoding, space before the colon", "RFC 9112 5.1", MUST,
        post("Transfer-Encoding : chunked", body=CHUNKS)),
    row("Transfer-Encoding, space before the colon, and a length", "RFC 9112 5.1", MUST,
        post("Content-Length: 15", "Transfer-Encoding : chunked", body=CHUNKS)),
    row("Transfer-Encoding behind a space", "RFC 9112 5.2", MUST,
        post("X: y", " Transfer-Encoding: chunked", body=CHUNKS)),
    row("Transfer-Encoding folded", "RFC 9112 5.2", MUST, post("Transfer-Encoding:", " chunked", body=CHUNKS)),
    row("Transfer-Encoding with a vertical tab", "RFC 9110 5.5", MUST,
        post("Transfer-Encoding: \x0bchunked", body=CHUNKS)),
    row("Transfer-Encoding with a NUL", "RFC 9110 5.5", MUST, post("Transfer-Encoding: chunked\0", body=CHUNKS)),
    row("Transfer-Encoding with a bare CR", "RFC 9112 2.2", MUST,
        post("Transfer-Encoding: chunked\rX", body=CHUNKS)),
    row("Transfer-Encoding behind a bare CR", "RFC 9112 2.2", MUST,
        post("X: y\rTransfer-Encoding: chunked", body=CHUNKS)),
    row("Transfer-Encoding behind a bare LF", "RFC 9112 2.2", SHOULD,
        post("X: y\nTransfer-Encoding: chunked", body=CHUNKS)),
    row("Transfer-Encoding in HTTP/1.0", "RFC 9112 6.1", MUST,
        message("POST http://%A/ HTTP/1.0", "Host: %A", TE, body=CHUNKS)),
    row("Transfer-Encoding and a length in HTTP/1.0", "RFC 9112 6.1", MUST,
        message("POST http://%A/ HTTP/1.0", "Host: %A", TE, CL, body=CHUNKS)),
    row("Transfer-Encoding in HTTP/1.0, kept alive", "RFC 9112 6.1", MUST,
        message("POST http://%A/ HTTP/1.0", "Host: %A", "Connection: keep-alive", TE, body=CHUNKS)),
    row("Transfer-Encoding on a GET, unknown", "RFC 9112 6.3", MUST, req("Transfer-Encoding: foo", body=CHUNKS)),
]  # fmt: skip

BODIES = [
    row(f"chunked: {name}", "RFC 9112 7.1", MUST, post(TE, body=body))
    for name, body in (
        ("a size in no hex", b"g\r\nhello\r\n0\r\n\r\n"),
        ("a size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("a size with a plus", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("a size with a minus", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("an empty size", b"\r\nhello\r\n0\r\n\r\n"),
        ("a size behind a space", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("a size before a space", b"5 \r\nhello\r\n0\r\n\r\n"),
        ("a size before a tab", b"5\t\r\nhello\r\n0\r\n\r\n"),
        ("a size with an underscore", b"1_0\r\nhello\r\n0\r\n\r\n"),
        ("a size with a comma", b"5,5\r\nhello\r\n0\r\n\r\n"),
        ("a size beyond 64 bits", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("a size of -1 in 64 bits", b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("a size that wraps to 5 in 32 bits and is too big for 60", b"f000000100000005\r\nhello\r\n0\r\n\r\n"),
        ("a size with a NUL", b"5\0\r\nhello\r\n0\r\n\r\n"),
        ("a size that ends with LF", b"5\nhello\r\n0\r\n\r\n"),
        ("a size that ends with CR", b"5\rhello\r\n0\r\n\r\n"),
        ("a size that ends with CR CR LF", b"5\r\r\nhello\r\n0\r\n\r\n"),
        ("a chunk longer than its size", b"4\r\nhello\r\n0\r\n\r\n"),
        ("a chunk shorter than its size", b"6\r\nhello\r\n0\r\n\r\n"),
        ("data that ends with LF", b"5\r\nhello\n0\r\n\r\n"),
        ("data that ends with CR", b"5\r\nhello\r0\r\n\r\n"),
        ("data that ends with nothing", b"5\r\nhello0\r\n\r\n"),
        ("data that ends with two octets", b"5\r\nhelloXX0\r\n\r\n"),
        ("data that ends with LF CR", b"5\r\nhello\n\r0\r\n\r\n"),
        ("an extension with a NUL", b"5;a=\0\r\nhello\r\n0\r\n\r\n"),
        ("an extension with a bare LF", b"5;a\nhello\r\n0\r\n\r\n"),
        ("an extension with a bare CR", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("an extension with an LF in quotes", b'5;a="\n"\r\nhello\r\n0\r\n\r\n'),
        ("an extension with DEL", b"5;\x7f\r\nhello\r\n0\r\n\r\n"),
        ("an extension of 5 KiB", b"5;" + b"a" * 5120 + b"\r\nhello\r\n0\r\n\r\n"),
        ("extensions of 70 KiB in all", b"1;%b\r\nx\r\n" % (b"a" * 3500) * 20 + b"0\r\n\r\n"),
        ("a last chunk that ends with LF", b"5\r\nhello\r\n0\n\r\n"),
        ("a trailer section that ends with LF", b"5\r\nhello\r\n0\r\n\n"),
        ("a last chunk of two zeros and a space", b"5\r\nhello\r\n00 \r\n\r\n"),
        ("a trailer without a colon", b"0\r\nX\r\n\r\n"),
        ("a trailer without a name", b"0\r\n: x\r\n\r\n"),
        ("a trailer with a space before its colon", b"0\r\nX : y\r\n\r\n"),
        ("a folded trailer", b"0\r\nX: y\r\n z\r\n\r\n"),
        ("a trailer behind a space", b"0\r\n X: y\r\n\r\n"),
        ("a trailer with a NUL", b"0\r\nX: \0\r\n\r\n"),
        ("a trailer with a bare CR", b"0\r\nX: a\rb\r\n\r\n"),
        ("a trailer with a bare LF", b"0\r\nX: a\nb\r\n\r\n"),
        ("trailers of 20 KiB", b"0\r\nX: " + b"y" * 20480 + b"\r\n\r\n"),
        ("Content-Length as a trailer", b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"),
        ("Transfer-Encoding as a trailer", b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("Host as a trailer", b"5\r\nhello\r\n0\r\nHost: evil.example\r\n\r\n"),
        ("a request line for a trailer", b"0\r\n" + SMUGGLED),
    )
]

OCTETS = [
    row(f"{octet!r} in {where}", section, level, raw.replace(b"%O", octet))
    for octet, section, level in (
        (b"\r", "RFC 9112 2.2", MUST),
        (b"\n", "RFC 9112 2.2", SHOULD),
        (b"\0", "RFC 9110 5.5", MUST),
        (b"\x0b", "RFC 9110 5.5", SHOULD),
        (b"\x0c", "RFC 9110 5.5", SHOULD),
        (b"\x1b", "RFC 9110 5.5", SHOULD),
        (b"\x7f", "RFC 9110 5.5", SHOULD),
    )
    for where, raw in (
        ("a method", req(line=b"GE%OT http://%A/x HTTP/1.1")),
        ("a target", req(line=b"GET http://%A/x%Oy HTTP/1.1")),
        ("a version", req(line=b"GET http://%A/x HTTP/1.%O1")),
        ("a field name", req(b"X%OY: z")),
        ("a field value", req(b"X: y%Oz")),
        ("the end of a field value", req(b"X: y%O", "Y: z")),
        ("a Host", host(b"%A%O")),
    )
]

FIELDS = [
    row("a space before a colon", "RFC 9112 5.1", MUST, req("X : y")),
    row("a tab before a colon", "RFC 9112 5.1", MUST, req("X\t: y")),
    row("a space before Host's colon", "RFC 9112 5.1", MUST, message("GET http://%A/x HTTP/1.1", "Host : %A")),
    row("a space inside a name", "RFC 9110 5.1", MUST, req("X Y: z")),
    row("a name in latin-1", "RFC 9110 5.1", MUST, req("X\xe9: y")),
    row("a name with parentheses", "RFC 9110 5.1", MUST, req("X(y): z")),
    row("a name with a slash", "RFC 9110 5.1", MUST, req("X/y: z")),
    row("a name with an at", "RFC 9110 5.1", MUST, req("X@y: z")),
    row("a name in quotes", "RFC 9110 5.1", MUST, req('"X": z')),
    row("a name with brackets", "RFC 9110 5.1", MUST, req("X[0]: z")),
    row("a name with braces", "RFC 9110 5.1", MUST, req("{X}: z")),
    row("a name with a backslash", "RFC 9110 5.1", MUST, req("X\\: z")),
    row("a name with a comma", "RFC 9110 5.1", MUST, req("X,Y: z")),
    row("a name with an equals sign", "RFC 9110 5.1", MUST, req("X=Y: z")),
    row("no name", "RFC 9110 5.1", MUST, req(": y")),
    row("no colon", "RFC 9112 5", MUST, req("XY")),
    row("a fold", "RFC 9112 5.2", MUST, req("X: y", " z")),
    row("a fold by a tab", "RFC 9112 5.2", MUST, req("X: y", "\tz")),
    row("a fold of Host", "RFC 9112 5.2", MUST, message("GET http://%A/x HTTP/1.1", "Host:", " %A")),
    row("a fold of nothing", "RFC 9112 5.2", MUST, req("X: y", " ")),
    row("white space before the first field", "RFC 9112 2.2", MUST,
        message("GET http://%A/x HTTP/1.1", " Host: %A", "X: y")),
    row("a tab before the first field", "RFC 9112 2.2", MUST,
        message("GET http://%A/x HTTP/1.1", "\tHost: %A", "X: y")),
    row("white space alone before the first field", "RFC 9112 2.2", MUST,
        message("GET http://%A/x HTTP/1.1", " ", "Host: %A")),
    row("a head that ends with LF LF", "RFC 9112 2.2", MAY, b"GET http://%A/x HTTP/1.1\r\nHost: %A\n\n"),
    row("a head that ends with CRLF LF", "RFC 9112 2.2", MAY, b"GET http://%A/x HTTP/1.1\r\nHost: %A\r\n\n"),
    row("a head of bare LFs", "RFC 9112 2.2", MAY, b"GET http://%A/x HTTP/1.1\nHost: %A\n\n"),
    row("a head of bare CRs", "RFC 9112 2.2", MUST, b"GET http://%A/x HTTP/1.1\rHost: %A\r\r"),
    row("Connection is no list", "RFC 9110 7.6.1", OURS, req("Connection: close; x")),
    row("Connection with a quoted string", "RFC 9110 7.6.1", OURS, req('Connection: "close"')),
    row("Connection with a space inside", "RFC 9110 7.6.1", OURS, req("Connection: keep alive")),
]  # fmt: skip

LINES = [
    row(f"request line: {name}", "RFC 9112 3", level, req(line=line), *statuses)
    for name, level, line, statuses in (
        ("two spaces before the target", SHOULD, "GET  http://%A/x HTTP/1.1", ()),
        ("two spaces behind the target", SHOULD, "GET http://%A/x  HTTP/1.1", ()),
        ("a tab for a space", SHOULD, "GET\thttp://%A/x HTTP/1.1", ()),
        ("a tab for the second space", SHOULD, "GET http://%A/x\tHTTP/1.1", ()),
        ("a space in front", SHOULD, " GET http://%A/x HTTP/1.1", ()),
        ("a space behind", SHOULD, "GET http://%A/x HTTP/1.1 ", ()),
        ("a space in the target", SHOULD, "GET http://%A/x y HTTP/1.1", ()),
        ("no target", SHOULD, "GET HTTP/1.1", ()),
        ("no method", SHOULD, "http://%A/x HTTP/1.1", ()),
        ("an empty method", SHOULD, " http://%A/x HTTP/1.1", ()),
        ("no version", SHOULD, "GET http://%A/x", ()),
        ("a method with a colon", MUST, "GET: http://%A/x HTTP/1.1", ()),
        ("a method with brackets", MUST, "G[E]T http://%A/x HTTP/1.1", ()),
        ("a method with an at", MUST, "G@T http://%A/x HTTP/1.1", ()),
        ("a method in latin-1", MUST, "G\xcbT http://%A/x HTTP/1.1", ()),
        ("a method in quotes", MUST, '"GET" http://%A/x HTTP/1.1', ()),
        ("a method of 65 octets", SHOULD, f"{'M' * 65} http://%A/x HTTP/1.1", (501,)),
        ("a method of 70 KiB", SHOULD, f"{'M' * 71680} http://%A/x HTTP/1.1", (400, 414, 431, 501)),
        ("a fragment", MUST, "GET http://%A/x#y HTTP/1.1", ()),
        ("a target of 70 KiB", MUST, f"GET http://%A/{'x' * 71680} HTTP/1.1", (414,)),
        ("a target of 200 KiB", MUST, f"GET http://%A/{'x' * 204800} HTTP/1.1", (414,)),
    )
] + [
    row(f"version {name}", "RFC 9112 2.3", level, req(line=f"GET http://%A/x {version}"), *statuses)
    for name, level, version, statuses in (
        ("HTTP/2.0", SHOULD, "HTTP/2.0", (505,)),
        ("HTTP/2", SHOULD, "HTTP/2", (400, 505)),
        ("HTTP/3.0", SHOULD, "HTTP/3.0", (505,)),
        ("HTTP/0.9", SHOULD, "HTTP/0.9", (400, 505)),
        ("HTTP/9.9", SHOULD, "HTTP/9.9", (505,)),
        ("in lower case", MUST, "http/1.1", ()),
        ("in mixed case", MUST, "Http/1.1", ()),
        ("HTTP/1.", MUST, "HTTP/1.", ()),
        ("HTTP/1", MUST, "HTTP/1", ()),
        ("HTTP/.1", MUST, "HTTP/.1", ()),
        ("HTTP/1.10", MUST, "HTTP/1.10", ()),
        ("HTTP/01.1", MUST, "HTTP/01.1", ()),
        ("HTTP/11.1", MUST, "HTTP/11.1", (400, 505)),
        ("HTTP/1,1", MUST, "HTTP/1,1", ()),
        ("HTTP/1.1a", MUST, "HTTP/1.1a", ()),
        ("HTTP/+1.1", MUST, "HTTP/+1.1", ()),
        ("HTTP 1.1", MUST, "HTTP 1.1", ()),
        ("HTTP/ 1.1", MUST, "HTTP/ 1.1", ()),
        ("HTTPS/1.1", MUST, "HTTPS/1.1", ()),
        ("ICY/1.1", MUST, "ICY/1.1", ()),
        ("HTTP-1.1", MUST, "HTTP-1.1", ()),
        ("HTTP/1.\xb9", MUST, "HTTP/1.\xb9", ()),
    )
] + [
    row("HTTP/0.9 simple request", "RFC 9112 2.3", SHOULD, b"GET http://%A/x\r\n", 400, 505),
    row("HTTP/0.9 with an empty line", "RFC 9112 2.3", SHOULD, b"GET /x\r\n\r\n", 400, 505),
    row("a TLS ClientHello", "RFC 9112 2.2", SHOULD, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    row("a TLS ClientHello with line ends", "RFC 9112 2.2", SHOULD, b"\x16\x03\x01\r\n\r\n"),
    row("an SSH greeting", "RFC 9112 2.2", SHOULD, b"SSH-2.0-OpenSSH_9.6\r\n"),
    row("a PROXY protocol line", "RFC 9112 2.2", SHOULD,
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n" + req()),
    row("an answer", "RFC 9112 2.2", SHOULD, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    row("a NUL", "RFC 9112 2.2", SHOULD, b"\0"),
    row("a bare LF in front", "RFC 9112 2.2", MAY, b"\n" + req()),
    row("a bare CR in front", "RFC 9112 2.2", MUST, b"\r" + req()),
    row("a byte order mark in front", "RFC 9112 2.2", SHOULD, b"\xef\xbb\xbf" + req()),
]  # fmt: skip

HOSTS = [
    row("no Host", "RFC 9112 3.2", MUST, message("GET http://%A/x HTTP/1.1")),
    row("no Host but another field", "RFC 9112 3.2", MUST, message("GET http://%A/x HTTP/1.1", "X-Host: %A")),
    row("no Host, origin form", "RFC 9112 3.2", MUST, message("GET /x HTTP/1.1")),
    row("no Host, CONNECT", "RFC 9112 3.2", MUST, message("CONNECT %A HTTP/1.1")),
    row("no Host, OPTIONS *", "RFC 9112 3.2", MUST, message("OPTIONS * HTTP/1.1")),
    row("Host twice", "RFC 9112 3.2", MUST, req("Host: %A")),
    row("Host twice, different", "RFC 9112 3.2", MUST, req("Host: evil.example")),
    row("Host twice in two cases", "RFC 9112 3.2", MUST, req("hOST: %A")),
    row("Host twice, one empty", "RFC 9112 3.2", MUST, req("Host:")),
    row("Host twice, HTTP/1.0", "RFC 9112 3.2", MUST,
        message("GET http://%A/x HTTP/1.0", "Host: %A", "Host: evil.example")),
    row("Host thrice", "RFC 9112 3.2", MUST, req("Host: %A", "Host: %A")),
    row("empty Host, origin form", "RFC 9112 3.2", MUST, message("GET /x HTTP/1.1", "Host:")),
    *(
        row(f"Host {name}", "RFC 9112 3.2", MUST, host(value))
        for name, value in (
            ("with a scheme", "http://%A"),
            ("with a path", "%A/x"),
            ("with user info", "user@%A"),
            ("with user info and a password", "user:pw@%A"),
            ("with a query", "%A?x"),
            ("with a fragment", "%A#x"),
            ("with a backslash", "%A\\x"),
            ("with a space", "a b"),
            ("with a tab", "a\tb"),
            ("with a comma and a space", "a, b"),
            ("with a port in words", "a:http"),
            ("with two empty ports", "a::"),
            ("of an empty port alone", ":"),
            ("with port 0", "a:0"),
            ("with port 65536", "a:65536"),
            ("with port 99999", "a:99999"),
            ("with a signed port", "a:+80"),
            ("with two ports", "a:80:80"),
            ("with a port in hex", "a:0x50"),
            ("of a port alone", ":80"),
            ("in latin-1", "\xe9.example"),
            ("in UTF-8", "\xc3\xa9.example"),
            ("with a less-than sign", "<a>"),
            ("with a quote", '"a"'),
            ("with a bar", "a|b"),
            ("with a caret", "a^b"),
            ("with braces", "{a}"),
            ("with a bad escape", "a%zz"),
            ("with half an escape", "a%4"),
            ("of an unclosed bracket", "[::1"),
            ("of an unopened bracket", "::1]"),
            ("of an IPv6 address without brackets", "::1"),
            ("of brackets with a name", "[localhost]"),
            ("of empty brackets", "[]"),
            ("of brackets with an IPv4 address", "[127.0.0.1]"),
            ("with something behind the bracket", "[::1]x"),
        )
    ),
]  # fmt: skip

TARGETS = [
    row(f"target {name}", section, MUST, req(line=f"GET {target} HTTP/1.1"))
    for name, section, target in (
        ("with user info", "RFC 9110 4.2.4", "http://user@%A/x"),
        ("with user info and a password", "RFC 9110 4.2.4", "http://user:pw@%A/x"),
        ("with empty user info", "RFC 9110 4.2.4", "http://@%A/x"),
        ("with two ats", "RFC 9110 4.2.4", "http://a@b@%A/x"),
        ("with an at in a port", "RFC 9110 4.2.4", "http://%A:80@evil.example/x"),
        ("with an escaped at", "RFC 9110 4.2.4", "http://%A%%40evil.example\\@x/x"),
        ("without a host", "RFC 9110 4.2.1", "http:///x"),
        ("without anything behind the scheme", "RFC 9110 4.2.1", "http://"),
        ("of a port without a host", "RFC 9110 4.2.1", "http://:80/x"),
        ("with one slash", "RFC 9112 3.2.2", "http:/%A/x"),
        ("without slashes", "RFC 9112 3.2.2", "http:%A/x"),
        ("of another scheme", "RFC 9112 3.2.2", "ftp://%A/x"),
        ("of a file", "RFC 9112 3.2.2", "file:///etc/passwd"),
        ("of a gopher", "RFC 9112 3.2.2", "gopher://%A/x"),
        ("of a ws scheme", "RFC 9112 3.2.2", "ws://%A/x"),
        ("with an empty scheme", "RFC 9112 3.2.2", "://%A/x"),
        ("with a port in words", "RFC 9112 3.2.2", "http://a.example:http/x"),
        ("with port 0", "RFC 9112 3.2.2", "http://a.example:0/x"),
        ("with port 65536", "RFC 9112 3.2.2", "http://a.example:65536/x"),
        ("with two empty ports", "RFC 9112 3.2.2", "http://a.example::/x"),
        ("of an empty port alone", "RFC 9110 4.2.1", "http://:/x"),
        ("with a minus for a port", "RFC 9112 3.2.2", "http://a.example:-80/x"),
        ("of an authority alone", "RFC 9112 3.2", "%A"),
        ("of a name alone", "RFC 9112 3.2", "x"),
        ("of an asterisk on a GET", "RFC 9112 3.2.4", "*"),
        ("of an asterisk and a path", "RFC 9112 3.2.4", "*/x"),
        ("of a question mark", "RFC 9112 3.2", "?x"),
        ("of a backslash", "RFC 9112 3.2", "\\x"),
        ("with a backslash in the authority", "RFC 9112 3.2.2", "http://%A\\@evil.example/x"),
        ("with a space in the authority", "RFC 9112 3.2.2", "http://a b/x"),
        ("with a UTF-8 host", "RFC 9112 3.2.2", "http://\xc3\xa9.example/x"),
        ("with an unclosed bracket", "RFC 9112 3.2.2", "http://[::1/x"),
        ("with an IPv6 zone", "RFC 9112 3.2.2", "http://[fe80::1%25lo]/x"),
    )
] + [
    row(f"CONNECT {name}", "RFC 9110 9.3.6", MUST, message(f"CONNECT {target} HTTP/1.1", "Host: %A"))
    for name, target in (
        ("without a port", "localhost"),
        ("with an empty port", "localhost:"),
        ("of an IPv6 address with an empty port", "[::1]:"),
        ("with port 0", "localhost:0"),
        ("with port 65536", "localhost:65536"),
        ("with a port in words", "localhost:https"),
        ("in absolute form", "http://%A/"),
        ("in origin form", "/x"),
        ("with a path", "%A/x"),
        ("with user info", "user@%A"),
        ("of an asterisk", "*"),
        ("of a port alone", ":443"),
        ("of an IPv6 address without brackets", "::1:443"),
        ("of an IPv6 address without a port", "[::1]"),
    )
] + [
    row("CONNECT with a body", "RFC 9110 9.3.6", OURS,
        message("CONNECT %A HTTP/1.1", "Host: %A", CL, body=b"hello")),
    row("CONNECT with chunks", "RFC 9110 9.3.6", OURS,
        message("CONNECT %A HTTP/1.1", "Host: %A", TE, body=CHUNKS)),
    row("CONNECT with framing in conflict", "RFC 9112 6.3", MUST,
        message("CONNECT %A HTTP/1.1", "Host: %A", CL, TE, body=CHUNKS)),
]  # fmt: skip

SIZES = [
    row("a header of 128 KiB", "RFC 6585 5", SHOULD, req("X: " + "y" * 131072), 431),
    row("a header of 128 KiB in many fields", "RFC 6585 5", SHOULD,
        req(*(f"X-{n}: {'y' * 1000}" for n in range(128))), 431),
    row("a name of 128 KiB", "RFC 6585 5", SHOULD, req("X" * 131072 + ": y"), 431),
    row("a thousand fields", "RFC 6585 5", SHOULD, req(*(f"X-{n}: y" for n in range(1000))), 431),
    row("257 fields", "RFC 6585 5", OURS, req(*(f"X-{n}: y" for n in range(256))), 431),
    row("ten thousand empty fields", "RFC 6585 5", SHOULD, req(*("X:" for n in range(10000))), 431),
    row("one byte over 64 KiB", "RFC 6585 5", OURS,
        message("GET /x HTTP/1.1", "Host: h", "X: " + "y" * (65536 - 32)), 431),
    row("a Host of 70 KiB", "RFC 6585 5", SHOULD, host("a" * 71680), 400, 431),
]  # fmt: skip

OF_OUR_OWN = [
    row("X-Retry-Timeout that nobody can read", "contract 5", OURS, req("X-Retry-Timeout: soon"), 400),
]

CASES = LENGTHS + CODINGS + BODIES + OCTETS + FIELDS + LINES + HOSTS + TARGETS + SIZES
assert len(CASES) > 300


def filled(raw: bytes, upstream: Upstream) -> bytes:
    return raw.replace(b"%A", upstream.authority.encode()).replace(b"%%", b"%")


def at_lines(raw: bytes) -> list[bytes]:
    return re.findall(rb"[^\r\n]*[\r\n]|[^\r\n]+", raw)


def expect_refusal(app: Peer, statuses: tuple[int, ...]) -> None:
    answer = app.read_answer()
    assert answer.status in statuses, answer
    assert answer.whole
    assert answer.one("connection") == "close"
    assert answer.one("content-type") == "application/problem+json"
    assert (answer.one("proxy-status") or "").startswith("redrive; error=http_request_error")
    assert app.rest() == b""
    assert not app.broken


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_it_is_refused(case: Case, proxy: Proxy) -> None:
    template, statuses = case.facts
    assert isinstance(template, bytes)
    assert isinstance(statuses, tuple)
    for way in ("at once", "line by line", "octet by octet", "behind a good one"):
        if way != "octet by octet" or len(template) <= 2000:  # of longer ones their length is the point
            is_refused(template, statuses, way, proxy)


def is_refused(template: bytes, statuses: tuple[int, ...], way: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        raw = filled(template, upstream)
        resting = None
        if way == "at once":
            app.try_send(raw)
        elif way == "line by line":
            for line in at_lines(raw):
                app.try_send(line)
        elif way == "octet by octet":
            for at in range(len(raw)):
                if not app.try_send(raw[at : at + 1]):
                    break
        else:
            app.send(get(upstream, "/good") + raw)
            resting = upstream.accept()
            assert resting.read_head().startswith(b"GET /good HTTP/1.1\r\n")
            resting.send(reply(b"good"))
            assert app.read_answer().body == b"good"
        expect_refusal(app, statuses)
        if way in ("at once", "behind a good one"):
            proxy.fence(upstream, resting)


def test_what_is_ours_to_refuse_is_refused_too(proxy: Proxy) -> None:
    for case in OF_OUR_OWN:
        template, statuses = case.facts
        assert isinstance(template, bytes)
        assert isinstance(statuses, tuple)
        with Upstream() as upstream, proxy.app() as app:
            app.send(filled(template, upstream))
            assert app.read_answer().status in statuses
            proxy.fence(upstream)


@pytest.mark.parametrize("case", BODIES, ids=ids(BODIES))
def test_a_body_that_breaks_behind_its_head_is_refused_and_never_ends_upstream(case: Case, proxy: Proxy) -> None:
    """The head is known to have gone: what follows is cut off upstream, and the app is told (RFC 9112 section 8)."""
    template, _ = case.facts
    assert isinstance(template, bytes)
    with Upstream() as upstream, proxy.app() as app:
        head, mark, body = filled(template, upstream).partition(b"\r\n\r\n")
        app.send(head + mark)
        peer = upstream.accept()
        peer.read_head()
        app.try_send(body)
        answer = app.read_answer()
        assert answer.status == 400
        assert answer.one("connection") == "close"
        assert app.rest() == b""
        rest = peer.rest()
        assert not rest.endswith(b"0\r\n\r\n"), rest
        assert b"smuggled" not in rest
        assert b"\n0\r\n" not in b"\n" + rest
