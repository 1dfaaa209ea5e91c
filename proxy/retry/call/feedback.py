"""Feedback: the reports of each attempt's end to everything that learns from it.

The bucket, the adaptive limiter, the cooldown, the credentials, the circuit breakers, the endpoints and hedging learn
from every attempt. Nothing is decided here.

The governor decides which calls may be sent. From a failure it learns two things: whether the upstream lacks capacity,
and whether the upstream can be reached (contract, section 14). Signs that it lacks capacity are throttling, a timeout,
503, a refused stream, or a connection that was not made. Signs that it can't be reached are ends without an answer of
the upstream's own: a connection that was not made counts for the endpoint; a reset, a timeout, and 502, 503 or 504
without a named delay count for their route and method. A name that does not exist and a certificate that is refused are
signs of neither.
"""

from __future__ import annotations

from proxy.retry.answers.classification import MISDIRECTED, refuses_credential
from proxy.retry.answers.limit_fields import read_limits
from proxy.retry.call.call_state import CallState
from proxy.retry.call.key_files import is_outdated
from proxy.retry.call.next_attempt import NextAttempt
from proxy.retry.call.request_hints import RequestHints
from proxy.retry.call.states import Flight, Flying
from proxy.retry.facts import Class, Failure, Fault, FaultKind, Reply
from proxy.retry.weather.caller import Name
from proxy.retry.weather.cooldown import CooldownBegan
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.route_names import names_of

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_THROTTLING, _TIMEOUT, _TRANSIENT = Class.THROTTLING, Class.TIMEOUT, Class.TRANSIENT
#: The classes that a circuit breaker counts as signs of illness (contract, section 13).
_ILL = frozenset({Class.TRANSIENT, Class.TIMEOUT})
#: Faults of a connection that say nothing about the upstream's capacity: the RFC 9209 error types of names and TLS, of
#: a destination that is not allowed, and of limits of this process.
_NO_SIGN = frozenset(
    {
        "dns_error", "tls_certificate_error", "tls_protocol_error", "tls_alert_received",
        "destination_ip_prohibited", "connection_limit_reached", "proxy_internal_error", "http_protocol_error",
    }
)  # fmt: skip
_LOST_STATUS = frozenset({502, 503, 504})
#: The endings of attempts whose answer's class is transient, and names no delay, by status; most failures are these.
_ANSWERED: dict[int, AttemptEnding] = {}


def report_start(hints: RequestHints, next_attempt: NextAttempt, now: float) -> None:
    """Report to the bucket that the call begins, and charge the bucket if the call is the app's own retry. `hints`:
    what the request says about retries, such as that it is one. `next_attempt`: has the bucket.
    """
    bucket = next_attempt.bucket
    if bucket is not None:
        bucket.begin(now)
        if hints.retries_itself:
            next_attempt.app_paid = bucket.charge_app_retry(now)


def report_failure(
    call: CallState, next_attempt: NextAttempt, failure: Failure, flight: Flight, on: bool, now: float
) -> Name | None:
    """Report a failed attempt to everything that learns from it. Returns the name of the lane whose cooldown began with
    this failure, or None. `next_attempt`: has the bucket, the gates and the endpoints. `flight`: the failed attempt.
    `on`: the failure is retryable.
    """
    if next_attempt.scope.pacing is not None:
        learn(next_attempt, failure.verdict.cls is _THROTTLING, now)
    if flight.note is not None and failure.status == 429 and call.reply is not None:
        ahead = next_attempt.scope.governor.ahead
        if failure.pushback.delay is None:
            if ahead is not None:
                ahead.refused(flight.note.whose, flight.since, now)
            report_limits(next_attempt, flight, call.reply, now)
        elif ahead is not None:
            ahead.forget(flight.note.whose, flight.since, now, failure.pushback.delay)
    bucket = next_attempt.bucket
    if bucket is not None and bucket.charges_failures and (failure.pushback.stop or (on and _is_named(call))):
        bucket.failed(now)
    began = None
    if flight.traffic is not None:
        again = failure.fault is not None and _fails_again(call, failure.fault)
        began = report_to_governor(next_attempt, failure, flight, now, again)
    keys = next_attempt.keys
    if keys is not None:
        refused = call.reply is not None and refuses_credential(call.policy.classify, call.request, call.reply)
        flight.aside = keys.failed(failure, refused=refused, outdated=is_outdated(call, flight), now=now)
        if flight.aside:
            next_attempt.env.credential_aside(call.policy.upstream, keys.key + 1)
    return began


def _is_named(call: CallState) -> bool:
    """Whether the policy names the call's failures; a gRPC service config that has no policy for a method names none of
    its failures.
    """
    return not call.policy.classify.service_unnamed


