"""The part of a process in the succession of processes: between the one before it, whose listeners it has taken over,
and the one that comes after it (`proxy.take_over`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from proxy.config.load import LoadResult
from proxy.config.settings import Address
from proxy.server.inherited import InheritedSocket
from proxy.server.intercept.interception import Notify
from proxy.server.listeners import Listeners
from proxy.take_over import Handover, Offer, shown

#: The settings whose listeners a successor takes over; calls are accepted last on those of the first.
_SETTINGS = ("listen", "admin", "probe")


class Succession:
    """The process between its predecessor, from which it may have taken its listeners over, and its successor, which
    may take them over from it. `may_leave` is awaited before the listeners are given away, and returns whether they may
    be. `replaced` is called when the successor serves; `take_idle` is called with the socket on which the predecessor's
    idle connections come. A configuration that is loaded while a successor starts has to wait; `load` is
    called with it, if the successor ends before it serves.
    """

    def __init__(
        self,
        handover: Handover,
        listeners: Listeners,
        notify: Notify,
        *,
        may_leave: Callable[[], Awaitable[bool]],
        replaced: Callable[[], None],
        take_idle: Callable[[socket.socket], None],
        load: Callable[[LoadResult, str], None],
    ) -> None:
        self._handover = handover
        self._listeners = listeners
        self._notify = notify
        self._may_leave = may_leave
        self._end = replaced
        self._take_idle = take_idle
        #: The socket on which the successor takes idle connections; None if it takes none.
        self.takes_idle: socket.socket | None = None
        self._load = load
        self._deferred: tuple[LoadResult, str] | None = None
        self._offer = Offer(self._given, self._replaced, self._kept)

    @property
    def is_replaced(self) -> bool:
        """Whether a successor serves in the place of this process."""
        return self._offer.is_taken

    async def begin(self) -> None:
        """Tell the predecessor, if there is any, that this process serves; then offer the listeners to a successor."""
        before, unused = self._handover.predecessor, self._listeners.close_inherited()
        if before is not None:
            line = f"took over from process {before.pid}, redrive {before.release}, which lets its calls finish"
            self._notify("took_over", [line], predecessor=before.pid, release=before.release)
            idle = await asyncio.to_thread(before.replace)
            if idle is not None:
                self._take_idle(idle)
        elif unused:
            lines = [f"the service manager listens on {at}, which no setting names: nothing serves it" for at in unused]
            self._notify("inherited", lines, unused=unused)
        try:
            self._offer.open(self._handover.names)
        except OSError as error:
            line = f"a successor can't take over: {shown(self._handover.names[0])}: {error.strerror or error}"
            self._notify("failed", [line], error=line)

    def defers(self, loaded: LoadResult, why: str) -> bool:
        """Whether a configuration that was loaded again has to wait, because a successor starts, which has been given
        the addresses in force. Once the successor serves, it has the new configuration too; if it ends before that, the
        configuration is loaded then. `why`: the cause of the reload.
        """
        if self._offer.is_asked:
            self._deferred = loaded, why
        return self._offer.is_asked

    async def leave(self, is_own: Callable[[Address], None]) -> None:
        """Withdraw the offer. If a successor serves, accept no more connections; `is_own` is called with each address
        that the successor serves, so that the calls that go on here are not sent there.
        """
        self._offer.close()
        if self.is_replaced:
            addresses = [address for setting in _SETTINGS for address in self._listeners.addresses(setting)]
            for setting in _SETTINGS:
                await self._listeners.close(setting)
            for address in addresses:
                is_own(address)

    async def _given(self) -> list[InheritedSocket] | None:
        return self._listeners.offered() if await self._may_leave() else None

    def _replaced(self, pid: int, release: str, takes_idle: socket.socket | None) -> None:
        self.takes_idle = takes_idle
        line = f"process {pid}, redrive {release}, has taken over"
        self._notify("replaced", [line], successor=pid, release=release)
        self._end()

    def _kept(self, pid: int) -> None:
        line = f"process {pid} wanted to take over, and ended before it served: this one goes on"
        self._notify("kept", [line], successor=pid)
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            self._load(*deferred)
