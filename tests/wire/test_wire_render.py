"""What is sent on in the place of a head: slices of what came, less what is for this hop alone."""

from __future__ import annotations

from random import Random

import pytest
from wire_cases import answer, request

from proxy.wire.head import RequestHead, ResponseHead, Trailers, trailer_fields
from proxy.wire.http1.parser import RequestParser, ResponseParser

VIA = b"Via: 1.1 redrive-00000000\r\n"


def head_of(data: bytes) -> RequestHead:
    head = RequestParser().feed(data)
    assert head is not None
    return head


def answer_of(data: bytes) -> ResponseHead:
    head = ResponseParser().feed(data)
    assert head is not None
    return head


def sent(*fields: str, line: str = "GET / HTTP/1.1", host: str | None = "h.example") -> list[str]:
    """The field lines sent on for a request with these."""
    return lines(head_of(request(line, *fields, host=host)).render())


def lines(rendered: bytes) -> list[str]:
    assert rendered.endswith(b"\r\n\r\n")
    return rendered[:-4].decode("latin-1").split("\r\n")[1:]


ODD = ("x-lower: a", "X-UPPER:b", "X-Space:  c \t", "X-Empty:", "x-lower: again", "X-Latin: \xe9", "Cookie: a=b; c=d")


@pytest.mark.parametrize("connection", [(), ("Connection: keep-alive",), ("cOnnection:Keep-Alive",)])
def test_what_came_goes_on_byte_for_byte(connection: tuple[str, ...]) -> None:
    data = request("PATCH /%7e/../\xff?q HTTP/1.1", *ODD[:3], *connection, *ODD[3:])
    expected = request("PATCH /%7e/../\xff?q HTTP/1.1", *ODD)
    assert head_of(data).render() == expected
    assert head_of(data).render(add=VIA) == expected[:-2] + VIA + b"\r\n"


@pytest.mark.parametrize("connection", [(), ("Connection: keep-alive",)])
def test_prefix_use_replaces_target_and_host_in_their_place(connection: tuple[str, ...]) -> None:
    for order in (
        ("A: 1", "Host: old.example", *connection, "B: 2"),
        (*connection, "A: 1", "host:old.example", "B: 2"),
    ):
        head = head_of(request("GET /pay/x HTTP/1.1", *order, host=None))
        rendered = head.render(target=b"/v1/x", host=b"new.example:81", add=VIA)
        assert rendered == b"GET /v1/x HTTP/1.1\r\nA: 1\r\nHost: new.example:81\r\nB: 2\r\n" + VIA + b"\r\n"
        assert head.render(host=b"n") == b"GET /pay/x HTTP/1.1\r\nA: 1\r\nHost: n\r\nB: 2\r\n\r\n"


def test_a_name_that_is_left_out_takes_its_lines_and_no_others() -> None:
    """Also where the head is simple, so that its lines are not taken one by one."""
    fields = ["x-app: web", "X-App: WEB", "X-App:", "X-Apps: a", "Y-X-App: b", "Via: x-app: c", "Cookie: \tx-app:"]
    names = [frozenset({b"x-app"}), frozenset({b"x-app", b"x-team"}), frozenset({b"host", b"x-app"})]
    random = Random(7)
    for _ in range(300):
        came = random.choices([*fields, "X-Team: d", "Connection: keep-alive", "TE: trailers"], k=random.randrange(6))
        came.insert(random.randrange(len(came) + 1), "Host: h.example")
        name, host = random.choice(names), random.choice([None, b"n.example"])
        head = head_of(request("GET / HTTP/1.1", *came, host=None))
        expected = head._fields(host, name)
        assert head.render(host=host, drop=name) == b"GET / HTTP/1.1\r\n" + expected + b"\r\n"


@pytest.mark.parametrize("cut", [(), ("Connection: keep-alive",), ("Proxy-Connection: Keep-Alive",)])
def test_the_absolute_form_becomes_origin_form(cut: tuple[str, ...]) -> None:
    same = head_of(request("GET http://U.example/p?q HTTP/1.1", *cut, *ODD, host="u.example"))
    assert same.render() == request("GET /p?q HTTP/1.1", *ODD, host="u.example")
    other = head_of(request("GET http://U.example:81/p?q HTTP/1.1", *cut, *ODD, host="other.example"))
    assert other.render() == request("GET /p?q HTTP/1.1", *ODD, host="U.example:81")
    assert other.render(target=other.target).startswith(b"GET http://U.example:81/p?q HTTP/1.1\r\n")


