"""Writing a body in chunks: its own, or as they came; a body that broke off never looks whole."""

from __future__ import annotations

from typing import Any, cast

import pytest

from proxy.transport.chunk_writer import LARGE, ChunkWriter, write_chunk, write_framed
from proxy.wire.head import trailer_fields
from proxy.wire.http1.body import ChunkedBody, end_chunked


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data, self.calls = b"", 0

    def write(self, data: bytes) -> None:
        """Write it."""
        self.data += data
        self.calls += 1

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        """Write all of them."""
        self.data += b"".join(pieces)
        self.calls += 1


def reading(data: bytes) -> tuple[bytes, bool]:
    """The payload of a body, and whether it is whole."""
    payload, done, behind = ChunkedBody().feed(data)
    assert behind == b""
    return payload, done


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, 100_000])
def test_a_head_and_a_body_of_any_size_are_the_same_bytes(size: int, end: bool, chunked: bool) -> None:
    """Large bodies are written beside the head, and small ones are joined to it; both read the same."""
    wire, body = Written(), b"x" * size
    write_framed(cast(Any, wire), b"head\r\n\r\n", body, chunked, end, trailer_fields(b"A: b\r\n") if end else None)
    assert wire.data.startswith(b"head\r\n\r\n") and wire.calls == 1
    sent = wire.data.removeprefix(b"head\r\n\r\n")
    if not chunked:
        assert sent == body
        return
    assert sent.endswith(b"0\r\nA: b\r\n\r\n") is end
    assert reading(sent) == (body, end)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000])
def test_the_last_chunk_and_the_end_are_one_write(size: int) -> None:
    wire, body = Written(), b"x" * size
    write_chunk(cast(Any, wire), body, end_chunked(b"A: b\r\n"))
    assert wire.calls == 1
    assert wire.data.endswith(b"0\r\nA: b\r\n\r\n")
    assert reading(wire.data) == (body, True)


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_000])
def test_a_piece_is_a_chunk(size: int) -> None:
    wire = Written()
    writer = ChunkWriter(cast(Any, wire))
    writer.write(b"x" * size)
    writer.write(b"")
    assert wire.data == b"%x\r\n%b\r\n" % (size, b"x" * size)
    assert writer.finish(b"A: b\r\n")
    assert reading(wire.data) == (b"x" * size, True)


@pytest.mark.parametrize("pieces", [[b"loworld"], [b"lo", b"world"], [b"l", b"o", b"w", b"orld"], [b"lowor", b"ld"]])
def test_data_from_elsewhere_fills_a_chunk_that_broke_off(pieces: list[bytes]) -> None:
    wire = Written()
    writer = ChunkWriter(cast(Any, wire))
    writer.pass_on(b"5\r\nhel", 4)
    for piece in pieces:
        writer.write(piece)
    assert writer.finish(b"")
    assert reading(wire.data) == (b"helloworld", True)


@pytest.mark.parametrize(("begun", "owed"), [(b"5\r\nhello", 2), (b"5\r\nhello\r", 1)])
def test_the_end_of_a_chunk_that_broke_off_is_written_before_more(begun: bytes, owed: int) -> None:
    wire = Written()
    writer = ChunkWriter(cast(Any, wire))
    writer.pass_on(begun, owed)
    writer.write(b"world")
    assert writer.finish(b"")
    assert reading(wire.data) == (b"helloworld", True)


def test_the_last_chunks_are_written_with_the_end() -> None:
    wire = Written()
    writer = ChunkWriter(cast(Any, wire))
    writer.pass_on(b"5\r\nhello\r\n", -1)
    assert wire.data == b""
    assert writer.finish(b"A: b\r\n")
    assert wire.data == b"5\r\nhello\r\n0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("more", [b"", b"l"])
def test_a_body_does_not_end_within_a_chunk(more: bytes) -> None:
    wire = Written()
    writer = ChunkWriter(cast(Any, wire))
    writer.pass_on(b"5\r\nhel", 4)
    writer.write(more)
    assert not writer.finish(b"")
    assert reading(wire.data) == (b"hel" + more, False)
