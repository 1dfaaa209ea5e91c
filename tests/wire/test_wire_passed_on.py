"""Chunks that are passed on as they came: the same body as one that is framed again, refused where that is refused."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from wire_cases import BAD_BODIES, CHUNKED_BODIES, read_chunked

from proxy.wire.errors import BadBody
from proxy.wire.http1.body import EXTENSIONS, ChunkedBody, chunk, data_of, end_chunked


def forwarded(packets: list[bytes], framed_again: int) -> tuple[bytes, bytes, ChunkedBody, bytes] | None:
    """What is forwarded of a body, of whose packets the first ones are framed again and the others passed on; its
    payload, the reader, and the bytes after the body. None if it was refused.
    """
    body = ChunkedBody()
    body.reads = True
    written = read = b""
    for index, packet in enumerate(packets):
        try:
            if index < framed_again:
                some, done, behind = body.feed(packet)
                written += chunk(some)
                read += some
            else:
                some, size, done, behind = body.pass_on(packet)
                assert body.payload is not None and len(body.payload) == size
                read += body.payload
                written += some
        except BadBody:
            return None
        if done:
            return written + end_chunked(body.trailers), read, body, behind + b"".join(packets[index + 1 :])
    return written, read, body, b""


def cut(data: bytes, seed: int) -> list[bytes]:
    """The data in up to five packets, or byte by byte."""
    random = Random(seed)
    if not seed:
        return [data[at : at + 1] for at in range(len(data))]
    edges = [0, *sorted(random.randrange(len(data)) for _ in range(seed % 5)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("case", CHUNKED_BODIES)
def test_it_is_the_same_body(case: str) -> None:
    data, payload, trailers, behind = CHUNKED_BODIES[case]
    for seed in range(60):
        packets = cut(data, seed)
        for framed_again in range(min(len(packets), 12) + 1):
            found = forwarded(packets, framed_again)
            assert found is not None
            assert found[1] == payload
            assert (found[2].trailers, found[3]) == (trailers, behind)
            assert read_chunked([found[0]]) == (payload, trailers, b"")


@pytest.mark.parametrize("case", BAD_BODIES)
def test_what_is_refused_is_refused(case: str) -> None:
    for seed in range(60):
        packets = cut(BAD_BODIES[case], seed)
        for framed_again in range(min(len(packets), 12) + 1):
            assert forwarded(packets, framed_again) is None


def test_what_is_whole_and_plain_is_not_copied() -> None:
    body = ChunkedBody()
    assert body.payload is None
    for packet in (b"4000\r\n" + b"x" * 100, b"x" * 5000, b"x" * (0x4000 - 5100) + b"\r\n2\r\nab\r\n1\r\n"):
        assert body.pass_on(packet)[0] is packet
    body = ChunkedBody()
    for packet in (b"5\r\nhello\r\n", b"00A\r\n0123456789\r\n"):
        assert body.pass_on(packet)[0] is packet
    assert body.payload is None  # nobody asked for it


def test_the_payload_of_each_packet_is_kept_where_it_is_asked_for() -> None:
    body = ChunkedBody()
    body.reads = True
    packets = {b"5\r\nhello\r\n": b"hello", b"2": b"", b"\r\na": b"a", b"b\r\n1;x=y\r\nc\r\n": b"bc", b"0\r\n\r\n": b""}
    for packet, payload in packets.items():
        body.pass_on(packet)
        assert body.payload == payload


def test_a_body_that_breaks_off_says_what_its_last_chunk_owes() -> None:
    """Whoever reads what was passed on misses as much of its last chunk."""
    data = b"3\r\nabc\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n"
    for end in range(len(data)):
        for framed_again in (0, 1):
            found = forwarded([data[:1], data[1:end]], framed_again)
            assert found is not None
            assert (found[0].endswith(b"0\r\nA: b\r\n\r\n")) is (end >= len(data))
            reader = ChunkedBody()
            reader.pass_on(found[0])
            assert reader.owed == found[2].owed
            filled = ChunkedBody()
            filled.pass_on(found[0] + (b"z" * 8)[: max(found[2].owed - 2, 0)] + b"\r\n"[2 - min(found[2].owed, 2) :])
            assert filled.owed == 0


def test_extensions_are_left_out_and_bounded() -> None:
    line = b"1;" + b"x" * 1023 + b"\r\na\r\n"
    most = EXTENSIONS // 1024
    found = forwarded([line * most, b"0\r\n\r\n"], 0)
    assert found is not None
    assert found[0] == b"1\r\na\r\n" * most + b"0\r\n\r\n"
    assert forwarded([line * most, b"1;\r\na\r\n"], 0) is None


def passing() -> ChunkedBody:
    """A reader that has begun to pass chunks on, and is at the end of one."""
    body = ChunkedBody()
    body.pass_on(b"1\r\na\r\n")
    return body


def test_plain_chunks_are_whole_and_end_with_lines() -> None:
    """They are taken as they are exactly if each is whole, and no line goes on from one in the next."""
    random = Random(3)
    taken = 0
    for _ in range(4000):
        pieces = [bytes(random.choices(b"a\n\r1", k=random.randrange(1, 4))) for _ in range(random.randrange(1, 4))]
        whole = b"".join(map(chunk, pieces))
        begin, end = (0, len(whole)) if random.random() < 0.7 else sorted(random.choices(range(len(whole) + 1), k=2))
        data = whole[begin:end] + random.choice((b"", b"", b"", b"0\r\n\r\n", b"1;x\r\na\r\n", b"x"))
        size = passing().plain_chunks(data)
        reader = ChunkedBody()
        try:
            payload, done, _ = reader.feed(data)
            is_whole = not done and bool(payload) and chunked_again(data, payload)
        except BadBody:
            payload, is_whole = b"", False
        assert size == (len(payload) if is_whole else 0), data
        if size:
            taken += 1
            assert data_of(data, size) == payload
            assert passing().pass_on(data) == (data, size, False, b"")
    assert taken > 500


def chunked_again(data: bytes, payload: bytes) -> bool:
    """Whether `data` is chunks without extensions of this payload, all whole, and each but the last ends with LF."""
    if not data:
        return not payload
    line, _, rest = data.partition(b"\r\n")
    size = int(line, 16) if line.isalnum() else 0
    if not size or rest[:size] != payload[:size] or rest[size : size + 2] != b"\r\n":
        return False
    return (len(payload) == size or payload[size - 1 : size] == b"\n") and chunked_again(
        rest[size + 2 :], payload[size:]
    )


def test_no_plain_chunks_are_seen_inside_of_a_chunk_or_of_a_size_line() -> None:
    for begun in (b"2\r\na", b"2\r\nab", b"1"):
        body = passing()
        body.pass_on(begun)
        assert body.plain_chunks(b"1\r\na\r\n") == 0
    assert ChunkedBody().plain_chunks(b"1\r\na\r\n") == 0  # whose first chunks may have been framed again
