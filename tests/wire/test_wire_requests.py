"""Request heads: what is taken, what is refused and how, limits."""

from __future__ import annotations

import pytest
from wire_cases import REFUSED, TAKEN, request

from proxy.retry import facts
from proxy.wire import field_names as names
from proxy.wire.errors import Refused
from proxy.wire.http1.parser import RequestParser


@pytest.mark.parametrize("case", TAKEN)
def test_taken(case: str) -> None:
    data, expected = TAKEN[case]
    head = RequestParser().feed(data)
    assert head is not None
    assert {name: getattr(head, name) for name in expected} == expected


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    data, status = REFUSED[case]
    with pytest.raises(Refused) as caught:
        RequestParser().feed(data)
    assert caught.value.status == status
    assert caught.value.title
    assert caught.value.detail


@pytest.mark.parametrize("case", TAKEN)
def test_a_head_after_another_on_the_connection_reads_the_same(case: str) -> None:
    data, expected = TAKEN[case]
    parser = RequestParser()
    for _ in range(3):
        head = parser.feed(data)
        assert head is not None
        assert {name: getattr(head, name) for name in expected} == expected
        parser.leftover()


def test_the_same_fields_behind_another_line() -> None:
    parser = RequestParser()
    fields = ("Content-Length: 3", "X-A: b", "Connection: keep-alive")
    first = parser.feed(request("POST /a HTTP/1.1", *fields))
    other = request("PUT http://o.example/b?c HTTP/1.1", *fields)
    second, fresh = parser.feed(other), RequestParser().feed(other)
    assert first is not None and second is not None and fresh is not None
    names = [name for name in ("raw", "lowered", *type(fresh).__slots__) if hasattr(fresh, name)]
    assert {name: getattr(second, name) for name in names} == {name: getattr(fresh, name) for name in names}
    assert second.render() == fresh.render()


@pytest.mark.parametrize(
    "line",
    [
        "GET /\x01 HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET  / HTTP/1.1",
        "GET / HTTP/2.0",
        "GET /#a HTTP/1.1",
        "M" * 65 + " / HTTP/1.1",
    ],
)
def test_the_same_fields_behind_a_bad_line(line: str) -> None:
    parser = RequestParser()
    assert parser.feed(request()) is not None
    with pytest.raises(Refused) as after:
        parser.feed(request(line))
    with pytest.raises(Refused) as alone:
        RequestParser().feed(request(line))
    assert (after.value.status, after.value.detail) == (alone.value.status, alone.value.detail)


def test_pipelined_heads_come_one_by_one() -> None:
    parser = RequestParser()
    head = parser.feed(b"".join(request(f"GET /{n} HTTP/1.1") for n in range(5)) + b"GET /un")
    targets = []
    while head is not None:
        targets.append(head.target)
        head = parser.feed(b"")
    assert targets == [b"/0", b"/1", b"/2", b"/3", b"/4"]
    assert parser.pending
    head = parser.feed(b"finished HTTP/1.1\r\nHost: h\r\n\r\nrest")
    assert head is not None and head.target == b"/unfinished"
    assert parser.leftover() == b"rest"
    assert not parser.pending


def test_an_empty_line_may_precede_every_request() -> None:
    parser = RequestParser()
    for packets in ([b"\r\n"], [b"\r", b"\n"], []):
        for packet in packets:
            assert parser.feed(packet) is None
        assert not parser.pending
        assert parser.feed(request()) is not None


def test_an_idle_connection_holds_nothing() -> None:
    parser = RequestParser()
    assert parser.feed(b"") is None
    assert not parser.pending
    assert parser.leftover() == b""


HEAD = request("GET / HTTP/1.1", "X: " + "a" * 50)


@pytest.mark.parametrize("behind", [b"", b"more"])
def test_a_head_may_fill_the_limit_but_not_pass_it(behind: bytes) -> None:
    assert RequestParser(header_bytes=len(HEAD)).feed(HEAD + behind) is not None
    with pytest.raises(Refused) as caught:
        RequestParser(header_bytes=len(HEAD) - 1).feed(HEAD + behind)
    assert caught.value.status == 431


def test_a_request_line_beyond_the_limit() -> None:
    long = request("GET /" + "a" * 100 + " HTTP/1.1")
    for data in (long, long[:100]):
        with pytest.raises(Refused) as caught:
            RequestParser(header_bytes=100).feed(data)
        assert caught.value.status == 414


def test_an_unfinished_head_is_refused_when_the_limit_is_reached() -> None:
    parser = RequestParser(header_bytes=200)
    with pytest.raises(Refused) as caught:
        for octet in request("GET / HTTP/1.1", "X: " + "a" * 500):
            assert parser.feed(bytes([octet])) is None
    assert caught.value.status == 431


def test_the_number_of_fields_is_limited() -> None:
    fields = [f"X{n}: y" for n in range(255)]
    assert RequestParser().feed(request("GET / HTTP/1.1", *fields)) is not None
    assert RequestParser(headers=3).feed(request("GET / HTTP/1.1", "A:", "B:")) is not None
    for parser, data in (
        (RequestParser(), request("GET / HTTP/1.1", *fields, "Z:")),
        (RequestParser(headers=2), request("GET / HTTP/1.1", "A:", "B:")),
    ):
        with pytest.raises(Refused) as caught:
            parser.feed(data)
        assert caught.value.status == 431


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET / HTTP/2.0", 505), ("GET /", 400), ("G" * 65 + " / HTTP/1.1", 501), ("GET /\t HTTP/1.1", 400)],
)
def test_a_bad_line_is_refused_as_soon_as_it_is_whole(line: str, status: int) -> None:
    with pytest.raises(Refused) as caught:
        RequestParser().feed(line.encode() + b"\r\n")
    assert caught.value.status == status


def test_fields_are_read_without_case_and_white_space() -> None:
    head = RequestParser().feed(
        request("GET / HTTP/1.1", "X-A:  One \t", "x-a:tWo", "Via:\t1.1 A", "via: 1.1 B", "X-Ab: no")
    )
    assert head is not None
    assert head.get_all("x-a") == ["One", "tWo"]
    assert head.get_all("via") == ["1.1 A", "1.1 B"]
    assert head.get(b"x-a") == b"One"
    assert head.get(b"x-b") is None
    assert list(head.get_all("x-b")) == []
    assert list(head.get_all("expect")) == []
    assert head.get_all("host") == ["h.example"]
    assert head.pairs()[:2] == [(b"Host", b"h.example"), (b"X-A", b"One")]
    assert head.specials[b"host"] == b"h.example"


def test_a_name_in_a_value_or_target_is_no_field() -> None:
    head = RequestParser().feed(request("GET /x-a:1 HTTP/1.1", "B: x-a: 2", "C: Connection: close"))
    assert head is not None
    assert list(head.get_all("x-a")) == []
    assert head.simple


def test_every_field_that_steers_a_call_is_among_the_names_that_matter() -> None:
    """Who reads a head may take their absence from `specials` for a fact."""
    assert set(names.REQUEST_KEYS) >= facts.STEERING_FIELDS
    assert set(names.REQUEST_KEYS) >= {"via", "expect", "content-type", "early-data", "sec-fetch-site"}
    assert set(names.ANSWER_KEYS) >= {"date", *facts.PUSHBACK_FIELDS}
