"""Where requests go: endpoints, unix sockets, TLS, parents, denied places, connections that rest (contract 6)."""

from __future__ import annotations

import datetime
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conformance_kit import OK, Peer, Proxy, Upstream, get, message, reply, running
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.certificates import make

CONFIG = """
pool: {idle: 300ms, max_idle: 2}
defaults: {strategy: none}
deny_destinations: [127.0.0.3/32]
upstreams:
  own-ca: {url: "https://localhost:%(tls)d", hosts: [own-ca.test], verify: %(ca)s}
  system: {url: "https://localhost:%(tls)d", hosts: [system.test]}
  lax: {url: "https://127.0.0.2:%(tls2)d", hosts: [lax.test], verify: false}
  misnamed: {url: "https://127.0.0.2:%(tls2)d", hosts: [misnamed.test], verify: %(ca)s}
  mutual: {url: "https://localhost:%(mutual)d", hosts: [mutual.test], verify: %(ca)s,
           client_cert: {cert: %(client)s, key: %(client)s}}
  anonymous: {url: "https://localhost:%(mutual)d", hosts: [anonymous.test], verify: %(ca)s}
  clear: {url: "https://127.0.0.1:%(clear)d", hosts: [clear.test], verify: false}
  sock: {url: "unix:%(unix)s", hosts: [sock.test]}
  no-sock: {url: "unix:%(unix)s.gone", hosts: [no-sock.test]}
  pair: {url: ["http://127.0.0.1:%(one)d", "http://127.0.0.1:%(two)d"], hosts: [pair.test],
         strategy: {kind: standard, backoff: {base: 1ms, max: 1ms}}}
  half: {url: ["http://127.0.0.1:%(dead)d", "http://127.0.0.1:%(two)d"], hosts: [half.test]}
  named: {url: "http://127.0.0.3:%(named)d", hosts: [named.test]}
  parented: {hosts: ["*.parented.test"], via_proxy: "http://user:p%%40ss@127.0.0.1:%(parent)d"}
"""


@dataclass
class Ends:
    tls: Upstream
    tls2: Upstream
    mutual: Upstream
    clear: Upstream
    unix: Upstream
    one: Upstream
    two: Upstream
    named: Upstream
    parent: Upstream
    server: ssl.SSLContext
    demanding: ssl.SSLContext


def client_certificate(folder: Path) -> Path:
    """A certificate that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a client")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file = folder / "client.pem"
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem))
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstreams")


@pytest.fixture(scope="module")
def ends(folder: Path) -> Iterator[Ends]:
    authority = make(folder)
    authority.server.set_alpn_protocols(["h2", "http/1.1"])
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demanding.load_cert_chain(folder / "server.pem")
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(client_certificate(folder))
    # TLS 1.3 tells a client that brings no certificate only after its handshake; 1.2 tells it at once.
    demanding.maximum_version = ssl.TLSVersion.TLSv1_2
    plain = [Upstream() for _ in range(5)]
    all_of_them = [Upstream(), Upstream(host="127.0.0.2"), Upstream(), *plain, Upstream(host="127.0.0.3")]
    tls, tls2, mutual, clear, one, two, parent, _, named = all_of_them
    unix = Upstream(path=str(folder / "s"))
    yield Ends(tls, tls2, mutual, clear, unix, one, two, named, parent, authority.server, demanding)
    for end in (*all_of_them, unix):
        end.listener.close()


@pytest.fixture(scope="module")
def routed(ends: Ends, folder: Path) -> Iterator[Proxy]:
    with socket.socket() as dead:  # bound, and nobody listens
        dead.bind(("127.0.0.1", 0))
        ports = {name: end.port for name, end in vars(ends).items() if isinstance(end, Upstream) and name != "unix"}
        facts = {
            **ports,
            "ca": folder / "ca.pem",
            "client": folder / "client.pem",
            "unix": folder / "s",
            "dead": dead.getsockname()[1],
        }
        with running(folder, CONFIG % facts) as started:
            yield started


def ask(app: Peer, host: str, path: str = "/x", method: str = "GET") -> None:
    app.send(message(f"{method} http://{host}{path} HTTP/1.1", f"Host: {host}"))


# -- TLS ------------------------------------------------------------------------------------------------------------


def test_an_own_ca(routed: Proxy, ends: Ends) -> None:
    """SNI and the verified name are the endpoint's; Host is what the app named; only HTTP/1.1 is offered."""
    names: list[str | None] = []
    ends.server.sni_callback = lambda sock, name, context: names.append(name)
    with routed.app() as app:
        ask(app, "own-ca.test")
        with ends.tls.accept(ends.server) as peer:
            assert peer.read_request().one("host") == "own-ca.test"
            assert isinstance(peer.sock, ssl.SSLSocket)
            assert peer.sock.selected_alpn_protocol() == "http/1.1"
            assert names == ["localhost"]
            peer.send(reply(b"secret"))
            assert app.read_answer().body == b"secret"
            ask(app, "own-ca.test", "/again")
            assert peer.read_head().startswith(b"GET /again ")
            peer.send(OK)
            assert app.read_answer().status == 200
    ends.server.sni_callback = None


