"""The governor of one scope whose lanes the workers of one machine share.

A lane that one worker makes is found by the others when a call of theirs asks for it: a worker looks its name up once
for each lane that was made in the scope since the worker last did so. Usual times, how long apps wait before they
leave, and the evidence for limits and outages are each worker's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.retry.caller import Caller, Name
from proxy.retry.cooldown import ALL_CALLERS, MOST_GROUPS
from proxy.retry.fair_order import FairOrder
from proxy.retry.governor import Governor
from proxy.retry.lane import Lane
from proxy.retry.route_names import RouteNames
from proxy.stores.shared_memory.lane import SharedLane
from proxy.stores.shared_memory.records import Record, digest
from proxy.stores.shared_memory.scope import SharedScope

#: `attach(name, make)` returns the record of a lane, and whether it is new; None if the lane has none, and `make` is
#: False.
Attach = Callable[[Name, bool], tuple[Record, bool] | None]

#: A lane's key is a whole number that a double holds exactly.
_KEYS = 2**48


class SharedGovernor(Governor):
    """The governor of one scope in shared memory, as one worker uses it. `order`: makes the order of the calls that a
    lane holds.

    The number of lanes that this worker knows is bounded as in a single process. A lane that is dropped here stays in
    shared memory while there is room: its next call finds it again.
    """

    __slots__ = ("_absent", "_attach", "_made", "_order", "_peek", "_scope")

    def __init__(self, scope: SharedScope, attach: Attach, order: Callable[[Name], FairOrder]) -> None:
        self._scope = scope
        self._peek = scope.record.peek
        self._attach = attach
        self._order = order
        self._absent: set[Name] = set()  # names without a lane, when as many lanes as `_made` had been made
        self._made = scope.made
        super().__init__()

    @property
    def quiet_from(self) -> float:
        """The time from which no call is held in any worker: one number, read without a lock."""
        return self._peek()

    @quiet_from.setter
    def quiet_from(self, value: float) -> None:
        """Do nothing: each lane notes in its scope until when it may hold calls."""

    def holds(self, now: float) -> bool:
        return now < self._peek() and not self.holds_none

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for any call, in any worker; 0 if no delay is left."""
        return max(0.0, self._scope.latest - now)

    def lanes(self) -> list[Lane]:
        found = super().lanes()
        for lane in found:
            if isinstance(lane, SharedLane):
                lane.look()
        return found

    def left_of(self, group: bytes, endpoints: Sequence[str], now: float) -> float:
        for endpoint in ("", *endpoints):
            lane = self._find((endpoint, group))
            if isinstance(lane, SharedLane):
                lane.look()
        return super().left_of(group, endpoints, now)

    def answered_well(self, attempt: object, caller: Caller, sent: float, now: float) -> None:
        if self.holds(now):  # what is known here may be old: an answer is of use to all workers
            self._landed(attempt, caller, sent, now, well=True)
            self._answered(caller.names, self.lane(caller.endpoint), now, own=True)
        else:
            super().answered_well(attempt, caller, sent, now)

    def answered_freely(self, names: RouteNames, endpoint: str, sent: float, now: float) -> None:
        super().answered_freely(names, endpoint, sent, now)
        self._tell(endpoint, now)

    def _answered(self, names: RouteNames, base: Lane, now: float, own: bool) -> None:
        super()._answered(names, base, now, own)
        self._tell(base.name[0], now)  # an error is an answer, too: it ends a row of failures in other workers

    def _tell(self, endpoint: str, now: float) -> None:
        """Note in shared memory, for the other workers, that attempts to this endpoint are answered, at most once a
        second.
        """
        lane = self.lane(endpoint)
        if isinstance(lane, SharedLane):
            lane.tell_answered(now)

    def _refresh(self, caller: Caller, now: float) -> None:
        for _, lane in self._lanes_of(caller):
            if isinstance(lane, SharedLane):
                lane.refresh(now)

    def _tells_credentials_apart(self) -> bool:
        return self._scope.made > 0

    def _tells_paths_apart(self) -> bool:
        return self._scope.made > 0

    def _lanes_of(self, caller: Caller) -> list[tuple[Name, Lane]]:
        if self._scope.made:
            for name in self._names_of(caller):
                self._find(name)
        return super()._lanes_of(caller)

    def _find(self, name: Name) -> Lane | None:
        lane = self._lanes.get(name)
        if lane is not None:
            return lane
        made, absent = self._scope.made, self._absent
        if made != self._made or len(absent) > MOST_GROUPS:
            self._made = made
            absent.clear()
        if name in absent:
            return None
        found = self._attach(name, False)
        if found is None:
            absent.add(name)
            return None
        return self._keep(name, self._shared(name, found[0]))

    def _make(self, name: Name) -> Lane:
        found = self._attach(name, True)
        assert found is not None  # it is made if there is none
        record, is_new = found
        if is_new and name != ("", ALL_CALLERS):
            self._scope.count_made()
        return self._shared(name, record)

    def _shared(self, name: Name, record: Record) -> Lane:
        key = float(digest(name) % _KEYS or 1)
        lane = SharedLane(self.traffic_of(name[0]), record, self._scope, key)
        lane.queue.order = self._order(name)
        return lane
