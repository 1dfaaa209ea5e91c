"""A 421 on a shared connection: the call goes once more, as the first on a connection of its own."""

from __future__ import annotations

from pathlib import Path

from http2_kit import HEADERS, Fields, Http2Proxy, Wire, data, headers

RETRYING = """
defaults:
  strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 1ms, jitter: none}}
"""
OK: Fields = [(":status", "200")]
MISDIRECTED: Fields = [(":status", "421")]


def test_a_post_goes_once_more_on_a_connection_of_its_own(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.grpc()))
        first = place.accept()
        first.until(HEADERS)  # and answered later: the connection is shared, and not only reused
        app.send(headers(3, place.grpc()))
        number, _, _ = first.request()
        first.send(headers(number, MISDIRECTED))
        second = place.accept()
        number, fields, _ = second.request()
        assert (number, dict(fields)["x-attempt-count"]) == (1, "2")
        second.send(headers(number, OK))
        assert app.answer(3).status == 200
        first.send(headers(1, OK))
        assert app.answer(1).status == 200
        assert place.listener.untouched


def test_one_on_a_connection_of_its_own_goes_to_the_app(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.fields("POST")))
        first = place.accept()
        number, _, _ = first.request()
        first.send(headers(number, MISDIRECTED))
        answer = app.answer(1)
        assert (answer.status, answer.get("x-attempt-count")) == (421, "1")
        assert place.listener.untouched


def test_its_connection_is_closed_after_it(tmp_path: Path) -> None:
    """It carries no other call, and does not rest: an upstream that answers so many calls would get as many."""
    with Http2Proxy(tmp_path, RETRYING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.grpc()))
        first = place.accept()
        first.until(HEADERS)
        app.send(headers(3, place.fields("POST"), end=False), data(3, b"order", end=True))
        number, _, body = first.request()
        first.send(headers(number, MISDIRECTED))
        second = place.accept()
        number, _, again = second.request()
        assert (body, again) == (b"order", b"order")
        first.send(headers(1, OK))
        assert app.answer(1).status == 200
        app.send(headers(5, place.fields("POST")))
        third, _, _ = first.request()  # not on the other one, though that has fewer streams
        second.send(headers(number, OK, end=False), data(number, b"done", end=True))
        assert app.answer(3).body == b"done"
        second.end()
        first.send(headers(third, OK))
        assert app.answer(5).status == 200
        assert place.listener.untouched
