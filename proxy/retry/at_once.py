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


def pass_gates(scope: ScopeState, app: NamedApp | None, now: float) -> bool:
    """Let a call of `app` (None for a call without a name), which the governor does not hold, pass the gates of the
    scope, taking there what its attempt costs, and return True. If any gate might hold the call, return False, with
    nothing taken.
    """
    if scope.keys is not None:
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


def answered(choice: Choice, policy: Policy, env: Env, sent: float, now: float) -> None:
    """Report the head of an answer, which is no failure, to the only endpoint's circuit breaker, if it has one.
    `choice`: the endpoint; `sent`: when the attempt was sent.
    """
    breaker = choice.breaker
    if breaker is not None:
        changed = breaker.ended(False, sent, 0, now)
        if changed is not None:
            env.circuit_changed(policy.upstream, choice.label, changed, breaker.seconds_left(now))


def learn_success(scope: ScopeState, now: float) -> None:
    """Report a success to the gates of `scope`: the scope of the credential that the attempt carried, or of the
    upstream if it carried none.
    """
    if scope.pacing is not None:
        scope.pacing.learn(False, now)
        if scope.limiter is not None and scope.limiter.queue:
            scope.limiter.retime(now)
    if scope.places is not None:
        scope.places.give_back(now)
