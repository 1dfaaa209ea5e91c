"""Idle connections of apps, which go from a process that drains to the one that goes on in its place.

Law: no byte is lost, and none is read twice. A connection is given away only between two requests. Reading has stopped
before; what the app sends from then on stays in the kernel, where the taker reads it. The part of a head that has come
goes along, and is read first. A connection that no process takes stays here, unchanged.

Theory. An idle HTTP/1 connection is its socket, and nothing else: the listener by which it came is its local address,
the app is its peer. The descriptor is sent as a packet of its own on a pair of unix sockets (SCM_RIGHTS), with one byte
that says what it is, and the bytes of the head. All workers of the old process write to one end, and all of the new
process read from the other, so that no packet passes through a parent; whichever worker is awake first takes it. A
giver closes its own descriptor after the kernel has taken the packet, so the connection never has no owner. The packets
end when the last giver does.

A taker that is full at its limits sends the connection back, to any of the givers, which serves it and makes a pause
before it gives more, few at first. A giver with thousands reads nothing while it gives, and the kernel takes only some
hundreds: then the taker waits. Only when no giver reads any more, the taker keeps it, and answers that there is no
room. So a giver does not end while a taker has something to read: one that stands still would find no giver later. A
connection that came back with a part of a head stays, until that head has been answered: else an app that writes its
head slowly would go there and back for good. A giver that closes takes what has come back, and gives it away for good:
from then on, nothing can be sent back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import math
import socket
import sys
import termios
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from proxy.process import Background

#: The byte that comes with the descriptor of an HTTP/1 connection; other bytes are for later releases.
_IDLE = b"1"
#: The most bytes of an unfinished head that go along: as many as a head has by default (`limits.header_bytes`).
_EARLY = 64 * 1024
#: The connections that are taken in one turn of the loop, so that other workers and calls have theirs.
_AT_ONCE = 16
#: Seconds for which a process waits that has no room for more connections, or can't send one back yet; and seconds for
#: which a process gives none away after one of its connections was sent back.
_PAUSE, _LONG_PAUSE = 0.1, 1.0

#: Errors of a send that may succeed later: the other side has not read what was sent before.
_SLOW = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS)

Make = Callable[[], asyncio.BaseProtocol]
#: A connection that has come, and the part of its next head that came with it.
_Came = tuple[socket.socket, bytes]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for handing idle connections over: the taker's end, and the giver's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Room(Protocol):
    """A process's limits on connections, as far as a taker asks them: whether one more fits, and the connections it
    expects.
    """

    def can_hold(self) -> bool:
        """Whether the process has a descriptor for one more."""

    def expect(self) -> bool:
        """Count a connection that is about to begin. Returns whether the process can serve it within its limits; so
        long as it is expected, no other process counts on the same place.
        """

    def arrives(self) -> None:
        """Note that an expected connection begins now."""

    def forget(self) -> None:
        """Note that an expected connection does not begin here."""


class ConnectionGiver:
    """The side that gives idle connections away. `sock` is its end of a `pair`. `make` makes the protocol of a
    connection that comes back, since the takers had no room. `counts` has the numbers of connections that were "given"
    and "returned". `is_full`: the takers have no room now, or have ended. `keeps_begun`: a connection came back with a
    part of its next head, so from now on only connections without such a part are given away.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make: Make, counts: Counter[str]) -> None:
        self._end = _End(loop, sock, make)
        self._loop = loop
        self._counts = counts
        self._until = 0.0  # none is given before this time of the loop
        # The number of connections that may be given until `try_again`, and the number after that. Once one was sent
        # back, few are given, since else thousands would go there and back each time; then more each time, until one is
        # sent back again.
        self._left = self._next = math.inf
        self.is_full = self.keeps_begun = False
        loop.add_reader(sock, self._take_back)

    @property
    def is_busy(self) -> bool:
        """Whether connections were sent back that have no protocol yet, or were given and no taker has read them: they
        may come back.
        """
        return self._end.beginning > 0 or self._end.has_unread

    def give(self, descriptor: int, early: bytes = b"") -> bool:
        """Give a connection away by its descriptor, from which nothing may be read any more; the caller closes its own
        copy then. `early`: the part of its next head that has come. Returns False if no process takes it now; then none
        is given until `try_again`.
        """
        if len(early) > _EARLY:
            return False
        has_gone = self._end.send(descriptor, early)
        self._counts["given"] += has_gone
        self._left -= has_gone
        self.is_full = not has_gone or self._left <= 0
        return has_gone

    def try_again(self) -> None:
        """Try to give connections away again, after the takers had no room."""
        self.is_full = self._loop.time() < self._until
        if not self.is_full:
            self._left = self._next
            self._next *= 2

    def give_for_good(self) -> None:
        """Refuse from now on to take given connections back, and give away again those that were sent back before."""
        with contextlib.suppress(OSError):
            self._end.sock.shutdown(socket.SHUT_RD)  # for every process that has this end
        with contextlib.suppress(BlockingIOError):
            while (came := self._end.receive()) is not None:
                sock, early = came
                if self._end.send(sock.fileno(), early):
                    sock.close()
                else:
                    self._end.serve(sock, early)
        self._left = self._next = math.inf
        self.is_full = self.keeps_begun = False

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _take_back(self) -> None:
        try:
            came = self._end.receive()
        except BlockingIOError:  # another process took it
            return
        if came is None:  # the takers have ended
            self._loop.remove_reader(self._end.sock)
            return
        self._counts["returned"] += 1
        self._until = self._loop.time() + _LONG_PAUSE
        self._next = 1.0
        self.is_full = True
        sock, early = came
        self.keeps_begun = self.keeps_begun or early != b""
        self._end.serve(sock, early)


