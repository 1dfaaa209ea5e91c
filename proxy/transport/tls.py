"""TLS towards upstreams: one context for each way to verify, with sessions kept and reused.

A context is made once and shared; what differs between connections (the name) is given when a connection is wrapped.
asyncio offers no way to pass a session, so the context itself adds it then. Compiled code (openssl_sessions.pyx) hands
it to OpenSSL; without that Python's `ssl` does, which costs as much as the rest of a resumed handshake. A session may
only be reused with the same context, and for the same server, that it was made under. The server is more than the name
that TLS asks for: another port of a host is another server, which knows nothing of the first one's sessions.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.client_certificate import load_client_certificate
from proxy.retry.policies.routing import Endpoint
from proxy.transport.faults import CertificateFileError

if TYPE_CHECKING:
    from proxy.transport.openssl_sessions import Connection, Session

#: The most sessions that are kept for each context; a session is a few KiB.
KEPT = 256
#: The most connections in a row whose session is not read, because earlier ones to the same server had no ticket.
UNREAD = 64


def _none() -> Connection | None:
    """Return None for every connection: what `last_made` does if compiled code is not available, so that Python's `ssl`
    sets and reads sessions.
    """
    return None


def _nothing() -> None:
    """Do nothing: what `forget` does if compiled code is not available."""


try:
    from proxy.transport.openssl_sessions import forget, last_made
except ImportError:
    forget, last_made = _nothing, _none


class _File:
    """A file of certificates or keys, with a digest of its contents when it was last read."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, ...] | None = None
        self._digest = b""
        self.has_changed()

    def has_changed(self) -> bool:
        """Whether the file's contents have changed; a file that was written again with the same contents, or touched,
        has not.
        """
        before = self._digest
        try:
            found = self._path.stat()
            stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            if stamp != self._stamp:
                self._stamp, self._digest = stamp, hashlib.blake2b(self._path.read_bytes()).digest()
        except OSError:
            self._stamp, self._digest = None, b""
        return self._digest != before


def session_key(endpoint: Endpoint, parent: str | None) -> str:
    """The key under which a `ResumingContext` keeps a session, a text that is given to TLS as the server's name: the
    name of the endpoint, a space, and everything else that distinguishes servers of that name. `parent`: the URL of the
    parent proxy, None for none. An event loop passes only a single text to `wrap_bio`, and exactly a `str`.
    """
    return f"{endpoint.host} {endpoint.port} {endpoint.unix or ''} {parent or ''}"


@dataclass(slots=True)
class KeptSession:
    """A session that is kept for a server. `used`: the number of connections that have resumed it. `once`: the server
    seems to take each session for one connection only.
    """

    session: ssl.SSLSession | Session
    used: int = 0
    once: bool = False


class ResumingObject(ssl.SSLObject):
    """A TLS connection of a `ResumingContext`. `native`: the same connection in OpenSSL, by which sessions are set and
    read without a copy of their certificates; None where that is not possible.
    """

    native: Connection | None = None

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return the peer's certificate as DER; None without `binary_form`. The event loop asks for its text after each
        handshake, which takes long to write, and which no code reads: OpenSSL has checked the certificate and names.
        """
        return super().getpeercert(True) if binary_form else None


class ResumingContext(ssl.SSLContext):
    """A client context that offers the TLS session kept last for the server (its key: `session_key`) that is connected
    to.

    Everything else that decides whether a session fits (trusted roots, the client certificate, ALPN) is the same for
    all connections of a context. `files` are those that the context was made from. The context is `stale` once their
    contents were found to have changed: connections that were made with it are then not what the configuration asks
    for. `without_ticket`: the servers whose latest session had no ticket and so can't be resumed; for each, how
    many connections are let pass before a session is read again, and how many of these are still to come.
    """

    sslobject_class = ResumingObject
    sessions: OrderedDict[str, KeptSession]
    without_ticket: OrderedDict[str, tuple[int, int]]
    files: tuple[_File, ...]
    stale: bool

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Wrap a connection, with the session that is kept for its server, whose key `server_hostname` is
        (`session_key`); TLS gets the name alone. The arguments are those of `ssl.SSLContext.wrap_bio`; a `session` that
        is given goes first.
        """
        kept: ssl.SSLSession | Session | None = None
        if isinstance(server_hostname, str):
            known = self.sessions.get(server_hostname)
            kept = None if known is None else known.session
            server_hostname = server_hostname.partition(" ")[0]
        if isinstance(kept, ssl.SSLSession):
            session = session or kept
        forget()
        wrapped = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(wrapped, ResumingObject)
        native = wrapped.native = last_made()
        if native is not None and kept is not None and session is None and not isinstance(kept, ssl.SSLSession):
            native.offer(kept)
        return wrapped

    def keep(self, key: str, wrapped: ssl.SSLObject) -> None:
        """Keep the session of the TLS connection `wrapped`, for the next ones to the server with this key. With TLS 1.3
        the session arrives only with data, so this is to be called after data has arrived.

        The newest session is kept if OpenSSL can be asked for it. Python's `ssl` reads a session by a copy of it,
        certificates included: half of what a resumed handshake costs. So there a session that was resumed stays, and is
        offered again (decision 0017), unless the server takes each only once. Where a server gives no tickets, ever
        fewer sessions are read: one of UNREAD connections in the end.
        """
        if isinstance(wrapped, ResumingObject) and wrapped.native is not None:
            newest = wrapped.native.session()
            if newest is not None:
                self._remember(key, KeptSession(newest))
            return
        kept = self.sessions.get(key)
        if wrapped.session_reused and kept is not None and not kept.once:
            kept.used += 1
            self.sessions.move_to_end(key)
            return
        unread, left = self.without_ticket.get(key, (0, 0))
        if left:
            self.without_ticket[key] = unread, left - 1
            return
        session = wrapped.session
        if session is not None and session.has_ticket:
            # Refused after one use: the server takes each only once. After more: the session has expired, say.
            once = kept is not None and (kept.once or kept.used == 1)
            self._remember(key, KeptSession(session, once=once))
            self.without_ticket.pop(key, None)
        else:
            unread = min(2 * unread + 1, UNREAD)
            self.without_ticket[key] = unread, unread
            if len(self.without_ticket) > KEPT:
                self.without_ticket.popitem(last=False)

    def _remember(self, key: str, session: KeptSession) -> None:
        self.sessions[key] = session
        self.sessions.move_to_end(key)
        if len(self.sessions) > KEPT:
            self.sessions.popitem(last=False)


