"""The plans of a call: when its next attempt is due, if attempts follow one after another, or if they are hedged.

A plan is asked after each launch and after each failure, and decides with the checks in the contract's order (section
4, "Order of checks"): one sequence (`first_no`) serves both plans, and each refusal is a value (`Outcome`). A plan
takes nothing: the flow pays for what it grants at once, after the last check has passed (`proxy.retry.flows`).

Hedging (gRPC A6). The first attempt is sent at once, the next every `hedging_delay`. A non-fatal failure brings the
next hedge forward to now or, if it carries a pushback, moves it to exactly that much later; a fatal one ends the call.
A stop, a delay too long, and a bucket that refuses end hedging: the attempts in flight continue, and when all have
failed the last answer goes to the app with the last outcome. If `extra` has no room for a hedge, that one is not sent,
and the next is considered after a failure: an attempt without another in flight is a retry, not a hedge (contract,
section 1).
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.backoff import Chance, WaitSeries
from proxy.retry.call_state import CallState
from proxy.retry.classification import names
from proxy.retry.dialect import UnsafeMethods
from proxy.retry.facts import (
    NO_PUSHBACK,
    Class,
    Failure,
    Fault,
    Outcome,
    Progress,
    Pushback,
    Reply,
    Verdict,
)
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.plugins import CustomToken
from proxy.retry.policy import Policy, Strategy
from proxy.retry.pushback import read_pushback
from proxy.retry.states import Next

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_THROTTLING, _NEVER_SENT = Class.THROTTLING, Progress.NEVER_SENT
_ATTEMPTS_EXHAUSTED, _BUCKET_EMPTY = Outcome.ATTEMPTS_EXHAUSTED, Outcome.BUCKET_EMPTY


def goes_on(call: CallState, failure: Failure) -> bool:
    """Whether the failure is one after which another attempt may follow: by its class or, under hedging, by the list
    `non_fatal`.
    """
    if call.policy.strategy.hedging_delay is None:
        return failure.verdict.cls.retryable
    return is_non_fatal(call, failure.fault)


def is_non_fatal(call: CallState, fault: Fault | None) -> bool:
    """Whether hedging's list `non_fatal` names this fault or, if `fault` is None, the answer that is being judged."""
    policy = call.policy
    return names(policy.strategy.non_fatal, policy.classify, call.request, call.reply, fault)


def failure_of(call: CallState, attempt: int, reply: Reply, verdict: Verdict, sent: float, wall: float) -> Failure:
    """The failure of an attempt that was sent at `sent` and answered with `reply`, with the answer's pushback. `wall`:
    the wall clock when the answer came (seconds since the epoch).
    """
    pushback = _pushback_of(call, reply, verdict.cls, wall)
    if pushback.retry and verdict.cls is Class.UNNAMED:
        verdict = Verdict(Class.TRANSIENT, f"{verdict.because}, but the upstream says retry")
        pushback = _pushback_of(call, reply, verdict.cls, wall)
    return Failure(attempt, verdict, pushback, reply.status, None, sent)


def _pushback_of(call: CallState, reply: Reply, cls: Class, wall: float) -> Pushback:
    """The pushback of an answer whose class is `cls`. `wall`: when it came, in seconds since the epoch. Under hedging,
    any failure that `non_fatal` names is read like a retryable one, so that a hedge too is never sent sooner than a
    pushback says.
    """
    policy = call.policy
    if reply.plain and not policy.classify.resets:
        return NO_PUSHBACK
    if not cls.retryable and policy.strategy.hedging_delay is not None and is_non_fatal(call, None):
        cls = Class.TRANSIENT
    trailers = (
        reply.trailers if reply.trailers is not reply.fields else None
    )  # a trailers-only head is read once: a field read twice would contradict itself
    dialects = policy.classify.dialects
    return read_pushback(reply.fields, reply.status, cls, dialects, wall, trailers=trailers, peeked=reply.peeked)


# -- checks -----------------------------------------------------------------------------------------------------------


