"""The lanes that the workers of one machine share, of one scope, found by their names.

A lane that one worker makes is found by another when a call of that worker asks for it. A worker that has found no lane
of some name does not look that name up again until another lane has been made in the scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.retry.capacity.traffic import Traffic
from proxy.retry.queues.fair_order import FairOrder
from proxy.retry.weather.caller import Caller, Name
from proxy.retry.weather.cooldown import ALL_CALLERS, MOST_GROUPS
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lanes import Lanes
from proxy.retry.weather.route_names import RouteNames
from proxy.stores.shared_memory.evidence import Share
from proxy.stores.shared_memory.lane import SharedLane
from proxy.stores.shared_memory.lost_rows import SharedLostRows
from proxy.stores.shared_memory.records import Record, digest
from proxy.stores.shared_memory.scope import SharedScope

#: `attach(name, make)` returns the record of a lane, and whether it is new; None if the lane has none, and `make` is
#: False.
Attach = Callable[[Name, bool], tuple[Record, bool] | None]

#: A lane's key is a whole number that a double holds exactly.
_KEYS = 2**48


class SharedLanes(Lanes):
    """The lanes of one scope in shared memory, as one worker knows them. `order`: makes the order of the calls that a
    lane holds. `rows`: the latest attempts of all workers that ended without an answer. `share`: shares an endpoint's
    count of attempts, under the number of its lane's record. `row`: this worker's row of the memory.

    The number of lanes that this worker knows is bounded as in a single process. A lane that is dropped here stays in
    shared memory while there is room: its next call finds it again.
    """

    __slots__ = ("_absent", "_attach", "_made", "_order", "_row", "_rows", "_scope", "_share", "_shared")

    def __init__(
        self,
        scope: SharedScope,
        attach: Attach,
        order: Callable[[Name], FairOrder],
        rows: SharedLostRows,
        share: Share,
        row: int,
    ) -> None:
        self._row = row
        self._scope = scope
        self._attach = attach
        self._order = order
        self._share = share
        self._absent: set[Name] = set()  # names without a lane, when as many lanes as `_made` had been made
        self._made = scope.made
        self._shared: dict[Name, SharedLane] = {}  # the lanes of `by_name`
        super().__init__()
        self.lost = self._rows = rows

    def read_rows(self) -> None:
        """Learn which attempts of other workers have ended without an answer, or have ended such a row."""
        if self._rows.refresh():
            self.set_watched()

    def seconds_left(self, now: float) -> float:
        return max(0.0, self._scope.latest - now)

    def all(self) -> list[Lane]:
        for lane in self._shared.values():
            lane.look()
        return super().all()

    def left_of(self, group: bytes, endpoints: Sequence[str], now: float) -> float:
        for endpoint in ("", *endpoints):
            if self.find((endpoint, group)) is not None:
                self._shared[endpoint, group].look()
        return super().left_of(group, endpoints, now)

    def refresh(self, caller: Caller, now: float) -> None:
        for name, lane in self.of_caller(caller):
            self._shared[name].refresh(now)
            self._note_limit(lane)

    def refresh_route(self, names: RouteNames, now: float) -> None:
        """Bring the lane of all calls, and those of the route and path with these `names`, up to date with what other
        workers have published.
        """
        self._shared["", ALL_CALLERS].refresh(now)
        if self._scope.made:
            for group in {names.lost, names.lost_path()}:
                if self.find(("", group)) is not None:
                    self._shared["", group].refresh(now)

    def tell_route(self, names: RouteNames, now: float) -> None:
        """Note for the other workers, now and then, that attempts of the route with these `names` are answered."""
        self._rows.note_answered(names, now)

    def tell_answered(self, endpoint: str, now: float) -> None:
        """Note for the other workers that attempts to this endpoint are answered, at most once a second."""
        self.of_endpoint(endpoint)  # which makes its lane
        self._shared[endpoint, ALL_CALLERS].tell_answered(now)

    def tells_credentials_apart(self) -> bool:
        return self._scope.made > 0

    def tells_paths_apart(self) -> bool:
        return self._scope.made > 0

    def of_caller(self, caller: Caller) -> list[tuple[Name, Lane]]:
        if self._scope.made:
            for name in self._names_of(caller):
                self.find(name)
        return super().of_caller(caller)

    def find(self, name: Name) -> Lane | None:
        lane = self.by_name.get(name)
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
        return self._keep(name, self._lane(name, found[0]))

    def traffic_of(self, endpoint: str) -> Traffic:
        is_new = endpoint not in self.traffics
        traffic = super().traffic_of(endpoint)
        if is_new:
            self.of_endpoint(endpoint)  # its lane has the number under which attempts are counted
        return traffic

    def _make(self, name: Name) -> Lane:
        found = self._attach(name, True)
        assert found is not None  # it is made if there is none
        record, is_new = found
        if is_new and name != ("", ALL_CALLERS):
            self._scope.count_made()
        return self._lane(name, record)

    def _forget(self, name: Name) -> None:
        super()._forget(name)
        del self._shared[name]

    def _lane(self, name: Name, record: Record) -> Lane:
        key = float(digest(name) % _KEYS or 1)
        traffic = self.traffic_of(name[0])
        share = self._share if name[1] == ALL_CALLERS else None
        lane = self._shared[name] = SharedLane(traffic, record, self._scope, key, share, self._row)
        lane.queue.order = self._order(name)
        return lane
