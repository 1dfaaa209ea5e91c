"""Circuit breakers against a naive model: in one process, and of several workers over shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.scopes.factory import Factory
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.records import Memory

KEY = ("u", "a:80")


@dataclass
class Naive:
    """The contract's sentences, with every end kept and looked through each time. Times are whole numbers."""

    spec: BreakerSpec
    ends: list[tuple[int, bool]] = field(default_factory=list)
    open_since: float | None = None
    length: float = 0.0
    forgotten: float = -1.0
    probe: tuple[int, float] | None = None  # its number, and until when it may decide
    probes: int = 0

    def enter(self, now: int) -> int | None:
        if self.open_since is None:
            return 0
        if now < self.open_since + self.length or (self.probe is not None and now < self.probe[1]):
            return None
        self.probes += 1
        self.probe = self.probes, now + self.length
        return self.probes

    def ended(self, ill: bool, sent: int, probe: int, now: int) -> None:
        if probe and self.probe is not None and self.probe[0] == probe and now <= self.probe[1]:
            self.probe = None
            if ill:
                self.open_since, self.length = now, min(60.0, 2 * self.length)
            else:
                self.open_since, self.ends, self.forgotten = None, [], now
            return
        if self.open_since is not None or sent < self.forgotten:
            return
        self.ends.append((now, ill))
        within = [ill for at, ill in self.ends if now - at < self.spec.window]
        ratio = Fraction(str(self.spec.failure_ratio))
        if len(within) >= self.spec.minimum_attempts and Fraction(sum(within), len(within)) >= ratio:
            self.open_since, self.length, self.probe = now, self.spec.open, None

    def undecided(self, probe: int, now: int) -> None:
        if self.probe is not None and self.probe[0] == probe and now <= self.probe[1]:
            self.probe = None


specs = st.builds(
    BreakerSpec,
    st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.7, 1.0]),
    st.integers(1, 5),
    st.sampled_from([5.0, 30.0]),
    st.sampled_from([1.0, 10.0, 40.0]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 20)),
        st.tuples(st.just("enter"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["ill", "well", "gone"]), st.integers(0, 30)),
    ),
    max_size=80,
)


def hold(breakers: list[CircuitBreaker], spec: BreakerSpec, script: list[tuple[str, int]]) -> None:
    naive, now, flying = Naive(spec), 0, []
    naive.length = spec.open
    probing: set[int] = set()
    for what, which in script:
        if what == "wait":
            now += which
        elif what == "enter":
            wanted, got = naive.enter(now), breakers[which % len(breakers)].enter(now)
            assert got == wanted
            if got:
                assert got not in probing, "two probes of one number"
                probing.add(got)
            if got is not None:
                flying.append((now, got, which))
        elif flying:
            sent, probe, worker = flying.pop(which % len(flying))
            breaker = breakers[worker % len(breakers)]
            if what == "gone":
                naive.undecided(probe, now)
                breaker.undecided(probe, now)
            else:
                naive.ended(what == "ill", sent, probe, now)
                breaker.ended(what == "ill", sent, probe, now)
        for breaker in breakers:
            assert breaker.is_open == (naive.open_since is not None)
            assert breaker.passes(now) == (
                naive.open_since is None
                or (now >= naive.open_since + naive.length and (naive.probe is None or now >= naive.probe[1]))
            )


@given(specs, steps)
def test_alone(spec: BreakerSpec, script: list[tuple[str, int]]) -> None:
    hold([Factory().breaker(KEY, spec, None)], spec, script)


@given(specs, steps, st.integers(0, 2**60))
def test_of_three_workers(memory: Memory, spec: BreakerSpec, script: list[tuple[str, int]], name: int) -> None:
    key = ("u", f"{name}:{os.urandom(8).hex()}")
    hold([SharedFactory(memory).breaker(key, spec, None) for _ in range(3)], spec, script)


def opened(breaker: CircuitBreaker, now: float) -> None:
    for _ in range(breaker.spec.minimum_attempts):
        breaker.ended(True, now, 0, now)
    assert breaker.is_open


@pytest.mark.parametrize("shared", [False, True])
def test_a_probe_whose_time_is_over_decides_nothing_for_the_next(memory: Memory, shared: bool) -> None:
    spec = BreakerSpec(0.5, 2, 30.0, 10.0)
    breaker = (SharedFactory(memory) if shared else Factory()).breaker(("u", "late probe"), spec, None)
    opened(breaker, 0.0)
    assert (breaker.enter(10.0), breaker.enter(20.0)) == (1, 2)
    breaker.ended(False, 10.0, 1, 21.0)
    breaker.ended(True, 10.0, 1, 21.0)
    breaker.undecided(1, 21.0)
    assert (breaker.is_open, breaker.seconds_left(22.0)) == (True, 8.0)
    breaker.ended(False, 20.0, 2, 22.0)
    assert not breaker.is_open


