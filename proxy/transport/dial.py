"""Opening connections: name -> addresses -> the guard -> a race -> TLS or a parent proxy.

The address that was checked is the one that is connected to; a name is never given to the kernel. Addresses of both
families race (RFC 8305): the next starts when the one before has failed or been silent for 250 ms, the first to connect
wins and the others are closed. An address at which a dial has failed lately (its TLS, say, or the time was out) is
tried after the others of its name, so that a retry begins with another one. Every error raised here happened before any
byte of a request was sent.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from collections import OrderedDict
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from proxy.retry.policies.routing import Endpoint, Reach
from proxy.transport.clock import monotonic
from proxy.transport.dial_times import DialTimes
from proxy.transport.egress_guard import Guard
from proxy.transport.faults import DeniedError, ParentRefusedError
from proxy.transport.resolver import KEPT, Resolver
from proxy.transport.tls import Contexts, session_key

#: The seconds that a handshake of TLS may take where no time limit is given; and the least limit of one.
TLS, _LEAST = 60.0, 0.1
#: RFC 8305 section 5: Connection Attempt Delay.
HEAD_START = 0.25
#: Seconds for which an address at which a dial has failed is tried after the others of its name; as long as an endpoint
#: that refuses is passed over at most (`proxy.retry.upstreams.penalty`).
AVOIDED = 60.0

_TUNNEL_OPEN = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n")
#: The most bytes of a parent's answer to CONNECT; a longer one counts as none.
_PARENT_HEAD = 16 * 1024


@dataclass(frozen=True, slots=True)
class Way:
    """The way in which an endpoint is reached. Two connections of the pool are alike if their endpoints and ways are.

    `verify` and `client_cert` are those of `Contexts.get`; `parent`: the URL of the parent proxy, None for none.
    `named`: the endpoint is an upstream's own url. `strict`: the call arrived by a listener off loopback, so that
    loopback is denied unless named. `http2`: by HTTP/2, or, with `either`, by the protocol that the upstream's TLS
    selects.
    """

    verify: bool | str = True
    client_cert: tuple[str, str] | None = None
    parent: str | None = None
    named: bool = False
    strict: bool = False
    http2: bool = False
    either: bool = False

    @property
    def reach(self) -> Reach:
        """The part of the way that the policy defines, the same for all calls of the policy."""
        return self.verify, self.client_cert, self.parent

    @property
    def protocols(self) -> str:
        """The protocols that TLS offers by ALPN."""
        return "h2,http/1.1" if self.either else "h2" if self.http2 else "http/1.1"


class TlsConnecting(Coroutine[Any, Any, Any]):
    """An event loop's coroutine that connects with TLS, and closes TLS too if it is cancelled.

    uvloop (0.23) closes the socket alone if its coroutine is cancelled where it waits for the connection, though TLS
    has begun in the turn of the loop in which the connection came. That TLS, with a buffer of 256 KiB, would live until
    the time limit of its handshake. This coroutine is therefore cancelled only where it waits for TLS, which closes
    both. If TLS has ended by then, its caller closes the connection. One case is left: a coroutine that was cancelled
    before the connection came, and whose socket was not closed before TLS began, keeps its TLS until the time limit,
    which is that of the dial.
    """

    __slots__ = ("_coroutine", "_waits")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waits: Any = None  # what the coroutine waits for

    def __await__(self) -> Generator[Any, Any, Any]:
        return cast(Generator[Any, Any, Any], self)  # it has the methods of one that are used

    def __next__(self) -> Any:
        return self.send(None)

    def __iter__(self) -> TlsConnecting:
        return self

    def send(self, value: Any) -> Any:
        """Go on with the coroutine; return what it waits for."""
        self._waits = self._coroutine.send(value)
        return self._waits

    def throw(self, error: Any, *more: Any) -> Any:
        """End the coroutine by this error, where it waits for TLS if that has begun."""
        waits = self._waits
        if isinstance(waits, asyncio.Future) and waits.done() and not waits.cancelled() and waits.exception() is None:
            try:
                self._coroutine.send(None)
            except StopIteration:  # nothing is waited for any more
                raise error from None
        return self._coroutine.throw(error, *more)

    def close(self) -> None:
        """End the coroutine if it has not ended."""
        self._coroutine.close()


class Dialer:
    """The part of one worker that opens connections to endpoints."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolver: Resolver, guard: Guard, contexts: Contexts) -> None:
        self._loop = loop
        self.resolver = resolver
        self.guard = guard
        self.contexts = contexts
        self.times = DialTimes(loop)
        self._failed: OrderedDict[tuple[str, int], float] = OrderedDict()  # when a dial last failed at each address

    async def open(
        self, endpoint: Endpoint, way: Way, protocol: asyncio.Protocol, *, tunnel: bool = False, within: float = TLS
    ) -> None:
        """Connect a protocol to the endpoint in this way, with TLS if its scheme is https and this is no blind
        `tunnel`. `within`: the seconds after which the caller cancels this at the latest.

        A parent proxy gets cleartext requests in absolute form, and is asked for a tunnel by CONNECT in all other
        cases. Raises DeniedError, OSError, ssl.SSLError or ParentRefusedError.
        """
        unix, secure = endpoint.unix, endpoint.scheme == "https" and not tunnel
        if unix is None:
            addresses, port = await self._addresses(endpoint, way)
            if way.parent is None and len(addresses) == 1 and "%" not in addresses[0]:
                await self._open_at(addresses[0], endpoint, way, protocol, within if secure else None)
                return
            sock = await self._connect(addresses, port)
        else:
            sock = await self._unix(unix)
        peer = _peer(sock) if unix is None else None
        try:
            if way.parent is not None and unix is None and (secure or tunnel or way.http2):
                await self._ask_tunnel(sock, endpoint, parent_credentials(way.parent))
            context = self.contexts.get(way.verify, way.client_cert, way.protocols) if secure else None
            name = session_key(endpoint, way.parent) if secure else None
            limit = max(within, _LEAST) if secure else None
            made = self._loop.create_connection(
                lambda: protocol, sock=sock, ssl=context, server_hostname=name, ssl_handshake_timeout=limit
            )
            await (TlsConnecting(made) if secure else made)
            if peer is not None:
                self.reached(peer)
        except BaseException:
            self.failed_at(peer)
            sock.close()
            raise

    async def _open_at(
        self, address: str, endpoint: Endpoint, way: Way, protocol: asyncio.Protocol, within: float | None
    ) -> None:
        """Connect a protocol to the only address of an endpoint; `within` is that of `connecting`. Raises OSError or
        SSLError.
        """
        peer = address, endpoint.port
        try:
            await self.connecting(address, endpoint, way, protocol, within)
        except BaseException:
            self.failed_at(peer)
            raise
        self.reached(peer)

    def only_address(self, endpoint: Endpoint, way: Way) -> str:
        """The address of an endpoint that is reached in this way, if it is the only one, is known, and may be connected
        to; else "".
        """
        if endpoint.unix is not None or way.parent is not None:
            return ""
        addresses = self.resolver.known(endpoint.host)
        if len(addresses) != 1 or "%" in addresses[0]:
            return ""
        if not way.named and self.guard.refuses(addresses[0], endpoint.port, strict=way.strict):
            return ""
        return addresses[0]

    def connecting(
        self, address: str, endpoint: Endpoint, way: Way, protocol: Any, within: float | None
    ) -> Coroutine[Any, Any, object]:
        """The event loop's coroutine that connects a protocol to the only address of an endpoint: there is no race, and
        the loop makes the socket, for a fifth of the instructions. `within`: None for no TLS, else the seconds after
        which the caller cancels this at the latest. Raises OSError or ssl.SSLError.
        """
        if within is not None:
            context = self.contexts.get(way.verify, way.client_cert, way.protocols)
            name, port, limit = session_key(endpoint, None), endpoint.port, max(within, _LEAST)
            return TlsConnecting(
                self._loop.create_connection(
                    lambda: protocol, address, port, ssl=context, server_hostname=name, ssl_handshake_timeout=limit
                )
            )
        return self._loop.create_connection(lambda: protocol, address, endpoint.port)

    def reached(self, peer: tuple[str, int]) -> None:
        """Note that a dial to the address and port `peer` has succeeded."""
        if self._failed:
            self._failed.pop(peer, None)

    async def close(self) -> None:
        """Cancel look-ups, and the timer of dials."""
        self.times.close()
        await self.resolver.close()

    def failed_at(self, peer: tuple[str, int] | None) -> None:
        """Note that a dial to the address and port `peer` has failed: for a while, other addresses of its name are
        tried before it. `peer` is None if the address is not known.
        """
        if peer is not None:
            self._failed[peer] = monotonic()
            self._failed.move_to_end(peer)
            if len(self._failed) > KEPT:
                self._failed.popitem(last=False)

    async def _connect(self, addresses: Sequence[str], port: int) -> socket.socket:
        """Connect to this port at the first of these addresses that answers. Addresses at which a dial failed within
        the last AVOIDED seconds are tried after the others. Raises OSError.
        """
        if len(addresses) > 1 and self._failed:
            now = monotonic()
            last = {each: self._failed.get((each, port), 0.0) for each in addresses}
            addresses = sorted(addresses, key=lambda each: last[each] if now - last[each] < AVOIDED else 0.0)
        try:
            return await self._race(addresses, port)
        except BaseException:  # all have failed, or the time was out: the first address has had most of it
            self.failed_at((addresses[0], port))
            raise

    async def _addresses(self, endpoint: Endpoint, way: Way) -> tuple[Sequence[str], int]:
        """The addresses that may be connected to for this endpoint, at least one, and the port: the endpoint's own or,
        if the way leads through a parent proxy, the parent's. A parent resolves the endpoint's name, so only the name's
        text can be checked here. Raises DeniedError.
        """
        host, port = endpoint.host, endpoint.port
        addresses = (host,) if way.parent is not None else await self.resolver.addresses(host)
        if way.named and way.parent is None:
            return addresses, port
        judged = [(each, "" if way.named else self.guard.refuses(each, port, strict=way.strict)) for each in addresses]
        allowed = [address for address, refusal in judged if not refusal]
        if not allowed:
            raise DeniedError(f"{host} port {port} may not be connected to: {judged[-1][1]}")
        if way.parent is None:
            return allowed, port
        parent = urlsplit(way.parent)
        return await self.resolver.addresses(parent.hostname or ""), parent.port or 80

    async def _race(self, addresses: Sequence[str], port: int) -> socket.socket:
        """Connect to this port of the first of these addresses that answers, in their order (happy eyeballs). Raises
        OSError.
        """
        places = [_address_info(address, port) for address in addresses]
        return await start_connection(places, happy_eyeballs_delay=HEAD_START, interleave=0, loop=self._loop)

    async def _unix(self, path: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, path)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _ask_tunnel(self, sock: socket.socket, endpoint: Endpoint, credentials: bytes) -> None:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        authority = f"{host}:{endpoint.port}".encode("ascii", "surrogateescape")
        await self._loop.sock_sendall(
            sock, b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n" + credentials + b"\r\n"
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = await self._loop.sock_recv(sock, 1)  # a byte past the head would be the tunnel's
            if not data or len(head) > _PARENT_HEAD:
                raise ParentRefusedError("no answer to CONNECT")
            head += data
        said = _TUNNEL_OPEN.match(head)
        if said is None or not said[1].startswith(b"2"):
            raise ParentRefusedError(f"CONNECT was answered with {said[1].decode()}" if said else "not an HTTP answer")


def parent_credentials(parent: str) -> bytes:
    """The Proxy-Authorization line of a parent whose url has user info, else b""."""
    url = urlsplit(parent)
    if url.username is None:
        return b""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
    return b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


def _peer(sock: socket.socket) -> tuple[str, int] | None:
    """The address and port that the socket is connected to; None if it is not connected any more."""
    try:
        name = sock.getpeername()
    except OSError:
        return None
    return str(name[0]), int(name[1])


def _address_info(address: str, port: int) -> AddrInfoType:
    """An address and port as the tuple that `start_connection` takes. An IPv6 address may end in "%" and its zone's
    number.
    """
    bare, _, zone = address.partition("%")
    if ":" in bare:
        scope = int(zone) if zone.isdigit() else 0
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (bare, port, 0, scope)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (bare, port)
