"""The events that end a call or its attempts, whatever an upstream does: the app leaves, the process ends, the
destination is not allowed, no connection can be opened, or the request's body outgrows its buffer.

Each function belongs to the method of the same name of `proxy.retry.call.machine.Call`, and is the part of it that
changes the call's state. All return the actions for the driver.
"""

from __future__ import annotations

from proxy.retry.answers.classification import classify_fault, read_by
from proxy.retry.call.actions import Actions, Cancel
from proxy.retry.call.call_history import revise
from proxy.retry.call.call_state import CallState
from proxy.retry.call.endings import finish, take_back
from proxy.retry.call.flows import SequentialFlow
from proxy.retry.call.reasons import CUT_SHORT, OUTGREW, SHUT_DOWN, own_answer
from proxy.retry.call.repeat_checks import is_safe
from proxy.retry.call.states import Delivering, Done, Flying, Next
from proxy.retry.facts import Fault, FaultKind, Outcome, Progress

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS = Outcome.SUCCESS
#: The end of an attempt that is broken off because the process ends, as section 4 of the contract counts it.
_BROKEN_OFF = Fault(FaultKind.RESET, Progress.UNKNOWN)


def replay_lost(call: CallState, flow: SequentialFlow, now: float, furthest: int) -> Actions:
    """Commit the call (no further attempt is possible), because its request's body has outgrown the buffer. Only one
    attempt in flight goes on: `furthest`, which has read most of the body, or the oldest if that one is not in flight.
    If all attempts read the body as it comes, nothing changes.
    """
    state = call.state
    if call.committed or isinstance(state, Delivering | Done) or flow.shares_body(call):
        return ()
    call.committed = True
    call.deadline = None
    if type(state) is Flying:
        call.plan_no_more(now)
        return call.cancel_all_but(furthest if furthest in state.flights else min(state.flights), now)
    return flow.withdraw(call, Outcome.COMMITTED, now, OUTGREW) if type(state) is Next else ()


def app_gone(call: CallState, now: float) -> Actions:
    """End the call, because the app has left: send nothing more, and give unused payments back."""
    state, gone = call.state, Outcome.CLIENT_GONE
    if type(state) is Done:
        return ()
    if type(state) is Delivering:
        call.next_attempt.give_back(now)
        return (Cancel(state.attempt), *break_delivery(call, state, gone, now))
    actions: Actions = ()
    if type(state) is Flying:
        actions = call.cancel_all_but(0, now, gone.value)
    elif call.attempts > call.earlier:
        revise(call.history, gone.value)
    call.next_attempt.learn_patience(now)
    call.next_attempt.give_back(now)
    return (*actions, *call.discard(), *finish(call, gone, now))


def cut(call: CallState, flow: SequentialFlow, now: float, sent: bool) -> Actions:
    """End the call, because the process ends. Break off the answer that is being delivered; if there is none, deliver
    the answer that is held or, if there is none either, the proxy's own. Nothing more is sent, to any upstream. `flow`:
    the call's flow. `sent`: bytes of an attempt in flight may have been sent.
    """
    state = call.state
    if type(state) is Delivering:
        return (Cancel(state.attempt), *break_delivery(call, state, Outcome.COMMITTED, now, SHUT_DOWN))
    call.committed = True  # no other upstream takes it, even if a hedge or a gate found no place before
    is_flying = type(state) is Flying
    is_unknown = (sent and is_flying) or (call.ambiguous and (call.failure is None or call.failure.status is None))
    why = CUT_SHORT if is_unknown and not _may_be_sent_again(call) else SHUT_DOWN
    if is_flying:
        return flow.break_off(call, Outcome.OVERLOADED, why, now)
    return () if type(state) is Done else flow.withdraw(call, Outcome.OVERLOADED, now, why)


def _may_be_sent_again(call: CallState) -> bool:
    """Whether the app may send the call's request again although an attempt may have been carried out (contract,
    "Safety", 3). An idempotency key that redrive adds does not count: the app's next request would get
    another one.
    """
    request, rules, key = call.request, call.policy.classify, call.policy.idempotency_key
    if rules.unsafe_methods == "always" or call.policy.strategy.safe_methods:
        return True
    if request.is_idempotent(key.header.lower(), False) or read_by(rules, request) is not None:
        return True
    if key.inject and request.method in ("POST", "PATCH"):
        return False
    verdict = classify_fault(rules, request, _BROKEN_OFF)
    return is_safe(verdict, _BROKEN_OFF, False, rules.unsafe_methods)


def denied(call: CallState, attempt: int, detail: str, now: float) -> Actions:
    """End the call, because the destination of this attempt is not allowed; the attempt does not count as made.
    `detail`: the reason, for people.
    """
    flight = call.in_flight(attempt)
    if flight is None or flight.reply is not None:
        return ()
    others = call.cancel_all_but(attempt, now)
    if flight.payment is not None:
        flight.payment.give_back(now)
    call.next_attempt.dropped(flight, now)
    call.note(flight, now, Outcome.DENIED.value).because = detail
    call.next_attempt.give_back(now)
    call.attempts -= 1
    answer = own_answer(Outcome.DENIED, None, detail=detail)
    return (*others, answer, *finish(call, Outcome.DENIED, now))


def no_room(call: CallState, flow: SequentialFlow, attempt: int, detail: str, now: float) -> Actions:
    """Take back this attempt, since no connection could be opened for it; it does not count as made. End the call if no
    other attempt is in flight. `detail`: the reason, for people.
    """
    if not take_back(call, attempt, detail, now) or call.flies():
        return ()
    call.next_attempt.give_back(now)
    call.failure = None
    return flow.end(call, Outcome.OVERLOADED, now, detail)


def break_delivery(
    call: CallState, state: Delivering, no: Outcome, now: float, why: str = "", fault: Fault | None = None
) -> Actions:
    """End the call, because its answer has broken off on its way to the app. `state`: the delivery. `no`: the call's
    outcome. `why`: the reason, for people. `fault`: how the attempt ended.
    """
    flight = call.delivered
    if state.outcome is _SUCCESS and flight is not None:  # another answer was recorded when it was judged
        record = call.note(flight, now, no.value)
        record.why = why
        if call.reply is not None:
            record.status = call.reply.status
        if fault is not None:
            record.record_fault(fault)
    return finish(call, no, now)
