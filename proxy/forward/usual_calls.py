"""The pace at which URLs are called again after an answer that was no failure, from the last calls.

An app's retry of a call that failed comes sooner than any app would have called that URL anyway. The calls after
successes, which are never retries, say how soon that would be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import TypeAlias

from proxy.observe.call_record import CallRecord
from proxy.retry.facts import Outcome

_Key: TypeAlias = tuple[str, str, str, str]

#: The rate of a URL that was not called before, as calls and seconds that are added to those that were seen.
UNSEEN_CALLS, UNSEEN_SECONDS = 0.5, 15.0
#: The weight of all URLs' calls beside those of one URL, in calls: a URL may have been called a few times only.
_WEIGHT = 3.0
#: Module-level names, which are faster to read: see `proxy.retry.facts`.
_SUCCESS = Outcome.SUCCESS
_STARTED = attrgetter("started")


class Pace:
    """The successes (`calls` is their number) after which a URL might have been called again, and the sorted times
    after which it was (seconds): on the same connection (`own`), or on a new one of the same host (`others`).
    """

    __slots__ = ("_next", "_next_opened", "calls", "others", "own")

    def __init__(self) -> None:
        self.calls = 0
        self.own: list[float] = []
        self.others: list[float] = []
        self._next: dict[str, float] = {}  # when the next call began, by connection
        self._next_opened: float | None = None  # when the next call that opened a connection began

    def add(self, call: CallRecord, *, opens: bool) -> None:
        """Add a call, which came before those that were added so far. `opens`: it is the first of its connection."""
        client = call.client
        if call.course.outcome is _SUCCESS:
            self.calls += 1
            own = self._next.get(client)
            if own is not None:
                self.own.append(own - call.ended)
            if self._next_opened is not None:
                self.others.append(self._next_opened - call.ended)
        self._next[client] = call.started
        if opens:
            self._next_opened = call.started

    def sort(self) -> None:
        """Sort the times, once all calls have been added."""
        self._next.clear()
        self.own.sort()
        self.others.sort()

    def followed(self, gap: float, own: bool) -> int:
        """Return how many of the successes were followed within `gap` seconds by a call of the same URL, on the same
        connection (`own`) or on a new one.
        """
        return bisect_right(self.own if own else self.others, gap)


class UsualCalls:
    """How soon URLs are called again after a success, from `calls`, the last calls of a process: a `Pace` for each
    client and URL.
    """

    __slots__ = ("_all", "_paces", "_seconds")

    def __init__(self, calls: Iterable[CallRecord]) -> None:
        latest = sorted(calls, key=_STARTED, reverse=True)
        self._seconds = 0.0
        self._paces: dict[_Key, Pace] = {}
        self._add_all(latest)
        self._all = Pace()
        for pace in self._paces.values():
            pace.sort()
            self._all.calls += pace.calls
            self._all.own += pace.own
            self._all.others += pace.others
        self._all.sort()

    def _add_all(self, latest: list[CallRecord]) -> None:
        """Add the calls in `latest`, which are in order from the latest to the oldest."""
        opened: dict[str, CallRecord] = {}  # the first call of each connection
        for call in latest:
            opened[call.client] = call
        hosts = {client: _host(client) for client in opened}
        newest = oldest = 0.0
        for call in latest:
            client = call.client
            key = hosts[client], call.method, call.authority, call.path
            pace = self._paces.get(key)
            if pace is None:
                pace = self._paces[key] = Pace()
            if call.course.outcome is _SUCCESS:
                newest, oldest = newest or call.started, call.started
            pace.add(call, opens=opened[client] is call)
        self._seconds = newest - oldest

    def chance(self, call: CallRecord, gap: float, own: bool) -> float:
        """Return how likely it is that the URL of `call` is called again within `gap` seconds on the same connection
        (`own`) or on a new one of the same host, whatever the answer to the call before was.
        """
        pace = self._paces.get((_host(call.client), call.method, call.authority, call.path))
        everywhere = self._all.followed(gap, own=own) / self._all.calls if self._all.calls else 0.0
        if pace is None or not pace.calls:
            return max(gap * UNSEEN_CALLS / (self._seconds + UNSEEN_SECONDS), everywhere)
        return (pace.followed(gap, own=own) + _WEIGHT * everywhere) / (pace.calls + _WEIGHT)


def _host(client: str) -> str:
    return client.rpartition(":")[0]
