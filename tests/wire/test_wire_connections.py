"""A head that follows another on its connection is the head that it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.wire.errors import BadMessage
from proxy.wire.http1.parser import RequestParser, ResponseParser
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead

HOST = ("Host", "a")
NAMES = (
    *("Host", "host", "X-Request-Id", "Cookie", "Accept", "X-A", "X-a", "Content-Length", "Transfer-Encoding"),
    *("Connection", "X-Retry-Timeout", "Authorization", "Content-Type", "Via", "X-Attempt-Count", "TE", "Expect"),
    *("Proxy-Connection", "Keep-Alive", "Date", "X-100%-b", "%b", ""),
)
VALUES = (
    *(
        "a",
        "b",
        "one two",
        " padded ",
        "",
        "5",
        "7",
        " 7",
        "7 ",
        "07",
        "1" * 19,
        "keep-alive",
        "close",
        "x-a",
        "chunked",
    ),
    *("NTLM x", "Bearer y", "%b", "50%", "50%%d", "a: b", "Host: evil", "\xe9", "bad\x00", "bad\n", "\ttab"),
)
LINES = (
    "GET /a HTTP/1.1",
    "GET /b?x=%20 HTTP/1.1",
    "POST / HTTP/1.1",
    "GET http://u.example/a HTTP/1.1",
    "GET /a HTTP/1.0",
)

first_lines = st.sampled_from(LINES)
PLAIN = ("X-Request-Id", "Cookie", "Accept", "X-A", "X-100%-b")
some = st.lists(st.tuples(st.sampled_from(PLAIN) | st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)
fields = some.map(lambda pairs: [HOST, *pairs]) | some.map(lambda pairs: [*pairs, HOST]) | some
#: A head, and what becomes of its values in those behind it.
rows = st.tuples(fields, st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(VALUES))), max_size=5))


def written(line: str, pairs: list[tuple[str, str]]) -> bytes:
    return "".join([f"{line}\r\n", *(f"{name}:{value}\r\n" for name, value in pairs), "\r\n"]).encode("latin-1")


def shown(head: RequestHead | None) -> dict[str, Any]:
    """All that can be read of a head."""
    assert head is not None
    plain = (name for name in RequestHead.__slots__ if not name.startswith("_"))
    seen = {name: getattr(head, name) for name in plain}
    more = ("body_size", "upgrade", "expect_continue", "max_forwards", "login_bound", "slow_path", "raw")
    seen |= {name: getattr(head, name) for name in more}
    seen["values"] = {name.lower(): list(head.get_all(name.lower())) for name in NAMES if name}
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"target": b"/t", "host": b"there", "add": b"Via: us\r\n"},
        {"host": b"here"},
        {"drop": frozenset({b"x-a"})},
        {"drop": frozenset({b"x-attempt-count"}), "host": b"there"},
    )
    return seen | {"sent": [head.render(**way) for way in ways]}


def read(parser: RequestParser, data: bytes) -> tuple[str, object, bytes]:
    try:
        head = parser.feed(data)
    except BadMessage as bad:
        return "refused", str(bad), b""
    rest = parser.leftover() if parser.pending else b""
    return "read", shown(head), rest


@settings(max_examples=examples(600), deadline=None)
@given(rows, st.lists(first_lines, min_size=6, max_size=6), st.booleans())
@example(([HOST, ("Content-Length", "5")], [[(1, "7")], [(1, " 7")], [(1, "7 ")], [(1, "x")]]), [LINES[2]] * 6, True)
@example(([HOST, ("X-A", "a"), ("X-A", "a")], [[(2, "b")], [(2, "a")], [(1, "b")]]), [LINES[0]] * 6, False)
@example(([HOST, ("%b", "50%"), ("X-100%-b", "%b")], [[(1, "%b")], [(2, "50%%d")]]), [LINES[0]] * 6, False)
@example(([HOST, ("X-A", "a")], [[(0, "b")], [(1, "bad\n")]]), [LINES[0]] * 6, False)
@example(
    ([HOST, ("Cookie", "a"), ("Connection", "keep-alive")], [[(1, "b")], [(1, "Host: evil")]]), [LINES[3]] * 6, True
)
def test_each_head_of_a_connection_is_as_if_it_came_alone(
    row: tuple[list[tuple[str, str]], list[list[tuple[int, str]]]], lines: list[str], body: bool
) -> None:
    pairs, changes = row
    parser, heads = RequestParser(), [list(pairs)]
    for change in changes:
        pairs = list(pairs)
        for at, value in change:
            if at < len(pairs):
                pairs[at] = pairs[at][0], value
        heads.append(pairs)
    for line, head in zip(lines, heads, strict=False):
        data = written(line, head) + (b"body" if body else b"")
        found, alone = read(parser, data), read(RequestParser(), data)
        assert found == alone
        if found[0] == "refused":
            return


STATUSES = ("HTTP/1.1 200 OK", "HTTP/1.1 503 No", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 204 No Content")
OF_ANSWERS = ("Date", "ETag", "Retry-After", "grpc-status", "Set-Cookie", "Connection", "WWW-Authenticate", *PLAIN)
answers = st.lists(
    st.tuples(st.sampled_from((*OF_ANSWERS, "Content-Length", "Transfer-Encoding", "")), st.sampled_from(VALUES)),
    max_size=6,
)


def shown_answer(head: ResponseHead | None) -> dict[str, Any]:
    """All that can be read of an answer's head."""
    assert head is not None
    plain = (name for name in ResponseHead.__slots__ if not name.startswith("_") and name != "specials")
    seen = {name: getattr(head, name) for name in (*plain, "upgrade", "login_bound", "slow_path", "raw")}
    seen["specials"] = {name: value for name, value in head.specials.items() if name != b"date"}
    seen["dated"] = b"date" in head.specials
    seen["sizes"] = [head.body_size(method) for method in ("GET", "HEAD", "CONNECT")]
    seen["values"] = {name.lower(): list(head.get_all(name.lower())) for name in OF_ANSWERS}
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"add": b"Via: us\r\n"},
        {"drop": frozenset({b"x-a"})},
        {"drop": frozenset({b"x-attempt-count"})},
    )
    return seen | {"sent": [head.render(**way) for way in ways]}


