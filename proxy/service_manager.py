"""Messages of a process to the service manager that started it: ready, loading its configuration again, ending.

The protocol is systemd's (sd_notify(3)): a datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names.
Without that variable nothing is sent. A socket that accepts nothing delays nothing.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


class ServiceManager:
    """The service manager whose socket the environment names; without one, every message is dropped."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")

    def ready(self, status: str) -> None:
        """Report that everything is bound and served, at start or after a reload; `status` is a line for people."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self, now: float) -> None:
        """Report that the configuration is being loaded again since `now` (seconds of CLOCK_MONOTONIC)."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={now * 1e6:.0f}")

    def stopping(self, within: float) -> None:
        """Report that the process lets its calls finish and ends within so many seconds; the manager is asked to wait
        that long.
        """
        self._send("STOPPING=1", "STATUS=calls run out", f"EXTEND_TIMEOUT_USEC={within * 1e6:.0f}")

    def status(self, status: str) -> None:
        """Send a status line for people, without a change of the service's state."""
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
