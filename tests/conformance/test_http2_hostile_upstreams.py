"""What an upstream on HTTP/2 may not do: its calls get a `reset`, and it gets what an app would."""

from __future__ import annotations

from collections.abc import Iterator

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
    HEADERS,
    INITIAL_WINDOW,
    INTERNAL_ERROR,
    PADDED,
    PING,
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
    headers,
    rst,
    settings,
    window_update,
)

PLAIN = "defaults: {strategy: none, dialects: [grpc]}"
OK = [(":status", "200")]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http2Proxy]:
    with Http2Proxy(tmp_path_factory.mktemp("hostile"), PLAIN, number=200) as started:
        yield started


#: On the connection of a request on stream 1 that no answer has come to.
ENDED: dict[str, tuple[int, bytes]] = {
    "a head on stream 0": (PROTOCOL_ERROR, headers(0, OK)),
    "a head on a stream of its own": (PROTOCOL_ERROR, headers(2, OK)),
    "a head on an idle stream": (PROTOCOL_ERROR, headers(3, OK)),
    "data on stream 0": (PROTOCOL_ERROR, data(0, b"x")),
    "data on an idle stream": (PROTOCOL_ERROR, data(3, b"x")),
    "data on a stream of its own": (PROTOCOL_ERROR, data(2, b"x")),
    "a reset of an idle stream": (PROTOCOL_ERROR, rst(3, 8)),
    "a window for an idle stream": (PROTOCOL_ERROR, window_update(3, 1)),
    "settings on a stream": (PROTOCOL_ERROR, frame(SETTINGS, 0, 1)),
    "a push promise": (PROTOCOL_ERROR, frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02\x20\x82\x86\x84")),
    "push": (PROTOCOL_ERROR, settings((2, 1))),
    "a limit of frames too small": (PROTOCOL_ERROR, settings((5, 1))),
    "a continuation of nothing": (PROTOCOL_ERROR, frame(CONTINUATION, END_HEADERS, 1, b"")),
    "a head interrupted by data": (PROTOCOL_ERROR, frame(HEADERS, 0, 1, b"\x20\x88") + data(1, b"x")),
    "padding longer than data": (PROTOCOL_ERROR, headers(1, OK, end=False) + frame(DATA, PADDED, 1, b"\x05abcd")),
    "a window of nothing for the connection": (PROTOCOL_ERROR, window_update(0, 0)),
    "HTTP/1": (FRAME_SIZE_ERROR, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "settings of half a pair": (FRAME_SIZE_ERROR, frame(SETTINGS, 0, 0, bytes(5))),
    "a ping too short": (FRAME_SIZE_ERROR, frame(PING, 0, 0, bytes(7))),
    "a reset too short": (FRAME_SIZE_ERROR, frame(RST_STREAM, 0, 1, bytes(3))),
    "a window too long": (FRAME_SIZE_ERROR, frame(WINDOW_UPDATE, 0, 0, bytes(5))),
    "a priority too short": (FRAME_SIZE_ERROR, frame(PRIORITY, 0, 1, bytes(4))),
    "data above 64 KiB": (FRAME_SIZE_ERROR, headers(1, OK, end=False) + data(1, bytes(65537))),
    "index 0": (COMPRESSION_ERROR, headers(1, b"\x80")),
    "an index of a table that is not there": (COMPRESSION_ERROR, headers(1, b"\x88\xbe")),
    "a literal cut short": (COMPRESSION_ERROR, headers(1, b"\x88\x00\x05ab")),
    "a size update above the limit": (COMPRESSION_ERROR, headers(1, b"\x3f\xe1\x1f\x88", update=False)),
    "no size update after the acknowledgement": (COMPRESSION_ERROR, headers(1, b"\x88", update=False)),
    "a window above 2^31-1 for the connection": (FLOW_CONTROL_ERROR, window_update(0, 0x7FFFFFFF)),
    "an initial window above 2^31-1": (FLOW_CONTROL_ERROR, settings((INITIAL_WINDOW, 1 << 31))),
    "a header list above twice the limit": (
        CALM,
        frame(HEADERS, END_STREAM, 1, b"\x20") + frame(CONTINUATION, 0, 1, block([("a", "x" * 60000)])) * 3,
    ),
    "64 continuations": (CALM, frame(HEADERS, END_STREAM, 1, b"\x20") + frame(CONTINUATION, 0, 1, b"") * 64),
    "pings": (CALM, frame(PING, 0, 0, bytes(8)) * 2100),
    "settings": (CALM, settings() * 2100),
    "empty data": (CALM, headers(1, OK, end=False) + data(1) * 2100),
}


def fault(proxy: Http2Proxy, place: Place) -> str:
    line = proxy.log(place.authority.partition(".")[0])
    (attempt,) = line["history"]
    return str(attempt.get("fault"))


@pytest.mark.parametrize("name", ENDED)
def test_a_connection_is_ended(proxy: Http2Proxy, place: Place, name: str) -> None:
    code, sent = ENDED[name]
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields()), headers(3, place.grpc()))
        upstream = place.accept()
        while not any(each.kind == SETTINGS and each.flags & ACK for each in upstream.frames):
            upstream.until(SETTINGS)
        first = upstream.until(HEADERS)
        assert upstream.fields(first)[0] == (":method", "GET")
        upstream.until(HEADERS)
        sent = sent.replace(b"\0\0\0\x03", b"\0\0\0\x05") if "idle" in name else sent
        upstream.peer.try_send(sent)
        assert upstream.last_goaway() == code
        plain, grpc = app.answer(1), app.answer(3)
        if plain.fields and plain.status == 200:  # its answer had begun
            assert plain.reset is not None
        else:
            assert plain.status == 502
        assert (grpc.status, grpc.is_trailers_only) == (200, True)
        assert grpc.grpc_status in (14, 13, 8, 2)
        app.send(headers(5, place.fields()))  # goes by another connection
        other = place.accept()
        number, _, _ = other.request()
        other.send(headers(number, OK))
        assert app.answer(5).status == 200
    faults = {fault(proxy, place), fault(proxy, place)}
    assert faults == {"reset"}