def test_the_absolute_form_of_1_0_gets_a_host() -> None:
    head = head_of(request("GET http://u.example HTTP/1.0", "A: b", host=None))
    assert head.render() == request("GET / HTTP/1.1", "A: b", host="u.example")


def test_the_version_sent_is_ours() -> None:
    for version in ("1.0", "1.2"):
        assert head_of(request(f"GET /a HTTP/{version}")).render() == request("GET /a HTTP/1.1")


@pytest.mark.parametrize(
    "field",
    [
        "Connection: close",
        "Connection:",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic eDp5",
        "TE: gzip",
        "Upgrade: websocket",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMA",
        "X-Retry-Disable: true",
        "X-Retry-Timeout: 1s",
        "X-Attempt-Count: 7",
        "x-aTTempt-cOunt:7",
    ],
)
def test_what_is_for_this_hop_or_for_us_is_cut(field: str) -> None:
    assert sent("A: 1", field, "B: 2", field.split(":")[0] + "x: stays") == [
        "Host: h.example",
        "A: 1",
        "B: 2",
        field.split(":")[0] + "x: stays",
    ]
    assert sent("A: 1", field, line="GET http://h.example/ HTTP/1.1") == ["Host: h.example", "A: 1"]


@pytest.mark.parametrize(
    "field",
    [
        "Via: 1.0 a",
        "Trailer: X",
        "Expect: 100-continue",
        "Transfer-Encoding: chunked",
        "Content-Length: 3",
        "Forwarded: for=x",
        "Authorization: NTLM x",
        "Early-Data: 1",
        "Max-Forwards: 3",
    ],
)
def test_what_is_end_to_end_stays(field: str) -> None:
    assert sent("A: 1", field) == ["Host: h.example", "A: 1", field]
    assert sent(f"Connection: {field.split(':')[0]}x, close", field) == ["Host: h.example", field]


def test_what_connection_names_is_cut() -> None:
    assert sent("Connection: x-a, X-B", "X-A: 1", "x-b: 2", "X-C: 3", "X-A: 4", "Connection: x-d", "x-D:") == [
        "Host: h.example",
        "X-C: 3",
    ]


@pytest.mark.parametrize("field", ["Transfer-Encoding: chunked", "Content-Length: 3", "Via: 1.0 a"])
def test_framing_and_the_way_are_never_cut_by_name(field: str) -> None:
    named = "host, content-length, transfer-encoding, te, close, via"
    assert sent(f"Connection: {named}", field) == ["Host: h.example", field]


@pytest.mark.parametrize("field", ["Trailer: X", "Expect: 100-continue", "Max-Forwards: 3", "Cookie: a"])
def test_whatever_else_connection_names_is_cut_both_ways(field: str) -> None:
    """RFC 9110 section 7.6.1. What is end to end by its nature is its sender's to name or not."""
    named = f"Connection: close, {field.partition(':')[0]}"
    for line in ("GET / HTTP/1.1", "TRACE / HTTP/1.1"):
        assert sent(named, field, "A: 1", line=line) == ["Host: h.example", "A: 1"]
    head = answer_of(answer("HTTP/1.1 200 OK", named, field, "A: 1", "Content-Length: 3"))
    assert lines(head.render()) == ["A: 1", "Content-Length: 3"]
    assert left(head.trailers_to_forward(trailer_fields(f"{field}\r\nB: 2\r\n".encode()))) == b"B: 2\r\n"


@pytest.mark.parametrize("named", [(), ("Connection: TE",), ("Connection: te, close",)])
@pytest.mark.parametrize("value", ["trailers", "gzip;q=0.5, Trailers", "trailers, deflate"])
def test_te_keeps_trailers_and_connection_names_it(named: tuple[str, ...], value: str) -> None:
    """RFC 9110 section 10.1.4: who sends TE names it in Connection. gRPC's `te: trailers` must arrive."""
    assert sorted(sent(*named, f"TE: {value}")) == ["Connection: TE", "Host: h.example", "TE: trailers"]


def test_te_in_two_fields_is_one() -> None:
    assert sorted(sent("TE: gzip", "TE: trailers")) == ["Connection: TE", "Host: h.example", "TE: trailers"]


