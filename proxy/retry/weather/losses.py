"""How attempts of one scope that end without an answer begin outages, and how answers end them.

Contract, section 14, "An outage". A connection that is not made counts for its endpoint. Any other end without an
answer of the upstream's own counts for the attempt's route and method, or for its path alone
(`proxy.retry.weather.lost_rows`).

Mostly such an attempt is the only one: the next attempt on its path is answered. So the first such attempt, while
nothing else is suspected, is only noted (`LoneLoss`). Once another attempt fails too, it is counted for its lane (the
queue of a group of callers) and its path. If an attempt on its path is answered, it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lanes import Lanes, may_hold
from proxy.retry.weather.lost_rows import LostRow
from proxy.retry.weather.outage import ANSWERED_WITHIN, is_row
from proxy.retry.weather.route_names import RouteNames

_NEVER = float("inf")


class Losses:
    """The attempts of one scope that ended without an answer, and the outages that they begin in the scope's lanes."""

    __slots__ = ("_lanes", "_lost", "_usual")

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._lost = lanes.lost
        self._usual = lanes.usual

    # -- what is known ------------------------------------------------------------------------------------------------

    def is_lost(self, names: RouteNames, base: Lane) -> bool:
        """Whether an endpoint, or a route or path at it, has an outage, or had one that ended because the calls that it
        held were refused, and has not answered since. Failures then say nothing about the upstream's capacity. `names`:
        the names of the route and path. `base`: the lane of the endpoint.
        """
        lanes, endpoint = self._lanes, base.name[0]
        if _is_out(base) or _is_out(lanes.find((endpoint, names.lost))):
            return True
        return lanes.tells_paths_apart() and _is_out(lanes.find((endpoint, names.lost_path())))

    def _all_answer(self, base: Lane) -> bool:
        """Whether the latest attempt of each route and path was answered, and so was the latest of the endpoint, which
        has no outage either. `base`: the lane of the endpoint.
        """
        lost = self._lost
        return not (lost.lone is not None or lost.rows or lost.is_suspected(base.name[0]) or _is_out(base))

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered_well(self, names: RouteNames, base: Lane, sent: float, now: float, holds: bool) -> None:
        """Note that an attempt was answered, and not with a failure. This does what `answered` does with `own`, but is
        faster for nearly all answers: if the latest attempts were all answered, and there is no outage, nothing has to
        be noted. The arguments are those of `answered`.
        """
        lost, outage, lanes = self._lost, base.outage, self._lanes
        lone = lost.lone
        is_alone = lone is not None and lone[0] is names and base is lanes.first and not holds
        if is_alone and not (lost.endpoints or outage.since < _NEVER or outage.in_vain):
            base.traffic.answered_at = outage.answered_at = lost.answered_at = now
            lost.lone = None
            lanes.set_watched()
        elif holds or not self._all_answer(base):  # the row of failures that began a path's outage may be forgotten
            self.answered(names, base, sent, now, own=True, holds=holds)

    def answered(self, names: RouteNames, base: Lane, sent: float, now: float, own: bool, holds: bool) -> None:
        """Note that an attempt was answered, which ends an outage of its endpoint, unless the attempt was sent before
        the outage began: its answer comes by a connection that was made before. `names`: the names of the attempt's
        route. `base`: the lane of the endpoint. `sent`: the time at which the attempt was sent. `own`: the endpoint
        itself answered, so that an outage of the attempt's route ends too; False for an answer that says that the
        service is not reached (a gateway's 503, say). `holds`: calls may be held now.
        """
        lanes, outage, lost = self._lanes, base.outage, self._lost
        if sent < outage.since < _NEVER:
            return
        base.traffic.answered_at = now
        was_suspected = lost.endpoint_answered(base.name[0])
        if not (was_suspected or holds or _is_out(base)):
            outage.answered_at = now
        elif base.answered(now):
            lanes.look((base,), now)
            for other in lanes.others_out(base):  # what took all of them down is probably over
                other.time_probe(now, base)
        if was_suspected:
            lanes.set_watched()
        if own and (lost.lone is not None or lost.rows or holds):
            self._own_answered(names, base, now)

    def _own_answered(self, names: RouteNames, base: Lane, now: float) -> None:
        """Note that the endpoint itself answered an attempt, which ends the outages of the attempt's route and path.
        `names`: their names. `base`: the endpoint's lane.
        """
        lanes, lost, endpoint = self._lanes, self._lost, base.name[0]
        lone = lost.lone
        if lone is not None:
            if lone[0] is names and base is lanes.first:
                lost.lone = None
                lost.answered_at = now
                lanes.set_watched()
                return
            self._count_lone()
        was_suspected = len(lost.rows) > 0 and lost.answered(endpoint, names, now)
        lane = lanes.find((endpoint, names.lost))
        if lane is not None and (was_suspected or _is_out(lane)) and lane.answered(now, base.limit.slowness(now)):
            lanes.look((lane,), now)
        if lanes.tells_paths_apart() and names.has_path:
            lane = lanes.find((endpoint, names.lost_path()))
            if lane is not None and _is_out(lane) and lane.answered(now, base.limit.slowness(now)):
                lanes.look((lane,), now)
        lanes.set_watched()

    # -- attempts without an answer -----------------------------------------------------------------------------------

    def lost_alone(self, names: RouteNames, ending: AttemptEnding, base: Lane, now: float, several: bool) -> bool:
        """Note an attempt that a gateway answered in place of its route, as a lone loss, which counts only once another
        attempt fails. `ending`: how it failed. `base`: the lane of the only endpoint. `several`: there are lanes beside
        that one. Returns False, and notes nothing, if the attempt has to count at once, because something else is
        suspected already, or a fleet shares the lanes.
        """
        lanes, traffic, outage, lost = self._lanes, base.traffic, base.outage, self._lost
        if lost.lone is not None or lost.rows or lost.endpoints or outage.since < _NEVER or outage.in_vain:
            return False
        if lanes.fleet is not None or (several and self.is_lost(names, base)):
            return False  # a fleet is asked for the weather of a lane as soon as the lane is made
        if not lost.is_shared:
            lost.lone = names, ending.how, traffic.all_ended(), now
        elif not self._count_at_once(names, ending.how, now):
            return False
        traffic.answered_at = outage.answered_at = now  # by the gateway
        if len(lanes.traffics) == 1:
            traffic.is_watched = True
        else:
            lanes.set_watched()
        return True

    def _count_at_once(self, names: RouteNames, how: str, now: float) -> bool:
        """Count a lone loss for its route and its path, since the next one may be another process's. `names`: their
        names. `how`: how the attempt ended. Returns False, and counts nothing, if the route's lane has to know of it.
        """
        lane = self._lanes.find(("", names.lost))
        if lane is not None and lane.outage.begins_again:
            return False
        self._lost.lost_route("", names, how, False, now)
        if names.has_path:
            self._lost.lost_path("", names, how, self._usual.last(names.timed), now)
        return True

    def _count_lone(self) -> None:
        """Count the lone loss (see `LoneLoss`) for its lane and its path, since another attempt has failed."""
        lone = self._lost.lone
        assert lone is not None
        self._lost.lone = None
        names, how, number, at = lone
        self._route_lost(names, how, number, at, self._lanes.first)

    def lost(self, caller: Caller, ending: AttemptEnding, now: float, base: Lane, again: bool) -> None:
        """Note that an attempt ended without an answer of its upstream's own. `ending`: how it ended. `base`: the
        endpoint's lane. `again`: neither this attempt nor an earlier one of its call could connect.
        """
        if self._lost.lone is not None:
            self._count_lone()
        lanes, number, endpoint = self._lanes, base.traffic.all_ended(), base.name[0]
        if ending.lost == "route":
            if ending.refused and not ending.quick:
                lane = lanes.of((endpoint, caller.names.lost))
                lane.limit.timed_out_at = base.limit.timed_out_at = now
            self._route_lost(caller.names, ending.how, number, now, base)
            return
        outage, evidence = base.outage, base.limit.evidence
        outage.answered_at = max(outage.answered_at, base.traffic.answered_at)
        evidence.note(number, ending.how)
        answered_at = _NEVER if outage.begins_again else outage.answered_at
        row = self._lost.lost_endpoint(endpoint, ending.how, answered_at, now)
        base.lost(now, evidence.share(), row, again)
        if not base.traffic.is_watched:
            lanes.set_watched()
        lanes.look((base,), now)

    def _route_lost(self, names: RouteNames, how: str, number: int, now: float, base: Lane) -> None:
        """Note that an attempt ended without an answer (by a timeout, say), which is evidence of an outage of its route
        and method, or of its path alone, but not of the whole endpoint. `how`: how it ended (a status, or a kind of
        fault). `number`: the attempt's number among those of the endpoint. `base`: the endpoint's lane.
        """
        lanes, endpoint, lost, usual = self._lanes, base.name[0], self._lost, self._usual
        lane = lanes.of((endpoint, names.lost))
        outage, evidence = lane.outage, base.limit.evidence
        if now - outage.answered_at > ANSWERED_WITHIN:
            answered_at = max(usual.last_of_any(names.timed), lost.route_answered_at(names))
            outage.answered_at = max(outage.answered_at, answered_at)
        lane.limit.evidence.note(number, how)
        row = lost.lost_route(endpoint, names, how, outage.begins_again, now)
        of_path: LostRow | None = None
        if names.has_path:
            of_path = lost.lost_path(endpoint, names, how, usual.last(names.timed), now)
        on_path = 0 if of_path is None else of_path.count
        share = evidence.share() if row.count > 1 or on_path > 1 else 0.0  # one attempt is no row
        held = may_hold(lane, now)
        began = lane.lost(now, share, row, False, on_path)
        if began:
            self._end_paths(names, base, now)
            base.queue.ask_again(now)  # the probe would come after all of them
        elif of_path is not None and outage.since == _NEVER and is_row(on_path, now - of_path.since, share):
            self._path_lost(names, of_path, now, base)
        if not base.traffic.is_watched:
            lanes.set_watched()
        if held or began:
            lanes.look((lane,), now)

    def _path_lost(self, names: RouteNames, row: LostRow, now: float, base: Lane) -> None:
        """Begin an outage of the path with these names, if the path answered in the last minutes and has no outage yet.
        `row`: the path's latest attempts, which all ended without an answer. `base`: the endpoint's lane. The limit of
        that lane ends if it began after the first of these failures and other paths have answered since, because then
        these failures were its cause.
        """
        if now - row.answered_at > ANSWERED_WITHIN:
            row.answered_at = max(row.answered_at, self._lost.path_answered_at(names))
            if now - row.answered_at > ANSWERED_WITHIN:
                return
        lanes = self._lanes
        lane = lanes.of((base.name[0], names.lost_path()))
        if lane.outage.is_on:
            return
        lane.limit.timed_out_at = base.limit.timed_out_at
        lane.begin_outage(now, row, row.answered_at)
        others_answer = self._lost.answered_at > row.since
        if others_answer and base.limit.is_on and base.limit.has_evidence and base.limit.begun >= row.since:
            base.end_limit(now)
        base.queue.ask_again(now)
        lanes.look((lane, base), now)

    def _end_paths(self, names: RouteNames, base: Lane, now: float) -> None:
        """End the outages of single paths of this route and method, since an outage of the whole route and method has
        begun. `base`: the endpoint's lane.
        """
        every, lanes = names.lost + b" ", self._lanes
        ended = []
        for (endpoint, group), lane in lanes.by_name.items():
            if endpoint == base.name[0] and group.startswith(every) and lane.outage.is_on:
                lane.end_outage(now)
                ended.append(lane)
        lanes.look(ended, now)

    def probe_lost(self, attempt: object, joined: Sequence[Lane], base: Lane, now: float) -> bool:
        """Note that an attempt has ended without an answer. Returns whether it was the probe of an outage; if so, the
        time of the next probe is kept apart from those of other endpoints that are out. `joined`: the lanes in which
        the attempt has a place. `base`: the lane of its endpoint.
        """
        found = False
        for lane in joined:
            found = lane.probe_lost(attempt, now) or found
        if found and base.name[0]:
            others = self._lanes.others_out(base)
            for other in others:
                base.time_probe(now, other, len(others) + 1)
        return found


def was_never_there(lane: Lane, now: float) -> bool:
    """Whether the endpoint of this lane, to which an attempt could not connect, has not answered within the last ten
    minutes (because of a wrong port, say). Waiting does not help its calls.
    """
    return now - max(lane.outage.answered_at, lane.traffic.answered_at) > ANSWERED_WITHIN


def _is_out(lane: Lane | None) -> bool:
    """Whether this lane has an outage, or had one whose end calls waited for in vain; False if there is no lane."""
    return lane is not None and (lane.outage.since < _NEVER or lane.outage.in_vain)
