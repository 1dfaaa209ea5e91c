"""The proxy port of one worker, for the composition root: the acceptor, and everything that a call needs behind it.

Law: what lives over reloads (pool, buckets, buffers) is made once here; a new configuration is one assignment, and
calls in flight keep their policy.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from proxy.config.settings import Address, Settings
from proxy.forward.context import Context
from proxy.forward.timers import Watch
from proxy.observe.call_record import Observer
from proxy.observe.tracing import Tracer
from proxy.retry.machine import Env
from proxy.retry.registry import Factory, PoliciesOf, Registry
from proxy.retry.routing import Reach
from proxy.retry.waiting_room import WaitingRoom
from proxy.server.acceptor import Acceptor
from proxy.server.connection_limit import TOLD, NoOthers, Others
from proxy.server.intercept.interception import Tell
from proxy.server.sockets import BACKLOG, bound
from proxy.transport.clock import monotonic, wall
from proxy.transport.dial import Dialer
from proxy.transport.egress_guard import Guard
from proxy.transport.pool import Pool
from proxy.transport.replay_buffer import ReplayStore
from proxy.transport.resolver import Resolver
from proxy.transport.tls import Contexts

#: File descriptors that calls leave to the admin port, look-ups, files and the log.
RESERVED = 64


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls use of what has limits: calls, connections of apps, parked calls, bytes kept for another attempt.

    `busy`, while draining: the processes in which anything is under way (`Acceptor.is_busy`).
    """

    in_flight: int = 0
    connections: int = 0
    waiting: int = 0
    buffered: int = 0
    busy: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.in_flight + other.in_flight,
            self.connections + other.connections,
            self.waiting + other.waiting,
            self.buffered + other.buffered,
            self.busy + other.busy,
        )


