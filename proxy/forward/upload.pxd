cimport cython

from proxy.forward.attempt cimport Attempt
from proxy.transport.replay_buffer cimport Replay


cdef class Upload:
    cdef public object _app
    cdef public Replay replay
    cdef public bint overfull
    cdef public bint paused
    cdef public long long size

    cpdef append(self, bytes data)
    cpdef end(self, trailers)
    cpdef bint lose(self) except -1
    cpdef go_on(self, Attempt attempt)
    @cython.locals(replay=Replay, each=Attempt, furthest_behind="long long", waits=bint, streams=bint, is_behind=bint)
    cpdef settle(self, dict flights)
