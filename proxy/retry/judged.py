"""A call as it judges its failures: who is told, which check says no, what the next attempt waits for and pays.

Law: the checks stand in the contract's order (section 4, "Order of checks"), and the price is taken at once after the
last of them has passed.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.backoff import WaitSeries
from proxy.retry.buckets import ASK, Bucket
from proxy.retry.checks import Failure, first_no, is_safe, too_long
from proxy.retry.classification import names
from proxy.retry.facts import NO_PUSHBACK, Class, Fault, Outcome, Pushback, Reply, Verdict
from proxy.retry.gated import HAIR, NEVER, Gated
from proxy.retry.plugins import CustomToken
from proxy.retry.pushback import read_pushback
from proxy.retry.reasons import Grounds, why_not


class Judged(Gated):
    """What one call knows of its failures."""

    committed: bool = False

    _began_cooldown: bytes | None = None  # whose, by the failure that is being judged
    _reply: Reply | None = None
    _flying_since: float = 0.0
    _due: float = 0.0
    _safe_until: float = NEVER  # when another attempt stops being safe
    _series: WaitSeries | None = None
    _custom: CustomToken | None = None

    def _failure_of(self, attempt: int, reply: Reply, verdict: Verdict, now: float) -> Failure:
        pushback = self._pushback_of(reply, verdict.cls, now)
        if pushback.retry and verdict.cls is Class.UNNAMED:
            verdict = Verdict(Class.TRANSIENT, f"{verdict.because}, but the upstream says retry")
            pushback = self._pushback_of(reply, verdict.cls, now)
        return Failure(attempt, verdict, pushback, status=reply.status)

    def _pushback_of(self, reply: Reply, cls: Class, now: float) -> Pushback:
        """What the answer says of the next attempt. Under hedging a failure that hedges go on from is read as a
        retryable one, whatever its class: a hedge never comes sooner than its pushback says either.
        """
        if reply.plain and not self.policy.classify.resets:
            return NO_PUSHBACK
        if not cls.retryable and self.policy.strategy.hedging_delay is not None:
            cls = Class.TRANSIENT if self._is_non_fatal(reply, None) else cls
        wall = now + self.env.wall_offset
        dialects = self.policy.classify.dialects
        trailers = reply.trailers if reply.trailers is not reply.fields else None  # read once, else they contradict
        peeked = reply.peeked
        return read_pushback(reply.fields, reply.status, cls, dialects, wall, trailers=trailers, peeked=peeked)

    def _verdict_on(self, failure: Failure, now: float) -> Outcome | None:
        """Tell everybody who learns from failures, then put the checks in their order."""
        mode, pushback = self.policy.mode, failure.pushback
        self._learn(failure.verdict.cls is Class.THROTTLING, now)
        bucket = self._bucket
        retryable = self._goes_on(failure)
        if bucket is not None and (retryable or pushback.stop):
            bucket.failed(now)
        self._began_cooldown = None
        if mode == "enforce" and pushback.cooldown is not None:
            self._start_cooldown(failure, pushback.cooldown, now)
        if self._cooled:
            well = failure.status is not None and not failure.verdict.cls.retryable
            self._landed(now, self._flying_since, well=well)
        if mode == "observe" and not self.hints.disabled:
            return self._observed_no(failure, bucket, retryable, now)
        no = self._first_no(failure, retryable, self._disabled, now)
        return no if no is not None else self._grant(failure, bucket, now)

    def _first_no(self, failure: Failure, retryable: bool, disabled: bool, now: float) -> Outcome | None:
        safe = is_safe(
            failure.verdict,
            failure.fault,
            idempotent=self.idempotent,
            unsafe_methods=self.policy.classify.unsafe_methods,
        )
        if safe:
            self._safe_until = self._repeatable_until(failure)
            safe = now <= self._safe_until + HAIR
        left = self.attempts < self.policy.strategy.max_attempts
        return first_no(failure, retryable=retryable, committed=self.committed, disabled=disabled, safe=safe, left=left)

    def _repeatable_until(self, failure: Failure) -> float:
        """Until when another attempt is safe: for ever, but where it is only since the provider's own client repeats
        the call, and that client does so for a while alone (AWS: its signature expires).
        """
        verdict, unsafe_methods = failure.verdict, self.policy.classify.unsafe_methods
        if verdict.repeated_within is None or is_safe(
            replace(verdict, repeated_by=""), failure.fault, idempotent=self.idempotent, unsafe_methods=unsafe_methods
        ):
            return NEVER
        first_sent = self.history[0].started if self.history else self._flying_since
        return first_sent + verdict.repeated_within

    def _grant(self, failure: Failure, bucket: Bucket | None, now: float) -> Outcome | None:
        """The checks from the tokens to the waiting room; then, at once, the price is taken."""
        price = bucket.price(failure.price_class) if bucket is not None else 0.0
        if bucket is not None and not bucket.affords(price, now):
            return Outcome.BUCKET_EMPTY
        wait = self._custom.next_delay(failure) if self._custom is not None else None
        if isinstance(wait, Outcome):
            return wait
        if too_long(failure.pushback, self.policy):
            return Outcome.PUSHBACK_TOO_LONG
        if wait is None:
            wait = self._next_wait(failure)
        self._due = now + wait
        if self._due > self._safe_until + HAIR:
            return Outcome.NOT_RETRYABLE
        if self.deadline is not None and self._due > self.deadline + HAIR:
            return Outcome.DEADLINE
        if wait > 0 and not self._take_place("backoff"):
            return Outcome.OVERLOADED
        if bucket is not None and not bucket.take(price, now):
            return self._owe(price, bucket, now)
        self._granted, self._granted_at = price, now
        return None

    def _owe(self, price: float, bucket: Bucket, now: float) -> Outcome | None:
        """The price can't be taken here: a bucket kept elsewhere is asked while the retry waits."""
        if bucket.affords(price, now) != ASK:
            self._leave_room()
            return Outcome.BUCKET_EMPTY
        if not self._take_place("backoff"):
            return Outcome.OVERLOADED
        self._owed = price
        return None

    def _observed_no(self, failure: Failure, shadow: Bucket | None, retryable: bool, now: float) -> Outcome:
        """Mode observe: work out what would have happened against the shadow, and let it show in the record."""
        real = self._first_no(failure, retryable, disabled=True, now=now)
        if real is not None and real is not Outcome.DISABLED:
            return real  # a check ahead of the mode's: the same in every mode
        no = self._first_no(failure, retryable, disabled=False, now=now)
        if no is None:
            no = self._grant(failure, shadow, now)
            self._leave_room()
            self._granted = None
        what = f"would retry after {self._due - now:.3f} s" if no is None else f"would not retry ({no.value})"
        because = f"{failure.verdict.because}; observed: {what}"
        failure.verdict = replace(failure.verdict, because=because)
        return Outcome.DISABLED

    def _goes_on(self, failure: Failure) -> bool:
        """Whether this failure is one that may be followed by another attempt at all."""
        if self.policy.strategy.hedging_delay is None:
            return failure.verdict.cls.retryable
        return self._is_non_fatal(self._reply, failure.fault)

    def _is_non_fatal(self, reply: Reply | None, fault: Fault | None) -> bool:
        """Whether a hedged call goes on from this end: `non_fatal` alone decides (contract, "Hedging")."""
        return names(self.policy.strategy.non_fatal, self.policy.classify, self.request, reply, fault)

    def _next_wait(self, failure: Failure) -> float:
        if self._series is None:
            self._series = WaitSeries(self.policy.strategy)
        return self._series.next(failure.pushback.delay, failure.verdict.cls is Class.THROTTLING, self.env.rng)

    def _start_cooldown(self, failure: Failure, seconds: float, now: float) -> None:
        """The upstream asked all callers to wait. With X-Retry-Disable a call begins no cooldown."""
        rules, scope = self.policy.pushback, self.scope
        if rules.cooldown == "off" or self.hints.disabled or failure.status is None:
            return
        delay, fields, sent = min(seconds, rules.max_delay), self.request.fields, self._flying_since
        if delay > 0:
            self._began_cooldown = scope.cooldown.start(fields, failure.status, delay, sent=sent, now=now)

    def _claim_place(self) -> None:
        """The call that began a cooldown, and will be tried again, has its first place."""
        if self._began_cooldown is not None:
            self._own_delays = (*self._own_delays, self.scope.cooldown.until(self._began_cooldown))
            self._cooled = self.scope.cooldown.claim(self, self._began_cooldown, self._due)

    def _learn(self, throttled: bool, now: float) -> None:
        """The adaptive limiter learns from the end of every attempt."""
        pacing = self.scope.pacing
        if pacing is not None and self.policy.mode == "enforce":
            pacing.learn(throttled, now)
            if self.scope.limiter is not None and self.scope.limiter.queue:
                self.scope.limiter.retime(now)

    def _why_not(self, no: Outcome, failure: Failure, now: float, *, delivered: bool = False) -> str:
        """Why this failure is not followed by another attempt, for people."""
        grounds = Grounds(
            self.policy,
            self.request.method,
            self._bucket,
            disabled=self.hints.disabled,
            goes_on=self._goes_on(failure),
            hedges=self.policy.strategy.hedging_delay is not None,
            delivered=delivered,
            wait=self._due - now,
            left=None if self.deadline is None else self.deadline - now,
        )
        return why_not(no, failure, grounds, now)

    def _price(self, attempt: int) -> float:
        """What this attempt had paid."""
        return self._paid or 0.0

    def _note(
        self,
        attempt: int,
        now: float,
        *,
        decision: str,
        failure: Failure | None = None,
        fault: Fault | None = None,
        because: str = "",
        why: str = "",
        delay: float | None = None,
    ) -> None:
        """Write down what became of a sending."""
        record = AttemptRecord(attempt, self._flying_since, now, decision=decision, price=self._price(attempt))
        record.because, record.why, record.delay = because, why, delay
        record.endpoint = self.endpoints.get(attempt, "")
        if self._held and attempt == self._held_attempt:
            record.held, record.held_by = self._held, self.held_by
        if failure is not None:
            fault = failure.fault
            record.status = failure.status
            record.cls, record.because = failure.verdict.cls, failure.verdict.because
            record.pushback, record.pushback_delay = failure.pushback.source, failure.pushback.delay
        if fault is not None:
            record.fault, record.detail = fault.kind, fault.detail
        elif self._reply is not None and decision == "delivered":
            record.status, record.cls = self._reply.status, Class.SUCCESS
        if self._reply is not None and failure is not None and failure.status is not None:
            record.grpc_status = self._reply.grpc_status
        self.history.append(record)
