"""The take-over of a running process's listeners by its successor, another redrive on the same machine
(`redrive run --take-over`).

Law: a connection that an app makes is answered by one of the two processes, and none is refused. The successor gets the
listening sockets themselves, so that the connections that wait on these sockets outlive the process that is replaced.
Until the successor serves, the process before it changes nothing. If the successor ends before that, for whatever
reason, the process before it goes on as if nothing had been asked.

Theory. A process that serves offers its listeners on a unix socket. The successor asks for them in a conversation whose
lines are JSON. The conversation stays the same in every release, since the two processes may be of different releases:

    successor                                    process before it
    {"take_over": 1, "release": "0.2.0"}
                                                 {"release": "0.1.0", "sockets": 2}
                                                 {"what": "listen", "address": "127.0.0.1:8080"}    one descriptor each
                                                 {"what": "admin", "address": "127.0.0.1:9901"}
    {"serving": true}                            with the descriptor on which idle connections may come
                                                 {"drains": true, "connections": true}

or, in place of any line, {"refused": "why"}. Each side ignores members that it does not know, and a descriptor that it
does not expect: idle connections of apps are given away (`proxy.server.idle_handover`) only if both sides know how.

Without a path, the socket has abstract names (unix(7)), which need no folder that can be written to and disappear when
their process ends: one name is made from the configuration's path, the others from the addresses where the proxy
listens. By these names a successor finds the process that it replaces. An abstract name has no permissions, so both
sides ask the kernel who the other is: it must be the same user, in the same process-id namespace, so that no other
container of a pod can ask. With a path, the socket is a file that only its user can open (0600), and that may be shared
between containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy import __version__
from proxy.config.settings import Settings
from proxy.process import Background
from proxy.server.idle_handover import pair
from proxy.server.inherited import InheritedSocket, from_service_manager, usable

#: The version of the conversation.
_CONVERSATION = 1
#: Seconds in which the other side must take or send a line that needs no preparation.
_PATIENCE = 5.0
#: The most bytes of a line.
_LINE = 4096
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process id, user, group


class TakeOverError(Exception):
    """Raised if the listeners of the process that serves can't be taken over; the text is one line for people."""


def names(path: str, file: str | None, settings: Settings) -> list[str]:
    """Return the names of the sockets on which a process with this configuration (`file`, None for the defaults alone)
    offers its listeners: `path`, or if it is "", abstract names.
    """
    if path:
        return [str(Path(path).resolve())]
    digest = hashlib.sha256(os.path.realpath(file).encode() if file else b"").hexdigest()[:16]
    places = [str(address) for address in settings.listen if address.port or address.unix is not None]
    # The kernel takes 107 bytes; a longer place is left out, since the file's name is enough.
    return [f"\0redrive/{os.geteuid()}/{name}" for name in (digest, *places) if len(name.encode()) < 80]


def shown(name: str) -> str:
    """Return the name of a socket as people write it."""
    return f"@{name[1:]}" if name.startswith("\0") else name


@dataclass(frozen=True, slots=True)
class Handover:
    """The listeners that a process gets from others when it starts (`sockets`), from a `predecessor` if there is one;
    and the names on which it offers its own to a successor.
    """

    sockets: Sequence[InheritedSocket] = ()
    predecessor: Predecessor | None = None
    names: Sequence[str] = ()


def handover(path: str | None, file: str | None, settings: Settings, environment: MutableMapping[str, str]) -> Handover:
    """Return the listeners for a process that starts: those that a service manager passes in `environment`, and, if
    `path` is not None, those of the process that serves now, if one does. `path`: the socket on which that process
    offers them, "" for the names that `file` and `settings` lead to (see `names`). Raises TakeOverError.
    """
    passed = from_service_manager(environment, os.getpid())
    offered = names(path or "", file, settings)
    before = None if path is None else predecessor(offered)
    return Handover([*passed, *([] if before is None else before.sockets)], before, offered)


