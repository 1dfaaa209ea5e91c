"""Retries as the wire shows them (contract sections 4 and 5): every sending is byte for byte the one before but for its
count, nothing is sent after an answer has begun, and what is not idempotent never goes twice.
"""

from __future__ import annotations

import select
import threading

import pytest
from conformance_kit import OURS, Case, Message, Peer, Proxy, Upstream, chunked, get, ids, message, reply

TE = "Transfer-Encoding: chunked"
FAIL = reply(b"not now", status="503 Service Unavailable")


def next_request(upstream: Upstream, peer: Peer) -> tuple[Peer, Message]:
    """The next request, on this connection or a new one."""
    ready, _, _ = select.select([upstream.listener, peer.sock], [], [], 15)
    if peer.sock in ready and not peer.held:
        try:
            return peer, peer.read_request()
        except EOFError:
            pass
    other = upstream.accept()
    return other, other.read_request()


BODIES = [
    Case("no body", "contract 4", OURS, ([], b"", b"")),
    Case("a length", "contract 4", OURS, (["Content-Length: 256"], bytes(range(256)), bytes(range(256)))),
    Case("length 0", "contract 4", OURS, (["Content-Length: 0"], b"", b"")),
    Case("chunks", "contract 4", OURS, ([TE], chunked(b"hello ", b"world"), b"hello world")),
    Case("chunks with trailers", "contract 4", OURS,
         ([TE, "Trailer: X-Sum"], chunked(b"hello", trailers=b"X-Sum: 1\r\nX-Sum: 2\r\n"), b"hello")),
    Case("no chunk", "contract 4", OURS, ([TE], chunked(), b"")),
    Case("500 KiB", "contract 4", OURS, (["Content-Length: 512000"], b"0123456789" * 51200, b"0123456789" * 51200)),
]  # fmt: skip

FIELDS = ("b: 2", "A:  1 ", "b: 3", "Cookie: x", "X-Bin: \xff\xfe")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("case", BODIES, ids=ids(BODIES))
def test_every_sending_is_the_same_but_for_its_count(case: Case, method: str, retrying: Proxy) -> None:
    fields, body, payload = case.facts
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x//y?%2F|", *FIELDS, *fields, method=method) + body)
        peer = upstream.accept()
        first = peer.read_request()
        assert first.one("x-attempt-count") == "1"
        peer.send(FAIL)
        peer, second = next_request(upstream, peer)
        peer.send(FAIL)
        peer, third = next_request(upstream, peer)
        peer.send(reply(b"done"))
        answer = app.read_answer()
        assert (answer.status, answer.body) == (200, b"done")
        assert answer.one("x-attempt-count") == "3"
        assert "attempts=3" in (answer.one("proxy-status") or "")
        for number, again in ((b"2", second), (b"3", third)):
            assert again.head == first.head.replace(b"X-Attempt-Count: 1", b"X-Attempt-Count: " + number)
            assert (again.body, again.trailers) == (first.body, first.trailers) == (payload, first.trailers)
        assert first.trailers == (b"X-Sum: 1\r\nX-Sum: 2\r\n" if "Trailer: X-Sum" in fields else b"")
        app.send(get(upstream, "/next"))
        peer, request = next_request(upstream, peer)
        assert request.line.startswith(b"GET /next ")


def test_the_last_answer_goes_on_as_it_came(retrying: Proxy) -> None:
    last = reply(b"the last one", "X: y", "Set-Cookie: a", "Set-Cookie: b", status="503 Quite Unavailable")
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        for raw in (reply(b"first", "X: 1", status="503 S"), reply(b"second", "X: 2", status="500 S"), last):
            peer.read_request()
            peer.send(raw)
        answer = app.read_answer()
        assert answer.line == b"HTTP/1.1 503 Quite Unavailable"
        assert answer.body == b"the last one"
        assert (answer.all("x"), answer.all("set-cookie")) == (["y"], ["a", "b"])
        assert answer.one("x-attempt-count") == "3"
        assert answer.one("x-should-retry") == "false"
        assert "received-status=503" in (answer.one("proxy-status") or "")
        assert peer.is_silent()


