"""What a session tells and sends where its peer keeps the rules: streams, bodies, flow, settings, draining."""

from __future__ import annotations

import struct

import pytest
from talk import (
    ACK,
    GET,
    OK,
    POST,
    Recorder,
    Side,
    app,
    block,
    data,
    goaways,
    headers,
    parsed,
    resets,
    settings,
    upstream,
)

from proxy.wire.http2 import frames
from proxy.wire.http2.credit import CONNECTION_WINDOW
from proxy.wire.http2.flow import HIGH_WATER
from proxy.wire.http2.frames import CANCEL, NO_ERROR, REFUSED_STREAM, frame
from proxy.wire.http2.heads import own_block
from proxy.wire.http2.peer_limits import PeerLimits
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2


def data_of(said: list[tuple[int, int, int, bytes]], stream: int = 1) -> bytes:
    return b"".join(payload for kind, _, number, payload in said if kind == frames.DATA and number == stream)


def updates(said: list[tuple[int, int, int, bytes]]) -> list[tuple[int, int]]:
    return [(number, int.from_bytes(payload)) for kind, _, number, payload in said if kind == frames.WINDOW_UPDATE]


# -- beginning --------------------------------------------------------------------------------------------------------


def test_what_each_side_says_first() -> None:
    first = Side(client=False, limits=PeerLimits(header_bytes=5000, streams=7, window=99_999)).said()
    assert dict(struct.iter_unpack(">HI", first[0][3])) == {1: 0, 3: 7, 4: 99_999, 5: 65536, 6: 5000}
    assert updates(first) == [(0, CONNECTION_WINDOW - 65535)]
    side = Side(client=True)
    out = side.out()
    assert out.startswith(frames.PREFACE)
    assert dict(struct.iter_unpack(">HI", parsed(out[24:])[0][3])) == {1: 0, 2: 0, 4: 262144, 5: 65536, 6: 65536}


def test_a_connection_is_open_when_settings_have_come() -> None:
    side = Side(client=True)
    assert not side.session.is_open and side.session.places == 0
    side.feed(settings(MAX_CONCURRENT_STREAMS=3))
    assert side.is_open and side.session.places == 3
    assert (frames.SETTINGS, frames.ACK, 0, b"") in side.said()


def test_places_are_what_peer_and_limits_leave() -> None:
    side = upstream(PeerLimits(streams=2))
    one, two = side.request(), side.request()
    assert side.session.places == 0
    side.feed(headers(1, OK))
    assert one.whole and side.session.places == 1
    side.feed(settings(MAX_CONCURRENT_STREAMS=0))
    assert side.session.places == -1
    two.reset(CANCEL)
    assert side.session.places == 0


def test_a_peer_that_never_acknowledges_is_app() -> None:
    side = app(acknowledged=False)
    table = b"\x40\x05x-key\x05value"  # indexed, then used
    side.feed(frame(frames.HEADERS, 5, 1, block(*GET) + table))
    for number in range(3, 103, 2):
        side.feed(frame(frames.HEADERS, 5, number, block(*GET) + b"\xbe"))
    assert {stream.head.get_all("x-key")[0] for stream in side.accepted} == {"value"}
    assert side.accepted[-1].head.block(b"http", None, None).endswith(b"\x00\x05x-key\x05value")
    side.feed(headers(201, POST, end=False, update=b""))
    for _ in range(20):  # its window is what RFC 9113 begins with, for all it knows
        side.feed(data(201, bytes(16_000)))
        assert sum(size for number, size in updates(side.said()) if number == 201) in (0, 16_000, 32_000)


def test_the_table_goes_with_the_acknowledgement() -> None:
    side = app(acknowledged=False)
    side.feed(frame(frames.HEADERS, 5, 1, block(*GET) + b"\x40\x05x-key\x05value"))
    side.feed(frame(frames.HEADERS, 5, 3, block(*GET) + b"\xbe"), ACK)
    side.feed(headers(5, (*GET, (b"x-key", b"other"))), headers(7, GET, update=b""))
    assert [stream.head.get_all("x-key") for stream in side.accepted] == [["value"], ["value"], ["other"], []]


def test_who_never_had_a_table_need_not_say_so_again() -> None:
    side = app(acknowledged=False)
    side.feed(headers(1, GET), ACK, headers(3, GET, update=b""))
    assert len(side.accepted) == 2 and side.failure is None


