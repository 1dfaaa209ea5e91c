"""The local CA: made once, kept in two files, read at start.

Law: the key's file is created with all of its content or not at all, is readable only by its owner from the first
moment, whatever the umask, and never replaces another file; the key is never printed. A file gets its name in one step,
when its content is complete.

The CA has an EC P-256 key (every TLS client of the last ten years accepts it, and it signs in a tenth of a
millisecond), may sign leaves but no CA below itself (`pathlen:0`), and has the extensions that strict verifiers require
(RFC 5280 section 4.2.1; OpenSSL's X509_V_FLAG_X509_STRICT, which Python sets from 3.13 on). A key and certificate from
elsewhere can be used as well: a company's intermediate, RSA or EC, followed by its chain in the same file. A name is
written into a certificate as one DNS name or one IP address, never as a wildcard, and only if it is a valid one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import stat
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import NameOID

from proxy.config.ca_limits import covers_all, limits_of
from proxy.server.intercept import CaError, NotForNameError
from proxy.server.intercept.roots import Roots, bundle_text, system_roots

#: How long a CA is valid: long enough that it is rarely replaced, yet a stolen key is not useful for ever.
CA_LIFE = timedelta(days=5 * 365)
#: How long before it is made a certificate becomes valid, for clients whose clocks are slow.
BACKDATED = timedelta(hours=1)

#: The password of the trust store, the same as that of Java's own.
TRUST_STORE_PASSWORD = b"changeit"

#: A name of RFC 1123 labels, with the underscore that real names have. Names are in ASCII (A-labels) on the wire.
_DNS = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)

#: A name that cannot exist (RFC 6761): a CA that permits only this DNS name is for none (RFC 5280 section 4.2.1.10).
NO_DNS = x509.DNSName("redrive.invalid")
ALL_ADDRESSES = tuple(x509.IPAddress(ipaddress.ip_network(net)) for net in ("0.0.0.0/0", "::/0"))

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign. `chain` is the issuing certificate and those above it, in the order of the file."""

    key: PrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def cert(self) -> x509.Certificate:
        """The certificate that signs leaves."""
        return self.chain[0]


@dataclass(frozen=True, slots=True)
class Made:
    """The files that were written for a new CA, and the root certificates that the CA's bundle contains."""

    cert: Path
    key: Path
    bundle: Path
    roots: Roots


def subject_alternative(host: str) -> x509.DNSName | x509.IPAddress:
    """The subject alternative name of a leaf. `host` is without port; brackets, a trailing dot and case do not
    matter.
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        if "%" not in bare:  # an IPv6 zone has a meaning on one machine only
            return x509.IPAddress(ipaddress.ip_address(bare))
    except ValueError:
        pass
    name = host.lower().removesuffix(".")
    if not _DNS.fullmatch(name):
        raise NotForNameError(f"no certificate can be made for the name {host!r}")
    return x509.DNSName(name)


def permitted(text: str) -> x509.DNSName | x509.IPAddress:
    """Read one value of `--for` as a name that the CA may issue certificates for: a host and its subdomains (a port or
    `*.` is ignored), an address, or a network. Raises CaError if `text` is none of them.
    """
    try:
        return x509.IPAddress(ipaddress.ip_network(text.removeprefix("[").removesuffix("]"), strict=False))
    except ValueError:
        pass
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        host = text
    host = host.removeprefix("[").removesuffix("]").removeprefix("*.").lower().removesuffix(".")
    try:
        return x509.IPAddress(ipaddress.ip_network(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _DNS.fullmatch(name):
        raise CaError(f"--for {text or repr(text)}: neither a host name, an address nor a network")
    return x509.DNSName(name)


def constraints(hosts: list[str]) -> x509.NameConstraints:
    """The name constraints of a CA that is only for these hosts. A kind of name that no permitted subtree mentions is
    not constrained at all (RFC 5280 section 4.2.1.10), so a CA for names excludes every address, and a CA for addresses
    permits only one name, which cannot exist.
    """
    subtrees = list(dict.fromkeys(permitted(host) for host in hosts))
    excluded = None
    if not any(isinstance(subtree, x509.IPAddress) for subtree in subtrees):
        excluded = list(ALL_ADDRESSES)
    if not any(isinstance(subtree, x509.DNSName) for subtree in subtrees):
        subtrees.append(NO_DNS)
    return x509.NameConstraints(permitted_subtrees=subtrees, excluded_subtrees=excluded)


def shown(subtree: x509.GeneralName) -> str:
    """A subtree of the name constraints as `redrive ca show` prints it."""
    return str(subtree.value)


def bundle_path(cert: Path) -> Path:
    """The path of the bundle, which is beside the CA's certificate."""
    return cert.with_name("bundle.pem")