def test_an_upgrade_is_passed_on_with_its_connection() -> None:
    fields = ("Connection: keep-alive, Upgrade, X-Mine", "Upgrade: websocket", "X-Mine: 1", "Sec-WebSocket-Key: k")
    assert sent(*fields) == ["Host: h.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"]


def test_h2c_is_cut_from_an_upgrade_to_something_else() -> None:
    fields = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: A", "Upgrade: h2c, websocket", "Upgrade: H2c")
    assert sent(*fields) == ["Host: h.example", "Connection: Upgrade", "Upgrade: websocket"]


def test_an_upgrade_with_trailers() -> None:
    fields = ("TE: trailers", "Connection: upgrade", "Upgrade: a/1")
    assert sent(*fields) == ["Host: h.example", "TE: trailers", "Connection: TE, Upgrade", "Upgrade: a/1"]


def test_max_forwards_is_counted_down_where_it_counts() -> None:
    assert sent("Max-Forwards: 3", "A: b", line="TRACE / HTTP/1.1") == ["Host: h.example", "Max-Forwards: 2", "A: b"]
    assert sent("Max-Forwards: x", line="TRACE / HTTP/1.1") == ["Host: h.example", "Max-Forwards: x"]
    assert sent("Max-Forwards: 3", line="GET / HTTP/1.1") == ["Host: h.example", "Max-Forwards: 3"]


def test_the_asterisk_form_stays() -> None:
    assert head_of(request("OPTIONS * HTTP/1.1")).render() == request("OPTIONS * HTTP/1.1")
    assert head_of(request("OPTIONS http://h.example HTTP/1.1")).render() == request("OPTIONS * HTTP/1.1")


def test_an_empty_port_is_left_out() -> None:
    """RFC 3986 section 6.2.3. Whoever reads the Host that is sent on finds the place that the request was taken to."""
    plain = request("GET /p HTTP/1.1", "A: b", host="u.example")
    assert head_of(request("GET /p HTTP/1.1", "A: b", host="u.example:")).render() == plain
    assert head_of(request("GET /p HTTP/1.1", "A: b", host="u.example: ")).render() == plain
    assert head_of(request("GET http://u.example:/p HTTP/1.1", "A: b", host="u.example:")).render() == plain
    assert head_of(request("GET http://u.example:/p HTTP/1.1", "A: b", host="u.example")).render() == plain
    assert head_of(request("GET http://u.example:/p HTTP/1.1", "A: b", host="evil.example:81")).render() == plain
    assert head_of(request("GET http://u.example/p HTTP/1.1", "A: b", host="u.example:")).render() == plain


def test_drop_takes_further_names() -> None:
    head = head_of(request("POST / HTTP/1.1", "Cookie: a", "A: b", "cookie: c", "Transfer-Encoding: chunked"))
    assert lines(head.render(drop=frozenset({b"cookie", b"transfer-encoding", b"x-attempt-count"}))) == [
        "Host: h.example",
        "A: b",
    ]
    many = frozenset({b"cookie", *(b"n%d" % n for n in range(20))})
    assert lines(head.render(drop=many, host=b"n.example")) == ["Host: n.example", "A: b", "Transfer-Encoding: chunked"]


@pytest.mark.parametrize(
    "fields",
    [
        ("X-App: web", *ODD),
        (*ODD, "Connection: keep-alive", "x-app:web", "X-Apps: 1", "X-Ap: 2"),
        ("X-APP: web", "Proxy-Authorization: Basic eDp4", "Connection: close", "X-App: again", "X-Retry-Priority: low"),
        ("Content-Length: 3", "Proxy-Connection: close", "A: X-App: web"),
        ("Transfer-Encoding: chunked", "X-App:", "Proxy-Authorization: Basic eDp4"),
        ("Max-Forwards: 3", "TE: trailers", "X-App: web"),
        ("Connection: x-named", "X-Named: 1", "X-App: web"),
    ],
)
@pytest.mark.parametrize("line", ["GET /p?q HTTP/1.1", "OPTIONS http://u.example/p HTTP/1.1", "GET /p HTTP/1.9"])
@pytest.mark.parametrize(
    "drop", [(), (b"x-app",), (b"x-app", b"a"), (b"content-length", b"x-app"), (b"host", b"x-app"), (b"connection",)]
)
def test_a_message_without_some_fields_is_what_is_rendered_without_them(
    fields: tuple[str, ...], line: str, drop: tuple[bytes, ...]
) -> None:
    names = frozenset(drop)
    for order in (("Host: u.example", *fields), (*fields, "hOst: u.example")):
        data = request(line, *order, host=None)
        for target, host in ((None, None), (b"/v1/x", b"n.example:81"), (b"/v1/longer/than/before", None)):
            expected = head_of(data).render(target=target, host=host, drop=names, add=VIA)
            assert head_of(data).message(target, host, VIA, b"abc", names) == expected + b"abc"


