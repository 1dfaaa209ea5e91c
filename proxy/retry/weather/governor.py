"""The governor of one scope: it decides which of the scope's calls may be sent to an upstream now, and which wait.

Contract, sections 5 ("Cooldown") and 14. Calls wait in lanes, which are queues with a number of places
(`proxy.retry.weather.lane`). Each endpoint has a lane for all calls to it. Further lanes are made when they are needed
(`proxy.retry.weather.lanes`), for calls to an endpoint that share a credential (a limit on a key concerns only calls
with that key) or a route (a route that is polled and answers 503 must not hold other calls). They are dropped when
nothing holds their calls any more. A call may belong to several lanes: it queues in one after another, and keeps the
place that it got in one lane while it waits in the next, so that no later call overtakes it.

While all is well, the governor only counts the attempts under way, and measures how long one answer in sixteen takes;
an attempt that fails is counted as evidence (`failed_freely`). Everything else is done only when calls are held, or may
soon be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from proxy.retry.budgets.token_bucket import STEP
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import Fields, Request
from proxy.retry.queues.waiter import Waiter
from proxy.retry.weather.ahead import Ahead, AheadLane
from proxy.retry.weather.caller import Caller, Name, is_credentials, is_fleets
from proxy.retry.weather.cooldown import ALL_CALLERS
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lanes import Lanes, longest, may_hold
from proxy.retry.weather.losses import Losses, was_never_there
from proxy.retry.weather.outage import LONG
from proxy.retry.weather.patience import Patience
from proxy.retry.weather.route_names import RouteNames, names_of
from proxy.retry.weather.usual_times import KNOWN

_NEVER = float("inf")
_KNOWN = KNOWN  # with a type, when compiled
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
    """The governor of one scope, which decides which calls are sent now and which wait.

    `lanes`: the scope's lanes. `first`: the lane of all calls, to any endpoint. `traffic`: that lane's count of
    attempts. `losses`: the attempts that ended without an answer. `usual`: the usual times of answers. `patience`: how
    long apps wait for an answer before they give up. `ahead`: the limits that answers report, which hold calls too;
    None if they are not read. `holds_none`: no call is held any more, since the process ends.
    """

    __slots__ = ("_in", "ahead", "first", "holds_none", "lanes", "losses", "patience", "traffic", "usual")

    def __init__(self, lanes: Lanes | None = None) -> None:
        self.holds_none = False
        self.lanes: Lanes = Lanes() if lanes is None else lanes
        self.losses = Losses(self.lanes)
        self.first, self.traffic, self.usual = self.lanes.first, self.lanes.traffic, self.lanes.usual
        self.patience = Patience()
        self.ahead: Ahead | None = None
        self._in: dict[object, tuple[Lane, ...]] = {}  # the lanes in which a call queues or has a place

    def holds(self, now: float) -> bool:
        """Whether any call may be held now; if so, a new call has to use `ask`."""
        return now < self.lanes.quiet_from and not self.holds_none

    def hold_none(self, now: float) -> None:
        """Hold no call from now on, because the process ends. The held calls ask again at once, and are then sent."""
        self.holds_none = True
        for lane in self.all_lanes():
            for waiter in list(lane.queue):
                self.leave(waiter, now)
                waiter.retime(now)
            for waiter in [*lane.due.aside, *lane.due.admitted]:  # they wait at a later gate, if at all
                self.leave(waiter, now)

    # -- callers ----------------------------------------------------------------------------------------------------

    def ask(self, waiter: Waiter, caller: Caller, now: float, own: Sequence[float] = ()) -> tuple[float, str]:
        """Return `now` and "" if the call may be sent. Otherwise return the time at which the call asks again, and what
        holds it: "cooldown", "ahead" (limits that answers reported), "limit" or "outage". The time is infinity if the
        call's alarm will be moved when its turn comes.

        `waiter`: the waiting call. `caller`: what the governor has to know of the call. `own`: the ends (seconds) of
        the delays that answers to this call's own attempts asked for; these delays do not hold the call here, since it
        waits for them anyway.
        """
        lanes = self.lanes.of_caller(caller)
        at, why = now, ""
        line, cools = None, False
        is_out = caller.outages and _begin_with_outages(lanes, caller, now)
        if self.ahead is not None:
            cools = is_out or (caller.cools and any(_cools(lane, waiter, caller, now) for _, lane in lanes))
            line = self.ahead.line(waiter, caller, self._in.get(waiter, ()), now, cools=cools)
        if line is not None:
            at = line.ask(waiter, now)
            why = "ahead" if at > now else ""
        for name, lane in lanes:
            if at > now:
                _give_way(lane, waiter, why, now)
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
                if self.lanes.fleet is not None and holds == "cooldown" and is_fleets(name):
                    self.lanes.fleet.asked(name, now)
        if cools and not is_out and at <= now:
            line, at = self._ask_ahead_last(waiter, caller, lanes, now)
            why = "ahead" if at > now else ""
        if is_out:
            _settle_probes(lanes, waiter, why, self.usual.of(caller.names.timed), now)
        joined = tuple(lane for _, lane in lanes if lane.has(waiter))
        if line is not None and line.has(waiter):
            joined = (line, *joined)
        if joined:
            self._in[waiter] = joined
        else:
            self._in.pop(waiter, None)
        self.lanes.look([lane for _, lane in lanes], now)
        return at, why

    def _ask_ahead_last(
        self, waiter: Waiter, caller: Caller, lanes: list[tuple[Name, Lane]], now: float
    ) -> tuple[AheadLane | None, float]:
        """Ask whether the call fits into what answers say is left of limits, since its turn in these lanes has just
        come. If it does not, it keeps its turn there. Returns the lane in which it waits for the limits, None if there
        are none, and when it asks again.
        """
        if self.ahead is None or any(now < lane.until for _, lane in lanes):
            return None, now  # the cooldown in force does not hold this call, since its own attempt was given the delay
        line = self.ahead.line(waiter, caller, self._in.get(waiter, ()), now, cools=False)
        at = now if line is None else line.ask(waiter, now)
        if at > now:
            for _, lane in lanes:
                lane.step_aside(waiter, now, brief=not is_credentials(lane.name))
        return line, at

    def wait_at(self, waiter: Waiter, caller: Caller, endpoint: str, now: float) -> float:
        """The seconds for which the lanes of the endpoint `endpoint` would hold the call; 0 if it could be sent there
        at once.
        """
        wait = 0.0
        before, caller.endpoint = caller.endpoint, endpoint
        for _, lane in self.lanes.of_caller(caller):
            holds = lane.holds(now)
            if not holds and lane in self.lanes.holding:  # its limit has just ended, since no call came for a while
                self.lanes.look((lane,), now)
            if holds and _applies(holds, caller) and waiter not in lane.due and not lane.passes(now):
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
        """Let the call wait in the lanes of the endpoint `endpoint` from now on, and leave those of its endpoint
        before. It keeps its place in the lanes that are for both endpoints.
        """
        is_same = caller.endpoint == endpoint  # also if an attempt beside the call's next one ended there
        caller.endpoint = endpoint
        before = self._in.get(waiter)
        if before is None:
            return
        here = [lane for _, lane in self.lanes.of_caller(caller)]
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
        self.lanes.look(left, now)

    def sent(self, waiter: Waiter, attempt: object, now: float) -> bool:
        """Note that the attempt of the waiting call `waiter` is being sent. Returns whether the attempt has a place in
        any lane.
        """
        lanes = self._in.pop(waiter, ())
        placed = tuple([lane for lane in lanes if lane.sent(waiter, attempt, now)])
        if placed:
            self._in[attempt] = placed
        return bool(placed)

    def step_aside(self, waiter: Waiter, now: float) -> None:
        """Take back the places that the waiting call was given, because another gate holds it. The call keeps its
        turn.
        """
        lanes = [lane for lane in self._in.get(waiter, ()) if not lane.is_ahead]
        for lane in lanes:
            lane.step_aside(waiter, now)
        self.lanes.look(lanes, now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call from all queues, because it sends nothing any more."""
        lanes = self._in.pop(waiter, ())
        for lane in lanes:
            lane.leave(waiter, now)
        self.lanes.look(lanes, now)

    def forgo_ahead(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call from the queues of calls that wait for what is left of limits. If its turn in another
        lane had come, it keeps that turn.
        """
        lanes = self._in.get(waiter, ())
        left = [lane for lane in lanes if lane.is_ahead]
        kept = tuple([lane for lane in lanes if not lane.is_ahead])
        if kept:
            self._in[waiter] = kept
        else:
            self._in.pop(waiter, None)
        for lane in left:
            lane.leave(waiter, now)
        self.lanes.look(left, now)

    # -- how attempts end -------------------------------------------------------------------------------------------

    def answered_well(self, attempt: object, caller: Caller, sent: float, now: float) -> None:
        """Note that an attempt was answered, and that its answer is no failure of the upstream's. `sent`: the time at
        which the attempt was sent.
        """
        base = self.lanes.of_endpoint(caller.endpoint)
        if attempt not in self._in and base.limit.most == _NEVER:  # nothing holds calls, or held this one
            self._note_time(caller.names.timed, sent, now, base.traffic)
            if not (base.traffic.is_watched or base.outage.since < _NEVER or base.outage.in_vain):
                return
        else:
            self._landed(attempt, caller, sent, now, well=True)
        self.losses.answered_well(caller.names, base, sent, now, self.holds(now))

    def answered_undecided(self, route: str, request: Request, fields: Fields, sent: float, now: float) -> None:
        """Note that an attempt which the driver sent without making a `Call` (`request_hints.may_start_undecided`) was
        answered well. `route`: the label of its route. `fields`: the header fields that carry the caller's credential.
        `sent`: the time at which the attempt was sent.
        """
        if not self.answered_freely(names_of(route, request), "", sent, now):
            self.answered_well(request, Caller(request, fields, route), sent, now)

    def answered_freely(self, names: RouteNames, endpoint: str, sent: float, now: float) -> bool:
        """Note that an attempt was answered well, if nothing holds calls; nothing must have held this attempt's call
        either. Returns False, and notes nothing, if calls may be held: then more has to be known of the call
        (`answered_well`). `names`: the names of its route. `endpoint`: the endpoint that it was sent to. `sent`: the
        time at which it was sent.
        """
        if self.holds(now):
            return False
        base = self.first if not endpoint else self.lanes.of_endpoint(endpoint)
        self._note_time(names.timed, sent, now, base.traffic)
        if base.traffic.is_watched or base.outage.since < _NEVER or base.outage.in_vain:
            self.losses.answered_well(names, base, sent, now, False)
        return True

    def _note_time(self, route: str, sent: float, now: float, traffic: Traffic) -> None:
        """Note that an attempt of the route `route` was answered while nothing held calls. `sent`: the time at which it
        was sent. `traffic`: the count of the endpoint's attempts. The time that the answer took counts for the route's
        usual time if `traffic` says that it is to be measured, or if no time was measured for the route before.
        """
        usual = self.usual
        traffic.note_at = now + _NOTED_EVERY
        if usual.answered(route, now - sent, now, traffic.measure(now)) and usual.count == _KNOWN:
            self.lanes.set_watched()

    def freed(self, attempt: object, sent: float, now: float, waits: bool) -> None:
        """Note that the head of the answer to an attempt has come, which frees the attempt's place. How the attempt
        ends is not known yet. `sent`: the time at which it was sent. `waits`: the first byte that counts is waited for,
        and has not come; only that byte frees a place under a limit that refusals have begun. Where calls return after
        a delay or an outage, a model that thinks for seconds would let most of them wait in vain.
        """
        lanes = self._in.get(attempt, ())
        if waits:
            lanes = tuple([lane for lane in lanes if not lane.limit.has_evidence])
        self._free(lanes, attempt, sent, now)

    def dropped(self, attempt: object, sent: float, now: float) -> None:
        """Note that an attempt was cancelled, or ended in a way that says nothing about its upstream. `sent`: the time
        at which it was sent.
        """
        self._free(self._in.pop(attempt, ()), attempt, sent, now)

    def _free(self, lanes: Sequence[Lane], attempt: object, sent: float, now: float) -> None:
        for lane in lanes:
            lane.free_place(attempt, sent, now)
            lane.release(now)
        self.lanes.look(lanes, now)

    def failed_freely(self, attempt: object, names: RouteNames, ending: AttemptEnding, sent: float, now: float) -> bool:
        """Note how an attempt to the only endpoint failed, in the simple case: no call is held, this one was not
        either, and limits and outages may hold the attempt's call. Returns False, and notes nothing, if more has to be
        known of the call than its names; then `failed` is to be used. `names`: the names of the route. `ending`: how
        the attempt failed. `sent`: the time at which it was sent.
        """
        base, lanes, limit = self.first, self.lanes, self.first.limit
        is_simple = ending.quick and not (ending.throttled or ending.well)
        if not is_simple or limit.most < _NEVER or self.holds(now):
            return False
        several = len(lanes.by_name) > 1
        if several and lanes.limits_credentials():
            return False
        if not ending.lost:
            self.losses.answered(names, base, sent, now, own=True, holds=False)
        elif not self.losses.lost_alone(names, ending, base, now, several):
            return False
        if ending.refused:
            base.lasts = True
            is_quick = limit.evidence.loads is not None and self.usual.is_sooner(names.timed, now - sent)
            if base.refused_freely(ending.how, base.traffic.flying + 1, now, is_quick):
                lanes.look((base,), now)
                if limit.most < _NEVER:  # it has begun, and the attempt was under way before it
                    usual = self.usual.of(names.timed)
                    ratio = (now - sent) / usual if usual else 0.0
                    base.landed(attempt, sent, now, well=False, ratio=ratio, usual=usual)
                    lanes.look((base,), now)
        return True

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
        """Note that an attempt failed. `ending`: how it failed. `sent`: the time at which it was sent. `again`: neither
        this attempt nor an earlier attempt of its call could connect. `cools`: the attempt's answer asks callers to
        wait, which holds calls by a cooldown; so the failure does not lower the limit as well.
        """
        self.lanes.refresh(caller, now)
        lanes, losses, names = self.lanes, self.losses, caller.names
        base, lost, joined = lanes.of_endpoint(caller.endpoint), ending.lost, self._in.get(attempt, ())
        if lost and not losses.probe_lost(attempt, joined, base, now) and caller.outages:
            losses.lost(caller, ending, now, base, again=again)
        if lost != "endpoint":
            losses.answered(names, base, sent, now, not lost, self.holds(now))
        if ending.refused and caller.limits:
            in_outage = lost and (losses.is_lost(names, base) or (lost == "endpoint" and was_never_there(base, now)))
            if not in_outage:
                lane = base if not ending.throttled else lanes.of((caller.endpoint, caller.credential()))
                cooling = None
                if cools:  # what a delay holds is judged in the lane that it holds
                    cooling = lane if not caller.whole else lanes.of(("", lane.name[1]))
                self._refused(attempt, names, lane, ending, sent, now, cooling)
        is_plain = not joined and not ending.well and not self.holds(now) and base.limit.most == _NEVER
        if not is_plain or lanes.limits_credentials():
            self._landed(attempt, caller, sent, now, well=ending.well)
        elif cools:
            base.usual_time = self.usual.of(names.timed)

    def _landed(self, attempt: object, caller: Caller, sent: float, now: float, well: bool) -> None:
        """Free the places of an attempt, and let its limits learn from its end. `sent`: the time at which the attempt
        was sent. `well`: its answer is no failure of the upstream's.
        """
        base = self.lanes.of_endpoint(caller.endpoint)
        lanes = self._in.pop(attempt, ())
        usual = self.usual.of(caller.names.timed)
        ratio = (now - sent) / usual if usual else 0.0
        touched = (base,) if not lanes else lanes if base in lanes else (*lanes, base)
        if self.lanes.limits_credentials():  # an attempt from before its credential's limit is under way no more
            lane = self.lanes.find((caller.endpoint, caller.credential()))
            if lane is not None and lane.limit.is_on and lane not in touched:
                touched = (*touched, lane)
        learns = well  # a time that a limit has a part in is not the usual one
        looks = bool(lanes) or bool(self.lanes.holding)
        for lane in touched:
            looks = looks or may_hold(lane, now)
            lane.landed(attempt, sent, now, well=well, ratio=ratio, usual=usual)
            learns = learns and lane.limit.most == _NEVER
        if learns:
            self._note_time(caller.names.timed, sent, now, base.traffic)
        if looks:  # else nothing held calls, and the end of an attempt begins nothing
            self.lanes.look(touched, now)

    def _refused(
        self,
        attempt: object,
        names: RouteNames,
        lane: Lane,
        ending: AttemptEnding,
        sent: float,
        now: float,
        cooling: Lane | None,
    ) -> None:
        """Note that an attempt was refused for want of capacity in the lane `lane`. `names`: the names of its route.
        `ending`: how it failed. `sent`: the time at which it was sent. `cooling`: the lane whose calls the attempt's
        answer asks to wait, None if it asks none; the refusal does not cut the limit if calls are asked to wait.
        """
        limit, flying, is_limited = lane.limit, lane.traffic.flying + 1, lane.limit.most < _NEVER
        if cooling is not None or is_limited:
            limit.evidence.note(limit.evidence.ended, ending.how)
        is_quick = ending.quick and self.usual.is_sooner(names.timed, now - sent)
        if cooling is not None:
            if not cooling.limit.evidence.delays_by_chance(now):
                cooling.asked_to_wait(attempt, sent, now, quick=is_quick)
                return
            is_counted = self._delay_holds_none(attempt, cooling, sent, now)
            if cooling.limit.is_draining:
                cooling.lasts = True
                self.lanes.look((cooling,), now)
            if not is_counted:
                return
        elif limit.evidence.reserves_times(now):
            lane.lasts = True
            self._delay_holds_none(attempt, lane, sent, now)
            self.lanes.look((lane,), now)
            return
        lane.lasts = True
        if is_limited:
            lane.refused(sent, now, flying, quick=is_quick, silent=not ending.quick)
            self.lanes.look((lane,), now)
        elif lane.refused_freely(ending.how, flying, now, is_quick):
            self.lanes.look((lane,), now)
        if not ending.quick:
            for other in self._in.get(attempt, ()):
                if other is not lane and other.limit.is_on:
                    other.refused(sent, now, flying, quick=False, silent=True)

    def _delay_holds_none(self, attempt: object, lane: Lane, sent: float, now: float) -> bool:
        """Note that an attempt was refused in the lane `lane` by an answer that names a delay, while delays hold only
        their own calls. `sent`: the time at which the attempt was sent. Returns whether a test had shown before that
        refusals are chance, so that this one counts for the limit.
        """
        ended, flying = self.lanes.attempts_of(lane)
        return bool(lane.change(partial(lane.limit.delay_holds_none, attempt, sent, ended, flying, now), now))

    def is_probe(self, attempt: object) -> bool:
        """Whether this attempt is a probe of an outage whose calls are held."""
        if self.holds_none:
            return False
        for lane in self._in.get(attempt, ()):  # noqa: SIM110  compiled, a `cpdef` method may have no generator
            if lane.outage.is_probe(attempt):
                return True
        return False

    def turns_away(self, attempt: object, now: float) -> bool:
        """Whether this attempt is a probe of an outage that has held a call for as long as a call may be held, and
        that either refuses new calls at once, or still has other calls in its queue. If such a probe could not connect,
        it is not sent again at once.
        """
        lanes = [lane for lane in self._in.get(attempt, ()) if lane.outage.is_probe(attempt)]
        return any(lane.outage.turns_away(now) or (lane.outage.in_vain and lane.queue) for lane in lanes)

    def stays(self, waiter: Waiter, caller: Caller, now: float) -> None:
        """Put a call first into the queue of its outage, because its attempt was the outage's probe, and may be sent
        again.
        """
        joined = []
        for _, lane in self.lanes.of_caller(caller):
            if lane.outage.is_on:
                lane.put_first(waiter, now)
                joined.append(lane)
        self._in[waiter] = tuple(joined)
        self.lanes.look(joined, now)

    def requests_wait(
        self, caller: Caller, status: int, delay: float, sent: float, now: float, whole: bool
    ) -> Name | None:
        """Note that an answer asked callers to wait. Returns the name of the lane in which this begins a cooldown; None
        if the answer belongs to a cooldown that had already begun. `status`: the answer's status. `delay`: the seconds
        to wait. `sent`: the time at which the answered attempt was sent. `whole`: the calls to all endpoints wait, not
        only those to the endpoint that answered.
        """
        self.lanes.refresh(caller, now)
        name = ("" if whole else caller.endpoint, ALL_CALLERS if status == 503 else caller.credential())
        lane = self.lanes.of(name)
        lane.lasts = lane.lasts or caller.limits
        before = lane.until
        began = lane.start(delay, status, sent, now)
        self.lanes.look((lane,), now)
        everybody = self.lanes.find((name[0], ALL_CALLERS))
        if everybody is not None and everybody is not lane and lane.until > before:
            for waiter in everybody.queue:
                waiter.retime(now)
        if self.lanes.fleet is not None and (began or lane.until > before):
            self.lanes.fleet.began(name, status, delay, sent=sent, now=now)
        return name if began else None

    def until(self, name: Name) -> float:
        """The time at which the delay of the lane `name` is over; minus infinity if the lane is not known any more."""
        lane = self.lanes.by_name.get(name)
        return -_NEVER if lane is None else lane.until

    def claim(self, waiter: Waiter, name: Name, due: float) -> bool:
        """Reserve the first place after the cooldown of the lane `name` for the call whose answer began the cooldown.
        `due`: the time (seconds) at which the call's next attempt is due. Returns whether the call got the place, which
        it does if the attempt is due before the cooldown is over.
        """
        lane = self.lanes.by_name.get(name)
        if lane is None or not lane.claim(waiter, due):
            return False
        self._in[waiter] = (lane,)
        return True

    # -- what is reported of it ---------------------------------------------------------------------------------------

    def wait_of(self, waiter: Waiter, now: float, hold: float = _NEVER) -> float:
        """An estimate of the seconds until this waiting call is sent, at the pace so far. `hold`: the most seconds that
        calls are held.
        """
        return max((lane.wait_of(waiter, now, hold) for lane in self._in.get(waiter, ())), default=0.0)

    def answer_time(self, waiter: Waiter, route: str) -> float:
        """The time, in seconds, in which an attempt of this waiting call is answered under the limits that hold
        it (the longest of its lanes' means), given the usual time of its route; 0 if nothing is known.
        """
        return self.usual.expect(route, max((lane.limit.round_trip for lane in self._in.get(waiter, ())), default=0.0))

    def left_for(self, caller: Caller, now: float) -> tuple[float, int]:
        """The seconds for which a delay still holds this call, and the status of the answer that began the delay; (0,
        503) if no delay holds it.
        """
        return longest([lane for _, lane in self.lanes.of_caller(caller)], now)

    def left_for_fields(self, fields: Fields, now: float) -> tuple[float, int]:
        """The seconds for which a delay still holds calls with these header fields (which carry their credential), and
        the status of the answer that began the delay; (0, 503) if no delay holds them.
        """
        return longest(self.lanes.with_fields(fields), now)

    def holds_caller(self, fields: Fields, now: float) -> bool:
        """Whether calls with these header fields (which carry their credential) are held now."""
        return any(not lane.is_over(now) for lane in self.lanes.with_fields(fields))

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._in

    def late_wait(self, caller: Caller, hold: float, now: float) -> float | None:
        """The seconds that this call may wait for the end of an outage that began more than `hold` seconds ago; None if
        no such outage holds the call. `hold`: the most seconds that a call is held.
        """
        for _, lane in self.lanes.of_caller(caller):
            if caller.outages and lane.holds(now) == "outage":
                wait = lane.late_wait(now, hold, retries=caller.retries)
                if wait is not None:
                    return wait
        return None

    def held_in_vain(self, waiter: Waiter, hold: float, now: float) -> None:
        """Note that this call was held for `hold` seconds, the longest that a call is held. If its outage has lasted
        for all of that time, no call is held for the end of that outage from now on.
        """
        for lane in self._in.get(waiter, ()):
            if lane.outage.is_on and lane.outage.is_late(now + STEP, hold):
                lane.change(lane.outage.held_in_vain, now)
        self.lanes.look(self._in.get(waiter, ()), now)

    def all_lanes(self) -> list[Lane]:
        """All lanes of the scope, including those for limits that answers report."""
        return [*self.lanes.all(), *(() if self.ahead is None else self.ahead.lanes())]

    def held(self) -> int:
        """The number of calls that are held."""
        return sum(len(lane.queue) for lane in self.lanes.by_name.values())


def _begin_with_outages(lanes: list[tuple[Name, Lane]], caller: Caller, now: float) -> bool:
    """Put those lanes of a call that have an outage before the others, and return whether there is such a lane now. If
    the call waited for a limit first, the outage's probe would not know that it waits.

    Lanes with a delay that holds the call come before these. Calls that can't be sent now would else pass the probe
    round: the one whose turn it is leaves the outage's queue for that of the delay, in which another's turn comes then,
    which the outage holds.
    """
    if not any(lane.outage.is_on and lane.outage.is_known(now) for _, lane in lanes):
        return False
    lanes.sort(key=_is_not_out)
    if caller.cools:
        lanes.sort(key=lambda named: now >= named[1].until)
    return True


def _give_way(lane: Lane, waiter: Waiter, why: str, now: float) -> None:
    """Take this call's place in the lane away, since another lane holds the call (`why`: what does). If its turn had
    come, and it waits for what answers say is left of limits, it keeps its turn.
    """
    if why == "ahead" and waiter in lane.due:
        lane.step_aside(waiter, now, brief=not is_credentials(lane.name))
    else:
        lane.leave(waiter, now)


def _cools(lane: Lane, waiter: Waiter, caller: Caller, now: float) -> bool:
    """Whether this call waits in the lane before it waits for what answers say is left of limits: a delay is not over,
    or calls wait in the lane for a reason that holds this call too, and its turn among them has not come. If some calls
    waited here first, and others for the limits, each would wait for the other.
    """
    if now < lane.until:
        return True
    return bool(lane.queue) and waiter not in lane.due and _applies(lane.holds(now), caller)


def _settle_probes(lanes: list[tuple[Name, Lane]], waiter: Waiter, why: str, usual: float, now: float) -> None:
    """Note how long the answer to this call usually takes (`usual`, in seconds), if it is the probe of one of these
    lanes' outages. Let another call be the probe if a delay holds this one (`why`: what holds it). A limit, that of a
    slow start too, gives it a place soon; calls that left for that passed the probe round for ever.
    """
    is_delayed = why == "cooldown" and any(now < lane.until for _, lane in lanes)
    for _, lane in lanes:
        if lane.outage.probe is waiter:
            if is_delayed:
                lane.leave(waiter, now)
            elif usual > LONG:
                lane.change(partial(lane.outage.expect_late, now), now)


def _is_not_out(named: tuple[Name, Lane]) -> bool:
    """The sort key of a lane with its name: False, which comes first, if the lane has an outage."""
    return named[1].outage.since == _NEVER


def _applies(holds: str, caller: Caller) -> bool:
    """Whether calls of this kind may be held for this reason. `holds`: "cooldown", "limit" or "outage"."""
    if holds == "outage":
        return caller.outages
    return caller.cools if holds == "cooldown" else caller.limits
