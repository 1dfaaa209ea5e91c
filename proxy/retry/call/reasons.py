"""The reason, in one clause, why a call was held or answered at once: for the log, the dashboard and `explain`. The
reason why no attempt follows a failure is in `proxy.retry.call.refusals`.

The proxy's own answers are here too: what the app gets if there is no answer of the upstream's. Nothing is decided
here: the checks have returned a refusal as a value (`Outcome`), and these functions put it into words, with the figures
that it is based on. Nothing in these texts is secret: methods, names of the configuration, and numbers. Statuses of
answers are as in the contract, section 4, "The answer"; their `error` values are the proxy error types of RFC 9209,
2.3.
"""

from __future__ import annotations

from proxy.retry.call.actions import Answer
from proxy.retry.call.gates import GATES
from proxy.retry.facts import UNAVAILABLE, Fault, FaultKind, Outcome
from proxy.retry.policies.policy import Concurrency

OUTGREW = "the request's body outgrew its replay buffer"
TOO_LATE = "the deadline came first"
NO_TIME = "the app gives the call no time at all: nothing was sent"
NO_LONGER_SAFE = "the provider's own client would no longer repeat it: its signature may have expired"
NO_PLACE = "as many attempts are under way as concurrency.max allows"
TOO_LATE_FOR_A_PLACE = "no place among the attempts under way became free before the deadline"
GAVE_UP_ITS_PLACE = "limits.waiting was used up, and its place went to a call of a better priority"
CIRCUIT_OPEN = "the circuit breaker of every endpoint is open"
NO_TOKEN = f"{GATES['rate']} has no token for it"
BY_OWN_CODE = "the strategy refuses it"
SHUT_DOWN = "the proxy shut down, and no longer waited for it"
CUT_SHORT = "the proxy shut down, and no longer waited for its answer: it may have been carried out"


def held_too_long(gate: str, wait: float, left: float | None, usual: float = 0.0) -> str:
    """The reason why a call is answered instead of being held, or held any longer, for the sake of its deadline.
    `gate`: the gate that would hold it. `wait`: the seconds for which the gate would. `left`: the seconds until the
    deadline (None counts as 0). `usual`: the seconds that the answer would take, 0 if that is not known or does not
    matter.
    """
    left = left or 0.0
    if left < 0.005:  # as hundredths: 0 s
        return f"{GATES[gate]} did not let it go before its deadline"
    if wait > left or not usual:
        return f"{GATES[gate]} lets it go in {about(wait)}, {past_deadline(wait, left)}"
    times = f"in {about(wait)}, and an answer may take {about(usual)}"
    return f"{GATES[gate]} lets it go {times}: too late for the deadline, which is in {about(left)}"


def held_in_vain(gate: str, wait: float, bound: str, most: float, left: float) -> str:
    """The reason why a call is refused that the governor would hold for `wait` seconds. `gate`: what would hold it:
    "cooldown", "limit" or "outage". `bound`: the bound that the wait would exceed: "reject", "deadline", "hold",
    "wait", "queue", "late" or "patience". `most`: that bound in seconds (for "queue" a number of calls; for "deadline"
    the seconds before the deadline at which the call has to be sent). `left`: the seconds that are left of the bound.
    """
    if bound == "reject":
        return "the upstream asked its callers to wait, and pushback.cooldown is reject"
    if bound == "deadline":
        return held_too_long(gate, wait, left + most, most)
    if bound == "queue":
        return f"{GATES[gate]} holds {most:g} calls already, as many as concurrency.queue allows"
    if bound == "late":
        return "the upstream has not answered for longer than pushback.hold, and no probe is about to be sent"
    if gate == "outage" and bound == "hold":
        return f"the upstream did not answer again within pushback.hold, {seconds(most)}"
    if bound == "patience":
        return f"{GATES[gate]} would hold it for longer than apps of this route have waited, {about(most)}"
    key = "pushback.hold" if bound == "hold" else "concurrency.wait"
    if round(wait, 2) <= 0:  # it was held for all of the bound, so nothing is left to be told
        return f"{GATES[gate]} did not let it go within {key}, {seconds(most)}"
    return f"{GATES[gate]} would hold it for {about(wait)} more, beyond {key}, {seconds(most)} in all"


def no_place(rules: Concurrency, *, waited: bool) -> str:
    """The reason why a call that got no place under the concurrency limit is answered. `rules`: the limit. `waited`:
    the call has waited for as long as it may; if False, the queue was full.
    """
    if waited:
        return f"no place became free within concurrency.wait, {seconds(rules.wait)} (concurrency.max is {rules.max})"
    under_way = f"as many attempts are under way as concurrency.max allows, {rules.max}"
    return f"{under_way}, and as many calls wait as concurrency.queue allows, {rules.queue}"


