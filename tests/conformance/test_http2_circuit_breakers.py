"""Circuit breakers of gRPC upstreams, as raw peers see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from http2_kit import Fields, Http2Proxy, Wire, data, headers

BREAKER = """
defaults:
  dialects: [grpc]
  strategy: none
  circuit_breaker: {minimum_attempts: 2, open: 1m}
"""
HEAD: Fields = [(":status", "200"), ("content-type", "application/grpc")]
BUSY: Fields = [("grpc-status", "14"), ("grpc-message", "busy")]


@pytest.mark.parametrize("late", [False, True])
def test_grpc_calls_are_unavailable_while_it_is_open(late: bool, tmp_path: Path) -> None:
    """A status behind messages counts as one ahead of them does."""
    with Http2Proxy(tmp_path, BREAKER, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        upstream = None
        for stream in (1, 3):
            app.send(headers(stream, place.grpc()))
            upstream = upstream or place.accept()
            number, _, _ = upstream.request()
            if late:
                upstream.send(headers(number, HEAD, end=False), data(number, b"\0\0\0\0\0"), headers(number, BUSY))
            else:
                upstream.send(headers(number, [*HEAD, *BUSY]))
            assert app.answer(stream).grpc_status == 14
            proxy.log("u0")
        app.send(headers(5, place.grpc()))
        got = app.answer(5)
        assert (got.status, got.grpc_status, got.is_trailers_only) == (200, 14, True)
        assert "circuit breaker" in str(got.get("grpc-message"))
        assert got.get("grpc-retry-pushback-ms") == "-1"
        line = proxy.log("u0")
        assert (line["outcome"], line["grpc_status"], line["attempts"]) == ("circuit_open", 14, 0)
        app.send(headers(7, place.fields()))  # the breaker is the endpoint's, whatever is spoken
        got = app.answer(7)
        assert (got.status, got.get("retry-after"), got.get("x-should-retry")) == (503, "60", "false")
