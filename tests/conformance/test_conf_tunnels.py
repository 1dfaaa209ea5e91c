"""CONNECT and Upgrade (RFC 9110 sections 7.8 and 9.3.6, RFC 9931, RFC 6455): bytes pass both ways untouched, each
direction ends by itself, and nothing that was meant for a tunnel ever becomes a request.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from conformance_kit import (
    MUST,
    OK,
    OURS,
    SHOULD,
    Case,
    Message,
    Peer,
    Proxy,
    Upstream,
    chunked,
    get,
    ids,
    message,
    reply,
    running,
)

EVERY = bytes(range(256)) * 40
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def connect(authority: str, *fields: str, version: str = "1.1", host: str | None = None) -> bytes:
    lines = [] if host == "" else [f"Host: {host or authority}"]
    return message(f"CONNECT {authority} HTTP/{version}", *lines, *fields)


def opened(proxy: Proxy, upstream: Upstream, app: Peer, early: bytes = b"") -> Peer:
    """A tunnel through the proxy; its upstream end."""
    app.send(connect(upstream.authority) + early)
    peer = upstream.accept()
    assert app.read_answer("CONNECT").status == 200
    return peer


FORMS = [
    Case("HTTP/1.1", "RFC 9110 9.3.6", MUST, (lambda a: connect(a),)),
    Case("HTTP/1.0", "RFC 9110 9.3.6", MUST, (lambda a: connect(a, version="1.0", host=""),)),
    Case("another Host", "RFC 9112 3.2.3", MUST, (lambda a: connect(a, host="evil.example"),)),
    Case("an empty Host", "RFC 9112 3.2", MUST, (lambda a: message(f"CONNECT {a} HTTP/1.1", "Host:"),)),
    Case("Proxy-Connection", "RFC 9112 C.2.2", MUST, (lambda a: connect(a, "Proxy-Connection: keep-alive"),)),
    Case("Connection: close", "RFC 9110 9.3.6", MUST, (lambda a: connect(a, "Connection: close"),)),
    Case("credentials", "RFC 9110 11.7.2", MUST, (lambda a: connect(a, "Proxy-Authorization: Basic eDp5"),)),
    Case("length 0", "RFC 9110 9.3.6", SHOULD, (lambda a: connect(a, "Content-Length: 0"),)),
    Case("an expectation", "RFC 9110 10.1.1", SHOULD, (lambda a: connect(a, "Expect: 100-continue"),)),
    Case("an upgrade", "RFC 9110 7.8", OURS, (lambda a: connect(a, "Connection: Upgrade", "Upgrade: websocket"),)),
]


@pytest.mark.parametrize("case", FORMS, ids=ids(FORMS))
def test_a_tunnel_opens(case: Case, proxy: Proxy) -> None:
    """And the upstream hears nothing of the CONNECT itself, only what comes behind it."""
    (form,) = case.facts
    assert callable(form)
    with Upstream() as upstream, proxy.app() as app:
        app.send(form(upstream.authority))
        peer = upstream.accept()
        answer = app.read_answer("CONNECT")
        assert answer.status == 200
        assert answer.all("content-length") == answer.all("transfer-encoding") == []  # RFC 9110 section 9.3.6
        assert answer.all("connection") == []
        assert app.is_silent()
        assert peer.is_silent()
        app.send(EVERY)
        assert peer.read(len(EVERY)) == EVERY
        peer.send(EVERY[::-1])
        assert app.read(len(EVERY)) == EVERY[::-1]


INSIDE = [
    Case("a TLS ClientHello", "RFC 9110 9.3.6", MUST, (HELLO,)),
    Case("an HTTP request", "RFC 9110 9.3.6", MUST, (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",)),
    Case("a malformed request", "RFC 9110 9.3.6", MUST, (b"GET / HTTP/1.1\nX : y\r\n\r\n",)),
    Case("an HTTP/2 preface", "RFC 9110 9.3.6", MUST, (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",)),
    Case("a CONNECT", "RFC 9110 9.3.6", MUST, (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",)),
    Case("an empty line", "RFC 9110 9.3.6", MUST, (b"\r\n",)),
    Case("a NUL", "RFC 9110 9.3.6", MUST, (b"\0",)),
    Case("every octet", "RFC 9110 9.3.6", MUST, (EVERY,)),
]


@pytest.mark.parametrize("when", ["in the same packet", "before the answer", "after the answer"])
@pytest.mark.parametrize("case", INSIDE, ids=ids(INSIDE))
def test_what_is_said_in_a_tunnel_passes_untouched(case: Case, when: str, proxy: Proxy) -> None:
    (said,) = case.facts
    assert isinstance(said, bytes)
    with Upstream() as upstream, proxy.app() as app:
        if when == "in the same packet":
            app.send(connect(upstream.authority) + said)
        elif when == "before the answer":
            app.send(connect(upstream.authority), said)
        else:
            app.send(connect(upstream.authority))
            app.unread(app.read_head())
            app.send(said)
        peer = upstream.accept()
        assert app.read_answer("CONNECT").status == 200
        assert peer.read(len(said)) == said
        peer.send(said)
        assert app.read(len(said)) == said
        assert app.is_silent()
        assert peer.is_silent()


def test_a_tunnel_behind_calls_on_the_same_connection(proxy: Proxy) -> None:
    """RFC 9110 section 9.3.6: pipelined behind a GET, with early data behind it; no call comes after it."""
    with Upstream() as upstream, Upstream() as far, proxy.app() as app:
        app.send(get(upstream, "/first") + connect(far.authority) + get(upstream, "/inside"))
        peer = upstream.accept()
        assert peer.read_head().startswith(b"GET /first ")
        assert far.untouched
        peer.send(OK)
        assert app.read_answer().body == b"ok"
        end = far.accept()
        assert app.read_answer("CONNECT").status == 200
        inside = get(upstream, "/inside")
        assert end.read(len(inside)) == inside
        assert peer.is_silent()


def test_ipv6(proxy: Proxy) -> None:
    try:
        upstream = Upstream(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with upstream, proxy.app() as app:
        app.send(get(upstream, "/x"))
        peer = upstream.accept()
        assert peer.read_request().one("host") == upstream.authority
        peer.send(OK)
        assert app.read_answer().status == 200
        app.send(connect(upstream.authority) + b"x")
        end = upstream.accept()
        assert app.read_answer("CONNECT").status == 200
        assert end.read(1) == b"x"


def test_an_upstream_that_speaks_first(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(connect(upstream.authority))
        peer = upstream.accept()
        peer.send(b"220 hello\r\n")
        assert app.read_answer("CONNECT").status == 200
        assert app.read(11) == b"220 hello\r\n"
        peer.close()
        assert app.rest() == b""


def test_each_direction_ends_by_itself(proxy: Proxy) -> None:
    """RFC 9110 section 9.3.6: what came is delivered; a FIN goes on as a FIN."""
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        app.send(b"last words")
        app.end()
        assert peer.rest() == b"last words"
        peer.send(b"x" * 300_000)
        assert app.read(300_000) == b"x" * 300_000
        peer.send(b"end")
        peer.close()
        assert app.rest() == b"end"
        assert not app.broken
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        peer.send(b"last words")
        peer.end()
        assert app.rest() == b"last words"
        app.send(b"y" * 300_000)
        assert peer.read(300_000) == b"y" * 300_000
        app.send(b"end")
        app.close()
        assert peer.rest() == b"end"
        assert not peer.broken


def test_a_fin_in_the_packet_of_the_connect(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(connect(upstream.authority) + b"all I have")
        app.end()
        peer = upstream.accept()
        assert peer.rest() == b"all I have"
        peer.send(b"answer")
        peer.close()
        assert app.read_answer("CONNECT").status == 200
        assert app.rest() == b"answer"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("who", ["app", "upstream"])
def test_who_goes_takes_the_other_end_along(who: str, how: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        app.send(b"ping")
        assert peer.read(4) == b"ping"
        goes, stays = (app, peer) if who == "app" else (peer, app)
        if how == "close":
            goes.close()
        else:
            goes.reset()
        assert stays.rest() == b""
        stays.try_send(b"x")


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("who", ["app", "upstream"])
def test_what_was_said_before_the_end_arrives(who: str, how: str, proxy: Proxy) -> None:
    """RFC 9110 section 9.3.6: outstanding data of the side that closed is still sent, however slowly it is taken."""
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        goes, stays = (app, peer) if who == "app" else (peer, app)
        goes.sock.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += goes.sock.send(b"x" * 65536)
        if how == "close":
            goes.close()
            assert len(stays.rest()) == sent
        else:
            goes.reset()  # what the sender's own kernel still had is lost with it
            assert 0 < len(stays.rest()) <= sent


@pytest.mark.parametrize("who", ["app", "upstream"])
def test_an_end_that_is_answered_takes_nothing_with_it(who: str, proxy: Proxy) -> None:
    """A side that has said all and is gone: the answer to it can't be delivered, but what it said can.

    That answer brings a RST, with which the kernel of who has gone drops what it had not sent yet (RFC 9293 section
    3.6.1). No proxy can help that, so the side goes when its kernel has got rid of everything.
    """
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        goes, stays = (app, peer) if who == "app" else (peer, app)
        goes.sock.setblocking(False)
        sent = got = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += goes.sock.send(b"x" * 65536)
        while goes.unacknowledged:
            got += len(stays.read(65536))
        goes.close()
        stays.send(b"thank you")
        stays.try_send(b"thank you")
        assert got + len(stays.rest()) == sent


def test_a_large_transfer_both_ways_at_once(proxy: Proxy) -> None:
    blob = bytes(range(256)) * 20_000
    with Upstream() as upstream, proxy.app() as app:
        peer = opened(proxy, upstream, app)
        threads = [
            threading.Thread(target=app.send, args=(blob,)),
            threading.Thread(target=peer.send, args=(blob[::-1],)),
        ]
        for thread in threads:
            thread.start()
        got: list[bytes] = []
        reading = threading.Thread(target=lambda: got.append(peer.read(len(blob))))
        reading.start()
        assert app.read(len(blob)) == blob[::-1]
        reading.join()
        assert got == [blob]
        for thread in threads:
            thread.join()


def test_many_at_once(proxy: Proxy) -> None:
    with Upstream() as upstream:
        tunnels = []
        for number in range(100):
            app = proxy.app()
            app.send(connect(upstream.authority) + b"%3d" % number)
            tunnels.append(app)
        ends = {}
        for _ in tunnels:
            peer = upstream.accept()
            ends[int(peer.read(3))] = peer
        for number, app in enumerate(tunnels):
            assert app.read_answer("CONNECT").status == 200
            app.send(b"from %3d" % number)
            ends[number].send(b"to %3d" % number)
        for number, app in enumerate(tunnels):
            assert app.read(6) == b"to %3d" % number
            assert ends[number].read(8) == b"from %3d" % number
            app.close()
            assert ends[number].rest() == b""


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::ffff:127.0.0.1]"])
def test_names_and_addresses(host: str, proxy: Proxy) -> None:
    """A name with two addresses of which one refuses is dialled at the other."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(connect(f"{host}:{upstream.port}"))
        peer = upstream.accept()
        assert app.read_answer("CONNECT").status == 200
        app.send(b"x")
        assert peer.read(1) == b"x"


