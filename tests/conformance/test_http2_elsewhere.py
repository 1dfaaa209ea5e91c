"""Where retries and hedges go, of the connections that are open."""

from __future__ import annotations

from pathlib import Path

import pytest
from http2_kit import HEADERS, MAX_STREAMS, REFUSED_STREAM, Fields, Http2Proxy, Place, Wire, headers, rst

RETRYING = """
defaults:
  dialects: [grpc]
  strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 1ms, jitter: none}}
"""
HEDGING = "defaults: {dialects: [grpc], strategy: {kind: hedging, max_attempts: 2, hedging_delay: 1ms}}"
OK: Fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")]
UNAVAILABLE: Fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "14")]


def two_connections(app: Wire, place: Place) -> tuple[Wire, Wire]:
    """Calls 1 and 3, on a connection each, answered."""
    app.send(headers(1, place.fields("PUT")))
    first = place.accept((MAX_STREAMS, 1))
    first.until(HEADERS)
    app.send(headers(3, place.fields("PUT")))
    second = place.accept((MAX_STREAMS, 2))
    second.until(HEADERS)
    first.send(headers(1, OK))
    second.send(headers(1, OK))
    assert [app.answer(number).grpc_status for number in (1, 3)] == [0, 0]
    return first, second


@pytest.mark.parametrize("how", ["answer", "refusal"])
def test_a_retry_takes_another_connection(tmp_path: Path, how: str) -> None:
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        first, second = two_connections(app, place)
        for call in (5, 7):  # and the next call begins with the first again
            app.send(headers(call, place.grpc()))
            number, _, _ = first.request()
            first.send(headers(number, UNAVAILABLE) if how == "answer" else rst(number, REFUSED_STREAM))
            number, _, _ = second.request()
            second.send(headers(number, OK))
            assert app.answer(call).grpc_status == 0
        assert place.listener.untouched


def test_a_retry_takes_the_same_where_there_is_no_other(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.grpc()))
        upstream = place.accept()
        for answer in (UNAVAILABLE, OK):
            number, _, _ = upstream.request()
            upstream.send(headers(number, answer))
        assert app.answer(1).grpc_status == 0
        assert place.listener.untouched


def test_a_hedge_takes_another_connection(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, HEDGING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.fields("POST")))  # of an unsafe method there are no hedges
        first = place.accept((MAX_STREAMS, 1))
        first.until(HEADERS)
        app.send(headers(3, place.fields("POST")))
        second = place.accept((MAX_STREAMS, 9))
        second.until(HEADERS)
        second.send(headers(1, OK))
        app.answer(3)
        app.send(headers(5, place.fields()))
        assert [second.until(HEADERS).stream, second.until(HEADERS).stream] == [3, 5]  # the first is full: both here
        second.send(headers(3, OK))
        app.answer(5)
        first.send(headers(1, OK))
        app.answer(1)
        app.send(headers(7, place.fields()))
        assert (first.until(HEADERS).stream, second.until(HEADERS).stream) == (3, 7)
        second.send(headers(7, OK))
        assert app.answer(7).status == 200
