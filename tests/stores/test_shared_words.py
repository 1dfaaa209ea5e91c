"""Shared state speaks the words of `proxy.retry`: the same operations bring the same answers, and reloads carry it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.retry.budgets.buckets import Bucket
from proxy.retry.budgets.hedges import FEWEST, Hedges, rank
from proxy.retry.budgets.sliding_window import SlidingCount
from proxy.retry.facts import NoFields, Request
from proxy.retry.policies.bucket_specs import BucketRef, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.seen_keys import KEY_SECONDS
from proxy.retry.strategies.presets import STANDARD
from proxy.retry.weather.caller import Caller
from proxy.stores.shared_memory import records as layout
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.hedges import BOXES, FRESH, LEAST, MOST, SLICES, box_of, middle_of
from proxy.stores.shared_memory.records import PROBES, Definition, Memory, Number, digest

unshared = iter(range(1_000_000))


def key() -> tuple[str, str]:
    return ("", f"bucket {next(unshared)}")


shapes = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
prices = st.sampled_from([0.0, 1.0, 5.0, 14.0])
steps = st.sampled_from([0.0, 0.001, 0.05, 0.4, 1.0, 3.0])
operations = st.lists(
    st.tuples(
        steps,
        st.sampled_from(["take", "give_back", "succeeded", "first", "failed", "begin", "app"]),
        prices,
    ),
    max_size=60,
)
specs = st.sampled_from(
    [
        QuotaSpec(20, 5, 10, 0, 1),
        QuotaSpec(20, 5, 10, 0, 1, flat_refund=True, initial=3),
        QuotaSpec(20, 5, 10, 0, 1, refill=2.5),
        QuotaSpec(20, 5, 10, 0, 1, flat_refund=True, initial=0, refill=0.1),
        QuotaSpec(0, refill=1.0),
        QuotaSpec(0),
        QuotaSpec(math.inf),
        ThrottleSpec(4, 0.5),
        ThrottleSpec(10, 0.1, initial=6),
        BudgetSpec(20, 2, 2.0),
        BudgetSpec(0, 1, 1.0),
    ]
)


def close(value: Any) -> Any:
    """What comes with time is added up in other steps where it is only looked at."""
    return pytest.approx(value, abs=1e-9) if isinstance(value, float) else value


def act(bucket: Bucket, what: str, price: float, now: float, granted: list[float]) -> Any:
    match what:
        case "take":
            answer = (bucket.affords(price, now), bucket.take(price, now))
            if answer[1]:
                granted.append(now)
            return answer
        case "give_back":
            return bucket.give_back(price, now, taken_at=granted.pop() if granted else None)
        case "succeeded":
            return bucket.succeeded(price, now)
        case "first":
            return bucket.succeeded(None, now)
        case "failed":
            return bucket.failed(now)
        case "begin":
            return bucket.begin(now)
        case _:
            return bucket.charge_app_retry(now)


@shapes
@given(specs, operations)
def test_a_shared_bucket_answers_as_one_of_its_own(memory: Memory, spec: Any, script: Any) -> None:
    name = key()
    ours = [
        Factory().bucket(name, spec, None, 0.0),
        SharedFactory(memory).bucket(name, spec, None, 0.0),
        SharedFactory(memory).bucket(name, spec, None, 0.0),
    ]
    now = 0.0
    granted: list[list[float]] = [[], []]
    for place, (step, what, price) in enumerate(script):
        now += step
        asked = ours[1 + place % 2]  # two processes take turns on the shared one
        assert act(ours[0], what, price, now, granted[0]) == close(act(asked, what, price, now, granted[1]))
        assert ours[0].level(now) == close(ours[1].level(now))
        assert ours[1].level(now) == close(ours[2].level(now))
    assert ours[0].share(now) == close(ours[1].share(now))


@shapes
@given(
    st.sampled_from([RateSpec(2.0, 3.0), RateSpec(2.0, 3.0, initial=0.0), RateSpec(0.0, 1.0)]),
    st.lists(st.tuples(steps, st.sampled_from(["take", "give_back", "wait"])), max_size=40),
)
def test_a_shared_rate_answers_as_one_of_its_own(memory: Memory, spec: RateSpec, script: Any) -> None:
    name = key()
    own = Factory().rate(name, spec, None, 7.0)
    shared = [SharedFactory(memory).rate(name, spec, None, 7.0) for _ in range(2)]
    now = 7.0
    for place, (step, what) in enumerate(script):
        now += step
        assert getattr(own, what)(now) == close(getattr(shared[place % 2], what)(now))
        assert own.level(now) == close(shared[0].level(now))
        assert shared[0].level(now) == shared[1].level(now)


@shapes
@given(st.lists(st.tuples(steps, st.sampled_from(["take", "give_back", "wait", "yes", "no", "reserve"])), max_size=60))
def test_a_shared_limiter_answers_as_one_of_its_own(memory: Memory, script: Any) -> None:
    name = key()
    own = Factory().limiter(name, 3.0)
    shared = [SharedFactory(memory).limiter(name, 3.0) for _ in range(2)]
    now = 3.0
    for place, (step, what) in enumerate(script):
        now += step
        asked = shared[place % 2]
        if what in ("yes", "no"):
            own.learn(what == "yes", now)
            asked.learn(what == "yes", now)
        else:
            assert getattr(own, what)(now) == close(getattr(asked, what)(now))
        assert own.level(now) == close(asked.level(now))
        assert (own.enabled, own.fill_rate, own.capacity) == (asked.enabled, asked.fill_rate, asked.capacity)
        assert own.measured_rate == asked.measured_rate


def test_a_ring_bounds_its_memory_and_errs_to_the_safe_side(memory: Memory) -> None:
    """Thousands of instants within a window: merged, and still counted at least (late), or at most."""
    at = memory.large._start + layout.STATE
    pairs = []
    for place, late in enumerate((False, True)):
        ring.RingCount.begin(memory, at + place * ring.WORDS, None, 0)
        pairs.append((ring.RingCount(memory, at + place * ring.WORDS, 1.0, late=late), late))
    instants: list[float] = []
    for event in range(20_000):
        now = 100.0 + event * 0.0002
        instants.append(now)
        for count, late in pairs:
            count.add(now)
            if event % 997 == 0:
                true = sum(1 for each in instants if each + 1.0 > now)
                assert 0 <= (count.count(now) - true) * (1 if late else -1) <= 12
    for count, _ in pairs:
        assert count.count(200.0) == 0
        header = count._load()
        assert (header.head, header.tail) == (0, 0)


def test_a_ring_counts_what_came_from_a_clock_read_earlier(memory: Memory) -> None:
    at = memory.large._start + layout.STATE
    ring.RingCount.begin(memory, at, None, 0)
    count, whole = ring.RingCount(memory, at, 10.0, late=True), SlidingCount(10.0, late=True)
    for kept in (count, whole):
        counted = [kept.add(now) for now in (1.0, 3.0, 2.0, 4.0)]
        assert counted == [1.0, 3.0, 3.0, 4.0]
        kept.remove(counted[2])
        assert kept.count(4.0) == 3
        kept.remove(counted[0])
        kept.remove(None)
        assert kept.count(4.0) == 1
        assert kept.count(13.0) == 0


def test_what_is_undone_is_what_was_counted_however_early_its_clock_was_read(memory: Memory) -> None:
    at = memory.large._start + layout.STATE
    ring.RingCount.begin(memory, at, None, 0)
    count, whole = ring.RingCount(memory, at, 10.0, late=True), SlidingCount(10.0, late=True)
    for kept in (count, whole):
        assert kept.add(3.0) == 3.0
        counted = kept.add(2.0)  # its process was held up for a second before it had the lock
        kept.remove(counted)
        assert kept.count(4.0) == 1
        kept.remove(2.0)  # none counts there
        assert kept.count(4.0) == 1


def test_an_amendment_that_was_only_announced_is_carried_out(memory: Memory) -> None:
    at = memory.large._start + layout.STATE
    ring.RingCount.begin(memory, at, None, 0)
    count = ring.RingCount(memory, at, 10.0)
    for now in (1.0, 2.0, 3.0):
        count.add(now)
    header = count._load()
    header.total -= 1
    header.amended, header.amended_count = 0, 0
    count._publish(header)  # and killed
    count.add(4.0)
    assert count._read(0)[2] == 0
    assert count.count(11.5) == 3
    assert count.count(20.0) == 0


# -- records ----------


def attached(memory: Memory, *keys: int) -> list[int]:
    """The addresses of the records of these keys."""
    return [memory.parted.attach(Definition(key, 1, 0), lambda at, former: None)[0] for key in keys]


def test_records_stand_one_after_the_other_whatever_their_keys_are(own_memory: Memory) -> None:
    """Each stood where its key's hash put it, so that nearly each took pages of its own."""
    found = attached(own_memory, *(number * 1009 for number in range(1, 101)))
    size = found[1] - found[0]
    assert found == list(range(found[0], found[0] + 100 * size, size))
    assert size < layout.STATE + 2 * layout.PARTS_COPY + 1
    assert attached(own_memory, 1009, 100 * 1009) == [found[0], found[-1]]
    assert own_memory.parted.used == 100


