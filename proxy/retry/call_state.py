"""The state of a call, and the steps that its events and its flow have in common.

Each part owns its fields: the history, the next attempt, the feedback, the flow and its plan. The state holds the
fields that several of them read.
"""

from __future__ import annotations

from proxy.retry.actions import Actions, Cancel, Discard, Hold, WakeAt
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.buckets import Bucket
from proxy.retry.call_history import note
from proxy.retry.classification import MISDIRECTED
from proxy.retry.credentials import CallKeys
from proxy.retry.environment import Env
from proxy.retry.facts import Failure, Outcome, Reply
from proxy.retry.fallback import Fallbacks
from proxy.retry.next_attempt import NextAttempt
from proxy.retry.plans import CallView, Hedged, Next, Sequential, goes_on
from proxy.retry.reasons import why_not
from proxy.retry.registry import ScopeState
from proxy.retry.request_hints import NO_HINTS
from proxy.retry.states import Done, Flight, Flying, State


class CallState(CallView):
    """The state of one call, and its parts. `failure`: the last failed attempt, while its answer is held; `reply`: the
    last answer that was judged, or is delivered; `delivered`: the attempt whose answer is delivered. `plan` is the
    flow's plan, None until it is needed. `earlier`: the number of attempts that were made at other upstreams before
    this one.
    """

    __slots__ = ("delivered", "env", "failure", "fallbacks", "plan", "state", "upcoming")

    env: Env
    state: State
    failure: Failure | None
    fallbacks: Fallbacks | None
    delivered: Flight | None
    plan: Sequential | Hedged | None
    upcoming: NextAttempt

    # -- what drivers set and read ------------------------------------------------------------------------------------

    def goes_elsewhere(self) -> None:
        """Choose none of the policy's endpoints for this call: it is a tunnel to an authority that its CONNECT names
        and no upstream does.
        """
        self.upcoming.picker = None

    def carry(self, keys: CallKeys[ScopeState]) -> None:
        """Let the call's attempts carry the credentials that `keys`, the call's choice among the policy's credentials,
        picks.
        """
        self.upcoming.carry(keys)

    def forget_alarm(self) -> None:
        """Drop the reference to the driver's alarm function, so that the driver, which has finished with this call, can
        be freed.
        """
        self.upcoming.forget_alarm()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the call; None while it lasts."""
        return self.state.outcome if isinstance(self.state, Done) else None

    @property
    def sent_by(self) -> str:
        """The protocol of the only attempt, whose answer was delivered; "" if the call had more, or its answer is not
        delivered.
        """
        return self.delivered.protocol if self.delivered is not None and self.attempts == 1 else ""

    @property
    def app_retry(self) -> bool:
        """Whether this call is a retry by the app itself."""
        return self.hints is not NO_HINTS and self.hints.retries_itself

    @property
    def held_by(self) -> str:
        """The gate that holds, or held, the attempt that is next or in flight; "" for none."""
        admission = self.upcoming.admission
        return admission.held_by if admission is not None else ""

    @property
    def was_cooled(self) -> bool:
        """Whether a cooldown has held the call."""
        admission = self.upcoming.admission
        return admission is not None and admission.was_cooled

    @property
    def kept_off(self) -> tuple[float, float]:
        """The seconds left of the cooldown that ended the call, and the seconds that its last answer asked for; each 0
        for none.
        """
        asked, admission = self.failure.pushback.delay if self.failure is not None else None, self.upcoming.admission
        return (admission.cooling[0] if admission is not None else 0.0), asked or 0.0

    # -- steps that a flow asks for -----------------------------------------------------------------------------------

    def launch(self, now: float) -> Actions:
        """Send the next attempt."""
        raise NotImplementedError

    def admit(self, planned: Next, now: float) -> Actions:
        """Launch the planned attempt, which is due, or wait if a gate holds it."""
        raise NotImplementedError

    def end(self, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`; `why` gives the reason in words, if the outcome needs one."""
        raise NotImplementedError

    def withdraw(self, no: Outcome, now: float, why: str = "") -> Actions:
        """End the call with the outcome `no`, although an attempt was granted: that attempt is not sent."""
        raise NotImplementedError

    # -- what a plan may know -----------------------------------------------------------------------------------------

    @property
    def scope(self) -> ScopeState:
        """The state that calls of this scope share."""
        return self.upcoming.scope

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that retries are paid from; None for none."""
        return self.upcoming.bucket

    @property
    def found_no_place(self) -> bool:
        """Whether the call ended because no place among the attempts under way became free for it."""
        admission = self.upcoming.admission
        return admission is not None and admission.found_no_place

    def hedging_delay(self, now: float) -> float | None:
        """Seconds from one hedge to the next; None while the strategy asks for a percentile and there is none."""
        strategy, hedges = self.policy.strategy, self.upcoming.scope.hedges
        if strategy.hedging_percentile is None or hedges is None:
            return strategy.hedging_delay
        return hedges.delay(strategy.hedging_percentile, now)

    def named_wait(self, failure: Failure, now: float) -> tuple[bool, float | None]:
        """Whether the next attempt is sent at once, and if not, the delay in seconds that the upstream named (None if
        none): at once after a 421 without a delay, else as the choice of credentials says.
        """
        if failure.verdict is MISDIRECTED and failure.pushback.delay is None:
            return True, None
        keys = self.upcoming.keys
        return (False, failure.pushback.delay) if keys is None else keys.wait_after(failure, now)

    # -- attempts in flight, and the answer that is held --------------------------------------------------------------

    def in_flight(self, attempt: int) -> Flight | None:
        """The flight of this attempt; None if it is not in flight."""
        state = self.state
        return state.flights.get(attempt) if type(state) is Flying else None

    def flies(self) -> bool:
        """Whether any attempt is in flight."""
        state = self.state
        return type(state) is Flying and bool(state.flights)

    def expected(self) -> Next | None:
        """The next attempt: the retry that is waited for, or the hedge that is to be sent beside the attempts in
        flight; None if none is planned.
        """
        state = self.state
        return state.planned if type(state) is Flying else state if type(state) is Next else None

    def cancel_all_but(self, attempt: int, now: float, decision: str = "cancelled") -> Actions:
        """Cancel all attempts in flight but this one; the cancelled count neither as success nor as failure, and
        `decision` is their record's. Returns the actions for it.
        """
        state = self.state
        assert type(state) is Flying
        losers = [flight for number, flight in state.flights.items() if number != attempt]
        for flight in losers:
            del state.flights[flight.attempt]
            flight.cancel(now)
            self.note(flight, now, decision)
        return tuple([Cancel(flight.attempt) for flight in losers])

    def keep(self, failure: Failure) -> Actions:
        """Hold the latest failure's answer, and drop the answer held before; if the failure is a fault, which has no
        answer, keep the answer held before.
        """
        before = self.discard()
        if failure.status is not None or not before:
            self.failure = failure
        return () if failure.status is None else (*before, Hold(failure.attempt))

    def discard(self) -> Actions:
        """Discard the answer that is held, if there is one."""
        failure = self.failure
        return () if failure is None or failure.status is None else (Discard(failure.attempt),)

    def wait(self, planned: Next, now: float, place: str = "backoff") -> Actions:
        """Wait for an attempt that is due later. If no attempt is in flight, the call takes a place in the waiting
        room; `place` is the reason, "backoff" or "held".
        """
        if not self.flies():
            self.state = planned
            if not self.upcoming.payable().wait(place):
                return self.withdraw(Outcome.OVERLOADED, now)
        payment = self.upcoming.payment
        return (WakeAt(planned.due if payment is None or payment.owed is None else payment.limit),)

    def plan_no_more(self, now: float) -> None:
        """Plan no hedge beside the attempts in flight."""
        state = self.state
        if type(state) is Flying and state.planned is not None:
            state.planned = None
            self.upcoming.give_back(now)

    # -- what is written down -----------------------------------------------------------------------------------------

    def note(
        self, flight: Flight, now: float, decision: str, failure: Failure | None = None, reply: Reply | None = None
    ) -> AttemptRecord:
        """Record the end of an attempt, and the decision after it. `reply`: the last answer that was judged."""
        record = note(self.history, flight, now, decision, failure, reply)
        if self.fallbacks is not None and self.fallbacks.has_gone:
            record.upstream, record.route = self.policy.upstream, self.policy.route
        return record

    def why_not(self, no: Outcome, failure: Failure, now: float, delivered: bool = False) -> str:
        """Why no other attempt follows this failure, in words for people. `no`: the outcome that ends the call;
        `delivered`: the failed attempt's answer went to the app.
        """
        due = 0.0 if self.plan is None else self.plan.due
        return why_not(no, failure, self, now, due=due, goes_on=goes_on(self, failure), delivered=delivered)

    def note_no(self, failure: Failure, flight: Flight, no: Outcome, now: float, delivered: bool = False) -> None:
        """Record the last attempt, and in words why no other follows it; `no` is the outcome that refuses one."""
        why = self.why_not(no, failure, now, delivered)
        self.note(flight, now, no.value, failure, self.reply).why = why