BROKEN = {
    "no answer": b"",
    "half a status line": b"HTTP/1.1 20",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "an interim answer": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "a bad status line": b"HTTP/2.0 200 OK\r\n\r\n",
    "a bad field": b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
    "conflicting lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "no HTTP": b"SSH-2.0-x\r\n",
}


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH", "LOCK"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_before_its_answer_goes_again_if_it_is_idempotent(
    name: str, method: str, how: str, retrying: Proxy
) -> None:
    """RFC 9110 section 9.2.2: a proxy MUST NOT repeat what is not idempotent."""
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 5", method=method) + b"hello")
        peer = upstream.accept()
        first = peer.read_request()
        peer.send(BROKEN[name])
        if how == "closed":
            peer.close()
        else:
            peer.reset()
        if method in ("GET", "PUT"):
            other = upstream.accept()
            second = other.read_request()
            assert second.body == first.body == b"hello"
            assert second.one("x-attempt-count") == "2"
            other.send(reply(b"done"))
            assert app.read_answer().body == b"done"
        else:
            answer = app.read_answer()
            assert (answer.status, answer.one("x-attempt-count")) == (502, "1")
            assert "outcome=not_retryable" in (answer.one("proxy-status") or "")
            retrying.fence(upstream)


@pytest.mark.parametrize("status", ["500 I", "502 B", "503 S", "504 G", "408 R"])
@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
def test_an_unsafe_method_is_not_repeated_after_a_server_error(method: str, status: str, retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", method=method))
        peer = upstream.accept()
        peer.read_request()
        peer.send(reply(b"as it came", status=status))
        answer = app.read_answer()
        assert answer.body == b"as it came"
        assert answer.all("x-should-retry") == []
        assert "outcome=not_retryable" in (answer.one("proxy-status") or "")
        assert f"{method} may have been carried out" in (answer.one("proxy-status") or "")
        retrying.fence(upstream, peer)


def test_a_throttled_post_goes_again(retrying: Proxy) -> None:
    """Contract section 4, safety 2: it was not processed."""
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", TE, method="POST") + chunked(b"hello", trailers=b"X: y\r\n"))
        peer = upstream.accept()
        first = peer.read_request()
        peer.send(reply(b"", status="429 Too Many Requests"))
        peer, second = next_request(upstream, peer)
        assert (second.body, second.trailers) == (first.body, first.trailers) == (b"hello", b"X: y\r\n")
        peer.send(reply(b"done"))
        assert app.read_answer().body == b"done"


COMMITTED = [
    Case("a length", "contract 4", OURS, (message("HTTP/1.1 200 OK", "Content-Length: 10") + b"hello",)),
    Case("chunks", "contract 4", OURS, (message("HTTP/1.1 200 OK", TE) + b"5\r\nhello\r\n",)),
    Case("a bare head", "contract 4", OURS, (message("HTTP/1.1 200 OK", "Content-Length: 10"),)),
    Case("an unnamed failure", "contract 4", OURS, (message("HTTP/1.1 404 N", "Content-Length: 10") + b"hello",)),
]


@pytest.mark.parametrize("how", ["closed", "reset", "nonsense"])
@pytest.mark.parametrize("case", COMMITTED, ids=ids(COMMITTED))
def test_nothing_goes_again_once_an_answer_has_begun(case: Case, how: str, retrying: Proxy) -> None:
    (raw,) = case.facts
    assert isinstance(raw, bytes)
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_request()
        peer.send(raw)
        app.unread(app.read_head())
        if how == "reset":
            peer.reset()
        elif how == "nonsense" and TE.encode() in raw:
            peer.send(b"nonsense\r\n")
        else:
            peer.close()
        answer = app.read_answer()
        assert answer.status == int(raw[9:12])
        assert not answer.whole
        retrying.fence(upstream)


def test_a_body_that_outgrew_its_buffer_goes_once(retrying: Proxy) -> None:
    """Contract section 4: it streams on in one attempt, never a 507."""
    blob = bytes(range(256)) * 8192  # 2 MiB
    for raw, status in ((FAIL, 503), (reply(b"done"), 200)):
        with Upstream() as upstream, retrying.app() as app:
            app.send(get(upstream, "/x", f"Content-Length: {len(blob)}", method="PUT"))
            sending = threading.Thread(target=app.send, args=(blob,))
            sending.start()
            peer = upstream.accept()
            assert peer.read_request().body == blob
            peer.send(raw)
            answer = app.read_answer()
            assert (answer.status, answer.one("x-attempt-count")) == (status, "1")
            sending.join()
            retrying.fence(upstream, peer)


@pytest.mark.parametrize("closes", [True, False])
def test_a_failure_before_the_bodys_end_goes_again_with_all_of_it(closes: bool, retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 10", method="PUT") + b"hello")
        peer = upstream.accept()
        peer.read_head()
        assert peer.read(5) == b"hello"
        peer.send(FAIL)
        if closes:
            peer.close()
        other = upstream.accept()
        head = other.read_head()
        assert other.read(5) == b"hello"
        app.send(b"world")
        other.unread(head + b"hello")
        assert other.read_request().body == b"helloworld"
        other.send(reply(b"done"))
        answer = app.read_answer()
        assert (answer.body, answer.one("x-attempt-count")) == (b"done", "2")


def test_an_expectation_over_a_retry(retrying: Proxy) -> None:
    """The app is told 100 once; each attempt carries the expectation."""
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", "Expect: 100-continue", "Content-Length: 5", method="PUT"))
        peer = upstream.accept()
        peer.read_head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert app.read_head().startswith(b"HTTP/1.1 100")
        app.send(b"hello")
        assert peer.read(5) == b"hello"
        peer.send(FAIL)
        peer, second = next_request(upstream, peer)
        assert (second.one("expect"), second.body) == ("100-continue", b"hello")
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"done"))
        answer = app.read_answer()
        assert (answer.infos, answer.body) == ([], b"done")