@pytest.mark.parametrize("next_key", [20, 30])
def test_a_slot_whose_record_was_only_counted_has_it(own_memory: Memory, next_key: int) -> None:
    """The process was killed between the two stores that give a slot a record."""
    table = own_memory.parted
    attached(own_memory, 10, 20)
    own_memory.words[table._slots + 20] = 0
    attached(own_memory, next_key, 20)
    assert table.used == len(set(attached(own_memory, 10, next_key, 20))) == len({10, next_key, 20})


# -- seen keys ----------


def test_a_key_that_another_worker_saw_is_seen(memory: Memory) -> None:
    upstream = key()[1]
    one, other = (SharedFactory(memory).seen(upstream, "x") for _ in range(2))
    assert not one.again("k", 10.0)
    assert other.again("k", 20.0)
    assert not SharedFactory(memory).seen(upstream, "y").again("k", 20.0)
    assert not one.again("k", 20.5 + KEY_SECONDS)
    for number in range(1000):
        assert not one.again(f"n{number}", 1000.0)
    assert sum(other.again(f"n{number}", 1000.0) for number in range(1000)) == 1000


# -- definitions and generations ----------


def quota(memory: Memory, generation: int, capacity: float, name: str = "a") -> Bucket:
    return SharedFactory(memory, generation).bucket(("", name), QuotaSpec(capacity), None, 0.0)


