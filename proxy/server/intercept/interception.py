"""Interception on the proxy port: redrive answers a CONNECT itself, terminates TLS, and reads on from the same
connection.

Cleartext HTTP after the CONNECT makes calls as well. The leaf is for the name that the app's TLS handshake asks for.

A CONNECT that cannot be intercepted is refused with the remedy, never tunnelled, because its upstream's calls are meant
to be retried. If an app does not trust the CA, the log says so once for each host, with what to do.

Law: every byte reaches the right reader. Bytes that the app sent right after its CONNECT were read before there was
TLS: they are fed to the TLS layer before anything else. Bytes that it sends right after its handshake are decrypted
before asyncio reports that the handshake is over: a stand-in keeps them. asyncio's `start_tls` (uvloop's too) makes its
TLS layer the transport's protocol in its first step, and puts the start of the handshake and the resumption of reading
into the loop's queue; a callback that is queued after them runs after them and before the first read. The layer is a
`BufferedProtocol`, which is how bytes are fed to it.

The CA is read when a configuration is loaded, and, as long as something is wrong with it, again at most once a second:
`redrive ca init` needs no restart. If the files are unchanged, the leaves are kept.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from proxy.config.settings import CertificateAuthority, Settings
from proxy.process import Background
from proxy.retry.policies.routing import split_authority
from proxy.server.intercept import CaError, intercepts, needed
from proxy.server.routing import Inside
from proxy.transport.clock import monotonic, wall

if TYPE_CHECKING:
    from proxy.server.intercept.leaves import LeafContext, Leaves

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nX-Attempt-Count: 0\r\n\r\n"
#: Seconds that an app has for its part of the handshake.
HANDSHAKE = 10.0
#: Seconds that an app has to answer our close_notify when TLS ends.
FAREWELL = 2.0
#: Seconds between attempts to read the CA's files while something is wrong with them.
AGAIN = 1.0
#: The most failures of handshakes, by kind and authority, that are reported.
MOST_REPORTED = 1000

#: OpenSSL's names of alerts by which a client says that it does not accept the certificate.
_DISTRUST = ("UNKNOWN_CA", "CERTIFICATE", "DECRYPT_ERROR", "ACCESS_DENIED")
#: OpenSSL's names of errors for bytes that are not TLS.
_NO_TLS = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")

Notify = Callable[..., None]


class Secured(Protocol):
    """The app's connection, as interception sees it on its way from cleartext to TLS."""

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Stop reading. Return the transport, and the bytes that were read after the CONNECT."""

    def take_back(self, early: bytes) -> None:
        """Read on as before the CONNECT, which is refused. `early` are the bytes that were read after it."""

    def take_inside(self, early: bytes, inside: Inside, secure: Callable[[bytes], None]) -> None:
        """Read on after the answer to the CONNECT (`inside`), first the bytes `early`, which had come before it. If the
        bytes are not cleartext HTTP, they are TLS: `secure` is called with them.
        """

    def take_over(self, tls: asyncio.Transport, inside: Inside) -> None:
        """Read the requests inside TLS, from the transport `tls`: the handshake has succeeded."""

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection ended before TLS was ready."""


