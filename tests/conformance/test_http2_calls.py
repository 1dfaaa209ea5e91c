"""Calls on HTTP/2 as raw peers see them: places, refusals, goodbyes, cancelling, windows, own answers, draining."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from http2_kit import (
    ACK,
    CALM,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENDLESS,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    INTERNAL_ERROR,
    MAX_STREAMS,
    NO_ERROR,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    Answer,
    Fields,
    Http2Proxy,
    Place,
    Wire,
    data,
    frame,
    goaway,
    headers,
    rst,
    settings,
    string,
    window_update,
)

RETRYING = """
defaults:
  dialects: [grpc]
  attempt_headers: [grpc]
  timeouts: {connect: 2s}
  strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}
"""
OK: Fields = [(":status", "200")]
GRPC_OK: Fields = [(":status", "200"), ("content-type", "application/grpc")]
DONE: Fields = [("grpc-status", "0")]
UNAVAILABLE: Fields = [*GRPC_OK, ("grpc-status", "14"), ("grpc-message", "busy")]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http2Proxy]:
    with Http2Proxy(tmp_path_factory.mktemp("calls"), RETRYING, number=100) as started:
        yield started


@pytest.fixture
def app(proxy: Http2Proxy) -> Iterator[Wire]:
    wire = proxy.http2()
    with wire.peer:
        yield wire


def served(upstream: Wire, fields: Fields = OK) -> Fields:
    """Answer the next request; its fields."""
    number, seen, _ = upstream.request()
    upstream.send(headers(number, fields))
    return seen


def number_of(fields: Fields) -> str | None:
    return dict(fields).get("x-attempt-count")


def grpc_of(answer: Answer) -> tuple[int, int | None, bool]:
    return answer.status, answer.grpc_status, answer.is_trailers_only


# -- places -----------------------------------------------------------------------------------------------------------


def test_calls_above_an_upstreams_streams_use_another_connection(app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields()))
    first = place.accept((MAX_STREAMS, 2))
    assert first.until(HEADERS).stream == 1
    app.send(*(headers(number, place.fields()) for number in (3, 5, 7)))
    assert first.until(HEADERS).stream == 3
    second = place.accept((MAX_STREAMS, 2))
    assert {second.until(HEADERS).stream, second.until(HEADERS).stream} == {1, 3}
    for upstream in (first, second):
        upstream.send(headers(1, OK), headers(3, OK))
    assert [app.answer(number).status for number in (1, 3, 5, 7)] == [200] * 4
    assert place.listener.untouched
    app.send(headers(9, place.fields()), headers(11, place.fields()), headers(13, place.fields()))
    served(first)
    served(first)
    served(second)
    assert [app.answer(number).status for number in (9, 11, 13)] == [200] * 3


def test_an_upstream_that_takes_no_stream(app: Wire, place: Place) -> None:
    """It is a connection that failed; nothing of the call was sent by it."""
    app.send(headers(1, place.grpc()))
    for _ in range(2):
        place.accept((MAX_STREAMS, 0)).end()
    served(place.accept(), [*GRPC_OK, *DONE])
    assert app.answer(1).grpc_status == 0


def test_an_upstream_that_never_takes_a_stream_is_told_of_as_that(app: Wire, place: Place) -> None:
    """And not as one that speaks something else."""
    app.send(headers(1, place.fields()))
    for _ in range(4):
        place.accept((MAX_STREAMS, 0)).end()
    answer = app.answer(1)
    assert answer.status == 502
    assert "MAX_CONCURRENT_STREAMS is 0" in (answer.get("proxy-status") or "")


def test_an_upstream_that_takes_its_places_back(app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields()))
    first = place.accept()
    number = first.until(HEADERS).stream
    first.send(settings((MAX_STREAMS, 0)))
    first.is_answering()
    app.send(headers(3, place.fields()))
    served(place.accept())
    assert app.answer(3).status == 200
    first.send(headers(number, OK))
    assert app.answer(1).status == 200


# -- what was not processed -------------------------------------------------------------------------------------------


def test_a_refused_stream_is_sent_again_by_the_same_connection(app: Wire, place: Place) -> None:
    """Once transparently, whatever the method, then as the policy's attempts."""
    app.send(headers(1, place.grpc(), end=False), data(1, b"hello", end=True))
    upstream = place.accept()
    seen = []
    for _ in range(2):
        number, fields, body = upstream.request()
        assert body == b"hello"
        seen.append(number_of(fields))
        upstream.send(rst(number, REFUSED_STREAM))
    number, fields, body = upstream.request()
    seen.append(number_of(fields))
    assert seen == ["1", "1", "2"]
    upstream.send(headers(number, [*GRPC_OK, *DONE]))
    answer = app.answer(1)
    assert (answer.grpc_status, answer.get("grpc-previous-rpc-attempts")) == (0, "1")
    assert place.listener.untouched


