"""The checks of whether another attempt may follow a failed one: that a repeat is safe, and the order of the checks
(contract, section 4, "Order of checks"). Each refusal is a value (`Outcome`).
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.call.call_state import CallState
from proxy.retry.facts import Failure, Fault, Outcome, Progress, Verdict
from proxy.retry.instants import NEVER
from proxy.retry.policies.dialect import UnsafeMethods

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_ATTEMPTS_EXHAUSTED, _NEVER_SENT = Outcome.ATTEMPTS_EXHAUSTED, Progress.NEVER_SENT


def is_safe(verdict: Verdict, fault: Fault | None, idempotent: bool, unsafe_methods: UnsafeMethods) -> bool:
    """Whether the request may be repeated without a risk that the policy does not accept (contract, "Safety", 1 to 3).
    `verdict`: the class of the last attempt's end. `fault`: the fault that ended the attempt, None if it was answered.
    `idempotent`: whether the request is idempotent. `unsafe_methods`: the policy's rule for requests that are not.
    """
    if fault is not None and fault.progress is _NEVER_SENT:
        return True
    if idempotent or unsafe_methods == "always":
        return True
    if unsafe_methods == "never":
        return False
    if verdict.repeated_by:
        return True
    return verdict.unprocessed or (fault is not None and fault.progress is Progress.REFUSED)


def safe_until(failure: Failure, first_sent: float, idempotent: bool, unsafe_methods: UnsafeMethods) -> float:
    """The time (seconds) until which another attempt is safe; infinity if it always is, minus infinity if it never is.
    The time is finite if another attempt is safe only because the provider's own client would repeat the call too, and
    that client stops after a while (AWS: its signature expires).

    `first_sent`: the time at which the call's first attempt was sent. `idempotent`: whether the request is idempotent.
    `unsafe_methods`: the policy's rule for requests that are not.
    """
    verdict, fault = failure.verdict, failure.fault
    if not is_safe(verdict, fault, idempotent, unsafe_methods):
        return -NEVER
    within = verdict.repeated_within
    if within is None or is_safe(replace(verdict, repeated_by=""), fault, idempotent, unsafe_methods):
        return NEVER
    return first_sent + within


def first_no(call: CallState, failure: Failure, disabled: bool, safe: bool) -> Outcome | None:
    """The outcome of the first check that refuses another attempt; None if all checks pass. The first check is for a
    pushback that forbids a retry, and the last for the number of attempts. `disabled`: the mode or X-Retry-Disable
    rules retries out. `safe`: the request may be repeated, as `is_safe` says.
    """
    if failure.pushback.stop:
        return Outcome.PUSHBACK_STOP
    if not failure.goes_on:
        return Outcome.NOT_RETRYABLE
    if call.committed:
        return Outcome.COMMITTED
    if disabled:
        return Outcome.DISABLED
    if not safe:
        return Outcome.NOT_RETRYABLE
    made = call.attempts - call.earlier - call.spared
    return None if made < call.policy.strategy.max_attempts else _ATTEMPTS_EXHAUSTED
