"""What a verb prints comes whole."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import termios
from pathlib import Path

from support.process import COMMAND, environment

#: Bytes that the pipe holds: less than is printed.
ROOM = 4096


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def waiting(pipe: int) -> int:
    """Bytes that stand in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")


def test_nothing_is_lost_where_the_process_is_stopped_while_it_prints() -> None:
    """A write that a signal interrupts has written a part. Without a buffer, Python does not write the rest."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, ROOM)
    process = subprocess.Popen([*COMMAND, "schema"], env=environment(PYTHONUNBUFFERED="1"), stdout=theirs)
    os.close(theirs)
    while waiting(ours) < ROOM or state(process.pid) != "S":  # it prints, and waits for a reader
        select.select([], [], [], 0.001)
    process.send_signal(signal.SIGSTOP)
    while state(process.pid) != "T":
        select.select([], [], [], 0.001)
    process.send_signal(signal.SIGCONT)
    with open(ours, "rb") as output:
        printed = output.read()
    assert process.wait() == 0
    assert json.loads(printed)["title"] == "redrive configuration"
