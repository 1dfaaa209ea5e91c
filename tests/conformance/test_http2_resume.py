"""Answers that go on where they broke, on HTTP/2 (contract, section 15, "Resume")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http2_kit import INTERNAL_ERROR, Place, headers, rst
from http2_talk import Talk, Talks, listening

RESUMED = """
strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}
resume: {}
answers: off
"""
WHOLE = b"0123456789" * 10
HEAD = [("etag", '"v1"'), ("content-length", "100")]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    with Talks(tmp_path_factory.mktemp("resume"), {"resumed": (RESUMED, 20)}) as started:
        yield started


@pytest.fixture
def place(proxy: Talks) -> Place:
    return proxy.place("resumed")


def rest_of(at: int, tag: str = '"v1"') -> list[tuple[str, str]]:
    return [("etag", tag), ("content-length", str(100 - at)), ("content-range", f"bytes {at}-99/100")]


def test_a_stream_that_breaks_twice_goes_on_where_it_broke(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, HEAD, WHOLE[:30], end=False)
    peer.send(rst(1, INTERNAL_ERROR))
    again = peer.asked()
    assert (again.get("range"), again.get("if-range")) == ("bytes=30-", '"v1"')
    peer.respond(again.id, 206, rest_of(30), WHOLE[30:50], end=False)
    app.wait(lambda: len(app.on(sid).body) == 50)
    peer.peer.close()
    peer = listening(place)
    last = peer.asked()
    assert last.get("range") == "bytes=50-"
    peer.respond(last.id, 206, rest_of(50), WHOLE[50:])
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.reset) == (200, WHOLE, None)


@pytest.mark.parametrize("tag", ['"v2"', 'W/"v1"'])
def test_another_entity_ends_it(app: Talk, place: Place, tag: str) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, HEAD, WHOLE[:30], end=False)
    peer.send(rst(1, INTERNAL_ERROR))
    peer.respond(peer.asked().id, 206, rest_of(30, tag), WHOLE[30:])
    assert app.cut(sid) is not None
    assert app.on(sid).body == WHOLE[:30]


def test_an_interim_answer_before_the_rest_is_dropped(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, HEAD, WHOLE[:30], end=False)
    peer.send(rst(1, INTERNAL_ERROR))
    again = peer.asked()
    peer.send(headers(again.id, [(":status", "103"), ("link", "</style.css>")], end=False))
    peer.respond(again.id, 206, rest_of(30), WHOLE[30:])
    answer = app.over(sid)
    assert (answer.status, answer.body, len(answer.heads)) == (200, WHOLE, 1)
