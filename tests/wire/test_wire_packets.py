"""Cut anywhere, a message comes to the same: head, bytes behind it, refusal and its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import pytest
from wire_cases import (
    ANSWERS,
    BAD_ANSWERS,
    BAD_BODIES,
    CHUNKED_BODIES,
    REFUSED,
    TAKEN,
    read_answer,
    read_chunked,
    read_request,
    request,
)

Reader = Callable[[list[bytes]], tuple[object, ...]]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Byte by byte, in two at every place, in three and more at random places."""
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]
    random = Random(len(data))
    for _ in range(40):
        edges = [0, *sorted(random.randrange(len(data)) for _ in range(random.randrange(2, 6))), len(data)]
        yield [data[a:b] for a, b in pairwise(edges)]


def check(read: Reader, data: bytes) -> None:
    whole = read([data])
    for packets in cuts(data):
        assert read(packets) == whole, packets


@pytest.mark.parametrize("case", TAKEN)
def test_requests(case: str) -> None:
    check(read_request, TAKEN[case][0])


@pytest.mark.parametrize("case", REFUSED)
def test_refused_requests(case: str) -> None:
    check(read_request, REFUSED[case][0])


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(case: str) -> None:
    check(read_answer, ANSWERS[case][0])


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_bad_answers(case: str) -> None:
    check(read_answer, BAD_ANSWERS[case])


@pytest.mark.parametrize("case", CHUNKED_BODIES)
def test_chunked_bodies(case: str) -> None:
    check(read_chunked, CHUNKED_BODIES[case][0])


@pytest.mark.parametrize("case", BAD_BODIES)
def test_bad_bodies(case: str) -> None:
    check(read_chunked, BAD_BODIES[case])


LIMITED = {
    "line": request("GET /" + "a" * 80 + " HTTP/1.1"),
    "fields": request("GET / HTTP/1.1", "X: " + "a" * 80),
    "wrong within the limit": request("GET / HTTP/1.1", "X: \0" + "a" * 80),
    "wrong behind the limit": request("GET / HTTP/1.1", "X: " + "a" * 80 + "\0"),
    "wrong line behind the limit": request("GET /" + "a" * 80 + " HTTP/2.0"),
    "no end": b"GET / HTTP/1.1\r\nX: " + b"a" * 90,
    "no field behind the limit": request("GET / HTTP/1.1", "X: " + "a" * 80, "bad"),
    "CR at the limit": request("GET / HTTP/1.1", "X: " + "a" * 6 + "\rb", host="h.example.com"),
    "the limit itself": request("GET / HTTP/1.1", "X: " + "a" * 18),
    "one more": request("GET / HTTP/1.1", "X: " + "a" * 19),
    "empty line first": b"\r\n" + request("GET / HTTP/1.1", "X: " + "a" * 18),
    "empty line first, one more": b"\r\n" + request("GET / HTTP/1.1", "X: " + "a" * 19),
}


@pytest.mark.parametrize("case", LIMITED)
def test_limits(case: str) -> None:
    check(lambda packets: read_request(packets, header_bytes=60), LIMITED[case])


def test_mutated_requests_come_to_the_same() -> None:
    random = Random(7)
    seeds = [data for data, _ in TAKEN.values()] + [data for data, _ in REFUSED.values()]
    for _ in range(600):
        data = bytearray(random.choice(seeds))
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.choice(b"\r\n\t :,;/?#@[]\0\x7f\xffaG10.")
        whole = read_request([bytes(data)])
        assert read_request([bytes(data[at : at + 1]) for at in range(len(data))]) == whole, bytes(data)
        cut = random.randrange(1, len(data))
        assert read_request([bytes(data[:cut]), bytes(data[cut:])]) == whole, (bytes(data), cut)
