"""The history of one call: a record of each attempt, and of the decision after it, for people to read.

A history is the tuple of the records, which is empty for most calls. `proxy.retry.call.call_state.CallState.note` makes
the records; the functions here change the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.call.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.facts import Outcome


def revise(history: Sequence[AttemptRecord], no: str, why: str | None = None) -> None:
    """Change the decision in the last record, because the planned next attempt is not made after all. `no`: the outcome
    that takes its place. `why`: the reason, None to leave the recorded one.
    """
    last = history[-1]
    last.decision = no
    if why is not None:
        last.why = why


def note_never_sent(history: Sequence[AttemptRecord], no: Outcome, upstream: str, why: str) -> None:
    """Add to the last record, which is of an attempt at an earlier upstream, that the call fell back to `upstream`, but
    ended before anything was sent there. `no`: the outcome of the call. `why`: the reason.
    """
    if history:
        last = history[-1]
        last.decision, last.why = no.value, f"{last.why}; {upstream}: {why or no.value}"


def note_fallback(history: Sequence[AttemptRecord], no: Outcome) -> None:
    """Note in the last record that the call goes on at another upstream. `no`: the outcome with which it would have
    ended.
    """
    last = history[-1]
    last.decision, last.why = FELL_BACK, f"{no.value}{f': {last.why}' if last.why else ''}"
