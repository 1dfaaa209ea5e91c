"""Changes of the weather, which is redrive's word for the limits and outages in force: their beginning and their end,
with the evidence, for observers.

Contract, section 14, "Watching it". A governor calls `WeatherWatch.look` for each lane (the queue of a group of
callers) after everything that could change the lane. If a limit or an outage has begun or is over by then, this is
reported once. No decision depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from proxy.retry.weather.lane import Lane

_NEVER = float("inf")
#: The end of the scope value of a governor that holds no call, and only reports what it would (`mode: observe`). No
#: call's scope value has a space.
OBSERVED = " observed"
#: The latest attempts that are looked at when a limit begins (`proxy.retry.capacity.evidence`).
_LATEST = 10


@dataclass(frozen=True, slots=True)
class WeatherChanged:
    """The report that a limit or an outage has begun or is over. `event`: limit_began, limit_over, outage_began or
    outage_over.

    `endpoint`: the label of the endpoint, "" if the upstream has only one, or is meant as a whole. `group`: the group
    of callers: ALL_CALLERS, NO_CREDENTIAL, the hash of a credential, or a route (`proxy.retry.weather.caller`).
    `scope`: the scope value, to tell changes apart; it may be a secret's hash. `at`: the time at which the change was
    noticed. `since`: the time at which the limit or outage began (seconds on the driver's clock). `limit`: how many
    attempts may be under way (if the limit is over: the fewest that were allowed), infinity for none. `of`: how many of
    the latest attempts were looked at. `ended`: how these failed, with a count of each kind of failure. `why`: a word,
    which REASONS explains.
    """

    event: str
    upstream: str
    scope: str
    endpoint: str
    group: bytes
    at: float
    since: float
    limit: float
    ended: tuple[tuple[str, int], ...]
    of: int
    why: str

    @property
    def seconds(self) -> float:
        """The seconds for which the limit or outage has lasted."""
        return max(0.0, self.at - self.since)

    @property
    def observed(self) -> bool:
        """Whether the limit or outage would only have begun, and no call is held, since the policy's mode is
        observe.
        """
        return self.scope.endswith(OBSERVED)


#: The reasons of changes, in words for people.
REASONS = {
    "refused": "attempts ended for want of capacity, more of them than chance explains",
    "returned": "held calls returned after an outage",
    "elsewhere": "another sidecar of the fleet found it",
    "lost": "attempts ended without an answer, one after another",
    "unused": "no call was held any more, and the limit did not bind",
    "chance": "as many attempts failed at half the load, so load was not the reason",
    "in_vain": "a call was held for as long as it may be, in vain",
    "answered": "an attempt was answered",
    "unknown": "no attempt was made for a while, so it is not known whether it lasts",
}

#: Takes each change.
Report = Callable[[WeatherChanged], None]


class _Known:
    """The state of one lane as it was last reported. `limit_since`, `outage_since`: the times since which there is a
    limit and an outage, infinity for none. `least`: the lowest limit so far.
    """

    __slots__ = ("least", "limit_since", "outage_since")

    def __init__(self) -> None:
        self.limit_since = self.outage_since = _NEVER
        self.least = _NEVER


class WeatherWatch:
    """The watch over the lanes of one governor, which reports changes. `upstream` and `scope`: name the governor's
    scope. `report`: called with each change.
    """

    __slots__ = ("_known", "_observes", "_report", "_scope", "_upstream")

    def __init__(self, upstream: str, scope: str, report: Report) -> None:
        self._upstream = upstream
        self._scope = scope
        self._observes = scope.endswith(OBSERVED)  # no call is held, so none returns after an outage by a limit
        self._report = report
        self._known: dict[Lane, _Known] = {}

    @property
    def in_force(self) -> list[Lane]:
        """The lanes whose limit or outage was reported, and has not been reported to be over."""
        return [lane for lane, known in self._known.items() if min(known.limit_since, known.outage_since) < _NEVER]

    def look(self, lane: Lane, now: float) -> None:
        """Report that a limit or an outage of this lane has begun or is over, if that has not been reported yet."""
        known, limit, outage = self._known.get(lane), limit_of(lane), lane.outage
        is_out = outage.since < _NEVER
        if known is None:
            if limit == _NEVER and not is_out:
                return
            known = self._known[lane] = _Known()
        if is_out and known.outage_since == _NEVER:
            known.outage_since = outage.since
            lost = outage.endings
            self._tell(lane, "outage_began", "lost", known.outage_since, now, _NEVER, lost, len(lost))
        elif not is_out and known.outage_since < _NEVER:
            since, known.outage_since = known.outage_since, _NEVER
            answered = "answered" if outage.answered_at >= since else "unknown"
            self._tell(lane, "outage_over", "in_vain" if outage.in_vain else answered, since, now)
        known.least = min(known.least, limit)
        if limit < _NEVER and known.limit_since == _NEVER and not (self._observes and not lane.limit.has_evidence):
            known.limit_since, number = lane.limit.begun, lane.limit.evidence.ended
            latest = [how for ended, how in lane.limit.evidence.failures if ended > number - _LATEST]
            why = "refused" if lane.limit.has_evidence else "returned"
            if why == "returned" and lane.fleet.limit_share < _NEVER and lane.limit.begun != lane.begun:
                why = "elsewhere"
            of = min(_LATEST, number) if lane.limit.has_evidence else 0
            self._tell(lane, "limit_began", why, now, now, limit, latest if of else [], of)
        elif limit == _NEVER and known.limit_since < _NEVER:
            since, least = known.limit_since, known.least
            known.limit_since = known.least = _NEVER
            why = "chance" if lane.limit.was_chance else "in_vain" if outage.in_vain else "unused"
            self._tell(lane, "limit_over", why, since, now, least)

    def forget(self, lane: Lane) -> None:
        """Forget a lane that the governor has forgotten."""
        self._known.pop(lane, None)

    def _tell(  # noqa: PLR0913  a record of one change is built
        self,
        lane: Lane,
        event: str,
        why: str,
        since: float,
        now: float,
        limit: float = _NEVER,
        ended: list[str] | None = None,
        of: int = 0,
    ) -> None:
        endpoint, group = lane.name
        counted = tuple(Counter(ended or ()).most_common())
        self._report(
            WeatherChanged(event, self._upstream, self._scope, endpoint, group, now, since, limit, counted, of, why)
        )


def limit_of(lane: Lane) -> float:
    """The limit of this lane as it is shown. Infinity if there is none. Also infinity while calls return slowly after a
    cooldown, since the limit is then reported as part of the cooldown.
    """
    limit = lane.limit
    return _NEVER if limit.returns else limit.most
