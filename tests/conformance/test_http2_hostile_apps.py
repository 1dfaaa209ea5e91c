"""What an app on HTTP/2 may not do, and what it gets for it: the table of limits and hostile peers, row by row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import hpack
import pytest
from http2_kit import (
    ACK,
    CALM,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Http2Proxy,
    Place,
    Wire,
    block,
    data,
    frame,
    goaway,
    headers,
    rst,
    settings,
    string,
    window_update,
)

PLAIN = "defaults: {strategy: none}"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http2Proxy]:
    with Http2Proxy(tmp_path_factory.mktemp("hostile"), PLAIN, number=200) as started:
        yield started


def is_served(wire: Wire, place: Place, stream: int = 101) -> None:
    """A good request of this connection is answered, and is the first that the upstream hears of."""
    wire.send(headers(stream, place.fields(path="/fence")))
    upstream = place.accept()
    number, fields, _ = upstream.request()
    assert (":path", "/fence") in fields
    upstream.send(headers(number, [(":status", "200")]))
    assert wire.answer(stream).status == 200


Sent = bytes | Callable[[Place], bytes]


def head(*, end: bool = True, stream: int = 1) -> Callable[[Place], bytes]:
    return lambda place: headers(stream, place.fields("POST"), end=end)


def then(first: Callable[[Place], bytes], *behind: bytes) -> Callable[[Place], bytes]:
    return lambda place: first(place) + b"".join(behind)


def padded(kind: int, flags: int, stream: int, padding: int, payload: bytes) -> bytes:
    return frame(kind, flags | PADDED, stream, bytes([padding]) + payload)


def raw_head(octets: bytes, *, update: bool = True) -> bytes:
    return headers(1, octets, update=update)


ENDED: dict[str, tuple[int, Sent]] = {
    "an even stream": (PROTOCOL_ERROR, head(stream=2)),
    "a lower stream": (PROTOCOL_ERROR, then(head(stream=5), headers(3, [(":method", "GET")]))),
    "a head on stream 0": (PROTOCOL_ERROR, head(stream=0)),
    "data on stream 0": (PROTOCOL_ERROR, data(0, b"x")),
    "priority on stream 0": (PROTOCOL_ERROR, frame(PRIORITY, 0, 0, bytes(5))),
    "a reset of stream 0": (PROTOCOL_ERROR, rst(0, 8)),
    "settings on a stream": (PROTOCOL_ERROR, frame(SETTINGS, 0, 1)),
    "a ping on a stream": (PROTOCOL_ERROR, frame(PING, 0, 1, bytes(8))),
    "a goaway on a stream": (PROTOCOL_ERROR, frame(GOAWAY, 0, 1, bytes(8))),
    "a push promise": (PROTOCOL_ERROR, then(head(), frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)))),
    "a continuation of nothing": (PROTOCOL_ERROR, frame(CONTINUATION, END_HEADERS, 1, b"")),
    "a continuation of a whole head": (PROTOCOL_ERROR, then(head(), frame(CONTINUATION, END_HEADERS, 1, b""))),
    "a head interrupted by data": (PROTOCOL_ERROR, frame(HEADERS, 0, 1, b"\x20") + data(1, b"x")),
    "a head interrupted by a ping": (PROTOCOL_ERROR, frame(HEADERS, 0, 1, b"\x20") + frame(PING, 0, 0, bytes(8))),
    "a head interrupted by an unknown frame": (PROTOCOL_ERROR, frame(HEADERS, 0, 1, b"\x20") + frame(0x99)),
    "a continuation of another stream": (
        PROTOCOL_ERROR,
        frame(HEADERS, 0, 1, b"\x20") + frame(CONTINUATION, END_HEADERS, 3, b""),
    ),
    "padding longer than data": (PROTOCOL_ERROR, then(head(end=False), padded(DATA, 0, 1, 5, b"abcd"))),
    "padding that is not there": (PROTOCOL_ERROR, then(head(end=False), frame(DATA, PADDED, 1, b""))),
    "padding longer than a head": (PROTOCOL_ERROR, padded(HEADERS, END_HEADERS, 1, 5, b"\x20\x82")),
    "data on an idle stream": (PROTOCOL_ERROR, data(1, b"x")),
    "a reset of an idle stream": (PROTOCOL_ERROR, rst(1, 8)),
    "a window for an idle stream": (PROTOCOL_ERROR, window_update(1, 1)),
    "data on an idle stream of ours": (PROTOCOL_ERROR, data(2, b"x")),
    "push that is neither on nor off": (PROTOCOL_ERROR, settings((2, 2))),
    "a limit of frames too small": (PROTOCOL_ERROR, settings((5, 16383))),
    "a limit of frames too large": (PROTOCOL_ERROR, settings((5, 1 << 24))),
    "a window of nothing for the connection": (PROTOCOL_ERROR, window_update(0, 0)),
    "settings of half a pair": (FRAME_SIZE_ERROR, frame(SETTINGS, 0, 0, bytes(5))),
    "an acknowledgement that says something": (FRAME_SIZE_ERROR, frame(SETTINGS, ACK, 0, bytes(6))),
    "a ping too short": (FRAME_SIZE_ERROR, frame(PING, 0, 0, bytes(7))),
    "a ping too long": (FRAME_SIZE_ERROR, frame(PING, 0, 0, bytes(9))),
    "a reset too short": (FRAME_SIZE_ERROR, then(head(), frame(RST_STREAM, 0, 1, bytes(3)))),
    "a window too long": (FRAME_SIZE_ERROR, frame(WINDOW_UPDATE, 0, 0, bytes(5))),
    "a priority too short": (FRAME_SIZE_ERROR, frame(PRIORITY, 0, 1, bytes(4))),
    "a goaway too short": (FRAME_SIZE_ERROR, frame(GOAWAY, 0, 0, bytes(7))),
    "a head shorter than its priority": (FRAME_SIZE_ERROR, frame(HEADERS, END_HEADERS | 0x20, 1, b"abc")),
    "data above 64 KiB": (FRAME_SIZE_ERROR, then(head(end=False), data(1, bytes(65537)))),
    "an unknown frame above 64 KiB": (FRAME_SIZE_ERROR, frame(0x99, 0, 0, bytes(65537))),
    "index 0": (COMPRESSION_ERROR, raw_head(b"\x80")),
    "an index of a table that is not there": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84\xbe")),
    "a name of a table that is not there": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84\x0f\x2f\x01a")),
    "a literal cut short": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84\x00\x05ab")),
    "an integer without end": (COMPRESSION_ERROR, raw_head(b"\x82\xff" + b"\xff" * 30)),
    "Huffman with seven bits and more of padding": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84\x00\x01a\x82\xff\xff")),
    "Huffman padded with zeros": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84\x00\x01a\x81\x00")),
    "a size update above the limit": (COMPRESSION_ERROR, raw_head(b"\x3f\xe1\x1f\x82\x86\x84")),
    "a size update after a field": (COMPRESSION_ERROR, raw_head(b"\x82\x20\x86\x84")),
    "no size update after the acknowledgement": (COMPRESSION_ERROR, raw_head(b"\x82\x86\x84", update=False)),
    "a window above 2^31-1 for the connection": (FLOW_CONTROL_ERROR, window_update(0, 0x7FFFFFFF)),
    "an initial window above 2^31-1": (FLOW_CONTROL_ERROR, settings((INITIAL_WINDOW, 1 << 31))),
    "an initial window that makes one too large": (
        FLOW_CONTROL_ERROR,
        then(head(end=False), window_update(1, 0x7FFFFFFF - 65535), settings((INITIAL_WINDOW, 65536))),
    ),
    "a header list above twice the limit": (
        CALM,
        frame(HEADERS, END_STREAM, 1, b"\x20" + bytes(0))
        + frame(CONTINUATION, 0, 1, block([("a", "x" * 60000)]))
        + frame(CONTINUATION, 0, 1, block([("a", "x" * 60000)]))
        + frame(CONTINUATION, 0, 1, block([("a", "x" * 60000)])),
    ),
    "a header list that indexes make long": (
        CALM,
        headers(1, b"\x82\x86\x84" + b"\x90" * 5000),  # accept-encoding: gzip, deflate, 5,000 times
    ),
    "64 continuations": (
        CALM,
        frame(HEADERS, END_STREAM, 1, b"\x20") + b"".join(frame(CONTINUATION, 0, 1, b"") for _ in range(64)),
    ),
    "pings": (CALM, frame(PING, 0, 0, bytes(8)) * 2100),
    "settings": (CALM, settings() * 2100),
    "acknowledgements": (CALM, SETTINGS_ACK * 2100),
    "empty data": (CALM, then(head(end=False), data(1) * 2100)),
    "padding alone": (CALM, then(head(end=False), padded(DATA, 0, 1, 7, bytes(7)) * 2100)),
    "streams opened and reset": (
        CALM,
        lambda place: b"".join(
            headers(number, place.fields("POST"), end=False) + rst(number, 8) for number in range(1, 4201, 2)
        ),
    ),
    "streams that are malformed": (
        CALM,
        lambda place: b"".join(headers(number, [("A", "b")]) for number in range(1, 4201, 2)),
    ),
    "windows of nothing": (
        CALM,
        lambda place: b"".join(
            headers(number, place.fields("POST"), end=False) + window_update(number, 0) for number in range(1, 4201, 2)
        ),
    ),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_connection_is_ended(proxy: Http2Proxy, place: Place, name: str) -> None:
    code, sent = ENDED[name]
    with proxy.app() as app:
        wire = Wire(app)
        wire.send(PREFACE, settings())
        while not any(each.kind == SETTINGS and each.flags & ACK for each in wire.frames):
            wire.until(SETTINGS)
        app.try_send(sent(place) if callable(sent) else sent)
        assert wire.last_goaway() == code
    with proxy.http2().peer as peer:  # and nobody else
        other = Wire(peer)
        other.is_answering()


@pytest.mark.parametrize(
    "first",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r" + settings(),
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + settings(),
        PREFACE + SETTINGS_ACK,
        PREFACE + frame(PING, 0, 0, bytes(8)),
        PREFACE + window_update(0, 1),
        PREFACE + headers(1, [(":method", "GET")]),
        PREFACE + frame(0x99),
        PREFACE + b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ],
    ids=["octet", "SM", "acknowledgement", "ping", "window", "head", "unknown", "request line"],
)
def test_a_connection_that_begins_otherwise(proxy: Http2Proxy, first: bytes) -> None:
    with proxy.app() as app:
        app.send(first)
        wire = Wire(app, polite=False)
        assert wire.last_goaway() in (PROTOCOL_ERROR, FRAME_SIZE_ERROR if b"GET /" in first else PROTOCOL_ERROR)


BAD_FIELDS: dict[str, tuple[tuple[bytes, bytes], ...]] = {
    "an upper-case name": ((b"X-a", b"b"),),
    "an empty name": ((b"", b"b"),),
    "a space in a name": ((b"a b", b"b"),),
    "a colon in a name": ((b"a:b", b"b"),),
    "an octet above ASCII in a name": ((b"a\xe9", b"b"),),
    "CR in a value": ((b"a", b"b\rc"),),
    "LF in a value": ((b"a", b"b\nc"),),
    "NUL in a value": ((b"a", b"b\0c"),),
    "CRLF and a field in a value": ((b"a", b"b\r\nX-Evil: 1"),),
    "connection": ((b"connection", b"close"),),
    "keep-alive": ((b"keep-alive", b"1"),),
    "proxy-connection": ((b"proxy-connection", b"close"),),
    "transfer-encoding": ((b"transfer-encoding", b"chunked"),),
    "upgrade": ((b"upgrade", b"h2c"),),
    "te: gzip": ((b"te", b"gzip"),),
    "te: trailers, gzip": ((b"te", b"trailers, gzip"),),
    "a pseudo-field late": ((b"a", b"b"), (b":path", b"/b")),
    "a pseudo-field twice": ((b":path", b"/b"),),
    "an unknown pseudo-field": ((b":protocol2", b"x"),),
    "an answer's pseudo-field": ((b":status", b"200"),),
    "another Host": ((b"host", b"evil.test"),),
    "another port of Host": ((b"host", b"AUTHORITY:81"),),
    "two Hosts": ((b"host", b"AUTHORITY"), (b"host", b"AUTHORITY")),
    "two lengths": ((b"content-length", b"1"), (b"content-length", b"2")),
    "a length that is none": ((b"content-length", b"-1"),),
    "a length of nothing that came": ((b"content-length", b"1"),),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_head_that_is_malformed(proxy: Http2Proxy, place: Place, name: str) -> None:
    more = [(key, value.replace(b"AUTHORITY", place.authority.encode())) for key, value in BAD_FIELDS[name]]
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, [*place.fields(), *more]))  # type: ignore[list-item]
        assert wire.answer(1).reset == PROTOCOL_ERROR
        is_served(wire, place)


@pytest.mark.parametrize(
    ("left_out", "put"),
    [
        (":method", []),
        (":path", []),
        (":scheme", []),
        (":path", [(":path", "")]),
        (":path", [(":path", "a")]),
        (":path", [(":path", "http://evil.test/")]),
        (":path", [(":path", "/a b")]),
        (":path", [(":path", "/a#b")]),
        (":path", [(":path", "*")]),
        (":method", [(":method", "G ET")]),
        (":method", [(":method", "")]),
        (":scheme", [(":scheme", "ht tp")]),
        (":authority", [(":authority", "a b")]),
        (":authority", [(":authority", "user@a.test")]),
    ],
    ids=str,
)
def test_pseudo_fields_that_are_malformed(
    proxy: Http2Proxy, place: Place, left_out: str, put: list[tuple[str, str]]
) -> None:
    fields = [*put, *(each for each in place.fields() if each[0] != left_out)]
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, fields))
        answer = wire.answer(1)
        assert answer.reset == PROTOCOL_ERROR
        is_served(wire, place)


@pytest.mark.parametrize("value", ["a\x01b", "\x1f", "a\x7f", "\x08a", " a", "a ", "\ta", "a\t"])
@pytest.mark.parametrize("behind", [False, True])
def test_values_that_http1_has_no_words_for(proxy: Http2Proxy, place: Place, value: str, behind: bool) -> None:
    """RFC 9110 section 5.5, RFC 9113 section 8.2.1: in a head, and in trailers."""
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        if behind:
            wire.send(headers(1, place.fields("POST"), end=False), data(1, b"x"), headers(1, [("x-a", value)]))
        else:
            wire.send(headers(1, [*place.fields(), ("x-a", value)]))
        assert wire.answer(1).reset == PROTOCOL_ERROR
        wire.send(headers(3, [*place.fields(path="/fence"), ("x-a", "\x80\xff\t~ b")]))
        while True:
            upstream = place.accept()
            number, fields, _ = upstream.request()
            if (":path", "/fence") in fields:
                break
        assert ("x-a", "\x80\xff\t~ b") in fields
        upstream.send(headers(number, [(":status", "200")]))
        assert wire.answer(3).status == 200


@pytest.mark.parametrize("put", [[], [(":authority", "")], [("host", "")]], ids=str)
def test_a_request_without_an_authority(proxy: Http2Proxy, place: Place, put: list[tuple[str, str]]) -> None:
    """RFC 9113 section 8.3.1; HTTP/1 says 400 of a request without Host."""
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/a"), *put]
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        for stream in (1, 3):
            wire.send(headers(stream, fields))
            assert wire.answer(stream).status == 400
        wire.send(headers(5, [*fields, ("content-type", "application/grpc")]))
        answer = wire.answer(5)
        assert (answer.status, answer.grpc_status) == (200, 13)
        is_served(wire, place)


@pytest.mark.parametrize("host", ["AUTHORITY", "U.TEST", "AUTHORITY:80"])
def test_a_host_that_names_the_same(proxy: Http2Proxy, place: Place, host: str) -> None:
    host = place.authority.upper() if host == "U.TEST" else host.replace("AUTHORITY", place.authority)
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, [*place.fields(), ("host", host)]))
        upstream = place.accept()
        number, _, _ = upstream.request()
        upstream.send(headers(number, [(":status", "200")]))
        assert wire.answer(1).status == 200


@pytest.mark.parametrize(
    ("behind", "code"),
    [
        ([data(1, b"abc", end=True)], PROTOCOL_ERROR),
        ([data(1, b"abcdef")], PROTOCOL_ERROR),
        ([data(1, b"ab"), data(1, end=True)], PROTOCOL_ERROR),
        ([data(1, b"ab"), headers(1, [("a", "b")])], PROTOCOL_ERROR),
        ([data(1, b"abcd"), headers(1, [("A", "b")])], PROTOCOL_ERROR),
        ([data(1, b"abcd"), headers(1, [(":path", "/")])], PROTOCOL_ERROR),
        ([data(1, b"abcd"), headers(1, [("connection", "close")])], PROTOCOL_ERROR),
        ([data(1, b"abcd"), headers(1, [("a", "b")], end=False)], PROTOCOL_ERROR),
        ([window_update(1, 0)], PROTOCOL_ERROR),
        ([window_update(1, 0x7FFFFFFF)], FLOW_CONTROL_ERROR),
        ([data(1, b"abcd", end=True), data(1, b"e")], STREAM_CLOSED),
        ([data(1, b"abcd", end=True), headers(1, [("a", "b")])], STREAM_CLOSED),
        ([data(1, b"abcd", end=True), headers(1, [("a", "b")], end=False)], STREAM_CLOSED),
    ],
    ids=[
        *("short", "long", "short by an empty end", "short by trailers", "upper-case trailers", "pseudo trailers"),
        *(
            "connection in trailers",
            "trailers that do not end the stream",
            "window 0",
            "window overflow",
            "data behind the end",
        ),
        *("trailers behind the end", "a head after the end of the stream"),
    ],
)
def test_a_stream_that_goes_wrong(proxy: Http2Proxy, place: Place, behind: list[bytes], code: int) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, place.fields("POST", "/a", ("content-length", "4")), end=False), *behind)
        assert wire.answer(1).reset == code
        wire.is_answering()


def test_a_stream_that_is_over(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        is_served(wire, place, 1)
        wire.send(data(1, b"x"))
        assert wire.until(RST_STREAM, stream=1).code == STREAM_CLOSED
        wire.send(window_update(1, 5), rst(1, 8), frame(PRIORITY, 0, 1, bytes(5)))  # they may have been on their way
        wire.is_answering()


@pytest.mark.parametrize("behind", [data(1, b"x"), headers(1, [("a", "b")])], ids=["data", "headers"])
def test_a_stream_that_its_app_has_reset(proxy: Http2Proxy, place: Place, behind: bytes) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, place.fields("POST"), end=False), rst(1, CANCEL), behind)
        assert wire.until(RST_STREAM).code == STREAM_CLOSED
        is_served(wire, place, 3)


@pytest.mark.parametrize(
    "more",
    [[("a", "x" * 66000)], [(f"a{number}", "b") for number in range(260)]],
    ids=["long", "many"],
)
@pytest.mark.parametrize("grpc", [False, True])
def test_a_header_list_above_the_limits(
    proxy: Http2Proxy, place: Place, more: list[tuple[str, str]], grpc: bool
) -> None:
    octets = b"\x20" + block([*(place.grpc() if grpc else place.fields()), *more])
    pieces = [octets[at : at + 16000] for at in range(0, len(octets), 16000)]
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(frame(HEADERS, END_STREAM | (0 if pieces[1:] else END_HEADERS), 1, pieces[0]))
        for at, piece in enumerate(pieces[1:], 2):
            wire.send(frame(CONTINUATION, END_HEADERS if at == len(pieces) else 0, 1, piece))
        answer = wire.answer(1)
        if grpc:
            assert (answer.status, answer.grpc_status, answer.is_trailers_only) == (200, 8, True)
        else:
            assert answer.status == 431
        is_served(wire, place)


def test_what_a_header_list_may_be(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        octets = b"\x20" + block([*place.fields(), ("a", "x" * 60000)])
        wire.send(frame(HEADERS, END_STREAM, 1, octets[:30000]), frame(CONTINUATION, END_HEADERS, 1, octets[30000:]))
        upstream = place.accept()
        number, fields, _ = upstream.request()
        assert ("a", "x" * 60000) in fields
        upstream.send(headers(number, [(":status", "200"), ("b", "y" * 60000)][:1]))
        assert wire.answer(1).status == 200


def test_streams_above_the_limit(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        last = 2 * 1000 + 1
        wire.send(*(headers(number, place.fields("POST"), end=False) for number in range(1, last + 1, 2)))
        assert wire.answer(last).reset == REFUSED_STREAM
        wire.is_answering()
        assert not any(each.kind in (RST_STREAM, GOAWAY) and each.stream != last for each in wire.frames)


def test_an_app_that_acknowledges_no_settings(proxy: Http2Proxy, place: Place) -> None:
    """It is served, with its table."""
    encoder = hpack.Encoder()
    with proxy.app() as app:
        wire = Wire(app, polite=False)
        wire.send(PREFACE, settings())
        fields = [*place.fields(), ("x-kept", "in the table")]
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, encoder.encode(fields)))
        upstream = place.accept()
        for stream in (1, 3, 5):
            number, seen, _ = upstream.request()
            assert ("x-kept", "in the table") in seen
            upstream.send(headers(number, [(":status", "200")]))
            assert wire.answer(stream).status == 200
            if stream < 5:
                wire.send(frame(HEADERS, END_HEADERS | END_STREAM, stream + 2, encoder.encode(fields)))


def test_what_is_passed_over(proxy: Http2Proxy, place: Place) -> None:
    """Unknown frames, settings and flags; priority, also of itself and of idle streams; pings say what they said."""
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(
            frame(0x99, 0xFF, 7, b"abc"),
            settings((0x99, 5), (8, 1)),
            frame(PRIORITY, 0, 9, struct.pack(">IB", 9, 5)),
            frame(PING, 0xFE, 0, b"12345678"),
        )
        while (got := wire.until(PING)).payload != b"12345678":
            pass
        assert got.flags == ACK
        octets = b"\x20" + block(place.fields("POST"))
        wire.send(frame(HEADERS, 0x20 | PADDED | END_HEADERS, 11, b"\x03" + bytes(5) + octets + bytes(3)))
        wire.send(padded(DATA, 0, 11, 255, b"hello" + bytes(255)), padded(DATA, END_STREAM, 11, 2, bytes(2)))
        upstream = place.accept()
        number, _, body = upstream.request()
        assert body == b"hello"
        upstream.send(headers(number, [(":status", "200")]))
        assert wire.answer(11).status == 200


def test_connect_and_goaway_of_an_app(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        wire = Wire(peer)
        wire.send(headers(1, [(":method", "CONNECT"), (":authority", place.authority)], end=False))
        assert wire.answer(1).status == 501
        wire.send(headers(3, place.fields("POST"), end=False), goaway(0))  # it opens no more, and its streams go on
        upstream = place.accept()
        number = upstream.until(HEADERS).stream
        wire.send(data(3, b"late", end=True))
        assert upstream.until(DATA).payload == b"late"
        upstream.send(headers(number, [(":status", "200")]))
        assert wire.answer(3).status == 200
        wire.end()


def test_strings_of_hpack_are_strings() -> None:
    assert string(b"a" * 300) == b"\x7f\xad\x01" + b"a" * 300
