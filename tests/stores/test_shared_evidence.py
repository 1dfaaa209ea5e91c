"""Refusals over the workers of one machine: as many begin a limit as in one process."""

from __future__ import annotations

import heapq
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from callers import REFUSED, Waiting, Worker, caller, factories
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.retry.capacity.delays_by_chance import DelaysByChance
from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.least_gap import NUMBERS, LeastGap
from proxy.retry.capacity.loads import Loads
from proxy.retry.capacity.throughput import Throughput
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.scopes.factory import Factory
from proxy.retry.weather.weather_changes import WeatherChanged, WeatherWatch
from proxy.stores.shared_memory import evidence as evidence_module
from proxy.stores.shared_memory import records
from proxy.stores.shared_memory.evidence import SHOWN_NUMBERS, SharedEvidence
from proxy.stores.shared_memory.factory import SharedFactory, open_memory
from proxy.stores.shared_memory.lane import SharedLane
from proxy.stores.shared_memory.records import LANES, Memory, descriptor
from proxy.stores.shared_memory.traffic import OtherWorkers, count_by

unshared = iter(range(1_000_000))


def workers(memory: Memory, count: int) -> list[Worker]:
    """So many workers that share their lanes; one alone shares nothing."""
    upstream = f"evidence {next(unshared)}"
    return [Worker(each, upstream) for each in (factories(memory, count) if count > 1 else [Factory()])]


def limits_of(group: list[Worker], rate: float, share: float, seed: int, calls: int, calm: int = 0) -> list[int]:
    """The numbers of the calls, of all that these workers make, at whose end a limit began in any of them. After `calm`
    calls, this share of attempts is refused. Each worker draws from the same chance, so that arrivals are the same
    however many there are.
    """
    draw, now, began = random.Random(seed), 1000.0, []
    under_way: list[tuple[float, int, Worker, object, bool]] = []
    for number in range(calls):
        now += draw.expovariate(rate)
        is_refused, chosen = number >= calm and draw.random() < share, draw.randrange(60) % len(group)
        while under_way and under_way[0][0] <= now:
            at, ended, worker, attempt, fails = heapq.heappop(under_way)
            was_on = worker.governor.first.limit.is_on
            if fails:
                worker.fails(attempt, REFUSED, at)
            else:
                worker.answered(attempt, at, caller())
            if worker.governor.first.limit.is_on and not was_on:
                began.append(ended)
                worker.governor.first.end_limit(at)
        attempt = group[chosen].sends(Waiting(), now)
        takes = 0.005 if is_refused else 0.05
        heapq.heappush(under_way, (now + takes, number, group[chosen], attempt, is_refused))
    return began


