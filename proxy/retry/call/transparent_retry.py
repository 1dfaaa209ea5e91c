"""The transparent retry of a call: an attempt that was not processed is sent again at once, without being counted
(contract, section 4, safety 1).
"""

from __future__ import annotations

from proxy.retry.answers.classification import classify_fault
from proxy.retry.call.actions import Actions, Launch
from proxy.retry.call.call_state import CallState
from proxy.retry.call.feedback import report_resent
from proxy.retry.call.flows import SequentialFlow
from proxy.retry.call.states import Flight
from proxy.retry.facts import Fault, Progress


class TransparentRetry:
    """The transparent retry of a call, of which each call may have only one. There are three objects of this class,
    which all calls share, one for each state. AVAILABLE: the retry may be made. PROCESSED: it may be made, except after
    a refused stream, since an attempt may have been processed. USED: it has been made.
    """

    __slots__ = ("_state",)

    def __init__(self, state: str) -> None:
        self._state = state

    def follows(self, call: CallState, flow: SequentialFlow, flight: Flight, fault: Fault, now: float) -> bool:
        """Whether the attempt `flight`, which failed with `fault` before it was answered, is to be sent again at once,
        as the call's transparent retry.
        """
        return self._is_free(call, flow, fault) and not _is_turned_away(call, flight, fault, now)

    def _is_free(self, call: CallState, flow: SequentialFlow, fault: Fault) -> bool:
        """Whether the call's only transparent retry has not been made yet, and sending the attempt again can't repeat
        what was carried out.
        """
        if self is USED or call.committed or flow.shared_body(call):
            return False
        if fault.progress is Progress.NEVER_SENT:
            return True
        if fault.progress is Progress.REFUSED:
            return self is not PROCESSED
        return fault.reused and call.is_idempotent()

    def send(self, call: CallState, flight: Flight, fault: Fault, now: float) -> Actions:
        """Send the same attempt again on a fresh connection. The caller then has to set the call's state to USED."""
        keys = call.next_attempt.keys
        call.note(flight, now, "transparent").record_fault(fault)
        if call.fallbacks is not None:
            call.fallbacks.attempt_failed(fault, classify_fault(call.policy.classify, call.request, fault))
        report_resent(call.next_attempt, flight, now)
        flight.since = now
        if fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            call.ambiguous = True
            if keys is not None:
                keys.bind()
        endpoint = call.next_attempt.take_again(flight, call.state, fault, now)
        return (Launch(flight.attempt, fresh=True, endpoint=endpoint, key=flight.key),)


AVAILABLE, PROCESSED, USED = map(TransparentRetry, ("available", "processed", "used"))


def _is_turned_away(call: CallState, flight: Flight, fault: Fault, now: float) -> bool:
    """Whether an attempt that could not connect may not be sent again at once, because it was a probe. Two kinds of
    probes are meant: the probe of an outage that turns other calls away, and the probe of one endpoint among several
    when the call can't be sent to any other. If such an attempt were sent again, it would reach an endpoint that is
    out, without being the one probe that the endpoint is allowed.
    """
    if fault.progress is not Progress.NEVER_SENT or fault.reused or flight.traffic is None:
        return False
    next_attempt = call.next_attempt
    governor = next_attempt.scope.governor
    if governor.turns_away(flight, now):
        return True
    several = next_attempt.picker is not None and next_attempt.picker.several
    return several and governor.is_probe(flight) and not next_attempt.is_free_elsewhere(now)
