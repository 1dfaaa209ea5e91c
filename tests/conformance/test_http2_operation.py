"""HTTP/2 while the proxy is reloaded, drained and shared by workers; by a parent proxy, and hedged over TLS."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conformance_kit import GUARD, Peer, Proxy
from conformance_kit import Upstream as Listener
from http2_kit import (
    ACK,
    CANCEL,
    ENDLESS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    Fields,
    Http2Proxy,
    Wire,
    data,
    frame,
    goaway,
    headers,
    settings,
)
from support.certificates import make

PLAIN = "defaults: {strategy: none}"
WORKERS = "listen: 127.0.0.1:0\nadmin: off\nworkers: 2\n"
OK: Fields = [(":status", "200")]


def event(proxy: Http2Proxy, name: str) -> dict[str, Any]:
    """The next line of the log with this event."""
    while True:
        line = json.loads(proxy.lines.get(timeout=GUARD))
        if line.get("event") == name:
            return dict(line)


def served(upstream: Wire) -> Fields:
    number, fields, _ = upstream.request()
    upstream.send(headers(number, OK))
    return fields


# -- reload ------------------------------------------------------------------------------------------------------------


def test_a_reload_while_streams_are_in_flight(tmp_path: Path) -> None:
    """They go on where they are; what the new configuration would open no more takes nothing new. Apps hear nothing."""
    with Http2Proxy(tmp_path, PLAIN, number=2) as proxy, proxy.http2().peer as peer:
        app, stays, moves = Wire(peer), proxy.place(), proxy.place()
        app.send(headers(1, stays.fields()), headers(3, moves.fields("POST"), end=False))
        kept, left = stays.accept(), moves.accept()
        first, second = kept.until(HEADERS).stream, left.until(HEADERS).stream
        file = tmp_path / "redrive.yaml"
        new = Listener()
        file.write_text(file.read_text().replace(moves.listener.authority, new.authority))
        proxy.process.send_signal(signal.SIGHUP)
        assert event(proxy, "reload")["result"] == "success"
        app.send(headers(5, stays.fields()), headers(7, moves.fields()))
        assert kept.until(HEADERS).stream == first + 2  # on the same connection
        peer_of_new = Wire(new.accept())
        assert peer_of_new.peer.read(len(PREFACE)) == PREFACE
        peer_of_new.send(settings())
        served(peer_of_new)
        assert app.answer(7).status == 200
        app.send(data(3, b"more", end=True))  # of a request that was under way
        assert left.until(0, stream=second).payload == b"more"
        left.send(headers(second, OK, end=False), data(second, b"done", end=True))
        kept.send(headers(first, OK), headers(first + 2, OK))
        assert [app.answer(number).status for number in (1, 3, 5)] == [200] * 3
        assert app.answer(3).body == b"done"
        app.is_answering()
        assert not any(each.kind == GOAWAY for each in app.frames)
        new.__exit__()


# -- workers -----------------------------------------------------------------------------------------------------------


def worker_of(proxy: Http2Proxy, peer: Peer) -> int:
    """The process that has the other end of a connection."""
    port = peer.sock.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].split(":")[1], 16) == proxy.port and int(fields[2].split(":")[1], 16) == port:
            link = f"socket:[{fields[9]}]"
            for process in Path(f"/proc/{proxy.process.pid}/task/{proxy.process.pid}/children").read_text().split():
                for each in Path(f"/proc/{process}/fd").iterdir():
                    if each.is_symlink() and os.readlink(each) == link:
                        return int(process)
    raise AssertionError("nobody has it")


def on_both_workers(proxy: Http2Proxy) -> tuple[Wire, Wire]:
    """Connections to either worker; the kernel says which gets one."""
    first = proxy.http2()
    while True:
        other = proxy.http2()
        if worker_of(proxy, other.peer) != worker_of(proxy, first.peer):
            return first, other
        other.peer.close()


def test_two_workers_drain_without_a_lost_call(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, WORKERS + PLAIN, number=2) as proxy:
        apps = on_both_workers(proxy)
        places = [proxy.place(), proxy.place()]
        upstreams = []
        for app, place in zip(apps, places, strict=True):
            app.polite = False
            app.send(headers(1, place.fields()))
            upstreams.append(place.accept())
            assert upstreams[-1].until(HEADERS).stream == 1
        proxy.process.send_signal(signal.SIGTERM)
        for app, place, upstream in zip(apps, places, upstreams, strict=True):
            assert int.from_bytes(app.until(GOAWAY).payload[:4]) == ENDLESS
            ping = app.until(PING)
            app.send(headers(3, place.fields()), frame(PING, ACK, 0, ping.payload))  # before it could know
            assert int.from_bytes(app.until(GOAWAY).payload[:4]) == 3
            app.send(headers(5, place.fields()))  # and this one after: nobody serves it
            assert upstream.until(HEADERS).stream == 3
            upstream.send(headers(1, OK), headers(3, OK))
            assert [app.answer(number).status for number in (1, 3)] == [200] * 2
            app.end()
            assert not app.has_ended(5)
        assert proxy.process.wait(GUARD) == 0
        assert event(proxy, "call")["outcome"] == "success"


def test_streams_take_places_over_all_workers(tmp_path: Path) -> None:
    config = WORKERS + "limits: {connections: 5}\n" + PLAIN
    with Http2Proxy(tmp_path, config, number=1) as proxy:
        place = proxy.place()
        one, two = on_both_workers(proxy)
        one.send(*(headers(number, place.fields()) for number in (1, 3, 5)))  # its own place and two more
        upstreams = [place.accept()]
        flying = [upstreams[0].until(HEADERS).stream for _ in range(3)]
        two.send(*(headers(number, place.fields()) for number in (1, 3)))  # its own, and the last
        upstreams.append(place.accept())
        there = [upstreams[1].until(HEADERS).stream for _ in range(2)]
        for app, number in ((one, 7), (two, 5)):
            app.send(headers(number, place.fields()))
            got = app.answer(number)
            assert got.status == 503 and "outcome=overloaded" in (got.get("proxy-status") or "")
        upstreams[0].send(headers(flying[0], OK))
        assert one.answer(1).status == 200
        two.send(headers(7, place.fields()))  # in its place
        there.append(upstreams[1].until(HEADERS).stream)
        one.peer.close()  # with it, all of its places are free
        for _ in flying[1:]:
            assert upstreams[0].until(RST_STREAM).code == CANCEL
        for number in (9, 11):
            two.send(headers(number, place.fields()))
            there.append(upstreams[1].until(HEADERS).stream)
        upstreams[1].send(*(headers(number, OK) for number in there))
        assert [two.answer(number).status for number in (1, 3, 7, 9, 11)] == [200] * 5
        two.peer.close()


# -- by a parent proxy -------------------------------------------------------------------------------------------------


def test_by_a_parent_proxy_it_goes_through_connect(tmp_path: Path) -> None:
    with (
        Listener() as parent,
        Http2Proxy(tmp_path, f"via_proxy: http://{parent.authority}\n{PLAIN}", number=1) as proxy,
    ):
        app, place = proxy.http2(), proxy.place()
        app.send(headers(1, place.grpc()), headers(3, place.grpc()))
        tunnel = parent.accept()
        assert tunnel.read_head().startswith(f"CONNECT {place.listener.authority} HTTP/1.1\r\n".encode())
        tunnel.send(b"HTTP/1.1 200 OK\r\n\r\n")
        assert tunnel.read(len(PREFACE)) == PREFACE  # in the clear, as the endpoint would have it
        upstream = Wire(tunnel)
        upstream.send(settings())
        for _ in range(2):
            number, fields, _ = upstream.request()
            assert (":authority", place.authority) in fields
            upstream.send(headers(number, [*OK, ("content-type", "application/grpc"), ("grpc-status", "0")]))
        assert [app.answer(number).grpc_status for number in (1, 3)] == [0, 0]
        assert parent.untouched and place.listener.untouched
        upstream.send(goaway(3))
        upstream.end()
        app.send(headers(5, place.grpc()))
        for _ in range(2):  # nothing was sent: it is tried again at once
            refused = parent.accept()
            refused.read_head()
            refused.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        assert app.answer(5).grpc_status == 14
        line = proxy.log("u0")
        while line["outcome"] == "success":
            line = proxy.log("u0")
        assert line["history"][0]["fault"] == "connect_failure"
        app.peer.close()


# -- hedging over TLS --------------------------------------------------------------------------------------------------

HEDGING = """
listen: 127.0.0.1:0
admin: off
defaults: {{strategy: {{kind: hedging, max_attempts: 2, hedging_delay: 1ms}}, verify: "{ca}"}}
upstreams:
  either: {{url: "https://localhost:{port}", hosts: [either.test]}}
