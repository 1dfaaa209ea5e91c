"""The times at which a call and its attempts run out of time by the `timeouts` of the call's policy: `attempt`,
`first_byte`, `idle` and the others. The deadline is not among them: the `Call` itself knows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.forward.attempt import DELIVERING, FLYING, HOLDING, PEEKING, Attempt
from proxy.forward.delivery import Delivery
from proxy.forward.request_plan import Plan
from proxy.forward.resume import resumer_of
from proxy.forward.upload import Upload
from proxy.retry.answers.event_stream import is_event_stream
from proxy.retry.call.machine import Call
from proxy.retry.facts import Fault, Reply
from proxy.transport import faults

_NEVER = float("inf")
#: The states of an attempt in which its answer's body comes.
_READING = (DELIVERING, PEEKING)


class CallTimeouts:
    """The timeouts of a call in its present state; made for one check of the call. `moved`: the time at which bytes of
    the request or an answer last came or were sent.
    """

    __slots__ = ("_call", "_delivery", "_flights", "_moved", "_plan", "_stall", "_timeouts", "_upload")

    def __init__(
        self,
        plan: Plan,
        call: Call,
        flights: Mapping[int, Attempt],
        upload: Upload | None,
        delivery: Delivery,
        moved: float,
    ) -> None:
        resume = plan.policy.resume
        self._plan = plan
        self._timeouts = plan.policy.timeouts
        self._stall = None if resume is None else resume.stall  # the silence after which a delivered answer is broken
        self._call = call
        self._flights = flights
        self._upload = upload
        self._delivery = delivery
        self._moved = moved

    def fault_of(self, attempt: Attempt, now: float) -> Fault | None:
        """Return the fault for the timeout (`attempt`, `first_byte` or `resume.stall`) that this attempt has exceeded;
        None if it has exceeded none.
        """
        if self._stalls(attempt, now):
            return faults.idle_timeout(self._stall, answered=True)
        if now >= self._attempt_due(attempt):
            return faults.attempt_timeout(self._timeouts.attempt)
        if now >= self._first_byte_due(attempt):
            answered = attempt.waits
            events = answered and is_event_stream(Reply(attempt.head.status, attempt.head))
            return faults.first_byte_timeout(self._timeouts.first_byte, answered=answered, events=events)
        return None

    @property
    def silence_due(self) -> float:
        """The time at which the timeout `idle` ends the call if no byte moves before; infinite while it does not apply.
        It applies while a body is in progress in either direction, in a tunnel, and to a call whose request's body
        outgrew its buffer.
        """
        idle = self._timeouts.idle
        receiving = self._upload is not None and not self._upload.replay.done
        return _NEVER if idle is None or not (receiving or self._flowing) else self._moved + idle

    def next_due(self, now: float) -> float:
        """Return the earliest time at which a deadline or timeout of the call ends."""
        deadline, flights = self._call.so_far.deadline, self._flights.values()
        due = _NEVER if deadline is None or now >= deadline else deadline
        due = min(due, self.silence_due, *map(self._attempt_due, flights), *map(self._first_byte_due, flights))
        due = min([due, *[each.body_wait.goes_on for each in flights if each.body_wait is not None and each.waits]])
        if self._stall is None or not flights:
            return due
        stalls_at = self._moved + self._stall
        return min(due, stalls_at if stalls_at > now else now + self._stall)

    def standing_still(self) -> tuple[Attempt, Fault] | None:
        """Return the attempt at fault and its fault, if no byte has moved for longer than the idle timeout; None if the
        app is at fault.
        """
        blocked = [each for each in self._sending if each.stream is not None and each.stream.blocked]
        for attempt in self._flowing or blocked:
            return attempt, faults.idle_timeout(self._timeouts.idle, answered=attempt.state is DELIVERING)
        return None

    def _stalls(self, attempt: Attempt, now: float) -> bool:
        """Whether the delivered answer of this attempt could be resumed by a request for the rest, and has been silent
        for longer than `resume.stall` although the app takes bytes.
        """
        if self._stall is None or attempt.state is not DELIVERING or attempt.stream is None:
            return False
        if now < self._moved + self._stall or self._delivery.app.blocked:
            return False
        return resumer_of(self._plan, attempt, now + self._delivery.context.env.wall_offset) is not None

    def _attempt_due(self, attempt: Attempt) -> float:
        timeout = self._timeouts.attempt
        if timeout is None or attempt.sent_at is None or attempt.state is not FLYING or self._has_outgrown:
            return _NEVER
        return attempt.sent_at + timeout

    def _first_byte_due(self, attempt: Attempt) -> float:
        if attempt.state is FLYING:
            within = self._call.first_byte
            if within is None or attempt.sent_at is None or self._has_outgrown:
                return _NEVER
            return attempt.sent_at + within
        due = attempt.body_wait.due if attempt.body_wait is not None and attempt.waits else None
        return _NEVER if due is None else due

    @property
    def _has_outgrown(self) -> bool:
        """Whether the request's body outgrew its buffer, so that only the idle timeout limits the wait for the answer's
        head. False if all attempts under way read the body as it comes and need no buffer: the timeouts `attempt` and
        `total` limit them as usual.
        """
        return self._upload is not None and self._upload.replay.lost and self._call.so_far.committed

    @property
    def reads_no_body(self) -> bool:
        """Whether the app can't send more of the request's body, because the call waits for its next attempt: no more
        of the body may be kept, or the app waits for the 100 (Continue) that the attempt brings.
        """
        upload = self._upload
        if upload is None or self._sending:
            return False
        return upload.paused or (self._plan.head.expect_continue and not upload.size)

    @property
    def _sending(self) -> list[Attempt]:
        """The attempts that have a stream, without those whose answer is held until the next attempt is sent."""
        return [each for each in self._flights.values() if each.stream is not None and each.state is not HOLDING]

    @property
    def _flowing(self) -> list[Attempt]:
        """The attempts that only the idle timeout ends. The answer of such an attempt is being delivered, or its body
        is looked at, or it is awaited for a request whose body outgrew its buffer.
        """
        outgrown = self._has_outgrown
        flights = self._flights.values()
        return [a for a in flights if a.state in _READING or (outgrown and a.state is FLYING)]
