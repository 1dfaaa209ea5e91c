cdef int _REMEMBERED


cdef class PeerLimits:
    cdef public long long header_bytes, headers, held, streams, window
    cdef public double resets


cdef class FrameBudget:
    cdef double _at, _left

    cdef spend(self, double rate, double now)


cdef class EndedStreams:
    cdef dict _before, _latest

    cdef add(self, number, bint was_reset)
    cdef was_reset(self, number)
