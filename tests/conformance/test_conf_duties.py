"""What a proxy changes in a request, and what it must not touch (RFC 9110 sections 5, 7 and 10, RFC 9112 section 3).

Each row says which field lines the upstream gets, byte for byte and in order; the proxy's own (`X-Attempt-Count`,
`Via`) follow them and are checked apart. `%A` stands for the upstream's authority.
"""

from __future__ import annotations

import re

import pytest
from conformance_kit import MUST, OK, OURS, SHOULD, Case, Message, Proxy, Upstream, chunked, get, ids, message, reply

H = "Host: %A"


def passes(name: str, section: str, level: str, raw: bytes, line: str, lines: list[str], body: bytes = b"") -> Case:
    return Case(name, section, level, (raw, line, lines, body))


def get_with(*fields: str, line: str = "GET http://%A/x HTTP/1.1", body: bytes = b"") -> bytes:
    return message(line, H, *fields, body=body)


def target(name: str, section: str, path: str, sent: str | None = None, method: str = "GET") -> Case:
    sent = path if sent is None else sent
    raw = message(f"{method} http://%A{path} HTTP/1.1", H)
    return passes(f"target {name}", section, MUST, raw, f"{method} {sent} HTTP/1.1", [H])


TARGETS = [
    target(name, "RFC 9110 7.7", path)
    for name, path in (
        ("of a slash", "/"),
        ("with %2F", "/a%2Fb"),
        ("with %2f", "/a%2fb"),
        ("with %2E%2E", "/%2E%2E/x"),
        ("with %00", "/%00"),
        ("with %0d%0a", "/%0d%0aX:%20y"),
        ("with %41 where A would do", "/%41%7e"),
        ("with %zz", "/%zz%"),
        ("with two slashes", "//"),
        ("with two slashes and a name", "//evil.example/x"),
        ("with slashes inside", "/a//b///c"),
        ("with dot segments", "/a/./b/../c"),
        ("that climbs", "/../../etc/passwd"),
        ("with a dot at its end", "/a/."),
        ("with an empty query", "/a?"),
        ("with a query", "/a?b=c&d=%20e"),
        ("with two question marks", "/a?b?c"),
        ("with slashes in the query", "/a?b=//c/../d"),
        ("with a bar", "/a|b"),
        ("with a caret", "/a^b"),
        ("with a backtick", "/a`b"),
        ("with braces", "/{a}"),
        ("with brackets", "/a[0]?b[]=1"),
        ("with angles", "/<a>"),
        ("with a quote", '/"a"'),
        ("with single quotes", "/'a'"),
        ("with a backslash", "/a\\b"),
        ("with a semicolon", "/a;b=c;d"),
        ("with an at", "/@user"),
        ("with a colon", "/a:b"),
        ("with a URL in it", "/http://other.example/x?y"),
        ("with a plus and stars", "/a+b*c,d!e$f"),
        ("with a tilde", "/~user"),
        ("in UTF-8", "/\xc3\xa9\xe2\x82\xac"),
        ("in latin-1", "/\xe9\xff\x80"),
        ("in UTF-8 in the query", "/?q=\xc3\xa9"),
        ("with a trailing slash", "/a/"),
        ("of 8000 octets", "/" + "x" * 7999),
        ("of 60000 octets", "/" + "x" * 59999),
    )
] + [
    target("without a path", "RFC 9112 3.2.1", "", "/"),
    target("with a query alone", "RFC 9112 3.2.1", "?a=b/c", "/?a=b/c"),
    target("with an empty query alone", "RFC 9112 3.2.1", "?", "/?"),
    target("OPTIONS without a path", "RFC 9112 3.2.4", "", "*", "OPTIONS"),
    target("OPTIONS of a slash", "RFC 9112 3.2.4", "/", "/", "OPTIONS"),
    target("OPTIONS with a query alone", "RFC 9112 3.2.4", "?x", "/?x", "OPTIONS"),
    target("OPTIONS of a path", "RFC 9112 3.2.4", "/x", "/x", "OPTIONS"),
    passes("target with its scheme in capitals", "RFC 9110 4.2.3", MUST, message("GET HTTP://%A/x HTTP/1.1", H),
           "GET /x HTTP/1.1", [H]),
]  # fmt: skip

