"""The flows of a call's attempts: one after another, or one alone if the policy observes or is off. Hedged attempts
have a flow of their own (`proxy.retry.hedged_flow`).

A flow has no memory of its own (the call's `plan` is its memory), so all calls share one. The flow decides, by its
plan, what a launch, a success and a failure lead to; the price of an attempt is taken here, at once after the last
check has passed. A retry is paid for before it is waited for. A hedge is paid for when it is due, and no cooldown holds
it.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.actions import Actions, Ask, Cancel, Deliver, Discard, Hold, Launch, WakeAt
from proxy.retry.call_history import revise
from proxy.retry.call_state import CallState
from proxy.retry.caller import Name
from proxy.retry.classification import MISDIRECTED
from proxy.retry.endings import end_here, finish, go_elsewhere, way_elsewhere
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Outcome, Verdict
from proxy.retry.feedback import learn
from proxy.retry.instants import EPSILON
from proxy.retry.key_files import RENEWED
from proxy.retry.plans import Sequential, goes_on
from proxy.retry.plugins import CustomToken
from proxy.retry.reasons import about
from proxy.retry.refusals import why_not
from proxy.retry.request_hints import NO_HINTS
from proxy.retry.states import Delivering, Flight, Flying, Next

_SUCCESS = Outcome.SUCCESS
_LAUNCH_FIRST: Actions = (Launch(1),)
#: Made ready for the first few attempts, by number: few calls make more. None of them is changed.
_FEW = range(6)
_DELIVERING = [Delivering(attempt, _SUCCESS) for attempt in _FEW]
_DELIVER: list[Actions] = [(Deliver(attempt, _SUCCESS),) for attempt in _FEW]
_AGAIN: list[Actions] = [(Discard(attempt - 1), Launch(attempt)) for attempt in _FEW]  # the answer before was held


class SequentialFlow:
    """The flow of attempts one after another: none is sent while another is in flight."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """Whether retries are ruled out, by the policy's mode or by X-Retry-Disable."""
        return call.hints is not NO_HINTS and call.hints.disabled

    def cools(self, call: CallState) -> bool:
        """Whether cooldowns apply to the call: they hold it, and its answers can begin one."""
        return call.policy.pushback.cooldown != "off" and not self.is_disabled(call)

    def needs_no_buffer(self, call: CallState) -> bool:
        """False: an attempt may follow, so the body is kept for it. (True, in another flow: all attempts are sent side
        by side and read the body as it comes, so that a body of any size needs no buffer.)
        """
        return False

    def shares_body(self, call: CallState) -> bool:
        """Let the call go on although the request's body has outgrown its buffer, if all its attempts read the body as
        it comes, and return True. In this flow they do not: only one attempt can read the rest of the body, so False is
        returned.
        """
        return False

    def shared_body(self, call: CallState) -> bool:
        """Whether the request's body outgrew its buffer and is being read by several attempts as it comes; never in
        this flow.
        """
        return False

    def holds_answer(self, call: CallState) -> bool:
        """Whether the driver holds the last failed answer already, because the call waits; if not, an action has to ask
        the driver to hold it.
        """
        return type(call.state) is not Flying

    def launched(self, call: CallState, flight: Flight, now: float) -> Actions:
        """The actions that send an attempt, after which the call is `Flying`."""
        attempt = flight.attempt
        call.state = Flying({attempt: flight})
        if attempt == 1 and flight.endpoint is None and flight.key is None:
            return _LAUNCH_FIRST
        failure, call.failure = call.failure, None
        alone = failure is not None and failure.verdict is MISDIRECTED
        held = 0 if failure is None or failure.status is None else failure.attempt
        is_simple = not alone and flight.endpoint is None and flight.key is None
        if is_simple and held and held == attempt - 1 and attempt < len(_AGAIN):
            return _AGAIN[attempt]
        launch = Launch(attempt, alone, flight.endpoint, flight.key, alone)
        return (Discard(held), launch) if held else (launch,)

    def may_go_alone(self, call: CallState, verdict: Verdict) -> bool:
        """Whether a 421 may be followed by an attempt on a connection of its own: once in a call, unless a rule classed
        the 421 as fatal or as a success (`verdict`).
        """
        if verdict.cls in (Class.SUCCESS, Class.FATAL):
            return False
        return 421 not in [record.status for record in call.history]

    def begin(self, call: CallState, now: float) -> Actions:
        """Begin the call: send its first attempt, or wait if a gate holds it."""
        next_attempt = call.next_attempt
        if next_attempt.scope.hedges is not None:
            next_attempt.scope.hedges.began(now)
        if next_attempt.picker is None and next_attempt.scope.admits(now):
            return self.launch(call, now)
        return self.admit(call, Next(now), now)

    def settle(self, call: CallState, expected: Next, now: float) -> Actions:
        """Try to pay for the attempt `expected`, whose price the bucket outside this process has not granted yet. Admit
        the attempt if this process has the tokens by now; end the call if the bucket has refused, or if its answer is
        late; else go on waiting for its answer.
        """
        payment = call.next_attempt.payment
        owed = None if payment is None else payment.owed
        assert payment is not None and owed is not None  # the price is owed
        if payment.pay(now):
            return self.admit(call, expected, now)
        if call.deadline is not None and now >= call.deadline - EPSILON:
            why = "the store that keeps the bucket did not answer in time"
            return self.no_more(call, Outcome.DEADLINE, now, why)
        if not owed.asked or now >= owed.limit - EPSILON:
            why = "the store that keeps the bucket did not grant it"
            return self.no_more(call, Outcome.BUCKET_EMPTY, now, why)
        return (WakeAt(owed.limit if call.deadline is None else min(owed.limit, call.deadline)),)

    def due(self, call: CallState, planned: Next, now: float) -> Actions:
        """Ask the gates for the planned attempt, which is paid for and whose time has come. Returns the actions that
        send it, let it wait, or end the call.
        """
        return self.admit(call, planned, now)

    def granted_early(self, call: CallState, planned: Next, now: float) -> Actions:
        """Take note that the bucket granted the planned attempt's price before the attempt is due; nothing needs to be
        done in this flow.
        """
        return ()

    def succeeded(self, call: CallState, attempt: int, now: float) -> Actions:
        """The actions that deliver the successful answer to the attempt with the number `attempt`."""
        if attempt < len(_DELIVER):
            call.state = _DELIVERING[attempt]
            return _DELIVER[attempt]
        call.state = Delivering(attempt, _SUCCESS)
        return (Deliver(attempt, _SUCCESS),)

    def sequential(self, call: CallState) -> Sequential:
        """The call's plan for attempts one after another, made when it is needed."""
        if call.plan is None:
            call.plan = Sequential(call.policy.strategy, call.next_attempt.env.rng)
        plan: Sequential = call.plan
        return plan

    def decide(self, call: CallState, failure: Failure, on: bool, now: float) -> Next | Outcome:
        """Ask the plan for a retry, and pay for it. `on`: the failure is retryable. Returns the attempt that is
        granted, or the outcome that refuses it.
        """
        decided = self.sequential(call).after_failure(call, failure, now, on, self.is_disabled(call))
        return call.next_attempt.pay_for(decided, now) if isinstance(decided, Next) else decided

    def failed(
        self, call: CallState, failure: Failure, flight: Flight, began: Name | None, on: bool, now: float
    ) -> Actions:
        """Grant and pay for another attempt after a failed one, or end the call. `on`: the failure is retryable;
        `began`: the name of the group of calls whose cooldown the failure's answer began, or None.
        """
        decided = self.decide(call, failure, on, now)
        call.failure = failure
        if not isinstance(decided, Next):
            note_no(call, failure, flight, decided, now)
            return self.end(call, decided, now)
        next_attempt, planned = call.next_attempt, decided
        if began is not None or next_attempt.keys is not None:
            self._change_key(call, failure, planned, began, now)
        call.note(flight, now, "retried", failure, call.reply).delay = planned.due - now
        payment = next_attempt.payment
        assert payment is not None  # the price was paid, or is owed
        if payment.owed is None and planned.due <= now:
            return self.admit(call, planned, now)
        next_attempt.forget_gates()
        call.state = planned
        actions: Actions = (WakeAt(planned.due),)
        if payment.owed is not None:
            payment.owed.asked = True
            actions = (WakeAt(planned.due), Ask(payment.owed.price, planned.due))
        return actions if failure.status is None else (Hold(failure.attempt), *actions)

    def _change_key(self, call: CallState, failure: Failure, decided: Next, began: Name | None, now: float) -> None:
        """Choose the credential for `decided`, the next attempt. `began`: the name of the group of calls whose cooldown
        the failure's answer began, None for none; the cooldown's first place is reserved for this attempt, unless it
        goes elsewhere: with another credential, or at once to another endpoint.
        """
        next_attempt = call.next_attempt
        keys = next_attempt.keys
        renewed = keys is not None and keys.renew(failure, now)
        goes_elsewhere = decided.due <= now and next_attempt.another_at_once(failure, now)
        if began is not None and (renewed or goes_elsewhere):  # its first place is for calls that go where it was named
            next_attempt.gates().met(began)
        elif began is not None:
            next_attempt.gates().claim_place(began, decided.due)
        if keys is not None and renewed:
            next_attempt.pass_gates_of(keys, now)

    def stay_held(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Hold the call again, first in its queue: its attempt was an outage's probe, and was not processed (contract,
        section 14). The attempt does not count for `max_attempts`, and its price pays for the next one.
        """
        call.plan_no_more(now)
        call.keep(failure)  # a fault, which has no answer
        call.spared += 1
        call.note(flight, now, "probed", failure)
        return self.admit(call, Next(now, call.next_attempt.hold_again(flight, now)), now)

    def use_new_key(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Make an attempt that was answered 401 once more, with the new value of its credential. The attempt does not
        count for `max_attempts`, and pays no price but that of rate buckets (contract, section 16, "Key files").
        """
        call.plan_no_more(now)
        call.failure = failure
        call.spared += 1
        call.note(flight, now, RENEWED, failure, call.reply)
        return self.admit(call, Next(now), now)

    def no_more(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`, since the attempt that was waited for is not sent. `why`: the reason, for
        people.
        """
        return self.withdraw(call, no, now, why)

    def break_off(self, call: CallState, no: Outcome, because: str, now: float) -> Actions:
        """Cancel the attempt in flight and end the call with the outcome `no`, because of the deadline or the end of
        the process; `because` says which.
        """
        state = call.state
        assert type(state) is Flying
        ((attempt, flight),) = state.flights.items()
        flight.cancel(now)
        learn(call.next_attempt, False, now)
        call.next_attempt.dropped(flight, now)
        call.note(flight, now, no.value).because = because
        if flight.reply is not None and flight.body_wait is None:
            unnamed = Verdict(Class.UNNAMED, "its body did not arrive in time")
            call.failure = Failure(attempt, unnamed, NO_PUSHBACK, status=flight.reply.status)
            return self.end(call, no, now)
        return (Cancel(attempt), *self.end(call, no, now, "" if no is Outcome.DEADLINE else because))

    # -- steps that the machine and the flows take --------------------------------------------------------------------

    def launch(self, call: CallState, now: float) -> Actions:
        """Send the next attempt, with the payment that was taken for it."""
        attempt = call.attempts = call.attempts + 1
        return self.launched(call, call.next_attempt.take(attempt, call.state, now), now)

    def admit(self, call: CallState, planned: Next, now: float) -> Actions:
        """Launch the planned attempt, which is due, or wait if a gate holds it."""
        next_attempt = call.next_attempt
        if next_attempt.keys is not None:
            next_attempt.replace_lost_key(now)
        if next_attempt.is_ungated(planned, now):
            if next_attempt.choose(call.state, now):
                return self.launch(call, now)
            return self.withdraw(call, Outcome.CIRCUIT_OPEN, now, next_attempt.why_no_endpoint(now))
        if next_attempt.admission is None:
            next_attempt.cools = self.cools(call)
        first = call.attempts == call.earlier
        at, no, why = next_attempt.ask(planned, call.state, now, call.deadline, first=first)
        if no is not None:
            return self.withdraw(call, no, now, why)
        if at <= now:
            return self.launch(call, now)
        kept = None if self.holds_answer(call) else call.failure
        planned.due, planned.gated = at, True
        call.state = planned
        if kept is not None and kept.status is not None:
            return (Hold(kept.attempt), WakeAt(at))
        return (WakeAt(at),)

    def wait(self, call: CallState, planned: Next, now: float, reason: str = "backoff") -> Actions:
        """Wait for the attempt `planned`, which is due later. If no attempt is in flight, the call takes a place in the
        waiting room; `reason` says what it waits for: "backoff", or "held" if a gate holds it.
        """
        if not call.flies():
            call.state = planned
            if not call.next_attempt.payable().wait(reason, call.next_attempt.admission):
                return self.withdraw(call, Outcome.OVERLOADED, now)
        payment = call.next_attempt.payment
        return (WakeAt(planned.due if payment is None or payment.owed is None else payment.owed.limit),)

    def withdraw(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no` although an attempt was granted: the attempt is not sent, and its payment
        is given back. `why`: the reason, for people.
        """
        call.next_attempt.give_back(now)
        if call.attempts > call.earlier:
            revise(call.history, no.value, why)
        return self.end(call, no, now, why)

    def end(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`: the call goes on at another upstream, the held answer is delivered, or
        the proxy answers itself. An answer that broke while it was delivered, and whose rest is not asked for, ends the
        call as `committed` instead. `why`: the reason, for people.
        """
        if call.resumption is not None:
            return finish(call, Outcome.COMMITTED, now)
        if call.fallbacks is not None and not self.shared_body(call):
            entry = way_elsewhere(call, no, now)
            if entry is not None:
                return go_elsewhere(call, entry, no, now, self.holds_answer(call))
        return end_here(call, no, now, why)


def explain_no(call: CallState, no: Outcome, failure: Failure, now: float, delivered: bool = False) -> str:
    """Why no other attempt follows this failure, in words for people. `no`: the outcome that ends the call;
    `delivered`: the failed attempt's answer went to the app.
    """
    due = 0.0 if call.plan is None else call.plan.due
    return why_not(no, failure, call, now, due=due, goes_on=goes_on(call, failure), delivered=delivered)


def note_no(
    call: CallState, failure: Failure, flight: Flight, no: Outcome, now: float, delivered: bool = False
) -> None:
    """Record the last attempt with the reason, in words, why no other attempt follows it. `no`: the outcome that ends
    the call; `delivered`: the attempt's answer went to the app.
    """
    why = explain_no(call, no, failure, now, delivered)
    call.note(flight, now, no._value_, failure, call.reply).why = why  # `value` is a property of Python's


class PluginFlow(SequentialFlow):
    """The flow of attempts one after another by a user's own strategy, which may delay the first attempt too."""

    __slots__ = ()

    def begin(self, call: CallState, now: float) -> Actions:
        """Begin the call: ask the strategy for a token, which names the delay of the first attempt."""
        if call.next_attempt.scope.hedges is not None:
            call.next_attempt.scope.hedges.began(now)
        token = CustomToken(call.policy.strategy.custom, call.next_attempt.scope.value)
        self.sequential(call).plugin = token
        first = Next(now + token.initial_delay)
        if first.due <= now:
            return self.admit(call, first, now)
        if call.deadline is not None and first.due > call.deadline + EPSILON:
            return self.end(call, Outcome.DEADLINE, now)
        return self.wait(call, first, now)


class PassiveFlow(SequentialFlow):
    """The flow of one attempt alone: the policy's mode is off."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """True: this mode has no retries."""
        return True

    def begin(self, call: CallState, now: float) -> Actions:
        """Send the only attempt at once: in this mode no gate holds it."""
        return self.launch(call, now)


class ObservedFlow(PassiveFlow):
    """The flow of one attempt alone, with a record of what would have followed it: the policy's mode is observe."""

    __slots__ = ()

    def decide(self, call: CallState, failure: Failure, on: bool, now: float) -> Next | Outcome:
        """Find out whether a retry would have been granted, and paid from the bucket that only this mode uses, and note
        that in the record. `on`: the failure is retryable. Returns the outcome that refuses the retry, since none is
        sent in this mode.
        """
        plan, next_attempt = self.sequential(call), call.next_attempt
        real = plan.after_failure(call, failure, now, on, True)
        if real is not Outcome.DISABLED or call.hints.disabled:
            return real  # a check that comes before the mode's refuses, in every mode
        decided = plan.after_failure(call, failure, now, on, False)
        if isinstance(decided, Next):
            decided = next_attempt.pay_for(decided, now)
            if next_attempt.payment is not None:
                next_attempt.payment.leave_room()
            next_attempt.payment = None
        if isinstance(decided, Next):
            what = f"would retry after {about(decided.due - now)}"
        else:
            what = f"would not retry ({decided.value})"
        failure.verdict = replace(failure.verdict, because=f"{failure.verdict.because}; observed: {what}")
        return Outcome.DISABLED


SEQUENTIAL, PLUGIN, PASSIVE, OBSERVED = SequentialFlow(), PluginFlow(), PassiveFlow(), ObservedFlow()
