"""Calls whose app speaks one version of HTTP, and whose upstream another (contract, section 12, *Translation*)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_kit import Message, Peer
from http2_kit import CANCEL, INTERNAL_ERROR, NO_ERROR, PING, PROTOCOL_ERROR, Fields, Place, data, frame, headers, rst
from http2_talk import Talk, Talks, listening

QUICK = "strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}\n"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    kinds = {"old": (f"{QUICK}protocol: http/1.1", 66), "new": (f"{QUICK}protocol: http/2", 60)}
    with Talks(tmp_path_factory.mktemp("translation"), kinds) as started:
        yield started


# -- apps of HTTP/2, upstreams of HTTP/1.1 -----------------------------------------------------------------------------


@pytest.fixture
def old(proxy: Talks) -> Place:
    return proxy.place("old")


def head_of(peer: Peer) -> Message:
    return Message(peer.read_head())


def test_pseudo_fields_become_request_line_and_host(app: Talk, old: Place) -> None:
    app.ask(old, "/a?b=c", extra=[("x-b", "2"), ("x-a", "1"), ("x-b", "3")])
    got = head_of(old.listener.accept())
    assert got.line == b"GET /a?b=c HTTP/1.1"
    assert got.one("host") == old.authority
    assert [line for line in got.lines if line.startswith(b"x-")][:3] == [b"x-b: 2", b"x-a: 1", b"x-b: 3"]
    assert str(got.one("via")).startswith("2.0 redrive-")
    assert got.one("transfer-encoding") is None and got.one("content-length") is None


def test_cookies_become_one(app: Talk, old: Place) -> None:
    app.ask(old, extra=[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")])
    assert head_of(old.listener.accept()).all("cookie") == ["a=1; b=2; c=3"]


@pytest.mark.parametrize("length", [True, False])
def test_a_body_keeps_its_length_or_comes_in_chunks(app: Talk, old: Place, length: bool) -> None:
    sid = app.ask(old, "/", "POST", [("content-length", "6")] if length else [], b"abc", end=False)
    app.send(data(sid, b"def", end=True))
    got = old.listener.accept().read_request()
    assert (got.one("content-length"), got.one("transfer-encoding")) == (("6", None) if length else (None, "chunked"))
    assert got.body == b"abcdef"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"])
def test_no_body_is_told_of_where_the_method_has_a_use_for_one(app: Talk, old: Place, method: str) -> None:
    app.ask(old, "/", method)
    got = old.listener.accept().read_request()
    length = "0" if method in ("POST", "PUT", "PATCH") else None
    assert (got.one("content-length"), got.one("transfer-encoding"), got.body) == (length, None, b"")


def test_trailers_go_behind_the_chunks(app: Talk, old: Place) -> None:
    app.ask(old, "/", "POST", [("trailer", "x-sum")], b"abc", [("x-sum", "1"), ("x-t", "2")])
    got = old.listener.accept().read_request()
    assert (got.body, got.trailers) == (b"abc", b"x-sum: 1\r\nx-t: 2\r\n")


def test_an_answer_in_chunks_with_trailers(app: Talk, old: Place) -> None:
    sid = app.ask(old)
    peer = old.listener.accept()
    peer.read_head()
    peer.send(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
    )
    peer.send(b"X-Up:  padded \r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-T: v\r\n\r\n")
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.trailers) == (200, b"abcde", [("x-t", "v")])
    assert answer.get("x-up") == "padded"
    assert not {"transfer-encoding", "connection", "x-hop", "keep-alive"} & dict(answer.finals[0]).keys()
    assert str(answer.get("via")).startswith("1.1 redrive-")


def test_an_answer_that_ends_with_its_connection(app: Talk, old: Place) -> None:
    sid = app.ask(old)
    peer = old.listener.accept()
    peer.read_head()
    peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
    app.wait(lambda: app.on(sid).body == b"abc")
    peer.close()
    assert app.over(sid).reset is None


@pytest.mark.parametrize("framed", [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"])
def test_an_answer_that_breaks_off(app: Talk, old: Place, framed: bytes) -> None:
    sid = app.ask(old)
    peer = old.listener.accept()
    peer.read_head()
    peer.send(b"HTTP/1.1 200 OK\r\n" + framed)
    app.wait(lambda: app.on(sid).body == b"abc")
    peer.close()
    assert app.cut(sid) == INTERNAL_ERROR


def test_interim_answers(app: Talk, old: Place) -> None:
    sid = app.ask(old, "/", "POST", [("expect", "100-continue"), ("content-length", "3")], end=False)
    peer = old.listener.accept()
    assert head_of(peer).one("expect") == "100-continue"
    peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
    app.wait(lambda: len(app.on(sid).infos) == 2)
    app.send(data(sid, b"abc", end=True))
    assert peer.read(3) == b"abc"
    peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
    answer = app.over(sid)
    assert [dict(info)[":status"] for info in answer.infos] == ["103", "100"]
    assert ("link", "</a>") in answer.infos[0]
    assert (answer.status, answer.body, answer.ended) == (204, b"", True)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_a_length_of_what_is_not_sent(app: Talk, old: Place, method: str, status: int) -> None:
    sid = app.ask(old, "/", method)
    peer = old.listener.accept()
    peer.read_head()
    peer.send(b"HTTP/1.1 %d X\r\nContent-Length: 100\r\n\r\n" % status)
    answer = app.over(sid)
    assert (answer.status, answer.get("content-length"), answer.body) == (status, "100", b"")


@pytest.mark.parametrize("target", ["/%20", "/a//b/../c", "/?x", "*", "/a;b=c?d"])
def test_targets_go_as_they_are(app: Talk, old: Place, target: str) -> None:
    app.ask(old, target, "OPTIONS")
    assert head_of(old.listener.accept()).line == b"OPTIONS %b HTTP/1.1" % target.encode()


#: Fields that would be another message on HTTP/1.1.
SMUGGLED: dict[str, Fields] = {
    "no path": [(":path", "")],
    "a path of two": [(":path", "/ HTTP/1.1")],
    "a control in the path": [(":path", "/\x01")],
    "a method of two": [(":method", "GET / HTTP/1.1\r\nx:")],
    "a line in a value": [("x", "a\r\nevil: 1")],
    "a line in a name": [("x: 1\r\nevil", "1")],
    "a coding": [("transfer-encoding", "chunked")],
    "a length with a sign": [("content-length", "+3")],
    "a list of lengths": [("content-length", "3, 3")],
    "a host of two": [(":authority", "a.test\r\nx: y")],
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_would_be_another_message_is_refused(app: Talk, old: Place, name: str) -> None:
    fields = {":method": "POST", ":scheme": "http", ":authority": old.authority, ":path": "/"}
    app.send(headers(1, list((fields | dict(SMUGGLED[name])).items()), end=False), data(1, b"abc", end=True))
    assert app.cut(1) == PROTOCOL_ERROR
    assert old.listener.untouched


#: Of framing, of the way and of one connection (RFC 9110 section 6.5.1, RFC 9113 section 8.2.2).
NO_TRAILERS = [
    *("content-length", "transfer-encoding", "host", "trailer", "max-forwards", "connection", "keep-alive"),
    *("proxy-connection", "upgrade", "te"),
]


@pytest.mark.parametrize("name", NO_TRAILERS)
def test_trailers_of_an_app_that_would_mislead(app: Talk, old: Place, name: str) -> None:
    sid = app.ask(old, "/", "POST", body=b"abc", end=False)
    peer = old.listener.accept()
    peer.read_head()
    app.send(headers(sid, [("x-sum", "1"), (name, "5")]))
    assert app.cut(sid) == PROTOCOL_ERROR
    assert b"x-sum" not in peer.rest()


@pytest.mark.parametrize("name", NO_TRAILERS)
def test_trailers_of_an_upstream_that_would_mislead(proxy: Talks, new: Place, name: str) -> None:
    with proxy.app() as one:
        ask(one, new)
        upstream = listening(new)
        sid = upstream.begun().id
        upstream.send(headers(sid, [(":status", "200")], end=False), data(sid, b"abc"))
        one.unread(one.read_head())
        upstream.send(headers(sid, [("x-sum", "1"), (name, "5")]))
        assert upstream.cut(sid) == PROTOCOL_ERROR
        assert b"x-sum" not in one.rest()


@pytest.mark.parametrize("value", ["a\x01b", "\x7f", " a", "a\t"])
def test_values_of_an_upstream_that_http1_has_no_words_for(proxy: Talks, new: Place, value: str) -> None:
    """In an interim head and in the final one: a `reset` of its call, and the connection goes on."""
    with proxy.app() as one, proxy.app() as other:
        ask(one, new, "POST /one HTTP/1.1", "Content-Length: 0")
        upstream = listening(new)
        first = upstream.begun().id
        for status in ("103", "200"):
            ask(other, new, "POST /other HTTP/1.1", "Content-Length: 0")
            bad = upstream.begun().id
            upstream.send(headers(bad, [(":status", status), ("x-a", value)], end=status == "200"))
            assert upstream.cut(bad) == PROTOCOL_ERROR
            answer = other.read_answer()
            assert (answer.status, "http_protocol_error" in str(answer.one("proxy-status"))) == (502, True)
        upstream.respond(first, 200, [("x-a", "\x80\xff")])
        assert one.read_answer().one("x-a") == "\x80\xff"


@pytest.mark.parametrize(
    ("media", "grpc"),
    [
        *(
            (each, True)
            for each in ("application/grpc", "application/grpc+proto;x=y", "Application/GRPC; charset=utf-8")
        ),
        *((each, False) for each in ("application/grpc-web", "application/grpcx", "application/json")),
    ],
)
def test_grpc_calls_are_refused_and_others_are_not(app: Talk, old: Place, media: str, grpc: bool) -> None:
    sid = app.ask(old, "/acme.Echo/echo", "POST", [("content-type", media)], b"abc")
    if grpc:
        answer = app.over(sid)
        assert (answer.status, answer.grpc_status, answer.body) == (200, 12, b"")
        assert "protocol" in str(answer.get("grpc-message"))
        assert old.listener.untouched
    else:
        assert old.listener.accept().read_request().body == b"abc"


def test_a_retry_to_an_old_upstream(app: Talk, old: Place) -> None:
    sid = app.ask(old)
    peer = old.listener.accept()
    peer.read_head()
    peer.send(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
    assert head_of(peer).one("x-attempt-count") == "2"
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert app.over(sid).get("x-attempt-count") == "2"


def test_a_cancelled_call_closes_an_old_connection(app: Talk, old: Place) -> None:
    sid = app.ask(old)
    peer = old.listener.accept()
    peer.read_head()
    app.send(rst(sid, CANCEL))
    assert peer.rest() == b""


def test_a_101_that_nobody_asked_for(app: Talk, old: Place) -> None:
    sid = app.ask(old, "/", "POST")
    peer = old.listener.accept()
    peer.read_head()
    peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    assert app.over(sid).status == 502


# -- apps of HTTP/1, upstreams of HTTP/2 -------------------------------------------------------------------------------


@pytest.fixture
def new(proxy: Talks) -> Place:
    return proxy.place("new")


@pytest.fixture
def one(proxy: Talks) -> Iterator[Peer]:
    with proxy.app() as peer:
        yield peer


def ask(one: Peer, place: Place, line: str = "GET /x HTTP/1.1", *fields: str, body: bytes = b"") -> None:
    one.send("\r\n".join([line, f"Host: {place.authority}", *fields, "", ""]).encode() + body)


def test_request_line_and_host_become_pseudo_fields(one: Peer, new: Place) -> None:
    hop = ["Connection: X-Hop, keep-alive", "X-Hop: 1", "Keep-Alive: 3", "Proxy-Connection: x", "TE: trailers, gzip"]
    ask(one, new, "GET /x?y HTTP/1.1", "X-Upper:\t v  ", *hop, "X-Two: 1", "x-two: 2", "X-Empty:", "Cookie: a=1; b=2")
    peer = listening(new)
    got = peer.asked()
    assert dict(got.heads[0][:4]) == {":method": "GET", ":scheme": "http", ":authority": new.authority, ":path": "/x?y"}
    assert (got.get("x-upper"), got.all("x-two"), got.get("x-empty")) == ("v", ["1", "2"], "")
    assert "; ".join(got.all("cookie")) == "a=1; b=2"
    assert got.get("te") in (None, "trailers")
    assert not {"connection", "x-hop", "keep-alive", "proxy-connection", "host"} & dict(got.heads[0]).keys()
    assert str(got.get("via")).startswith("1.1 redrive-")
    peer.respond(1, 200, [("set-cookie", "a"), ("set-cookie", "b")], b"body", [("x-t", "v")])
    answer = one.read_answer()
    assert (answer.all("set-cookie"), answer.body, answer.trailers) == (["a", "b"], b"body", b"x-t: v\r\n")
    assert str(answer.one("via")).startswith("2.0 redrive-")


def test_chunks_are_undone(one: Peer, new: Place) -> None:
    chunks = b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: v\r\n\r\n"
    ask(one, new, "POST /x HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-T", body=chunks)
    got = listening(new).asked()
    assert (got.body, got.trailers, got.get("transfer-encoding")) == (b"abcde", [("x-t", "v")], None)


def test_a_length_is_kept(one: Peer, new: Place) -> None:
    ask(one, new, "POST /x HTTP/1.1", "Content-Length: 3", body=b"abc")
    got = listening(new).asked()
    assert (got.body, got.get("content-length")) == (b"abc", "3")


@pytest.mark.parametrize("how", ["a reset", "a loss", "a broken rule"])
def test_an_answer_that_breaks_off_ends_with_a_reset(one: Peer, new: Place, how: str) -> None:
    ask(one, new)
    peer = listening(new)
    peer.respond(peer.asked().id, 200, body=b"abc", end=False)
    one.read_until(b"abc")
    if how == "a loss":
        peer.peer.reset()
    else:
        peer.send(rst(1, INTERNAL_ERROR) if how == "a reset" else frame(PING, 0, 1, b"12345678"))
    one.rest()
    assert one.broken


def test_heads_without_bodies(one: Peer, new: Place) -> None:
    ask(one, new, "HEAD /x HTTP/1.1")
    peer = listening(new)
    peer.respond(peer.asked().id, 200, [("content-length", "44")])
    assert one.read_answer("HEAD").one("content-length") == "44"
    ask(one, new)
    peer.respond(peer.asked().id, 304, [("etag", "x")])
    assert one.read_answer().status == 304


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("empty", [False, True], ids=["head", "head and empty data"])
@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 201), ("GET", 404), ("HEAD", 200), ("GET", 204)])
def test_an_answer_without_a_body_and_length(
    one: Peer, new: Place, method: str, status: int, empty: bool, version: str
) -> None:
    """It is framed in one way, and of what HEAD would have brought nothing is said."""
    ask(one, new, f"{method} /x HTTP/{version}", "Connection: close")
    peer = listening(new)
    peer.respond(peer.asked().id, status, body=b"" if empty else None)
    answer = one.read_answer(method)
    assert (answer.status, answer.body, answer.whole, one.rest()) == (status, b"", True, b"")
    framing = [answer.one("content-length"), answer.one("transfer-encoding")]
    if method == "HEAD" or status == 204 or (empty and version == "1.0"):
        assert framing == [None, None]
    else:
        assert framing in (["0", None], [None, "chunked"])


def test_interim_answers_of_a_new_upstream(one: Peer, new: Place) -> None:
    ask(one, new, "POST /x HTTP/1.1", "Content-Length: 3", "Expect: 100-continue")
    peer = listening(new)
    got = peer.begun()
    assert got.get("expect") == "100-continue"
    peer.send(
        headers(1, [(":status", "103"), ("link", "</x>")], end=False), headers(1, [(":status", "100")], end=False)
    )
    assert one.read_head().startswith(b"HTTP/1.1 103")
    assert one.read_head().startswith(b"HTTP/1.1 100")
    one.send(b"abc")
    assert peer.over(1).body == b"abc"
    peer.respond(1)
    assert one.read_answer().status == 200


def test_an_app_of_http10(one: Peer, new: Place) -> None:
    ask(one, new, "GET /x HTTP/1.0")
    peer = listening(new)
    assert str(peer.asked().get("via")).startswith("1.0 redrive-")
    peer.respond(1, 200, [], b"abc", [("x-t", "v")])
    head, _, body = one.rest().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"chunked" not in head
    assert (body, one.broken) == (b"abc", False)


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_is_cut(one: Peer, new: Place, protocol: str) -> None:
    ask(
        one,
        new,
        "GET /x HTTP/1.1",
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABk",
    )
    got = listening(new).asked()
    assert not {"upgrade", "connection", "http2-settings"} & dict(got.heads[0]).keys()


def test_pipelined_requests(one: Peer, new: Place) -> None:
    for number in (1, 2):
        ask(one, new, f"GET /{number} HTTP/1.1")
    peer = listening(new)
    for number in (1, 2):
        got = peer.asked()
        assert got.get(":path") == f"/{number}"
        peer.respond(got.id, 200, [("content-length", "1")], b"%d" % number)
        assert one.read_answer().body == b"%d" % number


def test_an_answer_before_its_requests_end(one: Peer, new: Place) -> None:
    ask(one, new, "POST /x HTTP/1.1", "Content-Length: 100000", body=b"abc")
    peer = listening(new)
    peer.respond(peer.begun().id, 413, [("content-length", "0")])
    peer.send(rst(1, NO_ERROR))
    assert one.read_answer().status == 413


def test_absolute_form_names_the_authority(one: Peer, new: Place) -> None:
    one.send(f"GET http://{new.authority}/x HTTP/1.1\r\nHost: other.example\r\n\r\n".encode())
    got = listening(new).asked()
    assert (got.get(":authority"), got.get(":path"), got.get("host")) == (new.authority, "/x", None)
