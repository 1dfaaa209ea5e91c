"""The plan and the flow of several attempts at a time: after a delay or a failure, the next attempt is sent while the
others go on.

Hedging (gRPC A6). The first attempt is sent at once, and the next ones every `hedging_delay`. A hedge is paid for when
it is due, and no cooldown holds it. A non-fatal failure brings the next hedge forward to now or, if the failure has a
pushback, moves it to exactly that much later; a fatal failure ends the call. Three things end hedging: a pushback that
forbids a retry, a delay that is too long, and a bucket that refuses. The attempts in flight then continue, and when all
have failed the last answer goes to the app with the last outcome. If `extra` has no room for a hedge, this hedge is not
sent, and the next is considered after a failure: an attempt without another in flight is a retry, not a hedge
(contract, section 1).
"""

from __future__ import annotations

from proxy.retry.call.actions import Actions, Ask, Deliver, Launch, WakeAt
from proxy.retry.call.call_state import CallState
from proxy.retry.call.flows import PLUGIN, SEQUENTIAL, SequentialFlow
from proxy.retry.call.gates import GATES
from proxy.retry.call.payment import PATIENCE, Payment
from proxy.retry.call.refusals import note_no, why_not
from proxy.retry.call.repeat_checks import first_no
from proxy.retry.call.single_flows import OBSERVED, PASSIVE
from proxy.retry.call.states import Delivering, Flight, Flying, Next
from proxy.retry.facts import Class, Failure, Outcome, Verdict
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.policies.policy import Policy, Strategy
from proxy.retry.weather.caller import Name

_SUCCESS, _BUCKET_EMPTY = Outcome.SUCCESS, Outcome.BUCKET_EMPTY

#: The most hedges without a delay that are sent in one step: each is a few stack frames deeper than the one before.
_AT_ONCE = 100


class Hedged:
    """The plan of several attempts in flight. `due`: when the attempt that was last considered would begin. `stopped`:
    the outcome because of which no more attempts are sent, None while more may be. `shared`: the request's body has
    outgrown its buffer, but all attempts read it as it comes.
    """

    __slots__ = ("_pushed_until", "due", "shared", "stopped")

    def __init__(self, due: float = 0.0, stopped: Outcome | None = None) -> None:
        self.due = due
        self.stopped = stopped
        self.shared = False
        self._pushed_until = -NEVER  # the end of the latest pushback: no hedge is sent sooner

    def after_launch(self, call: CallState, now: float) -> Next | None:
        """The hedge that follows an attempt which has just been launched: `hedging_delay` later, at the price of a
        retry after a transient failure. None if no hedge is to follow.
        """
        strategy = call.policy.strategy
        if call.hints.disabled:
            self.stopped = Outcome.DISABLED
        if (
            call.attempts - call.earlier - call.spared >= strategy.max_attempts
            or self.stopped is not None
            or call.committed
        ):
            return None
        delay = call.hedging_delay(now)
        if delay is None:
            return None
        bucket = call.next_attempt.bucket
        price = bucket.price(Class.TRANSIENT) if bucket is not None else 0.0
        return Next(now + delay, price)

    def after_failure(self, call: CallState, failure: Failure, now: float, disabled: bool) -> Next | Outcome:
        """The next hedge after this failure, due now or exactly when the failure's pushback says; or the outcome that
        refuses the hedge. Such an outcome ends hedging, unless all attempts have been made anyway. `disabled`: the mode
        or X-Retry-Disable rules hedges out.
        """
        delay = failure.pushback.delay
        self.due = max(now + (delay or 0.0), self._pushed_until)
        no = first_no(call, failure, disabled, True) or self.stopped
        bucket = call.next_attempt.bucket
        price: float | None = 0.0
        if no is None and bucket is not None:
            price = bucket.offer(failure.verdict.cls, now)
            no = _BUCKET_EMPTY if price is None else None
        if no is None and delay is not None and call.policy.pushback.forbids(delay):
            no = Outcome.PUSHBACK_TOO_LONG
        if no is None and call.deadline is not None and self.due > call.deadline + EPSILON:
            no = Outcome.DEADLINE
        if no is None:
            if delay is not None:
                self._pushed_until = max(self._pushed_until, now + delay)
            return Next(self.due, price or 0.0)
        if no is not Outcome.ATTEMPTS_EXHAUSTED:
            self.stopped = no
        return no