def keep_session(transport: asyncio.BaseTransport, endpoint: Endpoint, parent: str | None) -> None:
    """Keep the session of a TLS connection to this endpoint, on which data has arrived. `parent`: the URL of the parent
    proxy that it goes through, None for none.
    """
    context = transport.get_extra_info("sslcontext")
    if isinstance(context, ResumingContext):
        context.keep(session_key(endpoint, parent), transport.get_extra_info("ssl_object"))


class Contexts:
    """The client contexts, by (verify, client certificate, protocol)."""

    def __init__(self) -> None:
        self._made: dict[tuple[bool | str, tuple[str, str] | None, str], ResumingContext] = {}

    def get(self, verify: bool | str, client_cert: tuple[str, str] | None, protocols: str) -> ResumingContext:
        """The context for this way to verify (as for `_make_context`) and this client certificate (the files of the
        certificate and its key, None for none), which offers `protocols` (separated by commas) by ALPN. Raises OSError
        if a file is missing, and CertificateFileError if TLS can't use it: faults of dialling.
        """
        key = (verify, client_cert, protocols)
        context = self._made.get(key)
        if context is None:
            try:
                context = self._made[key] = _make_context(*key)
            except ssl.SSLError as error:
                reason = error.reason.replace("_", " ").lower() if error.reason else "no certificate or key in PEM"
                raise CertificateFileError(reason) from error
        return context

    def refresh(self) -> None:
        """Replace the contexts whose files have changed; called after a reload. A context whose files TLS can't use now
        stays as it is: a certificate may have been replaced before its key.
        """
        for key, context in list(self._made.items()):
            changed = [file.has_changed() for file in context.files]
            if any(changed):
                try:
                    self._made[key] = _make_context(*key)
                except (OSError, ValueError):
                    continue
                context.stale = True


def _make_context(verify: bool | str, client_cert: tuple[str, str] | None, protocols: str) -> ResumingContext:
    """Make a context. `verify`: True for the system's roots, False for no verification, else the name of a CA file.
    `client_cert`: the files of the certificate and its key, in this order; None for no certificate. `protocols`: the
    names offered by ALPN, separated by commas.
    """
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sessions = OrderedDict()
    context.without_ticket = OrderedDict()
    # The files are read before they are loaded: a change in between is found at the next reload.
    roots = ssl.get_default_verify_paths().cafile if verify is True else verify or None
    context.files = tuple(_File(path) for path in (roots, *(client_cert or ())) if path is not None)
    context.stale = False
    context.set_alpn_protocols(protocols.split(","))
    # Only names in subjectAltName count (RFC 9110, section 4.3.4), not a common name.
    context.hostname_checks_common_name = False
    # Python sets this by default; without it, an end that TLS did not announce is distinguished from one that it did.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    # First, since each attempt loads files again that can't be used, and the system's roots take 18 ms of the loop.
    if client_cert is not None:
        load_client_certificate(context, *client_cert)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif verify is True:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=verify)
    return context
