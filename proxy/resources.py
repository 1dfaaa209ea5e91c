"""The limits of what a process may use, and what it does use: file descriptors, processors, calls, kept bytes.

The process raises its limit of file descriptors to what the system allows, because each call needs two. `workers: auto`
is as many processes as can run at one time: the processors that this process may use, or its container's share of them;
and no more than its container's memory has room for.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from proxy.config.settings import MOST_WORKERS, Settings

#: File descriptors that are kept from calls, for the admin port, look-ups, files and the log.
RESERVED = 64
#: How many connections beyond `limits.connections` stay open until their request is read, and are refused then; further
#: ones are refused at once.
REFUSED_IN_WORDS = 128
#: The bytes of memory that a container must have for each process of `workers: auto`: what a process uses before any
#: call, some 35 MiB, and a little for calls.
_A_PROCESS = 40 << 20
#: The most descriptors that are asked for: enough for every limit of ours, and more would make programs that walk all
#: descriptors slow.
MOST = 1024 * 1024
#: The quota of a container (cgroup v2): microseconds of each period, or "max".
_CGROUPS = Path("/sys/fs/cgroup")
_QUOTA = _CGROUPS / "cpu.max"
#: A limit of this many bytes and more is none: version 1 has a number near 2^63 where there is none.
_NO_LIMIT = 1 << 60


class Usage(NamedTuple):
    """The use that calls make of everything that has a limit: calls in flight, calls that wait, bytes kept for another
    attempt. `busy` is the number of processes in which anything is still under way (`Acceptor.is_busy`); a process that
    drains waits until it is 0.
    """

    in_flight: int = 0
    waiting: int = 0
    buffered: int = 0
    busy: int = 0


def enough_for(descriptors: int) -> int:
    """The number of app connections for which `descriptors` file descriptors suffice, if each has one upstream
    connection.
    """
    return max(1, (descriptors - RESERVED - surplus_for(descriptors)) // 2)


def surplus_for(descriptors: int) -> int:
    """The number of connections beyond the limit that stay open until their request is read, if there are so many
    `descriptors`.
    """
    return max(0, min(REFUSED_IN_WORDS, (descriptors - RESERVED) // 4))


def limit() -> int:
    """Raise the limit of open file descriptors as far as the system allows, and return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST if soft == resource.RLIM_INFINITY else soft


def memory(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The bytes of memory that the process's control group and those around it allow, None if there is no limit.
    `root` is where the groups are mounted (cgroup v2, else v1's memory controller), `own` says which is the process's.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:  # no Linux
        return None
    found: list[int] = []
    for _, controllers, place in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        inside = Path(place.lstrip("/"))
        for group in (inside, *inside.parents):  # in a container the path may be the host's: then the top is its own
            with contextlib.suppress(OSError, ValueError):
                found.append(int((top / group / name).read_text()))
    least = min(found, default=_NO_LIMIT)
    return least if least < _NO_LIMIT else None


def resident() -> int:
    """The bytes of memory that this process uses now; 0 if the system has no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def fitted(settings: Settings, allowed: int | None, used: int) -> Settings:
    """The settings with `buffers.total` and `limits.connections` lowered to what fits the memory that is `allowed`
    (bytes, None for any), if each process uses `used` bytes before any call: half of the rest is for kept bodies, and
    half for connections, each of which may hold a request's head.
    """
    if allowed is None:
        return settings
    count = processes(settings.workers)
    rest = max(allowed // 16, allowed - used * (count + 1 if count > 1 else 1))
    buffers, limits = settings.buffers, settings.limits
    total, connections = (
        min(buffers.total, rest // 2),
        min(limits.connections, max(1, rest // 2 // limits.header_bytes)),
    )
    if (total, connections) == (buffers.total, limits.connections):
        return settings
    return replace(settings, buffers=replace(buffers, total=total), limits=replace(limits, connections=connections))


def open_files() -> int:
    """The number of file descriptors that this process has open; 0 if the system has no /proc."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    except OSError:  # the system has no /proc
        return 0


def processes(workers: int | None) -> int:
    """The number of processes that the setting `workers` asks for; None means auto, as many as can run at one time."""
    if workers is not None:
        return workers
    try:
        able = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        able = os.cpu_count() or 1
    allowed = memory()
    if allowed is not None:
        able = min(able, allowed // _A_PROCESS - 1)  # their parent is a process, too
    return max(1, min(able, _quota(_QUOTA), MOST_WORKERS))


def too_little_memory(settings: Settings, allowed: int | None, used: int) -> str:
    """The line that says that the memory which is `allowed` (bytes) is too little for the processes of this
    configuration, if each uses `used` bytes before any call; "" if it suffices.
    """
    count = processes(settings.workers)
    if count == 1 or allowed is None or allowed >= used * (count + 1):
        return ""
    line = f"{allowed >> 20} MiB of memory are too little for {count} workers and their parent: "
    return line + f"each takes some {used >> 20} MiB, so the system may kill them; set `workers` to 1 or auto"


def _quota(file: Path) -> int:
    """A container's quota in whole processors, rounded up; a large number if there is no quota."""
    try:
        quota, period = file.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return 1 << 20