"""


@pytest.mark.parametrize("selected", ["http/1.1", "h2"])
def test_a_call_that_is_no_grpc_call_is_hedged_over_what_tls_selects(selected: str, tmp_path: Path) -> None:
    """`auto`, an app of HTTP/2, an https upstream: by h2 where that is selected, as two streams, else by HTTP/1.1."""
    authority = make(tmp_path)
    authority.server.set_alpn_protocols([selected])
    (tmp_path / "run").mkdir()
    with Listener() as listener:
        config = HEDGING.format(ca=authority.ca, port=listener.port)
        with Http2Only(tmp_path / "run", config) as proxy, proxy.http2().peer as peer:
            app = Wire(peer)
            fields = [(":method", "GET"), (":scheme", "https"), (":authority", "either.test"), (":path", "/a")]
            app.send(headers(1, fields))
            if selected == "h2":
                upstream = Wire(listener.accept(authority.server))
                assert upstream.peer.read(len(PREFACE)) == PREFACE
                upstream.send(settings())
                first, second = upstream.until(HEADERS).stream, upstream.until(HEADERS).stream
                upstream.send(headers(second, OK))
                assert upstream.until(RST_STREAM, stream=first).code == CANCEL
            else:
                peers = [listener.accept(authority.server) for _ in range(2)]
                assert all(each.read_head().startswith(b"GET /a HTTP/1.1\r\n") for each in peers)
                peers[1].send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                assert peers[0].rest() == b""
            assert app.answer(1).status == 200
            line = proxy.log("either")
            spoken = "http/2" if selected == "h2" else "http/1.1"
            assert [each["protocol"] for each in line["history"]] == [spoken] * 2
            assert (line["protocol"], line["attempts"]) == ("http/2", 2)


class Http2Only(Http2Proxy):
    """A proxy with a configuration of the case's own."""

    def __init__(self, folder: Path, config: str) -> None:
        self._listeners, self._free = [], iter(())
        Proxy.__init__(self, folder, config)


