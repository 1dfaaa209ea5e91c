"""The watch over workers that hang: a thread of the parent reads their heartbeats, and kills a worker that hangs, so
that another is started in its place.

Law: the watch takes no lock of shared memory. The parent's loop may wait for a lock that the hung worker holds, and so
may all other workers, which keep their heartbeats going while they wait (`mutex.beat_while_waiting`): the kernel frees
the lock when the worker is dead. A delay that stops the parent as well is not held against a worker. Workers are
killed one at a time: what stops all of them is hardly the fault of each.

Theory. A worker's main thread increases a counter in its row of shared memory while its loop turns. While that counter
does not change, the watch adds up the time in which the worker could have gone on. Time does not count while the parent
did not look either (a laptop that slept, a paused container), while the worker waited for a processor (a busy machine:
/proc/PID/schedstat, and state R of /proc/PID/stat, since Linux adds a wait up only when it is over), or for a disk
(state D). A worker that is stopped or blocked is killed after HANGS seconds. One that computes may finish: after HANGS
seconds another accepts on its sockets too, and it is killed after COMPUTES seconds. Where the system does not say what
a process does, it computes. A worker that a debugger stopped (state t) is not killed, but another accepts for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from proxy.transport.clock import monotonic

#: Seconds between looks, and the most seconds that one look counts for.
LOOK = 0.25
_MOST = 2 * LOOK
#: Seconds without a heartbeat after which a worker counts as hung: if it neither computes nor waits for the machine,
#: and if it computes.
HANGS, COMPUTES = 2.0, 10.0
#: The same before the first heartbeat: a worker imports its modules first, and reads the configuration.
STARTS = 30.0
#: Seconds after which the next worker may be killed, if the successor of the last one has not begun by then.
NEXT = 5.0
#: The values in place of a heartbeat: of a worker before its first one, and of one that ends, whose end its parent
#: limits itself.
NOT_BEGUN, ENDS = 0, -1
_NANOSECONDS = 1e9
#: States in which a process can't go on, through no fault of its own: waits for a processor or a disk; has ended.
_WAITS = frozenset("RDZX")
_DEBUGGED = "t"
_TICKS = os.sysconf("SC_CLK_TCK")


class Times(NamedTuple):
    """The times of a process so far, in seconds: `ran`, for which its threads ran, and `waited`, for which they waited
    for a processor (a wait counts once it is over). `state` is that of its main thread now, a letter of /proc/PID/stat,
    "" if unknown.
    """

    ran: float
    waited: float
    state: str


class Beating(Protocol):
    """A worker as the watch over heartbeats sees it."""

    @property
    def number(self) -> int:
        """The worker's number, unique for the parent's life."""

    @property
    def pid(self) -> int:
        """The process's id."""

    @property
    def row(self) -> int:
        """The worker's row in shared memory."""

    def kill_hung(self, seconds: float) -> None:
        """Kill the process, which has hung for so many seconds. The watch's thread calls this."""


class Pulse:
    """The measure of how long one worker's heartbeat has been silent, by regular looks at its counter."""

    __slots__ = ("_beat", "_before", "_computed", "_stood", "silent")

    def __init__(self) -> None:
        self._beat = NOT_BEGUN
        self._before: Times | None = None
        self.silent = 0.0  # seconds without a heartbeat in which the worker did not wait for the machine
        self._computed = 0.0  # those of them in which it computed,
        self._stood = 0.0  # and those in which it could have

    def look(self, beat: int, seconds: float, times: Callable[[], Times]) -> None:
        """Note the heartbeat counter's value `beat`, read `seconds` after the previous look. `times` is called if the
        counter has not changed, for the CPU and waiting times of the worker's process so far.
        """
        if beat != self._beat or beat == ENDS:
            self._beat = beat
            self._before, self.silent, self._computed, self._stood = None, 0.0, 0.0, 0.0
            return
        before, self._before = self._before, times()
        if before is None:
            return
        state = self._before.state
        ran = min(seconds, max(0.0, self._before.ran - before.ran)) if state and before.state else seconds
        waited = max(0.0, self._before.waited - before.waited)
        stood = 0.0 if state in _WAITS else max(0.0, seconds - ran - waited)
        self.silent += stood + ran
        if state != _DEBUGGED:
            self._computed += ran
            self._stood += stood

    @property
    def has_begun(self) -> bool:
        """Whether the worker has ever sent a heartbeat."""
        return self._beat != NOT_BEGUN

    @property
    def is_silent(self) -> bool:
        """Whether the heartbeat has been still for so long that another worker should accept on this worker's
        sockets.
        """
        return self.silent >= HANGS and self.has_begun

    @property
    def hangs(self) -> bool:
        """Whether the worker is considered hung, and is to be killed."""
        counted = self._computed + self._stood
        return self._stood >= HANGS or counted >= COMPUTES if self.has_begun else counted >= STARTS