# -- refused --------------------------------------------------------------------------------------------------------


def expect_closed_refusal(app: Peer, *statuses: int) -> Message:
    """RFC 9931: the connection ends with the refusal; what follows the CONNECT is never a request."""
    answer = app.read_answer("CONNECT")
    assert answer.status in statuses, answer
    assert answer.one("connection") == "close"
    assert answer.one("content-type") == "application/problem+json"
    assert app.rest() == b""
    return answer


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


DENIED = "destination_ip_prohibited"
REFUSED = [
    Case("a port that refuses", "RFC 9110 15.6.3", SHOULD,
         (lambda proxy: f"127.0.0.1:{closed_port()}", (502,), "connection_refused")),
    Case("a name that is none", "RFC 9110 15.6.3", SHOULD, (lambda proxy: "nowhere.invalid:443", (502, 504), "")),
    Case("the proxy itself", "contract 6", OURS, (lambda proxy: f"127.0.0.1:{proxy.port}", (403,), DENIED)),
    Case("the proxy by name", "contract 6", OURS, (lambda proxy: f"localhost:{proxy.port}", (403, 502), "")),
    Case("metadata", "contract 6", OURS, (lambda proxy: "169.254.169.254:80", (403,), DENIED)),
    Case("metadata, mapped", "contract 6", OURS, (lambda proxy: "[::ffff:169.254.169.254]:80", (403,), DENIED)),
    Case("metadata, mapped, in hex", "contract 6", OURS, (lambda proxy: "[::ffff:a9fe:a9fe]:80", (403,), DENIED)),
    Case("metadata through NAT64", "contract 6", OURS, (lambda proxy: "[64:ff9b::a9fe:a9fe]:80", (403,), DENIED)),
    Case("metadata by local NAT64", "contract 6", OURS, (lambda proxy: "[64:ff9b:1::a9fe:a9fe]:80", (403,), DENIED)),
    Case("metadata through 6to4", "contract 6", OURS, (lambda proxy: "[2002:a9fe:a9fe::]:80", (403,), DENIED)),
    Case("metadata, compatible", "contract 6", OURS, (lambda proxy: "[::169.254.169.254]:80", (403,), DENIED)),
    Case("metadata as one number", "contract 6", OURS, (lambda proxy: "2852039166:80", (403,), DENIED)),
    Case("metadata in octal", "contract 6", OURS, (lambda proxy: "0251.0376.0251.0376:80", (403,), DENIED)),
    Case("metadata in hex", "contract 6", OURS, (lambda proxy: "0xa9fea9fe:80", (403,), DENIED)),
    Case("metadata with a dot behind", "contract 6", OURS, (lambda proxy: "169.254.169.254.:80", (403, 502), "")),
    Case("link-local", "contract 6", OURS, (lambda proxy: "[fe80::1]:80", (403,), DENIED)),
    Case("metadata of IPv6", "contract 6", OURS, (lambda proxy: "[fd00:ec2::254]:80", (403,), DENIED)),
    Case("Azure's", "contract 6", OURS, (lambda proxy: "168.63.129.16:80", (403,), DENIED)),
    Case("Alibaba's", "contract 6", OURS, (lambda proxy: "100.100.100.200:80", (403,), DENIED)),
]  # fmt: skip


