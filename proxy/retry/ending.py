"""How an attempt failed, as far as it says something about its upstream's capacity, or whether it can be reached.

Contract, section 14: want of capacity is throttling, a timeout, 503, a refused stream, or a connection that was not
made; "ends without an answer of its own" are a connection that was not made (which counts for the endpoint), and a
reset, a timeout, 502, 503 and 504 without a named delay (which count for their route and method). A name that does not
exist and a certificate that is refused are signs of neither.
"""

from __future__ import annotations

from proxy.retry.facts import Class, Failure, FaultKind

#: Faults of a connection that say nothing about the upstream's capacity: the RFC 9209 error types of names and TLS, of
#: a destination that is not allowed, and of limits of this process.
_NO_SIGN = frozenset(
    {
        *("dns_error", "tls_certificate_error", "tls_protocol_error", "tls_alert_received"),
        *("destination_ip_prohibited", "connection_limit_reached", "proxy_internal_error", "http_protocol_error"),
    }
)
_LOST_STATUS = frozenset({502, 503, 504})
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_THROTTLING, _TIMEOUT, _TRANSIENT = Class.THROTTLING, Class.TIMEOUT, Class.TRANSIENT
#: The endings of attempts whose answer's class is transient, and names no delay, by status; most failures are these.
_ANSWERED: dict[int, AttemptEnding] = {}


class AttemptEnding:
    """How an attempt failed, for the governor. `well`: its answer is no failure of the upstream's own (a 404, say),
    since no retry could help; `refused`: it failed for want of capacity; `throttled`: the upstream refused it because a
    limit was exceeded (429, say), which concerns its credential alone; `quick`: an answer said that it failed, so that
    this was known soon; `lost`: "endpoint" or "route", for which of them it counts that the attempt ended without an
    answer of the upstream's own, "" if it was answered. `how`: the status or the kind of fault, for observers.
    """

    __slots__ = ("how", "lost", "quick", "refused", "throttled", "well")

    def __init__(self, well: bool, refused: bool, throttled: bool, quick: bool, lost: str, how: str) -> None:
        self.well = well
        self.refused = refused
        self.throttled = throttled
        self.quick = quick
        self.lost = lost
        self.how = how


def ending_of(failure: Failure) -> AttemptEnding:
    """How this attempt failed, for the governor."""
    fault, cls = failure.fault, failure.verdict.cls
    if fault is not None:
        kind = fault.kind
        if kind is FaultKind.CONNECT_FAILURE:
            is_sign = fault.error not in _NO_SIGN
            return AttemptEnding(False, is_sign, False, False, "endpoint" if is_sign else "", kind.value)
        if kind is FaultKind.REFUSED_STREAM:
            return AttemptEnding(False, True, False, True, "", kind.value)
        return AttemptEnding(False, kind is FaultKind.ATTEMPT_TIMEOUT, False, False, "route", kind.value)
    status = failure.status
    if status is None or cls is not _TRANSIENT or failure.pushback.delay is not None:
        return _of_answer(failure)
    ending = _ANSWERED.get(status)
    if ending is None:
        ending = _ANSWERED[status] = _of_answer(failure)
    return ending


def _of_answer(failure: Failure) -> AttemptEnding:
    """The ending of a failed attempt that was answered by the upstream."""
    status, cls = failure.status, failure.verdict.cls
    how = cls.value if status is None else str(status)
    if cls is _THROTTLING or status == 429:
        return AttemptEnding(False, True, True, True, "", how)
    is_lost = status in _LOST_STATUS and failure.pushback.delay is None and cls.retryable
    is_refused = status == 503 or cls is _TIMEOUT
    return AttemptEnding(not cls.retryable, is_refused, False, True, "route" if is_lost else "", how)
