"""The history of one call: a record of each attempt, and of the decision after it, for people."""

from __future__ import annotations

from proxy.retry.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.facts import Class, Failure, Fault, Outcome, Reply
from proxy.retry.policy import Policy
from proxy.retry.states import Flight

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS_CLASS = Class.SUCCESS


class CallHistory:
    """The records of one call's attempts. `upstream` and `route`: those of the attempts from now on, if the call has
    gone on to another upstream than its first; else "".
    """

    __slots__ = ("records", "route", "upstream")

    def __init__(self) -> None:
        self.records: list[AttemptRecord] = []
        self.upstream = self.route = ""

    def note(
        self, flight: Flight, now: float, decision: str, failure: Failure | None = None, reply: Reply | None = None
    ) -> AttemptRecord:
        """Record the end of an attempt, and the decision after it. `reply`: the last answer that was judged."""
        payment = flight.payment
        record = AttemptRecord(flight.attempt, flight.since, now)
        record.decision = decision
        record.price = 0.0 if payment is None else payment.price or 0.0
        record.endpoint, record.protocol = flight.sent_to, flight.protocol
        record.key, record.key_why, record.aside = flight.key, flight.key_why, flight.aside
        record.upstream, record.route = self.upstream, self.route
        if flight.look is not None:
            record.first_byte = flight.look.seconds(flight.since)
        if flight.held:
            record.held, record.held_by = flight.held, flight.held_by
        if failure is not None:
            record.judge(failure, reply)
        elif reply is not None and decision == "delivered":
            record.status, record.cls = reply.status, _SUCCESS_CLASS
        self.records.append(record)
        return record

    def note_broken_delivery(self, flight: Flight, now: float, decision: str, reply: Reply | None) -> AttemptRecord:
        """Record that the answer which was going to the app ended before it was complete."""
        record = self.note(flight, now, decision)
        if reply is not None:
            record.status = reply.status
        return record

    def note_transparent(self, flight: Flight, fault: Fault, now: float) -> None:
        """Record an attempt that is sent again at once, with the same number."""
        self.note(flight, now, "transparent").record_fault(fault)

    def revise(self, no: str, why: str | None = None) -> None:
        """Change the decision in the last record to the outcome `no`, for the reason `why`: the attempt that was to
        follow is not made after all.
        """
        last = self.records[-1]
        last.decision = no
        if why is not None:
            last.why = why

    def never_sent(self, no: Outcome, upstream: str, why: str) -> None:
        """Note in the last record, which belongs to an attempt at another upstream, that nothing was sent to the
        upstream named `upstream`, for the reason `why`.
        """
        if self.records:
            last = self.records[-1]
            last.decision, last.why = no.value, f"{last.why}; {upstream}: {why or no.value}"

    def fell_back(self, no: Outcome) -> None:
        """Note in the last record that the call, which would have ended with the outcome `no`, goes on at another
        upstream.
        """
        last = self.records[-1]
        last.decision, last.why = FELL_BACK, f"{no.value}{f': {last.why}' if last.why else ''}"

    def went_on(self, policy: Policy) -> None:
        """Name this policy's upstream in later records, since the call goes on there."""
        self.upstream, self.route = policy.upstream, policy.route