@pytest.mark.parametrize("method", ["CONNECT", "GET"])
@pytest.mark.parametrize("case", REFUSED, ids=ids(REFUSED))
def test_where_there_is_no_way(case: Case, method: str, proxy: Proxy) -> None:
    place, statuses, error = case.facts
    assert callable(place)
    assert isinstance(statuses, tuple)
    authority = place(proxy)
    with Upstream() as upstream, proxy.app() as app:
        if method == "CONNECT":
            app.send(connect(authority) + HELLO + get(upstream, "/smuggled"))
            answer = expect_closed_refusal(app, *statuses)
            proxy.fence(upstream)
        else:
            app.send(get(upstream, "/x").replace(upstream.authority.encode(), authority.encode()))
            answer = app.read_answer()
            assert answer.status in statuses
        assert f"error={error}" in (answer.one("proxy-status") or "")


PORTS = """
limits: {connect_ports: [443, %d]}
defaults: {strategy: none, timeouts: {connect: 300ms}}
upstreams:
  shut: {url: "http://127.0.0.1:9", hosts: [shut.test], connect: deny}
  named: {url: "http://127.0.0.1:%d", hosts: [named.test]}
  two: {url: ["http://127.0.0.1:%d", "http://127.0.0.1:%d"], hosts: [two.test], connect: tunnel,
        strategy: {kind: standard, backoff: {base: 1ms, max: 1ms}}}
"""


