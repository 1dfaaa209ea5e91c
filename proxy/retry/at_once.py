"""Calls that succeed at once, decided without a `Call`.

Law: what is said here is exactly what `proxy.retry.call` would decide, for the one way that nearly every call goes:
nothing holds it, nothing about it has to be heeded, its first attempt's answer is a success and is there as a whole.
The moment anything else happens, a driver makes the Call, tells it `flown` in the place of `start`, and goes on with
that; nothing has been decided by then that the Call would have decided otherwise.
"""

from __future__ import annotations

from proxy.retry.commons import ScopeState
from proxy.retry.facts import Fields, Request
from proxy.retry.policy import Policy


def may_go_at_once(policy: Policy, request: Request) -> bool:
    """Whether calls of this request and policy can go without a Call at first. It holds for as long as both do."""
    return (
        request.plain
        and policy.mode == "enforce"
        and policy.strategy.custom is None
        and policy.strategy.hedging_delay is None
        and policy.idempotency_key.header == "Idempotency-Key"  # `plain` looks for that name
        and not policy.idempotency_key.inject
        and policy.classify.plain_below_400
    )


def nothing_holds(scope: ScopeState, now: float) -> bool:
    """Whether a call would be launched now."""
    return scope.ungated and now >= scope.cooldown.quiet_from


def began(scope: ScopeState, now: float) -> None:
    """A call was launched."""
    if scope.bucket is not None:
        scope.bucket.begin(now)


def is_success(status: int, fields: Fields) -> bool:
    """Whether a whole answer without trailers is a success, under a policy that `may_go_at_once`."""
    return status < 400 and not fields.get_all("grpc-status")


def succeeded(scope: ScopeState, now: float) -> None:
    """The first attempt's answer was a success, and the call is over."""
    if scope.bucket is not None:
        scope.bucket.succeeded(None, now)