def test_sessions_are_resumed(routed: Proxy, ends: Ends) -> None:
    resumed = []
    for _ in range(3):
        with routed.app() as app:
            ask(app, "own-ca.test")
            with ends.tls.accept(ends.server) as peer:
                peer.read_request()
                assert isinstance(peer.sock, ssl.SSLSocket)
                resumed.append(peer.sock.session_reused)
                peer.send(reply(b"", "Connection: close"))
                assert app.read_answer().status == 200
    assert resumed[1:] == [True, True]


def refuses_to_talk(routed: Proxy, end: Upstream, context: ssl.SSLContext, host: str) -> str:
    """The handshake is broken off; nothing of the request is sent. What the app is told."""
    with routed.app() as app:
        ask(app, host, method="POST")
        for _ in range(2):  # a request that never left the proxy goes again, once
            with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
                peer = end.accept(context)
                if peer.rest() == b"":
                    raise ConnectionError
        answer = app.read_answer()
        assert answer.status == 502
        return answer.one("proxy-status") or ""


def test_a_certificate_that_nobody_vouches_for(routed: Proxy, ends: Ends) -> None:
    assert "error=tls_certificate_error" in refuses_to_talk(routed, ends.tls, ends.server, "system.test")


def test_a_certificate_of_another_name(routed: Proxy, ends: Ends) -> None:
    assert "error=tls_certificate_error" in refuses_to_talk(routed, ends.tls2, ends.server, "misnamed.test")


def test_a_certificate_that_nobody_looks_at(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "lax.test")
        with ends.tls2.accept(ends.server) as peer:
            peer.read_request()
            peer.send(OK)
            assert app.read_answer().status == 200


def test_a_client_certificate(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "mutual.test")
        with ends.mutual.accept(ends.demanding) as peer:
            assert isinstance(peer.sock, ssl.SSLSocket)
            shown = peer.sock.getpeercert()
            assert shown is not None
            assert shown["subject"] == ((("commonName", "a client"),),)
            peer.read_request()
            peer.send(OK)
            assert app.read_answer().status == 200


def test_no_client_certificate_where_one_is_asked_for(routed: Proxy, ends: Ends) -> None:
    assert "error=tls_" in refuses_to_talk(routed, ends.mutual, ends.demanding, "anonymous.test")


def test_no_client_certificate_where_tls_1_3_asks_for_one(routed: Proxy, ends: Ends, folder: Path) -> None:
    """The alert comes behind the handshake, and behind the request: it is told of, and the request not repeated."""
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demanding.load_cert_chain(folder / "server.pem")
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.minimum_version = ssl.TLSVersion.TLSv1_3
    with routed.app() as app:
        ask(app, "anonymous.test", method="POST")
        raw, _ = ends.mutual.listener.accept()
        with raw.dup() as rest, demanding.wrap_socket(raw, server_side=True, do_handshake_on_connect=False) as sock:
            with pytest.raises(ssl.SSLError):
                sock.do_handshake()
            while rest.recv(65536):  # a close with bytes unread would be a reset, and overtake the alert
                pass
        answer = app.read_answer()
        assert answer.status == 502
        said = answer.one("proxy-status") or ""
        assert "error=tls_alert_received; attempts=1; outcome=not_retryable" in said
        assert "certificate required" in said


