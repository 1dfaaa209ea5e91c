"""The watch over workers that hang: a thread of the parent reads their heartbeats, and kills a worker that hangs, so
that another is started in its place.

Law: the watch takes no lock of shared memory. The parent's loop may wait for a lock that the hung worker holds, and so
may all other workers, which keep their heartbeats going while they wait (`mutex.beat_while_waiting`): the kernel frees
the lock when the worker is dead. A delay that stops the parent as well is not held against a worker.

Theory. A worker's main thread increases a counter in its row of shared memory while its loop turns. While that counter
does not change, the watch adds up the time in which the worker could have gone on. Time does not count while the parent
did not look either (a laptop that slept, a paused container), while the worker waited for a processor (a busy machine:
/proc/PID/schedstat), or for a disk (state D of /proc/PID/stat). A worker that is stopped or blocked is killed after
HANGS seconds. One that computes may finish: after HANGS seconds another accepts on its sockets too, and it is killed
after COMPUTES seconds.
"""

from __future__ import annotations

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
#: The values in place of a heartbeat: of a worker before its first one, and of one that ends, whose end its parent
#: limits itself.
NOT_BEGUN, ENDS = 0, -1
_NANOSECONDS = 1e9


class Times(NamedTuple):
    """The times of a process so far: seconds for which its threads ran, and for which they waited for a processor; and
    whether the process waits for a disk now.
    """

    ran: float
    waited: float
    is_at_disk: bool


class Beating(Protocol):
    """The interface of a worker that the watch uses."""

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
    """The state of one worker's heartbeat from look to look."""

    __slots__ = ("_beat", "_before", "silent", "stood")

    def __init__(self) -> None:
        self._beat = NOT_BEGUN
        self._before: Times | None = None
        self.silent = 0.0  # seconds without a heartbeat in which the worker could have gone on
        self.stood = 0.0  # those of them in which it did not compute either

    def look(self, beat: int, seconds: float, times: Callable[[], Times]) -> None:
        """Note the heartbeat, `seconds` after the look before; `times` returns the process's times so far."""
        if beat != self._beat or beat == ENDS:
            self._beat = beat
            self._before, self.silent, self.stood = None, 0.0, 0.0
            return
        before, self._before = self._before, times()
        if before is None:
            return
        ran = min(seconds, max(0.0, self._before.ran - before.ran))
        waited = max(0.0, self._before.waited - before.waited)
        stood = 0.0 if self._before.is_at_disk else max(0.0, seconds - ran - waited)
        self.stood += stood
        self.silent += stood + ran

    @property
    def is_silent(self) -> bool:
        """Whether another worker should accept on its sockets."""
        return self.silent >= HANGS and self._beat != NOT_BEGUN

    @property
    def hangs(self) -> bool:
        """Whether the worker is considered hung, and is to be killed."""
        if self._beat == NOT_BEGUN:
            return self.silent >= STARTS
        return self.stood >= HANGS or self.silent >= COMPUTES


W = TypeVar("W", bound=Beating)


class HeartbeatWatch(Generic[W]):
    """The thread that watches heartbeats. `workers` returns the workers to watch, `beat` a row's heartbeat; `changed`
    is called, in the thread, with a worker that has become silent (True) or is silent no longer (False).
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
        """Look at all workers, `seconds` after the look before."""
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
            if pulse.hangs and worker.number not in self._hung:
                self._hung.add(worker.number)
                worker.kill_hung(pulse.silent)


def times_of(pid: int) -> Times:
    """The times of a process so far; zeros if the system does not give them, or the process has ended."""
    ran = waited = 0
    try:
        process = Path(f"/proc/{pid}")
        for task in (process / "task").iterdir():
            on, queued, _ = (task / "schedstat").read_text().split()
            ran, waited = ran + int(on), waited + int(queued)
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return Times(0.0, 0.0, False)
    return Times(ran / _NANOSECONDS, waited / _NANOSECONDS, state == "D")
