"""Drives one call: carries out with sockets what `proxy.retry.machine` decides.

Theory of operation. Whatever happens (the app's bytes, an attempt's answer, an alarm) is passed to the call with the
time, and the actions that the call returns are carried out in order. Nothing is decided here. The exchange owns what a
call needs while it lasts: its attempts, the body kept for another one, one alarm; `Finish` releases all of it, informs
the observers with a record (`proxy.observe.call_record`), and gives the app's stream back.

Nearly every call goes one way: nothing holds it, the pool has an idle connection, the answer is a success. Then there
is nothing to decide, and no `Call` is made: the exchange sends the request, passes the answer on, and its app
connection keeps it for the next request. Whatever else happens is passed to the `Call`, which is then made (`decider`)
as if it had been there from the start.

Law: nothing leads from an action that ends the call to anything else of it, so an action that may cause the next event
at once (Peek, Deliver, Ask) is always the last of its tuple.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from proxy.forward.attempt import DELIVERING, FLYING, Attempt, AttemptOwner
from proxy.forward.context import Context
from proxy.forward.fallback import Journey, StaysError
from proxy.forward.headers import gave_up, handed_on, plain_lines, told, via_line, via_name, wants_key
from proxy.forward.own_answers import OwnAnswer, answer_of, given_up_answer, own_grpc_status, told_grpc_status
from proxy.forward.pipe import Pipe
from proxy.forward.request_plan import Plan
from proxy.forward.streams import AppStream, ConnectionStream, Tunnelling
from proxy.forward.timers import Alarm
from proxy.forward.upload import Upload
from proxy.observe.call_record import SUCCESS, CallRecord, was_sent_once
from proxy.retry.actions import (
    Actions,
    Answer,
    Ask,
    Cancel,
    Deliver,
    Discard,
    FallBack,
    Finish,
    Hold,
    Launch,
    Peek,
    WakeAt,
)
from proxy.retry.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.classification import is_plain_end, is_plain_success
from proxy.retry.credentials import CallKeys
from proxy.retry.facts import (
    IDEMPOTENT_METHODS,
    UNAVAILABLE,
    Class,
    Fault,
    Outcome,
    Reply,
    Request,
    grpc_status_of_http,
)
from proxy.retry.machine import Call
from proxy.retry.policy import Fallback, Policy
from proxy.retry.reasons import GATES, SHUT_DOWN
from proxy.retry.registry import ScopeState
from proxy.retry.stream_errors import StreamWatch, watch_for_errors
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import Connection
from proxy.transport.origins import Origin
from proxy.transport.replay_buffer import Replay
from proxy.transport.streams import SharedConnection, UpstreamStream
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.head import Asked, ResponseHead, Trailers

NEVER = float("inf")
#: To be asked for by these names: of the enumeration it takes ten times as long.
_SUCCESS_CLASS, _SUCCESS, _OVERLOADED = Class.SUCCESS, Outcome.SUCCESS, Outcome.OVERLOADED
_NO_NAMES: frozenset[bytes] = frozenset()
#: Whom an exchange serves that serves nobody.
NOBODY = cast(AppStream, None)
_NO_SCOPE = cast(ScopeState, None)


class Exchange(AttemptOwner):
    """One call of an app, from its request's head to the last byte of its answer.

    It is what the app connection tells of the request, and what the watch looks at (`proxy.forward.timers.Timed`).
    `call` is there once something had to be `decided`; `flights` are the attempts whose answers are still of interest,
    by number. `moved`: when last anything came or went. `journey`: over several upstreams, where the call's own one
    names others that may take it over, and one was asked for.
    """

    __slots__ = (
        *(
            "_alarm",
            "_avoided",
            "_body",
            "_direct",
            "_failed",
            "_first",
            "_key",
            "_keys",
            "_scope",
        ),
        *("_verdict", "grpc_status"),
        *("app", "bytes_in", "bytes_out", "call", "client", "decided", "detail", "due", "endpoint"),
        *(
            "flights",
            "journey",
            "means",
            "over",
            "pipe",
            "plan",
            "policy",
            "request",
            "started",
            "status",
            "upload",
        ),
    )

    call: Call
    plan: Plan
    policy: Policy
    request: Request
    started: float
    moved: float
    _scope: ScopeState

    def __init__(self, means: Context, app: AppStream) -> None:
        self.means = means
        self.app = app
        self._direct = app if isinstance(app, ConnectionStream) else None
        self.client = app.client
        self.decided = False
        self.flights: dict[int, Attempt] = {}
        self.upload: Upload | None = None
        self.pipe: Pipe | None = None  # of a tunnel
        self.journey: Journey | None = None
        self.over = True
        self.due = NEVER
        self.status = 0
        self.grpc_status: int | None = None
        self.bytes_in = self.bytes_out = 0
        self.detail = self.endpoint = ""
        self._first: Attempt | None = None  # of calls without a `Call`
        self._body = b""  # what it sent behind the head
        self._failed: list[Origin] = []  # where attempts failed: later ones go elsewhere if there is elsewhere
        self._avoided: list[SharedConnection] = []  # where attempts failed, of connections that others use too
        self._alarm: Alarm | None = None
        self._keys: CallKeys[ScopeState] | None = None  # which credential the call carries, until it is decided
        self._key: str | None = None  # the idempotency key that was made for this call
        self._scope = _NO_SCOPE  # of this call, or of the one before
        self._verdict: Outcome | None = None  # where the app itself is at fault, in the place of the call's own

    def serve(self, app: AppStream) -> None:
        """Be there for another app's stream, after a call that needed no decision."""
        self.app = app
        self._direct = app if isinstance(app, ConnectionStream) else None
        self.client = app.client

    def let_go(self) -> None:
        """Keep nothing of a call that needed no decision, until it serves another."""
        self.app = NOBODY
        self._direct = None
        self._body = b""

    # -- from the app ---------------------------------------------------------------------------------------------

    def start(
        self, plan: Plan, now: float, body: bytes = b"", done: bool = True, trailers: Trailers | None = None
    ) -> None:
        """The request's head is whole; `body` came with it, all of it if `done`."""
        means, app, direct = self.means, self.app, self._direct
        self.plan = plan
        policy = self.policy = plan.policy
        request = self.request = plan.request
        self.started = self.moved = now
        self.over = False
        self.status = 0
        self.grpc_status = None
        try:
            scope = lane = self._scope = means.registry.scope(policy, request, now, self._scope)
            stream = keys = None
            if (
                plan.plain
                and done
                and trailers is None
                and not (app.has_pinned if direct is None else direct.has_pinned)
            ):
                if scope.keys is not None:
                    keys = self._keys = CallKeys(scope.keys, now)
                    lane = keys.lane
                if lane.admits(now):
                    destination = plan.destination
                    origin = destination.only or destination.next((), now)
                    stream = means.pool.lease(origin, now, request.method in IDEMPOTENT_METHODS)
            if stream is None:
                self._start_decided(now, body, done, trailers)
                return
            scope.began(now)
            if destination.only is None:
                destination.took(origin)
            first = self._first
            if first is None:
                first = self._first = self.flights[1] = Attempt(self, 1, origin)
            first.origin, first.stream, first.sent_at = origin, stream, now
            first.protocol = HTTP1 if not origin.http2 or stream.shared is None else HTTP2
            self._body = body
            self.due = now + plan.patience
            if not (app.watched if direct is None else direct.watched):
                app.enter(now)
            if self.due <= means.watch.next:
                means.watch.sooner(self)
            asked = plan.asked if keys is None else plan.keyed_request(origin, means.via, keys.key)
            if asked is None or asked.head is not plan.head:
                asked = plan.first_request(origin, means.via)
            connection = stream if isinstance(stream, Connection) else None
            if connection is not None:
                connection.send(first, asked, body, True, None)
            else:
                stream.send(first, asked, body, True, None)
        except Exception as error:
            self.break_down(error, now)

    def _start_decided(self, now: float, body: bytes, done: bool, trailers: Trailers | None) -> None:
        """The same of a call that something may have to be decided of: its `Call` is there from the start."""
        means, policy, head = self.means, self.policy, self.plan.head
        self.flights.clear()
        self._body, self.bytes_out = b"", 0
        if body or not done or head.chunked:
            self._receive(body, done=done, trailers=None if trailers is None else head.trailers_to_send(trailers))
        call = self._decide()
        actions = call.start(now)
        self.due = NEVER if call.deadline is None else call.deadline
        if not done and policy.timeouts.idle is not None:
            self.due = min(self.due, now + policy.timeouts.idle)
        if not self.app.watched:
            self.app.enter(now)
        if self.due <= means.watch.next:
            means.watch.sooner(self)
        self.carry_out(actions, now)

    def decider(self) -> Call:
        """The `Call`. Where there is none yet, it is made as it would stand: attempt 1 flies, or is being delivered."""
        if self.decided:
            return self.call
        first, body, call = self._first, self._body, self._decide()
        assert first is not None  # a call without a `Call` was sent at once
        call.flown(self.started)
        self.endpoint = first.origin.label
        call.sent(1, self.endpoint, first.protocol, self.started)
        if body:
            self._receive(body, done=True)
            first.cursor = len(body)
        if first.state is DELIVERING:
            call.head(1, Reply(first.head.status, first.head), first.arrived)  # it says to deliver: so we do
        if self.upload is not None and self.upload.overfull:  # it has been sent: none is left for another attempt
            self._lose(self.upload)
        return call

    def _decide(self) -> Call:
        elsewhere = None if self.plan.ways is None else self._elsewhere
        self.call = Call(self.request, self.policy, self._scope, self.means.env, self.wake_at, elsewhere)
        self.decided = True
        if self._keys is not None:
            self.call.carry(self._keys)
            self._keys = None  # where it goes on elsewhere, it has others
        if self.plan.goes_elsewhere:
            self.call.goes_elsewhere()
        return self.call

    def app_data(self, data: bytes) -> None:
        """More of the request's body; in a tunnel, bytes."""
        self.moved = monotonic()
        if self.pipe is not None:
            self.bytes_in += len(data)
            self.pipe.write(data)
        elif self.upload is not None and not self.over:
            self.bytes_in += len(data)
            self.upload.append(data)
            self._pump(self.upload)

    def app_ended(self, trailers: Trailers | None) -> None:
        """The request's body is whole; in a tunnel, the app sends no more."""
        if self.pipe is not None:
            self.pipe.app_ended()
            self._end_tunnel(self.pipe)
        elif self.upload is not None:
            self.upload.end(None if trailers is None else self.plan.head.trailers_to_send(trailers))
            if self.journey is not None:
                self.journey.trailers_came(self.upload)
            self._pump(self.upload)

    def app_gone(self) -> None:
        """The app went away."""
        if not self.over:
            if self.pipe is not None:  # one side always leaves a tunnel first: that is no failure
                self._verdict = Outcome.SUCCESS
            now = monotonic()
            self.tell(now, self.decider().app_gone, now)

    def cut(self) -> None:
        """The process ends, and waits for this call no longer."""
        now, call = monotonic(), self.decider()
        if not self.status:
            self.tell(now, call.cut, now)
        if not self.over:  # an answer is under way
            self.detail = SHUT_DOWN
            self._break_off(None)
            self.tell(now, call.cut, now)

    def app_broke(self, detail: str) -> None:
        """The request's body breaks its framing: 400 while nothing of an answer has gone, else the end of it."""
        self._end_early(400, "Bad Request", detail, Outcome.BAD_REQUEST, "http_request_error")

    def app_writable(self) -> None:
        """The app takes bytes again."""
        for attempt in self.flights.values():
            if attempt.state is DELIVERING and attempt.stream is not None:
                attempt.stream.resume()

    # -- from attempts --------------------------------------------------------------------------------------------

    def hand_on_success(self, attempt: Attempt, head: ResponseHead, data: bytes, end: bool) -> bool:
        """Hand on an answer that nothing has to be decided of."""
        direct, plan = self._direct, self.plan
        if self.decided or (end and plan.is_grpc):  # gRPC has no success that ends with its head but with a status
            return False
        try:
            if head is not plan.answered and not self._is_plain(head):
                return False
            if direct is not None:
                direct.respond(head, _NO_NAMES, plan.answer_lines, data, end, None)
            else:
                self.app.respond(head, _NO_NAMES, plan.answer_lines, data, end, None)
            self.status = head.status
            self.bytes_out = len(data)
            if end:
                attempt.stream = None
                if plan.is_grpc:
                    self._note_grpc_status(head, None)
                self._succeed(monotonic())
            else:
                attempt.head, attempt.state = head, DELIVERING
                attempt.arrived = monotonic()
                self._stream_on(attempt, attempt.arrived)
        except Exception as error:
            self.break_down(error, monotonic())
        return True

    def hand_on_whole(self, attempt: Attempt, head: ResponseHead, data: bytes, trailers: Trailers) -> bool:
        """Hand on an answer with trailers, of which nothing has to be decided either."""
        if self.decided:
            return False
        plan = self.plan
        try:
            if head is not plan.answered and not self._is_plain(head):
                return False
            end = plan.ends.get(trailers) or plan.plain_end(head, trailers)
            if end is None:
                return False
            told, status = end
            self.app.respond(head, _NO_NAMES, plan.answer_lines, data, True, told)
            self.status = head.status
            self.bytes_out = len(data)
            attempt.stream = None
            if plan.is_grpc:
                self.grpc_status = grpc_status_of_http(head.status) if status is None else status
            self._succeed(monotonic())
        except Exception as error:
            self.break_down(error, monotonic())
        return True

    def _is_plain(self, head: ResponseHead) -> bool:
        """Whether nothing has to be decided of an answer's head: the plan remembers it then."""
        plan = self.plan
        if plan.looks or plan.answered is None or not head.says_same(plan.answered):
            if head.login_bound or not is_plain_success(plan.policy.classify, head.status, head):
                return False
            plan.answer_lines = plain_lines(via_name(plan.policy, self.means.via), head.version, 1)
        plan.answered = head
        return True

    def informed(self, attempt: Attempt, head: ResponseHead) -> None:
        """An interim answer: passed on while no final one is (it commits nothing)."""
        self.moved = monotonic()
        if self.journey is not None and head.get(b"set-cookie") is not None:
            return  # of an upstream that the app did not ask
        if attempt.state is FLYING and not self.over:
            resent = attempt.number > 1 or (self.decided and self.call.resent)
            self.app.inform(head, via_line(self._via(attempt), head.version), resent=resent)

    def _via(self, attempt: Attempt) -> str:
        """The name in the Via of an attempt's answer; "" where its upstream is without."""
        journey = self.journey
        return via_name(self.policy if journey is None else journey.policy_of(attempt.number), self.means.via)

    def answered(self, attempt: Attempt, reply: Reply, stream: UpstreamStream | None) -> None:
        """A head came, of which something has to be decided."""
        if stream is not None and (attempt.head.login_bound or self.plan.login_bound):
            self.app.pin(stream, attempt.origin)
        elif reply.status == 421 and stream is not None and not self.app.has_pinned:
            reply.follows = not stream.is_first
        now = attempt.arrived
        try:
            self.carry_out(self.decider().head(attempt.number, reply, now), now)
        except Exception as error:
            self.break_down(error, now)

    def peeked(self, attempt: Attempt, body: bytes) -> None:
        """So much of an answer's body has come as was to be looked at, or all of it."""
        now = monotonic()
        self.tell(now, self.call.peeked, attempt.number, body, now)

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt ended without a whole answer."""
        now, call = monotonic(), self.decider()
        if attempt.state is DELIVERING:
            self._break_off(fault)
        else:
            self.flights.pop(attempt.number, None)
            self._avoid(attempt)
            attempt.drop()
            if not fault.reused:
                self._failed.append(attempt.origin)
        if fault.error == faults.PROHIBITED:
            self.tell(now, call.denied, attempt.number, fault.detail, now)
        else:
            self.tell(now, call.failed, attempt.number, fault, now)

    def hand_on(self, attempt: Attempt, data: bytes) -> None:
        """More of the answer that the app is given."""
        self.bytes_out += len(data)
        direct = self._direct
        if direct is not None:
            direct.write(data)
        else:
            self.app.write(data)
        if attempt.watch is not None:
            self._read_along(attempt.watch, data)
        if (self.app.blocked if direct is None else direct.blocked) and attempt.stream is not None:
            attempt.stream.pause()

    def _read_along(self, watch: StreamWatch, data: bytes) -> None:
        """Look for errors in what went on of a stream."""
        for error in watch.feed(data):
            self.detail = f"its stream reported an error: {error}"
            self.means.observer.stream_failed(self.policy, error)

    def answer_ended(self, attempt: Attempt) -> None:
        """The answer that the app is given is whole; in a tunnel, the upstream sends no more."""
        if self.pipe is not None:
            self.upstream_ended()
            return
        attempt.stream = None
        trailers = attempt.trailers
        self.app.finish(trailers)
        if self.plan.is_grpc:
            self._note_grpc_status(attempt.head, trailers)
        now = monotonic()
        if not self.decided and (trailers is None or is_plain_end(self.policy.classify, trailers)):
            attempt.state, attempt.ended, attempt.trailers = FLYING, False, None  # as the next call finds it
            self._succeed(now)
        else:
            self._end_well(attempt.number, trailers, now)

    def upstream_ended(self) -> None:
        """In a tunnel, the upstream sends no more."""
        if self.pipe is not None:
            self.pipe.upstream_ended()
            self._end_tunnel(self.pipe)

    def upstream_writable(self, attempt: Attempt) -> None:
        """An attempt's stream takes bytes again."""
        self.moved = monotonic()
        if self.pipe is not None:
            self.app.resume()
        elif self.upload is not None:
            self._pump(self.upload)

    def _launched(self, upload: Upload) -> None:
        """A request with a body was begun to be sent. Hedges that go at once with it need the body from its beginning:
        nothing of it is let go before the last of them is on its way.
        """
        if upload.overfull and max(self.flights, default=0) < self.call.attempts:
            self.means.loop.call_soon(self._all_launched, upload)
        else:
            self._all_launched(upload)

    # -- actions --------------------------------------------------------------------------------------------------

    def tell(self, now: float, event: Callable[..., Actions], *facts: object) -> None:
        """Tell the call what happened, and carry out what it asks for. A defect ends the call, never hangs it."""
        try:
            self.carry_out(event(*facts), now)
        except Exception as error:
            self.break_down(error, now)

    def carry_out(self, actions: Actions, now: float) -> None:
        """Do what the call asks for, in order."""
        for action in actions:
            kind = type(action)
            if kind is Launch:
                launch: Launch = action  # type: ignore[assignment]
                self._launch(launch, now)
            elif kind is Deliver:
                deliver: Deliver = action  # type: ignore[assignment]
                self._deliver(self.flights[deliver.attempt], deliver.outcome, now)
            elif kind is Finish:
                self._finish(action.outcome, now)  # type: ignore[union-attr]
            elif kind is WakeAt:
                wake: WakeAt = action  # type: ignore[assignment]
                self.wake_at(wake.at)
            elif kind is Hold:
                hold: Hold = action  # type: ignore[assignment]
                attempt = self.flights[hold.attempt]
                attempt.hold()
                self._failed.append(attempt.origin)
                self._avoid(attempt)
            elif kind is Discard or kind is Cancel:
                flight = self.flights.pop(action.attempt, None)  # type: ignore[union-attr]
                if flight is not None:
                    flight.drop()
            elif kind is Peek:
                self._peek(action)  # type: ignore[arg-type]
            elif kind is Ask:
                self._ask(action.price, now)  # type: ignore[union-attr]
            elif kind is FallBack:
                self._go_on(now)
            else:
                self._answer(action)  # type: ignore[arg-type]

    def _peek(self, action: Peek) -> None:
        """Keep an answer until so much of its body has come as is to be looked at, or is waited for."""
        attempt, idle = self.flights[action.attempt], self.policy.timeouts.idle
        if action.look is not None and idle is not None:
            self.due_by(self.moved + idle)
        attempt.peek(action.limit, action.look)

    def _ask(self, price: float, now: float) -> None:
        bucket = self._scope.bucket
        assert bucket is not None  # it was this one that had to be asked
        bucket.ask(price, now, partial(self._bucket_answered, self.call))

    def _bucket_answered(self, call: Call, price: float, granted: bool) -> None:
        """The bucket's word, whenever it comes: a call that is over gives a grant back."""
        now = monotonic()
        self.tell(now, call.granted if granted else call.refused, price, now)

    def _elsewhere(self, entry: Fallback) -> str:
        """Why the call can't go on by this entry, "" where it can: what it would be sent as is ready then."""
        if self.journey is None:
            self.journey = Journey(self.means, self.plan)
        try:
            self.journey.prepare(entry, self.upload)
        except StaysError as why:
            return str(why)
        return ""

    def _go_on(self, now: float) -> None:
        """The call goes on at the upstream that was asked last whether it can: from here on it is a call there."""
        means, journey, before = self.means, self.journey, self.call
        assert journey is not None  # it was asked
        before.forget_alarm()
        if self._alarm is not None:
            self._alarm.stop()
        plan = self.plan = journey.go_on(before.attempts, self.upload)
        self.policy, self.request = plan.policy, plan.request
        self._failed, self._avoided = [], []
        self._scope = means.registry.scope(plan.policy, plan.request, now)
        call = self._decide()
        actions = call.go_on(before, now)
        self.due_by(NEVER if call.deadline is None else call.deadline)
        if self.policy.timeouts.idle is not None:
            self.moved = now
            self.due_by(now + self.policy.timeouts.idle)
        self.carry_out(actions, now)

    def _launch(self, action: Launch, now: float) -> None:
        number, fresh, endpoint = action.attempt, action.fresh, action.endpoint
        destination, flights = self.plan.destination, self.flights
        if endpoint is None:
            avoid = () if destination.only else [*self._failed, *[flight.origin for flight in flights.values()]]
            origin = destination.only or destination.choose(avoid, now)
        else:
            origin = destination.origins[endpoint]
        self.endpoint = origin.label
        self.call.sent(number, self.endpoint, "", now)
        attempt = flights[number] = Attempt(self, number, origin)
        attempt.key = action.key
        stream = None if fresh else self._resting(origin, now)
        if stream is None:
            attempt.task = self.means.loop.create_task(self._dial(attempt, fresh, action.alone))
            if self.upload is not None:
                self.upload.settle(self.flights.values())
        else:
            self._send(attempt, stream, now)

    async def _dial(self, attempt: Attempt, fresh: bool, alone: bool) -> None:
        try:
            try:
                stream = await self.open(attempt.origin, fresh=fresh, alone=alone)
            except Exception as error:  # a table says what each is
                attempt.task = None
                self.failed(attempt, self.means.pool.dial_failed(attempt.origin, error))
                return
            attempt.task = None
            self._send(attempt, stream, monotonic())
        except Exception as error:  # the task has no reader: the call would last until its deadline
            attempt.task = None
            self.break_down(error, monotonic())

    def _send(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        if not stream.is_open:
            self.failed(attempt, faults.closed(sent=False, answered=False, reused=False))
            return
        self._begin(attempt, stream, now)
        self._has_sent(attempt)
        if self.upload is not None:
            self._launched(self.upload)

    def _begin(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """Send the request as this attempt does, and what there is of its body."""
        attempt.stream = stream  # given back with the attempt, also if its request can't be written
        self.call.sent(attempt.number, attempt.origin.label, HTTP1 if stream.shared is None else HTTP2, now)
        replay = None if self.upload is None else self._replay
        attempt.send(stream, self._request_for(attempt, stream, now), replay, now)

    @property
    def _replay(self) -> Replay | None:
        """The body that attempts send; another upstream may get another one than came."""
        upload = self.upload
        if upload is None:
            return None
        return upload.replay if self.journey is None else self.journey.body_for(upload)

    def _has_sent(self, attempt: Attempt) -> None:
        """The attempt's own timeout runs from the last byte of the request to the final head."""
        timeouts = self.policy.timeouts
        if timeouts.attempt is not None and attempt.sent_at is not None:
            self.due_by(attempt.sent_at + timeouts.attempt)
        if timeouts.first_byte is not None and attempt.sent_at is not None:
            self._bound_first_byte(attempt.sent_at)

    def _bound_first_byte(self, sent_at: float) -> None:
        """The time to the first byte that counts runs from the last byte of the request, too, where it is bounded."""
        call, replay = self.call, self._replay
        call.request_sent(sent_at, None if replay is None else replay.whole())
        if call.first_byte is not None:
            self.due_by(sent_at + call.first_byte)

    def _resting(self, origin: Origin, now: float) -> UpstreamStream | None:
        """A stream on a connection that is there: this app connection's own (NTLM, Negotiate), or a pooled one."""
        stream = self.app.pinned(origin) if self.app.has_pinned and self.journey is None else None
        if stream is None:
            not_on = self._connections() if origin.way.http2 else ()
            stream = self.means.pool.lease(origin, now, self.call.is_idempotent(), not_on)
        return stream

    def _avoid(self, attempt: Attempt) -> None:
        """Send what comes next by another connection than this attempt was, where one is open."""
        stream = attempt.stream or attempt.sent_on
        if stream is not None and stream.shared is not None:
            self._avoided.append(stream.shared)

    def _connections(self) -> list[SharedConnection | None]:
        """Shared connections that attempts failed on, or fly on."""
        flying = [each.stream.shared for each in self.flights.values() if each.stream is not None]
        return [*self._avoided, *flying]

    async def open(self, origin: Origin, *, fresh: bool, alone: bool = False) -> UpstreamStream:
        """A stream for an attempt, where no connection rests. `fresh`: not on one that another call has used; `alone`:
        as the first on its connection.
        """
        idempotent = None if fresh else self.call.is_idempotent()
        connect = self.policy.timeouts.connect
        return await self.means.pool.open(
            origin, within=connect, idempotent=idempotent, not_on=self._connections(), alone=alone
        )

    def _request_for(self, attempt: Attempt, stream: UpstreamStream, now: float) -> Asked:
        plan = self.plan
        if plan.plain and attempt.key is None and not plan.request.timed:  # else there is less time left
            return plan.plain_request(attempt.origin, attempt.number, self.means.via)
        if plan.login_bound:
            self.app.pin(stream, attempt.origin)
        if self._key is None and wants_key(self.request, self.policy):
            from uuid import uuid4  # and `platform` with it, for a key that few policies ask for

            self._key = str(uuid4())
        drop, add = self._own_fields(attempt)
        if attempt.key is not None:
            drop, add = plan.with_credential(attempt.key, drop, add)
        return plan.request_for(
            *(attempt.origin, attempt.number, self.means.via),
            elapsed=now - self.started if self._was_held(attempt) else 0.0,
            key=self._key,
            drop=drop,
            add=add,
        )

    def _was_held(self, attempt: Attempt) -> bool:
        """Whether anything but its own dial came before this sending: then less is left of the app's deadline."""
        call = self.call
        return attempt.number > 1 or call.resent or bool(call.held_by) or self.journey is not None

    def _own_fields(self, attempt: Attempt) -> tuple[frozenset[bytes], bytes]:
        """Names that an attempt's head leaves out, and lines that it adds, whatever the policy says."""
        return _NO_NAMES, b""

    def _deliver(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        head, call, journey = attempt.head, self.call, self.journey
        attempt.state = DELIVERING
        if self.plan.is_grpc and self._is_to_be_told(head, outcome):
            self._give_up(attempt, outcome, now)
            return
        policy = self.policy if journey is None else journey.policy_of(attempt.number)
        drop, add = handed_on(call, policy, head, self.means.via, outcome, now - attempt.arrived)
        if journey is not None:
            drop |= journey.dropped(attempt.number)
        data = attempt.take()
        self.bytes_out += len(data)
        ended = attempt.ended
        self.app.respond(head, drop, add, data, ended, attempt.trailers)
        self.status = head.status  # not before: an answer that could not be written is none
        if outcome is _SUCCESS and self.policy.classify.looks_below_400:
            attempt.watch = watch_for_errors(self.policy.classify, Reply(head.status, head))
            if attempt.watch is not None and data:
                self._read_along(attempt.watch, data)
        if ended:
            if self.plan.is_grpc:
                self._note_grpc_status(head, attempt.trailers)
            self._end_well(attempt.number, attempt.trailers, now)
        elif attempt.fault is not None:
            self._break_off(attempt.fault)
            self.tell(now, call.failed, attempt.number, attempt.fault, now)
        else:
            self._stream_on(attempt, now)

    def _end_well(self, number: int, trailers: Trailers | None, now: float) -> None:
        """The answer of this attempt, which the app is given, is whole."""
        try:
            self.carry_out(self.decider().ended(number, now, trailers), now)
        except Exception as error:
            self.break_down(error, now)

    def _is_to_be_told(self, head: ResponseHead, outcome: Outcome) -> bool:
        """Whether a gRPC call on HTTP/2 ends with an answer that does not say so in gRPC's way."""
        if not self.plan.head.is_http2 or head.get(b"grpc-status") is not None:
            return False
        return gave_up(self.policy, outcome, self.call.attempts, no_place=self.call.found_no_place)

    def _give_up(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        """Say in gRPC's way that an HTTP error is all there is, and let go of the rest of it."""
        self.status = 200
        self.grpc_status = grpc_status_of_http(attempt.head.status)
        self.app.answer(200, given_up_answer(self.call, attempt.head, self._via(attempt), outcome=outcome), b"")
        attempt.drop()
        self._end_well(attempt.number, None, now)

    def _stream_on(self, attempt: Attempt, now: float) -> None:
        """The answer goes on as it comes."""
        if self.policy.timeouts.idle is not None:
            self.moved = now
            self.due_by(now + self.policy.timeouts.idle)
        stream = attempt.stream
        if stream is None:
            return
        if self.app.blocked:
            stream.pause()
        else:
            stream.resume()
        if attempt.head.status == 101 or self.plan.head.method == "CONNECT":
            app = cast(Tunnelling, self.app)  # it has asked for a tunnel, or for an upgrade
            self.pipe = Pipe(app, stream)
            app.tunnel()

    def _end_tunnel(self, pipe: Pipe) -> None:
        """One direction is closed. When both are, the tunnel is over."""
        if pipe.is_over:
            now = monotonic()
            for number in self.flights:
                self._end_well(number, None, now)
                return

    def _answer(self, action: Answer) -> None:
        """Write the proxy's own answer."""
        call, grpc = self.call, self.request.is_grpc
        self.detail = action.detail
        before = told(call.history) if self.journey is not None and self.journey.since else ""
        self.status, lines, body = answer_of(
            action, self.policy, attempts=call.attempts, grpc=grpc, before=before, no_place=call.found_no_place
        )
        self.grpc_status = told_grpc_status(action) if grpc else None
        self.bytes_out = len(body)
        self.app.answer(self.status, lines, body)

    def _note_grpc_status(self, head: ResponseHead, trailers: Trailers | None) -> None:
        """A gRPC call's answer is whole: note the status that its app makes of it."""
        status = Reply(head.status, head, trailers=trailers).grpc_status
        self.grpc_status = grpc_status_of_http(head.status) if status is None else status

    def _break_off(self, fault: Fault | None) -> None:
        """Break an answer off that the app has begun to get."""
        if self.plan.is_grpc:
            self.grpc_status = UNAVAILABLE if fault is None else fault.grpc_status
        self.app.reset(fault)

    # -- the end --------------------------------------------------------------------------------------------------

    def _succeed(self, now: float) -> None:
        """The call is over, and there was nothing to decide: tell the observers, give the app's stream back."""
        means, body = self.means, self._body
        self.over = True
        self._scope.succeeded(now)
        if means.watch.alarms:
            means.watch.remove(self)
        if means.app_repeats:
            self._look_for_a_repeat(given_up=False, now=now)
        first = self._first
        assert first is not None
        history = () if self._keys is None else self._keyed_history(first, self._keys, now)
        self._tell_of(SUCCESS, now, 1, len(body), first.origin.label, history, False, True, first.protocol, ())
        direct = self._direct
        if direct is not None:
            direct.done()
        else:
            self.app.done()

    def _keyed_history(self, first: Attempt, keys: CallKeys[ScopeState], now: float) -> tuple[AttemptRecord, ...]:
        """The only attempt of a call, which carried a credential. The next call chooses one again."""
        self._keys = None
        record = AttemptRecord(1, self.started, now, status=self.status, cls=_SUCCESS_CLASS, decision="delivered")
        record.endpoint, record.protocol = first.origin.label, first.protocol
        record.key, record.key_why = keys.key, keys.why
        return (record,)

    def _finish(self, outcome: Outcome, now: float) -> None:
        """The call is over: release everything, tell the observers, give the app's stream back."""
        means, call = self.means, self.call
        self.over = True
        outcome = self._verdict or outcome
        if means.watch.alarms:
            means.watch.remove(self)
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None  # else they would keep each other
        for attempt in self.flights.values():
            if attempt.stream is not None or attempt.task is not None:
                self._let_go(attempt)
        given_up = gave_up(self.policy, outcome, call.attempts, outcome is _OVERLOADED and call.found_no_place)
        if self.journey is not None:
            self._end_journey(self.journey)
        if given_up or means.app_repeats:
            self._look_for_a_repeat(given_up=given_up, now=now)
        if self.upload is not None:
            self.upload.replay.close()
        if not call.attempts and call.held_by and not self.detail:
            self.detail = f"{GATES[call.held_by]} held it"
        attempts, history = call.attempts, tuple(call.history)
        fallbacks = () if call.fallbacks is None else tuple(call.fallbacks.records)
        once = not fallbacks and was_sent_once(attempts, outcome, history)
        self._tell_of(
            outcome,
            now,
            attempts,
            self.bytes_in,
            self.endpoint,
            history,
            call.app_retry,
            once,
            call.sent_by,
            fallbacks,
        )
        self.flights.clear()
        self._first = None
        call.forget_alarm()  # else call and exchange would keep each other until the collector comes
        self.app.done()

    def _tell_of(
        self,
        outcome: Outcome,
        now: float,
        attempts: int,
        bytes_in: int,
        endpoint: str,
        history: Sequence[AttemptRecord],
        app_retry: bool,
        once: bool,
        sent_by: str,
        fallbacks: Sequence[FallbackRecord],
    ) -> CallRecord:
        """Tell the observers of the call, by a record."""
        request = self.request
        record = CallRecord.__new__(CallRecord)  # past its own constructor, which takes twice as long
        record.started = self.started
        record.wall_started = self.started + self.means.env.wall_offset
        record.ended = now
        record.policy = self.policy
        record.method = request.method
        record.authority = request.authority
        record.path = request.path
        record.client = self.client
        record.status = self.status
        record.outcome = outcome
        record.attempts = attempts
        record.bytes_in = bytes_in
        record.bytes_out = self.bytes_out
        record.endpoint = endpoint
        record.history = history
        record.detail = self.detail
        record.app_retry = app_retry
        record.protocol = self.plan.protocol
        record.sent_by = sent_by
        record.grpc_status = self.grpc_status
        record.was_sent_once = once
        record.fallbacks = fallbacks
        self.means.observer.call_ended(record)
        return record

    def _end_journey(self, journey: Journey) -> None:
        """The call is reported as it came, whichever upstream it ended at."""
        journey.close()
        plan = self.plan = journey.first
        self.policy, self.request = plan.policy, plan.request

    def _look_for_a_repeat(self, given_up: bool, now: float) -> None:
        """Whether the app repeats by itself what was given up here, and says nothing of it."""
        body: Iterable[bytes] | None = (self._body,) if self._body else ()
        if self.upload is not None:
            body = self.upload.replay.whole()
        repeated = self.means.app_repeats.ended(self.client, self.request, body, given_up, now)
        if repeated and not (self.decided and self.call.app_retry):
            self.means.observer.app_repeated(self.policy)

    def _let_go(self, attempt: Attempt) -> None:
        """Of an attempt whose stream is still there when the call ends."""
        if self.pipe is not None and self.pipe.is_over and attempt.stream is not None:
            attempt.stream.close()  # what was written goes out yet
            attempt.stream = None
        attempt.drop()

    def _end_early(self, status: int, title: str, detail: str, outcome: Outcome, error: str) -> None:
        """The app's own fault ends the call."""
        if self.over:
            return
        now = monotonic()
        self._verdict = outcome
        if self.status:
            self.app.reset(None)
        else:
            self._answer(Answer(status, title, detail, outcome, None, error))
        self.tell(now, self.call.app_gone, now)

    def break_down(self, error: Exception, now: float) -> None:
        """A defect of the proxy: say so in the log, and tell the app that its call has failed."""
        self.means.loop.call_exception_handler({"message": "a call broke down", "exception": error})
        if self.over:
            return
        if self.status:
            self.app.reset(None)
        else:
            detail = "the proxy failed; its log says more"
            grpc, outcome, title = self.request.is_grpc, Outcome.NOT_RETRYABLE, "Internal Server Error"
            own = OwnAnswer(500, title, detail, outcome, self.policy.upstream)
            own.grpc = grpc
            self.status, lines, body = own.render()
            self.grpc_status = own_grpc_status(500) if grpc else None
            self.app.answer(self.status, lines, body)
            self.detail = detail
        with contextlib.suppress(Exception):
            self.decider().app_gone(now)  # gives back what it holds; its actions are done below
        if self.decided:
            self._finish(Outcome.NOT_RETRYABLE, now)
        else:  # there was no telling what it shares with other calls; it serves no other
            self.over = self.decided = True
            self.app.done()

    # -- the request's body ---------------------------------------------------------------------------------------

    def _receive(self, body: bytes, *, done: bool, trailers: Trailers | None = None) -> None:
        """The request has a body; this much of it has come."""
        self.upload = Upload(self.app, self.means.store, body, done=done, trailers=trailers)
        self.bytes_in = len(body)

    def _pump(self, upload: Upload) -> None:
        """Pass on what has come of the body."""
        for attempt in list(self.flights.values()):
            attempt.pump()
            self._has_sent(attempt)
        if upload.overfull and any(attempt.stream is not None for attempt in self.flights.values()):
            self._lose(upload)
        if not self.over:
            upload.settle(self.flights.values())

    def _all_launched(self, upload: Upload) -> None:
        if upload.overfull and not self.over:
            self._lose(upload)
        if not self.over:
            upload.settle(self.flights.values())

    def _lose(self, upload: Upload) -> None:
        """The body outgrew what may be kept: it streams on in what flies now."""
        if not upload.lose():
            return
        now = monotonic()
        furthest = max(self.flights.values(), key=lambda each: (each.sent, -each.number), default=None)
        self.tell(now, self.call.replay_lost, now, 0 if furthest is None else furthest.number)
        if not self.over and self.policy.timeouts.idle is not None:
            self.due_by(now + self.policy.timeouts.idle)

    # -- what is waited for ---------------------------------------------------------------------------------------

    def due_by(self, at: float) -> None:
        """Something is due at this time, perhaps before anything else."""
        if at < self.due:
            self.due = at
            self.means.watch.sooner(self)

    def wake_at(self, at: float) -> None:
        """Set the call's one alarm."""
        if self.over:
            return
        if self._alarm is None:
            self._alarm = Alarm(self.means.loop, self._ring)
        self._alarm.set(at)

    def _ring(self, now: float) -> None:
        try:
            self.carry_out(self.call.woke(now), now)
        except Exception as error:
            self.break_down(error, now)

    def attend(self, now: float) -> float:
        """See to deadlines and timeouts; when the next one is due. A defect ends the call, never hangs it."""
        try:
            return self._see_to_timeouts(now)
        except Exception as error:
            self.break_down(error, now)
            return NEVER

    def _see_to_timeouts(self, now: float) -> float:
        call = self.decider()
        if call.deadline is not None and now >= call.deadline:
            self._ring(now)
        for attempt in list(self.flights.values()):
            if now >= self._attempt_due(attempt):
                self.failed(attempt, faults.attempt_timeout())
            elif now >= self._first_byte_due(attempt):
                self.failed(attempt, faults.first_byte_timeout(answered=attempt.waits))
        if now >= self._silence_due:
            self._fall_silent(now)
        if self.over:
            return NEVER
        due = NEVER if call.deadline is None or now >= call.deadline else call.deadline
        flights = self.flights.values()
        return min(due, self._silence_due, *map(self._attempt_due, flights), *map(self._first_byte_due, flights))

    def _attempt_due(self, attempt: Attempt) -> float:
        timeout = self.policy.timeouts.attempt
        if timeout is None or attempt.sent_at is None or attempt.state is not FLYING or self._has_outgrown:
            return NEVER
        return attempt.sent_at + timeout

    def _first_byte_due(self, attempt: Attempt) -> float:
        if attempt.state is FLYING:
            within = self.call.first_byte
            return (
                NEVER if within is None or attempt.sent_at is None or self._has_outgrown else attempt.sent_at + within
            )
        due = attempt.look.due if attempt.look is not None and attempt.waits else None
        return NEVER if due is None else due

    @property
    def _has_outgrown(self) -> bool:
        """Whether the body outgrew its buffer, so that only silence ends the wait for the head. Attempts that share the
        request's stream need no buffer: `attempt` and `total` bound them as ever.
        """
        return self.upload is not None and self.upload.replay.lost and self.call.committed

    @property
    def _silence_due(self) -> float:
        """When the idle timeout is over: of a body either way, a tunnel, the wait of a call that outgrew its buffer."""
        idle = self.policy.timeouts.idle
        receiving = self.upload is not None and not self.upload.replay.done
        if idle is None or self.over or not (receiving or self._flowing):
            return NEVER
        return self.moved + idle

    @property
    def _flowing(self) -> list[Attempt]:
        """Attempts that only silence ends."""
        outgrown = self._has_outgrown
        flights = self.flights.values()
        return [a for a in flights if a.state is DELIVERING or a.waits or (outgrown and a.state is FLYING)]

    def _fall_silent(self, now: float) -> None:
        """Nothing has moved for too long: what stands still has failed, or else the app has."""
        blocked = [a for a in self.flights.values() if a.stream is not None and a.stream.blocked]
        standing = self._flowing or blocked
        self.moved = now  # what is begun in its place has its own time
        if standing:
            self.failed(standing[0], faults.idle_timeout(answered=standing[0].state is DELIVERING))
        else:
            detail = "the request's body did not arrive"
            self._end_early(408, "Request Timeout", detail, Outcome.CLIENT_GONE, "connection_read_timeout")
