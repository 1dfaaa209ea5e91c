"""Listeners through reloads: the proxy port, admin and probe; and how addresses become listening sockets.

Every address is bound before anything is served, so that the announced addresses are those that listen. A socket file
that a dead process left is replaced; one on which another process answers is not. If an address can't be bound, a line
says so.

A changed address is bound before anything of a new configuration is taken, and serves before the old one closes; if it
can't be bound, nothing has changed. An unchanged listener is not touched. A socket that the process has inherited for
an address is used instead of a new one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from proxy.config.problems import Problem, dotted
from proxy.config.settings import LONGEST_SOCKET, Address, Settings
from proxy.config.yaml_tree import Map, Seq, mark_at
from proxy.process import Background
from proxy.server.inherited import Inherited, InheritedSocket, bound

#: The number of connections that may wait to be accepted.
BACKLOG = 1024


class CannotListenError(Exception):
    """Raised if an address is not available; the text is one line, and names a remedy. `what` is the setting's name."""

    def __init__(self, text: str, what: str, address: Address) -> None:
        super().__init__(text)
        self.what = what
        self.address = address


class Opener(Protocol):
    """A server that can serve on listening sockets."""

    async def open(self, address: Address, sockets: Sequence[socket.socket]) -> Any:
        """Serve on sockets that all listen at this address; return an object that `shut` takes to end the serving."""

    async def shut(self, opened: Any) -> None:
        """Accept no more connections on the listener for which `open` returned `opened`. Open connections continue as
        far as they can.
        """

    def sockets(self, opened: Any) -> list[socket.socket]:
        """Return all sockets, on which connections may wait, of the listener for which `open` returned `opened`."""


#: A setting that asks for a listener: its name, and the address as configured.
_Wanted = tuple[str, Address]
#: A listener: the address that it got, and what its opener returned.
_Listener = tuple[Address, Any]


@dataclass(eq=False, slots=True)
class ListenPlan:
    """The addresses at which a configuration listens, with their settings (`wanted`), and the listening sockets of the
    new addresses.
    """

    wanted: list[_Wanted]
    bound: dict[_Wanted, list[socket.socket]]

    @property
    def sockets(self) -> list[socket.socket]:
        """All sockets of the plan."""
        return [sock for sockets in self.bound.values() for sock in sockets]


class Listeners:
    """All listeners of the process. Each is served by the opener of its setting (`listen`, `admin`, `probe`)."""

    def __init__(self, openers: Mapping[str, Opener], inherited: Inherited | None) -> None:
        self._openers = openers
        self._inherited = Inherited() if inherited is None else inherited
        self._open: dict[_Wanted, list[_Listener]] = {}
        self._planned: list[_Wanted] = []  # what is open once every plan has been taken
        self._pending: list[ListenPlan] = []  # plans that are not taken yet
        self._closing = Background()  # in the background: the reload's own request may be using the admin listener

    def plan(self, settings: Settings) -> ListenPlan:
        """Bind the addresses that are new in these settings. Raises CannotListenError, with nothing left open."""
        wanted: list[_Wanted] = [("listen", address) for address in settings.listen]
        if settings.admin is not None:
            wanted.append(("admin", settings.admin.listen))
        if settings.probe is not None:
            wanted.append(("probe", settings.probe))
        plan = ListenPlan(wanted, {})
        ours = {address.port for listeners in self._open.values() for address, _ in listeners}
        ours.update(bound(sock).port for each in self._pending for sock in each.sockets)
        ours.update(self._inherited.ports)
        try:
            for each in wanted:
                if each not in self._planned:
                    plan.bound[each] = self._inherited.take(*each) or bind(each[1], each[0], ours=ours)
        except CannotListenError:
            for sock in plan.sockets:
                sock.close()
            raise
        self._planned = wanted
        self._pending.append(plan)
        return plan

    async def take(self, plan: ListenPlan) -> None:
        """Serve the plan's new sockets, then close the listeners that the plan no longer wants. Plans are taken in the
        order in which they were made.
        """
        self._pending.remove(plan)
        for each, sockets in plan.bound.items():
            opener, at = self._openers[each[0]], _by_address(sockets)
            self._open[each] = [(address, await opener.open(address, each)) for address, each in at.items()]
        for each in [each for each in self._open if each not in plan.wanted]:
            for _, opened in self._open.pop(each):
                self._closing.begin(self._openers[each[0]].shut(opened))

    async def close(self, *settings: str) -> None:
        """Close all listeners of these settings, and wait for those that a reload has closed."""
        await asyncio.gather(*self._closing.tasks)
        for each in [each for each in self._open if each[0] in settings]:
            for _, opened in self._open.pop(each):
                await self._openers[each[0]].shut(opened)

    def offered(self) -> list[InheritedSocket]:
        """Return all open sockets, for a process that takes over from this one."""
        return [
            InheritedSocket(what, str(address), sock)
            for (what, address), listeners in self._open.items()
            for _, opened in listeners
            for sock in self._openers[what].sockets(opened)
        ]

    def close_inherited(self) -> list[str]:
        """Close the inherited sockets that no setting has taken, and return their addresses."""
        return self._inherited.close()

    def addresses(self, setting: str) -> list[Address]:
        """Return the addresses of a setting's listeners, with the ports that the system chose."""
        return [address for each, each_of in self._open.items() if each[0] == setting for address, _ in each_of]