def report_success(next_attempt: NextAttempt, now: float) -> None:
    """Report that the call has succeeded, to the bucket that it paid from and to the adaptive limiter. `next_attempt`:
    has both.
    """
    if next_attempt.scope.pacing is not None:
        learn(next_attempt, False, now)
    bucket = next_attempt.bucket
    if bucket is not None and next_attempt.app_paid is not None and next_attempt.paid is None:
        bucket.app_succeeded(next_attempt.app_paid, now)
    elif bucket is not None:
        bucket.succeeded(next_attempt.paid, now)


def report_limits(next_attempt: NextAttempt, flight: Flight, reply: Reply, now: float) -> None:
    """Report to the governor what is left of its upstream's limits, as the answer `reply` says. For a 429 this is
    called when the answer is judged, and only if the answer names no delay, since a delay counts more than the rest of
    a limit. `next_attempt`: has the governor. `flight`: the answered attempt.
    """
    ahead, note, policy = next_attempt.scope.governor.ahead, flight.note, next_attempt.policy
    if ahead is None or note is None:
        return
    wall = now + next_attempt.env.wall_offset
    limits = read_limits(reply.fields, policy.classify.dialects, wall, policy.pushback.max_delay)
    if limits or note.account.reports:
        ahead.heard(note, limits, flight.since, reply.status < 400, now)


def learn(next_attempt: NextAttempt, throttled: bool, now: float) -> None:
    """Report the end of an attempt to the adaptive limiter, if the call's strategy has one. `next_attempt`: the part of
    the call that holds the limiter. `throttled`: the attempt was throttled.
    """
    scope = next_attempt.scope
    if scope.pacing is not None and next_attempt.policy.mode == "enforce":
        scope.pacing.learn(throttled, now)
        if scope.limiter is not None and scope.limiter.queue:
            scope.limiter.retime(now)


def report_to_endpoint(next_attempt: NextAttempt, flight: Flight, failure: Failure, now: float) -> None:
    """Report the failed attempt `flight` to its endpoint, and to the endpoint's circuit breaker. `next_attempt`: the
    part of the call that holds both.
    """
    if next_attempt.picker is not None and flight.endpoint is not None:
        next_attempt.picker.failed(flight, failure.fault, now)
        next_attempt.picker.report_to_breaker(flight, ill=_is_ill(failure), now=now, after_all=flight.reported)


def report_trailers(next_attempt: NextAttempt, flight: Flight, cls: Class, now: float) -> None:
    """Report to the endpoint's circuit breaker that the attempt `flight`, which was reported as healthy when its head
    came, has failed by its trailers. `cls`: the class of the trailers; nothing is reported if it is no sign that the
    endpoint is ill. `next_attempt`: has the breaker.
    """
    if next_attempt.picker is not None and cls in _ILL:
        next_attempt.picker.report_to_breaker(flight, ill=True, now=now, after_all=True)


def report_answer(next_attempt: NextAttempt, state: Flying, flight: Flight, now: float) -> None:
    """Report that the answer of the attempt `flight` is delivered to the app. The endpoint and the governor learn from
    this that the upstream answers; hedging learns the time until the answer's first byte. `next_attempt`: has these
    objects. `state`: the attempts in flight.
    """
    hedges = next_attempt.scope.hedges
    if hedges is not None and next_attempt.policy.mode == "enforce":
        at = now if flight.body_wait is None else flight.body_wait.counted or now
        hedges.answered(at - min([each.since for each in state.flights.values()]), now)
    traffic = flight.traffic
    if traffic is not None:
        flight.traffic = None
        governor, free = next_attempt.scope.governor, next_attempt.admission is None
        endpoint = "" if next_attempt.picker is None else next_attempt.endpoint_of(flight)
        if traffic.went_well(now):
            names = names_of(next_attempt.policy.route, next_attempt.request)
            free = free and governor.answered_freely(names, endpoint, flight.since, now)
        else:
            free = free and not governor.holds(now)
        if not free:
            caller = next_attempt.caller()
            caller.endpoint = endpoint
            governor.answered_well(flight, caller, flight.since, now)
    if next_attempt.picker is not None and flight.endpoint is not None:
        next_attempt.picker.endpoints.reached(flight.endpoint)
        next_attempt.picker.report_to_breaker(flight, ill=False, now=now)


