"""Connections and exchanges over time: keep-alive, pipelines, expectations, interim answers, streams, ends (RFC 9112
section 9, RFC 9110 sections 10.1.1 and 15.2).
"""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from conformance_kit import (
    GUARD,
    MUST,
    OK,
    OURS,
    SHOULD,
    Case,
    Peer,
    Proxy,
    Upstream,
    chunked,
    get,
    ids,
    message,
    reply,
)

TE = "Transfer-Encoding: chunked"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def asked(upstream: Upstream, path: str, *fields: str, **more: str) -> bytes:
    return get(upstream, path, *fields, **more)


# -- keep-alive and pipelines ---------------------------------------------------------------------------------------

PERSISTENCE = [
    Case("1.1", "RFC 9112 9.3", MUST, ("1.1", [], True)),
    Case("1.1 keep-alive", "RFC 9112 9.3", MUST, ("1.1", ["Connection: keep-alive"], True)),
    Case("1.1 close", "RFC 9112 9.6", MUST, ("1.1", ["Connection: close"], False)),
    Case("1.1 Close", "RFC 9110 7.6.1", MUST, ("1.1", ["Connection: CLOSE"], False)),
    Case("1.1 close and keep-alive", "RFC 9112 9.3", MUST, ("1.1", ["Connection: keep-alive, close"], False)),
    Case("1.1 close in a second field", "RFC 9112 9.3", MUST, ("1.1", ["Connection: x", "Connection: close"], False)),
    Case("1.1 close in another field's value", "RFC 9112 9.3", MUST, ("1.1", ["Connection: xclose"], True)),
    Case("1.1 Proxy-Connection: close", "RFC 9112 C.2.2", OURS, ("1.1", ["Proxy-Connection: close"], True)),
    Case("1.2", "RFC 9112 9.3", MUST, ("1.2", [], True)),
    Case("1.0", "RFC 9112 9.3", MUST, ("1.0", [], False)),
    Case("1.0 keep-alive", "RFC 9112 9.3", MUST, ("1.0", ["Connection: keep-alive"], False)),
    Case("1.0 Proxy-Connection: keep-alive", "RFC 9112 C.2.2", MUST, ("1.0", ["Proxy-Connection: keep-alive"], False)),
    Case("1.0 close", "RFC 9112 9.3", MUST, ("1.0", ["Connection: close"], False)),
]  # fmt: skip


@pytest.mark.parametrize("case", PERSISTENCE, ids=ids(PERSISTENCE))
def test_whether_the_apps_connection_persists(case: Case, proxy: Proxy) -> None:
    version, fields, persists = case.facts
    assert isinstance(fields, list)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/1", *fields, version=str(version)))
        peer = upstream.accept()
        peer.read_head()
        peer.send(reply(b"one"))
        answer = app.read_answer()
        assert answer.body == b"one"
        if persists:
            assert answer.one("connection") is None
            app.send(get(upstream, "/2", *fields))
            peer.read_head()
            peer.send(reply(b"two"))
            assert app.read_answer().body == b"two"
        else:
            assert answer.one("connection") == "close"
            assert app.rest() == b""
            assert peer.is_silent()  # the other connection lives on


@pytest.mark.parametrize("case", [case for case in PERSISTENCE if not case.facts[2]], ids=str)
@pytest.mark.parametrize("when", ["with it", "later"])
def test_nothing_is_done_after_a_close(case: Case, when: str, proxy: Proxy) -> None:
    """RFC 9112 section 9.6: no further request on that connection is processed, and the answer is not lost to it."""
    version, fields, _ = case.facts
    assert isinstance(fields, list)
    with Upstream() as upstream, proxy.app() as app:
        first, second = get(upstream, "/1", *fields, version=str(version)), get(upstream, "/2")
        app.send(first + second if when == "with it" else first)
        peer = upstream.accept()
        assert peer.read_head().startswith(b"GET /1 ")
        if when == "later":
            app.send(second)
        peer.send(reply(b"x" * 100_000))
        assert app.read_answer().body == b"x" * 100_000
        assert app.rest() == b""
        proxy.fence(upstream, peer)