#: What is sent on stream 1, and the code that the stream is reset with.
RESET: dict[str, tuple[int, bytes]] = {
    "an upper-case name": (PROTOCOL_ERROR, headers(1, [*OK, ("A", "b")])),
    "LF in a value": (PROTOCOL_ERROR, headers(1, [*OK, ("a", "b\nc")])),
    "NUL in a value": (PROTOCOL_ERROR, headers(1, [*OK, ("a", "b\0c")])),
    "connection": (PROTOCOL_ERROR, headers(1, [*OK, ("connection", "close")])),
    "transfer-encoding": (PROTOCOL_ERROR, headers(1, [*OK, ("transfer-encoding", "chunked")])),
    "te": (PROTOCOL_ERROR, headers(1, [*OK, ("te", "gzip")])),
    "no status": (PROTOCOL_ERROR, headers(1, [("a", "b")])),
    "nothing": (PROTOCOL_ERROR, headers(1, [])),
    "two statuses": (PROTOCOL_ERROR, headers(1, [*OK, *OK])),
    "a late status": (PROTOCOL_ERROR, headers(1, [("a", "b"), *OK])),
    "a status of two digits": (PROTOCOL_ERROR, headers(1, [(":status", "20")])),
    "101": (PROTOCOL_ERROR, headers(1, [(":status", "101")], end=False)),
    "a request's pseudo-field": (PROTOCOL_ERROR, headers(1, [*OK, (":path", "/")])),
    "an interim answer that ends": (PROTOCOL_ERROR, headers(1, [(":status", "103")])),
    "data before a head": (PROTOCOL_ERROR, data(1, b"x")),
    "data behind an interim answer": (PROTOCOL_ERROR, headers(1, [(":status", "103")], end=False) + data(1, b"x")),
    "two lengths": (PROTOCOL_ERROR, headers(1, [*OK, ("content-length", "1"), ("content-length", "2")], end=False)),
    "a length of nothing": (PROTOCOL_ERROR, headers(1, [*OK, ("content-length", "1")])),
    "a window of nothing": (PROTOCOL_ERROR, window_update(1, 0)),
    "a window above 2^31-1": (FLOW_CONTROL_ERROR, window_update(1, 0x7FFFFFFF)),
    "a header list above the limit": (
        CALM,
        frame(HEADERS, END_STREAM, 1, b"\x20" + block(OK))
        + frame(CONTINUATION, 0, 1, block([("a", "x" * 40000)]))
        + frame(CONTINUATION, END_HEADERS, 1, block([("a", "x" * 30000)])),
    ),
    "more fields than the limit": (CALM, headers(1, [*OK, *((f"a{number}", "b") for number in range(260))])),
}


@pytest.mark.parametrize("grpc", [False, True], ids=["plain", "grpc"])
@pytest.mark.parametrize("name", RESET)
def test_a_stream_is_reset(proxy: Http2Proxy, place: Place, name: str, grpc: bool) -> None:
    code, sent = RESET[name]
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.grpc() if grpc else place.fields()))
        upstream = place.accept()
        assert upstream.until(HEADERS).stream == 1
        upstream.send(sent)
        assert upstream.until(RST_STREAM).code == code
        answer = app.answer(1)
        infos = [dict(each)[":status"] for each in answer.infos]
        assert infos == (["103"] if name == "data behind an interim answer" else [])
        if grpc:
            assert (answer.status, answer.grpc_status, answer.is_trailers_only) == (
                200,
                8 if code == CALM else 13,
                True,
            )
        else:
            assert answer.status == 502
        upstream.is_answering()  # the connection goes on
        app.send(headers(3, place.fields()))
        number, _, _ = upstream.request()
        upstream.send(headers(number, OK))
        assert app.answer(3).status == 200
    assert fault(proxy, place) == "reset"


