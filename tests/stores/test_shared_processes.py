"""Several processes on one bucket: every token is accounted for, whoever is killed."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hammering
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.buckets import QuotaBucket, RateBucket, make_bucket
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec
from proxy.stores.shared_memory.buckets import SharedBudget, SharedLimiter, SharedPartedQuota, SharedQuota
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.hedges import SharedHedges
from proxy.stores.shared_memory.lane import SharedLane
from proxy.stores.shared_memory.records import Memory

SCRIPT = Path(hammering.__file__)
PROCESSES = 4
SECONDS = 20.0
#: A strategy's own quota, which refills in quiet.
OWN = QuotaSpec().refilled_in_quiet(3)
NUMBERS = itertools.count()
STEPS = st.sampled_from([0.0, 0.001, 0.3, 0.999, 1.0, 1.001, 2.0, 9.5, 60.0])
ACTS = st.sampled_from(["call", "call", "call", "take", "drain", "success", "unsent"])


class Hammer:
    def __init__(self, memory: Memory, number: int, seed: int, rounds: int, what: str) -> None:
        self.memory, self.number, self.arguments = memory, number, (seed, rounds, what)
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, (memory.descriptor, number, *self.arguments))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[memory.descriptor],
        )  # fmt: skip

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def start(self) -> None:
        self.expect("ready")
        self.go()

    @property
    def held(self) -> int:
        return self.memory.words[self.memory.row(self.number) + hammering.HELD]

    @property
    def done(self) -> int:
        return self.memory.words[self.memory.row(self.number) + hammering.DONE]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def hammers(own_memory: Memory) -> Iterator[list[Hammer]]:
    started: list[Hammer] = []
    yield started
    for each in started:
        each.close()


def makes_progress(hammer: Hammer, operations: int = 200) -> None:
    """Wait until it has done so many more, with a deadline."""
    wanted, until = hammer.done + operations, time.monotonic() + SECONDS
    while hammer.done < wanted:
        assert hammer.process.poll() is None
        assert time.monotonic() < until, "blocked"
        time.sleep(0.001)


def level(memory: Memory, what: str) -> float:
    factory = SharedFactory(memory)
    if what == "quota":
        return factory.bucket(("", "a"), hammering.QUOTA, None, 0.0).level(0.0)
    return factory.rate(("", "a"), hammering.RATE, None, 0.0).level(0.0)


@pytest.mark.parametrize("what", ["quota", "rate"])
def test_four_processes_conserve_every_token(what: str, own_memory: Memory, hammers: list[Hammer]) -> None:
    hammers += [Hammer(own_memory, number, number, 5000, what) for number in range(PROCESSES)]
    for each in hammers:
        each.expect("ready")
    for each in hammers:
        each.go()
    for each in hammers:
        each.expect("done")
    assert [each.done for each in hammers] == [5000] * PROCESSES
    assert level(own_memory, what) + sum(each.held for each in hammers) == 1000


@pytest.mark.parametrize("spec", [OWN, replace(OWN, apps=(("web", 9), ("batch", 9), ("others", 1)))])
def test_a_call_of_any_process_ends_the_quiet_of_all(spec: QuotaSpec, own_memory: Memory) -> None:
    ours, theirs = (SharedFactory(own_memory).bucket(("a", "standard", ""), spec, None, 0.0) for _ in range(2))
    mine, other = ours.of_app(NamedApp("web")), theirs.of_app(NamedApp("batch"))
    mine.begin(0.0)
    other.begin(0.0)
    while mine.take(5, 0.0) or other.take(5, 0.0):
        pass
    empty = ours.level(0.0)
    assert empty < 40
    mine.begin(0.5)  # too early to matter, as calls are that this process makes before it knows of the payments
    for second in range(11, 31):  # each makes every other call: a call a second is no quiet
        (mine if second % 2 else other).begin(float(second))
    assert ours.level(31.0) == theirs.level(31.0) == empty
    assert ours.level(32.0) == theirs.level(32.0) == empty + 5
    other.begin(32.0)
    mine.begin(32.5)
    assert ours.level(34.0) == theirs.level(34.0) == empty + 5
    assert ours.level(1e6) == theirs.level(1e6) == 50
    changed = SharedFactory(own_memory, generation=1).bucket(("a", "standard", ""), QuotaSpec(1000), None, 1e6)
    assert spec.apps or changed.level(1e6) == 100


@pytest.mark.parametrize("spec", [QuotaSpec(10), OWN, replace(QuotaSpec(10), apps=(("web", 4), ("others", 1)))])
def test_a_quota_that_other_processes_change_never_rests(own_memory: Memory, spec: QuotaSpec) -> None:
    ours, theirs = (SharedFactory(own_memory).bucket(("a", "standard", "rests"), spec, None, 0.0) for _ in range(2))
    for bucket in (ours, theirs):
        bucket.begin(1.0)
        bucket.succeeded(None, 1.0)
    assert theirs.take(5, 1.0)
    ours.succeeded(None, 2.0)
    ours.succeeded(5, 2.0)
    ours.succeeded(None, 2.0)
    assert not ours.rests


def test_a_process_that_has_not_heard_of_the_payments_yet_loses_nothing(own_memory: Memory) -> None:
    paying, calling = (SharedFactory(own_memory).bucket(("a", "standard", "x"), OWN, None, 0.0) for _ in range(2))
    alone = make_bucket(OWN, now=0.0)
    for bucket in (calling, alone):
        bucket.begin(0.0)  # here the level is full
    for bucket in (paying, alone):
        while bucket.take(5, 0.5):
            pass
    for at in (0.75, *[1.75] * 20, 2.0, 3.0):  # what calls put off shows beside what the payments did
        for bucket in (calling, alone):
            bucket.begin(at)
    assert [paying.level(at) for at in (11.5, 13.0, 14.0, 15.0)] == [alone.level(at) for at in (11.5, 13.0, 14.0, 15.0)]
    assert paying.level(13.0) == 0
    assert paying.level(14.0) == 5


@given(script=st.lists(st.tuples(STEPS, st.booleans(), ACTS), max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_several_processes_are_as_one(own_memory: Memory, script: list[tuple[float, bool, str]]) -> None:
    """Two processes that share a quota see the level that one bucket has if it gets all their calls."""
    key = "a", "standard", str(next(NUMBERS))
    shared = [SharedFactory(own_memory).bucket(key, OWN, None, 0.0) for _ in range(2)]
    alone, now = make_bucket(OWN, now=0.0), 0.0
    for step, which, act in script:
        now += step
        for bucket in (shared[which], alone):
            match act:
                case "call":
                    bucket.begin(now)
                case "drain":
                    while bucket.take(5, now):
                        pass
                case "take":
                    bucket.take(5, now)
                case "success":
                    bucket.succeeded(None, now)
                case "unsent":
                    bucket.give_back(5, now)
        look = make_bucket(OWN)
        assert isinstance(look, QuotaBucket) and isinstance(alone, QuotaBucket)
        look.restore(alone.state())  # a level that is read in between adds up in other parts, and rounds otherwise
        assert shared[0].level(now) == shared[1].level(now) == pytest.approx(look.level(now), abs=1e-6)


def test_four_processes_keep_each_others_parts(own_memory: Memory, hammers: list[Hammer]) -> None:
    """Each app is seen all the time: none holds more than its part, and every token is accounted for."""
    bucket = SharedFactory(own_memory).bucket(("", "a"), hammering.PARTED, None, 0.0)
    assert isinstance(bucket, SharedPartedQuota)
    for place in range(3):
        bucket.came(place, 0.0)
    hammers += [Hammer(own_memory, number, number, 5000, "parted") for number in range(PROCESSES)]
    for each in hammers:
        each.expect("ready")
    for each in hammers:
        each.go()
    for each in hammers:
        each.expect("done")
    web, batch, others, web_too = (each.held for each in hammers)
    assert bucket.level(0.0) + web + batch + others + web_too == 1000
    sizes = bucket.parts.sizes
    held = [web + web_too, batch, others]
    assert [bucket.parts.own(place) for place in range(3)] == pytest.approx(
        [size - took for size, took in zip(sizes, held, strict=True)], abs=1e-6
    )


def test_a_quota_that_gets_parts_keeps_its_level(own_memory: Memory) -> None:
    factory = SharedFactory(own_memory)
    before = factory.bucket(("", "a"), hammering.QUOTA, None, 0.0)
    assert before.take(600, 0.0)
    factory.generation = 1
    after = factory.bucket(("", "a"), hammering.PARTED, before, 0.0)
    assert after.level(0.0) == 400
    assert SharedFactory(own_memory, 1).bucket(("", "a"), hammering.PARTED, None, 0.0).level(0.0) == 400


def test_workers_share_an_apps_own_budget(own_memory: Memory) -> None:
    spec = BudgetSpec(percent=20, min_per_second=0, window=10, apps=(("web", 1), ("others", 1)))
    one, other = (SharedFactory(own_memory).bucket(("", "b"), spec, None, 0.0) for _ in range(2))
    web, web_too, rest = one.of_app(NamedApp("web")), other.of_app(NamedApp("web")), other.of_app(NamedApp())
    for _ in range(5):
        web.begin(0.0)
        web_too.begin(0.0)
    for _ in range(90):
        rest.begin(0.0)
    assert [web.take(1.0, 0.0), web_too.take(1.0, 0.0), web.take(1.0, 0.0)] == [True, True, False]
    assert not web_too.affords(1.0, 0.0)
    assert rest.take(1.0, 0.0)


def kill_some(memory: Memory, hammers: list[Hammer], what: str, kills: int, first: int = 0) -> None:
    """Kill one of the running ones after the other, and see that the others go on each time; then kill them all. Their
    numbers are those from `first` on.
    """
    rng = random.Random(7)
    hammers += [Hammer(memory, first + number, number, 0, what) for number in range(PROCESSES + kills)]
    for each in hammers:
        each.expect("ready")
    running, spare = hammers[:PROCESSES], hammers[PROCESSES:]
    for each in running:
        each.go()
    for each in spare:
        makes_progress(rng.choice(running), rng.randrange(50, 400))
        running.pop(rng.randrange(PROCESSES)).kill()
        for other in running:
            makes_progress(other, 20)
        each.go()
        running.append(each)
    for each in running:
        makes_progress(each, 20)
        each.kill()


@pytest.mark.parametrize("what", ["quota", "rate"])
def test_killed_at_any_moment_blocks_nobody_and_loses_one_operation(
    what: str, own_memory: Memory, hammers: list[Hammer]
) -> None:
    kill_some(own_memory, hammers, what, kills=8)
    step = 5 if what == "quota" else 1
    off = 1000 - level(own_memory, what) - sum(each.held for each in hammers)
    assert abs(off) <= step * len(hammers)
    assert off % step == 0


def test_a_budget_stays_whole_when_its_users_are_killed(own_memory: Memory, hammers: list[Hammer]) -> None:
    kill_some(own_memory, hammers, "budget", kills=4)
    bucket = SharedFactory(own_memory).bucket(("", "a"), hammering.BUDGET, None, 0.0)
    assert isinstance(bucket, SharedBudget)
    held = sum(each.held for each in hammers)
    assert abs(bucket._retries.count(time.monotonic()) - held) <= len(hammers)
    for count in (bucket._calls, bucket._retries):
        header = count._load()
        slices = [count._read(place) for place in range(header.head, header.tail)]
        assert header.total == header.count + sum(events for _, _, events in slices)
        assert all(first <= last for first, last, _ in slices)
        assert [first for first, _, _ in slices] == sorted(first for first, _, _ in slices)


def test_refusals_stay_whole_when_the_workers_that_met_them_are_killed(
    own_memory: Memory, hammers: list[Hammer]
) -> None:
    """Each is counted once, but for the one that a killed worker was just noting; so are the attempts that ended, and
    what is known of the times between them is of one moment.
    """
    own_memory.words[own_memory.row(0)] = PROCESSES + 8
    kill_some(own_memory, hammers, "refusals", kills=8, first=1)
    governor = SharedFactory(own_memory).governor("u", "x")
    lane = governor.first
    assert isinstance(lane, SharedLane)
    lane.look()
    evidence, noted = lane.limit.evidence, sum(each.held for each in hammers)
    assert noted > 1000
    assert 0 <= evidence._refusals - noted <= len(hammers)
    assert 0 <= evidence.ended - noted <= len(hammers)
    assert evidence._refused <= evidence._refusals
    gap = evidence.least_gap
    assert gap is not None
    assert gap._sent == sorted(gap._sent)
    assert 0 < len(gap._sent) <= 128
    assert 0 <= gap._judged <= len(gap._sent)


def test_four_processes_keep_hedges_within_their_share(own_memory: Memory, hammers: list[Hammer]) -> None:
    hammers += [Hammer(own_memory, number, number, 2000, "hedges") for number in range(PROCESSES)]
    for each in hammers:
        each.start()
    for each in hammers:
        each.expect("done")
    kept = SharedFactory(own_memory).hedges(("a", "p95", "x"), 0.0)
    now = time.monotonic()
    sent, calls = kept.counts(now)
    assert (sent, calls) == (sum(each.held for each in hammers), 2000 * PROCESSES)
    assert 0.25 * calls < sent <= hammering.SHARE * calls
    measured = kept.delay(50, now)
    assert measured is not None and 0.04 < measured < 0.06  # e^-3 is 0.0498


def test_hedges_stay_whole_when_their_users_are_killed(own_memory: Memory, hammers: list[Hammer]) -> None:
    kill_some(own_memory, hammers, "hedges", kills=4)
    kept = SharedFactory(own_memory).hedges(("a", "p95", "x"), 0.0)
    assert isinstance(kept, SharedHedges)
    now = time.monotonic()
    sent, calls = kept.counts(now)
    done = sum(each.done for each in hammers)
    assert abs(sent - sum(each.held for each in hammers)) <= len(hammers)
    assert 0 <= calls - done <= len(hammers)
    assert 0 <= kept._sums(int(now // 5) + 1)[1][-1] - done <= len(hammers)


def test_a_limiter_stays_whole_when_its_users_are_killed(own_memory: Memory, hammers: list[Hammer]) -> None:
    hammers += [Hammer(own_memory, number, number, 0, "limiter") for number in range(2)]
    for each in hammers:
        each.start()
    for each in hammers[:2]:
        makes_progress(each, 500)
    hammers[0].kill()
    makes_progress(hammers[1], 500)
    hammers[1].kill()
    cubic = SharedFactory(own_memory).limiter(("a", "adaptive", "x"), 0.0)
    assert isinstance(cubic, SharedLimiter)
    assert cubic.enabled
    assert cubic.capacity == max(cubic.rate, 1.0)
    assert cubic.level(time.monotonic()) <= cubic.capacity


def test_killed_while_it_holds_the_lock(own_memory: Memory) -> None:
    bucket = SharedFactory(own_memory).bucket(("", "a"), hammering.QUOTA, None, 0.0)
    rate = SharedFactory(own_memory).rate(("", "a"), hammering.RATE, None, 0.0)
    assert isinstance(bucket, SharedQuota)
    held = """if True:
        import sys
        from proxy.stores.shared_memory.factory import SharedFactory, open_memory
        sys.path.insert(0, sys.argv[2])
        import hammering
        memory = open_memory(int(sys.argv[1]))
        bucket = SharedFactory(memory).bucket(("", "a"), hammering.QUOTA, None, 0.0)
        rate = SharedFactory(memory).rate(("", "a"), hammering.RATE, None, 0.0)
        bucket.record.open()
        bucket.record.doubles[bucket.record.value] -= 5
        rate.record.open()
        rate.record._form.pack_into(rate.record._map, rate.record._copies[1], 1.0, 1.0)  # all but published
        memory.directory.__enter__()
        print("held", flush=True)
        sys.stdin.read()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", held, str(own_memory.descriptor), str(SCRIPT.parent)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[own_memory.descriptor],
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
    assert bucket.take(5, 0.0)
    assert bucket.level(0.0) == 990
    assert isinstance(rate, RateBucket)
    assert rate.level(0.0) == 1000
    assert rate.take(0.0)
    assert SharedFactory(own_memory).bucket(("", "b"), hammering.QUOTA, None, 0.0).level(0.0) == 1000
