"""Heads of answers: what is taken, what is a bad answer, and how the body is framed."""

from __future__ import annotations

import pytest
from wire_cases import ANSWERS, BAD_ANSWERS, answer

from proxy.wire.errors import BadAnswer
from proxy.wire.head import CHUNKED, UNTIL_CLOSE
from proxy.wire.http1.parser import ResponseParser


@pytest.mark.parametrize("case", ANSWERS)
def test_taken(case: str) -> None:
    data, expected = ANSWERS[case]
    parser = ResponseParser()
    for _ in range(2):
        head = parser.feed(data)
        assert head is not None
        assert {name: getattr(head, name) for name in expected} == expected
        parser.leftover()


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_bad(case: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        ResponseParser().feed(BAD_ANSWERS[case])
    assert caught.value.detail


LENGTH = ("Content-Length: 5",)
CODED = ("Transfer-Encoding: chunked",)


@pytest.mark.parametrize(
    ("line", "fields", "method", "size"),
    [
        ("HTTP/1.1 200 OK", LENGTH, "GET", 5),
        ("HTTP/1.1 200 OK", CODED, "GET", CHUNKED),
        ("HTTP/1.1 200 OK", (), "GET", UNTIL_CLOSE),
        ("HTTP/1.0 200 OK", (), "GET", UNTIL_CLOSE),
        ("HTTP/1.1 200 OK", LENGTH, "HEAD", 0),
        ("HTTP/1.1 200 OK", CODED, "HEAD", 0),
        ("HTTP/1.1 200 OK", (), "HEAD", 0),
        ("HTTP/1.1 204 No Content", LENGTH, "GET", 0),
        ("HTTP/1.1 204 No Content", (), "GET", 0),
        ("HTTP/1.1 205 Reset", (), "GET", UNTIL_CLOSE),
        ("HTTP/1.1 304 Not Modified", LENGTH, "GET", 0),
        ("HTTP/1.1 304 Not Modified", CODED, "GET", 0),
        ("HTTP/1.1 100 Continue", (), "POST", 0),
        ("HTTP/1.1 101 Switching", (), "GET", 0),
        ("HTTP/1.1 200 OK", LENGTH, "CONNECT", 0),
        ("HTTP/1.1 407 No", LENGTH, "CONNECT", 5),
        ("HTTP/1.1 200 OK", LENGTH, "head", 5),
    ],
)
def test_framing(line: str, fields: tuple[str, ...], method: str, size: int) -> None:
    head = ResponseParser().feed(answer(line, *fields))
    assert head is not None
    assert head.body_size(method) == size


def test_informational_answers_precede_the_final_one() -> None:
    parser = ResponseParser()
    heads = answer("HTTP/1.1 100 Continue") + answer("HTTP/1.1 103 Early Hints", "Link: <x>")
    head = parser.feed(heads + answer("HTTP/1.1 200 OK", "Content-Length: 2") + b"ok")
    statuses = []
    while head is not None:
        statuses.append(head.status)
        head = parser.feed(b"") if head.status < 200 else None
    assert statuses == [100, 103, 200]
    assert parser.leftover() == b"ok"


def test_a_head_beyond_the_limits_is_a_bad_answer() -> None:
    for data in (answer("HTTP/1.1 200 OK", "X: " + "a" * 200), b"HTTP/1.1 200 " + b"a" * 200):
        with pytest.raises(BadAnswer):
            ResponseParser(header_bytes=100).feed(data)
    with pytest.raises(BadAnswer):
        ResponseParser(headers=2).feed(answer("HTTP/1.1 200 OK", "A:", "B:", "C:"))


def test_a_wrong_beginning_is_found_when_its_line_ends() -> None:
    parser = ResponseParser()
    assert parser.feed(b"<html>") is None
    with pytest.raises(BadAnswer):
        parser.feed(b"\r\n")
