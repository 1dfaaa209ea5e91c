"""The state of an upstream, in a word, from its figures of the last minute and from what holds its calls now. The
dashboard and `redrive top` show the state that the board sends them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admin.upstream_view import Live

#: Seconds by which a credential's cooldown may be shorter than the upstream's and still count as the same one: workers
#: extend theirs until the calls that they hold have gone.
_SAME = 0.5


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """A state as a user reads it: `text` names it, `why` says what it means. `rank` is how much trouble it is, 0 for
    none; upstreams with the greatest rank come first.
    """

    rank: int
    text: str
    why: str


#: Every state, by its name on the board. docs/guides/dashboard.md explains them.
STATES = {
    "failing": UpstreamState(5, "failing", "At least half of the calls of the last minute failed."),
    "outage": UpstreamState(
        4,
        "outage",
        "Attempts to an endpoint end without an answer: one probe at a time is sent, and other calls are held.",
    ),
    "drained": UpstreamState(
        4, "bucket empty", "The bucket has little or nothing left for retries: hardly any failure is retried."
    ),
    "open": UpstreamState(
        3,
        "circuit open",
        "An endpoint has failed so often lately that its circuit breaker is open: only probes go there.",
    ),
    "cooling": UpstreamState(3, "cooling down", "The upstream asked its callers to wait; calls are held."),
    "limited": UpstreamState(
        3,
        "limited",
        "The upstream has less capacity than is asked of it: attempts are limited, and the other calls wait.",
    ),
    "aside": UpstreamState(
        2,
        "key refused",
        "The upstream refuses one of its keys, or it is out of quota: it is put aside, and the other keys are used.",
    ),
    "errors": UpstreamState(2, "errors", "Some calls of the last minute failed."),
    "refused": UpstreamState(
        2,
        "turned away",
        "Requests were turned away in the last minute: malformed, misdirected, or for no upstream.",
    ),
    "key_cooling": UpstreamState(
        2, "key cooling", "The upstream asked callers with one of its keys to wait; the other keys are used."
    ),
    "retrying": UpstreamState(1, "retrying", "More than one attempt in ten of the last minute was a retry."),
    "taking_over": UpstreamState(
        1, "taking over", "Calls arrive that other upstreams could not serve: it is their fallback."
    ),
    "ok": UpstreamState(0, "healthy", "Calls of the last minute succeeded."),
    "quiet": UpstreamState(0, "quiet", "No calls in the last minute."),
}


def states_of(row: Live, recent: Mapping[str, int], *, drained: bool, keys: int) -> list[str]:
    """The names of all states that apply to an upstream, keys of STATES; the first one names it. `row` has its
    counters, and what holds its calls; `recent`, its figures of the last minute, by the names of the counters;
    `drained` says whether its retry bucket is drained; `keys` is the number of its credentials.
    """
    calls, failed = recent["calls"], recent["failed"]
    if not row.name:  # the row of requests that no policy applied to
        return ["refused" if calls else "quiet"]
    first = recent["attempts"] - recent["retries"]
    used = calls or recent["attempts"] or row.held or row.queued or row.under_way  # without calls there is no trouble
    rules = (
        ("outage", any(each["outage"] for each in row.weather)),
        ("cooling", row.cooldown > 0 and not only_keys_cool(row, keys)),
        ("failing", calls and failed * 2 >= calls),
        ("drained", drained and calls),  # nothing is refused while nothing is called
        ("open", row.open and used),
        ("limited", used and any(each["limit"] for each in row.weather)),
        ("aside", row.aside),
        ("key_cooling", row.cooldown > 0),
        ("errors", failed),
        ("retrying", recent["retries"] > first * 0.1),
        ("taking_over", recent["arrived"]),
        ("ok", calls),
    )
    return [state for state, applies in rules if applies] or ["quiet"]


def beside(states: Sequence[str]) -> list[str]:
    """The states that are shown beside the first of `states`: those of the others that are serious (a rank above 2)."""
    return [state for state in states[1:] if STATES[state].rank > 2]


def only_keys_cool(row: Live, keys: int) -> bool:
    """Whether the cooldown in force holds the callers of some, and not all, of the upstream's `keys` credentials, so
    that calls with the others go on.
    """
    if not row.cooling or len(row.cooling) >= keys:
        return False
    return max(left for _, left in row.cooling) > row.cooldown - _SAME


def is_drained(bucket: Mapping[str, Any]) -> bool:
    """Whether a retry bucket grants hardly any more retries. The argument is a row of /buckets; a row that is not a
    retry bucket is never drained. A throttle grants no retry at half its capacity or below (gRPC A6).
    """
    level, capacity = bucket["level"], bucket["capacity"]
    match bucket["kind"]:
        case "throttle":
            return bool(level <= capacity / 2)
        case "budget":
            return bool(level < 1)
        case "quota":
            return bool(level < capacity * 0.1)
    return False