METHODS = [
    passes(f"method {method}", "RFC 9110 9.1", MUST, get_with(line=f"{method} http://%A/x HTTP/1.1"),
           f"{method} /x HTTP/1.1", [H])
    for method in ("GET", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "MKCOL", "PURGE", "BREW", "get", "Get",
                   "QUERY", "PRI", "X", "M-SEARCH", "!#$%&'*+-.^_`|~0aZ", "M" * 64)
] + [
    passes(f"{method} with a body", "RFC 9110 9.3", MUST,
           get_with("Content-Length: 5", line=f"{method} http://%A/x HTTP/1.1", body=b"hello"),
           f"{method} /x HTTP/1.1", [H, "Content-Length: 5"], b"hello")
    for method in ("GET", "DELETE", "OPTIONS", "POST", "PUT", "PATCH", "HEAD", "TRACE", "PROPFIND", "QUERY", "FOO")
] + [
    passes(f"{method} with chunks", "RFC 9112 7.1", MUST,
           get_with("Transfer-Encoding: chunked", line=f"{method} http://%A/x HTTP/1.1", body=chunked(b"hel", b"lo")),
           f"{method} /x HTTP/1.1", [H, "Transfer-Encoding: chunked"], b"hello")
    for method in ("GET", "DELETE", "POST", "PUT", "FOO")
]  # fmt: skip

POST = "POST http://%A/x HTTP/1.1"
TE = "Transfer-Encoding: chunked"


def body(name: str, fields: list[str], raw: bytes, sent: bytes, lines: list[str] | None = None) -> Case:
    return passes(name, "RFC 9112 6.3", MUST, get_with(*fields, line=POST, body=raw), "POST /x HTTP/1.1",
                  [H, *(fields if lines is None else lines)], sent)  # fmt: skip


