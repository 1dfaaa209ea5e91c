"""`limits.connections`: streams in flight beyond a connection's first each take a place."""

from __future__ import annotations

from pathlib import Path

from http2_kit import GOAWAY, HEADERS, Fields, Http2Proxy, Wire, headers

FEW = "limits: {connections: 3}\ndefaults: {strategy: none}"
OK: Fields = [(":status", "200")]


def test_streams_take_places_and_give_them_back(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, FEW, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        for number in (1, 3, 5):
            app.send(headers(number, place.fields()))
        upstream = place.accept()
        flying = [upstream.until(HEADERS).stream for _ in range(3)]
        app.send(headers(7, place.fields()), headers(9, place.grpc()))
        assert app.answer(7).status == 503
        grpc = app.answer(9)
        assert (grpc.status, grpc.grpc_status, grpc.is_trailers_only) == (200, 8, True)
        assert "outcome=overloaded" in (grpc.get("proxy-status") or "")
        with proxy.http2().peer as late:  # a connection too many: it is told so, and does not stay
            other = Wire(late)
            other.send(headers(1, place.fields()))
            assert other.answer(1).status == 503
            assert any(each.kind == GOAWAY for each in other.end())
        upstream.send(headers(flying[0], OK))
        assert app.answer(1).status == 200
        app.send(headers(11, place.fields()))  # in its place
        flying[0] = upstream.until(HEADERS).stream
        for number in flying:
            upstream.send(headers(number, OK))
        assert [app.answer(number).status for number in (3, 5, 11)] == [200] * 3
        with proxy.http2().peer as second, proxy.http2().peer as third:
            for wire in (Wire(second), Wire(third)):
                wire.send(headers(1, place.fields()))
                number, _, _ = upstream.request()
                upstream.send(headers(number, OK))
                assert wire.answer(1).status == 200


def test_a_lost_connection_gives_all_its_places_back(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, FEW, number=1) as proxy:
        place = proxy.place()
        with proxy.http2().peer as peer:
            app = Wire(peer)
            app.send(*(headers(number, place.fields()) for number in (1, 3, 5)))
            upstream = place.accept()
            for _ in range(3):
                upstream.until(HEADERS)
        assert [proxy.log("u0")["outcome"] for _ in range(3)] == ["client_gone"] * 3
        with proxy.http2().peer as peer:
            app = Wire(peer)
            app.send(*(headers(number, place.fields()) for number in (1, 3, 5)))
            for _ in range(3):
                upstream.send(headers(upstream.until(HEADERS).stream, OK))
            assert [app.answer(number).status for number in (1, 3, 5)] == [200] * 3
