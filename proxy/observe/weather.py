"""The weather of upstreams as the admin port shows it: where there is a limit or an outage, and which calls are held.

Contract, section 14, "Watching it". Without workers, the weather is read from the governors of this process, the
objects that find limits and outages. With workers, each worker sends its own weather with its counts, and the parent
adds them up. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from proxy.retry.weather.ahead import AheadLane
from proxy.retry.weather.cooldown import ALL_CALLERS, NO_CREDENTIAL
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.limit import ANY_PLACES
from proxy.retry.weather.route_names import ROUTE
from proxy.retry.weather.weather_changes import OBSERVED, REASONS, WeatherChanged, limit_of

NO_LIMIT = float("inf")
#: The causes by which a lane may hold calls, as in the label of redrive_held_calls, each with the gate's name in
#: records of calls.
HOLDS = {"outage": "outage", "cooling": "cooldown", "limit": "limit", "ahead": "ahead"}


class LaneWeather(NamedTuple):
    """The weather of one lane, which has the calls of one group of callers to one endpoint. `upstream`, `scope` (the
    scope value), `endpoint` ("" for the upstream as a whole) and `group` (the callers) name the lane.

    `held`: the number of calls that are held; `by`: the cause, a key of HOLDS, "" for none. `limit`: how many attempts
    may be under way, infinity for no limit; `pace`: how many attempts are sent a second, 0 if that is not limited;
    `under_way`: the attempts that count against the limit. `is_shared`: whether limit and attempts are those of all
    workers. `limited_since` and `out_since`: when the limit and the outage began (seconds of the monotonic clock),
    infinity for none. `left`: what is left of each of the upstream's own limits, by name, as the upstream's answers
    said (`pushback.ahead`).
    """

    upstream: str
    scope: str
    endpoint: str
    group: bytes
    by: str
    held: int
    limit: float
    pace: float
    under_way: int
    is_shared: bool
    limited_since: float
    out_since: float
    left: tuple[tuple[str, float], ...] = ()

    @property
    def is_out(self) -> bool:
        """Whether there is an outage."""
        return self.out_since < NO_LIMIT

    @property
    def has_limit(self) -> bool:
        """Whether there is a limit."""
        return self.limit < NO_LIMIT

    @property
    def observed(self) -> bool:
        """Whether the lane belongs to a policy whose mode is observe, so that it would hold calls, but holds none."""
        return self.scope.endswith(OBSERVED)

    def is_of(self, change: WeatherChanged) -> bool:
        """Whether `change` is a change of this lane's weather."""
        return self[:4] == (change.upstream, change.scope, change.endpoint, change.group)


def weather(governors: Iterable[tuple[str, str, Governor]], now: float) -> Iterator[LaneWeather]:
    """The lanes with a limit, an outage, held calls, or a known rest of the upstream's own limits. Under `mode:
    observe` no call is held; a limit or an outage is one that would hold calls. `governors`: each governor with its
    upstream and its scope value.
    """
    for upstream, scope, governor in governors:
        is_seen = governor.holds(now) or governor.ahead is not None or scope.endswith(OBSERVED)
        for lane in governor.all_lanes() if is_seen else ():
            seen = _seen(upstream, scope, lane, now)
            if seen.held or seen.is_out or seen.has_limit or seen.left:
                yield seen


def causes(governors: Iterable[tuple[str, str, Governor]], now: float) -> Iterator[tuple[str, str, Lane]]:
    """The lanes that hold calls, each with its upstream and the cause, a key of HOLDS. `governors`: each governor with
    its upstream and its scope value.
    """
    for upstream, scope, governor in governors:
        for lane in governor.all_lanes():
            if lane.queue and not scope.endswith(OBSERVED):
                yield upstream, _cause(lane, now), lane


def _cause(lane: Lane, now: float) -> str:
    """The cause for which a lane holds calls, or would hold them under `mode: observe`: a key of HOLDS, "" for none."""
    if lane.is_ahead:
        return lane.holds(now)
    if lane.outage.is_on and lane.outage.is_known(now):
        return "outage"
    if limit_of(lane) < NO_LIMIT and not lane.is_over(now) and now >= lane.until:
        return "limit"
    return "cooling" if lane.queue else ""


def _seen(upstream: str, scope: str, lane: Lane, now: float) -> LaneWeather:
    is_out = lane.outage.is_on and lane.outage.is_known(now)
    limit = NO_LIMIT if limit_of(lane) == NO_LIMIT or lane.is_over(now) else float(max(1, int(lane.limit.most)))
    return LaneWeather(
        upstream=upstream,
        scope=scope,
        endpoint=lane.name[0],
        group=lane.name[1],
        by="" if scope.endswith(OBSERVED) else _cause(lane, now),
        held=len(lane.queue),
        limit=limit,
        pace=lane.limit.pace.rate if limit < NO_LIMIT else 0.0,
        under_way=lane.places.in_use(),
        is_shared=lane.is_shared,
        limited_since=lane.limit.begun if limit < NO_LIMIT else NO_LIMIT,
        out_since=lane.outage.since if is_out else NO_LIMIT,
        left=lane.left(now) if isinstance(lane, AheadLane) else (),
    )


