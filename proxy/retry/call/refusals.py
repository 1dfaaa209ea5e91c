"""The reason, in one clause, why no attempt follows a failed one: for the log, the dashboard and `explain`.

Nothing is decided here: the checks have returned a refusal as a value (`Outcome`), and these functions put it into
words, with the figures that it is based on. Nothing in these texts is secret: methods, names of the configuration, and
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.call.call_state import CallState
from proxy.retry.call.fallback import SAFE_METHODS
from proxy.retry.call.reasons import (
    BY_OWN_CODE,
    CIRCUIT_OPEN,
    NO_LONGER_SAFE,
    NO_PLACE,
    NO_TOKEN,
    OUTGREW,
    about,
    past_deadline,
    seconds,
)
from proxy.retry.call.states import Flight
from proxy.retry.facts import Class, Failure, FaultKind, Outcome

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_ATTEMPTS_EXHAUSTED, _BUCKET_EMPTY = Outcome.ATTEMPTS_EXHAUSTED, Outcome.BUCKET_EMPTY
_NOT_RETRYABLE, _COMMITTED, _DEADLINE = Outcome.NOT_RETRYABLE, Outcome.COMMITTED, Outcome.DEADLINE
#: Statuses that a repeated attempt may get because an earlier one was carried out.
_AFTER_SUCCESS = frozenset({404, 409, 410, 412})


def why_not(call: CallState, no: Outcome, failure: Failure, now: float, delivered: bool = False) -> str:
    """The reason, in a clause, why no attempt follows this failure, and whether the answer may be due to an earlier
    attempt's success. `no`: the outcome that ends the call. `delivered`: the answer had begun to go to the app.
    """
    why = _why_not(no, failure, call, now, delivered)
    own = own_success(failure, call)
    return f"{why}; {own}" if own else why


def note_no(
    call: CallState, failure: Failure, flight: Flight, no: Outcome, now: float, delivered: bool = False
) -> None:
    """Record the last attempt, with the reason why no other attempt follows it. The parameters are those of `why_not`,
    and `flight`, the last attempt.
    """
    why = why_not(call, no, failure, now, delivered)
    call.note(flight, now, no._value_, failure, call.reply).why = why  # `value` is a property of Python's


def own_success(failure: Failure, call: CallState) -> str:
    """The clause that this answer may be due to the success of an earlier attempt of the same call; "" if it can't be.

    An attempt that ended in case 3 (contract, "Safety") may have been carried out. Its repeat then finds that a
    precondition no longer holds (412; Azure answers 409 to `If-None-Match: *`), that what it deletes is gone (404,
    410), or that what it creates exists (409).
    """
    status = failure.status
    if status not in _AFTER_SUCCESS or (call.attempts == call.earlier + 1 and not call.history):
        return ""
    method = call.request.method
    if status == 409:
        fits = method == "POST" or (method == "PUT" and "*" in call.request.fields.get_all("if-none-match"))
    else:
        fits = method == "DELETE" or (status == 412 and method not in SAFE_METHODS)
    if not fits:
        return ""
    ended = {each.attempt: each for each in call.history if each.attempt > call.earlier}
    for number in range(call.earlier + 1, call.attempts + 1):
        record = ended.get(number)
        if (number != failure.attempt) if record is None else _may_have_been_carried_out(record):
            return f"attempt {number} may have been carried out, so the {status} may be its own success"
    return ""


def _may_have_been_carried_out(record: AttemptRecord) -> bool:
    """Whether the upstream may have carried out this attempt (contract, "Safety", 3): it was cancelled, broke off, took
    too long, or failed with a server error that is no throttling.
    """
    if record.fault is not None:
        return record.fault in (FaultKind.RESET, FaultKind.ATTEMPT_TIMEOUT)
    if record.status is None:
        return True
    return record.status >= 500 and record.cls is not Class.THROTTLING


def _why_not(no: Outcome, failure: Failure, call: CallState, now: float, delivered: bool) -> str:
    if no is _ATTEMPTS_EXHAUSTED:
        return _exhausted(failure, call)
    if no is _BUCKET_EMPTY:
        return _unaffordable(failure.verdict.cls, call, now)
    if no is _NOT_RETRYABLE:
        return _not_retryable(failure, call)
    if no is _COMMITTED:
        return "its answer had begun to go to the app" if delivered else OUTGREW
    if no is _DEADLINE:
        due = 0.0 if call.plan is None else call.plan.due
        left = None if call.deadline is None else call.deadline - now
        return f"the next attempt would begin in {about(due - now)}, {past_deadline(due - now, left)}"
    why = _CLAUSES.get(no)
    return "" if why is None else why(failure, call)


def _exhausted(failure: Failure, call: CallState) -> str:
    strategy = call.policy.strategy
    most = strategy.max_attempts
    if strategy.custom is not None and failure.attempt - call.earlier < most:
        return "the strategy itself failed: what it raised is not a RetryError, or its delay is not valid"
    return "the strategy makes one attempt" if most == 1 else f"that was the last of {most} attempts"


def _disabled(failure: Failure, call: CallState) -> str:
    return "X-Retry-Disable" if call.hints.disabled else f"the mode is {call.policy.mode}"


def _named_too_long(failure: Failure, call: CallState) -> str:
    named = f"{failure.pushback.source} names {seconds(failure.pushback.delay or 0.0)}"
    return f"{named}, more than pushback.max_delay, {seconds(call.policy.pushback.max_delay)}"


def _no_room(failure: Failure, call: CallState) -> str:
    return NO_PLACE if call.found_no_place else "limits.waiting has no place for the wait"


#: The clauses of the outcomes that need no more than the failure and its call.
_CLAUSES: dict[Outcome, Callable[[Failure, CallState], str]] = {
    Outcome.PUSHBACK_STOP: lambda failure, call: f"the upstream said not to retry ({failure.pushback.source})",
    Outcome.DISABLED: _disabled,
    Outcome.PUSHBACK_TOO_LONG: _named_too_long,
    Outcome.OVERLOADED: _no_room,
    Outcome.RATE_LIMITED: lambda failure, call: NO_TOKEN,
    Outcome.CIRCUIT_OPEN: lambda failure, call: CIRCUIT_OPEN,
}


def _not_retryable(failure: Failure, call: CallState) -> str:
    if not failure.goes_on and call.policy.strategy.hedging_delay is not None:
        return "non_fatal does not name it"
    if not failure.goes_on:
        return "it is named as fatal" if failure.verdict.cls is Class.FATAL else "nothing names it as retryable"
    if failure.carried_out:
        return f"{call.request.method} was carried out: the head of its answer had come"
    if failure.verdict.repeated_within is not None:
        return NO_LONGER_SAFE
    if failure.verdict.unprocessed or failure.verdict.repeated_by:
        return f"{call.request.method} is not idempotent, and unsafe_methods is never"
    return f"{call.request.method} may have been carried out, and is not idempotent"


def _unaffordable(cls: Class, call: CallState, now: float) -> str:
    bucket = call.next_attempt.bucket
    if bucket is not None and (why := bucket.withheld()):
        return why
    price = 0.0 if bucket is None else bucket.price(cls)
    if bucket is None or bucket.affords(price, now):
        return "the bucket refused it" if call.policy.strategy.custom is None else BY_OWN_CODE
    spec, level = bucket.spec, bucket.level(now)
    if spec.kind == "throttle":
        return f"the bucket has {round(level, 1):g}, and retries need more than {spec.max_tokens / 2:g}"
    if spec.kind == "budget":
        return "the budget has no retry left" if not round(level, 1) else "the app has no retry left of the budget"
    return _too_low(level, bucket.spendable(now), price)


@lru_cache(maxsize=256)
def _too_low(level: float, may: float, price: float) -> str:
    """The clause for a bucket that has too few tokens. `level`: the tokens that it has. `may`: how many of them the app
    may spend. `price`: what a retry costs.
    """
    level, may = round(level, 1), round(may, 1)
    part = f", of which the app may spend {may:g}" if may < level else ""
    return f"the bucket has {level:g}{part}, and a retry costs {price:g}"
