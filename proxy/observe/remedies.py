"""Remedies for the reasons for which calls are not retried: for `/requests`, the dashboard, `redrive why` and
`explain`.

A remedy names the setting, with its value now, or what the app or the upstream can do. Nothing is decided here.
"""

from __future__ import annotations

from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.call.gates import GATES
from proxy.retry.call.reasons import BY_OWN_CODE, NO_LONGER_SAFE, NO_PLACE, NO_TIME, OUTGREW, as_written
from proxy.retry.facts import IDEMPOTENT_METHODS, Outcome
from proxy.retry.policies.policy import Credentials, Policy

#: Remedies that depend on nothing but the outcome.
_ALWAYS = {
    Outcome.PUSHBACK_STOP: "the upstream decides this: another try is of no use, or only after a change of the request",
    Outcome.COOLING: "call this upstream less often, or let calls wait longer for it: pushback.hold",
    Outcome.CIRCUIT_OPEN: "look at the failures that opened it; circuit_breaker.open says how long it stays open",
    Outcome.OUTAGE: "the upstream has to come back; pushback.hold says how long calls wait for that",
    Outcome.RATE_LIMITED: "raise the rate of the bucket, or let calls wait for it: when_empty: wait",
    Outcome.CLIENT_GONE: "let the app wait longer than all attempts take together: its timeout is the shorter one",
}
#: Outcomes of calls whose attempts were made, and failed in a way that may be repeated.
_FAILED_ALL_ALONG = (Outcome.ATTEMPTS_EXHAUSTED, Outcome.BUCKET_EMPTY, Outcome.DISABLED)
#: The detail of a fault at a port on which nothing listens (`proxy.transport.faults`).
_REFUSED = "the connection was refused"
#: Remedies for faults of connecting that more attempts do not mend: a part of the fault's detail
#: (`proxy.transport.faults`), and the remedy. The first that fits counts.
_OF_FAULTS = (
    ("certificate is not valid for", "the upstream's certificate has another name: correct the host in url"),
    ("certificate has expired", "the upstream needs a new certificate: this one has expired"),
    (
        "certificate was not accepted",
        "if you trust the upstream, name the CA that signed its certificate: verify: FILE",
    ),
    ("handshake failed: wrong version number", "the upstream speaks no TLS at this port: correct url, or its scheme"),
    (
        "files of verify or client_cert can't be used",
        "correct the files that verify and client_cert name: redrive check says what is wrong with them",
    ),
    ("the name could not be resolved", "correct the host in url, or the name service of this machine"),
)


def remedy_of(
    outcome: Outcome,
    why: str,
    policy: Policy,
    method: str,
    detail: str = "",
    status: int | None = None,
    *,
    is_grpc: bool = False,
) -> str:
    """Return what the operator or the app can do so that such a call ends better, as a clause; "" if nothing is wrong,
    or if no remedy is known. `why`: the reason given for not making another attempt (`proxy.retry.call.refusals`), ""
    if none was given; `method`: the request's method; `detail`: what is known of the last attempt's fault, "" for
    nothing; `status`: the last attempt's, None if it has none. `is_grpc`: the call is one of gRPC.
    """
    if outcome in _ALWAYS:
        return _ALWAYS[outcome]
    if outcome in _FAILED_ALL_ALONG and (mended := _of_fault(detail)):
        return mended
    if outcome is Outcome.NOT_RETRYABLE:
        return _not_retryable(why, policy, method, status)
    if outcome is Outcome.ATTEMPTS_EXHAUSTED:
        return _exhausted(policy.strategy.max_attempts, _start(detail))
    if outcome is Outcome.BUCKET_EMPTY:
        return _start(detail) + _unaffordable(why)
    if outcome is Outcome.PUSHBACK_TOO_LONG:
        return (
            f"raise pushback.max_delay (now {as_written(policy.pushback.max_delay)}) if the call may wait for so long"
        )
    if outcome is Outcome.DEADLINE:
        return _deadline(why, as_written(policy.timeouts.total))
    if outcome is Outcome.COMMITTED:
        return _committed(why, policy, detail, is_grpc=is_grpc)
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


def _unaffordable(why: str) -> str:
    """Return the remedy for a call whose retry nothing pays for, for this reason."""
    first = "too many attempts fail for retries to be affordable: mend that first; then "
    if why == BY_OWN_CODE:
        return f"{first}let the strategy's own code grant more retries"
    return f"{first}give the bucket more capacity, or a refill"


def _committed(why: str, policy: Policy, detail: str, *, is_grpc: bool) -> str:
    """Return the remedy for a call that was committed when it failed, for this reason. `detail`: that of its fault."""
    if why == OUTGREW:
        return "raise buffers.per_request above the size of the request's body"
    if is_grpc:
        return "let the server send nothing before it knows that it will answer: a head of its own commits the call"
    if detail == UNFINISHED.detail and policy.unfinished == "tell":
        return "what was sent can't be taken back; streams: {unfinished: event} lets the app's client notice the end"
    return "an answer that has begun can't be taken back; timeouts.first_byte catches streams that stall before that"


def _deadline(why: str, now: str) -> str:
    """Return the remedy for a call that ended by its deadline for this reason; `now` is `timeouts.total` as written."""
    if why == NO_TIME:
        return "let the app leave its X-Retry-Timeout or grpc-timeout out, or give the call more than 0"
    return f"raise timeouts.total (now {now}) or the app's own deadline, or let attempts end sooner: timeouts.attempt"


def _of_fault(detail: str) -> str:
    """Return the remedy for a fault with this detail, "" if more or later attempts may succeed."""
    return next((remedy for part, remedy in _OF_FAULTS if part in detail), "")


def _start(detail: str) -> str:
    """Return the clause that comes first if the last attempt, with this detail of its fault, found a closed port."""
    return "nothing listens there: start the upstream, or correct url; " if _REFUSED in detail else ""


def _exhausted(most: int, start: str) -> str:
    """Return the remedy for a call whose `most` attempts all failed; `start` is what to do before that."""
    if most == 1:
        return f"{start}choose a strategy that retries, such as strategy: standard"
    return f"{start}if the upstream only needs longer, raise strategy.max_attempts (now {most}) or backoff.max"


def _not_retryable(why: str, policy: Policy, method: str, status: int | None) -> str:
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
        if status == 401 and policy.credentials is not None:
            return f"the upstream refused the key that redrive sends: correct it {_place_of_keys(policy.credentials)}"
        if status == 401:
            return "the upstream refused the app's credentials: give the app ones that are valid there"
        return "if another attempt can succeed, name it in classify.transient, or write a rule: classify.rules"
    if why.startswith("it is named as fatal"):
        return "the rule that names it says that no attempt helps; a rule of your own in classify.rules goes before it"
    if why.startswith(NO_LONGER_SAFE):
        return "let attempts end sooner, so that a repeat comes before the signature expires: timeouts.attempt"
    return ""


def _place_of_keys(credentials: Credentials) -> str:
    """Return where the keys stand, in words: the files that have them, or the configuration."""
    files = dict.fromkeys(file.path for file in credentials.files if file is not None)
    if not files:
        return "where credentials.values names it"
    named = f"in {', '.join(files)}"
    return named if len(credentials.values) == len(files) == 1 else f"{named}, or where credentials.values names it"


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"
