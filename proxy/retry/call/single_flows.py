"""The flows of calls that make one attempt, because the policy's mode is `observe` or `off`."""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.call.actions import Actions
from proxy.retry.call.call_state import CallState
from proxy.retry.call.flows import SequentialFlow
from proxy.retry.call.reasons import about
from proxy.retry.call.states import Next
from proxy.retry.facts import Failure, Outcome


class PassiveFlow(SequentialFlow):
    """The flow of a call whose policy has the mode off: one attempt, which no gate holds and no retry follows."""

    __slots__ = ()

    def is_disabled(self, call: CallState) -> bool:
        """Return True, since this mode has no retries."""
        return True

    def begin(self, call: CallState, now: float) -> Actions:
        """Send the only attempt at once: in this mode no gate holds it."""
        return self.launch(call, now)


class ObservedFlow(PassiveFlow):
    """The flow of a call whose policy has the mode observe: one attempt, with a record of what would have followed
    it.
    """

    __slots__ = ()

    def decide(self, call: CallState, failure: Failure, now: float) -> Next | Outcome:
        """Find out whether a retry would have been granted, pay for it from the bucket that only this mode uses, and
        note the result in the record. Returns the outcome that refuses the retry, since this mode sends none.
        """
        plan, next_attempt = self.sequential(call), call.next_attempt
        real = plan.after_failure(call, failure, now, True)
        if real is not Outcome.DISABLED or call.hints.disabled:
            return real  # a check that comes before the mode's refuses, in every mode
        decided = plan.after_failure(call, failure, now, False)
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


PASSIVE, OBSERVED = PassiveFlow(), ObservedFlow()
