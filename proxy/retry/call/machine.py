"""A call as a state machine: events in, actions out.

Theory of operation. A driver reports events to a call, each with the time at which it happened, and the call answers
with actions; it never sleeps, reads a clock, or raises because of what an upstream did. In every state an attempt is in
flight, or an alarm is set, or the call is done:

    New -> [Next] -> Flying -> Delivering -> Done
             ^         |
             +---------+                       another attempt was granted; its answer, if any, is held

An event that does not concern the present state came too late, and is answered with no action. The call's flow
(`proxy.retry.call.flows`: one attempt after another, hedged, or one alone) decides by its plan what follows an attempt.
The price of the next attempt, and the gates that may hold it, are kept in the call's `NextAttempt`.
docs/reference/transitions.md shows every move.

A bucket may be kept outside this process. If the tokens that this process has can't pay for a retry, the bucket is
asked (`Ask`). When the retry is due, it is paid with the price that the bucket has granted meanwhile, or with tokens
that this process has by then; otherwise it is not made. A retry that is due before the bucket has answered waits for
the answer.

Once an answer is being delivered, no move leads back, unless the answer breaks off and its rest is asked for
(`proxy.retry.call.resumption`). While an attempt is in flight, the driver watches `deadline`, and reports `woke` when
it has passed.

A refusal of another attempt (an `Outcome`) ends the call in one of three ways (`end`): the call goes on at another
upstream, the answer that is held goes to the app, or the proxy answers itself. If another upstream takes the call over
(`proxy.retry.call.fallback`), this `Call` is over. A `Call` of the other upstream continues the numbers of its
attempts, keeps its deadline, and holds the last answer until the next attempt is sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.retry.answers.classification import AT_WORK, MISDIRECTED, NEEDS_BODY, NeedsBody, classify
from proxy.retry.answers.errors_inside import inside_of
from proxy.retry.answers.first_byte import PEEK_LIMIT, BodyWait, first_byte_of
from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.answers.token_usage import TokenUsage
from proxy.retry.answers.xml_root import RootLook
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call import interruptions
from proxy.retry.call.actions import Actions, Cancel, Peek, WakeAt
from proxy.retry.call.admission import Alarm
from proxy.retry.call.attempt_failure import failure_by, failure_of
from proxy.retry.call.broken_answers import answer_to_keep, may_follow_head
from proxy.retry.call.call_state import CallState
from proxy.retry.call.endings import finish
from proxy.retry.call.environment import Env
from proxy.retry.call.fallback import Elsewhere, Fallbacks
from proxy.retry.call.feedback import (
    learn,
    report_answer,
    report_failure,
    report_limits,
    report_start,
    report_success,
    report_to_endpoint,
    report_trailers,
)
from proxy.retry.call.flows import SEQUENTIAL
from proxy.retry.call.hedged_flow import HEDGED, flow_of
from proxy.retry.call.key_files import goes_with_new_value, read_again
from proxy.retry.call.next_attempt import NextAttempt
from proxy.retry.call.reasons import NO_TIME, TOO_LATE, own_answer
from proxy.retry.call.refusals import note_no
from proxy.retry.call.repeat_checks import first_no
from proxy.retry.call.request_hints import NO_HINTS, read_request_hints
from proxy.retry.call.resumption import go_on_delivering, resume, resume_again
from proxy.retry.call.sequential_plan import Sequential
from proxy.retry.call.settlement import settle_delivered, settle_failed
from proxy.retry.call.states import Delivering, Flight, Flying, Next
from proxy.retry.call.transparent_retry import AVAILABLE, PROCESSED, USED
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import (
    Class,
    Failure,
    Fault,
    Fields,
    Outcome,
    Progress,
    Reply,
    Request,
    Verdict,
)
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.upstreams.credentials import CallKeys
from proxy.retry.upstreams.endpoints import Choice

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS, _SUCCESS_CLASS = Outcome.SUCCESS, Class.SUCCESS


class Call:
    """The state machine of one call of an app. `so_far`: the state that the call has reached. `alarm`: a function that
    moves the call's alarm, for gates that change the time at which the call has to ask again; None in tests without
    gates. `elsewhere`: says why the upstream of a given entry of the fallback list can't take the call over, "" if it
    can; None if no upstream can.
    """

    __slots__ = ("_first_byte", "_flow", "_transparent", "so_far")

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Alarm | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.so_far = CallState.__new__(CallState)  # all three past their constructors, which take longer
        self.so_far.next_attempt = NextAttempt.__new__(NextAttempt)
        self.so_far.next_attempt.begin(request, policy, scope, env, alarm)
        self.so_far.begin(request, policy, self.so_far.next_attempt, None)
        if elsewhere is not None and policy.mode == "enforce":
            self.so_far.fallbacks = Fallbacks(policy, request, elsewhere)
        self._first_byte: float | None = None  # seconds; None until the request is sent, infinite if there is no bound
        self._transparent = AVAILABLE
        self._flow = flow_of(self.so_far, policy)

    # -- what drivers set and read ------------------------------------------------------------------------------------

    @property
    def hedged(self) -> bool:
        """Whether several attempts of the call may be in flight at a time. It is always False if it is not safe to send
        the request several times.
        """
        return self._flow is HEDGED

    @property
    def resent(self) -> bool:
        """Whether the call has made its only transparent retry (sending an attempt again that was not processed)."""
        return self._transparent is USED

    @property
    def first_byte(self) -> float | None:
        """The seconds, from the request's last byte, within which the first byte of an answer that counts must come.
        None if there is no bound, or if the whole request has not been sent yet.
        """
        return None if self._first_byte == NEVER else self._first_byte

    @property
    def needs_no_buffer(self) -> bool:
        """Whether all attempts read the request's body side by side as it comes, so that a body of any size needs no
        buffer.
        """
        return self._flow.needs_no_buffer(self.so_far)

    def goes_elsewhere(self) -> None:
        """Leave the choice of the endpoint to the driver, because this call is a tunnel to an authority, named by its
        CONNECT, that is no endpoint of the upstream.
        """
        self.so_far.next_attempt.picker = None

    def carry(self, keys: CallKeys[ScopeState]) -> None:
        """Let the call's attempts carry the credentials that `keys`, the call's choice among the policy's credentials,
        picks.
        """
        self.so_far.next_attempt.carry(keys)

    def expects(self, estimate: Estimate) -> None:
        """Note, before the call begins, what each attempt is expected to cost in a language model's tokens
        (`estimate`).
        """
        self.so_far.next_attempt.estimate = estimate

    def used(self, usage: TokenUsage, now: float, policy: Policy | None = None) -> None:
        """Settle the price of the attempt whose answer went to the app. `usage`: how many of a language model's tokens
        it really cost; `policy`: that of the upstream that answered, if a call that falls back has left it.
        """
        call = self.so_far
        flight, failure = call.delivered, call.failure
        payment = flight.payment if flight is not None else failure.payment if failure is not None else None
        if payment is not None:
            settle_delivered(call.next_attempt, policy or call.policy, payment, usage, now)

    # -- events -----------------------------------------------------------------------------------------------------

    def start(self, now: float, since: float = 0.0) -> Actions:
        """Begin the call, whose request's head is complete; it came at `since` if the call has waited for its body."""
        call, since = self.so_far, since or now
        policy, next_attempt = call.policy, call.next_attempt
        total, scope = policy.timeouts.total, next_attempt.scope
        if total is not None and (call.deadline is None or since + total < call.deadline):
            call.deadline = since + total
        if not call.request.plain or policy.idempotency_key.header != "Idempotency-Key":
            refusal = self._read_hints(since)
            if refusal:
                return refusal
        next_attempt.governs = policy.mode != "off" and not call.hints.disabled
        next_attempt.cools = _may_be_cooled(call) and self._flow is not HEDGED
        if next_attempt.bucket is not None:
            report_start(call.hints, next_attempt, now)
        if scope.keys is not None:
            next_attempt.carry(CallKeys(scope.keys, now))
        if since < now and call.deadline is not None and now >= call.deadline - EPSILON:
            return self._flow.end(call, Outcome.DEADLINE, now, TOO_LATE)
        return self._flow.begin(call, now)

    def go_on(self, before: Call, now: float) -> Actions:
        """Begin, in place of `start`, a call that another upstream passes on (`FallBack`). `before`: the call at that
        upstream. The attempts are numbered on from there, the deadline stays the same, and the last answer is kept
        until the first attempt here is sent.
        """
        call, last = self.so_far, before.so_far
        call.attempts = call.earlier = last.attempts
        call.deadline, call.failure, call.reply = last.deadline, last.failure, last.reply
        call.history, call.fallbacks = last.history, last.fallbacks
        call.next_attempt.held_before = last.next_attempt.held_in_all
        return self.start(now)

    def flown(
        self,
        since: float,
        endpoint: str,
        protocol: str,
        traffic: Traffic | None,
        choice: Choice | None = None,
        answered: bool = False,
    ) -> Actions:
        """Begin, in place of `start`, a call whose first attempt the driver sent before it made this `Call`. The
        attempt has been in flight since the time `since`, and holds a place under the concurrency limit, if there is
        one.

        `endpoint`: the label of the endpoint that it was sent to. `protocol`: the protocol, "" until there is a
        connection. `traffic`: the count of the endpoint's attempts, if it still counts this one as under way, so that
        the attempt's end has to be reported to the governor; None if the end was reported. `choice`: the only endpoint,
        as it was chosen; None if no circuit breaker was asked. `answered`: the head of the attempt's answer has been
        reported to everything that learns from it.
        """
        call = self.so_far
        policy, next_attempt = call.policy, call.next_attempt
        if policy.timeouts.total is not None:
            call.deadline = since + policy.timeouts.total
        if call.request.timed:
            self._read_hints(since)  # a `timed` request has only a deadline among its hints
        call.attempts = 1
        next_attempt.governs = policy.mode != "off"
        next_attempt.cools = _may_be_cooled(call) and self._flow is not HEDGED
        flight, keys, places = Flight.__new__(Flight), next_attempt.keys, next_attempt.scope.places
        flight.begin(1, since, None)
        state = call.state = Flying.__new__(Flying)
        state.flights, state.planned = {1: flight}, None
        flight.traffic, flight.sent_to, flight.protocol = traffic, endpoint, protocol
        flight.reported = answered
        if next_attempt.picker is not None:
            flight.endpoint = 0
        if places is not None or choice is not None:
            flight.payment = next_attempt.payable()
            flight.payment.choice = choice
            if places is not None:
                flight.payment.has_place(places)
            next_attempt.payment = None
        if keys is not None:
            flight.key, flight.key_why = keys.key, keys.why
        if self._flow is HEDGED:
            planned = state.planned = HEDGED.hedges(call).after_launch(call, since)
            if planned is not None:
                return (WakeAt(planned.due),)
        return ()

    def sent(self, attempt: int, endpoint: str, protocol: str, now: float) -> Actions:
        """Note that an attempt is being sent. `endpoint`: the label of the endpoint that it is sent to. `protocol`: the
        protocol, "" until there is a connection.
        """
        state = self.so_far.state
        flying = state if type(state) is Flying else None
        flight = None if flying is None else flying.flights.get(attempt)
        if flight is not None:
            flight.sent_to = endpoint
            if protocol:
                flight.protocol = protocol
        return ()

    def asks_for(self, attempt: int, range: str) -> Actions:
        """Note that an attempt asks, by a Range field with the value `range`, for the rest of an answer that broke."""
        flight = self.so_far.in_flight(attempt)
        if flight is not None:
            flight.range = range
        return ()

    def request_sent(self, now: float, body: Iterable[bytes] | None = None) -> Actions:
        """Note that an attempt has sent the whole request. `body`: the request's body, None if it is empty or is not
        kept.
        """
        call = self.so_far
        if type(call.state) is Flying and self._first_byte is None:
            within = first_byte_of(call.policy, call.request, body)
            self._first_byte = NEVER if within is None else within
        return ()

    def head(self, attempt: int, reply: Reply, now: float) -> Actions:
        """Judge an attempt by the final head of its answer, which has come. The driver itself passes on heads with
        status 1xx.
        """
        call = self.so_far
        state = call.state
        flying = state if type(state) is Flying else None
        flight = None if flying is None else flying.flights.get(attempt)
        if flight is None or flight.reply is not None:
            return ()
        if flight.note is not None and reply.status != 429:
            report_limits(call.next_attempt, flight, reply, now)
        policy = call.policy
        rules = policy.classify
        verdict = classify(rules, call.request, reply, None)
        if reply.status < 400 and (
            verdict is NEEDS_BODY
            or (policy.answers is not None and not reply.whole)
            or rules.stream_ends
            or (self._first_byte is not None and self._first_byte != NEVER)
        ):
            return self._begun(flight, reply, verdict, now)
        if verdict is NEEDS_BODY:
            flight.reply = reply
            call.next_attempt.freed(flight, now, False)
            return (Peek(attempt, PEEK_LIMIT),)
        return self._answered(flight, reply, verdict, now)

    def peeked(self, attempt: int, body: bytes, now: float) -> Actions:
        """Judge the answer to the attempt with the number `attempt` by its body. `body`: as much of the body as `Peek`
        asked for, or all of it.
        """
        call = self.so_far
        flight = call.in_flight(attempt)
        if flight is None or flight.reply is None:
            return ()
        reply, wait = flight.reply, flight.body_wait
        if wait is not None:
            if wait.counted is None and not wait.over and call.stream_ends(reply):
                return (Cancel(attempt), *self.failed(attempt, UNFINISHED, now))
            wait.end(now)
        reply.peeked = body
        verdict = classify(call.policy.classify, call.request, reply, body)
        assert verdict is not NEEDS_BODY  # the body was passed
        reply.counts_as = verdict.counts_as
        return self._answered(flight, reply, verdict, now)

    def ended(self, attempt: int, now: float, trailers: Fields | None = None) -> Actions:
        """End the call, because the delivered answer, to the attempt with the number `attempt`, has come to its end.
        `trailers`: the answer's trailers, None for none.
        """
        call = self.so_far
        state = call.state
        if type(state) is not Delivering:
            return ()
        delivering = state  # with a type, when compiled
        if delivering.outcome is _SUCCESS:
            if trailers is not None and call.reply is not None and trailers.get_all("grpc-status"):
                return self._ended_by_trailers(call.reply, trailers, now)
            self._succeeded(now)
        return finish(call, delivering.outcome, now)

    def failed(self, attempt: int, fault: Fault, now: float) -> Actions:
        """Judge the failure of an attempt that has ended with a fault, and so without a whole answer."""
        call = self.so_far
        state = call.state
        if type(state) is Delivering and state.attempt == attempt:
            if state.outcome is _SUCCESS:  # another answer was reported to the limiter when it was judged
                learn(call.next_attempt, False, now)
            why = "its answer had begun to go to the app"
            return interruptions.break_delivery(call, state, Outcome.COMMITTED, now, why, fault)
        flight = call.in_flight(attempt)
        if flight is None:
            return ()
        if call.resumption is not None:
            return resume_again(call, self._flow, flight, failure_by(call, flight, fault), now)
        if flight.reply is None and self._transparent.follows(call, self._flow, flight, fault, now):
            available, self._transparent = self._transparent, USED
            return available.send(call, flight, fault, now)
        if self._transparent is AVAILABLE and fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            self._transparent = PROCESSED
        call.reply = None
        failure = failure_by(call, flight, fault)
        if flight.body_wait is not None:  # a success's head was kept
            failure.carried_out = not may_follow_head(call.policy, call.request)
        return self._judge(failure, flight, now)

    def broke(self, attempt: int, fault: Fault, progress: int, since: float, now: float) -> Actions:
        """Handle the break of the delivered answer: ask for its rest if that is possible, otherwise end the call.
        `fault`: how the answer broke off. `progress`: how many of its bytes went to the app since it last went on after
        a break. `since`: the time at which the last of these bytes went to the app.
        """
        call = self.so_far
        state, flight = call.state, call.delivered
        if type(state) is not Delivering or state.attempt != attempt:
            return ()
        if state.outcome is _SUCCESS and flight is not None:
            self._flow = SEQUENTIAL
            actions = resume(call, self._flow, flight, fault, progress, since, now)
            if actions:
                learn(call.next_attempt, False, now)
                return actions
        return self.failed(attempt, fault, now)

    def resumed(self, attempt: int, accepted: bool, now: float) -> Actions:
        """Deliver the rest of an answer that broke, because the head of the rest has come. `accepted`: the rest fits
        the answer; if not, the call ends.
        """
        call = self.so_far
        flight = call.in_flight(attempt)
        if flight is None or call.resumption is None:
            return ()
        self._report_answer(flight, now)
        return go_on_delivering(call, flight, accepted, now)

    def woke(self, now: float) -> Actions:
        """Do what is due at this time, because the alarm has rung, or the deadline has passed."""
        call = self.so_far
        state = call.state
        if type(state) is Flying and call.deadline is not None and now >= call.deadline - EPSILON:
            for flight in state.flights.values():
                if flight.body_wait is not None and flight.body_wait.over:  # an answer in time, if not yet a whole one
                    return self.peeked(flight.attempt, b"", now)
            return self._flow.break_off(call, Outcome.DEADLINE, TOO_LATE, now)
        expected = state.planned if type(state) is Flying else state if type(state) is Next else None
        if expected is None:
            return ()
        if now < expected.due - EPSILON and not expected.gated:
            return (WakeAt(expected.due),)
        payment = call.next_attempt.payment
        if payment is not None and payment.owed is not None:
            return self._flow.settle(call, expected, now)
        return self._flow.due(call, expected, now)

    def granted(self, price: float, now: float) -> Actions:
        """Use the price that the bucket outside this process has taken for a retry, or give it back if it is no longer
        wanted.
        """
        call = self.so_far
        expected, payment = call.expected(), call.next_attempt.payment
        if expected is None or payment is None or not payment.granted(price, now):
            if call.next_attempt.bucket is not None:
                call.next_attempt.bucket.give_back(price, now)
            return ()
        if now >= expected.due - EPSILON:
            return self._flow.admit(call, expected, now)
        return self._flow.granted_early(call, expected, now)

    def refused(self, price: float, now: float) -> Actions:
        """Note that the bucket outside this process refuses the price of a retry. If this process has enough tokens
        when the attempt is due, they still pay for it.
        """
        call = self.so_far
        expected, payment = call.expected(), call.next_attempt.payment
        if expected is None or payment is None or not payment.refused(price):
            return ()
        if now >= expected.due - EPSILON:
            return self._flow.settle(call, expected, now)
        return (WakeAt(expected.due),)  # the alarm may be the answer's: a pushback may have put a hedge off

    def replay_lost(self, now: float, furthest: int = 0) -> Actions:
        """Commit the call, because the request's body has outgrown its buffer and can't be sent again. No further
        attempt is made, and the timeout `idle` applies in place of the deadline.

        One attempt in flight continues: the one with the number `furthest`, which has sent most of the body, or the
        oldest if that one is not in flight. The others are cancelled. If all attempts read the body as it comes, they
        all continue, and only the transparent retry becomes impossible.
        """
        return interruptions.replay_lost(self.so_far, self._flow, now, furthest)

    def app_gone(self, now: float) -> Actions:
        """End the call because the app has gone away: send nothing more, and give unused payments back."""
        return interruptions.app_gone(self.so_far, now)

    def cut(self, now: float, sent: bool = True) -> Actions:
        """End the call because the process ends. Break off the answer that is being delivered; if there is none,
        deliver the answer that is held or, if there is none either, the proxy's own. `sent`: bytes of an attempt in
        flight may have been sent.
        """
        return interruptions.cut(self.so_far, self._flow, now, sent)

    def denied(self, attempt: int, detail: str, now: float) -> Actions:
        """End the call because the destination of this attempt is not allowed, so that the attempt was not sent. The
        policy's other endpoints are not tried, since a policy that names a forbidden endpoint is wrong. `detail`: the
        reason, for people.
        """
        return interruptions.denied(self.so_far, attempt, detail, now)

    def no_room(self, attempt: int, detail: str, now: float) -> Actions:
        """Give up this attempt, which was not sent because this process can open no connection; the upstream is not to
        blame. The call ends if no other attempt is in flight. `detail`: the reason, for people.
        """
        return interruptions.no_room(self.so_far, self._flow, attempt, detail, now)

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _read_hints(self, now: float) -> Actions:
        """Read the app's hints on this call (X-Retry-Timeout, say). Returns the actions that end the call if the hints
        can't be read or leave it no time, otherwise no actions.
        """
        call = self.so_far
        hints = call.hints = read_request_hints(call.request, call.policy, call.next_attempt.scope.seen, now)
        if hints.unreadable:
            detail = "X-Retry-Timeout is neither a duration nor seconds"  # without its value, which is the app's alone
            return (own_answer(Outcome.BAD_REQUEST, None, detail=detail), *finish(call, Outcome.BAD_REQUEST, now))
        if hints.timeout == 0:  # no app would see what an attempt brings
            return (own_answer(Outcome.DEADLINE, None, detail=NO_TIME), *finish(call, Outcome.DEADLINE, now))
        if hints.timeout is not None and (call.deadline is None or now + hints.timeout < call.deadline):
            call.deadline = now + hints.timeout
        return ()

    # -- judgement --------------------------------------------------------------------------------------------------

    def _begun(self, flight: Flight, reply: Reply, verdict: Verdict | NeedsBody, now: float) -> Actions:
        """Decide what to do with an answer below 400, whose head has come. `verdict`: its class, or NEEDS_BODY if the
        head alone does not show the class.

        If the request can be sent again, the answer is held back while something is still to come: the first byte that
        counts, the part of the body that a rule looks at, or the whole body. Otherwise the answer is at once delivered,
        or judged as a failure.
        """
        call = self.so_far
        rules, policy, request = call.policy.classify, call.policy, call.request
        tunnels = reply.status == 101 or request.method == "CONNECT"
        final = reply.early or reply.end or call.committed
        may_wait = policy.mode == "enforce" and not (final or tunnels or request.is_grpc)
        if reply.end and policy.mode == "enforce" and not (reply.early or call.committed) and call.stream_ends(reply):
            flight.reply = reply
            return (Cancel(flight.attempt), *self.failed(flight.attempt, UNFINISHED, now))
        if not may_wait and verdict is NEEDS_BODY:
            verdict = classify(rules, request, reply, b"")  # the body can't be looked at
        whole = verdict is NEEDS_BODY
        if verdict is not NEEDS_BODY and not (may_wait and verdict.cls is _SUCCESS_CLASS):
            return self._answered(flight, reply, verdict, now)
        bound, kept = self.first_byte, None if policy.answers is None else answer_to_keep(call, reply, now)
        looks = whole or bound is not None or bool(call.stream_ends(reply))
        if not looks and kept is None:
            assert verdict is not NEEDS_BODY  # that would be a look
            return self._answered(flight, reply, verdict, now)
        if looks:
            call.next_attempt.freed(flight, now, bound is not None)
        elif not flight.reported:
            self._report_answer(flight, now)
        flight.reply = reply
        inside = inside_of(rules, request, reply) if whole and rules.inside else None
        root = None if inside is None else RootLook(inside, now)
        body_wait = flight.body_wait = BodyWait(
            *(reply, rules.empty_events, bound), whole=whole and root is None, looks=looks, kept=kept, root=root
        )
        return (Peek(flight.attempt, PEEK_LIMIT if looks else 0, body_wait),)

    def _answered(self, flight: Flight, reply: Reply, verdict: Verdict, now: float) -> Actions:
        """Deliver an answer whose class is success; judge an answer of any other class as a failure."""
        call = self.so_far
        attempt = flight.attempt
        if self._transparent is AVAILABLE:
            self._transparent = PROCESSED
        call.reply = reply
        if reply.follows and self._flow.may_go_alone(call, verdict):
            verdict = MISDIRECTED
        if call.ambiguous and reply.status == 409 and verdict.cls is Class.UNNAMED and call.has_key():
            verdict = AT_WORK
        if verdict.cls is not _SUCCESS_CLASS:
            wall = now + call.next_attempt.env.wall_offset
            return self._judge(failure_of(call, attempt, reply, verdict, flight.since, wall), flight, now)
        call.delivered = flight
        call.deadline = None
        if not flight.reported:
            self._report_answer(flight, now)
        return self._flow.succeeded(call, attempt, now)

    def _report_answer(self, flight: Flight, now: float) -> None:
        """Report to the endpoint, the governor and hedging's measurements that an attempt was answered, and not with a
        failure.
        """
        next_attempt, state = self.so_far.next_attempt, self.so_far.state
        assert type(state) is Flying
        if flight.traffic is not None or next_attempt.picker is not None or next_attempt.scope.hedges is not None:
            report_answer(next_attempt, state, flight, now)
        flight.reported = True

    def _judge(self, failure: Failure, flight: Flight, now: float) -> Actions:
        """Grant and pay for another attempt after the failed attempt `flight`, or end the call. Returns the actions for
        the driver.
        """
        call = self.so_far
        state = call.state
        assert type(state) is Flying
        del state.flights[failure.attempt]
        if call.fallbacks is not None:
            call.fallbacks.attempt_failed(failure.fault or call.reply, failure.verdict)
        unprocessed = failure.fault is not None and failure.fault.progress in (Progress.NEVER_SENT, Progress.REFUSED)
        if not (unprocessed or failure.verdict.unprocessed):
            call.ambiguous = True
        if flight.payment is not None:
            flight.payment.land(now)
            if flight.payment.estimate is not None:
                settle_failed(flight.payment, failure, now)
                failure.payment = flight.payment
        if flight.endpoint is not None:
            report_to_endpoint(call.next_attempt, flight, failure, now)
        on = failure.goes_on
        if failure.status == 401:
            read_again(call, flight, now)
        may_stay = unprocessed and on and flight.traffic is not None
        was_probe = may_stay and call.next_attempt.scope.governor.is_probe(flight)
        began = report_failure(call, call.next_attempt, failure, flight, on, now)
        if was_probe and not call.next_attempt.comes_late:
            return self._flow.stay_held(call, failure, flight, now)
        if failure.status == 401:
            disabled = self._flow.is_disabled(call) or self._flow.shared_body(call)
            if goes_with_new_value(call, failure, flight, disabled=disabled):
                return self._flow.use_new_key(call, failure, flight, now)
        return self._flow.failed(call, failure, flight, began, now)

    def _ended_by_trailers(self, reply: Reply, trailers: Fields, now: float) -> Actions:
        """Judge a gRPC answer whose status came after its messages, in `trailers`, and end the call. A failure can't be
        retried any more, since the app has the messages. The bucket and the gates learn of the failure, and it is noted
        in the call's history.
        """
        call = self.so_far
        flight = call.delivered
        assert flight is not None  # its answer is being delivered
        whole = call.reply = Reply(reply.status, trailers, end=True, trailers=trailers)
        verdict = classify(call.policy.classify, call.request, whole, b"")
        assert verdict is not NEEDS_BODY  # the (empty) body was passed
        if verdict.cls is _SUCCESS_CLASS:
            self._succeeded(now)
            return finish(call, _SUCCESS, now)
        call.committed = True
        report_trailers(call.next_attempt, flight, verdict.cls, now)
        wall = now + call.next_attempt.env.wall_offset
        failure = failure_of(call, flight.attempt, whole, verdict, flight.since, wall)
        report_failure(call, call.next_attempt, failure, flight, failure.goes_on, now)
        no = first_no(call, failure, disabled=False, safe=True)
        assert no is not None  # the call is committed
        note_no(call, failure, flight, no, now, delivered=True)
        return finish(call, no, now)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _succeeded(self, now: float) -> None:
        """Report that the call has succeeded. Its attempt is put into the call's history, except in the plain case: it
        was the call's first, was not held, its body was not looked at, and it carried none of the policy's credentials.
        """
        call = self.so_far
        flight, next_attempt = call.delivered, call.next_attempt
        assert flight is not None  # its answer is being delivered
        if type(call.plan) is Sequential:
            plan = call.plan
            if plan.plugin is not None:
                plan.plugin.succeeded()
        report_success(next_attempt, now)
        gone = call.fallbacks is not None and call.fallbacks.has_gone
        looked = flight.body_wait is not None and flight.body_wait.looks
        if call.history or looked or gone or next_attempt.keys is not None or next_attempt.was_held:
            call.note(flight, now, "delivered", None, call.reply)


def _may_be_cooled(call: CallState) -> bool:
    """Whether a cooldown may hold the call, and an answer to the call may begin one. A hedged call is never cooled;
    this function does not check that, so its callers do.
    """
    policy = call.policy
    is_disabled = call.hints is not NO_HINTS and call.hints.disabled
    return policy.mode == "enforce" and policy.pushback.cooldown != "off" and not is_disabled
