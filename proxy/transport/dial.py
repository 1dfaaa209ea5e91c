"""Opening connections: name -> addresses -> the guard -> a race -> TLS or a parent proxy.

The address that was checked is the one that is connected to; a name is never given to the kernel. Addresses of both
families race (RFC 8305): the next starts when the one before has failed or been silent for 250 ms, the first to connect
wins and the others are closed. Whatever goes wrong in here happened before any byte of a request was sent.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from proxy.retry.routing import Endpoint
from proxy.transport.egress_guard import Guard
from proxy.transport.faults import DeniedError, ParentRefusedError
from proxy.transport.resolver import Resolver
from proxy.transport.tls import Contexts

#: RFC 8305 section 5: Connection Attempt Delay.
HEAD_START = 0.25

Wire = TypeVar("Wire", bound=asyncio.Protocol)

_TUNNEL_OPEN = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n")
#: A parent's answer to CONNECT longer than this is none.
_PARENT_HEAD = 16 * 1024


class Dialer:
    """Opens connections to endpoints for one worker."""

    __slots__ = ("_loop", "contexts", "guard", "resolver")

    def __init__(self, loop: asyncio.AbstractEventLoop, resolver: Resolver, guard: Guard, contexts: Contexts) -> None:
        self._loop = loop
        self.resolver = resolver
        self.guard = guard
        self.contexts = contexts

    async def open(
        self,
        endpoint: Endpoint,
        make: Callable[[], Wire],
        *,
        tls: tuple[bool | str, tuple[str, str] | None] | None,
        parent: str | None,
        named: bool,
        strict: bool,
        tunnel: bool = False,
        protocol: str = "http/1.1",
    ) -> Wire:
        """Connect `make()` to the endpoint. `tls`: (verify, client certificate) to speak TLS, None for cleartext;
        `protocol` is what it offers by ALPN.

        `parent` is a parent proxy; a `tunnel` through it is asked for where TLS or a blind tunnel needs one. `named`:
        the endpoint is an upstream's own url. `strict`: loopback is denied unless named.
        Raises DeniedError, OSError, ssl.SSLError or ParentRefusedError.
        """
        if endpoint.unix is not None:
            sock = await self._unix(endpoint.unix)
        elif parent is not None:
            return await self._through(
                parent, endpoint, make, tls=tls, named=named, strict=strict, tunnel=tunnel, protocol=protocol
            )
        else:
            sock = await self._race(await self._allowed(endpoint.host, endpoint.port, named, strict), endpoint.port)
        context = self.contexts.get(*tls, protocol) if tls is not None else None
        try:
            _, wire = await self._loop.create_connection(
                make, sock=sock, ssl=context, server_hostname=endpoint.host if context is not None else None
            )
        except BaseException:
            sock.close()
            raise
        return wire

    # -- addresses ------------------------------------------------------------------------------------------------

    async def _allowed(self, host: str, port: int, named: bool, strict: bool) -> list[str]:
        """The host's addresses that may be connected to, at least one."""
        addresses = await self.resolver.addresses(host)
        if named:
            return list(addresses)
        allowed, why = [], ""
        for address in addresses:
            refusal = self.guard.refuses(address, port, strict=strict)
            if refusal:
                why = refusal
            else:
                allowed.append(address)
        if not allowed:
            raise _denied(host, port, why)
        return allowed

    async def _race(self, addresses: list[str], port: int) -> socket.socket:
        """The first connection of a happy-eyeballs race, in the addresses' order. Raises OSError."""
        places = [_place(address, port) for address in addresses]
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

    # -- a parent proxy -------------------------------------------------------------------------------------------

    async def _through(
        self,
        parent: str,
        endpoint: Endpoint,
        make: Callable[[], Wire],
        *,
        tls: tuple[bool | str, tuple[str, str] | None] | None,
        named: bool,
        strict: bool,
        tunnel: bool,
        protocol: str,
    ) -> Wire:
        """Through a parent proxy: absolute-form for cleartext calls, CONNECT for TLS and tunnels.

        The parent resolves the name, so only what its text says of its address can be checked here.
        """
        refusal = "" if named else self.guard.refuses(endpoint.host, endpoint.port, strict=strict)
        if refusal:
            raise _denied(endpoint.host, endpoint.port, refusal)
        place = urlsplit(parent)
        port = place.port or 80
        sock = await self._race(list(await self.resolver.addresses(place.hostname or "")), port)
        try:
            if tls is not None or tunnel:
                await self._ask_tunnel(sock, endpoint, parent_credentials(parent))
            context = self.contexts.get(*tls, protocol) if tls is not None else None
            _, wire = await self._loop.create_connection(
                make, sock=sock, ssl=context, server_hostname=endpoint.host if context is not None else None
            )
        except BaseException:
            sock.close()
            raise
        return wire

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
    """The Proxy-Authorization line of a parent whose url has user info, or b""."""
    place = urlsplit(parent)
    if place.username is None:
        return b""
    pair = f"{unquote(place.username)}:{unquote(place.password or '')}".encode()
    return b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


def _denied(host: str, port: int, why: str) -> DeniedError:
    return DeniedError(f"{host} port {port} may not be connected to: {why}")


def _place(address: str, port: int) -> AddrInfoType:
    """An address, its zone's number behind a "%", as `start_connection` takes it."""
    bare, _, zone = address.partition("%")
    if ":" in bare:
        scope = int(zone) if zone.isdigit() else 0
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (bare, port, 0, scope)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (bare, port)
