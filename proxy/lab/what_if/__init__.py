"""A trial of another policy for an upstream: a draft is checked as `redrive check` would check it, and the last calls
are played under it.

Nothing is written and nothing is sent: `draft` loads the file with the draft in its place, `replay` plays the recorded
calls on the virtual clock, once under the configuration in force and once under the draft. A call that can't be played
as it went, because it depends on something that is not recorded, is left out of the sums and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.config.settings import Settings
from proxy.lab.kept_calls import Kept
from proxy.lab.what_if.draft import Checked, check, find_written
from proxy.lab.what_if.replay import Ending, TooMuchError, play_kept
from proxy.retry.facts import Outcome

__all__ = ["shown", "tried"]


def shown(file: str | None, upstream: str) -> dict[str, Any] | None:
    """The part of an upstream's policy that may be changed in a draft (a policy that is tried out and not in force), as
    the configuration file at the path `file` has it; None if there is no file, or no such upstream in it.
    """
    written = None if file is None else find_written(file, upstream)
    if written is None:
        return None
    return {
        "upstream": upstream,
        "yaml": written.as_yaml(),
        "locked": written.locked,
        "from": str(written.mark),
    }


def tried(
    file: str | None, environ: Mapping[str, str], settings: Settings, upstream: str, text: str, calls: Sequence[Kept]
) -> dict[str, Any] | None:
    """The errors and warnings of a draft (`text`, YAML) and, without errors, the results that `calls`, those of this
    upstream that are kept, would have had; None if the file has no such upstream. `settings` are those in force;
    `environ`: the environment variables, for ${NAME}.
    """
    written = None if file is None else find_written(file, upstream)
    if file is None or written is None:
        return None
    checked = check(file, environ, written, text)
    made = checked.result.settings if checked.result is not None else None
    played = None
    if made is not None and calls:
        ordered = sorted(calls, key=lambda call: (call["time"], call["number"]))
        try:
            empty, before = _as_they_went(settings, ordered)
            played = {
                "buckets": "empty" if empty else "full",
                **_compared(ordered, before, play_kept(made, ordered, empty=empty)),
            }
        except TooMuchError:
            checked = Checked(["edit:1:1: playing the calls takes too many steps; try fewer of them"], checked.warnings)
    return {"upstream": upstream, "errors": checked.errors, "warnings": checked.warnings, "played": played}


def _as_they_went(settings: Settings, calls: Sequence[Kept]) -> tuple[bool, list[Ending | str]]:
    """Replay recorded calls under the configuration in force. Return whether buckets begin empty in the replays, and
    the replays. Buckets begin full, as usual, or empty, as in a long outage: with the level with which more calls end
    as they were recorded.
    """
    full = play_kept(settings, calls)
    if all(call["outcome"] != Outcome.BUCKET_EMPTY.value for call in calls):
        return False, full
    empty = play_kept(settings, calls, empty=True)

    def alike(played: Sequence[Ending | str]) -> int:
        pairs = zip(calls, played, strict=True)
        return sum(isinstance(one, Ending) and not _differs(kept, one) for kept, one in pairs)

    return (True, empty) if alike(empty) > alike(full) else (False, full)


def _compared(calls: Sequence[Kept], before: Sequence[Ending | str], after: Sequence[Ending | str]) -> dict[str, Any]:
    """Each recorded call with its ends under both policies (`before`, `after`), the newest first, and sums: how
    many calls were compared, end otherwise, have an unknown end or were left out, and the attempts and the seconds of
    waiting under both policies. A call is left out if its replay under `before` does not end as it was recorded, or if
    there is a text, the reason, in place of an end.
    """
    rows, sums = [], dict.fromkeys(("played", "otherwise", "unknown", "left_out"), 0)
    attempts, waited = [0, 0], [0.0, 0.0]
    for kept, was, would in zip(calls, before, after, strict=True):
        row: dict[str, Any] = {key: kept[key] for key in ("number", "time", "method", "path", "outcome", "attempts")}
        row["took"] = kept.get("duration", 0.0)
        rows.append(row)
        if isinstance(was, str) or isinstance(would, str):
            row["left_out"] = was if isinstance(was, str) else str(would)
        elif why := _differs(kept, was):
            row["left_out"] = why
        else:
            row |= {"before": was.as_data(), "after": would.as_data()}
            sums["played"] += 1
            sums["unknown"] += bool(would.unknown)
            sums["otherwise"] += not would.unknown and would.outcome != was.outcome
            for place, one in enumerate((was, would)):
                attempts[place] += one.attempts
                waited[place] += one.waited
            continue
        sums["left_out"] += 1
    return {
        **sums,
        "attempts_before": attempts[0],
        "attempts_after": attempts[1],
        "waited_before": round(waited[0], 3),
        "waited_after": round(waited[1], 3),
        "calls": rows[::-1],
    }


def _differs(kept: Kept, played: Ending) -> str:
    """The reason why a trial can't judge a recorded call: its replay under the configuration in force ends in another
    way than was recorded. "" if it ends in the same way.
    """
    recorded = tuple(attempt["class"] for attempt in kept["history"] if "class" in attempt)
    known = tuple(cls for cls in played.classes if cls is not None)
    if played.unknown or (played.outcome, played.attempts) != (kept["outcome"], kept["attempts"]):
        went = f"{kept['outcome']} after {kept['attempts']} attempt{'' if kept['attempts'] == 1 else 's'}"
        plays = played.unknown or f"{played.outcome} after {played.attempts}"
        return f"it ended with {went}; played under the configuration in force: {plays}"
    if recorded != known:
        return "an answer of it was judged by a header or a body that is not kept"
    return ""