def enough_for(descriptors: int) -> int:
    """Connections of apps that so many file descriptors are enough for, each with one upstream."""
    room = descriptors - RESERVED
    return max(1, (room - min(TOLD, room // 4)) // 2)


def policies_of(settings: Settings) -> PoliciesOf:
    """What gives every policy of an upstream in the configuration's order."""
    named = settings.router.by_name
    return lambda upstream: named[upstream].policies if upstream in named else ()


def reaches_of(settings: Settings) -> set[Reach]:
    """Every way in which a configuration's policies reach their targets."""
    upstreams = (*settings.router.upstreams, settings.router.fallback)
    return {policy.target.reach for each in upstreams for policy in each.policies if policy.target is not None}


def draw_via() -> str:
    """The name in our Via lines: drawn at start, shared by a process's workers (contract, section 6)."""
    return f"redrive-{secrets.token_hex(4)}"


def _to_nobody(event: str, lines: list[str], **facts: Any) -> None:
    """Where nobody is told of what the proxy port has to say."""


class DataPath:
    """The proxy port of one worker, for the composition root.

    aiohttp's runner opens and closes its listeners, and ends it. `registry` and `env` are what its calls share. `tell`
    takes what it has to say to who runs it: an event, lines for people, facts for machines. `factory` makes what calls
    share, where it is shared with others; `descriptors` are the file descriptors that the process may have, and a part
    of them is kept for the admin port. `tracer` makes spans of attempts, where there is one; `others` are processes
    that share the limits, and `room` is where calls wait, where that is shared too.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        observer: Observer,
        *,
        via: str | None = None,
        tell: Tell = _to_nobody,
        factory: Factory | None = None,
        descriptors: int = sys.maxsize,
        tracer: Tracer | None = None,
        others: Others | None = None,
        room: WaitingRoom | None = None,
    ) -> None:
        self.registry = Registry(factory)
        self.registry.forget_policies(policies_of(settings), settings.buckets)
        rng = random.Random()  # noqa: TID251, S311  jitter, drawn where the process is put together
        self.env = Env(rng, wall() - monotonic(), room or WaitingRoom(settings.limits.waiting))
        self._guard = Guard(settings.deny_destinations)
        self._own: Counter[Address] = Counter()
        dialer = Dialer(loop, Resolver(loop, settings.pool.dns_ttl), self._guard, Contexts())
        pool = Pool(loop, dialer, idle=settings.pool.idle, max_idle=settings.pool.max_idle)
        store = ReplayStore(settings.buffers.per_request, settings.buffers.total)
        self.means = Context(loop, pool, store, self.registry, self.env, observer, via or draw_via(), Watch(loop))
        self.acceptor = Acceptor(self.means, settings, tell, enough_for(descriptors))
        self.acceptor.tracer = tracer
        self.acceptor.connection_limit.others = others or NoOthers()
        pool.most = max(
            1, descriptors - RESERVED - self.acceptor.connection_limit.most - self.acceptor.connection_limit.told
        )
        self._runner = web.ServerRunner(self.acceptor)

    async def open(self, address: Address, sock: socket.socket) -> web.SockSite:
        """Serve on a socket that listens at this address; the site that `web.SockSite.stop` closes."""
        if self._runner.server is None:
            await self._runner.setup()
        self.listens(address)
        site = web.SockSite(self._runner, sock, backlog=BACKLOG)
        await site.start()
        return site

    def listens(self, address: Address) -> None:
        """A listener of the proxy port itself is bound at this address."""
        self.acceptor.listens(address)
        self.is_own(address)

    def is_own(self, address: Address) -> None:
        """A listener of this process (proxy, admin, probe) is bound here: it is never a destination."""
        self._own[address] += 1
        if address.unix is None:
            self._guard.add_own(address.host, address.port)

    async def close_listener(self, sock: socket.socket) -> None:
        """Close a listening socket whose site has stopped, once what waited there has been accepted."""
        with sock:
            for _ in range(BACKLOG):
                try:
                    accepted, _peer = sock.accept()
                except OSError:  # nobody waits, or no descriptor is left
                    break
                await self.means.loop.connect_accepted_socket(self.acceptor, accepted)
            self.acceptor.forgets(bound(sock))

    def left(self, address: Address) -> None:
        """A listener at this address is closed; another may be there already."""
        self._own[address] -= 1
        if address.unix is None and not self._own[address]:
            self._guard.drop_own(address.host, address.port)

    def use(self, settings: Settings) -> list[object]:
        """Take a new configuration, for calls that start after it; what it leaves behind is returned, to be let go."""
        means = self.means
        self.acceptor.use(settings)
        forgotten = self.registry.forget_policies(policies_of(settings), settings.buckets)
        self._guard.deny(settings.deny_destinations)
        means.pool.use(reaches_of(settings))
        means.pool.idle, means.pool.max_idle = settings.pool.idle, settings.pool.max_idle
        means.pool.dialer.resolver.ttl = settings.pool.dns_ttl
        means.store.per_request, means.store.total = settings.buffers.per_request, settings.buffers.total
        self.env.waiting.capacity = settings.limits.waiting
        return forgotten

    @property
    def usage(self) -> Usage:
        """What is in use of what has limits."""
        acceptor = self.acceptor
        return Usage(
            self.in_flight, len(acceptor.open), self.waiting, self.buffered, int(acceptor.draining and acceptor.is_busy)
        )

    def leave_room(self, elsewhere: Usage, settings: Settings) -> None:
        """Other workers use so much of the limits that all of them have together."""
        self.means.store.total = max(0, settings.buffers.total - elsewhere.buffered)

    def drain(self) -> None:
        """Close connections as their calls end. Calls that come meanwhile are served."""
        self.acceptor.drain()

    def refuse(self) -> None:
        """`drain` has run out: a call that comes now is refused."""
        self.acceptor.refusing = True

    @property
    def in_flight(self) -> int:
        """Calls in progress."""
        return self.means.watch.in_flight

    @property
    def buffered(self) -> int:
        """Bytes kept for another attempt."""
        return self.means.store.used

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return self.env.waiting.waiting

    async def close(self) -> None:
        """Let go of everything: listeners, connections of both sides, timers, look-ups."""
        await self._runner.cleanup()
        self.acceptor.close()
        await self.means.pool.close()
        self.means.watch.stop()