def is_safe(verdict: Verdict, fault: Fault | None, idempotent: bool, unsafe_methods: UnsafeMethods) -> bool:
    """Whether the request may be repeated without a risk that the policy does not accept (contract, "Safety", 1 to 3).
    `verdict`: the class of the last attempt's end; `fault`: its fault, None if it was answered; `idempotent`: whether
    the request is; `unsafe_methods`: the policy's rule for requests that are not.
    """
    if fault is not None and fault.progress is _NEVER_SENT:
        return True
    if idempotent or unsafe_methods == "always":
        return True
    if unsafe_methods == "never":
        return False
    if verdict.repeated_by:
        return True
    return verdict.unprocessed or (fault is not None and fault.progress is Progress.REFUSED)


def safe_until(failure: Failure, first_sent: float, idempotent: bool, unsafe_methods: UnsafeMethods) -> float:
    """The time (seconds) until which another attempt is safe: minus infinity if it is never safe, infinity if it always
    is. A finite time if it is safe only because the provider's own client would repeat the call too, and that client
    stops after a while (AWS: its signature expires). `first_sent`: when the call's first attempt was sent;
    `idempotent`: whether the request is; `unsafe_methods`: the policy's rule for requests that are not.
    """
    verdict, fault = failure.verdict, failure.fault
    if not is_safe(verdict, fault, idempotent, unsafe_methods):
        return -NEVER
    within = verdict.repeated_within
    if within is None or is_safe(replace(verdict, repeated_by=""), fault, idempotent, unsafe_methods):
        return NEVER
    return first_sent + within


def first_no(call: CallState, failure: Failure, goes_on: bool, disabled: bool, safe: bool) -> Outcome | None:
    """The outcome of the first check that refuses another attempt, None if all pass. The checks begin with a pushback
    that forbids a retry, and end with the number of attempts left. `goes_on`: the failure is retryable; `disabled`:
    retries are ruled out by the mode, or by X-Retry-Disable; `safe`: the request may be repeated, as `is_safe` says.
    """
    if failure.pushback.stop:
        return Outcome.PUSHBACK_STOP
    if not goes_on:
        return Outcome.NOT_RETRYABLE
    if call.committed:
        return Outcome.COMMITTED
    if disabled:
        return Outcome.DISABLED
    if not safe:
        return Outcome.NOT_RETRYABLE
    made = call.attempts - call.earlier - call.spared
    return None if made < call.policy.strategy.max_attempts else _ATTEMPTS_EXHAUSTED


def too_long(delay: float | None, policy: Policy) -> bool:
    """Whether the delay (seconds) that an upstream named is above the policy's `max_delay`."""
    return delay is not None and delay > policy.pushback.max_delay


# -- plans ------------------------------------------------------------------------------------------------------------


