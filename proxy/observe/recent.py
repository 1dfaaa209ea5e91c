"""The last calls, for /requests and /events.

Law: a ring of plain tuples, bounded, nothing of a call kept alive (no body, no connection). Entries are turned into
what is shown, masked, when somebody asks.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from proxy.observe import mask
from proxy.observe.events import EndedCall, Refusal
from proxy.observe.shown import Stamps, attempt
from proxy.retry.facts import Outcome

#: Calls kept.
KEPT = 500
#: Longest path kept; a longer one ends in an ellipsis.
_PATH = 2048


class Recent:
    """A ring of calls. `seen` counts all that ever passed; an entry's number is its place in that count, from 1."""

    def __init__(self, kept: int = KEPT) -> None:
        self._ring: deque[tuple[Any, ...]] = deque(maxlen=kept)
        self.seen = 0

    def call_ended(self, call: EndedCall) -> None:
        """Keep a call."""
        self.seen += 1
        request = call.request
        plain = call.attempts == 1 and call.outcome is Outcome.SUCCESS and not call.resent
        self._ring.append(
            (
                call.wall_started,
                call.ended - call.started,
                call.policy,
                request.method,
                request.authority,
                _cut(request.path),
                call.client,
                call.status,
                call.outcome,
                call.attempts,
                call.endpoint,
                None if plain else (call.started, tuple(call.history), call.detail, call.app_retry),
            )
        )

    def refused(self, refusal: Refusal) -> None:
        """Keep a refusal."""
        self.seen += 1
        self._ring.append((refusal,))

    def since(self, number: int, limit: int = KEPT) -> list[dict[str, Any]]:
        """The entries after this number, oldest first, at most the last `limit`."""
        count = min(max(self.seen - number, 0), len(self._ring), limit)
        first = self.seen - count + 1
        stamps = Stamps()
        entries = islice(self._ring, len(self._ring) - count, None)
        return [{"number": first + index, **_shown(entry, stamps)} for index, entry in enumerate(entries)]


def _shown(entry: tuple[Any, ...], stamps: Stamps) -> dict[str, Any]:
    if len(entry) == 1:
        return _refusal(entry[0], stamps)
    wall, seconds, policy, method, authority, path, client, status, outcome, attempts, endpoint, more = entry
    shown = {
        "time": stamps.at(wall),
        "upstream": policy.upstream,
        "route": policy.route,
        "strategy": policy.strategy.name,
        "method": method,
        "host": mask.authority(authority),
        "path": mask.target(path),
        "client": client,
        "status": status,
        "outcome": outcome.value,
        "attempts": attempts,
        "duration": round(seconds, 6),
        "endpoint": endpoint,
    }
    if more is None:
        only = {"attempt": 1, "start": 0.0, "duration": round(seconds, 6), "status": status}
        shown["history"] = [{**only, "class": "success", "decision": "delivered"}]
        return shown
    started, history, detail, app_retry = more
    shown["history"] = [attempt(record, started) for record in history]
    if detail:
        shown["detail"] = detail
    if app_retry:
        shown["app_retry"] = True
    return shown


def _refusal(refusal: Refusal, stamps: Stamps) -> dict[str, Any]:
    return {
        "time": stamps.at(refusal.wall),
        "upstream": "",
        "route": "",
        "method": refusal.method,
        "host": mask.authority(refusal.authority),
        "path": mask.target(_cut(refusal.path)),
        "client": refusal.client,
        "status": refusal.status,
        "outcome": refusal.outcome.value,
        "attempts": 0,
        "detail": refusal.detail,
        "history": [],
    }


def _cut(path: str) -> str:
    return path if len(path) <= _PATH else path[:_PATH] + "…"