@pytest.mark.parametrize("rate", [4.0, 400.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_limit_begins_at_the_same_refusal_whichever_workers_meet_them(
    memory: Memory, rate: float, share: float
) -> None:
    began = [limits_of(workers(memory, count), rate, share, 1, 340, calm=300)[0] for count in (1, 2, 4)]
    assert began[0] == began[1] == began[2] < 330


@pytest.mark.parametrize("seed", range(3))
def test_what_chance_explains_in_one_process_it_explains_over_workers(memory: Memory, seed: int) -> None:
    one, four = (limits_of(workers(memory, count), 50.0, 0.15, seed, 1500) for count in (1, 4))
    assert one == four


def test_a_worker_goes_on_with_the_count_of_the_one_that_had_its_row(memory: Memory) -> None:
    first, other = workers(memory, 2)
    first.is_well(10.0, calls=20)
    other.is_well(10.0, calls=5)
    upstream = f"evidence {next(unshared) - 1}"
    again = Worker(SharedFactory(memory, row=1), upstream)
    assert [each.governor.traffic.all_ended() for each in (again, other)] == [25, 25]
    again.is_well(11.0, calls=3)
    assert other.governor.traffic.all_ended() == 28


def test_an_endpoint_of_several_is_counted_by_itself_and_over_workers(memory: Memory) -> None:
    one, other = (each.governor.lanes for each in workers(memory, 2))
    for lanes, well in ((one, 3), (other, 4)):
        for _ in range(well):
            lanes.traffic_of("a:80").went_well(10.0)
        lanes.traffic_of("b:80").failed()
    assert [each.traffic_of("a:80").all_ended() for each in (one, other)] == [7, 7]
    assert [each.traffic_of("b:80").all_ended() for each in (one, other)] == [2, 2]
    assert one.traffic.all_ended() == 0


def test_the_rate_is_that_of_all_workers(memory: Memory) -> None:
    one, other = workers(memory, 2)
    for number in range(400):
        (one, other)[number % 2].is_well(10.0 + number / 100, calls=1)
    assert one.governor.traffic.rate == pytest.approx(100.0, rel=0.1)
    assert other.governor.traffic.rate == pytest.approx(100.0, rel=0.1)


def test_a_limit_tells_how_attempts_of_all_workers_ended(memory: Memory) -> None:
    group, told = workers(memory, 4), list[WeatherChanged]()
    for each in group:
        each.governor.lanes.watch = WeatherWatch("u", "x", told.append)
        each.is_well(10.0)
    for number in range(3):
        group[number].fails(group[number].sends(Waiting(), 11.0), REFUSED, 11.1 + number / 10)
    (began,) = told
    assert (began.event, began.why, began.ended, began.of) == ("limit_began", "refused", (("503", 3),), 10)


def test_refusals_after_a_limit_was_given_up_are_counted_over_workers(memory: Memory) -> None:
    """A third is refused at 15/s in its trial, and two thirds of 30/s later, by whichever workers: it was the load."""
    for count in (1, 4):
        group = workers(memory, count)
        lane = group[0].governor.first
        evidence = lane.limit.evidence
        for each in group:
            each.is_well(0.0)

        def give_up(evidence: Evidence = evidence) -> None:
            evidence.loads = Loads()
            evidence.loads.add(15.0, 60, 20, 10.0)
            evidence.limit_given_up(10.0)
            evidence.learn(0.33, 10.0)

        lane.change(give_up, 10.0)
        began = 0
        for number in range(1, 150):
            worker, at = group[number % count], 10.0 + number / 30
            attempt = worker.sends(Waiting(), at)
            if number % 3:
                worker.fails(attempt, REFUSED, at + 0.01)
            else:
                worker.answered(attempt, at + 0.01, caller())
            if worker.governor.first.limit.is_on:
                began = number
                break
        assert 10 <= began <= 150


def test_a_count_goes_on_under_another_number_when_the_record_is_another_one() -> None:
    memory = open_memory(descriptor())
    traffic = Traffic()
    count_by(memory, 3, traffic, 5)
    traffic.went_well(10.0)
    count_by(memory, 3, traffic, LANES - 1)
    traffic.failed()
    count_by(memory, 3, traffic, LANES - 1)
    first = memory.ended(3)
    assert (memory.words[first + 5], memory.words[first + LANES - 1], traffic.all_ended()) == (1, 1, 1)


def test_endings_of_the_latest_refusals_are_known_to_the_others() -> None:
    mine, theirs = Evidence(Traffic()), Evidence(Traffic())
    for how in ("503", "429", "attempt_timeout"):
        mine.traffic.ended += 7
        mine.refused(how, 10.0)
    theirs.traffic.ended = mine.traffic.ended
    theirs.note(3, "reset")
    SharedEvidence().restore(theirs, SharedEvidence().state(mine))
    assert theirs.failures == [(3, "reset"), *mine.failures]
    assert (theirs.pace, theirs.latest_share(21)) == (mine.pace, mine.latest_share(21))


# -- workers that are killed, and the times between attempts ----------


class Killed(BaseException):
    """The worker is killed at this store."""


class Words:
    """The words of the memory, at the store of one of which a worker is killed: before it, or after it."""

    def __init__(self, words: memoryview, last: int, *, after: bool) -> None:
        self._words, self._last, self._after = words, last, after

    def __getitem__(self, at: int) -> int:
        found: int = self._words[at]
        return found

    def __setitem__(self, at: int, value: int) -> None:
        if at != self._last or self._after:
            self._words[at] = value
        if at == self._last:
            raise Killed


@contextmanager
def killed(lane: SharedLane, when: str) -> Iterator[None]:
    """Kill the worker that does this: while it writes what is `beside` the record, or `before` or `after` the store
    that publishes.
    """
    pack = evidence_module.pack_into

    def broken(form: str, at: Any, offset: int, *numbers: float) -> None:
        pack(f"{len(numbers) // 2}d", at, offset, *numbers[: len(numbers) // 2])
        raise Killed

    record = lane.record
    words = record.words
    with suppress(Killed):
        if when == "beside":
            evidence_module.pack_into = broken
        elif when:
            record.words = Words(words, record._sequence, after=when == "after")  # type: ignore[assignment]
        try:
            yield
        finally:
            evidence_module.pack_into, record.words = pack, words


#: What happens while delays hold calls, or loads are compared.
DELAYS = ("came", "held", "delay", "served", "at_once", "opens", "test", "unheld", "counted", "load")


def numbers_of(evidence: Evidence) -> tuple[object, ...]:
    gap = evidence.least_gap
    return (
        *(evidence._all, evidence._at, evidence._refused, evidence._refusals, evidence._upto, evidence.ended),
        *([*evidence._numbers], [*evidence._times], None if gap is None else gap.state()),
        SHOWN_NUMBERS.take(evidence),
    )


@given(
    script=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["well", "refused", "sent", "quickly", "quickly", "learn", "begin", *DELAYS]),
            st.sampled_from(["", "", "", "", "beside", "before", "after"]),
            st.integers(1, 90),
        ),
        max_size=80,
    )
)
@settings(deadline=None, max_examples=60)
def test_four_workers_some_of_whom_are_killed_know_what_one_knows(script: list[tuple[int, str, str, int]]) -> None:
    memory, model = open_memory(descriptor()), Evidence(Traffic())
    shared = factories(memory, 4)
    group, now = [Worker(each) for each in shared], 100.0
    for number, what, when, milliseconds in script:
        now += milliseconds / 1000
        lane = first_of(group[number])
        if what in ("well", "refused"):
            for traffic in (lane.traffic, model.traffic):
                traffic.failed()
        sent = model.least_gap._sent[-1] if model.least_gap is not None and model.least_gap._sent else now - 0.001
        is_published = False
        with killed(lane, when):
            lane.change(partial(happens, what, sent, now, lane.limit.evidence), now)
            is_published = True
        if is_published or when == "after":
            happens(what, sent, now, model)
        if not is_published:
            group[number] = Worker(shared[number])
        other = first_of(group[number - 1])
        other.look()
        assert numbers_of(other.limit.evidence) == numbers_of(model)
    os.close(memory.descriptor)


def first_of(worker: Worker) -> SharedLane:
    lane = worker.governor.first
    assert isinstance(lane, SharedLane)
    return lane


def happens(what: str, sent: float, now: float, evidence: Evidence) -> None:
    """What an attempt tells that was sent then, and has just ended, or is sent now; or the beginning of a limit."""
    if what == "refused":
        evidence.refused("503", now)
    elif what == "quickly":
        evidence.refused_quickly(sent, now)
    elif what == "learn":
        evidence.learn(0.2, now)
    elif what == "held":
        evidence.delay_holds(None, now)
    elif what == "load":
        evidence.loads = evidence.loads or Loads()
        evidence.loads.add(now, 20, 5, now)
        evidence.loads.gave_up(20, 5, now)
    elif what == "counted":
        evidence.throughput = evidence.throughput or Throughput()
        evidence.throughput.served(sent)
        evidence.throughput.bound(10.0, 6, now)
    elif what in DELAYS:
        if evidence.by_chance is not None:
            delayed(what, evidence.by_chance, now)
    elif evidence.least_gap is not None and what == "sent":
        evidence.least_gap.sent(now)
    elif evidence.least_gap is not None and what == "begin":
        evidence.least_gap.begin()


def delayed(what: str, test: DelaysByChance, now: float) -> None:
    """What happens to the calls of a lane while delays hold them, or while that is tested."""
    if what == "came":
        test.came(now)
    elif what == "delay":
        test.cooldown(0.02, now - 30.0, now)
    elif what == "served":
        test.served(None, now)
    elif what == "at_once":
        test.at_once = 8
        test.take_at_once(8, now)
        test.sent(None, object(), 8, now)
    elif what == "opens":
        test._opens_at = now
        test.opens(now)
    elif what == "unheld":
        test._unheld.open(0.2, test._counts, now)
    else:
        test.refused(None, round(100 * now), 2, now)


def test_a_worker_whose_operation_failed_takes_over_what_is_published(memory: Memory) -> None:
    """What it had changed by then was not published; nobody has published anything since, either."""
    (worker,) = workers(memory, 2)[:1]
    lane = first_of(worker)
    evidence = lane.limit.evidence
    lane.change(partial(evidence.refused, "503", 10.0), 10.0)
    lane.change(partial(evidence.refused_quickly, 9.9, 10.0), 10.0)
    published = numbers_of(evidence)

    def fails() -> None:
        evidence._numbers[-1] += 1
        assert evidence.least_gap is not None
        evidence.least_gap.sent(11.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lane.change(fails, 11.0)
    lane.refresh(12.0)
    lane.change(lambda: None, 12.0)
    assert numbers_of(evidence) == published


def test_the_times_of_attempts_have_room_beside_the_record() -> None:
    full, other = LeastGap(), LeastGap()
    for number in range(1000):
        full.sent(number / 10)
        if number % 7 == 0:
            full.refused(number / 10, number / 10 + 0.01)
        else:
            full.refused(-1.0, number / 10 + 0.01)
    assert len(full.state()) == NUMBERS
    other.restore([*full.state(), 5.0])
    assert other.state() == full.state()


def test_workers_find_the_pace_of_an_upstream_without_a_queue_as_one_process_does(memory: Memory) -> None:
    """An attempt is refused that comes sooner than 1/14 s after the one that was served before."""
    paces = []
    for count in (1, 4):
        group, chance, now, free = workers(memory, count), random.Random(3), 10.0, 0.0
        for number in range(120):
            now += chance.choice([0.03, 0.06, 0.08, 0.12])
            lane = group[number % count].governor.first
            evidence = lane.limit.evidence
            if number == 0:
                lane.change(partial(evidence.refused_quickly, now, now), now)
            lane.change(partial(happens, "sent", 0.0, now, evidence), now)
            if now < free:
                lane.change(partial(happens, "quickly", now, now + 0.001, evidence), now)
            else:
                free = now + 1 / 14
        lane.change(lambda: None, now)
        paces.append(lane.limit.evidence.known_pace(now))
    assert paces[0] == paces[1] == pytest.approx(12.25)


# -- what delays have shown ----------


def test_calls_that_are_sent_at_once_count_for_all_workers_and_each_knows_its_own(memory: Memory) -> None:
    """One worker sends eight calls at once. Others hear how many were served, and end none of them."""
    one, other = (first_of(each) for each in workers(memory, 2))
    attempts = [object() for _ in range(8)]

    def sends() -> None:
        one.limit.evidence.delay_holds(object(), 10.0)
        test = one.limit.evidence.by_chance
        assert test is not None
        test.at_once = 8
        test.take_at_once(8, 10.0)
        for each in attempts:
            test.sent(each, each, 0, 10.0)

    one.change(sends, 10.0)
    assert other.change(lambda: ends(other, object()), 10.1) is False
    for number, each in enumerate(attempts[:5]):
        began = one.change(partial(ends, one, each), 10.2)
        assert began == (number == 4)
    other.look()
    theirs = other.limit.evidence.by_chance
    assert theirs is not None
    assert theirs.holds_none(10.2) is False
    other.change(lambda: theirs.opens(10.2), 10.2)
    one.look()
    mine = one.limit.evidence.by_chance
    assert mine is not None
    assert mine.holds_none(10.3)


def ends(lane: SharedLane, attempt: object) -> bool:
    """The attempt is served; whether a test of delays is to begin at once."""
    test = lane.limit.evidence.by_chance
    assert test is not None
    return test.served(attempt, 10.2)


# -- records of other scopes ----------


@pytest.fixture(name="few_records")
def _few_records(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Memory in which a third lane takes the record of another one."""
    monkeypatch.setattr(records, "LANES", 2)
    monkeypatch.setattr(records, "PROBES", 2)
    return open_memory(descriptor())


def test_a_scope_does_not_count_the_attempts_of_the_one_that_had_its_record(few_records: Memory) -> None:
    """Else its refusals by chance were few of very many attempts, and began a limit whenever three came together."""
    two = factories(few_records, 2)
    for number, each in itertools.product(range(2), two):
        Worker(each, f"before {number}").is_well(0.0, calls=20_000, seconds=0.001)
    began = limits_of([Worker(each, "now") for each in two], 50.0, 0.15, 4, 1500)
    assert began == limits_of([Worker(Factory(), "now")], 50.0, 0.15, 4, 1500)


def test_attempts_are_counted_under_the_number_of_the_record_that_the_lane_has_now(few_records: Memory) -> None:
    scopes = [[Worker(each, f"scope {number}") for each in factories(few_records, 2)] for number in range(5)]
    numbers = set()
    for seconds, (one, other) in enumerate(scopes * 3):
        for worker in (one, other, one):
            worker.fails(worker.sends(Waiting(), 10.0 + seconds), REFUSED, 10.5 + seconds)
        lane, traffic = one.governor.first, one.governor.traffic
        assert isinstance(lane, SharedLane)
        assert isinstance(traffic.others, OtherWorkers)
        assert traffic.others.number == lane.record.number
        before = traffic.all_ended()
        other.is_well(10.6 + seconds, calls=1)
        assert traffic.all_ended() == before + 1
        numbers.add((one, lane.record.number))
    assert len(numbers) > len(scopes)


def test_a_scope_has_no_times_of_the_one_that_had_its_record(few_records: Memory) -> None:
    """A scope whose record was given to another one meanwhile begins anew, in each worker."""
    one, other = factories(few_records, 2)
    stamps: dict[str, object] = {}
    times = []
    for second, name in enumerate(("first", "second", "third") * 3):
        lane, now = first_of(Worker(one, name)), 10.0 + second
        lane.look()
        evidence, stamp = lane.limit.evidence, lane.record.version[0]
        is_kept = stamps.get(name) == stamp
        assert (evidence.least_gap is not None) == is_kept
        assert (evidence.by_chance is not None) == is_kept
        lane.change(partial(evidence.refused_quickly, now, now), now)
        lane.change(partial(happens, "sent", 0.0, now, evidence), now)
        lane.change(partial(happens, "held", 0.0, now, evidence), now)
        theirs = first_of(Worker(other, name))
        theirs.look()
        assert numbers_of(theirs.limit.evidence) == numbers_of(evidence)
        times.append(is_kept)
        stamps[name] = stamp
    assert times.count(False) > len(stamps)


def test_a_worker_forgets_the_times_of_a_lane_whose_record_was_given_away(few_records: Memory) -> None:
    """Others have noted as many changes in the lane's new record, so the times in both have the same version."""
    one, other = factories(few_records, 2)
    lane = first_of(Worker(one, "kept"))
    lane.change(partial(lane.limit.evidence.refused_quickly, 10.0, 10.0), 10.0)
    stamp = lane.record.version[0]
    for second, name in enumerate(("second", "third", "fourth", "kept")):
        theirs, now = first_of(Worker(other, name)), 11.0 + second
        theirs.change(partial(theirs.limit.evidence.refused_quickly, now, now), now)
    lane.change(lambda: None, 15.0)
    assert lane.record.version[0] != stamp
    assert numbers_of(lane.limit.evidence) == numbers_of(theirs.limit.evidence)
