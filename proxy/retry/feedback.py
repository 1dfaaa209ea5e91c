"""Feedback: the reports of each attempt's end to everything that learns from it.

The bucket, the adaptive limiter, the cooldown, the credentials, the circuit breakers, the endpoints and hedging learn
from every attempt. Nothing is decided here.
"""

from __future__ import annotations

from proxy.retry.call_state import CallState
from proxy.retry.caller import Name
from proxy.retry.classification import MISDIRECTED, refuses_credential
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.ending import ending_of
from proxy.retry.facts import Class, Failure, FaultKind, Reply
from proxy.retry.key_files import is_outdated
from proxy.retry.limit_fields import read_limits
from proxy.retry.next_attempt import NextAttempt
from proxy.retry.request_hints import RequestHints
from proxy.retry.states import Flight, Flying

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_THROTTLING = Class.THROTTLING
#: The classes that a circuit breaker counts as signs of illness (contract, section 13).
_ILL = frozenset({Class.TRANSIENT, Class.TIMEOUT})


def report_start(hints: RequestHints, upcoming: NextAttempt, now: float) -> None:
    """Report to the bucket that the call begins. If the request says that it is the app's own retry (`hints`), charge
    the bucket for it. `upcoming`: what the call's first attempt needs, which has the bucket.
    """
    bucket = upcoming.bucket
    if bucket is not None:
        bucket.begin(now)
        if hints.retries_itself:
            upcoming.app_paid = bucket.charge_app_retry(now)


def report_failure(
    call: CallState, upcoming: NextAttempt, failure: Failure, flight: Flight, on: bool, now: float
) -> Name | None:
    """Report a failed attempt to everything that learns from it. `upcoming`: what the call's next attempt needs, which
    has the bucket, the gates and the endpoints; `on`: the failure is retryable. Returns the name of the lane whose
    cooldown began with this failure, or None.
    """
    learn(upcoming, failure.verdict.cls is _THROTTLING, now)
    ahead = upcoming.scope.governor.ahead
    if flight.note is not None and ahead is not None and failure.status == 429 and call.reply is not None:
        if failure.pushback.delay is None:
            report_limits(upcoming, flight, call.reply, now)
        else:
            ahead.forget(flight.note.whose, flight.since, now)
    if upcoming.bucket is not None and (on or failure.pushback.stop):
        upcoming.bucket.failed(now)
    began = None
    if flight.traffic is not None:
        began = report_to_governor(upcoming, failure, flight, now, again=_fails_again(call, failure))
    keys = upcoming.keys
    if keys is not None:
        refused = call.reply is not None and refuses_credential(call.policy.classify, call.request, call.reply)
        flight.aside = keys.failed(failure, refused=refused, outdated=is_outdated(call, flight), now=now)
        if flight.aside:
            upcoming.env.credential_aside(call.policy.upstream, keys.key + 1)
    return began


def report_success(upcoming: NextAttempt, is_first: bool, now: float) -> None:
    """Report that the call has succeeded. `upcoming`: what the call's next attempt would need, which has the bucket and
    the gates; `is_first`: the first attempt at this upstream succeeded.
    """
    learn(upcoming, False, now)
    bucket = upcoming.bucket
    if bucket is not None and upcoming.app_paid is not None and is_first:
        bucket.app_succeeded(upcoming.app_paid, now)
    elif bucket is not None:
        bucket.succeeded(None if is_first else upcoming.paid, now)


def report_limits(upcoming: NextAttempt, flight: Flight, reply: Reply, now: float) -> None:
    """Report to the governor what the answer `reply` says is left of its upstream's limits. For a 429 this is called
    when the answer is judged, and only if it names no delay: a delay counts more than what is left of limits. `flight`:
    the answered attempt; `upcoming`: what the call's next attempt needs, which has the governor.
    """
    ahead, note, policy = upcoming.scope.governor.ahead, flight.note, upcoming.policy
    if ahead is None or note is None:
        return
    wall = now + upcoming.env.wall_offset
    limits = read_limits(reply.fields, policy.classify.dialects, wall, policy.pushback.max_delay)
    if limits or note.account.reports:
        ahead.heard(note, limits, flight.since, reply.status < 400, now)


def learn(upcoming: NextAttempt, throttled: bool, now: float) -> None:
    """Report the end of an attempt to the adaptive limiter. `upcoming`: what the call's next attempt needs, which has
    the limiter; `throttled`: whether the attempt was throttled.
    """
    scope = upcoming.scope
    if scope.pacing is not None and upcoming.policy.mode == "enforce":
        scope.pacing.learn(throttled, now)
        if scope.limiter is not None and scope.limiter.queue:
            scope.limiter.retime(now)


