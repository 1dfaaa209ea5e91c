"""The local CA: what is written, what it may vouch for, and what strict clients say to its leaves."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from proxy.config.ca_limits import covers
from proxy.server.intercept import CaError
from proxy.server.intercept.ca import (
    Authority,
    Made,
    bundle_path,
    constraints,
    describe,
    init,
    load,
    refresh_bundle,
    subject_alternative,
)
from proxy.server.intercept.leaves import KEPT, LEAF_LIFE, Leaves
from proxy.server.intercept.roots import system_roots

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
#: Python 3.13's default; older ones have it as an option.
STRICT = ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN


def wall() -> float:
    return NOW.timestamp()


def today() -> datetime:
    return datetime.now(UTC)


def made(folder: Path, *hosts: str, now: datetime = NOW, **environ: str) -> Made:
    return init(folder / "ca/cert.pem", folder / "ca/key.pem", list(hosts), now, environ)


def authority(folder: Path, *hosts: str, now: datetime = NOW) -> Authority:
    files = made(folder, *hosts, now=now)
    return load(files.cert, files.key, now)


def leaves(folder: Path, *hosts: str) -> Leaves:
    """Leaves that are good today: a handshake reads the clock on the wall."""
    return Leaves(authority(folder, *hosts, now=today()), lambda: today().timestamp())


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A handshake in memory; raises what the client says of the certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [here, there]
    while pending:
        for end in list(pending):
            try:
                end.do_handshake()
                pending.remove(end)
            except ssl.SSLWantReadError:
                pass
    return here


def client(bundle: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= STRICT
    context.load_verify_locations(bundle)
    return context


# -- what init writes --------------------------------------------------------------------------------------------------


def test_the_files(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        files = made(tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.cert.stat().st_mode) == 0o644
    assert files.bundle == tmp_path / "ca/bundle.pem"
    assert sorted(path.name for path in files.cert.parent.iterdir()) == ["bundle.pem", "cert.pem", "key.pem"]


def test_others_can_read_the_bundle_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        files = made(tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(files.bundle.stat().st_mode) == 0o644


def test_the_certificate(tmp_path: Path) -> None:
    cert = authority(tmp_path).cert
    usage = cert.extensions.get_extension_for_class(x509.KeyUsage)
    basic = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    ski = cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    public = cert.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp256r1"
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert ski.digest[:4].hex() in cert.subject.rfc4514_string()
    assert cert.not_valid_before_utc == NOW - timedelta(hours=1)
    assert cert.not_valid_after_utc == NOW + timedelta(days=5 * 365)
    cert.verify_directly_issued_by(cert)


@pytest.mark.parametrize("there", ["key.pem", "cert.pem"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / there).write_text("mine")
    with pytest.raises(CaError, match=rf"{there} already exists and is left alone"):
        made(tmp_path)
    assert [path.name for path in (tmp_path / "ca").iterdir()] == [there]
    assert (tmp_path / "ca" / there).read_text() == "mine"


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca/key.pem").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaError, match="already exists"):
        made(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_left_clean(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("a file")
    with pytest.raises(CaError, match=r"ca: "):
        made(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/bundle.pem").mkdir()  # the last to be written
    with pytest.raises(CaError, match=r"bundle\.pem"):
        init(tmp_path / "other/cert.pem", tmp_path / "other/key.pem", [], NOW, {})
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["bundle.pem"]


# -- the bundle --------------------------------------------------------------------------------------------------------


def block(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----"


def test_the_bundle_has_the_roots_and_the_ca(tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_text(f"# one\n{block('AAAA')}\nnoise\n{block('BBBB')}\n{block('AAAA')}\n")
    files = made(tmp_path, SSL_CERT_FILE=str(roots))
    text = files.bundle.read_text()
    assert files.roots.blocks == (block("AAAA"), block("BBBB"))
    assert text.index("AAAA") < text.index("BBBB") < text.index(files.cert.read_text().strip())
    assert text.count("BEGIN") == 3


def test_a_bundle_of_ours_is_no_source(tmp_path: Path) -> None:
    """After eval "$(redrive env)" SSL_CERT_FILE names it."""
    files = made(tmp_path)
    text = files.bundle.read_text()
    files.bundle.write_text("")
    assert refresh_bundle(files.cert, {"SSL_CERT_FILE": str(files.bundle)}) == files.roots
    assert files.bundle.read_text() == text


def test_roots_from_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.server.intercept.roots.USUAL_FILES", ())
    nowhere = ssl.get_default_verify_paths()._replace(openssl_cafile=str(tmp_path / "no"), openssl_capath="/no")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs/a.pem").write_text(block("AAAA"))
    (tmp_path / "certs/b.0").write_text(block("BBBB"))
    (tmp_path / "certs/gone").symlink_to("/no")
    found = system_roots({"SSL_CERT_FILE": "/no", "SSL_CERT_DIR": str(tmp_path / "certs")}, tmp_path / "bundle.pem")
    assert found.blocks == (block("AAAA"), block("BBBB"))
    assert found.source == str(tmp_path / "certs")


# -- what is read ------------------------------------------------------------------------------------------------------


def write_key(path: Path, key: object, password: bytes | None = None) -> None:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)  # type: ignore[attr-defined]
    path.write_bytes(pem)


def test_what_is_wrong_with_a_ca(tmp_path: Path) -> None:
    cert, key = tmp_path / "ca/cert.pem", tmp_path / "ca/key.pem"

    def complaint(now: datetime = NOW) -> str:
        with pytest.raises(CaError) as caught:
            load(cert, key, now)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{tmp_path}/ca/")

    assert complaint() == "cert.pem: there is no local CA yet: redrive ca init"
    files = made(tmp_path)
    text, secret = files.cert.read_bytes(), files.key.read_bytes()
    assert complaint(NOW + timedelta(days=2000)).startswith("cert.pem: expired on 2031-11-19: remove it")
    cert.write_text("not a certificate")
    assert complaint() == "cert.pem: not a certificate in PEM"
    cert.write_bytes(text)
    key.write_text("not a key")
    assert complaint() == "key.pem: not a private key in PEM without a passphrase"
    write_key(key, ec.generate_private_key(ec.SECP256R1()), b"secret")
    assert complaint() == "key.pem: not a private key in PEM without a passphrase"
    write_key(key, ed25519.Ed25519PrivateKey.generate())
    assert complaint() == "key.pem: neither an EC nor an RSA key"
    write_key(key, ec.generate_private_key(ec.SECP256R1()))
    assert complaint() == f"key.pem: not the key of {cert}"
    key.unlink()
    assert complaint() == "key.pem: there is no local CA yet: redrive ca init"
    key.write_bytes(secret)
    leaf = Leaves(load(cert, key, NOW), wall)
    cert.write_bytes(leaf.mint("a.example", NOW).public_bytes(serialization.Encoding.PEM))
    write_key(key, leaf._key)
    assert complaint().startswith("cert.pem: not the certificate of a CA")


def test_show(tmp_path: Path) -> None:
    files = made(tmp_path, "api.example", "*.b.example:8443", "10.0.0.0/8")
    shown = dict(describe(files.cert, files.key, NOW))
    assert shown["key"] == f"{files.key} (only its owner can read it)"
    assert shown["for"] == "api.example, b.example, 10.0.0.0/8"
    assert shown["valid"] == "2026-11-20 to 2031-11-19 (1825 days left)"
    cert = x509.load_pem_x509_certificate(files.cert.read_bytes())
    assert shown["sha256"].replace(":", "").lower() == cert.fingerprint(hashes.SHA256()).hex()
    files.key.chmod(0o640)
    files.bundle.unlink()
    shown = dict(describe(files.cert, files.key, NOW + timedelta(days=2000)))
    assert "mode 0640: others can read it" in shown["key"]
    assert shown["bundle"].endswith("(missing)")
    assert shown["valid"].endswith("(expired)")


# -- name constraints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "yes", "no"),
    [
        (
            ["api.example"],
            ["api.example", "a.api.example", "API.example."],
            ["xapi.example", "example", "10.0.0.1", "::1"],
        ),
        (["*.b.example:8443"], ["b.example", "x.b.example"], ["c.example"]),
        (["10.0.0.0/8"], ["10.1.2.3"], ["11.0.0.1", "api.example", "::1"]),
        (["[::1]:8443", "127.0.0.1:1"], ["::1", "127.0.0.1"], ["::2", "127.0.0.2", "localhost"]),
        (["a.example", "10.0.0.1"], ["a.example", "10.0.0.1"], ["b.example", "10.0.0.2", "::1"]),
        (["bücher.example"], ["xn--bcher-kva.example"], ["a.example"]),
    ],
)
def test_whom_a_constrained_ca_is_for(tmp_path: Path, hosts: list[str], yes: list[str], no: list[str]) -> None:
    """What we say ourselves is what OpenSSL says."""
    limits = constraints(hosts)
    here = leaves(tmp_path, *hosts)
    trusting = client(bundle_path(tmp_path / "ca/cert.pem"))
    for host in yes:
        assert covers(limits, subject_alternative(host)), host
        assert shake(trusting, here.make(host).context, host.removesuffix("."))
    here._limits = None  # mint against the CA's own constraints
    for host in no:
        assert not covers(limits, subject_alternative(host)), host
        with pytest.raises(ssl.SSLCertVerificationError, match=r"permitted subtree|excluded subtree"):
            shake(trusting, here.make(host).context, host)


@pytest.mark.parametrize("text", ["", "a b", "-a", "*.*", "a..b", "https://a.example", "a/b", "x" * 64, "a.*"])
def test_what_a_ca_cannot_be_for(text: str) -> None:
    with pytest.raises(CaError, match="neither a host name"):
        constraints([text])


def test_a_name_that_the_ca_is_not_for(tmp_path: Path) -> None:
    here = Leaves(authority(tmp_path, "a.example"), wall)
    with pytest.raises(CaError, match=r"^the local CA is not for b.example: redrive ca init --for b.example makes one"):
        here.mint("b.example", NOW)


# -- leaves ------------------------------------------------------------------------------------------------------------

LONG = ".".join(["a" * 60] * 4)


@pytest.mark.parametrize("host", ["api.example", "127.0.0.1", "::1", "a_b.example", "localhost", LONG])
def test_a_strict_client_takes_a_leaf(tmp_path: Path, host: str) -> None:
    context = leaves(tmp_path).make(host).context
    trusting = client(bundle_path(tmp_path / "ca/cert.pem"))
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    assert shake(trusting, context, host).selected_alpn_protocol() == "http/1.1"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(trusting, context, "other.example")


def test_a_leaf(tmp_path: Path) -> None:
    here = Leaves(authority(tmp_path), wall)
    cert, other = here.mint("API.Example.", NOW), here.mint("[::1]", NOW)
    get = cert.extensions.get_extension_for_class
    assert get(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == ["api.example"]
    assert list(get(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not get(x509.BasicConstraints).value.ca
    assert get(x509.KeyUsage).value.digital_signature
    issuer = here._authority.cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert get(x509.AuthorityKeyIdentifier).value.key_identifier == issuer.digest
    assert get(x509.SubjectKeyIdentifier).value
    assert cert.not_valid_before_utc < NOW
    assert cert.not_valid_after_utc - NOW == LEAF_LIFE <= timedelta(days=90)
    assert cert.public_key() == other.public_key()
    assert cert.serial_number != other.serial_number
    cert.verify_directly_issued_by(here._authority.cert)


def test_a_leaf_never_outlives_its_ca(tmp_path: Path) -> None:
    here = authority(tmp_path)
    ends = here.cert.not_valid_after_utc
    assert Leaves(here, wall).mint("a.example", ends - timedelta(days=3)).not_valid_after_utc == ends
    assert Leaves(here, wall).mint("a.example", NOW).not_valid_before_utc >= here.cert.not_valid_before_utc
    with pytest.raises(CaError, match="the local CA expired on 2031-11-19"):
        Leaves(here, wall).mint("a.example", ends)


@pytest.mark.parametrize("host", ["", "a..b", "a b", "ä.example", "*.example", "fe80::1%eth0", "a" * 64, "x/y"])
def test_names_that_no_certificate_can_carry(tmp_path: Path, host: str) -> None:
    with pytest.raises(CaError, match="no certificate can be made"):
        Leaves(authority(tmp_path), wall).mint(host, NOW)


def test_a_ca_from_elsewhere(tmp_path: Path) -> None:
    """A company's RSA intermediate, with its chain: apps have the root alone."""
    now = today()
    root_key, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("root", "intermediate")]
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certs = []
    for name, public in zip(names, (root_key.public_key(), key.public_key()), strict=True):
        builder = x509.CertificateBuilder(names[0], name, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - LEAF_LIFE).not_valid_after(now + LEAF_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
        certs.append(builder.add_extension(issuer, critical=False).sign(root_key, hashes.SHA256()))
    root, chain = tmp_path / "root.pem", tmp_path / "chain.pem"
    root.write_bytes(certs[0].public_bytes(serialization.Encoding.PEM))
    chain.write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in reversed(certs)))
    write_key(tmp_path / "key.pem", key)
    here = Leaves(load(chain, tmp_path / "key.pem", now), lambda: today().timestamp())
    context = ssl.create_default_context(cafile=root)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shake(context, here.make("a.example").context, "a.example")


