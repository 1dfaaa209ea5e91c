"""The driver of one call: it carries out with sockets what `proxy.retry.machine` decides.

Theory of operation. Every event (the app's bytes, an attempt's answer, an alarm) is passed to the call with the time,
and the actions that the call returns are carried out in order. Nothing is decided here. The exchange owns what a call
needs while it lasts: its attempts, the body kept for another one, one alarm; `Finish` releases all of it, sends the
observers a record (`proxy.observe.call_record`), and gives the app's stream back.

Nearly every call takes one course: nothing holds it, the pool has an idle connection, the answer is a success. Then
there is nothing to decide, and no `Call` is made: the exchange sends the request, forwards the answer, and its app
connection keeps it for the next request. Any other event is passed to the `Call`, which is then made (`decider`) as if
it had existed from the start.

Law: after an action that ends the call, nothing else of the call is done, so an action that may cause the next event at
once (Peek, Deliver, Ask) is always the last of its tuple.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from proxy.forward.attempt import DELIVERING, FLYING, HELD, HOLDING, Attempt, AttemptOwner
from proxy.forward.broken_answer import BrokenAnswer
from proxy.forward.call_report import look_for_repeat, report_of_decided
from proxy.forward.call_timeouts import CallTimeouts
from proxy.forward.context import Context
from proxy.forward.delivery import Delivery
from proxy.forward.fallback import Journey, body_of
from proxy.forward.headers import gave_up
from proxy.forward.request_plan import Plan
from proxy.forward.resume import NOT_THE_REST
from proxy.forward.sending import Sender
from proxy.forward.streams import AppStream
from proxy.forward.timers import Alarm
from proxy.forward.token_prices import awaits_body, begin, expect_price, settle_price
from proxy.forward.undecided import Undecided
from proxy.forward.upload import Upload
from proxy.forward.whole_look import DECIDE, LOOKED, look_at
from proxy.retry.actions import (
    Action,
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
from proxy.retry.classification import is_plain_end
from proxy.retry.facts import IDEMPOTENT_METHODS, Fault, Outcome, Reply, grpc_status_of_http
from proxy.retry.machine import Call
from proxy.retry.reasons import GATES, SHUT_DOWN
from proxy.retry.scope_state import ScopeState
from proxy.retry.states import New
from proxy.retry.stream_ends import UNFINISHED
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import Connection
from proxy.transport.streams import UpstreamStream
from proxy.wire.fields import NO_NAMES
from proxy.wire.head import ResponseHead, Trailers

NEVER = float("inf")
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_OVERLOADED, _SUCCESS = Outcome.OVERLOADED, Outcome.SUCCESS
#: The answer to an app that stopped sending its request's body.
_NO_BODY = Answer(
    408,
    "Request Timeout",
    "the request's body did not arrive",
    Outcome.CLIENT_GONE,
    None,
    "connection_read_timeout",
)


class Exchange(AttemptOwner):
    """A call of an app, from its request's head to the last byte of its answer.

    The app connection reports the request to it, and the watch, the timer of all calls, has it check its timeouts
    (`proxy.forward.timers.Timed`). Its parts: `delivery` writes to the app, `sender` sends the attempts, `upload` is
    the request's body, None if it has none. If anything had to be decided (`decided`), `call` and `sender` exist.
    `journey`: the course over several upstreams, None if the policy names no other.
    """

    __slots__ = (
        "_alarm", "_make_sender", "_scope", "_undecided", "_verdict", "call", "context", "delivery", "due", "journey",
        "over", "plan", "sender", "started", "upload",
    )  # fmt: skip

    call: Call
    plan: Plan
    sender: Sender
    started: float
    _scope: ScopeState | None

    def __init__(
        self,
        context: Context,
        app: AppStream,
        make_sender: Callable[..., Sender] = Sender,
        make_delivery: Callable[[Context, AppStream], Delivery] = Delivery,
    ) -> None:
        self.context = context
        self.delivery = make_delivery(context, app)
        self.decided = False
        self.flights = {}
        self.upload: Upload | None = None
        self.journey: Journey | None = None
        self.over = True
        self.due = NEVER
        self._make_sender = make_sender
        self._undecided = Undecided(context)
        self._alarm: Alarm | None = None
        self._scope = None  # this call's, or the previous call's
        self._verdict: Outcome | None = None  # replaces the call's own outcome if the app is at fault

    # -- from the app ---------------------------------------------------------------------------------------------

    def start(
        self, plan: Plan, now: float, body: bytes = b"", done: bool = True, trailers: Trailers | None = None
    ) -> None:
        """Begin the call of a request whose head is whole. `body`: the part of its body that came with the head, all of
        it if `done`, with its `trailers`.
        """
        context, delivery = self.context, self.delivery
        app, direct = delivery.app, delivery.direct
        self.plan = plan
        request = plan.request
        self.started = self.moved = now
        self.over = False
        delivery.status = delivery.bytes_out = 0
        delivery.grpc_status = None
        try:
            scope = self._scope = context.registry.scope(plan.policy, request, now, self._scope)
            undecided, origin, stream = self._undecided, None, None
            if (
                plan.plain
                and done
                and trailers is None
                and not (app.has_pinned if direct is None else direct.has_pinned)
                and undecided.pass_gates(scope, request, now)
            ):
                destination = plan.destination
                origin = destination.only or destination.next_origin((), now)
                method = request.method
                stream = context.pool.lease(origin, now, method == "GET" or method in IDEMPOTENT_METHODS)
                if stream is None and (body or not origin.may_dial_at_once):
                    undecided.turn_back(scope, now)
                    origin = None
            if origin is None:
                self._start_decided(now, body, done, trailers)
                return
            if destination.only is None:
                destination.took(origin)
            self.due = now + plan.patience
            if not (app.watched if direct is None else direct.watched):
                app.enter(now)
            if self.due <= context.watch.next_tick:
                context.watch.sooner(self)
            undecided.begin(self, plan, scope, origin, stream, body, now)
            if stream is None:
                undecided.dial(self, plan, partial(_send_dialled, self))
        except Exception as error:
            self.break_down(error, now)

    def _start_decided(self, now: float, body: bytes, done: bool, trailers: Trailers | None) -> None:
        """Begin a call for which something may have to be decided, so that its `Call` exists from the start. `body`:
        the part of the request's body that came with the head, all of it if `done`, with its `trailers`.
        """
        head, idle, app = self.plan.head, self.plan.policy.timeouts.idle, self.delivery.app
        self.flights.clear()
        self._undecided.release()
        if body or not done or head.chunked:
            trailers = None if trailers is None else head.trailers_to_send(trailers)
            self.upload = Upload(app, self.context.store, body, done=done, trailers=trailers)
        call, upload = self._decide(), self.upload
        actions: Actions = ()
        if upload is not None and awaits_body(self.plan, upload):
            upload.settle({})
        else:
            actions = begin(call, self.plan, self._scope, body_of(self.upload, self.journey), upload, now)
        self.due = NEVER if call.so_far.deadline is None else call.so_far.deadline
        if not done and idle is not None:
            self.due = min(self.due, now + idle)
        if not app.watched:
            app.enter(now)
        if self.due <= self.context.watch.next_tick:
            self.context.watch.sooner(self)
        self.carry_out(actions, now)

    def decider(self) -> Call:
        """Return the call's `Call`. If none exists yet, make it in the state that the call has reached: attempt 1 is in
        flight, or its answer is being delivered.
        """
        if self.decided:
            return self.call
        undecided = self._undecided
        first, body = undecided.first, undecided.body
        assert first is not None  # a call without a `Call` was sent at once
        if body:
            self.upload = Upload(self.delivery.app, self.context.store, body, done=True)
            first.cursor = len(body)
        call, endpoint, answered = self._decide(), first.origin.label, first.state is DELIVERING
        traffic, undecided.traffic = undecided.traffic, None  # from here on the call reports to it
        actions = call.flown(self.started, endpoint, first.protocol, traffic, undecided.choice, answered)
        self.sender.endpoint = endpoint
        if self.plan.policy.timeouts.first_byte is not None:
            self._note_sent(first)
        if answered:
            call.head(
                1, Reply(first.head.status, first.head), first.arrived
            )  # the call's action, to deliver, is done already
        self.carry_out(actions, self.started)
        if self.upload is not None and self.upload.overfull:  # the body was sent, and is not kept for another attempt
            self._lose(self.upload)
        return call

    def _decide(self) -> Call:
        """Make the `Call`, and the sender of its attempts."""
        app, plan, scope = self.delivery.app, self.plan, self._scope
        elsewhere = None
        if plan.ways is not None:
            self.journey = Journey(self.context, plan)
            elsewhere = partial(self.journey.why_not, self.upload)
        assert scope is not None  # the call has begun
        body = None if self.upload is None else body_of(self.upload, self.journey)
        plan.request.body = body
        call = self.call = Call(plan.request, plan.policy, scope, self.context.env, self.wake_at, elsewhere)
        undecided = self._undecided
        if undecided.keys is not None:
            call.carry(undecided.keys)
            undecided.keys = None  # if the call goes on at another upstream, it gets other credentials there
        if plan.goes_elsewhere:
            call.goes_elsewhere()
        if self.decided:
            self.sender.go_elsewhere(plan, call, body)
        else:
            self.sender = self._make_sender(self, self.context, app, plan, call, body, self.started)
        self.decided = True
        return call

    def app_data(self, data: bytes) -> None:
        """Take more of the request's body or, in a tunnel, of the bytes that the app sends."""
        self.moved = monotonic()
        if self.delivery.pipe is not None:
            self.delivery.pipe.write(data)
        elif self.upload is not None and not self.over:
            self.upload.append(data)
            self._pump(self.upload)

    def app_ended(self, trailers: Trailers | None) -> None:
        """Note that the request's body is whole, with these trailers (None for none); in a tunnel, that the app sends
        no more.
        """
        if self.delivery.pipe is not None:
            self.delivery.pipe.app_ended()
            self._end_tunnel()
        elif self.upload is not None:
            self.upload.end(None if trailers is None else self.plan.head.trailers_to_send(trailers))
            if self.journey is not None:
                self.journey.trailers_came(self.upload)
            self._pump(self.upload)

    def app_gone(self) -> None:
        """End the call, because the app has left."""
        if not self.over:
            if self.delivery.pipe is not None:  # one side always leaves a tunnel first: that is no failure
                self._verdict = Outcome.SUCCESS
            now = monotonic()
            self.notify(now, Call.app_gone, (now,))

    def cut(self) -> None:
        """End the call, because the process ends."""
        now = monotonic()
        if not self.delivery.status:
            self.notify(now, Call.cut, (now,))
        if not self.over:  # an answer is under way
            self.delivery.detail = SHUT_DOWN
            self.delivery.break_off(None, grpc=self.plan.is_grpc)
            self.notify(now, Call.cut, (now,))

    def app_broke(self, detail: str) -> None:
        """End the call, because the request's body breaks its framing: with 400 if no answer has begun. `detail`: what
        is wrong with it, for the answer and the log.
        """
        self._end_early(Answer(400, "Bad Request", detail, Outcome.BAD_REQUEST, None, "http_request_error"))

    def app_writable(self) -> None:
        """Resume the delivered answer: the app takes bytes again."""
        for attempt in self.flights.values():
            if attempt.state is DELIVERING and attempt.stream is not None:
                attempt.stream.resume()

    # -- from attempts --------------------------------------------------------------------------------------------

    def forward_success(
        self, attempt: Attempt, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None
    ) -> bool:
        """Forward an answer for which nothing has to be decided, and return True; for any other answer do nothing and
        return False. `data`: the part of the answer's body that came with its head, all of it if `end`, with its
        `trailers`.
        """
        delivery, plan = self.delivery, self.plan
        if self.decided or (end and trailers is None and plan.is_grpc):
            return False  # no success of gRPC ends with its head but a status
        try:
            looked = False
            if plan.looks:
                found = look_at(plan, head, data, end, trailers)
                if found == DECIDE:
                    return False
                looked = found == LOOKED
            if head is not plan.answered and (
                head.status >= 400 or not plan.answers_plainly(head, self.context.via, looked)
            ):
                return False
            if not end and plan.keeps(head):
                return False
            status = None
            if trailers is not None:
                plain_end = plan.ends.get(trailers) or plan.plain_end(head, trailers)
                if plain_end is None:
                    return False
                trailers, status = plain_end
            drop = NO_NAMES if plan.edits is None else plan.edits.from_answer(head)
            delivery.respond(head, drop, plan.answer_lines, data, end, trailers)
            delivery.status, delivery.bytes_out = head.status, len(data)
            now = monotonic()
            self._undecided.answered_well(plan, self.started, now)
            if end:
                attempt.stream = None
                if plan.is_grpc:
                    delivery.grpc_status = grpc_status_of_http(head.status) if status is None else status
                self._succeed(now, looked)
            else:
                attempt.head, attempt.state = head, DELIVERING
                attempt.arrived = now
                self.stream_on(attempt, now)
        except Exception as error:
            self.break_down(error, monotonic())
        return True

    def informed(self, attempt: Attempt, head: ResponseHead) -> None:
        """Forward an interim answer while no final answer has come; an interim answer does not commit the call."""
        self.moved = monotonic()
        if self.journey is not None and self.journey.since and head.get(b"set-cookie") is not None:
            return  # the cookie is of an upstream that the app did not address
        if attempt.state is FLYING and not self.over:
            resent = attempt.number > 1 or (self.decided and self.call.resent)
            self.delivery.inform(attempt, head, self.plan, self.journey, resent=resent)

    def answered(self, attempt: Attempt, reply: Reply, stream: UpstreamStream | None) -> None:
        """Report to the call the head of an answer for which something has to be decided. If the answer that is being
        delivered broke, and this is the answer to the request for the rest, continue the delivery instead. `stream`:
        the stream that the head came by, which may have ended with it; None if the attempt has none any more.
        """
        if self.delivery.resumer is not None:
            self._take_rest(attempt, attempt.arrived)
            return
        plan = self.plan
        if stream is not None and (attempt.head.login_bound or (not plan.plain and plan.head.login_bound)):
            self.delivery.app.pin(stream, attempt.origin)
        elif reply.status == 421 and stream is not None and not self.delivery.app.has_pinned:
            reply.follows = not stream.is_first
        now = attempt.arrived
        try:
            self.carry_out(self.decider().head(attempt.number, reply, now), now)
        except Exception as error:
            self.break_down(error, now)

    def peeked(self, attempt: Attempt, body: bytes) -> None:
        """Report to the call that the part of an answer's body that was to be examined has come, or all of it."""
        now = monotonic()
        try:
            self.carry_out(self.decider().peeked(attempt.number, body, now), now)
        except Exception as error:
            self.break_down(error, now)

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """Report to the call that an attempt ended without a whole answer. If its answer is being delivered, ask for
        the rest, or break it off if that is impossible.
        """
        now, call = monotonic(), self.decider()
        if attempt.state is DELIVERING:
            if self.plan.policy.resume is not None and self._goes_on(attempt, fault, now):
                return
            self.delivery.break_off(fault, grpc=self.plan.is_grpc)
        else:
            self.flights.pop(attempt.number, None)
            self.sender.avoid(attempt, not fault.reused)
            attempt.drop()
            if self.delivery.resumer is not None:
                self.delivery.resumer.is_sent = False
                self.context.observer.resumed(self.plan.policy, "broke", 0)
        if fault.error == faults.PROHIBITED:
            self.notify(now, Call.denied, (attempt.number, fault.detail, now), call)
        elif fault.error == faults.NO_ROOM:
            self.notify(now, Call.no_room, (attempt.number, fault.detail, now), call)
        else:
            self.notify(now, Call.failed, (attempt.number, fault, now), call)

    def forward(self, attempt: Attempt, data: bytes) -> None:
        """Forward more of the delivered answer."""
        if self.delivery.resumer is None:
            self.delivery.forward(attempt, data, self.plan.policy)
            return
        rest = self.delivery.resumer.take(data, self.moved)
        if rest:
            self.delivery.forward(attempt, rest, self.plan.policy)
        elif rest is None:  # more than there may be
            attempt.drop()
            self.delivery.break_off(NOT_THE_REST, grpc=False)
            self.notify(self.moved, Call.failed, (attempt.number, NOT_THE_REST, self.moved), self.call)

    def _goes_on(self, attempt: Attempt, fault: Fault, now: float) -> bool:
        """Ask for the rest of the answer that was being delivered and broke by `fault`, and return True; return False
        and do nothing if the answer can't be resumed.
        """
        broken = BrokenAnswer(self.plan, self.sender, self.delivery, self.call)
        try:
            actions = broken.go_on(attempt, fault, self.moved, now)
            if actions is None:
                return False
            deadline = self.call.so_far.deadline
            self.due_by(NEVER if deadline is None else deadline)
            self.carry_out(actions, now)
        except Exception as error:
            self.break_down(error, now)
        return True

    def _take_rest(self, attempt: Attempt, now: float) -> None:
        """Continue the delivered answer, which broke, if the head that came begins its rest; else break it off."""
        broken = BrokenAnswer(self.plan, self.sender, self.delivery, self.call)
        try:
            accepted, actions = broken.take_rest(attempt, now)
            self.carry_out(actions, now)
            if not accepted:
                return
            attempt.state = DELIVERING
            data = attempt.take()
            if data:
                self.forward(attempt, data)
            if self.over:
                return
            if attempt.ended:
                self.answer_ended(attempt)
            else:
                self.stream_on(attempt, now)
        except Exception as error:
            self.break_down(error, now)

    def forward_chunks(self, attempt: Attempt, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        """Forward more of the delivered answer, in chunks as they came. `size`: the bytes in them without the framing.
        `owed`: the bytes that are missing of the last chunk, 0 if it is whole. `payload`: the bytes without the
        framing, if the attempt's `watch` reads them, else None.
        """
        self.delivery.forward_chunks(attempt, chunks, size, owed)
        if payload:
            self.delivery.read_along(attempt, payload, self.plan.policy)

    def answer_ended(self, attempt: Attempt) -> None:
        """End the delivered answer, which is whole; in a tunnel, end the direction to the app."""
        delivery, trailers = self.delivery, attempt.trailers
        if delivery.pipe is not None:
            delivery.pipe.upstream_ended()
            self._end_tunnel()
            return
        attempt.stream = None
        if delivery.resumer is not None:
            if not delivery.resumer.is_whole:
                self.failed(attempt, NOT_THE_REST)
                return
            self.context.observer.resumed(self.plan.policy, "done", delivery.resumer.progress)
            delivery.resumer = None
        if attempt.watch is not None and attempt.watch.unfinished:
            delivery.end_unfinished(attempt, self.plan.policy)
            now = monotonic()
            self.notify(now, Call.failed, (attempt.number, UNFINISHED, now), self.call)
            return
        delivery.app.finish(trailers)
        if self.plan.is_grpc:
            delivery.note_grpc_status(attempt.head, trailers)
        now = monotonic()
        if not self.decided and (trailers is None or is_plain_end(self.plan.policy.classify, trailers)):
            attempt.state, attempt.ended, attempt.trailers = FLYING, False, None  # as the next call finds it
            self._succeed(now)
        else:
            self.report_ended(attempt.number, now, trailers)

    def upstream_writable(self, attempt: Attempt) -> None:
        """Send more to an attempt's stream, which takes bytes again."""
        self.moved = monotonic()
        if self.delivery.pipe is not None:
            self.delivery.app.resume()
        elif self.upload is not None:
            self._pump(self.upload)

    def begun(self, attempt: Attempt) -> None:
        """Note that the proxy has begun to send an attempt's request, and free bytes of the request's body that are no
        longer needed. If the body has outgrown its buffer, that is put off until all attempts that are sent at this
        moment (hedges) have begun, since each of them sends the body from its beginning.
        """
        upload = self.upload
        self._note_sent(attempt)
        if upload is not None:
            if upload.overfull and max(self.flights, default=0) < self.call.so_far.attempts:
                self.context.loop.call_soon(self._settle, upload)
            else:
                self._settle(upload)

    # -- actions --------------------------------------------------------------------------------------------------

    def notify(
        self, now: float, event: Callable[..., Actions], facts: tuple[Any, ...], call: Call | None = None
    ) -> None:
        """Report a rare event with its arguments `facts` to the call (to `call`, if given, which may be the one before
        the call went on at another upstream), and carry out the actions that it returns. A defect ends the call, and
        never hangs it. Frequent events are reported in the same way without this method, which costs a tuple and a call
        through the interpreter.
        """
        try:
            self.carry_out(event(self.decider() if call is None else call, *facts), now)
        except Exception as error:
            self.break_down(error, now)

    def report_ended(self, attempt: int, now: float, trailers: Trailers | None) -> None:
        """Report to the call that the delivered answer, that of the attempt with the number `attempt`, has ended well,
        with these trailers (None for none), and carry out the call's actions.
        """
        try:
            self.carry_out(self.decider().ended(attempt, now, trailers), now)
        except Exception as error:
            self.break_down(error, now)

    def carry_out(self, actions: Actions, now: float) -> None:
        """Carry out the call's actions, in order."""
        for action in actions:
            if type(action) is Launch:
                _launch(self, action, now)
            elif type(action) is Deliver:
                _deliver(self, action, now)
            elif type(action) is Finish:
                self.finish(action.outcome, now)
            else:
                _CARRIED_OUT[type(action)](self, action, now)

    def stream_on(self, attempt: Attempt, now: float) -> None:
        """Begin to forward this attempt's answer to the app as its bytes come."""
        plan, app, stream = self.plan, self.delivery.app, attempt.stream
        if plan.policy.timeouts.idle is not None:
            self.moved = now
            self.due_by(now + plan.policy.timeouts.idle)
        if plan.policy.resume is not None and plan.policy.resume.stall is not None:
            self.due_by(now + plan.policy.resume.stall)
        if stream is None:
            return
        if app.blocked:
            stream.pause()
        else:
            stream.resume()
        if attempt.head.status == 101 or plan.head.method == "CONNECT":
            self.delivery.open_tunnel(stream)
            return
        direct, connection = self.delivery.direct, stream if isinstance(stream, Connection) else None
        if direct is None or connection is None or direct.chunks is None or self.delivery.resumer is not None:
            return
        connection.pass_chunks_on(attempt.watch is not None)

    def _end_tunnel(self) -> None:
        """End the call if both directions of its tunnel are closed."""
        pipe = self.delivery.pipe
        if pipe is not None and pipe.is_over:
            now = monotonic()
            for number in self.flights:
                self.report_ended(number, now, None)
                return

    # -- the end --------------------------------------------------------------------------------------------------

    def _succeed(self, now: float, looked: bool = False) -> None:
        """End a call for which nothing had to be decided: report it, give the app's stream back. `looked`: whether its
        success was judged by the answer's body too.
        """
        delivery, watch = self.delivery, self.context.watch
        self.over = True
        if watch.alarms:
            watch.remove(self)
        self._undecided.succeeded(self.plan, delivery, self.started, now, looked)
        delivery.done()

    def finish(self, outcome: Outcome, now: float) -> None:
        """End the call: release everything, report it, give the app's stream back."""
        context, delivery, call, upload = self.context, self.delivery, self.call, self.upload
        so_far = call.so_far
        self.over = True
        outcome = self._verdict or outcome
        if context.watch.alarms:
            context.watch.remove(self)
        if self._alarm is not None:
            if self._alarm.at != NEVER:
                self._alarm.stop()
            self._alarm = None  # breaks a reference cycle
        if delivery.resumer is not None:
            if outcome is not Outcome.CLIENT_GONE:
                context.observer.resumed(self.plan.policy, "broke" if delivery.resumer.is_sent else "refused", 0)
                delivery.break_off(None, grpc=False)
            delivery.resumer = None
        pipe = delivery.pipe
        for attempt in self.flights.values():
            if pipe is not None and pipe.is_over and attempt.stream is not None:
                attempt.stream.close()  # what was written goes out yet
                attempt.stream = None
            if attempt.stream is not None or attempt.task is not None:
                attempt.drop()
        if self.plan.policy.tokens is not None:
            settle_price(call, self.flights, outcome, now)
        given_up = False
        if outcome is not _SUCCESS:
            no_place = outcome is _OVERLOADED and so_far.found_no_place
            given_up = gave_up(self.plan.policy, outcome, so_far.attempts, no_place)
        if self.journey is not None:
            self.journey.close()
            self.plan = self.journey.first  # the call is reported as it came, whichever upstream it ended at
        if not so_far.attempts and so_far.held_by and not delivery.detail:
            delivery.detail = f"{GATES[so_far.held_by]} held it"
        record = report_of_decided(self.plan, delivery, so_far, outcome, self.started, now)
        record.bytes_in = (0 if upload is None else upload.size) + (0 if pipe is None else pipe.bytes_in)
        record.endpoint = self.sender.endpoint
        if given_up or context.app_repeats.given_up:
            body: Iterable[bytes] | None = () if upload is None else upload.replay.whole()
            look_for_repeat(delivery, self.plan, record, body, given_up, self.plan.request.user_agent or None)
        if upload is not None:
            upload.replay.close()
        self.sender.call_ended(record)
        context.observer.call_ended(record)
        self.flights.clear()
        self._undecided.release()
        delivery.done()

    def _end_early(self, answer: Answer) -> None:
        """End the call for a fault of the app. The app gets `answer`, if it has got no answer yet."""
        if self.over:
            return
        now = monotonic()
        self._verdict = answer.outcome
        if self.delivery.status:
            self.delivery.app.reset(None)
        else:
            self.delivery.answer(answer, self.call.so_far, self.journey)
        self.notify(now, Call.app_gone, (now,))

    def break_down(self, error: Exception, now: float) -> None:
        """End the call after a defect of the proxy: log the defect, and answer that the call has failed."""
        self.context.loop.call_exception_handler({"message": "a call broke down", "exception": error})
        if self.over:
            return
        self.delivery.break_down(self.plan.policy.upstream, grpc=self.plan.request.is_grpc)
        with contextlib.suppress(Exception):
            self.decider().app_gone(now)  # gives back what it holds; its actions are done below
        if self.decided:
            self.finish(Outcome.NOT_RETRYABLE, now)
        else:  # the exchange may be damaged, so it serves no other call
            self.over = self.decided = True
            self.delivery.app.done()

    # -- the request's body ---------------------------------------------------------------------------------------

    def _pump(self, upload: Upload) -> None:
        """Write the bytes of the request's body that have come so far to the streams of all attempts in flight. A call
        whose price depends on the body begins here, as soon as the body is whole, or no more of it is kept.
        """
        if self.decided and type(self.call.so_far.state) is New and not awaits_body(self.plan, upload):
            now = monotonic()
            self.notify(now, begin, (self.plan, self._scope, body_of(upload, self.journey), upload, now))
            if not self.over and self.call.so_far.deadline is not None:
                self.due_by(self.call.so_far.deadline)
        for attempt in list(self.flights.values()):
            attempt.pump()
            self._note_sent(attempt)
        self._settle(upload)

    def _settle(self, upload: Upload) -> None:
        """Read more of the request's body from the app, or pause the app if sending does not keep up and the buffer is
        full.
        """
        if upload.overfull:
            for attempt in self.flights.values():
                if attempt.stream is not None:
                    self._lose(upload)
                    break
        if not self.over:
            upload.settle(self.flights)

    def _lose(self, upload: Upload) -> None:
        """Stop keeping the request's body for further attempts, since it has outgrown its buffer: only the attempts in
        flight still get it.
        """
        if not upload.lose():
            return
        now, idle = monotonic(), self.plan.policy.timeouts.idle
        furthest = max(self.flights.values(), key=lambda each: (each.sent, -each.number), default=None)
        self.notify(now, Call.replay_lost, (now, 0 if furthest is None else furthest.number))
        if not self.over and idle is not None:
            self.due_by(now + idle)

    def _note_sent(self, attempt: Attempt) -> None:
        """Start the timeouts `attempt` and `first_byte`, if this attempt has sent the last byte of its request."""
        sent_at = attempt.sent_at
        if sent_at is None:
            return
        timeouts = self.plan.policy.timeouts
        if timeouts.attempt is not None:
            self.due_by(sent_at + timeouts.attempt)
        if timeouts.first_byte is not None:
            call, replay = self.call, body_of(self.upload, self.journey)
            call.request_sent(sent_at, None if replay is None else replay.whole())
            if call.first_byte is not None:
                self.due_by(sent_at + call.first_byte)

    # -- what is waited for ---------------------------------------------------------------------------------------

    def due_by(self, at: float) -> None:
        """Have the watch check the call's deadlines and timeouts no later than at time `at`."""
        if at < self.due:
            self.due = at
            self.context.watch.sooner(self)

    def wake_at(self, at: float) -> None:
        """Set the call's one alarm to time `at`."""
        if self.over:
            return
        if self._alarm is None:
            self._alarm = Alarm(self.context.loop, self._ring, at)
        else:
            self._alarm.set(at)

    def _ring(self, now: float) -> None:
        try:
            self.carry_out(self.decider().woke(now), now)
        except Exception as error:
            self.break_down(error, now)

    def attend(self, now: float) -> float:
        """Handle deadlines and timeouts; return when the next one is due. A defect ends the call, and never hangs
        it.
        """
        try:
            call = self.decider()
            if call.so_far.deadline is not None and now >= call.so_far.deadline:
                self._ring(now)
            for attempt in list(self.flights.values()):
                attempt.tire(now)
                fault = _timeouts_of(self).fault_of(attempt, now)
                if fault is not None:
                    self.failed(attempt, fault)
            timeouts = _timeouts_of(self)
            if not self.over and now >= timeouts.silence_due:
                broken = timeouts.standing_still()
                if broken is None:
                    self._end_early(_NO_BODY)
                elif not broken[0].stop_keeping():  # silence is no failure of a kept answer
                    self.failed(*broken)
                self.moved = now  # what is begun in its place has its own time
            return NEVER if self.over else _timeouts_of(self).next_due(now)
        except Exception as error:
            self.break_down(error, now)
            return NEVER


def _timeouts_of(exchange: Exchange) -> CallTimeouts:
    plan, delivery = exchange.plan, exchange.delivery
    return CallTimeouts(plan, exchange.call, exchange.flights, exchange.upload, delivery, exchange.moved)


def _send_dialled(exchange: Exchange, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
    """Send the request of the attempt of a call that began without a `Call`, on a stream that was opened for it."""
    if exchange.decided:  # a timeout was checked meanwhile
        exchange.sender.send(attempt, stream, now)
    elif not stream.is_open:
        exchange.failed(attempt, faults.closed(sent=False, answered=False, reused=False))
    else:
        exchange.moved = now
        exchange._undecided.send_on(exchange.plan, stream, now)


# -- how actions are carried out ----------------------------------------------------------------------------------


def _launch(exchange: Exchange, action: Launch, now: float) -> None:
    """Send the attempt that the action describes."""
    attempt = exchange.sender.launch(action, now)
    if attempt.task is None:
        exchange.begun(attempt)
    elif exchange.upload is not None:
        exchange.upload.settle(exchange.flights)


def _deliver(exchange: Exchange, action: Deliver, now: float) -> None:
    """Begin to forward the answer of the attempt that the action names to the app."""
    delivery, call, plan = exchange.delivery, exchange.call, exchange.plan
    attempt, outcome = exchange.flights[action.attempt], action.outcome
    attempt.state = DELIVERING
    if plan.is_grpc and delivery.lacks_grpc_status(attempt.head, plan, call.so_far, outcome):
        delivery.give_up(attempt, plan, call.so_far, exchange.journey, outcome)
        attempt.drop()
        exchange.report_ended(attempt.number, now, None)
        return
    ended, trailers = attempt.ended, attempt.trailers
    delivery.deliver(attempt, plan, call.so_far, exchange.journey, outcome, now)
    if ended and attempt.watch is not None and attempt.watch.unfinished:
        delivery.end_unfinished(attempt, plan.policy)
        exchange.notify(now, Call.failed, (attempt.number, UNFINISHED, now), call)
    elif ended:
        exchange.report_ended(attempt.number, now, trailers)
    elif attempt.fault is not None:
        delivery.break_off(attempt.fault, grpc=plan.is_grpc)
        exchange.notify(now, Call.failed, (attempt.number, attempt.fault, now), call)
    else:
        exchange.stream_on(attempt, now)


def _hold(exchange: Exchange, action: Hold, now: float) -> None:
    """Keep the answer of the attempt that the action names, up to HELD bytes of its body, while the call waits for its
    next attempt.
    """
    attempt = exchange.flights[action.attempt]
    attempt.state = HOLDING
    if attempt.kept_size >= HELD and attempt.stream is not None:
        attempt.stream.pause()
    exchange.sender.avoid(attempt, True)


def _drop(exchange: Exchange, action: Discard | Cancel, now: float) -> None:
    """End the attempt that the action names, whether its answer is held or has not come."""
    attempt = exchange.flights.pop(action.attempt, None)
    if attempt is not None:
        attempt.drop()


def _peek(exchange: Exchange, action: Peek, now: float) -> None:
    """Keep the answer of the attempt that the action names until the part of its body that the call has to examine has
    come.
    """
    attempt, idle, body_wait = exchange.flights[action.attempt], exchange.plan.policy.timeouts.idle, action.body_wait
    if body_wait is not None and idle is not None:
        exchange.due_by(exchange.moved + idle)
    if body_wait is not None:
        body_wait.charge(exchange.context.store)
        exchange.due_by(body_wait.goes_on)
    attempt.peek(action.limit, body_wait)


def _ask(exchange: Exchange, action: Ask, now: float) -> None:
    """Ask the bucket to grant the tokens that a retry costs. The call is notified of the bucket's answer, at once or
    later.
    """
    bucket = exchange.call.so_far.next_attempt.bucket
    assert bucket is not None  # only a call with a bucket asks
    bucket.ask(action.price, action.due, now, partial(_bucket_answered, exchange, exchange.call))


def _bucket_answered(exchange: Exchange, call: Call, price: float, granted: bool) -> None:
    """Report to the call whether the bucket granted the price of a retry; if the call is over by then, give the tokens
    of a grant back.
    """
    now = monotonic()
    exchange.notify(now, Call.granted if granted else Call.refused, (price, now), call)


def _answer(exchange: Exchange, action: Answer, now: float) -> None:
    """Write the proxy's own answer; nothing if the app has already got the beginning of an upstream's answer that broke
    and was to be resumed.
    """
    if exchange.delivery.resumer is not None:
        return
    exchange.delivery.answer(action, exchange.call.so_far, exchange.journey)


def _wake_at(exchange: Exchange, action: WakeAt, now: float) -> None:
    """Set the call's one alarm to the time that the action names. Unless an attempt is in flight, the call now only
    waits, and less of its request's body may be kept: pause the app if that much has come.
    """
    exchange.wake_at(action.at)
    if exchange.upload is not None and not exchange.over:
        exchange.upload.settle(exchange.flights)


def _fall_back(exchange: Exchange, action: FallBack, now: float) -> None:
    """Go on at the upstream for which the request was prepared last (`Journey.prepare`): a new `Call` continues the
    call there.
    """
    journey, before = exchange.journey, exchange.call
    assert journey is not None  # the journey prepared this upstream
    if exchange._alarm is not None:
        exchange._alarm.stop()
    plan = exchange.plan = journey.go_on(before.so_far.attempts, exchange.upload)
    exchange._scope = exchange.context.registry.scope(plan.policy, plan.request, now)
    call = exchange._decide()
    if plan.policy.tokens is not None:
        expect_price(call, plan, exchange._scope, body_of(exchange.upload, exchange.journey), exchange.upload, now)
    actions = call.go_on(before, now)
    exchange.due_by(NEVER if call.so_far.deadline is None else call.so_far.deadline)
    if plan.policy.timeouts.idle is not None:
        exchange.moved = now
        exchange.due_by(now + plan.policy.timeouts.idle)
    exchange.carry_out(actions, now)


#: How each action that `Exchange.carry_out` does not name is carried out, by its type.
_CARRIED_OUT: dict[type[Action], Callable[[Exchange, Any, float], None]] = {
    WakeAt: _wake_at,
    Hold: _hold,
    Discard: _drop,
    Cancel: _drop,
    Peek: _peek,
    Ask: _ask,
    FallBack: _fall_back,
    Answer: _answer,
}
