"""From a cleartext connection to TLS on the same transport, with nothing lost on the way.

Law: every byte reaches whom it is for. What the app sent right behind its CONNECT was read before there was TLS: it is
fed to the TLS layer before anything else is. What it sends right behind its handshake is decrypted before anybody was
told that the handshake is over: a stand-in keeps it.

asyncio's `start_tls` (uvloop's too) makes its TLS layer the transport's protocol in its first step, and puts the start
of the handshake and the resumption of reading in the loop's queue; what is put there behind them comes in between them
and the first read. The layer is a `BufferedProtocol`, which is how bytes are fed to it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

#: Seconds that an app has for its part of the handshake.
HANDSHAKE = 10.0
#: Seconds that an app has to say its part of the end.
FAREWELL = 2.0


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
        """Nothing more comes."""
        self._ended = True
        return False

    def pause_writing(self) -> None:
        """The session tickets did not go out at once."""
        self._blocked = True

    def resume_writing(self) -> None:
        """They did now."""
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
    """End TLS on this transport. `early` was read already and is TLS.

    Raises ssl.SSLError or OSError (its timeout is one) where the handshake fails; the transport is closed then.
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
