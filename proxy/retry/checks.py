"""The order of checks: why a failed attempt is, or is not, followed by another (contract, section 4).

Law: one sequence serves every strategy, and each *no* is a value. The price is not taken here; the caller takes it at
once after the last check has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.retry.facts import Class, Fault, Outcome, Progress, Pushback, Verdict
from proxy.retry.policy import Policy, UnsafeMethods

#: Sums of floating-point seconds may miss a deadline that they meet exactly; a wait that ends at it is begun.
HAIR = 1e-9

NEVER = float("inf")


@dataclass(slots=True)
class Failure:
    """A failed attempt, as it is judged. Exactly one of `status` and `fault` is set. `sent`: when it was (seconds)."""

    attempt: int
    verdict: Verdict
    pushback: Pushback
    status: int | None = None
    fault: Fault | None = None
    sent: float = 0.0

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
    if verdict.repeated_by:
        return True
    return verdict.unprocessed or (fault is not None and fault.progress is Progress.REFUSED)


def safe_until(failure: Failure, first_sent: float, *, idempotent: bool, unsafe_methods: UnsafeMethods) -> float:
    """Until when another attempt is safe (seconds): never if it is not, and for ever, but where it is only since the
    provider's own client repeats the call, and that client does so for a while alone (AWS: its signature expires).
    """
    verdict, fault = failure.verdict, failure.fault
    if not is_safe(verdict, fault, idempotent=idempotent, unsafe_methods=unsafe_methods):
        return -NEVER
    if verdict.repeated_within is None or is_safe(
        replace(verdict, repeated_by=""), fault, idempotent=idempotent, unsafe_methods=unsafe_methods
    ):
        return NEVER
    return first_sent + verdict.repeated_within


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
