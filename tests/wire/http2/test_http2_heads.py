"""Heads of HTTP/2: transparent from block to block, and translated from and to HTTP/1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hpack
import pytest
from talk import GET, OK, POST, block

from proxy.wire.errors import Refused
from proxy.wire.field_names import MISLEADING_TRAILERS
from proxy.wire.http1.body import BadBody, ChunkedBody
from proxy.wire.http1.parser import RequestParser, ResponseParser
from proxy.wire.http1.syntax import FIELD_LINE
from proxy.wire.http2.fields import Malformed, Trailers2, read_trailers
from proxy.wire.http2.heads import answer_block, own_block, request_block, trailers_block
from proxy.wire.http2.hpack import PeerTable, Unreadable, encoded_lines, literal, walk
from proxy.wire.http2.request import Request2, read_request
from proxy.wire.http2.response import read_answer
from proxy.wire.rebuilt import rebuilt


def decoded(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(data, raw=True)]


def request(*fields: tuple[bytes, bytes], whole: bool = True, of: Any = GET) -> Request2:
    return read_request(block(*of, *fields), whole)


#: What becomes of some fields on HTTP/1: of a request, an answer, an interim one, trailers, and from a peer's table.
READERS: list[Callable[[bytes], bytes]] = [
    lambda fields: read_request(block(*GET) + fields, True).render(),
    lambda fields: read_answer(block(*OK) + fields, True).render(),
    lambda fields: read_answer(block((b":status", b"103")) + fields, False).render(),
    lambda fields: b"\r\n" + read_trailers(fields).lines,
    lambda fields: Request2(PeerTable(1 << 16).read(block(*GET) + fields), True).render(),
]


# -- transparency -----------------------------------------------------------------------------------------------------


def test_fields_go_on_as_they_were_encoded() -> None:
    huffman = hpack.Encoder().encode([(b"x-h", b"some value")], huffman=True)
    parts = [
        b"\x00\x03x-a\x011",  # without indexing
        b"\x10\x03x-b\x03\xff\xfe\x80",  # never indexed, octets
        b"\x00\x05a-bin\x04ab==",
        b"\x0f\x1e\x03new",  # index 45, over a prefix of four bits
        b"\x00\x03x-a\x012",
        b"\x5f\x10application/grpc",  # incremental: goes on without indexing
        huffman,  # the same
        b"\x40\x03x-c\x01c",
    ]
    head = read_request(block(*GET) + b"".join(parts), True)
    sent = head.block(b"http", None, None)
    assert sent == block(*GET) + b"".join(parts[:5]) + (
        b"\x0f\x10\x10application/grpc" + b"\x00" + huffman[1:] + b"\x00\x03x-c\x01c"
    )
    assert decoded(sent) == decoded(block(*GET) + b"".join(parts))


def test_what_is_replaced_left_out_and_added() -> None:
    head = request((b"a", b"1"), (b"x-retry-disable", b"1"), (b"te", b"trailers"), (b"b", b"2"))
    sent = head.block(b"https", b"up.test:1", b"/x/a", frozenset({b"a"}), b"Via: 2.0 r\r\nX-Attempt-Count: 1\r\n")
    assert decoded(sent) == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"up.test:1"),
        (b":path", b"/x/a"),
        (b"te", b"trailers"),
        (b"b", b"2"),
        (b"via", b"2.0 r"),
        (b"x-attempt-count", b"1"),
    ]
    assert decoded(head.block(b"http", None, None))[-3:] == [(b"a", b"1"), (b"te", b"trailers"), (b"b", b"2")]


def test_an_authority_that_is_replaced_takes_host_with_it() -> None:
    head = request((b"host", b"api.test"))
    assert (b"host", b"api.test") in decoded(head.block(b"http", None, None))
    assert decoded(head.block(b"http", b"u", None)) == [*GET[:2], (b":authority", b"u"), GET[3]]
    alone = request((b"host", b"api.test"), of=(*GET[:2], GET[3]))
    assert alone.authority == "api.test"
    assert (b":authority", b"u") in decoded(alone.block(b"http", b"u", None))


def test_max_forwards_is_counted_down() -> None:
    head = request((b"max-forwards", b"3"), of=((b":method", b"OPTIONS"), *GET[1:]))
    assert (b"max-forwards", b"2") in decoded(head.block(b"http", None, None))


def test_an_answer_goes_on_as_it_was_encoded() -> None:
    head = read_answer(b"\x88\x40\x01a\x011" + block((b"x-attempt-count", b"9"), (b"a", b"\xff")), False)
    assert head.block(add=b"Via: 2.0 r\r\n") == b"\x88\x00\x01a\x011\x00\x01a\x01\xff" + encoded_lines(
        b"via: 2.0 r\r\n"
    )
    assert decoded(head.block(frozenset({b"a"}))) == [*OK]


def test_trailers_go_on_as_they_were_encoded() -> None:
    trailers = read_trailers(b"\x40\x0bgrpc-status\x0214" + block((b"x-bin", b"\x80\xff")))
    assert trailers_block(trailers) == b"\x00\x0bgrpc-status\x0214" + block((b"x-bin", b"\x80\xff"))
    assert trailers.get_all("grpc-status") == ["14"]


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 16_000, 2_000_000])
def test_strings_of_all_sizes(size: int) -> None:
    value = b"v" * size
    encoded = literal(b"x-long", value)
    (field,) = walk(encoded)
    assert (field.name, field.value) == (b"x-long", value) and field.wire == encoded
    if size < 60_000:
        assert decoded(encoded) == [(b"x-long", value)]


def test_every_cut_of_a_block_is_unreadable() -> None:
    whole = block(*GET) + b"\x5f\x10application/grpc" + literal(b"x", b"v" * 300) + b"\x0f\x1e\x03new"
    ends = {len(block(*GET[:count])) for count in range(5)}
    for cut in range(1, len(whole)):
        if cut in ends or cut in (len(block(*GET)) + 18, len(whole) - 6):
            continue
        with pytest.raises(Unreadable):
            walk(whole[:cut])


def test_a_head_that_can_not_be_made_for_another_upstream_is_refused() -> None:
    """As one of HTTP/1: who asks for it knows one way only in which that fails."""
    for head in (request(), request(whole=False, of=POST)):
        with pytest.raises(Refused):
            rebuilt(head, target=b"/a b", host=b"u.test", cut=lambda _: False)
        with pytest.raises(Refused):
            rebuilt(head, target=b"/a", host=b"u test", cut=lambda _: False)


# -- as other rooms read them -----------------------------------------------------------------------------------------


def test_a_request_reads_like_one_of_http1() -> None:
    head = request(
        (b"content-type", b"application/grpc+proto"), (b"grpc-timeout", b"3S"), (b"X".lower(), b" a "), of=POST
    )
    assert (head.method, head.authority, head.path, head.target, head.form) == (
        "POST", "api.test", b"/a", b"/a", "origin",
    )  # fmt: skip
    assert head.get_all("content-type") == ["application/grpc+proto"] and head.get_all("x") == ["a"]
    assert head.get_all("via") == () and head.get(b"grpc-timeout") == b"3S"
    assert head.specials[b"grpc-timeout"] == b"3s"
    assert head.present(frozenset({b"x", b"y"})) == {b"x"}
    assert head.body_size == 0 and head.slow_path is None and not head.login_bound and head.upgrade is None


def test_heads_that_come_again_are_one() -> None:
    assert request((b"a", b"1")) is request((b"a", b"1"))
    assert request((b"a", b"1")) is not request((b"a", b"1"), whole=False)


# -- translation ------------------------------------------------------------------------------------------------------


def test_a_request_to_http1() -> None:
    head = request((b"cookie", b"a=1"), (b"accept", b"*/*"), (b"cookie", b"b=2"), (b"te", b"trailers"), whole=False)
    text = head.render(add=b"Via: 2.0 r\r\n")
    assert text == (
        b"GET /a HTTP/1.1\r\nHost: api.test\r\ncookie: a=1; b=2\r\naccept: */*\r\nTE: trailers\r\n"
        b"Connection: TE\r\nTransfer-Encoding: chunked\r\nVia: 2.0 r\r\n\r\n"
    )
    assert head.render(target=b"/p/a", host=b"up").startswith(b"GET /p/a HTTP/1.1\r\nHost: up\r\n")


def test_a_request_with_a_length_keeps_it() -> None:
    text = request((b"content-length", b"5"), whole=False, of=POST).render()
    assert text.endswith(b"\r\ncontent-length: 5\r\n\r\n") and b"hunked" not in text


@pytest.mark.parametrize("place", [b"%b", b"%bx", b"x%bx", b"x%b"], ids=["alone", "first", "within", "last"])
def test_what_passes_can_be_written_as_http1(place: bytes) -> None:
    """One grammar of values for both protocols: no head passes here that a translation would fail on."""
    for octet in range(256):
        value = place % bytes((octet,))
        line, fields = b"a: %b" % value, block((b"a", value))
        good = FIELD_LINE(line) is not None and value == value.strip(b" \t")
        for read in READERS:
            if good:
                assert b"\r\n%b\r\n" % line in read(fields)
            else:
                with pytest.raises(Malformed):
                    read(fields)


@pytest.mark.parametrize("value", [b" v", b"v ", b"\tv", b" v\t"])
def test_white_space_around_a_value_is_grpcs_alone(value: bytes) -> None:
    """C-core sends metadata and messages with it, which RFC 9113 section 8.2.1 forbids: they pass as they came."""
    kind = (b"content-type", b"application/grpc+proto")
    for fields in ((*POST, kind), (*OK, kind)):
        whole = block(*fields, (b"a", value))
        head = read_request(whole, False) if fields[0] == POST[0] else read_answer(whole, False)
        assert (b"a", value) in [(field.name, field.value) for field in head.fields]
        assert head.get(b"a") == b"v" and b"\r\na: v\r\n" in head.text()
    trailers = read_trailers(block((b"grpc-status", b"13"), (b"grpc-message", value)))
    assert (b"grpc-message", value) in decoded(trailers_block(trailers))


@pytest.mark.parametrize("name", sorted(MISLEADING_TRAILERS))
def test_trailers_that_would_mislead_a_reader(name: bytes) -> None:
    """The same names are refused behind a body of HTTP/1 and of HTTP/2, so that none crosses over."""
    with pytest.raises(Malformed):
        read_trailers(block((b"a", b"1"), (name, b"1")))
    for written in (name, name.title()):
        with pytest.raises(BadBody):
            ChunkedBody().feed(b"0\r\nA: 1\r\n%b: 1\r\n\r\n" % written)


@pytest.mark.parametrize(
    "name", [b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"]
)
def test_trailers_that_belong_to_a_connection(name: bytes) -> None:
    """RFC 9113 section 8.2.2. Behind a body of HTTP/1 they are cut."""
    with pytest.raises(Malformed):
        read_trailers(block((b"a", b"1"), (name, b"trailers")))


def test_a_request_from_http1() -> None:
    parser = RequestParser()
    head = parser.feed(
        b"POST /a HTTP/1.1\r\nHost: API.test\r\nConnection: x-hop, te\r\nX-Hop: 1\r\nTE: gzip, trailers\r\n"
        b"Transfer-Encoding: chunked\r\nX-A:  v \r\nKeep-Alive: 3\r\n\r\n"
    )
    assert head is not None
    assert decoded(request_block(head, b"https", None, None, frozenset(), b"Via: 1.1 r\r\n")) == [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"API.test"),
        (b":path", b"/a"),
        (b"te", b"trailers"),
        (b"x-a", b"v"),
        (b"via", b"1.1 r"),
    ]


def test_an_answer_to_http1() -> None:
    head = read_answer(block((b":status", b"503"), (b"a", b"1")), False)
    assert head.render() == b"HTTP/1.1 503 \r\na: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read_answer(block(*OK), True).render() == b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"
    assert read_answer(block((b":status", b"304")), True).render() == b"HTTP/1.1 304 \r\n\r\n"


def test_an_answer_from_http1() -> None:
    head, _ = ResponseParser().take(
        b"HTTP/1.1 200 Fine\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 5\r\nA:\tb \r\n\r\n"
    )
    assert head is not None
    assert decoded(answer_block(head, frozenset(), b"Via: 1.1 r\r\n")) == [
        *OK,
        (b"content-length", b"5"),
        (b"a", b"b"),
        (b"via", b"1.1 r"),
    ]


def test_trailers_as_lines() -> None:
    trailers = Trailers2(walk(block((b"grpc-status", b"1"), (b"grpc-message", b" 2 "))))
    assert trailers.lines == b"grpc-status: 1\r\ngrpc-message: 2\r\n" and trailers.get(b"grpc-message") == b"2"


def test_an_answer_of_our_own() -> None:
    assert decoded(own_block(200, b"Content-Type: application/grpc\r\ngrpc-status: 14\r\n")) == [
        *OK,
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
    ]
