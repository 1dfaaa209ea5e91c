"""Limits, outages and held calls as the admin port shows them: rows of JSON, and the samples of gauges.

Contract, section 14, "Watching it". Labels are bounded: endpoints that requests name are no labels, and of all the
scopes and callers of an endpoint the lowest limit is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proxy.observe.weather import NO_LIMIT, LaneWeather, callers, evidence, facts, lowest, what
from proxy.observe.weather_log import Noted, WeatherLog
from proxy.retry.call.gates import GATES, SLOW_START
from proxy.retry.policies.routing import Router, Upstream
from proxy.retry.weather.limit import ANY_PLACES
from proxy.transport.clock import monotonic, wall

#: The causes for which calls are held, as redrive_held_calls labels them. The first four are the governor's.
CAUSES = ("cooling", "ahead", "limit", "outage", "concurrency", "rate")
#: The words for what a limit of an upstream counts (`LimitField.counts`).
_UNITS = {"attempts": "requests", "tokens": "tokens", "prompt": "input tokens", "output": "output tokens"}
#: The units of an upstream that names none of its limits.
NO_UNITS: Mapping[str, str] = MappingProxyType({})
Samples = list[tuple[tuple[str, str], float]]


def by_upstream(lanes: Iterable[LaneWeather]) -> dict[str, list[LaneWeather]]:
    """The lanes of each upstream, by its label."""
    found: dict[str, list[LaneWeather]] = {}
    for lane in lanes:
        found.setdefault(lane.upstream, []).append(lane)
    return found


def held(lanes: Iterable[LaneWeather], *, waiting: int, every: int) -> dict[str, int]:
    """The number of an upstream's held calls, by cause (CAUSES). `lanes`: the upstream's lanes, each with the cause by
    which it holds its calls. `waiting`: the number of calls that wait for a place under the policy's `max` of attempts
    under way. `every`: the number of all held calls of the upstream; those that neither a lane nor `waiting` counts are
    held by a rate bucket or by the adaptive limiter.
    """
    found: Counter[str] = Counter()
    for lane in lanes:
        found[lane.by] += lane.held
    found["concurrency"] = waiting
    found["rate"] = max(0, every - sum(found.values()))
    return {cause: found[cause] for cause in CAUSES}


def limits(found: Mapping[str, Sequence[LaneWeather]], router: Router) -> Samples:
    """The samples of a gauge, by upstream and endpoint: the lowest limit, infinity where there is none, or where only
    the pace is limited. `found`: the lanes of each upstream, by its label.
    """
    return [
        ((upstream.label, label), min((lane.limit for lane in lanes if lane.limit < ANY_PLACES), default=NO_LIMIT))
        for upstream, label, lanes in _endpoints(found, router)
    ]


def outages(found: Mapping[str, Sequence[LaneWeather]], router: Router) -> Samples:
    """The samples of a gauge, by upstream and endpoint: 1 where there is an outage, of the endpoint or one of its
    routes. `found`: the lanes of each upstream, by its label.
    """
    return [
        ((upstream.label, label), float(any(lane.is_out for lane in lanes)))
        for upstream, label, lanes in _endpoints(found, router)
    ]


def remaining(found: Mapping[str, Sequence[LaneWeather]]) -> Samples:
    """The samples of a gauge, by upstream and the name of one of its own limits: the least that is left of that limit.
    `found`: the lanes of each upstream, by its label.
    """
    return [
        ((label, name), left)
        for label, lanes in found.items()
        for name, left in lowest(pair for lane in lanes for pair in lane.left).items()
    ]


def _endpoints(
    found: Mapping[str, Sequence[LaneWeather]], router: Router
) -> Iterable[tuple[Upstream, str, list[LaneWeather]]]:
    """Iterate over the endpoints of all upstreams: yield the upstream, the endpoint's label, and the lanes of its
    calls. The label is "" for all endpoints of an upstream whose requests name them. `found`: the lanes of each
    upstream, by its label.
    """
    unmatched = [router.fallback] if router.fallback.label in found else []
    for upstream in (*router.upstreams, *unmatched):
        lanes = found.get(upstream.label, ())
        if len(upstream.policy.endpoints) > 1:
            for share in upstream.policy.endpoints:
                yield upstream, share.label, [lane for lane in lanes if lane.endpoint in ("", share.label)]
        else:
            named = upstream.target.endpoints
            yield upstream, named[0].label if len(named) == 1 else "", list(lanes)


def rows(
    log: WeatherLog, lanes: Iterable[LaneWeather], now: float, units: Mapping[str, str] = NO_UNITS
) -> list[dict[str, Any]]:
    """The limits and outages of an upstream that hold calls, and the lanes in which its calls are held, for JSON.
    `log`: where the evidence for each limit and outage is looked up; `units`: what the upstream's own limits count
    (`units_of`).
    """
    return [_row(log, lane, now, units) for lane in lanes if not lane.observed]


def units_of(upstream: Upstream) -> dict[str, str]:
    """The unit that each of an upstream's own limits counts, in words, by the limit's name; the dialect packs of the
    upstream's policies say it. A limit that is not here is reported in the IETF's fields, and counts requests.
    """
    dialects = (dialect for policy in upstream.policies for dialect in policy.classify.dialects)
    return {limit.name: _UNITS[limit.counts] for dialect in dialects for limit in dialect.limits}


def _row(log: WeatherLog, lane: LaneWeather, now: float, units: Mapping[str, str]) -> dict[str, Any]:
    to_wall = wall() - monotonic()
    outage = log.began(lane, "outage_began") if lane.is_out else None
    limit = log.began(lane, "limit_began") if lane.has_limit else None
    return {
        "endpoint": lane.endpoint or None,
        "callers": callers(lane.group),
        "held_by": lane.by or None,
        "held_calls": lane.held,
        "left": dict(lane.left) or None,
        "left_says": ", ".join(_left(rest, units.get(name, _UNITS["attempts"]), name) for name, rest in lane.left)
        or None,
        "outage": None
        if not lane.is_out
        else {
            "since": round(lane.out_since + to_wall, 3),
            "seconds": round(now - lane.out_since, 3),
            "why": evidence(outage) if outage is not None else None,
        },
        "limit": None
        if not lane.has_limit
        else {
            "attempts": int(lane.limit) if lane.limit < ANY_PLACES else None,
            "under_way": lane.under_way,
            "per_second": round(lane.pace, 3) or None,
            "since": round(lane.limited_since + to_wall, 3),
            "seconds": round(now - lane.limited_since, 3),
            "why": evidence(limit) if limit is not None else None,
        },
    }


def holding(row: Mapping[str, Any]) -> list[str]:
    """The reasons for which calls of an upstream are held now, in sentences for people; `row` is the upstream's row of
    /upstreams.
    """
    said = [_sentence(lane) for lane in row["weather"] if lane["outage"] or lane["limit"]]
    said += [_waits(lane) for lane in row["weather"] if lane["held_by"] == "ahead"]
    if row["cooldown_seconds"]:
        began = row.get("cooldown")  # none, if the answer that began it is forgotten
        by = f": {began['field']} of a {began['status']} from {began['endpoint']}" if began else ""
        said.append(f"calls are asked to wait for another {row['cooldown_seconds']:.1f} s (a cooldown{by})")
    elif row["held_by"].get("cooling"):
        said.append(f"calls are held by {SLOW_START}: {row['held_by']['cooling']} are now")
    said += [f"the circuit breaker of {each['endpoint']} is open" for each in row["circuits"] if each["open"]]
    if row["waiting_for_a_place"]:
        said.append(f"calls wait for a place among the attempts under way: {row['waiting_for_a_place']} do now")
    if row["held_by"]["rate"]:
        rates = ", ".join(row["rates"]) or "the adaptive limiter"
        said.append(f"calls wait for tokens of their rate ({rates}): {row['held_by']['rate']} do now")
    return said or ["nothing holds calls now"]


def _waits(lane: Mapping[str, Any]) -> str:
    """A sentence about the calls of a lane that wait because answers reported that too little is left of the upstream's
    rate limits. `lane`: a row of `rows`.
    """
    left = lane.get("left_says")  # none, if an earlier version of redrive made the row
    calls = "1 call is" if lane["held_calls"] == 1 else f"{lane['held_calls']} calls are"
    return f"{calls} held by {GATES['ahead']}" + (f": {left}" if left else "")


def _left(rest: float, unit: str, name: str) -> str:
    """The rest of one limit in words: `6,000 tokens`, or `0 requests (ratelimit)` where the limit's name says something
    else than its unit.
    """
    amount = f"{int(rest):,} {unit}".rstrip()
    return amount if unit == name.replace("-", " ") else f"{amount} ({name})"


def _sentence(lane: Mapping[str, Any]) -> str:
    """The outage or the limit of a lane in a sentence. `lane`: a row of `rows`."""
    outage, limit, who = lane["outage"], lane["limit"], lane["callers"]
    where = " ".join(filter(None, [lane["endpoint"], "" if who == "everybody" else f"({who})"]))
    if outage:
        said = f"an outage for {outage['seconds']:.1f} s: one probe at a time is sent, and other calls are held"
    else:
        most = [f"{limit['attempts']} at a time"] if limit["attempts"] is not None else []
        most += [f"{limit['per_second']:.3g} a second"] if limit.get("per_second") else []
        said = f"a limit of {' and '.join(most)} for {limit['seconds']:.1f} s, with {limit['under_way']} under way"
    why = (outage or limit)["why"]
    held = f"; {lane['held_calls']} held now" if lane["held_calls"] else ""
    return (f"{where}: " if where else "") + said + held + (f" ({why})" if why else "")


def changes(log: WeatherLog, upstream: str) -> list[dict[str, Any]]:
    """The last limits and outages of an upstream that began or were over, as `log` keeps them, as data for JSON, the
    oldest first.
    """
    return [_change(noted) for noted in log.last(upstream)]


def _change(noted: Noted) -> dict[str, Any]:
    change = noted.change
    return {
        "event": change.event,
        "at": round(change.at + wall() - monotonic(), 3),
        **{name: value for name, value in facts(change).items() if name != "upstream"},
        "says": what(change),
        "worker": noted.worker or None,
    }
