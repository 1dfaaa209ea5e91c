"""Changes to a lane (the queue of a group of callers) of this process, because of what the other machines of its fleet
report.
"""

from __future__ import annotations

from proxy.retry.weather.lane import Lane

_NEVER = float("inf")


def wanted(lane: Lane) -> int:
    """The number of the fleet's places that this process could use in the slow start after a cooldown: the places that
    it has, and one for each call that waits here.
    """
    return len(lane.places.taken) + len(lane.queue) + bool(lane.due.aside) if lane.limit.returns else 0


def allot(lane: Lane, places: float, share: float, threshold: float, elsewhere: bool, now: float) -> None:
    """Set the places of a slow start, in which calls return after a cooldown. `places`: how many there are in the whole
    fleet. `share`: how many of them this process may use. `threshold`: the number up to which the places double with
    each round trip. `elsewhere`: another machine holds calls.
    """
    lane.fleet.elsewhere, lane.fleet.share = elsewhere, share
    limit = lane.limit
    if elsewhere and not limit.is_on and not lane.outage.is_on:
        limit.return_slowly(now)
    if limit.is_on and limit.returns:
        limit.set(max(1.0, places), threshold)
    if now >= lane.until:
        lane.release(now)


def go_alone(lane: Lane, share: float, now: float) -> None:
    """Go on with the slow start in this process alone, because it has lost its connection to the fleet. `share`: this
    process's part of the fleet's places. All of them in every process would be too many, as often as there are
    processes.
    """
    limit = lane.limit
    places = min(limit.most, max(1.0, share))
    threshold = max(1.0, limit.threshold * places / limit.most)
    allot(lane, places, _NEVER, threshold, False, now)


def limit_elsewhere(
    lane: Lane, places: float, share: float, threshold: float, busy: bool, holds: bool, now: float
) -> None:
    """Take over the limit that the fleet shares, which began here or on another machine. `places`: how many places it
    has in the whole fleet. `share`: how many of them this process may use. `threshold`: the number up to which the
    places double with each round trip. `busy`: other machines need the limit too. `holds`: they hold calls under it.
    """
    limit = lane.limit
    if not limit.is_on:
        limit.begin_elsewhere(max(1.0, places), threshold, now)
        lane.lasts = True
        lane.count_before()
    limit.set(max(1.0, places), threshold)
    lane.fleet.limit_share, lane.fleet.limited_elsewhere = share, busy
    if holds:
        limit.held_at = now
    own = max(1.0, float(lane.places.own_in_use()))
    limit.part = min(1.0, max(1.0, share) / limit.most * max(own, float(lane.places.in_use())) / own)
    if now >= lane.until:
        lane.release(now)


def outage_elsewhere(lane: Lane, since: float, probed_at: float, may_probe: bool, now: float) -> None:
    """Note an outage of the whole fleet. `since`: the time at which it began. `probed_at`: the time at which its last
    probe ended. `may_probe`: this process sends the probes.
    """
    lane.fleet.may_probe = may_probe
    lane.outage.goes_on(since, probed_at, now)
    lane.release(now)


def go_alone_in_weather(lane: Lane, now: float) -> None:
    """Go on without the other machines, because the process has lost its connection to the fleet: under this process's
    share of the limit, and with probes of its own.
    """
    limit, share = lane.limit, lane.fleet.limit_share
    if limit.is_on and not limit.returns and share < _NEVER:
        limit.set(max(1.0, min(limit.most, share)), max(1.0, min(limit.threshold, share)))
    limit.part = 1.0
    lane.fleet.limit_over()
    lane.fleet.may_probe = True
    if now >= lane.until:
        lane.release(now)