def test_many_names_are_left_out_of_a_message() -> None:
    fields = [f"N{n}: {n}" for n in range(200)]
    head = head_of(request("GET / HTTP/1.1", *fields, "Connection: close", "B: 1"))
    names = frozenset(b"n%d" % n for n in range(200))
    assert lines(head.message(None, None, b"", b"", names)) == ["Host: h.example", "B: 1"]


def test_dropping_ours_from_a_head_without_them_is_the_common_way() -> None:
    ours = frozenset({b"x-retry-disable", b"x-retry-timeout", b"x-attempt-count"})
    data = request("GET / HTTP/1.1", "Connection: keep-alive", *ODD)
    assert head_of(data).render(drop=ours, add=VIA) == request("GET / HTTP/1.1", *ODD)[:-2] + VIA + b"\r\n"


def test_rendering_leaves_the_head_as_it_was() -> None:
    head = head_of(request("GET http://a.example/ HTTP/1.1", "Connection: x-a", "X-A: 1"))
    assert head.render(target=b"/1", host=b"b", add=VIA) != head.render()
    assert head.render() == head.render() == request("GET / HTTP/1.1", host="a.example")


@pytest.mark.parametrize("connection", [(), ("Connection: keep-alive",)])
def test_an_answer_goes_on_byte_for_byte(connection: tuple[str, ...]) -> None:
    data = answer("HTTP/1.1 200 Sehr gut\xe9", "Content-Length: 2 ", *ODD[:2], *connection, *ODD[2:])
    expected = answer("HTTP/1.1 200 Sehr gut\xe9", "Content-Length: 2 ", *ODD)
    assert answer_of(data).render(add=VIA) == expected[:-2] + VIA + b"\r\n"


@pytest.mark.parametrize(
    "field",
    ["Connection: close", "Keep-Alive: timeout=5", "Proxy-Connection: x", "Upgrade: h2", "TE: x", "X-Attempt-Count: 9"],
)
def test_what_an_answer_says_to_this_hop_is_cut(field: str) -> None:
    rendered = answer_of(answer("HTTP/1.1 200 OK", "Content-Length: 2", field, "A: b")).render()
    assert rendered == answer("HTTP/1.1 200 OK", "Content-Length: 2", "A: b")


def test_what_an_answers_connection_names_is_cut() -> None:
    rendered = answer_of(
        answer("HTTP/1.1 200 OK", "Connection: x-a, content-length", "X-A: 1", "Content-Length: 2")
    ).render()
    assert rendered == answer("HTTP/1.1 200 OK", "Content-Length: 2")


def test_end_to_end_fields_of_an_answer_stay() -> None:
    fields = (
        "Trailer: X",
        "Via: 1.1 a",
        "Proxy-Status: a",
        "Set-Cookie: a",
        "Set-Cookie: b",
        "Proxy-Authenticate: Basic",
    )
    assert answer_of(answer("HTTP/1.1 407 x", *fields)).render() == answer("HTTP/1.1 407 x", *fields)


def test_repeated_lengths_are_merged() -> None:
    for fields in (("Content-Length: 5", "content-length: 5"), ("Content-Length: 5, 5",)):
        rendered = answer_of(answer("HTTP/1.1 200 OK", "A: b", *fields, "C: d")).render()
        assert rendered == answer("HTTP/1.1 200 OK", "A: b", "Content-Length: 5", "C: d")


@pytest.mark.parametrize(
    ("line", "stays"), [("103 Early", False), ("204 No", False), ("304 Not", True), ("200 OK", True)]
)
def test_answers_that_may_not_have_framing_have_none(line: str, stays: bool) -> None:
    for field in ("Content-Length: 5", "Transfer-Encoding: chunked"):
        rendered = answer_of(answer(f"HTTP/1.1 {line}", field, "A: b")).render()
        assert rendered == answer(f"HTTP/1.1 {line}", *([field] if stays else []), "A: b")


