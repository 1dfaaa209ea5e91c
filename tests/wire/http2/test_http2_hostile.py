"""Every row of the contract's table of hostile peers (section 12), on the session of either side."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from talk import ACK, GET, OK, POST, Side, app, data, goaways, headers, resets, settings, upstream

from proxy.wire.http2 import frames
from proxy.wire.http2.compiled import HEADER
from proxy.wire.http2.frames import (
    CANCEL,
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    frame,
)
from proxy.wire.http2.heads import own_block
from proxy.wire.http2.peer_limits import PeerLimits

LONG = frames.FRAME_LIMIT + 1


def is_given_up(side: Side, code: int) -> bool:
    """Whether it said GOAWAY with this code, and its owner knows."""
    said = goaways(side.said())
    return [each for _, each in said] == [code] and side.failure is not None and side.failure[0] == code


# -- GOAWAY, from an app ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "code"),
    [
        pytest.param(headers(2, GET), PROTOCOL_ERROR, id="even stream"),
        pytest.param(headers(0, GET), PROTOCOL_ERROR, id="head on stream 0"),
        pytest.param(data(0, b"x"), PROTOCOL_ERROR, id="data on stream 0"),
        pytest.param(headers(5, GET) + headers(3, GET), PROTOCOL_ERROR, id="stream below the last"),
        pytest.param(frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), PROTOCOL_ERROR, id="push promise"),
        pytest.param(frame(frames.CONTINUATION, 4, 1, b""), PROTOCOL_ERROR, id="continuation of nothing"),
        pytest.param(headers(1, GET, more=True) + data(1, b"x"), PROTOCOL_ERROR, id="data within a head"),
        pytest.param(
            headers(1, GET, more=True) + frame(frames.CONTINUATION, 4, 3, b""),
            PROTOCOL_ERROR,
            id="another's continuation",
        ),
        pytest.param(
            headers(1, GET, more=True) + frame(0xFE, 0, 1, b""), PROTOCOL_ERROR, id="an unknown frame within a head"
        ),
        pytest.param(
            headers(1, POST, end=False) + frame(frames.DATA, 8, 1, b"\x05abcd"), PROTOCOL_ERROR, id="padded data"
        ),
        pytest.param(headers(1, POST, end=False) + frame(frames.DATA, 8, 1, b""), PROTOCOL_ERROR, id="no pad length"),
        pytest.param(frame(frames.HEADERS, 0xC, 1, b"\x05abcd"), PROTOCOL_ERROR, id="padded head"),
        pytest.param(data(1, b"x"), PROTOCOL_ERROR, id="data on an idle stream"),
        pytest.param(frames.rst_stream(1, CANCEL), PROTOCOL_ERROR, id="reset of an idle stream"),
        pytest.param(frames.window_update(1, 1), PROTOCOL_ERROR, id="credit for an idle stream"),
        pytest.param(frames.window_update(0, 0), PROTOCOL_ERROR, id="no credit for the connection"),
        pytest.param(settings(ENABLE_PUSH=2), PROTOCOL_ERROR, id="enable push 2"),
        pytest.param(settings(MAX_FRAME_SIZE=16383), PROTOCOL_ERROR, id="small frames"),
        pytest.param(settings(MAX_FRAME_SIZE=1 << 24), PROTOCOL_ERROR, id="huge frames"),
        pytest.param(frame(frames.SETTINGS, 0, 1, b""), PROTOCOL_ERROR, id="settings on a stream"),
        pytest.param(frame(frames.SETTINGS, 0, 0, b"12345"), FRAME_SIZE_ERROR, id="settings of 5"),
        pytest.param(frame(frames.SETTINGS, 1, 0, b"123456"), FRAME_SIZE_ERROR, id="settings' ack with some"),
        pytest.param(frame(frames.PING, 0, 0, b"1234567"), FRAME_SIZE_ERROR, id="ping of 7"),
        pytest.param(frame(frames.PING, 0, 1, b"12345678"), PROTOCOL_ERROR, id="ping on a stream"),
        pytest.param(frame(frames.RST_STREAM, 0, 1, b"123"), FRAME_SIZE_ERROR, id="reset of 3"),
        pytest.param(frame(frames.PRIORITY, 0, 1, b"1234"), FRAME_SIZE_ERROR, id="priority of 4"),
        pytest.param(frame(frames.WINDOW_UPDATE, 0, 0, b"12345"), FRAME_SIZE_ERROR, id="window update of 5"),
        pytest.param(frame(frames.GOAWAY, 0, 0, b"1234567"), FRAME_SIZE_ERROR, id="goaway of 7"),
        pytest.param(frame(frames.HEADERS, 0x24, 1, b"1234"), FRAME_SIZE_ERROR, id="a head shorter than its priority"),
        pytest.param(frames.data_header(1, LONG, False), FRAME_SIZE_ERROR, id="above 64 KiB"),
        pytest.param(HEADER.pack(LONG >> 8, LONG & 255, 0xFE, 0, 0), FRAME_SIZE_ERROR, id="unknown above 64 KiB"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\x80"), COMPRESSION_ERROR, id="index 0"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\xbe"), COMPRESSION_ERROR, id="index beyond the table"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\xff\x00"), COMPRESSION_ERROR, id="a long index"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\x82\x20"), COMPRESSION_ERROR, id="update behind a field"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\x20\x20\x82"), COMPRESSION_ERROR, id="three updates"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x3f\xe1\x1f\x82"), COMPRESSION_ERROR, id="update above the limit"),
        pytest.param(
            frame(frames.HEADERS, 5, 1, b"\x20\x00\x7f\xff\xff\xff\xff\x7f"), COMPRESSION_ERROR, id="overflow"
        ),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\x00\x05ab"), COMPRESSION_ERROR, id="a name cut short"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\x00\x01a\x05ab"), COMPRESSION_ERROR, id="a value cut short"),
        pytest.param(
            frame(frames.HEADERS, 5, 1, b"\x20\x00\x01a\x84\xff\xff\xff\xff"), COMPRESSION_ERROR, id="huffman eos"
        ),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x82\x86\x84"), COMPRESSION_ERROR, id="no size update"),
        pytest.param(frames.window_update(0, frames.MOST), FLOW_CONTROL_ERROR, id="connection's window overflows"),
        pytest.param(settings(INITIAL_WINDOW_SIZE=1 << 31), FLOW_CONTROL_ERROR, id="initial window too large"),
        pytest.param(
            headers(1, POST, end=False) + frames.window_update(1, 1 << 30) + settings(INITIAL_WINDOW_SIZE=frames.MOST),
            FLOW_CONTROL_ERROR,
            id="stream's window overflows by settings",
        ),
    ],
)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "by bytes"])
def test_an_app_that_breaks_the_connections_rules_gets_goaway(what: bytes, code: int, cut: bool) -> None:
    side = app()
    side.feed(*([what[at : at + 1] for at in range(len(what))] if cut else [what]))
    assert is_given_up(side, code)
    assert not side.session.streams
    side.feed(headers(9, GET))
    assert side.said() == []


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frames.PREFACE[:-1] + b"x",
        frames.PREFACE + headers(1, GET),
        frames.PREFACE + ACK,
        frames.PREFACE + frame(0xFE, 0, 0, b""),
    ],
)
def test_a_connection_begins_with_preface_and_settings(first: bytes) -> None:
    side = Side(client=False)
    side.feed(first)
    assert is_given_up(side, PROTOCOL_ERROR)


def test_the_preface_may_come_in_pieces() -> None:
    side = Side(client=False)
    side.feed(*[bytes((byte,)) for byte in frames.PREFACE + settings() + ACK + headers(1, GET)])
    assert side.failure is None and side.is_open
    assert side.accepted[0].whole


@pytest.mark.parametrize(
    "begun", [headers(1, GET, more=True), headers(1, GET)[:20], frames.frame(frames.HEADERS, 0, 1, b"\x20")]
)
def test_a_head_has_60_seconds(begun: bytes) -> None:
    side = app()
    side.feed(begun)
    assert side.session.due == 60.0
    side.session.tick(59.9)
    assert side.failure is None
    side.now = 59.0
    side.feed(frame(frames.CONTINUATION, 0, 1, b"") if begun[-1:] != begun[20:21] else b"")
    side.session.tick(60.0)
    assert is_given_up(side, PROTOCOL_ERROR)


def test_a_connection_has_60_seconds_to_begin() -> None:
    side = Side(client=False, now=5.0)
    side.feed(frames.PREFACE)
    side.now = 50.0
    side.feed(b"\0")
    side.session.tick(65.0)
    assert is_given_up(side, PROTOCOL_ERROR)


def test_more_data_than_the_connection_was_credited() -> None:
    side = app(PeerLimits(window=frames.MOST))
    piece = data(1, bytes(60 * 1024))
    side.feed(headers(1, POST, end=False))
    side.accepted[0].pause()
    side.session.credit.limits = PeerLimits(window=frames.MOST, held=0)  # nothing more is credited
    for _ in range(16 * 1024 // 60 + 1):
        side.feed(piece)
    assert is_given_up(side, FLOW_CONTROL_ERROR)


def test_a_header_list_that_is_twice_too_large() -> None:
    side = app(PeerLimits(header_bytes=1000))
    side.feed(headers(1, (*GET, (b"a", bytes(1500) + b"x" * 500))))
    assert is_given_up(side, ENHANCE_YOUR_CALM)


def test_a_bomb_of_indexed_fields() -> None:
    side = app()
    side.feed(frame(frames.HEADERS, 5, 1, b"\x20" + b"\x90" * 60_000))
    assert is_given_up(side, ENHANCE_YOUR_CALM)
    side = app(acknowledged=False)
    bomb = b"\x40\x01a\x7f\xc1\x1e" + b"v" * 4032 + b"\xbe" * 60_000  # an entry of 4 KiB, and 60,000 uses of it
    side.feed(frame(frames.HEADERS, 5, 1, bomb))
    assert is_given_up(side, ENHANCE_YOUR_CALM)


@pytest.mark.parametrize("fragment", [b"", bytes(3000)])
def test_continuations_without_end(fragment: bytes) -> None:
    side = app()
    side.feed(headers(1, GET, more=True))
    sent = 0
    while side.failure is None and sent < 64:
        side.feed(frame(frames.CONTINUATION, 0, 1, fragment))
        sent += 1
    assert is_given_up(side, ENHANCE_YOUR_CALM)
    assert sent == (64 if not fragment else 131072 // 3000 + 1)


@pytest.mark.parametrize(
    ("each", "before"),
    [
        pytest.param(frame(frames.PING, 0, 0, b"12345678"), b"", id="ping"),
        pytest.param(frame(frames.PING, 1, 0, b"12345678"), b"", id="ping's ack"),
        pytest.param(settings(), b"", id="settings"),
        pytest.param(settings(INITIAL_WINDOW_SIZE=7), b"", id="settings that say something"),
        pytest.param(ACK, b"", id="settings' ack"),
        pytest.param(data(1, b""), headers(1, POST, end=False), id="empty data"),
        pytest.param(frame(frames.DATA, 8, 1, b"\x02\0\0"), headers(1, POST, end=False), id="padding alone"),
    ],
)
def test_frames_that_carry_nothing_are_counted(each: bytes, before: bytes) -> None:
    side = app(PeerLimits(resets=100))
    side.feed(before)
    for second in range(3):  # a rate, not a number
        side.now = 100.0 + second
        side.feed(each * 100)
        side.out()
    assert side.failure is None
    side.feed(each)
    assert is_given_up(side, ENHANCE_YOUR_CALM)


def test_streams_that_are_reset_at_once_are_counted() -> None:
    side = app(PeerLimits(resets=100))
    side.now = 10.0
    for number in range(1, 203, 2):
        side.feed(headers(number, GET) + frames.rst_stream(number, CANCEL))
    assert is_given_up(side, ENHANCE_YOUR_CALM)
    assert len(side.accepted) == 101 and not side.session.streams


def test_who_makes_us_reset_streams_is_counted_as_who_resets_them() -> None:
    side = app(PeerLimits(resets=100))
    side.now = 10.0
    for number in range(1, 203, 2):
        side.feed(headers(number, POST, end=False) + frames.window_update(number, 0))
    assert is_given_up(side, ENHANCE_YOUR_CALM)


def test_resets_behind_an_answer_cost_nothing() -> None:
    side = app(PeerLimits(resets=10))
    for number in range(1, 203, 2):
        side.feed(headers(number, POST, end=False))
        side.accepted[-1].send_head(own_block(200, b""), False)
        side.feed(frames.rst_stream(number, CANCEL))
    assert side.failure is None


def test_replies_that_nobody_reads() -> None:
    side = app(PeerLimits(resets=1e9))
    side.session.outbox.blocked = True
    for _ in range(1000):
        side.feed(frame(frames.PING, 0, 0, b"12345678"))
        side.out()
    assert side.failure is None
    side.feed(frame(frames.PING, 0, 0, b"12345678"))
    assert side.failure is not None and side.failure[0] == ENHANCE_YOUR_CALM


# -- RST_STREAM, from an app ------------------------------------------------------------------------------------------


def with_field(name: bytes, value: bytes) -> Any:
    return (*GET, (name, value))


MALFORMED = [
    pytest.param(with_field(b"X-Up", b"1"), id="upper case"),
    pytest.param(with_field(b"a b", b"1"), id="space in a name"),
    pytest.param(with_field(b"", b"1"), id="no name"),
    pytest.param(with_field(b"a:b", b"1"), id="colon in a name"),
    pytest.param(with_field(b"a", b"1\r"), id="CR"),
    pytest.param(with_field(b"a", b"1\nb: 2"), id="LF"),
    pytest.param(with_field(b"a", b"\0"), id="NUL"),
    *(
        pytest.param(with_field(name, b"x"), id=name.decode())
        for name in (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
    ),
    pytest.param(with_field(b"te", b"gzip"), id="te: gzip"),
    pytest.param(with_field(b"te", b"trailers, gzip"), id="te: trailers, gzip"),
    *(pytest.param(GET[:at] + GET[at + 1 :], id=f"no {GET[at][0].decode()}") for at in (0, 1, 3)),
    pytest.param(with_field(b":method", b"GET"), id="method twice"),
    pytest.param(with_field(b":other", b"x"), id="unknown pseudo-field"),
    pytest.param(with_field(b":status", b"200"), id="status on a request"),
    pytest.param((*GET[:3], (b"a", b"1"), GET[3]), id="a late pseudo-field"),
    pytest.param(with_field(b"host", b"other.test"), id="another host"),
    pytest.param(with_field(b"host", b"api.test:81"), id="another port"),
    pytest.param((*GET[:2], (b":authority", b"u@api.test"), GET[3]), id="user info"),
    pytest.param((*GET[:3], (b":path", b"")), id="empty path"),
    pytest.param((*GET[:3], (b":path", b"a")), id="path without a slash"),
    pytest.param((*GET[:3], (b":path", b"*")), id="GET *"),
    pytest.param((*GET[:3], (b":path", b"/a b")), id="space in the path"),
    pytest.param(((b":method", b"G T"), *GET[1:]), id="malformed method"),
    pytest.param(with_field(b"content-length", b"1"), id="length without a body"),
    pytest.param(with_field(b"content-length", b"x"), id="malformed length"),
    pytest.param((*GET, (b"content-length", b"0"), (b"content-length", b"0")), id="length twice"),
    pytest.param((*GET, (b"host", b"api.test"), (b"host", b"api.test")), id="host twice"),
    pytest.param(((b":method", b"CONNECT"), *GET[1:]), id="CONNECT with a path"),
]


@pytest.mark.parametrize("fields", MALFORMED)
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_malformed_request_is_reset(fields: Any, acknowledged: bool) -> None:
    side = app(acknowledged=acknowledged)
    side.feed(headers(1, fields) + headers(3, GET))
    assert resets(side.said()) == [(1, PROTOCOL_ERROR)]
    assert len(side.accepted) == 1 and side.accepted[0].whole and side.accepted[0].id == 3


@pytest.mark.parametrize("value", [b"API.test", b"api.test:80", b"api.test"])
def test_a_host_that_says_the_same_is_taken(value: bytes) -> None:
    side = app()
    side.feed(headers(1, with_field(b"host", value)))
    assert side.accepted[0].head.authority == "api.test"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(data(1, b"12345", end=True), id="less"),
        pytest.param(data(1, b"1234567"), id="more"),
        pytest.param(data(1, b"123456") + data(1, b"7", end=True), id="more in the end"),
        pytest.param(data(1, b"12345") + headers(1, ((b"a", b"1"),)), id="less before trailers"),
    ],
)
def test_a_body_unlike_its_length_is_reset(body: bytes) -> None:
    side = app()
    side.feed(headers(1, (*POST, (b"content-length", b"6")), end=False), body)
    assert resets(side.said()) == [(1, PROTOCOL_ERROR)]
    assert side.accepted[0].events == ["head", ("gone", PROTOCOL_ERROR, True)]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param(frames.window_update(1, 0), PROTOCOL_ERROR, id="no credit"),
        pytest.param(frames.window_update(1, frames.MOST), FLOW_CONTROL_ERROR, id="too much credit"),
        pytest.param(headers(1, ((b"a", b"1"),), end=False), PROTOCOL_ERROR, id="trailers without an end"),
        pytest.param(headers(1, ((b":path", b"/"),)), PROTOCOL_ERROR, id="pseudo-field in trailers"),
        pytest.param(headers(1, ((b"A", b"1"),)), PROTOCOL_ERROR, id="upper case in trailers"),
    ],
)
def test_one_stream_broken_leaves_the_others(more: bytes, code: int) -> None:
    side = app()
    side.feed(headers(1, POST, end=False) + headers(3, POST, end=False))
    side.feed(more)
    assert resets(side.said()) == [(1, code)]
    assert side.accepted[0].events == ["head", ("gone", code, True)]
    side.feed(data(1, b"late") + data(3, b"on", end=True))
    assert side.accepted[1].body == b"on" and side.accepted[1].whole
    assert resets(side.said()) == []


def test_more_data_than_the_stream_was_credited() -> None:
    side = app(PeerLimits(window=100_000))
    side.feed(headers(1, POST, end=False))
    stream = side.accepted[0]
    stream.pause()
    side.feed(data(1, bytes(60_000)), data(1, bytes(40_000)))
    assert stream.events == ["head"]
    side.feed(data(1, b"1"))
    assert resets(side.said()) == [(1, FLOW_CONTROL_ERROR)]
    assert stream.events == ["head", ("gone", FLOW_CONTROL_ERROR, True)]
    assert side.session.credit.held == 0


@pytest.mark.parametrize("more", [data(1, b"x"), headers(1, GET), headers(1, ((b"a", b"1"),))])
@pytest.mark.parametrize("answered", [False, True])
def test_what_comes_behind_the_end(more: bytes, answered: bool) -> None:
    side = app()
    side.feed(headers(1, GET))
    if answered:
        side.accepted[0].send_head(own_block(200, b""), True)
        assert not side.session.streams
    side.out()
    side.feed(more)
    assert resets(side.said()) == [(1, STREAM_CLOSED)]
    side.feed(more)  # it was reset: what comes now is passed over
    assert resets(side.said()) == [] and side.failure is None


@pytest.mark.parametrize("by", ["size", "number"])
def test_a_header_list_above_the_limits_is_answered(by: str) -> None:
    side = app(PeerLimits(header_bytes=1000, headers=10))
    fields = [(b"a", b"x" * 900)] if by == "size" else [(b"a", b"x")] * 7
    side.feed(headers(1, (*GET, *fields)))
    assert [event[0] for event in side.accepted[0].events] == ["too large"]
    assert side.failure is None and resets(side.said()) == []


def test_streams_above_the_limit_are_refused() -> None:
    side = app(PeerLimits(streams=2))
    side.feed(*(headers(number, GET) for number in (1, 3, 5)))
    assert resets(side.said()) == [(5, REFUSED_STREAM)]
    side.accepted[0].send_head(own_block(200, b""), True)
    side.feed(headers(7, GET))
    assert [stream.id for stream in side.accepted] == [1, 3, 7]


# -- from an upstream -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "code"),
    [
        pytest.param(frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), PROTOCOL_ERROR, id="push promise"),
        pytest.param(headers(2, OK), PROTOCOL_ERROR, id="a stream of its own"),
        pytest.param(headers(3, OK), PROTOCOL_ERROR, id="a head on an idle stream"),
        pytest.param(data(3, b""), PROTOCOL_ERROR, id="data on an idle stream"),
        pytest.param(settings(ENABLE_PUSH=1), PROTOCOL_ERROR, id="enables push"),
        pytest.param(frame(frames.HEADERS, 5, 1, b"\x20\xbe"), COMPRESSION_ERROR, id="bad HPACK"),
        pytest.param(frames.data_header(1, LONG, False), FRAME_SIZE_ERROR, id="above 64 KiB"),
        pytest.param(frames.window_update(0, frames.MOST), FLOW_CONTROL_ERROR, id="window overflow"),
        pytest.param(frame(frames.PING, 0, 0, b"12345678") * 1001, ENHANCE_YOUR_CALM, id="pings"),
        pytest.param(headers(1, (*OK, (b"a", b"x" * 60_000), (b"b", bytes(80_000)))), 0, id="a head without end"),
    ],
)
def test_an_upstream_that_breaks_the_connections_rules_loses_it(what: bytes, code: int) -> None:
    side = upstream()
    stream = side.request()
    side.out()
    side.feed(what)
    if not code:
        assert side.failure is not None  # of its frame's size
        return
    assert is_given_up(side, code)
    assert stream.events == [("gone", code, True)]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        pytest.param(headers(1, ((b"a", b"1"),)), PROTOCOL_ERROR, id="no status"),
        pytest.param(headers(1, ((b":status", b"20"),)), PROTOCOL_ERROR, id="malformed status"),
        pytest.param(headers(1, (*OK, *OK)), PROTOCOL_ERROR, id="two"),
        pytest.param(headers(1, ((b":status", b"101"),), end=False), PROTOCOL_ERROR, id="101"),
        pytest.param(headers(1, ((b":status", b"103"),)), PROTOCOL_ERROR, id="an interim end"),
        pytest.param(headers(1, (*OK, (b"connection", b"close"))), PROTOCOL_ERROR, id="connection"),
        pytest.param(headers(1, (*OK, (b"A", b"1"))), PROTOCOL_ERROR, id="upper case"),
        pytest.param(headers(1, (*OK, (b"content-length", b"1"))), PROTOCOL_ERROR, id="no body"),
        pytest.param(
            headers(1, (*OK, (b"content-length", b"1")), end=False) + data(1, b"12"), PROTOCOL_ERROR, id="more"
        ),
        pytest.param(data(1, b"12"), PROTOCOL_ERROR, id="data before a head"),
        pytest.param(
            headers(1, ((b":status", b"204"),), end=False) + data(1, b"1"), PROTOCOL_ERROR, id="204 with some"
        ),
        pytest.param(frames.window_update(1, 0), PROTOCOL_ERROR, id="no credit"),
        pytest.param(headers(1, (*OK, *[(b"a", b"1")] * 300)), ENHANCE_YOUR_CALM, id="too many fields"),
    ],
)
def test_a_malformed_answer_is_reset(what: bytes, code: int) -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    other = side.request()
    side.out()
    side.feed(what)
    assert resets(side.said()) == [(1, code)]
    assert stream.events[-1] == ("gone", code, True) and not stream.whole
    side.feed(headers(3, OK))
    assert other.whole


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        (((b":method", b"HEAD"), *GET[1:]), (*OK, (b"content-length", b"5"))),
        (GET, ((b":status", b"304"), (b"content-length", b"5"))),
    ],
)
def test_a_length_of_what_is_not_sent(fields: Any, answer: Any) -> None:
    side = upstream()
    stream = side.request(fields)
    side.feed(headers(1, answer))
    assert stream.whole and stream.head.content_length == 5


def test_interim_answers_without_end() -> None:
    side = upstream()
    stream = side.request()
    side.out()
    for _ in range(10):
        side.feed(headers(1, ((b":status", b"103"), (b"link", b"x" * 50_000)), end=False))
    assert resets(side.said()) == [(1, PROTOCOL_ERROR)]
    assert stream.events == [("info", 103)] * 5 + [("gone", PROTOCOL_ERROR, True)]


def test_what_is_told_of_a_goaway() -> None:
    side = upstream()
    streams = [side.request() for _ in range(3)]
    side.feed(frame(frames.GOAWAY, 0, 0, struct.pack(">II", 3, NO_ERROR)))
    assert side.session.places == 0 and side.session.draining
    assert [stream.events for stream in streams] == [[], [], [("gone", REFUSED_STREAM, False)]]
    side.feed(headers(1, OK) + headers(3, OK))
    assert streams[0].whole and streams[1].whole and side.session.drained


def test_a_block_that_the_library_refuses_tells_nothing_of_our_memory() -> None:
    side = app(acknowledged=False)
    side.feed(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, b"\xff"))
    assert side.failure is not None
    assert side.failure[0] == frames.COMPRESSION_ERROR
    assert "memory" not in side.failure[1] and " at 0x" not in side.failure[1]
