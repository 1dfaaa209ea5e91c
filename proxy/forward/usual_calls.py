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

    __slots__ = ("calls", "others", "own")

    def __init__(self) -> None:
        self.calls = 0
        self.own: list[float] = []
        self.others: list[float] = []

    def add(self, own: float | None, other: float | None, ended: float) -> None:
        """Add a success that ended at `ended`. `own`: when the next call of the same URL began on the same connection;
        `other`: when the next began on a new connection of the same host; None if none did. All are seconds of one
        clock.
        """
        self.calls += 1
        if own is not None:
            self.own.append(own - ended)
        if other is not None:
            self.others.append(other - ended)

    def sort(self) -> None:
        """Sort the times, once all have been added."""
        self.own.sort()
        self.others.sort()

    def followed(self, gap: float, *, own: bool) -> int:
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
        self._all = Pace()
        self._add_all(latest)
        for pace in (self._all, *self._paces.values()):
            pace.sort()

    def _add_all(self, latest: list[CallRecord]) -> None:
        """Add the calls in `latest`, which are in order from the latest to the oldest."""
        opened = {call.client: call for call in latest}  # the first call of each connection
        own: dict[tuple[_Key, str], float] = {}  # when the next call of a URL began on a connection
        others: dict[_Key, float] = {}  # and when on a new connection
        hosts: dict[str, str] = {}  # of each client's address
        newest = oldest = 0.0
        for call in latest:
            client, started = call.client, call.started
            host = hosts.get(client)
            if host is None:
                host = hosts[client] = _host(client)
            key = host, call.method, call.authority, call.path
            here = key, client
            if call.outcome is _SUCCESS:
                newest, oldest = newest or started, started
                pace = self._paces.get(key)
                if pace is None:
                    pace = self._paces[key] = Pace()
                for each in (self._all, pace):
                    each.add(own.get(here), others.get(key), call.ended)
            own[here] = started
            if opened[client] is call:
                others[key] = started
        self._seconds = newest - oldest

    def chance(self, call: CallRecord, gap: float, *, own: bool) -> float:
        """Return how likely it is that the URL of `call` is called again within `gap` seconds on the same connection
        (`own`) or on a new one of the same host, whatever the answer to the call before was.
        """
        pace = self._paces.get((_host(call.client), call.method, call.authority, call.path))
        everywhere = self._all.followed(gap, own=own) / self._all.calls if self._all.calls else 0.0
        if pace is None:
            return max(gap * UNSEEN_CALLS / (self._seconds + UNSEEN_SECONDS), everywhere)
        return (pace.followed(gap, own=own) + _WEIGHT * everywhere) / (pace.calls + _WEIGHT)


def _host(client: str) -> str:
    return client.rpartition(":")[0]