def report_to_governor(
    next_attempt: NextAttempt, failure: Failure, flight: Flight, now: float, again: bool
) -> Name | None:
    """Report to the governor how the attempt `flight` failed. Returns the name of the lane whose cooldown began with
    this failure, or None. `next_attempt`: has the governor. `again`: the attempt could not connect, and neither could
    an earlier attempt of its call.
    """
    governor, traffic = next_attempt.scope.governor, flight.traffic
    assert traffic is not None  # the attempt is reported once
    flight.traffic = None
    traffic.failed()
    ending = _ending_of(failure)
    names = next_attempt.plain_names() if failure.pushback.cooldown is None else None
    if names is not None and governor.failed_freely(flight, names, ending, flight.since, now):
        return None
    caller = next_attempt.caller()
    caller.endpoint = next_attempt.endpoint_of(flight)
    status = failure.status
    rules = next_attempt.policy.pushback
    seconds = min(failure.pushback.cooldown or 0.0, rules.max_delay)
    may_cool = caller.cools or next_attempt.policy.mode == "observe"  # which has no cooldown, but would have one
    cools = may_cool and seconds > 0 and status is not None and rules.cooldown != "off"
    governor.failed(flight, caller, ending, flight.since, now, again=again, cools=cools)
    if not cools or not caller.cools or status is None:
        return None
    name = governor.requests_wait(caller, status, seconds, sent=failure.sent, now=now, whole=caller.whole)
    if name is not None:
        _report_cooldown(next_attempt, failure, flight, name[1], now)
    return name


def report_resent(next_attempt: NextAttempt, flight: Flight, now: float) -> None:
    """Report to the governor that the attempt `flight` is sent again at once, because its first sending was not
    processed. If a limit began since the first sending, the attempt now counts for that limit like one that was sent
    after the limit began. `next_attempt`: has the governor.
    """
    governor = next_attempt.scope.governor
    if flight.traffic is not None and governor.holds(now) and flight not in governor:
        lane = governor.lanes.of_endpoint(next_attempt.endpoint_of(flight))
        if lane.limit.is_on:
            lane.free_place(flight, flight.since, now)


def _ending_of(failure: Failure) -> AttemptEnding:
    """How this attempt failed, for the governor."""
    status, fault = failure.status, failure.fault
    if status is not None and failure.verdict.cls is _TRANSIENT and failure.pushback.delay is None:
        ending = _ANSWERED.get(status)
        if ending is None:
            ending = _ANSWERED[status] = _of_answer(failure)
        return ending
    if fault is not None:
        kind = fault.kind
        if kind is FaultKind.CONNECT_FAILURE:
            is_sign = fault.error not in _NO_SIGN
            return AttemptEnding(False, is_sign, False, False, "endpoint" if is_sign else "", kind.value)
        if kind is FaultKind.REFUSED_STREAM:
            return AttemptEnding(False, True, False, True, "", kind.value)
        return AttemptEnding(False, kind is FaultKind.ATTEMPT_TIMEOUT, False, False, "route", kind.value)
    return _of_answer(failure)


def _of_answer(failure: Failure) -> AttemptEnding:
    """The ending of a failed attempt that was answered by the upstream."""
    status, cls = failure.status, failure.verdict.cls
    how = cls.value if status is None else str(status)
    if cls is _THROTTLING or status == 429:
        return AttemptEnding(False, True, True, True, "", how)
    is_lost = status in _LOST_STATUS and failure.pushback.delay is None and cls.retryable
    is_refused = status == 503 or cls is _TIMEOUT
    return AttemptEnding(not cls.retryable, is_refused, False, True, "route" if is_lost else "", how)


def _fails_again(call: CallState, fault: Fault) -> bool:
    """Whether the attempt that ended with `fault` could not connect, and neither could an earlier attempt of the
    call.
    """
    if fault.kind is not FaultKind.CONNECT_FAILURE:
        return False
    return any(record.fault == FaultKind.CONNECT_FAILURE for record in call.history if record.decision != "transparent")


def _is_ill(failure: Failure) -> bool:
    """Whether the failure is a sign that its endpoint is ill. A 421 is no such sign, since it is about a connection."""
    return failure.verdict.cls in _ILL and failure.verdict is not MISDIRECTED


def _report_cooldown(next_attempt: NextAttempt, failure: Failure, flight: Flight, group: bytes, now: float) -> None:
    """Report to the observers that the answer to the failed attempt `flight` began a cooldown. `group`: the group of
    callers that the cooldown holds. `next_attempt`: knows the observers.
    """
    pushback, policy, request = failure.pushback, next_attempt.policy, next_attempt.request
    assert pushback.cooldown is not None and failure.status is not None
    next_attempt.env.cooldown_began(
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
            key=0 if next_attempt.keys is None else next_attempt.keys.key + 1,
        )
    )