def test_a_changed_bucket_keeps_its_share_whoever_is_first(own_memory: Memory) -> None:
    old = quota(own_memory, 1, 500)
    old.take(250, 0.0)
    new = quota(own_memory, 2, 1000)
    assert new.level(0.0) == 500
    old.take(250, 0.0)  # a call of the old configuration pays into the old bucket
    assert (old.level(0.0), new.level(0.0), quota(own_memory, 2, 1000).level(0.0)) == (0, 500, 500)
    assert quota(own_memory, 1, 500).level(0.0) == 0  # a worker that has not reloaded yet


def test_going_back_and_forth_refills_nothing(own_memory: Memory) -> None:
    quota(own_memory, 1, 500).take(400, 0.0)
    for generation in range(2, 60):
        capacity = 500 if generation % 2 else 1000
        bucket = quota(own_memory, generation, capacity)
        assert bucket.level(0.0) == capacity / 5
        assert quota(own_memory, generation, capacity).level(0.0) == capacity / 5


def test_a_worker_that_missed_a_generation_finds_the_newest(own_memory: Memory) -> None:
    spec = QuotaSpec(500)
    missing = SharedFactory(own_memory, 1)
    held = missing.bucket(("", "a"), spec, None, 0.0)
    quota(own_memory, 2, 1000).take(1000, 0.0)
    quota(own_memory, 3, 500)
    missing.generation = 3
    found = missing.bucket(("", "a"), spec, held, 0.0)
    assert found is held
    assert found.level(0.0) == 0


def test_other_kinds_take_over_as_in_one_process(own_memory: Memory) -> None:
    quota(own_memory, 1, 500).take(250, 0.0)
    throttle = SharedFactory(own_memory, 2).bucket(("", "a"), ThrottleSpec(10), None, 0.0)
    assert throttle.level(0.0) == 5
    rate = SharedFactory(own_memory, 1).rate(("", "r"), RateSpec(1.0, 10.0), None, 5.0)
    assert all(rate.take(5.0) for _ in range(5))
    larger = SharedFactory(own_memory, 2).rate(("", "r"), RateSpec(1.0, 20.0), None, 6.0)
    assert larger.level(6.0) == 11.0
    budget = SharedFactory(own_memory, 1).bucket(("", "b"), BudgetSpec(100, 0, 10.0), None, 0.0)
    for _ in range(4):
        budget.begin(1.0)
    assert budget.take(1.0, 1.0)
    changed = SharedFactory(own_memory, 2).bucket(("", "b"), BudgetSpec(50, 0, 10.0), None, 0.0)
    assert changed.level(1.0) == 1
    assert changed.take(1.0, 1.0)
    assert not changed.take(1.0, 1.0)


