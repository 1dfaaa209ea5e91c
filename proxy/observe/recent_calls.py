"""The last calls, for /requests and /events.

Law: rings of plain tuples, bounded, nothing of a call kept alive (no body, no connection). Entries are turned into
what is shown, masked, when somebody asks. Calls that simply succeeded have a ring of their own, so that a thousand of
them a second don't push out the one failure that somebody comes to look for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Any, TypeAlias

from proxy.observe import masking
from proxy.observe.call_record import Stamps, attempt
from proxy.observe.events import EndedCall, Plain, Refusal, nothing_gathered
from proxy.retry.facts import Outcome

#: A call that is kept: its number, and what is known of it.
Entry: TypeAlias = tuple[Any, ...]

#: Calls kept of each sort: those that succeeded at once, and the others.
KEPT = 500
#: Longest path kept; a longer one ends in an ellipsis.
_PATH = 2048


class RecentCalls:
    """Two rings of calls. An entry's number is its place among all that ever passed, from 1."""

    def __init__(self, kept: int = KEPT) -> None:
        self._plain: deque[tuple[Any, ...]] = deque(maxlen=kept)
        self._notable: deque[tuple[Any, ...]] = deque(maxlen=kept)
        self._seen = 0
        self.catch_up: Callable[[], None] = nothing_gathered  # keeps what is gathered (`proxy.observe.observers`)

    @property
    def seen(self) -> int:
        """How many calls ever passed."""
        self.catch_up()
        return self._seen

    def succeeded(self, calls: Sequence[Plain]) -> None:
        """Keep calls that succeeded at once."""
        for number, call in enumerate(calls, self._seen + 1):
            wall, seconds, policy, method, authority, path, client, status, _, _, endpoint = call
            self._plain.append(
                (
                    *(number, wall, seconds, policy, method, authority, _cut(path), client, status),
                    *(Outcome.SUCCESS, 1, endpoint, None),
                )
            )
        self._seen += len(calls)

    def call_ended(self, call: EndedCall) -> None:
        """Keep a call."""
        number = self._seen = self._seen + 1
        request = call.request
        history = call.history
        plain = call.attempts == 1 and call.outcome is Outcome.SUCCESS and len(history) < 2  # held, perhaps
        (self._plain if plain else self._notable).append(
            (
                number,
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
                None if plain and not history else (call.started, tuple(history), call.detail, call.app_retry),
            )
        )

    def refused(self, refusal: Refusal) -> None:
        """Keep a refusal."""
        self._seen += 1
        self._notable.append((self._seen, refusal))

    def since(self, number: int, limit: int = KEPT) -> list[dict[str, Any]]:
        """The entries after this number, oldest first, at most the last `limit`, as they are shown."""
        return list(self.show(self.choose(number, limit)))

    def choose(self, number: int, limit: int = KEPT) -> list[Entry]:
        """Choose the entries after this number, oldest first, at most the last `limit`."""
        self.catch_up()
        entries = [*_after(self._plain, number), *_after(self._notable, number)]
        return _last(sorted(entries, key=_NUMBER), limit)

    def choose_notable(self, number: int, limit: int = KEPT) -> list[Entry]:
        """Choose as `choose` does among calls that were retried, refused, or did not succeed."""
        self.catch_up()
        return _last(_after(self._notable, number), limit)

    def choose_news(self, number: int, most: int) -> list[Entry]:
        """Choose at most so many after this number, oldest first: notable ones before those that simply succeeded."""
        self.catch_up()
        notable = _last(_after(self._notable, number), most)
        plain = _last(_after(self._plain, number), most - len(notable))
        return sorted([*plain, *notable], key=_NUMBER)

    def show(self, entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
        """Make what is shown of entries, one by one: a thousand take longer than the loop may be held."""
        stamps = Stamps()
        return ({"number": entry[0], **_shown(entry[1:], stamps)} for entry in entries)


_NUMBER = itemgetter(0)


def is_plain(shown: dict[str, Any]) -> bool:
    """Whether a call, as it is shown, succeeded with its first sending."""
    return shown["outcome"] == Outcome.SUCCESS and len(shown["history"]) == 1


def _after(ring: deque[Entry], number: int) -> list[Entry]:
    """The entries of a ring after this number, oldest first. Newest are looked at first: few are new."""
    found = list(takewhile(lambda entry: entry[0] > number, reversed(ring)))
    found.reverse()
    return found


def _last(entries: list[Entry], limit: int) -> list[Entry]:
    return entries[max(len(entries) - limit, 0) :]


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
        "host": masking.authority(authority),
        "path": masking.target(path),
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
        "strategy": "",
        "method": refusal.method,
        "host": masking.authority(refusal.authority),
        "path": masking.target(_cut(refusal.path)),
        "client": refusal.client,
        "status": refusal.status,
        "outcome": refusal.outcome.value,
        "attempts": 0,
        "duration": 0.0,
        "endpoint": "",
        "detail": refusal.detail,
        "history": [],
    }


def _cut(path: str) -> str:
    return path if len(path) <= _PATH else path[:_PATH] + "…"
