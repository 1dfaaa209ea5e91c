"""File descriptors: how many there may be, and how many are open.

Law: the limit that the system would let us have is taken, since each call needs two; what is kept of it for the admin
port is `proxy.server.listener.RESERVED`.
"""

from __future__ import annotations

import resource
from pathlib import Path

#: Enough for every limit of ours; more only makes what walks all descriptors slow.
MOST = 1024 * 1024


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