def test_two_definitions_of_one_generation_live_side_by_side(own_memory: Memory) -> None:
    one, other = quota(own_memory, 1, 500), quota(own_memory, 1, 100)
    one.take(5, 0.0)
    other.take(50, 0.0)
    assert [quota(own_memory, 1, size).level(0.0) for size in (500, 100)] == [495, 50]


def test_a_full_table_gives_away_what_is_not_used(own_memory: Memory) -> None:
    """Keys beyond what a place has room for: those in use stay, and nobody pays into a stranger's bucket."""
    used = quota(own_memory, 1, 500)
    used.take(100, 0.0)
    home = digest("bucket", ("", "a"))

    def begin(at: int, former: object) -> None:
        own_memory.doubles[at] = 7.0

    strangers = [
        Number(own_memory.small, Definition(home + number * layout.RECORDS, 1, 1), begin)
        for number in range(1, 2 * PROBES)
    ]
    assert used.take(5, 0.0)
    lost = [each for each in strangers if own_memory.words[each.at + layout.KEY] != each._definition.key]
    assert lost
    assert lost[0].peek() == 7.0
    assert own_memory.words[lost[0].at + layout.KEY] == lost[0]._definition.key
    for each in strangers:
        each.open()
        assert own_memory.words[each.at + layout.KEY] == each._definition.key
        each.close()
    assert used.level(0.0) in (395, 500)  # given away at worst, and then begun anew


def test_a_full_table_waits_for_no_record_that_a_process_has_open(own_memory: Memory) -> None:
    """That process may itself be waiting for the lock under which records are given away: both would wait for ever."""
    held = Number(own_memory.small, Definition(layout.RECORDS, 1, 1), lambda *_: None)
    held.open()
    for number in range(2, 4 * PROBES):
        Number(own_memory.small, Definition(number * layout.RECORDS, 1, 1), lambda *_: None)
    held.close()
    assert own_memory.words[held.at + layout.STAMP] | layout.TOUCHED == held._stamp
    assert own_memory.words[held.at + layout.KEY] == layout.RECORDS


class Interrupted:
    """The words of shared memory as a process sees them that is delayed each time when it has read the word `at`:
    `meanwhile` is what other processes do then, once.
    """

    def __init__(self, words: Any, at: int, meanwhile: Callable[[], None]) -> None:
        self._words, self._at, self._meanwhile = words, at, [meanwhile]

    def __getitem__(self, index: int) -> int:
        value: int = self._words[index]
        if index == self._at and self._meanwhile:
            self._meanwhile.pop()()
        return value


def test_what_is_read_without_the_lock_was_published(own_memory: Memory) -> None:
    """A process is delayed between two words, while another one publishes, and begins to publish once more."""
    one, other = (
        SharedFactory(own_memory, 1).bucket(("", "a"), QuotaSpec(500, refill=1.0), None, 0.0) for _ in range(2)
    )
    assert one.take(100, 0.0)

    def meanwhile() -> None:
        copy = one.record._copies[own_memory.words[one.record._sequence] & 1]
        assert one.take(50, 0.0)
        own_memory.map[copy : copy + 8] = bytes(8)  # packing numbers begins with zeros

    other.record.words = Interrupted(own_memory.words, other.record._sequence, meanwhile)
    assert other.record.peek() == 350


def test_what_is_read_without_the_lock_is_no_other_records(own_memory: Memory) -> None:
    """A process is delayed between two words, while its record's slot is given to another key."""

    def record(number: int) -> Number:
        """The record of a key that is first looked for in the same slot as the others."""
        return Number(
            own_memory.small,
            Definition(number * layout.RECORDS, 1, 1),
            lambda at, _: own_memory.doubles.__setitem__(at, float(number)),
        )

    one, others = record(1), iter(range(2, 1000))

    def meanwhile() -> None:
        while own_memory.words[one.at + layout.KEY] == layout.RECORDS:
            record(next(others))

    one.words = Interrupted(own_memory.words, one._stamp_at, meanwhile)
    assert one.peek() == 1.0
    one.words = own_memory.words
    assert one.peek() == 1.0, "it is begun anew"


def test_the_registry_over_shared_memory(own_memory: Memory) -> None:
    """Two workers' registries find the same state."""

    policy = Policy("a", "", STANDARD, BucketRef(QuotaSpec(500)))
    request = Request("GET", "a.example", "/", NoFields())
    scopes = [Registry(SharedFactory(own_memory, 1)).scope(policy, request, 1.0) for _ in range(2)]
    assert scopes[0].bucket is not None
    assert scopes[1].bucket is not None
    assert scopes[0].bucket.take(5, 1.0)
    assert scopes[1].bucket.level(1.0) == 495
    scopes[1].governor.requests_wait(Caller(request, request.fields, ""), 503, 3.0, sent=1.0, now=1.0, whole=True)
    assert scopes[0].governor.holds(2.0)


