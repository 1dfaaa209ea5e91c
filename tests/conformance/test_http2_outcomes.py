"""What becomes of calls on HTTP/2 whose attempts fail, one way or another: what is sent again, and what the app gets.

Upstreams here count: a call that may have been carried out is never sent twice by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http2_kit import (
    CANCEL,
    INTERNAL_ERROR,
    NO_ERROR,
    PING,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Place,
    data,
    frame,
    goaway,
    headers,
    rst,
)
from http2_talk import Talk, Talked, Talks, listening

QUICK = "{kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}"
GRPC = """
strategy: {kind: grpc, max_attempts: 4, initial_backoff: 1ms, max_backoff: 2ms, jitter: none}
dialects: [http, grpc]
attempt_headers: [grpc]
"""
AT_ONCE = """
strategy: {kind: hedging, max_attempts: 3, hedging_delay: 0s}
dialects: [http, grpc]
classify: {unsafe_methods: always}
"""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    kinds = {
        "once": ("strategy: none", 20),
        "quick": (f"strategy: {QUICK}", 90),
        "grpc": (GRPC, 120),
        "hedged": (AT_ONCE, 10),
    }
    with Talks(tmp_path_factory.mktemp("outcomes"), kinds) as started:
        yield started


@pytest.fixture
def place(proxy: Talks) -> Place:
    return proxy.place("grpc")


def given_up(answer: Talked, status: int) -> None:
    """It is a trailers-only answer of ours, with this status."""
    assert (answer.status, answer.grpc_status, answer.get("content-type")) == (200, status, "application/grpc")
    assert answer.get("grpc-message")
    assert (answer.trailers, answer.body, answer.reset) == (None, b"", None)


# -- codes -------------------------------------------------------------------------------------------------------------

#: RST_STREAM's codes, and the gRPC status of each (contract, section 12).
CODES = {0: 13, 1: 13, 2: 13, 3: 13, 5: 13, 6: 13, 8: 1, 9: 13, 10: 13, 11: 8, 12: 7, 13: 13, 0xDEAD: 13}


@pytest.mark.parametrize("code", CODES)
def test_a_reset_before_a_head(app: Talk, place: Place, code: int) -> None:
    sid = app.grpc(place)
    peer = listening(place)
    peer.send(rst(peer.asked().id, code))
    given_up(app.over(sid), CODES[code])
    assert app.on(sid).get("x-attempt-count") == "1"
    peer.settle()
    assert len(peer.requests) == 1


@pytest.mark.parametrize("code", CODES)
def test_a_reset_within_an_answer(app: Talk, place: Place, code: int) -> None:
    sid = app.grpc(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, [("content-type", "application/grpc")], b"one", end=False)
    app.wait(lambda: app.on(sid).body == b"one")
    peer.send(rst(1, code))
    answer = app.over(sid)
    assert (answer.status, answer.grpc_status, answer.reset) == (200, CODES[code], None)
    message = dict(answer.trailers or [])["grpc-message"]
    assert message and "(" not in message, "the code is named once"


@pytest.mark.parametrize("code", range(1, 17))
def test_a_status_in_trailers_only(app: Talk, place: Place, code: int) -> None:
    sid = app.grpc(place)
    peer = listening(place)
    peer.trailers_only(peer.asked().id, code, ("x-own", "1"))
    if code == 14:
        peer.reply(peer.asked().id)
    answer = app.over(sid)
    assert answer.grpc_status == (0 if code == 14 else code)
    assert answer.get("x-attempt-count") == ("2" if code == 14 else "1")
    assert answer.get("x-own") == (None if code == 14 else "1")
    assert answer.get("grpc-retry-pushback-ms") is None  # nothing was given up
    assert answer.get("x-should-retry") is None


@pytest.mark.parametrize(("http", "status"), [(429, 14), (502, 14), (503, 14), (504, 14), (500, 2), (408, 2), (425, 2)])
def test_an_http_error_of_a_grpc_call_that_may_be_repeated(app: Talk, place: Place, http: int, status: int) -> None:
    sid = app.grpc(place, [("idempotency-key", f"key-{http}")])
    peer = listening(place)
    for _ in range(4):
        peer.respond(peer.asked().id, http, [("content-type", "text/html"), ("content-length", "6")], b"<html>")
    answer = app.over(sid)
    given_up(answer, status)
    assert str(http) in str(answer.get("grpc-message"))
    assert (answer.get("grpc-retry-pushback-ms"), answer.get("x-attempt-count")) == ("-1", "4")


@pytest.mark.parametrize("http", [204, 301, 304, 400, 401, 403, 404, 418, 431, 500, 501, 503, 599])
def test_an_http_status_of_a_grpc_call_that_nobody_gave_up(app: Talk, place: Place, http: int) -> None:
    """It goes on as it came: a status that was made of it is no ground to repeat a POST."""
    sid = app.grpc(place)
    peer = listening(place)
    peer.respond(peer.asked().id, http, [("content-type", "text/html")], None if http in (204, 304) else b"<html>")
    answer = app.over(sid)
    assert (answer.status, answer.get("grpc-status"), answer.get("x-attempt-count")) == (http, None, "1")


# -- what is sent again ------------------------------------------------------------------------------------------------

OTHERS = ("a loss", "a goodbye and a loss", "a broken rule")  # after them another connection is needed
FAILURES = ("a reset", "a cancelling", "a malformed head", "500", "503", "504", *OTHERS)


def fail(peer: Talk, sid: int, how: str) -> None:
    if how == "a reset":
        peer.send(rst(sid, INTERNAL_ERROR))
    elif how == "a cancelling":
        peer.send(rst(sid, CANCEL))
    elif how == "a malformed head":
        peer.send(headers(sid, [(":status", "200"), ("X", "y")]))
    elif how == "a loss":
        peer.peer.reset()
    elif how == "a goodbye and a loss":
        peer.send(goaway(sid, INTERNAL_ERROR))
        peer.peer.close()
    elif how == "a broken rule":
        peer.send(frame(PING, 0, 1, b"12345678"))
    else:
        peer.respond(sid, int(how))


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("how", FAILURES)
def test_what_may_have_been_carried_out_is_not_repeated(proxy: Talks, app: Talk, how: str, method: str) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/pay", method, body=b"pay")
    peer = listening(place)
    fail(peer, peer.asked().id, how)
    assert app.over(sid).get("x-attempt-count") == "1"
    assert place.listener.untouched
    if how not in OTHERS:
        peer.settle()
        assert len(peer.requests) == 1


@pytest.mark.parametrize("key", [False, True], ids=["PUT", "key"])
@pytest.mark.parametrize("how", FAILURES)
def test_what_may_be_repeated_is(proxy: Talks, app: Talk, how: str, key: bool) -> None:
    place = proxy.place("quick")
    sid = app.ask(
        place, "/a", *(("POST", [("idempotency-key", how.replace(" ", "-"))]) if key else ("PUT",)), body=b"x"
    )
    peer = listening(place)
    fail(peer, peer.asked().id, how)
    if how in OTHERS:
        peer = listening(place)
    again = peer.asked()
    assert (again.get("x-attempt-count"), again.body) == ("2", b"x")
    peer.respond(again.id, 200, body=b"ok")
    assert (app.over(sid).body, app.on(sid).get("x-attempt-count")) == (b"ok", "2")


def test_calls_of_one_lost_connection_are_judged_each_alone(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    gets = [app.ask(place) for _ in range(3)]
    posts = [app.ask(place, "/", "POST", body=b"x") for _ in range(3)]
    peer = listening(place)
    for _ in range(6):
        peer.asked()
    peer.peer.reset()
    peer = listening(place)
    for _ in range(3):
        again = peer.asked()
        assert again.get(":method") == "GET"
        peer.respond(again.id)
    assert [app.over(sid).status for sid in gets] == [200] * 3
    assert [app.over(sid).status for sid in posts] == [502] * 3
    peer.settle()
    assert len(peer.requests) == 3


def test_a_hundred_calls_of_two_failures_each(app: Talk, place: Place) -> None:
    sids = [app.grpc(place, [("x-call", str(number))]) for number in range(100)]
    peer = listening(place)
    sent: dict[str | None, int] = {}
    for _ in range(300):
        got = peer.asked()
        call = got.get("x-call")
        sent[call] = sent.get(call, 0) + 1
        if sent[call] < 3:
            peer.trailers_only(got.id, 14)
        else:
            peer.reply(got.id)
    assert {(app.over(sid).grpc_status, app.on(sid).get("x-attempt-count")) for sid in sids} == {(0, "3")}
    assert set(sent.values()) == {3}


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goodbye", [False, True], ids=["RST_STREAM", "GOAWAY"])
def test_refused_again_and_again(app: Talk, place: Place, goodbye: bool) -> None:
    """One retry counts as none, the others are the policy's."""
    sid = app.grpc(place)
    counts, peer = [], listening(place)
    for turn in range(5):
        if goodbye and turn:
            peer = listening(place)
        got = peer.asked()
        counts.append(got.get("x-attempt-count"))
        peer.send(goaway(0) if goodbye else rst(got.id, REFUSED_STREAM))
    assert counts == ["1", "1", "2", "3", "4"]
    given_up(app.over(sid), 14)
    assert place.listener.untouched


