"""How a call ends: what its app is given, what comes back to the bucket, and what is written down of it.

Law: nothing leads back from here. Whatever was taken for an attempt that is not sent is given back first.
"""

from __future__ import annotations

from enum import Enum

from proxy.retry.actions import Actions, Cancel, Deliver, Finish
from proxy.retry.answers import own_answer
from proxy.retry.checks import Failure
from proxy.retry.classification import NeedsBody, classify
from proxy.retry.facts import NO_PUSHBACK, Class, Fault, Fields, Outcome, Reply, Verdict
from proxy.retry.judged import Judged

_FINISH: dict[Outcome, Actions] = {outcome: (Finish(outcome),) for outcome in Outcome}


class Phase(Enum):
    """Where a call is; see `proxy.retry.call`."""

    NEW = "new"
    GATED = "gated"
    FLYING = "flying"
    PEEKING = "peeking"
    BACKOFF = "backoff"
    DELIVERING = "delivering"
    DONE = "done"


class Ending(Judged):
    """What one call knows of its end."""

    outcome: Outcome | None = None
    phase: Phase = Phase.NEW
    delivered: int = 0  # the attempt whose answer goes to the app; 0: none, or the proxy's own

    _provisional: Outcome = Outcome.SUCCESS
    _failure: Failure | None = None
    _app_paid: float | None = None

    @property
    def kept_off(self) -> tuple[float, float]:
        """Of a call that a cooldown ended: the seconds that are left of it, and those that its last answer asked for
        when it came.
        """
        failure = self._failure
        return self._cooling[0], (failure.pushback.delay or 0.0) if failure is not None else 0.0

    def _give_up(self, no: Outcome, now: float, why: str = "") -> Actions:
        """No further attempt: the last answer goes to the app as it came, or the proxy's own where there is none."""
        failure = self._failure
        if failure is not None and failure.status is not None:
            self.phase = Phase.DELIVERING
            self._provisional = no
            self.delivered = failure.attempt
            self.deadline = None
            return (Deliver(failure.attempt, no),)
        return self._refuse(no, now, why)

    def _refuse(self, no: Outcome, now: float, why: str = "") -> Actions:
        fault = self._failure.fault if self._failure is not None else None
        left = {
            Outcome.COOLING: lambda: self._cooling[0],
            Outcome.RATE_LIMITED: lambda: self.scope.rate.seconds_left(now) if self.scope.rate is not None else 0.0,
            Outcome.OVERLOADED: lambda: 1.0,
        }.get(no)
        detail = None if fault is not None else why or None
        status = self._cooling[1] if no is Outcome.COOLING else None
        answer = own_answer(no, fault, detail=detail, retry_after=left() if left is not None else None, status=status)
        return (answer, *self._finish(no, now))

    def _stop_waiting(self, no: Outcome, now: float, why: str = "") -> Actions:
        """A granted retry, or a first attempt, does not happen after all."""
        self._give_back(now)
        if self.history:
            self.history[-1].decision, self.history[-1].why = no.value, why
        return self._give_up(no, now, why)

    def _broke_off(self, fault: Fault, now: float) -> None:
        """The answer that the app was being given broke off."""
        if self._provisional is Outcome.SUCCESS:  # else it was learnt and noted when it was judged
            self._learn(False, now)
            why = "its answer had begun to go to the app"
            self._note_delivery(now, Outcome.COMMITTED.value, why, fault)

    def _note_gone(self, now: float) -> None:
        """The app went away: from an attempt in flight, from an answer, or while another attempt was waited for."""
        gone = Outcome.CLIENT_GONE.value
        if self.phase in (Phase.FLYING, Phase.PEEKING):
            self._note(self.attempts, now, decision=gone)
        elif self.phase is Phase.DELIVERING and self._provisional is Outcome.SUCCESS:
            self._note_delivery(now, gone)
        elif self.history and self.phase is not Phase.DELIVERING:
            self.history[-1].decision = gone

    def _note_delivery(self, now: float, decision: str, why: str = "", fault: Fault | None = None) -> None:
        """The answer that the app was being given ends before it is whole."""
        self._note(self.delivered, now, fault=fault, decision=decision, why=why)
        if self._reply is not None:
            self.history[-1].status = self._reply.status

    def _end_flight(self, no: Outcome, because: str, now: float) -> Actions:
        """The deadline, or the end of the process, ends what flies."""
        attempt = self.attempts
        self._learn(False, now)
        if self._cooled:
            self._landed(now, self._flying_since, well=False)
        self._note(attempt, now, decision=no.value, because=because)
        if self.phase is Phase.PEEKING and self._reply is not None:
            unnamed = Verdict(Class.UNNAMED, "its body did not come in time")
            self._failure = Failure(attempt, unnamed, NO_PUSHBACK, status=self._reply.status)
            return self._give_up(no, now)
        self._failure = None
        return (Cancel(attempt), *self._refuse(no, now, "" if no is Outcome.DEADLINE else because))

    def _ended_by_trailers(self, attempt: int, reply: Reply, trailers: Fields, now: float) -> Actions:
        """A gRPC answer whose status came after its messages: committed, but the bucket and the app's log are told."""
        whole = self._reply = Reply(reply.status, trailers, end=True, trailers=trailers)
        verdict = classify(self.policy.classify, self.request, whole, b"")
        assert not isinstance(verdict, NeedsBody)  # there is nothing to look at
        if verdict.cls is Class.SUCCESS:
            self._succeeded(now)
            return self._finish(Outcome.SUCCESS, now)
        self.committed = True
        failure = self._failure_of(attempt, whole, verdict, now)
        no = self._verdict_on(failure, now) or Outcome.COMMITTED
        why = self._why_not(no, failure, now, delivered=True)
        self._note(attempt, now, failure=failure, decision=no.value, why=why)
        return self._finish(no, now)

    def _succeeded(self, now: float) -> None:
        self._learn(False, now)
        if self._custom is not None:
            self._custom.succeeded()
        bucket = self._bucket
        if bucket is not None and self._app_paid is not None and self.attempts == 1:
            bucket.app_succeeded(self._app_paid, now)
        elif bucket is not None:
            bucket.succeeded(self._paid if self.attempts > 1 else None, now)
        if self.history or self._held_attempt:
            self._note(self.delivered, now, decision="delivered")

    def _finish(self, outcome: Outcome, now: float) -> Actions:
        self.phase = Phase.DONE
        self.outcome = outcome
        if self._cooled:
            self._leave_gates(now)
        if self._parked:
            self._leave_room()
        return _FINISH[outcome]