# -- the successor ----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Predecessor:
    """The process that serves until this one does. `sockets` are its listeners."""

    pid: int
    release: str
    sockets: list[InheritedSocket]
    _peer: _Peer

    def replace(self) -> socket.socket | None:
        """Tell the predecessor that this process serves. Return, once it accepts no more successors or has ended, the
        socket on which its idle connections come; None if it gives none.
        """
        ours, theirs = pair()
        gives = True  # unless it says that it does not: it may have given some, and ended before its line was heard
        with contextlib.suppress(OSError, TakeOverError), self._peer.sock, theirs:
            self._peer.say({"serving": True}, theirs.fileno())
            gives = bool(self._peer.hear().get("connections"))
        if gives:
            return ours
        ours.close()
        return None


def predecessor(of: Sequence[str]) -> Predecessor | None:
    """Ask a running redrive for its listeners, to take them over; None if no process offers its listeners. `of`: the
    names of the unix sockets on which that process may offer them. Raises TakeOverError.
    """
    for name in of:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_PATIENCE)
        try:
            sock.connect(name)
        except OSError as error:
            sock.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                continue
            raise TakeOverError(f"can't take over: {shown(name)}: {error.strerror or error}") from error
        try:
            return _asked(sock, name)
        except (OSError, ValueError, KeyError) as error:
            sock.close()
            raise TakeOverError(f"can't take over: {shown(name)} does not answer as redrive does: {error}") from error
        except TakeOverError:
            sock.close()
            raise
    return None


def _asked(sock: socket.socket, name: str) -> Predecessor:
    """Ask for the listeners on `sock`, a connection to the process that offers them; `name` is that of the socket it is
    connected to. Raises TakeOverError if it refuses, or is another user's.
    """
    pid, why = _other(sock, shared=not name.startswith("\0"))
    if why:
        raise TakeOverError(f"can't take over: {shown(name)} belongs to {why}")
    peer = _Peer(sock)
    with contextlib.suppress(ConnectionError):  # a refusal may come first
        peer.say({"take_over": _CONVERSATION, "release": __version__})
    begins = peer.hear()
    sockets = []
    for _ in range(begins["sockets"]):
        line = peer.hear()
        found = socket.socket(fileno=peer.descriptors.pop(0))
        if usable(found) is not None:
            sockets.append(InheritedSocket(line["what"], line["address"], found))
    return Predecessor(pid, begins["release"], sockets, peer)


# -- the process before it --------------------------------------------------------------------------------------------