class HedgedFlow(SequentialFlow):
    """The flow of several attempts at a time (gRPC A6): after a delay or a failure, the next attempt is sent while the
    others go on.
    """

    __slots__ = ()

    def needs_no_buffer(self, call: CallState) -> bool:
        """Whether the request's body needs no buffer, because all attempts read it at the same time as it comes. True
        only with `hedging_delay: 0s`, once all attempts have been sent.
        """
        state = call.state
        all_gone = type(state) is Flying and bool(state.flights) and state.planned is None
        return all_gone and call.policy.strategy.hedging_delay == 0

    def shares_body(self, call: CallState) -> bool:
        """Let the call go on without the buffer that the request's body has outgrown, and return True, if all attempts
        read the body as it comes. Otherwise return False.
        """
        if not self.needs_no_buffer(call):
            return False
        self.hedges(call).shared = True
        return True

    def shared_body(self, call: CallState) -> bool:
        """Whether the request's body has outgrown its buffer, and all attempts read it as it comes."""
        return call.plan is not None and self.hedges(call).shared

    def holds_answer(self, call: CallState) -> bool:
        """Return True: the answer that is being judged is kept, to be delivered if all attempts fail."""
        return True

    def may_go_alone(self, call: CallState, verdict: Verdict) -> bool:
        """Return False: after a 421, a hedged call is not sent again on a connection of its own. Only the policy's list
        `non_fatal` decides whether a hedged call goes on after an answer.
        """
        return False

    def hedges(self, call: CallState) -> Hedged:
        """The call's plan for hedged attempts; it is made here if there is none yet."""
        plan = call.plan
        if plan is None:
            plan = call.plan = Hedged()
        assert isinstance(plan, Hedged)
        return plan

    def launched(self, call: CallState, flight: Flight, now: float) -> Actions:
        """The actions that send the attempt `flight`, and with it the next hedges that are due at the same time."""
        state, attempt = call.state, flight.attempt
        discarded: Actions = ()
        if type(state) is Flying:
            state.flights[attempt] = flight
        else:
            state = call.state = Flying({attempt: flight})
            if attempt == call.earlier + 1:  # the last answer of another upstream was held until now
                discarded, call.failure = call.discard(), None
        planned = state.planned = self.hedges(call).after_launch(call, now)
        launch = Launch(attempt, False, flight.endpoint, flight.key)
        if planned is None:
            return (*discarded, launch)
        # A hedge without a delay is sent inside the step of the one before; an alarm goes on before the stack is deep.
        at_once = planned.due <= now + EPSILON and attempt % _AT_ONCE
        return (*discarded, launch, *(self._send(call, planned, now) if at_once else (WakeAt(planned.due),)))

    def due(self, call: CallState, planned: Next, now: float) -> Actions:
        """Pay for and send the planned hedge, which is due. An attempt that was paid for before a gate held it is only
        sent. So is an attempt in place of one that does not count, such as an outage's probe that was not processed.
        """
        payment = call.next_attempt.payment
        is_first = call.attempts - call.spared == call.earlier
        if is_first or (payment is not None and payment.price is not None):
            return self.admit(call, planned, now)
        return self._send(call, planned, now)

    def admit(self, call: CallState, planned: Next, now: float) -> Actions:
        """Launch the planned attempt, which is due and paid for, or wait if a gate holds it. If a gate refuses it, the
        attempts in flight go on, and the call ends only if there are none.
        """
        state = call.state
        if type(state) is not Flying or not state.flights:
            return SequentialFlow.admit(self, call, planned, now)
        state.planned = planned
        return self._pass_gates(call, call.next_attempt.payable(), planned, True, now)

    def granted_early(self, call: CallState, planned: Next, now: float) -> Actions:
        """Give back the price of a hedge that the bucket has granted too early, because a pushback has meanwhile
        delayed the hedge: it is paid for when it is due.
        """
        call.next_attempt.give_back(now)
        return self.wait(call, planned, now)

    def succeeded(self, call: CallState, attempt: int, now: float) -> Actions:
        """The actions that deliver the successful answer to the attempt with the number `attempt`, and cancel the other
        attempts.
        """
        others = call.cancel_all_but(attempt, now)
        call.plan_no_more(now)
        call.state = Delivering(attempt, _SUCCESS)
        return (*others, *call.discard(), Deliver(attempt, _SUCCESS))

    def failed(self, call: CallState, failure: Failure, flight: Flight, began: Name | None, now: float) -> Actions:
        """Bring the next hedge forward after a failed attempt, wait for the attempts in flight, or end the call.
        Returns the actions for the driver. `began` is not used, since the answers to a hedged call begin no cooldown.
        """
        decided = self.hedges(call).after_failure(call, failure, now, self.is_disabled(call))
        if isinstance(decided, Next):
            return self._go_on(call, failure, flight, decided, now)
        note_no(call, failure, flight, decided, now)
        kept = call.keep(failure)
        if not failure.goes_on:
            call.plan_no_more(now)
            return (*kept, *call.cancel_all_but(failure.attempt, now), *self.end(call, decided, now))
        if decided is not Outcome.ATTEMPTS_EXHAUSTED:
            call.plan_no_more(now)
        return kept if call.flies() else (*kept, *self.end(call, decided, now))

    def stay_held(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Hold the call again, first in its queue, because its attempt was an outage's probe and was not processed. If
        another attempt has received a pushback that is not over, the call goes on as after any other failure instead,
        since the first call in the queue is sent at once.
        """
        if self.hedges(call)._pushed_until > now + EPSILON:
            return self.failed(call, failure, flight, None, now)
        return SequentialFlow.stay_held(self, call, failure, flight, now)

    def use_new_key(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Make an attempt that was answered 401 once more, with the new value of its credential, and cancel the other
        attempts, which carry the old value. The 401 is held like any answer of a hedged call.
        """
        kept, others = call.keep(failure), call.cancel_all_but(failure.attempt, now)
        return (*kept, *others, *SequentialFlow.use_new_key(self, call, failure, flight, now))

    def _go_on(self, call: CallState, failure: Failure, flight: Flight, planned: Next, now: float) -> Actions:
        state, payment = call.state, call.next_attempt.payment
        assert type(state) is Flying
        call.note(flight, now, "hedged on", failure, call.reply)
        kept = call.keep(failure)
        state.planned = planned
        if payment is not None and payment.owed is not None:  # the hedge owed for is due
            return kept if state.flights else (*kept, *self.wait(call, planned, now))
        is_due = planned.due <= now
        if not is_due or (payment is not None and payment.price is not None):
            call.next_attempt.give_back(now)  # no call waits for a hedge that is not due; a held one pays again
        if is_due:
            return (*kept, *self._send(call, planned, now))
        return (*kept, *self.wait(call, planned, now))

    def _send(self, call: CallState, planned: Next, now: float) -> Actions:
        """Pay for the hedge `planned`, which is due, and send it if the gates permit. Otherwise let it wait, or send no
        more hedges.
        """
        next_attempt = call.next_attempt
        payment, bucket = next_attempt.payable(), next_attempt.bucket
        if not self._is_within_extra(call, payment, now):
            call.plan_no_more(now)
            return ()
        if bucket is not None and not bucket.affords(planned.price, now):
            return self.no_more(call, Outcome.BUCKET_EMPTY, now)
        return self._pass_gates(call, payment, planned, False, now)

    def _pass_gates(self, call: CallState, payment: Payment, planned: Next, is_paid: bool, now: float) -> Actions:
        """Send the hedge `planned`, which is due, if the gates permit. Otherwise let it wait, or send no more hedges.
        `is_paid`: the hedge is paid for already; if not, it is paid for now.
        """
        next_attempt, flies = call.next_attempt, call.flies()
        only = next_attempt.prefer(call.state, now)
        at, no, why = next_attempt.gates().ask(payment, now, call.deadline, first=False, waits=not flies)
        if no is Outcome.OVERLOADED and flies:
            return self._pass_over(call, now)
        if no is None and at > now and call.deadline is not None and at > call.deadline + EPSILON:
            no = Outcome.DEADLINE
        if no is None and at <= now and not next_attempt.choose(call.state, now, only):
            no = Outcome.CIRCUIT_OPEN
        if no is not None:
            return self.no_more(call, no, now, "" if why in GATES else why)
        if at > now:
            if not flies:
                next_attempt.gates().hold(why, now)
            planned.due, planned.gated = at, True
            return self.wait(call, planned, now, "held")
        if is_paid:
            return self.launch(call, now)
        return self._pay(call, payment, planned, now)

    def _pay(self, call: CallState, payment: Payment, planned: Next, now: float) -> Actions:
        """Take the price of a hedge and send it. If the bucket is kept outside this process, ask it for the price
        first.
        """
        if payment.take(planned.price, now):
            return self.launch(call, now)
        payment.forgo_choice(now)
        limit = now + PATIENCE if call.deadline is None else min(now + PATIENCE, call.deadline)
        if not payment.owe(planned.price, limit, now):
            return self.no_more(call, Outcome.BUCKET_EMPTY, now)
        assert payment.owed is not None  # it was noted just now
        payment.owed.asked = True
        actions = self.wait(call, planned, now)
        if call.next_attempt.payment is not payment:
            return actions  # the waiting room was full
        return (*actions, Ask(planned.price, now))

    def _is_within_extra(self, call: CallState, payment: Payment, now: float) -> bool:
        """Whether the attempt is within `extra`, the policy's bound on hedges. An attempt without another in flight is
        a retry, to which the bound does not apply.
        """
        hedges, share = call.next_attempt.scope.hedges, call.policy.strategy.extra
        return hedges is None or share is None or not call.flies() or payment.take_hedge(hedges, share, now)

    def _pass_over(self, call: CallState, now: float) -> Actions:
        """Skip a hedge that got no place under the concurrency limit: the next one is due after the strategy's delay.
        If the delay is zero, so that all hedges are due at once, send no more hedges.
        """
        state = call.state
        assert type(state) is Flying
        call.next_attempt.give_back(now)
        planned = self.hedges(call).after_launch(call, now)
        if planned is not None and planned.due <= now + EPSILON:
            call.next_attempt.gates().found_no_place = True
            return self.no_more(call, Outcome.OVERLOADED, now)
        state.planned = planned
        return () if planned is None else (WakeAt(planned.due),)

    def no_more(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """Send no more hedges, because of the outcome `no`; the attempts in flight go on. If none is in flight, end the
        call with that outcome. `why`: the reason, for people.
        """
        self.hedges(call).stopped = no
        call.plan_no_more(now)
        if call.flies():
            return ()
        if call.failure is not None and not why:
            why = why_not(call, no, call.failure, now)
        return self.withdraw(call, no, now, why)

    def break_off(self, call: CallState, no: Outcome, because: str, now: float) -> Actions:
        """Cancel the attempts in flight and end the call with the outcome `no`. An answer that is held is delivered,
        since it is better than none. `because`: the reason for people, such as the deadline or the end of the process.
        """
        actions = call.cancel_all_but(0, now, no.value)
        if call.failure is not None and call.failure.status is None:
            call.failure = None
        return (*actions, *self.withdraw(call, no, now, because))


HEDGED = HedgedFlow()


def flow_of(call: CallState, policy: Policy) -> SequentialFlow:
    """The flow of the attempts of a call with this policy."""
    if policy.mode != "enforce":
        return OBSERVED if policy.mode == "observe" else PASSIVE
    strategy = policy.strategy
    if strategy.hedging_delay is not None and _may_be_hedged(call, strategy):
        return HEDGED
    return SEQUENTIAL if strategy.custom is None else PLUGIN


def _may_be_hedged(call: CallState, strategy: Strategy) -> bool:
    """Whether it is safe to send the request several times at once."""
    return strategy.safe_methods or call.policy.classify.unsafe_methods == "always" or call.may_be_hedged()
