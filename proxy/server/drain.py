"""The connections of a process that drains, and when each of them ends.

An answer says that its connection closes, which an app understands; an idle connection can't be told in HTTP/1. What is
closed while the app writes loses a call (RFC 9112 section 9.5). A process in whose place no other goes on closes idle
connections after a moment, because it would end soon anyway. A process that is replaced gives them to the one that goes
on (`idle_handover`); those that it can't give (TLS, connections with an upstream's own) stay until their next answer,
at most until the process ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable

from proxy.server.connection_limit import Seat
from proxy.server.idle_handover import ConnectionGiver
from proxy.transport.clock import monotonic

#: Seconds for which an ending process waits for the next request of an app that has connected, or has got its answer.
SAYS_SECONDS = 0.5
#: Seconds between looks at the connections that can be given away; and the least ratio of that time to the time that a
#: look takes, which is some milliseconds where thousands can't be given.
_GIVE_SECONDS, _TIMES_A_LOOK = 0.02, 25


class Drain:
    """The end of the connections in `connections`, from `begin` on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Iterable[Seat]) -> None:
        self._loop = loop
        self._connections = connections
        self._rest = SAYS_SECONDS
        self._giver: ConnectionGiver | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, *, replaced: bool = False, giver: ConnectionGiver | None = None) -> None:
        """End connections as they become idle. In a process that is `replaced`, they are given away by `giver`, or stay
        open while the process does.
        """
        self._rest = math.inf if replaced else SAYS_SECONDS
        if giver is not None:
            if self._giver is not None:
                self._giver.give_for_good()
                self._giver.close()
            self._giver = giver
        if self._timer is None:
            self._look()

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way: a request, an answer that is not taken yet, or a request that may be about to
        come.
        """
        before = monotonic() - self._rest
        if self._giver is not None and self._giver.is_busy:
            return True
        return any(not connection.is_silent(before) for connection in self._connections)

    def close(self) -> None:
        """Give the idle connections away for good, those that were sent back too, because this process closes what it
        has.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        giver, self._giver = self._giver, None
        if giver is not None:
            giver.give_for_good()
            for connection in list(self._connections):
                connection.drained(monotonic() - self._rest, giver)
            giver.close()

    def _look(self) -> None:
        giver, began = self._giver, monotonic()
        before = began - self._rest
        if giver is not None:
            giver.try_again()
        for connection in list(self._connections):
            connection.drained(before, giver)
        pause = max(_GIVE_SECONDS, _TIMES_A_LOOK * (monotonic() - began))
        self._timer = self._loop.call_later(SAYS_SECONDS if giver is None else min(SAYS_SECONDS, pause), self._look)
