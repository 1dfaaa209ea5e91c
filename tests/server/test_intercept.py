"""CONNECT with `connect: intercept`: the requests inside are calls like any other, and nothing else is touched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import hpack
import pytest
from support.certificates import Authority
from support.front import App, CutError, Front, chunked, request, to
from support.scripted import Turn, Upstream, answer, gated, hang

from proxy import runtime
from proxy.config.settings import CertificateAuthority
from proxy.retry.facts import Outcome
from proxy.runtime import DataPath
from proxy.server.connection import AppConnection
from proxy.server.intercept import ca, interception
from proxy.server.intercept.leaves import Leaf, Leaves
from proxy.wire.http2.frames import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, settings

OK = b"HTTP/1.1 200 Connection established\r\nX-Attempt-Count: 0\r\n\r\n"


@dataclass
class Local:
    """The local CA, and what the proxy says to who runs it."""

    files: CertificateAuthority
    notices: list[dict[str, Any]] = field(default_factory=list)

    def init(self, *hosts: str) -> None:
        ca.init(Path(self.files.cert), Path(self.files.key), list(hosts), datetime.now(UTC), os.environ)

    def lose(self) -> None:
        Path(self.files.key).unlink()
        Path(self.files.cert).unlink()

    def notify(self, event: str, lines: list[str], **facts: Any) -> None:
        self.notices.append({"event": event, "lines": lines, **facts})

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.files.cert)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context


@pytest.fixture
def local(tmp_path: Path) -> Local:
    made = Local(CertificateAuthority(str(tmp_path / "ca/cert.pem"), str(tmp_path / "ca/key.pem")))
    made.init()
    return made


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server


class Intercepting(Front):
    """A front whose upstream `api` is intercepted."""

    def __init__(self, upstream: Upstream, authority: Authority, local: Local, **changes: Any) -> None:
        changes = {"connect": "intercept", "hosts": [f"localhost:{upstream.port}", "named.example"], **changes}
        to_it = f"https://localhost:{upstream.port}"
        super().__init__(to("api", to_it, target={"verify": str(authority.ca)}, **changes), ca=local.files)
        self._local = local
        self.inner = f"localhost:{upstream.port}"

    async def __aenter__(self) -> Any:
        made = DataPath

        def telling(*arguments: Any) -> DataPath:
            return made(*arguments, notify=self._local.notify)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("support.front.DataPath", telling)
            return await super().__aenter__()

    @contextlib.asynccontextmanager
    async def inside(self, authority: str = "", context: ssl.SSLContext | None = None) -> AsyncIterator[App]:
        """An app's connection that has been through CONNECT and a handshake."""
        authority = authority or self.inner
        async with self.app() as app:
            app.send(request("CONNECT", authority, host=authority))
            assert await app.reader.readuntil(b"\r\n\r\n") == OK
            host = authority.rpartition(":")[0].strip("[]")
            await app.writer.start_tls(context or self._local.trusting(), server_hostname=host)
            yield App(app.reader, app.writer, authority)


TCP_CLOSE = 7  # linux/tcp_states.h: a RST came; a FIN leaves 8, CLOSE_WAIT


def until_tls_breaks(front: Intercepting, local: Local, begun: Callable[[], object]) -> str:
    """How the connection of an app ends inside which an answer breaks off. It tells a closure alert from none."""
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as plain:
        plain.sendall(request("CONNECT", front.inner, host=front.inner))
        while b"\r\n\r\n" not in plain.recv(1000):
            pass
        context = local.trusting()
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as inside:
            inside.sendall(request("GET", "/", host=front.inner))
            got = b""
            try:
                while data := inside.recv(1000):
                    got += data
                    if b"half" in got:
                        begun()
            except (ConnectionResetError, ssl.SSLEOFError):  # which of them does not depend on the packet alone
                (state,) = inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
                return "reset" if state == TCP_CLOSE else f"state {state}"
            return "closure alert"