def test_a_refilled_quota_is_one_for_all_and_its_successor_takes_over_the_share_of_now(own_memory: Memory) -> None:
    name, slow = key(), QuotaSpec(100, initial=0, refill=1.0)
    one, two = (SharedFactory(own_memory).bucket(name, slow, None, 10.0) for _ in range(2))
    assert one.take(5, 15.0)
    assert not two.take(5, 15.0)
    assert two.level(35.0) == one.level(35.0) == 20
    later = SharedFactory(own_memory, generation=1)
    for spec, level in ((QuotaSpec(1000, refill=2.0), 500), (ThrottleSpec(10), 5)):
        place = (*name, spec.kind)
        assert later.bucket(place, slow, None, 10.0).level(60.0) == 50
        changed = SharedFactory(own_memory, generation=2).bucket(place, spec, None, 60.0)
        assert changed.level(60.0) == level
    assert SharedFactory(own_memory, generation=1).bucket(name, slow, one, 60.0) is one, (
        "what did not change keeps its state"
    )
    assert one.level(60.0) == 45
    plain = SharedFactory(own_memory, generation=3).bucket(name, QuotaSpec(10), None, 60.0)
    assert (plain.level(60.0), plain.level(1e6)) == (4.5, 4.5)
    again = SharedFactory(own_memory, generation=4).bucket(name, slow, None, 70.0)
    assert (again.level(70.0), again.level(75.0)) == (45, 50)


@shapes
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.001, 0.3, 2.0, 4.9, 30.0]),
            st.sampled_from(["call", "hedge", "back", "answer", "answer"]),
            st.floats(0.0002, 3000.0),
        ),
        max_size=120,
    )
)
def test_hedges_are_bounded_alike_and_times_are_within_their_box(
    memory: Memory, steps: list[tuple[float, str, float]]
) -> None:
    """The same bound to the hedge; a percentile within 2.4 % of the one of the slices that the window has."""
    one, other = Hedges(), SharedFactory(memory).hedges(("a", key()[1], ""), 0.0)
    now, times = 1000.0, []
    taken: list[float] = []
    for wait, what, seconds in steps:
        now += wait
        if what == "call":
            one.began(now)
            other.began(now)
        elif what == "hedge":
            if one.take(0.3, now) is not None:
                taken.append(now)
                assert other.take(0.3, now) is not None
            else:
                assert other.take(0.3, now) is None
        elif what == "back" and taken:
            at = taken.pop()
            one.give_back(at)
            other.give_back(at)
        elif what == "answer":
            other.answered(seconds, now)
            times.append((now // 5, seconds))
        assert one.counts(now) == other.counts(now)
    now += FRESH
    inside = sorted(seconds for slice_, seconds in times if slice_ > now // 5 - SLICES)
    for percent in (50.0, 95.0, 99.9):
        found = other.delay(percent, now)
        if len(inside) < FEWEST:
            assert found is None
        else:
            assert found is not None
            assert abs(found / inside[rank(percent, len(inside))] - 1) < 0.024


def test_the_boxes_of_times_are_as_fine_as_is_said() -> None:
    edges = [(middle_of(box) + middle_of(box + 1)) / 2 for box in range(BOXES - 1)]
    assert max(edge / middle_of(box) - 1 for box, edge in enumerate(edges)) < 0.024
    assert middle_of(0) == LEAST and middle_of(BOXES - 1) == pytest.approx(MOST)
    assert [box_of(middle_of(box)) for box in range(BOXES)] == list(range(BOXES))
    assert box_of(0.0) == 0 and box_of(1e9) == BOXES - 1


def test_hedges_are_those_of_the_definition_over_reloads(own_memory: Memory) -> None:
    """What is measured goes on; another generation of the configuration finds it."""
    before, after = SharedFactory(own_memory, 1), SharedFactory(own_memory, 2)
    one = before.hedges(("a", "p95", ""), 0.0)
    for _ in range(FEWEST):
        one.began(1.0)
        one.answered(0.2, 1.0)
    other = after.hedges(("a", "p95", ""), 2.0)
    assert other.counts(2.0) == (0, FEWEST)
    assert other.delay(95, 2.0) == pytest.approx(0.2, rel=0.024)
