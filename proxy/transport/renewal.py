"""The renewal of connections: an attempt takes no connection that is too old, or whose address its name has lost.

A connection that is always in use would otherwise live for ever: after a move of a service, of a load balancer or of a
CDN's edge, calls would stay where they were. So each connection has a time from which no attempt takes it (`expires`):

- once it is `pool.max_age` old, less a random tenth, so that connections opened together are not renewed together;
- once its address was in no successful look-up of its name within the last HISTORY seconds, of which there have to be
  two at least. Names with open connections are looked up about as often as a dial would do it (`pool.dns_ttl`). A
  look-up that fails changes nothing.

Exchanges under way go on, and streams of HTTP/2 too. Connections through a parent proxy have no address of the
upstream's, and connections that are bound to one app's are that app's: neither is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Collection
from typing import Any

from proxy.transport.clock import monotonic
from proxy.transport.origins import Origin
from proxy.transport.resolver import Resolver
from proxy.transport.streams import Pooled

_NEVER = float("inf")
#: The least number of seconds from one look at all names to the next.
LOOK = 30.0
#: The largest share of `max_age` that is taken off at random.
_SPREAD = 0.1


class Renewal:
    """The renewal of one pool's connections. `chance` has `random()`, as the standard library's generators have.
    `max_age`: seconds, None for no bound.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, resolver: Resolver, chance: Any) -> None:
        self._loop = loop
        self._resolver = resolver
        self._chance = chance
        self.max_age: float | None = None
        self._connections: Collection[Pooled] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def opened(self, connection: Pooled, connections: Collection[Pooled]) -> None:
        """Set the time from which no attempt takes this connection, which is one of the pool's `connections` now."""
        self._connections = connections
        if connection.origin.way.parent is None:
            connection.expires = _NEVER if self.max_age is None else self._end_of_age()
            if self._timer is None and self._task is None:
                self._timer = self._loop.call_later(max(LOOK, self._resolver.ttl), self._begin)

    def bound(self, max_age: float | None) -> None:
        """Change the greatest age of connections to `max_age` (seconds, None for no bound). Those that are open now are
        renewed at that age from now on, as if they were new.
        """
        if max_age != self.max_age:
            self.max_age = max_age
            for connection in self._connections:
                if connection.origin.way.parent is None and connection.expires > 0.0:
                    connection.expires = self._end_of_age()

    async def look(self) -> None:
        """Look up the names of all connections, unless that was done lately, and renew those whose address is gone."""
        for host in {name for each in list(self._connections) if (name := _name(each.origin))}:
            with contextlib.suppress(OSError):  # a failed look-up changes nothing
                await self._resolver.addresses(host)
        for connection in list(self._connections):
            host, transport = _name(connection.origin), connection.transport
            peer = None if transport is None else transport.get_extra_info("peername")
            if host and peer and self._resolver.has_lost(host, str(peer[0])):
                connection.expires = 0.0

    async def close(self) -> None:
        """Stop looking names up."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _end_of_age(self) -> float:
        return _NEVER if self.max_age is None else monotonic() + self.max_age * (1 - _SPREAD * self._chance.random())

    def _begin(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._look_and_go_on())

    async def _look_and_go_on(self) -> None:
        try:
            await self.look()
        finally:
            self._task = None
        if self._connections:
            self._timer = self._loop.call_later(max(LOOK, self._resolver.ttl), self._begin)


def _name(origin: Origin) -> str:
    """The name that connections of this origin were opened to; "" if it was no name, or a parent proxy's."""
    if origin.way.parent is not None or origin.endpoint.unix is not None:
        return ""
    try:
        ipaddress.ip_address(origin.endpoint.host)
    except ValueError:
        return origin.endpoint.host
    return ""
