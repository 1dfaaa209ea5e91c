"""The plan of attempts one after another: whether a failure grants another attempt, and when that is due.

A plan is asked after each failure, and makes the checks in the contract's order (`proxy.retry.call.repeat_checks`). It
takes no tokens: the flow takes the price of the attempt that the plan grants.
"""

from __future__ import annotations

from proxy.retry.answers.classification import MISDIRECTED
from proxy.retry.call.call_state import CallState
from proxy.retry.call.repeat_checks import first_no, safe_until
from proxy.retry.call.states import Next
from proxy.retry.facts import IDEMPOTENT_METHODS, Class, Failure, Outcome
from proxy.retry.instants import EPSILON
from proxy.retry.plugins import CustomToken
from proxy.retry.policies.policy import Strategy
from proxy.retry.strategies.backoff import Chance, WaitSeries

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_BUCKET_EMPTY, _THROTTLING = Outcome.BUCKET_EMPTY, Class.THROTTLING


class Sequential(WaitSeries):
    """The plan of attempts one after another: the next attempt is due after the wait that the strategy computes. `due`:
    when the attempt that was last considered would begin, even if it was refused. `plugin`: the token that a user's own
    strategy gave the call; None without such a strategy.
    """

    __slots__ = ("due", "plugin")

    plugin: CustomToken | None

    def __init__(self, strategy: Strategy, rng: Chance) -> None:
        self.start(strategy, rng)

    def start(self, strategy: Strategy, rng: Chance) -> None:
        """Begin the plan of a call. `strategy`: the strategy of the call's policy. `rng`: the source of the jitter's
        draws.
        """
        self.strategy, self.rng = strategy, rng
        self.n, self.previous = 0, None
        self.due, self.plugin = 0.0, None

    def after_failure(self, call: CallState, failure: Failure, now: float, disabled: bool) -> Next | Outcome:
        """The retry after this failure, or the outcome of the first check that refuses it. `disabled`: the mode or
        X-Retry-Disable rules retries out.
        """
        policy, deadline, strategy = call.policy, call.deadline, self.strategy
        first_sent = failure.sent
        for each in call.history:
            if each.attempt > call.earlier:
                first_sent = each.started
                break
        idempotent = not failure.carried_out and (call.request.method in IDEMPOTENT_METHODS or call.is_idempotent())
        until = safe_until(failure, first_sent, idempotent, policy.classify.unsafe_methods)
        no = first_no(call, failure, disabled, now <= until + EPSILON)
        if no is not None:
            return no
        bucket = call.next_attempt.bucket
        price = 0.0 if bucket is None else bucket.offer(failure.verdict.cls, now)
        if price is None:
            return _BUCKET_EMPTY
        asked: float | None = None
        if self.plugin is not None:
            answer = self.plugin.next_delay(failure)
            if isinstance(answer, Outcome):
                return answer
            asked = answer
        at_once, named = _named_wait(call, failure, now)
        if at_once:  # without backoff, but it counts for n: retry n waits d(n)
            asked = 0.0
            self.n += 1
        elif named is not None and policy.pushback.forbids(named):  # most failures name no delay
            return Outcome.PUSHBACK_TOO_LONG
        if asked is None and strategy.hedging_percentile is not None and failure.pushback.delay is None:
            asked = call.hedging_delay(now)
        wait = self.next_wait(named, failure.verdict.cls is _THROTTLING) if asked is None else asked
        due = self.due = now + wait
        if due > until + EPSILON:
            return Outcome.NOT_RETRYABLE
        if deadline is not None:
            last = deadline + EPSILON
            if due > last:
                return Outcome.DEADLINE
        planned = Next.__new__(Next)  # past its own constructor, which takes longer
        planned.due, planned.price, planned.until, planned.gated = due, price, until, False
        return planned


def _named_wait(call: CallState, failure: Failure, now: float) -> tuple[bool, float | None]:
    """Whether the next attempt is sent at once, and if not, the delay to wait. Returns (True, None) if it goes at once
    to another endpoint, with another credential, or after a 421 that names no delay. Otherwise returns False and the
    delay in seconds that the upstream named (None if it named none).
    """
    next_attempt, delay = call.next_attempt, failure.pushback.delay
    if failure.verdict is MISDIRECTED and delay is None:
        return True, None
    picker = next_attempt.picker
    if picker is not None and next_attempt.another_at_once(failure, now):
        if delay is not None:
            picker.push_back(now + delay)
        return True, None
    at_once, wait = (False, delay) if next_attempt.keys is None else next_attempt.keys.wait_after(failure, now)
    if picker is None or at_once:
        return at_once, wait
    sooner = next_attempt.sooner_elsewhere(failure, now)
    if sooner is not None and delay is not None:
        picker.push_back(now + delay)
        return False, sooner or None
    if picker.is_pushed:
        wait = max(wait or 0.0, picker.soonest(now)) or None
    return False, wait