def test_streams_above_the_last_of_a_goaway_go_elsewhere(app: Wire, place: Place) -> None:
    app.send(*(headers(number, place.grpc()) for number in (1, 3, 5)))
    first = place.accept()
    assert [first.until(HEADERS).stream for _ in range(3)] == [1, 3, 5]
    first.send(goaway(1))
    second = place.accept()
    assert number_of(served(second, [*GRPC_OK, *DONE])) == "1"
    assert number_of(served(second, [*GRPC_OK, *DONE])) == "1"
    assert [app.answer(number).grpc_status for number in (3, 5)] == [0, 0]
    first.send(headers(1, GRPC_OK, end=False), data(1, b"body"), headers(1, DONE))
    answer = app.answer(1)
    assert (answer.body, answer.grpc_status) == (b"body", 0)
    first.end()  # it closes behind its last stream
    app.send(headers(7, place.grpc()))
    served(second, [*GRPC_OK, *DONE])
    assert app.answer(7).grpc_status == 0


def test_a_goaway_in_two_steps(app: Wire, place: Place) -> None:
    """As servers with an age limit say it: nothing is lost, and what comes later goes elsewhere."""
    app.send(headers(1, place.grpc()))
    first = place.accept()
    first.until(HEADERS)
    first.send(goaway(ENDLESS))
    first.is_answering()
    app.send(headers(3, place.grpc()))
    second = place.accept()
    served(second, [*GRPC_OK, *DONE])
    assert app.answer(3).grpc_status == 0
    first.send(goaway(1), headers(1, [*GRPC_OK, *DONE]))
    assert app.answer(1).grpc_status == 0
    first.end()


@pytest.mark.parametrize("grpc", [True, False], ids=["grpc", "plain"])
@pytest.mark.parametrize("how", ["reset", "lost"])
def test_an_unsafe_method_is_not_repeated(proxy: Http2Proxy, app: Wire, place: Place, how: str, grpc: bool) -> None:
    app.send(headers(1, place.grpc() if grpc else place.fields("POST")))
    upstream = place.accept()
    number, _, _ = upstream.request()
    if how == "reset":
        upstream.send(rst(number, INTERNAL_ERROR))
    else:
        upstream.peer.close()
    answer = app.answer(1)
    if grpc:
        assert grpc_of(answer) == (200, 13 if how == "reset" else 14, True)
    else:
        assert answer.status == 502
    assert place.listener.untouched
    assert len(proxy.log(place.authority.partition(".")[0])["history"]) == 1


@pytest.mark.parametrize("how", ["reset", "lost"])
def test_a_safe_method_is_repeated(app: Wire, place: Place, how: str) -> None:
    app.send(headers(1, place.fields()))
    upstream = place.accept()
    number, _, _ = upstream.request()
    if how == "reset":
        upstream.send(rst(number, INTERNAL_ERROR))
    else:
        upstream.peer.close()
        upstream = place.accept()
    while number_of(served(upstream)) != "2":
        pass
    assert app.answer(1).status == 200


