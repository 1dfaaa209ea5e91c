"""Remedies for the reasons for which calls are not retried: for `/requests`, the dashboard, `redrive why` and
`explain`.

A remedy names the setting, with its value now, or what the app or the upstream can do. Nothing is decided here.
"""

from __future__ import annotations

from proxy.retry.facts import IDEMPOTENT_METHODS, Outcome
from proxy.retry.gates import GATES
from proxy.retry.policy import Policy
from proxy.retry.reasons import NO_LONGER_SAFE, NO_PLACE, OUTGREW

#: Remedies that depend on nothing but the outcome.
_ALWAYS = {
    Outcome.PUSHBACK_STOP: "the upstream decides this: another try is of no use, or only after a change of the request",
    Outcome.COOLING: "call this upstream less often, or let calls wait longer for it: pushback.hold",
    Outcome.CIRCUIT_OPEN: "look at the failures that opened it; circuit_breaker.open says how long it stays open",
    Outcome.OUTAGE: "the upstream has to come back; pushback.hold says how long calls wait for that",
    Outcome.RATE_LIMITED: "raise the rate of the bucket, or let calls wait for it: when_empty: wait",
    Outcome.CLIENT_GONE: "let the app wait longer than all attempts take together: its timeout is the shorter one",
}


def remedy_of(outcome: Outcome, why: str, policy: Policy, method: str) -> str:
    """Return what the operator or the app can do so that such a call ends better, as a clause; "" if nothing is wrong,
    or if no remedy is known. `why`: the reason given for not making another attempt (`proxy.retry.refusals`), "" if
    none was given; `method`: the request's method.
    """
    if outcome in _ALWAYS:
        return _ALWAYS[outcome]
    if outcome is Outcome.NOT_RETRYABLE:
        return _not_retryable(why, policy, method)
    if outcome is Outcome.ATTEMPTS_EXHAUSTED:
        most = policy.strategy.max_attempts
        if most == 1:
            return "choose a strategy that retries, such as strategy: standard"
        return f"if the upstream only needs longer, raise strategy.max_attempts (now {most}) or backoff.max"
    if outcome is Outcome.BUCKET_EMPTY:
        return (
            "too many attempts fail for retries to be affordable: mend that first; then give the bucket more capacity, "
            "or a refill"
        )
    if outcome is Outcome.PUSHBACK_TOO_LONG:
        return f"raise pushback.max_delay (now {policy.pushback.max_delay:g}s) if the call may wait for so long"
    if outcome is Outcome.DEADLINE:
        total = policy.timeouts.total
        now = "off" if total is None else f"{total:g}s"
        return (
            f"raise timeouts.total (now {now}) or the app's own deadline, or let attempts end sooner: timeouts.attempt"
        )
    if outcome is Outcome.COMMITTED:
        if why == OUTGREW:
            return "raise buffers.per_request above the size of the request's body"
        return (
            "an answer that has begun can't be taken back; timeouts.first_byte catches streams that stall before that"
        )
    if outcome is Outcome.DISABLED:
        if why == "X-Retry-Disable":
            return "the app asks for one attempt: let it leave X-Retry-Disable out"
        return f"set mode: enforce (now {policy.mode})"
    if outcome is Outcome.OVERLOADED:
        if why == NO_PLACE or "concurrency" in why:
            return "raise concurrency.max, or concurrency.queue and concurrency.wait, if the upstream can take more"
        if why.startswith(GATES["limit"]):
            return "the upstream needs more capacity, or fewer calls; pushback.hold says how long calls wait for it"
        return "raise limits.waiting, or send less at a time"
    return ""


def _not_retryable(why: str, policy: Policy, method: str) -> str:
    where = "this route" if policy.route else "this upstream"
    if "may have been carried out, and is not idempotent" in why or "was carried out: " in why:
        if method not in IDEMPOTENT_METHODS and method.upper() in IDEMPOTENT_METHODS:  # RFC 9110 section 9.1
            return f"let the app send {method.upper()}: methods are case-sensitive, and {method} is another one"
        key = policy.idempotency_key.header
        return (
            f"send {_article(key)} {key}, or say unsafe_methods: always on {where} if repeating a {method} is harmless"
        )
    if "unsafe_methods is never" in why:
        return f"it was not carried out: unsafe_methods: unprocessed on {where} repeats such a {method}"
    if why.startswith("non_fatal"):
        return "add it to the strategy's non_fatal if another attempt can succeed"
    if why.startswith("nothing names it"):
        return "if another attempt can succeed, name it in classify.transient, or write a rule: classify.rules"
    if why.startswith("it is named as fatal"):
        return "the rule that names it says that no attempt helps; a rule of your own in classify.rules goes before it"
    if why.startswith(NO_LONGER_SAFE):
        return "let attempts end sooner, so that a repeat comes before the signature expires: timeouts.attempt"
    return ""


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"