#: As .NET's HttpClient encodes a request: fields of the static table, and literals without indexing.
DOTNET = b"\x83\x86\x01\x04host\x04\x0a/pkg.S/Mtd\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
#: As gRPC C-core encodes the answer to a call that ends before its answer began.
CUT_OFF = b"\x00\x07:status\x03200\x00\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x011"


def test_an_app_without_a_table_needs_no_size_update() -> None:
    side = app()
    for number in range(1, 9, 2):
        side.feed(frame(frames.HEADERS, 5, number, DOTNET))
    assert side.failure is None
    assert [stream.head.get_all("te") for stream in side.accepted] == [["trailers"]] * 4
    side.feed(frame(frames.HEADERS, 5, 9, DOTNET + b"\xbe"))  # but it can't use one either
    assert side.failure is not None and side.failure[0] == frames.COMPRESSION_ERROR


def test_an_upstreams_first_block_may_come_past_its_encoder() -> None:
    side = upstream()
    cut_off, other = side.request(POST), side.request(POST)
    side.feed(frame(frames.HEADERS, 5, 1, CUT_OFF), headers(3, OK))  # the update is in the next
    assert side.failure is None
    assert cut_off.head.get_all("grpc-status") == ["1"] and other.head.status == 200


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\x82\x86\x84", id="says nothing of a table"),
        pytest.param(DOTNET + b"\x40\x01a\x01b", id="adds to it"),
        pytest.param(DOTNET + b"\x20", id="updates it behind a field"),
        pytest.param(DOTNET + b"\x00\x05ab", id="is cut short"),
        pytest.param(b"\x3f\x01" + DOTNET, id="keeps some of it"),
        pytest.param(b"\x21\x20" + DOTNET, id="goes above the maximum first"),
    ],
)
def test_other_blocks_need_a_size_update(text: bytes) -> None:
    side = app()
    side.feed(frame(frames.HEADERS, 5, 1, text))
    assert side.failure is not None and side.failure[0] == frames.COMPRESSION_ERROR


def test_who_has_fields_in_its_table_has_to_say_that_they_go() -> None:
    side = app(acknowledged=False)
    side.feed(frame(frames.HEADERS, 5, 1, DOTNET + b"\x40\x05x-key\x05value"), ACK)
    side.feed(frame(frames.HEADERS, 5, 3, DOTNET))
    assert side.failure is not None and side.failure[0] == frames.COMPRESSION_ERROR


# -- requests and answers ---------------------------------------------------------------------------------------------


def test_what_stands_together_is_told_together() -> None:
    told = []

    class Whole(Recorder):
        __slots__ = ()

        def on_head(self, head: Request2 | Response2, data: bytes, end: bool, trailers: object) -> None:
            told.append((self.id, data, end, trailers is not None))

    side = app()
    side.make = Whole  # type: ignore[method-assign]
    side.feed(
        headers(1, GET)
        + headers(3, POST, end=False)
        + data(3, b"ab")
        + data(3, b"cd", end=True)
        + headers(5, POST, end=False)
        + data(5, b"x")
        + frame(frames.PING, 0, 0, bytes(8))
        + headers(5, ((b"a", b"1"),))
        + headers(7, POST, end=False)
        + headers(9, POST, end=False)
        + data(7, b"7")
        + data(9, b"9", end=True)
    )
    assert told == [
        (1, b"", True, False),
        (3, b"abcd", True, False),
        (5, b"x", True, True),
        (9, b"9", True, False),
        (7, b"7", False, False),
    ]


def test_an_answer_with_interim_ones_body_and_trailers() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    side.feed(headers(1, ((b":status", b"100"),), end=False), headers(1, ((b":status", b"103"),), end=False))
    stream.send_end(b"ask")
    side.feed(headers(1, OK, end=False), data(1, b"an"), data(1, b"swer"), headers(1, ((b"grpc-status", b"0"),)))
    assert stream.events == [("info", 100), ("info", 103), "head", "end"]
    assert stream.body == b"answer"
    assert stream.trailers is not None and stream.trailers.get_all("grpc-status") == ["0"]
    assert not side.session.streams and stream.over


