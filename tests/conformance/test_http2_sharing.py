"""What calls share: windows, buffers, connections to upstreams and their places (contract, section 12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from http2_kit import (
    ACK,
    CANCEL,
    HEADERS,
    INITIAL_WINDOW,
    MAX_STREAMS,
    SETTINGS,
    Place,
    data,
    goaway,
    headers,
    rst,
    settings,
    window_update,
)
from http2_talk import Talk, Talks, listening

QUICK = "strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}\n"
MIB = 1 << 20


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    kinds = {
        "once": ("strategy: none\ntimeouts: {connect: 1m}", 20),
        "quick": (QUICK, 10),
        "grpc": (f"{QUICK}timeouts: {{connect: 1m}}\ndialects: [http, grpc]", 2),
        "hasty": ("strategy: none\ntimeouts: {connect: 2s}", 2),
    }
    with Talks(tmp_path_factory.mktemp("sharing"), kinds, "pool: {http2_idle: 60s}") as started:
        yield started


@pytest.fixture
def place(proxy: Talks) -> Place:
    return proxy.place("once")


def acknowledged(talk: Talk) -> int:
    return sum(got.kind == SETTINGS and bool(got.flags & ACK) for got in talk.frames)


def pour(talk: Talk, sid: int, window: int, most: int, stuck: Callable[[], None]) -> int:
    """Send DATA as long as it is credited, `stuck` being called where it is not; how much went, up to `most`."""
    sent = turns = 0
    while sent < most and turns < 3:
        if window + talk.updates.get(sid, 0) - sent >= 16384:
            talk.send(data(sid, b"p" * 16384))
            sent += 16384
            turns = 0
        else:
            stuck()
            turns += 1
    return sent


# -- windows and buffers -----------------------------------------------------------------------------------------------


def test_an_app_is_credited_while_nothing_flies(proxy: Talks, app: Talk) -> None:
    """For what the call's buffer has room for: the upstream need not be there yet."""
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", end=False)
    sent = pour(app, sid, 256 * 1024, 900 * 1024, app.settle)
    assert sent >= 900 * 1024
    app.send(data(sid, end=True))
    peer = listening(place)
    assert len(peer.asked().body) == sent


def test_a_slow_upstream_slows_its_app_and_no_other_call(proxy: Talks, app: Talk, place: Place) -> None:
    sid = app.ask(place, "/", "POST", end=False)
    slow = listening(place, credit=False)
    got = slow.begun()

    def stuck() -> None:
        app.settle()
        slow.settle()

    sent = pour(app, sid, 256 * 1024, 8 * MIB, stuck)
    assert 256 * 1024 <= sent < 8 * MIB
    assert len(got.body) == 65535
    other = proxy.place("once")
    another = app.ask(other, "/", "POST", body=b"z" * 100_000)
    peer = listening(other)
    assert len(peer.asked().body) == 100_000
    peer.respond(1)
    assert app.over(another).status == 200
    slow.credit = True
    slow.send(window_update(0, 16 * MIB), window_update(1, 16 * MIB))
    slow.wait(lambda: len(got.body) == sent)
    app.send(data(sid, end=True))
    slow.over(1)
    slow.respond(1)
    assert app.over(sid).status == 200


def test_an_upstream_is_credited_for_what_the_app_took(proxy: Talks, place: Place) -> None:
    app = proxy.talk((INITIAL_WINDOW, 0), credit=False)
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, end=False)
    assert pour(peer, 1, MIB, 8 * MIB, peer.settle) == MIB
    assert 1 not in peer.updates
    app.send(window_update(0, 2 * MIB), window_update(sid, 2 * MIB))
    app.wait(lambda: len(app.on(sid).body) == MIB)
    peer.wait(lambda: 1 in peer.updates)
    app.peer.close()


