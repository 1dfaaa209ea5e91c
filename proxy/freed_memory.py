"""Memory that the process has freed: what is kept for the next use, and when it goes back to the system."""

from __future__ import annotations

import gc
import os
import sys
from time import process_time

try:
    from proxy.heap import keep, trim
except ImportError:  # nothing is compiled

    def trim() -> None:
        """Do nothing: Python alone cannot give memory back to the system."""

    def keep(most: int, alone: int) -> None:
        """Keep up to `most` free bytes at the end of the heap, and map only blocks of `alone` bytes and more by
        themselves, if the C library has such thresholds.
        """
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, most)
            mallopt(_MMAP_THRESHOLD, alone)


#: The switch interval, in seconds: how long a thread that computes (a configuration, an exposition) may keep the
#: interpreter while the loop waits for it, as the loop does some five times a call. Python's default is 5 ms.
_SWITCH = 0.00005
#: Bytes of freed memory that the process keeps, and the size from which a block is given back at once. glibc's own
#: are 128 KiB, so that the pieces of a body are taken from the system and given back again and again: a GiB of chunked
#: bodies took 635,000 page faults and 1,840 ms of CPU, and takes 240 and 770 so. Bodies of requests are kept until
#: their calls are over: of four of 1 MiB at a time, chunked, each took 1,020 to 1,160 us of CPU with 2 MiB kept, and
#: 570 to 650 with 16.
_KEPT, _ALONE = 16 * 1024 * 1024, 1024 * 1024
#: The numbers of mallopt(3), and the variables by which an operator sets the thresholds.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_THRESHOLDS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
#: Seconds of CPU time between two looks beyond which the process worked meanwhile, so that it may have freed memory.
_WORK = 0.1
#: How many times memory is given back once the process is at rest: connections that its work has left are closed by
#: and by.
_TIMES = 3


def settle_in() -> None:
    """Exempt everything that is imported and built so far from garbage collection, because it lives as long as the
    process, and give memory that was needed only during the start back to the system. From now on the C library keeps
    freed memory for reuse up to a fixed limit, unless the environment sets limits of its own for glibc.
    """
    sys.setswitchinterval(_SWITCH)
    sys.path_importer_cache.clear()  # lists of files in the folders that were imported from
    gc.collect()
    gc.freeze()
    trim()
    if not any(os.environ.get(name) for name in _THRESHOLDS):
        keep(_KEPT, _ALONE)


class FreedMemory:
    """The memory that a process has freed while it worked. It goes back to the system when the process has come to
    rest: what is kept meanwhile would be taken from the system again and again, and what is left of it afterwards is of
    no use. Calls that are open and silent, streams above all, do not hold it up: what they need is not free. To give
    back 16 MiB takes 1 to 2 ms of CPU time.

    The garbage of the work, objects that refer to each other, is collected before: the interpreter does that when so
    many objects have been made, and a process at rest makes none.
    """

    __slots__ = ("_computed", "_left")

    def __init__(self) -> None:
        self._computed = process_time()  # seconds of CPU time until the last look
        self._left = 0  # how many times memory is yet to be given back

    def look(self) -> None:
        """Give freed memory back if the process has come to rest after work: it has hardly computed since the last
        look. To be called every few seconds.
        """
        before, self._computed = self._computed, process_time()
        if self._computed - before > _WORK:
            self._left = _TIMES
        elif self._left:
            if self._left == _TIMES:
                gc.collect()
            self._left -= 1
            trim()
