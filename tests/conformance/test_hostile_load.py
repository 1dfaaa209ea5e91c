"""Who means harm: drips, floods of idle connections, bodies that nobody reads, parked calls, garbage. Memory stays
bounded, others are served meanwhile, and who is turned away is told so.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from conformance_kit import GUARD, OK, Peer, Proxy, Upstream, get, message, reply, running

LIMIT = 150
CONFIG = f"""
limits: {{connections: {LIMIT}, waiting: 8}}
buffers: {{per_request: 256KiB, total: 1MiB}}
defaults: {{strategy: {{kind: standard, backoff: {{base: 1ms, max: 1ms}}}}}}
upstreams:
  parking: {{url: "http://127.0.0.1:%d", hosts: [parking.test]}}
"""
#: What the process may grow by in any of these, MiB. Each of them would take hundreds if something were unbounded.
ROOM = 60


@pytest.fixture(scope="module")
def parking() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def small(parking: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running(tmp_path_factory.mktemp("small"), CONFIG % parking.port) as started:
        with Upstream() as upstream:
            started.fence(upstream)  # everything is loaded
        yield started


def resident(proxy: Proxy) -> float:
    """Its memory, MiB."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextlib.contextmanager
def bounded(proxy: Proxy) -> Iterator[None]:
    """Memory stays within bounds, and others are served in the midst of it, and after it."""
    before = resident(proxy)
    yield
    with Upstream() as upstream:
        proxy.fence(upstream)
    assert resident(proxy) - before < ROOM


@contextlib.contextmanager
def many(proxy: Proxy, count: int) -> Iterator[list[Peer]]:
    peers = [proxy.app() for _ in range(count)]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()
        for peer in peers:  # gone for the proxy too, before the next test begins
            with contextlib.suppress(OSError):
                peer.sock.close()


def push(peer: Peer, piece: bytes, most: int) -> int:
    """Send until the other side takes no more, or has closed; how much went."""
    peer.sock.setblocking(False)
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            sent += peer.sock.send(piece)
    peer.sock.settimeout(GUARD)
    return sent


def test_heads_that_drip(small: Proxy) -> None:
    with many(small, 100) as apps, bounded(small):
        for round_of_octets in (
            b"GET http://a.exam",
            b"ple/ HTTP/1.1\r\n",
            b"Host: a",
            b".example\r\nX-Long: ",
            b"y" * 3000,
        ):
            for app in apps:
                app.send(round_of_octets)
            with Upstream() as upstream:
                small.fence(upstream)


