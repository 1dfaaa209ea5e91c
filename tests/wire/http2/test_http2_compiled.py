"""Compiled code tells its streams, and its peer, what Python does: both play the same conversations, right and wrong.

`python tests/wire/http2/test_http2_compiled.py SECONDS SEED` does so for as long.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from frame_mutants import LIMITS, mutated
from hpack import HPACKError
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from talk import GET, Recorder, Side, settings

from proxy.wire.errors import BadMessage
from proxy.wire.http2.compiled import HEADER, SLICER, unhuffed
from proxy.wire.http2.fields import Trailers2
from proxy.wire.http2.heads import answer_block, request_block, trailers_block
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2

ROOT = Path(__file__).parents[3]
#: Cases whose outcomes make one line of what a process says.
LINE = 50
built = pytest.mark.skipif(SLICER is None, reason="nothing is compiled (make core)")


def seen(head: Any) -> object:
    """All that can be asked of a head, or of trailers."""
    if head is None:
        return None
    fields = [(field.name, field.value, field.wire, field.size) for field in head.fields]
    found: list[object] = [type(head).__name__, fields, head.list_size]
    found += [list(head.get_all(name)) for name in ("te", "content-length", "x-1", "grpc-status")]
    found += [head.get(name) for name in (b"te", b"x-1")]
    if isinstance(head, Trailers2):
        return [*found, head.lines, trailers_block(head), trailers_block(head.without({b"x-1"}))]
    names = ("content_length", "chunked", "simple", "keep_alive", "version", "specials", "count", "whole")
    found += [getattr(head, name) for name in names]
    drop, add = frozenset({b"x-1"}), b"Via: 2.0 us\r\n"
    if isinstance(head, Request2):
        found += [head.method, head.authority, head.scheme, head.form, head.path, head.target, head.body_size]
        found += [
            request_block(head, b"http", b"there", b"/else", drop, add),
            request_block(head, b"https", None, None),
        ]
        found += [as_text(head, host=b"there", target=b"/else", drop=drop, add=add), as_text(head)]
    elif isinstance(head, Response2):
        found += [head.status, head.body_size("GET"), head.login_bound]
        found += [answer_block(head, drop, add), answer_block(head), as_text(head, drop=drop, add=add)]
    return found


def as_text(head: Request2 | Response2, **changes: Any) -> object:
    """The head as HTTP/1 text, or why there is none."""
    try:
        return head.render(**changes)
    except BadMessage as bad:
        return type(bad).__name__, str(bad)


def played(case: bytes, cuts: list[int], *, client: bool) -> list[object]:
    """What a session tells of a conversation, and all that it sends; here every stream answers or goes on."""
    side = Side(client=client, limits=LIMITS)
    streams: list[Recorder] = []
    if client:
        side.feed(settings())
        streams = [side.request(GET) for _ in range(3)]
    sent = [side.out()]
    start = 0
    for cut in [*cuts, len(case)]:
        side.session.feed(case[start:cut], 1.0)
        for stream in [] if client else side.accepted:
            if stream.whole and not stream.over:
                stream.send_message(b"\x88", b"body", b"" if stream.id % 4 == 1 else b"\x00\x01a\x01b")
        sent.append(side.out())
        start = cut
    side.session.tick(100.0)
    told = [
        (stream.id, stream.events, stream.body, seen(stream.head), seen(stream.trailers), stream.over, stream.answered)
        for stream in streams or side.accepted
    ]
    return [told, side.failure, side.changes, sent, side.out(), sorted(side.session.streams)]


def say(seed: int, cases: int) -> None:
    """Play so many mutated conversations, and print a digest for each LINE of them."""
    digest = hashlib.sha256()
    for number in range(cases):
        chance = Random(seed << 32 | number)
        client = bool(number & 1)
        case = mutated(chance, client=client)
        cuts = sorted(chance.randrange(len(case) + 1) for _ in range(chance.choice([0, 0, 1, 5])))
        digest.update(repr(played(case, cuts, client=client)).encode())
        if number % LINE == LINE - 1:
            print(digest.hexdigest())


def compare(seed: int, cases: int) -> None:
    """Have both play them, each in a process of its own; raises AssertionError where they differ."""
    said = []
    for pure in ("1", ""):
        environment = {**os.environ, "REDRIVE_PURE": pure, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
        if not pure:
            del environment["REDRIVE_PURE"]
        command = [sys.executable, __file__, "--say", str(seed), str(cases)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert len(said[0]) == cases // LINE
    for line, (python, compiled) in enumerate(zip(*said, strict=True)):
        assert python == compiled, f"seed {seed}: cases {line * LINE} to {line * LINE + LINE - 1} are told differently"


@built
def test_both_play_the_same_conversations() -> None:
    compare(3, 1000)


@built
def test_frame_headers_are_those_of_struct() -> None:
    python, chance = struct.Struct(">HBBBI"), Random(5)
    for _ in range(2000):
        numbers = [
            chance.choice([0, most, chance.randrange(most + 1)]) for most in (65535, 255, 255, 255, (1 << 32) - 1)
        ]
        packed = HEADER.pack(*numbers)
        assert packed == python.pack(*numbers)
        assert tuple(HEADER.unpack_from(b"ab" + packed + b"c", 2)) == python.unpack_from(b"ab" + packed + b"c", 2)
    for wrong in ([1 << 16, 0, 0, 0, 0], [0, -1, 0, 0, 0], [0, 0, 256, 0, 0], [0, 0, 0, 0, 1 << 32], [0, 0, 0, 0, -1]):
        with pytest.raises(ValueError, match="a frame's header holds no such"):
            HEADER.pack(*wrong)
    for data, at in ((bytes(9), 1), (bytes(8), 0), (bytes(9), -1)):
        with pytest.raises(ValueError, match="cut short"):
            HEADER.unpack_from(data, at)


def huffed(text: list[int], padding: int) -> bytes:
    """Symbols by Huffman's code, padded with so many bits of 1 at least."""
    bits = "".join(format(REQUEST_CODES[each], f"0{REQUEST_CODES_LENGTH[each]}b") for each in text) + "1" * padding
    bits += "1" * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8)


@built
def test_huffman_strings_are_those_of_the_library() -> None:
    chance = Random(6)
    refused = 0
    for number in range(20_000):
        text = [chance.randrange(257 if number % 5 == 0 else 256) for _ in range(chance.randrange(12))]
        coded = bytearray(huffed(text, chance.choice([0, 0, 0, 8, 9])))
        if coded and number % 3 == 0:
            coded[chance.randrange(len(coded))] ^= 1 << chance.randrange(8)
        if number % 7 == 0:
            coded = bytearray(chance.randbytes(chance.randrange(9)))
        try:
            expected = decode_huffman(bytes(coded))
        except HPACKError:
            refused += 1
            expected = None
        assert unhuffed(bytes(coded)) == expected, coded.hex()
    assert 1000 < refused < 19_000


def main() -> None:
    """As `make fuzz` calls it; or, for `compare`, one of the two processes."""
    if sys.argv[1] == "--say":
        say(int(sys.argv[2]), int(sys.argv[3]))
        return
    if SLICER is None:
        print("http2: nothing is compiled, nothing to compare (make core)")
        return
    until, seed, cases = time.monotonic() + float(sys.argv[1]), int(sys.argv[2]), 0
    while time.monotonic() < until:
        compare(seed, 2000)
        seed, cases = seed + 1, cases + 2000
    print(f"http2: {cases} conversations, told alike by Python and by compiled code")


if __name__ == "__main__":
    main()
