"""Closing a connection so that the peer knows that what it has is not complete: with a RST, after what was sent.

Law: the end that is sent is never a FIN, which would make what came look complete to a peer that checks no length
(botocore is one), and in TLS never a close_notify, which says the same. SO_LINGER with no time makes the kernel send a
RST, and throw away what it has not sent yet; so the RST waits until the peer's kernel has acknowledged everything. On
the other side Linux keeps what has arrived: a reader gets all of it, and then the error. (Other systems may drop it
with the RST. A FIN would be worse there, too: half an answer that looks complete does more harm than an error.)

A unix socket has no RST: its peer sees an end, and only a length or a missing last chunk tells it more.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable
from functools import partial

#: Seconds that a peer gets which takes nothing of what is left for it.
PATIENCE = 2.0
#: Seconds between looks at what is left: no event tells that the kernel has sent it. Doubled each time up to the last.
_FIRST_LOOK, _LAST_LOOK = 0.001, 0.05
#: Bytes of a broken connection that are read at once.
_PIECE = 64 * 1024
_NO_LINGER = struct.pack("ii", 1, 0)


def break_off(transport: asyncio.Transport, wire: asyncio.Transport) -> None:
    """Close with a RST once the peer's kernel has what was written, or the peer takes nothing of it for a while.

    `wire` is the transport that has the socket: `transport` itself, or the one that carries its TLS.
    """
    _look(transport, wire, left=-1, every=_FIRST_LOOK, patience=PATIENCE)


def reset(transport: asyncio.Transport, wire: asyncio.Transport) -> None:
    """The same at once: what was written and not sent yet is thrown away. Not after `connection_lost`."""
    wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def _look(transport: asyncio.Transport, wire: asyncio.Transport, *, left: int, every: float, patience: float) -> None:
    if wire.is_closing():
        return  # it is lost already, and its descriptor may be another's by now
    now_left = _unsent(transport, wire)
    if now_left != left:
        patience = PATIENCE
    if now_left == 0 or patience <= 0:
        reset(transport, wire)
        return
    patience -= every
    look = partial(_look, transport, wire, left=now_left, every=min(every * 2, _LAST_LOOK), patience=patience)
    asyncio.get_running_loop().call_later(every, look)


def _unsent(transport: asyncio.Transport, wire: asyncio.Transport) -> int:
    """Bytes that the peer's kernel has not acknowledged: in our own buffers, and in the kernel's."""
    size = wire.get_write_buffer_size()
    if transport is not wire:
        size += transport.get_write_buffer_size()
    try:
        kernel = fcntl.ioctl(wire.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return size
    return size + int(struct.unpack("i", kernel)[0])


def read_last_words(descriptor: int, tell: Callable[[bytes], None], wanted: Callable[[], bool]) -> None:
    """Read what a peer had said before its connection broke: `tell` is called with each piece while `wanted()`.

    A write that fails tells that the peer is gone, and nothing of what came before: that is in the kernel still, behind
    no event of the loop's. Not for TLS.
    """
    with contextlib.suppress(OSError):
        while wanted() and (data := os.read(descriptor, _PIECE)):
            tell(data)
