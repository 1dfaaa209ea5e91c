"""What listens where, over reloads: the proxy port, admin and probe.

A changed address is bound before anything of a new configuration is taken, and serves before the old one closes;
where it can't be had, nothing has changed. What did not change is not touched.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from proxy.config.problems import Problem, dotted
from proxy.config.settings import Address, Settings
from proxy.config.yaml_tree import Map, Seq
from proxy.config.yaml_tree import place as written_at
from proxy.server.admin.connections import AdminRunner
from proxy.server.sockets import CannotListenError, bind, bound

#: Seconds that pages under way get when their listener goes.
ADMIN_END = 1.0


class Opener(Protocol):
    """Who serves on listening sockets."""

    async def open(self, address: Address, sock: socket.socket) -> Any:
        """Serve on a socket that listens at this address; what `shut` is to be given."""
        ...

    async def shut(self, opened: Any) -> None:
        """Accept no more there. Connections that are open go on, as far as they can."""
        ...


@dataclass(frozen=True, slots=True)
class _Listener:
    address: Address
    opened: Any


#: What listens: the setting's name and the address as the configuration has it.
_Place = tuple[str, Address]


@dataclass(eq=False, slots=True)
class ListenPlan:
    """Sockets that listen already, for places that are new; and all places that are wanted."""

    wanted: list[_Place]
    bound: dict[_Place, list[socket.socket]]

    def give_up(self) -> None:
        """Close them again."""
        for sockets in self.bound.values():
            for sock in sockets:
                sock.close()


class Listeners:
    """All listeners, each opened by the opener of its setting."""

    def __init__(self, openers: Mapping[str, Opener]) -> None:
        self._openers = openers
        self._open: dict[_Place, list[_Listener]] = {}
        self._planned: list[_Place] = []  # what is open once every plan has been taken
        self._pending: list[ListenPlan] = []  # not taken yet
        self._closing: set[asyncio.Future[None]] = set()  # beside: who asked for a reload may do so over one of them

    def plan(self, settings: Settings) -> ListenPlan:
        """Bind what is new in these settings. Raises CannotListenError, with nothing left open."""
        wanted = list(_places(settings))
        plan = ListenPlan(wanted, {})
        ours = {listener.address.port for listeners in self._open.values() for listener in listeners}
        ours.update(bound(sock).port for each in self._pending for sockets in each.bound.values() for sock in sockets)
        try:
            for place in wanted:
                if place not in self._planned:
                    plan.bound[place] = bind(place[1], place[0], ours=ours)
        except CannotListenError:
            plan.give_up()
            raise
        self._planned = wanted
        self._pending.append(plan)
        return plan

    async def take(self, plan: ListenPlan) -> None:
        """Serve what is new, then close what is not wanted any more. Plans are taken in the order they were made."""
        self._pending.remove(plan)
        for place, sockets in plan.bound.items():
            opener = self._openers[place[0]]
            self._open[place] = [_Listener(bound(sock), await opener.open(bound(sock), sock)) for sock in sockets]
        for place in [place for place in self._open if place not in plan.wanted]:
            for listener in self._open.pop(place):
                closing = asyncio.ensure_future(self._openers[place[0]].shut(listener.opened))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def close(self, *settings: str) -> None:
        """Close all listeners of these settings, and those that a reload has closed."""
        await asyncio.gather(*self._closing)
        for place in [place for place in self._open if place[0] in settings]:
            for listener in self._open.pop(place):
                await self._openers[place[0]].shut(listener.opened)

    def addresses(self, setting: str) -> list[Address]:
        """Where a setting's listeners are, with the ports that the system chose."""
        return [each.address for place, each_of in self._open.items() if place[0] == setting for each in each_of]


def where(settings: Settings, error: CannotListenError) -> Problem:
    """An address that can't be had, told where the configuration names it."""
    top = settings.provenance.top
    path: tuple[str | int, ...] = (error.what,)
    value = top.get(error.what)
    if isinstance(value, Seq):
        path = (error.what, settings.listen.index(error.address))
    elif isinstance(value, Map):
        path = (error.what, "listen")
    mark = written_at(top, path)
    file = mark.file if mark.line else settings.file or "redrive"
    return Problem(file, mark.line, mark.column, dotted(path), str(error))


class Pages:
    """An opener for the application of admin or probe, made anew for each listener."""

    def __init__(
        self,
        make: Callable[[], web.Application],
        opens: Callable[[Address], None],
        leaves: Callable[[Address], None],
    ) -> None:
        self._make = make
        self._opens = opens
        self._leaves = leaves

    async def open(self, address: Address, sock: socket.socket) -> tuple[Address, AdminRunner]:
        """Serve pages there."""
        runner = AdminRunner(self._make(), ADMIN_END)
        await runner.open(sock)
        self._opens(address)
        return address, runner

    async def shut(self, opened: tuple[Address, AdminRunner]) -> None:
        """Let the answers that are under way be given, for a moment."""
        address, runner = opened
        await runner.cleanup()
        self._leaves(address)


def _places(settings: Settings) -> Iterable[_Place]:
    for address in settings.listen:
        yield "listen", address
    if settings.admin is not None:
        yield "admin", settings.admin.listen
    if settings.probe is not None:
        yield "probe", settings.probe
