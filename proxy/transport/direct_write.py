"""Writes that bypass a connection's transport: compiled code (socket_calls.pyx) writes to the socket at once, if the
transport is a TCP transport of uvloop's. Otherwise, and in Python alone, the transport writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

#: Return the socket that `write_at_once` needs for a transport; None if the transport itself has to write.
socket_of: Callable[[asyncio.BaseTransport], Any | None]
#: Write data to a transport whose `socket_of` is given, at once if possible; the order of writes is kept.
write_at_once: Callable[[asyncio.WriteTransport, Any | None, bytes], None]


def _none(transport: asyncio.BaseTransport) -> object | None:
    """Return None for every transport: what `socket_of` does if compiled code is not available, so that no write
    bypasses the transport.
    """
    return None


def _written(transport: asyncio.WriteTransport, socket: object | None, data: bytes) -> None:
    """Write the data by the transport: what `write_at_once` does if compiled code is not available. `socket` is then
    None.
    """
    transport.write(data)


try:
    from proxy.transport.socket_calls import socket_of, write_at_once
except ImportError:
    socket_of, write_at_once = _none, _written