class ConnectionTaker:
    """The side that takes idle connections, on its end `sock` of a `pair`. `make` makes the protocol of a connection;
    `room`: whether this process can hold one more; `counts`: connections by what happened to them (taken).
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make: Make, room: Room, counts: Counter[str]
    ) -> None:
        self._end = _End(loop, sock, make, room)
        self._loop = loop
        self._room = room
        self._counts = counts
        self._may_return = True  # a giver reads what is sent back, as far as is known
        self._kept: _Came | None = None  # what is to be sent back once the givers have read more
        self._timer: asyncio.TimerHandle | None = None
        self._listen()

    @property
    def is_busy(self) -> bool:
        """Whether connections were taken that have no protocol yet, or one waits to be sent back."""
        return self._end.beginning > 0 or self._kept is not None

    def close(self) -> None:
        """Take the connections that wait, so that none is lost, and no more. The givers keep theirs."""
        if self._timer is not None:
            self._timer.cancel()
        if self._end.sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._end.sock.shutdown(socket.SHUT_RD)  # for every process that has this end: giving fails from now on
        came, self._kept = self._kept, None
        with contextlib.suppress(BlockingIOError):
            while (came := came or self._end.receive()) is not None:
                self._room.expect()
                self._take(*came)
                came = None
        self._end.close()

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._end.sock, self._take_some)

    def _rest(self) -> None:
        self._loop.remove_reader(self._end.sock)
        self._timer = self._loop.call_later(_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._listen()
        self._take_some()

    def _take_some(self) -> None:
        for _ in range(_AT_ONCE):
            came = self._kept
            # Without a free descriptor, the kernel would drop the connection; a few are free for those sent back.
            if came is None and not self._may_return and not self._room.can_hold():
                self._rest()
                return
            try:
                came = came or self._end.receive()
            except BlockingIOError:
                return
            if came is None:  # every giver has ended
                self.close()
                return
            self._kept = None
            try:
                if self._room.expect() or not self._send_back(*came):
                    self._take(*came)
                else:
                    self._room.forget()
            except BlockingIOError:
                self._room.forget()
                self._kept = came
                self._rest()
                return

    def _take(self, sock: socket.socket, early: bytes) -> None:
        self._counts["taken"] += 1
        self._end.serve(sock, early)

    def _send_back(self, sock: socket.socket, early: bytes) -> bool:
        """Send a connection back to the givers, and return whether one takes it. Raises BlockingIOError if none has
        read enough of what was sent back before.
        """
        self._may_return = self._may_return and self._end.offer(sock.fileno(), early)
        if self._may_return:
            sock.close()
        return self._may_return


class _End:
    """An end of a pair of sockets. It sends and receives packets that each carry a connection, and begins to serve the
    connections that it receives. `make` makes the protocol of a received connection. `room` is told whether each
    received connection begins; None if this end reserves no room for received connections.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make: Make, room: Room | None = None
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._loop = loop
        self._make = make
        self._room = room
        self._beginning = Background()
        #: The number of connections that have come and have no protocol yet.
        self.beginning = 0

    def send(self, descriptor: int, early: bytes) -> bool:
        """Send the connection with this descriptor, and `early`, the part of the connection's next head that has come.
        Return whether the kernel took them.
        """
        try:
            return self.offer(descriptor, early)
        except BlockingIOError:
            return False

    def offer(self, descriptor: int, early: bytes) -> bool:
        """Send a connection as `send` does; return False if the process at the other end has ended. Raises
        BlockingIOError if that process has not read enough of what was sent before.
        """
        try:
            socket.send_fds(self.sock, [_IDLE, early], [descriptor])
        except OSError as error:
            if error.errno in _SLOW:
                raise BlockingIOError(*error.args) from error
            return False
        return True

    @property
    def has_unread(self) -> bool:
        """Whether the other side has packets to read that were sent from this end, by whichever process."""
        if self.sock.fileno() < 0:
            return False
        try:
            size = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
        except OSError:  # the system does not tell
            return False
        return int.from_bytes(size, sys.byteorder) > 0

    def receive(self) -> _Came | None:
        """Return a connection that has come, and the part of its next head that came with it; None if no more come.
        Raises BlockingIOError if none waits.
        """
        while True:
            try:
                packet, descriptors, _, _ = socket.recv_fds(self.sock, len(_IDLE) + _EARLY, 1)
            except BlockingIOError:
                raise
            except OSError:
                return None
            if not packet:
                return None
            for descriptor in descriptors:
                sock = socket.socket(fileno=descriptor)
                if packet.startswith(_IDLE):
                    return sock, packet[len(_IDLE) :]
                sock.close()

    def serve(self, sock: socket.socket, early: bytes) -> None:
        """Begin to serve a connection that has come."""
        self.beginning += 1
        self._beginning.begin(self._begin(sock, early))

    def close(self) -> None:
        """Close this end."""
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock)
        self.sock.close()

    async def _begin(self, sock: socket.socket, early: bytes) -> None:
        sock.set_inheritable(False)
        sock.setblocking(False)
        arrival = _Arrival(self, early)
        try:
            await self._loop.connect_accepted_socket(lambda: arrival, sock)
        except OSError:  # the app has left meanwhile
            pass
        finally:
            if not arrival.has_begun:
                self.beginning -= 1
                if self._room is not None:
                    self._room.forget()

    def begun(self) -> asyncio.BaseProtocol:
        """Make the protocol of a connection that was beginning."""
        self.beginning -= 1
        if self._room is not None:
            self._room.arrives()
        return self._make()


class _Arrival(asyncio.Protocol):
    """The protocol that a connection has until its own has read the bytes that came with it, which are before those in
    the kernel.
    """

    def __init__(self, end: _End, early: bytes) -> None:
        self._end = end
        self._early = early
        self.has_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.has_begun = True
        protocol = self._end.begun()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._early and not transport.is_closing():
            protocol.data_received(self._early)  # type: ignore[attr-defined]
