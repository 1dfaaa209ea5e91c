"""Answers that are kept until they are whole, on HTTP/2 (contract, section 15, "Whole answers")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http2_kit import CANCEL, INTERNAL_ERROR, Place, data, headers, rst
from http2_talk import Talk, Talks, listening

KEPT = """
strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}
answers: {pause: 1m, wait: 1m}
"""
SIZED = [("content-length", "6")]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    kinds = {"kept": (KEPT, 20), "small": (f"{KEPT.replace('{pause', '{whole: 4B, pause')}", 4)}
    with Talks(tmp_path_factory.mktemp("whole"), kinds) as started:
        yield started


@pytest.fixture
def place(proxy: Talks) -> Place:
    return proxy.place("kept")


@pytest.mark.parametrize("fields", [[], SIZED], ids=["without a length", "with a length"])
@pytest.mark.parametrize("came", [b"", b"o", b"whole!"], ids=["the head", "a byte", "all but the end"])
@pytest.mark.parametrize("how", ["reset", "closed"])
def test_a_stream_that_breaks_is_asked_for_again(
    app: Talk, place: Place, fields: list[tuple[str, str]], came: bytes, how: str
) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, fields, came, end=False)
    if how == "reset":
        peer.send(rst(1, INTERNAL_ERROR))
    else:
        peer.peer.close()
        peer = listening(place)
    again = peer.asked()
    assert again.get("x-attempt-count") == "2"
    peer.respond(again.id, 200, SIZED, b"whole!", [("x-sum", "1")])
    answer = app.over(sid)
    assert (answer.status, answer.body, answer.get("x-attempt-count")) == (200, b"whole!", "2")
    assert (answer.trailers, answer.reset) == ([("x-sum", "1")], None)


def test_an_answer_that_breaks_on_the_last_attempt_is_broken_off(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    for _ in range(3):
        number = peer.asked().id
        peer.respond(number, 200, SIZED, b"who", end=False)
        peer.send(rst(number, INTERNAL_ERROR))
    assert app.cut(sid) == INTERNAL_ERROR
    assert app.on(sid).status == 200


def test_a_kept_answer_that_the_app_does_not_want_any_more_is_cancelled(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, SIZED, b"who", end=False)
    app.send(rst(sid, CANCEL))
    assert peer.cut(1) == CANCEL


def test_what_is_longer_than_is_kept_goes_on(app: Talk, proxy: Talks) -> None:
    place = proxy.place("small")
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, SIZED, b"whole", end=False)
    app.wait(lambda: app.on(sid).body == b"whole")
    peer.send(data(1, b"!", end=True))
    assert app.over(sid).body == b"whole!"


def test_a_stream_of_events_comes_as_it_is_sent(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, [("content-type", "text/event-stream")], end=False, body=b"")
    app.headed(sid)
    peer.send(data(1, b"data: 1\n\n"))
    app.wait(lambda: app.on(sid).body)


def test_a_grpc_call_is_never_kept(app: Talk, place: Place) -> None:
    sid = app.grpc(place, [("idempotency-key", "a")])
    peer = listening(place)
    peer.respond(peer.asked().id, 200, [("content-type", "application/grpc")], b"one", end=False)
    app.wait(lambda: app.on(sid).body == b"one")
    peer.send(headers(1, [("grpc-status", "0")]))
    assert app.over(sid).grpc_status == 0
