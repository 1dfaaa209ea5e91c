"""One call under gRPC A6's hedging: the same events and actions, several attempts in flight.

Theory of operation. The first attempt goes at once, the next every `hedging_delay`. An answer that is no failure wins
and the others are cancelled. A non-fatal failure brings the next hedge forward to now, or, where it carries a
pushback, puts it exactly that much later; a fatal one ends the call. A stop, a delay too long, and a bucket that
refuses end hedging: what flies goes on, and when all have failed the last answer goes to the app with the last *no*.
A bucket kept elsewhere that has to be asked is asked when the hedge is due, and the hedge goes when it is granted.

In every state an attempt is in flight, or the alarm of the next hedge is set, or the call is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.retry.actions import Action, Actions, Ask, Cancel, Deliver, Discard, Hold, Launch, Peek, WakeAt
from proxy.retry.buckets import ASK
from proxy.retry.call import PATIENCE, PEEK_LIMIT, Call
from proxy.retry.checks import Failure, first_no, too_long
from proxy.retry.classification import NeedsBody, classify, classify_fault
from proxy.retry.ending import Phase
from proxy.retry.facts import NO_PUSHBACK, Class, Fault, Outcome, Progress, Reply, Request, Verdict
from proxy.retry.gated import HAIR, Env
from proxy.retry.policy import Policy
from proxy.retry.reasons import OUT_OF_TIME
from proxy.retry.registry import ScopeState


def make_call(
    request: Request,
    policy: Policy,
    scope: ScopeState,
    env: Env,
    alarm: Callable[[float], None] | None = None,
) -> Call:
    """A call under its policy's strategy. A call that is not safe to hedge goes one attempt after another."""
    strategy = policy.strategy
    if strategy.hedging_delay is None or policy.mode != "enforce":
        return Call(request, policy, scope, env, alarm)
    call = HedgedCall(request, policy, scope, env, alarm)
    if call.idempotent or strategy.safe_methods or policy.classify.unsafe_methods == "always":
        return call
    return Call(request, policy, scope, env, alarm)


