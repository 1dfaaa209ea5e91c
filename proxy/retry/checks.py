"""The order of checks: why a failed attempt is, or is not, followed by another (contract, section 4).

Law: one sequence serves every strategy, and each *no* is a value. The price is not taken here; the caller takes it at
once after the last check has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.facts import (
    GRPC_STATUS_NAMES,
    Class,
    Fault,
    FaultKind,
    Outcome,
    Progress,
    Pushback,
    Reply,
    Request,
    Verdict,
)
from proxy.retry.policy import Policy, UnsafeMethods

#: gRPC's http-grpc-status-mapping: these stand for UNAVAILABLE on a gRPC call, and so do these faults.
_UNAVAILABLE_STATUSES = frozenset({429, 502, 503, 504})
_UNAVAILABLE_FAULTS = frozenset({FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET})


@dataclass(slots=True)
class Failure:
    """A failed attempt, as it is judged. Exactly one of `status` and `fault` is set."""

    attempt: int
    verdict: Verdict
    pushback: Pushback
    status: int | None = None
    fault: Fault | None = None

    @property
    def price_class(self) -> Class:
        """The class that a retry after this failure pays for: what nothing names pays as a transient one."""
        return self.verdict.cls if self.verdict.cls.retryable else Class.TRANSIENT


def is_safe(verdict: Verdict, fault: Fault | None, *, idempotent: bool, unsafe_methods: UnsafeMethods) -> bool:
    """Whether repeating the request can do no harm that the policy does not allow (contract, "Safety", 1 to 3)."""
    if fault is not None and fault.progress is Progress.NEVER_SENT:
        return True
    if idempotent or unsafe_methods == "always":
        return True
    if unsafe_methods == "never":
        return False
    return verdict.unprocessed or (fault is not None and fault.progress is Progress.REFUSED)


def first_no(
    failure: Failure, *, retryable: bool, committed: bool, disabled: bool, safe: bool, left: bool
) -> Outcome | None:
    """The checks from the stop pushback to the attempts left; None where none of them says no.

    `disabled`: by the mode, or by X-Retry-Disable; `safe`: see `is_safe`; `left`: an attempt is.
    """
    if failure.pushback.stop:
        return Outcome.PUSHBACK_STOP
    if not retryable:
        return Outcome.NOT_RETRYABLE
    if committed:
        return Outcome.COMMITTED
    if disabled:
        return Outcome.DISABLED
    if not safe:
        return Outcome.NOT_RETRYABLE
    return None if left else Outcome.ATTEMPTS_EXHAUSTED


def too_long(pushback: Pushback, policy: Policy) -> bool:
    """Whether the delay, as it was named, is above `max_delay`."""
    return pushback.delay is not None and pushback.delay > policy.pushback.max_delay


def is_non_fatal(policy: Policy, request: Request, reply: Reply | None, fault: Fault | None) -> bool:
    """Whether a hedged call goes on from this failure: `non_fatal` alone decides (contract, "Hedging")."""
    listed = policy.strategy.non_fatal
    speaks_grpc = request.is_grpc or policy.classify.service_codes is not None
    if fault is not None:
        return fault.kind in listed or (speaks_grpc and fault.kind in _UNAVAILABLE_FAULTS and "UNAVAILABLE" in listed)
    if reply is None:
        return False
    if reply.grpc_status is not None:
        return GRPC_STATUS_NAMES[reply.grpc_status] in listed
    return reply.status in listed or (speaks_grpc and reply.status in _UNAVAILABLE_STATUSES and "UNAVAILABLE" in listed)
