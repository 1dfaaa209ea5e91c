"""Why a call was not attempted again, or was held, in one clause: for the log, the dashboard and `explain`.

The proxy's own answers are here too: what the app gets if there is no answer of the upstream's. Nothing is decided
here: the checks returned a refusal as a value (`Outcome`), and these functions put it into words, with the figures that
it rests on. None of it is secret: methods, names of the configuration, and numbers. Statuses of answers are as in the
contract, section 4, "The answer"; their `error` values are the proxy error types of RFC 9209, 2.3.
"""

from __future__ import annotations

from proxy.retry.actions import Answer
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import UNAVAILABLE, Class, Failure, Fault, FaultKind, Outcome
from proxy.retry.fallback import SAFE_METHODS
from proxy.retry.plans import CallView
from proxy.retry.policy import Concurrency

#: Statuses that a repeated attempt may get because an earlier one was carried out.
_AFTER_SUCCESS = frozenset({404, 409, 410, 412})

#: The gates in words, by their names in records.
GATES = {
    "cooldown": "the upstream's cooldown",
    "rate": "the upstream's rate bucket",
    "limiter": "the adaptive limiter",
    "concurrency": "the upstream's concurrency limit",
}

OUTGREW = "the request's body outgrew its replay buffer"
TOO_LATE = "the deadline came first"
NO_LONGER_SAFE = "the provider's own client would no longer repeat it: its signature may have expired"
NO_PLACE = "as many attempts are under way as concurrency.max allows"
TOO_LATE_FOR_A_PLACE = "no place among the attempts under way became free before the deadline"
CIRCUIT_OPEN = "the circuit breaker of every endpoint is open"
NO_TOKEN = f"{GATES['rate']} has no token for it"
SHUT_DOWN = "the proxy shut down, and no longer waited for it"


def why_not(
    no: Outcome, failure: Failure, call: CallView, now: float, *, due: float, goes_on: bool, delivered: bool = False
) -> str:
    """Why no attempt follows this failure, and whether the answer may be due to an earlier attempt's success, in a
    clause. `no`: the outcome that ends the call; `due`: when the next attempt would have begun; `goes_on`: the failure
    is retryable; `delivered`: the answer had begun to go to the app. Times are seconds on the driver's clock.
    """
    why = _why_not(no, failure, call, now, due, goes_on, delivered)
    own = own_success(failure, call)
    return f"{why}; {own}" if own else why


def own_success(failure: Failure, call: CallView) -> str:
    """A clause that says that this answer may be due to an earlier attempt of the same call; "" if it can't be.

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


def _why_not(
    no: Outcome, failure: Failure, call: CallView, now: float, due: float, goes_on: bool, delivered: bool
) -> str:
    policy = call.policy
    match no:
        case Outcome.PUSHBACK_STOP:
            return f"the upstream said not to retry ({failure.pushback.source})"
        case Outcome.NOT_RETRYABLE:
            return _not_retryable(failure, call, goes_on=goes_on)
        case Outcome.COMMITTED:
            return "its answer had begun to go to the app" if delivered else OUTGREW
        case Outcome.DISABLED:
            return "X-Retry-Disable" if call.hints.disabled else f"the mode is {policy.mode}"
        case Outcome.ATTEMPTS_EXHAUSTED:
            most = policy.strategy.max_attempts
            if policy.strategy.custom is not None and failure.attempt - call.earlier < most:
                return "the strategy itself failed: what it raised is not a RetryError, or its delay is not valid"
            return "the strategy makes one attempt" if most == 1 else f"that was the last of {most} attempts"
        case Outcome.BUCKET_EMPTY:
            return _unaffordable(failure.price_class, call, now)
        case Outcome.PUSHBACK_TOO_LONG:
            named = f"{failure.pushback.source} names {seconds(failure.pushback.delay or 0.0)}"
            return f"{named}, more than pushback.max_delay, {seconds(policy.pushback.max_delay)}"
        case Outcome.DEADLINE:
            left = None if call.deadline is None else call.deadline - now
            return f"the next attempt would begin in {seconds(due - now)}, {_left(left)}"
        case Outcome.OVERLOADED:
            return NO_PLACE if call.found_no_place else "limits.waiting has no place for the wait"
        case Outcome.RATE_LIMITED:
            return NO_TOKEN
        case Outcome.CIRCUIT_OPEN:
            return CIRCUIT_OPEN
        case _:
            return ""


def held_too_long(gate: str, wait: float, left: float | None) -> str:
    """Why a call is answered at once and not held: the gate `gate` would hold it for `wait` seconds, but its deadline
    is in `left` seconds (None counts as 0).
    """
    return f"{GATES[gate]} lets it go in {seconds(wait)}, {_left(left)}"


def held_in_vain(wait: float, hold: float | None, left: float | None = None) -> str:
    """Why a call that a cooldown would hold for `wait` seconds is answered at once. `hold`: the bound on holding that
    it would exceed; None if the bound is its deadline. `left`: seconds until that deadline; None if the policy holds no
    calls.
    """
    if left is None:
        return "the upstream asked its callers to wait, and pushback.cooldown is reject"
    if hold is None:
        return held_too_long("cooldown", wait, left)
    return f"{GATES['cooldown']} would hold it for {seconds(wait)} more, beyond pushback.hold, {seconds(hold)} in all"


def no_place(rules: Concurrency, *, waited: bool) -> str:
    """Why a call that got no place under the concurrency limit is answered. `rules`: that limit; `waited`: the call
    waited for as long as it may, else the queue was full.
    """
    if waited:
        return f"no place became free within concurrency.wait, {seconds(rules.wait)} (concurrency.max is {rules.max})"
    under_way = f"as many attempts are under way as concurrency.max allows, {rules.max}"
    return f"{under_way}, and as many calls wait as concurrency.queue allows, {rules.queue}"


def circuit_open(left: float) -> str:
    """Why a call is answered at once: for `left` seconds, no endpoint's circuit breaker will let a call pass."""
    return f"{CIRCUIT_OPEN}; the next call may go in {seconds(left)}"


