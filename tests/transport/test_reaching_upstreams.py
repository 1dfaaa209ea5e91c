"""TLS, client certificates, sessions, parents, more than one address."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.certificates import Authority, make
from support.front import NONE, CutError, Front, to
from support.ports import free_port
from support.scripted import Turn, Upstream, answer

from proxy.retry.policies.routing import Endpoint
from proxy.transport import faults, tls
from proxy.transport.dial import Dialer, Way
from proxy.transport.egress_guard import Guard
from proxy.transport.resolver import Resolver
from proxy.transport.tls import Contexts
from proxy.wire.http1.compiled import CORE


def secure(upstream: Upstream, authority: Authority, name: str = "localhost", **target: Any) -> Any:
    """An upstream by its name, verified against the test's root."""
    url = f"https://{name}:{upstream.port}"
    return to("api", url, target={"verify": str(authority.ca), **target}, strategy=NONE)


async def test_an_upstream_is_verified_by_its_name(authority: Authority) -> None:
    async with Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        async with Front(secure(upstream, authority)) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"ok"
            assert upstream.requests[0].one("host") == f"localhost:{upstream.port}"
        async with Front(secure(upstream, authority, verify=True)) as front, front.app() as app:
            reply = await app.ask("GET", "/api/")
            assert reply.status == 502
            assert "error=tls_certificate_error" in (reply.one("proxy-status") or "")
        async with Front(secure(upstream, authority, verify=False)) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"ok"
        async with Front(secure(upstream, authority, name="127.0.0.1")) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"ok"


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path, authority: Authority) -> None:
    other = make(tmp_path)
    async with (
        Upstream(answer(200, b"ok"), tls=other.server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        reply = await app.ask("POST", "/api/", body=b"secret")
        assert reply.status == 502
        assert upstream.requests == []


async def test_a_certificate_with_nothing_but_a_common_name_is_refused(tmp_path: Path) -> None:
    named = make(tmp_path, alternative=False)
    async with (
        Upstream(answer(200, b"ok"), tls=named.server) as upstream,
        Front(secure(upstream, named)) as front,
        front.app() as app,
    ):
        reply = await app.ask("POST", "/api/", body=b"secret")
        assert reply.status == 502
        assert "error=tls_certificate_error" in (reply.one("proxy-status") or "")
        assert upstream.requests == []


async def test_https_targets_in_absolute_form(authority: Authority) -> None:
    async with (
        Upstream(answer(200, b"ok"), tls=authority.server) as upstream,
        Front(target={"verify": str(authority.ca)}) as front,
        front.app() as app,
    ):
        assert (await app.ask("GET", f"https://localhost:{upstream.port}/x")).body == b"ok"


async def test_a_client_certificate_is_shown(authority: Authority) -> None:
    chain = authority.ca.parent / "server.pem"
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(chain)
    strict.load_verify_locations(authority.ca)
    strict.verify_mode = ssl.CERT_REQUIRED
    async with Upstream(answer(200, b"ok"), tls=strict) as upstream:
        shown = secure(upstream, authority, client_cert=(str(chain), str(chain)))
        async with Front(shown) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"ok"
        async with Front(secure(upstream, authority)) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).status == 502


async def test_a_session_is_used_again(authority: Authority) -> None:
    async with (
        Upstream(answer(200, b"ok", "Connection: close"), tls=authority.server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        for _ in range(3):
            assert (await app.ask("GET", "/api/")).status == 200
        assert upstream.connections == 3
        assert authority.server.session_stats()["hits"] >= 1


async def kept_by_six_connections(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The session that is kept after each of six connections to one server, all but the first of which are resumed."""
    made: list[Any] = []
    get = Contexts.get
    monkeypatch.setattr(Contexts, "get", lambda *asked: made.append(get(*asked)) or made[-1])
    before = authority.server.session_stats()["hits"]
    kept = []
    async with (
        Upstream(answer(200, b"ok", "Connection: close"), tls=authority.server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        for _ in range(6):
            assert (await app.ask("GET", "/api/")).status == 200
            kept += [each.session for each in made[-1].sessions.values()]
    assert authority.server.session_stats()["hits"] - before == 5
    return kept


async def test_a_session_that_was_resumed_is_not_read_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python's `ssl` reads it, which copies it. A server of tickets takes the same one for many connections."""
    monkeypatch.setattr(tls, "last_made", lambda: None)
    kept = await kept_by_six_connections(authority, monkeypatch)
    assert all(each is kept[0] for each in kept)


@pytest.mark.skipif(CORE != "compiled", reason="Python's ssl copies sessions, which are kept longer for that")
async def test_the_newest_session_is_offered_where_openssl_can_be_asked(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ticket for one connection, as RFC 8446 C.4 asks, and none is copied by Python's `ssl`."""
    kept = await kept_by_six_connections(authority, monkeypatch)
    assert len({id(each) for each in kept}) == 6
    assert not any(isinstance(each, ssl.SSLSession) for each in kept)


@pytest.mark.parametrize("native", [True, False], ids=["openssl", "python"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_session_is_resumed_though_its_connection_was_cut(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion, native: bool
) -> None:
    """OpenSSL marks the session of a connection that ends without a close_notify as one that can't be resumed: what is
    kept must be a copy, and so must what is offered.
    """
    if not native:
        monkeypatch.setattr(tls, "last_made", lambda: None)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.ca.parent / "server.pem")
    server.minimum_version = server.maximum_version = version

    async with (
        Upstream(answer(200, b"ok"), tls=server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        for _ in range(5):
            assert (await app.ask("GET", "/api/")).status == 200
            for connection in list(front.path.context.pool.connections):
                connection.abort()
        assert upstream.connections == 5
    assert server.session_stats()["hits"] == 4


@pytest.mark.skipif(CORE != "compiled", reason="the module is compiled or not there")
def test_a_connection_is_found_in_openssl_only_if_it_is_the_only_one() -> None:
    from proxy.transport import openssl_sessions

    def wrap() -> ssl.SSLObject:
        return ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="a.test")

    openssl_sessions.forget()
    assert openssl_sessions.last_made() is None
    one = wrap()
    found = openssl_sessions.last_made()
    assert found is not None
    assert found.session() is None  # no handshake yet
    del one
    gc.collect()
    assert found.session() is None  # the connection in OpenSSL is kept by what was found
    openssl_sessions.forget()
    two = wrap(), wrap()
    assert openssl_sessions.last_made() is None
    openssl_sessions.forget()
    other = threading.Thread(target=wrap)
    other.start()
    other.join()
    assert openssl_sessions.last_made() is None
    del two


@dataclass
class Ended:
    """What a context asks of a connection's TLS when data has arrived."""

    session_reused: bool
    session: Any = field(default_factory=lambda: SimpleNamespace(has_ticket=True))


def test_a_server_that_takes_a_session_once_gets_another_each_time() -> None:
    """It is found out when it refuses one that was used once; one that was used often has expired."""
    context: Any = Contexts().get(False, None, "http/1.1")

    def shown(resumed: bool) -> Any:
        """The session that the next connection offers, after this one."""
        context.keep("a.test 443", Ended(resumed))
        return context.sessions["a.test 443"].session

    first = shown(False)
    assert [shown(True) for _ in range(5)] == [first] * 5
    second = shown(False)
    assert second is not first
    assert [shown(True), shown(True)] == [second] * 2
    third = shown(False)
    assert shown(True) is third
    fourth = shown(False)
    following = [shown(True) for _ in range(3)]
    assert fourth is not third
    assert len({id(each) for each in (fourth, *following)}) == 4


@dataclass
class Counting:
    """A TLS connection that was not resumed; `read` counts how often its session was read."""

    has_ticket: bool
    read: int = 0
    session_reused: bool = False

    @property
    def session(self) -> Any:
        self.read += 1
        return SimpleNamespace(has_ticket=self.has_ticket)


def test_sessions_of_a_server_without_tickets_are_read_ever_less_often() -> None:
    context: Any = Contexts().get(False, None, "http/1.1")
    wrapped = Counting(has_ticket=False)
    at = []
    for number in range(400):
        before = wrapped.read
        context.keep("a.test 443", wrapped)
        at += [number] * (wrapped.read - before)
    assert at == [0, 2, 6, 14, 30, 62, 126, 191, 256, 321, 386]
    context.keep("b.test 443", wrapped)
    assert wrapped.read == len(at) + 1  # another place has its own count
    wrapped.has_ticket = True  # the server gives tickets now
    for _ in range(65):
        context.keep("a.test 443", wrapped)
    assert list(context.sessions) == ["a.test 443"]
    assert "a.test 443" not in context.without_ticket


async def test_sessions_of_two_ports_of_a_name_are_used_again(tmp_path: Path) -> None:
    """Two servers of one name, called in turn: each gets its own session back, not the other one's."""
    servers = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        servers.append(make(tmp_path / name))
    last = answer(200, b"ok", "Connection: close")
    async with Upstream(last, tls=servers[0].server) as one, Upstream(last, tls=servers[1].server) as other:
        routes = [
            to(
                name,
                f"https://localhost:{upstream.port}",
                target={"verify": str(tmp_path / "both.pem")},
                strategy=NONE,
            )
            for name, upstream in (("one", one), ("other", other))
        ]
        (tmp_path / "both.pem").write_bytes(b"".join(each.ca.read_bytes() for each in servers))
        async with Front(*routes) as front, front.app() as app:
            for _ in range(4):
                assert (await app.ask("GET", "/one/")).status == 200
                assert (await app.ask("GET", "/other/")).status == 200
        assert [each.server.session_stats()["hits"] for each in servers] == [3, 3]


@pytest.mark.parametrize("politely", [True, False])
async def test_a_body_that_only_tls_could_end_is_cut(authority: Authority, politely: bool) -> None:
    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\n\r\nall of it?")
        turn.closed = True
        if politely:
            raw = socket.socket(fileno=os.dup(turn.writer.get_extra_info("socket").fileno()))
            raw.shutdown(socket.SHUT_WR)  # a FIN, and no close_notify
            raw.close()
            await turn.gone()
        else:
            turn.writer.transport.abort()

    async with (
        Upstream(step, tls=authority.server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        with pytest.raises(CutError):
            await app.ask("GET", "/api/")


async def test_a_missing_ca_file_is_a_fault_and_no_crash(authority: Authority) -> None:
    async with (
        Upstream(answer(200, b"ok"), tls=authority.server) as upstream,
        Front(secure(upstream, authority, verify="/nowhere/ca.pem")) as front,
        front.app() as app,
    ):
        assert (await app.ask("GET", "/api/")).status == 502


async def test_a_parent_gets_absolute_form_for_cleartext_and_connect_for_tls(authority: Authority) -> None:
    asked: list[bytes] = []

    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        if not head.startswith(b"CONNECT"):
            writer.write(answer(200, b"from the parent"))
            await reader.read(-1)
            writer.close()
            return
        host, port = head.split(b" ")[1].decode().rsplit(":", 1)
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    server = await asyncio.start_server(parent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    via = f"http://me:pass@127.0.0.1:{port}"
    async with server, Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        plain = to("plain", "http://plain.test:81/base", target={"via_proxy": via})
        tls = secure(upstream, authority, via_proxy=via)
        async with Front(plain, tls, target={"via_proxy": via}) as front, front.app() as app:
            assert (await app.ask("GET", "/plain/x?y")).body == b"from the parent"
            assert asked[0].startswith(b"GET http://plain.test:81/base/x?y HTTP/1.1\r\n")
            assert b"Host: plain.test:81\r\n" in asked[0]
            credentials = base64.b64encode(b"me:pass")
            assert b"Proxy-Authorization: Basic " + credentials + b"\r\n" in asked[0]
            assert (await app.ask("GET", "/api/x")).body == b"ok"
            assert asked[1].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % upstream.port)
            assert (await app.ask("GET", "http://any.test/z")).body == b"from the parent"
            assert asked[2].startswith(b"GET http://any.test/z HTTP/1.1\r\n")


async def test_a_parent_that_refuses_is_502() -> None:
    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(parent, "127.0.0.1", 0)
    via = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    upstream = to("api", "https://api.test", target={"via_proxy": via}, strategy=NONE)
    async with server, Front(upstream) as front, front.app() as app:
        reply = await app.ask("GET", "/api/")
        assert reply.status == 502
        assert "407" in (reply.one("proxy-status") or "")


async def test_addresses_race_and_the_one_that_answers_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(self: Resolver, host: str) -> tuple[str, ...]:
        return ("::1", "127.0.0.1") if host == "two.test" else (host,)

    monkeypatch.setattr(Resolver, "addresses", both)
    async with Upstream(answer(200, b"ok")) as upstream, Front() as front, front.app() as app:
        reply = await app.ask("GET", f"http://two.test:{upstream.port}/")  # nobody listens on ::1
        assert reply.body == b"ok"
        assert reply.one("x-attempt-count") == "1"


def at_one_port() -> tuple[socket.socket, socket.socket]:
    """Return sockets that listen on one port of 127.0.0.1 and of 127.0.0.2."""
    while True:
        first = socket.create_server(("127.0.0.1", 0))
        try:
            return first, socket.create_server(("127.0.0.2", first.getsockname()[1]))
        except OSError:  # another process has this port of the second address
            first.close()


async def test_a_retry_after_a_failed_dial_begins_with_another_address(
    monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """One address of the name accepts connections, and ends the handshake of TLS; the other serves."""

    async def both(self: Resolver, host: str) -> tuple[str, ...]:
        return ("127.0.0.1", "127.0.0.2") if host == "two.test" else (host,)

    dialled = []

    def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(writer)
        writer.transport.abort()

    monkeypatch.setattr(Resolver, "addresses", both)
    closing = answer(200, b"ok", "Connection: close")
    ending, serving = at_one_port()
    async with Upstream(closing, tls=authority.server, sock=serving) as upstream:
        broken = await asyncio.start_server(ends, sock=ending)
        target = {"verify": False}
        url = f"https://two.test:{upstream.port}"
        async with broken, Front(to("api", url, target=target, strategy=NONE)) as front, front.app() as app:
            for _ in range(3):
                reply = await app.ask("GET", "/api/")
                assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"ok", "1")
        assert len(dialled) == 1  # the transparent retry began with the other, and so did later calls
        assert len(upstream.requests) == 3


async def test_where_all_addresses_have_failed_the_one_that_failed_first_is_tried_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    dialer = Dialer(loop, Resolver(loop, 30.0), Guard(), Contexts())
    asked: list[list[str]] = []

    async def race(addresses: list[str], port: int) -> socket.socket:
        asked.append(addresses)
        raise ConnectionRefusedError

    async def three(host: str) -> tuple[str, ...]:
        return ("192.0.2.1", "192.0.2.2", "192.0.2.3")

    monkeypatch.setattr(dialer, "_race", race)
    monkeypatch.setattr(dialer.resolver, "addresses", three)
    for _ in range(4):
        with pytest.raises(ConnectionRefusedError):
            await dialer.open(Endpoint("http", "three.test", 80), Way(named=True), asyncio.Protocol())
    assert [each[0] for each in asked] == ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"]


async def test_a_name_that_resolves_to_a_denied_address_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rebound(self: Resolver, host: str) -> tuple[str, ...]:
        return ("169.254.169.254", "::ffff:169.254.169.254")

    monkeypatch.setattr(Resolver, "addresses", rebound)
    async with Front(to("api", "http://innocent.test")) as front, front.app() as app:
        for target in ("/api/x", "http://innocent.test/x"):
            assert (await app.ask("GET", target)).status == 403


async def test_a_race_leaves_no_socket_behind() -> None:
    loop = asyncio.get_running_loop()
    dialer = Dialer(loop, Resolver(loop, 30.0), Guard(), Contexts())
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        await dialer._race(["127.0.0.1", "127.0.0.2", "127.0.0.3"], port)
    server = socket.create_server(("127.0.0.1", 0))
    sock = await dialer._race(["127.0.0.2", "127.0.0.1"], server.getsockname()[1])
    assert sock.getpeername()[0] in ("127.0.0.1", "127.0.0.2")
    sock.close()
    server.close()


async def test_why_no_address_could_be_connected_to_is_told_where_each_has_a_reason_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    dialer = Dialer(loop, Resolver(loop, 30.0), Guard(), Contexts())
    with pytest.raises(OSError) as failed:
        await dialer._race(["127.0.0.1", "255.255.255.255"], free_port())
    assert faults.dialling(failed.value).detail.count("[Errno ") == 2


async def test_a_body_that_tls_ends_as_it_should_is_whole(authority: Authority) -> None:
    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        turn.close()

    async with (
        Upstream(step, tls=authority.server) as upstream,
        Front(secure(upstream, authority)) as front,
        front.app() as app,
    ):
        assert (await app.ask("GET", "/api/")).body == b"all of it"
