"""The flows of a call's attempts: one after another, or hedged; or one alone, if the policy observes or is off.

A flow has no memory of its own (the call's `plan` is its memory), so all calls share one. The flow decides, by its
plan, what a launch, a success and a failure lead to; the price of an attempt is taken here, at once after the last
check has passed. A retry is paid for before it is waited for. A hedge is paid for when it is due, and no cooldown holds
it.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.actions import Actions, Ask, Cancel, Deliver, Discard, Hold, Launch, WakeAt
from proxy.retry.admission import Payment
from proxy.retry.call_state import CallState
from proxy.retry.classification import MISDIRECTED
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Outcome, Verdict
from proxy.retry.feedback import learn
from proxy.retry.next_attempt import PATIENCE
from proxy.retry.plans import EPSILON, Hedged, Next, Sequential
from proxy.retry.plugins import CustomToken
from proxy.retry.reasons import GATES
from proxy.retry.request_hints import NO_HINTS
from proxy.retry.states import Delivering, Flight, Flying

_SUCCESS = Outcome.SUCCESS
_DELIVERING_FIRST = Delivering(1, _SUCCESS)
_LAUNCH_FIRST: Actions = (Launch(1),)
_DELIVER_FIRST: Actions = (Deliver(1, _SUCCESS),)

#: The most hedges without a delay that are sent in one step: each is a few stack frames deeper than the one before.
_AT_ONCE = 100


class SequentialFlow:
    """The flow of attempts one after another: none is sent while another is in flight."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """Whether retries are ruled out, by the policy's mode or by X-Retry-Disable."""
        return call.hints is not NO_HINTS and call.hints.disabled

    def cools(self, call: CallState) -> bool:
        """Whether cooldowns hold the call, and its answers begin cooldowns."""
        return call.policy.pushback.cooldown != "off" and not self.is_disabled(call)

    def needs_no_buffer(self, call: CallState) -> bool:
        """Whether all attempts share the request's stream, so that a body of any size loses nothing."""
        return False

    def shares_body(self, call: CallState) -> bool:
        """Whether the call can go on although the request's body outgrew its buffer; False if only one attempt can have
        the rest of the body.
        """
        return False

    def shared_body(self, call: CallState) -> bool:
        """Whether the body outgrew its buffer, but every attempt that is to be sent shares it."""
        return False

    def holds_answer(self, call: CallState) -> bool:
        """Whether the driver holds the last answer already; if not, an action has to ask it to."""
        return type(call.state) is not Flying

    def launched(self, call: CallState, flight: Flight, now: float) -> Actions:
        """The actions that send an attempt, after which the call is `Flying`."""
        attempt = flight.attempt
        call.state = Flying({attempt: flight})
        if attempt == 1 and flight.endpoint is None and flight.key is None:
            return _LAUNCH_FIRST
        failure, call.failure = call.failure, None
        alone = failure is not None and failure.verdict is MISDIRECTED
        launch = Launch(attempt, alone, flight.endpoint, flight.key, alone)
        if failure is None or failure.status is None:
            return (launch,)
        return (Discard(failure.attempt), launch)

    def may_go_alone(self, call: CallState, verdict: Verdict) -> bool:
        """Whether a 421 is followed by an attempt on a connection of its own. A call gets one such attempt, unless a
        rule classed the 421 as fatal or as a success.
        """
        if verdict.cls in (Class.SUCCESS, Class.FATAL):
            return False
        return 421 not in [record.status for record in call.history]

    def start_plugin(self, call: CallState, now: float) -> Actions:
        """Begin a call with a user's own strategy, which may delay the first attempt."""
        token = CustomToken(call.policy.strategy.custom, call.upcoming.scope.value)
        self.sequential(call).plugin = token
        first = Next(now + token.initial_delay)
        if first.due <= now:
            return call.admit(first, now)
        if call.deadline is not None and first.due > call.deadline + EPSILON:
            return call.end(Outcome.DEADLINE, now)
        return call.wait(first, now)

    def settle(self, call: CallState, expected: Next, now: float) -> Actions:
        """Pay for the planned attempt `expected`, which is due: send it if that is paid, wait for the bucket's answer,
        or end the call.
        """
        payment = call.upcoming.payment
        assert payment is not None  # the price is owed
        if payment.pay(now):
            return call.admit(expected, now)
        if call.deadline is not None and now >= call.deadline - EPSILON:
            why = "the store that keeps the bucket did not answer in time"
            return call.withdraw(Outcome.DEADLINE, now, why)
        if not payment.asked or now >= payment.limit - EPSILON:
            why = "the store that keeps the bucket did not grant it"
            return self.no_more(call, Outcome.BUCKET_EMPTY, now, why)
        return (WakeAt(payment.limit if call.deadline is None else min(payment.limit, call.deadline)),)

    def due(self, call: CallState, planned: Next, now: float) -> Actions:
        """Admit the planned attempt, which was waited for: it is due, and is paid for already."""
        return call.admit(planned, now)

    def granted_early(self, call: CallState, planned: Next, now: float) -> Actions:
        """Do nothing when the bucket grants the planned attempt's price before the attempt is due."""
        return ()

    def succeeded(self, call: CallState, attempt: int, now: float) -> Actions:
        """The actions that deliver a successful answer."""
        if attempt == 1:
            call.state = _DELIVERING_FIRST
            return _DELIVER_FIRST
        call.state = Delivering(attempt, _SUCCESS)
        return (Deliver(attempt, _SUCCESS),)

    def sequential(self, call: CallState) -> Sequential:
        """The call's plan for attempts one after another, made when it is needed."""
        plan = call.plan
        if plan is None:
            plan = call.plan = Sequential(call.policy.strategy, call.env.rng)
        assert isinstance(plan, Sequential)
        return plan

    def decide(self, call: CallState, failure: Failure, on: bool, now: float) -> Next | Outcome:
        """Ask the plan for a retry, and pay for it. `on`: the failure is retryable. Returns the attempt that is
        granted, or the outcome that refuses it.
        """
        decided = self.sequential(call).after_failure(call, failure, now, on, self.is_disabled(call))
        return call.upcoming.pay_for(decided, now) if isinstance(decided, Next) else decided

    def failed(
        self, call: CallState, failure: Failure, flight: Flight, began: bytes | None, on: bool, now: float
    ) -> Actions:
        """Grant and pay for another attempt after a failed one, or end the call. `on`: the failure is retryable;
        `began`: the name of the group of calls whose cooldown the failure's answer began, or None.
        """
        decided = self.decide(call, failure, on, now)
        call.failure = failure
        if not isinstance(decided, Next):
            call.note_no(failure, flight, decided, now)
            return call.end(decided, now)
        upcoming = call.upcoming
        self._change_key(call, failure, decided, began, now)
        call.note(flight, now, "retried", failure, call.reply).delay = decided.due - now
        payment = upcoming.payment
        assert payment is not None  # the price was paid, or is owed
        if payment.owed is None and decided.due <= now:
            return call.admit(decided, now)
        call.state = decided
        actions: Actions = (WakeAt(decided.due),)
        if payment.owed is not None:
            payment.asked = True
            actions = (WakeAt(decided.due), Ask(payment.owed))
        return actions if failure.status is None else (Hold(failure.attempt), *actions)

    def _change_key(self, call: CallState, failure: Failure, decided: Next, began: bytes | None, now: float) -> None:
        """Choose the credential of the next attempt, `decided`; and if the failure began a cooldown, of the group of
        calls named `began`, reserve the cooldown's first place for that attempt, unless it has another credential.
        """
        upcoming = call.upcoming
        keys = upcoming.keys
        renewed = keys is not None and keys.renew(failure, now)
        if began is not None and renewed:  # the cooldown's first place is for calls with the previous credential
            upcoming.gates().met(began)
        elif began is not None:
            upcoming.gates().claim_place(began, decided.due)
        if keys is not None and renewed:
            upcoming.pass_gates_of(keys, now)

    def no_more(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`, since the attempt that was waited for is not sent."""
        return call.withdraw(no, now, why)

    def break_off(self, call: CallState, no: Outcome, because: str, now: float) -> Actions:
        """Cancel the attempt in flight and end the call with the outcome `no`, because of the deadline or the end of
        the process; `because` says which.
        """
        state = call.state
        assert type(state) is Flying
        ((attempt, flight),) = state.flights.items()
        flight.cancel(now)
        learn(call.upcoming, False, now)
        call.upcoming.landed(flight, now, False)
        call.note(flight, now, no.value).because = because
        if flight.reply is not None and flight.look is None:
            unnamed = Verdict(Class.UNNAMED, "its body did not arrive in time")
            call.failure = Failure(attempt, unnamed, NO_PUSHBACK, status=flight.reply.status)
            return call.end(no, now)
        return (Cancel(attempt), *call.end(no, now, "" if no is Outcome.DEADLINE else because))


class PassiveFlow(SequentialFlow):
    """The flow of one attempt alone: the policy's mode is off."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """True: this mode has no retries."""
        return True


class ObservedFlow(PassiveFlow):
    """The flow of one attempt alone, with a record of what would have followed it: the policy's mode is observe."""

    __slots__ = ()

    def decide(self, call: CallState, failure: Failure, on: bool, now: float) -> Next | Outcome:
        """Find out whether a retry would have been granted, with the shadow bucket, and note that in the record.
        Returns the outcome that refuses it, since no retry is sent in this mode.
        """
        plan, upcoming = self.sequential(call), call.upcoming
        real = plan.after_failure(call, failure, now, on, True)
        if real is not Outcome.DISABLED or call.hints.disabled:
            return real  # a check that comes before the mode's refuses, in every mode
        decided = plan.after_failure(call, failure, now, on, False)
        if isinstance(decided, Next):
            decided = upcoming.pay_for(decided, now)
            if upcoming.payment is not None:
                upcoming.payment.leave_room()
            upcoming.payment = None
        if isinstance(decided, Next):
            what = f"would retry after {decided.due - now:.3f} s"
        else:
            what = f"would not retry ({decided.value})"
        failure.verdict = replace(failure.verdict, because=f"{failure.verdict.because}; observed: {what}")
        return Outcome.DISABLED


class HedgedFlow(SequentialFlow):
    """The flow of several attempts at a time (gRPC A6): the next is sent beside the others, after a delay or a
    failure.
    """

    __slots__ = ()

    def cools(self, call: CallState) -> bool:
        """False: cooldowns do not hold a hedged call, and its answers begin none."""
        return False

    def needs_no_buffer(self, call: CallState) -> bool:
        """Whether all attempts share the request's stream: with `hedging_delay: 0s`, once all have been sent."""
        state = call.state
        all_gone = type(state) is Flying and bool(state.flights) and state.planned is None
        return all_gone and call.policy.strategy.hedging_delay == 0

    def shares_body(self, call: CallState) -> bool:
        """Let the call go on without the buffer that the request's body outgrew, if all attempts share the request's
        stream; else return False.
        """
        if not self.needs_no_buffer(call):
            return False
        self.hedges(call).shared = True
        return True

    def shared_body(self, call: CallState) -> bool:
        """Whether the body outgrew its buffer, and the attempts share its stream."""
        return call.plan is not None and self.hedges(call).shared

    def holds_answer(self, call: CallState) -> bool:
        """True: each answer is held as it is judged."""
        return True

    def may_go_alone(self, call: CallState, verdict: Verdict) -> bool:
        """False: hedged attempts are judged by `non_fatal` alone."""
        return False

    def hedges(self, call: CallState) -> Hedged:
        """The call's plan for hedged attempts, made when it is needed."""
        plan = call.plan
        if plan is None:
            plan = call.plan = Hedged()
        assert isinstance(plan, Hedged)
        return plan

    def launched(self, call: CallState, flight: Flight, now: float) -> Actions:
        """The actions that send an attempt, and with it the next hedges that are due at the same time."""
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
        """Pay for and send the planned hedge, which was waited for and is due."""
        if call.attempts == call.earlier:
            return call.admit(planned, now)
        return self._send(call, planned, now)

    def granted_early(self, call: CallState, planned: Next, now: float) -> Actions:
        """Give back the price of a hedge that a pushback has delayed meanwhile: it is paid for when it is due."""
        call.upcoming.give_back(now)
        return call.wait(planned, now)

    def succeeded(self, call: CallState, attempt: int, now: float) -> Actions:
        """The actions that deliver a successful answer, and cancel the attempts beside it."""
        others = call.cancel_all_but(attempt, now)
        call.plan_no_more(now)
        call.state = Delivering(attempt, _SUCCESS)
        return (*others, *call.discard(), Deliver(attempt, _SUCCESS))

    def failed(
        self, call: CallState, failure: Failure, flight: Flight, began: bytes | None, on: bool, now: float
    ) -> Actions:
        """After a failed attempt bring the next hedge forward, wait for the attempts in flight, or end the call. `on`:
        the failure is non-fatal.
        """
        decided = self.hedges(call).after_failure(call, failure, now, on, self.is_disabled(call))
        if isinstance(decided, Next):
            return self._go_on(call, failure, flight, decided, now)
        call.note_no(failure, flight, decided, now)
        kept = call.keep(failure)
        if not on:
            call.plan_no_more(now)
            return (*kept, *call.cancel_all_but(failure.attempt, now), *call.end(decided, now))
        if decided is not Outcome.ATTEMPTS_EXHAUSTED:
            call.plan_no_more(now)
        return kept if call.flies() else (*kept, *call.end(decided, now))

    def _go_on(self, call: CallState, failure: Failure, flight: Flight, planned: Next, now: float) -> Actions:
        state, payment = call.state, call.upcoming.payment
        assert type(state) is Flying
        call.note(flight, now, "hedged on", failure, call.reply)
        kept = call.keep(failure)
        state.planned = planned
        if payment is not None and payment.owed is not None:  # the hedge owed for is due
            return kept if state.flights else (*kept, *call.wait(planned, now))
        if planned.due <= now:
            return (*kept, *self._send(call, planned, now))
        call.upcoming.give_back(now)  # other calls must not wait because of a hedge that is not due
        return (*kept, *call.wait(planned, now))

    def _send(self, call: CallState, planned: Next, now: float) -> Actions:
        """Pay for a hedge that is due, and send it if the gates permit; else wait, or send no more hedges."""
        upcoming, flies = call.upcoming, call.flies()
        payment, bucket = upcoming.payable(), upcoming.bucket
        if not self._is_within_extra(call, payment, now):
            call.plan_no_more(now)
            return ()
        if bucket is not None and not bucket.affords(planned.price, now):
            return self.no_more(call, Outcome.BUCKET_EMPTY, now)
        at, no, why = upcoming.gates().ask(payment, now, call.deadline, first=False, waits=not flies)
        if no is Outcome.OVERLOADED and flies:
            return self._pass_over(call, now)
        if no is None and at > now and call.deadline is not None and at > call.deadline + EPSILON:
            no = Outcome.DEADLINE
        if no is None and at <= now and not upcoming.choose(call.state, now):
            no = Outcome.CIRCUIT_OPEN
        if no is not None:
            return self.no_more(call, no, now, "" if why in GATES else why)
        if at > now:
            if not flies:
                upcoming.gates().hold(why, now)
            planned.due, planned.gated = at, True
            return call.wait(planned, now, "held")
        return self._pay(call, payment, planned, now)

    def _pay(self, call: CallState, payment: Payment, planned: Next, now: float) -> Actions:
        """Take the price of a hedge and send it, or ask the bucket for the price."""
        if payment.take(planned.price, now):
            return call.launch(now)
        payment.forgo_choice(now)
        limit = now + PATIENCE if call.deadline is None else min(now + PATIENCE, call.deadline)
        if not payment.owe(planned.price, limit, now):
            return self.no_more(call, Outcome.BUCKET_EMPTY, now)
        payment.asked = True
        actions = call.wait(planned, now)
        if call.upcoming.payment is not payment:
            return actions  # the waiting room was full
        return (*actions, Ask(planned.price))

    def _is_within_extra(self, call: CallState, payment: Payment, now: float) -> bool:
        """Whether the attempt is within `extra`, the bound on hedges. An attempt without another in flight is a retry,
        to which the bound does not apply.
        """
        hedges, share = call.upcoming.scope.hedges, call.policy.strategy.extra
        return hedges is None or share is None or not call.flies() or payment.take_hedge(hedges, share, now)

    def _pass_over(self, call: CallState, now: float) -> Actions:
        """Skip a hedge that got no place under the concurrency limit: the next is due after the strategy's delay. If
        the delay is zero, so that all hedges are due at once, send no more of them.
        """
        state = call.state
        assert type(state) is Flying
        call.upcoming.give_back(now)
        planned = self.hedges(call).after_launch(call, now)
        if planned is not None and planned.due <= now + EPSILON:
            call.upcoming.gates().found_no_place = True
            return self.no_more(call, Outcome.OVERLOADED, now)
        state.planned = planned
        return () if planned is None else (WakeAt(planned.due),)

    def no_more(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """Send no more hedges, for the reason `no`; the attempts in flight continue. Without any in flight, end the
        call with that outcome.
        """
        self.hedges(call).stopped = no
        call.plan_no_more(now)
        if call.flies():
            return ()
        if call.failure is not None and not why:
            why = call.why_not(no, call.failure, now)
        return call.withdraw(no, now, why)

    def break_off(self, call: CallState, no: Outcome, because: str, now: float) -> Actions:
        """Cancel the attempts in flight and end the call with the outcome `no`; an answer that is held is delivered,
        since it is better than none.
        """
        actions = call.cancel_all_but(0, now, no.value)
        if call.failure is not None and call.failure.status is None:
            call.failure = None
        return (*actions, *call.withdraw(no, now, because))


SEQUENTIAL, PASSIVE, OBSERVED, HEDGED = SequentialFlow(), PassiveFlow(), ObservedFlow(), HedgedFlow()
