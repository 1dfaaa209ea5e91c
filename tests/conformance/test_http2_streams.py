"""Streams of events on HTTP/2 whose beginning decides: kept heads, first bytes, errors in successes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from http2_kit import CANCEL, DATA, HEADERS, RST_STREAM, Fields, Http2Proxy, Wire, data, headers

CONFIG = """
defaults:
  strategy: {kind: standard, max_attempts: 2, backoff: {base: 0s, jitter: none}}
  dialects: [http, anthropic]
  timeouts: {first_byte: %s}
"""
STREAM: Fields = [(":status", "200"), ("content-type", "text/event-stream")]
ASKS = b'{"stream": true}'
BEGUN = b'event: message_start\ndata: {}\n\nevent: ping\ndata: {"type": "ping"}\n\n'
SAID = b'event: content_block_start\ndata: {"index": 0}\n\nevent: message_stop\ndata: {}\n\n'
FAILS = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'


@pytest.fixture
def proxy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Http2Proxy]:
    """Its upstream has half a minute for the first byte, or what a test names: then its time passes."""
    with Http2Proxy(tmp_path, CONFIG % getattr(request, "param", "30s"), number=1) as made:
        yield made


def asked(wire: Wire) -> int:
    stream, fields, body = wire.request()
    assert (dict(fields)[":method"], body) == ("PUT", ASKS)
    return stream


def test_a_stream_that_opens_with_an_error_is_made_again(proxy: Http2Proxy) -> None:
    place = proxy.place()
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields("PUT"), end=False), data(1, ASKS, end=True))
        upstream = place.accept()
        upstream.send(headers(asked(upstream), STREAM, end=False), data(1, BEGUN), data(1, FAILS[:20]))
        upstream.send(data(1, FAILS[20:], end=True))
        again = asked(upstream)
        upstream.send(headers(again, STREAM, end=False), data(again, BEGUN + SAID, end=True))
        answer = app.answer(1)
    assert (answer.status, answer.body) == (200, BEGUN + SAID)
    line = proxy.log("u0")
    assert [each["decision"] for each in line["history"]] == ["retried", "delivered"]
    assert line["history"][0]["because"] == "dialect anthropic: error overloaded_error"


@pytest.mark.parametrize("proxy", ["3s"], indirect=True)  # the second attempt has to be in time
def test_a_stream_that_stalls_is_reset_and_made_again(proxy: Http2Proxy) -> None:
    place = proxy.place()
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields("PUT"), end=False), data(1, ASKS, end=True))
        upstream = place.accept()
        first = asked(upstream)
        upstream.send(headers(first, STREAM, end=False), data(first, BEGUN))
        assert upstream.until(RST_STREAM, stream=first).code == CANCEL
        again = asked(upstream)
        upstream.send(headers(again, STREAM, end=False), data(again, BEGUN + SAID, end=True))
        assert app.answer(1).body == BEGUN + SAID
    assert proxy.log("u0")["history"][0]["fault"] == "attempt_timeout"


def test_what_counts_goes_on_at_once_and_an_error_behind_it_as_it_came(proxy: Http2Proxy) -> None:
    place = proxy.place()
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.fields("PUT"), end=False), data(1, ASKS, end=True))
        upstream = place.accept()
        stream = asked(upstream)
        upstream.send(headers(stream, STREAM, end=False), data(stream, BEGUN), data(stream, SAID))
        assert dict(app.fields(app.until(HEADERS)))[":status"] == "200"
        seen = b""
        while len(seen) < len(BEGUN + SAID):
            seen += app.until(DATA, stream=1).payload
        assert seen == BEGUN + SAID
        upstream.send(data(stream, FAILS))
        assert app.until(DATA, stream=1).payload == FAILS
        upstream.send(data(stream, b"", end=True))
        assert app.answer(1).reset is None
    line = proxy.log("u0")
    assert (line["outcome"], line["detail"]) == (
        "success", "its stream reported an error: dialect anthropic: error overloaded_error"
    )  # fmt: skip


@pytest.mark.parametrize("proxy", ["300ms"], indirect=True)
def test_a_grpc_call_is_not_bounded_and_its_head_goes_on_at_once(proxy: Http2Proxy) -> None:
    place = proxy.place()
    with proxy.http2().peer as peer:
        app = Wire(peer)
        app.send(headers(1, place.grpc(), end=False), data(1, b"\0\0\0\0\0", end=True))
        upstream = place.accept()
        stream, _, _ = upstream.request()
        app.send(headers(3, place.fields("PUT"), end=False), data(3, ASKS, end=True))
        for _ in range(2):  # the time of another call is out twice meanwhile
            other = asked(upstream)
            assert upstream.until(RST_STREAM, stream=other)
        assert app.answer(3).status == 504
        upstream.send(headers(stream, [(":status", "200"), ("content-type", "application/grpc")], end=False))
        assert dict(app.fields(app.until(HEADERS, stream=1)))[":status"] == "200"
        upstream.send(headers(stream, [("grpc-status", "0")]))
        assert app.answer(1).trailers == [("grpc-status", "0")]
