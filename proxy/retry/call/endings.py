"""How a call ends that no other attempt follows. There are three ways: it goes on at another upstream, the held answer
goes to the app, or the proxy answers itself. The flow asks for one of these
(`proxy.retry.call.flows.SequentialFlow.end`).
"""

from __future__ import annotations

from proxy.retry.call.actions import Actions, Deliver, FallBack, Finish, Hold
from proxy.retry.call.call_history import note_fallback, note_never_sent
from proxy.retry.call.call_state import CallState
from proxy.retry.call.fallback import GOES_ON
from proxy.retry.call.reasons import own_answer
from proxy.retry.call.states import Delivering, Done, Flying
from proxy.retry.facts import Failure, Outcome
from proxy.retry.instants import EPSILON
from proxy.retry.policies.policy import Fallback

_DONE = {outcome: Done(outcome) for outcome in Outcome}
_FINISH: dict[Outcome, Actions] = {outcome: (Finish(outcome),) for outcome in Outcome}
#: The end of a success, which nearly all calls reach: not looked up each time.
_SUCCESS = Outcome.SUCCESS
_DONE_WELL, _FINISH_WELL = _DONE[_SUCCESS], _FINISH[_SUCCESS]
#: Outcomes by which the proxy itself refuses an attempt. Its answer says so and when to come back, also if an earlier
#: attempt broke: 502 would be that attempt's, and has no Retry-After (contract, sections 4, 5 and 14).
_REFUSED = frozenset({Outcome.RATE_LIMITED, Outcome.COOLING, Outcome.CIRCUIT_OPEN, Outcome.OVERLOADED, Outcome.OUTAGE})


def finish(call: CallState, outcome: Outcome, now: float) -> Actions:
    """End the call with this outcome, and give back everything that it still holds. Returns the actions for the driver.
    The call then drops its alarm, by which it knows its driver, so that the driver can be freed.
    """
    call.state = _DONE_WELL if outcome is _SUCCESS else _DONE[outcome]
    next_attempt, delivered = call.next_attempt, call.delivered
    if next_attempt.admission is not None or next_attempt.payment is not None:
        next_attempt.finish(now)
    next_attempt.alarm = None
    if next_attempt.admission is not None:
        next_attempt.admission.alarm = None
    if delivered is not None and delivered.payment is not None:
        delivered.payment.land(now)
    return _FINISH_WELL if outcome is _SUCCESS else _FINISH[outcome]


def take_back(call: CallState, attempt: int, detail: str, now: float) -> bool:
    """Undo an attempt that was not sent because this process can open no connection for it: its payment is given back,
    and the attempt does not count. `detail`: the reason, for people. Returns False, with nothing done, if the attempt
    is not in flight, or was answered.
    """
    flight, state = call.in_flight(attempt), call.state
    if flight is None or flight.reply is not None or type(state) is not Flying:
        return False
    del state.flights[attempt]
    if flight.payment is not None:
        flight.payment.give_back(now)
    call.next_attempt.dropped(flight, now)
    call.note(flight, now, Outcome.OVERLOADED.value).because = detail
    call.attempts -= 1
    return True


def way_elsewhere(call: CallState, no: Outcome, now: float) -> Fallback | None:
    """The entry of the fallback list that names the upstream at which the call goes on, instead of ending with the
    outcome `no`; None if it does not go on.
    """
    if call.fallbacks is None or call.committed:
        return None
    if no not in GOES_ON and not (no is Outcome.OVERLOADED and call.found_no_place):
        return None
    if call.deadline is not None and now >= call.deadline - EPSILON:
        return None  # the call's time is over, at any upstream
    return call.fallbacks.next_entry(no)


def go_elsewhere(call: CallState, entry: Fallback, no: Outcome, now: float, is_held: bool) -> Actions:
    """End the call here and let it go on at the upstream that `entry`, of the fallback list, names. `no`: the outcome
    that the call would have had here. `is_held`: the driver holds the last answer already. Returns the actions for the
    driver.
    """
    assert call.fallbacks is not None  # the entry is from there
    call.fallbacks.mark(call.history, call.policy)
    if call.attempts > call.earlier:
        note_fallback(call.history, no)
    failure = call.failure
    finish(call, no, now)
    if failure is None or failure.status is None or is_held:
        return (FallBack(entry),)
    return (Hold(failure.attempt), FallBack(entry))


def end_here(call: CallState, no: Outcome, now: float, why: str) -> Actions:
    """End the call with the outcome `no`: deliver the held answer or, if there is none, an answer of the proxy's own.
    `why`: the reason, for people. Returns the actions for the driver.
    """
    if call.attempts == call.earlier:
        note_never_sent(call.history, no, call.policy.upstream, why)
    failure = call.failure
    if failure is not None and failure.status is not None:
        return _deliver_held(call, failure, no)
    return _answer(call, no, now, why)


def _deliver_held(call: CallState, failure: Failure, no: Outcome) -> Actions:
    """End the call with the outcome `no` by delivering the held answer to the app as it came."""
    call.deadline = None
    call.state = Delivering(failure.attempt, no)
    return (Deliver(failure.attempt, no),)


def _answer(call: CallState, no: Outcome, now: float, why: str) -> Actions:
    """End the call with the outcome `no` by an answer of the proxy's own. `why`: the reason, for people."""
    fault = call.failure.fault if call.failure is not None and no not in _REFUSED else None
    left, status = call.next_attempt.retry_after(no, now)
    detail = None if fault is not None else why or None
    return (own_answer(no, fault, detail=detail, retry_after=left, status=status), *finish(call, no, now))
