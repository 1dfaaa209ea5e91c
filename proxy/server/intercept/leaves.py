"""Leaf certificates for the names that apps ask for, and the TLS contexts that present them.

A name's certificate is made once and kept while it is used; making one does not stall the loop. Signing takes a tenth
of a millisecond, but OpenSSL takes almost another to read a key back from PEM, and Python's ssl reads it only from a
file; so it is done in a thread, and a name that is kept costs a look-up. The file is one in memory if the system has
such files.

All leaves share one key pair, made by every process for itself and never stored: anyone who has it controls this
process anyway. A leaf lives 30 days (public CAs are on the way to 47, clients refuse more than 398), and a new one is
made in its last third.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.server.intercept import CaError, NotForNameError
from proxy.server.intercept.ca import (
    BACKDATED,
    Authority,
    covers,
    key_pem,
    key_usage,
    limits_of,
    shown,
    subject_alternative,
)

LEAF_LIFE = timedelta(days=30)
#: Contexts kept; one is about 20 KiB, and a glob such as *.amazonaws.com stands for many names.
KEPT = 512
#: RFC 5280's upper bound for a common name.
_LONGEST_COMMON_NAME = 64


class LeafContext(ssl.SSLContext):
    """A server's context that shows the leaf of `host`."""

    host: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A context that shows a leaf, and when (seconds since the epoch) another one is due."""

    context: LeafContext
    renew: float


class Leaves:
    """The TLS contexts of one CA, by name. `wall` gives seconds since the epoch."""

    __slots__ = (
        "_asked",
        "_authority",
        "_flying",
        "_kept",
        "_key",
        "_key_pem",
        "_limits",
        "_listener",
        "_wall",
        "minted",
    )

    def __init__(self, authority: Authority, wall: Callable[[], float]) -> None:
        self._authority = authority
        self._limits = limits_of(authority.cert)
        self._wall = wall
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_pem = key_pem(self._key)
        self._kept: OrderedDict[str, Leaf] = OrderedDict()
        self._flying: dict[str, asyncio.Future[Leaf]] = {}
        self._asked = ""  # the name that was asked for last
        self._listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # hears names, and shakes no hands
        self._listener.sni_callback = self._hear
        self.minted = 0

    def kept(self, host: str) -> LeafContext | None:
        """The context for this host, where there is one that is still good."""
        found = self._kept.get(host)
        if found is None or self._wall() >= found.renew:
            return None
        self._kept.move_to_end(host)
        return found.context

    async def context(self, host: str) -> LeafContext:
        """The context for this host, made in a thread where it is not kept. Raises CaError where it cannot be made."""
        found = self.kept(host)
        if found is not None:
            return found
        making = self._flying.get(host)
        if making is None:
            loop = asyncio.get_running_loop()
            making = self._flying[host] = loop.run_in_executor(None, self.make, host)
            making.add_done_callback(lambda future: self._made(host, future))
        return (await asyncio.shield(making)).context

    async def prepare(self, host: str, hello: bytes) -> None:
        """Have the leaf at hand for the name that this ClientHello asks for, where that is not `host`: asked in the
        middle of a handshake, it would have to be made on the spot.
        """
        name = self._name_in(hello)
        if name and name != host.lower():
            with contextlib.suppress(CaError):  # the app hears of the CONNECT's own
                await self.context(name)

    def _name_in(self, hello: bytes) -> str:
        """The name in a ClientHello, in lower case; "" where it has none, or is not whole."""
        self._asked = ""
        incoming = ssl.MemoryBIO()
        incoming.write(hello)
        with contextlib.suppress(ssl.SSLError):
            self._listener.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
        return self._asked

    def _hear(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int:
        self._asked = "" if name is None else name.lower()
        return ssl.ALERT_DESCRIPTION_USER_CANCELLED  # that was all

    def make(self, host: str) -> Leaf:
        """Mint a leaf and make its context. Blocks for about a millisecond; from any thread."""
        now = datetime.fromtimestamp(self._wall(), UTC)
        cert = self.mint(host, now)
        context = LeafContext(ssl.PROTOCOL_TLS_SERVER)
        context.host = host.lower()
        # In the order of preference: only clients that offer nothing else speak HTTP/2, which gRPC's are.
        context.set_alpn_protocols(["http/1.1", "h2"])
        # What a client needs between the leaf and a root: roots themselves it has, or they are worth nothing.
        above = [each for each in self._authority.chain if each.subject != each.issuer]
        _load(context, b"".join([_pem(cert), *map(_pem, above), self._key_pem]))
        good_for = (cert.not_valid_after_utc - now) * 2 / 3
        return Leaf(context, (now + good_for).timestamp())

    def mint(self, host: str, now: datetime) -> x509.Certificate:
        """A leaf for this host. Raises CaError where the CA may not vouch for it, or has expired."""
        name, issuer = subject_alternative(host), self._authority.cert
        if not covers(self._limits, name):
            raise NotForNameError(
                f"the local CA is not for {shown(name)}: redrive ca init --for {shown(name)} makes one that is"
            )
        if now >= issuer.not_valid_after_utc:
            raise CaError(
                f"the local CA expired on {issuer.not_valid_after_utc:%Y-%m-%d}: redrive ca init makes another"
            )
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "redrive")]
        # For people; verifiers read the alternative name. An address here would be held against the CA's DNS names.
        if isinstance(name, x509.DNSName) and len(name.value) <= _LONGEST_COMMON_NAME:
            subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name.value))
        public = self._key.public_key()
        builder = (
            x509.CertificateBuilder(issuer.subject, x509.Name(subject), public, x509.random_serial_number())
            .not_valid_before(max(now - BACKDATED, issuer.not_valid_before_utc))
            .not_valid_after(min(now + LEAF_LIFE, issuer.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_issuer_key(self._authority), critical=False)
        )
        return builder.sign(self._authority.key, hashes.SHA256())

    def _choose(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Show the leaf for the name that the app asks for, where the CA may vouch for it. It is asked in the middle of
        a handshake, so one that was not prepared (the hello came in pieces) is made on the spot.
        """
        if name is None or name.lower() == cast(LeafContext, context).host:
            return
        chosen = self.kept(name.lower())
        if chosen is None:
            try:
                leaf = self.make(name.lower())
            except CaError:
                return  # the app hears of the CONNECT's own
            self._keep(name.lower(), leaf)
            chosen = leaf.context
        tls.context = chosen

    def _made(self, host: str, future: asyncio.Future[Leaf]) -> None:
        del self._flying[host]
        if future.cancelled() or future.exception() is not None:
            return
        self._keep(host, future.result())

    def _keep(self, host: str, leaf: Leaf) -> None:
        self.minted += 1
        leaf.context.sni_callback = self._choose
        self._kept[host] = leaf
        self._kept.move_to_end(host)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _issuer_key(authority: Authority) -> x509.AuthorityKeyIdentifier:
    try:
        ski = authority.cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski)


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Hand a chain and its key to a context; Python's ssl takes them from a file alone."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("leaf")
        try:
            os.write(handle, pem)
            context.load_cert_chain(f"/proc/self/fd/{handle}")
            return
        except FileNotFoundError:  # no /proc
            pass
        finally:
            os.close(handle)
    with tempfile.NamedTemporaryFile() as file:  # for its owner alone
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
