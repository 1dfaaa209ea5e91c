"""What a process may use, and what it does use: file descriptors, processors, and everything that has a limit.

The process raises its limit of file descriptors to what the system allows, because each call needs two. `workers: auto`
is as many processes as can run at one time: the processors that this process may use, or its container's share of them.
"""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path
from typing import NamedTuple

from proxy.config.settings import MOST_WORKERS

#: File descriptors that calls leave to the admin port, look-ups, files and the log.
RESERVED = 64
#: Connections beyond `limits.connections` whose request is read before they are refused; those beyond these are refused
#: at once.
REFUSED_IN_WORDS = 128
#: Enough for every limit of ours; more only makes what walks all descriptors slow.
MOST = 1024 * 1024
#: The quota of a container (cgroup v2): microseconds of each period, or "max".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Usage(NamedTuple):
    """What calls use of what has limits: calls, parked calls, bytes kept for another attempt. `busy`, while draining:
    the processes in which anything is under way (`Acceptor.is_busy`).
    """

    in_flight: int = 0
    waiting: int = 0
    buffered: int = 0
    busy: int = 0


def enough_for(descriptors: int) -> int:
    """Connections of apps that so many file descriptors are enough for, each with one upstream."""
    room = descriptors - RESERVED
    return max(1, (room - min(REFUSED_IN_WORDS, room // 4)) // 2)


def limit() -> int:
    """Raise the limit as far as it may be, and say where it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """File descriptors that this process has open."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    except OSError:  # no /proc: there is nothing to count by
        return 0


def processes(workers: int | None) -> int:
    """The setting `workers` as a number; None is auto."""
    if workers is not None:
        return workers
    try:
        able = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        able = os.cpu_count() or 1
    return max(1, min(able, _quota(_QUOTA), MOST_WORKERS))


def _quota(file: Path) -> int:
    """Whole processors' worth, rounded up; a large number where there is no quota."""
    try:
        quota, period = file.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return 1 << 20
