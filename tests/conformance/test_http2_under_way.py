"""Attempts under way on shared connections: each stream has a place, until its answer's last byte."""

from __future__ import annotations

from pathlib import Path

from http2_kit import CANCEL, RST_STREAM, Fields, Http2Proxy, Wire, data, headers, rst

ONE = "defaults: {strategy: none, concurrency: {max: 1, queue: 2}}"
OK: Fields = [(":status", "200")]


def test_a_stream_waits_for_the_last_byte_of_the_one_before(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, ONE, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        for number in (1, 3, 5):
            app.send(headers(number, place.fields("GET", f"/{number}")))
        upstream = place.accept()
        first, asked, _ = upstream.request()
        assert dict(asked)[":path"] == "/1"
        app.send(headers(7, place.grpc()))
        told = app.answer(7)
        assert (told.status, told.grpc_status, told.get("grpc-retry-pushback-ms")) == (200, 8, "-1")
        upstream.send(headers(first, OK, end=False))
        app.send(rst(3, CANCEL))  # it waits, and is gone
        app.is_answering()
        upstream.send(data(first, b"all", end=True))
        assert app.answer(1).status == 200
        second, asked, _ = upstream.request()
        assert dict(asked)[":path"] == "/5"
        app.send(rst(5, CANCEL))
        assert upstream.until(RST_STREAM).stream == second
        app.send(headers(9, place.fields("GET", "/9")))
        third, asked, _ = upstream.request()
        assert dict(asked)[":path"] == "/9"
        upstream.send(headers(third, OK))
        assert app.answer(9).status == 200