class Sequential(WaitSeries):
    """The plan of attempts that follow one after another: after a failure the strategy's wait comes, and no attempt is
    sent beside another. `due`: when the attempt that was last considered would begin, even if it was refused; `plugin`:
    the token that a user's own strategy gave the call, None without such a strategy.
    """

    __slots__ = ("due", "plugin")

    def __init__(self, strategy: Strategy, rng: Chance) -> None:
        self.begin(strategy, rng)
        self.due = 0.0
        self.plugin: CustomToken | None = None

    def after_failure(
        self, call: CallState, failure: Failure, now: float, goes_on: bool, disabled: bool
    ) -> Next | Outcome:
        """The retry after this failure, or the outcome of the first check that refuses it. `goes_on`: the failure is
        retryable; `disabled`: retries are ruled out by the mode, or by X-Retry-Disable.
        """
        policy, deadline, strategy = call.policy, call.deadline, self.strategy
        first_sent = failure.sent
        for each in call.history:
            if each.attempt > call.earlier:
                first_sent = each.started
                break
        idempotent = call.is_idempotent() and not failure.carried_out
        until = safe_until(failure, first_sent, idempotent, policy.classify.unsafe_methods)
        no = first_no(call, failure, goes_on, disabled, now <= until + EPSILON)
        if no is not None:
            return no
        bucket = call.next_attempt.bucket
        price = bucket.price(failure.price_class) if bucket is not None else 0.0
        if bucket is not None and not bucket.affords(price, now):
            return _BUCKET_EMPTY
        wait: float | None = None
        if self.plugin is not None:
            asked = self.plugin.next_delay(failure)
            if isinstance(asked, Outcome):
                return asked
            wait = asked
        at_once, named = call.named_wait(failure, now)
        if at_once:  # without backoff, but it counts for n: retry n waits d(n)
            wait = 0.0
            self.n += 1
        elif too_long(named, policy):
            return Outcome.PUSHBACK_TOO_LONG
        if wait is None and strategy.hedging_percentile is not None and failure.pushback.delay is None:
            wait = call.hedging_delay(now)
        if wait is None:
            wait = self.next_wait(named, failure.verdict.cls is _THROTTLING)
        self.due = now + wait
        if self.due > until + EPSILON:
            return Outcome.NOT_RETRYABLE
        if deadline is not None and self.due > deadline + EPSILON:
            return Outcome.DEADLINE
        return Next(self.due, price, until)

    def succeeded(self) -> None:
        """Report to a user's own strategy that the call has succeeded."""
        if self.plugin is not None:
            self.plugin.succeeded()


class Hedged:
    """The plan of several attempts in flight. `due`: when the attempt that was last considered would begin; `stopped`:
    the outcome for which no more attempts are sent, None while more may be; `shared`: the request's body outgrew its
    buffer, but all attempts read it as it comes.
    """

    __slots__ = ("_pushed_until", "due", "shared", "stopped")

    def __init__(self, due: float = 0.0, stopped: Outcome | None = None) -> None:
        self.due = due
        self.stopped = stopped
        self.shared = False
        self._pushed_until = -NEVER  # the end of the latest pushback: no hedge is sent sooner

    def after_launch(self, call: CallState, now: float) -> Next | None:
        """The next hedge after a launched attempt: `hedging_delay` later, at the price of a retry after a transient
        failure; None if no hedge is to follow.
        """
        strategy = call.policy.strategy
        if call.hints.disabled:
            self.stopped = Outcome.DISABLED
        if (
            call.attempts - call.earlier - call.spared >= strategy.max_attempts
            or self.stopped is not None
            or call.committed
        ):
            return None
        delay = call.hedging_delay(now)
        if delay is None:
            return None
        bucket = call.next_attempt.bucket
        price = bucket.price(Class.TRANSIENT) if bucket is not None else 0.0
        return Next(now + delay, price)

    def after_failure(
        self, call: CallState, failure: Failure, now: float, goes_on: bool, disabled: bool
    ) -> Next | Outcome:
        """The next hedge after this failure, due now or exactly when its pushback says; or the outcome that refuses it,
        which ends hedging unless all attempts have been made anyway. `goes_on`: the failure is non-fatal; `disabled`:
        hedges are ruled out by the mode, or by X-Retry-Disable.
        """
        delay = failure.pushback.delay
        self.due = max(now + (delay or 0.0), self._pushed_until)
        no = first_no(call, failure, goes_on, disabled, True) or self.stopped
        bucket = call.next_attempt.bucket
        price = bucket.price(failure.price_class) if bucket is not None else 0.0
        if no is None and bucket is not None and not bucket.affords(price, now):
            no = _BUCKET_EMPTY
        if no is None and too_long(delay, call.policy):
            no = Outcome.PUSHBACK_TOO_LONG
        if no is None and call.deadline is not None and self.due > call.deadline + EPSILON:
            no = Outcome.DEADLINE
        if no is None:
            if delay is not None:
                self._pushed_until = max(self._pushed_until, now + delay)
            return Next(self.due, price)
        if no is not Outcome.ATTEMPTS_EXHAUSTED:
            self.stopped = no
        return no
