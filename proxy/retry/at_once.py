"""Calls sent without a `Call`, since nothing has to be decided for them: what they take, and who learns from it.

A driver may send a request at once (`proxy.retry.request_hints.may_start_undecided`), and makes a `Call` only if
anything but a plain success happens. Until then it asks the same gates, and reports to the same objects, as the `Call`
would; what was taken goes over to the `Call` with its attempt (`proxy.retry.machine.Call.flown`).

Law: only a call that no gate holds passes here, and only where no other call waits. Any other asks the gates as a
waiter (`proxy.retry.admission`), and nothing of it is taken here.
"""

from __future__ import annotations

from proxy.retry.apps import NamedApp
from proxy.retry.endpoints import Choice
from proxy.retry.environment import Env
from proxy.retry.policy import Policy
from proxy.retry.scope_state import ScopeState
from proxy.retry.token_bucket import TokenGate
from proxy.retry.traffic import Traffic


def pass_gates(scope: ScopeState, app: NamedApp | None, now: float) -> bool:
    """Let a call of this app pass all gates of the scope, taking there what its attempt costs, and return True. If any
    gate might hold the call, return False, with nothing taken.
    """
    if scope.mode:
        return True  # no gate holds it: the policy observes, or is off
    if scope.ungated:
        return not scope.governor.holds(now)
    if scope.governor.holds(now) or scope.keys is not None:
        return False
    rate, limiter, places = scope.rate, scope.limiter, scope.places
    if rate is not None and not (type(rate) is TokenGate and rate.pass_at_once(app, now)):
        return False
    if limiter is None or limiter.pass_at_once(app, now):
        if places is None or places.enter_at_once(now):
            return True
        if limiter is not None:
            limiter.give_back(now)
    if rate is not None:
        rate.give_back(now)
    return False


def turn_back(scope: ScopeState, now: float) -> None:
    """Give back what a call took when it passed the gates, because its attempt is not sent after all."""
    if scope.ungated or scope.mode:
        return
    for gate in (scope.rate, scope.limiter):
        if gate is not None:
            gate.give_back(now)
    if scope.places is not None:
        scope.places.give_back(now)


def began(scope: ScopeState, app: NamedApp | None, now: float) -> Traffic | None:
    """Count a call of this app, and its attempt, which is sent now. Returns the scope's count of attempts under way,
    which now includes it, None if the policy's mode is off.
    """
    bucket = scope.used_bucket(app) if scope.mode or app is not None else scope.bucket
    if bucket is not None:
        bucket.begin(now)
    if scope.mode == 2:  # off
        return None
    traffic = scope.governor.traffic
    traffic.flying += 1
    return traffic


def answered(choice: Choice, policy: Policy, env: Env, sent: float, now: float) -> None:
    """Report the head of an answer, which is no failure, to the only endpoint's circuit breaker, if it has one.
    `choice`: the endpoint; `sent`: when the attempt was sent.
    """
    breaker = choice.breaker
    if breaker is not None:
        changed = breaker.ended(False, sent, 0, now)
        if changed is not None:
            env.circuit_changed(policy.upstream, choice.label, changed, breaker.seconds_left(now))


def succeeded(scope: ScopeState, lane: ScopeState, app: NamedApp | None, now: float) -> None:
    """Report a success of this app to the scope's bucket and to the gates. `lane`: the state that has the gates, which
    is that of the credential that the attempt carried, or the scope itself if there are no credentials.
    """
    bucket = scope.used_bucket(app) if scope.mode or app is not None else scope.bucket
    if bucket is not None:
        bucket.succeeded(None, now)
    if lane.ungated or lane.mode:
        return
    if lane.pacing is not None:
        lane.pacing.learn(False, now)
        if lane.limiter is not None and lane.limiter.queue:
            lane.limiter.retime(now)
    if lane.places is not None:
        lane.places.give_back(now)
