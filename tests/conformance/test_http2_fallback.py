"""Calls on HTTP/2 that go on at another upstream: gRPC and others, to HTTP/2 and to HTTP/1.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http2_kit import Place
from http2_talk import Talk, Talks, listening

ONCE = "strategy: none\nclassify: {unsafe_methods: always}\n"
GRPC = "strategy: none\ndialects: [http, grpc]\n"
JSON = "[{to: jsoned0, json: {model: big}, keep: [x-team-key]}]"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    kinds = {
        "plain": (f"{ONCE}fallback: [next0]", 1),
        "next": (ONCE, 1),
        "json": (f"{ONCE}fallback: {JSON}", 1),
        "jsoned": (ONCE, 1),
        "grpc": (f"{GRPC}fallback: [grpcs0]", 1),
        "grpcs": (GRPC, 1),
        "asked": (f"{GRPC}fallback: [old0, other0]", 1),
        "old": (f"{GRPC}protocol: http/1.1", 1),
        "other": (GRPC, 1),
        "later": (f"{ONCE}fallback: [one0]", 1),
        "one": (f"{ONCE}protocol: http/1.1", 1),
    }
    with Talks(tmp_path_factory.mktemp("fallback"), kinds) as started:
        yield started


def refusing(place: Place, status: int = 503) -> Talk:
    """The first upstream, which has answered its request so."""
    peer = listening(place)
    peer.respond(peer.asked().id, status, [("set-cookie", "first=1")])
    return peer


SECRETS = [("authorization", "Bearer x"), ("cookie", "a=1"), ("x-api-key", "k"), ("x-plain", "1"), ("x-team-key", "t")]


def test_what_goes_along(proxy: Talks, app: Talk) -> None:
    first, second = proxy.place("plain"), proxy.place("next")
    sid = app.ask(first, "/v1?key=1&a=2", "PUT", SECRETS, b"body", [("x-sum", "1"), ("x-token", "t")])
    refusing(first)
    peer = listening(second)
    asked = peer.asked()
    head = dict(asked.heads[0])
    assert head[":path"] == "/v1?a=2"
    assert (head[":authority"], head[":scheme"], head[":method"]) == (second.listener.authority, "http", "PUT")
    assert {name for name in head if not name.startswith(":")} == {"x-plain", "x-attempt-count", "via"}
    assert head["x-attempt-count"] == "2"
    assert asked.body == b"body"
    assert asked.trailers == [("x-sum", "1")]
    peer.respond(asked.id, 200, [("set-cookie", "second=1"), ("x-fine", "1")], b"ok")
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.get("x-fine")) == (200, b"ok", "1")
    assert answer.all("set-cookie") == []
    assert answer.get("x-attempt-count") == "2"


def test_members_of_a_body(proxy: Talks, app: Talk) -> None:
    first, second = proxy.place("json"), proxy.place("jsoned")
    body = b'{"model": "small", "n": 1.0}'
    peers: list[Talk] = []
    for length in ([], [("content-length", str(len(body)))]):
        sid = app.ask(first, "/v1", "POST", [*SECRETS, ("content-digest", "x"), *length], body)
        peers = peers or [listening(first)]
        peers[0].respond(peers[0].asked().id, 503)
        peers = peers if len(peers) > 1 else [*peers, listening(second)]
        asked = peers[1].asked()
        head = dict(asked.heads[0])
        assert asked.body == b'{"model": "big", "n": 1.0}'
        assert head["content-length"] == str(len(asked.body))
        assert head["x-team-key"] == "t"
        assert "content-digest" not in head
        peers[1].respond(asked.id, 200)
        assert app.over(sid).status == 200


def test_a_grpc_call(proxy: Talks, app: Talk) -> None:
    """Its path stays; trailers-only UNAVAILABLE proves that nothing was carried out."""
    first, second = proxy.place("grpc"), proxy.place("grpcs")
    sid = app.grpc(first, [("grpc-timeout", "30S"), ("authorization", "x")])
    peer = listening(first)
    peer.trailers_only(peer.asked().id, 14)
    peer = listening(second)
    asked = peer.asked()
    head = dict(asked.heads[0])
    assert (head[":path"], head[":authority"], head["te"]) == ("/acme.Echo/echo", second.listener.authority, "trailers")
    assert "authorization" not in head
    assert head["grpc-timeout"].endswith("m")  # what is left of it
    assert asked.body == b"abc"
    peer.reply(asked.id)
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.grpc_status) == (200, b"ok", 0)


def test_a_grpc_call_passes_over_an_upstream_that_speaks_http1(proxy: Talks, app: Talk) -> None:
    first, third = proxy.place("asked"), proxy.place("other")
    sid = app.grpc(first)
    peer = listening(first)
    peer.trailers_only(peer.asked().id, 14)
    peer = listening(third)
    peer.reply(peer.asked().id)
    assert app.over(sid).grpc_status == 0


def test_from_http2_to_http1(proxy: Talks, app: Talk) -> None:
    first, second = proxy.place("later"), proxy.place("one")
    sid = app.ask(first, "/v1", "POST", SECRETS, b"body")
    refusing(first)
    peer = second.listener.accept()
    asked = peer.read_request()
    head = asked.head.lower().removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert head[0] == b"post /v1 http/1.1"
    assert {line.partition(b":")[0] for line in head[1:]} == {
        *(b"host", b"x-plain", b"transfer-encoding", b"x-attempt-count", b"via"),
    }
    assert asked.body == b"body"
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\n\r\nok")
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.all("set-cookie")) == (200, b"ok", [])
