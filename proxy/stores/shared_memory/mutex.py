"""Locks in shared memory that the kernel frees when their holder dies.

Law: a process that dies, at whatever instruction, blocks no other. What a lock protects is therefore always published
by one aligned store: the next holder finds it as it was before or after, and has nothing to repair.

Theory. A POSIX mutex that is process-shared and robust (pthread_mutexattr_setrobust(3)) is a futex: a lock and an
unlock without contention are two atomic instructions. When a thread dies, the kernel walks the list of robust futexes
that it holds, and the one it was about to take (set_robust_list(2)), and marks each; the next thread to take it gets
EOWNERDEAD. Byte-range locks (fcntl, OFD) give the same promise for two system calls each time: 0.7 us against 0.25 us,
and they release the interpreter's lock, so that a thread that computes could delay every call.

No process ever sleeps on the futex: a sleeper that was woken and is killed before it has taken the lock takes the
wake-up with it, and if another process took the lock meanwhile, the next sleeper is never woken (glibc and kernel leave
that gap; a test with SIGKILL hits it within minutes). A process that finds a lock taken polls: sections are about a
microsecond long. A process that waits longer keeps its heartbeat going (`beat_while_waiting`), so that of all workers
only the holder seems to hang if it is stopped. Calls go through `PyDLL`, which keeps the interpreter's lock: take these
locks only in one thread of a process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from functools import partial

#: The bytes reserved for a mutex; glibc's has 40 or 48 bytes, musl's 40.
MUTEX_BYTES = 64
_PROCESS_SHARED = 1  # PTHREAD_PROCESS_SHARED, on Linux with every libc
_ROBUST = 1  # PTHREAD_MUTEX_ROBUST
#: Tries before the processor is yielded each time, tries before the process sleeps instead, and how long it sleeps.
_TRIES, _YIELDS, _NAP = 8, 64, 50  # _NAP: microseconds

_libc = ctypes.PyDLL(None)
_idle = ctypes.CDLL(None)  # releases the interpreter's lock


_beat: Callable[[], object] = bool


def beat_while_waiting(beat: Callable[[], object]) -> None:
    """Have `beat` called while a lock is waited for, in the thread that waits."""
    global _beat
    _beat = beat


class Mutex:
    """The mutex at this byte of a mapping: `with` takes and releases it.

    `take` returns 0 if this process has the lock now; any other number that it returns is the argument for `wait`.
    `free` releases the lock.
    """

    __slots__ = ("_address", "free", "take")

    def __init__(self, mapping: mmap.mmap, at: int) -> None:
        self._address = ctypes.byref(ctypes.c_char.from_buffer(mapping, at))  # made once: a fifth of a call's time
        self.take: Callable[[], int] = partial(_libc.pthread_mutex_trylock, self._address)
        self.free: Callable[[], int] = partial(_libc.pthread_mutex_unlock, self._address)

    def make(self) -> None:
        """Make a free lock here. No process may hold an earlier one in the same place."""
        attributes = ctypes.create_string_buffer(MUTEX_BYTES)
        _sure(_libc.pthread_mutexattr_init(attributes))
        _sure(_libc.pthread_mutexattr_setpshared(attributes, _PROCESS_SHARED))
        _sure(_libc.pthread_mutexattr_setrobust(attributes, _ROBUST))
        _sure(_libc.pthread_mutex_init(self._address, attributes))
        _sure(_libc.pthread_mutexattr_destroy(attributes))

    def wait(self, answer: int) -> None:
        """Wait until this process has the lock. `answer`: the error number that `take` returned: EBUSY if another
        process holds the lock, EOWNERDEAD if one died holding it.
        """
        tries = 0
        while answer == errno.EBUSY:
            tries += 1
            if tries > _YIELDS:
                _beat()
                _idle.usleep(_NAP)
            elif tries > _TRIES:
                os.sched_yield()
            answer = self.take()
        if answer:
            self._own(answer)

    def attempt(self) -> bool:
        """Take the lock if no process holds it. Returns whether this process has it now."""
        answer = self.take()
        if answer not in (0, errno.EBUSY):
            self._own(answer)
        return answer != errno.EBUSY

    def _own(self, answer: int) -> None:
        """Take over the lock whose holder died, if `answer` (what taking it returned) says so. Raises OSError for any
        other answer.
        """
        if answer != errno.EOWNERDEAD:
            raise OSError(answer, os.strerror(answer))
        _sure(_libc.pthread_mutex_consistent(self._address))

    def __enter__(self) -> None:
        answer = self.take()
        if answer:
            self.wait(answer)

    def __exit__(self, *_: object) -> None:
        self.free()


def _sure(answer: int) -> None:
    if answer:
        raise OSError(answer, os.strerror(answer))
