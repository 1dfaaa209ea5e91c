"""Mutated HTTP/2 conversations, and what our session and the h2 library make of each.

A case is what one peer sends. Ours must take it without an exception, in bounded memory, make the same of it however it
is cut, and agree with h2 on every message that both take for whole.

`python frame_mutants.py --cases 1000000` runs many, and says how fast and what was found.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parents[2])]

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
from talk import ACK, GET, OK, POST, Recorder, Side, data, headers, settings

from proxy.wire.http2 import frames
from proxy.wire.http2.compiled import HEADER
from proxy.wire.http2.frames import frame
from proxy.wire.http2.hpack import literal
from proxy.wire.http2.peer_limits import PeerLimits

#: Seconds that one case may take: whatever takes longer hangs.
HANG = 10
#: What a session may keep of a case, bytes.
KEPT = 3 * 64 * 1024
LIMITS = PeerLimits(window=65_535, held=1 << 20)
_STREAMS = 4

_TOKENS = [
    *(bytes((byte,)) for byte in (0, 1, 4, 5, 8, 9, 0x20, 0x25, 0x3F, 0x40, 0x7F, 0x80, 0x82, 0x84, 0x88, 0xBE, 0xFF)),
    b"\xff\xff\xff\x7f", b"\x3f\xe1\x1f", b"\x20", b"\x00\x00\x00",
    ACK, settings(), settings(INITIAL_WINDOW_SIZE=10), settings(HEADER_TABLE_SIZE=0, MAX_FRAME_SIZE=20_000),
    frame(frames.PING, 0, 0, bytes(8)), frame(frames.GOAWAY, 0, 0, bytes(8)), frame(frames.PRIORITY, 0, 1, bytes(5)),
    frames.window_update(0, 1), frames.window_update(1, 100), frames.rst_stream(1, 8), frames.rst_stream(3, 0),
    data(1, b"x"), data(1, b"", end=True), data(3, b"yy", end=True), headers(1, ((b"t", b"1"),)),
    headers(3, ((b"t", b"1"),)), headers(5, GET), headers(7, OK, end=False),
    literal(b"content-length", b"5"), literal(b"te", b"trailers"), literal(b"connection", b"close"),
    literal(b"host", b"api.test"), literal(b"X", b"1"), literal(b"x", b" 1"), literal(b":path", b"/"),
    b"\x40\x01a\x011", b"\x10\x01a\x011", b"\x50\x82\xff\xff",
]  # fmt: skip


def _encoded(chance: random.Random, fields: Any, encoder: hpack.Encoder) -> bytes:
    return bytes(encoder.encode(list(fields), huffman=chance.random() < 0.5))


def _framed(chance: random.Random, stream: int, block: bytes, end: bool) -> list[bytes]:
    flags = frames.END_STREAM if end else 0
    if chance.random() < 0.2 and len(block) > 3:
        cut = chance.randrange(len(block))
        return [frame(frames.HEADERS, flags, stream, block[:cut]), frame(frames.CONTINUATION, 4, stream, block[cut:])]
    if chance.random() < 0.1:
        return [frame(frames.HEADERS, flags | 4 | 8 | 32, stream, b"\x02" + bytes((0, 0, 0, 0, 9)) + block + bytes(2))]
    return [frame(frames.HEADERS, flags | 4, stream, block)]


def seed(chance: random.Random, *, client: bool) -> list[bytes]:
    """The frames of a conversation that keeps the rules: of an app (not `client`: our side serves), or upstream."""
    out = [settings(**chance.choice([{}, {"INITIAL_WINDOW_SIZE": 1 << 20}, {"HEADER_TABLE_SIZE": 0}]))]
    encoder = hpack.Encoder()
    if chance.random() < 0.7:
        out.append(ACK)
        encoder.header_table_size = 0  # which the first block then says
    for number in range(1, 2 * chance.randint(1, _STREAMS), 2):
        fields = list(OK if client else chance.choice([GET, POST]))
        size = chance.choice([0, 0, 3, 100])
        if size and chance.random() < 0.5:
            fields.append((b"content-length", b"%d" % size))
        fields += [
            (b"x-%d" % chance.randrange(3), b"v" * chance.choice([0, 1, 8, 200])) for _ in range(chance.randrange(4))
        ]
        trailers = chance.random() < 0.3
        if client and chance.random() < 0.1:
            out += _framed(chance, number, _encoded(chance, [(b":status", b"103")], encoder), False)
        block = _encoded(chance, fields, encoder)
        out += _framed(chance, number, block, not size and not trailers)
        if size:
            cut = chance.randrange(size + 1)
            out.append(data(number, bytes(cut)))
            out.append(data(number, bytes(size - cut), end=not trailers))
        if trailers:
            out += _framed(chance, number, _encoded(chance, [(b"grpc-status", b"0")], encoder), True)
        if chance.random() < 0.2:
            out.append(frames.window_update(chance.choice([0, number]), 1000))
    return out


def mutated(chance: random.Random, *, client: bool) -> bytes:
    """A conversation with some things wrong."""
    out = seed(chance, client=client)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        at = chance.randrange(len(out))
        what = chance.randrange(9)
        if what == 0:
            out[at] = _flipped(chance, out[at])
        elif what == 1:
            del out[at]
        elif what == 2:
            out.insert(at, chance.choice(out or [b""]))
        elif what == 3:
            other = chance.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        elif what == 4:
            out.insert(at, chance.choice(_TOKENS))
        elif what == 5:
            place = chance.randrange(len(out[at]) + 1)
            out[at] = out[at][:place] + chance.choice(_TOKENS) + out[at][place:]
        elif what == 6:
            out[at] = _headed(chance, out[at])
        elif what == 7 and len(out[at]) > 9:  # a payload with more in it, its length put right
            place = chance.randrange(9, len(out[at]) + 1)
            payload = out[at][9:place] + chance.choice(_TOKENS) + out[at][place:]
            out[at] = frame(out[at][3], out[at][4], int.from_bytes(out[at][5:9]), payload)
        else:
            out[at] = out[at][: chance.randrange(len(out[at]) + 1)]
        if not out:
            out = [b""]
    preface = b"" if client else frames.PREFACE
    return preface + b"".join(out)


def _flipped(chance: random.Random, piece: bytes) -> bytes:
    if not piece:
        return piece
    at = chance.randrange(len(piece))
    return piece[:at] + bytes((piece[at] ^ (1 << chance.randrange(8)),)) + piece[at + 1 :]


def _headed(chance: random.Random, piece: bytes) -> bytes:
    """Another type, other flags, another stream."""
    if len(piece) < 9:
        return piece
    kind, flags, stream = piece[3], piece[4], int.from_bytes(piece[5:9])
    which = chance.randrange(3)
    if which == 0:
        kind = chance.randrange(12)
    elif which == 1:
        flags ^= 1 << chance.randrange(8)
    else:
        stream = chance.choice([0, 1, 2, 3, 5, 7, 9, 1 << 31 | 1])
    return HEADER.pack((len(piece) - 9) >> 8, (len(piece) - 9) & 255, kind, flags, stream) + piece[9:]


# -- what is made of it -----------------------------------------------------------------------------------------------

Message = tuple[tuple[tuple[bytes, bytes], ...], bytes, tuple[tuple[bytes, bytes], ...]]


def ours(case: bytes, cuts: list[int], *, client: bool) -> tuple[dict[int, Message], int | None, int]:
    """The messages that our session took for whole, by stream; the code that it gave up with; bytes that it said."""
    side = Side(client=client, limits=LIMITS)
    streams = []
    if client:
        side.feed(settings())
        streams = [side.request(GET) for _ in range(_STREAMS)]
    said = len(side.out())
    start = 0
    for cut in [*cuts, len(case)]:
        side.session.feed(case[start:cut], 1.0)
        said += len(side.out())
        start = cut
    session = side.session
    assert len(session._unfinished.rest) + session._heads._size * bool(session._heads.number) <= KEPT
    assert session.credit.held == 0 and len(session.streams) <= LIMITS.streams
    assert not session.ended or not session.streams
    found = {}
    for stream in streams or side.accepted:
        assert stream.events.count("head") <= 1
        assert not any(isinstance(event, tuple) and event[0] == "gone" for event in stream.events[:-1])
        if stream.whole:
            found[stream.id] = message(stream)
    return found, side.failure[0] if side.failure is not None else None, said


def message(stream: Recorder) -> Message:
    """A whole message, as pseudo-fields and fields, body, trailers."""
    head = stream.head
    if hasattr(head, "_pseudo"):
        start = [(name, field.value) for name, field in head._pseudo.items()]
    else:
        start = [(b":status", b"%d" % head.status)]
    fields = (*start, *((field.name, field.value) for field in head.fields))
    trailers = () if stream.trailers is None else tuple((field.name, field.value) for field in stream.trailers.fields)
    return fields, stream.body, trailers


def theirs(case: bytes, *, client: bool) -> tuple[dict[int, Message], str]:
    """The same of h2's, and what it raised."""
    config = h2.config.H2Configuration(client_side=client, header_encoding=None)
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    if client:
        connection.receive_data(settings())
        for number in range(1, 2 * _STREAMS, 2):
            connection.send_headers(number, list(GET), end_stream=True)
    heads: dict[int, Any] = {}
    bodies: dict[int, bytes] = {}
    trailers: dict[int, Any] = {}
    whole: dict[int, Message] = {}
    # Frame by frame: h2 raises away the events of what stood before the frame that it refuses.
    at = 0 if client else len(frames.PREFACE)
    pieces = [case[:at]]
    while at < len(case):
        end = at + 9 + int.from_bytes(case[at : at + 3]) if at + 9 <= len(case) else len(case)
        pieces.append(case[at:end])
        at = end
    try:
        for piece in pieces:
            for event in connection.receive_data(piece):
                if isinstance(event, h2.events.RequestReceived | h2.events.ResponseReceived):
                    heads[event.stream_id] = tuple((bytes(name), bytes(value)) for name, value in event.headers)
                    bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, h2.events.TrailersReceived):
                    trailers[event.stream_id] = tuple((bytes(name), bytes(value)) for name, value in event.headers)
                elif isinstance(event, h2.events.StreamEnded) and event.stream_id in heads:
                    number = event.stream_id
                    whole[number] = (heads[number], bodies[number], trailers.get(number, ()))
            connection.clear_outbound_data_buffer()
    except (h2.exceptions.ProtocolError, hpack.HPACKError) as error:
        return whole, f"{type(error).__name__}: {error}"
    except (AssertionError, KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
        return whole, f"h2 broke down: {type(error).__name__}: {error}"
    return whole, ""


def check(case: bytes, chance: random.Random, *, client: bool) -> bool:
    """Play a case; whether a message in it came whole. Raises AssertionError for a find."""
    whole, code, said = ours(case, [], client=client)
    cuts = sorted(chance.randrange(len(case) + 1) for _ in range(chance.choice([1, 2, 5, 20])))
    again, other_code, _ = ours(case, cuts, client=client)
    assert (whole, code) == (again, other_code), f"cut at {cuts}: {again} {other_code}, whole: {whole} {code}"
    assert said <= 1000 + 20 * len(case), f"{said} bytes said to {len(case)}"
    if not whole:
        return False
    oracle, _ = theirs(case, client=client)
    for number in whole.keys() & oracle.keys():
        assert same(whole[number], oracle[number]), f"stream {number}: {whole[number]} here, {oracle[number]} there"
    return True


def same(some: Message, other: Message) -> bool:
    """Whether two messages are one. h2 puts the pseudo-fields' order aside, and joins cookies: there are none."""
    return some == other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=0, help="stop then, whatever --cases says")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case, to play one again")
    args = parser.parse_args()
    began = time.monotonic()
    finds = whole = 0
    slowest = 0.0
    played = 0
    for number in range(args.first, args.first + args.cases):
        chance = random.Random(args.seed << 32 | number)
        client = bool(number & 1)
        case = mutated(chance, client=client)
        started = time.perf_counter()
        signal.alarm(HANG)
        try:
            whole += check(case, chance, client=client)
        except Exception as error:
            finds += 1
            print(f"case {number}: {type(error).__name__}: {str(error)[:2000]}\n  {case.hex()}", flush=True)
            if finds >= 10:
                break
        finally:
            signal.alarm(0)
        played += 1
        slowest = max(slowest, time.perf_counter() - started)
        if args.seconds and time.monotonic() - began > args.seconds:
            break
    spent = time.monotonic() - began
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{played} cases in {spent:.0f} s, {whole} with a whole message, {finds} finds; "
        f"the slowest {slowest * 1000:.1f} ms, peak memory {peak} MiB"
    )
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