def test_one_transparent_retry_whatever_the_causes(proxy: Talks, app: Talk) -> None:
    place = proxy.place("once")
    sid = app.ask(place, "/", "POST", body=b"x")
    peer = listening(place)
    peer.send(rst(peer.asked().id, REFUSED_STREAM))
    peer.asked()
    peer.send(goaway(1))
    assert (app.over(sid).status, app.on(sid).get("x-attempt-count")) == (502, "1")
    assert place.listener.untouched


def test_a_refusal_behind_an_attempt_is_the_policys(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sid = app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 503)
    peer.send(rst(peer.asked().id, REFUSED_STREAM))
    again = peer.asked()
    assert again.get("x-attempt-count") == "3"
    peer.respond(again.id)
    assert app.over(sid).get("x-attempt-count") == "3"


@pytest.mark.parametrize("interim", [True, False])
def test_a_refusal_behind_a_head(proxy: Talks, app: Talk, interim: bool) -> None:
    """An interim one says nothing of processing; behind a final one it is a reset like others."""
    place = proxy.place("quick")
    sid = app.ask(place, "/", "POST", body=b"x")
    peer = listening(place)
    peer.send(headers(peer.asked().id, [(":status", "103" if interim else "200")], end=False), rst(1, REFUSED_STREAM))
    if interim:
        again = peer.asked()
        assert again.get("x-attempt-count") == "1"
        peer.respond(again.id)
        assert app.over(sid).status == 200
    else:
        assert app.cut(sid) == REFUSED_STREAM
        peer.settle()
        assert len(peer.requests) == 1