class HedgedCall(Call):
    """A call that is hedged."""

    _next_at: float | None = None  # when the next hedge is due
    _next_class: Class = Class.TRANSIENT  # what it pays for: a timer's hedge pays as after a transient failure
    _pushed_until: float = float("-inf")  # no hedge sooner: the latest pushback
    _stopped: Outcome | None = None  # why hedging ended, where it did
    _shared: bool = False  # the body outgrew its buffer, but everything that is to be sent has it

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(request, policy, scope, env, alarm)
        self.flying: dict[int, float] = {}
        self._prices: dict[int, float] = {}
        self._peeking: dict[int, Reply] = {}

    # -- events -----------------------------------------------------------------------------------------------------

    def head(self, attempt: int, reply: Reply, now: float) -> Actions:
        """The final head of one attempt's answer."""
        if attempt not in self.flying or self.phase is Phase.DELIVERING:
            return ()
        verdict = classify(self.policy.classify, self.request, reply, None)
        if isinstance(verdict, NeedsBody):
            self._peeking[attempt] = reply
            return (Peek(attempt, PEEK_LIMIT),)
        return self._answered(attempt, reply, verdict, now)

    def peeked(self, attempt: int, body: bytes, now: float) -> Actions:
        """As much of the body as was asked for, or all of it."""
        reply = self._peeking.pop(attempt, None)
        if reply is None or self.phase is Phase.DELIVERING:
            return ()
        reply = replace(reply, peeked=body)
        verdict = classify(self.policy.classify, self.request, reply, body)
        assert not isinstance(verdict, NeedsBody)  # it has been looked at
        return self._answered(attempt, reply, verdict, now)

    def failed(self, attempt: int, fault: Fault, now: float) -> Actions:
        """One attempt ended without a whole answer."""
        if self.phase is Phase.DELIVERING:
            return super().failed(attempt, fault, now) if attempt == self.delivered else ()
        if attempt not in self.flying:
            return ()
        self._flying_since = self.flying[attempt]
        peeked = self._peeking.pop(attempt, None)
        if peeked is None and self._is_transparent(fault):
            return self._send_again(attempt, fault, now)
        if fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            self._processed = True
        self._reply = None
        verdict = classify_fault(self.policy.classify, self.request, fault)
        return self._one_failed(Failure(attempt, verdict, NO_PUSHBACK, fault=fault), now)

    def woke(self, now: float) -> Actions:
        """The next hedge is due, or the deadline has come."""
        if self.phase in (Phase.DELIVERING, Phase.DONE):
            return ()
        if self.attempts == 0:
            return super().woke(now)
        if self.deadline is not None and now >= self.deadline - HAIR and self.flying:
            return self._end_flight(Outcome.DEADLINE, OUT_OF_TIME, now)
        if self._next_at is None:
            return ()
        if now < self._next_at - HAIR:
            return (WakeAt(self._next_at),)
        return self._hedge(now)

    def granted(self, price: float, now: float) -> Actions:
        """The bucket that was asked pays for the next hedge: it goes now, or when a pushback lets it."""
        if not self._take_grant(price, now):
            return ()
        if self._pushed_until > now + HAIR:
            self._give_back(now)
            self._next_at = self._pushed_until
            return self._wait_for_hedge(now)
        return self._launch_paid(now)

    def refused(self, price: float, now: float) -> Actions:
        """The bucket that was asked says no: no more hedges, unless what is here pays after all."""
        if not self._heard_no(price):
            return ()
        return self._launch_paid(now) if self._pay(now) else self._end_hedging(Outcome.BUCKET_EMPTY, now)

    @property
    def needs_no_buffer(self) -> bool:
        """Whether all attempts share the request's stream: those of `hedging_delay: 0s`, once all have gone."""
        return self.policy.strategy.hedging_delay == 0 and bool(self.flying) and self._next_at is None

    def replay_lost(self, now: float, furthest: int = 0) -> Actions:
        """The request streams on in the attempt that has sent most of it, the oldest of several, and the others are
        cancelled. Where all share the stream nothing is lost but the transparent retry.
        """
        if self.committed or self.phase in (Phase.DELIVERING, Phase.DONE):
            return ()
        if self.needs_no_buffer:
            self._shared = True
            return ()
        self.deadline = None
        self.committed = True
        self._plan_no_more(now)
        if not self.flying:
            return self._stop_waiting(Outcome.COMMITTED, now)
        return self._cancel_all_but(furthest if furthest in self.flying else min(self.flying), now)

    def app_gone(self, now: float) -> Actions:
        """The app went away: everything in flight is cancelled."""
        if self.phase in (Phase.DELIVERING, Phase.DONE) or not self.flying:
            return super().app_gone(now)
        actions: list[Action] = list(self._cancel_all_but(0, now, Outcome.CLIENT_GONE.value))
        if self._failure is not None and self._failure.status is not None:
            actions.append(Discard(self._failure.attempt))
        self._give_back(now)
        return (*actions, *self._finish(Outcome.CLIENT_GONE, now))

    def denied(self, attempt: int, detail: str, now: float) -> Actions:
        """A hedge's place may not be reached: the whole call ends, since its endpoints are the policy's mistake."""
        others = self._cancel_all_but(attempt, now)
        self.flying.pop(attempt, None)
        return (*others, *super().denied(attempt, detail, now))

    def retime(self, at: float) -> None:
        """The rate's word on the hedge that stands in its line changed."""
        if self._next_at is not None:
            self._next_at = at
        super().retime(at)

    def _is_transparent(self, fault: Fault) -> bool:
        return not self._shared and super()._is_transparent(fault)

    # -- attempts ---------------------------------------------------------------------------------------------------

    def _ask_gates(self, now: float) -> tuple[float, Outcome | None, str]:
        """Hedged calls neither start a cooldown nor wait for one; a rate is paid by every attempt."""
        if self.scope.rate is None:
            return now, None, ""
        at = self.scope.rate.ask(self, now)
        return at, (Outcome.RATE_LIMITED if at == float("inf") else None), "rate"

    def _start_cooldown(self, failure: Failure, seconds: float, now: float) -> None:
        return

    def _launch(self, now: float) -> Actions:
        """Attempt 1, with its hedges behind it."""
        self._let_go(1, now)
        if self._disabled:
            self._stopped = Outcome.DISABLED
        return self._fly_with_more(now)

    def _launch_paid(self, now: float) -> Actions:
        """The hedge that a bucket elsewhere was asked for."""
        self._paid, self._granted = self._granted, None
        self._paid_rate = False
        return self._fly_with_more(now)

    def _fly_with_more(self, now: float) -> Actions:
        """Send the next attempt, and those behind it that are due as well."""
        first = self._fly(now)
        if self._next_at is None or self._next_at > now:
            return first
        return (*first[:1], *self._hedge(now))

    def _fly(self, now: float) -> Actions:
        """Send the next attempt and set the alarm for the one after it."""
        strategy = self.policy.strategy
        self.attempts += 1
        self.flying[self.attempts] = now
        self._prices[self.attempts] = self._paid or 0.0
        self.phase = Phase.FLYING
        self._leave_room()
        self._next_class = Class.TRANSIENT
        more = self.attempts < strategy.max_attempts and self._stopped is None and not self.committed
        self._next_at = now + (strategy.hedging_delay or 0.0) if more else None
        launch = Launch(self.attempts)
        return (launch,) if self._next_at is None else (launch, WakeAt(self._next_at))

    def _hedge(self, now: float) -> Actions:
        """A hedge is due: all of them at once where the delay is zero."""
        actions: list[Action] = []
        while self._next_at is not None and self._next_at <= now + HAIR:
            no = self._pay_for_hedge(now) if self._owed is None else Outcome.BUCKET_EMPTY  # asked, and no answer
            if no is not None:
                return (*actions, *self._end_hedging(no, now))
            if self._owed is not None:  # to a bucket elsewhere, which has to be asked
                return (*actions, *self._ask_for_hedge(now))
            if self._next_at > now + HAIR:  # the rate bucket says when
                return (*actions, *self._wait_for_hedge(now, "held"))
            actions += [action for action in self._fly(now) if isinstance(action, Launch)]
        if self._next_at is not None:
            actions.append(WakeAt(self._next_at))
        return tuple(actions)

    def _ask_for_hedge(self, now: float) -> Actions:
        waiting = self._wait_for_hedge(now)
        if self._owed is None:  # there was no room to wait in
            return waiting
        self._asking = True
        return (*waiting, Ask(self._owed))

    def _pay_for_hedge(self, now: float) -> Outcome | None:
        """The bucket's price and the rate's token, or why not; moves `_next_at` where the rate says later."""
        bucket = self._bucket
        price = bucket.price(self._next_class) if bucket is not None else 0.0
        if bucket is not None and not bucket.affords(price, now):
            return Outcome.BUCKET_EMPTY
        at, no, _ = self._ask_gates(now)
        if no is not None:
            return no
        if at > now:
            if self.deadline is not None and at > self.deadline + HAIR:
                return Outcome.DEADLINE
            self._next_at = at
            return None
        if bucket is not None and not bucket.take(price, now):
            self._paid_rate = self.scope.rate is not None
            if bucket.affords(price, now) != ASK:
                return Outcome.BUCKET_EMPTY
            self._owed = price
            self._next_at = now + PATIENCE if self.deadline is None else min(now + PATIENCE, self.deadline)
            return None
        self._paid = price
        return None

    # -- ends -------------------------------------------------------------------------------------------------------

    def _answered(self, attempt: int, reply: Reply, verdict: Verdict, now: float) -> Actions:
        self._processed = True
        self._reply = reply
        self._flying_since = self.flying[attempt]
        if verdict.cls is Class.SUCCESS:
            return self._win(attempt, Outcome.SUCCESS, now)
        return self._one_failed(self._failure_of(attempt, reply, verdict, now), now)

    def _win(self, attempt: int, outcome: Outcome, now: float) -> Actions:
        """This answer goes to the app; the others are cancelled and count neither as success nor as failure."""
        actions: list[Action] = list(self._cancel_all_but(attempt, now))
        self._flying_since = self.flying[attempt]
        if self._failure is not None and self._failure.status is not None and self._failure.attempt != attempt:
            actions.append(Discard(self._failure.attempt))
        self._give_back(now)
        self._next_at = None
        self.phase = Phase.DELIVERING
        self._provisional = outcome
        self.delivered = attempt
        self.deadline = None
        return (*actions, Deliver(attempt, outcome))

    def _one_failed(self, failure: Failure, now: float) -> Actions:
        self.flying.pop(failure.attempt, None)
        goes_on = self._goes_on(failure)
        bucket = self._bucket
        if bucket is not None and (goes_on or failure.pushback.stop):
            bucket.failed(now)
        no = self._no_to_next(failure, goes_on, now)
        if no is None:
            self._note(failure.attempt, now, failure=failure, decision="hedged on")
        else:
            self._due = max(now + (failure.pushback.delay or 0.0), self._pushed_until)
            why = self._why_not(no, failure, now)
            self._note(failure.attempt, now, failure=failure, decision=no.value, why=why)
        kept = self._keep(failure)
        if no is None:
            return (*kept, *self._bring_forward(failure, now))
        if not goes_on:
            self._plan_no_more(now)
            return (*kept, *self._cancel_all_but(failure.attempt, now), *self._give_up(no, now))
        if no is not Outcome.ATTEMPTS_EXHAUSTED:
            self._stopped = no
            self._plan_no_more(now)
        if self.flying:
            return kept
        return (*kept, *self._give_up(no, now))

    def _no_to_next(self, failure: Failure, goes_on: bool, now: float) -> Outcome | None:
        left = self.attempts < self.policy.strategy.max_attempts
        no = first_no(
            failure, retryable=goes_on, committed=self.committed, disabled=self._disabled, safe=True, left=left
        )
        no = no or self._stopped
        bucket = self._bucket
        if no is None and bucket is not None and not bucket.affords(bucket.price(failure.price_class), now):
            no = Outcome.BUCKET_EMPTY
        if no is None and too_long(failure.pushback, self.policy):
            no = Outcome.PUSHBACK_TOO_LONG
        wait = failure.pushback.delay or 0.0
        if no is None and self.deadline is not None and max(now + wait, self._pushed_until) > self.deadline + HAIR:
            no = Outcome.DEADLINE
        return no

    def _keep(self, failure: Failure) -> Actions:
        """Hold the latest answer in place of the one held before; a fault leaves the last answer where it is."""
        before = self._failure
        if failure.status is None and before is not None and before.status is not None:
            return ()
        self._failure = failure
        if failure.status is None:
            return ()
        if before is not None and before.status is not None:
            return (Discard(before.attempt), Hold(failure.attempt))
        return (Hold(failure.attempt),)

    def _bring_forward(self, failure: Failure, now: float) -> Actions:
        """A non-fatal failure starts the next hedge at once, or exactly when its pushback says."""
        if failure.pushback.delay is not None:
            self._pushed_until = max(self._pushed_until, now + failure.pushback.delay)
        if self._owed is not None:  # the next hedge is due already: its bucket is being asked
            return () if self.flying else self._wait_for_hedge(now)
        self._next_at = max(now, self._pushed_until)
        self._next_class = failure.price_class
        if self._next_at <= now:
            return self._hedge(now)
        self._leave_gates(now)  # nobody behind waits for a hedge that is not due
        return self._wait_for_hedge(now)

    def _wait_for_hedge(self, now: float, place: str = "backoff") -> Actions:
        """The next hedge is due later; where nothing else flies, the call waits in the room like any other."""
        assert self._next_at is not None
        if not self.flying:
            self.phase = Phase.BACKOFF
            if not self._take_place(place):
                return self._end_hedging(Outcome.OVERLOADED, now)
        return (WakeAt(self._next_at),)

    def _plan_no_more(self, now: float) -> None:
        self._next_at = None
        self._give_back(now)

    def _end_hedging(self, no: Outcome, now: float) -> Actions:
        self._stopped = no
        self._plan_no_more(now)
        if self.flying:
            return ()
        why = self._why_not(no, self._failure, now) if self._failure is not None else ""
        return self._stop_waiting(no, now, why)

    def _price(self, attempt: int) -> float:
        return self._prices.get(attempt, 0.0)

    def _cancel_all_but(self, attempt: int, now: float, decision: str = "cancelled") -> Actions:
        losers = [other for other in self.flying if other != attempt]
        for loser in losers:
            self._flying_since = self.flying.pop(loser)
            self._peeking.pop(loser, None)
            self._note(loser, now, decision=decision)
        return tuple(Cancel(loser) for loser in losers)

    def _end_flight(self, no: Outcome, because: str, now: float) -> Actions:
        """What flies is ended; an answer that was kept is better than none, an earlier fault is not."""
        actions = self._cancel_all_but(0, now, no.value)
        if self._failure is not None and self._failure.status is None:
            self._failure = None
        self._next_at = None
        return (*actions, *self._stop_waiting(no, now, because))