def test_an_upstream_that_speaks_no_tls(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "clear.test", method="POST")
        for _ in range(2):
            with ends.clear.accept() as peer:
                assert peer.read(1) == b"\x16"
                peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                peer.rest()
        answer = app.read_answer()
        assert answer.status == 502
        said = answer.one("proxy-status") or ""
        assert "error=tls_protocol_error" in said
        assert "the TLS handshake failed: " in said  # OpenSSL's words follow, which differ from version to version


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_close_delimited_body_over_tls_needs_its_closure_alert(version: str, routed: Proxy, ends: Ends) -> None:
    """RFC 9112 section 9.8: without it the body is cut, whatever TCP says."""
    for polite in (True, False):
        with routed.app() as app:
            app.send(message(f"GET http://own-ca.test/x HTTP/{version}", "Host: own-ca.test"))
            with ends.tls.accept(ends.server) as peer:
                peer.read_request()
                peer.send(message("HTTP/1.1 200 OK") + b"hello")
                app.unread(app.read_until(b"hello"))
                assert isinstance(peer.sock, ssl.SSLSocket)
                if polite:
                    peer.sock.unwrap()
                else:
                    peer.sock.shutdown(socket.SHUT_RDWR)
                answer = app.read_answer()
                assert answer.body == b"hello"
                assert answer.whole is polite


@pytest.mark.parametrize(
    ("head", "begun"),
    [
        (message("HTTP/1.1 200 OK", "Content-Length: 10"), b"hello"),
        (message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), b"5\r\nhello\r\n"),
    ],
)
@pytest.mark.parametrize("polite", [True, False])
def test_a_body_that_is_cut_within_tls(head: bytes, begun: bytes, polite: bool, routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "own-ca.test")
        with ends.tls.accept(ends.server) as peer:
            peer.read_request()
            peer.send(head + begun)
            app.unread(app.read_until(b"hello"))
            assert isinstance(peer.sock, ssl.SSLSocket)
            if polite:
                peer.sock.unwrap()
            else:
                peer.sock.shutdown(socket.SHUT_RDWR)
            assert not app.read_answer().whole


# -- endpoints ------------------------------------------------------------------------------------------------------


