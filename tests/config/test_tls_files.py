"""Certificate files that TLS can't use are said when the configuration is loaded, not by the first failed call."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from configs import lines, loaded
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization import load_pem_private_key as read_key
from support.certificates import make

from proxy.server.intercept.ca import init
from proxy.transport.faults import CertificateFileError, dialling
from proxy.transport.tls import Contexts, ResumingContext


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two authorities with a server certificate and its key each, the key encrypted too, and a file without PEM."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make(tmp_path / name)
    key = read_key((tmp_path / "one/server.pem").read_bytes(), None)
    hidden = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "hidden.pem").write_bytes(hidden)
    (tmp_path / "junk.pem").write_text("hello")
    return tmp_path


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("verify: junk.pem", "verify: warning: junk.pem has no certificate in PEM"),
        (
            "client_cert: {cert: junk.pem, key: one/server.pem}",
            "client_cert: warning: junk.pem has no certificate in PEM",
        ),
        ("client_cert: {cert: one/ca.pem, key: junk.pem}", "client_cert: warning: junk.pem has no private key in PEM"),
        (
            "client_cert: {cert: one/server.pem, key: two/server.pem}",
            "client_cert: warning: two/server.pem is not the key of one/server.pem",
        ),
        (
            "client_cert: {cert: one/server.pem, key: hidden.pem}",
            "client_cert: warning: hidden.pem is encrypted: decrypt it with openssl pkey -in hidden.pem -out FILE",
        ),
        ("verify: one/ca.pem, client_cert: {cert: one/server.pem, key: one/server.pem}", ""),
    ],
)
def test_a_file_that_tls_cannot_use_is_told_once_with_its_place(folder: Path, setting: str, fault: str) -> None:
    text = f"upstreams:\n  a: {{url: ['http://a.test', 'https://a.test'], {setting}}}\n  b: {{url: 'http://b.test'}}\n"
    result = loaded(folder, text)
    assert result.settings is not None  # its other upstreams are served
    said = lines(folder, result, "warning")
    assert len(said) == (1 if fault else 0)
    if fault:
        assert said[0].startswith("redrive.yaml:2:")
        assert said[0].endswith(f"upstreams.a.{fault}; no connection can be made with it")


def test_a_file_of_a_route_is_told_with_the_route(folder: Path) -> None:
    routes = "[{match: {path: /a}, verify: junk.pem}, {match: {path: /b}, verify: one/ca.pem}, {match: {path: /c}}]"
    result = loaded(folder, f"upstreams:\n  a: {{url: 'https://a.test', verify: two/ca.pem, routes: {routes}}}\n")
    (said,) = lines(folder, result, "warning")
    assert said.startswith("redrive.yaml:2:")
    assert "upstreams.a.routes[0].verify: warning: junk.pem has no certificate in PEM; no connection " in said


@pytest.mark.parametrize(("url", "where"), [("https", "upstreams.a"), ("http", "defaults")])
def test_a_file_of_the_defaults_is_told_once(folder: Path, url: str, where: str) -> None:
    """Calls to hosts that no upstream names use it, too."""
    result = loaded(folder, f"defaults: {{verify: junk.pem}}\nupstreams: {{a: {{url: '{url}://a.test'}}}}\n")
    (said,) = lines(folder, result, "warning")
    assert f"{where}.verify: warning: junk.pem has no certificate in PEM; no connection " in said


def test_a_local_ca_that_cannot_be_used_is_told(folder: Path) -> None:
    ca = "ca: {cert: junk.pem, key: one/server.pem}\n"
    result = loaded(folder, f"{ca}upstreams: {{a: {{url: 'https://a.test', connect: intercept}}}}\n")
    (said,) = lines(folder, result, "warning")
    assert "upstreams.a.connect: warning: needs the local CA, and junk.pem has no certificate in PEM" in said


def test_a_local_ca_that_only_openssl_reads_is_told(tmp_path: Path) -> None:
    """`TRUSTED CERTIFICATE` is a label of OpenSSL's own, which the package cryptography does not know."""
    cert, key = tmp_path / "ca/cert.pem", tmp_path / "ca/key.pem"
    init(cert, key, ["a.test"], datetime.now(UTC), {})
    cert.write_text(cert.read_text().replace("BEGIN C", "BEGIN TRUSTED C").replace("END C", "END TRUSTED C"))
    result = loaded(tmp_path, "upstreams: {a: {url: 'https://b.test', connect: intercept}}\n")
    (said,) = lines(tmp_path, result, "warning")
    assert "needs the local CA, and ca/cert.pem has no certificate that can be read" in said


@pytest.mark.parametrize(
    ("made_for", "hosts", "missing"),
    [
        ([], "[a.test, '*']", ""),
        (["a.test"], "[a.test, b.a.test, '*.a.test']", ""),
        (["a.test", "10.0.0.0/8"], "[a.test, 10.1.2.3, 11.0.0.1]", "11.0.0.1"),
        (["a.test"], "[a.test, b.test, '*.test', '*', 127.0.0.1, ca.test]", "b.test, *.test, *, 127.0.0.1, ca.test"),
    ],
)
def test_hosts_that_the_local_ca_is_not_for_are_told(
    tmp_path: Path, made_for: list[str], hosts: str, missing: str
) -> None:
    cert, key = tmp_path / "ca/cert.pem", tmp_path / "ca/key.pem"
    init(cert, key, made_for, datetime.now(UTC), {})
    result = loaded(tmp_path, f"upstreams: {{a: {{url: 'https://a.test', hosts: {hosts}, connect: intercept}}}}\n")
    said = lines(tmp_path, result, "warning")
    assert len(said) == bool(missing)
    assert all(
        f"upstreams.a.connect: warning: the local CA, ca/cert.pem, is not for {missing}, so" in each for each in said
    )


@pytest.mark.parametrize(
    ("verify", "key", "why"),
    [
        ("junk.pem", "one/server.pem", "no certificate or crl found"),
        ("one/ca.pem", "hidden.pem", "the key is encrypted"),
    ],
)
def test_a_connection_that_needs_such_a_file_says_so_and_asks_no_terminal(
    folder: Path, verify: str, key: str, why: str
) -> None:
    with pytest.raises(CertificateFileError) as caught:
        Contexts().get(str(folder / verify), (str(folder / "one/server.pem"), str(folder / key)), "http/1.1")
    assert dialling(caught.value).detail == f"the files of verify or client_cert can't be used: {why}"


def test_a_client_certificate_that_cannot_be_used_does_not_have_all_roots_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt tries the files again, and to read the system's roots would hold up all calls meanwhile."""
    read = list[object]()
    monkeypatch.setattr(ResumingContext, "load_default_certs", lambda self: read.append(self))
    contexts, pair = Contexts(), (str(folder / "one/server.pem"), str(folder / "junk.pem"))
    for _ in range(2):
        with pytest.raises(CertificateFileError):
            contexts.get(True, pair, "http/1.1")
    assert not read
    contexts.get(True, (pair[0], pair[0]), "http/1.1")
    assert len(read) == 1