BODIES = [
    body("a length", ["Content-Length: 5"], b"hello", b"hello"),
    body("length 0", ["Content-Length: 0"], b"", b""),
    body("no length at all", [], b"", b""),
    body("a length with zeros in front", ["Content-Length: 0005"], b"hello", b"hello"),
    body("a length with white space", ["Content-Length:  5 \t"], b"hello", b"hello"),
    body("line ends in a body", ["Content-Length: 4"], b"\r\n\r\n", b"\r\n\r\n"),
    body("a request in a body", ["Content-Length: 33"], b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"[:33],
         b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"[:33]),
    body("every octet", ["Content-Length: 256"], bytes(range(256)), bytes(range(256))),
    body("300 KiB", ["Content-Length: 307200"], bytes(range(256)) * 1200, bytes(range(256)) * 1200),
    body("a compressed one", ["Content-Encoding: gzip", "Content-Length: 4"], b"\x1f\x8b\x08\0", b"\x1f\x8b\x08\0"),
    body("one chunk", [TE], chunked(b"hello"), b"hello"),
    body("many chunks", [TE], chunked(*(b"%d" % n for n in range(200))), b"".join(b"%d" % n for n in range(200))),
    body("no chunk", [TE], chunked(), b""),
    body("chunks with zeros in front", [TE], b"0005\r\nhello\r\n000\r\n\r\n", b"hello"),
    body("chunks with extensions", [TE], b'5;a="b;c";d\r\nhello\r\n0;e\r\n\r\n', b"hello"),
    body("chunks with white space before an extension", [TE], b"5 ;a\r\nhello\r\n0\t; b = c\r\n\r\n", b"hello"),
    body("chunks with line ends for data", [TE], chunked(b"\r\n0\r\n\r\n", b"x"), b"\r\n0\r\n\r\nx"),
    body("a chunk of 300 KiB", [TE], chunked(b"x" * 307200), b"x" * 307200),
    body("chunked in capitals", ["TRANSFER-ENCODING: CHUNKED"], chunked(b"hello"), b"hello", [TE]),
    body("chunked in mixed case", ["transfer-encoding: cHuNkEd"], chunked(b"hello"), b"hello", [TE]),
    body("chunked behind a tab", ["Transfer-Encoding:\tchunked"], chunked(b"hello"), b"hello", [TE]),
    body("chunked before white space", ["Transfer-Encoding: chunked\t "], chunked(b"hello"), b"hello", [TE]),
]  # fmt: skip

FIELDS = [
    passes(name, section, level, get_with(*came), "GET /x HTTP/1.1", [H, *left])
    for name, section, level, came, left in (
        ("order and case are kept", "RFC 9110 5.3", MUST, ("b: 1", "A: 2", "b: 3", "B: 4"),
         ("b: 1", "A: 2", "b: 3", "B: 4")),
        ("white space is kept", "RFC 9110 5.5", MUST, ("X:  a \t b  ", "Y:c"), ("X:  a \t b  ", "Y:c")),
        ("empty values", "RFC 9110 5.5", MUST, ("X:", "Y: "), ("X:", "Y: ")),
        ("values beyond ASCII", "RFC 9110 5.5", MUST, ("X: \xc3\xa9\xff",), ("X: \xc3\xa9\xff",)),
        ("odd names", "RFC 9110 5.1", MUST, ("!#$%&'*+-.^_`|~: x", "_u: y"), ("!#$%&'*+-.^_`|~: x", "_u: y")),
        ("unknown fields", "RFC 9110 5.1", MUST, ("X-Unknown: 1", "Quux: 2"), ("X-Unknown: 1", "Quux: 2")),
        ("Authorization", "RFC 9110 11.6.2", MUST, ("Authorization: Basic eDp5",), ("Authorization: Basic eDp5",)),
        ("cookies", "RFC 9110 5.3", MUST, ("Cookie: a=1", "Cookie: b=2"), ("Cookie: a=1", "Cookie: b=2")),
        ("Accept-Encoding", "RFC 9110 7.7", MUST, ("Accept-Encoding: br;q=1.0, *;q=0",),
         ("Accept-Encoding: br;q=1.0, *;q=0",)),
        ("conditions", "RFC 9110 13.2.1", MUST, ('If-Match: "x"', "If-Range: y", "Range: bytes=0-"),
         ('If-Match: "x"', "If-Range: y", "Range: bytes=0-")),
        ("Connection: close", "RFC 9110 7.6.1", MUST, ("Connection: close", "X: y"), ("X: y",)),
        ("Connection: keep-alive", "RFC 9110 7.6.1", MUST, ("Connection: keep-alive", "X: y"), ("X: y",)),
        ("Connection names a field", "RFC 9110 7.6.1", MUST, ("Connection: X-Hop", "X-Hop: 1", "X: y"), ("X: y",)),
        ("Connection names a field in another case", "RFC 9110 7.6.1", MUST, ("Connection: x-HOP", "X-hop: 1"), ()),
        ("Connection names what comes before it", "RFC 9110 7.6.1", MUST, ("X-Hop: 1", "Connection: X-Hop"), ()),
        ("Connection names two", "RFC 9110 7.6.1", MUST, ("Connection: X-A,X-B", "X-B: 1", "X: y", "X-A: 2"),
         ("X: y",)),
        ("Connection names a repeated field", "RFC 9110 7.6.1", MUST, ("Connection: X-A", "X-A: 1", "X-A: 2"), ()),
        ("Connection twice", "RFC 9110 7.6.1", MUST, ("Connection: X-A", "Connection: X-B", "X-B: 1", "X-A: 2"), ()),
        ("Connection with empty members", "RFC 9110 5.6.1", MUST, ("Connection: ,, X-A ,", "X-A: 1"), ()),
        ("Connection is empty", "RFC 9110 7.6.1", MUST, ("Connection:", "X: y"), ("X: y",)),
        ("Connection names nothing that came", "RFC 9110 7.6.1", MUST, ("Connection: X-A", "X-AB: 1"), ("X-AB: 1",)),
        ("Connection names Cookie", "RFC 9110 7.6.1", MUST, ("Connection: Cookie", "Cookie: a=b"), ()),
        ("Connection names Host", "RFC 9112 3.2", MUST, ("Connection: Host", "X: y"), ("X: y",)),
        ("Connection names the length", "RFC 9112 6.3", MUST, ("Connection: Content-Length", "Content-Length: 0"),
         ("Content-Length: 0",)),
        ("Connection names Via", "RFC 9110 7.6.3", MUST, ("Connection: Via", "Via: 1.1 a"), ("Via: 1.1 a",)),
        ("Connection names our count", "contract 5", OURS, ("Connection: X-Attempt-Count",), ()),
        ("Connection, twenty names", "RFC 9110 7.6.1", MUST,
         ("Connection: " + ", ".join(f"X-{n}" for n in range(20)), *(f"X-{n}: y" for n in range(21))), ("X-20: y",)),
        ("Keep-Alive", "RFC 9110 7.6.1", SHOULD, ("Keep-Alive: timeout=5",), ()),
        ("Proxy-Connection", "RFC 9110 7.6.1", SHOULD, ("Proxy-Connection: keep-alive",), ()),
        ("Proxy-Connection: close", "RFC 9110 7.6.1", SHOULD, ("Proxy-Connection: close",), ()),
        ("Proxy-Authorization", "RFC 9110 11.7.2", OURS, ("Proxy-Authorization: Basic eDp5", "X: y"), ("X: y",)),
        ("Proxy-* of another name", "RFC 9110 5.1", MUST, ("Proxy-Foo: 1",), ("Proxy-Foo: 1",)),
        ("TE: trailers, unnamed", "RFC 9110 10.1.4", MUST, ("TE: trailers",),
         ("TE: trailers", "Connection: TE")),
        ("TE: trailers", "RFC 9110 10.1.4", MUST, ("TE: trailers", "Connection: TE"),
         ("TE: trailers", "Connection: TE")),
        ("TE: gzip", "RFC 9110 7.6.1", SHOULD, ("TE: gzip", "Connection: TE", "X: y"), ("X: y",)),
        ("TE: gzip and trailers", "RFC 9110 10.1.4", MUST, ("TE: gzip;q=0.5, trailers", "Connection: TE"),
         ("TE: trailers", "Connection: TE")),
        ("TE: chunked", "RFC 9112 7.4", MUST, ("TE: chunked", "Connection: TE"), ()),
        ("TE is empty", "RFC 9110 10.1.4", SHOULD, ("TE:", "Connection: TE"), ()),
        ("Trailer", "RFC 9110 6.6.2", SHOULD, ("Trailer: X-Sum",), ("Trailer: X-Sum",)),
        ("Upgrade that Connection does not name", "RFC 9110 7.8", MUST, ("Upgrade: websocket",), ()),
        ("Upgrade: h2c", "contract 6", OURS, ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
         "HTTP2-Settings: AAMA"), ()),
        ("Upgrade", "RFC 9110 7.8", SHOULD, ("Connection: Upgrade", "Upgrade: foo/2"),
         ("Connection: Upgrade", "Upgrade: foo/2")),
        ("Upgrade with close", "RFC 9110 7.8", SHOULD, ("Connection: close, Upgrade", "Upgrade: foo"),
         ("Connection: Upgrade", "Upgrade: foo")),
        ("Via of others", "RFC 9110 7.6.3", MUST, ("Via: 1.0 a, 1.1 b (c)", "via: 1.1 d"),
         ("Via: 1.0 a, 1.1 b (c)", "via: 1.1 d")),
        ("Via of another redrive", "contract 6", OURS, ("Via: 1.1 redrive-00000000",),
         ("Via: 1.1 redrive-00000000",)),
        ("Max-Forwards on GET", "RFC 9110 7.6.2", MUST, ("Max-Forwards: 0",), ("Max-Forwards: 0",)),
        ("Expect of something else", "RFC 9110 10.1.1", OURS, ("Expect: tea",), ("Expect: tea",)),
        ("our own are never forwarded", "contract 5", OURS,
         ("X-Retry-Disable: true", "x-retry-timeout: 10", "X-Attempt-Count: 9", "X: y"), ("X: y",)),
        ("250 fields", "RFC 9110 5.4", OURS, tuple(f"X-{n}: y" for n in range(250)),
         tuple(f"X-{n}: y" for n in range(250))),
        ("60000 octets in a field", "RFC 9110 5.4", OURS, ("X: " + "y" * 60000,), ("X: " + "y" * 60000,)),
    )
]  # fmt: skip

