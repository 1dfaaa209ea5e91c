"""Reads of many connections in one turn of the loop: socket_reads.pyx."""

import asyncio

from proxy.transport.event_source import EventSource

def read_directly(connection: EventSource, transport: asyncio.Transport, socket: object | None) -> bool: ...
def leave_to_transport(connection: EventSource) -> None: ...