async def test_an_answer_that_breaks_off_ends_without_a_closure_alert(
    authority: Authority, local: Local, tls: ssl.SSLContext
) -> None:
    loop, seen = asyncio.get_running_loop(), asyncio.Event()

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await seen.wait()
        turn.close()

    async with Upstream(step, tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        begun = partial(loop.call_soon_threadsafe, seen.set)
        assert await asyncio.to_thread(until_tls_breaks, front, local, begun) == "reset"


# -- calls like any other ----------------------------------------------------------------------------------------------


async def test_a_call_inside_is_retried(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with (
        Upstream(answer(503), answer(503), answer(200, b"at last"), tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
    ):
        async with front.inside() as app:
            reply = await app.ask("GET", "/v1/x?q=%2F", "X-Mine: 1")
            assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"at last", "3")
        assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]
        assert {r.target for r in upstream.requests} == {"/v1/x?q=%2F"}
        assert {r.one("host") for r in upstream.requests} == {front.inner}
        assert (await front.observed.until(1))[0]["attempts"] == 3
        assert local.notices == []


async def test_many_calls_on_one_connection(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(answer(200, b"ok"), tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            for _ in range(3):
                app.send(request("GET", "/a", host=front.inner))
            for _ in range(3):
                assert (await app.read()).body == b"ok"
            body = os.urandom(300_000)
            assert (await app.ask("PUT", "/b", body=body)).status == 200
            assert (await app.ask("PUT", "/c", "Transfer-Encoding: chunked", body=chunked(body, body))).status == 200
        assert [len(r.body) for r in upstream.requests] == [0, 0, 0, 300_000, 600_000]


async def test_a_large_answer(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    body = os.urandom(8 << 20)
    async with (
        Upstream(answer(200, body), tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        assert (await app.ask("GET", "/")).body == body


async def test_one_leaf_for_one_name(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:

        async def one() -> int:
            async with front.inside() as app:
                return (await app.ask("GET", "/")).status

        assert await asyncio.gather(*(one() for _ in range(20))) == [200] * 20
        leaves = front.path.acceptor.interception._leaves
        assert leaves is not None
        assert leaves.minted == 1


async def test_tls_read_behind_the_connect(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    """An app that does not wait for its 200."""
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front, front.app() as app:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = local.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        out = request("CONNECT", front.inner, host=front.inner)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                app.send(out + outgoing.read())
                if out:
                    assert await app.reader.readuntil(b"\r\n\r\n") == OK
                out = b""
                incoming.write(await app.reader.read(65536))
        client.write(request("GET", "/", "Connection: close", host=front.inner))
        app.send(outgoing.read())
        got = b""
        while not got.endswith(b"ok"):
            with contextlib.suppress(ssl.SSLWantReadError):
                got += client.read(65536)
                continue
            data = await app.reader.read(65536)
            assert data
            incoming.write(data)
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_alpn(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        context = local.trusting()
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with front.inside(context=context) as app:
            assert app.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            assert (await app.ask("GET", "/")).status == 200
        context.set_alpn_protocols(["h2"])
        async with front.inside(context=context) as app:
            assert app.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            app.send(PREFACE + settings({}))
            assert (await app.reader.readexactly(9))[3] == SETTINGS


async def test_http2_that_comes_in_pieces_while_the_handshake_ends(
    authority: Authority, local: Local, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first piece makes an HTTP/2 connection, which gets the others; they were read as HTTP/1, and lost."""
    stand_ins: asyncio.Queue[interception.StandIn] = asyncio.Queue()
    both_came = asyncio.Event()
    shake = interception.shake

    async def slowly(*arguments: Any) -> tuple[asyncio.Transport, interception.StandIn]:
        transport, stand_in = await shake(*arguments)
        stand_ins.put_nowait(stand_in)
        await both_came.wait()
        return transport, stand_in

    async def has_pieces(stand_in: interception.StandIn, number: int) -> None:
        while len(stand_in._data) < number:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)

    monkeypatch.setattr(interception, "shake", slowly)
    context = local.trusting()
    context.set_alpn_protocols(["h2"])
    async with (
        Upstream(tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside(context=context) as app,
    ):
        stand_in = await stand_ins.get()
        app.send(PREFACE + settings({}))
        await has_pieces(stand_in, 1)
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", front.inner), (":path", "/")]
        block = hpack.Encoder().encode(fields)
        app.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        await has_pieces(stand_in, 2)
        both_came.set()
        kind = None
        while kind != HEADERS:
            head = await app.reader.readexactly(9)
            kind = head[3]
            await app.reader.readexactly(int.from_bytes(head[:3]))


async def test_an_upgrade_inside(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async def echo(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        await turn.write(b"<" + await turn.reader.readexactly(4) + b">")
        turn.close()

    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with (
        Upstream(answer(503), echo, tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        app.send(request("GET", "/", "Upgrade: echo", "Connection: Upgrade", host=front.inner))
        assert (await app.reader.readuntil(b"\r\n\r\n"))[:12] == b"HTTP/1.1 101"
        app.send(b"ping")
        assert await app.rest() == b"<ping>"
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.SUCCESS
    assert told == []


async def test_an_answer_that_is_cut(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async def cut(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        turn.close()

    async with (
        Upstream(cut, tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        app.send(request("GET", "/", host=front.inner))
        with pytest.raises(CutError) as seen:
            await app.read()
        assert seen.value.answer.body == b"" or b"0\r\n" not in seen.value.answer.body


async def test_an_app_inside_that_reads_only_when_it_has_sent_all_gets_its_answer(
    authority: Authority, local: Local, tls: ssl.SSLContext
) -> None:
    """TLS has no half-closed connections, so nothing but the answer says that the connection closes."""

    async def step(turn: Turn) -> None:
        await turn.write(answer(413, b"too large"))
        await turn.gone()

    async with (
        Upstream(step, tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        app.send(request("POST", "/", "Content-Length: 8000000", host=app.authority))
        for _ in range(80):
            app.send(b"x" * 100_000)
            await app.writer.drain()
        reply = await app.read()
        assert (reply.status, reply.body, reply.one("connection")) == (413, b"too large", "close")


async def test_an_app_that_goes_away(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(hang, tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            app.send(request("GET", "/", host=front.inner))
            await upstream.until(1)
        await upstream.gone.wait()
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.CLIENT_GONE


async def test_an_app_that_ends_its_tls_while_it_waits(
    authority: Authority, local: Local, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS has no half-closed connections here: it is gone, and nothing is logged of it."""
    async with Upstream(hang, tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            app.send(request("GET", "/", host=front.inner))
            await upstream.until(1)
            app.writer.close()
            await upstream.gone.wait()
        await front.observed.until(1)
        assert caplog.records == []


# -- the authority decides ---------------------------------------------------------------------------------------------


async def test_whose_call_it_is(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            assert (await app.ask("GET", "/", "Host: elsewhere.example")).status == 421
            assert (await app.ask("GET", "/", "Host: localhost")).status == 421  # another port
            assert (await app.ask("GET", f"http://{front.inner}/")).status == 421
            assert (await app.ask("GET", "https://elsewhere.example/")).status == 421
            assert (await app.ask("GET", f"https://{front.inner}/abs")).status == 200
            assert (await app.ask("GET", "/", f"Host: LOCALHOST:{upstream.port}")).status == 200
            assert (await app.ask("GET", "/", "Host: localhost:1")).status == 421
            assert (await app.ask("CONNECT", front.inner)).status == 400
        assert [r.target for r in upstream.requests] == ["/abs", "/"]
        assert "inside a CONNECT to localhost" in front.observed.refusals[0].detail


async def test_the_port_that_goes_without_saying(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside("named.example:443") as app:
            for host in ("named.example", "named.example:443", "NAMED.example."):
                assert (await app.ask("GET", "/", f"Host: {host}")).status == 200, host
            assert (await app.ask("GET", "/", "Host: named.example:80")).status == 421
        assert [r.one("host") for r in upstream.requests][:2] == ["named.example", "named.example:443"]
        async with front.inside("named.example:443") as app:
            app.send(b"GET /old HTTP/1.0\r\n\r\n")
            assert (await app.read()).status == 200
        assert upstream.requests[-1].target == "/old"


async def test_a_prefix_means_nothing_inside(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            assert (await app.ask("GET", "/api/x")).status == 200
        assert upstream.requests[0].target == "/api/x"


async def test_other_hosts_stay_blind(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    """What no upstream names, and what an upstream tunnels, is between the app and its server."""
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front, front.app() as app:
        other = f"127.0.0.1:{upstream.port}"
        app.send(request("CONNECT", other, host=other))
        assert (await app.reader.readuntil(b"\r\n\r\n"))[:12] == b"HTTP/1.1 200"
        await app.writer.start_tls(ssl.create_default_context(cafile=authority.ca), server_hostname="127.0.0.1")
        assert (await app.ask("GET", "/", "Host: whatever")).status == 200
        assert upstream.requests[0].one("x-attempt-count") is None


# -- what cannot be ----------------------------------------------------------------------------------------------------


async def test_no_ca_yet(
    authority: Authority, local: Local, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.server.intercept.interception.AGAIN", 0.0)
    local.lose()
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        assert [notice["event"] for notice in local.notices] == ["interception"]
        async with front.app() as app:
            reply = await app.ask("CONNECT", front.inner)
            assert reply.status == 500
            assert b"there is no local CA yet: redrive ca init" in reply.body
            assert "proxy_configuration_error" in (reply.one("proxy-status") or "")
        local.init()
        async with front.app() as app:
            app.send(request("CONNECT", front.inner, host=front.inner))
            assert await app.reader.readuntil(b"\r\n\r\n") == OK
        assert upstream.connections == 0


async def test_a_ca_for_others(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    local.lose()
    local.init("localhost")
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            assert (await app.ask("GET", "/")).status == 200
        async with front.app() as app:
            reply = await app.ask("CONNECT", "named.example:443")
            assert reply.status == 403
            assert b"redrive ca init --for named.example" in reply.body
            assert "http_request_denied" in (reply.one("proxy-status") or "")
        async with front.app() as app:
            assert (await app.ask("GET", front.url.replace("http://", "http://x.") + "/")).status != 500


async def test_an_app_that_does_not_trust_us_is_told_of_once(
    authority: Authority, local: Local, tls: ssl.SSLContext
) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        for _ in range(3):
            with pytest.raises(ssl.SSLCertVerificationError):
                async with front.inside(context=ssl.create_default_context()):
                    pass
            async with front.inside() as app:  # after it, so that it has been seen
                assert (await app.ask("GET", "/")).status == 200
        while front.path.acceptor.interception._beside.tasks:
            await asyncio.gather(*front.path.acceptor.interception._beside.tasks)
        assert [notice["event"] for notice in local.notices] == ["handshake"]
        assert local.notices[0]["authority"] == front.inner
        assert "does not trust the local CA" in local.notices[0]["lines"][0]
        assert "redrive env" in local.notices[0]["lines"][0]


def _close(app: App) -> None:
    app.writer.close()


def _reset(app: App) -> None:
    """End the connection as a process does that leaves bytes unread, session tickets for instance."""
    its_socket = app.writer.transport.get_extra_info("socket")
    its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    app.writer.transport.abort()


@pytest.mark.parametrize("end", [_close, _reset])
async def test_an_app_that_looks_at_the_certificate_after_the_handshake_is_told_of_once(
    authority: Authority, local: Local, tls: ssl.SSLContext, end: Callable[[App], None]
) -> None:
    """As curl 8.23 does: it sends no alert, and ends the connection without a request."""
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.inside() as app:
            assert (await app.ask("GET", "/")).status == 200
        assert not local.notices
        for _ in range(2):
            async with front.inside() as app:
                end(app)
            async with front.inside() as app:  # after it, so that it has been seen
                assert (await app.ask("GET", "/")).status == 200
        assert [notice["event"] for notice in local.notices] == ["handshake"]
        assert "perhaps it does not trust the local CA" in local.notices[0]["lines"][0]
        assert "redrive env" in local.notices[0]["lines"][0]


async def test_cleartext_where_tls_is_expected(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front, front.app() as app:
        app.send(request("CONNECT", front.inner, host=front.inner))
        assert await app.reader.readuntil(b"\r\n\r\n") == OK
        app.send(b"SSH-2.0-x\r\n")
        await app.rest()
        assert "carries no TLS" in local.notices[0]["lines"][0]
        assert upstream.connections == 0


async def test_cleartext_requests_make_calls_too(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with (
        Upstream(answer(503), answer(200, b"ok"), tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.app() as app,
    ):
        app.send(request("CONNECT", front.inner, host=front.inner) + b"GE")  # in pieces, and early
        assert await app.reader.readuntil(b"\r\n\r\n") == OK
        app.send(request("GET", "/", host=front.inner)[2:])
        reply = await app.read()
        assert (reply.body, reply.one("x-attempt-count")) == (b"ok", "2")
        assert not local.notices


async def test_the_leaf_is_for_the_name_that_tls_asks_for(
    authority: Authority, local: Local, tls: ssl.SSLContext
) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        for name in ("other.example", "localhost", "OTHER.example"):
            async with front.app() as app:
                app.send(request("CONNECT", front.inner, host=front.inner))
                assert await app.reader.readuntil(b"\r\n\r\n") == OK
                await app.writer.start_tls(local.trusting(), server_hostname=name)  # which looks at the leaf's name
                assert (await app.ask("GET", "/", f"Host: {front.inner}")).status == 200
                assert (await app.ask("GET", "/", "Host: other.example")).status == 421  # on HTTP/1 it is nothing more


async def test_a_leaf_for_another_name_is_made_beside_the_loop(
    authority: Authority, local: Local, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, bool]] = []
    make = Leaves.make

    def noted(these: Leaves, host: str) -> Leaf:
        made.append((host, threading.current_thread() is threading.main_thread()))
        return make(these, host)

    monkeypatch.setattr(Leaves, "make", noted)
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front, front.app() as app:
        app.send(request("CONNECT", front.inner, host=front.inner))
        assert await app.reader.readuntil(b"\r\n\r\n") == OK
        await app.writer.start_tls(local.trusting(), server_hostname="other.example")
        assert (await app.ask("GET", "/", f"Host: {front.inner}")).status == 200
    assert made == [("localhost", False), ("other.example", False)]


async def test_shutting_down_in_the_middle_of_a_handshake(
    authority: Authority, local: Local, tls: ssl.SSLContext
) -> None:
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        async with front.app() as app:
            app.send(request("CONNECT", front.inner, host=front.inner))
            assert await app.reader.readuntil(b"\r\n\r\n") == OK
            await front.path.close()
            assert await app.rest() == b""
        assert not front.path.acceptor.open


async def test_draining(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    """A call in flight has its answer, and the connection ends."""
    go = asyncio.Event()
    async with (
        Upstream(answer(200), gated(go, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"done"), tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
        front.inside() as idle,
    ):
        assert (await idle.ask("GET", "/")).status == 200  # one that has not said anything yet is let speak
        app.send(request("GET", "/", host=front.inner))
        await upstream.until(2)
        front.path.drain()
        assert await idle.rest() == b""
        go.set()
        assert (await app.read()).body == b"done"
        assert await app.rest() == b""


async def test_a_reload(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    """Files that are as they were keep their leaves; others make new ones; without interception there are none."""
    async with (
        Upstream(tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        interception = front.path.acceptor.interception
        before = interception._leaves
        front.path.use(front.settings)
        assert interception._leaves is before
        local.lose()
        local.init()
        front.path.use(front.settings)
        assert interception._leaves is not before
        assert (await app.ask("GET", "/")).status == 200
        async with front.inside() as another:
            assert (await another.ask("GET", "/")).status == 200
        front.path.use(Front(to("api", upstream.url, hosts=[front.inner], connect="tunnel")).settings)
        assert interception._leaves is None


async def test_an_app_that_reads_slowly(
    authority: Authority, local: Local, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream is held back: what the app does not take is not piled up here."""
    piece, pieces = bytes(1 << 20), 64
    sent = 0
    blocked = asyncio.Event()

    class Telling(AppConnection):
        def pause_writing(self) -> None:
            super().pause_writing()
            blocked.set()

    monkeypatch.setattr(runtime, "AppConnection", Telling)

    async def stream(turn: Turn) -> None:
        nonlocal sent
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * pieces))
        for _ in range(pieces):
            await turn.write(piece)
            sent += 1

    async with (
        Upstream(stream, tls=tls) as upstream,
        Intercepting(upstream, authority, local) as front,
        front.inside() as app,
    ):
        blocked.clear()
        app.send(request("GET", "/", host=front.inner))
        await blocked.wait()
        assert sent < pieces
        assert len((await app.read()).body) == len(piece) * pieces


async def test_without_the_extra(
    authority: Authority, local: Local, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.server.intercept.is_installed", lambda extra: False)
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front, front.app() as app:
        assert "pip install '.[intercept]'" in local.notices[0]["lines"][0]
        async with front.app() as other:
            assert b"pip install '.[intercept]'" in (await other.ask("CONNECT", front.inner)).body
        assert (await app.ask("GET", "/api/x")).status == 200  # all else is served


async def test_apps_that_go_away_at_any_point(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    """No connection and no task is left, wherever the CONNECT or the handshake was broken off, and however."""
    async with Upstream(tls=tls) as upstream, Intercepting(upstream, authority, local) as front:
        outgoing = ssl.MemoryBIO()
        client = local.trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        whole = request("CONNECT", front.inner, host=front.inner) + outgoing.read()

        async def broken_off(at: int, politely: bool) -> None:
            async with front.app() as app:
                app.send(whole[:at])
                if politely:
                    app.end()
                    with contextlib.suppress(ConnectionError):
                        await app.rest()

        cuts = range(10, len(whole) + 1, 7)
        await asyncio.gather(*(broken_off(at, politely) for at in cuts for politely in (True, False)))
        door = front.path.acceptor
        await door.shutdown()
        assert not door.open
        assert all(
            task.done() for task in door.interception._beside.tasks
        )  # the callback that takes them out comes a turn later
        assert upstream.connections == 0


async def test_an_intercepted_call_without_via(authority: Authority, local: Local, tls: ssl.SSLContext) -> None:
    async with (
        Upstream(answer(200, b"ok"), tls=tls) as upstream,
        Intercepting(upstream, authority, local, via=False) as front,
        front.inside() as app,
    ):
        own = front.path.context.via
        reply = await app.ask("GET", "/")
        (sent,) = upstream.requests
        assert (reply.all("via"), sent.all("via"), sent.all("x-redrive-loop")) == ([], [], [own])
        assert (await app.ask("GET", "/", f"X-Redrive-Loop: {own}")).status == 508
