"""Apps on HTTP/2 that send more than they may, or read nothing of what they ask for."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest
from conformance_kit import GUARD
from http2_kit import (
    FLOW_CONTROL_ERROR,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    RST_STREAM,
    Fields,
    Http2Proxy,
    Wire,
    data,
    frame,
    headers,
    settings,
)

OK: Fields = [(":status", "200")]
SMALL = "buffers: {per_request: 1KiB}\ndefaults: {strategy: none}"
#: More frames a second than anybody sends, so that no other limit comes first.
ANY = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {resets: 100000000/s}\ndefaults: {strategy: none}"
WINDOW = 256 * 1024
#: What the kernel keeps of one connection for who does not read, and more.
FLOOD = 64 * 1024 * 1024


def test_more_data_than_was_credited(tmp_path: Path) -> None:
    """The upstream takes nothing, and little is kept: an app's stream has its window, and no more."""
    with Http2Proxy(tmp_path, SMALL, number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.fields("POST"), end=False))
        upstream = place.accept((INITIAL_WINDOW, 0))
        stream = upstream.until(HEADERS).stream
        piece = bytes(16384)
        sent = 0
        while not any(each.kind == RST_STREAM and each.stream == 1 for each in app.frames) and sent < 64 * WINDOW:
            app.send(data(1, piece))
            sent += len(piece)
            app.is_answering()
        assert app.answer(1).reset == FLOW_CONTROL_ERROR
        assert WINDOW < sent < 4 * WINDOW
        assert upstream.until(RST_STREAM, stream=stream)
        app.send(headers(3, place.fields()))  # the connection is as good as before
        upstream.send(headers(upstream.until(HEADERS).stream, OK))
        assert app.answer(3).status == 200


def test_replies_that_nobody_reads_end_the_connection(tmp_path: Path) -> None:
    """PINGs without end from an app that reads nothing: the kernel's buffers fill, then a thousand replies wait."""
    with Http2Proxy(tmp_path, ANY, number=1) as proxy:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(GUARD)
        sock.connect(("127.0.0.1", proxy.port))
        with sock:
            pings = frame(PING, 0, 0, bytes(8)) * 4096
            sock.sendall(PREFACE + settings())
            with pytest.raises(ConnectionError):  # it is cut off, though it takes not even the GOAWAY
                for _ in range(FLOOD // len(pings)):
                    sock.sendall(pings)
            with urllib.request.urlopen(f"http://{proxy.ready['admin'][0]}/metrics") as reply:
                said = reply.read().decode().splitlines()
            assert 'redrive_http2_errors_total{code="ENHANCE_YOUR_CALM",side="app"} 1.0' in said
            assert 'redrive_connections{protocol="http/2",side="app"} 0.0' in said
            place = proxy.place()
            with proxy.http2().peer as peer:  # others are served
                app = Wire(peer)
                app.send(headers(1, place.fields()))
                upstream = place.accept()
                upstream.send(headers(upstream.until(HEADERS).stream, OK))
                assert app.answer(1).status == 200