def added_up(every: Iterable[LaneWeather]) -> list[LaneWeather]:
    """The weather of several workers added up: the lanes of the same calls become one. Their limits are summed, unless
    the workers share one limit.
    """
    found: dict[tuple[str, str, str, bytes, bool], LaneWeather] = {}
    for lane in every:
        key = lane.upstream, lane.scope, lane.endpoint, lane.group, bool(lane.left) or lane.by == "ahead"
        other = found.get(key)
        found[key] = lane if other is None else _together(other, lane)
    return list(found.values())


def _together(one: LaneWeather, other: LaneWeather) -> LaneWeather:
    limits, shared = [lane for lane in (one, other) if lane.has_limit], one.is_shared or other.is_shared
    add: Callable[[list[float]], float] = max if shared else sum
    by = next((by for by in HOLDS if by in (one.by, other.by)), "")
    return one._replace(
        by=by,
        held=one.held + other.held,
        limit=add([lane.limit for lane in limits]) if limits else NO_LIMIT,
        pace=add([lane.pace for lane in limits]) if limits else 0.0,
        under_way=int(add([one.under_way, other.under_way])),
        is_shared=shared,
        limited_since=min(one.limited_since, other.limited_since),
        out_since=min(one.out_since, other.out_since),
        left=tuple(lowest((*one.left, *other.left)).items()),
    )


def lowest(left: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The least that is left of each of the upstream's own limits, by the limit's name, according to several reports.
    `left`: the reports, each the name of a limit and what is left of it.
    """
    found: dict[str, float] = {}
    for name, rest in left:
        found[name] = min(rest, found.get(name, rest))
    return found


# -- in words -------------------------------------------------------------------------------------------------------


def callers(group: bytes) -> str:
    """The callers that `group` stands for (`proxy.retry.weather.caller`), in words: all callers, those with a
    credential or without one, or those of a route.
    """
    if group == ALL_CALLERS:
        return "everybody"
    if group == NO_CREDENTIAL:
        return "callers without a credential"
    if group.startswith(ROUTE):
        route, _, what = group[len(ROUTE) :].decode("utf-8", "replace").rpartition(" ")
        before, _, method = route.rpartition(" ")
        if what.startswith("/") and method.isupper():  # a path: its method stands before it
            route, what = before, f"{method} {what}"
        return f"{what} of route {route}" if route else what
    return "callers with the same credential"


def counted(ended: Iterable[tuple[str, int]]) -> str:
    """How attempts ended, each failure with its count, in words: `2 x 503, 1 x attempt_timeout`."""
    return ", ".join(f"{count} x {how}" for how, count in ended)


def line(change: WeatherChanged) -> str:
    """A change of weather in words, for people: where it happened, what happened, and why."""
    where = change.upstream
    if change.endpoint:
        where += f": {change.endpoint}"
    if change.group != ALL_CALLERS:
        where += f" ({callers(change.group)})"
    return f"{where}: {what(change)}" + (" (mode: observe: no call is held)" if change.observed else "")


def what(change: WeatherChanged) -> str:
    """A change of weather and its evidence in words, without the place where it happened."""
    places = f"{change.limit:.0f} {'attempt' if change.limit < 2 else 'attempts'} at a time"
    least = f" ({places} at the least)"
    if change.limit >= ANY_PLACES:
        places, least = "attempts a second", ""
    lasted, why = f"{change.seconds:.1f} s", evidence(change)
    match change.event:
        case "limit_began":
            return f"a limit of {places} began: {why}"
        case "limit_over":
            return f"the limit is over after {lasted}{least}: {why}"
        case "outage_began":
            return f"an outage began: {why}, the first of them {lasted} ago"
    return f"the outage is over after {lasted}: {why}"


def evidence(change: WeatherChanged) -> str:
    """The reason for which a limit or an outage began or is over, in words."""
    match change.why if change.of else "":
        case "refused":
            refused = sum(count for _, count in change.ended)
            tried = f"{refused} of the last {change.of} attempts ended for want of capacity"
        case "lost":
            own = (
                " of the upstream's own" if any(how.isdigit() for how, _ in change.ended) else ""
            )  # a gateway's 502, say
            tried = f"the last {change.of} attempts ended without an answer{own}"
        case _:
            return REASONS[change.why]
    return f"{tried} ({counted(change.ended)})"


def facts(change: WeatherChanged) -> dict[str, object]:
    """A change of weather as data for machines."""
    return {
        "upstream": change.upstream,
        "endpoint": change.endpoint or None,
        "callers": callers(change.group),
        "why": change.why,
        "ended": dict(change.ended),
        "of": change.of,
        "limit": int(change.limit) if change.limit < ANY_PLACES else None,
        "seconds": round(change.seconds, 3),
        "observed": change.observed,
    }
