"""Bodies: by length, chunked with its bounds, until close; re-framing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.two_runs import examples
from wire_cases import BAD_BODIES, CHUNKED_BODIES, read_chunked

from proxy.wire.errors import BadBody
from proxy.wire.head import CHUNKED, UNTIL_CLOSE, trailer_fields
from proxy.wire.http1 import chunk_data
from proxy.wire.http1.body import (
    EXTENSIONS,
    LINE,
    TRAILER_BYTES,
    ChunkedBody,
    LengthBody,
    UntilCloseBody,
    body_reader,
    chunk,
    end_chunked,
)
from proxy.wire.http1.chunk_data import gathered
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.parser import RequestParser


@pytest.mark.parametrize("case", CHUNKED_BODIES)
def test_chunked(case: str) -> None:
    data, payload, trailers, behind = CHUNKED_BODIES[case]
    assert read_chunked([data]) == (payload, trailers, behind)


@pytest.mark.parametrize("case", BAD_BODIES)
def test_bad_chunked(case: str) -> None:
    assert read_chunked([BAD_BODIES[case]]) == ("bad",)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"1",
        b"fff",
        b"1;",
        b"1;abc",
        b"1\r",
        b"1;a\r",
        b"1\r\n",
        b"1\r\na",
        b"1\r\na\r",
        b"0\r\n",
        b"0\r\n\r",
        b"0\r\nA:",
        b"0\r\nA: b\r\n",
        b"0\r\nA: b\r\n\r",
    ],
)
def test_unfinished_is_neither_whole_nor_bad(begun: bytes) -> None:
    for packets in ([begun], [bytes([octet]) for octet in begun]):
        result = read_chunked(packets)
        assert result[0] is None
        assert result[1] == (b"a" if begun.startswith(b"1\r\na") else b"")


@pytest.mark.parametrize(
    "begun",
    [
        b"x",
        b"0x",
        b"1 \r",
        b"1 a",
        b"1\n",
        b"1\rx",
        b"1;\0",
        b"1;a\n",
        b"1\r\nab",
        b"1\r\na\n",
        b"00000000000000000",
        b"0\r\n\n",
        b"0\r\nA: \0",
        b"0\r\nA: b\n",
        b"0\r\n\rx",
    ],
)
def test_what_can_never_become_good_is_refused_at_once(begun: bytes) -> None:
    assert read_chunked([begun]) == ("bad",)
    assert read_chunked([bytes([octet]) for octet in begun]) == ("bad",)


def in_one_and_in_many(data: bytes) -> tuple[object, ...]:
    whole = read_chunked([data])
    for size in (1, 1000):
        assert read_chunked([data[at : at + size] for at in range(0, len(data), size)]) == whole
    return whole


def test_a_size_line_is_bounded() -> None:
    longest = b"1;" + b"x" * (LINE - 4) + b"\r\n"
    assert in_one_and_in_many(longest + b"a\r\n0\r\n\r\n") == (b"a", b"", b"")
    assert in_one_and_in_many(b"1;" + b"x" * (LINE - 3) + b"\r\na\r\n0\r\n\r\n") == ("bad",)
    assert read_chunked([b"1;" + b"x" * LINE]) == ("bad",)


def test_extensions_are_bounded_for_a_body() -> None:
    line = b"1;" + b"x" * 1023 + b"\r\na\r\n"
    most = EXTENSIONS // 1024
    assert in_one_and_in_many(line * most + b"0\r\n\r\n") == (b"a" * most, b"", b"")
    assert in_one_and_in_many(line * most + b"0;\r\n\r\n") == ("bad",)


def test_trailers_are_bounded() -> None:
    longest = b"A: " + b"b" * (TRAILER_BYTES - 7) + b"\r\n"
    assert in_one_and_in_many(b"0\r\n" + longest + b"\r\n") == (b"", longest, b"")
    assert in_one_and_in_many(b"0\r\nA" + longest + b"\r\n") == ("bad",)


def test_trailers_are_fields() -> None:
    body = ChunkedBody()
    assert body.feed(b"0\r\nGrpc-Status: 14 \r\nx: a\r\nX: b\r\n\r\n") == (b"", True, b"")
    fields = trailer_fields(body.trailers)
    assert fields.get_all("grpc-status") == ["14"]
    assert fields.get_all("x") == ["a", "b"]
    assert fields.pairs() == [(b"Grpc-Status", b"14"), (b"x", b"a"), (b"X", b"b")]
    assert trailer_fields(b"").pairs() == []


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 200)), max_size=8))
def test_pieces_are_gathered_in_order(parts: list[tuple[bytes, int]]) -> None:
    """By compiled code as by Python alone: small pieces and large ones, with framing between them."""
    data, spans, payload = b"", list[int](), b""
    for text, times in parts:
        data += b"line\r\n"
        spans += [len(data), len(data) + len(text) * times]
        data += text * times
        payload += text * times
    assert gathered(data, spans) == payload == chunk_data._gathered(data, spans)


def test_a_piece_that_is_all_is_not_copied() -> None:
    data = b"x" * 100
    assert gathered(data, [0, 100]) is data
    assert gathered(data, []) == b""


@pytest.mark.skipif(CORE != "compiled", reason="Python's own slices are within their bytes")
@pytest.mark.parametrize("spans", [[0], [0, 6], [-1, 2], [3, 2], [0, 2, 4, 9], [0, 1 << 62]])
def test_no_piece_is_outside_of_its_bytes(spans: list[int]) -> None:
    with pytest.raises(ValueError, match="piece"):
        gathered(b"12345", spans)


@pytest.mark.parametrize("behind", [b"", b"GET / HTTP/1.1"])
def test_a_body_is_read_from_where_its_head_ends(behind: bytes) -> None:
    """The bytes after a head are read where they lie."""
    parser = RequestParser()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n"
    assert parser.feed(head + body + behind) is not None
    reader = ChunkedBody()
    assert parser.begin_body(reader) == (b"abcde", True, behind)
    assert reader.trailers == b"A: b\r\n"
    assert parser.leftover() == b"" and not parser.pending
    assert parser.feed(head) is not None
    assert parser.begin_body(ChunkedBody()) == (b"", False, b"")


@pytest.mark.parametrize("at", [0, 3])
def test_a_body_begins_within_its_bytes(at: int) -> None:
    assert LengthBody(5).feed(b"abc"[:at] + b"hello, next", at) == (b"hello", True, b", next")
    assert UntilCloseBody().feed(b"abc"[:at] + b"all", at) == (b"all", False, b"")
    assert ChunkedBody().feed(b"abc"[:at] + b"1\r\na\r\n0\r\n\r\nnext", at) == (b"a", True, b"next")


def test_by_length() -> None:
    body = LengthBody(5)
    assert body.feed(b"he") == (b"he", False, b"")
    assert body.feed(b"") == (b"", False, b"")
    assert body.feed(b"llo, next") == (b"llo", True, b", next")


def test_by_length_exactly() -> None:
    assert LengthBody(5).feed(b"hello") == (b"hello", True, b"")


def test_until_close() -> None:
    body = UntilCloseBody()
    assert body.feed(b"anything") == (b"anything", False, b"")


def test_the_reader_for_a_framing() -> None:
    assert body_reader(0) is None
    assert isinstance(body_reader(1), LengthBody)
    assert isinstance(body_reader(CHUNKED), ChunkedBody)
    assert isinstance(body_reader(UNTIL_CLOSE), UntilCloseBody)


def test_reframing() -> None:
    assert chunk(b"") == b""
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert end_chunked() == b"0\r\n\r\n"
    assert end_chunked(b"A: b\r\n") == b"0\r\nA: b\r\n\r\n"


@settings(max_examples=examples(150), deadline=None)
@given(
    payloads=st.lists(st.binary(max_size=40), max_size=6),
    trailers=st.lists(
        st.tuples(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text("ab \t~", max_size=8)), max_size=3
    ),
    behind=st.binary(max_size=5),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_what_is_framed_reads_back(
    payloads: list[bytes], trailers: list[tuple[str, str]], behind: bytes, cuts: list[int]
) -> None:
    section = b"".join(f"x-{name}: {value}\r\n".encode() for name, value in trailers)
    data = b"".join(map(chunk, payloads)) + end_chunked(section) + behind
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    packets = [data[a:b] for a, b in pairwise(edges)]
    assert read_chunked(packets) == (b"".join(payloads), section, behind)


def test_a_reader_is_done_once() -> None:
    body = ChunkedBody()
    assert body.feed(b"0\r\n\r\n") == (b"", True, b"")
    assert body.feed(b"more") == (b"", True, b"more")


def test_bad_bodies_say_why() -> None:
    with pytest.raises(BadBody) as caught:
        ChunkedBody().feed(b"1\r\nab\r\n")
    assert "longer" in caught.value.detail
