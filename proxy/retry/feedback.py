"""Feedback: the reports of each attempt's end to everything that learns from it.

The bucket, the adaptive limiter, the cooldown, the credentials, the circuit breakers, the endpoints and hedging learn
from every attempt. Nothing is decided here.
"""

from __future__ import annotations

from proxy.retry.call_state import CallState
from proxy.retry.classification import MISDIRECTED, refuses_credential
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.facts import Class, Failure
from proxy.retry.next_attempt import NextAttempt
from proxy.retry.request_hints import RequestHints
from proxy.retry.states import Flight, Flying

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_THROTTLING = Class.THROTTLING
#: The classes that a circuit breaker counts as signs of illness (contract, section 13).
_ILL = frozenset({Class.TRANSIENT, Class.TIMEOUT})


def report_start(hints: RequestHints, upcoming: NextAttempt, now: float) -> None:
    """Report to the bucket that the call begins, and charge an app's own retry."""
    bucket = upcoming.bucket
    if bucket is not None:
        bucket.begin(now)
        if hints.retries_itself:
            upcoming.app_paid = bucket.charge_app_retry(now)


def report_failure(
    call: CallState, upcoming: NextAttempt, failure: Failure, flight: Flight, on: bool, now: float
) -> bytes | None:
    """Report a failed attempt. `on`: the failure is retryable. Returns the name of the group of calls whose cooldown
    began with it, or None.
    """
    learn(upcoming, failure.verdict.cls is _THROTTLING, now)
    if upcoming.bucket is not None and (on or failure.pushback.stop):
        upcoming.bucket.failed(now)
    began = None
    if upcoming.cools:
        began = upcoming.scope.cool_down(failure, call.policy.pushback, upcoming.scope.caller(call.request), now)
        if began is not None:
            _report_cooldown(upcoming, failure, flight, began, now)
    if upcoming.admission is not None:
        upcoming.landed(flight, now, failure.status is not None and not failure.verdict.cls.retryable)
    keys = upcoming.keys
    if keys is not None:
        refused = call.reply is not None and refuses_credential(call.policy.classify, call.request, call.reply)
        flight.aside = keys.failed(failure, refused=refused, now=now)
        if flight.aside:
            upcoming.env.credential_aside(call.policy.upstream, keys.key + 1)
    return began


def report_success(upcoming: NextAttempt, is_first: bool, now: float) -> None:
    """Report that the call has succeeded. `is_first`: with its first attempt at this upstream."""
    learn(upcoming, False, now)
    bucket = upcoming.bucket
    if bucket is not None and upcoming.app_paid is not None and is_first:
        bucket.app_succeeded(upcoming.app_paid, now)
    elif bucket is not None:
        bucket.succeeded(None if is_first else upcoming.paid, now)


def learn(upcoming: NextAttempt, throttled: bool, now: float) -> None:
    """Report the end of an attempt to the adaptive limiter. `throttled`: it was throttled."""
    scope = upcoming.scope
    if scope.pacing is not None and upcoming.policy.mode == "enforce":
        scope.pacing.learn(throttled, now)
        if scope.limiter is not None and scope.limiter.queue:
            scope.limiter.retime(now)


def report_to_endpoint(upcoming: NextAttempt, flight: Flight, failure: Failure, now: float) -> None:
    """Report a failed attempt to its endpoint, and to the endpoint's circuit breaker."""
    if upcoming.picker is not None and flight.endpoint is not None:
        upcoming.picker.failed(flight, failure.fault, now)
        upcoming.picker.report_to_breaker(flight, ill=_is_ill(failure), now=now)


def report_trailers(upcoming: NextAttempt, flight: Flight, cls: Class, now: float) -> None:
    """Report to the endpoint's circuit breaker that an attempt which was reported as well has failed by its trailers,
    if their class `cls` is a sign that the endpoint is ill.
    """
    if upcoming.picker is not None and cls in _ILL:
        upcoming.picker.report_to_breaker(flight, ill=True, now=now, after_all=True)


def report_answer(upcoming: NextAttempt, state: Flying, flight: Flight, now: float) -> None:
    """Report an attempt whose answer is delivered to the app. The attempt's endpoint learns that it was reached;
    hedging learns the time until the first byte of the answer, for its percentile.
    """
    hedges = upcoming.scope.hedges
    if hedges is not None and upcoming.policy.mode == "enforce":
        at = now if flight.body_wait is None else flight.body_wait.counted or now
        hedges.answered(at - min([each.since for each in state.flights.values()]), now)
    if upcoming.admission is not None:
        upcoming.landed(flight, now, True)
    if upcoming.picker is not None and flight.endpoint is not None:
        upcoming.picker.endpoints.reached(flight.endpoint)
        upcoming.picker.report_to_breaker(flight, ill=False, now=now)


def _is_ill(failure: Failure) -> bool:
    """Whether the failure is a sign that its endpoint is ill; a 421 is not, since it is about a connection."""
    return failure.verdict.cls in _ILL and failure.verdict is not MISDIRECTED


def _report_cooldown(upcoming: NextAttempt, failure: Failure, flight: Flight, group: bytes, now: float) -> None:
    """Report to the observers that this failed attempt's answer began a cooldown, which holds the group of calls named
    `group`.
    """
    pushback, policy, request = failure.pushback, upcoming.policy, upcoming.request
    assert pushback.cooldown is not None and failure.status is not None
    upcoming.env.cooldown_began(
        CooldownBegan(
            upstream=policy.upstream,
            route=policy.route,
            group=group,
            status=failure.status,
            field=pushback.source,
            delay=min(pushback.cooldown, policy.pushback.max_delay),
            at=now,
            method=request.method,
            path=request.path,
            attempt=failure.attempt,
            endpoint=flight.sent_to,
            key=0 if upcoming.keys is None else upcoming.keys.key + 1,
        )
    )