def test_one_loss_of_many_calls(app: Wire, place: Place) -> None:
    """They share one dial, and one connection, again."""
    app.send(*(headers(number, place.fields()) for number in range(1, 100, 2)))
    upstream = place.accept()
    for _ in range(50):
        upstream.until(HEADERS)
    upstream.peer.close()
    upstream = place.accept()
    for _ in range(50):
        served(upstream)
    assert [app.answer(number).status for number in range(1, 100, 2)] == [200] * 50
    assert place.listener.untouched


@pytest.mark.parametrize(("method", "seen"), [("GET", "1"), ("PUT", "1"), ("POST", None)])
def test_the_loss_of_a_connection_that_was_used_before(app: Wire, place: Place, method: str, seen: str | None) -> None:
    """As with HTTP/1: one immediate retry of an idempotent call, which counts as no attempt."""
    app.send(headers(1, place.fields()))
    upstream = place.accept()
    served(upstream)
    assert app.answer(1).status == 200
    app.send(headers(3, place.fields(method)))
    upstream.until(HEADERS, stream=3)
    upstream.peer.close()
    if seen is None:
        assert app.answer(3).status == 502
        assert place.listener.untouched
    else:
        assert number_of(served(place.accept())) == seen
        assert app.answer(3).get("x-attempt-count") == seen


# -- watching ----------------------------------------------------------------------------------------------------------


def test_the_log_says_what_was_spoken_and_what_grpc_calls_came_to(proxy: Http2Proxy, app: Wire, place: Place) -> None:
    name = place.authority.partition(".")[0]
    app.send(headers(1, place.grpc()))
    upstream = place.accept()
    served(upstream, UNAVAILABLE)
    number, _, _ = upstream.request()
    upstream.send(headers(number, GRPC_OK, end=False), headers(number, [("grpc-status", "5")]))
    assert app.answer(1).grpc_status == 5
    line = proxy.log(name)
    assert (line["protocol"], line["status"], line["grpc_status"]) == ("http/2", 200, 5)
    assert [each["protocol"] for each in line["history"]] == ["http/2", "http/2"]
    app.send(headers(3, place.grpc()))  # on the connection that is there: nothing has to be decided
    number, _, _ = upstream.request()
    upstream.send(headers(number, GRPC_OK, end=False), data(number, b"body"), headers(number, DONE))
    assert app.answer(3).grpc_status == 0
    line = proxy.log(name)
    assert (line["grpc_status"], line["history"][0]["protocol"]) == (0, "http/2")
    app.send(headers(5, place.grpc()))
    number, _, _ = upstream.request()
    upstream.send(headers(number, GRPC_OK, end=False), data(number, b"body"), rst(number, CANCEL))
    assert app.answer(5).grpc_status == 1
    assert proxy.log(name)["grpc_status"] == 1
    app.send(headers(7, place.fields()))
    served(upstream)
    assert app.answer(7).status == 200
    assert "grpc_status" not in proxy.log(name)
    app.send(headers(9, place.grpc(("x-retry-disable", "true"))))
    number, _, _ = upstream.request()
    upstream.send(headers(number, [(":status", "502")]))
    app.answer(9)
    assert proxy.log(name)["grpc_status"] == 14


def test_the_log_of_an_answer_of_ours(proxy: Http2Proxy, app: Wire, place: Place) -> None:
    place.listener.listener.close()
    app.send(headers(1, place.grpc()))
    assert app.answer(1).grpc_status == 14
    line = proxy.log(place.authority.partition(".")[0])
    assert (line["protocol"], line["grpc_status"]) == ("http/2", 14)
    assert not any("protocol" in each for each in line["history"])  # nothing was sent


# -- cancelling -------------------------------------------------------------------------------------------------------


