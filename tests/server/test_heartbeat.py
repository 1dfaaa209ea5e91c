"""Which workers hang: those that could go on and do not, on a virtual clock; and a lock's holder that is stopped."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.stores.shared_memory.mutex import MUTEX_BYTES, Mutex, beat_while_waiting
from proxy.supervisor.heartbeat import (
    COMPUTES,
    ENDS,
    HANGS,
    LOOK,
    NEXT,
    NOT_BEGUN,
    STARTS,
    HeartbeatWatch,
    Pulse,
    Times,
    times_of,
)


def looks(pulse: Pulse, beat: int, seconds: float, *, ran: float = 0.0, waited: float = 0.0, state: str = "S") -> None:
    """Look for so long at a heartbeat that stands still; of each second the process ran and waited for such a part."""
    for n in range(1 + round(seconds / LOOK)):
        times = Times(ran * LOOK * n, waited * LOOK * n, state)
        pulse.look(beat, LOOK, lambda: times)  # noqa: B023  called at once


def begun() -> Pulse:
    pulse = Pulse()
    pulse.look(1, LOOK, lambda: Times(0, 0, "T"))
    return pulse


def test_a_stopped_worker_hangs_after_two_seconds() -> None:
    pulse = begun()
    looks(pulse, 1, HANGS - LOOK)
    assert not pulse.hangs
    pulse.look(1, LOOK, lambda: Times(0, 0, "T"))
    assert pulse.hangs


def test_a_heartbeat_begins_anew() -> None:
    pulse = begun()
    for beat in range(2, 10):
        looks(pulse, beat, HANGS - LOOK)
        assert not pulse.hangs
        assert not pulse.is_silent


def test_one_that_computes_may_finish_while_another_accepts() -> None:
    pulse = begun()
    looks(pulse, 1, HANGS + 1, ran=1.0)
    assert pulse.is_silent
    assert not pulse.hangs
    looks(pulse, 1, COMPUTES, ran=1.0)
    assert pulse.hangs


@pytest.mark.parametrize(
    "why",
    [
        {"waited": 1.0},
        {"waited": 0.9, "ran": 0.1},
        {"state": "D"},
        {"state": "R"},  # Linux adds a wait up when it is over: without a processor there is none
        {"state": "R", "ran": 0.1},
        {"state": "Z"},
    ],
)
def test_a_busy_machine_is_no_fault_of_the_worker(why: dict[str, Any]) -> None:
    pulse = begun()
    looks(pulse, 1, 2 * COMPUTES, **why)
    assert not pulse.hangs


def test_what_the_system_says_nothing_of_may_compute() -> None:
    pulse = begun()
    looks(pulse, 1, COMPUTES - 1, state="")
    assert pulse.is_silent
    assert not pulse.hangs
    looks(pulse, 1, 2, state="")
    assert pulse.hangs


def test_one_in_a_debugger_is_left_to_it_while_another_accepts() -> None:
    pulse = begun()
    looks(pulse, 1, 10 * COMPUTES, state="t")
    assert pulse.is_silent
    assert not pulse.hangs
    looks(pulse, 1, HANGS + LOOK, state="T")
    assert pulse.hangs


def test_one_that_starts_has_longer_and_one_that_ends_is_waited_for() -> None:
    starts, ends = Pulse(), begun()
    looks(starts, NOT_BEGUN, STARTS - 1)
    assert not starts.hangs
    looks(starts, NOT_BEGUN, STARTS + 1)
    assert starts.hangs
    looks(ends, ENDS, 100)
    assert not ends.hangs


class Worker:
    def __init__(self, number: int) -> None:
        self.number = self.row = number
        self.pid = os.getpid()
        self.killed = 0

    def kill_hung(self, seconds: float) -> None:
        self.killed += 1


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that wait for something, and neither compute nor wait for the machine."""
    monkeypatch.setattr("proxy.supervisor.heartbeat.times_of", lambda _: Times(0.0, 0.0, "S"))


