"""Answers from upstream: what passes and how, what becomes 502, and what is seen to be broken (RFC 9112, 4 to 8).

A bad answer is played three times: at once, octet by octet, and followed by the end of the connection.
"""

from __future__ import annotations

from itertools import product

import pytest
from conformance_kit import (
    MAY,
    MUST,
    OK,
    OURS,
    SHOULD,
    Case,
    Message,
    Proxy,
    Upstream,
    chunked,
    get,
    ids,
    message,
    reply,
)

HELLO = b"hello"
CHUNKS = chunked(HELLO)
TE = "Transfer-Encoding: chunked"


def bad(name: str, section: str, level: str, raw: bytes) -> Case:
    return Case(name, section, level, (raw,))


def ans(*fields: str | bytes, line: str | bytes = "HTTP/1.1 200 OK", body: bytes = b"") -> bytes:
    return message(line, *fields, body=body)


BAD = [
    bad(f"Content-Length {name}", "RFC 9112 6.3", MUST, ans(f"Content-Length: {value}", body=HELLO))
    for name, value in (
        ("with a plus", "+5"),
        ("with a minus", "-5"),
        ("in hex", "0x5"),
        ("in words", "five"),
        ("empty", ""),
        ("with a space inside", "5 5"),
        ("list of different ones", "5, 6"),
        ("list with an empty member", "5,"),
        ("with a unit", "5 bytes"),
        ("with a decimal point", "5.0"),
        ("quoted", '"5"'),
        ("beyond 64 bits", "18446744073709551621"),
        ("of thirty digits", "5" * 30),
    )
] + [
    bad("Content-Length twice, different", "RFC 9112 6.3", MUST,
        ans("Content-Length: 5", "Content-Length: 6", body=HELLO)),
    bad("Content-Length good and bad", "RFC 9112 6.3", MUST, ans("Content-Length: 5", "Content-Length: x", body=HELLO)),
    bad("Content-Length good and empty", "RFC 9112 6.3", MUST, ans("Content-Length: 5", "Content-Length:", body=HELLO)),
    bad("Content-Length beside Transfer-Encoding", "RFC 9112 6.3", SHOULD, ans("Content-Length: 5", TE, body=CHUNKS)),
    bad("Transfer-Encoding beside Content-Length", "RFC 9112 6.3", SHOULD, ans(TE, "Content-Length: 5", body=CHUNKS)),
    bad("Transfer-Encoding in HTTP/1.0", "RFC 9112 6.1", MUST, ans(TE, line="HTTP/1.0 200 OK", body=CHUNKS)),
    *(
        bad(f"Transfer-Encoding {name}", "RFC 9112 6.1", OURS, ans(f"Transfer-Encoding: {value}", body=CHUNKS))
        for name, value in (
            ("gzip", "gzip"),
            ("gzip, chunked", "gzip, chunked"),
            ("identity", "identity"),
            ("chunked, gzip", "chunked, gzip"),
            ("chunked twice in one", "chunked, chunked"),
            ("xchunked", "xchunked"),
            ("with a parameter", "chunked;x=y"),
            ("empty", ""),
            ("with a comma", "chunked,"),
            ("quoted", '"chunked"'),
        )
    ),
    bad("Transfer-Encoding twice", "RFC 9112 6.1", OURS, ans(TE, TE, body=CHUNKS)),
    bad("Transfer-Encoding twice, the other identity", "RFC 9112 6.1", OURS,
        ans("Transfer-Encoding: identity", TE, body=CHUNKS)),
    *(
        bad(f"status line: {name}", "RFC 9112 4", MUST, ans("Content-Length: 5", line=line, body=HELLO))
        for name, line in (
            ("HTTP/2.0", "HTTP/2.0 200 OK"),
            ("HTTP/2", "HTTP/2 200 OK"),
            ("HTTP/0.9", "HTTP/0.9 200 OK"),
            ("HTTP/1.10", "HTTP/1.10 200 OK"),
            ("HTTP/1", "HTTP/1 200 OK"),
            ("lower case", "http/1.1 200 OK"),
            ("another protocol", "ICY 200 OK"),
            ("no version", "200 OK"),
            ("no status", "HTTP/1.1 OK"),
            ("nothing but a version", "HTTP/1.1"),
            ("a version and a space", "HTTP/1.1 "),
            ("two digits", "HTTP/1.1 20 OK"),
            ("four digits", "HTTP/1.1 2000 OK"),
            ("status 099", "HTTP/1.1 099 OK"),
            ("status 000", "HTTP/1.1 000 OK"),
            ("a signed status", "HTTP/1.1 +20 OK"),
            ("a negative status", "HTTP/1.1 -20 OK"),
            ("a status in hex", "HTTP/1.1 0xc8 OK"),
            ("a letter in the status", "HTTP/1.1 2O0 OK"),
            ("two spaces", "HTTP/1.1  200 OK"),
            ("a tab", "HTTP/1.1\t200 OK"),
            ("a space in front", " HTTP/1.1 200 OK"),
            ("a reason without a space", "HTTP/1.1 200OK"),
            ("a control byte in the reason", "HTTP/1.1 200 O\x01K"),
            ("a NUL in the reason", "HTTP/1.1 200 O\0K"),
            ("a bare CR in the reason", "HTTP/1.1 200 O\rK"),
        )
    ),
    bad("bytes that are no HTTP", "RFC 9112 4", MUST, b"\x15\x03\x01\x00\x02\x02\x0a"),
    bad("an HTTP/0.9 answer", "RFC 9112 2.3", MUST, b"<html>hello</html>\r\n\r\n"),
    bad("an SMTP greeting", "RFC 9112 4", MUST, b"220 mail.example ESMTP\r\n"),
    bad("an empty line in front", "RFC 9112 4", OURS, b"\r\n" + OK),
    bad("a request", "RFC 9112 4", MUST, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    bad("bare LFs", "RFC 9112 2.2", OURS, b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
    bad("a bare LF behind the status line", "RFC 9112 2.2", OURS, b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello"),
    bad("a bare LF in a field", "RFC 9112 2.2", OURS, ans("X: a\nContent-Length: 0", body=HELLO)),
    bad("a bare CR in a field", "RFC 9112 2.2", MUST, ans("X: a\rb", "Content-Length: 5", body=HELLO)),
    bad("a bare CR at a field's end", "RFC 9112 2.2", MUST, ans("X: a\r", "Content-Length: 5", body=HELLO)),
    bad("a NUL in a field", "RFC 9110 5.5", MUST, ans("X: a\0b", "Content-Length: 5", body=HELLO)),
    bad("a NUL in a name", "RFC 9110 5.1", MUST, ans("X\0: a", "Content-Length: 5", body=HELLO)),
    bad("a control byte in a field", "RFC 9110 5.5", SHOULD, ans("X: a\x1bb", "Content-Length: 5", body=HELLO)),
    bad("DEL in a field", "RFC 9110 5.5", SHOULD, ans("X: a\x7fb", "Content-Length: 5", body=HELLO)),
    bad("a fold", "RFC 9112 5.2", MUST, ans("X: a", " b", "Content-Length: 5", body=HELLO)),
    bad("a fold by a tab", "RFC 9112 5.2", MUST, ans("X: a", "\tb", "Content-Length: 5", body=HELLO)),
    bad("a folded Content-Length", "RFC 9112 5.2", MUST, ans("Content-Length:", " 5", body=HELLO)),
    bad("a space before a colon", "RFC 9112 5.1", MUST, ans("X : a", "Content-Length: 5", body=HELLO)),
    bad("a space before Content-Length's colon", "RFC 9112 5.1", MUST, ans("Content-Length : 5", body=HELLO)),
    bad("a space before Transfer-Encoding's colon", "RFC 9112 5.1", MUST,
        ans("Transfer-Encoding : chunked", body=CHUNKS)),
    bad("white space before the first field", "RFC 9112 2.2", MUST, ans(" X: a", "Content-Length: 5", body=HELLO)),
    bad("no colon", "RFC 9112 5", MUST, ans("X", "Content-Length: 5", body=HELLO)),
    bad("no name", "RFC 9110 5.1", MUST, ans(": x", "Content-Length: 5", body=HELLO)),
    bad("a space inside a name", "RFC 9110 5.1", MUST, ans("X Y: a", "Content-Length: 5", body=HELLO)),
    bad("a name beyond ASCII", "RFC 9110 5.1", MUST, ans("X\xe9: a", "Content-Length: 5", body=HELLO)),
    bad("Connection is no list", "RFC 9110 7.6.1", OURS, ans("Connection: close; x", "Content-Length: 5", body=HELLO)),
    bad("a head of 128 KiB", "RFC 9110 5.4", OURS, ans("X: " + "y" * 131072, "Content-Length: 5", body=HELLO)),
    bad("a thousand fields", "RFC 9110 5.4", OURS,
        ans(*(f"X-{n}: y" for n in range(1000)), "Content-Length: 5", body=HELLO)),
    bad("a reason of 70 KiB", "RFC 9110 5.4", OURS, ans("Content-Length: 5", line="HTTP/1.1 200 " + "y" * 71680)),
    bad("a 101 that nobody asked for", "RFC 9110 15.2.2", MUST,
        ans("Connection: upgrade", "Upgrade: websocket", line="HTTP/1.1 101 Switching Protocols")),
    *(
        bad(f"chunked, {name}", "RFC 9112 7.1", MUST, ans(TE, body=body))
        for name, body in (
            ("a size in no hex", b"g\r\nhello\r\n0\r\n\r\n"),
            ("a size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
            ("a signed size", b"+5\r\nhello\r\n0\r\n\r\n"),
            ("a size behind a space", b" 5\r\nhello\r\n0\r\n\r\n"),
            ("a size before a space", b"5 \r\nhello\r\n0\r\n\r\n"),
            ("an empty size", b"\r\nhello\r\n0\r\n\r\n"),
            ("a size beyond 64 bits", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
            ("a size of -1 in 64 bits", b"ffffffffffffffff\r\nhello"),
            ("a size that ends with LF", b"5\nhello\n0\n\n"),
            ("a chunk longer than its size", b"4\r\nhello\r\n0\r\n\r\n"),
            ("a chunk shorter than its size", b"6\r\nhello\r\n0\r\n\r\n"),
            ("an extension with a bare LF", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
            ("an extension of 5 KiB", b"5;" + b"a" * 5120 + b"\r\nhello\r\n0\r\n\r\n"),
            ("a folded trailer", b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n"),
            ("a trailer with a bare LF", b"5\r\nhello\r\n0\r\nX: a\nb\r\n\r\n"),
            ("a trailer with a NUL", b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n"),
            ("Content-Length as a trailer", b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"),
            ("Transfer-Encoding as a trailer", b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ("a body in the clear", b"hello, this is no chunk at all\r\n"),
        )
    ),
    *(
        bad(f"an interim answer: {name}", "RFC 9110 15.2", MUST, raw + OK)
        for name, raw in (
            ("a fold", b"HTTP/1.1 103 Early Hints\r\nX: a\r\n b\r\n\r\n"),
            ("a bare LF", b"HTTP/1.1 103 Early Hints\nX: a\n\n"),
            ("HTTP/2.0", b"HTTP/2.0 103 Early Hints\r\n\r\n"),
            ("with a bad length", b"HTTP/1.1 103 Early Hints\r\nContent-Length: x\r\n\r\n"),
            ("with content", b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello"),
        )
    ),
]  # fmt: skip


def is_bad_gateway(answer: Message) -> None:
    assert answer.status == 502, answer
    assert answer.one("content-type") == "application/problem+json"
    assert "error=" in (answer.one("proxy-status") or "")
    assert b"hello" not in answer.body


@pytest.mark.parametrize("case", BAD, ids=ids(BAD))
def test_a_bad_answer_becomes_502(case: Case, proxy: Proxy) -> None:
    (raw,) = case.facts
    assert isinstance(raw, bytes)
    for way in ("at once", "octet by octet", "and then the end", "on a resting connection"):
        if way != "octet by octet" or (len(raw) <= 2000 and "chunked, " not in case.name):
            becomes_502(raw, way, proxy)  # else its length is the point, or its head has gone by then


def becomes_502(raw: bytes, way: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        rested = proxy.settles(app, upstream) if way == "on a resting connection" else None
        app.send(get(upstream, "/bad"))
        peer = rested or upstream.accept()
        peer.read_head()
        if way == "octet by octet":
            for at in range(len(raw)):
                if not peer.try_send(raw[at : at + 1]):
                    break
        else:
            peer.try_send(raw)
        if way == "and then the end":
            peer.close()
        answer = app.read_answer()
        is_bad_gateway(answer)
        if way != "and then the end":
            peer.rest()  # the proxy has closed it
        app.send(get(upstream, "/next"))
        follow = upstream.accept()
        assert follow.read_head().startswith(b"GET /next ")
        follow.send(OK)
        assert app.read_answer().status == 200


INCOMPLETE = [
    Case("nothing", "RFC 9112 8", MUST, (b"",)),
    Case("half a status line", "RFC 9112 8", MUST, (b"HTTP/1.1 20",)),
    Case("a status line", "RFC 9112 8", MUST, (b"HTTP/1.1 200 OK\r\n",)),
    Case("half a field", "RFC 9112 8", MUST, (b"HTTP/1.1 200 OK\r\nContent-Le",)),
    Case("fields without the empty line", "RFC 9112 8", MUST, (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",)),
    Case("all but the last LF", "RFC 9112 8", MUST, (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r",)),
    Case("an interim answer alone", "RFC 9112 8", MUST, (b"HTTP/1.1 103 Early Hints\r\n\r\n",)),
    Case("100 alone", "RFC 9112 8", MUST, (b"HTTP/1.1 100 Continue\r\n\r\n",)),
]


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("case", INCOMPLETE, ids=ids(INCOMPLETE))
def test_a_head_that_is_cut_becomes_502(case: Case, how: str, proxy: Proxy) -> None:
    (raw,) = case.facts
    assert isinstance(raw, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, method="POST"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(raw)
        if how == "closed":
            peer.close()
        else:
            peer.reset()
        answer = app.read_answer()
        is_bad_gateway(answer)
        assert app.is_silent()  # the app's connection lives on


CUT = [
    Case("a length, nothing of the body", "RFC 9112 8", MUST, (ans("Content-Length: 10"), b"")),
    Case("a length, half of the body", "RFC 9112 8", MUST, (ans("Content-Length: 10"), HELLO)),
    Case("a length, all but one octet", "RFC 9112 8", MUST, (ans("Content-Length: 6"), HELLO)),
    Case("chunked, no chunk", "RFC 9112 8", MUST, (ans(TE), b"")),
    Case("chunked, half a size", "RFC 9112 8", MUST, (ans(TE), b"5")),
    Case("chunked, half a chunk", "RFC 9112 8", MUST, (ans(TE), b"a\r\nhello")),
    Case("chunked, a chunk", "RFC 9112 8", MUST, (ans(TE), b"5\r\nhello\r\n")),
    Case("chunked, a chunk without its line's end", "RFC 9112 8", MUST, (ans(TE), b"5\r\nhello")),
    Case("chunked, half a last chunk", "RFC 9112 8", MUST, (ans(TE), b"5\r\nhello\r\n0")),
    Case("chunked, no end of the trailers", "RFC 9112 8", MUST, (ans(TE), b"5\r\nhello\r\n0\r\n")),
    Case("chunked, half a trailer", "RFC 9112 8", MUST, (ans(TE), b"5\r\nhello\r\n0\r\nX: y\r\n")),
    Case("chunked, nonsense behind a chunk", "RFC 9112 7.1", MUST, (ans(TE), b"5\r\nhello\r\nnonsense\r\n")),
    Case("chunked, a chunk too long", "RFC 9112 7.1", MUST, (ans(TE), b"4\r\nhello\r\n")),
    Case("chunked, a bare LF", "RFC 9112 7.1", MUST, (ans(TE), b"5\r\nhello\n0\r\n\r\n")),
    Case("chunked, a bad trailer", "RFC 9112 7.1", MUST, (ans(TE), b"5\r\nhello\r\n0\r\nX : y\r\n\r\n")),
]


@pytest.mark.parametrize("case", CUT, ids=ids(CUT))
def test_a_body_that_is_cut_is_seen_to_be_cut(case: Case, proxy: Proxy) -> None:
    """In every framing, to every version: the app can't take what came for a whole answer."""
    head, begun = case.facts
    assert isinstance(head, bytes)
    assert isinstance(begun, bytes)
    for how, version, rests in product(("closed", "reset"), ("1.1", "1.0"), (False, True)):
        is_seen_to_be_cut(head, begun, how, version, rests, proxy)


def is_seen_to_be_cut(head: bytes, begun: bytes, how: str, version: str, rests: bool, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        rested = proxy.settles(app, upstream) if rests else None
        app.send(get(upstream, version=version))
        peer = rested or upstream.accept()
        peer.read_head()
        peer.send(head)
        first = app.read_head()  # it has gone on to the app
        assert first.startswith(b"HTTP/1.1 200")
        peer.try_send(begun)
        if how == "closed":
            peer.close()
        else:
            peer.reset()
        app.unread(first)
        answer = app.read_answer()
        assert not answer.whole, answer
        assert HELLO.startswith(answer.body[:5])
        app.rest()


def test_a_close_delimited_body_that_is_reset_is_seen_to_be_broken(proxy: Proxy) -> None:
    """RFC 9112 section 8: an end by a reset is no end; to HTTP/1.1 the last chunk is missing, to 1.0 there is a RST."""
    for version in ("1.1", "1.0"):
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream, version=version))
            peer = upstream.accept()
            peer.read_head()
            peer.send(ans(body=HELLO))
            app.unread(app.read_until(HELLO))
            peer.reset()
            assert not app.read_answer().whole


def good(name: str, section: str, level: str, raw: bytes, lines: list[str], body: bytes, line: str = "") -> Case:
    """An answer that passes: the field lines that the app gets, byte for byte, and its body."""
    return Case(name, section, level, (raw, lines, body, line or "HTTP/1.1 200 OK"))


CLOSED = [TE]  # how a body until the end of its connection reaches an HTTP/1.1 app
GOOD = [
    good("a length", "RFC 9112 6.2", MUST, reply(HELLO), ["Content-Length: 5"], HELLO),
    good("length 0", "RFC 9112 6.2", MUST, reply(b""), ["Content-Length: 0"], b""),
    good("a length with zeros in front", "RFC 9110 8.6", MUST, ans("Content-Length: 005", body=HELLO),
         ["Content-Length: 005"], HELLO),
    good("a length with white space", "RFC 9112 5.1", MUST, ans("Content-Length:  \t5 ", body=HELLO),
         ["Content-Length:  \t5 "], HELLO),
    good("a length without white space", "RFC 9112 5.1", MUST, ans("Content-Length:5", body=HELLO),
         ["Content-Length:5"], HELLO),
    good("equal lengths are merged", "RFC 9112 6.3", MUST,
         ans("Content-Length: 5", "content-length: 5", body=HELLO), ["Content-Length: 5"], HELLO),
    good("a list of equal lengths is merged", "RFC 9112 6.3", MUST,
         ans("Content-Length: 5, 5", body=HELLO), ["Content-Length: 5"], HELLO),
    good("chunked", "RFC 9112 7.1", MUST, ans(TE, body=CHUNKS), [TE], HELLO),
    *(
        good(f"chunked {name}", "RFC 9112 7", MUST, ans(field, "X: y", body=CHUNKS), [TE, "X: y"], HELLO)
        for name, field in (
            ("in capitals", "TRANSFER-ENCODING: CHUNKED"),
            ("in mixed case", "transfer-Encoding: Chunked"),
            ("behind a tab", "Transfer-Encoding:\tchunked"),
            ("before white space", "Transfer-Encoding: chunked \t"),
        )
    ),
    good("chunked behind no white space", "RFC 9112 7", MUST, ans("Transfer-Encoding:chunked", body=CHUNKS),
         ["Transfer-Encoding:chunked"], HELLO),
    good("chunked, many chunks", "RFC 9112 7.1", MUST, ans(TE, body=chunked(*(b"%d," % n for n in range(300)))), [TE],
         b"".join(b"%d," % n for n in range(300))),
    good("chunked, extensions are read over", "RFC 9112 7.1.1", MUST,
         ans(TE, body=b'5;a;b=c;d="e;f"\r\nhello\r\n0;x=y\r\n\r\n'), [TE], HELLO),
    good("chunked, white space before an extension", "RFC 9112 7.1.1", MUST,
         ans(TE, body=b"5 ; a = b\r\nhello\r\n0\t;x\r\n\r\n"), [TE], HELLO),
    good("chunked, sizes in both cases", "RFC 9112 7.1", MUST,
         ans(TE, body=b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), [TE], b"0123456789" * 2),
    good("chunked, zeros in front", "RFC 9112 7.1", MUST, ans(TE, body=b"00005\r\nhello\r\n000\r\n\r\n"), [TE], HELLO),
    good("chunked, nothing", "RFC 9112 7.1", MUST, ans(TE, body=b"0\r\n\r\n"), [TE], b""),
    good("chunked, line ends as data", "RFC 9112 7.1", MUST, ans(TE, body=chunked(b"\r\n0\r\n\r\n")), [TE],
         b"\r\n0\r\n\r\n"),
    good("until the end", "RFC 9112 6.3", MUST, ans(body=HELLO), CLOSED, HELLO),
    good("until the end, nothing", "RFC 9112 6.3", MUST, ans(), CLOSED, b""),
    good("until the end, close", "RFC 9112 6.3", MUST, ans("Connection: close", body=HELLO), CLOSED, HELLO),
    good("HTTP/1.0 with a length", "RFC 9112 2.3", MUST, reply(HELLO, version="1.0"), ["Content-Length: 5"], HELLO),
    good("HTTP/1.0 until the end", "RFC 9112 6.3", MUST, ans(line="HTTP/1.0 200 OK", body=HELLO), CLOSED, HELLO),
    good("HTTP/1.0 kept alive", "RFC 9112 9.3", MUST, reply(HELLO, "Connection: keep-alive", version="1.0"),
         ["Content-Length: 5"], HELLO),
    good("HTTP/1.2", "RFC 9110 2.5", MUST, reply(HELLO, version="1.2"), ["Content-Length: 5"], HELLO),
    good("HTTP/1.9", "RFC 9110 2.5", MUST, reply(HELLO, version="1.9"), ["Content-Length: 5"], HELLO),
    good("no reason", "RFC 9112 4", MUST, reply(HELLO, status="200 "), ["Content-Length: 5"], HELLO, "HTTP/1.1 200 "),
    good("no space behind the status", "RFC 9112 4", MUST, reply(HELLO, status="200"), ["Content-Length: 5"], HELLO,
         "HTTP/1.1 200 "),
    good("a long reason", "RFC 9112 4", MUST, reply(HELLO, status="200 A B\tC"), ["Content-Length: 5"], HELLO,
         "HTTP/1.1 200 A B\tC"),
    good("a reason beyond ASCII", "RFC 9112 4", MUST, reply(HELLO, status="200 D\xe9j\xe0"), ["Content-Length: 5"],
         HELLO, "HTTP/1.1 200 D\xe9j\xe0"),
    *(
        good(f"status {status}", "RFC 9110 15", MUST, reply(HELLO, status=status), ["Content-Length: 5"], HELLO,
             f"HTTP/1.1 {status}")
        for status in ("201 Created", "206 Partial Content", "207 Multi-Status", "218 This Is Fine", "299 X",
                       "301 Moved", "302 Found", "307 T", "308 P", "399 X", "400 Bad", "401 Unauthorized", "403 F",
                       "404 Not Found", "405 M", "407 P", "409 C", "410 Gone", "412 P", "416 R", "418 Teapot", "422 U",
                       "426 U", "451 L", "499 X", "500 I", "501 N", "505 V", "511 N", "599 X", "600 X", "777 X",
                       "999 X")
    ),
    good("205 without content", "RFC 9110 15.3.6", MUST, reply(b"", status="205 Reset Content"), ["Content-Length: 0"],
         b"", "HTTP/1.1 205 Reset Content"),
    good("a Location", "RFC 9110 10.2.2", MUST, reply(b"", "Location: /x//../y?a|b#c", status="302 Found"),
         ["Location: /x//../y?a|b#c", "Content-Length: 0"], b"", "HTTP/1.1 302 Found"),
    good("repeats keep their order", "RFC 9110 5.3", MUST,
         reply(HELLO, "Set-Cookie: a=1", "X: 1", "Set-Cookie: b=2", "x: 2", "SET-COOKIE: c=3"),
         ["Set-Cookie: a=1", "X: 1", "Set-Cookie: b=2", "x: 2", "SET-COOKIE: c=3", "Content-Length: 5"], HELLO),
    good("case and white space are kept", "RFC 9110 5.1", MUST, reply(HELLO, "x-LoWeR:  a \t b  ", "X-UP:c"),
         ["x-LoWeR:  a \t b  ", "X-UP:c", "Content-Length: 5"], HELLO),
    good("empty values", "RFC 9110 5.5", MUST, reply(HELLO, "X:", "Y: ", "Z:\t"),
         ["X:", "Y: ", "Z:\t", "Content-Length: 5"], HELLO),
    good("values beyond ASCII", "RFC 9110 5.5", MUST, reply(HELLO, "X: \x80\xff\xc3\xa9"),
         ["X: \x80\xff\xc3\xa9", "Content-Length: 5"], HELLO),
    good("odd names", "RFC 9110 5.1", MUST, reply(HELLO, "!#$%&'*+-.^_`|~09: x", "_: y"),
         ["!#$%&'*+-.^_`|~09: x", "_: y", "Content-Length: 5"], HELLO),
    good("Connection and what it names", "RFC 9110 7.6.1", MUST,
         reply(HELLO, "Connection: X-Hop, x-two", "X-Hop: 1", "X-TWO: 2", "X-End: 3", "x-hop: 4"),
         ["X-End: 3", "Content-Length: 5"], HELLO),
    good("two Connection fields", "RFC 9110 7.6.1", MUST,
         reply(HELLO, "Connection: X-Hop", "X-Hop: 1", "connection: X-Two", "X-Two: 2"), ["Content-Length: 5"], HELLO),
    good("Connection names the length", "RFC 9110 7.6.1", MUST, reply(HELLO, "Connection: Content-Length"),
         ["Content-Length: 5"], HELLO),
    good("Connection names the coding", "RFC 9110 7.6.1", MUST,
         ans("Connection: Transfer-Encoding", TE, body=CHUNKS), [TE], HELLO),
    good("Connection with empty members", "RFC 9110 5.6.1", MUST, reply(HELLO, "Connection: , ,X-Hop,", "X-Hop: 1"),
         ["Content-Length: 5"], HELLO),
    good("Keep-Alive and Proxy-Connection", "RFC 9110 7.6.1", SHOULD,
         reply(HELLO, "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "X: y"), ["X: y", "Content-Length: 5"],
         HELLO),
    good("TE and Upgrade", "RFC 9110 7.6.1", SHOULD, reply(HELLO, "TE: trailers", "Upgrade: h2c"),
         ["Content-Length: 5"], HELLO),
    good("Proxy-Authenticate", "RFC 9110 11.7.1", OURS,
         reply(HELLO, 'Proxy-Authenticate: Basic realm="x"', status="407 P"),
         ['Proxy-Authenticate: Basic realm="x"', "Content-Length: 5"], HELLO, "HTTP/1.1 407 P"),
    good("encodings are not decoded", "RFC 9110 7.7", MUST,
         reply(b"\x1f\x8b\x08 not really", "Content-Encoding: gzip", "ETag: W/\"x\"", "Vary: *"),
         ["Content-Encoding: gzip", "ETag: W/\"x\"", "Vary: *", "Content-Length: 14"], b"\x1f\x8b\x08 not really"),
    good("an unknown encoding", "RFC 9110 7.7", MUST, reply(HELLO, "Content-Encoding: cow, gzip"),
         ["Content-Encoding: cow, gzip", "Content-Length: 5"], HELLO),
    good("Trailer stays", "RFC 9110 6.6.2", MUST, ans("Trailer: X-Sum", TE, body=CHUNKS), ["Trailer: X-Sum", TE],
         HELLO),
    good("64 KiB in a field less a little", "RFC 9110 5.4", OURS, reply(HELLO, "X: " + "y" * 60000),
         ["X: " + "y" * 60000, "Content-Length: 5"], HELLO),
    good("250 fields", "RFC 9110 5.4", OURS, reply(HELLO, *(f"X-{n}: y" for n in range(250))),
         [*(f"X-{n}: y" for n in range(250)), "Content-Length: 5"], HELLO),
    good("a megabyte", "RFC 9112 6.2", MUST, reply(bytes(range(256)) * 4096), ["Content-Length: 1048576"],
         bytes(range(256)) * 4096),
    good("a megabyte until the end", "RFC 9112 6.3", MUST, ans(body=bytes(range(256)) * 4096), CLOSED,
         bytes(range(256)) * 4096),
]  # fmt: skip

_OURS = ("via", "x-attempt-count", "date")


def without_ours(answer: Message) -> list[str]:
    lines = [line.decode("latin-1") for line in answer.lines]
    told = "Proxy-Status: redrive; "  # why a failure was not retried
    return [line for line in lines if line.partition(":")[0].lower() not in _OURS and not line.startswith(told)]


@pytest.mark.parametrize("case", GOOD, ids=ids(GOOD))
def test_an_answer_passes(case: Case, proxy: Proxy) -> None:
    raw = case.facts[0]
    assert isinstance(raw, bytes)
    for way in ("at once", "octet by octet", "on a resting connection"):
        if way != "octet by octet" or len(raw) <= 2000:
            passes(case, way, proxy)


def passes(case: Case, way: str, proxy: Proxy) -> None:
    raw, lines, body, line = case.facts
    assert isinstance(raw, bytes)
    assert isinstance(line, str)
    with Upstream() as upstream, proxy.app() as app:
        rested = proxy.settles(app, upstream) if way == "on a resting connection" else None
        app.send(get(upstream))
        peer = rested or upstream.accept()
        peer.read_head()
        if way == "octet by octet":
            peer.send(*(raw[at : at + 1] for at in range(len(raw))))
        else:
            peer.send(raw)
        if "length" not in raw.partition(b"\r\n\r\n")[0].decode("latin-1").lower() and b"0\r\n\r\n" not in raw[-5:]:
            peer.close()
        answer = app.read_answer()
        assert answer.whole
        assert answer.line.decode("latin-1") == line
        assert without_ours(answer) == lines
        assert answer.body == body
        version = "1.0" if raw.startswith(b"HTTP/1.0") else "1.1"
        via = answer.one("via") or ""
        assert via.startswith(f"{version} redrive-")
        assert answer.one("x-attempt-count") == "1"
        assert answer.one("date")
        app.send(get(upstream, "/next"))  # the app's connection lives on
        if (case.name.startswith("HTTP/1.0") and "kept" not in case.name) or peer.sock.fileno() < 0:
            peer = upstream.accept()
        assert peer.read_head().startswith(b"GET /next ")


def test_fields_of_its_own_are_replaced(proxy: Proxy) -> None:
    """Contract section 5: the upstream's own count is removed; Date and Via that came are kept."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        date = "Date: Tue, 15 Nov 1994 08:12:31 GMT"
        peer.send(reply(b"", "X-Attempt-Count: 7", date, "Via: 1.1 first", "Server: x"))
        answer = app.read_answer()
        assert answer.all("x-attempt-count") == ["1"]
        assert answer.all("date") == ["Tue, 15 Nov 1994 08:12:31 GMT"]
        assert answer.all("via")[0] == "1.1 first"
        assert len(answer.all("via")) == 2
        assert answer.all("server") == ["x"]


def test_a_date_of_the_hop_alone_is_replaced(proxy: Proxy) -> None:
    """RFC 9110 section 7.6.1 MUST: what Connection names is cut; section 6.6.1 MUST: what has no Date gets one."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        peer.send(reply(b"", "Connection: Date", "Date: Tue, 15 Nov 1994 08:12:31 GMT"))
        date = app.read_answer().one("date")
        assert date is not None
        assert date != "Tue, 15 Nov 1994 08:12:31 GMT"


NO_BODY = [
    Case("HEAD with a length", "RFC 9112 6.3", MUST, ("HEAD", reply(b"")[:-5] + b"5\r\n\r\n", ["Content-Length: 5"])),
    Case("HEAD with chunked", "RFC 9112 6.3", MUST, ("HEAD", ans(TE), [TE])),
    Case("HEAD with neither", "RFC 9112 6.3", MUST, ("HEAD", ans("X: y"), ["X: y"])),
    Case("HEAD, 404 with a length", "RFC 9112 6.3", MUST,
         ("HEAD", ans("Content-Length: 99", line="HTTP/1.1 404 N"), ["Content-Length: 99"])),
    Case("204", "RFC 9112 6.3", MUST, ("GET", ans("X: y", line="HTTP/1.1 204 No Content"), ["X: y"])),
    Case("204 with a length", "RFC 9110 8.6", MUST,
         ("GET", ans("Content-Length: 0", "X: y", line="HTTP/1.1 204 No Content"), ["X: y"])),
    Case("204 with length 5", "RFC 9110 8.6", MUST,
         ("GET", ans("Content-Length: 5", line="HTTP/1.1 204 No Content"), [])),
    Case("204 with chunked", "RFC 9112 6.1", MUST, ("GET", ans(TE, line="HTTP/1.1 204 No Content"), [])),
    Case("204 to a POST", "RFC 9112 6.3", MUST, ("POST", ans(line="HTTP/1.1 204 No Content"), [])),
    Case("304", "RFC 9112 6.3", MUST, ("GET", ans("ETag: x", line="HTTP/1.1 304 Not Modified"), ["ETag: x"])),
    Case("304 with a length", "RFC 9112 6.3", MUST,
         ("GET", ans("Content-Length: 999", line="HTTP/1.1 304 Not Modified"), ["Content-Length: 999"])),
    Case("304 with chunked", "RFC 9112 6.3", MUST, ("GET", ans(TE, line="HTTP/1.1 304 Not Modified"), [TE])),
    Case("304 to HEAD", "RFC 9112 6.3", MUST, ("HEAD", ans(line="HTTP/1.1 304 Not Modified"), [])),
]  # fmt: skip


@pytest.mark.parametrize("case", NO_BODY, ids=ids(NO_BODY))
def test_an_answer_without_a_body_ends_with_its_head(case: Case, proxy: Proxy) -> None:
    """And both connections can be used again at once."""
    method, raw, lines = case.facts
    assert isinstance(method, str)
    assert isinstance(raw, bytes)
    with Upstream() as upstream, proxy.app() as app:
        for _ in range(2):
            app.send(get(upstream, method=method))
            peer = peer if _ else upstream.accept()  # noqa: F821  the same one, the second time
            peer.read_head()
            peer.send(raw)
            answer = app.read_answer("HEAD")
            assert without_ours(answer) == lines
            assert app.is_silent()
        assert upstream.untouched


@pytest.mark.parametrize("case", NO_BODY, ids=ids(NO_BODY))
def test_what_follows_an_answer_without_a_body_is_never_an_answer(case: Case, proxy: Proxy) -> None:
    """RFC 9112 section 9.2 and 11.1: response splitting through a body that should not be there."""
    method, raw, _ = case.facts
    assert isinstance(method, str)
    assert isinstance(raw, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, method=method))
        peer = upstream.accept()
        peer.read_head()
        peer.send(raw + reply(b"evil"))
        app.read_answer("HEAD")
        assert peer.rest() == b""  # that connection is not used again
        app.send(get(upstream, "/next"))
        other = upstream.accept()
        other.read_head()
        other.send(reply(b"good"))
        assert app.read_answer().body == b"good"


BEHIND = [
    Case("an answer", "RFC 9112 9.2", MUST, (reply(b"evil"),)),
    Case("an octet", "RFC 9112 9.2", MUST, (b"x",)),
    Case("an empty line", "RFC 9112 9.2", MAY, (b"\r\n",)),
    Case("an interim answer", "RFC 9112 9.2", MUST, (b"HTTP/1.1 103 Early Hints\r\n\r\n",)),
    Case("a 408 that servers send before they close", "RFC 9110 15.5.9", SHOULD,
         (reply(b"", "Connection: close", status="408 Request Timeout"),)),
]  # fmt: skip


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("when", ["with it", "later"])
@pytest.mark.parametrize("case", BEHIND, ids=ids(BEHIND))
def test_bytes_behind_an_answer_are_nobodys_answer(case: Case, when: str, framing: str, proxy: Proxy) -> None:
    (extra,) = case.facts
    assert isinstance(extra, bytes)
    whole = reply(HELLO) if framing == "length" else ans(TE, body=CHUNKS)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        if when == "with it":
            peer.send(whole + extra)
            assert app.read_answer().body == HELLO
        else:
            peer.send(whole)
            assert app.read_answer().body == HELLO
            peer.send(extra)
        assert peer.rest() == b""
        app.send(get(upstream, "/next"))
        other = upstream.accept()
        other.read_head()
        other.send(reply(b"good"))
        assert app.read_answer().body == b"good"


def test_an_answer_before_its_request_is_none(proxy: Proxy) -> None:
    """RFC 9112 section 9.2: what comes on a connection with no request outstanding is never an answer."""
    with Upstream() as upstream, proxy.app() as app:
        resting = proxy.settles(app, upstream)
        resting.send(reply(b"poison"))
        assert resting.rest() == b""
        app.send(get(upstream, method="POST"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(reply(b"good"))
        assert app.read_answer().body == b"good"
