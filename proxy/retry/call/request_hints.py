"""The hints in an app's request: X-Retry-* and grpc-timeout fields, and fields that mark a request as an app's own
retry.

No hint can loosen a policy: a timeout only shortens the deadline, X-Retry-Disable only rules retries out, and a call
that is itself an app's retry is charged tokens (contract, section 5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.retry.facts import Fields, Request, first
from proxy.retry.policies.policy import Policy, Strategy
from proxy.retry.scopes.seen_keys import SeenKeys

#: The contract's durations, and bare seconds.
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,30})?)(ms|s|m|h)?")  # Python writes a float with up to 17 decimals
_LONGEST = 1e9  # seconds, some thirty years: timers take no number as large as one with 18 digits
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}

#: gRPC over HTTP/2: Timeout -> "grpc-timeout" TimeoutValue TimeoutUnit.
_GRPC_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_GRPC_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_AWS_ATTEMPT = re.compile(r"(?:^|;)\s*attempt\s*=\s*(\d{1,9})\s*(?:;|$)")


@dataclass(frozen=True, slots=True)
class RequestHints:
    """The hints of one request. `disabled`: X-Retry-Disable rules retries out. `timeout`: the shortest timeout that the
    request names, in seconds. `unreadable`: the request has an X-Retry-Timeout that can't be read. `retries_itself`:
    the request is the app's own retry.
    """

    disabled: bool = False
    timeout: float | None = None
    unreadable: bool = False
    retries_itself: bool = False


NO_HINTS = RequestHints()


def read_request_hints(request: Request, policy: Policy, seen: SeenKeys, now: float) -> RequestHints:
    """Read the hints in the header fields of a request. `seen`: the idempotency keys and invocation ids that came
    before; a request with one of them is the app's own retry.
    """
    fields = request.fields
    disabled = any(value.lower() == "true" for value in fields.get_all("x-retry-disable"))
    timeout, unreadable = read_timeout(fields), not has_readable_timeout(fields)
    retries_itself = _retries_itself(request, policy, seen, now)
    if timeout is None and not (disabled or unreadable or retries_itself):
        return NO_HINTS  # calls that wait share it
    return RequestHints(disabled, timeout, unreadable, retries_itself)


def read_timeout(fields: Fields) -> float | None:
    """The shortest timeout, in seconds, that these fields name and that can be read; None if they name none."""
    named = [read_duration(value) for value in fields.get_all("x-retry-timeout")]
    return min(
        [each for each in (read_grpc_timeout(first(fields, "grpc-timeout")), *named) if each is not None], default=None
    )


def has_readable_timeout(fields: Fields) -> bool:
    """Whether each X-Retry-Timeout among these fields can be read; True if there is none."""
    return all(read_duration(value) is not None for value in fields.get_all("x-retry-timeout"))


def may_start_undecided(policy: Policy, request: Request) -> bool:
    """Whether a driver may send this request before it makes a `Call` for it, which saves time if the request succeeds.

    It may if a `Call` would decide nothing before the answer's head has come, and would then only deliver a plain
    success (`classification.is_plain_success`). If anything else happens, the driver makes the `Call` at that point,
    and begins it with `flown` in place of `start`. The result is the same at any time for this policy and this request.
    """
    known = policy.undecided
    if known is None:
        known = _may_start_undecided(policy)
        object.__setattr__(policy, "undecided", known)
    return (
        known
        and (request.plain or request.timed)
        and not (policy.classify.inside and request.method in ("PUT", "POST"))
    )


def _may_start_undecided(policy: Policy) -> bool:
    """Whether the policy allows its calls to start without a `Call` object (see `may_start_undecided`)."""
    strategy, holds = policy.strategy, policy.mode == "enforce"
    return (
        not (holds and (strategy.custom is not None or _hedges_at_once(strategy)))
        and not (holds and strategy.paced and not strategy.delay_first)
        and not (holds and policy.pushback.ahead)
        and policy.tokens is None
        and policy.idempotency_key.header == "Idempotency-Key"  # `Request.plain` covers that name alone
        and not policy.idempotency_key.inject
        and policy.classify.plain_below_400
        and len(policy.endpoints) <= 1  # else the core chooses one of them
        and not (holds and policy.timeouts.first_byte is not None and policy.classify.empty_events)
    )


def _hedges_at_once(strategy: Strategy) -> bool:
    """Whether a `Call` object is needed from the start under this hedging strategy: hedges have no delay, or the delay
    is a percentile of other calls' times, or other calls' hedges count (`extra`).
    """
    if strategy.hedging_delay is None:
        return False
    return strategy.hedging_delay <= 0 or strategy.hedging_percentile is not None or strategy.extra is not None


def read_duration(text: str) -> float | None:
    """The seconds that `250ms`, `2s`, `1m`, `1h` or a bare number stands for; None if the text is none of these."""
    match = _DURATION.fullmatch(text)
    return min(float(match[1]) * _UNITS[match[2]], _LONGEST) if match else None


def read_grpc_timeout(text: str | None) -> float | None:
    """The seconds that the value of a grpc-timeout field stands for. None if `text` is None or unreadable, since
    servers treat an unreadable timeout as absent.
    """
    match = _GRPC_TIMEOUT.fullmatch(text) if text is not None else None
    return int(match[1]) * _GRPC_UNITS[match[2]] if match else None


def _retries_itself(request: Request, policy: Policy, seen: SeenKeys, now: float) -> bool:
    fields = request.fields
    attempt = _AWS_ATTEMPT.search(first(fields, "amz-sdk-request") or "")
    found = attempt is not None and int(attempt[1]) > 1
    for name, most in (("x-stainless-retry-count", 0), ("grpc-previous-rpc-attempts", 0), ("x-envoy-attempt-count", 1)):
        found = _count(first(fields, name)) > most or found
    # Every key is remembered, even if another mark was found already: the next request may carry the key alone.
    for name in ("amz-sdk-invocation-id", policy.idempotency_key.header.lower()):
        key = first(fields, name)
        if key:
            found = seen.again(f"{name}:{key}", now) or found
    return found


def _count(value: str | None) -> int:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 10 else 0
