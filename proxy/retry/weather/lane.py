"""A lane: the queue of the calls to one endpoint, or of those of them that share a credential or a route. It decides
which of them may be sent now, and which wait (`proxy.retry.weather.governor` keeps the lanes).

Three things hold calls, and one queue serves all three (contract, sections 5 and 14):

- a cooldown: the upstream named a delay, and nothing is sent before it is over;

- a limit on the attempts under way (`proxy.retry.weather.limit`), while attempts end for want of capacity, or held
  calls
return;

- an outage (`proxy.retry.weather.outage`): attempts end without an answer, so one probe at a time is sent.

A place is one of the attempts that the limit allows to be under way. Law: a place is in use or free. It becomes free
when the head of its attempt's answer has come, when the attempt has ended, or `place_seconds` after the place was
taken. Every held call has an alarm: the first call in the queue has it set to the next moment at which it may be sent,
and any other call is given a new time when it moves up. No call is overtaken.

A call whose turn has come may then be held by another gate (the operator's rate). Such a call steps aside: it keeps its
turn, but has no place (`proxy.retry.weather.due_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from proxy.retry.capacity.traffic import Traffic
from proxy.retry.queues.fair_order import app_of
from proxy.retry.queues.lane_queue import LaneQueue
from proxy.retry.queues.waiter import Waiter
from proxy.retry.weather.due_calls import DueCalls
from proxy.retry.weather.fleet_part import FleetPart
from proxy.retry.weather.lane_places import LanePlaces
from proxy.retry.weather.limit import DOUBLES, Limit
from proxy.retry.weather.lost_rows import LostRow
from proxy.retry.weather.outage import Outage
from proxy.retry.weather.starter import Starter

_NEVER = float("inf")

#: Contract, sections 5 and 14: a place is given back after max(1 s, 2 x the delay, 4 x the usual time) at the latest.
SHORTEST_PLACE, DELAYS_A_PLACE, TIMES_A_PLACE = 1.0, 2.0, 4.0
#: Seconds: an upstream that has served no call for so long is expected to go on like that for as long again.
_IN_VAIN = 20.0


class Lane:
    """The calls to one endpoint, or those of them that share a credential or a route, and what holds them. Times are
    seconds on the callers' clock.

    `delay`: the seconds that the upstream asked callers to wait; `status` is the status of the answer that asked, and
    `begun` the time at which it came. `until`: the time at which that delay is over. `traffic`: the count of the
    endpoint's attempts. `limit` and `outage`: the lane's own. `queue`: the held calls. `lasts`: the limit may stay in
    force while no call waits (`concurrency: auto`). `places`: the calls and attempts that count under the limit. `due`:
    the calls whose turn has come, and which are not sent yet. `fleet`: this process's part of what machines share of
    the lane.
    """

    #: Whether it is the lane of all workers, rather than of this process alone.
    is_shared = False
    #: Whether its calls wait for what answers say is left of the upstream's limits (`proxy.retry.weather.ahead`).
    is_ahead = False
    __slots__ = (
        "_starter", "_well", "begun", "delay", "due", "fleet", "lasts", "limit", "name", "outage", "places", "queue",
        "status", "traffic", "until", "usual_time",
    )  # fmt: skip

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.name = ("", b"*")  # `caller.Name`
        self.until = -_NEVER
        self.delay = 0.0
        self.status = 503
        self.begun = -_NEVER
        self.limit = Limit(traffic)
        self.outage = Outage()
        self.lasts = False
        self.usual_time = 0.0  # the usual time of an answer; 0 if none is known
        self.fleet = FleetPart()
        self.queue = LaneQueue()
        self.places = LanePlaces()
        self.due = DueCalls()
        self._well = -_NEVER  # when a call was served last, or the first cooldown began
        self._starter = Starter()  # the call that has the first place once the delay is over

    # -- what holds calls -------------------------------------------------------------------------------------------

    def start(self, delay: float, status: int, sent: float, now: float) -> bool:
        """Note that the upstream named a delay (seconds). `status`: the status of the answer that named it. `sent`: the
        time at which the answered attempt was sent.

        Returns whether the answer begins a cooldown of its own. If not, it is one more answer to attempts that were
        sent before the cooldown in force.
        """
        if delay <= 0 or self.limit.evidence.delays_by_chance(now):
            return False
        new = self._begin(status, delay, sent, now)
        if new:
            self.fleet.cooldown_began()
            self._starter.named_until = now + delay
        if now + delay > self.until:
            self.until, self.delay = now + delay, delay
            # calls whose turn had come, but which are not sent yet, are held once more, before all others
            back = self.due.take_all()
            for waiter in back:
                self.places.vacate(waiter)
                self.outage.ended(waiter, now, lost=False)
            self.queue.put_first(back, now)
        retime_all(self.queue, now)
        return new

    def _begin(self, status: int, delay: float, sent: float, now: float) -> bool:
        limit = self.limit
        is_own = self.fleet.share < _NEVER and limit.is_on and not limit.returns  # the fleet gives the first place once
        is_first = self.is_over(now) or not (limit.is_on or now < self.until)
        if not is_first and sent <= self.begun:
            return False
        if now > self.until + self.place_seconds:
            self._well = now
        if self.fleet.share == _NEVER and not is_first:  # machines that share their places make no test
            limit.evidence.cooldown(
                delay, next(iter(self.queue.calls.values()), now), now, may_reserve=_may_reserve(self)
            )
        if is_first or is_own:
            limit.return_slowly(now)
            self.places.forget()
        else:
            limit.halve(now)
        self.begun, self.status = now, status
        if self._starter.waiter is not None:
            self.places.vacate(self._starter.waiter)
            self._starter.waiter = None
        return True

    def started_elsewhere(self, delay: float, status: int, now: float) -> None:
        """Note a delay (seconds) that an answer with this status named on another machine. After the delay, that
        machine sends the first call; this process sends none until the fleet gives it a share of the places.
        """
        if self.start(delay, status, now, now) and self.fleet.share < _NEVER:
            self.fleet.share = 0.0

    def change(self, operation: Callable[[], object], now: float) -> object:
        """Carry out an operation on the lane by calling `operation`, and return what that returns. Where processes
        share the lane, an override makes it one change for all of them.
        """
        return operation()

    def count_before(self) -> None:
        """Count the attempts that were under way when the limit began, because another process began it: these attempts
        hold no place under the limit.
        """
        self.places.limit_began(self.traffic.flying)

    @property
    def outlasts(self) -> bool:
        """Whether the limit stays in force while no call waits. False for a limit that the fleet shares after a
        cooldown, since it only lets held calls return.
        """
        return self.lasts and not (self.limit.returns and self.fleet.share < _NEVER)

    def claim(self, waiter: Waiter, due: float) -> bool:
        """Reserve the first place for the call whose answer began the cooldown. `due`: the time (seconds) at which its
        retry is due. Returns whether the call got the place: only if its retry is due before the cooldown's delay is
        over, and no other call has the place.
        """
        if self._starter.waiter is None and due <= self.until:
            self._starter.claim(waiter)
            self.places.occupy(waiter, self.until)
            self.limit.pace.sent(self.until, len(self.queue))
        return waiter is self._starter.waiter

    def refused_freely(self, how: str, flying: int, now: float, quick: bool = False) -> bool:
        """Note that the attempt which ended last was refused while there was no limit. Returns whether one begins.
        `how`: a status, or a kind of fault. `flying`: how many attempts are under way. `quick`: the refusal came sooner
        than answers.
        """
        limit = self.limit
        if limit.is_on or not limit.evidence.refused(how, now, now >= limit.given_up_until, quick):
            return False  # another worker's may have begun meanwhile
        limit.begin_at_half(flying, now)
        self.places.limit_began(flying)
        if self.fleet.link is not None:
            self.fleet.link.limit_began(now)
        return True

    def refused(self, sent: float, now: float, flying: int, quick: bool, silent: bool = False) -> None:
        """Note that an attempt was refused for want of capacity under the limit. `sent`: the time at which it was sent.
        `flying`: how many attempts were under way. `quick`: an answer refused it, sooner than a request that is served
        is answered. `silent`: no answer came.
        """
        limit = self.limit
        most = limit.most
        if most == _NEVER:
            return  # another worker has ended it meanwhile
        limit.refused(sent, now, flying, quick=quick, silent=silent)
        if limit.judge(now):
            self.end_limit(now)
        elif limit.most < most and self.fleet.link is not None:
            self.fleet.link.limit_cut(limit.most / most, sent, now)

    def asked_to_wait(self, attempt: object, sent: float, now: float, quick: bool) -> None:
        """Note that an attempt was refused by an answer that names a delay, for which calls are held. `sent`: the time
        at which the attempt was sent. `quick`: the answer came sooner than a request that is served is answered.
        """
        self.limit.evidence.delay_holds(attempt, now)
        self.limit.asked_to_wait(sent, now, quick=quick)

    def lost(self, now: float, share: float, row: LostRow, again: bool = False, of_path: int = 0) -> bool:
        """Note that an attempt ended without an answer (`Outage.lost`). Returns whether an outage begins."""
        began = self.outage.lost(now, share, row, again, of_path)
        if began and self.fleet.link is not None:
            self.fleet.link.outage_began(now)
        return began

    def begin_outage(self, now: float, row: LostRow, answered_at: float) -> None:
        """Begin an outage, if there is none. `row`: the attempts in a row that ended without an answer. `answered_at`:
        the time of the last answer.
        """
        if not self.outage.is_on:
            self.outage.begin(now, row, answered_at)

    def end_outage(self, now: float) -> None:
        """End the outage although no answer came, because the outage of another lane covers its calls too. The held
        calls ask again.
        """
        self.outage.forget()
        retime_all(self.queue, now)

    def time_probe(self, now: float, other: Lane, out: int = 0) -> None:
        """Choose the time of the outage's next probe by the state of another endpoint, whose lane is `other`. If that
        endpoint is out too, its probes and these are kept apart; if it has answered, the probe is sent soon. `out`: how
        many endpoints are out.
        """
        if other.outage.is_on:
            self.outage.keep_apart(other.outage, out)
        else:
            self.outage.probe_soon(now)
            self.release(now)

    def probe_lost(self, attempt: object, now: float) -> bool:
        """Note that an attempt ended without an answer. Returns whether it was a probe of the outage."""
        return self.outage.ended(attempt, now, lost=True)

    def late_wait(self, now: float, hold: float, *, retries: bool) -> float | None:
        """The seconds that a call may wait which comes when the outage has lasted for more than `hold` seconds, the
        longest that a call is held. None if the outage is younger. `retries`: the call has made an attempt.
        """
        return self.outage.late_wait(now, hold, is_first=not self.queue, retries=retries)

    def answered(self, now: float, slowness: float = 1.0) -> bool:
        """Note that an attempt was answered. Returns whether this ends an outage; the held calls are then sent slowly,
        under a limit. `slowness`: that of the limit of all calls to the endpoint (`Limit.slowness`).
        """
        if not self.outage.answered(now):
            return False
        self.begun = self._well = now
        self.limit.return_slowly(now, cooldown=False, slowness=slowness)
        self.places.forget()
        if self.fleet.link is not None:
            self.fleet.link.outage_over(now)
        self.release(now)
        return True

    # -- callers ----------------------------------------------------------------------------------------------------

    def is_over(self, now: float) -> bool:
        """Whether nothing holds calls: no call waits, and a call that came now would not have to."""
        if now < self.until or self.queue or self.fleet.elsewhere or self.outage.since < _NEVER:
            return False
        return self.limit.most == _NEVER or not self.outlasts

    def holds(self, now: float) -> str:
        """The reason for which calls are held now: "outage", "cooldown" (which includes the slow start after it), or
        "limit"; "" if none are held.
        """
        if self.outage.is_on:
            if self.outage.is_known(now):
                return "outage"
            self.outage.forget()
        if now < self.until or self.fleet.elsewhere:
            return "cooldown"
        if self.limit.is_on and not self.queue:
            self._end_limit(now)  # it may be over since the last call came
        if self.limit.is_on:
            return "cooldown" if self.limit.returns else "limit"
        return "cooldown" if self.queue else ""

    def passes(self, now: float) -> bool:
        """Whether one more attempt could be sent at once: no call waits in the queue, no delay, pace or outage is in
        force, and a place is free. The result has a meaning only while the lane holds calls (`holds`).
        """
        return not self.queue and _has_place_now(self, now)

    def ask(self, waiter: Waiter, now: float, retries: bool = False) -> float:
        """Return `now` if the call may be sent. If not, return the time at which it asks again at the latest, or
        infinity if its alarm will be moved when its turn comes. `retries`: the call has made an attempt; an outage does
        not delay such a call if no other call is held.
        """
        if waiter in self.due.admitted:
            return now
        starter = self._starter
        if waiter is starter.waiter and self.fleet.share >= 1 and starter.may_go(now, self.until):
            starter.waiter = None  # its own attempt was given the delay in force, so it does not queue
            self.due.admitted[waiter] = None
            self.places.occupy(waiter, now)
            return now
        if self.outage.is_on and not self.outage.is_known(now):
            self.outage.forget()
        if self.is_over(now) or (waiter in self.due.aside and self._takes_turn(waiter, now)):
            return now
        if waiter is starter.waiter:  # a longer delay was named meanwhile: the starter is held too, before the others
            starter.waiter = None
            self.places.vacate(waiter)
            self.queue.put_first((waiter,), now)
        elif waiter not in self.queue:
            if retries and self.outage.is_on and self.outage.probe is None and not self.queue and now >= self.until:
                self.outage.probe_at = now
            self.queue.join(waiter, now)
            if not retries and self.limit.evidence.by_chance is not None:
                self.limit.evidence.by_chance.came(now)
            if app_of(waiter) is not None:  # the first may be a probe that stays held
                left, share = max(0.0, self.until - now), self.fleet.places(self.limit.returns)
                self.queue.arrange(self.outage.is_on, now, partial(_wait_behind, left, self.limit, now, share))
        self.queue.asks(waiter)
        self.release(now, asking=waiter)
        if waiter in self.due.admitted:
            return now
        if self.fleet.link is not None:
            self.fleet.link.held(now)
        return self._next(now) if waiter is self.queue.first() else _NEVER

    def step_aside(self, waiter: Waiter, now: float, brief: bool = False) -> None:
        """Take back the place that this call was given, because another gate holds the call. The call keeps its turn:
        when it asks again, it goes before those in the queue. A call that is an outage's probe keeps its place.
        `brief`: the queue does not wait for this call for long, since others in it may not have to pass that gate.
        """
        if waiter not in self.due.admitted or self.outage.is_probe(waiter):
            return
        self.due.step_aside(waiter, now, is_brief=brief)
        self.places.vacate(waiter)
        self.limit.pace.not_sent()
        self.release(now)

    def _takes_turn(self, waiter: Waiter, now: float) -> bool:
        """Whether this call, which stepped aside, gets a place now. If not, all calls that stepped aside and have no
        place return to the head of the queue. The others among them ask again, so that they leave the queue of the gate
        that held them.
        """
        if _has_place_now(self, now):
            self.due.admitted[waiter] = None
            self.places.occupy(waiter, now)
            self.limit.pace.sent(now, len(self.queue))
            return True
        back = self.due.recall()
        self.queue.put_first(back, now)
        del back[waiter]
        retime_all(back, now)
        return False

    def has(self, waiter: Waiter) -> bool:
        """Whether the waiting call is in the queue, has a place, or has stepped aside."""
        return waiter in self.queue or waiter in self.places.taken or waiter in self.due

    def put_first(self, waiter: Waiter, now: float) -> None:
        """Put a call at the head of the queue, because its attempt was an outage's probe, and may be sent again."""
        self.queue.put_first((waiter,), now)

    def sent(self, waiter: Waiter, attempt: object, now: float) -> bool:
        """Note that the waiting call's attempt is being sent. Returns whether the attempt has a place."""
        self.outage.sent(waiter, attempt)
        if self._starter.waiter is waiter:  # it was due at the very end of the delay, so that nothing held it
            self._starter.waiter = None
        if self.due.sent(waiter, now) and self.queue:
            self.release(now)
        if not self.places.sent(waiter, attempt):
            return False
        self.limit.sent(now)
        if self.limit.evidence.by_chance is not None:
            self.limit.evidence.by_chance.sent(waiter, attempt, len(self.queue), now)
        return True

    def landed(
        self, attempt: object, sent: float, now: float, well: bool, ratio: float = 0.0, usual: float = 0.0
    ) -> None:
        """Note that the head of the answer to an attempt has come, or that the attempt has ended. `sent`: the time at
        which the attempt was sent. `well`: its answer is no failure of the upstream's. `usual`: the usual time of such
        an answer in seconds. `ratio`: the time that the answer took, as a multiple of `usual`. Both are 0 if no usual
        time is known.

        An attempt that was sent before the cooldown in force began does not make the limit grow, because its answer
        says nothing about the upstream since then.
        """
        self.usual_time = usual
        self.free_place(attempt, sent, now)
        by_chance = self.limit.evidence.by_chance
        if well and by_chance is not None and by_chance.served(attempt, now, ratio):
            self._well = self.until = now
            self.release(now)
        if well and sent >= self.begun:
            self._well = now
            self.limit.last_ratio = ratio
            if not self.is_over(now):
                most = self.limit.most
                self.limit.served(sent, now, ratio)
                if self.limit.judge(now):
                    self.end_limit(now)
                elif self.limit.most < most and self.fleet.link is not None:
                    self.fleet.link.limit_cut(self.limit.most / most, sent, now)
        if now >= self.until:
            self.release(now)

    def free_place(self, attempt: object, sent: float, now: float) -> None:
        """Free the place of an attempt, which was sent at the time `sent`. If it was the probe of an outage, note that
        the probe has ended.
        """
        self.outage.ended(attempt, now, lost=False)
        if attempt in self.places.taken:
            self.places.vacate(attempt)
        elif sent <= self.limit.begun:  # else it had a place, which was freed when its head came
            self.places.free_before()

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call, which sends nothing any more, and free its place in the queue or among the
        attempts.
        """
        if waiter is self._starter.waiter:
            self._starter.waiter = None
        if not self.outage.ended(waiter, now, lost=False) and waiter in self.due.admitted:
            self.limit.pace.not_sent()
        self.queue.leave(waiter)
        self.due.leave(waiter)
        self.places.vacate(waiter)
        if self.limit.evidence.by_chance is not None:
            self.limit.evidence.by_chance.reserving.times.left(waiter)
        self.release(now)

    def wait_of(self, waiter: Waiter, now: float, hold: float = _NEVER) -> float:
        """An estimate of the seconds until the waiting call is sent; 0 during an outage, whose end can't be known.
        While all attempts are refused, only the delay counts at first, and after 20 seconds twice the time that this
        has lasted. `hold`: the most seconds that calls are held.

        The first call in the queue is sent when the delay is over, and each other one later, at the pace that the limit
        allows. If no call has been served for 20 seconds or more, and none since the cooldown in force began, the wait
        of all but the first is taken to be at least as long again.
        """
        if self.outage.is_on:
            return 0.0  # its end can't be known
        left = max(0.0, self.until - now)
        idle = now - self._well if self.begun > self._well else 0.0
        if idle < _IN_VAIN:
            idle = 0.0
        ahead = self.queue.ahead_of(waiter)
        if not ahead:
            return left
        if self.limit.all_refused.is_known(now):  # its end can't be; but if it has lasted, as long again is expected
            lasted = now - self.limit.all_refused.since
            return max(left, 2.0 * lasted if lasted >= _IN_VAIN else 0.0)
        wait = left + self.limit.wait_for(ahead, now, self.fleet.places(self.limit.returns))
        if wait > hold - (now - self.queue.calls.get(waiter, now)):
            wait = self.queue.turn_of(waiter, now + left, (wait - left) / ahead, hold) - now
        return max(wait, idle)

    # -- places -----------------------------------------------------------------------------------------------------

    @property
    def place_seconds(self) -> float:
        """The longest that a place is in use, in seconds."""
        return max(SHORTEST_PLACE, DELAYS_A_PLACE * self.delay, TIMES_A_PLACE * self.usual_time)

    def free(self, now: float) -> float:
        """The number of free places that this process may give to waiting calls now; infinity if there is no limit."""
        limit = self.limit
        if not limit.is_on:
            return _NEVER
        places = self.places
        places.expire(limit.begun, self.place_seconds, now)
        if self.usual_time > 2.0 * DOUBLES and self.queue and places.in_use() >= int(limit.most):
            limit.grow_unanswered(self.usual_time, now - places.oldest(limit.begun, now), now)
        return min(int(limit.most) - places.in_use(), self.fleet.places(limit.returns) - places.own_in_use())

    def release(self, now: float, asking: Waiter | None = None) -> None:
        """Give the free places to the first calls in the queue, and set the alarm of the call that is then first.
        `asking`: the call that is just asking, whose alarm need not be set.
        """
        if now >= self.until and self.queue:
            by_chance = self.limit.evidence.by_chance
            if self.outage.is_on:
                self._probe(now, asking)
            elif by_chance is not None and by_chance.opens(now):
                self.end_limit(now, by_chance.pace(now))
            else:
                self._release(now, asking)
        first = self.queue.first()
        if first is not None and first is not asking:
            asks_now = now < self.until or first in self.queue.returned
            first.retime(now if asks_now else self._next(now))
        elif first is None:
            self._end_limit(now)

    def _release(self, now: float, asking: Waiter | None) -> None:
        if self.due.block_until(now, self.place_seconds) > now:
            return
        free, limit, times = self.free(now), self.limit, None
        order = self.queue.order if self.fleet.link is None else None
        by_chance = limit.evidence.by_chance
        if limit.is_draining and by_chance is not None and by_chance.paces(now):
            limit.pace.slow_down(by_chance.pace(now))
            if by_chance.reserving.is_on(now):
                times = by_chance.reserving.times
                limit.pace.next_at = times.plan(now, len(self.queue), by_chance.pace(now))
        at_once = 0 if by_chance is None or not by_chance.at_once else by_chance.take_at_once(len(self.queue), now)
        while self.queue and (at_once > 0 or (free >= 1 and now >= limit.pace.next_at)):
            first = self.queue.first() if order is None else order.first(self.queue.calls, now)
            if first is None:
                return  # it is the turn of a call of another worker
            free, at_once = free - 1, at_once - 1
            self._admit(first, now, asking)
            limit.pace.sent(now, len(self.queue))
            if times is not None:
                times.take(first, now)
                limit.pace.next_at = times.plan(now, len(self.queue), limit.pace.rate)

    def _probe(self, now: float, asking: Waiter | None) -> None:
        """Send the first call in the queue as a probe, if one is due. `asking`: the call that is just asking, whose
        alarm need not be set.
        """
        outage = self.outage
        if self.fleet.may_probe and outage.is_due(now):
            first = next(iter(self.queue))
            outage.probes(first)
            self._admit(first, now, asking)

    def _admit(self, waiter: Waiter, now: float, asking: Waiter | None) -> None:
        self.limit.held(self.queue.admit(waiter), now)
        self.due.admitted[waiter] = None
        self.places.occupy(waiter, now)
        if waiter is not asking:
            waiter.retime(now)

    def _end_limit(self, now: float) -> None:
        """End the limit if it is not needed any more: no call waits, here or on other machines, and less than half of
        the limit is used.
        """
        limit = self.limit
        if limit.most == _NEVER or now < self.until or self.outage.is_on:
            return
        is_elsewhere = self.fleet.elsewhere or self.fleet.limited_elsewhere
        if not is_elsewhere and (not self.outlasts or limit.is_over(self.places.in_use(), now)):
            self.end_limit(now)

    def end_limit(self, now: float, pace: float = 0.0) -> None:
        """End the limit. The calls that it holds are sent: all at once if machines share the limit; otherwise spread
        over a few seconds, or at the pace `pace` (sendings a second) if that is not 0.
        """
        self.limit.end(now)
        self.delay, self.places.before = 0.0, 0
        self.fleet.limit_over()
        if self.fleet.link is not None:
            self.fleet.link.limit_over(now)
            every = self.queue.take_all()
            self.due.admitted.update(dict.fromkeys(every))
            retime_all(every, now)
        elif self.queue:
            self.limit.drain(len(self.queue), now, pace)
            self.release(now)

    def _next(self, now: float) -> float:
        """The time at which the first call in the queue may be sent, unless a place becomes free sooner or the delay
        changes.
        """
        if now < self.until:
            return self.until
        if self.outage.is_on:
            if not self.fleet.may_probe:
                return _NEVER
            at = self.outage.probe_at if self.outage.probe is None else self.outage.long_at
            return max(at, math.nextafter(now, _NEVER))
        blocked = self.due.block_until(now, self.place_seconds)
        if blocked > now:
            return blocked
        has_none = not self.places.taken and not self.places.before and self.fleet.places(self.limit.returns) < _NEVER
        if has_none and self.free(now) < 1:
            return _NEVER  # other machines have the places; this process is given its share later
        if self.limit.pace.holds(now) and self.free(now) >= 1:
            return max(self.limit.pace.next_at, math.nextafter(now, _NEVER))
        since = self.places.oldest(self.limit.begun, self.until)
        at = min(since + self.place_seconds, self.limit.doubles_at(now))
        return max(at, math.nextafter(now, _NEVER))


def _has_place_now(lane: Lane, now: float) -> bool:
    """Whether this lane may give a place to a call now: no delay, pace or outage holds the call, and a place is
    free.
    """
    is_due = now >= lane.until and now >= lane.limit.pace.next_at
    return is_due and not lane.outage.is_on and lane.free(now) >= 1


def _may_reserve(lane: Lane) -> bool:
    """Whether the calls of this lane may be sent at reserved times: no other process or machine has calls in it."""
    return not lane.is_shared and lane.fleet.link is None


def retime_all(calls: Iterable[Waiter], now: float) -> None:
    """Have each of these calls ask again at once, so that a call which would now have to wait for too long is
    refused.
    """
    for waiter in list(calls):
        waiter.retime(now)


def _wait_behind(left: float, limit: Limit, now: float, share: float, before: int) -> float:
    """The seconds that a call waits with `before` others before it. `left`: the seconds in which no call is sent at
    all. `share`: how many places of the limit this process may use.
    """
    return left + limit.wait_for(before, now, share)
