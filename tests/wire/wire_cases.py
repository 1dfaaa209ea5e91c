"""The grammar's cases, as data: for the tables, and again cut into packets in every way."""

from __future__ import annotations

from proxy.wire.errors import BadAnswer, BadBody, Refused
from proxy.wire.http1.body import ChunkedBody, body_reader
from proxy.wire.http1.parser import RequestParser, ResponseParser


def request(line: str = "GET / HTTP/1.1", *fields: str, host: str | None = "h.example") -> bytes:
    lines = [line, *([f"Host: {host}"] if host is not None else []), *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def answer(line: str = "HTTP/1.1 200 OK", *fields: str) -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


def post(*fields: str) -> bytes:
    return request("POST / HTTP/1.1", *fields)


LONG_METHOD = "M" * 64

#: What is taken, and what must be true of its head.
TAKEN: dict[str, tuple[bytes, dict[str, object]]] = {
    "plain": (
        request("GET /a?b=c HTTP/1.1", "Accept: */*"),
        {
            "method": "GET",
            "form": "origin",
            "path": b"/a?b=c",
            "authority": "h.example",
            "simple": True,
            "version": "1.1",
        },
    ),
    "keep-alive": (request("GET / HTTP/1.1", "Connection: Keep-Alive"), {"keep_alive": True, "simple": True}),
    "close": (request("GET / HTTP/1.1", "Connection: close"), {"keep_alive": False, "simple": True}),
    "Close": (request("GET / HTTP/1.1", "Connection:  Close"), {"keep_alive": False, "simple": True}),
    "close and white space": (request("GET / HTTP/1.1", "Connection: close "), {"keep_alive": False, "simple": False}),
    "closed": (request("GET / HTTP/1.1", "Connection: closed"), {"keep_alive": True, "simple": False}),
    "close among others": (request("GET / HTTP/1.1", "Connection: x, Close"), {"keep_alive": False}),
    "two Connection fields": (
        request("GET / HTTP/1.1", "Connection: keep-alive", "Connection: close"),
        {"keep_alive": False},
    ),
    "empty list elements": (request("GET / HTTP/1.1", "Connection: , keep-alive ,,"), {"keep_alive": True}),
    "empty Connection": (request("GET / HTTP/1.1", "Connection:"), {"keep_alive": True, "simple": False}),
    "higher minor": (request("GET / HTTP/1.7"), {"version": "1.1", "keep_alive": True, "simple": False}),
    "1.0": (request("GET / HTTP/1.0", host=None), {"version": "1.0", "keep_alive": False, "authority": ""}),
    "1.0 with Host": (request("GET / HTTP/1.0"), {"version": "1.0", "authority": "h.example"}),
    "1.0 keep-alive": (request("GET / HTTP/1.0", "Connection: keep-alive"), {"keep_alive": True, "version": "1.0"}),
    "1.0 does not expect": (request("GET / HTTP/1.0", "Expect: 100-continue"), {"expect_continue": False}),
    "1.0 does not upgrade": (
        request("GET / HTTP/1.0", "Connection: upgrade", "Upgrade: websocket"),
        {"upgrade": None},
    ),
    "any token is a method": (request("!#$%&'*+-.^_`|~0aZ / HTTP/1.1"), {"method": "!#$%&'*+-.^_`|~0aZ"}),
    "methods are case-sensitive": (request("get / HTTP/1.1"), {"method": "get"}),
    "method of 64": (request(f"{LONG_METHOD} / HTTP/1.1"), {"method": LONG_METHOD}),
    "octets above 7F in a target": (request("GET /\xe9\xff HTTP/1.1"), {"path": b"/\xe9\xff"}),
    "odd octets in a target": (request('GET /"<>\\^`{|}%zz HTTP/1.1'), {"path": b'/"<>\\^`{|}%zz'}),
    "two slashes are a path": (request("GET //evil.example/x HTTP/1.1"), {"path": b"//evil.example/x"}),
    "dots stay": (request("GET /a/../b HTTP/1.1"), {"path": b"/a/../b"}),
    "one leading empty line": (b"\r\n" + request(), {"method": "GET"}),
    "empty value": (request("GET / HTTP/1.1", "X:", "Y: \t "), {}),
    "octets above 7F in a value": (request("GET / HTTP/1.1", "X: \x80\xff"), {}),
    "host with port": (request(host="H.Example:8080"), {"authority": "h.example:8080"}),
    "host with white space": (request(host=" \th.example\t "), {"authority": "h.example"}),
    "host v4": (request(host="127.0.0.1:1"), {"authority": "127.0.0.1:1"}),
    "host v6": (request(host="[::1]:8080"), {"authority": "[::1]:8080"}),
    "host v6 without port": (request(host="[2001:DB8::1]"), {"authority": "[2001:db8::1]"}),
    "host with an empty port": (request(host="H.example:"), {"authority": "h.example", "target": b"/"}),
    "host v6 with an empty port": (request(host="[::1]: "), {"authority": "[::1]"}),
    "absolute with an empty port": (request("GET http://u.example:/p HTTP/1.1"), {"authority": "u.example"}),
    "absolute v6 with an empty port": (request("GET http://[::1]:?a HTTP/1.1"), {"authority": "[::1]", "path": b"/?a"}),
    "host with odd characters": (request(host="a_b-c.d~%41!"), {"authority": "a_b-c.d~%41!"}),
    "absolute": (
        request("GET http://U.example:81/p?q HTTP/1.1", host="u.example:81"),
        {"form": "absolute", "scheme": "http", "authority": "u.example:81", "path": b"/p?q", "simple": True},
    ),
    "absolute https": (request("GET HTTPS://u.example/p HTTP/1.1"), {"scheme": "https", "authority": "u.example"}),
    "absolute without path": (request("GET http://u.example HTTP/1.1"), {"path": b"/"}),
    "absolute with query alone": (request("GET http://u.example?a/b HTTP/1.1"), {"path": b"/?a/b"}),
    "absolute with a URL in it": (request("GET http://u.example/http://x/ HTTP/1.1"), {"path": b"/http://x/"}),
    "absolute OPTIONS": (request("OPTIONS http://u.example HTTP/1.1"), {"path": b"*", "form": "absolute"}),
    "absolute OPTIONS of a path": (request("OPTIONS http://u.example/ HTTP/1.1"), {"path": b"/"}),
    "absolute, empty Host": (request("GET http://u.example/ HTTP/1.1", host=""), {"authority": "u.example"}),
    "absolute, 1.0": (request("GET http://u.example/ HTTP/1.0", host=None), {"authority": "u.example"}),
    "absolute v6": (request("GET http://[::1]:8080/ HTTP/1.1"), {"authority": "[::1]:8080"}),
    "connect": (
        request("CONNECT h.example:443 HTTP/1.1"),
        {"form": "authority", "authority": "h.example:443", "path": b"", "method": "CONNECT"},
    ),
    "connect v6": (request("CONNECT [::1]:443 HTTP/1.1"), {"authority": "[::1]:443"}),
    "connect, empty Host": (request("CONNECT h:443 HTTP/1.1", host=""), {"authority": "h:443"}),
    "connect with no length": (request("CONNECT h:443 HTTP/1.1", "Content-Length: 0"), {"body_size": 0}),
    "asterisk": (request("OPTIONS * HTTP/1.1"), {"form": "asterisk", "path": b"*", "authority": "h.example"}),
    "length": (post("Content-Length: 5"), {"content_length": 5, "chunked": False, "body_size": 5, "simple": True}),
    "length with zeros": (post("Content-Length: 0005"), {"content_length": 5}),
    "length with white space": (post("Content-Length: \t5 \t"), {"content_length": 5}),
    "length of 18 digits": (post("Content-Length: " + "9" * 18), {"content_length": 10**18 - 1}),
    "length 0": (post("content-length: 0"), {"content_length": 0, "body_size": 0}),
    "chunked": (post("Transfer-Encoding: chunked"), {"chunked": True, "content_length": None, "simple": True}),
    "Chunked": (post("TRANSFER-ENCODING: ChunKed \t"), {"chunked": True, "body_size": -1}),
    "expect": (post("Expect: 100-Continue", "Content-Length: 1"), {"expect_continue": True}),
    "expects something else": (post("Expect: 200-ok"), {"expect_continue": False}),
    "upgrade": (
        request("GET / HTTP/1.1", "Connection: keep-alive, Upgrade", "Upgrade: WebSocket"),
        {"upgrade": b"WebSocket", "keep_alive": True, "simple": False},
    ),
    "upgrade unnamed": (request("GET / HTTP/1.1", "Upgrade: websocket"), {"upgrade": None, "simple": False}),
    "upgrade h2c": (
        request("GET / HTTP/1.1", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"),
        {"upgrade": None},
    ),
    "upgrade h2c or other": (
        request("GET / HTTP/1.1", "Connection: Upgrade", "Upgrade: H2C, foo/2", "Upgrade: bar"),
        {"upgrade": b"foo/2, bar"},
    ),
    "max-forwards": (request("TRACE / HTTP/1.1", "Max-Forwards: 3"), {"max_forwards": 3}),
    "max-forwards elsewhere": (request("GET / HTTP/1.1", "Max-Forwards: 3"), {"max_forwards": None}),
    "max-forwards beyond counting": (
        request("TRACE / HTTP/1.1", "Max-Forwards: " + "9" * 5000),
        {"max_forwards": 10**18},
    ),
    "max-forwards with zeros": (request("TRACE / HTTP/1.1", "Max-Forwards: " + "0" * 30 + "7"), {"max_forwards": 7}),
    "max-forwards twice": (request("TRACE / HTTP/1.1", "Max-Forwards: 0", "Max-Forwards: 5"), {"max_forwards": 0}),
    "max-forwards unreadable": (request("OPTIONS / HTTP/1.1", "Max-Forwards: x"), {"max_forwards": None}),
    "retry disable": (request("GET / HTTP/1.1", "X-Retry-Disable: true"), {"simple": False}),
    "retry timeout": (request("GET / HTTP/1.1", "X-Retry-Timeout: 1s"), {"simple": False}),
    "attempt count": (request("GET / HTTP/1.1", "X-Attempt-Count: 4"), {"simple": False}),
    "proxy connection": (request("GET / HTTP/1.1", "Proxy-Connection: close"), {"simple": False, "keep_alive": True}),
    "negotiate": (request("GET / HTTP/1.1", "Authorization: Negotiate YII"), {"login_bound": True}),
    "ntlm": (request("GET / HTTP/1.1", "Authorization: NTLM TlR"), {"login_bound": True}),
    "bearer": (request("GET / HTTP/1.1", "Authorization: Bearer ntlm"), {"login_bound": False}),
    "bytes behind": (request() + b"GET /next HTTP/1.1\r\n", {"target": b"/"}),
}

#: What is refused, and with which status.
REFUSED: dict[str, tuple[bytes, int]] = {
    "0.9": (b"GET /\r\n", 400),
    "no target": (request("GET HTTP/1.1"), 400),
    "empty target": (request("GET  HTTP/1.1"), 400),
    "three spaces": (request("GET / x HTTP/1.1"), 400),
    "leading space": (request(" GET / HTTP/1.1"), 400),
    "trailing space": (request("GET / HTTP/1.1 "), 400),
    "tab for space": (request("GET\t/ HTTP/1.1"), 400),
    "tab in target": (request("GET /\t HTTP/1.1"), 400),
    "NUL in target": (request("GET /\0 HTTP/1.1"), 400),
    "DEL in target": (request("GET /\x7f HTTP/1.1"), 400),
    "fragment": (request("GET /a#b HTTP/1.1"), 400),
    "fragment, absolute": (request("GET http://u.example/a#b HTTP/1.1"), 400),
    "method no token": (request("G(T / HTTP/1.1"), 400),
    "method in latin-1": (request("G\xcb / HTTP/1.1"), 400),
    "method of 65": (request(f"{LONG_METHOD}M / HTTP/1.1"), 501),
    "two leading empty lines": (b"\r\n\r\n" + request(), 400),
    "leading LF": (b"\n" + request(), 400),
    "leading CR": (b"\r" + request(), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
    "2.0": (request("GET / HTTP/2.0"), 505),
    "0.9 named": (request("GET / HTTP/0.9"), 505),
    "preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "version in lower case": (request("GET / http/1.1"), 400),
    "version of two digits": (request("GET / HTTP/1.10"), 400),
    "version 11.1": (request("GET / HTTP/11.1"), 400),
    "version without minor": (request("GET / HTTP/1"), 400),
    "version HTTPS": (request("GET / HTTPS/1.1"), 400),
    "LF for CRLF": (b"GET / HTTP/1.1\nHost: h\n\n", 400),
    "LF behind the line": (b"GET / HTTP/1.1\nHost: h\r\n\r\n", 400),
    "LF in a field": (request("GET / HTTP/1.1", "X: a\nb"), 400),
    "LF ends the head": (b"GET / HTTP/1.1\r\nHost: h\r\n\n", 400),
    "CR in a field": (request("GET / HTTP/1.1", "X: a\rb"), 400),
    "CR before CRLF": (request("GET / HTTP/1.1", "X: a\r"), 400),
    "CR in the line": (request("GET /\r HTTP/1.1"), 400),
    "NUL in a value": (request("GET / HTTP/1.1", "X: a\0b"), 400),
    "control in a value": (request("GET / HTTP/1.1", "X: a\x1bb"), 400),
    "DEL in a value": (request("GET / HTTP/1.1", "X: \x7f"), 400),
    "NUL in a name": (request("GET / HTTP/1.1", "X\0: a"), 400),
    "space before colon": (request("GET / HTTP/1.1", "X : a"), 400),
    "tab before colon": (request("GET / HTTP/1.1", "X\t: a"), 400),
    "space in a name": (request("GET / HTTP/1.1", "X Y: a"), 400),
    "latin-1 in a name": (request("GET / HTTP/1.1", "X\xe9: a"), 400),
    "no colon": (request("GET / HTTP/1.1", "X"), 400),
    "no name": (request("GET / HTTP/1.1", ": a"), 400),
    "fold": (request("GET / HTTP/1.1", "X: a", " b"), 400),
    "fold with a tab": (request("GET / HTTP/1.1", "X: a", "\tb"), 400),
    "fold of the line": (b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400),
    "no Host": (request(host=None), 400),
    "no Host, absolute": (request("GET http://h/ HTTP/1.1", host=None), 400),
    "no Host, connect": (request("CONNECT h:1 HTTP/1.1", host=None), 400),
    "two Hosts": (request("GET / HTTP/1.1", "Host: h.example"), 400),
    "two Hosts, 1.0": (request("GET / HTTP/1.0", "host: h.example"), 400),
    "empty Host": (request(host=""), 400),
    "empty Host, asterisk": (request("OPTIONS * HTTP/1.1", host=" "), 400),
    "Host with a path": (request(host="h/x"), 400),
    "Host with user info": (request(host="u@h"), 400),
    "Host with a space": (request(host="h h"), 400),
    "Host with a bad port": (request(host="h:x"), 400),
    "Host with port 0": (request(host="h:0"), 400),
    "Host with port 65536": (request(host="h:65536"), 400),
    "Host with two ports": (request(host="h:1:2"), 400),
    "Host of a port": (request(host=":80"), 400),
    "Host beyond ASCII": (request(host="h\xe9"), 400),
    "Host with a bad escape": (request(host="h%4"), 400),
    "Host v6 unclosed": (request(host="[::1"), 400),
    "Host v6 wrong": (request(host="[::1::]"), 400),
    "Host v6 with a zone": (request(host="[fe80::1%25eth0]"), 400),
    "Host v6 bare": (request(host="::1"), 400),
    "Host list": (request(host="a, b"), 400),
    "bad Host, absolute": (request("GET http://h/ HTTP/1.1", host="a@b"), 400),
    "user info": (request("GET http://u:p@h/ HTTP/1.1"), 400),
    "two @": (request("GET http://a@b@h/ HTTP/1.1"), 400),
    "user info behind a backslash": (request("GET http://a\\@h/ HTTP/1.1"), 400),
    "absolute without host": (request("GET http:///x HTTP/1.1"), 400),
    "absolute with port alone": (request("GET http://:80/x HTTP/1.1"), 400),
    "absolute with a bad port": (request("GET http://h:99999/x HTTP/1.1"), 400),
    "absolute of another scheme": (request("GET ftp://h/x HTTP/1.1"), 400),
    "absolute with one slash": (request("GET http:/h/x HTTP/1.1"), 400),
    "no form at all": (request("GET h.example/x HTTP/1.1"), 400),
    "asterisk for GET": (request("GET * HTTP/1.1"), 400),
    "query alone": (request("GET ?x HTTP/1.1"), 400),
    "authority for GET": (request("GET h:443 HTTP/1.1"), 400),
    "connect to a path": (request("CONNECT / HTTP/1.1"), 400),
    "connect to a URL": (request("CONNECT http://h:443/ HTTP/1.1"), 400),
    "connect without port": (request("CONNECT h HTTP/1.1"), 400),
    "connect v6 without port": (request("CONNECT [::1] HTTP/1.1"), 400),
    "connect with an empty port": (request("CONNECT h: HTTP/1.1"), 400),
    "connect v6 with an empty port": (request("CONNECT [::1]: HTTP/1.1"), 400),
    "Host with two empty ports": (request(host="h::"), 400),
    "Host of an empty port alone": (request(host=":"), 400),
    "absolute with two empty ports": (request("GET http://h::/ HTTP/1.1"), 400),
    "absolute of an empty port alone": (request("GET http://:/ HTTP/1.1"), 400),
    "absolute with user info and an empty port": (request("GET http://a@h:/ HTTP/1.1"), 400),
    "connect with user info": (request("CONNECT u@h:443 HTTP/1.1"), 400),
    "connect with a body": (request("CONNECT h:443 HTTP/1.1", "Content-Length: 1"), 400),
    "connect, chunked": (request("CONNECT h:443 HTTP/1.1", "Transfer-Encoding: chunked"), 400),
    "length and chunked": (post("Content-Length: 5", "Transfer-Encoding: chunked"), 400),
    "chunked and length": (post("Transfer-Encoding: chunked", "Content-Length: 5"), 400),
    "length and gzip": (post("Content-Length: 5", "Transfer-Encoding: gzip"), 400),
    "two lengths": (post("Content-Length: 5", "Content-Length: 6"), 400),
    "two equal lengths": (post("Content-Length: 5", "content-length: 5"), 400),
    "list of lengths": (post("Content-Length: 5, 5"), 400),
    "empty length": (post("Content-Length:"), 400),
    "+5": (post("Content-Length: +5"), 400),
    "-5": (post("Content-Length: -5"), 400),
    "0x5": (post("Content-Length: 0x5"), 400),
    "5 5": (post("Content-Length: 5 5"), 400),
    "5_0": (post("Content-Length: 5_0"), 400),
    "superscript two": (post("Content-Length: \xb2"), 400),
    "length of 19 digits": (post("Content-Length: " + "1" * 19), 400),
    "gzip": (post("Transfer-Encoding: gzip"), 400),
    "gzip, chunked": (post("Transfer-Encoding: gzip, chunked"), 501),
    "gzip and chunked": (post("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 501),
    "identity": (post("Transfer-Encoding: identity"), 400),
    "xchunked": (post("Transfer-Encoding: xchunked"), 400),
    "chunked, gzip": (post("Transfer-Encoding: chunked, gzip"), 400),
    "chunked, chunked": (post("Transfer-Encoding: chunked, chunked"), 400),
    "chunked twice": (post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
    "chunked and nothing": (post("Transfer-Encoding: chunked", "Transfer-Encoding:"), 400),
    "chunked with a comma": (post("Transfer-Encoding: chunked,"), 400),
    "chunked with a parameter": (post("Transfer-Encoding: chunked;x=y"), 400),
    "quoted chunked": (post('Transfer-Encoding: "chunked"'), 400),
    "empty coding": (post("Transfer-Encoding:"), 400),
    "chunked in 1.0": (request("POST / HTTP/1.0", "Transfer-Encoding: chunked"), 400),
    "Connection no token": (request("GET / HTTP/1.1", "Connection: a b"), 400),
    "Connection quoted": (request("GET / HTTP/1.1", 'Connection: "close"'), 400),
    "Connection with =": (request("GET / HTTP/1.1", "Connection: a=b"), 400),
}

ANSWERS: dict[str, tuple[bytes, dict[str, object]]] = {
    "plain": (answer("HTTP/1.1 200 OK", "Content-Length: 0"), {"status": 200, "simple": True, "keep_alive": True}),
    "no reason": (answer("HTTP/1.1 200 ", "Content-Length: 1"), {"status": 200, "content_length": 1}),
    "no space": (answer("HTTP/1.1 200", "Content-Length: 1"), {"status": 200, "simple": False}),
    "reason in latin-1": (answer("HTTP/1.1 404 Nicht gefund\xebn\t!"), {"status": 404}),
    "999": (answer("HTTP/1.1 999 Odd", "Content-Length: 1"), {"status": 999}),
    "1.0": (answer("HTTP/1.0 200 OK"), {"version": "1.0", "keep_alive": False}),
    "1.0 keep-alive": (
        answer("HTTP/1.0 200 OK", "Connection: keep-alive", "Content-Length: 2"),
        {"keep_alive": True, "content_length": 2, "simple": False},
    ),
    "close": (
        answer("HTTP/1.1 200 OK", "Connection: close", "Content-Length: 2"),
        {"keep_alive": False, "simple": True},
    ),
    "close and a named field": (
        answer("HTTP/1.1 200 OK", "Connection: close, x-a", "X-A: b", "Content-Length: 2"),
        {"keep_alive": False, "simple": False},
    ),
    "chunked": (answer("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), {"chunked": True, "simple": True}),
    "equal lengths": (
        answer("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"),
        {"content_length": 5, "simple": False},
    ),
    "list of equal lengths": (answer("HTTP/1.1 200 OK", "Content-Length: 5, 5"), {"content_length": 5}),
    "100": (answer("HTTP/1.1 100 Continue"), {"status": 100, "simple": False}),
    "103": (answer("HTTP/1.1 103 Early Hints", "Link: </a>"), {"status": 103}),
    "101": (
        answer("HTTP/1.1 101 Switching", "Connection: upgrade", "Upgrade: websocket"),
        {"status": 101, "upgrade": b"websocket"},
    ),
    "426": (answer("HTTP/1.1 426 x", "Connection: Upgrade", "Upgrade: TLS/1.2"), {"upgrade": b"TLS/1.2"}),
    "200 with Upgrade": (
        answer("HTTP/1.1 200 OK", "Connection: Upgrade", "Upgrade: h2,h2c", "Content-Length: 0"),
        {"upgrade": None},
    ),
    "ntlm offered": (answer("HTTP/1.1 401 x", "WWW-Authenticate: NTLM"), {"login_bound": True}),
    "negotiate offered": (answer("HTTP/1.1 401 x", "WWW-Authenticate: Negotiate, Basic"), {"login_bound": True}),
    "basic offered": (answer("HTTP/1.1 401 x", "WWW-Authenticate: Basic"), {"login_bound": False}),
    "bytes behind": (answer("HTTP/1.1 200 OK", "Content-Length: 2") + b"hi there", {"status": 200}),
}

BAD_ANSWERS: dict[str, bytes] = {
    "0.9": b"<html>\r\n",
    "2": answer("HTTP/2 200 OK"),
    "2.0": answer("HTTP/2.0 200 OK"),
    "ICY": answer("ICY 200 OK"),
    "leading empty line": b"\r\n" + answer(),
    "status of two digits": answer("HTTP/1.1 20 OK"),
    "status of four digits": answer("HTTP/1.1 2000 OK"),
    "status below 100": answer("HTTP/1.1 099 OK"),
    "no status": answer("HTTP/1.1 OK"),
    "two spaces": answer("HTTP/1.1  200 OK"),
    "NUL in the reason": answer("HTTP/1.1 200 O\0K"),
    "LF": b"HTTP/1.1 200 OK\n\n",
    "fold": answer("HTTP/1.1 200 OK", "X: a", " b"),
    "space before colon": answer("HTTP/1.1 200 OK", "Content-Length : 5"),
    "CR in a value": answer("HTTP/1.1 200 OK", "X: a\rb"),
    "length and chunked": answer("HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked"),
    "two lengths": answer("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 6"),
    "list of lengths": answer("HTTP/1.1 200 OK", "Content-Length: 5, 6"),
    "list with a hole": answer("HTTP/1.1 200 OK", "Content-Length: 5,"),
    "length no number": answer("HTTP/1.1 200 OK", "Content-Length: 5x"),
    "length negative": answer("HTTP/1.1 200 OK", "Content-Length: -1"),
    "length of 19 digits": answer("HTTP/1.1 200 OK", "Content-Length: " + "1" * 19),
    "gzip": answer("HTTP/1.1 200 OK", "Transfer-Encoding: gzip"),
    "gzip, chunked": answer("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked"),
    "chunked twice": answer("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunked in 1.0": answer("HTTP/1.0 200 OK", "Transfer-Encoding: chunked"),
    "Connection no token": answer("HTTP/1.1 200 OK", "Connection: a b"),
}

#: Chunked bodies that are whole: bytes, payload, trailers, what stands behind.
CHUNKED_BODIES: dict[str, tuple[bytes, bytes, bytes, bytes]] = {
    "empty": (b"0\r\n\r\n", b"", b"", b""),
    "one": (b"5\r\nhello\r\n0\r\n\r\n", b"hello", b"", b""),
    "two": (b"1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", b"a0123456789", b"", b""),
    "zeros before": (b"0000000000000001\r\na\r\n0000\r\n\r\n", b"a", b"", b""),
    "hex": (b"1a\r\n" + b"x" * 26 + b"\r\n1A\r\n" + b"y" * 26 + b"\r\n0\r\n\r\n", b"x" * 26 + b"y" * 26, b"", b""),
    "extension": (b'1;a;b="c\xff d"\r\nx\r\n0;z\r\n\r\n', b"x", b"", b""),
    "empty extension": (b"1;\r\nx\r\n0;\r\n\r\n", b"x", b"", b""),
    "space before extension": (b"1 \t;a\r\nx\r\n0 ;a\r\n\r\n", b"x", b"", b""),
    "CRLF in data": (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n", b"", b""),
    "trailers": (b"0\r\nGrpc-Status: 0\r\nX:\r\n\r\n", b"", b"Grpc-Status: 0\r\nX:\r\n", b""),
    "bytes behind": (b"1\r\na\r\n0\r\n\r\nGET /", b"a", b"", b"GET /"),
    "bytes behind trailers": (b"0\r\nA: b\r\n\r\n\r\n\r\n", b"", b"A: b\r\n", b"\r\n\r\n"),
}

BAD_BODIES: dict[str, bytes] = {
    "no size": b"\r\nx",
    "not hex": b"g\r\n",
    "0x": b"0x1\r\na\r\n",
    "sign": b"+1\r\na\r\n",
    "minus": b"-1\r\na\r\n",
    "underscore": b"1_0\r\n",
    "leading space": b" 1\r\na\r\n",
    "trailing space": b"1 \r\na\r\n",
    "space before nothing": b"1 \t\r\na\r\n",
    "space inside a size": b"1 1;a\r\na\r\n",
    "LF behind size": b"1\na\r\n",
    "LF in extension": b"1;a\nb\r\n",
    "CR in extension": b"1;a\rb\r\n",
    "NUL in extension": b"1;\0\r\n",
    "17 digits": b"00000000000000001\r\na\r\n",
    "2^60": b"1000000000000000\r\n",
    "2^64 - 1": b"ffffffffffffffff\r\n",
    "data too long": b"1\r\nab\r\n",
    "LF behind data": b"1\r\na\n0\r\n\r\n",
    "CR behind data": b"1\r\na\r0\r\n\r\n",
    "LF ends": b"0\r\n\n",
    "CR ends": b"0\r\n\rx",
    "trailer folded": b"0\r\nA: b\r\n c\r\n\r\n",
    "trailer without colon": b"0\r\nA\r\n\r\n",
    "trailer with space": b"0\r\nA : b\r\n\r\n",
    "trailer with NUL": b"0\r\nA: \0\r\n\r\n",
    "trailer with LF": b"0\r\nA: b\n\r\n",
    "trailer Content-Length": b"0\r\nContent-Length: 5\r\n\r\n",
    "trailer Transfer-Encoding": b"0\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n",
    "trailer Host": b"0\r\nHOST: b\r\n\r\n",
}

#: What a packet-wise reading must come to the same in: attributes of heads.
SEEN = ("raw", "method", "target", "form", "scheme", "authority", "path", "version", "keep_alive", "simple", "upgrade")
SEEN_OF_ANSWER = ("raw", "status", "version", "keep_alive", "simple", "upgrade")


def read_request(packets: list[bytes], **limits: int) -> tuple[object, ...]:
    """What comes of it: the head's attributes and the bytes behind it, or the refusal."""
    parser = RequestParser(**limits)
    for index, packet in enumerate(packets):
        try:
            head = parser.feed(packet)
        except Refused as refused:
            return (refused.status, refused.detail)
        if head is not None:
            behind = parser.leftover() + b"".join(packets[index + 1 :])
            return (*(getattr(head, name) for name in SEEN), head.body_size, behind)
    return (None,)


def read_answer(packets: list[bytes]) -> tuple[object, ...]:
    parser = ResponseParser()
    for index, packet in enumerate(packets):
        try:
            head = parser.feed(packet)
        except BadAnswer as bad:
            return ("bad", bad.detail)
        if head is not None:
            behind = parser.leftover() + b"".join(packets[index + 1 :])
            return (*(getattr(head, name) for name in SEEN_OF_ANSWER), head.body_size("GET"), behind)
    return (None,)


def read_chunked(packets: list[bytes]) -> tuple[object, ...]:
    """Payload, trailers and what is behind; or "bad"; or None for an unfinished body."""
    body = body_reader(-1)
    assert isinstance(body, ChunkedBody)
    payload = b""
    for index, packet in enumerate(packets):
        try:
            some, done, behind = body.feed(packet)
        except BadBody:
            return ("bad",)
        payload += some
        if done:
            return (payload, body.trailers, behind + b"".join(packets[index + 1 :]))
        assert behind == b""
    return (None, payload)
