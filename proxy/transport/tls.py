"""TLS towards upstreams: one context for each way to verify, sessions kept and used again.

Law: a context is made once and shared; what differs from connection to connection (the name) is given when it wraps.
asyncio offers no way to hand a session in, so the context itself does it where a connection is wrapped: a session may
only be used again with the very context, and for the very name, that it was made under.
"""

from __future__ import annotations

import ssl
from collections import OrderedDict

#: Sessions kept for each context; a session is a few KiB.
KEPT = 256


class ResumingContext(ssl.SSLContext):
    """A client context that offers the last session of a name."""

    sessions: OrderedDict[str, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Wrap, with the session that is kept for this name."""
        if session is None and isinstance(server_hostname, str):
            session = self.sessions.get(server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep(self, name: str, wrapped: ssl.SSLObject) -> None:
        """Keep the session of a connection. With TLS 1.3 it is there only after data came, so ask late."""
        session = wrapped.session
        if session is not None and session.has_ticket:
            self.sessions.pop(name, None)
            self.sessions[name] = session
            if len(self.sessions) > KEPT:
                self.sessions.popitem(last=False)


class Contexts:
    """The client contexts, by (verify, client certificate)."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[tuple[bool | str, tuple[str, str] | None], ResumingContext] = {}

    def get(self, verify: bool | str, client_cert: tuple[str, str] | None) -> ResumingContext:
        """The context. Raises OSError or ssl.SSLError where a file is missing or bad: a fault of dialling."""
        key = (verify, client_cert)
        context = self._made.get(key)
        if context is None:
            context = self._made[key] = make_context(verify, client_cert)
        return context

    def clear(self) -> None:
        """After a reload: files may have changed."""
        self._made.clear()


def make_context(verify: bool | str, client_cert: tuple[str, str] | None) -> ResumingContext:
    """`verify`: the system's roots, nothing, or the CA file named."""
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sessions = OrderedDict()
    context.set_alpn_protocols(["http/1.1"])
    # A name stands in subjectAltName, or nowhere (RFC 9110, section 4.3.4): a common name alone is not believed.
    context.hostname_checks_common_name = False
    # Python sets this by default; without it, an end that TLS did not announce is told from one that it did.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif verify is True:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=verify)
    if client_cert is not None:
        context.load_cert_chain(*client_cert)
    return context
