"""The acceptor of the proxy port, which makes the connections of apps and decides where their requests go.

The acceptor is the protocol factory of every listener of the proxy port, an `aiohttp.web.Server` whose connections are
our own protocols (docs/decisions/0001-data-path.md), and knows every open connection. A request that is refused is
answered here, and observers are notified.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast

from aiohttp import web

from proxy.config.settings import Address, Settings
from proxy.forward.context import Context
from proxy.forward.exchange import Exchange
from proxy.forward.fallback import Ways
from proxy.forward.headers import refusal_fields
from proxy.forward.own_answers import OwnAnswer, last_recipient, own_grpc_status
from proxy.forward.request_plan import Plan, destination_of
from proxy.forward.streams import AppStream, Tunnelling
from proxy.forward.tracing import traced_sender
from proxy.forward.tunnel import TunnelPlan
from proxy.observe.call_record import refused
from proxy.observe.tracing import Tracer
from proxy.retry.answers.http_date import http_date
from proxy.retry.call.request_hints import has_readable_timeout, read_timeout
from proxy.retry.facts import UNAVAILABLE, Outcome, is_grpc
from proxy.server.app_names import app_of, name_of, naming_of, not_named, unix_user
from proxy.server.connection_limit import ConnectionLimit, Seat
from proxy.server.drain import Drain
from proxy.server.idle_handover import ConnectionGiver
from proxy.server.intercept import CaError, NotForNameError
from proxy.server.intercept.interception import Interception, Notify, Secured
from proxy.server.routing import Admitted, Exposure, Inside, Rejection, admit, admit_connect, denied, tunnel_endpoints
from proxy.transport.clock import monotonic, wall
from proxy.wire.head import RequestHead

#: Seconds within which a head that has begun to come must be whole, because it occupies a connection.
HEAD_SECONDS = 60.0
#: Seconds that an app has to read the answer to a call that was cut, before its connection is closed.
LAST_WORDS_SECONDS = 1.0
#: The number of exchanges of HTTP/2 calls that are kept to be used again.
SPARE = 64
#: The most plans that are kept for requests of new connections, and the most local addresses of which the listener is
#: known: a listener on all addresses of a machine has many.
PLANS, MOST_EXPOSURES = 64, 1024
#: Seconds between checks of heads that come slowly.
DRIP_TICK = 1.0


class Asker(AppStream, Protocol):
    """The source of a request that may become a call: an HTTP/1 connection, or a stream of an HTTP/2 connection.
    `surplus`: whether the connection is above the limit on connections. `speaks`: the version of HTTP that the app
    speaks there. `plan`: the plan of the previous request, which may fit the next one too.
    """

    surplus: bool
    speaks: str
    plan: Plan | None

    @property
    def exposure(self) -> Exposure:
        """The exposure of the listener: who can reach the listener by which the request came, and which app the
        connection names.
        """

    @property
    def inside(self) -> Inside | None:
        """The CONNECT inside which the request came, None if it came in none."""

    def reject(self, status: int, add: bytes, body: bytes, *, close: bool, headless: bool) -> None:
        """Answer a request that does not become a call, with this status, field lines (`add`) and body. `close`: close
        the connection after it; `headless`: don't send the body (the request was HEAD).
        """


class Acceptor(web.Server):
    """The acceptor of the proxy port. `make` makes a connection's protocol. `most`: the most connections that this
    process can hold (`ConnectionLimit`).
    """

    def __init__(
        self,
        context: Context,
        settings: Settings,
        notify: Notify,
        make: Callable[[Acceptor], Any],
        most: int,
    ) -> None:
        super().__init__(_no_handler, loop=context.loop)
        self._make = make
        self.context = context
        self.settings = settings
        context.router = settings.router
        self.interception = Interception(notify)
        self._notify = notify
        self._blind: set[str] = set()  # upstreams whose blind tunnels were reported
        self.interception.use(settings)
        self.http2_errors: Counter[int] = Counter()
        self.connection_limit = ConnectionLimit(settings.limits.connections, most)
        self.open = self.connection_limit.open
        self.dripping = self.connection_limit.half
        self.connection_limit.turn_away = partial(self._dismiss, rejection=_FULL)
        self.connection_limit.cut_short = partial(self._dismiss, rejection=_TOO_SLOW)
        self.listening: Counter[Address] = Counter()  # the proxy port's listeners, while connections may wait there
        self._drip_timer: asyncio.TimerHandle | None = None
        self._drain = Drain(context.loop, self.open)
        self._emptied: asyncio.Future[None] | None = None
        self._spare: list[Exchange] = []
        self._exposures: dict[Any, Exposure] = {}  # by the local address of connections
        self._usual: dict[tuple[str, str, bool], tuple[Exposure, Plan]] = {}  # by method, authority and protocol
        self._date = b""
        self._date_until = 0.0

    #: The maker of attempts' spans, if tracing is on.
    tracer: Tracer | None = None

    # -- aiohttp.web.Server, as `web.ServerRunner` uses it --------------------------------------------------------

    def __call__(self) -> Any:
        """Make the protocol of a new connection."""
        return self._make(self)

    @property
    def connections(self) -> list[Any]:
        """All open connections."""
        return list(self.open)

    def pre_shutdown(self) -> None:
        """Begin to close the idle connections; called once no connection is accepted any more."""
        self.drain()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  aiohttp's signature
        """Close the remaining connections. Apps whose calls are cut get an answer, and a moment to read it
        (LAST_WORDS_SECONDS, whatever `timeout` is).
        """
        for connection in list(self.open):
            connection.cut()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty(), LAST_WORDS_SECONDS)
        for connection in list(self.open):
            connection.abort()
        with contextlib.suppress(TimeoutError):  # the end does not wait for a connection whose loss is never reported
            await asyncio.wait_for(self._empty(), LAST_WORDS_SECONDS)
        await self.interception.ended()

    async def _empty(self) -> None:
        while self.open:
            self._emptied = self.context.loop.create_future()
            await self._emptied

    def use(self, settings: Settings) -> None:
        """Admit requests by these settings from now on."""
        self.settings = settings
        self.context.router = settings.router
        self.connection_limit.limit = settings.limits.connections
        self.context.generation += 1
        self.forget_exposures()
        self.interception.use(settings)

    def forget_exposures(self) -> None:
        """Forget the listeners' exposures and the plans that depend on them, because the settings, or a listener's
        address, have changed.
        """
        self._exposures.clear()
        self._usual.clear()

    # -- connections ----------------------------------------------------------------------------------------------

    def exposure_of(self, name: Any, sock: object = None) -> Exposure:
        """Return the exposure of the listener by which a connection came: who can reach it, and which app the
        connection names. `name`: the connection's local address; `sock`: its socket.
        """
        exposure = self._exposures.get(name)
        if exposure is not None:
            return exposure
        apps = self.settings.apps
        if not isinstance(name, tuple):
            exposure = Exposure(loopback=True, unix=True)
            if apps is not None:  # each connection may be of another user
                return replace(exposure, app=self._listener_name(name, 0), user=unix_user(sock))
        else:
            address = Address(*name[:2])
            loopback = self.listening[address] > 0 and address.is_loopback  # 0: the listener is one on all addresses
            exposure = Exposure(loopback, app="" if apps is None else self._listener_name(*name[:2]))
        if len(self._exposures) >= MOST_EXPOSURES:
            self._exposures.clear()
        self._exposures[name] = exposure
        return exposure

    def _listener_name(self, host: str, port: int) -> str:
        """The name that the listener at this address gives to apps: `host` is a path for a unix socket."""
        hosts = (host, *_WILDCARDS)
        for number in (port, 0):  # 0: the system chose the port
            for each in self.settings.listen:
                if each.unix == host if each.unix is not None else each.port == number and each.host in hosts:
                    return each.app
        return ""

    def handed_over(self, connection: Seat, to: Seat) -> None:
        """Put connection `to`, which speaks another protocol on the same socket, in the place of `connection`."""
        self.dripping.pop(connection, None)
        self.connection_limit.replace(connection, to)

    def left(self, connection: Seat) -> None:
        """Forget a connection that is closed."""
        self.connection_limit.leave(connection)
        self.dripping.pop(connection, None)
        if self._emptied is not None and not self.open:
            if not self._emptied.done():  # a wait that timed out has cancelled it
                self._emptied.set_result(None)
            self._emptied = None

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way: a request, an answer that is not taken yet, or a request that may be about to
        come.
        """
        return self._drain.is_busy

    def drips(self, connection: Seat) -> None:
        """Take note that a connection's head has begun to come and is not whole, so that it gets only HEAD_SECONDS to
        complete it.
        """
        if connection not in self.dripping:
            connection.since = monotonic()
            self.dripping[connection] = None
        if self._drip_timer is None:
            self._drip_timer = self.context.loop.call_later(DRIP_TICK, self._look_at_drips)

    def _look_at_drips(self) -> None:
        self._drip_timer = None
        now = monotonic()
        for connection in list(self.dripping):
            if not connection.dripping:
                self.dripping.pop(connection, None)
            elif now - connection.since >= HEAD_SECONDS:
                self.dripping.pop(connection, None)
                self.refuse(connection, 408, "the request's head did not arrive in time")
        if self.dripping:
            self._drip_timer = self.context.loop.call_later(DRIP_TICK, self._look_at_drips)

    # -- requests -------------------------------------------------------------------------------------------------

    def admit(self, connection: Asker, head: RequestHead) -> Plan | None:
        """Return the plan of a request, which has the request's upstream and policy; None if the request was answered
        here, with a refusal say.
        """
        if self.context.refusing or (connection.surplus and not self.connection_limit.admit(connection)):
            self._reject(connection, head, _ENDING if self.context.refusing else _FULL, close=True)
            return None
        known = self._known_plan(connection, head)
        if known is not None:
            return known
        exposure, apps = connection.exposure, self.settings.apps
        if head.max_forwards == 0:
            self._answer_here(connection, head, "Max-Forwards ends here")
            return None
        name = "" if apps is None else name_of(apps, head, exposure.app, exposure.user, exposure.named)
        try:
            if apps is not None and apps.required and not name:
                raise not_named(apps, is_proxy=head.method == "CONNECT" or head.form == "absolute")
            if head.method == "CONNECT" and head.is_http2:
                raise Rejection(501, "a CONNECT on an HTTP/2 stream")
            if head.method == "CONNECT" and connection.inside is None:
                if apps is not None:
                    cast(Any, connection).exposure = replace(exposure, named=name)  # only HTTP/1 connections come here
                return self._admit_connect(connection, head)
            admitted = admit(head, self.settings, exposure, self.context.via, connection.inside)
        except Rejection as rejection:
            self._reject(connection, head, rejection)
            return None
        if admitted is None:
            self._answer_here(connection, head, "the proxy itself was asked")
            return None
        plan = self._new_plan(head, admitted, strict=not exposure.loopback)
        if apps is not None:
            plan.request.app, plan.naming = app_of(apps, head, name), naming_of(apps, head)
        # The fields that show a loop must be examined with each request, so its plan is not used again.
        if head.slow_path is None and b"via" not in head.specials and b"x-redrive-loop" not in head.specials:
            plan.upstream = admitted.upstream
            self._keep_plan(connection, head, plan)
        return plan

    def _new_plan(self, head: RequestHead, admitted: Admitted, *, strict: bool) -> Plan:
        """Return the plan of a request that was admitted. `strict`: loopback addresses that no upstream's `url` names
        are denied.
        """
        policy, traced = admitted.policy, self.tracer is not None
        target = policy.target or admitted.upstream.target  # a route may have its own, say with another `verify`
        destination = destination_of(
            head, target, self.context.pool, scheme=admitted.scheme, place=admitted.place, strict=strict
        )
        plan = Plan(head, admitted.request, policy, destination, admitted.rest, traced=traced)
        plan.by_service = admitted.by_service
        if policy.fallback:
            plan.ways = Ways(self.settings.router, strict=strict, traced=traced)
        return plan

    def _known_plan(self, connection: Asker, head: RequestHead) -> Plan | None:
        """Return the plan of the connection's previous request, or that of a request of another connection to the same
        listener, changed into the plan of this request; None if neither fits this request.
        """
        last, router = connection.plan, self.settings.router
        if last is not None and last.follow(head, router):
            return last
        if connection.inside is not None:
            return None
        usual = self._usual.get((head.method, head.authority, head.is_http2))
        return usual[1].alike(head, router) if usual is not None and usual[0] is connection.exposure else None

    def _keep_plan(self, connection: Asker, head: RequestHead, plan: Plan) -> None:
        """Keep `plan`, so that requests of other connections to the same listener may use it too."""
        if connection.inside is None:
            if len(self._usual) >= PLANS:
                self._usual.clear()
            self._usual[head.method, head.authority, head.is_http2] = connection.exposure, plan

    def turn_down(self, connection: Asker, head: RequestHead) -> None:
        """Refuse a request for which `limits.connections` has no place."""
        self._reject(connection, head, _FULL)

    def exchange(self, plan: Plan, connection: AppStream) -> Exchange:
        """Return the exchange that drives a call."""
        if isinstance(plan, TunnelPlan):
            return plan.tunnel(self.context, cast(Tunnelling, connection))
        if self.tracer is not None:
            return Exchange(self.context, connection, partial(traced_sender, self.tracer))
        if plan.plain and self._spare:
            exchange = self._spare.pop()
            exchange.delivery.serve(connection)
            return exchange
        return Exchange(self.context, connection)

    def keep(self, exchange: Exchange) -> None:
        """Keep the exchange of a call that is over, to be used for another call, if the call needed no decision."""
        if not exchange.decided and len(self._spare) < SPARE:
            exchange.delivery.release()
            self._spare.append(exchange)

    def _admit_connect(self, connection: Asker, head: RequestHead) -> Plan | None:
        admitted = admit_connect(head, self.settings, connection.exposure, self.context.via)
        upstream = admitted.upstream
        if upstream.connect == "intercept":
            secured = cast(Secured, connection)
            self.interception.begin(
                secured, head.authority, lambda why: self._reject(connection, head, _cannot_intercept(why))
            )
            return None
        dialled = tunnel_endpoints(upstream, head.authority)
        destination = self.context.pool.tunnel_destination(
            upstream.target,
            dialled,
            head.authority,
            strict=not connection.exposure.loopback,
        )
        if self.settings.apps is not None:
            admitted.request.app = app_of(self.settings.apps, head, connection.exposure.named)
        plan = TunnelPlan(head, admitted.request, admitted.policy, destination, None)
        named = upstream.connect == "auto" and upstream.name in self.settings.router.by_name
        plan.report_blind = partial(self._notify_blind, upstream.name) if named else None
        endpoints = upstream.target.endpoints
        plan.goes_elsewhere = dialled != endpoints
        cleartext = bool(endpoints) and all(each.scheme == "http" for each in endpoints)
        # A CONNECT that is refused for its X-Retry-Timeout must not be answered with 200 before.
        fields = admitted.request.fields
        plan.at_once = named and cleartext and has_readable_timeout(fields) and read_timeout(fields) != 0
        return plan

    def _notify_blind(self, upstream: str) -> None:
        """Report, once for an upstream, that what is tunnelled to it can't be retried."""
        if upstream not in self._blind:
            self._blind.add(upstream)
            line = f"{upstream}: tunnels to it carry what the proxy can't read; nothing in them can be retried"
            self._notify(
                "blind_tunnel", [f"{line} (`connect: intercept`, or a base URL, changes that)"], upstream=upstream
            )

    def _answer_here(self, connection: Asker, head: RequestHead, detail: str) -> None:
        """Answer an OPTIONS or TRACE whose last recipient is this proxy (RFC 9110 sections 7.6.2 and 9.3.7). `detail`:
        why, for the log.
        """
        lines, body = last_recipient(head, refusal_fields(Outcome.SUCCESS, "", detail))
        self._report_refused(connection, head, 200, len(body), Rejection(200, detail, Outcome.SUCCESS))
        connection.answer(200, lines, body)
        connection.done()

    def refuse(
        self, connection: Asker | Seat, status: int, detail: str, head: RequestHead | None = None, *, title: str = ""
    ) -> None:
        """Refuse bytes that are no request, or a request whose `head` exceeds the limits, with this status, and close
        the connection. `detail`: the reason; `title`: replaces the status's own phrase.
        """
        self._reject(connection, head, Rejection(status, detail, title=title), close=True)

    def _dismiss(self, connection: Seat, rejection: Rejection) -> None:
        """Answer a connection with this rejection, because it is closed to make room for another, or there is no room
        for it; close it without waiting for what it still sends.
        """
        self._reject(connection, None, rejection, close=True)
        connection.close_written()

    def _reject(
        self, connection: Asker | Seat, head: RequestHead | None, why: Rejection, *, close: bool = False
    ) -> None:
        grpc = head is not None and is_grpc(head)
        answer = OwnAnswer(why.status, why.title or HTTPStatus(why.status).phrase, why.detail, why.outcome, grpc=grpc)
        answer.changes = refusal_fields(why.outcome, why.error, why.detail)
        if why.status == 407:
            answer.changes.add.append(("Proxy-Authenticate", 'Basic realm="redrive"'))
        answer.retry_after, answer.grpc_status = 1.0, why.grpc_status
        status, lines, body = answer.render()
        headless = head is not None and head.method == "HEAD"
        grpc_status = own_grpc_status(why.status) if grpc and why.grpc_status is None else why.grpc_status
        self._report_refused(connection, head, status, 0 if headless else len(body), why, grpc_status if grpc else None)
        connection.reject(status, lines, body, close=close, headless=headless)

    def _report_refused(
        self,
        connection: Asker | Seat,
        head: RequestHead | None,
        status: int,
        size: int,
        why: Rejection,
        grpc_status: int | None = None,
    ) -> None:
        named = ("", "", "") if head is None else (head.method, head.authority, head.path.decode("latin-1"))
        own = (wall(), connection.client, status, why.outcome, why.detail)
        self.context.observer.call_ended(refused(*own, *named, size, connection.speaks, grpc_status))

    def date_line(self) -> bytes:
        """Return a Date line, made once a second (RFC 9110 section 6.6.1: a proxy adds one if the upstream has not)."""
        now = monotonic()
        if now >= self._date_until:
            seconds = wall()
            self._date = f"Date: {http_date(seconds)}\r\n".encode()
            self._date_until = now + 1.0 - seconds % 1.0
        return self._date

    def close(self) -> None:
        """Cancel the timers."""
        if self._drip_timer is not None:
            self._drip_timer.cancel()
            self._drip_timer = None
        self.end_giving()

    def end_giving(self) -> None:
        """Give no idle connection away any more, because this process closes the ones that it has."""
        self._drain.close()

    def drain(self, *, replaced: bool = False, giver: ConnectionGiver | None = None) -> None:
        """Make answers close their connections from now on, and end the idle connections. In a process that is not
        `replaced` by another, connections are closed when they have been idle for a while. In one that is, `giver`
        gives the idle ones to the process that goes on; without it (None) they stay open until this process ends.
        """
        self.context.draining = True
        self._drain.begin(replaced=replaced, giver=giver)


#: Hosts of listeners that take connections for any address of the machine.
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound


_FULL = Rejection(503, "too many connections are open", Outcome.OVERLOADED, "connection_limit_reached")
#: RFC 9209 section 2.3.29: no upstream was asked.
_ENDING = Rejection(503, "the proxy is shutting down", Outcome.OVERLOADED, "proxy_internal_response", UNAVAILABLE)
#: RFC 9110 section 15.5.9.
_TOO_SLOW = Rejection(408, "the request's head did not arrive, and other clients had no connection left")


def _cannot_intercept(why: CaError) -> Rejection:
    """Return the rejection for the CA error `why`. A name that the CA is not for is denied; without a valid CA, the
    proxy itself is not configured for interception (RFC 9209 section 2.3.28).
    """
    if isinstance(why, NotForNameError):
        return denied(str(why))
    return Rejection(500, str(why), Outcome.NOT_RETRYABLE, "proxy_configuration_error")


async def _no_handler(_: web.BaseRequest) -> web.StreamResponse:
    """Replace aiohttp's own handling of requests, which our connections never use."""
    raise NotImplementedError
