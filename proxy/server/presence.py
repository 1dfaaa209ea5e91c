"""Whether an app that has closed its sending direction still reads.

A FIN says that nothing more is sent, not that the app has stopped reading. `nc -N` and HTTP/1.0 clients send one and
wait for their answer; an SDK that gives a call up closes its socket, and the packet is the same. For an app on this
machine, which is a sidecar's usual client, the kernel knows: the app's own socket is either held by a process, or it is
an orphan that the kernel keeps until the connection has ended. `sock_diag` (sock_diag(7)) distinguishes the two by the
inode, and costs one small message. An app on another machine can't be checked; its FIN counts as its leaving, as it
does for Envoy, nginx and Go's server.
"""

from __future__ import annotations

import select
import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ALL_STATES = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2, up to its inet_diag_sockid
_INODE_AT = 68  # offset of the inode in inet_diag_msg: after family to expires, rqueue, wqueue, uid
_NO_COOKIE = b"\xff" * 8


def is_held(peer: tuple[str, int], local: tuple[str, int], family: int) -> bool | None:
    """Whether the socket at the other end (`peer`) of a TCP connection of this machine is still held by a process. None
    if the socket no longer exists, or is not on this machine, or if the kernel does not answer. `local`: our end;
    `family`: the address family of the connection.
    """
    try:
        packed = (socket.inet_pton(family, host.partition("%")[0]).ljust(16, b"\0") for host in (peer[0], local[0]))
        sockid = struct.pack("!HH", peer[1], local[1]) + b"".join(packed) + b"\0\0\0\0" + _NO_COOKIE
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES) + sockid
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0.05)
            kernel.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
            answer = kernel.recv(1024)
    except (OSError, ValueError):
        return None
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _HEADER.size + _INODE_AT + 4:
        return None
    return bool(struct.unpack_from("=I", answer, _HEADER.size + _INODE_AT)[0])


def is_connected(descriptor: int) -> bool:
    """Whether the peer of the unix socket with this descriptor still holds its end: once the peer has closed all of it,
    not only one direction, the kernel reports a hang-up.
    """
    asked = select.poll()
    asked.register(descriptor, 0)
    return not any(said & (select.POLLHUP | select.POLLERR) for _, said in asked.poll(0))


def has_ended(descriptor: int) -> bool:
    """Whether the peer of the socket with this descriptor, whose bytes are not being read, has closed its sending
    direction, or the connection broke.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLRDHUP)
    return bool(asked.poll(0))


def address(name: object) -> str:
    """Return a socket's name as host:port, or "" for a socket without one."""
    if not isinstance(name, tuple):
        return ""
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
