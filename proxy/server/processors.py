"""How many processes `workers: auto` is.

Law: as many as can run at one time: the processors this process may use, or the share of them that its container has.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

#: The quota of a container (cgroup v2): microseconds of each period, or "max".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def processes(workers: int | None) -> int:
    """The setting `workers` as a number; None is auto."""
    if workers is not None:
        return workers
    try:
        able = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        able = os.cpu_count() or 1
    return max(1, min(able, _quota(_QUOTA)))


def _quota(file: Path) -> int:
    """Whole processors' worth, rounded up; a large number where there is no quota."""
    try:
        quota, period = file.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return 1 << 20