HOSTS = [
    passes("Host from the target", "RFC 9112 3.2.2", MUST, message("GET http://%A/x HTTP/1.1", "Host: evil.example"),
           "GET /x HTTP/1.1", [H]),
    passes("Host from the target, in its place", "RFC 9112 3.2.2", MUST,
           message("GET http://%A/x HTTP/1.1", "A: 1", "hOsT: evil.example:99", "B: 2"), "GET /x HTTP/1.1",
           ["A: 1", H, "B: 2"]),
    passes("Host from the target in place of an empty one", "RFC 9112 3.2.2", MUST,
           message("GET http://%A/x HTTP/1.1", "Host:"), "GET /x HTTP/1.1", [H]),
    passes("Host with white space", "RFC 9112 5.1", MUST, message("GET http://%A/x HTTP/1.1", "Host: \t%A "),
           "GET /x HTTP/1.1", [H]),
    passes("a lower-case Host field", "RFC 9110 5.1", MUST, message("GET http://%A/x HTTP/1.1", "host: %A"),
           "GET /x HTTP/1.1", ["host: %A"]),
    passes("HTTP/1.0 without a Host", "RFC 9112 3.2", MUST, message("GET http://%A/x HTTP/1.0", "X: y"),
           "GET /x HTTP/1.1", [H, "X: y"]),
    passes("HTTP/1.0 with another Host", "RFC 9112 3.2.2", MUST,
           message("GET http://%A/x HTTP/1.0", "Host: evil.example"), "GET /x HTTP/1.1", [H]),
    passes("HTTP/1.2", "RFC 9110 2.5", MUST, message("GET http://%A/x HTTP/1.2", H), "GET /x HTTP/1.1", [H]),
    passes("HTTP/1.9", "RFC 9110 2.5", MUST, message("GET http://%A/x HTTP/1.9", H), "GET /x HTTP/1.1", [H]),
    passes("an empty line in front", "RFC 9112 2.2", SHOULD, b"\r\n" + get_with(), "GET /x HTTP/1.1", [H]),
    passes("Expect in HTTP/1.0", "RFC 9110 10.1.1", OURS,
           message("POST http://%A/x HTTP/1.0", H, "Content-Length: 2", body=b"ok"), "POST /x HTTP/1.1",
           [H, "Content-Length: 2"], b"ok"),
    passes("Upgrade in HTTP/1.0", "RFC 9110 7.8", MUST,
           message("GET http://%A/x HTTP/1.0", H, "Connection: upgrade", "Upgrade: websocket"), "GET /x HTTP/1.1",
           [H]),
]  # fmt: skip