def test_a_replay_obeys_its_own_window(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", body=b"r" * 200_000)
    peer = listening(place)
    peer.respond(peer.asked().id, 503)
    peer.credit = False
    again = peer.begun()
    peer.wait(lambda: len(again.body) == 65535)
    peer.settle()
    assert len(again.body) == 65535
    peer.send(window_update(0, MIB), window_update(again.id, MIB))
    assert peer.over(again.id).body == b"r" * 200_000
    peer.respond(again.id)
    assert app.over(sid).status == 200


def test_windows_that_open_octet_by_octet(app: Talk, place: Place) -> None:
    sid = app.ask(place, "/", "POST", body=b"abc")
    peer = listening(place, (INITIAL_WINDOW, 0), credit=False)
    got = peer.begun()
    peer.settle()
    assert (got.body, got.ended) == (b"", False)
    peer.send(window_update(1, 2))
    peer.wait(lambda: got.body == b"ab")
    peer.send(settings((INITIAL_WINDOW, 1)))
    assert peer.over(1).body == b"abc"
    peer.respond(1)
    assert app.over(sid).status == 200


# -- places ------------------------------------------------------------------------------------------------------------


def test_one_dial_at_a_time(app: Talk, place: Place) -> None:
    sids = [app.ask(place) for _ in range(6)]
    first = listening(place, greet=False)
    app.settle()
    assert place.listener.untouched
    first.send(settings((MAX_STREAMS, 1)))
    first.peer.read(24)
    first.asked()
    second = listening(place, greet=False)
    first.settle()
    assert place.listener.untouched
    second.send(settings())
    second.peer.read(24)
    for _ in range(5):
        second.asked()
    for peer in (first, second):
        for number in peer.requests:
            peer.respond(number)
    assert [app.over(sid).status for sid in sids] == [200] * 6


@pytest.mark.parametrize("how", ["a stream ends", "more are allowed"])
def test_a_place_that_gets_free_is_taken_while_the_dial_hangs(app: Talk, place: Place, how: str) -> None:
    one, two = app.ask(place, "/1"), app.ask(place, "/2")
    peer = listening(place, (MAX_STREAMS, 1))
    peer.asked()
    hanging = listening(place, greet=False)
    if how == "a stream ends":
        peer.respond(1)
    else:
        peer.send(settings((MAX_STREAMS, 2)))
    assert peer.asked().get(":path") == "/2"
    for number in (1, 3)[how == "a stream ends" :]:
        peer.respond(number)
    assert (app.over(one).status, app.over(two).status) == (200, 200)
    hanging.peer.close()


def test_places_go_to_those_who_have_waited_longest(app: Talk, place: Place) -> None:
    sids = [app.ask(place, f"/{number}") for number in range(20)]
    peer = listening(place, (MAX_STREAMS, 2))
    first, second = peer.asked(), peer.asked()
    peer.respond(first.id)
    peer.respond(second.id)
    paths = [first.get(":path"), second.get(":path")]
    for _ in range(2, 20):
        got = peer.asked()
        paths.append(got.get(":path"))
        peer.respond(got.id)
    paths.remove("/0")  # the call that dials for all learns of its connection in its own turn
    assert paths == [f"/{number}" for number in range(1, 20)]
    assert [app.over(sid).status for sid in sids] == [200] * 20


def test_no_places_any_more(app: Talk, place: Place) -> None:
    """What is under way goes on; what comes goes elsewhere."""
    one = app.ask(place)
    peer = listening(place)
    peer.asked()
    before = acknowledged(peer)
    peer.send(settings((MAX_STREAMS, 0)))
    peer.wait(lambda: acknowledged(peer) > before)
    two = app.ask(place)
    other = listening(place)
    other.respond(other.asked().id)
    peer.respond(1)
    assert (app.over(one).status, app.over(two).status) == (200, 200)


def test_a_goodbye_while_others_wait_for_a_dial(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sids = [app.ask(place), app.ask(place)]
    peer = listening(place, (MAX_STREAMS, 1))
    peer.asked()
    other = listening(place, greet=False)
    peer.send(goaway(0))
    other.send(settings())
    other.peer.read(24)
    for _ in sids:
        other.respond(other.asked().id)
    assert [app.over(sid).status for sid in sids] == [200, 200]


def test_a_place_is_waited_for_within_the_calls_time(proxy: Talks, app: Talk) -> None:
    place = proxy.place("grpc")
    app.ask(place)
    peer = listening(place, (MAX_STREAMS, 1))
    peer.begun()
    sid = app.grpc(place, [("grpc-timeout", "300m")])
    hanging = listening(place, greet=False)
    assert app.over(sid).grpc_status == 4
    hanging.peer.close()


@pytest.mark.parametrize("grpc", [False, True])
def test_settings_are_waited_for_as_a_dial_is(proxy: Talks, app: Talk, grpc: bool) -> None:
    place = proxy.place("hasty")
    sid = app.grpc(place) if grpc else app.ask(place, "/", "POST", body=b"x")
    hanging = [listening(place, greet=False) for _ in range(2)]  # one retry counts as none
    answer = app.over(sid)
    assert (answer.status, answer.grpc_status) == ((200, 14) if grpc else (504, None))
    assert answer.get("x-attempt-count") == "1"
    assert "error=connection_timeout" in str(answer.get("proxy-status"))
    for peer in hanging:
        assert peer.peer.read(24)
        assert HEADERS not in {got.kind for got in peer.end()}


def test_an_answer_outlives_its_connection(proxy: Talks, place: Place) -> None:
    """It came whole, and its app reads slowly."""
    app = proxy.talk((INITIAL_WINDOW, 4), credit=False)
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, body=b"0123456789" * 20000)
    app.wait(lambda: app.on(sid).body == b"0123")
    peer.settle()
    peer.peer.close()
    app.send(window_update(sid, MIB), window_update(0, MIB))
    assert app.over(sid).body == b"0123456789" * 20000
    app.peer.close()


def test_what_was_cancelled_gives_the_connections_window_back(app: Talk, place: Place) -> None:
    sid = app.ask(place)
    peer = listening(place)
    peer.asked()
    app.send(rst(sid, CANCEL))
    assert peer.cut(1) == CANCEL
    before = peer.updates[0]
    peer.send(headers(1, [(":status", "200")], end=False), data(1, b"x" * 16384) * 300)
    peer.settle()
    assert peer.updates[0] > before
