"""What a call has to wait for, and how long it does: deadline, timeouts, its one alarm.

Law: a timeout is looked at by the worker's one coarse timer (`forward.watch`); only a wait that the call itself asked
for has a timer of its own, and it never rings sooner than was said.
"""

from __future__ import annotations

from proxy.forward.alarm import Alarm
from proxy.forward.attempt import DELIVERING, FLYING, Attempt
from proxy.forward.life import NEVER
from proxy.forward.upload import Upload
from proxy.retry.actions import Answer
from proxy.retry.facts import Outcome
from proxy.transport import faults
from proxy.transport.clock import monotonic


class Patience(Upload):
    """See the module. Implements `proxy.forward.watch.Timed`."""

    def due_by(self, at: float) -> None:
        """Something is due at this time, perhaps before anything else."""
        if at < self.due:
            self.due = at
            self.means.watch.sooner(self)

    def attend(self, now: float) -> float:
        """See to deadlines and timeouts; when the next one is due."""
        deadline = self.call.deadline
        if deadline is not None and now >= deadline:
            self.tell(now, self.call.woke, now)
            deadline = self.call.deadline
        due = NEVER if deadline is None or now >= deadline else deadline
        for attempt in list(self.flights.values()):
            due = min(due, self._attend_attempt(attempt, now))
        if self.over:
            return NEVER
        return min(due, self._attend_silence(now))

    def _attend_attempt(self, attempt: Attempt, now: float) -> float:
        """The attempt's own timeout: from the last byte of the request to the final head."""
        if self.attempt_timeout is None or attempt.sent_at is None or attempt.state is not FLYING:
            return NEVER
        if self._has_outgrown:
            return NEVER  # it is bounded by idle alone
        at = attempt.sent_at + self.attempt_timeout
        if now < at:
            return at
        self.failed(attempt, faults.attempt_timeout())
        return NEVER

    def _attend_silence(self, now: float) -> float:
        """The idle timeout: of a body either way, a tunnel, and the wait of a call that outgrew its buffer."""
        idle = self.policy.timeouts.idle
        outgrown = self._has_outgrown
        receiving = self.replay is not None and not self.replay.done
        flowing = [a for a in self.flights.values() if a.state is DELIVERING or (outgrown and a.state is FLYING)]
        if idle is None or not (flowing or receiving):
            return NEVER
        at = self.moved + idle
        if now < at:
            return at
        blocked = [a for a in self.flights.values() if a.stream is not None and a.stream.blocked]
        for attempt in flowing or blocked:
            self.failed(attempt, faults.idle_timeout(answered=attempt.state is DELIVERING))
            return NEVER
        self._end_early(
            408, "Request Timeout", "the request's body did not come", Outcome.CLIENT_GONE, "connection_read_timeout"
        )
        return NEVER

    def wake_at(self, at: float) -> None:
        """Set the call's one alarm."""
        if self.over:
            return
        if self._alarm is None:
            self._alarm = Alarm(self.means.loop, self._ring)
        self._alarm.set(at)

    def _ring(self, now: float) -> None:
        self.tell(now, self.call.woke, now)

    def _end_early(self, status: int, title: str, detail: str, outcome: Outcome, error: str) -> None:
        """The app's own fault ends the call."""
        if self.over:
            return
        now = monotonic()
        self._verdict = outcome
        if self.status:
            self.app.reset()
        else:
            answer = Answer(status, title, detail, outcome, None, error)
            self._answer(answer)
        self.tell(now, self.call.app_gone, now)
