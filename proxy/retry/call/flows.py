"""The flow of attempts that follow one after another. Hedged attempts have a flow of their own
(`proxy.retry.call.hedged_flow`), and so have calls of one attempt (`proxy.retry.call.single_flows`).

A flow keeps nothing itself (it keeps it in the call's `plan`), so all calls share one flow object. The plan
(`proxy.retry.call.sequential_plan`) says when the next attempt is due. The flow takes the price of the attempt that the
plan grants at once after the plan's last check: a retry is paid for before its wait begins.
"""

from __future__ import annotations

from proxy.retry.answers.classification import MISDIRECTED
from proxy.retry.call.actions import Actions, Ask, Cancel, Deliver, Discard, Hold, Launch, WakeAt
from proxy.retry.call.call_history import revise
from proxy.retry.call.call_state import CallState
from proxy.retry.call.endings import end_here, finish, go_elsewhere, way_elsewhere
from proxy.retry.call.feedback import learn
from proxy.retry.call.key_files import RENEWED
from proxy.retry.call.reasons import NO_LONGER_SAFE, about, past_deadline
from proxy.retry.call.refusals import note_no
from proxy.retry.call.request_hints import NO_HINTS
from proxy.retry.call.sequential_plan import Sequential
from proxy.retry.call.states import Delivering, Flight, Flying, Next
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Outcome, Verdict
from proxy.retry.instants import EPSILON
from proxy.retry.plugins import CustomToken
from proxy.retry.weather.caller import Name

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS = Outcome.SUCCESS
_LAUNCH_FIRST: Actions = (Launch(1),)
#: Made ready for the first few attempts, by number: few calls make more. None of them is changed.
_FEW = range(6)
_DELIVERING = [Delivering(attempt, _SUCCESS) for attempt in _FEW]
_DELIVER: list[Actions] = [(Deliver(attempt, _SUCCESS),) for attempt in _FEW]
_HELD = [Hold(attempt) for attempt in _FEW]
_AGAIN: list[Actions] = [(Discard(attempt - 1), Launch(attempt)) for attempt in _FEW]  # the answer before was held