HOPS = [
    passes(f"Max-Forwards {came} on {method}", "RFC 9110 7.6.2", MUST,
           get_with(f"Max-Forwards: {came}", "X: y", line=f"{method} http://%A/x HTTP/1.1"), f"{method} /x HTTP/1.1",
           [H, f"Max-Forwards: {left}", "X: y"])
    for method in ("OPTIONS", "TRACE")
    for came, left in (("1", "0"), ("2", "1"), ("10", "9"), ("007", "6"), ("9" * 30, "9" * 18))
]  # fmt: skip

CASES = TARGETS + METHODS + BODIES + FIELDS + HOSTS + HOPS


def split_own(request: Message) -> tuple[list[str], list[str]]:
    """The field lines that passed, and those that the proxy put in: the count, and a Via of its own."""
    own = re.compile(rb"X-Attempt-Count: \d+$|Via: 1\.[01] redrive-(?!00000000)[0-9a-f]{8}$")
    lines = request.lines
    ours = [line for line in lines if own.match(line)]
    return [line.decode("latin-1") for line in lines if line not in ours], [line.decode() for line in ours]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_it_passes(case: Case, proxy: Proxy) -> None:
    template = case.facts[0]
    assert isinstance(template, bytes)
    for way in ("at once", "octet by octet", "again on both connections"):
        if way != "octet by octet" or len(template) <= 2000:
            passes(case, way, proxy)


