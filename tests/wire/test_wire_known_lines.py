"""Lines that came before are read as they were the first time, and what is remembered of them is bounded."""

from __future__ import annotations

import pytest
from wire_cases import answer, request

from proxy.wire.errors import BadMessage
from proxy.wire.field_names import find_request
from proxy.wire.http1.known_lines import HEADS, KEPT, LONGEST, LONGEST_HEAD, MANY, KnownLines
from proxy.wire.http1.parser import RequestParser, ResponseParser


def lines_of_requests() -> KnownLines[str]:
    return KnownLines(find_request)


def test_lines_with_a_name_that_matters_are_told_in_order() -> None:
    known, lines = lines_of_requests(), [b"hOST: A", b"X: 1", b"Via:  B ", b"Authorization: Basic 1", b"Via: c"]
    for _ in range(2):
        significant = known.significant(lines)
        assert significant == [b"hOST: A", b"Via:  B ", b"Via: c"]
        assert known.pairs(significant) == [(b"host", b"a"), (b"via", b"b "), (b"via", b"c")]


def test_a_login_matters_in_any_case_and_alone() -> None:
    lines = [b"Authorization: NTLM", b"authorization:negotiate abc", b"Authorization: Negotiated"]
    assert lines_of_requests().significant(lines) == lines[:2]


@pytest.mark.parametrize("line", [b"", b"X", b"X : y", b": y", b"X: \0", b"X: a\nHost: b", b"X: a\r", b" X: y"])
def test_a_malformed_line_is_not_taken_however_often_it_comes(line: bytes) -> None:
    known = lines_of_requests()
    assert known.significant([b"Host: a", line]) is None
    assert known.significant([b"Host: a", line]) is None


def test_what_is_remembered_is_bounded() -> None:
    known = lines_of_requests()
    for n in range(3 * KEPT):
        significant = known.significant(
            [b"Host: a", b"X-Request-Id: %d" % n, b"Content-Length: %d" % n, b"X: " + b"x" * LONGEST]
        )
        assert significant == [b"Host: a", b"Content-Length: %d" % n]
        assert known.pairs(significant) == [(b"host", b"a"), (b"content-length", b"%d" % n)]
        assert len(known._plain) + len(known._significant) <= KEPT
        assert max(map(len, known._plain | known._significant.keys())) <= LONGEST
        known.keep(tuple(significant), "head", LONGEST_HEAD)
        assert len(known.heads) <= HEADS
    known.heads.clear()
    known.keep((b"Host: a",), "head", LONGEST_HEAD + 1)
    assert not known.heads
    assert known.significant([b"X: y"] * (MANY + 1)) is None


def test_a_head_has_nothing_of_one_whose_lines_were_alike() -> None:
    """Framing decides by how a coding is spelt, too; and lines that follow each other in another order are others."""
    parser = RequestParser(compiled=False)
    plain = parser.feed(request("POST / HTTP/1.1", "Transfer-Encoding: chunked"))
    odd = parser.feed(request("POST / HTTP/1.1", "Transfer-Encoding:  CHUNKED"))
    assert plain is not None and plain.slow_path is None and plain.chunked
    assert odd is not None and odd.chunked and odd.slow_path is not None
    first = parser.feed(request("GET /1 HTTP/1.1", "X: 1", "Via: 1.1 a"))
    second = parser.feed(request("GET /2 HTTP/1.1", "X: 2", "Via: 1.1 a"))
    assert first is not None and second is not None
    assert (first.get_all("x"), second.get_all("x")) == (["1"], ["2"])
    assert first.render(host=b"there") == b"GET /1 HTTP/1.1\r\nHost: there\r\nX: 1\r\nVia: 1.1 a\r\n\r\n"
    assert second.render(host=b"there") == b"GET /2 HTTP/1.1\r\nHost: there\r\nX: 2\r\nVia: 1.1 a\r\n\r\n"


def test_an_answer_has_its_own_status_and_fields() -> None:
    parser = ResponseParser(compiled=False)
    for status, field in (("200 OK", "X: 1"), ("201 OK", "X: 2"), ("503 No", "X: 3"), ("200 Fine", "X: 4")):
        for _ in range(2):
            data = answer(f"HTTP/1.1 {status}", "Content-Length: 3", field) + b"abc"
            head, rest = parser.take(data)
            assert head is not None and rest == b"abc" and not parser.pending
            assert (head.status, head.get_all("x")) == (int(status[:3]), [field[3:]])
            assert head.message(b"", rest, frozenset()) == data


@pytest.mark.parametrize("host", ["Host: h.example", "hOST: h.example", "host:h.example"])
@pytest.mark.parametrize("more", [(), ("Connection: keep-alive",), ("connection:Keep-Alive",)])
@pytest.mark.parametrize("first", [True, False])
def test_host_is_replaced_and_connection_cut_wherever_they_stand(host: str, more: tuple[str, ...], first: bool) -> None:
    lines = ["A: b", *more, "X-Host: c"]
    lines.insert(0 if first else 3 if more else 1, host)
    text = request("GET /a HTTP/1.1", *lines, host=None)
    head = RequestParser(compiled=False).feed(text)
    assert head is not None and head.simple
    kept = [line for line in lines if line not in more]
    assert head.render() == request("GET /a HTTP/1.1", *kept, host=None)
    assert head.render(host=b"there") == request(
        "GET /a HTTP/1.1", *["Host: there" if line == host else line for line in kept], host=None
    )


def test_a_head_beyond_a_limit_is_refused_though_its_lines_are_known() -> None:
    text = request("GET / HTTP/1.1", "A: b", "C: d")
    assert RequestParser(compiled=False).feed(text) is not None
    with pytest.raises(BadMessage, match="more than 2 header fields"):
        RequestParser(headers=2, compiled=False).feed(text)
    with pytest.raises(BadMessage, match="longer than 40 bytes"):
        RequestParser(header_bytes=40, compiled=False).feed(text)