# -- what is kept ------------------------------------------------------------------------------------------------------


async def test_a_name_is_minted_once(tmp_path: Path) -> None:
    here = Leaves(authority(tmp_path), wall)
    first = await asyncio.gather(*(here.context("a.example") for _ in range(20)))
    assert len(set(map(id, first))) == 1
    assert here.minted == 1
    assert here.kept("a.example") is first[0]
    assert here.kept("b.example") is None
    assert await here.context("b.example") is not first[0]
    assert here.minted == 2


async def test_a_failure_is_told_to_all_who_wait_and_is_not_kept(tmp_path: Path) -> None:
    here = Leaves(authority(tmp_path, "a.example"), wall)
    told = await asyncio.gather(*(here.context("b.example") for _ in range(3)), return_exceptions=True)
    assert [isinstance(one, CaError) for one in told] == [True] * 3
    here._limits = None
    assert await here.context("b.example")


async def test_a_leaf_is_made_anew_before_it_expires(tmp_path: Path) -> None:
    clock = [NOW.timestamp()]
    here = Leaves(authority(tmp_path), lambda: clock[0])
    first = await here.context("a.example")
    clock[0] += (LEAF_LIFE * 0.6).total_seconds()
    assert await here.context("a.example") is first
    clock[0] += (LEAF_LIFE * 0.1).total_seconds()
    assert here.kept("a.example") is None
    assert await here.context("a.example") is not first


async def test_the_names_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.server.intercept.leaves.KEPT", 3)
    assert KEPT > 3
    here = Leaves(authority(tmp_path), wall)
    for name in "abc":
        await here.context(name)
    here.kept("a")
    await here.context("d")
    assert list(here._kept) == ["c", "a", "d"]
