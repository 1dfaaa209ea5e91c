"""Streams to start from, made of the tables of cases, and small changes to them: for searches by chance."""

from __future__ import annotations

from random import Random

from wire_cases import ANSWERS, BAD_ANSWERS, BAD_BODIES, CHUNKED_BODIES, REFUSED, TAKEN, answer, request


def seeds(random: Random) -> tuple[list[bytes], list[bytes]]:
    """Streams of requests and of answers to start from."""
    bodies = [data for data, *_ in CHUNKED_BODIES.values()] + list(BAD_BODIES.values())
    asked = [data for data, _ in TAKEN.values()] * 3 + [data for data, _ in REFUSED.values()]
    asked += [request("POST / HTTP/1.1", "Transfer-Encoding: chunked") + body for body in bodies]
    asked += [request("POST / HTTP/1.1", "Content-Length: 3") + b"abc" + request("GET /2 HTTP/1.1")]
    told = [data for data, _ in ANSWERS.values()] * 3 + list(BAD_ANSWERS.values())
    told += [answer("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + body for body in bodies]
    told += [answer("HTTP/1.1 200 OK", "Content-Length: 3") + b"abc" + answer("HTTP/1.1 204 x")]
    return asked, told


PIECES = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"0",
        b"1",
        b"\0",
        b"\x7f",
        b"\xff",
        b"#",
        b"/",
        b"@",
        b"%",
    ),
    *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"X: y\r\n", b"HTTP/1.0"),
]


def mutated(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(4)
        if kind == 0:
            out[at:at] = random.choice(PIECES)
        elif kind == 1:
            out[at : at + random.randrange(1, 4)] = b""
        elif kind == 2:
            out[at : at + 1] = random.choice(PIECES)
        else:
            other = random.randrange(len(out) + 1)
            out[at:at] = out[other : other + random.randrange(1, 12)]
    return bytes(out)