def test_one_probe_over_all_workers(memory: Memory) -> None:
    spec = BreakerSpec(0.5, 2, 30.0, 10.0)
    one, other = (SharedFactory(memory).breaker(("u", "one probe"), spec, None) for _ in range(2))
    opened(one, 0.0)
    assert other.is_open
    assert other.enter(9.9) is None
    assert other.seconds_left(9.0) == 1.0
    assert (one.enter(10.0), other.enter(10.0)) == (1, None)
    one.ended(False, 10.0, 1, 11.0)
    assert not other.is_open
    other.ended(True, 5.0, 0, 12.0)  # sent before the window was forgotten: it tells of that time
    other.ended(True, 11.5, 0, 12.0)
    assert not one.is_open


def test_a_worker_that_died_with_the_probe_holds_nobody_for_ever(memory: Memory) -> None:
    spec = BreakerSpec(0.5, 2, 30.0, 10.0)
    one, other = (SharedFactory(memory).breaker(("u", "died"), spec, None) for _ in range(2))
    opened(one, 0.0)
    assert one.enter(10.0) == 1
    del one
    assert other.enter(19.9) is None
    assert other.enter(20.0) == 2


def test_doubling_ends_at_a_minute_and_begins_anew_once_closed() -> None:
    breaker = CircuitBreaker(BreakerSpec(0.5, 1, 30.0, 10.0))
    now, waited = 0.0, []
    opened(breaker, now)
    for _ in range(5):
        waited.append(breaker.until - now)
        now = breaker.until
        probe = breaker.enter(now)
        assert probe
        breaker.ended(True, now, probe, now)
    assert waited == [10.0, 20.0, 40.0, 60.0, 60.0]
    now = breaker.until
    probe = breaker.enter(now)
    assert probe
    breaker.ended(False, now, probe, now)
    opened(breaker, now)
    assert breaker.until - now == 10.0


def test_a_longer_time_of_ones_own_is_kept() -> None:
    breaker = CircuitBreaker(BreakerSpec(0.5, 1, 30.0, 90.0))
    opened(breaker, 0.0)
    probe = breaker.enter(90.0)
    assert probe
    breaker.ended(True, 90.0, probe, 91.0)
    assert breaker.until == 181.0


def test_a_definition_that_changes_begins_closed(memory: Memory) -> None:
    for make in (Factory(), SharedFactory(memory)):
        before = make.breaker(("u", "changes"), BreakerSpec(0.5, 1), None)
        opened(before, 0.0)
        assert make.breaker(("u", "changes"), BreakerSpec(0.5, 1), before) is before
        assert not make.breaker(("u", "changes"), BreakerSpec(0.5, 2), before).is_open


def test_a_status_behind_the_messages_makes_an_attempt_ill_and_counts_it_once() -> None:
    breaker = CircuitBreaker(BreakerSpec(0.5, 2, 30.0, 10.0))
    breaker.ended(False, 0.0, 0, 0.0)
    breaker.turned_ill(0.0, 1.0)
    assert not breaker.is_open
    breaker.ended(False, 0.0, 0, 2.0)
    assert breaker.is_open


PROBER = """
import sys, time
from proxy.retry.policies.policy import BreakerSpec
from proxy.stores.shared_memory.factory import SharedFactory, open_memory

memory = open_memory(int(sys.argv[1]))
here = memory.row(int(sys.argv[2]))
breaker = SharedFactory(memory).breaker(("u", "probed"), BreakerSpec(0.5, 1, 30.0, 60.0), None)
breaker.ended(True, 0.0, 0, 0.0)
print("ready", flush=True)
sys.stdin.readline()
probes = 0
while probes < 500:
    probe = breaker.enter(60.0)
    if not probe:
        continue
    memory.words[here] = 1
    assert sum(memory.words[memory.row(row)] for row in range(1, 4)) == 1, "two probes at once"
    memory.words[here] = 0
    breaker.undecided(probe, 60.0)
    probes += 1
print("done", flush=True)
"""


def test_processes_never_have_two_probes_at_once(memory: Memory) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROBER, str(memory.descriptor), str(row)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[memory.descriptor],
        )
        for row in (1, 2, 3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in processes] == ["done\n"] * 3
