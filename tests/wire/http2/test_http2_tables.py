"""A peer's table until it has none: read as the `hpack` library reads it, block by block, and whatever is sent."""

from __future__ import annotations

from random import Random

import hpack
import pytest
from hpack.huffman_constants import REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

from proxy.wire.http2.hpack import PeerTable, TooMuch, Unreadable
from proxy.wire.http2.tables import CODE_LENGTHS, STATIC

LIMIT = 4000
NAMES = [*(name for name, _ in STATIC[::3]), b"x-one", b"x-two", b"x-" + b"long" * 40]


def test_the_static_table_is_that_of_the_library() -> None:
    assert STATIC == HeaderTable.STATIC_TABLE


def test_the_code_is_that_of_the_library() -> None:
    assert [*CODE_LENGTHS] == REQUEST_CODES_LENGTH


def _fields(chance: Random) -> list[hpack.HeaderTuple]:
    """Fields of which some come again and again, some are never indexed, and some are larger than any table."""
    made = []
    for _ in range(chance.randrange(12)):
        kind = hpack.NeverIndexedHeaderTuple if chance.random() < 0.2 else hpack.HeaderTuple
        name, value = chance.choice(NAMES), chance.choice([b"", b"a", b"v" * 60, b"\xff\x00", chance.randbytes(5)])
        made.append(kind(name, value * chance.choice([1, 1, 1, 1, 30, 80])))
    return made


def _by_library(decoder: hpack.Decoder, block: bytes) -> list[tuple[bytes, bytes, bool]] | type[Exception]:
    try:
        found = decoder.decode(block, raw=True)
        return [
            (bytes(name), bytes(value), isinstance(each, hpack.NeverIndexedHeaderTuple))
            for each in found
            for name, value in [each]
        ]
    except hpack.OversizedHeaderListError:
        return TooMuch
    except (hpack.HPACKError, IndexError):
        return Unreadable


def _by_us(table: PeerTable, block: bytes) -> list[tuple[bytes, bytes, bool]] | type[Exception]:
    try:
        return [(field.name, field.value, _is_never_indexed(field.wire)) for field in table.read(block)]
    except (TooMuch, Unreadable) as error:
        return type(error)


def _is_never_indexed(wire: bytes) -> bool:
    assert wire[0] < 0x20, "a literal that enters no table"
    return wire[0] >= 0x10


@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_read_as_the_library_reads_them(seed: int) -> None:
    chance, alike, refused = Random(seed), 0, 0
    for _ in range(150):
        encoder, decoder, table = hpack.Encoder(), hpack.Decoder(LIMIT), PeerTable(LIMIT)
        for number in range(12):
            if chance.random() < 0.2:
                encoder.header_table_size = chance.choice([0, 50, 100, 1000, 4096, 4097])
            block = bytearray(encoder.encode(_fields(chance), huffman=chance.random() < 0.5))
            if block and chance.random() < 0.3:
                block[chance.randrange(len(block))] = chance.randrange(256)
            if block and chance.random() < 0.05:
                del block[chance.randrange(len(block)) :]
            expected, found = _by_library(decoder, bytes(block)), _by_us(table, bytes(block))
            if found is Unreadable and expected is not Unreadable:  # stricter: more size updates than there are sizes
                assert [byte & 0xE0 for byte in block[:1]] == [0x20]
                break
            assert found == expected, (seed, number, bytes(block).hex())
            if isinstance(expected, type):
                refused += 1
                break
            alike += 1
            assert table.is_given_up is (decoder.header_table_size == 0)
    assert alike > 300
    assert refused > 30
