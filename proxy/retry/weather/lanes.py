"""The lanes of one scope by their names, and which of them hold calls. A lane is the queue of a group of callers.

Each endpoint has a lane for all calls to it. Further lanes are made when they are needed, for the calls that share a
credential, a route or a path (`proxy.retry.weather.caller.Name`). If there are too many lanes, one is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import Fields
from proxy.retry.weather.caller import Caller, Name, is_credentials, is_paths
from proxy.retry.weather.cooldown import ALL_CALLERS, MOST_GROUPS, SAME, Ends, FleetCooldowns, credential_of
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lost_rows import LostRows
from proxy.retry.weather.usual_times import KNOWN, UsualTimes
from proxy.retry.weather.weather_changes import WeatherWatch

_NEVER = float("inf")
#: The number of lanes that are considered when one has to make room for another.
_CANDIDATES = 8


class Lanes:
    """The lanes of one scope. `first`: the lane of all calls, to any endpoint, which is never forgotten. `traffic`:
    that lane's count of attempts. `by_name`: all lanes. `traffics`: the counts of attempts by endpoint.

    `quiet_from`: the time (seconds, the callers' clock) from which no lane holds a call, infinity if that is not known.
    `holding`: the lanes that hold calls, here or on another machine. `fleet`: the link by which cooldowns are shared
    with other machines, None for none. `watch`: the object that reports when limits and outages begin and are over,
    None if nothing observes them. `usual`: the usual times of answers. `lost`: the latest attempts in a row that ended
    without an answer.
    """

    __slots__ = (
        "_credentials", "_ends", "_latest", "_limited", "_paths", "by_name", "first", "fleet", "holding",
        "lost", "quiet_from", "traffic", "traffics", "usual", "watch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.quiet_from = -_NEVER
        self.fleet: FleetCooldowns | None = None
        self.watch: WeatherWatch | None = None
        self.usual = UsualTimes()
        self.lost = LostRows()
        self.traffic = Traffic()
        self.traffics = {"": self.traffic}
        self.first = self._make(("", ALL_CALLERS))
        self.by_name: dict[Name, Lane] = {("", ALL_CALLERS): self.first}
        self.holding: set[Lane] = set()
        self._credentials = 0  # how many lanes are about callers that share a credential,
        self._paths = 0  # or a path
        self._ends: Ends[Name] = Ends()  # the ends of the delays of all lanes but the first
        self._latest = -_NEVER  # the last end of a delay so far
        self._limited: set[Lane] = set()  # those of one credential that have a limit

    # -- by name ------------------------------------------------------------------------------------------------------

    def of_endpoint(self, endpoint: str) -> Lane:
        """The lane of all callers of this endpoint."""
        return self.first if not endpoint else self.of((endpoint, ALL_CALLERS))

    def traffic_of(self, endpoint: str) -> Traffic:
        """The object that counts the attempts under way to this endpoint, and their ends; it is made if there is none
        yet.
        """
        if not endpoint:
            return self.traffic
        traffic = self.traffics.get(endpoint)
        if traffic is None:
            traffic = self.traffics[endpoint] = Traffic()
        return traffic

    def attempts_of(self, lane: Lane) -> tuple[int, int]:
        """The number of attempts that have ended, and the number of those under way, to this lane's endpoint; to all
        endpoints if it is a lane for all of them.
        """
        counted = [lane.traffic] if lane.traffic is not self.traffic else self.traffics.values()
        return sum([each.all_ended() for each in counted]), sum([each.flying for each in counted])

    def of(self, name: Name) -> Lane:
        """The lane with this name. It is made if there is none; if there are then too many lanes, another is
        forgotten.
        """
        lane = self.find(name)
        return self._keep(name, self._make(name)) if lane is None else lane

    def find(self, name: Name) -> Lane | None:
        """The lane with this name; None if there is none."""
        return self.by_name.get(name)

    def of_caller(self, caller: Caller) -> list[tuple[Name, Lane]]:
        """The lanes that this call belongs to, with their names."""
        lanes = self.by_name
        if len(lanes) == 1:
            return [(("", ALL_CALLERS), self.first)]
        return [(name, lanes[name]) for name in self._names_of(caller) if name in lanes]

    def refresh(self, caller: Caller, now: float) -> None:
        """Do nothing. Where processes share lanes, an override reads what other processes have published about this
        caller's lanes.
        """

    def with_fields(self, fields: Fields) -> list[Lane]:
        """The lanes, at every endpoint, of all callers and of those with the credential that these fields carry."""
        groups = (credential_of(fields), ALL_CALLERS)
        found = [self.find((endpoint, group)) for endpoint in self.traffics for group in groups]
        return [lane for lane in found if lane is not None]

    def others_out(self, base: Lane) -> list[Lane]:
        """The lanes that have an outage, of all endpoints except that of the lane `base`."""
        found = [lane for (_, group), lane in self.by_name.items() if group == ALL_CALLERS and lane is not base]
        return [lane for lane in found if lane.outage.is_on]

    def all(self) -> list[Lane]:
        """All lanes, as they are known here, to be shown."""
        return list(self.by_name.values())

    def _names_of(self, caller: Caller) -> list[Name]:
        """The names of all lanes that this call may belong to, including lanes that are not kept now. The call's
        credential is hashed only if any lane is for a credential.
        """
        names = caller.names
        groups = [names.lost, ALL_CALLERS]
        if self.tells_paths_apart() and names.has_path:
            groups.insert(0, names.lost_path())
        if self.tells_credentials_apart():
            groups.insert(0, caller.credential())
        places = ("",) if not caller.endpoint else (caller.endpoint, "")
        return [(place, group) for group in groups for place in places]

    def tells_credentials_apart(self) -> bool:
        """Whether any lane is about callers that share a credential."""
        return self._credentials > 0

    def limits_credentials(self) -> bool:
        """Whether any lane of callers that share a credential has a limit, under which each attempt of these callers
        counts.
        """
        return len(self._limited) > 0

    def tells_paths_apart(self) -> bool:
        """Whether any lane is about callers of one path."""
        return self._paths > 0

    # -- made and forgotten -------------------------------------------------------------------------------------------

    def join(self, fleet: FleetCooldowns) -> None:
        """Share the cooldowns with other machines from now on, by the link `fleet`."""
        self.fleet = fleet
        for name, lane in self.by_name.items():
            fleet.adopt(name, lane)

    def part(self, now: float) -> None:
        """Go on without other machines from now on, if cooldowns were shared with any."""
        fleet, self.fleet = self.fleet, None
        if fleet is not None:
            fleet.part(now)

    def started_elsewhere(self, name: Name, status: int, delay: float, now: float) -> bool:
        """Note that an answer with this status asked callers on another machine to wait for `delay` seconds. `name`:
        the name of the lane. Returns whether this is longer than the delay that this process knew.
        """
        lane = self.of(name)
        if now + delay <= lane.until + SAME:
            return False
        lane.started_elsewhere(delay, status, now)
        self.look((lane,), now)
        if self.fleet is not None:
            self.fleet.asked(name, now)
        return True

    def _make(self, name: Name) -> Lane:
        return Lane(self.traffic_of(name[0]))

    def _keep(self, name: Name, lane: Lane) -> Lane:
        """Remember a new lane under its name, and forget others if there are too many."""
        while len(self.by_name) > MOST_GROUPS:
            self._forget(self._first_over())
        lane.name = name
        self.by_name[name] = lane
        self._credentials += is_credentials(name)
        self._paths += is_paths(name)
        self._ends.add(name, lane.until)
        if self.fleet is not None:
            self.fleet.adopt(name, lane)
        return lane

    def _first_over(self) -> Name:
        """Choose the lane that makes room for a new one, and remove it from `_ends`. It is the lane whose delay is over
        soonest; if that one holds calls, the first of the next few that holds none is preferred. Returns its name.
        """
        passed: list[tuple[float, Name]] = []
        while len(passed) < _CANDIDATES:
            first = self._ends.pop(self._until_of)
            if first is None:
                break
            passed.append(first)
            if self.by_name[first[1]] not in self.holding:
                break
        chosen = -1 if self.by_name[passed[-1][1]] not in self.holding else 0
        _, name = passed.pop(chosen)
        for until, other in passed:
            self._ends.add(other, until)
        return name

    def _until_of(self, name: Name) -> float | None:
        lane = self.by_name.get(name)
        return None if lane is None else lane.until

    def _forget(self, name: Name) -> None:
        """Forget a lane. The calls that it holds leave it and ask again."""
        lane = self.by_name.pop(name)
        self._credentials -= is_credentials(name)
        self._paths -= is_paths(name)
        if self.watch is not None:
            self.watch.forget(lane)
        if self.fleet is not None:
            self.fleet.forget(name)
        self.lost.rows.pop(name, None)
        self._limited.discard(lane)
        held = lane.queue.take_all()
        lane.fleet.elsewhere = False
        self.holding.discard(lane)
        for waiter in held:
            waiter.retime(lane.until)

    # -- what holds calls ---------------------------------------------------------------------------------------------

    def look(self, changed: Sequence[Lane], now: float) -> None:
        """Update `quiet_from`, the time from which no lane holds calls, because these lanes have changed. Also report
        to the watch which of their limits and outages have begun or are over.
        """
        holding, watch = self.holding, self.watch
        held = bool(holding)
        for lane in changed:
            if lane.is_ahead:
                continue  # all calls ask it, whatever it holds
            if watch is not None:
                watch.look(lane, now)
            self._latest = max(self._latest, lane.until)
            self._note_limit(lane)
            limited = lane.limit.most < _NEVER and lane.outlasts
            if limited or lane.queue.calls or lane.fleet.elsewhere or lane.outage.since < _NEVER:
                holding.add(lane)
            elif held:
                holding.discard(lane)
        self.quiet_from = _NEVER if holding else self._latest
        if held != bool(holding):
            self.set_watched()

    def _note_limit(self, lane: Lane) -> None:
        """Note whether the lane has a limit, if it is a lane of callers that share a credential."""
        if lane.limit.most == _NEVER:
            self._limited.discard(lane)
        elif is_credentials(lane.name):
            self._limited.add(lane)

    def set_watched(self) -> None:
        """Set `is_watched` of each endpoint's traffic: whether drivers have to report every attempt that is answered
        well to the governor. They have to while calls are held, while the latest attempt of a route or path, or to the
        endpoint, ended without an answer, and until enough usual times are known.
        """
        lost = self.lost
        watched = bool(lost.lone is not None or lost.rows or self.holding or self.usual.count < KNOWN)
        self.traffic.is_watched = watched or lost.is_suspected("")
        if len(self.traffics) > 1:
            for endpoint, traffic in self.traffics.items():
                traffic.is_watched = watched or lost.is_suspected(endpoint)

    def settle(self, now: float) -> bool:
        """End the limits and outages that nothing keeps in force any more, and report their end; otherwise that would
        be noticed only when a call comes. Returns whether any are left in force.
        """
        if self.watch is None:
            return False
        for lane in self.watch.in_force:
            lane.holds(now)
            lane.release(now)
            self.look((lane,), now)
        return bool(self.watch.in_force)

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for any lane (seconds); 0 if no delay is left."""
        return max(0.0, *(lane.until - now for lane in self.by_name.values()), 0.0)

    def left_of(self, group: bytes, endpoints: Sequence[str], now: float) -> float:
        """The seconds that are left of the longest delay of this group of callers, at the upstream as a whole or at one
        of these endpoints; 0 if no delay is left.
        """
        lanes = [self.find((endpoint, group)) for endpoint in ("", *endpoints)]
        return max([0.0] + [lane.until - now for lane in lanes if lane is not None])


def may_hold(lane: Lane, now: float) -> bool:
    """Whether anything in this lane may hold calls: a delay, a limit, an outage, or calls that wait."""
    if now < lane.until or lane.fleet.elsewhere or lane.queue.calls:
        return True
    return lane.limit.most < _NEVER or lane.outage.since < _NEVER


def longest(lanes: Sequence[Lane], now: float) -> tuple[float, int]:
    """The seconds that are left of the longest delay in these lanes, and the status of the answer that began it; (0,
    503) if none of them holds calls.
    """
    held = [(lane.until - now, lane.status) for lane in lanes if not lane.is_over(now)]
    left, status = max(held, default=(0.0, 503))
    return max(0.0, left), status