@pytest.mark.usefixtures("blocked")
def test_the_hung_one_alone_is_killed_once_and_the_silent_ones_are_named() -> None:
    workers, beats, changed = [Worker(1), Worker(2)], {1: 1, 2: 1}, list[tuple[int, bool]]()
    watch = HeartbeatWatch(
        lambda: workers, beats.__getitem__, lambda each, silent: changed.append((each.number, silent))
    )
    for _ in range(round(3 * COMPUTES / LOOK)):
        beats[2] += 1
        watch.look(LOOK)
    assert [each.killed for each in workers] == [1, 0]
    assert changed == [(1, True)]
    beats[1] += 1
    watch.look(LOOK)
    assert changed == [(1, True), (1, False)]


@pytest.mark.usefixtures("blocked")
def test_workers_are_killed_one_at_a_time() -> None:
    """Something has stopped all of them: the next goes when the successor of the last has begun, or does not come."""
    workers = [Worker(1), Worker(2), Worker(3)]
    beats = {1: 1, 2: 1, 3: 1, 4: NOT_BEGUN}
    watch = HeartbeatWatch(lambda: workers, beats.__getitem__, lambda *_: None)

    def look(seconds: float) -> list[int]:
        for _ in range(round(seconds / LOOK)):
            watch.look(LOOK)
        return [each.killed for each in workers]

    assert sum(look(HANGS + 1)) == 1
    victim = next(each for each in workers if each.killed)
    workers.remove(victim)
    workers.append(Worker(4))
    assert look(NEXT / 4) == [0, 0, 0]
    beats[4] = 1
    assert sum(look(LOOK)) == 1
    assert sum(look(NEXT - 2 * LOOK)) == 1
    beats[4] += 1
    assert look(2 * LOOK) == [1, 1, 0]


def test_the_times_of_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = times_of(os.getpid())
    assert own.ran > 0
    assert own.state == "R"
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    assert times_of(gone) == (0.0, 0.0, "")
    stat = tmp_path / "proc" / "7" / "stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 200 100 0 0")
    monkeypatch.setattr("proxy.supervisor.heartbeat.Path", lambda name: Path(f"{tmp_path}{name}"))
    assert times_of(7) == (300 / os.sysconf("SC_CLK_TCK"), 0.0, "S")  # a kernel that counts no waits


@pytest.mark.usefixtures("blocked")
def test_time_that_the_parent_had_not_either_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop slept, or a container was paused, for an hour, between any two looks."""
    worker, clock = Worker(1), [0.0]
    watch = HeartbeatWatch(lambda: [worker], lambda _: 1, lambda *_: None)
    monkeypatch.setattr("proxy.supervisor.heartbeat.monotonic", lambda: clock[0])

    class Naps:
        """Stands for the event that the thread waits on: the clock goes on, by an hour each time."""

        left = 4

        def wait(self, seconds: float) -> bool:
            clock[0] += 3600.0
            self.left -= 1
            return not self.left

    watch._over = Naps()  # type: ignore[assignment]
    watch._run()
    assert not worker.killed


@pytest.fixture
def lock() -> Iterator[Mutex]:
    mutex = Mutex(mmap.mmap(-1, MUTEX_BYTES), 0)
    mutex.make()
    yield mutex
    beat_while_waiting(bool)


def test_who_waits_for_the_lock_of_a_stopped_process_has_a_heartbeat(lock: Mutex) -> None:
    """The holder is the one that hangs; killed, it frees the lock."""
    reader, writer = os.pipe()
    holder = os.fork()
    if not holder:
        lock.__enter__()
        os.write(writer, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
    assert os.read(reader, 1) == b"x"
    beats = list[int]()

    def beat() -> None:
        beats.append(1)
        os.kill(holder, signal.SIGKILL)

    beat_while_waiting(beat)
    with lock:
        assert beats
    os.waitpid(holder, 0)
    os.close(reader)
    os.close(writer)