def test_a_cancelled_call(proxy: Http2Proxy, app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields()), headers(3, place.fields("POST"), end=False))
    upstream = place.accept()
    streams = [upstream.until(HEADERS).stream, upstream.until(HEADERS).stream]
    app.send(rst(1, CANCEL))
    got = upstream.until(RST_STREAM)
    assert (got.stream, got.code) == (streams[0], CANCEL)
    assert proxy.log(place.authority.partition(".")[0])["outcome"] == "client_gone"
    app.peer.close()
    got = upstream.until(RST_STREAM)
    assert (got.stream, got.code) == (streams[1], CANCEL)
    upstream.is_answering()


def test_an_answer_whole_before_its_request(app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields("POST"), end=False), data(1, b"begun"))
    upstream = place.accept()
    number = upstream.until(HEADERS).stream
    upstream.send(headers(number, OK, end=False), data(number, b"enough", end=True))
    assert app.until(RST_STREAM).code == NO_ERROR
    answer = app.answer(1)
    assert (answer.status, answer.body) == (200, b"enough")
    assert any(each.ends for each in app.frames if each.stream == 1)
    assert upstream.until(RST_STREAM, stream=number).code == CANCEL
    app.send(data(1, b"on its way"))  # is nobody's
    app.is_answering()


def test_an_upstream_that_wants_no_more_of_a_request(app: Wire, place: Place) -> None:
    """RST_STREAM(NO_ERROR) behind a whole answer is nothing."""
    app.send(headers(1, place.grpc(), end=False), data(1, b"begun"))
    upstream = place.accept()
    number = upstream.until(HEADERS).stream
    upstream.send(
        headers(number, GRPC_OK, end=False) + data(number, b"enough") + headers(number, DONE) + rst(number, NO_ERROR)
    )
    assert app.until(RST_STREAM).code == NO_ERROR
    answer = app.answer(1)
    assert (answer.status, answer.body, answer.grpc_status) == (200, b"enough", 0)


# -- own answers ------------------------------------------------------------------------------------------------------


def test_a_given_up_answer_without_a_grpc_status(app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields("GET", "/acme.Echo/echo", ("content-type", "application/grpc"))))
    upstream = place.accept()
    for attempt in (1, 2, 3):
        number, _, _ = upstream.request()
        upstream.send(
            headers(number, [(":status", "503"), ("content-type", "text/html")], end=False)
            + data(number, b"<h1>no</h1>", end=attempt < 3)
        )
    answer = app.answer(1)
    assert grpc_of(answer) == (200, 14, True)
    assert answer.body == b""
    assert answer.get("content-type") == "application/grpc"
    assert "503" in str(answer.get("grpc-message"))
    assert answer.get("grpc-retry-pushback-ms") == "-1"
    assert upstream.until(RST_STREAM, stream=number).code == CANCEL


@pytest.mark.parametrize(
    ("status", "grpc"),
    [("400", 13), ("401", 16), ("403", 7), ("404", 12), ("418", 2), ("429", 14), ("431", 13), ("500", 2), ("502", 14)],
)
def test_an_http_status_on_a_grpc_call(app: Wire, place: Place, status: str, grpc: int) -> None:
    app.send(headers(1, place.grpc(("x-retry-disable", "true"))))
    served(place.accept(), [(":status", status), ("content-type", "text/plain")])
    answer = app.answer(1)
    assert (answer.status, answer.grpc_status) in ((int(status), None), (200, grpc))


def test_a_given_up_answer_with_a_grpc_status(app: Wire, place: Place) -> None:
    app.send(headers(1, place.grpc()))
    upstream = place.accept()
    seen = [number_of(served(upstream, [*UNAVAILABLE, ("x-should-retry", "true")])) for _ in range(3)]
    assert seen == ["1", "2", "3"]
    answer = app.answer(1)
    assert grpc_of(answer) == (200, 14, True)
    assert (answer.get("grpc-message"), answer.get("grpc-retry-pushback-ms")) == ("busy", "-1")
    assert answer.get("x-should-retry") == "false"
    assert answer.get("date") is None