def seconds(amount: float) -> str:
    """Format a number of seconds, as in `0.25 s`."""
    return f"{round(amount, 3):g} s" if amount < 1e6 else f"{amount:g} s"


def _left(left: float | None) -> str:
    return f"after the deadline, which is in {seconds(max(left or 0.0, 0.0))}"


def _not_retryable(failure: Failure, call: CallView, *, goes_on: bool) -> str:
    if not goes_on and call.policy.strategy.hedging_delay is not None:
        return "non_fatal does not name it"
    if not goes_on:
        return "it is named as fatal" if failure.verdict.cls is Class.FATAL else "nothing names it as retryable"
    if failure.verdict.repeated_within is not None:
        return NO_LONGER_SAFE
    if failure.verdict.unprocessed or failure.verdict.repeated_by:
        return f"{call.request.method} is not idempotent, and unsafe_methods is never"
    return f"{call.request.method} may have been carried out, and is not idempotent"


def _unaffordable(cls: Class, call: CallView, now: float) -> str:
    bucket = call.bucket
    if bucket is not None and (why := bucket.withheld()):
        return why
    if bucket is None or bucket.affords(bucket.price(cls), now):
        return "the bucket refused it" if call.policy.strategy.custom is None else "the strategy refuses it"
    spec, level = bucket.spec, round(bucket.level(now), 1)
    if spec.kind == "throttle":
        return f"the bucket has {level:g}, and retries need more than {spec.max_tokens / 2:g}"
    if spec.kind == "budget":
        return "the budget has no retry left"
    return f"the bucket has {level:g}, and a retry costs {bucket.price(cls):g}"


# -- the proxy's own answers ------------------------------------------------------------------------------------------

_BY_OUTCOME: dict[Outcome, tuple[int, str, str, str]] = {
    Outcome.DEADLINE: (504, "Deadline exceeded", "no answer came before the call's deadline", "http_response_timeout"),
    Outcome.RATE_LIMITED: (503, "Rate limited", "the upstream's rate bucket is empty", "http_request_denied"),
    Outcome.COOLING: (503, "Cooling down", "the upstream asked its callers to wait", "http_request_denied"),
    Outcome.CIRCUIT_OPEN: (503, "Circuit open", CIRCUIT_OPEN, "destination_unavailable"),
    Outcome.OVERLOADED: (503, "Overloaded", "too many calls are waiting in the proxy", "connection_limit_reached"),
    Outcome.DENIED: (403, "Destination denied", "this destination is not allowed", "destination_ip_prohibited"),
    Outcome.BAD_REQUEST: (400, "Bad request", "the request cannot be forwarded", "http_request_error"),
    Outcome.COMMITTED: (
        502,
        "Bad gateway",
        "the upstream failed after the call was committed",
        "connection_terminated",
    ),
}


def own_answer(
    outcome: Outcome,
    fault: Fault | None,
    *,
    detail: str | None = None,
    retry_after: float | None = None,
    status: int | None = None,
) -> Answer:
    """The proxy's own answer to a call that ends with `outcome` and, if its last attempt ended with one, `fault`.

    `retry_after` is seconds. `status` replaces the outcome's usual status, unless a fault determines it.
    """
    if fault is not None and outcome not in (Outcome.DENIED, Outcome.BAD_REQUEST):
        # A connection that did not come in time is a timeout too (RFC 9209 section 2.3.9 recommends 504 for it).
        timed_out = fault.kind is FaultKind.ATTEMPT_TIMEOUT or fault.error == "connection_timeout"
        code, title = (504, "Gateway timeout") if timed_out else (502, "Bad gateway")
        text = detail or fault.detail or _FAULTS[fault.kind]
        # For gRPC a failed connection is UNAVAILABLE, however long it took: no deadline has passed.
        has_grpc_status = fault.kind is FaultKind.CONNECT_FAILURE or (
            fault.kind is FaultKind.RESET and fault.code is not None
        )
        grpc_status = fault.grpc_status if has_grpc_status else None
        return Answer(code, title, text, outcome, retry_after, fault.error, grpc_status)
    usual, title, text, error = _BY_OUTCOME[outcome]
    if detail == SHUT_DOWN:  # RFC 9209 section 2.3.8: not for lack of room; the proxy itself closed
        error = "connection_terminated"
    grpc_status = UNAVAILABLE if outcome is Outcome.CIRCUIT_OPEN else None  # contract, section 12
    return Answer(status or usual, title, detail or text, outcome, retry_after, error, grpc_status)


_FAULTS = {
    FaultKind.CONNECT_FAILURE: "the upstream could not be connected to",
    FaultKind.REFUSED_STREAM: "the upstream refused the request",
    FaultKind.RESET: "the upstream broke off before its answer was complete",
    FaultKind.ATTEMPT_TIMEOUT: "the upstream did not answer in time",
}
