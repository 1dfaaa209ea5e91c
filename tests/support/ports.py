"""Ports that are free, and stay so until the test listens there or finds that nobody does.

They lie below what the system hands out (net.ipv4.ip_local_port_range): no connection that something else makes, and
no listener on port 0, takes one meanwhile. Each process of a parallel run has numbers of its own.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _LAST, _EACH = 11_000, 32_000, 700
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_turns = itertools.count(os.getpid() * 31)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    base = _FIRST + _process * _EACH % (_LAST - _FIRST)
    while True:
        port = base + next(_turns) % _EACH
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server would
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
