"""Calls that are sent without a `Call` object, since nothing has to be decided for them.

A driver may send a request at once (`proxy.retry.call.request_hints.may_start_undecided`), and makes a `Call` only if
anything but a plain success happens. Until then it asks the same gates as the `Call` would, and reports to the same
objects. If a `Call` is made, it takes over the tokens and places that were taken
(`proxy.retry.call.machine.Call.flown`).

Law: a call passes here only if no gate holds it, and no other call waits. Any other call asks the gates as a waiter
(`proxy.retry.call.admission`), and nothing is taken for it here.
"""

from __future__ import annotations

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.token_bucket import TokenGate
from proxy.retry.call.environment import Env
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.upstreams.endpoints import Choice


def pass_gates(scope: ScopeState, app: NamedApp | None, now: float) -> bool:
    """Let a call pass the gates of the scope, if none holds it, and take what its attempt costs there. Returns True; or
    False, with nothing taken, if any gate might hold the call. `app`: the call's app, None for a call without a name.
    The governor must not hold the call.
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
    """Give back the tokens and the place that a call took when it passed the gates, because its attempt is not sent
    after all.
    """
    if scope.ungated or scope.mode:
        return
    for gate in (scope.rate, scope.limiter):
        if gate is not None:
            gate.give_back(now)
    if scope.places is not None:
        scope.places.give_back(now)


def answered(choice: Choice, policy: Policy, env: Env, sent: float, now: float) -> None:
    """Report to the circuit breaker of the policy's only endpoint, if it has one, that the head of a good answer has
    come. `choice`: the endpoint. `sent`: the time at which the attempt was sent.
    """
    breaker = choice.breaker
    if breaker is not None:
        changed = breaker.ended(False, sent, 0, now)
        if changed is not None:
            env.circuit_changed(policy.upstream, choice.label, changed, breaker.seconds_left(now))


def learn_success(scope: ScopeState, now: float) -> None:
    """Report a success to the gates of `scope`, the scope of the credential that the attempt carried, or that of the
    upstream if it carried none. The attempt's place is freed.
    """
    if scope.pacing is not None:
        scope.pacing.learn(False, now)
        if scope.limiter is not None and scope.limiter.queue:
            scope.limiter.retime(now)
    if scope.places is not None:
        scope.places.give_back(now)
