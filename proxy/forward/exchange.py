"""The exchange of an app's call: the object that drives the call from its request's head to the last byte of its
answer, by what the app's stream and the attempts report.

Nearly every call takes the same course: nothing holds it, the pool has an idle connection, the answer is a success.
Then there is nothing to decide, and no `Call` is made: the exchange sends the request and forwards the answer, and its
app connection keeps the exchange for the next request. At any other event a `Call` is made (`CallDriver.decider`), as
if it had existed from the start, and the event is passed to it.
"""

from __future__ import annotations

import contextlib
from functools import partial

from proxy.forward.attempt import DELIVERING, FLYING, HOLDING, Attempt
from proxy.forward.call_driver import NEVER, CallDriver
from proxy.forward.call_timeouts import CallTimeouts
from proxy.forward.fallback import body_of
from proxy.forward.request_plan import Plan
from proxy.forward.resume import NOT_THE_REST
from proxy.forward.token_prices import awaits_body, awaits_until, begin
from proxy.forward.upload import Upload
from proxy.forward.whole_look import DECIDE, LOOKED, look_at
from proxy.retry.answers.classification import is_plain_end
from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.call.actions import Actions, Answer
from proxy.retry.call.machine import Call
from proxy.retry.call.reasons import SHUT_DOWN
from proxy.retry.call.states import New
from proxy.retry.facts import Outcome, grpc_status_of_http
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.streams import UpstreamStream
from proxy.wire.fields import NO_NAMES
from proxy.wire.head import ResponseHead, Trailers

#: The answer to an app that stopped sending its request's body.
_NO_BODY = Answer(
    408,
    "Request Timeout",
    "the request's body did not arrive",
    Outcome.CLIENT_GONE,
    None,
    "connection_read_timeout",
)