def where(settings: Settings, error: CannotListenError) -> Problem:
    """Return this error as a problem of the configuration, at the place that names the address."""
    top = settings.provenance.top
    path: tuple[str | int, ...] = (error.what,)
    value = top.get(error.what)
    if isinstance(value, Seq):
        path = (error.what, settings.listen.index(error.address))
    elif isinstance(value, Map):
        path = (error.what, "listen")
    mark = mark_at(top, path)
    file = mark.file if mark.line else settings.file or "redrive"
    return Problem(file, mark.line, mark.column, dotted(path), str(error))


def bind(address: Address, what: str, *, ours: Collection[int] = ()) -> list[socket.socket]:
    """Return sockets that listen at an address: one, or one for each address family of a host name. `what` is the
    setting's name, for the error. They are bound with SO_REUSEPORT, so that other sockets of redrive can listen there
    too (made by `again`, or by a reload for another address with the same port). Unless the port is in `ours`, it is
    first checked that no other program listens there. Raises CannotListenError.
    """
    try:
        if address.unix is not None:
            _take_over(Path(address.unix))
            return [_listen(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address.unix)]
        return _tcp(address, address.port in ours)
    except (OSError, UnicodeError) as error:  # UnicodeError: the name can be no host's
        remedy = _socket_remedy(error, address.unix) if address.unix is not None else _port_remedy(error, address)
        raise CannotListenError(f"can't listen on {address}: {remedy}", what, address) from error


def again(sock: socket.socket) -> socket.socket:
    """Return another socket that listens where this one does, with a queue of its own. The queue of a unix socket is
    shared, and so is that of a socket whose address no other socket may have.
    """
    if sock.family == socket.AF_UNIX:
        return sock.dup()
    try:
        return _listen(socket.socket(sock.family, sock.type, sock.proto), sock.getsockname())
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return sock.dup()  # a service manager's socket, which allows no other


def _by_address(sockets: Sequence[socket.socket]) -> dict[Address, list[socket.socket]]:
    """Return these sockets by the address that they listen at: an inherited listener may have several at one."""
    at: dict[Address, list[socket.socket]] = {}
    for sock in sockets:
        at.setdefault(bound(sock), []).append(sock)
    return at


def _tcp(address: Address, is_ours: bool) -> list[socket.socket]:
    found = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    if address.port == 0:  # two families would get two ports
        found = found[:1]
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    for family, kind, protocol, _, sockaddr in dict.fromkeys(found):
        try:
            if address.port and not is_ours:
                # Binding without SO_REUSEPORT fails if another process has the port, even with SO_REUSEPORT.
                _listen(socket.socket(family, kind, protocol), sockaddr, shared=False).close()
            sockets.append(_listen(socket.socket(family, kind, protocol), sockaddr))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                for sock in sockets:
                    sock.close()
                raise
            absent = error  # `localhost` on a machine without IPv6 still has IPv4
    if absent is not None and not sockets:
        raise absent
    return sockets


def _listen(sock: socket.socket, address: tuple[object, ...] | str, *, shared: bool = True) -> socket.socket:
    try:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _take_over(path: Path) -> None:
    """Remove a socket file on which no process answers."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is not a socket has that name")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except BlockingIOError:  # a process listens there, with a full queue
            pass
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:  # the error of another kind of socket
                raise


def _socket_remedy(error: OSError | UnicodeError, path: str) -> str:
    """Return what is wrong with a socket's path, and what helps."""
    number, folder = getattr(error, "errno", None), Path(path).parent
    if number == errno.EADDRINUSE:
        return "the socket is in use; end the process that listens there, or name another path"
    if number in (errno.ENOENT, errno.ENOTDIR) and not folder.is_dir():
        return f"{folder} is not a folder; make it, or name another path"
    if number == errno.EEXIST:
        return "a file that is not a socket has that name; remove it, or name another path"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return (
            f"user {os.geteuid()} can't make a socket in {folder}; give it write permission there, or name another path"
        )
    if number is None:  # Python's own refusal
        return f"the path has {len(os.fsencode(path))} bytes; name one of at most {LONGEST_SOCKET}"
    return f"{error.strerror}; name another path" if isinstance(error, OSError) else str(error)


def _port_remedy(error: OSError | UnicodeError, address: Address) -> str:
    """Return what is wrong with an address, and what helps."""
    if isinstance(error, socket.gaierror | UnicodeError):
        why = error.strerror if isinstance(error, socket.gaierror) else "it is not a host name"
        return f"the host name has no address ({why}); name an IP address"
    if error.errno == errno.EADDRINUSE:
        return (
            f"the port is in use; `ss -ltnp 'sport = :{address.port}'` names the process: "
            f"end it, or choose another port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        if address.port < 1024:
            return "ports below 1024 need the capability NET_BIND_SERVICE; choose a higher one"
        return "permission denied; choose another port"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL):
        return "this machine does not have that address; `ip address` lists those that it has, 0.0.0.0 is all of them"
    return error.strerror or str(error)
