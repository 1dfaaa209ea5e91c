"""Leaf certificates for the names that apps ask for, and the TLS contexts that present them.

A name's certificate is made once and kept while it is used; making one does not block the loop. Signing takes a tenth
of a millisecond, but OpenSSL needs almost as long again to read a key back from PEM, and Python's ssl reads it only
from a file; so leaves are made in a thread, and a leaf that is kept costs a look-up. The file is in memory if the
system has such files.

All leaves of a process share one key pair, which the process makes for itself and never stores: an attacker who can
read it from memory controls the process anyway. A leaf lives 30 days (public CAs are on the way to 47, clients refuse
more than 398), and a new one is made in its last third.
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

from proxy.config.ca_limits import covers, limits_of
from proxy.server.intercept import CaError, NotForNameError
from proxy.server.intercept.ca import (
    BACKDATED,
    Authority,
    key_pem,
    key_usage,
    shown,
    subject_alternative,
)

LEAF_LIFE = timedelta(days=30)
#: The most contexts that are kept; one is about 20 KiB, and a glob such as *.amazonaws.com stands for many names.
KEPT = 512
#: RFC 5280's upper bound for a common name.
_LONGEST_COMMON_NAME = 64


class LeafContext(ssl.SSLContext):
    """A server's TLS context that presents the leaf of `host`."""

    host: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A TLS context that presents a leaf certificate, and the time (seconds since the epoch) at which a new leaf is
    due.
    """

    context: LeafContext
    renew: float


class Leaves:
    """The TLS contexts of one CA, by name. `wall` gives seconds since the epoch."""

    __slots__ = (
        "_asked", "_authority", "_flying", "_kept", "_key", "_key_pem", "_limits", "_listener", "_wall",
        "minted",
    )  # fmt: skip

    def __init__(self, authority: Authority, wall: Callable[[], float]) -> None:
        self._authority = authority
        self._limits = limits_of(authority.cert)
        self._wall = wall
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_pem = key_pem(self._key)
        self._kept: OrderedDict[str, Leaf] = OrderedDict()
        self._flying: dict[str, asyncio.Task[Leaf]] = {}
        self._asked = ""  # the name in the last ClientHello that `_listener` read
        self._listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # only reads the name, and breaks the handshake off
        self._listener.sni_callback = self._hear
        self.minted = 0

    def kept(self, host: str) -> LeafContext | None:
        """The context for this host; None if there is none, or if its leaf is due to be replaced."""
        found = self._kept.get(host)
        if found is None or self._wall() >= found.renew:
            return None
        self._kept.move_to_end(host)
        return found.context

    async def context(self, host: str) -> LeafContext:
        """The context for this host; if none is kept, it is made in a thread. Raises CaError if it cannot be made."""
        found = self.kept(host)
        if found is not None:
            return found
        making = self._flying.get(host)
        if making is None:
            making = self._flying[host] = asyncio.get_running_loop().create_task(self._make_in_thread(host))
        return (await asyncio.shield(making)).context

    async def prepare(self, host: str, hello: bytes) -> None:
        """Make the leaf for the name that `hello`, a ClientHello as it came, asks for, if that is not `host`. Otherwise
        the name would be known only in the middle of the handshake, where a leaf can be made only by blocking the loop.
        """
        name = self._name_in(hello)
        if name and name != host.lower():
            with contextlib.suppress(CaError):  # the app is shown the leaf of the CONNECT's host instead
                await self.context(name)

    def _name_in(self, hello: bytes) -> str:
        """The name in a ClientHello, in lower case; "" if it has none, or is not complete."""
        self._asked = ""
        incoming = ssl.MemoryBIO()
        incoming.write(hello)
        with contextlib.suppress(ssl.SSLError):
            self._listener.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
        return self._asked

    def _hear(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int:
        self._asked = "" if name is None else name.lower()
        return ssl.ALERT_DESCRIPTION_USER_CANCELLED  # break off: the name is all that is needed

    def make(self, host: str) -> Leaf:
        """Make a leaf and its context. Blocks for about a millisecond; may be called from any thread."""
        now = datetime.fromtimestamp(self._wall(), UTC)
        cert = self.mint(host, now)
        context = LeafContext(ssl.PROTOCOL_TLS_SERVER)
        context.host = host.lower()
        # In the order of preference: HTTP/2 is used only with clients that offer nothing else, such as gRPC's.
        context.set_alpn_protocols(["http/1.1", "h2"])
        # The certificates between the leaf and a root. A root is not sent: a client that trusts it already has it.
        above = [each for each in self._authority.chain if each.subject != each.issuer]
        _load(context, b"".join([_pem(cert), *map(_pem, above), self._key_pem]))
        good_for = (cert.not_valid_after_utc - now) * 2 / 3
        return Leaf(context, (now + good_for).timestamp())

    def mint(self, host: str, now: datetime) -> x509.Certificate:
        """Sign a leaf for this host. Raises CaError if the CA is not for this name, or has expired."""
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
        # The common name is for people; verifiers read the alternative name. An address is left out, because verifiers
        # would check it against the CA's constraints for DNS names.
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
        """Present, in the handshake `tls`, the leaf for the `name` that the app asks for (None for none), if the CA is
        for that name. OpenSSL calls this in the middle of a handshake, so a leaf that was not prepared (the hello came
        in pieces) is made here, blocking the loop.
        """
        if name is None or name.lower() == cast(LeafContext, context).host:
            return
        chosen = self.kept(name.lower())
        if chosen is None:
            try:
                leaf = self.make(name.lower())
            except CaError:
                return  # the app is shown the leaf of the CONNECT's host instead
            self._keep(name.lower(), leaf)
            chosen = leaf.context
        tls.context = chosen

    async def _make_in_thread(self, host: str) -> Leaf:
        """Make a leaf without blocking the loop. The leaf is kept before its waiters have it: a done callback could run
        after them, as with Python 3.14, whose executor's future may be done at once.
        """
        try:
            leaf = await asyncio.get_running_loop().run_in_executor(None, self.make, host)
        finally:
            del self._flying[host]
        self._keep(host, leaf)
        return leaf

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
    """Load a chain and its key, `pem`, into a context, through a file, since Python's ssl reads them only from one."""
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
    with tempfile.NamedTemporaryFile() as file:  # readable only by its owner
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
