"""Interception as the proxy port does it: a CONNECT is answered, TLS is terminated, and the same connection reads on.

Cleartext HTTP after the CONNECT makes calls as well; the leaf is for the name that the app's TLS asks for.

What cannot be intercepted is refused with the remedy, never tunnelled: its upstream's calls are meant to be retried. If
an app does not trust us, the log says so once for each host, with what to do.

Law: every byte reaches the right reader. What the app sent right after its CONNECT was read before there was TLS: it is
fed to the TLS layer before anything else. What it sends right after its handshake is decrypted before anybody knows
that the handshake is over: a stand-in keeps it. asyncio's `start_tls` (uvloop's too) makes its TLS layer the
transport's protocol in its first step, and puts the start of the handshake and the resumption of reading into the
loop's queue; what is put there after them comes between them and the first read. The layer is a `BufferedProtocol`,
which is how bytes are fed to it.

The CA is read when a configuration is taken, and again, at most once a second, while something is wrong with it:
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
from proxy.retry.routing import split_authority
from proxy.server.intercept import CaError, intercepts, needed
from proxy.server.routing import Inside
from proxy.transport.clock import monotonic, wall

if TYPE_CHECKING:
    from proxy.server.intercept.leaves import LeafContext, Leaves

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nX-Attempt-Count: 0\r\n\r\n"
#: Seconds that an app has for its part of the handshake.
HANDSHAKE = 10.0
#: Seconds that an app has to say its part of the end.
FAREWELL = 2.0
#: Seconds between looks at files that were not good.
AGAIN = 1.0
#: How many hosts whose apps did not trust us are remembered as reported.
MOST_TOLD = 1000

#: OpenSSL's names of alerts by which a client says that it does not like the certificate.
_DISTRUST = ("UNKNOWN_CA", "CERTIFICATE", "DECRYPT_ERROR", "ACCESS_DENIED")
#: Its names for what is no TLS at all.
_NO_TLS = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")

Tell = Callable[..., None]


class Secured(Protocol):
    """The app's connection, as it is taken from cleartext to TLS."""

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Its transport, from which nothing more is read, and what was read behind the CONNECT."""

    def take_back(self, early: bytes) -> None:
        """Read on as before: there is no TLS inside."""

    def take_inside(self, early: bytes, inside: Inside, secure: Callable[[bytes], None]) -> None:
        """The CONNECT is answered: read on, `early` first. What is not cleartext HTTP is TLS: `secure` is informed."""

    def take_over(self, tls: asyncio.Transport, inside: Inside) -> None:
        """TLS stands: what comes next are requests inside it."""

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended in between."""


class Interception:
    """The local CA in force, and the connections that are on their way to TLS. `tell` says things to who runs us."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._of: CertificateAuthority | None = None
        self._files: tuple[bytes, bytes] | None = None  # certificate and key, as they were read
        self._leaves: Leaves | None = None
        self._look_again = 0.0
        self._beside = Background()
        self._told: set[tuple[str, str]] = set()
        self.problem = ""

    def use(self, settings: Settings) -> None:
        """Take a configuration. What is wrong with its CA is told, and holds up nothing but interception."""
        self._told.clear()
        if not intercepts(settings):
            self._of = self._leaves = self._files = None
            self.problem = ""
            return
        self._of = settings.ca
        self._read()
        if self.problem:
            self._tell("interception", [f"nothing can be intercepted: {self.problem}"], error=self.problem)

    def begin(self, connection: Secured, authority: str, refuse: Callable[[CaError], None]) -> None:
        """Take the connection to TLS for the authority that its CONNECT names, or have the CONNECT refused."""
        if self._leaves is None and monotonic() >= self._look_again:
            self._read()
        if self._leaves is None:
            refuse(CaError(self.problem))
            return
        self._beside.begin(self._answer(connection, authority, refuse, self._leaves))

    async def ended(self) -> None:
        """Wait for handshakes in progress; their connections are closed already."""
        self._beside.cancel()
        await asyncio.gather(*self._beside.tasks, return_exceptions=True)

    async def _answer(
        self, connection: Secured, authority: str, refuse: Callable[[CaError], None], leaves: Leaves
    ) -> None:
        """Answer the CONNECT, once there is a leaf for its host; `refuse` answers it with what is wrong."""
        place = split_authority(authority, 443)
        assert place is not None  # it was admitted
        transport, early = connection.hand_over()
        try:
            context = await leaves.context(place[0])
        except CaError as error:
            connection.take_back(early)
            refuse(error)
            return
        if not transport.is_closing():
            transport.write(ESTABLISHED)

            def secure(hello: bytes) -> None:
                transport, _ = connection.hand_over()  # at once: what follows these bytes is not for us
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
            self._tell_why(authority, error)
            connection.connection_lost(None)
            return
        shown = getattr(tls.get_extra_info("ssl_object").context, "host", "")
        connection.take_over(tls, Inside(authority, "https", shown))
        stand_in.give_way(tls, cast(asyncio.Protocol, connection))

    def _read(self) -> None:
        """Read the CA's files; `problem` is what is wrong with them."""
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

    def _tell_why(self, authority: str, error: Exception) -> None:
        """Say once what is the matter with an app's handshake."""
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
        if kind != "no_tls":
            line += ': start it under eval "$(redrive env)", or add redrive ca export to its trust store'
        if (kind, authority) in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add((kind, authority))
        self._tell(
            "handshake", [line], authority=authority, error=reason or str(error) or type(error).__name__, detail=line
        )


class StandIn(asyncio.Protocol):
    """Keeps what comes until the one it is for takes over."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ended = False
        self._blocked = False

    def data_received(self, data: bytes) -> None:
        """Bytes that came with the end of the handshake."""
        self._data.append(data)

    def eof_received(self) -> bool:
        """The app closed its sending direction."""
        self._ended = True
        return False

    def pause_writing(self) -> None:
        """The session tickets did not go out at once."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The transport's write buffer drained."""
        self._blocked = False

    def give_way(self, tls: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Make `protocol` the transport's own, and tell it what was kept. It knows its transport already."""
        tls.set_protocol(protocol)
        if self._blocked:
            protocol.pause_writing()
        for data in self._data:
            protocol.data_received(data)
        if self._ended:
            protocol.eof_received()


async def shake(
    transport: asyncio.Transport, context: ssl.SSLContext, early: bytes
) -> tuple[asyncio.Transport, StandIn]:
    """End TLS on this transport. `early` was read already and is TLS. Raises ssl.SSLError or OSError (its timeout is
    one) where the handshake fails; the transport is closed then.
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
        # The task's first step is in the queue before this; what that step queues is there before `_feed`.
        loop.call_soon(loop.call_soon, _feed, transport, early)
    try:
        tls = await shaking
    except BaseException:
        transport.abort()
        raise
    if tls is None or tls.get_extra_info("cipher") is None:  # an end of the connection is no error to the loop
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