@pytest.fixture(scope="module")
def ends() -> Iterator[list[Upstream]]:
    """An allowed port, one that an upstream names, and the second endpoint of another."""
    with Upstream() as allowed, Upstream() as named, Upstream() as second:
        yield [allowed, named, second]


@pytest.fixture(scope="module")
def picky(ends: list[Upstream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    allowed, named, second = (end.port for end in ends)
    with running(tmp_path_factory.mktemp("picky"), PORTS % (allowed, named, closed_port(), second)) as started:
        yield started


def test_only_the_ports_allowed(picky: Proxy, ends: list[Upstream]) -> None:
    """RFC 9110 section 9.3.6 SHOULD; contract section 6: `connect_ports`, and those that an upstream names."""
    allowed, named, _ = ends
    for end in (allowed, named):
        with picky.app() as app:
            peer = opened(picky, end, app, b"x")
            assert peer.read(1) == b"x"
            peer.close()
    for port in (25, 22, 6379, closed_port()):
        with picky.app() as app:
            app.send(connect(f"127.0.0.1:{port}") + HELLO)
            assert "connect_ports" in expect_closed_refusal(app, 403).body.decode()


def test_a_tunnel_that_is_denied(picky: Proxy) -> None:
    with picky.app() as app:
        app.send(connect("shut.test:443"))
        expect_closed_refusal(app, 403)


def test_a_dial_goes_on_to_another_endpoint(picky: Proxy, ends: list[Upstream]) -> None:
    for _ in range(3):
        with picky.app() as app:
            app.send(connect("two.test:443") + b"x")
            peer = ends[2].accept()
            assert app.read_answer("CONNECT").status == 200
            assert peer.read(1) == b"x"
            peer.close()


def test_a_dial_that_takes_too_long_is_504(picky: Proxy, ends: list[Upstream]) -> None:
    """A listener whose queue is full answers nobody."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        waiting = []
        while len(waiting) < 16:
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(place)
            waiting.append(sock)
        for raw in (
            get(ends[0], "/x").replace(ends[0].authority.encode(), b"127.0.0.1:%d" % place[1]),
            message(f"CONNECT 127.0.0.1:{place[1]} HTTP/1.1", "Host: a"),
        ):
            with picky.app() as app:
                app.send(raw)
                # the port is none of those allowed for a tunnel
                assert app.read_answer("CONNECT").status == (403 if raw.startswith(b"CONNECT") else 504)
        for sock in waiting:
            sock.close()


def test_a_failed_dial_is_tried_again(retrying: Proxy) -> None:
    """Contract section 6: retried until connected, by the strategy's attempts."""
    with retrying.app() as app:
        app.send(connect(f"127.0.0.1:{closed_port()}"))
        answer = expect_closed_refusal(app, 502)
        assert answer.one("x-attempt-count") == "3"
        assert "outcome=attempts_exhausted" in (answer.one("proxy-status") or "")


# -- Upgrade --------------------------------------------------------------------------------------------------------

WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
             "Sec-WebSocket-Version: 13")  # fmt: skip
SWITCH = message(
    "HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: x"
)


def test_a_websocket_end_to_end(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/ws", *WEBSOCKET))
        peer = upstream.accept()
        request = peer.read_request()
        assert request.one("upgrade") == "websocket"
        assert request.one("connection") == "Upgrade"
        assert request.one("sec-websocket-key") == "dGhlIHNhbXBsZSBub25jZQ=="
        peer.send(SWITCH + b"\x81\x02hi")
        answer = app.read_answer()
        assert answer.status == 101
        assert (answer.one("upgrade"), answer.one("connection")) == ("websocket", "Upgrade")
        assert answer.all("content-length") == answer.all("transfer-encoding") == []
        assert answer.one("sec-websocket-accept") == "x"
        assert app.read(4) == b"\x81\x02hi"
        app.send(EVERY)
        assert peer.read(len(EVERY)) == EVERY
        app.end()
        assert peer.rest() == b""
        peer.send(b"bye")
        peer.close()
        assert app.rest() == b"bye"


def test_frames_that_come_with_the_request_wait_for_the_101(proxy: Proxy) -> None:
    """RFC 9931: until the switch they may be the next request, so that they are not sent on before it."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/ws", *WEBSOCKET) + b"\x81\x85early")
        peer = upstream.accept()
        peer.read_request()
        assert peer.is_silent()
        peer.send(SWITCH)
        assert app.read_answer().status == 101
        assert peer.read(7) == b"\x81\x85early"


NOT_SWITCHED = [
    Case("200", "RFC 9110 7.8", MUST, (OK,)),
    Case("403", "RFC 6455 4.1", MUST, (reply(b"no", status="403 Forbidden"),)),
    Case("426", "RFC 9110 15.5.22", MUST, (reply(b"no", "Upgrade: foo/2", "Connection: Upgrade", status="426 U"),)),
    Case("503", "RFC 9110 7.8", MUST, (reply(b"no", status="503 U"),)),
    Case("chunks", "RFC 9110 7.8", MUST, (message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + chunked(b"no"),)),
]


@pytest.mark.parametrize("case", NOT_SWITCHED, ids=ids(NOT_SWITCHED))
def test_an_upgrade_that_is_turned_down(case: Case, proxy: Proxy) -> None:
    """It is an answer like any other, and both connections go on in HTTP."""
    (raw,) = case.facts
    assert isinstance(raw, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/ws", *WEBSOCKET))
        peer = upstream.accept()
        peer.read_request()
        peer.send(raw)
        answer = app.read_answer()
        assert answer.status == int(raw[9:12])
        assert answer.body in (b"ok", b"no")
        assert answer.one("upgrade") == ("foo/2" if answer.status == 426 else None)
        app.send(get(upstream, "/next"))
        assert peer.read_head().startswith(b"GET /next ")


UNASKED = [
    Case("no Upgrade at all", "RFC 9110 15.2.2", MUST, ([], "1.1")),
    Case("Upgrade that Connection does not name", "RFC 9110 7.8", MUST, (["Upgrade: websocket"], "1.1")),
    Case("Connection: Upgrade alone", "RFC 9110 7.8", MUST, (["Connection: Upgrade"], "1.1")),
    Case("HTTP/1.0", "RFC 9110 7.8", MUST, (list(WEBSOCKET), "1.0")),
    Case(
        "h2c", "contract 6", OURS, (["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: A"], "1.1")
    ),
]


NOT_OFFERED = [
    Case("another protocol", "RFC 9110 7.8", MUST, ("Connection: Upgrade", "Upgrade: evil")),
    Case("one more", "RFC 9110 7.8", MUST, ("Connection: Upgrade", "Upgrade: websocket, evil")),
    Case("h2c, which was cut", "contract 6", OURS, ("Connection: Upgrade", "Upgrade: h2c")),
    Case("none", "RFC 9110 15.2.2", MUST, ()),
    Case("one that Connection does not name", "RFC 9110 7.8", MUST, ("Upgrade: websocket",)),
]


@pytest.mark.parametrize("case", NOT_OFFERED, ids=ids(NOT_OFFERED))
def test_a_101_to_what_was_not_offered(case: Case, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Connection: Upgrade", "Upgrade: websocket, h2c"))
        peer = upstream.accept()
        assert peer.read_request().one("upgrade") == "websocket"
        peer.send(message("HTTP/1.1 101 Switching Protocols", *map(str, case.facts)) + b"raw bytes")
        assert app.read_answer().status == 502
        assert peer.rest() == b""


def test_a_101_within_a_request(proxy: Proxy) -> None:
    """RFC 9110 section 7.8: the app speaks the new protocol once its request is whole. With a length everybody can
    tell where that is; chunks are framed anew, so that what is left of them can't be passed on in a tunnel.
    """
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", *WEBSOCKET, "Content-Length: 5", method="POST") + b"he")
        peer = upstream.accept()
        peer.read_head()
        assert peer.read(2) == b"he"
        peer.send(SWITCH)
        assert app.read_answer().status == 101
        app.send(b"llo" + b"frames")
        assert peer.read(9) == b"lloframes"
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", *WEBSOCKET, "Transfer-Encoding: chunked", method="POST") + b"5\r\nhe")
        peer = upstream.accept()
        peer.read_until(b"he")
        peer.send(SWITCH)
        assert app.read_answer().status == 502
        app.try_send(b"llo\r\n0\r\n\r\nframes")
        assert b"frames" not in peer.rest()


def test_a_101_may_choose_among_what_was_offered(proxy: Proxy) -> None:
    """In any case, and without the version (RFC 9110 section 7.8)."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Connection: Upgrade", "Upgrade: IRC/6.9, WebSocket"))
        peer = upstream.accept()
        peer.read_request()
        peer.send(SWITCH + b"x")
        assert app.read_answer().status == 101
        assert app.read(1) == b"x"


