cimport cython

cdef int _REMEMBERED, _SPAN, _ENDED, _RESET


cdef class PeerLimits:
    cdef public long long header_bytes, headers, held, streams, window
    cdef public double resets


cdef class FrameBudget:
    cdef double _at, _left

    cdef spend(self, double rate, double now)


cdef class EndedStreams:
    cdef bytearray _near
    cdef Py_ssize_t _first
    cdef dict _before, _latest

    @cython.locals(near=bytearray, place=Py_ssize_t, passed=Py_ssize_t)
    cdef add(self, long long number, bint was_reset)
    cdef _add_late(self, long long number, bint was_reset)
    @cython.locals(near=bytearray, first=Py_ssize_t, few=Py_ssize_t, place=Py_ssize_t, number=cython.longlong)
    cdef _pass(self, Py_ssize_t passed)
    @cython.locals(place=Py_ssize_t)
    cdef was_reset(self, long long number)
