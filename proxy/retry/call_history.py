"""The history of one call: a record of each attempt, and of the decision after it, for people.

A history is the tuple of the records, which is empty for most calls; the functions here make and revise them.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.facts import Class, Failure, Outcome, Reply
from proxy.retry.states import Flight

#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS_CLASS = Class.SUCCESS


def record_of(
    flight: Flight, now: float, decision: str, failure: Failure | None = None, reply: Reply | None = None
) -> AttemptRecord:
    """Return the record of an attempt that has ended, with the decision after it. `flight`: the attempt; `failure`: how
    it failed, None if it did not; `reply`: the last answer that was judged, which is the attempt's own unless a fault
    ended the attempt.
    """
    payment = flight.payment
    record = AttemptRecord(flight.attempt, flight.since, now)
    record.decision = decision
    if payment is not None:
        record.price = payment.price or 0.0
    record.endpoint, record.protocol = flight.sent_to, flight.protocol
    if flight.key is not None:
        record.key, record.key_why, record.aside = flight.key, flight.key_why, flight.aside
    if flight.body_wait is not None:
        record.first_byte = flight.body_wait.seconds(flight.since)
    if flight.range:
        record.range = flight.range
    if flight.held:
        record.held, record.held_by = flight.held, flight.held_by
    if failure is not None:
        record.judge(failure, reply)
    elif reply is not None and decision == "delivered":
        record.status, record.cls = reply.status, _SUCCESS_CLASS
    return record


def revise(history: Sequence[AttemptRecord], no: str, why: str | None = None) -> None:
    """Change the decision in the last record, because the attempt that was to follow is not made after all. `no`: the
    outcome that refuses it; `why`: the reason, None to leave the recorded one.
    """
    last = history[-1]
    last.decision = no
    if why is not None:
        last.why = why


def note_never_sent(history: Sequence[AttemptRecord], no: Outcome, upstream: str, why: str) -> None:
    """Add to the last record, that of an attempt at another upstream, that the call ended with the outcome `no` before
    anything was sent to the upstream named `upstream`, for the reason `why`.
    """
    if history:
        last = history[-1]
        last.decision, last.why = no.value, f"{last.why}; {upstream}: {why or no.value}"


def note_fallback(history: Sequence[AttemptRecord], no: Outcome) -> None:
    """Note in the last record that the call, which would have ended with the outcome `no`, goes on at another
    upstream.
    """
    last = history[-1]
    last.decision, last.why = FELL_BACK, f"{no.value}{f': {last.why}' if last.why else ''}"