def report_to_endpoint(upcoming: NextAttempt, flight: Flight, failure: Failure, now: float) -> None:
    """Report the failed attempt `flight` to its endpoint, and to the endpoint's circuit breaker. `upcoming`: what the
    call's next attempt needs, which has both.
    """
    if upcoming.picker is not None and flight.endpoint is not None:
        upcoming.picker.failed(flight, failure.fault, now)
        upcoming.picker.report_to_breaker(flight, ill=_is_ill(failure), now=now, after_all=flight.reported)


def report_trailers(upcoming: NextAttempt, flight: Flight, cls: Class, now: float) -> None:
    """Report to the endpoint's circuit breaker that the attempt `flight`, which was reported as healthy, has failed by
    its trailers, if their class `cls` is a sign that the endpoint is ill. `upcoming`: what the call's next attempt
    needs, which has the breaker.
    """
    if upcoming.picker is not None and cls in _ILL:
        upcoming.picker.report_to_breaker(flight, ill=True, now=now, after_all=True)


def report_answer(upcoming: NextAttempt, state: Flying, flight: Flight, now: float) -> None:
    """Report that the answer of the attempt `flight` is delivered to the app: to the endpoint and the governor, which
    learn that the upstream answers, and to hedging, which learns the time until the answer's first byte, for its
    percentile. `state`: the attempts in flight; `upcoming`: what the call's next attempt needs, which has these
    objects.
    """
    hedges = upcoming.scope.hedges
    if hedges is not None and upcoming.policy.mode == "enforce":
        at = now if flight.body_wait is None else flight.body_wait.counted or now
        hedges.answered(at - min([each.since for each in state.flights.values()]), now)
    traffic = flight.traffic
    if traffic is not None:
        flight.traffic = None
        governor = upcoming.scope.governor
        if traffic.went_well(now) or upcoming.admission is not None or governor.holds(now):
            caller = upcoming.caller()
            caller.endpoint = upcoming.endpoint_of(flight)
            governor.answered_well(flight, caller, flight.since, now)
    if upcoming.picker is not None and flight.endpoint is not None:
        upcoming.picker.endpoints.reached(flight.endpoint)
        upcoming.picker.report_to_breaker(flight, ill=False, now=now)


def report_to_governor(upcoming: NextAttempt, failure: Failure, flight: Flight, now: float, again: bool) -> Name | None:
    """Report to the governor how the attempt `flight` failed. `again`: the attempt could not connect, and neither could
    an earlier attempt of its call. `upcoming`: what the call's next attempt needs, which has the governor. Returns the
    name of the lane whose cooldown began with this failure, or None.
    """
    governor, caller, traffic = upcoming.scope.governor, upcoming.caller(), flight.traffic
    assert traffic is not None  # the attempt is reported once
    caller.endpoint = upcoming.endpoint_of(flight)
    flight.traffic = None
    traffic.failed()
    status = failure.status
    rules = upcoming.policy.pushback
    seconds = min(failure.pushback.cooldown or 0.0, rules.max_delay)
    may_cool = caller.cools or upcoming.policy.mode == "observe"  # which has no cooldown, but would have one
    cools = may_cool and seconds > 0 and status is not None and rules.cooldown != "off"
    ending = ending_of(failure)
    governor.failed(flight, caller, ending, flight.since, now, again=again, cools=cools)
    if not cools or not caller.cools or status is None:
        return None
    name = governor.requests_wait(caller, status, seconds, sent=failure.sent, now=now, whole=rules.of == "upstream")
    if name is not None:
        _report_cooldown(upcoming, failure, flight, name[1], now)
    return name


def report_resent(upcoming: NextAttempt, flight: Flight, now: float) -> None:
    """Report to the governor that an attempt is sent again at once, as its call's transparent retry. If a limit began
    since its first sending, the attempt now counts for that limit as one sent at the time of its second sending, and
    not as one from before the limit.
    """
    governor = upcoming.scope.governor
    if flight.traffic is not None and governor.holds(now) and flight not in governor:
        lane = governor.lane(upcoming.endpoint_of(flight))
        if lane.limit.is_on:
            lane.free_place(flight, flight.since, now)


def _fails_again(call: CallState, failure: Failure) -> bool:
    """Whether the attempt could not connect, and neither could an earlier attempt of the call."""
    if failure.fault is None or failure.fault.kind is not FaultKind.CONNECT_FAILURE:
        return False
    return any(record.fault == FaultKind.CONNECT_FAILURE for record in call.history if record.decision != "transparent")


def _is_ill(failure: Failure) -> bool:
    """Whether the failure is a sign that its endpoint is ill; a 421 is not, since it is about a connection."""
    return failure.verdict.cls in _ILL and failure.verdict is not MISDIRECTED


def _report_cooldown(upcoming: NextAttempt, failure: Failure, flight: Flight, group: bytes, now: float) -> None:
    """Report to the observers that the answer to the failed attempt `flight` began a cooldown of the group of callers
    named `group`. `upcoming`: what the call's next attempt needs, which knows the observers.
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
