"""Stalls: processes of a test run stand still for a while, as all do on a virtual machine whose neighbour is noisy.

    REDRIVE_STALLS=7 pytest tests/lab    # 7: where its random numbers begin; `make stalls SEED=7 ARGS=tests/lab`

A process beside the tests stops (SIGSTOP) at random moments either the process that runs a test, or one that this has
begun, or all of them together, for 0.1 to 1.5 s, and lets them go on (SIGCONT). The first stall of a test comes within
its first two seconds, moments right after its start being likelier, so that short tests are hit too; later ones come so
often that something stands still for `SHARE` of the time. The last lines of the run say which stalls a failed test had.

Nothing stays stopped: the process that stops others has a parent that lets them go on where it is killed, and does so
itself where that parent, or the test run, ends. What a test itself has stopped is left alone.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

#: Where the plugin, in each process that runs tests, says which test begins and which has ended.
ADDRESS = "REDRIVE_STALLS_ADDRESS"
SHARE = 0.3
#: Seconds: the shortest and the longest stall, and the moments of the first one in a test.
SHORTEST, LONGEST = 0.1, 1.5
EARLIEST, LATEST = 0.001, 2.0
#: How often all processes of a test are stopped, or the one alone that runs it; else it is another one.
ALL, RUNNER = 0.35, 0.25
#: Seconds after which the process that stops others looks whether its parent still lives.
LOOK = 0.2
#: The most processes that can be stopped at once.
MOST = 1 << 12


class StallsPlugin:
    """A plugin of pytest, in the process that begins a run and in those of xdist. It says which test runs. The first of
    these processes begins the one that stops others. `seed` is where the random numbers begin.
    """

    def __init__(self, seed: str) -> None:
        self._beside: subprocess.Popen[bytes] | None = None
        if ADDRESS not in os.environ:
            os.environ[ADDRESS] = f"redrive-stalls-{os.getpid()}"
            pipe = subprocess.PIPE
            command = (sys.executable, __file__, seed)
            self._beside = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
            assert self._beside.stdout is not None
            assert self._beside.stdout.readline() == b"ready\n"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(f"\0{os.environ[ADDRESS]}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Say that a test begins, and that it has ended."""
        self._say(item.nodeid)
        try:
            return (yield)
        finally:
            self._say("")

    def _say(self, test: str) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self._socket.send(json.dumps({"pid": os.getpid(), "worker": worker, "test": test}).encode())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how much stood still, and what in each test that failed."""
        if self._beside is None:
            return
        out, _ = self._beside.communicate()
        stalls: dict[str, list[str]] = defaultdict(list)
        seconds = 0.0
        for line in out.splitlines():
            stall = json.loads(line)
            seconds += stall["seconds"]
            text = f"  {stall['at']:7.3f} s after its start, for {stall['seconds']:.3f} s: {', '.join(stall['what'])}"
            stalls[stall["test"]].append(text)
        number = sum(map(len, stalls.values()))
        terminalreporter.write_line(f"{number} stalls in {len(stalls)} tests, {seconds:.0f} s in all")
        for report in terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", []):
            terminalreporter.write_line("\n".join([f"stalls of {report.nodeid}:", *stalls[report.nodeid]]))


class Runner:
    """A process that runs tests: the test that it is in, since when, and the moment of the next change: the next stall
    where `stopped` is empty, else the end of this one.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.test = ""
        self.since = 0.0
        self.change = 0.0
        self.stopped: list[int] = []


class Process(NamedTuple):
    """What /proc/PID/stat says of a process."""

    parent: int
    stopped: bool