def test_many_requests_take_one_connection_each_way(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        peer = proxy.settles(app, upstream)
        for number in range(50):
            body = b"%d" % number * number
            app.send(asked(upstream, f"/{number}", f"Content-Length: {len(body)}", method="POST") + body)
            request = peer.read_request()
            assert request.line == b"POST /%d HTTP/1.1" % number
            assert request.body == body
            peer.send(reply(body[::-1]))
            assert app.read_answer().body == body[::-1]
        assert upstream.untouched


PIPELINES = [
    Case("five GETs", "RFC 9112 9.3.2", MUST, ([("GET", b"", [])] * 5,)),
    Case("with bodies", "RFC 9112 9.3.2", MUST,
         ([("POST", b"abc", ["Content-Length: 3"]), ("GET", b"", []), ("PUT", b"\r\n\r\n", ["Content-Length: 4"])],)),
    Case("with chunks", "RFC 9112 9.3.2", MUST,
         ([("POST", chunked(b"abc", b"d"), [TE]), ("POST", chunked(), [TE]), ("GET", b"", [])],)),
    Case("with trailers", "RFC 9112 9.3.2", MUST,
         ([("POST", chunked(b"abc", trailers=b"X: y\r\n"), [TE]), ("GET", b"", [])],)),
    Case("with an empty line between", "RFC 9112 2.2", SHOULD,
         ([("POST", b"abc\r\n", ["Content-Length: 3"]), ("GET", b"", [])],)),
    Case("with HEADs", "RFC 9112 9.3.2", MUST, ([("HEAD", b"", []), ("GET", b"", []), ("HEAD", b"", [])],)),
    Case("with unsafe methods", "RFC 9112 9.3.2", MUST,
         ([("DELETE", b"", []), ("POST", b"x", ["Content-Length: 1"]), ("FOO", b"", [])],)),
]  # fmt: skip


@pytest.mark.parametrize("way", ["at once", "octet by octet"])
@pytest.mark.parametrize("case", PIPELINES, ids=ids(PIPELINES))
def test_a_pipeline_is_answered_in_order(case: Case, way: str, proxy: Proxy) -> None:
    (requests,) = case.facts
    assert isinstance(requests, list)
    with Upstream() as upstream, proxy.app() as app:
        raw = b""
        for number, (method, body, fields) in enumerate(requests):
            raw += asked(upstream, f"/{number}", *fields, method=method) + body
        if way == "at once":
            app.send(raw)
        else:
            sending = threading.Thread(target=app.send, args=[raw[at : at + 1] for at in range(len(raw))])
            sending.start()
        peer = None
        for number, (method, _, _) in enumerate(requests):
            peer = peer or upstream.accept()
            request = peer.read_request()
            assert request.line == b"%b /%d HTTP/1.1" % (method.encode(), number)
            peer.send(message("HTTP/1.1 200 OK", "Content-Length: 1") + (b"" if method == "HEAD" else b"%d" % number))
            answer = app.read_answer(method)
            assert answer.status == 200
            assert answer.body == (b"" if method == "HEAD" else b"%d" % number)
        if way != "at once":
            sending.join()
        assert upstream.untouched
        assert app.is_silent()


def test_a_pipeline_is_not_sent_on_before_its_turn(proxy: Proxy) -> None:
    """The second request waits for the first one's answer: the order of answers is the order of requests."""
    with Upstream() as one, Upstream() as two, proxy.app() as app:
        app.send(get(one, "/1") + get(two, "/2"))
        peer = one.accept()
        peer.read_head()
        proxy.fence(two)
        peer.send(reply(b"one"))
        assert app.read_answer().body == b"one"
        other = two.accept()
        other.read_head()
        other.send(reply(b"two"))
        assert app.read_answer().body == b"two"


def test_a_pipeline_of_300_kib_behind_a_slow_answer(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        big = b"x" * 30_000
        raw = get(upstream, "/first") + b"".join(
            get(upstream, f"/{n}", f"Content-Length: {len(big)}", method="PUT") + big for n in range(10)
        )
        sending = threading.Thread(target=app.send, args=(raw,))
        sending.start()
        peer = upstream.accept()
        peer.read_head()
        peer.send(reply(b"first"))
        assert app.read_answer().body == b"first"
        for number in range(10):
            assert peer.read_request().body == big
            peer.send(reply(b"%d" % number))
            assert app.read_answer().body == b"%d" % number
        sending.join()


REFUSED_HERE = [
    Case("a host that cannot be", "RFC 9110 15.6.3", MUST, ("GET http://127.0.0.1:1/x HTTP/1.1", 502)),
    Case("a denied address", "contract 6", OURS, ("GET http://169.254.169.254/latest HTTP/1.1", 403)),
    Case("nobody's path", "contract 3", OURS, ("GET /x HTTP/1.1", 404)),
    Case("OPTIONS of the proxy itself", "RFC 9110 9.3.7", OURS, ("OPTIONS * HTTP/1.1", 200)),
]


@pytest.mark.parametrize("case", REFUSED_HERE, ids=ids(REFUSED_HERE))
def test_a_request_behind_one_that_fails_is_served(case: Case, proxy: Proxy) -> None:
    line, status = case.facts
    with Upstream() as upstream, proxy.app() as app:
        app.send(message(str(line), "Host: a.example") + get(upstream, "/next"))
        assert app.read_answer().status == status
        peer = upstream.accept()
        assert peer.read_head().startswith(b"GET /next ")
        peer.send(OK)
        assert app.read_answer().status == 200


def test_a_request_with_a_body_that_fails_leaves_no_body_behind(proxy: Proxy) -> None:
    """RFC 9112 section 9.3: the whole body is read, or the connection closes; it is never the next request."""
    for body in (b"GET http://%b/smuggled HTTP/1.1\r\nHost: a\r\n\r\n", b"x" * 100):
        with Upstream() as upstream, proxy.app() as app:
            inner = body.replace(b"%b", upstream.authority.encode())
            head = message("POST http://127.0.0.1:1/x HTTP/1.1", "Host: a", f"Content-Length: {len(inner)}")
            app.send(head, inner)
            answer = app.read_answer()
            assert answer.status == 502
            if answer.one("connection") != "close":
                app.send(get(upstream, "/next"))
                peer = upstream.accept()
                assert peer.read_head().startswith(b"GET /next ")
            else:
                app.rest()
                proxy.fence(upstream)


# -- Expect: 100-continue -------------------------------------------------------------------------------------------


def expecting(upstream: Upstream, *fields: str, version: str = "1.1") -> bytes:
    return get(upstream, "/x", "Expect: 100-continue", *fields, method="POST", version=version)


BODIES = [
    Case("a length", "RFC 9110 10.1.1", MUST, (["Content-Length: 5"], b"hello")),
    Case("chunks", "RFC 9110 10.1.1", MUST, ([TE], chunked(b"hello"))),
]


@pytest.mark.parametrize("spelling", ["100-continue", "100-Continue", "100-CONTINUE"])
@pytest.mark.parametrize("case", BODIES, ids=ids(BODIES))
def test_an_expectation_goes_on_and_so_does_its_100(case: Case, spelling: str, proxy: Proxy) -> None:
    fields, body = case.facts
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", f"Expect: {spelling}", *fields, method="POST"))
        peer = upstream.accept()
        head = peer.read_head()
        assert b"\r\nExpect: %b\r\n" % spelling.encode() in head
        assert app.is_silent()  # nobody but the upstream says 100
        peer.send(CONTINUE)
        assert app.read_head().startswith(b"HTTP/1.1 100 Continue\r\n")
        app.send(body)
        peer.unread(head)
        assert peer.read_request().body == b"hello"
        peer.send(OK)
        assert app.read_answer().status == 200
        app.send(get(upstream, "/next"))
        assert peer.read_head().startswith(b"GET /next ")


@pytest.mark.parametrize("status", ["417 Expectation Failed", "401 Unauthorized", "413 Content Too Large", "200 OK"])
@pytest.mark.parametrize("case", BODIES, ids=ids(BODIES))
def test_a_final_answer_without_the_body_ends_the_connection(case: Case, status: str, proxy: Proxy) -> None:
    """RFC 9110 section 10.1.1: nothing of a body that may yet come is ever taken for a request."""
    fields, body = case.facts
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(expecting(upstream, *fields))
        peer = upstream.accept()
        peer.read_head()
        peer.send(reply(b"final", status=status))
        answer = app.read_answer()
        assert answer.line == b"HTTP/1.1 " + status.encode()
        assert answer.body == b"final"
        assert answer.one("connection") == "close"
        app.try_send(body + get(upstream, "/smuggled"))
        assert app.rest() == b""
        assert peer.rest() == b""  # the request was never finished upstream
        proxy.fence(upstream)


@pytest.mark.parametrize("case", BODIES, ids=ids(BODIES))
def test_an_app_that_does_not_wait_for_its_100(case: Case, proxy: Proxy) -> None:
    """RFC 9110 section 15.2: the 100 is passed on all the same; the proxy did not ask for it itself."""
    fields, body = case.facts
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(expecting(upstream, *fields) + body)
        peer = upstream.accept()
        assert peer.read_request().body == b"hello"
        peer.send(CONTINUE, OK)
        answer = app.read_answer()
        assert [head[:12] for head in answer.infos] == [b"HTTP/1.1 100"]
        assert answer.status == 200


def test_an_expectation_in_http_1_0_is_ignored(proxy: Proxy) -> None:
    """RFC 9110 sections 10.1.1 and 15.2: no 1xx to HTTP/1.0, whatever it asked for."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(expecting(upstream, "Content-Length: 5", version="1.0") + b"hello")
        peer = upstream.accept()
        assert peer.read_request().body == b"hello"
        peer.send(CONTINUE, OK)
        answer = app.read_answer()
        assert answer.infos == []
        assert answer.body == b"ok"


def test_an_expectation_without_a_body(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Expect: 100-continue"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(CONTINUE + OK)
        assert app.read_answer().status == 200
        app.send(get(upstream, "/next"))
        assert peer.read_head().startswith(b"GET /next ")


# -- interim answers ------------------------------------------------------------------------------------------------

INTERIM = [
    Case("103", "RFC 9110 15.2", MUST, (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n",)),
    Case("102", "RFC 9110 15.2", MUST, (b"HTTP/1.1 102 Processing\r\n\r\n",)),
    Case("100 to a GET", "RFC 9110 15.2", MUST, (CONTINUE,)),
    Case("199", "RFC 9110 15.2", MUST, (b"HTTP/1.1 199 Miscellaneous\r\nX: y\r\n\r\n",)),
    Case("104 without a reason", "RFC 9110 15.2", MUST, (b"HTTP/1.1 104 \r\nUpload: 5\r\n\r\n",)),
]


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("case", INTERIM, ids=ids(INTERIM))
def test_interim_answers_are_passed_on(case: Case, count: int, proxy: Proxy) -> None:
    (interim,) = case.facts
    assert isinstance(interim, bytes)
    for together in (True, False):
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream))
            peer = upstream.accept()
            peer.read_head()
            seen = []
            if together:
                peer.send(interim * count + OK)
            else:
                for _ in range(count):
                    peer.send(interim)
                    seen.append(app.read_head())
                peer.send(OK)
            answer = app.read_answer()
            infos = seen + answer.infos
            assert len(infos) == count
            for info in infos:
                assert info.startswith(interim[:-2])
                assert b"\r\nVia: 1.1 redrive-" in info  # RFC 9110 section 7.6.3: in each message
                assert b"\r\nX-Attempt-Count" not in info
            assert answer.status == 200
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream, version="1.0"))
            peer = upstream.accept()
            peer.read_head()
            peer.send(interim * count + OK)
            assert app.read_answer().infos == []


def test_an_interim_answer_loses_what_belongs_to_a_hop(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        fields = ("Connection: X-Hop, keep-alive", "X-Hop: 1", "Keep-Alive: 5", "Content-Length: 0", "Link: </a>")
        peer.send(message("HTTP/1.1 103 Early Hints", *fields) + OK)
        (info,) = app.read_answer().infos
        names = [line.partition(b":")[0] for line in info.split(b"\r\n")[1:-2]]
        assert names == [b"Link", b"Via"]


@pytest.mark.parametrize("size", [0, 1000])
def test_a_flood_of_interim_answers_is_bounded(size: int, proxy: Proxy) -> None:
    """No RFC bounds them; memory does. The flood is told apart from a long-running answer by its bytes."""
    flood = b"HTTP/1.1 103 Early Hints\r\nX: " + b"y" * size + b"\r\n\r\n"
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, method="POST"))
        peer = upstream.accept()
        peer.read_head()
        sent = 0
        while sent < 64_000_000 and peer.try_send(flood * 200):
            sent += len(flood) * 200
        assert sent < 64_000_000
        answer = app.read_answer()
        assert answer.status == 502
        assert sum(map(len, answer.infos)) < 1_000_000


# -- streams --------------------------------------------------------------------------------------------------------

STREAMS = [
    Case("chunks", "RFC 9112 7.1", MUST,
         ("1.1", message("HTTP/1.1 200 OK", TE), lambda data: b"%x\r\n%b\r\n" % (len(data), data))),
    Case("until the end", "RFC 9112 6.3", MUST, ("1.1", message("HTTP/1.1 200 OK"), bytes)),
    Case("until the end, HTTP/1.0 upstream", "RFC 9112 6.3", MUST, ("1.1", message("HTTP/1.0 200 OK"), bytes)),
    Case("a length", "RFC 9112 6.2", MUST, ("1.1", message("HTTP/1.1 200 OK", "Content-Length: 1000000"), bytes)),
    Case("chunks to HTTP/1.0", "RFC 9112 7.1", MUST,
         ("1.0", message("HTTP/1.1 200 OK", TE), lambda data: b"%x\r\n%b\r\n" % (len(data), data))),
    Case("until the end to HTTP/1.0", "RFC 9112 6.3", MUST, ("1.0", message("HTTP/1.1 200 OK"), bytes)),
]  # fmt: skip


@pytest.mark.parametrize("case", STREAMS, ids=ids(STREAMS))
def test_events_are_flushed_as_they_come(case: Case, proxy: Proxy) -> None:
    """Server-sent events: head and each event reach the app before the next one is sent."""
    version, head, framed = case.facts
    assert isinstance(head, bytes)
    assert callable(framed)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/events", "Accept: text/event-stream", version=str(version)))
        peer = upstream.accept()
        peer.read_head()
        peer.send(head[:-2] + b"Content-Type: text/event-stream\r\n\r\n")
        assert b"text/event-stream" in app.read_head()
        for number in range(20):
            event = b"data: %d\n\n" % number
            peer.send(framed(event))
            assert app.read_until(event).endswith(event)
            assert app.held in (b"", b"\r\n")


def test_an_upload_that_drips_is_sent_as_it_comes(proxy: Proxy) -> None:
    for fields, framed in ((["Content-Length: 20"], bytes), ([TE], lambda data: b"%x\r\n%b\r\n" % (len(data), data))):
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream, "/x", *fields, method="PUT"))
            peer = upstream.accept()
            peer.read_head()
            for number in range(20):
                piece = framed(b"%x" % (number % 16))
                app.send(piece)
                assert peer.read(len(piece)) == piece
            if fields == [TE]:
                app.send(b"0\r\n\r\n")
                assert peer.read(5) == b"0\r\n\r\n"
            peer.send(OK)
            assert app.read_answer().status == 200


def test_both_directions_at_once(proxy: Proxy) -> None:
    """An upstream that answers while it reads: 4 MiB each way, neither held up by the other."""
    blob = bytes(range(256)) * 16384
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", f"Content-Length: {len(blob)}", method="POST"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(message("HTTP/1.1 200 OK", f"Content-Length: {len(blob)}"))

        def echo() -> None:
            left = len(blob)
            while left:
                data = peer.sock.recv(65536)
                peer.sock.sendall(data)
                left -= len(data)

        threads = [threading.Thread(target=echo), threading.Thread(target=app.send, args=(blob,))]
        for thread in threads:
            thread.start()
        assert app.read_answer().body == blob
        for thread in threads:
            thread.join()


EARLY = [
    Case(
        "413 and close", "RFC 9112 9.5", MUST, (reply(b"too much", "Connection: close", status="413 Too Large"), True)
    ),
    Case("413 and open", "RFC 9112 9.5", MUST, (reply(b"too much", status="413 Too Large"), False)),
    Case("200 and open", "RFC 9112 9.5", MUST, (reply(b"too much"), False)),
    Case("chunks", "RFC 9112 9.5", MUST, (message("HTTP/1.1 401 U", TE) + chunked(b"too ", b"much"), False)),
    Case("until the end", "RFC 9112 9.5", MUST, (message("HTTP/1.1 403 F") + b"too much", True)),
    Case("204", "RFC 9112 9.5", MUST, (message("HTTP/1.1 204 No Content"), False)),
]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("case", EARLY, ids=ids(EARLY))
def test_an_answer_before_the_requests_end(case: Case, version: str, proxy: Proxy) -> None:
    """It goes to the app at once and whole; what still comes of the request is never a request."""
    early, closes = case.facts
    assert isinstance(early, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 1000000", method="POST", version=version) + b"x" * 1000)
        peer = upstream.accept()
        peer.read_head()
        peer.read(1000)
        peer.send(early)
        if closes:
            peer.close()
        answer = app.read_answer()
        assert answer.status == int(early[9:12])
        assert answer.body in (b"too much", b"")
        assert answer.whole
        app.try_send(b"x" * 998_000 + get(upstream, "/smuggled"))
        app.rest()
        proxy.fence(upstream)


def test_an_early_answer_survives_the_reset_behind_it(proxy: Proxy) -> None:
    """An upstream that closes with some of the body unread sends a RST (RFC 9112 section 9.6)."""
    for _ in range(10):
        with Upstream() as upstream, proxy.app() as app:
            app.send(get(upstream, "/x", "Content-Length: 100000000", method="POST"))
            flood = threading.Thread(target=lambda app=app: [None for _ in range(6000) if app.try_send(b"x" * 16384)])
            flood.start()
            peer = upstream.accept()
            peer.read_head()
            peer.read(20_000)
            peer.send(reply(b"too much", status="413 Too Large"))
            peer.close()
            answer = app.read_answer()
            assert (answer.status, answer.body) == (413, b"too much")
            with contextlib.suppress(OSError):
                app.sock.shutdown(socket.SHUT_RDWR)
            flood.join()


def test_an_answer_that_begins_early_and_ends_late(proxy: Proxy) -> None:
    """The upload goes on while the answer streams."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 6", method="POST") + b"ab")
        peer = upstream.accept()
        peer.read_head()
        assert peer.read(2) == b"ab"
        peer.send(message("HTTP/1.1 200 OK", TE), b"3\r\none\r\n")
        app.unread(app.read_until(b"one\r\n"))
        app.send(b"cd")
        assert peer.read(2) == b"cd"
        app.send(b"ef")
        assert peer.read(2) == b"ef"
        peer.send(b"3\r\ntwo\r\n0\r\n\r\n")
        answer = app.read_answer()
        assert answer.body == b"onetwo"
        app.send(get(upstream, "/next"))  # all of it was read and sent: both connections live on
        assert peer.read_head().startswith(b"GET /next ")


