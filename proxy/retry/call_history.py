"""The history of one call: a record of each attempt, and of the decision after it, for people.

A history is the tuple of the records, which is empty for most calls (`proxy.retry.call_state.CallState.note` makes
them); the functions here revise the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.facts import Outcome


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