class SequentialFlow:
    """The flow of attempts one after another: no attempt is sent while another is in flight."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """Whether the policy's mode or X-Retry-Disable rules retries out."""
        return call.hints is not NO_HINTS and call.hints.disabled

    def needs_no_buffer(self, call: CallState) -> bool:
        """Return False: another attempt may follow, so the request's body is kept for it. In another flow, all attempts
        may be sent side by side and read the body as it comes; then no buffer is needed, and the result is True.
        """
        return False

    def shares_body(self, call: CallState) -> bool:
        """Return False: when the request's body has outgrown its buffer, only one attempt can read the rest of it. A
        flow whose attempts all read the body as it comes lets the call go on without the buffer, and returns True.
        """
        return False

    def shared_body(self, call: CallState) -> bool:
        """Whether the request's body has outgrown its buffer and several attempts read it as it comes; never in this
        flow.
        """
        return False

    def holds_answer(self, call: CallState) -> bool:
        """Whether the driver already holds the last failed answer, which it does while the call waits. If not, an
        action has to ask the driver to hold it.
        """
        return type(call.state) is not Flying

    def launched(self, call: CallState, flight: Flight, now: float) -> Actions:
        """The actions that send the attempt `flight`. Afterwards the call's state is `Flying`."""
        attempt = flight.attempt
        flying = call.state = Flying.__new__(Flying)
        flying.flights, flying.planned = {attempt: flight}, None
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
        """Whether an attempt on a connection of its own may follow a 421: once in a call, unless a rule classed the 421
        as fatal or as a success (`verdict`).
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
        """Try to pay for the attempt `expected`, whose price the bucket outside this process has not granted yet. If
        this process has the tokens by now, ask the gates for the attempt. If the bucket has refused, or its answer is
        late, end the call. Otherwise go on waiting for the bucket's answer.
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
        """Handle the bucket's grant of the planned attempt's price, which came before the attempt is due; in this flow,
        do nothing.
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
        """The call's plan for attempts one after another; it is made here if there is none yet."""
        plan: Sequential | None = call.plan
        if plan is None:
            plan = call.plan = Sequential.__new__(Sequential)  # past its own constructor, which takes longer
            plan.start(call.policy.strategy, call.next_attempt.env.rng)
        return plan

    def decide(self, call: CallState, failure: Failure, now: float) -> Next | Outcome:
        """Ask the plan for a retry, and pay for it. Returns the attempt that is granted, or the outcome that refuses
        it.
        """
        decided = self.sequential(call).after_failure(call, failure, now, self.is_disabled(call))
        return call.next_attempt.pay_for(decided, now) if isinstance(decided, Next) else decided

    def failed(self, call: CallState, failure: Failure, flight: Flight, began: Name | None, now: float) -> Actions:
        """Grant and pay for another attempt after a failed one, or end the call. Returns the actions for the driver.
        `flight`: the failed attempt. `began`: the name of the lane (the queue of a group of callers) whose cooldown the
        failure's answer began, None for none.
        """
        decided = self.decide(call, failure, now)
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
        attempt, wake, owed = failure.attempt, WakeAt(planned.due), payment.owed
        if owed is not None:
            owed.asked = True
            ask = Ask(owed.price, planned.due)
            return (wake, ask) if failure.status is None else (Hold(attempt), wake, ask)
        if failure.status is None:
            return (wake,)
        return (_HELD[attempt] if attempt < len(_HELD) else Hold(attempt), wake)

    def _change_key(self, call: CallState, failure: Failure, decided: Next, began: Name | None, now: float) -> None:
        """Choose the credential for the next attempt, `decided`. `began`: the name of the lane whose cooldown the
        failure's answer began, None for none. The first place after that cooldown is reserved for the next attempt,
        unless the attempt goes elsewhere: with another credential, or at once to another endpoint.
        """
        next_attempt = call.next_attempt
        keys = next_attempt.keys
        renewed = keys is not None and keys.renew(failure, now)
        picker = next_attempt.picker
        goes_elsewhere = picker is not None and picker.was_pushed_last(decided.due)
        goes_elsewhere = goes_elsewhere or (decided.due <= now and next_attempt.another_at_once(failure, now))
        if began is not None and (renewed or goes_elsewhere):  # its first place is for calls that go where it was named
            next_attempt.gates().met(began)
        elif began is not None:
            next_attempt.gates().claim_place(began, decided.due)
        if keys is not None and renewed:
            next_attempt.pass_gates_of(keys, now)

    def stay_held(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Hold the call again, first in its queue, because its attempt was an outage's probe and was not processed
        (contract, section 14). The attempt does not count for `max_attempts`, and its price pays for the next one.
        """
        call.plan_no_more(now)
        call.keep(failure)  # a fault, which has no answer
        call.spared += 1
        call.note(flight, now, "probed", failure)
        return self.admit(call, Next(now, call.next_attempt.hold_again(flight, now)), now)

    def use_new_key(self, call: CallState, failure: Failure, flight: Flight, now: float) -> Actions:
        """Make an attempt that was answered 401 once more, with the new value of its credential. The answered attempt
        does not count for `max_attempts`, and the new one pays only what rate buckets ask (contract, section 16, "Key
        files").
        """
        call.plan_no_more(now)
        call.failure = failure
        call.spared += 1
        call.note(flight, now, RENEWED, failure, call.reply)
        return self.admit(call, Next(now), now)

    def no_more(self, call: CallState, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`, since the attempt that it waited for is not sent. `why`: the reason, for
        people.
        """
        return self.withdraw(call, no, now, why)

    def break_off(self, call: CallState, no: Outcome, because: str, now: float) -> Actions:
        """Cancel the attempt in flight and end the call with the outcome `no`. `because`: the reason for people, such
        as the deadline or the end of the process.
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
        """Launch the planned attempt, which is due; wait if a gate holds it; end the call if a gate refuses it."""
        next_attempt = call.next_attempt
        if next_attempt.keys is not None:
            left = next_attempt.replace_lost_key(now)
            if left > EPSILON:
                return self._put_off(call, planned, left, now)
        scope = next_attempt.scope
        is_free = next_attempt.admission is None and now <= planned.until + EPSILON
        if is_free and scope.ungated and not scope.governor.holds(now):
            if next_attempt.picker is None or next_attempt.choose(call.state, now):
                return self.launch(call, now)
            if next_attempt.picker.soonest(now) <= 0:
                return self.withdraw(call, Outcome.CIRCUIT_OPEN, now, next_attempt.why_no_endpoint(now))
        first = call.attempts == call.earlier
        at, no, why = next_attempt.ask(planned, call.state, now, call.deadline, first=first)
        if no is not None:
            return self.withdraw(call, no, now, why)
        if at <= now:
            return self.launch(call, now)
        kept = None if self.holds_answer(call) else call.failure
        planned.due, planned.gated = at, bool(why)
        call.state = planned
        if kept is not None and kept.status is not None:
            return (Hold(kept.attempt), WakeAt(at))
        return (WakeAt(at),)

    def _put_off(self, call: CallState, planned: Next, left: float, now: float) -> Actions:
        """Wait for `left` seconds more before the planned attempt, since it carries another credential than it was
        planned with, and an answer to this call named a delay for that one; or end the call, if it can't wait so long.
        """
        due, again = now + left, f"the key that is left may be used again in {about(left)}"
        if call.policy.pushback.forbids(left):
            return self.withdraw(call, Outcome.PUSHBACK_TOO_LONG, now, f"{again}, more than pushback.max_delay")
        if due > planned.until + EPSILON:
            return self.withdraw(call, Outcome.NOT_RETRYABLE, now, NO_LONGER_SAFE)
        if call.deadline is not None and due > call.deadline + EPSILON:
            return self.withdraw(call, Outcome.DEADLINE, now, f"{again}, {past_deadline(left, call.deadline - now)}")
        planned.due, planned.gated = due, False  # the gates of the other key have no say in this wait
        return self.wait(call, planned, now)

    def wait(self, call: CallState, planned: Next, now: float, reason: str = "backoff") -> Actions:
        """Wait for the attempt `planned`, which is due later. If no attempt is in flight, the call takes a place in the
        waiting room. `reason`: what it waits for, "backoff", or "held" if a gate holds it.
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
        """End the call with the outcome `no`. The call goes on at another upstream, or the held answer is delivered, or
        the proxy answers itself. If an answer broke while it was delivered, and its rest could not be fetched, the
        outcome is `committed` instead. `why`: the reason, for people.
        """
        if call.resumption is not None:
            return finish(call, Outcome.COMMITTED, now)
        if call.fallbacks is not None and not self.shared_body(call):
            entry = way_elsewhere(call, no, now)
            if entry is not None:
                return go_elsewhere(call, entry, no, now, self.holds_answer(call))
        return end_here(call, no, now, why)


class PluginFlow(SequentialFlow):
    """The flow of attempts one after another by a user's own strategy, which may delay even the first attempt."""

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


SEQUENTIAL, PLUGIN = SequentialFlow(), PluginFlow()
