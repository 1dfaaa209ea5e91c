"""The explanation of a recorded call: the answer of `redrive explain` for its request and its answers, under the
configuration in force.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.config.settings import Settings
from proxy.lab.explain import Explanation, explain_chosen, explanation
from proxy.lab.explain.question import Fate, Question
from proxy.lab.kept_calls import Kept, KeptCall, gave_up, kept_call, result_of
from proxy.lab.routing import Chosen, RefusedCall
from proxy.observe import masking
from proxy.retry.facts import Outcome

#: Ends that are explained at most: the first ones that differ.
_ENDS = 5
_FIELDS = (
    "request headers and bodies are not kept: an Idempotency-Key, an X-Retry-* field, or a header that a route asks "
    "for is not seen here"
)


def explain_kept(settings: Settings, kept: Kept) -> dict[str, Any]:
    """The explanation, as data for JSON, of the recorded call `kept`, an entry of `/requests`."""
    try:
        call = kept_call(settings, kept)
    except ValueError as error:
        return Explanation(masking.target(f"{kept['method']} {kept['host']}"), notes=[str(error)]).as_data()
    if kept["method"] == "CONNECT":
        return explanation(settings, (), Question(call.ask), call.began).as_data()
    fates = {} if isinstance(call.chosen, RefusedCall) else _fates(call)
    explained = explain_chosen(settings, (), call.ask, call.chosen, list(fates.values()), call.began)
    notes = [*explained.notes, *call.notes, *_notes(call)]
    ends = [end.as_data() for end in explained.ends]
    attempts = {label: attempt for attempt in call.sent if (label := _label(attempt)) in fates}
    kept_ends = [end for end in ends if not _judged_by_more(end, attempts[end["end"]], notes)]
    if explained.refused is None and kept["history"]:
        notes.append(_FIELDS)
    return {**explained.as_data(), "notes": notes, "ends": kept_ends}


def _label(attempt: Kept) -> str | None:
    fate = result_of(attempt)
    return None if fate is None else fate.label


def _went_to_first(call: KeptCall, attempt: Kept) -> bool:
    """Whether a recorded attempt went to the upstream that took the call first, and not to one that the call fell back
    to.
    """
    return bool(attempt.get("upstream", call.kept["upstream"]) == call.kept["upstream"])


def _fates(call: KeptCall) -> dict[str, Fate]:
    """The answers and faults that attempts at the call's first upstream got, each once, by its label (such as the
    status).
    """
    found: dict[str, Fate] = {}
    for attempt in call.sent:
        fate = result_of(attempt)
        if fate is not None and _went_to_first(call, attempt) and not _had_begun(attempt):
            after = fate.step.after if gave_up(attempt) else None  # as `redrive explain` has it: at once
            found[fate.label] = fate._replace(step=replace(fate.step, after=after))
    return dict(list(found.items())[:_ENDS])


def _had_begun(attempt: Kept) -> bool:
    """Whether the attempt could not be followed by another one, because its answer had begun to go to the app or the
    request was larger than its buffer.
    """
    return attempt.get("decision") == Outcome.COMMITTED.value


def _notes(call: KeptCall) -> list[str]:
    """Sentences about facts of this call that the explanation of its answers and faults does not show."""
    kept, notes = call.kept, []
    if not kept["history"]:
        if kept["attempts"] == 0:
            held = f"held for {kept['duration']:.3g} s, and " if kept.get("duration", 0) >= 0.001 else ""
            notes.append(f"no attempt was made: the call was {held}answered by redrive ({kept['outcome']})")
        return notes
    for attempt in call.sent:
        number = attempt["attempt"]
        if attempt.get("held"):
            notes.append(
                f"attempt {number} was held for {attempt['held']:.3g} s before it was sent: {attempt['held_by']}"
            )
        if _had_begun(attempt):
            notes.append(
                f"attempt {number} could not be followed by another one, whatever the policy says: its answer had "
                "begun to go to the app, or the request was larger than its buffer"
            )
        elif attempt.get("decision") == "cancelled":
            notes.append(f"attempt {number} was cancelled before its answer was known: another one ended the call")
    for upstream in dict.fromkeys(attempt["upstream"] for attempt in call.sent if not _went_to_first(call, attempt)):
        numbers = ", ".join(str(each["attempt"]) for each in call.sent if each.get("upstream") == upstream)
        notes.append(f"{upstream} took the call over under its own policy: attempt {numbers}")
    if kept["outcome"] == Outcome.BUCKET_EMPTY.value:
        why = call.sent[-1].get("why") or "the bucket was empty"
        notes.append(f"when the call was made: {why}. What follows assumes a full bucket")
    chosen = call.chosen
    if isinstance(chosen, Chosen) and chosen.policy.strategy.hedging_delay is not None:
        notes.append("attempts are hedged: the next one goes after a delay, while the one before is still under way")
    return notes


def _judged_by_more(end: dict[str, Any], attempt: Kept, notes: list[str]) -> bool:
    """Whether a recorded attempt was judged by a header or a body that the record does not have, so that it can't be
    explained. `end` is the explanation of the same answer under the configuration in force; if it gives another class,
    a sentence about that is added to `notes`.
    """
    was, now = attempt.get("class"), end["class"]
    if was is None or was == now:
        return False
    because, number, label = attempt.get("because", ""), attempt["attempt"], end["end"]
    if because in (f"{was}: {label}", f"not named: {label}"):
        notes.append(
            f"attempt {number} was judged {was} when it ended; under the configuration in force {label} is {now}"
        )
        return False
    why = f" ({because})" if because else ""
    notes.append(f"attempt {number} ({label}) was judged {was}{why}, by a header or a body that is not kept")
    return True