def test_nobody_has_the_name(app: Wire) -> None:
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "nobody.test"), (":path", "/a.B/c")]
    app.send(headers(1, fields), headers(3, [*fields, ("content-type", "application/grpc+proto")]))
    assert app.answer(1).status == 404
    assert grpc_of(app.answer(3)) == (200, 12, True)


def test_nobody_is_there(app: Wire, place: Place) -> None:
    place.listener.listener.close()
    app.send(headers(1, place.grpc()), headers(3, place.fields()), headers(5, place.fields("HEAD")))
    assert grpc_of(app.answer(1)) == (200, 14, True)
    plain = app.answer(3)
    assert (plain.status, plain.get("content-type")) == (502, "application/problem+json")
    assert plain.get("content-length") == str(len(plain.body))
    bodiless = app.answer(5)
    assert (bodiless.status, bodiless.body) == (502, b"")


def test_a_deadline(app: Wire, place: Place) -> None:
    """It is told to the first attempt as it came, to the next with what is left, and ends the call."""
    app.send(headers(1, place.grpc()))
    upstream = place.accept()
    served(upstream, [*GRPC_OK, *DONE])
    app.send(headers(3, place.grpc(("grpc-timeout", "700m"))))
    assert dict(served(upstream, UNAVAILABLE))["grpc-timeout"] == "700m"
    number, fields, _ = upstream.request()
    left = dict(fields)["grpc-timeout"]
    assert left != "700m"
    assert int(left[:-1]) * {"n": 1e-9, "u": 1e-6, "m": 1e-3}[left[-1]] < 0.7
    assert upstream.until(RST_STREAM, stream=number).code == CANCEL
    assert grpc_of(app.answer(3)) == (200, 4, True)


# -- bodies and windows -----------------------------------------------------------------------------------------------


def test_a_peers_windows_and_frames_are_kept(app: Wire, place: Place) -> None:
    app.send(headers(1, place.fields("POST"), end=False), *(data(1, bytes(16384)) for _ in range(8)))
    upstream = place.accept((INITIAL_WINDOW, 1000))
    number = upstream.until(HEADERS).stream
    assert len(upstream.until(DATA).payload) == 1000
    upstream.is_answering()
    upstream.send(window_update(number, 40000))
    size = 1000
    while size < 41000:
        got = upstream.until(DATA)
        size += len(got.payload)
        assert len(got.payload) <= 16384
    assert size == 41000
    upstream.send(settings((INITIAL_WINDOW, 0)), window_update(number, 500))  # 500 below nothing
    upstream.is_answering()
    assert sum(len(each.payload) for each in upstream.frames if each.kind == DATA) == 41000
    upstream.send(window_update(number, 1 << 20))
    while size < 65535:  # the connection's window is the next to end
        size += len(upstream.until(DATA).payload)
    upstream.is_answering()
    assert sum(len(each.payload) for each in upstream.frames if each.kind == DATA) == 65535
    app.send(data(1, b"end", end=True))
    upstream.send(window_update(0, 1 << 20))
    while not upstream.has_ended(number):
        upstream.read()
    assert sum(len(each.payload) for each in upstream.frames if each.kind == DATA) == 8 * 16384 + 3
    upstream.send(headers(number, OK))
    assert app.answer(1).status == 200


