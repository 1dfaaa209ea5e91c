"""Resumptions: if an answer breaks off on its way to the app, another attempt asks for the rest of it, and the answer
goes on where it broke (contract, section 15, "Resume").

The driver has the bytes, and knows whether the rest of an answer can be asked for (`proxy.forward.resume`). This module
decides whether the attempt for the rest is made. Such an attempt pays, waits, and passes the gates like a retry, but
does not count for `max_attempts`. It is not bounded by the call's deadline either, which ended with the answer's first
byte. Its bound is `resume.wait`, the longest time for which the app may get nothing.
"""

from __future__ import annotations

from proxy.retry.answers.classification import classify_fault
from proxy.retry.call.actions import Actions, Ask, WakeAt
from proxy.retry.call.call_state import CallState
from proxy.retry.call.endings import finish
from proxy.retry.call.feedback import report_failure, report_to_endpoint
from proxy.retry.call.flows import SequentialFlow
from proxy.retry.call.sequential_plan import Sequential
from proxy.retry.call.states import Delivering, Flight, Flying, Next
from proxy.retry.facts import NO_PUSHBACK, Failure, Fault, Outcome
from proxy.retry.instants import EPSILON

#: The bytes that make a resumption count as progress, and the most resumptions of one call.
PROGRESS, MOST = 64 * 1024, 100


class Resumption:
    """The count of one call's resumptions: the attempts for the rest of an answer that broke on its way to the app.
    `count`: how many there were. `without`: how many brought the app less than PROGRESS bytes before the answer broke
    again.
    """

    __slots__ = ("count", "without")

    def __init__(self) -> None:
        self.count = self.without = 0

    def may_follow(self, progress: int, most: int) -> bool:
        """Whether another resumption may follow the latest one, which brought the app `progress` bytes before the
        answer broke again. `most`: the most resumptions without that progress (`resume.max`).
        """
        if progress < PROGRESS:
            self.without += 1
        return self.count < MOST and self.without < most


def would_resume(call: CallState, fault: Fault) -> bool:
    """Whether the policy allows an answer that broke with `fault` to be resumed. The mode `observe` counts as `enforce`
    here, and the resumptions so far do not matter.
    """
    policy = call.policy
    if policy.resume is None or call.hints.disabled or policy.strategy.kind == "none" or policy.mode == "off":
        return False
    return classify_fault(policy.classify, call.request, fault).cls.retryable


def resume(
    call: CallState, flow: SequentialFlow, flight: Flight, fault: Fault, progress: int, since: float, now: float
) -> Actions:
    """Plan an attempt for the rest of a broken answer. Returns the actions for the driver, or none if the rest is not
    asked for. `flow`: the call's flow. `flight`: the attempt whose answer broke. `fault`: how it broke. `progress`: the
    bytes that went to the app since the last resumption. `since`: the time at which the last of these went to it
    (seconds).
    """
    policy, next_attempt = call.policy, call.next_attempt
    spec = policy.resume
    if spec is None or policy.mode != "enforce" or not would_resume(call, fault):
        return ()
    so_far = call.resumption
    if so_far is not None and not so_far.may_follow(progress, spec.max):
        return ()
    failure = Failure(
        flight.attempt,
        classify_fault(policy.classify, call.request, fault),
        NO_PUSHBACK,
        fault=fault,
        sent=flight.since,
    )
    bucket = next_attempt.bucket
    price = 0.0 if bucket is None else bucket.offer(failure.verdict.cls, now)
    if price is None:
        return ()
    if not isinstance(call.plan, Sequential):
        call.plan = Sequential(policy.strategy, next_attempt.env.rng)
    due, until = now + call.plan.next_wait(None, False), since + spec.wait
    if due > until + EPSILON:
        return ()
    decided = next_attempt.pay_for(Next(due, price), now)
    if not isinstance(decided, Next):
        return ()
    _note_resumption(call, flight, fault, due, now)
    call.delivered, call.failure, call.deadline = None, None, until
    payment = next_attempt.payment
    assert payment is not None  # the price was paid, or is owed
    if next_attempt.admission is None:  # unlike a hedged call, one that goes on is held by cooldowns
        next_attempt.cools = policy.pushback.cooldown != "off"
    if payment.owed is None and due <= now:
        return flow.admit(call, decided, now)
    call.state = decided
    if payment.owed is None:
        return (WakeAt(due),)
    payment.owed.asked = True
    return (WakeAt(due), Ask(payment.owed.price, due))


def _note_resumption(call: CallState, flight: Flight, fault: Fault, due: float, now: float) -> None:
    """Note that the attempt `flight`, whose answer broke with `fault`, is followed by one for the rest, at the time
    `due`. The rest is asked of the same endpoint, with the same credential.
    """
    next_attempt = call.next_attempt
    flight.land(now)
    if next_attempt.keys is not None:
        next_attempt.keys.bind()
    if next_attempt.picker is not None:
        next_attempt.picker.only = flight.endpoint
    record = call.note(flight, now, "resumed", None, call.reply)
    record.record_fault(fault)
    record.delay = due - now
    if call.resumption is None:
        call.resumption = Resumption()
    call.resumption.count += 1


def resume_again(call: CallState, flow: SequentialFlow, flight: Flight, failure: Failure, now: float) -> Actions:
    """Plan another attempt for the rest of an answer, since the attempt `flight` failed before the head of its answer
    was accepted. End the call if the rest is not asked for again. `flow`: the call's flow. `failure`: how the attempt
    failed.
    """
    state, until, next_attempt, fault = call.state, call.deadline, call.next_attempt, failure.fault
    assert type(state) is Flying
    assert fault is not None  # an answer is accepted, or not
    del state.flights[flight.attempt]
    flight.land(now)
    report_to_endpoint(next_attempt, flight, failure, now)
    next_attempt.cools = call.policy.pushback.cooldown != "off"
    report_failure(call, next_attempt, failure, flight, True, now)
    spec = call.policy.resume
    if until is not None and spec is not None:
        actions = resume(call, flow, flight, fault, 0, until - spec.wait, now)
        if actions:
            return actions
    call.note(flight, now, Outcome.COMMITTED.value, failure)
    return finish(call, Outcome.COMMITTED, now)


def go_on_delivering(call: CallState, flight: Flight, accepted: bool, now: float) -> Actions:
    """Deliver the rest of an answer that broke, or end the call. `flight`: the attempt for the rest, whose head has
    come. `accepted`: it really is the rest; if not, the call ends.
    """
    if accepted:
        call.delivered, call.deadline = flight, None
        call.state = Delivering(flight.attempt, Outcome.SUCCESS)
        return ()
    flight.land(now)
    call.note(flight, now, Outcome.COMMITTED.value).why = "its answer is not the rest of the one that broke"
    return finish(call, Outcome.COMMITTED, now)
