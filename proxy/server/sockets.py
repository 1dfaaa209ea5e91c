"""Addresses into listening sockets, with one clear line where that can't be.

Every address is bound before anything is served, so that what was announced is what listens. A socket file that a
dead process left behind is taken over; one that somebody answers on is not.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Collection
from pathlib import Path

from proxy.config.settings import LONGEST_SOCKET, Address

#: Connections that may wait to be accepted.
BACKLOG = 1024


class CannotListenError(Exception):
    """The address can't be had; the text is one line for people, and names a remedy. `what` is the setting's name."""

    def __init__(self, text: str, what: str, address: Address) -> None:
        super().__init__(text)
        self.what = what
        self.address = address


def bind(address: Address, what: str, *, ours: Collection[int] = ()) -> list[socket.socket]:
    """Sockets that listen at an address: one, or one for each family of a name. `what` is the setting's name.

    Others of this program may listen there too (`again`, or after a reload another address with the same port):
    SO_REUSEPORT. That nobody else does is asked first, but where a port is in `ours`. Raises CannotListenError.
    """
    try:
        if address.unix is not None:
            return [_unix(address.unix)]
        return _tcp(address, address.port in ours)
    except (OSError, UnicodeError) as error:  # the latter of a name that none can have
        remedy = _socket_remedy(error, address.unix) if address.unix is not None else _port_remedy(error, address)
        raise CannotListenError(f"can't listen on {address}: {remedy}", what, address) from error


def again(sock: socket.socket) -> socket.socket:
    """Another socket where this shared one listens, with a queue of its own; a unix socket's queue is shared."""
    if sock.family == socket.AF_UNIX:
        return sock.dup()
    return _listen(socket.socket(sock.family, sock.type, sock.proto), sock.getsockname())


def bound(sock: socket.socket) -> Address:
    """The address that a socket got: the port that the system chose, where it was asked to."""
    if sock.family == socket.AF_UNIX:
        return Address(unix=sock.getsockname())
    host, port, *_ = sock.getsockname()
    return Address(host, port)


def _tcp(address: Address, is_ours: bool) -> list[socket.socket]:
    found = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    if address.port == 0:  # two families would get two ports
        found = found[:1]
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    for family, kind, protocol, _, place in dict.fromkeys(found):
        try:
            if address.port and not is_ours:
                # Whoever else has the port, with SO_REUSEPORT even, is noticed by asking without it.
                _listen(socket.socket(family, kind, protocol), place, shared=False).close()
            sockets.append(_listen(socket.socket(family, kind, protocol), place))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                for sock in sockets:
                    sock.close()
                raise
            absent = error  # `localhost` on a machine without IPv6 still has IPv4
    if absent is not None and not sockets:
        raise absent
    return sockets


def _listen(sock: socket.socket, place: tuple[object, ...], *, shared: bool = True) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _unix(path: str) -> socket.socket:
    _take_over(Path(path))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _take_over(path: Path) -> None:
    """Remove a socket file that nobody answers on."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is no socket has that name")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except BlockingIOError:  # so many wait there that there is no place in the queue
            pass
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:  # it is another kind of socket
                raise


def _socket_remedy(error: OSError | UnicodeError, path: str) -> str:
    """What is wrong with a socket's path, and what helps."""
    number, folder = getattr(error, "errno", None), Path(path).parent
    if number == errno.EADDRINUSE:
        return "the socket is in use; end the process that listens there, or name another path"
    if number in (errno.ENOENT, errno.ENOTDIR) and not folder.is_dir():
        return f"{folder} is no folder; make it, or name another path"
    if number == errno.EEXIST:
        return "a file that is no socket has that name; remove it, or name another path"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return f"user {os.geteuid()} may not make a socket in {folder}; let it write there, or name another path"
    if number is None:  # Python's own refusal
        return f"the path has {len(os.fsencode(path))} bytes; name one of at most {LONGEST_SOCKET}"
    return f"{error.strerror}; name another path" if isinstance(error, OSError) else str(error)


def _port_remedy(error: OSError | UnicodeError, address: Address) -> str:
    """What is wrong with an address, and what helps."""
    if isinstance(error, socket.gaierror | UnicodeError):
        why = error.strerror if isinstance(error, socket.gaierror) else "it is no host name"
        return f"the name is not known here ({why}); name an IP address"
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