def test_a_slow_reader_stalls_nobody(proxy: Http2Proxy, place: Place) -> None:
    """Neither another stream of its connection, nor another app of the same upstream connection."""
    slow = proxy.http2((INITIAL_WINDOW, 0), window=1 << 30)
    other = proxy.http2((INITIAL_WINDOW, 1 << 30), window=1 << 30)
    with slow.peer, other.peer:
        slow.send(headers(1, place.fields()), headers(3, place.fields()), window_update(3, 1 << 30))
        upstream = place.accept()
        for _ in range(2):
            number = upstream.until(HEADERS).stream
            upstream.send(headers(number, OK, end=False))
        other.send(headers(1, place.fields()))
        number = upstream.until(HEADERS).stream
        upstream.send(headers(number, OK, end=False))
        upstream.send(*(data(1, bytes(16384)) for _ in range(40)))
        for wire, stream in ((slow, 3), (other, 5)):
            sent = 0
            while sent < 4 << 20:
                upstream.send(*(data(stream, bytes(16384)) for _ in range(16)))
                sent += 16 * 16384
                upstream.is_answering()
            upstream.send(data(stream, end=True))
            answer = wire.answer(3 if wire is slow else 1)
            assert len(answer.body) == 4 << 20
        assert not any(each.kind in (RST_STREAM, GOAWAY) for each in upstream.frames)
        slow.send(window_update(1, 1 << 30))
        upstream.send(data(1, end=True))
        assert len(slow.answer(1).body) == 40 * 16384


def test_an_app_that_reads_nothing(proxy: Http2Proxy, place: Place) -> None:
    """What waits for it is bounded by its stream's window upstream; others of the connection there go on."""
    deaf, other = proxy.http2((INITIAL_WINDOW, 1 << 30), window=1 << 30), proxy.http2()
    with deaf.peer, other.peer:
        deaf.send(headers(1, place.fields()))
        upstream = place.accept()
        number = upstream.until(HEADERS).stream
        upstream.send(headers(number, OK, end=False))
        window = 1 << 20
        sent = 0
        while window - sent >= 16384 and sent < 64 << 20:
            upstream.send(data(number, bytes(16384)))
            sent += 16384
            if window - sent < 16384:
                upstream.is_answering()
                updates = [each for each in upstream.frames if each.kind == 8 and each.stream == number]
                window = (1 << 20) + sum(int.from_bytes(each.payload) for each in updates)
        assert sent < 32 << 20  # what kernels take, and 1 MiB
        other.send(headers(1, place.fields()))
        stream = upstream.until(HEADERS).stream
        upstream.send(headers(stream, OK))
        assert other.answer(1).status == 200
        upstream.send(data(number, end=True))
        assert len(deaf.answer(1).body) == sent


def test_a_body_above_the_buffer_streams_on(app: Wire, place: Place) -> None:
    """Credit goes on while an upstream takes the body, and a byte more than the window is never asked for."""
    app.send(headers(1, place.fields("POST"), end=False))
    upstream = place.accept((INITIAL_WINDOW, 1 << 30))
    number = upstream.until(HEADERS).stream
    upstream.send(window_update(0, 1 << 30))
    left, connection, sent = 256 * 1024, 65535, 0
    came = 0
    while sent < 8 << 20:
        while came < sent:
            came += len(upstream.until(DATA).payload)
        for each in app.frames:
            if each.kind == 8:
                left += int.from_bytes(each.payload) if each.stream else 0
                connection += 0 if each.stream else int.from_bytes(each.payload)
        app.frames.clear()
        if min(left, connection) < 16384:
            assert app.read() is not None
            continue
        app.send(data(1, bytes(16384)))
        left, connection, sent = left - 16384, connection - 16384, sent + 16384
    app.send(data(1, end=True))
    while not upstream.has_ended(number):
        upstream.read()
    assert sum(len(each.payload) for each in upstream.frames if each.kind == DATA) == sent
    upstream.send(headers(number, OK))
    assert app.answer(1).status == 200


# -- transparency -----------------------------------------------------------------------------------------------------