# -- half-closed and gone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("body", [b"", b"hello"])
def test_an_app_that_has_said_all_gets_its_answer(version: str, body: bytes, proxy: Proxy) -> None:
    """RFC 9112 section 9.6: a FIN behind a request is no reason to give it up."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", f"Content-Length: {len(body)}", method="POST", version=version) + body)
        app.end()
        peer = upstream.accept()
        assert peer.read_request().body == body
        assert peer.is_silent()
        peer.send(reply(b"x" * 200_000))
        answer = app.read_answer()
        assert answer.body == b"x" * 200_000
        assert app.rest() == b""
        assert not app.broken


def test_a_pipeline_and_then_a_fin(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(b"".join(get(upstream, f"/{n}") for n in range(5)))
        app.end()
        peer = upstream.accept()
        for number in range(5):
            assert peer.read_head().startswith(b"GET /%d " % number)
            peer.send(reply(b"%d" % number))
            assert app.read_answer().body == b"%d" % number
        assert app.rest() == b""


@pytest.mark.parametrize("how", ["fin", "close", "reset"])
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET",
        b"GET http://%A/x HTTP/1.1",
        b"GET http://%A/x HTTP/1.1\r\nHost: a\r\n",
        b"GET http://%A/x HTTP/1.1\r\nHost: a\r\n\r",
    ],
)
def test_an_app_that_ends_within_a_head_sent_nothing(begun: bytes, how: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(begun.replace(b"%A", upstream.authority.encode()))
        if how == "fin":
            app.end()
            rest = app.rest()
            assert rest == b"" or rest.startswith(b"HTTP/1.1 400")
        elif how == "close":
            app.close()
        else:
            app.reset()
        proxy.fence(upstream)


@pytest.mark.parametrize("how", ["fin", "close", "reset"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_an_app_that_ends_within_a_body_leaves_it_broken(framing: str, how: str, proxy: Proxy) -> None:
    """RFC 9112 section 8: the request upstream is cut off, never made to look whole."""
    field, begun = ("Content-Length: 100", b"hello") if framing == "length" else (TE, b"5\r\nhello\r\n")
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/x", field, method="POST") + begun)
        peer = upstream.accept()
        peer.read_head()
        if how == "fin":
            app.end()
        elif how == "close":
            app.close()
        else:
            app.reset()
        assert peer.rest() in (b"", begun)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", ["before the head", "in the body", "after an interim answer", "after a FIN"])
def test_an_app_that_goes_cancels_its_attempt(when: str, how: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        if when == "in the body":
            peer.send(message("HTTP/1.1 200 OK", "Content-Length: 10") + b"hello")
            app.read_until(b"hello")
        elif when == "after an interim answer":
            peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            app.read_head()
        elif when == "after a FIN":
            app.end()
            assert peer.is_silent()
        if how == "close":
            app.close()
        else:
            app.reset()
        assert peer.rest() == b""


def test_an_app_that_goes_while_it_does_not_read(proxy: Proxy) -> None:
    """Back-pressure first: the upstream is held back, not buffered without end; then the app is gone."""
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        peer.send(message("HTTP/1.1 200 OK", "Content-Length: 1000000000"))
        peer.sock.setblocking(False)
        sent = 0
        piece = b"x" * 65536
        while True:
            try:
                sent += peer.sock.send(piece)
            except BlockingIOError:
                if sent > 1_000_000:
                    break
        assert sent < 100_000_000
        peer.sock.settimeout(GUARD)
        app.close()
        peer.rest()


# -- connections that rest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_resting_connection_that_was_closed_is_not_used(method: str, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        peer = proxy.settles(app, upstream)
        peer.end()
        assert peer.rest() == b""  # the proxy saw it, and closed too
        app.send(get(upstream, "/next", method=method))
        other = upstream.accept()
        assert other.read_head().startswith(b"%b /next " % method.encode())
        other.send(OK)
        answer = app.read_answer()
        assert (answer.status, answer.one("x-attempt-count")) == (200, "1")


MOMENT = [
    Case(f"{method} {kind}", "RFC 9112 9.5", MUST, (method, fields, body, again))
    for method, again in (("GET", True), ("HEAD", True), ("PUT", True), ("DELETE", True), ("OPTIONS", True),
                          ("TRACE", True), ("POST", False), ("PATCH", False), ("FOO", False))
    for kind, fields, body in (("without a body", [], b""), ("with a body", ["Content-Length: 5"], b"hello"),
                               ("with chunks", [TE], chunked(b"hello", trailers=b"X: y\r\n")))
]  # fmt: skip


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("case", MOMENT, ids=ids(MOMENT))
def test_a_connection_that_closes_in_the_moment_of_use(case: Case, how: str, proxy: Proxy) -> None:
    """An idempotent request goes again once, byte for byte, and counts as one attempt; another never does."""
    method, fields, body, again = case.facts
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    with Upstream() as upstream, proxy.app() as app:
        peer = proxy.settles(app, upstream)
        app.send(get(upstream, "/again", *fields, method=str(method)) + body)
        first = peer.read_request()
        if how == "closed":
            peer.close()
        else:
            peer.reset()
        if again:
            other = upstream.accept()
            second = other.read_request()
            assert second == first
            other.send(message("HTTP/1.1 200 OK", "Content-Length: 0"))
            answer = app.read_answer(str(method))
            assert (answer.status, answer.one("x-attempt-count")) == (200, "1")
        else:
            answer = app.read_answer()
            assert (answer.status, answer.one("x-attempt-count")) == (502, "1")
            proxy.fence(upstream)


def test_it_goes_again_only_once(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        peer = proxy.settles(app, upstream)
        app.send(get(upstream, "/again"))
        peer.read_head()
        peer.close()
        other = upstream.accept()
        other.read_head()
        other.close()
        answer = app.read_answer()
        assert (answer.status, answer.one("x-attempt-count")) == (502, "1")
        proxy.fence(upstream)


def test_a_new_connection_that_closes_is_no_stale_one(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream, "/again"))
        peer = upstream.accept()
        peer.read_head()
        peer.close()
        assert app.read_answer().status == 502
        proxy.fence(upstream)


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_once_an_answer_has_begun_it_does_not_go_again(begun: bytes, proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        peer = proxy.settles(app, upstream)
        app.send(get(upstream, "/again"))
        peer.read_head()
        peer.send(begun)
        peer.close()
        assert app.read_answer().status == 502
        proxy.fence(upstream)


ENDS = [
    Case("close", "RFC 9112 9.6", MUST, (reply(b"x", "Connection: close"),)),
    Case("Close among others", "RFC 9112 9.6", MUST, (reply(b"x", "Connection: x, Close"),)),
    Case("HTTP/1.0", "RFC 9112 9.3", MUST, (reply(b"x", version="1.0"),)),
    Case("HTTP/1.0 with a close", "RFC 9112 9.3", MUST, (reply(b"x", "Connection: close", version="1.0"),)),
]


@pytest.mark.parametrize("case", ENDS, ids=ids(ENDS))
def test_an_upstreams_close_is_heeded(case: Case, proxy: Proxy) -> None:
    """The connection is closed and never used again; the app's lives on and is told nothing of it."""
    (raw,) = case.facts
    assert isinstance(raw, bytes)
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        peer.send(raw)
        answer = app.read_answer()
        assert (answer.body, answer.one("connection")) == (b"x", None)
        assert peer.rest() == b""
        app.send(get(upstream, "/next"))
        other = upstream.accept()
        assert other.read_head().startswith(b"GET /next ")


def test_an_upstream_that_half_closes_behind_its_answer(proxy: Proxy) -> None:
    with Upstream() as upstream, proxy.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_head()
        peer.send(OK)
        peer.end()
        assert app.read_answer().body == b"ok"
        assert peer.rest() == b""


def test_requests_of_many_apps_share_no_state(proxy: Proxy) -> None:
    """Each app gets its own answer, however they are interleaved."""
    with Upstream() as upstream:
        apps: list[Peer] = [proxy.app() for _ in range(20)]
        for number, app in enumerate(apps):
            app.send(get(upstream, f"/{number}"))
        waiting = []
        for _ in apps:
            peer = upstream.accept()
            waiting.append((peer, peer.read_head().split(b" ")[1][1:]))
        for peer, name in reversed(waiting):
            peer.send(reply(name))
        for number, app in enumerate(apps):
            assert app.read_answer().body == b"%d" % number
            app.close()
