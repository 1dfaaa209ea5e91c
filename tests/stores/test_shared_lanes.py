"""Lanes over the workers of one machine: what one of them meets holds the calls of all; a dead one's places and probe
come back.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from callers import BROKEN, ERROR, REFUSED, UNCONNECTED, UNREACHED, Waiting, Worker, caller, factories

from proxy.retry.capacity.delays_by_chance import Batch, DelaysByChance
from proxy.retry.capacity.evidence import Evidence
from proxy.retry.weather.all_refused import AllRefused
from proxy.retry.weather.answer_times import AnswerTimes
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lane_places import LanePlaces
from proxy.retry.weather.limit import Limit, SinceCut
from proxy.retry.weather.outage import Outage
from proxy.retry.weather.spacing import Spacing
from proxy.retry.weather.trial import Cohort, Trial
from proxy.stores.shared_memory import evidence, records, scope
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.lane import POLL, SHARED, SharedLane
from proxy.stores.shared_memory.records import Memory, Record
from proxy.wire.http1.compiled import CORE

unshared = iter(range(1_000_000))


def workers(memory: Memory, count: int = 2) -> list[Worker]:
    upstream = f"u{next(unshared)}"
    return [Worker(each, upstream) for each in factories(memory, count)]


# -- cooldowns ----------


def test_places_are_counted_over_all_workers(memory: Memory) -> None:
    one, other = workers(memory)
    starter, mine, theirs, last = (Waiting() for _ in range(4))
    name = one.pushback(429, 2.0, 10.0)
    assert name is not None
    assert one.governor.claim(starter, name, 12.0)
    assert one.ask(mine, 11.0) == 12.0
    assert other.ask(theirs, 11.0) == 12.0
    assert other.ask(theirs, 12.0) == 12.01  # the place is its who began it, in another worker
    assert one.ask(starter, 12.0) == 12.0
    one.answered(one.sends(starter, 12.0), 12.1)  # two places from now on
    assert other.ask(theirs, 12.11) == 12.11
    sent = other.sends(theirs, 12.11)
    assert one.ask(mine, 12.11) == 12.11
    assert other.ask(last, 12.12) > 12.12
    other.fails(sent, REFUSED, 12.2)
    assert other.ask(last, 12.21) == 12.21


def test_the_places_of_a_dead_worker_come_back(memory: Memory) -> None:
    dying, other = workers(memory)
    gone, waiting = Waiting(), Waiting()
    dying.pushback(503, 2.0, 10.0)
    assert dying.ask(gone, 10.0) == 12.0
    assert other.ask(waiting, 10.0) == 12.0
    assert dying.ask(gone, 12.0) == 12.0  # and nothing is heard of it any more
    at = 12.0
    while at < 20.0 and (again := other.ask(waiting, at)) > at:
        at = again
    assert 16.0 <= at < 18.1  # 2 x the delay, to half of that


def test_one_workers_cooldown_holds_the_calls_of_all(memory: Memory) -> None:
    one, other = workers(memory)
    assert not other.governor.holds(10.0)
    assert one.pushback(503, 2.0, 10.0)
    assert other.governor.holds(10.0)
    assert other.governor.lanes.seconds_left(11.0) == 1.0
    first, second = Waiting(), Waiting()
    assert [other.ask(each, 10.0) for each in (first, second)] == [12.0, math.inf]
    assert one.pushback(503, 5.0, 11.0, sent=10.5)  # longer: whoever wakes meanwhile is held again
    assert other.ask(first, 12.0) == 16.0
    assert second.at == 12.0  # and asks again, for it may have no patience for that
    assert other.ask(second, 12.0) == math.inf
    assert other.ask(first, 16.0) == 16.0
    other.sends(first, 16.0)
    assert other.ask(second, 16.01) == pytest.approx(16.02)  # the first place is taken; it looks again soon
    assert not other.governor.holds(20.0)


def test_a_call_that_another_gate_holds_leaves_its_place_to_other_workers(memory: Memory) -> None:
    one, other = workers(memory)
    mine, theirs = Waiting(), Waiting()
    one.pushback(503, 2.0, 10.0)
    assert one.ask(mine, 10.0) == 12.0
    assert other.ask(theirs, 10.0) == 12.0
    assert one.ask(mine, 12.0) == 12.0  # the only place
    assert other.ask(theirs, 12.0) > 12.0
    one.governor.step_aside(mine, 12.0)
    assert other.ask(theirs, 12.01) == 12.01
    sent = other.sends(theirs, 12.01)
    assert one.ask(mine, 12.02) > 12.02  # it has its turn, and no place
    other.answered(sent, 12.1)
    assert one.ask(mine, 12.1) == 12.1


# -- outages ----------


def break_off(worker: Worker, at: float) -> None:
    """Two refused connections of one call."""
    worker.fails(worker.sends(Waiting(), at), UNCONNECTED, at)
    worker.fails(worker.sends(Waiting(), at), UNCONNECTED, at, again=True)


def test_an_outage_that_one_worker_meets_holds_the_calls_of_all(memory: Memory) -> None:
    group = workers(memory, 4)
    for each in group:
        each.is_well(10.0)
        assert not each.governor.holds(11.0)
    break_off(group[0], 11.0)
    held = [Waiting() for _ in group]
    for each, waiting in zip(group, held, strict=True):
        assert each.governor.holds(11.01)
        at, why = each.governor.ask(waiting, caller(), 11.01)
        assert (at > 11.01, why) == (True, "outage")
    asked = [each.ask(waiting, 11.2, caller()) for each, waiting in zip(group, held, strict=True)]
    assert [at == 11.2 for at in asked] == [True, False, False, False]  # one probe, of whoever asks first
    probe = group[0].sends(held[0], 11.2)
    assert group[0].governor.is_probe(probe)
    group[0].fails(probe, UNCONNECTED, 11.2)
    assert group[1].ask(held[1], 11.3, caller()) > 11.3  # 200 ms after it
    assert group[2].ask(held[2], 11.41, caller()) == 11.41
    group[2].answered(group[2].sends(held[2], 11.41), 11.42, caller())
    assert group[1].ask(held[1], 11.43, caller()) == 11.43  # a limit of two places, and the outage is over
    assert group[3].governor.first.holds(11.43) != "outage"


def test_a_probe_that_takes_long_is_still_one_after_another_worker_has_sent_the_next(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    break_off(one, 11.0)
    mine, theirs = Waiting(), Waiting()
    assert one.ask(mine, 11.2, caller()) == 11.2
    lane, there = one.governor.first, other.governor.first
    lane.change(partial(lane.outage.expect_late, 11.2), 11.2)
    probe = one.sends(mine, 11.2)
    assert other.ask(theirs, 12.1, caller()) > 12.1
    assert other.ask(theirs, 12.3, caller()) == 12.3
    assert there.outage.late == ()  # those of other workers are none of its own
    assert one.ask(Waiting(), 12.4, caller()) > 12.4
    assert one.governor.is_probe(probe)
    one.fails(probe, UNCONNECTED, 12.5)
    assert lane.outage.late == ()
    other.answered(other.sends(theirs, 12.3), 12.6, caller())
    assert one.governor.first.holds(12.6) != "outage"


def test_an_answer_in_another_worker_ends_the_outage_of_a_route(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    for number in range(5):
        one.fails(one.sends(Waiting(), 11.0), BROKEN, 11.0 + number * 0.03)
    waiting = Waiting()
    assert other.governor.ask(waiting, caller(), 11.13)[1] == "outage"
    assert other.ask(Waiting(), 11.13, caller(method="POST")) == 11.13
    assert other.ask(waiting, 11.5, caller()) == 11.5
    other.answered(other.sends(waiting, 11.5), 11.6, caller())
    assert one.governor.ask(Waiting(), caller(), 11.61)[1] != "outage"


def test_calls_that_one_worker_held_in_vain_are_held_by_none(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    break_off(one, 11.0)
    waiting = Waiting()
    assert one.ask(waiting, 11.01, caller()) > 11.01
    one.governor.held_in_vain(waiting, 20.0, 32.0)
    attempt = other.sends(Waiting(), 32.1)
    other.fails(attempt, UNCONNECTED, 32.1)
    assert other.governor.first.outage.in_vain
    later = Waiting()
    assert other.ask(later, 32.2, caller()) <= 32.21  # not for the outage, but another call has waited for longer
    assert one.ask(waiting, 32.2, caller()) == 32.2
    assert other.ask(later, 32.21, caller()) == 32.21


def test_an_answer_that_another_worker_got_meanwhile_ends_a_row_of_failures(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    for number in range(4):
        one.fails(one.sends(Waiting(), 11.0), UNCONNECTED, 11.0 + number * 0.1)
    other.is_well(11.5, calls=40)
    one.fails(one.sends(Waiting(), 12.0), UNCONNECTED, 12.0)
    assert not one.governor.first.outage.is_on


def test_an_error_that_another_worker_was_answered_with_ends_a_row_of_failures(memory: Memory) -> None:
    """A 500 is an answer: the endpoint can be reached, whoever got it."""
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(0.0)
    for at in (10.0, 10.5, 11.0, 11.5):
        other.fails(other.sends(Waiting(), at), UNREACHED, at)
    one.fails(one.sends(Waiting(), 11.6), ERROR, 11.6)
    other.fails(other.sends(Waiting(), 12.0), UNREACHED, 12.0)
    assert not other.governor.first.outage.is_on


def test_calls_are_quiet_again_once_an_outage_is_over(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    break_off(one, 11.0)
    waiting = Waiting()
    assert other.ask(waiting, 11.2, caller()) == 11.2
    other.answered(other.sends(waiting, 11.2), 11.3, caller())
    now = 11.3
    while one.governor.holds(now) and now < 60.0:  # the limit by which calls return ends once it does not bind
        late = Waiting()
        now += 0.5
        if one.ask(late, now, caller()) <= now:
            one.answered(one.sends(late, now), now + 0.01, caller())
    assert now < 20.0
    assert not other.governor.holds(now)


# -- limits ----------


def refuse(worker: Worker, under_way: int, at: float) -> None:
    """Answers refuse attempts, while that many more are under way."""
    attempts = [worker.sends(Waiting(), at) for _ in range(under_way + 3)]
    for attempt in attempts[:3]:
        worker.fails(attempt, REFUSED, at + 0.01)


@pytest.mark.parametrize(("until", "begins"), [(60.0, False), (11.5, True)])
def test_while_one_worker_takes_refusals_for_chance_another_begins_no_limit(
    memory: Memory, until: float, begins: bool
) -> None:
    one, other = workers(memory)
    lane = one.governor.first
    other.is_well(10.0)

    def gives_up() -> None:
        lane.limit.given_up_until = until

    lane.change(gives_up, 11.0)
    refuse(other, 2, 12.0)
    assert other.governor.first.limit.is_on == begins


def test_a_limit_counts_what_each_worker_had_under_way(memory: Memory) -> None:
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(10.0)
    theirs = [other.sends(Waiting(), 11.0) for _ in range(10)]
    refuse(one, 10, 11.0)
    limit = one.governor.first.limit
    assert limit.is_on
    begun_at = limit.most
    waiting = Waiting()
    at, why = other.governor.ask(waiting, caller(), 11.02)
    assert (at > 11.02, why) == (True, "limit")
    assert other.governor.first.limit.most == begun_at + len(theirs) / 2
    assert other.governor.first.places.in_use() == 20
    for number, attempt in enumerate(theirs):
        other.answered(attempt, 11.03 + number / 1000, caller())
    assert one.governor.ask(Waiting(), caller(), 11.05)[1] in ("", "limit")
    assert one.governor.first.places.in_use() <= 12


def test_a_call_that_waits_for_another_workers_place_looks_now_and_then(memory: Memory) -> None:
    """Also if the limit has a pace at which a call would be due: asking all the time would keep a processor busy."""
    one, other = workers(memory)
    one.is_well(10.0)
    refuse(one, 0, 11.0)
    limit = one.governor.first.limit
    limit.most, limit.pace.rate = 1.0, 2.0
    mine, theirs = Waiting(), Waiting()
    assert one.governor.ask(mine, caller(), 12.0) == (12.0, "")
    one.sends(mine, 12.0)
    for at in (12.5, 12.9):
        assert other.governor.ask(theirs, caller(), at) == (at + POLL, "limit")
    assert other.governor.first.limit.pace.rate == 2.0


def test_a_trial_compares_with_what_all_workers_sent_before(memory: Memory) -> None:
    """A limit that begins in one worker holds all of them, so its trial has to know how much all of them sent."""
    one, other = workers(memory)
    for each in (one, other):
        each.is_well(8.0, calls=200, seconds=0.02)
    for number in range(3):
        one.fails(one.sends(Waiting(), 12.0 + number * 0.1), REFUSED, 12.01 + number * 0.1)
        if number < 2:
            other.is_well(12.02 + number * 0.1, calls=3)
    other.governor.ask(Waiting(), caller(), 12.22)
    assert trial_of(other).pace == pytest.approx(40.0)  # after each refusal three are answered, until the next
    assert one.governor.ask(Waiting(), caller(), 12.23)[1] == "limit"
    assert trial_of(one).pace == trial_of(other).pace


def trial_of(worker: Worker) -> Trial:
    """The trial of the limit of a worker's endpoint."""
    trial = worker.governor.first.limit._trial
    assert isinstance(trial, Trial)
    return trial


def test_what_is_sent_while_all_is_well_takes_no_lock(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = workers(memory)
    one.is_well(10.0, calls=100)
    opened: list[object] = []
    monkeypatch.setattr(Record, "open", lambda record: opened.append(record))
    monkeypatch.setattr(Record, "load", lambda *_: None)
    monkeypatch.setattr(Record, "save", lambda *_: None)
    monkeypatch.setattr(Record, "close", lambda *_: None)
    one.is_well(11.0, calls=50, seconds=0.001)
    assert len(opened) <= 1  # other workers are told once a second that attempts are answered


# -- what is shared ----------


@pytest.mark.skipif(CORE == "compiled", reason="a compiled class does not know its attributes while it runs")
def test_each_attribute_of_a_lane_is_shared_or_each_workers_own() -> None:
    """A new attribute has to be decided on: `SharedLane.state` has it, or it is named here."""
    own = {"_starter", "due", "name", "queue", "traffic", "limit", "outage", "fleet", "places"}
    taken = {"until", "delay", "status", "begun", "lasts", "usual_time", "_well"}
    assert set(Lane.__slots__) == own | taken
    assert set(LanePlaces.__slots__) == {"before", "taken"}  # who has a place is known to its own worker alone
    assert set(Limit.__slots__) - set(SHARED[Limit]) == {"evidence", "grown", "part"}
    assert set(Outage.__slots__) - set(SHARED[Outage]) == {"endings", "late", "probe"}
    parts = (AllRefused, AnswerTimes, Cohort, SinceCut, Spacing, Trial)
    assert set(SHARED) == {Limit, Outage, *parts}
    assert all(set(SHARED[each]) == set(each.__slots__) for each in parts)
    shown = {"failures", "found", "least_gap", *evidence.SHOWN[Evidence]}
    assert set(Evidence.__slots__) - set(evidence.SHARED[Evidence]) == {"_noted", "traffic", *shown}
    tested = {Batch: {"_attempts"}, DelaysByChance: {"reserving", "was_tested"}}
    for each, names in evidence.SHOWN.items():
        if each is not Evidence:
            assert set(each.__slots__) - set(names) == tested.get(each, set())


def test_another_worker_reads_what_one_has_published(memory: Memory) -> None:
    one, other = workers(memory)
    one.is_well(10.0)
    refuse(one, 10, 11.0)
    one.pushback(503, 2.0, 11.5)
    mine, theirs = one.governor.first, other.governor.first
    assert isinstance(mine, SharedLane)
    assert isinstance(theirs, SharedLane)
    theirs.look()
    assert plain(theirs.limit) == plain(mine.limit)
    assert plain(theirs.outage) == plain(mine.outage)
    assert len(mine.state()) <= records.LANE_COPY


def plain(each: Any) -> dict[str, Any]:
    """The shared attributes of an object, and of those in it."""
    found = {}
    for name in SHARED[type(each)]:
        value = getattr(each, name)
        found[name] = plain(value) if type(value) in SHARED else value
    return found


def test_more_lanes_than_a_scope_has_entries_hold_their_calls_for_a_while(memory: Memory) -> None:
    (one,) = workers(memory, 1)
    shared = one.governor.lanes._scope  # type: ignore[attr-defined]
    for number in range(scope.MOST + 5):
        assert shared.note(float(number + 1), 1000.0, 10.0, 10.0)
    assert shared.quiet_from == 10.0 + scope.LEASE
    for number in range(scope.MOST + 5):
        assert shared.note(float(number + 1), -math.inf, 10.0, 10.0)
    assert shared.quiet_from == 10.0 + scope.LEASE_OF_MORE


# -- processes ----------

DYING = """
import sys
sys.path.insert(0, {tests!r})
from callers import UNCONNECTED, Waiting, Worker, caller
from proxy.stores.shared_memory.factory import SharedFactory, open_memory

worker = Worker(SharedFactory(open_memory(int(sys.argv[1]))), sys.argv[2])
waiting = Waiting()
assert worker.ask(waiting, 11.2, caller()) == 11.2
worker.sends(waiting, 11.2)
print("sent", flush=True)
sys.stdin.readline()
"""


def test_another_worker_probes_when_the_one_that_did_is_killed(memory: Memory) -> None:
    (one,) = workers(memory, 1)
    upstream = f"u{next(unshared) - 1}"
    one = Worker(SharedFactory(memory), upstream)
    one.is_well(10.0)
    break_off(one, 11.0)
    code = DYING.format(tests=os.path.dirname(__file__))
    arguments = [sys.executable, "-c", code, str(memory.descriptor), upstream]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[memory.descriptor]
    ) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"sent\n"
        waiting = Waiting()
        assert one.ask(waiting, 11.3, caller()) > 11.3
        assert one.ask(waiting, 300.0, caller()) > 300.0  # a probe under way may take its time
        dying.send_signal(signal.SIGKILL)
    assert one.ask(waiting, 300.1, caller()) == 300.1
    assert one.governor.is_probe(one.sends(waiting, 300.1))