def init(cert: Path, key: Path, hosts: list[str], now: datetime, environ: Mapping[str, str]) -> Made:
    """Make a CA and its bundle. Raises CaError if there is one already, or if the files cannot be written. `cert` and
    `key`: its files. The CA is only for `hosts` and their subdomains, or for any host if the list is empty. `now` has a
    time zone.
    """
    for path in (key, cert):
        if path.exists() or path.is_symlink():
            raise CaError(f"{path} already exists and is left alone: remove it by hand to make a new CA")
    made_key = ec.generate_private_key(ec.SECP256R1())
    made = _self_signed(made_key, hosts, now)
    try:
        for path in (key, cert):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_new(key, key_pem(made_key), 0o600)
        try:
            replace(cert, made.public_bytes(serialization.Encoding.PEM), 0o644)
            roots = refresh_bundle(cert, environ)
        except BaseException:
            key.unlink()
            cert.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CaError(f"{error.filename2 or error.filename}: {error.strerror}") from error
    return Made(cert, key, bundle_path(cert), roots)


def is_there(cert: Path, key: Path, hosts: list[str], now: datetime) -> bool:
    """Whether the files `cert` and `key` are a CA that can sign for all of `hosts` (for any host if the list is empty);
    False if neither file exists. Raises CaError if the CA in them cannot, or if only one of the files exists. `now` has
    a time zone.
    """
    if not any(path.exists() or path.is_symlink() for path in (cert, key)):
        return False
    limits = limits_of(load(cert, key, now).cert)
    missing = [host for host in hosts if not covers_all(limits, permitted(host))]
    if limits is not None and not hosts:
        missing = ["any host"]
    if missing:
        text = f"{cert} already exists and is not for {', '.join(missing)}"
        raise CaError(f"{text}: remove it and its key by hand to make a new CA")
    return True


