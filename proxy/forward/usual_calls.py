"""How soon URLs are called again after an answer that was no failure, found from the last calls of a process.

An app's retry of a call that failed comes sooner than any app would have called that URL anyway. The calls after
successes, which are never retries, say how soon that would be.
"""

from __future__ import annotations

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
    """How soon one URL is called again after a success. `calls`: the number of successes after which the URL might have
    been called again; `own`, `others`: the sorted times (seconds) after which it was, on the same connection (`own`) or
    on a new one of the same host (`others`).
    """

    __slots__ = ("_ends", "calls", "others", "own")

    def __init__(self) -> None:
        self.calls = 0
        self.own: list[float] = []
        self.others: list[float] = []
        self._ends: list[float] = []  # of the successes after which no connection was opened yet

    def add(self, call: CallRecord, succeeded: bool, opens: bool) -> None:
        """Add a call of the URL; calls are added in order of time. `succeeded`: whether the call succeeded; `opens`:
        whether it is the first call of its connection.
        """
        if opens:
            self.others += [call.started - end for end in self._ends]
            self._ends.clear()
        if succeeded:
            self.calls += 1
            self._ends.append(call.ended)

    def sort(self) -> None:
        """Sort the times, once all calls have been added."""
        self._ends.clear()
        self.own.sort()
        self.others.sort()

    def followed(self, gap: float, own: bool) -> int:
        """Return how many of the successes were followed within `gap` seconds by a call of the same URL, on the same
        connection (`own`) or on a new one.
        """
        times = self.own if own else self.others
        low, high = 0, len(times)
        while low < high:  # bisect_right, which spends more on being called by compiled code
            middle = (low + high) // 2
            at = times[middle]
            if gap < at:
                high = middle
            else:
                low = middle + 1
        return low


class AppCalls:
    """The latest calls of one connection of an app. `call`: the latest call; `succeeded`: whether it succeeded; `pace`:
    the `Pace` of its URL. `before`: for each other URL, found by its `Pace`, the latest call of that URL, if that call
    succeeded.
    """

    __slots__ = ("before", "call", "host", "pace", "succeeded")

    call: CallRecord
    pace: Pace

    def __init__(self, host: str) -> None:
        self.host = host
        self.succeeded = False
        self.before: dict[Pace, CallRecord] = {}

    def has_same_url(self, call: CallRecord) -> bool:
        """Whether a call has the same URL as the latest call."""
        last = self.call
        return call.path == last.path and call.method == last.method and call.authority == last.authority

    def turn_to(self, pace: Pace) -> None:
        """Go on to calls of another URL, which has the `Pace` given."""
        if self.succeeded:
            self.before[self.pace] = self.call
        last = self.before.pop(pace, None)
        self.pace, self.succeeded = pace, last is not None
        if last is not None:
            self.call = last


class UsualCalls:
    """How soon URLs are called again after a success, from `calls`, the last calls of a process: a `Pace` for each
    client and URL.
    """

    __slots__ = ("_all", "_paces", "_seconds")

    def __init__(self, calls: Iterable[CallRecord]) -> None:
        self._seconds = 0.0
        self._paces: dict[_Key, Pace] = {}
        self._add_all(sorted(calls, key=_STARTED))
        self._all = Pace()
        for pace in self._paces.values():
            pace.sort()
            self._all.calls += pace.calls
            self._all.own += pace.own
            self._all.others += pace.others
        self._all.sort()

    def _add_all(self, calls: list[CallRecord]) -> None:
        """Add the calls, which are in order from the oldest to the latest."""
        connections: dict[str, AppCalls] = {}
        newest = oldest = 0.0
        for call in calls:
            connection = connections.get(call.client)
            opens = connection is None
            if connection is None:
                connection = connections[call.client] = AppCalls(host_of(call.client))
                connection.pace = self._pace(connection.host, call)
            elif not connection.has_same_url(call):
                connection.turn_to(self._pace(connection.host, call))
            pace = connection.pace
            if connection.succeeded:
                pace.own.append(call.started - connection.call.ended)
            succeeded = call.course.outcome is _SUCCESS
            if succeeded:
                newest, oldest = call.started, oldest or call.started
            pace.add(call, succeeded, opens)
            connection.call, connection.succeeded = call, succeeded
        self._seconds = newest - oldest

    def _pace(self, host: str, call: CallRecord) -> Pace:
        """Return the `Pace` of the URL that `call` called from the client address `host`; a new one if that URL was not
        called before.
        """
        key = host, call.method, call.authority, call.path
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace()
        return pace

    def chance(self, call: CallRecord, gap: float, own: bool) -> float:
        """Return how likely it is that the URL of `call` is called again within `gap` seconds on the same connection
        (`own`) or on a new one of the same host, whatever the answer to the call before was.
        """
        pace, calls = self._paces.get((host_of(call.client), call.method, call.authority, call.path)), self._all.calls
        everywhere = self._all.followed(gap, own) / calls if calls else 0.0
        if pace is None or not pace.calls:
            return max(gap * UNSEEN_CALLS / (self._seconds + UNSEEN_SECONDS), everywhere)
        return (pace.followed(gap, own) + _WEIGHT * everywhere) / (pace.calls + _WEIGHT)


def host_of(client: str) -> str:
    """The address of a client without its port."""
    return client[: max(client.rfind(":"), 0)]