@pytest.mark.parametrize("case", UNASKED, ids=ids(UNASKED))
def test_a_101_to_a_request_that_is_no_upgrade(case: Case, proxy: Proxy) -> None:
    fields, version = case.facts
    assert isinstance(fields, list)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", *fields, version=str(version)))
        peer = upstream.accept()
        peer.read_request()
        peer.send(SWITCH + b"raw bytes")
        answer = app.read_answer()
        assert answer.status == 502
        assert peer.rest() == b""


def test_a_continue_before_the_switch(proxy: Proxy) -> None:
    """RFC 9110 section 7.8: 100 first, then 101."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/up", *WEBSOCKET, "Expect: 100-continue", "Content-Length: 2", method="POST"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert app.read_head().startswith(b"HTTP/1.1 100")
        app.send(b"hi")
        assert peer.read(2) == b"hi"
        peer.send(SWITCH)
        assert app.read_answer().status == 101
        app.send(b"frames")
        assert peer.read(6) == b"frames"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("who", ["app", "upstream"])
def test_an_upgraded_connection_ends(who: str, how: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/ws", *WEBSOCKET))
        peer = upstream.accept()
        peer.read_request()
        peer.send(SWITCH)
        app.read_answer()
        goes, stays = (app, peer) if who == "app" else (peer, app)
        goes.send(b"last")
        assert stays.read(4) == b"last"
        if how == "close":
            goes.close()
        else:
            goes.reset()
        assert stays.rest() == b""
        stays.close()
        proxy.fence(upstream)  # neither connection is used again


def test_an_upgrade_is_tried_again_before_its_101_and_never_after(retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/ws", *WEBSOCKET))
        peer = upstream.accept()
        first = peer.read_request()
        peer.send(reply(b"", status="503 U"))
        second = peer.read_request()
        assert second.head.replace(b"X-Attempt-Count: 2", b"X-Attempt-Count: 1") == first.head
        peer.send(SWITCH)
        answer = app.read_answer()
        assert (answer.status, answer.one("x-attempt-count")) == (101, "2")
        peer.reset()
        app.rest()
        retrying.fence(upstream)
