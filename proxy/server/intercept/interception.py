"""Interception as the proxy port does it: a CONNECT is answered, TLS is ended, and the same connection reads on.

Cleartext HTTP behind the CONNECT makes calls as well; the leaf is for the name that the app's TLS asks for.

What cannot be intercepted is refused with the remedy, never tunnelled: its upstream asked for calls that are
retried. Where an app does not trust us, whoever runs the proxy is told once for each host, with what to do.

The CA is read when a configuration is taken, and again, at most once a second, while there is something wrong with it:
`redrive ca init` needs no restart. Files that are as they were keep their leaves.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from proxy.config.settings import CertificateAuthority, Settings
from proxy.retry.routing import split_authority
from proxy.server.intercept import CaError, needed
from proxy.server.intercept.handover import shake
from proxy.server.routing import Inside
from proxy.transport.clock import monotonic, wall

if TYPE_CHECKING:
    from proxy.server.intercept.leaves import Leaves

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nX-Attempt-Count: 0\r\n\r\n"
#: Seconds between looks at files that were not good.
AGAIN = 1.0
#: Hosts whose apps did not trust us that are remembered as told of.
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
        ...

    def take_back(self, early: bytes) -> None:
        """There is no TLS: read on as before."""
        ...

    def take_inside(self, early: bytes, inside: Inside, secure: Callable[[bytes], None]) -> None:
        """The CONNECT is answered: read on, `early` first. What is no cleartext HTTP is TLS: `secure` is told of it."""
        ...

    def take_over(self, tls: asyncio.Transport, inside: Inside) -> None:
        """TLS stands: what comes next are requests inside it."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended in between."""
        ...


@dataclass(frozen=True, slots=True)
class _Files:
    cert: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class _Way:
    """A connection on its way to TLS. `refuse` answers its CONNECT with what is wrong."""

    connection: Secured
    authority: str
    host: str
    refuse: Callable[[CaError], None]


class Interception:
    """The local CA in force, and the connections that are on their way to TLS. `tell` says things to who runs us."""

    __slots__ = ("_files", "_leaves", "_look_again", "_of", "_tasks", "_tell", "_told", "problem")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._of: CertificateAuthority | None = None
        self._files: _Files | None = None
        self._leaves: Leaves | None = None
        self._look_again = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, str]] = set()
        self.problem = ""

    def use(self, settings: Settings) -> None:
        """Take a configuration. What is wrong with its CA is told, and holds up nothing but interception."""
        self._told.clear()
        if not any(upstream.connect == "intercept" for upstream in settings.router.upstreams):
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
        place = split_authority(authority, 443)
        assert place is not None  # it was admitted
        self._run(self._answer(_Way(connection, authority, place[0], refuse), self._leaves))

    def _run(self, steps: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ended(self) -> None:
        """Wait for handshakes in progress; their connections are closed already."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, way: _Way, leaves: Leaves) -> None:
        """Answer the CONNECT, once there is a leaf for its host."""
        connection = way.connection
        transport, early = connection.hand_over()
        try:
            context = await leaves.context(way.host)
        except CaError as error:
            connection.take_back(early)
            way.refuse(error)
            return
        if not transport.is_closing():
            transport.write(ESTABLISHED)
            secure = partial(self._secure, way, context)
            connection.take_inside(early, Inside(way.authority, "http"), secure)

    def _secure(self, way: _Way, context: ssl.SSLContext, hello: bytes) -> None:
        """The app begins TLS, with these bytes."""
        transport, _ = way.connection.hand_over()
        self._run(self._shake(way, transport, context, hello))

    async def _shake(self, way: _Way, transport: asyncio.Transport, context: ssl.SSLContext, hello: bytes) -> None:
        connection = way.connection
        try:
            tls, stand_in = await shake(transport, context, hello)
        except (OSError, ssl.SSLError) as error:
            self._tell_why(way.authority, error)
            connection.connection_lost(None)
            return
        shown = getattr(tls.get_extra_info("ssl_object").context, "host", "")
        connection.take_over(tls, Inside(way.authority, "https", shown))
        stand_in.give_way(tls, cast(asyncio.Protocol, connection))

    # -- the CA ---------------------------------------------------------------------------------------------------

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
            files = _Files(cert.read_bytes(), key.read_bytes())
            if self._leaves is None or files != self._files:
                self._leaves, self._files = Leaves(authority, wall), files
            self.problem = ""
        except (CaError, OSError) as error:
            self._leaves = self._files = None
            self.problem = str(error)

    # -- telling --------------------------------------------------------------------------------------------------

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