class Interception:
    """The local CA in force, and the connections whose handshakes are in progress. `notify` reports to the operator."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._of: CertificateAuthority | None = None
        self._files: tuple[bytes, bytes] | None = None  # the content of the certificate's and the key's file
        self._leaves: Leaves | None = None
        self._look_again = 0.0
        self._beside = Background()
        self._reported: set[tuple[str, str]] = set()
        self.problem = ""

    def use(self, settings: Settings) -> None:
        """Apply a configuration. A problem with its CA is reported, and affects nothing but interception."""
        self._reported.clear()
        if not intercepts(settings):
            self._of = self._leaves = self._files = None
            self.problem = ""
            return
        self._of = settings.ca
        self._read()
        if self.problem:
            self._notify("interception", [f"nothing can be intercepted: {self.problem}"], error=self.problem)

    def begin(self, connection: Secured, authority: str, refuse: Callable[[CaError], None]) -> None:
        """Begin TLS for the authority that a connection's CONNECT names. If that is not possible, call `refuse` with
        the reason.
        """
        if self._leaves is None and monotonic() >= self._look_again:
            self._read()
        if self._leaves is None:
            refuse(CaError(self.problem))
            return
        self._beside.begin(self._answer(connection, authority, refuse, self._leaves))

    async def ended(self) -> None:
        """Cancel the handshakes in progress, and wait until they have ended; their connections are closed already."""
        self._beside.cancel()
        await asyncio.gather(*self._beside.tasks, return_exceptions=True)

    async def _answer(
        self, connection: Secured, authority: str, refuse: Callable[[CaError], None], leaves: Leaves
    ) -> None:
        """Answer the CONNECT as soon as `leaves` has a leaf for the authority's host; if none can be made, call
        `refuse` with the reason.
        """
        named = split_authority(authority, 443)
        assert named is not None  # a CONNECT with a malformed authority was refused earlier
        transport, early = connection.hand_over()
        try:
            context = await leaves.context(named[0])
        except CaError as error:
            connection.take_back(early)
            refuse(error)
            return
        if not transport.is_closing():
            transport.write(ESTABLISHED)

            def secure(hello: bytes) -> None:
                transport, _ = connection.hand_over()  # at once: the TLS layer must read the bytes after these
                self._beside.begin(self._shake(connection, transport, authority, leaves, context, hello))

            connection.take_inside(early, Inside(authority, "http"), secure)

    async def _shake(
        self,
        connection: Secured,
        transport: asyncio.Transport,
        authority: str,
        leaves: Leaves,
        context: LeafContext,
        hello: bytes,
    ) -> None:
        await leaves.prepare(context.host, hello)
        if transport.is_closing():
            return
        try:
            tls, stand_in = await shake(transport, context, hello)
        except (OSError, ssl.SSLError) as error:
            self._notify_failure(authority, error)
            connection.connection_lost(None)
            return
        shown = getattr(tls.get_extra_info("ssl_object").context, "host", "")
        connection.take_over(tls, Inside(authority, "https", shown))
        stand_in.give_way(tls, cast(asyncio.Protocol, connection))

    def _read(self) -> None:
        """Read the CA's files, and set `problem` to what is wrong with them ("" if nothing is)."""
        self._look_again = monotonic() + AGAIN
        assert self._of is not None
        try:
            needed()
            from proxy.server.intercept import ca
            from proxy.server.intercept.leaves import Leaves

            cert, key = Path(self._of.cert), Path(self._of.key)
            authority = ca.load(cert, key, datetime.fromtimestamp(wall(), UTC))
            files = cert.read_bytes(), key.read_bytes()
            if self._leaves is None or files != self._files:
                self._leaves, self._files = Leaves(authority, wall), files
            self.problem = ""
        except (CaError, OSError) as error:
            self._leaves = self._files = None
            self.problem = str(error)

    def _notify_failure(self, authority: str, error: Exception) -> None:
        """Report why an app's handshake failed, once for each kind of failure and authority."""
        reason = str(getattr(error, "reason", None) or "")
        if any(name in reason for name in _NO_TLS):
            kind, line = "no_tls", f"an app's CONNECT to {authority} carries no TLS, which `connect: intercept` expects"
        elif any(name in reason for name in _DISTRUST):
            kind, line = "distrust", f"an app that called {authority} does not trust the local CA"
        else:
            kind, line = (
                "broken",
                f"an app that called {authority} broke off the TLS handshake; perhaps it does not trust the local CA",
            )
        self._notify_once(kind, authority, reason or str(error) or type(error).__name__, line)

    def closed_unused(self, authority: str) -> None:
        """Report an app that closed its connection after the TLS handshake, without a request: clients that look at the
        certificate only then, as curl 8.23 does, send no alert if they do not trust its CA.
        """
        line = f"an app that called {authority} closed its connection after the TLS handshake"
        self._notify_once("unused", authority, "closed", f"{line}; perhaps it does not trust the local CA")

    def _notify_once(self, kind: str, authority: str, error: str, line: str) -> None:
        """Report a failed handshake, unless one of its kind has been reported for the authority."""
        if kind != "no_tls":
            line += ': start it under eval "$(redrive env)", or add redrive ca export to its trust store'
        if (kind, authority) in self._reported or len(self._reported) >= MOST_REPORTED:
            return
        self._reported.add((kind, authority))
        self._notify("handshake", [line], authority=authority, error=error, detail=line)


class StandIn(asyncio.Protocol):
    """A protocol that keeps incoming bytes until the connection's own protocol takes over."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ended = False
        self._blocked = False

    def data_received(self, data: bytes) -> None:
        """Keep bytes that came with the end of the handshake."""
        self._data.append(data)

    def eof_received(self) -> bool:
        """Note that the app closed its sending direction. Returns False: the transport closes ours, too."""
        self._ended = True
        return False

    def pause_writing(self) -> None:
        """Note that the transport is not ready for more: it could not send the session tickets at once."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Note that the transport is ready for more."""
        self._blocked = False

    def give_way(self, tls: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Make `protocol` the protocol of the transport `tls`, which `protocol` knows already, and pass it the bytes
        that were kept.
        """
        tls.set_protocol(protocol)
        if self._blocked:
            protocol.pause_writing()
        if self._data:  # in one piece: HTTP/2 gets a protocol of its own at the first bytes
            protocol.data_received(b"".join(self._data))
        if self._ended:
            cast(asyncio.Protocol, tls.get_protocol()).eof_received()


async def shake(
    transport: asyncio.Transport, context: ssl.SSLContext, early: bytes
) -> tuple[asyncio.Transport, StandIn]:
    """Terminate TLS on this transport by `context`, and return the decrypted transport, and the protocol that keeps
    what comes on it until the connection's own protocol takes over. `early` are bytes of TLS that were read already.
    Raises ssl.SSLError or OSError (its timeout is an OSError) if the handshake fails; the transport is closed then.
    """
    loop = asyncio.get_running_loop()
    stand_in = StandIn()
    starting = loop.start_tls(
        transport,
        stand_in,
        context,
        server_side=True,
        ssl_handshake_timeout=HANDSHAKE,
        ssl_shutdown_timeout=FAREWELL,
    )
    shaking = loop.create_task(starting)
    if early:
        # The task's first step is in the queue before this callback, and what that step queues is there before `_feed`.
        loop.call_soon(loop.call_soon, _feed, transport, early)
    try:
        tls = await shaking
    except BaseException:
        transport.abort()
        raise
    if tls is None or tls.get_extra_info("cipher") is None:  # asyncio reports a closed connection as success
        transport.abort()
        raise ConnectionResetError("the connection was closed during the handshake")
    return tls, stand_in


def _feed(transport: asyncio.Transport, data: bytes) -> None:
    layer = cast(asyncio.BufferedProtocol, transport.get_protocol())
    rest = memoryview(data)
    while rest and not transport.is_closing():
        room = memoryview(cast(bytearray, layer.get_buffer(len(rest))))
        size = min(len(room), len(rest))
        room[:size] = rest[:size]
        layer.buffer_updated(size)
        rest = rest[size:]