def read_answer(parser: ResponseParser, data: bytes) -> tuple[str, object, bytes]:
    try:
        head, rest = parser.take(data)
        return "read", shown_answer(head), rest
    except BadMessage as bad:
        return "refused", str(bad), b""


@settings(max_examples=examples(600), deadline=None)
@given(
    answers,
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(VALUES))), max_size=5),
    st.lists(st.sampled_from(STATUSES) | st.just(STATUSES[0]), min_size=6, max_size=6),
    st.booleans(),
)
@example([("Date", "a"), ("Content-Length", "5")], [[(0, "b")], [(1, "7")], [(1, "7 ")]], [STATUSES[0]] * 6, True)
@example([("Connection", "keep-alive"), ("X-A", "1")], [[(1, "b")], [(1, "%b")]], [STATUSES[0]] * 6, True)
@example([("Connection", "date"), ("Date", "1")], [[(1, "b")], [(1, "%b")]], [STATUSES[0]] * 6, True)
def test_each_answer_of_a_connection_is_as_if_it_came_alone(
    pairs: list[tuple[str, str]], changes: list[list[tuple[int, str]]], lines: list[str], body: bool
) -> None:
    parser, heads = ResponseParser(), [list(pairs)]
    for change in changes:
        pairs = list(pairs)
        for at, value in change:
            if at < len(pairs):
                pairs[at] = pairs[at][0], value
        heads.append(pairs)
    for line, head in zip(lines, heads, strict=False):
        data = written(line, head) + (b"body" if body else b"")
        found = read_answer(parser, data)
        assert found == read_answer(ResponseParser(), data)
        if found[0] == "refused":
            return


def test_a_head_that_grows_meets_the_limits() -> None:
    parser = RequestParser(header_bytes=300)
    for size in (10, 20, 200):
        assert parser.feed(written("GET / HTTP/1.1", [HOST, ("X-A", "x" * size)])) is not None
    with pytest.raises(BadMessage, match="longer than 300"):
        parser.feed(written("GET / HTTP/1.1", [HOST, ("X-A", "x" * 300)]))
