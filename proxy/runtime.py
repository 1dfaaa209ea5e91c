"""The data path of a process, and its observers: the same for a single process and for a worker.

What outlives reloads (pool, buckets, buffers) is made once here; a new configuration is one assignment, and calls in
flight keep their policy.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from proxy.config.settings import Address, Settings
from proxy.config.value_files import current_key
from proxy.forward.context import Context
from proxy.forward.timers import Watch
from proxy.freed_memory import FreedMemory
from proxy.hidden_values import HiddenValues, later
from proxy.observe import cooldown_log
from proxy.observe.access_log import AccessLog, is_for_people
from proxy.observe.call_record import Observer
from proxy.observe.cooldown_log import CooldownLog
from proxy.observe.held_apps import held_by_app
from proxy.observe.metrics import Metrics, Wires
from proxy.observe.observers import Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.observe.sink import LineSink
from proxy.observe.tracing import Tracer, tracer
from proxy.observe.weather import facts, line, weather
from proxy.observe.weather_log import WeatherLog
from proxy.process import within
from proxy.resources import RESERVED, Usage, enough_for, limit, open_files, surplus_for
from proxy.retry.call.environment import Env
from proxy.retry.policies.policy import Credentials
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.definitions import PoliciesOf
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.idle_scopes import IdleScopes
from proxy.retry.scopes.registry import Registry
from proxy.retry.upstreams.credentials import ASIDE
from proxy.retry.weather.cooldown import CooldownBegan
from proxy.retry.weather.weather_changes import WeatherChanged
from proxy.server.acceptor import Acceptor
from proxy.server.connection import AppConnection
from proxy.server.connection_limit import Others
from proxy.server.fleet import Fleet, Met
from proxy.server.http2 import Http2Connection
from proxy.server.idle_handover import ConnectionGiver, ConnectionTaker
from proxy.server.inherited import bound
from proxy.server.intercept.interception import Notify
from proxy.server.listeners import BACKLOG
from proxy.transport.clock import monotonic, wall
from proxy.transport.dial import Dialer
from proxy.transport.egress_guard import Guard
from proxy.transport.http2 import UpstreamConnection
from proxy.transport.pool import Pool
from proxy.transport.replay_buffer import ReplayStore
from proxy.transport.resolver import Resolver
from proxy.transport.tls import Contexts
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.http2.frames import code_name
from proxy.wire.http2.peer_limits import PeerLimits

#: Standard output, where the log goes.
OUT = 1
#: Seconds between reads of the wall clock, which may be set while the monotonic clock goes on.
_CLOCK = 10.0
#: Steps of one search for idle scopes, and seconds between two steps.
_STEPS, _STEP_PAUSE = 16, 0.02
#: Seconds that a step of the end may take: fewer than a parent waits for a worker.
STEP = 4.0


def policies_of(settings: Settings) -> PoliciesOf:
    """Return a function from an upstream's name to all its policies, in the configuration's order; none for an unknown
    name.
    """
    router = settings.router
    known = {**router.by_name, router.fallback.label: router.by_name.get(router.fallback.label, router.fallback)}
    return lambda upstream: known[upstream].policies if upstream in known else ()


def _credentials(settings: Settings) -> Iterator[Credentials]:
    """The credentials of all named upstreams."""
    found = (upstream.policy.credentials for upstream in settings.router.upstreams)
    return (each for each in found if each is not None)


def draw_via() -> str:
    """Draw at random the name by which redrive calls itself in Via lines, once at start; the workers of a process share
    it (contract, section 6).
    """
    return f"redrive-{secrets.token_hex(4)}"


class WorkerShare(NamedTuple):
    """The parts that the data path of a worker has in common with those of the other workers. `factory` makes the state
    that their calls share and Redis does not keep; `met` is called for each bucket in Redis that this worker begins to
    use. `via` is the name in Via lines, `others` are the other processes, which share the limits, and `room` is the
    waiting room of all their calls.
    """

    factory: Factory
    met: Met
    via: str
    others: Others
    room: WaitingRoom


def data_path(
    settings: Settings, sink: LineSink, notify: Notify, metrics: Metrics, share: WorkerShare | None = None
) -> DataPath:
    """Make the data path of a process and its observers; its log goes to `sink`. `share`: what a worker shares with the
    other workers; None if the process is the only one.
    """
    loop, recent = asyncio.get_running_loop(), RecentCalls()
    console = is_for_people(settings.log.format, OUT)
    log = AccessLog(sink, console=console, level=settings.log.level, later=loop.call_later)
    observers = Observers(metrics, recent, log, loop.call_later, notify)
    made = DataPath(
        loop,
        settings,
        observers,
        notify=notify,
        descriptors=limit(),
        tracer=tracer(os.environ, notify),
        share=share,
    )
    made.recent, made.log = recent, log
    made.hide(settings.hidden)
    observers.soon = made.context.watch.at_tick
    return made


class DataPath:
    """The object that carries the calls of a process: the proxy port, and everything that a call passes from there on.

    aiohttp's runner opens and closes its listeners, and ends it. `registry` and `env` are what its calls share.
    `notify` reports notices: an event, lines for people, facts for machines. `descriptors` are the file descriptors
    that the process may have; a part of them is kept for the admin port. `tracer` makes spans of attempts, if tracing
    is on. `share` is what a worker shares with the others; without it the process is alone.
    """

    recent: RecentCalls
    log: AccessLog | None = None
    #: The restarts and hangs that `supervisor.workers` counts; a process alone has none, and is always ready.
    restarts = hangs = 0
    is_ready = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        observer: Observer,
        *,
        notify: Notify = lambda *_, **facts: None,
        descriptors: int = sys.maxsize,
        tracer: Tracer | None = None,
        share: WorkerShare | None = None,
    ) -> None:
        self._notify, self._tracer = notify, tracer
        self.cooldowns = CooldownLog()
        factory = Factory() if share is None else share.factory
        met = None if share is None else share.met
        self.fleet = Fleet(factory, settings, notify, met=met, heard=self.cooldowns.note)
        self.registry = Registry(self.fleet)
        self.registry.weather_changed = self._weather_changed
        self.weather = WeatherLog(
            lambda: weather(self.registry.governors(), monotonic()),
            lambda: held_by_app(self.room, self.registry.governors(), self.registry.under_way(), monotonic()),
        )
        self.registry.forget_policies(policies_of(settings), settings.buckets)
        rng = random.Random()  # noqa: TID251, S311  jitter, drawn where the process is put together
        self.room = WaitingRoom(settings.limits.waiting) if share is None else share.room
        self.env = Env(rng, wall() - monotonic(), self.room, self._notify_circuit, self._notify_credential)
        self.env.cooldown_began = self._cooldown_began
        self.env.tokens_used = observer.tokens_used
        self.env.read_key_file = current_key
        self._clock: asyncio.TimerHandle | None = None
        self._freed = FreedMemory()
        self._idle_scopes = IdleScopes(self.registry)
        self._guard = Guard(settings.deny_destinations)
        self._own: Counter[Address] = Counter()
        self._opened: dict[web.SockSite, tuple[Address, socket.socket]] = {}
        dialer = Dialer(loop, Resolver(loop, settings.pool.dns_ttl), self._guard, Contexts())
        pool = Pool(loop, dialer, idle=settings.pool.idle, max_idle=settings.pool.max_idle, chance=rng)
        _limit(pool, settings)
        store = ReplayStore(settings.buffers.per_request, settings.buffers.total)
        via = draw_via() if share is None else share.via
        self.context = Context(loop, pool, store, self.registry, self.env, observer, via, Watch(loop))
        self.context.keys.use(_credentials(settings), monotonic())
        self.acceptor = Acceptor(self.context, settings, notify, AppConnection, enough_for(descriptors))
        self.acceptor.tracer = tracer
        self.acceptor.connection_limit.most_surplus = surplus_for(descriptors)
        self.acceptor.connection_limit.others = None if share is None else share.others
        pool.most = max(1, descriptors - RESERVED - enough_for(descriptors) - surplus_for(descriptors))
        self._runner = web.ServerRunner(self.acceptor)
        self._takers: list[ConnectionTaker] = []

    async def start(self) -> None:
        """Connect to Redis if the configuration needs it, and begin to follow the wall clock."""
        await self.fleet.open()
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        self.env.wall_offset = wall() - monotonic()
        self._clock = self.context.loop.call_later(_CLOCK, self._look_at_the_clock)
        self._sweep(_STEPS)
        self.settle_weather()
        self._freed.look()

    def _sweep(self, steps: int) -> None:
        """Forget the state of scopes that have been idle, in at most `steps` steps, with pauses in which calls go
        on.
        """
        if self._idle_scopes.sweep(monotonic()) and steps > 1:
            self.context.loop.call_later(_STEP_PAUSE, self._sweep, steps - 1)

    def _notify_circuit(self, upstream: str, endpoint: str, is_open: bool, left: float) -> None:
        """Report that a call opened (`is_open`) or closed the circuit breaker of an endpoint; `left` seconds remain
        until a probe.
        """
        if is_open:
            line = f"{upstream}: {endpoint} failed too often: its circuit breaker is open, a probe goes in {left:.3g} s"
            self._notify("circuit_open", [line], upstream=upstream, endpoint=endpoint, seconds=round(left, 3))
        else:
            line = f"{upstream}: a probe succeeded, the circuit breaker of {endpoint} is closed"
            self._notify("circuit_closed", [line], upstream=upstream, endpoint=endpoint)

    def _notify_credential(self, upstream: str, key: int) -> None:
        """Report that a call put one of the upstream's credentials aside; `key` is its number."""
        line = f"{upstream}: its key {key} is refused or out of quota: it is put aside for {ASIDE / 60:g} minutes"
        known = self.acceptor.settings.router.by_name.get(upstream)
        made = None if known is None else known.policy.credentials
        files = () if made is None else made.files
        if key <= len(files) and (file := files[key - 1]) is not None:
            line += f", or until {file.path} has another one"
        self._notify("credential_aside", [line], upstream=upstream, key=key)

    def _cooldown_began(self, began: CooldownBegan) -> None:
        """Report the cooldown that the answer to a call of this process began."""
        self.cooldowns.note(began)
        if self.cooldowns.is_event(began):
            self._notify("cooldown_began", [cooldown_log.line(began)], **cooldown_log.facts(began))

    def settle_weather(self) -> None:
        """End the limits and outages that are over without an event of a call: because no call has come for long
        enough, or because another worker has ended them.
        """
        now, troubled = monotonic(), self.weather.troubled
        for scope in list(troubled):
            if not self.registry.settle(*scope, now):
                troubled.discard(scope)

    def _weather_changed(self, change: WeatherChanged) -> None:
        """Report the limit or outage that began or is over."""
        self.weather.note(change)
        self._notify(change.event, [line(change)], **facts(change))

    # -- listeners ------------------------------------------------------------------------------------------------

    async def open(self, address: Address, sockets: Sequence[socket.socket]) -> list[web.SockSite]:
        """Serve on sockets that all listen at this address; return a site for each, by which `shut` stops serving
        there.
        """
        return [await self.listen(address, sock) for sock in sockets]

    async def listen(self, address: Address, sock: socket.socket) -> web.SockSite:
        """Serve on a socket that listens at this address; return the site, by which `leave` stops serving there."""
        if self._runner.server is None:
            await self._runner.setup()
        self.acceptor.listening[address] += 1
        self.acceptor.forget_exposures()
        self.is_own(address)
        site = web.SockSite(self._runner, sock, backlog=BACKLOG)
        await site.start()
        self._opened[site] = address, sock
        return site

    async def shut(self, sites: Sequence[web.SockSite]) -> None:
        """Stop accepting on a listener (`sites`, as `open` returned them), and serve the connections that were already
        waiting in its queues.
        """
        for site in sites:
            await self.close_listener(await self.leave(site))

    def sockets(self, sites: Sequence[web.SockSite]) -> list[socket.socket]:
        """Return the listening sockets of a listener (`sites`, as `open` returned them)."""
        return [self._opened[site][1] for site in sites]

    async def leave(self, site: web.SockSite, *, gone: bool = True) -> socket.socket:
        """Stop accepting on a listener (`site`), and return its socket, on which connections may still be waiting
        (`close_listener`). With `gone` the address is released; without it calls still may not go there, because
        another process of redrive serves at the address.
        """
        address, sock = self._opened.pop(site)
        rest = sock.dup()
        await site.stop()
        if gone:
            self.left(address)
        return rest

    def is_own(self, address: Address) -> None:
        """Note that a listener of this process (proxy, admin, probe) is bound here: calls may not go to this
        address.
        """
        self._own[address] += 1
        if address.unix is None:
            self._guard.add_own(address.host, address.port)

    async def close_listener(self, sock: socket.socket) -> None:
        """Accept the connections that wait on a listening socket whose site has stopped, and close it."""
        with sock:
            for _ in range(BACKLOG):
                try:
                    accepted, _peer = sock.accept()
                except OSError:  # no connection waits, or no descriptor is left
                    break
                await self.context.loop.connect_accepted_socket(self.acceptor, accepted)
            self.acceptor.listening[bound(sock)] -= 1
            self.acceptor.forget_exposures()

    def left(self, address: Address) -> None:
        """Note that a listener at this address is closed; calls may go to the address unless another listener is
        already open there.
        """
        self._own[address] -= 1
        if address.unix is None and not self._own[address]:
            self._guard.drop_own(address.host, address.port)

    # -- configurations -------------------------------------------------------------------------------------------

    def use(self, settings: Settings) -> list[object]:
        """Put a new configuration in force for calls that start after it; return the parts of the old one that are to
        be released.
        """
        context = self.context
        shared_otherwise = self.fleet.use(settings)
        if self.log is not None:
            self.log.configure(console=is_for_people(settings.log.format, OUT), level=settings.log.level)
        self.hide(settings.hidden)
        self.acceptor.use(settings)
        forgotten = self.registry.forget_policies(policies_of(settings), settings.buckets, monotonic())
        if shared_otherwise:
            self.registry.share_again(shared_otherwise, monotonic())
        context.keys.use(_credentials(settings), monotonic())
        self._guard.deny(settings.deny_destinations)
        upstreams = (*settings.router.upstreams, settings.router.fallback)
        targets = (policy.target for each in upstreams for policy in each.policies)
        context.pool.use({target.reach for target in targets if target is not None})
        _limit(context.pool, settings)
        context.pool.dialer.resolver.ttl = settings.pool.dns_ttl
        context.store.per_request, context.store.total = settings.buffers.per_request, settings.buffers.total
        self.env.waiting.capacity = settings.limits.waiting
        return forgotten

    def hide(self, hidden: HiddenValues | None) -> None:
        """Have the log and spans hide this, the contents of files in a configuration's addresses (None: none), from now
        on.
        """
        if self.log is not None:
            self.log.hidden = later(hidden, self.log.hidden)
        if self._tracer is not None:
            self._tracer.hidden = later(hidden, self._tracer.hidden)

    async def settled(self) -> None:
        """Return at once: without workers, a configuration is in force as soon as it is taken."""

    # -- being watched --------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the levels of the buckets that are kept in Redis, for display."""
        await self.fleet.refresh()

    def redis(self) -> tuple[bool | None, int]:
        """Whether Redis is available (None if the configuration does not use it), and how many times it has become
        unavailable.
        """
        return self.fleet.is_up, self.fleet.outages

    def workers(self) -> list[tuple[str, float]]:
        """The workers and their states: none, because this process is alone."""
        return []

    @property
    def seen(self) -> int:
        """The number of calls that have ended."""
        return self.recent.seen

    @property
    def open_files(self) -> int:
        """The number of file descriptors in use."""
        return open_files()

    @property
    def usage(self) -> Usage:
        """The present use of everything that has a limit (calls, waiting calls, bytes)."""
        drains = self.context.draining
        busy = drains and (self.acceptor.is_busy or any(taker.is_busy for taker in self._takers))
        return Usage(self.in_flight, self.waiting, self.buffered, int(busy))

    @property
    def wires(self) -> Wires:
        """The numbers of open connections and streams, and of HTTP/2 errors. Each read walks all connections, so this
        is read only when the figures are to be shown.
        """
        acceptor, pool = self.acceptor, self.context.pool
        wires = Wires()
        for side, connections, errors in (
            ("app", acceptor.open, acceptor.http2_errors),
            ("upstream", pool.connections, pool.http2_errors),
        ):
            for connection in connections:
                if isinstance(connection, (Http2Connection, UpstreamConnection)):
                    wires.connections[side, HTTP2] += 1
                    wires.streams[side] += len(connection.session.streams)
                else:
                    wires.connections[side, HTTP1] += 1
            for code, count in errors.items():
                wires.errors[side, code_name(code)] = count
        wires.handed_over.update(acceptor.connection_limit.handed_over)
        return wires

    @property
    def in_flight(self) -> int:
        """The number of calls in progress."""
        return self.context.watch.in_flight

    @property
    def buffered(self) -> int:
        """The number of bytes kept for another attempt."""
        return self.context.store.used

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return self.env.waiting.waiting

    def leave_room(self, elsewhere: Usage, settings: Settings) -> None:
        """Lower this worker's limit on bytes kept for another attempt by what the other workers (`elsewhere`) keep,
        since they share the configured total.
        """
        self.context.store.total = max(0, settings.buffers.total - elsewhere.buffered)

    # -- ending ---------------------------------------------------------------------------------------------------

    def take_idle(self, sock: socket.socket) -> None:
        """Go on with the idle connections of a process that drains, which come on the socket `sock`."""
        limit = self.acceptor.connection_limit
        self._takers.append(ConnectionTaker(self.context.loop, sock, self.acceptor, limit, limit.handed_over))
        if self.context.draining:
            self._takers[-1].close()

    def drain(self, *, replaced: bool = False, to: socket.socket | None = None) -> None:
        """Close app connections as their calls end. Calls that arrive meanwhile are served, and no call is held. In a
        process that is `replaced` by another, calls are held as before, and idle connections are given to the other one
        on the socket `to`.
        """
        for taker in self._takers:
            taker.close()
        giver, counts = None, self.acceptor.connection_limit.handed_over
        if to is not None:
            giver = ConnectionGiver(self.context.loop, to, self.acceptor, counts)
        self.acceptor.drain(replaced=replaced, giver=giver)
        if not replaced:
            self.registry.hold_none(monotonic())

    def refuse(self) -> None:
        """Refuse calls that arrive from now on, because the time in which `drain` lets calls finish is over."""
        self.context.refusing = True

    async def roll(self) -> None:
        """Do nothing: there are no workers to replace."""

    async def close(self, *, at_once: bool = False) -> int:
        """Close everything (listeners, connections of both sides, timers, look-ups), and return the number of calls
        that were cut. A step that takes too long is abandoned. The log is complete except for lines of which the write
        is under way. `at_once` has no effect: it is part of the interface, for `Workers`.
        """
        cut = self.in_flight
        self.refuse()
        self.acceptor.end_giving()
        if self._clock is not None:
            self._clock.cancel()
        steps: list[Coroutine[Any, Any, None]] = [self._close_port(), self.fleet.close()]
        if self._tracer is not None:
            steps.append(asyncio.to_thread(self._tracer.close))
        for step in steps:
            await within(STEP, step, None, self._notify)
        if self.log is not None:
            self.log.close()
        return cut

    async def _close_port(self) -> None:
        await self._runner.cleanup()
        self.acceptor.close()
        await self.context.pool.close()
        self.context.watch.stop()


def _limit(pool: Pool, settings: Settings) -> None:
    """Set the pool's limits to those of the configuration: connections kept, and what upstreams may send."""
    limits = settings.limits
    pool.idle, pool.max_idle, pool.http2_idle = settings.pool.idle, settings.pool.max_idle, settings.pool.http2_idle
    pool.renewal.bound(settings.pool.max_age)
    pool.http2_limits = PeerLimits(
        limits.header_bytes, limits.headers, resets=limits.resets, held=settings.buffers.total
    )