class Exchange(CallDriver):
    """A call of an app, from its request's head to the last byte of its answer.

    The app connection reports the request to the exchange. The watch, which is the timer of all calls, has the exchange
    check its timeouts (`proxy.forward.timers.Timed`).
    """

    __slots__ = ()

    # -- from the app -------------------------------------------------------------------------------------------------

    def start(
        self, plan: Plan, now: float, body: bytes = b"", done: bool = True, trailers: Trailers | None = None
    ) -> None:
        """Begin the call of a request whose head is whole. `body`: the part of its body that came with the head, all of
        it if `done`, with its `trailers`.
        """
        context, delivery = self.context, self.delivery
        direct = delivery.direct
        self.plan = plan
        self.started = self.moved = now
        self.over = False
        delivery.status = delivery.bytes_out = 0
        delivery.grpc_status = None
        try:
            scope = plan.scope
            if scope is None or scope.epoch != context.registry.epoch:
                scope = plan.scope = context.registry.scope(plan.policy, plan.request, now)
            else:
                scope.marked = True
            first = None
            has_pinned = delivery.app.has_pinned if direct is None else direct.has_pinned
            if plan.plain and done and trailers is None and not has_pinned:
                first = self._undecided.begin(self, plan, scope, body, now)
            if first is None:
                self._start_decided(now, body, done, trailers)
                return
            self.due = now + plan.patience
            if self.due <= context.watch.next_tick:
                context.watch.sooner(self)
            if first.stream is None:
                self._undecided.dial(plan, partial(_send_dialled, self))
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
            self.due = awaits_until(self.plan, now)
        else:
            actions = begin(call, self.plan, self.plan.scope, body_of(self.upload, self.journey), upload, now)
            self.due = NEVER if call.so_far.deadline is None else call.so_far.deadline
        if not done and idle is not None:
            self.due = min(self.due, now + idle)
        if self.due <= self.context.watch.next_tick:
            self.context.watch.sooner(self)
        self.carry_out(actions, now)

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
            self._end_body(self.upload, trailers)

    def app_rest(self, data: bytes, trailers: Trailers | None) -> None:
        """Take the rest of the request's body (b"" if it has come before), which is whole then, with these trailers
        (None for none). This is one write to an attempt's stream; `app_data` and `app_ended` are two.
        """
        upload = self.upload
        if upload is not None and not self.over:
            self.moved = monotonic()
            if data:
                upload.append(data)
            self._end_body(upload, trailers)

    def _end_body(self, upload: Upload, trailers: Trailers | None) -> None:
        """Note that the request's body is whole, and write what is left of it."""
        upload.end(None if trailers is None else self.plan.head.trailers_to_send(trailers))
        if self.journey is not None:
            self.journey.trailers_came(upload)
        self._pump(upload)

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
            sent = any(each.stream is not None or each.sent_on is not None for each in self.flights.values())
            self.notify(now, Call.cut, (now, sent))
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

    # -- from attempts ------------------------------------------------------------------------------------------------

    def forward_success(
        self, attempt: Attempt, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None
    ) -> bool:
        delivery, plan = self.delivery, self.plan
        if plan.is_grpc and end and trailers is None:
            return False  # no success of gRPC ends with its head but a status
        looked, status = False, None
        try:
            if plan.looks:
                found = look_at(plan, head, data, end, trailers)
                if found == DECIDE:
                    return False
                looked = found == LOOKED
            if head is not plan.answered and not plan.answers_plainly(head, self.context.via, looked):
                return False
            if not end and plan.keeps(head):
                return False
            if trailers is not None:
                plain_end = plan.ends.get(trailers) or plan.plain_end(head, trailers)
                if plain_end is None:
                    return False
                trailers, status = plain_end
            drop = NO_NAMES if plan.edits is None or not plan.edits.cuts_answers else plan.edits.from_answer(head)
            direct = delivery.direct
            if direct is not None:
                direct.respond(head, drop, plan.answer_lines, data, end, trailers)
            else:
                delivery.app.respond(head, drop, plan.answer_lines, data, end, trailers)
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
        """Forward an interim answer while no final answer has come; an interim answer does not commit the call. Before
        the rest of an answer that broke it is dropped: the app has begun to read that answer's body.
        """
        self.moved = monotonic()
        if self.journey is not None and self.journey.since and head.get(b"set-cookie") is not None:
            return  # the cookie is of an upstream that the app did not address
        if attempt.state is FLYING and not self.over and not self.delivery.status:
            resent = attempt.number > 1 or (self.decided and self.call.resent)
            self.delivery.inform(attempt, head, self.plan, self.journey, resent=resent)

    def forward(self, attempt: Attempt, data: bytes) -> None:
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

    def forward_chunks(self, attempt: Attempt, chunks: bytes, size: int, owed: int, payload: bytes | None) -> None:
        self.delivery.forward_chunks(attempt, chunks, size, owed)
        if payload:
            self.delivery.read_along(attempt, payload, self.plan.policy)
        elif payload is None and attempt.watch is not None:
            self.delivery.read_chunks(attempt, chunks, size, self.plan.policy)

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
        self.moved = monotonic()
        if self.delivery.pipe is not None:
            self.delivery.app.resume()
        elif self.upload is not None:
            self._pump(self.upload)

    def _pump(self, upload: Upload) -> None:
        """Write the bytes of the request's body that have come so far to the streams of all attempts in flight. A call
        whose price depends on the body begins here, as soon as the body is whole, or no more of it is kept.
        """
        if self.decided and type(self.call.so_far.state) is New and not awaits_body(self.plan, upload):
            self._begin_awaited(upload, monotonic())
        for attempt in list(self.flights.values()):
            if attempt.state is not HOLDING:
                attempt.pump()
                self._note_sent(attempt)
        self._settle(upload)

    def _begin_awaited(self, upload: Upload, now: float) -> None:
        """Begin a call that has waited for its request's body, which its price depends on."""
        facts = (self.plan, self.plan.scope, body_of(upload, self.journey), upload, now, self.started)
        self.notify(now, begin, facts)
        if not self.over and self.call.so_far.deadline is not None:
            self.due_by(self.call.so_far.deadline)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _succeed(self, now: float, looked: bool = False) -> None:
        """End a call for which nothing had to be decided: report it, and give the app's stream back. `looked`: whether
        the answer's body too, and not only its head, was judged to be a success.
        """
        watch, delivery = self.context.watch, self.delivery
        self.over = True
        if watch.alarms:
            watch.remove(self)
        self._undecided.succeeded(self.plan, delivery, self.started, now, looked)
        direct = delivery.direct
        if direct is not None:
            direct.done()
        else:
            delivery.app.done()

    def _end_tunnel(self) -> None:
        """End the call if both directions of its tunnel are closed."""
        pipe = self.delivery.pipe
        if pipe is not None and pipe.is_over:
            now = monotonic()
            for number in self.flights:
                self.report_ended(number, now, None)
                return

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

    def attend(self, now: float) -> float:
        """Handle the deadlines and timeouts that have ended by `now`. Returns the time at which the next one is due. A
        defect in here ends the call, so that the call never hangs.
        """
        try:
            call = self.decider()
            awaited = awaits_until(self.plan, self.started) if type(call.so_far.state) is New else NEVER
            if self.upload is not None and now >= awaited:
                self._begin_awaited(self.upload, now)
            if call.so_far.deadline is not None and now >= call.so_far.deadline:
                self._wake(now)
            for attempt in list(self.flights.values()):
                attempt.tire(now)
                fault = _timeouts_of(self).fault_of(attempt, now)
                if fault is not None:
                    self.failed(attempt, fault)
            timeouts = _timeouts_of(self)
            if not self.over and now >= timeouts.silence_due:
                broken = timeouts.standing_still()
                if timeouts.reads_no_body:
                    pass  # the proxy itself has paused the app
                elif broken is None:
                    self._end_early(_NO_BODY)
                elif not broken[0].stop_keeping():  # silence is no failure of a kept answer
                    self.failed(*broken)
                self.moved = now  # what is begun in its place has its own time
            return NEVER if self.over else min(awaited, _timeouts_of(self).next_due(now))
        except Exception as error:
            self.break_down(error, now)
            return NEVER


def _timeouts_of(exchange: Exchange) -> CallTimeouts:
    plan, delivery = exchange.plan, exchange.delivery
    return CallTimeouts(plan, exchange.call, exchange.flights, exchange.upload, delivery, exchange.moved)


def _send_dialled(exchange: Exchange, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
    """Send the request of a call that began without a `Call` on `stream`, which was opened for it. The call may have
    got a `Call` meanwhile.
    """
    if exchange.decided:  # a timeout was checked meanwhile
        exchange.sender.send(attempt, stream, now)
    elif not stream.is_open:
        exchange.failed(attempt, faults.closed(sent=False, answered=False, reused=False))
    else:
        exchange.moved = now
        exchange._undecided.send_on(exchange.plan, stream, now)
