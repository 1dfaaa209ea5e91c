"""Who carries calls, as the composition root sees it: this process alone, or workers.

Law: with one process nothing of workers is on a call's way, or loaded.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

from aiohttp import web

from proxy.config.settings import Address, Settings
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom
from proxy.server.fleet import Fleet
from proxy.server.listener import DataPath, Usage
from proxy.server.open_files import open_files


class WorkerFailedError(Exception):
    """A worker ended before any was ready; the text is one line for people."""


class Serving(Protocol):
    """The proxy port of all processes. It opens and shuts listeners (`proxy.server.listeners.Opener`)."""

    registry: Registry
    room: WaitingRoom  # where the calls of all processes wait

    async def start(self) -> None:
        """Begin to serve what was opened."""
        ...

    async def open(self, address: Address, sock: socket.socket) -> Any:
        """Serve on a listening socket."""
        ...

    async def shut(self, opened: Any) -> None:
        """Accept no more there."""
        ...

    def is_own(self, address: Address) -> None:
        """A listener of admin or probe is bound here."""
        ...

    def left(self, address: Address) -> None:
        """Admin or probe listens there no more."""
        ...

    def use(self, settings: Settings) -> list[object]:
        """Take a new configuration; what the old one leaves behind is returned, to be let go."""
        ...

    async def settled(self) -> None:
        """Until the configuration is in force everywhere."""
        ...

    def drain(self) -> None:
        """Calls end with their connections; new ones are served."""
        ...

    def refuse(self) -> None:
        """Calls that come now are refused."""
        ...

    async def refresh(self) -> None:
        """Bring in what was counted elsewhere."""
        ...

    async def close(self, *, at_once: bool) -> int:
        """End; how many calls were cut. At once: wait for nobody who does not answer."""
        ...

    @property
    def usage(self) -> Usage:
        """What calls use."""
        ...

    @property
    def seen(self) -> int:
        """Calls that have ended."""
        ...

    @property
    def open_files(self) -> int:
        """File descriptors in use."""
        ...

    def workers(self) -> list[tuple[str, float]]:
        """Processes by state."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether somebody serves."""
        ...

    def redis(self) -> tuple[bool | None, int]:
        """Whether Redis can be had (None: nothing is kept there), and how many times it could not any more."""
        ...

    def use_clock(self, offset: float) -> None:
        """The wall's clock is so many seconds ahead of ours."""
        ...

    async def roll(self) -> None:
        """Replace all workers, one after the other."""
        ...

    @property
    def restarts(self) -> int:
        """Workers that ended unasked."""
        ...


class Alone:
    """The data path in this very process."""

    restarts = 0
    is_ready = True

    def __init__(self, path: DataPath, recent: RecentCalls, fleet: Fleet) -> None:
        self._path = path
        self._fleet = fleet
        self._recent = recent
        self.registry = path.registry
        self.room = path.env.waiting

    async def start(self) -> None:
        """It serves what is opened, from then on."""
        await self._fleet.open()

    async def open(self, address: Address, sock: socket.socket) -> tuple[Address, web.SockSite, socket.socket]:
        """Serve on a listening socket."""
        return address, await self._path.open(address, sock), sock

    async def shut(self, opened: tuple[Address, web.SockSite, socket.socket]) -> None:
        """Accept no more there, but what had come."""
        address, site, sock = opened
        rest = sock.dup()
        await site.stop()
        self._path.left(address)
        await self._path.close_listener(rest)

    def is_own(self, address: Address) -> None:
        """A listener of admin or probe is bound here."""
        self._path.is_own(address)

    def left(self, address: Address) -> None:
        """Admin or probe listens there no more."""
        self._path.left(address)

    def use(self, settings: Settings) -> list[object]:
        """Take a new configuration, for calls that start after it."""
        self._fleet.use(settings)
        return self._path.use(settings)

    async def settled(self) -> None:
        """It is in force at once."""

    def drain(self) -> None:
        """Calls end with their connections; new ones are served."""
        self._path.drain()

    def refuse(self) -> None:
        """Calls that come now are refused."""
        self._path.refuse()

    async def refresh(self) -> None:
        """Nothing is counted elsewhere, but levels may be kept elsewhere."""
        await self._fleet.refresh()

    def redis(self) -> tuple[bool | None, int]:
        """Whether Redis can be had, and how many times it could not any more."""
        return self._fleet.is_up, self._fleet.outages

    async def close(self, *, at_once: bool) -> int:
        """End; how many calls were cut."""
        cut = self._path.in_flight
        self._path.refuse()
        await self._path.close()
        await self._fleet.close()
        return cut

    @property
    def usage(self) -> Usage:
        """What calls use."""
        return self._path.usage

    @property
    def seen(self) -> int:
        """Calls that have ended."""
        return self._recent.seen

    @property
    def open_files(self) -> int:
        """File descriptors in use."""
        return open_files()

    def workers(self) -> list[tuple[str, float]]:
        """There are none."""
        return []

    async def roll(self) -> None:
        """There are none to replace."""

    def use_clock(self, offset: float) -> None:
        """The wall's clock is so many seconds ahead of ours."""
        self._path.env.wall_offset = offset
