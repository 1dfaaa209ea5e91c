"""One call as a state machine: events in, actions out.

Theory of operation. A call is handed events with the time at which they happened and answers with actions; it never
sleeps, reads a clock, or raises for a wrong upstream. In every state something flies, or an alarm is set, or the call
is done. The phases:

    NEW -> [GATED] -> FLYING -> [PEEKING] -> DELIVERING -> DONE
                        ^  |
                        |  v
             [GATED] <- BACKOFF          a retry was granted and paid for; its answer, if any, is held

Where the bucket is kept elsewhere and what is here can't pay, the bucket is asked (`Ask`) at the beginning of the
backoff, and the retry is decided when it is due: with the price that was granted meanwhile, or with what is here then,
or not at all. A retry that is due before the bucket has answered waits for the answer.

Once an answer is being delivered the call is committed: nothing leads back. While anything flies the driver watches
`deadline` and says `woke` when it has come. Sequential strategies are here, hedging is in `proxy.retry.hedging`; the
order of checks is in `proxy.retry.checks`, what may hold a call in `proxy.retry.gates`, how it ends in
`proxy.retry.ending`.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.actions import Action, Actions, Ask, Cancel, Deliver, Discard, Hold, Launch, Peek, WakeAt
from proxy.retry.answers import own_answer
from proxy.retry.checks import Failure
from proxy.retry.classification import NeedsBody, classify, classify_fault
from proxy.retry.ending import Ending, Phase
from proxy.retry.facts import (
    NO_PUSHBACK,
    Class,
    Fault,
    Fields,
    Outcome,
    Progress,
    Reply,
    Request,
    Verdict,
    first,
)
from proxy.retry.gated import HAIR
from proxy.retry.plugins import CustomToken
from proxy.retry.policy import Policy
from proxy.retry.reasons import GATES, NO_LONGER_SAFE, OUT_OF_TIME, OUTGREW, SHUT_DOWN, held_too_long
from proxy.retry.request_hints import read_request_hints

#: Contract, section 4: bodies are peeked at up to 64 KiB.
PEEK_LIMIT = 64 * 1024

#: Seconds after which a bucket that was asked and is still silent counts as one that refused. Stores answer sooner.
PATIENCE = 1.0

_LAUNCH_FIRST: Actions = (Launch(1),)
_DELIVER_FIRST: Actions = (Deliver(1, Outcome.SUCCESS),)


def may_start_undecided(policy: Policy, request: Request) -> bool:
    """Whether `Call.start` would only ask whether the scope admits the call, and `Call.head` would end it with a plain
    success (`classification.is_plain_success`): a driver then makes the `Call` when anything else has happened,
    and says `flown` in the place of `start`. It holds for as long as policy and request do.
    """
    return (
        request.plain
        and policy.mode == "enforce"
        and policy.strategy.custom is None
        and policy.strategy.hedging_delay is None
        and policy.idempotency_key.header == "Idempotency-Key"  # `plain` looks for that name
        and not policy.idempotency_key.inject
        and policy.classify.plain_below_400
    )


class Call(Ending):
    """A call under a sequential strategy.

    `alarm` moves the call's alarm when a gate's word changes; drivers give it, tests of ungated calls need none.
    """

    started: float = 0.0
    resent: bool = False  # the one transparent retry has been used

    _processed: bool = False  # an attempt may have been processed: a refusal is not transparent any more

    # -- events -----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> Actions:
        """The request's head is whole."""
        self.started = now
        policy = self.policy
        if policy.timeouts.total is not None:
            self.deadline = now + policy.timeouts.total
        if not self.request.plain or policy.idempotency_key.header != "Idempotency-Key":
            refusal = self._listen(now)
            if refusal:
                return refusal
        bucket = self._bucket
        if bucket is not None:
            bucket.begin(now)
            if self.hints.retries_itself:
                self._app_paid = bucket.charge_app_retry(now)
        if policy.mode != "enforce":
            return self._launch(now)
        if policy.strategy.custom is not None:
            return self._start_custom(now)
        if self.scope.admits(now):
            return self._launch(now)
        return self._admit(now)

    def flown(self, since: float) -> None:
        """In the place of `start`, where the call began undecided: attempt 1 flies since then."""
        self.started = self._flying_since = since
        if self.policy.timeouts.total is not None:
            self.deadline = since + self.policy.timeouts.total
        self.attempts = 1
        self.phase = Phase.FLYING

    def head(self, attempt: int, reply: Reply, now: float) -> Actions:
        """The final head of an attempt's answer (1xx are the driver's to pass on)."""
        if self.phase is not Phase.FLYING:
            return ()
        verdict = classify(self.policy.classify, self.request, reply, None)
        if isinstance(verdict, NeedsBody):
            self._reply = reply
            self.phase = Phase.PEEKING
            if self._cooled:
                self._landed(now, self._flying_since, well=None)
            return (Peek(attempt, PEEK_LIMIT),)
        return self._answered(attempt, reply, verdict, now)

    def peeked(self, attempt: int, body: bytes, now: float) -> Actions:
        """As much of the body as was asked for, or all of it."""
        if self.phase is not Phase.PEEKING or self._reply is None:
            return ()
        self._reply = replace(self._reply, peeked=body)
        verdict = classify(self.policy.classify, self.request, self._reply, body)
        assert not isinstance(verdict, NeedsBody)  # it has been looked at
        return self._answered(attempt, self._reply, verdict, now)

    def ended(self, attempt: int, now: float, trailers: Fields | None = None) -> Actions:
        """The delivered answer has ended well."""
        if self.phase is not Phase.DELIVERING:
            return ()
        if self._provisional is not Outcome.SUCCESS:
            return self._finish(self._provisional, now)
        if trailers is not None and self._reply is not None and first(trailers, "grpc-status") is not None:
            return self._ended_by_trailers(attempt, self._reply, trailers, now)
        self._succeeded(now)
        return self._finish(Outcome.SUCCESS, now)

    def failed(self, attempt: int, fault: Fault, now: float) -> Actions:
        """An attempt ended without a whole answer."""
        if self.phase is Phase.DELIVERING:
            self._broke_off(fault, now)
            return self._finish(Outcome.COMMITTED, now)
        if self.phase not in (Phase.FLYING, Phase.PEEKING):
            return ()
        if self._is_transparent(fault):
            return self._send_again(attempt, fault, now)
        if fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            self._processed = True
        verdict = classify_fault(self.policy.classify, self.request, fault)
        return self._judge(Failure(attempt, verdict, NO_PUSHBACK, fault=fault), now)

    def woke(self, now: float) -> Actions:
        """The alarm rang, or the deadline came."""
        if self.phase is Phase.BACKOFF:
            if now < self._due - HAIR:
                return (WakeAt(self._due),)
            return self._admit(now) if self._owed is None else self._decide(now)
        if self.phase is Phase.GATED:
            return self._admit(now)
        if self.phase in (Phase.FLYING, Phase.PEEKING) and self.deadline is not None and now >= self.deadline - HAIR:
            return self._end_flight(Outcome.DEADLINE, OUT_OF_TIME, now)
        return ()

    def granted(self, price: float, now: float) -> Actions:
        """The bucket that was asked says yes, and has taken the price."""
        return self._admit(now) if self._take_grant(price, now) and now >= self._due - HAIR else ()

    def refused(self, price: float, now: float) -> Actions:
        """The bucket that was asked says no. What is here may pay all the same when the retry is due."""
        return self._decide(now) if self._heard_no(price) and now >= self._due - HAIR else ()

    @property
    def needs_no_buffer(self) -> bool:
        """Whether all attempts share the request's stream, so that a body of any size loses nothing."""
        return False

    def replay_lost(self, now: float, furthest: int = 0) -> Actions:
        """The request's body outgrew its buffer: this attempt is the last, and only silence ends it. `furthest` is the
        attempt that has sent most of it.
        """
        if self.committed or self.phase in (Phase.DELIVERING, Phase.DONE):
            return ()
        self.committed = True
        self.deadline = None
        if self.phase in (Phase.BACKOFF, Phase.GATED):
            return self._stop_waiting(Outcome.COMMITTED, now, OUTGREW)
        return ()

    def app_gone(self, now: float) -> Actions:
        """The app went away: nothing more is sent for it, and what was not used comes back."""
        if self.phase is Phase.DONE:
            return ()
        actions: list[Action] = []
        if self.phase in (Phase.FLYING, Phase.PEEKING, Phase.DELIVERING):
            actions.append(Cancel(self.delivered or self.attempts))
        elif self._failure is not None and self._failure.status is not None:
            actions.append(Discard(self._failure.attempt))
        self._give_back(now)
        self._note_gone(now)
        return (*actions, *self._finish(Outcome.CLIENT_GONE, now))

    def cut(self, now: float) -> Actions:
        """The process ends and waits no longer: an answer that has begun is broken off, one that was kept goes to the
        app, and else it is told.
        """
        if self.phase is Phase.DELIVERING:
            if self._provisional is Outcome.SUCCESS:  # else it was noted when it was judged
                self._note_delivery(now, Outcome.COMMITTED.value, SHUT_DOWN)
            return (Cancel(self.delivered), *self._finish(Outcome.COMMITTED, now))
        if self.phase in (Phase.FLYING, Phase.PEEKING):
            return self._end_flight(Outcome.OVERLOADED, SHUT_DOWN, now)
        return () if self.phase is Phase.DONE else self._stop_waiting(Outcome.OVERLOADED, now, SHUT_DOWN)

    def denied(self, attempt: int, detail: str, now: float) -> Actions:
        """The place that this attempt would have gone to is one that nobody may reach: it was not sent."""
        if self.phase is not Phase.FLYING:
            return ()
        self._granted, self._paid = self._paid, None
        self._give_back(now)
        self._note(attempt, now, decision=Outcome.DENIED.value, because=detail)
        self.attempts -= 1
        return (own_answer(Outcome.DENIED, None, detail=detail), *self._finish(Outcome.DENIED, now))

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _listen(self, now: float) -> Actions:
        """Heed what the app says of this call; a refusal where it cannot be read."""
        words = self.hints = read_request_hints(self.request, self.policy, self.scope.seen, now)
        if words.unreadable:
            detail = "X-Retry-Timeout is neither a duration nor seconds"  # its value is nobody else's to read
            return (own_answer(Outcome.BAD_REQUEST, None, detail=detail), *self._finish(Outcome.BAD_REQUEST, now))
        if words.timeout is not None and (self.deadline is None or now + words.timeout < self.deadline):
            self.deadline = now + words.timeout
        return ()

    def _start_custom(self, now: float) -> Actions:
        self._custom = CustomToken(self.policy.strategy.custom, self.scope.value)
        delay = self._custom.initial_delay
        if delay <= 0:
            return self._admit(now)
        if self.deadline is not None and now + delay > self.deadline + HAIR:
            return self._refuse(Outcome.DEADLINE, now)
        return self._back_off(now + delay) if self._take_place("backoff") else self._refuse(Outcome.OVERLOADED, now)

    # -- gates ------------------------------------------------------------------------------------------------------

    def _admit(self, now: float) -> Actions:
        """An attempt is due: launch it, or wait where a gate says so."""
        at, no, gate = self._ask_gates(now)
        if no is None and at <= now <= self._safe_until + HAIR:
            return self._launch(now)
        why = gate if no is Outcome.COOLING else ""
        if max(at, now) > self._safe_until + HAIR:
            no, why = Outcome.NOT_RETRYABLE, NO_LONGER_SAFE
        if no is None and self.deadline is not None and at > self.deadline + HAIR:
            no, why = Outcome.DEADLINE, held_too_long(gate, at - now, self.deadline - now)
        if no is None and not self._take_place("held"):
            no, why = Outcome.OVERLOADED, f"{GATES[gate]} holds it, and limits.waiting has no place for it"
        if no is not None:
            return self._stop_waiting(no, now, why)
        self.held_by = gate
        if self._held_since is None:
            self._held_since = now
        held = self._failure if self.phase not in (Phase.BACKOFF, Phase.GATED) else None
        self.phase = Phase.GATED
        if held is not None and held.status is not None:
            return (Hold(held.attempt), WakeAt(at))
        return (WakeAt(at),)

    # -- attempts ---------------------------------------------------------------------------------------------------

    def _launch(self, now: float) -> Actions:
        self.attempts += 1
        self._flying_since = now
        self.phase = Phase.FLYING
        if self.attempts == 1 and self.scope.ungated and not self._parked and not self._cooled:
            return _LAUNCH_FIRST
        self._let_go(self.attempts, now)
        self._paid_rate = self._paid_pace = False
        self._paid, self._granted = self._granted, None
        if self._failure is not None and self._failure.status is not None:
            return (Discard(self._failure.attempt), Launch(self.attempts))
        return (Launch(self.attempts),)

    def _let_go(self, attempt: int, now: float) -> None:
        """Nothing holds this attempt any more."""
        self._leave_room()
        if self._cooled:
            self._cooled = self.scope.cooldown.sent(self)
        if self._held_since is not None:
            self._held, self._held_attempt = now - self._held_since, attempt
            self._held_since = None

    def _is_transparent(self, fault: Fault) -> bool:
        """Contract, "Safety", 1: one for each call in all, whichever cause."""
        if self.resent or self.committed or self.phase is Phase.PEEKING:
            return False
        if fault.progress is Progress.NEVER_SENT:
            return True
        if fault.progress is Progress.REFUSED:
            return not self._processed
        return fault.reused and self.idempotent

    def _send_again(self, attempt: int, fault: Fault, now: float) -> Actions:
        self.resent = True
        self._note(attempt, now, fault=fault, decision="transparent")
        self._flying_since = now
        return (Launch(attempt, fresh=True),)

    def _answered(self, attempt: int, reply: Reply, verdict: Verdict, now: float) -> Actions:
        self._processed = True
        self._reply = reply
        if verdict.cls is Class.SUCCESS:
            if self._cooled:
                self._landed(now, self._flying_since, well=True)
            self.phase = Phase.DELIVERING
            self.delivered = attempt
            self.deadline = None
            return _DELIVER_FIRST if attempt == 1 else (Deliver(attempt, Outcome.SUCCESS),)
        return self._judge(self._failure_of(attempt, reply, verdict, now), now)

    # -- judgement --------------------------------------------------------------------------------------------------

    def _judge(self, failure: Failure, now: float) -> Actions:
        """An attempt failed: grant, pay for and set out on another one, or end the call with a *no*."""
        self._failure = failure
        no = self._verdict_on(failure, now)
        if no is not None:
            why = self._why_not(no, failure, now)
            self._note(failure.attempt, now, failure=failure, decision=no.value, why=why)
            return self._give_up(no, now)
        self._claim_place()
        wait = self._due - now
        self._note(failure.attempt, now, failure=failure, decision="retried", delay=wait)
        if self._owed is not None:
            self._asking = True
            actions = (*self._back_off(self._due), Ask(self._owed))
        elif wait <= 0:
            return self._admit(now)
        else:
            actions = self._back_off(self._due)
        return (Hold(failure.attempt), *actions) if failure.status is not None else actions

    def _back_off(self, due: float) -> Actions:
        self._due = due
        self.phase = Phase.BACKOFF
        return (WakeAt(due),)

    def _decide(self, now: float) -> Actions:
        """A retry is due that is not paid for: pay now, wait for the bucket's answer, or end."""
        if self._pay(now):
            return self._admit(now)
        if self.deadline is not None and now >= self.deadline - HAIR:
            return self._stop_waiting(Outcome.DEADLINE, now, "the store that keeps the bucket did not answer in time")
        limit = self._due + PATIENCE
        if not self._asking or now >= limit - HAIR:
            return self._stop_waiting(Outcome.BUCKET_EMPTY, now, "the store that keeps the bucket did not grant it")
        return (WakeAt(limit if self.deadline is None else min(limit, self.deadline)),)
