"""Reads that bypass a connection's transport: compiled code (socket_reads.pyx) reads the sockets on which events of
streams come, all of them in one turn of the loop, if the transport is a TCP transport of uvloop's. Otherwise, and in
Python alone, the transport reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.transport.event_source import EventSource

#: Begin to read a connection past its transport, until `leave_to_transport`; the third argument is its `socket_of`
#: (`direct_write`). Return False if the transport has to read.
read_directly: Callable[[EventSource, asyncio.Transport, object | None], bool]
#: Stop reading a connection past its transport. The caller resumes the transport if reading goes on.
leave_to_transport: Callable[[EventSource], None]


def _refused(connection: EventSource, transport: asyncio.Transport, socket: object | None) -> bool:
    """Leave the reading to the transport: what `read_directly` does if compiled code is not available."""
    return False


def _left(connection: EventSource) -> None:
    """Do nothing, because the transport reads: what `leave_to_transport` does if compiled code is not available."""


try:
    from proxy.transport.socket_reads import leave_to_transport, read_directly
except ImportError:
    read_directly, leave_to_transport = _refused, _left