def test_long_heads_go_in_pieces_both_ways() -> None:
    long = [(b"x-%d" % number, b"v" * 1000) for number in range(40)]
    side = upstream()
    side.request((*GET, *long))
    said = side.said()
    assert [kind for kind, *_ in said] == [frames.HEADERS, frames.CONTINUATION, frames.CONTINUATION]
    other = app()
    other.feed(b"".join(frame(*each[:3], each[3]) for each in said))
    head = other.accepted[0].head
    assert head.get_all("x-39") == ["v" * 1000] and other.accepted[0].whole
    other.accepted[0].send_head(head.block(b"http", None, None), True)
    assert len(other.said()) == 3


def test_padding_and_priority_are_dropped() -> None:
    side = app()
    padded = b"\x03" + bytes(5) + b"\x20" + block(*POST) + bytes(3)
    side.feed(frame(frames.PRIORITY, 0, 1, bytes(5)), frame(frames.HEADERS, 0x2C, 1, padded))
    side.feed(frame(frames.DATA, 0x9, 1, b"\x04body" + bytes(4)))
    assert side.accepted[0].body == b"body" and side.accepted[0].whole


def test_unknown_frames_settings_and_flags_are_passed_over() -> None:
    side = app()
    side.feed(
        frame(0x42, 0xFF, 77, b"whatever"), frames.settings({0xFE03: 1, 9: 9}), frame(frames.PING, 0xFE, 0, bytes(8))
    )
    side.feed(headers(1, GET))
    assert side.accepted[0].whole and side.failure is None


def test_a_ping_is_answered() -> None:
    side = app()
    side.feed(frame(frames.PING, 0, 0, b"12345678"))
    assert side.said() == [(frames.PING, frames.ACK, 0, b"12345678")]


# -- resets -----------------------------------------------------------------------------------------------------------


def test_who_resets_a_stream_hears_nothing_more() -> None:
    side = upstream()
    stream = side.request()
    stream.reset(CANCEL)
    assert resets(side.said()) == [(1, CANCEL)]
    side.feed(headers(1, OK, end=False), data(1, b"late", end=True))
    assert stream.events == [] and side.failure is None and resets(side.said()) == []


def test_who_resets_within_what_it_is_told_hears_nothing_more() -> None:
    class Leaving(Recorder):
        __slots__ = ()

        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            if data:
                self.reset(CANCEL)

    side = upstream()
    side.make = Leaving  # type: ignore[method-assign]
    stream = side.request()
    side.feed(headers(1, OK, end=False))
    side.feed(data(1, b"some") + data(1, b"more") + headers(1, ((b"a", b"1"),)))
    assert stream.events == ["head"] and stream.body == b"some"


def test_a_refused_stream_was_not_processed() -> None:
    side = upstream()
    one, two = side.request(), side.request()
    side.feed(frames.rst_stream(1, REFUSED_STREAM), frames.rst_stream(3, CANCEL))
    assert one.events == [("gone", REFUSED_STREAM, False)]
    assert two.events == [("gone", CANCEL, True)]


def test_a_reset_behind_a_whole_answer_is_nothing() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    side.feed(headers(1, OK), frames.rst_stream(1, NO_ERROR))
    assert stream.events == ["head", "end"] and stream.over
    stream.send_data(b"more")
    stream.send_end()
    assert data_of(side.said()) == b""


def test_a_lost_connection_is_told_to_every_stream() -> None:
    side = app()
    side.feed(headers(1, POST, end=False), headers(3, GET))
    side.session.lost()
    assert [stream.events[-1] for stream in side.accepted] == [("gone", None, True)] * 2
    side.accepted[0].send_data(b"x")
    side.accepted[0].reset(CANCEL)
    assert not side.session.streams


# -- flow -------------------------------------------------------------------------------------------------------------


def test_data_waits_for_the_streams_window() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    stream.send_data(bytes(70_000))
    assert len(data_of(side.said())) == 65_535 and not stream.blocked
    stream.send_data(bytes(HIGH_WATER))
    assert stream.blocked and data_of(side.said()) == b""
    stream.send_end(trailers=block((b"a", b"1")))
    side.feed(frames.window_update(1, 10_000))
    assert data_of(side.said()) == b""  # the connection's is used up
    side.feed(frames.window_update(0, 1 << 20))
    assert len(data_of(side.said())) == 10_000
    side.feed(settings(INITIAL_WINDOW_SIZE=1 << 20))
    said = side.said()
    assert len(data_of(said)) == 70_000 + HIGH_WATER - 75_535
    assert said[-1][:2] == (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM)
    assert stream.sent_all and not stream.over


