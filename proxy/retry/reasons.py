"""Why a call was not attempted again, or was held, in a clause: for whoever reads the log, the dashboard or `explain`.

Nothing is decided here. The *no* is a value that was decided by the checks, and this says what it was about, with
the figures that it rests on. Nothing of it is secret: methods, names of the configuration, and numbers.
"""

from __future__ import annotations

from proxy.retry.checks import Failure
from proxy.retry.facts import Class, Outcome
from proxy.retry.plans import Standing

#: What holds calls, by what it is called in records.
GATES = {
    "cooldown": "the upstream's cooldown",
    "rate": "the upstream's rate bucket",
    "limiter": "the adaptive limiter",
}

OUTGREW = "the request's body outgrew its replay buffer"
OUT_OF_TIME = "the deadline came first"
NO_LONGER_SAFE = "the provider's own client would not repeat it any more: its signature may have expired"
SHUT_DOWN = "the proxy shut down, and waited for it no longer"


def why_not(
    no: Outcome, failure: Failure, call: Standing, now: float, *, due: float, goes_on: bool, delivered: bool = False
) -> str:
    """Why this failure was not followed by another attempt. `due`: when the next one would have begun; `goes_on`: the
    failure is one to go on from; `delivered`: the answer had begun to go to the app.
    """
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
            if policy.strategy.custom is not None and failure.attempt < most:
                return "the strategy itself failed: what it raised is no RetryError, or its delay no delay"
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
            return "limits.waiting has no place for the wait"
        case Outcome.RATE_LIMITED:
            return f"{GATES['rate']} has no token for it"
        case _:
            return ""


def held_too_long(gate: str, wait: float, left: float | None) -> str:
    """Why a call that something holds is answered at once: it would be let go after its deadline."""
    return f"{GATES[gate]} lets it go in {seconds(wait)}, {_left(left)}"


def held_in_vain(wait: float, hold: float | None, left: float | None = None) -> str:
    """Why a call is answered that the cooldown would hold for `wait` seconds: `hold` is the bound that it would go
    beyond; None: its deadline, which is in `left` seconds, or none, where the policy holds nobody.
    """
    if left is None:
        return "the upstream asked its callers to wait, and pushback.cooldown is reject"
    if hold is None:
        return held_too_long("cooldown", wait, left)
    return f"{GATES['cooldown']} would hold it for {seconds(wait)} more, beyond pushback.hold, {seconds(hold)} in all"


def seconds(amount: float) -> str:
    """`0.25 s`."""
    return f"{round(amount, 3):g} s" if amount < 1e6 else f"{amount:g} s"


def _left(left: float | None) -> str:
    return f"after the deadline, which is in {seconds(max(left or 0.0, 0.0))}"


def _not_retryable(failure: Failure, call: Standing, *, goes_on: bool) -> str:
    if not goes_on and call.policy.strategy.hedging_delay is not None:
        return "non_fatal does not name it"
    if not goes_on:
        return "it is named as fatal" if failure.verdict.cls is Class.FATAL else "nothing names it as retryable"
    if failure.verdict.repeated_by:
        return NO_LONGER_SAFE
    if failure.verdict.unprocessed:
        return f"{call.request.method} is not idempotent, and unsafe_methods is never"
    return f"{call.request.method} may have been carried out, and is not idempotent"


def _unaffordable(cls: Class, call: Standing, now: float) -> str:
    bucket = call.bucket
    if bucket is None or bucket.affords(bucket.price(cls), now):
        return "the bucket refused it" if call.policy.strategy.custom is None else "the strategy refuses it"
    spec, level = bucket.spec, round(bucket.level(now), 1)
    if spec.kind == "throttle":
        return f"the bucket has {level:g}, and retries need more than {spec.max_tokens / 2:g}"
    if spec.kind == "budget":
        return "the budget has no retry left"
    return f"the bucket has {level:g}, and a retry costs {bucket.price(cls):g}"
