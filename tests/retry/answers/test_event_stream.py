"""Server-sent events are read by the WHATWG's grammar, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.retry.answers.event_stream import MOST, Event, SseReader


def read(pieces: Iterable[bytes]) -> list[Event]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def named(text: str) -> list[tuple[str, str]]:
    return [(event.name, event.data.decode()) for event in read([text.encode()])]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        # The four examples of HTML, 9.2.6.
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10")]),
        (": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
         [("message", "first event"), ("message", "second event")]),
        ("data\n\ndata\ndata\n\ndata:", [("message", ""), ("message", "\n")]),
        ("data:test\n\ndata: test\n\n", [("message", "test"), ("message", "test")]),
        # A name is one event's; the last of several counts; an event without data is none, and its name goes with it.
        ("event: ping\n\ndata: x\n\n", [("message", "x")]),
        ("event: a\nevent: b\ndata: x\n\ndata: y\n\n", [("b", "x"), ("message", "y")]),
        ("data: x\nevent: after\n\n", [("after", "x")]),
        ("event:\ndata: x\n\n", [("message", "x")]),
        # Lines end with LF, CRLF or CR, and a stream may change its mind.
        ("event: a\r\ndata: x\r\n\r\nevent: b\rdata: y\r\rdata: z\n\n", [("a", "x"), ("b", "y"), ("message", "z")]),
        ("data: x\r\n\n", [("message", "x")]),
        # Unknown fields, fields without a colon, names that only begin alike, blanks before a name.
        ("retry: 10\nfoo: bar\ndatax: no\n data: no\nDATA: no\ndata: yes\n\n", [("message", "yes")]),
        ("\ufeffdata: x\n\n", [("message", "x")]),
        ("\ufeff\ufeffdata: x\n\ndata: y\n\n", [("message", "y")]),
        ("data: a\ufeff\n\n", [("message", "a\ufeff")]),
        ("data: {\"a\": \"b: c\"}\n\n", [("message", '{"a": "b: c"}')]),
        ("data: what no blank line ends\n", []),
    ],
)  # fmt: skip
def test_the_grammar(text: str, events: list[tuple[str, str]]) -> None:
    assert named(text) == events
    assert [(event.name, event.data.decode()) for event in read(bytes([byte]) for byte in text.encode())] == events


LINES = st.sampled_from(
    [b"data: x", b"data", b"data:", b"data:  y", b"event: error", b"event", b"event: ping", b": c", b":", b"id: 1", b"",
     b"", "data: é\u2028".encode(), b"retry: 1", b"data: \x00", b"data: \xff", b"\xef\xbb", b"\xef\xbb\xbf"]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b""])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=30).map(lambda lines: b"".join(a + b for a, b in lines))


@given(STREAMS | st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=20))
@example(b"\xef\xbb\xbfdata: x\r\n\r\n", [1, 2, 10, 11, 12])
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(places)]
    assert read(pieces) == read([stream]) == oracle(stream)


@given(STREAMS)
def test_an_event_is_told_with_the_very_byte_that_ends_it(stream: bytes) -> None:
    reader, told = SseReader(), 0
    for place in range(len(stream)):
        told += len(reader.feed(stream[place : place + 1]))
        assert told == len(oracle(stream[: place + 1]))


def oracle(stream: bytes) -> list[Event]:
    """The same by the letter of the standard, of a whole stream at once; strict about nothing but the grammar."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    found, name, data = [], "", b""
    for line in lines:
        if not line:
            if data:
                found.append(Event(name or "message", data.removesuffix(b"\n")))
            name, data = "", b""
            continue
        if line.startswith(b":"):
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data += value + b"\n"
    return found


@pytest.mark.parametrize("piece", [1000, 10**7])
def test_an_event_of_64_kib_is_read_and_a_longer_one_is_not(piece: int) -> None:
    def read(*lines: bytes) -> list[Event]:
        stream, reader = b"\n".join(lines) + b"\n\n", SseReader()
        return [event for at in range(0, len(stream), piece) for event in reader.feed(stream[at : at + piece])]

    half = b"data: " + b"x" * (32 * 1024 - 6)
    assert [len(event.data) for event in read(half + half)] == [64 * 1024 - 6]
    assert read(half + half + b"x") == []
    assert [len(event.data) for event in read(half, half)] == [64 * 1024 - 12 + 1]
    assert read(half, half + b"x") == []


@pytest.mark.parametrize("piece", [1000, 10**7])
def test_what_is_kept_is_bounded_and_what_follows_is_read_all_the_same(piece: int) -> None:
    long = [b"data: " + b"x" * (3 * MOST), b"data: " + b"y" * 1000 + b"\ndata: z" * (MOST // 7), b":" + b"c" * 2 * MOST]
    stream = b"\n\n".join([*long, b"event: error\ndata: {}", b""]) + b"\n"
    reader = SseReader()
    found, most = [], 0
    for place in range(0, len(stream), piece):
        found += reader.feed(stream[place : place + piece])
        most = max(most, sum(map(len, reader._pieces)) + sum(map(len, reader._data)))
    assert found == [Event("error", b"{}")]
    assert most <= 2 * MOST