def test_who_was_blocked_is_told_when_it_may_write() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    side.feed(frames.window_update(0, 1 << 20))
    stream.send_data(bytes(65_535 + HIGH_WATER + 1))
    side.out()
    assert stream.blocked and stream.events == []
    side.feed(frames.window_update(1, HIGH_WATER))
    side.out()
    assert stream.events == ["writable"] and not stream.blocked


def test_windows_that_shrink_below_nothing() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    stream.send_data(bytes(60_000))
    side.feed(settings(INITIAL_WINDOW_SIZE=0))
    stream.send_data(b"more")
    side.out()
    side.feed(frames.window_update(1, 60_000))
    assert data_of(side.said()) == b""
    side.feed(frames.window_update(1, 2))
    assert data_of(side.said()) == b"mo"


def test_frames_are_no_larger_than_the_peer_takes() -> None:
    side = upstream()
    stream = side.request(POST, end=False)
    stream.send_end(bytes(50_000))
    said = [each for each in side.said() if each[0] == frames.DATA]
    assert [len(payload) for *_, payload in said] == [16_384] * 3 + [848]
    assert [flags for _, flags, *_ in said] == [0, 0, 0, frames.END_STREAM]


def test_streams_take_turns() -> None:
    side = upstream()
    streams = [side.request(POST, end=False) for _ in range(3)]
    side.feed(frames.window_update(0, 1 << 20))
    side.session.outbox.blocked = True
    for stream in streams:
        stream.send_data(bytes(40_000))
    side.out()
    side.session.outbox.drained()
    said = [number for kind, _, number, _ in side.said() if kind == frames.DATA]
    assert said[:6] == [1, 3, 5, 1, 3, 5]


def test_no_more_is_gathered_than_the_transport_takes() -> None:
    side = upstream(PeerLimits(window=1 << 20))
    side.feed(settings(INITIAL_WINDOW_SIZE=frames.MOST), frames.window_update(0, 1 << 30))
    stream = side.request(POST, end=False)
    stream.send_data(bytes(5_000_000))
    first = side.session.outbox.take()
    assert 256 * 1024 <= len(first) < 300 * 1024
    side.session.outbox.blocked = True
    assert side.session.outbox.take() == b""
    side.session.outbox.drained()
    assert len(data_of(parsed(first)) + data_of(side.said())) == 5_000_000


def test_what_comes_is_credited_when_it_is_taken() -> None:
    side = app(PeerLimits(window=100_000))
    side.feed(headers(1, POST, end=False), data(1, bytes(20_000)))
    assert updates(side.said()) == []
    side.feed(data(1, bytes(10_000)))
    assert updates(side.said()) == [(1, 30_000)]
    stream = side.accepted[0]
    stream.pause()
    side.feed(data(1, bytes(60_000)), data(1, bytes(40_000), end=True))
    assert updates(side.said()) == [] and len(stream.body) == 30_000 and side.session.credit.held == 100_000
    side.resume(stream)
    assert len(stream.body) == 130_000 and stream.whole and side.session.credit.held == 0


def test_the_connection_is_credited_whatever_one_stream_does_until_too_much_is_held() -> None:
    side = app(PeerLimits(window=frames.MOST, held=5_000_000))
    side.feed(headers(1, POST, end=False), headers(3, POST, end=False))
    slow = side.accepted[0]
    slow.pause()
    for _ in range(70):
        side.feed(data(1, bytes(60_000)))
    assert sum(size for number, size in updates(side.said()) if number == 0) == 70 * 60_000
    for _ in range(100):
        side.feed(data(1, bytes(60_000)))
    credited = sum(size for number, size in updates(side.said()) if number == 0)
    assert credited == 0  # 13 of them were owed, and not yet a quarter of the window
    side.resume(slow)
    assert sum(size for number, size in updates(side.said()) if number == 0) == 100 * 60_000