def export(cert: Path, folder: Path, environ: Mapping[str, str]) -> tuple[list[Path], Roots]:
    """Write into `folder` the files that apps in other containers need: the certificate of the CA (whose file is
    `cert`), the bundle, and the bundle as a Java trust store. Return the files, and the roots that are in the bundle.
    `environ`: the environment variables, which may name the machine's roots. Raises CaError if they cannot be written.
    """
    own = load_chain(cert)
    roots = system_roots(environ, bundle_path(cert))
    pem = "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in own)
    contents = {
        "cert.pem": pem.encode("ascii"),
        "bundle.pem": bundle_text(roots, pem).encode("ascii"),
        "truststore.p12": _trust_store((*_readable(roots), *own)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            replace(folder / name, data, 0o644)
    except OSError as error:
        raise CaError(f"{error.filename2 or error.filename}: {error.strerror}") from error
    return [folder / name for name in contents], roots


def _readable(roots: Roots) -> Iterator[x509.Certificate]:
    """The roots that can be parsed: a few old ones break the rules of their format."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for block in roots.blocks:
            with contextlib.suppress(ValueError):
                yield x509.load_pem_x509_certificate(block.encode("ascii"))


def _trust_store(certificates: tuple[x509.Certificate, ...]) -> bytes:
    """Make a PKCS #12 file in which Java finds trusted certificates (it needs an attribute of its own on each). Its
    password is the one that every JDK's own store has, because it contains nothing secret.
    """
    unique = tuple(dict.fromkeys(certificates))
    named = [
        pkcs12.PKCS12Certificate(one, f"{number} {_common_name(one)}".encode()) for number, one in enumerate(unique)
    ]
    return pkcs12.serialize_java_truststore(named, serialization.BestAvailableEncryption(TRUST_STORE_PASSWORD))


def _common_name(certificate: x509.Certificate) -> str:
    """The name by which lists of certificates show this certificate."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string()


def refresh_bundle(cert: Path, environ: Mapping[str, str]) -> Roots:
    """Write the bundle of the CA whose certificate is the file `cert` again, from the roots that the machine trusts now
    (`environ`: the environment variables, which may name them); return these. The file is readable for every user,
    since apps run as other users.
    """
    roots, text = bundle(cert, environ)
    replace(bundle_path(cert), text.encode("ascii"), 0o644)
    return roots


def bundle(cert: Path, environ: Mapping[str, str]) -> tuple[Roots, str]:
    """The roots of the bundle for the CA whose certificate is the file `cert`, with their source, and the bundle's
    text. `environ`: the environment variables, which may name the machine's roots.
    """
    roots = system_roots(environ, bundle_path(cert))
    own = "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in load_chain(cert))
    return roots, bundle_text(roots, own)


def load(cert: Path, key: Path, now: datetime) -> Authority:
    """Read the CA from these files. Raises CaError, with a text of one line, if anything is wrong with it."""
    chain = load_chain(cert)
    try:
        found = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise CaError(_unreadable(key, error)) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: the key is encrypted
        raise CaError(f"{key}: not a private key in PEM without a passphrase") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise CaError(f"{key}: neither an EC nor an RSA key")
    if found.public_key() != chain[0].public_key():
        raise CaError(f"{key}: not the key of {cert}")
    if not _may_sign(chain[0]):
        raise CaError(f"{cert}: not the certificate of a CA (basicConstraints CA, keyUsage keyCertSign)")
    ends = chain[0].not_valid_after_utc
    if ends <= now:
        raise CaError(f"{cert}: expired on {ends:%Y-%m-%d}: remove it and its key, then redrive ca init")
    return Authority(found, chain)


def load_chain(cert: Path) -> tuple[x509.Certificate, ...]:
    """Read the certificates of the CA's file, at least one."""
    try:
        return tuple(x509.load_pem_x509_certificates(cert.read_bytes()))
    except OSError as error:
        raise CaError(_unreadable(cert, error)) from error
    except ValueError as error:
        raise CaError(f"{cert}: not a certificate in PEM") from error


def describe(cert: Path, key: Path, now: datetime) -> list[tuple[str, str]]:
    """The lines that `redrive ca show` prints, as label and value. Of the key, they show only its path and mode."""
    issuer = load_chain(cert)[0]
    limits = limits_of(issuer)
    subtrees = [one for one in limits.permitted_subtrees or () if one != NO_DNS] if limits is not None else []
    begins, ends = issuer.not_valid_before_utc, issuer.not_valid_after_utc
    left = f"{(ends - now).days} days left" if ends > now else "expired"
    beside = bundle_path(cert)
    return [
        ("certificate", str(cert)),
        ("key", f"{key} ({_key_state(key)})"),
        ("bundle", str(beside) if beside.exists() else f"{beside} (missing)"),
        ("subject", issuer.subject.rfc4514_string()),
        ("sha256", issuer.fingerprint(hashes.SHA256()).hex(":").upper()),
        ("valid", f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d} ({left})"),
        ("for", ", ".join(shown(subtree) for subtree in subtrees) or "any host"),
    ]


def key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    """A keyUsage with these bits and no other."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _self_signed(key: ec.EllipticCurvePrivateKey, hosts: list[str], now: datetime) -> x509.Certificate:
    ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # The name contains a digest of the key, so that people and verifiers can distinguish two CAs in one trust store.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "redrive"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"redrive local CA {ski.digest[:4].hex()}"),
        ]
    )
    builder = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(ski, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski), critical=False)
    )
    if hosts:
        builder = builder.add_extension(constraints(hosts), critical=True)
    return builder.sign(key, hashes.SHA256())


def _may_sign(cert: x509.Certificate) -> bool:
    try:
        if not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return cert.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid  # a CA without keyUsage may do anything (RFC 5280 section 4.2.1.3)


def _key_state(key: Path) -> str:
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
    except OSError:
        return "missing"
    return "only its owner can read it" if not mode & 0o077 else f"mode {mode:04o}: others can read it, chmod 600"


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key in PEM, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: there is no local CA yet: redrive ca init"
    return f"{path}: {error.strerror}"


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file with these permissions (`mode`). Raises FileExistsError, and changes nothing, if a file of this
    name exists.
    """
    draft = _draft(path, data, mode)
    try:
        os.link(draft, path)  # unlike a rename, this never replaces another file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise
        draft.rename(path)
        return
    finally:
        draft.unlink(missing_ok=True)


def replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file with these permissions (`mode`), in place of the one that may be there."""
    draft = _draft(path, data, mode)
    try:
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _draft(path: Path, data: bytes, mode: int) -> Path:
    """Write a temporary file with these permissions (`mode`) beside `path`; its content is on the disk when this
    returns.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft
