"""A lane that the workers of one machine share. A cooldown, limit or outage that one worker meets holds the calls of
all workers, the places of all workers are counted together, and in an outage one probe at a time is sent for all of
them.

The rules are those of `proxy.retry` alone. Their numbers are read from memory before an operation and published after
it, under the record's lock. A call waits in its own worker: in order of arrival there, and nearly so over all workers
(`longest_wait`); or, if apps have names, in the order that all workers share (`lane_turns`).

The first call of each worker checks every POLL seconds whether it may be sent. Whether a limit or an outage begins is
judged by the attempts of all workers: refusals are kept in the lane's record, and how many attempts have ended beside
it (`traffic`); attempts without an answer have a record of their own (`lost_rows`). While there is no cooldown, limit
or outage, an attempt that goes well takes no lock.

Places of a worker that has died are counted for a while (`lane_places`). If the process whose attempt is the probe has
ended, another probe is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar, cast

from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.queues.fair_order import app_of
from proxy.retry.queues.waiter import Waiter
from proxy.retry.weather.all_refused import AllRefused
from proxy.retry.weather.answer_times import AnswerTimes
from proxy.retry.weather.lane import Lane, retime_all
from proxy.retry.weather.limit import Limit, SinceCut
from proxy.retry.weather.outage import Outage
from proxy.retry.weather.spacing import Spacing
from proxy.retry.weather.trial import Cohort, Trial
from proxy.stores.shared_memory.evidence import Share, SharedEvidence
from proxy.stores.shared_memory.lane_places import SharedLanePlaces
from proxy.stores.shared_memory.lane_probe import ELSEWHERE, SharedProbe
from proxy.stores.shared_memory.longest_wait import LongestWait
from proxy.stores.shared_memory.numbers import Names, Numbers
from proxy.stores.shared_memory.records import LANE_COPY, Record
from proxy.stores.shared_memory.scope import LEASE, SharedScope

#: Seconds between two checks for places that other workers may have given back.
POLL = 0.01
#: Seconds for which a worker's calls count as held after each check; every check renews that.
HELD = 0.25
#: Seconds after which a worker tells the others again that attempts are answered.
_TELL = 1.0
#: The calls at the head of a queue of which one may wait longest: those that were put back count from then.
_HEAD = 8

_NEVER = float("inf")

#: The attributes of a limit and an outage that are shared, beside the evidence; the growth that a fleet is told of, and
#: the probe are each worker's own. A test compares this with the attributes that these classes have.
SHARED: Names = {
    Limit: (
        *("_answers", "_base", "_cut_at", "_ended_at", "_given_up_for", "_quick_at"),
        *("_since_cut", "_slow", "_slow_most", "_slow_since", "_spaced", "_trial", "_unbound"),
        *("all_refused", "begun", "given_up_until", "held_at", "is_draining", "last_ratio", "most", "pace", "returns"),
        *("round_trip", "threshold", "timed_out_at", "was_chance"),
    ),
    AllRefused: ("_at", "_row", "_serves", "gap", "is_on", "most", "since", "threshold"),
    AnswerTimes: (
        *("_at", "_count", "_given_up", "_last_gap", "_quicker", "_quicker_slowest", "_slower", "_usual", "gap"),
        *("gap_long", "missing_at"),
    ),
    Spacing: (
        *("_base", "_came", "_careful", "_counted_at", "_counted_from", "_cut_at", "_early", "_gap", "_pressed_since"),
        *("_proven", "_stays", "_steady_until", "_sure", "_top", "_used", "_waiting", "is_guess", "next_at", "rate"),
        "sendings",
    ),
    SinceCut: ("doubled_at", "fastest", "latest", "refused", "sent", "served", "unanswered"),
    Trial: ("_by_silence", "_is_first", "_seen", "_share", "_since", "_slowness", "first", "is_on", "pace", "second"),
    Cohort: ("_logs", "_timed", "ended", "quick", "refused", "silent", "under_way"),
    Outage: (
        *("_gap", "_probed_at", "_since", "_tried_at", "_turned", "_turned_at", "answered_at", "begins_again"),
        *("in_vain", "long_at", "probe_at", "since"),
    ),
}
_LIMIT = Numbers(Limit(Traffic()), SHARED)
_OUTAGE = Numbers(Outage(), SHARED)

#: No version of a record.
NONE = (0, 0)

M = TypeVar("M", bound=Callable[..., Any])


def shared(position: int) -> Callable[[M], M]:
    """Make a decorator for a method of Lane, which runs it on the state in shared memory, under its lock, and publishes
    the change. `position`: the position of the argument that is the time, counted from 0 without `self`.
    """

    def wrap(method: M) -> M:
        def run(self: SharedLane, *arguments: Any, **options: Any) -> Any:
            record = self.record
            if record.is_open:
                return method(self, *arguments, **options)
            now = arguments[position]
            record.open()
            try:
                if record.version != self._version:  # another worker's operation was the last one
                    self._version = NONE
                    record.load(self)
                self.begin(now)
                answer = method(self, *arguments, **options)
                is_noted = self.finish(now)
                record.save(self)
                self._version = record.version
            except BaseException:
                self._version = NONE  # what is known here was not published
                self._evidence.forget()
                raise
            finally:
                record.close()
            if not is_noted:
                self.note_late(now)
            return answer

        return cast(M, run)

    return wrap


class SharedLane(Lane):
    """A lane in shared memory. `scope`: the state that all lanes of its scope have in common; `key`: a number that
    identifies the lane among these. `share`: shares the count of the endpoint's attempts, under the number of this
    lane's record; None if another lane's record has that number. `row`: this worker's row of the memory.
    """

    is_shared = True
    __slots__ = (
        "_busy", "_evidence", "_key", "_limit_seen", "_scope", "_seen", "_told",
        "_version", "_was_limited", "_whose_probe", "held",
        "record",
    )  # fmt: skip

    places: SharedLanePlaces

    def __init__(
        self, traffic: Traffic, record: Record, scope: SharedScope, key: float, share: Share | None, row: int
    ) -> None:
        super().__init__(traffic)
        self.places = SharedLanePlaces(LongestWait(row))
        self.record = record
        self._scope = scope
        self._key = key
        self._evidence = SharedEvidence(record, share)
        self._evidence.count_by(traffic)
        self._version = NONE  # the version of the record that this object's state is
        self._busy = -_NEVER  # until when calls may be held
        self.held = -_NEVER  # until when some worker's calls are held (seconds)
        self._seen = -_NEVER  # `begun` of the pushback or the outage's end that this worker's calls know of
        self._limit_seen = -_NEVER  # `begun` of the limit that this worker knows of
        self._was_limited = False  # there was a limit after this worker's last operation
        self._whose_probe = SharedProbe()  # of the outage
        self._told = -_NEVER  # when this worker last told others that an attempt was answered

    start = shared(3)(Lane.start)
    change = shared(1)(Lane.change)
    asked_to_wait = shared(2)(Lane.asked_to_wait)
    lost = shared(0)(Lane.lost)
    begin_outage = shared(0)(Lane.begin_outage)
    end_outage = shared(0)(Lane.end_outage)
    time_probe = shared(0)(Lane.time_probe)
    end_limit = shared(0)(Lane.end_limit)
    answered = shared(0)(Lane.answered)
    probe_lost = shared(1)(Lane.probe_lost)
    late_wait = shared(0)(Lane.late_wait)
    passes = shared(0)(Lane.passes)
    put_first = shared(1)(Lane.put_first)
    step_aside = shared(1)(Lane.step_aside)
    leave = shared(1)(Lane.leave)
    wait_of = shared(1)(Lane.wait_of)
    free = shared(0)(Lane.free)
    release = shared(0)(Lane.release)
    ask = shared(1)(Lane.ask)

    @shared(2)
    def started_elsewhere(self, delay: float, status: int, now: float) -> None:
        """Start the cooldown for a pushback that came on another machine, in an answer with this status: hold calls
        until `delay` seconds from `now`. The first worker that hears of the pushback records it for all workers. After
        the cooldown, a worker of a fleet sends no call until the fleet gives it a share of the places of the slow
        start.
        """
        if now + delay > self.until:
            self.start(delay, status, now, now)
        if self.fleet.share < _NEVER:
            self.fleet.share = 0.0

    def claim(self, waiter: Waiter, due: float) -> bool:
        return self._claim(waiter, due, self.begun)

    @shared(2)
    def _claim(self, waiter: Waiter, due: float, now: float) -> bool:
        return super().claim(waiter, due)

    refused = shared(1)(Lane.refused)

    @shared(2)
    def refused_freely(self, how: str, flying: int, now: float, quick: bool = False) -> bool:
        began = super().refused_freely(how, flying, now, quick)
        if began:
            self._limit_seen = self.limit.begun
        return began

    def tell_answered(self, now: float) -> None:
        """Note in shared memory, for the other workers, that attempts are answered, at most once a second."""
        if now >= self._told + _TELL:
            self._told = now
            self._tell(now)

    @shared(0)
    def _tell(self, now: float) -> None:
        self.outage.answered_at = max(self.outage.answered_at, self.traffic.answered_at)

    @shared(0)
    def is_over(self, now: float) -> bool:
        return now >= self.held and super().is_over(now)

    @shared(0)
    def holds(self, now: float) -> str:
        return super().holds(now) or ("cooldown" if now < self.held else "")

    @shared(2)
    def sent(self, waiter: Waiter, attempt: object, now: float) -> bool:
        return super().sent(waiter, attempt, now)

    def landed(
        self, attempt: object, sent: float, now: float, well: bool, ratio: float = 0.0, usual: float = 0.0
    ) -> None:
        if attempt not in self.places.taken and self._is_calm(now):
            if well and sent >= self.begun:
                self._well = now
            return
        self._landed(attempt, sent, now, well=well, ratio=ratio, usual=usual)

    @shared(2)
    def _landed(self, attempt: object, sent: float, now: float, well: bool, ratio: float, usual: float) -> None:
        super().landed(attempt, sent, now, well=well, ratio=ratio, usual=usual)

    def free_place(self, attempt: object, sent: float, now: float) -> None:
        if self.places.mine or attempt in self.places.taken or attempt is self.outage.probe:
            self._free_place(attempt, sent, now)

    @shared(2)
    def _free_place(self, attempt: object, sent: float, now: float) -> None:
        super().free_place(attempt, sent, now)

    def count_before(self) -> None:
        self._limit_seen = self.limit.begun
        self.places.limit_came(self.traffic.flying)

    def refresh(self, now: float) -> None:
        """Bring this object up to date with what other workers have published."""
        if self.outage.begins_again or not self._is_calm(now):
            self.holds(now)

    def look(self) -> None:
        """Bring this object up to date with what other workers have published, only to show its figures: nothing else
        is done.
        """
        self._version = NONE
        self.record.look(self)

    # -- one operation ----------------------------------------------------------------------------------------------

    def _is_calm(self, now: float) -> bool:
        """Whether the lane holds no call in any worker, and this worker has no waiting call, no place in the lane, and
        knows of no limit and no outage, which another worker may have ended.
        """
        places, is_on = self.places, self.limit.is_on or self.outage.is_on
        return now >= self.record.peek() and not (is_on or self.queue or places.taken or places.mine)

    def begin(self, now: float) -> None:
        """Begin an operation on the lane: first carry out what follows from other workers' operations since this
        worker's last one.
        """
        outage, limit, places = self.outage, self.limit, self.places
        places.begin_generations(self.place_seconds / 2, now)
        if self._whose_probe.is_lost(outage.probe):
            outage.probe_ended(now, lost=False)
        if limit.begun != self._limit_seen:
            self._limit_seen, places.mine = limit.begun, 0
            if limit.is_on and limit.has_evidence:
                places.limit_came(self.traffic.flying)
                limit.add_under_way(places.mine)
        if self._was_limited and not limit.is_on:
            places.mine = 0
            self.fleet.limit_over()
            self.traffic.skip(now)
        if self._seen != self.begun:  # another worker's pushback, or its outage is over: all calls here ask again
            retime_all(self.queue, now)

    def finish(self, now: float) -> bool:
        """Finish an operation on the lane: note in its scope until when the lane may hold calls. Returns False if that
        could not be noted (`SharedScope.note`).
        """
        if self.queue.order is not None and self.fleet.link is None:
            self.queue.order.sync(self.queue.calls, now)
        self.places.longest.note(self._waits_since(), now)
        if self.queue or self.fleet.elsewhere:
            self.held = max(self.held, now + HELD, self.until + HELD)
        if self.outage.late:  # another worker's is late there
            self.outage.late = tuple([each for each in self.outage.late if each is not ELSEWHERE])
        before, busy = self._busy, max(self.until, self.held)
        if self.outage.is_on or self.fleet.elsewhere or (self.outlasts and self.limit.is_on):
            busy = max(busy, now + LEASE)
        self._seen, self._busy, self._was_limited = self.begun, busy, self.limit.is_on
        return max(before, busy) <= now or self._scope.note(self._key, busy, self.until, now)

    def note_late(self, now: float) -> None:
        """Note in the scope what `finish` could not note there, after looking the scope's record up again."""
        self._scope.look_up()
        self.refresh(now)

    def restore(self, state: tuple[float, ...]) -> None:
        self._evidence.count_by(self.traffic)  # under another number, if the record is another one
        outage = self.outage
        answered_at, probe, since = outage.answered_at, outage.probe, outage.since
        self._busy, self.until, self.delay, status, self.begun, lasts, self.usual_time, well = state[:8]
        self.held = state[8]
        self.places.restore(*state[9:13])
        self.traffic.served_at = max(self.traffic.served_at, state[15])
        self.places.longest.restore(*state[16:19])
        _LIMIT.give(self.limit, state[19:])
        _OUTAGE.give(outage, state[19 + _LIMIT.count :])
        self._evidence.restore(self.limit.evidence, state[19 + _LIMIT.count + _OUTAGE.count :])
        if outage.since != since:  # another worker has found or ended it
            outage.endings, outage.late = [], ()
        self.status = int(status)
        self.lasts = self.lasts or bool(lasts)
        self._well = max(self._well, well)
        outage.answered_at = max(outage.answered_at, answered_at)
        outage.probe = self._whose_probe.restore(state[13], state[14], probe)
        if outage.is_on and outage.since == since and probe not in (None, ELSEWHERE, outage.probe):
            outage.stays_late(probe)  # another worker's follows it

    def state(self) -> tuple[float, ...]:
        return (
            *(self._busy, self.until, self.delay, self.status, self.begun, self.lasts, self.usual_time, self._well),
            *(self.held, *self.places.state(), *self._whose_probe.state(self.outage.probe), self.traffic.served_at),
            *self.places.longest.state(),
            *_LIMIT.take(self.limit),
            *_OUTAGE.take(self.outage),
            *self._evidence.state(self.limit.evidence),
        )

    # -- when calls go ----------------------------------------------------------------------------------------------

    def _waits_since(self) -> float | None:
        """The time since which the call of this worker waits that waits longest, if calls go in order of arrival over
        the workers; None if none waits, or another order holds.
        """
        first = self.queue.first()
        if first is None or app_of(first) is not None or self.fleet.link is not None:
            return None
        return min(islice(self.queue.calls.values(), _HEAD))

    def _is_turn(self, now: float) -> bool:
        """Whether this worker may send its first call, since no other worker's has waited for longer."""
        since = self._waits_since()
        return since is None or self.places.longest.may_send(since, now)

    def _release(self, now: float, asking: Waiter | None) -> None:
        if self._is_turn(now):
            super()._release(now, asking)

    def _next(self, now: float) -> float:
        due = self.until
        if now >= due:
            due = now + POLL  # another worker may change it at any time
            is_paced = self.limit.pace.holds(now) and self.free(now) >= 1  # else it waits for a place
            if self.outage.is_on or (is_paced and self._is_turn(now)):
                due = min(due, super()._next(now))
        order = self.queue.order if self.fleet.link is None else None
        return due if order is None else order.next_look(now, due)

    def _end_limit(self, now: float) -> None:
        if now >= self.held:
            super()._end_limit(now)


def quiet(ended: int = 0) -> tuple[float, ...]:
    """The `state` of a lane that knows of nothing. `ended`: how many attempts are counted already, which are those of
    the lane that had its record before.
    """
    evidence = Evidence(Traffic())
    evidence._upto = ended
    return (*_QUIET, *SharedEvidence().state(evidence))


_QUIET = (
    *(-_NEVER, -_NEVER, 0.0, 503.0, -_NEVER, 0.0, 0.0, -_NEVER),
    *(-_NEVER, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -_NEVER, *LongestWait(0).state()),
    *_LIMIT.take(Limit(Traffic())),
    *_OUTAGE.take(Outage()),
)
#: How many numbers a lane's `state` has.
SIZE = len(quiet())
if SIZE > LANE_COPY:
    raise AssertionError("the state of a lane does not fit into its record")