def test_held_bytes_of_a_stream_that_is_over_are_counted_until_they_are_taken() -> None:
    side = upstream()
    stream = side.request()
    side.feed(headers(1, OK, end=False))
    stream.pause()
    side.feed(data(1, b"12345"), headers(1, ((b"a", b"1"),)))
    assert stream.over and side.session.credit.held == 5 and not stream.whole
    side.session.lost()
    side.resume(stream)
    assert stream.whole and stream.body == b"12345" and side.session.credit.held == 0
    assert stream.trailers is not None


def test_a_reader_that_pauses_within_what_it_is_told() -> None:
    class Sipping(Recorder):
        __slots__ = ()

        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            self.pause()

    side = upstream()
    side.make = Sipping  # type: ignore[method-assign]
    stream = side.request()
    side.feed(headers(1, OK, end=False) + data(1, b"a"))
    side.feed(data(1, b"b"))
    side.feed(data(1, b"c", end=True))
    assert stream.body == b"a"
    side.resume(stream)
    assert stream.body == b"abc" and not stream.whole
    side.resume(stream)
    assert stream.whole


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ping", "time"])
def test_draining_serves_what_comes_until_the_client_knows(how: str) -> None:
    side = app()
    side.feed(headers(1, POST, end=False))
    side.session.drain(10.0)
    said = side.said()
    assert goaways(said) == [(frames.MOST, NO_ERROR)]
    side.feed(headers(3, GET))
    assert side.accepted[1].whole and not side.session.drained
    if how == "ping":
        ping = next(payload for kind, _, _, payload in said if kind == frames.PING)
        side.feed(frame(frames.PING, frames.ACK, 0, ping))
    else:
        assert side.session.due == 11.0
        side.session.tick(11.0)
    assert goaways(side.said()) == [(3, NO_ERROR)]
    side.feed(headers(5, POST, end=False), data(5, b"x"), headers(5, ((b"a", b"1"),)))
    assert len(side.accepted) == 2 and side.failure is None
    for stream in side.accepted:
        stream.send_head(own_block(200, b""), True)
    assert not side.session.drained
    side.feed(data(1, b"", end=True))
    assert side.session.drained


def test_an_app_that_goes_away_is_still_app() -> None:
    side = app()
    side.feed(headers(1, GET), frame(frames.GOAWAY, 0, 0, bytes(8)))
    side.accepted[0].send_head(own_block(200, b""), True)
    assert side.session.drained and (frames.HEADERS, 5, 1) in [each[:3] for each in side.said()]


def test_ids_that_are_used_up_drain_a_connection() -> None:
    side = upstream()
    side.session.ids.next = frames.MOST - 2
    side.request()
    assert side.session.places > 0
    stream = side.request()
    assert stream.id == frames.MOST and side.session.draining and side.session.places == 0
    side.feed(headers(frames.MOST, OK))
    assert stream.whole


#: 128 light frames.
TURN = 128 * 64


def test_a_turn_reads_so_many_light_frames_and_the_rest_is_read_in_the_next() -> None:
    side = app()
    pings = [frame(frames.PING, 0, 0, struct.pack(">Q", number)) for number in range(300)]
    came = b"".join(pings)
    answered: list[bytes] = []
    cut = came[:-5]  # the last is not whole
    side.session.feed(cut, 0.0, TURN)
    turns = 1
    while side.session.has_unread:
        read = [payload for kind, _, _, payload in side.said() if kind == frames.PING]
        assert len(read) == TURN // 64
        answered += read
        side.session.feed(b"", 0.0, TURN)
        turns += 1
    side.session.feed(came[-5:], 0.0, TURN)
    answered += [payload for kind, _, _, payload in side.said() if kind == frames.PING]
    assert answered == [struct.pack(">Q", number) for number in range(300)]
    assert turns == 3


def test_large_heads_fill_a_turn_sooner() -> None:
    side = app()
    side.session.feed(
        b"".join(headers(number, (*GET, (b"a", bytes(5000).replace(b"\0", b"x")))) for number in (1, 3, 5)), 0.0, TURN
    )
    assert (len(side.accepted), side.session.has_unread) == (2, True)
    side.session.feed(headers(7, GET), 0.0, TURN)  # it comes meanwhile
    assert [each.id for each in side.accepted] == [1, 3, 5, 7]
    assert not side.session.has_unread
