"""The messages between a parent and its workers, each with the file descriptors that go with it.

Law: a message arrives whole and in order, or not at all; when one side ends, the other learns of it at once, whatever
the process died of. Nothing waits: what the other side does not accept yet is kept here.

Messages are pickled: both ends are this program, over a pair of sockets that no other process has.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from proxy.config.settings import Address
from proxy.observe.aggregate import Report
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.registry import Key, Spec

_HEADER = Struct("=QI")  # bytes that follow, descriptors that came with it
_PIECE = 256 * 1024
#: EX_CONFIG of sysexits.h: how a worker ends that is of another release than its parent.
OTHER_RELEASE = 78
#: SCM_MAX_FD of the kernel.
_MOST_DESCRIPTORS = 253

Told = Callable[[Any, list[int]], None]


class Channel:
    """One end. `told` takes each message with its descriptors, which are then the taker's; `ended` is called once."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, told: Told, ended: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._told = told
        self._ended = ended
        self._out: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._in = bytearray()
        self._descriptors: deque[int] = deque()
        self._open = True
        loop.add_reader(sock, self._receive)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message. The descriptors must stay open until it has gone."""
        if not self._open:
            return
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        assert len(descriptors) <= _MOST_DESCRIPTORS
        frame = _HEADER.pack(len(body), len(descriptors)) + body
        self._out.append((memoryview(frame), tuple(descriptors)))
        if len(self._out) == 1:
            self._write()

    def close(self) -> None:
        """Send no more, and hear no more."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _write(self) -> None:
        while self._out:
            frame, descriptors = self._out[0]
            try:
                sent = socket.send_fds(self._sock, [frame[:_PIECE]], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:
                self._out.clear()  # it has ended: `_receive` is told so; or takes nothing (`flush`)
                return
            if sent < len(frame):
                self._out[0] = frame[sent:], ()
            else:
                self._out.popleft()
        self._loop.remove_writer(self._sock)

    def flush(self, seconds: float) -> None:
        """Write what waits, and do nothing else meanwhile: this side ends. `seconds` may pass in which the other side
        takes nothing.
        """
        if self._open:
            self._sock.settimeout(seconds)
            self._write()

    def finish(self) -> None:
        """The other side is no more: take what it has sent still, and close."""
        while self._open and self._receive():
            pass
        self.close()

    def _receive(self) -> bool:
        """Take what is there; whether there may be more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, _PIECE, _MOST_DESCRIPTORS)
        except BlockingIOError:
            return False
        except OSError:
            data, descriptors = b"", []
        if not data:
            self.close()
            self._ended()
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._in += data
        self._descriptors += descriptors
        while self._open and self._take():
            pass
        return True

    def _take(self) -> bool:
        """One message, if a whole one is there."""
        if len(self._in) < _HEADER.size:
            return False
        size, count = _HEADER.unpack_from(self._in)
        end = _HEADER.size + size
        if len(self._in) < end or len(self._descriptors) < count:
            return False
        body = bytes(self._in[_HEADER.size : end])
        del self._in[:end]
        self._told(pickle.loads(body), [self._descriptors.popleft() for _ in range(count)])  # noqa: S301  our own
        return True


# -- to a worker ----------------------------------------------------------------------------------------------------

#: A listening socket that comes with the message: the number that names it from then on, and its address.
PassedSocket = tuple[int, Address]


class Begin(NamedTuple):
    """The first message. `settings` are packed (`proxy.config.settings`), `row` is the worker's row in shared memory,
    `own` where admin and probe listen.
    """

    row: int
    generation: int
    settings: bytes
    via: str
    places: Sequence[PassedSocket]
    own: Sequence[Address]


class Use(NamedTuple):
    """A new configuration is in force; its settings are packed."""

    generation: int
    settings: bytes


class Listen(NamedTuple):
    """Accept on these too; their sockets come with the message."""

    places: Sequence[PassedSocket]


class Leave(NamedTuple):
    """Accept no more on these sockets. Where their places are gone, no worker will: keep them until Shut."""

    numbers: Sequence[int]
    gone: bool = False


class Shut(NamedTuple):
    """The parent has closed these: accept what waits there still, then close them too."""

    numbers: Sequence[int]


class Own(NamedTuple):
    """Admin or probe listens there (or no more), and calls must not be sent to it."""

    address: Address
    gone: bool = False


class Gather(NamedTuple):
    """What have you counted? `since`: show the calls after this number; None: show none."""

    number: int
    since: int | None


class Do(NamedTuple):
    """drain: answers close their connections; retire: drain, and end when nothing is under way; refuse: new calls are
    refused; end: cut what is left, and end.
    """

    what: str


# -- to the parent --------------------------------------------------------------------------------------------------


class Using(NamedTuple):
    """The configuration is in force, with the first one the worker serves; or why it is not."""

    generation: int
    error: str = ""


class Left(NamedTuple):
    """Nothing is accepted there any more."""

    numbers: Sequence[int]


class Counted(NamedTuple):
    """The answer to Gather. `made` are the keys of shared state that the worker has come to use, as of `generation`;
    `cooldowns` began since the answer before.
    """

    number: int
    generation: int
    report: Report
    made: tuple[tuple[str, Key, Spec | None], ...]
    cooldowns: Sequence[CooldownBegan] = ()


class Ended(NamedTuple):
    """The last message, behind a last Counted."""

    cut: int


class Trouble(NamedTuple):
    """Why the worker can't write lines to the log; or, empty, that it can again."""

    why: str


class Note(NamedTuple):
    """Something for the log that the parent writes."""

    event: str
    lines: list[str]
    facts: dict[str, Any]