def passes(case: Case, way: str, proxy: Proxy) -> None:
    template, line, lines, body = case.facts
    assert isinstance(template, bytes)
    assert isinstance(line, str)
    assert isinstance(lines, list)
    with Upstream() as upstream, proxy.app() as app:
        authority = upstream.authority
        raw = template.replace(b"%A", authority.encode())
        peer = proxy.settles(app, upstream) if way == "again on both connections" else None
        if way == "octet by octet":
            app.send(*(raw[at : at + 1] for at in range(len(raw))))
        else:
            app.send(raw)
        if peer is None:
            peer = upstream.accept()
        request = peer.read_request()
        assert request.line.decode("latin-1") == line
        passed, ours = split_own(request)
        assert passed == [each.replace("%A", authority) for each in lines]
        minor = b"0" if b" HTTP/1.0\r" in raw else b"1"
        assert ours[0] == "X-Attempt-Count: 1"
        assert ours[1].startswith(f"Via: 1.{minor.decode()} redrive-")
        assert len(ours) == 2
        assert request.body == body
        assert peer.is_silent()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert app.read_answer().status == 200


def test_a_request_is_written_at_once(proxy: Proxy) -> None:
    """Forwarding is not held back: head first, then each piece of the body as it comes."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 6", method="POST"))
        peer = upstream.accept()
        peer.read_head()
        for piece in (b"ab", b"cd", b"ef"):
            app.send(piece)
            assert peer.read(2) == piece
        peer.send(OK)
        assert app.read_answer().status == 200


FINAL = [
    Case(f"{method} {target} {version}", "RFC 9110 7.6.2", MUST, (method, target, version))
    for method in ("OPTIONS", "TRACE")
    for target in ("http://%A/x", "http://%A", "http://%A/?q")
    for version in ("1.1", "1.0")
]


@pytest.mark.parametrize("zero", ["0", "00", " 0 "])
@pytest.mark.parametrize("case", FINAL, ids=ids(FINAL))
def test_max_forwards_0_is_answered_here(case: Case, zero: str, proxy: Proxy) -> None:
    method, where, version = case.facts
    with Upstream() as upstream, proxy.app() as app:
        line = f"{method} {where} HTTP/{version}".replace("%A", upstream.authority)
        raw = message(line, f"Host: {upstream.authority}", f"Max-Forwards: {zero}", "Authorization: secret", "X-Y: z")
        app.send(raw)
        answer = app.read_answer()
        assert answer.status == 200
        if method == "TRACE":
            assert answer.one("content-type") == "message/http"
            assert answer.body.startswith(raw.split(b"\r\n")[0] + b"\r\n")
            assert b"\r\nX-Y: z\r\n" in answer.body
            assert b"secret" not in answer.body
        proxy.fence(upstream)


def test_the_asterisk_form_with_max_forwards_0_is_answered_here(proxy: Proxy) -> None:
    with proxy.app() as app:
        app.send(message("OPTIONS * HTTP/1.1", "Host: a.example", "Max-Forwards: 0"))
        assert app.read_answer().status == 200


def test_a_loop_is_seen(proxy: Proxy) -> None:
    """RFC 9110 section 7.6: by our own name in Via, wherever it stands, and by nothing else."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        via = peer.read_request().one("via")
        assert via is not None
        peer.send(reply(b""))
        app.read_answer()
        for field in (via, f"1.0 a, {via}", f"{via} (comment)", f"1.1 x,{via},1.1 y"):
            app.send(get(upstream, "/loop", f"Via: {field}"))
            answer = app.read_answer()
            assert answer.status == 508, field
            assert "proxy_loop_detected" in (answer.one("proxy-status") or "")
        app.send(get(upstream, "/loop", "Via: 1.1 a", f"Via: {via}"))
        assert app.read_answer().status == 508
        app.send(message(f"CONNECT {upstream.authority} HTTP/1.1", "Host: a", f"Via: {via}"))
        assert app.read_answer("CONNECT").status == 508
        proxy.fence(upstream, peer)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433"])
