"""The proxy's own answers: where no upstream answer exists, what the app is told, by outcome and fault.

Statuses as in the contract, section 4, "The answer"; `error` values are the proxy error types of RFC 9209, 2.3.
"""

from __future__ import annotations

from proxy.retry.actions import Answer
from proxy.retry.facts import Fault, FaultKind, Outcome
from proxy.retry.reasons import SHUT_DOWN

_BY_OUTCOME: dict[Outcome, tuple[int, str, str, str]] = {
    Outcome.DEADLINE: (504, "Deadline exceeded", "no answer came before the call's deadline", "http_response_timeout"),
    Outcome.RATE_LIMITED: (503, "Rate limited", "the upstream's rate bucket is empty", "http_request_denied"),
    Outcome.COOLING: (503, "Cooling down", "the upstream asked its callers to wait", "http_request_denied"),
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
    """The answer for a call that ends with `outcome` and, where its last attempt met one, `fault`.

    `retry_after` is seconds. `status` takes the place of the outcome's own, where no fault says more.
    """
    if fault is not None and outcome not in (Outcome.DENIED, Outcome.BAD_REQUEST):
        # A connection that did not come in time is a timeout too (RFC 9209 section 2.3.9 recommends 504 for it).
        timed_out = fault.kind is FaultKind.ATTEMPT_TIMEOUT or fault.error == "connection_timeout"
        code, title = (504, "Gateway timeout") if timed_out else (502, "Bad gateway")
        text = detail or fault.detail or _FAULTS[fault.kind]
        told = fault.kind is FaultKind.RESET and fault.code is not None
        grpc_status = fault.grpc_status if told else None
        return Answer(code, title, text, outcome, retry_after, fault.error, grpc_status)
    usual, title, text, error = _BY_OUTCOME[outcome]
    if detail == SHUT_DOWN:  # RFC 9209 section 2.3.8: there was room; it was this end that closed
        error = "connection_terminated"
    return Answer(status or usual, title, detail or text, outcome, retry_after, error)


_FAULTS = {
    FaultKind.CONNECT_FAILURE: "the upstream could not be connected to",
    FaultKind.REFUSED_STREAM: "the upstream refused the request",
    FaultKind.RESET: "the upstream broke off before its answer was whole",
    FaultKind.ATTEMPT_TIMEOUT: "the upstream did not answer in time",
}