def test_a_goodbye_with_the_body_half_sent(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    body = b"x" * 100_000
    sid = app.ask(place, "/", "POST", body=body)
    peer = listening(place, credit=False)
    got = peer.begun()
    peer.wait(lambda: len(got.body) == 65535)
    peer.send(goaway(0))
    peer = listening(place)
    again = peer.asked()
    assert (again.body, again.get("x-attempt-count")) == (body, "1")
    peer.respond(again.id)
    assert app.over(sid).status == 200


def test_a_goodbye_right_behind_the_settings(proxy: Talks, app: Talk) -> None:
    place = proxy.place("once")
    sid = app.ask(place, "/", "POST", body=b"x")
    peer = Talk(place.listener.accept())
    peer.send(frame(4), goaway(0))
    peer = listening(place)
    peer.respond(peer.asked().id)
    assert app.over(sid).status == 200


# -- trailers-only, pushback, deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-1", "abc", ""])
def test_a_stop(app: Talk, place: Place, value: str) -> None:
    sid = app.grpc(place)
    peer = listening(place)
    peer.trailers_only(peer.asked().id, 14, ("grpc-retry-pushback-ms", value))
    answer = app.over(sid)
    assert (answer.get("x-attempt-count"), answer.all("grpc-retry-pushback-ms")) == ("1", ["-1"])
    assert "outcome=pushback_stop" in str(answer.get("proxy-status"))


@pytest.mark.parametrize(
    ("wait", "timeout", "outcome"), [("61000", "1H", "pushback_too_long"), ("20000", "5S", "deadline")]
)
def test_a_wait_that_is_not_begun(app: Talk, place: Place, wait: str, timeout: str, outcome: str) -> None:
    sid = app.grpc(place, [("grpc-timeout", timeout)])
    peer = listening(place)
    peer.trailers_only(peer.asked().id, 14, ("grpc-retry-pushback-ms", wait), ("grpc-message", "wait"))
    answer = app.over(sid)
    assert (answer.grpc_status, answer.get("grpc-message"), answer.get("grpc-retry-pushback-ms")) == (14, "wait", "-1")
    assert f"outcome={outcome}" in str(answer.get("proxy-status"))


def test_a_head_commits_whatever_the_trailers_beside_it(app: Talk, place: Place) -> None:
    sid = app.grpc(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, [("content-type", "application/grpc")], None, [("grpc-status", "14")])
    answer = app.over(sid)
    assert (answer.trailers, answer.get("x-attempt-count")) == ([("grpc-status", "14")], "1")
    peer.settle()
    assert len(peer.requests) == 1


@pytest.mark.parametrize("value", ["7200S", "99999999u", "00010S", "1H", "60M"])
def test_a_timeout_that_nothing_held_passes_as_it_came(app: Talk, place: Place, value: str) -> None:
    sid = app.grpc(place, [("grpc-timeout", value)])
    peer = listening(place)
    got = peer.asked()
    assert got.get("grpc-timeout") == value
    peer.reply(got.id)
    assert app.over(sid).grpc_status == 0


@pytest.mark.parametrize("words", [[("x-retry-disable", "true")], []], ids=["disabled", "not"])
def test_an_app_that_wants_no_retry(app: Talk, place: Place, words: list[tuple[str, str]]) -> None:
    sid = app.grpc(place, words)
    peer = listening(place)
    got = peer.asked()
    assert got.get("x-retry-disable") is None
    peer.trailers_only(got.id, 14)
    if not words:
        peer.reply(peer.asked().id)
    answer = app.over(sid)
    assert answer.get("x-attempt-count") == ("1" if words else "2")
    assert answer.get("grpc-retry-pushback-ms") is None


# -- hedging -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hedged(proxy: Talks, app: Talk) -> tuple[int, Talk]:
    """A call of which three attempts are under way."""
    place = proxy.place("hedged")
    sid = app.grpc(place)
    peer = listening(place)
    assert sorted(str(peer.asked().get("x-attempt-count")) for _ in range(3)) == ["1", "2", "3"]
    return sid, peer


def test_the_first_good_answer_wins(app: Talk, hedged: tuple[int, Talk]) -> None:
    sid, peer = hedged
    peer.reply(3)
    assert app.over(sid).grpc_status == 0
    assert (peer.cut(1), peer.cut(5)) == (CANCEL, CANCEL)


def test_a_head_wins_whatever_follows(app: Talk, hedged: tuple[int, Talk]) -> None:
    sid, peer = hedged
    peer.respond(5, 200, [("content-type", "application/grpc")], end=False)
    assert (peer.cut(1), peer.cut(3)) == (CANCEL, CANCEL)
    peer.send(headers(5, [("grpc-status", "14")]))
    assert app.over(sid).grpc_status == 14


def test_a_fatal_answer_ends_it(app: Talk, hedged: tuple[int, Talk]) -> None:
    sid, peer = hedged
    peer.trailers_only(1, 3)
    assert app.over(sid).grpc_status == 3
    assert (peer.cut(3), peer.cut(5)) == (CANCEL, CANCEL)


def test_the_last_of_failures_goes_to_the_app(app: Talk, hedged: tuple[int, Talk]) -> None:
    sid, peer = hedged
    for turn, number in enumerate((3, 1, 5)):
        peer.trailers_only(number, 14, ("grpc-message", f"no {turn}"))
        peer.settle()
    answer = app.over(sid)
    assert (answer.get("grpc-message"), answer.get("x-attempt-count")) == ("no 2", "3")
    assert answer.get("grpc-retry-pushback-ms") == "-1"


def test_an_app_that_leaves_cancels_all(app: Talk, hedged: tuple[int, Talk]) -> None:
    sid, peer = hedged
    app.send(rst(sid, CANCEL))
    assert [peer.cut(number) for number in (1, 3, 5)] == [CANCEL] * 3


def test_hedges_share_a_request_that_is_still_sent(proxy: Talks, app: Talk) -> None:
    place = proxy.place("hedged")
    sid = app.grpc(place, body=b"one", end=False)
    peer = listening(place)
    for _ in range(3):
        peer.begun()
    app.send(data(sid, b"two", end=True))
    assert [peer.over(number).body for number in (1, 3, 5)] == [b"onetwo"] * 3
    peer.reply(1)
    assert app.over(sid).grpc_status == 0


# -- bodies that are sent again ----------------------------------------------------------------------------------------


def test_trailers_are_sent_again_too(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", [("content-length", "3")], b"abc", [("x-t", "1"), ("x-t", "2")])
    peer = listening(place)
    for status in (503, 200):
        got = peer.asked()
        assert (got.body, got.trailers, got.get("content-length")) == (b"abc", [("x-t", "1"), ("x-t", "2")], "3")
        peer.respond(got.id, status)
    assert app.over(sid).status == 200


def test_a_request_that_goes_on_behind_the_first_failure(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", body=b"abc", end=False)
    peer = listening(place)
    got = peer.begun()
    peer.wait(lambda: got.body == b"abc")
    peer.respond(1, 503, body=b"busy")
    peer.send(rst(1, NO_ERROR))
    again = peer.begun()
    app.send(headers(sid, [("x-t", "1")]))
    assert (peer.over(again.id).body, again.trailers) == (b"abc", [("x-t", "1")])
    peer.respond(again.id)
    assert app.over(sid).status == 200


@pytest.mark.parametrize("refused", [False, True], ids=["503", "REFUSED_STREAM"])
def test_an_app_that_still_waits_for_its_100_gets_that_of_the_retry(proxy: Talks, app: Talk, refused: bool) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", [("expect", "100-continue")], end=False)
    peer = listening(place)
    peer.send(rst(peer.begun().id, REFUSED_STREAM) if refused else headers(peer.begun().id, [(":status", "503")]))
    again = peer.begun()
    peer.send(headers(again.id, [(":status", "100")], end=False))
    app.wait(lambda: app.on(sid).infos)
    app.send(data(sid, b"abc", end=True))
    assert peer.over(again.id).body == b"abc"
    peer.respond(again.id)
    assert app.over(sid).status == 200


def test_a_100_is_told_once(proxy: Talks, app: Talk) -> None:
    place = proxy.place("quick")
    sid = app.ask(place, "/", "PUT", [("expect", "100-continue")], end=False)
    peer = listening(place)
    peer.send(headers(peer.begun().id, [(":status", "100")], end=False))
    app.wait(lambda: app.on(sid).infos)
    app.send(data(sid, b"abc", end=True))
    peer.over(1)
    peer.respond(1, 503)
    again = peer.asked()
    peer.send(headers(again.id, [(":status", "100")], end=False))
    peer.respond(again.id)
    answer = app.over(sid)
    assert (answer.status, len(answer.infos)) == (200, 1)


def test_the_last_answer_is_handed_on_whole(proxy: Talks, app: Talk) -> None:
    """Also where it is longer than what is kept of one."""
    place = proxy.place("quick")
    sid = app.ask(place)
    peer = listening(place)
    for turn in range(3):
        peer.respond(peer.asked().id, 503, [("x-turn", str(turn))], bytes([turn]) * 200_000, [("x-trail", str(turn))])
    answer = app.over(sid)
    assert (answer.status, answer.get("x-turn"), answer.trailers) == (503, "2", [("x-trail", "2")])
    assert answer.body == b"\2" * 200_000
    assert answer.get("x-should-retry") == "false"


def test_an_upstream_that_breaks_the_rules_within_its_answer_is_the_one_to_blame(proxy: Talks, app: Talk) -> None:
    place = proxy.place("once")
    sid, other = app.ask(place), app.ask(place)
    peer = listening(place)
    peer.respond(peer.asked().id, 200, body=b"half", end=False)
    peer.respond(peer.asked().id, 200, body=b"half", end=False)
    app.headed(sid), app.headed(other)
    peer.send(headers(1, [("a", "b")], end=False))
    assert (peer.cut(1), app.cut(sid)) == (PROTOCOL_ERROR, INTERNAL_ERROR)
    peer.send(frame(PING, 0, 1, b"12345678"))
    assert (peer.last_goaway(), app.cut(other)) == (PROTOCOL_ERROR, INTERNAL_ERROR)