def test_the_proxy_itself_is_no_destination(host: str, proxy: Proxy) -> None:
    """RFC 9110 section 7.6: by whatever name; answered here, and the proxy never talks to itself."""
    with proxy.app() as app:
        app.send(message(f"GET http://{host}:{proxy.port}/ HTTP/1.1", "Host: a"))
        assert app.read_answer().status in (403, 502)  # no such address where there is no IPv6


def test_an_origin_form_that_nothing_names_is_404(proxy: Proxy) -> None:
    """Contract section 3: never an open reverse proxy."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(message("GET /x HTTP/1.1", f"Host: {upstream.authority}"))
        assert app.read_answer().status == 404
        proxy.fence(upstream)


TRAILERS = [
    Case("plain ones", "RFC 9110 6.5", MUST, ([], b"X-Sum: 7\r\nx-two: 2\r\n", b"X-Sum: 7\r\nx-two: 2\r\n")),
    Case("repeats", "RFC 9110 6.5.1", MUST, ([], b"X: 1\r\nX: 2\r\n", b"X: 1\r\nX: 2\r\n")),
    Case("empty values and white space", "RFC 9110 6.5", MUST, ([], b"X:\r\nY:  a \r\n", b"X:\r\nY:  a \r\n")),
    Case("those that Connection names", "RFC 9110 7.6.1", MUST,
         (["Connection: X-Hop"], b"X-Hop: 1\r\nX-End: 2\r\nx-hop: 3\r\n", b"X-End: 2\r\n")),
    Case("all of them named", "RFC 9110 7.6.1", MUST, (["Connection: X-Hop"], b"X-Hop: 1\r\n", b"")),
    Case("hop-by-hop ones", "RFC 9110 7.6.1", MUST,
         ([], b"Connection: close\r\nX: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTE: x\r\nUpgrade: y\r\n",
          b"X: 1\r\n")),
    Case("our own", "contract 5", OURS, ([], b"X: 1\r\nX-Attempt-Count: 9\r\n", b"X: 1\r\n")),
]  # fmt: skip


@pytest.mark.parametrize("case", TRAILERS, ids=ids(TRAILERS))
def test_trailers_of_a_request(case: Case, proxy: Proxy) -> None:
    fields, came, left = case.facts
    assert isinstance(fields, list)
    assert isinstance(came, bytes)
    for whole in (True, False):
        with Upstream() as upstream, proxy.app() as app:
            head = get(upstream, "/x", *fields, TE, method="POST")
            body = chunked(b"hello", trailers=came)
            if whole:
                app.send(head + body)
                peer = upstream.accept()
            else:
                app.send(head)
                peer = upstream.accept()
                app.send(body)
            request = peer.read_request()
            assert (request.body, request.trailers) == (b"hello", left)
            peer.send(OK)
            assert app.read_answer().status == 200


@pytest.mark.parametrize("case", TRAILERS, ids=ids(TRAILERS))
def test_trailers_of_an_answer(case: Case, proxy: Proxy) -> None:
    fields, came, left = case.facts
    assert isinstance(fields, list)
    assert isinstance(came, bytes)
    for whole in (True, False):
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream))
            peer = upstream.accept()
            peer.read_head()
            head = message("HTTP/1.1 200 OK", *fields, TE)
            body = chunked(b"hello", trailers=came)
            if whole:
                peer.send(head + body)
            else:
                peer.send(head)
                app.unread(app.read_head())
                peer.send(body)
            answer = app.read_answer()
            assert (answer.body, answer.trailers) == (b"hello", left)


def test_trailers_are_not_merged_into_a_1_0_answer(proxy: Proxy) -> None:
    """RFC 9110 section 6.5.1: they are left out for an app that has no chunks."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, version="1.0"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(message("HTTP/1.1 200 OK", TE, "Trailer: X-Sum") + chunked(b"hello", trailers=b"X-Sum: 7\r\n"))
        answer = app.read_answer()
        assert answer.body == b"hello"
        assert answer.all("x-sum") == answer.all("trailer") == answer.all("transfer-encoding") == []
        assert b"X-Sum" not in answer.body