def circuit_open(left: float) -> str:
    """The reason why a call is answered at once: no endpoint's circuit breaker lets a call pass for another `left`
    seconds.
    """
    return f"{CIRCUIT_OPEN}; the next call may go in {about(left)}"


def seconds(amount: float) -> str:
    """Format a number of seconds that somebody has configured, as in `0.25 s`."""
    return f"{round(amount, 3):g} s" if amount < 1e6 else f"{amount:g} s"


def as_written(amount: float | None) -> str:
    """Format a number of seconds as a configuration has it: `250ms`, `2.5s`, `15m`, `1h`; None is `off`. Only an amount
    of ten minutes or more that is no whole number of minutes has two parts: `10m 0.1s`.
    """
    if amount is None:
        return "off"
    if 0.000005 <= amount < 1:  # an alarm that rings a microsecond later is no wait
        return f"{round(amount * 1000, 2):g}ms"
    minutes, rest = divmod(round(amount, 3), 60)
    if minutes == 0 or (rest and minutes < 10):
        return f"{round(amount, 3):g}s"
    if rest := round(rest, 3):
        return f"{minutes:.0f}m {rest:g}s"
    return f"{minutes / 60:.0f}h" if minutes % 60 == 0 else f"{minutes:.0f}m"


def about(amount: float) -> str:
    """Format a number of seconds that was measured or computed, rounded to what is of use to a reader: whole seconds
    from a minute on, tenths from a second on, hundredths below.
    """
    return seconds(round(amount) if amount >= 60 else round(amount, 1 if amount >= 1 else 2))


def past_deadline(wait: float, left: float | None) -> str:
    """Return the clause that something is due after the deadline. `wait`: the seconds until it is due. `left`: those
    until the deadline (None counts as 0). If both read alike, no number is named.
    """
    until = about(max(left or 0.0, 0.0))
    return "just after the deadline" if until == about(wait) else f"after the deadline, which is in {until}"


def wanted_too_late(left: float) -> str:
    """The reason why a call does not wait for the only endpoint that is left. `left`: the seconds for which that
    endpoint does not want this call, by its own answer to it.
    """
    return f"the endpoint that is left asked this call to wait for {about(left)} more, more than pushback.max_delay"


def wanted_past_deadline(left: float, until: float) -> str:
    """The reason why a call does not wait for the only endpoint that is left: as `wanted_too_late`, but the deadline,
    which is in `until` seconds, comes first.
    """
    return f"the endpoint that is left asked this call to wait for {about(left)} more, {past_deadline(left, until)}"


# -- the proxy's own answers ------------------------------------------------------------------------------------------

_BY_OUTCOME: dict[Outcome, tuple[int, str, str, str]] = {
    Outcome.DEADLINE: (504, "Deadline exceeded", "no answer came before the call's deadline", "http_response_timeout"),
    Outcome.RATE_LIMITED: (503, "Rate limited", "the upstream's rate bucket is empty", "http_request_denied"),
    Outcome.COOLING: (503, "Cooling down", "the upstream asked its callers to wait", "http_request_denied"),
    Outcome.CIRCUIT_OPEN: (503, "Circuit open", CIRCUIT_OPEN, "destination_unavailable"),
    Outcome.OVERLOADED: (503, "Overloaded", "too many calls are waiting in the proxy", "connection_limit_reached"),
    Outcome.OUTAGE: (503, "Outage", "the upstream does not answer", "destination_unavailable"),
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
    """The proxy's own answer to a call that ends with `outcome`. `fault`: the fault that ended its last attempt, None
    for none. `detail`: the text for people, None for the outcome's usual one. `retry_after`: the seconds for the field
    Retry-After, None for no such field. `status`: replaces the outcome's usual status, unless a fault determines the
    status.
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
    elif detail == CUT_SHORT:  # clients repeat any request after a 503, or by its Retry-After
        return Answer(502, "Bad gateway", detail, outcome, None, "connection_terminated", None)
    grpc_status = UNAVAILABLE if outcome in (Outcome.CIRCUIT_OPEN, Outcome.OUTAGE) else None  # contract, section 12
    return Answer(status or usual, title, detail or text, outcome, retry_after, error, grpc_status)


_FAULTS = {
    FaultKind.CONNECT_FAILURE: "the upstream could not be connected to",
    FaultKind.REFUSED_STREAM: "the upstream refused the request",
    FaultKind.RESET: "the upstream broke off before its answer was complete",
    FaultKind.ATTEMPT_TIMEOUT: "the upstream did not answer in time",
}
