"""The failure of an attempt, made from its answer or its fault, with its class and its pushback (when the upstream says
to try again).
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.answers.classification import classify_fault, names
from proxy.retry.answers.pushback import read_pushback
from proxy.retry.call.call_state import CallState
from proxy.retry.call.states import Flight
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Fault, Pushback, Reply, Verdict


def _is_non_fatal(call: CallState, fault: Fault | None) -> bool:
    """Whether hedging's list `non_fatal` names this fault or, if `fault` is None, the answer that is being judged."""
    policy = call.policy
    return names(policy.strategy.non_fatal, policy.classify, call.request, call.reply, fault)


def failure_of(call: CallState, attempt: int, reply: Reply, verdict: Verdict, sent: float, wall: float) -> Failure:
    """The failure of an attempt that was sent at the time `sent` and answered with `reply`, with the answer's pushback.
    `verdict`: the answer's class, with the reason. `wall`: the wall clock when the answer came (seconds since the
    epoch).
    """
    pushback = _pushback_of(call, reply, verdict.cls, wall)
    if pushback.retry and verdict.cls is Class.UNNAMED:
        verdict = replace(verdict, cls=Class.TRANSIENT, because=f"{verdict.because}, but the upstream says retry")
        pushback = _pushback_of(call, reply, verdict.cls, wall)
    failure = Failure.__new__(Failure)
    failure.begin(attempt, verdict, pushback, reply.status, None, sent)
    if call.policy.strategy.hedging_delay is not None:
        failure.goes_on = _is_non_fatal(call, None)
    return failure


def _pushback_of(call: CallState, reply: Reply, cls: Class, wall: float) -> Pushback:
    """The pushback of an answer whose class is `cls`. `wall`: the wall clock when the answer came (seconds since the
    epoch). Under hedging, any failure that `non_fatal` names is read as if it were retryable, so that no hedge is sent
    sooner than a pushback allows.
    """
    policy = call.policy
    if reply.plain and not policy.classify.resets:
        return NO_PUSHBACK
    if not cls.retryable and policy.strategy.hedging_delay is not None and _is_non_fatal(call, None):
        cls = Class.TRANSIENT
    trailers = (
        reply.trailers if reply.trailers is not reply.fields else None
    )  # a trailers-only head is read once: a field read twice would contradict itself
    dialects = policy.classify.dialects
    return read_pushback(reply.fields, reply.status, cls, dialects, wall, trailers=trailers, peeked=reply.peeked)


def failure_by(call: CallState, flight: Flight, fault: Fault) -> Failure:
    """The failure of an attempt that ended with this fault."""
    verdict = classify_fault(call.policy.classify, call.request, fault)
    failure = Failure(flight.attempt, verdict, NO_PUSHBACK, fault=fault, sent=flight.since)
    if call.policy.strategy.hedging_delay is not None:
        failure.goes_on = _is_non_fatal(call, fault)
    return failure