def test_fields_and_trailers_go_as_they_were_encoded(app: Wire, place: Place) -> None:
    huffman = bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")  # www.example.com
    odd = (
        b"\x00\x05x-one\x01a"
        + b"\x10\x06x-keep\x06secret"  # never indexed
        + b"\x00\x05x-one\x8c"
        + huffman
        + b"\x00\x05x-bin\x04\x80\xff\t,"
        + b"\x0f\x11\x04gzip"  # an indexed name
        + b"\x90"  # an indexed field
    )
    head = b"\x83\x86\x84\x01" + string(place.authority.encode()) + odd
    app.send(frame(HEADERS, END_HEADERS, 1, b"\x20" + head), data(1, b"x"))
    app.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, odd))
    upstream = place.accept()
    number, _, body = upstream.request()
    first, last = (each for each in upstream.frames if each.kind == HEADERS)
    assert odd in first.payload
    assert last.payload == odd
    assert body == b"x"
    upstream.send(headers(number, [(":status", "103"), ("link", "</a>")], end=False))
    upstream.send(frame(HEADERS, END_HEADERS, number, b"\x88" + odd), data(number, b"y"))
    upstream.send(frame(HEADERS, END_HEADERS | END_STREAM, number, odd))
    answer = app.answer(1)
    assert dict(answer.infos[0])["link"] == "</a>"
    heads = [each for each in app.frames if each.kind == HEADERS]
    assert odd in heads[1].payload
    assert heads[2].payload == odd


# -- draining ---------------------------------------------------------------------------------------------------------


