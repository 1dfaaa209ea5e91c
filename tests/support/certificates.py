"""A certificate authority for one test run, and a server certificate for localhost and 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """`ca` is the root's file; `server` is a context that serves localhost."""

    ca: Path
    server: ssl.SSLContext


def make(folder: Path, *, alternative: bool = True) -> Authority:
    """`alternative`: the server's name stands in subjectAltName too, not as common name alone."""
    now = datetime.datetime.now(datetime.UTC)
    root_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test root")])

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(root_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = (
        builder(root_name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), leaf_key).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False
    )
    leaf = (leaf.add_extension(names, critical=False) if alternative else leaf).sign(root_key, hashes.SHA256())
    ca, chain = folder / "ca.pem", folder / "server.pem"
    ca.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    key = leaf_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(key + leaf.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return Authority(ca, context)