def test_heads_that_never_end(small: Proxy) -> None:
    """A megabyte of fields each: refused at the limit, not collected."""
    with many(small, 50) as apps, bounded(small):
        for app in apps:
            app.send(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n")
            push(app, b"X-Field: " + b"y" * 1000 + b"\r\n", 1_000_000)
        for app in apps:
            assert app.read_answer().status == 431


def test_more_connections_than_there_may_be(small: Proxy) -> None:
    with many(small, LIMIT - 1) as resting, Upstream() as upstream, bounded_later(small):
        app = small.app()
        peer = small.settles(app, upstream)  # the last that fits
        for _ in range(20):
            with small.app() as surplus:
                surplus.send(get(upstream))
                answer = surplus.read_answer()
                assert answer.status == 503
                assert answer.one("retry-after") is not None
                assert answer.one("connection") == "close"
                assert "too many connections" in answer.body.decode()
                assert surplus.rest() == b""
        app.send(get(upstream, "/again"))  # who is in is served
        peer.read_head()
        peer.send(OK)
        assert app.read_answer().status == 200
        for _ in range(20):
            resting.pop().close()
        app.close()
        for _ in range(100):  # as soon as it knows that they are gone
            with small.app() as newcomer:
                newcomer.send(get(upstream, "/new"))
                with contextlib.suppress(TimeoutError):
                    if readable(peer, newcomer) is peer:
                        peer.read_head()
                        peer.send(OK)
                answer = newcomer.read_answer()
                if answer.status == 200:
                    break
        assert answer.status == 200


@contextlib.contextmanager
def bounded_later(proxy: Proxy) -> Iterator[None]:
    """The same where there is no room for another caller meanwhile."""
    before = resident(proxy)
    yield
    assert resident(proxy) - before < ROOM


def readable(*peers: Peer) -> Peer | None:
    ready, _, _ = select.select([peer.sock for peer in peers], [], [], 15)
    return next((peer for peer in peers if peer.sock in ready), None)


def test_uploads_that_nobody_reads(small: Proxy) -> None:
    """Twenty of 50 MB each: what is kept for another attempt is bounded in all, and then the app has to wait."""
    with many(small, 20) as apps, Upstream() as upstream:
        with bounded(small):
            for app in apps:
                app.send(get(upstream, "/up", "Content-Length: 50000000", method="PUT"))
            for app in apps:
                assert push(app, b"x" * 65536, 50_000_000) < 20_000_000
        for app in apps:
            app.reset()
        for _ in apps:
            upstream.accept().rest()


def test_downloads_that_nobody_reads(small: Proxy) -> None:
    with many(small, 40) as apps, Upstream() as upstream:
        with bounded(small):
            for app in apps:
                app.send(get(upstream, "/down"))
            peers = [upstream.accept() for _ in apps]
            for peer in peers:
                peer.read_head()
                peer.send(message("HTTP/1.1 200 OK", "Content-Length: 50000000"))
            for peer in peers:
                assert push(peer, b"x" * 65536, 50_000_000) < 20_000_000
        for app in apps:
            app.reset()
        for peer in peers:
            peer.rest()


def test_failures_that_nobody_reads(small: Proxy) -> None:
    """A failed answer is kept up to 64 KiB while its call waits; the rest stays with the upstream."""
    with many(small, 30) as apps, Upstream() as upstream:
        with bounded(small):
            for app in apps:
                app.send(get(upstream, "/x", "X-Retry-Disable: true"))
            peers = [upstream.accept() for _ in apps]
            for peer in peers:
                peer.read_head()
                peer.send(message("HTTP/1.1 503 S", "Content-Length: 50000000"))
            for peer in peers:
                assert push(peer, b"x" * 65536, 50_000_000) < 20_000_000
        for app in apps:
            app.reset()


def test_a_pipeline_without_end(small: Proxy) -> None:
    """What comes behind a request that hangs waits in the kernel, not here."""
    with many(small, 30) as apps, Upstream() as upstream:
        with bounded(small):
            for app in apps:
                app.send(get(upstream, "/hang"))
                assert push(app, get(upstream, "/next") * 500, 100_000_000) < 20_000_000
        for app in apps:
            app.reset()


def test_chunks_of_one_octet(small: Proxy) -> None:
    """A body of the smallest chunks costs its bytes, not an object each."""
    with many(small, 20) as apps, Upstream() as upstream:
        with bounded(small):
            for app in apps:
                app.send(get(upstream, "/x", "Transfer-Encoding: chunked", method="PUT"))
            peers = [upstream.accept() for _ in apps]
            for app in apps:
                push(app, b"1\r\nx\r\n" * 5000, 300_000)
        for app in apps:
            app.reset()
        for peer in peers:
            peer.rest()


def test_garbage(small: Proxy) -> None:
    random = Random(1)
    with bounded(small):
        for _ in range(300):
            with small.app() as app:
                garbage = random.randbytes(random.choice((1, 10, 100, 5000)))
                app.try_send(garbage)
                with contextlib.suppress(OSError):
                    app.end()
                said = app.rest()
                assert said == b"" or said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ", b"HTTP/1.1 505 "))


def test_garbage_behind_a_good_request(small: Proxy) -> None:
    random = Random(2)
    with Upstream() as upstream, bounded(small):
        with small.app() as app:
            peer = small.settles(app, upstream)
        for _ in range(100):
            with small.app() as app:
                app.try_send(get(upstream) + b"\0" + random.randbytes(2000))
                peer.read_head()
                peer.send(OK)
                assert app.read_answer().status == 200
                assert app.read_answer().status == 400
                assert app.rest() == b""
        small.fence(upstream, peer)


def test_answers_of_garbage(small: Proxy) -> None:
    random = Random(3)
    with Upstream() as upstream, bounded(small):
        for _ in range(100):
            with small.app() as app:
                app.send(get(upstream, "/x", method="POST"))
                peer = upstream.accept()
                peer.read_head()
                peer.try_send(random.randbytes(random.choice((1, 10, 100, 100_000))))
                peer.close()
                assert app.read_answer().status == 502


def test_parked_calls_have_few_places(small: Proxy, parking: Upstream) -> None:
    """One upstream's calls take at most half of `limits.waiting`; one more is told 503 at once, not left to wait."""
    with many(small, 6) as apps, bounded(small):
        request = message("GET http://parking.test/x HTTP/1.1", "Host: parking.test")
        apps[0].send(request)
        peer = parking.accept()
        peer.read_head()
        peer.send(reply(b"", "Retry-After: 9", status="429 Too Many Requests"))  # it waits so long, and so do others
        for app in apps[1:]:
            app.send(request)
        refused = readable(*apps)
        assert refused is not None
        answer = refused.read_answer()
        assert answer.status == 503
        assert answer.one("retry-after") is not None
        assert "outcome=overloaded" in (answer.one("proxy-status") or "")
        assert all(app.is_silent() for app in apps if app is not refused)
        assert peer.is_silent()
        assert parking.untouched
