"""A body's content coding, undone piece by piece."""

from __future__ import annotations

import gzip
import zlib

import pytest

from proxy.retry.answers.content_coding import Decoder

TEXT = b"data: " + bytes(range(256)) * 8


def bare(text: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(text) + deflate.flush()


CODED = {"gzip": gzip.compress(TEXT), "x-gzip": gzip.compress(TEXT), "deflate": zlib.compress(TEXT)}


@pytest.mark.parametrize(
    ("coding", "body"), [*CODED.items(), ("deflate", bare(TEXT))], ids=["gzip", "x-gzip", "deflate", "bare deflate"]
)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 10**6])
def test_a_body_in_pieces_of_any_size_is_decoded(coding: str, body: bytes, size: int) -> None:
    decoder = Decoder(coding)
    pieces = [decoder.feed(body[at : at + size], len(TEXT) + 1) for at in range(0, len(body), size)]
    assert b"".join(pieces) == TEXT
    assert not decoder.over


def test_a_piece_that_decodes_to_more_than_asked_for_is_cut_and_nothing_follows() -> None:
    decoder, body = Decoder("gzip"), CODED["gzip"]
    assert decoder.feed(body, 10) == TEXT[:10]
    assert decoder.over
    assert decoder.feed(b"data: more\n\n", 10) == b""


@pytest.mark.parametrize("coding", ["br", "gzip,gzip"])
def test_nothing_of_a_body_under_another_coding_is_read(coding: str) -> None:
    decoder = Decoder(coding)
    assert decoder.over
    assert decoder.feed(b"data: x\n\n", 100) == b""


@pytest.mark.parametrize("body", [b"\xff\xffdata", b"xyz" * 9])
def test_nothing_of_a_body_that_is_not_coded_as_it_says_is_read(body: bytes) -> None:
    decoder = Decoder("gzip")
    assert decoder.feed(body, 100) == b""
    assert decoder.over
    assert decoder.feed(body, 100) == b""


def test_a_body_that_turns_out_to_be_broken_is_not_begun_anew() -> None:
    body = zlib.compress(TEXT)
    decoder = Decoder("deflate")
    begun = decoder.feed(body[:40], 10**6)
    assert begun == TEXT[: len(begun)] != b""
    assert decoder.feed(b"\xff" * 40 + bare(b"another"), 10**6) == b""
    assert decoder.over
