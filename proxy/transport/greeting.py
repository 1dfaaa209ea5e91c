"""A TLS connection on which either version of HTTP may be spoken: ALPN picks it (contract, section 12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.transport.connection import Connection
from proxy.transport.http2 import UpstreamConnection


class Greeting(asyncio.Protocol):
    """The protocol of a connection until its TLS handshake is done. Then `made` takes its place: the protocol that
    `http2` makes if the upstream has selected `h2`, else the one that `http1` makes.
    """

    def __init__(self, http1: Callable[[], Connection], http2: Callable[[], UpstreamConnection]) -> None:
        self._http1 = http1
        self._http2 = http2
        self.made: Connection | UpstreamConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Replace this protocol, because the handshake is done."""
        selected = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        self.made = self._http2() if selected == "h2" else self._http1()
        cast(asyncio.Transport, transport).set_protocol(cast(asyncio.Protocol, self.made))
        self.made.connection_made(transport)

    def unwanted(self) -> None:
        """Close a connection whose caller went away while it was dialled."""
        if self.made is not None:
            self.made.unwanted()