def test_an_answers_upgrade() -> None:
    switching = answer_of(answer("HTTP/1.1 101 Switching", "Upgrade: websocket", "Connection: Upgrade"))
    assert switching.render() == answer("HTTP/1.1 101 Switching", "Upgrade: websocket", "Connection: Upgrade")
    required = answer_of(answer("HTTP/1.1 426 x", "Upgrade: h2c, TLS/1.0", "Connection: upgrade, close"))
    assert required.render() == answer("HTTP/1.1 426 x", "Upgrade: TLS/1.0", "Connection: Upgrade")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("HTTP/1.0 200 OK", "HTTP/1.1 200 OK"),
        ("HTTP/1.3 200 ", "HTTP/1.1 200 "),
        ("HTTP/1.1 200", "HTTP/1.1 200 "),
    ],
)
def test_the_version_answered_is_ours(line: str, expected: str) -> None:
    assert answer_of(answer(line, "Content-Length: 5")).render() == answer(expected, "Content-Length: 5")


def test_answers_drop_further_names() -> None:
    head = answer_of(answer("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "x-should-retry: true", "A: b"))
    rendered = head.render(drop=frozenset({b"x-should-retry", b"transfer-encoding"}), add=VIA)
    assert rendered == answer("HTTP/1.1 200 OK", "A: b")[:-2] + VIA + b"\r\n"


@pytest.mark.parametrize(
    "field", ["transfer-encoding: CHUNKED", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "TE: x"]
)
def test_the_framing_that_is_announced_is_our_own(field: str) -> None:
    fields = ["Transfer-Encoding: chunked", "TE: x"] if field == "TE: x" else [field]
    data = request("POST / HTTP/1.1", "A: b", *fields, "C: d")
    assert head_of(data).render() == request("POST / HTTP/1.1", "A: b", "Transfer-Encoding: chunked", "C: d")
    data = answer("HTTP/1.1 200 OK", "A: b", *fields, "C: d")
    assert answer_of(data).render() == answer("HTTP/1.1 200 OK", "A: b", "Transfer-Encoding: chunked", "C: d")


@pytest.mark.parametrize(
    "field", ["Transfer-Encoding: chunked", "tRANSFER-eNCODING: chunked", "Transfer-Encoding:chunked"]
)
def test_a_plain_coding_stays_as_it_came(field: str) -> None:
    data = request("POST / HTTP/1.1", field, "C: d")
    assert head_of(data).render() == data
    assert answer_of(answer("HTTP/1.1 200 OK", field)).render() == answer("HTTP/1.1 200 OK", field)


def left(trailers: Trailers | None) -> bytes:
    return b"" if trailers is None else trailers.lines


def test_trailers_lose_what_belongs_to_a_hop() -> None:
    came = trailer_fields(b"A: b\r\nConnection: x\r\nx-hop: 1\r\nX-Attempt-Count: 2\r\nKeep-Alive: 3\r\nC: d\r\n")
    asked = head_of(request("POST / HTTP/1.1", "Connection: X-Hop", "Transfer-Encoding: chunked"))
    told = answer_of(answer("HTTP/1.1 200 OK", "Connection: X-Hop", "Transfer-Encoding: chunked"))
    assert left(asked.trailers_to_send(came)) == left(told.trailers_to_forward(came)) == b"A: b\r\nC: d\r\n"
    plain = head_of(request("POST / HTTP/1.1", "Transfer-Encoding: chunked"))
    assert left(plain.trailers_to_send(trailer_fields(b"A: b\r\n"))) == b"A: b\r\n"
    assert plain.trailers_to_send(trailer_fields(b"Te: b\r\n")) is None


def test_heads_with_the_same_field_lines_say_so() -> None:
    head = head_of(request("GET /a HTTP/1.1", "X-App: web", "A: 1"))
    other = head_of(request("POST /longer?q HTTP/1.1", "X-App: web", "A: 1"))
    assert head.has_lines_of(head) and head.has_lines_of(other) and other.has_lines_of(head)
    for fields in (("X-App: web", "A: 2"), ("X-App: web",), ("A: 1", "X-App: web"), ("x-app: web", "A: 1"), ()):
        assert not head.has_lines_of(head_of(request("GET /a HTTP/1.1", *fields)))