def test_interim_answers_commit_nothing(retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + FAIL)
        peer, _ = next_request(upstream, peer)
        peer.send(reply(b"done"))
        answer = app.read_answer()
        assert (len(answer.infos), answer.body) == (1, b"done")


def test_an_app_can_ask_for_one_attempt(retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", "X-Retry-Disable: true"))
        peer = upstream.accept()
        assert peer.read_request().all("x-retry-disable") == []
        peer.send(FAIL)
        answer = app.read_answer()
        assert (answer.status, answer.one("x-attempt-count")) == (503, "1")
        retrying.fence(upstream, peer)


def test_a_pipeline_waits_for_the_retries_in_front_of_it(retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/1") + get(upstream, "/2"))
        peer = upstream.accept()
        for expected, raw in ((b"/1", FAIL), (b"/1", reply(b"one")), (b"/2", FAIL), (b"/2", reply(b"two"))):
            peer, request = next_request(upstream, peer)
            assert request.line.split(b" ")[1] == expected
            peer.send(raw)
        assert app.read_answer().body == b"one"
        assert app.read_answer().body == b"two"


def test_an_app_that_has_said_all_gets_its_retries(retrying: Proxy) -> None:
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream, "/x", "Content-Length: 2", method="PUT") + b"hi")
        app.end()
        peer = upstream.accept()
        peer.read_request()
        peer.send(FAIL)
        peer, again = next_request(upstream, peer)
        assert again.body == b"hi"
        peer.send(reply(b"done"))
        assert app.read_answer().body == b"done"
        assert app.rest() == b""


@pytest.mark.parametrize("size", [10, 60_000, 100_000, 2_000_000])
def test_a_failed_answers_body_does_not_stand_in_the_way(size: int, retrying: Proxy) -> None:
    """Contract section 4: up to 64 KiB are kept; beyond that its connection is paused, then let go."""
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        peer.read_request()
        sending = threading.Thread(target=peer.try_send, args=(reply(b"x" * size, status="503 S"),))
        sending.start()
        if size <= 60_000:
            sending.join()
        other, _ = next_request(upstream, peer)
        other.send(reply(b"done"))
        assert app.read_answer().body == b"done"
        sending.join()


@pytest.mark.parametrize("size", [10, 60_000, 100_000, 2_000_000])
@pytest.mark.parametrize("framing", ["length", "chunks", "until the end"])
def test_the_last_answers_body_comes_whole_however_large(framing: str, size: int, retrying: Proxy) -> None:
    body = b"0123456789" * (size // 10)
    raw = {
        "length": reply(body, status="503 S"),
        "chunks": message("HTTP/1.1 503 S", TE) + chunked(body),
        "until the end": message("HTTP/1.1 503 S") + body,
    }[framing]
    with Upstream() as upstream, retrying.app() as app:
        app.send(get(upstream))
        peer = upstream.accept()
        for number in range(3):
            request = peer.read_request()
            assert request.one("x-attempt-count") == str(number + 1)
            last = number == 2
            peer.send(raw if last else FAIL)
        if framing == "until the end":
            peer.end()
        answer = app.read_answer()
        assert (answer.status, answer.body, answer.whole) == (503, body, True)
