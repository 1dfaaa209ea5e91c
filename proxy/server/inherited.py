"""Listening sockets that this process did not bind itself: they come from the service manager that started it, or from
the process that it takes over from (`proxy.take_over`).

A service manager passes sockets by number, with two environment variables (sd_listen_fds(3)). It says nothing of what
they are for, so each serves the setting that names its address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, MutableMapping
from typing import NamedTuple

from proxy.config.settings import Address

#: The first descriptor that a service manager passes (SD_LISTEN_FDS_START).
_FIRST = 3


class InheritedSocket(NamedTuple):
    """A listening socket that this process got from another, with its address as the configuration writes it. `what` is
    the name of its setting (`listen`, `admin`, `probe`); "" if any setting may have it.
    """

    what: str
    address: str
    sock: socket.socket


class Inherited:
    """The inherited sockets that no setting has taken yet."""

    def __init__(self, sockets: Iterable[InheritedSocket] = ()) -> None:
        self._left = list(sockets)

    def take(self, what: str, address: Address) -> list[socket.socket]:
        """Return the sockets for an address of the configuration's setting `what` (`listen`, `admin`, `probe`); the
        caller owns them from now on.
        """
        name = str(address)
        taken = [each for each in self._left if each.address == name and each.what in ("", what)]
        self._left = [each for each in self._left if each not in taken]
        return [each.sock for each in taken]

    @property
    def ports(self) -> set[int]:
        """The ports of the sockets that no setting has taken yet."""
        return {each.sock.getsockname()[1] for each in self._left if each.sock.family != socket.AF_UNIX}

    def close(self) -> list[str]:
        """Close the sockets that no setting has taken, and return their addresses."""
        left, self._left = self._left, []
        for each in left:
            each.sock.close()
        return [each.address for each in left]


def from_service_manager(environment: MutableMapping[str, str], pid: int) -> list[InheritedSocket]:
    """Return the listening sockets that the service manager has passed to the process `pid`, and take the variables
    that say so out of `environment`, since they are for this process alone.
    """
    owner, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if owner != str(pid) or not count.isdecimal():
        return []
    found = []
    for descriptor in range(_FIRST, _FIRST + int(count)):
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:  # the descriptor is something else
            continue
        if (address := usable(sock)) is not None:
            found.append(InheritedSocket("", str(address), sock))
    return found


def usable(sock: socket.socket) -> Address | None:
    """Prepare a socket that came from another process, and return the address that it listens at. A socket that is no
    listening TCP or unix socket is closed; the result is None then.
    """
    try:
        listens = sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        listens = False
    if not listens or sock.family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        sock.close()
        return None
    sock.set_inheritable(False)
    sock.setblocking(False)
    return bound(sock)


def bound(sock: socket.socket) -> Address:
    """Return the address of a socket, with the port that the system chose if the configured port is 0."""
    if sock.family == socket.AF_UNIX:
        return Address(unix=sock.getsockname())
    host, port, *_ = sock.getsockname()
    return Address(host, port)
