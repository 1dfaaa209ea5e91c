"""Drives one call: carries out with sockets what `proxy.retry.call` decides.

Theory of operation. Whatever happens (the app's bytes, an attempt's answer, an alarm) is told to the call with the
time, and the actions that it answers with are carried out in order. Nothing is decided here. The exchange owns what a
call needs while it lasts: its attempts, the body kept for another one, one alarm; `Finish` releases all of it, tells
the observers (the exchange is itself the event, see `proxy.observe.events`), and gives the app's stream back.

Law: nothing leads from an action that ends the call to anything else of it, so an action that may bring the next
event about at once (Peek, Deliver, Ask) is always the last of its tuple.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ClassVar

from proxy.forward.answers import own_answer
from proxy.forward.attempt import DELIVERING, FLYING, Attempt
from proxy.forward.headers import answer_fields, gave_up, handed_on, via_line
from proxy.forward.patience import Patience
from proxy.retry.actions import Actions, Answer, Ask, Cancel, Deliver, Discard, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.call import Call
from proxy.retry.facts import Fault, Outcome, Reply
from proxy.retry.hedging import make_call
from proxy.retry.reasons import GATES, SHUT_DOWN
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.http1 import Connection
from proxy.transport.origins import Origin
from proxy.wire.head import ResponseHead

_NO_NAMES: frozenset[bytes] = frozenset()


class Exchange(Patience):
    """One call of an app, from its request's head to the last byte of its answer.

    What it knows is in `forward.life`, what its attempts send in `forward.sending`, how the request's body goes in
    `forward.upload`, what it waits for in `forward.patience`.
    """

    _attempt: ClassVar[type[Attempt]] = Attempt

    # -- from the app ---------------------------------------------------------------------------------------------

    def start(self, now: float, body: bytes = b"", done: bool = True, trailers: bytes = b"") -> None:
        """The request's head is whole; `body` came with it, all of it if `done`."""
        means, policy = self.means, self.policy
        self.started = self.moved = now
        if body or not done or self.head.chunked:
            self._receive(body, done, trailers)
        try:
            scope = means.commons.scope(policy, self.request, now)
            call = self.call = make_call(self.request, policy, scope, means.env, self.wake_at)
            actions = call.start(now)
            if call.deadline is not None:
                self.due = call.deadline
            if not done and policy.timeouts.idle is not None:
                self.due = min(self.due, now + policy.timeouts.idle)
            if not self.app.watched:
                means.watch.enter(self.app, now)
            if self.due <= means.watch.next:
                means.watch.sooner(self)
            self.carry_out(actions, now)
        except Exception as error:
            self.break_down(error, now)

    def take_over(self, since: float, connection: Connection, origin: Origin, body: bytes) -> Attempt:
        """Go on with a call that went without being decided on (`forward.swift`): attempt 1 flies since then."""
        means = self.means
        scope = means.commons.scope(self.policy, self.request, since)
        call = make_call(self.request, self.policy, scope, means.env)
        call.flown(since)
        attempt = self.carry_on(call, 1, origin, since)
        attempt.stream = connection
        if body:
            self._receive(body, True, b"")
            attempt.cursor = len(body)
        return attempt

    def carry_on(self, call: Call, number: int, origin: Origin, sent_at: float) -> Attempt:
        """Go on with a call that something else drove so far; its latest attempt was sent at this time."""
        self.call = call
        self.started, self.moved = call.started, sent_at
        call.alarm_by(self.wake_at)
        attempt = self.flights[number] = self._attempt(self, number, origin)
        self.endpoint = origin.label
        attempt.sent_at = sent_at
        if call.deadline is not None:
            self.due_by(call.deadline)
        if self.attempt_timeout is not None:
            self.due_by(sent_at + self.attempt_timeout)
        return attempt

    def take_over_answer(self, attempt: Attempt, head: ResponseHead, size: int, moved: float) -> None:
        """The same of a call whose answer, a success, is being handed on already: `size` bytes of its body were."""
        self.call.head(1, Reply(head.status, head), moved)  # it says to deliver, and that is being done
        attempt.head = head
        attempt.arrived = moved
        attempt.state = DELIVERING
        self.status = head.status
        self.bytes_out = size
        self.moved = moved
        if self.policy.timeouts.idle is not None:
            self.due_by(moved + self.policy.timeouts.idle)

    def app_gone(self) -> None:
        """The app went away."""
        if not self.over:
            if self.tunnelling:  # one side always leaves a tunnel first: that is no failure
                self._verdict = Outcome.SUCCESS
            now = monotonic()
            self.tell(now, self.call.app_gone, now)

    def cut(self) -> None:
        """The process ends, and waits for this call no longer."""
        now = monotonic()
        if not self.status:
            self.tell(now, self.call.cut, now)
        if not self.over:  # an answer is under way
            self.detail = SHUT_DOWN
            self.app.reset()
            self.tell(now, self.call.cut, now)

    def app_broke(self, detail: str) -> None:
        """The request's body breaks its framing: 400 while nothing of an answer has gone, else the end of it."""
        self._end_early(400, "Bad Request", detail, Outcome.BAD_REQUEST, "http_request_error")

    def app_writable(self) -> None:
        """The app takes bytes again."""
        for attempt in self.flights.values():
            if attempt.state is DELIVERING and attempt.stream is not None:
                attempt.stream.resume()

    # -- from attempts --------------------------------------------------------------------------------------------

    def informed(self, attempt: Attempt, head: ResponseHead) -> None:
        """An interim answer: passed on while no final one is (it commits nothing)."""
        self.moved = monotonic()
        if attempt.state is FLYING and not self.over:
            resent = attempt.number > 1 or self.call.resent
            self.app.inform(head, via_line(self.means.via, head.minor), resent=resent)

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt ended without a whole answer."""
        now = monotonic()
        if attempt.state is DELIVERING:
            self.app.reset()
        else:
            self._part_with(attempt)
            if not fault.reused:
                self._avoid(attempt.origin)
        if fault.error == faults.PROHIBITED:
            self.tell(now, self.call.denied, attempt.number, fault.detail, now)
        else:
            self.tell(now, self.call.failed, attempt.number, fault, now)

    def hand_on(self, attempt: Attempt, data: bytes) -> None:
        """More of the answer that the app is given."""
        self.bytes_out += len(data)
        self.app.write(data)
        if self.app.blocked and attempt.stream is not None:
            attempt.stream.pause()

    def answer_ended(self, attempt: Attempt) -> None:
        """The answer that the app is given is whole."""
        self.app.finish(attempt.trailers)
        now = monotonic()
        self.tell(now, self.call.ended, attempt.number, now, attempt.trailer_fields())

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
                self._launch(action.attempt, action.fresh, now)  # type: ignore[union-attr]
            elif kind is Deliver:
                self._deliver(self.flights[action.attempt], action.outcome, now)  # type: ignore[union-attr]
            elif kind is Finish:
                self._finish(action.outcome, now)  # type: ignore[union-attr]
            else:
                self._run_rare(action, now)  # type: ignore[arg-type]

    def _run_rare(self, action: WakeAt | Ask | Peek | Hold | Discard | Cancel | Answer, now: float) -> None:
        match action:
            case WakeAt(at):
                self.wake_at(at)
            case Ask(price):
                bucket = self.call.scope.bucket
                assert bucket is not None  # it was this one that had to be asked
                bucket.ask(price, now, self._bucket_answered)
            case Peek(number, limit):
                self.flights[number].peek(limit)
            case Hold(number):
                self.flights[number].hold()
                self._avoid(self.flights[number].origin)
            case Discard(number) | Cancel(number):
                if number in self.flights:
                    self._part_with(self.flights[number])
            case Answer():
                self._answer(action)

    def _bucket_answered(self, price: float, granted: bool) -> None:
        """The bucket's word, whenever it comes: a call that is over gives a grant back."""
        now = monotonic()
        self.tell(now, self.call.granted if granted else self.call.refused, price, now)

    def _launch(self, number: int, fresh: bool, now: float) -> None:
        origin = self.destination.only or self.destination.choose(self._avoided(), now)
        attempt = self._attempt(self, number, origin)
        if number > 1 or fresh:
            self._label_records()
            self._label(number, origin)
        self.flights[number] = attempt
        self.endpoint = origin.label
        connection = None if fresh else self._resting(origin, now)
        if connection is None:
            attempt.dial(fresh=fresh)
            self._settle_flow()
        else:
            attempt.begin(connection, now)

    def _resting(self, origin: Origin, now: float) -> Connection | None:
        """A connection that may be used again: this app connection's own (NTLM, Negotiate), or a pooled one."""
        own = self.app.own
        if own is not None and own.get(origin):
            return own[origin].pop()
        return self.means.pool.lease(origin, now, idempotent=self.call.idempotent)

    def _deliver(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        head = attempt.head
        attempt.state = DELIVERING
        self.status = head.status
        call = self.call
        drop, add = handed_on(call, head, self.means.via, outcome=outcome, held=now - attempt.arrived)
        data = attempt.take()
        self.bytes_out += len(data)
        ended = attempt.ended
        self.app.respond(head, drop, add, data, ended, attempt.trailers)
        if ended:
            trailers = attempt.trailer_fields() if attempt.trailers else None
            self.tell(now, call.ended, attempt.number, now, trailers)
        elif attempt.fault is not None:
            self.app.reset()
            self.tell(now, call.failed, attempt.number, attempt.fault, now)
        else:
            self._stream_on(attempt, now)

    def _stream_on(self, attempt: Attempt, now: float) -> None:
        """The answer goes on as it comes."""
        if self.policy.timeouts.idle is not None:
            self.moved = now
            self.due_by(now + self.policy.timeouts.idle)
        if attempt.stream is None:
            return
        if self.app.blocked:
            attempt.stream.pause()
        else:
            attempt.stream.resume()
        if attempt.head.status == 101 or self.head.method == "CONNECT":
            self.tunnelling = True
            self.app.tunnel()

    def _answer(self, action: Answer) -> None:
        """Write the proxy's own answer."""
        grpc = self.request.is_grpc
        attempts = self.call.attempts
        changes = answer_fields(
            self.policy,
            None,
            outcome=action.outcome,
            attempts=attempts,
            grpc=grpc,
            error=action.error,
            detail=action.detail,
        )
        self.detail = action.detail
        self.status, head, body = own_answer(
            action.status,
            action.title,
            action.detail,
            outcome=action.outcome,
            upstream=self.policy.upstream,
            attempts=attempts,
            grpc=grpc,
            changes=changes,
            retry_after=action.retry_after,
        )
        self.bytes_out = len(body)
        self.app.answer(head, body)

    def _finish(self, outcome: Outcome, now: float) -> None:
        """The call is over: release everything, tell the observers, give the app's stream back."""
        self.over = True
        self.outcome = self._verdict or outcome
        self.ended = now
        means = self.means
        if means.watch.has_alarms:
            means.watch.remove(self)
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None  # else they would keep each other
        for attempt in self.flights.values():
            if attempt.stream is not None or attempt.task is not None:
                self._let_go(attempt)
        call = self.call
        self.client = self.app.client
        given_up = gave_up(self.policy, self.outcome)
        if given_up or means.app_repeats:
            self._look_for_a_repeat(given_up, now)
        if self.replay is not None:
            self.replay.close()
        if call.history:
            self._label_records()
        elif not call.attempts and call.held_by and not self.detail:
            self.detail = f"{GATES[call.held_by]} held it"
        self.wall_started = self.started + means.env.wall_offset
        means.observer.call_ended(self)
        self.flights.clear()
        call.forget_alarm()  # else call and exchange would keep each other until the collector comes
        self.app.done()

    def _look_for_a_repeat(self, given_up: bool, now: float) -> None:
        """Whether the app repeats by itself what was given up here, and says nothing of it."""
        body = self.replay.whole() if self.replay is not None else ()
        repeated = self.means.app_repeats.ended(self.client, self.request, body, given_up=given_up, now=now)
        if repeated and not self.call.app_retry:
            self.means.observer.app_repeated(self.policy)

    def _let_go(self, attempt: Attempt) -> None:
        """Of an attempt whose stream is still there when the call ends."""
        if self.tunnelling and attempt.stream is not None and self._half == 3:
            attempt.stream.close()  # what was written goes out yet
            attempt.stream = None
        attempt.drop()

    def break_down(self, error: Exception, now: float) -> None:
        """A defect of the proxy: say so to whoever runs it, and to the app that its call has failed."""
        self.means.loop.call_exception_handler({"message": "a call broke down", "exception": error})
        if self.over:
            return
        if self.status:
            self.app.reset()
        else:
            detail = "the proxy made a mistake; its log says more"
            self.status, head, body = own_answer(
                500, "Internal Server Error", detail, outcome=Outcome.NOT_RETRYABLE, upstream=self.policy.upstream
            )
            self.app.answer(head, body)
            self.detail = detail
        with contextlib.suppress(Exception):
            self.call.app_gone(now)  # gives back what it holds; its actions are done below
        self._finish(Outcome.NOT_RETRYABLE, now)