def test_draining_loses_no_call(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy:
        place = proxy.place()
        app = proxy.http2(polite=False)
        with app.peer:
            app.send(headers(1, place.grpc(), end=False))
            upstream = place.accept()
            upstream.until(HEADERS)
            proxy.process.send_signal(signal.SIGTERM)
            got = app.until(GOAWAY)
            assert (int.from_bytes(got.payload[:4]), got.code) == (ENDLESS, NO_ERROR)
            app.send(headers(3, place.grpc(), end=False))  # it could not know yet
            upstream.until(HEADERS, stream=3)
            while (ping := app.until(PING)).flags & ACK:
                pass
            app.send(frame(PING, ACK, 0, ping.payload))
            got = app.until(GOAWAY)
            assert (int.from_bytes(got.payload[:4]), got.code) == (3, NO_ERROR)
            app.send(headers(5, place.grpc()), data(1, b"more", end=True), data(3, b"more", end=True))
            for number in (1, 3):
                assert upstream.until(DATA, stream=number).payload == b"more"
                upstream.send(headers(number, GRPC_OK, end=False), data(number, b"ok"), headers(number, DONE))
                answer = app.answer(number)
                assert (answer.body, answer.grpc_status) == (b"ok", 0)
            app.end()
            assert not app.has_ended(5)
            assert proxy.process.wait(15) == 0


def test_no_app_is_asked_to_repeat_what_may_have_been_carried_out(tmp_path: Path) -> None:
    """Calls are in flight when `drain` has run out: gRPC calls, a POST, and a GET."""
    with Http2Proxy(tmp_path, "drain: 100ms\n" + RETRYING, number=1) as proxy:
        place = proxy.place()
        app = proxy.http2()
        with app.peer:
            app.send(headers(1, place.grpc(), end=False), data(1, b"m", end=True))
            app.send(headers(3, place.fields("POST"), end=False), data(3, b"m", end=True), headers(5, place.fields()))
            upstream = place.accept()
            for number in (1, 3, 5):
                upstream.until(HEADERS, stream=number)
            proxy.process.send_signal(signal.SIGTERM)
            grpc, post, get = (app.answer(number) for number in (1, 3, 5))
            assert (grpc.grpc_status, grpc.get("grpc-retry-pushback-ms")) == (14, "-1")
            assert (post.status, post.get("x-should-retry")) == (502, "false")
            assert grpc.get("retry-after") is post.get("retry-after") is None
            assert (get.status, get.get("retry-after")) == (503, "1")
            assert proxy.process.wait(15) == 0


def test_a_reset_flood_of_one_app_leaves_others_alone(proxy: Http2Proxy, place: Place) -> None:
    flood = b"".join(headers(number, place.fields()) + rst(number, CANCEL) for number in range(1, 3001, 2))
    with proxy.app() as bad:
        bad.send(PREFACE, settings())
        Wire(bad).until(SETTINGS)
        bad.try_send(flood)
        with proxy.http2().peer as good:
            Wire(good).is_answering()


def test_configured_limits(tmp_path: Path) -> None:
    limits = "limits: {streams: 2, resets: 20/s, header_bytes: 8KiB, headers: 20}\npool: {http2_idle: 10ms}\n"
    with Http2Proxy(tmp_path, limits + RETRYING, number=1) as proxy:
        place = proxy.place()
        app = proxy.http2()
        with app.peer:
            app.send(*(headers(number, place.fields("POST"), end=False) for number in (1, 3, 5)))
            assert app.answer(5).reset == REFUSED_STREAM
            upstream = place.accept()
            for _ in range(2):
                number = upstream.until(HEADERS).stream
                upstream.send(headers(number, [*OK, ("a", "x" * 9000)]))
                assert upstream.until(RST_STREAM, stream=number).code == CALM
            assert [app.answer(number).status for number in (1, 3)] == [502, 502]
            upstream.end()  # without streams it is kept for a moment
            app.send(headers(7, [*place.fields(), ("a", "x" * 9000)]))
            assert app.answer(7).status == 431
            app.peer.try_send(frame(PING, 0, 0, bytes(8)) * 60)
            assert app.last_goaway() == CALM


def test_a_grpc_answer_without_a_status_is_unknown(proxy: Http2Proxy, app: Wire, place: Place) -> None:
    """A head that is all of it is a failure, which nothing names; one that goes on has committed the call."""
    name = place.authority.partition(".")[0]
    app.send(headers(1, place.grpc()))
    upstream = place.accept()
    served(upstream, GRPC_OK)
    got = app.answer(1)  # as it came: its client makes UNKNOWN of it, too
    assert (got.status, got.grpc_status, got.is_trailers_only) == (200, None, True)
    assert "outcome=not_retryable" in (got.get("proxy-status") or "")
    line = proxy.log(name)
    assert (line["outcome"], line["grpc_status"], line["attempts"]) == ("not_retryable", 2, 1)
    assert line["history"][0]["because"] == "not named: UNKNOWN, for 200 without a grpc-status"
    endings = (
        [headers(0, GRPC_OK, end=False), data(0, b"body", end=True)],
        [headers(0, GRPC_OK, end=False), data(0, b"body"), headers(0, [("other", "1")])],
        [headers(0, GRPC_OK, end=False), data(0, end=True)],
    )
    for stream, frames in zip((3, 5, 7), endings, strict=True):
        app.send(headers(stream, place.grpc()))
        number, _, _ = upstream.request()
        upstream.send(*(each[:5] + number.to_bytes(4) + each[9:] for each in frames))
        got = app.answer(stream)
        assert (got.status, got.grpc_status, got.reset) == (200, None, None)
        line = proxy.log(name)
        assert (line["outcome"], line["grpc_status"], line["attempts"]) == ("success", 2, 1)
    app.send(headers(9, place.fields()))
    served(upstream, GRPC_OK)  # to who asks for something else it is an answer like any other
    assert app.answer(9).status == 200
    assert proxy.log(name)["outcome"] == "success"


def test_a_grpc_answer_without_a_status_is_retried_where_unknown_is_named(tmp_path: Path) -> None:
    named = RETRYING + "  classify: {transient: [UNKNOWN], unsafe_methods: always}\n"
    with Http2Proxy(tmp_path, named, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.grpc()))
        upstream = place.accept()
        served(upstream, GRPC_OK)
        served(upstream, [*GRPC_OK, *DONE])
        assert app.answer(1).grpc_status == 0
        app.send(headers(3, place.grpc()))
        for _ in range(proxy.log("u0")["attempts"] + 1):
            served(upstream, GRPC_OK)
        got = app.answer(3)
        assert (got.status, got.grpc_status, got.get("grpc-retry-pushback-ms")) == (200, 2, "-1")
        assert got.is_trailers_only
