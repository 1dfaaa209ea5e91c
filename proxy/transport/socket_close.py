"""Closing a connection so that the peer knows that what it received is not complete: with a RST, after what was sent.

Law: the end that is sent is never a FIN, which would make an answer look complete to a peer that checks no length
(botocore is one), and in TLS never a close_notify, which says the same. SO_LINGER with no time makes the kernel send a
RST, and throw away what it has not sent yet; so the RST waits until the peer's kernel has acknowledged everything. On
the other side Linux keeps what has arrived: a reader gets all of it, and then the error. (Other systems may drop it
with the RST. A FIN would be worse there, too: half an answer that looks complete does more harm than an error.)

A unix socket has no RST: its peer sees an end, and only a length or a missing last chunk shows that it came too early.
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

#: Seconds for which a peer may take none of the bytes that are left for it.
PATIENCE = 2.0
#: Seconds from one check of what is left to the next, since no event reports that the kernel has sent it: at first, and
#: at most. The time doubles with each check.
_FIRST_LOOK, _LAST_LOOK = 0.001, 0.05
#: Bytes of a broken connection that are read at once.
_PIECE = 64 * 1024
_NO_LINGER = struct.pack("ii", 1, 0)


def break_off(transport: asyncio.Transport, wire: asyncio.Transport) -> None:
    """Close with a RST once the peer's kernel has everything that was written, or the peer has taken none of it for
    PATIENCE seconds.

    `wire` is the transport that has the socket: `transport` itself, or the one that carries its TLS.
    """
    _look(transport, wire, left=-1, every=_FIRST_LOOK, patience=PATIENCE)


def reset(transport: asyncio.Transport, wire: asyncio.Transport) -> None:
    """Close with a RST at once: written bytes that were not sent yet are thrown away. Not to be called after
    `connection_lost`. `wire`: the transport that has the socket: `transport` itself, or the one that carries its
    TLS.
    """
    wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def _look(transport: asyncio.Transport, wire: asyncio.Transport, *, left: int, every: float, patience: float) -> None:
    if wire.is_closing():
        return  # the connection is lost already, and another may have its descriptor by now
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
    """The bytes that the peer's kernel has not acknowledged: in our own buffers, and in the kernel's. `wire`: the
    transport that has the socket: `transport` itself, or the one that carries its TLS.
    """
    size = wire.get_write_buffer_size()
    if transport is not wire:
        size += transport.get_write_buffer_size()
    try:
        kernel = fcntl.ioctl(wire.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return size
    return size + int(struct.unpack("i", kernel)[0])


def read_last_words(descriptor: int, take: Callable[[bytes], None], wanted: Callable[[], bool]) -> None:
    """Read the bytes that a peer sent before its connection broke; `take` is called with each piece while `wanted()`.

    A write that fails reveals that the peer is gone, but the bytes that it sent before are still in the kernel, and no
    event of the loop reports them. Not for TLS.
    """
    with contextlib.suppress(OSError):
        while wanted() and (data := os.read(descriptor, _PIECE)):
            take(data)