W = TypeVar("W", bound=Beating)


class HeartbeatWatch(Generic[W]):
    """The thread that watches the workers' heartbeats. `workers` returns the workers to watch, `beat` the heartbeat
    counter of a worker, given the number of the worker's row in shared memory; `changed` is called, in the thread, with
    a worker and True if its heartbeat has stopped, False if it goes on again.
    """

    def __init__(
        self,
        workers: Callable[[], Iterable[W]],
        beat: Callable[[int], int],
        changed: Callable[[W, bool], object],
    ) -> None:
        self._workers = workers
        self._beat = beat
        self._changed = changed
        self._pulses: dict[int, Pulse] = {}
        self._silent: set[int] = set()
        self._hung: set[int] = set()
        self._newest = 0  # the number of the newest worker when one was killed last,
        self._since = NEXT  # and the seconds since then
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, at its next look."""
        self._over.set()

    def _run(self) -> None:
        before = monotonic()
        while not self._over.wait(LOOK):
            now = monotonic()
            self.look(min(_MOST, now - before))
            before = now

    def look(self, seconds: float) -> None:
        """Check the heartbeats of all workers, `seconds` after the previous check."""
        workers = list(self._workers())
        numbers = {worker.number for worker in workers}
        self._pulses = {number: pulse for number, pulse in self._pulses.items() if number in numbers}
        self._silent &= numbers
        self._hung &= numbers
        for worker in workers:
            pulse = self._pulses.setdefault(worker.number, Pulse())
            pid = worker.pid
            pulse.look(self._beat(worker.row), seconds, lambda: times_of(pid))  # noqa: B023  called at once
            if pulse.is_silent != (worker.number in self._silent):
                self._silent ^= {worker.number}
                self._changed(worker, pulse.is_silent)
        self._since += seconds
        hung = [worker for worker in workers if self._pulses[worker.number].hangs and worker.number not in self._hung]
        if hung and self._may_kill_another():
            victim = max(hung, key=lambda worker: self._pulses[worker.number].silent)
            self._hung.add(victim.number)
            self._newest, self._since = max(numbers), 0.0
            victim.kill_hung(self._pulses[victim.number].silent)

    def _may_kill_another(self) -> bool:
        """Whether another hung worker may be killed: the successor of the worker killed last has begun, or has had its
        time to begin.
        """
        begun = any(number > self._newest and pulse.has_begun for number, pulse in self._pulses.items())
        return begun or self._since >= NEXT


def times_of(pid: int) -> Times:
    """The times of the process with this id so far; zeros if it has ended, or if the system says nothing of it. If the
    system does not count the times of threads (gVisor), those of the whole process may be taken.
    """
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        state, total = fields[0], (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return Times(0.0, 0.0, "")
    ran = waited = 0
    try:
        for task in (process / "task").iterdir():
            on, queued, _ = (task / "schedstat").read_text().split()
            ran, waited = ran + int(on), waited + int(queued)
    except (OSError, ValueError):  # or a thread has just ended
        return Times(total, 0.0, state)
    return Times(ran / _NANOSECONDS, waited / _NANOSECONDS, state) if ran else Times(total, 0.0, state)
