"""The messages between a parent and its workers, each with the file descriptors that go with it.

Law: a message arrives whole and in order, or not at all; when one side ends, the other learns of it at once, whatever
the process died of. No side waits for the other: messages that the other side does not accept yet are kept here.

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
from proxy.observe.held_apps import HeldByApp
from proxy.observe.weather import LaneWeather
from proxy.retry.scopes.factory import Key
from proxy.retry.scopes.registry import Spec
from proxy.retry.weather.cooldown import CooldownBegan
from proxy.retry.weather.weather_changes import WeatherChanged

_HEADER = Struct("=QI")  # the length of the body in bytes, and the number of its descriptors
_PIECE = 256 * 1024
#: The exit status of a worker whose release is not its parent's: EX_CONFIG of sysexits.h.
OTHER_RELEASE = 78
#: SCM_MAX_FD of the kernel.
_MOST_DESCRIPTORS = 253

OnMessage = Callable[[Any, list[int]], None]


class Channel:
    """An end of the channel between a parent and a worker. `on_message` is called with each message that arrives and
    its file descriptors, which the callee then owns; `ended` is called once, when the other side has closed.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, on_message: OnMessage, ended: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._on_message = on_message
        self._ended = ended
        self._out: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._in = bytearray()
        self._descriptors: deque[int] = deque()
        self._open = True
        loop.add_reader(sock, self._receive)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message and file descriptors with it, which the caller may close then."""
        if not self._open:
            return
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        assert len(descriptors) <= _MOST_DESCRIPTORS
        frame = _HEADER.pack(len(body), len(descriptors)) + body
        self._out.append((memoryview(frame), tuple(os.dup(each) for each in descriptors)))
        if len(self._out) == 1:
            self._write()

    def close(self) -> None:
        """Close this end: nothing more is sent or received."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._drop()

    def _drop(self) -> None:
        """Drop the messages that were not written."""
        for _, descriptors in self._out:
            _close(descriptors)
        self._out.clear()

    def _write(self) -> None:
        while self._out:
            frame, descriptors = self._out[0]
            try:
                sent = socket.send_fds(self._sock, [frame[:_PIECE]], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:
                self._drop()  # the other side has ended, which `_receive` finds out; or, in `flush`, reads nothing
                return
            _close(descriptors)
            if sent < len(frame):
                self._out[0] = frame[sent:], ()
            else:
                self._out.popleft()
        self._loop.remove_writer(self._sock)

    def flush(self, seconds: float) -> None:
        """Write all messages that are queued, blocking, because this process ends. If the other side reads nothing for
        `seconds`, the rest is dropped.
        """
        if self._open:
            self._sock.settimeout(seconds)
            self._write()

    def finish(self) -> None:
        """Receive the messages that the other side sent before it ended, and close."""
        while self._open and self._receive():
            pass
        self.close()

    def _receive(self) -> bool:
        """Read from the socket once, and take the messages that are whole; return whether there may be more to read."""
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
        """Take one message, if a whole one has arrived; return whether a message was taken."""
        if len(self._in) < _HEADER.size:
            return False
        size, count = _HEADER.unpack_from(self._in)
        end = _HEADER.size + size
        if len(self._in) < end or len(self._descriptors) < count:
            return False
        body = bytes(self._in[_HEADER.size : end])
        del self._in[:end]
        self._on_message(pickle.loads(body), [self._descriptors.popleft() for _ in range(count)])  # noqa: S301  our own
        return True


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


# -- to a worker ----------------------------------------------------------------------------------------------------

#: A listening socket that comes with the message: the number that names it from now on, and its address.
PassedSocket = tuple[int, Address]


class Begin(NamedTuple):
    """The first message to a worker. `settings` is the packed configuration (`proxy.config.settings`), `row` the
    worker's row in shared memory, `own` the addresses where the parent's admin and probe ports listen.
    """

    row: int
    generation: int
    settings: bytes
    via: str
    places: Sequence[PassedSocket]
    own: Sequence[Address]


class Use(NamedTuple):
    """A message to a worker: a new configuration to use, whose settings are packed (`proxy.config.settings`)."""

    generation: int
    settings: bytes


class Listen(NamedTuple):
    """A message to a worker: more sockets on which it is to accept connections. The sockets come with the message."""

    places: Sequence[PassedSocket]


class Leave(NamedTuple):
    """A message to a worker: the sockets on which it is to stop accepting. If they are `gone`, no worker will accept
    there any more, and this one keeps them until the message Shut.
    """

    numbers: Sequence[int]
    gone: bool = False


class Shut(NamedTuple):
    """A message to a worker: the sockets that the parent has closed. The worker accepts the connections that still wait
    there, then closes the sockets too.
    """

    numbers: Sequence[int]


class Own(NamedTuple):
    """A message to a worker: at this address the parent's admin or probe port listens, so calls must not be sent there;
    with `gone`, it listens there no longer.
    """

    address: Address
    gone: bool = False


class TakeIdle(NamedTuple):
    """A message to a worker: go on with the idle connections that come on the socket in the message
    (`proxy.server.idle_handover`).
    """


class Gather(NamedTuple):
    """A request for what the worker has counted. `since`: the worker also sends its calls whose numbers are larger than
    this; None: it sends no calls.
    """

    number: int
    since: int | None


class Do(NamedTuple):
    """A command to a worker, one of five words. drain: close each connection with its next answer, and hold no call any
    more; give way: close connections in the same way, but go on holding calls, and give idle connections away on the
    socket that comes with the message, if one does; retire: give way, and end when nothing is under way; refuse: refuse
    new calls; end: cut what is under way, and end.
    """

    what: str


# -- to the parent --------------------------------------------------------------------------------------------------


class Using(NamedTuple):
    """The worker's answer to Begin and Use: the configuration is in force (from the first answer on, the worker
    serves), or `error` says why not.
    """

    generation: int
    error: str = ""


class Left(NamedTuple):
    """The worker's answer to Leave: the sockets on which it accepts no more."""

    numbers: Sequence[int]


class Counted(NamedTuple):
    """The worker's answer to Gather. `made` are the keys of the shared state (such as buckets) that the worker has
    begun to use, in the configuration's `generation`; `cooldowns` are those that its calls began since its previous
    answer, `changes` the limits and outages that began or were over since; `weather` are its lanes as they are now,
    `held` its held calls by app.
    """

    number: int
    generation: int
    report: Report
    made: tuple[tuple[str, Key, Spec | None], ...]
    cooldowns: Sequence[CooldownBegan] = ()
    changes: Sequence[WeatherChanged] = ()
    weather: Sequence[LaneWeather] = ()
    held: HeldByApp | None = None


class Ended(NamedTuple):
    """The worker's last message, after a last Counted; `cut` is the number of calls that it cut short."""

    cut: int


class Trouble(NamedTuple):
    """The reason why the worker can't write lines to the access log; empty once it can again."""

    why: str


class Note(NamedTuple):
    """A notice of the worker, for the log that the parent writes."""

    event: str
    lines: list[str]
    facts: dict[str, Any]
