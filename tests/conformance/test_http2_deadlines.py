"""The app's deadline, as each attempt's upstream is told it."""

from __future__ import annotations

from pathlib import Path

from http2_kit import REFUSED_STREAM, Fields, Http2Proxy, Wire, headers, rst

WAITING = """
defaults:
  dialects: [grpc]
  timeouts: {connect: 5s}
  strategy: {kind: standard, max_attempts: 3, backoff: {base: 50ms, max: 50ms, jitter: none}}
"""
GRPC: Fields = [(":status", "200"), ("content-type", "application/grpc")]
UNAVAILABLE: Fields = [*GRPC, ("grpc-status", "14")]


def left(upstream: Wire, answer: Fields | None) -> str:
    """The deadline of the next request, which is answered, or refused."""
    number, fields, _ = upstream.request()
    upstream.send(rst(number, REFUSED_STREAM) if answer is None else headers(number, answer))
    return dict(fields)["grpc-timeout"]


def test_it_goes_as_it_came_and_then_with_the_time_left(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, WAITING, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.grpc(("grpc-timeout", "20S"))))
        upstream = place.accept()  # dialled for it: that is no waiting
        assert left(upstream, UNAVAILABLE) == "20S"
        second = left(upstream, UNAVAILABLE)
        third = left(upstream, [*GRPC, ("grpc-status", "0")])
        assert second[-1] == third[-1] == "m"
        assert 0 < int(third[:-1]) <= int(second[:-1]) - 50 <= 19_900
        assert app.answer(1).grpc_status == 0
        app.send(headers(3, place.grpc(("grpc-timeout", "3000000u"))))
        assert left(upstream, None) == "3000000u"
        assert int(left(upstream, [*GRPC, ("grpc-status", "0")])[:-1]) < 3_000_000  # refused, and sent at once again
        assert app.answer(3).grpc_status == 0