# -- without Via -------------------------------------------------------------------------------------------------------


def test_a_call_without_via_and_its_loop(tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, "defaults: {strategy: none, via: off}", number=1) as proxy, proxy.http2().peer as peer:
        app, place = Wire(peer), proxy.place()
        app.send(headers(1, place.fields()))
        upstream = place.accept()
        sent = served(upstream)
        assert [value for name, value in sent if name == "via"] == []
        (own,) = [value for name, value in sent if name == "x-redrive-loop"]
        answer = app.answer(1)
        assert (answer.status, answer.get("via")) == (200, None)
        app.send(headers(3, [*place.fields(), ("x-redrive-loop", own)]))
        assert app.answer(3).status == 508


# -- TLS sessions ------------------------------------------------------------------------------------------------------

TWO_PORTS = """
listen: 127.0.0.1:0
admin: off
defaults: {{strategy: none, protocol: http/2, verify: "{ca}"}}
upstreams:
  one: {{url: "https://localhost:{one}", hosts: [one.test]}}
  other: {{url: "https://localhost:{other}", hosts: [other.test]}}
"""


def test_sessions_of_two_ports_of_a_name_are_used_again(tmp_path: Path) -> None:
    authority = make(tmp_path)
    authority.server.set_alpn_protocols(["h2"])
    (tmp_path / "run").mkdir()
    with Listener() as one, Listener() as other:
        config = TWO_PORTS.format(ca=authority.ca, one=one.port, other=other.port)
        with Http2Only(tmp_path / "run", config) as proxy, proxy.http2().peer as peer:
            app = Wire(peer)
            for turn in range(3):
                for place, (name, listener) in enumerate((("one", one), ("other", other))):
                    sid = 4 * turn + 2 * place + 1
                    fields = [(":method", "GET"), (":scheme", "https"), (":authority", f"{name}.test"), (":path", "/a")]
                    app.send(headers(sid, fields))
                    upstream = Wire(listener.accept(authority.server))
                    assert upstream.peer.read(len(PREFACE)) == PREFACE
                    upstream.send(settings())
                    upstream.send(headers(upstream.until(HEADERS).stream, OK))
                    assert app.answer(sid).status == 200
                    upstream.peer.close()
            assert authority.server.session_stats()["hits"] == 4