def test_endpoints_take_turns_and_a_retry_goes_to_another(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        seen = []
        for number in range(4):
            ask(app, "pair.test", f"/{number}")
            for end, other in ((ends.one, ends.two), (ends.two, ends.one)):
                if end.listener in _readable(ends.one.listener, ends.two.listener):
                    seen.append(end.port)
                    with end.accept() as peer:
                        assert peer.read_request().one("host") == "pair.test"
                        peer.send(reply(b"", "Connection: close", status="503 S"))
                    with other.accept() as peer:
                        assert peer.read_request().one("x-attempt-count") == "2"
                        peer.send(reply(b"done", "Connection: close"))
                    break
            assert app.read_answer().body == b"done"
        assert set(seen) == {ends.one.port, ends.two.port}


def _readable(*listeners: socket.socket) -> list[socket.socket]:
    return select.select(listeners, [], [], 15)[0]


def test_an_endpoint_that_refuses_is_passed_over(routed: Proxy, ends: Ends) -> None:
    for _ in range(4):
        with routed.app() as app:
            ask(app, "half.test", method="POST")
            with ends.two.accept() as peer:
                assert peer.read_request().one("x-attempt-count") == "1"
                peer.send(reply(b"done", "Connection: close"))
                assert app.read_answer().body == b"done"


def test_a_unix_socket(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "sock.test", "/a//b?c")
        with ends.unix.accept() as peer:
            request = peer.read_request()
            assert request.line == b"GET /a//b?c HTTP/1.1"
            assert request.one("host") == "sock.test"
            peer.send(OK)
            assert app.read_answer().status == 200
            ask(app, "sock.test", "/again")
            peer.read_request()
            peer.close()
        with ends.unix.accept() as peer:  # it went stale in the moment of use
            assert peer.read_request().line == b"GET /again HTTP/1.1"
            peer.send(OK)
            assert app.read_answer().status == 200


def test_a_unix_socket_that_is_not_there(routed: Proxy) -> None:
    with routed.app() as app:
        ask(app, "no-sock.test")
        assert app.read_answer().status == 502


# -- denied ---------------------------------------------------------------------------------------------------------


def test_denied_unless_a_url_spells_it_out(routed: Proxy, ends: Ends) -> None:
    port = ends.named.port
    for host in ("127.0.0.3", "[::ffff:127.0.0.3]", "[::ffff:7f00:3]", "[64:ff9b::7f00:3]", "2130706435", "127.3"):
        for line in (f"GET http://{host}:{port}/ HTTP/1.1", f"CONNECT {host}:{port} HTTP/1.1"):
            with routed.app() as app:
                app.send(message(line, "Host: a"))
                answer = app.read_answer("CONNECT")
                assert answer.status == 403, line
                assert "error=destination_ip_prohibited" in (answer.one("proxy-status") or "")
    assert ends.named.untouched
    with routed.app() as app:
        ask(app, "named.test")
        with ends.named.accept() as peer:
            peer.read_request()
            peer.send(OK)
            assert app.read_answer().status == 200


# -- a parent proxy -------------------------------------------------------------------------------------------------

CREDENTIALS = b"Proxy-Authorization: Basic dXNlcjpwQHNz"


def test_a_parent_is_given_the_absolute_form(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        ask(app, "a.parented.test:8080", "/x//y?%2F|")
        with ends.parent.accept() as peer:
            request = peer.read_request()
            assert request.line == b"GET http://a.parented.test:8080/x//y?%2F| HTTP/1.1"
            assert request.one("host") == "a.parented.test:8080"
            assert CREDENTIALS in request.lines
            peer.send(OK)
            assert app.read_answer().status == 200
            app.send(message("OPTIONS http://a.parented.test:8080 HTTP/1.1", "Host: a.parented.test:8080"))
            assert peer.read_request().line == b"OPTIONS http://a.parented.test:8080 HTTP/1.1"  # RFC 9112 section 3.2.4
            peer.send(OK)
            assert app.read_answer().status == 200


def test_a_tunnel_through_a_parent(routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        app.send(message("CONNECT a.parented.test:443 HTTP/1.1", "Host: a.parented.test:443") + b"early")
        with ends.parent.accept() as peer:
            request = peer.read_request()
            assert request.line == b"CONNECT a.parented.test:443 HTTP/1.1"
            assert CREDENTIALS in request.lines
            assert peer.is_silent()
            peer.send(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nfirst")
            assert app.read_answer("CONNECT").status == 200
            assert app.read(5) == b"first"
            assert peer.read(5) == b"early"


@pytest.mark.parametrize("said", [reply(b"no", status="403 F"), b"nonsense\r\n\r\n", b"HTTP/1.1 200", b""])
def test_a_parent_that_opens_no_tunnel(said: bytes, routed: Proxy, ends: Ends) -> None:
    with routed.app() as app:
        app.send(message("CONNECT a.parented.test:443 HTTP/1.1", "Host: a.parented.test:443") + b"early")
        for _ in range(2):  # nothing of the app's left the proxy: it goes again, once
            with ends.parent.accept() as peer:
                peer.read_request()
                peer.send(said)
        assert app.read_answer("CONNECT").status == 502
        assert app.rest() == b""


# -- connections that rest ------------------------------------------------------------------------------------------


def test_resting_connections_are_few_and_do_not_rest_for_ever(routed: Proxy) -> None:
    """`max_idle` 2, `idle` 300ms: of five connections three are closed at once, the others in time, each with a FIN."""
    with Upstream() as upstream:
        apps = [routed.app() for _ in range(5)]
        for app in apps:
            app.send(get(upstream))
        peers = [upstream.accept() for _ in apps]
        for peer in peers:
            peer.read_request()
            peer.send(OK)
        for app in apps:
            assert app.read_answer().status == 200
        for peer in peers:
            assert peer.rest() == b""
        app.send(get(upstream, "/next"))
        with upstream.accept() as peer:
            assert peer.read_head().startswith(b"GET /next ")
        for app in apps:
            app.close()
