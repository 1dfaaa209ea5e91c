"""Who carries calls, as the command `run` sees it: this process alone, or workers.

With one process nothing of workers is on a call's way, or loaded.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

from proxy.config.settings import Address, Settings
from proxy.observe.metrics import Wires
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom
from proxy.server.resources import Usage


class WorkerFailedError(Exception):
    """A worker ended before any was ready; the text is one line for people."""


class Serving(Protocol):
    """The proxy port of all processes. It opens and shuts listeners (`proxy.server.listeners.Opener`)."""

    registry: Registry
    room: WaitingRoom  # where the calls of all processes wait

    async def start(self) -> None:
        """Begin to serve what was opened."""

    async def open(self, address: Address, sock: socket.socket) -> Any:
        """Serve on a listening socket."""

    async def shut(self, opened: Any) -> None:
        """Accept no more there."""

    def is_own(self, address: Address) -> None:
        """A listener of admin or probe is bound here."""

    def left(self, address: Address) -> None:
        """Admin or probe listens there no more."""

    def use(self, settings: Settings) -> list[object]:
        """Take a new configuration; what the old one leaves behind is returned, to be let go."""

    async def settled(self) -> None:
        """Until the configuration is in force everywhere."""

    def drain(self) -> None:
        """Calls end with their connections; new ones are served."""

    def refuse(self) -> None:
        """Calls that come now are refused."""

    async def refresh(self) -> None:
        """Bring in what was counted elsewhere."""

    async def close(self, *, at_once: bool) -> int:
        """End; how many calls were cut. At once: wait for nobody who does not answer."""

    @property
    def usage(self) -> Usage:
        """What calls use."""

    @property
    def wires(self) -> Wires:
        """What is open, and HTTP/2's errors."""
        ...

    @property
    def seen(self) -> int:
        """Calls that have ended."""

    @property
    def open_files(self) -> int:
        """File descriptors in use."""

    def workers(self) -> list[tuple[str, float]]:
        """Processes by state."""

    @property
    def is_ready(self) -> bool:
        """Whether somebody serves."""

    def redis(self) -> tuple[bool | None, int]:
        """Whether Redis can be had (None: nothing is kept there), and how many times it could not any more."""

    async def roll(self) -> None:
        """Replace all workers, one after the other."""

    @property
    def restarts(self) -> int:
        """Workers that ended unasked."""
