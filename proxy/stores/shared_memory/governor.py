"""The governor of one scope whose lanes the workers of one machine share.

Usual times, and how long apps wait before they leave, are each worker's own. Attempts without an answer, the evidence
for outages, are counted for all workers (`lost_rows`), and so is the evidence for limits (`lane`, `traffic`).
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.route_names import RouteNames
from proxy.stores.shared_memory.lanes import SharedLanes


class SharedGovernor(Governor):
    """The governor of one scope in shared memory, as one worker uses it, with these `lanes`. `peek`: reads the time
    until which any worker may hold calls.
    """

    __slots__ = ("_peek", "_shared_lanes")

    def __init__(self, lanes: SharedLanes, peek: Callable[[], float]) -> None:
        self._shared_lanes = lanes
        super().__init__(lanes)
        self._peek = peek

    def holds(self, now: float) -> bool:
        """Whether any call may be held now in any worker. This reads one number, and takes no lock: each lane notes in
        its scope until when it may hold calls.
        """
        return now < self._peek() and not self.holds_none

    def answered_well(self, attempt: object, caller: Caller, sent: float, now: float) -> None:
        self._shared_lanes.read_rows()
        if self.holds(now):  # what is known here may be old: an answer is of use to all workers
            self._landed(attempt, caller, sent, now, well=True)
            base = self.lanes.of_endpoint(caller.endpoint)
            self.losses.answered(caller.names, base, sent, now, own=True, holds=True)
        else:
            super().answered_well(attempt, caller, sent, now)
        self._shared_lanes.tell_route(caller.names, now)
        self._tell(caller.endpoint, now)

    def answered_freely(self, names: RouteNames, endpoint: str, sent: float, now: float) -> bool:
        self._shared_lanes.read_rows()
        is_noted = super().answered_freely(names, endpoint, sent, now)
        if is_noted:
            self._shared_lanes.tell_route(names, now)
            self._tell(endpoint, now)
        return is_noted

    def failed_freely(self, attempt: object, names: RouteNames, ending: AttemptEnding, sent: float, now: float) -> bool:
        self._shared_lanes.read_rows()
        self._shared_lanes.refresh_route(names, now)
        is_noted = super().failed_freely(attempt, names, ending, sent, now)
        if is_noted:
            self._tell("", now)  # an error is an answer, too: it ends a row of failures in other workers
        return is_noted

    def failed(
        self,
        attempt: object,
        caller: Caller,
        ending: AttemptEnding,
        sent: float,
        now: float,
        again: bool,
        cools: bool,
    ) -> None:
        self._shared_lanes.read_rows()
        super().failed(attempt, caller, ending, sent, now, again=again, cools=cools)
        if ending.lost != "endpoint":
            self._tell(caller.endpoint, now)

    def _tell(self, endpoint: str, now: float) -> None:
        """Note in shared memory, for the other workers, that attempts to this endpoint are answered, at most once a
        second.
        """
        self._shared_lanes.tell_answered(endpoint, now)
