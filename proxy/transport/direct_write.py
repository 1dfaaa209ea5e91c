"""What is written to a connection at once, past its transport: by compiled code (socket_calls.pyx), on a TCP transport
of uvloop's. Elsewhere, and in Python alone, the transport writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: The socket that `write_at_once` needs beside a transport; None where the transport writes.
socket_of: Callable[[asyncio.BaseTransport], object | None]
#: Write to a transport with such a socket, before anything that is written later.
write_at_once: Callable[[asyncio.WriteTransport, object | None, bytes], None]


def _none(transport: asyncio.BaseTransport) -> object | None:
    """`socket_of` in Python alone."""
    return None


def _written(transport: asyncio.WriteTransport, socket: object | None, data: bytes) -> None:
    """`write_at_once` in Python alone."""
    transport.write(data)


try:
    from proxy.transport.socket_calls import socket_of, write_at_once
except ImportError:
    socket_of, write_at_once = _none, _written