class Stopper:
    """The process that stops others. `pids` is memory that its parent can read: those that it has stopped."""

    def __init__(self, rng: random.Random, pids: mmap.mmap, told: socket.socket) -> None:
        self._rng = rng
        self._pids = pids
        self._told = told
        self._runners: dict[int, Runner] = {}
        self._orphans: dict[int, str] = {}
        self._stalls: list[str] = []

    def run(self, parent: int) -> None:
        """Stop and let go until the parent has ended, or the test run, which is the other end of standard input."""
        try:
            while os.getppid() == parent:
                due = min((each.change for each in self._runners.values() if each.test), default=0.0)
                wait = min(LOOK, max(0.0, due - time.monotonic())) if due else LOOK
                ready, _, _ = select.select([self._told, sys.stdin], [], [], wait)
                if sys.stdin in ready:
                    break
                if self._told in ready:
                    self._hear(json.loads(self._told.recv(1 << 16)))
                for pid, runner in self._runners.items():
                    if runner.test and runner.change <= time.monotonic():
                        if runner.stopped:
                            self._go_on(runner)
                        else:
                            self._stop(pid, runner)
        finally:
            go_on(written_down(self._pids))
        with contextlib.suppress(BrokenPipeError):  # the run was killed
            print("".join(f"{line}\n" for line in self._stalls), end="", flush=True)  # nobody reads it until now

    def _hear(self, told: dict[str, str]) -> None:
        runner = self._runners.setdefault(int(told["pid"]), Runner(told["worker"]))
        self._go_on(runner)
        runner.test, runner.since = told["test"], time.monotonic()
        runner.change = runner.since + self._between(EARLIEST, LATEST)

    def _between(self, least: float, most: float) -> float:
        """A random number each of whose orders of magnitude is as likely as another."""
        return float(least * (most / least) ** self._rng.random())

    def _stop(self, pid: int, runner: Runner) -> None:
        now = time.monotonic()
        processes = self._processes_of(pid, runner)
        others = [each for each in processes if each != pid]
        dice = self._rng.random()
        chosen = processes if dice < ALL else [pid] if dice < ALL + RUNNER or not others else [self._rng.choice(others)]
        runner.stopped = chosen
        self._note()  # before it is so, since this process may be killed at any moment
        for each in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        seconds = self._between(SHORTEST, LONGEST)
        runner.change = now + seconds
        what = [name_of(each) for each in runner.stopped]
        line = {"test": runner.test, "at": now - runner.since, "seconds": seconds, "what": what}
        self._stalls.append(json.dumps(line))

    def _go_on(self, runner: Runner) -> None:
        go_on(runner.stopped)
        runner.stopped = []
        self._note()
        mean = (LONGEST - SHORTEST) / 2.7  # of a stall: the numbers of `_between` have the mean (b - a) / log(b / a)
        runner.change = time.monotonic() + self._rng.expovariate(SHARE / (1 - SHARE) / mean)

    def _note(self) -> None:
        """Write down for the parent what is stopped."""
        stopped = [each for runner in self._runners.values() for each in runner.stopped][:MOST]
        self._pids[: 4 * len(stopped) + 4] = struct.pack(f"{len(stopped) + 1}i", *stopped, 0)

    def _processes_of(self, pid: int, runner: Runner) -> list[int]:
        """A process that runs tests and all that it has begun, those included whose parents have ended; without those
        that stand still already.
        """
        processes = dict(all_processes())
        children = defaultdict(list)
        for each, process in processes.items():
            children[process.parent].append(each)
        found = [pid, *(each for each in children[1] if self._is_orphan_of(each, runner.worker))]
        for each in found:
            found += children[each]
        return [each for each in found if each in processes and not processes[each].stopped]

    def _is_orphan_of(self, pid: int, worker: str) -> bool:
        """Whether a process, whose parent has ended, was begun by this process of xdist."""
        if pid not in self._orphans:
            self._orphans[pid] = "none"
            with contextlib.suppress(OSError):
                entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if f"{ADDRESS}={os.environ[ADDRESS]}".encode() in entries:
                    names = [each for each in entries if each.startswith(b"PYTEST_XDIST_WORKER=")]
                    self._orphans[pid] = names[0].partition(b"=")[2].decode() if names else ""
        return self._orphans[pid] == worker


def all_processes() -> Iterator[tuple[int, Process]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                yield int(name), Process(int(fields[1]), fields[0] in "Tt")


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return f"{pid} {' '.join(words)[-60:].strip()}"
    return str(pid)


def stopped_again(status: str) -> bool:
    """Whether somebody else has stopped a process that stands still already, by its /proc/PID/status: the second signal
    is pending then. So is the first one as long as the process has had no turn, but it stands still only after that.
    """
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    pending = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    return fields["State"].startswith("T") and bool(pending >> (signal.SIGSTOP - 1) & 1)


def status_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


def written_down(pids: mmap.mmap) -> Iterator[int]:
    """The processes of which a stopper has noted that they are stopped."""
    for (pid,) in struct.iter_unpack("i", pids[:]):
        if not pid:
            return
        yield pid


def go_on(pids: Iterable[int]) -> None:
    """Let processes go on, but not those that a test has stopped too."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            if not stopped_again(status_of(pid)):
                os.kill(pid, signal.SIGCONT)


def main(seed: str) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(f"\0{os.environ[ADDRESS]}")
    pids = mmap.mmap(-1, 4 * (MOST + 1))
    parent = os.getpid()
    child = os.fork()
    if not child:
        Stopper(random.Random(seed), pids, told).run(parent)
        return
    os.write(sys.stdout.fileno(), b"ready\n")
    os.waitpid(child, 0)
    go_on(written_down(pids))


if __name__ == "__main__":
    main(sys.argv[1])
