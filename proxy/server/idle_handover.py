"""Idle connections of apps, which go from a process that drains to the one that goes on in its place.

Law: no byte is lost, and none is read twice. A connection is given away only between two requests, while this process
holds nothing of it: no part of a head, no unsent answer, no TLS. Reading has stopped before; what the app sends from
then on stays in the kernel, where the taker reads it. A connection that no process takes stays here, unchanged.

Theory. An idle HTTP/1 connection is its socket, and nothing else: the listener by which it came is its local address,
the app is its peer. The descriptor is sent as a packet of its own on a pair of unix sockets (SCM_RIGHTS), with one byte
that says what it is. All workers of the old process write to one end, and all of the new process read from the other,
so that no packet passes through a parent; whichever worker is awake first takes it. A giver closes its own descriptor
after the kernel has taken the packet, so the connection never has no owner. The packets end when the last giver does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from proxy.process import Background

#: The byte that comes with the descriptor of an idle HTTP/1 connection; other bytes are for later releases.
_IDLE = b"1"
#: The connections that are taken in one turn of the loop, so that other workers and calls have theirs.
_AT_ONCE = 16
#: Seconds until a process without room for more connections looks again.
_PAUSE = 0.1


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for handing idle connections over: the taker's end, and the giver's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class ConnectionGiver:
    """The side that gives idle connections away, on its end `sock` of a `pair`. `is_full`: the takers have no room now,
    or have ended.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.is_full = False

    def give(self, descriptor: int) -> bool:
        """Give a connection away by its descriptor, from which nothing may be read any more; the caller closes its own
        copy then. Returns False if no process takes it now; then none is given until `try_again`.
        """
        try:
            socket.send_fds(self._sock, [_IDLE], [descriptor])
        except OSError:  # the takers are slow, or they have ended
            self.is_full = True
        return not self.is_full

    def try_again(self) -> None:
        """Try to give connections away again, after the takers had no room."""
        self.is_full = False

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


class ConnectionTaker:
    """The side that takes idle connections, on its end `sock` of a `pair`. `make` makes the protocol of a connection;
    `has_room`: whether this process can hold one more, given the number of those that were taken and have no protocol
    yet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        has_room: Callable[[int], bool],
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._make = make
        self._has_room = has_room
        self._timer: asyncio.TimerHandle | None = None
        self._accepting = Background()
        self._listen()

    @property
    def is_busy(self) -> bool:
        """Whether connections were taken that have no protocol yet."""
        return bool(self._accepting.tasks)

    def close(self) -> None:
        """Take the connections that wait, so that none is lost, and no more. The givers keep theirs."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)  # for every process that has this end: giving fails from now on
        with contextlib.suppress(BlockingIOError):
            while self._take():
                pass
        self._sock.close()

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._sock, self._take_some)

    def _take_some(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._has_room(
                len(self._accepting.tasks)
            ):  # without a free descriptor, the kernel would drop the connection
                self._loop.remove_reader(self._sock)
                self._timer = self._loop.call_later(_PAUSE, self._listen)
                return
            try:
                if not self._take():  # every giver has ended
                    self.close()
                    return
            except BlockingIOError:
                return

    def _take(self) -> bool:
        """Take a connection; return False if no more come. Raises BlockingIOError if none waits."""
        try:
            what, descriptors, _, _ = socket.recv_fds(self._sock, len(_IDLE), 1)
        except BlockingIOError:
            raise
        except OSError:
            return False
        for descriptor in descriptors:
            self._accepting.begin(self._accept(socket.socket(fileno=descriptor), what))
        return bool(what)

    async def _accept(self, sock: socket.socket, what: bytes) -> None:
        if what != _IDLE:
            sock.close()
            return
        sock.set_inheritable(False)
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # the app has left meanwhile
            await self._loop.connect_accepted_socket(self._make, sock)
