"""Figures about processes, from /proc: what they have used, and what they hold."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
#: Where what the benchmark compares with is installed.
VENV = Path(__file__).parent / ".venv"


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process tree so far."""
    total = 0
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def at_rest(pid: int) -> tuple[int, float]:
    """Context switches of a process tree so far, and its seconds of CPU, to the nanosecond."""
    switches, seconds = 0, 0.0
    for member in tree(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            status = (task / "status").read_text()
            switches += sum(map(int, re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", status, re.M)))
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
    return switches, seconds


def memory(pid: int) -> int:
    """Bytes of a process tree, shared pages divided among those who share them (PSS)."""
    total = 0
    for member in tree(pid):
        try:
            match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{member}/smaps_rollup").read_text(), re.M)
        except OSError:
            continue
        total += int(match[1]) * 1024 if match else 0
    return total


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listens(pid: int, port: int) -> bool:
    """Whether a process, or a descendant of it, listens on this TCP port."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for _, local, _, state, *more in map(str.split, lines):
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{more[5]}]")
    for member in tree(pid):
        try:
            if any(os.readlink(each) in sockets for each in Path(f"/proc/{member}/fd").iterdir()):
                return True
        except OSError:  # it has ended, or closed a descriptor just now
            continue
    return False


class Running:
    """A server process on these cores; `started`: seconds from its start to its first answer. With an empty `probe`, to
    the first connection that it takes.

    A port that was free may be another process's when the server comes to listen, under valgrind seconds later. An answer
    from there is none: a run that was answered by a stranger ended with a reset, and did not say why.
    """

    def __init__(
        self, command: list[str], port: int, probe: bytes, core: int | str, log: Path, within: float = 30
    ) -> None:
        self.log = log.open("ab")
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *command], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL
        )
        self.started = self._first_answer(port, probe, begun, within)

    @property
    def pid(self) -> int:
        return self.process.pid

    def _first_answer(self, port: int, probe: bytes, begun: float, within: float) -> float:
        while time.perf_counter() - begun < within:
            if self.process.poll() is not None:
                raise RuntimeError(f"ended with {self.process.returncode}: {self._last_words()}")
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as s:
                    s.settimeout(1)
                    if not listens(self.process.pid, port):
                        raise ConnectionError
                    s.sendall(probe)
                    if not probe or s.recv(4096).startswith(b"HTTP/1.1 200"):
                        return time.perf_counter() - begun
            except OSError:
                pass
            time.sleep(0.005)
        self.stop()
        raise RuntimeError(f"no answer within {within:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = Path(str(self.log.name)).read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])

    def stop(self) -> None:
        for member in reversed(tree(self.process.pid)):
            try:
                os.kill(member, 9)
            except OSError:
                continue
        self.process.wait()
        self.log.close()
