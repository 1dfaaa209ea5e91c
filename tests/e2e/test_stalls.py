"""`support.stalls` stops what a test has begun, and nothing stays stopped, whoever of its two processes ends first."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import stalls

#: A process that tests begin: it waits for its end of a pipe to be closed.
IDLE = (sys.executable, "-c", "import sys; sys.stdin.read()")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(pid: int, *states: str) -> None:
    """Wait until a process is in one of these states: the timeout of each test ends this."""
    while state(pid) not in states:
        select.select([], [], [], 0.001)


class Beside:
    """The process that stops others, and a process that runs a test, of which it is told."""

    def __init__(self) -> None:
        address = f"redrive-stalls-test-{os.getpid()}"
        command = (sys.executable, stalls.__file__, "7")
        pipe = subprocess.PIPE
        environment = {**os.environ, stalls.ADDRESS: address}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        (self.stopper,) = self._children()
        self.runner = subprocess.Popen(IDLE, stdin=pipe)
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.connect(f"\0{address}")
        self.say("tests/test_one.py::test_one")

    def _children(self) -> list[int]:
        return [pid for pid, each in stalls.all_processes() if each.parent == self.process.pid]

    def say(self, test: str) -> None:
        self._told.send(json.dumps({"pid": self.runner.pid, "worker": "none of xdist", "test": test}).encode())

    def close(self) -> None:
        self.runner.kill()
        self.runner.communicate()
        self.process.communicate()
        self._told.close()


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.close()


def test_a_process_is_stopped_and_goes_on_many_times(beside: Beside) -> None:
    for _ in range(3):
        wait_for(beside.runner.pid, "T")
        wait_for(beside.runner.pid, "S", "R")


def test_the_end_of_the_run_lets_all_go_on_and_gives_the_stalls(beside: Beside) -> None:
    wait_for(beside.runner.pid, "T")
    out, _ = beside.process.communicate()
    wait_for(beside.runner.pid, "S", "R")
    stall = json.loads(out.splitlines()[0])
    assert stall["test"] == "tests/test_one.py::test_one"
    assert [each.split()[0] for each in stall["what"]] == [str(beside.runner.pid)]
    assert stalls.SHORTEST <= stall["seconds"] <= stalls.LONGEST


@pytest.mark.parametrize("who", ["the one that stops", "its parent"])
def test_a_killed_one_leaves_nothing_stopped(beside: Beside, who: str) -> None:
    wait_for(beside.runner.pid, "T")
    os.kill(beside.process.pid if who == "its parent" else beside.stopper, signal.SIGKILL)
    wait_for(beside.runner.pid, "S", "R")


def test_a_test_that_ends_is_not_stopped_any_more(beside: Beside) -> None:
    wait_for(beside.runner.pid, "T")
    beside.say("")
    wait_for(beside.runner.pid, "S", "R")
    out, _ = beside.process.communicate()
    assert len(out.splitlines()) == 1


def test_what_a_test_has_stopped_itself_stays_stopped(beside: Beside) -> None:
    wait_for(beside.runner.pid, "T")
    assert not stalls.stopped_again(stalls.status_of(beside.runner.pid))
    beside.runner.send_signal(signal.SIGSTOP)
    assert stalls.stopped_again(stalls.status_of(beside.runner.pid))
    beside.process.communicate()
    assert state(beside.runner.pid) == "T"


def test_a_signal_that_has_had_no_effect_yet_is_no_second_one() -> None:
    """Or a process that got no turn since it was stopped would never go on."""
    status = "State:\tR (running)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000040000\n"
    assert not stalls.stopped_again(status)
    assert stalls.stopped_again(status.replace("R (running)", "T (stopped)"))