#: What follows a successful head on stream 1, what the upstream gets, and the app.
BROKEN: dict[str, tuple[int | None, int, bytes]] = {
    "more than its length": (PROTOCOL_ERROR, INTERNAL_ERROR, data(1, b"abcdef")),
    "less than its length": (PROTOCOL_ERROR, INTERNAL_ERROR, data(1, b"a", end=True)),
    "trailers that do not end the stream": (PROTOCOL_ERROR, INTERNAL_ERROR, headers(1, [("a", "b")], end=False)),
    "an upper-case trailer": (PROTOCOL_ERROR, INTERNAL_ERROR, data(1, b"abcd") + headers(1, [("A", "b")])),
    "a status in trailers": (PROTOCOL_ERROR, INTERNAL_ERROR, data(1, b"abcd") + headers(1, OK)),
    "a reset": (None, CANCEL, rst(1, CANCEL)),
    "a reset of no error": (None, INTERNAL_ERROR, rst(1, 0)),
    "a refusal": (None, REFUSED_STREAM, rst(1, REFUSED_STREAM)),
}


@pytest.mark.parametrize("grpc", [False, True], ids=["plain", "grpc"])
@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_has_begun_breaks(proxy: Http2Proxy, place: Place, name: str, grpc: bool) -> None:
    theirs, ours, sent = BROKEN[name]
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.grpc() if grpc else place.fields()))
        upstream = place.accept()
        upstream.until(HEADERS)
        upstream.send(headers(1, [*OK, ("content-length", "4"), ("content-type", "application/grpc")], end=False))
        app.until(HEADERS)
        upstream.send(sent)
        if theirs is not None:
            assert upstream.until(RST_STREAM).code == theirs
        answer = app.answer(1)
        if grpc:
            assert answer.trailers is not None
            assert answer.grpc_status == {CANCEL: 1}.get(ours, 13)
            assert answer.reset is None
        else:
            assert answer.reset == ours
        upstream.is_answering()
        assert not any(each.kind == RST_STREAM for each in upstream.frames) or theirs is not None


def test_data_and_heads_behind_the_end(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields("POST"), end=False), headers(3, place.fields("POST"), end=False))
        upstream = place.accept()
        for number, behind in ((1, data(1, b"x")), (3, headers(3, OK))):
            upstream.until(HEADERS, stream=number)
            upstream.send(headers(number, OK), behind)
            assert app.answer(number).status == 200
            assert upstream.until(RST_STREAM, stream=number).code in (CANCEL, STREAM_CLOSED)
            upstream.is_answering()


def test_more_data_than_the_window_of_a_stream(proxy: Http2Proxy, place: Place) -> None:
    """Of a stream whose app takes nothing, 1 MiB is taken and a frame more is not; others go on."""
    with proxy.http2((INITIAL_WINDOW, 0)).peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields()), headers(3, place.fields(path="/b")))
        upstream = place.accept()
        upstream.until(HEADERS)
        upstream.until(HEADERS)
        upstream.send(headers(1, OK, end=False))
        app.until(HEADERS)
        sent = 0
        while sent < 1 << 20:
            upstream.send(data(1, bytes(16384)))
            sent += 16384
        upstream.is_answering()
        windows = [each for each in upstream.frames if each.kind == WINDOW_UPDATE and each.stream == 1]
        granted = sum(int.from_bytes(each.payload) for each in windows)
        assert granted <= 128 * 1024, granted  # what was written to the app's connection
        assert not any(each.kind == RST_STREAM for each in upstream.frames)
        upstream.send(data(1, bytes(16384)) * (1 + granted // 16384))
        assert upstream.until(RST_STREAM).code == FLOW_CONTROL_ERROR
        upstream.send(headers(3, OK))
        assert app.answer(3).status == 200


def test_an_upstream_that_acknowledges_no_settings(proxy: Http2Proxy, place: Place) -> None:
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields()))
        upstream = place.accept()
        upstream.polite = False
        number, _, _ = upstream.request()
        upstream.send(frame(HEADERS, END_HEADERS, number, b"\x88\x40\x01a\x05table"), data(number, bytes(65535)))
        upstream.send(data(number, b"", end=True))
        answer = app.answer(1)
        assert (answer.status, answer.get("a"), len(answer.body)) == (200, "table", 65535)
        app.send(headers(3, place.fields()))
        number, _, _ = upstream.request()
        upstream.send(frame(HEADERS, END_HEADERS | END_STREAM, number, b"\x88\xbe"))
        assert app.answer(3).get("a") == "table"


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", SETTINGS_ACK, frame(PING, 0, 0, bytes(8)), headers(1, OK), b""],
    ids=["HTTP/1", "acknowledgement", "ping", "head", "nothing"],
)
def test_an_upstream_that_greets_otherwise(proxy: Http2Proxy, place: Place, greeting: bytes) -> None:
    """It has seen nothing of the call."""
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.grpc()))
        for _ in range(2):  # transparently once more
            upstream = place.accept(greet=False)
            upstream.peer.try_send(greeting)
            if not greeting:
                upstream.peer.end()
            upstream.end()
            assert not any(each.kind == HEADERS for each in upstream.frames)
        answer = app.answer(1)
        assert (answer.status, answer.grpc_status) == (200, 14)
    line = proxy.log(place.authority.partition(".")[0])
    assert {each["fault"] for each in line["history"]} == {"connect_failure"}