class Offer:
    """The offer of this process's listeners. `listeners` is awaited for them, and returns None if they can't be given
    away. `replaced` is called once the successor serves, with its process id and release, and with the socket on which
    it takes idle connections (None if it takes none). `kept` is called with the process id of a successor that ended
    before it served. `is_asked`: a successor starts; `is_taken`: it serves.
    """

    def __init__(
        self,
        listeners: Callable[[], Awaitable[list[InheritedSocket] | None]],
        replaced: Callable[[int, str, socket.socket | None], None],
        kept: Callable[[int], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._replaced = replaced
        self._kept = kept
        self._conversations = Background()
        self._open: dict[str, socket.socket] = {}
        self.is_asked = self.is_taken = False

    def open(self, names: Iterable[str]) -> None:
        """Offer the listeners on unix sockets with these names (paths, or abstract names, which begin with a NUL). An
        abstract name that another process has is left out. Raises OSError if a path can't be made.
        """
        for name in names:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                if name.startswith("\0"):
                    sock.bind(name)
                else:
                    _bind(sock, Path(name))
                sock.listen(1)
            except OSError:
                sock.close()
                if not name.startswith("\0"):
                    raise
                continue
            sock.setblocking(False)
            self._open[name] = sock
            self._loop.add_reader(sock, self._accept, sock, not name.startswith("\0"))

    def close(self) -> None:
        """Withdraw the offer. A socket file stays: a successor may have replaced it already."""
        for sock in self._open.values():
            self._loop.remove_reader(sock)
            sock.close()
        self._open.clear()

    def _accept(self, listener: socket.socket, shared: bool) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.settimeout(_PATIENCE)
        pid, why = _other(sock, shared=shared)
        if not why and self.is_asked:
            why = "another process is taking over"
        elif why:
            why = f"the listeners are not given to {why}"
        if why:
            with contextlib.suppress(OSError), sock:
                _Peer(sock).say({"refused": why})
            return
        self.is_asked = True
        self._conversations.begin(self._converse(sock, pid))

    async def _converse(self, sock: socket.socket, pid: int) -> None:
        """Give the listeners to the process `pid`, which has connected on `sock`, and wait until it serves or has
        ended.
        """
        peer, release = _Peer(sock), ""
        try:
            release = await self._give(peer)
            connections = await self._serves(peer)
        except (OSError, ValueError, KeyError, TakeOverError):
            self.is_asked = False
            self._kept(pid)
        else:
            self.is_taken = True
            self.close()
            self._replaced(pid, release, connections)
            with contextlib.suppress(OSError):
                peer.say({"drains": True, "connections": connections is not None})
        finally:
            sock.close()

    async def _give(self, peer: _Peer) -> str:
        """Send the listeners to the successor `peer`, which asks for them; return the successor's version of
        redrive.
        """
        asked = await asyncio.to_thread(peer.hear)
        if asked["take_over"] != _CONVERSATION:
            peer.say({"refused": f"redrive {__version__} does not know this way to take over"})
            raise TakeOverError
        listeners = await self._listeners()
        if listeners is None:
            peer.say({"refused": "it is draining"})
            raise TakeOverError
        await asyncio.to_thread(_send, peer, listeners)
        return str(asked["release"])

    async def _serves(self, peer: _Peer) -> socket.socket | None:
        """Wait for the line that says that the successor serves; return the socket on which it takes idle connections,
        None if it takes none. Raises TakeOverError if the successor has ended.
        """
        peer.sock.setblocking(False)
        while True:
            try:
                line = peer.hear()
                break
            except BlockingIOError:
                readable = self._loop.create_future()
                self._loop.add_reader(peer.sock, _wake, readable)
                try:
                    await readable
                finally:
                    self._loop.remove_reader(peer.sock)
        if not line["serving"]:
            raise TakeOverError
        return socket.socket(fileno=peer.descriptors.pop()) if peer.descriptors else None


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _send(peer: _Peer, listeners: Sequence[InheritedSocket]) -> None:
    peer.say({"release": __version__, "sockets": len(listeners)})
    for each in listeners:
        peer.say({"what": each.what, "address": each.address}, each.sock.fileno())


def _bind(sock: socket.socket, path: Path) -> None:
    """Bind a socket to a path that only this user can open. A socket file that is there is replaced, unless a process
    answers on it. Raises OSError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            pass  # the bind below says what is wrong
    mask = os.umask(0o177)
    try:
        sock.bind(str(path))
    finally:
        os.umask(mask)


# -- the conversation -------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Peer:
    """The other side of a conversation. `descriptors` are those that came with its lines."""

    sock: socket.socket
    descriptors: list[int] = field(default_factory=list)
    _read: bytes = b""

    def say(self, line: dict[str, Any], *descriptors: int) -> None:
        """Send `line` as a line of JSON, with descriptors. Raises OSError."""
        rest = json.dumps(line).encode() + b"\n"
        sent = socket.send_fds(self.sock, [rest], descriptors) if descriptors else 0
        if sent < len(rest):  # the other side may have answered, and closed, by now
            self.sock.sendall(rest[sent:])

    def hear(self) -> dict[str, Any]:
        """Wait for a line, and return the JSON object that it is. Raises TakeOverError if the other side refuses or has
        closed the connection, OSError if reading fails, and ValueError if the line is too long or is not a JSON object.
        """
        while b"\n" not in self._read:
            # A descriptor comes with the first byte of its line, and a read does not go beyond the next such byte.
            data, descriptors, _, _ = socket.recv_fds(self.sock, _LINE, 1)
            self.descriptors += descriptors
            self._read += data
            if not data:
                raise TakeOverError("can't take over: the process that serves has ended the conversation")
            if len(self._read) > _LINE:
                raise ValueError("a line is too long")
        line, _, self._read = self._read.partition(b"\n")
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError("a line is no object")
        if "refused" in said:
            raise TakeOverError(f"can't take over: the process that serves refuses: {said['refused']}")
        return said


def _other(sock: socket.socket, *, shared: bool) -> tuple[int, str]:
    """Return the process id of the other side, and why it is not one to talk to ("" if it is): a process of another
    user; or, unless the socket may be `shared` between containers, one in another process-id namespace.
    """
    pid, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.geteuid():
        return pid, f"user {user}"
    if pid == 0 and not shared:
        return pid, "a process of another container"
    return pid, ""
