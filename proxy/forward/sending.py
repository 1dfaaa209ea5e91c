"""The sending of a call's attempts: to which origin, on which connection, with which request.

A tunnel and a traced call have senders of their own (`proxy.forward.tunnel`, `proxy.forward.tracing`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from proxy.forward.attempt import GONE, Attempt, AttemptOwner
from proxy.forward.context import Context
from proxy.forward.headers import wants_key
from proxy.forward.request_plan import Plan
from proxy.forward.resume import CONDITIONS, Resumer
from proxy.forward.streams import AppStream, ConnectionStream
from proxy.observe.call_record import CallRecord
from proxy.retry.call.actions import Launch
from proxy.retry.call.machine import Call
from proxy.retry.facts import IDEMPOTENT_METHODS
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import Connection
from proxy.transport.direct_dial import DirectDial
from proxy.transport.origins import Origin
from proxy.transport.pool import Pool
from proxy.transport.replay_buffer import Replay
from proxy.transport.streams import SharedConnection, UpstreamStream
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.head import PreparedRequest

_NO_NAMES: frozenset[bytes] = frozenset()
#: The function that sends an attempt on a stream, at a time.
Send: TypeAlias = Callable[[Attempt, UpstreamStream, float], None]


class AttemptDial(DirectDial):
    """The opening of a stream for an attempt, after which `send` sends the attempt on the stream. The attempt's owner
    is told if no stream can be opened. If the attempt is dropped meanwhile, the owner is told nothing, because it may
    be at another call by then.
    """

    __slots__ = ("_attempt", "_send")

    def __init__(self, pool: Pool, attempt: Attempt, send: Send) -> None:
        DirectDial.__init__(self, pool, attempt.origin)  # `super` would look for it at each dial
        self._attempt = attempt
        self._send = send

    async def wait(self, opening: Callable[[], Awaitable[UpstreamStream]]) -> None:
        """Open a stream by `opening`, in a task. This is for the case that `begin` has returned False."""
        try:
            stream = await opening()
        except Exception as error:
            self.failed(error)
        else:
            self.opened(stream)

    def opened(self, connection: UpstreamStream) -> None:
        """Send the attempt on its stream."""
        attempt, now = self._attempt, monotonic()
        attempt.task = None
        if attempt.state is GONE:
            connection.cancel()
            return
        try:
            self._send(attempt, connection, now)
        except Exception as error:  # it has no reader: the call would last until its deadline
            attempt.owner.break_down(error, now)

    def failed(self, error: BaseException) -> None:
        """Report the fault that the error stands for (`dial_failed`)."""
        attempt = self._attempt
        attempt.task = None
        try:
            fault = self.pool.dial_failed(attempt.origin, error)
            if attempt.state is not GONE:
                attempt.owner.failed(attempt, fault)
        except Exception as defect:
            attempt.owner.break_down(defect, monotonic())


class Sender:
    """The sender of the attempts of one call.

    `replay`: the request's body, which attempts send, None if there is none. `started`: when the call began.
    `endpoint`: where the last attempt went, `host:port`. `resumer`: the resumption of the delivered answer, None if it
    has not broken.
    """

    __slots__ = (
        "_app", "_avoided", "_elsewhere", "_failed", "_key", "_started",
        "call", "context", "endpoint", "plan", "replay", "resumer",
    )  # fmt: skip

    def __init__(
        self, context: Context, app: AppStream, plan: Plan, call: Call, replay: Replay | None, started: float
    ) -> None:
        self.call = call
        self.replay = replay
        self.endpoint = ""
        self.resumer: Resumer | None = None
        self.context = context
        self._app = app
        self.plan = plan
        self._started = started
        self._elsewhere = False  # whether the call went on at another upstream
        self._failed: tuple[Origin, ...] = ()  # origins where attempts failed: later attempts prefer others
        self._avoided: tuple[SharedConnection, ...] = ()  # shared connections on which attempts failed
        self._key: str | None = None  # the idempotency key that was made for this call

    def go_elsewhere(self, plan: Plan, call: Call, replay: Replay | None) -> None:
        """Send further attempts to the upstream of this plan, to which the call falls back: for `call`, the `Call` that
        continues there, with the body `replay`.
        """
        self.plan, self.call, self.replay = plan, call, replay
        self._elsewhere = True
        self._failed = ()
        self._avoided = ()

    def launch(self, owner: AttemptOwner, action: Launch, now: float) -> Attempt:
        """Send an attempt, and return it. If there is an idle connection, the attempt is sent now and has no `task`;
        else it is sent as soon as a connection is open, and then `owner` is told (`begun`). `owner` gets the attempt's
        events.
        """
        number, endpoint = action.attempt, action.endpoint
        destination, flights = self.plan.destination, owner.flights
        if endpoint is None:
            avoid = () if destination.only else [*self._failed, *[flight.origin for flight in flights.values()]]
            origin = destination.only or destination.choose(avoid, now)
        else:
            origin = destination.origins[endpoint]
        if self.resumer is not None:
            origin = self.resumer.origin
            self.resumer.is_sent = True
            self.call.asks_for(number, self.resumer.asked)
        self.endpoint = origin.label
        attempt = flights[number] = Attempt.__new__(Attempt)
        attempt.begin(owner, number, origin)
        attempt.key = action.key
        stream = None if action.fresh else self.resting(attempt, now)
        if stream is None:
            self.call.sent(number, self.endpoint, "", now)
            send = self._send_alone if action.alone else self.send
            dial = AttemptDial(self.context.pool, attempt, send)
            if self.opens_connections and dial.begin(self.plan.policy.timeouts.connect):
                attempt.task = dial
            else:
                opening = partial(self.open, attempt, fresh=action.fresh, alone=action.alone)
                attempt.task = self.context.loop.create_task(dial.wait(opening))
        else:
            self.begin(attempt, stream, now)
        return attempt

    def send(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """Send an attempt on this stream, which may have been closed since it was opened."""
        if not stream.is_open:
            self.call.sent(attempt.number, attempt.origin.label, "", now)
            attempt.owner.failed(attempt, faults.closed(sent=False, answered=False, reused=False))
            return
        self.begin(attempt, stream, now)
        attempt.owner.begun(attempt)

    def avoid(self, attempt: Attempt, origin: bool) -> None:
        """Have further attempts avoid the connection of this attempt, and if `origin` is true also its origin, as long
        as another is available.
        """
        stream = attempt.stream or attempt.sent_on
        if stream is not None and stream.shared is not None:
            self._avoided += (stream.shared,)
        if origin:
            self._failed += (attempt.origin,)

    # -- overridden for tunnels and traced calls ------------------------------------------------------------------

    #: Whether `open` opens connections as calls use them, so that a `DirectDial` may do it.
    opens_connections = True

    def resting(self, attempt: Attempt, now: float) -> UpstreamStream | None:
        """Return a stream on an open connection to the origin of this attempt: the app connection's own (NTLM,
        Negotiate), or a pooled one; None if none is available.
        """
        origin, app, stream = attempt.origin, self._app, None
        direct = app if isinstance(app, ConnectionStream) else None
        if (app.has_pinned if direct is None else direct.has_pinned) and not self._elsewhere:
            stream = app.pinned(origin)
        if stream is None:
            not_on = self._connections(attempt) if origin.way.http2 else ()
            idempotent = self.plan.request.method in IDEMPOTENT_METHODS or self.call.so_far.is_idempotent()
            stream = self.context.pool.lease(origin, now, idempotent, not_on)
        return stream

    async def open(self, attempt: Attempt, *, fresh: bool, alone: bool = False) -> UpstreamStream:
        """Open a stream for an attempt for which no connection is idle. `fresh`: not on a connection that another call
        has used; `alone`: as the first stream on its connection.
        """
        idempotent = None if fresh else self.call.so_far.is_idempotent()
        connect = self.plan.policy.timeouts.connect
        not_on, app = self._connections(attempt), self.plan.request.app
        return await self.context.pool.open(
            attempt.origin, within=connect, idempotent=idempotent, not_on=not_on, alone=alone, app=app
        )

    def begin(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """Send this attempt's request on `stream`, with as much of its body as has come."""
        attempt.stream = stream  # set first: dropping the attempt must release it even if writing fails
        connection = stream if isinstance(stream, Connection) else None  # which serves HTTP/1, one request at a time
        protocol = HTTP1 if connection is not None or stream.shared is None else HTTP2
        self.call.sent(attempt.number, attempt.origin.label, protocol, now)
        prepared, replay = self._request_for(attempt, stream, now), self.replay
        attempt.replay = replay
        if replay is None:
            if connection is not None:
                connection.send(attempt, prepared, b"", True, None)
            else:
                stream.send(attempt, prepared, b"", True, None)
            attempt.sent_at = now
            return
        body = replay.read(0)
        attempt.cursor = len(body)
        end = replay.done and attempt.cursor == replay.end
        stream.send(attempt, prepared, body, end, replay.trailers if end else None)
        if end:
            attempt.sent_at = now
        else:
            attempt.pump()

    def own_fields(self, attempt: Attempt) -> tuple[frozenset[bytes], bytes]:
        """Return the lower-case names of the fields to leave out of an attempt's head, and the lines to add to it, in
        addition to what the policy changes.
        """
        return _NO_NAMES, b""

    def call_ended(self, record: CallRecord) -> None:
        """Take note that a traced call is over, and that `record` will be reported next. A sender that makes spans adds
        its trace to the record and makes the spans from it.
        """

    # -- one sending ----------------------------------------------------------------------------------------------

    def _send_alone(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """Send an attempt on this stream as the only one on its connection, which no later call may share."""
        self.send(attempt, stream, now)
        if stream.shared is not None:  # other calls keep sharing the older connection
            stream.shared.drain()

    def _connections(self, attempt: Attempt) -> list[SharedConnection | None]:
        """Return the shared connections that the call's next stream is not opened on: those on which an attempt of the
        call failed, and those on which one of `attempt`'s siblings is in flight. A sibling whose connection is not
        shared is a None in the list.
        """
        flying = [each.stream.shared for each in attempt.owner.flights.values() if each.stream is not None]
        return [*self._avoided, *flying]

    def _request_for(self, attempt: Attempt, stream: UpstreamStream, now: float) -> PreparedRequest:
        plan, via = self.plan, self.context.via
        resumer = self.resumer
        if plan.plain and attempt.key is None and resumer is None and not plan.request.timed:
            return plan.edited_request(attempt.origin, attempt.number, via)  # a timed request carries the time left
        if plan.head.login_bound:
            self._app.pin(stream, attempt.origin)
        if self._key is None and wants_key(plan.request, plan.policy):
            from uuid import uuid4  # imported late, since it imports `platform` and few policies inject a key

            self._key = str(uuid4())
        drop, add = self.own_fields(attempt)
        if resumer is not None:
            drop, add = drop | CONDITIONS, add + resumer.lines()
        if attempt.key is not None:
            drop, add = plan.with_credential(attempt.key, drop, add)
        elapsed = now - self._started if self._was_held(attempt) else 0.0
        return plan.request_for(attempt.origin, attempt.number, via, elapsed=elapsed, key=self._key, drop=drop, add=add)

    def _was_held(self, attempt: Attempt) -> bool:
        """Whether this attempt is sent later than the call began for a reason other than the opening of its connection,
        so that less time is left until the app's deadline.
        """
        call = self.call
        return attempt.number > 1 or call.resent or bool(call.so_far.held_by) or self._elsewhere
