"""Which workers hang: those that could go on and do not, on a virtual clock; and a lock's holder that is stopped."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator

import pytest

from proxy.stores.shared_memory.mutex import MUTEX_BYTES, Mutex, beat_while_waiting
from proxy.supervisor.heartbeat import COMPUTES, ENDS, HANGS, LOOK, NOT_BEGUN, STARTS, HeartbeatWatch, Pulse, Times


def looks(
    pulse: Pulse, beat: int, seconds: float, *, ran: float = 0.0, waited: float = 0.0, disk: bool = False
) -> None:
    """Look for so long at a heartbeat that stands still; of each second the process ran and waited for such a part."""
    for n in range(1 + round(seconds / LOOK)):
        times = Times(ran * LOOK * n, waited * LOOK * n, disk)
        pulse.look(beat, LOOK, lambda: times)  # noqa: B023  called at once


def begun() -> Pulse:
    pulse = Pulse()
    pulse.look(1, LOOK, lambda: Times(0, 0, False))
    return pulse


def test_a_stopped_worker_hangs_after_two_seconds() -> None:
    pulse = begun()
    looks(pulse, 1, HANGS - LOOK)
    assert not pulse.hangs
    pulse.look(1, LOOK, lambda: Times(0, 0, False))
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


@pytest.mark.parametrize("why", [{"waited": 1.0}, {"disk": True}, {"waited": 0.9, "ran": 0.1}])
def test_a_busy_machine_is_no_fault_of_the_worker(why: dict[str, float]) -> None:
    pulse = begun()
    looks(pulse, 1, 2 * COMPUTES, **why)  # type: ignore[arg-type]
    assert not pulse.hangs


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
