"""A call as a state machine: events in, actions out.

Theory of operation. A driver reports events to a call, each with the time at which it happened, and the call answers
with actions; it never sleeps, reads a clock, or raises because of what an upstream did. In every state an attempt is in
flight, or an alarm is set, or the call is done:

    New -> [Next] -> Flying -> Delivering -> Done
             ^         |
             +---------+                       another attempt was granted; its answer, if any, is held

An event that a state has no use for came too late, and is answered with no action. The call's flow
(`proxy.retry.flows`: one attempt after another, hedged, or one alone) and its plan (`proxy.retry.plans`) decide what
follows an attempt. What the next attempt costs, and what may hold it, is kept in its `NextAttempt`.
docs/reference/transitions.md shows every move.

If the bucket is kept outside this process and the tokens here can't pay, the bucket is asked (`Ask`), and the attempt
is decided when it is due: it is paid with the price that was granted meanwhile, or with tokens that are here by then,
or it is not made. An attempt that is due before the bucket has answered waits for the answer.

Once an answer is being delivered the call is committed: no move leads back. While an attempt is in flight the driver
watches `deadline` and reports `woke` when it has passed.

A refusal of another attempt (an `Outcome`) ends the call in one of three ways (`end`): the call goes on at another
upstream, the answer that is held goes to the app, or the proxy answers itself. If another upstream takes the call over
(`proxy.retry.fallback`), this `Call` is over, and a `Call` of that upstream goes on with its attempts, its deadline,
and the last answer until the next attempt is sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.retry.actions import Actions, Cancel, Deliver, FallBack, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.admission import Alarm
from proxy.retry.call_history import note_fallback, note_never_sent, revise
from proxy.retry.call_state import CallState
from proxy.retry.classification import MISDIRECTED, NEEDS_BODY, NeedsBody, classify, classify_fault
from proxy.retry.credentials import CallKeys
from proxy.retry.environment import Env
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Fault, Fields, Outcome, Progress, Reply, Request, Verdict
from proxy.retry.fallback import GOES_ON, Elsewhere, Fallbacks
from proxy.retry.feedback import (
    learn,
    report_answer,
    report_failure,
    report_start,
    report_success,
    report_to_endpoint,
    report_trailers,
)
from proxy.retry.first_byte import Look, first_byte_of
from proxy.retry.flows import HEDGED, OBSERVED, PASSIVE, SEQUENTIAL, SequentialFlow
from proxy.retry.next_attempt import NextAttempt
from proxy.retry.plans import EPSILON, NEVER, Next, Sequential, failure_of, first_no, goes_on
from proxy.retry.policy import Fallback, Policy
from proxy.retry.reasons import OUTGREW, SHUT_DOWN, TOO_LATE, own_answer
from proxy.retry.registry import ScopeState
from proxy.retry.request_hints import NO_HINTS, read_request_hints
from proxy.retry.states import Delivering, Done, Flight, Flying, New

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS, _SUCCESS_CLASS = Outcome.SUCCESS, Class.SUCCESS

#: Contract, section 4: bodies are peeked at up to 64 KiB.
PEEK_LIMIT = 64 * 1024

#: The state of the transparent retry (contract, "Safety", 1): it may be made; it may, except after a refused stream,
#: since an attempt may have been processed; it has been made.
_AVAILABLE, _PROCESSED, _USED = 0, 1, 2

_NEW = New()
_DONE = {outcome: Done(outcome) for outcome in Outcome}
_FINISH: dict[Outcome, Actions] = {outcome: (Finish(outcome),) for outcome in Outcome}


class Call(CallState):
    """The state machine of one call of an app. `alarm` moves the call's alarm when a gate changes the time that it
    named; drivers pass it, tests without gates need none. `elsewhere` says of an entry of the fallback list whether its
    upstream can take the call over; without `elsewhere` none can.
    """

    __slots__ = ("_first_byte", "_flow", "_transparent")

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Alarm | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.request = request
        self.policy = policy
        self.env = env
        self.state = _NEW
        self.attempts = self.earlier = 0
        self.deadline = None
        self.committed = False
        self.hints = NO_HINTS
        self.failure = None
        self.reply = None
        self.fallbacks = None
        self.delivered = None
        self.plan = None
        self.history = []
        mode = policy.mode
        bucket = scope.bucket if mode == "enforce" else scope.shadow if mode == "observe" else None
        self.upcoming = NextAttempt(request, policy, scope, env, alarm, bucket)
        self._first_byte: float | None = None  # seconds; None until the request is sent, infinite if there is no bound
        self._transparent = _AVAILABLE
        if mode == "enforce":
            if elsewhere is not None:
                self.fallbacks = Fallbacks(policy, request, elsewhere)
            self._flow: SequentialFlow = HEDGED if _may_hedge(self) else SEQUENTIAL
        else:
            self._flow = OBSERVED if mode == "observe" else PASSIVE

    @property
    def hedged(self) -> bool:
        """Whether several attempts may be in flight (a call that is not safe to hedge is not hedged)."""
        return self._flow is HEDGED

    @property
    def resent(self) -> bool:
        """Whether the one transparent retry has been made."""
        return self._transparent == _USED

    @property
    def first_byte(self) -> float | None:
        """Seconds from the request's last byte within which an answer's first byte that counts must come; None if there
        is no bound, or the whole request has not been sent yet.
        """
        return None if self._first_byte == NEVER else self._first_byte

    @property
    def needs_no_buffer(self) -> bool:
        """Whether all attempts share the request's stream, so that a body of any size loses nothing."""
        return self._flow.needs_no_buffer(self)

    # -- events -----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> Actions:
        """Begin the call, whose request's head is complete."""
        policy, upcoming = self.policy, self.upcoming
        total, scope = policy.timeouts.total, upcoming.scope
        if total is not None and (self.deadline is None or now + total < self.deadline):
            self.deadline = now + total
        if not self.request.plain or policy.idempotency_key.header != "Idempotency-Key":
            refusal = self._read_hints(now)
            if refusal:
                return refusal
        if upcoming.bucket is not None:
            report_start(self.hints, upcoming, now)
        if scope.keys is not None:
            upcoming.carry(CallKeys(scope.keys, now))
        if policy.mode != "enforce":
            return self.launch(now)
        if upcoming.scope.hedges is not None:
            upcoming.scope.hedges.began(now)
        if policy.strategy.custom is None and upcoming.picker is None and upcoming.scope.admits(now):
            return self.launch(now)
        upcoming.cools = self._flow.cools(self)
        if policy.strategy.custom is not None:
            return self._flow.start_plugin(self, now)
        return self.admit(Next(now), now)

    def go_on(self, before: Call, now: float) -> Actions:
        """Begin, in place of `start`, a call that goes on from another upstream (`FallBack`): the numbers of attempts
        and the deadline continue, and the last answer is kept until the first attempt here is sent.
        """
        self.attempts = self.earlier = before.attempts
        self.deadline, self.failure, self.reply = before.deadline, before.failure, before.reply
        self.history, self.fallbacks = before.history, before.fallbacks
        return self.start(now)

    def flown(self, since: float) -> None:
        """Begin, in place of `start`, a call whose first attempt the driver sent before it made this `Call`: attempt 1
        has been in flight since `since`.
        """
        if self.policy.timeouts.total is not None:
            self.deadline = since + self.policy.timeouts.total
        if self.request.timed:
            self._read_hints(since)  # a `timed` request has only a deadline among its hints
        self.attempts = 1
        flight, keys = Flight(1, since), self.upcoming.keys
        if keys is not None:
            flight.key, flight.key_why = keys.key, keys.why
        self.state = Flying({1: flight})

    def sent(self, attempt: int, endpoint: str, protocol: str, now: float) -> Actions:
        """Note that an attempt is being sent to the endpoint labelled `endpoint`, by this protocol ("" until there is a
        connection).
        """
        flight = self.in_flight(attempt)
        if flight is not None:
            flight.sent_to = endpoint
            if protocol:
                flight.protocol = protocol
        return ()

    def request_sent(self, now: float, body: Iterable[bytes] | None = None) -> Actions:
        """Note that an attempt has sent the whole request. `body`: the request's body, None if it is empty or is not
        kept.
        """
        if type(self.state) is Flying and self._first_byte is None:
            within = first_byte_of(self.policy, self.request, body)
            self._first_byte = NEVER if within is None else within
        return ()

    def head(self, attempt: int, reply: Reply, now: float) -> Actions:
        """Judge an attempt by the final head of its answer, which has come (the driver passes 1xx on by itself)."""
        flight = self.in_flight(attempt)
        if flight is None or flight.reply is not None:
            return ()
        verdict = classify(self.policy.classify, self.request, reply, None)
        bounded = self._first_byte is not None and self.first_byte is not None
        if reply.status < 400 and (verdict is NEEDS_BODY or bounded):
            return self._begun(flight, reply, verdict, now)
        if verdict is NEEDS_BODY:
            flight.reply = reply
            if self.upcoming.admission is not None:
                self.upcoming.landed(flight, now, None)
            return (Peek(attempt, PEEK_LIMIT),)
        return self._answered(flight, reply, verdict, now)

    def peeked(self, attempt: int, body: bytes, now: float) -> Actions:
        """Judge an answer now that as much of its body has come as `Peek` asked for, or all of it."""
        flight = self.in_flight(attempt)
        if flight is None or flight.reply is None:
            return ()
        if flight.look is not None:
            flight.look.end(now)
        reply = flight.reply
        reply.peeked = body
        verdict = classify(self.policy.classify, self.request, reply, body)
        assert verdict is not NEEDS_BODY  # the body was passed
        reply.counts_as = verdict.counts_as
        return self._answered(flight, reply, verdict, now)

    def ended(self, attempt: int, now: float, trailers: Fields | None = None) -> Actions:
        """End the call: the answer that is being delivered has ended well, with these trailers."""
        state = self.state
        if type(state) is not Delivering:
            return ()
        if state.outcome is _SUCCESS:
            if trailers is not None and self.reply is not None and trailers.get_all("grpc-status"):
                return self._ended_by_trailers(self.reply, trailers, now)
            self._succeeded(now)
        return self._finish(state.outcome, now)

    def failed(self, attempt: int, fault: Fault, now: float) -> Actions:
        """Judge the failure of an attempt that has ended without a whole answer."""
        state = self.state
        if type(state) is Delivering and state.attempt == attempt:
            if state.outcome is _SUCCESS:  # another answer was reported to the limiter when it was judged
                learn(self.upcoming, False, now)
            why = "its answer had begun to go to the app"
            return self._break_delivery(state, Outcome.COMMITTED, now, why, fault)
        flight = self.in_flight(attempt)
        if flight is None:
            return ()
        if flight.reply is None and self._is_transparent(fault):
            return self._send_again(flight, fault, now)
        if fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            self._transparent = self._transparent or _PROCESSED
        self.reply = None
        verdict = classify_fault(self.policy.classify, self.request, fault)
        return self._judge(Failure(attempt, verdict, NO_PUSHBACK, fault=fault, sent=flight.since), flight, now)

    def woke(self, now: float) -> Actions:
        """Do what is due: the alarm has rung, or the deadline has passed."""
        if type(self.state) is Flying and self.deadline is not None and now >= self.deadline - EPSILON:
            return self._flow.break_off(self, Outcome.DEADLINE, TOO_LATE, now)
        expected = self.expected()
        if expected is None:
            return ()
        if now < expected.due - EPSILON and not expected.gated:
            return (WakeAt(expected.due),)
        payment = self.upcoming.payment
        if payment is not None and payment.owed is not None:
            return self._flow.settle(self, expected, now)
        return self._flow.due(self, expected, now)

    def granted(self, price: float, now: float) -> Actions:
        """Use the price that the bucket outside this process has taken for a retry, or give it back if it is not wanted
        any more.
        """
        expected, payment = self.expected(), self.upcoming.payment
        if expected is None or payment is None or not payment.granted(price, now):
            if self.bucket is not None:
                self.bucket.give_back(price, now)
            return ()
        if now >= expected.due - EPSILON:
            return self.admit(expected, now)
        return self._flow.granted_early(self, expected, now)

    def refused(self, price: float, now: float) -> Actions:
        """Note that the bucket outside this process refuses the price of a retry; tokens that this process has may
        still pay it when the attempt is due.
        """
        expected, payment = self.expected(), self.upcoming.payment
        if expected is None or payment is None or not payment.refused(price):
            return ()
        return self._flow.settle(self, expected, now) if now >= expected.due - EPSILON else ()

    def replay_lost(self, now: float, furthest: int = 0) -> Actions:
        """Note that the request's body outgrew its buffer: no further attempt is possible, and only a silence (`idle`)
        ends one in flight. The body streams on in the attempt `furthest`, which has sent most of it (the oldest of
        several), and the others are cancelled. If all attempts share the request's stream, only the transparent retry
        is lost.
        """
        state = self.state
        if self.committed or isinstance(state, Delivering | Done) or self._flow.shares_body(self):
            return ()
        self.committed = True
        self.deadline = None
        if type(state) is Flying:
            self.plan_no_more(now)
            return self.cancel_all_but(furthest if furthest in state.flights else min(state.flights), now)
        return self.withdraw(Outcome.COMMITTED, now, OUTGREW) if type(state) is Next else ()

    def app_gone(self, now: float) -> Actions:
        """End the call because the app has gone away: send nothing more, and give unused payments back."""
        state, gone = self.state, Outcome.CLIENT_GONE
        if type(state) is Done:
            return ()
        if type(state) is Delivering:
            self.upcoming.give_back(now)
            return (Cancel(state.attempt), *self._break_delivery(state, gone, now))
        actions: Actions = ()
        if type(state) is Flying:
            actions = self.cancel_all_but(0, now, gone.value)
        elif self.attempts > self.earlier:
            revise(self.history, gone.value)
        self.upcoming.give_back(now)
        return (*actions, *self.discard(), *self._finish(gone, now))

    def cut(self, now: float) -> Actions:
        """End the call because the process ends: break off an answer under way, deliver a held one, else send the
        proxy's own.
        """
        state = self.state
        if type(state) is Delivering:
            return (Cancel(state.attempt), *self._break_delivery(state, Outcome.COMMITTED, now, SHUT_DOWN))
        if type(state) is Flying:
            return self._flow.break_off(self, Outcome.OVERLOADED, SHUT_DOWN, now)
        return () if type(state) is Done else self.withdraw(Outcome.OVERLOADED, now, SHUT_DOWN)

    def denied(self, attempt: int, detail: str, now: float) -> Actions:
        """End the call because the destination of this attempt is not allowed, so that the attempt was not sent. Its
        other endpoints are not tried, because the policy names a wrong one. `detail`: the reason, for people.
        """
        flight = self.in_flight(attempt)
        if flight is None or flight.reply is not None:
            return ()
        others = self.cancel_all_but(attempt, now)
        if flight.payment is not None:
            flight.payment.give_back(now)
        self.note(flight, now, Outcome.DENIED.value).because = detail
        self.upcoming.give_back(now)
        self.attempts -= 1
        answer = own_answer(Outcome.DENIED, None, detail=detail)
        return (*others, answer, *self._finish(Outcome.DENIED, now))

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _read_hints(self, now: float) -> Actions:
        """Read the app's hints on this call. Returns the actions that refuse it if they can't be read, else none."""
        hints = self.hints = read_request_hints(self.request, self.policy, self.upcoming.scope.seen, now)
        if hints.unreadable:
            detail = "X-Retry-Timeout is neither a duration nor seconds"  # without its value, which is the app's alone
            return (own_answer(Outcome.BAD_REQUEST, None, detail=detail), *self._finish(Outcome.BAD_REQUEST, now))
        if hints.timeout is not None and (self.deadline is None or now + hints.timeout < self.deadline):
            self.deadline = now + hints.timeout
        return ()

    # -- admission --------------------------------------------------------------------------------------------------

    def admit(self, planned: Next, now: float) -> Actions:
        """Launch the planned attempt, which is due, or wait if a gate holds it."""
        upcoming = self.upcoming
        upcoming.replace_lost_key(now)
        if upcoming.is_ungated(planned, now):
            if upcoming.choose(self.state, now):
                return self.launch(now)
            return self.withdraw(Outcome.CIRCUIT_OPEN, now, upcoming.why_no_endpoint(now))
        first = self.attempts == self.earlier
        at, no, why = upcoming.ask(planned, self.state, now, self.deadline, first=first)
        if no is not None:
            return self.withdraw(no, now, why)
        if at <= now:
            return self.launch(now)
        kept = self.failure if type(self.state) is Flying else None
        planned.due, planned.gated = at, True
        self.state = planned
        if kept is not None and kept.status is not None:
            return (Hold(kept.attempt), WakeAt(at))
        return (WakeAt(at),)

    def launch(self, now: float) -> Actions:
        """Send the next attempt, with the payment that was taken for it."""
        attempt = self.attempts = self.attempts + 1
        return self._flow.launched(self, self.upcoming.take(attempt, self.state, now), now)

    def _is_transparent(self, fault: Fault) -> bool:
        """Whether the failed attempt may be sent again at once, uncounted; a call gets one such resend, whichever the
        cause (contract, section 4, safety 1).
        """
        if self.resent or self.committed or self._flow.shared_body(self):
            return False
        if fault.progress is Progress.NEVER_SENT:
            return True
        if fault.progress is Progress.REFUSED:
            return self._transparent != _PROCESSED
        return fault.reused and self.is_idempotent()

    def _send_again(self, flight: Flight, fault: Fault, now: float) -> Actions:
        """Make the transparent retry: send the same attempt again on a fresh connection."""
        keys, picker = self.upcoming.keys, self.upcoming.picker
        self._transparent = _USED
        self.note(flight, now, "transparent").record_fault(fault)
        if self.fallbacks is not None:
            self.fallbacks.attempt_failed(fault, classify_fault(self.policy.classify, self.request, fault))
        flight.since = now
        if keys is not None and fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            keys.bind()
        endpoint = None if picker is None else picker.take_again(flight, self.state, fault, now)
        return (Launch(flight.attempt, fresh=True, endpoint=endpoint, key=flight.key),)

    # -- judgement --------------------------------------------------------------------------------------------------

    def _begun(self, flight: Flight, reply: Reply, verdict: Verdict | NeedsBody, now: float) -> Actions:
        """Keep back the head of an answer below 400 if its first byte that counts, or the part of its body that a rule
        looks at, must come first, and the attempt can still be made again; else deliver or judge the answer at once.
        """
        rules, policy, request = self.policy.classify, self.policy, self.request
        tunnels = reply.status == 101 or request.method == "CONNECT"
        final = reply.early or reply.end or self.committed
        kept = policy.mode == "enforce" and not (final or tunnels or request.is_grpc)
        if not kept and verdict is NEEDS_BODY:
            verdict = classify(rules, request, reply, b"")  # the body can't be looked at
        whole = verdict is NEEDS_BODY
        if verdict is not NEEDS_BODY and not (kept and verdict.cls is _SUCCESS_CLASS):
            return self._answered(flight, reply, verdict, now)
        flight.reply = reply
        look = flight.look = Look(reply, rules.empty_events, self.first_byte, whole=whole)
        self.upcoming.landed(flight, now, None)
        return (Peek(flight.attempt, PEEK_LIMIT, look),)

    def _answered(self, flight: Flight, reply: Reply, verdict: Verdict, now: float) -> Actions:
        """Deliver an answer whose class is success; judge any other as a failure."""
        attempt, state = flight.attempt, self.state
        self._transparent = self._transparent or _PROCESSED
        self.reply = reply
        if reply.follows and self._flow.may_go_alone(self, verdict):
            verdict = MISDIRECTED
        if verdict.cls is not _SUCCESS_CLASS:
            wall = now + self.env.wall_offset
            return self._judge(failure_of(self, attempt, reply, verdict, flight.since, wall), flight, now)
        assert type(state) is Flying
        self.delivered = flight
        self.deadline = None
        upcoming = self.upcoming
        if upcoming.admission is not None or upcoming.picker is not None or upcoming.scope.hedges is not None:
            report_answer(upcoming, state, flight, now)
        return self._flow.succeeded(self, attempt, now)

    def _judge(self, failure: Failure, flight: Flight, now: float) -> Actions:
        """Grant and pay for another attempt after a failed one, or end the call."""
        state = self.state
        assert type(state) is Flying
        del state.flights[failure.attempt]
        if self.fallbacks is not None:
            self.fallbacks.attempt_failed(failure.fault or self.reply, failure.verdict)
        flight.land(now)
        if flight.endpoint is not None:
            report_to_endpoint(self.upcoming, flight, failure, now)
        on = goes_on(self, failure)
        self.upcoming.cools = self._flow.cools(self)
        began = report_failure(self, self.upcoming, failure, flight, on, now)
        return self._flow.failed(self, failure, flight, began, on, now)

    def _ended_by_trailers(self, reply: Reply, trailers: Fields, now: float) -> Actions:
        """Judge a gRPC answer whose status came after its messages: the call is committed, but the bucket and the app's
        log get the failure.
        """
        flight = self.delivered
        assert flight is not None  # its answer is being delivered
        whole = self.reply = Reply(reply.status, trailers, end=True, trailers=trailers)
        verdict = classify(self.policy.classify, self.request, whole, b"")
        assert verdict is not NEEDS_BODY  # the (empty) body was passed
        if verdict.cls is _SUCCESS_CLASS:
            self._succeeded(now)
            return self._finish(_SUCCESS, now)
        self.committed = True
        report_trailers(self.upcoming, flight, verdict.cls, now)
        failure = failure_of(self, flight.attempt, whole, verdict, flight.since, now + self.env.wall_offset)
        on = goes_on(self, failure)
        report_failure(self, self.upcoming, failure, flight, on, now)
        no = first_no(self, failure, goes_on=on, disabled=False, safe=True)
        assert no is not None  # the call is committed
        self.note_no(failure, flight, no, now, delivered=True)
        return self._finish(no, now)

    # -- the end ----------------------------------------------------------------------------------------------------

    def withdraw(self, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no` although an attempt was granted: the attempt is not sent, and its payment
        is given back.
        """
        self.upcoming.give_back(now)
        if self.attempts > self.earlier:
            revise(self.history, no.value, why)
        return self.end(no, now, why)

    def end(self, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`: the call goes on at another upstream, the held answer is delivered, or
        the proxy answers itself. `why`: the reason, for people.
        """
        entry = self._way_elsewhere(no, now)
        if entry is not None:
            return self._go_elsewhere(entry, no, now)
        if self.attempts == self.earlier:
            note_never_sent(self.history, no, self.policy.upstream, why)
        failure = self.failure
        if failure is not None and failure.status is not None:
            return self._deliver_held(failure, no)
        return self._answer(no, now, why)

    def _way_elsewhere(self, no: Outcome, now: float) -> Fallback | None:
        """The entry of the fallback list by which a call that would end with the outcome `no` goes on at another
        upstream; None if no entry takes it.
        """
        if self.fallbacks is None or self.committed or self._flow.shared_body(self):
            return None
        if no not in GOES_ON and not (no is Outcome.OVERLOADED and self.found_no_place):
            return None
        if self.deadline is not None and now >= self.deadline - EPSILON:
            return None  # the call's time is over, at any upstream
        return self.fallbacks.next_entry(no)

    def _go_elsewhere(self, entry: Fallback, no: Outcome, now: float) -> Actions:
        """End this `Call`, which would have had the outcome `no`; by this entry of the fallback list it goes on at
        another upstream.
        """
        assert self.fallbacks is not None  # the entry is from there
        self.fallbacks.mark(self.history, self.policy)
        if self.attempts > self.earlier:
            note_fallback(self.history, no)
        failure, is_held = self.failure, self._flow.holds_answer(self)
        self._finish(no, now)
        if failure is None or failure.status is None or is_held:
            return (FallBack(entry),)
        return (Hold(failure.attempt), FallBack(entry))

    def _deliver_held(self, failure: Failure, no: Outcome) -> Actions:
        """End the call with the outcome `no` by delivering the held answer to the app as it came."""
        self.deadline = None
        self.state = Delivering(failure.attempt, no)
        return (Deliver(failure.attempt, no),)

    def _answer(self, no: Outcome, now: float, why: str) -> Actions:
        """End the call with the outcome `no` by answering the app with the proxy's own answer."""
        fault = self.failure.fault if self.failure is not None else None
        left, status = self.upcoming.retry_after(no, now)
        detail = None if fault is not None else why or None
        return (own_answer(no, fault, detail=detail, retry_after=left, status=status), *self._finish(no, now))

    def _break_delivery(
        self, state: Delivering, no: Outcome, now: float, why: str = "", fault: Fault | None = None
    ) -> Actions:
        """End the call, whose answer has broken off on its way to the app. `no`: the call's outcome; `why`: the reason,
        for people; `fault`: how the attempt ended.
        """
        flight = self.delivered
        if state.outcome is _SUCCESS and flight is not None:  # another answer was recorded when it was judged
            record = self.note(flight, now, no.value)
            record.why = why
            if self.reply is not None:
                record.status = self.reply.status
            if fault is not None:
                record.record_fault(fault)
        return self._finish(no, now)

    def _succeeded(self, now: float) -> None:
        """Report that the call has succeeded, and record the attempt unless it is the only one and nothing happened to
        it.
        """
        flight, upcoming = self.delivered, self.upcoming
        assert flight is not None  # its answer is being delivered
        if type(self.plan) is Sequential:
            self.plan.succeeded()
        report_success(upcoming, self.attempts == self.earlier + 1, now)
        gone = self.fallbacks is not None and self.fallbacks.has_gone
        if self.history or flight.look is not None or gone or upcoming.keys is not None or upcoming.was_held:
            self.note(flight, now, "delivered", None, self.reply)

    def _finish(self, outcome: Outcome, now: float) -> Actions:
        self.state = _DONE[outcome]
        upcoming, delivered = self.upcoming, self.delivered
        if upcoming.admission is not None or upcoming.payment is not None:
            upcoming.finish(now)
        if delivered is not None and delivered.payment is not None:
            delivered.payment.land(now)
        return _FINISH[outcome]


def _may_hedge(call: Call) -> bool:
    """Whether the strategy hedges, and the request may be sent several times at once."""
    strategy = call.policy.strategy
    if strategy.hedging_delay is None:
        return False
    return strategy.safe_methods or call.policy.classify.unsafe_methods == "always" or call.may_be_hedged()
