"""What a process tells the service manager that started it: ready, loading its configuration again, ending.

The protocol is systemd's (sd_notify(3)): a datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names.
Without that variable nothing is sent, and a socket that takes nothing holds nobody up.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


class ServiceManager:
    """The service manager that `environment` names, if any."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")

    def ready(self, status: str) -> None:
        """Everything is bound and served, at first or again after a reload; `status` is a line for people."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self, now: float) -> None:
        """The configuration is being loaded again, which began at `now` (seconds of CLOCK_MONOTONIC)."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={now * 1e6:.0f}")

    def stopping(self, within: float) -> None:
        """The process lets its calls run out, and ends within so many seconds, which the manager is asked to wait."""
        self._send("STOPPING=1", "STATUS=calls run out", f"EXTEND_TIMEOUT_USEC={within * 1e6:.0f}")

    def status(self, status: str) -> None:
        """A line for people, and nothing else."""
        self._send(f"STATUS={status}")

    def _send(self, *lines: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        # "@" is how the variable writes the zero byte of an abstract name (unix(7)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)
