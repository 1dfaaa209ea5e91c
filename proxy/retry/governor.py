"""The governor of one scope: which of its calls may be sent to an upstream now, and which wait.

Contract, sections 5 ("Cooldown") and 14. Calls wait in lanes (`proxy.retry.lane`). Each endpoint has a lane for all
calls to it. Further lanes are made when they are needed, for calls to an endpoint that share a credential (a limit on a
key is about its calls alone) or a route (a poll that answers 503 must not hold other calls), and are dropped when
nothing holds their calls any more. A call may belong to several lanes: it queues in one after another, and keeps the
place that it got in one lane while it waits in the next, so that no later call overtakes it.

While all is well, the governor only counts the attempts under way, and measures how long one answer in sixteen takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.ahead import Ahead
from proxy.retry.caller import Caller, Name, is_credentials, is_fleets, is_paths
from proxy.retry.cooldown import (
    ALL_CALLERS,
    MOST_GROUPS,
    SAME,
    Ends,
    FleetCooldowns,
    credential_of,
)
from proxy.retry.ending import AttemptEnding
from proxy.retry.facts import Fields, Request
from proxy.retry.lane import Lane
from proxy.retry.lost_paths import LostPath, LostPaths
from proxy.retry.outage import ANSWERED_WITHIN, is_row
from proxy.retry.patience import Patience
from proxy.retry.route_names import RouteNames, names_of
from proxy.retry.token_bucket import STEP
from proxy.retry.traffic import Traffic
from proxy.retry.usual_times import KNOWN, UsualTimes
from proxy.retry.waiter import Waiter
from proxy.retry.weather_changes import WeatherWatch

_NEVER = float("inf")
#: When a lane has to make room for another: how many are considered.
_CANDIDATES = 8
#: Seconds between two notes that a route is answered.
_NOTED_EVERY = 0.1
#: The wait at an endpoint that holds calls, if no estimate says more.
_LEAST_WAIT = 1e-3
#: A call that would wait elsewhere for longer (seconds) probes an endpoint that is out, if no other call does: as long
#: as the first probe of an outage waits.
_PROBED_AFTER = 0.1
#: The wait (seconds) for the end of an outage, which is not known: longer than any other, and by one second for each
#: call that waits already, so that calls are spread over endpoints that are out together.
_OUT = 1e9


class Governor:
    """The lanes of one scope, and what holds their calls. `quiet_from`: the time from which no call is held (seconds,
    the callers' clock). `first`: the lane of all calls, to whichever endpoint; `traffic`: that lane's count of
    attempts. `ahead`: keeps the limits that answers report and holds calls by them, None if they are not read. `watch`:
    the watch that reports when limits and outages begin and are over, if anything observes them. `holds_none`: no call
    is held any more, since the process ends.
    """

    __slots__ = (
        "_credentials",
        "_ends",
        "_holding",
        "_in",
        "_lanes",
        "_latest",
        "_lost_paths",
        "_paths",
        "_traffics",
        "ahead",
        "first",
        "fleet",
        "holds_none",
        "patience",
        "quiet_from",
        "suspects",
        "traffic",
        "usual",
        "watch",
    )

    def __init__(self) -> None:
        self.quiet_from = -_NEVER
        self.holds_none = False
        self.fleet: FleetCooldowns | None = None
        self.usual = UsualTimes()
        self.patience = Patience()
        self.traffic = Traffic()
        self._traffics = {"": self.traffic}
        self.first = self._make(("", ALL_CALLERS))
        self._lanes: dict[Name, Lane] = {("", ALL_CALLERS): self.first}
        self._credentials = 0  # how many of them are about callers that share a credential,
        self._paths = 0  # or a path
        self._lost_paths = LostPaths()
        self._ends: Ends[Name] = Ends()  # the ends of the delays of all lanes but the first, which is never forgotten
        self._holding: set[Lane] = set()  # lanes that hold calls, here or on another machine
        self._latest = -_NEVER  # the last end of a delay so far
        self._in: dict[object, tuple[Lane, ...]] = {}  # the lanes in which a call queues or has a place
        self.watch: WeatherWatch | None = None
        self.suspects = 0  # lanes whose latest attempt ended without an answer
        self.ahead: Ahead | None = None

    def holds(self, now: float) -> bool:
        """Whether any call may be held now, so that a new call has to `ask`."""
        return now < self.quiet_from and not self.holds_none

    def hold_none(self, now: float) -> None:
        """Hold no call from now on, because the process ends: those that are held ask again at once, and are sent."""
        self.holds_none = True
        for lane in self.lanes():
            for waiter in list(lane.queue):
                self.leave(waiter, now)
                waiter.retime(now)

    # -- callers ----------------------------------------------------------------------------------------------------

    def ask(self, waiter: Waiter, caller: Caller, now: float, own: Sequence[float] = ()) -> tuple[float, str]:
        """Return `now` and "" if the call may be sent; else the time at which it asks again, and what holds it:
        "cooldown", "ahead" (limits that answers reported), "limit" or "outage". The time is infinity if the call's
        alarm will be moved when its turn comes. `own`: the ends (seconds) of the delays that answers to this call's own
        attempts asked for; these delays do not hold the call here, since it waits for them anyway.
        """
        lanes = self._lanes_of(caller)
        at, why = now, ""
        line = None
        if self.ahead is not None:
            cools = caller.cools and any(now < lane.until for _, lane in lanes)
            line = self.ahead.line(waiter, caller, self._in.get(waiter, ()), now, cools=cools)
        if line is not None:
            at = line.ask(waiter, now)
            why = "ahead" if at > now else ""
        for name, lane in lanes:
            if at > now:
                lane.leave(waiter, now)  # a call that one lane holds must not have a place in another
                continue
            holds = lane.holds(now)
            if not holds or not _applies(holds, caller):
                if waiter in lane.queue:  # what held it is over, and what holds others now does not hold it
                    lane.leave(waiter, now)
                elif not holds and not lane.queue:
                    lane.ask(waiter, now)
                continue
            if lane.until not in own or now >= lane.until or lane.has(waiter):
                if caller.limits:
                    lane.lasts = True
                at = lane.ask(waiter, now, retries=caller.retries)
                why = holds if at > now else ""
                if self.fleet is not None and holds == "cooldown" and is_fleets(name):
                    self.fleet.asked(name, now)
        joined = tuple(lane for _, lane in lanes if lane.has(waiter))
        if line is not None and line.has(waiter):
            joined = (line, *joined)
        if joined:
            self._in[waiter] = joined
        else:
            self._in.pop(waiter, None)
        self._look([lane for _, lane in lanes], now)
        return at, why

    def wait_at(self, waiter: Waiter, caller: Caller, endpoint: str, now: float) -> float:
        """The seconds for which this endpoint's lanes would hold the call; 0 if the call could be sent there at
        once.
        """
        wait = 0.0
        before, caller.endpoint = caller.endpoint, endpoint
        for _, lane in self._lanes_of(caller):
            holds = lane.holds(now)
            if not holds and lane in self._holding:  # its limit has just ended, since no call came for a while
                self._look((lane,), now)
            if holds and _applies(holds, caller) and not lane.admits(waiter) and not lane.passes(now):
                if holds != "outage":
                    wait = max(wait, lane.wait_of(waiter, now), _LEAST_WAIT)
                else:
                    is_probe = lane.fleet.may_probe and not lane.queue and now >= lane.until and lane.outage.is_due(now)
                    wait = max(wait, _PROBED_AFTER if is_probe else _OUT + lane.queue.ahead_of(waiter))
        if self.ahead is not None and caller.ahead:
            wait = max(wait, self.ahead.wait((endpoint, caller.credential()), waiter, now))
        caller.endpoint = before
        return wait

    def move(self, waiter: Waiter, caller: Caller, endpoint: str, now: float) -> None:
        """Let the call wait in the lanes of this endpoint from now on, and leave those of the endpoint before. It keeps
        its place in the lanes that are for both.
        """
        is_same = caller.endpoint == endpoint  # also if an attempt beside the call's next one ended there
        caller.endpoint = endpoint
        before = self._in.get(waiter)
        if before is None:
            return
        here = [lane for _, lane in self._lanes_of(caller)]
        left = [lane for lane in before if lane not in here and not (is_same and lane.is_ahead)]
        if not left:
            return
        kept = tuple([lane for lane in before if lane not in left])
        if kept:
            self._in[waiter] = kept
        else:
            del self._in[waiter]
        for lane in left:
            lane.leave(waiter, now)
        self._look(left, now)

    def sent(self, waiter: Waiter, attempt: object, now: float) -> bool:
        """Note that the waiter's attempt is being sent. Returns whether the attempt holds a place in any lane."""
        lanes = self._in.pop(waiter, ())
        placed = tuple([lane for lane in lanes if lane.sent(waiter, attempt, now)])
        if placed:
            self._in[attempt] = placed
        return bool(placed)

    def step_aside(self, waiter: Waiter, now: float) -> None:
        """Take back the places that the waiter was given, because another gate holds it; it keeps its turn."""
        lanes = [lane for lane in self._in.get(waiter, ()) if not lane.is_ahead]
        for lane in lanes:
            lane.step_aside(waiter, now)
        self._look(lanes, now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiter from all queues: it sends nothing."""
        lanes = self._in.pop(waiter, ())
        for lane in lanes:
            lane.leave(waiter, now)
        self._look(lanes, now)

    # -- how attempts end -------------------------------------------------------------------------------------------

    def lane(self, endpoint: str) -> Lane:
        """The lane of all callers of this endpoint."""
        return self.first if not endpoint else self.lane_of((endpoint, ALL_CALLERS))

    def traffic_of(self, endpoint: str) -> Traffic:
        """The object that counts the attempts under way to this endpoint, and their ends; made if there is none yet."""
        if not endpoint:
            return self.traffic
        traffic = self._traffics.get(endpoint)
        if traffic is None:
            traffic = self._traffics[endpoint] = Traffic()
        return traffic

    def answered_well(self, attempt: object, caller: Caller, sent: float, now: float) -> None:
        """Note that an attempt, sent at `sent`, was answered, and that its answer is no failure of the upstream's."""
        base = self.lane(caller.endpoint)
        if attempt not in self._in and base.limit.most == _NEVER:  # nothing holds calls, or held this one
            self.answered_freely(caller.names, caller.endpoint, sent, now)
            return
        self._landed(attempt, caller, sent, now, well=True)
        if _has_lost(self, base):
            self._answered(caller.names, base, now, own=True)

    def answered_undecided(self, route: str, request: Request, fields: Fields, sent: float, now: float) -> None:
        """Note that an attempt, sent at `sent`, was answered well. The driver sent it without making a `Call`
        (`request_hints.may_start_undecided`). `route`: the label of its route; `fields`: the header fields with the
        caller's credential.
        """
        if self.holds(now):
            self.answered_well(request, Caller(request, fields, route), sent, now)
        else:
            self.answered_freely(names_of(route, request), "", sent, now)

    def answered_freely(self, names: RouteNames, endpoint: str, sent: float, now: float) -> None:
        """Note that an attempt of the route with these names, sent to this endpoint at `sent`, was answered well, while
        nothing held calls; nothing had held it either.
        """
        base = self.lane(endpoint)
        self._note_time(names.timed, sent, now, base.traffic)
        if _has_lost(self, base):
            self._answered(names, base, now, own=True)

    def _note_time(self, route: str, sent: float, now: float, traffic: Traffic) -> None:
        """Note that an attempt of this route, sent at `sent`, was answered while nothing held calls. The time that the
        answer took counts for the route's usual time if `traffic`, the count of the endpoint's attempts, says that it
        is to be measured, or if none was measured before.
        """
        usual = self.usual
        traffic.note_at = now + _NOTED_EVERY
        traffic.measure(now)
        if not traffic.is_timed and usual.note(route, now):
            return
        usual.learn(route, now - sent, now)
        if usual.count == KNOWN:
            self._watch()

    def freed(self, attempt: object, sent: float, now: float) -> None:
        """Note that the head of the answer to an attempt, sent at `sent`, has come, which frees the attempt's place;
        how it ends is not known yet.
        """
        self._free(self._in.get(attempt, ()), attempt, sent, now)

    def dropped(self, attempt: object, sent: float, now: float) -> None:
        """Note that an attempt, sent at `sent`, was cancelled, or ended in a way that says nothing about its
        upstream.
        """
        self._free(self._in.pop(attempt, ()), attempt, sent, now)

    def _free(self, lanes: Sequence[Lane], attempt: object, sent: float, now: float) -> None:
        for lane in lanes:
            lane.free_place(attempt, sent, now)
            lane.release(now)
        self._look(lanes, now)

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
        """Note how an attempt, sent at `sent`, failed (`ending`). `again`: this attempt could not connect, and at least
        one earlier attempt of its call could not either; `cools`: its answer asks callers to wait, which holds calls by
        a cooldown, so that the failure does not lower the limit as well.
        """
        self._refresh(caller, now)
        base, lost = self.lane(caller.endpoint), ending.lost
        has_place = attempt in self._in
        if lost and not (has_place and self.probe_lost(attempt, base, now)) and caller.outages:
            self._lost(caller, ending, now, base, again=again)
        if lost != "endpoint":
            self._answered(caller.names, base, now, own=not lost)
        if ending.refused and caller.limits:
            in_outage = lost and (_is_lost(self, caller, base) or (lost == "endpoint" and _was_never_there(base, now)))
            if not in_outage:
                self._refused(attempt, caller, base, ending, sent, now, cools=cools)
        if has_place or ending.well or self.holds(now) or base.limit.is_on or self._tells_credentials_apart():
            self._landed(attempt, caller, sent, now, well=ending.well)
        elif cools:
            base.usual_time = self.usual.of(caller.names.timed)

    def _landed(self, attempt: object, caller: Caller, sent: float, now: float, well: bool) -> None:
        """Free the places of an attempt, and let its limits learn from its end. `well`: its answer is no failure of the
        upstream's.
        """
        base = self.lane(caller.endpoint)
        lanes = self._in.pop(attempt, ())
        usual = self.usual.of(caller.names.timed)
        ratio = (now - sent) / usual if usual else 0.0
        touched = (base,) if not lanes else lanes if base in lanes else (*lanes, base)
        if self._tells_credentials_apart():  # an attempt from before its credential's limit is under way no more
            lane = self._find((caller.endpoint, caller.credential()))
            if lane is not None and lane.limit.is_on and lane not in touched:
                touched = (*touched, lane)
        learns = well  # a time that a limit has a part in is not the usual one
        looks = bool(lanes) or bool(self._holding)
        for lane in touched:
            looks = looks or _may_hold(lane, now)
            lane.landed(attempt, sent, now, well=well, ratio=ratio, usual=usual)
            learns = learns and lane.limit.most == _NEVER
        if learns:
            self._note_time(caller.names.timed, sent, now, base.traffic)
        if looks:  # else nothing held calls, and the end of an attempt begins nothing
            self._look(touched, now)

    def _answered(self, names: RouteNames, base: Lane, now: float, own: bool) -> None:
        """Note that an attempt of the route with these names was answered, which ends an outage of its endpoint, whose
        lane is `base`. `own`: the endpoint itself answered, so that an outage of the attempt's route ends too; False
        for an answer that says that the service is not reached (a gateway's 503, say).
        """
        base.traffic.answered_at = now
        outage, holds = base.outage, self.holds(now)
        was_suspected = outage.lost_in_a_row > 0
        if not (was_suspected or holds or outage.in_vain or outage.since < _NEVER):
            outage.answered_at = now
        elif base.answered(now):
            self._look((base,), now)
            for other in _others_out(self._lanes, base):  # what took all of them down is probably over
                other.time_probe(now, base)
        if was_suspected:
            self._watch()
        if own and (self.suspects or self._lost_paths.rows or holds):
            self._own_answered(names, base.name[0], now)

    def _own_answered(self, names: RouteNames, endpoint: str, now: float) -> None:
        """Note that an attempt was answered by its endpoint itself, which ends the outages of the attempt's route and
        path.
        """
        if self._lost_paths.rows:
            self._lost_paths.answered(_path_at(endpoint, names), now)
        lane = self._find((endpoint, names.lost))
        of_path: Lane | None = None
        if self._tells_paths_apart() and names.has_path:
            of_path = self._find((endpoint, names.lost_path()))
        for each in (lane, of_path):
            if each is not None and (each.outage.lost_in_a_row or each.outage.since < _NEVER):
                self.suspects -= each.outage.lost_in_a_row > 0
                if each.answered(now):
                    self._look((each,), now)
        self._watch()

    def _refused(
        self, attempt: object, caller: Caller, base: Lane, ending: AttemptEnding, sent: float, now: float, cools: bool
    ) -> None:
        """Note that an attempt, sent at `sent`, was refused for want of capacity; `ending` says how. `base`: the
        endpoint's lane; `cools`: its answer asks callers to wait, so that the refusal does not cut the limit as well.
        """
        lane = base
        if ending.throttled:
            lane = self.lane_of((caller.endpoint, caller.credential()))
        is_quick = ending.quick
        if is_quick:
            usual = self.usual.of(caller.names.timed)
            is_quick = not usual or now - sent < usual
        if self.watch is not None:
            self.watch.failed(lane, base.traffic.ended, ending.how)
        if cools:
            lane.limit.delayed(attempt, now)
            lane.asked_to_wait(sent, now, quick=is_quick)
            return
        lane.lasts = True
        held = _may_hold(lane, now)
        began = lane.refused(sent, now, base.traffic.flying + 1, quick=is_quick, silent=not ending.quick)
        if held or began:
            self._look((lane,), now)
        if not ending.quick:
            for other in self._in.get(attempt, ()):
                if other is not lane and other.limit.is_on:
                    other.refused(sent, now, base.traffic.flying + 1, quick=False, silent=True)

    def _lost(self, caller: Caller, ending: AttemptEnding, now: float, base: Lane, again: bool) -> None:
        """Note that an attempt ended without an answer of its upstream's own; `ending` says how. `base`: the endpoint's
        lane; `again`: neither this attempt nor an earlier one of its call could connect.
        """
        if ending.lost == "route":
            self._route_lost(caller, ending, now, base)
            return
        outage = base.outage
        outage.answered_at = max(outage.answered_at, base.traffic.answered_at)
        was_suspected = outage.is_suspected
        if self.watch is not None:
            self.watch.failed(base, base.traffic.ended, ending.how)
        base.lost(now, base.limit.evidence.share(), again)
        if not was_suspected:
            self._watch()
        self._look((base,), now)

    def _route_lost(self, caller: Caller, ending: AttemptEnding, now: float, base: Lane) -> None:
        """Note that an attempt ended without an answer (in a timeout, say), where that is evidence of an outage of its
        route and method, or of its path alone, but not of the whole endpoint. `ending` says how it ended; `base`: the
        endpoint's lane.
        """
        names = caller.names
        lane = self.lane_of((caller.endpoint, names.lost))
        outage, evidence = lane.outage, base.limit.evidence
        if now - outage.answered_at > ANSWERED_WITHIN:
            outage.answered_at = max(outage.answered_at, self.usual.last_of_any(names.timed))
        if self.watch is not None:
            self.watch.failed(lane, base.traffic.ended, ending.how)
        if ending.refused and not ending.quick:
            lane.limit.timed_out_at = base.limit.timed_out_at = now
        row, of_path = None, 0
        if names.has_path:
            row = self._lost_paths.lost(_path_at(caller.endpoint, names), ending.how, now)
            of_path = row.count
        was_suspected, held = outage.lost_in_a_row > 0, _may_hold(lane, now)
        share = evidence.share() if was_suspected or of_path > 1 else 0.0  # one attempt is no row
        self.suspects += not was_suspected
        began = lane.lost(now, share, False, of_path)
        if began:
            self._end_paths(caller, now)
        elif row is not None and outage.since == _NEVER and is_row(of_path, now - row.since, share):
            self._path_lost(caller, row, now, base)
        if not was_suspected:
            self._watch()
        if held or began:
            self._look((lane,), now)

    def _path_lost(self, caller: Caller, row: LostPath, now: float, base: Lane) -> None:
        """Begin an outage of the caller's path, if the path answered in the last minutes and has no outage yet. `row`:
        the path's latest attempts, which all ended without an answer; `base`: the endpoint's lane. The limit of that
        lane ends if it began after the first of these failures and other paths have answered since: the failures were
        its cause.
        """
        answered_at = self.usual.last(caller.names.timed)
        if now - answered_at > ANSWERED_WITHIN:
            return
        lane = self.lane_of((caller.endpoint, caller.names.lost_path()))
        if lane.outage.is_on:
            return
        if self.watch is not None:
            for number, how in enumerate(row.endings, base.traffic.ended - len(row.endings) + 1):
                self.watch.failed(lane, number, how)
        self.suspects += not lane.outage.is_suspected
        lane.limit.timed_out_at = base.limit.timed_out_at
        lane.begin_outage(now, row.since, row.count, answered_at)
        others_answer = self._lost_paths.answered_at > row.since
        if others_answer and base.limit.is_on and base.limit.has_evidence and base.limit.begun >= row.since:
            base.end_limit(now)
        self._look((lane, base), now)

    def _end_paths(self, caller: Caller, now: float) -> None:
        """End the outages of single paths of this route and method, since an outage of all of them has begun."""
        every = caller.names.lost + b" "
        ended = []
        for (endpoint, group), lane in self._lanes.items():
            if endpoint == caller.endpoint and group.startswith(every) and lane.outage.is_on:
                lane.end_outage(now)
                ended.append(lane)
        self._look(ended, now)

    def probe_lost(self, attempt: object, base: Lane, now: float) -> bool:
        """Note that an attempt has ended without an answer. Returns whether it was the probe of an outage; if so, the
        next probe is timed by those of other endpoints that are out. `base`: the lane of the attempt's endpoint.
        """
        found = False
        for lane in self._in.get(attempt, ()):
            found = lane.probe_lost(attempt, now) or found
        if found and base.name[0]:
            others = _others_out(self._lanes, base)
            for other in others:
                base.time_probe(now, other, len(others) + 1)
        return found

    def is_probe(self, attempt: object) -> bool:
        """Whether this attempt is the probe of an outage whose calls are held."""
        lanes = self._in.get(attempt)
        return lanes is not None and not self.holds_none and attempt in [lane.outage.probe for lane in lanes]

    def turns_away(self, attempt: object, now: float) -> bool:
        """Whether this attempt is the probe of an outage that has held a call for as long as a call may be held, and
        that either refuses new calls at once, or still has other calls in its queue. Such a probe is not sent again at
        once if it could not connect.
        """
        lanes = [lane for lane in self._in.get(attempt, ()) if lane.outage.probe is attempt]
        return any(lane.outage.turns_away(now) or (lane.outage.in_vain and lane.queue) for lane in lanes)

    def stays(self, waiter: Waiter, caller: Caller, now: float) -> None:
        """Put a call first into the queue of its outage, because its attempt was the probe, and may be sent again."""
        joined = []
        for _, lane in self._lanes_of(caller):
            if lane.outage.is_on:
                lane.put_first(waiter, now)
                joined.append(lane)
        self._in[waiter] = tuple(joined)
        self._look(joined, now)

    def requests_wait(
        self, caller: Caller, status: int, delay: float, sent: float, now: float, whole: bool
    ) -> Name | None:
        """Note that an answer with this status, to an attempt sent at `sent`, asked callers to wait for `delay`
        seconds. `whole`: the calls of all endpoints wait, not only those to the endpoint that answered. Returns the
        name of the lane in which this begins a cooldown; None if the answer belongs to a cooldown that had begun.
        """
        self._refresh(caller, now)
        name = ("" if whole else caller.endpoint, ALL_CALLERS if status == 503 else caller.credential())
        lane = self.lane_of(name)
        lane.lasts = lane.lasts or caller.limits
        before = lane.until
        began = lane.start(delay, status, sent, now)
        self._look((lane,), now)
        everybody = self._find((name[0], ALL_CALLERS))
        if everybody is not None and everybody is not lane and lane.until > before:
            for waiter in everybody.queue:
                waiter.retime(now)
        if self.fleet is not None and (began or lane.until > before):
            self.fleet.began(name, status, delay, sent=sent, now=now)
        return name if began else None

    def until(self, name: Name) -> float:
        """The time at which the delay of this lane is over; a time in the past if the lane is not known any more."""
        lane = self._lanes.get(name)
        return -_NEVER if lane is None else lane.until

    def claim(self, waiter: Waiter, name: Name, due: float) -> bool:
        """Reserve the first place after the cooldown of the lane `name` for the call whose answer began the cooldown,
        and whose next attempt is due at `due` (seconds). Returns whether the call got the place: it does if its attempt
        is due before the cooldown is over.
        """
        lane = self._lanes.get(name)
        if lane is None or not lane.claim(waiter, due):
            return False
        self._in[waiter] = (lane,)
        return True

    # -- what is reported of it ---------------------------------------------------------------------------------------

    def wait_of(self, waiter: Waiter, now: float, hold: float = _NEVER) -> float:
        """An estimate of the seconds until this waiter will be sent, at the pace so far, if calls are held for `hold`
        seconds at most.
        """
        return max((lane.wait_of(waiter, now, hold) for lane in self._in.get(waiter, ())), default=0.0)

    def answer_time(self, waiter: Waiter) -> float:
        """The mean time, in seconds, in which attempts are answered under the limits that hold this waiter: the longest
        of its lanes' means; 0 if no lane holds it.
        """
        return max((lane.limit.round_trip for lane in self._in.get(waiter, ())), default=0.0)

    def left_for(self, caller: Caller, now: float) -> tuple[float, int]:
        """The seconds for which this call is still held by a delay, and the status of the answer that began it;
        (0, 503) if no delay holds it.
        """
        return _longest([lane for _, lane in self._lanes_of(caller)], now)

    def left_for_fields(self, fields: Fields, now: float) -> tuple[float, int]:
        """The seconds for which calls with these header fields (their credential) are still held by a delay, and the
        status of the answer that began it; (0, 503) if no delay holds them.
        """
        return _longest(self._lanes_with(fields), now)

    def holds_caller(self, fields: Fields, now: float) -> bool:
        """Whether calls with these header fields (their credential) are held now."""
        return any(not lane.is_over(now) for lane in self._lanes_with(fields))

    def _lanes_with(self, fields: Fields) -> list[Lane]:
        """The lanes of all callers, and of those whose credential these fields carry, at every endpoint."""
        groups = (credential_of(fields), ALL_CALLERS)
        found = [self._find((endpoint, group)) for endpoint in self._traffics for group in groups]
        return [lane for lane in found if lane is not None]

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._in

    def late_wait(self, caller: Caller, hold: float, now: float) -> float | None:
        """The seconds that this call may wait for the end of an outage that began more than `hold` seconds ago; None if
        no such outage holds it. `hold`: the longest that a call is held, in seconds.
        """
        for _, lane in self._lanes_of(caller):
            if caller.outages and lane.holds(now) == "outage":
                wait = lane.late_wait(now, hold, retries=caller.retries)
                if wait is not None:
                    return wait
        return None

    def held_in_vain(self, waiter: Waiter, hold: float, now: float) -> None:
        """Note that this call was held for `hold` seconds, the longest that a call is held. If its outage has lasted
        for all of that time, from now on no call is held to wait for that outage's end.
        """
        for lane in self._in.get(waiter, ()):
            if lane.outage.is_on and lane.outage.is_late(now + STEP, hold):
                lane.change(lane.outage.held_in_vain, now)
        self._look(self._in.get(waiter, ()), now)

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for any lane (seconds); 0 if no delay is left."""
        return max(0.0, *(lane.until - now for lane in self._lanes.values()), 0.0)

    def lanes(self) -> list[Lane]:
        """All lanes."""
        return [*self._lanes.values(), *(() if self.ahead is None else self.ahead.lanes())]

    def settle(self, now: float) -> bool:
        """End the limits and outages that nothing holds in force any more, and report their end; without this, that is
        noticed only when a call comes. Returns whether any is left.
        """
        if self.watch is None:
            return False
        for lane in self.watch.in_force:
            lane.holds(now)
            lane.release(now)
            self._look((lane,), now)
        return bool(self.watch.in_force)

    def left_of(self, group: bytes, endpoints: Sequence[str], now: float) -> float:
        """The seconds that are left of the longest delay of this group of callers, at the upstream as a whole or at one
        of these endpoints; 0 if no such delay is left.
        """
        lanes = [self._find((endpoint, group)) for endpoint in ("", *endpoints)]
        return max([0.0] + [lane.until - now for lane in lanes if lane is not None])

    def held(self) -> int:
        """The number of calls that are held."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    # -- lanes ------------------------------------------------------------------------------------------------------

    def _lanes_of(self, caller: Caller) -> list[tuple[Name, Lane]]:
        """The lanes that this call belongs to, with their names."""
        lanes = self._lanes
        if len(lanes) == 1:
            return [(("", ALL_CALLERS), self.first)]
        return [(name, lanes[name]) for name in self._names_of(caller) if name in lanes]

    def _refresh(self, caller: Caller, now: float) -> None:
        """Do nothing; where processes share lanes, an override reads what other processes have published about this
        caller's lanes.
        """

    def _names_of(self, caller: Caller) -> list[Name]:
        """The names of all lanes that this call may belong to, also of those that are not kept now. Its credential is
        hashed only if any lane is for a credential.
        """
        names = caller.names
        groups = [names.lost, ALL_CALLERS]
        if self._tells_paths_apart() and names.has_path:
            groups.insert(0, names.lost_path())
        if self._tells_credentials_apart():
            groups.insert(0, caller.credential())
        places = ("",) if not caller.endpoint else (caller.endpoint, "")
        return [(place, group) for group in groups for place in places]

    def _tells_credentials_apart(self) -> bool:
        """Whether any lane is about callers that share a credential."""
        return self._credentials > 0

    def _tells_paths_apart(self) -> bool:
        """Whether any lane is about callers of one path."""
        return self._paths > 0

    def lane_of(self, name: Name) -> Lane:
        """The lane with this name, which is made if it is new; if there are too many lanes, another is forgotten for
        it.
        """
        lane = self._find(name)
        return self._keep(name, self._make(name)) if lane is None else lane

    def _find(self, name: Name) -> Lane | None:
        """The lane with this name, None if nothing is known of it."""
        return self._lanes.get(name)

    def _keep(self, name: Name, lane: Lane) -> Lane:
        """Remember a new lane under its name, and forget others if there are too many."""
        while len(self._lanes) > MOST_GROUPS:
            self._forget(self._first_over())
        lane.name = name
        self._lanes[name] = lane
        self._credentials += is_credentials(name)
        self._paths += is_paths(name)
        self._ends.add(name, lane.until)
        if self.fleet is not None:
            self.fleet.adopt(name, lane)
        return lane

    def join(self, fleet: FleetCooldowns) -> None:
        """Share the cooldowns with other machines from now on, by the link `fleet`."""
        self.fleet = fleet
        for name, lane in self._lanes.items():
            fleet.adopt(name, lane)

    def started_elsewhere(self, name: Name, status: int, delay: float, now: float) -> bool:
        """Note that callers on another machine were asked to wait for `delay` seconds, by an answer with this status.
        Returns whether that is longer than the delay that this process knew.
        """
        lane = self.lane_of(name)
        if now + delay <= lane.until + SAME:
            return False
        lane.started_elsewhere(delay, status, now)
        self._look((lane,), now)
        if self.fleet is not None:
            self.fleet.asked(name, now)
        return True

    def allotted(self, lane: Lane, now: float) -> None:
        """Take note of a change to this lane: of its share of the fleet's places, or of whether other machines hold
        calls of it.
        """
        self._look((lane,), now)

    def _make(self, name: Name) -> Lane:
        return Lane(self.traffic_of(name[0]))

    def _first_over(self) -> Name:
        """Choose the lane that makes room for a new one, and remove it from `_ends`: the one whose delay is over
        soonest, but among the next few preferably one that holds no call. Returns its name.
        """
        passed: list[tuple[float, Name]] = []
        while len(passed) < _CANDIDATES:
            first = self._ends.pop(self._until_of)
            if first is None:
                break
            passed.append(first)
            if self._lanes[first[1]] not in self._holding:
                break
        chosen = -1 if self._lanes[passed[-1][1]] not in self._holding else 0
        _, name = passed.pop(chosen)
        for until, other in passed:
            self._ends.add(other, until)
        return name

    def _until_of(self, name: Name) -> float | None:
        lane = self._lanes.get(name)
        return None if lane is None else lane.until

    def _forget(self, name: Name) -> None:
        """Forget a lane. The calls that it holds leave it, and ask again."""
        lane = self._lanes.pop(name)
        self._credentials -= is_credentials(name)
        self._paths -= is_paths(name)
        if self.watch is not None:
            self.watch.forget(lane)
        if self.fleet is not None:
            self.fleet.forget(name)
        if lane.outage.is_suspected:
            self.suspects -= 1
        held = lane.queue.take_all()
        lane.fleet.elsewhere = False
        self._holding.discard(lane)
        for waiter in held:
            waiter.retime(lane.until)

    def _look(self, changed: Sequence[Lane], now: float) -> None:
        """Update `quiet_from` after these lanes changed; report to the watch which limits and outages in them have
        begun or are over.
        """
        holding, watch = self._holding, self.watch
        held = bool(holding)
        for lane in changed:
            if lane.is_ahead:
                continue  # all calls ask it, whatever it holds
            if watch is not None:
                watch.look(lane, lane.traffic.ended, now)
            self._latest = max(self._latest, lane.until)
            limited = lane.limit.most < _NEVER and lane.outlasts
            if limited or lane.queue or lane.fleet.elsewhere or lane.outage.since < _NEVER:
                holding.add(lane)
            elif held:
                holding.discard(lane)
        self.quiet_from = _NEVER if holding else self._latest
        if held != bool(holding):
            self._watch()

    def _watch(self) -> None:
        """Set `is_watched` of each endpoint's traffic: whether its driver has to report every attempt that is answered
        well to this governor. It has to while calls are held or a lane's latest attempt was lost, and until enough
        usual times are known.
        """
        watched = self.suspects > 0 or len(self._lost_paths.rows) > 0 or self.usual.count < KNOWN or bool(self._holding)
        self.traffic.is_watched = watched or self.first.outage.lost_in_a_row > 0
        if len(self._traffics) > 1:
            for endpoint, traffic in self._traffics.items():
                lane = self._lanes.get((endpoint, ALL_CALLERS))
                traffic.is_watched = watched or (lane is not None and lane.outage.is_suspected)


def _applies(holds: str, caller: Caller) -> bool:
    """Whether this caller's calls may be held for this reason. `holds`: "cooldown", "limit" or "outage"."""
    if holds == "outage":
        return caller.outages
    return caller.cools if holds == "cooldown" else caller.limits


def _may_hold(lane: Lane, now: float) -> bool:
    """Whether anything of this lane may hold calls: a delay, a limit, an outage, or calls that wait."""
    if now < lane.until or lane.fleet.elsewhere or lane.queue:
        return True
    return lane.limit.most < _NEVER or lane.outage.since < _NEVER


def _is_out(lane: Lane | None) -> bool:
    """Whether this lane has an outage, or had one for whose end calls were held in vain; False if nothing is known of
    it.
    """
    return lane is not None and (lane.outage.since < _NEVER or lane.outage.in_vain)


def _has_lost(governor: Governor, base: Lane) -> bool:
    """Whether the latest attempts ended without an answer: of any route or path, or of the endpoint whose lane is
    `base`.
    """
    outage = base.outage
    if governor.suspects or governor._lost_paths.rows or outage.lost_in_a_row:
        return True
    return outage.since < _NEVER or outage.in_vain


def _is_lost(governor: Governor, caller: Caller, base: Lane) -> bool:
    """Whether this call's endpoint, whose lane is `base`, its route or its path has an outage now, or had one that held
    calls until they had to be refused and has not answered since. Failures then say nothing about the upstream's
    capacity.
    """
    endpoint, names = caller.endpoint, caller.names
    if _is_out(base) or _is_out(governor._find((endpoint, names.lost))):
        return True
    return governor._tells_paths_apart() and _is_out(governor._find((endpoint, names.lost_path())))


def _was_never_there(lane: Lane, now: float) -> bool:
    """Whether the lane's endpoint, to which an attempt could not connect, has not answered within the last ten minutes:
    a wrong port, say. Waiting does not help its calls.
    """
    return now - max(lane.outage.answered_at, lane.traffic.answered_at) > ANSWERED_WITHIN


def _path_at(endpoint: str, names: RouteNames) -> str:
    """The key under which a path is kept: the endpoint, if there are several, and the route with the path's
    beginning.
    """
    return f"{endpoint} {names.timed}" if endpoint else names.timed


def _others_out(lanes: dict[Name, Lane], base: Lane) -> list[Lane]:
    """The lanes of other endpoints than that of `base` which are out."""
    found = [lane for (_, group), lane in lanes.items() if group == ALL_CALLERS and lane is not base]
    return [lane for lane in found if lane.outage.is_on]


def _longest(lanes: Sequence[Lane], now: float) -> tuple[float, int]:
    """The longest delay that is left of these lanes, in seconds, and the status of the answer that began it; (0, 503)
    if none of them holds calls.
    """
    held = [(lane.until - now, lane.status) for lane in lanes if not lane.is_over(now)]
    left, status = max(held, default=(0.0, 503))
    return max(0.0, left), status
